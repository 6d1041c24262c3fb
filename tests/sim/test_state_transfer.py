"""State transfer: a member that comes is given the state of another one, and the
messages after it fit exactly."""

import pytest
from forming_group import FormingGroup
from msgspec import msgpack

from ringcast import Address
from ringcast._core.batch import Batch
from ringcast.config import configure
from ringcast.flags import FRAGMENT, STATE
from ringcast.protocols.frag import HEAD
from ringcast.protocols.membership.messages import FAILED, HAS, INSTALL, NEEDS, NO_PART
from ringcast.protocols.membership.state import (
    NEED,
    WHOLE,
    Need,
    StateTransfer,
    broken,
    decoder,
    parts,
)
from ringcast.protocols.multicast.base import DATA, REPEAT
from ringcast.sim.network import MS, Network
from ringcast.stack import Effects

STACKS = ["mcast-udp", "nakack2-tcp"]


class Group(FormingGroup):
    """Nobody fails to give its state unless a test says so."""

    def __init__(self, stack, **options):
        super().__init__("ABCDE", stack, capacity=64, **options)
        self.fails = ()

    def start(self, *names, replica="both", **options):
        super().start(*names, replica=replica, **options)
        for name in names:
            self[name].replica.rng.random = lambda name=name: float(name in self.fails)
        return self

    def state(self, name):
        return self[name].replica.transfer.state

    def run_until_true(self, condition):
        for _ in range(20_000):
            if condition():
                return
            self.run(0.5)
        raise AssertionError("it does not happen")

    def are_alike(self, *names):
        """Return whether all have the same state, once all is settled."""
        self.settle(60_000)
        contents = [self[name].replica.content for name in names]
        return all((each.name, each.checksums) == (contents[0].name, contents[0].checksums)
                   for each in contents)


def pair(stack, **options):
    """A and B, of which A is the older one."""
    group = Group(stack, **options).start("A")
    group.settle(20_000)
    group.start("B").settle(20_000)
    return group


@pytest.fixture(params=STACKS)
def group(request):
    return pair(request.param)


def begin_to_give(stack, slowness, **options):
    """Let C come to A and B, which have a state. Return the group, and C's replica,
    whose application has the state only after so many milliseconds."""
    group = pair(stack, **options)
    group.load(40)
    group.settle(20_000)
    group.start("C")
    new = group["C"].replica
    new.rng.choice = lambda items: slowness
    return group, new


def test_members_that_form_a_group_begin_without_a_state():
    group = Group("mcast-udp").start("A", "B")
    group.settle(20_000)
    assert [group.state(name) for name in "AB"] == [HAS, HAS]
    assert [group[name].replica.num_taken for name in "AB"] == [0, 0]


def test_who_comes_under_load_is_given_the_state(group):
    group.load(40)
    group.start("C")
    group.load(400)
    assert group.are_alike("A", "B", "C")
    assert group.state("C") == HAS and group["C"].replica.num_taken == 1
    assert group["C"].endpoint.status().state.num_held_back > 0


def test_several_who_come_are_given_the_state_by_several(group):
    group.load(40)
    group.start("C", "D", "E")
    group.load(400)
    assert group.are_alike(*"ABCDE")
    given = [group[name].endpoint.status().state.num_states_given for name in "AB"]
    assert sum(given) == 4 and all(given)       # A gave it to B before


def test_a_transfer_goes_on_over_further_views(group):
    group.load(40)
    group["A"].replica.rng.choice = lambda items: items[-1]     # a long state
    group.start("C")
    group["C"].replica.rng.choice = lambda items: items[-1]     # which it takes slowly
    group.run_until_true(lambda: group["C"].replica.chunks)
    group.start("D")
    group.load(600)
    assert group.are_alike("A", "B", "C", "D")
    assert group["C"].replica.attempt == 1
    assert sum(group[name].endpoint.status().state.num_givers_lost for name in "CD") == 0


@pytest.mark.parametrize("end", ["crash", "leave"])
def test_another_gives_when_the_giver_is_gone(group, end):
    group.load(40)
    group.start("C")
    group["C"].replica.rng.choice = lambda items: 2_000         # it takes the state slowly
    group.run_until_true(lambda: group["C"].replica.transfer.is_whole)
    getattr(group["A"], end)()
    group.load(1_000)
    assert group.are_alike("B", "C")
    assert group["C"].replica.num_taken == 1 and group["C"].replica.attempt > 1


