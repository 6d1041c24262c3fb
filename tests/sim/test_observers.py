"""Observers: nobody waits for them, and they are told what they missed."""

import pytest
from msgspec.structs import replace

from ringcast import Skipped
from ringcast.config import nanoseconds
from ringcast.flags import FRAGMENT, Flag
from ringcast.protocols.frag import cut
from ringcast.protocols.membership.coordinator import JOINING
from ringcast.protocols.membership.ends import Question
from ringcast.protocols.membership.messages import ALIVE
from ringcast.protocols.multicast.base import HIGHEST, XMIT_REQ, Highest, XmitReq
from ringcast.protocols.multicast.fetching import HELD
from ringcast.protocols.multicast.mcast import ACK, Ack
from ringcast.protocols.multicast.observing import OBSERVERS_ROOM
from ringcast.sim.cluster import Cluster, Observer
from ringcast.sim.network import MS
from ringcast.sim.runs.draw import draw
from ringcast.sim.runs.plan import Action
from ringcast.sim.runs.replay import replay
from ringcast.sim.runs.run import Run, simulate
from ringcast.sim.runs.settings import Settings

STACKS = ["mcast-udp", "mcast-tcp", "nakack2-udp", "nakack2-tcp"]
UDP = ["mcast-udp", "nakack2-udp"]
OPTIONS = {"suspect_timeout": 200, "heartbeat_interval": 10, "form_margin": 20,
           "seek_interval": 5, "capacity": 16, "discard_delivered_msgs": False}
AT_ONCE = 2

# Seeds that failed once, and why.
KEPT = [
    # An observer skipped beyond its report, and its sender died.
    (Settings(stack="nakack2-tcp", observers=2, members=4, crashes=4, leaves=2, partitions=2,
              unicast=0), 105),
    # An observer whose view had a dead member coordinated somebody new.
    (Settings(stack="mcast-udp", observers=2), 21),
    # What the others had finished while members were absent ended for an observer where
    # it stood.
    (Settings(stack="nakack2-udp", observers=2, members=5, crashes=10, leaves=0, unicast=0,
              threads=0, messages=100, loss=0.4, duration=2.0), 42),
]


class Told(Observer):
    """Notes what is delivered to the observer O, and what is sent to it alone."""

    def __init__(self, group):
        self.group = group
        self.batches, self.kinds = [], []

    def delivered(self, member, batch):
        if member.name == "O":
            self.batches.append(batch)

    def sent(self, member, dest, datagram):
        if dest == self.group["O"].incarnation:
            self.kinds.append(member.stack.kind(datagram[3]).name)

    def of(self, sender):
        """Return what O was given of a sender: "skip" or "got", first and last."""
        return [("skip" if isinstance(batch, Skipped) else "got", batch.first, batch.last)
                for batch in self.batches if batch.sender.name == sender]

    def skipped(self, sender):
        return [seqno for what, first, last in self.of(sender) if what == "skip"
                for seqno in range(first, last + 1)]

    def got(self, sender):
        return [seqno for what, first, last in self.of(sender) if what == "got"
                for seqno in range(first, last + 1)]


def observed(stack, names="ABO", **options):
    """Return a group with the observer O, in one view."""
    group = Cluster(names, stack=stack, **(OPTIONS | options))
    group.start(*(name for name in names if name != "O"))
    group.start("O", observes=True)
    group.settle()
    group.observer = Told(group)
    return group


def stop(group):
    """Let the application of O finish nothing."""
    group["O"].consumer.finish_after, group["O"].endpoint.max_undelivered = None, 5


def wake(group):
    group["O"].endpoint.max_undelivered = 65_536
    group["O"].consumer.wake()
    group.settle()


@pytest.fixture(params=STACKS)
def group(request):
    return observed(request.param)


# ------------------------------------------------------------------------------------ the promises

def test_a_view_lists_its_observers_last_and_one_never_leads(group):
    view = group["A"].views[-1]
    assert [each.name for each in view.observers] == ["O"]
    assert view.names[-1] == "O" and view.coordinator.name != "O"
    group.start("C")
    group.settle()
    assert group["A"].views[-1].names[-1] == "O"


