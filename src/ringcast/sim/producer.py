"""The sending half of a simulated application: what it has to send, and how it goes
into the windows.

Without threads the application pushes all that has room in the instant in which it is
offered, and the rest when there is room again. With threads (threads.py) each of these
pushes when its time comes.
"""

from typing import TYPE_CHECKING

from ringcast._core.send_window import FULL, LARGE, SendWindow
from ringcast.address import Address
from ringcast.errors import NotMemberError
from ringcast.protocols import frag
from ringcast.protocols.bundler import Dest
from ringcast.protocols.seqnos import MODULUS, precedes
from ringcast.sim.outgoing import Multicasts, Outgoing
from ringcast.sim.threads import Threads
from ringcast.sim.unicast_log import UnicastLog
from ringcast.stack import Instant

if TYPE_CHECKING:
    from ringcast.sim.member import Member


class Producer:
    """Sends the messages of one member, from `threads` threads for each destination, or
    from none."""

    def __init__(self, member: "Member", threads: int) -> None:
        self.member = member
        self.multicasts = Multicasts(member.log, member.cluster.sends_between)
        self.unicast_logs: dict[Address, UnicastLog] = {}
        self.threads = Threads(self, threads, member.cluster.thread_rng)
        self._begins: set[Address] = set()      # to whom it begins to send with the next turn
        self._begins_multicast = self.multicasts.has_next
        self._ports: dict[Address, SendWindow] = {}  # windows for single members, as last used
        self.is_stopped = False                 # it has left: a channel that closes refuses to send
        self.num_rooms = 0                      # how often a window had room again
        self.num_blockings = 0                  # how often a message found no room
        self.num_waits = 0                      # how often a message had to wait to be bundled
        self.blocked_for = 0                    # nanoseconds in which multicasts waited for room
        self._blocked_since: int | None = None
        self._waits_since: dict[Dest, int] = {}     # since when a destination has no room

    def outgoing(self, dest: Dest) -> Outgoing:
        """Return the messages to `dest`."""
        return self.multicasts if dest is None else self.unicast_logs[dest]

    def has_next(self, dest: Dest) -> bool:
        """Return whether a message to `dest` waits."""
        return self.outgoing(dest).has_next

    # ------------------------------------------------------------------------ what its user does

    def send(self, payloads: list[bytes]) -> int:
        """Push as many as find room now, and forget the others; return how many were
        pushed."""
        waiting, self.multicasts.backlog = self.multicasts.backlog, payloads
        before = len(self.multicasts.log)
        self.push_multicasts(self.member.now)
        self.multicasts.backlog = waiting
        self._note_blocked()
        return len(self.multicasts.log) - before

    def offer(self, count: int, size: int, is_oob: bool = False) -> None:
        """Send `count` messages of `size` bytes and more as soon as there is room. Each
        is unlike all others."""
        start = len(self.multicasts.log) + len(self.multicasts.backlog)
        payloads = [b"%x.%d" % (self.member.incarnation, number) + bytes(size)
                    for number in range(start, start + count)]
        if is_oob:
            self.multicasts.oob.update(payloads)
        self.offer_all(payloads)

    def offer_all(self, payloads: list[bytes]) -> None:
        """Send these messages as soon as there is room, unless it has stopped."""
        if self.is_stopped:
            return
        self._begins_multicast |= not self.multicasts.has_next      # else it waits for room already
        self.multicasts.backlog += payloads

    def offer_unicast(self, dest: Address, count: int, size: int, is_oob: bool) -> None:
        """Send `count` messages of `size` bytes and more to one member, as soon as
        there is room, unless it has stopped."""
        if self.is_stopped:
            return
        self.member.cluster.unicast_log(self.member, dest).offer(count, size, is_oob)
        self._begins.add(dest)

    def give_up_multicasts(self, but: int = 0) -> None:
        """Forget the messages to everybody that found no room, but for so many."""
        self.multicasts.give_up(but)
        self._note_blocked()

    def give_up(self, but: int = 0) -> None:
        """Forget what found no room, but for so many messages to each destination."""
        self.give_up_multicasts(but)
        for log in self.unicast_logs.values():
            log.give_up(but)

    def stop(self) -> None:
        """Send nothing any more."""
        self.is_stopped = True
        self.give_up()
        self.threads.stop()

    # ------------------------------------------------------------------------------------- turns

    def begin(self, now: Instant) -> None:
        """Begin to send what was offered since the last turn."""
        if self._begins_multicast:
            self._begins_multicast = False
            self._begin(None, now)
        for dest in sorted(self._begins):
            self._begin(dest, now)
        self._begins.clear()

    def _begin(self, dest: Dest, now: Instant) -> None:
        if self.threads.count:
            self.threads.begin(dest)
        elif dest is None:
            self.push_multicasts(now)
        else:
            self.push_unicasts(dest, now)

    def resume(self, now: Instant) -> None:
        """Go on, as a window has room again."""
        self.num_rooms += 1
        if self.threads.count:
            self.threads.wake()
            return
        if self.multicasts.has_next:
            self.push_multicasts(now)
            self.member.request_turn()
        for dest, log in self.unicast_logs.items():
            if log.backlog:
                self.push_unicasts(dest, now)

    def push_multicasts(self, now: Instant) -> None:
        """Push the messages to everybody until none waits or there is no room, and send
        the datagrams."""
        window, bundler = self.member.multicast.send_window, self.member.endpoint.bundler
        while self.has_next(None):
            if not self.push_many(None, window):
                break
            if self.has_next(None):
                bundler.flush(None, now, full_only=True)
        bundler.flush(None, now)
        self._note_blocked()

    def push_unicasts(self, dest: Address, now: Instant) -> None:
        """Push the messages to one member until none waits or there is no room, and
        send the datagrams."""
        bundler = self.member.endpoint.bundler
        while self.has_next(dest):
            window = self.open_port(dest)
            if window is None:
                bundler.forget(dest)
                return
            if not self.push_many(dest, window, 1):
                break
            bundler.flush(dest, now, full_only=True)
        bundler.flush(dest, now)

    def log_layers(self) -> None:
        """Add to the log what layers have sent to everybody on their own."""
        log, ring = self.multicasts.log, self.member.multicast.send_window.ring
        while precedes(seqno := (log.offset + len(log)) % MODULUS, ring.hr):
            log.append(ring.get((seqno + 1) % MODULUS))

    # ----------------------------------------------------------------------------------- windows

    def port(self, dest: Dest) -> SendWindow | None:
        """Return the window for `dest` that was used last; None if its connection was
        closed since."""
        return self.member.multicast.send_window if dest is None else self._ports.get(dest)

    def open_port(self, dest: Dest) -> SendWindow | None:
        """Return the window for `dest`, of a new connection if there is none. If `dest`
        is no member, give up the messages to it and return None."""
        if dest is None:
            return self.member.multicast.send_window
        try:
            window = self._ports[dest] = self.member.endpoint.window(dest, self.member.now)
        except NotMemberError:
            self.unicast_logs[dest].give_up()
            return None
        return window

    def close_port(self, dest: Address) -> None:
        """Forget the window of a connection that was closed."""
        self._ports.pop(dest, None)

    def close_ports(self) -> None:
        """Forget all windows for single members: there is a new view."""
        self._ports.clear()

    def push(self, dest: Dest, window: SendWindow) -> int:
        """Push the next message; return what SendWindow.push() leaves to do."""
        self.log_layers()
        outgoing = self.outgoing(dest)
        if outgoing.is_next_large(window):
            return int(LARGE)
        todo = window.push(*outgoing.next())
        self._accept(dest, int(todo != FULL))
        return todo

    def push_many(self, dest: Dest, window: SendWindow, most: int = 0) -> int:
        """Push the next messages, at most `most` of them or of a message's fragments
        (0: all); return how many had room."""
        taken = 0
        self.log_layers()
        while self.has_next(dest) and (not most or taken < most):
            more = self._push_some(dest, window, most)
            taken += more
            if not more or dest is None or window.waiting >= window.batch:
                break
        return taken

    def _push_some(self, dest: Dest, window: SendWindow, most: int) -> int:
        """Push the next messages to everybody, or the next message to one member."""
        outgoing = self.outgoing(dest)
        if outgoing.is_next_large(window):
            return self.push_fragments(dest, window)
        payload, flags = outgoing.next()
        payloads = [payload] if dest is not None else self.multicasts.alike(most)
        taken = window.push_many(payloads, 0, flags)
        self._accept(dest, taken)
        return taken

    def push_fragments(self, dest: Dest, window: SendWindow) -> int:
        """Push fragments of the next message, if it is large; return how many had room,
        or -1 if it is not large."""
        if not self.outgoing(dest).is_next_large(window):
            return -1
        taken = self.outgoing(dest).push_fragments(window, self.member.config)
        self._note_room(dest, bool(taken))
        return taken

    def _accept(self, dest: Dest, taken: int) -> None:
        self._note_room(dest, bool(taken))
        self.outgoing(dest).accept(taken)

    def wait_to_bundle(self, dest: Dest) -> bool:
        """Return whether the first message that waits for `dest` has to wait longer.
        There is a turn when its time is over."""
        if self.member.endpoint.bundler.schedule(dest, self.member.now) is None:
            return False
        self.num_waits += 1
        self.member.schedule.set_alarm()
        return True

    def fragment_sizes(self, payload: bytes) -> list[int]:
        """Return the sizes of a message's fragments, or its own size if it is not
        large."""
        if len(payload) <= self.member.multicast.send_window.largest:
            return [len(payload)]
        size = frag.size_of(self.member.config.max_bundle_size)
        return [size] * (len(payload) // size + 1)

    # ------------------------------------------------------------------------------ blocked time

    def _note_blocked(self) -> None:
        """Add to the blocked time; messages in the backlog have found no room."""
        now = self.member.cluster.now
        if self._blocked_since is not None:
            self.blocked_for += now - self._blocked_since
        self._blocked_since = now if self.multicasts.backlog else None

    def _note_room(self, dest: Dest, has_room: bool) -> None:
        """Note whether messages to `dest` found room. Tell the observer how long they
        had to wait for it."""
        cluster = self.member.cluster
        if not has_room:
            self.num_blockings += 1
            self._waits_since.setdefault(dest, cluster.now)
        elif dest in self._waits_since:
            cluster.observer.blocked_for(self.member, dest,
                                         cluster.now - self._waits_since.pop(dest))
