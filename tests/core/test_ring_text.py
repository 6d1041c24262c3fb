"""Decision 1: the schedules that break the text's lock-free add, replayed against the
text and against ours."""

from text_ring import TextRing, Thread

from ringcast._core.ring_buffer import RingBuffer


def text_accepts_one_twice(ring):
    """The shortest counterexample (ring.md 1.2): two adders of a missing seqno and one
    remover."""
    t1, t2, t3 = Thread(ring.add(1)), Thread(ring.remove()), Thread(ring.add(1))
    t1.upto("#3 HD read again")          # T1: all checks passed, about to CAS
    t3.upto("#2 element read")           # T3: likewise, one check left
    first = t1.finish()                  # T1: CAS succeeds; HR = 1
    t2 = Thread(ring.remove())
    t2.upto("element read")              # T2: reads the element
    t3.upto("#3 HD read again")          # T3: HD is still 0
    t2.upto("#2 element nulled")         # T2: HD = 1, slot = null
    second = t3.finish()                 # T3: CAS succeeds on the slot that is empty again
    return first, second, t2.finish()


def test_the_text_accepts_one_seqno_twice():
    assert text_accepts_one_twice(TextRing(2)) == (True, True, 1)


def test_the_text_then_delivers_the_stale_element_in_place_of_another():
    ring = TextRing(2)
    text_accepts_one_twice(ring)
    assert Thread(ring.add(2)).finish() and Thread(ring.remove()).finish() == 2
    assert not Thread(ring.add(3)).finish()      # the real 3 is refused: its slot holds the stale 1
    assert Thread(ring.add(4)).finish()
    assert Thread(ring.remove()).finish() == 1       # 1 is delivered at position 3, and 3 is lost


def test_the_text_is_right_when_the_element_was_there_before_the_late_adder():
    ring = TextRing(2)
    assert Thread(ring.add(1)).finish()
    late, remover = Thread(ring.add(1)), Thread(ring.remove())
    late.upto("LOW read")
    assert remover.finish() == 1
    assert late.finish() is False


def test_decision_1_ours_refuses_the_late_adder_of_the_same_lap(native):
    ring, steps = RingBuffer(2), native.Steps
    assert steps.in_window(ring, 1)                  # T3: passed every test, about to claim
    assert ring.add(1, "T1")
    assert ring.remove() == "T1"
    assert not steps.claim(ring, 1)                  # T3: the claim word says that 1 was taken
    assert ring.missing() == [] and ring.remove() is None


def test_decision_1_ours_refuses_the_late_adder_after_a_whole_lap(native):
    for capacity in (1, 2, 31, 32, 33, 50):
        ring, steps = RingBuffer(capacity), native.Steps
        lap = 32 * (-(-capacity // 32) + 1)          # seqnos until a slot is used again
        assert steps.in_window(ring, 1)              # T3 passed the test, and sleeps
        for seqno in range(1, lap + 1):
            assert ring.add(seqno, seqno) and ring.remove() == seqno
        assert not steps.claim(ring, 1)              # T3 wakes: its block is of the next lap
        assert ring.add(lap + 1, "next lap") and ring.remove() == "next lap"
        assert (ring.low, ring.hr, len(ring)) == (lap + 1, lap + 1, 0)


def test_decision_1_a_claimed_slot_refuses_others_and_stops_the_remover_until_published(native):
    ring, steps = RingBuffer(8), native.Steps
    assert steps.claim(ring, 1)
    assert not ring.add(1, "duplicate") and ring.add(2, "second")
    assert ring.remove() is None and ring.get(1) is None
    assert ring.missing() == []                      # on its way in, so not to be asked for
    steps.publish(ring, 1, "first")
    assert ring.remove_many() == ["first", "second"]
