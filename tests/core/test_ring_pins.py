"""RingBuffer's pins: a compiled reader that lets the GIL go keeps its block, and the
consumer does not wait for it."""

import sys

from ringcast._core.ring_buffer import RingBuffer


def test_a_pinned_block_is_delivered_by_sharing_and_low_follows_after_the_unpin(native):
    ring, held = RingBuffer(64), object()
    ring.add_many(1, [held] + list(range(2, 41)))
    assert native.Interface.pin(ring, 1)
    assert ring.remove_many() == [held] + list(range(2, 41))
    assert (ring.low, ring.hd) == (0, 40)
    assert ring.get(1) is held and native.Interface.peek(ring, 31) == 31
    assert not ring.add(65, "beyond low+capacity")
    assert ring.stable(40) == 0
    native.Interface.unpin(ring, 1)
    assert ring.remove() is None
    assert (ring.low, ring.get(1), len(ring)) == (40, None, 0)


def test_the_next_stable_after_an_unpin_frees_what_the_pin_held_back(native):
    ring = RingBuffer(64)
    ring.add_many(1, list(range(1, 41)))
    ring.remove_many(nullify=False)
    native.Interface.pin(ring, 3)
    assert ring.stable(35) == 0
    native.Interface.unpin(ring, 3)
    assert ring.stable(0) == 35


def test_a_pin_on_what_is_not_there_is_no_pin(native):
    ring = RingBuffer(4)
    ring.add(2, "b")
    assert not native.Interface.pin(ring, 1) and not native.Interface.pin(ring, 3) and not native.Interface.pin(ring, 0)
    ring.add(1, "a")
    assert ring.remove_many() == ["a", "b"] and ring.low == 2


def test_pinned_items_lose_no_reference_when_shared(native):
    item, ring = object(), RingBuffer(40)
    before = sys.getrefcount(item)
    ring.add_many(1, [item] * 40)
    native.Interface.pin(ring, 1)
    ring.remove_many()
    native.Interface.unpin(ring, 1)
    ring.remove()
    assert len(ring) == 0 and sys.getrefcount(item) == before
