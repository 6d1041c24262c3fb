"""The bytes on the wire stay as they are: one recorded datagram of each kind, and the
play that sends it.

Members of different releases may share a group only as long as this holds. Whoever
changes the wire format of a release on purpose raises its version (wire.pyx). To record
anew:

    cd tests/transcripts; PYTHONPATH=.. python test_wire_format.py > datagrams.tsv
"""

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import textring
from membership_world import World

from ringcast import protocols
from ringcast._core.ring_buffer import RingBuffer
from ringcast._core.send_window import SendWindow
from ringcast.address import Address
from ringcast.config import configure
from ringcast.kinds import Kind
from ringcast.protocols.budget import Budget
from ringcast.protocols.membership.asking import Asking
from ringcast.protocols.membership.ends import ASK_END, AskEnd, Ends, Question
from ringcast.protocols.membership.messages import PRESENT, REFUSE, SUSPECTS, Refuse
from ringcast.protocols.membership.state import NEED, Need
from ringcast.protocols.multicast.base import DATA
from ringcast.protocols.multicast.fetching import FETCH, Fetch
from ringcast.protocols.multicast.flush import Agreed
from ringcast.protocols.multicast.mcast import Mcast
from ringcast.protocols.parts import Parts
from ringcast.protocols.unreliable import Unreliable
from ringcast.sim.transcripts.language import Transcript
from ringcast.sim.transcripts.verbs.group import VERBS
from ringcast.stack import Layer, Packet, Stack
from ringcast.view import View

HERE = Path(__file__).parent
BY_HAND = "by hand"                     # instead of the name of a play


def shipped_kinds() -> list[Kind]:
    """Return what the layers declare that ringcast has, wherever in `protocols` they
    are."""
    for module in pkgutil.walk_packages(protocols.__path__, f"{protocols.__name__}."):
        importlib.import_module(module.name)
    kinds = [kind for layer in below(Layer) if layer.__module__.startswith("ringcast.")
             for kind in layer.kinds]
    return [*{id(kind): kind for kind in kinds}.values()]


def below(layer: type[Layer]) -> Iterator[type[Layer]]:
    for child in layer.__subclasses__():
        yield child
        yield from below(child)


KINDS = shipped_kinds()


@cache
def sent_in(play: str) -> list[bytes]:
    """Return the datagrams that a play, or the layers alone, put on the network."""
    if play == BY_HAND:
        return [*sent_by_hand()]
    group = Transcript.read(HERE / f"{play}.txt", VERBS | textring.VERBS).play().group
    return [sent.datagram for sent in group.script.history] if group else []


def sent_by_hand() -> Iterator[bytes]:
    """Yield datagrams of the kinds that no play has."""
    me = Address("A", 1)
    unreliable, parts = Unreliable(me), Parts(80)
    asking = Asking(configure({}, "mcast-udp"))         # so the stack knows PRESENT
    stack = Stack([asking, unreliable, parts], local=me, group="golden")
    unreliable.send_one(b"x" * 20, None, 4, 0)
    for kind in (PRESENT, SUSPECTS):
        parts.send([Packet(kind, 1, 0, stack.control(kind, ["x" * 90]).data)], 0)
    yield from (bytes(datagram) for _, datagram in stack.take().packets)
    yield from flushed_by_hand()
    yield from agreed_by_hand()


def agreed_by_hand() -> Iterator[bytes]:
    """Yield what members of small groups say to each other about their views. Seven is
    a seed with which every kind is sent."""
    sent: list[bytes] = []
    world = World(7, suspect_timeout=300, heartbeat_interval=50)
    world.tap = lambda node, datagram: sent.append(datagram)
    world.start(*"ABCD")
    world.run(1000)
    world.partition("AB", "CD")
    world.run(2000)
    world.cut.clear()
    world.run(2000)
    world["A"].pause(1500)
    world.run(3000)
    world["D"].leave()
    world.run(500)
    asking = Stack([Asking(configure({}, "mcast-udp"))], local=Address("Z", 9), group="golden")
    asking.start(0)
    sent += [datagram for _, datagram in asking.take().packets]
    yield from asked_by_hand()
    plain = Stack([Layer()], local=Address("Z", 9), group="golden")
    sent += [plain.control(REFUSE, Refuse(1, 2)).data, plain.control(NEED, Need(1)).data]
    yield from map(bytes, sent)


