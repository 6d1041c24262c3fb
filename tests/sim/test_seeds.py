"""Some hundred seeds, as many as a run of the tests has time for: the promises hold in
a bad network, whoever dies at whatever step.

`ringcast simulate --seeds 100000` runs for a night.
"""

from collections import Counter
from functools import cache

import msgspec
import pytest

from ringcast.sim.runs.replay import replay
from ringcast.sim.runs.run import simulate
from ringcast.sim.runs.settings import Settings

STACKS = ["mcast-udp", "mcast-tcp", "nakack2-udp", "nakack2-tcp"]
AT_ONCE = 2                             # seeds in one test
DURATION = 0.5                          # longer ones reach nothing more, and take more time

# Settings, and with how many seeds each of their stacks is simulated, from seed 0 on.
KINDS = {
    "drawn": ({}, STACKS, 20),
    "partitions": ({"partitions": 3, "pauses": 1}, STACKS, 4),
    "deaths": ({"crashes": 3, "leaves": 1}, STACKS, 4),
    "unicast": ({"members": 3, "unicast": 300, "splits": 3, "messages": 50, "partitions": 1},
                STACKS, 6),
    "threads": ({"threads": 2, "leaves": 2, "members": 3}, STACKS, 4),
    "large": ({"large": 3, "messages": 100, "members": 3}, STACKS, 4),
    "between": ({"large": 10, "between": 50, "messages": 100, "crashes": 1,
                 "options": {"max_bytes": 20_000}}, STACKS, 4),
    # More is sent than small socket buffers allow to be on its way.
    "credit": ({"large": 8, "socket_buffer": 70_000, "messages": 100, "members": 4, "crashes": 2,
                "durable": 2, "options": {"capacity": 4096, "max_bytes": 4_000_000}}, STACKS, 4),
    # NAKACK2 without retransmission; it is switched on and off.
    "torn": ({"breaks": 50, "switches": 4, "messages": 300, "unicast": 0,
              "options": {"xmit_interval": 0}}, ["nakack2-tcp"], 8),
    # A stranger says again what it heard (EVERYTHING has what came of that).
    "sealed": ({"sealed": True, "messages": 300}, STACKS, 4),
    # Others, whose keys are not trusted, or not any more, try to be members.
    "trusted": ({"trusted": True, "messages": 300}, STACKS, 4),
    "late": ({"late": 2, "messages": 100}, STACKS, 4),
    "slow": ({"slow": 3, "crashes": 1, "messages": 300, "options": {"xmit_interval": 0}},
             ["nakack2-tcp"], 8),
}
# Of these, `make test` runs only the first seeds. It runs all seeds that failed once.
QUICK = {("drawn", stack, 0) for stack in STACKS} | {("torn", "nakack2-tcp", 0),
                                                     ("sealed", "mcast-udp", 0),
                                                     ("trusted", "nakack2-udp", 0)}

# What all seeds must have reached together, or they have not tested it: counters of the
# stacks, of the network, of the processes.
EVERYTHING = [
    "num_lost", "num_cut", "num_duplicated", "num_reordered", "num_damaged", "num_clogged",
    "num_overflows", "num_unsent", "num_congested", "num_blockings", "num_waits", "num_between",
    "num_ahead", "num_held",
    "num_broken", "num_overtaken", "num_control_broken",
    "num_views", "num_left", "num_suspected", "num_probes", "num_deaths", "num_refusals",
    "fetches_sent", "held_received", "num_duplicates", "num_out_of_window", "num_unknown_sender",
    "xmit_reqs_received", "xmit_rsps_received", "malformed", "not_for_me", "num_queued",
    "num_queue_dropped", "num_dropped_for_resync", "resyncs_sent", "resyncs_received",
    "votes_received", "stability_received", "unicast_msgs_delivered", "unicast_duplicates",
    "unicast_early", "unicast_late", "unicast_undelivered", "unicast_xmit_rsps_sent",
    "datagrams_replayed", "datagrams_unopened", "datagrams_of_strangers", "datagrams_unsealed",
    "hellos_refused", "num_said_by_strangers", "num_said_by_pretenders", "num_said_by_former",
    "num_heard_by_former", "unicast_highest_resent",
    "syncs_sent", "syncs_answered", "closes_received"]

