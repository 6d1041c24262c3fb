"""Traces: what a member did, as a table of protocol events that `ringcast audit` reads.

The option `trace` of a channel names a directory. Every member writes into a folder of
its own there; a simulation writes the same (ringcast.sim.trace). One row is one event:
a range of messages sent or delivered, an ack, a purge, a view. schema.py says what the
columns are, recorder.py turns what a stack does into rows, and writer.py writes them to
the disk without blocking the member.

A trace cost 6 % of the throughput at 4.6 million messages of 100 bytes a second over
mcast-udp, and 17 % at 7.4 million over inproc, with two members in one process on two
cores (benchmarks/trace_cost.py). It costs per datagram and batch, so less where the
network is the limit. A row takes about 15 bytes on the disk.

A part file is complete or does not exist: it is written under another name and renamed.
Parts are numbered from 1. pyarrow is imported only if there is a trace.
"""

PART = 1 << 12      # beside ringcast.Flag: a fragment of a message that is not its last
VERSION_KEY, VERSION = b"ringcast.trace", b"5"  # in the metadata of a part file
SUFFIX, UNFINISHED = ".parquet", ".part"

SENT = "sent "      # and the name of a kind: an event of a layer that is not ringcast's own

# Row groups of a part: a reader of some kinds of events need not read the others.
ROW_GROUPS = (("view", "install", "depart", "start", "resume", "refuse", "observe", "skip",
               "dropped", "close"),
              ("ack", "purge", "xmit_req", "window", "blocked"),
              ("send", "retransmit"), ("deliver",), ("other",))
KINDS = {event: number for number, event in enumerate(event for group in ROW_GROUPS
                                                      for event in group)}


def number_of(event: str) -> int:
    """Return the number of an event."""
    return KINDS["other" if event.startswith(SENT) else event]


def part_name(number: int) -> str:
    """Return the name of a part file."""
    return f"{number:06d}{SUFFIX}"


def id_of(address: str | None) -> int:
    """Return the incarnation in `name#incarnation` as a signed number of 64 bits; for
    None return 0, which no member has."""
    return 0 if address is None else signed(int(address.rpartition("#")[2], 16))


def signed(number: int) -> int:
    """Return a number of 64 bits as a signed column holds it."""
    return number if number < 1 << 63 else number - (1 << 64)
