import runpy
from pathlib import Path

import pytest

from ringcast._core.ring_buffer import RingBuffer
from ringcast._core.seqno_table import SeqnoTable

WINDOWS = {
    "RingBuffer": RingBuffer,
    "SeqnoTable": lambda capacity, offset=0, **bound: SeqnoTable(offset, capacity=capacity,
                                                                 **bound),
}


@pytest.fixture(scope="session")
def native():
    """The compiled helper of these tests."""
    return runpy.run_path(str(Path(__file__).with_name("native.py")))["build"]()


@pytest.fixture(params=WINDOWS)
def make(request):
    """make(capacity, offset=0, *, max_bytes=0): a window, one kind after the other."""
    return WINDOWS[request.param]
