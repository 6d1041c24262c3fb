"""Publishing: the channel writes what it knows into its status file.

The thread that has the turn does it, at most every 100 ms, and more rarely in a large
group, so that it takes no more than a thousandth of a core. So no thread is added, and
nothing is read while another thread changes it. A fault is written in the turn that
found it, because that is the last one. A status file that cannot be written is given
up, and the channel goes on.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import msgspec

import ringcast
from ringcast import statusfile
from ringcast.channel.sending import Sending
from ringcast.channel.state import State
from ringcast.endpoint import Endpoint
from ringcast.errors import RingcastError
from ringcast.logs import log
from ringcast.snapshot import Event, Rates, Snapshot, Waiting
from ringcast.stack import Effects, Instant
from ringcast.status import Status
from ringcast.statusfile import StatusFile
from ringcast.units import counted
from ringcast.view import View, listed

PAUSE = 100_000_000         # nanoseconds between two snapshots, at least ...
SHARE = 1000                # ... and so many times what one takes ...
LONGEST = 1_000_000_000     # ... but not more than this
SECOND = 1_000_000_000      # nanoseconds over which rates are counted
NEVER: Instant = 1 << 63
QUIET = 2.0                 # seconds
MOST_EVENTS, MOST_NAMED = 64, 5
LONGEST_TEXT = 300          # characters of an event's


class Publishing:
    """Writes the status file of one channel. `place` says where its datagrams go.

    Threads: `publish` in a turn; any thread may call the others.
    """

    def __init__(self, group: str, stack: str, place: str, is_sealed: bool, endpoint: Endpoint,
                 state: State, sending: Sending) -> None:
        self._group, self._stack, self._place, self._is_sealed = group, stack, place, is_sealed
        self._endpoint, self._state, self._sending = endpoint, state, sending
        self._file: StatusFile | None = None
        self._is_closed = False
        self._opened_at = 0
        self._past: deque[tuple[Instant, Status]] = deque()     # of the last second
        self._events: deque[Event] = deque(maxlen=MOST_EVENTS)
        self._num_events = 0
        self.due: Instant = NEVER
        self.reset()

    def reset(self) -> None:
        """Make what threads share: at first, and again in a forked child."""
        self._writing = threading.Lock()

    def open(self) -> None:
        """Make the file, if the option status_file is set and nobody has closed the
        channel meanwhile."""
        if not self._endpoint.config.status_file:
            return
        local = self._endpoint.local
        self._opened_at = time.time_ns()
        self._process = os.getpid(), statusfile.process("self")[1], statusfile.namespace()
        try:
            with self._writing:
                if not self._is_closed:
                    self._file = StatusFile(self._group, local.name, local.incarnation)
                    self.due = 0
        except (OSError, RingcastError) as error:
            log.warning("%s: no status file: %s", local, error)

    def note(self, effects: Effects) -> None:
        """Remember what happened in a turn, if it is for operators."""
        local = self._endpoint.local.name
        for view in effects.views:
            self._add("view", local, "", told(view))
        for notice in effects.notices:
            self._add(notice.kind, notice.who, notice.whom, notice.why)
        for warning in effects.warnings:
            self._add("warning", local, "", warning)
        if effects.fault is not None:
            self._add("fault", local, "", effects.fault)

    def _add(self, kind: str, who: str, whom: str, text: str) -> None:
        self._num_events += 1
        self._events.append(Event(number=self._num_events, at=time.time_ns(), kind=kind, who=who,
                                  whom=whom, text=text[:LONGEST_TEXT]))

    def hurry(self) -> None:
        """Let this turn write, although it is not time."""
        if self._file is not None:
            self.due = 0

    def publish(self, read: Callable[[], Status], now: Instant) -> None:
        """Write what is known now; `read` returns the status. `_writing` keeps another
        thread from closing the file meanwhile."""
        began = time.thread_time_ns()
        with self._writing:
            if self._file is None:
                self.due = NEVER
                return
            try:
                self._file.write(msgspec.msgpack.encode(self._snapshot(read(), now)))
                taken = time.thread_time_ns() - began
                self.due = now + min(max(PAUSE, SHARE * taken), LONGEST)
            except Exception as error:          # whatever it is, the channel goes on
                self.due = NEVER
                log.warning("%s: the status file is given up: %s", self._endpoint.local, error)

    def _snapshot(self, status: Status, now: Instant) -> Snapshot:
        endpoint, view = self._endpoint, self._endpoint.view
        (pid, started, namespace), slowest = self._process, endpoint.slowest()
        return Snapshot(
            group=self._group, name=endpoint.local.name, incarnation=endpoint.local.incarnation,
            stack=self._stack, version=ringcast.__version__, place=self._place,
            is_sealed=self._is_sealed, pid=pid, started=started, namespace=namespace,
            opened_at=self._opened_at, written_at=time.time_ns(),
            quiet_after=max(QUIET, 3 * endpoint.config.heartbeat_interval / 1000),
            capacity=endpoint.config.capacity, max_undelivered=endpoint.max_undelivered,
            state=self._state_name(), fault=self._state.fault,
            view_id=view.id if view is not None else 0,
            is_primary=bool(status.membership.is_primary), peers=endpoint.peers(now),
            absent=[each.name for each in view.absent] if view is not None else [],
            slowest=slowest.name if slowest is not None else None, waiting=[
                Waiting(dest.name if dest is not None else None, (now - since) / 1e9)
                for dest, since in list(self._sending.waiting.values())],
            rates=self._rates(status, now), events=list(self._events), status=status)

    def _state_name(self) -> str:
        if self._state.fault is not None:
            return "failed"
        if self._state.closing:
            return "closing"
        return "joining" if self._endpoint.view is None else "member"

    def _rates(self, status: Status, now: Instant) -> Rates:
        """Return what happened in each of the last seconds: since the snapshot that is
        about one second old."""
        past = self._past
        while len(past) > 1 and now - past[1][0] >= SECOND:
            past.popleft()
        past.append((now, status))
        since, before = past[0]
        if (seconds := (now - since) / 1e9) <= 0:
            return Rates()

        def rate(count: Callable[[Status], int]) -> float:
            return (count(status) - count(before)) / seconds

        return Rates(
            sent=rate(lambda of: of.multicast.hr),
            delivered=rate(lambda of: of.multicast.num_msgs_delivered
                           + of.unicast.unicast_msgs_delivered),
            repeated=rate(lambda of: of.multicast.xmit_rsps_sent
                          + of.unicast.unicast_xmit_rsps_sent),
            requests=rate(lambda of: of.multicast.xmit_reqs_sent
                          + of.unicast.unicast_xmit_reqs_sent),
            duplicates=rate(lambda of: of.multicast.num_duplicates
                            + of.unicast.unicast_duplicates))

    def forget(self) -> None:
        """Give a forked child's copy up; the file is the parent's."""
        self.due = NEVER
        if (file := self._take()) is not None:
            file.forget()

    def close(self) -> None:
        """Remove the file."""
        with self._writing:
            self.due, self._is_closed = NEVER, True
            if (file := self._take()) is not None:
                with suppress(OSError):
                    file.close()

    def _take(self) -> StatusFile | None:
        file, self._file = self._file, None
        return file


def told(view: View) -> str:
    """Return in words what a view is, and what has changed."""
    text = f"view {view.id}, {counted(len(view), 'member')}, led by {view.coordinator.name}"
    for word, named in (("joined", view.joined), ("left", view.left), ("absent", view.absent)):
        if named:
            text += f"; {word}: {listed([member.name for member in named], MOST_NAMED)}"
    return text if view.primary else f"{text}; not primary"
