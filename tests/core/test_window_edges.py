"""The edges of every window: capacity, arguments, refusals, the C API. What a window is
for is in tests/conformance."""

import pytest

from ringcast._core.ring_buffer import RingBuffer
from ringcast._core.seqno_table import SeqnoTable
from ringcast._core.window import Window
from ringcast.errors import ClosedError

CAPACITIES = [1, 31, 32, 33, 50, 1000]
OFFSETS = [0, 2**63 - 20, 2**64 - 20, 2**64 - 1]


def after(seqno, steps):
    return (seqno + steps) % 2**64


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("capacity", CAPACITIES)
def test_five_laps_in_runs_keep_order_and_contents(make, capacity, offset):
    ring, sent, out = make(capacity, offset), 0, []
    while sent < 5 * capacity:
        count = ring.add_many(after(offset, sent + 1), list(range(sent, sent + capacity + 3)))
        assert count == capacity
        sent += count
        out += ring.remove_many(limit=max(1, capacity // 3)) + ring.remove_many()
    assert out == list(range(sent))
    assert ring.low == ring.hd == ring.hr == after(offset, sent)


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("capacity", CAPACITIES)
def test_a_backward_filled_window_delivers_only_when_the_first_arrives(make, capacity, offset):
    ring = make(capacity, offset)
    for k in range(capacity, 1, -1):
        assert ring.add(after(offset, k), k)
        assert ring.remove() is None
    assert ring.add(after(offset, 1), 1)
    assert ring.remove_many() == list(range(1, capacity + 1))


@pytest.mark.parametrize("capacity", [0, 2**26 + 1])
def test_capacity_outside_its_range_raises(make, capacity):
    with pytest.raises(ValueError, match="capacity"):
        make(capacity)


def test_the_largest_capacity_takes_its_last_seqno(make):
    ring = make(2**26)
    assert ring.add(2**26, "last") and not ring.add(2**26 + 1, "beyond")
    assert ring.missing() == [(1, 2**26 - 1)]


@pytest.mark.parametrize("call", [
    lambda ring: ring.add(-1, b""), lambda ring: ring.add(2**64, b""),
    lambda ring: ring.add_many(2**64, [b""]),
    lambda ring: ring.get(-1), lambda ring: ring.stable(-1), lambda ring: ring.announce(2**64),
    lambda ring: ring.missing(-1), lambda ring: ring.missing(0, -1),
    lambda ring: ring.remove_many(-1),
    lambda ring: ring.send_many([b""], 2),
    lambda ring: ring.send_many([b""], -1),
])
def test_impossible_numbers_raise_value_error_and_change_nothing(make, call):
    ring = make(4)
    ring.add(2, b"two")
    with pytest.raises(ValueError, match="pass"):
        call(ring)
    assert (ring.low, ring.hd, ring.hr, len(ring), ring.next_seqno) == (0, 0, 2, 1, 3)


@pytest.mark.parametrize("call", [
    lambda ring: ring.add("1", b""), lambda ring: ring.add(1.0, b""),
    lambda ring: ring.add(None, b""),
    lambda ring: ring.add(1, None), lambda ring: ring.add_many(1, [b"", None]),
    lambda ring: ring.add_many(1, (b"",)),
    lambda ring: ring.add_many(1, None), lambda ring: ring.send(None),
    lambda ring: ring.send_many([b"", None]),
    lambda ring: ring.send_many(None), lambda ring: ring.stable("1"),
])
def test_wrong_types_raise_type_error_and_change_nothing(make, call):
    ring = make(4)
    ring.add(2, b"two")
    with pytest.raises(TypeError):
        call(ring)
    assert (ring.low, ring.hd, ring.hr, len(ring), ring.next_seqno) == (0, 0, 2, 1, 3)


@pytest.mark.parametrize("arguments, bound, error", [
    ((1, 2**64), {}, ValueError), ((1, -1), {}, ValueError), ((-1,), {}, ValueError),
    ((1,), {"max_bytes": -1}, ValueError),
    (("4",), {}, TypeError), ((4, "0"), {}, TypeError), ((4,), {"max_bytes": None}, TypeError),
])
def test_a_window_that_cannot_be_is_not_made(make, arguments, bound, error):
    with pytest.raises(error, match="pass"):
        make(*arguments, **bound)


def test_a_window_of_no_kind_is_not_made():
    with pytest.raises(TypeError, match="RingBuffer or a SeqnoTable"):
        Window()


@pytest.mark.parametrize("call", [lambda: RingBuffer(), lambda: RingBuffer(4, 0, 0),
                                  lambda: SeqnoTable(0, 4)])
def test_bounds_are_told_apart_by_name(call):
    with pytest.raises(TypeError):
        call()


def test_bytes_of_the_whole_window_are_counted_with_and_without_a_bound(make):
    for ring in make(40), make(40, max_bytes=1000):
        ring.add_many(1, [b"four", "text", bytearray(9), b"", b"five5"])
        assert ring.nbytes == 9
        ring.remove_many(2, nullify=False)
        assert ring.nbytes == 9
        ring.stable(1)
        assert ring.nbytes == 5
        ring.add_many(1, [b"x"] * 6)
        assert ring.nbytes == 6
        ring.remove_many()
        assert ring.nbytes == 0


@pytest.mark.parametrize("max_bytes", [0, 100])
def test_after_close_nothing_is_in_the_window_and_sending_raises(make, max_bytes):
    ring = make(4, max_bytes=max_bytes)
    ring.add_many(1, [b"a", b"b"])
    ring.add(4, b"d")
    ring.remove(nullify=False)
    ring.close()
    ring.close()
    assert (len(ring), ring.nbytes, ring.num_missing, ring.missing()) == (0, 0, 0, [])
    assert (ring.low, ring.hd, ring.hr, ring.capacity) == (0, 1, 4, 4)
    assert not ring.add(3, "c") and ring.add_many(3, ["c"]) == 0
    assert ring.remove() is None and ring.remove_many() == [] and ring.get(2) is None
    assert ring.announce(100) == 4
    for call in (lambda: ring.send("e"), lambda: ring.send_many(["e"])):
        with pytest.raises(ClosedError):
            call()
    assert ring.stable(9) == 1


def test_a_closed_window_bounded_in_bytes_says_so_even_to_an_item_beyond_the_bound(make):
    ring = make(4, max_bytes=2)
    ring.close()
    with pytest.raises(ClosedError):
        ring.send(b"three")


def test_removal_meeting_kept_items_empties_its_slot_and_leaves_low(make):
    ring = make(8)
    ring.add_many(1, list("abcd"))
    assert ring.remove(nullify=False) == "a"
    assert ring.remove() == "b"
    assert (ring.low, ring.hd, ring.get(1), ring.get(2), len(ring)) == (0, 2, "a", None, 3)
    assert ring.stable(2) == 2
    assert ring.remove_many() == ["c", "d"]
    assert ring.low == ring.hd == 4


def test_the_c_api_does_what_the_python_names_do(make, native):
    ring = make(4, 10)
    assert native.Interface.send(ring, "a") and native.Interface.add(ring, 12, "b")
    assert native.Interface.send(ring, "c") and native.Interface.send(ring, "d")
    assert not native.Interface.send(ring, "full")
    assert native.Interface.peek(ring, 11) == "a" and native.Interface.peek(ring, 15) is None
    assert native.Interface.pointers(ring) == (10, 10, 14)
    with pytest.raises(TypeError):
        native.Interface.send(ring, None)
    ring.close()
    with pytest.raises(ClosedError):
        native.Interface.send(ring, "closed")
