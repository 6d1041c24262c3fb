"""A sealed group in the simulator. Keys and all that is random come from the seed, here
alone: a channel draws them from the operating system.
"""

from random import Random

from ringcast.protocols.security.keys import SECRET_SIZE, Keys
from ringcast.protocols.security.seal import ENTROPY, Seal
from ringcast.stacks import BULK, CONTROL


class Sealing:
    """The secret of a simulated group, and the seals of its members."""

    def __init__(self, seed: int | str, cipher: str) -> None:
        self.rng = Random(f"{seed} seals")
        self.keys = Keys(self.rng.randbytes(SECRET_SIZE), "simulated", cipher)

    def seal(self, incarnation: int) -> Seal:
        """Return the seal of a new process."""
        return Seal(self.keys, incarnation, self.rng.randbytes(ENTROPY), BULK, CONTROL)
