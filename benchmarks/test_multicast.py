"""A group on this machine, end to end: one process sends, one receives, over UDP
multicast on loopback. The naive bundle over TCP takes turns with it. The runs are those
of `ringcast perf`, which checks that everything arrived once and in order.

Held still: two processes, one message a call, default properties, no loss. `pytest
benchmarks --benchmark-enable -s -k multicast`; without --benchmark-enable one short run
that only has to be correct. The larger table is `ringcast perf`.
"""

import random
from statistics import quantiles

import pytest

from ringcast.cli.perf.plan import PerfPlan
from ringcast.cli.perf.run import run_once


def plan(size, naive, enabled):
    return PerfPlan(group="benchmark", members=2, senders=1, size=size, naive=naive, timeout=20,
                    seconds=0.4 if enabled else 0.1,
                    options={"port": random.randrange(20_000, 60_000)})


@pytest.mark.udp
@pytest.mark.parametrize("size", [100, 1000])
def test_multicast_ratio_is_printed_and_never_judged(size, request):
    enabled = request.config.getoption("benchmark_enable")
    pairs = [[run_once(plan(size, naive, enabled))["delivered_per_second"]
              for naive in (False, True)] for _ in range(5 if enabled else 2)]
    rate, _ = sorted(pairs)[len(pairs) // 2]
    ratios = [ours / theirs for ours, theirs in pairs]
    low, middle, high = quantiles(ratios, n=4, method="inclusive")
    print(f"\n{size:5} B  {rate:12,.0f} messages/s at the receiver; {middle:.2f} "
          f"[{low:.2f} - {high:.2f}] times the naive bundle")