# Seeds that failed once, and why.
KEPT = [
    # A leaver had promised the next view, and two parts were primary.
    ("mcast-udp", 57),
    # A view was not shown. The one after it told ends of streams that were lower by
    # then.
    ("mcast-udp", 421),
    # A member went twice before a slow application had seen it go once. The view said
    # that this had all that the member sent the first time, but that was given up.
    ("nakack2-udp", 408),
    # A durable member that was back twice was given what a departed sender sent again.
    ("nakack2-tcp", 417),
    # A SEEK of a dead member came late, and the coordinator waited for it in silence.
    ("mcast-udp", 920040),
    # A member went past a view, in its own part: others need not keep anything for it.
    ("mcast-udp", 920115),
]
KEPT_SETTINGS = [
    # A clogged link delivered what it held after the run had begun to watch for
    # silence.
    (Settings(unicast=500, splits=4, reorder=0.3, duplicate=0.2), 4),
    # A leaver had promised the first primary view, which nobody installed. Most of the
    # others were enough for the next one, which the checkers took for the first.
    (Settings(members=3, unicast=0, duration=0.5, messages=300), 93),
    # The lowest of those who seek wants more than there are; another one has enough.
    (Settings(members=3, durable=0, unicast=0, duration=0.5, messages=50), 960054),
    # The only member was still leaving when the run ended, so nobody had a view.
    (Settings(members=1), 438),
    (Settings(members=1), 177),
    # A stranger said in the silence what a dead member had said before it.
    (Settings(sealed=True, messages=300), 7006),
    # A group of seven became smaller and smaller, and a member that still fetched what
    # the first had sent gave it up, because its view was that small by then.
    (Settings(stack="nakack2-udp", observers=1), 8),
    # A coordinator let members in, and died when a few had its INSTALL. The others had
    # no view, or another one by then, and suspected nobody: so the few waited for ever
    # for a majority against the dead one, and all others for them.
    (Settings(stack="nakack2-udp", observers=2, members=5, crashes=10, loss=0.2, unicast=0,
              messages=100, leaves=0, duration=2, threads=0), 46),
    (Settings(observers=1, members=4, crashes=8, loss=0.25, unicast=0, messages=100, leaves=0,
              duration=1, threads=0, durable=0), 1078),
    (Settings(observers=1, members=4, crashes=8, loss=0.25, unicast=0, messages=100, leaves=0,
              duration=2, threads=0, durable=0), 1015),
    # In the silence members began without a state, for which they had waited for 10 s.
    (Settings(stack="nakack2-udp", observers=1, members=4, crashes=8, loss=0.25, unicast=0,
              messages=100, leaves=0, duration=1, threads=0, durable=0), 1032),
    # A coordinator without a view made an id again, with its key, for other members. A
    # process to which it had promised the first one could read what they said.
    (Settings(stack="mcast-tcp", durable=1, late=2, crashes=4, partitions=3, exclusions=2,
              leaves=1, threads=0, sealed=True, options={"partition": "primary"}), 980244),
    # A stream that ended in the middle of a large message for a member that kept it for
    # others went on for this member without the begin.
    (Settings(partitions=2, exclusions=3, durable=3, mtu=1500), 990144),
    # Who had reported to an attempt took the next one as its heir. But its coordinator
    # knew that nobody had installed the first; others went on with that one.
    (Settings(crashes=2, partitions=3, exclusions=1, leaves=1, mtu=1500, durable=1,
              trusted=True), 1100130),
    # What was next in order was let in however much was held.
    (Settings(members=3, observers=1, large=3, messages=100, crashes=2, unicast=0), 5008),
    # The first primary view was at its coordinator alone. Others without a view had
    # reported to it, and went with a lower id, which the first one would have followed.
    (Settings(members=4, observers=1, crashes=8, loss=0.25, messages=100, unicast=0, leaves=0,
              threads=0, durable=0, duration=2), 1095),
    # An observer skipped what a new member had freed: nobody else took messages.
    # That one left before the view was settled: then its stream ended before.
    (Settings(members=3, observers=1, large=4, crashes=8, loss=0.25), 710018),
    # A durable member was back, for a sender that died before it had sent what it kept.
    # The member's view said that it had all of that.
    (Settings(stack="nakack2-udp", members=4, observers=1, large=4, crashes=8, loss=0.25), 721012),
    # No fault: a sender waited since a view that was void for the receiver.
    (Settings(stack="nakack2-udp"), 731009),
    # Who asked seldom was sent a share of one interval each time.
    (Settings(members=3, observers=1, large=4, crashes=8, loss=0.25), 743022),
    # No fault: nobody who lives was given what a durable member lacks; its sender died.
    (Settings(stack="nakack2-udp", members=4, observers=1, large=4, crashes=8, loss=0.25), 781033),
    # A member was excluded twice before a slow application had taken what it sent the
    # first time. That was given up for its second stream, which was empty.
    (Settings(), 793018),
    # What a member skipped because a view was void for it, it told as taken.
    (Settings(members=4, observers=1, large=4, crashes=8, loss=0.25), 782055),
    # No fault: the view with which a state begins was void for who got the state.
    (Settings(stack="nakack2-udp", members=4, observers=1, large=4, crashes=8, loss=0.25), 761037),
    # A durable member came back to who had only a later part of a stream, and went on
    # with that. Its sender lived elsewhere, and had the rest.
    (Settings(stack="nakack2-tcp", members=4, observers=1, large=4, crashes=8), 781005),
    # An observer freed what all who were there had finished, and an absent one lacked.
    (Settings(stack="nakack2-udp", members=4, observers=1, large=4, crashes=8, loss=0.25), 832004),
    # No fault: those who had what a durable member lacked were dead.
    (Settings(stack="nakack2-tcp", members=4, observers=1, large=4, crashes=8), 821032),
    # No fault: an earlier life had acknowledged a part of the message that was lacking.
    (Settings(stack="nakack2-udp", members=4, observers=1, large=4, crashes=8, loss=0.25), 821045),
    # A vote of a sender came late: what others had said of its stream was withdrawn.
    # They knew that it was stable, and did not say so again: a standstill.
    (Settings(stack="nakack2-udp", members=4, loss=0.25), 870059),
    # No fault: over TCP the window of an observer may hold twice as much.
    (Settings(stack="nakack2-tcp", members=4, durable=2, observers=1, large=4, crashes=6), 861200),
    # No fault: a sender died before the view in which a durable member was to meet it.
    (Settings(members=4, durable=2, observers=1, large=4, crashes=6, loss=0.1), 841015),
    # No fault: a sender went on alone before the view in which a durable member met it.
    (Settings(members=3, observers=1, large=4, crashes=8, loss=0.25), 901721),
    # No fault: in the silence LOW was still told to an observer, and seldom.
    (Settings(members=4, observers=1, large=4, crashes=8, loss=0.25), 821054),
    # One who was to form the group went with another coordinator, and the first view
    # had less than min_members.
    (Settings(members=4, late=2, loss=0.3, duration=1, messages=20, unicast=0, large=0, threads=0,
              burst=0, duplicate=0, reorder=0, corrupt=0, truncate=0, mtu=0, crashes=0,
              partitions=0, pauses=0, slow=0, exclusions=0, leaves=0, jumps=0, durable=0,
              options={"min_members": 3}), 126),
    # No fault: the parts of a state waited for acks, and the bound did not count them.
    (Settings(stack="nakack2-udp", members=3, observers=1, crashes=4, loss=0.2, unicast=0,
              messages=20, durable=0, duration=0.5, mtu=1500,
              options={"capacity": 1, "ack_min_interval": 50, "ack_max_interval": 100,
                       "ack_threshold": 100, "max_bundle_size": 512, "conn_close_timeout": 50,
                       "heartbeat_interval": 10, "suspect_timeout": 100, "xmit_interval": 3}),
     895005),
    # A view waited for a member that was back. Its receiver had reported nothing of it,
    # and parted: so no other view was shown there any more.
    (Settings(stack="nakack2-udp", durable=2, slow=8, exclusions=6, crashes=6, partitions=4),
     911519),
    # No fault: a durable member was excluded, so its second life was given what comes
    # behind a gap. It died before it had finished that, and a third one was given it.
    (Settings(stack="nakack2-udp", durable=2, slow=8, exclusions=6, crashes=6, partitions=4),
     911023),
    # No fault: a durable member left alone in its view, so all others waited for it.
    (Settings(stack="nakack2-udp", members=4, durable=2, slow=8, exclusions=6, crashes=6,
              partitions=4, unicast=0, messages=200, duration=2, threads=0, loss=0.1), 895261),
    # No fault: a member was told that it gives up a stream whose sender had gone twice.
    (Settings(members=4, durable=2, slow=8, exclusions=6, crashes=6, partitions=4, unicast=0,
              messages=200, duration=2, threads=0, loss=0.1), 895222),
    # Of a sender that was cut off and back only what came since then was told as kept.
    (Settings(stack="mcast-tcp", durable=2, slow=8, exclusions=6, crashes=6, partitions=4),
     912512),
    # A view was settled though a member that was back lacked what came before it.
    (Settings(stack="nakack2-tcp", durable=2, slow=8, exclusions=6, crashes=6, partitions=4),
     913000),
    # A view of which nobody knew if it was installed took the place of those before it.
    (Settings(members=4, observers=1, large=4, crashes=8, loss=0.25), 912518),
    # Who came behind the last message of a stream was to hold it for one who missed it.
    (Settings(members=4, durable=2, slow=8, exclusions=6, crashes=6, partitions=4, unicast=0,
              messages=200, duration=2, threads=0, loss=0.1), 895209),
    # An observer was told what it had missed in a view that it was not shown.
    (Settings(stack="nakack2-tcp", observers=2, crashes=0, partitions=1, exclusions=1, unicast=0,
              large=10, oob=30, mtu=1500, sealed=True), 1402811),
    # Who took no more messages said that it knew nothing of a stream that it had taken.
    (Settings(stack="mcast-tcp", crashes=2, partitions=5, pauses=2, leaves=3, unicast=20,
              large=10, sealed=True), 1402841),
    # OOB messages of a member that was back came again when it was back once more.
    (Settings(stack="mcast-tcp", members=3, size=200, crashes=0, exclusions=3, oob=100, mtu=1500,
              durable=1, observers=2, sealed=True, options={"capacity": "64"}), 1403349),
    # A durable member was cut off in the middle of the last message of a sender.
    (Settings(stack="nakack2-tcp", members=6, size=2000, crashes=3, partitions=5, leaves=6,
              jumps=2, large=40, mtu=0, durable=1, options={"capacity": "16"}), 7000042),
    # Members that were cut off in the middle of large messages, and met others again,
    # were given a state by these, which were not given the rest.
    (Settings(stack="nakack2-udp", loss=0.1, crashes=4, partitions=3, pauses=1, exclusions=1,
              leaves=1, jumps=1, mtu=1500), 1404808),
    # A view waited for the end of a part of a large message, which was forgotten.
    (Settings(messages=20, crashes=1, partitions=1, leaves=2, jumps=1, unicast=100, large=10,
              mtu=1500, late=2, sealed=True, options={"partition": "primary"}), 1405325),
    # An ack of a durable member came after it was back, and was from before.
    (Settings(members=8, messages=60, exclusions=3, leaves=1, large=10, stack="mcast-tcp",
              threads=2, durable=2), 1410077),
    # Something stood between the fragments of a large OOB message that was cut.
    (Settings(messages=80, large=10, oob=20, between=50, observers=2,
              options={"max_bytes": 20_000}), 404),
    # The begin of a large message was acknowledged, and given up for memory when its
    # sender was back in the view; the rest was acknowledged too, and not delivered.
    (Settings(stack="nakack2-udp", messages=60, partitions=3, unicast=100, oob=5, durable=1,
              sealed=True, options={"partition": "primary"}), 1405845),
    # A durable member had a part of a large message when its sender was cut off, and
    # took the end of that part for its place.
    (Settings(stack="nakack2-tcp", members=4, messages=60, pauses=2, exclusions=1, leaves=1,
              large=10, between=30, socket_buffer=70_000, durable=3, late=1,
              options={"max_bytes": "4000000"}), 1418080),
    # Of two members that kept a part of a very large message one had its begin.
    (Settings(crashes=0, partitions=3, exclusions=2, unicast=20, large=10, between=30, threads=2,
              socket_buffer=70_000, observers=1, late=2, options={"capacity": "4096"}), 1419130),
    # No fault: a member was cut off twice, and was not shown the view between with a
    # sender that left then, and to which it had nothing more to send.
    (Settings(members=8, pauses=2, unicast=20, large=10, between=30, socket_buffer=70_000,
              observers=2, options={"capacity": "64"}), 1423292),
    # No fault: a copy of a SEEK came late, when its sender had left.
    (Settings(duration=0.5), 2003225),
    # No fault: who gave the state died, and the newest of those who began without it
    # had come in the middle of a very large message.
    (Settings(stack="nakack2-udp", duration=0.5), 2003561),
    # A coordinator that was in a later view was to finish an earlier one with others.
    # It never could, and tried without end.
    (Settings(stack="nakack2-udp", duration=0.5), 2021186),
    # Two members had joined, and all who were there before them went: one had been sent
    # more of a sender that was gone by then.
    (Settings(stack="nakack2-udp", observers=1, duration=0.5), 8),
    # No fault: a coordinator waited for two dead members of one name, one by one.
    (Settings(observers=1, duration=0.5), 90),
    # Two forged refusals in 7 us: the second one counted before any answer could come.
    (Settings(stack="nakack2-tcp", duration=0.5), 2041361),
]


