"""Channels for asyncio: the same calls, and nothing lost, repeated or blocked, wherever
a task is cancelled."""

import asyncio
import gc
import importlib.util
import inspect
import subprocess
import sys
import threading
from contextlib import asynccontextmanager

import pytest
from channels import DEFAULTS, PATIENCE, QUICK, STACKS, new_group, use_stack
from hypothesis import given, settings, strategies as st
from processes import wait_for

import ringcast
from ringcast import (
    ClosedError,
    ConfigError,
    Flag,
    JoinTimeoutError,
    NotMemberError,
    RingcastError,
    SendTimeoutError,
    aio,
)

SENDER = {"A": {"deliver": False}}
LOOPS = ["asyncio", pytest.param("uvloop", marks=pytest.mark.skipif(
    importlib.util.find_spec("uvloop") is None, reason="uvloop is not installed"))]


@pytest.fixture(params=STACKS)
def stack(request, monkeypatch):
    use_stack(monkeypatch, request.param)
    return request.param


def run(coroutine, loop="asyncio"):
    """Run a coroutine to its end, with patience."""
    if loop == "uvloop":
        import uvloop
        return uvloop.run(asyncio.wait_for(coroutine, PATIENCE / 2))
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE / 2))


@asynccontextmanager
async def joined(names, per_member=None, **kwargs):
    """Yield channels of one group, connected in one loop: so connecting cannot block
    it."""
    group = new_group()
    channels = [aio.Channel(group, name=name, min_members=len(names),
                            **(QUICK | DEFAULTS | kwargs | (per_member or {}).get(name, {})))
                for name in names]
    try:
        await asyncio.gather(*(channel.connect() for channel in channels))
        yield channels
    finally:
        await asyncio.gather(*(channel.close(0.2) for channel in channels))


async def until(condition, meanwhile=lambda: None):
    while not condition():
        meanwhile()
        await asyncio.sleep(0.001)


async def has(channel, count):
    """Wait until so many messages wait for the application."""
    await until(lambda: channel.status().delivery.num_undelivered >= count)


def numbers(count):
    return [b"%d" % number for number in range(count)]


# --------------------------------------------------------------------------- the same calls

def test_it_has_every_public_name_of_the_synchronous_channel():
    """But fileno: the loop itself watches."""
    with ringcast.Channel(new_group(), stack="inproc") as plain:
        names = {name for name in dir(plain) if not name.startswith("_")}
        other = aio.Channel(new_group(), stack="inproc")
        assert names - {name for name in dir(other) if not name.startswith("_")} == {"fileno"}
        for name in names - {"fileno"}:
            ours, theirs = (getattr(type(each), name, None) for each in (plain, other))
            if inspect.isfunction(ours) and inspect.isfunction(theirs):
                assert (list(inspect.signature(ours).parameters)
                        == list(inspect.signature(theirs).parameters)), name
        run(other.close())


def test_with_in_the_place_of_async_with_says_which_of_the_two():
    group = new_group()

    async def confused():
        other = aio.Channel(group, stack="inproc")
        with pytest.raises(TypeError, match="a ringcast.aio.Channel is opened by `async with`"):
            with other:
                pass
        await other.close()
        with ringcast.Channel(group, stack="inproc") as plain:
            with pytest.raises(TypeError, match="a ringcast.Channel is opened by `with`"):
                async with plain:
                    pass

    run(confused())


def test_the_calls_of_compiled_methods_have_the_same_arguments():
    for name in ("send", "try_send"):
        ours, theirs = (inspect.signature(getattr(each, name))
                        for each in (ringcast.Channel, aio.Channel))
        assert list(ours.parameters) == list(theirs.parameters)


