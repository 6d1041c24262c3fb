"""A stranger in a sealed group: it hears all that is sent, does not know the secret,
and says what it has heard again, whole or damaged, to anybody and at any time. Nothing
that it does may have an effect.
"""

from random import Random
from typing import TYPE_CHECKING

from ringcast.sim.network import MS

if TYPE_CHECKING:
    from ringcast.sim.cluster import Cluster

MOST = 1000             # datagrams that it remembers
SPEAKS = 0.1            # how often it says something when it hears something
LATEST = 500 * MS       # until when it says it


class Stranger:
    """Hears the datagrams of a cluster. Over connections it can only hear: it has
    none."""

    def __init__(self, cluster: "Cluster", rng: Random) -> None:
        self.cluster, self.rng = cluster, rng
        self.heard: list[bytes] = []
        self.num_said = 0

    def hear(self, datagram: bytes) -> None:
        """Remember a datagram, and perhaps say one."""
        rng = self.rng
        if len(self.heard) < MOST:
            self.heard.append(datagram)
        else:
            self.heard[rng.randrange(MOST)] = datagram
        if rng.random() < SPEAKS and self.cluster.links is None:
            said = rng.choice(self.heard)
            if rng.random() < 0.3:
                said = self._damaged(said)
            self.cluster.at(self.cluster.now + rng.randrange(LATEST), self._say, said, self.heard)

    def forget(self) -> None:
        """Forget what was heard, and what was to be said of it. A datagram of a former
        view that nobody has got yet is not a repeat: whoever gets it may answer."""
        self.heard = []

    def _damaged(self, datagram: bytes) -> bytes:
        """Return a datagram with another byte, or another end."""
        at = self.rng.randrange(len(datagram))
        if self.rng.random() < 0.5:
            return datagram[:at] + self.rng.randbytes(len(datagram) - at)
        damaged = bytearray(datagram)
        damaged[at] ^= 1 << self.rng.randrange(8)
        return bytes(damaged)

    def _say(self, datagram: bytes, heard: list[bytes]) -> None:
        living = self.cluster.living()
        if living and heard is self.heard:
            self.num_said += 1
            self.rng.choice(living).arrive(datagram)