def check(seed, settings):
    """Simulate, and check that no promise is broken; return the outcome."""
    outcome = simulate(seed, settings)
    assert not outcome.check, f"{outcome.sentence}\n{replay(seed, settings)}"
    return outcome


@cache
def reached(kind, stack, first):
    """Simulate some seeds, once; return what they reached."""
    settings = Settings(stack=stack, **({"duration": DURATION} | KINDS[kind][0]))
    counters = Counter()
    for seed in range(first, first + AT_ONCE):
        outcome = check(seed, settings)
        counters.update(outcome.counters, void=outcome.is_void, runs=1)
    return counters


PARTS = [(kind, stack, first) for kind, (_, stacks, count) in KINDS.items() for stack in stacks
         for first in range(0, count, AT_ONCE)]


@pytest.mark.parametrize(("kind", "stack", "first"), [
    pytest.param(*part, marks=[] if part in QUICK else pytest.mark.prove) for part in PARTS])
def test_no_promise_is_broken(kind, stack, first):
    reached(kind, stack, first)


@pytest.mark.prove
@pytest.mark.timeout(1800)              # alone, it simulates them all
def test_every_fault_and_every_remedy_was_reached():
    seen = sum((reached(*part) for part in PARTS), Counter())
    assert [name for name in EVERYTHING if not seen[name]] == []
    assert seen["void"] < seen["runs"] / 10


@pytest.mark.parametrize(("stack", "seed"), KEPT)
def test_what_failed_once_stays_mended(stack, seed):
    check(seed, Settings(stack=stack, send_buffer=0))


@pytest.mark.parametrize(("settings", "seed"), KEPT_SETTINGS)
def test_what_failed_once_with_these_settings_stays_mended(settings, seed):
    check(seed, msgspec.structs.replace(settings, send_buffer=settings.send_buffer or 0))