def test_a_send_is_a_coroutine_that_sends_once_when_it_is_awaited():
    async def play():
        async with joined("A") as (a,):
            def sent():
                return a.status().multicast.hr

            call = a.send(b"1")
            assert asyncio.iscoroutine(call) and sent() == 0
            await call
            assert sent() == 1
            with pytest.raises(RuntimeError, match="already awaited"):
                await call
            await asyncio.gather(asyncio.create_task(a.send(b"2")), a.send(b"3", "A"),
                                 asyncio.wait_for(a.send(b"4"), PATIENCE))
            assert sent() == 3
            with pytest.raises(StopIteration):          # as a loop drives it
                a.send(b"5").send(None)
            assert sent() == 4
            too_late = asyncio.create_task(a.send(b"6"))
            assert "Channel.send()" in repr(too_late)
            too_late.cancel()
            await asyncio.wait([too_late])
            assert too_late.cancelled() and sent() == 4
            with pytest.raises(KeyError):
                a.send(b"7").throw(KeyError("7"))
            a.send(b"8").close()
            assert sent() == 4
    run(play())


def test_a_send_that_is_not_awaited_is_told():
    async def play():
        async with joined("A") as (a,):
            with pytest.warns(RuntimeWarning, match=r"'Channel\.send' was never awaited"):
                a.send(b"1")
            assert a.status().multicast.hr == 0
    run(play())


def test_a_send_that_waits_can_be_closed():
    async def play():
        async with joined("AB", SENDER, capacity=10, max_undelivered=1) as (a, b):
            for payload in numbers(10):
                await a.send(payload)
            call = a.send(b"no room")
            assert asyncio.isfuture(call.send(None)) and a._channel._sending.waiting
            call.close()
            assert not a._channel._sending.waiting
            for payload in numbers(10):
                assert (await b.receive()).payload == payload
            assert await b.receive(0) is None
    run(play())


@pytest.mark.parametrize("loop", LOOPS)
def test_messages_come_once_and_in_order(stack, loop):
    async def play():
        async with joined("AB", SENDER) as (a, b):
            sent, got = numbers(3000), []

            async def receive():
                async for message in b:
                    got.append(message.payload)
                    if len(got) == len(sent):
                        break

            receiving = asyncio.create_task(receive())
            for payload in sent[:1000]:
                await a.send(payload)
            await a.send_many(sent[1000:])
            await receiving
            assert got == sent
    run(play(), loop)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("way", ["messages", "batches", "deliveries", "receive"])
def test_every_way_to_receive_ends_when_the_channel_is_closed(loop, way):
    async def play():
        async with joined("AB", SENDER) as (a, b):
            got = []

            async def receive():
                if way == "receive":
                    with pytest.raises(ClosedError):
                        while True:
                            got.append((await b.receive()).payload)
                    return
                async for each in getattr(b, way)():
                    batches = {"messages": [], "batches": [each], "deliveries": each}[way]
                    got.extend([each.payload] if way == "messages" else
                               [payload for batch in batches for payload in batch.payloads])

            receiving = asyncio.create_task(receive())
            await a.send_many(numbers(500))
            assert await a.close() == 0                 # all is acknowledged
            await b.close()
            await receiving
            assert got == numbers(500)
    run(play(), loop)


def test_who_closes_first_does_not_keep_the_last_ring_from_others():
    """The task that receives looks just before the channel ends; the one that closes
    looks just after, and the loop watches no more."""
    async def play():
        async with aio.Channel(new_group(), **QUICK, **DEFAULTS) as a:
            receiving = asyncio.create_task(a.receive())
            await asyncio.sleep(0)
            wakeups, state = a._wakeups, a._channel._state
            a._channel.close()                          # from this thread: no task runs meanwhile
            assert state.closed and wakeups.lines
            wakeups.detach()
            with pytest.raises(ClosedError):
                await receiving
    run(play())


def test_a_callback_gets_messages_on_a_thread_of_the_channel():
    async def play():
        loop, came, got = asyncio.get_running_loop(), asyncio.Event(), []

        def on_message(batch):
            got.extend(batch.payloads)
            loop.call_soon_threadsafe(came.set)

        async with joined("AB", {**SENDER, "B": {"on_message": on_message}}) as (a, b):
            await a.send(b"x")
            await came.wait()
            with pytest.raises(ConfigError, match="go to on_message"):
                await b.receive()
        assert got == [b"x"]
    run(play())


