"""Each deliberate mistake in the protocol code is caught by the simulator."""

import pytest
from protocol import MUTATIONS, hunt


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_is_caught(mutation):
    assert hunt(mutation)
