"""A simulated process: its clock, its socket, its application, and how it is hurt."""

import pytest

from ringcast.sim.clock import Clock
from ringcast.sim.cluster import Cluster
from ringcast.sim.network import MS, Network

SECOND = 1000 * MS


@pytest.mark.parametrize("permille", [900, 1000, 1001, 1100])
def test_a_clock_is_never_late_for_a_deadline(permille):
    clock = Clock(base=123_456_789_012, permille=permille)
    for reading in range(123_456_789_012, 123_456_790_012, 7):
        at = clock.when(reading)
        assert clock.read(at) >= reading
        assert clock.read(at - 1) < reading


def test_a_jump_is_ahead_and_the_clock_goes_on_from_there():
    clock = Clock(base=5, permille=900)
    clock.jump(1000, 50_000)
    assert clock.read(1000) == 5 + 900 + 50_000
    assert clock.read(2000) == 5 + 1800 + 50_000


def group(names="AB", **options):
    """A group that is patient with members that are silent."""
    cluster = Cluster(names, **{"suspect_timeout": 3_600_000} | options).start()
    cluster.settle()
    cluster.checkers.note_cause()
    return cluster


def got(cluster, receiver, sender):
    return cluster[receiver].consumer.got.get(cluster[sender].address, [])


def test_a_full_socket_drops_and_the_rest_is_repeated():
    cluster = group(socket_bytes=2000, receive_budget=1 << 20, max_bundle_size=600)
    b = cluster["B"]
    b.pause(50 * MS)
    payloads = [b"%d" % k + bytes(90) for k in range(200)]
    cluster["A"].send(*payloads)
    cluster.run(40)
    assert b.transport.num_overflows > 10 and b.transport.num_bytes <= 2000
    cluster.settle()
    assert got(cluster, "B", "A") == payloads


@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp"])
def test_all_may_begin_to_send_at_one_moment(stack):
    cluster = group("ABCDEF", stack=stack, socket_bytes=1 << 20, max_bundle_size=600)
    members = cluster.members.values()
    for member in members:
        assert 0 < member.send(*[bytes(500)] * 2000) < 2000, "its window is full"
        member.pause(20 * MS)                           # nobody reads meanwhile
    cluster.run(100)
    assert [member.transport.num_overflows for member in members] == [0] * 6


def test_one_that_was_acknowledged_may_use_all_that_it_was_granted():
    cluster = group("ABCDEF")
    a, limits = cluster["A"], []
    for _ in range(2):
        limits.append(a.multicast.send_window.ring.max_bytes)
        a.send(b"1")
        cluster.settle()
    assert limits[1] == a.config.max_bytes and limits[0] == limits[1] // 5


def test_in_a_large_group_the_first_ack_waits_only_if_the_first_window_is_not_full():
    cluster = group("ABCDEFGHIJKLMNOP")
    a, b = cluster["A"], cluster["B"]
    assert a.multicast.scan_pause > 7 * MS
    a.send(b"1")
    full = b.multicast.send_window.ring.max_bytes // 1000
    assert b.send(*[bytes(1000)] * 2 * full) < 2 * full
    cluster.run(3)
    assert a.multicast.unacked() == 1
    assert b.multicast.credits.is_acked
    cluster.settle()


def test_a_paused_member_does_nothing_and_then_catches_up():
    cluster = group()
    cluster["B"].pause(2 * SECOND)
    cluster["A"].send(b"1", b"2")
    cluster.run(1900)
    assert got(cluster, "B", "A") == [] and cluster["A"].multicast.unacked() == 2
    cluster.run(200)
    assert got(cluster, "B", "A") == [b"1", b"2"] and cluster["A"].multicast.unacked() == 0


