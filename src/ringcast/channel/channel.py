"""Channel: one member of a group, with real threads and a real transport.

The protocol runs in an endpoint (endpoint.py), to which the driver gives its turns
(driver.py). Otherwise application threads touch only the send windows. This file has
the calls of an application, and puts the parts together, one rule each: the state from
open to closed (state.py), joining.py, sending.py, the inbox of iterators (inbox.py),
callbacks.py, closing.py, threads.py.

Delivered messages go through a queue to the application: to an iterator, or to
callbacks on a thread of their own. A batch is acknowledged when the application has
finished it: when it asks for the next one, or its callback has returned (inbox.py). So
a slow application slows its senders down, and no message is acknowledged that the
application never finished.

A signal handler may call the channel that it interrupted (reentry.py). In a forked
child, the channel's copy closes its descriptors at once, and only close() is left to
do.
"""

import os
import secrets
import socket
import threading
import time
import warnings
from _thread import start_new_thread
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, TypeVar, Unpack

from ringcast import arguments
from ringcast._core.batch import Batch, Message
from ringcast._core.send_window import SendPort, SendWindow
from ringcast.access import open_access
from ringcast.address import Address, Succession, new_incarnation
from ringcast.channel.asking import Asking
from ringcast.channel.callbacks import Callbacks, OnMessage, OnSkipped, OnView, asked
from ringcast.channel.closing import Closing, to_instant, to_seconds
from ringcast.channel.driver import Driver
from ringcast.channel.inbox import HANDED_OUT, Inbox, deadline
from ringcast.channel.joining import Joining
from ringcast.channel.pauses import run
from ringcast.channel.publishing import Publishing, told
from ringcast.channel.reentry import REENTERED, refuses_reentry
from ringcast.channel.seeking import Seeking
from ringcast.channel.sending import Sending
from ringcast.channel.state import State
from ringcast.channel.state_transfer import (
    OnState,
    OnStateRequest,
    StateCallbacks,
    take_part,
)
from ringcast.channel.threads import Threads
from ringcast.config import MAX_NAME, check_quorum, check_xmit_interval, configure, nanoseconds
from ringcast.digest import Digest
from ringcast.discovery import Discovery, parse
from ringcast.endpoint import Endpoint
from ringcast.errors import ConfigError, RingcastError
from ringcast.flags import NO_FLAGS, Flag
from ringcast.logs import as_cause, log
from ringcast.options import Options
from ringcast.protocols import frag
from ringcast.protocols.membership.until import Until
from ringcast.secret import Secret
from ringcast.stack import Effects, Instant, Layer
from ringcast.stacks import needs_ports, open_transport, place_of
from ringcast.status import Status
from ringcast.trace.recorder import Recorder
from ringcast.trace.writer import Writer
from ringcast.trust import Folder, Trust
from ringcast.view import View

MAX_READS = 1000    # attempts of a signal handler to read a table that other threads change

Result = TypeVar("Result")
Slow = Literal["block", "observe"]


