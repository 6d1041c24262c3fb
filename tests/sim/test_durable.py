"""Durable members: they die, others send, die and come meanwhile, and they go on where
they stood."""

import pytest
from msgspec.structs import replace

from ringcast import Digest
from ringcast._core import wire
from ringcast.protocols.membership.messages import LEAVE, Leave
from ringcast.protocols.multicast.base import DATA, REPEAT
from ringcast.protocols.multicast.fetching import HELD
from ringcast.protocols.multicast.mcast import ACK, Ack
from ringcast.protocols.seqnos import MODULUS
from ringcast.sim.checkers import Violation
from ringcast.sim.cluster import Cluster
from ringcast.sim.runs.replay import replay
from ringcast.sim.runs.run import simulate
from ringcast.sim.runs.settings import Settings

STACKS = ["mcast-udp", "mcast-tcp", "nakack2-udp", "nakack2-tcp"]
OPTIONS = {"suspect_timeout": 100, "heartbeat_interval": 10, "form_margin": 20,
           "seek_interval": 5, "discard_delivered_msgs": False}
AT_ONCE = 6


class Play:
    """A group with the durable member D, and perhaps `others` that are durable."""

    def __init__(self, stack, names="ABD", others="", **options):
        self.cluster = Cluster(names, stack=stack, **(OPTIONS | options))
        for name in names.replace("D", ""):
            self.cluster.start(name, durable=name in others)
        self.life(None)
        self.cluster.settle()

    def __getitem__(self, name):
        return self.cluster[name]

    def life(self, resume):
        self.cluster.start("D", durable=True, resume=resume)

    def come_back(self):
        self.life(self["D"].consumer.durable())

    def run(self, milliseconds):
        self.cluster.run(milliseconds)

    def die(self, name):
        """Let a member die, and the others notice it."""
        self[name].crash()
        self.run(1_000)
        assert name not in self["A"].views[-1].names

    def absent(self, name="A"):
        return [address.name for address in self[name].views[-1].absent]

    def got(self, sender, *lives):
        """Return how many messages of a sender D has finished in these lives."""
        return sum(len(life.consumer.got.get(sender.address, [])) for life in lives)

    def oob(self, sender, life):
        """Return the seqnos of the OOB messages of a sender that D was given."""
        return self.cluster.checkers.streams.oob[life.incarnation, sender.incarnation]

    def end(self):
        self.cluster.settle(20_000)
        self.run(1_000)                         # what was held is freed soon after that
        self.cluster.checkers.check_agreement()


@pytest.mark.parametrize("stack", STACKS)
def test_senders_use_a_whole_window_while_somebody_is_absent(stack):
    play = Play(stack, socket_bytes=200_000, max_bytes=4 << 20)
    play.die("D")
    a, window = play["A"], play["A"].multicast.send_window
    for has_room in (True, False):
        a.offer(3000, 1000)
        play.run(500)
        assert (not a.producer.multicasts.backlog) == has_room
        assert window.ring.nbytes <= a.config.max_bytes * 3 // 2
    assert len(play["B"].consumer.got[a.address]) == (window.ring.hr - window.ring.low)
    play.come_back()
    play.run(1000)
    assert play.got(a, play["D"]) == 6000
    assert window.ring.max_bytes == window.credit < 200_000
    play.end()


@pytest.mark.parametrize("stack", STACKS)
def test_who_is_there_gets_a_large_message_that_is_kept_for_one_that_is_absent(stack):
    """It is larger than the credit, and what others have acknowledged is on its way to
    nobody."""
    play = Play(stack, receive_budget=20_000, max_bundle_size=2000)
    a, b, d = play["A"], play["B"], play["D"]
    a.offer(5, 10)
    play.cluster.settle()
    play.die("D")
    a.offer(19, 1_000)
    a.offer(1, 200_000)
    play.run(1_000)
    assert play.absent() == ["D"] and len(b.consumer.got[a.address]) == len(a.log) > 6
    assert a.multicast.send_window.ring.nbytes > 200_000
    play.come_back()
    play.end()
    assert play.got(a, d, play["D"]) == len(a.log)


@pytest.mark.parametrize("stack", STACKS)
def test_a_durable_member_that_dies_is_absent_and_gets_what_was_sent_meanwhile(stack):
    play = Play(stack)
    a, b, d = play["A"], play["B"], play["D"]
    a.offer(5, 10)
    play.run(100)
    play.die("D")
    assert play.absent() == play.absent("B") == ["D"]
    a.offer(7, 10)
    b.offer(3, 10)
    play.run(1_000)
    assert a.multicast.unacked() == 7 and b.multicast.unacked() == 3
    play.come_back()
    play.end()
    assert play.absent() == []
    assert (play.got(a, d), play.got(a, play["D"]), play.got(b, play["D"])) == (5, 7, 3)
    assert a.multicast.unacked() == b.multicast.unacked() == 0


