"""A thing that anybody can make us do is done seldom: at most once in a pause."""

from ringcast.stack import Instant


class Seldom:
    """Remembers when something was done last. `pause` is in nanoseconds."""

    def __init__(self, pause: int) -> None:
        self.pause = pause
        self.last: Instant | None = None

    def note(self, now: Instant) -> None:
        """Note that it is done now."""
        self.last = now

    def allows(self, now: Instant) -> bool:
        """Return whether it may be done now; if so, note that it is."""
        if self.last is not None and now - self.last < self.pause:
            return False
        self.note(now)
        return True
