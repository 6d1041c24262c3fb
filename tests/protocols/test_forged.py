"""One datagram in another's name (docs/threats.md): whatever it says, everybody still
gets everything, once and in order."""

import random
import struct

import msgspec
import pytest

from ringcast._core import wire
from ringcast.address import EVERYONE
from ringcast.flags import FRAGMENT
from ringcast.protocols.frag import HEAD
from ringcast.protocols.membership import Membership
from ringcast.protocols.membership.messages import REFUSE, REPORT, Refuse
from ringcast.protocols.multicast import base as multicast, fetching, mcast, stable
from ringcast.protocols.multicast.lossless import MOST_ROOM
from ringcast.protocols.multicast.stable import Vote
from ringcast.protocols.retransmission import MAX_RANGES
from ringcast.protocols.seqnos import MODULUS, united, without
from ringcast.protocols.unicast3 import control
from ringcast.sim.cluster import Cluster

STACKS = ["mcast-udp", "mcast-tcp", "nakack2-udp", "nakack2-tcp"]
MCAST = STACKS[:2]


def group_of(stack="mcast-udp", names="ABC", **options):
    options = {"capacity": 64, "max_bundle_size": 600} | options
    group = Cluster(names, stack=stack, **options).start(names[0])
    group.run(500)                              # the first is the coordinator
    group.start(*names[1:])
    group.run(500)
    assert group[names[0]].views[-1].members[0].name == names[0]
    assert {len(member.views[-1]) for member in group.living()} == {len(names)}
    return group


def numbered(first, last):
    return [b"%d" % number for number in range(first, last + 1)]


def forge(group, name, kind, body, to, dest=EVERYONE):
    """`to` gets what `name` has not said."""
    source = group[name].stack
    content = msgspec.msgpack.encode(body)
    group[to].turn([wire.make_datagram(kind, source.group, group[name].incarnation, dest, content)])


def unheard(group, sender, *receivers):
    """What `sender` says is lost on its way to these."""
    group.network.cut = {(sender, receiver) for receiver in receivers}


def heal(group):
    group.network.cut = set()
    group.settle(20_000)
    assert group.owed() is None, group.owed()


def assert_all_have(group, sender, messages):
    for name in group.names:
        assert group[name].consumer.got.get(group[sender].address, []) == messages, name


# ------------------------------------------------------------------------------ nobody waits for me

def test_one_refusal_in_anothers_name_ends_no_stream():
    """What C has not got yet is kept for it."""
    group = group_of()
    unheard(group, "A", "C")
    group["A"].send(*numbered(1, 20))
    group.run(1)
    forge(group, "C", mcast.ACK, mcast.Ack({}, 0), to="A")
    group.run(100)
    heal(group)
    assert_all_have(group, "A", numbered(1, 20))


def test_one_refusal_in_the_name_of_a_joiner_ends_no_stream():
    group = group_of(names="AC")
    group["C"].crash()
    group.start("C")
    while group["C"].incarnation not in group["A"].multicast.members:
        group.run(0.01)
    unheard(group, "A", "C")
    forge(group, "C", mcast.ACK, mcast.Ack({}, 0), to="A")
    group["A"].send(*numbered(1, 20))
    group.run(100)
    heal(group)
    assert group["C"].consumer.got[group["A"].address] == numbered(1, 20)


def test_a_refusal_before_anything_was_sent_is_taken_back_by_who_takes_messages():
    group = group_of(names="AC")
    forge(group, "C", mcast.ACK, mcast.Ack({}, 0), to="A")
    group.run(50)
    unheard(group, "A", "C")
    group["A"].send(*numbered(1, 20))
    group.run(100)
    heal(group)
    assert_all_have(group, "A", numbered(1, 20))


