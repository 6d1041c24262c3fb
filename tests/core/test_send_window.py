"""The send window: take a seqno, store, hand down; nothing burns a seqno and nothing
leaves out of order."""

import pytest

from ringcast import MAX_PAYLOAD
from ringcast._core import wire
from ringcast._core.send_window import BUNDLE, FIRST, FULL, LARGE, NOTHING, SendWindow

HEADER = wire.make_header(1, 7, 1, 0)


def framed(window, **kwargs):
    """(seqno, payload) pairs in the order in which they leave."""
    return [(batch.first + k, payload) for datagram in window.frame(HEADER, **kwargs)
            for batch in wire.read_data(datagram, 0, 1 << 20).batches for k,
            payload in enumerate(batch.payloads)]


def test_messages_leave_in_the_order_of_their_seqnos_and_once(make):
    window = SendWindow(make(100))
    for k in range(10):
        window.push(b"%d" % k)
    assert framed(window) == [(k + 1, b"%d" % k) for k in range(10)]
    assert framed(window) == []
    window.push(b"next")
    assert framed(window) == [(11, b"next")]


def test_push_tells_what_is_left_to_do(make):
    window = SendWindow(make(100), bundle=1000)
    assert window.push(b"x" * 100) == FIRST
    assert window.push(b"x" * 100) == NOTHING
    assert [window.push(b"x" * 100) for _ in range(8)][-1] == BUNDLE
    window.frame(HEADER)
    assert window.push(b"x") == FIRST


def test_a_first_message_that_fills_a_datagram_is_told_as_first(make):
    window = SendWindow(make(100), bundle=1000)
    assert window.push(b"x" * 2000) == FIRST


def test_decision_13_a_full_window_takes_no_seqno(make):
    window = SendWindow(make(3))
    assert [window.push(b"m") for _ in range(5)] == [FIRST, NOTHING, NOTHING, FULL, FULL]
    assert window.ring.hr == 3
    window.ring.remove_many(nullify=False)
    window.ring.stable(1)
    assert window.push(b"m") == NOTHING and window.ring.hr == 4


def test_decision_7_the_window_is_bounded_in_bytes_too(make):
    window = SendWindow(make(1000, max_bytes=250))
    assert [window.push(b"x" * 100) for _ in range(4)] == [FIRST, NOTHING, FULL, FULL]
    assert window.push(b"x" * 50) == NOTHING
    assert window.ring.hr == 3


def test_a_message_larger_than_the_bound_passes_an_empty_window_alone(make):
    window = SendWindow(make(1000, max_bytes=250))
    assert window.push(b"x" * 1000) == FIRST
    assert window.push(b"x") == FULL


def test_push_many_takes_a_prefix_and_stops_at_a_full_datagram(make):
    window = SendWindow(make(1000), bundle=1000)
    payloads = [b"x" * 100] * 50
    taken = window.push_many(payloads)
    assert taken == 10
    assert window.push_many(payloads, taken) == 1
    assert len(framed(window)) == 11


def test_flags_are_forgotten_one_by_one(make):
    window = SendWindow(make(16))
    window.push_many([b"1", b"2", b"3", b"4"], 0, 8)
    window.frame(HEADER)
    window.ring.remove_many(nullify=False)
    for seqno in range(1, 5):
        window.stable(seqno)
        assert list(window.marks.flags) == list(range(seqno + 1, 5))


def test_push_many_stops_where_the_window_is_full(make):
    window = SendWindow(make(7))
    assert window.push_many([b"m"] * 10) == 7
    assert window.push_many([b"m"] * 10, 7) == 0


def test_push_all_takes_what_leaves_with_others_that_wait(make):
    window = SendWindow(make(100), bundle=1000)
    assert not window.push_all([b"a", b"b"])            # nothing waits: somebody must be told
    window.push(b"first")
    assert window.push_all([b"a", b"b"], 1)
    assert window.waiting == 3 * 2 + len(b"firstab")
    assert window.marks.flags == {2: 1, 3: 1}
    assert framed(window) == [(1, b"first"), (2, b"a"), (3, b"b")]


