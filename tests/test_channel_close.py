"""close() ends in time, and what it and on_undelivered say is so."""

import logging
import random
import threading
import time

import pytest
from channels import PATIENCE, STACKS, Collector, joined, side_by_side, use_stack

from ringcast import ClosedError
from ringcast.protocols.faults import Discard


@pytest.fixture(params=STACKS)
def stack(request, monkeypatch):
    use_stack(monkeypatch, request.param)
    return request.param


class Hangs:
    """A callback that does not return before it may."""

    def __init__(self):
        self.called, self.may_return = threading.Event(), threading.Event()
        self.got = []

    def __call__(self, argument):
        self.got.append(argument)
        self.called.set()
        self.may_return.wait(PATIENCE)


def test_a_callback_that_hangs_does_not_keep_close(stack, caplog):
    hangs = Hangs()
    with joined("AB", {"A": {"deliver": False}, "B": {"on_message": hangs}}, leave_timeout=500) as (
            a, b):
        a.send(b"1")
        assert hangs.called.wait(PATIENCE)
        a.send(b"2", b.address)
        closed = threading.Event()

        def close():
            b.close(0.5)
            closed.set()

        threading.Thread(target=close, daemon=True).start()
        try:
            assert closed.wait(PATIENCE / 2), "it waits for the callback"
            [thread] = [each for each in b._threads.started if each.is_alive()]
            assert thread.daemon and "callbacks" in thread.name
            assert b.digest().get(a.address, 0) == 0                    # not acknowledged
        finally:
            hangs.may_return.set()
        thread.join(PATIENCE)
        assert len(hangs.got) == 1                      # no callback follows close()
    assert "does not end; what it was given is not acknowledged" in caplog.text


def test_after_an_exclusion_close_waits_for_the_living_only(stack):
    lost = Collector(3)
    options = {"A": {"on_undelivered": lost, "deliver": False}, "B": {"on_message": Collector(1)}}
    with joined("ABC", options, leave_timeout=30_000) as (a, b, c):
        a.send_many([b"1", b"2", b"3"], c.address)
        a.send(b"to all")
        c.close(0, leave=False)
        assert lost.wait() == {"A": [b"1", b"2", b"3"]}  # at once: conn_close_timeout is never
                                                         # waited for here
        assert a.status().unicast.unicast_unacked == 0
        assert a.close(None) == 0                   # for ever, if there were anything to wait for


def test_who_closes_is_shown_no_view_without_the_messages_before_it(stack):
    hangs, views = Hangs(), []
    options = {"B": {"on_message": Collector(9), "on_view": views.append},
               "C": {"on_message": hangs}, "A": {"deliver": False}, "D": {"deliver": False}}
    with joined("ABCD", options, leave_timeout=10 * PATIENCE * 1000) as (a, b, c, d):
        b.send(b"1")                                    # C does not finish it, so B waits
        assert hangs.called.wait(PATIENCE)
        closing = threading.Thread(target=b.close, args=(None,), daemon=True)
        closing.start()
        while b._endpoint.leaving is None:
            threading.Event().wait(0.001)
        a.send(b"2")                                    # before the next view, and not to B
        d.close()
        while "D" in b.view:
            threading.Event().wait(0.001)
        hangs.may_return.set()
        closing.join(PATIENCE)
        assert not closing.is_alive() and "D" in views[-1]


def test_what_was_lost_is_told_before_close_returns():
    for number in range(20):
        told = []
        with joined("AB", {"A": {"on_undelivered": told.append}}, stack="inproc") as (a, b):
            a.send(b"%d" % number, b.address)
            a.exclude("B")
            assert a.close() == 0
            assert [batch.payloads for batch in told] == [[b"%d" % number]]


@pytest.mark.prove
def test_when_all_close_at_once_under_loss_nothing_that_all_have_is_reported(stack, caplog):
    caplog.set_level(logging.WARNING, "ringcast")
    rng = random.Random(7)
    for _ in range(3):
        collectors = {name: Collector(120) for name in "ABC"}
        options = {name: {"on_message": collectors[name],
                          "faults": [Discard(0.25, random.Random(rng.random()))]} for name in "ABC"}
        if stack.endswith("tcp"):
            # what is lost below TCP, TCP repeats
            options = {name: {"on_message": collectors[name]} for name in "ABC"}
        with joined("ABC", options, leave_timeout=5000) as channels:
            def talk(channel, dest):
                for number in range(30):
                    channel.send(b"%d" % number)
                    channel.send(b"%d" % number, dest)

            side_by_side([lambda c=c, d=d: talk(c, d) for c,
                          d in zip(channels, "BCA", strict=True)])
            for collector in collectors.values():
                collector.wait()
            unacked = {}
            side_by_side([lambda c=c, unacked=unacked: unacked.update({c.address.name: c.close(30)})
                          for c in channels])
        assert unacked == {"A": 0, "B": 0, "C": 0}
    assert "acknowledged" not in caplog.text


