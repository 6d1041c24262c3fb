"""partition="primary" over real transports: only the side with the majority goes on."""

import threading

import pytest
from channels import new_group
from processes import PATIENCE, wait_for
from test_channel_forming import Cut, Group, Member, check_same_between_views

from ringcast import Channel, ClosedError, ConfigError, Flag, JoinTimeoutError, NoQuorumError

SOME = ["inproc", "nakack2-tcp", pytest.param("mcast-udp", marks=pytest.mark.udp)]
QUICK = {"partition": "primary", "min_members": 2, "heartbeat_interval": 20, "suspect_timeout": 300}


def may_send(member):
    return member.channel.status().membership.is_primary == 1


@pytest.fixture(params=SOME)
def parted(request):
    """A group of three, of which C can be cut off."""
    with Group(request.param, **QUICK, capacity=64) as group:
        group.cut = Cut()
        (c,) = group.open("C", faults=[group.cut])
        group.join([*group.open("A", "B"), c])
        yield group
        group.cut.is_cut = False


def cut_off(group):
    group.cut.is_cut = True
    wait_for(lambda: not may_send(group["C"]))


def test_the_minority_sends_nothing_until_it_is_back(parted):
    assert all(may_send(each) for each in parted)
    cut_off(parted)
    c = parted["C"].channel
    every = [lambda: c.send(b"x"), lambda: c.send(b"x", timeout=1), lambda: c.send(b"x", "C"),
             lambda: c.send(b"x", c.address), lambda: c.send_many([b"x"]),
             lambda: c.send_many([b"x"], "C"), lambda: c.send(b"x", flags=Flag.NO_RELIABILITY),
             lambda: c.send(bytes(100_000)), lambda: c.send(b"x", flags=Flag.OOB)]
    for send in every:
        with pytest.raises(NoQuorumError, match="this member is in .*C., without the majority of "
                                                "its group, .*wait until the others are back"):
            send()
    wait_for(lambda: set(parted["A"].names) == {"A", "B"} == set(parted["B"].names))
    assert may_send(parted["A"]) and parted["A"].views[-1].primary
    assert not parted["C"].views[-1].primary
    parted["A"].channel.send(b"we go on")
    wait_for(lambda: parted["B"].got("A") == [b"we go on"])
    parted.cut.is_cut = False
    parted.wait_for_one_view()
    assert all(may_send(each) and each.views[-1].primary for each in parted)
    c.send(b"back")
    c.send(b"for A", "A")
    wait_for(lambda: all(parted[name].got("C").count(b"back") == 1 for name in "ABC"))
    wait_for(lambda: b"for A" in parted["A"].got("C"))
    check_same_between_views([parted["A"], parted["B"]])


@pytest.mark.parametrize("dest", [None, "A"])
def test_a_sender_that_waits_for_room_gets_the_error_at_once(parted, dest):
    sent, errors = [], []

    def send():
        try:
            while True:
                parted["C"].channel.send(b"%d" % len(sent), dest)
                sent.append(len(sent))
        except NoQuorumError as error:
            errors.append(error)

    parted.cut.is_cut = True
    thread = threading.Thread(target=send)
    thread.start()
    thread.join(PATIENCE)
    assert len(errors) == 1 and len(sent) >= 1


def test_a_channel_that_closes_in_a_minority_says_closed_and_not_that_it_has_no_quorum(parted):
    cut_off(parted)
    channel = parted["C"].channel
    channel.close(0)
    for _ in range(2):
        with pytest.raises(ClosedError):
            channel.send(b"x")
        with pytest.raises(ClosedError):
            channel.send(b"x", "C")


def test_a_channel_that_closes_takes_nothing_when_its_group_is_back():
    """Its window opens with the view, and is closed again at once."""
    with Group("inproc", **QUICK, capacity=64) as group:
        cut = Cut()
        (c,) = group.open("C", faults=[cut])
        group.join([*group.open("A", "B"), c])
        group.cut = cut
        cut_off(group)
        c.channel._state.closing = True                 # as close() does first
        c.channel._sending.close()
        cut.is_cut = False
        wait_for(lambda: may_send(c))
        wait_for(lambda: c.channel._multicast.send_window.push(b"x") == 1)      # it is FULL
        c.channel._state.closing = False


def test_before_the_first_view_nobody_sends():
    channel = Channel(new_group(), stack="inproc", partition="primary", min_members=1)
    with pytest.raises(NoQuorumError, match="has no view yet, .*call connect.. first"):
        channel.send(b"early")
    with channel:
        channel.send(b"now")
        assert next(iter(channel)).payload == b"now"


def test_who_wants_the_primary_part_says_how_many_make_the_first_one():
    with pytest.raises(ConfigError, match="needs min_members, too: more than half"):
        Channel(new_group(), stack="inproc", partition="primary")


def test_where_every_part_goes_on_a_minority_sends():
    with Group("inproc", **(QUICK | {"partition": "merge"})) as group:
        group.cut = Cut()
        (c,) = group.open("C", faults=[group.cut])
        group.join([*group.open("A", "B"), c])
        cut_off(group)
        c.channel.send(b"alone")
        wait_for(lambda: c.got("C") == [b"alone"])
        assert not c.views[-1].primary


def test_connect_waits_for_a_primary_view():
    """The older one of two is gone for ever: who comes now cannot make a majority."""
    with Group("inproc", **QUICK).start("A", "B") as group:
        first = group["A"].channel.view.coordinator.name
        group.members.pop(first).channel.close(0, leave=False)
        group.wait_for_one_view()
        late = Member("C", **group.common)
        with pytest.raises(JoinTimeoutError, match="has no majority of its members after 1 s, only "
                                                   "(A|B), C; bring the others back, or"):
            late.channel.connect(1)


def test_members_that_leave_take_no_quorum_with_them():
    with Group("inproc", **QUICK).start("A", "B", "C") as group:
        names = group["A"].channel.view.names
        for name in names[:2]:
            group.close(name)
        group.wait_for_one_view()
        last = group[names[2]]
        assert may_send(last)
        last.channel.send(b"alone")
        wait_for(lambda: last.got(last.name) == [b"alone"])


@pytest.mark.parametrize("other", [{"partition": "merge"}, {"min_members": 1}], ids=str)
def test_all_members_have_the_same_idea_of_a_partition(other):
    (term, value), = other.items()
    with Group("inproc", **QUICK).start("A", "B") as group:
        stranger = Member("C", **(group.common | other))
        with pytest.raises(ClosedError, match=f"has {term}='{QUICK[term]}' and this member, 'C', "
                                              f"has {term}='{value}'; give all members"):
            stranger.channel.connect(PATIENCE)
        assert set(group["A"].names) == {"A", "B"}


def test_a_partition_that_does_not_exist():
    with pytest.raises(ConfigError, match="^partition takes `merge` or `primary`, not 'split'"):
        Channel(new_group(), stack="inproc", partition="split")
