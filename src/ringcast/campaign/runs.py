"""The runs of a campaign, and the row of each run.

The name of a run is a hash of its parameters, its seed and the version of ringcast. The
same run has the same name in every campaign, and is not run again where its row exists
already.
"""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, get_args, get_type_hints

import msgspec
import pyarrow as pa

import ringcast
from ringcast.config import configure
from ringcast.errors import ConfigError
from ringcast.sim.runs.replay import replay
from ringcast.sim.runs.run import Outcome
from ringcast.sim.runs.settings import STEADY, Settings
from ringcast.sim.runs.steady import steady_settings

AXES: dict[str, tuple[Any, ...]] = {    # with the values that are tried by default
    "loss": (0.0, 0.01, 0.05), "members": (STEADY["members"],), "capacity": (128, 1024, 8192),
    "xmit_interval": (1.0, 3.0, 10.0)}
OF_STACK = ("capacity", "xmit_interval")

# The status of a run.
OK, BROKEN, ERROR, TIMEOUT, DIED = "ok", "broken", "error", "timeout", "died"

COUNTS = pa.map_(pa.string(), pa.int64())
TYPES = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
PARAMETERS = [(name, TYPES[(set(get_args(kind)) or {kind}).difference({type(None)}).pop()])
              for name, kind in get_type_hints(Settings).items()
              if name != "options"]
SCHEMA = pa.schema([
    ("run", pa.string()), ("status", pa.string()), ("error", pa.string()),
    ("traceback", pa.string()), ("replay", pa.string()), ("version", pa.string()),
    ("seed", pa.int64()), *PARAMETERS, ("capacity", pa.int64()), ("xmit_interval", pa.float64()),
    ("options", pa.map_(pa.string(), pa.string())),
    ("taken", pa.float64()),            # real seconds
    ("events", pa.int64()), ("deliveries", pa.int64()), ("simulated", pa.float64()),
    ("fingerprint", pa.int64()), ("counters", COUNTS),
    # What follows is from ringcast.sim.runs.measure. Latencies are nanoseconds, classes
    # are the buckets of ringcast.histogram.
    ("load_seconds", pa.float64()), ("messages_sent", pa.int64()), ("payload_bytes", pa.int64()),
    ("throughput", pa.float64()), ("delivered", COUNTS),
    ("latency_p50", pa.int64()), ("latency_p99", pa.int64()), ("latency_max", pa.int64()),
    ("latency", pa.list_(pa.struct([("class", pa.int32()), ("count", pa.int64())]))),
    ("overhead", pa.float64()), ("datagrams", COUNTS), ("sent_bytes", COUNTS),
    ("blocked_seconds", pa.float64()),
])


class Planned(msgspec.Struct, frozen=True):
    """A run of a campaign: its seed and settings."""

    seed: int
    settings: Settings

    @property
    def name(self) -> str:
        """Return its name: a hash of all that decides its outcome."""
        settings = msgspec.structs.asdict(self.settings)
        parameters = msgspec.json.encode([ringcast.__version__, self.seed, settings],
                                         order="sorted")
        return hashlib.sha256(parameters).hexdigest()[:16]

    @property
    def point(self) -> bytes:
        """Return a key that is the same for runs that differ only in their seeds."""
        return msgspec.json.encode(self.settings, order="sorted")

    def row(self, status: str, error: str = "", traceback: str = "",
            taken: float = 0.0) -> dict[str, Any]:
        """Return the row of the run without an outcome."""
        settings = self.settings
        config = configure(settings.options, settings.stack)
        return {"run": self.name, "status": status, "error": error, "traceback": traceback,
                "version": ringcast.__version__, "replay": replay(self.seed, settings),
                "seed": self.seed,
                **{name: getattr(settings, name) for name, _ in PARAMETERS},
                "capacity": config.capacity, "xmit_interval": config.xmit_interval, "taken": taken,
                "options": {name: str(value) for name, value in settings.options.items()}}

    def row_of(self, outcome: Outcome, taken: float) -> dict[str, Any]:
        """Return the row of the run with its outcome."""
        status = OK if not outcome.check else ERROR if outcome.check == "error" else BROKEN
        row = self.row(status, outcome.sentence, outcome.traceback, taken) | {
            "events": outcome.events, "deliveries": outcome.deliveries,
            "simulated": outcome.simulated, "fingerprint": outcome.fingerprint,
            "counters": outcome.counters}
        measured = outcome.measured
        if measured is None:
            return row
        return row | {
            "load_seconds": measured.seconds, "messages_sent": measured.messages,
            "payload_bytes": measured.payload, "throughput": measured.throughput,
            "delivered": measured.delivered, "latency_p50": measured.percentile(0.5),
            "latency_p99": measured.percentile(0.99), "latency_max": measured.slowest,
            "latency": [{"class": each, "count": count}
                        for each, count in measured.latency.items()],
            "overhead": measured.overhead, "datagrams": measured.datagrams,
            "sent_bytes": measured.sent, "blocked_seconds": measured.blocked}


def plan(fixed: Settings, axes: Mapping[str, Sequence[Any]], seeds: Sequence[int]) -> list[Planned]:
    """Return a run for each combination of the axes and each seed, one seed after the
    other, so that a campaign that is stopped has seen all combinations.

    `axes` has values for the names in AXES, which has the defaults. Raises ConfigError
    for settings that cannot be simulated.
    """
    if not seeds:
        raise ConfigError("a campaign of no seeds runs nothing; give at least one")
    values = [tuple(dict.fromkeys(axes.get(name) or AXES[name])) for name in AXES]
    points = [at_point(fixed, dict(zip(AXES, each, strict=True))) for each in product(*values)]
    return [Planned(seed, settings) for seed in seeds for settings in points]


def at_point(fixed: Settings, at: Mapping[str, Any]) -> Settings:
    """Return the settings of one combination. Equal settings are always written in the
    same way."""
    options = fixed.options | {name: at[name] for name in OF_STACK}
    config = configure(options, fixed.stack)
    settings = msgspec.structs.replace(
        fixed, loss=float(at["loss"]), members=at["members"], steady=fixed.steady or 0.0,
        options={name: getattr(config, name) for name in sorted(options)})
    settings.check()
    return steady_settings(settings)


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)
