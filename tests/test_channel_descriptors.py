"""Whatever becomes of a channel, no descriptor is left."""

import gc
import os

import pytest
from channels import STACKS, new_group

from ringcast import Channel, ConfigError, JoinTimeoutError, RingcastError


def open_files():
    gc.collect()
    return sorted(os.listdir("/proc/self/fd"))


@pytest.fixture(params=STACKS)
def stack(request):
    return request.param


@pytest.fixture
def none_left():
    """A channel opens its first descriptors once; what a test opens after this must be
    gone at its end."""
    before = open_files()
    yield
    assert open_files() == before


def test_a_channel_that_is_closed_leaves_none(stack, none_left):
    with Channel(new_group(), stack=stack) as channel:
        channel.send(b"to myself")


def test_a_channel_that_was_never_connected_leaves_none(stack, none_left):
    Channel(new_group(), stack=stack).close()


def test_a_join_that_fails_leaves_none(stack, none_left):
    with pytest.raises(JoinTimeoutError):
        Channel(new_group(), name="A", min_members=2, stack=stack).connect(0)


def test_a_constructor_that_fails_leaves_none(stack, none_left, monkeypatch):
    def fail(*args, **options):
        raise ConfigError("planted")
    monkeypatch.setattr("ringcast.stacks.Unicast3", fail)
    with pytest.raises(ConfigError, match="planted"):
        Channel(new_group(), stack=stack)


def test_a_trace_that_cannot_be_written_leaves_none(stack, none_left, tmp_path):
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(RingcastError):
        Channel(new_group(), stack=stack, trace=str(tmp_path / "file"))


@pytest.mark.parametrize("options", [
    {"group_address": "10.0.0.1"}, {"interface": "127.0.0.1/8"}, {"interface": "8.8.8.8"},
    {"interface": "192.0.2.7", "insecure": True},
], ids=lambda options: str(next(iter(options.values()))))
@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-tcp"])
def test_a_transport_that_is_refused_leaves_none(stack, none_left, options):
    if stack == "nakack2-tcp" and "group_address" in options:
        options = {"hosts": "nowhere"}
    with pytest.raises(RingcastError):
        Channel(new_group(), stack=stack, **options)