def test_errors_are_those_of_the_synchronous_channel():
    async def play():
        async with joined("AB", SENDER) as (a, b):
            for error, call in ((TypeError, lambda: a.send("text")),
                                (TypeError, lambda: a.send_many(b"x")),
                                (ConfigError, lambda: a.send(b"x", timeout=-1)),
                                (NotMemberError, lambda: a.send(b"x", "nobody")),
                                (ConfigError, lambda: b.receive(-1))):
                with pytest.raises(error):
                    await call()
            with pytest.raises(ConfigError):
                b.exclude("B")
            await a.send(b"to one", "B")
            await a.send(b"one datagram", flags=Flag.NO_RELIABILITY)
            got = {(await b.receive()).payload for _ in range(2)}
            assert got == {b"to one", b"one datagram"}
        with pytest.raises(ClosedError):
            await a.send(b"x")
    run(play())


def test_views(stack):
    async def play():
        async with joined("ABC", SENDER) as (a, b, c):
            view, waiting = b.view, asyncio.create_task(b.view_changed())
            await asyncio.sleep(0)              # it has looked which view there is
            await a.send(b"before")
            await has(b, 1)
            iterating = asyncio.create_task(collect(b.messages(in_view=view)))
            await c.close()
            assert set((await waiting).names) == {"A", "B"}
            assert (await b.view_changed(view)).id > view.id
            assert [message.payload for message in await iterating] == [b"before"]
            last = asyncio.create_task(b.view_changed())
            await asyncio.sleep(0)
            await b.close()
            with pytest.raises(ClosedError):
                await last
    run(play())


async def collect(iterator):
    return [item async for item in iterator]


def test_where_a_stream_ended_can_be_asked():
    async def play():
        async with joined("ABC", {name: {"deliver": False} for name in "AC"}) as (a, b, c):
            await c.send_many([b"x"] * 7)
            reading = asyncio.create_task(collect(b.batches()))
            assert await c.close() == 0
            assert await a.end_of(c.address) == 7
            assert set((await b.finished_of(c.address)).values()) == {(0, 7)}
            await b.close()
            await reading
    run(play())


def test_the_collector_may_drop_a_task_that_asks_in_the_middle_of_a_turn():
    loop = asyncio.new_event_loop()
    channel = aio.Channel(new_group(), stack="inproc", **QUICK)
    loop.run_until_complete(channel.connect())
    asking = channel._channel._asking.finished_of(channel.address.incarnation, None)
    next(asking)                                        # it waits, as the task would
    driver = channel._channel._driver
    turn = threading.Thread(target=driver.run_in_turn, args=(lambda now: asking.close(),),
                            daemon=True)
    turn.start()
    turn.join(PATIENCE)
    assert not turn.is_alive() and not driver.endpoint.ends.asked
    loop.run_until_complete(channel.close())
    loop.close()


def test_it_belongs_to_one_loop():
    channel = aio.Channel(new_group(), stack="inproc", **QUICK)
    run(channel.connect())
    with pytest.raises(RingcastError, match="another event loop"):
        run(channel.receive())
    channel._channel.close()


def test_join_that_takes_too_long_raises_and_closes():
    async def play():
        channel = aio.Channel(new_group(), stack="inproc", min_members=2)
        with pytest.raises(JoinTimeoutError):
            await channel.connect(0.01)
        with pytest.raises(ClosedError):
            await channel.connect()
    run(play())


def test_connect_counts_a_view_that_came_and_went_while_the_loop_was_busy():
    async def play():
        group, options = new_group(), QUICK | {"stack": "inproc", "min_members": 2}
        a = aio.Channel(group, name="A", **options)
        connecting = asyncio.create_task(a.connect(2))
        await asyncio.sleep(0)                          # it has begun
        with ringcast.Channel(group, name="B", **options):
            pass
        wait_for(lambda: a.view is not None and a.view.names == ("A",))
        await connecting
        await a.close()
    run(play())


# -------------------------------------------------------------- iterators and who finishes what

