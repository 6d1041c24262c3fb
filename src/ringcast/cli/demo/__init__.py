"""`ringcast demo`: the whole system at work on real data, with a proof that no message
was lost.

    flights.py      the data: flight records, and the expected results
    members.py      the processes of the group, with simulated network faults
    pipeline.py     Spark's part: stream the journal into a table, compute, compare
    report.py       the page with the plots, and the same for a program
    command.py      the command: start, watch and compare
"""
