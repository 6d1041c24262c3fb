"""A flag is the same bit in Python and in the compiled core."""

import re
from pathlib import Path

from ringcast import Flag
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
