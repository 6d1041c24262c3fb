"""Traces: what a member did, as a table of protocol events that `ringcast audit` reads.

The option `trace` of a channel names a directory; every member writes into a folder of
its own there, and a simulation writes the same (ringcast.sim.trace). One row is one
event: a range of messages sent or delivered, an ack, a purge, a view. schema.py says
what the columns are, recorder.py turns what a stack does into rows, writer.py brings
them to the disk without ever holding the member up.

A trace that is switched on cost 6 % of the throughput at 4.6 million messages of 100
bytes a second over mcast-udp, and 17 % at 7.4 million over inproc, two members in one
process on two cores (benchmarks/trace_cost.py). It costs per datagram and batch, so
less where the network is the limit. A row takes some 15 bytes on the disk.

Part files are complete or not there: each is written under another name and renamed.
They are numbered from 1. pyarrow is imported when a trace is switched on, and not
before.
"""

PART = 1 << 12      # beside ringcast.Flag: a fragment of a message that is not its last
VERSION_KEY, VERSION = b"ringcast.trace", b"2"  # in the metadata of a part file
SUFFIX, UNFINISHED = ".parquet", ".part"

SENT = "sent "      # and the name of a kind: an event of a layer that this release does not know

# Row groups of a part: who asks for some kinds of events need not read the others.
ROW_GROUPS = (("view", "start", "resume", "refuse", "dropped", "close"),
              ("ack", "purge", "xmit_req", "window", "blocked"),
              ("send", "retransmit"), ("deliver",), ("other",))
KINDS = {event: number for number, event in enumerate(event for group in ROW_GROUPS
                                                      for event in group)}


def number_of(event: str) -> int:
    """Return the number of an event."""
    return KINDS["other" if event.startswith(SENT) else event]


def part_name(number: int) -> str:
    return f"{number:06d}{SUFFIX}"


def id_of(address: str | None) -> int:
    """The incarnation in `name#incarnation` as a signed number of 64 bits; 0, which no
    member has, for None."""
    if address is None:
        return 0
    number = int(address.rpartition("#")[2], 16)
    return number if number < 1 << 63 else number - (1 << 64)
