"""Cases of the channel layer, which test_django_channels.py runs. It does what Channels
says of layers, and loses nothing where others have: django/channels issues 763 and
1683."""

import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from functools import wraps

import pytest
from asgiref.sync import async_to_sync
from channels.consumer import AsyncConsumer
from channels.exceptions import ChannelFull
from channels.worker import Worker
from django.conf import settings

from ringcast import Address, Batch, ClosedError, ConfigError, Flag, MessageTooLargeError
from ringcast.contrib.django_channels import RingcastChannelLayer
from ringcast.contrib.mailboxes import Mailboxes
from ringcast.contrib.notes import Note, encode
from ringcast.contrib.unread import Unread

if not settings.configured:
    settings.configure()
PORT = int(os.environ["CASES_PORT"])
numbers = itertools.count()


@asynccontextmanager
async def site(processes, **config):
    """Yield the layers of a site of several processes; here they are in one."""
    config = {"group": f"site-{next(numbers)}", "stack": "inproc", **config}
    layers = [RingcastChannelLayer(**config) for _ in range(processes)]
    try:
        homes = [await layer._home.channel() for layer in layers]
        while any(len(home.view) < processes for home in homes):
            await asyncio.sleep(0.001)
        yield layers
    finally:
        await asyncio.gather(*(layer.close() for layer in layers))


def runs(case):
    """Run a case in an event loop."""
    @wraps(case)
    def test(*args, **kwargs):
        asyncio.run(case(*args, **kwargs))
    return test


async def wanted(layer):
    """Wait until somebody wants jobs, as this process knows; return who does."""
    while not (wants := layer._site.work._wants.of("jobs")):
        await asyncio.sleep(0.001)
    return wants


async def some(layer, channel, count):
    return [await layer.receive(channel) for _ in range(count)]


# ---------------------------------------------------------------------- what layers do

@runs
async def test_a_message_comes_to_its_channel_with_all_its_types():
    message = {"type": "x", "bytes": b"\x00\xff", "text": "ö", "list": [1, -2**63, 0.5, None, True],
               "dict": {"a": {"b": []}}}
    async with site(2) as (one, two):
        for receiver in (one, two):
            channel = await receiver.new_channel()
            for sender in (one, two):
                await sender.send(channel, message)
            assert await some(receiver, channel, 2) == [message] * 2


@runs
async def test_a_full_channel_is_told_where_it_is_known():
    async with site(2, capacity=3, channel_capacity={"big.*": 5}) as (one, two):
        full, big = await one.new_channel(), await one.new_channel("big")
        for channel, room in ((full, 3), (big, 5), ("worker", 3)):
            for number in range(room):
                await one.send(channel, {"number": number})
            with pytest.raises(ChannelFull):
                await one.send(channel, {"number": room})
        await two.send(full, {"number": 9})             # it cannot know, and drops it
        await two.send(await one.new_channel(), {})
        assert [each["number"] for each in await some(one, full, 3)] == [0, 1, 2]


@runs
async def test_a_group_reaches_all_its_channels_in_the_order_of_each_sender():
    async with site(3) as layers:
        channels = [(layer, await layer.new_channel()) for layer in layers for _ in range(3)]
        for layer, channel in channels:
            await layer.group_add("news", channel)
        for number in range(20):
            for name, layer in enumerate(layers):
                await layer.group_send("news", {"sender": name, "number": number})
        for layer, channel in channels:
            got = await some(layer, channel, 60)
            for name in range(3):
                assert [each["number"] for each in got if each["sender"] == name] == list(range(20))


@runs
async def test_who_is_out_of_a_group_gets_no_more_of_it():
    async with site(2) as (one, two):
        channel = await one.new_channel()
        await two.group_add("news", channel)            # of another process
        await two.group_send("news", {"number": 1})
        assert await one.receive(channel) == {"number": 1}
        await two.group_discard("news", channel)
        await two.group_send("news", {"number": 2})
        await two.send(channel, {"number": 3})
        await one.group_discard("none", channel)
        assert await one.receive(channel) == {"number": 3}


