"""The page on the wire format agrees with the recorded datagrams."""

import re
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "wire-format.md").read_text()
LINES = (ROOT / "tests" / "transcripts" / "datagrams.tsv").read_text().splitlines()
RECORDED = {name: bytes.fromhex(data) for name, _, data in (line.split("\t") for line in LINES)}
ROWS = re.findall(r"^\| (\d+) \| `(\w+)` \| [\w ]+ \| (.*) \|$", PAGE, re.MULTILINE)
HEADER, CHECK = 32, slice(24, 32)


def test_the_table_has_each_kind_with_its_number():
    said = {name: int(number) for number, name, _ in ROWS}
    assert said == {name: data[3] for name, data in RECORDED.items()}


@pytest.mark.parametrize(("name", "body"), [row[1:] for row in ROWS if row[2].startswith("`")])
def test_a_control_datagram_has_as_many_fields_as_the_page_says(name, body):
    always = re.findall(r"`(\w+)`", body.partition(", and ")[0])
    assert len(msgspec.msgpack.decode(RECORDED[name][HEADER:])) == len(always)


@pytest.mark.parametrize("name", RECORDED)
def test_the_check_on_the_page_is_that_of_the_wire(name):
    code = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]
    program = {}
    exec(code, program)
    assert program["check"](RECORDED[name]) == int.from_bytes(RECORDED[name][CHECK], "little")


def test_the_example_is_a_recorded_datagram():
    lines = re.findall(r"^    ((?:[0-9a-f]{2} {1,2})+)", PAGE, re.MULTILINE)
    assert bytes.fromhex("".join("".join(lines).split())) == RECORDED["data"]
