"""The threads of a simulated application that send. Their steps come in any order.

Each does what Channel does for a thread that calls send() or send_many(): it pushes,
and then it sees to what the push left over. Other threads run in between; and also
while one owns the stack, as far as they need not own it themselves: when it has framed
its datagrams and not done what follows, another pushes. A thread is a generator, which
yields wherever another may run, and says what it waits for. """

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from ringcast._core.send_window import BUNDLE, FULL, LARGE, NOTHING, SendWindow
from ringcast.protocols.bundler import Bundler, Dest
from ringcast.protocols.multicast.base import Multicast
from ringcast.protocols.unicast3 import Unicast3
from ringcast.stack import Instant

if TYPE_CHECKING:
    from ringcast.sim.producer import Producer

READY, TURN, ROOM = range(3)            # what a thread waits for; TURN: that nobody owns the stack
PAUSES = (0, 0, 1_000, 5_000, 20_000, 100_000)      # nanoseconds between two steps
CALLS = (1, 1, 1, 1, 5, 100)            # messages that one call sends: send(), or send_many()
PREEMPTED = 0.3                         # how often other threads run while one owns the stack
MOST_STEPS = 4                          # that they do then

Steps = Generator[int, None, None]


@dataclass(slots=True, eq=False)
class Thread:
    """One thread, which sends to `dest` until nothing is left to be sent there."""

    dest: Dest
    steps: Steps
    waits_for: int = READY
    number: int = 0                     # of its next step, which may come before its planned time


