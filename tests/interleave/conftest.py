import pytest
from explore import build


@pytest.fixture(scope="session")
def shipped():
    """The core as shipped, with blocks of 2 seqnos."""
    return build(block=2)


@pytest.fixture(scope="session")
def with_full_blocks():
    """The core as shipped, to the letter."""
    return build(block=32)