@runs
async def test_flush_forgets_messages_and_groups():
    async with site(1) as (layer,):
        channel = await layer.new_channel()
        await layer.group_add("news", channel)
        await layer.send(channel, {"number": 1})
        await layer.send("worker", {"number": 1})
        await layer.flush()
        await layer.group_send("news", {"number": 2})
        await layer.send(channel, {"number": 3})
        await layer.send("worker", {"number": 3})
        assert await layer.receive(channel) == await layer.receive("worker") == {"number": 3}


@runs
async def test_names_and_messages_that_cannot_be_are_refused():
    async with site(1) as (layer,):
        for wrong in ("no spaces", "", "x" * 101, 5):
            with pytest.raises(TypeError):
                await layer.send(wrong, {})
            with pytest.raises(TypeError):
                await layer.group_add(wrong, "fine")
        with pytest.raises(AssertionError):
            await layer.group_send("news", "text")
        with pytest.raises(OverflowError):
            await layer.send("worker", {"number": 2**64})


@runs
async def test_a_group_that_cannot_be_joined_is_told_each_time():
    layer = RingcastChannelLayer("site", stack="nonsense")
    for _ in range(2):
        with pytest.raises(ConfigError, match="there is no stack 'nonsense'"):
            await layer.new_channel()


def test_any_loop_and_any_thread_may_call():
    """Django calls from threads whose loops end with the call."""
    layer = RingcastChannelLayer(f"site-{next(numbers)}", stack="inproc")
    channel = asyncio.run(layer.new_channel())
    for number in range(3):
        async_to_sync(layer.send)(channel, {"number": number})
        assert asyncio.run(layer.receive(channel)) == {"number": number}
    asyncio.run(layer.close())
    assert asyncio.run(layer.new_channel()) != channel          # it has joined again
    asyncio.run(layer.close())


def test_a_message_that_waited_too_long_is_dropped_and_its_channel_forgotten():
    unread = Unread(0)
    boxes = Mailboxes(lambda name: 10, -1, unread)
    assert boxes.put("a!1", b"1") and boxes.put("a!1", b"2") and boxes.take("a!1") is None
    assert boxes.names() == [] == unread.take_abandoned()
    for name in ("b!2", "for a worker"):
        assert boxes.put(name, b"1") and boxes.put(name, b"2")
    assert unread.take_abandoned() == ["b!2"] and unread.take_abandoned() == []


def test_a_channel_is_abandoned_when_it_was_unread_for_long():
    unread = Unread(3600)
    now = time.monotonic()
    for name, since in (("a!1", 3601), ("b!2", 3600.5), ("c!3", 10)):
        unread.add(name, now - since)
        unread.add(name, now)
    unread.discard("b!2")
    assert unread.take_abandoned() == ["a!1"] and unread.take_abandoned() == []


@runs
async def test_whose_reader_has_gone_without_a_word_is_taken_out_of_its_groups(caplog):
    async with site(1, expiry=-1, group_expiry=0) as (layer,):
        channel = await layer.new_channel()
        await layer.group_add("news", channel)
        await layer.group_add("weather", channel)
        for number in range(3):
            await layer.group_send("news", {"number": number})
        await layer.send(await layer.new_channel(), {})
        while layer._site._groups:
            await asyncio.sleep(0.001)
    assert f"channel {channel}: nobody has received for long" in caplog.text


@runs
async def test_a_consumer_that_is_busy_for_long_stays_in_its_groups():
    async with site(1, expiry=0.001) as (layer,):
        channel = await layer.new_channel()
        await layer.group_add("news", channel)
        for number in range(20):
            await layer.group_send("news", {"number": number})
            await asyncio.sleep(0.002)
        layer._site.boxes._expiry = 60
        await layer.group_send("news", {"number": 20})
        while (await layer.receive(channel))["number"] < 20:
            pass


