"""Simulated connections do what transport/tcp/transport.py promises: until one breaks,
it loses nothing and keeps the order. Control may overtake messages."""

import itertools

import pytest

from ringcast.protocols.membership.messages import PREPARE
from ringcast.sim.cluster import Cluster
from ringcast.sim.links import AGAIN
from ringcast.sim.network import MS, Network


class Fleet:
    """Two or more members that only send numbers, and log what reaches them and when
    they hear of a connection."""

    def __init__(self, names="AB", seed=0, delay=(50_000, 5 * MS)):
        network = Network(delay=delay)
        self.group = Cluster(names, seed=seed, network=network, stack="nakack2-tcp").start()
        self.log = {name: [] for name in names}
        self.numbers = itertools.count()
        self.group.checkers.note_cause()        # they take nothing, so each forms a group
        for name in names:
            self.watch(name)
        self.group.run(100)
        for log in self.log.values():
            log.clear()

    def watch(self, name):
        """Replace what this member does with its log."""
        member, log = self.group[name], self.log[name]
        member.arrive = lambda datagram: log.append(int(datagram)) if datagram.isdigit() else None
        member.linked = lambda other: log.append(f"linked {self.group.incarnations[other].name}")

    def send(self, source, target, count=1):
        sent = [next(self.numbers) for _ in range(count)]
        for number in sent:
            self.group.links.carry(self.group[source], self.group[target], b"%d" % number)
        return sent

    def link(self, a, b):
        return self.group.links.links[frozenset((self.group[a].incarnation,
                                                 self.group[b].incarnation))]


@pytest.mark.parametrize("seed", range(20))
def test_both_ends_hear_of_a_new_connection_before_anything_comes_over_it(seed):
    group = Cluster("AB", seed=seed, network=Network(delay=(0, 5 * MS)), stack="nakack2-tcp")
    heard = []

    class Watched(group.member_type):
        def arrive(self, datagram):
            heard.append((self.name, "datagram"))

        def linked(self, other):
            heard.append((self.name, "linked"))
            super().linked(other)

    group.member_type = Watched
    group.start()
    group.run(200)
    for name in "AB":
        mine = [what for who, what in heard if who == name]
        assert mine[0] == "linked" and mine.count("linked") == 1 and "datagram" in mine


@pytest.mark.parametrize("seed", range(5))
def test_a_connection_keeps_the_order_and_loses_nothing(seed):
    fleet = Fleet(seed=seed)
    sent = []
    for _ in range(200):
        sent += fleet.send("A", "B", fleet.group.rng.randint(1, 3))
        fleet.group.run(fleet.group.rng.choice([0, 0.1, 1, 7]))
    fleet.group.run(100)
    assert fleet.log["B"] == sent


def test_control_overtakes_messages_once_it_has_a_connection_of_its_own():
    overtaken = 0
    for seed in range(20):
        fleet = Fleet(seed=seed)
        came = []
        fleet.group["B"].arrive = came.append
        links = fleet.group.links
        links.control_breaks = lambda: False
        sent = {False: [], True: []}
        for number in range(100):
            for is_control in (False, True):
                datagram = bytes([0, 0, 0, PREPARE if is_control else 1, number])
                sent[is_control].append(datagram)
                links.carry(fleet.group["A"], fleet.group["B"], datagram)
            fleet.group.run(0.5)
        fleet.group.run(100)
        came = [each for each in came if len(each) == 5]
        for is_control, datagrams in sent.items():      # each connection keeps its order
            assert [each for each in came if (each[3] == PREPARE) == is_control] == datagrams
        overtaken += links.num_overtaken
    assert overtaken > 100


def test_in_a_sealed_group_what_members_say_of_the_group_overtakes_messages_too():
    overtaken = 0
    for seed in range(5):
        group = Cluster("AB", stack="nakack2-tcp", sealed=True, seed=seed,
                        network=Network(delay=(0, 5 * MS)), heartbeat_interval=5.0,
                        suspect_timeout=100.0).start()
        group.run(100)
        for member in group.living():
            member.offer(600, 20)
        group.settle(20_000)
        overtaken += group.links.num_overtaken
    assert overtaken > 5


def test_a_connection_for_control_that_breaks_loses_control_alone():
    lost = 0
    for seed in range(10):
        fleet = Fleet(seed=seed)
        came = []
        fleet.group["B"].arrive = came.append
        fleet.group.links.control_rng.seed(seed)
        fleet.group.links.control_breaks = lambda fleet=fleet: (
            fleet.group.links.control_rng.random() < 0.1)
        for number in range(100):
            for kind in (1, PREPARE):
                fleet.group.links.carry(fleet.group["A"], fleet.group["B"],
                                        bytes([0, 0, 0, kind, number]))
            fleet.group.run(0.5)
        fleet.group.run(100)
        came = [(each[3], each[4]) for each in came if len(each) == 5]
        assert [number for kind, number in came if kind == 1] == [*range(100)]
        lost += 100 - sum(kind == PREPARE for kind, _ in came)
        assert "linked A" not in fleet.log["B"]
    assert lost


