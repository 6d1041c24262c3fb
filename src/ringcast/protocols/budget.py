"""How much each sender may have on the way to this member, so that all windows together
never flood its socket buffer.

An ack carries the grant of the one it goes to. All who send share alike, by whichever
protocol they send.
"""

from ringcast._core.send_window import SendWindow
from ringcast.config import Config

SMALLEST_BUNDLE = 2048  # bytes; below this a window of few bytes is not cut into smaller datagrams
SHARES = 4              # datagrams that a window of bytes is cut into at least
BATCH = 4               # datagrams that a busy sender frames in one turn ...
BURST = 60_000          # ... and bytes at least, where datagrams are small: a system call takes so
                        # many


class ReceiveBudget:
    """`total` bytes that may be on their way to this member before some are lost."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.senders: dict[str, int] = {}               # how many of them each protocol has

    def share(self, protocol: str, senders: int, most: int) -> int:
        """Bytes, `most` at most, for each sender when this protocol has so many of
        them."""
        self.senders[protocol] = senders
        return max(1, min(most, self.total // max(1, sum(self.senders.values()))))


def fit(window: SendWindow, limit: int, config: Config) -> None:
    """At most `limit` bytes are unacknowledged from now on, in datagrams of which a
    window always is several."""
    if window.ring.max_bytes != limit:
        window.ring.max_bytes = limit
        aim(window, config)


def aim(window: SendWindow, config: Config) -> None:
    """Datagrams and batches of a size that suits the window."""
    limit = window.ring.max_bytes
    bundle = min(config.max_bundle_size, max(SMALLEST_BUNDLE, limit // SHARES))
    window.aim(bundle, min(max(BATCH * bundle, BURST), limit // (2 * SHARES)))