@pytest.mark.parametrize("payloads", [
    [], [b"good", "text"], [b"good", None], [b"good", bytes(MAX_PAYLOAD + 1)],
    [b"x" * 90] * 10,                                   # a datagram would be full
    [b"m"] * 20,                                        # no seqnos for so many
    [b"x" * 60] * 5,                                    # no bytes for so many
])
def test_push_all_takes_all_or_none(make, payloads):
    window = SendWindow(make(20, max_bytes=300), bundle=1000)
    window.push(b"first")
    before = window.waiting
    assert not window.push_all(payloads)
    assert (window.ring.hr, window.ring.nbytes, window.waiting) == (1, len(b"first"), before)


def test_push_all_fills_the_window_to_its_last_seqno_and_byte(make):
    window = SendWindow(make(4, max_bytes=100))
    window.push(b"first")
    assert not window.push_all([b"x" * 32] * 3)
    assert window.push_all([b"x" * 32, b"x" * 32, b"x" * 31])
    assert (window.ring.hr, window.ring.nbytes) == (4, 100)
    assert not window.push_all([b""])


def fragments(count, size=100):
    """Fragments that nobody else has: their heads are still to be written."""
    return [bytes(16) + b"%d" % (k % 10) * (size - 16) for k in range(count)]


def numbers(window):
    return {seqno: int.from_bytes(payload[:8], "little") for seqno, payload in framed(window)}


def test_the_fragments_of_a_large_message_go_in_together_or_not_at_all(make):
    window = SendWindow(make(16, max_bytes=10_000), bundle=200)
    window.push(b"before")
    waited = window.waiting
    assert window.push_whole(fragments(4), 8) == 4      # though a batch is full before
    assert window.waiting == waited + 4 * 102
    assert list(window.marks.flags.items()) == [(2, 8), (3, 8), (4, 8), (5, 8)]
    for _ in range(8):
        window.push(b"m")
    assert window.push_whole(fragments(4), 8) == 0 and window.ring.hr == 13
    assert window.push_whole(fragments(3), 8) == 3
    assert numbers(window) == {1: int.from_bytes(b"before", "little"), **dict.fromkeys(
        [2, 3, 4, 5], 2), **dict.fromkeys(range(6, 14), ord("m")), 14: 14, 15: 14, 16: 14}


@pytest.mark.parametrize("push", [
    lambda window: window.push(b"x" * 100) != FULL,
    lambda window: window.push_many([b"x" * 100] * 3) > 0,
    lambda window: window.push_many([b"x" * 100] * 3, 1) > 0,
    lambda window: window.push_all([b"x" * 100]),
])
def test_others_leave_room_for_a_large_message_that_found_none(make, push):
    window = SendWindow(make(16))
    while push(window) or window.push(b"x" * 100) != FULL:      # something always waits
        pass
    assert window.ring.hr == 16 and window.push_whole(fragments(4)) == 0
    window.frame(HEADER)
    window.ring.remove_many(nullify=False)
    window.stable(4)
    assert not push(window)                             # though there is room for four
    window.stable(5)
    assert window.push(b"x" * 100) != FULL and not push(window) and window.ring.hr == 17
    assert window.push_whole(fragments(4)) == 4 and window.ring.hr == 21
    window.stable(6)
    assert push(window)                                 # all of the window is everybody's again


def test_what_is_spared_for_a_large_message_is_for_all_when_that_is_given_up(make):
    window = SendWindow(make(16))
    while window.push(b"m") != FULL:
        pass
    assert window.push_whole(fragments(4)) == 0
    window.frame(HEADER)
    window.ring.remove_many(nullify=False)
    window.stable(1)
    assert window.push(b"m") == FULL
    window.give_up_whole()
    assert window.push(b"m") != FULL and window.push(b"m") == FULL


