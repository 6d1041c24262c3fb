"""Where the stream of a departed sender ended, as the others tell it who asks."""

import pytest

from ringcast.protocols.membership.ends import ASK_END, END, AskEnd, End, Question
from ringcast.sim.cluster import Cluster
from ringcast.sim.network import MS, Network

STACKS = ["mcast-udp", "mcast-tcp", "nakack2-udp", "nakack2-tcp"]
OPTIONS = {"heartbeat_interval": 20, "suspect_timeout": 200, "form_margin": 50, "seek_interval": 10}


def grouped(stack="mcast-udp", names="ABC", seed=0, loss=0.0, **options):
    """Return a group in which B has sent something, and died in the middle of it."""
    network = Network(delay=(50_000, 500_000), **({} if stack.endswith("tcp") else {"loss": loss}))
    group = Cluster(names, seed=seed, stack=stack, network=network,
                    **(OPTIONS | options)).start()
    group.settle()
    return group


def die(group, after=2):
    """Let B send, and die `after` milliseconds later. Return its incarnation."""
    group["B"].offer(400, 100)
    group.run(after)
    group["B"].crash()
    return group["B"].incarnation


def ask(group, name, incarnation, milliseconds=5000):
    """Let a member ask. Return what was answered, by name; None if it never was."""
    member = group[name]
    ends = member.endpoint.ends
    question = Question(incarnation)
    ends.ask(question, member.now)
    member.request_turn()
    end = group.now + milliseconds * MS
    while ends.answers(question) is None and group.now < end:
        group.run(1)
    answers = ends.answers(question)
    ends.stop_asking(question)
    assert answers is None or ends.deadline() is None
    return answers and {group.incarnations[member].name: taken and tuple(taken)
                        for member, taken in answers.items()}


def finished(group, name, incarnation):
    return group[name].consumer.finished.get(incarnation, 0)


@pytest.mark.parametrize("stack", STACKS)
def test_all_survivors_have_the_same_end_which_their_applications_have_finished(stack):
    for seed in range(6):
        group = grouped(stack, "ABCD", seed, loss=0.2)
        gone = die(group, after=1 + seed)
        answers = ask(group, "A", gone)
        assert len(set(answers.values())) == 1 and answers.keys() == set("ACD")
        assert answers["A"] == (0, finished(group, "A", gone)) == (0, finished(group, "D", gone))
        assert group["A"].views[-1].departed.get(group["B"].address, 0) == answers["A"][1]


def test_the_next_member_of_that_name_asks_as_soon_as_it_has_joined():
    group = grouped()
    gone = die(group)
    group.start("B")
    answers = ask(group, "B", gone)
    assert answers == {"A": (0, finished(group, "A", gone)), "B": None,
                       "C": (0, finished(group, "C", gone))}


def test_who_came_later_does_not_know_and_who_came_in_the_middle_has_not_the_begin():
    group = grouped(names="AB")
    group["B"].offer(100, 100)
    group.settle()
    group.start("M")
    group.settle()
    gone = die(group)
    group.settle()
    group.start("L")
    group.settle()
    end = finished(group, "A", gone)
    assert ask(group, "L", gone) == {"A": (0, end), "M": (100, end), "L": None}


@pytest.mark.parametrize("stack", STACKS)
def test_who_takes_no_more_messages_says_what_it_has_taken(stack):
    group = grouped(stack)
    group["B"].offer(20, 100)
    group.settle()
    group["C"].stop_receiving()
    gone = die(group)
    answers = ask(group, "A", gone)
    assert answers["C"] == (0, finished(group, "C", gone)) == (0, 20)
    assert answers["A"][1] > 20


@pytest.mark.parametrize("stack", STACKS)
def test_who_never_took_messages_knows_no_stream(stack):
    group = grouped(stack, names="AB")
    group.start("P", receiving=False)
    group.settle()
    assert ask(group, "A", die(group))["P"] is None


def test_nobody_answers_while_the_member_is_in_the_view():
    group = grouped()
    assert ask(group, "A", group["B"].incarnation, milliseconds=1000) is None


def test_nobody_answers_before_its_application_has_finished_the_stream():
    group = grouped()
    group["C"].consumer.finish_after = None
    gone = die(group)
    group.run(2000)
    assert ask(group, "A", gone, milliseconds=1000) is None
    assert group["C"].multicast.flushing.ended.is_outstanding(gone)


def test_nobody_knows_an_incarnation_that_never_was():
    assert ask(grouped(), "A", 4711) == {"A": None, "B": None, "C": None}


def test_the_question_is_repeated_until_all_have_answered():
    group = grouped(names="ABCD")
    gone = die(group)
    group.settle()
    group["D"].pause(150 * MS)
    began = group.now
    answers = ask(group, "A", gone)
    assert answers["D"] == answers["A"] and group.now - began > 100 * MS


def test_the_last_1024_are_remembered_and_no_more():
    group = grouped(names="AB")
    flush = group["A"].multicast.flushing
    stream = group["A"].multicast.windows[group["B"].incarnation].stream

    class Other:
        outstanding = 0

        def __init__(self, incarnation):
            self.sender = stream.sender.__class__("x", incarnation)

        def retire(self):
            """Keep nothing."""

    for incarnation in range(1, 1026):
        flush.ended.note(Other(incarnation), 0, incarnation)
    assert len(flush.ended) == 1024 and flush.ended.taken(1) is None
    assert flush.ended.taken(1025) == (0, 1025)


def test_strangers_get_no_answer_and_give_none():
    group = grouped(names="AB")
    member, stranger = group["A"], 4711
    sent = []
    member.endpoint.ends.below.send = lambda packets, now: sent.extend(packets)
    member.endpoint.ends._on_ask_end(stranger, AskEnd(1), member.now)
    assert sent == []
    question = Question(1)
    member.endpoint.ends.asked[question] = None
    member.endpoint.ends._on_end(stranger, End(1, True, 0, 9), member.now)
    assert question.given == {}


def test_numbers_that_are_too_large_are_counted():
    group = grouped(names="AB")
    member, other = group["A"], group["B"].incarnation
    ends = member.endpoint.ends
    bodies = [(ASK_END, AskEnd(-1)), (END, End(1, True, 0, -5)), (END, End(1, False, 0, -1))]
    for number, (kind, body) in enumerate(bodies, 1):
        datagram = group["B"].stack.control(kind, body, member.incarnation)
        assert datagram.sender == other
        member.stack.receive([datagram.data], member.now)
        assert ends.num_bad == number


def test_what_was_told_of_an_earlier_end_does_not_count_when_the_sender_is_back():
    """B was cut off: A has told where its stream ended then."""
    group = grouped("mcast-udp", "ABC", 1)
    a, b = group["A"], group["B"]
    b.offer(5, 10)
    group.settle()
    group.checkers.views.has_cause = True
    group.network.cut |= {(one, other) for one in "ABC" for other in "ABC"
                          if (one == "B") != (other == "B")} | {("C", "A")}
    question = Question(b.incarnation)
    a.endpoint.ends.ask(question, a.now)
    a.request_turn()
    while a.incarnation not in question.given:
        group.run(1)
    group.network.cut.clear()
    while b.address not in a.views[-1]:
        group.run(1)
    assert question.given == {}
    b.offer(7, 10)
    group.settle()
    b.crash()
    while (answers := a.endpoint.ends.answers(question)) is None:
        group.run(1)
    assert {taken.last for taken in answers.values()} == {12}