def test_a_break_loses_what_is_on_its_way_and_both_ends_are_told_of_the_next():
    for seed in range(20):
        fleet = Fleet(seed=seed)
        before = fleet.send("A", "B", 3)
        fleet.group.run(40)
        on_its_way = fleet.send("A", "B", 3)
        fleet.group.links.break_link("A", "B")
        assert fleet.group.links.num_broken == 1
        fleet.group.run(2 * AGAIN / MS + 40)
        after = fleet.send("A", "B", 3)
        fleet.group.run(40)
        assert fleet.log["B"] == [*before, "linked A", *after] and not set(on_its_way) & set(after)
        assert fleet.log["A"] == ["linked B"]


def test_an_end_that_does_not_notice_sends_into_the_void_until_it_is_told():
    lost = 0
    for seed in range(20):
        fleet = Fleet(seed=seed)
        fleet.group.links.break_link("A", "B")
        believes = fleet.group["B"] in fleet.group.links.partners(fleet.group["A"])
        lost += believes
        fleet.send("A", "B", 3)                         # whatever it believes
        fleet.group.run(2 * AGAIN / MS + 40)
        after = fleet.send("A", "B", 2)
        fleet.group.run(40)
        assert fleet.log["B"] == ["linked A", *after]
    assert 0 < lost < 20


def test_what_the_first_end_sends_at_once_reaches_the_other_right_behind_the_news():
    reached = 0
    for seed in range(30):
        fleet = Fleet(seed=seed, delay=(5 * MS, 5 * MS))
        sent = []

        def linked(other, name, fleet=fleet, sent=sent):
            other = fleet.group.incarnations[other].name
            fleet.log[name].append(f"linked {other}")
            if not sent:
                sent.extend(fleet.send(name, other, 2))

        for name in "AB":
            fleet.group[name].linked = lambda other, name=name: linked(other, name)
        fleet.group.links.break_link("A", "B")
        fleet.group.run(100)
        second = "B" if fleet.log["A"] == ["linked B"] else "A"
        assert fleet.log[second] == ["linked A" if second == "B" else "linked B", *sent]
        reached += 1
    assert reached == 30


def test_a_cut_network_breaks_the_connection_and_there_is_none_until_it_is_whole():
    fleet = Fleet("ABC")
    fleet.group.network.cut = {("A", "B")}
    fleet.group.links.break_all_cut()
    fleet.group.run(500)
    assert fleet.log["A"] == fleet.log["B"] == fleet.log["C"] == []
    assert not fleet.link("A", "B").stands and fleet.link("A", "C").stands
    fleet.group.network.heal()
    fleet.group.run(2 * AGAIN / MS + 20)
    assert fleet.log == {"A": ["linked B"], "B": ["linked A"], "C": []}


def test_who_dies_takes_its_connections_along_and_a_new_life_gets_new_ones():
    fleet = Fleet("ABC")
    sent = fleet.send("A", "B", 3)
    former = fleet.group["B"]
    former.crash()
    assert sent and former not in fleet.group.links.partners(fleet.group["A"])
    fleet.group.run(100)
    assert fleet.log["B"] == []
    fleet.group.start("B")
    fleet.watch("B")
    fleet.group.run(100)
    assert fleet.log["A"] == ["linked B"] and sorted(fleet.log["B"]) == ["linked A", "linked C"]
    after = fleet.send("A", "B", 2)
    fleet.group.run(20)
    assert fleet.log["B"][2:] == after and len(fleet.group.links.links) == 3


@pytest.mark.parametrize("stack", ["mcast-tcp", "nakack2-tcp"])
@pytest.mark.parametrize("names", ["AB", "ABC"])
def test_nobody_is_excluded_for_a_connection_that_comes_again_late(names, stack):
    """All pairs, one after the other. In a group of two nobody else could disagree."""
    group = Cluster(names, stack=stack, refuses=True).start()
    group.settle()
    views = {name: group[name].views[-1] for name in names}
    for lasts in (50, 200, 1000, 2000):
        for pair in itertools.combinations(names, 2):
            group.links.break_link(*pair, lasts * MS)
            group[pair[0]].send(b"on its way")
            group.run(lasts + 500)
            group.settle()
    assert group.links.num_broken == 4 * len(views) * (len(views) - 1) // 2
    assert {name: group[name].views[-1] for name in names} == views
    assert group.delivered() == len(names) * group.links.num_broken


def test_only_the_dead_go_if_a_connection_between_others_comes_again_late():
    group = Cluster("ABC", stack="mcast-tcp", refuses=True).start()
    group.settle()
    group.links.break_link("A", "B", 1000 * MS)
    group["C"].crash()
    group.run(1500)
    group.settle()
    assert all({"C"} == {*before.names} - {*after.names} for name in "AB"
               for before, after in [group[name].views[-2:]])


def test_nothing_is_broken_between_those_who_have_no_connection():
    fleet = Fleet()
    fleet.group.links.break_link("A", "X")
    fleet.group.links.break_link("A", "B")
    fleet.group.links.break_link("A", "B")
    assert fleet.group.links.num_broken == 1


@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_does_the_same(seed):
    def ran():
        fleet = Fleet("ABC", seed=seed)
        for pair in ("AB", "BC", "AC", "AB"):
            fleet.send(*pair, 3)
            fleet.group.links.break_link(*pair)
            fleet.group.run(15)
        fleet.group.run(100)
        return fleet.log, fleet.group.num_done
    assert ran() == ran()
