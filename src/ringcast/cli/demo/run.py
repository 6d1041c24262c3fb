"""One run of `ringcast demo`: start the group and Spark, watch them, and compare the
results with the file."""

import multiprocessing as mp
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ringcast.cli.demo import flights, members, pipeline, report
from ringcast.cli.demo.flights import Figures
from ringcast.cli.demo.members import DemoPlan, Outcome
from ringcast.cli.document import check_writable, write_json
from ringcast.cli.interrupts import held_back, let_end_java, stopping
from ringcast.cli.options import check_loss, typed
from ringcast.cli.screen import console, page, show_table
from ringcast.config import configure
from ringcast.errors import ConfigError
from ringcast.trust import Folder

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

    from ringcast.audit.verdict import Audit

STALL_TIMEOUT = 90              # seconds without any progress after which the demo gives up
STACKS_TIME = 0.5               # seconds that a member has to print its stacks
LOSS = 0.02                     # by default
MAX_SHOWN = 12                  # rows of the result that are printed
QUIET = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
SUCCESS = ("No message was lost, duplicated or out of order: all rows of the results are equal, "
           "and the audit found no promise broken.")
BUNDLE = 8_000                  # bytes of a datagram, small so that there are many to lose


class DemoError(Exception):
    """A result differs from the file, or a process of the demo failed."""


def run(publishers: int, messages: int, loss: float | None, stack: str, seed: int, to: Path,
        keep: Path | None, json_file: str | None, secret_file: Path | None, trust: Path | None,
        options: dict[str, Any]) -> None:
    """Run the demo, and write its results. typer.Exit(1) if a result differs."""
    properties = {"max_bundle_size": BUNDLE} | options
    if loss is None:
        loss = LOSS if configure(properties, stack).xmit_interval > 0 else 0.0
    check_loss(loss, stack, properties)
    plan = DemoPlan(f"demo-{os.getpid()}", publishers, messages, loss, seed, properties, stack,
                    len(flights.announcements(messages)), secret_file, trust,
                    "" if trust is None else f"{Folder(trust).own}/")
    plan.channel(plan.recorder).close(0)        # raises now if the settings are impossible
    if json_file:
        check_writable(json_file)
    check_writable(to, "--report")
    out = page(to_error=json_file == "-")
    began = time.monotonic()
    with workplace(keep) as directory:
        try:
            demo = DemoRun(replace(plan, options=properties | {"trace": str(directory / "traces")}),
                      directory)
            demo.go()
            differences = demo.differences()
            verdict = "; ".join(differences) or SUCCESS
            seconds = time.monotonic() - began
            show_results(out, demo, seconds)
            report.write(to, demo, verdict)
            out.print(f"\nreport: {typed(to)}")
            if json_file:
                write_json(json_file, report.as_object(demo, differences) | {"seconds": seconds})
            if differences:
                raise DemoError(verdict)
            out.print(verdict)
        except DemoError as error:
            console.print(f"ringcast demo: {error}", style="red", highlight=False)
            raise typer.Exit(1) from None


