"""Metrics of channels for Prometheus and OpenTelemetry."""

import asyncio
import gc
import subprocess
import sys

import pytest
from channels import joined, new_group
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest

from ringcast import Channel, aio, metrics
from ringcast.status import by_name


def samples(registry):
    """The samples of a registry: {(name, member): value}."""
    return {(sample.name, sample.labels["member"]): sample.value
            for family in registry.collect() for sample in family.samples}


def test_prometheus_is_told_every_number_of_every_channel():
    registry = CollectorRegistry()
    with joined("AB", {"A": {"deliver": False}, "B": {"deliver": False}}, stack="inproc") as (a, b):
        metrics.prometheus(a, registry)
        metrics.prometheus(b, registry)
        metrics.prometheus(b, registry)                 # a second time is one time
        a.send_many([b"x"] * 5)
        told = samples(registry)
        assert told["ringcast_hr", "A"] == 5 and told["ringcast_hr", "B"] == 0
        assert told["ringcast_num_members", "B"] == 2
        assert ("ringcast_xmit_reqs_sent_total", "A") in told
        assert len(told) == 2 * len(by_name(a.status()))
        text = generate_latest(registry).decode()
    assert f'ringcast_hr{{group="{a.group}",member="A"}} 5.0' in text
    assert "# TYPE ringcast_num_unacked gauge" in text
    assert "# HELP ringcast_hr HR of the send window" in text


def test_some_metrics_can_be_asked_for_by_name():
    registry = CollectorRegistry(auto_describe=True)    # as that of prometheus_client
    with Channel(new_group(), name="A", stack="inproc") as channel:
        metrics.prometheus(channel, registry)
        for name in ("ringcast_hr", "ringcast_xmit_reqs_sent_total"):
            assert samples(registry.restricted_registry([name])) == {(name, "A"): 0}


def test_a_channel_that_is_closed_or_forgotten_has_no_metrics():
    registry = CollectorRegistry()
    with Channel(new_group(), name="A", stack="inproc") as channel:
        metrics.prometheus(channel, registry)
        assert samples(registry)
    assert samples(registry) == {}
    del channel
    gc.collect()
    assert list(metrics.COLLECTORS[registry].channels.read()) == []


def test_of_two_channels_with_the_same_labels_the_last_that_is_open_has_metrics():
    """One joins again under its name while the other still closes, for example."""
    registry, group = CollectorRegistry(), new_group()
    with Channel(group, name="A", stack="inproc") as first:
        second = Channel(group, name="A", stack="mcast-udp")
        for channel in (first, second):
            metrics.prometheus(channel, registry)
        first.send(b"x")
        assert generate_latest(registry).decode().count("ringcast_hr{") == 1
        assert samples(registry)["ringcast_hr", "A"] == 0
        second.close()
        assert samples(registry)["ringcast_hr", "A"] == 1


def test_a_channel_that_is_added_does_not_disturb_who_reads():
    """A registry reads in a thread of its own."""
    with (Channel(new_group(), name="A", stack="inproc") as a,
          Channel(new_group(), name="B", stack="inproc") as b):
        channels = metrics.Channels()
        channels.add(a)
        reading = iter(channels._known)
        channels.add(b)
        assert len(list(reading)) == 1 and len(list(channels.read())) == 2


def test_a_registry_that_is_forgotten_is_forgotten_here_too():
    registry = CollectorRegistry()
    with Channel(new_group(), stack="inproc") as channel:
        metrics.prometheus(channel, registry)
        before = len(metrics.COLLECTORS)
        del registry
        gc.collect()
        assert len(metrics.COLLECTORS) < before


def observed(reader):
    """What a reader of OpenTelemetry has: {(name, member): (value, unit)}."""
    data = reader.get_metrics_data()
    return {} if data is None else {
        (metric.name, point.attributes["ringcast.member"]): (point.value, metric.unit)
        for resource in data.resource_metrics for scope in resource.scope_metrics
        for metric in scope.metrics for point in metric.data.data_points}


def test_opentelemetry_observes_every_number_of_every_channel(caplog):
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("ringcast")
    with joined("AB", {"A": {"deliver": False}, "B": {"deliver": False}}, stack="inproc") as (a, b):
        metrics.opentelemetry(a, meter)
        metrics.opentelemetry(b, meter)
        a.send_many([b"x"] * 5)
        told = observed(reader)
        assert told["ringcast.hr", "A"] == (5, "{seqno}")
        assert told["ringcast.send_budget", "B"][1] == "By"
        assert len(told) == 2 * len(by_name(a.status()))
    assert observed(reader) == {} and caplog.text == ""


@pytest.mark.parametrize("observe", [metrics.prometheus, metrics.opentelemetry])
def test_a_mistake_of_the_caller_raises_at_once_and_changes_nothing(observe):
    before = len(metrics.COLLECTORS), len(metrics.METERS)
    with pytest.raises(TypeError, match="channel is a ringcast.Channel or a ringcast.aio.Channel, "
                                        "not dict"):
        observe({})
    with Channel(new_group(), stack="inproc") as channel:
        for _ in range(2):                              # a second time as well
            with pytest.raises(TypeError, match=r"(registry|meter) is an? \w+.*, not Channel"):
                observe(channel, channel)
    assert (len(metrics.COLLECTORS), len(metrics.METERS)) == before


PROVIDED = """
import sys
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from ringcast import Channel, metrics

reader = InMemoryMetricReader()
channels = [Channel("group", name=name, stack="inproc") for name in "AB"]
for step in sys.argv[1:]:
    if step == "provide":
        set_meter_provider(MeterProvider([reader]))
    else:
        metrics.opentelemetry(channels[int(step)])
(scope,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
for metric in scope.metrics:
    members = [point.attributes["ringcast.member"] for point in metric.data.data_points]
    assert sorted(members) == ["A", "B"], (metric.name, members)
"""


@pytest.mark.parametrize("steps", [["provide", "0", "1"], ["0", "provide", "1"],
                                   ["0", "1", "provide"]], ids=" ".join)
def test_the_provider_may_be_set_before_and_after_channels_are_observed(steps):
    done = subprocess.run([sys.executable, "-c", PROVIDED, *steps], capture_output=True, text=True,
                          timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("stack", ["mcast-tcp", "nakack2-tcp", "inproc"])
def test_every_stack_can_be_measured(stack):
    registry = CollectorRegistry()
    channel = Channel(new_group(), stack=stack)
    metrics.prometheus(channel, registry)
    assert len(samples(registry)) == len(by_name(channel.status()))
    channel.close(0)


def test_a_channel_for_asyncio_is_measured_as_well():
    registry = CollectorRegistry()

    async def measure():
        async with aio.Channel(new_group(), name="A", stack="inproc", deliver=False) as channel:
            metrics.prometheus(channel, registry)
            await channel.send(b"x")
            return samples(registry)["ringcast_hr", "A"]

    assert asyncio.run(measure()) == 1
