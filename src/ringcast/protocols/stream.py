"""What one sender sends: from the window to the application, and back as "finished".

Messages go to the application in order. OOB messages go when they come, and are passed
over when their turn has come. Fragments are put together on the way. HD of the window
is what left it in order. `finished` is up to where the application has finished
everything, OOB messages and whole large messages included: that may be acknowledged,
and it is LOW in a receive window.

The channel sees to it that batches are finished in the order in which they were handed
over. So all that was handed over before a finished batch is finished as well; and when
nothing is outstanding any more, all that left the window is finished.
"""

from ringcast._core.batch import Batch
from ringcast._core.marks import Marks
from ringcast._core.ring_buffer import RingBuffer
from ringcast._core.send_window import SendWindow
from ringcast._core.stamps import Stamps
from ringcast._core.window import Window
from ringcast._core.wire import Arrivals
from ringcast.address import Address
from ringcast.config import Config, nanoseconds
from ringcast.flags import FRAGMENT, Flag
from ringcast.protocols.frag import HEAD, SHARES, Assembly, Reassembly, begin_of, goes_whole
from ringcast.protocols.seqnos import MODULUS, Seqno, precedes
from ringcast.stack import Instant, Layer

OOB = int(Flag.OOB)     # arithmetic with a number is faster than with an enum


def estimate_bytes(ring: Window, messages: int, missing: int = 0) -> int:
    """Estimate how many bytes so many messages of a window have, of which so many are
    missing."""
    held = (ring.hr - ring.low) % MODULUS - missing
    return messages * ring.nbytes // max(1, held)


