"""Every check can fail: each promise is broken on purpose, and the checker names it."""

import pytest

from ringcast import Address, Batch, Digest, View
from ringcast.sim.checkers import Violation
from ringcast.sim.cluster import Cluster
from ringcast.sim.network import MS, Network
from ringcast.sim.runs.draw import draw
from ringcast.sim.runs.run import Run
from ringcast.sim.runs.settings import FAULTS, RATES, Settings


@pytest.fixture
def group():
    cluster = Cluster("ABC", capacity=64).start()
    cluster.run(500)
    cluster["A"].send(*[b"%d" % k for k in range(1, 11)])
    cluster.settle()
    return cluster


def broken(check, part=""):
    return pytest.raises(Violation, match=f"^{check}: .*{part}.* event [0-9]+\\)$")


def batch_of(group, first, *payloads, sender="A"):
    return Batch(group[sender].address, first, list(payloads), 1)


def test_a_message_delivered_twice(group):
    with broken("duplicate", "next seqno of A is 11"):
        group.checkers.delivered(group["B"], batch_of(group, 10, b"10"))


def test_a_message_left_out(group):
    group["A"].log += [b"11", b"12"]
    with broken("gap", "next seqno of A is 11"):
        group.checkers.delivered(group["B"], batch_of(group, 12, b"12"))


def test_another_message_in_its_place(group):
    group["A"].log += [b"11", b"12"]
    with broken("content"):
        group.checkers.delivered(group["B"], batch_of(group, 11, b"12"))


def test_a_message_that_nobody_sent(group):
    with broken("content"):
        group.checkers.delivered(group["B"], batch_of(group, 11, b"11"))
    with broken("forgery"):
        group.checkers.delivered(group["B"], Batch(Address("X", 5), 1, [b"x"], 1))


def test_a_stream_that_begins_elsewhere_than_its_sender_said(group):
    group["C"].crash()
    group.start("C")
    group.run(500)
    group["A"].log += [b"11", b"12"]
    with broken("start", "begins after 10"):
        group.checkers.delivered(group["C"], batch_of(group, 12, b"12"))


def test_a_member_that_comes_back_and_misses_something_though_it_was_never_taken_out(group):
    group["C"].crash()
    group["A"].send(b"11", b"12", b"13")
    group.run(20)
    group.start("C", resume=Digest({group["A"].address: 10}))
    group.run(200)
    assert group["C"].consumer.first[group["A"].address] == 11
    group["C"].consumer.got.clear()
    group["C"].consumer.finished.clear()
    group.checkers._starts[group["C"].incarnation, group["A"].incarnation] = 12
    with broken("lost", "never excluded"):
        group.checkers.delivered(group["C"], batch_of(group, 13, b"13"))


def test_a_purge_of_what_somebody_has_not_finished(group):
    group["B"].consumer.finish_after = None
    group["A"].send(b"11", b"12")
    group.run(100)
    group["A"].multicast.send_window.ring.stable(12)
    with broken("purge", "B has finished those up to 10"):
        group["A"].turn()


def test_a_low_that_moves_back(group):
    group.checkers._lows[group["A"].incarnation] = 11
    with broken("window", "back from 11 to 10"):
        group["A"].turn()


class Pointers:
    capacity, nbytes = 64, 0

    def __init__(self, low, hd, hr, nbytes=0):
        self.low, self.hd, self.hr, self.nbytes = low, hd, hr, nbytes


@pytest.mark.parametrize("pointers", [(5, 4, 9), (5, 10, 9), (5, 6, 70), (5, 6, 7, 9 << 20)],
                         ids=str)
def test_pointers_out_of_order_or_bounds(group, pointers):
    window = group["B"].multicast.windows[group["A"].incarnation]
    window.stream.ring = Pointers(*pointers)
    with broken("window", "B has a window"):
        group.checkers.after_turn(group["B"])


def test_a_window_too_many(group):
    windows = group["B"].multicast.windows
    windows[7] = windows[group["A"].incarnation]
    with broken("memory", "3 windows"):
        group.checkers.after_turn(group["B"])


def test_something_kept_of_a_stranger(group):
    group["B"].multicast.budgets[7] = 5
    view = View(group["B"].views[-1].id + 1, group["B"].views[-1].members)
    group["B"].views.append(view)
    with broken("memory", "of .7., who"):
        group.checkers.viewed(group["B"], view)


# ------------------------------------------------------------------------- NAKACK2 over connections

@pytest.fixture
def linked():
    cluster = Cluster("ABC", stack="nakack2-tcp", capacity=64, discard_delivered_msgs=False).start()
    cluster.run(500)
    cluster["A"].send(*[b"%d" % k for k in range(1, 11)])
    cluster.settle()
    return cluster


def test_room_made_of_what_the_application_has_not_finished(linked):
    linked["B"].consumer.finish_after = None
    linked["A"].send(b"11", b"12")
    linked.run(20)
    linked["B"].multicast.windows[linked["A"].incarnation].ring.stable(12)
    with broken("window", "application has finished what is up to 10"):
        linked.checkers.after_turn(linked["B"])


def test_a_sender_that_is_read_though_there_is_no_room(linked):
    linked["B"].multicast.intake.held[linked["A"].incarnation] = []
    with broken("held"):
        linked.checkers.after_turn(linked["B"])


def test_a_sender_that_is_not_read_for_no_reason(linked):
    linked["B"].transport.held = {linked["A"].incarnation}
    with broken("held"):
        linked.checkers.after_turn(linked["B"])