def test_an_observer_that_is_fast_is_given_everything(group):
    group["A"].offer(200, 10)
    group["B"].offer(100, 10)
    group.settle()
    assert group.observer.of("A")[0][0] == "got" and not group.observer.skipped("A")
    assert group.observer.got("A") == list(range(1, 201))
    assert group.observer.got("B") == list(range(1, 101))


def test_a_group_goes_on_while_the_application_of_an_observer_stands_still(group):
    stop(group)
    group["A"].offer(1000, 10)
    group.settle()
    assert group["A"].multicast.unacked() == 0
    assert group["B"].consumer.finished[group["A"].incarnation] == 1000
    told = group.observer
    assert told.got("A") == [1, 2, 3, 4, 5] and not told.skipped("A")
    wake(group)
    assert told.got("A") + told.skipped("A") == list(range(1, 1001))
    assert len(told.skipped("A")) > 900


def test_one_that_is_slow_goes_on_from_the_newest(group):
    """It is given runs of what was sent last, and between them it is told what it
    missed: in all, every seqno once and in order."""
    group["O"].consumer.finish_after, group["O"].endpoint.max_undelivered = 2 * MS, 4
    group["A"].offer(2000, 10)
    group.settle()
    wake(group)
    told = group.observer.of("A")
    assert [(first, last) for _, first, last in told] == [
        (first, last) for _, first, last in sorted(told, key=lambda each: each[1])]
    assert sorted(group.observer.got("A") + group.observer.skipped("A")) == list(range(1, 2001))
    assert len([what for what, *_ in told if what == "skip"]) > 1


def test_what_waits_for_an_application_that_stands_still_is_bounded(group):
    stop(group)
    for _ in range(20):
        group["A"].offer(300, 10)
        group["B"].offer(300, 10)
        group.run(100)
    layer = group["O"].multicast
    assert len(layer.observing.untold) <= 2
    assert all(len(window.ring) <= window.ring.capacity for window in layer.windows.values())
    assert len(group.observer.batches) < 30
    wake(group)


@pytest.mark.parametrize("stack", UDP)
def test_an_application_is_told_once_of_skips_that_follow_each_other(stack):
    group = observed(stack)
    group["O"].consumer.finish_after = None
    for _ in range(10):
        group.network.cut = {("A", "O")}
        group["A"].send(b"lost")
        group.run(30)
        group.network.cut = set()
        group.run(300)
    assert group.observer.of("A") == [("skip", 1, 1)]
    wake(group)
    assert group.observer.of("A") == [("skip", 1, 1), ("skip", 2, 10)]


def test_nothing_is_skipped_that_low_has_only_overtaken():
    """The coordinator, another one, tells what is stable: over another connection."""
    group = observed("nakack2-tcp", stable_interval=1)
    sender = next(name for name in "AB" if name != group["A"].views[-1].coordinator.name)
    group.network.clogged = {(sender, "O"): group.now + 8 * MS}
    for _ in range(4):
        group[sender].send(b"late")
        group.run(2)
    group.network.clogged = {}
    group.settle()
    assert group.observer.got(sender) == [1, 2, 3, 4]


def test_a_view_comes_behind_what_was_skipped_before_it(group):
    stop(group)
    group["B"].offer(500, 10)
    group.settle()
    group["B"].leave()
    group.run(500)
    assert len(group["O"].views[-1]) == 3               # it has not taken what comes before
    wake(group)
    assert group["O"].views[-1].names == ("A", "O")
    assert sorted(group.observer.got("B") + group.observer.skipped("B")) == list(range(1, 501))


@pytest.mark.parametrize(("skipped", "told"), [(2, None), (3, None), (5, (4, 5))])
def test_what_was_skipped_in_a_view_that_is_not_shown_is_not_told(skipped, told):
    observer = observed("mcast-udp")["O"].multicast
    window, *_ = observer.windows.values()
    place = window.ring.hd
    observer.flushing.skips[window.stream] = place + 3      # it begins there for the application
    observer.observing.skip(window, place + skipped)
    expected = told and tuple(place + each for each in told)
    assert observer.observing.untold.get(window.stream) == expected


