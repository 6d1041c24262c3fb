"""The target `sealed`: what a member of a group with a secret reads of datagrams that
strangers make. Two bytes say where a datagram ends and what is put before it; a
stranger knows the wire format, and which members there are. Nothing opens, nothing is
said without limit, and nothing is kept.
"""

from collections.abc import Callable
from functools import cache

from ringcast.protocols.security.keys import Keys
from ringcast.protocols.security.seal import (
    ENTROPY,
    HEADER,
    MAGIC,
    MOST_ASKED,
    VERSION,
    Seal,
)

MOST = 50                               # datagrams of one input
MS = 1_000_000


@cache
def keys() -> Keys:
    return Keys(bytes(range(32)), "fuzzed", "aes-256-gcm")


def members() -> list[Seal]:
    """Two members that have met."""
    pair = [Seal(keys(), number, bytes([number]) * ENTROPY, outside=[0]) for number in (1, 2)]
    for _ in range(3):
        for one, other in (pair, pair[::-1]):
            other.open(one.hellos(0), 0)
    return pair


def run(data: bytes) -> None:
    """Let a member read the datagrams that are in the data."""
    check(data, *members())


def check(data: bytes, friend: Seal, member: Seal,
          finish: Callable[[bytes, int], bytes] = lambda datagram, form: datagram) -> None:
    """Let `member` read them, and see that nothing comes of it, and that it hears its
    friend. A stranger may `finish` a datagram that has a header."""
    challenge, said, at = member.challenge, 0, 0
    for number in range(MOST):
        if at + 2 > len(data):
            break
        form, size = data[at], data[at + 1]
        body, at = data[at + 2:at + 2 + size], at + 2 + size
        if form & 1:
            body = finish(HEADER.pack(MAGIC, VERSION, form >> 1 & 3, form >> 3 & 3,
                                      1 + (form >> 5 & 3), number) + body, form)
        assert member.open([body], number * MS) == []
        said += len(member.hellos(number * MS))
    assert said <= 1 + MOST // 10 and list(member.senders) == [1] and not member.take_linked()[1:]
    assert member.challenge == challenge and not member._answers
    assert len(member._strangers) <= MOST_ASKED + 1 and len(member.senders[1].epochs) <= 2
    for ((_, sealed),) in friend.seal([(0, bytes(8) + friend.member.to_bytes(8, "little"))]):
        assert len(member.open([sealed], MOST * MS)) == 1
