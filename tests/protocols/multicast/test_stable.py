"""STABLE: what transcripts cannot say. A hostile vote may hold purging up; it never
purges what an honest member has not finished."""

import itertools
import random
from random import Random

import msgspec
import pytest
from large import LARGE, send_from_all

from ringcast._core import wire
from ringcast.address import EVERYONE
from ringcast.config import MAX_MEMBERS
from ringcast.protocols.multicast.base import Multicast
from ringcast.protocols.multicast.stable import (
    CONCLUSIONS,
    QUARTER,
    STABILITY,
    VOTE,
    StabilityReport,
    Stable,
    Vote,
    merged,
)
from ringcast.protocols.seqnos import precedes
from ringcast.sim.cluster import Cluster
from ringcast.sim.network import MS, Network

OPTIONS = {"capacity": 64, "ack_threshold": 1, "xmit_interval": 50, "stable_interval": 10,
           "stack": "nakack2-udp"}
FAR = [0, 1, 2**31, 2**62 - 1, 2**62, 2**62 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2**62,
       2**64 - 2, 2**64 - 1]


def cluster(names="ABC", **kwargs):
    network = Network(delay=(100_000, 100_000))
    return started(Cluster(names, **({"network": network} | OPTIONS | kwargs)))


def started(group, offset=0, others=0):
    """Start all members, A first: it is the coordinator. It has the `offset`, and the
    others have theirs."""
    group.start("A", offset=offset)
    group.run(500)
    group.start(*[name for name in group.names if name != "A"], offset=others)
    group.run(1000)
    assert all(member.views[-1].members[0].name == "A" for member in group.living())
    assert all(len(member.views[-1]) == len(group.names) for member in group.living())
    return group


def payloads(name, first, last):
    return [b"%s-%d" % (name.encode(), k) for k in range(first, last + 1)]


def stable(group, name):
    return next(layer for layer in group[name].stack.layers if isinstance(layer, Stable))


def low(group, name):
    return group[name].multicast.send_window.ring.low


def forge(group, to, source, kind, body, sender=None):
    """`to` receives this as if `source` had sent it."""
    stack = group[source].stack
    data = wire.make_datagram(kind, stack.group, sender or group[source].incarnation, EVERYONE,
                              msgspec.msgpack.encode(body))
    group[to].turn([data])


def vote(group, digest, grant=1 << 20, receiving=True, view_id=None):
    """`digest` by names, or by incarnations."""
    by_incarnation = {group[key].incarnation if key in group.members else key: value for key,
                      value in digest.items()}
    return Vote(group["A"].multicast.view_id if view_id is None else view_id, receiving, grant,
                by_incarnation)


def report(group, digest, grant=1 << 20, view_id=None, slowest=None):
    by_incarnation = {group[key].incarnation if key in group.members else key: value for key,
                      value in digest.items()}
    return StabilityReport(group["A"].multicast.view_id if view_id is None else view_id, grant,
                           by_incarnation, slowest or {})


def unwatched(group):
    """A member that lies breaks what the checkers take for granted of its own
    messages."""
    group.checkers.after_turn = lambda member: None
    return group


# ------------------------------------------------------------------------------------ hostile votes

@pytest.mark.parametrize("offset", [0, 2**63 - 10, 2**64 - 10])
@pytest.mark.parametrize("far", FAR)
def test_a_vote_for_any_seqno_purges_nothing_that_another_has_not_finished(far, offset):
    group = Cluster("ABC", network=Network(delay=(100_000, 100_000)), **OPTIONS)
    started(group, offset, others=5)
    group["C"].consumer.finish_after = None
    group["A"].send(*payloads("A", 1, 20))
    group.run(200)
    unwatched(group)
    seqno = (offset + far) % 2**64
    for entry in [(seqno, seqno), (offset, seqno), (seqno, offset)]:
        forge(group, "A", "B", VOTE, vote(group, {"A": entry, "B": entry, "C": entry}))
        assert low(group, "A") == offset
    group.run(500)
    assert low(group, "A") == offset and low(group, "C") == 5


