"""What SeqnoTable alone does: its memory follows what it holds. What it has in common
with RingBuffer is in test_window_*.py."""

import random
import sys
import tracemalloc
import weakref

import pytest

from ringcast import SeqnoTable
from ringcast._core.ring_buffer import RingBuffer

NEAR_THE_WRAP = 2**64 - 5000
SLACK = 400                         # bytes that other objects may have taken meanwhile


def size(table):
    """Bytes beside the object's own header, which every object with references has."""
    return sys.getsizeof(table) - sys.getsizeof(object()) - 16


EMPTY = size(SeqnoTable())
ROW = 264
PAGE = 64


class Item:
    def __init__(self, finaliser):
        self.finaliser = finaliser

    def __del__(self):
        self.finaliser()


# --- what it costs --------------------------------------------------------------------

def test_an_empty_table_costs_two_hundred_bytes_also_after_it_was_used():
    assert EMPTY <= 200
    table = SeqnoTable()
    table.send_many([b"x"] * 100)
    table.remove_many()
    assert (size(table), table.hr) == (EMPTY, 100)
    table.announce(10_000)
    assert table.missing() == [(101, 10_000)] and size(table) == EMPTY


@pytest.mark.parametrize("offset", [0, 31, 2**64 - 3])
def test_the_first_messages_of_a_connection_cost_one_row(offset):
    table = SeqnoTable(offset)
    table.send_many([b"x"] * 32)
    assert size(table) == EMPTY + ROW <= 600


def test_a_row_goes_when_its_last_item_does_whether_low_follows_or_not():
    table = SeqnoTable()
    table.add_many(1, ["x"] * 96)
    assert size(table) == EMPTY + 3 * ROW
    table.remove_many(40)
    assert (table.low, size(table)) == (40, EMPTY + 2 * ROW)
    table.remove_many(1, nullify=False)
    table.remove_many()
    assert (table.low, table.hd, len(table), size(table)) == (40, 96, 1, EMPTY + ROW)
    table.stable(41)
    assert size(table) == EMPTY


@pytest.mark.parametrize("capacity, most", [(100, ROW), (32_768, 2048 + 64 + ROW),
                                            (2**20, 2**16 + 64 + ROW)])
@pytest.mark.parametrize("offset", [0, NEAR_THE_WRAP])
def test_a_message_far_ahead_costs_a_row_and_a_pointer_for_each_page(capacity, most, offset):
    table = SeqnoTable(offset, capacity=capacity)
    assert table.add((offset + capacity) % 2**64, b"far")
    assert not table.add((offset + capacity + 1) % 2**64, b"beyond")
    assert size(table) - EMPTY <= most
    assert table.missing() == [((offset + 1) % 2**64, (offset + capacity - 1) % 2**64)]
    assert table.num_missing == capacity - 1
    table.close()
    assert size(table) == EMPTY


def test_a_full_window_costs_no_more_than_a_ring_of_its_capacity():
    """However the messages lie: one in each row is the worst that a hostile sender can
    do."""
    table, ring = SeqnoTable(capacity=32_768), RingBuffer(32_768)
    for seqno in range(1, 32_769, 32):
        assert table.add(seqno, b"")
    assert sys.getsizeof(table) < 1.1 * sys.getsizeof(ring)


@pytest.mark.parametrize("offset", [0, 2**64 - 500_000])
def test_after_a_burst_of_a_million_messages_the_memory_is_given_back(offset):
    table, items, count = SeqnoTable(offset), [b"x"] * 1_000_000, 1_000_000
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        assert table.add_many((offset + 1) % 2**64, items) == count
        held = tracemalloc.get_traced_memory()[0] - before
        assert abs(held - (size(table) - EMPTY)) < SLACK
        assert 8 * count < held < 10 * count
        out = table.remove_many(count - 10)
        assert len(out) == count - 10 and size(table) <= EMPTY + ROW + PAGE + 64
        del out
        assert tracemalloc.get_traced_memory()[0] - before < 1000
        table.remove_many()
        assert (size(table), table.low) == (EMPTY, (offset + count) % 2**64)
        assert tracemalloc.get_traced_memory()[0] - before < SLACK
    finally:
        tracemalloc.stop()


