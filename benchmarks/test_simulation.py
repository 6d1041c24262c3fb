"""How fast a simulated group runs on one core: deliveries and simulated seconds in a
CPU second.

Held still: five members, 5,000 messages of all members together, a fifth of all
datagrams lost, the faults that the seeds draw. The checkers run after every event, as
always. `mixed` draws windows and intervals too, down to windows of one message; `usual`
has windows of 1,000 and an interval of 10 ms. Run it with --benchmark-enable -s to see
the figures.
"""

import statistics

import pytest

from ringcast.sim.runs.run import simulate
from ringcast.sim.runs.settings import Settings

GROUP = {"members": 5, "messages": 5000, "loss": 0.2}
USUAL = {"capacity": 1000, "xmit_interval": 10, "ack_threshold": 100, "max_bytes": 8 << 20,
         "max_bundle_size": 60_000}


@pytest.mark.parametrize(("name", "settings"), [
    ("mixed", Settings(**GROUP)), ("usual", Settings(**GROUP, options=USUAL))])
def test_simulated_seeds(benchmark, name, settings):
    runs = []

    def five_seeds():
        outcomes = [simulate(seed, settings) for seed in range(5)]
        assert not any(outcome.check for outcome in outcomes)
        cpu = sum(outcome.cpu for outcome in outcomes)
        runs.append((sum(outcome.deliveries for outcome in outcomes) / cpu,
                     sum(outcome.simulated for outcome in outcomes) / cpu))

    benchmark.pedantic(five_seeds, rounds=5, warmup_rounds=1)
    deliveries, seconds = (statistics.median(column) for column in zip(*runs, strict=True))
    benchmark.extra_info.update(deliveries_per_cpu_second=round(deliveries),
                                simulated_seconds_per_cpu_second=round(seconds))
    print(f"\n{name}: {deliveries:,.0f} deliveries and {seconds:,.0f} simulated seconds "
          "in a CPU second")