@pytest.mark.parametrize("stack", STACKS)
def test_of_one_that_died_an_observer_is_given_nothing_that_the_others_lack(stack):
    group = observed(stack)
    group.network.cut = {("B", "A")}                    # only O hears B
    group["B"].offer(3, 10)
    group.run(20)
    group["B"].crash()
    group.network.cut = set()
    group.settle()
    assert group["A"].consumer.finished.get(group.observer.batches[0].sender.incarnation) == 3
    assert group.observer.got("B") == [1, 2, 3]


@pytest.mark.parametrize("stack", STACKS)
def test_it_may_send_and_only_the_others_acknowledge_that(stack):
    group = observed(stack, names="ABOP"[:3])
    group.start("P", observes=True)
    group.settle()
    group["P"].consumer.finish_after = None
    group["O"].offer(300, 10)
    group.settle()
    assert group["O"].multicast.unacked() == 0
    assert group["A"].consumer.finished[group["O"].incarnation] == 300
    group["P"].consumer.wake()
    group.settle()


@pytest.mark.parametrize("stack", UDP)
def test_what_is_gone_with_a_dead_sender_is_told_before_the_view_without_it(stack):
    group = observed(stack)
    group.network.cut = {("B", "O")}
    group["B"].send(b"1", b"2", b"3")
    group.run(2)
    group["B"].crash()
    group.network.cut = set()
    group.settle()
    assert group["O"].views[-1].names == ("A", "O")
    assert sorted(group.observer.got("B") + group.observer.skipped("B")) == [1, 2, 3]


@pytest.mark.parametrize("stack", UDP)
def test_what_the_others_have_settled_is_told_though_only_the_observer_reports_it(stack):
    """It lacks the end of a dead sender, and hears neither of that nor that the view is
    settled, until the next one."""
    group = observed(stack, names="ABDO")
    leader = group["O"].views[-1].coordinator.name
    sender = next(name for name in "ABD" if name != leader)
    group[sender].send(b"1")
    group.settle()
    group.network.cut = {(sender, "O")}
    group[sender].send(b"2", b"3", b"4")
    group.run(2)
    group[sender].crash()
    group.network.discard = lambda source, target, datagram: (
        target == "O" and datagram[3] in (HELD, ALIVE))
    group.run(250)
    assert group[leader].members.settling.is_settled
    group[leader].crash()
    group.run(250)
    group.network.discard = None
    group.settle()
    assert group.observer.of(sender)[1:] == [("skip", 2, 4)]
    assert [len(view) for view in group["O"].views[-3:]] == [4, 3, 2]


def test_an_observer_does_not_tell_where_a_stream_ended_for_it(group):
    group["B"].offer(10, 10)
    group.settle()
    group["B"].leave()
    group.settle()
    a, o, gone = group["A"], group["O"], group["B"].incarnation
    question = Question(gone)
    a.endpoint.ends.ask(question, a.now)
    a.turn()
    group.run(100)
    answers = a.endpoint.ends.answers(question)
    assert answers[o.incarnation] is None and answers[a.incarnation].last == 10


# ------------------------------------------------------------------------------------- what is lost

@pytest.mark.parametrize("stack", UDP)
def test_what_an_observer_lost_is_repeated_while_its_sender_has_it(stack):
    group = observed(stack)
    group["B"].consumer.finish_after = None             # so A keeps all
    group.network.cut = {("A", "O")}
    group["A"].send(b"1", b"2")
    group.run(1)
    group.network.cut = set()
    group.run(200)
    assert group.observer.got("A") == [1, 2]


@pytest.mark.parametrize("stack", UDP)
def test_a_lost_end_that_is_gone_is_told_though_nothing_follows(stack):
    group = observed(stack)
    group.network.cut = {("A", "O")}
    group["A"].send(b"1", b"2")
    group.run(40)
    assert group["A"].multicast.unacked() == 0
    group.network.cut = set()
    group.run(300)                          # O asks for more once a second, so not by now
    assert group.observer.of("A") == [("skip", 1, 2)]