def test_what_an_iterator_had_not_handed_out_goes_to_the_next_at_once():
    async def play():
        async with joined("AB", SENDER) as (a, b):
            await a.send_many(numbers(20))
            await has(b, 20)
            got = []
            while len(got) < 20:
                way = (b.messages, b.batches, b.__aiter__)[len(got) % 3]
                async for each in way():
                    got += each.payloads if way == b.batches else [each.payload]
                    break
                if len(got) < 20:
                    got.append((await b.receive()).payload)
            assert got == numbers(20)
    run(play())


def test_an_iterator_that_is_kept_can_be_closed():
    async def play():
        async with joined("AB", SENDER) as (a, b):
            await a.send_many(numbers(3))
            await has(b, 3)
            kept = b.messages()
            assert (await anext(kept)).payload == b"0"
            assert await b.receive(0) is None
            await kept.aclose()
            assert (await b.receive(0)).payload == b"1"
            with pytest.raises(StopAsyncIteration):
                await anext(kept)
    run(play())


def test_a_message_is_not_finished_while_its_task_works_on_it():
    async def play():
        async with joined("AB", SENDER) as (a, b):
            await a.send_many(numbers(2))
            await has(b, 2)
            got, may_end = [], asyncio.Event()

            async def work():
                got.append((await b.receive()).payload)
                await may_end.wait()

            worker = asyncio.create_task(work())
            await until(lambda: got)
            assert (await b.receive()).payload == b"1" and await b.receive(0) is None
            assert not b._channel._driver.finished and b.digest()[a.address] == 0
            may_end.set()
            await worker
            assert await b.receive(0) is None           # its task has ended
            await until(lambda: b.digest()[a.address] == 2)
    run(play())


def test_wait_for_around_receive_acknowledges_what_it_gave():
    """Python 3.11 runs each call in a task of its own."""
    async def play():
        async with joined("AB", SENDER, capacity=4) as (a, b):
            sending = asyncio.create_task(a.send_many(numbers(100)))
            got = [(await asyncio.wait_for(b.receive(), PATIENCE)).payload for _ in range(100)]
            await sending
            assert got == numbers(100)
    run(play())


def test_two_tasks_cannot_wait_for_one_iterator():
    async def play():
        async with joined("AB", SENDER) as (a, b):
            messages = b.messages()
            waiting = asyncio.create_task(anext(messages))
            await asyncio.sleep(0)
            with pytest.raises(RingcastError, match="give each task its own"):
                await anext(messages)
            await a.send(b"x")
            assert (await waiting).payload == b"x"
    run(play())


def test_an_iterator_with_a_timeout_ends_when_nothing_comes():
    async def play():
        async with joined("AB", SENDER) as (a, b):
            await a.send_many(numbers(3))
            await has(b, 3)
            for timeout in (0, 0.01):
                await a.send(b"more")
                await has(b, 1)
                assert (await collect(b.messages(timeout)))[-1].payload == b"more"
                assert await collect(b.batches(timeout)) == []
            assert await b.receive(0.01) is None
    run(play())


@asynccontextmanager
async def another_task():
    """Let another task take turns all the time; give its turns, a list that grows."""
    turns = []

    async def take_turns():
        while True:
            turns.append(None)
            await asyncio.sleep(0)

    task = asyncio.create_task(take_turns())
    try:
        yield turns
    finally:
        task.cancel()


def test_other_tasks_go_on_while_messages_come_all_the_time():
    async def play():
        async with joined("AB", SENDER) as (a, b), another_task() as turns:
            for _ in range(10):
                await a.send_many(numbers(10))
                await has(b, 10)
                before = len(turns)
                assert len(await collect(b.messages(0))) == 10
                assert len(turns) > before
    run(play())


def test_other_tasks_go_on_while_a_task_asks_again_and_again_without_waiting():
    async def play():
        async with (joined("AB", SENDER, capacity=4, max_undelivered=1) as (a, b),
                    another_task() as turns):
            for _ in range(10):
                assert await b.receive(0) is None
            assert len(turns) >= 10
            await a.send_many(numbers(4))
            before = len(turns)
            for _ in range(10):
                with pytest.raises(SendTimeoutError):
                    await a.send(b"no room", timeout=0)
            assert len(turns) >= before + 10
    run(play())


