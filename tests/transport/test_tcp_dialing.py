"""Which addresses are dialed when: no socket, and the test says what time it is."""

import pytest

from ringcast.transport.tcp.dialing import (
    FOREVER,
    MOST_DIALS,
    REDIAL_LAST,
    SEEK_FIRST,
    SEEK_LAST,
    Dialing,
)
from ringcast.transport.tcp.link import Link

OWN = ("127.0.0.1", 1)


def places(count):
    return [("127.0.0.2", 1 + number) for number in range(count)]


@pytest.fixture
def dialing():
    return Dialing(1, OWN, [])


def dials(dialing, until, most=1000):
    """Let the time pass; the instants and places of all dials of sought places."""
    now, made = 0, []
    while now <= until:
        made += [(now, where) for where in dialing.due_places(now, most)]
        assert dialing.deadline() > now
        now = dialing.deadline()
    return made


def test_a_place_is_dialed_at_once_and_then_with_a_backoff(dialing):
    dialing.seek(places(1))
    assert dialing.deadline() == 0
    instants = [now for now, _ in dials(dialing, 100 * SEEK_LAST)]
    pauses = [after - before for before, after in zip(instants, instants[1:], strict=False)]
    assert instants[0] == 0 and SEEK_FIRST * 3 // 4 <= pauses[0] <= SEEK_FIRST * 5 // 4
    assert all(SEEK_LAST * 3 // 4 <= pause <= SEEK_LAST * 5 // 4 for pause in pauses[10:])
    assert all(pause < 4 * before for before, pause in zip(pauses, pauses[1:], strict=False))


def test_a_place_that_stays_in_the_list_keeps_its_backoff_and_a_new_one_is_dialed_at_once(dialing):
    one, two = places(2)
    dialing.seek([one])
    for instant in dials(dialing, 10 * SEEK_LAST):
        last = instant[0]
    dialing.seek([one, two, OWN])
    assert dialing.due_places(last + 1, 1000) == [two]


def test_all_places_get_their_turn_if_only_few_may_be_dialed_at_a_time(dialing):
    dialing.seek(places(100))
    made = dials(dialing, 10 * SEEK_LAST, most=3)
    assert {where for _, where in made[:100]} == set(places(100))
    assert dialing.due_places(1 << 60, 0) == []


def test_a_place_where_a_member_has_a_link_is_left_alone_until_the_link_ends(dialing):
    where, = places(1)
    dialing.seek([where])
    dials(dialing, 10 * SEEK_LAST)
    dialing.on_answer(where, 2)
    dialing.peer(2).link = Link.__new__(Link)
    dialing.peer(2).link.is_up = True
    now = 100 * SEEK_LAST
    assert dialing.due_places(now, 1000) == [] and dialing.deadline() == FOREVER
    dialing.peer(2).link = None
    dialing.on_link_lost(2, now)
    assert dialing.due_places(now, 1000) == [where]


def test_what_was_found_at_places_that_are_sought_no_more_is_forgotten(dialing):
    for round_number in range(10):
        found = [("127.0.0.3", 1 + round_number * 10 + number) for number in range(10)]
        dialing.seek(found)
        for where in found:
            dialing.on_answer(where, 7)
    assert len(dialing._found_at) == 10


def test_all_candidates_get_their_turn_if_only_few_may_be_dialed_at_a_time():
    dialing, now, dialed = Dialing(1, OWN, places(100)), 0, []
    for _ in range(10):
        dialed += dialing.due_candidates(now, 10)
        now = dialing.deadline()
    assert sorted(dialed) == sorted(places(100))


def test_all_members_get_their_turn_though_few_find_room_at_a_time(dialing):
    others = [("127.0.0.3", 1 + number) for number in range(MOST_DIALS - 8)]
    dialing.set_routes(dict(enumerate(places(80), 2)))
    now, dialed = 0, []
    for _ in range(10):
        dialed += dialing.due_members(now, others)
        assert dialing.lacks_room and dialing.deadline() == FOREVER
        now += 2 * REDIAL_LAST
    assert sorted(dialed) == sorted(places(80))


def test_a_connection_for_control_that_carries_nothing_is_dialed_with_a_backoff(dialing):
    where, = places(1)
    now, instants = 0, []
    for _ in range(10):
        dialing.want_control(2, where)
        now = max(now, dialing.deadline())
        assert dialing.due_controls(now) == [(2, where)]
        instants.append(now)
        dialing.on_control(2)                           # and it ends at once
    pauses = [after - before for before, after in zip(instants, instants[1:], strict=False)]
    assert pauses[0] > 0 and pauses[-1] > 4 * pauses[0]
    dialing.want_control(2, where, has_carried=True)
    assert dialing.due_controls(now) == [(2, where)]


def test_a_new_link_has_its_connection_for_control_dialed_at_once(dialing):
    where, = places(1)
    for now in (0, 1):
        dialing.want_control(2, where)
        assert dialing.due_controls(now) == [(2, where)]
        dialing.on_link_lost(2, now)