@pytest.mark.parametrize("stack", STACKS)
def test_an_observer_keeps_what_an_absent_member_lacks(stack):
    """All others that are there have finished it, and say so. The sender dies."""
    play = Play(stack)
    play.cluster.start("O", observes=True)
    play.run(1_000)
    a = play["A"]
    play.die("D")
    for _ in range(5):
        a.offer(4, 10)
        play.run(200)
    play["B"].crash()
    a.crash()
    play.run(1_000)
    play.come_back()
    play.cluster.settle(20_000)
    assert play.got(a, play["D"]) == 20


def play_with_an_absent_member(stack, names="ABCD"):
    """D has 4 messages of C when it dies. C has sent 6 more since then."""
    play = Play(stack, names=names)
    c, d = play["C"], play["D"]
    c.offer(4, 10)
    play.run(100)
    play.die("D")
    c.offer(6, 10)
    play.run(100)
    return play, c, d


@pytest.mark.parametrize("stack", STACKS)
def test_senders_that_died_meanwhile_are_heard_to_the_end(stack):
    play, c, d = play_with_an_absent_member(stack)
    b = play["B"]
    b.offer(2, 10)
    play.run(100)
    play.die("C")
    play.die("B")
    play.come_back()
    play.end()
    assert (play.got(c, d), play.got(c, play["D"]), play.got(b, play["D"])) == (4, 6, 2)
    assert not play["A"].multicast.flushing.departed        # it holds nothing any more


@pytest.mark.parametrize("more", [4, 1 << 40])
@pytest.mark.parametrize("liar", ["A", "B"])            # A coordinates
@pytest.mark.parametrize("stack", STACKS)
def test_who_says_that_it_keeps_more_than_it_has_does_not_stand_for_others(stack, liar, more):
    """D asks the others for what the liar does not give."""
    play, c, d = play_with_an_absent_member(stack)
    keeping = play[liar].multicast.keeping
    kept = keeping.kept

    def lie():
        said = kept()
        if (each := said.get(c.incarnation)) is not None:
            said[c.incarnation] = replace(each, low=(each.low - more) % MODULUS)
        return said

    keeping.kept = lie
    play[liar].multicast.can_give = lambda sender, part: True
    play[liar].multicast.fetching.answer = lambda now: None
    play.die("C")
    play.come_back()
    play.end()
    assert (play.got(c, d), play.got(c, play["D"])) == (4, 6)


@pytest.mark.parametrize("stack", STACKS)
def test_a_sender_that_dies_when_the_absent_member_comes_is_heard_to_the_end(stack):
    """One view says that it is gone, and that the other one is back."""
    play, c, d = play_with_an_absent_member(stack)
    c.crash()
    play.come_back()
    play.end()
    assert (play.got(c, d), play.got(c, play["D"])) == (4, 6)


@pytest.mark.parametrize("is_noticed", [True, False])
@pytest.mark.parametrize("sends", [[0], [3], [3, 2]])
@pytest.mark.parametrize("stack", STACKS)
def test_a_sender_that_was_cut_off_and_died_is_heard_to_the_end(stack, sends, is_noticed):
    """It was cut off, came back and sent more each time. A and B hold all of that."""
    play, c, d = play_with_an_absent_member(stack)
    for count in sends:
        part(play, "C", "AB")
        play.run(1_000)
        assert "C" not in play["A"].views[-1].names
        play.cluster.heal()
        play.run(1_000)
        assert "C" in play["A"].views[-1].names
        c.offer(count, 10)
        play.run(100)
    c.crash()
    play.run(1_000 if is_noticed else 0)
    play.come_back()
    play.end()
    assert (play.got(c, d), play.got(c, play["D"])) == (4, 6 + sum(sends))
    assert not play["A"].multicast.flushing.departed


@pytest.mark.parametrize("stack", STACKS)
def test_who_came_meanwhile_has_only_the_end_of_a_departed_stream(stack):
    play = Play(stack, names="ABCD")
    c = play["C"]
    play.die("D")
    c.offer(5, 10)
    play.run(100)
    play.cluster.start("E")
    play.run(1_000)
    c.offer(3, 10)
    play.run(100)
    play.die("C")
    play.come_back()
    play.end()
    assert play.got(c, play["D"]) == 8


@pytest.mark.parametrize("stack", STACKS)
def test_who_came_meanwhile_keeps_all_messages_from_its_first(stack):
    play = Play(stack, names="ABD")
    play["B"].crash()
    play.die("D")
    play.cluster.start("B")
    play["B"].offer(9, 10)
    play.run(1_000)
    b = play["B"]
    assert b.views[-1].absent and b.multicast.unacked() == 9
    play.come_back()
    play.end()
    assert play.got(b, play["D"]) == 9


