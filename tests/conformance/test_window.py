"""What every delivery window does, whatever it is made of. A new window joins by one
line in WINDOWS.

Window capacity is ROOM here: a window of fixed size has exactly that, one that grows
has at least that."""

import itertools
import random

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ringcast._core.ring_buffer import RingBuffer
from ringcast._core.seqno_table import SeqnoTable

ROOM = 70
WINDOWS = {
    "RingBuffer": lambda offset: RingBuffer(ROOM, offset),
    "RingBuffer bounded in bytes": lambda offset: RingBuffer(ROOM, offset, max_bytes=2**20),
    "SeqnoTable": lambda offset: SeqnoTable(offset, capacity=ROOM),
    "SeqnoTable bounded in bytes": lambda offset: SeqnoTable(offset, capacity=ROOM,
                                                             max_bytes=2**20),
}
OFFSETS = [0, 2**63 - 3, 2**64 - 3]


@pytest.fixture(params=WINDOWS)
def make(request):
    return WINDOWS[request.param]


@pytest.mark.parametrize("offset", OFFSETS)
def test_every_arrival_order_of_six_is_delivered_in_order(make, offset):
    seqnos = [(offset + k) % 2**64 for k in range(1, 7)]
    for arrival in itertools.permutations(seqnos):
        window, out = make(offset), []
        for seqno in arrival:
            assert window.add(seqno, seqno) and not window.add(seqno, "duplicate")
            out += window.remove_many()
            assert not window.add(seqno, "late")
        assert out == seqnos and window.low == window.hr == seqnos[-1] and len(window) == 0


def test_remove_stops_at_a_gap_and_goes_on_when_it_is_filled(make):
    window = make(0)
    window.add_many(1, ["a", "b"])
    window.add(4, "d")
    assert window.remove_many(1) == ["a"] and window.remove_many(9) == ["b"]
    assert window.remove() is None and window.remove_many() == []
    assert window.add(3, "c") and window.remove() == "c" and window.remove() == "d"


def test_a_run_that_is_partly_old_partly_there_and_partly_new_adds_only_the_new(make):
    window = make(0)
    window.add_many(1, list("abc"))
    window.remove_many()
    window.add(5, "e")
    window.add(40, "m")
    assert window.add_many(2, [f"run{seqno}" for seqno in range(2, 42)]) == 36
    assert [window.get(seqno) for seqno in (3, 4, 5, 6, 40, 41)] == [None, "run4", "e", "run6", "m",
                                                                     "run41"]
    assert window.add_many(2**63, ["far"]) == 0 and window.add_many(3, []) == 0


@pytest.mark.parametrize("offset", OFFSETS)
def test_missing_gives_ranges_across_blocks_cut_by_limit_and_upto(make, offset):
    def seqno(steps):
        return (offset + steps) % 2**64

    window = make(offset)
    assert window.missing() == [] and window.num_missing == 0
    for steps in (2, 3, 66):
        window.add(seqno(steps), steps)
    gaps = [(seqno(1), seqno(1)), (seqno(4), seqno(65))]
    assert window.missing() == gaps and window.num_missing == 63
    assert window.missing(1) == gaps[:1] and window.missing(limit=5) == gaps
    assert window.missing(upto=seqno(33)) == [gaps[0], (seqno(4), seqno(33))]
    assert window.missing(upto=offset) == [] and window.missing(0, seqno(70)) == gaps
    window.add(seqno(1), 1)
    assert window.missing() == gaps[1:]


def test_retained_items_are_found_until_stable_frees_them(make):
    window = make(0)
    window.add_many(1, list("abcdef"))
    assert window.remove_many(4, nullify=False) == list("abcd")
    assert (window.low, window.hd, len(window), window.get(1), window.get(6)) == (0, 4, 6, "a", "f")
    assert window.stable(2) == 2 and window.stable(2) == 0 and window.stable(1) == 0
    assert (window.low, window.get(2), window.get(3), len(window)) == (2, None, "c", 4)
    assert window.stable(100) == 2 and window.low == window.hd == 4
    assert window.remove_many() == ["e", "f"] and window.low == 6


def test_closing_releases_everything_and_may_be_repeated(make):
    window = make(0)
    window.add_many(1, ["a", "b"])
    window.close()
    window.close()
    assert len(window) == 0 and window.remove() is None and not window.add(3, "c")
    assert window.missing() == []


def test_none_is_no_item(make):
    window = make(0)
    for call in (lambda: window.add(1, None), lambda: window.add_many(1, ["a", None])):
        with pytest.raises(TypeError):
            call()
    assert len(window) == 0 and window.hr == 0


