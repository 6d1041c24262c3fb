"""Callbacks run on a thread of their own, one after the other, in the order of views
and deliveries.

Whatever a callback raises, SystemExit and CancelledError included, is logged and
counted, and the next one follows. A batch is finished when on_message has returned from
it, raised or not. After the end of the channel no callback begins.
"""

import logging
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any
from weakref import ref

from ringcast._core.batch import Batch
from ringcast.address import Address
from ringcast.channel.driver import Driver
from ringcast.channel.state import State
from ringcast.view import View

log = logging.getLogger("ringcast")

OnMessage = Callable[[Batch], object]
OnView = Callable[[View], object]
Call = tuple[Callable[[Any], object], Any]
Calls = SimpleQueue[Call | None]        # None is the end
Visit = Callable[[Callable[[], bool]], None]


class Callbacks:
    """The callbacks of the member `local`, each of them None when there is none.
    `fail(fault)` is called when their thread ends for another reason than the end of
    the channel.

    Threads: any may call; `call` is for the callbacks' thread.
    """

    def __init__(self, local: Address, state: State, driver: Driver, fail: Callable[[str], None],
                 on_message: OnMessage | None, on_view: OnView | None,
                 on_undelivered: OnMessage | None) -> None:
        self._local, self._state, self._driver, self._fail = local, state, driver, fail
        self.on_message, self._on_view, self._on_undelivered = on_message, on_view, on_undelivered
        self.num_errors = 0
        self.begin()

    def begin(self) -> None:
        """Make what threads share."""
        self._calls: Calls = SimpleQueue()

    @property
    def needs_thread(self) -> bool:
        """Say whether there is any callback."""
        return (self.on_message, self._on_view, self._on_undelivered) != (None, None, None)

    def target(self) -> Callable[[], None]:
        """Return what the thread runs. It polls while it waits if it is that which gets
        the messages."""
        visit = self._driver.poller.poll_from_caller if self.on_message is not None else None
        return partial(call_back, ref(self), self._calls, visit)

    def show(self, view: View) -> None:
        """Call on_view, if there is one."""
        if self._on_view is not None:
            self._calls.put((self._on_view, view))

    def deliver(self, batches: list[Batch]) -> None:
        """Call on_message with each batch."""
        assert self.on_message is not None, "who iterates gets them"
        for batch in batches:
            self._calls.put((self.on_message, batch))

    def report(self, batch: Batch) -> None:
        """Call on_undelivered with messages to one member that it will not get, or log
        them."""
        if self._on_undelivered is not None:
            self._calls.put((self._on_undelivered, batch))
        else:
            log.warning("%s: %d messages to %s were not acknowledged before it left",
                        self._local, len(batch), batch.dest)

    def end(self) -> None:
        """End the thread, after what waits for it if the channel is open."""
        self._calls.put(None)

    @property
    def is_over(self) -> bool:
        """Say whether the channel is closed: no callback may follow."""
        return self._state.closed

    def call(self, callback: Callable[[Any], object], argument: Any) -> None:
        """Run one callback. What it raises ends this call and no more."""
        try:
            callback(argument)
        except BaseException:
            self.num_errors += 1
            log.exception("%s: a callback failed on %r; the next one follows",
                          self._local, argument)
        if callback is self.on_message:
            self._driver.finish([argument])

    def on_thread_error(self, error: BaseException) -> None:
        """Stop the channel: an exception was thrown into the thread from elsewhere, not
        by a callback."""
        log.error("%s: the callbacks' thread failed", self._local, exc_info=error)
        self._fail("the callbacks' thread failed, see the log; open a new channel")


def call_back(callbacks_ref: "ref[Callbacks]", calls: Calls, visit: Visit | None) -> None:
    """Be the callbacks' thread. As in Driver.poll, nothing here holds the channel while
    there is nothing to do: what the application gave as a callback may hold it."""
    try:
        while True:
            if visit is not None and calls.empty():
                visit(lambda: not calls.empty())
            call = calls.get()
            if call is None or (callbacks := callbacks_ref()) is None or callbacks.is_over:
                return
            callbacks.call(*call)
            del call, callbacks
    except BaseException as error:
        if (callbacks := callbacks_ref()) is not None:
            callbacks.on_thread_error(error)
