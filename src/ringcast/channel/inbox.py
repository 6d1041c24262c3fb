"""The inbox: gives delivered messages to iterators, and says when they are finished.

A message is finished when the thread that got it asks for the next one. What an
iterator had not handed out when it was left goes to the next iterator, in its old
place. An ack covers all messages before it, so batches are finished in order: none
before all that precede it.

An exception (a signal handler's, or KeyboardInterrupt) may come at any bytecode of the
thread that iterates. So messages move from the queue into an Outstanding in one
compiled step, and the Outstanding has its place in the order before it holds any.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice, repeat
from operator import length_hint
from queue import SimpleQueue

from ringcast._core.batch import Batch, Message
from ringcast.channel.bell import Bell
from ringcast.channel.reentry import refuses_reentry
from ringcast.stack import Instant


class Outstanding:
    """The batches that one asker took, a thread or a task, and that are not finished
    yet."""

    __slots__ = ("_lists", "at", "batches", "is_lent", "messages", "owner", "rest", "state")

    # TAKEN: its owner works on it. ABANDONED: its iterator is gone. LENT: receive()
    # handed it out, and its owner works on it until it asks again. HAS_REST: one of
    # these two, and there is a rest for whoever asks next.
    TAKEN, FINISHED, ABANDONED, LENT, HAS_REST = range(5)

    def __init__(self, owner: object) -> None:
        self._lists: list[list[Batch]] = []
        self.batches: list[Batch] = []
        self.rest = self.batches                # what the next one gets; see keep_rest()
        self.state = self.TAKEN
        self.is_lent = False
        self.owner = owner
        # What was handed out: all before the batch `at`, and of that one all but
        # `messages`. None: nothing was. They change in one statement, without a call.
        self.at = 0
        self.messages: Iterator[Message] | None = None

    def fill(self, queue: "SimpleQueue[list[Batch]]") -> None:
        """Take everything from the queue, which nobody else takes from. No signal
        handler runs in the first step."""
        self._lists.extend(islice(iter(queue.get_nowait, None), queue.qsize()))
        self.rest = self.batches = list(chain.from_iterable(self._lists))

    def hand_out(self) -> Message | None:
        """Return the next message; None if there is none."""
        if self.messages is None:
            self.messages = iter(self.batches[0])
        message = next(self.messages, None)
        while message is None and self.at + 1 < len(self.batches):
            self.at, self.messages = self.at + 1, iter(self.batches[self.at + 1])
            message = next(self.messages, None)
        return message

    def is_handed_out(self) -> bool:
        """Return whether nothing is left."""
        return (self.messages is not None and self.at + 1 == len(self.batches)
                and not length_hint(self.messages))

    def next_view(self) -> int | None:
        """Return in which view the next message was delivered; None if there is
        none."""
        rest = self.batches[self.at:] if self.messages is not None else self.rest
        return rest[0].view_id if rest else None

    def keep_rest(self) -> None:
        """Note what was not handed out."""
        if self.messages is not None:
            rest = self.batches[self.at:]
            rest[:1] = last_messages(rest[0], length_hint(self.messages))
            self.rest = rest

    def abandon(self) -> None:
        """Leave the rest, if there is any, to the next iterator."""
        if not self.batches:                            # an exception came while it was filled
            self.rest = self.batches = list(chain.from_iterable(self._lists))
        self.keep_rest()
        if self.state == self.TAKEN:
            self.state = self.HAS_REST if self.rest else self.ABANDONED

    def split_rest(self, owner: object) -> "Outstanding":
        """Move the rest into a new object, and return that. This one keeps what was
        handed out."""
        self.keep_rest()
        other = Outstanding(owner)
        other.rest = other.batches = rest = self.rest
        handed = self.batches[:len(self.batches) - len(rest)]
        if len(rest) and len(handed) < len(self.batches):
            whole = self.batches[len(handed)]
            if len(rest[0]) < len(whole):
                handed.append(slice_batch(whole, 0, len(whole) - len(rest[0])))
        self.messages, self.batches, self.rest = None, handed, []
        self.state = self.LENT if self.is_lent else self.ABANDONED
        return other


HANDED_OUT: Iterator[Message] = iter(())    # for Outstanding.messages: the whole batch was


def slice_batch(batch: Batch, start: int, end: int) -> Batch:
    """Return messages `start` to `end` of a batch as a batch."""
    return Batch(batch.sender, batch.first + start, batch.payloads[start:end], batch.view_id,
                 batch.dest, batch.bits, batch.stream, batch.sent_at[start:end].tobytes())


def last_messages(batch: Batch, count: int) -> list[Batch]:
    """Return the last `count` messages of a batch, as a list of at most one batch. A
    batch without messages was handed out whole."""
    if not count:
        return []
    return [batch] if count == len(batch) else [slice_batch(batch, len(batch) - count, len(batch))]


class Inbox:
    """The queue between the turns, which deliver, and the threads that iterate.

    `wait(condition, by)` returns when the condition holds, or when nothing more can
    come, or at the instant `by`. `wake()` makes a waiting thread check its condition
    again. `finish(batches)` takes what is finished. `view_id()` is the id of the view
    that the application was shown last. `inside` are the threads that are inside the
    channel (reentry.py).

    Threads: any thread may call everything. A garbage collector may call `abandon` at
    any time and in any thread, so that takes no lock.
    """

    def __init__(self, wait: Callable[[Callable[[], bool], Instant | None], None],
                 finish: Callable[[list[Batch]], None], wake: Callable[[], None],
                 view_id: Callable[[], int], inside: set[int]) -> None:
        self._wait, self._finish, self._wake = wait, finish, wake
        self._view_id, self._inside = view_id, inside
        # Who asks; and whether one that asked before has ended. aio.py has tasks
        # instead of threads.
        self.asker: Callable[[], object] = threading.get_ident
        self.is_gone: Callable[[object], bool] = lambda owner: owner not in sys._current_frames()
        self.reset()

    def reset(self) -> None:
        """Make what threads share: at first, and again in a forked child."""
        self._queue: SimpleQueue[list[Batch]] = SimpleQueue()
        self._ended = False
        self._outstanding: list[Outstanding] = []   # in the order of taking
        self._lent: Outstanding | None = None   # what receive() hands out of
        self._take_lock = threading.Lock()      # makes that the order of delivery as well
        self._finish_lock = threading.Lock()    # guards changes of `_outstanding`
        self.bell: Bell | None = None       # rings while there is something to take

    def put(self, batches: list[Batch]) -> None:
        """Add what was delivered."""
        self._queue.put(batches)
        if self.bell is not None:
            self.bell.ring()

    def end(self) -> None:
        """End all iterators when they have handed out what is there."""
        self._ended = True
        if self.bell is not None:
            self.bell.ring()

    def has_news(self) -> bool:
        """Return whether there is something to take, or the end has come."""
        return not self._queue.empty() or self._ended or (
            bool(self._outstanding) and self._first_with_rest() is not None)

    def is_over(self) -> bool:
        """Return whether the end has come, and everything was taken."""
        return self._ended and self._queue.empty() and self._first_with_rest() is None

    @refuses_reentry
    def fileno(self) -> int:
        """Return the descriptor of the bell, which there is from now on."""
        with self._finish_lock:
            if self.bell is None:
                self.bell = Bell()
        self.bell.ring()
        self.hush()
        return self.bell.fileno()

    def hush(self) -> None:
        """Silence the bell if there is nothing to take."""
        if self.bell is not None and not self.has_news():
            self.bell.silence()
            if self.has_news():
                self.bell.ring()

    # ----------------------------------------------------------------------------- to iterators

    def outstanding(self, timeout: Instant | None = None,
                    last_view: int | None = None) -> Iterator[Outstanding]:
        """Iterate over what this thread takes; asking for the next one finishes the one
        before. End when nothing comes for `timeout`, or with the view `last_view`. The
        caller keeps `wait`, and thereby the channel, alive."""
        taken: list[Outstanding] = []
        try:
            while self._take_next(taken, timeout, last_view):
                yield taken[0]
        except BaseException:
            for each in taken:
                self.abandon(each)
            raise

    @refuses_reentry
    def _take_next(self, taken: list[Outstanding], timeout: Instant | None,
                   last_view: int | None) -> bool:
        """Finish what was taken before, if anything was, and take what comes next."""
        if taken:
            self.mark_finished(taken.pop())
        return self.take(taken, deadline(timeout), last_view)

    def take(self, taken: list[Outstanding], by: Instant | None = None,
             last_view: int | None = None) -> bool:
        """Wait for messages, and add an Outstanding with all there are to `taken`.
        Return False at the end, or at the instant `by`, or when `last_view` is over.
        This also finishes what the thread got from iterators that are gone."""
        self.finish_asked()
        held: list[bool] = []
        try:
            # An exception comes before this step or after it.
            held.extend(map(self._take_lock.acquire, (True,), (seconds_until(by),)))
            return held[0] and self._take(taken, by, last_view)
        finally:
            if held and held[0]:                        # no call before the release
                self._take_lock.release()

    def _take(self, taken: list[Outstanding], by: Instant | None, last_view: int | None) -> bool:
        has_news = self.has_news if last_view is None else partial(self.has_news_in, last_view)
        while True:
            is_last_look = self.is_last_look(last_view)
            if self.has_news() and self.take_some(taken, last_view):
                return True
            is_last_look = is_last_look or (last_view is not None and self.is_later(last_view))
            if not is_last_look and by is not None and by <= time.monotonic_ns():
                return False
            # In a forked child it raises.
            self._wait(has_news, by)
            if is_last_look:
                return False

    def is_last_look(self, last_view: int | None) -> bool:
        """Return whether nothing comes any more than what there is now; look first,
        then take."""
        return self._ended or (last_view is not None and self._view_id() > last_view)

    def has_news_in(self, last_view: int | None) -> bool:
        """Return whether there is something to take, or the end has come, that of
        `last_view` too."""
        return self.has_news() or self.is_last_look(last_view)

    def is_later(self, last_view: int | None) -> bool:
        """Return whether what comes next was delivered after `last_view`."""
        rest = self._first_with_rest()
        view = None if rest is None else rest.next_view()
        return last_view is not None and view is not None and view > last_view

    def _first_with_rest(self) -> Outstanding | None:
        for each in self._outstanding.copy():   # one step; of a deque it would be many
            if each.state == Outstanding.HAS_REST:
                return each
        return None

    def take_some(self, taken: list[Outstanding], last_view: int | None = None) -> bool:
        """Without waiting, add the first rest that an iterator left to `taken`, or else
        the queue, but nothing that was delivered after `last_view`. Return whether
        there was anything. Hold the lock of takers, if there are several."""
        with self._finish_lock:
            left = self._first_with_rest()
            new = Outstanding(self.asker()) if left is None else left.split_rest(self.asker())
            taken.append(new)
            if left is None:
                self._outstanding.append(new)
            else:
                self._outstanding.insert(self._outstanding.index(left) + 1, new)
        if left is None:
            new.fill(self._queue)
        if last_view is not None:
            self._leave_later(new, last_view)
        if not new.batches:
            taken.pop().state = Outstanding.FINISHED    # it goes with the next finished one
            self.hush()
            return False
        self.hush()
        return True

    def _leave_later(self, new: Outstanding, last_view: int) -> None:
        """Leave what was delivered after `last_view` to the next iterator."""
        batches = new.batches
        index = next((index for index, batch in enumerate(batches) if batch.view_id > last_view),
                     len(batches))
        if index < len(batches):
            other = Outstanding(new.owner)
            with self._finish_lock:
                self._outstanding.insert(self._outstanding.index(new) + 1, other)
                # They move in one compiled step.
                other.batches.extend(map(batches.pop, repeat(index, len(batches) - index)))
                other.state = Outstanding.HAS_REST

    # ------------------------------------------------------------------- one message at a time

    @refuses_reentry
    def receive(self, by: Instant | None) -> Message | None:
        """Return the next message; None at the end, and if none comes until the instant
        `by`. Whatever this thread had is finished. The rest of what came with the
        message stays for all threads."""
        if (message := self.receive_more()) is not None:
            return message
        taken: list[Outstanding] = []
        try:
            while self.take(taken, by):
                if (message := self.lend(taken)) is not None:
                    return message
        except BaseException:
            for each in taken:
                self.abandon(each)
            raise
        return None

    def receive_more(self) -> Message | None:
        """Return the next message of what the same asker was given one of before; None
        if there is none."""
        if (lent := self._lent) is None:
            return None
        with self._finish_lock:
            if lent.state != Outstanding.HAS_REST or lent.owner != self.asker():
                return None
            return self._hand_out(lent)

    def lend(self, taken: list[Outstanding]) -> Message | None:
        """Hand out the first message of what was taken, and leave the rest to
        whoever asks."""
        with self._finish_lock:
            self._lent = lent = taken[0]
            lent.state, lent.is_lent = Outstanding.HAS_REST, True
            taken.pop()
            return self._hand_out(lent)

    def _hand_out(self, lent: Outstanding) -> Message | None:
        message = lent.hand_out()
        if lent.is_handed_out():
            lent.state = Outstanding.LENT
            self.hush()
        elif self.bell is not None:
            self.bell.ring()
        return message

    # ------------------------------------------------------------------------- what is finished

    def abandon(self, outstanding: Outstanding) -> None:
        """Leave the rest to the next iterator, because the one that has it goes
        away."""
        outstanding.abandon()
        if outstanding.state == Outstanding.HAS_REST:
            self._wake()
            if self.bell is not None:
                self.bell.ring()

    def mark_finished(self, outstanding: Outstanding) -> None:
        """Note that the thread that took it has asked for the next one."""
        outstanding.state = Outstanding.FINISHED
        self._finish_in_order()

    def finish_asked(self) -> None:
        """Finish what this thread got from receive(), and from iterators that it has
        left, because it asks for more; also what threads got from receive() that have
        ended."""
        asker = self.asker()
        mine = [each for each in self._outstanding.copy()
                if each.state >= Outstanding.ABANDONED
                and (each.owner == asker or (each.is_lent and self.is_gone(each.owner)))]
        for each in mine:
            with self._finish_lock:
                if each.state == Outstanding.HAS_REST:
                    rest = each.split_rest(each.owner)
                    rest.state = Outstanding.HAS_REST
                    self._outstanding.insert(self._outstanding.index(each) + 1, rest)
                each.state = Outstanding.FINISHED
        if mine:
            self._finish_in_order()

    def _finish_in_order(self) -> None:
        """Pass on what is finished, up to the first that a thread still has: an ack
        covers everything before it.

        What one thread got from an abandoned iterator is passed on with what is
        finished after it, and not before.
        """
        with self._finish_lock:
            outstanding = self._outstanding
            last = next((index for index, each in enumerate(tuple(outstanding))
                         if each.state not in (Outstanding.FINISHED, Outstanding.ABANDONED)),
                        len(outstanding))
            while last and outstanding[last - 1].state == Outstanding.ABANDONED:
                last -= 1
            for _ in range(last):
                self._finish(outstanding.pop(0).batches)


def deadline(timeout: Instant | None) -> Instant | None:
    """Return the instant that is `timeout` nanoseconds from now; None is never."""
    return None if timeout is None else time.monotonic_ns() + timeout


def seconds_until(by: Instant | None) -> float:
    """Return how long to wait for a lock until `by`, in seconds; -1 is for ever."""
    return -1 if by is None else max(0, by - time.monotonic_ns()) / 1e9
