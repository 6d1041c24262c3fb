"""What a member tells operators about suspicions: who, whom, and what shows it."""

import pytest
from membership_world import World

from ringcast.protocols.membership.detection import MOST_NOTICES
from ringcast.protocols.membership.messages import SUSPECTS, Suspects


@pytest.fixture
def world():
    world = World(5).start(*"ABC")
    assert world.run_until_one(5000) is not None
    world.run(500)
    return world


def kept(node):
    """A list that gets the notices of a member from now on: (kind, who, whom, why)."""
    notices, take = [], node.stack.take

    def taken():
        effects = take()
        notices.extend((each.kind, each.who, each.whom, each.why) for each in effects.notices)
        return effects

    node.stack.take = taken
    return notices


def test_a_silent_member_is_suspected_with_its_silence_and_must_go_by_all_votes(world):
    notices = kept(world["A"])
    world["C"].crash()
    world.run(20_000)
    mine, = (why for kind, who, whom, why in notices
             if (kind, who, whom) == ("suspects", "A", "C"))
    seconds = float(mine.removeprefix("silent for ").partition(" s")[0])
    assert seconds >= world["A"].layer.detection.timeout / 1e9 and "no probe answered" in mine
    assert ("suspects", "B", "C", "it says so") in notices
    verdict, = (why for kind, _, whom, why in notices if (kind, whom) == ("must go", "C"))
    assert verdict == "suspected by A, B, 2 of the 2 that watch it"


def test_an_operator_who_excludes_is_told(world):
    notices = kept(world["A"])
    world["A"].layer.exclude("C", world.now)
    world["A"].end_turn()
    assert notices == [("excludes", "A", "C", "an operator says so")]


def test_who_makes_a_member_say_much_in_one_turn_is_not_heard_out(world):
    node, other = world["A"], world["B"]
    view, me, third = node.layer.view_id, other.address.incarnation, world["C"].address.incarnation
    body = [Suspects(view, [third], []), Suspects(view, [], [])]
    for step in range(3 * MOST_NOTICES):
        node.stack.receive([other.stack.control(SUSPECTS, body[step % 2]).data], world.now)
    assert me in node.layer.members
    assert len(node.stack.effects.notices) == MOST_NOTICES
