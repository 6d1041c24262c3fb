"""Kinds of datagrams. A layer declares each of its kinds once, next to the rule that
needs it:

    PING = Kind(100, "ping", Ping, about="seqno")       # Ping is the body, a msgspec Struct

    class Echo(Layer):
        @takes(PING)
        def _on_ping(self, sender: int, ping: Ping, now: Instant) -> bool: ...

A kind is the number in the header of its datagrams, together with what others must know
about them: transcripts, traces, measurements and fuzzers ask the kinds of a stack
(Stack.kinds). There is no list of all kinds; a stack refuses two layers that declare
the same number.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ringcast._core import wire
from ringcast._core.wire_trace import list_runs
from ringcast.decoding import UNDECODABLE
from ringcast.protocols.seqnos import MODULUS, Range

if TYPE_CHECKING:
    from typing_extensions import Buffer

Method = TypeVar("Method", bound=Callable[..., Any])
HIGHEST_NUMBER = 255                    # a kind is one byte on the wire


class Kind(int):
    """A kind of datagrams: its number on the wire, and

    - `name`: its name in transcripts and traces;
    - `body`: what a control datagram carries; None if the layer reads the datagram
      itself;
    - `about`: the field of the body that has the seqnos that it is about: one seqno,
      one of each sender, or a list of ranges;
    - `messages_at`: where the messages begin in the datagram, if it carries messages
      with seqnos; between the header and the messages stands a conn-id;
    - `of_another`: in the place of the conn-id stands the incarnation of the member
      that sent the messages first;
    - `measured`: how measurements count it: data, repeat or control;
    - `traced`: False keeps its datagrams out of traces;
    - `outside`: members say it also to those who are not in their view, so it is
      sealed with the group's secret alone, and not with the view's key.
    """

    name: str
    body: type[msgspec.Struct] | None
    about: str
    messages_at: int
    of_another: bool
    measured: str
    traced: bool
    outside: bool
    _decoder: "msgspec.msgpack.Decoder[Any] | None"

    def __new__(cls, number: int, name: str, body: type[msgspec.Struct] | None = None, *,
                about: str = "", messages_at: int = 0, of_another: bool = False,
                measured: str = "", traced: bool = True, outside: bool = False) -> "Kind":
        if not 0 < number <= HIGHEST_NUMBER:
            raise ValueError(f"the kind {name!r} has the number {number}; it may have 1 to "
                             f"{HIGHEST_NUMBER}")
        kind = super().__new__(cls, number)
        kind.name, kind.body, kind.about, kind.messages_at = name, body, about, messages_at
        kind.of_another = of_another
        kind.measured = measured or ("data" if messages_at else "control")
        kind.traced, kind.outside = traced, outside
        kind._decoder = msgspec.msgpack.Decoder(body) if body else None
        return kind

    def __repr__(self) -> str:
        return f"Kind({int(self)}, {self.name!r})"

    def decode(self, datagram: "Buffer") -> Any:
        """Return the body of a control datagram, or None if it cannot be decoded."""
        if self._decoder is None:
            return None
        try:
            return self._decoder.decode(memoryview(datagram)[wire.HEADER_SIZE:])
        except UNDECODABLE:
            return None

    def ranges(self, datagram: "Buffer") -> list[Range]:
        """Return the seqnos of the messages that a datagram carries, or that it is
        about."""
        if self.messages_at:
            return joined(list_runs(datagram, self.messages_at))
        said = getattr(self.decode(datagram), self.about, None) if self.about else None
        if said is None:
            return []
        if isinstance(said, dict):
            return [(seqno, seqno) for seqno in said.values()]
        return said if isinstance(said, list) else [(said, said)]

    def conn_id(self, datagram: "Buffer") -> int | None:
        """Return the conn-id of a datagram, if it has one."""
        if self.messages_at > wire.HEADER_SIZE and not self.of_another:
            return self._prefix(datagram)
        return getattr(self.decode(datagram), "conn_id", None)

    def origin(self, datagram: "Buffer") -> int | None:
        """Return who sent the messages of a datagram first, if that is not the sender
        of the datagram."""
        return self._prefix(datagram) if self.of_another else None

    def _prefix(self, datagram: "Buffer") -> int:
        """Return the number between the header and the messages."""
        return int.from_bytes(memoryview(datagram)[wire.HEADER_SIZE:self.messages_at], "little")

    def timestamp(self, datagram: "Buffer") -> int | None:
        """Return the timestamp of a control datagram, if it has one."""
        return getattr(self.decode(datagram), "timestamp", None)


def joined(runs: "list[tuple[int, int, int, int, int, int]]") -> list[Range]:
    """Return the seqnos of a datagram's runs as ranges, which end where there is a gap
    or the flags change."""
    ranges: list[Range] = []
    last_flags = None
    for first, count, flags, *_ in runs:
        last = (first + count - 1) % MODULUS
        if flags == last_flags and (ranges[-1][1] + 1) % MODULUS == first:
            ranges[-1] = ranges[-1][0], last
        else:
            ranges.append((first, last))
        last_flags = flags
    return ranges


def takes(*kinds: Kind) -> Callable[[Method], Method]:
    """Mark the method of a layer that takes packets of these kinds.

    For a kind with a body, the method gets the sender, the decoded body and the
    instant, and returns False if the body makes no sense. For a kind without, it gets
    the packet and the instant. In a subclass, a method of the same name takes its
    place.
    """
    def mark(method: Method) -> Method:
        method.__dict__["takes"] = kinds
        return method
    return mark


def declared(layer: type) -> Iterator[tuple[Kind, str]]:
    """Yield the kinds that methods of a class are marked with, and the names of these
    methods."""
    for name, method in vars(layer).items():
        for kind in getattr(method, "__dict__", {}).get("takes", ()):
            yield kind, name
