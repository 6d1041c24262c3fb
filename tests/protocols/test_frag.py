"""FRAG: whole or not at all."""

import random

import pytest

from ringcast._core import wire
from ringcast._core.ring_buffer import RingBuffer
from ringcast._core.send_window import SendWindow
from ringcast.address import Address
from ringcast.config import configure
from ringcast.endpoint import Fragments
from ringcast.errors import MessageTooLargeError
from ringcast.flags import FRAGMENT, Flag
from ringcast.protocols.frag import (
    HEAD,
    SMALLEST,
    Reassembly,
    begin_of,
    check_size,
    cut,
    goes_whole,
    rejoin,
    size_of,
)
from ringcast.protocols.stream import Stream

PAYLOAD = random.Random(1).randbytes(10_000)
MS = 1_000_000


def fed(reassembly, fragments, first=1, is_oob=False):
    return [whole for seqno, fragment in enumerate(fragments, first)
            if (whole := reassembly.add(seqno, fragment, is_oob, 0)) is not None]


@pytest.mark.parametrize("bundle", [512, 1500, 60_000])
@pytest.mark.parametrize("size", [1, 255, 256, 257, 9_999])
def test_a_message_is_the_same_after_it_was_cut(bundle, size):
    fragments = cut(PAYLOAD[:size], 7, bundle)
    assert all(len(fragment) + wire.MAX_DATAGRAM - wire.MAX_PAYLOAD <= max(bundle, 512)
               for fragment in fragments)
    assert fed(Reassembly(10_000, 1000), fragments) == [PAYLOAD[:size]]


@pytest.mark.parametrize("first", [1, 2**64 - 2])
def test_a_fragment_tells_where_its_message_begins_and_whether_it_is_the_last(first):
    fragments = cut(PAYLOAD[:5000], first, 1500)
    seqnos = [(first + index) % 2**64 for index in range(len(fragments))]
    assert [begin_of(seqno, fragment) for seqno, fragment in zip(seqnos, fragments, strict=True)
            ] == [(first, False)] * (len(fragments) - 1) + [(first, True)]


@pytest.mark.parametrize("fragment", [b"", bytes(HEAD.size), HEAD.pack(7, 2, 5) + b"x"], ids=[
    "empty", "head only", "something in between"])
def test_a_fragment_that_does_not_tell_it_is_no_reason_to_guess(fragment):
    assert begin_of(10, fragment) is None


def test_oob_fragments_may_come_in_any_order_and_of_several_messages():
    rng = random.Random(2)
    messages = [PAYLOAD[start:start + 3000] for start in (0, 3000, 6000)]
    fragments = [fragment for number, message in enumerate(messages)
                 for fragment in cut(message, number, 512)]
    rng.shuffle(fragments)
    assert sorted(fed(Reassembly(10_000, 10_000), fragments, is_oob=True)) == sorted(messages)


def test_a_fragment_of_the_next_message_says_that_the_one_before_was_given_up():
    one, two = cut(PAYLOAD, 1, 1500), cut(PAYLOAD[:5000], 2, 1500)
    reassembly = Reassembly(10_000, 1000)
    assert fed(reassembly, [*one[:3], *two, *one[3:]]) == [PAYLOAD[:5000]]
    assert reassembly.num_given_up == 1 and len(reassembly) == 0


@pytest.mark.parametrize("damage", [
    lambda parts: [b"", *parts], lambda parts: [parts[0][:HEAD.size], *parts],
    lambda parts: [parts[0], parts[0], *parts[1:]],
    lambda parts: parts[1:], lambda parts: [parts[0], HEAD.pack(1, 1, 99) + b"x", *parts[1:]],
    lambda parts: [HEAD.pack(1, 5, 3) + b"x"], lambda parts: [parts[0], parts[2], parts[1]],
    lambda parts: [HEAD.pack(1, 0, 2) + bytes(SMALLEST - 1), HEAD.pack(1, 1, 2) + b"x"],
], ids=["empty", "head only", "twice", "no beginning", "other count", "index beyond count",
        "out of order", "too small a part"])
def test_fragments_that_make_no_sense_never_make_a_wrong_message(damage):
    reassembly = Reassembly(10_000, 1000)
    assert fed(reassembly, damage(cut(PAYLOAD[:3000], 1, 1500))) in ([], [PAYLOAD[:3000]])
    assert reassembly.num_bad > 0