def test_who_was_not_waited_for_and_acknowledges_is_waited_for_again():
    """Enough datagrams in C's name end its place among those that are waited for; its
    next ack gives it back."""
    group = group_of()
    for _ in range(3):
        forge(group, "C", mcast.ACK, mcast.Ack({}, 0), to="A")
        group["A"].multicast.scan(group.now)
    assert group["C"].incarnation not in group["A"].multicast.acks
    unheard(group, "A", "B")                    # so that nothing is purged before C has it
    group["A"].send(*numbered(1, 5))
    group.run(100)
    unheard(group, "A", "C")
    group["A"].send(*numbered(6, 20))
    group.run(100)
    heal(group)
    assert_all_have(group, "A", numbered(1, 20))


# ------------------------------------------------------------------------- nobody need keep it more

def most_held(group):
    """The bytes of the fullest receive window, in parts of what it may hold, a message
    of 1,000 bytes besides."""
    windows = [window for member in group.living() for window in member.multicast.windows.values()]
    return max(window.ring.nbytes / (1000 + min(MOST_ROOM * 33_000, window.ring.max_bytes))
               for window in windows)


@pytest.mark.parametrize("stack, interval", [(stack, 3) for stack in STACKS] + [("nakack2-tcp", 0)])
def test_a_sender_that_never_says_what_all_have_fills_nobodys_memory(stack, interval):
    """What all members have is kept until the sender says so. It must not send more
    than its window meanwhile, but nobody can see that."""
    group = group_of(stack, capacity=1000, max_bytes=33_000, xmit_interval=interval)
    group.network.discard = lambda source, target, datagram: wire.open_datagram(
        datagram, group["A"].stack.group).kind in (multicast.HIGHEST, stable.STABILITY)
    messages = [b"%1000d" % number for number in range(400)]
    group["A"].producer.offer_all(messages)
    for _ in range(2000):
        group.run(1)
        assert most_held(group) <= 1
    assert most_held(group) > 0.5
    group.network.discard = None
    heal(group)
    assert_all_have(group, "A", messages)


# --------------------------------------------------------------------------- messages to one member

def talking(**options):
    """A has told B 20 messages, all acknowledged; and its end of the connection."""
    group = group_of(names="AB", **options)
    group["A"].send_unicast("B", 20, 8)
    group.run(200)
    return group, group["A"].unicast.senders[group["B"].incarnation]


def assert_b_hears(group, count):
    before = group["B"].unicast.counters.unicast_msgs_delivered
    group["A"].send_unicast("B", count, 8)
    group.run(3000)
    assert group.owed() is None, group.owed()
    assert group["B"].unicast.counters.unicast_msgs_delivered == before + count


@pytest.mark.parametrize("step", [1, 1 << 32, (1 << 63) - 1])
def test_one_timestamp_far_ahead_stops_no_acks(step):
    group, entry = talking()
    timestamp = (entry.last_timestamp_received + step) % 2**64
    forge(group, "B", control.ACK, control.Ack(entry.conn_id, entry.highest_acked, timestamp, 1),
          to="A")
    assert entry.last_timestamp_received == timestamp
    assert_b_hears(group, 200)
    assert entry.num_unacked() == 0


@pytest.mark.parametrize("kind", [control.ACK, control.SEND_FIRST_SEQNO])
def test_one_timestamp_far_ahead_stops_no_answer_to_who_has_lost_its_window(kind):
    """B forgets connections quickly and for good, so that it must ask where A's
    begins."""
    group = Cluster("AB", max_closed_connections=0).start("A").start("B", conn_expiry_timeout=20,
                                                                     conn_close_timeout=20)
    group.run(500)
    group["A"].send_unicast("B", 20, 8)
    group.run(200)
    entry = group["A"].unicast.senders[group["B"].incarnation]
    assert entry.num_unacked() == 0 and not group["B"].unicast.receivers
    timestamp = entry.last_timestamp_received + (1 << 62)
    body = (control.Ack(entry.conn_id, entry.highest_acked, timestamp, 1000) if kind == control.ACK
            else control.SendFirstSeqno(entry.conn_id, timestamp))
    forge(group, "B", kind, body, to="A")
    assert_b_hears(group, 20)


