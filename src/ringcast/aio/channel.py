"""Channel for asyncio: the same member of a group, with the same calls by the same
names; those that may have to wait are awaited.

It has a synchronous channel, whose driver's thread polls the network and takes the
turns. The loop watches one descriptor (wakeups.py). Calls that wait are written once
for threads and tasks (channel/pauses.py). Nothing here blocks the loop, and no call
needs a thread of its own, except that a channel closes on one thread, as everywhere
(channel/closing.py).
"""

from asyncio import CancelledError
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from ringcast import arguments
from ringcast._core.batch import Batch, Message
from ringcast._core.send_window import AsyncSendPort
from ringcast.address import Address
from ringcast.aio.receiving import Batches, Deliveries, Iteration, Messages, Receiving
from ringcast.aio.wakeups import Place, Wakeups
from ringcast.channel import Channel as SyncChannel
from ringcast.channel.channel import described
from ringcast.channel.closing import to_instant
from ringcast.channel.pauses import Pause, Steps
from ringcast.config import Config
from ringcast.digest import Digest
from ringcast.flags import NO_FLAGS, Flag
from ringcast.status import Status
from ringcast.view import View

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def takes_arguments_of(constructor: Callable[Arguments, object]) -> Callable[
        [Callable[..., None]], Callable[Concatenate[Any, Arguments], None]]:
    """Give a method the arguments of a constructor."""
    return lambda method: method


