"""`ringcast simulate`: whole groups in a simulated network, one for each seed, on all
cores; a failure comes with its replay."""

import multiprocessing
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Annotated, Any

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
from ringcast.cli.app import Conf, Master, Settings as Options, app, console, path, settings
from ringcast.errors import ConfigError
from ringcast.sim.runs.draw import draw
from ringcast.sim.runs.measure import Measured
from ringcast.sim.runs.plan import listed
from ringcast.sim.runs.replay import replay
from ringcast.sim.runs.run import Outcome, Run, shortest_prefix, simulate
from ringcast.sim.runs.settings import Settings, pick
from ringcast.stacks import NETWORKED

SEEDS = 1000
CHUNK = 8       # seeds that a worker takes at a time
SHRUNK = 20     # failures whose shortest prefix is looked for; the others are listed as they are


class Several(tuple[Any, ...]):
    """The values of one option, given as a list with commas."""


def several(kind: Callable[[str], Any]) -> Callable[[str], Several]:
    """How a list of such values is read."""
    def parse(text: str) -> Several:
        try:
            return Several(kind(value) for value in text.split(","))
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not a number, nor several with commas between them.") from None

    return parse


def only(values: Several | None, name: str) -> Any:
    """The one value of an option; ConfigError when there are several, which only a
    campaign takes."""
    if values is not None and len(values) > 1:
        raise ConfigError(f"--{name} has several values, which is for a campaign; add --spark, or give one")
    return values[0] if values else None


def rate(what: str) -> typer.models.OptionInfo:
    return typer.Option(help=f"Probability that a datagram {what}, for each receiver of it.",
                        show_default="drawn")


def times(what: str) -> typer.models.OptionInfo:
    return typer.Option(help=f"How often in a run {what}.", show_default="drawn")


