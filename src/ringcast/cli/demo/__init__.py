"""`ringcast demo`: the whole system at work on real data, and the proof that nothing
was lost on the way.

    flights.py      the data: flight records, and what should come out
    members.py      the processes of the group: publishers and a recorder, on a network that misbehaves
    pipeline.py     what Spark does: stream the journal into a table, compute, compare
    report.py       the page with the plots
    command.py      the command: runs it all, watches, tells
"""
