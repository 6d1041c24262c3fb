"""Sending, as far as it is more than to push a message into a window: to open the
window, to flush what makes a datagram, and to wait for room.

Who finds no room tries again whenever a window got room, until there is a place, the
channel closes, or the time is over (decision 12). Nothing of a message was sent when
its send raises, but for a large one: then some fragments were, and nobody is given the
message (frag.py).

The push itself, which most messages get by with, is compiled (SendPort in
send_window.pyx).
"""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from ringcast import arguments
from ringcast._core.send_window import BUNDLE, FULL, LARGE, SendWindow
from ringcast.address import Address
from ringcast.channel.driver import Driver
from ringcast.channel.reentry import REENTERED, at, enters
from ringcast.channel.state import State
from ringcast.endpoint import Fragments
from ringcast.errors import (
    ClosedError,
    MessageTooLargeError,
    NotMemberError,
    RingcastError,
    SendTimeoutError,
)
from ringcast.flags import Flag
from ringcast.protocols.bundler import Dest
from ringcast.stack import Instant

Result = TypeVar("Result")


class Sending:
    """Sends for one channel. `remember_port(dest, window)` makes messages to `dest`
    take the compiled way, through this window; `forget_ports` undoes that for all, and
    returns the windows there were.

    Threads: any may call everything.
    """

    def __init__(self, state: State, driver: Driver,
                 remember_port: Callable[[Address | str, SendWindow], None],
                 forget_ports: Callable[[], list[SendWindow]]) -> None:
        self._state, self._driver, self._endpoint = state, driver, driver.endpoint
        self._multicast = driver.endpoint.multicast
        self._remember_port, self._forget_ports = remember_port, forget_ports
        self._inside = state.inside                     # for `enters`
        self._rooms = 0                                 # how often a send window got room
        self.num_blockings = 0
        self.begin()

    def begin(self) -> None:
        """Make what threads share."""
        self._large: dict[Dest, threading.Lock] = {}    # held while a message goes out in fragments

    # -------------------------------------------------------------------------------------- entries

    @enters
    def send_many(self, payloads: Sequence[bytes], dest: Address | str | None,
                  timeout: float | None, flags: int) -> None:
        """See Channel.send_many."""
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
                attempt = partial(self._push_many, payloads, sent, to, flags)
                taken, window = self._retry(attempt, to, timeout,
                                            f"; {sent} of {len(payloads)} messages were sent")
            sent += taken
            if sent < len(payloads):
                self._flush(to, full_only=True)
        self._after_first(to, window)

    @enters
    def send_otherwise(self, payload: bytes, dest: Address | str | None, flags: int,
                       timeout: float | None) -> None:
        """Send the first message to a member, or one with flags that a window does not
        have."""
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

    def after_push(self, todo: int, window: SendWindow, payload: bytes, dest: Address | str | None,
                   flags: int, timeout: float | None) -> None:
        """See to a message that completed a datagram, is the first to wait, or was not
        taken: no room, or too large for a datagram. In a signal handler that
        interrupted a call of this channel, the driver sees to what was taken."""
        if threading.get_ident() not in self._inside:
            self._enter_and_see_to(todo, window, payload, dest, flags, timeout)
        elif todo in (FULL, LARGE):
            self._state.check_open()
            raise RingcastError(REENTERED)
        else:
            self._endpoint.bundler.due[self._member(dest)] = time.monotonic_ns()
            self._driver.rouse()

    def on_room(self) -> None:
        """Let all try again who found no room."""
        self._rooms += 1
        self._state.room.ring()

    def forget(self, dest: Address) -> None:
        """Forget a member that left."""
        self._large.pop(dest, None)

    def close(self) -> None:
        """Send nothing any more."""
        self._multicast.send_window.close()
        for window in self._forget_ports():
            window.close()

    # -------------------------------------------------------------------------- members and windows

    def _member(self, dest: Address | str | None) -> Dest:
        """Return whom the caller means; NotMemberError when no such member is in the
        view."""
        if dest is None or isinstance(dest, Address):
            return dest
        if not isinstance(dest, str):
            raise TypeError(f"dest is a member's Address or its name, not {type(dest).__name__}")
        view = self._endpoint.view
        for member in view.members if view is not None else ():
            if member.name == dest:
                return member
        raise NotMemberError(f"no member {dest!r} is in the view, which is {view}")

    def _window(self, dest: Dest) -> SendWindow:
        """Return where messages to `dest` go; its connection is opened when there is
        none. NotMemberError when it left."""
        if dest is None:
            return self._multicast.send_window
        return self._driver.in_turn(partial(self._open_window, dest))

    def _open_window(self, dest: Address, now: Instant) -> SendWindow:
        self._state.check_open()
        window = self._endpoint.window(dest, now)
        self._remember_port(dest, window)
        return window

    # ---------------------------------------------------------------------------------- one message

    def _see_to(self, todo: int, window: SendWindow, payload: bytes, dest: Address | str | None,
                flags: int, timeout: float | None) -> None:
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

    def _after_first(self, dest: Dest, window: SendWindow) -> None:
        """A message waits for company: send it at once when all is quiet, else see that
        the driver does before long."""
        if window.waiting:
            due = self._endpoint.bundler.wait(dest, time.monotonic_ns())
            if due is None:
                self._flush(dest, full_only=False)
            else:
                self._driver.call(due)

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
        self._driver.in_turn(partial(self._send_one, payload, dest, flags))
        if dest in (None, self._endpoint.local):
            self._driver.rouse()                        # it delivers

    def _send_one(self, payload: bytes, dest: Dest, flags: int, now: Instant) -> None:
        self._state.check_open()
        self._endpoint.send_unreliable(payload, dest, flags, now)

    def _send_large(self, payload: bytes, dest: Dest, flags: int, timeout: float | None) -> None:
        """Send a message that does not fit a datagram in fragments, one such message at
        a time in each stream. When a fragment finds no room for long, the others will
        not have what is there of the message, and nobody else of it either
        (frag.py)."""
        config = self._endpoint.config
        fragments = Fragments(payload, flags, config)
        patience = config.frag_timeout / 2000
        patience = patience if timeout is None else min(timeout, patience)
        with self._large.setdefault(dest, threading.Lock()):
            while not fragments.is_sent:
                if not fragments.push(self._window(dest)):
                    self._retry(partial(self._push_fragments, fragments, dest), dest, patience,
                                f"; {fragments.sent} of {len(fragments.pieces)} fragments were "
                                "sent, and nobody will be given the message")
                self._flush(dest, full_only=not fragments.is_sent)

    # ------------------------------------------------------------------------ attempts, and waiting

    def _push(self, payload: bytes, dest: Dest, flags: int) -> tuple[int, SendWindow] | None:
        """Return what is left to do and the window, which may be that of a new
        connection; None when there was no room."""
        window = self._window(dest)
        todo = window.push(payload, flags)
        return None if todo == FULL else (todo, window)

    def _push_many(self, payloads: list[bytes], start: int, dest: Dest,
                   flags: int) -> tuple[int, SendWindow] | None:
        """Return how many were taken and the window, which may be that of a new
        connection; None when there was no room."""
        window = self._window(dest)
        taken = window.push_many(payloads, start, flags)
        return (taken, window) if taken else None

    def _push_fragments(self, fragments: Fragments, dest: Dest) -> int | None:
        """Return how many were taken, or None when there was no room."""
        return fragments.push(self._window(dest)) or None

    def _retry(self, attempt: Callable[[], Result | None], dest: Dest, timeout: float | None,
               progress: str = "") -> Result:
        """Attempt again whenever a window got room, until it returns something
        (decision 12: room, view, close, timeout)."""
        self.num_blockings += 1
        began = time.monotonic_ns()
        try:
            return self._retry_until(at(timeout), attempt, dest, timeout, progress)
        finally:
            if (trace := self._driver.trace) is not None:
                trace.blocked(time.monotonic_ns() - began, dest, *self._driver.clocks())

    def _retry_until(self, until: Callable[[], float | None], attempt: Callable[[], Result | None],
                     dest: Dest, timeout: float | None, progress: str) -> Result:
        state = self._state
        self._flush(dest, full_only=False)
        while True:
            seen = self._rooms
            if not state.closing and (result := attempt()) is not None:
                return result
            if not state.room.wait_for(partial(self._has_room_since, seen), until):
                raise SendTimeoutError(
                    f"no room in the send window within {timeout:g} s{progress}; "
                    f"{self._slowest(dest)}")
            if state.closing:
                raise ClosedError(state.fault or f"the channel is closed{progress}; "
                                                 "open a new one to send")

    def _has_room_since(self, rooms: int) -> bool:
        return self._rooms != rooms or self._state.closing

    def _slowest(self, dest: Dest) -> str:
        """Say who keeps the window full, for the message of a timeout."""
        if dest is not None:
            return f"{dest} does not acknowledge; exclude it if it is dead, or send less"
        slowest = self._multicast.slowest()
        if slowest == self._endpoint.local.incarnation:
            return ("this member does not take its own messages: iterate the channel, or pass "
                    "on_message or deliver=False")
        names = [member.name for incarnation, member in self._multicast.members.items()
                 if incarnation == slowest]
        return (f"the slowest to acknowledge is {''.join(names) or 'nobody'}; exclude it if it is "
                "dead, or send less")
