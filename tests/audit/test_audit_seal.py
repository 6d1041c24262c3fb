"""A damaged part of a trace is reported, and never read as other rows."""

import random

import pytest
from audit_help import Group
from pyarrow import parquet

from ringcast.audit.files import fault_of
from ringcast.trace.schema import SCHEMA

FLIPS = 600


@pytest.fixture
def part(tmp_path):
    Group("sealed").write(tmp_path)
    return next(tmp_path.glob("sealed-B*/*.parquet"))


def rows(path):
    return parquet.read_table(path).cast(SCHEMA).to_pylist()


def test_a_flipped_bit_is_reported_or_changes_no_row(part):
    whole, before = part.read_bytes(), rows(part)
    rng = random.Random(16)
    reported = 0
    for bit in rng.sample(range(8 * len(whole)), FLIPS):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        part.write_bytes(data)
        if fault_of(part) is not None:
            reported += 1
        else:
            assert rows(part) == before, f"bit {bit} of {8 * len(whole)}: other rows, unreported"
    assert reported > 0.99 * FLIPS


def test_bytes_that_were_overwritten_are_reported_wherever_they_are(part):
    whole = part.read_bytes()
    for at in range(0, len(whole), 97):
        data = bytearray(whole)
        data[at:at + 64] = bytes(len(data[at:at + 64]))
        part.write_bytes(data)
        assert fault_of(part) is not None, f"zeros at {at} of {len(whole)}"


def test_a_missing_seal_is_reported(part):
    whole = part.read_bytes()
    at = whole.rindex(b"RCRC")
    part.write_bytes(whole[:at] + whole[at + 8:])
    assert rows(part) and fault_of(part) == "is damaged (its checksum is gone)"


def test_a_sealed_part_is_valid_parquet_with_page_checksums(part):
    checked = parquet.read_table(part, page_checksum_verification=True)
    assert rows(part) == checked.cast(SCHEMA).to_pylist()
    assert parquet.ParquetFile(part).metadata.num_rows == len(rows(part)) > 20
