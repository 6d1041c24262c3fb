"""The driver takes turns: whoever holds the turn lock owns the endpoint for one turn.

A turn brings in what arrived, lets the layers decide, and performs what they ask for.
Three kinds of threads take turns: the driver's thread, a thread that waits for messages
(poller.py), and an application thread whose message completes a datagram. So neither a
busy sender nor a waiting receiver needs another thread, and messages leave in the order
of their seqnos.
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
from ringcast.channel.seeking import Seeking
from ringcast.endpoint import Endpoint
from ringcast.errors import RingcastError
from ringcast.logs import hold_lines, write_lines
from ringcast.protocols.bundler import Dest
from ringcast.stack import Effects, Instant
from ringcast.trace.recorder import Recorder
from ringcast.transport import Rekeyed, Transport

FOREVER: Instant = 1 << 63
PATIENCE = 2_000_000            # nanoseconds after which the polling thread has the next turn

Result = TypeVar("Result")
Perform = Callable[[Any, Effects, Instant], None]
Break = Callable[[BaseException], None]
Fail = Callable[[BaseException, bool], None]


class Driver:
    """Gives an endpoint its turns, once it is attached to a channel. `inside` are the
    threads that are inside it (reentry.py). `seeking` is None if the transport reaches
    everybody by itself.

    Threads: any thread may call everything.
    """

    def __init__(self, endpoint: Endpoint, transport: Transport, trace: Recorder | None,
                 inside: set[int], seeking: Seeking | None = None) -> None:
        self.endpoint, self.transport, self.trace = endpoint, transport, trace
        self._inside, self.seeking = inside, seeking
        self.is_broken = False      # an exception broke a turn: nothing more is delivered, finished
        self.reset()

    def attach(self, owner: object, perform: Perform, on_break: Break, on_error: Fail) -> None:
        """Work for the channel `owner`.

        `perform(owner, effects, now)` performs the effects of a turn that concern the
        application. `on_break(error)` is called if an exception comes in the middle of
        a turn. `on_error(error, polling)` is called if one comes from poll(); `polling`
        says whether the transport was polling. The driver keeps none of them alive, so
        a channel that everybody has forgotten can be collected.
        """
        self._owner, self._perform = ref(owner), perform
        self._on_break: WeakMethod[Break] = WeakMethod(on_break)
        self._on_error: WeakMethod[Fail] = WeakMethod(on_error)

    def reset(self) -> None:
        """Make what threads share: at first, and again in a forked child."""
        self.turn = threading.Lock()                    # held by the thread that has the turn
        self._gate = threading.Lock()                   # held by the polling thread that wants it
        self._waits_since: Instant = FOREVER            # since when it wants it
        self.poller = Poller(self.poll, self.transport.wake)
        self.finished: deque[list[Batch]] = deque()     # what the application has finished
        self._wakes_at: Instant = 0                 # when the polling thread's sleep ends; 0: awake
        # The last request for a turn that no deadline tells of, and the last that the
        # polling thread has seen. Each has one writer at a time, so that none is lost.
        self._request = self._answered = object()
        self._holds_arrivals = False    # a poll may have brought what no turn has taken

    def clocks(self) -> tuple[int, int]:
        """Return the time, and the wall time by the same clock, in nanoseconds."""
        now = time.monotonic_ns()
        return now, now + self.endpoint.stack.anchor

    # ------------------------------------------------------------------------------------- turns

    def run_in_turn(self, act: Callable[[Instant], Result]) -> Result:
        """Take the turn, call `act(now)`, and perform its effects; return its result.

        After any other exception than RingcastError the endpoint's state cannot be
        trusted. A layer that raises RingcastError does so before it changes anything.

        What the application is asked in a turn (`until`) is inside the channel, and a
        handler of the log gets the lines of a turn after it.
        """
        try:
            return self._take_turn_for(act)
        finally:
            write_lines(threading.get_ident())

    def _take_turn_for(self, act: Callable[[Instant], Result]) -> Result:
        thread = threading.get_ident()
        is_inside = thread in self._inside
        try:
            with self.turn:
                hold_lines(thread)
                self._inside.add(thread)
                return self._run(act)
        finally:
            if not is_inside:
                self._inside.discard(thread)

    def _run(self, act: Callable[[Instant], Result]) -> Result:
        try:
            result = act(now := time.monotonic_ns())
            self._end_turn(self.endpoint.take(now), now)
            return result
        except RingcastError:
            raise
        except BaseException as error:
            self.is_broken = True
            if (on_break := self._on_break()) is not None:
                on_break(error)
            raise

    def run_next(self, act: Callable[[Instant], Result]) -> Result:
        """Do the same before any sender, if it takes longer than PATIENCE. A lock goes
        to who asks first when it is free, not to who has waited. So a sender at full
        load would pass this thread again and again, and what arrived would wait."""
        try:
            with self._gate:
                try:
                    self._waits_since = time.monotonic_ns()
                    return self._take_turn_for(act)
                finally:
                    self._waits_since = FOREVER
        finally:                                # without the gate: a handler of the log may send
            write_lines(threading.get_ident())

    def _end_turn(self, effects: Effects, now: Instant) -> None:
        if self.trace is not None:
            self.trace.record_turn(effects, *self.clocks())
        if effects.routes is not None:
            self.transport.connect(effects.routes)
        if effects.keys is not None:
            assert isinstance(self.transport, Rekeyed)
            self.transport.rekey(effects.keys)
        if effects.packets:
            self.transport.put(effects.packets)
        if effects.arrived:
            self.request_turn()         # the next one delivers what must not come in this one
        if (owner := self._owner()) is not None:
            self._perform(owner, effects, now)

    def read(self, get: Callable[[], Result]) -> Result:
        """Return what `get()` reads of the endpoint, while no turn changes it."""
        with self.turn:
            return get()

    def flush(self, dest: Dest, full_only: bool) -> None:
        """Send the bundled messages to `dest` from this thread, after the thread that
        has the turn now: that keeps the order. With `full_only` send full datagrams
        only."""
        endpoint, began = self.endpoint, time.monotonic_ns()
        if began - self._waits_since > PATIENCE:
            with self._gate:
                pass                    # the polling thread has had its turn
        self.run_in_turn(partial(endpoint.bundler.flush, dest, full_only=full_only))
        endpoint.bundler.rest(dest, began, time.monotonic_ns())
        if dest is None and endpoint.multicast.hears_itself():
            self.request_turn()
        elif self._wakes_at and (deadline := endpoint.stack.deadline()) is not None:
            self.request_turn_by(deadline)      # who is awake looks at the deadline anyway

    def finish(self, batches: list[Batch]) -> None:
        """Note that the application has finished these batches."""
        self.finished.append(batches)
        self.request_turn_by(0)

    def finish_in_turn(self) -> bool:
        """Take a turn for what the application has finished. Return whether it got more
        messages for that."""
        return self.run_next(self._finish_batches)

    def _finish_batches(self, now: Instant) -> bool:
        batches: list[Batch] = []
        while self.finished:
            batches += self.finished.popleft()
        return not self.is_broken and self.endpoint.finish(batches, now)

    # ----------------------------------------------------------------------------------- polling

    def poll(self, expecting: bool, by: Instant | None = None) -> bool:
        """Poll once, at most until `by`, and take a turn with what came. Return False
        if the channel has been collected; nothing here keeps it alive while the
        transport sleeps."""
        polling = False
        try:
            if (owner := self._owner()) is None:
                return False
            if (seeking := self.seeking) is not None and (
                    seeking.due <= (now := time.monotonic_ns())):
                seeking.tell(now)
            timeout = self._sleep_time(by)
            del owner
            polling = True
            transport = self.transport
            if self._holds_arrivals:        # an exception came after a poll and before its turn
                transport.lose()
            self._holds_arrivals = True
            came = (transport.poll(timeout, expecting), transport.links(), transport.refused(),
                    transport.emptied)
            polling = False
            if (owner := self._owner()) is None:
                return False
            request = self._request
            due = self._wakes_at if request is self._answered else 0
            self._wakes_at, self._answered = 0, request
            self.run_next(partial(self._take_turn, *came, due))
            del owner
        except BaseException as error:
            if (on_error := self._on_error()) is None:
                return False
            on_error(error, polling)
        return True

    def _sleep_time(self, by: Instant | None) -> int | None:
        """Return for how many nanoseconds the polling thread may sleep, at most until
        `by`; None: for ever."""
        has_more = bool(self.finished) and self.finish_in_turn()
        sleep = 0 if has_more else self.plan_sleep()
        if by is None:
            return sleep
        left = max(0, by - time.monotonic_ns())
        return left if sleep is None else min(sleep, left)

    def _take_turn(self, datagrams: Sequence[Any], links: Sequence[int], refused: Sequence[int],
                   emptied: bool, due: Instant, now: Instant) -> None:
        """Handle what came, and if anything was `due` (0: another thread said so) also
        that. What becomes due now, the next turn does."""
        self._holds_arrivals = False            # from here on, an exception breaks the turn
        self.endpoint.receive(datagrams, links, now, refused, emptied)
        if self.seeking is not None and now < self.seeking.waits_until:
            self.endpoint.stack.unread_at = now
        if due <= now:
            self.endpoint.tick(now)
        if not self.is_broken:
            self.endpoint.deliver(now)

    def plan_sleep(self) -> int | None:
        """Return how long the polling thread may sleep, in nanoseconds; None: for ever.

        It sets `_wakes_at` *before* it checks once more for work that shortens the
        sleep; a thread that adds work reads `_wakes_at` *after* adding it. So one of
        the two sees the other.
        """
        self._wakes_at = FOREVER
        until = FOREVER
        if self.finished or self._request is not self._answered:
            until = 0
        elif (deadline := self.endpoint.deadline()) is not None:
            until = deadline
        if self.seeking is not None:
            until = min(until, self.seeking.due)
        self._wakes_at = until
        return None if until == FOREVER else max(0, until - time.monotonic_ns())

    def request_turn_by(self, by: Instant) -> None:
        """See that there is a turn no later than `by`; plan_sleep() must find the
        reason, too."""
        if self._wakes_at > by:
            self._wakes_at = 0
            self.transport.wake()

    def request_turn(self) -> None:
        """See that a turn begins after now, whether the polling thread sleeps or is
        just about to."""
        self._request = object()
        self.request_turn_by(0)
