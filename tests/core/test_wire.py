"""Datagrams <-> bytes: what is packed is read back, and whatever is damaged is either
understood or refused as a whole."""

import struct
import tracemalloc
from array import array
from itertools import combinations

import pytest
from hypothesis import example, given, strategies as st

from ringcast._core import wire
from ringcast._core.batch import Batch
from ringcast._core.marks import Marks
from ringcast._core.ring_buffer import RingBuffer
from ringcast._core.send_window import SendWindow
from ringcast._core.seqno_table import SeqnoTable
from ringcast._core.stamps import Stamps
from ringcast._core.wire_trace import list_runs, runs_of

GROUP = 0xABCD1234
HEADER = wire.make_header(1, GROUP, 77, 0)


def ring_of(payloads, offset=0):
    ring = RingBuffer(max(1, len(payloads)), offset)
    ring.add_many((offset + 1) % 2**64, list(payloads))
    return ring


def pack(payloads, limit=60_000, offset=0, ranges=None):
    ring = ring_of(payloads, offset)
    ranges = ranges or [((ring.low + 1) % 2**64, ring.hr)]
    return wire.pack(ring, Marks(), Stamps(), ranges, limit, HEADER, 1 << 30)


def messages(datagram, low=0, capacity=1 << 20):
    arrivals = wire.read_data(datagram, low, capacity)
    return {batch.first + k: payload for batch in arrivals.batches for k,
            payload in enumerate(batch.payloads)}


def run(first, *payloads, count=None, size=None, flags=0, sent_at=0):
    count = len(payloads) if count is None else count
    size = sum(map(len, payloads)) if size is None else size
    lengths = b"".join(struct.pack("<H", len(payload)) for payload in payloads)
    return struct.pack("<QHHIq", first, count, flags, size, sent_at) + lengths + b"".join(payloads)


def test_a_header_is_read_back():
    opened = wire.open_datagram(wire.make_datagram(6, GROUP, 2**64 - 1, 42, b"body"), GROUP)
    assert (opened.kind, opened.sender, opened.dest) == (6, 2**64 - 1, 42)


@pytest.mark.parametrize("datagram", [b"", b"x", bytes(32), bytes(1000), HEADER,
                                      wire.make_datagram(1, GROUP + 1, 77, 0, b"")],
                         ids=["empty", "one byte", "zeros", "many zeros", "no check",
                              "other group"])
def test_what_is_not_ours_has_no_header(datagram):
    assert wire.open_datagram(datagram, GROUP) is None


def test_a_datagram_of_another_group_is_foreign_whatever_its_check():
    foreign = bytearray(wire.make_datagram(1, GROUP + 1, 77, 0, b"body"))
    assert wire.is_foreign(foreign, GROUP) and not wire.is_foreign(foreign, GROUP + 1)
    foreign[-1] ^= 1
    assert wire.is_foreign(foreign, GROUP)
    assert not wire.is_foreign(foreign[:wire.HEADER_SIZE - 1], GROUP)
    for damaged in (0, 1, 2):                           # magic and version
        assert not wire.is_foreign(foreign[:damaged] + b"\xff" + foreign[damaged + 1:], GROUP)


@pytest.mark.parametrize("dest", [0, 5])
@pytest.mark.parametrize("body", [bytes(200), *(bytes(range(size)) for size in (
    0, 1, 7, 8, 15, 16, 17, 31, 32, 63, 64, 65, 100))], ids=lambda body: f"{sum(body)}")
