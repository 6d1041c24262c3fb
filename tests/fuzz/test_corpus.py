"""What the fuzzer found worth keeping, run again without it: no promise is broken, and what was found once stays mended."""

import pytest
from corpus import found, inputs
from reference import runs
from targets import INPUT, TARGETS


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_breaks_no_promise(target):
    kept = inputs(target)
    assert len(kept) > 50
    for data in kept:
        TARGETS[target](data)


@pytest.mark.parametrize("data", found("stack") + found("decoder"), ids=lambda data: data[:8].hex())
def test_what_was_found_once_stays_mended(data):
    for target in TARGETS.values():
        target(data)


def test_the_corpus_reaches_what_is_well_formed_and_what_is_not():
    bodies = [runs(data[INPUT:]) for data in inputs("decoder") if len(data) > INPUT]
    assert None in bodies and sum(body is not None for body in bodies) > 10