class Channel(AsyncSendPort):
    """One member of a group, for asyncio.

        async with ringcast.aio.Channel("prices") as channel:
            await channel.send(b"hello")
            async for message in channel:
                print(message.sender.name, message.payload)

    The arguments are those of ringcast.Channel. Callbacks are called on a thread of the
    channel, as there; `loop.call_soon_threadsafe` brings them into the loop.

    It belongs to the event loop in which it is first used. Any task of that loop may
    call every method. Other threads may call try_send(), and look at properties.

    Whoever cancels a call, or lets it time out, loses and repeats nothing. A call of
    send() that is cancelled has sent nothing. Of send_many() it has sent the first
    messages: the CancelledError has `num_sent`, as SendTimeoutError has. A call that
    receives and is cancelled has taken nothing.

    A message is finished, and acknowledged, when the task that got it asks for another
    one. What receive() gave to a task that has ended is finished when any task asks:
    asyncio.wait_for() of Python 3.11 makes a task for each call.
    """

    @takes_arguments_of(SyncChannel)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._channel = channel = SyncChannel(*args, **kwargs)
        self._open_port(channel)
        self._wakeups = Wakeups(channel._state)
        self._receiving = Receiving(channel._inbox, self._wakeups, self._check_may_receive,
                                    channel._poll_briefly)

    def __del__(self) -> None:
        """Let the loop forget a channel that was dropped."""
        if hasattr(self, "_wakeups"):               # else opening it failed
            self._wakeups.drop()

    # ----------------------------------------------------------------------------------- life cycle

    async def connect(self, timeout: float | None = None) -> Self:
        """Join the group; see ringcast.Channel.connect. A channel whose connect() is
        cancelled closes, and does not wait for anybody."""
        timeout = arguments.timeout(timeout)
        self._wakeups.attach()
        self._channel._joining.start()
        try:
            error = await self._run(self._channel._joining.wait(timeout))
        except BaseException:
            self._channel._closing.begin(0, True)
            raise
        if error is not None:
            await self.close(0)
            raise error
        return self

    async def close(self, timeout: float | None = 5.0, *, leave: bool = True) -> int:
        """Leave the group and close the channel; see ringcast.Channel.close. If it is
        cancelled, a thread of the channel goes on with it."""
        timeout, leave = arguments.timeout(timeout), arguments.boolean("leave", leave)
        if self._channel._state.forked:
            return 0                                # the parent closes it
        unacked = await self._run(self._channel._closing.steps(timeout, leave))
        if self._channel._state.closed:
            self._wakeups.detach()
        return unacked

    async def __aenter__(self) -> Self:
        self._channel._state.check_open()
        return self if self._channel._endpoint.view is not None else await self.connect()

    def __repr__(self) -> str:
        return described("aio.Channel", self._channel)

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    if not TYPE_CHECKING:           # a type checker finds `with` by itself
        def __enter__(self) -> None:
            raise TypeError("a ringcast.aio.Channel is opened by `async with`; `with` is for "
                            "ringcast.Channel")

        def __exit__(self, *exc_info: object) -> None:
            pass                    # never called, but Python looks for it first

    # -------------------------------------------------------------------------------------- sending

    async def _send_otherwise(self, payload: bytes, dest: Address | str | None,
                              timeout: float | None, flags: Flag) -> None:
        await self._run(self._channel._sending.sending(payload, dest, timeout, flags))

    async def send_many(self, payloads: Sequence[bytes], dest: Address | str | None = None,
                        timeout: float | None = None, *, flags: Flag = NO_FLAGS) -> None:
        """Send all `payloads`, in order; see ringcast.Channel.send_many."""
        if not self._channel._send_all_now(payloads, dest, timeout, flags):
            payloads = arguments.payloads(payloads)
            await self._run(self._channel._sending.sending_many(payloads, dest, timeout, flags))

    def try_send(self, payload: bytes, dest: Address | str | None = None, *,
                 flags: Flag = NO_FLAGS) -> bool:
        """Send `payload` if there is room now; see ringcast.Channel.try_send."""
        return self._channel.try_send(payload, dest, flags=flags)

    # ------------------------------------------------------------------------------------ receiving

    def __aiter__(self) -> Iteration[Message]:
        """Iterate over messages until the channel is closed."""
        return self.messages()

    def messages(self, timeout: float | None = None, *,
                 in_view: View | None = None) -> Iteration[Message]:
        """Iterate over messages; see ringcast.Channel.messages. What an iterator that
        is left has not handed out goes to the next one. For one that is kept, aclose()
        says that."""
        return Messages(self._receiving, *self._channel._limits(timeout, in_view))

    def batches(self, timeout: float | None = None, *,
                in_view: View | None = None) -> Iteration[Batch]:
        """Iterate over batches; see ringcast.Channel.batches."""
        return Batches(self._receiving, *self._channel._limits(timeout, in_view))

    def deliveries(self, timeout: float | None = None, *,
                   in_view: View | None = None) -> Iteration[list[Batch]]:
        """Iterate over lists of all batches that are there at the time; see
        ringcast.Channel.deliveries."""
        return Deliveries(self._receiving, *self._channel._limits(timeout, in_view))

    async def receive(self, timeout: float | None = None) -> Message | None:
        """Return the next message; None if none comes within `timeout` seconds; see
        ringcast.Channel.receive."""
        timeout = arguments.timeout(timeout)
        self._check_may_receive()
        message = await self._receiving.receive(to_instant(timeout))
        if message is None and self._receiving.inbox.is_over():
            self._channel._state.check_open()
        return message

    def _check_may_receive(self) -> None:
        self._channel._check_iterable()
        self._channel._state.check_not_forked()

    # ------------------------------------------------------------------------------------ the group

    async def view_changed(self, after: View | None = None) -> View:
        """Wait until the group has another view than `after` (None: than the one it has
        now), and return it.

        With the view that the call before returned, no change is missed, but views that
        came quickly one after the other may be passed over. ClosedError if the channel
        closes.
        """
        state, endpoint = self._channel._state, self._channel._endpoint
        after = arguments.view("after", after) or endpoint.view
        await self._wakeups.wait_for(lambda: state.closing or endpoint.view != after, lambda: None)
        state.check_open()
        return self.view

    async def end_of(self, member: Address | int, timeout: float | None = 5.0) -> int | None:
        """Return where the stream of a member that is gone ended; see
        ringcast.Channel.end_of."""
        return max((last for _, last in (await self.finished_of(member, timeout)).values()),
                   default=None)

    async def finished_of(self, member: Address | int,
                          timeout: float | None = 5.0) -> dict[Address, tuple[int, int]]:
        """Return what each member of the view has finished of the stream of a member
        that is gone; see ringcast.Channel.finished_of."""
        return await self._run(self._channel._asking.finished_of(
            arguments.incarnation("member", member), arguments.timeout(timeout)))

    def exclude(self, member: Address | str) -> None:
        """Exclude a member from the group; see ringcast.Channel.exclude."""
        self._channel.exclude(member)

    @property
    def group(self) -> str:
        """Return the name of the group."""
        return self._channel.group

    @property
    def stack(self) -> str:
        """Return the name of the stack."""
        return self._channel.stack

    @property
    def config(self) -> Config:
        """Return the options."""
        return self._channel.config

    @property
    def address(self) -> Address:
        """Return the address of this member."""
        return self._channel.address

    @property
    def view(self) -> View:
        """Return the latest view; see ringcast.Channel.view."""
        return self._channel.view

    @property
    def xmit_interval(self) -> float:
        """Return the milliseconds between two scans for gaps; it may be set. See
        ringcast.Channel.xmit_interval."""
        return self._channel.xmit_interval

    @xmit_interval.setter
    def xmit_interval(self, value: float) -> None:
        self._channel.xmit_interval = value

    @property
    def fault(self) -> str | None:
        """Return why this channel closed by itself; None if it did not."""
        return self._channel.fault

    @property
    def acknowledged(self) -> int:
        """Return the seqno up to which all have acknowledged; see
        ringcast.Channel.acknowledged."""
        return self._channel.acknowledged

    @property
    def slowest(self) -> str | None:
        """Return the name of a member that is slow; see ringcast.Channel.slowest."""
        return self._channel.slowest

    @property
    def max_payload(self) -> int:
        """Return the bytes of the largest message that fits one datagram."""
        return self._channel.max_payload

    @property
    def fragment_size(self) -> int:
        """Return the bytes of a message that one fragment carries."""
        return self._channel.fragment_size

    def digest(self) -> Digest:
        """Return what the application has finished; see ringcast.Channel.digest."""
        return self._channel.digest()

    def status(self) -> Status:
        """Return pointers and counters; see ringcast.Channel.status."""
        return self._channel.status()

    # ------------------------------------------------------------------------------------- waiting

    async def _run(self, steps: Steps[Result]) -> Result:
        """Run a call to its end; this task waits where it must."""
        go_on = self._channel._sending.go_on
        with Place(self._wakeups) as place, closing(steps):
            try:
                pause = go_on(steps, None)
                while True:
                    pause = go_on(steps, await self._wait(pause, place))
            except StopIteration as end:
                result: Result = end.value
                return result

    async def _wait(self, pause: Pause, place: Place) -> bool:
        try:
            return await place.wait_for(pause.ready, pause.deadline, pause.line)
        except CancelledError as error:
            error.num_sent = pause.sent                 # type: ignore[attr-defined]
            raise
