"""What a HELLO costs a member that trusts keys: CPU microseconds, medians of five.

    python benchmarks/hello.py

forged    one that names a trusted key and has no signature of it, and is checked
dropped   the same, when as many as may be were checked in this second
answer    to make one that answers one member
"""

import hmac
import secrets
import statistics
import time
from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ringcast.protocols.security import keyring, seal
from ringcast.protocols.security.identity import BURST, Identity
from ringcast.protocols.security.keyring import Keyring
from ringcast.protocols.security.keys import NO_SECRET, Keys
from ringcast.protocols.security.seal import Seal

KEYS = Keys(NO_SECRET, "measured", "aes-256-gcm")
PRIVATE = [Ed25519PrivateKey.generate() for _ in range(2)]
TRUSTED = {key.public_key().public_bytes_raw(): frozenset([name])
           for name, key in zip("ab", PRIVATE, strict=True)}


def member(number: int) -> Seal:
    """Return a new process that trusts both keys."""
    ring = Keyring("measured", number, secrets.token_bytes(keyring.ENTROPY),
                   Identity(PRIVATE[number - 1], TRUSTED))
    return Seal(KEYS, number, secrets.token_bytes(seal.ENTROPY), keyring=ring)


def cost(act: Callable[[int], object], times: int) -> float:
    """Return the microseconds of one call, which is told its number."""
    found = []
    for _ in range(5):
        began = time.process_time()
        for number in range(times):
            act(number)
        found.append((time.process_time() - began) / times * 1e6)
    return statistics.median(found)


def main() -> None:
    one, other = member(1), member(2)
    said, = other.hellos(0)
    forged = said[:-80] + bytes(64)
    forged += hmac.digest(KEYS.hello, forged, "sha256")[:16]
    now = [0]

    def check(number: int) -> None:
        now[0] += 10_000_000            # enough for another one
        one.open([forged], now[0])

    def answer(number: int) -> None:
        one.open([said], now[0])
        now[0] += 10_000_000
        one.hellos(now[0])

    checked, answered = cost(check, 500), cost(answer, 200)
    for _ in range(2 * BURST):
        one.open([forged], now[0])
    dropped = cost(lambda number: one.open([forged], now[0]), 2000)
    asked = cost(lambda number: (one.open([said], now[0] + 10_000_000 * number)), 200)
    print(f"forged {checked:.0f} us, dropped {dropped:.1f} us, answer {answered - asked:.0f} us")


if __name__ == "__main__":
    main()