def open_for(group, name, conn_id, to):
    """`to` hears that `name` opens a connection with a message that does not end."""
    part = HEAD.pack(1, 0, 2) + bytes(300)
    run = struct.pack("<QHHIqH", 1, 1, FRAGMENT, len(part), 0, len(part)) + part
    group[to].turn([wire.make_datagram(control.FIRST, group[name].stack.group,
                                       group[name].incarnation, group[to].incarnation,
                                       conn_id.to_bytes(8, "little") + run)])


@pytest.mark.parametrize("step", [2, 1 << 32, (1 << 63) - 1])
@pytest.mark.parametrize("is_idle", [False, True])
def test_one_connection_in_anothers_name_stops_no_messages(step, is_idle):
    group, entry = talking(conn_expiry_timeout=500, conn_close_timeout=500)
    if is_idle:                                 # A will open another one, with a lower number
        group.run(2000)
        assert not group["A"].unicast.senders and not group["B"].unicast.receivers
    open_for(group, "A", (entry.conn_id + step) % 2**64, to="B")
    group.run(1000 if is_idle else 0)
    assert_b_hears(group, 20)
    group.run(1000)
    assert_b_hears(group, 20)


def test_one_ack_of_a_connection_that_was_never_opened_changes_nothing():
    group, entry = talking()
    conn_id = entry.conn_id
    for _ in range(3):
        ack = control.Ack(conn_id + 5, 9, entry.last_timestamp_received + 1, 1000)
        forge(group, "B", control.ACK, ack, to="A")
        assert_b_hears(group, 5)
    assert entry.conn_id == conn_id


def test_one_refusal_in_anothers_name_closes_no_connection():
    group, entry = talking()
    unheard(group, "A", "B")
    group["A"].send_unicast("B", 20, 8)
    group.run(1)
    ack = control.Ack(entry.conn_id, 0, entry.last_timestamp_received + 1, 0)
    forge(group, "B", control.ACK, ack, to="A")
    group.network.cut = set()
    group.run(500)
    assert_b_hears(group, 20)
    assert group["A"].unicast.counters.unicast_undelivered == 0


def test_a_refusal_while_there_is_nothing_to_refuse_shuts_nobody_out():
    group, entry = talking()
    forge(group, "B", control.ACK,
          control.Ack(entry.conn_id, 0, entry.last_timestamp_received + 1, 0), to="A")
    group.run(100)
    assert_b_hears(group, 20)


def test_a_refusal_behind_a_timestamp_far_ahead_is_heard_at_last():
    """Otherwise A would say it all again and again to one who takes nothing."""
    group, entry = talking()
    timestamp = entry.last_timestamp_received + (1 << 62)
    forge(group, "B", control.ACK, control.Ack(entry.conn_id, entry.highest_acked, timestamp, 1000),
          to="A")
    group["B"].stop_receiving()
    group["A"].send_unicast("B", 20, 8)
    group.run(3000)
    assert group["A"].unicast.counters.unicast_undelivered > 0
    assert group["A"].unicast.num_unacked() == 0


# ----------------------------------------------------------------------------- requests for repeats

def flood(group, name, kind, bodies, to="A"):
    """`to` gets all this in one turn."""
    stack = group[to].stack
    group[to].turn([wire.make_datagram(kind, stack.group, group[name].incarnation, EVERYONE,
                                       msgspec.msgpack.encode(body)) for body in bodies])


# Of 8,192 messages each fourth: as many ranges as one request may have.
SCATTERED = [[(seqno, seqno) for seqno in range(start, 8193, 4)] for start in (1, 2, 3, 4)]


@pytest.mark.parametrize("stack", STACKS[:3])
def test_of_a_flood_of_requests_only_so_many_ranges_are_looked_at_in_a_turn(stack):
    group = group_of(stack, capacity=8192)
    group["A"].multicast.credits.is_acked = True    # it begins with a whole window
    group["A"].multicast.credits.fit_window()
    unheard(group, "A", "C")
    assert group["A"].send(*numbered(1, 8192)) == 8192
    group.run(1)
    before = repeated(group)
    flood(group, "C", multicast.XMIT_REQ, [multicast.XmitReq(ranges) for ranges in SCATTERED])
    assert repeated(group) == before + MAX_RANGES
    group.run(0.1)
    flood(group, "C", multicast.XMIT_REQ, [multicast.XmitReq(SCATTERED[1])])
    assert repeated(group) == before + 2 * MAX_RANGES
    heal(group)
    assert_all_have(group, "A", numbered(1, 8192))


