"""Closing a channel, and what else ends it: a failure, a fork, or garbage collection.

A thread of its own closes the channel, and close() waits for that thread. So a signal
handler that interrupted another call of the channel may call close(): it takes no lock,
and does not wait if the interrupted call must go on first. Whoever calls close() again
waits for the same thread, and may shorten its wait for acks.

A channel that fails halts: no turns, no sends, no callbacks. Its sockets stay open
until the application closes it.
"""

import atexit
import os
import threading
from collections import deque
from contextlib import suppress
from functools import partial
from weakref import WeakSet

from ringcast.channel.callbacks import Callbacks
from ringcast.channel.driver import Driver
from ringcast.channel.inbox import Inbox
from ringcast.channel.pauses import Pause, Steps, run
from ringcast.channel.publishing import Publishing
from ringcast.channel.reentry import deadline_after
from ringcast.channel.sending import Sending
from ringcast.channel.state import State
from ringcast.channel.threads import GRACE, Threads
from ringcast.errors import ClosedError
from ringcast.logs import log
from ringcast.stack import Instant
from ringcast.units import counted


class Closing:
    """Closes a channel, whose parts these are. The channel stays alive while a thread
    closes it, because `sending` and `inbox` refer to it.

    Threads: any thread may call everything.
    """

    def __init__(self, state: State, driver: Driver, threads: Threads, sending: Sending,
                 inbox: Inbox, callbacks: Callbacks, publishing: Publishing) -> None:
        self._state, self._driver, self._threads = state, driver, threads
        self._sending, self._inbox, self._callbacks = sending, inbox, callbacks
        self._endpoint, self._transport = driver.endpoint, driver.transport
        self._publishing = publishing
        self._unacked = 0                               # when the channel was closed
        self.reset()
        CLOSINGS.add(self)

    def reset(self) -> None:
        """Make what threads share: at first, and again in a forked child."""
        self._may_close = deque([True])     # a ticket for the first that calls close()
        # Until when the closing thread waits for acks, by time.monotonic(); None: for
        # ever.
        self._close_by: float | None = None
        self._closers: set[int] = set()     # idents of threads for which nobody may wait

    # ---------------------------------------------------------------------------- who calls close()

    def close(self, timeout: float | None, leave: bool) -> int:
        """See Channel.close."""
        is_interrupting = threading.get_ident() in self._state.inside
        self._begin_to_close(timeout, leave, is_interrupting)
        if is_interrupting:
            atexit.register(lambda: run(self._await_closed(timeout)))
            return self._num_unacked()
        return run(self._await_closed(timeout))

    def steps(self, timeout: float | None, leave: bool) -> Steps[int]:
        """Close the channel; see close()."""
        self.begin(timeout, leave)
        return (yield from self._await_closed(timeout))

    def begin(self, timeout: float | None, leave: bool) -> None:
        """Begin to close the channel, and do not wait for that."""
        self._begin_to_close(timeout, leave, threading.get_ident() in self._state.inside)

    def _num_unacked(self) -> int:
        return self._unacked if self._state.closed else self._endpoint.num_unacked()

    def _begin_to_close(self, timeout: float | None, leave: bool, is_interrupting: bool) -> None:
        """Start a thread that closes the channel, unless there is one. This thread may
        be in a signal handler, and hold locks that closing needs."""
        by = deadline_after(timeout)()
        self._closers.add(threading.get_ident())        # most likely it waits for the end
        inside = self._state.inside
        ticket = False
        try:
            inside.add(threading.get_ident())
            ticket = bool(self._may_close) and self._may_close.pop()
            if not ticket:
                if by is not None and (self._close_by is None or by < self._close_by):
                    self._close_by = by         # the shortest timeout counts
                    self._shorten_leaving()
                    self._state.settled.notify_all()
                return
            self._close_by, self._state.closing = by, True
            self._threads.make(partial(self._close, timeout, leave), "closing").start()
            ticket = False
        except IndexError:                              # another thread took the ticket
            pass
        finally:
            if ticket:                                  # there is no such thread
                self._may_close.append(True)
            if not is_interrupting:
                inside.discard(threading.get_ident())

    def _await_closed(self, timeout: float | None) -> Steps[int]:
        """Wait for the thread that closes: if something happens to it, not much longer
        than it may take. Return how many messages are not acknowledged."""
        grace = 2 * self._endpoint.config.leave_timeout / 1000 + 2 * GRACE
        longest = None if timeout is None else timeout + grace
        yield Pause(self._state.settled, lambda: self._state.closed, deadline_after(longest))
        return self._num_unacked()

    # ----------------------------------------------------------------------- the thread that closes

    def _close(self, timeout: float | None, leave: bool) -> None:
        """Close the channel, from the thread that closes. A step that fails does not
        keep the next ones from being taken, so that nobody waits for them."""
        state = self._state
        for step in (partial(self._end_sending, leave), lambda: self.halt(state.fault),
                     self._end_seeking,
                     partial(self._threads.join, lambda: self._close_by, self._closers),
                     self._transport.close, self._publishing.close, self._count_unacked,
                     partial(self._end_trace, leave), partial(self._tell, timeout)):
            try:
                step()
            except Exception:
                log.exception("%s: a step of closing failed", self._endpoint.local)
        state.closed = True
        state.settled.notify_all()

    def _end_sending(self, leave: bool) -> None:
        """Send nothing more, and leave the group if it is to be left."""
        self._sending.close()
        self._state.release_waiters()
        if leave and not self._state.stopped:
            self._leave()

    def _end_seeking(self) -> None:
        if self._driver.seeking is not None:
            self._driver.seeking.close()

    def _count_unacked(self) -> None:
        self._unacked = self._endpoint.num_unacked()

    def _end_trace(self, leave: bool) -> None:
        if (trace := self._driver.trace) is not None:
            has_left = leave and self._state.fault is None and self._endpoint.view is not None
            trace.close(has_left, self._unacked, *self._driver.clocks())

    def _tell(self, timeout: float | None) -> None:
        if self._unacked and timeout != 0:
            log.warning("%s closed with %s that some member has not acknowledged",
                        self._endpoint.local, counted(self._unacked, "message"))
        log.info("%s is closed", self._endpoint.local)

    def _leave(self) -> None:
        """Leave in good order (endpoint.Leaving). This thread takes the turns for that
        which no other thread takes."""
        self._driver.finish_in_turn()
        self._driver.run_in_turn(partial(self._endpoint.leave, to_instant(self._close_by)))
        self._shorten_leaving()
        leaving = self._endpoint.leaving
        while leaving is not None and not (self._state.stopped or leaving.is_over):
            self._state.wait_settled(lambda: to_seconds(leaving.deadline()),
                                     lambda: leaving.is_over)
            self._driver.run_in_turn(self._endpoint.tick)

    def _shorten_leaving(self) -> None:
        """See that leaving waits no longer for acks than close() may."""
        if (leaving := self._endpoint.leaving) is not None:
            leaving.by = to_instant(self._close_by)
            self._driver.request_turn()

    # -------------------------------------------------------------------- without a call of close()

    def halt(self, fault: str | None) -> None:
        """Stop the channel's threads, from any thread, for the reason `fault`. close()
        still has to close the sockets."""
        is_new = fault is not None and self._state.fault is None
        self._state.fault = fault
        self._state.closing = self._state.stopped = True
        self._sending.close()
        self._inbox.end()
        self._callbacks.end()
        self._state.release_waiters()
        self._driver.poller.stop()
        if is_new:
            log.info("%s closes by itself: %s", self._endpoint.local, fault)

    def on_broken_turn(self, error: BaseException) -> None:
        """Deliver and finish nothing any more, because a signal handler's exception
        came in the middle of a turn: what the turn handled is lost, and an ack might
        cover it. close() can still leave the group."""
        self._state.closing = True
        self._state.fault = (
            f"{type(error).__name__} came in the middle of this member's work, from a signal "
            "handler most likely; open a new channel, and let handlers set a flag or call close() "
            "rather than raise")
        self._sending.close()
        self._inbox.end()
        self._state.release_waiters()

    def on_poll_error(self, error: BaseException, polling: bool) -> None:
        """Raise what a signal handler raised in a thread of the application. Any other
        error is our own: log it and stop the channel, so that nobody waits for it."""
        state = self._state
        if state.closed or (state.stopped and isinstance(error, ClosedError)):
            return                          # its transport was closed while the thread polled
        is_application = threading.get_ident() in state.inside
        if is_application and (polling or not isinstance(error, Exception)):
            raise error
        self.halt("the channel failed for a reason of its own, which is in the log; "
                  "open a new one and please report it")
        log.error("%s: the driver failed", self._endpoint.local, exc_info=error)

    def leave_without_waiting(self) -> None:
        """Leave without waiting for anybody, because the channel was dropped."""
        if not self._state.stopped:
            with suppress(Exception):
                self._driver.run_in_turn(partial(self._endpoint.leave, 0))
        self._closers.add(threading.get_ident())
        self._close(0, False)

    def disable_after_fork(self) -> None:
        """Close a forked child's copy, without telling anybody and without changing
        what it shares with the parent. Make new locks: threads that exist only in the
        parent may have held the old ones."""
        self._state.disable_after_fork(
            "this channel belongs to the process that opened it, of which this one is a fork; "
            "open a channel of its own here")
        self._unacked = self._endpoint.num_unacked()
        self._driver.trace = None
        self._threads.reset()
        self._driver.reset()
        self._publishing.reset()
        self._publishing.forget()
        self._sending.reset()
        self._inbox.reset()
        self._callbacks.reset()
        self.reset()
        self._sending.close()
        self._inbox.end()
        self._callbacks.end()
        self._transport.forget()


def to_instant(seconds: float | None) -> Instant | None:
    """Convert seconds of time.monotonic() to an instant of the endpoint; None is
    never."""
    return None if seconds is None else int(seconds * 1e9)


def to_seconds(instant: Instant | None) -> float | None:
    """Convert an instant of the endpoint to seconds of time.monotonic(); None is
    never."""
    return None if instant is None else instant / 1e9


CLOSINGS: WeakSet[Closing] = WeakSet()


def _disable_copies() -> None:
    """Close the copies of all channels in a forked child."""
    for closing in tuple(CLOSINGS):
        closing.disable_after_fork()


os.register_at_fork(after_in_child=_disable_copies)