def test_stable_gives_rows_and_directory_back_as_removal_does():
    table = SeqnoTable()
    table.send_many(["x"] * 100_000)
    peak = size(table)
    table.remove_many(nullify=False)
    assert size(table) == peak
    for acked in range(1000, 100_001, 1000):
        table.stable(acked)
        assert size(table) - EMPTY < 1.2 * peak * (100_000 - acked) / 100_000 + 4096
    assert size(table) == EMPTY


def test_a_thousand_idle_connections_cost_what_one_window_of_fixed_size_does():
    idle = [(SeqnoTable(), SeqnoTable()) for _ in range(1000)]
    for sent, received in idle:
        sent.send_many([b"x"] * 50)
        received.add_many(1, [b"x"] * 50)
        for table in sent, received:
            table.remove_many()
    assert sum(sys.getsizeof(table) for pair in idle for table in pair) < 2 * sys.getsizeof(
        RingBuffer(32_768))


def test_a_stream_with_a_hundred_messages_in_flight_stays_small_across_the_wrap():
    offset = 2**64 - 100_000
    table, sent, most = SeqnoTable(offset), 0, 0
    table.send_many(list(range(100)))
    for sent in range(100, 200_000, 50):
        assert table.send_many(list(range(sent, sent + 50))) == 50
        assert table.remove_many(50) == list(range(sent - 100, sent - 50))
        most = max(most, size(table))
    assert most <= EMPTY + 6 * ROW + PAGE + 16


def test_the_directory_shrinks_under_a_stream_that_never_stops():
    table = SeqnoTable()
    table.send_many([b"x"] * 100_000)
    for _ in range(1000):
        table.remove_many(148)
        table.send_many([b"x"] * 50)
    assert len(table) == 2000 and size(table) <= EMPTY + 64 * ROW + 9 * PAGE + 16 * 8


# --- against the other window ---------------------------------------------------------

def acts(dice, ring):
    """Something to do with a window, whichever it is: far and near, runs and single
    ones, old and too far."""
    low, hd, hr = ring.low, ring.hd, ring.hr

    def around(edge, spread):
        return (edge + dice.randint(-3, spread)) % 2**64

    seqno = around(dice.choice([low, hd, hr]), dice.choice([3, 40, 700, 5000]))
    run = [dice.choice([b"", b"x", b"xyz", 7])] * dice.choice([1, 5, 33, 300, 1500])
    limit, nullify = dice.choice([0, 1, 31, 400]), dice.random() < 0.7
    return dice.choice([
        lambda window: window.add(seqno, run[0]), lambda window: window.add_many(seqno, run),
        lambda window: window.add_many((window.hd + 1) % 2**64, run),
        lambda window: window.send_many(run),
        lambda window: window.send(run[0]), lambda window: window.announce(seqno),
        lambda window: window.remove_many(limit, nullify),
        lambda window: window.remove_many(limit, nullify),
        lambda window: window.remove(nullify), lambda window: window.stable(seqno),
        lambda window: window.stable(window.hd),
        lambda window: window.missing(3, seqno), lambda window: window.get(seqno),
    ])


@pytest.mark.parametrize("max_bytes", [0, 2000])
@pytest.mark.parametrize("seed", range(4))
def test_it_answers_as_a_ring_of_its_capacity_does(seed, max_bytes):
    dice = random.Random(seed)
    offset = dice.choice([0, 17, NEAR_THE_WRAP])
    table, ring = SeqnoTable(offset, capacity=5000, max_bytes=max_bytes), RingBuffer(5000, offset,
                                                                                     max_bytes=max_bytes)
    for _ in range(3000):
        act = acts(dice, ring)
        assert act(table) == act(ring)
        assert ((table.low, table.hd, table.hr, table.next_seqno, table.num_missing, len(table),
                 table.nbytes)
                == (ring.low, ring.hd, ring.hr, ring.next_seqno, ring.num_missing, len(ring),
                    ring.nbytes))
        if dice.random() < 0.05:
            assert table.missing() == ring.missing()
    table.close()
    assert size(table) == EMPTY


# --- no memory ------------------------------------------------------------------------

def state(table):
    return (table.low, table.hd, table.hr, table.next_seqno, len(table), table.missing(),
            table.nbytes, size(table))


