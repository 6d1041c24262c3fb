"""What is kept for durable members that are absent, and how they get it when they are
back (membership/absent.py).

*Absent.* From the view that makes a member absent, nobody frees anything: senders keep
what they have sent, receivers what they have delivered, and all members the streams of
departed senders. Until that view the absent member was waited for like any other, so
what it lacks is above the LOW of each stream. Windows fill, and senders wait: the same
back-pressure as from a member that is there and slow.

*Back.* A member that is back has its place in streams: of an earlier process the digest
of what that one had finished; of the same process, where the streams ended for it when
it was cut off. In the view that it comes back in, a stream begins for it at its place,
or at the LOW of the sender if it knows none. It asks for what follows like for any gap.
What senders sent that have departed meanwhile, it fetches from others. Who came
meanwhile has only the end of such a stream, and another part of the group perhaps only
the begin. So the view says what each has, and it asks for each part who has it. Of a
sender that was cut off and back, all streams count, and those that touch are one part.
It is shown the view first and all these messages after it: they were sent before the
view, and the members that went together have them before it. Its next view comes behind
them.

*Finished.* A durable member may die with messages of a departed sender that its
application has not finished. So members hold such streams until all durable members
have said that they have finished them (INSTALLED, ALIVE). Until then what was kept for
members that are back is not freed, either.
"""

from collections.abc import Collection, Iterable
from functools import reduce
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
from msgspec import Meta

from ringcast.address import Address
from ringcast.config import MAX_CAPACITY, MAX_NAME, MAX_RESUME
from ringcast.digest import Digest
from ringcast.protocols.latest import Latest
from ringcast.protocols.seqnos import MODULUS, Number, Seqno, earlier, later, precedes

if TYPE_CHECKING:
    from ringcast.protocols.multicast.base import Multicast
    from ringcast.protocols.multicast.flush import Agreed
    from ringcast.protocols.multicast.windows import ReceiveWindow
    from ringcast.protocols.stream import Stream

MOST_HELD = 64                          # departed streams that are held
HELD_WINDOWS = 8                        # times max_bytes that they may take together
MOST_PARTS = 16                         # of one stream
SPARES = 3                              # of these, that are in other ones

Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]


class Stretch(msgspec.Struct, array_like=True, frozen=True):
    """Messages of a stream without a gap."""

    low: Number                         # what follows ...
    last: Number                        # ... up to here
    before: Number | None = None        # the large message of which only the rest is there


class Part(msgspec.Struct, array_like=True, frozen=True):
    """Says what one member has of the stream of a departed sender."""

    holder: Number
    low: Number                         # as in Stretch
    last: Number
    before: Number | None = None


class Kept(msgspec.Struct, array_like=True):
    """The stream of another sender, as a member keeps it."""

    low: Number                         # everything that follows is kept
    name: Name | None = None            # of the sender, if somebody is absent
    before: Number | None = None        # as in Stretch
    # Kept as well, if the sender was cut off, and sent to others until it was back.
    before_gaps: Annotated[list[Stretch], Meta(max_length=MOST_PARTS)] = []

    def parts(self, holder: int, last: Seqno) -> list[Part]:
        """Return what `holder` has, who keeps this, and has the stream up to `last`."""
        return [Part(holder, self.low, last, self.before),
                *(Part(holder, each.low, earlier(each.last, last), each.before)
                  for each in self.before_gaps)]


class Owed(NamedTuple):
    """The stream of a departed sender, as one that is back must know it."""

    sender: Address
    parts: tuple[Part, ...]


def outermost(parts: Iterable[Part]) -> list[Part]:
    """Return the parts that are not in another one, of equal ones the first, and not
    too many; behind them a few others. Somebody may say that it has more than it
    has."""
    kept: list[Part] = []
    spare: list[Part] = []
    for part in parts:
        if any(is_in(part, other) for other in kept):
            spare.append(part)
        else:
            spare += [other for other in kept if is_in(other, part)]
            kept = [*(other for other in kept if not is_in(other, part)), part]
    return (kept + spare[:SPARES])[:MOST_PARTS]


def is_in(part: Part, other: Part) -> bool:
    """Return whether another part has all that one has."""
    return not (precedes(part.low, other.low) or precedes(other.last, part.last))


