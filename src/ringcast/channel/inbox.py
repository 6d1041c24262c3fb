"""Hand what was delivered to iterators, and say when it is finished.

A message is finished when the thread that got it asks for the next one. What an
iterator had not handed out when it was left goes to the next iterator, at its old
place. An ack covers all that came before it, so finished is only what nothing
unfinished precedes.

An exception may come at any bytecode of the thread that iterates (a signal handler's,
say, or KeyboardInterrupt). So messages move from the queue into a hand in one compiled
step, and a hand stands in its place before it holds any.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from operator import length_hint
from queue import Empty, SimpleQueue

from ringcast._core.batch import Batch
from ringcast.channel.reentry import enters


class Hand:
    """What one thread took to work on."""

    __slots__ = ("_lists", "batches", "rest", "state", "thread")

    # LEFT: given up, and there is a rest for the next iterator.
    TAKEN, FINISHED, GIVEN_UP, LEFT = range(4)

    def __init__(self) -> None:
        self._lists: list[list[Batch]] = []
        self.batches: list[Batch] = []
        self.rest: list[Batch] = []                     # what its iterator was left with
        self.state = self.TAKEN
        self.thread = threading.get_ident()

    def fill(self, queue: "SimpleQueue[list[Batch]]") -> None:
        """Take all there is. No signal handler runs in the first step."""
        with suppress(Empty):
            self._lists.extend(iter(queue.get_nowait, None))
        self.batches = list(chain.from_iterable(self._lists))

    def leave(self, index: int, messages: "Iterator[object] | None" = None) -> None:
        """The iterator goes away. It has handed out all batches before `index`, and of
        that one all but what `messages` still has."""
        rest = self.batches[index:]
        if messages is not None and rest:
            rest[:1] = remainder(rest[0], length_hint(messages))
        self.rest = rest

    def drop(self) -> None:
        """See `leave`: whoever asks next sees to what is left."""
        if not self.batches:                            # an exception came while it was filled
            self.batches = self.rest = list(chain.from_iterable(self._lists))
        if self.state == self.TAKEN:
            self.state = self.LEFT if self.rest else self.GIVEN_UP

    def split(self) -> "Hand":
        """A hand for the rest; this one keeps what was handed out."""
        other = Hand()
        other.batches, rest = self.rest, self.rest
        handed = self.batches[:len(self.batches) - len(rest)]
        if len(rest) and len(handed) < len(self.batches):
            whole = self.batches[len(handed)]
            if len(rest[0]) < len(whole):
                handed.append(part(whole, 0, len(whole) - len(rest[0])))
        self.batches, self.rest, self.state = handed, [], self.GIVEN_UP
        return other


def part(batch: Batch, start: int, end: int) -> Batch:
    """Messages number `start` to `end` of a batch, as one."""
    return Batch(batch.sender, batch.first + start, batch.payloads[start:end], batch.view_id,
                 batch.dest, batch.flags, batch.stream, batch.sent_at[start:end].tobytes())


def remainder(batch: Batch, count: int) -> list[Batch]:
    """The last `count` messages of a batch."""
    if count == len(batch):
        return [batch]
    return [part(batch, len(batch) - count, len(batch))] if count else []


class Inbox:
    """`wait(condition)` returns when the condition holds, or when nothing more can
    come; `wake()` makes whoever waits look at its condition again; `finish(batches)` is
    told what is finished. `inside` are the threads at work in the channel (reentry.py).

    Threads: any may iterate; `put` and `end` are for any thread, too. `drop` may come
    from a garbage collector, at any time and in any thread, so it takes no lock.
    """

    def __init__(self, wait: Callable[[Callable[[], bool]], None],
                 finish: Callable[[list[Batch]], None], wake: Callable[[], None],
                 inside: set[int]) -> None:
        self._wait, self._finish, self._wake, self._inside = wait, finish, wake, inside
        self.begin()

    def begin(self) -> None:
        """Make what threads share."""
        self._queue: SimpleQueue[list[Batch]] = SimpleQueue()
        self._ended = False
        self._hands: deque[Hand] = deque()              # what threads took, in the order of taking
        self._taking = threading.Lock()                 # so that this is also the order of delivery
        self._finishing = threading.Lock()              # of changing `_hands`

    def put(self, batches: list[Batch]) -> None:
        """Add what was delivered."""
        self._queue.put(batches)

    def end(self) -> None:
        """Nothing more comes: iterators end when they have what is there."""
        self._ended = True

    def hands(self) -> Iterator[Hand]:
        """Iterate over what this thread takes; asking for the next hand finishes the
        one before. Whoever iterates holds `wait`, and by that the channel."""
        held: list[Hand] = []
        try:
            while self._take_into(held):
                yield held[0]
                self._finish_hand(held)
        except BaseException:
            for hand in held:
                self.drop(hand)
            raise

    @enters
    def _take_into(self, held: list[Hand]) -> bool:
        return self.take(held)

    @enters
    def _finish_hand(self, held: list[Hand]) -> None:
        self.finished(held.pop())

    def take(self, held: list[Hand]) -> bool:
        """Wait for messages and take all there are, into a hand that is added to
        `held`; False at the end. What this thread was handed by iterators that are gone
        is finished with that."""
        self._finish_left_by(threading.get_ident())
        with self._taking:
            while not held:
                self._wait(self._has_news)
                self._take_some(held)
                if not held[0].batches:
                    held.pop().state = Hand.FINISHED    # it goes with what is finished next
                    if self._ended and self._queue.empty() and self._first_left() is None:
                        return False
        return True

    def _has_news(self) -> bool:
        return not self._queue.empty() or self._ended or self._first_left() is not None

    def _first_left(self) -> Hand | None:
        return next((hand for hand in tuple(self._hands) if hand.state == Hand.LEFT), None)

    def _take_some(self, held: list[Hand]) -> None:
        with self._finishing:
            left = self._first_left()
            hand = Hand() if left is None else left.split()
            held.append(hand)
            if left is None:
                self._hands.append(hand)
            else:
                self._hands.insert(self._hands.index(left) + 1, hand)
        if left is None:
            hand.fill(self._queue)

    def drop(self, hand: Hand) -> None:
        """The iterator that has it goes away; whoever waits gets the rest."""
        hand.drop()
        if hand.state == Hand.LEFT:
            self._wake()

    def finished(self, hand: Hand) -> None:
        """The thread that took it asks for the next one."""
        hand.state = Hand.FINISHED
        self._finish_in_order()

    def _finish_left_by(self, thread: int) -> None:
        """What this thread was handed by iterators that it has left is finished now."""
        mine = [hand for hand in tuple(self._hands)
                if hand.thread == thread and hand.state in (Hand.GIVEN_UP, Hand.LEFT)]
        for hand in mine:
            with self._finishing:
                if hand.state == Hand.LEFT:
                    rest = hand.split()
                    rest.rest, rest.state = rest.batches, Hand.LEFT
                    self._hands.insert(self._hands.index(hand) + 1, rest)
                hand.state = Hand.FINISHED
        if mine:
            self._finish_in_order()

    def _finish_in_order(self) -> None:
        """Hand on what is finished and behind which nothing is still in somebody's
        hands: an ack covers all before it.

        What an iterator that was left had handed out to another thread is covered by
        what somebody finishes later, and not before.
        """
        with self._finishing:
            hands = self._hands
            last = next((index for index, hand in enumerate(tuple(hands))
                         if hand.state in (Hand.TAKEN, Hand.LEFT)), len(hands))
            while last and hands[last - 1].state == Hand.GIVEN_UP:
                last -= 1
            for _ in range(last):
                self._finish(hands.popleft().batches)