def test_every_flipped_bit_and_every_truncation_is_found(body, dest):
    datagram = wire.make_datagram(3, GROUP, 77, dest, body)
    assert wire.open_datagram(datagram, GROUP) is not None
    for bit in range(len(datagram) * 8):
        damaged = bytearray(datagram)
        damaged[bit // 8] ^= 1 << bit % 8
        assert wire.open_datagram(damaged, GROUP) is None
    for shorter in range(len(datagram)):
        assert wire.open_datagram(datagram[:shorter], GROUP) is None
    assert wire.open_datagram(datagram + b"\0", GROUP) is None


def test_every_two_flipped_bits_are_found():
    datagram = wire.make_datagram(3, GROUP, 77, 5, bytes(range(48)))
    number = int.from_bytes(datagram, "little")
    for one, other in combinations(range(len(datagram) * 8), 2):
        damaged = (number ^ 1 << one ^ 1 << other).to_bytes(len(datagram), "little")
        assert wire.open_datagram(damaged, GROUP) is None, (one, other)


@given(st.binary(max_size=300), st.binary(min_size=1, max_size=300), st.data())
def test_damage_of_any_shape_is_found(body, noise, data):
    datagram = bytearray(wire.make_datagram(3, GROUP, 77, 5, body))
    at = data.draw(st.integers(0, len(datagram) - 1))
    damaged = datagram[:at] + noise + datagram[at + len(noise):]
    assert damaged == datagram or wire.open_datagram(damaged, GROUP) is None


def test_in_a_sealed_group_datagrams_have_no_check_and_no_other_group_takes_them():
    unchecked = wire.make_datagram(3, GROUP, 77, 5, b"body", checked=False)
    checked = wire.make_datagram(3, GROUP, 77, 5, b"body")
    opened = wire.open_datagram(unchecked, GROUP, checked=False)
    assert (opened.kind, opened.sender, opened.dest) == (3, 77, 5)
    assert unchecked[24:32] == bytes(8) and unchecked[32:] == b"body"
    assert wire.open_datagram(checked, GROUP, checked=False) is None
    for version in range(256):
        forged = unchecked[:2] + bytes([version]) + unchecked[3:]
        assert wire.open_datagram(forged, GROUP) is None
    assert wire.is_foreign(unchecked, GROUP + 1, checked=False)
    assert not wire.is_foreign(unchecked, GROUP + 1)


def test_packed_datagrams_carry_their_check():
    small, large = [b"x" * k for k in range(0, 300, 7)], [bytes(3000)]
    for datagram in pack(small, limit=1000)[0] + pack(large, limit=600)[0]:
        assert wire.open_datagram(datagram, GROUP) is not None


@example([b""], 100, 2**64 - 1)
@example([b"a", b"b"], 100, 2**64 - 2)
@given(st.lists(st.binary(max_size=300), min_size=1, max_size=200), st.integers(100, 4000),
       st.integers(0, 2**64 - 1))
def test_packed_messages_are_read_back_in_order(payloads, limit, offset):
    datagrams, count = pack(payloads, limit, offset)
    assert count == len(payloads)
    got = []
    for datagram in datagrams:
        arrivals = wire.read_data(datagram, offset, len(payloads))
        assert (arrivals.old, arrivals.beyond) == (0, 0)
        for batch in arrivals.batches:
            assert batch.first == (offset + 1 + len(got)) % 2**64
            got += batch.payloads
    assert got == payloads


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=100), st.integers(100, 4000))
def test_no_datagram_exceeds_the_limit_unless_one_message_alone_does(payloads, limit):
    for datagram in pack(payloads, limit)[0]:
        assert len(datagram) <= limit or len(messages(datagram)) == 1


def test_scattered_ranges_share_a_datagram():
    payloads = [b"%d" % k for k in range(1, 101)]
    ranges = [(k, k) for k in range(2, 101, 7)]
    datagrams, count = pack(payloads, ranges=ranges)
    assert len(datagrams) == 1 and count == len(ranges)
    assert messages(datagrams[0]) == {k: b"%d" % k for k, _ in ranges}


def test_what_is_purged_or_was_never_there_is_left_out(make):
    ring = make(20)
    for seqno in (1, 2, 3, 7, 9):
        ring.add(seqno, b"%d" % seqno)
    ring.remove_many(2)
    datagrams, count = wire.pack(ring, Marks(), Stamps(), [(1, 12)], 1000, HEADER, 1 << 30)
    assert count == 3 and messages(datagrams[0]) == {3: b"3", 7: b"7", 9: b"9"}


def test_packing_stops_at_the_budget():
    datagrams, count = wire.pack(ring_of([b"x" * 100] * 50), Marks(), Stamps(), [(1, 50)], 500,
                                 HEADER, 1200)
    assert 1200 <= sum(map(len, datagrams)) <= 1700
    assert count == sum(len(messages(datagram)) for datagram in datagrams) < 50


def test_the_largest_payload_fits_one_udp_datagram_behind_the_longest_prefix():
    ring = ring_of([bytes(wire.MAX_PAYLOAD)])
    datagrams, _ = wire.pack(ring, Marks(), Stamps(), [(1, 1)], 60_000, HEADER + bytes(8), 1 << 30)
    assert [len(datagram) for datagram in datagrams] == [wire.MAX_DATAGRAM] == [65_507]


@pytest.mark.parametrize(("first", "old", "inside", "beyond"), [
    (95, 3, 0, 0), (98, 3, 0, 0), (99, 2, 1, 0), (101, 0, 3, 0), (108, 0, 3, 0), (109, 0, 2, 1),
    (110, 0, 1, 2), (111, 0, 0, 3),
])
def test_decision_4_only_messages_above_low_and_up_to_low_plus_capacity_become_objects(first, old,
                                                                                       inside,
                                                                                       beyond):
    arrivals = wire.read_data(HEADER + run(first, b"a", b"b", b"c"), 100, 10)
    assert (arrivals.old, sum(map(len, arrivals.batches)), arrivals.beyond) == (old, inside, beyond)


