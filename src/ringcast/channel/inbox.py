"""The inbox: gives delivered messages to iterators, and says when they are finished.

A message is finished when the thread that got it asks for the next one. What an
iterator had not handed out when it was left goes to the next iterator, in its old
place. An ack covers all messages before it, so batches are finished in order: none
before all that precede it.

An exception (a signal handler's, or KeyboardInterrupt) may come at any bytecode of the
thread that iterates. So messages move from the queue into an Outstanding in one
compiled step, and the Outstanding has its place in the order before it holds any.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice
from operator import length_hint
from queue import SimpleQueue

from ringcast._core.batch import Batch
from ringcast.channel.reentry import refuses_reentry


class Outstanding:
    """The batches that one thread took, and that are not finished yet."""

    __slots__ = ("_lists", "batches", "rest", "state", "thread")

    # TAKEN: its thread works on it. ABANDONED: its iterator is gone. HAS_REST: the
    # same, and there is a rest for the next iterator.
    TAKEN, FINISHED, ABANDONED, HAS_REST = range(4)

    def __init__(self) -> None:
        self._lists: list[list[Batch]] = []
        self.batches: list[Batch] = []
        self.rest: list[Batch] = []             # what its iterator had not handed out
        self.state = self.TAKEN
        self.thread = threading.get_ident()

    def fill(self, queue: "SimpleQueue[list[Batch]]") -> None:
        """Take everything from the queue, which nobody else takes from. No signal
        handler runs in the first step."""
        self._lists.extend(islice(iter(queue.get_nowait, None), queue.qsize()))
        self.batches = list(chain.from_iterable(self._lists))

    def keep_rest(self, index: int, messages: "Iterator[object] | None" = None) -> None:
        """Note what an iterator that goes away had not handed out: the batches from
        `index` on, and of that one only what `messages` still has."""
        rest = self.batches[index:]
        if messages is not None and rest:
            rest[:1] = last_messages(rest[0], length_hint(messages))
        self.rest = rest

    def abandon(self) -> None:
        """Leave the rest, if there is any, to the next iterator."""
        if not self.batches:                            # an exception came while it was filled
            self.batches = self.rest = list(chain.from_iterable(self._lists))
        if self.state == self.TAKEN:
            self.state = self.HAS_REST if self.rest else self.ABANDONED

    def split_rest(self) -> "Outstanding":
        """Move the rest into a new object, and return that. This one keeps what was
        handed out."""
        other = Outstanding()
        other.batches, rest = self.rest, self.rest
        handed = self.batches[:len(self.batches) - len(rest)]
        if len(rest) and len(handed) < len(self.batches):
            whole = self.batches[len(handed)]
            if len(rest[0]) < len(whole):
                handed.append(slice_batch(whole, 0, len(whole) - len(rest[0])))
        self.batches, self.rest, self.state = handed, [], self.ABANDONED
        return other


def slice_batch(batch: Batch, start: int, end: int) -> Batch:
    """Return messages `start` to `end` of a batch as a batch."""
    return Batch(batch.sender, batch.first + start, batch.payloads[start:end], batch.view_id,
                 batch.dest, batch.flags, batch.stream, batch.sent_at[start:end].tobytes())


def last_messages(batch: Batch, count: int) -> list[Batch]:
    """Return the last `count` messages of a batch, as a list of at most one batch."""
    if count == len(batch):
        return [batch]
    return [slice_batch(batch, len(batch) - count, len(batch))] if count else []


class Inbox:
    """The queue between the turns, which deliver, and the threads that iterate.

    `wait(condition)` returns when the condition holds, or when nothing more can come.
    `wake()` makes a waiting thread check its condition again. `finish(batches)` takes
    what is finished. `inside` are the threads that are inside the channel (reentry.py).

    Threads: any thread may call everything. A garbage collector may call `abandon` at
    any time and in any thread, so that takes no lock.
    """

    def __init__(self, wait: Callable[[Callable[[], bool]], None],
                 finish: Callable[[list[Batch]], None], wake: Callable[[], None],
                 inside: set[int]) -> None:
        self._wait, self._finish, self._wake, self._inside = wait, finish, wake, inside
        self.reset()

    def reset(self) -> None:
        """Make what threads share: at first, and again in a forked child."""
        self._queue: SimpleQueue[list[Batch]] = SimpleQueue()
        self._ended = False
        self._outstanding: deque[Outstanding] = deque()     # in the order of taking
        self._take_lock = threading.Lock()      # makes that the order of delivery as well
        self._finish_lock = threading.Lock()    # guards changes of `_outstanding`

    def put(self, batches: list[Batch]) -> None:
        """Add what was delivered."""
        self._queue.put(batches)

    def end(self) -> None:
        """End all iterators when they have handed out what is there."""
        self._ended = True

    def outstanding(self) -> Iterator[Outstanding]:
        """Iterate over what this thread takes; asking for the next one finishes the one
        before. The caller keeps `wait`, and thereby the channel, alive."""
        taken: list[Outstanding] = []
        try:
            while self._take_into(taken):
                yield taken[0]
                self._finish_first(taken)
        except BaseException:
            for each in taken:
                self.abandon(each)
            raise

    @refuses_reentry
    def _take_into(self, taken: list[Outstanding]) -> bool:
        return self.take(taken)

    @refuses_reentry
    def _finish_first(self, taken: list[Outstanding]) -> None:
        self.mark_finished(taken.pop())

    def take(self, taken: list[Outstanding]) -> bool:
        """Wait for messages, and add an Outstanding with all there are to `taken`.
        Return False at the end. This also finishes what the thread got from iterators
        that are gone."""
        self._finish_abandoned_by(threading.get_ident())
        with self._take_lock:
            while not taken:
                self._wait(self._has_news)
                self._take_some(taken)
                if not taken[0].batches:
                    taken.pop().state = Outstanding.FINISHED    # it goes with the next finished one
                    if self._ended and self._queue.empty() and self._first_with_rest() is None:
                        return False
        return True

    def _has_news(self) -> bool:
        return not self._queue.empty() or self._ended or self._first_with_rest() is not None

    def _first_with_rest(self) -> Outstanding | None:
        return next((each for each in tuple(self._outstanding)
                     if each.state == Outstanding.HAS_REST), None)

    def _take_some(self, taken: list[Outstanding]) -> None:
        """Add the first rest that an iterator left to `taken`, or else the queue."""
        with self._finish_lock:
            left = self._first_with_rest()
            new = Outstanding() if left is None else left.split_rest()
            taken.append(new)
            if left is None:
                self._outstanding.append(new)
            else:
                self._outstanding.insert(self._outstanding.index(left) + 1, new)
        if left is None:
            new.fill(self._queue)

    def abandon(self, outstanding: Outstanding) -> None:
        """Leave the rest to the next iterator, because the one that has it goes
        away."""
        outstanding.abandon()
        if outstanding.state == Outstanding.HAS_REST:
            self._wake()

    def mark_finished(self, outstanding: Outstanding) -> None:
        """Note that the thread that took it has asked for the next one."""
        outstanding.state = Outstanding.FINISHED
        self._finish_in_order()

    def _finish_abandoned_by(self, thread: int) -> None:
        """Finish what this thread got from iterators that it has left."""
        mine = [each for each in tuple(self._outstanding) if each.thread == thread
                and each.state in (Outstanding.ABANDONED, Outstanding.HAS_REST)]
        for each in mine:
            with self._finish_lock:
                if each.state == Outstanding.HAS_REST:
                    rest = each.split_rest()
                    rest.rest, rest.state = rest.batches, Outstanding.HAS_REST
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
                         if each.state in (Outstanding.TAKEN, Outstanding.HAS_REST)),
                        len(outstanding))
            while last and outstanding[last - 1].state == Outstanding.ABANDONED:
                last -= 1
            for _ in range(last):
                self._finish(outstanding.popleft().batches)
