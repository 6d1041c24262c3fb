"""Channel: one member of a group, on real threads and a real transport.

The member itself is an endpoint (endpoint.py), which the driver gives its turns
(driver.py). Application threads otherwise touch the send windows only. This file is
what an application calls, and puts the parts together, one rule each: how far the
channel is (state.py), joining.py, sending.py, what iterators take (inbox.py),
callbacks.py, closing.py, threads.py.

What is delivered goes through a queue to the application: an iterator, or callbacks on
a thread of their own. A batch counts as delivered, and is acknowledged, when the
application has finished it: asks for the next one, or returns from the callback. So a
slow application slows its senders down, and nothing that it never finished is ever
acknowledged (inbox.py).

A signal handler may call the channel that it interrupted (reentry.py). A forked child's
copy gives its descriptors back at once: all that it may do is close.
"""

import logging
import secrets
import threading
import time
import warnings
from _thread import start_new_thread
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, NoReturn, Self, TypeVar

from ringcast import arguments
from ringcast._core.batch import Batch, Message
from ringcast._core.send_window import SendPort, SendWindow
from ringcast.address import Address, Session
from ringcast.channel.callbacks import Callbacks, OnMessage, OnView
from ringcast.channel.closing import Closing
from ringcast.channel.driver import Driver
from ringcast.channel.inbox import Inbox
from ringcast.channel.joining import Joining
from ringcast.channel.reentry import REENTERED, at, enters
from ringcast.channel.sending import Sending
from ringcast.channel.state import State
from ringcast.channel.threads import Threads
from ringcast.config import check_xmit_interval, configure, milliseconds
from ringcast.digest import Digest
from ringcast.endpoint import Endpoint
from ringcast.errors import ConfigError, RingcastError
from ringcast.protocols import frag
from ringcast.stack import Effects, Layer
from ringcast.stacks import STACKS
from ringcast.trace.recorder import Recorder
from ringcast.trace.writer import Writer
from ringcast.view import View

log = logging.getLogger("ringcast")

LOOKS = 1000                            # of a signal handler at what other threads change

Result = TypeVar("Result")


