"""What members say to each other about the group: the kinds of datagrams and their
bodies.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from ringcast.address import Address
from ringcast.config import LONGEST_ABSENCE, MAX_MEMBERS
from ringcast.kinds import Kind
from ringcast.protocols.multicast.keeping import MOST_PARTS, Kept, Name, Part
from ringcast.protocols.seqnos import Number

# The application's state. FAILED: it has the state, and failed to give it.
NO_PART, HAS, NEEDS, FAILED = range(4)
MAX_TERMS = 16
MAX_STREAMS = 2 * MAX_MEMBERS           # of members, and of departed ones that are not settled
MAX_QUORUMS = 32                        # primary views that are remembered, and attempts
MOST_PUBLIC, MOST_KEY = 32, 80          # bytes of a public key, and of a key that is sealed with it
MOST_CHAINED = 64                       # keys that one PREPARE is chained to
MAX_ROOTS = 32                          # first primary views that one goes back to

Physical = Annotated[str, Meta(max_length=256)]
Terms = Annotated[dict[Name, Annotated[str, Meta(max_length=64)]], Meta(max_length=MAX_TERMS)]
ViewId = Number
GroupSize = Annotated[int, Meta(ge=1, le=MAX_MEMBERS)]
Digest = Annotated[dict[Number, Number], Meta(max_length=MAX_STREAMS)]      # seqnos
Names = Annotated[list[Name], Meta(max_length=MAX_MEMBERS)]
Incarnations = Annotated[list[Number], Meta(max_length=MAX_MEMBERS)]
Roots = Annotated[list[ViewId], Meta(max_length=MAX_ROOTS)]
Public = Annotated[bytes, Meta(max_length=MOST_PUBLIC)]
Absence = Annotated[int, Meta(ge=0, le=LONGEST_ABSENCE * 1000)]     # milliseconds


class Seek(msgspec.Struct, array_like=True):
    """SEEK: I have no view; let me in."""

    name: Name
    physical: Physical
    terms: Terms
    min_members: GroupSize              # with how many I would form a group
    absence: Absence = 0                # how long I am waited for when I am gone; 0: I am not
    public: Public = b""               # with it the keys of views are sealed for me
    observes: bool = False              # nobody need wait for me


class Present(msgspec.Struct, array_like=True):
    """PRESENT: there is a view, and I am in it; or somebody who seeks as I do has my
    name."""

    name: Name
    physical: Physical
    terms: Terms
    view_id: ViewId
    size: Annotated[int, Meta(ge=0, le=MAX_MEMBERS)]    # members of the view; 0: I have none
    coordinator: Number
    taken: Name | None = None           # a name that is not free, for the one who seeks with it
    names: Names = []                   # of the members, the oldest first, for the one who asks
    observed: bool = False              # an observer coordinates: there are no others


class Alive(msgspec.Struct, array_like=True):
    """ALIVE: the heartbeat."""

    view_id: ViewId
    settled: ViewId                     # the last view in which everybody is complete, if known
    released: ViewId = 0                # the last one that needs no departed sender any more


class Suspects(msgspec.Struct, array_like=True):
    """SUSPECTS: all members that I do not hear, and those that an operator here has
    excluded."""

    view_id: ViewId
    silent: Incarnations
    excluded: Incarnations = []


class Standing(msgspec.Struct, array_like=True, frozen=True):
    """Says whether a member has the application's state, or needs it (state.py)."""

    state: Annotated[int, Meta(ge=NO_PART, le=FAILED)]
    giver: Number = 0                   # if it needs the state: who gives it; 0: nobody
    place: ViewId = 0                   # the view at whose place that state is taken


class Seat(msgspec.Struct, array_like=True):
    """One member of a view that is being agreed on."""

    name: Name
    incarnation: Number
    physical: Physical
    before: ViewId                      # the view that it comes from; 0: none
    cut: Number = 0                     # where its stream is cut between the two views
    absence: Absence = 0                # how long it is waited for when it is gone
    low: Number | None = None           # it keeps what follows for members that come back
    standing: Standing | None = None    # None: it takes no part in state transfer
    public: Public = b""               # with it the keys of views are sealed for it
    observes: bool = False              # nobody waits for it

    @property
    def address(self) -> Address:
        return Address(self.name, self.incarnation)

    def moved(self, before: int) -> "Seat":
        """Return the seat of the same member in the view after `before`. What the views
        are still to agree on is not in it."""
        return msgspec.structs.replace(self, before=before, cut=0, low=None, standing=None)

    @property
    def state(self) -> int:
        """Return how the member stands to the application's state."""
        return self.standing.state if self.standing is not None else NO_PART


class Gone(msgspec.Struct, array_like=True):
    """A departed sender: up to where everybody delivers what it sent."""

    incarnation: Number
    before: ViewId                      # the view of those whom it concerns
    cut: Number
    holder: Number                      # a member that has everything up to the cut
    name: Name | None = None            # given if it is kept for members that come back
    # What each member has, while nothing may be freed.
    parts: Annotated[list[Part], Meta(max_length=MOST_PARTS)] = []
    over: bool = False                  # only observers have told of it: others need it no more


class Absent(msgspec.Struct, array_like=True):
    """A member that is gone and expected back."""

    name: Name
    incarnation: Number
    left: Absence                       # for how long it is waited for, when this is said

    @property
    def address(self) -> Address:
        return Address(self.name, self.incarnation)