@pytest.mark.parametrize("seed", range(40))
def test_whatever_one_votes_the_others_lose_nothing(seed):
    """B votes nonsense about everybody, C is slow now and then; what A and C purge, A
    and C have finished."""
    rng = Random(seed)
    group = unwatched(cluster("ABC", seed=seed))
    everybody = [group[name].incarnation for name in "ABC"]
    said = dict.fromkeys("AC", 0)
    group["C"].consumer.finish_after = None
    for _ in range(60):
        name = rng.choice("AC")
        said[name] += group[name].send(*payloads(name, said[name] + 1,
                                                 said[name] + rng.randint(1, 9)))
        entry = [(rng.choice(FAR) + rng.randint(0, 50)) % 2**64 for _ in range(2)]
        digest = {rng.choice([*everybody, rng.getrandbits(64)]): tuple(entry)
                  for _ in range(rng.randint(0, 5))}
        forge(group, "A", "B", VOTE, vote(group, digest, rng.choice([0, 1, 1 << 20, 2**63]),
                                          rng.random() < 0.8))
        group.run(rng.choice([0, 1, 15]))
        if rng.random() < 0.2 and group["C"].endpoint.undelivered:
            group["C"].endpoint.max_undelivered = 1000
            group["C"].consumer.finish_after = rng.choice([None, 3 * MS])
            group["C"].request_turn()
        for sender in "AC":
            for receiver in "AC":
                finished = group[receiver].consumer.finished.get(group[sender].incarnation, 0)
                assert not precedes(finished, low(group, sender)), (sender, receiver)


def test_a_member_that_says_it_takes_nothing_does_not_speak_for_others():
    group = unwatched(cluster())
    group["C"].consumer.finish_after = None
    group["A"].send(*payloads("A", 1, 10))
    group.run(50)
    forge(group, "A", "B", VOTE, vote(group, {"A": (10, 10), "C": (10, 10)}, grant=0,
                                      receiving=False))
    group.run(50)
    assert low(group, "A") == 0 and group["B"].incarnation in stable(group, "A").votes


def test_a_vote_takes_nothing_back_and_a_leaver_does_not_return():
    before = Vote(7, True, 10, {1: (5, 8), 2: (2**64 - 1, 2)})
    late = merged(before, Vote(7, True, 20, {1: (4, 9), 2: (1, 1), 3: (1, 1)}))
    assert late.digest == {1: (5, 9), 2: (1, 2), 3: (1, 1)} and late.grant == 20
    gone = merged(late, Vote(7, False, 0, {1: (6, 9)}))
    assert not gone.receiving and gone.digest == {1: (6, 9), 2: (1, 2), 3: (1, 1)}
    assert not merged(gone, Vote(7, True, 10, {1: (7, 9)})).receiving


def test_a_vote_one_behind_what_was_sent_counts_across_the_wrap():
    group = Cluster("AB", network=Network(delay=(100_000, 100_000)), **OPTIONS)
    started(group, offset=2**64 - 3)
    group["B"].consumer.finish_after = None
    group["A"].send(*payloads("A", 1, 6))
    group.run(50)
    unwatched(group)
    forge(group, "A", "B", VOTE, vote(group, {"A": (1, 3), "B": (0, 0)}))
    group.run(1)
    assert low(group, "A") == 1 and group["A"].multicast.send_window.sent == 3


@pytest.mark.parametrize("entry", [(-1, 0), (0, -1), (-2**63, 0)])
def test_votes_and_reports_with_numbers_that_are_no_seqnos_are_counted_and_ignored(entry):
    group = cluster()
    for to, source, kind, body in [("A", "B", VOTE, vote(group, {"A": entry})),
                                   ("A", "B", VOTE, vote(group, {}, grant=-1)),
                                   ("B", "A", STABILITY, report(group, {"B": entry})),
                                   ("B", "A", STABILITY, report(group, {}, grant=-5))]:
        before, votes = stable(group, to).counters.num_bad_votes, dict(stable(group, to).votes)
        forge(group, to, source, kind, body)
        assert stable(group, to).counters.num_bad_votes == before + 1
        assert stable(group, to).votes == votes


@pytest.mark.parametrize("kind", [VOTE, STABILITY])
@pytest.mark.parametrize("body", [b"", b"\xc0", b"\x94\x00\xc3\x00\x80\x00",
                                  b"\x94\xc0\xc0\xc0\xc0", b"\xff" * 60,
                                  b"\x93\x00\xc3\x00"])
