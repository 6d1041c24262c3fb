"""AckTable: who is last decides what may be purged."""

import pytest

from ringcast._core.ack_table import AckTable


def test_the_minimum_advances_only_with_the_slowest():
    acks = AckTable("ABC")
    assert not acks.ack("A", 5) and not acks.ack("B", 3)
    assert acks.minimum == 0 and acks.slowest == "C"
    assert acks.ack("C", 4) and acks.minimum == 3 and acks.slowest == "B"
    assert acks.items() == [("A", 5), ("B", 3), ("C", 4)]


def test_an_ack_never_moves_back_and_a_repeated_one_advances_nothing():
    acks = AckTable("A", 10)
    assert acks.ack("A", 12)
    assert not acks.ack("A", 12) and not acks.ack("A", 11) and not acks.ack("A", 2**63 + 13)
    assert acks.get("A") == acks.minimum == 12


def test_decision_12_an_ack_of_a_stranger_is_ignored():
    acks = AckTable("A")
    assert not acks.ack("stranger", 7)
    assert len(acks) == 1 and "stranger" not in acks and acks.get("stranger") is None


def test_decision_12_the_minimum_is_taken_again_without_the_leaver():
    acks = AckTable("AB")
    acks.ack("A", 9)
    assert acks.remove("B") and acks.minimum == 9
    assert not acks.remove("B") and not acks.remove("A")
    assert acks.minimum is None and acks.slowest is None and len(acks) == 0


def test_a_member_added_twice_keeps_its_ack():
    acks = AckTable()
    assert acks.minimum is None
    acks.add("A", 4)
    acks.ack("A", 6)
    acks.add("A", 1)
    assert acks.minimum == 6
    acks.add("B", 5)
    assert acks.minimum == 5 and acks.ack("B", 6) and acks.minimum == 6


@pytest.mark.parametrize("start", [2**63 - 2, 2**64 - 2])
def test_acks_compare_by_serial_arithmetic(start):
    acks = AckTable("AB", start)
    assert not acks.ack("A", (start + 5) % 2**64)
    assert acks.ack("B", (start + 3) % 2**64) and acks.minimum == (start + 3) % 2**64
    assert not acks.ack("B", start)


@pytest.mark.parametrize("call, error", [
    (lambda acks: acks.ack("A", -1), ValueError), (lambda acks: acks.add("B", 2**64), ValueError),
    (lambda acks: acks.ack("A", "1"), TypeError), (lambda acks: acks.ack([], 1), TypeError),
    (lambda acks: AckTable("A", -1), ValueError), (lambda acks: AckTable(5), TypeError),
])
def test_misuse_raises_and_changes_nothing(call, error):
    acks = AckTable("A", 3)
    with pytest.raises(error):
        call(acks)
    assert acks.items() == [("A", 3)]
