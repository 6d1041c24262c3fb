"""The windows of a receiver: one for each member that sends to everybody.

A window opens where the members have agreed that its sender's stream begins for us, and
ends where they agree that it ends, when its sender is gone (flush.py).
"""

from dataclasses import dataclass, field

from ringcast.protocols.incoming import Incoming
from ringcast.protocols.multicast.keeping import Part, next_part
from ringcast.protocols.retransmission import Backoff
from ringcast.protocols.seqnos import Seqno, earlier, precedes
from ringcast.stack import Instant

STALLED = 32            # scans in which nothing came over a connection that was asked for there


@dataclass(slots=True)
class ReceiveWindow(Incoming):
    """The stream of one member to everybody."""

    report_due: bool = True     # the sender may not know what is finished: report it (again)
    is_new: bool = True         # nothing that came in it was reported
    reported: Instant = 0       # when it was reported last
    # In how many scans nothing more has come in order, though it is waited for.
    standing: Backoff = field(default_factory=Backoff)
    # Of an observer (observing.py): LOW as its sender told it last; up to where all is
    # gone, as we believe; and what had come at the last question.
    said_low: Seqno = 0
    gone: Seqno = 0
    seen: Seqno | None = None

    def __post_init__(self) -> None:
        self.said_low = self.gone = self.standing.state = self.stream.offset

    @property
    def offset(self) -> Seqno:
        """Return where the stream begins for us."""
        return self.stream.offset

    @property
    def is_idle(self) -> bool:
        """Return whether the application has nothing to do: then there is room for what
        comes next."""
        return not (self.stream.outstanding or self.has_next)

    def note_report(self) -> None:
        """All is reported."""
        stream = self.stream
        self.is_new &= stream.finished == stream.offset and stream.parts == 0
        stream.reported()


@dataclass(slots=True)
class Departed(ReceiveWindow):
    """The stream of a sender that is gone."""

    cut: Seqno = 0                      # where it ends
    key: int = 0                        # of it in Flush.departed
    # Whom we ask for what is missing: a member that has all of it (0: nobody has more
    # than we); those that have a part each, if that one may have only a part; and its
    # sender, whenever that is here and keeps it for us since it came back.
    holder: int = 0
    parts: tuple[Part, ...] = ()
    is_kept: bool = False
    is_held: bool = True                # others may ask us for it
    whole: Seqno | None = None          # the end of the last whole message, once delivered
    is_skipped: bool = False            # our application was not shown the view with its sender
    asked: tuple[int, Seqno] = (0, 0)   # whom we asked last, and up to where
    in_vain: int = 0                    # scans with room since then, or since anything came
    passed_over: frozenset[int] = frozenset()   # who gave nothing for long
    # Over a connection: when to ask again.
    stalled: Backoff = field(default_factory=lambda: Backoff(STALLED))

    @property
    def is_complete(self) -> bool:
        return not precedes(self.come_up_to, self.cut)

    def source(self) -> tuple[int, Seqno]:
        """Return who has what comes next, and up to where."""
        part = next_part(self.parts, self.come_up_to, self.passed_over)
        return (self.holder, self.cut) if part is None else (part.holder,
                                                             earlier(part.last, self.cut))

    @property
    def has_room(self) -> bool:
        """Return whether something is missing for which there is room: our application
        may be slow."""
        return self.ring.num_missing > 0 and 2 * self.ring.nbytes <= self.ring.max_bytes

    @property
    def is_delivered(self) -> bool:
        return self.is_skipped or not precedes(self.ring.hd, self.cut)
