"""A member that ends with a view: from the turn in which it installs that view, it
says and sends nothing any more.

A member that was excluded, or that excluded another one, may be together with it again
soon. Then its stream goes on for the other one, but something is missing. A member
whose receivers must have everything does not let that happen: it ends, and a new one
begins.
"""

from collections.abc import Callable

from ringcast.protocols.membership.layer import Membership
from ringcast.stack import Instant, Layer
from ringcast.view import View


class Until(Layer):
    """The layer that ends its member with the first view of which `is_last` is
    true."""

    def __init__(self, is_last: Callable[[View], bool]) -> None:
        self.is_last = is_last

    def view(self, view: View, now: Instant) -> None:
        super().view(view, now)
        try:
            is_last = self.is_last(view)
        except Exception as error:
            self.stack.effects.warnings.append(f"until raised {error!r}; this member goes on")
            return
        if is_last:
            self.stack.layer(Membership).stop(f"this member was to end with the view {view}; open "
                                              "a new channel")