# --------------------------------------------------------------------- nothing is lost

@runs
async def test_1683_a_receive_that_is_cancelled_at_any_moment_has_taken_nothing():
    choose = random.Random(1683)
    async with site(2, capacity=1000) as (one, two):
        channel, got = await one.new_channel(), []
        await one.group_add("news", channel)

        async def send():
            for number in range(300):
                await two.group_send("news", {"number": number})

        sending = asyncio.create_task(send())
        while len(got) < 300:
            receiving = asyncio.create_task(one.receive(channel))
            for _ in range(choose.randrange(60)):
                await asyncio.sleep(0)
            receiving.cancel()
            with suppress(asyncio.CancelledError):
                got.append((await receiving)["number"])
        await sending
        assert got == list(range(300))


@runs
async def test_1683_clients_that_come_and_go_take_nothing_from_those_that_stay():
    async with site(2, capacity=1000) as layers:
        stay = [(layer, await layer.new_channel()) for layer in layers for _ in range(5)]
        for layer, channel in stay:
            await layer.group_add("news", channel)

        async def come_and_go(layer):
            while True:
                channel = await layer.new_channel()
                await layer.group_add("news", channel)
                receiving = asyncio.create_task(layer.receive(channel))
                await asyncio.sleep(0)
                receiving.cancel()
                await layer.group_discard("news", channel)

        guests = [asyncio.create_task(come_and_go(layer)) for layer in layers for _ in range(3)]
        for number in range(200):
            await layers[number % 2].group_send("news", {"number": number})
        for layer, channel in stay:
            got = [each["number"] for each in await some(layer, channel, 200)]
            assert sorted(got) == list(range(200))
        for guest in guests:
            guest.cancel()
        await asyncio.wait(guests)


@runs
async def test_a_receiver_that_was_woken_and_cancelled_wakes_the_next_one():
    async with site(1) as (layer,):
        channel = await layer.new_channel()
        first, second = (asyncio.create_task(layer.receive(channel)) for _ in range(2))
        while layer._site.boxes.num_waiting(channel) < 2:
            await asyncio.sleep(0)
        layer._site.boxes.put(channel, b"\x80")              # it wakes the first one
        first.cancel()
        assert await second == {} and first.cancelled()


PROCESS = """
import asyncio, json, sys
from ringcast.contrib.django_channels import RingcastChannelLayer

async def count(layer, channel, total, got):
    got.extend([(await layer.receive(channel))["number"] for _ in range(total)])

async def clients(layer, total):
    channels = [await layer.new_channel() for _ in range(50)]
    for channel in channels:
        await layer.group_add("news", channel)
    print("ready", flush=True)
    results = [[] for _ in channels]
    await asyncio.gather(*(count(layer, channel, total, got)
                           for channel, got in zip(channels, results)))
    print(json.dumps([got == list(range(total)) for got in results]), flush=True)

async def worker(layer, most):
    print("ready", flush=True)
    for _ in range(most):
        job = await layer.receive("jobs")
        await layer.send(job["answer_to"], {"number": job["number"], "by": sys.argv[4]})
    await layer.receive("jobs")
    print("working", flush=True)
    await asyncio.Event().wait()

layer = RingcastChannelLayer(sys.argv[1], port=int(sys.argv[2]), capacity=1000)
asyncio.run({"clients": clients, "worker": worker}[sys.argv[3]](layer, int(sys.argv[5])))
"""


class Processes:
    """Processes of a site. Those that run at the end are killed."""

    def __init__(self):
        self.group, self.running = f"site-{os.getpid()}-{next(numbers)}", []

    def start(self, role, name, count):
        process = subprocess.Popen([sys.executable, "-c", PROCESS, self.group, str(PORT), role,
                                    name, str(count)], stdout=subprocess.PIPE, text=True)
        self.running.append(process)
        return process

    def layer(self):
        return RingcastChannelLayer(self.group, port=PORT, capacity=1000, min_members=2)


