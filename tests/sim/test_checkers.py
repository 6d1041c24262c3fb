"""Every check can fail: each promise is broken on purpose, and the checker names it."""

import pytest
from forming_group import FormingGroup

from ringcast import Address, Batch, Skipped, View
from ringcast.protocols.membership.ends import Question
from ringcast.sim.checkers import Violation
from ringcast.sim.cluster import Cluster
from ringcast.sim.network import MS, Network
from ringcast.sim.runs.draw import draw
from ringcast.sim.runs.end_checks import check_ends
from ringcast.sim.runs.run import Run
from ringcast.sim.runs.settings import FAULTS, RATES, Settings


@pytest.fixture
def group():
    cluster = FormingGroup("ABC", "mcast-udp", capacity=64).start()
    cluster.settle()
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


def test_a_purge_of_what_somebody_has_not_finished(group):
    group["B"].consumer.finish_after = None
    group["A"].send(b"11", b"12")
    group.run(100)
    group["A"].multicast.send_window.ring.stable(12)
    with broken("purge", "B has finished those up to 10"):
        group["A"].turn()


def test_a_low_that_moves_back(group):
    group.checkers.windows.lows[group["A"].incarnation] = 11
    with broken("window", "back from 11 to 10"):
        group["A"].turn()


class Pointers:
    capacity, nbytes, max_bytes = 64, 0, 1 << 20

    def __init__(self, low, hd, hr, nbytes=0):
        self.low, self.hd, self.hr, self.nbytes = low, hd, hr, nbytes