def test_a_message_has_the_seqno_of_its_last_fragment_whichever_completes_it():
    parts = cut(bytes(3000), 7, 1000)
    for order in ([0, 1, 2, 3], [3, 0, 1, 2], [1, 3, 2, 0]):
        reassembly = Reassembly(10_000, 10_000)
        assert [reassembly.add(20 + place, parts[place], True, 0) is not None
                for place in order] == [False, False, False, True]
        assert reassembly.last == 23


def test_the_rest_of_a_message_that_began_before_the_stream_is_put_together_once():
    parts = cut(bytes(range(200)) * 20, 7, 1000)
    rest = parts[2] + b"".join(part[HEAD.size:] for part in parts[3:])
    assert fed(Reassembly(10_000, 1000), parts[2:]) == []
    reassembly = Reassembly(10_000, 1000, may_begin_inside=True)
    assert fed(reassembly, [*parts[2:], *parts[2:]]) == [rest]
    assert reassembly.num_bad == len(parts) - 2 and not reassembly
    reassembly = Reassembly(10_000, 1000, may_begin_inside=True)
    assert fed(reassembly, [*parts, *parts[2:]]) == [bytes(range(200)) * 20]


@pytest.mark.parametrize("damage", [
    lambda rest: [rest[0], rest[0], *rest[1:]], lambda rest: [rest[0], *rest[2:]],
    lambda rest: [rest[0], HEAD.pack(1, 2, 99) + bytes(SMALLEST), *rest[1:]],
    lambda rest: [HEAD.pack(1, 5, 3) + b"x", *rest], lambda rest: [rest[0][:100], *rest[1:]],
    lambda rest: [HEAD.pack(1, index, 1 << 31) + bytes(1000) for index in range(1, 100)],
], ids=["twice", "a gap", "other count", "index beyond count", "too small a part", "too large"])
def test_a_rest_that_makes_no_sense_is_given_up(damage):
    reassembly = Reassembly(10_000, 1000, may_begin_inside=True)
    assert fed(reassembly, damage(cut(PAYLOAD[:5000], 1, 1500)[1:])) == []
    assert reassembly.num_bad > 0 and reassembly.num_given_up == 1 and not reassembly


def test_what_is_here_of_a_message_is_told_for_a_cut_in_its_middle():
    parts = cut(bytes(3000), 7, 1000)
    for first, may_begin_inside in [(0, False), (2, True)]:
        reassembly = Reassembly(10_000, 1000, may_begin_inside)
        for seqno, part in enumerate(parts[first:-1], 20):
            reassembly.add(seqno, part, False, 0)
        begun = 7, first, [part[HEAD.size:] for part in parts[first:-1]]
        assert [reassembly.begun(cut) for cut in (19, 20, 22)] == [None, begun, begun]


def test_an_oob_message_begins_at_its_lowest_fragment_that_came():
    fragments, reassembly = cut(PAYLOAD, 7, 1500), Reassembly(10_000, 10_000)
    for seqno in (9, 8, 10):
        reassembly.add(seqno, fragments[seqno - 7], True, 0)
    assert [assembly.first for assembly in reassembly.oob.values()] == [8]


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("is_oob", [False, True])
def test_an_index_equal_to_the_number_of_parts_is_no_part(is_oob, count):
    reassembly = Reassembly(10_000, 1000)
    parts = [HEAD.pack(1, index, count) + bytes(SMALLEST) for index in (count, *range(count - 1))]
    assert fed(reassembly, parts, is_oob=is_oob) == []
    assert reassembly.num_bad >= 1
    assert not any(count in assembly.parts for assembly in (*reassembly.oob.values(),
                                                            *reassembly.ordered.values()))


def test_a_hostile_sender_fills_no_more_than_the_limits():
    reassembly = Reassembly(limit=10_000, window=5_000)
    for number in range(100_000):
        reassembly.add(number, HEAD.pack(number, 0, 2) + bytes(1000), True, 0)
        assert len(reassembly.oob) <= 15
    assert sum(assembly.nbytes for assembly in reassembly.oob.values()) <= 15_000
    assert reassembly.num_given_up == 100_000 - 15
    for index in range(1000):
        reassembly.add(index, HEAD.pack(7, index, 5000) + bytes(1000), False, 0)
    assert sum(assembly.nbytes for assembly in reassembly.ordered.values()) <= 10_000