@pytest.fixture
def processes():
    started = Processes()
    yield started
    for process in started.running:
        process.kill()
        process.communicate()


def test_763_every_client_gets_every_message_while_other_processes_are_killed(processes):
    """Three processes with 50 clients each; a fourth one sends. One of the three is
    killed, and so is another one that has just come."""
    clients = [processes.start("clients", str(number), 200) for number in range(3)]
    assert [process.stdout.readline() for process in clients] == ["ready\n"] * 3

    async def send():
        layer = processes.layer()
        channel = await layer._home.channel()
        while len(channel.view) < 4:
            await channel.view_changed(channel.view)
        for number in range(200):
            if number == 60:
                clients[2].kill()
                processes.start("clients", "late", 200)
            if number == 120:
                processes.running[-1].kill()
            await layer.group_send("news", {"number": number})
        return await asyncio.to_thread(lambda: [json.loads(process.stdout.readline())
                                                for process in clients[:2]]), await layer.close()

    got, _ = asyncio.run(send())
    assert got == [[True] * 50] * 2


def test_a_worker_that_is_killed_takes_one_job_with_it_and_no_more(processes):
    """It has begun this one. The others are done, each once. (It is alone at first:
    else the other one may do all of them before it has its last.)"""
    def start(name, most):
        worker = processes.start("worker", name, most)
        assert worker.stdout.readline() == "ready\n"
        return worker

    async def give():
        layer = processes.layer()
        channel = await layer.new_channel()
        for number in range(50):
            await layer.send("jobs", {"number": number, "answer_to": channel})
        assert await asyncio.to_thread(one.stdout.readline) == "working\n"  # on its last one
        await asyncio.to_thread(start, "b", 97)
        one.kill()
        for number in range(50, 100):
            await layer.send("jobs", {"number": number, "answer_to": channel})
        return await some(layer, channel, 99), await layer.close()

    one = start("a", 3)
    answers, _ = asyncio.run(give())
    done = [answer["number"] for answer in answers]
    assert len(set(done)) == 99 and set(done) < set(range(100))
    assert sum(answer["by"] == "a" for answer in answers) == 3


@runs
async def test_each_job_goes_to_one_worker_wherever_it_runs():
    """Channels' own worker, with a consumer for each channel."""
    done = []

    class Consumer(AsyncConsumer):
        async def job_do(self, message):
            done.append(message["number"])

    async with site(3) as layers:
        workers = [asyncio.create_task(Worker(Consumer.as_asgi(), ["jobs"], layer).handle())
                   for layer in layers[:2] for _ in range(2)]
        for number in range(90):
            await layers[number % 3].send("jobs", {"type": "job.do", "number": number})
        while len(done) < 90:
            await asyncio.sleep(0.001)
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
    assert sorted(done) == list(range(90))


@runs
async def test_a_job_that_comes_when_its_receiver_was_cancelled_goes_to_another_one():
    async with site(3) as (giver, one, two):
        receiving = asyncio.create_task(one.receive("jobs"))
        await wanted(giver)
        receiving.cancel()
        await asyncio.wait([receiving])
        await giver.send("jobs", {"number": 1})
        assert await two.receive("jobs") == {"number": 1}


@runs
async def test_a_job_for_which_nobody_waits_any_more_goes_back_to_where_it_was_held():
    """The giver believes that two are wanted, as after two notes that crossed with the
    first one. Held by the worker, the second would be lost with it."""
    async with site(2) as (giver, worker):
        receiving = asyncio.create_task(worker.receive("jobs"))
        wants = await wanted(giver)
        (member, (_, number)), = wants.items()
        wants[member] = 2, number
        for job in (1, 2):
            await giver.send("jobs", {"number": job})
        assert await receiving == {"number": 1}
        while not (held := [layer._site.held.take("jobs") for layer in (giver, worker)])[0]:
            assert not held[1]
            await asyncio.sleep(0.001)
        assert await asyncio.gather(worker.receive("jobs"), giver.send("jobs", {"number": 3}))


