"""Numbers with units mean the same wherever they are given."""

import pytest

from ringcast.units import counted, parse_count, parse_duration, parse_size


@pytest.mark.parametrize("text, nanoseconds", [
    ("7us", 7_000), ("500ms", 500_000_000), ("60s", 60 * 10**9), ("90m", 5_400 * 10**9),
    ("90min", 5_400 * 10**9), ("1h", 3_600 * 10**9), (" 7 D ", 604_800 * 10**9), ("0s", 0)])
def test_a_duration_is_a_whole_number_with_a_unit(text, nanoseconds):
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize("text, size", [
    ("512", 512), ("1k", 1 << 10), ("2M", 2 << 20), ("20 G", 20 << 30), ("1t", 1 << 40), ("0", 0)])
def test_a_size_is_a_whole_number_of_bytes_or_with_a_unit(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "s", "90", "-1s", "1.5s", "5 weeks", "1 2s", "\u0663s", "1g",
                                  "9" * 5000 + "s"])
def test_what_is_no_duration_is_none(text):
    assert parse_duration(text) is None


@pytest.mark.parametrize("text", ["", "k", "-1", "1.5G", "1e3", "1s", "many"])
def test_what_is_no_size_is_none(text):
    assert parse_size(text) is None


@pytest.mark.parametrize("text, count", [
    ("0", 0), ("9" * 19, 10**19 - 1), ("9" * 20, None), ("", None), ("-1", None), ("1.0", None),
    ("\u0663", None)])
def test_a_count_is_a_whole_number_of_up_to_19_digits(text, count):
    assert parse_count(text) == count


def test_a_fraction_is_exact_where_it_is_allowed():
    assert parse_duration("0.7us", fractions=True) == 700
    assert parse_duration("1.5ms", fractions=True) == 1_500_000
    assert parse_duration("1.ms", fractions=True) is None


def test_one_thing_is_not_counted_as_several():
    assert [counted(number, "message") for number in (0, 1, 2, 1_000)] == [
        "0 messages", "1 message", "2 messages", "1,000 messages"]