def test_two_threads_may_close_at_once_and_one_of_them_does(stack, monkeypatch):
    with joined("AB") as (a, _):
        times = []
        leave = a._closing._leave
        monkeypatch.setattr(a._closing, "_leave", lambda: (times.append(1), leave()))
        barrier = threading.Barrier(8)
        side_by_side([lambda: (barrier.wait(), a.close())] * 8)
        assert times == [1] and a._state.closed


def test_who_closes_in_more_of_a_hurry_shortens_the_wait():
    with joined("AB", {"A": {"deliver": False}}, stack="inproc") as (a, b):
        a.send(b"nobody reads this")
        unacked = []
        patient = threading.Thread(target=lambda: unacked.append(a.close(None)))
        patient.start()
        while not a._state.closing:
            time.sleep(0)
        assert a.close(0) == 1
        patient.join(PATIENCE)
        assert unacked == [1]
        with pytest.raises(ClosedError):
            a.send(b"more")
        assert b.fault is None


def test_a_thread_whose_transport_was_closed_under_it_reports_no_fault(caplog):
    """A thread of the application may still be in a turn, and close() does not wait for
    it."""
    with joined("A") as (channel,):
        channel._closing.halt(None)
        channel._closing.on_poll_error(ClosedError("this transport is closed"), polling=False)
        assert channel._state.fault is None
    assert "failed" not in caplog.text


@pytest.mark.parametrize("deliver", [True, False])
def test_close_returns_once_the_others_know(stack, deliver):
    with joined("AB", {"A": {"deliver": deliver}}, leave_timeout=10 * PATIENCE * 1000) as (a, b):
        a.send(b"1")
        assert b.receive(PATIENCE).payload == b"1" and b.receive(timeout=0) is None
        closing = threading.Thread(target=a.close, daemon=True)
        closing.start()
        closing.join(PATIENCE)
        assert not closing.is_alive()


@pytest.mark.parametrize("part", ["_sending", "_threads", "_transport", "_publishing"])
def test_a_step_that_fails_does_not_keep_close(stack, caplog, part):
    with joined("AB") as (a, b):
        broken = getattr(a._closing, part)
        name = "join" if part == "_threads" else "close"
        step = getattr(broken, name)

        def fail(*args):
            monkey.undo()
            step(*args)
            raise RuntimeError("this step fails")

        with pytest.MonkeyPatch.context() as monkey:
            monkey.setattr(type(broken), name, fail)
            assert a.close(PATIENCE) == 0
        assert a._state.closed and "a step of closing failed" in caplog.text


def test_close_in_a_callback_and_outside_do_not_wait_for_each_other(stack):
    begun, closed = threading.Event(), threading.Event()

    def close_too(batch):
        begun.set()
        while not a._state.closing:
            threading.Event().wait(0.001)
        a.close(None)
        closed.set()

    with joined("A", {"A": {"on_message": close_too}}) as (a,):
        a.send(b"1")
        assert begun.wait(PATIENCE)
        closing = threading.Thread(target=a.close, args=(None,), daemon=True)
        closing.start()
        closing.join(PATIENCE)
        assert not closing.is_alive() and closed.wait(PATIENCE)


def test_a_later_close_shortens_the_wait_for_a_callback_that_hangs(stack, caplog):
    hangs = Hangs()
    with joined("A", {"A": {"on_message": hangs}}) as (a,):
        a.send(b"1")
        assert hangs.called.wait(PATIENCE)
        first = threading.Thread(target=a.close, args=(None,), daemon=True)
        first.start()
        while not a._state.stopped:
            threading.Event().wait(0.001)
        a.close(0)
        first.join(PATIENCE)
        assert not first.is_alive() and "does not end" in caplog.text
        hangs.may_return.set()


def test_a_closed_channel_cannot_be_entered_again(stack):
    with joined("A") as (a,):
        a.close()
        with pytest.raises(ClosedError, match="open a new one"), a:
            pass
