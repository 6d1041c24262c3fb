"""Members that seal and open, without a network: what one says is handed to others.
They have no view, and need none.
"""

from random import Random

from ringcast._core import wire
from ringcast.protocols.security.keys import Keys
from ringcast.protocols.security.seal import ENTROPY, Seal
from ringcast.stack import HeldKeys
from ringcast.status import by_name

SECRET = Random("secret").randbytes(32)
DATA, HIGHEST, ALIVE = 1, 3, 24         # kinds
MS = 1_000_000
VIEW = 1 << 32          # an id


def keys(secret=SECRET, group="g", cipher="aes-256-gcm"):
    return Keys(secret, group, cipher)


class Member(Seal):
    """A process. Each has random bytes of its own. Kinds that are `outside` need no
    view."""

    drawn = 0

    def __init__(self, number, outside=range(256), **of_keys):
        Member.drawn += 1
        entropy = Random(Member.drawn).randbytes(ENTROPY)
        super().__init__(keys(**of_keys), number, entropy, {DATA}, {ALIVE}, outside)

    def say(self, text, dest=0, kind=ALIVE):
        """A sealed datagram."""
        datagram = wire.make_datagram(kind, 1, self.member, dest, text)
        ((_, sealed),), = self.seal([(dest, datagram)])
        return bytes(sealed)

    def hear(self, *datagrams, now=0):
        """What is in the datagrams that open."""
        return [bytes(each[wire.HEADER_SIZE:]) for each in self.open(datagrams, now)]

    def count(self, name):
        return by_name(self.status())[name]


def meet(*members, now=0):
    """Let members exchange HELLOs, until nobody has to say anything."""
    said = True
    while said:
        said = [(member, hello) for member in members for hello in member.hellos(now)]
        for speaker, hello in said:
            for member in members:
                if member is not speaker:
                    member.open([hello], now)


def pair(**options):
    """Two members that have met."""
    a, b = Member(1, **options), Member(2, **options)
    meet(a, b)
    return a, b


def pair_in_view():
    """Two members that have met, and seal all that they say with the key of a view."""
    a, b = pair(outside=())
    for each in (a, b):
        each.rekey(HeldKeys(VIEW, {VIEW: bytes(32)}, {VIEW: (1, 2)}), 0)
    return a, b
