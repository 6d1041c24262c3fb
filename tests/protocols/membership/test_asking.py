"""Who is in a group, asked by somebody who does not come."""

import pytest
from membership_world import MS, Node, World

from ringcast._core import wire
from ringcast.address import Address
from ringcast.config import configure
from ringcast.protocols.membership.asking import Asking
from ringcast.protocols.membership.messages import PRESENT
from ringcast.stack import Stack


class Stranger(Node):
    """Somebody who asks."""

    def __init__(self, world):
        self.world, self.name, self.physical = world, "?", "?"
        self.address = Address("?", world.rng.getrandbits(63) + 1)
        self.layer = Asking(configure(world.options))
        self.stack = Stack([self.layer], local=self.address, group="world")
        self.alive, self.fault, self.paused_until = True, None, 0
        self.inbox, self.routes, self.alarm = [], {}, None

    def views(self):
        return [present.names for present in self.layer.found.values()]


def ask(world, milliseconds=2000):
    """Let a stranger ask; return him when all have answered."""
    stranger = world.nodes["?"] = Stranger(world)
    stranger.start()
    end = world.now + milliseconds * MS
    while not stranger.layer.is_over and world.now < end:
        world.run(1)
    del world.nodes["?"]
    return stranger


def formed(names, seed=0, **options):
    world = World(seed, **options).start(*names)
    assert world.run_until_one(5000) is not None
    return world


@pytest.mark.parametrize("loss", [0, 0.3])
def test_a_stranger_learns_all_names_the_oldest_first(loss):
    world = formed([f"m{number}" for number in range(10)], loss=loss)
    stranger = ask(world)
    assert stranger.views() == [list(world["m0"].view.names)]
    (present,) = stranger.layer.found.values()
    assert present.view_id == world["m0"].view.id
    assert present.coordinator == world["m0"].view.coordinator.incarnation


def test_to_ask_changes_no_view():
    world = formed("ABC")
    ask(world)
    world.run(5000)
    assert [len(node.views) for node in world.living()] == [1, 1, 1]


def test_nobody_answers_for_a_group_that_is_not_there_or_not_formed():
    assert not ask(World()).layer.found
    world = World(min_members=2).start("A")
    assert not ask(world).layer.found


def test_a_group_that_is_parted_shows_all_its_views():
    world = formed("ABCDE")
    world.partition("AB", "CDE")
    world.run(5000)
    assert sorted(map(sorted, ask(world).views())) == [["A", "B"], ["C", "D", "E"]]


def test_the_later_of_two_views_of_one_member_counts():
    world = formed("ABC")
    stranger = world.nodes["?"] = Stranger(world)
    stranger.start()
    world.run(1)
    assert sorted(map(sorted, stranger.views())) == [["A", "B", "C"]]
    stranger.layer.found[1] = next(iter(stranger.layer.found.values()))
    del world.nodes["?"]
    world.start("D")
    assert world.run_until_one(1000) is not None
    world.nodes["?"] = stranger
    world.run(200)
    assert sorted(map(sorted, stranger.views())) == [["A", "B", "C", "D"]]


def test_many_questions_do_not_make_many_answers():
    """Three members answer, each once in a seek_interval."""
    world = formed(f"m{number}" for number in range(10))
    answers = []

    def tap(node, datagram):
        if wire.open_datagram(datagram, node.stack.group).kind == PRESENT and node.name != "?":
            answers.append(node.name)

    world.tap = tap
    stranger = world.nodes["?"] = Stranger(world)
    stranger.start()
    for _ in range(1000):
        stranger.layer.linked(1, world.now)
        stranger.end_turn()
        world.run(0.1)
    assert set(answers) <= set(world["m0"].view.names[:3])
    assert len(answers) <= 3 * (100 / 50 + 1)