class Quorum(msgspec.Struct, array_like=True, frozen=True):
    """A view of which the next primary one needs a majority (primary.py)."""

    id: ViewId
    voters: Incarnations                # its members without those who left; the oldest first
    roots: Roots                        # the first primary views that it goes back to
    is_sure: bool = False               # it is primary; else it may have become so


Quorums = Annotated[list[Quorum], Meta(max_length=MAX_QUORUMS)]


class Leave(msgspec.Struct, array_like=True):
    """LEAVE: I leave in good order, and am in no view that follows this one."""

    view_id: ViewId
    quorums: Quorums = []               # what I know of primary views


class Seats(msgspec.Struct, array_like=True):
    """The members of a view, the oldest first."""

    id: ViewId
    seats: Annotated[list[Seat], Meta(min_length=1, max_length=MAX_MEMBERS)]

    def seat(self, incarnation: int) -> Seat | None:
        """Return the seat of a member; None if it has none."""
        return next((seat for seat in self.seats if seat.incarnation == incarnation), None)


class Install(Seats, array_like=True):
    """INSTALL: a view that is agreed on, and what comes before it."""

    gone: Annotated[list[Gone], Meta(max_length=MAX_STREAMS)]
    quorums: Quorums                    # what its members know of primary views
    absent: Annotated[list[Absent], Meta(max_length=MAX_MEMBERS)] = []
    back: Incarnations = []             # members that take the place of an absent one
    left: Incarnations = []             # durable members that have left: nobody waits for them

    def held_by(self, member: int) -> list[tuple[int, Part]]:
        """Return what others can get from a member alone, by sender: of its own stream,
        and of those of departed senders that it holds. An empty part stands for all
        that others may lack up to there."""
        own = [(seat.incarnation, Part(member, seat.cut, seat.cut)) for seat in self.seats
               if seat.incarnation == member]
        held = [(gone.incarnation, part) for gone in self.gone
                for part in (Part(gone.holder, gone.cut, gone.cut), *gone.parts)
                if part.holder == member]
        return own + held

    @property
    def is_primary(self) -> bool:
        return any(quorum.id == self.id for quorum in self.quorums)


class Prepare(Seats, array_like=True):
    """PREPARE: a view is to be installed; say how far you are.

    `finish` is a view that some members have installed and others not: install it
    first. `roots` are those of a view that is to be primary; others have none. `keys`
    is the key of the view, sealed for each member, and `chain` shows to those who hold
    the key of a view that its coordinator holds it, too (security/keyring.py).
    """

    finish: Install | None = None
    roots: Roots = []
    keys: Annotated[dict[Number, Annotated[bytes, Meta(max_length=MOST_KEY)]],
                    Meta(max_length=MAX_MEMBERS)] = {}
    chain: Annotated[dict[ViewId, Annotated[bytes, Meta(max_length=MOST_KEY)]],
                     Meta(max_length=MOST_CHAINED)] = {}


class Report(msgspec.Struct, array_like=True):
    """REPORT: the answer to PREPARE."""

    id: ViewId
    view_id: ViewId                     # that is installed here; 0: none
    digest: Digest                      # up to where everything of each stream has come
    quorums: Quorums                    # what this member knows of primary views
    is_leaving: bool = False            # it has said LEAVE, and does not count
    install: Install | None = None      # our view, if the coordinator does not expect it
    # While somebody is absent: our own LOW. While nothing may be freed: what we keep.
    low: Number | None = None
    kept: Annotated[dict[Number, Kept], Meta(max_length=MAX_STREAMS)] = {}
    standing: Standing | None = None
    left: Incarnations = []             # durable members that this one has heard to leave
    # Departed senders of which this member reports nothing, and lacks something: where
    # their streams begin here.
    lacking: Digest = {}


class Refuse(msgspec.Struct, array_like=True):
    """REFUSE: I have promised another view already."""

    id: ViewId
    promised: ViewId                    # 0: I have no view, and go with another coordinator
    strangers: Incarnations = []        # they have not proved to me what their seats say


class Installed(msgspec.Struct, array_like=True):
    """INSTALLED: I have this view, and perhaps all that comes before it."""

    id: ViewId
    complete: bool
    # Our application has finished what departed senders sent, if we are durable.
    finished: bool = True


class Empty(msgspec.Struct, array_like=True):
    """A datagram whose kind says everything."""


SEEK = Kind(22, "seek", Seek, traced=False, outside=True)
PRESENT = Kind(23, "present", Present, traced=False, outside=True)
ALIVE = Kind(24, "alive", Alive, traced=False, outside=True)
LEAVE = Kind(25, "leave", Leave, traced=False)
SUSPECTS = Kind(26, "suspects", Suspects, traced=False)
PROBE = Kind(27, "probe", Empty, traced=False)          # say that you are alive
PREPARE = Kind(28, "prepare", Prepare, traced=False, outside=True)
REPORT = Kind(29, "report", Report, traced=False, outside=True)
REFUSE = Kind(30, "refuse", Refuse, traced=False, outside=True)
INSTALL = Kind(31, "install", Install, traced=False, outside=True)
INSTALLED = Kind(32, "installed", Installed, traced=False)
OFFER = Kind(33, "offer", Install, traced=False, outside=True)    # become one with us
ASK = Kind(34, "ask", Empty, traced=False, outside=True)          # which view do you have?

WHO = Kind(35, "who", Empty, traced=False, outside=True)          # who is there? I do not come
