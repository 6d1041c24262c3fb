"""Measure a group under a steady load: throughput, latency, overhead, and how long its
senders were blocked.

All times are simulated, so the figures are the same on every machine; and they are as
good as the model. The model has a wire of a given bandwidth into and out of each
member, a fixed delay, loss, socket buffers, a fixed time for each turn, and the
protocol itself, byte for byte, with its timers and windows. It has no time for handling
a message or a byte, no packets smaller than a datagram (so a datagram of 60 kB is lost
as easily as a small one), and no other traffic. So compare settings by these figures,
not machines. If a processor is slower than the wire, give its speed as the bandwidth.

Throughput is what the slowest receiver gets in a second. Latency is the time from a
message's first transmission until it is delivered to an application, for each receiver
except the sender. Time that the message waits in the sending application because the
window is full does not count as latency but as blocked. Latencies are kept as a
histogram, which can be added up over runs; a percentile that is read from it is at most
9 % too high (see ringcast.histogram). Overhead is the bytes on the wire beyond those of
the payloads, for each byte of payload: headers, acks, requests, repeats, announcements,
and over connections the copies for further receivers.
"""

from array import array
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from ringcast.address import EVERYONE
from ringcast.histogram import Histogram, count_latencies
from ringcast.sim.cluster import Observer

if TYPE_CHECKING:
    from ringcast._core.batch import Batch
    from ringcast.address import Address
    from ringcast.sim.cluster import Cluster
    from ringcast.sim.member import Member
    from ringcast.view import View


class Measured(msgspec.Struct, kw_only=True):
    """The figures of one run. A multicast counts as one datagram."""

    seconds: float              # of the load
    messages: int               # that all senders sent
    payload: int                # bytes of these
    delivered: dict[str, int]   # to each receiver during the load, without its own messages
    latency: dict[int, int]     # deliveries by bucket of ringcast.histogram
    slowest: int                # nanoseconds: the longest latency
    datagrams: dict[str, int]   # by what they carry: data, repeat, control
    sent: dict[str, int]        # bytes, by the same
    blocked: float              # seconds that senders waited for room, all together

    @property
    def throughput(self) -> float:
        """Messages a second at the slowest receiver."""
        return min(self.delivered.values(), default=0) / self.seconds

    @property
    def overhead(self) -> float:
        """Bytes on the wire beyond the payloads, for each byte of these."""
        return sum(self.sent.values()) / max(1, self.payload) - 1

    def percentile(self, share: float) -> int:
        """Return the nanoseconds within which this share of all deliveries came; 0 if
        there were none."""
        return min(Histogram(self.latency).percentile(share) or 0, self.slowest)


class Meter(Observer):
    """Observes a run and measures. It passes everything on to the observer that the
    cluster had before.

    For throughput, deliveries between `begin` and `end` count; for latency all.
    `stop()` ends the count of what is sent: the rest of a run only checks that nothing
    is missing.
    """

    def __init__(self, cluster: "Cluster", begin: int, end: int) -> None:
        self.cluster, self.begin, self.end = cluster, begin, end
        self.others = cluster.observer
        self.delivered_by: Counter[str] = Counter()
        self.sent_at, self.handed_at = array("q"), array("q")       # of every delivery
        self.datagrams: Counter[str] = Counter()
        self.nbytes: Counter[str] = Counter()
        self.messages = self.payload = self.blocked = 0
        self.stopped_at: int | None = None

    # --------------------------------------------------------------- what the cluster tells it

    def sent(self, member: "Member", dest: int, datagram: bytes) -> None:
        self.others.sent(member, dest, datagram)
        if self.cluster.now >= self.begin and self.stopped_at is None:
            header = member.stack.open(datagram)
            assert header is not None                   # a member of this group made it
            what = member.stack.kind(header.kind).measured
            links = self.cluster.links
            copies = len(links.partners(member)) if links is not None and dest == EVERYONE else 1
            self.datagrams[what] += copies
            self.nbytes[what] += copies * len(datagram)

    def delivered(self, member: "Member", batch: "Batch") -> None:
        self.others.delivered(member, batch)
        if batch.dest is None and batch.sender != member.address:
            self.sent_at.frombytes(batch.sent_at.cast("B"))
            self.handed_at.extend(array("q", [self.cluster.now]) * len(batch))
            if self.begin <= self.cluster.now <= self.end:
                self.delivered_by[member.name] += len(batch)

    def viewed(self, member: "Member", view: "View") -> None:
        self.others.viewed(member, view)

    def after_turn(self, member: "Member") -> None:
        self.others.after_turn(member)

    def blocked_for(self, member: "Member", dest: "Address | None", nanoseconds: int) -> None:
        self.others.blocked_for(member, dest, nanoseconds)

    # ------------------------------------------------------------------------------- the result

    def stop(self) -> None:
        """Note the end of the load, and of the time for what was on its way."""
        self.stopped_at = self.cluster.now
        incarnations = self.cluster.incarnations.values()
        self.messages = sum(len(member.log) - member.log.count(None) for member in incarnations)
        self.payload = sum(len(payload or b"") for member in incarnations for payload in member.log)
        self.blocked = sum(member.producer.blocked_for for member in incarnations)
        senders = {member.name for member in incarnations if member.log}
        for name in self.cluster.members:
            if senders - {name}:
                self.delivered_by[name] += 0    # a receiver that got nothing is one too

    def measured(self) -> Measured | None:
        """Return the figures, or None if the run ended before the load did."""
        if self.stopped_at is None or self.end <= self.begin:
            return None
        latency, slowest = latencies(self.sent_at, self.handed_at, self.stopped_at)
        return Measured(
            seconds=(self.end - self.begin) / 1e9, messages=self.messages, payload=self.payload,
            latency=dict(latency), slowest=slowest, delivered=dict(self.delivered_by),
            datagrams=dict(self.datagrams), sent=dict(self.nbytes), blocked=self.blocked / 1e9)


def latencies(sent_at: "array[int]", handed_at: "array[int]", until: int) -> tuple[Histogram, int]:
    """Return, of the messages that were sent before `until`, the histogram of the
    latencies of their deliveries, and the longest one in nanoseconds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sent, handed = (pa.Array.from_buffers(pa.int64(), len(each), [None, pa.py_buffer(each)])
                    for each in (sent_at, handed_at))
    latency = pc.subtract(handed, sent).filter(pc.less(sent, until))
    return count_latencies(latency), pc.max(latency).as_py() or 0