def next_part(parts: Iterable[Part], place: Seqno,
              passed_over: Collection[int] = ()) -> Part | None:
    """Return the part that has what follows a place, and the most of it; if possible
    not one of those who are passed over."""
    fit = [part for part in parts if not precedes(place, part.low) and precedes(place, part.last)]
    fit = [part for part in fit if part.holder not in passed_over] or fit
    return max(fit, key=lambda part: (part.last - place) % MODULUS, default=None)


def reach(parts: Collection[Part], place: Seqno) -> Seqno:
    """Return up to where everything that follows a place is in one of the parts."""
    for _ in parts:                     # a hostile set of them goes around the circle
        if (part := next_part(parts, place)) is not None:
            place = part.last
    return place


class Keeping:
    """What one layer keeps. `durable`: this member is expected back when it is gone."""

    def __init__(self, layer: "Multicast", resume: Digest) -> None:
        self.layer = layer
        self.durable = False
        self.has_absent = False         # in our view
        self.is_unfinished = False      # a member that is back may need what was held for it
        self.durables: frozenset[int] = frozenset()     # members of our view that are durable
        # Where streams ended for us: of the lives before, and of departed senders.
        self.places: Latest[Address, Seqno] = Latest(MAX_RESUME + len(resume))
        self.places |= resume
        # OOB messages behind these ends that our application was given already.
        self.early: Latest[int, frozenset[Seqno]] = Latest(MOST_HELD)

    # ------------------------------------------------------------------------------- for the others

    @property
    def is_on(self) -> bool:
        """Return whether nothing may be freed."""
        return self.has_absent or self.is_unfinished

    def install(self, has_absent: bool, agreed: "Agreed") -> None:
        """There is a new view."""
        self.has_absent, self.durables = has_absent, agreed.durables
        self.is_unfinished |= bool(agreed.back)

    def release(self) -> None:
        """Nobody needs what was held any more."""
        was_on, self.is_unfinished = self.is_on, False
        if was_on and not self.is_on:
            self.layer.thaw()

    def low(self) -> Seqno | None:
        """Return after which seqno our messages are kept for members that come back;
        None if nobody is absent."""
        return self.layer.send_window.ring.low if self.has_absent else None

    def kept(self) -> dict[int, Kept]:
        """Return what we keep of the streams of others: their senders may have died,
        and those who come back need it."""
        if not self.is_on:
            return {}
        flushing = self.layer.flushing
        origins = {gone.stream.sender.incarnation for gone in flushing.departed.values()
                   if gone.is_held} | self.layer.windows.keys()
        return {origin: self._kept(held) for origin in origins
                if (held := [each for each in flushing.held_of(origin)
                             if each.stream not in flushing.unsettled])}

    def _kept(self, held: list["ReceiveWindow"]) -> Kept:
        """Return what we keep of a sender, whose last stream comes first. Streams of
        which each goes on where the one before ends are as good as one."""
        stretches: list[Stretch] = []
        for each in held:
            last = each.stream.boundary(each.come_up_to)
            if stretches and not precedes(each.come_up_to, stretches[-1].low):
                last = stretches.pop().last
            stretches.append(Stretch(each.ring.low, last, each.stream.before_rest()))
        latest, *others = stretches
        name = held[0].stream.sender.name if self.has_absent else None
        return Kept(latest.low, name, latest.before, others[:MOST_PARTS])

    def start(self, member: int, agreed: "Agreed") -> Seqno:
        """Return after which seqno our messages are kept for a new member: nobody has
        more than we have sent, whatever others have reported."""
        if member in agreed.back and agreed.lows.get(self.layer.local.incarnation) is not None:
            return self.layer.send_window.ring.low
        return earlier(agreed.cuts[self.layer.local.incarnation], self.layer.send_window.sent)

    def most_departed(self, most: int) -> int:
        """Return how many streams of departed senders are held at most, when otherwise
        these are `most`."""
        return max(most, 2 * MOST_HELD) if self.is_on else most

    def holds_too_much(self) -> bool:
        """Return whether the streams of departed senders take too much memory."""
        departed = self.layer.flushing.departed.values()
        nbytes = sum(gone.ring.nbytes for gone in departed)
        return len(departed) > MOST_HELD or nbytes > HELD_WINDOWS * self.layer.config.max_bytes

    # --------------------------------------------------------------------------- a durable member

    def open(self, sender: Address, agreed: "Agreed") -> "ReceiveWindow":
        """Open the window of a member that is new to us. If its stream goes on before
        the cut, where it stood, see that we ask for what is missing."""
        begin, cut = self.begin(sender, agreed), agreed.cuts[sender.incarnation]
        window = self.layer.open_window(sender, begin)
        window.stream.given = self.given(sender.incarnation, begin)
        if precedes(begin, cut):
            window.stream.is_resumed = True
            if self.layer.retransmits:
                window.ring.announce(cut)
        return window

    def is_kept(self, sender: int, place: Seqno, agreed: "Agreed") -> bool:
        """Return whether a member of the view has kept for us what it has sent since
        this place: it frees nothing before we have finished what we lack."""
        low = agreed.lows.get(sender)
        return low is not None and self.layer.local.incarnation in agreed.back and (
            not precedes(place, low))

    def begin(self, sender: Address, agreed: "Agreed") -> Seqno:
        """Return where the stream of a member begins here. If we have parted from it,
        we may have heard it longer than those who stayed with it: till after its report
        to them. What we had does not come again. But of an end that no window reaches
        somebody lied: the sender would not be heard for years."""
        cut, low = agreed.cuts[sender.incarnation], agreed.lows.get(sender.incarnation)
        begin = cut
        if low is not None and self.layer.local.incarnation in agreed.back:
            begin = self._place(sender, low, cut)
        had = self.layer.flushing.had(sender.incarnation)
        if had is not None and not precedes((cut + MAX_CAPACITY) % MODULUS, had):
            begin = later(begin, had)
        return begin

    def _known(self, sender: Address) -> Seqno | None:
        """Return our place in a stream, if we know one."""
        return self.places.get(sender, self.places.get(sender.origin))

    def _place(self, sender: Address, low: Seqno, cut: Seqno) -> Seqno:
        """Return our place in a stream, between what is kept of it and its cut."""
        known = self._known(sender)
        place = low if known is None else known
        if precedes(cut, place) and sender in self.places:      # of an origin others send the rest
            self.layer.stack.effects.warnings.append(
                f"the digest claims more of {sender} than it has sent: {place}, and "
                f"not {cut}; it may be of another group")
        return earlier(later(place, low), cut)

    def owed(self, agreed: "Agreed") -> list[tuple[Owed, Seqno]]:
        """Return the streams of departed senders that are kept for us, each with our
        place in it."""
        if self.layer.local.incarnation not in agreed.back or not self.layer.receiving:
            return []
        places = [(each, self._place_in(each)) for each in agreed.owed]
        return [(each, place) for each, place in places if next_part(each.parts, place)]

    def _place_in(self, owed: Owed) -> Seqno:
        """Return our place in the stream of a departed sender. If nobody here has what
        comes next, the stream ends there: the sender may live elsewhere, and keep that
        for us. But of a large message we may have acknowledged a part, and lost it."""
        low = reduce(earlier, (part.low for part in owed.parts))
        last = reduce(later, (part.last for part in owed.parts))
        place = self._place(owed.sender, low, last)
        known = self._known(owed.sender)
        if known is not None and precedes(known, place):
            place = known
        if next_part(owed.parts, place) is None:
            rests = [part.low for part in owed.parts if part.before == place]
            place = reduce(earlier, rests) if rests else place
        self.layer.counters.num_gone_undelivered += (last - reach(owed.parts, place)) % MODULUS
        return place

    def note_places(self) -> None:
        """Note where the streams of departed senders end for us."""
        if self.durable:
            for gone in self.layer.flushing.departed.values():
                self.places.remember(gone.stream.sender, gone.cut)

    def note_early(self, stream: "Stream") -> None:
        """Note which OOB messages of a stream that ends need not come again."""
        if early := stream.early():
            self.early.remember(stream.sender.incarnation, early)

    def given(self, sender: int, begin: Seqno) -> frozenset[Seqno]:
        """Return which of these come again in a stream that begins here."""
        return frozenset(seqno for seqno in self.early.pop(sender, ()) if precedes(begin, seqno))

    def whole(self, digest: Digest) -> Digest:
        """Return what the application has finished: of members as `digest` says, and of
        all others that a later life may hear of again."""
        if not self.durable:
            return digest
        unfinished = {gone.stream.sender: gone.stream.finished
                      for gone in reversed(self.layer.flushing.departed.values())
                      if not (gone.is_delivered and gone.stream.outstanding == 0)}
        return Digest(self.places | digest | unfinished)

    def has_finished(self) -> bool:
        """Return whether this member needs no stream of a departed sender any more,
        even if it dies now."""
        return not self.durable or not any(
            gone.is_held and not (gone.is_delivered and gone.stream.outstanding == 0)
            for gone in self.layer.flushing.departed.values())