def test_what_is_damaged_is_counted_and_ignored(kind, body):
    group = cluster()
    to, source = ("A", "B") if kind == VOTE else ("B", "A")
    before = stable(group, to).counters.num_bad_votes
    group[to].turn([wire.make_datagram(kind, group["A"].stack.group, group[source].incarnation,
                                       0, body)])
    assert stable(group, to).counters.num_bad_votes == before + 1


def test_maps_larger_than_a_group_are_refused():
    group = cluster()
    many = dict.fromkeys(range(1, MAX_MEMBERS + 2), (1, 1))
    forge(group, "A", "B", VOTE, vote(group, many))
    forge(group, "B", "A", STABILITY, report(group, many))
    forge(group, "B", "A", STABILITY, report(group, {}, slowest=dict.fromkeys(many, 1)))
    assert stable(group, "A").counters.num_bad_votes == 1
    assert stable(group, "B").counters.num_bad_votes == 2
    assert all(len(each.digest) <= 3 for each in stable(group, "A").votes.values())


def test_senders_that_are_nobody_are_not_remembered():
    """However many votes there are, each with other names; a vote was kept together
    with all those before it."""
    group = cluster()
    for first in range(1, 20_000, 250):
        forge(group, "A", "B", VOTE, vote(group, dict.fromkeys(range(first, first + 250), (1, 1))))
    coordinator = stable(group, "A")
    assert len(coordinator.votes[group["B"].incarnation].digest) <= 3
    forge(group, "B", "A", STABILITY, report(group, dict.fromkeys(range(1, 200), (1, 1))))
    assert stable(group, "B").known.keys() <= {group[name].incarnation for name in "ABC"}
    group["A"].send(*payloads("A", 1, 10))
    group.settle()
    assert low(group, "A") == 10


# --------------------------------------------------------------------------------- who may say what

def test_a_report_of_who_is_not_the_coordinator_does_nothing():
    group = unwatched(cluster())
    group["C"].consumer.finish_after = None
    group["A"].send(*payloads("A", 1, 10))
    group.run(100)
    for sender in (group["B"].incarnation, group["C"].incarnation, 999):
        received = stable(group, "A").counters.stability_received
        forge(group, "A", "B", STABILITY, report(group, {"A": (10, 10)}), sender)
        assert low(group, "A") == 0 and stable(group, "A").counters.stability_received == received


@pytest.mark.parametrize("view_id", [0, 1, 2**63, 2**64 - 1])
def test_votes_and_reports_of_another_view_do_nothing(view_id):
    group = unwatched(cluster())
    group["C"].consumer.finish_after = None
    group["B"].send(*payloads("B", 1, 10))
    group.run(100)
    forge(group, "B", "A", STABILITY, report(group, {"B": (10, 10)}, view_id=view_id))
    forge(group, "A", "C", VOTE, vote(group, {"B": (10, 10)}, view_id=view_id))
    group.run(100)
    assert low(group, "B") == 0


def test_a_vote_of_a_stranger_or_to_one_who_does_not_count_does_nothing():
    group = unwatched(cluster())
    group["C"].consumer.finish_after = None
    group["A"].send(*payloads("A", 1, 10))
    group.run(100)
    forge(group, "A", "B", VOTE, vote(group, {"A": (10, 10)}), sender=999)
    forge(group, "B", "C", VOTE, vote(group, {"A": (10, 10)}))
    group.run(100)
    assert low(group, "A") == 0 and 999 not in stable(group, "A").votes
    assert stable(group, "B").votes == {}


# ------------------------------------------------------------------------------- impossible reports

@pytest.mark.parametrize("ring", [False, True], ids=["table", "ring"])
@pytest.mark.parametrize("far", FAR)
def test_no_report_purges_what_this_member_itself_has_not_finished(far, ring):
    """Even the coordinator may be wrong: of what this member keeps for others and has
    not finished, nothing goes."""
    group = unwatched(cluster("AB", use_ring_buffer=ring, discard_delivered_msgs=False))
    group["B"].consumer.finish_after = None
    group["A"].send(*payloads("A", 1, 20))
    group["B"].send(*payloads("B", 1, 20))
    group.run(100)
    for seqno in {far, (far + 20) % 2**64}:
        forge(group, "B", "A", STABILITY, report(group, {"A": (seqno, seqno), "B": (seqno, seqno)}))
        kept = group["B"].multicast.windows[group["A"].incarnation].ring
        own = group["B"].multicast.send_window.ring
        assert kept.low == 0 and own.low <= min(seqno, 20) and kept.hr <= kept.capacity
    group["B"].consumer.finish_after = 0
    group["A"].send(*payloads("A", 21, 22))
    group.run(500)


