"""What a debugger and a log show of public objects."""

from contextlib import closing

import pytest
from channels import joined, new_group

import ringcast
from ringcast import (
    AckTable,
    Address,
    Batch,
    Channel,
    Digest,
    Flag,
    Message,
    RingBuffer,
    RingcastError,
    SeqnoTable,
    Skipped,
    Succession,
    View,
    aio,
)

A = Address("A", 1)


def window(kind):
    filled = kind(capacity=8)
    filled.add(1, b"x")
    return filled


SHOWN = {
    "AckTable": (AckTable(["A", "B"], 3), "<AckTable members=2 minimum=3 slowest='A'>"),
    "Address": (A, "Address(name='A', incarnation=1)"),
    "Batch": (Batch(A, 3, [b"x", b"y"]), "Batch(sender='A#0000000000000001', first=3, last=4)"),
    "Digest": (Digest({A: 3}), "{Address(name='A', incarnation=1): 3}"),
    "Flag": (Flag.OOB | Flag.DONT_LOOPBACK, "<Flag.OOB|DONT_LOOPBACK: 3>"),
    "Message": (Message(A, 3, b"x"), "Message(sender='A#0000000000000001', seqno=3, payload=b'x')"),
    "RingBuffer": (window(RingBuffer), "<RingBuffer low=0 hd=0 hr=1 capacity=8>"),
    "SeqnoTable": (window(SeqnoTable), "<SeqnoTable low=0 hd=0 hr=1 capacity=8>"),
    "Skipped": (Skipped(A, 3, 7), "Skipped(sender='A#0000000000000001', first=3, last=7)"),
    "Succession": (Succession(1 << 63, 5), "Succession(origin=9223372036854775808, seqno=5)"),
    "View": (View(1, (A,)), "View(id=1, members=(Address(name='A', incarnation=1),), joined=(), "
                            "left=(), departed={}, subgroups=(), primary=True, absent=(), "
                          "observers=())"),
}


def test_each_public_name_is_shown_here_or_is_an_error_a_number_or_a_type_alone():
    others = {name for name in ringcast.__all__ if name.endswith("Error")}
    assert {*SHOWN, *others, "Channel", "MAX_PAYLOAD", "Options"} == set(ringcast.__all__)


@pytest.mark.parametrize("name", SHOWN)
def test_a_repr_says_the_state(name):
    value, said = SHOWN[name]
    assert isinstance(value, getattr(ringcast, name)) and repr(value) == said


@pytest.mark.parametrize("kind", [Channel, aio.Channel])
def test_a_channel_says_where_it_is_on_its_way(kind):
    """From its making to its end; the fault is its own test."""
    channel = kind("g", name="A", stack="inproc")
    inside = getattr(channel, "_channel", channel)
    with closing(inside):
        begin = f"<{'aio.' * (kind is aio.Channel)}Channel 'A' of group 'g', inproc, "
        assert repr(channel) == begin + "in no view>"
        inside.connect()
        assert repr(channel) == begin + f"in view {inside.view.id}, members: 1>"
    assert repr(channel) == begin + "closed>"


def test_a_channel_that_closed_by_itself_says_why():
    with joined("AB", stack="inproc") as (a, b):
        a._halt("its disk is full")
        assert repr(a).endswith(": its disk is full>")
        assert repr(b).endswith(">") and "disk" not in repr(b)


def test_a_channel_has_no_view_before_connect():
    with closing(Channel(new_group(), stack="inproc")) as channel:
        with pytest.raises(RingcastError, match="no view yet; call connect"):
            channel.view  # noqa: B018
        assert len(channel.connect().view) == 1
