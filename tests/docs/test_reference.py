"""The reference is what the code says."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("generate_reference",
                                                  ROOT / "docs" / "generate_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.udp
def test_the_reference_is_what_the_code_says(generator):
    page = (ROOT / "docs" / "reference.md").read_text()
    assert generator.generate() == page, "run python docs/generate_reference.py"


@pytest.mark.udp
def test_every_counter_has_a_meaning_and_every_meaning_a_counter(generator):
    there = {name for stack in generator.STACKS for name in generator.status_of(stack)}
    meant = {*generator.MEANINGS, *(name for name, _ in generator.counted())}
    assert there - meant == set() and generator.MEANINGS.keys() - there == set()


def test_a_field_has_the_comments_above_beside_and_below_it_and_its_heading(generator):
    """A comment that a blank line or code parts from a field is not the field's."""
    source = """class Fields:
    # ------------------------------------------------------------------------------ the first
    # Comment of nothing.

    # Above, on
    # two lines.
    above: int = 0
    beside: int = 0     # beside
    below: int = 0      # beside, and
                        # below
    bare: Annotated[int, Meta(ge=1)] = 0
    # ------------------------------------------------------------------------------ the second
    last: str = ""
"""
    assert list(generator.fields(source)) == [
        ("above", "the first", "Above, on two lines."), ("beside", "the first", "beside"),
        ("below", "the first", "beside, and below"), ("bare", "the first", ""),
        ("last", "the second", "")]
