"""Who runs what, and when: chunks of runs as Spark jobs of their own, a few more at a
time than there are cores.

A chunk is as many runs as take a few seconds by what runs of their kind took so far,
and fewer towards the end, so that progress is seen, a task is worth its overhead, and
no core is idle while another has much to do. As each chunk is its own job, one that
fails takes nothing with it: the run that a dying worker named is tried once more alone,
and reported when it dies again; the others of its chunk go back to the queue. A job
that neither ends nor fails in its time is cancelled, which ends its worker, and treated
alike.
"""

import re
import signal
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

import msgspec
import pyarrow as arrow

from ringcast.campaign.results import Results
from ringcast.campaign.runs import DIED, SCHEMA, TIMEOUT, Planned, table_of
from ringcast.campaign.worker import Simulate, work
from ringcast.errors import RingcastError
from ringcast.sim.runs.run import simulate as run_of_seed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONF = {  # of the session: a worker that dies says where it was, and Java, which plans and carries
          # a few rows, takes no time from the runs to compile itself well
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.sql.shuffle.partitions": "2", "spark.ui.showConsoleProgress": "false"}
CHUNK_SECONDS = 6.0  # of simulation in a task, at most; ...
LEAST_SECONDS = 2.0  # ... and as long as there is enough to do, at least
MOST_JOBS = 64       # at a time: where there are more cores, a job has several tasks
PARTS = 8            # that a chunk is cut into when something in it went wrong and nobody knows
                     # what
SLOWER = 20          # times longer than expected that a chunk may take, beside the time of one run
WATCHED = 0.25       # seconds between looks at jobs that take too long
NAMED = re.compile(r"\brun ([0-9a-f]{16})\b")
OVER = "Timeout ("                      # how faulthandler begins when a time is over
# a run may have done that; anything else is not its fault
GONE = ("Python worker exited unexpectedly", "ExecutorLostFailure")


class Queue:
    """What is still to be run, on `slots` cores, in chunks of `tasks` tasks. Not for
    several threads: its owner has a lock."""

    def __init__(self, runs: Sequence[Planned], slots: int, tasks: int = 1) -> None:
        self.slots, self.tasks = slots, tasks
        self.waiting = deque(runs)
        self.apart: deque[list[Planned]] = deque()  # chunks as they are, because something went
                                                    # wrong in them before
        self._seconds: dict[bytes, float] = {}      # that the last run of a point took
        self._known: list[float] = [0.0, 0.0]       # seconds that all runs took, and how many they
                                                    # were

    def took(self, run: Planned, seconds: float) -> None:
        self._seconds[run.point] = seconds
        self._known[0] += seconds
        self._known[1] += 1

    def expected(self, run: Planned) -> float:
        """Seconds that a run will take."""
        return self._seconds.get(run.point, self._mean())

    def _mean(self) -> float:
        """Seconds of a run; a chunk's worth before anything is known, so that the first
        chunks have one run."""
        return self._known[0] / self._known[1] if self._known[1] else CHUNK_SECONDS

    def take(self) -> list[Planned]:
        """The next chunk; empty when nothing waits."""
        if self.apart:
            return self.apart.popleft()
        rest = len(self.waiting) * self._mean()
        most = self.tasks * min(CHUNK_SECONDS, max(LEAST_SECONDS, rest / (2 * self.slots)))
        chunk: list[Planned] = []
        seconds = 0.0
        while self.waiting and (not chunk or seconds + self.expected(self.waiting[0]) <= most):
            seconds += self.expected(self.waiting[0])
            chunk.append(self.waiting.popleft())
        return chunk

    def put_back(self, chunk: list[Planned], culprit: Planned | None) -> None:
        """Something went wrong in this chunk of several: the culprit, if it is known,
        goes alone; else the chunk goes in parts."""
        if culprit is not None:
            self.apart.append([culprit])
            self.waiting.extendleft(run for run in reversed(chunk) if run != culprit)
        else:
            size = -(-len(chunk) // PARTS)
            self.apart.extend(chunk[start:start + size] for start in range(0, len(chunk), size))


class Campaign:
    """Runs `runs` on the session's executors and adds their rows to `results`; those
    whose rows are there already are not run.

    `limit` is how many real seconds a run may take, and `grace` how many more until its
    process is ended if it does not end by itself. `simulate` makes the Outcome of a
    seed and settings, in a worker; another one than the simulator's must be something
    that workers can import, or unpickle. `told` is called with every table of new rows,
    by one thread at a time.
    """

    def __init__(self, spark: "SparkSession", runs: Sequence[Planned], results: Results, *,
                 limit: float = 300.0,
                 grace: float = 5.0, simulate: Simulate = run_of_seed, told: Callable[[arrow.Table], None] = lambda rows: None) -> None:
        self.spark, self.results, self.simulate, self.told = spark, results, simulate, told
        self.limit, self.grace = limit, grace
        self.name = f"ringcast-campaign-{uuid.uuid4().hex[:8]}"
        done = results.done()
        self.to_run = [run for run in {run.name: run for run in runs}.values()
                       if run.name not in done]
        slots = spark.sparkContext.defaultParallelism
        self._num_jobs = min(slots, MOST_JOBS)
        self._schema = spark.createDataFrame(SCHEMA.empty_table()).schema
        self._queue = Queue(self.to_run, slots, -(-slots // MOST_JOBS))
        self._lock = threading.Condition()
        self._under_way: dict[str, Job] = {}
        self._num_started = 0
        self._stopping = False
        self._failed: BaseException | None = None

    def run(self) -> None:
        """Return when every run has its row. An interrupt (KeyboardInterrupt) ends all
        jobs at once and keeps what is finished; what is no run's fault (a full disk, a
        Spark that is gone) is raised when all has ended."""
        with configured(self.spark), deferred() as interrupted:
            threads = [threading.Thread(target=self._work, name=f"{self.name}-{number}",
                                        daemon=True)
                       for number in range(self._num_jobs + 1)]  # one job waits while the others
                                                                 # run
            for thread in threads:
                thread.start()
            try:
                while any(thread.is_alive() for thread in threads) and self._failed is None and not interrupted.is_set():
                    with self._lock:
                        self._lock.wait(WATCHED)
                    self._cancel_late()
            finally:
                self._stop(threads)
        if interrupted.is_set():
            raise KeyboardInterrupt
        if self._failed is not None:
            raise self._failed

    def _stop(self, threads: list[threading.Thread]) -> None:
        with self._lock:
            self._stopping = True
            self._lock.notify_all()
            groups = list(self._under_way)
        while any(thread.is_alive() for thread in threads):  # a job may have been about to start
                                                             # when it was cancelled
            for group in groups:
                self.spark.sparkContext.cancelJobGroup(group)
            for thread in threads:
                thread.join(WATCHED)

    def _cancel_late(self) -> None:
        with self._lock:
            jobs = list(self._under_way.items())
        for group, job in jobs:
            job.has_begun = job.has_begun or self._has_begun(group)
            if job.is_late():
                self.spark.sparkContext.cancelJobGroup(group)

    def _has_begun(self, group: str) -> bool:
        """Whether a core works on this job, or has."""
        tracker = self.spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for number in tracker.getJobIdsForGroup(group)
                  if (info := tracker.getJobInfo(number)) is not None for stage in info.stageIds]
        return any(stage is not None and stage.numActiveTasks + stage.numCompletedTasks
                   + stage.numFailedTasks for stage in stages)

    # ----------------------------------------------------------------------------------- one thread

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

    def _next(self) -> "Job | None":
        """The next job; None when there is nothing left, or the campaign is to end."""
        with self._lock:
            while not self._stopping:
                chunk = self._queue.take()
                if chunk:
                    self._num_started += 1
                    job = Job(f"{self.name}-{self._num_started}", chunk,
                              sum(map(self._queue.expected, chunk)),
                              self.limit + 2 * self.grace)
                    self._under_way[job.group] = job
                    return job
                if not self._under_way:
                    return None
                self._lock.wait()                       # what is under way may come back
        return None

    def _carry_out(self, job: "Job") -> None:
        try:
            table = self._rows(job)
        except Exception as error:              # of Spark: a worker died, or the job was cancelled
            said = essence(error)
            if not (self._stopping or job.is_cancelled or any(words in said for words in GONE)):
                raise RingcastError(f"Spark could not run the simulation: {said}") from error
            table = self._gone_wrong(job, said)
        finally:
            with self._lock:
                self._under_way.pop(job.group)
                self._lock.notify_all()
        if table is not None:
            self.results.add(table)
            with self._lock:
                for name, taken in zip(table["run"].to_pylist(), table["taken"].to_pylist(),
                                       strict=True):
                    self._queue.took(job.by_name[name], taken)
                self.told(table)

    def _rows(self, job: "Job") -> arrow.Table:
        self.spark.sparkContext.setJobGroup(job.group, f"{len(job.chunk)} simulated runs",
                                            interruptOnCancel=True)
        chunk = msgspec.json.encode(job.chunk)
        frame = self.spark.range(0, len(job.chunk), 1, min(self._queue.tasks, len(job.chunk)))
        return frame.mapInArrow(partial(work, chunk, self.limit, self.grace, self.simulate),
                                self._schema).toArrow().cast(SCHEMA)

    def _gone_wrong(self, job: "Job", said: str) -> arrow.Table | None:
        """The row of the run that did it, when that is certain; else its chunk goes
        back to the queue."""
        named = NAMED.search(said)
        culprit = job.by_name.get(named[1]) if named else None
        with self._lock:
            if self._stopping:
                return None
            is_over = job.is_cancelled or (culprit is not None and OVER in said)
            if len(job.chunk) > 1:
                if culprit is None or not is_over:
                    self._queue.put_back(job.chunk, culprit)
                    return None
                self._queue.waiting.extendleft(run for run in reversed(job.chunk) if run != culprit)
        run = culprit or job.chunk[0]
        seconds = job.seconds()
        if is_over:
            return table_of([run.row(TIMEOUT, f"it did not end within {self.limit:g} seconds, nor when it was told to", said, seconds)])
        return table_of([run.row(DIED, "its process died", said, seconds)])


class Job:
    """A chunk under way, by the name of its group of Spark jobs. `expected` is seconds
    for all of it, `most` for any one run."""

    def __init__(self, group: str, chunk: list[Planned], expected: float, most: float) -> None:
        self.group, self.chunk = group, chunk
        self.by_name = {run.name: run for run in chunk}
        self.most = most + (SLOWER * expected if len(chunk) > 1 else 0.0)
        self.has_begun = self.is_cancelled = False
        self._began: float | None = None        # when a core was first seen to work on it

    def seconds(self) -> float:
        """How long a core has worked on it; 0 while none has begun."""
        if self.has_begun and self._began is None:
            self._began = monotonic()
        return monotonic() - self._began if self._began is not None else 0.0

    def is_late(self) -> bool:
        """Whether it takes longer than it should, and is to be cancelled."""
        self.is_cancelled = self.seconds() > self.most
        return self.is_cancelled


def essence(error: Exception) -> str:
    """What Spark says of a failure, without the places in Spark's own source at which
    it passed by."""
    return "\n".join(line for line in f"{type(error).__name__}: {error}".splitlines()
                     if not line.startswith("\tat "))


@contextmanager
def deferred() -> Iterator[threading.Event]:
    """Ctrl-C sets the event. Left to itself it would break into whatever this thread is
    saying to Spark's JVM, which then understands nothing any more, and nothing could be
    cancelled."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # which is the one that is
                                                                   # interrupted
        yield interrupted
        return
    before = signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def configured(spark: "SparkSession") -> Iterator[None]:
    """Workers that die say where they were, whatever session this is."""
    key = "spark.sql.execution.pyspark.udf.faulthandler.enabled"
    former = spark.conf.get(key) or "false"
    spark.conf.set(key, "true")
    try:
        yield
    finally:
        spark.conf.set(key, former)
