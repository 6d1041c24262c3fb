"""No datagram is opened twice: each has a number, and a window remembers which of the
latest numbers have come.

What is older than the window is dropped as well, so memory is bounded. The window is
asked before a datagram is opened, because to open one costs more; but only one that has
opened is noted, so that a forged number cannot move the window.
"""

SIZE = 4096                             # numbers that a window remembers
_ALL = (1 << SIZE) - 1


class ReplayWindow:
    """Accepts each number above `floor` once, while it is among the latest SIZE."""

    __slots__ = ("highest", "seen")

    def __init__(self, floor: int) -> None:
        self.highest = floor
        self.seen = _ALL                # bit i: the number highest - i has come

    def is_new(self, number: int) -> bool:
        """Return whether a number comes for the first time. This changes nothing, so
        the number may be that of a datagram that does not open."""
        behind = self.highest - number
        return behind < 0 or (behind < SIZE and not self.seen >> behind & 1)

    def note(self, number: int) -> None:
        """Remember a number that is new, of a datagram that has opened."""
        ahead = number - self.highest
        if ahead > 0:
            self.seen = (self.seen << ahead | 1) & _ALL if ahead < SIZE else 1
            self.highest = number
        else:
            self.seen |= 1 << -ahead
