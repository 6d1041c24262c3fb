"""Layers, the stack they form, and the Effects that come out of it.

A layer is a state machine: it reads no clock, socket, thread or random source. Time comes in as `now`, integer nanoseconds on a
clock that never goes back; what a layer wants done is appended to the stack's Effects, which the driver takes and performs. The
same objects run over sockets (channel.py) and in a simulated network, where a seed replays a run exactly.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ringcast._core import wire
from ringcast._core.batch import Batch
from ringcast.address import Address
from ringcast.transport import EVERYONE
from ringcast.view import View

Instant = int                           # nanoseconds on a monotonic clock

if TYPE_CHECKING:
    from typing_extensions import Buffer

Body = TypeVar("Body")


class Kind:
    """What a datagram is; one byte on the wire. A layer consumes its kinds and passes all others up."""

    DATA = 1                            # messages, sent for the first time
    REPEAT = 2                          # messages, retransmitted on request
    HELLO = 3                           # membership: who I am and whom I know
    START = 4                           # multicast: where my stream starts for you
    ACK = 5                             # mcast: highest seqno delivered
    XMIT_REQ = 6                        # multicast: ranges of missing seqnos
    HIGHEST = 7                         # multicast: highest seqno sent
    UNICAST = 8                         # unicast3: messages of a connection
    UNICAST_FIRST = 9                   # unicast3: the same, beginning with what its sender calls the first
    UNICAST_ACK = 10                    # unicast3: highest seqno delivered
    UNICAST_XMIT_REQ = 11               # unicast3: ranges of missing seqnos
    SEND_FIRST_SEQNO = 12               # unicast3: I have no window for this connection
    CLOSE = 13                          # unicast3: this connection is closed
    UNRELIABLE = 14                     # one message without a seqno
    STARTED = 15                        # nakack2: your stream begins for me where your START says
    RESYNC = 16                         # nakack2: after our connection broke: I have your messages up to here
    VOTE = 17                           # stable: what I have finished of everybody's messages
    STABILITY = 18                      # stable: what all have finished
    PART = 19                           # parts: of a control datagram that is larger than a frame


class Packet(msgspec.Struct, gc=False):
    """One datagram between two layers, header included. `sender` and `dest` are incarnations; dest 0 is everyone.

    `data` of a received packet may be a view of the transport's memory, good only until the turn ends: a layer that keeps a
    packet keeps `copy()`.
    """

    kind: int
    sender: int
    dest: int
    data: Any                           # bytes-like

    def copy(self) -> "Packet":
        return Packet(self.kind, self.sender, self.dest, bytes(self.data))


@dataclass(slots=True)
class Effects:
    """What one turn asks of the outside. Perform the fields in their order; then the value is dead.

    Views come before the deliveries that follow their installation in the same turn.
    """

    routes: dict[int, str] | None = None                # where members can be reached: transport.connect()
    packets: list[tuple[int, bytes]] = field(default_factory=list)     # (dest, datagram), dest 0 is everyone
    views: list[View] = field(default_factory=list)
    deliveries: list[Batch] = field(default_factory=list)              # FIFO per sender
    failures: list[Batch] = field(default_factory=list)                # own messages to one member that nobody acknowledged
    closed: list[Address] = field(default_factory=list)                # whose windows for messages to one member are gone
    writable: bool = False                              # a send window has room again, or its member left
    arrived: bool = False                               # what had no room has come into its window: deliver
    held: set[int] | None = None                        # whose packets there is no room for: transport.hold()
    warnings: list[str] = field(default_factory=list)   # what an operator should know
    fault: str | None = None                            # the member cannot go on: close the channel with this sentence


class Layer:
    """One protocol. Each method passes on what it does not handle; `above` and `below` are set by the stack."""

    above: "Layer"
    below: "Layer"
    stack: "Stack"

    def start(self, now: Instant) -> None:
        """The member begins: set timers, announce yourself."""

    def send(self, packets: list[Packet], now: Instant) -> None:
        """Packets on their way down."""
        self.below.send(packets, now)

    def receive(self, packets: list[Packet], now: Instant) -> None:
        """Packets on their way up."""
        self.above.receive(packets, now)

    def view(self, view: View, resumes: dict[int, int], now: Instant) -> None:
        """A new view, on its way up. `resumes` says of returning members how far they already have our stream."""
        self.above.view(view, resumes, now)

    def linked(self, member: int, now: Instant) -> None:
        """There is a new connection to a member, which may not be in the view; what was on its way before may be lost."""
        self.above.linked(member, now)

    def returned(self, member: int, stint: int, now: Instant) -> None:
        """A life has come back: its process number `stint` speaks for it from now on."""
        self.above.returned(member, stint, now)

    def left(self, members: set[int], now: Instant) -> None:
        """These members left or were taken out. The view that lacks them has come before; nothing of theirs counts any more."""
        self.above.left(members, now)

    def deliver(self, limit: int, now: Instant) -> int:
        """Append at most `limit` messages to the deliveries of the Effects; how many those were."""
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

    def returned(self, member: int, stint: int, now: Instant) -> None:
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
    """Layers from the application (first) to the wire (last), and one Effects that they fill.

    Single owner: whoever drives the stack calls one method at a time. `physical` is where this member can be reached,
    opaque to the stack. `local` is this member; its incarnation is the `sender` of all that goes out. `anchor` is what to add to an
    instant to get wall time, in nanoseconds since 1970.
    """

    def __init__(self, layers: Sequence[Layer], *, local: Address, group: str, physical: str = "", anchor: int = 0) -> None:
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
        self._first = 0                                 # who of those that deliver does so first in the next turn
        self._top, self._bottom = _Top(), _Bottom()
        chain: list[Layer] = [self._top, *self.layers, self._bottom]
        for above, below in zip(chain, chain[1:], strict=False):
            above.below, below.above = below, above
        for layer in chain:
            layer.stack = self

    def layer(self, kind: type[LayerT]) -> LayerT:
        """Return the topmost layer of this type; LookupError when there is none."""
        for layer in self.layers:
            if isinstance(layer, kind):
                return layer
        raise LookupError(f"this stack has no layer {kind.__name__}")

    def start(self, now: Instant) -> None:
        for layer in self.layers:
            layer.start(now)

    def header(self, kind: int, dest: int = EVERYONE) -> bytes:
        """The header of a data datagram from this member."""
        return wire.make_header(kind, self.group, self.local.incarnation, dest)

    def control(self, kind: int, body: Any, dest: int = EVERYONE) -> Packet:
        """A control packet from this member; `body` is a msgspec Struct."""
        data = wire.make_datagram(kind, self.group, self.local.incarnation, dest, msgspec.msgpack.encode(body))
        return Packet(kind, self.local.incarnation, dest, data)

    def receive(self, datagrams: "Sequence[Buffer]", now: Instant) -> None:
        """Whatever came from the network. Datagrams that are not ours, or not for us, are counted and dropped."""
        packets = []
        for datagram in datagrams:
            header = wire.open_datagram(datagram, self.group)
            if header is None:
                self.malformed += 1
            elif header.sender == self.local.incarnation or header.dest not in (EVERYONE, self.local.incarnation):
                self.not_for_me += 1
            else:
                packets.append(Packet(header.kind, header.sender, header.dest, datagram))
        if packets:
            self._bottom.above.receive(packets, now)

    def linked(self, members: Sequence[int], now: Instant) -> None:
        """The transport has new connections to these members; what was on its way to and from them before may be lost."""
        for member in members:
            self._bottom.above.linked(member, now)

    def deliver(self, limit: int, now: Instant) -> int:
        """Hand messages to the application, which has room for `limit`; how many. The layers take turns in being the first."""
        handed = 0
        for step in range(len(self._delivering)):
            handed += self._delivering[(self._first + step) % len(self._delivering)].deliver(limit - handed, now)
        self._first += 1
        return handed

    def delivered(self, batch: Batch, now: Instant) -> None:
        """The application has finished a batch; it goes back to the layer that delivered it."""
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
        merged = {"malformed": self.malformed, "not_for_me": self.not_for_me, "unhandled": self._top.unhandled}
        for layer in self.layers:
            merged.update(layer.status())
        return merged


def decoded(decoder: "msgspec.msgpack.Decoder[Body]", packet: Packet) -> Body | None:
    """The body of a control packet, or None when it is not what the decoder expects."""
    try:
        return decoder.decode(memoryview(packet.data)[wire.HEADER_SIZE:])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
