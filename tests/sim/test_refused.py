"""A simulated group in which processes that are gone refuse what is sent to them."""

import pytest

from ringcast.sim.cluster import Cluster


def group(stack, refuses=True):
    """Three members that agree, and what the layers of A have heard."""
    cluster = Cluster("ABC", stack=stack, refuses=refuses).start()
    cluster.settle()
    cluster.checkers.note_cause()
    heard = []
    pass_up = cluster["A"].stack.refused

    def hear(members, now):
        heard.extend(members)
        pass_up(members, now)

    cluster["A"].stack.refused = hear
    return cluster, heard


def talk(cluster, milliseconds=200):
    """Let A send something to everybody and to B alone."""
    cluster["A"].send(b"to everybody")
    cluster["A"].send_unicast("B", 1, 10)
    cluster.run(milliseconds)


@pytest.fixture(params=["mcast-udp", "mcast-tcp"])
def stack(request):
    return request.param


def test_a_process_that_is_gone_shows(stack):
    cluster, heard = group(stack)
    cluster["B"].crash()
    talk(cluster)
    assert set(heard) == {cluster["B"].incarnation}


def test_heartbeats_tell_it_too(stack):
    cluster, heard = group(stack)
    cluster["B"].crash()
    cluster.run(1000)
    assert set(heard) == {cluster["B"].incarnation}


def test_it_takes_as_long_as_the_link_needs():
    cluster, heard = group("mcast-tcp")
    cluster.network.delay = (1_000_000, 3_000_000)
    cluster["B"].crash()
    cluster.run(2.9)
    assert heard == []
    cluster.run(0.2)
    assert heard == [cluster["B"].incarnation]


def test_who_is_paused_does_not_refuse(stack):
    cluster, heard = group(stack)
    cluster["B"].pause(1_000_000_000)
    talk(cluster)
    assert heard == []


@pytest.mark.parametrize("direction", [("A", "B"), ("B", "A")])
def test_who_is_cut_off_does_not_refuse_before_the_network_heals(stack, direction):
    cluster, heard = group(stack)
    cluster.network.cut = {direction, ("B", "C"), ("C", "B")}      # C hears nothing either
    if cluster.links is not None:
        cluster.links.break_all_cut()
    cluster["B"].crash()
    talk(cluster)
    assert heard == []
    cluster.network.cut = set()
    talk(cluster)
    assert set(heard) == {cluster["B"].incarnation}


def test_who_was_excluded_does_not_refuse_any_more(stack):
    cluster, heard = group(stack)
    cluster["A"].exclude("B")
    cluster["B"].crash()
    cluster.run(200)
    assert set(cluster["A"].views[-1].names) == {"A", "C"}
    heard.clear()
    talk(cluster)
    assert heard == []


def test_a_member_that_left_refuses_like_one_that_died(stack):
    """But by then it is in nobody's view."""
    cluster, heard = group(stack)
    cluster["B"].leave()
    cluster.run(500)
    assert not cluster["B"].alive and heard == []


def test_groups_refuse_nothing_unless_they_are_told_to(stack):
    cluster, heard = group(stack, refuses=False)
    cluster["B"].crash()
    talk(cluster)
    assert heard == []


def test_the_same_seed_is_the_same_run(stack):
    def run():
        cluster, heard = group(stack)
        cluster["B"].crash()
        talk(cluster)
        return cluster.fingerprint, cluster.num_events, heard
    assert run() == run()