@pytest.mark.parametrize("seed", range(3))
def test_ten_thousand_with_loss_repair_and_shuffling_arrive_in_order(make, seed):
    dice, window, out = random.Random(seed), make(0), []
    while len(out) < 10_000:
        end = min(window.low + ROOM, 10_000)
        burst = [seqno for seqno in range(window.hr + 1, end + 1) if dice.random() > 0.05]
        dice.shuffle(burst)
        for seqno in burst:
            assert window.add(seqno, seqno)
        window.announce(end)
        out += window.remove_many()
        for first, last in window.missing(limit=dice.randrange(3)):
            assert window.add_many(first, list(range(first, last + 1))) == last - first + 1
        out += window.remove_many()
    assert out == list(range(1, 10_001))


class DictWindow:
    """The model: a dict of what is held, and a set of what was ever accepted."""

    def __init__(self):
        self.low = self.hd = self.hr = self.kept = 0
        self.held, self.accepted = {}, set()

    def add(self, step, item):
        if not self.low < step <= self.low + ROOM or step in self.accepted:
            return False
        self.accepted.add(step)
        self.held[step] = item
        self.hr = max(self.hr, step)
        return True

    def remove_many(self, limit, nullify):
        out = []
        while self.hd + 1 in self.held and (not limit or len(out) < limit):
            self.hd += 1
            out.append(self.held.pop(self.hd) if nullify else self.held[self.hd])
        if out and not nullify:
            self.kept = self.hd
        elif nullify and self.kept <= self.low:
            self.low = self.hd
        return out

    def stable(self, step):
        before, self.low = self.low, max(self.low, min(step, self.hd))
        for gone in range(before + 1, self.low + 1):
            self.held.pop(gone, None)
        return self.low - before

    def missing(self):
        return [step for step in range(self.hd + 1, self.hr + 1) if step not in self.accepted]


def machine(make, offset):
    def seqno(step):
        return (offset + step) % 2**64

    class Machine(RuleBasedStateMachine):
        def __init__(self):
            super().__init__()
            self.window, self.model, self.number = make(offset), DictWindow(), 0

        def item(self):
            self.number += 1
            return b"x" * (self.number % 7) if self.number % 2 else self.number

        @rule(step=st.integers(-3, ROOM + 3))
        def add(self, step):
            step, item = self.model.low + step, self.item()
            if step >= 0:
                assert self.window.add(seqno(step), item) == self.model.add(step, item)

        @rule(step=st.integers(-3, ROOM + 3), count=st.integers(0, ROOM + 10))
        def add_many(self, step, count):
            step, items = max(0, self.model.low + step), [self.item() for _ in range(count)]
            new = sum([self.model.add(step + k, item) for k, item in enumerate(items)])
            assert self.window.add_many(seqno(step), items) == new

        @rule(limit=st.integers(0, 40), nullify=st.booleans())
        def remove_many(self, limit, nullify):
            assert self.window.remove_many(limit, nullify) == self.model.remove_many(limit, nullify)

        @rule(nullify=st.booleans())
        def remove(self, nullify):
            assert [self.window.remove(nullify)] == (self.model.remove_many(1, nullify) or [None])

        @rule(step=st.integers(-2, ROOM))
        def stable(self, step):
            step = max(0, self.model.low + step)
            assert self.window.stable(seqno(step)) == self.model.stable(step)

        @precondition(lambda self: self.model.hd > self.model.low)
        @rule()
        def stable_to_the_end(self):
            assert self.window.stable(seqno(self.model.hd)) == self.model.stable(self.model.hd)

        @invariant()
        def agrees_with_the_model(self):
            window, model = self.window, self.model
            assert (window.low, window.hd, window.hr) == tuple(map(seqno,
                                                                   (model.low, model.hd, model.hr)))
            gaps = [step for first, last in window.missing()
                    for step in range((first - offset) % 2**64, (last - offset) % 2**64 + 1)]
            assert gaps == model.missing() and window.num_missing == len(gaps)
            assert len(window) == len(model.held)
            assert window.nbytes == sum(len(item) for item in model.held.values()
                                        if isinstance(item, bytes))
            for step in range(model.low - 1, model.low + ROOM + 2):
                assert window.get(seqno(step)) == model.held.get(step)

    Machine.TestCase.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
    return Machine.TestCase


TestRingBuffer = machine(WINDOWS["RingBuffer"], 0)
TestRingBufferAtTheWrap = machine(WINDOWS["RingBuffer bounded in bytes"], 2**64 - 40)
TestSeqnoTable = machine(WINDOWS["SeqnoTable"], 0)
TestSeqnoTableAtTheWrap = machine(WINDOWS["SeqnoTable bounded in bytes"], 2**64 - 40)
