"""Payload objects that are used again: nobody can tell them from new ones."""

import gc
import random
import sysconfig

import pytest

from ringcast import Address, Batch
from ringcast._core import wire
from ringcast._core.marks import Marks
from ringcast._core.payloads import num_waiting
from ringcast._core.ring_buffer import RingBuffer
from ringcast._core.seqno_table import SeqnoTable
from ringcast._core.stamps import Stamps

A = Address("A", 1)
SHELF_BYTES, SHELF_ITEMS = 8 << 20, 1 << 14
is_used_again = pytest.mark.skipif(sysconfig.get_config_var("Py_GIL_DISABLED"),
                                   reason="without the GIL no payload is used again")
HEADER = wire.make_header(1, 7, 5, 0)


def received(*payloads):
    """Send messages through a datagram; return the batch that a receiver makes."""
    ring = RingBuffer(len(payloads))
    ring.send_many(list(payloads))
    ranges = [(1, len(payloads))]
    (datagram,), _ = wire.pack(ring, Marks(), Stamps(), ranges, 65000, HEADER, 65000)
    (batch,) = wire.read_data(datagram, 0, 1 << 20).batches
    return batch


@is_used_again
@pytest.mark.parametrize("size", [*range(2, 9), 100, 511, 1000, 60_000])
def test_a_dropped_payload_is_used_again_for_the_next_of_its_size(size):
    batch = received(b"a" * size)
    before = id(batch.payloads[0])
    del batch
    batch = received(b"b" * size)
    assert id(batch.payloads[0]) == before
    assert batch.payloads == [b"b" * size]


@is_used_again
@pytest.mark.parametrize("make", [RingBuffer, lambda capacity: SeqnoTable(capacity=capacity)])
def test_a_window_gives_payloads_back_too(make):
    ring, batch = make(64), received(b"a" * 300, b"b" * 300)
    ring.add_many(1, batch.payloads)
    kept = {id(payload) for payload in batch.payloads}
    ring.remove_many(nullify=False)
    del batch
    ring.stable(2)
    assert {id(payload) for payload in received(b"c" * 300, b"d" * 300).payloads} == kept


def test_a_payload_that_is_used_again_has_its_own_hash():
    batch = received(b"a" * 100)
    assert hash(batch.payloads[0]) == hash(b"a" * 100)
    del batch
    (payload,) = received(b"b" * 100).payloads
    assert hash(payload) == hash(b"b" * 100)
    assert {b"b" * 100: 1}[payload] == 1


def test_a_payload_that_somebody_holds_is_never_used_again():
    chance, held = random.Random(7), []
    for _ in range(3000):
        size = chance.choice((8, 64, 100, 101))
        sent = [chance.randbytes(size) for _ in range(chance.randrange(1, 9))]
        batch = received(*sent)
        ring = chance.choice([None, RingBuffer(16)])
        if ring is not None:
            ring.add_many(1, batch.payloads)
        if chance.random() < 0.7:
            chosen = chance.sample(range(len(sent)), chance.randrange(len(sent) + 1))
            held += [(batch.payloads[k], sent[k]) for k in chosen]
        if chance.random() < 0.2:
            held.append((memoryview(batch.payloads[0]), sent[0]))
        if chance.random() < 0.2:
            held += zip(list(ring.remove_many() if ring else batch.payloads), sent, strict=True)
        while len(held) > 50:
            got, expected = held.pop(chance.randrange(len(held)))
            assert got == expected
        del batch, ring
    assert all(got == expected for got, expected in held)


def test_a_list_that_outlives_its_batch_stays_whole():
    batch = received(b"a" * 100, b"b" * 100)
    payloads = batch.payloads
    del batch
    received(b"c" * 100, b"d" * 100)
    assert payloads == [b"a" * 100, b"b" * 100]


def test_a_batch_that_shares_its_payloads_leaves_them_to_the_other():
    first = received(b"a" * 100)
    second = first.addressed(A, None, 1, None)
    del first
    received(b"c" * 100)
    assert second.payloads == [b"a" * 100]


def test_a_collection_may_take_a_batch():
    payloads = [[], b"a" * 100]
    payloads[0].append(Batch(A, 1, payloads))
    del payloads
    gc.collect()
    assert received(b"b" * 100).payloads == [b"b" * 100]


@is_used_again
@pytest.mark.parametrize(("size", "most"), [(1003, SHELF_BYTES // 1003), (101, SHELF_ITEMS)])
def test_a_shelf_holds_what_a_window_gives_back(size, most):
    received(bytes(size))                   # takes the shelf over from another size
    batches = [received(*[bytes(size)] * 60) for _ in range(300)]
    others = num_waiting()
    batches.clear()
    assert most - 200 <= num_waiting() <= others + most     # others keep their room
    batches += [received(*[bytes(size)] * 60) for _ in range(300)]
    assert num_waiting() <= others


@is_used_again
def test_the_fullest_shelf_gives_way_to_another_size():
    received(bytes(1003))
    batches = [received(*[bytes(1003)] * 60) for _ in range(150)]
    del batches
    full = num_waiting()
    received(bytes(20_000))
    received(*[bytes(20_000)] * 3)
    assert num_waiting() < full - 5000


def test_only_sizes_that_came_lately_have_a_shelf():
    for size in range(2000, 2200):
        received(*[bytes(size)] * 20)
    assert num_waiting() <= 8 * 20


def test_what_a_sender_made_is_not_kept():
    ring = RingBuffer(64)
    received(bytes(100))
    before = num_waiting()
    ring.send_many([bytes([k]) * 777 for k in range(64)])
    ring.remove_many()
    assert num_waiting() == before


class Text(bytes):
    """Bytes with more to them."""


@pytest.mark.parametrize("item", [Text(100), "x" * 100, bytearray(100), ("x",) * 100])
def test_other_items_are_not_kept(item):
    received(bytes(100))
    before = num_waiting()
    ring = RingBuffer(64)
    ring.send(item)
    del item
    ring.remove()
    Batch(A, 1, [Text(100)])
    assert num_waiting() == before


@pytest.mark.parametrize("size", range(2))
def test_tiny_payloads_are_made_anew(size):
    assert received(*[b"x" * size] * 3).payloads == [b"x" * size] * 3
    before = num_waiting()
    received(*[b"y" * size] * 3)
    assert num_waiting() == before
