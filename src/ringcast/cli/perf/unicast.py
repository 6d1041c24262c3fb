"""`ringcast perf --unicast`: the cost of a message to one member, compared with
multicast and with bare sockets.

Rows that are compared run one after the other in every turn, and a ratio is the median
of the ratios of such neighbours, so a noisy minute affects both sides.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ringcast.cli.perf.legends import ROUND_TRIPS, THROUGHPUT, UNICAST
from ringcast.cli.perf.plan import PerfPlan
from ringcast.cli.perf.round_trip import RoundTripPlan
from ringcast.cli.perf.run import medians
from ringcast.cli.perf.table import COLUMNS, CORES, Row, Section, number, ratio, row_of

THROUGHPUT_COLUMNS = [*COLUMNS[:2], number("unicast by\nmulticast", "to_multicast", "{:.2f}"),
                      *COLUMNS[2:]]
ROUND_TRIP_COLUMNS = [
    number("round trips", "round_trips"),
    number("p50 us", "p50_us", "{:,.1f}"),
    number("p99 us", "p99_us", "{:,.1f}"),
    number("p99.9 us", "p999_us", "{:,.1f}"),
    number("p50 by\nbare p50", "to_bare", "{:.2f}"),
    number("retransmitted", "retransmitted"),
    CORES,
    number("cores\nof others", "cores_others", "{:.2f}"),
]


def plans_of(stacks: Sequence[str], sizes: Sequence[int], round_trip_sizes: Sequence[int],
             loss: float, common: dict[str, Any]) -> list[PerfPlan]:
    """Return the plans of all rows, in the order of a turn."""
    return [
        *(PerfPlan(members=2, senders=1, size=size, stack=stack, unicast=unicast, loss=loss,
                   **common)
          for size in sizes for stack in stacks for unicast in (True, False)),
        *(RoundTripPlan(size=size, stack=stack, bare=bare, loss=0.0 if bare else loss, **common)
          for size in round_trip_sizes
          for stack, bare in [(stacks[0], False), ("mcast-udp", True),
                              *((stack, False) for stack in stacks[1:])])]


def sections(plans: Sequence[PerfPlan], results: Sequence[Sequence[Row]]) -> dict[str, Section]:
    """Return the two tables, from the runs of each plan."""
    def runs_of(plan: PerfPlan) -> Sequence[Row]:
        return results[plans.index(plan)]

    throughput = [throughput_row(plan, runs_of(plan), runs_of(replace(plan, unicast=False)))
                  for plan in plans if not isinstance(plan, RoundTripPlan)]
    round_trips = [round_trip_row(plan, runs_of(plan),
                                  runs_of(replace(plan, bare=True, stack="mcast-udp", loss=0.0)))
                   for plan in plans if isinstance(plan, RoundTripPlan)]
    return {"rows": Section(THROUGHPUT_COLUMNS, throughput, f"{UNICAST}\n{THROUGHPUT}"),
            "round_trips": Section(ROUND_TRIP_COLUMNS, round_trips, ROUND_TRIPS)}


def throughput_row(plan: PerfPlan, runs: Sequence[Row], multicast: Sequence[Row]) -> Row:
    to_multicast = ratio("delivered_per_second", runs, multicast) if plan.unicast else None
    return {**row_of(plan, runs), "unicast": plan.unicast, "to_multicast": to_multicast}


def round_trip_row(plan: RoundTripPlan, runs: Sequence[Row], bare: Sequence[Row]) -> Row:
    to_bare = None if plan.bare else ratio("p50_us", runs, bare)
    return {"title": plan.title, "over": plan.over, "size": plan.size, "loss": plan.loss,
            **medians(runs), "to_bare": to_bare, "all_runs": list(runs)}
