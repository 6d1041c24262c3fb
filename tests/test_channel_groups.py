"""Channels whose arguments do not match those of the others in their group. In one
process."""


import pytest
from channels import PATIENCE, STACKS, Collector, new_group, side_by_side
from ports import free_port
from processes import wait_for

from ringcast import Channel, RingcastError
from ringcast.config import own_options
from ringcast.status import WireStatus


@pytest.fixture
def group():
    """What all members of a test's group share: a name, and ports that nobody else
    uses."""
    return {"group": new_group(), "port": free_port()}


@pytest.fixture(params=[("mcast-tcp", "nakack2-tcp"),
                        pytest.param(("mcast-udp", "nakack2-udp"), marks=pytest.mark.udp)])
def stacks(request):
    return request.param


def test_a_member_on_another_stack_is_refused_and_the_group_goes_on(group, stacks, caplog):
    ours, theirs = stacks
    got = Collector(1)
    a, b = (Channel(**group, name=name, min_members=2, stack=ours, on_message=got)
            for name in "AB")
    side_by_side([a.connect, b.connect])
    b.close()
    stranger = Channel(**group, name="B", stack=theirs)
    sentence = (f"'A' has stack='{ours}' and this member, 'B', has stack='{theirs}'; "
                "give all members of the group the same stack")
    with caplog.at_level("WARNING", "ringcast"), pytest.raises(RingcastError, match=sentence):
        stranger.connect()
    assert a.fault is None and a.view.names == ("A",)
    assert caplog.text.count("'B' has stack=") <= 1  # over TCP the link may be gone before A has
                                                     # heard B
    a.send(b"still here")
    assert got.wait() == {"A": [b"still here"]}
    a.close()


def test_members_that_join_on_different_stacks_all_say_so(group, stacks):
    channels = [Channel(**group, name=name, min_members=2, stack=stack)
                for name, stack in zip("AB", stacks, strict=True)]
    said = []

    def connect(channel):
        with pytest.raises(RingcastError) as refusal:
            channel.connect()
        said.append(str(refusal.value))

    side_by_side([lambda c=channel: connect(c) for channel in channels])
    assert all(stack in sentence for sentence in said for stack in stacks) and len(said) == 2


@pytest.mark.parametrize("ends", ["dies", "closes with leave=False"])
@pytest.mark.parametrize("stack", STACKS)
def test_what_is_kept_for_a_member_that_died_is_for_its_next_life(group, stack, ends):
    ours = own_options(group, stack) | {"min_members": 2, "stack": stack}
    a, b = Channel(**ours, name="A", deliver=False), Channel(**ours, name="B", durable=True)
    side_by_side([a.connect, b.connect])
    a.send_many([b"%d" % number for number in range(1, 11)])
    if ends == "dies":
        b._halt(None)                               # as if killed: its threads stop in the middle
    b.close(leave=False)
    with Channel(**ours, name="B", durable=True) as later:
        assert a.acknowledged == 0
        assert a.close(timeout=0.2) == 10               # it has read nothing yet
        messages = [next(each) for each in [iter(later)] for _ in range(10)]
        assert [message.payload for message in messages] == [b"%d" % number
                                                             for number in range(1, 11)]


@pytest.mark.parametrize("stack", STACKS)
def test_a_next_life_that_reads_what_was_kept_lets_its_sender_close(group, stack):
    ours = own_options(group, stack) | {"min_members": 2, "stack": stack}
    a, b = Channel(**ours, name="A", deliver=False), Channel(**ours, name="B", durable=True)
    side_by_side([a.connect, b.connect])
    a.send_many([b"%d" % number for number in range(1, 11)])
    reader = b.batches()
    assert next(reader).first == 1
    a.send_many([b"%d" % number for number in range(11, 21)])
    assert next(reader).last <= 20                      # finishes what it got before
    b.close(leave=False)
    got = Collector(1)
    with Channel(**ours, name="B", on_message=got, durable=True):
        assert a.close(timeout=PATIENCE) == 0
        payloads = got.by_sender["A"]
        assert payloads == [b"%d" % number for number in range(21 - len(payloads), 21)]
        assert len(payloads) >= 10
    assert a.acknowledged == 20


@pytest.mark.udp
def test_groups_on_one_port_do_not_read_each_others_datagrams(group):
    got, place = Collector(100), {"port": group["port"], "stack": "mcast-udp"}
    with (Channel(group["group"], name="A", on_message=got, **place) as a,
          Channel(new_group(), name="B", **place) as b):
        a.send_many([b"x"] * 100)
        got.wait()
        assert b.status().wire == WireStatus()


@pytest.mark.udp
def test_datagrams_of_another_group_at_the_same_address_are_counted_as_such(group):
    place = {"port": group["port"], "group_address": "239.255.3.4", "stack": "mcast-udp"}
    with (Channel(group["group"], name="A", **place) as a,
          Channel(new_group(), name="B", **place) as b):
        a.send(b"x")
        wait_for(lambda: b.status().wire.foreign)
        assert b.status().wire.malformed == 0
