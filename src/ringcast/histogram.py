"""Latencies as counts for each eighth of an octave.

Such histograms add up exactly, over runs, members, slots of time and machines: add the
counts bucket by bucket. A percentile is the upper end of the bucket in which it lies,
so it is at most 9.1 % (2 ** (1/8)) too high and never too low: "99 % within 5 ms" is
read as a promise, and the middle of the bucket would break it half of the time.
"""

import math
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

PER_OCTAVE = 8      # buckets in each doubling of the latency
UNKNOWN = -1        # the bucket of latencies below 0: the clocks of the members are apart


class Histogram(Counter[int]):
    """How many latencies are in each bucket: floor(PER_OCTAVE * log2(nanoseconds))."""

    def percentile(self, share: float) -> int | None:
        """Return the nanoseconds that this share of the known latencies stays below;
        None when none is known."""
        known = sorted((bucket, count) for bucket, count in self.items() if bucket != UNKNOWN)
        wanted, seen = share * sum(count for _, count in known), 0
        for bucket, count in known:
            seen += count
            if seen >= wanted:
                return upper_end(bucket)
        return None


def upper_end(bucket: int) -> int:
    """Return the nanoseconds that every latency in this bucket stays below."""
    return math.ceil(2 ** ((bucket + 1) / PER_OCTAVE))


def count_latencies(latencies: "pa.Array") -> Histogram:
    """Count latencies, in nanoseconds from 0; 0 counts as 1."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not latencies:
        return Histogram()
    octaves = pc.log2(pc.max_element_wise(latencies, 1).cast(pa.float64()))
    counts = pc.value_counts(pc.floor(pc.multiply(octaves, PER_OCTAVE)).cast(pa.int32()))
    pairs = zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)
    return Histogram(dict(sorted(pairs)))
