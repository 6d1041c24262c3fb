"""`ringcast simulate --audit`: a run has also failed if the audit of its trace says
so."""

import shutil
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec

from ringcast.audit.verdict import LISTING, audit
from ringcast.cli.audit.run import QUIET
from ringcast.cli.interrupts import started, stopping
from ringcast.cli.screen import console
from ringcast.cli.simulate.seeds import AUDIT, perform
from ringcast.sim.runs.draw import draw
from ringcast.sim.runs.run import Outcome, Run
from ringcast.sim.runs.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The trace of a run is small. No audit changes the last setting then, which counts for
# all that run at a time.
CONF = QUIET | {"spark.sql.shuffle.partitions": "1", LISTING: "1000000"}


class Audits:
    """Audits the traces of runs, all on one Spark session. Those of many seeds are in
    the folder `traces`; if it is `temporary`, each is removed when it was audited."""

    def __init__(self, spark: "SparkSession", traces: Path, temporary: bool) -> None:
        self.spark = spark
        self.traces = traces
        self.temporary = temporary

    def judge(self, outcome: Outcome, trace: Path) -> Outcome:
        """Return the outcome of the run that wrote this trace. It has failed if the
        audit finds a broken promise, or a hole in the trace. A member that died before
        it did anything has no trace, and what this may explain is no failure."""
        if outcome.check:
            return outcome
        result, _ = audit(self.spark, [trace], skew_ms=0)
        is_explained = result.untraced and not (result.violations or result.incomplete
                                                or result.files.bad)
        if result.status == 0 or is_explained:
            return outcome
        return msgspec.structs.replace(outcome, check=AUDIT, sentence=f"{AUDIT}: {result.verdict}")

    def judge_all(self, outcomes: Iterable[Outcome], workers: int) -> Generator[Outcome]:
        """Yield the outcomes of many seeds as `judge_seed` returns them, in the order
        in which their audits end. At most `workers` are audited at a time."""
        running: set[Future[Outcome]] = set()
        with ThreadPoolExecutor(workers) as pool:
            for outcome in outcomes:
                running.add(pool.submit(self.judge_seed, outcome))
                if len(running) == workers:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    yield from (each.result() for each in done)
            yield from (each.result() for each in as_completed(running))

    def judge_seed(self, outcome: Outcome) -> Outcome:
        """Return the outcome of one of many seeds, as `judge` does."""
        trace = self.traces / str(outcome.seed)
        outcome = self.judge(outcome, trace)
        if self.temporary:
            shutil.rmtree(trace)
        return outcome

    def run(self, run: Run, trace: Path | None = None) -> Outcome:
        """Run, with a trace that is kept or not, and judge it."""
        with TemporaryDirectory(prefix="ringcast-") as folder:
            trace = trace or Path(folder)
            return self.judge(perform(run, trace), trace)

    def simulate(self, seed: int, settings: Settings, actions: int | None = None) -> Outcome:
        """Run a seed, and judge it."""
        return self.run(Run(draw(seed, settings), actions))


@contextmanager
def auditing(traces: Path | None) -> Iterator[Audits]:
    """Start Spark for audits, and stop it at the end. Without a folder `traces`, no
    trace is kept."""
    with console.status("starting Spark"):
        spark = started("ringcast simulate", "ERROR", defaults=CONF)
    with stopping(spark), TemporaryDirectory(prefix="ringcast-") as folder:
        yield Audits(spark, traces or Path(folder), temporary=traces is None)
