"""Bundling: when a datagram leaves.

A message leaves at once if its sender has rested: if no more than half of the time goes
into datagrams that are not full. Otherwise it waits for other messages that share its
datagram. They leave when they fill one (SendWindow.push says so), or when the driver
has a turn, which it is asked for at once. It gets one as soon as the sender's thread
gives the interpreter away: a busy sender goes on to fill its datagram, and that of one
who sleeps leaves.

Who has filled a datagram may well fill the next one. So what is left then, and what
comes next, waits for that until `bundle_delay` after the full one.
"""

from ringcast.address import Address
from ringcast.protocols.multicast.base import Multicast
from ringcast.protocols.unicast3 import Unicast3
from ringcast.stack import Instant

Dest = Address | None                   # a member, or everybody


class Bundler:
    """Knows until when messages wait in the send windows of `multicast` and `unicast`.
    `delay` is bundle_delay in nanoseconds.

    Threads: any number of threads may call schedule() and rest(), at any time; the
    stack's owner calls all other methods.
    """

    def __init__(self, multicast: Multicast, unicast: Unicast3, delay: int) -> None:
        self.multicast, self.unicast, self.delay = multicast, unicast, delay
        self.rests: dict[Dest, Instant] = {}    # until when its senders should rest
        self.due: dict[Dest, Instant] = {}      # when messages that wait must leave

    def schedule(self, dest: Dest, now: Instant) -> Instant | None:
        """Return when the first message that waits for `dest` must leave: None is at
        once."""
        due = self.due.get(dest)
        if due is None and now < self.rests.get(dest, 0):
            due = self.due[dest] = now
        return due

    def rest(self, dest: Dest, began: Instant, ended: Instant) -> None:
        """Note that a thread has sent to `dest` so long: it should rest as long."""
        self.rests[dest] = 2 * ended - began

    def flush(self, dest: Dest, now: Instant, full_only: bool = False) -> None:
        """Send what waits for `dest`. With `full_only` send full datagrams alone; the
        rest waits until `delay` from now.

        `due` is written before the window is framed, because other threads push
        meanwhile. In the other order:

            T1 flush: frame the window, which is empty then
            T2 push: its message is the first that waits
            T2 schedule: due[dest] = now
            T1 flush: del due[dest]             so nobody would send T2's message
        """
        if full_only:
            self.due[dest] = now + self.delay
        else:
            self.due.pop(dest, None)
        self.frame(dest, now, full_only)

    def frame(self, dest: Dest, now: Instant, full_only: bool) -> None:
        """Let the layer send what waits for `dest`."""
        if dest is None:
            self.multicast.flush(now, full_only)
        else:
            self.unicast.flush(dest, now, full_only)

    def flush_due(self, now: Instant) -> None:
        """Send what has waited long enough."""
        for dest, due in list(self.due.items()):
            if due <= now:
                self.flush(dest, now)

    def flush_all(self, now: Instant) -> None:
        """Send all that waits."""
        for dest in (None, *self.unicast.addresses()):
            self.flush(dest, now)

    def deadline(self) -> Instant | None:
        """Return when flush_due() has something to send, or None while nothing
        waits."""
        return min(list(self.due.values()), default=None)

    def forget(self, dest: Address) -> None:
        """Forget a member to which there is no connection any more."""
        self.rests.pop(dest, None)
        self.due.pop(dest, None)