def test_of_a_flood_of_fetches_only_so_many_ranges_are_looked_at_in_a_turn():
    group = group_of(capacity=8192)
    group["A"].multicast.credits.is_acked = True    # it begins with a whole window
    group["A"].multicast.credits.fit_window()
    unheard(group, "A", "C")
    assert group["A"].send(*numbered(1, 8192)) == 8192
    group.run(1)
    counters, origin = group["A"].multicast.counters, group["A"].incarnation
    flood(group, "C", fetching.FETCH, [fetching.Fetch(origin, ranges) for ranges in SCATTERED])
    assert counters.held_sent == MAX_RANGES
    heal(group)


def test_of_a_flood_of_requests_of_a_connection_only_so_many_ranges_are_looked_at_in_a_turn():
    group = group_of(names="AB", capacity=8192)
    unheard(group, "A", "B")
    group["A"].send_unicast("B", 8192, 8)
    group.run(1)
    unicast = group["A"].unicast
    entry, counters = unicast.senders[group["B"].incarnation], unicast.counters
    before, timestamp = counters.unicast_xmit_rsps_sent, entry.last_timestamp_received or 0
    flood(group, "B", control.XMIT_REQ, [control.XmitReq(entry.conn_id, ranges, timestamp)
                                         for ranges in SCATTERED])
    assert counters.unicast_xmit_rsps_sent == before + MAX_RANGES
    heal(group)

def request(group, name, first, last, to="A"):
    forge(group, name, multicast.XMIT_REQ, multicast.XmitReq([(first, last)] * 100), to=to)


def repeated(group):
    return group["A"].multicast.counters.xmit_rsps_sent


def group_where_c_lacks(payloads, stack, duration):
    """A group in which C has not got what A sent so many milliseconds ago."""
    group = group_of(stack)
    unheard(group, "A", "C")
    group["A"].send(*payloads)
    group.run(duration)
    return group


@pytest.mark.parametrize("stack", MCAST)
def test_what_a_member_has_acknowledged_is_not_repeated_to_it(stack):
    """C holds the window up; who asks in B's name, of whom it is known that it has
    everything, gets nothing."""
    group = group_where_c_lacks(numbered(1, 20), stack, 50)
    before = repeated(group)
    request(group, "B", 1, 20)
    assert group["A"].multicast.unacked() == 20 and repeated(group) == before
    request(group, "C", 1, 20)
    assert repeated(group) == before + 20
    heal(group)
    assert_all_have(group, "A", numbered(1, 20))


@pytest.mark.parametrize("stack", MCAST)
def test_a_new_member_has_no_more_than_was_sent_whatever_another_reports(stack):
    """Found by the fuzzer: B reports more of A's messages than there are, so C seemed
    to have them. A then looked for what C asked for all around the circle, and stood
    still."""
    group = Cluster("ABC", stack=stack).start("A")
    group.run(500)
    group.start("B")
    group.run(500)
    a, b = group["A"], group["B"].multicast
    a.send(*numbered(1, 20))
    group.settle()
    prepare = b.prepare
    b.prepare = lambda now: prepare(now) | {a.incarnation: 24}
    group.start("C")
    while len(a.multicast.members) < 3:
        group.run(1)
    b.prepare = prepare
    assert a.multicast.has_up_to(group["C"].incarnation) == 20
    request(group, "C", 1, 2**63)
    a.send(*numbered(21, 40))
    group.settle()
    assert group["B"].consumer.got[a.address] == numbered(1, 40)
    assert a.multicast.unacked() == 0 and len(a.views[-1]) == 3


