"""Channel: one member of a group, on real threads and a real transport.

The member itself is an endpoint (endpoint.py), which the driver gives its turns (driver.py).
Application threads otherwise touch the send windows only.

What is delivered goes through a queue to the application: an iterator, or callbacks on a thread of
their own. A batch counts as delivered, and is acknowledged, when the application has finished it: asks
for the next one, or returns from the callback. So a slow application slows its senders down, and
nothing that it never finished is ever acknowledged (inbox.py).

A signal handler may call the channel that it interrupted (reentry.py). A forked child's copy gives its
descriptors back at once: all that it may do is close.
"""

import atexit
import logging
import os
import secrets
import threading
import time
import warnings
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, NoReturn, Self, TypeVar
from weakref import WeakSet, ref

from ringcast import arguments
from ringcast._core.batch import Batch, Message
from ringcast._core.send_window import BUNDLE, FULL, LARGE, SendPort, SendWindow
from ringcast.address import Address, Life
from ringcast.channel.driver import Driver
from ringcast.channel.inbox import Hand, Inbox
from ringcast.channel.reentry import REENTERED, Bell, at, enters
from ringcast.config import check_xmit_interval, configure, milliseconds
from ringcast.digest import Digest
from ringcast.endpoint import Endpoint, Fragments
from ringcast.errors import (
    ClosedError,
    ConfigError,
    JoinTimeoutError,
    MessageTooLargeError,
    NotMemberError,
    RingcastError,
    SendTimeoutError,
)
from ringcast.message import Flag
from ringcast.protocols import frag
from ringcast.protocols.bundler import Dest
from ringcast.stack import Effects, Instant, Layer
from ringcast.stacks import STACKS
from ringcast.trace.recorder import Recorder
from ringcast.trace.writer import Writer
from ringcast.view import View

log = logging.getLogger("ringcast")

LOOKS = 1000                            # of a signal handler at what other threads change
READY = 1.0                             # seconds that the others get to be ready for our stream, before it begins all the same
GRACE = 1.0                             # seconds that threads get to end when close() has no time left

OnMessage = Callable[[Batch], object]
OnView = Callable[[View], object]
Result = TypeVar("Result")


def instant(moment: float | None) -> Instant | None:
    """Return a moment of time.monotonic() as the endpoint counts it; None is never."""
    return None if moment is None else int(moment * 1e9)


def seconds(instant: Instant | None) -> float | None:
    """Return the opposite of `instant`."""
    return None if instant is None else instant / 1e9