@contextmanager
def workplace(keep: Path | None) -> Iterator[Path]:
    """Make the directory of the demo: `keep`, which must be new, or a temporary one,
    which is removed at the end."""
    if keep is not None:
        try:
            keep.mkdir(parents=True)
        except FileExistsError:
            raise typer.BadParameter(f"{typed(keep)} exists already; name a new directory",
                                     param_hint="--keep") from None
        except OSError as error:
            raise ConfigError(f"--keep {typed(keep)}: {error.strerror}") from None
        yield keep
        return
    directory = Path(tempfile.mkdtemp(prefix="ringcast-demo-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@dataclass(frozen=True)
class Bars:
    """The progress bars."""

    progress: Progress
    published: Any
    recorded: Any
    in_table: Any
    announced: Any


class DemoRun:
    """One demo: its processes, its streaming queries, and its results."""

    def __init__(self, plan: DemoPlan, directory: Path) -> None:
        self.plan = plan
        self.journal, self.table = directory / "journal", directory / "table"
        self.checkpoints, self.outbox = directory / "checkpoints", directory / "outbox"
        self.traces = directory / "traces"
        self.context = mp.get_context("spawn")
        # Messages that each publisher has sent, and in the end those recorded.
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
        self.audit_parts: list[Any] = []        # for the page
        self.processes: list[Any] = []

    def go(self) -> None:
        """Run the demo, with progress bars. Raises DemoError if a process fails, or if
        nothing moves for STALL_TIMEOUT seconds."""
        from ringcast.spark import session

        let_end_java()
        with console.status("starting Spark and the group"):
            flights.lines()
            spark = session("ringcast demo", master="local[2]", conf=QUIET)
        let_end_java()
        with stopping(spark), self.killing():
            rows = pipeline.records(spark, self.journal, self.plan.publisher_names)
            queries = [pipeline.stream_to_table(rows, self.table, self.checkpoints / "table"),
                       pipeline.stream_to_group(rows, self.outbox, self.checkpoints / "group")]
            self.start()
            self.watch(queries)
            for query in queries:
                query.stop()
            with console.status("computing the results and auditing the traces"):
                table = spark.read.parquet(str(self.table))
                self.streams = pipeline.streams(table)
                self.computed = pipeline.computed(table)
                self.expected = flights.expected(self.plan.messages)
                self.announced = pipeline.announced(spark, self.journal, self.plan.spark)
                self.audit, self.audit_parts = pipeline.judged(spark, self.traces)

    @contextmanager
    def killing(self) -> Iterator[None]:
        """Kill the members at the end of the block."""
        try:
            yield
        finally:
            for process in self.processes:
                process.kill()

    def start(self) -> None:
        targets: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
            (members.run_recorder, (self.plan, self.journal, self.counts, self.queue)),
            (members.run_announcer, (self.plan, self.outbox, self.announcer_may_go, self.queue))]
        targets += [(members.run_publisher, (self.plan, number, self.counts, self.queue))
                    for number in range(self.plan.publishers)]
        names = [self.plan.recorder, self.plan.spark, *self.plan.publisher_names]
        for name, (target, arguments) in zip(names, targets, strict=True):
            process = self.context.Process(target=members.run, args=(target, *arguments),
                                           name=name, daemon=True)
            with held_back():
                process.start()
            self.processes.append(process)

    def watch(self, queries: "list[StreamingQuery]") -> None:
        """Update the bars until every member has sent its outcome and Spark has every
        message. Let the announcer leave when the publishers have left."""
        columns = (TextColumn("{task.description:>12}"), BarColumn(40), MofNCompleteColumn(),
                   TimeElapsedColumn())
        with Progress(*columns, console=console) as progress:
            totals = {"published": self.plan.messages, "recorded": self.plan.total,
                      "in the table": self.plan.messages, "announced": self.plan.announcements}
            bars = Bars(progress, *(progress.add_task(title, total=total)
                                    for title, total in totals.items()))
            began = moved_at = time.monotonic()
            while (len(self.outcomes) < len(self.plan.names)
                   or self.samples[-1].in_table < self.plan.messages):
                before = self.samples[-1:]
                self.sample(queries[0], time.monotonic() - began, bars)
                while not self.queue.empty():
                    self.outcomes.append(self.queue.get())
                    moved_at = time.monotonic()
                if sum(outcome.name in self.plan.publisher_names
                       for outcome in self.outcomes) == self.plan.publishers:
                    self.announcer_may_go.set()
                if not before or replace(self.samples[-1], at=before[0].at) != before[0]:
                    moved_at = time.monotonic()
                self.check_progress(queries, time.monotonic() - moved_at)
                time.sleep(0.1)
        self.outcomes.sort(key=lambda outcome: self.plan.names.index(outcome.name))

    def sample(self, query: "StreamingQuery", at: float, bars: Bars) -> None:
        """Take a sample of the progress, and show it."""
        *sent, recorded = self.counts
        # A lower bound, which is exact once the publishers have sent everything.
        announced = max(0, recorded - sum(sent))
        sample = report.Sample(at, sum(sent), recorded, pipeline.rows_so_far(query), announced)
        self.samples.append(sample)
        for bar, value in ((bars.published, sample.published), (bars.recorded, sample.recorded),
                           (bars.in_table, sample.in_table), (bars.announced, sample.announced)):
            bars.progress.update(bar, completed=value)

    def check_progress(self, queries: "list[StreamingQuery]", idle: float) -> None:
        """Raise DemoError if a process or a query has failed, or if nothing has moved
        for more than STALL_TIMEOUT seconds."""
        for process in self.processes:
            if process.exitcode:
                raise DemoError(f"a member of the group ended with status {process.exitcode}; its "
                                "error is above")
        for query in queries:
            if not query.isActive:
                raise DemoError(f"a streaming query ended: {query.exception()}")
        if idle > STALL_TIMEOUT:
            self.show_stacks()
            raise DemoError(f"nothing moved for {STALL_TIMEOUT} s: {len(self.outcomes)} of "
                            f"{len(self.plan.names)} members are done, "
                            f"{self.samples[-1].recorded} messages are recorded, "
                            f"{self.samples[-1].in_table} are in the table")

    def show_stacks(self) -> None:
        """Let the members that still run print where each of their threads is."""
        for process in self.processes:
            if process.is_alive():
                print(f"{process.name}:", file=sys.stderr, flush=True)
                os.kill(process.pid, members.SHOW_STACKS)
                time.sleep(STACKS_TIME)

    def differences(self) -> list[str]:
        """Return all differences between the results and the file, in words."""
        found = [f"{outcome.name}: {fault}" for outcome in self.outcomes
                 for fault in outcome.faults_found]
        found += [f"{each.name} got {each.delivered} messages, not {self.plan.total}"
                  for each in self.outcomes
                  if each.name != self.plan.spark and each.delivered != self.plan.total]
        found += [f"{each.unacked} messages of {each.name} were not acknowledged by all"
                  for each in self.outcomes if each.unacked]
        found += self.differing_streams() + self.differing_announcements()
        if self.audit is not None and self.audit.status:
            found.append(self.audit.verdict)
        if self.computed != self.expected:
            rows = sorted(set(self.computed) ^ set(self.expected))
            found.append(f"{len(rows)} rows of the result differ from the file's, the first is "
                         f"{rows[0] if rows else 'repeated'}")
        return found

    def differing_streams(self) -> list[str]:
        """Check that the table has the seqnos 1 to the number sent of each publisher,
        each once."""
        by_name = {sender.rpartition("#")[0]: stream for sender, stream in self.streams.items()}
        sent = {each.name: each.sent for each in self.outcomes
                if each.sent and each.name != self.plan.spark}
        found = [f"the table has (rows, distinct, lowest, highest) = {by_name.get(name)} of "
                 f"{name}, which sent {count}" for name, count in sent.items()
                 if by_name.get(name) != (count, count, 1, count)]
        return found + [f"the table has rows of {name}, which sent nothing"
                        for name in by_name if name not in sent]

    def differing_announcements(self) -> list[str]:
        """Check that each late flight of the file was announced once, and that the
        journal has the announcements as one stream without a gap."""
        found = sorted(text for _, text in self.announced)
        expected = flights.announcements(self.plan.messages)
        if [seqno for seqno, _ in self.announced] != list(range(1, len(found) + 1)):
            return [f"the {len(found)} announcements in the journal are not seqnos 1 to "
                    f"{len(found)}, each once"]
        if found != expected:
            return [f"{len(found)} flights were announced and {len(expected)} of the file are "
                    f"late; they differ in {len(set(found) ^ set(expected))}"]
        return []


def show_results(out: Console, run: DemoRun, seconds: float) -> None:
    """Print the figures of the group, and the result beside that from the file."""
    show_table(out, report.TITLES, [report.cells(each) for each in run.outcomes],
               title="the group")
    delivered = sum(each.delivered for each in run.outcomes)
    retransmitted = sum(each.status["xmit_rsps_sent"] for each in run.outcomes)
    if run.audit is not None:
        out.print(f"{run.plan.announcements:,} late flights announced to the group; audit: "
                  f"{run.audit.verdict}")
    fastest = max((each.delivered / each.seconds for each in run.outcomes if each.seconds),
                  default=0)
    out.print(f"{run.plan.messages:,} messages sent, {delivered:,} delivered to "
              f"{len(run.outcomes) - 1} members, {retransmitted:,} retransmitted; up to "
              f"{fastest:,.0f} messages/s at a member; {seconds:.0f} s in all")
    for sender, (rows, distinct, low, high) in sorted(run.streams.items()):
        out.print(f"{sender}: seqnos {low} to {high}, {distinct:,} of them, in {rows:,} rows",
                  highlight=False)
    show_result(out, run.computed, run.expected)


def show_result(out: Console, computed: Sequence[Figures], expected: Sequence[Figures]) -> None:
    """Print the first rows of both; all rows are compared for the title."""
    of_file = {row[:2]: row for row in expected}
    rows = [[*("-" if value is None else str(value) for value in row), mean(row),
             mean(of_file.get(row[:2]))] for row in computed[:MAX_SHOWN]]
    show_table(out, (*report.DELAYS, "mean, Spark", "mean, file"), rows,
               title=f"departure delay by carrier and hour: {len(computed)} rows from Spark, "
                     f"{len(expected)} from the file, "
                     f"{'all equal' if computed == expected else 'NOT EQUAL'}; here are the first")


def mean(row: Figures | None) -> str:
    return f"{row[4] / row[3]:.3f}" if row and row[3] and row[4] is not None else "-"
