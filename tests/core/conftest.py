import runpy
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def native():
    """The compiled helper of these tests."""
    return runpy.run_path(str(Path(__file__).with_name("native.py")))["build"]()