@pytest.mark.parametrize("seqno, needed", [(1, 1), (300, 3), (60_000, 3)])
@pytest.mark.parametrize("before", [[], [2], [2, 700]])
def test_an_add_that_finds_no_memory_is_refused_and_changes_nothing(native, seqno, needed, before):
    """Row, page, directory: whichever of them it is."""
    table = SeqnoTable(max_bytes=1000)
    for held in before:
        table.add(held, b"held")
    unchanged, failures = state(table), 0
    while True:
        added, failed = native.Starving.add(table, seqno, b"item", failures)
        if not failed:
            break
        assert not added and state(table) == unchanged
        failures += 1
    assert added and table.get(seqno) == b"item" and failures <= needed
    assert failures > 0 or (seqno == 1 and before)


def test_what_fails_leaves_no_memory_behind(native):
    table = SeqnoTable()
    table.add(1, b"near")
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for allocations in [0, 1, 2] * 100:
            assert native.Starving.add(table, 60_000, b"item", allocations) == (False, True)
        assert tracemalloc.get_traced_memory()[0] - before < SLACK
    finally:
        tracemalloc.stop()


def test_a_send_that_finds_no_memory_raises_and_burns_no_seqno(native):
    table = SeqnoTable(max_bytes=1000)
    with pytest.raises(MemoryError, match="try again"):
        native.Starving.send(table, b"item")
    assert state(table) == state(SeqnoTable(max_bytes=1000))
    assert table.send(b"item") and table.get(1) == b"item"


def test_a_run_is_sent_as_far_as_there_is_memory(native):
    table = SeqnoTable(max_bytes=1000)
    assert native.Starving.send_run(table, [b"four"] * 64, 1) == (32, True)
    assert (table.hr, table.next_seqno, len(table), table.nbytes, size(table)) == (32, 33, 32, 128,
                                                                                   EMPTY + ROW)
    assert table.send_many([b"four"] * 10) == 10 and table.missing() == []


# --- rows and finalisers --------------------------------------------------------------

def test_finalisers_that_add_far_ahead_while_rows_are_freed_meet_a_sound_table():
    """The directory grows and shrinks under the stable() that releases them."""
    table, gone = SeqnoTable(capacity=2**20), []

    def finaliser(seqno):
        gone.append(seqno)
        assert table.low >= seqno and table.get(seqno) is None
        table.add(table.low + 1 + seqno * 997 % 2**20, "later")
        table.add_many(table.hr - 40, ["later"] * 30)

    table.add_many(1, [Item(lambda seqno=seqno: finaliser(seqno)) for seqno in range(1, 501)])
    assert len(table.remove_many(nullify=False)) == 500
    assert table.stable(500) == 500
    assert sorted(gone) == list(range(1, 501)) and table.hd == table.low == 500
    table.close()
    assert (len(table), size(table)) == (0, EMPTY)


def test_finalisers_that_deliver_and_free_during_close_get_or_release_each_item_once():
    table, gone, got = SeqnoTable(), [], []

    def finaliser(number):
        gone.append(number)
        got.extend(table.remove_many(limit=7))
        table.stable(table.hd)

    table.add_many(1, [Item(lambda number=number: finaliser(number)) for number in range(3000)])
    alive = [weakref.ref(item) for item in table.remove_many(10, nullify=False)]
    table.close()
    got.clear()
    assert sorted(gone) == list(range(3000)) and not any(item() for item in alive)
    assert (len(table), size(table)) == (0, EMPTY)


def test_a_finaliser_that_moves_low_during_close_leaves_nothing_unreleased():
    """Rows are counted from LOW's page: when LOW goes to 272 meanwhile, the row of 273
    is the first again."""
    table, last = SeqnoTable(), Item(lambda: None)
    alive = weakref.ref(last)
    table.add_many(1, [Item(lambda: (table.remove_many(240), table.stable(272)))] + ["retained"]
                   * 31 + ["later"] * 300 + [last])
    del last
    table.remove_many(32, nullify=False)
    table.close()
    assert (table.low, len(table), size(table), alive()) == (272, 0, EMPTY, None)


def test_a_row_that_was_given_back_is_made_anew_for_what_comes_later_in_it():
    table = SeqnoTable()
    for seqno in range(1, 200):
        assert table.add(seqno, seqno) and size(table) == EMPTY + ROW
        assert not table.add(seqno, "duplicate") and table.remove() == seqno
        assert not table.add(seqno, "late") and size(table) == EMPTY
