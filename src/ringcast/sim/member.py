"""One incarnation of a member in a simulation: an endpoint, and the clock, the socket
and the application around it.

Where Channel has threads and a transport, there are events here and a network that a
seed rules. The endpoint is the one that ships. Every turn ends with the checkers.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ringcast._core.batch import Batch
from ringcast._core.send_window import FULL, LARGE, SendWindow
from ringcast.address import Address, Session
from ringcast.config import configure, milliseconds
from ringcast.digest import Digest
from ringcast.endpoint import Endpoint, Fragments
from ringcast.errors import NotMemberError
from ringcast.flags import Flag
from ringcast.protocols import frag
from ringcast.protocols.bundler import Dest
from ringcast.protocols.multicast.nakack2 import Nakack2
from ringcast.protocols.seqnos import MODULUS, precedes
from ringcast.protocols.stream import Stream
from ringcast.sim.log import Log
from ringcast.sim.threads import PreemptedBundler, Threads
from ringcast.sim.unicast_log import UnicastLog
from ringcast.sim.view_filter import ViewFilter
from ringcast.stack import Effects, Instant
from ringcast.stacks import STACKS
from ringcast.view import View

if TYPE_CHECKING:
    from ringcast.sim.cluster import Cluster

DATAGRAMS = 64                 # that one turn takes from the socket, as the transports do
CLOSE_TIMEOUT = 5_000_000_000  # nanoseconds that a leaver waits for its messages to be
                               # acknowledged, as Channel.close()


class Clock:
    """A monotonic clock of its own: it began anywhere, may run at another rate, and may
    jump ahead (a machine that slept)."""

    def __init__(self, base: int = 0, permille: int = 1000) -> None:
        self.base, self.since, self.permille = base, 0, permille

    def read(self, now: int) -> Instant:
        """What the clock shows when the simulation's time is `now`."""
        return self.base + (now - self.since) * self.permille // 1000

    def when(self, reading: Instant) -> int:
        """The earliest time of the simulation at which the clock shows `reading`; it
        may be past."""
        return self.since - (self.base - reading) * 1000 // self.permille

    def jump(self, now: int, by: int) -> None:
        self.base, self.since = self.read(now) + by, now