def test_a_member_that_was_out_is_told_once_what_nobody_will_be_given():
    told = []
    group = Cluster("ABC", seed=3, network=Network(delay=(MS // 5, 2 * MS))).start()
    group.run(500)
    c, check = group["C"], group.checkers.undelivered
    group.checkers.undelivered = lambda sender, batch: (told.append(batch), check(sender, batch))
    group.checkers.views.has_cause = True
    c.offer(20, 100)
    c.pause(4000 * MS)
    group.run(4500)                         # A and B both say that they are in another view
    group.settle()
    assert [payload for batch in told for payload in batch.payloads] == c.log
    assert [view.names for view in c.views[1:2]] == [("C",)] and len(c.views) == 3


def test_a_pause_can_be_ended():
    cluster = group()
    cluster["B"].pause(3600 * SECOND)
    cluster["A"].send(b"1")
    cluster.run(100)
    cluster["B"].end_pause()
    cluster.run(10)
    assert got(cluster, "B", "A") == [b"1"]


def test_a_paused_application_sends_nothing():
    cluster = group()
    cluster["A"].pause(50 * MS)
    cluster["A"].offer(3, 10)
    cluster.run(40)
    assert cluster["A"].log == []
    cluster.run(20)
    assert len(cluster["A"].log) == 3


def test_a_slow_application_finishes_in_order_and_late():
    cluster = group()
    b = cluster["B"]
    b.consumer.finish_after, b.endpoint.max_undelivered = 100 * MS, 2
    cluster["A"].send(*[b"%d" % k for k in range(6)])
    cluster.run(90)
    assert len(got(cluster, "B", "A")) == 2 and cluster["A"].multicast.unacked() == 6
    cluster.run(20)
    assert len(got(cluster, "B", "A")) == 4 and cluster["A"].multicast.unacked() == 4
    b.consumer.finish_after = 0
    cluster.settle()
    assert cluster["A"].multicast.unacked() == 0


def test_an_application_that_wakes_finishes_what_it_works_on_first():
    cluster = group()
    a, b = cluster["A"], cluster["B"]
    for finish_after, payload in [(100 * MS, b"1"), (None, b"2")]:
        b.consumer.finish_after = finish_after
        a.send(payload)
        cluster.run(10)
    assert len(got(cluster, "B", "A")) == 2
    b.consumer.wake()
    cluster.run(50)
    assert a.incarnation not in b.consumer.finished
    cluster.run(50)
    assert b.consumer.finished[a.incarnation] == a.last


def test_a_full_send_buffer_loses_the_end_of_a_turn():
    cluster = group(max_bundle_size=512)
    cluster["A"].transport.send_full = 1.0
    cluster["A"].send(*[bytes(400)] * 20)
    assert cluster["A"].transport.num_unsent > 0
    cluster["A"].transport.send_full = 0.0
    cluster.settle()
    assert len(got(cluster, "B", "A")) == 20


def test_what_is_offered_is_sent_as_soon_as_there_is_room():
    cluster = group(capacity=4)
    cluster["A"].offer(100, 5)
    cluster.run(0)
    assert len(cluster["A"].log) == 4 and len(cluster["A"].producer.multicasts.backlog) == 96
    cluster.settle()
    assert got(cluster, "B", "A") == cluster["A"].log and len(cluster["A"].log) == 100
    assert len(set(cluster["A"].log)) == 100
    assert cluster["A"].producer.num_blockings > 0


def test_a_leaver_waits_for_its_acks_and_sees_that_the_others_know():
    cluster = group("ABC")
    cluster["A"].send(*[b"%d" % k for k in range(10)])
    cluster["A"].leave()
    cluster.run(500)
    assert cluster["A"].left and not cluster["A"].alive and cluster["A"].multicast.unacked() == 0
    assert cluster["B"].views[-1] == cluster["C"].views[-1]
    assert set(cluster["B"].views[-1].names) == {"B", "C"}
    assert len(got(cluster, "B", "A")) == 10


def test_a_leaver_that_nobody_answers_gives_up():
    cluster = group()
    cluster.network.cut = {("B", "A")}
    cluster["A"].send(b"1")
    cluster["A"].leave()
    cluster.run(4900)
    assert cluster["A"].alive and not cluster["A"].left
    cluster.run(2200)
    assert not cluster["A"].alive


def test_an_incarnation_at_a_new_address_is_found():
    cluster = group(suspect_timeout=100, heartbeat_interval=10)
    cluster["B"].crash()
    cluster.start("B", physical="elsewhere")
    cluster.run(500)
    assert cluster["A"].transport.routes[cluster["B"].incarnation] == "elsewhere"
    cluster["B"].send(b"from there")
    cluster.settle()
    assert got(cluster, "A", "B") == [b"from there"]


def test_a_clock_that_jumps_or_runs_fast_loses_nothing():
    cluster = Cluster("AB", network=Network(loss=0.1))
    cluster.checkers.note_cause()
    cluster.start("A", clock=Clock(0, 1100)).start("B", clock=Clock(2**62, 900))
    cluster.settle()
    for _ in range(5):
        cluster["A"].send(*[b"%d" % k for k in range(20)])
        cluster["A"].clock.jump(cluster.now, 86_400 * SECOND)
        cluster["A"].request_turn()
        cluster.run(20)
    cluster.network.heal()
    cluster.settle()
    assert len(got(cluster, "B", "A")) == 100


@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp"])
@pytest.mark.parametrize("seed", range(20))
def test_when_all_leave_at_once_under_loss_nothing_that_all_have_is_reported(stack, seed):
    cluster = Cluster("ABC", seed=seed, stack=stack, network=Network(loss=0.4)).start()
    cluster.checkers.note_cause()
    cluster.settle(30_000)
    for member, dest in ("AB", "BC", "CA"):
        cluster[member].offer(30, 10)
        cluster[member].send_unicast(dest, 30, 10)
    members = [cluster[name] for name in "ABC"]
    for _ in range(10_000):
        if all(sum(map(len, member.consumer.got.values())) == 90
               and all(log.last_delivered == 29 for log in member.producer.unicast_logs.values())
               for member in members):
            break
        cluster.run(1)
    else:
        pytest.fail("somebody did not get everything")
    for member in members:
        member.leave()
    cluster.run(12_000)
    assert [member.left and not member.alive for member in members] == [True] * 3
    for member in members:
        assert member.multicast.unacked() == member.unicast.num_unacked() == 0
        assert member.unicast.counters.unicast_undelivered == 0


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("stack", ["mcast-udp", "mcast-tcp", "nakack2-udp", "nakack2-tcp"])
def test_a_large_message_to_all_is_cut_and_numbered_as_it_ships(stack, threads):
    """Each fragment has a seqno. The number of the whole message is the seqno of the
    first."""
    cluster = Cluster("ABC", stack=stack, max_bytes=100_000, threads=threads).start()
    cluster.settle()
    a = cluster["A"]
    a.offer(2, 10)
    a.offer(1, 150_000)
    a.offer(2, 10)
    cluster.settle()
    assert cluster.owed() is None
    whole = [payload for payload in a.log if payload is not None]
    assert len(whole) == 5 and len(whole[2]) > 150_000
    assert len(a.log) == 4 + 3 and a.log.begin_of(5) == 3 and a.log.end_of(3) == 5
    for name in "ABC":
        got_by = cluster[name].consumer.got[a.address]
        assert [payload for payload in got_by if payload is not None] == whole
