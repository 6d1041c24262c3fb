"""What a channel says about itself, by layer."""

import msgspec
import pytest

from ringcast import Channel
from ringcast.status import (
    InprocStatus,
    Layers,
    McastStatus,
    Nakack2Status,
    Status,
    TcpStatus,
    UdpStatus,
    by_name,
    counts,
)

KINDS = {"mcast-udp": (McastStatus, UdpStatus), "mcast-tcp": (McastStatus, TcpStatus),
         "nakack2-udp": (Nakack2Status, UdpStatus), "nakack2-tcp": (Nakack2Status, TcpStatus),
         "inproc": (McastStatus, InprocStatus)}


@pytest.mark.udp
@pytest.mark.parametrize("stack", KINDS)
def test_a_status_has_the_sections_of_its_stack(stack):
    channel = Channel("status", stack=stack)
    status = channel.status()
    channel.close()
    multicast, transport = KINDS[stack]
    assert type(status.multicast) is multicast and type(status.transport) is transport
    assert (status.stable is not None) is (multicast is Nakack2Status)
    assert status.seal is None and status.faults == {}


def test_a_status_is_a_copy_that_later_events_do_not_change():
    with Channel("status", stack="inproc", deliver=False) as channel:
        before = channel.status()
        copy = msgspec.json.encode(before)
        channel.send(b"1")
        assert channel.status().multicast.hr == 1 and msgspec.json.encode(before) == copy


def test_a_status_survives_its_way_as_json():
    status = Status(multicast=Nakack2Status(num_gaps=1), transport=TcpStatus(links=2),
                    faults={"discard": 3})
    assert msgspec.json.decode(msgspec.json.encode(status), type=Status) == status


def test_the_repr_of_a_section_has_what_is_not_0():
    assert repr(McastStatus(low=4, hr=5)) == "McastStatus(low=4, hr=5)"


def test_a_table_by_name_has_all_numbers_and_one_to_add_up_only_what_never_falls():
    layers = Layers(multicast=McastStatus(num_unacked=3, acks_sent=2), faults={"discard": 1})
    assert by_name(layers)["num_unacked"] == 3 and "num_unacked" not in counts(layers)
    assert counts(layers)["acks_sent"] == 2 and counts(layers)["num_discard"] == 1
    assert counts(UdpStatus(send_calls=7)) == {**counts(UdpStatus()), "send_calls": 7}