@pytest.mark.parametrize("grant", [0, 1, 2**40, 2**63])
def test_a_grant_never_raises_the_window_above_its_own_bound(grant):
    group = unwatched(cluster("AB", max_bytes=10_000))
    forge(group, "B", "A", STABILITY, report(group, {}, grant=grant))
    assert 1 <= group["B"].multicast.send_window.ring.max_bytes <= 10_000
    group["B"].offer(30, 3)
    group.run(3000)
    assert low(group, "B") == 30


# --------------------------------------------------------------------------------------- the rounds

def conclusion_of(layer, votes, known=None):
    """What the coordinator concludes from these, all of them looked at. It has told
    before what is `known`."""
    layer.votes, layer.changed, layer.known = votes, set(layer.members), known or {}
    layer._compare()
    return layer._conclusion()


def test_the_conclusion_is_the_minimum_of_those_who_take_messages():
    layer = stable(cluster(), "A")
    a, b, c = layer.members
    votes = {a: Vote(1, True, 50, {a: (9, 10), b: (4, 7)}),
             b: Vote(1, True, 40, {a: (10, 10), b: (7, 8)}),
             c: Vote(1, False, 0, {c: (3, 3)})}
    conclusion = conclusion_of(layer, votes)
    assert conclusion.digest == {a: (9, 10), b: (4, 8), c: (3, 3)} or conclusion.digest == {
        a: (9, 10), b: (4, 8)}
    assert conclusion.grant == 40 and conclusion.slowest[a] == a and conclusion.slowest[b] == a
    assert a not in conclusion_of(layer, {a: votes[a], c: votes[c]}).digest, "b has not voted"


def test_before_all_have_voted_on_a_stream_nothing_of_it_is_stable():
    layer = stable(cluster(), "A")
    a, b, c = layer.members
    votes = {a: Vote(1, True, 50, {a: (9, 10), b: (7, 7)}),
             b: Vote(1, True, 50, {a: (9, 10), b: (7, 7)}),
             c: Vote(1, True, 50, {a: (10, 10)})}
    assert conclusion_of(layer, votes).digest == {a: (9, 10)}
    assert conclusion_of(layer, votes).slowest[b] == c
    assert conclusion_of(layer, {b: votes[b], c: votes[c]}).digest == {}


@pytest.mark.parametrize("seed", range(20))
def test_a_vote_changes_the_conclusion_as_if_all_were_compared(seed):
    """The coordinator looks only at the streams that a vote may have changed."""
    rng = random.Random(seed)
    layer, other = stable(cluster("ABCD"), "A"), stable(cluster("ABCD"), "A")
    members = other.members = layer.members
    sent = dict.fromkeys(members, 0)
    for step in range(60):
        member = rng.choice(members)
        sent = {each: seqno + rng.randrange(3) for each, seqno in sent.items()}
        digest = {each: (rng.randint(0, seqno), seqno) for each, seqno in sent.items()
                  if rng.random() < 0.9 or each == member}
        receiving, known = rng.random() < 0.95, dict(layer.known)
        digest = digest if receiving else {member: digest[member]}
        layer._count(member, Vote(layer.view_id, receiving, rng.randint(1, 9), digest),
                     (step + 1) * 10**12)
        whole, said = conclusion_of(other, layer.votes, known), layer.concluded
        assert (whole.digest, whole.grant) == (said.digest, said.grant)
        assert whole.slowest.keys() == said.slowest.keys()


def test_what_others_said_is_withdrawn_if_a_member_has_sent_less_than_it_said():
    """Two votes in the names of others would else count for ever."""
    layer = stable(cluster("ABC"), "A")
    a, b, c = layer.members
    for member, digest in [(b, {b: (1000, 1000)}), (c, {b: (900, 1000)}), (b, {b: (5, 5)}),
                           (c, {b: (3, 5)}), (a, {b: (5, 5)})]:
        layer._count(member, Vote(layer.view_id, True, 1000, digest), 0)
    layer._conclude(0)
    assert layer.concluded.digest[b] == (3, 5)