@pytest.mark.parametrize("stack", STACKS[:3])
def test_the_same_is_repeated_to_a_member_once_in_an_interval_however_often_it_asks(stack):
    group = group_where_c_lacks(numbered(1, 20), stack, 1)
    before = repeated(group)
    for _ in range(500):
        request(group, "C", 1, 20)
        request(group, "C", 5, 9)
    assert repeated(group) == before + 20
    heal(group)
    assert_all_have(group, "A", numbered(1, 20))


@pytest.mark.parametrize("seed", range(20))
def test_ranges_without_others_are_the_difference(seed):
    rng = random.Random(seed)
    base = rng.choice([0, 2**64 - 20, 2**63 - 20])
    first, second = ({rng.randrange(1, 60) for _ in range(rng.randrange(50))} for _ in range(2))
    ranges, others = (united([((base + each) % MODULUS,) * 2 for each in seqnos], base)
                      for seqnos in (first, second))
    left = [((base + each) % MODULUS,) * 2 for each in first - second]
    assert without(ranges, others, base) == united(left, base)


def test_what_was_not_asked_for_just_now_is_repeated():
    group = group_of(names="AC")
    unheard(group, "A", "C")
    group["A"].send(*numbered(1, 20))
    group.run(1)
    before = repeated(group)
    for first, last, new in ((5, 9, 5), (3, 6, 2), (1, 20, 13), (1, 20, 0)):
        request(group, "C", first, last)
        before += new
        assert repeated(group) == before
    heal(group)
    assert_all_have(group, "A", numbered(1, 20))


# ---------------------------------------------------------------------------- votes, where A counts

def vote(group, name, receiving=True, **digest):
    entries = {group[sender].incarnation: entry for sender, entry in digest.items()}
    return Vote(group[name].multicast.view_id, receiving, 1 << 20 if receiving else 0, entries)


@pytest.mark.parametrize("sender", "AB")
def test_one_vote_that_its_member_takes_nothing_ends_no_stream(sender):
    group = group_of("nakack2-udp")
    unheard(group, sender, "C")
    group[sender].send(*numbered(1, 20))
    group.run(1)
    forge(group, "C", stable.VOTE, vote(group, "C", receiving=False, C=(0, 0)), to="A")
    group.run(100)
    heal(group)
    assert_all_have(group, sender, numbered(1, 20))


@pytest.mark.parametrize("far", [1 << 20, (1 << 61) - 1])
def test_one_vote_far_ahead_says_nothing_of_what_is_sent_later(far):
    """What C cannot have, because B has not sent it, is not taken for what it has when
    B sends it."""
    group = group_of("nakack2-udp")
    group["B"].send(*numbered(1, 5))
    group.settle()
    forge(group, "C", stable.VOTE, vote(group, "C", B=(far, far), C=(0, 0)), to="A")
    group.run(100)
    # It votes, as it does while anything is not settled.
    group["C"].stack.layer(stable.Stable).asked(group.now)
    group.run(100)
    unheard(group, "B", "C")
    group["B"].send(*numbered(6, 20))
    group.run(100)
    heal(group)
    assert_all_have(group, "B", numbered(1, 20))


@pytest.mark.parametrize("far", [1 << 61, 1 << 62, 1 << 63])
def test_one_vote_far_ahead_of_its_own_stream_blocks_nobody(far):
    group = group_of("nakack2-udp")
    group["B"].send(*numbered(1, 5))
    group.settle()
    forge(group, "B", stable.VOTE, vote(group, "B", A=(0, 0), B=(far, far), C=(0, 0)), to="A")
    group["B"].send(*numbered(6, 100))
    group.settle(20_000)
    group["B"].send(*numbered(70, 100))
    heal(group)
    assert len(group["C"].consumer.got[group["B"].address]) == 64 + 5 + 31


# ----------------------------------------------------------------------- reports, where a view ends

