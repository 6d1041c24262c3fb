"""What a receiver asks for, and when; what a sender repeats of it, and how much."""

import itertools
from itertools import chain

import msgspec
import pytest
from hypothesis import example, given, strategies as st

from ringcast._core import wire
from ringcast._core.send_window import SendWindow
from ringcast._core.seqno_table import SeqnoTable
from ringcast.address import EVERYONE
from ringcast.protocols.multicast.base import XmitReq
from ringcast.protocols.retransmission import (
    MAX_PATIENCE,
    MAX_RANGES,
    MOST_LOOKED,
    MOST_NOTED,
    SHARES,
    Ask,
    Gaps,
    Pace,
    Quota,
    Requests,
    Tail,
    between,
    requests,
    split,
)
from ringcast.protocols.seqnos import MODULUS, count, in_two, united, without
from ringcast.protocols.unicast3 import control

SEQNO = st.integers(0, MODULUS - 1)
PREFIX = wire.make_header(2, 1, 1, 2)


def receiver(base=0, looks=1):
    ring = SeqnoTable(base, capacity=10_000)
    return ring, Gaps(ring.hr, looks)


def arrive(ring, *seqnos):
    for seqno in seqnos:
        assert ring.add(seqno % MODULUS, b"x")
    ring.remove_many()


# -- Asking
# --------------------------------------------------------------------------------------------------

@given(SEQNO)
def test_a_lost_repeat_is_asked_for_again_although_other_things_come(base):
    """At each scan another message is lost, and its repeat comes; only that of the
    first never does."""
    ring, gaps = receiver(base)
    asked = []
    for scan in range(20):
        number = base + 2 * scan
        arrive(ring, number + 2)                                # the one before it is lost
        ranges = gaps.scan(ring)
        asked += [scan for first, _ in ranges if first == (base + 1) % MODULUS]
        for first, last in ranges:
            if first != (base + 1) % MODULUS:
                arrive(ring,
                       *(seqno for seqno in range(first, first + (last - first) % MODULUS + 1)))
    assert len(asked) >= 5, asked


def test_a_gap_is_asked_for_at_the_second_look_and_not_while_its_repeat_is_on_the_way():
    ring, gaps = receiver()
    arrive(ring, 1, 3)
    assert [gaps.scan(ring) for _ in range(4)] == [[], [(2, 2)], [], [(2, 2)]]


def test_within_an_interval_the_wait_doubles_only_every_second_time():
    ring, gaps = receiver(looks=12)
    for seqno in range(1, 40, 2):                       # repeats come within one look
        arrive(ring, seqno + 1)
        assert [gaps.scan(ring) for _ in range(2)] == [[], [(seqno, seqno)]]
        arrive(ring, seqno)
    arrive(ring, 42)
    asked = [scan for scan in range(100) if gaps.scan(ring)]
    assert [after - before for before, after in itertools.pairwise(asked)] == [
        2, 2, 4, 4, 8, 8, 16, 32]


def looked(tail, ring, gaps, was_emptied=True):
    """Look for a tail; return whether it is over, and how much is missing."""
    return tail.is_over(ring, gaps, was_emptied), ring.num_missing


@given(SEQNO)
def test_announced_messages_are_not_missing_as_long_as_they_come(base):
    """STABILITY overtakes 1000 messages, of which each look sees 100."""
    ring, gaps = receiver(base)
    tail = Tail((base + 1000) % MODULUS)
    for look in range(10):
        assert looked(tail, ring, gaps) == (False, 0)
        arrive(ring, *range(base + 100 * look + 1, base + 100 * look + 101))
    assert looked(tail, ring, gaps) == (True, 0)


@given(SEQNO)
def test_a_lost_tail_is_asked_for_at_the_second_look(base):
    ring, gaps = receiver(base)
    arrive(ring, base + 2)                              # the first is lost, and so are the last two
    tail = Tail((base + 4) % MODULUS)
    assert looked(tail, ring, gaps) == (False, 1) and gaps.scan(ring) == []
    assert looked(tail, ring, gaps) == (True, 3)
    assert gaps.scan(ring) == [((base + 1) % MODULUS,) * 2,
                               ((base + 3) % MODULUS, (base + 4) % MODULUS)]


def test_announced_messages_may_wait_in_a_socket_that_was_not_empty_since():
    ring, gaps = receiver()
    tail = Tail(10)
    assert [looked(tail, ring, gaps, False) for _ in range(8)] == [(False, 0)] * 8
    assert looked(tail, ring, gaps) == (True, 10)


