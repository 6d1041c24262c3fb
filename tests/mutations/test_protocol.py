"""Each deliberate mistake in the protocol code is caught by the simulator."""

import pytest
from protocol import MUTATIONS, hunt

pytestmark = pytest.mark.timeout(900)   # the rarest takes a minute of CPU, and hunts for it on whatever the machine has left


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_is_caught(mutation):
    assert hunt(mutation)