# ----------------------------------------------------------------------- the loop is not blocked

def test_a_task_that_waits_for_room_lets_the_others_make_it(stack):
    async def play():
        async with joined("AB", SENDER, capacity=8, max_undelivered=1) as (a, b):
            sent = numbers(200)
            sending = asyncio.create_task(a.send_many(sent))
            more = [asyncio.create_task(a.send(b"x")) for _ in range(3)]
            got = [(await b.receive()).payload for _ in range(203)]
            await asyncio.gather(sending, *more)
            assert [payload for payload in got if payload != b"x"] == sent
    run(play())


def test_tasks_go_on_in_the_order_in_which_they_began_to_wait():
    """Else one of them may find no room again and again, as all others do."""
    async def play():
        async with joined("A") as (a,):
            wakeups, has_come, went_on = a._wakeups, [], []

            async def wait(number):
                await wakeups.wait_for(lambda: bool(has_come), lambda: None)
                went_on.append(number)

            waiting = [asyncio.create_task(wait(number)) for number in range(100)]
            await asyncio.sleep(0)
            has_come.append(True)
            wakeups.bell.ring()
            await asyncio.gather(*waiting)
            assert went_on == list(range(100))
    run(play())


@asynccontextmanager
async def in_line(count):
    """Yield a channel's wakeups, a room of which so many tasks wait for a place each,
    these tasks, and what they do: the numbers of those that look, and of those that
    go on."""
    async with joined("A") as (a,):
        wakeups, room, looked, went_on = a._wakeups, [], [], []

        async def wait(number):
            await wakeups.wait_for(lambda: looked.append(number) or bool(room), lambda: None, "it")
            room.pop()
            went_on.append(number)

        tasks = [asyncio.create_task(wait(number)) for number in range(count)]
        await asyncio.sleep(0)
        looked.clear()
        yield wakeups, room, tasks, looked, went_on
        for task in tasks:
            task.cancel()


def test_of_those_who_wait_for_room_only_who_may_go_on_and_the_next_are_woken():
    async def play():
        async with in_line(100) as (wakeups, room, _, looked, went_on):
            for begin in (0, 3, 6):
                room.extend([True] * 3)
                wakeups.bell.ring()
                await until(lambda: not room)
                assert went_on == list(range(begin + 3))
                # The channel's own turns may wake the first of them once more.
                await until(lambda begin=begin: {*looked} == {*range(begin, begin + 4)})
                looked.clear()
    run(play())


def test_a_task_that_is_woken_and_cancelled_lets_the_next_one_go_on():
    async def play():
        async with in_line(3) as (wakeups, room, tasks, _, went_on):
            room.append(True)
            wakeups._answer()                       # the first is woken, and has not run
            tasks[0].cancel()
            await until(lambda: not room)
            assert went_on == [1]
    run(play())


def test_a_call_leaves_no_garbage_that_only_a_collector_finds():
    async def play():
        async with joined("A") as (a,):
            gc.collect()
            gc.disable()
            try:
                for _ in range(100):
                    await a.send(b"x", flags=Flag.NO_RELIABILITY)       # it has no fast path
                assert gc.collect() < 100
            finally:
                gc.enable()
    run(play())


def test_sends_that_wait_go_on_in_their_order_while_others_are_cancelled_and_time_out():
    async def play():
        async with joined("AB", SENDER, capacity=4, max_undelivered=1) as (a, b):
            sending = [asyncio.create_task(a.send(b"%d" % number, timeout=0 if number % 5 == 4
                                                  else None)) for number in range(100)]
            await asyncio.sleep(0)
            got = []
            for number in range(6, 100, 3):
                got.append((await b.receive()).payload)
                sending[number].cancel()
            while not all(task.done() for task in sending):
                if (message := await b.receive(0.001)) is not None:
                    got.append(message.payload)
            sent = [b"%d" % number for number, task in enumerate(sending)
                    if not task.cancelled() and task.exception() is None]
            while len(got) < len(sent):
                got.append((await b.receive()).payload)
            assert got == sent and await b.receive(0) is None and not a._wakeups.lines
    run(play())


