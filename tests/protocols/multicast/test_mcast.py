"""MCAST, paragraph by paragraph of the text, and decisions 8 to 15, on whole stacks in
a simulated network."""

import itertools

import msgspec
import pytest
from agreed import agreed_view
from large import LARGE, send_from_all

from ringcast import Address, Batch, Flag
from ringcast._core import wire
from ringcast._core.marks import Marks
from ringcast._core.stamps import Stamps
from ringcast.address import EVERYONE
from ringcast.config import MAX_MEMBERS, configure
from ringcast.protocols.budget import Budget
from ringcast.protocols.multicast import base as multicast, mcast
from ringcast.sim.cluster import Cluster
from ringcast.sim.network import MS, Network
from ringcast.stack import Stack
from ringcast.view import View

OPTIONS = {"capacity": 64, "ack_threshold": 8, "max_bundle_size": 600}


def cluster(names="ABC", **kwargs):
    group = Cluster(names, **(OPTIONS | kwargs)).start()
    group.run(500)
    return group


def payloads(name, first, last):
    return [b"%s-%d" % (name.encode(), k) for k in range(first, last + 1)]


def got(group, receiver, sender):
    return group[receiver].consumer.got.get(group[sender].address, [])


def counters(member):
    return member.multicast.counters


def control(group, source, kind, body, dest=EVERYONE):
    """A control datagram as `source` would send it."""
    return group[source].stack.control(kind, body, dest).data


def words(group):
    """From now on: the kind of each datagram of the layer."""
    log = []

    def note(source, dest, datagram):
        if datagram[3] in {*multicast.Multicast.kinds, mcast.ACK}:
            log.append(datagram[3])
    group.observer.sent = note
    return log


def window(group, receiver, sender):
    return group[receiver].multicast.windows[group[sender].address.incarnation]


# ------------------------------------------------------------------------ the text, healthy network

def test_every_member_gets_every_message_once_and_in_order():
    group = cluster()
    for name in "ABC":
        group[name].send(*payloads(name, 1, 40))
    group.settle()
    for receiver in "ABC":
        for sender in "ABC":
            assert got(group, receiver, sender) == payloads(sender, 1, 40)


def test_what_is_sent_before_the_first_view_waits_for_it():
    group = Cluster("AB", **OPTIONS).start()
    group["A"].send(*payloads("A", 1, 40))
    assert group["A"].multicast.send_window.sent == 0 and group["A"].consumer.got == {}
    group.settle()
    assert got(group, "A", "A") == got(group, "B", "A") == payloads("A", 1, 40)
    assert group["A"].multicast.unacked() == 0


def test_decision_15_own_messages_are_delivered_through_the_own_window():
    group = cluster("A")
    group["A"].send(*payloads("A", 1, 10))
    group.settle()
    assert got(group, "A", "A") == payloads("A", 1, 10)
    assert group["A"].multicast.send_window.ring.low == 10


def test_an_ack_goes_out_after_n_deliveries_and_otherwise_on_the_interval():
    group = cluster("AB")
    before = counters(group["B"]).acks_sent
    group["A"].send(*payloads("A", 1, 8))
    group.run(1)
    assert counters(group["B"]).acks_sent == before + 1
    group["A"].send(*payloads("A", 9, 11))
    group.run(1)
    assert counters(group["B"]).acks_sent == before + 1
    group.run(10)
    assert counters(group["B"]).acks_sent > before + 1
    assert group["A"].multicast.send_window.ring.low == 11


