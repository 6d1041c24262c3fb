"""Contention without the GIL. Contents and the winner of each seqno are checked: a
count alone sees no false accept, because every false accept displaces a true one
(ring.md 1.3)."""

import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

COUNT = 20_000
SHAPES = [(1, 0), (2, 2**63 - 50), (45, 0), (64, 2**64 - 50), (1000, 2**64 - 5000)]


def run_together(*calls):
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(*call) for call in calls]]


def winners(wins):
    return {sum(column) for column in zip(*wins, strict=True)}


@pytest.mark.parametrize("capacity", [1, 33, 64, 65, 96, 1000, 2**20 - 31, 2**26 - 5])
def test_a_seqno_is_found_without_dividing(native, capacity):
    bare = native.Bare(capacity, 5, 1)
    rng = random.Random(capacity)
    blocks = bare.position(0)[3]
    edges = [k * blocks * 32 + step for k in (1, 2, 2**20, 2**64 // (blocks * 32))
             for step in (-33, -32, -1, 0, 1, 31, 32)]
    for distance in [*(edge for edge in edges if 0 <= edge < 2**64), 2**64 - 1,
                     *(rng.getrandbits(64) for _ in range(20_000))]:
        lap, block = divmod(distance >> 5, blocks)
        assert bare.position(distance) == (block, lap % 2**32, distance % 32, blocks)


@pytest.mark.parametrize("capacity, offset", SHAPES)
def test_each_seqno_has_one_winner_and_its_own_content_with_three_adders(native, capacity, offset):
    bare = native.Bare(capacity, offset, COUNT)
    wrong, *wins = run_together((bare.consume, True), (bare.add_all, 1), (bare.add_all, 1),
                                (bare.add_all, min(7, capacity)))
    assert wrong == 0
    assert winners(wins) == {1}


@pytest.mark.parametrize("capacity, offset", SHAPES)
def test_an_onlooker_sees_the_pointers_in_order_while_items_come_and_go(native, capacity, offset):
    bare = native.Bare(capacity, offset, COUNT)
    wrong, order, *wins = run_together((bare.consume, True), (bare.watch,), (bare.add_all, 1),
                                       (bare.add_all, min(3, capacity)))
    assert (wrong, order) == (0, 0)
    assert winners(wins) == {1}


@pytest.mark.parametrize("capacity, offset", SHAPES)
def test_retained_items_survive_until_the_purger_frees_each_once(native, capacity, offset):
    bare = native.Bare(capacity, offset, COUNT)
    wrong, freed, order, *wins = run_together((bare.consume, False), (bare.free_behind,),
                                              (bare.watch,), (bare.add_all, 1),
                                              (bare.add_all, min(5, capacity)))
    assert (wrong, freed, order) == (0, COUNT, 0)
    assert winners(wins) == {1}


@pytest.fixture
def hasty_interpreter():
    """Threads change places as often as the interpreter lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def drained(make, hasty_interpreter):
    """(ring, drain, out): one thread at a time takes out what is ready, as the thread
    that delivers would."""
    ring, out, delivering = make(64), [], threading.Lock()

    def drain(nullify=True):
        with delivering:
            out.extend(ring.remove_many(nullify=nullify))
            ring.stable(ring.hd)

    return ring, drain, out


def test_python_threads_adding_the_same_seqnos_win_each_once_and_deliver_in_order(drained):
    ring, drain, out = drained
    count = 5_000

    def add(step):
        won = 0
        for seqno in range(1, count + 1, step):
            items = [(seqno + k, step) for k in range(step)]
            while ring.low + ring.capacity < seqno + step - 1:
                drain()
            won += ring.add_many(seqno, items) if step > 1 else ring.add(seqno, items[0])
            drain()
        return won

    assert sum(run_together((add, 1), (add, 1), (add, 4))) == count
    assert [seqno for seqno, _ in out] == list(range(1, count + 1))


def test_sending_threads_take_gapless_seqnos_and_lose_nothing(drained):
    ring, drain, out = drained
    each = 2_000

    def send(name):
        for number in range(each):
            while not ring.send((name, number)):
                drain(nullify=False)

    run_together((send, "A"), (send, "B"), (send, "C"))
    drain()
    for name in "ABC":
        assert [number for sender, number in out if sender == name] == list(range(each))
    assert ring.low == ring.hr == 3 * each