def test_tasks_that_a_closed_loop_forgot_wake_nobody(capfd):
    async def play():
        channel = await aio.Channel(new_group(), stack="inproc", min_members=1).connect()
        waiting = [asyncio.ensure_future(channel.receive()) for _ in range(2)]
        await asyncio.sleep(0)
        return channel, waiting

    loop = asyncio.new_event_loop()
    channel, waiting = loop.run_until_complete(play())
    loop.close()
    channel._channel.close()
    for task in waiting:
        task._log_destroy_pending = False
    del channel, waiting, task
    gc.collect()
    assert "closed" not in capfd.readouterr().err


def test_large_messages_of_several_tasks_come_whole(stack):
    async def play():
        async with joined("AB", SENDER, capacity=4) as (a, b):
            large = [bytes([number]) * 500_000 for number in range(4)]
            sending = [asyncio.create_task(a.send(payload)) for payload in large]
            got = [(await b.receive()).payload for _ in large]
            await asyncio.gather(*sending)
            assert sorted(got) == large
    run(play())


def test_closing_waits_for_acks_and_lets_others_give_them(stack):
    async def play():
        async with joined("AB", SENDER) as (a, b):
            await a.send_many(numbers(100))
            closing, reading = asyncio.create_task(a.close()), asyncio.create_task(
                collect(b.messages()))
            assert await closing == 0 and await a.close() == 0
            await b.close()
            assert len(await reading) == 100
    run(play())


def test_a_batch_wakes_the_loop_once_and_no_call_needs_a_thread():
    async def play():
        async with joined("AB", SENDER) as (a, b):
            rung, ring, threads = [], b._wakeups.bell.ring, set(threading.enumerate())

            def count():
                rung.append(b._wakeups.bell._is_armed)
                ring()

            b._wakeups.bell.ring = count
            for _ in range(20):
                receiving = asyncio.create_task(b.receive())
                await until(lambda: b._wakeups.lines)
                await a.send_many([b"x"] * 100)
                await receiving
                for _ in range(99):
                    await b.receive()
            assert sum(rung) <= 3 * 20
            assert set(threading.enumerate()) == threads
    run(play())


# -------------------------------------------------------------------------- time-outs, cancelling

def test_a_send_that_times_out_or_is_cancelled_has_sent_nothing(stack):
    async def play():
        async with joined("AB", SENDER, capacity=10, max_undelivered=1) as (a, b):
            for payload in numbers(10):
                await a.send(payload)
            assert not a.try_send(b"no room")
            with pytest.raises(SendTimeoutError, match="slowest to acknowledge is B"):
                await a.send(b"given up", timeout=0.01)
            sending = asyncio.create_task(a.send(b"cancelled"))
            await until(lambda: a.status().application.num_blockings == 2)
            sending.cancel()
            await asyncio.wait([sending])
            assert sending.cancelled()
            got = [(await b.receive()).payload for _ in range(10)]
            last = asyncio.create_task(a.send(b"last"))
            got.append((await b.receive()).payload)
            await last
            assert got == numbers(10) + [b"last"] and await b.receive(0) is None
    run(play())


def test_send_many_that_ends_early_says_how_many_it_sent():
    async def play():
        async with joined("AB", SENDER, capacity=10, max_undelivered=1) as (a, b):
            sent = numbers(30)
            with pytest.raises(SendTimeoutError) as timed_out:
                await a.send_many(sent, timeout=0.01)
            assert timed_out.value.num_sent == 10
            for number in range(10):
                assert (await b.receive()).payload == sent[number]
            assert await b.receive(0) is None
            await until(lambda: a.status().multicast.num_unacked == 0)
            with pytest.raises(TimeoutError) as cancelled:
                async with asyncio.timeout(0.05):
                    await a.send_many(sent[10:])
            assert cancelled.value.__cause__.num_sent == 10
            for number in range(10, 20):
                assert (await b.receive()).payload == sent[number]
    run(play())