@pytest.mark.parametrize("stack", STACKS)
def test_what_a_durable_member_has_not_finished_of_a_departed_sender_is_held(stack):
    """It has all of C's messages and dies before it has made them durable."""
    play = Play(stack, names="ABCD")
    c, d = play["C"], play["D"]
    d.consumer.finish_after = None
    c.offer(8, 10)
    play.run(100)
    assert play.got(c, d) == 8
    play.die("C")
    play.die("D")
    play.come_back()
    play.end()
    assert play.got(c, play["D"]) == 8


@pytest.mark.parametrize("stack", STACKS)
def test_its_own_messages_that_it_has_not_finished_are_kept_for_its_next_life(stack):
    """Also in a view of two, where nobody else can miss them."""
    play = Play(stack, names="AD", discard_delivered_msgs=True)
    a, d = play["A"], play["D"]
    d.offer(2, 10)
    play.run(100)
    d.consumer.finish_after = None
    d.offer(6, 10)
    play.run(100)
    assert play["A"].consumer.finished[d.incarnation] == d.last
    play.die("D")
    play.come_back()
    play.end()
    assert play.got(d, play["D"]) == 6
    assert not a.multicast.flushing.departed


@pytest.mark.parametrize("stack", STACKS)
def test_a_durable_member_that_is_cut_off_loses_nothing(stack):
    play = Play(stack)
    a, d = play["A"], play["D"]
    links = [("A", "D"), ("B", "D"), ("D", "A"), ("D", "B")]
    play.cluster.checkers.note_cause()
    play.cluster.network.cut |= set(links)
    if play.cluster.links is not None:
        play.cluster.links.break_all_cut()
    play.run(1_000)
    assert play.absent() == ["D"]
    a.offer(11, 10)
    play.run(500)
    play.cluster.heal()
    play.end()
    assert play["D"] is d and play.got(a, d) == 11


def test_an_ack_that_is_from_before_a_durable_member_was_back_says_nothing():
    """It may be of a part of a large message, which the member dropped when it was cut
    off."""
    play = Play("mcast-udp")
    a, d, before = play["A"], play["D"], play["A"].views[-1].id
    part(play, "D", "AB")
    play.run(1_000)
    a.offer(11, 10)
    play.run(500)
    play.cluster.heal()
    play.cluster.network.discard = lambda source, target, datagram: (
        target == "D" and wire.open_datagram(datagram, a.stack.group).kind in (DATA, REPEAT))
    while d.address not in a.views[-1]:
        play.run(1)
    late = Ack({a.incarnation: a.multicast.send_window.sent}, 1000, before)
    a.arrive(d.stack.control(ACK, late, a.incarnation).data)
    play.run(20)
    assert a.multicast.unacked() == 11
    play.cluster.network.discard = None
    play.run(2_000)
    assert play.got(a, d) == 11 and d.address in a.views[-1]
    play.end()


def overtake_and_part(stack, size, *lost):
    """Let A's second message be OOB. D lacks some of the first datagrams, and is cut
    off."""
    play = Play(stack)
    a = play["A"]
    play.cluster.network.discard = lambda source, target, datagram: target == "D" and any(
        b"%x.%d" % (a.incarnation, number) in bytes(datagram) for number in lost)
    a.offer(1, 10)
    play.run(1)
    a.offer(1, size, is_oob=True)
    a.offer(1, 10)
    play.run(20)
    part(play, "D", "AB")
    play.run(1_000)
    assert play.absent() == ["D"] and play.got(a, play["D"]) == 0
    return play


@pytest.mark.parametrize("size", [10, 70_000])
@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp"])
def test_an_oob_message_does_not_come_again_after_a_durable_member_was_cut_off(stack, size):
    """It has overtaken one that was lost: so it is behind the place where D goes on."""
    play = overtake_and_part(stack, size, 0)
    a, d = play["A"], play["D"]
    assert len(play.oob(a, d)) == 1
    play.cluster.heal()
    play.end()
    assert play["D"] is d and len(play.oob(a, d)) == 1
    assert [each for each in d.consumer.got[a.address] if each] == [a.log[0], a.log[-1]]


@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp"])
def test_an_oob_message_does_not_come_again_of_a_member_that_is_back_for_the_second_time(stack):
    """What D has of A from before A was back is still kept, for B."""
    play = Play(stack, others="B")
    a, d = play["A"], play["D"]
    part(play, "D", "AB")
    play.cluster.heal()
    part(play, "B", "AD")
    play.run(1_000)
    assert d.address in a.views[-1] and a.incarnation in d.multicast.flushing.departed
    play.cluster.network.discard = lambda source, target, datagram: (
        target == "D" and b"%x.0" % a.incarnation in bytes(datagram))
    a.offer(1, 10)
    play.run(1)
    a.offer(1, 10, is_oob=True)
    play.run(20)
    assert len(play.oob(a, d)) == 1 and play.got(a, d) == 0
    part(play, "D", "A")
    play.run(1_000)
    play.cluster.heal()
    play.end()
    assert len(play.oob(a, d)) == 1 and play.got(a, d) == 1


