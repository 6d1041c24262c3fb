"""`ringcast simulate`: run whole groups in a simulated network, one for each seed, on
all cores. A failure is printed with the command that replays it."""

import inspect
import multiprocessing
import os
import threading
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import msgspec
import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from ringcast.cli import campaign
from ringcast.cli.app import app
from ringcast.cli.interrupts import held_back
from ringcast.cli.options import Conf, Master, Settings as Options, console, path, settings
from ringcast.errors import ConfigError
from ringcast.sim.runs.draw import draw
from ringcast.sim.runs.measure import Measured
from ringcast.sim.runs.plan import listed
from ringcast.sim.runs.replay import DEFAULTS, replay
from ringcast.sim.runs.run import Outcome, Run, shortest_prefix, simulate
from ringcast.sim.runs.settings import Settings, pick

SEEDS = 1000
CHUNK = 8       # seeds that a worker takes at a time
SHRUNK = 20     # failures that are cut to their shortest prefix; the others are listed as they are
AXES = {"loss": float, "members": int}  # settings that may have several values in a campaign


class Several(tuple[Any, ...]):
    """The values of one option, given as a list with commas."""


def several(kind: Callable[[str], Any]) -> Callable[[str], Several]:
    """Return a parser of lists of such values."""
    def parse(text: str) -> Several:
        try:
            return Several(kind(value) for value in text.split(","))
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not a number, nor several with commas between "
                                     "them.") from None

    return parse


def only(values: Several | None, name: str) -> Any:
    """Return the one value of an option. Raise ConfigError for several values, which
    only a campaign takes."""
    if values is not None and len(values) > 1:
        raise ConfigError(f"--{name} has several values, which is for a campaign; add --spark, "
                          "or give one")
    return values[0] if values else None


