"""One connection that is a link: what is queued, what cuts it, and what epoll still
looks at."""

import os
import select
import socket
import struct
import sys
import threading
from contextlib import suppress

import pytest
from guarded import guard

from ringcast.transport.tcp.link import Link

PATIENCE = 60.0                         # seconds; only a failing test ever waits so long
MUCH = 1 << 30                          # bytes that may be unsent


@pytest.fixture
def ends():
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    yield ends
    for end in ends:
        end.close()


@pytest.fixture
def epoll():
    with select.epoll() as epoll:
        yield epoll


@pytest.fixture
def link(ends, epoll):
    epoll.register(ends[0], select.EPOLLIN)
    return Link(ends[0], 2, ("127.0.0.1", 9), epoll, MUCH)


def frame(writer, number, size):
    body = struct.pack("<II", writer, number) * (size // 8)
    return [struct.pack("<I", len(body)), body]


def put(link, *buffers):
    return link.put(list(buffers), 1, sum(map(len, buffers)))


def drain(end):
    """All that has arrived."""
    got = bytearray()
    with suppress(BlockingIOError):
        while part := end.recv(1 << 16):
            got += part
    return bytes(got)


# ------------------------------------------------------------------------- An error of the kernel's

def test_a_send_that_the_kernel_refuses_cuts_the_link(link, ends):
    ends[1].close()
    put(link, b"nobody takes this")
    assert not link.is_up and not put(link, b"nor this")
    assert link.frames_sent == 1                # nothing is counted for a link that does not stand


def test_a_queue_that_the_kernel_refuses_cuts_the_link_and_is_counted_as_lost(link, ends):
    big = bytes(8 << 20)
    put(link, big)
    waiting = link.unsent_bytes
    assert 0 < waiting < len(big)
    ends[1].close()
    link.flush()
    assert not link.is_up and link.unsent_bytes == 0 and link.lost_bytes == waiting


# ------------------------------------------------------------------------------ What epoll looks at

def test_a_closed_link_is_not_looked_at_although_a_forked_child_has_its_socket(link, ends, epoll):
    kept = os.dup(ends[0].fileno())
    try:
        link.close()
        ends[1].send(b"for the child")
        assert epoll.poll(0) == []
    finally:
        os.close(kept)


# ------------------------------------------------------------------------------------------ Threads

@pytest.mark.parametrize("end", ["cut", "finish", "close"])
def test_every_change_of_a_link_holds_its_lock(link, ends, end):
    guarded = guard(link, link._lock, "is_up", "_unsent", "_watched", read=("_queue",))
    put(link, *frame(1, 0, 8 << 20))            # more than the kernel takes
    put(link, *frame(1, 1, 80))                 # behind it
    drain(ends[1])
    link.flush()
    before = guarded.uses
    getattr(link, end)()
    assert guarded.uses > before > 10
    if end == "cut":
        link.close()


def test_frames_of_several_threads_stay_whole_while_the_kernel_takes_them_in_parts(link, ends):
    frames, size, writers = 40, 80_000, 4
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        start = threading.Barrier(writers + 1)

        def write(writer):
            start.wait()
            for number in range(frames):
                assert put(link, *frame(writer, number, size))
        threads = [threading.Thread(target=write, args=(writer,), daemon=True)
                   for writer in range(writers)]
        for thread in threads:
            thread.start()
        start.wait()
        got = bytearray()
        while len(got) < writers * frames * (size + 4):
            select.select([ends[1]], [], [], PATIENCE / 100)
            got += drain(ends[1])
            if not any(thread.is_alive() for thread in threads) and not link.unsent_bytes:
                got += drain(ends[1])
                break
            link.flush()
    finally:
        sys.setswitchinterval(before)
    seen = [0] * writers
    for at in range(0, len(got), size + 4):
        assert got[at:at + 4] == struct.pack("<I", size)
        body = got[at + 4:at + 4 + size]
        writer, number = struct.unpack_from("<II", body)
        assert body == frame(writer, number, size)[1] and number == seen[writer]
        seen[writer] += 1
    assert seen == [frames] * writers