def test_what_was_told_to_be_stable_stays_when_an_old_vote_comes_late():
    """Of what they know to be stable, members say nothing more: so what an old vote of
    the sender makes impossible would be missing for ever."""
    layer = stable(cluster("ABC", capacity=1), "A")
    a, b, c = layer.members
    votes = [(b, {b: (9, 9)}), (c, {b: (9, 9)}), (a, {b: (9, 9)}), (b, {b: (5, 5)}),
             (b, {b: (9, 9)})]
    for member, digest in votes:
        layer._count(member, Vote(layer.view_id, True, 1000, digest), 0)
        layer._conclude(0)
    assert b not in layer.votes[c].digest and layer.concluded.digest[b] == (9, 9)


def test_a_lag_of_a_quarter_of_all_seqnos_is_no_lag_that_can_be():
    layer = stable(cluster("AB"), "A")
    a, b = layer.members
    layer.votes = {b: Vote(1, True, 1, {a: (100, 100)})}
    for sent, expected in [(100, 0), (103, 3), (100 + QUARTER - 1, QUARTER - 1),
                           (100 + QUARTER, QUARTER), (99, 0), (50, 0),
                           (100 + 2**63, QUARTER), ((101 - QUARTER) % 2**64, 0),
                           ((100 - QUARTER) % 2**64, QUARTER)]:
        assert layer._lag(b, a, (sent, sent)) == expected, sent


def test_there_is_silence_when_all_is_stable():
    group = cluster()
    for name in "ABC":
        group[name].send(*payloads(name, 1, 30))
    group.settle()
    group.run(100)
    said, ours = [], {*Multicast.kinds, VOTE, STABILITY}
    group.observer.sent = lambda source, dest, datagram: said.append(datagram[3])
    group.run(60_000)
    assert said and not ours & set(said)                # but for heartbeats


def test_who_hears_nothing_votes_ever_more_rarely():
    group = cluster("AB", suspect_timeout=600_000)
    group["A"].crash()
    group["B"].send(*payloads("B", 1, 3))
    group.run(1000)
    before = stable(group, "B").counters.votes_sent
    group.run(64_000)
    rounds = 64_000 / 10
    votes = stable(group, "B").counters.votes_sent - before
    assert rounds / 64 - 2 <= votes <= 3 * rounds / 64 + 10


def votes_of(group):
    """From now on: when each member votes, and on what."""
    said = []

    def note(source, dest, datagram):
        if datagram[3] == VOTE:
            said.append((group.now, source.name, VOTE.decode(datagram).digest))
    group.observer.sent = note
    return said


