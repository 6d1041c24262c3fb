"""Views that are not the same everywhere: a layer that hides members from those above
it, as an asymmetric split does.

What hidden members send still arrives. Membership itself knows nothing of it, so nobody
is excluded.
"""

from ringcast.address import Address
from ringcast.stack import Instant, Layer
from ringcast.view import View


class ViewFilter(Layer):
    """`hide` and `show` change what the layers above take for the view."""

    def __init__(self) -> None:
        self.hidden: set[str] = set()
        self.ever_hid = False
        self.whole: View | None = None

    def hide(self, name: str, now: Instant) -> None:
        self.hidden.add(name)
        self.ever_hid = True
        self._say(now)

    def show(self, name: str, now: Instant) -> None:
        self.hidden.discard(name)
        self._say(now)

    def view(self, view: View, resumes: dict[int, int], now: Instant) -> None:
        self.whole = view
        self._say(now)

    def sees(self, member: Address) -> bool:
        """Whether the layers above have this member in their view."""
        return self.whole is not None and member in self.whole and member.name not in self.hidden

    def _say(self, now: Instant) -> None:
        if self.whole is not None:
            self.above.view(View(self.whole.id, tuple(filter(self.sees, self.whole.members))),
                            {}, now)
