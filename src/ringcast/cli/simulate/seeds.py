"""Run seeds: one, and show what happens in it, or many on all cores, and list the
failures."""

import multiprocessing
import os
import threading
from collections import Counter
from collections.abc import Generator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ringcast.cli.interrupts import held_back
from ringcast.cli.options import print_json, typed
from ringcast.cli.screen import console, lines, page
from ringcast.sim.runs.draw import draw
from ringcast.sim.runs.faults import SECOND
from ringcast.sim.runs.lasting import LASTS
from ringcast.sim.runs.measure import Measured
from ringcast.sim.runs.mixed import Mixed
from ringcast.sim.runs.plan import listed, listed_links
from ringcast.sim.runs.replay import replay
from ringcast.sim.runs.run import Outcome, Run, shortest_prefix, simulate
from ringcast.sim.runs.settings import Settings
from ringcast.units import counted

if TYPE_CHECKING:
    from ringcast.cli.simulate.audits import Audits

CHUNK = 8       # seeds that a worker takes at a time
AUDIT = "audit"     # the check that an audit makes
SHRUNK = 20     # failures that are cut to their shortest prefix; the others are listed as they are

# ------------------------------------------------------------------------------------------ one run

def show_one(seed: int, fixed: Settings, actions: int | None, trace: Path | None,
             as_json: bool = False, audits: "Audits | None" = None) -> int:
    """Run one seed and print what happened in it; return the exit status."""
    plan = draw(seed, fixed)
    run = Run(plan, actions)
    if as_json:
        outcome = audits.run(run, trace) if audits else perform(run, trace)
        print_json({"run": msgspec.to_builtins(outcome)
                    | {"replay": repeating(outcome, fixed, actions)}})
        return int(bool(outcome.check))
    if isinstance(fixed, Mixed):
        print(f"the same as {replay(seed, fixed, actions)}")
    drawn = " ".join(f"{name}={value}" for name, value in plan.options.items())
    print(f"seed {seed}: {counted(len(plan.names), 'member')}, {drawn}")
    rates = " ".join(f"{name}={value:.3g}" for name, value in plan.network.items()
                     if name != "delay")
    shortest, longest = plan.network["delay"]
    print(f"network: {rates} delay={shortest / 1e6:g}..{longest / 1e6:g} ms")
    print(listed(run.actions))
    if plan.lasting is not None:
        print(f"then for {LASTS // SECOND} s cut {listed_links(plan.lasting)}".rstrip())
    outcome = audits.run(run, trace) if audits else perform(run, trace)
    if trace:
        print(f"the trace is in {typed(trace)}")
    print(f"{outcome.deliveries} deliveries, {outcome.events} events, {outcome.simulated:.3f} "
          f"simulated seconds, fingerprint {outcome.fingerprint:08x}")
    if outcome.measured is not None:
        show_measured(outcome.measured)
    print(f"FAILED  {outcome.sentence}\n{outcome.traceback}" if outcome.check
          else "no promise was broken")
    return int(bool(outcome.check))


def show_measured(measured: Measured) -> None:
    """Print the figures of a steady load."""
    half, nearly_all = measured.percentile(0.5) / 1e6, measured.percentile(0.99) / 1e6
    print(f"{measured.throughput:,.0f} messages/s at the slowest receiver, half of them within "
          f"{half:.2f} ms, 99 % within {nearly_all:.2f} ms, overhead {measured.overhead:.1%}, "
          f"senders blocked for {measured.blocked:.3f} s of {measured.seconds:g} s")


def perform(run: Run, trace: Path | None) -> Outcome:
    """Run, and write a trace if there is a folder for it."""
    if trace is None:
        return run.outcome()
    from ringcast.sim.trace import Trace  # needs pyarrow, which the rest does not

    with Trace(run.cluster, trace):
        return run.outcome()


def repeating(outcome: Outcome, fixed: Settings, actions: int | None) -> str:
    """Return the command that repeats a run and finds the same."""
    return replay(outcome.seed, fixed, actions) + (" --audit" if outcome.check == AUDIT else "")


# ---------------------------------------------------------------------------------------- many runs

