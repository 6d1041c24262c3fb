"""Which seeds the storms have."""

import pytest
from plans import draw

# Each stack; 10 has exclusions, 17 a secret and pauses, 18 windows of four messages.
SEEDS = [3, 7, 10, 17, 18, 32]


def pytest_addoption(parser):
    parser.addoption("--storm-first", type=int, help="the first seed of the storms")
    parser.addoption("--storm-seeds", type=int, default=10, help="how many seeds, from the first")


@pytest.fixture
def kept_seeds():
    return SEEDS


def pytest_generate_tests(metafunc):
    if "storm_seed" not in metafunc.fixturenames:
        return
    # pytest asks this file for options only if it is told to run this directory.
    first = metafunc.config.getoption("--storm-first", None)
    seeds = SEEDS
    if first is not None:
        seeds = range(first, first + metafunc.config.getoption("--storm-seeds"))
    metafunc.parametrize("storm_seed", [
        pytest.param(seed, id=f"{seed}-{stack}", marks=[pytest.mark.udp] * stack.endswith("udp"))
        for seed in seeds for stack in [draw(seed).stack]])