@pytest.mark.parametrize("sender", "AB")
@pytest.mark.parametrize("stack", UDP)
def test_a_lost_end_is_told_though_the_link_was_down_until_its_sender_said_no_more(stack, sender):
    group = observed(stack, suspect_timeout=10_000)
    group[sender].send(b"1", b"2", b"3")
    group.settle()
    group.network.cut = {(sender, "O")}
    group[sender].send(b"4", b"5", b"6")
    group.run(1_000)
    group.network.cut = set()
    group.run(3_000)
    assert group.observer.of(sender) == [("got", 1, 3), ("skip", 4, 6)]


@pytest.mark.parametrize("stack", UDP)
def test_senders_of_which_an_observer_has_all_answer_no_question(stack):
    group = observed(stack)
    group["A"].send(b"1")
    group.run(2_000)
    group.observer.kinds.clear()
    before = group["O"].multicast.counters.xmit_reqs_sent
    group.run(5_000)
    asked = group["O"].multicast.counters.xmit_reqs_sent - before
    assert asked == 2 * 5                               # once a second
    assert not {"highest", "repeat"} & set(group.observer.kinds)


def test_a_request_for_what_is_gone_is_answered_with_one_word_on_low():
    group = observed("mcast-udp")
    group["A"].offer(10, 10)
    group.settle()
    group.observer.kinds.clear()
    a, o = group["A"], group["O"]
    question = o.stack.control(XMIT_REQ, XmitReq([(1, 10)]), a.incarnation).data
    a.turn([question])
    assert group.observer.kinds == ["highest"]


@pytest.mark.parametrize("stack", UDP)
def test_an_observer_with_a_slow_application_asks_for_nothing(stack):
    group = observed(stack)
    stop(group)
    group["A"].offer(10, 10)
    group.run(50)
    before = group["O"].multicast.counters.xmit_reqs_sent
    group.network.cut = {("A", "O")}
    group["A"].offer(5, 10)
    group.run(2)
    group.network.cut = set()
    group["A"].offer(200, 10)
    group.run(300)
    assert group["O"].multicast.counters.xmit_reqs_sent == before
    wake(group)


def test_what_came_behind_low_is_kept_and_not_asked_for_again():
    group = observed("mcast-udp")
    a, o = group["A"], group["O"]
    group.network.cut = {("A", "O")}
    group["A"].send(b"1")
    group.run(0.4)                                      # all but O have it
    group["B"].consumer.finish_after = None
    group.network.cut = {("O", "A")}                    # nobody hears that O asks
    group["A"].send(b"2", b"3")
    group.run(40)
    assert a.multicast.send_window.ring.low == 1
    assert group.observer.of("A")[0] == ("skip", 1, 1)
    assert group.observer.got("A") == [2, 3]
    assert o.multicast.counters.xmit_rsps_received == 0


def test_an_observer_over_a_connection_has_nothing_repeated_that_found_no_room():
    group = observed("nakack2-tcp")
    before = group["O"].multicast.counters.resyncs_sent
    stop(group)
    group["A"].offer(1000, 10)
    group.settle()
    counters = group["O"].multicast.counters
    assert (counters.resyncs_sent, counters.num_dropped_for_resync) == (before, 0)
    assert group["A"].multicast.counters.xmit_rsps_sent == 0
    wake(group)


def leave_a_gap(group, sender):
    """Let O have no room for the last but one of 66 messages. STABILITY tells of it
    once: with the one behind it."""
    observer = group["O"]
    assert OBSERVERS_ROOM * OPTIONS["capacity"] == 64
    stop(group)
    sender.offer(63, 10)
    group.run(2_000)
    sender.send(b"fills the window")                    # and is voted on at once
    group.run(2)
    sender.send(b"finds no room")
    group.run(2)
    observer.endpoint.max_undelivered = 65_536
    observer.consumer.wake()
    group.run(2)
    sender.send(b"finds room")
    group.run(2)
    assert observer.multicast.windows[sender.incarnation].ring.num_missing == 1


def test_behind_what_found_no_room_an_observer_goes_on_though_nothing_follows():
    group = observed("nakack2-tcp", stable_interval=100)
    leave_a_gap(group, group["A"])
    group.settle()
    assert group.observer.got("A") == [*range(1, 65)]
    assert group.observer.skipped("A") == [65, 66]      # LOW is behind both


