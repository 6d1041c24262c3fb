"""Layers, the stack that they form, and the Effects that come out of it.

**Datagrams go through the layers; messages go round them.** A datagram that arrives
enters at the lowest layer. Each layer handles the kinds that it takes, and passes all
others up. The layer that takes a datagram with messages puts them into a receive
window, and there they stay: no layer above ever sees them. When the application has
room, `Stack.deliver` asks each layer for messages, and each takes them out of its
windows and appends them to Effects itself. So the application says how many it gets,
which is the back-pressure. It is the same on the way down: a message goes straight into
a send window (`Endpoint.window`); its layer packs messages into datagrams, and only
these datagrams pass through the layers below.

A layer is a state machine: it reads no clock, socket, thread or random source. Time
comes in as `now`, in nanoseconds on a clock that never goes back. What a layer wants
done it appends to the stack's Effects, which the driver takes and performs. The same
objects run over sockets (channel/) and in a simulated network, where a seed replays a
run exactly.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import msgspec

from ringcast._core import wire
from ringcast._core.batch import Batch
from ringcast.address import EVERYONE, Address
from ringcast.kinds import Kind, declared
from ringcast.status import Layers, WireStatus
from ringcast.view import View

Instant = int                           # nanoseconds on a monotonic clock

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Packet(msgspec.Struct, gc=False):
    """One datagram between two layers, header included. `sender` and `dest` are
    incarnations; dest 0 is everyone.

    `data` of a received packet may be a view of the transport's memory, valid only
    until the turn ends: a layer that keeps a packet keeps its `copy()`.
    """

    kind: int
    sender: int
    dest: int
    data: Any                           # bytes-like

    def copy(self) -> "Packet":
        """Return the same packet with data of its own."""
        return Packet(self.kind, self.sender, self.dest, bytes(self.data))


class Installed(NamedTuple):
    """A view that the layers installed. The application may see it later. The member's
    own stream begins behind these seqnos for the `new` members. Those of others that
    have `begun` here begin behind these: streams of new members, which may die before
    they say so; and, whatever their senders said, those of departed senders that were
    kept for it, and those that begin behind a view that is void (flush.py)."""

    view: View
    new: dict[Address, int]
    begun: dict[Address, int]


class Begun(NamedTuple):
    """Holds what is here of a message that is not whole: its parts from `first` on."""

    number: int
    first: int
    parts: list[bytes]


class Giving(NamedTuple):
    """The application's state is to be taken right before it is shown the view
    `place`, and to be given to `dest`, behind the encoded `begins` of messages."""

    place: int
    dest: Address
    begins: tuple[bytes, ...] = ()


class StateNews(NamedTuple):
    """Chunks of the state that this member is given. The attempts before `attempt` are
    over: their givers were lost. `batch` is finished when the chunks are."""

    attempt: int
    chunks: list[bytes] = []
    is_whole: bool = False              # these are the last
    batch: Batch | None = None


class Notice(msgspec.Struct, frozen=True):
    """Something that happened in the group, for operators who watch it."""

    kind: str                   # suspects, excludes, must go
    who: str                    # the name of the member that did it or finds it
    whom: str                   # and of the other one
    why: str                    # what shows it


class HeldKeys(NamedTuple):
    """The keys of views that this member holds, and the members of these views, by id.
    It seals with that of the view `present` (0: with none), and opens what members of
    each of these views seal with its key."""

    present: int
    keys: Mapping[int, bytes]
    members: Mapping[int, Collection[int]]

    def __repr__(self) -> str:
        return f"HeldKeys({self.present:016x})"         # and nothing of the keys


class Effects(msgspec.Struct):
    """What one turn asks of the outside. Perform the fields in their order, and drop
    the object.

    A view comes before the deliveries that follow its installation in the same turn.
    """

    # Where members can be reached, for transport.connect().
    routes: dict[int, str] | None = None
    # Keys of views, for the seal, if they have changed.
    keys: HeldKeys | None = None
    # (dest, datagram) to send; dest 0 is everyone.
    packets: list[tuple[int, bytes]] = []
    # Views that the layers have agreed on and installed, for traces.
    installed: list[Installed] = []
    views: list[View] = []
    # By their ids, what has come of messages that are not whole there, by sender.
    begun: dict[int, dict[int, Begun]] = {}
    # Views and messages that the layers delivered, if the application gets others: they
    # are held back until it has a state.
    came: tuple[list[View], list[Batch]] | None = None
    # States to be taken, each right before its view is shown.
    givings: list[Giving] = []
    # Of the state that this member is given.
    state: list[StateNews] = []
    # FIFO per sender.
    deliveries: list[Batch] = []
    # Own messages to one member, which left before it had acknowledged them.
    failures: list[Batch] = []
    # Members whose windows for messages to one member are gone.
    closed: list[Address] = []
    # A send window has room again, or its member left.
    writable: bool = False
    # Take another turn, and deliver in it: packets that had no room have come into
    # their window, a view has to wait until the messages of this turn are with the
    # application, or more of what was held back can be sent.
    arrived: bool = False
    # Somebody has answered a question of the application.
    answered: bool = False
    # What an operator should know.
    warnings: list[str] = []
    # What an operator may want to follow.
    notices: list[Notice] = []
    # Why the member cannot go on: close the channel with this sentence.
    fault: str | None = None


class Layer:
    """One protocol. Each method passes on what it does not handle.

    A layer takes the packets of the kinds that its methods are marked with (kinds.py),
    and passes all others up. The stack sets `above`, `below`, `stack`, `handlers` and
    `nearest`.
    """

    kinds: ClassVar[dict[Kind, str]] = {}       # that the layer takes, and the methods' names
    above: "Layer"
    below: "Layer"          # the next one that does more with packets than to pass them down
    stack: "Stack"
    handlers: dict[int, Callable[[Packet, Instant], Packet | None]]
    # The next layer above that takes a kind, or looks at all packets; None: all others.
    nearest: dict[int | None, "Layer"]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.kinds = dict(cls.kinds)
        for kind, method in declared(cls):
            if cls.kinds.setdefault(kind, method) != method:
                raise TypeError(f"{cls.__name__} takes {kind} in two methods, {cls.kinds[kind]} "
                                f"and {method}; one must go")

    def start(self, now: Instant) -> None:
        """Set timers and announce this member, which begins."""

    def send(self, packets: list[Packet], now: Instant) -> None:
        """Pass packets down."""
        self.below.send(packets, now)

    def send_control(self, kind: int, body: msgspec.Struct, dest: int, now: Instant) -> None:
        """Send one control packet of this layer."""
        self.below.send([self.stack.control(kind, body, dest)], now)

    def send_datagrams(self, kind: int, dest: int, datagrams: list[bytes], now: Instant) -> None:
        """Send datagrams of this layer that have their headers already."""
        local = self.stack.local.incarnation
        self.below.send([Packet(kind, local, dest, datagram) for datagram in datagrams], now)

    def receive(self, packets: list[Packet], now: Instant) -> None:
        """Pass each packet of a kind that this layer takes to its method, and all
        others up, in order.

        A method may return a packet that goes up in the place of the one that it took.
        """
        handlers, others = self.handlers, []
        for packet in packets:
            handle = handlers.get(packet.kind)
            if handle is None:
                others.append(packet)
            elif (rest := handle(packet, now)) is not None:
                others.append(rest)
        if len(others) < len(packets):
            self.received(now)
        if others:
            self.pass_up(others, now)

    def pass_up(self, packets: list[Packet], now: Instant) -> None:
        """Pass packets up. One alone goes past the layers that would only pass it
        on."""
        if len(packets) > 1:
            self.above.receive(packets, now)
        else:
            nearest = self.nearest
            (nearest.get(packets[0].kind) or nearest[None]).receive(packets, now)

    def received(self, now: Instant) -> None:
        """Do what is done once for a batch, after all its packets that this layer
        takes."""

    def on_control(self, kind: Kind, handle: Callable[..., bool], packet: Packet,
                   now: Instant) -> None:
        """Decode a control packet, and pass its body to the method that takes the
        kind."""
        body = kind.decode(packet.data)
        if body is None or not handle(packet.sender, body, now):
            self.count_bad()

    def count_bad(self) -> None:
        """Count a datagram that cannot be decoded or makes no sense, as malformed if
        the layer has no counter of its own. A peer cannot make us raise (decision
        24)."""
        self.stack.malformed += 1

    def view(self, view: View, now: Instant) -> None:
        """Install a new view, and pass it up."""
        self.above.view(view, now)

    def linked(self, member: int, now: Instant) -> None:
        """Note a new connection to a member, and pass it up. The member need not be in
        the view. What was on its way before may be lost."""
        self.above.linked(member, now)

    def refused(self, member: int, now: Instant) -> None:
        """Note that a member's process seems to be gone, and pass it up. It is a hint
        of the transport; anybody may have forged it."""
        self.above.refused(member, now)

    def left(self, members: set[int], now: Instant) -> None:
        """Forget members that left or were excluded, and pass them up. The view without
        them has come before."""
        self.above.left(members, now)

    def deliver(self, limit: int, now: Instant) -> int:
        """Append at most `limit` messages to the deliveries of the Effects; return how
        many."""
        return 0

    def delivered(self, batch: Batch, now: Instant) -> None:
        """Note that the application has finished a batch that this layer delivered."""

    def tick(self, now: Instant) -> None:
        """Do what is due, because the instant that `deadline` returned has come."""

    def deadline(self) -> Instant | None:
        """Return the instant when tick must be called, or None if nothing is
        pending."""
        return None

    def describe(self, status: Layers) -> None:
        """Write into `status` what this layer counts and where its pointers stand."""


LayerT = TypeVar("LayerT", bound=Layer)


class _Top(Layer):
    """The end above the topmost layer: it counts packets that no layer took."""

    def __init__(self) -> None:
        self.unhandled = 0

    def receive(self, packets: list[Packet], now: Instant) -> None:
        self.unhandled += len(packets)

    def view(self, view: View, now: Instant) -> None:
        pass

    def linked(self, member: int, now: Instant) -> None:
        pass

    def refused(self, member: int, now: Instant) -> None:
        pass

    def left(self, members: set[int], now: Instant) -> None:
        pass


class _Bottom(Layer):
    """The end below the lowest layer: it turns packets into effects."""

    def send(self, packets: list[Packet], now: Instant) -> None:
        self.stack.effects.packets += [(packet.dest, packet.data) for packet in packets]


def sooner(one: Instant | None, other: Instant | None) -> Instant | None:
    """Return the earlier of two instants; None is never."""
    if one is None or other is None:
        return one if other is None else other
    return one if one < other else other


def group_id(group: str) -> int:
    """Return the 32 bits by which datagrams of different groups on one port are told
    apart."""
    return int.from_bytes(hashlib.blake2b(group.encode(), digest_size=4).digest(), "little")


class Stack:
    """Layers, from the application (first) to the wire (last), and the Effects that
    they fill.

    `local` is this member; its incarnation is the `sender` of everything that goes out.
    `physical` is where this member can be reached, opaque to the stack. `anchor` is
    what to add to an instant to get wall time, in nanoseconds since 1970. In a `sealed`
    group the seal is the check of a datagram, so it has no other.

    Single owner: one method at a time is called.
    """

    def __init__(self, layers: Sequence[Layer], *, local: Address, group: str, physical: str = "",
                 anchor: int = 0, sealed: bool = False) -> None:
        if not layers:
            raise ValueError("a stack needs at least one layer")
        self.local = local
        self.group = group_id(group)
        self.physical = physical
        self.anchor = anchor
        self._checked = not sealed
        self.effects = Effects()
        self.malformed = 0
        self.foreign = 0
        self.not_for_me = 0
        self.num_emptied = 0            # how often all that had arrived was handled
        self.unread_at: Instant = 0     # when something had not been heard yet, the last time
        self.layers = list(layers)
        delivering = [layer.deliver for layer in layers if type(layer).deliver is not Layer.deliver]
        self._delivering = deque(delivering)            # the first one delivers first
        self._timed = [layer for layer in layers if type(layer).deadline is not Layer.deadline]
        self._deadlines = [layer.deadline for layer in self._timed]
        self._top, self._bottom = _Top(), _Bottom()
        chain: list[Layer] = [self._top, *self.layers, self._bottom]
        for above, below in zip(chain, chain[1:], strict=False):
            below.above = above
        changing: Layer = self._bottom
        for layer in reversed(chain[:-1]):
            layer.below = changing
            if type(layer).send is not Layer.send:
                changing = layer
        self.kinds: dict[int, Kind] = {}
        nearest: dict[int | None, Layer] = {None: self._top}
        for layer in chain:
            layer.stack = self
            self._bind_kinds(layer)
            layer.nearest = nearest
            if type(layer).receive is Layer.receive:
                nearest = nearest | dict.fromkeys(layer.handlers, layer)
            else:
                nearest = {None: layer}

    def _bind_kinds(self, layer: Layer) -> None:
        """Add the kinds of a layer to the table, and bind them to its methods."""
        layer.handlers = {}
        for kind, method in layer.kinds.items():
            for other in self.kinds.values():
                if other == kind or other.name == kind.name:
                    raise ValueError(f"{type(layer).__name__} declares the kind {int(kind)}, "
                                     f"{kind.name!r}, and a layer above it {int(other)}, "
                                     f"{other.name!r}; in a stack each number and each name "
                                     "stands for one kind")
            handle = getattr(layer, method)
            if kind.body:
                handle = partial(layer.on_control, kind, handle)
            layer.handlers[int(kind)] = handle
            self.kinds[int(kind)] = kind

    def layer(self, wanted: type[LayerT]) -> LayerT:
        """Return the topmost layer of this type; LookupError if there is none."""
        for layer in self.layers:
            if isinstance(layer, wanted):
                return layer
        raise LookupError(f"this stack has no layer {wanted.__name__}")

    def kind(self, number: int) -> Kind:
        """Return the kind with this number. If no layer takes it, it has a name all the
        same."""
        return self.kinds.get(number) or Kind(number, f"kind {number}")

    def start(self, now: Instant) -> None:
        """Start all layers."""
        for layer in self.layers:
            layer.start(now)

    def header(self, kind: int, dest: int = EVERYONE) -> bytes:
        """Return the header of a data datagram of this member."""
        return wire.make_header(kind, self.group, self.local.incarnation, dest, self._checked)

    def datagram(self, kind: int, body: bytes, dest: int = EVERYONE) -> Packet:
        """Return a packet of this member that is complete with this body."""
        local = self.local.incarnation
        return Packet(kind, local, dest, wire.make_datagram(kind, self.group, local, dest, body,
                                                            self._checked))

    def control(self, kind: int, body: Any, dest: int = EVERYONE) -> Packet:
        """Return a control packet of this member; `body` is a msgspec Struct."""
        return self.datagram(kind, msgspec.msgpack.encode(body), dest)

    def open(self, datagram: "Buffer") -> wire.Header | None:
        """Return the header of a datagram; None if it is damaged or not of this
        group."""
        return wire.open_datagram(datagram, self.group, self._checked)

    def receive(self, datagrams: "Sequence[Buffer]", now: Instant, emptied: bool = True) -> None:
        """Pass datagrams from the network to the layers. Datagrams that are damaged, of
        another group or not for this member are counted and dropped. `emptied` says
        that nothing more had arrived."""
        self.num_emptied += emptied
        if not emptied:
            self.unread_at = now
        packets, local = [], self.local.incarnation
        for datagram in datagrams:
            header = self.open(datagram)
            if header is None:
                self._count_unreadable(datagram)
            elif header.sender == local or header.dest not in (EVERYONE, local):
                self.not_for_me += 1
            else:
                packets.append(Packet(header.kind, header.sender, header.dest, datagram))
        if packets:
            self._bottom.pass_up(packets, now)

    def _count_unreadable(self, datagram: "Buffer") -> None:
        if wire.is_foreign(datagram, self.group, self._checked):
            self.foreign += 1
        else:
            self.malformed += 1

    def linked(self, members: Sequence[int], now: Instant) -> None:
        """Tell the layers that the transport has new connections to these members; what
        was on its way to and from them before may be lost."""
        for member in members:
            self._bottom.above.linked(member, now)

    def refused(self, members: Sequence[int], now: Instant) -> None:
        """Tell the layers that the processes of these members seem to be gone."""
        for member in members:
            self._bottom.above.refused(member, now)

    def deliver(self, limit: int, now: Instant) -> int:
        """Deliver at most `limit` messages; return how many. Another layer is the first
        each time."""
        handed = 0
        for deliver in self._delivering:
            handed += deliver(limit - handed, now)
        self._delivering.rotate(-1)
        return handed

    def delivered(self, batch: Batch, now: Instant) -> None:
        """Tell the layer that delivered a batch that the application has finished
        it."""
        if batch.stream is not None:
            batch.stream.layer.delivered(batch, now)

    def tick(self, now: Instant) -> None:
        """Call every layer whose deadline has come."""
        for layer in self._timed:
            deadline = layer.deadline()
            if deadline is not None and deadline <= now:
                layer.tick(now)

    def deadline(self) -> Instant | None:
        """Return the earliest instant at which tick has something to do, or None."""
        earliest = None
        for deadline in self._deadlines:
            due = deadline()
            if due is not None and (earliest is None or due < earliest):    # as sooner()
                earliest = due
        return earliest

    def take(self) -> Effects:
        """Return the effects of this turn, and start new ones."""
        effects, self.effects = self.effects, Effects()
        return effects

    def describe(self, status: Layers) -> None:
        """Write into `status` the pointers and counters of all layers."""
        status.wire = WireStatus(malformed=self.malformed, foreign=self.foreign,
                                 not_for_me=self.not_for_me, unhandled=self._top.unhandled)
        for layer in self.layers:
            layer.describe(status)

    def status(self) -> Layers:
        """Return the pointers and counters of all layers."""
        status = Layers()
        self.describe(status)
        return status
