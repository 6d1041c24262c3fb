"""Inputs that the fuzzer kept break no promise, and found bugs stay repaired."""

import random

import pytest
from corpus import found, inputs
from forger import FORGERS
from group_nakack2 import LinkedGroup
from reference import runs
from targets import INPUT, TARGETS

from ringcast.address import EVERYONE


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_breaks_no_promise(target):
    kept = inputs(target)
    assert len(kept) > 50
    for data in kept:
        TARGETS[target](data)


@pytest.mark.parametrize("data", [data for target in TARGETS for data in found(target)],
                         ids=lambda data: data[:8].hex())
def test_a_bug_that_was_found_once_stays_repaired(data):
    for target in TARGETS.values():
        target(data)


@pytest.mark.parametrize("target", ["nakack2-udp", "nakack2-tcp", "tcp"])
def test_inputs_that_were_never_seen_break_no_promise(target):
    rng, kept = random.Random(target), inputs(target)
    for _ in range(100):
        one, other = rng.choice(kept), rng.choice(kept)
        data = bytearray(one[:rng.randrange(1, len(one) + 1)] + other[rng.randrange(len(other)):])
        data[rng.randrange(len(data))] = rng.randrange(256)
        TARGETS[target](bytes(data))


@pytest.mark.parametrize("target", FORGERS)
def test_single_datagrams_in_the_name_of_another_break_no_promise(target):
    rng, kept = random.Random(target), inputs(target)
    forged, num_kept = set(), 0
    for _ in range(60):
        group = FORGERS[target](rng.choice([rng.choice(kept), b""]) + rng.randbytes(200))
        group.run()
        forged |= group.forged
        num_kept += not (group.spoofed or group.apart or group.misled) and len(group.forged) > 1
    assert forged >= {"make_refusal", "make_later_start", "make_last_generation", "make_request"}
    assert num_kept > 5


def test_the_corpus_reaches_what_the_promises_are_about():
    """Some programs end with everything delivered and purged, with B as the coordinator
    or not. In some B misled a member, or a member held or resent."""
    groups = [LinkedGroup(data) for data in inputs("nakack2-tcp")]
    for group in groups:
        group.run()
    kept = [group for group in groups if not (group.apart or group.spoofed or group.misled)]
    assert {True, False} == {group.leads for group in kept
             if all(each.accepted[EVERYONE] for each in group.members)}
    counters = [each.multicast.counters for group in groups for each in group.members]
    reached = ("num_held", "num_queued", "num_queue_dropped", "resyncs_received", "num_gaps")
    assert not [name for name in reached if not any(getattr(each, name) for each in counters)]
    assert any(group.misled for group in groups)


def test_the_corpus_has_bodies_that_are_well_formed_and_others():
    bodies = [runs(data[INPUT:]) for data in inputs("decoder") if len(data) > INPUT]
    assert None in bodies and sum(body is not None for body in bodies) > 10