@app.command("simulate")
def simulate_command(
    seeds: Annotated[int | None, typer.Option(help="How many runs; with --spark, of each combination.",
                                              show_default=f"{SEEDS}; with --spark "
                                                           f"{campaign.SEEDS}")] = None,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    seed: Annotated[int | None, typer.Option(help="Run this seed alone and show what happens in it.")] = None,
    actions: Annotated[int | None, typer.Option(help="With --seed: carry out only the first so many actions of its plan.")] = None,
    trace: Annotated[Path | None, typer.Option(
        parser=path, metavar="DIR", help="With --seed: write the events of the run "
                                         "to this directory, for ringcast audit.")] = None,
    members: Annotated[Several | None, typer.Option(help="Members of the group.", show_default="drawn, 2 to 7", parser=several(int),
                                                    metavar="INTEGER")] = None,
    duration: Annotated[float | None, typer.Option(help="Simulated seconds with load and faults.", show_default="drawn")] = None,
    messages: Annotated[int | None, typer.Option(help="Messages that all members send together.", show_default="drawn")] = None,
    size: Annotated[int | None, typer.Option(help="Bytes of a message, at least.", show_default="drawn")] = None,
    loss: Annotated[Several | None, typer.Option(
        help="Probability that a datagram is lost, for each receiver of it.", show_default="drawn", parser=several(float),
        metavar="FLOAT")] = None,
    burst: Annotated[float | None, rate("begins a spell in which its link loses all")] = None,
    duplicate: Annotated[float | None, rate("arrives twice")] = None,
    reorder: Annotated[float | None, rate("is held back, so that later ones overtake it")] = None,
    corrupt: Annotated[float | None, rate("has bits flipped")] = None,
    truncate: Annotated[float | None, rate("loses its end")] = None,
    delay: Annotated[float | None, typer.Option(help="Longest delay in milliseconds.", show_default="drawn")] = None,
    crashes: Annotated[int | None, times("a member dies; most come back")] = None,
    partitions: Annotated[int | None, times("links are cut, in one direction or both, or clogged")] = None,
    pauses: Annotated[int | None, times("a member stands still for a while")] = None,
    slow: Annotated[int | None, times("a receiver is slow for a while, or a send buffer full")] = None,
    exclusions: Annotated[int | None, times("a member takes another out, alive or dead")] = None,
    leaves: Annotated[int | None, times("a member leaves in good order")] = None,
    jumps: Annotated[int | None, times("a clock jumps ahead")] = None,
    unicast: Annotated[int | None, typer.Option(help="Messages that are sent to single members, all together.",
                                                show_default="drawn")] = None,
    large: Annotated[int | None, typer.Option(help="Messages to everybody that are too large for a datagram.",
                                              show_default="0")] = None,
    splits: Annotated[int | None, times("a member does not see another any more, for messages to single members")] = None,
    stack: Annotated[str, typer.Option(help=f"What the group runs on: {', '.join(NETWORKED)}.")] = "mcast-udp",
    breaks: Annotated[int | None, times("a connection breaks, where the stack has some")] = None,
    returns: Annotated[int | None, times("a member that only sends dies and comes back as the same incarnation")] = None,
    threads: Annotated[int | None, typer.Option(
        help="Threads of each member that send to one destination, and their messages wait for "
             "bundle_delay; 0: each leaves at once.",
        show_default="drawn")] = None,
    joins: Annotated[int | None, times("a member leaves and joins again while others send")] = None,
    mtu: Annotated[int | None, typer.Option(
        help="Bytes of a frame on the wire, and a queue in front of it that overflows; 0: "
             "datagrams travel whole.",
        show_default="drawn")] = None,
    steady: Annotated[float | None, typer.Option(
        help="Measure: each sender has so many messages a simulated second to send, 0: as many as "
             "find room; no fault is drawn.",
        show_default="a drawn load")] = None,
    senders: Annotated[int | None, typer.Option(help="With --steady: how many members send.", show_default="1")] = None,
    bandwidth: Annotated[float | None, typer.Option(help="With --steady: megabytes a second into and out of each member.",
                                                    show_default="125")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes.", show_default="one for each core")] = None,
    spark: Annotated[bool, typer.Option("--spark", help="A campaign on Spark: measure every combination of --loss, --members, --set "
                                        "capacity= and --set xmit_interval=, each with several "
                                        "values, as in --loss 0,0.01.")] = False,
    results: Annotated[Path | None, typer.Option(
        parser=path, help="With --spark: keep a row for each run in this folder, as Parquet; "
                          "what is there already is not run again.")] = None,
    report: Annotated[Path | None, typer.Option(
        parser=path, help="With --spark: write the answer to this HTML page, with heat-maps.")] = None,
    limit: Annotated[float | None, typer.Option(help="With --spark: real seconds that a run may take; then it is ended and reported.",
                                                show_default="300")] = None,
    master: Master = None,
    conf: Conf = None,
    options: Options = None,
) -> None:
    """Run groups in a simulated network, and check after every event that no promise is
    broken.

    Each seed draws a group, its windows and intervals, its load, and its faults; what
    is given here is not drawn but the same for all. The same seed with the same options
    is the same run, bit for bit. After the faults the network heals, and all that is
    owed must happen within a stated number of intervals. Exit status 1 when a run
    failed; each failure is listed with the shortest prefix of its plan that still fails
    and the command that replays it.

    With --spark, runs with a steady load are spread over the cores of this machine or a
    cluster, for every combination of loss, group size, capacity and xmit_interval; the
    answer is which capacity and interval to take for each loss and group size.
    """
    fixed = Settings(duration=duration, messages=messages, size=size, burst=burst,
                     duplicate=duplicate,
                     reorder=reorder, corrupt=corrupt, truncate=truncate, delay=delay,
                     crashes=crashes, partitions=partitions,
                     pauses=pauses, slow=slow, exclusions=exclusions, leaves=leaves, jumps=jumps,
                     unicast=unicast, large=large,
                     splits=splits, stack=stack, breaks=breaks, returns=returns, threads=threads,
                     joins=joins, mtu=mtu,
                     steady=steady, senders=senders, bandwidth=bandwidth)
    seeds = int(pick(seeds, campaign.SEEDS if spark else SEEDS))
    if seeds < 1:
        raise ConfigError(f"--seeds is {seeds}; at least one is needed")
    if workers is not None and workers < 1:
        raise ConfigError(f"--workers is {workers}; at least one is needed")
    if spark:
        if seed is not None or actions is not None or trace is not None:
            raise ConfigError("--seed, --actions and --trace are for one run, and --spark is for many; leave one of them out")
        fixed, axes = campaign.split_axes(fixed, settings(options), loss=loss, members=members)
        if workers is not None and master is not None:
            raise ConfigError("--workers is for this machine, and --master names where else to run; "
                              "leave one of them out")
        master = f"local[{workers}]" if workers else master
        raise typer.Exit(campaign.run(
            fixed, axes, range(first, first + seeds), master=master, conf=settings(conf, "--conf"),
            results=results, report=report, limit=pick(limit, campaign.LIMIT)))
    for name, value in {"results": results, "report": report, "limit": limit, "master": master,
                        "conf": conf}.items():
        if value is not None:
            raise ConfigError(f"--{name} is for a campaign; add --spark")
    fixed = msgspec.structs.replace(fixed, members=only(members, "members"),
                                    loss=only(loss, "loss"), options=settings(options))
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
    """Run one seed and say what it was."""
    plan = draw(seed, fixed)
    run = Run(plan, actions)
    print(f"seed {seed}: {len(plan.names)} members, {' '.join(f'{name}={value}' for name, value in plan.options.items())}")
    print("network:", " ".join(f"{name}={value:.3g}" for name, value in plan.network.items()
                               if name != "delay"),
          "delay={:g}..{:g} ms".format(*(each / 1e6 for each in plan.network["delay"])))
    print(listed(run.actions))
    outcome = traced(run, trace) if trace else run.outcome()
    print(f"{outcome.deliveries} deliveries, {outcome.events} events, {outcome.simulated:.3f} simulated seconds, "
          f"fingerprint {outcome.fingerprint:08x}")
    if outcome.measured is not None:
        show_measured(outcome.measured)
    print(f"FAILED  {outcome.sentence}\n{outcome.traceback}" if outcome.check
          else "no promise was broken")
    return int(bool(outcome.check))


def show_measured(measured: Measured) -> None:
    """What a steady load came to."""
    half, nearly_all = measured.percentile(0.5) / 1e6, measured.percentile(0.99) / 1e6
    print(f"{measured.throughput:,.0f} messages/s at the slowest receiver, half of them within {half:.2f} ms, 99 % within "
          f"{nearly_all:.2f} ms, overhead {measured.overhead:.1%}, senders blocked for "
          f"{measured.blocked:.3f} s "
          f"of {measured.seconds:g} s")


def traced(run: Run, directory: Path) -> Outcome:
    """Run with a trace; that needs pyarrow, which the rest does not."""
    from ringcast.sim.trace import Trace

    with Trace(run.cluster, directory) as trace:
        outcome = run.outcome()
    print(f"{trace.num_events} events in {directory}")
    return outcome


# ---------------------------------------------------------------------------------------- many runs

def run_all(seeds: range, fixed: Settings, workers: int) -> int:
    """Run the seeds, list the failures, sum up."""
    total, failures = Counter[str](), list[Outcome]()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("simulated", total=len(seeds))
        for outcome in outcomes(seeds, fixed, workers):
            progress.advance(task)
            add_up(total, outcome)
            if outcome.check:
                if len(failures) < SHRUNK:
                    outcome = shortest_prefix(outcome.seed, fixed, outcome)
                failures.append(outcome)
                progress.console.print(f"seed {outcome.seed} FAILED  {outcome.sentence}\n    replay: "
                                       f"{replay(outcome.seed, fixed, outcome.actions)}",
                                       soft_wrap=True, highlight=False, markup=False)
    show_sum(total)
    for outcome in sorted(failures, key=lambda each: each.seed):
        print(f"FAILED  {outcome.sentence}\n        {replay(outcome.seed, fixed, outcome.actions)}")
    if not failures:
        print(f"no promise was broken in {len(seeds):,} runs")
    return int(bool(failures))


def outcomes(seeds: range, fixed: Settings, workers: int) -> Iterator[Outcome]:
    """The outcomes of all seeds, as they come; seeds are given out in small portions,
    so that no core is idle at the end."""
    portions = iter([seeds[start:start + CHUNK] for start in range(0, len(seeds), CHUNK)])
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=end_with_parent) as pool:
        running: set[Future[list[Outcome]]] = set()
        try:
            while True:
                while len(running) < 3 * workers and (portion := next(portions, None)) is not None:
                    running.add(pool.submit(run_some, portion, fixed))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield from future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def end_with_parent() -> None:
    """A worker whose parent was killed has nobody to work for, and would wait for
    ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def run_some(seeds: range, fixed: Settings) -> list[Outcome]:
    return [simulate(seed, fixed) for seed in seeds]


def add_up(total: Counter[str], outcome: Outcome) -> None:
    total.update(outcome.counters)
    total.update(runs=1, failed=bool(outcome.check), void=outcome.is_void,
                 deliveries=outcome.deliveries, events=outcome.events,
                 simulated=round(outcome.simulated * 1e6), cpu=round(outcome.cpu * 1e6))


def show_sum(total: Counter[str]) -> None:
    """What was run, how fast, and what happened in it."""
    cpu = max(total["cpu"], 1) / 1e6
    table = Table(show_header=False, box=None)
    rows = [
        ("runs", f"{total['runs']:,}, of which {total['failed']:,} failed and {total['void']:,} had next to no traffic"),
        ("simulated", f"{total['simulated'] / 1e6:,.0f} s, {total['events']:,} events, {total['deliveries']:,} deliveries"),
        ("on one core", f"{total['deliveries'] / cpu:,.0f} deliveries/s, {total['simulated'] / 1e6 / cpu:,.0f} simulated s "
                        f"in a CPU second ({cpu:,.1f} CPU s in all)"),
        ("network", ", ".join(f"{total['num_' + name]:,} {name}" for name in
                              ("lost", "cut", "duplicated", "reordered", "damaged", "clogged",
                               "overflows", "unsent"))),
        ("members", f"{total['num_incarnations']:,} incarnations, {total['num_views']:,} views, {total['num_left']:,} left, "
                    f"{total['num_faults']:,} taken out alive, {total['num_blockings']:,} "
                    f"blockings"),
        ("repair", f"{total['xmit_reqs_sent']:,} requests, {total['xmit_rsps_sent']:,} messages repeated, "
                   f"{total['num_duplicates']:,} duplicates, {total['num_out_of_window']:,} beyond "
                   f"the window"),
    ]
    for name, text in rows:
        table.add_row(name, text)
    Console(width=160).print(table)