class Member:
    """A process of the group. `physical` is where it can be reached; `offset` is the
    seqno before its first message, `counters` what stands before its first conn-id and
    its first timestamp; `socket_bytes` is what its socket buffer holds; `turn_time` is
    how long a turn keeps it busy, in nanoseconds. With `threads` its application sends
    from so many threads for each destination, and messages wait for company
    (bundler.py); with 0 they leave in the instant in which they are sent. All other
    keywords are properties of the stack. With `former`, a process that died, it goes on
    as the same incarnation: it sends again what follows seqno `acked`, which every
    member had acknowledged.

    The application takes at most `limit` messages in hand and has finished each batch
    `finish_after` nanoseconds after it got it (None: never). Both may be changed at any
    time.
    """

    def __init__(self, cluster: "Cluster", name: str, *, resume: Digest | None = None,
                 receiving: bool = True, offset: int = 0,
                 counters: int = 0, physical: str | None = None, clock: Clock | None = None,
                 socket_bytes: int = 1 << 24,
                 turn_time: int = 0, threads: int = 0, receive_budget: int | None = None,
                 former: "Member | None" = None, acked: int = 0, **options: object) -> None:
        self.cluster = cluster
        self.name = name
        self.physical = physical or name
        self.clock = clock or Clock()
        self.address: Address = former.address if former else Address(name,
                                                                      cluster.rng.getrandbits(63)
                                                                      + 1)
        self.epoch: int = former.epoch + 1 if former else 0
        self.incarnation = self.address.incarnation
        self.config = configure(cluster.options | options, cluster.stack).fitted(cluster.network.largest)
        self.resume = resume or Digest()
        self.receiving = receiving
        self.offset: int = former.offset if former else offset
        self.base = acked if former else offset  # the seqno before the first message of this
                                                 # process
        counters += self.epoch << 32
        # the kernel counts twice what is sent
        budget = socket_bytes // 2 if receive_budget is None else receive_budget
        self.lossless = STACKS[cluster.stack].is_lossless  # it reads its socket as fast as it
                                                           # likes: nothing overflows
        self.view_filter = ViewFilter()
        self.threads = Threads(self, threads, cluster.thread_rng)
        self.endpoint = Endpoint(
            cluster.stack, self.address, cluster.listed(), self.config, group="simulated",
            physical=self.physical,
            receive_budget=budget, resume=resume, receiving=receiving,
            session=Session(self.incarnation, self.base, self.epoch),
            conn_id=counters, timestamp=counters, first_unicast=offset,
            anchor=cluster.now - self.clock.read(cluster.now),
            filters=[self.view_filter], bundler=partial(PreemptedBundler, self.threads))
        self.stack, self.members = self.endpoint.stack, self.endpoint.members
        self.multicast, self.unicast = self.endpoint.multicast, self.endpoint.unicast
        self.unreliable, self.bundler = self.endpoint.unreliable, self.endpoint.bundler
        self.ports: dict[Address, SendWindow] = {}  # where messages to single members went last
        self.num_waits = 0                          # how often a message had to wait for company
        self.num_ahead = 0                          # turns after which it had got messages of its
                                                    # own that were not framed
        self.alive = True
        self.fault: str | None = None           # why it stopped, when it did so by itself
        self.routes: dict[int, str] = {}
        self.views: list[View] = []
        self.writable = 0                   # how often there was room again
        self.blocked = 0                    # how often there was none
        self.blocked_for = 0                # nanoseconds in which messages to all waited for room
        self._blocked_since: int | None = None
        self._waiting_since: dict[Address | None, int] = {}  # whose window has no room, and since
                                                             # when

        self.backlog: list[bytes] = []                              # what the application wants to
                                                                    # send and has no room for
        self.log: Log = former.log if former else Log(self.offset)  # what this incarnation sent
        if former is not None and former.large is not None and not former.again:
            del self.log[len(self.log) - former.large.sent:]  # it died in the middle; this process
                                                              # sends all of it
            self.backlog = [former.large.payload]
        self.again: list[bytes] = self.log.after(self.base)  # of this, what is to be sent again
        self.large: Fragments | None = None                  # the message to everybody that is
                                                             # going out in fragments
        self._begins_to_send = bool(self.again or self.backlog)
        self.unicast_logs: dict[Address, UnicastLog] = {}    # what it has to say to single members
        self._begins_unicast: set[Address] = set()
        self.got: dict[Address, list[bytes | None]] = {}  # what it was handed, by sender
        self.first: dict[Address, int] = {}               # the seqno of the first of these
        # what the application is done with
        self.finished = {sender.incarnation: seqno for sender, seqno in self.resume.items()}
        self.finish_after: int | None = 0
        self._done: list[Batch] = []  # finished since the last turn
        self._at_work = 0             # batches that it is at work on: one that comes is finished
                                      # after them
        self._at_work_until = 0       # when the application has finished all it was handed

        self.held: set[int] = set()             # whose packets it does not read for now
        self.news: list[int] = []               # to whom there is a new link
        self.warnings: list[str] = []
        self.socket: list[bytes] = []
        self.socket_bytes = socket_bytes
        self.queued = 0                         # bytes in the socket
        self.turn_time = turn_time
        self.num_overflows = 0
        self.num_unsent = 0
        self.send_full = 0.0            # rate at which the end of a turn's packets finds the send
                                        # buffer full
        self.busy_until = 0             # in the simulation's time, like all instants below
        self._alarm: int | None = None  # the earliest alarm that is set
        self._attended = False          # a turn is on its way
        self._vacated = False           # the checkers know that it leaves

    def start(self) -> None:
        self.endpoint.start(self.clock.read(self.cluster.now))
        self.turn()

    # --------------------------------------------------------------------------- what happens to it

    def arrive(self, datagram: bytes) -> None:
        """A datagram reaches the socket, where there may be no room."""
        if self.queued + len(datagram) > self.socket_bytes and not self.lossless:
            self.num_overflows += 1
            return
        self.socket.append(datagram)
        self.queued += len(datagram)
        if not self._attended:
            self.attend()

    def linked(self, other: int) -> None:
        """The transport has a new link to somebody."""
        self.news.append(other)
        self.attend()

    def attend(self) -> None:
        """See that the next turn comes as soon as the process can take it."""
        if not self._attended:
            self._attended = True
            self.cluster.at(max(self.cluster.now, self.busy_until), self._take_turn)

    def _take_turn(self) -> None:
        if self.busy_until > self.cluster.now:          # it was paused meanwhile
            self.cluster.at(self.busy_until, self._take_turn)
            return
        self._attended = False
        datagrams, self.socket = self.socket[:DATAGRAMS], self.socket[DATAGRAMS:]
        self.queued = sum(map(len, self.socket))
        self.turn(datagrams)
        if self.socket and self.alive:
            self.attend()

    def _ring(self, at: int) -> None:
        """The alarm: a turn, when one is still wanted."""
        if at == self._alarm and self.alive:
            self._alarm = None
            if self.busy_until > at:
                self.attend()
            elif (deadline := self._deadline()) is not None and deadline <= at:
                self.turn()
            else:
                self._set_alarm()

    def pause(self, nanoseconds: int) -> None:
        """Stand still, as a stopped process or a machine in trouble does; the socket
        fills meanwhile, the clock runs on."""
        self.busy_until = max(self.busy_until, self.cluster.now + nanoseconds)

    def resume_now(self) -> None:
        """The end of a pause."""
        self.busy_until = min(self.busy_until, self.cluster.now)
        self._attended = False          # the turn that waits for the end of the pause is too late
        self.attend()
        self.threads.resume()

    def crash(self) -> None:
        """Gone, with all it had in memory."""
        self.alive = False
        self.cluster.unbind(self)

    # --------------------------------------------------------------------------- what its user does

    def send(self, *payloads: bytes) -> int:
        """Push as many as find room now; returns how many."""
        waiting, self.backlog = self.backlog, list(payloads)
        before = len(self.log)
        self._push(self.clock.read(self.cluster.now))
        self.backlog = waiting
        self._count_blocked()
        self.turn()
        return len(self.log) - before

    def offer(self, count: int, size: int) -> None:
        """Send `count` messages of `size` bytes and more, each unlike all others, as
        soon as there is room for them."""
        start = len(self.log) + len(self.backlog)
        filler = bytes(size)
        had_to_wait = bool(self.again or self.backlog)
        self.backlog += [b"%x.%d" % (self.incarnation, number) + filler
                         for number in range(start, start + count)]
        self._begins_to_send |= not had_to_wait         # else it goes on when there is room
        self.attend()

    def stop_sending(self) -> None:
        """Give up what has found no room so far."""
        self.backlog, self.large = [], None
        self._count_blocked()

    def send_unicast(self, to: str, count: int, size: int, is_oob: bool = False) -> None:
        """Send `count` messages of `size` bytes and more to the one member that it
        knows as `to`, as soon as there is room."""
        for address in self.views[-1].members if self.views else ():
            if address.name == to and self.endpoint.leaving is None:
                self.cluster.unicast_log(self, address).offer(count, size, is_oob)
                self._begins_unicast.add(address)
                self.attend()

    def hide(self, name: str) -> None:
        """Its view, for messages to single members, lacks that member from now on."""
        self.view_filter.hide(name, self.clock.read(self.cluster.now))
        self.attend()

    def show(self, name: str) -> None:
        self.view_filter.show(name, self.clock.read(self.cluster.now))
        self.attend()

    def change_interval(self, milli: float) -> None:
        """xmit_interval, from now on; 0 is NAKACK2 without retransmission."""
        assert isinstance(self.multicast, Nakack2)
        self.multicast.change_interval(milliseconds(milli), self.clock.read(self.cluster.now))
        self.attend()

    def leave(self) -> None:
        """Go in good order: take no more, wait for what was sent to be acknowledged,
        see that the others know. (Who has come back and is not there yet where it was,
        stays.)"""
        if self.endpoint.leaving is None and self.alive and not self.again:
            self.stop_sending()
            for log in self.unicast_logs.values():
                log.large, log.backlog = None, []
            self.threads.stop()
            self.receiving = False
            now = self.clock.read(self.cluster.now)
            self.endpoint.leave(now + CLOSE_TIMEOUT, now)
            self.attend()

    def stop_receiving(self) -> None:
        """Take no more messages; nobody is to wait for this member."""
        self.receiving = False
        self.endpoint.stop_receiving(self.clock.read(self.cluster.now))
        self.attend()

    def exclude(self, name: str) -> None:
        """Take a member out that this one holds for dead."""
        self.cluster.checkers.vacated()
        self.members.exclude(name, self.clock.read(self.cluster.now))
        self.attend()

    # ---------------------------------------------------------------------------------------- turns

    def turn(self, datagrams: Sequence[bytes] = ()) -> None:
        """Bring in what arrived, let the layers decide, perform what they ask for,
        check."""
        if not self.alive:
            return
        cluster = self.cluster
        now = self.clock.read(cluster.now)
        self.busy_until = cluster.now + self.turn_time
        news, self.news = self.news, []
        self.endpoint.receive(datagrams, news, now)
        if self._done:
            done, self._done = self._done, []
            for batch in done:
                self._finish(batch, now)
        self.endpoint.tick(now)
        if self._begins_to_send:
            self._begins_to_send = False
            self._begin_to_send(None, now)
        for address in sorted(self._begins_unicast):
            self._begin_to_send(address, now)
        self._begins_unicast.clear()
        self.threads.preempt()
        self.endpoint.deliver(now)
        self._end_turn(now)

    def flush(self, dest: Dest, full_only: bool) -> None:
        """The turn of a thread that sends what waits for `dest`."""
        now = self.clock.read(self.cluster.now)
        self.busy_until = self.cluster.now + self.turn_time
        self.bundler.flush(dest, now, full_only)
        self._end_turn(now)
        if dest is None and self.multicast.hears_itself():
            self.attend()

    def _end_turn(self, now: Instant) -> None:
        self._log_layers()
        self._perform(self.endpoint.take(), now)
        self.num_ahead += precedes(self.multicast.send_window.sent, self.multicast.own.finished)
        if self.left and not self._vacated:
            self._vacated = True
            self.cluster.checkers.vacated()
        if self.endpoint.has_left and self.alive:
            self.crash()
        self.cluster.checkers.after_turn(self)
        self.cluster.observer.after_turn(self)
        if self.alive:
            self._set_alarm()

    def _perform(self, effects: Effects, now: Instant) -> None:
        """The fields in their order; what the application does at once may ask for
        more."""
        while True:
            if effects.routes is not None:
                self.routes = effects.routes
            if effects.packets:
                self._put(effects.packets)
            for view in effects.views:
                self.views.append(view)
                self.ports.clear()
                self.cluster.checkers.viewed(self, view)
                self.cluster.observer.viewed(self, view)
            for batch in effects.deliveries:
                self._take(batch, now)
            for batch in effects.failures:
                self.cluster.checkers.undelivered(self, batch)
            self.warnings += effects.warnings
            if effects.arrived:
                self.attend()
            if effects.held is not None:
                self.held = effects.held
                if self.cluster.links is not None:
                    self.cluster.links.read_again(self)
            for dest in effects.closed:
                self.ports.pop(dest, None)
            if effects.writable:
                self.writable += 1
                self._go_on_sending(now)
            if effects.fault is not None:
                self.fault = effects.fault
                self.cluster.checkers.stopped(self)
                self.crash()
            if not effects.deliveries and not effects.writable:
                break
            if effects.deliveries:          # what it has finished of them may make room for more
                self.endpoint.deliver(now)
            effects = self.endpoint.take()

    def _put(self, packets: list[tuple[int, bytes]]) -> None:
        links = self.cluster.links
        if self.send_full and links is not None:
            if self.cluster.rng.random() < self.send_full / 10 and (partners := links.partners(self)):
                # a queue is full: the transport cuts the link
                links.break_link(self.name, self.cluster.rng.choice(partners).name)
        elif self.send_full and self.cluster.rng.random() < self.send_full:
            kept = self.cluster.rng.randrange(len(packets))
            self.num_unsent += len(packets) - kept
            packets = packets[:kept]
        self.cluster.put(self, packets)

    def _take(self, batch: Batch, now: Instant) -> None:
        """The application is handed a batch."""
        self.cluster.checkers.delivered(self, batch)
        self.cluster.observer.delivered(self, batch)
        if self.finish_after == 0 and not self._at_work:
            self._finish(batch, now)
        elif self.finish_after is not None:
            self._at_work += 1
            self._at_work_until = max(self._at_work_until, self.cluster.now + self.finish_after)
            self.cluster.at(self._at_work_until, self._stop_work, batch)

    def _stop_work(self, batch: Batch) -> None:
        self._at_work -= 1
        self.finish(batch)

    def finish(self, batch: Batch) -> None:
        """The application has finished a batch that it was handed."""
        if self.alive:
            self._done.append(batch)
            self.attend()

    def _finish(self, batch: Batch, now: Instant) -> None:
        if batch.dest is not None:
            self.cluster.checkers.done(self, batch)
        if batch.dest is None and not batch.flags & Flag.NO_RELIABILITY:
            self.finished[batch.sender.incarnation] = batch.last
            if batch.stream is None:  # a script says that a part of what it was handed is finished
                batch = batch.addressed(batch.sender, None, batch.view_id,
                                        self._stream_of(batch.sender))
        self.endpoint.finish((batch,), now)

    def _stream_of(self, sender: Address) -> Stream | None:
        window = self.multicast.windows.get(sender.incarnation)
        if sender == self.address:
            return self.multicast.own
        return window.stream if window is not None else None

    # -------------------------------------------------------------------------------------- sending

    def _begin_to_send(self, dest: Dest, now: Instant) -> None:
        """There is something to send to `dest`, and nobody at it."""
        if self.threads.count:
            self.threads.begin(dest)
        elif dest is None:
            self._push(now)
        else:
            self._push_to(dest, now)

    def _go_on_sending(self, now: Instant) -> None:
        """There may be room for what had none."""
        if self.threads.count:
            self.threads.wake()
            return
        if self.again or self.backlog:
            self._push(now)
            self.attend()
        for address, log in self.unicast_logs.items():
            if log.backlog:
                self._push_to(address, now)

    def _push(self, now: Instant) -> None:
        """Send from the backlog until it is empty or there is no room; then room must
        be announced."""
        window = self.multicast.send_window
        while self.has_to_send(None):
            if not self.push_many(None, window):
                break
            if self.has_to_send(None):
                self.bundler.flush(None, now, full_only=True)
        self.bundler.flush(None, now)
        self._count_blocked()

    def _push_to(self, dest: Address, now: Instant) -> None:
        """Send from what there is to say to one member until that is empty or there is
        no room."""
        while self.has_to_send(dest):
            window = self.open_port(dest)
            if window is None:
                self.bundler.forget(dest)
                return
            if not self.push_many(dest, window, 1):
                break
            self.bundler.flush(dest, now, full_only=True)
        self.bundler.flush(dest, now)

    def has_to_send(self, dest: Dest) -> bool:
        return bool(self.again or self.backlog) if dest is None else bool(self.unicast_logs[dest].backlog)

    def port(self, dest: Dest) -> SendWindow | None:
        """The window for `dest` that was used last, unless its connection was closed
        since."""
        return self.multicast.send_window if dest is None else self.ports.get(dest)

    def open_port(self, dest: Dest) -> SendWindow | None:
        """The window for `dest`, of a new connection if there is none. None when nobody
        takes it, and then there is nothing to say to it any more."""
        if dest is None:
            return self.multicast.send_window
        try:
            now = self.clock.read(self.cluster.now)
            window = self.ports[dest] = self.endpoint.window(dest, now)
        except NotMemberError:
            log = self.unicast_logs[dest]
            log.large, log.backlog = None, []         # the application is told, and says no more
            return None
        return window

    def _log_layers(self) -> None:
        """Note what layers have sent to everybody by themselves."""
        ring = self.multicast.send_window.ring
        if not self.again:
            while precedes(seqno := (self.offset + len(self.log)) % MODULUS, ring.hr):
                self.log.append(ring.get((seqno + 1) % MODULUS))

    def push(self, dest: Dest, window: SendWindow) -> int:
        """Push the message that comes next; what SendWindow.push() says is left to
        do."""
        self._log_layers()
        if self.is_next_large(dest, window):
            return int(LARGE)
        payload, flags = self._next(dest)
        todo = window.push(payload, flags)
        self._pushed(dest, int(todo != FULL))
        return todo

    def push_many(self, dest: Dest, window: SendWindow, most: int = 0) -> int:
        """Push what comes next, at most `most` messages or a message's fragments (0:
        all); how many were taken."""
        taken = 0
        self._log_layers()
        while self.has_to_send(dest) and (not most or taken < most):
            more = self._push_some(dest, window, most)
            taken += more
            if not more or dest is None or window.waiting >= window.batch:
                break
        return taken

    def _push_some(self, dest: Dest, window: SendWindow, most: int) -> int:
        if self.is_next_large(dest, window):
            return self.push_fragments(dest, window)
        payload, flags = self._next(dest)
        if dest is not None:
            taken = window.push_many([payload], 0, flags)
        else:
            waiting = self.again or self.backlog
            taken = window.push_many(waiting[:most] if most else waiting, 0, 0)
        self._pushed(dest, taken)
        return taken

    def push_fragments(self, dest: Dest, window: SendWindow) -> int:
        """Push fragments of the large message that comes next; how many were taken, -1
        when it is not large."""
        if not self.is_next_large(dest, window):
            return -1
        large = self._large_of(dest)
        if large is None:
            large = Fragments(*self._next(dest), self.config)
        taken = large.push(window)
        self._set_large(dest, None if large.is_sent else large)
        self._note_room(dest, bool(taken))
        if dest is None and not self.again:
            self.log += [None] * (taken - large.is_sent)
        if large.is_sent:
            self._accept(dest, 1)
        return taken

    def is_next_large(self, dest: Dest, window: SendWindow) -> bool:
        """Whether what comes next is too large for a datagram, or what is left of such
        a message."""
        return self.has_to_send(dest) and (self._large_of(dest) is not None
                                           or len(self._next(dest)[0]) > window.largest)

    def _large_of(self, dest: Dest) -> Fragments | None:
        return self.large if dest is None else self.unicast_logs[dest].large

    def _set_large(self, dest: Dest, large: Fragments | None) -> None:
        if dest is None:
            self.large = large
        else:
            self.unicast_logs[dest].large = large

    def _next(self, dest: Dest) -> tuple[bytes, int]:
        """Return the message that comes next, and its flags."""
        return ((self.again or self.backlog)[0], 0) if dest is None else self.unicast_logs[dest].backlog[0]

    def _pushed(self, dest: Dest, taken: int) -> None:
        self._note_room(dest, bool(taken))
        self._accept(dest, taken)

    def _accept(self, dest: Dest, taken: int) -> None:
        """So many messages have their places in the stream to `dest`."""
        if dest is not None:
            for _ in range(taken):
                self.unicast_logs[dest].accept()
        elif self.again:
            del self.again[:taken]
        else:
            self.log += self.backlog[:taken]
            del self.backlog[:taken]

    def wait_for_company(self, dest: Dest) -> bool:
        """Whether the first message that waits for `dest` has to wait; then there is a
        turn when it is due."""
        due = self.bundler.schedule(dest, self.clock.read(self.cluster.now))
        if due is None:
            return False
        self.num_waits += 1
        self._set_alarm()
        return True

    def _count_blocked(self) -> None:
        """What is in the backlog now has found no room."""
        if self._blocked_since is not None:
            self.blocked_for += self.cluster.now - self._blocked_since
        self._blocked_since = self.cluster.now if self.backlog else None

    def _note_room(self, dest: Address | None, is_there: bool) -> None:
        """Whether what the application sends found room: how long it had to wait for it
        is told to who watches."""
        if not is_there:
            self.blocked += 1
            self._waiting_since.setdefault(dest, self.cluster.now)
        elif dest in self._waiting_since:
            self.cluster.observer.blocked_for(self, dest,
                                              self.cluster.now - self._waiting_since.pop(dest))

    def _deadline(self) -> int | None:
        deadline = self.endpoint.deadline()
        return None if deadline is None else max(self.clock.when(deadline), self.cluster.now)

    def _set_alarm(self) -> None:
        deadline = self._deadline()
        if deadline is not None and (self._alarm is None or deadline < self._alarm):
            self._alarm = deadline
            self.cluster.at(deadline, self._ring, deadline)

    @property
    def limit(self) -> int:
        """Messages that the application takes in hand at most."""
        return self.endpoint.max_undelivered

    @limit.setter
    def limit(self, messages: int) -> None:
        self.endpoint.max_undelivered = messages

    @property
    def handed(self) -> int:
        """Messages in the application's hands."""
        return self.endpoint.undelivered

    @property
    def left(self) -> bool:
        """Whether it has said goodbye."""
        return self.endpoint.leaving is not None and self.endpoint.leaving.has_said_goodbye

    @property
    def last(self) -> int:
        """The seqno of the last message that it sent. (Of one that it gave up in its
        middle nothing is sent.)"""
        return self.log.last

    def pieces(self, payload: bytes) -> list[int]:
        """Return the sizes of the fragments that a message takes, or its own."""
        if len(payload) <= self.multicast.send_window.largest:
            return [len(payload)]
        size = frag.size_of(self.config.max_bundle_size)
        return [size] * (len(payload) // size + 1)

    def durable(self) -> Digest:
        """What its application has finished, as a journal would have kept it: the next
        incarnation may go on from there."""
        incarnations = self.cluster.incarnations
        return Digest({incarnations[sender].address: seqno for sender,
                       seqno in self.finished.items() if sender != self.incarnation})
