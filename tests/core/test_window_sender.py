"""The sender's side: room first, then the seqno, then the store, in one step (decision
13)."""

import pytest


@pytest.mark.parametrize("offset", [0, 2**64 - 3])
def test_send_takes_capacity_seqnos_and_then_none_until_stable(make, offset):
    ring = make(3, offset)
    assert [ring.send(item) for item in "abcd"] == [True, True, True, False]
    assert (ring.hr, ring.next_seqno) == ((offset + 3) % 2**64, (offset + 4) % 2**64)
    assert ring.stable(ring.hr) == 0                 # nothing was delivered yet
    assert ring.remove_many(nullify=False) == ["a", "b", "c"]
    ring.stable(offset + 1)
    assert ring.send("d") and not ring.send("e")
    assert ring.get((offset + 4) % 2**64) == "d" and ring.missing() == []


def test_decision_13_a_refused_send_burns_no_seqno(make):
    ring = make(1)
    ring.send("a")
    before = ring.next_seqno
    assert not ring.send("b") and ring.send_many(["b", "c"]) == 0
    assert ring.next_seqno == before
    ring.remove()
    assert ring.send("b") and ring.remove() == "b" and ring.hr == 2


def test_send_many_takes_a_prefix_from_start_and_its_seqnos_begin_at_next_seqno(make):
    ring, items = make(50), list(range(100))
    assert ring.send_many(items, 95) == 5
    first = ring.next_seqno
    assert ring.send_many(items) == 45
    assert [ring.get(first + k) for k in range(45)] == items[:45]
    assert ring.send_many(items, 45) == ring.send_many([]) == ring.send_many(items, 100) == 0


def test_send_many_looks_only_at_items_that_have_room(make):
    ring = make(2)
    assert ring.send_many(["a", "b", None]) == 2
    ring.remove_many()
    with pytest.raises(TypeError):
        ring.send_many(["a", "b", None], 2)


def test_a_window_bounded_in_bytes_refuses_a_send_unless_it_is_empty(make):
    ring = make(10, max_bytes=10)
    assert ring.send_many([b"longer than the bound", b"x"]) == 1
    assert not ring.send(b"x") and ring.send(b"")
    assert ring.remove_many(nullify=False) == [b"longer than the bound", b""]
    assert not ring.send(b"delivered, yet kept until stable")
    assert ring.stable(1) == 1
    assert ring.send_many([b"12345", b"1234", b"12", b"1"]) == 2  # a prefix, though the last would
                                                                  # fit
    assert (ring.nbytes, ring.next_seqno) == (9, 5)


def test_send_goes_on_after_the_highest_that_was_added(make):
    ring = make(5, 10)
    ring.add(12, "b")
    assert ring.send("c") and ring.get(13) == "c" and ring.missing() == [(11, 11)]


def test_a_seqno_that_was_sent_cannot_be_added_in_any_block_and_lap(make):
    ring = make(70)
    for _ in range(5):
        first, items = ring.next_seqno, [object() for _ in range(67)]
        assert ring.send_many(items[:65]) == 65 and ring.send(items[65]) and ring.send(items[66])
        assert not any(ring.add(first + k, "again") for k in range(67))
        assert ring.remove_many(nullify=False) == items
        assert not any(ring.add(first + k, "again") for k in range(67))
        assert ring.stable(ring.hr) == 67 and len(ring) == 0


def test_announce_shows_a_lost_tail_and_never_goes_back_or_beyond_the_window(make):
    ring = make(5)
    ring.add(1, "a")
    assert ring.announce(3) == 3 and ring.missing() == [(2, 3)] and ring.num_missing == 2
    assert ring.announce(2) == 3 and ring.announce(0) == 3
    assert ring.announce(2**40) == 5 and ring.missing() == [(2, 5)]
    assert ring.announce(2**63 + 100) == 5
    ring.remove()
    assert ring.announce(2**40) == 6
    assert ring.add(6, "f") and ring.missing() == [(2, 5)]
