"""Channels whose arguments do not match those of the others in their group. In one process."""

import random

import pytest
from channels import STACKS, Collector, new_group, side_by_side

from ringcast import Channel


@pytest.fixture
def group():
    """What all members of a test's group share: a name, and ports that nobody else uses."""
    return {"group": new_group(), "port": random.SystemRandom().randint(20_000, 60_000)}


@pytest.mark.parametrize("stack", STACKS)
def test_members_may_list_each_other_in_any_order(stack, group):
    lists = {"A": ["C", "A", "B"], "B": ["B", "C", "A"], "C": {"A", "B", "C"}}
    collectors = {name: Collector(3 * 500) for name in lists}
    channels = [Channel(**group, name=name, members=lists[name], stack=stack, capacity=50, on_message=collectors[name])
                for name in lists]
    side_by_side([channel.connect for channel in channels])
    assert {channel.view for channel in channels} == {channels[0].view}
    assert channels[0].view.names == ("A", "B", "C")
    side_by_side([lambda c=channel: [c.send(b"%d" % k) for k in range(500)] for channel in channels])
    for collector in collectors.values():
        assert collector.wait() == {name: [b"%d" % k for k in range(500)] for name in lists}
    side_by_side([channel.close for channel in channels])