def test_a_state_is_not_used_while_a_part_of_it_may_be_lost(group):
    """A message has come to nobody but the giver, who dies."""
    group.load(40)
    group.settle(20_000)
    group.network.discard = lambda source, target, datagram: (
        (source, target) == ("A", "B") and datagram[3] in (DATA, REPEAT))
    group["A"].offer(1, 10)
    group.start("C")
    group.run_until_true(lambda: group["C"].replica.transfer.is_whole)
    group.run(300)
    assert group["C"].replica.num_taken == 0
    group["A"].crash()
    group.network.discard = None
    assert group.are_alike("B", "C")


def test_another_gives_when_the_giver_fails(group):
    group.load(40)
    group.fails = ("A",)
    group.start("C")
    group.load(600)
    assert group.are_alike("A", "B", "C")
    assert [group.state(name) for name in "ABC"] == [FAILED, HAS, HAS]


def test_one_that_failed_is_asked_again_if_nobody_else_has_the_state(group):
    group.fails = ("A", "B")
    group.start("C")
    group.load(600)
    assert group.state("C") == NEEDS and len(group["C"].views) > 2
    group.fails = ()
    group.load(2_000)
    assert group.are_alike("A", "B", "C")


def test_who_cannot_give_is_not_asked(group):
    group.start("C", replica="takes")
    group.load(300)
    assert group.are_alike("A", "B", "C") and group.state("C") == NO_PART


def test_who_is_cut_off_waits_for_a_state(group):
    group.load(40)
    group.fails = ("A", "B")
    group.start("C")
    group.load(200)
    group.checkers.note_cause()
    group.network.cut |= {(one, other) for one in "ABC" for other in "ABC"
                          if (one == "C") != (other == "C")}
    group.load(1_500)
    assert group["C"].views[-1].names == ("C",) and group.state("C") == NEEDS
    group.fails = ()
    group.heal()
    group.load(1_500)
    assert group.are_alike("A", "B", "C")


def test_if_all_who_had_the_state_are_gone_the_others_begin_without_it(group):
    group.fails = ("A", "B")
    group.start("C", "D", "E")
    group.load(300)
    for name in "AB":
        group[name].crash()
    group.load(2_000)
    assert group.are_alike("C", "D", "E")
    assert [group[name].replica.num_taken for name in "CDE"] == [0, 0, 0]


def bereave(group, *names):
    """Let members come who are given no state, and let all who have it die at one
    stroke: the others have no majority of the last primary view."""
    group.fails = ("A", "B")
    group.start(*names, state_backlog=1)
    group.load(300)
    for name in "AB":
        group[name].crash()
    group.load(1_500)
    assert not group[names[0]].views[-1].primary and group.state(names[0]) == NEEDS


def test_in_a_view_that_is_not_primary_they_begin_when_they_have_waited_long_enough(group):
    bereave(group, "C")
    group.run(6_000)
    assert group.state("C") == NEEDS
    group.start("D")
    group.run(10_000)
    group.load(100)
    assert group.are_alike("C", "D")
    assert [group[name].replica.num_taken for name in "CD"] == [0, 0]
    assert [group.state(name) for name in "CD"] == [HAS, HAS]


def test_who_has_the_state_and_comes_back_in_time_gives_it(group):
    bereave(group, "C")
    group.fails = ()
    group.start("E", replica="gives")
    group.load(1_000)
    assert group.state("C") == HAS and group["C"].replica.num_taken == 1


@pytest.mark.parametrize("options", [{"partition": "primary"}, {"min_members": 2}])
def test_where_only_some_may_go_on_the_others_wait_without_end(options):
    group = Group("mcast-udp", **options).start("A", "B")
    group.settle(20_000)
    bereave(group, "C")
    group.run(60_000)
    assert group.state("C") == NEEDS


def test_an_observer_is_none_of_the_members_that_min_members_asks_for():
    group = Group("mcast-udp", min_members=2).start("A", "B")
    group.settle(20_000)
    FormingGroup.start(group, "E", observes=True).settle(20_000)
    bereave(group, "C")
    group.run(60_000)
    assert group["C"].views[-1].names == ("C", "E") and group.state("C") == NEEDS


