"""No datagram is opened twice: each has a number, and a window remembers which of the
latest numbers have come.

What is older than the window is dropped as well, so memory is bounded. The window is
asked only about datagrams that have opened: a forged number cannot move it.
"""

SIZE = 4096                             # numbers that a window remembers
_ALL = (1 << SIZE) - 1


class ReplayWindow:
    """Accepts each number above `floor` once, while it is among the latest SIZE."""

    __slots__ = ("highest", "seen")

    def __init__(self, floor: int) -> None:
        self.highest = floor
        self.seen = _ALL                # bit i: the number highest - i has come

    def take(self, number: int) -> bool:
        """Return whether a number comes for the first time."""
        ahead = number - self.highest
        if ahead > 0:
            self.seen = (self.seen << ahead | 1) & _ALL if ahead < SIZE else 1
            self.highest = number
            return True
        if -ahead >= SIZE or self.seen >> -ahead & 1:
            return False
        self.seen |= 1 << -ahead
        return True
