"""How often something may be done that anybody can make us do."""


class Allowance:
    """Allows `burst` at once, and then one in `refill` nanoseconds."""

    def __init__(self, burst: int, refill: int) -> None:
        self._burst, self._refill = burst, refill
        self._left, self._refilled = burst, 0

    def take(self, now: int) -> bool:
        """Return whether it may be done once more."""
        refills = (now - self._refilled) // self._refill
        if refills > 0:
            self._left = min(self._burst, self._left + refills)
            self._refilled = now
        if not self._left:
            return False
        self._left -= 1
        return True