def decide_with(group, reporter, sender, more):
    """A dies. Have its successor B hear, in the name of the last who reports, that this
    one has `more` messages of `sender` than B."""
    layer, left = group["B"].stack.layer(Membership), group["A"].incarnation
    group["A"].crash()
    group.network.discard = lambda source, target, datagram: source == reporter and (
        wire.open_datagram(datagram, group["B"].stack.group).kind == REPORT)
    change = layer.coordinator.change
    while left in change.members or change.missing() != {group[reporter].incarnation}:
        group.run(0.1)
        change = layer.coordinator.change
    report = change.reports[group["B"].incarnation]
    digest = dict(report.digest)
    digest[group[sender].incarnation] += more
    forge(group, reporter, REPORT, msgspec.structs.replace(report, digest=digest), to="B")
    assert change.install is not None
    group.network.discard = None


@pytest.mark.parametrize("sender, more", [("A", 1), ("A", 100), ("A", 1 << 40), ("C", 1)])
@pytest.mark.parametrize("stack", STACKS)
def test_one_report_of_more_than_there_is_ends_no_deliveries(stack, sender, more):
    """Nobody can get it. And what A has sent, C still gets from the others."""
    group = group_of(stack, "BCDA")
    group["A"].send(*numbered(1, 5))
    group["C"].send(*numbered(1, 5))
    group.settle()
    unheard(group, "A", "C")
    group["A"].send(*numbered(6, 20))
    group.run(2)
    decide_with(group, "D", sender, more)
    group["B"].send(b"afterwards")
    heal(group)
    for name in "BCD":
        assert group[name].consumer.got[group["A"].address] == numbered(1, 20), name
        assert group[name].consumer.got[group["B"].address] == [b"afterwards"], name


def let_lie(group, liar, sender, more):
    """In each view that follows, `liar` says that it has `more` messages of `sender`
    than it has, and does not mind."""
    multicast, origin = group[liar].multicast, group[sender].incarnation
    prepare = multicast.prepare

    def lie(now):
        digest = prepare(now)
        return digest | {origin: digest[origin] + more} if origin in digest else digest

    multicast.prepare, multicast.can_give = lie, lambda sender, part: True
    group.checkers.views.has_cause = True       # to exclude it


@pytest.mark.parametrize("liar, more", [("B", 3), ("D", 3), ("D", 1 << 40)])    # B coordinates
@pytest.mark.parametrize("stack", STACKS)
def test_who_never_gives_what_it_reports_again_and_again_is_excluded(stack, liar, more):
    group = group_of(stack, "BCDA")
    group["A"].send(*numbered(1, 20))
    group.settle()
    let_lie(group, liar, "A", more)
    group["A"].crash()
    group.run(3000)
    group[min({"B", "C", "D"} - {liar})].send(b"afterwards")
    group.settle(30_000)
    for name in {"B", "C", "D"} - {liar}:
        assert group[name].consumer.got[group["A"].address] == numbered(1, 20), name


@pytest.mark.parametrize("stack", STACKS)
def test_who_had_to_give_up_what_it_has_reported_asks_for_another_view(stack):
    """It does not lie, and is not excluded."""
    group = group_of(stack, "BCDA")
    unheard(group, "A", "C", "D")
    group["A"].send(*numbered(1, 5))
    group.run(2)
    group["A"].crash()
    flushing, origin = group["B"].multicast.flushing, group["A"].incarnation
    while origin not in flushing.departed:
        group.run(0.01)
    flushing._give_up(origin)                       # as when it takes too much memory
    group["B"].send(b"afterwards")
    group.run(1000)
    for name in "BCD":
        assert group[name].members.settling.is_settled
        assert len(group[name].views[-1]) == 3 and len(group[name].views) <= 5
        assert group[name].consumer.got[group["B"].address] == [b"afterwards"]


def lacking(stack, **options):
    """A has died, and C lacks 64 datagrams of it, which the others have."""
    group, messages = group_of(stack, "BCDA", **options), [b.ljust(500) for b in numbered(1, 64)]
    unheard(group, "A", "C")
    group["A"].send(*messages)
    group.run(2)
    group.network.cut = set()
    group["A"].crash()
    return group, messages