def test_small_parts_do_not_fill_the_memory_with_what_is_around_them():
    reassembly = Reassembly(limit=10_000, window=5_000)
    for number in range(1000):
        # the last part may be small
        reassembly.add(number, HEAD.pack(number, 1, 2) + b"x", True, 0)
    assert len(reassembly.oob) == 15_000 // SMALLEST
    for index in range(1000):
        reassembly.add(index, HEAD.pack(7, index, 5000) + b"x", False, 0)
    assert len(reassembly.ordered) == 0


def test_what_was_not_acknowledged_is_told_as_a_message_or_as_the_end_of_one():
    one, two, three = cut(b"1" * 3000, 1, 1500), cut(b"2" * 3000, 2, 1500), cut(b"3" * 3000,
                                                                                3, 1500)
    rest = b"1" * (3000 - len(one[0]) + HEAD.size)
    assert rejoin([*one[1:], *two, *three[:2]], {}) == [
        (len(one) - 2, rest, True), (len(one) - 1 + len(two) - 1, b"2" * 3000, False)]


def test_a_message_above_the_limit_is_refused():
    check_size(b"xx", 2)
    with pytest.raises(MessageTooLargeError, match="max_message_size, which is 2"):
        check_size(b"xxx", 2)


# ---------------------------------------------------------------------------- fragments in a stream

A = Address("A", 1)


def stream_of(**options):
    options = configure({"max_bytes": 100_000} | options)
    ring = RingBuffer(1000, max_bytes=options.max_bytes)
    return Stream(None, A, None, ring, options)


def arrive(stream, fragments, first, flags=FRAGMENT, now=0):
    """Put each fragment into the stream in a datagram of its own; return what the
    application gets."""
    from ringcast._core.marks import Marks
    from ringcast._core.stamps import Stamps
    deliveries = []
    for seqno, fragment in enumerate(fragments, first):
        ring, marks = RingBuffer(1, seqno - 1), Marks()
        ring.add(seqno, fragment)
        marks.flags[seqno] = flags
        header = wire.make_header(1, 1, 1, 0)
        datagrams, _ = wire.pack(ring, marks, Stamps(), [(seqno, seqno)], 60_000, header, 1 << 20)
        stream.add(wire.read_data(datagrams[0], stream.ring.low, 1000), deliveries, 0, now)
    stream.take(1000, deliveries, 0, now)
    return deliveries


def test_a_large_message_is_one_message_with_the_seqno_of_its_last_fragment():
    stream, parts = stream_of(), cut(PAYLOAD, 1, 1500)
    deliveries = arrive(stream, parts, 1)
    assert [(batch.first, batch.payloads, batch.flags) for batch in deliveries] == [(len(parts),
                                                                                     [PAYLOAD], 0)]


def test_its_fragments_are_not_finished_before_it_is():
    stream, parts = stream_of(), cut(PAYLOAD, 1, 1500)
    assert arrive(stream, parts[:3], 1) == [] and stream.finished == 0
    [batch] = arrive(stream, parts[3:], 4)
    assert stream.finished == 0
    stream.finish(batch)
    assert stream.finished == len(parts)


def test_a_message_that_fills_a_window_is_acknowledged_part_by_part():
    stream, parts = stream_of(max_bytes=8000), cut(PAYLOAD, 1, 1500)
    arrive(stream, parts[:1], 1)
    assert stream.finished == 1
    arrive(stream, parts[1:3], 2)
    assert stream.finished == 3 and stream.parts == 0


def test_fragments_of_a_sender_that_stands_still_are_reported_and_not_acknowledged():
    stream, parts = stream_of(), cut(PAYLOAD, 1, 1500)
    arrive(stream, parts[:2], 1)
    assert stream.free()
    stream.reported()
    assert not stream.free()
    for _ in range(3):
        stream.scan(0, MS)
    assert stream.finished == 0 and stream.parts == len(parts[0]) + len(parts[1])


def test_what_is_given_up_is_acknowledged():
    options = {"frag_timeout": 100, "xmit_interval": 10}
    stream, parts = stream_of(**options), cut(PAYLOAD, 1, 1500)
    arrive(stream, parts[:2], 1)
    arrive(stream, [b""], 3, now=5)                 # of no message
    for _ in range(scans(options)):
        stream.scan(10, 10 * MS)
    assert stream.finished == 3 and stream.parts == 0


