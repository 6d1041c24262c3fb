"""A whole group in one thread: the shipped stacks on a simulated network with simulated
clocks. A seed replays a run exactly.

`cluster` has the group, its time and its queue of events. `member` is one process: the
endpoint that ships, and around it `clock`, `transport`, `schedule`, `producer` and
`consumer`. `network` and `links` carry datagrams, and lose some. `checkers` has what
must hold after every turn. `runs` draws and performs the plan of a seed; `transcripts`
has plays that are written by hand; `trace` writes the protocol events of a run as a
table.
"""
