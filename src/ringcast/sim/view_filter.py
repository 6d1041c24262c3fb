"""Asymmetric splits: a layer that hides members from the layers above it.

What hidden members send still arrives. The membership layer does not know of it, so it
excludes nobody.
"""

from collections.abc import Callable

from ringcast.address import Address
from ringcast.stack import Instant, Layer
from ringcast.view import View


class ViewFilter(Layer):
    """Takes hidden members out of the view of the layers above. `installed` is called
    with each whole view."""

    def __init__(self, installed: Callable[[View], None]) -> None:
        self.installed = installed
        self.hidden: set[str] = set()
        self.whole: View | None = None      # the view with all members

    def hide(self, name: str, now: Instant) -> None:
        """Hide a member."""
        self.hidden.add(name)
        self._install(now)

    def show(self, name: str, now: Instant) -> None:
        """Hide a member no longer."""
        self.hidden.discard(name)
        self._install(now)

    def view(self, view: View, now: Instant) -> None:
        self.whole = view
        self.installed(view)
        self._install(now)

    def sees(self, member: Address) -> bool:
        """Return whether the layers above have this member in their view."""
        return self.whole is not None and member in self.whole and member.name not in self.hidden

    def _install(self, now: Instant) -> None:
        if self.whole is not None:
            self.above.view(View(self.whole.id, tuple(filter(self.sees, self.whole.members))), now)
