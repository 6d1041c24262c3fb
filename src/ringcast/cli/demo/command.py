"""The command: start the group and Spark, watch them, compare what came out with what
went in, tell."""

import multiprocessing as mp
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ringcast.cli.app import Settings, StackName, app, check_loss, console, settings
from ringcast.cli.demo import flights, members, pipeline, report
from ringcast.cli.demo.flights import Figures
from ringcast.cli.demo.members import Outcome, Plan
from ringcast.config import configure

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

    from ringcast.audit.verdict import Audit

PATIENCE = 90                           # seconds without any progress after which the demo gives up
LOSS = 0.02                             # where nothing else is asked for
SHOWN = 12                              # rows of the result that are printed
QUIET = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
ALL_IS_WELL = ("Nothing was lost, repeated or out of order: the results are equal to the last row, and the audit found no promise "
               "broken.")
WIDTH = 110                 # columns that the tables need
BUNDLE = 8_000              # bytes of a datagram: enough datagrams for the network to do its worst


class DemoError(Exception):
    """Something came out other than it went in, or a process of the demo did not do its
    part."""


@app.command("demo")
def demo_command(
    publishers: Annotated[int, typer.Option(min=1, max=16, help="Processes that send.")] = 3,
    messages: Annotated[int, typer.Option(min=1, max=336_776, help="Flight records to send.")] = 336_776,
    loss: Annotated[float | None, typer.Option(
        min=0.0, max=0.5, help="Probability that a member loses a datagram.  [default: 0.02; nakack2-tcp: 0]")] = None,
    stack: StackName = "mcast-udp",
    seed: Annotated[int, typer.Option(help="Of the dice that the bad network throws.")] = 1,
    page: Annotated[Path, typer.Option("--report", help="Where to write the report.")] = Path("ringcast-demo.html"),
    keep: Annotated[Path | None, typer.Option(help="Keep journal, table, outbox and traces in this new directory.")] = None,
    options: Settings = None,
) -> None:
    """Watch the whole system: publishers send real flight records over a lossy network,
    a recorder keeps them, Spark reads them exactly once, and announces flights that are
    late back to the group. In the end its figures and the announcements are compared
    with the file, and an audit judges what every member saw. Exit status 1 when
    anything differs.
    """
    properties = {"max_bundle_size": BUNDLE} | settings(options)
    if loss is None:
        loss = LOSS if configure(properties, stack).xmit_interval > 0 else 0.0
    check_loss(loss, stack, properties)
    plan = Plan(f"demo-{os.getpid()}", publishers, messages, loss, seed, properties, stack,
                len(flights.announcements(messages)))
    plan.channel(members.RECORDER).close(0)             # what cannot be shows now, in one sentence
    began = time.monotonic()
    with workplace(keep) as directory:
        try:
            run = Run(replace(plan, options=properties | {"trace": str(directory / "traces")}),
                      directory)
            run.go()
            differences = run.differences()
            verdict = "; ".join(differences) or ALL_IS_WELL
            tell(run, time.monotonic() - began)
            report.write(page, run, verdict)
            print(f"\nreport: {page.resolve()}")
            if differences:
                raise DemoError(verdict)
            print(verdict)
        except DemoError as error:
            console.print(f"ringcast demo: {error}", style="red", highlight=False)
            raise typer.Exit(1) from None


