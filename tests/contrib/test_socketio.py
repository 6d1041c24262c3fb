"""The client manager for python-socketio: servers of one group emit to each other's
clients, and callbacks come back."""

import asyncio
import itertools
import logging
import subprocess
import sys
from contextlib import asynccontextmanager
from functools import wraps

import pytest
import socketio
from channels import new_group
from ports import free_port
from socketio.packet import DISCONNECT, Packet

from ringcast import ClosedError, JoinTimeoutError
from ringcast.aio import Channel
from ringcast.contrib.socketio import RingcastManager

numbers = itertools.count()


class Server(socketio.AsyncServer):
    """A server that keeps what it sends to clients, in the place of a network."""

    def __init__(self, group, **options):
        super().__init__(async_mode="asgi", client_manager=RingcastManager(group, **options))
        self.sent, self.is_news = [], asyncio.Event()

    async def _send_packet(self, eio_sid, pkt):
        self.sent.append((eio_sid, pkt))
        self.is_news.set()

    async def _send_eio_packet(self, eio_sid, eio_pkt):
        await self._send_packet(eio_sid, Packet(encoded_packet=eio_pkt.data)
                                if isinstance(eio_pkt.data, str) else Packet(data=eio_pkt.data))

    async def client(self, room=None):
        """Return the sid of a new client, in a room."""
        sid = await self.manager.connect(f"eio-{next(numbers)}", "/")
        if room is not None:
            await self.enter_room(sid, room)
        return sid

    async def events(self, count):
        """Wait until so many packets were sent. Return their data."""
        while len(self.sent) < count:
            self.is_news.clear()
            await self.is_news.wait()
        return [pkt.data for _, pkt in self.sent]


@asynccontextmanager
async def servers(count):
    """Yield servers that are in one group, and its name."""
    group = new_group()
    running = [Server(group, stack="inproc") for _ in range(count)]
    try:
        for server in running:
            server.manager.initialize()
            server.manager_initialized = True
        homes = [await server.manager.connected() for server in running]
        while any(len(home.view) < count for home in homes):
            await asyncio.sleep(0.001)
        yield running, group
    finally:
        for server in running:
            await server.manager.close()


def runs(case):
    """Run a case in an event loop."""
    @wraps(case)
    def test(*args, **kwargs):
        asyncio.run(case(*args, **kwargs))
    return test


@runs
async def test_what_one_server_emits_comes_to_the_clients_of_all_once_and_in_order():
    async with servers(3) as (running, _):
        for server in running:
            await server.client()
        for number in range(100):
            await running[0].emit("news", {"number": number, "text": ["ö", None, 0.5]})
        for server in running:
            assert await server.events(100) == [
                ["news", {"number": number, "text": ["ö", None, 0.5]}] for number in range(100)]


@runs
async def test_bytes_are_attached_at_each_server():
    async with servers(2) as ((one, two), _):
        await two.client()
        await one.emit("picture", b"\x00\xff")
        assert (await two.events(2))[1] == b"\x00\xff"


@runs
async def test_a_room_reaches_over_servers_and_leaves_out_who_is_to_be_left_out():
    async with servers(2) as ((one, two), _):
        left_out, _ = await one.client("blue"), await two.client("blue")
        await two.client("red")
        await one.emit("first", 1, room="blue", skip_sid=left_out)
        await one.emit("last", 2)
        assert [event[0] for event in await two.events(3)] == ["first", "last", "last"]
        assert [event[0] for event in await one.events(1)] == ["last"]


@runs
async def test_a_callback_comes_back_from_another_server():
    async with servers(2) as ((one, two), _):
        sid, called = await two.client(), asyncio.get_running_loop().create_future()
        await one.emit("question", 6, to=sid, callback=lambda *answer: called.set_result(answer))
        await two.events(1)
        (eio_sid, asked), = two.sent
        await two._handle_ack(eio_sid, "/", asked.id, [7, "x"])
        assert await called == (7, "x")


@runs
async def test_a_client_of_another_server_is_moved_and_disconnected():
    async with servers(2) as ((one, two), _):
        sid = await two.client()
        await one.enter_room(sid, "blue")
        await one.emit("to blue", room="blue")
        await two.events(1)
        await one.leave_room(sid, "blue")
        await one.close_room("green")
        await one.disconnect(sid)
        await two.events(2)                             # it is told
        assert two.sent[1][1].packet_type == DISCONNECT


@runs
async def test_a_server_whose_channel_closes_by_itself_joins_again(monkeypatch, caplog):
    monkeypatch.setattr("ringcast.contrib.socketio.LEAST_PAUSE", 0.01)
    async with servers(2) as ((one, two), _):
        await two.client()
        before = await two.manager.connected()
        before._channel._halt("its disk is full")
        again = await two.manager.connected()
        assert again is not before and before._channel._state.closed
        while len((await one.manager.connected()).view) < 2:
            await asyncio.sleep(0.001)
        await one.emit("news", 1)
        assert await two.events(1) == [["news", 1]]
        assert "tries again in 0.01 s: its disk is full" in caplog.text
    assert again.fault is None and await two.manager.close() == 0


