"""Layers, the stack they form, and the Effects that come out of it.

A layer is a state machine: it reads no clock, socket, thread or random source. Time
comes in as `now`, integer nanoseconds on a clock that never goes back; what a layer
wants done is appended to the stack's Effects, which the driver takes and performs. The
same objects run over sockets (channel.py) and in a simulated network, where a seed
replays a run exactly.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec

from ringcast._core import wire
from ringcast._core.batch import Batch
from ringcast.address import EVERYONE, Address
from ringcast.kinds import Kind, declared
from ringcast.view import View

Instant = int                           # nanoseconds on a monotonic clock

if TYPE_CHECKING:
    from typing_extensions import Buffer

class Packet(msgspec.Struct, gc=False):
    """One datagram between two layers, header included. `sender` and `dest` are
    incarnations; dest 0 is everyone.

    `data` of a received packet may be a view of the transport's memory, good only until
    the turn ends: a layer that keeps a packet keeps `copy()`.
    """

    kind: int
    sender: int
    dest: int
    data: Any                           # bytes-like

    def copy(self) -> "Packet":
        return Packet(self.kind, self.sender, self.dest, bytes(self.data))


@dataclass(slots=True)
class Effects:
    """What one turn asks of the outside. Perform the fields in their order; then the
    value is dead.

    Views come before the deliveries that follow their installation in the same turn.
    """

    routes: dict[int, str] | None = None                            # where members can be reached:
                                                                    # transport.connect()
    packets: list[tuple[int, bytes]] = field(default_factory=list)  # (dest, datagram), dest 0 is
                                                                    # everyone
    views: list[View] = field(default_factory=list)
    deliveries: list[Batch] = field(default_factory=list)  # FIFO per sender
    failures: list[Batch] = field(default_factory=list)    # own messages to one member that nobody
                                                           # acknowledged
    closed: list[Address] = field(default_factory=list)    # whose windows for messages to one
                                                           # member are gone
    writable: bool = False                                 # a send window has room again, or its
                                                           # member left
    arrived: bool = False                                  # what had no room has come into its
                                                           # window: deliver
    held: set[int] | None = None                           # whose packets there is no room for:
                                                           # transport.hold()
    warnings: list[str] = field(default_factory=list)      # what an operator should know
    fault: str | None = None                               # the member cannot go on: close the
                                                           # channel with this sentence


class Layer:
    """One protocol. Each method passes on what it does not handle.

    A layer takes the packets of the kinds that its methods are marked with (kinds.py)
    and passes all others up. `above`, `below`, `stack` and `handlers` are set by the
    stack.
    """

    kinds: ClassVar[dict[Kind, str]] = {}       # with the names of the methods that take them
    above: "Layer"
    below: "Layer"
    stack: "Stack"
    handlers: dict[int, Callable[[Packet, Instant], Packet | None]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.kinds = dict(cls.kinds)
        for kind, method in declared(cls):
            if cls.kinds.setdefault(kind, method) != method:
                raise TypeError(f"{cls.__name__} takes {kind} in two methods, {cls.kinds[kind]} and {method}; one must go")

    def start(self, now: Instant) -> None:
        """The member begins: set timers, announce yourself."""

    def send(self, packets: list[Packet], now: Instant) -> None:
        """Packets on their way down."""
        self.below.send(packets, now)

    def send_control(self, kind: int, body: msgspec.Struct, dest: int, now: Instant) -> None:
        """Send one control packet of this layer."""
        self.below.send([self.stack.control(kind, body, dest)], now)

    def send_datagrams(self, kind: int, dest: int, datagrams: list[bytes], now: Instant) -> None:
        """Send datagrams of this layer that have their headers already."""
        local = self.stack.local.incarnation
        self.below.send([Packet(kind, local, dest, datagram) for datagram in datagrams], now)

    def receive(self, packets: list[Packet], now: Instant) -> None:
        """Hand each packet of a kind of this layer to its method, and pass all others
        up, in order.

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
            self.above.receive(others, now)

    def received(self, now: Instant) -> None:
        """Do what is done once for a batch, after all its packets that were for this
        layer."""

    def on_control(self, kind: Kind, handle: Callable[..., bool], packet: Packet,
                   now: Instant) -> None:
        """Decode a control packet and hand its body to the method that takes the
        kind."""
        body = kind.decode(packet.data)
        if body is None or not handle(packet.sender, body, now):
            self.count_bad()

    def count_bad(self) -> None:
        """Count a datagram that cannot be decoded or makes no sense (a peer cannot make
        us raise, decision 24): as malformed, unless the layer has a counter of its
        own."""
        self.stack.malformed += 1

    def view(self, view: View, resumes: dict[int, int], now: Instant) -> None:
        """A new view, on its way up. `resumes` says of returning members how far they
        already have our stream."""
        self.above.view(view, resumes, now)

    def linked(self, member: int, now: Instant) -> None:
        """There is a new connection to a member, which may not be in the view; what was
        on its way before may be lost."""
        self.above.linked(member, now)

    def returned(self, member: int, epoch: int, now: Instant) -> None:
        """An incarnation has come back: its process number `epoch` speaks for it from
        now on."""
        self.above.returned(member, epoch, now)

    def left(self, members: set[int], now: Instant) -> None:
        """These members left or were taken out. The view that lacks them has come
        before; nothing of theirs counts any more."""
        self.above.left(members, now)

    def deliver(self, limit: int, now: Instant) -> int:
        """Append at most `limit` messages to the deliveries of the Effects; how many
        those were."""
        return 0

    def delivered(self, batch: Batch, now: Instant) -> None:
        """The application has finished a batch that this layer delivered."""

    def tick(self, now: Instant) -> None:
        """The instant that `deadline` asked for has come."""

    def deadline(self) -> Instant | None:
        """When tick wants to be called, or None while nothing is pending."""
        return None

    def status(self) -> dict[str, int]:
        """Pointers and counters."""
        return {}