@pytest.mark.parametrize("pointers", [(5, 4, 9), (5, 10, 9), (5, 6, 70), (5, 6, 7, 99 << 20)],
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
    group.checkers.installed(group["B"], view)
    group["B"].views.append(view)
    with broken("memory", "of .7., who"):
        group.checkers.viewed(group["B"], view)


# ------------------------------------------------------------------------- NAKACK2 over connections

@pytest.fixture
def linked():
    cluster = FormingGroup("ABC", "nakack2-tcp", capacity=64, discard_delivered_msgs=False).start()
    cluster.settle()
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


def test_a_request_where_nothing_is_retransmitted(linked):
    sender, layer = linked["A"].incarnation, linked["B"].multicast
    layer.windows[sender].ring.announce(12)
    with broken("mode", "kind 6"):
        for _ in range(2):
            layer.gap_looks.ask(sender, layer.windows[sender], 0)
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
    group = FormingGroup("ABC", "nakack2-udp", capacity=64, discard_delivered_msgs=False).start()
    group.settle()
    group["C"].consumer.finish_after = None
    group["A"].send(b"1", b"2", b"3")
    group.run(100)
    group["B"].multicast.windows[group["A"].incarnation].ring.stable(2)
    with broken("purge", "B gave up A's messages up to 2, of which C"):
        group.checkers.after_turn(group["B"])


@pytest.fixture
def observed(group):
    group.start("O", observes=True)
    group.settle()
    group["B"].send(b"1", b"2", b"3")
    group.settle()
    return group


def test_an_observer_that_is_not_told_of_the_end_of_a_stream(observed):
    place = observed.checkers.streams._places[observed["O"].incarnation, observed["B"].incarnation]
    place.last = 2
    observed["B"].crash()
    with broken("synchrony", "O, an observer, .* up to 2; the view says up to 3"):
        observed.settle()


def test_an_observer_that_is_told_of_a_sender_which_is_not_in_its_view(observed):
    gone = observed["B"]
    gone.crash()
    observed.settle()
    with broken("sender", "O is told"):
        observed.checkers.delivered(observed["O"], Skipped(gone.address, 4, 5, 1))


def test_a_leaver_whose_messages_did_not_reach_everybody(group):
    group["A"].leave()
    group.run(1000)
    group.checkers.check_agreement()
    group.checkers.streams._places[group["C"].incarnation, group["A"].incarnation].last = 9
    with broken("agreement", "C has A's messages up to 9"):
        group.checkers.check_agreement()


def test_a_member_that_stops_for_no_reason(group):
    group["B"].stack.effects.fault = "I do not feel like it"
    with broken("stopped", "B stopped: I do not feel like it"):
        group["B"].turn()


def test_a_group_that_does_not_come_to_rest(group):
    group["C"].crash()
    group["A"].send(b"nobody acknowledges this at C")
    with broken("quiescence", "A has the view"):
        group.settle(100)


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


def plan():
    """Return a plan without faults, for runs that are harmed in the middle."""
    none = dict.fromkeys(RATES, 0.0) | dict.fromkeys(FAULTS, 0)
    options = {"capacity": 8, "conn_close_timeout": 5, "heartbeat_interval": 50,
               "suspect_timeout": 500, "xmit_interval": 3}
    return draw(1, Settings(members=3, duration=1.0, messages=200, unicast=0, options=options,
                            **none))


def test_what_is_owed_and_never_comes_fails_the_run():
    run = Run(plan())
    run.cluster.at(400 * MS, lambda: setattr(run.cluster["A"].multicast, "purge", lambda: None))
    outcome = run.outcome()
    assert outcome.check == "liveness" and "A is blocked" in outcome.sentence


def test_chatter_without_need_fails_the_run():
    run = Run(plan())

    def chatter():
        if member := next(iter(run.cluster.living()), None):
            member.endpoint.ends.ask(Question(5), member.now)
            member.request_turn()
        run.cluster.at(run.cluster.now + 50 * MS, chatter)

    run.cluster.at(400 * MS, chatter)
    outcome = run.outcome()
    assert outcome.check == "quiescence" and "although nothing is owed" in outcome.sentence


def test_who_waits_without_end_for_a_state_that_nobody_has_fails_the_run():
    run = Run(plan())
    run.cluster.at(400 * MS, lambda: setattr(
        run.cluster["A"].members.transfer, "patient_until", 3_600_000 * MS))
    outcome = run.outcome()
    assert outcome.check == "liveness" and "A still wait for a state" in outcome.sentence


def test_too_many_heartbeats_fail_the_run():
    run = Run(plan())

    def hurry():
        for member in run.cluster.living():
            member.members.detection.interval //= 10

    run.cluster.at(400 * MS, hurry)
    outcome = run.outcome()
    assert outcome.check == "quiescence"
    assert "heartbeats in 20 intervals" in outcome.sentence


def test_a_leaver_that_stays_in_the_views_of_the_others_fails_the_run(monkeypatch):
    monkeypatch.setattr("ringcast.sim.runs.run.HOLD_OFF", 0)
    monkeypatch.setattr("ringcast.sim.runs.run.SUSPICIONS", 0)
    run = Run(plan())

    def forget():
        for member in run.cluster.living():
            member.members.leaving.hear = lambda *arguments: None
            member.members.detection.gone = lambda now: set()

    run.cluster.at(400 * MS, forget)
    outcome = run.outcome()
    assert outcome.check == "goodbye" and " leaves: " in outcome.sentence


def test_an_answer_about_the_end_of_a_stream_must_be_true(group):
    gone = group["A"]
    gone.crash()
    group.settle()
    check_ends(group, 1000 * MS)
    group["C"].consumer.finished[gone.incarnation] = 9
    with broken("ends", "C says that it has .*, and has it up to 9"):
        check_ends(group, 1000 * MS)


def test_an_exception_in_a_layer_fails_the_run():
    run = Run(plan())
    run.cluster.at(400 * MS, lambda: setattr(run.cluster["A"].multicast, "acks", None))
    outcome = run.outcome()
    assert outcome.check == "error" and "NoneType" in outcome.sentence


def test_a_storm_is_ended(monkeypatch):
    monkeypatch.setattr("ringcast.sim.runs.run.MAX_EVENTS", 300)
    assert Run(plan()).outcome().check == "storm"


def test_a_run_without_traffic_is_void():
    settings = Settings(messages=0, unicast=0, members=1, crashes=0, exclusions=0, leaves=0)
    outcome = Run(draw(1, settings)).outcome()
    assert not outcome.check and outcome.is_void


def test_healing_ends_what_the_plan_began():
    cluster = Cluster("AB", network=Network(loss=0.99)).start()
    cluster["A"].transport.send_full = 1.0
    cluster["B"].pause(10_000 * MS)
    cluster.heal()
    cluster.settle()
    assert cluster.owed() is None
