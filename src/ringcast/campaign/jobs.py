"""The scheduler of a campaign: it runs chunks of runs as Spark jobs of their own, one
more at a time than there are cores.

A chunk has as many runs as take a few seconds, estimated from earlier runs of the same
point, and fewer towards the end: so progress is visible, a task is worth its overhead,
and no core is idle while another has much to do. Each chunk is its own job, so a job
that fails does not affect others. If a worker dies and names a run, or had only one,
that run is tried once more alone, and reported if it dies again; the other runs of its
chunk go back to the queue. A job that neither ends nor fails in its time is cancelled,
which ends its worker; a run that it names is not tried again.
"""

import re
import signal
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from ringcast.campaign.results import Results
from ringcast.campaign.runs import DIED, SCHEMA, TIMEOUT, Planned, table_of
from ringcast.campaign.worker import Simulate, work
from ringcast.errors import RingcastError
from ringcast.sim.runs.run import simulate as run_of_seed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONF = {                                # of the session
    # Java plans and carries a few rows: do not let it take time from the runs for
    # compiling itself well.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # A worker that dies reports where it was.
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.sql.shuffle.partitions": "2", "spark.ui.showConsoleProgress": "false"}
CHUNK_SECONDS = 6.0     # of simulation in a task, at most; ...
LEAST_SECONDS = 2.0     # ... and at least, while there is enough to do
MAX_JOBS = 64           # at a time; with more cores, a job has several tasks
PARTS = 8               # that a chunk is cut into if it failed for an unknown reason
MAX_SLOWDOWN = 20       # times the expected duration that a chunk may take, plus the limit of a run
POLL_INTERVAL = 0.25    # seconds between two checks for jobs that take too long
RUN_NAME = re.compile(r"\brun ([0-9a-f]{16})\b")
TIMEOUT_TEXT = "Timeout ("              # the beginning of faulthandler's report of a timeout
# Errors that a run may have caused. Other errors are not the fault of a run.
WORKER_DIED = ("Python worker exited unexpectedly", "ExecutorLostFailure")


class RunQueue:
    """The runs that wait, for `slots` cores, taken in chunks of `tasks` tasks. Not
    thread-safe: the owner has a lock."""

    def __init__(self, runs: Sequence[Planned], slots: int, tasks: int = 1) -> None:
        self.slots, self.tasks = slots, tasks
        self.waiting = deque(runs)
        self.retries: deque[list[Planned]] = deque()    # of chunks that failed before
        self._seconds: dict[bytes, float] = {}          # of the last run of a point
        self._total_seconds = 0.0
        self._num_runs = 0

    def add_duration(self, run: Planned, seconds: float) -> None:
        """Note how long a run took."""
        self._seconds[run.point] = seconds
        self._total_seconds += seconds
        self._num_runs += 1

    def expected(self, run: Planned) -> float:
        """Return the seconds that a run is expected to take."""
        return self._seconds.get(run.point, self._mean())

    def _mean(self) -> float:
        """Return the mean seconds of a run. Before the first run has ended, return a
        whole chunk's seconds, so that the first chunks have one run."""
        return self._total_seconds / self._num_runs if self._num_runs else CHUNK_SECONDS

    def take(self) -> list[Planned]:
        """Take the next chunk; an empty one if no run waits."""
        if self.retries:
            return self.retries.popleft()
        rest = len(self.waiting) * self._mean()
        most = self.tasks * min(CHUNK_SECONDS, max(LEAST_SECONDS, rest / (2 * self.slots)))
        chunk: list[Planned] = []
        seconds = 0.0
        while self.waiting and (not chunk or seconds + self.expected(self.waiting[0]) <= most):
            seconds += self.expected(self.waiting[0])
            chunk.append(self.waiting.popleft())
        return chunk

    def put_back(self, chunk: list[Planned], culprit: Planned | None) -> None:
        """Queue a chunk of several runs that failed: the culprit alone, if it is known;
        else the chunk in parts."""
        if culprit is not None:
            self.retries.append([culprit])
            self.waiting.extendleft(run for run in reversed(chunk) if run != culprit)
        else:
            size = -(-len(chunk) // PARTS)
            self.retries.extend(chunk[start:start + size] for start in range(0, len(chunk), size))


class Campaign:
    """Runs `runs` on the session's executors and adds their rows to `results`. Runs
    whose rows are there already are skipped.

    `limit` is the real seconds that a run may take, `grace` the seconds after which its
    process is ended if it does not stop then. `simulate` returns the Outcome of a seed
    and settings, in a worker; if it is not the simulator's, workers must be able to
    import or unpickle it. `on_rows` is called with every table of new rows, by one
    thread at a time.
    """

    def __init__(self, spark: "SparkSession", runs: Sequence[Planned], results: Results, *,
                 limit: float = 300.0, grace: float = 5.0, simulate: Simulate = run_of_seed,
                 on_rows: Callable[[pa.Table], None] = lambda rows: None) -> None:
        self.spark, self.results, self.simulate, self.on_rows = spark, results, simulate, on_rows
        self.limit, self.grace = limit, grace
        self.name = f"ringcast-campaign-{uuid.uuid4().hex[:8]}"
        done = results.done()
        self.to_run = [run for run in {run.name: run for run in runs}.values()
                       if run.name not in done]
        slots = spark.sparkContext.defaultParallelism
        self._num_jobs = min(slots, MAX_JOBS)
        self._schema = spark.createDataFrame(SCHEMA.empty_table()).schema
        self._queue = RunQueue(self.to_run, slots, -(-slots // MAX_JOBS))
        self._lock = threading.Condition()
        self._under_way: dict[str, ChunkJob] = {}
        self._died: set[str] = set()            # runs whose process has died once
        self._num_started = 0
        self._stopping = False
        self._failed: BaseException | None = None

    def run(self) -> None:
        """Run, and return when every run has its row. An interrupt (KeyboardInterrupt)
        ends all jobs at once and keeps finished rows. An error that is no run's fault
        (a full disk, a Spark that is gone) is raised after all jobs have ended."""
        with faulthandler_enabled(self.spark), sigint_deferred() as interrupted:
            # One more than jobs, so that a job always waits while the others run.
            threads = [threading.Thread(target=self._work, name=f"{self.name}-{number}",
                                        daemon=True) for number in range(self._num_jobs + 1)]
            for thread in threads:
                thread.start()
            try:
                while (any(thread.is_alive() for thread in threads) and self._failed is None
                       and not interrupted):
                    with self._lock:
                        self._lock.wait(POLL_INTERVAL)
                    self._cancel_late()
            finally:
                self._stop(threads)
        if interrupted:
            raise KeyboardInterrupt
        if self._failed is not None:
            raise self._failed

    def _stop(self, threads: list[threading.Thread]) -> None:
        with self._lock:
            self._stopping = True
            self._lock.notify_all()
            groups = list(self._under_way)
        # Repeatedly, because a job may have been about to start when it was cancelled.
        # If Java is gone, each thread ends with an error. Wait for them all the same:
        # Python must not end while one of them is in compiled code.
        while any(thread.is_alive() for thread in threads):
            for group in groups:
                with suppress(ConnectionError, Py4JError):
                    self.spark.sparkContext.cancelJobGroup(group)
            for thread in threads:
                thread.join(POLL_INTERVAL)

    def _cancel_late(self) -> None:
        with self._lock:
            jobs = list(self._under_way.items())
        for group, job in jobs:
            job.has_begun = job.has_begun or self._has_begun(group)
            if job.is_late():
                self.spark.sparkContext.cancelJobGroup(group)

    def _has_begun(self, group: str) -> bool:
        """Return whether a core works on this job, or has worked on it."""
        tracker = self.spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for number in tracker.getJobIdsForGroup(group)
                  if (info := tracker.getJobInfo(number)) is not None for stage in info.stageIds]
        return any(stage is not None and stage.numActiveTasks + stage.numCompletedTasks
                   + stage.numFailedTasks for stage in stages)

    # ----------------------------------------------------------------------- one thread

    def _work(self) -> None:
        try:
            while (job := self._next()) is not None:
                self._carry_out(job)
        except BaseException as error:
            with self._lock:
                self._failed, self._stopping = error, True
        finally:
            with self._lock:
                self._lock.notify_all()

    def _next(self) -> "ChunkJob | None":
        """Return the next job; None if no run is left, or if the campaign stops."""
        with self._lock:
            while not self._stopping:
                chunk = self._queue.take()
                if chunk:
                    self._num_started += 1
                    job = ChunkJob(f"{self.name}-{self._num_started}", chunk,
                                   sum(map(self._queue.expected, chunk)),
                                   self.limit + 2 * self.grace)
                    self._under_way[job.group] = job
                    return job
                if not self._under_way:
                    return None
                self._lock.wait()                       # jobs under way may put runs back
        return None

    def _carry_out(self, job: "ChunkJob") -> None:
        try:
            table = self._rows(job)
        except Exception as error:              # of Spark: a worker died, or the job was cancelled
            summary = summary_of(error)
            if not (self._stopping or job.is_cancelled
                    or any(text in summary for text in WORKER_DIED)):
                if not isinstance(error, (PySparkException, Py4JJavaError)):
                    raise                       # Java itself is gone, say
                raise RingcastError(f"Spark could not run the simulation: {summary}") from error
            table = self._on_failure(job, summary)
        finally:
            with self._lock:
                self._under_way.pop(job.group)
                self._lock.notify_all()
        if table is not None:
            self.results.add(table)
            with self._lock:
                for name, taken in zip(table["run"].to_pylist(), table["taken"].to_pylist(),
                                       strict=True):
                    self._queue.add_duration(job.by_name[name], taken)
                self.on_rows(table)

    def _rows(self, job: "ChunkJob") -> pa.Table:
        self.spark.sparkContext.setJobGroup(job.group, f"{len(job.chunk)} simulated runs",
                                            interruptOnCancel=True)
        chunk = msgspec.json.encode(job.chunk)
        frame = self.spark.range(0, len(job.chunk), 1, min(self._queue.tasks, len(job.chunk)))
        return frame.mapInArrow(partial(work, chunk, self.limit, self.grace, self.simulate),
                                self._schema).toArrow().cast(SCHEMA)

    def _on_failure(self, job: "ChunkJob", summary: str) -> pa.Table | None:
        """Return the row of the run that caused the failure, if that is certain; else
        put the chunk back."""
        named = RUN_NAME.search(summary)
        culprit = job.by_name.get(named[1]) if named else None
        if len(job.chunk) == 1:
            culprit = job.chunk[0]
        with self._lock:
            if self._stopping:
                return None
            is_timeout = job.is_cancelled or (culprit is not None and TIMEOUT_TEXT in summary)
            if culprit is None or not (is_timeout or culprit.name in self._died):
                if culprit is not None:
                    self._died.add(culprit.name)
                self._queue.put_back(job.chunk, culprit)
                return None
            self._queue.waiting.extendleft(run for run in reversed(job.chunk) if run != culprit)
        seconds = job.seconds()
        if is_timeout:
            sentence = f"it did not end within {self.limit:g} seconds, nor when it was told to"
            return table_of([culprit.row(TIMEOUT, sentence, summary, seconds)])
        return table_of([culprit.row(DIED, "its process died", summary, seconds)])


class ChunkJob:
    """A chunk under way, in a group of Spark jobs with the name `group`. `expected` is
    the seconds that all of it should take, `most` the seconds that one run may take."""

    def __init__(self, group: str, chunk: list[Planned], expected: float, most: float) -> None:
        self.group, self.chunk = group, chunk
        self.by_name = {run.name: run for run in chunk}
        self.most = most + (MAX_SLOWDOWN * expected if len(chunk) > 1 else 0.0)
        self.has_begun = self.is_cancelled = False
        self._began: float | None = None        # when a core was first seen to work on it

    def seconds(self) -> float:
        """Return how long a core has worked on it; 0 if none has begun."""
        if self.has_begun and self._began is None:
            self._began = monotonic()
        return monotonic() - self._began if self._began is not None else 0.0

    def is_late(self) -> bool:
        """Check whether it takes too long, and remember that it is cancelled then."""
        self.is_cancelled = self.seconds() > self.most
        return self.is_cancelled


def summary_of(error: Exception) -> str:
    """Return Spark's report of a failure without the Java stack trace."""
    return "\n".join(line for line in f"{type(error).__name__}: {error}".splitlines()
                     if not line.startswith("\tat "))


@contextmanager
def sigint_deferred() -> Iterator[list[int]]:
    """Let Ctrl-C only be noted in a list. Otherwise it could interrupt a call to
    Spark's JVM in the middle; then the connection is broken, and no job could be
    cancelled."""
    interrupted: list[int] = []
    if threading.current_thread() is not threading.main_thread():   # gets no signals
        yield interrupted
        return
    before = signal.signal(signal.SIGINT, lambda number, _: interrupted.append(number))
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def faulthandler_enabled(spark: "SparkSession") -> Iterator[None]:
    """Let workers that die report where they were, in any session."""
    key = "spark.sql.execution.pyspark.udf.faulthandler.enabled"
    former = spark.conf.get(key) or "false"
    spark.conf.set(key, "true")
    try:
        yield
    finally:
        spark.conf.set(key, former)
