"""The threads of a simulated application, which send. Their steps are interleaved in a
random order.

Each thread does what Channel does for a thread that calls send() or send_many(): it
pushes, and then it does what the push left to do. Other threads run in between. They
also run while one owns the stack, if they do not need to own it themselves: one has
framed its datagrams and not done what follows, and another pushes. A thread is a
generator. It yields wherever another one may run, and says what it waits for.
"""

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

READY, TURN, ROOM = range(3)    # what a thread waits for; TURN: that no thread owns the stack
PAUSES = (0, 0, 1_000, 5_000, 20_000, 100_000)      # nanoseconds between two steps
CALLS = (1, 1, 1, 1, 5, 100)    # messages of one call: send(), or send_many()
PREEMPTED = 0.3                 # how often other threads run while one owns the stack
MAX_STEPS = 4                   # of other threads then

Steps = Generator[int, None, None]


@dataclass(slots=True, eq=False)
class Thread:
    """One thread. It sends to `dest` until nothing is left to send there."""

    dest: Dest
    steps: Steps
    waits_for: int = READY
    number: int = 0                     # of its next step, which may run before its time


class Threads:
    """Up to `count` threads of a producer for each destination. `rng` decides when each
    of them runs."""

    def __init__(self, producer: "Producer", count: int, rng: Random) -> None:
        self.producer, self.count, self.rng = producer, count, rng
        self.running: list[Thread] = []

    # ----------------------------------------------------------------------------------- scheduling

    def begin(self, dest: Dest) -> None:
        """Start threads, as there is something to send to `dest`."""
        for _ in range(self.count - sum(thread.dest == dest for thread in self.running)):
            thread = Thread(dest, self._send_all(dest))
            self.running.append(thread)
            self._schedule(thread)

    def stop(self) -> None:
        """End all threads. What they pushed is in the window."""
        self.running = []

    def wake(self) -> None:
        """Wake threads that wait for room: a window has some, or its member left."""
        for thread in self.running:
            if thread.waits_for == ROOM:
                thread.waits_for = READY
                self._schedule(thread)

    def resume(self) -> None:
        """Go on after a pause that ended early."""
        for thread in self.running:
            if thread.waits_for != ROOM:
                self._schedule(thread)

    def preempt(self) -> None:
        """Interrupt the thread that owns the stack now and then, and run others that do
        not need to own it."""
        if self.running and self.rng.random() < PREEMPTED:
            for _ in range(self.rng.randint(1, MAX_STEPS)):
                ready = [thread for thread in self.running if thread.waits_for == READY]
                if ready:
                    self._step(self.rng.choice(ready))

    def _schedule(self, thread: Thread) -> None:
        """Schedule the next step of a thread after a random pause."""
        cluster = self.producer.member.cluster
        cluster.at(cluster.now + self.rng.choice(PAUSES), self._run, thread, thread.number)

    def _run(self, thread: Thread, number: int) -> None:
        """Run the step of a thread whose time has come; later, if the process is busy
        or paused."""
        member = self.producer.member
        if not member.alive or thread.number != number or thread not in self.running:
            return
        if member.schedule.busy_until > member.cluster.now:
            member.cluster.at(member.schedule.busy_until, self._run, thread, number)
        else:
            self._step(thread)

    def _step(self, thread: Thread) -> None:
        """Run the next step of a thread."""
        thread.number += 1
        waits_for = next(thread.steps, None)
        if thread not in self.running:                  # with this step the member left
            return
        if waits_for is None:
            self.running.remove(thread)
            return
        thread.waits_for = waits_for
        if waits_for != ROOM:
            self._schedule(thread)

    # --------------------------------------------------------------------------- what a thread does

    def _send_all(self, dest: Dest) -> Steps:
        while self.producer.has_next(dest):
            most = self.rng.choice(CALLS)
            yield from self._send_one(dest) if most == 1 else self._send_many(dest, most)
            yield READY

    def _send_one(self, dest: Dest) -> Steps:
        """Do what Channel.send does: push, and do what that leaves to do."""
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
        """Do what Channel does for a large message: push fragments and send them, until
        all have room. Several threads may share this."""
        outgoing = self.producer.outgoing(dest)
        while outgoing.is_next_large(window):
            taken = self.producer.push_fragments(dest, window)
            yield READY
            if not taken:
                _, window = yield from self._retry(dest, self.producer.push_fragments, 0, window)
            yield TURN
            self.producer.member.flush(dest, full_only=outgoing.is_next_large(window))

    def _send_many(self, dest: Dest, most: int) -> Steps:
        """Do what Channel.send_many does: push until a batch is full, send the full
        datagrams, and push on."""
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
        """Return the window for `dest`; None if nobody takes messages there, or there
        is nothing to send."""
        window = self.producer.port(dest)
        if window is None:
            yield TURN
            window = self.producer.open_port(dest)
        return window if self.producer.has_next(dest) else None

    def _retry(self, dest: Dest, attempt: Callable[[Dest, SendWindow], int], refused: int,
               window: SendWindow) -> Generator[int, None, tuple[int, SendWindow]]:
        """Attempt again whenever a window has room, as Channel does. Return the first
        answer that is not `refused`, and its window; or `refused`, if nobody takes
        messages there any more or nothing is left to send."""
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
        """Send what waits: at once, or leave it to the turn that has it due."""
        if window.waiting and not self.producer.wait_to_bundle(dest):
            yield TURN
            self.producer.member.flush(dest, full_only=False)


class PreemptedBundler(Bundler):
    """A bundler that lets other threads run before and after datagrams are framed."""

    def __init__(self, threads: Threads, multicast: Multicast, unicast: Unicast3,
                 delay: int) -> None:
        super().__init__(multicast, unicast, delay)
        self.threads = threads

    def frame(self, dest: Dest, now: Instant, full_only: bool) -> None:
        self.threads.preempt()
        super().frame(dest, now, full_only)
        self.threads.preempt()
