"""What the fuzzer found worth keeping, run again without it: no promise is broken, and
what was found once stays mended."""

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
def test_what_was_found_once_stays_mended(data):
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
def test_single_datagrams_in_anothers_name_break_no_promise(target):
    rng, kept = random.Random(target), inputs(target)
    forged, num_kept = set(), 0
    for _ in range(60):
        group = FORGERS[target](rng.choice([rng.choice(kept), b""]) + rng.randbytes(200))
        group.run()
        forged |= group.forged
        num_kept += not (group.spoofed or group.apart or group.misled) and len(group.forged) > 1
    assert forged >= {"a_refusal", "a_later_start", "a_last_generation", "a_request"} and num_kept > 5


def test_the_corpus_reaches_what_the_promises_are_about():
    """Some programs end with everything delivered and purged, B as the coordinator or
    not; in some it misled, held or resent."""
    groups = [LinkedGroup(data) for data in inputs("nakack2-tcp")]
    for group in groups:
        group.run()
    kept = [group for group in groups if not (group.apart or group.spoofed or group.misled)]
    assert {True, False} == {group.leads for group in kept
                             if all(each.said[EVERYONE] for each in group.members)}
    counters = [each.multicast.counters for group in groups for each in group.members]
    reached = ("num_held", "num_queued", "num_queue_dropped", "resyncs_received", "num_gaps")
    assert not [name for name in reached if not any(getattr(each, name) for each in counters)]
    assert any(group.misled for group in groups)


def test_the_corpus_reaches_what_is_well_formed_and_what_is_not():
    bodies = [runs(data[INPUT:]) for data in inputs("decoder") if len(data) > INPUT]
    assert None in bodies and sum(body is not None for body in bodies) > 10