LayerT = TypeVar("LayerT", bound=Layer)


class _Top(Layer):
    """Above the topmost layer: what nobody consumed is counted."""

    def __init__(self) -> None:
        self.unhandled = 0

    def receive(self, packets: list[Packet], now: Instant) -> None:
        self.unhandled += len(packets)

    def view(self, view: View, resumes: dict[int, int], now: Instant) -> None:
        pass

    def linked(self, member: int, now: Instant) -> None:
        pass

    def returned(self, member: int, epoch: int, now: Instant) -> None:
        pass

    def left(self, members: set[int], now: Instant) -> None:
        pass


class _Bottom(Layer):
    """Below the lowest layer: packets become effects."""

    def send(self, packets: list[Packet], now: Instant) -> None:
        self.stack.effects.packets.extend((packet.dest, packet.data) for packet in packets)


def group_id(group: str) -> int:
    """The 32 bits by which datagrams of different groups on one port are told apart."""
    return int.from_bytes(hashlib.blake2b(group.encode(), digest_size=4).digest(), "little")


class Stack:
    """Layers from the application (first) to the wire (last), and one Effects that they
    fill.

    Single owner: whoever drives the stack calls one method at a time. `physical` is
    where this member can be reached, opaque to the stack. `local` is this member; its
    incarnation is the `sender` of all that goes out. `anchor` is what to add to an
    instant to get wall time, in nanoseconds since 1970.
    """

    def __init__(self, layers: Sequence[Layer], *, local: Address, group: str, physical: str = "",
                 anchor: int = 0) -> None:
        if not layers:
            raise ValueError("a stack needs at least one layer")
        self.local = local
        self.group = group_id(group)
        self.physical = physical
        self.anchor = anchor
        self.effects = Effects()
        self.malformed = 0
        self.not_for_me = 0
        self.layers = list(layers)
        self._delivering = [layer for layer in layers if type(layer).deliver is not Layer.deliver]
        self._timed = [layer for layer in layers if type(layer).deadline is not Layer.deadline]
        self._first = 0                 # who of those that deliver does so first in the next turn
        self._top, self._bottom = _Top(), _Bottom()
        chain: list[Layer] = [self._top, *self.layers, self._bottom]
        for above, below in zip(chain, chain[1:], strict=False):
            above.below, below.above = below, above
        self.kinds: dict[int, Kind] = {}
        for layer in chain:
            layer.stack = self
            self._learn_kinds(layer)

    def _learn_kinds(self, layer: Layer) -> None:
        """Know the kinds of a layer, and bind its methods to them."""
        layer.handlers = {}
        for kind, method in layer.kinds.items():
            for other in self.kinds.values():
                if other == kind or other.name == kind.name:
                    raise ValueError(f"{type(layer).__name__} declares the kind {int(kind)}, {kind.name!r}, and a layer above it "
                                     f"{int(other)}, {other.name!r}; in a stack each number and "
                                     f"each name stands for one kind")
            handle = getattr(layer, method)
            layer.handlers[int(kind)] = partial(layer.on_control, kind,
                                                handle) if kind.body else handle
            self.kinds[int(kind)] = kind

    def layer(self, wanted: type[LayerT]) -> LayerT:
        """Return the topmost layer of this type; LookupError when there is none."""
        for layer in self.layers:
            if isinstance(layer, wanted):
                return layer
        raise LookupError(f"this stack has no layer {wanted.__name__}")

    def kind(self, number: int) -> Kind:
        """Return the kind with this number; one that no layer takes has a name all the
        same."""
        return self.kinds.get(number) or Kind(number, f"kind {number}")

    def start(self, now: Instant) -> None:
        for layer in self.layers:
            layer.start(now)

    def header(self, kind: int, dest: int = EVERYONE) -> bytes:
        """The header of a data datagram from this member."""
        return wire.make_header(kind, self.group, self.local.incarnation, dest)

    def control(self, kind: int, body: Any, dest: int = EVERYONE) -> Packet:
        """A control packet from this member; `body` is a msgspec Struct."""
        data = wire.make_datagram(kind, self.group, self.local.incarnation, dest,
                                  msgspec.msgpack.encode(body))
        return Packet(kind, self.local.incarnation, dest, data)

    def receive(self, datagrams: "Sequence[Buffer]", now: Instant) -> None:
        """Whatever came from the network. Datagrams that are not ours, or not for us,
        are counted and dropped."""
        packets = []
        for datagram in datagrams:
            header = wire.open_datagram(datagram, self.group)
            if header is None:
                self.malformed += 1
            elif header.sender == self.local.incarnation or header.dest not in (EVERYONE,
                                                                                self.local.incarnation):
                self.not_for_me += 1
            else:
                packets.append(Packet(header.kind, header.sender, header.dest, datagram))
        if packets:
            self._bottom.above.receive(packets, now)

    def linked(self, members: Sequence[int], now: Instant) -> None:
        """The transport has new connections to these members; what was on its way to
        and from them before may be lost."""
        for member in members:
            self._bottom.above.linked(member, now)

    def deliver(self, limit: int, now: Instant) -> int:
        """Hand messages to the application, which has room for `limit`; how many. The
        layers take turns in being the first."""
        handed = 0
        for step in range(len(self._delivering)):
            handed += self._delivering[(self._first + step) % len(self._delivering)].deliver(
                limit - handed, now)
        self._first += 1
        return handed

    def delivered(self, batch: Batch, now: Instant) -> None:
        """The application has finished a batch; it goes back to the layer that
        delivered it."""
        if batch.stream is not None:
            batch.stream.layer.delivered(batch, now)

    def tick(self, now: Instant) -> None:
        """Call every layer whose deadline has come."""
        for layer in self._timed:
            deadline = layer.deadline()
            if deadline is not None and deadline <= now:
                layer.tick(now)

    def deadline(self) -> Instant | None:
        """The earliest instant at which tick has something to do, or None."""
        earliest = None
        for layer in self._timed:
            deadline = layer.deadline()
            if deadline is not None and (earliest is None or deadline < earliest):
                earliest = deadline
        return earliest

    def take(self) -> Effects:
        """What this turn asks for; the stack starts a new Effects."""
        effects, self.effects = self.effects, Effects()
        return effects

    def status(self) -> dict[str, int]:
        """Pointers and counters of all layers in one table."""
        merged = {"malformed": self.malformed, "not_for_me": self.not_for_me,
                  "unhandled": self._top.unhandled}
        for layer in self.layers:
            merged.update(layer.status())
        return merged
