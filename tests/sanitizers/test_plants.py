"""Each sanitizer reports what was planted for it, and only when it was built in.
Otherwise its silence would mean nothing."""

import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.prove

sanitize = runpy.run_path(str(Path(__file__).with_name("sanitize.py")))


@pytest.mark.parametrize("variant", ["tsan", "asan", "ubsan"])
def test_a_planted_mistake_is_reported(variant, tmp_path):
    assert sanitize["is_plant_reported"](variant, tmp_path)


def test_without_the_flags_nothing_is_reported(tmp_path):
    assert not sanitize["is_plant_reported"]("ubsan", tmp_path, ["-O1"])