def setting(name: str, hint: Any) -> inspect.Parameter:
    """Return the option of the command for a field of Settings."""
    kind, text = get_args(hint)
    details: dict[str, Any] = {}
    if name in AXES:
        kind, number = Several | None, AXES[name]
        details = {"parser": several(number), "metavar": {int: "INTEGER", float: "FLOAT"}[number]}
    option = typer.Option(help=text.meaning, show_default=text.default, **details)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY,
                             default=getattr(DEFAULTS, name), annotation=Annotated[kind, option])


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each field of Settings, behind --trace."""
    hints = get_type_hints(Settings, include_extras=True)
    options = [setting(name, hint) for name, hint in hints.items() if name != "options"]
    own = list(inspect.signature(command).parameters.values())[:-1]     # without **given
    place = [each.name for each in own].index("trace") + 1
    signature = inspect.Signature([*own[:place], *options, *own[place:]])
    command.__signature__ = signature           # type: ignore[attr-defined]
    command.__annotations__ |= {each.name: each.annotation for each in options}
    return command


@app.command("simulate")
@with_settings
def simulate_command(
    *,
    seeds: Annotated[int | None, typer.Option(
        help="How many runs; with --spark, of each combination.",
        show_default=f"{SEEDS}; with --spark {campaign.SEEDS}")] = None,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    seed: Annotated[int | None, typer.Option(
        help="Run this seed alone and show what happens in it.")] = None,
    actions: Annotated[int | None, typer.Option(
        help="With --seed: perform only the first so many actions of its plan.")] = None,
    trace: Annotated[Path | None, typer.Option(
        parser=path, metavar="DIR",
        help="With --seed: write the events of the run to this directory, for ringcast "
             "audit.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes.",
                                                show_default="one for each core")] = None,
    spark: Annotated[bool, typer.Option(
        "--spark", help="A campaign on Spark: measure every combination of --loss, --members, "
                        "--set capacity= and --set xmit_interval=, each with several values, as "
                        "in --loss 0,0.01.")] = False,
    results: Annotated[Path | None, typer.Option(
        parser=path, help="With --spark: keep a row for each run in this folder, as Parquet. A run "
                          "that has a row already is not repeated.")] = None,
    report: Annotated[Path | None, typer.Option(
        parser=path, help="With --spark: write the answer to this HTML page, with "
                          "heat-maps.")] = None,
    limit: Annotated[float | None, typer.Option(
        help="With --spark: real seconds that a run may take. A longer one is ended and reported.",
        show_default=f"{campaign.LIMIT:g}")] = None,
    master: Master = None,
    conf: Conf = None,
    options: Options = None,
    **given: Any,
) -> None:
    """Run groups in a simulated network, and check after every event that no promise is
    broken.

    Each seed draws a group, its windows and intervals, its load, and its faults:
    members die at single steps of an agreement, and groups come apart and become one
    again. What you give here is not drawn, but the same for all seeds. The same seed
    with the same options is the same run, bit for bit. After the faults the network
    heals, and all that is owed must happen within a stated time. Exit status 1 if a run
    failed. Each failure is listed with the shortest prefix of its plan that still
    fails, and with the command that replays it.

    With --spark, runs with a steady load are spread over the cores of this machine or a
    cluster, for every combination of loss, group size, capacity and xmit_interval. The
    answer says which capacity and interval to take for each loss and group size.
    """
    axes = {name: given.pop(name) for name in AXES}
    fixed = Settings(**given)
    seeds = int(pick(seeds, campaign.SEEDS if spark else SEEDS))
    if seeds < 1:
        raise ConfigError(f"--seeds is {seeds}; at least one is needed")
    if workers is not None and workers < 1:
        raise ConfigError(f"--workers is {workers}; at least one is needed")
    if spark:
        if seed is not None or actions is not None or trace is not None:
            raise ConfigError("--seed, --actions and --trace are for one run, and --spark is for "
                              "many; leave one of them out")
        fixed, axes = campaign.split_axes(fixed, settings(options), **axes)
        if workers is not None and master is not None:
            raise ConfigError("--workers is for this machine, and --master names another place to "
                              "run; leave one of them out")
        master = f"local[{workers}]" if workers else master
        raise typer.Exit(campaign.run(
            fixed, axes, range(first, first + seeds), master=master, conf=settings(conf, "--conf"),
            results=results, report=report, limit=pick(limit, campaign.LIMIT)))
    for name, value in {"results": results, "report": report, "limit": limit, "master": master,
                        "conf": conf}.items():
        if value is not None:
            raise ConfigError(f"--{name} is for a campaign; add --spark")
    fixed = msgspec.structs.replace(fixed, options=settings(options),
                                    **{name: only(values, name) for name, values in axes.items()})
    fixed.check()
    if actions is not None and actions < 0:
        raise ConfigError(f"--actions is {actions}; it is a number of actions, 0 or more")
    if seed is not None:
        raise typer.Exit(show_one(seed, fixed, actions, trace))
    if actions is not None or trace is not None:
        raise ConfigError("--actions and --trace are for one run; add --seed N")
    workers = workers or len(os.sched_getaffinity(0))
    raise typer.Exit(run_all(range(first, first + seeds), fixed, workers))


# ------------------------------------------------------------------------------------------ one run

def show_one(seed: int, fixed: Settings, actions: int | None, trace: Path | None) -> int:
    """Run one seed and print what happened in it; return the exit status."""
    plan = draw(seed, fixed)
    run = Run(plan, actions)
    drawn = " ".join(f"{name}={value}" for name, value in plan.options.items())
    print(f"seed {seed}: {len(plan.names)} members, {drawn}")
    rates = " ".join(f"{name}={value:.3g}" for name, value in plan.network.items()
                     if name != "delay")
    shortest, longest = plan.network["delay"]
    print(f"network: {rates} delay={shortest / 1e6:g}..{longest / 1e6:g} ms")
    print(listed(run.actions))
    outcome = traced(run, trace) if trace else run.outcome()
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


def traced(run: Run, directory: Path) -> Outcome:
    """Run with a trace, and return the outcome."""
    from ringcast.sim.trace import Trace  # needs pyarrow, which the rest does not

    with Trace(run.cluster, directory) as trace:
        outcome = run.outcome()
    print(f"{trace.num_events} events in {directory}")
    return outcome


# ---------------------------------------------------------------------------------------- many runs

def run_all(seeds: range, fixed: Settings, workers: int) -> int:
    """Run the seeds, list the failures, and print sums; return the exit status."""
    total, failures = Counter[str](), list[Outcome]()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn(), TimeRemainingColumn())
    with (Progress(*columns, console=console) as progress,
          closing(outcomes(seeds, fixed, workers)) as coming):
        task = progress.add_task("simulated", total=len(seeds))
        for outcome in coming:
            progress.advance(task)
            add_up(total, outcome)
            if outcome.check:
                if len(failures) < SHRUNK:
                    outcome = shortest_prefix(outcome.seed, fixed, outcome)
                failures.append(outcome)
                command = replay(outcome.seed, fixed, outcome.actions)
                progress.console.print(f"seed {outcome.seed} FAILED  {outcome.sentence}\n"
                                       f"    replay: {command}",
                                       soft_wrap=True, highlight=False, markup=False)
    show_sum(total)
    for outcome in sorted(failures, key=lambda each: each.seed):
        print(f"FAILED  {outcome.sentence}\n        {replay(outcome.seed, fixed, outcome.actions)}")
    if not failures:
        print(f"no promise was broken in {len(seeds):,} runs")
    return int(bool(failures))


def outcomes(seeds: range, fixed: Settings, workers: int) -> Generator[Outcome]:
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
                        running.add(pool.submit(run_some, portion, fixed))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield from future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
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


def run_some(seeds: range, fixed: Settings) -> list[Outcome]:
    """Run these seeds in a worker."""
    return [simulate(seed, fixed) for seed in seeds]


def add_up(total: Counter[str], outcome: Outcome) -> None:
    """Add an outcome to the sums."""
    total.update(outcome.counters)
    total.update(runs=1, failed=bool(outcome.check), void=outcome.is_void,
                 deliveries=outcome.deliveries, events=outcome.events,
                 simulated=round(outcome.simulated * 1e6), cpu=round(outcome.cpu * 1e6))


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
    table = Table(show_header=False, box=None)
    for name, text in rows.items():
        table.add_row(name, text)
    Console(width=160).print(table)
