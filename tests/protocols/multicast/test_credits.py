"""Credits: a sender has no more on its way than its receivers' socket buffers hold. A
large message may be larger, and is acknowledged when it is whole."""

import pytest

from ringcast._core.wire import MAX_PAYLOAD
from ringcast.protocols.multicast import mcast, stable
from ringcast.protocols.multicast.base import DATA, REPEAT
from ringcast.sim.cluster import Cluster
from ringcast.sim.network import Network

CREDIT, SIZE = 20_000, 200_000
UDP = ["mcast-udp", "nakack2-udp"]
# Then receivers report because of bytes that came, and hardly ever by time.
BY_BYTES = {"mcast-udp": {"ack_threshold": 1 << 20, "xmit_interval": 200},
            "nakack2-udp": {"stable_interval": 200, "stable_bytes": 1 << 30, "xmit_interval": 200}}


def pair(stack="mcast-udp", **options):
    """Return a group of A and B that have spoken with each other."""
    group = Cluster("AB", stack=stack, receive_budget=CREDIT, max_bundle_size=2000, **options)
    group.start("A").start("B").run(500)
    group["A"].send(b"first")
    group["A"].send_unicast("B", 1, 10)
    group.run(500)
    return group


def window_of(group, dest):
    a = group["A"]
    if dest is None:
        return a.multicast.send_window
    return a.unicast.senders[group[dest].incarnation].window


def lows(group, dest, most):
    """Return how LOW of A's window goes up, while one large message is on its way."""
    window, began = window_of(group, dest), group.now
    before, seen = window.ring.hr, []
    if dest is None:
        group["A"].offer(1, SIZE)
    else:
        group["A"].send_unicast(dest, 1, SIZE)
    while window.ring.hr == before or window.ring.low != window.ring.hr:
        group.run(1)
        seen.append(window.ring.low)
        assert group.now < began + most * 1_000_000, "it stalls"
    return sorted(set(seen)), window.ring.hr


@pytest.mark.parametrize("dest", [None, "B"])
@pytest.mark.parametrize("stack", UDP)
def test_a_message_of_many_credits_does_not_stall(stack, dest):
    assert SIZE > MAX_PAYLOAD
    group = pair(stack)
    before = window_of(group, dest).ring.hr
    seen, last = lows(group, dest, 15)
    assert seen == [before, last]
    group.settle()
    assert window_of(group, dest).ring.max_bytes <= CREDIT


@pytest.mark.parametrize("dest", [None, "B"])
@pytest.mark.parametrize("stack", UDP)
def test_what_says_how_much_is_here_may_be_lost(stack, dest):
    group = pair(stack)
    a, window = group["A"], window_of(group, dest)
    group.network.discard = lambda source, target, datagram: target == "A"
    if dest is None:
        a.offer(1, SIZE)
    else:
        a.send_unicast(dest, 1, SIZE)
    group.run(40)
    assert window.is_held and window.ring.low != window.ring.hr, "nothing waits"
    group.network.discard = None
    began = group.now
    while window.ring.low != window.ring.hr:
        group.run(1)
        assert group.now < began + 500_000_000, "it stalls"
    group.settle()


@pytest.mark.parametrize("stack", UDP)
def test_each_receiver_of_three_has_room_for_what_is_on_its_way(stack):
    group = Cluster("ABCD", stack=stack, receive_budget=CREDIT, max_bundle_size=2000)
    for name in "ABCD":
        group.start(name)
    group.run(500)
    for name in "ABC":
        group[name].offer(3, SIZE)
    group.run(500)
    group.settle()
    assert all(group[name].multicast.counters.xmit_rsps_sent == 0 for name in "ABC")