@pytest.mark.parametrize("stack", STACKS[::2])
def test_however_much_is_lost_nobody_takes_a_holder_for_one_that_gives_nothing(stack):
    (group, messages), longest = lacking(stack), 0
    heal_all, group.network.loss = group.heal, 0.3
    departed = group["C"].multicast.flushing.departed
    for _ in range(5_000):
        group.run(1)
        longest = max([longest, *(each.in_vain for each in departed.values())])
    assert 0 < longest < fetching.SLOW
    heal_all()
    heal(group)
    assert group["C"].consumer.got[group["A"].address] == messages
    assert [len(member.views) for member in group.living()] == [3, 2, 2]    # B had one alone


@pytest.mark.parametrize("stack", STACKS[::2])
def test_a_holder_that_gives_a_message_now_and_then_is_not_suspected(stack):
    group, messages = lacking(stack)
    passed = [0]

    def is_held_up(source, target, datagram):
        if wire.open_datagram(datagram, group["B"].stack.group).kind != fetching.HELD:
            return False
        if group.now - passed[0] < 500_000_000:
            return True
        passed[0] = group.now
        return False

    group.network.discard = is_held_up
    for _ in range(1800):
        group.run(10)
        assert not group["C"].multicast.withholding()
    assert group["C"].multicast.fetching.is_needed()
    group.network.discard = None
    heal(group)
    assert group["C"].consumer.got[group["A"].address] == messages


def test_a_holder_is_not_suspected_while_there_is_no_room_for_what_it_has():
    """So it is at a member that is back, lacks many windows, and is slow."""
    group, _ = lacking("mcast-udp")
    multicast, origin = group["C"].multicast, group["A"].incarnation
    while origin not in multicast.flushing.departed:
        group.run(0.01)
    gone = multicast.flushing.departed[origin]
    gone.cut += 10_000
    group.run(500)
    assert not gone.is_complete and gone.ring.num_missing == 0
    for _ in range(1500):
        group.run(10)
        assert not multicast.withholding()


def test_a_holder_has_twelve_seconds_however_frequent_scans_are():
    group, _ = lacking("mcast-udp", xmit_interval=1)
    group.network.discard = lambda source, target, datagram: (
        wire.open_datagram(datagram, group["B"].stack.group).kind == fetching.HELD)
    multicast, later = group["C"].multicast, 0
    while not any(gone.in_vain for gone in multicast.flushing.departed.values()):
        group.run(1)
    while not multicast.withholding():
        group.run(10)
        later += 10
    assert 11_500 < later < 13_000


def withhold(group, sender, receiver):
    """Nothing of what `sender` sends to everybody comes to `receiver`, not even the
    second time; and all the rest does."""
    kinds = {multicast.DATA, multicast.REPEAT}
    group.network.discard = lambda source, target, datagram: (source, target) == (
        sender, receiver) and (
        wire.open_datagram(datagram, group[sender].stack.group).kind in kinds)
    group.checkers.views.has_cause = True       # to exclude one of the two


def wait_for(group, sender, *messages):
    """C never gets these of `sender`, and B dies. So C waits for them."""
    withhold(group, sender, "C")
    group[sender].send(*messages)
    group.run(100)
    group["B"].crash()
    group.run(3000)
    assert not group["C"].multicast.is_complete()
    assert group["C"].members.view_id > group["C"].views[-1].id


@pytest.mark.parametrize("sender", "AD")        # A coordinates
@pytest.mark.parametrize("stack", STACKS)
def test_a_member_that_does_not_give_what_it_has_sent_is_not_waited_for_for_ever(stack, sender):
    group = group_of(stack, "ABCD")
    wait_for(group, sender, *numbered(1, 20))
    group.run(20_000)
    group.network.discard = None
    heal(group)
    group[sender].send(b"afterwards")
    group.settle(20_000)
    assert group["C"].consumer.got[group[sender].address] == [b"afterwards"]
    for name in "ACD":
        assert len(group[name].views[-1]) == 3, name


def test_a_sender_is_not_suspected_while_the_application_has_no_room_for_more():
    group = group_of("mcast-udp", "ABCD")
    group["C"].consumer.finish_after = None
    group["A"].send(*numbered(1, 5))
    group.run(5)
    wait_for(group, "A", *numbered(6, 20))
    for _ in range(2000):
        group.run(10)
        assert not group["C"].multicast.withholding()
    group["C"].consumer.wake()
    group.run(11_000)
    assert not group["C"].multicast.withholding()
    group.network.discard = None
    heal(group)
    assert group["C"].consumer.got[group["A"].address] == numbered(1, 20)