def test_a_large_message_waits_no_longer_than_its_timeout_for_another_one():
    async def play():
        async with joined("AB", SENDER, capacity=4, max_undelivered=1) as (a, b):
            await a.send(b"B takes nothing behind this")
            first = asyncio.create_task(a.send(bytes(2_000_000)))
            await until(lambda: a.status().application.num_blockings)
            with pytest.raises(SendTimeoutError, match="another large message was still sent"):
                await a.send(b"y" * 500_000, timeout=0.01)
            with pytest.raises(SendTimeoutError) as caught:
                await a.send_many([b"y" * 500_000], timeout=0.01)
            assert caught.value.num_sent == 0
            await b.receive()
            assert len((await b.receive()).payload) == 2_000_000
            await first
            assert await b.receive(0) is None
    run(play())


def test_a_large_message_that_is_cancelled_reaches_nobody_and_the_next_comes():
    async def play():
        async with joined("AB", SENDER, capacity=4, max_undelivered=1) as (a, b):
            await a.send(b"B takes nothing behind this")
            sending = asyncio.create_task(a.send(bytes(2_000_000)))
            second = asyncio.create_task(a.send(b"y" * 500_000))
            await until(lambda: a.status().application.num_blockings)
            sending.cancel()
            await b.receive()
            assert (await b.receive()).payload == b"y" * 500_000
            await second
            assert sending.cancelled() and await b.receive(0) is None
    run(play())


CANCELLED = """
import asyncio, gc, os, sys, threading, time
from ringcast import aio

async def play():
    channel = aio.Channel(sys.argv[1], stack=sys.argv[2], min_members=2)
    connecting = asyncio.create_task(channel.connect())
    await asyncio.sleep(0)
    connecting.cancel()
    await asyncio.wait([connecting])
    assert connecting.cancelled()
    await channel.close()

for _ in range(3):                  # a process opens some descriptors once, at first
    asyncio.run(play())
    while threading.active_count() > 1:     # it was closed without waiting for its threads
        time.sleep(0.001)
    gc.collect()
    print(len(os.listdir("/proc/self/fd")))
"""


@pytest.mark.parametrize("name", STACKS)
def test_a_connect_that_is_cancelled_leaves_no_thread_and_no_descriptor(name):
    """In a process of its own, where nothing else opens and closes any."""
    ran = subprocess.run([sys.executable, "-c", CANCELLED, new_group(), name], text=True,
                         capture_output=True, timeout=PATIENCE, check=True)
    _, second, third = ran.stdout.splitlines()
    assert second == third


def test_a_close_that_is_cancelled_goes_on():
    async def play():
        async with joined("AB", SENDER) as (a, b):
            await a.send(b"x")
            closing = asyncio.create_task(a.close(None))
            await asyncio.sleep(0.01)
            closing.cancel()
            await asyncio.wait([closing])
            assert closing.cancelled()
            assert (await b.receive()).payload == b"x" and await b.receive(0) is None
            await until(lambda: a._channel._state.closed)
            assert await a.close() == 0
    run(play())


def test_a_channel_that_is_dropped_leaves_its_group():
    async def play():
        async with joined("AB", SENDER) as (_, b):
            other = aio.Channel(b.group, name="C", **QUICK, **DEFAULTS)
            await other.connect()
            await until(lambda: "C" in b.view.names)
            with pytest.warns(ResourceWarning, match="without close"):      # by any thread:
                del other               # one that ends a turn holds the channel a moment longer
                await until(lambda: "C" not in b.view.names, gc.collect)
    run(play())


def test_the_loop_watches_no_channel_that_was_dropped():
    """Its bell has rung while no task waited: nobody would hear that it closes."""
    async def play():
        selector = asyncio.get_running_loop()._selector
        watched = len(selector.get_map())
        other = aio.Channel(new_group(), name="C", **QUICK, **DEFAULTS)
        await other.connect()
        assert await other.receive(0) is None and len(selector.get_map()) == watched + 1
        await other.send(b"")
        await has(other, 1)
        with pytest.warns(ResourceWarning, match="without close"):
            del other
            await until(lambda: len(selector.get_map()) == watched, gc.collect)
    asyncio.run(play())


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_what_a_signal_handler_raises_while_a_task_polls_is_raised_there(error):
    async def play():
        async with joined("AB") as (a, b):
            transport, loop = b._channel._driver.transport, threading.get_ident()

            def interrupted(*args):
                if threading.get_ident() == loop:
                    transport.poll = poll
                    raise error
                return poll(*args)

            poll, transport.poll = transport.poll, interrupted
            with pytest.raises(error):
                b._receiving._poll(lambda: False)
            assert b.fault is None
            await a.send(b"goes on")
            assert (await b.receive()).payload == b"goes on"
    run(play())


