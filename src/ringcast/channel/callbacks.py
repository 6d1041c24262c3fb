"""The thread of the callbacks runs them one after the other, in the order of views and
deliveries.

Whatever a callback raises, SystemExit and CancelledError included, is logged and
counted, and the next one follows. A batch is finished when on_message has returned from
it or raised. No callback begins after the end of the channel.
"""

import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any
from weakref import ref

from ringcast._core.batch import Batch, Skipped
from ringcast.address import Address
from ringcast.channel.driver import Driver
from ringcast.channel.state import State
from ringcast.channel.state_transfer import StateCallbacks
from ringcast.logs import log
from ringcast.stack import Giving
from ringcast.units import counted
from ringcast.view import View

OnMessage = Callable[[Batch], object]
OnView = Callable[[View], object]
OnSkipped = Callable[[Address, int, int], object]
Call = tuple[Callable[[Any], object], Any]
Calls = SimpleQueue[Call | None]        # None is the end
PollFromCaller = Callable[[Callable[[], bool]], None]


class Callbacks:
    """The callbacks of the member `local`; each of them may be None. `fail(fault)` is
    called if their thread ends before the channel does.

    Threads: any thread may call; `call` is for the callbacks' thread.
    """

    def __init__(self, local: Address, state: State, driver: Driver, fail: Callable[[str], None],
                 on_message: OnMessage | None, on_view: OnView | None,
                 on_undelivered: OnMessage | None, on_skipped: OnSkipped | None,
                 state_calls: StateCallbacks) -> None:
        self._local, self._state, self._driver, self._fail = local, state, driver, fail
        self.on_message, self._on_view, self._on_undelivered = on_message, on_view, on_undelivered
        self._on_skipped = on_skipped
        self.state_calls = state_calls
        self.num_errors = 0
        self.reset()

    def reset(self) -> None:
        """Make what threads share: at first, and again in a forked child."""
        self._calls: Calls = SimpleQueue()
        self.state_calls.reset()
        if self.state_calls.takes_state:
            self._calls.put((self.state_calls.receive, None))

    @property
    def needs_thread(self) -> bool:
        """Return whether there is any callback."""
        return self.state_calls.is_needed or (
            self.on_message, self._on_view, self._on_undelivered, self._on_skipped) != (None,) * 4

    def target(self) -> Callable[[], None]:
        """Return what the thread runs. If it gets the messages, it polls while it
        waits."""
        poll = self._driver.poller.poll_from_caller if self.on_message is not None else None
        return partial(run_callbacks, ref(self), self._calls, poll)

    def queue_view(self, view: View) -> None:
        """Queue a call of on_view, if there is one."""
        if self._on_view is not None:
            self._calls.put((self._on_view, view))

    def queue_giving(self, giving: Giving) -> None:
        """Queue a call of on_state_request."""
        self._calls.put((self.state_calls.give, giving))

    def queue_deliveries(self, batches: list[Batch]) -> None:
        """Queue a call of on_message for each batch, or of on_skipped, if there is
        one."""
        on_message, takes_skipped = self.on_message, self._on_skipped is not None
        if on_message is None and not takes_skipped:
            return
        for batch in batches:
            if isinstance(batch, Skipped):
                self._calls.put((self._tell_skipped, batch))
            elif on_message is not None:
                self._calls.put((on_message, batch))

    def _tell_skipped(self, skipped: Skipped) -> None:
        if self._on_skipped is not None:
            self._on_skipped(skipped.sender, skipped.first, skipped.last)

    def queue_undelivered(self, batch: Batch) -> None:
        """Queue a call of on_undelivered for messages that one member will not get, or
        that the others will not get. If there is no such callback, log them."""
        if self._on_undelivered is not None:
            self._calls.put((self._on_undelivered, batch))
        elif batch.dest is not None:
            log.warning("%s: %s left before it had acknowledged %s to it alone",
                        self._local, batch.dest, counted(len(batch), "message"))
        else:
            log.warning("%s: %s to everybody will not reach the others, which excluded this "
                        "member while it could not be heard", self._local,
                        counted(len(batch), "message"))

    def end(self) -> None:
        """End the thread: after the calls that are queued if the channel is open,
        otherwise at once."""
        self._calls.put(None)
        self.state_calls.end()

    @property
    def is_over(self) -> bool:
        """Return whether the channel is closed: then no callback may begin."""
        return self._state.closed

    def call(self, callback: Callable[[Any], object], argument: Any) -> None:
        """Run one callback. An exception ends this call and nothing else."""
        try:
            callback(argument)
        except BaseException:
            self.num_errors += 1
            log.exception("%s: a callback failed on %r; the next one follows",
                          self._local, argument)
        is_taken = callback is self.on_message or isinstance(argument, Skipped)
        if is_taken and self.on_message is not None:    # else an iterator finishes it
            self._driver.finish([argument])

    def on_thread_error(self, error: BaseException) -> None:
        """Stop the channel, because an exception came into the thread from elsewhere,
        not from a callback."""
        try:
            log.error("%s: the callbacks' thread failed", self._local, exc_info=error)
        finally:
            self._fail("the callbacks' thread failed, see the log; open a new channel")


def asked(question: Callable[[View], bool], view: View) -> bool:
    """Return the application's answer in a turn. On a thread of the channel, sys.exit()
    ends nothing and is an error as any other. In the main thread it is raised: it may
    be a signal handler's."""
    try:
        return question(view)
    except BaseException as error:
        if isinstance(error, Exception) or threading.current_thread() is threading.main_thread():
            raise
        raise RuntimeError(repr(error)) from error


def run_callbacks(callbacks_ref: "ref[Callbacks]", calls: Calls,
                  poll: PollFromCaller | None) -> None:
    """Run callbacks until the end: the target of their thread. As in Driver.poll, it
    holds no reference to the channel while there is nothing to do, because the
    application's callbacks may hold one."""
    try:
        while True:
            if poll is not None and calls.empty():
                poll(lambda: not calls.empty())
            call = calls.get()
            if call is None or (callbacks := callbacks_ref()) is None or callbacks.is_over:
                return
            callbacks.call(*call)
            del call, callbacks
    except BaseException as error:
        if (callbacks := callbacks_ref()) is not None:
            callbacks.on_thread_error(error)