class Channel(SendPort):
    """One member of a group, which forms itself: members that give the same group find
    each other.

        with Channel("prices") as channel:
            channel.send(b"hello")
            for message in channel:
                print(message.sender.name, message.payload)

    A channel delivers every message of every member once, in the order in which its
    sender sent it. It has joined its group when connect() returns; `with` calls
    connect() and close().

    Args:
        group: name of the group. Datagrams of other groups are dropped.
        name: name of this member, unique in the group; 1 to 64 bytes of UTF-8. Without
            it, the name is made of host, process and a random part. Of two members with
            one name, the later one is not let in.
        discovery: where to look for others: "multicast", what the transport reaches by
            itself: over UDP the multicast group, over TCP a range of ports of this
            machine or of the option `hosts`; "hosts:a:7700,b", also these places;
            "dns:NAME" or "dns:NAME:7700", all addresses of a name; "folder:PATH", what
            members write into a folder that they share; or a function, called again
            and again on a thread of its own, that returns such addresses. Over TCP an
            address without a port stands for all ports of the range; over UDP it needs
            one. Over UDP, messages to everybody need multicast all the same.
        stack: the protocol for messages to everybody, and the transport; all members
            must have the same. "mcast-udp": acks, over UDP multicast; "nakack2-udp":
            negative acks, over UDP multicast; "mcast-tcp" and "nakack2-tcp": the same
            over TCP connections, where nakack2 leaves retransmission to TCP; "inproc":
            acks, between members of one process. UDP and TCP use loopback, unless the
            option `interface` says otherwise.
        on_message: called with each Batch, on a thread of the channel. Without it,
            iterate over the channel.
        on_view: called with each View, on the same thread, at its place between the
            messages: members that go together from one view to the next have been given
            the same messages before the next one. Not called after close() has begun.
        on_undelivered: called with a Batch of own messages, on the same thread: to one
            member, if that member left before it had acknowledged them; or to everybody
            (dest is None), if the others excluded this member while it could not be
            heard, and will not be given them. Without it, they are logged.
        on_state_request: called on the same thread, between two messages, when a member
            comes that needs the application's state; returns the state as chunks, an
            iterable of bytes. Another thread iterates over it and sends the chunks,
            while this one goes on with the messages that follow: so return a copy, or
            something that does not change. Each chunk has at most max_message_size
            bytes. If it raises, another member is asked. Needs on_message.
        on_state: called on the same thread before any message or view, with an iterator
            over the chunks of another member's state. The messages and views after it
            continue that state exactly. It raises StateLostError if that member is
            lost; let that pass, and on_state is called again with the state of another
            one, from its begin. It is not called if nobody has a state: when the group
            forms, or if all who had it are gone.
        deliver: False makes a member that only sends: it gets no messages, and nobody
            waits for it.
        slow: what happens when this member is slower than the others. "block": they
            wait for it, and it is given every message. "observe": nobody waits for it.
            It goes on with what the senders still have, and is told what it missed: it
            gets a Skipped among its batches. It does not count for min_members and
            majorities, and it has no part in state transfer. It may send as others do.
        on_skipped: called with a sender's Address, and the first and the last seqno
            that this observer missed of its messages to everybody, on the same thread
            as on_message and in the order of the messages. Needs slow="observe".
        resume: the Digest of what this member had finished in an earlier incarnation.
            It is given the messages after that first, as far as they are still kept.
            Without it, it is given all that is still kept. Needs `durable`.
        durable: True makes a member that is expected back when it goes without leaving:
            the view says that it is absent, and for `absence` seconds the others keep
            what it has not acknowledged, also of members that go meanwhile. A process
            that comes back under its name, with `resume`, is given what follows.
            Senders wait when their windows are full.
        succession: makes several members of this name, one after the other, send one
            stream (see Succession). All of them must have the same max_bundle_size and
            max_datagram (off loopback: the same MTU), and send from one thread.
        until: called with each View when it is installed, on a thread of the channel
            that must not wait: methods of the channel that wait raise RingcastError. If
            it returns True, the channel closes at once with a fault, and sends nothing
            in this view.
        secret: the path of a file that `ringcast keygen` wrote and only its owner can
            read; or a function that returns 32 random bytes. All members have the same
            secret. Everything between them is encrypted and authenticated, and who does
            not have it can neither read nor join. Off loopback it is required, or
            `trust`, unless the option `insecure` is set. Needs the package
            cryptography.
        trust: the path of a folder with the public keys of all members, `NAME.pub`, and
            this member's own private key; `ringcast trust new` makes it. Only who has a
            key that the others trust can join, under the names of its key. It takes the
            place of a secret; with both, both are needed. The folder is read again when
            it changes.
        faults: layers from ringcast.protocols.faults, next to the wire.
        options: all other keywords are options; ringcast.Options has each with its
            meaning, unit, range and default.

    Raises ConfigError for a wrong argument, TypeError for one of a wrong type, and
    TransportError if the operating system refuses the transport.

    Threads: any thread may call every method. Whatever a callback raises is logged and
    counted, and the next callback follows. A signal handler may call close(), status()
    and digest() at any time. It may call send(), too, which raises RingcastError if the
    handler interrupted a call of this channel and send() would have to wait. In a
    forked child every call but close(), status() and digest() raises ClosedError.

    Close every channel. One that is dropped leaves its group as soon as Python collects
    it, with a ResourceWarning; messages that are not acknowledged by then may be lost.
    """

    def __init__(self, group: str, *, name: str | None = None,
                 discovery: Discovery = "multicast", stack: str = "mcast-udp",
                 on_message: OnMessage | None = None, on_view: OnView | None = None,
                 on_undelivered: OnMessage | None = None,
                 on_state_request: OnStateRequest | None = None, on_state: OnState | None = None,
                 deliver: bool = True, slow: Slow = "block", on_skipped: OnSkipped | None = None,
                 resume: Digest | None = None, durable: bool = False,
                 succession: Succession | None = None, until: Callable[[View], bool] | None = None,
                 secret: Secret | None = None, trust: Trust | None = None,
                 faults: Sequence[Layer] = (), **options: Unpack[Options]) -> None:
        self.config = configure(options, stack)
        check_quorum(options)
        self.stack = stack
        self.group = arguments.text("group", group)
        folder = None if trust is None else Folder(trust)
        name = arguments.member_name("name", default_name(folder) if name is None else name)
        if folder is not None:
            folder.check(name)
        given = (arguments.callback("on_message", on_message),
                 arguments.callback("on_view", on_view),
                 arguments.callback("on_undelivered", on_undelivered))
        of_state = (arguments.callback("on_state_request", on_state_request, may_yield=True),
                    arguments.callback("on_state", on_state))
        deliver = arguments.boolean("deliver", deliver)
        durable = arguments.durability(durable, deliver)
        observes = arguments.slowness(slow, deliver, durable)
        on_skipped = arguments.callback("on_skipped", on_skipped)
        if on_skipped is not None and not observes:
            raise ConfigError('only an observer misses messages; give slow="observe", or leave out '
                              "on_skipped")
        resume = arguments.resume(resume, durable)
        faults = arguments.instances("faults", faults, Layer)
        if any(hasattr(layer, "stack") for layer in faults) or len({*faults}) < len(faults):
            raise ConfigError("faults has a layer that another channel has, or one twice; make new "
                              "layers for each channel")
        succession, until = arguments.succession(succession), arguments.callback("until", until)
        incarnation = new_incarnation() if succession is None else succession.next_incarnation()
        self.address = Address(name, incarnation)
        with ExitStack() as undo:               # closes what was opened if the constructor fails
            access = open_access(group, incarnation, self.config, secret, folder)
            self._transport = open_transport(stack, group, incarnation, self.config, access)
            undo.callback(self._transport.close)
            self.config = self.config.fitted(self._transport.max_datagram)
            self._endpoint = Endpoint(
                stack, self.address, self.config, group=group,
                physical=self._transport.physical, receive_budget=self._transport.receive_budget,
                send_budget=self._transport.send_budget,
                resume=resume, receiving=deliver, durable=durable, observes=observes,
                sealed=access is not None,
                offset=0 if succession is None else succession.seqno,
                conn_id=secrets.randbits(31),           # nobody can guess it
                filters=() if until is None else (Until(partial(asked, until)),), faults=faults,
                keyring=None if access is None else access.keyring,
                anchor=time.time_ns() - time.monotonic_ns())
            take_part(self._endpoint, on_message, *of_state)
            seeking = None
            if discovery != "multicast":
                seeking = Seeking(parse(discovery, name, needs_ports(stack)),
                                  self._transport)
                undo.callback(seeking.close)
            writer = None
            if self.config.trace:
                writer = Writer(self.config.trace, str(self.address))
            undo.pop_all()
        self._multicast = self._endpoint.multicast
        self._open_port(self._multicast.send_window)
        trace = None
        if writer is not None:
            trace = Recorder(writer, self.address, self._multicast, self._endpoint.unicast)
        self._state = State(self._transport.wake)
        self._inside = self._state.inside               # for refuses_reentry
        self._driver = Driver(self._endpoint, self._transport, trace, self._inside, seeking)
        if trace is not None:
            trace.record_begin(resume or Digest(), *self._driver.clocks())
        self._threads = Threads(group, self.address)
        self._sending = Sending(self._state, self._driver,
                                self._remember_port, self._forget_ports)
        self._inbox = Inbox(self._wait_for_news, self._driver.finish, self._transport.wake,
                            self._view_id, self._inside)
        state_calls = StateCallbacks(self._state, self._driver, self._sending, self._threads,
                                     self._halt, *of_state)
        self._callbacks = Callbacks(self.address, self._state, self._driver, self._halt, *given,
                                    on_skipped, state_calls)
        self._publishing = Publishing(group, stack, place_of(stack, group, self.config),
                                      access is not None, self._endpoint, self._state,
                                      self._sending)
        self._closing = Closing(self._state, self._driver, self._threads, self._sending,
                                self._inbox, self._callbacks, self._publishing)
        self._joining = Joining(group, self._state, self._driver, self._threads, self._callbacks,
                                self._publishing)
        self._asking = Asking(self._state, self._driver)
        self._driver.attach(self, Channel._perform, self._closing.on_broken_turn,
                              self._closing.on_poll_error)

    # ----------------------------------------------------------------------------------- life cycle

    def connect(self, timeout: float | None = None) -> Self:
        """Join the group: return this channel when it has a view with min_members, and
        with partition="primary" one that is primary. Some may have left by then.

        `timeout` is in seconds; without it, the option join_timeout holds. When it is
        over, raise JoinTimeoutError, which says who is there, and close the channel.
        ClosedError if the channel is closed, or closes because another member has the
        same name, or others have other values of what all members must share;
        RingcastError if it is connected already.
        """
        timeout = arguments.timeout(timeout)
        self._joining.start()
        error = run(self._joining.wait(timeout))
        if error is not None:
            self.close(0)
            raise error
        return self

    def close(self, timeout: float | None = 5.0, *, leave: bool = True) -> int:
        """Leave the group and close the channel. Return how many of the own messages
        some member has not acknowledged, those to single members included.

        It waits until all members have acknowledged all messages, at most `timeout`
        seconds (None: for ever), and then leaves. 0 means that every member of the view
        has finished all of them. Members that left or were excluded do not count;
        messages to such a member alone go to on_undelivered. Closing again returns the
        same number.

        With leave=False it does not tell the others, as in a crash. If this member is
        `durable`, they keep what it has not acknowledged for `absence` seconds, until
        it is excluded, or comes back under its name and gets these messages.

        Blocked senders get ClosedError, and iterators end. What the application had not
        finished is not acknowledged. If a callback does not return, close() waits no
        longer than `timeout`, and leave_timeout for the others to notice; no other
        callback begins, and the callback's thread is a daemon.

        A signal handler may call it at any time. If the handler interrupted another
        call of this channel, that call must go on first: then close() returns the
        number of that moment at once, a thread of the channel closes it, and the next
        close(), or the end of the program, waits for that thread.
        """
        timeout = arguments.timeout(timeout)
        return self._closing.close(timeout, arguments.boolean("leave", leave))

    def __enter__(self) -> Self:
        self._state.check_open()
        return self if self._endpoint.view is not None else self.connect()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    if not TYPE_CHECKING:           # a type checker finds `async with` by itself
        def __aenter__(self) -> None:
            raise TypeError("a ringcast.Channel is opened by `with`; `async with` is for "
                            "ringcast.aio.Channel")

        def __aexit__(self, *exc_info: object) -> None:
            pass                    # never called, but Python looks for it first

    # -------------------------------------------------------------------------------------- sending

    def send_many(self, payloads: Sequence[bytes], dest: Address | str | None = None,
                  timeout: float | None = None, *, flags: Flag = NO_FLAGS) -> None:
        """Send all `payloads`, in order. One call costs less than many of `send`, whose
        arguments and errors it has.

        `timeout` holds for each wait. SendTimeoutError says how many messages were
        sent: the first ones; the others were not.
        """
        if not self._send_all_now(payloads, dest, timeout, flags):
            # The payloads first: they may come from calls of this channel.
            self._sending.send_many(arguments.payloads(payloads), dest, timeout, flags)

    def _send_otherwise(self, payload: bytes, dest: Address | str | None, flags: int,
                        timeout: float | None) -> None:
        """See SendPort."""
        self._sending.send_otherwise(payload, dest, flags, timeout)

    def _try_otherwise(self, payload: bytes, dest: Address | str | None, flags: int) -> bool:
        """See SendPort."""
        return self._sending.try_otherwise(payload, dest, flags)

    def _after_push(self, todo: int, window: SendWindow, payload: bytes, dest: Address | str | None,
                    flags: int, timeout: float | None) -> None:
        """See SendPort."""
        self._sending.after_push(todo, window, payload, dest, flags, timeout)

    # ------------------------------------------------------------------------------------ receiving

    def __iter__(self) -> Iterator[Message]:
        """Iterate over messages until the channel is closed; see messages()."""
        return self.messages()

    def messages(self, timeout: float | None = None, *,
                 in_view: View | None = None) -> Iterator[Message]:
        """Iterate over messages as they are delivered, until the channel is closed.

        The iterator also ends when nothing comes for `timeout` seconds, and with the
        view `in_view`: when it has handed out what was delivered in this view or
        before, and the group has another view. What comes later stays for the next
        iterator.

        A message is finished, and acknowledged, when the thread that got it asks for
        another one, with this iterator or a new one. So `for message in channel: ...
        break` leaves the last message unfinished until then; what the iterator had not
        handed out goes to the next iterator, in order. If that thread never asks again,
        the message is finished when another thread finishes a later one. What came
        together is acknowledged together.

        ConfigError if the channel has on_message.
        """
        return self._messages(*self._limits(timeout, in_view))

    def _messages(self, timeout: Instant | None, last_view: int | None) -> Iterator[Message]:
        for taken in self._inbox.outstanding(timeout, last_view):
            for index, batch in enumerate(taken.batches):
                taken.at, taken.messages = index, iter(batch)
                yield from taken.messages

    def batches(self, timeout: float | None = None, *,
                in_view: View | None = None) -> Iterator[Batch]:
        """Iterate over batches, each of one sender's consecutive messages. This is
        several times faster than to iterate over messages. Arguments and errors are
        those of messages()."""
        return self._batches(*self._limits(timeout, in_view))

    def _batches(self, timeout: Instant | None, last_view: int | None) -> Iterator[Batch]:
        for taken in self._inbox.outstanding(timeout, last_view):
            for index, batch in enumerate(taken.batches):
                taken.at, taken.messages = index, HANDED_OUT
                yield batch

    def deliveries(self, timeout: float | None = None, *,
                   in_view: View | None = None) -> Iterator[list[Batch]]:
        """Iterate over lists of all batches that are there at the time. Asking for the
        next list finishes the one before: only then are its messages acknowledged.
        Arguments and errors are those of messages().

        Several threads may iterate. Each batch goes to one of them, and a message is
        acknowledged only when all threads have finished what they took before it.
        """
        return self._deliveries(*self._limits(timeout, in_view))

    def _deliveries(self, timeout: Instant | None, last_view: int | None) -> Iterator[list[Batch]]:
        for taken in self._inbox.outstanding(timeout, last_view):
            taken.at, taken.messages = len(taken.batches) - 1, HANDED_OUT
            yield taken.batches

    def receive(self, timeout: float | None = None) -> Message | None:
        """Return the next message; None if none comes within `timeout` seconds (None:
        wait for ever; 0: do not wait).

        The call finishes the message that the same thread got before, even if it
        returns None: so call it when you are done with that. Several threads may call
        it; each message goes to one of them. Iterators of the same channel go on where
        it stands.

        ClosedError if the channel is closed and nothing is left; ConfigError if it has
        on_message.
        """
        timeout = arguments.timeout(timeout)
        self._check_iterable()
        self._state.check_not_forked()
        message = self._inbox.receive(deadline(to_instant(timeout)))
        if message is None and self._inbox.is_over():
            self._state.check_open()
        return message

    def fileno(self) -> int:
        """Return a descriptor for selectors: it is readable while receive() would
        return a message at once, or raise because the channel is closed.

        It is level-triggered: a selector tells of it again and again until there is
        nothing left to take. A thread that it wakes may find nothing, because another
        one took it. Only wait for it; do not read or close it. It lives as long as this
        object, also when the channel is closed. Other calls work as without it.
        """
        self._check_iterable()
        self._state.check_not_forked()
        return self._inbox.fileno()

    def _check_iterable(self) -> None:
        if self._callbacks.on_message is not None:
            raise ConfigError("the messages of this channel go to on_message; "
                              "leave that out to iterate")

    def _limits(self, timeout: Any, in_view: Any) -> tuple[Instant | None, int | None]:
        """Check the arguments of an iterator. Return them as nanoseconds, and as the id
        of the last view."""
        self._check_iterable()
        in_view = arguments.view("in_view", in_view)
        return (to_instant(arguments.timeout(timeout)),
                None if in_view is None else in_view.id)

    def _view_id(self) -> int:
        return self._endpoint.view.id if self._endpoint.view is not None else 0

    def _wait_for_news(self, condition: Callable[[], bool], by: Instant | None) -> None:
        """Poll until there is news for an iterator, or until `by`; before connect(),
        wait, because nobody polls then."""
        self._state.check_not_forked()
        threads, settled = self._threads, self._state.settled
        if not threads.started:
            settled.wait_for(lambda: condition() or bool(threads.started),
                             lambda: to_seconds(by))
        if threads.started and not condition():
            self._driver.poller.poll_from_caller(condition, by)

    # ----------------------------------------------------------------------------------- the driver

    def _halt(self, fault: str | None) -> None:
        """Stop the channel, from any thread, and tell why in the status file."""
        self._closing.halt(fault)
        self._publishing.hurry()

    def _perform(self, effects: Effects, now: Instant) -> None:
        """Perform the effects of a turn that concern the application, in the order of
        the fields. The caller has the turn, which began at `now`."""
        for view in effects.views:
            self._forget_ports()        # a name may belong to nobody now, or to another incarnation
            for giving in effects.givings:
                if giving.place == view.id:
                    self._callbacks.queue_giving(giving)
            if self._endpoint.leaving is None and not self._driver.is_broken:
                self._callbacks.queue_view(view)    # else what comes before it is not delivered
            log.info(as_cause(told(view)), self.address)
        for news in effects.state:
            self._callbacks.state_calls.put(news)
        if effects.deliveries and not self._driver.is_broken:
            self._callbacks.queue_deliveries(effects.deliveries)
            if self._callbacks.on_message is None:
                self._inbox.put(effects.deliveries)
        for batch in effects.failures:
            self._callbacks.queue_undelivered(batch)
        for warning in effects.warnings:
            log.warning(as_cause(warning), self.address)
        for dest in effects.closed:
            self._forget_port(dest)
            self._sending.forget(dest)
        if effects.writable:
            self._sending.on_room()
        if effects.views or effects.writable or effects.answered or self._state.closing:
            self._state.settled.notify_all()
        if effects.fault is not None:
            self._halt(effects.fault)
        if effects.views or effects.notices or effects.warnings or effects.fault is not None:
            self._publishing.note(effects)
        if now >= self._publishing.due:
            self._publishing.publish(self._status, now)

    # ------------------------------------------------------------------------------------ the group

    @property
    def view(self) -> View:
        """Return the latest view that this member has been given. It comes after all
        messages of the view before. An application that takes its messages late may be
        behind: Batch.view_id says in which view a message was delivered.

        RingcastError before the first view, for which connect() waits.
        """
        if (view := self._endpoint.view) is None:
            raise RingcastError("this channel has no view yet; call connect(), which waits for one")
        return view

    @refuses_reentry
    def _poll_briefly(self, done: Callable[[], bool]) -> None:
        """Take a turn without waiting, in the thread of an event loop. What a signal
        handler raises there is raised."""
        self._driver.poller.poll_briefly(done)

    @refuses_reentry
    def exclude(self, member: Address | str) -> None:
        """Exclude a member from the group, for all members, because you know that it is
        dead: nobody waits for it any more.

        A group excludes its dead by itself; this is faster. If the member is alive
        after all, it comes back. By its Address no other one is meant that has its name
        by now. ConfigError if `member` is not in the view, or is this member itself. It
        gives no majority to a part of a group that has none.
        """
        if not isinstance(member, (Address, str)):
            raise TypeError(f"member is an Address or a name, not {type(member).__name__}")
        if member in (self.address, self.address.name):
            raise ConfigError("a member leaves by closing its channel; exclude() is for others")
        if self._state.closed:
            self._state.check_open()
        self._driver.run_in_turn(partial(self._endpoint.members.exclude, member))
        self._driver.request_turn_by(0)

    def end_of(self, member: Address | int, timeout: float | None = 5.0) -> int | None:
        """Return where the stream of a member that is gone ended: the highest seqno
        that applications in the view have finished. None if nobody knows the stream.

        `member` is its Address, or the number that is its incarnation; its name may
        belong to another member by now. Each member remembers the last 1,024 that
        departed. The answer is exact: it comes when all members of the view have said
        what they have, which they do when they have finished it. While the member is in
        the view, there is no answer; nor while the calling thread has an unfinished
        message of it.

        `timeout` is in seconds, None is for ever; when it is over, raise
        AnswerTimeoutError. ClosedError if the channel is closed, or not connected.
        """
        return max((last for _, last in self.finished_of(member, timeout).values()), default=None)

    @refuses_reentry
    def finished_of(self, member: Address | int,
                    timeout: float | None = 5.0) -> dict[Address, tuple[int, int]]:
        """Return what each member of the view has finished of the stream of a member
        that is gone: its messages behind a seqno, up to another one. A member that does
        not know the stream is left out. Arguments and errors are those of end_of()."""
        return run(self._asking.finished_of(arguments.incarnation("member", member),
                                            arguments.timeout(timeout)))

    @property
    def xmit_interval(self) -> float:
        """Return the milliseconds between two scans for gaps; 0 or less: messages to
        everybody are not retransmitted.

        It may be set while the channel is in use, and no message is lost by that. 0 or
        less is only for nakack2-tcp, whose connections retransmit; ConfigError for
        other stacks.
        """
        return self._multicast.interval / 1_000_000

    @xmit_interval.setter
    @refuses_reentry
    def xmit_interval(self, value: float) -> None:
        check_xmit_interval(arguments.number("xmit_interval", value), self.stack)
        if self._state.closed:
            self._state.check_open()
        self._driver.run_in_turn(partial(self._multicast.change_interval, nanoseconds(value)))
        self._driver.request_turn_by(0)

    @property
    def fault(self) -> str | None:
        """Return why this channel closed by itself; None if it did not."""
        return self._state.fault

    @property
    def acknowledged(self) -> int:
        """Return the seqno up to which every member of the view has acknowledged this
        member's messages to everybody. A durable member that went without leaving
        counts as long as it is expected back."""
        return self._multicast.send_window.ring.low

    @property
    def slowest(self) -> str | None:
        """Return the name of a member, here or absent, that has not acknowledged the
        oldest message that the send window to everybody keeps; None if it keeps none,
        or while that member is not known."""
        slowest = self._endpoint.slowest()
        return slowest.name if slowest is not None else None

    @property
    def max_payload(self) -> int:
        """Return the bytes of the largest message that fits one datagram: on loopback
        ringcast.MAX_PAYLOAD, otherwise what a frame of the interface carries. Larger
        messages are sent in fragments."""
        return self._multicast.send_window.largest

    @property
    def fragment_size(self) -> int:
        """Return the bytes of a message that one fragment carries. A message of more
        than `max_payload` bytes takes a seqno for each fragment; any other message
        takes one."""
        return frag.size_of(self.config.max_bundle_size)

    def __repr__(self) -> str:
        return described("Channel", self)

    def digest(self) -> Digest:
        """Return the highest seqno of each sender in the view that the application has
        finished, at a `durable` member of each sender that it has ever heard of; a
        later incarnation can pass it as `resume`."""
        return self._read(self._multicast.digest)

    def status(self) -> Status:
        """Return the pointers and counters of every layer, of the transport and of this
        channel; docs/reference.md says what each means."""
        return self._read(self._status)

    def _status(self) -> Status:
        status = Status(transport=self._transport.status(), seal=self._transport.seal_status())
        self._endpoint.describe(status)
        status.application.num_blockings = self._sending.num_blockings
        status.application.num_blocked = len(self._sending.waiting)
        status.application.num_callback_errors = (
            self._callbacks.num_errors + self._callbacks.state_calls.num_errors)
        return status

    def _read(self, read: Callable[[], Result]) -> Result:
        """Read something of the stack, in a turn. A signal handler that interrupted a
        call of this channel cannot wait for the turn: it reads without, and again if
        another thread has changed a table meanwhile."""
        if threading.get_ident() not in self._inside:
            return self._read_in_turn(read)
        for _ in range(MAX_READS):
            try:
                return read()
            except RuntimeError:
                continue
        raise RingcastError(REENTERED)

    @refuses_reentry
    def _read_in_turn(self, read: Callable[[], Result]) -> Result:
        return self._driver.read(read)

    # -------------------------------------------------------------- dropped, and in other processes

    def __del__(self) -> None:
        """Leave the group, because nobody has closed this channel and nobody can any
        more. A garbage collector may call this in the middle of anything, so another
        thread does the work."""
        is_complete = getattr(self, "_joining", None) is not None   # else the constructor failed
        if not is_complete or self._state.closed:
            return
        warnings.warn(f"{self.address} of group {self.group!r} was dropped without close(); it "
                      "leaves its group, and messages that were not acknowledged may be lost",
                      ResourceWarning, stacklevel=2, source=self)
        with suppress(RuntimeError):                    # the interpreter ends
            start_new_thread(self._closing.leave_without_waiting, ())

    def __reduce__(self) -> NoReturn:
        raise RingcastError("a channel stays in the process that opened it; give the other process "
                            "the name of the group, and open a channel there")


def described(kind: str, channel: Channel) -> str:
    """Return the repr of a channel, or of another kind of channel that it is inside."""
    state, view = channel._state, channel._endpoint.view
    if state.closing:
        told = "closed" if state.closed else "closing"
        told += f": {state.fault}" if state.fault else ""
    else:
        told = "in no view" if view is None else f"in view {view.id}, members: {len(view)}"
    return (f"<{kind} {channel.address.name!r} of group {channel.group!r}, {channel.stack}, "
            f"{told}>")


def default_name(folder: Folder | None) -> str:
    """Return a name for a member that was given none: its host, its process and a
    random part, so that people can find it and nobody else has it. With trusted keys,
    the name of its own key stands for the host."""
    end = f"{os.getpid()}-{secrets.token_hex(4)}"
    if folder is not None:
        return folder.name(end)
    end = f"-{end}"
    host = socket.gethostname().encode(errors="replace")[:MAX_NAME - len(end)]
    return host.decode(errors="ignore") + end
