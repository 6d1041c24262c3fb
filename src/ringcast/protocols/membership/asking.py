"""Ask who is in a group, without coming.

The one who asks says WHO to everybody, again and again. The first three members of each
view answer with PRESENT, which names all members. A group that is parted has several
views.
"""

from ringcast.address import EVERYONE
from ringcast.config import Config, nanoseconds
from ringcast.kinds import takes
from ringcast.protocols.latest import Latest
from ringcast.protocols.membership.messages import PRESENT, WHO, Empty, Present
from ringcast.stack import Instant, Layer

MOST_VIEWS = 64         # that are remembered
ENOUGH = 4              # questions without any news, after which all have answered


class Asking(Layer):
    """The layer of somebody who asks. `found` has what was answered, by the id of the
    view."""

    def __init__(self, config: Config) -> None:
        self.interval = nanoseconds(config.seek_interval)
        self.found: Latest[int, Present] = Latest(MOST_VIEWS)
        self.next_ask: Instant = 0
        self.num_unchanged = 0                          # questions since there was any news

    @property
    def is_over(self) -> bool:
        """Return whether nothing new is to be expected."""
        return bool(self.found) and self.num_unchanged > ENOUGH

    def start(self, now: Instant) -> None:
        self._ask(now)

    def _ask(self, now: Instant) -> None:
        self.next_ask = now + self.interval
        self.num_unchanged += 1
        self.send_control(WHO, Empty(), EVERYONE, now)

    @takes(PRESENT)
    def _on_present(self, sender: int, present: Present, now: Instant) -> bool:
        """On reception of PRESENT: keep it. Of two views that share a name, the later
        one counts."""
        if not present.names:
            return True
        names = set(present.names)
        same = [view_id for view_id, known in self.found.items() if names & set(known.names)]
        if max(same, default=-1) < present.view_id:
            for view_id in same:
                del self.found[view_id]
            self.found.remember(present.view_id, present)
            self.num_unchanged = 0
        return True

    def linked(self, member: int, now: Instant) -> None:
        """Ask at once: somebody has been reached who has heard no question yet."""
        self._ask(now)

    def refused(self, member: int, now: Instant) -> None:
        """Nobody is expected."""

    def tick(self, now: Instant) -> None:
        if now >= self.next_ask:
            self._ask(now)

    def deadline(self) -> Instant:
        return self.next_ask
