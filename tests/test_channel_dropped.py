"""A channel that is dropped without close(): a warning, and it leaves its group."""

import gc
import os
import threading
import time
import warnings
import weakref

import pytest
from channels import PATIENCE, STACKS, new_group, side_by_side

from ringcast import Channel

pytestmark = pytest.mark.parametrize("stack", STACKS)


def drop(channels):
    """Forget the last channel of a list; return the warnings about it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        known = weakref.ref(channels[-1])
        name = channels.pop()._threads.name
        deadline = time.monotonic() + PATIENCE
        while known() is not None:                      # its driver may be in the middle of a turn
            assert time.monotonic() < deadline, "somebody still holds it"
            gc.collect()
        for thread in threading.enumerate():
            if thread.name.startswith(name):
                thread.join(PATIENCE)
                assert not thread.is_alive()
    return [str(each.message) for each in caught if each.category is ResourceWarning
            and "dropped" in str(each.message)]


def descriptors():
    return sorted(os.listdir("/proc/self/fd"))


def wait_until_open_are(before):
    """Wait until these descriptors are open, and no others."""
    for _ in range(1000 * PATIENCE):
        if descriptors() == before:
            break
        threading.Event().wait(0.001)
    assert descriptors() == before


@pytest.mark.parametrize("how", ["iterator", "callbacks"])
def test_a_dropped_channel_warns_and_leaves_its_group(stack, how):
    group, left = new_group(), threading.Event()
    options = {} if how == "iterator" else {"on_message": lambda batch: None}

    def on_view(view):
        if view.names == ("A",):
            left.set()
    a = Channel(group, name="A", min_members=2, stack=stack, on_view=on_view,
                on_message=lambda batch: None)
    others = [Channel(group, name="B", min_members=2, stack=stack, **options)]
    side_by_side([a.connect, others[0].connect])
    others[0].send(b"last words")
    said = drop(others)
    assert len(said) == 1 and "B#" in said[0] and "dropped without close()" in said[0]
    assert left.wait(PATIENCE)
    a.send(b"on")
    assert a.close() == 0


def test_a_dropped_channel_leaves_no_descriptor(stack):
    Channel(new_group(), stack=stack).close()
    gc.collect()
    before = descriptors()
    for connected in (False, True):
        channels = [Channel(new_group(), stack=stack)]
        if connected:
            channels[0].connect()
        assert len(drop(channels)) == 1
        wait_until_open_are(before)


def test_a_channel_that_failed_and_is_in_a_cycle_is_closed_without_an_error(stack, caplog):
    """A collector takes it with its sockets, whose finalizers close them. The thread
    that closes the channel begins after that."""
    before = descriptors()
    names, group = "AB", new_group()
    channels = [Channel(group, name=name, min_members=2, stack=stack) for name in names]
    side_by_side([each.connect for each in channels])
    for each in channels:
        each._halt("its disk is full")
        each._threads.join(lambda: None, set())
        each.itself = each
    del each
    while channels:
        assert len(drop(channels)) == 1
    wait_until_open_are(before)
    assert "a step of closing failed" not in caplog.text


def test_a_closed_channel_does_not_warn(stack):
    channels = [Channel(new_group(), stack=stack).connect()]
    channels[0].close()
    assert drop(channels) == []