def test_a_socket_that_is_never_empty_keeps_a_lost_tail_for_so_many_looks_only():
    ring, gaps = receiver(looks=3)
    tail, looks = Tail(10), 1
    while not tail.is_over(ring, gaps, False):
        looks += 1
    assert looks == 3 * MAX_PATIENCE + 1 and ring.num_missing == 10


def test_a_gap_in_what_was_announced_is_asked_for():
    ring, gaps = receiver()
    ring.announce(10)
    assert gaps.scan(ring) == []
    arrive(ring, 1, 3)
    assert gaps.scan(ring) == [(2, 2), (4, 10)]


def test_of_a_gap_that_was_asked_for_only_the_new_part_is():
    ring, gaps = receiver()
    arrive(ring, 1, 5)
    assert [gaps.scan(ring) for _ in range(2)] == [[], [(2, 4)]]
    arrive(ring, 3, 9)
    assert [gaps.scan(ring) for _ in range(3)] == [[], [(6, 8)], [(2, 2), (4, 4)]]


def test_on_a_long_way_a_repeat_is_waited_for_as_long_as_repeats_take():
    """Repeats take 10 scans; when that is learned, each gap is asked for once."""
    ring, gaps = receiver()
    coming, asked = {}, []
    for scan in range(600):
        arrive(ring, *coming.pop(scan, ()))
        if scan % 5 == 0:
            arrive(ring, 2 * scan // 5 + 2)                     # the one before it is lost
        for first, last in gaps.scan(ring):
            for seqno in range(first, last + 1):
                if seqno not in asked:
                    coming.setdefault(scan + 10, []).append(seqno)
                asked.append(seqno)
    late = asked[len(asked) // 2:]
    assert len(late) == len(set(late)) > 20


def test_who_never_answers_is_asked_ever_more_rarely():
    ring, gaps = receiver()
    arrive(ring, 2)
    scans = [scan for scan in range(1000) if gaps.scan(ring)]
    assert scans[:4] == [1, 3, 7, 15]
    assert {later - earlier for earlier, later in zip(scans[5:], scans[6:], strict=False)} == {
        MAX_PATIENCE}


def scans_of(gaps, ring, count):
    """Return at which of the next scans something is asked for, and what."""
    return [(scan, ranges) for scan in range(1, count + 1) if (ranges := gaps.scan(ring))]


def late(ring, gaps, seqno):
    """A message comes that nobody has repeated."""
    arrive(ring, seqno)
    gaps.note_late(seqno)


@pytest.mark.parametrize("waits", range(6))
def test_where_messages_come_late_a_gap_is_asked_for_later(waits):
    """Message 2 comes so many scans after 3; then 5 does not come at all."""
    ring, gaps = receiver(looks=12)
    arrive(ring, 1, 3)
    for _ in range(waits):
        gaps.scan(ring)
    late(ring, gaps, 2)
    arrive(ring, 4, 6)
    assert scans_of(gaps, ring, 10)[0] == (max(waits, 1) + 1, [(5, 5)])


def test_the_allowance_has_a_limit_and_falls_while_all_comes_in_order():
    ring, gaps = receiver(looks=12)
    arrive(ring, 1, 3)
    for _ in range(100):
        gaps.scan(ring)
    late(ring, gaps, 2)
    assert gaps.allowance == 24
    arrive(ring, 4, 6)                                          # a gap that stays
    for _ in range(24 * 12 * 64):
        gaps.scan(ring)
    assert gaps.allowance == 1


def test_what_was_asked_for_before_what_has_come_was_lost():
    """2 is asked for, then 4; 4 comes. However long repeats may take, 2 is asked for at
    once."""
    ring, gaps = receiver(looks=12)
    arrive(ring, 1, 3)
    assert gaps.scan(ring) == []
    arrive(ring, 5)
    assert gaps.scan(ring) == [(2, 2)]
    assert gaps.scan(ring) == [(4, 4)]
    arrive(ring, 4)
    assert gaps.scan(ring) == [(2, 2)] and gaps.patience.scans > 2


def learned():
    """A receiver that has learned that repeats take 8 scans or so."""
    ring, gaps = receiver(looks=12)
    for step in range(20):
        arrive(ring, 2 * step + 2)
        scans_of(gaps, ring, 1)
        assert scans_of(gaps, ring, 6 + step % 4) == [(1, [(2 * step + 1, 2 * step + 1)])]
        arrive(ring, 2 * step + 1)
    scans_of(gaps, ring, 1)
    assert 6 < gaps.patience.mean < 9 and gaps.patience.scans > gaps.patience.mean + 3
    return ring, gaps


def test_when_nothing_else_comes_a_repeat_is_waited_for_less_long():
    ring, gaps = learned()
    usual, short = gaps.patience.scans, gaps.patience.short
    arrive(ring, 42)
    first, second, third = (scan for scan, _ in scans_of(gaps, ring, 60)[:3])
    assert second - first == short < usual
    assert third - second >= usual                              # nobody seems to answer

    ring, gaps = learned()
    asked = []
    for scan in range(usual + 3):                               # other messages come
        arrive(ring, 42 + scan)
        asked += [scan for _ in scans_of(gaps, ring, 1)]
    assert asked[1] - asked[0] == usual


def ranges_of(seqnos, base):
    """Ascending ranges of these offsets from `base`."""
    ranges = []
    for offset in sorted(seqnos):
        if ranges and ranges[-1][1] == offset - 1:
            ranges[-1][1] = offset
        else:
            ranges.append([offset, offset])
    return [((base + first) % MODULUS, (base + last) % MODULUS) for first, last in ranges]


def seqnos_of(ranges, base):
    return [(first - base) % MODULUS + step for first, last in ranges
            for step in range((last - first) % MODULUS + 1)]


OFFSETS = st.sets(st.integers(1, 40))


@given(SEQNO, OFFSETS, OFFSETS)
def test_ranges_without_others(base, some, others):
    left = without(ranges_of(some, base), ranges_of(others, base), base)
    assert seqnos_of(left, base) == sorted(some - others)


@given(st.lists(st.tuples(SEQNO, SEQNO)), SEQNO, st.integers(-100, 100))
@example([(1, MODULUS // 2)], 28, -4)
def test_what_is_clipped_is_never_more_than_there_is(ranges, low, room):
    """Also where the end is before the begin: whoever repeats takes a step for each."""
    clipped = between(ranges, low, (low + room) % MODULUS)
    offsets = [((first - low) % MODULUS, (last - low) % MODULUS) for first, last in clipped]
    assert all(0 < first <= last <= room for first, last in offsets)


@given(SEQNO, OFFSETS, OFFSETS)
def test_what_is_missing_is_split_where_it_was_asked_for(base, missing, asked):
    asks = [Ask(first, last, number, number + 1) for number,
            (first, last) in enumerate(ranges_of(asked, base))]
    parts = split(ranges_of(missing, base), asks, base)
    assert seqnos_of([(part.first, part.last) for part in parts], base) == sorted(missing)
    for part in parts:
        for offset in seqnos_of([(part.first, part.last)], base):
            whole = [ask for ask in asks if offset in seqnos_of([(ask.first, ask.last)], base)]
            assert (part.at, part.times) == ((whole[0].at, whole[0].times) if whole else (0, 0))


@pytest.mark.parametrize("datagram", [512, 1472, 8972, 65_507])
def test_a_request_fits_a_datagram_whatever_the_seqnos(datagram):
    top = MODULUS - 1
    ranges = [(top, top)] * MAX_RANGES
    portions = requests(ranges, datagram)
    assert [each for portion in portions for each in portion] == ranges
    for portion in portions:
        for body in (XmitReq(portion), control.XmitReq(top, portion, top)):
            assert wire.HEADER_SIZE + len(msgspec.msgpack.encode(body)) <= datagram


# -- Repeating
# --------------------------------------------------------------------------------------------------

INTERVAL = 18


def sender(messages=1000, size=100):
    """A window that is full, and its pace."""
    window = SendWindow(SeqnoTable(0, capacity=messages, max_bytes=messages * size), bundle=1472)
    window.push_many([bytes(size)] * messages)
    while window.ring.hr < messages:
        window.push_many([bytes(size)] * (messages - window.ring.hr))
    window.frame(PREFIX)
    return window, Pace()


def test_nothing_is_repeated_twice_to_the_same_in_a_sixth_of_an_interval():
    window, pace = sender()
    assert [pace.pack(window, [(1, 10)], PREFIX, INTERVAL, now)[1] for now in (10, 11, 12, 13)] == [
        10, 0, 0, 10]
    assert pace.pack(window, [(5, 15)], PREFIX, INTERVAL, 14)[1] == 5
    other = wire.make_header(2, 1, 1, 3)
    assert pace.pack(window, [(1, 10)], other, INTERVAL, 14)[1] == 10


def test_while_nothing_is_acknowledged_an_interval_repeats_a_part_of_the_window():
    window, pace = sender()
    repeated = [pace.pack(window, [(1, 1000)], PREFIX, INTERVAL, now)[1]
                for now in range(10, 1990, INTERVAL)]
    assert 900 <= repeated[0] <= 1000
    assert 0 < max(repeated[10:]) <= 1000 // SHARES + 2 * window.bundle // 100
    assert sum(repeated[1:]) <= 110 * (1000 // SHARES + window.bundle // 100)


def test_while_nobody_asks_the_bucket_fills():
    """Who has waited long for repeats asks seldom. If each request brought a share of
    one interval alone, a slow line would take minutes to mend a window."""
    window, pace = sender()
    for now in range(10, 1990, INTERVAL):
        pace.pack(window, [(1, 1000)], PREFIX, INTERVAL, now)
    repeated = pace.pack(window, [(1, 1000)], PREFIX, INTERVAL, now + SHARES // 2 * INTERVAL)[1]
    assert 450 <= repeated <= 550 + window.bundle // 100
    assert 900 <= pace.pack(window, [(1, 1000)], PREFIX, INTERVAL, now + 999 * INTERVAL)[1] <= 1000


def test_what_is_acknowledged_may_be_repeated():
    window, pace = sender()
    for now in range(10, 600, INTERVAL):
        pace.pack(window, [(1, 1000)], PREFIX, INTERVAL, now)
    window.acknowledged(500)
    assert 450 <= pace.pack(window, [(501, 1000)], PREFIX, INTERVAL, 600)[1] <= 500


def test_a_storm_of_requests_costs_what_a_few_do():
    window, pace = sender()
    few, many = 0, 0
    for now in range(10, 18_010):
        many += pace.pack(window, [(1, 1000)], PREFIX, INTERVAL, now)[1]
    other = Pace()
    for now in range(10, 18_010, INTERVAL):
        few += other.pack(window, [(1, 1000)], PREFIX, INTERVAL, now)[1]
    assert count([(1, 1000)]) < few and many <= few * 1.05


def test_what_a_paced_sender_left_out_is_asked_for_again_when_it_stops():
    """However long the patience has become: its repeats come, only not all of them at
    once."""
    ring, gaps = SeqnoTable(0), Gaps(0)
    ring.announce(100)
    assert [ranges for _ in range(5) if (ranges := gaps.scan(ring))] == [[(1, 100)]] * 2
    gaps.patience.scans = 32                    # nothing came for long
    ring.add(1, b"")
    ring.remove()
    assert [ranges for _ in range(4) if (ranges := gaps.scan(ring))] == [[(2, 100)]]


# -- Who is sent what was asked for
# --------------------------------------------------------------------------------------------------

B, C, D, PERIOD = 1, 2, 3, 1000


def ask(requests, base, now, **wanted):
    """Let members ask in one turn for ranges, counted from `base`; return the answers,
    counted so as well."""
    for name, ranges in wanted.items():
        requests.add({"B": B, "C": C, "D": D}[name], [
            ((base + first) % MODULUS, (base + last) % MODULUS) for first, last in ranges])
    return {dest: [((first - base) % MODULUS, (last - base) % MODULUS) for first, last in ranges]
            for dest, ranges in requests.take(base, now, PERIOD).items()}


@given(SEQNO)
def test_what_is_asked_for_twice_goes_to_everybody_and_the_rest_to_who_asks(base):
    requests = Requests()
    assert ask(requests, base, 0, B=[(1, 5)]) == {B: [(1, 5)]}
    assert ask(requests, base, 10, C=[(5, 9)]) == {EVERYONE: [(5, 5)], C: [(6, 9)]}
    assert ask(requests, base, 20, B=[(20, 22)], D=[(22, 29)]) == {
        EVERYONE: [(22, 22)], B: [(20, 21)], D: [(23, 29)]}


@given(SEQNO)
def test_what_went_to_everybody_is_on_its_way_to_who_asks_for_the_first_time(base):
    requests = Requests()
    ask(requests, base, 0, B=[(1, 90)])
    assert ask(requests, base, 1, C=[(5, 5)]) == {EVERYONE: [(5, 5)]}
    assert ask(requests, base, 2, D=[(5, 6)]) == {EVERYONE: [(6, 6)]}
    assert ask(requests, base, 3, D=[(5, 6)]) == {EVERYONE: [(5, 6)]}, "it asks again: it was lost"


def test_where_most_is_missed_by_several_everything_goes_to_everybody():
    requests = Requests()
    ask(requests, 0, 0, B=[(1, 10)])
    ask(requests, 0, 1, C=[(1, 10)])
    assert ask(requests, 0, 2, B=[(11, 11)]) == {EVERYONE: [(11, 11)]}
    for step in range(12, 40):
        answers = ask(requests, 0, 3, B=[(step, step)])
    assert answers == {B: [(39, 39)]}, "nobody else asks any more"


def test_what_was_asked_for_long_ago_is_forgotten():
    requests = Requests()
    ask(requests, 0, PERIOD, B=[(1, 5)], C=[(7, 90)])
    assert ask(requests, 0, 2 * PERIOD, D=[(1, 1)]) == {EVERYONE: [(1, 1)]}
    assert ask(requests, 0, 4 * PERIOD, C=[(1, 1)]) == {C: [(1, 1)]}


def test_a_member_that_asks_for_much_is_not_remembered_without_bound():
    requests = Requests()
    for now in range(10):
        start = 10_000 * now
        ask(requests, 0, now, B=[(start + 2 * k, start + 2 * k) for k in range(1, 2000)])
    assert sum(map(len, requests.lately.values())) <= 2 * MAX_RANGES


def test_many_members_that_ask_for_much_are_not_remembered_without_bound():
    requests = Requests()
    for member in range(1, 257):
        requests.add(member, [(2 * k, 2 * k) for k in range(1, 2000)])
    requests.take(0, 0, PERIOD)
    assert sum(map(len, requests.lately.values())) == MOST_NOTED


def test_of_many_that_ask_for_much_in_one_turn_each_has_its_part():
    quota, ranges, everybody = Quota(), [(1, 1)] * MAX_RANGES, range(256)
    taken = [len(quota.take(member, ranges, 256, now=1)) for member in everybody]
    assert taken == [MAX_RANGES] * 2 + [MOST_LOOKED // 256] * 254
    assert not any(quota.take(member, ranges, 256, now=1) for member in everybody)
    assert len(quota.take(9, ranges, 256, now=2)) == MAX_RANGES


@given(SEQNO, st.lists(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 9)), max_size=4)))
def test_what_is_in_two_lists_is_in_more_than_one(base, lists):
    def at(steps):
        return (base + steps) % MODULUS

    ranges = [united([(at(first), at(first + more)) for first, more in each], base)
              for each in lists]
    found = in_two(ranges, base)
    assert found == united(found, base)
    for step in range(1, 80):
        one = [(at(step), at(step))]
        times = sum(not without(one, each, base) for each in ranges)
        assert (not without(one, found, base)) == (times > 1)


ASKED = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 9)), max_size=4)


@given(SEQNO, st.lists(st.tuples(st.integers(0, 700), ASKED, ASKED, ASKED), max_size=12))
def test_who_asks_again_is_always_answered_and_nothing_else_is_sent(start, turns):
    """A first request may be left out, if that went to everybody shortly before."""
    requests, now = Requests(), 0
    told, asked = [], []                                        # (when, whose, ranges)
    for low, (pause, *all_wanted) in enumerate(turns):          # the window moves on
        now += pause
        wanted = {name: [(first, first + more) for first, more in ranges]
                  for name, ranges in zip("BCD", all_wanted, strict=True)}
        answers = ask(requests, (start + low) % MODULUS, now, **wanted)
        everybody = answers.get(EVERYONE, [])
        assert not without(everybody, united(chain(*wanted.values()), 0), 0)
        for name, member in (("B", B), ("C", C), ("D", D)):
            alone, due = answers.get(member, []), united(wanted[name], 0)
            assert not without(alone, due, 0) and without(alone, everybody, 0) == alone
            left_out = without(due, united([*everybody, *alone], 0), 0)
            assert not without(left_out, lately(told, EVERYONE, low, now - 3 * PERIOD), 0)
            again = lately(asked, member, low, now - PERIOD)
            assert without(left_out, again, 0) == left_out
            asked.append((now, member, [(first + low, last + low) for first, last in due]))
        told.append((now, EVERYONE, [(first + low, last + low) for first, last in everybody]))


def lately(noted, member, low, since):
    """What was noted of a member after `since`, counted from `low`."""
    return united([(max(1, first - low), last - low) for when, whose, ranges in noted
                   if whose == member and when > since
                   for first, last in ranges if last > low], 0)