def test_so_does_one_that_coordinates_others():
    group = observed("nakack2-tcp", stable_interval=100)
    group.start("P", observes=True)
    group.settle()
    for name in "AB":
        group[name].crash()
    group.run(3_000)
    assert group["O"].views[-1].names == ("O", "P")
    leave_a_gap(group, group["P"])
    group.settle()
    assert group.observer.got("P") == [*range(1, 65)] and group.observer.skipped("P") == [65, 66]


def test_one_low_that_is_false_makes_nothing_skipped():
    group = observed("mcast-udp")
    a, o = group["A"], group["O"]
    lie = Highest(5000, 5000, o.multicast.view_id)
    o.arrive(a.stack.control(HIGHEST, lie, 0).data)
    group.run(0.2)
    group["A"].offer(50, 10)
    group.settle()
    assert group.observer.got("A") == list(range(1, 51))


def test_an_ack_of_an_observer_makes_nobody_wait_for_it():
    group = observed("mcast-udp")
    a, o = group["A"], group["O"]
    a.arrive(o.stack.control(ACK, Ack({a.incarnation: 0}, 1000), a.incarnation).data)
    group.run(1)
    stop(group)
    group["A"].offer(500, 10)
    group.settle()
    assert a.multicast.unacked() == 0


def test_of_a_large_message_whose_begin_it_missed_it_is_told_to_the_end():
    group = observed("mcast-udp", max_bundle_size=1500)
    group.network.cut = {("A", "O")}
    group["B"].consumer.finish_after = 10 * MS
    group["A"].offer(1, 150_000)                        # more fragments than a window; two come
    group.run(2)
    group.network.cut = set()
    group.settle()
    group["A"].offer(2, 10)
    group.settle()
    [end] = group["A"].log.larges
    assert group.observer.skipped("A") == list(range(1, end + 1))
    assert group.observer.got("A") == [end + 1, end + 2]


@pytest.mark.parametrize("flags", [FRAGMENT, FRAGMENT | Flag.OOB])
def test_so_it_is_if_another_message_stands_between_its_parts(flags):
    # In a window of 8 the begin of a large message is not kept for those who join.
    group = observed("mcast-udp", max_bundle_size=1100, capacity=8)
    group.checkers.streams.violated = lambda *_: None   # they know nothing between parts
    a = group["A"]
    window = a.multicast.send_window
    parts = cut(bytes(6000), 1, a.config.max_bundle_size)
    group.network.cut = {("A", "O")}
    window.push_many(parts[:3], 0, flags)
    a.flush(None, False)
    group.run(60)
    group.network.cut = set()
    group.run(500)                                      # O skips what has come to the others
    window.push(b"between", 0)
    window.push_many(parts[3:], 0, flags)
    window.push(b"behind", 0)
    a.flush(None, False)
    group.run(1000)
    told = group.observer.of("A")
    assert told == sorted(told, key=lambda each: each[1])
    assert group.observer.skipped("A") == [1, 2, 3, 5, 6, 7] and group.observer.got("A") == [4, 8]


@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp"])
def test_what_it_was_given_between_the_parts_of_a_large_message_was_not_skipped(stack):
    group = observed(stack, max_bundle_size=1100, capacity=8)
    group.checkers.streams.violated = lambda *_: None   # they know nothing between parts
    a = group["A"]
    window = a.multicast.send_window
    parts = cut(bytes(6000), 1, a.config.max_bundle_size)
    window.push_many(parts[:2], 0, FRAGMENT)
    window.push(b"between", 0)
    a.flush(None, False)
    group.run(60)
    group.network.cut = {("A", "O")}
    window.push_many(parts[2:5], 0, FRAGMENT)
    a.flush(None, False)
    group.run(60)
    group.network.cut = set()
    group.run(500)                                      # O skips what has come to the others
    window.push_many(parts[5:], 0, FRAGMENT)
    window.push(b"behind", 0)
    a.flush(None, False)
    group.run(1000)
    last = 2 + len(parts)
    assert group.observer.got("A") == [3, last] and group.observer.skipped("A") == [*range(4, last)]