def memory_of_reading(datagram, capacity):
    """Return how many bytes it takes to read this and to hold what was read, and
    that."""
    tracemalloc.start()
    try:
        read = wire.read_data(datagram, 0, capacity)
        return tracemalloc.get_traced_memory()[1], read
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("capacity", [8, 64, 1024, 32_768])
@pytest.mark.parametrize(("body", "of_each"), [
    (run(1, *[b""] * 32_700), 16), (run(1, *[b"xy"] * 16_300), 64),
    (b"".join(run(number, b"xy") for number in range(1, 2300)), 320)],
    ids=["empty", "small", "each for itself"])
def test_a_datagram_of_tiny_messages_takes_memory_for_those_that_are_in_the_window(body, of_each,
                                                                                  capacity):
    memory, read = memory_of_reading(HEADER + body, capacity)
    assert len(HEADER + body) > 64_000 and read.inside <= capacity
    assert memory <= 1000 + read.inside * of_each


def test_a_datagram_that_repeats_a_window_takes_a_few_times_its_size():
    datagram = HEADER + b"".join(run(1, *[b"xy"] * 8) for _ in range(1_100))
    memory, read = memory_of_reading(datagram, 8)
    assert read.inside == 8 * 1_100 and memory < 12 * len(datagram)


@pytest.mark.parametrize("body", [
    run(1, *[b""] * 30_000, count=65_535), run(1, *[b""] * 30_000, size=2**32 - 1),
    run(1, b"x" * 60_000, count=1, size=2**31), run(1, *[b"xy"] * 10_000, size=19_998)[:-2],
    run(1, count=10_000, size=10_000) + b"\xff" * 30_000, run(1, *[b""] * 30_000) + b"x"],
    ids=["count", "size", "size of one", "sum", "each", "rest"])
def test_a_datagram_whose_lengths_lie_takes_no_memory(body):
    memory, read = memory_of_reading(HEADER + body, 1 << 20)
    assert read is None and memory < 1000


@pytest.mark.parametrize("low", [2**63 - 2, 2**64 - 2, 2**64 - 1, 0])
def test_decision_6_seqnos_wrap(low):
    first = (low + 1) % 2**64
    arrivals = wire.read_data(HEADER + run(first, b"a", b"b", b"c", b"d"), low, 3)
    assert [batch.first for batch in arrivals.batches] == [first]
    assert (arrivals.old, arrivals.batches[0].payloads, arrivals.beyond) == (0, [b"a", b"b", b"c"],
                                                                             1)
    assert wire.read_data(HEADER + run(first, b"a"), (low + 1) % 2**64, 3).old == 1


@pytest.mark.parametrize("body", [
    b"", run(1), run(1, b"abc")[:-1], run(1, b"abc") + b"x", run(1, b"abc", size=2),
    run(1, b"abc", size=4), run(1, b"abc", count=2),
    run(1, b"abc", count=2**16 - 1), run(1, b"abc", size=2**32 - 1), run(1, b"abc", count=2**16 - 1,
                                                                         size=2**32 - 1),
    run(1, b"abc", count=2**15, size=2**31), run(1, b"abc") + run(4, b"x", size=9),
], ids=["no run", "empty run", "short", "trailing byte", "size too small", "size too big",
        "count too big", "largest count",
        "largest size", "both largest", "large size", "second run damaged"])
def test_a_damaged_body_is_refused_as_a_whole(body):
    assert wire.read_data(HEADER + body, 0, 100) is None


def test_every_truncation_is_refused():
    datagram = HEADER + run(1, b"abc", b"", b"defg") + run(9, b"x" * 40)
    whole = len(HEADER + run(1, b"abc", b"", b"defg"))
    for size in range(len(datagram)):
        assert (wire.read_data(datagram[:size], 0, 100) is None) == (size != whole)


@given(st.data())
def test_damaged_bytes_are_understood_or_refused_but_never_raise(data):
    datagram = bytearray(HEADER + run(1, b"abc", b"", b"defg") + run(9, b"x" * 40))
    for _ in range(data.draw(st.integers(1, 5))):
        datagram[data.draw(st.integers(0, len(datagram) - 1))] = data.draw(st.integers(0, 255))
    arrivals = wire.read_data(datagram, 0, 100)
    if arrivals is not None:
        assert sum(map(len, arrivals.batches)) <= 100


@given(st.binary(max_size=400))
def test_arbitrary_bytes_never_raise(junk):
    wire.open_datagram(junk, GROUP)
    wire.read_data(junk, 0, 100)
    wire.read_data(HEADER + junk, 2**64 - 5, 100)


def test_any_bytes_like_datagram_is_read():
    datagram = HEADER + run(1, b"abc")
    for view in (bytearray(datagram), memoryview(datagram), memoryview(b"zz" + datagram)[2:]):
        assert messages(view) == {1: b"abc"}


