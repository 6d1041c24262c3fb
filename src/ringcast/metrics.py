"""Metrics: what Channel.status() says, for Prometheus and for OpenTelemetry.

    ringcast.metrics.prometheus(channel)        # needs 'ringcast[prometheus]'
    ringcast.metrics.opentelemetry(channel)     # needs 'ringcast[opentelemetry]'

Each number of the status is a metric of its name, with the labels `group` and `member`:
`ringcast_num_unacked`, or, if it only counts, `ringcast_xmit_reqs_sent_total`. Their
texts come from the declarations in status.py. The status is read when somebody asks for
the metrics, so between two times they cost nothing. A channel that is closed or
forgotten has none.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

from ringcast import aio
from ringcast.arguments import kind
from ringcast.channel.channel import Channel
from ringcast.status import ALL, Number, Status, numbers, sections

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

LABELS = ("group", "member")
ADDING = threading.Lock()               # held by a thread that adds a channel
UNITS = {"bytes": "By"}                 # of OpenTelemetry; other units are its annotations


def plain(channel: Channel | aio.Channel) -> Channel:
    """Return the channel in one for asyncio, or itself."""
    if isinstance(channel, aio.Channel):
        return channel._channel
    check("channel", channel, Channel, "a ringcast.Channel or a ringcast.aio.Channel")
    return channel


def check(argument: str, value: object, wanted: Any, words: str) -> None:
    """Raise TypeError if an argument is not of the type that is wanted."""
    if not isinstance(value, wanted):
        raise TypeError(f"{argument} is {words}, not {kind(value)}")


class Channels:
    """The channels of which somebody wants metrics, in the order in which they were
    added. It keeps none of them alive.

    Threads: who adds has ADDING; any other may read meanwhile, because a tuple is
    replaced and never changed.
    """

    def __init__(self) -> None:
        self._known: tuple[ref[Channel], ...] = ()

    def add(self, channel: Channel) -> None:
        """Add a channel, and forget those that are gone."""
        known = dict.fromkeys((*self._known, ref(channel)))
        self._known = tuple(each for each in known if each() is not None)

    def read(self) -> Iterator[tuple[dict[str, str], Status]]:
        """Yield the labels and the status of each channel that is not closed. Of
        several with the same labels only the last counts: a reader refuses all metrics
        if one is there twice."""
        alive = {(channel.group, channel.address.name): channel for each in self._known
                 if (channel := each()) is not None and not channel._state.closed}
        for (group, member), channel in sorted(alive.items()):
            yield {"group": group, "member": member}, channel.status()


def values(status: Status) -> Iterator[tuple[str, Number, int]]:
    """Yield the name, the declaration and the value of each number of a status."""
    for _, section in sections(status):
        for name, number in numbers(type(section)).items():
            yield name, number, getattr(section, name)


def declared() -> dict[str, Number]:
    """Return each number that a status may have, by name."""
    return {name: number for section in ALL for name, number in numbers(section).items()}


class Collector:
    """What a registry of prometheus_client asks for metrics."""

    def __init__(self) -> None:
        self.channels = Channels()

    def describe(self) -> list["Metric"]:
        """Return the metrics that a channel may have, without values: a reader may ask
        for some of them by name."""
        return [family(name, number) for name, number in declared().items()]

    def collect(self) -> Iterable["Metric"]:
        """Return the metrics of all channels."""
        families: dict[str, Metric] = {}
        for labels, status in self.channels.read():
            for name, number, value in values(status):
                found = families.get(name)
                if found is None:
                    found = families[name] = family(name, number)
                found.add_metric(                               # type: ignore[attr-defined]
                    [labels[each] for each in LABELS], value)
        return families.values()


def family(name: str, number: Number) -> "Metric":
    """Return the metric of a number, without values."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    kind = GaugeMetricFamily if number.falls else CounterMetricFamily
    return kind(f"ringcast_{name}", f"{number.meaning}. {number.sign}", labels=LABELS)


COLLECTORS: "WeakKeyDictionary[CollectorRegistry, Collector]" = WeakKeyDictionary()


def prometheus(channel: Channel | aio.Channel,
               registry: "CollectorRegistry | None" = None) -> None:
    """Let a registry of prometheus_client, its own one by default, ask this channel for
    metrics whenever somebody reads them. Needs the package prometheus-client."""
    from prometheus_client import REGISTRY, CollectorRegistry

    known = plain(channel)
    registry = REGISTRY if registry is None else registry
    check("registry", registry, CollectorRegistry, "a prometheus_client.CollectorRegistry")
    with ADDING:
        if registry not in COLLECTORS:
            collector = Collector()
            registry.register(collector)
            COLLECTORS[registry] = collector
        COLLECTORS[registry].channels.add(known)


METERS: "WeakKeyDictionary[Meter, Channels]" = WeakKeyDictionary()


def opentelemetry(channel: Channel | aio.Channel, meter: "Meter | None" = None) -> None:
    """Let a meter, that of the program's provider by default, observe this channel. The
    program may set its provider later. A program that passes a meter passes the same
    object for all channels: of two with one name, a provider hears the first. Needs the
    package opentelemetry-api; where the metrics go, the program's SDK decides."""
    from opentelemetry.metrics import Meter

    known = plain(channel)
    with ADDING:
        meter = default_meter() if meter is None else meter
        check("meter", meter, Meter, "an opentelemetry.metrics.Meter")
        if (channels := METERS.get(meter)) is None:
            channels = METERS[meter] = Channels()
            observe_all(meter, channels)
        channels.add(known)


@cache
def default_meter() -> "Meter":
    """Return the meter of the program's provider, always the same object. Before the
    program has set its provider, get_meter returns a new one each time."""
    from opentelemetry.metrics import get_meter

    return get_meter("ringcast")


def observe_all(meter: "Meter", channels: Channels) -> None:
    """Make the instruments for each number that a status may have."""
    for name, number in declared().items():
        make: Callable[..., object] = (meter.create_observable_gauge if number.falls
                                       else meter.create_observable_counter)
        make(f"ringcast.{name}", callbacks=[partial(observe, name, channels)],
             unit=UNITS.get(number.unit, f"{{{number.unit}}}"),
             description=f"{number.meaning}. {number.sign}")


def observe(name: str, channels: Channels,
            options: "CallbackOptions") -> Iterator["Observation"]:
    """Yield what a number is now, of each channel that has it."""
    from opentelemetry.metrics import Observation

    for labels, status in channels.read():
        for found, _, value in values(status):
            if found == name:
                yield Observation(value, {f"ringcast.{key}": text for key, text in labels.items()})