@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp"])
def test_an_oob_message_of_which_half_had_come_comes_whole_after_a_member_was_cut_off(stack):
    play = overtake_and_part(stack, 70_000, 0, 1)
    a, d = play["A"], play["D"]
    assert (d.incarnation, a.incarnation) not in play.cluster.checkers.streams.oob
    play.cluster.heal()
    play.end()
    assert play["D"] is d and len(play.oob(a, d)) == 1


@pytest.mark.parametrize("stack", STACKS)
def test_windows_fill_and_senders_wait_for_an_absent_member(stack):
    play = Play(stack, capacity=64)
    a = play["A"]
    play.die("D")
    a.offer(500, 10)
    play.run(2_000)
    assert a.producer.multicasts.backlog and a.multicast.unacked() <= 64
    play.come_back()
    play.end()
    assert play.got(a, play["D"]) == 500


def test_an_absence_that_is_over_ends_the_waiting():
    play = Play("mcast-udp", absence=2.0)
    a, b = play["A"], play["B"]
    play.die("D")
    a.offer(5, 10)
    play.run(500)
    assert play.absent() == ["D"] and a.multicast.unacked() == 5
    play.run(2_000)
    assert play.absent() == play.absent("B") == [] and a.multicast.unacked() == 0
    warnings = a.warnings + b.warnings
    assert len(warnings) == 1 and "'D' is expected back no longer" in warnings[0]
    play.come_back()
    play.end()
    assert play.got(a, play["D"]) == 0          # it comes as a new member


def test_a_successor_goes_on_counting():
    play = Play("mcast-udp", names="ABCD", absence=3.0)
    play.die("D")
    eldest = play["A"].views[-1].coordinator.name
    others = [name for name in "ABC" if name != eldest]
    play[eldest].crash()
    play.run(1_000)
    assert play.absent(others[0]) == ["D"]
    play.run(1_500)
    assert play.absent(others[0]) == []


def test_an_operator_excludes_an_absent_member_at_once():
    play = Play("nakack2-udp")
    a = play["A"]
    play.die("D")
    a.offer(5, 10)
    play.run(500)
    for name in "AB":                           # whoever says it, the coordinator does it
        if play["A"].views[-1].coordinator.name != name:
            play[name].exclude("D")
            play.run(500)
            break
    assert play.absent() == [] and a.multicast.unacked() == 0


def test_a_durable_member_that_leaves_is_not_absent():
    play = Play("mcast-udp")
    play["D"].leave()
    play.run(1_000)
    assert "D" not in play["A"].views[-1].names and play.absent() == []


@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp"])
def test_a_durable_member_that_dies_while_it_leaves_is_owed_nothing_from_then_on(stack):
    """It takes nothing any more, and has told A not to wait. It cannot say goodbye
    before its own message is acknowledged."""
    play = Play(stack)
    a, d = play["A"], play["D"]
    a.offer(2, 10)
    play.run(100)
    play.cluster.network.discard = lambda source, target, datagram: (
        source == "D" and wire.open_datagram(datagram, a.stack.group).kind in (DATA, REPEAT))
    d.offer(1, 10)
    play.run(5)
    d.leave()
    play.run(50)
    a.offer(3, 10)
    play.run(50)
    assert (a.multicast.send_window.ring.low - a.offset) % MODULUS == 5
    play.die("D")
    assert play.absent() == ["D"]
    play.cluster.network.discard = None
    play.come_back()
    play.end()
    a.offer(1, 10)
    play.end()
    assert (play.got(a, d), play.got(a, play["D"])) == (2, 1)


def part(play, one, other):
    """Cut the group in two."""
    play.cluster.checkers.note_cause()
    links = [(a, b) for a in one for b in other]
    play.cluster.network.cut |= {*links, *((b, a) for a, b in links)}
    if play.cluster.links is not None:
        play.cluster.links.break_all_cut()
    play.run(1_000)


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("dies", ["", "B", "C"])
def test_a_durable_member_that_leaves_in_one_part_is_absent_in_no_other(stack, dies):
    """Whoever coordinates the group that the parts become: those who heard it leave say
    so. `dies` did not hear of it, or heard it, before the parts meet."""
    play = Play(stack, names="ABCDE")
    part(play, "AB", "CDE")
    assert play.absent("A") == play.absent("B") == ["D"]
    play["A"].offer(5, 10)
    play.run(100)
    play["D"].leave()
    play.run(1_000)
    assert "D" not in play["C"].views[-1].names and play.absent("C") == []
    assert play.absent("A") == ["D"] and play["A"].multicast.unacked() == 5
    if dies:
        play[dies].crash()
        play.run(1_000)
    play.cluster.heal()
    play.run(2_000)
    there = {*"ABCE"} - {dies}
    assert all({*play[name].views[-1].names} == there for name in there)
    assert all(play.absent(name) == [] for name in there)
    assert play["A"].multicast.unacked() == 0
    assert all(play["D"].incarnation in play[name].members.absentees.left for name in there)