class Steps:
    """Runs a coroutine in a task that is cancelled after so many of its steps."""

    def __init__(self, coroutine, after):
        self.coroutine, self.left = coroutine, after

    def __await__(self):
        inner = self.coroutine.__await__()
        value = error = None
        while True:
            try:
                waits_for = inner.send(value) if error is None else inner.throw(error)
            except StopIteration as end:
                return end.value
            self.left -= 1
            value = error = None
            if self.left < 0:
                if waits_for is not None:
                    waits_for._asyncio_future_blocking = False
                error = asyncio.CancelledError()
                continue
            try:
                value = yield waits_for
            except BaseException as thrown:
                error = thrown


async def cancelled_after(coroutine, steps):
    """Return the result of a coroutine, or None if it was cancelled at its await number
    `steps`."""
    async def whole():
        return await Steps(coroutine, steps)

    try:
        return await whole()
    except asyncio.CancelledError:
        return None


ACTIONS = st.lists(st.tuples(
    st.sampled_from(["receive", "message", "batch", "send", "send_many", "pause"]),
    st.integers(0, 3)), max_size=40)


def test_wherever_calls_are_cancelled_nothing_is_lost_or_repeated():
    """Each call is cancelled at its first await, or a later one, or ends. A window of
    4: sends wait often. What a call says that it sent is received, once and in order,
    and nothing else. One group plays all examples."""
    with asyncio.Runner() as runner:
        group = joined("AB", SENDER, capacity=4, max_undelivered=2)
        a, b = runner.run(group.__aenter__())

        @settings(max_examples=100)
        @given(ACTIONS)
        def example(actions):
            runner.run(play(a, b, actions))

        try:
            example()
        finally:
            runner.run(group.__aexit__(None, None, None))


async def play(a, b, actions):
    sent, got, next_one = [], [], 0

    async def one(iterator):
        async for each in iterator:
            return each
        return None

    async def send_many(payloads):
        try:
            await a.send_many(payloads, timeout=0.001)
        except (asyncio.CancelledError, SendTimeoutError) as error:
            return error.num_sent
        return len(payloads)

    async def send(payload):
        try:
            await a.send(payload, timeout=0.001)
        except SendTimeoutError:
            return False
        return True

    for what, steps in actions:
        if what == "pause":
            await asyncio.sleep(0.0005)
        elif what == "send":
            payload, next_one = b"%d" % next_one, next_one + 1
            if await cancelled_after(send(payload), steps):
                sent.append(payload)
        elif what == "send_many":
            payloads = [b"%d" % (next_one + number) for number in range(6)]
            next_one += 6
            sent += payloads[:await cancelled_after(send_many(payloads), steps)]
        elif what == "batch":
            batch = await cancelled_after(one(b.batches(0.001)), steps)
            got += batch.payloads if batch else []
        else:
            message = await cancelled_after(
                b.receive(0.001) if what == "receive" else one(b.messages(0.001)), steps)
            got += [message.payload] if message else []
    while len(got) < len(sent):
        got.append((await b.receive()).payload)
    assert got == sent and await b.receive(0) is None


def test_other_threads_may_send_if_there_is_room(stack):
    async def main():
        async with joined("AB") as (a, b):
            assert await asyncio.to_thread(lambda: [a.try_send(b"%d" % number)
                                                    for number in range(100)]) == [True] * 100
            assert [(await b.receive()).payload for _ in range(100)] == [
                b"%d" % number for number in range(100)]
    run(main())
