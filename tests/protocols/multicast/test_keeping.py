"""Say what each member has of a departed sender, and what the parts have together."""

from types import SimpleNamespace

from ringcast import Address, Digest
from ringcast.protocols.multicast.flush import Agreed
from ringcast.protocols.multicast.keeping import (
    MOST_PARTS,
    SPARES,
    Keeping,
    Part,
    next_part,
    outermost,
    reach,
)
from ringcast.protocols.seqnos import MODULUS

WHOLE, BEGIN, MIDDLE, END = Part(1, 4, 9), Part(2, 4, 6), Part(3, 5, 8), Part(4, 8, 9)


def test_of_parts_that_are_in_another_one_a_few_are_told_behind_the_others():
    assert outermost([BEGIN, END, WHOLE, MIDDLE]) == [WHOLE, BEGIN, END, MIDDLE]
    assert outermost([BEGIN, MIDDLE, END]) == [BEGIN, MIDDLE, END]
    assert outermost([BEGIN, Part(7, 4, 6)]) == [BEGIN, Part(7, 4, 6)]
    assert outermost([WHOLE] * 20) == [WHOLE] * (1 + SPARES)
    assert outermost([Part(1, low, low + 9) for low in range(20)]) == [
        Part(1, low, low + 9) for low in range(MOST_PARTS)]


def test_who_gave_nothing_for_long_is_asked_only_if_nobody_else_has_what_follows():
    assert next_part([BEGIN, WHOLE], 4, {1}) == BEGIN
    assert next_part([BEGIN, WHOLE], 6, {1}) == next_part([BEGIN, WHOLE], 4, {1, 2}) == WHOLE


def test_the_part_that_has_the_next_and_the_most_is_asked():
    assert next_part([BEGIN, MIDDLE, END], 4) == BEGIN
    assert next_part([BEGIN, MIDDLE, END], 5) == MIDDLE
    assert next_part([BEGIN, MIDDLE, END], 8) == END
    assert next_part([BEGIN, MIDDLE, END], 3) is next_part([BEGIN, MIDDLE, END], 9) is None


def test_parts_reach_as_far_as_they_touch():
    assert reach([END, MIDDLE, BEGIN], 4) == 9
    assert reach([END, BEGIN], 4) == 6          # nobody has 7 and 8
    assert reach([BEGIN], 7) == 7
    assert reach([Part(1, MODULUS - 2, 3)], MODULUS - 1) == 3


def test_parts_all_around_the_circle_come_to_an_end():
    third = MODULUS // 3
    reach([Part(1, 0, third), Part(2, third, 2 * third), Part(3, 2 * third, 1)], 0)


def test_a_sender_is_asked_only_for_what_it_has_kept_for_us():
    keeping = Keeping(SimpleNamespace(local=Address("D", 4)), Digest())

    def is_kept(sender, place, **agreed):
        return keeping.is_kept(sender, place, Agreed({}, {}, frozenset(), **agreed))
    back, lows = frozenset({4}), {1: 5}
    assert is_kept(1, 5, back=back, lows=lows) and is_kept(1, 7, back=back, lows=lows)
    assert not is_kept(1, 4, back=back, lows=lows)      # it has freed the next one
    assert not is_kept(2, 5, back=back, lows=lows)      # nobody was absent for it
    assert not is_kept(1, 5, lows=lows)                 # it waited for others, and not for us
