"""What a campaign runs, and the row that each run becomes.

A run is known by a hash of its parameters, its seed and the version of ringcast: the
same run has the same name in every campaign, and is not run again where its row is
already there.
"""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, get_args

import msgspec
import pyarrow as arrow

import ringcast
from ringcast.config import configure
from ringcast.errors import ConfigError
from ringcast.sim.runs.plan import STEADY, Settings, steady_settings
from ringcast.sim.runs.replay import replay
from ringcast.sim.runs.run import Outcome

AXES: dict[str, tuple[Any, ...]] = {    # of a campaign, and what is tried when nothing else is said
    "loss": (0.0, 0.01, 0.05), "members": (STEADY["members"],), "capacity": (128, 1024, 8192),
    "xmit_interval": (1.0, 3.0, 10.0)}
OF_STACK = ("capacity", "xmit_interval")

# what became of a run
OK, BROKEN, ERROR, TIMEOUT, DIED = "ok", "broken", "error", "timeout", "died"

COUNTS = arrow.map_(arrow.string(), arrow.int64())
TYPES = {int: arrow.int64(), float: arrow.float64(), str: arrow.string()}
PARAMETERS = [(name, TYPES[(set(get_args(kind)) or {kind}).difference({type(None)}).pop()])
              for name, kind in Settings.__annotations__.items() if name != "options"]
SCHEMA = arrow.schema([
    ("run", arrow.string()), ("status", arrow.string()), ("error", arrow.string()),
    ("traceback", arrow.string()),
    ("replay", arrow.string()), ("version", arrow.string()),
    ("seed", arrow.int64()), *PARAMETERS, ("capacity", arrow.int64()),
    ("xmit_interval", arrow.float64()),
    ("options", arrow.map_(arrow.string(), arrow.string())),
    ("taken", arrow.float64()),                             # real seconds
    ("events", arrow.int64()), ("deliveries", arrow.int64()), ("simulated", arrow.float64()),
    ("fingerprint", arrow.int64()),
    ("counters", COUNTS),
    ("load_seconds", arrow.float64()), ("messages_sent", arrow.int64()),
    ("payload_bytes", arrow.int64()),
    ("throughput", arrow.float64()), ("delivered", COUNTS),
    # nanoseconds
    ("latency_p50", arrow.int64()), ("latency_p99", arrow.int64()), ("latency_max", arrow.int64()),
    # ringcast.sim.runs.measure
    ("latency", arrow.list_(arrow.struct([("class", arrow.int32()), ("count", arrow.int64())]))),
    ("overhead", arrow.float64()), ("datagrams", COUNTS), ("sent_bytes", COUNTS),
    ("blocked_seconds", arrow.float64()),
])


class Planned(msgspec.Struct, frozen=True):
    """A run that is to be."""

    seed: int
    settings: Settings

    @property
    def name(self) -> str:
        """What it is known by."""
        parameters = msgspec.json.encode([ringcast.__version__, self.seed, msgspec.structs.asdict(self.settings)], order="sorted")
        return hashlib.sha256(parameters).hexdigest()[:16]

    @property
    def point(self) -> bytes:
        """The same for runs that differ in their seeds alone."""
        return msgspec.json.encode(self.settings, order="sorted")

    def row(self, status: str, error: str = "", traceback: str = "", taken: float = 0.0) -> dict[
            str, Any]:
        """What is known of it without any outcome."""
        settings = self.settings
        config = configure(settings.options, settings.stack)
        return {"run": self.name, "status": status, "error": error, "traceback": traceback,
                "version": ringcast.__version__,
                "replay": replay(self.seed, settings), "seed": self.seed,
                **{name: getattr(settings, name) for name, _ in PARAMETERS},
                "capacity": config.capacity, "xmit_interval": config.xmit_interval, "taken": taken,
                "options": {name: str(value) for name, value in settings.options.items()}}

    def row_of(self, outcome: Outcome, taken: float) -> dict[str, Any]:
        """What it came to."""
        status = OK if not outcome.check else ERROR if outcome.check == "error" else BROKEN
        row = self.row(status, outcome.sentence, outcome.traceback, taken) | {
            "events": outcome.events, "deliveries": outcome.deliveries,
            "simulated": outcome.simulated,
            "fingerprint": outcome.fingerprint, "counters": outcome.counters}
        measured = outcome.measured
        if measured is None:
            return row
        return row | {
            "load_seconds": measured.seconds, "messages_sent": measured.messages,
            "payload_bytes": measured.payload,
            "throughput": measured.throughput, "delivered": measured.delivered,
            "latency_p50": measured.percentile(0.5),
            "latency_p99": measured.percentile(0.99), "latency_max": measured.slowest,
            "latency": [{"class": each, "count": count} for each,
                        count in measured.latency.items()],
            "overhead": measured.overhead, "datagrams": measured.datagrams,
            "sent_bytes": measured.sent,
            "blocked_seconds": measured.blocked}


def plan(fixed: Settings, axes: Mapping[str, Sequence[Any]], seeds: Sequence[int]) -> list[Planned]:
    """Every combination of the axes with every seed, one seed after the other: a
    campaign that is stopped has seen the whole map.

    `axes` has values of AXES' names; what is not in it has its values there.
    ConfigError for what cannot be simulated.
    """
    if not seeds:
        raise ConfigError("a campaign of no seeds runs nothing; give at least one")
    values = [tuple(dict.fromkeys(axes.get(name) or AXES[name])) for name in AXES]
    points = [at_point(fixed, dict(zip(AXES, each, strict=True))) for each in product(*values)]
    return [Planned(seed, settings) for seed in seeds for settings in points]


def at_point(fixed: Settings, at: Mapping[str, Any]) -> Settings:
    """The settings of one combination; the same ones are always written the same
    way."""
    options = fixed.options | {name: at[name] for name in OF_STACK}
    config = configure(options, fixed.stack)
    settings = msgspec.structs.replace(
        fixed, loss=float(at["loss"]), members=at["members"], steady=fixed.steady or 0.0,
        options={name: getattr(config, name) for name in sorted(options)})
    settings.check()
    return steady_settings(settings)


def table_of(rows: list[dict[str, Any]]) -> arrow.Table:
    return arrow.Table.from_pylist(rows, SCHEMA)
