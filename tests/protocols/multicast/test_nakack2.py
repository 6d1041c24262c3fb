"""NAKACK2: what transcripts cannot say. Hostile and damaged datagrams, bounds,
warnings, windows of different sizes, the wrap."""

import itertools

import msgspec
import pytest

from ringcast import Address
from ringcast._core import wire
from ringcast._core.marks import Marks
from ringcast._core.seqno_table import SeqnoTable
from ringcast._core.stamps import Stamps
from ringcast.address import EVERYONE
from ringcast.config import MAX_MEMBERS
from ringcast.protocols.multicast import base as multicast, nakack2
from ringcast.protocols.multicast.become_server_queue import UNBOUNDED
from ringcast.protocols.multicast.resync import PAUSE, RESYNC, Resync
from ringcast.protocols.retransmission import Backoff
from ringcast.sim.cluster import Cluster
from ringcast.sim.network import MS, Network
from ringcast.status import by_name

OPTIONS = {"capacity": 64, "ack_threshold": 8, "max_bundle_size": 600}
TCP = {"stack": "nakack2-tcp", "xmit_interval": 0}
UDP = {"stack": "nakack2-udp"}
BOTH_WINDOWS = pytest.mark.parametrize("ring", [False, True], ids=["table", "ring"])


def cluster(names="AB", own=None, **kwargs):
    """`own` has the options of single members."""
    group = Cluster(names, **({"network": Network(delay=(1 * MS, 1 * MS))} | OPTIONS | TCP
                              | kwargs))
    for name in names:
        group.start(name, **(own or {}).get(name, {}))
    group.run(500)
    assert all(len(member.views[-1]) == len(names) for member in group.living())
    return group


def payloads(name, first, last):
    return [b"%s-%d" % (name.encode(), k) for k in range(first, last + 1)]


def got(group, receiver, sender):
    return group[receiver].consumer.got.get(group[sender].address, [])


def window(group, receiver, sender):
    return group[receiver].multicast.windows[group[sender].incarnation]


def control(group, source, kind, body, dest=EVERYONE):
    return group[source].stack.control(kind, body, dest).data


def data(group, source, seqnos, sender=None):
    """A datagram with these messages, as `source` would send it, or as some other
    incarnation would."""
    ring = SeqnoTable(seqnos[0] - 1)
    for seqno in seqnos:
        ring.add(seqno, b"forged")
    stack = group[source].stack
    header = wire.make_header(multicast.DATA, stack.group, sender or group[source].incarnation,
                              EVERYONE)
    return wire.pack(ring, Marks(), Stamps(), [(seqnos[0], seqnos[-1])], 600, header, 60_000)[0][0]


def sent(group, kind):
    """From now on: (name of the sender, size) of each datagram of this kind."""
    log = []

    def note(source, dest, datagram):
        if wire.open_datagram(datagram, source.stack.group).kind == kind:
            log.append((source.name, len(datagram)))
    group.observer.sent = note
    return log


# ----------------------------------------------------------------------------------- hostile RESYNC

@pytest.mark.parametrize("seqno", [21, 20 + 2**62, 20 + 2**63 - 1, -1])
def test_a_resync_from_beyond_what_was_sent_is_bad(seqno):
    group = cluster()
    group["A"].send(*payloads("A", 1, 20))
    group.settle()
    repeats = sent(group, multicast.REPEAT)
    datagram = control(group, "B", RESYNC, Resync(seqno))
    before = group["A"].multicast.counters.num_bad
    group["A"].turn([datagram])
    assert group["A"].multicast.counters.num_bad == before + 1
    assert not group["A"].multicast.resyncs.wanted
    assert repeats == []


