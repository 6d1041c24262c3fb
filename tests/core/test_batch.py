"""Batches and the messages that come out of them."""

import pytest

from ringcast import Address, Batch, Message

A = Address("A", 1)


def test_iterating_yields_messages_with_consecutive_seqnos():
    batch = Batch(A, 10, [b"x", b"", b"zz"], 4)
    assert [(m.sender, m.seqno, m.payload) for m in batch] == [(A, 10, b"x"), (A, 11, b""),
                                                               (A, 12, b"zz")]
    assert (len(batch), batch.first, batch.last, batch.nbytes, batch.view_id) == (3, 10, 12, 3, 4)


def test_a_batch_can_be_iterated_twice_and_by_two_at_once():
    batch = Batch(A, 1, [b"x", b"y"])
    first, second = iter(batch), iter(batch)
    assert [next(first).seqno, next(second).seqno, next(first).seqno, next(second).seqno] == [1, 1,
                                                                                              2, 2]
    assert len(list(batch)) == 2


def test_seqnos_of_a_batch_wrap():
    batch = Batch(A, 2**64 - 1, [b"x", b"y"])
    assert [m.seqno for m in batch] == [2**64 - 1, 0]
    assert batch.last == 0


def test_messages_compare_by_what_they_are():
    assert Message(A, 1, b"x") == Message(A, 1, b"x") != Message(A, 2, b"x")
    assert len({Message(A, 1, b"x"), Message(A, 1, b"x"), Message(Address("B", 1), 1, b"x")}) == 2
    assert Message(A, 1, b"x") != "something else"


def test_messages_say_what_they_are():
    message = Message(A, 1, b"x")
    assert repr(message) == "Message(sender='A#0000000000000001', seqno=1, payload=b'x')"
    assert repr(Batch(A, 3, [b"x", b"y"])) == "Batch(sender='A#0000000000000001', first=3, last=4)"


def test_attributes_cannot_be_set():
    with pytest.raises(AttributeError):
        Message(A, 1, b"x").seqno = 2