def test_a_message_goes_whole_up_to_a_quarter_of_what_a_window_takes():
    config = configure({"capacity": 16, "max_bytes": 4000})
    assert goes_whole(4, 250, config)
    assert not goes_whole(5, 1, config) and not goes_whole(4, 251, config)


def scans(options):
    return int(options["frag_timeout"] / options["xmit_interval"]) + 2


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_message_goes_by_age_only_when_its_sender_has_gone_on_without_it(goes_on):
    options = {"frag_timeout": 100, "xmit_interval": 10}
    stream, parts = stream_of(**options), cut(PAYLOAD, 1, 1500)
    arrive(stream, parts[:2], 1)
    if goes_on:
        arrive(stream, [b"another message"], 3, flags=0, now=5)
    for _ in range(scans(options)):
        stream.scan(10, 10 * MS)
    assert len(stream.reassembly) == (not goes_on)


def test_a_message_does_not_age_while_anything_of_the_stream_is_missing():
    options = {"frag_timeout": 100, "xmit_interval": 10}
    stream, parts = stream_of(**options), cut(PAYLOAD, 1, 1500)
    arrive(stream, parts[:2], 1)
    arrive(stream, parts[3:4], 4, now=5)
    for _ in range(scans(options)):
        stream.scan(10, 10 * MS)
    [batch] = arrive(stream, [parts[2], *parts[3:]], 3)
    assert batch.payloads == [PAYLOAD]


def test_an_oob_message_in_fragments_overtakes_too():
    stream, parts = stream_of(), cut(PAYLOAD, 1, 1500)
    [batch] = arrive(stream, parts, 2, flags=FRAGMENT | Flag.OOB)
    assert batch.payloads == [PAYLOAD] and batch.flags == Flag.OOB and stream.ring.hd == 0
    [late] = arrive(stream, [b"first"], 1, flags=0)
    stream.finish(batch)
    stream.finish(late)
    assert late.payloads == [b"first"] and stream.finished == stream.ring.hr == 1 + len(parts)


def pushing(size, capacity=16):
    """A message on its way, and a window, in which a fragment has 512 bytes."""
    config = configure({"max_bundle_size": 512, "max_datagram": 576, "capacity": capacity,
                        "max_bytes": capacity * 512})
    window = SendWindow(RingBuffer(capacity, max_bytes=capacity * 512), datagram=576)
    return Fragments(bytes(size), 0, config), window


def of_window(window):
    return [HEAD.unpack_from(fragment)[:2] for fragment in window.ring.remove_many(nullify=False)]


def test_a_message_goes_in_whole_if_it_is_a_quarter_of_the_window():
    large, window = pushing(4 * size_of(512))
    for _ in range(13):
        window.push(b"before")
    assert large.push(window) == 0 and not large.is_sent and window.ring.hr == 13
    window.frame(wire.make_header(1, 7, 1, 0))
    window.ring.remove_many(nullify=False)
    window.stable(2)
    window.push(b"so the first fragment has another seqno than it had found no room for")
    assert large.push(window) == 4 and large.is_sent
    assert of_window(window)[1:] == [(15, 0), (15, 1), (15, 2), (15, 3)]


def test_the_rest_of_a_message_goes_in_as_it_finds_room():
    large, window = pushing(5 * size_of(512))
    window.ring.max_bytes = 1000
    assert large.push(window) == 2
    window.ring.max_bytes = 16 * 512
    assert large.push(window) == 3 and large.is_sent
    assert of_window(window) == [(1, 0), (1, 1), (1, 2), (1, 3), (1, 4)]


def test_a_message_goes_in_whole_however_small_the_credit_is():
    large, window = pushing(4 * size_of(512))
    window.ring.max_bytes = 100
    assert large.push(window) == 4 and large.is_sent


def test_what_finds_no_memory_goes_in_behind_what_did():
    large, window = pushing(4 * size_of(512))

    class Short:
        """A window that has memory for one fragment."""
        ring, pushed = window.ring, []

        def push_whole(self, fragments, flags):
            self.pushed += fragments[:1]
            return 1

        def push_many(self, fragments, start, flags):
            self.pushed += fragments[start:]
            return len(fragments) - start

    short = Short()
    assert (large.push(short), large.push(short)) == (1, 3)
    assert short.pushed == large.pieces and large.is_sent