@pytest.mark.parametrize("seqno", [0, 10, 20 + 2**63, 2**64 - 1])
def test_a_resync_from_before_what_is_kept_gets_what_is_kept(seqno):
    """Also one from half way round the circle."""
    group = cluster("ABC")
    group["A"].send(*payloads("A", 1, 10))
    group.settle()
    group["C"].consumer.finish_after = None
    group["A"].send(*payloads("A", 11, 20))
    group.run(100)
    assert group["A"].multicast.send_window.ring.low == 10
    repeats = sent(group, multicast.REPEAT)
    group["A"].turn([control(group, "B", RESYNC, Resync(seqno))])
    assert group["A"].multicast.counters.xmit_rsps_sent == 10 and len(repeats) == 1
    group.run(10)
    assert got(group, "B", "A") == payloads("A", 1, 20)


def test_resyncs_of_one_member_are_answered_at_most_once_in_a_pause():
    group = cluster("ABC")
    group["C"].consumer.finish_after = None
    group["A"].send(*payloads("A", 1, 60))
    group.run(100)
    repeats = sent(group, multicast.REPEAT)
    flood = [control(group, "B", RESYNC, Resync(0))] * 50
    pause = PAUSE / 1e6
    for _ in range(100):                                # 5000 RESYNCs in four pauses
        group["A"].turn(flood)
        group.run(pause / 25)
    group.run(4 * pause)
    answers = group["A"].multicast.counters.xmit_rsps_sent / 60
    assert answers in (5, 6), "at once, once in a pause, and a last time"
    assert sum(size for _, size in repeats) < 7 * 60 * 20
    assert not group["A"].multicast.resyncs.wanted


def test_one_who_floods_with_resyncs_does_not_keep_others_from_their_answer():
    group = cluster("ABC")
    group["C"].consumer.finish_after = None
    group["A"].send(*payloads("A", 1, 10))
    group.run(100)
    group["A"].turn([control(group, "B", RESYNC, Resync(0))] * 10
                    + [control(group, "C", RESYNC, Resync(5))])
    assert group["A"].multicast.counters.xmit_rsps_sent == 10 + 5
    assert group["A"].multicast.resyncs.wanted.keys() <= {group["B"].incarnation}


def test_the_last_of_several_resyncs_in_a_pause_is_the_one_that_is_answered():
    group = cluster("ABC")
    group["C"].consumer.finish_after = None
    group["A"].send(*payloads("A", 1, 10))
    group.run(100)
    group["A"].turn([control(group, "B", RESYNC, Resync(seqno))
                     for seqno in (8, 9, 4)])
    assert group["A"].multicast.counters.xmit_rsps_sent == 2
    group.run(PAUSE / 1e6 + 4)
    assert group["A"].multicast.counters.xmit_rsps_sent == 2 + 6


def test_the_first_resync_over_a_new_connection_is_answered_at_once():
    group = cluster("ABC")
    group["C"].consumer.finish_after = None
    group["A"].send(*payloads("A", 1, 10))
    group.run(100)
    for answers in (1, 2, 3):
        group["A"].linked(group["B"].incarnation)
        group["A"].turn([control(group, "B", RESYNC, Resync(0))] * 2)
        assert group["A"].multicast.counters.xmit_rsps_sent == 10 * answers


def test_what_comes_in_one_turn_with_the_announcement_is_not_missing():
    """B has asked A what A has sent, which was nothing then."""
    group = cluster()
    layer, came = group["B"].multicast, []
    before = layer.counters.resyncs_sent
    group.network.discard = lambda source, target, datagram: came.append(datagram) or True
    group["A"].send(*payloads("A", 1, 3))
    highest = multicast.Highest(3, 0, layer.view_id)
    group["B"].turn([*came, control(group, "A", multicast.HIGHEST, highest)])
    assert window(group, "B", "A").come_up_to == 3
    assert layer.counters.resyncs_sent == before and not layer.resyncs.begun


def test_what_a_stream_lacks_that_has_begun_is_asked_for_at_once_and_once():
    group = cluster()
    layer = group["B"].multicast
    before, asked = layer.counters.resyncs_sent, sent(group, RESYNC)
    highest = multicast.Highest(3, 0, layer.view_id)
    group["B"].turn([control(group, "A", multicast.HIGHEST, highest)] * 5)
    assert len(asked) == 1 and layer.counters.resyncs_sent == before + 1


