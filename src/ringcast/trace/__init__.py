"""Traces: what a member did, as a table of protocol events that `ringcast audit` reads.

The option `trace` of a channel names a directory; every member writes into a folder of its own there, and a simulation writes the
same (ringcast.sim.trace). One row is one event: a range of messages sent or delivered, an ack, a purge, a view. schema.py says what
the columns are, recorder.py turns what a stack does into rows, writer.py brings them to the disk without ever holding the member up.

pyarrow is imported when a trace is switched on, and not before.
"""
