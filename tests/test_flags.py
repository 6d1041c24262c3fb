"""A flag is the same bit in Python and in the compiled core, and users see its name."""

import re
from pathlib import Path

import pytest

from ringcast import Address, Batch, Flag, Message
from ringcast.flags import FRAGMENT

ROOT = Path(__file__).parent.parent


def test_the_compiled_core_has_the_same_bits():
    declared = (ROOT / "ext/ringcast/_core/marks.pxd").read_text()
    found = re.findall(r"^    (\w+) = (\d+)\b", declared, re.MULTILINE)
    bits = {name: int(bit) for name, bit in found}
    flags = {flag.name: flag.value for flag in Flag}
    assert bits["FRAGMENT"] == FRAGMENT == Flag.INCOMPLETE
    assert {name: flags[name] for name in bits.keys() & flags.keys()} == {
        "OOB": bits["OOB"], "DONT_LOOPBACK": bits["DONT_LOOPBACK"]}
    assert bits["TAKEN"] not in flags.values()


A = Address("A", 1)


@pytest.mark.parametrize("made", [Message(A, 3, b"x", None, 3), Batch(A, 3, [b"x"], 1, None, 3),
                                  *Batch(A, 3, [b"x"], 1, None, 3)], ids=repr)
def test_a_message_tells_its_flags_by_name(made):
    assert type(made.flags) is Flag and made.flags == Flag.OOB | Flag.DONT_LOOPBACK
    assert repr(made).endswith(", flags=<Flag.OOB|DONT_LOOPBACK: 3>)")


def test_most_messages_have_no_flag():
    batch = Batch(A, 3, [b"x"])
    for made in (batch, *batch):
        assert type(made.flags) is Flag and not made.flags and "flags" not in repr(made)
