"""Fixtures: the journal that most tests of the source read."""

import pytest
from journals import A, B, open_journal, record


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal"


@pytest.fixture
def journal(path):
    """Open a journal with messages 1 to 10 of A and 5 to 8 of B."""
    with open_journal(path) as journal:
        record(journal, A, 1, 10)
        record(journal, B, 5, 8)
        journal.sync()
        yield journal