def test_who_waits_for_room_hears_of_a_larger_credit():
    group = pair()
    a, credits = group["A"], group["A"].multicast.credits
    for credit, is_more in [(CREDIT // 2, False), (CREDIT, True), (CREDIT, False)]:
        a.endpoint.take(group.now)
        credits.use(credit, 0)
        assert a.endpoint.take(group.now).writable == is_more


@pytest.mark.parametrize("stack", UDP)
def test_who_is_alone_waits_for_nobody(stack):
    group = Cluster("A", stack=stack, receive_budget=CREDIT, send_budget=CREDIT).start("A")
    group.run(500)
    group["A"].offer(2, SIZE)
    group.run(100)
    assert group["A"].multicast.unacked() == 0, "it stalls"
    group.settle()


def lone_receiver(stack, takes_own):
    """Return A, and a group in which nobody else takes messages."""
    group = Cluster("ABC", stack=stack, receive_budget=CREDIT, send_budget=CREDIT)
    for name in "ABC":
        group.start(name, receiving=name == "A" and takes_own)
    group.run(1000)
    return group["A"], group


@pytest.mark.parametrize("takes_own", [True, False])
@pytest.mark.parametrize("stack", UDP)
def test_where_nobody_else_takes_messages_no_part_waits_for_a_timer(stack, takes_own):
    """Nobody acknowledges a part, and a member may have finished its own before they
    are sent."""
    a, group = lone_receiver(stack, takes_own)
    a.offer(2, 1_000_000)
    began = group.now
    while a.multicast.unacked() or a.producer.multicasts.backlog:
        group.run(1)
        assert group.now < began + 200_000_000, "it stalls"
    group.settle()


@pytest.mark.parametrize("takes_own", [True, False])
def test_where_nobody_else_takes_messages_a_turn_follows_each_part(takes_own):
    a, group = lone_receiver("mcast-udp", takes_own)
    window, turns = a.multicast.send_window, 0
    assert window.push_whole([bytes(60_000) for _ in range(6)]) == 6
    a.endpoint.deliver(group.now)
    a.endpoint.finish(a.endpoint.take(group.now).deliveries, group.now)
    a.multicast.flush(group.now)
    while a.endpoint.take(group.now).arrived:
        turns += 1
    assert turns > 2 and window.ring.low == window.ring.hr


@pytest.mark.parametrize("stack", UDP)
def test_a_part_that_all_have_lets_more_follow_than_a_first_window(stack):
    group = Cluster("ABCDEFGH", stack=stack)
    for name in "ABCDEFGH":
        group.start(name)
    group.run(500)
    a = group["A"]
    a.offer(1, 1_900_000)
    group.run(8)
    assert a.multicast.credits.is_acked
    group.run(20)
    assert a.multicast.unacked() == 0, "it stalls"
    group.settle()


@pytest.mark.parametrize("stack", UDP)
def test_a_first_window_is_acknowledged_when_a_quarter_of_it_is_here(stack):
    group = Cluster("ABCDEF", stack=stack, **BY_BYTES[stack])
    for name in "ABCDEF":
        group.start(name)
    group.run(1000)
    a = group["A"]
    a.offer(3000, 1000)
    group.run(5)
    assert a.multicast.credits.is_acked and not a.producer.multicasts.backlog
    group.settle()


@pytest.mark.parametrize("stack", UDP)
def test_who_was_acknowledged_hears_of_a_quarter_of_its_window(stack):
    group = Cluster("ABCDEF", stack=stack, **BY_BYTES[stack])
    for name in "ABCDEF":
        group.start(name)
    group.run(1000)
    a = group[group["A"].views[-1].coordinator.name]
    layer = next(member for member in group.living() if member is not a).multicast
    a.send(b"first")
    group.run(1000)

    def reports():
        counters = layer.counters if stack == "mcast-udp" else layer.stability.counters
        return counters.acks_sent if stack == "mcast-udp" else counters.votes_sent

    before, quarter = reports(), a.config.max_bytes // 4
    for count, least, most in [(quarter // 2000, 0, 1), (quarter // 1500, 1, 2)]:
        assert a.send(*[bytes(1000)] * count) == count
        group.run(5)
        assert least <= reports() - before <= most
    group.settle()


@pytest.mark.parametrize("loss, receivers, most", [(0.05, 1, 18), (0.2, 1, 55), (0.05, 3, 28),
                                                   (0.2, 3, 160)])
def test_what_has_come_behind_a_gap_leaves_room_for_more(loss, receivers, most):
    """The socket buffers are what most systems give. The times are medians."""
    times = []
    for seed in range(3):
        network = Network(delay=(50_000, 50_000), bandwidth=1_000_000_000)
        group = Cluster("ABCD"[:receivers + 1], seed=seed, network=network, receive_budget=208_000)
        group.start().run(1000)
        a, others = group["A"], [group[name] for name in "BCD"[:receivers]]
        a.send(b"first")
        group.run(500)
        network.loss, began, window = loss, group.now, a.multicast.send_window
        a.offer(12_000, 1000)
        while a.producer.multicasts.backlog or any(
                other.multicast.windows[a.incarnation].ring.hd != window.ring.hr
                for other in others):
            group.run(0.2)
        times.append((group.now - began) / 1_000_000)
        network.heal()
        group.settle()
    assert sorted(times)[1] < most, times


def test_what_has_come_behind_a_gap_is_told():
    group = pair(**BY_BYTES["mcast-udp"])
    a, window = group["A"], group["A"].multicast.send_window
    stream, lost = group["B"].multicast.windows[a.incarnation].stream, []

    def is_first(source, target, datagram):
        lost.extend([datagram] if source == "A" and not lost else [])
        return datagram in lost

    group.network.discard = is_first
    a.send(*[bytes(900)] * 20)
    group.run(2)
    most = window.credit + stream.parts
    assert stream.ring.num_missing and window.credit * 5 // 4 <= window.ring.max_bytes <= most
    group.run(1000)
    assert stream.parts == 0 and window.ring.max_bytes == window.credit
    group.settle()


@pytest.mark.parametrize("stack", UDP)
def test_what_has_come_behind_a_gap_leaves_room_beyond_a_whole_window(stack):
    group = Cluster("AB", stack=stack, max_bytes=20_000, max_bundle_size=2_000).start()
    group.settle()
    a, lost = group["A"], []

    def is_lost(source, target, datagram):
        lost.extend([datagram] if datagram[3] == DATA and not lost else [])
        return datagram in lost or datagram[3] == REPEAT

    group.network.discard = is_lost
    ring = a.multicast.send_window.ring
    a.offer(40, 900)
    group.run(50)
    assert 25_000 < ring.max_bytes <= 30_000 and ring.nbytes > 20_000
    group.network.discard = None
    group.settle()
    assert ring.max_bytes == 20_000


def test_what_waits_for_a_slow_application_leaves_no_room_for_more():
    group = pair()
    stream = group["B"].multicast.windows[group["A"].incarnation].stream
    ring = stream.ring
    ring.add(ring.hd + 2, bytes(900))
    ring.add(ring.hd + 4, bytes(500))
    assert stream.parts == 1400
    ring.add(ring.hd + 1, bytes(900))
    assert stream.parts == 0


def test_what_is_not_freed_is_not_behind_a_gap():
    group = pair()
    stream = group["B"].multicast.windows[group["A"].incarnation].stream
    ring = stream.ring
    first = ring.hd + 1
    for seqno in (first, first + 1, first + 3):
        ring.add(seqno, bytes(900))
    assert len(ring.remove_many(nullify=False)) == 2 and ring.low < first
    assert stream.parts == 900


def test_who_misses_nothing_makes_room_with_an_ack_alone():
    group = Cluster("ABC", receive_budget=CREDIT, max_bundle_size=2000)
    for name in "ABC":
        group.start(name)
    group.run(500)
    a = group["A"]
    a.send(b"first")
    group.run(500)
    layer, start = a.multicast, a.multicast.send_window.ring.low
    group.network.discard = lambda source, target, datagram: True
    a.send(*[bytes(500)] * 20)
    group.run(1)

    def acked(name, seqno, parts):
        body = mcast.Ack({a.incarnation: seqno}, CREDIT, 0, {a.incarnation: parts})
        a.arrive(group[name].stack.control(mcast.ACK, body, a.incarnation).data)
        group.run(1)
        return layer.send_window.ring.max_bytes

    assert acked("B", start, 5000) == CREDIT, "C may have nothing"
    assert acked("C", start + 4, 0) == CREDIT + 4 * 500
    assert acked("C", start + 20, 0) == CREDIT + 5000


def test_a_late_ack_says_nothing_of_a_large_message():
    group = pair()
    a, b = group["A"], group["B"]
    layer, end = a.multicast, a.multicast.send_window.ring.low

    def acked(seqno, parts):
        body = mcast.Ack({a.incarnation: seqno}, CREDIT, 0, {a.incarnation: parts})
        a.arrive(b.stack.control(mcast.ACK, body, a.incarnation).data)
        group.run(1)
        return layer.send_window.ring.max_bytes

    assert acked(end, 500) == CREDIT + 500
    assert acked(end, 300) == CREDIT + 500, "parts come, and stay until all is whole"
    assert acked(end - 1, 900) == CREDIT + 500


@pytest.mark.parametrize("stack", UDP)
def test_nobody_makes_the_window_grow_by_saying_how_much_it_has(stack):
    group = pair(stack)
    first = group["A"].views[-1].coordinator.name
    a, b = group[first], group["AB".replace(first, "")]
    layer, huge = a.multicast, {a.incarnation: 1 << 62}
    if stack == "mcast-udp":
        kind, body = mcast.ACK, mcast.Ack({a.incarnation: layer.send_window.ring.low}, CREDIT, 0,
                                          huge)
    else:
        kind, body = stable.VOTE, stable.Vote(layer.view_id, True, CREDIT, {}, huge)
    a.arrive(b.stack.control(kind, body, a.incarnation).data)
    group.run(1)
    assert CREDIT < layer.send_window.ring.max_bytes <= a.config.max_bytes // 2 + CREDIT
    body.parts = {a.incarnation: -1 << 62}
    a.arrive(b.stack.control(kind, body, a.incarnation).data)
    group.run(1)
    assert layer.counters.num_bad + (stack != "mcast-udp" and layer.stability.counters.num_bad_votes
                                     ) == 1


def test_a_late_stability_says_nothing_of_a_large_message():
    group = pair("nakack2-udp")
    a, b = group["A"], group["B"]
    if a.views[-1].coordinator == a.address:
        a, b = b, a
    layer, end = a.multicast, a.multicast.send_window.ring.low

    def told(seqno, parts):
        report = stable.StabilityReport(layer.view_id, CREDIT, {a.incarnation: (seqno, end)}, {},
                                        {a.incarnation: parts})
        a.arrive(b.stack.control(stable.STABILITY, report, a.incarnation).data)
        group.run(1)
        return layer.send_window.ring.max_bytes

    without = layer.send_window.ring.max_bytes
    assert told(end, 500) == without + 500
    assert told(end, 300) == without + 500, "parts come, and stay until all is whole"
    assert told(end - 1, 900) == without + 500