def test_a_message_dropped_for_want_of_room(linked):
    linked["B"].multicast.counters.num_out_of_window = 1
    with broken("dropped", "no room for 1"):
        linked.checkers.after_turn(linked["B"])


def test_a_request_where_nothing_is_retransmitted(linked):
    linked["B"].multicast.windows[linked["A"].incarnation].ring.announce(12)
    look = linked["B"].multicast.ask
    with broken("mode", "kind 6"):
        for _ in range(2):
            look(linked["A"].incarnation, linked["B"].multicast.windows[linked["A"].incarnation], 0)
        linked["B"].turn()


@pytest.mark.parametrize("bound", [10, 50])
def test_a_queue_with_another_bound_than_that_of_its_mode(linked, bound):
    linked["B"].change_interval(50)
    linked["B"].multicast.queue.rebound(bound)
    if bound == 50:
        linked.checkers.after_turn(linked["B"])
        return
    with broken("mode", "bounded at 10"):
        linked.checkers.after_turn(linked["B"])


def test_a_receiver_that_keeps_and_gives_up_what_is_not_stable():
    group = Cluster("ABC", stack="nakack2-udp", capacity=64, discard_delivered_msgs=False).start()
    group.run(500)
    group["C"].consumer.finish_after = None
    group["A"].send(b"1", b"2", b"3")
    group.run(100)
    group["B"].multicast.windows[group["A"].incarnation].ring.stable(2)
    with broken("purge", "B gave up A's messages up to 2, of which C"):
        group.checkers.after_turn(group["B"])


@pytest.mark.parametrize(("change", "check"), [(0, "view id"), (-1, "view id"), (1, "view")])
def test_views_that_go_back_or_lack_their_owner(group, change, check):
    last = group["B"].views[-1]
    view = View(last.id + change, tuple(member for member in last.members if member.name != "B"))
    group["B"].views.append(view)
    with broken(check):
        group.checkers.viewed(group["B"], view)


def test_two_views_with_one_id(group):
    last = group["B"].views[-1]
    group["B"].views.append(View(last.id + 1, last.members))
    group.checkers.viewed(group["B"], group["B"].views[-1])
    group["C"].views.append(View(last.id + 1, last.members[1:]))
    with broken("view", "other members"):
        group.checkers.viewed(group["C"], group["C"].views[-1])


def test_a_leaver_whose_messages_did_not_reach_everybody(group):
    group["A"].leave()
    group.run(1000)
    group.checkers.check_agreement()
    group["C"].consumer.finished[group["A"].incarnation] = 9
    with broken("agreement", "C has A's messages up to 9"):
        group.checkers.check_agreement()


def test_a_member_that_stops_for_no_reason(group):
    group["B"].stack.effects.fault = "I do not feel like it"
    with broken("stopped", "B stopped though nobody excluded it"):
        group["B"].turn()


def test_a_group_that_does_not_come_to_rest(group):
    group["C"].crash()
    group["A"].send(b"nobody acknowledges this at C")
    with broken("quiescence"):
        group.settle(500)


@pytest.mark.parametrize(("harm", "says"), [
    (lambda group: group["B"].producer.multicasts.backlog.append(b"x"), "B is blocked"),
    (lambda group: group["A"].multicast.send_window.push(b"x"),
     "A has 1 messages that are not acknowledged"),
    (lambda group: group["C"].consumer.finished.update({group["A"].incarnation: 9}),
     "C has A's messages up to 9, of 10"),
    (lambda group: group["C"].views.append(View(1, ())), "C has the view"),
    (lambda group: group["C"].views.clear(), "C has no view"),
])
def test_what_is_owed_is_named(group, harm, says):
    assert group.owed() is None
    harm(group)
    assert says in group.owed()


def plan(**settings):
    """Return a plan without faults, for runs that are harmed in the middle."""
    none = dict.fromkeys(RATES, 0.0) | dict.fromkeys(FAULTS, 0)
    return draw(1, Settings(members=3, **none, **settings))


def test_what_is_owed_and_never_comes_fails_the_run():
    run = Run(plan())
    run.cluster.at(400 * MS, lambda: setattr(run.cluster["A"].multicast, "purge", lambda: None))
    outcome = run.outcome()
    assert outcome.check == "liveness" and "A is blocked" in outcome.sentence


def test_chatter_without_need_fails_the_run():
    run = Run(plan())

    def chatter():
        run.cluster["A"].members._schedule_hello(run.cluster["A"].clock.read(run.cluster.now))
        run.cluster["A"].request_turn()
        run.cluster.at(run.cluster.now + 50 * MS, chatter)

    run.cluster.at(400 * MS, chatter)
    assert run.outcome().check == "quiescence"


def test_an_exception_in_a_layer_fails_the_run():
    run = Run(plan())
    run.cluster.at(400 * MS, lambda: setattr(run.cluster["A"].multicast, "acks", None))
    outcome = run.outcome()
    assert outcome.check == "error" and "NoneType" in outcome.sentence


def test_a_storm_is_ended(monkeypatch):
    monkeypatch.setattr("ringcast.sim.runs.run.MAX_EVENTS", 300)
    assert Run(plan()).outcome().check == "storm"


def test_a_run_without_traffic_is_void():
    settings = Settings(messages=0, members=1, crashes=0, exclusions=0, leaves=0)
    outcome = Run(draw(1, settings)).outcome()
    assert not outcome.check and outcome.is_void


def test_healing_ends_what_the_plan_began():
    cluster = Cluster("AB", network=Network(loss=0.99)).start()
    cluster["A"].transport.send_full = 1.0
    cluster["B"].pause(10_000 * MS)
    cluster.heal()
    cluster.settle()
    assert cluster.owed() is None