@runs
async def test_messages_larger_than_a_datagram_come_to_groups_channels_and_workers():
    """Also a job that comes to a process where nobody waits any more."""
    async with site(2) as (one, two):
        channel, large = await two.new_channel(), {"type": "x", "data": bytes(200_000)}
        await two.group_add("g", channel)
        await one.group_send("g", large)
        await one.send(channel, large)
        assert await some(two, channel, 2) == [large, large]
        receiving = asyncio.create_task(two.receive("jobs"))
        await asyncio.sleep(0.1)
        receiving.cancel()
        await asyncio.wait([receiving])
        await one.send("jobs", large)
        assert await asyncio.wait_for(one.receive("jobs"), 10) == large
        assert two._home._thread.is_alive()
        with pytest.raises(MessageTooLargeError):
            await one.group_send("g", {"type": "x", "data": bytes(17 << 20)})
        with pytest.raises(MessageTooLargeError):
            await one.send("jobs", {"type": "x", "data": bytes(17 << 20)})


@runs
async def test_a_job_of_a_group_whose_name_is_too_long_for_it_keeps_no_worker_waiting(caplog):
    async with site(1, max_message_size=1000) as (layer,):
        worker = 90 * "w"
        await layer.group_add("g", worker)
        receiving = asyncio.create_task(layer.receive(worker))
        await layer.group_send("g", {"data": bytes(960)})
        await layer.group_send("g", {"data": b"small"})
        assert await receiving == {"data": b"small"}
    assert "a message to its group is too large for it" in caplog.text


@runs
async def test_a_large_job_of_which_a_part_had_come_to_who_is_gone_is_told(caplog):
    async with site(1) as (layer,):
        here, gone = layer._site.work._channel.address, Address("worker", 4711)
        whole = encode(Note("send", "jobs", message=encode({"number": 1})))
        for payload, flags in ((b"the end of it", Flag.INCOMPLETE), (whole, 0)):
            layer._undelivered(Batch(here, 1, [payload], 1, gone, flags))
        assert await layer.receive("jobs") == {"number": 1}
    assert caplog.text.count("a large message is lost with the process") == 1


@runs
async def test_messages_to_groups_that_no_other_process_gets_are_told(caplog):
    """The others have excluded this process: it had been stopped, for example."""
    async with site(1) as (layer,):
        here = layer._site.work._channel.address
        notes = [encode(Note(kind, "news", message=encode({})))
                 for kind in ("want", "group", "group")]
        layer._undelivered(Batch(here, 1, notes, 1, None, 0))
        await layer._home.run(asyncio.sleep(0))
    assert caplog.text.count("group news: 2 messages will not reach other processes") == 1


@runs
async def test_senders_that_are_cancelled_while_there_is_no_room_lose_no_job():
    """The process of the worker stands still, and has room for a few jobs."""
    async with site(2, max_bytes=4096) as (giver, worker):
        receiving = [asyncio.create_task(worker.receive("jobs")) for _ in range(20)]
        while [count for count, _ in giver._site.work._wants.of("jobs").values()] != [20]:
            await asyncio.sleep(0.001)
        worker._home.call_soon((go_on := threading.Event()).wait)
        sending = [asyncio.create_task(giver.send("jobs", {"number": number, "text": 1000 * "x"}))
                   for number in range(20)]
        await asyncio.wait(sending, timeout=0.1)
        for task in sending:
            task.cancel()
        await asyncio.wait(sending)
        go_on.set()
        jobs = await asyncio.wait_for(asyncio.gather(*receiving), 30)
    assert sorted(job["number"] for job in jobs) == list(range(20))


# ------------------------------------------------------------- processes that do not go on

