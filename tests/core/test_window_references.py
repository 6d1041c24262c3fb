"""The window owns one reference per item and gives it away or drops it exactly once;
finalisers may call back."""

import gc
import sys
import weakref

import pytest


class Item:
    def __init__(self, finaliser=None):
        self.finaliser = finaliser

    def __del__(self):
        if self.finaliser is not None:
            self.finaliser()


def references_left(make, act):
    """How many references to one object remain after act(window of 40, object), with
    the window gone."""
    item, ring = object(), make(40)
    before = sys.getrefcount(item)
    act(ring, item)
    del ring
    return sys.getrefcount(item) - before


@pytest.mark.parametrize("act", [
    lambda ring, item: [ring.add(s, item) for s in (1, 1, 2, 40, 41, 2**63)],
    lambda ring, item: (ring.add_many(1, [item] * 60), ring.add_many(20, [item] * 60)),
    lambda ring, item: (ring.add_many(1, [item] * 40), ring.remove(), ring.remove_many(3),
                        ring.remove_many()),
    lambda ring, item: (ring.add_many(1, [item] * 40), ring.remove(False),
                        ring.remove_many(9, False), ring.get(30)),
    lambda ring, item: (ring.add_many(1, [item] * 40), ring.remove_many(0, False), ring.stable(33)),
    lambda ring, item: (ring.add_many(3, [item] * 9), ring.close()),
    lambda ring, item: (ring.send(item), ring.send_many([item] * 50), ring.stable(9)),
], ids=["add", "add_many", "remove", "retain", "stable", "close", "send"])
def test_every_reference_is_dropped_once(make, act):
    assert references_left(make, act) == 0


def test_a_cycle_through_the_window_is_collected(make):
    ring, item = make(4), Item()
    item.ring = ring
    ring.add(3, item)
    ring.add(2, ring)
    alive = weakref.ref(item)
    del ring, item
    assert alive() is not None
    gc.collect()
    assert alive() is None


def test_the_collector_sees_each_slot_once_and_no_empty_one(make):
    ring, item = make(100), []
    ring.add_many(1, [item] * 70)
    ring.remove_many(40)
    assert [found for found in gc.get_referents(ring) if found is item] == [item] * 30
    gc.collect()
    assert len(ring) == 30


def test_an_item_lives_while_its_slot_does_and_not_longer(make):
    ring, item = make(4), Item()
    alive = weakref.ref(item)
    ring.add(1, item)
    del item
    ring.remove(nullify=False)
    assert alive() is not None
    ring.stable(1)
    assert alive() is None


def test_the_same_object_may_stand_under_many_seqnos_and_be_false(make):
    ring = make(8)
    falsy = [0, b"", (), False, 0]
    assert ring.add_many(1, falsy) == 5
    assert ring.remove_many() == falsy


def test_a_finaliser_that_calls_every_method_finds_low_moved(make):
    ring, seen = make(40), []

    def finaliser():
        seen.append((ring.low, ring.get(1), ring.add(ring.low + 40, "new"), ring.remove(),
                     ring.stable(40), len(ring)))

    ring.add_many(1, [Item(finaliser) for _ in range(40)])
    assert len(ring.remove_many(nullify=False)) == 40
    freed = ring.stable(40)
    assert freed == 40 and ring.low == 40
    assert [entry[:2] for entry in seen] == [(32, None)] * 32 + [(40, None)] * 8
    assert all(entry[4] == 0 for entry in seen)


def test_a_wish_of_a_nested_stable_is_carried_out_by_the_outer_call(make):
    ring = make(1000)
    ring.add_many(1, [Item(lambda seqno=seqno: ring.stable(seqno + 1)) for seqno in range(1, 1001)])
    ring.remove_many(nullify=False)
    assert ring.stable(1) == 1000
    assert ring.low == 1000


def test_a_finaliser_that_raises_is_reported_and_the_purge_goes_on(make, monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook",
                        lambda unraisable: reported.append(unraisable.exc_type))

    def finaliser():
        raise RuntimeError("from an item")

    ring = make(4)
    ring.add_many(1, [Item(finaliser) for _ in range(4)])
    ring.remove_many(nullify=False)
    assert ring.stable(4) == 4
    assert reported == [RuntimeError] * 4
    assert ring.send("next") and ring.get(5) == "next"


def test_a_finaliser_in_close_that_closes_again_releases_each_item_once(make):
    ring, gone = make(100), []
    ring.add_many(1, [Item(lambda k=k: (gone.append((k, ring.get(100))), ring.close()))
                      for k in range(100)])
    ring.close()
    assert sorted(gone) == [(k, None) for k in range(100)]
    assert not ring.add(1, "late")


def test_windows_inside_windows_are_released_however_deep(make):
    ring = make(1)
    for _ in range(100_000):
        outer = make(1)
        outer.add(1, ring)
        ring = outer
    del outer, ring


def test_many_windows_leave_nothing_behind(make):
    item = object()
    before = sys.getrefcount(item)
    for _ in range(10_000):
        ring = make(3)
        ring.add_many(1, [item, item, item])
        ring.remove(False)
    del ring
    assert sys.getrefcount(item) == before
