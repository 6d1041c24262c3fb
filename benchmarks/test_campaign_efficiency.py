"""What Spark costs a campaign: the same runs on the same cores by a pool of processes,
in turns.

Held still: a group of three with a steady load of 0.3 simulated seconds at nine
combinations of capacity and interval, 24 seeds of each (6 without --benchmark-enable),
5 % loss, two cores. The peer is multiprocessing.Pool, which hands out eight runs at a
time and keeps nothing. A campaign writes its rows to disk, and bounds the time of every
run. Both have started and warmed up before. Run it with --benchmark-enable -s. The
ratio is the median of those of neighbours.
"""

import multiprocessing
import statistics
from pathlib import Path
from time import perf_counter

from ringcast.campaign.jobs import CONF, Campaign
from ringcast.campaign.results import Results
from ringcast.campaign.runs import plan
from ringcast.sim.runs.run import simulate
from ringcast.sim.runs.settings import Settings
from ringcast.spark import session

ROUNDS = 3
CORES = 2


def run_one(run):
    return simulate(run.seed, run.settings).fingerprint


def test_campaign_beside_a_pool(benchmark, tmp_path):
    runs = plan(Settings(duration=0.3), {"loss": [0.05]}, range(24 if benchmark.enabled else 6))
    spark = session("campaign benchmark", master=f"local[{CORES}]", conf=CONF)
    folders = iter(range(100))
    taken = {"pool": [], "spark": []}

    def by_spark(runs):
        Campaign(spark, runs, Results(Path(tmp_path, str(next(folders))))).run()

    with multiprocessing.get_context("spawn").Pool(CORES) as pool:
        def in_turns():
            for name, act in (("pool", lambda: pool.map(run_one, runs, chunksize=8)),
                              ("spark", lambda: by_spark(runs))):
                began = perf_counter()
                act()
                taken[name].append(perf_counter() - began)

        pool.map(run_one, runs[:18], chunksize=1)
        by_spark(runs[:18])
        benchmark.pedantic(in_turns, rounds=ROUNDS)
    ratio = statistics.median(pool / spark for pool, spark in zip(*taken.values(), strict=True))
    benchmark.extra_info.update(efficiency=round(ratio, 3))
    pool, spark = (statistics.median(seconds) for seconds in taken.values())
    print(f"\n{len(runs)} runs: pool {pool:.1f} s, campaign {spark:.1f} s, efficiency {ratio:.2f}")