# -------------------------------------------------------------------------------------- the group

@pytest.mark.parametrize("stack", STACKS)
def test_a_view_does_not_wait_long_for_an_observer_whose_process_stands_still(stack):
    group = observed(stack, suspect_timeout=2_000)
    group.checkers.note_cause()
    group["O"].pause(nanoseconds(60_000.0))
    group["A"].offer(100, 10)
    group.start("C")
    group.run(JOINING / MS + 400)
    assert "C" in group["A"].views[-1].names
    assert group["A"].multicast.unacked() == 0


@pytest.mark.parametrize("stack", STACKS)
def test_a_view_is_settled_without_the_word_of_an_observer(stack):
    group = observed(stack, suspect_timeout=2_000)
    group.checkers.note_cause()
    group.deaths.set("O", "installed", False)
    group.start("C")
    group.run(300)
    assert not group["O"].alive and "O" in group["A"].views[-1].names
    assert group["A"].members.settling.is_settled and group["C"].members.settling.is_settled


@pytest.mark.parametrize("stack", STACKS)
def test_an_observer_forms_no_group(stack):
    group = Cluster("AO", stack=stack, **OPTIONS).start("O", observes=True)
    group.run(2_000)
    assert group["O"].views == []
    group.start("A")
    group.settle()
    assert group["O"].views[-1].names == ("A", "O")


def test_observers_that_are_left_alone_are_taken_into_the_group_of_who_comes(group):
    for name in "AB":
        group[name].crash()
    group.run(3_000)
    assert group["O"].views[-1].names == ("O",) and not group["O"].views[-1].primary
    group.start("C")
    group.settle(20_000)
    assert group["C"].views[-1].names == ("C", "O") == group["O"].views[-1].names


def test_a_majority_is_one_of_those_who_do_not_observe():
    group = Cluster("ABCOPQ", stack="mcast-udp", partition="primary", min_members=2, **OPTIONS)
    group.start("A", "B", "C")
    for name in "OPQ":
        group.start(name, observes=True)
    group.settle()
    assert group["A"].views[-1].primary
    group.checkers.note_cause()
    group.network.cut = {link for one in "AOPQ" for other in "BC"
                         for link in ((one, other), (other, one))}
    group.run(3_000)
    assert group["B"].views[-1].primary and not group["A"].views[-1].primary
    group.network.cut = set()
    group.settle(20_000)
    assert group["A"].views[-1].primary


def delivered_in_a_steady_load(members, observes=""):
    """Return how many messages B is given while A sends as fast as it can, in simulated
    time. Who observes finishes nothing."""
    plan = draw(0, Settings(stack="mcast-udp", steady=0, members=members, duration=0.3))
    starts = {name: replace(start, observes=name in observes)
              for name, start in plan.starts.items()}
    stops = [Action(10 * MS, "slow", name, (None, 1000)) for name in observes]
    run = Run(replace(plan, starts=starts, actions=[*stops, *plan.actions]))
    assert not run.outcome().check
    return run.cluster["B"].multicast.counters.num_msgs_delivered


def test_two_members_are_as_fast_beside_an_observer_that_stands_still():
    alone, observed = delivered_in_a_steady_load(2), delivered_in_a_steady_load(3, "C")
    assert observed > 0.98 * alone > 10_000


# --------------------------------------------------------------------------------- drawn at random

@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("first", [pytest.param(first, marks=[] if first == 0 else
                                                pytest.mark.prove)
                                   for first in range(0, 10, AT_ONCE)])
def test_no_promise_is_broken_with_observers(stack, first):
    settings = Settings(stack=stack, observers=1 + first % 4 // 2, duration=0.5)
    for seed in range(first, first + AT_ONCE):
        outcome = simulate(seed, settings)
        assert not outcome.check, f"{outcome.sentence}\n{replay(seed, settings)}"


@pytest.mark.parametrize(("settings", "seed"), KEPT)
def test_what_failed_once_with_observers_stays_mended(settings, seed):
    outcome = simulate(seed, settings)
    assert not outcome.check, f"{outcome.sentence}\n{replay(seed, settings)}"