def test_one_who_asks_what_was_sent_gets_no_messages():
    group = cluster("ABC")
    group["C"].consumer.finish_after = None
    group["A"].send(*payloads("A", 1, 10))
    group.run(100)
    told, repeats = sent(group, multicast.HIGHEST), sent(group, multicast.REPEAT)
    group["A"].turn([control(group, "B", RESYNC, Resync(10, asks=True))])
    assert told == []                                   # it has everything
    group["A"].turn([control(group, "B", RESYNC, Resync(9, asks=True))])
    group.run(PAUSE / 1e6 + 4)
    assert repeats == [] and not group["A"].multicast.resyncs.wanted


def test_over_udp_there_is_no_resync():
    group = cluster(**UDP, xmit_interval=3)
    group["A"].send(*payloads("A", 1, 10))
    group["A"].turn([control(group, "B", RESYNC, Resync(0))])
    assert group["A"].multicast.counters.num_bad == 1
    assert group["A"].multicast.counters.xmit_rsps_sent == 0


def test_a_stranger_s_resync_is_not_answered():
    group = cluster()
    group["A"].send(*payloads("A", 1, 10))
    body = msgspec.msgpack.encode(Resync(0))
    before = group["A"].multicast.counters.num_unknown_sender
    group["A"].turn([wire.make_datagram(RESYNC, group["A"].stack.group, 999, 0, body)])
    assert group["A"].multicast.counters.num_unknown_sender == before + 1
    assert group["A"].multicast.counters.xmit_rsps_sent == 0
    assert not group["A"].multicast.resyncs.wanted


# ---------------------------------------------------------------------------- other hostile control

@pytest.mark.parametrize("kind", [RESYNC, multicast.XMIT_REQ, multicast.HIGHEST])
@pytest.mark.parametrize("body", [b"", b"\x90", b"\xc0", b"\x91\xc0", b"\x92\xa1x\xc3",
                                  b"\x91\xcb" + bytes(8), b"\xff" * 40])
@pytest.mark.parametrize("options", [TCP, UDP | {"xmit_interval": 3}], ids=["tcp", "udp"])
def test_damaged_control_datagrams_are_counted_and_change_nothing(kind, body, options):
    group = cluster(**options)
    group["A"].send(*payloads("A", 1, 5))
    group.settle()
    layer = group["A"].multicast
    before, bad = by_name(layer.stack.status()), layer.counters.num_bad
    group["A"].turn([wire.make_datagram(kind, group["A"].stack.group, group["B"].incarnation,
                                        0, body)])
    assert layer.counters.num_bad == bad + 1
    ignored = {"num_bad", "resyncs_received", "xmit_reqs_received"}
    after = by_name(layer.stack.status())
    assert {name for name in after if after[name] != before[name]} <= ignored


@pytest.mark.parametrize("seqno", [2**63, 2**62, 2**64 - 1, 100_000])
def test_a_highest_from_far_away_neither_grows_the_window_nor_stalls_it(seqno):
    group = cluster(**UDP, xmit_interval=3)
    group["A"].send(*payloads("A", 1, 5))
    group.settle()
    group["B"].turn([control(group, "A", multicast.HIGHEST, multicast.Highest(seqno, 0, 0))])
    ring = window(group, "B", "A").ring
    assert (ring.hr - ring.low) <= ring.capacity
    group["A"].send(*payloads("A", 6, 40))
    group.run(500)
    assert got(group, "B", "A") == payloads("A", 1, 40)


# ---------------------------------------------------------------------------- what waits is bounded

