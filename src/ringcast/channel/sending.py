"""The slow part of sending: to open a window, to flush bundled messages, to wait for
room.

The fast part, to push a message into a window, is compiled (SendPort in
send_window.pyx); most messages need no more. If this member may not send, because only
the primary part of its group goes on, the windows are closed or forgotten: so every
send comes here.

A send that finds no room tries again whenever a window has room again, until it
succeeds, the channel closes, or the timeout is over (decision 12). When a send raises,
nothing of its message was sent. Large messages are the exception: some fragments may
have been sent, and no member is given the message (frag.py).
"""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ringcast import arguments
from ringcast._core.send_window import BUNDLE, FULL, LARGE, SendWindow
from ringcast.address import Address
from ringcast.channel.driver import Driver
from ringcast.channel.pauses import Pause, Steps, run
from ringcast.channel.reentry import REENTERED, deadline_after, refuses_reentry
from ringcast.channel.state import State
from ringcast.endpoint import Fragments
from ringcast.errors import (
    ClosedError,
    MessageTooLargeError,
    NoQuorumError,
    NotMemberError,
    RingcastError,
    SendTimeoutError,
)
from ringcast.flags import STATE, Flag
from ringcast.protocols.bundler import Dest
from ringcast.stack import Instant

Result = TypeVar("Result")


