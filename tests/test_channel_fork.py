"""A channel in another process than the one that opened it: its copy refuses
everything, and the parent does not notice."""

import asyncio
import json
import multiprocessing
import os
import signal
import threading

import pytest
from channels import PATIENCE, STACKS, Collector, joined, new_group, use_stack

from ringcast import Channel, ClosedError, RingcastError, aio
from ringcast.transport.tcp import handshaking
from ringcast.transport.tcp.listening import open_socket


@pytest.fixture(params=STACKS)
def stack(request, monkeypatch):
    use_stack(monkeypatch, request.param)
    return request.param


def what_a_child_may_do(channel, member):
    """Call every method of an inherited channel; what each raised, or returned."""
    def iterate():
        return [message.payload for message in channel]

    def set_interval():
        channel.xmit_interval = 5.0

    def enter():
        with channel:
            pass

    calls = {"send": lambda: channel.send(b"child"),
             "send to one": lambda: channel.send(b"child", member),
             "send by name": lambda: channel.send(b"child", member.name),
             "send_many": lambda: channel.send_many([b"child"] * 3),
             "send unreliably": lambda: channel.send(b"child", flags=4),
             "send a large one": lambda: channel.send(bytes(200_000)),
             "try to send": lambda: channel.try_send(b"child"), "receive": channel.receive,
             "fileno": channel.fileno,
             "iterate": iterate, "exclude": lambda: channel.exclude(member.name),
             "xmit_interval": set_interval,
             "connect": channel.connect, "with": enter, "status": lambda: bool(channel.status()),
             "close": channel.close,
             "send after close": lambda: channel.send(b"child")}
    outcome = {}
    for name, call in calls.items():
        try:
            outcome[name] = repr(call())
        except BaseException as error:
            outcome[name] = f"{type(error).__name__}: {error}"
    return outcome


def in_a_fork(call):
    """What `call` returns in a forked child; a child that hangs is killed by its
    alarm."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(PATIENCE)
            os.write(writable, json.dumps(call()).encode())
        finally:
            os._exit(0)
    os.close(writable)
    with open(readable, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child ended with {status}"
    return json.loads(answer)


def check(outcome):
    answers = {name: outcome.pop(name) for name in ("status", "close")}
    assert answers == {"status": "True", "close": "0"}
    for name, said in outcome.items():
        assert said.startswith("ClosedError: this channel belongs to the process that opened it"), (
            name, said)


def test_a_forked_copy_raises_and_the_parent_goes_on(stack):
    collector = Collector(300)
    with joined("AB", {"B": {"on_message": collector}, "A": {"deliver": False}}) as (a, b):
        a.send_many([b"before"] * 100)
        a.send(b"before", b.address)
        while a.status().multicast.num_unacked + a.status().unicast.unicast_unacked:
            threading.Event().wait(0.001)
        assert collector.by_sender["A"] == [b"before"] * 101
        check(in_a_fork(lambda: what_a_child_may_do(a, b.address)))
        a.send_many([b"after"] * 100)
        a.send_many([b"after"] * 98, "B")
        a.send(b"last")
        assert collector.wait()["A"].count(b"after") == 198
        assert (a.fault, b.fault) == (None, None)
        assert a.close() == 0
    assert b"child" not in collector.by_sender["A"]


def test_a_forked_copy_for_asyncio_raises_the_same_error_in_a_loop_of_the_child():
    async def outcome(call):
        try:
            return await call()
        except ClosedError as error:
            return str(error)

    async def play():
        async with aio.Channel(new_group(), name="A", stack="inproc") as channel:
            await channel.receive(0)
            calls = (lambda: channel.send(b"x"), lambda: channel.receive(0.1), channel.close)

            def child():
                asyncio.events._set_running_loop(None)
                return [asyncio.run(outcome(call)) for call in calls]

            said = in_a_fork(child)
            assert all("of which this one is a fork" in each for each in said[:2]) and said[2] == 0
            await channel.send(b"goes on")
            assert (await channel.receive()).payload == b"goes on"

    asyncio.run(play())


def test_a_fork_may_come_while_another_thread_is_at_work(stack):
    with joined("AB") as (a, b), a._driver.turn:  # somebody has a turn, and will never give it back
                                                  # in the child
        check(in_a_fork(lambda: what_a_child_may_do(a, b.address)))


def test_a_child_opens_channels_of_its_own(stack):
    def child():
        with joined("CD", per_member={"D": {"on_message": (collector := Collector(1))}}) as (c, _):
            c.send(b"hello")
            collector.wait()
        return list(collector.by_sender)

    with joined("AB") as (a, _):
        assert in_a_fork(child) == ["C"]
        assert len(a.view) == 2


def child_of_multiprocessing(channel, member, pipe):
    pipe.send(what_a_child_may_do(channel, member))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(stack, method):
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    with joined("AB") as (a, b):
        child = context.Process(target=child_of_multiprocessing, args=(a, b.address, theirs))
        if method != "fork":
            with pytest.raises(RingcastError,
                               match="a channel stays in the process that opened it"):
                child.start()
        else:
            child.start()
            assert ours.poll(PATIENCE)
            check(ours.recv())
            child.join(PATIENCE)
            assert child.exitcode == 0
        a.send(b"still here")
        assert next(iter(b)).payload == b"still here"


def test_leaving_a_with_in_the_child_is_no_goodbye(stack):
    def child():
        a.__exit__(None, None, None)
        return True

    with joined("AB") as (a, b):
        views = len(b.view)
        assert in_a_fork(child)
        a.send(b"still here")
        assert next(iter(b)).payload == b"still here"
        assert len(b.view) == views == 2


def descriptors():
    return {number: os.readlink(f"/proc/self/fd/{number}")
            for number in map(int, os.listdir("/proc/self/fd"))
            if os.path.exists(f"/proc/self/fd/{number}")
            or os.path.islink(f"/proc/self/fd/{number}")}


def sockets():
    return [where for where in descriptors().values() if where.startswith("socket:")]


def test_a_child_keeps_no_descriptor_of_the_parents_channels(stack):
    before = descriptors().items()
    with joined("AB"):
        ours = dict(descriptors().items() - before)
        assert ours or stack == "inproc"
        theirs = in_a_fork(lambda: sorted(descriptors().items()))
        assert not ours.items() & {tuple(pair) for pair in theirs}


def test_a_fork_waits_for_a_socket_that_has_no_owner_yet(monkeypatch):
    armed, opened, forked = threading.Event(), threading.Event(), threading.Event()

    def open_slowly(buffers):
        made = open_socket(buffers)
        if armed.is_set():
            opened.set()
            forked.wait(0.2)    # time for a fork that does not wait
        return made

    use_stack(monkeypatch, "nakack2-tcp")
    monkeypatch.setattr(handshaking, "open_socket", open_slowly)
    before = sockets()
    with joined("A"):           # alone, so it dials again and again
        armed.set()
        assert opened.wait(PATIENCE)
        theirs = in_a_fork(sockets)
        forked.set()
        assert set(theirs) <= set(before)


def test_a_forked_copy_of_an_iterator_raises():
    with joined("AB") as (a, b):
        a.send_many([b"1", b"2"])
        messages = iter(b)
        assert next(messages).payload == b"1"

        def child():
            try:
                return [next(messages).payload, next(messages).payload]
            except ClosedError as error:
                return str(error)

        assert "belongs to the process that opened it" in in_a_fork(child)
        assert next(messages).payload == b"2"


def test_a_channel_is_not_copied():
    channel = Channel("alone", stack="inproc")
    with pytest.raises(RingcastError, match="open a channel there"):
        channel.__reduce__()
    channel.close()