def test_a_large_message_may_go_beyond_the_bytes_if_nothing_else_has(make):
    window = SendWindow(make(100, max_bytes=1000))
    window.push(b"x" * 1000)
    assert window.push(b"x") == FULL and window.push_whole(fragments(20), 8) == 20
    assert window.ring.max_bytes == 1000 and window.ring.nbytes == 3000
    assert window.push_whole(fragments(1)) == 0 and window.push(b"x") == FULL
    window.frame(HEADER)
    window.ring.remove_many(nullify=False)
    window.stable(1)
    assert window.push_whole(fragments(1)) == 0, "2000 bytes are left"
    window.arrived = 1000
    window.frame(HEADER)
    window.stable(11)
    assert window.push_whole(fragments(1)) == 1


def test_no_more_is_on_its_way_than_the_window_takes_as_a_rule(make):
    window = SendWindow(make(100, max_bytes=1000), bundle=280)      # two of 100 bytes
    assert window.push_whole(fragments(30), 8) == 30
    assert len(framed(window)) == 8 and window.is_held, "one datagram more is too much"
    assert framed(window) == [] and window.is_held
    window.arrived, window.ring.max_bytes = 600, 1600
    assert [seqno for seqno, _ in framed(window)] == [9, 10, 11, 12, 13, 14]
    window.ring.remove_many(nullify=False)
    window.stable(14)
    window.arrived, window.ring.max_bytes = 0, 1000
    assert len(framed(window)) == 8
    window.stable(20)
    assert len(framed(window)) == 8 and not window.is_held, "what is left is as much as a window"


def test_what_all_have_acknowledged_is_not_on_its_way_though_it_is_kept(make):
    window = SendWindow(make(100, max_bytes=1000), bundle=280)
    window.push_whole(fragments(30), 8)
    assert not window.can_go_on, "nothing was held back yet"
    assert len(framed(window)) == 8 and not window.can_go_on
    window.acked = 4
    assert window.can_go_on and [seqno for seqno, _ in framed(window)] == [9, 10, 11, 12]
    assert not window.can_go_on


def test_one_datagram_is_never_too_much(make):
    window = SendWindow(make(100, max_bytes=50), bundle=280)
    window.push_whole(fragments(6))
    assert len(framed(window)) == 2 and framed(window) == []
    window.arrived = 200
    assert len(framed(window)) == 2, "what was framed has come"
    window.skip()
    assert not window.is_held


def test_a_closed_window_takes_no_large_message(make):
    window = SendWindow(make(16))
    window.close()
    assert window.push_whole(fragments(2)) == 0 and window.ring.hr == 0
    window.reopen()
    assert window.push_whole(fragments(2)) == 2


def test_push_all_leaves_a_message_that_must_be_split(make):
    window = SendWindow(make(100), bundle=1000, datagram=1000)
    window.aim(1000, 10_000)                            # a batch is larger than a datagram
    window.push(b"first")
    assert not window.push_all([b"before", b"x" * (window.largest + 1)]) and window.ring.hr == 1
    assert window.push_all([b"x" * window.largest])


@pytest.mark.parametrize("bad", ["text", bytearray(b"x"), None, 5])
def test_anything_but_bytes_raises_and_takes_nothing(make, bad):
    window = SendWindow(make(10))
    with pytest.raises(TypeError, match="payload is bytes"):
        window.push(bad)
    with pytest.raises(TypeError, match="payload is bytes"):
        window.push_many([b"good", bad])
    with pytest.raises(TypeError):
        window.push_all(bad)
    assert (window.ring.hr, window.waiting) == (0, 0)


def test_a_message_that_does_not_fit_a_datagram_is_not_taken_and_stops_a_list_of_them(make):
    window = SendWindow(make(10))
    assert window.push(bytes(MAX_PAYLOAD + 1)) == LARGE and window.ring.hr == 0
    assert window.push_many([b"good", bytes(MAX_PAYLOAD + 1), b"after it"]) == 1
    assert window.push_many([b"good", bytes(MAX_PAYLOAD + 1), b"after it"], 1) == 0
    assert window.push(bytes(MAX_PAYLOAD)) == BUNDLE and window.ring.hr == 2


