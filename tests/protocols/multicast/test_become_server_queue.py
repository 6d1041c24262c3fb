"""become_server_queue: what it keeps, and what gives way."""

import pytest

from ringcast.protocols.multicast import base as multicast
from ringcast.protocols.multicast.become_server_queue import UNBOUNDED, BecomeServerQueue
from ringcast.stack import Packet

A, B, C = 1, 2, 3
PLENTY = 1 << 20


def datagram(sender, content=b"x" * 10):
    return Packet(multicast.DATA, sender, 0, content)


def filled(queue, sender, count, messages=1, size=10):
    for number in range(count):
        queue.add(datagram(sender, b"%d" % number + b"x" * (size - len(b"%d" % number))), messages)
    return queue


def contents(packets):
    return [int(bytes(packet.data).rstrip(b"x")) for packet in packets]


def test_of_a_bounded_queue_the_oldest_give_way():
    """The text's correction: of 70 messages it is the first 20 that are gone."""
    queue = filled(BecomeServerQueue(50, PLENTY), A, 70)
    assert len(queue) == 50 and queue.num_dropped == 20
    packets = queue.take(A)
    assert contents(packets) == list(range(20, 70))


def test_an_unbounded_queue_keeps_all():
    queue = filled(BecomeServerQueue(UNBOUNDED, PLENTY), A, 5000)
    packets = queue.take(A)
    assert contents(packets) == list(range(5000))
    assert len(queue) == queue.num_bytes == queue.num_dropped == 0


def test_the_bound_is_in_messages_and_a_datagram_goes_as_a_whole():
    queue = filled(BecomeServerQueue(50, PLENTY), A, 3, messages=20)
    assert len(queue) == 40 and queue.num_dropped == 20
    queue.add(datagram(A), 51)
    assert len(queue) == 0 and queue.num_bytes == 0
    assert queue.take(A) == []


def test_the_oldest_of_all_senders_give_way_and_each_is_noted():
    queue = BecomeServerQueue(3, PLENTY)
    for sender in (A, B, A, C, C):
        queue.add(datagram(sender), 1)
    assert queue.num_dropped == 2
    assert [len(queue.take(sender)) for sender in (A, B, C)] == [1, 0, 2]


def test_of_a_queue_that_is_full_in_bytes_the_sender_with_most_goes_whole():
    queue = BecomeServerQueue(UNBOUNDED, 100)
    filled(queue, A, 3)
    filled(queue, B, 6)
    filled(queue, C, 2)
    assert queue.num_bytes == 50 and queue.num_dropped == 6
    assert queue.take(B) == []
    assert [len(queue.take(sender)) for sender in (A, C)] == [3, 2]


def test_what_comes_after_a_sender_went_whole_waits():
    queue = filled(BecomeServerQueue(UNBOUNDED, 100), A, 14)
    assert contents(queue.take(A)) == [11, 12, 13]


def test_a_datagram_larger_than_the_queue_is_not_kept():
    queue = filled(BecomeServerQueue(UNBOUNDED, 100), B, 2)
    queue.add(datagram(A, bytes(101)), 1)
    assert queue.take(A) == []
    assert len(queue.take(B)) == 2


@pytest.mark.parametrize("sizes", [(1, 99, 7), (50, 50, 50), (100, 1, 100), (13, 13, 74)])
def test_whatever_comes_the_bytes_are_bounded_and_counted(sizes):
    queue = BecomeServerQueue(UNBOUNDED, 100)
    for step in range(200):
        queue.add(datagram(step % 5, bytes(sizes[step % 3])), 1 + step % 4)
        assert queue.num_bytes <= 100
        assert queue.num_bytes == sum(len(packet.data) for packet, _ in queue._entries)
        assert len(queue) == sum(messages for _, messages in queue._entries)
    assert queue.num_dropped + len(queue) == sum(1 + step % 4 for step in range(200))


def test_a_bound_that_comes_drops_at_once_and_one_that_goes_brings_nothing_back():
    queue = filled(BecomeServerQueue(UNBOUNDED, PLENTY), A, 70)
    queue.rebound(50)
    assert len(queue) == 50 and queue.num_dropped == 20
    queue.rebound(UNBOUNDED)
    filled(queue, A, 100)
    assert len(queue) == 150


def test_who_will_not_be_in_the_view_is_forgotten():
    queue = BecomeServerQueue(2, PLENTY)
    for sender in (A, B, B, C):
        filled(queue, sender, 1)
    queue.retain({A, C})
    assert len(queue) == 1 and queue.num_bytes == 10
    assert queue.take(B) == []
    queue.retain(set())
    assert len(queue) == queue.num_bytes == 0


def test_what_is_kept_is_a_copy():
    """A received packet is a view of the transport's memory, good only until the turn
    ends."""
    memory = bytearray(b"before")
    queue = BecomeServerQueue(UNBOUNDED, PLENTY)
    queue.add(datagram(A, memoryview(memory)), 1)
    memory[:] = b"after!"
    assert queue.take(A)[0].data == b"before"


def test_whoever_sends_in_whatever_names_does_not_fill_the_memory():
    queue = BecomeServerQueue(5, PLENTY)
    for sender in range(100_000):
        queue.add(datagram(sender), 1)
    assert len(queue) == 5


def test_taking_one_leaves_the_others_in_their_order():
    queue = BecomeServerQueue(UNBOUNDED, PLENTY)
    for number in range(10):
        for sender in (A, B):
            queue.add(datagram(sender, b"%d" % number), 2)
    queue.take(A)
    assert len(queue) == 20 and contents(queue.take(B)) == list(range(10))
