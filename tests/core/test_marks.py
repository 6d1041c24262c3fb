"""Flags of messages: what OOB, DONT_LOOPBACK and taken once mean for what leaves a
window."""

from hypothesis import given, strategies as st

from ringcast._core.batch import Batch
from ringcast._core.marks import Marks
from ringcast._core.ring_buffer import RingBuffer
from ringcast.flags import Flag

OOB, DONT_LOOPBACK = int(Flag.OOB), int(Flag.DONT_LOOPBACK)


def batch(first, *payloads, flags=0):
    return Batch(None, first, list(payloads), 0, None, flags)


def told(batches):
    return [(each.first, each.payloads, each.flags) for each in batches]


def test_an_oob_message_is_handed_out_when_it_comes_and_not_again_in_its_place():
    window, marks = RingBuffer(10), Marks()
    assert marks.accept(window, batch(3, b"c", flags=OOB))[0] == 1
    window.add_many(1, [b"a", b"b"])
    window.add(4, b"d")
    assert told(marks.split(1, window.remove_many(nullify=False))) == [(1, [b"a", b"b"], 0),
                                                                       (4, [b"d"], 0)]
    assert len(marks) == 0


def test_an_oob_message_that_is_there_already_is_not_handed_out():
    window, marks = RingBuffer(10), Marks()
    added, early = marks.accept(window, batch(2, b"b", b"c", b"d", flags=OOB))
    assert (added, told(early)) == (3, [(2, [b"b", b"c", b"d"], OOB)])
    added, early = marks.accept(window, batch(1, b"a", b"b", b"c", b"d", b"e", b"f", flags=OOB))
    assert (added, told(early)) == (3, [(1, [b"a"], OOB), (5, [b"e", b"f"], OOB)])


def test_before_a_stream_has_started_oob_messages_wait_for_their_turn():
    window, marks = RingBuffer(10), Marks()
    assert marks.accept(window, batch(1, b"a", flags=OOB), False) == (1, [])
    assert told(marks.split(1, window.remove_many(nullify=False))) == [(1, [b"a"], OOB)]


def test_a_sender_keeps_flags_until_its_messages_are_freed_and_skips_what_is_not_for_it():
    marks = Marks()
    marks.flags.update({2: OOB, 3: DONT_LOOPBACK})
    for _ in range(2):
        assert told(marks.split(1, [b"a", b"b", b"c", b"d"], True)) == [(1, [b"a"], 0),
                                                                        (2, [b"b"], OOB),
                                                                        (4, [b"d"], 0)]
    marks.forget(2)
    assert marks.flags == {3: DONT_LOOPBACK}
    marks.forget(7)
    assert len(marks) == 0


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 4), st.booleans()), max_size=40),
       st.integers(0, 2**64 - 1))
def test_whatever_comes_each_message_leaves_once(arrivals, offset):
    """Runs that overlap, repeat and overtake, with either kind of flags for each seqno,
    always the same for one seqno."""
    window, marks, out = RingBuffer(64, offset), Marks(), []

    def flags_of(seqno):
        return OOB if seqno % 3 == 0 else 0

    for start, length, _ in [*arrivals, (1, 34, True)]:
        for number in range(start, min(start + length, 35)):
            seqno = (offset + number) % 2**64
            if flags_of(number):
                out += [(each.first, payload)
                        for each in marks.accept(window, batch(seqno, b"%d" % number, flags=OOB))[1]
                        for payload in each.payloads]
            else:
                window.add(seqno, b"%d" % number)
        first = (window.hd + 1) % 2**64
        for each in marks.split(first, window.remove_many(nullify=False)):
            out += [((each.first + step) % 2**64, payload) for step,
                    payload in enumerate(each.payloads)]
    assert sorted(int(payload) for _, payload in out) == list(range(1, 35))
    assert all((seqno - offset) % 2**64 == int(payload) for seqno, payload in out)
    in_order = [int(payload) for _, payload in out if int(payload) % 3]
    assert in_order == sorted(in_order) and len(marks) == 0