def test_full_only_leaves_the_rest_for_company(make):
    window = SendWindow(make(1000), bundle=1000)
    for _ in range(15):
        window.push(b"x" * 100)
    first = framed(window, full_only=True)
    assert 8 <= len(first) < 15
    assert framed(window, full_only=True) == []
    assert len(framed(window)) == 15 - len(first)
    assert window.waiting == 0


def test_bytes_that_wait_are_counted_exactly(make):
    window = SendWindow(make(1000), bundle=1000)
    for k in range(30):
        window.push(b"x" * (k * 7 % 200))
    window.frame(HEADER, True)
    rest = sum((k * 7 % 200) + 2 for k in range(window.sent, 30))
    assert window.waiting == rest


def test_a_closed_window_takes_nothing_and_still_frames_what_it_has(make):
    window = SendWindow(make(10))
    window.push(b"kept")
    window.close()
    assert window.push(b"late") == FULL
    assert window.push_many([b"late"]) == 0 and not window.push_all([b"late"])
    assert framed(window) == [(1, b"kept")]


def test_framing_goes_on_behind_what_was_purged(make):
    window = SendWindow(make(10))
    window.push_many([b"1", b"2", b"3"])
    window.ring.remove_many(nullify=False)
    window.ring.stable(2)
    assert framed(window) == [(3, b"3")]
    assert (window.sent, window.waiting) == (3, 0)


def test_what_is_not_framed_is_not_freed_whoever_says_that_it_is_finished(make):
    window = SendWindow(make(10))
    window.push_many([b"1", b"2"])
    window.frame(HEADER)
    window.push_many([b"3", b"4"])
    window.ring.remove_many(nullify=False)
    assert window.stable(4) == 2
    assert (window.ring.low, window.sent) == (2, 2)
    assert framed(window) == [(3, b"3"), (4, b"4")]
    assert window.stable(4) == 2


def test_what_is_not_framed_cannot_be_acknowledged(make):
    window = SendWindow(make(10))
    window.push_many([b"1", b"2"])
    window.frame(HEADER)
    window.push_many([b"3", b"4"])
    assert window.acknowledged(4) == 2
    assert framed(window) == [(3, b"3"), (4, b"4")]
    assert window.acknowledged(4) == 2


def test_seqnos_wrap_at_two_to_the_64(make):
    window = SendWindow(make(10, 2**64 - 3))
    window.push_many([b"a", b"b", b"c", b"d"])
    (datagram,) = window.frame(HEADER)
    (batch,) = wire.read_data(datagram, 2**64 - 3, 10).batches
    assert (batch.first, batch.last, window.sent) == (2**64 - 2, 1, 1)


def test_a_header_of_another_size_is_a_mistake_of_the_caller(make):
    window = SendWindow(make(10))
    with pytest.raises(ValueError, match="make_header"):
        window.frame(b"short")


def test_a_message_has_the_time_of_the_turn_that_first_saw_it(make):
    window = SendWindow(make(1000), bundle=1000)

    def times(datagrams):
        return [(batch.first, batch.last, batch.stamp) for datagram in datagrams
                for batch in wire.read_data(datagram, 0, 1 << 20).batches]

    for _ in range(12):
        window.push(b"x" * 100)
    (first,) = times(window.frame(HEADER, True, now=50))
    assert first == (1, 9, 50)
    window.push(b"y")
    # what waited for a full datagram was seen at 50
    assert times(window.frame(HEADER, now=60)) == [(10, 12, 50), (13, 13, 60)]
    window.push(b"z")
    window.stamp(70)
    window.push(b"z")
    assert times(window.frame(HEADER, now=80)) == [(14, 14, 70), (15, 15, 80)]
