"""Closing a channel, and what else ends it: a failure, a fork, or that it was dropped.

One thread closes, of its own, and close() waits for that thread. So close() may be
called by a signal handler that interrupted another call of the channel: it takes no
lock, and does not wait when what it interrupted must go on first. Whoever calls close()
again waits for the same thread, and shortens its wait for acks when it is in more of a
hurry.

A channel that fails halts: no turns, no sends, no callbacks. Its sockets stay until
somebody closes it.
"""

import atexit
import logging
import os
import threading
from collections import deque
from contextlib import suppress
from functools import partial
from weakref import WeakSet

from ringcast.channel.callbacks import Callbacks
from ringcast.channel.driver import Driver
from ringcast.channel.inbox import Inbox
from ringcast.channel.reentry import at
from ringcast.channel.sending import Sending
from ringcast.channel.state import State
from ringcast.channel.threads import GRACE, Threads
from ringcast.stack import Instant

log = logging.getLogger("ringcast")


class Closing:
    """Closes the channel that these are the parts of. That is alive as long as one of
    its threads closes it: `sending` and `inbox` hold it.

    Threads: any may call everything.
    """

    def __init__(self, state: State, driver: Driver, threads: Threads, sending: Sending,
                 inbox: Inbox, callbacks: Callbacks) -> None:
        self._state, self._driver, self._threads = state, driver, threads
        self._sending, self._inbox, self._callbacks = sending, inbox, callbacks
        self._endpoint, self._transport = driver.endpoint, driver.transport
        self._unacked = 0                               # when it was closed
        self.begin()
        CLOSINGS.add(self)

    def begin(self) -> None:
        """Make what threads share."""
        self._may_close = deque([True])                 # for the one who begins to close
        # Until when that waits for acks, by time.monotonic(); None: for ever.
        self._close_by: float | None = None

    # ---------------------------------------------------------------------------- who calls close()

    def close(self, timeout: float | None, leave: bool) -> int:
        """See Channel.close."""
        is_interrupting = threading.get_ident() in self._state.inside
        self._begin_to_close(timeout, leave, is_interrupting)
        if is_interrupting:
            atexit.register(self._await_closed, timeout)
            return self._num_unacked()
        self._await_closed(timeout)
        return self._num_unacked()

    def _num_unacked(self) -> int:
        return self._unacked if self._state.closed else self._endpoint.num_unacked()

    def _begin_to_close(self, timeout: float | None, leave: bool, is_interrupting: bool) -> None:
        """See that a thread closes the channel: this one holds what the driver may need
        when it is in a signal handler."""
        by, me = at(timeout)(), threading.current_thread()
        inside = self._state.inside
        ticket = False
        try:
            inside.add(threading.get_ident())
            ticket = bool(self._may_close) and self._may_close.pop()
            if not ticket:
                if by is not None and (self._close_by is None or by < self._close_by):
                    self._close_by = by         # whoever is in more of a hurry shortens the wait
                    self._hurry()
                    self._state.settled.ring()
                return
            self._close_by, self._state.closing = by, True
            self._threads.make(partial(self._close, timeout, leave, me), "closing").start()
            ticket = False
        except IndexError:                              # another thread was faster
            pass
        finally:
            if ticket:                                  # there is no such thread
                self._may_close.append(True)
            if not is_interrupting:
                inside.discard(threading.get_ident())

    def _await_closed(self, timeout: float | None) -> None:
        """Wait for the thread that closes; whatever happens to it, not much longer than
        it may take."""
        patience = 2 * self._endpoint.config.leave_timeout / 1000 + 2 * GRACE
        longest = None if timeout is None else timeout + patience
        self._state.settled.wait_for(lambda: self._state.closed, at(longest))

    # ----------------------------------------------------------------------- the thread that closes

    def _close(self, timeout: float | None, leave: bool, caller: threading.Thread) -> None:
        state = self._state
        try:
            self._sending.close()
            state.release_waiters()
            if leave and self._endpoint.view is not None and not state.stopped:
                self._leave()
        except Exception:
            log.exception("%s: leaving failed", self._endpoint.local)
        self.halt(state.fault)
        self._threads.join(lambda: self._close_by, caller)
        self._transport.close()
        self._unacked = self._endpoint.num_unacked()
        if (trace := self._driver.trace) is not None:
            has_left = leave and state.fault is None and self._endpoint.view is not None
            trace.close(has_left, self._unacked, *self._driver.clocks())
        if self._unacked and timeout != 0:
            log.warning("%s closed with %d messages that somebody has not acknowledged",
                        self._endpoint.local, self._unacked)
        state.closed = True
        state.settled.ring()

    def _leave(self) -> None:
        """Leave in good order (endpoint.Leaving). When nobody else takes the turn in
        which it goes on, this thread does."""
        self._driver.take_back()
        self._driver.in_turn(partial(self._endpoint.leave, instant(self._close_by)))
        self._hurry()
        leaving = self._endpoint.leaving
        while leaving is not None and not (self._state.stopped or leaving.is_over):
            self._state.wait_settled(lambda: seconds(leaving.deadline()), lambda: leaving.is_over)
            self._driver.in_turn(self._endpoint.tick)

    def _hurry(self) -> None:
        """See that leaving takes no longer than close() may."""
        if (leaving := self._endpoint.leaving) is not None:
            leaving.by = instant(self._close_by)
            self._driver.rouse()

    # -------------------------------------------------------------------- without a call of close()

    def halt(self, fault: str | None) -> None:
        """Stop the threads, from whichever thread; close() gives the sockets back."""
        self._state.fault = fault
        self._state.closing = self._state.stopped = True
        self._sending.close()
        self._inbox.end()
        self._callbacks.end()
        self._state.release_waiters()
        self._driver.poller.stop()

    def break_off(self, error: BaseException) -> None:
        """Deliver and finish nothing any more: a signal handler's exception came in the
        middle of a turn. What that had in hand is lost, and an ack might cover it. But
        close() can still say goodbye."""
        self._state.closing = True
        self._state.fault = (
            f"{type(error).__name__} came in the middle of this member's work, from a signal "
            "handler most likely; open a new channel, and let handlers set a flag or call close() "
            "rather than raise")
        self._sending.close()
        self._inbox.end()
        self._state.release_waiters()

    def on_poll_error(self, error: BaseException, polling: bool) -> None:
        """Raise what a signal handler raised in the application's thread. Any other
        error is our own: it stops the channel loudly rather than leave anybody
        waiting."""
        if self._state.closed:                          # between two looks at whether it is
            return
        is_application = threading.get_ident() in self._state.inside
        if is_application and (polling or not isinstance(error, Exception)):
            raise error
        log.error("%s: the driver failed", self._endpoint.local, exc_info=error)
        self.halt("the channel failed for a reason of its own, which is in the log; "
                  "open a new one and please report it")

    def go(self) -> None:
        """Leave, as far as that goes without waiting for anybody: the channel was
        dropped."""
        if self._endpoint.view is not None and not self._state.stopped:
            with suppress(Exception):
                self._driver.in_turn(partial(self._endpoint.leave, 0))
        self._close(0, False, threading.current_thread())

    def become_a_copy(self) -> None:
        """Close a forked child's copy without a word, and touch nothing that the parent
        shares. Threads that are not here may have held the locks, so make new ones."""
        self._state.become_a_copy(
            "this channel belongs to the process that opened it, of which this one is a fork; "
            "open a channel of its own here")
        self._unacked = self._endpoint.num_unacked()
        self._driver.trace = None
        self._threads.begin()
        self._driver.begin()
        self._sending.begin()
        self._inbox.begin()
        self._callbacks.begin()
        self.begin()
        self._sending.close()
        self._inbox.end()
        self._callbacks.end()
        self._transport.forget()


def instant(moment: float | None) -> Instant | None:
    """Return a moment of time.monotonic() as the endpoint counts it; None is never."""
    return None if moment is None else int(moment * 1e9)


def seconds(instant: Instant | None) -> float | None:
    """Return the opposite of `instant`."""
    return None if instant is None else instant / 1e9


CLOSINGS: WeakSet[Closing] = WeakSet()


def _make_copies() -> None:
    for closing in tuple(CLOSINGS):
        closing.become_a_copy()


os.register_at_fork(after_in_child=_make_copies)