class Channel(SendPort):
    """A member of `group`, which is a list of names given at start.

    `members` names everybody, this member (`name`) included; left out, the group is
    this member alone. `stack` names the protocol for messages to everybody and what
    carries it: "mcast-udp" (acks over UDP multicast, loopback unless told otherwise),
    "nakack2-udp" (negative acks), "mcast-tcp", "nakack2-tcp" (connections, which
    retransmit themselves) or "inproc" (members of one process). All members must have
    the same. `on_message` is called with each Batch and `on_view` with each View, on a
    thread of the channel's; without `on_message`, iterate. `on_undelivered` is called
    there too, with a Batch of messages that were sent to one member (`dest`) that left
    before it had acknowledged them. `deliver=False` makes a member that only sends: it
    gets no messages, and nobody waits for it. `resume` is the Digest of what this
    member had got in an earlier incarnation; senders that still have what follows it
    will send that first. Without it, a member that comes back gets what was kept for
    its former incarnation, of which that may have finished a part. `session` makes
    several processes, one after the other, one member with one stream (see Session),
    for which it takes deliver=False: killed and started again, it sends again what not
    all had acknowledged, and members drop what they have. All of them must have the
    same max_bundle_size and max_datagram (off loopback: a network of the same MTU), and
    send from one thread. `faults` are layers from ringcast.protocols.faults. All other
    keywords are properties, see ringcast.config.Config.

    Raises ConfigError for a wrong argument and TransportError when the operating system
    refuses the transport.

    Threads: every method may be called from any thread. Whatever a callback raises is
    logged and counted, and the next one follows. A signal handler may call close(),
    status() and digest() at any time, and send(), which raises RingcastError if it
    interrupted a call of this channel and cannot do without waiting. In a forked child
    every call but close(), status() and digest() raises ClosedError.

    Close every channel. One that is dropped leaves its group as soon as Python collects
    it, with a ResourceWarning, and what was not acknowledged by then may be lost.
    """

    def __init__(self, group: str, *, name: str | None = None, members: Sequence[str] | None = None,
                 stack: str = "mcast-udp", on_message: OnMessage | None = None,
                 on_view: OnView | None = None, on_undelivered: OnMessage | None = None,
                 deliver: bool = True, resume: Digest | None = None, session: Session | None = None,
                 faults: Sequence[Layer] = (), **options: Any) -> None:
        self.config = configure(options, stack)
        self.stack = stack
        self.group = arguments.text("group", group)
        name = (f"member-{secrets.token_hex(4)}" if name is None
                else arguments.member_name("name", name))
        names = (name,) if members is None else arguments.member_names(members)
        given = (arguments.callback("on_message", on_message),
                 arguments.callback("on_view", on_view),
                 arguments.callback("on_undelivered", on_undelivered))
        deliver = arguments.boolean("deliver", deliver)
        resume = arguments.digest("resume", resume)
        faults = arguments.instances("faults", faults, Layer)
        session = arguments.session(session, deliver) or Session(secrets.randbelow((1 << 64) - 1)
                                                                 + 1)
        self.address = Address(name, session.incarnation)
        with ExitStack() as undo:               # what a constructor that fails has opened is closed
            carrier = STACKS[stack].carrier
            self._transport = carrier.open(group, self.address.incarnation, self.config)
            undo.callback(self._transport.close)
            self.config = self.config.fitted(self._transport.max_datagram)
            # Not to be guessed, and above those of an earlier process.
            conn_id = (session.epoch << 32) + secrets.randbits(31)
            self._endpoint = Endpoint(
                stack, self.address, names, self.config, group=group,
                physical=self._transport.physical, receive_budget=self._transport.receive_budget,
                resume=resume, receiving=deliver, session=session, conn_id=conn_id,
                timestamp=session.epoch << 32, faults=faults,
                anchor=time.time_ns() - time.monotonic_ns())
            writer = None
            if self.config.trace:
                writer = Writer(self.config.trace, str(self.address), session.epoch)
            undo.pop_all()
        self._multicast = self._endpoint.multicast
        self._open_port(self._multicast.send_window)
        trace = None
        if writer is not None:
            trace = Recorder(writer, self.address, self._multicast, self._endpoint.unicast)
        self._driver = Driver(self._endpoint, self._transport, trace)
        if trace is not None:
            trace.resumes(resume or Digest(), *self._driver.clocks())
        self._state = State(self._transport.wake)
        self._inside = self._state.inside               # for `enters`
        self._threads = Threads(group, self.address)
        self._sending = Sending(self._state, self._driver,
                                self._remember_port, self._forget_ports)
        self._inbox = Inbox(self._wait_for_news, self._driver.finish, self._transport.wake,
                            self._inside)
        self._callbacks = Callbacks(self.address, self._state, self._driver, self._halt, *given)
        self._closing = Closing(self._state, self._driver, self._threads, self._sending,
                                self._inbox, self._callbacks)
        self._joining = Joining(group, self._state, self._driver, self._threads, self._callbacks)
        self._driver.work_for(self, Channel._perform, self._closing.break_off,
                              self._closing.on_poll_error)

    # ----------------------------------------------------------------------------------- life cycle

    def connect(self, timeout: float | None = None) -> Self:
        """Join: returns when every listed member has appeared (or is known to have
        left).

        `timeout` in seconds, default join_timeout; JoinTimeoutError names who is
        missing, and the channel is closed.
        """
        timeout = arguments.timeout(timeout)
        self._joining.start()
        error = self._joining.wait(self.config.join_timeout / 1000 if timeout is None else timeout)
        if error is not None:
            self.close(0)
            raise error
        return self

    def close(self, timeout: float | None = 5.0, *, leave: bool = True) -> int:
        """Leave: wait until everybody has acknowledged what was sent, at most `timeout`
        seconds (None: for ever), then go.

        With leave=False go without a word, as in a crash: the others keep what this
        member has not acknowledged and wait for it, until it is excluded, or comes back
        under its name and gets that (see `resume`).

        Blocked senders get ClosedError and iterators end; what the application had not
        finished is not acknowledged. A callback that does not return keeps close() no
        longer than `timeout` (and leave_timeout for the others to notice); what it was
        given is not acknowledged, no other callback follows, and its thread is a
        daemon. Returns how many of the own messages somebody has not acknowledged,
        those to single members included: 0 means that every member of the view has
        finished all of them. Those who left or were excluded do not count; what was for
        such a member alone goes to on_undelivered. Closing again returns the same.

        May be called in a signal handler at any time. If that interrupted another call
        of this channel, which must go on first, close() returns the number of that
        moment at once; a thread of the channel's goes on to close it, and the next
        close(), or the end of the program, waits for that.
        """
        timeout = arguments.timeout(timeout)
        return self._closing.close(timeout, leave)

    def __enter__(self) -> Self:
        self._state.check_not_forked()
        return self if self.view is not None else self.connect()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # -------------------------------------------------------------------------------------- sending

    def send_many(self, payloads: Sequence[bytes], dest: Address | str | None = None,
                  timeout: float | None = None, *, flags: int = 0) -> None:
        """Send all of `payloads`, in order; one call costs less than many. Arguments
        and errors as in `send`.

        SendTimeoutError says how many were sent; the rest, from there on, was not.
        `timeout` holds for each wait.
        """
        self._sending.send_many(payloads, dest, timeout, flags)

    def _send_otherwise(self, payload: bytes, dest: Address | str | None, flags: int,
                        timeout: float | None) -> None:
        """See SendPort."""
        self._sending.send_otherwise(payload, dest, flags, timeout)

    def _after_push(self, todo: int, window: SendWindow, payload: bytes, dest: Address | str | None,
                    flags: int, timeout: float | None) -> None:
        """See SendPort."""
        self._sending.after_push(todo, window, payload, dest, flags, timeout)

    # ------------------------------------------------------------------------------------ receiving

    def __iter__(self) -> Iterator[Message]:
        """Messages as they are delivered, until the channel is closed.

        A message is finished, and acknowledged, when the thread that got it asks for
        another: with this iterator or with a new one. So `for message in channel: ...
        break` keeps the last message unfinished until then, and what the iterator had
        not handed out goes to the next one, in order. (If that thread never asks again,
        it is finished with what another thread finishes after it.)
        """
        self._check_iterable()
        for hand in self._inbox.hands():
            for index, batch in enumerate(hand.batches):
                messages = iter(batch)
                try:
                    yield from messages
                except BaseException:
                    hand.leave(index, messages)
                    raise

    def batches(self) -> Iterator[Batch]:
        """The same in batches, each of one sender's consecutive messages: several times
        faster."""
        self._check_iterable()
        for hand in self._inbox.hands():
            for number, batch in enumerate(hand.batches, 1):
                try:
                    yield batch
                except BaseException:
                    hand.leave(number)
                    raise

    def deliveries(self) -> Iterator[list[Batch]]:
        """The same in lists of all batches that are there at the time. Asking for the
        next list finishes the one before: only then are its messages acknowledged.
        Several threads may iterate; each batch goes to one of them, and an ack waits
        for all who took something earlier.
        """
        self._check_iterable()
        return (hand.batches for hand in self._inbox.hands())

    def _check_iterable(self) -> None:
        if self._callbacks.on_message is not None:
            raise ConfigError("the messages of this channel go to on_message; "
                              "leave that out to iterate")

    def _wait_for_news(self, condition: Callable[[], bool]) -> None:
        """Poll until there is news for an iterator; nobody polls before `connect`."""
        self._state.check_not_forked()
        threads, settled = self._threads, self._state.settled
        if not threads.started:
            settled.wait_for(lambda: condition() or bool(threads.started), at(None))
        if not condition():
            self._driver.poller.poll_from_caller(condition)

    # ----------------------------------------------------------------------------------- the driver

    def _halt(self, fault: str | None) -> None:
        """Stop, from whichever thread."""
        self._closing.halt(fault)

    def _perform(self, effects: Effects) -> None:
        """Do what a turn asked for, as far as it concerns the application, in the order
        of the fields. The caller holds the turn."""
        for view in effects.views:
            self._forget_ports()        # who left, or comes back under its name, is looked up anew
            self._callbacks.show(view)
        if effects.deliveries and not self._driver.is_broken:
            is_called = self._callbacks.on_message is not None
            (self._callbacks.deliver if is_called else self._inbox.put)(effects.deliveries)
        for batch in effects.failures:
            self._callbacks.report(batch)
        for warning in effects.warnings:
            log.warning("%s: %s", self.address, warning)
        for dest in effects.closed:
            self._forget_port(dest)
            self._sending.forget(dest)
        if effects.writable:
            self._sending.on_room()
        if effects.views or effects.writable or self._state.closing:
            self._state.settled.ring()
        if effects.fault is not None:
            self._halt(effects.fault)

    # ------------------------------------------------------------------------------------ the group

    @property
    def view(self) -> View | None:
        """The members as this one sees them; None before connect."""
        return self._endpoint.view

    @enters
    def exclude(self, name: str) -> None:
        """Take a member that died out of the group, for everybody: nobody waits for it
        any longer.

        What it sent and not everybody got may then be known to some and unknown to
        others. If it is alive after all, its channel closes. ConfigError when `name` is
        not in the list of members.
        """
        if arguments.member_name("name", name) == self.address.name:
            raise ConfigError("a member leaves by closing its channel; exclude() is for others")
        if self._state.closed:
            self._state.check_open()
        self._driver.in_turn(partial(self._endpoint.members.exclude, name))
        self._driver.call(0)

    @property
    def xmit_interval(self) -> float:
        """Milliseconds between two looks for gaps, now; 0 or less: messages to
        everybody are not retransmitted.

        May be set while the channel is in use, and nothing is lost by that. 0 or less
        is for nakack2-tcp alone, where the connections retransmit; ConfigError for any
        other stack.
        """
        return self._multicast.interval / 1_000_000

    @xmit_interval.setter
    @enters
    def xmit_interval(self, value: float) -> None:
        check_xmit_interval(arguments.number("xmit_interval", value), self.stack)
        if self._state.closed:
            self._state.check_open()
        self._driver.in_turn(partial(self._multicast.change_interval, milliseconds(value)))
        self._driver.call(0)

    @property
    def fault(self) -> str | None:
        """Why this channel closed by itself; None if it did not."""
        return self._state.fault

    @property
    def acknowledged(self) -> int:
        """Every member of the view has acknowledged this one's messages to everybody up
        to this seqno. A member that died is one until it is excluded, and then its next
        incarnation is."""
        return self._multicast.send_window.ring.low

    @property
    def slowest(self) -> str | None:
        """The name of a member that has not acknowledged the oldest message to
        everybody that is kept for others; None if none is, or as long as it is not
        known."""
        if self._multicast.unacked():
            slowest = self._multicast.slowest()
            members = self.view.members if self.view else ()
            return next((each.name for each in members if each.incarnation == slowest), None)
        return None

    @property
    def max_payload(self) -> int:
        """The bytes of a message that fits one datagram: ringcast.MAX_PAYLOAD on
        loopback, else what a frame of the interface carries. A larger message travels
        in fragments."""
        return self._multicast.send_window.largest

    @property
    def fragment_size(self) -> int:
        """A message of more than `max_payload` bytes takes one seqno for each so many
        bytes of it, or part of them; any other takes one."""
        return frag.size_of(self.config.max_bundle_size)

    def digest(self) -> Digest:
        """The highest seqno of each sender that the application has finished."""
        return self._look(self._multicast.digest)

    def status(self) -> dict[str, int]:
        """Pointers and counters of every layer, of the transport and of this channel,
        by the texts' names."""
        return self._look(lambda: {
            **self._endpoint.status(), **self._transport.status(),
            "num_blockings": self._sending.num_blockings,
            "num_callback_errors": self._callbacks.num_errors})

    def _look(self, read: Callable[[], Result]) -> Result:
        """Read something of the stack. A signal handler that interrupted a call of this
        channel reads it as it stands: it cannot wait for the turn. Another thread may
        change a table meanwhile, so it may have to look again."""
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

    # -------------------------------------------------------------- dropped, and in other processes

    def __del__(self) -> None:
        """Nobody has closed this channel, and nobody can any more. A garbage collector
        may call this in the middle of anything, so another thread does the rest."""
        is_whole = getattr(self, "_joining", None) is not None      # else its constructor failed
        if not is_whole or self._state.closed:
            return
        warnings.warn(f"{self.address} of group {self.group!r} was dropped without close(); it leaves "
                      "its group, and messages that were not acknowledged may be lost",
                      ResourceWarning, stacklevel=2, source=self)
        with suppress(RuntimeError):                    # the interpreter ends
            start_new_thread(self._closing.go, ())

    def __reduce__(self) -> NoReturn:
        raise RingcastError("a channel stays in the process that opened it; give the other process "
                            "the group and the members, and open a channel there")
