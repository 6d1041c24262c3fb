"""Inputs that the fuzzer kept break no promise, and found bugs stay repaired."""

import gc
import random
from collections import Counter

import pytest
from corpus import found, inputs
from forger import FORGERS
from group import GROUPS, LEADS, LIES, SPOOFS
from honest import CONFIG
from hostile_member import HostileMember
from insider import INSIDERS
from outsider import COUNTED, Outsider
from reference import runs
from targets import INPUT, TARGETS

from ringcast.address import EVERYONE
from ringcast.protocols.multicast import retention

OF_VIEWS = ("num_msgs_delivered", "num_unknown_sender", "num_bad")
REACHED = {"mcast-udp": (*OF_VIEWS, "xmit_rsps_received", "num_out_of_window"),
           "mcast-tcp": OF_VIEWS,
           "nakack2-udp": (*OF_VIEWS, "num_queued", "num_queue_dropped", "xmit_rsps_received"),
           "nakack2-tcp": (*OF_VIEWS, "num_queued", "num_queue_dropped", "resyncs_received",
                           "num_gaps", "num_dropped_for_resync")}


def is_group(target):
    return target in GROUPS or target == "outsider" or target.startswith("insider")


@pytest.mark.parametrize("target", [each for each in TARGETS if not is_group(each)])
def test_the_corpus_breaks_no_promise(target):
    kept = inputs(target)
    assert len(kept) > 50
    for data in kept:
        TARGETS[target](data)


@pytest.mark.parametrize("target", GROUPS)
def test_the_corpus_breaks_no_promise_and_reaches_what_they_are_about(target):
    """Some programs end with everything delivered and purged, with B as the coordinator
    or not; in some B lied, and in some the honest members were parted."""
    groups = [GROUPS[target](data, target) for data in inputs(target)]
    for group in groups:
        group.run()
    assert len(groups) > 50
    kept = [group for group in groups if not (group.is_loose() or group.misled)]
    assert {True, False} == {group.leads for group in kept
                             if all(each.accepted[EVERYONE] for each in group.members)}
    assert any(group.lied for group in groups) and any(group.apart for group in groups)
    counters = [each.multicast.counters for group in groups for each in group.members]
    reached = REACHED[target]
    assert not [name for name in reached if not any(getattr(each, name) for each in counters)]
    assert any(group.misled for group in groups) or target.startswith("mcast")


def each_run(make, target):
    """Run each kept program of a target. A group that was run waits for the garbage
    collector, with the memory of its seals: some megabytes."""
    for number, data in enumerate(inputs(target)):
        run = make(data)
        run.run()
        yield run
        del run
        if number % 10 == 0:
            gc.collect()


@pytest.mark.parametrize("stack", INSIDERS)
def test_what_a_member_says_under_the_seal_breaks_no_promise(stack):
    """It fills windows with what nobody may free, and is shut out of views, too."""
    seen, full = Counter(), retention.ROOM * CONFIG.max_bytes
    for group in each_run(lambda data: INSIDERS[stack](data, stack), stack):
        seen.update(opened=group.num_opened, shut_out=group.num_shut_out,
                    strict=not (group.is_loose() or group.misled), full=group.most_kept > full)
    assert seen["opened"] > 1000 and seen["shut_out"] > 100
    assert seen["strict"] > 10 and seen["full"] > 20


def test_what_comes_without_the_key_is_counted_and_does_nothing():
    """Where there is a secret, and where keys are trusted; in frames of TCP, too."""
    seen, forms = {False: Counter(), True: Counter()}, set()
    for run in each_run(Outsider, "outsider"):
        forms.add((run.stack, run.trusts))
        counted = seen[run.trusts]
        counted.update(said=run.num_said, framed=run.num_framed)
        for member in run.cluster.living():
            status = member.transport.seal.status()
            counted.update({name: getattr(status, name) for name in COUNTED})
    assert len(forms) == 8
    for counted in seen.values():
        assert counted["said"] > 200 and counted["framed"] > 40
        assert [name for name in COUNTED if not counted[name]] == []


@pytest.mark.parametrize(("target", "data"), [
    pytest.param(target, data, id=f"{target}-{data[:8].hex()}")
    for target in TARGETS for data in found(target)])
def test_a_bug_that_was_found_once_stays_repaired(target, data):
    TARGETS[target](data)


@pytest.mark.parametrize("target", [each for each in TARGETS if each != "decoder"])
def test_inputs_that_were_never_seen_break_no_promise(target):
    rng, kept = random.Random(target), inputs(target)
    for _ in range(50):
        one, other = rng.choice(kept), rng.choice(kept)
        data = bytearray(one[:rng.randrange(1, len(one) + 1)] + other[rng.randrange(len(other)):])
        data[rng.randrange(len(data))] = rng.randrange(256)
        TARGETS[target](bytes(data))


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.prove)
                                               for seed in range(2, 20))])
@pytest.mark.parametrize("target", GROUPS)
def test_whatever_a_hostile_member_says_of_the_group_the_others_are_one_at_the_end(target, seed):
    rng = random.Random(f"lies {target} {seed}")
    misreport = GROUPS[target].ACTS.index(HostileMember.misreport)
    for number in range(8):
        data = bytes([rng.choice([0, LEADS]) | LIES]) + bytes([misreport, 0] * (number % 2))
        TARGETS[target](data + rng.randbytes(rng.randrange(1, 200)))


@pytest.mark.parametrize("target", FORGERS)
def test_single_datagrams_in_the_name_of_another_break_no_promise(target):
    rng, kept = random.Random(target), inputs(target)
    forged, num_kept = set(), 0
    for _ in range(80):
        mode = rng.randrange(256) & ~rng.choice([0, LIES | SPOOFS])
        program = rng.choice([rng.choice(kept)[1:], b""]) + rng.randbytes(200)
        group = FORGERS[target](bytes([mode]) + program, target)
        group.run()
        forged |= group.forged
        num_kept += not (group.is_loose() or group.misled) and len(group.forged) > 1
    assert forged >= {"make_refusal", "make_request"}
    assert num_kept > 5


def test_the_corpus_has_bodies_that_are_well_formed_and_others():
    bodies = [runs(data[INPUT:]) for data in inputs("decoder") if len(data) > INPUT]
    assert None in bodies and sum(body is not None for body in bodies) > 10