def play_with_a_late_member(stack, of_b=0):
    """D has 4 messages of A, and `of_b` of B, when it dies. E comes after 5 more of
    A."""
    play = Play(stack, names="ABD")
    a, b, d = play["A"], play["B"], play["D"]
    a.offer(4, 10)
    b.offer(of_b, 10)
    play.run(100)
    play.die("D")
    a.offer(5, 10)
    play.run(100)
    play.cluster.start("E")
    play.run(1_000)
    return play, a, b, d


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("lives", [True, False])
def test_a_stream_has_no_hole_where_only_who_came_meanwhile_is_left(stack, lives):
    """It comes back to E, which has the end of the stream. The sender is cut off from
    them, and has kept the rest; or it is dead, and the stream ends where it stood."""
    play, a, _, d = play_with_a_late_member(stack)
    a.offer(3, 10)
    play.run(100)
    assert play.got(a, play["E"]) == 3
    if lives:
        part(play, "AB", "DE")
    else:
        a.crash()
        play["B"].crash()
        play.run(1_000)
    play.come_back()
    play.run(2_000)
    assert {*play["D"].views[-1].names} == {*"DE"}
    assert (play.got(a, d), play.got(a, play["D"])) == (4, 0)
    play.cluster.heal()
    play.run(2_000)
    play.cluster.settle(20_000)
    assert play.got(a, play["D"]) == (8 if lives else 0)


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("others", ["", "E"])
def test_what_came_before_a_gap_and_behind_it_is_fetched_from_who_has_it(stack, others):
    """A lacks what the sender sent while it was cut off with E, which came then and has
    no more than that. Without E, nobody has it: then the stream ends before it."""
    play, c, d = play_with_an_absent_member(stack, "ACD")
    part(play, "A", "CE")
    if others:
        play.cluster.start("E")
        play.run(1_000)
    c.offer(3, 10)
    play.run(100)
    play.cluster.heal()
    play.run(2_000)
    assert {*play["A"].views[-1].names} == {*"AC", *others}
    c.offer(2, 10)
    play.run(100)
    c.crash()
    play.run(1_000)
    play.come_back()
    play.end()
    assert (play.got(c, d), play.got(c, play["D"])) == (4, 11 if others else 6)
    gone = play["D"].multicast.counters.num_gone_undelivered
    assert gone == (0 if others else 5)
    assert not play["A"].multicast.flushing.departed


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("turn", range(3))
def test_what_others_kept_of_a_sender_comes_before_what_it_sends_when_it_is_back(stack, turn):
    """D takes nothing before that, and may begin with any of its streams."""
    play, c, d = play_with_an_absent_member(stack, "ACD")
    part(play, "AD", "C")
    play.come_back()
    back = play["D"]
    back.endpoint.max_undelivered = 0
    play.run(1_000)
    assert {*back.views[-1].names} == {*"AD"}
    assert back.multicast.flushing.departed[c.incarnation].is_complete
    play.cluster.heal()
    play.run(2_000)
    assert {*play["A"].views[-1].names} == {*"ACD"}
    c.offer(2, 10)
    play.run(100)
    assert play.got(c, back) == 0
    back.multicast.turn, back.endpoint.max_undelivered = turn, 65_536
    back.request_turn()
    play.end()
    assert (play.got(c, d), play.got(c, back)) == (4, 8)
    assert back.views[-1].id == play["A"].views[-1].id


@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp"])
def test_what_others_kept_is_not_lost_with_a_view_that_is_not_shown(stack):
    """D is to get what B has of C in a view with both; but A dies then, with messages
    that come before this view."""
    play = Play(stack, names="ABCD")
    a, c, d = play["A"], play["C"], play["D"]
    c.offer(2, 10)
    play.run(100)
    part(play, "AD", "BC")
    c.offer(4, 10)
    play.run(100)
    c.crash()
    play.run(1_000)
    play.cluster.network.discard = lambda source, target, datagram: (
        (source, target) == ("A", "D")
        and wire.open_datagram(datagram, a.stack.group).kind in (DATA, REPEAT))
    a.offer(3, 10)
    play.run(10)
    play.cluster.network.cut.clear()
    play.run(1_000)
    assert {*d.views[-1].names} == {*"AD"} and d.multicast.flushing.pending
    a.crash()
    play.end()
    assert [{*view.names} for view in d.views[-2:]] == [{*"AD"}, {*"BD"}]
    assert (play.got(a, d), play.got(c, d)) == (0, 6)