def test_a_sender_has_twelve_seconds_in_each_view():
    """Until it gives what it has sent before."""
    group = group_of("mcast-udp", "ABCD")
    wait_for(group, "D", *numbered(1, 20))
    for _ in range(2):
        group.run(8000)
        assert not group["C"].multicast.withholding()
        group["A"].members.coordinator.renews = True
        group.run(500)
    group.network.discard = None
    heal(group)
    assert group["C"].consumer.got[group["D"].address] == numbered(1, 20)


@pytest.mark.parametrize("liar, sender", ["DA", "DC", "CD"])    # A coordinates
@pytest.mark.parametrize("stack", STACKS)
def test_who_reports_again_and_again_what_a_member_has_not_sent_is_excluded(stack, liar, sender):
    """All would wait for it, in one view after the other, and see none of them."""
    group = group_of(stack, "ABCD")
    group[sender].send(*numbered(1, 20))
    group.settle()
    let_lie(group, liar, sender, 3)
    group["B"].crash()
    group.run(3000)
    for name in {"A", "C", "D"} - {liar}:
        assert len(group[name].views[-1]) == 3, name
        assert len(group[name].views) <= 12, name
    group[sender].send(b"afterwards")
    group.settle(20_000)
    for name in {"A", "C", "D"} - {liar, sender}:
        assert group[name].consumer.got[group[sender].address][-1] == b"afterwards", name


def refuse(group, name, promised=0):
    """Say in a member's name that it needs another view than the one that it has."""
    forge(group, name, REFUSE, Refuse(group["A"].members.view_id, promised), to="A")


def test_a_sender_that_denies_again_and_again_what_the_coordinator_has_is_excluded():
    """Who of the two is right, nobody knows; but without the coordinator there would be
    no view at all."""
    group = group_of(names="ABCD")
    group["D"].send(*numbered(1, 20))
    group.settle()
    let_lie(group, "D", "D", -3)
    for _ in range(4):
        assert len(group["C"].views[-1]) == 4
        refuse(group, "D")
        group.run(120)
    assert [member.name for member in group["C"].views[-1].members] == ["A", "C", "B"]


def test_who_reports_now_and_then_what_a_member_denies_is_kept():
    group = group_of(names="ABCD")
    group["D"].send(*numbered(1, 20))
    group.settle()
    prepare = group["D"].multicast.prepare
    for _ in range(4):
        let_lie(group, "D", "D", -3)
        for _ in range(2):
            refuse(group, "D")
            group.run(120)
        group["D"].multicast.prepare = prepare
        refuse(group, "D")
        group.run(120)
    assert len(group["C"].views) == 1 + 4 * 3 and len(group["C"].views[-1]) == 4


def test_who_refuses_views_in_which_nobody_claims_more_excludes_nobody():
    group = group_of()
    group["B"].send(*numbered(1, 20))
    group.settle()
    for _ in range(10):
        refuse(group, "B")
        group.run(120)
    assert len(group["C"].views) == 11 and len(group["C"].views[-1]) == 3


def test_who_waits_for_a_view_that_is_late_accuses_nobody():
    """It refuses the view that it has, because it has promised another one."""
    group = group_of(names="ABCD")
    group["D"].send(*numbered(1, 20))
    group.settle()
    let_lie(group, "D", "D", -3)
    for _ in range(10):
        refuse(group, "D", promised=group["A"].members.promised + 1)
        group.run(120)
    assert len(group["C"].views) == 11 and len(group["C"].views[-1]) == 4


def test_however_many_refuse_the_view_that_they_have_another_one_is_made_only_so_often():
    group = group_of()
    for _ in range(1000):
        refuse(group, "C")
        group.run(1)
        assert len(group["A"].views) - 1 <= 12
    assert len(group["A"].views) - 1 >= 5