class Sending:
    """Sends for one channel. `remember_port(dest, window)` makes SendPort push messages
    to `dest` into this window; `forget_ports` undoes that for all members, and returns
    their windows.

    Threads: any thread may call everything.
    """

    def __init__(self, state: State, driver: Driver,
                 remember_port: Callable[[Address | str, SendWindow], None],
                 forget_ports: Callable[[], list[SendWindow]]) -> None:
        self._state, self._driver, self._endpoint = state, driver, driver.endpoint
        self._multicast = driver.endpoint.multicast
        self._remember_port, self._forget_ports = remember_port, forget_ports
        self._inside = state.inside                     # for refuses_reentry
        self._num_rooms = 0                                 # how often a send window had room again
        self.num_blockings = 0
        # Calls that wait for room: to whom, and since when.
        self.waiting: dict[object, tuple[Dest, Instant]] = {}
        self.reset()

    def reset(self) -> None:
        """Make what threads share: at first, and again in a forked child."""
        self.waiting.clear()
        self._large: dict[Dest, threading.Lock] = {}    # held while a large message is sent

    # -------------------------------------------------------------------------------------- entries

    @refuses_reentry
    def send_many(self, payloads: list[bytes], dest: Address | str | None,
                  timeout: float | None, flags: int) -> None:
        """See Channel.send_many."""
        run(self.sending_many(payloads, dest, timeout, flags))

    def sending_many(self, payloads: list[bytes], dest: Address | str | None,
                     timeout: float | None, flags: int) -> Steps[None]:
        """See Channel.send_many; `payloads` are a list (arguments.payloads)."""
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
                yield from self._send_large(payloads[sent], to, flags, timeout, sent,
                                            f"; {sent} of {len(payloads)} messages were sent")
                taken = 1
            elif not taken:
                attempt = partial(self._push_many, payloads, sent, to, flags)
                taken, window = yield from self._retry(
                    attempt, to, timeout, f"; {sent} of {len(payloads)} messages were sent", sent)
            sent += taken
            if sent < len(payloads):
                self._flush(to, full_only=True)
        self._bundle_or_flush(to, window)

    def sending(self, payload: bytes, dest: Address | str | None, timeout: float | None,
                flags: int) -> Steps[None]:
        """See Channel.send."""
        flags = arguments.flags(flags)
        timeout = arguments.timeout(timeout)
        to = self._member(dest)
        if flags & Flag.NO_RELIABILITY:
            self._send_unreliable(payload, to, flags)
            return
        window = self._window(to)
        todo = window.push(payload, flags)
        if isinstance(dest, str):
            self._remember_port(dest, window)           # under its name, until the next view
        if todo:
            yield from self._finishing_push(todo, window, payload, to, flags, timeout)

    @refuses_reentry
    def go_on(self, steps: Steps[Result], in_time: bool | None) -> Pause:
        """Go on with a call up to its next pause, for a task that has waited."""
        return next(steps) if in_time is None else steps.send(in_time)

    @refuses_reentry
    def send_otherwise(self, payload: bytes, dest: Address | str | None, flags: int,
                       timeout: float | None) -> None:
        """Send what SendPort does not: the first message to a member, or one with flags
        or arguments that it does not know."""
        run(self.sending(payload, dest, timeout, flags))

    @refuses_reentry
    def try_otherwise(self, payload: bytes, dest: Address | str | None, flags: int) -> bool:
        """Send what try_send() cannot send by itself, if there is room. Return whether
        it was sent."""
        flags = arguments.flags(flags)
        to = self._member(dest)
        if flags & Flag.NO_RELIABILITY:
            self._send_unreliable(payload, to, flags)
            return True
        window = self._window(to)
        todo = window.push(payload, flags)
        if todo == LARGE:
            raise MessageTooLargeError(
                f"a message of {len(payload)} bytes travels in fragments, which may have to wait "
                f"for room, and try_send() never waits; use send(), or at most {window.largest} "
                "bytes")
        if todo == FULL:
            self._state.check_open()
            self._flush(to, full_only=False)            # what waits must leave to make room
            return False
        if todo:
            self._finish_push(todo, window, payload, to, flags, None)
        return True

    def send_part(self, part: bytes, dest: Address, flags: int) -> None:
        """Send something of the channel's own to one member, in order with the messages
        to it; wait for room. It is no message: flags say so, and it needs no quorum."""
        window = self._window(dest, flags)
        if todo := window.push(part, flags):
            self._finish_push(todo, window, part, dest, flags, None)

    def after_push(self, todo: int, window: SendWindow, payload: bytes, dest: Address | str | None,
                   flags: int, timeout: float | None) -> None:
        """Do what push() left to do, as `todo` says: the message completed a datagram
        (BUNDLE), is the first that waits, or was not taken, because there is no room
        (FULL) or it is too large for a datagram (LARGE).

        In a signal handler that interrupted a call of this channel, leave a message
        that was taken to the driver, and raise RingcastError for others.
        """
        if threading.get_ident() not in self._inside:
            self._finish_push_guarded(todo, window, payload, dest, flags, timeout)
        elif todo in (FULL, LARGE):
            self._state.check_open()
            self._check_quorum()
            raise RingcastError(REENTERED)
        else:
            self._endpoint.bundler.due[self._member(dest)] = time.monotonic_ns()
            self._driver.request_turn()

    def on_room(self) -> None:
        """Let all sends try again that found no room, or that may end now because this
        member may not send any more."""
        if not self._endpoint.may_send:
            self._forget_ports()
        if self._state.closing:
            self.close()                        # a primary view has opened the window again
        self._num_rooms += 1
        self._state.room.notify_all()

    def forget(self, dest: Address) -> None:
        """Forget a member that left."""
        self._large.pop(dest, None)

    def close(self) -> None:
        """Refuse all messages from now on."""
        self._multicast.send_window.close()
        for window in self._forget_ports():
            window.close()

    # -------------------------------------------------------------------------- members and windows

    def _member(self, dest: Address | str | None) -> Dest:
        """Return the member that `dest` names; NotMemberError if none in the view has
        that name, or there is no view yet."""
        if dest is None:
            return dest
        if not isinstance(dest, Address | str):
            raise TypeError(f"dest is a member's Address or its name, not {type(dest).__name__}")
        view = self._endpoint.view
        if view is None:
            self._state.check_open()
            raise NotMemberError(f"this channel has no view yet, so {dest} is no member of it; "
                                 "call connect() first")
        if isinstance(dest, Address):
            return dest
        for member in view.members:
            if member.name == dest:
                return member
        raise NotMemberError(f"no member {dest!r} is in the view, which is {view}")

    def _window(self, dest: Dest, flags: int = 0) -> SendWindow:
        """Return the send window for `dest`; open a connection if there is none.
        NotMemberError if the member is not in the view, NoQuorumError if this member
        may not send, and it is for a message."""
        if dest is None:
            self._check_quorum()
            return self._multicast.send_window
        return self._driver.run_in_turn(partial(self._open_window, dest, flags))

    def _open_window(self, dest: Address, flags: int, now: Instant) -> SendWindow:
        self._state.check_open()
        if flags & STATE:
            return self._endpoint.window(dest, now)
        self._check_quorum()
        window = self._endpoint.window(dest, now)
        self._remember_port(dest, window)
        return window

    def _check_quorum(self) -> None:
        """Raise NoQuorumError if only the primary part of the group goes on, and this
        member is not in it."""
        if self._endpoint.may_send or self._state.closing:
            return
        if (view := self._endpoint.view) is None:
            raise NoQuorumError("this member has no view yet, and only the primary part of its "
                                "group may send; call connect() first")
        raise NoQuorumError(
            f"this member is in {view}, without the majority of its group, and only the primary "
            "part may send; wait until the others are back, or, if they never come back, stop all "
            "members and start them again")

    # ---------------------------------------------------------------------------------- one message

    def _finish_push(self, todo: int, window: SendWindow, payload: bytes,
                     dest: Address | str | None, flags: int, timeout: float | None) -> None:
        """See after_push."""
        to = self._member(dest)
        if todo in (FULL, LARGE):
            run(self._finishing_push(todo, window, payload, to, flags, timeout))
        elif todo == BUNDLE:
            self._flush(to, full_only=True)
        else:
            self._bundle_or_flush(to, window)

    _finish_push_guarded = refuses_reentry(_finish_push)

    def _finishing_push(self, todo: int, window: SendWindow, payload: bytes, dest: Dest,
                        flags: int, timeout: float | None) -> Steps[None]:
        """See after_push."""
        if todo == LARGE:
            yield from self._send_large(payload, dest, flags, timeout)
            return
        if todo == FULL:
            attempt = partial(self._push, payload, dest, flags)
            todo, window = yield from self._retry(attempt, dest, timeout)
        if todo == BUNDLE:
            self._flush(dest, full_only=True)
        else:
            self._bundle_or_flush(dest, window)

    def _bundle_or_flush(self, dest: Dest, window: SendWindow) -> None:
        """Send a message that waits to be bundled: now, or by the driver when it is
        due (bundler.py)."""
        if window.waiting:
            due = self._endpoint.bundler.schedule(dest, time.monotonic_ns())
            if due is None:
                self._flush(dest, full_only=False)
            else:
                self._driver.request_turn_by(due)

    def _flush(self, dest: Dest, full_only: bool) -> None:
        if not self._state.stopped:
            self._driver.flush(dest, full_only)

    def _send_unreliable(self, payload: bytes, dest: Dest, flags: int) -> None:
        if not isinstance(payload, bytes):
            raise TypeError(f"a payload is bytes, not {type(payload).__name__}; encode it first")
        if len(payload) > (largest := self._multicast.send_window.largest):
            raise MessageTooLargeError(
                f"a message of {len(payload)} bytes does not fit the one datagram that "
                f"NO_RELIABILITY is; the largest has {largest}")
        self._driver.run_in_turn(partial(self._send_one, payload, dest, flags))
        if dest in (None, self._endpoint.local):
            self._driver.request_turn()                        # it delivers

    def _send_one(self, payload: bytes, dest: Dest, flags: int, now: Instant) -> None:
        self._state.check_open()
        self._check_quorum()
        self._endpoint.send_unreliable(payload, dest, flags, now)

    def _send_large(self, payload: bytes, dest: Dest, flags: int, timeout: float | None,
                    sent: int = 0, progress: str = "") -> Steps[None]:
        """Send a message in fragments, one such message at a time in each stream. Once
        it has begun, give up when a fragment has found no room for half of
        frag_timeout: receivers drop the incomplete message after that time (frag.py).
        `sent` messages of the same call were sent before."""
        config = self._endpoint.config
        fragments = Fragments(payload, flags, config)
        longest = config.frag_timeout / 2000
        lock, held = self._large.setdefault(dest, threading.Lock()), [False]
        deadline = deadline_after(timeout)
        try:
            while not held[0]:
                # An exception comes before this step or after it.
                held[:] = map(lock.acquire, (False,))
                if not held[0]:
                    if not (yield Pause(self._state.room, partial(self._may_try, lock), deadline,
                                        sent, ("large", dest))):
                        raise _timed_out(f"another large message was still sent after {timeout:g} "
                                         f"s{progress}; give each of them more time", sent)
                    self._state.check_open()
            while not fragments.is_sent:
                if not fragments.push(self._window(dest)):
                    limit = timeout if not fragments.sent else (
                        longest if timeout is None else min(timeout, longest))
                    yield from self._retry(
                        partial(self._push_fragments, fragments, dest), dest, limit,
                        f"; {fragments.sent} of {len(fragments.pieces)} fragments were sent, and "
                        f"no member will be given the message{progress}", sent)
                self._flush(dest, full_only=not fragments.is_sent)
        finally:
            if held[0]:                                 # no call before the release
                lock.release()
                fragments.give_up()
                self._num_rooms += 1                    # what was spared for it is room for others
                self._state.room.notify_all()

    def _may_try(self, lock: threading.Lock) -> bool:
        return self._state.closing or not lock.locked()

    # ------------------------------------------------------------------------ attempts, and waiting

    def _push(self, payload: bytes, dest: Dest, flags: int) -> tuple[int, SendWindow] | None:
        """Push a message. Return what is left to do and the window, which may be that
        of a new connection; None if there is no room."""
        window = self._window(dest, flags)
        todo = window.push(payload, flags)
        return None if todo == FULL else (todo, window)

    def _push_many(self, payloads: list[bytes], start: int, dest: Dest,
                   flags: int) -> tuple[int, SendWindow] | None:
        """Push messages. Return how many were taken and the window, which may be that
        of a new connection; None if there is no room."""
        window = self._window(dest)
        taken = window.push_many(payloads, start, flags)
        return (taken, window) if taken else None

    def _push_fragments(self, fragments: Fragments, dest: Dest) -> int | None:
        """Push fragments. Return how many were taken, or None if there is no room."""
        return fragments.push(self._window(dest)) or None

    def _retry(self, attempt: Callable[[], Result | None], dest: Dest, timeout: float | None,
               progress: str = "", sent: int = 0) -> Steps[Result]:
        """Call `attempt()` whenever a window has room again, until it returns a result
        (decision 12: room, view, close, timeout). `progress` goes into errors."""
        state = self._state
        self.num_blockings += 1
        began, deadline, call = time.monotonic_ns(), deadline_after(timeout), object()
        try:
            self.waiting[call] = dest, began
            self._flush(dest, full_only=False)
            while True:
                seen = self._num_rooms
                if not state.closing and (result := attempt()) is not None:
                    return result
                if not (yield Pause(state.room, partial(self._has_room_since, seen), deadline,
                                    sent, ("room", dest))):
                    raise _timed_out(f"no room in the send window within {timeout:g} s{progress}; "
                                     f"{self._slowest(dest)}", sent)
                if state.closing:
                    raise ClosedError(state.fault or f"the channel is closed{progress}; "
                                                     "open a new one to send")
        finally:
            self.waiting.pop(call, None)
            if (trace := self._driver.trace) is not None:
                trace.record_blocked(time.monotonic_ns() - began, dest, *self._driver.clocks())

    def _has_room_since(self, rooms: int) -> bool:
        return self._num_rooms != rooms or self._state.closing

    def _slowest(self, dest: Dest) -> str:
        """Return who keeps the window full, for the message of a SendTimeoutError."""
        if dest is not None:
            return f"{dest} does not acknowledge; exclude it if it is dead, or send less"
        slowest, view = self._endpoint.slowest(), self._endpoint.view
        if view is not None and slowest in view.absent:
            return (f"{slowest.name} is absent, and all is kept for it; start it again, or exclude "
                    "it if it does not come back")
        if slowest == self._endpoint.local:
            return ("this member does not take its own messages: iterate the channel, or pass "
                    "on_message or deliver=False")
        name = slowest.name if slowest is not None else "nobody"
        return f"the slowest to acknowledge is {name}; exclude it if it is dead, or send less"


def _timed_out(sentence: str, sent: int) -> SendTimeoutError:
    """Make the error of a call that has sent so many messages."""
    error = SendTimeoutError(sentence)
    error.num_sent = sent
    return error