@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp"])
def test_a_sender_that_is_back_gives_what_only_a_dead_member_had_of_it(stack):
    """D is to get from B what C sent before it was cut off; but B dies. C is in the
    view again, and has kept it for D, to which its stream begins behind that."""
    play = Play(stack, names="ABCD")
    b, c, d = play["B"], play["C"], play["D"]
    play.cluster.network.discard = lambda source, target, datagram: (
        target in "AD"
        and wire.open_datagram(datagram, c.stack.group).kind in (DATA, REPEAT, HELD))
    c.offer(6, 10)
    play.run(100)
    part(play, "ABD", "C")
    play.cluster.network.cut.clear()
    play.run(1_000)
    assert {*c.views[-1].names} == {*"ABCD"} and len(d.multicast.flushing.pending) == 2
    b.crash()
    play.run(1_000)
    assert d.multicast.flushing.departed[c.incarnation].holder == c.incarnation
    play.cluster.network.discard = None
    c.offer(2, 10)
    play.end()
    assert [{*view.names} for view in d.views[-3:]] == [{*"ABD"}, {*"ABCD"}, {*"ACD"}]
    assert play.got(c, d) == 8


@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp"])
@pytest.mark.parametrize("excludes", [False, True], ids=["kept by C", "freed by C"])
@pytest.mark.parametrize("begin", [0, 3])
def test_what_a_member_is_to_fetch_it_gets_though_the_sender_is_back(stack, begin, excludes):
    """D and A are cut off from B and C; then C is alone. B has all that C has sent, A
    only the begin. Before D has it from them, C is in the view again."""
    play = Play(stack, names="ABCD")
    c, d = play["C"], play["D"]
    play.cluster.network.discard = lambda source, target, datagram: (
        target == "D"
        and wire.open_datagram(datagram, c.stack.group).kind in (DATA, REPEAT, HELD))
    c.offer(begin, 10)
    play.run(100)
    part(play, "AD", "BC")
    c.offer(6, 10)
    play.run(100)
    part(play, "B", "C")
    if excludes:                        # then nobody keeps anything for D there
        c.exclude("D")
        play.run(100)
    play.cluster.network.cut -= {pair for pair in play.cluster.network.cut if "C" not in pair}
    play.run(1_000)
    assert d.multicast.flushing.fetching.is_needed()
    play.cluster.network.cut.clear()
    play.run(1_000)
    play.cluster.network.discard = None
    play.end()
    assert {*d.views[-1].names} == {*"ABCD"} and play.got(c, d) == begin + 6


@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp"])
def test_a_view_is_not_settled_before_a_member_that_is_back_has_what_it_lacks(stack):
    """Else E would say that it has all of A's stream, and its begin is gone with A and
    B: D would wait for that for ever."""
    play, a, _, d = play_with_a_late_member(stack)
    play.cluster.network.discard = lambda source, target, datagram: (
        target == "D" and wire.open_datagram(datagram, a.stack.group).kind in (DATA, REPEAT))
    play.come_back()
    play.run(1_000)
    assert all({*play[name].views[-1].names} == {*"ABDE"} for name in "ADE")
    assert not play["E"].members.settling.is_settled
    a.crash()
    play["B"].crash()
    play.end()
    view = play["D"].views[-1]
    assert ({*view.names}, view.departed[a.address]) == ({*"DE"}, 4)
    assert (play.got(a, d), play.got(a, play["D"])) == (4, 0)


@pytest.mark.parametrize("stack", STACKS)
def test_a_stream_that_was_given_up_excuses_no_other_one(stack):
    """Of A and B, who are dead, E has the end of one stream and all of the other."""
    play, a, b, d = play_with_a_late_member(stack, of_b=2)
    a.offer(3, 10)
    b.offer(4, 10)
    play.run(100)
    a.crash()
    b.crash()
    play.run(1_000)
    play.come_back()
    play.end()
    back, lives = play["D"], play.cluster.checkers.lives
    assert lives.given_up == {("D", a.incarnation): {4}}
    assert (play.got(a, d, back), play.got(b, d, back)) == (4, 6)
    lives.last[back.incarnation, b.incarnation] = 2
    with pytest.raises(Violation, match="^lost: D has B's messages up to 2; for E .* with 6, "):
        lives.check()
    lives.last[back.incarnation, b.incarnation] = 6
    lives.last[back.incarnation, a.incarnation] = 3         # before the place of which it was told
    with pytest.raises(Violation, match="^lost: D has A's messages up to 3; "):
        lives.check()


@pytest.mark.parametrize("stack", ["mcast-udp", "mcast-tcp", "nakack2-udp"])
def test_a_stream_goes_on_behind_a_large_message_that_was_acknowledged_in_part(stack):
    """The sender has no room for all of it. So the others keep only the rest."""
    play = Play(stack, capacity=8)
    a, b, d = play["A"], play["B"], play["D"]
    a.offer(2, 10)
    play.run(100)
    a.offer(1, 500_000)
    ring = a.multicast.send_window.ring
    for _ in range(40_000):
        if (ring.low - a.offset) % MODULUS > 2:
            break
        play.run(0.05)
    assert play.got(a, d) == 2
    play.die("D")
    a.offer(2, 10)
    play.run(1_000)
    assert b.multicast.windows[a.incarnation].stream.before_rest() is not None
    a.crash()
    play.run(1_000)
    assert (play.got(a, b), play.absent("B")) == (2 + 9 + 2, ["D"])
    play.come_back()
    play.cluster.settle(20_000)
    assert play.got(a, play["D"]) == 2


