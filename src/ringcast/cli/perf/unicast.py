"""`ringcast perf --unicast`: the cost of a message to one member, compared with
multicast and with bare sockets.

Rows that are compared run one after the other in every turn, and a ratio is the median
of the ratios of such neighbours, so a noisy minute affects both sides.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ringcast.cli.perf.plan import PerfPlan
from ringcast.cli.perf.round_trip import RoundTripPlan
from ringcast.cli.perf.run import medians
from ringcast.cli.perf.table import COLUMNS, CORES, LEGEND, Row, Section, number, ratio, row_of

STACKS = ("mcast-udp", "inproc")        # by default
ROUND_TRIP_SIZE = "100"                 # bytes, by default

THROUGHPUT_COLUMNS = [*COLUMNS[:2], number("unicast by\nmulticast", "to_multicast", "{:.2f}"),
                      *COLUMNS[2:]]
THROUGHPUT_LEGEND = """\
unicast: S sends each message to R1 alone, with send(payload, dest); in the other rows to the
group, in which only R1 receives. unicast by multicast: messages delivered a second, divided by
those of the row below; the aim is 1 or more. inproc: both members are in one process, and the CPU
time is that of both."""
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
ROUND_TRIP_LEGEND = """\
One message at a time: A sends it to B, which answers from the thread that iterates. A measures
the time from before send() until it has the answer. round trips: in a run, after a warm-up. p50,
p99, p99.9: microseconds within which that share of them ended (p99.9 of less than 1,000 is the
longest). UDP: two processes. inproc: both in one. bare UDP sockets: two processes of plain
Python, each with a blocking socket, without retransmission and order; nothing is lost there.
cores used: CPU time of each process by elapsed time. cores of others: CPU time of other processes
on the machine. If that is large, the two bare processes share a core and wake each other in a
fraction of the time, and the ratio says little."""


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
    return {"rows": Section(THROUGHPUT_COLUMNS, throughput, f"{THROUGHPUT_LEGEND}\n{LEGEND}"),
            "round_trips": Section(ROUND_TRIP_COLUMNS, round_trips, ROUND_TRIP_LEGEND)}


def throughput_row(plan: PerfPlan, runs: Sequence[Row], multicast: Sequence[Row]) -> Row:
    to_multicast = ratio("delivered_per_second", runs, multicast) if plan.unicast else None
    return {**row_of(plan, runs), "unicast": plan.unicast, "to_multicast": to_multicast}


def round_trip_row(plan: RoundTripPlan, runs: Sequence[Row], bare: Sequence[Row]) -> Row:
    to_bare = None if plan.bare else ratio("p50_us", runs, bare)
    return {"title": plan.title, "over": plan.over, "size": plan.size, "loss": plan.loss,
            **medians(runs), "to_bare": to_bare, "all_runs": list(runs)}