def test_members_of_a_large_group_take_turns_to_vote():
    group = cluster(LARGE, ack_threshold=64)
    group.settle()
    said = votes_of(group)
    group["A"].send(b"one for all")
    group.settle()
    assert sorted(name for _, name, _ in said) == [*LARGE[1:]]  # A counts its own at once
    assert all(later[0] - sooner[0] > MS // 2 for sooner, later in itertools.pairwise(said))


def test_a_vote_says_nothing_of_streams_that_are_stable():
    group = cluster()
    for name in "ABC":
        group[name].send(*payloads(name, 1, 3))
    group.settle()
    said = votes_of(group)
    group["B"].send(*payloads("B", 4, 4))
    group.settle()
    assert {name for _, name, _ in said} == {"B", "C"}
    assert all(digest.keys() == {group["B"].incarnation} for _, _, digest in said)


def test_what_is_urgent_is_voted_on_as_soon_as_it_is_this_members_turn():
    group = cluster("ABCDEFGHIJ", capacity=64, ack_threshold=1, stable_interval=5000,
                    xmit_interval=10_000)
    group.settle()
    said = votes_of(group)
    for step in range(30):
        group["A"].send(b"%d" % step)
        group.run(1)
    group.run(5)
    times = [time for time, name, _ in said if name == "B"]
    assert 8 <= len(times) <= 12 and low(group, "A") == 30
    assert all(later - sooner >= 3 * MS for sooner, later in itertools.pairwise(times))


def test_the_coordinator_of_a_large_group_counts_votes_together():
    group = cluster(LARGE, capacity=1024, stable_bytes=1000)
    before = stable(group, "A").counters.stability_sent
    votes = votes_of(group)
    send_from_all(group, 100)
    reports = stable(group, "A").counters.stability_sent - before
    assert reports <= CONCLUSIONS * 1000 / 12 + 10 and len(votes) > 2 * reports
    assert all(low(group, name) == 100 for name in LARGE)


def test_large_messages_are_voted_on_before_their_time():
    group = cluster("AB", capacity=10_000, ack_threshold=4096, stable_interval=5000,
                    stable_bytes=20_000, xmit_interval=10_000)
    before = stable(group, "B").counters.votes_sent
    group["A"].send(*[bytes(1000)] * 19)
    group.run(50)
    first = stable(group, "B").counters.votes_sent
    assert first <= before + 1
    group["A"].send(*[bytes(1000)] * 40)
    group.run(50)
    assert stable(group, "B").counters.votes_sent > first and low(group, "A") >= 19


def test_the_smallest_grant_bounds_all_senders():
    group = cluster("ABC", socket_bytes=1 << 24)
    group["C"].crash()
    group["A"].exclude("C")
    group.run(200)
    group.start("C", receive_budget=3000)
    group.run(500)
    for name in "ABC":
        group[name].send(*payloads(name, 1, 40))
    group.run(1000)
    assert {group[name].multicast.send_window.ring.max_bytes for name in "AB"} == {1500}


# -- A new view, after a standstill
# ------------------------------------------------------------------

class Losing(Cluster):
    """Lose what `when` picks out."""

    when = staticmethod(lambda source, target, kind: False)

    def carried(self, source, target, datagram, leaves):
        arrivals = super().carried(source, target, datagram, leaves)
        return [] if self.when(source, target, datagram[3]) else arrivals


def standing_still():
    """C is dead, and B has waited for it for so long that it votes as rarely as it ever
    does."""
    group = Losing("ABC", stack="nakack2-udp", capacity=16, stable_interval=20,
                   suspect_timeout=600_000, network=Network(delay=(100_000, 100_000)))
    group.when = lambda source, target, kind: (source, kind) == ("C", VOTE)
    started(group)
    group["C"].crash()
    group["B"].offer(100, 10)
    group.run(10_000)
    assert len(group["B"].producer.multicasts.backlog) == 100 - 16
    return group


def until_freed(group, after):
    """Milliseconds from `after` until all that B has to send has found room."""
    while group["B"].producer.multicasts.backlog:
        group.run(1)
        assert group.now < after + 10_000 * MS
    return (group.now - after) / MS


def test_a_vote_of_a_new_view_that_is_lost_is_repeated_soon_however_long_nothing_moved_before():
    group = standing_still()
    group.when = lambda *what: what == ("B", "A", VOTE)
    group["B"].exclude("C")
    group.run(50)
    assert group["A"].views[-1].names == ("A", "B")
    assert len(group["B"].producer.multicasts.backlog) == 100 - 16
    group.when = Losing.when
    assert until_freed(group, group.now) <= 60


def test_early_votes_are_bounded_and_stale_ones_are_not_kept():
    group = cluster()
    a, ours = stable(group, "A"), group["A"].multicast.view_id
    for number in range(3 * MAX_MEMBERS):
        early = vote(group, {"B": (1, 1)}, view_id=ours + 1 + number)
        forge(group, "A", "B", VOTE, early, sender=1000 + number)
    assert len(a.early) == MAX_MEMBERS
    # The last of each member: one of a view far ahead keeps no true one out.
    for view_id in (ours + 7, ours + (1 << 60), ours + 5, ours - 1):
        forge(group, "A", "B", VOTE, vote(group, {"B": (1, 1)}, view_id=view_id))
    assert len(a.early) == MAX_MEMBERS and a.early[group["B"].incarnation].view_id == ours + 5
    forge(group, "A", "B", VOTE, vote(group, {"B": (1, 1)}, view_id=ours + (1 << 60)))
    group["C"].crash()
    group["A"].exclude("C")
    group.run(500)
    assert group["A"].views[-1].id > ours
    assert [early.view_id for early in a.early.values()] == [ours + (1 << 60)]
