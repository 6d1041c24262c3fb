"""HELLO: members prove to each other that they are there now.

    A                                      B
    HELLO: my challenge, I ask all     ->
                                       <-  HELLO: my challenge, I ask A, answer to A
    HELLO: my challenge, answer to B   ->

An answer repeats the challenge of the one who asked. Only who knows the group's secret
can make a HELLO, or where keys are trusted, who can sign it with a trusted one; and
none that was made before the challenge was drawn can have the answer. So whoever
answers is there now, and what was recorded of a former process, or before this process
started, opens nowhere. HELLO also says the salt from which the sender's keys are made,
and up to where it has numbered its datagrams: older ones are not taken.

Where keys are trusted, an answer also brings what opens the datagrams that its sender
seals without a view: HPKE seals it for the one who asked, with the public key of his
HELLO.

Nobody keeps anything of a member that has not answered yet. A HELLO is authenticated
(HMAC with SHA-256), and has nothing else to hide. Without a secret the key of the HMAC
is no secret either: then it only tells garbage apart, and the signature decides.
"""

import hmac
from struct import Struct
from typing import NamedTuple

from ringcast.config import PROOF_SIZE
from ringcast.protocols.security.identity import Identity
from ringcast.protocols.security.keys import SALT_SIZE

CHALLENGE_SIZE = 16
PUBLIC_SIZE = 32
ROOT_SIZE = 80                          # bytes of a sealed root: HPKE of 32 bytes
MOST_ASKED, MOST_ANSWERS = 8, 14        # in one HELLO, which fits the smallest datagram
MOST_SIGNED_ANSWERS = 2                 # in one that is signed, and brings roots

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
    # Of one that is signed: what seals for the sender, the roots for those whom it
    # answers, and after reading, what was signed and the proof.
    public: bytes = b""
    roots: dict[int, bytes] = {}
    said: bytes = b""
    proof: bytes = b""


def write_hello(key: bytes, header: bytes, hello: Hello, identity: Identity | None = None) -> bytes:
    """Return a HELLO with this header as a datagram. An `identity` signs it."""
    assert len(hello.salt) == SALT_SIZE and len(hello.challenge) == CHALLENGE_SIZE
    raw = b"".join((
        header, _BODY.pack(hello.salt, hello.challenge, *hello.numbers, len(hello.asked),
                           len(hello.answers)),
        *map(_ASKED.pack, hello.asked),
        *(_ANSWER.pack(*answer) for answer in hello.answers.items())))
    if identity is not None:
        raw += hello.public + b"".join(hello.roots[each] for each in hello.answers)
        raw += identity.sign(_signed_hello(key, raw))
    return raw + _mac(key, raw)


def read_hello(key: bytes, raw: bytes, header_size: int, is_signed: bool = False) -> Hello | None:
    """Return what a HELLO says; None if it was not made with this key. Nothing else of
    it is read before that is known. If it has to be signed, that is still to be
    checked: `said` is what was signed."""
    said, check = raw[:-_MAC], raw[-_MAC:]
    if not hmac.compare_digest(check, _mac(key, said)):
        return None
    body = said[header_size:]
    if len(body) < _BODY.size:
        return None
    salt, challenge, *numbers, num_asked, num_answers = _BODY.unpack_from(body)
    answers_at = _BODY.size + num_asked * _ASKED.size
    end = answers_at + num_answers * _ANSWER.size
    more = PUBLIC_SIZE + num_answers * ROOT_SIZE + PROOF_SIZE if is_signed else 0
    if len(body) != end + more:
        return None
    asked = [each for each, in _ASKED.iter_unpack(body[_BODY.size:answers_at])]
    answers = dict(_ANSWER.iter_unpack(body[answers_at:end]))
    if not is_signed:
        return Hello(salt, challenge, tuple(numbers), asked, answers)
    public, sealed = body[end:end + PUBLIC_SIZE], body[end + PUBLIC_SIZE:-PROOF_SIZE]
    roots = {each: sealed[at * ROOT_SIZE:][:ROOT_SIZE] for at, each in enumerate(answers)}
    return Hello(salt, challenge, tuple(numbers), asked, answers, public, roots,
                 _signed_hello(key, said[:-PROOF_SIZE]), said[-PROOF_SIZE:])


def _signed_hello(key: bytes, raw: bytes) -> bytes:
    """Return what the signature of a HELLO is about: its key tells groups apart."""
    return b"ringcast 1 hello " + key + raw


def _mac(key: bytes, raw: bytes) -> bytes:
    return hmac.digest(key, raw, "sha256")[:_MAC]
