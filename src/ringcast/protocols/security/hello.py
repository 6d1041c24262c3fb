"""HELLO: members prove to each other that they are there now.

    A                                      B
    HELLO: my challenge, I ask all     ->
                                       <-  HELLO: my challenge, I ask A, answer to A
    HELLO: my challenge, answer to B   ->

An answer repeats the challenge of the one who asked. Only who knows the group's secret
can make a HELLO, and none that was made before the challenge was drawn can have the
answer. So whoever answers is there now, and what was recorded of a former process, or
before this process started, opens nowhere. HELLO also says the salt from which the
sender's keys are made, and up to where it has numbered its datagrams: older ones are
not taken.

Nobody keeps anything of a member that has not answered yet. A HELLO is authenticated
(HMAC with SHA-256), and has nothing to hide.
"""

import hmac
from struct import Struct
from typing import NamedTuple

from ringcast.protocols.security.keys import SALT_SIZE

CHALLENGE_SIZE = 16
MOST_ASKED, MOST_ANSWERS = 8, 14        # in one HELLO, which fits the smallest datagram

_BODY = Struct("<16s16s4QBB")           # salt, challenge, numbers, how many asked and answers
_ASKED = Struct("<Q")
_ANSWER = Struct("<Q16s")
_MAC = 16


class Hello(NamedTuple):
    """What a HELLO says besides its header. `asked` are incarnations that are to
    answer; 0: all."""

    salt: bytes
    challenge: bytes
    numbers: tuple[int, ...]            # of the last datagram of each channel
    asked: list[int]
    answers: dict[int, bytes]           # challenges of others, by incarnation


def write_hello(key: bytes, header: bytes, hello: Hello) -> bytes:
    """Return a HELLO with this header as a datagram."""
    assert len(hello.salt) == SALT_SIZE and len(hello.challenge) == CHALLENGE_SIZE
    raw = b"".join((
        header, _BODY.pack(hello.salt, hello.challenge, *hello.numbers, len(hello.asked),
                           len(hello.answers)),
        *map(_ASKED.pack, hello.asked),
        *(_ANSWER.pack(*answer) for answer in hello.answers.items())))
    return raw + _mac(key, raw)


def read_hello(key: bytes, raw: bytes, header_size: int) -> Hello | None:
    """Return what a HELLO says; None if it was not made with this key. Nothing else of
    it is read before that is known."""
    said, check = raw[:-_MAC], raw[-_MAC:]
    if not hmac.compare_digest(check, _mac(key, said)):
        return None
    body = said[header_size:]
    if len(body) < _BODY.size:
        return None
    salt, challenge, *numbers, num_asked, num_answers = _BODY.unpack_from(body)
    answers_at = _BODY.size + num_asked * _ASKED.size
    if len(body) != answers_at + num_answers * _ANSWER.size:
        return None
    asked = [each for each, in _ASKED.iter_unpack(body[_BODY.size:answers_at])]
    return Hello(salt, challenge, tuple(numbers), asked,
                 dict(_ANSWER.iter_unpack(body[answers_at:])))


def _mac(key: bytes, raw: bytes) -> bytes:
    return hmac.digest(key, raw, "sha256")[:_MAC]