class Channel(SendPort):
    """A member of `group`, which is a list of names given at start.

    `members` names everybody, this member (`name`) included; left out, the group is this member alone. `stack` names the protocol
    for messages to everybody and what carries it: "mcast-udp" (acks over UDP multicast, loopback unless told otherwise), "nakack2-udp"
    (negative acks), "mcast-tcp", "nakack2-tcp" (connections, which retransmit themselves) or "inproc" (members of one process). All
    members must have the same. `on_message` is called with each Batch and
    `on_view` with each View, on a thread of the channel's; without `on_message`, iterate. `on_undelivered` is called there too, with a
    Batch of messages that were sent to one member (`dest`) that left before it had acknowledged them. `deliver=False` makes a member
    that only sends: it gets no messages, and nobody waits for it. `resume` is the Digest of what this member had got in an earlier
    life; senders that still have what follows it will send that first. Without it, a member that comes back gets what was kept for its
    former life, of which that may have finished a part. `life` makes several processes, one after the other, one member
    with one stream (see Life), for which it takes deliver=False: killed and started again, it sends again what not all had
    acknowledged, and members drop what they have. All of them must have the same max_bundle_size and max_datagram (off
    loopback: a network of the same MTU), and send from one thread. `faults` are layers from ringcast.protocols.faults. All other
    keywords are properties, see ringcast.config.Config.

    Raises ConfigError for a wrong argument and TransportError when the operating system refuses the transport.

    Threads: every method may be called from any thread. Whatever a callback raises is logged and counted, and the next one follows. A
    signal handler may call close(), status() and digest() at any time, and send(), which raises RingcastError if it interrupted a call
    of this channel and cannot do without waiting. In a forked child every call but close(), status() and digest() raises ClosedError.

    Close every channel. One that is dropped leaves its group as soon as Python collects it, with a ResourceWarning, and what was not
    acknowledged by then may be lost.
    """

    def __init__(self, group: str, *, name: str | None = None, members: Sequence[str] | None = None, stack: str = "mcast-udp",
                 on_message: OnMessage | None = None, on_view: OnView | None = None, on_undelivered: OnMessage | None = None,
                 deliver: bool = True, resume: Digest | None = None, life: Life | None = None, faults: Sequence[Layer] = (),
                 **options: Any) -> None:
        self.config = configure(options, stack)
        self.stack = stack
        self.group = arguments.text("group", group)
        name = f"member-{secrets.token_hex(4)}" if name is None else arguments.member_name("name", name)
        names = (name,) if members is None else arguments.member_names(members)
        self._on_message = arguments.callback("on_message", on_message)
        self._on_view = arguments.callback("on_view", on_view)
        self._on_undelivered = arguments.callback("on_undelivered", on_undelivered)
        deliver = arguments.boolean("deliver", deliver)
        resume = arguments.digest("resume", resume)
        faults = arguments.instances("faults", faults, Layer)
        life = arguments.life(life, deliver) or Life(secrets.randbelow((1 << 64) - 1) + 1)
        self.address = Address(name, life.incarnation)
        with ExitStack() as undo:                       # what a constructor that fails has opened is closed
            self._transport = STACKS[stack].carrier.open(group, self.address.incarnation, self.config)
            undo.callback(self._transport.close)
            self.config = self.config.fitted(self._transport.max_datagram)
            conn_id = (life.stint << 32) + secrets.randbits(31)     # not to be guessed, and above those of an earlier process
            self._endpoint = Endpoint(
                stack, self.address, names, self.config, group=group, physical=self._transport.physical,
                receive_budget=self._transport.receive_budget, resume=resume, receiving=deliver, life=life,
                conn_id=conn_id, timestamp=life.stint << 32, faults=faults, anchor=time.time_ns() - time.monotonic_ns())
            writer = Writer(self.config.trace, str(self.address), life.stint) if self.config.trace else None
            undo.pop_all()
        self._multicast, self._unicast = self._endpoint.multicast, self._endpoint.unicast
        self._open_port(self._multicast.send_window)
        self._trace = Recorder(writer, self.address, self._multicast, self._unicast) if writer is not None else None
        self._driver = Driver(self._endpoint, self._transport, self._trace, self._perform, self._break_off, self._on_poll_error)
        if self._trace is not None:
            self._trace.resumes(resume or Digest(), *self._driver.clocks())
        self._begin()
        self._rooms = 0                                 # how often a send window got room
        self._fault: str | None = None
        self._closing = self._stopped = self._closed = self._forked = False
        self._unacked = self._num_blockings = self._callback_errors = 0
        self._threads: list[threading.Thread] = []
        CHANNELS.add(self)

    def _begin(self) -> None:
        """Make what threads share: locks, and what they wait for."""
        self._inside: set[int] = set()                  # threads at work in here (reentry.py)
        self._room = Bell()                             # the send window has room, or the channel is closed
        self._settled = Bell()                          # a view came, or everything is acknowledged, or the channel is closed
        self._inbox = Inbox(self._wait_for_news, self._driver.finish, self._transport.wake)
        self._calls: SimpleQueue[tuple[Callable[[Any], object], Any] | None] = SimpleQueue()    # for the callbacks' thread
        self._large: dict[Dest, threading.Lock] = {}    # held while a message goes out in fragments
        self._may_close = deque([True])                 # for the one who begins to close
        self._close_by: float | None = None             # when that waits no longer for acks, by time.monotonic(); None: for ever

    # ------------------------------------------------------------------------------------------------ life cycle

    def connect(self, timeout: float | None = None) -> Self:
        """Join: returns when every listed member has appeared (or is known to have left).

        `timeout` in seconds, default join_timeout; JoinTimeoutError names who is missing, and the channel is closed.
        """
        timeout = arguments.timeout(timeout)
        self._start_up()
        seconds = self.config.join_timeout / 1000 if timeout is None else timeout
        self._wait_settled(at(seconds), lambda: self.view is not None)
        if self.view is None:
            error = self._join_error(seconds)
            self.close(0)
            raise error
        self._wait_settled(at(READY), self._multicast.is_ready)
        return self

    def _join_error(self, seconds: float) -> RingcastError:
        """Say why there is no view yet."""
        missing = ", ".join(self._endpoint.members.missing())
        if self._closing:
            return ClosedError(self._fault or "the channel was closed while it joined; open a new one")
        if missing:
            return JoinTimeoutError(f"{missing} of group {self.group!r} did not appear within {seconds:g} s; "
                                    "start every listed member, or list fewer")
        return JoinTimeoutError(f"joining group {self.group!r} took more than {seconds:g} s although every "
                                "listed member is there; give connect() more time")

    @enters
    def _start_up(self) -> None:
        self._check_open()
        if self._threads:
            raise RingcastError("this channel is connected already; use it as it is")
        self._driver.in_turn(self._endpoint.start)
        self._start(self._driver.poller.run_driver, "driver")
        if (self._on_message, self._on_view, self._on_undelivered) != (None, None, None):
            # One thread visits: that which gets the messages.
            visits = self._driver.poller.poll_from_caller if self._on_message is not None else None
            self._start(partial(call_back, ref(self), self._calls, visits), "callbacks")
        self._settled.ring()                            # for who iterates already

    @property
    def _thread_name(self) -> str:
        return f"ringcast {self.group} {self.address.name}"

    def _check_open(self) -> None:
        if self._closing:
            raise ClosedError(self._fault or "this channel is closed; open a new one")

    def _start(self, target: Callable[[], None], role: str) -> None:
        thread = threading.Thread(target=target, name=f"{self._thread_name} {role}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def close(self, timeout: float | None = 5.0, *, leave: bool = True) -> int:
        """Leave: wait until everybody has acknowledged what was sent, at most `timeout` seconds (None: for ever), then go.

        With leave=False go without a word, as in a crash: the others keep what this member has not acknowledged and wait for it,
        until it is excluded, or comes back under its name and gets that (see `resume`).

        Blocked senders get ClosedError and iterators end; what the application had not finished is not acknowledged. A callback that
        does not return keeps close() no longer than `timeout` (and leave_timeout for the others to notice); what it was given is
        not acknowledged, no other callback follows, and its thread is a daemon. Returns how
        many of the own messages somebody has not acknowledged, those to single members included: 0 means that every member of
        the view has finished all of them. Those who left or were excluded do not count; what was for such a member alone goes
        to on_undelivered. Closing again returns the same.

        May be called in a signal handler at any time. If that interrupted another call of this channel, which must go on first,
        close() returns the number of that moment at once; a thread of the channel's goes on to close it, and the next close(), or the
        end of the program, waits for that.
        """
        timeout = arguments.timeout(timeout)
        is_interrupting = threading.get_ident() in self._inside
        self._begin_to_close(timeout, leave, is_interrupting)
        if is_interrupting:
            atexit.register(self._await_closed, timeout)
            return self._unacked if self._closed else self._num_unacked()
        self._await_closed(timeout)
        return self._unacked if self._closed else self._num_unacked()

    def _begin_to_close(self, timeout: float | None, leave: bool, is_interrupting: bool) -> None:
        """See that a thread closes the channel: this one holds what the driver may need when it is in a signal handler."""
        by, me = at(timeout)(), threading.current_thread()
        ticket = False
        try:
            self._inside.add(threading.get_ident())
            ticket = bool(self._may_close) and self._may_close.pop()
            if not ticket:
                if by is not None and (self._close_by is None or by < self._close_by):
                    self._close_by = by                 # whoever is in more of a hurry shortens the wait
                    self._hurry()
                    self._settled.ring()
                return
            self._close_by, self._closing = by, True
            threading.Thread(target=self._close, args=(timeout, leave, me), name=f"{self._thread_name} closing", daemon=True).start()
            ticket = False
        except IndexError:                              # another thread was faster
            pass
        finally:
            if ticket:                                  # there is no such thread
                self._may_close.append(True)
            if not is_interrupting:
                self._inside.discard(threading.get_ident())

    def _await_closed(self, timeout: float | None) -> None:
        """Wait for the thread that closes; whatever happens to it, not much longer than it may take."""
        longest = None if timeout is None else timeout + 2 * self.config.leave_timeout / 1000 + 2 * GRACE
        self._settled.wait_for(lambda: self._closed, at(longest))

    def _close(self, timeout: float | None, leave: bool, caller: threading.Thread) -> None:
        try:
            self._close_windows()
            self._release_waiters()
            if leave and self.view is not None and not self._stopped:
                self._leave()
        except Exception:
            log.exception("%s: leaving failed", self.address)
        self._halt(self._fault)
        self._join_threads(caller)
        self._transport.close()
        self._unacked = self._num_unacked()
        if self._trace is not None:
            self._trace.close(leave and self._fault is None and self.view is not None, self._unacked, *self._driver.clocks())
        if self._unacked and timeout != 0:
            log.warning("%s closed with %d messages that somebody has not acknowledged", self.address, self._unacked)
        self._closed = True
        self._settled.ring()

    def _join_threads(self, caller: threading.Thread) -> None:
        """Wait for the threads, but for the one that calls close(), and for a callback that hangs no longer than the timeout says."""
        for thread in self._threads:
            if thread is not caller:
                left = None if self._close_by is None else max(GRACE, self._close_by - time.monotonic())
                thread.join(left)
                if thread.is_alive():
                    log.warning("%s: thread %r does not end; what it was given is not acknowledged", self.address, thread.name)

    def _leave(self) -> None:
        """Leave in good order (endpoint.Leaving). When nobody else takes the turn in which it goes on,
        this thread does."""
        self._driver.take_back()
        self._driver.in_turn(partial(self._endpoint.leave, instant(self._close_by)))
        self._hurry()
        leaving = self._endpoint.leaving
        while leaving is not None and not (self._stopped or leaving.is_over):
            self._wait_settled(lambda: seconds(leaving.deadline()), lambda: leaving.is_over)
            self._driver.in_turn(self._endpoint.tick)

    def _hurry(self) -> None:
        """See that leaving takes no longer than close() may."""
        if (leaving := self._endpoint.leaving) is not None:
            leaving.by = instant(self._close_by)
            self._driver.rouse()

    def _num_unacked(self) -> int:
        return self._endpoint.num_unacked()

    def _close_windows(self) -> None:
        """Nothing is sent any more."""
        self._multicast.send_window.close()
        for window in self._forget_ports():
            window.close()

    def _wait_settled(self, until: Callable[[], float | None], condition: Callable[[], bool]) -> None:
        self._transport.wake()
        self._settled.wait_for(lambda: self._stopped or condition(), until)

    def _break_off(self, error: BaseException) -> None:
        """A signal handler's exception came in the middle of a turn: what that had in hand is lost. So nothing is delivered or finished
        any more (an ack might cover what was lost), but close() can still say goodbye."""
        self._closing = True
        self._fault = (f"{type(error).__name__} came in the middle of this member's work, from a signal handler most likely; open a "
                       "new channel, and let handlers set a flag or call close() rather than raise")
        self._close_windows()
        self._inbox.end()
        self._release_waiters()

    def _halt(self, fault: str | None) -> None:
        """Stop the threads, from whichever thread; close() gives the sockets back."""
        self._fault = fault
        self._closing = self._stopped = True
        self._close_windows()
        self._inbox.end()
        self._calls.put(None)
        self._release_waiters()
        self._driver.poller.stop()

    def _release_waiters(self) -> None:
        self._room.ring()
        self._settled.ring()

    def __enter__(self) -> Self:
        if self._forked:
            self._check_open()
        return self if self.view is not None else self.connect()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # --------------------------------------------------------------------------------------------------- sending

    @enters
    def send_many(self, payloads: Sequence[bytes], dest: Address | str | None = None, timeout: float | None = None, *,
                  flags: int = 0) -> None:
        """Send all of `payloads`, in order; one call costs less than many. Arguments and errors as in `send`.

        SendTimeoutError says how many were sent; the rest, from there on, was not. `timeout` holds for each wait.
        """
        payloads = arguments.payloads(payloads)
        flags = arguments.flags(flags)
        timeout = arguments.timeout(timeout)
        to = self._member(dest)
        if flags & Flag.NO_RELIABILITY:
            for payload in payloads:
                self._send_unreliable(payload, to, flags)
            return
        window, sent = self._window(to), 0
        while sent < len(payloads):
            taken = window.push_many(payloads, sent, flags)
            if not taken and len(payloads[sent]) > window.largest:
                self._send_large(payloads[sent], to, flags, timeout)
                taken = 1
            elif not taken:
                taken, window = self._retry(partial(self._push_many, payloads, sent, to, flags), to, timeout,
                                            f"; {sent} of {len(payloads)} messages were sent")
            sent += taken
            if sent < len(payloads):
                self._flush(to, full_only=True)
        self._after_first(to, window)

    @enters
    def _send_otherwise(self, payload: bytes, dest: Address | str | None, flags: int, timeout: float | None) -> None:
        """The first message to a member, or one with flags that a window does not have."""
        flags = arguments.flags(flags)
        timeout = arguments.timeout(timeout)
        to = self._member(dest)
        if flags & Flag.NO_RELIABILITY:
            self._send_unreliable(payload, to, flags)
            return
        window = self._window(to)
        todo = window.push(payload, flags)
        if isinstance(dest, str):
            self._remember_port(dest, window)           # by its name, until the next view
        if todo:
            self._see_to(todo, window, payload, to, flags, timeout)

    def _member(self, dest: Address | str | None) -> Dest:
        """Whom the caller means; NotMemberError when no such member is in the view."""
        if dest is None or isinstance(dest, Address):
            return dest
        if not isinstance(dest, str):
            raise TypeError(f"dest is a member's Address or its name, not {type(dest).__name__}")
        for member in self.view.members if self.view is not None else ():
            if member.name == dest:
                return member
        raise NotMemberError(f"no member {dest!r} is in the view, which is {self.view}")

    def _window(self, dest: Dest) -> SendWindow:
        """Where messages to `dest` go; its connection is opened when there is none. NotMemberError when it left."""
        if dest is None:
            return self._multicast.send_window
        return self._driver.in_turn(partial(self._open_window, dest))

    def _open_window(self, dest: Address, now: Instant) -> SendWindow:
        self._check_open()
        window = self._endpoint.window(dest, now)
        self._remember_port(dest, window)
        return window

    def _send_unreliable(self, payload: bytes, dest: Dest, flags: int) -> None:
        if not isinstance(payload, bytes):
            raise TypeError(f"a payload is bytes, not {type(payload).__name__}; encode it first")
        if len(payload) > self.max_payload:
            raise MessageTooLargeError(f"a message of {len(payload)} bytes does not fit the one datagram that NO_RELIABILITY is; the "
                                       f"largest has {self.max_payload}")
        self._driver.in_turn(partial(self._send_one, payload, dest, flags))
        if dest in (None, self.address):
            self._driver.rouse()                        # it delivers

    def _send_one(self, payload: bytes, dest: Dest, flags: int, now: Instant) -> None:
        self._check_open()
        self._endpoint.send_unreliable(payload, dest, flags, now)

    def _send_large(self, payload: bytes, dest: Dest, flags: int, timeout: float | None) -> None:
        """A message that does not fit a datagram goes in fragments, one such message at a time in each stream. When a fragment finds
        no room for long, the others will not have what is there of the message, and nobody else of it either (frag.py)."""
        fragments = Fragments(payload, flags, self.config)
        patience = self.config.frag_timeout / 2000
        with self._large.setdefault(dest, threading.Lock()):
            while not fragments.is_sent:
                if not fragments.push(self._window(dest)):
                    self._retry(partial(self._push_fragments, fragments, dest), dest,
                                patience if timeout is None else min(timeout, patience),
                                f"; {fragments.sent} of {len(fragments.pieces)} fragments were sent, and nobody will be given "
                                "the message")
                self._flush(dest, full_only=not fragments.is_sent)

    def _push_fragments(self, fragments: Fragments, dest: Dest) -> int | None:
        """Return how many were taken, or None when there was no room."""
        return fragments.push(self._window(dest)) or None

    def _after_push(self, todo: int, window: SendWindow, payload: bytes, dest: Address | str | None, flags: int,
                    timeout: float | None) -> None:
        """The message completed a datagram, is the first to wait, or was not taken: no room, or too large for a datagram. In a signal
        handler that interrupted a call of this channel, who drives sees to what was taken."""
        if threading.get_ident() not in self._inside:
            self._enter_and_see_to(todo, window, payload, dest, flags, timeout)
        elif todo in (FULL, LARGE):
            self._check_open()
            raise RingcastError(REENTERED)
        else:
            self._endpoint.bundler.due[self._member(dest)] = time.monotonic_ns()
            self._driver.rouse()

    def _see_to(self, todo: int, window: SendWindow, payload: bytes, dest: Address | str | None, flags: int,
                timeout: float | None) -> None:
        to = self._member(dest)
        if todo == LARGE:
            self._send_large(payload, to, flags, timeout)
            return
        if todo == FULL:
            todo, window = self._retry(partial(self._push, payload, to, flags), to, timeout)
        if todo == BUNDLE:
            self._flush(to, full_only=True)
        else:
            self._after_first(to, window)

    _enter_and_see_to = enters(_see_to)

    def _push(self, payload: bytes, dest: Dest, flags: int) -> tuple[int, SendWindow] | None:
        """Return what is left to do and the window, which may be that of a new connection; None when there was no room."""
        window = self._window(dest)
        todo = window.push(payload, flags)
        return None if todo == FULL else (todo, window)

    def _push_many(self, payloads: list[bytes], start: int, dest: Dest, flags: int) -> tuple[int, SendWindow] | None:
        """Return how many were taken and the window, which may be that of a new connection; None when there was no room."""
        window = self._window(dest)
        taken = window.push_many(payloads, start, flags)
        return (taken, window) if taken else None

    def _after_first(self, dest: Dest, window: SendWindow) -> None:
        """A message waits for company: send it at once when all is quiet, else see that the driver does before long."""
        if window.waiting:
            due = self._endpoint.bundler.wait(dest, time.monotonic_ns())
            if due is None:
                self._flush(dest, full_only=False)
            else:
                self._driver.call(due)

    def _flush(self, dest: Dest, full_only: bool) -> None:
        if not self._stopped:
            self._driver.flush(dest, full_only)

    def _retry(self, attempt: Callable[[], Result | None], dest: Dest, timeout: float | None, progress: str = "") -> Result:
        """Attempt again whenever the window has room, until it returns something (decision 12: room, view, close, timeout)."""
        self._num_blockings += 1
        began = time.monotonic_ns()
        try:
            return self._retry_until(at(timeout), attempt, dest, timeout, progress)
        finally:
            if self._trace is not None:
                self._trace.blocked(time.monotonic_ns() - began, dest, *self._driver.clocks())

    def _retry_until(self, until: Callable[[], float | None], attempt: Callable[[], Result | None], dest: Dest, timeout: float | None,
                     progress: str) -> Result:
        self._flush(dest, full_only=False)
        while True:
            seen = self._rooms
            if not self._closing and (result := attempt()) is not None:
                return result
            if not self._room.wait_for(partial(self._has_room_since, seen), until):
                raise SendTimeoutError(f"no room in the send window within {timeout:g} s{progress}; {self._slowest(dest)}")
            if self._closing:
                raise ClosedError(self._fault or f"the channel is closed{progress}; open a new one to send")

    def _has_room_since(self, rooms: int) -> bool:
        return self._rooms != rooms or self._closing

    def _slowest(self, dest: Dest) -> str:
        """Who keeps the window full, for the message of a timeout."""
        if dest is not None:
            return f"{dest} does not acknowledge; exclude it if it is dead, or send less"
        slowest = self._multicast.slowest()
        if slowest == self.address.incarnation:
            return "this member does not take its own messages: iterate the channel, or pass on_message or deliver=False"
        names = [member.name for incarnation, member in self._multicast.members.items() if incarnation == slowest]
        return f"the slowest to acknowledge is {''.join(names) or 'nobody'}; exclude it if it is dead, or send less"

    # ------------------------------------------------------------------------------------------------- receiving

    def __iter__(self) -> Iterator[Message]:
        """Messages as they are delivered, until the channel is closed.

        A message is finished, and acknowledged, when the thread that got it asks for another: with this iterator or with a new one. So
        `for message in channel: ... break` keeps the last message unfinished until then, and what the iterator had not handed out goes
        to the next one, in order. (If that thread never asks again, it is finished with what another thread finishes after it.)
        """
        for hand in self._hands():
            for index, batch in enumerate(hand.batches):
                messages = iter(batch)
                try:
                    yield from messages
                except BaseException:
                    hand.leave(index, messages)
                    raise

    def batches(self) -> Iterator[Batch]:
        """The same in batches, each of one sender's consecutive messages: several times faster."""
        for hand in self._hands():
            for number, batch in enumerate(hand.batches, 1):
                try:
                    yield batch
                except BaseException:
                    hand.leave(number)
                    raise

    def deliveries(self) -> Iterator[list[Batch]]:
        """The same in lists of all batches that are there at the time. Asking for the next list finishes the one before:
        only then are its messages acknowledged. Several threads may iterate; each batch goes to one of them, and an ack waits for
        all who took something earlier.
        """
        self._check_iterable()
        return (hand.batches for hand in self._hands())

    def _check_iterable(self) -> None:
        if self._on_message is not None:
            raise ConfigError("the messages of this channel go to on_message; leave that out to iterate")

    def _hands(self) -> Iterator[Hand]:
        self._check_iterable()
        held: list[Hand] = []
        try:
            while self._take_into(held):
                yield held[0]
                self._finish_hand(held)
        except BaseException:
            for hand in held:
                self._inbox.drop(hand)
            raise

    @enters
    def _take_into(self, held: list[Hand]) -> bool:
        if self._forked:
            self._check_open()
        return self._inbox.take(held)

    @enters
    def _finish_hand(self, held: list[Hand]) -> None:
        self._inbox.finished(held.pop())

    def _wait_for_news(self, condition: Callable[[], bool]) -> None:
        """For who iterates: it polls meanwhile."""
        if not self._threads:
            self._settled.wait_for(lambda: condition() or bool(self._threads), at(None))
        if not condition():
            self._driver.poller.poll_from_caller(condition)

    def _call(self, callback: Callable[[Any], object], argument: Any) -> None:
        """Whatever a callback raises, SystemExit and CancelledError included, ends that call and no more."""
        try:
            callback(argument)
        except BaseException:
            self._callback_errors += 1
            log.exception("%s: a callback failed on %r; the next one follows", self.address, argument)
        if callback is self._on_message:
            self._driver.finish([argument])

    # ------------------------------------------------------------------------------------------------ the driver

    def _on_poll_error(self, error: BaseException, polling: bool) -> None:
        """Raise what a signal handler raised in the application's thread. Any other error is our own: it stops the
        channel loudly rather than leave anybody waiting."""
        if self._closed:                                # between two looks at whether it is
            return
        if threading.get_ident() in self._inside and (polling or not isinstance(error, Exception)):
            raise error
        log.error("%s: the driver failed", self.address, exc_info=error)
        self._halt("the channel failed for a reason of its own, which is in the log; open a new one and please report it")

    def _perform(self, effects: Effects) -> None:
        """Do what a turn asked for, as far as it concerns the application, in the order of the fields. The caller holds the turn."""
        for view in effects.views:
            self._forget_ports()                        # who left, or comes back under its name, is looked up anew
            if self._on_view is not None:
                self._calls.put((self._on_view, view))
        if effects.deliveries and not self._driver.is_broken:
            self._hand_over(effects.deliveries)
        for batch in effects.failures:
            self._report(batch)
        for warning in effects.warnings:
            log.warning("%s: %s", self.address, warning)
        for dest in effects.closed:
            self._forget_port(dest)
            self._large.pop(dest, None)
        if effects.writable:
            self._rooms += 1
            self._room.ring()
        if effects.views or effects.writable or self._closing:
            self._settled.ring()
        if effects.fault is not None:
            self._halt(effects.fault)

    def _report(self, batch: Batch) -> None:
        """Messages to one member that it will not get."""
        if self._on_undelivered is not None:
            self._calls.put((self._on_undelivered, batch))
        else:
            log.warning("%s: %d messages to %s were not acknowledged before it left", self.address, len(batch), batch.dest)

    def _hand_over(self, batches: list[Batch]) -> None:
        if self._on_message is None:
            self._inbox.put(batches)
        else:
            for batch in batches:
                self._calls.put((self._on_message, batch))

    # --------------------------------------------------------------------------------------------------- the group

    @property
    def view(self) -> View | None:
        """The members as this one sees them; None before connect."""
        return self._endpoint.view

    @enters
    def exclude(self, name: str) -> None:
        """Take a member that died out of the group, for everybody: nobody waits for it any longer.

        What it sent and not everybody got may then be known to some and unknown to others. If it is alive after all, its channel
        closes. ConfigError when `name` is not in the list of members.
        """
        if arguments.member_name("name", name) == self.address.name:
            raise ConfigError("a member leaves by closing its channel; exclude() is for others")
        if self._closed:
            self._check_open()
        self._driver.in_turn(partial(self._endpoint.members.exclude, name))
        self._driver.call(0)

    @property
    def xmit_interval(self) -> float:
        """Milliseconds between two looks for gaps, now; 0 or less: messages to everybody are not retransmitted.

        May be set while the channel is in use, and nothing is lost by that. 0 or less is for nakack2-tcp alone, where the connections
        retransmit; ConfigError for any other stack.
        """
        return self._multicast.interval / 1_000_000

    @xmit_interval.setter
    @enters
    def xmit_interval(self, value: float) -> None:
        check_xmit_interval(arguments.number("xmit_interval", value), self.stack)
        if self._closed:
            self._check_open()
        self._driver.in_turn(partial(self._multicast.change_interval, milliseconds(value)))
        self._driver.call(0)

    @property
    def fault(self) -> str | None:
        """Why this channel closed by itself; None if it did not."""
        return self._fault

    @property
    def acknowledged(self) -> int:
        """Every member of the view has acknowledged this one's messages to everybody up to this
        seqno. A member that died is one until it is excluded, and then its next life is."""
        return self._multicast.send_window.ring.low

    @property
    def slowest(self) -> str | None:
        """The name of a member that has not acknowledged the oldest message to everybody that is kept for others; None if none is, or
        as long as it is not known."""
        if self._multicast.unacked():
            slowest = self._multicast.slowest()
            return next((member.name for member in (self.view.members if self.view else ()) if member.incarnation == slowest), None)
        return None

    @property
    def max_payload(self) -> int:
        """The bytes of a message that fits one datagram: ringcast.MAX_PAYLOAD on loopback, else what a frame of the interface
        carries. A larger message travels in fragments."""
        return self._multicast.send_window.largest

    @property
    def fragment_size(self) -> int:
        """A message of more than `max_payload` bytes takes one seqno for each so many bytes of it, or part of them; any other
        takes one."""
        return frag.size_of(self.config.max_bundle_size)

    def digest(self) -> Digest:
        """The highest seqno of each sender that the application has finished."""
        return self._look(self._multicast.digest)

    def status(self) -> dict[str, int]:
        """Pointers and counters of every layer, of the transport and of this channel, by the texts' names."""
        return self._look(lambda: {
            **self._endpoint.status(), **self._transport.status(), "num_blockings": self._num_blockings,
            "num_callback_errors": self._callback_errors})

    def _look(self, read: Callable[[], Result]) -> Result:
        """Read something of the stack. A signal handler that interrupted a call of this channel reads it as it stands: it cannot wait
        for the turn. Another thread may change a table meanwhile, so it may have to look again."""
        if threading.get_ident() not in self._inside:
            return self._look_in_turn(read)
        for _ in range(LOOKS):
            try:
                return read()
            except RuntimeError:
                continue
        raise RingcastError(REENTERED)

    @enters
    def _look_in_turn(self, read: Callable[[], Result]) -> Result:
        return self._driver.read(read)

    # ------------------------------------------------------------------------------- dropped, and in other processes

    def __del__(self) -> None:
        """Nobody has closed this channel, and nobody can any more. A garbage collector may call this in the middle of anything, so
        another thread does the rest."""
        if getattr(self, "_closed", True):              # or the constructor failed
            return
        warnings.warn(f"{self.address} of group {self.group!r} was dropped without close(); it leaves its group, and messages that "
                      "were not acknowledged may be lost", ResourceWarning, stacklevel=2, source=self)
        with suppress(RuntimeError):                    # the interpreter ends
            start_new_thread(self._go, ())

    def _go(self) -> None:
        """Leave, as far as that goes without waiting for anybody."""
        if self.view is not None and not self._stopped:
            with suppress(Exception):
                self._driver.in_turn(partial(self._endpoint.leave, 0))
        self._close(0, False, threading.current_thread())

    def _forget(self) -> None:
        """Be of no use: this is a forked child's copy. Close its descriptors, and touch nothing that the parent shares. Threads that
        are not here may have held the locks, so there are new ones."""
        self._fault = "this channel belongs to the process that opened it, of which this one is a fork; open a channel of its own here"
        self._closing = self._stopped = self._closed = self._forked = True
        self._unacked = self._num_unacked()
        self._trace = self._driver.trace = None
        self._threads = []
        self._driver.begin()
        self._begin()
        self._close_windows()
        self._inbox.end()
        self._calls.put(None)
        self._transport.forget()

    def __reduce__(self) -> NoReturn:
        raise RingcastError("a channel stays in the process that opened it; give the other process the group and the members, and open "
                            "a channel there")


def call_back(channel_ref: "ref[Channel]", calls: "SimpleQueue[tuple[Callable[[Any], object], Any] | None]",
              visit: Callable[[Callable[[], bool]], None] | None) -> None:
    """Be the callbacks' thread: call with views and batches in the order of their installation and delivery. As in poll_once, nothing
    here holds the channel while there is nothing to do."""
    try:
        while True:
            if visit is not None and calls.empty():
                visit(lambda: not calls.empty())
            call = calls.get()
            if call is None or (channel := channel_ref()) is None or channel._closed:
                return
            channel._call(*call)
            del call, channel
    except BaseException as error:                      # thrown into this thread from elsewhere, not by a callback
        if (channel := channel_ref()) is not None:
            log.error("%s: the callbacks' thread failed", channel.address, exc_info=error)
            channel._halt("the callbacks' thread failed, see the log; open a new channel")


CHANNELS: WeakSet[Channel] = WeakSet()


def _forget_all() -> None:
    for channel in tuple(CHANNELS):
        channel._forget()


os.register_at_fork(after_in_child=_forget_all)