def run_all(seeds: range, fixed: Settings, workers: int, as_json: bool = False,
            traces: Path | None = None, audits: "Audits | None" = None) -> int:
    """Run the seeds, list the failures, and print sums; return the exit status. If
    there is a folder `traces`, each seed has a trace in a folder of its own there."""
    total, failures = Counter[str](), list[Outcome]()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn(), TimeRemainingColumn())
    with (Progress(*columns, console=console) as progress,
          closing(outcomes(seeds, fixed, workers, traces)) as ended,
          closing(audits.judge_all(ended, workers) if audits else ended) as coming):
        task = progress.add_task("simulated", total=len(seeds))
        for outcome in coming:
            progress.advance(task)
            add_up(total, outcome)
            if outcome.check:
                if len(failures) < SHRUNK:
                    again = audits.simulate if audits and outcome.check == AUDIT else simulate
                    outcome = shortest_prefix(outcome.seed, fixed, outcome, again)
                failures.append(outcome)
                command = repeating(outcome, fixed, outcome.actions)
                if as_json:
                    print_json({"failure": {"seed": outcome.seed, "check": outcome.check,
                                            "sentence": outcome.sentence, "replay": command}})
                    continue
                progress.console.print(f"seed {outcome.seed} FAILED  {outcome.sentence}\n"
                                       f"    replay: {command}",
                                       soft_wrap=True, highlight=False, markup=False)
    if as_json:
        print_json({"sum": summed(total)})
        return int(bool(failures))
    show_sum(total)
    for outcome in sorted(failures, key=lambda each: each.seed):
        print(f"FAILED  {outcome.sentence}\n        {repeating(outcome, fixed, outcome.actions)}")
    if not failures:
        print(f"no promise was broken in {len(seeds):,} runs")
    return int(bool(failures))


def outcomes(seeds: range, fixed: Settings, workers: int,
             traces: Path | None) -> Generator[Outcome]:
    """Yield the outcomes of all seeds as they come. A worker takes few seeds at a time,
    so that no core is idle at the end. If it is closed, its workers are killed."""
    portions = iter([seeds[start:start + CHUNK] for start in range(0, len(seeds), CHUNK)])
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"),
                             initializer=end_with_parent) as pool:
        running: set[Future[list[Outcome]]] = set()
        try:
            while True:
                while len(running) < 3 * workers and (portion := next(portions, None)) is not None:
                    with held_back():
                        running.add(pool.submit(run_some, portion, fixed, traces))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield from future.result()
        except BaseException:
            # Then the pool gives up what waits, and it does not take long to wait for
            # it: Python must not end while a thread of it closes what Python uses then.
            for worker in multiprocessing.active_children():
                worker.kill()
            raise


def end_with_parent() -> None:
    """End this worker when its parent dies. Else it would wait for ever if the parent
    was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def run_some(seeds: range, fixed: Settings, traces: Path | None) -> list[Outcome]:
    """Run these seeds in a worker."""
    return [perform(Run(draw(seed, fixed)), trace_of(seed, traces)) for seed in seeds]


def trace_of(seed: int, traces: Path | None) -> Path | None:
    """Return the folder for the trace of a seed, if there are traces."""
    return None if traces is None else traces / str(seed)


def add_up(total: Counter[str], outcome: Outcome) -> None:
    """Add an outcome to the sums."""
    total.update(outcome.counters)
    total.update(runs=1, failed=bool(outcome.check), void=outcome.is_void,
                 deliveries=outcome.deliveries, events=outcome.events,
                 simulated=round(outcome.simulated * 1e6), cpu=round(outcome.cpu * 1e6))


def summed(total: Counter[str]) -> dict[str, Any]:
    """Return the sums, with times in seconds."""
    return dict(total) | {name: total[name] / 1e6 for name in ("simulated", "cpu")}


def show_sum(total: Counter[str]) -> None:
    """Print how much was run, how fast, and what happened."""
    cpu, simulated = max(total["cpu"], 1) / 1e6, total["simulated"] / 1e6
    faults = ("lost", "cut", "duplicated", "reordered", "damaged", "clogged", "overflows", "unsent")
    rows = {
        "runs": f"{total['runs']:,}, of which {total['failed']:,} failed and {total['void']:,} had "
                "next to no traffic",
        "simulated": f"{simulated:,.0f} s, {total['events']:,} events, "
                     f"{total['deliveries']:,} deliveries",
        "on one core": f"{total['deliveries'] / cpu:,.0f} deliveries/s, {simulated / cpu:,.0f} "
                       f"simulated s in a CPU second ({cpu:,.1f} CPU s in all)",
        "network": ", ".join(f"{total['num_' + name]:,} {name}" for name in faults),
        "members": f"{total['num_incarnations']:,} incarnations, {total['num_views']:,} views, "
                   f"{total['num_left']:,} left, {total['num_suspected']:,} suspected, "
                   f"{total['num_blockings']:,} blockings",
        "repair": f"{total['xmit_reqs_sent']:,} requests, {total['xmit_rsps_sent']:,} messages "
                  f"repeated, {total['num_duplicates']:,} duplicates, "
                  f"{total['num_out_of_window']:,} beyond the window",
    }
    page().print(lines(list(rows.items())))