class Stream:
    """The messages of `sender` to `dest` (None: to everybody), which come through
    `ring`. `layer` delivers them.

    `own` is this member's send window if the messages are its own: they come back
    without a network, and flags and send times are those of the window.
    """

    __slots__ = ("config", "conn_id", "dest", "finished", "given", "heard", "is_resumed",
                 "kept", "kept_marks", "layer", "marks", "offset", "outstanding", "own",
                 "reassembly", "report_after", "rests", "ring", "scans", "sender", "stamps",
                 "told_parts", "unacked_bytes", "unacked_messages")

    def __init__(self, layer: Layer, sender: Address, dest: Address | None, ring: Window,
                 config: Config, *, own: SendWindow | None = None) -> None:
        self.layer = layer
        self.sender, self.dest, self.ring, self.config = sender, dest, ring, config
        self.own = own
        self.conn_id: int | None = None                 # of a connection that came to us
        # So many finished messages are reported at once.
        self.report_after = min(config.ack_threshold, max(1, config.capacity // SHARES))
        self.marks = own.marks if own is not None else Marks()
        self.stamps = own.stamps if own is not None else Stamps()
        self.kept_marks: Marks | None = None    # of delivered messages, if others may ask for them
        self.finished: Seqno = ring.low
        self.offset: Seqno = ring.low                   # where it begins for us
        self.is_resumed = False                 # it begins for us where it stood, and at no cut
        self.kept: Seqno = ring.low                     # what keep() has counted
        self.outstanding = 0                            # delivered and not finished, messages
        self.heard: Instant = 0                         # when anything new of the sender came last
        self.unacked_messages = self.unacked_bytes = 0  # finished since the last report
        self.told_parts = 0                             # `parts` then
        self.reassembly: Reassembly | None = None       # once there are fragments
        # Of an observer that has skipped something: fragments of messages whose begin
        # it skipped; first and last, and their place among the deliveries.
        self.rests: list[tuple[Seqno, Seqno, int]] | None = None
        self.scans = 0                                  # since the last fragment came
        # OOB messages that the application was given of an earlier stream of the
        # sender.
        self.given: frozenset[Seqno] = frozenset()

    # ------------------------------------------------------------------------------------ coming in

    def add(self, arrivals: Arrivals, deliveries: list[Batch], view_id: int, now: Instant,
            at_once: bool = True) -> int:
        """Put the messages of datagrams into the window; if `at_once`, OOB messages
        into `deliveries` too. Return how many were new."""
        added = arrivals.put(self.ring, self.stamps)
        at_once = at_once and not self.config.oob_in_order
        for batch in arrivals.batches:
            self.stamps.fill(self.ring.low, batch.first, len(batch), batch.stamp)
            new, early = self.marks.accept(self.ring, batch, at_once)
            added += new
            for run in early:
                self._hand(run, deliveries, view_id, now)
        if added:
            self.heard = now
        return added

    # ------------------------------------------------------------------------------------ going out

    def take(self, limit: int, deliveries: list[Batch], view_id: int, now: Instant) -> int:
        """Append what is next in order to `deliveries`, at most `limit` messages of the
        window. Return how many messages the application gets."""
        first = (self.ring.hd + 1) % MODULUS
        payloads = self.ring.remove_many(limit, nullify=False)
        if not payloads:
            return 0
        if self.own is not None:
            self.own.stamp(now + self.layer.stack.anchor)   # it may be faster here than on the wire
        if not self.marks.flags:
            self.outstanding += len(payloads)
            sent_at = self.stamps.take(first, len(payloads))
            deliveries.append(Batch(self.sender, first, payloads, view_id, self.dest, 0, self,
                                    sent_at))
            return len(payloads)
        if self.kept_marks is not None:
            self._keep_marks(self.kept_marks, first, len(payloads))
        handed = sum(self._hand(run, deliveries, view_id, now)
                     for run in self.marks.split(first, payloads, self.own is not None))
        self._settle()
        return handed

    def skip(self, count: int) -> None:
        """Pass over the next `count` messages, as far as they are here: the application
        does not get them."""
        first = (self.ring.hd + 1) % MODULUS
        if count and (payloads := self.ring.remove_many(count, nullify=False)):
            if self.kept_marks is not None:
                self._keep_marks(self.kept_marks, first, len(payloads))
            self.marks.split(first, payloads)
            self._settle()

    def _keep_marks(self, kept: Marks, first: Seqno, count: int) -> None:
        """Keep the flags of messages that leave the window and that others may ask
        for, in the order of the seqnos."""
        flags = self.marks.flags
        places = sorted(place for place in ((seqno - first) % MODULUS for seqno in flags)
                        if place < count)
        for place in places:
            seqno = (first + place) % MODULUS
            kept.flags[seqno] = flags[seqno]

    def _hand(self, run: Batch, deliveries: list[Batch], view_id: int, now: Instant) -> int:
        """Make a batch for the application of messages with the same flags; of
        fragments, when a message is whole."""
        if run.bits & FRAGMENT:
            return self._assemble(run, deliveries, view_id, now)
        if self.given and run.bits & OOB:
            return self._hand_new(run, deliveries, view_id)
        self.outstanding += len(run)
        deliveries.append(run.addressed(self.sender, self.dest, view_id, self,
                                        self.stamps.take(run.first, len(run))))
        return len(run)

    def _hand_new(self, run: Batch, deliveries: list[Batch], view_id: int) -> int:
        """Make batches for the application of those OOB messages that it was not
        given."""
        numbered = [((run.first + place) % MODULUS, payload)
                    for place, payload in enumerate(run.payloads)]
        new = [Batch(self.sender, seqno, [payload], view_id, self.dest, run.bits, self,
                     self.stamps.take(seqno, 1))
               for seqno, payload in numbered if seqno not in self.given]
        self.outstanding += len(new)
        deliveries += new
        return len(new)

    def early(self) -> frozenset[Seqno]:
        """Return the seqnos of OOB messages that the application was given before their
        turn. Of a message in fragments that is the last one; others may be there."""
        early = self.marks.early()
        if self.reassembly is not None:
            early -= {assembly.last for assembly in self.reassembly.oob.values()}
        return self.given | early

    def _assemble(self, run: Batch, deliveries: list[Batch], view_id: int, now: Instant) -> int:
        """Deliver the messages that these fragments complete, with the seqno of their
        last fragment. The rest of a message that began before the stream keeps its
        flag: state transfer makes the message of it, or drops it."""
        if self.reassembly is None:
            self.reassembly = Reassembly(self.config.max_message_size, self.config.max_bytes,
                                         may_begin_inside=self.dest is None)
        self.scans = 0
        handed, seqno, is_oob = 0, run.first, bool(run.bits & OOB)
        for fragment in run.payloads:
            is_skipped = self.rests is not None and self.reassembly.lacks_begin(fragment, is_oob)
            payload = None if is_skipped else self.reassembly.add(seqno, fragment, is_oob, now)
            if is_skipped:
                self._note_rest(seqno, len(deliveries))
            elif payload is not None and is_oob and self.reassembly.last in self.given:
                pass                    # the application has it
            elif payload is not None:
                self.outstanding += 1
                flags = run.bits if self.reassembly.is_rest else run.bits & ~FRAGMENT
                sent_at = self.stamps.take(seqno, 1)
                deliveries.append(Batch(self.sender, self.reassembly.last, [payload], view_id,
                                        self.dest, flags, self, sent_at))
                handed += 1
            if not is_skipped and self.reassembly.is_rest and (
                    seqno == (self.offset + 1) % MODULUS):
                self.offset = seqno     # the rest of a message that began before the stream
            seqno = (seqno + 1) % MODULUS
        return handed

    def _note_rest(self, seqno: Seqno, place: int) -> None:
        """Note a fragment of which nothing is delivered; together with those just
        before it."""
        assert self.rests is not None
        first = seqno
        if self.rests and self.rests[-1][1:] == ((seqno - 1) % MODULUS, place):
            first, *_ = self.rests.pop()
        self.rests.append((first, seqno, place))

    # ------------------------------------------------------------------------------------- finished

    def finish(self, batch: Batch) -> None:
        """The application has finished a batch of this stream."""
        self.outstanding -= len(batch)
        if self.outstanding == 0:
            self._raise(self.ring.hd)
        elif not batch.bits & OOB:
            self._raise(batch.last)

    def _settle(self) -> None:
        """If nothing is outstanding, all that left the window is finished."""
        if self.outstanding == 0:
            self._raise(self.ring.hd)

    def _raise(self, seqno: Seqno) -> None:
        """Raise `finished`, but not beyond a message that is not whole yet."""
        begun = self._begun()
        if begun is not None and not precedes(seqno, begun.first):
            seqno = (begun.first - 1) % MODULUS
        if precedes(self.finished, seqno):
            self.finished = seqno

    def _begun(self) -> Assembly | None:
        """Return the large message that is not whole yet and is acknowledged in one
        step."""
        begun = self.reassembly.incomplete() if self.reassembly and self.own is None else None
        return begun if begun is not None and begun.goes_whole(self.config) else None

    @property
    def whole(self) -> Seqno:
        """Return up to where the application has been given whole messages. Another
        thread may have sent some between the parts of a large one. In a stream to all
        they count. In one to this member alone they do not: its sender sends again what
        is behind this place, and that must have all parts."""
        if self.dest is None:
            return self.boundary(self.ring.hd)
        begun = self.reassembly.incomplete() if self.reassembly else None
        return self.ring.hd if begun is None else (begun.first - 1) % MODULUS

    def boundary(self, seqno: Seqno) -> Seqno:
        """Return the seqno before the large message in whose middle this one is, if all
        of it up to here is kept; otherwise `seqno`."""
        begin, is_last = self._begin_of(seqno) or (None, True)
        if begin is not None and not is_last and precedes(self.ring.low, begin):
            return (begin - 1) % MODULUS
        return seqno

    def before_rest(self) -> Seqno | None:
        """Return the seqno before the large message of which a part is freed and the
        rest is kept, if there is one."""
        begin, _ = self._begin_of((self.ring.low + 1) % MODULUS) or (None, True)
        before = None if begin is None else (begin - 1) % MODULUS
        return None if before == self.ring.low else before

    def _begin_of(self, seqno: Seqno) -> tuple[Seqno, bool] | None:
        """Return where the large message begins of which this seqno has a fragment that
        is kept, and whether that is its last one."""
        flags = self.marks.flags.get(seqno, 0)
        if self.kept_marks is not None:
            flags |= self.kept_marks.flags.get(seqno, 0)
        fragment = self.ring.get(seqno) if flags & FRAGMENT and not flags & OOB else None
        return None if fragment is None else begin_of(seqno, fragment)

    def acknowledgeable(self, seqno: Seqno) -> Seqno:
        """Return up to where all may be acknowledged that has come up to `seqno`: of a
        large message that is acknowledged in one step nothing, as long as it is not
        whole. Of our own ones we free as much: a member that joins meanwhile needs all
        of such a message. A larger one must not fill the window."""
        before = self.boundary(seqno)
        fragment = self.ring.get(seqno) if before != seqno else None
        if fragment is None or not goes_whole(HEAD.unpack_from(fragment)[2], len(fragment),
                                              self.config):
            return seqno
        return before

    @property
    def parts(self) -> int:
        """Return how many bytes are here that cannot be acknowledged yet: of a large
        message that is acknowledged when it is whole, and of what is behind a gap. They
        are not on their way any more: so many bytes more their sender may have
        unacknowledged."""
        begun = self._begun()
        whole = 0 if begun is None else begun.nbytes + HEAD.size * len(begun.parts)
        return whole + self._behind_gap()

    def _behind_gap(self) -> int:
        """Return how many bytes are here behind a gap, of a stream to all. If something
        before it is not freed yet, they are estimated."""
        ring = self.ring
        if self.dest is not None or ring.hd == ring.hr:
            return 0
        if ring.get((ring.hd + 1) % MODULUS) is not None:
            return 0                                    # only the application is slow
        missing = ring.num_missing
        return estimate_bytes(ring, (ring.hr - ring.hd) % MODULUS - missing, missing)

    @property
    def is_unreported(self) -> bool:
        """Return whether there is anything to report: messages that are finished, or
        more parts."""
        return self.unacked_messages > 0 or self.parts > self.told_parts

    def reported(self) -> None:
        """All is reported."""
        self.unacked_messages = self.unacked_bytes = 0
        self.told_parts = self.parts

    def free(self) -> bool:
        """Free what the application has finished: LOW rises. Return whether there is
        anything to report."""
        before = self.ring.nbytes
        freed = self.release(self.finished)
        self.kept = self.finished
        self.unacked_messages += freed
        self.unacked_bytes += before - self.ring.nbytes
        return self.is_unreported

    def keep(self) -> bool:
        """Do the same for a window that keeps what is finished until all members have
        finished it: LOW stays, and the bytes are estimated."""
        done = (self.finished - self.kept) % MODULUS
        self.kept = self.finished
        self.unacked_messages += done
        self.unacked_bytes += estimate_bytes(self.ring, done)
        return self.is_unreported

    def release(self, seqno: Seqno) -> int:
        """Free what nobody needs any more, up to a seqno. Return how many messages that
        were."""
        freed = self.ring.stable(seqno)
        if self.kept_marks is not None and self.kept_marks.flags:
            self.kept_marks.forget(self.ring.low)
        return freed

    def is_report_due(self, limit: int) -> bool:
        """Return whether so much is not reported that the sender must hear of it now:
        ack_threshold messages, or a quarter of the window in messages, or of `limit`
        bytes."""
        more = max(0, self.parts - self.told_parts)
        return (self.unacked_messages >= self.report_after
                or self.unacked_bytes + more >= limit // SHARES)

    def retire(self) -> None:
        """Forget all but the place and what is outstanding, because nothing more is
        delivered: the application may still finish batches. The place of a stream to
        this member alone is the end of the last whole message, because no more may be
        acknowledged. Views may wait for that of another one to come to a cut, which may
        be in the middle of a message."""
        self.ring = RingBuffer(1, self.ring.hd if self.dest is None else self.whole)
        self.marks, self.stamps, self.reassembly = Marks(), Stamps(), None

    # ------------------------------------------------------------------------------ stalled streams

    @property
    def is_incomplete(self) -> bool:
        """Return whether a large message is being put together."""
        return self.reassembly is not None and len(self.reassembly) > 0

    @property
    def is_torn(self) -> bool:
        """Return whether the begin of a message that is not whole was finished, which
        may be acknowledged: nobody sends it again."""
        reassembly = self.reassembly
        return reassembly is not None and any(
            not precedes(self.finished, assembly.first)
            for open_ones in (reassembly.ordered, reassembly.oob)
            for assembly in open_ones.values())

    def scan(self, now: Instant, pause: int) -> bool:
        """Give up a message if its sender has gone on without it for frag_timeout.
        Return whether `finished` may have risen.

        Time is counted in scans, which are `pause` nanoseconds apart, so that a machine
        that slept has not missed anything.
        """
        if self.reassembly is None or self.ring.hd != self.ring.hr:
            return False
        self.scans += 1
        if self.scans * pause > nanoseconds(self.config.frag_timeout):
            self.reassembly.expire(self.heard)
            self.scans = 0
            self._settle()
        return True