@contextmanager
def workplace(keep: Path | None) -> Iterator[Path]:
    """A directory for journal and table: the one to keep, which must be new, or one
    that goes away again."""
    if keep is not None:
        if keep.exists():
            raise typer.BadParameter(f"{keep} is there already; name a new directory",
                                     param_hint="--keep")
        keep.mkdir(parents=True)
        yield keep
        return
    directory = Path(tempfile.mkdtemp(prefix="ringcast-demo-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@dataclass(frozen=True)
class Bars:
    """The progress bars, by what they count."""

    progress: Progress
    published: Any
    recorded: Any
    in_table: Any
    announced: Any


class Run:
    """One demo: its processes, its streaming query, what came of it."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self.plan = plan
        self.journal, self.table = directory / "journal", directory / "table"
        self.checkpoints, self.outbox, self.traces = directory / "checkpoints", directory / "outbox", directory / "traces"
        self.context = mp.get_context("spawn")
        # sent by each publisher; recorded
        self.counts = self.context.Array("q", plan.publishers + 1, lock=False)
        self.announcer_may_go = self.context.Event()
        self.queue: mp.SimpleQueue[Outcome] = self.context.SimpleQueue()
        self.outcomes: list[Outcome] = []
        self.samples: list[report.Sample] = []
        self.computed: list[Figures] = []
        self.expected: list[Figures] = []
        self.streams: dict[str, tuple[int, int, int, int]] = {}
        self.announced: list[tuple[int, str]] = []
        self.audit: Audit | None = None
        self.story: list[Any] = []      # of the audit, for the page
        self.processes: list[Any] = []

    def go(self) -> None:
        """Everything, with progress bars; DemoError when a process fails or nothing
        moves any more."""
        from ringcast.spark import session

        with console.status("starting Spark and the group"):
            flights.lines()
            spark = session("ringcast demo", master="local[2]", conf=QUIET)
        try:
            rows = pipeline.records(spark, self.journal, [name for name in self.plan.names
                                                          if name.startswith("publisher")])
            queries = [pipeline.stream_to_table(rows, self.table, self.checkpoints / "table"),
                       pipeline.stream_to_group(rows, self.outbox, self.checkpoints / "group")]
            self.start()
            self.watch(queries)
            for query in queries:
                query.stop()
            with console.status("computing from the table and from the file, and auditing the traces"):
                table = spark.read.parquet(str(self.table))
                self.streams = pipeline.streams(table)
                self.computed = pipeline.computed(table)
                self.expected = flights.expected(self.plan.messages)
                self.announced = pipeline.announced(spark, self.journal)
                self.audit, self.story = pipeline.judged(spark, self.traces)
        finally:
            for process in self.processes:
                process.kill()
            spark.stop()

    def start(self) -> None:
        targets: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
            (members.keep, (self.plan, self.journal, self.counts, self.queue)),
            (members.carry, (self.plan, self.outbox, self.announcer_may_go, self.queue))]
        targets += [(members.publish, (self.plan, number, self.counts, self.queue))
                    for number in range(self.plan.publishers)]
        for target, arguments in targets:
            process = self.context.Process(target=target, args=arguments, daemon=True)
            process.start()
            self.processes.append(process)

    def watch(self, queries: "list[StreamingQuery]") -> None:
        """Until every member has told its outcome and Spark has every message; the
        announcer goes when the publishers have gone."""
        columns = (TextColumn("{task.description:>12}"), BarColumn(40), MofNCompleteColumn(),
                   TimeElapsedColumn())
        with Progress(*columns, console=console) as progress:
            totals = {"published": self.plan.messages, "recorded": self.plan.total,
                      "in the table": self.plan.messages,
                      "announced": self.plan.announcements}
            bars = Bars(progress, *(progress.add_task(title, total=total) for title,
                                    total in totals.items()))
            began = moved = time.monotonic()
            while len(self.outcomes) < len(self.plan.names) or self.samples[-1].in_table < self.plan.messages:
                before = self.samples[-1:]
                self.sample(queries[0], time.monotonic() - began, bars)
                while not self.queue.empty():
                    self.outcomes.append(self.queue.get())
                    moved = time.monotonic()
                if sum(outcome.name not in (members.RECORDER,
                                            members.SPARK) for outcome in self.outcomes) == self.plan.publishers:
                    self.announcer_may_go.set()
                if not before or before[0].__dict__ | {"at": 0} != self.samples[-1].__dict__ | {
                        "at": 0}:
                    moved = time.monotonic()
                self.check_life(queries, time.monotonic() - moved)
                time.sleep(0.1)
        self.outcomes.sort(key=lambda outcome: self.plan.names.index(outcome.name))

    def sample(self, query: "StreamingQuery", at: float, bars: Bars) -> None:
        *sent, recorded = self.counts
        announced = max(0, recorded - sum(sent))  # at least; all, once the publishers have sent
                                                  # everything
        sample = report.Sample(at, sum(sent), recorded, pipeline.rows_so_far(query), announced)
        self.samples.append(sample)
        for bar, value in ((bars.published, sample.published), (bars.recorded, sample.recorded),
                           (bars.in_table, sample.in_table),
                           (bars.announced, sample.announced)):
            bars.progress.update(bar, completed=value)

    def check_life(self, queries: "list[StreamingQuery]", still: float) -> None:
        """DemoError when a process or a query has failed, or nothing has moved for
        long."""
        for process in self.processes:
            if process.exitcode:
                raise DemoError(f"a member of the group ended with status {process.exitcode}; its own words are above")
        for query in queries:
            if not query.isActive:
                raise DemoError(f"a streaming query ended: {query.exception()}")
        if still > PATIENCE:
            raise DemoError(f"nothing moved for {PATIENCE} s: {len(self.outcomes)} of {len(self.plan.names)} members are done, "
                            f"{self.samples[-1].recorded} messages recorded, "
                            f"{self.samples[-1].in_table} in the table")

    def differences(self) -> list[str]:
        """Whatever came out other than it went in, in words."""
        found = [f"{outcome.name}: {fault}" for outcome in self.outcomes
                 for fault in outcome.faults_found]
        found += [f"{each.name} got {each.delivered} messages, not {self.plan.total}"
                  for each in self.outcomes
                  if each.name != members.SPARK and each.delivered != self.plan.total]
        found += [f"{each.unacked} messages of {each.name} were not acknowledged by all"
                  for each in self.outcomes if each.unacked]
        found += self.differing_streams() + self.differing_announcements()
        if self.audit is not None and self.audit.status:
            found.append(self.audit.verdict)
        if self.computed != self.expected:
            rows = sorted(set(self.computed) ^ set(self.expected))
            found.append(f"{len(rows)} rows of the result differ from the file's, the first is {rows[0] if rows else 'repeated'}")
        return found

    def differing_streams(self) -> list[str]:
        """In the table, each publisher's seqnos must be 1 .. the number it sent, each
        once."""
        by_name = {sender.rpartition("#")[0]: stream for sender, stream in self.streams.items()}
        sent = {each.name: each.sent for each in self.outcomes if each.sent
                and each.name != members.SPARK}
        return [f"the table has (rows, distinct, lowest, highest) = {by_name.get(name)} of {name}, which sent {count}"
                for name, count in sent.items() if by_name.get(name) != (count, count, 1, count)] + [
                f"the table has rows of {name}, which sent nothing" for name in by_name
            if name not in sent]


    def differing_announcements(self) -> list[str]:
        """Each late flight of the file must have been announced once, and the journal
        has that as one stream without a gap."""
        found, expected = sorted(text for _, text in self.announced), flights.announcements(
            self.plan.messages)
        if [seqno for seqno, _ in self.announced] != list(range(1, len(found) + 1)):
            return [f"the {len(found)} announcements in the journal are not seqnos 1 to {len(found)}, each once"]
        if found != expected:
            return [f"{len(found)} flights were announced and {len(expected)} of the file are late; they differ in "
                    f"{len(set(found) ^ set(expected))}"]
        return []


def tell(run: Run, seconds: float) -> None:
    """Print what happened, and the result beside the same figures from the file."""
    out = Console(width=max(WIDTH, Console().width))
    out.print(members_table(run.outcomes))
    delivered, retransmitted = (sum(values)
                                for values in zip(*((each.delivered, each.status["xmit_rsps_sent"])
                                                    for each in run.outcomes), strict=True))
    if run.audit is not None:
        out.print(f"{run.plan.announcements:,} late flights announced back to the group; audit: {run.audit.verdict}", highlight=False)
    fastest = max((each.delivered / each.seconds for each in run.outcomes if each.seconds),
                  default=0)
    out.print(f"{run.plan.messages:,} messages sent, {delivered:,} delivered to {len(run.outcomes) - 1} members, {retransmitted:,} "
              f"retransmitted; up to {fastest:,.0f} messages/s at a member; {seconds:.0f} s in all",
              highlight=False)
    for sender, (rows, distinct, low, high) in sorted(run.streams.items()):
        out.print(f"{sender}: seqnos {low} to {high}, {distinct:,} of them, in {rows:,} rows",
                  highlight=False)
    out.print(result_table(run.computed, run.expected))


def members_table(outcomes: Sequence[Outcome]) -> Table:
    table = Table(title="the group")
    for title in ("member", "sent", "delivered", "datagrams lost", "repeated", "overtaken",
                  "requests", "retransmitted"):
        table.add_column(title, justify="left" if title == "member" else "right")
    keys = ("num_discard", "num_duplicate", "num_shuffle", "xmit_reqs_sent", "xmit_rsps_sent")
    for each in outcomes:
        table.add_row(each.name, f"{each.sent:,}", f"{each.delivered:,}",
                      *(f"{each.status[key]:,}" for key in keys))
    return table


def result_table(computed: Sequence[Figures], expected: Sequence[Figures]) -> Table:
    """The first rows of both; equal or not is decided on all."""
    table = Table(title=f"departure delay by carrier and hour: {len(computed)} rows from Spark, {len(expected)} from the file, "
                        f"{'all equal' if computed == expected else 'NOT EQUAL'}")
    for title in ("carrier", "hour", "flights", "left", "sum", "least", "greatest", "mean, Spark",
                  "mean, file"):
        table.add_column(title, justify="left" if title == "carrier" else "right")
    of_file = {row[:2]: row for row in expected}
    for row in computed[:SHOWN]:
        table.add_row(*("-" if value is None else str(value) for value in row), mean(row),
                      mean(of_file.get(row[:2])))
    if len(computed) > SHOWN:
        table.add_row("...")
    return table


def mean(row: Figures | None) -> str:
    return f"{row[4] / row[3]:.3f}" if row and row[3] and row[4] is not None else "-"