def test_strangers_do_not_fill_a_joiner_s_memory():
    """Messages of whoever it may be wait; whatever names it uses, that is bounded in
    bytes."""
    group = Cluster("AB", min_members=2, **(OPTIONS | TCP | {"max_bytes": 10_000})).start("A")
    group.run(50)                                       # B does not come: A has no view
    layer = group["A"].multicast
    for sender in range(1, 2 * MAX_MEMBERS):
        group["A"].turn([data(group, "A", [1, 2, 3], sender=sender),
                         data(group, "A", [4], sender=sender)])
        assert layer.queue.num_bytes <= nakack2.QUEUES * 10_000
    assert layer.counters.num_queue_dropped > 0
    group.start("B")
    group.run(500)
    assert group["A"].views and layer.queue.num_bytes <= nakack2.QUEUES * 10_000
    group["B"].send(*payloads("B", 1, 5))
    group.settle()
    assert got(group, "A", "B") == payloads("B", 1, 5)


def test_over_udp_what_waits_is_bounded_in_messages():
    group = cluster(**UDP, xmit_interval=3, become_server_queue_size=10)
    for seqno in range(1, 100, 3):
        group["A"].turn([data(group, "A", [seqno, seqno + 1, seqno + 2], sender=999)])
    assert len(group["A"].multicast.queue) == 9
    assert group["A"].multicast.counters.num_queue_dropped == 99 - 9


def test_damaged_datagrams_do_not_wait():
    group = cluster(**UDP, xmit_interval=3)
    stack = group["A"].stack
    for body in (b"", b"\x00" * 3, b"\xff" * 50):
        group["A"].turn([wire.make_datagram(multicast.DATA, stack.group, 999, 0, body)])
    queue = group["A"].multicast.queue
    assert len(queue._entries) == 0 and queue.num_bytes == 0


def test_nothing_is_remembered_of_a_member_that_left():
    group = cluster("ABC", gap_timeout=50)
    a, c = group["A"].multicast, group["C"].incarnation
    group["C"].send(*payloads("C", 1, 10))
    group.run(20)
    group["A"].turn([control(group, "C", RESYNC, Resync(0))] * 2)
    a.resyncs.stalled[c] = Backoff()
    assert c in a.resyncs.answered and c in a.windows
    group["C"].crash()
    group["A"].exclude("C")
    group.run(50)
    assert c not in a.remembered() and len(a.queue) == 0
    stable = group["A"].stack.layers[group["A"].stack.layers.index(a) - 1]
    assert c not in stable.votes and c not in stable.known


# ----------------------------------------------------------------------------------------- warnings

def gaps(**kwargs):
    """A and B, without retransmission; message 3 is lost, and so is every RESYNC."""
    group = cluster(**({"gap_timeout": 100} | kwargs))
    group["A"].send(*payloads("A", 1, 2))
    group.run(5)
    group.network.discard = lambda source, target, datagram: True
    group["A"].send(*payloads("A", 3, 3))
    lose(group, RESYNC)
    group["A"].send(*payloads("A", 4, 5))
    group.run(1)
    return group


def lose(group, kind):
    group.network.discard = lambda source, target, datagram: (
        wire.open_datagram(datagram, group["A"].stack.group).kind == kind)


def times_of_warnings(group, name, milliseconds):
    began, found = group.now, []
    for _ in range(int(milliseconds)):
        before = len(group[name].warnings)
        group.run(1)
        found += [(group.now - began) / MS] * (len(group[name].warnings) - before)
    return found


def test_a_gap_is_reported_after_gap_timeout_and_then_at_doubling_distances():
    group = gaps()
    assert got(group, "B", "A") == payloads("A", 1, 2)
    times = times_of_warnings(group, "B", 3000)
    assert len(times) == 5
    assert times[0] == pytest.approx(100, abs=5)
    assert [later - earlier for earlier, later in itertools.pairwise(times)] == pytest.approx(
        [100, 200, 400, 800], abs=8)
    assert group["B"].multicast.counters.num_gaps == 5
    assert "messages 3 to 3 of A" in group["B"].warnings[0]
    assert "xmit_interval" in group["B"].warnings[0]


def test_the_distances_stop_doubling():
    backoff = Backoff(3)
    reports = [scan for scan in range(2000) if backoff.stalls(7)]
    distances = [later - earlier for earlier, later in itertools.pairwise([0, *reports])]
    assert distances[:8] == [3, 3, 6, 12, 24, 48, 96, 192] and set(distances[8:]) == {192}


