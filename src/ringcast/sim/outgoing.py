"""Messages that an application sends to one destination: those that wait for room, and
those that were sent."""

from collections.abc import Callable, Sequence
from typing import Any

from ringcast._core.send_window import FULL, SendWindow
from ringcast.config import Config
from ringcast.endpoint import Fragments
from ringcast.flags import Flag
from ringcast.protocols.seqnos import MODULUS
from ringcast.sim.log import Log


class Outgoing:
    """The messages to one destination, which are sent in their order."""

    backlog: list[Any]                          # those that wait for room

    def __init__(self) -> None:
        self.large: Fragments | None = None     # the message whose fragments are being sent

    @property
    def has_next(self) -> bool:
        """Return whether a message waits."""
        return bool(self.backlog)

    def next(self) -> tuple[bytes, int]:
        """Return the first message that waits, and its flags."""
        raise NotImplementedError

    def accept(self, count: int) -> None:
        """Note that the first `count` messages that wait have a seqno now."""
        raise NotImplementedError

    def accept_fragments(self, count: int) -> None:
        """Note that so many fragments have a seqno now, without the last one of their
        message."""

    def give_up(self, but: int = 0) -> None:
        """Forget what has no seqno yet, but for so many messages."""
        self.backlog = self.backlog[:but]
        self.large = self.large if but else None

    def is_next_large(self, window: SendWindow) -> bool:
        """Return whether the next message, or the rest of it, goes as fragments."""
        return self.has_next and (self.large is not None
                                  or len(self.next()[0]) > window.largest)

    def push_fragments(self, window: SendWindow, config: Config) -> int:
        """Push fragments of the next message; return how many had room."""
        large = self.large or Fragments(*self.next(), config)
        taken = large.push(window)
        self.large = None if large.is_sent else large
        self.accept_fragments(taken - large.is_sent)
        if large.is_sent:
            self.accept(1)
        return taken


class Multicasts(Outgoing):
    """The messages of one member to everybody: `log` has what it sent, `backlog` what
    waits for room. Of these, those in `oob` are OOB messages; each is unlike all
    others. `sends_between()` draws whether the next one overtakes the rest of a large
    one, as that of another thread may."""

    def __init__(self, log: Log, sends_between: Callable[[], bool]) -> None:
        super().__init__()
        self.log, self._sends_between = log, sends_between
        self.num_between = 0                    # messages that overtook the rest of a large one
        self.backlog: list[bytes] = []
        self.oob: set[bytes] = set()

    def next(self) -> tuple[bytes, int]:
        return self.backlog[0], int(Flag.OOB) if self.backlog[0] in self.oob else 0

    def alike(self, most: int) -> list[bytes]:
        """Return the first messages that wait, as many as have the same flags, at most
        `most` of them (0: all)."""
        few = self.backlog[:most] if most else self.backlog
        if not self.oob:
            return few
        is_oob = few[0] in self.oob
        return few[:next((place for place, payload in enumerate(few)
                          if (payload in self.oob) != is_oob), len(few))]

    def accept(self, count: int) -> None:
        self._note(self.backlog[:count])
        del self.backlog[:count]

    def accept_fragments(self, count: int) -> None:
        self._note([None] * count)

    def push_fragments(self, window: SendWindow, config: Config) -> int:
        if self.large is not None and self.large.sent and self.backlog[1:] and (
                len(self.backlog[1]) <= window.largest and self._sends_between()):
            return self._push_between(window)
        begin = (self.log.offset + len(self.log) + 1) % MODULUS
        taken = super().push_fragments(window, config)
        if taken:
            self.log.note_fragments(begin, self.large is None)
        return taken

    def _push_between(self, window: SendWindow) -> int:
        """Push the message behind the large one; return how many had room."""
        large, other = self.backlog[:2]
        if window.push(other, int(Flag.OOB) if other in self.oob else 0) == FULL:
            return 0
        self.backlog[:2] = [other]
        self.accept(1)
        self.backlog.insert(0, large)
        self.num_between += 1
        return 1

    def _note(self, sent: Sequence[bytes | None]) -> None:
        """Note what has a seqno now: messages with the flags of the first that waits,
        or fragments of it."""
        before = self.log.offset + len(self.log)
        self.log += sent
        if self.oob and sent and self.backlog[0] in self.oob:
            self.log.oob.update((before + step + 1) % MODULUS for step in range(len(sent)))

    def give_up(self, but: int = 0) -> None:
        self.oob.difference_update(self.backlog[but:])
        super().give_up(but)