@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp"])
def test_a_stream_goes_on_in_the_middle_of_a_large_message(stack):
    """D has taken a part of it when it is cut off, and keeps that for E, which is
    durable, too. Its sender dies, and D gets the rest from others when it is back."""
    play = Play(stack, names="ABCD")
    play.cluster.start("E", durable=True)
    play.cluster.settle()
    c, d = play["C"], play["D"]
    lost = iter([False] * 5)
    play.cluster.network.discard = lambda source, target, datagram: (
        (source, target) == ("C", "D") and next(lost, True)
        and wire.open_datagram(datagram, c.stack.group).kind in (DATA, REPEAT))
    c.offer(1, 500_000)
    play.run(20)
    part(play, "ABCE", "D")
    gone = d.multicast.flushing.departed[c.incarnation]
    assert gone.cut == c.offset != gone.ring.hd and play.absent("D") == ["E"]
    c.crash()
    play.run(1_000)
    play.cluster.heal()
    play.end()
    assert {*d.views[-1].names} == {*"ABDE"} and play.got(c, d) == play.got(c, play["A"]) == 9


@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp"])
def test_a_large_message_begins_again_when_its_sender_is_back(stack):
    """D has a part of it and has delivered nothing, because E lacks what came before.
    Then D meets the others, which have only that, and after them the sender."""
    play = Play(stack, names="ABCD")
    play.cluster.start("E", durable=True)
    play.cluster.settle()
    c, parts = play["C"], iter([True] * 5)
    play["E"].crash()
    play.die("D")
    c.offer(3, 10)
    play.run(100)

    def is_lost(source, target, datagram):
        if wire.open_datagram(datagram, c.stack.group).kind not in (DATA, REPEAT):
            return False
        return target == "E" or (
            len(datagram) > 10_000 and (target != "D" or not next(parts, False)))
    play.cluster.network.discard = is_lost
    play.come_back()
    play.cluster.start("E", durable=True, resume=play["E"].consumer.durable())
    play.run(1_000)
    d = play["D"]
    c.offer(1, 500_000)
    play.run(50)
    part(play, "CD", "ABE")
    part(play, "C", "D")
    gone = d.multicast.flushing.departed[c.incarnation]
    assert gone.cut == gone.ring.hd == c.offset and (gone.come_up_to - c.offset) % MODULUS == 3 + 5
    play.cluster.network.cut -= {pair for pair in play.cluster.network.cut if "C" not in pair}
    play.run(1_000)
    assert {*d.views[-1].names} == {*"ABDE"} and play.got(c, d) == 3
    play.cluster.heal()
    play.cluster.network.discard = None
    play.end()
    assert {*d.views[-1].names} == {*"ABCDE"} and play.got(c, d) == 3 + 9


def test_one_member_that_hears_a_durable_one_leave_is_enough():
    play = Play("mcast-udp", names="ABCD")
    eldest = play["A"].views[-1].coordinator.name
    hears = next(name for name in "ABC" if name != eldest)
    play.cluster.checkers.note_cause()
    play.cluster.network.discard = lambda source, target, datagram: (
        source == "D" and target != hears)
    play["D"].leave()
    play.run(1_000)
    play["D"].crash()
    play.run(2_000)
    assert "D" not in play[eldest].views[-1].names and play.absent(eldest) == []


@pytest.mark.parametrize("stack", STACKS)
def test_a_durable_member_that_dies_before_anybody_hears_it_leave_is_absent(stack):
    play = Play(stack)
    play.cluster.checkers.note_cause()
    play.cluster.network.discard = lambda source, target, datagram: source == "D"
    play["D"].leave()
    play.run(1)
    assert play["D"].members.leaving.is_said
    play.cluster.network.discard = None
    play.die("D")
    assert play.absent("A") == play.absent("B") == ["D"]


def test_a_durable_member_in_whose_name_somebody_says_leave_is_waited_for_later():
    play = Play("mcast-udp")
    a, d = play["A"], play["D"]
    former = len(a.views)
    play.cluster.checkers.note_cause()
    for name in "AB":
        leaving = d.stack.control(LEAVE, Leave(play[name].members.view_id), 0)
        play[name].arrive(leaving.data)
    play.run(3_000)
    assert "D" not in a.views[former].names and a.views[former].absent == ()
    assert "D" in a.views[-1].names and not a.members.absentees.left    # it lives, and came back
    play.die("D")
    assert play.absent() == ["D"]


def test_the_name_of_an_absent_member_is_not_free():
    play = Play("mcast-udp")
    play.die("D")
    play.cluster.start("D")
    with pytest.raises(Exception, match="another member has the name 'D'"):
        play.run(1_000)                         # the checkers let no member stop