def test_a_gap_that_was_mended_is_forgotten_and_the_next_is_reported_as_early():
    group = gaps()
    assert len(times_of_warnings(group, "B", 300)) == 2
    group.network.discard = None
    times_of_warnings(group, "B", 1000)
    assert got(group, "B", "A") == payloads("A", 1, 5) and not group["B"].multicast.resyncs.stalled
    count = len(group["B"].warnings)
    group.network.discard = lambda source, target, datagram: True
    group["A"].send(*payloads("A", 6, 6))
    lose(group, RESYNC)
    group["A"].send(*payloads("A", 7, 7))
    times = times_of_warnings(group, "B", 200)
    assert len(group["B"].warnings) == count + 1 and times[0] == pytest.approx(100, abs=6)


def test_a_window_that_moves_is_not_reported_however_slowly():
    group = gaps(gap_timeout=100)
    b = group["B"].multicast
    for number in range(20):
        group.run(60)
        group["B"].turn([data(group, "A", [7 + 2 * number])])       # gaps enough, and HD stands
        ring = window(group, "B", "A").ring
        first = ring.missing(1)[0][0]
        group.checkers.delivered = lambda receiver, batch: None
        group["B"].turn([data(group, "A", [first])])
    assert b.counters.num_gaps == 0 and group["B"].warnings == []


def test_with_retransmission_nothing_is_reported():
    group = gaps(xmit_interval=50)
    lose(group, multicast.REPEAT)
    group.run(3000)
    assert got(group, "B", "A") == payloads("A", 1, 2)
    assert group["B"].warnings == [] and group["B"].multicast.counters.num_gaps == 0


# ---------------------------------------------------------------------------------- change_interval

def test_over_udp_retransmission_cannot_be_switched_off():
    group = cluster(**UDP, xmit_interval=3)
    for interval in (0, -1):
        with pytest.raises(AssertionError):
            group["A"].multicast.change_interval(interval, 0)
    assert group["A"].multicast.interval == 3 * MS and group["A"].multicast.queue.bound == 50


def test_the_bound_of_the_queue_follows_the_interval():
    group = cluster(become_server_queue_size=7)
    layer = group["A"].multicast
    assert layer.queue.bound == UNBOUNDED
    for milli, bound in [(5, 7), (0, UNBOUNDED), (-1, UNBOUNDED), (1, 7), (2, 7), (0, UNBOUNDED)]:
        group["A"].change_interval(milli)
        assert layer.queue.bound == bound and layer.retransmits == (milli > 0)


def test_the_deadline_follows_the_interval():
    group = cluster()
    group["B"].consumer.finish_after = None
    group["A"].send(*payloads("A", 1, 3))
    layer = group["A"].multicast
    assert layer.deadline() is None, "nothing to look at without retransmission"
    group["A"].change_interval(40)
    assert layer.deadline() == group["A"].now + 40 * MS
    group["A"].change_interval(5)
    assert layer.deadline() == group["A"].now + 5 * MS
    group["A"].change_interval(0)
    assert layer.deadline() is None


@pytest.mark.parametrize("seed", range(8))
def test_toggling_all_the_time_loses_nothing(seed):
    """N7: to and fro while connections break."""
    group = Cluster("ABC", seed=seed, **(OPTIONS | TCP)).start()
    group.run(300)
    said = dict.fromkeys("ABC", 0)
    for step in range(60):
        name = group.rng.choice("ABC")
        said[name] += group[name].send(*payloads(name, said[name] + 1,
                                                 said[name] + group.rng.randint(1, 12)))
        group[group.rng.choice("ABC")].change_interval(group.rng.choice([0, 3, 20]))
        if step % 7 == 0:
            group.links.break_link(*group.rng.sample("ABC", 2))
        group.run(group.rng.choice([1, 5, 30]))
    for name in "ABC":
        group[name].change_interval(0)
    group.settle(60_000)
    for receiver in "ABC":
        for sender in "ABC":
            assert got(group, receiver, sender) == payloads(sender, 1, said[sender])
        assert group[receiver].warnings == []


