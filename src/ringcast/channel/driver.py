"""The driver: whoever holds the turn lock owns the endpoint for one turn.

A turn brings in what arrived, lets the layers decide, and performs what they ask for.
It is taken by the driver's thread, by a thread that waits for messages (poller.py),
and, when its message completes a datagram, by the application thread that sent it. So
neither a busy sender nor a waiting receiver needs a hop to another thread, and messages
leave in the order of their seqnos.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar
from weakref import WeakMethod, ref

from ringcast._core.batch import Batch
from ringcast.channel.poller import Poller
from ringcast.endpoint import Endpoint
from ringcast.errors import RingcastError
from ringcast.protocols.bundler import Dest
from ringcast.stack import Effects, Instant
from ringcast.trace.recorder import Recorder
from ringcast.transport import Transport

FOREVER: Instant = 1 << 63

Result = TypeVar("Result")
Perform = Callable[[Any, Effects], None]
Break = Callable[[BaseException], None]
Fail = Callable[[BaseException, bool], None]


class Driver:
    """Gives an endpoint its turns, once it works for somebody.

    Threads: every method may be called by any thread.
    """

    def __init__(self, endpoint: Endpoint, transport: Transport, trace: Recorder | None) -> None:
        self.endpoint, self.transport, self.trace = endpoint, transport, trace
        self.is_broken = False          # a turn was broken off: nothing is delivered or finished
        self.begin()

    def work_for(self, owner: object, perform: Perform, on_break: Break, on_error: Fail) -> None:
        """Work for the channel `owner`. `perform(owner, effects)` does with the effects
        of a turn what concerns the application. `on_break` is told when an exception
        came in the middle of a turn; `on_error` of one while polling, and whether the
        transport was at it. None of them is kept alive: a channel that everybody has
        forgotten can go."""
        self._owner, self._perform = ref(owner), perform
        self._on_break: WeakMethod[Break] = WeakMethod(on_break)
        self._on_error: WeakMethod[Fail] = WeakMethod(on_error)

    def begin(self) -> None:
        """Make what threads share."""
        self.turn = threading.Lock()                    # held by whoever owns the endpoint
        self.poller = Poller(self.poll, self.transport.wake)
        self.finished: deque[list[Batch]] = deque()  # what the application is done with
        self._wakes_at: Instant = 0                  # when the sleep of who polls ends by itself;
                                                     # 0: awake
        self._called = False                         # there is work that no deadline tells of

    def clocks(self) -> tuple[int, int]:
        """Return the time, and wall time by the same clock."""
        now = time.monotonic_ns()
        return now, now + self.endpoint.stack.anchor

    # ------------------------------------------------------------------------------------- turns

    def in_turn(self, act: Callable[[Instant], Result]) -> Result:
        """Take the turn, act, and perform what that asks for. An exception in the
        middle of it leaves the endpoint in no state that can be trusted; but what a
        layer itself raises, it raises before it changes anything."""
        with self.turn:
            try:
                result = act(time.monotonic_ns())
                self._end_turn(self.endpoint.take())
                return result
            except RingcastError:
                raise
            except BaseException as error:
                self.is_broken = True
                if (on_break := self._on_break()) is not None:
                    on_break(error)
                raise

    def _end_turn(self, effects: Effects) -> None:
        if self.trace is not None:
            self.trace.turn(effects, *self.clocks())
        if effects.routes is not None:
            self.transport.connect(effects.routes)
        if effects.packets:
            self.transport.put(effects.packets)
        if effects.held is not None:
            self.transport.hold(effects.held)
        if (owner := self._owner()) is not None:
            self._perform(owner, effects)

    def read(self, look: Callable[[], Result]) -> Result:
        """Read something of the endpoint while nobody changes it."""
        with self.turn:
            return look()

    def flush(self, dest: Dest, full_only: bool) -> None:
        """Frame and send what waits for `dest`, from this thread. Whoever else has the
        turn is waited
        for: that keeps the order."""
        endpoint = self.endpoint
        self.in_turn(partial(endpoint.bundler.flush, dest, full_only=full_only))
        if dest is None and endpoint.multicast.hears_itself():
            self.rouse()
        elif (deadline := endpoint.stack.deadline()) is not None:
            self.call(deadline)

    def finish(self, batches: list[Batch]) -> None:
        """Note that the application is done with these."""
        self.finished.append(batches)
        self.call(0)

    def take_back(self) -> bool:
        """Take the turn for what the application is done with; return whether it got
        more for that."""
        return self.in_turn(self._take_back)

    def _take_back(self, now: Instant) -> bool:
        batches: list[Batch] = []
        while self.finished:
            batches += self.finished.popleft()
        return not self.is_broken and self.endpoint.finish(batches, now)

    # ----------------------------------------------------------------------------------- polling

    def poll(self, visiting: bool) -> bool:
        """Poll once, and take the turn with what came; False when there is no channel
        any more. Nothing here keeps that alive while the transport sleeps."""
        polling = False
        try:
            if (owner := self._owner()) is None:
                return False
            timeout = self._before_poll()
            del owner
            polling = True
            datagrams, links = self.transport.poll(timeout, visiting), self.transport.links()
            polling = False
            if (owner := self._owner()) is None:
                return False
            self._wakes_at, self._called = 0, False
            self.in_turn(partial(self._take_turn, datagrams, links))
            del owner
        except BaseException as error:
            if (on_error := self._on_error()) is None:
                return False
            on_error(error, polling)
        return True

    def _before_poll(self) -> int | None:
        """Return for how many nanoseconds whoever polls may sleep; None: for ever."""
        has_more = bool(self.finished) and self.take_back()
        return 0 if has_more else self.plan()

    def _take_turn(self, datagrams: Sequence[Any], links: Sequence[int], now: Instant) -> None:
        self.endpoint.receive(datagrams, links, now)
        self.endpoint.tick(now)
        if not self.is_broken:
            self.endpoint.deliver(now)

    def plan(self) -> int | None:
        """Return how long the driver may sleep, in nanoseconds. It says until when
        *before* it looks once more at what would shorten that: whoever adds work looks
        at `_wakes_at` *after* adding it, so one of the two sees the other."""
        self._wakes_at = FOREVER
        until = FOREVER
        if self.finished or self._called:
            until = 0
        elif (deadline := self.endpoint.deadline()) is not None:
            until = deadline
        self._wakes_at = until
        return None if until == FOREVER else max(0, until - time.monotonic_ns())

    def call(self, by: Instant) -> None:
        """See that there is a turn no later than `by`, of which `plan` knows too."""
        if self._wakes_at > by:
            self._wakes_at = 0
            self.transport.wake()

    def rouse(self) -> None:
        """See that there is a turn after now, whether the driver sleeps, or is just
        making up its mind to."""
        self._called = True
        self.call(0)