def test_a_digest_that_claims_too_much_is_cut_and_told():
    play = Play("mcast-udp")
    a = play["A"]
    a.offer(5, 10)
    play.run(100)
    play.die("D")
    digest = play["D"].consumer.durable()
    play.life(Digest(digest | {a.address: 1_005}))
    play["D"].resume, play["D"].consumer.finished[a.incarnation] = digest, 5   # as it is
    play.run(1_000)
    assert any("claims more" in warning for warning in play["D"].warnings)
    a.offer(3, 10)
    play.cluster.run(1_000)
    assert a.multicast.unacked() == 0


def test_too_many_departed_senders_end_the_waiting():
    play = Play("mcast-udp", capacity=16, max_bytes=8_000)
    play.die("D")
    for _ in range(12):
        play["B"].offer(12, 500)
        play.run(200)
        play.die("B")
        if not play.absent():
            break
        play.cluster.start("B")
        play.run(500)
    assert play.absent() == []
    assert any("too much memory" in warning for warning in play["A"].warnings)
    assert not play["A"].multicast.flushing.departed


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("first", [
    pytest.param(first, marks=[] if first < AT_ONCE else pytest.mark.prove)
    for first in range(0, 3 * AT_ONCE, AT_ONCE)])
def test_the_lives_of_durable_members_miss_nothing(stack, first):
    for seed in range(first, first + AT_ONCE):
        settings = Settings(stack=stack, durable=2, crashes=4, duration=0.5)
        outcome = simulate(seed, settings)
        assert not outcome.check, f"{outcome.sentence}\n{replay(seed, settings)}"


@pytest.mark.prove
@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("durable", [0, 2])
def test_members_that_are_cut_off_and_back_again_and_again_miss_nothing(stack, durable):
    """A few members, of which one may be slow: so a sender is often back before its
    first stream is over for all."""
    for seed in range(AT_ONCE):
        settings = Settings(stack=stack, members=3, durable=durable, observers=1, exclusions=14,
                            slow=6, crashes=2, messages=300, unicast=0, duration=0.5)
        outcome = simulate(seed, settings)
        assert not outcome.check, f"{outcome.sentence}\n{replay(seed, settings)}"


@pytest.mark.prove
@pytest.mark.parametrize(("stack", "seed"), [
    ("nakack2-tcp", 22), ("mcast-udp", 43),     # who came meanwhile has only a part
    ("mcast-tcp", 42),                          # one part of the group had excluded it
    ("nakack2-udp", 47),                        # it had left before, and was new
    ("mcast-udp", 64), ("nakack2-udp", 64),     # the sender's part had excluded it
    ("mcast-tcp", 61),                          # it had heard the sender after its report
    ("mcast-udp", 53),                          # a cut was in the middle of a large message
    ("mcast-udp", 50),                          # which here is larger than the window
    ("nakack2-tcp", 58),                        # all who had the state were dead
    ("mcast-udp", 4054), ("nakack2-udp", 4081),     # it had the rest of a message, and said so
    ("nakack2-tcp", 1005),                      # what it got of a departed sender later
    ("nakack2-tcp", 1048),                      # the sender died before the view of both
    ("mcast-udp", 6108)])                       # its giver failed after its report
def test_lives_that_missed_something_once(stack, seed):
    outcome = simulate(seed, Settings(stack=stack, durable=2, crashes=4))
    assert not outcome.check, outcome.sentence


@pytest.mark.prove
@pytest.mark.parametrize(("seed", "settings"), [
    # A sender was back before the application had what others had kept of it.
    (918018, Settings(stack="mcast-tcp", members=5, crashes=6, exclusions=10, leaves=4)),
    # Two large messages, of each of which a part was acknowledged.
    # A member that died while it left.
    *((seed, Settings(stack="nakack2-udp", members=4, duration=1.5, messages=200, unicast=0,
                      durable=2, crashes=4, partitions=4, exclusions=10))
      for seed in (918024, 918025)),
    # Two are too few, and the third was about to leave when the faults stopped.
    (924009, Settings(stack="nakack2-udp", members=3, messages=300, unicast=0, durable=2,
                      crashes=2, exclusions=14, slow=6)),
    # It was back where its part met one that kept messages for another absent member.
    (930002, Settings(members=4, duration=3.0, loss=0.1, crashes=4, partitions=10, pauses=2,
                      slow=10, exclusions=20, unicast=100, large=30, threads=0, observers=1,
                      sealed=True)),
    # An OOB message had overtaken others when its receiver was cut off.
    (950006, Settings(members=6, duration=0.7, messages=100, crashes=2, partitions=10, slow=4,
                      unicast=100, oob=100, durable=2, observers=1))],
    ids=["back", "large", "leaving", "few", "parts", "oob"])
def test_lives_whose_members_were_excluded_that_missed_something_once(seed, settings):
    outcome = simulate(seed, settings)
    assert not outcome.check, outcome.sentence
