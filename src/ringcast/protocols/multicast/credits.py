"""The credits of MCAST and NAKACK2: how many bytes each sender may have on its way to
each receiver (decision 7).

A receiver grants each sender an equal share of its socket buffer (budget.py), and says
so with what it reports: an ack or a vote. A sender's window holds no more than the
smallest credit of all receivers, and than its own socket buffer.
"""

from typing import TYPE_CHECKING

from ringcast.protocols.budget import set_window_limit

if TYPE_CHECKING:
    from ringcast.protocols.multicast.base import Multicast


class Credits:
    """Both sides, for one layer."""

    def __init__(self, layer: "Multicast") -> None:
        self.layer = layer
        self.smallest = layer.config.max_bytes          # of all receivers, in bytes
        self.is_acked = False                           # another member has acknowledged us

    def grant(self) -> int:
        """Return the credit of each sender to us: equal for all who have ever sent; 0
        when nobody need wait for us."""
        layer = self.layer
        if not layer.receiving:
            return 0
        senders = sum(window.ring.hr != window.offset for window in layer.windows.values())
        return layer.budget.share(layer.protocol, senders, layer.config.max_bytes)

    def use(self, smallest: int) -> None:
        """Bound the send window by the smallest credit of all receivers; its datagrams
        too, so that a window always has several of them."""
        self.smallest = min(self.layer.config.max_bytes, smallest)
        self.fit_window()

    def fit_window(self) -> None:
        """Use our credit. Before anything of ours is acknowledged nobody counts us
        among its senders, and others may begin just now: then use as much as all can at
        once."""
        layer = self.layer
        limit = self.smallest if self.is_acked else self.first_part(self.smallest)
        set_window_limit(layer.send_window, min(max(1, limit), layer.budget.sending), layer.config)

    def first_part(self, credit: int) -> int:
        """Return the part of a credit that a sender uses before it is acknowledged."""
        return credit // max(1, len(self.layer.members) - 1)

    def acknowledged(self) -> None:
        """Something of ours was acknowledged by all."""
        if not self.is_acked and len(self.layer.members) > 1:
            self.is_acked = True
            self.fit_window()
