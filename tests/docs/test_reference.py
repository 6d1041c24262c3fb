"""The reference is what the code says."""

import importlib.util
from collections import Counter
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from ringcast.status import (
    ALL,
    InprocStatus,
    MulticastStatus,
    Section,
    Status,
    TcpStatus,
    UdpStatus,
    numbers,
)

ROOT = Path(__file__).parents[2]
OF_STACKS = (UdpStatus, TcpStatus, InprocStatus, MulticastStatus)   # a member has one of each


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


@pytest.mark.parametrize("section", ALL)
def test_every_number_of_a_status_says_its_unit_its_meaning_and_what_to_think(section):
    for name, number in numbers(section).items():
        assert number.unit and number.meaning and number.sign.endswith("."), name


def test_a_name_is_declared_once_but_for_transports_which_exclude_each_other():
    names = Counter(name for section in ALL if not issubclass(section, OF_STACKS)
                    for name in section.__struct_fields__)
    assert set(names.values()) == {1}


def test_every_section_of_a_status_has_a_table(generator):
    hints = get_type_hints(Status).values()
    named = {each for hint in hints for each in get_args(hint) or (hint,)
             if isinstance(each, type) and issubclass(each, Section)}
    assert named == set(ALL)


def test_the_type_of_the_options_is_what_config_py_says(generator):
    types = (ROOT / "src" / "ringcast" / "options.py").read_text()
    assert generator.generate_types() == types, "run python docs/generate_reference.py"


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