@runs
async def test_a_server_that_cannot_join_tries_more_and_more_rarely(monkeypatch, caplog):
    monkeypatch.setattr("ringcast.contrib.socketio.LEAST_PAUSE", 0.01)
    monkeypatch.setattr("ringcast.contrib.socketio.MOST_PAUSE", 0.02)
    server = Server(new_group(), stack="inproc", capacity=0)
    listening = asyncio.create_task(anext(server.manager._listen(), None))
    while caplog.text.count("tries again") < 4:
        await asyncio.sleep(0.001)
    listening.cancel()
    assert "tries again in 0.01 s: capacity takes" in caplog.text
    assert caplog.text.count("tries again in 0.02 s: ") >= 3


async def left_out():
    """A manager that could not join its group."""
    manager = RingcastManager(new_group(), write_only=True, stack="inproc", min_members=2,
                              join_timeout=10)
    with pytest.raises(JoinTimeoutError):
        await manager.connected()
    return manager


@runs
async def test_who_could_not_join_closes_without_an_error():
    manager = await left_out()
    assert await manager.close() == 0


@runs
async def test_who_closes_while_it_joins_does_not_wait_for_others(caplog):
    """Its emit was given up; or it waits, as the server does that listens."""
    server = Server(new_group(), stack="inproc", min_members=2)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(server.manager._publish({}), 0.01)
    waiting = asyncio.create_task(server.manager._publish({}))
    listening = asyncio.create_task(anext(server.manager._listen(), None))
    await asyncio.sleep(0)
    assert await asyncio.wait_for(server.manager.close(), 10) == 0
    with pytest.raises(ClosedError, match="closed while it joined"):
        await waiting
    assert await listening is None and "tries again" not in caplog.text


@runs
async def test_who_emits_after_close_is_told_and_joins_nothing():
    manager = await left_out()
    await manager.close()
    with pytest.raises(ClosedError, match="make a new one"):
        await manager.emit("news", 1)


@runs
async def test_a_process_without_a_server_emits_and_nobody_waits_for_it():
    async with servers(1) as ((server,), group):
        await server.client()
        outside = RingcastManager(group, write_only=True, stack="inproc", min_members=2)
        await outside.emit("news", "from outside")
        assert await server.events(1) == [["news", "from outside"]]
        assert await outside.close() == 0
    assert await RingcastManager(group).close() == 0    # it has never joined


@runs
async def test_what_is_no_event_is_dropped(caplog):
    async with servers(1) as ((server,), group):
        await server.client()
        async with Channel(group, stack="inproc", min_members=2) as stranger:
            await stranger.send(b"\xc1")
            await stranger.send(b"\x93\x01\x02\x03")
            await stranger.send(b"\x81\xa1\xff\x01")               # a name that is no UTF-8
            await stranger.send(b"\x81\xa1x" + b"\x91" * 3000)
        outside = RingcastManager(group, write_only=True, stack="inproc", min_members=2)
        await outside.emit("news", 1)
        assert await server.events(1) == [["news", 1]]
        await outside.close()
    warned = [record for record in caplog.records if record.levelno == logging.WARNING
              and record.name == "ringcast"]
    assert len(warned) == 4


@runs
async def test_a_group_that_could_not_be_joined_is_tried_again():
    manager = RingcastManager(new_group(), write_only=True, stack="inproc", join_timeout=1,
                              min_members=2)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await manager.emit("news", 1)


PROGRAM = """
import asyncio, sys
sys.path[:0] = sys.argv[3:]
from contrib.test_socketio import Server

async def serve(group, port):
    server = Server(group, port=int(port))
    server.manager.initialize()
    await server.manager.connected()
    for _ in range(20):
        await server.client()
    print("ready", flush=True)
    events = await server.events(20 * 200)
    print([number for _, number in events] == [each for each in range(200) for _ in range(20)])

asyncio.run(serve(*sys.argv[1:3]))
"""


@pytest.mark.udp
@pytest.mark.kill
def test_servers_get_all_events_while_another_one_is_killed():
    group, port = new_group(), free_port()
    running = [subprocess.Popen([sys.executable, "-c", PROGRAM, group, str(port), *sys.path],
                                stdout=subprocess.PIPE, text=True) for _ in range(3)]
    try:
        assert [server.stdout.readline() for server in running] == ["ready\n"] * 3

        async def emit():
            outside = RingcastManager(group, write_only=True, port=port, min_members=4)
            for number in range(200):
                if number == 60:
                    running[2].kill()
                await outside.emit("news", number)
            return await outside.close()

        assert asyncio.run(emit()) == 0
        assert [server.communicate()[0] for server in running[:2]] == ["True\n"] * 2
    finally:
        for server in running:
            server.kill()
            server.wait()