# ----------------------------------------------------------------------------------- small windows

@BOTH_WINDOWS
@pytest.mark.parametrize("discard", [True, False], ids=["discard", "keep"])
@pytest.mark.parametrize("capacity", [1, 2, 8])
def test_small_windows_never_deadlock(capacity, discard, ring):
    """N4, all three sending as much as they can; a slow application for a while."""
    group = cluster("ABC", capacity=capacity, discard_delivered_msgs=discard, use_ring_buffer=ring)
    group["B"].consumer.finish_after = 2 * MS
    said = dict.fromkeys("ABC", 0)
    while min(said.values()) < 300:
        for name in "ABC":
            said[name] += group[name].send(*payloads(name, said[name] + 1,
                                                     min(300, said[name] + 50)))
        group.run(1)
        assert group.now < 600_000 * MS, "deadlock"
    group["B"].consumer.finish_after = 0
    group.settle(60_000)
    for receiver in "ABC":
        assert group[receiver].multicast.counters.num_out_of_window == 0
        for sender in "ABC":
            assert got(group, receiver, sender) == payloads(sender, 1, 300)


@BOTH_WINDOWS
@pytest.mark.parametrize("discard", [True, False], ids=["discard", "keep"])
def test_windows_of_few_bytes_never_deadlock(discard, ring):
    group = cluster("ABC", max_bytes=300, discard_delivered_msgs=discard, use_ring_buffer=ring)
    messages = [bytes([number]) * (1 + 7 * number % 290) for number in range(200)]
    for name in "ABC":
        group[name].producer.offer_all(messages)
        group[name].request_turn()
    group.settle(60_000)
    for receiver in "ABC":
        for sender in "ABC":
            assert got(group, receiver, sender) == messages


# ----------------------------------------------------------------------------------------- the wrap

@BOTH_WINDOWS
@pytest.mark.parametrize("options", [TCP, UDP | {"xmit_interval": 3}], ids=["tcp", "udp"])
@pytest.mark.parametrize("offset", [2**31 - 20, 2**32 - 20, 2**53 - 20, 2**63 - 20, 2**64 - 20])
def test_streams_go_on_where_seqnos_wrap(offset, options, ring):
    group = cluster("ABC", dict.fromkeys("ABC", {"offset": offset}), use_ring_buffer=ring,
                    **options)
    said = dict.fromkeys("ABC", 0)
    for step in range(30):
        for name in "ABC":
            said[name] += group[name].send(*payloads(name, said[name] + 1, said[name] + 5))
        if group.links is not None and step % 5 == 0:
            group.links.break_link(*group.rng.sample("ABC", 2))
        group.run(20)
    group.run(500)                                      # until nothing is kept for C any more
    group["C"].crash()
    group.start("C", offset=offset)
    group.run(4000)                                     # the others notice that the first is dead
    assert len(group["C"].views[-1]) == 3
    for name in "AB":
        said[name] += group[name].send(*payloads(name, said[name] + 1, said[name] + 5))
    group.settle(30_000)
    for name in "AB":
        assert said[name] == 155 and group[name].multicast.unacked() == 0
        assert got(group, "A", name) == got(group, "B", name) == payloads(name, 1, 155)
        assert got(group, "C", name) == payloads(name, 151, 155)


def test_a_gap_warning_names_seqnos_as_they_are_where_they_wrap():
    group = cluster("AB", {"A": {"offset": 2**64 - 2}}, gap_timeout=50)
    address = Address("A", group["A"].incarnation)
    group.network.discard = lambda source, target, datagram: True
    group["A"].send(*payloads("A", 1, 2))
    lose(group, RESYNC)
    group["A"].send(*payloads("A", 3, 3))
    group.run(100)
    assert f"messages {2**64 - 1} to 0 of {address}" in group["B"].warnings[0]
