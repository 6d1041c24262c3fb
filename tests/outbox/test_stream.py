"""A point of the stream is found again from its seqno."""

import pytest
from outboxes import GROUP, put

from ringcast import Channel
from ringcast.outbox.owned import OwnedOutbox
from ringcast.outbox.stream import Stream
from ringcast.outbox.takers import Takers


@pytest.fixture
def stream(tmp_path):
    """A stream of three batches. Batch 1 has the seqnos 1 to 5, batch 2 has no row, and
    batch 3 has seqno 6 and a large row with the seqnos 7 to 9."""
    with Channel(GROUP, stack="inproc") as channel, OwnedOutbox(
            tmp_path / "o", GROUP, channel.config) as outbox:
        put(outbox, "q", 0, [b"1", b"2"], [b"3", b"4", b"5"])
        put(outbox, "q", 1, [])
        put(outbox, "q", 2, [b"6", bytes(2 * channel.fragment_size + 1)])
        yield Stream(outbox, channel, Takers("me", []))


def points(marks):
    return [(mark.number, mark.rows, mark.seqno, mark.is_end) for mark in marks]


@pytest.mark.parametrize(("limit", "found"), [
    (0, []), (1, [(1, 1, 1, False)]), (3, [(1, 3, 3, False)]), (5, [(1, 5, 5, True)]),
    (6, [(1, 5, 5, True), (2, 0, 5, True), (3, 1, 6, False)]),
    (8, [(1, 5, 5, True), (2, 0, 5, True), (3, 1, 6, False)]),      # a part of the large row
    (9, [(1, 5, 5, True), (2, 0, 5, True), (3, 2, 9, True)])])
def test_the_last_whole_row_up_to_a_seqno_is_found(stream, limit, found):
    assert points(stream.marks_up_to(limit)) == found


@pytest.mark.parametrize(("rows", "limit", "found"), [
    (2, 2, []), (2, 3, [(1, 3, 3, False)]), (3, 4, [(1, 4, 4, False)]), (4, 5, [(1, 5, 5, True)])])
def test_it_is_searched_from_the_point_of_the_ledger_on(stream, rows, limit, found):
    stream.ledger.rows = stream.ledger.seqno = rows
    assert points(stream.marks_up_to(limit)) == found


def test_a_seqno_that_nobody_can_have_is_not_found(stream):
    assert stream.marks_up_to(10) is None and stream.marks_up_to(2**64 - 1) is None
