"""Seeking: the transport learns where other members may be.

A Finder (discovery.py) looks on a thread of its own, so to ask it takes no time. The
thread that polls asks it now and then, and tells the transport what is new. Until the
first answer, who is not known cannot be heard, so no group forms; but not for ever.
"""

from ringcast.discovery import Finder
from ringcast.logs import log
from ringcast.stack import Instant
from ringcast.transport import Transport
from ringcast.transport.ipv4 import MOST_PLACES

PAUSE = 100_000_000         # nanoseconds between two questions
PATIENCE = 5_000_000_000    # nanoseconds in which a group does not form before the first answer
LONGEST = 80                # characters of an address that the log shows


class Seeking:
    """Passes what `finder` finds to `transport`.

    Threads: the thread that polls calls `tell`; any thread may call `start` before, and
    `close` at any time.
    """

    def __init__(self, finder: Finder, transport: Transport) -> None:
        self._finder, self._transport = finder, transport
        self._known: list[str] = []
        self._bad: set[str] = set()                     # addresses where nobody is sought
        self.due: Instant = 0                           # when to ask again
        self.waits_until: Instant = 0                   # for the first answer, at most

    def start(self, now: Instant) -> None:
        """Let others find this member, and ask for the first time."""
        self._finder.publish(self._transport.physical)
        self.waits_until = now + PATIENCE
        self.tell(now)

    def tell(self, now: Instant) -> None:
        """If something else is known than before, tell the transport."""
        self.due = now + PAUSE
        if self._finder.has_looked:
            self.waits_until = 0
        if (found := self._finder.find()) != self._known:
            self._known = found
            self._note_bad(self._transport.seek(found))

    def _note_bad(self, bad: list[str]) -> None:
        """Say once where nobody is sought, if somebody should be."""
        before, self._bad = self._bad, set(bad)
        if new := [each for each in bad if each not in before]:
            where = new[0][:LONGEST] + (f" and {len(new) - 1} more" if new[1:] else "")
            log.warning("cannot look for members at %s from %s; give IPv4 addresses with a port "
                        "that the option interface reaches, at most %d", where,
                        self._transport.physical, MOST_PLACES)

    def close(self) -> None:
        """Let nobody find this member any more."""
        self._finder.close()