@pytest.mark.parametrize(("pause", "acks"), [(1, 100), (4, 75), (50, 6)])
def test_a_message_now_and_then_costs_each_receiver_one_ack_in_an_interval(pause, acks):
    """The sender's questions and the receivers' own acks do not add up: a question that
    crosses an ack has no answer."""
    group = cluster()
    before = [counters(group[name]).acks_sent for name in "BC"]
    for k in range(300 // pause):
        group["A"].send(*payloads("A", k, k))
        group.run(pause)
    sent = [counters(group[name]).acks_sent - was for name, was in zip("BC", before, strict=True)]
    assert all(0.9 * acks <= each <= 1.1 * acks for each in sent), sent


def test_an_ack_does_not_wait_for_a_question_that_is_lost():
    group = cluster("AB")
    group["A"].send(*payloads("A", 1, 2))
    group.run(2)
    group.network.cut = {("A", "B")}
    group.run(5)
    assert group["A"].multicast.send_window.ring.low == 2


def sent_of(group, source, kind):
    """From now on: to whom a member sends datagrams of a kind."""
    dests = []

    def note(sender, dest, datagram):
        if sender.name == source and datagram[3] == kind:
            dests.append(dest)
    group.observer.sent = note
    return dests


@pytest.mark.parametrize(("senders", "dests"), [("A", "A"), ("ACDEFG", "ACDEFG"),
                                                ("ACDEFGH", "*"), ("ABCDEFGHIJKL", "*")])
def test_one_ack_tells_all_senders_if_that_is_less_work_than_one_for_each(senders, dests):
    group = cluster("ABCDEFGHIJKL")
    for name in senders:
        group[name].send(*payloads(name, 1, 1))         # the first one is acknowledged at once
    group.settle()
    told = sent_of(group, "B", mcast.ACK)
    for name in senders:
        group[name].send(*payloads(name, 2, 3))
    group.settle()
    expected = [EVERYONE] if dests == "*" else [group[name].incarnation for name in dests]
    assert sorted(told) == sorted(expected)
    assert all(group[name].multicast.send_window.ring.low == 3 for name in senders)


def test_an_ack_for_others_says_nothing_to_who_has_no_place_in_it():
    group = cluster("AB")
    group.network.cut = {("B", "A")}
    group["A"].send(*payloads("A", 1, 10))
    group.run(20)
    group["A"].turn([control(group, "B", mcast.ACK, mcast.Ack({7: 10}, 1000))])
    assert group["A"].multicast.send_window.ring.low == 0
    assert counters(group["A"]).num_bad == 0


def test_acks_of_a_large_group_do_not_grow_with_the_square():
    """With 20 members a scan is 12 ms away from the next; then each tells all others,
    by one datagram."""
    group = cluster(LARGE, capacity=1024, ack_threshold=1024)
    said = words(group)
    sent = send_from_all(group, 100)
    acks, announced = said.count(mcast.ACK), said.count(multicast.HIGHEST)
    assert 1000 / 12 * 20 * 0.8 < acks < 1000 / 12 * 20 * 1.3
    assert announced <= 100                             # while messages come they tell it
    assert all(got(group, name, "A") == sent for name in LARGE)


def test_an_answer_in_a_large_group_waits_for_its_turn_and_is_given():
    group = cluster(LARGE)
    group["A"].send(*payloads("A", 1, 3))
    group.run(100)
    told = sent_of(group, "B", mcast.ACK)
    question = control(group, "A", multicast.HIGHEST, multicast.Highest(3, 0, 0))
    for _ in range(2):
        group["B"].turn([question])
    group.run(0.1)
    assert told == [group["A"].incarnation]
    group.run(15)
    assert told == [group["A"].incarnation] * 2


def test_decision_8_a_lost_last_message_of_a_large_group_is_noticed():
    group = cluster(LARGE)
    group.network.cut = {("A", "B")}
    group["A"].send(*payloads("A", 1, 3))
    group.run(1)
    group.network.cut = set()
    group.run(60)
    assert got(group, "B", "A") == payloads("A", 1, 3)


def test_a_sender_blocks_when_its_window_is_full_and_a_purge_unblocks_it():
    group = cluster("AB")
    group["B"].consumer.finish_after = None
    assert group["A"].send(*payloads("A", 1, 100)) == 64
    group.run(200)
    assert group["A"].send(b"no room") == 0
    writable = group["A"].producer.num_rooms
    group["B"].consumer.finish(Batch(group["A"].address, 1, payloads("A", 1, 20)))
    group.run(20)
    assert group["A"].producer.num_rooms > writable
    assert group["A"].multicast.send_window.ring.low == 20
    assert group["A"].send(*payloads("A", 65, 100)) == 20


def test_the_minimum_of_the_ack_map_is_what_is_purged():
    group = cluster()
    group.network.cut = {("C", "A")}
    group["A"].send(*payloads("A", 1, 20))
    group.run(100)
    assert group["A"].multicast.send_window.ring.low == 0
    group.network.cut = set()
    group.settle()
    assert group["A"].multicast.send_window.ring.low == 20


def test_a_message_is_acknowledged_only_when_the_application_has_finished_it():
    group = cluster("AB")
    group["B"].consumer.finish_after = None
    group["A"].send(*payloads("A", 1, 30))
    group.run(200)
    assert got(group, "B", "A") == payloads("A", 1, 30)
    assert group["A"].multicast.send_window.ring.low == 0


def test_a_missing_message_is_asked_for_and_repeated():
    group = cluster("AB")
    group.network.cut = {("A", "B")}
    group["A"].send(*payloads("A", 1, 5))
    group.run(1)
    group.network.cut = set()
    group["A"].send(*payloads("A", 6, 9))
    group.run(100)
    assert got(group, "B", "A") == payloads("A", 1, 9)
    assert counters(group["A"]).xmit_rsps_sent == 5
    assert counters(group["B"]).xmit_rsps_received == 5


def test_a_repeat_for_several_members_is_one_multicast():
    group = cluster("ABC", network=Network(delay=(100_000, 100_000)))
    group.network.cut = {("A", "B"), ("A", "C")}
    group["A"].send(*payloads("A", 1, 5))
    group.run(1)
    group.network.cut = set()
    group["A"].multicast.requests.clear()
    wanted = multicast.XmitReq([(1, 5)])
    dest = group["A"].address.incarnation
    group["A"].turn([control(group, "B", multicast.XMIT_REQ, wanted, dest),
                     control(group, "C", multicast.XMIT_REQ, wanted, dest)])
    assert counters(group["A"]).xmit_rsps_sent == 5
    group.run(5)
    assert got(group, "B", "A") == got(group, "C", "A") == payloads("A", 1, 5)


# ------------------------------------------------------------------------------------ the decisions

def test_decision_4_bounds_of_a_receive_window_on_both_sides():
    group = cluster("AB")
    group["A"].send(*payloads("A", 1, 10))
    group.settle()
    ring = window(group, "B", "A").ring
    low = ring.low
    header = group["A"].stack.header(multicast.DATA)
    for seqno, accepted in [(low, False), (low + ring.capacity + 1, False),
                            (low + ring.capacity, True), (low + 1, True),
                            (low + 1, False)]:
        other = mcast.RingBuffer(1, seqno - 1)
        other.send(b"m")
        before = len(ring) + ring.hd
        packed, _ = wire.pack(other, Marks(), Stamps(), [(seqno, seqno)], 600, header, 600)
        sender = group["A"].address.incarnation
        group["B"].multicast.receive([multicast.Packet(multicast.DATA, sender, 0, packed[0])], 0)
        assert (len(ring) + ring.hd > before) == accepted, seqno


def test_decision_8_a_lost_last_message_is_noticed():
    group = cluster("AB")
    group.network.cut = {("A", "B")}
    group["A"].send(*payloads("A", 1, 3))
    group.run(1)
    group.network.cut = set()
    group.settle()
    assert got(group, "B", "A") == payloads("A", 1, 3)
    assert group["A"].multicast.send_window.ring.low == 3


def test_decision_8_a_lost_last_ack_is_sent_again():
    group = cluster("AB")
    group.network.cut = {("B", "A")}
    group["A"].send(*payloads("A", 1, 3))
    group.run(50)
    assert got(group, "B", "A") == payloads("A", 1, 3)
    assert group["A"].multicast.send_window.ring.low == 0
    group.network.cut = set()
    group.settle()
    assert group["A"].multicast.send_window.ring.low == 3


def test_decision_8_a_member_that_is_dead_is_not_told_the_same_at_full_rate_for_ever():
    group = cluster(suspect_timeout=60_000)
    group["C"].crash()
    group["A"].send(*payloads("A", 1, 3))
    group.run(1000)
    said = words(group)
    group.run(10_000)
    looks = 10_000 / 3
    assert looks / 64 <= len(said) <= 3 * looks / 64 + 10


def test_decision_8_there_is_silence_when_everything_is_acknowledged():
    group = cluster()
    group["A"].send(*payloads("A", 1, 50))
    group.settle()
    said = words(group)
    group.run(60_000)
    assert not said


@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp"])
def test_a_gap_is_mended_long_before_the_next_scan(stack):
    group = cluster("AB", stack=stack, network=Network(delay=(0, MS // 10)), xmit_interval=60)
    group.settle()
    group.network.discard = lambda source, target, datagram: target == "B"
    group["A"].send(*payloads("A", 1, 1))
    group.run(1)
    group.network.discard = None
    group["A"].send(*payloads("A", 2, 2))
    group.run(12)
    assert got(group, "B", "A") == payloads("A", 1, 2)


def test_decision_9_where_messages_overtake_each_other_a_gap_is_asked_for_later():
    """They do by up to 5 ms."""
    group = cluster("AB", network=Network(delay=(1 * MS, 9 * MS)))
    asked = []
    for step in range(100):
        group["A"].send(*payloads("A", step * 3 + 1, step * 3 + 3))
        group.run(3)
        asked.append(counters(group["B"]).xmit_reqs_sent)
    group.settle()
    assert got(group, "B", "A") == payloads("A", 1, 300)
    assert asked[-1] <= asked[50] + 3 <= 13


@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp"])
def test_what_is_announced_is_asked_for_when_the_socket_was_empty(stack):
    group = cluster("AB", stack=stack)
    group["A"].send(*payloads("A", 1, 5))
    group.settle()
    b, layer = group["B"], group["B"].multicast
    highest = expect_five_more(group)
    asked = layer.counters.xmit_reqs_sent
    for _ in range(8):
        b.stack.receive([], b.now, emptied=False)
        layer.gap_looks.look(b.now)
    assert layer.counters.xmit_reqs_sent == asked
    b.stack.receive([], b.now, emptied=True)
    layer.gap_looks.look(b.now)
    assert layer.counters.xmit_reqs_sent == asked + 1
    assert window(group, "B", "A").ring.missing() == [(highest - 4, highest)]
    assert not layer.gap_looks.tails


def expect_five_more(group):
    """B hears of five messages of A that it has not; return the last of them."""
    highest = window(group, "B", "A").ring.hr + 5
    group["B"].multicast.gap_looks.expect(group["A"].incarnation, highest)
    return highest


def test_decision_9_a_request_is_bounded_by_a_datagram():
    group = cluster("AB", capacity=20_000, max_bundle_size=512)
    lost = itertools.cycle([True, False])
    group.network.discard = lambda source, target, datagram: next(lost)
    for k in range(1, 10_000, 2):
        group["A"].send(*payloads("A", k, k + 1))
    group.network.discard = None
    group.network.cut = {("A", "B")}
    sizes = []
    group.observer.sent = lambda source, dest, datagram: sizes.append(len(datagram))
    group.run(40)
    assert counters(group["B"]).xmit_reqs_sent > 0
    assert max(sizes) <= 65_507
    group.network.cut = set()
    group.settle(60_000)
    assert len(got(group, "B", "A")) == 10_000


@pytest.mark.parametrize("seed", range(30))
def test_decision_10_a_join_under_load_stalls_nobody(seed):
    """A member dies and another comes in its name while others send: that one gets a
    suffix of every stream, and nobody blocks for ever."""
    group = Cluster("ABC", seed=seed, network=Network(loss=0.1, delay=(50_000, 4 * MS)),
                    suspect_timeout=200, heartbeat_interval=20, **OPTIONS).start()
    group.run(400)
    sent = {"A": 0, "B": 0}

    def load(steps):
        for _ in range(steps):
            for name in "AB":
                sent[name] += group[name].send(*payloads(name, sent[name] + 1,
                                                         sent[name] + group.rng.randint(0, 9)))
            group.run(group.rng.choice([1, 2, 5]))

    load(60)
    group["C"].crash()
    load(20)
    group.start("C")
    load(150)
    group.network.loss = 0
    group.settle(20_000)
    for name in "AB":
        assert group[name].multicast.unacked() == 0
        assert sent[name] > 100
        tail = got(group, "C", name)
        assert tail == payloads(name, sent[name] - len(tail) + 1, sent[name]) and tail
        for receiver in "AB":
            assert got(group, receiver, name) == payloads(name, 1, sent[name])


def test_decision_11_views_acks_and_requests_do_not_wait_behind_a_full_window():
    group = cluster()
    group["C"].crash()
    assert group["A"].send(*payloads("A", 1, 100)) == 64
    group["B"].send(*payloads("B", 1, 10))
    group.run(100)
    assert got(group, "A", "B") == payloads("B", 1, 10)
    group["A"].exclude("C")
    group["A"].turn()
    group.run(300)
    assert sorted(group["B"].views[-1].names) == ["A", "B"]
    assert group["A"].send(*payloads("A", 65, 100)) == 36


def test_decision_12_a_blocked_sender_is_released_when_the_slowest_leaves():
    group = cluster()
    group["C"].crash()
    group["A"].send(*payloads("A", 1, 64))
    group.run(300)
    assert group["A"].send(b"no room") == 0
    writable = group["A"].producer.num_rooms
    group["A"].exclude("C")
    group.run(50)
    assert group["A"].producer.num_rooms > writable
    assert group["A"].multicast.send_window.ring.low == 64


def test_decision_12_an_ack_of_a_stranger_is_ignored():
    group = cluster("AB")
    group.network.cut = {("B", "A")}
    group["A"].send(*payloads("A", 1, 10))
    group.run(20)
    stranger = Address("X", 999)
    packet = group["A"].stack.control(mcast.ACK, mcast.Ack({group["A"].incarnation: 10}, 1 << 20))
    data = wire.make_datagram(mcast.ACK, group["A"].stack.group, stranger.incarnation, 0,
                              packet.data[wire.HEADER_SIZE:])
    group["A"].turn([data])
    assert group["A"].multicast.send_window.ring.low == 0
    assert counters(group["A"]).num_unknown_sender == 1


def test_decision_14_a_healthy_network_sees_no_request():
    group = cluster()
    for step in range(100):
        for name in "ABC":
            group[name].send(*payloads(name, step * 5 + 1, step * 5 + 5))
        group.run(4)
    group.settle()
    for name in "ABC":
        assert counters(group[name]).xmit_reqs_sent == counters(group[name]).num_duplicates == 0


# -------------------------------------------------------------------------------------- bad network

@pytest.mark.parametrize("seed", range(25))
def test_everything_arrives_once_and_in_order_whatever_the_network_does(seed):
    group = Cluster("ABCD", seed=seed,
                    network=Network(loss=0.2, duplicate=0.1, corrupt=0.02, delay=(50_000, 5 * MS)),
                    **OPTIONS)
    group.start()
    sent = dict.fromkeys("ABCD", 0)
    for _ in range(120):
        for name in "ABCD":
            sent[name] += group[name].send(*payloads(name, sent[name] + 1,
                                                     sent[name] + group.rng.randint(0, 12)))
        group.run(group.rng.choice([1, 3, 20]))
    group.network = Network()
    group.settle()
    for receiver in "ABCD":
        for sender in "ABCD":
            assert len(got(group, receiver, sender)) == sent[sender]
            numbers = [b"%d" % number for number in range(1, sent[sender] + 1)]
            assert [m.split(b"-")[1] for m in got(group, receiver, sender)] == numbers


def test_a_partition_stops_senders_and_heals_without_loss():
    group = cluster()
    group.network.cut = {("A", "C"), ("C", "A"), ("B", "C"), ("C", "B")}
    taken = group["A"].send(*payloads("A", 1, 100))
    group.run(1500)
    assert taken == 64 and group["A"].send(b"x") == 0
    group.network.cut = set()
    group.settle()
    assert got(group, "C", "A") == payloads("A", 1, 64)


def test_what_a_lossy_link_costs_is_bounded():
    """100 gaps cost about as many requests, and not much more is repeated than was
    lost."""
    group = cluster("AB", capacity=4096, seed=3, network=Network(loss=0.05))
    sent = 0
    while sent < 20_000:
        sent += group["A"].send(*payloads("A", sent + 1, sent + 200))
        group.run(2)
    group.network.loss = 0
    group.settle()
    assert len(got(group, "B", "A")) == sent
    assert counters(group["A"]).xmit_rsps_sent <= 2 * 0.05 * 1.5 * sent


# ------------------------------------------------------------------------------ hostile and damaged

@pytest.mark.parametrize(("kind", "body"), [
    (mcast.ACK, lambda receiver: mcast.Ack({receiver: 11}, 1000)),
    (mcast.ACK, lambda receiver: mcast.Ack({receiver: 2**62}, 1000)),
    (mcast.ACK, lambda receiver: mcast.Ack({receiver: -1}, 1000)),
    (mcast.ACK, lambda receiver: mcast.Ack({receiver: 5}, -1)),
    (mcast.ACK, mcast.Ack(dict.fromkeys(range(MAX_MEMBERS + 1), 1), 1000)),
    (multicast.HIGHEST, multicast.Highest(-(2**63), 0, 0)),
    (multicast.XMIT_REQ, multicast.XmitReq([(-3, 4)])), (multicast.XMIT_REQ,
                                                         multicast.XmitReq([(1, 1)] * 3000)),
    (mcast.ACK, multicast.XmitReq([])),
    (multicast.XMIT_REQ, mcast.Ack({1: 2}, 2)), (multicast.DATA, mcast.Ack({1: 2}, 2)),
])
def test_decision_24_what_cannot_be_is_counted_and_changes_nothing(kind, body):
    group = cluster("AB")
    group["A"].send(*payloads("A", 1, 10))
    group.network.cut = {("B", "A"), ("A", "B")}
    group["A"].multicast.windows[group["B"].address.incarnation].report_due = False
    before = group["A"].multicast.digest(), group["A"].multicast.send_window.ring.low
    body = body(group["A"].incarnation) if callable(body) else body
    group["A"].turn([control(group, "B", kind, body)])
    assert counters(group["A"]).num_bad == 1
    assert (group["A"].multicast.digest(), group["A"].multicast.send_window.ring.low) == before


def test_decision_24_a_forged_highest_is_clipped_to_the_window():
    group = cluster("AB")
    group["B"].turn([control(group, "A", multicast.HIGHEST, multicast.Highest(2**62, 0, 0))])
    group.run(100)
    assert window(group, "B", "A").ring.hr == 128
    assert counters(group["B"]).xmit_reqs_sent <= 11


def test_decision_24_repeats_are_limited_to_one_window_per_interval():
    group = cluster("AB", max_bytes=6000)
    group.network.cut = {("B", "A"), ("A", "B")}
    group["A"].send(*[b"x" * 90] * 50)
    sizes = []
    group.observer.sent = lambda source, dest, datagram: sizes.append(len(datagram))
    for _ in range(100):
        group["A"].turn([control(group, "B", multicast.XMIT_REQ,
                                 multicast.XmitReq([(1, 50)] * 20))])
    assert 0 < sum(sizes) <= 2 * 6000


@pytest.mark.parametrize("seed", range(20))
def test_decision_24_arbitrary_bytes_from_a_member_never_raise(seed):
    group = cluster("AB", seed=seed)
    rng = group.rng
    b, number = group["B"].address.incarnation, group["B"].stack.group
    for _ in range(300):
        body = rng.choice([rng.randbytes(rng.randint(0, 80)),
                           msgspec.msgpack.encode([rng.getrandbits(64), rng.getrandbits(8)]),
                           msgspec.msgpack.encode([[[rng.getrandbits(63), rng.getrandbits(63)]]])])
        dest = rng.choice([0, group["A"].address.incarnation])
        group["A"].turn([wire.make_datagram(rng.randint(0, 9), number, b, dest, body)])
    group.checkers.after_turn(group["A"])


@pytest.mark.parametrize(("first", "last"), [(2**62, 2**64 - 2**62), (2**63 - 1, 2**63 + 5),
                                             (11, 2**63), (2**63, 1), (11, 12), (0, 0)])
def test_decision_24_a_request_for_half_the_circle_is_clipped_to_what_is_there(first, last):
    """Found by the fuzzer: three seqnos around the circle have no order, and the repeat
    counted through all of it."""
    group = cluster("AB")
    group["B"].consumer.finish_after = None
    group["A"].send(*payloads("A", 1, 10))
    group.run(50)
    before = counters(group["A"]).xmit_rsps_sent
    group["A"].turn([control(group, "B", multicast.XMIT_REQ,
                             multicast.XmitReq([(first, last), (2, 3)]))])
    assert counters(group["A"]).xmit_rsps_sent == before + 2


def test_a_slow_application_bounds_the_window_and_the_memory():
    group = cluster("AB")
    group["B"].endpoint.max_undelivered = 0
    sent = 0
    for _ in range(50):
        sent += group["A"].send(*payloads("A", sent + 1, sent + 50))
        group.run(20)
    assert sent == 64
    assert len(window(group, "B", "A").ring) == 64


# ------------------------------------------------------------------------ members that take nothing

def test_nobody_waits_for_a_member_that_takes_no_messages():
    group = Cluster("AB", **OPTIONS).start("A", receiving=False).start("B")
    group.run(500)
    group["A"].send(*payloads("A", 1, 30))
    group["B"].send(*payloads("B", 1, 30))
    group.settle()
    assert got(group, "B", "A") == payloads("A", 1, 30)
    assert group["A"].consumer.got == {}
    assert group["B"].multicast.unacked() == group["A"].multicast.unacked() == 0


def test_a_member_that_stops_receiving_releases_the_others_even_when_that_word_is_lost():
    group = cluster("AB")
    group["B"].consumer.finish_after = None
    group["A"].send(*payloads("A", 1, 64))
    group.run(100)
    group.network.cut = {("B", "A")}
    group["B"].stop_receiving()
    group.run(50)
    assert group["A"].multicast.unacked() == 64
    group.network.cut = set()
    group.run(50)
    assert group["A"].multicast.unacked() == 0


def test_the_rest_of_a_leavers_stream_is_delivered_up_to_the_first_gap():
    group = cluster("AB")
    group["B"].endpoint.max_undelivered = 0
    group["A"].send(*payloads("A", 1, 10))
    group.run(5)
    group["B"].multicast.windows[group["A"].address.incarnation].ring.add(12, b"behind a gap")
    group["A"].crash()
    group["B"].exclude("A")
    group.run(50)
    assert group["A"].address.incarnation not in group["B"].multicast.windows
    group["B"].endpoint.max_undelivered = 100
    group["B"].turn([])
    group["B"].turn([])
    assert got(group, "B", "A") == payloads("A", 1, 10)
    assert not group["B"].multicast.flushing.departed


def test_decision_24_oob_messages_of_lives_that_come_and_go_do_not_flood_a_slow_application():
    """The layer alone; the incarnations are hostile and begin to send at once."""
    local = Address("B", 2)
    layer = mcast.Mcast(local, configure({"capacity": 8}), Budget(1 << 20))
    stack = Stack([layer], local=local, group="g")
    handed = 0
    for number in range(100, 200):
        incarnation = Address("A", number)
        other = Stack([mcast.Mcast(incarnation, configure({}), Budget(1 << 20))],
                      local=incarnation, group="g")
        window = other.layers[0].send_window
        window.push_many(payloads("A", 1, 8), 0, Flag.OOB)
        agreed_view(layer, View(number, (incarnation, local)))
        stack.receive(window.frame(other.header(multicast.DATA)), 0)
        stack.deliver(-handed, 0)
        handed += sum(map(len, stack.take().deliveries))
    assert 8 <= handed <= 8 + 8
    came = 0
    while stack.effects.arrived or not came:
        stack.take()
        stack.deliver(100, 0)
        came += sum(map(len, stack.effects.deliveries))
    assert came > 8, "what had to wait comes when there is room"


def test_the_socket_buffer_is_shared_by_those_who_send():
    group = cluster("ABCD", receive_budget=12_000)
    grants = []
    for name in "ABC":
        group[name].send(*payloads(name, 1, 20))
        group.run(200)
        group["A"].send(b"again")
        group.run(200)
        grants.append(group["A"].multicast.budgets[group["D"].address.incarnation][0])
    assert grants == [12_000, 6_000, 4_000]


def test_a_small_grant_bounds_the_window_in_bytes():
    group = cluster("AB", receive_budget=4000, capacity=1000)
    group["A"].send(b"first")
    group.run(50)
    taken = group["A"].send(*[b"x" * 100] * 200)
    assert taken == 40
    assert group["A"].multicast.send_window.bundle == 600


@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp"])
def test_a_member_has_no_more_on_its_way_than_its_own_socket_buffer_holds(stack):
    group = cluster("AB", stack=stack, send_budget=4000, capacity=1000)
    a, b = group["A"], group["B"]
    assert a.send(*[b"x" * 100] * 200) == 40
    group.run(50)
    assert a.send(*[b"x" * 100] * 200) == 40, "what was acknowledged has left"
    a.send_unicast("B", 200, 100)
    group.run(50)
    assert group["A"].unicast.senders[b.incarnation].window.ring.max_bytes == 4000


# ------------------------------------------------------------ found by the simulator, kept as cases

@pytest.mark.parametrize("offset", [0, 2**63 - 20, 2**64 - 20])
def test_a_member_that_takes_nothing_is_believed_wherever_the_seqnos_are(offset):
    group = Cluster("AB", **OPTIONS).start("A", offset=offset).start("B", receiving=False)
    group.run(500)
    group["A"].send(*payloads("A", 1, 60))
    group.settle()
    assert group["A"].multicast.unacked() == 0