def test_nobody_waits_for_a_member_to_whom_nobody_gives_a_state(group):
    """Whoever gives it one takes it at a later place."""
    bereave(group, "C")
    group.start("D")
    group.load(500)
    group["C"].offer(300, 10)
    group["D"].offer(300, 10)
    group.load(500)
    assert group.state("C") == group.state("D") == NEEDS
    assert not any(group[name].producer.multicasts.backlog for name in "CD")
    assert not any(group[name].replica.transfer.held for name in "CD")


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("size", [2_000, 5_000, 20_000, 60_000])
def test_large_messages_that_are_on_their_way_are_in_the_state_or_follow_it(stack, size):
    group = Group(stack, max_bundle_size=512, max_datagram=1472).start("A", "B")
    group.settle(20_000)
    for name in "AB":
        group[name].consumer.finish_after = 2 * MS
        group[name].offer(min(400, 4_000_000 // size), size)
    group.run(20)
    group.start("C")
    group.run(300)
    assert group.are_alike("A", "B", "C")


def test_senders_wait_when_a_member_holds_back_too_much(group):
    group.load(40)
    group.start("C", state_backlog=1)
    group["C"].replica.rng.choice = lambda items: items[-1]
    group.run_until_true(lambda: group["C"].replica.transfer.is_whole)
    group["A"].offer(300, 10)
    group.run(100)
    assert group["C"].replica.transfer.is_full and group["A"].producer.multicasts.backlog
    group.load(400)
    assert group.are_alike("A", "B", "C") and not group["A"].producer.multicasts.backlog


def test_messages_to_the_member_alone_are_not_dropped_with_the_rest(group):
    group.load(40)
    group.start("C")
    group["C"].replica.rng.choice = lambda items: 2_000
    group.run_until_true(lambda: group["C"].replica.transfer.is_whole)
    group["B"].send_unicast("C", 5, 10)
    group.load(20)
    held = group["C"].replica.transfer.held
    group["A"].crash()
    group.run_until_true(lambda: group["C"].replica.attempt > 1)
    assert sum(len(batch) for _, batches in held for batch in batches
               if batch.dest is not None) == 5
    group.load(1_000)
    assert group.are_alike("B", "C")


@pytest.mark.parametrize(("name", "mistake"), [
    ("_drop_before", lambda self, place: None),         # nothing is dropped for a second giver
    ("is_holding", property(lambda self: self.is_accepted and bool(self.held)))])
def test_mistakes_are_caught(group, monkeypatch, name, mistake):
    monkeypatch.setattr(StateTransfer, name, mistake)
    with pytest.raises(AssertionError):         # also what a checker raises
        test_another_gives_when_the_giver_is_gone(group, "crash")


def test_loss_does_not_matter():
    group = Group("nakack2-udp", network=Network(loss=0.2, duplicate=0.1, reorder=0.2))
    for name in "AB":
        group.start(name).settle(30_000)
    group.load(40)
    group.start("C")
    group.load(600)
    group.heal()
    assert group.are_alike("A", "C")       # A and B may have begun apart


# ------------------------------------------------------------- messages larger than their windows

ALL_STACKS = ["mcast-udp", "mcast-tcp", "nakack2-udp", "nakack2-tcp"]
INSIDE = {"max_bundle_size": 512, "max_datagram": 1472}


class Stopped:
    """The messages that A sends to everybody, in the middle of a large one."""

    def __init__(self, group, size):
        self.group, self.out = group, group["A"].producer.multicasts
        group["A"].offer(1, size)
        group.run_until_true(lambda: self.out.large is not None)
        self.backlog, self.out.backlog = self.out.backlog, []
        group.run(100)                          # all that was sent has come, and is acknowledged

    def between(self, payload):
        """Let another thread send a message between two fragments."""
        large, self.out.large, self.out.backlog = self.out.large, None, [payload]
        self.group["A"].producer.resume(self.group.now)
        self.group.run(50)
        assert not self.out.backlog
        self.out.large = large

    def go_on(self):
        self.out.backlog = self.backlog
        self.group["A"].producer.resume(self.group.now)
        self.group.run(300)


@pytest.fixture(params=ALL_STACKS)
def stopped(request):
    """Let A and B have a state, and A be in the middle of a message larger than a
    window."""
    group = pair(request.param, **INSIDE)
    group.load(20)
    group.settle(20_000)
    return Stopped(group, 100_000)


def test_a_state_and_the_rest_of_a_message_larger_than_a_window_fit(stopped):
    group = stopped.group
    group.start("C")
    group.run_until_true(lambda: group.state("C") == HAS)
    assert group["C"].replica.transfer.begins
    stopped.go_on()
    assert group.are_alike("A", "B", "C")
    assert not group["C"].replica.transfer.begins


def test_the_rest_may_come_before_the_state(stopped):
    group = stopped.group
    group.start("C")
    group["C"].replica.rng.choice = lambda items: 1_000
    group.run_until_true(lambda: group["C"].replica.transfer.is_whole)
    stopped.go_on()
    assert group.state("C") == NEEDS
    group.run(1_000)
    assert group.are_alike("A", "B", "C")


def test_another_thread_may_send_between_the_parts_of_a_large_message(stopped):
    group = stopped.group
    stopped.between(b"between")
    group.start("C")
    group.run_until_true(lambda: group.state("C") == HAS)
    stopped.between(b"again")
    stopped.go_on()
    assert group.are_alike("A", "B", "C")


def test_who_was_given_the_begin_of_a_message_gives_it_to_the_next_one(stopped):
    group = stopped.group
    group["A"].replica.transfer.state = NO_PART
    group.start("C")
    group.run_until_true(lambda: group.state("C") == HAS)
    stopped.out.backlog = stopped.backlog
    large = stopped.out.large
    sent = large.sent
    group["A"].producer.resume(group.now)
    group.run_until_true(lambda: large.sent > sent)
    stopped.out.backlog = []
    group.run(100)
    assert not large.is_sent
    group["B"].leave()
    group.run(300)
    group.start("D")
    group.run_until_true(lambda: group.state("D") == HAS)
    assert group["D"].replica.transfer.begins[group["A"].incarnation].count == large.sent
    stopped.go_on()
    assert group["D"].replica.transfer.num_lost == 0
    assert group.are_alike("C", "D")


def test_another_giver_gives_the_begin_up_to_its_own_place(stopped):
    group = stopped.group
    group.start("C")
    group["C"].replica.rng.choice = lambda items: 2_000
    group.run_until_true(lambda: group["C"].replica.transfer.is_whole)
    giver = group["C"].replica.transfer.giver
    assert giver == group["A"].incarnation
    group["A"].replica.transfer.state = FAILED
    group["C"].replica.transfer._fail()
    stopped.go_on()
    group.run(2_000)
    assert group.are_alike("A", "B", "C")
    assert group["C"].replica.num_taken == 1


@pytest.mark.parametrize("end", ["crash", "leave"])
def test_of_a_sender_that_goes_in_the_middle_of_a_message_nobody_keeps_the_begin(stopped, end):
    group = stopped.group
    group["A"].replica.transfer.state = NO_PART
    group.start("C")
    group.run_until_true(lambda: group.state("C") == HAS)
    assert group["C"].replica.transfer.begins
    getattr(group["A"], end)()
    group.run(500)
    assert not group["C"].replica.transfer.begins
    assert group.are_alike("B", "C")


# -------------------------------------------------------------------------------- what peers send

def batch_of(group, sender, payloads):
    return Batch(group[sender].address, 1, payloads, 0, group["C"].address, STATE)


@pytest.fixture
def joiner(group):
    """C, which is given a state by A, of which nothing has come."""
    if group.stack != "mcast-udp":
        pytest.skip("it is the same with each stack")
    group["A"].replica.push = lambda now: None
    group.start("C")
    group.run_until_true(lambda: group["C"].replica.transfer.giver)
    return group["C"].replica.transfer


PARTS = list(parts(7, [b"abc"], 1000, 1000))


@pytest.mark.parametrize("payload", [b"", b"\xff", b"abc", msgpack.encode([1, 0]),
                                     msgpack.encode([1, -1, [], 0, False]),
                                     msgpack.encode([1, 0, [1], 0, False]),
                                     msgpack.encode([1, 0, [], 3, False]),
                                     b"\x96\x01\x00\x90\x00\xc2" + b"\x91" * 3000 + b"\xc0"])
def test_a_giver_that_sends_nonsense_has_failed(group, joiner, payload):
    joiner._take(batch_of(group, "A", [payload]))
    assert joiner.giver == 0 and joiner.next_need is not None


def test_parts_of_a_member_that_does_not_give_are_dropped(group, joiner):
    before = joiner.attempt
    for payload in (b"", broken(joiner.place), *parts(joiner.place, [b"abc"], 1000, 1000)):
        joiner._take(batch_of(group, "B", [payload]))
    assert joiner.giver == group["A"].incarnation and joiner.attempt == before
    assert not any(news.batch or news.is_whole for news in joiner.news)
    assert len(joiner.to_finish) == 3


def test_a_part_that_is_missing_is_noticed(group, joiner):
    made = list(parts(joiner.place, [bytes(500)], 200, 1000))
    joiner._take(batch_of(group, "A", made[1:2]))
    assert joiner.giver == 0 and joiner.next_need is not None


def test_a_chunk_without_end_is_no_danger(group, joiner):
    joiner.largest = 1000
    taken = 0
    for made in parts(joiner.place, [bytes(100_000)], 200, 100_000):
        taken += bool(joiner.giver)
        joiner._take(batch_of(group, "A", [made]))
    assert taken < 20 and sum(map(len, joiner.cut)) <= 1000


def test_the_piece_of_a_chunk_is_not_empty(group, joiner):
    """Else pieces without end would fill memory, though not one byte is in them."""
    joiner._take(batch_of(group, "A", [msgpack.encode([joiner.place, 0, [b""], 0, True])]))
    assert joiner.giver == 0 and not joiner.cut


def test_a_member_that_needs_no_state_drops_what_comes(group):
    transfer = group["A"].replica.transfer
    batch = Batch(group["B"].address, 1, PARTS, 0, group["A"].address, STATE)
    transfer._take(batch)
    assert transfer.to_finish == [batch] and transfer.news == []


@pytest.mark.parametrize("size", [100, 333, 60_000])
@pytest.mark.parametrize("chunks", [[], [b""], [b"a"], [b"", b"abc", b""], [bytes(31)],
                                    [bytes(100), b"x" * 35, b"", b"y" * 36, b"z" * 37],
                                    [b"q" * 1000], [b"r" * 999] * 9, [b"1"] * 500])
def test_chunks_come_as_they_were_given(group, joiner, size, chunks):
    made = list(parts(joiner.place, chunks, size, 1000))
    assert all(len(part) <= size for part in made)
    for part in made:
        joiner._take(batch_of(group, "A", [part]))
    news = [news for news in joiner.news if news.attempt == joiner.attempt]
    assert [chunk for each in news for chunk in each.chunks] == chunks
    assert news[-1].is_whole and joiner.is_whole


def given(group, joiner, begins, chunks=(b"state",), size=200):
    """Let A give a state, behind some begins. Return the chunks that come."""
    for part in parts(joiner.place, chunks, size, 1000, begins):
        joiner._take(batch_of(group, "A", [part]))
    return [chunk for news in joiner.news for chunk in news.chunks]


def begin_of(group, sender, number=7, count=2, payload=b"abcd"):
    return msgpack.encode([group[sender].incarnation, number, count, payload])


def rest_of(group, sender, number=7, index=2, payload=b"ef"):
    fragments = HEAD.pack(number, index, 3) + payload
    return Batch(group[sender].address, 9, [fragments], 0, None, FRAGMENT)


def test_begins_come_before_the_chunks_of_a_state(group, joiner):
    begins = [begin_of(group, "A"), begin_of(group, "B", payload=bytes(990))]
    assert given(group, joiner, begins, [b"", b"abc", b""]) == [b"", b"abc", b""]
    assert [len(begin.payload) for begin in joiner.begins.values()] == [4, 990]
    assert joiner.is_whole


@pytest.mark.parametrize("begin", [b"\xff", b"abc", msgpack.encode([1, 2, 0, b"abc"]),
                                   msgpack.encode([1, 2, 3]), msgpack.encode([-1, 2, 3, b""]),
                                   b"\x95\x01\x02\x03\xc4\x00" + b"\x91" * 3000 + b"\xc0"])
def test_a_giver_of_begins_that_make_no_sense_has_failed(group, joiner, begin):
    assert given(group, joiner, [begin]) == []
    assert joiner.giver == 0 and joiner.next_need is not None and not joiner.begins


def test_the_begin_of_the_largest_message_is_taken(group, joiner):
    """It is encoded, so it has some bytes more than the message; here in pieces of
    101."""
    joiner.largest = 1000
    assert given(group, joiner, [begin_of(group, "A", payload=bytes(999))], size=170) == [b"state"]
    [begin] = joiner.begins.values()
    assert len(begin.payload) == 999


def test_a_state_that_ends_before_it_begins_is_none(group, joiner):
    made = msgpack.encode([joiner.place, 0, [begin_of(group, "A")], WHOLE, False])
    joiner._take(batch_of(group, "A", [made]))
    assert joiner.giver == 0 and not joiner.is_whole and not joiner.begins


def test_of_each_member_one_begin_is_kept_and_of_strangers_none(group, joiner):
    """A giver does not fill the memory with them."""
    strangers = [msgpack.encode([number, 7, 1, b"abc"]) for number in range(1, 100)]
    own = [begin_of(group, name, number) for name in "ABC" for number in (5, 6, 7)]
    assert given(group, joiner, [*strangers, *own]) == [b"state"]
    assert [begin.number for begin in joiner.begins.values()] == [7, 7, 7]


@pytest.mark.parametrize(("begin", "rest", "whole"), [
    ({}, {}, b"abcdef"), ({}, {"index": 1}, b"abef"), ({}, {"index": 3}, None),
    ({}, {"number": 8}, None), ({"number": 8}, {}, None), ({"payload": b""}, {}, b"ef"),
    ({"count": 9}, {}, b"ef"), ({}, {"payload": bytes(997)}, None),
    ({}, {"payload": bytes(996)}, b"abcd" + bytes(996))])
def test_a_begin_and_the_rest_are_a_message_if_they_fit(group, joiner, begin, rest, whole):
    given(group, joiner, [begin_of(group, "B", **begin)])
    joiner.begins.largest = 1000
    for sender in "AB":
        effects = Effects(deliveries=[rest_of(group, sender, **rest)])
        joiner._make_whole(effects)
        is_whole = sender == "B" and whole is not None
        assert [batch.payloads for batch in effects.deliveries] == [[whole]] * is_whole
        assert [batch.flags for batch in effects.deliveries] == [0] * is_whole
        assert len(joiner.to_finish) == (not is_whole) + (sender == "B")
    assert len(joiner.begins) == (whole is None)


def test_a_buffer_that_is_used_again_may_be_a_chunk(group, joiner):
    def chunks():
        buffer = bytearray(3)
        for number in range(5):
            buffer[:] = bytes([number]) * 3
            yield memoryview(buffer)
    for part in parts(joiner.place, chunks(), 1000, 1000):
        joiner._take(batch_of(group, "A", [part]))
    assert joiner.news[-1].chunks == [bytes([number]) * 3 for number in range(5)]


@pytest.mark.parametrize("chunk", ["text", 7, None, [1]])
def test_only_bytes_are_chunks(chunk):
    with pytest.raises(TypeError):
        list(parts(1, [b"a", chunk], 1000, 1000))


@pytest.mark.parametrize("stack", STACKS)
def test_messages_to_it_alone_do_not_keep_a_member_from_another_state(stack):
    """They fill its state_backlog, and then its giver dies: it waits for another one,
    and what comes before that is dropped."""
    group, new = begin_to_give(stack, 2_000, state_backlog=2_000)
    group.run_until_true(lambda: new.transfer.is_whole)
    group["B"].send_unicast("C", 30, 100)
    group.run(50)
    group["A"].crash()
    group.load(100)
    assert group.are_alike("B", "C") and group.state("C") == HAS


@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp"])
def test_parts_that_came_early_are_finished_if_nobody_needs_them(stack):
    """A goes when C has all of its state. B is to give it again, and begins before C
    has the view that says so. Then C's application is ready with A's state."""
    group, new = begin_to_give(stack, 100_000)
    group.run_until_true(lambda: new.transfer.is_whole and not new.transfer.news)
    group.run(20)
    group.network.discard = lambda source, target, datagram: (
        (source, target) == ("B", "C") and datagram[3] == INSTALL)
    group["A"].crash()
    group.run_until_true(lambda: new.transfer.early)
    new._accept(new.transfer.attempt)
    group["C"].request_turn()
    group.network.discard = None
    assert group.are_alike("B", "C") and group["B"].unicast.num_unacked() == 0


def test_a_chunk_in_many_parts_is_refused_when_it_is_too_large():
    transfer = StateTransfer(Address("A", 1), configure({"max_message_size": 100_000}))
    transfer.state, transfer.giver, transfer.place, transfer.installed = NEEDS, 9, 5, 5
    made = [decoder.decode(part) for part in parts(5, [bytes(90_000), bytes(300_000)], 1_000,
                                                   1 << 20)]
    got = []
    for part in made:
        got += transfer._add(part)
        if transfer.num_lost:
            break
    assert [len(chunk) for chunk in got] == [90_000]
    assert transfer.num_lost == 1 and 190 < part.number < 210


def test_however_many_say_need_a_view_is_made_only_so_often(group):
    """It has the same members; while it is agreed on, nobody is given anything."""
    a, b = group["A"], group["B"]
    before = len(a.views)
    for _ in range(1000):
        need = b.stack.control(NEED, Need(a.members.view_id), a.incarnation)
        a.turn([need.data])
        group.run(1)
        assert len(a.views) - before <= 10
    assert len(a.views) - before >= 5
