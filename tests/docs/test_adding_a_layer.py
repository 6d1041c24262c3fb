"""The layers that the page adds work in the simulator and over UDP."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from channels import joined

from ringcast import Channel
from ringcast.sim.cluster import Cluster
from ringcast.sim.network import MS, Network
from ringcast.stacks import STACKS

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-layer.md"


@pytest.fixture
def page(monkeypatch):
    """Return what the code blocks define. Reset the table of stacks at the end."""
    names = {"STACKS": dict(STACKS), "replace": replace, "partial": partial, "__name__": "page"}
    for block in re.findall(r"```python\n(# src/.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
    for name in names["STACKS"].keys() - STACKS.keys():
        monkeypatch.setitem(STACKS, name, names["STACKS"][name])
    return names


def simulated(stack, **network):
    group = Cluster("ABC", seed=3, stack=stack, network=Network(**network)).start()
    group.run(500)
    return group


def call(member, layer, method, *arguments):
    getattr(member.endpoint.layer(layer), method)(*arguments, member.now)
    member.turn()


def test_a_round_trip_is_measured_in_the_simulator(page):
    group = simulated("round-trip-udp", delay=(2 * MS, 2 * MS))
    a, b = group["A"], group["B"]
    call(a, page["RoundTrip"], "ask", b.incarnation)
    group.run(10)
    assert a.endpoint.layer(page["RoundTrip"]).times == {b.incarnation: 4 * MS}


def test_a_forwarded_message_comes_from_the_coordinator_whatever_is_lost(page):
    group = simulated("forward-udp", loss=0.2, duplicate=0.1, reorder=0.1)
    names = {member.address.incarnation: member for member in group.living()}
    first, second, third = (names[each.incarnation] for each in group["A"].views[-1].members)
    for number in range(20):
        for member in (first, second, third):
            call(member, page["ForwardToCoord"], "forward", f"{member.name}{number}".encode())
            member.offer(3, 100)                        # messages of its own, at the same time
        group.run(3)
    group.heal()
    group.settle()
    assert group.owed() is None
    def forwarded(member):
        return [payload for payload in member.consumer.got[first.address] if len(payload) < 10]

    for member in group.living():
        came = forwarded(member)
        for each in "ABC":
            assert [payload for payload in came if payload[:1] == each.encode()] == [
                f"{each}{n}".encode() for n in range(20)]
        assert came == forwarded(second)


def test_the_next_coordinator_forwards_when_the_first_one_dies(page):
    group = simulated("forward-udp")
    names = {member.address.incarnation: member for member in group.living()}
    first, second, third = (names[each.incarnation] for each in group["A"].views[-1].members)
    first.crash()
    call(third, page["ForwardToCoord"], "forward", b"after all")
    group.run(100)
    second.exclude(first.name)
    group.run(1000)
    for member in (second, third):
        assert member.consumer.got[second.address] == [b"after all"]


def test_without_room_the_coordinator_waits(page):
    group = Cluster("AB", stack="forward-udp", capacity=2).start()
    group.run(500)
    first = group.incarnations[group["A"].views[-1].members[0].incarnation]
    second = group["B" if first.name == "A" else "A"]
    second.endpoint.max_undelivered = 0                 # takes nothing, so nothing is purged
    for number in range(5):
        call(second, page["ForwardToCoord"], "forward", b"%d" % number)
    group.run(200)
    assert len(second.endpoint.layer(page["ForwardToCoord"]).waiting) == 3
    second.endpoint.max_undelivered = 100
    second.request_turn()
    group.settle()
    assert second.consumer.got[first.address] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.udp
def test_both_layers_work_over_udp(page, monkeypatch):
    monkeypatch.setattr(Channel, "forward", page["forward"], raising=False)
    with joined("AB", stack="forward-udp") as (a, b):
        coordinator = a.view.members[0]
        assert a.forward(b"from A") and b.forward(b"from B")
        for channel in (a, b):
            messages = iter(channel)
            came = [next(messages) for _ in range(2)]
            assert {message.payload for message in came} == {b"from A", b"from B"}
            assert {message.sender for message in came} == {coordinator}


def test_the_messages_that_wait_are_bounded(page):
    group = Cluster("A", stack="forward-udp")
    layer = page["ForwardToCoord"](group.start()["A"].address, group["A"].config,
                                   group["A"].multicast)
    assert [layer.forward(b"", 0) for _ in range(1001)] == [True] * 1000 + [False]
