"""A whole group in one thread: the shipped stacks on a simulated network and simulated
clocks, where a seed replays a run exactly.

`network` is what happens to a datagram; `member` one process with its clock, socket and
application; `cluster` the queue of events that moves them all; `checkers` what must
hold after every event; `plan` the faults and the load of a seed; `run` one seed from
its first event to the verdict, and the shortest prefix that still fails; `transcript`
the language of scenarios written by hand; `trace` the protocol events of a run as a
table.
"""