class Threads:
    """Up to `count` threads of `producer` for each destination; `rng` decides when each
    of them runs."""

    def __init__(self, producer: "Producer", count: int, rng: Random) -> None:
        self.producer, self.count, self.rng = producer, count, rng
        self.running: list[Thread] = []

    # ----------------------------------------------------------------------------------- scheduling

    def begin(self, dest: Dest) -> None:
        """There is something to send to `dest`."""
        for _ in range(self.count - sum(thread.dest == dest for thread in self.running)):
            thread = Thread(dest, self._send_all(dest))
            self.running.append(thread)
            self._plan(thread)

    def stop(self) -> None:
        """Nothing is sent any more: who is blocked gets an error, and what was pushed
        is in the window."""
        self.running = []

    def wake(self) -> None:
        """A window has room again, or its member left."""
        for thread in self.running:
            if thread.waits_for == ROOM:
                thread.waits_for = READY
                self._plan(thread)

    def resume(self) -> None:
        """The process goes on after a pause that was to be longer."""
        for thread in self.running:
            if thread.waits_for != ROOM:
                self._plan(thread)

    def preempt(self) -> None:
        """Whoever owns the stack stands still for a moment: others run, as far as they
        need not own it."""
        if self.running and self.rng.random() < PREEMPTED:
            for _ in range(self.rng.randint(1, MOST_STEPS)):
                ready = [thread for thread in self.running if thread.waits_for == READY]
                if ready:
                    self._step(self.rng.choice(ready))

    def _plan(self, thread: Thread) -> None:
        cluster = self.producer.member.cluster
        cluster.at(cluster.now + self.rng.choice(PAUSES), self._run, thread, thread.number)

    def _run(self, thread: Thread, number: int) -> None:
        """The step of a thread whose time has come; later, when the process is busy or
        stands still."""
        member = self.producer.member
        if not member.alive or thread.number != number or thread not in self.running:
            return
        if member.schedule.busy_until > member.cluster.now:
            member.cluster.at(member.schedule.busy_until, self._run, thread, number)
        else:
            self._step(thread)

    def _step(self, thread: Thread) -> None:
        thread.number += 1
        waits_for = next(thread.steps, None)
        if thread not in self.running:                  # with this step the member left
            return
        if waits_for is None:
            self.running.remove(thread)
            return
        thread.waits_for = waits_for
        if waits_for != ROOM:
            self._plan(thread)

    # --------------------------------------------------------------------------- what a thread does

    def _send_all(self, dest: Dest) -> Steps:
        while self.producer.has_next(dest):
            most = self.rng.choice(CALLS)
            yield from self._send_one(dest) if most == 1 else self._send_many(dest, most)
            yield READY

    def _send_one(self, dest: Dest) -> Steps:
        """As Channel.send: push, and do what that leaves over."""
        window = yield from self._window(dest)
        if window is None:
            return
        todo = self.producer.push(dest, window)
        yield READY
        if todo == NOTHING:
            return
        if todo == LARGE:
            yield from self._send_large(dest, window)
            return
        if todo == FULL:
            todo, window = yield from self._retry(dest, self.producer.push, FULL, window)
        if todo == BUNDLE:
            yield TURN
            self.producer.member.flush(dest, full_only=True)
        elif todo != FULL:
            yield from self._after_first(dest, window)

    def _send_large(self, dest: Dest, window: SendWindow) -> Steps:
        """As Channel._send_large: push fragments, and send them, until all are taken;
        by whichever of the threads."""
        while self.producer.outgoing(dest).is_next_large(window):
            taken = self.producer.push_fragments(dest, window)
            yield READY
            if not taken:
                _, window = yield from self._retry(dest, self.producer.push_fragments, 0, window)
            yield TURN
            self.producer.member.flush(dest, full_only=self.producer.outgoing(dest).is_next_large(window))

    def _send_many(self, dest: Dest, most: int) -> Steps:
        """As Channel.send_many: push until a batch is full, send the full datagrams,
        push on."""
        window = yield from self._window(dest)
        if window is None:
            return
        sent = 0
        while sent < most and self.producer.has_next(dest):
            push = partial(self.producer.push_many, most=most - sent)
            taken = push(dest, window)
            yield READY
            if not taken:
                taken, window = yield from self._retry(dest, push, 0, window)
                if not taken:
                    return
            sent += taken
            if sent < most:
                yield TURN
                self.producer.member.flush(dest, full_only=True)
        yield from self._after_first(dest, window)

    def _window(self, dest: Dest) -> Generator[int, None, SendWindow | None]:
        """The window for `dest`; None when there is nobody to take it, or nothing to be
        taken."""
        window = self.producer.port(dest)
        if window is None:
            yield TURN
            window = self.producer.open_port(dest)
        return window if self.producer.has_next(dest) else None

    def _retry(self, dest: Dest, attempt: Callable[[Dest, SendWindow], int], refused: int,
               window: SendWindow) -> Generator[int, None, tuple[int, SendWindow]]:
        """As Channel._retry: attempt again whenever a window has room, until the answer
        is another than `refused`; or until there is nobody to take it, or nothing to be
        taken, any more. The answer, and the window of it."""
        yield TURN
        self.producer.member.flush(dest, full_only=False)
        while True:
            rooms = self.producer.num_rooms
            if dest is not None:
                yield TURN
            port = self.producer.open_port(dest)
            if port is None or not self.producer.has_next(dest):
                return refused, window
            window = port
            answer = attempt(dest, window)
            if answer != refused:
                return answer, window
            while self.producer.num_rooms == rooms:
                yield ROOM

    def _after_first(self, dest: Dest, window: SendWindow) -> Steps:
        """As Channel._after_first: what waits goes at once when all is quiet, else when
        it is due."""
        if window.waiting and not self.producer.wait_to_bundle(dest):
            yield TURN
            self.producer.member.flush(dest, full_only=False)


class PreemptedBundler(Bundler):
    """Lets other threads run between the framing of datagrams and what its owner does
    before and after that."""

    def __init__(self, threads: Threads, multicast: Multicast, unicast: Unicast3,
                 delay: int) -> None:
        super().__init__(multicast, unicast, delay)
        self.threads = threads

    def frame(self, dest: Dest, now: Instant, full_only: bool) -> None:
        self.threads.preempt()
        super().frame(dest, now, full_only)
        self.threads.preempt()
