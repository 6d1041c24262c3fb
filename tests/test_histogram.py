"""Histograms of latencies: which bucket a latency is in, and how true a percentile
is."""

import math
from collections import Counter

import pyarrow as pa
import pytest

from ringcast.histogram import UNKNOWN, Histogram, count_latencies, upper_end


def test_the_buckets_are_those_of_a_plain_count():
    latencies = [1, 2, 3, 999, 1000, 1001, 123_456, 10**9, 0]
    plain = Counter(math.floor(8 * math.log2(max(1, each))) for each in latencies)
    assert count_latencies(pa.array(latencies)) == plain
    assert count_latencies(pa.array([], pa.int64())) == Histogram()


@pytest.mark.parametrize("latency", [1, 77, 1000, 4096, 999_999, 123_456_789])
def test_a_percentile_is_never_too_low_and_at_most_9_percent_too_high(latency):
    counted = count_latencies(pa.array([latency] * 99 + [10**12]))
    assert latency <= counted.percentile(0.99) <= math.ceil(latency * 1.0906) + 1
    assert counted.percentile(1.0) >= 10**12
    assert all(upper_end(each) < upper_end(each + 8) for each in range(300))


def test_a_percentile_is_of_the_latencies_that_are_known():
    known = Histogram({8: 1, 16: 1})
    assert known.percentile(0.5) == upper_end(8)
    assert Histogram({UNKNOWN: 98, **known}).percentile(0.5) == upper_end(8)
    assert Histogram().percentile(0.5) is Histogram({UNKNOWN: 5}).percentile(0.5) is None


def test_histograms_add_up_bucket_by_bucket():
    one, other = count_latencies(pa.array([5, 7, 900])), count_latencies(pa.array([6, 901]))
    assert Counter(one) + Counter(other) == count_latencies(pa.array([5, 7, 900, 6, 901]))
