"""What Spark costs a campaign: the same runs on the same cores by a pool of processes,
in turns.

What it holds still: a group of three with a steady load of 0.3 simulated seconds at
nine combinations of capacity and interval, 24 seeds of each (6 when it is only run to
see that it works), 5 % loss, two cores. The peer is multiprocessing.Pool, which hands
out eight runs at a time and keeps nothing; a campaign writes its rows to disk, and
bounds the time of every run. Both have started and warmed up before. Run it with
--benchmark-enable -s; the ratio is the median of those of neighbours.
"""

import multiprocessing
import statistics
from pathlib import Path
from time import perf_counter

from ringcast.campaign.jobs import CONF, Campaign
from ringcast.campaign.results import Results
from ringcast.campaign.runs import plan
from ringcast.sim.runs.plan import Settings
from ringcast.sim.runs.run import simulate
from ringcast.spark import session

ROUNDS = 3
CORES = 2


def one(run):
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
            for name, carry_out in (("pool", lambda: pool.map(one, runs, chunksize=8)),
                                    ("spark", lambda: by_spark(runs))):
                began = perf_counter()
                carry_out()
                taken[name].append(perf_counter() - began)

        pool.map(one, runs[:18], chunksize=1)
        by_spark(runs[:18])
        benchmark.pedantic(in_turns, rounds=ROUNDS)
    ratio = statistics.median(pool / spark for pool, spark in zip(*taken.values(), strict=True))
    benchmark.extra_info.update(efficiency=round(ratio, 3))
    print(f"\n{len(runs)} runs: pool {statistics.median(taken['pool']):.1f} s, campaign {statistics.median(taken['spark']):.1f} s, "
          f"efficiency {ratio:.2f}")