@runs
async def test_who_receives_goes_on_when_the_channel_has_closed_by_itself(caplog):
    """A worker joins again. To the channels of its clients nobody can send any more:
    they are told, so that the clients come again."""
    ends = []
    async with (site(1, group="ending") as (web,),
                site(1, group="ending", until=lambda view: ends and ends.pop()) as (worker,)):
        before, client = await worker._home.channel(), await worker.new_channel()
        jobs, news = (asyncio.create_task(worker.receive(name)) for name in ("jobs", client))
        await wanted(web)
        ends.append(True)
        async with site(1, group="ending"):             # its view is the last one of the worker
            with pytest.raises(ClosedError, match="ask new_channel"):
                await news
            await web.send("jobs", {"number": 1})
            assert await jobs == {"number": 1}
    assert before._channel._state.closed
    assert "this process is out of it, and joins it again" in caplog.text


@runs
async def test_a_job_that_came_to_a_receiver_that_is_cancelled_goes_to_another_one():
    """It comes while the loop of the receiver is busy."""
    async with site(3) as (giver, one, two):
        receiving = asyncio.create_task(one.receive("jobs"))
        await wanted(giver)
        await giver.send("jobs", {"number": 1})
        while one._site.boxes.num_waiting("jobs"):
            time.sleep(0.001)
        receiving.cancel()
        await asyncio.wait([receiving])
        assert await asyncio.wait_for(two.receive("jobs"), 10) == {"number": 1}


@runs
async def test_who_closes_while_it_joins_does_not_wait_for_others():
    layer = RingcastChannelLayer("alone", stack="inproc", min_members=2)
    sending = asyncio.create_task(layer.group_send("news", {}))
    await asyncio.sleep(0.1)
    await layer.close()
    with pytest.raises(ClosedError):
        await sending


@runs
async def test_a_call_is_told_that_another_thread_has_just_closed_the_layer():
    """It found that this process joins; then the other thread gave that up."""
    layer = RingcastChannelLayer(f"site-{next(numbers)}", stack="inproc")
    layer._home._channel = given_up = Future()
    given_up.cancel()
    with pytest.raises(ClosedError):
        await layer.new_channel()


@runs
async def test_a_call_that_comes_while_the_thread_ends_does_not_wait_for_ever():
    """The loop has cancelled its tasks, and closes: it would run nothing new."""
    async with site(1) as (layer,):
        home, ends, go_on = layer._home, threading.Event(), threading.Event()
        shut_down = home._loop.shutdown_default_executor

        async def shut_down_late():
            ends.set()
            go_on.wait(10)
            await shut_down()

        home._loop.shutdown_default_executor = shut_down_late
        closing = asyncio.create_task(layer.close())
        await asyncio.to_thread(ends.wait)
        calling = asyncio.create_task(home.run(asyncio.sleep(0)))
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(ClosedError):
            await asyncio.wait_for(calling, 10)
        await closing


def test_a_child_has_none_of_the_messages_of_its_parent():
    """Else a job would be done by each of them."""
    layer = RingcastChannelLayer(f"forks-{next(numbers)}", stack="inproc")
    async_to_sync(layer.send)("jobs", {"number": 1})
    child = os.fork()
    if child == 0:
        try:
            async_to_sync(layer.send)("jobs", {"number": 2})
            os._exit(async_to_sync(layer.receive)("jobs")["number"])
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert async_to_sync(layer.receive)("jobs") == {"number": 1}
    async_to_sync(layer.close)()


def test_a_child_ends_although_a_thread_of_its_parent_was_in_the_middle_of_a_call():
    """What the parent would do at its end, the child does, too."""
    layer = RingcastChannelLayer(f"forks-{next(numbers)}", stack="inproc")
    async_to_sync(layer.send)("jobs", {"number": 1})
    home = layer._home
    with home._lock:
        child = os.fork()
        if child == 0:
            try:
                signal.alarm(10)
                home.stop()
                os._exit(7)
            finally:
                os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    async_to_sync(layer.close)()
