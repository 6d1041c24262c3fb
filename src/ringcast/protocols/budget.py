"""Credit: how many bytes each sender may have on the way to this member, so that all
windows together never flood its socket buffer. Nor does a sender use more of it than
its own socket buffer holds: a wire may be slower than the sender, and what finds no
room there is lost for all.

Every ack carries the credit of the member to which it goes. All who send have the same
share, whichever protocol they use. A sender with little credit makes its datagrams
smaller, so that its window always holds several of them.
"""

from ringcast._core.send_window import SendWindow
from ringcast.config import Config

NO_LIMIT = 1 << 40      # bytes, more than any window has
SMALLEST_BUNDLE = 2048  # bytes; datagrams are not made smaller than that
SHARES = 4              # datagrams that a window of bytes holds at least
BATCH = 4               # datagrams that a busy sender frames in one turn ...
BURST = 60_000          # ... and bytes at least, if datagrams are small: one system call takes so
                        # many


class Budget:
    """`total` bytes that may be on their way to this member before some are lost, and
    `sending` bytes that this member may have on their way."""

    def __init__(self, total: int, sending: int = NO_LIMIT) -> None:
        self.total, self.sending = total, sending
        self.senders: dict[str, int] = {}               # how many each protocol has

    def share(self, protocol: str, senders: int, most: int) -> int:
        """Note that this protocol has so many senders, and return the credit of each:
        `most` bytes at most."""
        self.senders[protocol] = senders
        return max(1, min(most, self.total // max(1, sum(self.senders.values()))))


def set_window_limit(window: SendWindow, credit: int, config: Config, parts: int = 0) -> None:
    """Let at most `credit` bytes be on their way from now on. All receivers have
    `parts` bytes that not all have acknowledged: of a large message that is not whole,
    or behind a gap. Of these, half of config.max_bytes counts at most, whatever
    somebody says. What is kept for others is not on its way, either."""
    is_new, window.credit = window.credit != credit, credit
    window.arrived = min(parts, config.max_bytes // 2)
    window.ring.max_bytes = min(credit + window.kept, config.max_bytes) + window.arrived
    if is_new:
        tune_bundling(window, credit, config)


def tune_bundling(window: SendWindow, limit: int, config: Config) -> None:
    """Choose a size of datagrams and of batches, so that several are in `limit`
    bytes."""
    bundle = min(config.max_bundle_size, max(SMALLEST_BUNDLE, limit // SHARES))
    window.aim(bundle, min(max(BATCH * bundle, BURST), limit // (2 * SHARES)))
