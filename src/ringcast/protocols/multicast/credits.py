"""The credits of MCAST and NAKACK2: how many bytes each sender may have on its way to
each receiver (decision 7).

A receiver grants each sender an equal share of its socket buffer (budget.py), and says
so with what it reports: an ack or a vote. A sender's window holds no more than the
smallest credit of all receivers, and than its own socket buffer. But a large message is
acknowledged when it is whole, and may be larger than that; and what comes behind a gap
is acknowledged when the gap is filled. So a receiver also reports how much of both has
come (parts), and the sender may have as much more in its window.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from ringcast.config import MAX_MEMBERS
from ringcast.protocols.budget import set_window_limit
from ringcast.protocols.seqnos import Seqno, precedes

if TYPE_CHECKING:
    from ringcast.protocols.multicast.base import Multicast
    from ringcast.protocols.multicast.windows import ReceiveWindow


# {sender: bytes that have come of it and cannot be acknowledged yet} (Stream.parts)
Parts = Annotated[dict[int, Annotated[int, Meta(ge=0)]], Meta(max_length=MAX_MEMBERS)]


def latest_parts(seqno: Seqno, parts: int, known: Seqno | None, known_parts: int) -> int | None:
    """Return how much has come that is not acknowledged, when a report says `parts`,
    and that we are finished up to `seqno`; before we knew `known_parts` and `known`.
    None if the report came late. What has come is here until it is acknowledged."""
    if known is None or precedes(known, seqno):
        return parts
    return max(parts, known_parts) if seqno == known else None


class Credits:
    """Both sides, for one layer."""

    def __init__(self, layer: "Multicast") -> None:
        self.layer = layer
        # Of all receivers, in bytes: the credit, and what has come and is not
        # acknowledged.
        self.smallest, self.parts = layer.config.max_bytes, 0
        self.is_acked = False                           # another member has acknowledged us

    def grant(self) -> int:
        """Return the credit of each sender to us: equal for all who have ever sent; 0
        when nobody need wait for us."""
        layer = self.layer
        if not layer.receiving:
            return 0
        senders = sum(window.ring.hr != window.offset for window in layer.windows.values())
        return layer.budget.share(layer.protocol, senders, layer.config.max_bytes)

    def parts_of(self, senders: Iterable[int]) -> dict[int, int]:
        """Return how many bytes of these senders are here that cannot be acknowledged
        yet (Stream.parts)."""
        windows = self.layer.windows
        return {sender: parts for sender in senders if (parts := windows[sender].stream.parts)}

    def use(self, smallest: int, parts: int) -> None:
        """Bound the send window by the smallest credit of all receivers, beyond the
        `parts` that all have; its datagrams too, so that a window always has several of
        them."""
        self.smallest, self.parts = min(self.layer.config.max_bytes, smallest), parts
        self.is_acked |= parts > 0
        self.fit_window()

    def fit_window(self) -> None:
        """Use our credit. Before anything of ours is acknowledged nobody counts us
        among its senders, and others may begin just now: then use as much as all can at
        once."""
        layer = self.layer
        credit = self.smallest if self.is_acked else self.first_part(self.smallest)
        credit, window = min(max(1, credit), layer.budget.sending), layer.send_window
        before = window.ring.max_bytes
        set_window_limit(window, credit, layer.config, self.parts)
        layer.stack.effects.writable |= window.ring.max_bytes > before

    def first_part(self, credit: int) -> int:
        """Return the part of a credit that a sender uses before it is acknowledged."""
        return credit // max(1, len(self.layer.members) - 1)

    def used(self, window: "ReceiveWindow", credit: int) -> int:
        """Return the part of its credit that a sender uses. We may have acknowledged
        nothing of it, and its own socket buffer may be as small as ours."""
        return min(self.first_part(credit) if window.is_new else credit,
                   self.layer.budget.sending)
