"""The clock of a simulated member."""

from ringcast.stack import Instant


class Clock:
    """A monotonic clock. It shows `base` when the simulation begins, makes `permille`
    ticks in 1000 nanoseconds, and may jump ahead, as on a machine that slept."""

    def __init__(self, base: int = 0, permille: int = 1000) -> None:
        self.base, self.since, self.permille = base, 0, permille

    def read(self, now: int) -> Instant:
        """Return what the clock shows at the time `now` of the simulation."""
        return self.base + (now - self.since) * self.permille // 1000

    def when(self, reading: Instant) -> int:
        """Return the earliest time of the simulation at which the clock shows
        `reading`, which may be in the past."""
        return self.since - (self.base - reading) * 1000 // self.permille

    def jump(self, now: int, by: int) -> None:
        """Move the clock ahead by `by` nanoseconds."""
        self.base, self.since = self.read(now) + by, now