def asked_by_hand() -> Iterator[bytes]:
    """Yield a member's question about a stream, and its own answer."""
    me, b, gone = Address("A", 1), Address("B", 2), Address("C", 3)
    layer = Mcast(me, configure({}, "mcast-udp"), Budget(1 << 20))
    ends = Ends(layer.config, layer)
    stack = Stack([layer, ends], local=me, group="golden")
    layer.agree(Agreed({1: 0, 2: 0, 3: 7}, {}, frozenset({1})))
    layer.view(View(1, (me, b, gone)), 0)
    layer.flushing.ended.note(layer.windows.pop(3).stream, 7, 70_000)
    del layer.members[3]
    ends.ask(Question(3), 0)
    stack.receive([Stack([Layer()], local=b, group="golden").control(ASK_END, AskEnd(3)).data], 0)
    yield from (bytes(datagram) for _, datagram in stack.take().packets)


def flushed_by_hand() -> Iterator[bytes]:
    """Yield what a member sends that has message 1 of C, when B asks for it, and which
    asks B for message 2 when C is gone."""
    me, b, c = Address("A", 1), Address("B", 2), Address("C", 3)
    layer = Mcast(me, configure({}, "mcast-udp"), Budget(1 << 20))
    stack = Stack([layer], local=me, group="golden")
    others = {each.incarnation: Stack([Layer()], local=each, group="golden") for each in (b, c)}
    window = SendWindow(RingBuffer(4))
    window.push(b"x" * 20)
    layer.agree(Agreed({1: 0, 2: 0, 3: 0}, {}, frozenset({1})))
    layer.view(View(1, (me, b, c)), 0)
    stack.receive(window.frame(others[3].header(DATA), now=5), 0)
    stack.receive([others[2].control(FETCH, Fetch(3, [(1, 1)]), 1).data], 0)
    layer.prepare(0)
    layer.agree(Agreed({1: 0, 2: 0, 3: 2}, {3: 2}, frozenset({1, 2})))
    layer.view(View(2, (me, b)), 0)
    yield from (bytes(datagram) for _, datagram in stack.take().packets)


def recorded() -> list[tuple[str, str, bytes]]:
    lines = (HERE / "datagrams.tsv").read_text().splitlines()
    return [(kind, play, bytes.fromhex(digits)) for kind, play,
            digits in (line.split("\t") for line in lines)]


@pytest.mark.parametrize(("kind", "play", "datagram"), recorded(), ids=lambda value: value
                         if isinstance(value, str) else "")
def test_a_kind_has_the_bytes_that_it_had(kind, play, datagram):
    assert datagram[3] in [each for each in KINDS if each.name == kind]
    assert datagram in sent_in(play)


def test_each_kind_is_recorded():
    assert {kind for kind, _, _ in recorded()} == {kind.name for kind in KINDS}


def test_no_two_kinds_of_shipped_layers_have_one_number_or_one_name():
    """Not even layers that no stack has together: a datagram could come from a member
    on another stack."""
    assert len(KINDS) == len({int(kind) for kind in KINDS}) == len({kind.name for kind in KINDS})


def record() -> None:
    """Print the first datagram of each kind, from the play that sends the fewest."""
    plays = sorted((path.stem for path in HERE.glob("*.txt")), key=lambda play: len(sent_in(play)))
    found: dict[int, tuple[str, bytes]] = {}
    for play in (*plays, BY_HAND):
        for datagram in sent_in(play):
            found.setdefault(datagram[3], (play, datagram))
    for kind, (play, datagram) in sorted(found.items()):
        print(next(each.name for each in KINDS if each == kind), play, datagram.hex(), sep="\t")


if __name__ == "__main__":
    record()
