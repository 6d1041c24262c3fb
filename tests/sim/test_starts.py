"""Whole stacks that start at about one time become one group, and never two first."""

from random import Random

import pytest

from ringcast.protocols.membership.detection import WATCH_ALL, WATCHERS
from ringcast.sim.cluster import Cluster
from ringcast.sim.network import MS, Network

STACKS = ["mcast-udp", "mcast-tcp", "nakack2-udp", "nakack2-tcp"]
GROUPS = 10                             # of one test


def start(stack, seed):
    """Let two to twelve members start within some time, and return their group in one
    view. Over UDP datagrams are lost."""
    rng = Random(f"starts {seed}")
    network = Network(loss=0 if stack.endswith("tcp") else rng.choice([0, 0.1, 0.2]),
                      delay=(50_000, rng.choice([200_000, 5 * MS, 20 * MS])))
    spread = rng.choice([0, 20, 100, 400]) * MS
    group = Cluster("ABCDEFGHIJKL"[:rng.randint(2, 12)], seed=seed, network=network, stack=stack,
                    capacity=16)
    for name in group.names:
        group.at(int(rng.random() * spread), group.start, name)
    group.run(spread / MS)
    group.settle(10_000)
    return group


def splits(group):
    """Return the views of a group that do not grow out of the one before: some are
    gone, or two groups come together."""
    return [(member.name, view) for member in group.living() for view in member.views
            if view.left or view.subgroups]


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.prove)
                                        for first in range(GROUPS, 250, GROUPS))])
def test_members_that_start_at_about_one_time_never_split(stack, first):
    """A thousand groups, in all."""
    for seed in range(first, first + GROUPS):
        group = start(stack, seed)
        views = {member.views[-1] for member in group.living()}
        assert len(views) == 1 and set(views.pop().names) == set(group.names), seed
        assert splits(group) == [], seed


@pytest.mark.prove
@pytest.mark.parametrize("stack", STACKS)
def test_a_hundred_members_that_start_at_once_form_one_view(stack):
    group = Cluster([f"m{number}" for number in range(100)], stack=stack, capacity=16).start()
    group.settle(5000)
    assert {len(member.views) for member in group.living()} == {1}
    assert {len(member.views[-1]) for member in group.living()} == {100}


@pytest.mark.parametrize("stack", [STACKS[0], *(pytest.param(stack, marks=pytest.mark.prove)
                                                for stack in STACKS[1:])])
@pytest.mark.parametrize("place", [0, 40], ids=["the coordinator", "another one"])
def test_a_member_that_dies_is_excluded_though_only_ten_watch_it(stack, place):
    """It dies unnoticed by the network: only silence tells. It is out soon after
    suspect_timeout, and nobody else is."""
    group = Cluster([f"m{number}" for number in range(64)], stack=stack, capacity=16,
                    heartbeat_interval=20, suspect_timeout=200).start()
    group.settle()
    dead = group[group["m0"].views[-1].names[place]]
    for member in group.living():
        watchers = member.members.detection.watchers
        assert len(watchers) == 64 > WATCH_ALL and len(watchers[dead.incarnation]) == WATCHERS
    dead.crash()
    died = group.now
    group.settle()
    for member in group.living():
        assert [view.left for view in member.views] == [(), (dead.address,)]
    assert group.now <= died + 1000 * MS
