"""The journal that most tests of the source read."""

import pytest
from journals import A, B, record

from ringcast.spark import Journal


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal"


@pytest.fixture
def journal(path):
    """A journal with messages 1 to 10 of A and 5 to 8 of B, open for more."""
    with Journal(path, group="g", fsync=False) as journal:
        record(journal, A, 1, 10)
        record(journal, B, 5, 8)
        journal.sync()
        yield journal
