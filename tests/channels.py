"""Groups of channels in one process, for the tests of channels."""

import itertools
import secrets
import threading
from contextlib import contextmanager

import pytest
from ports import WORKER, free_port

from ringcast import Channel
from ringcast.config import own_options

numbers = itertools.count()
STACKS = ["inproc", "nakack2-tcp", "mcast-tcp", *(pytest.param(stack, marks=pytest.mark.udp)
                                                  for stack in ("mcast-udp", "nakack2-udp"))]
DEFAULTS = {"stack": "inproc"}      # of the channels that joined() makes
QUICK = {"form_margin": 20, "seek_interval": 5}     # for groups that form when all are there
PATIENCE = 60                       # seconds after which a test that waits for an event has failed


def use_stack(monkeypatch, stack):
    """Use this stack, at ports of its own, for the groups of this test."""
    monkeypatch.setitem(DEFAULTS, "stack", stack)
    if stack != "inproc":
        monkeypatch.setitem(DEFAULTS, "port", free_port())


def new_group():
    """Return the name of a group that no other test, worker or run has: members that
    were killed leave their status files."""
    return f"test-{WORKER}-{next(numbers)}-{secrets.token_hex(4)}"


@contextmanager
def joined(names, per_member=None, **kwargs):
    """Yield channels of one group. Connect them side by side, and close them so.
    Options that the stack does not have are left out."""
    group = new_group()
    usual = QUICK | DEFAULTS | {"min_members": len(names)} | kwargs
    given = [usual | (per_member or {}).get(name, {}) for name in names]
    channels = [Channel(group, name=name, **own_options(options, options["stack"]))
                for name, options in zip(names, given, strict=True)]
    try:
        side_by_side([channel.connect for channel in channels])
        yield channels
    finally:
        side_by_side([channel.close for channel in channels])


def side_by_side(calls, patience=PATIENCE):
    errors = []

    def run(call):
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience)
    if errors:
        raise errors[0]


class Collector:
    """An on_message that keeps payloads by sender and can be waited for."""

    def __init__(self, expected):
        self.by_sender = {}
        self.expected = expected
        self.done = threading.Event()
        self.batches = 0

    def __call__(self, batch):
        self.batches += 1
        self.by_sender.setdefault(batch.sender.name, []).extend(batch.payloads)
        if sum(map(len, self.by_sender.values())) >= self.expected:
            self.done.set()

    def wait(self):
        assert self.done.wait(PATIENCE), {name: len(payloads) for name,
                                          payloads in self.by_sender.items()}
        return self.by_sender