def test_a_run_carries_when_its_messages_left_their_sender():
    runs = run(5, b"a", b"b", sent_at=-7) + run(7, b"c", sent_at=2**63 - 1)
    batches = wire.read_data(HEADER + runs, 0, 100).batches
    assert [(batch.first, len(batch), batch.stamp) for batch in batches] == [(5, 2, -7),
                                                                             (7, 1, 2**63 - 1)]


def test_a_repeat_carries_the_times_of_the_first_sending():
    stamps = Stamps()
    stamps.fill(0, 1, 3, 100)
    stamps.fill(0, 4, 2, 200)
    (datagram,), count = wire.pack(ring_of([b"x"] * 6), Marks(), stamps, [(2, 6)], 60_000, HEADER,
                                   1 << 30)
    assert count == 5
    assert [(batch.first, batch.last,
             batch.stamp) for batch in wire.read_data(datagram, 0, 100).batches] == [
(2, 3, 100), (4, 5, 200), (6, 6, 0)]


def test_the_runs_of_a_datagram_are_listed_without_its_messages():
    window = SendWindow(SeqnoTable(0))
    window.push_many([b"a", b"bb", b"ccc"])
    window.push(b"o", 1)
    window.push(b"quiet", 2)
    window.push_many([b"f" * 20, b"g" * 30], 0, 8)
    (datagram,) = window.frame(wire.make_header(1, 7, 5, 0), now=77)
    runs = list_runs(datagram)
    assert [run[:5] for run in runs] == [(1, 3, 0, 6, 77), (4, 1, 1, 1, 77), (5, 1, 0, 5, 77),
                                         (6, 1, 8, 20, 77), (7, 1, 8, 30, 77)]
    assert [datagram[run[5]:run[5] + run[3]] for run in runs] == [b"abbccc", b"o", b"quiet",
                                                                  b"f" * 20, b"g" * 30]
    assert [run[2] for run in list_runs(datagram, wire.HEADER_SIZE, window.marks)] == [0, 1,
                                                                                            2, 8, 8]
    assert list_runs(datagram[:-1]) == list_runs(b"") == []
    assert list_runs(datagram, 10) == []


def test_a_batch_is_cut_where_its_send_times_change():
    times = array("q", [5, 5, 9]).tobytes()
    assert runs_of(Batch(None, 1, [b"a", b"bb", b"c"], sent_at=times)) == [(2, 3, 5),
                                                                                (1, 1, 9)]
    assert runs_of(Batch(None, 1, [b"a", b"bb"])) == [(2, 3, 0)]
    assert runs_of(Batch(None, 1, [])) == []


def read_all(*bodies, low=0, capacity=100, highest=0):
    return wire.read_all([HEADER + body for body in bodies], low, capacity, highest)


def test_datagrams_of_one_sender_are_read_together():
    arrivals = read_all(run(1, b"a"), run(2, b"b", b"c"), run(9, b"d"))
    assert [batch.first for batch in arrivals.batches] == [1, 2, 9]
    assert (arrivals.inside, arrivals.first, arrivals.late, arrivals.damaged) == (4, 1, [], 0)


def test_a_damaged_datagram_costs_the_others_nothing():
    arrivals = read_all(run(1, b"a"), run(2, b"b")[:-1], run(3, b"c"), b"")
    assert [batch.first for batch in arrivals.batches] == [1, 3]
    assert (arrivals.damaged, arrivals.late) == (2, [])


@pytest.mark.parametrize(("firsts", "highest", "late"), [
    ([4, 2, 6], 3, [2]), ([1, 2, 3], 3, [1, 2, 3]), ([5, 4, 5], 3, [4, 5]), ([4, 5], 3, []),
])
def test_what_others_have_overtaken_is_late(firsts, highest, late):
    assert read_all(*(run(first, b"x") for first in firsts), highest=highest).late == late


def test_a_datagram_that_reaches_beyond_what_came_is_not_late():
    assert read_all(run(2, b"a", b"b", b"c"), highest=3).late == []


def test_lateness_wraps():
    highest = 2**64 - 1
    arrivals = read_all(run(2**64 - 2, b"a"), run(0, b"b"), low=2**64 - 10, highest=highest)
    assert (arrivals.late, arrivals.first) == ([2**64 - 2], 2**64 - 2)


def test_messages_without_flags_go_into_the_window_with_their_times():
    arrivals = read_all(run(1, b"a", b"b", sent_at=7), run(3, b"c", flags=1), run(2, b"x"))
    ring, stamps = RingBuffer(16, 0), Stamps()
    assert arrivals.put(ring, stamps) == 2
    assert [ring.get(seqno) for seqno in (1, 2, 3)] == [b"a", b"b", None]
    assert [batch.first for batch in arrivals.batches] == [3]
    assert stamps.take(1, 1) == (7).to_bytes(8, "little")
