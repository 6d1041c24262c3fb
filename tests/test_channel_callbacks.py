"""Whatever a callback raises, the next one follows; and an exception from elsewhere
ends a channel loudly, or not at all."""

import asyncio
import ctypes
import logging
import threading

import pytest
from channels import PATIENCE, STACKS, joined, use_stack

from ringcast import ClosedError

UGLY = [SystemExit, asyncio.CancelledError, KeyboardInterrupt, GeneratorExit, ValueError]


@pytest.fixture(params=STACKS)
def stack(request, monkeypatch):
    use_stack(monkeypatch, request.param)
    return request.param


class Raiser:
    """A callback that raises the first time, and can be waited for."""

    def __init__(self, error):
        self.error, self.got = error, []
        self.changed = threading.Condition()

    def __call__(self, argument):
        with self.changed:
            self.got.append(argument)
            self.changed.notify_all()
        if len(self.got) == 1:
            raise self.error

    def wait(self, condition):
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self.got), PATIENCE), self.got


def payloads(batches):
    return [payload for batch in batches for payload in batch.payloads]


@pytest.mark.parametrize("error", UGLY)
def test_on_message_may_raise_anything(stack, error, caplog):
    raiser = Raiser(error)
    with joined("AB", {"A": {"deliver": False}, "B": {"on_message": raiser}}, capacity=4) as (a, b):
        a.send(b"0")
        raiser.wait(bool)
        for number in range(1, 20):
            a.send(b"%d" % number, timeout=PATIENCE)    # more than a window
        raiser.wait(lambda got: len(payloads(got)) == 20)
        assert payloads(raiser.got) == [b"%d" % number for number in range(20)]
        assert b.status().application.num_callback_errors == 1 and b.fault is None
        assert a.close() == 0
    assert "a callback failed" in caplog.text


@pytest.mark.parametrize("error", UGLY)
def test_on_view_may_raise_anything(error):
    raiser = Raiser(error)
    with joined("ABC", {"A": {"on_view": raiser}}, stack="inproc") as (a, b, c):
        c.close()
        raiser.wait(lambda got: got and len(got[-1]) == 2)
        b.close()
        raiser.wait(lambda got: len(got[-1]) == 1)
        assert a.status().application.num_callback_errors == 1 and a.fault is None


@pytest.mark.parametrize("error", UGLY)
def test_on_undelivered_may_raise_anything(error):
    raiser = Raiser(error)
    with joined("ABC", {"A": {"on_undelivered": raiser}}, stack="inproc") as (a, b, c):
        for number, other in enumerate((b, c), 1):
            a.send(b"to one", other.address)
            other.close(0, leave=False)
            raiser.wait(lambda got, number=number: len(got) == number)
        assert [batch.dest for batch in raiser.got] == [b.address, c.address]
        assert a.status().application.num_callback_errors == 1 and a.fault is None


def throw(error, thread):
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident),
                                               ctypes.py_object(error))


@pytest.mark.parametrize("role", ["callbacks", "driver"])
def test_an_exception_thrown_into_a_thread_of_the_channel_halts_it_loudly(role, caplog):
    with joined("AB", {"B": {"on_view": print}}, stack="inproc") as (a, b):
        [thread] = [thread for thread in b._threads.started if thread.name.endswith(role)]
        while thread.is_alive():    # it may hit a callback, which may raise anything: then again
            throw(SystemExit, thread)
            b._transport.wake()
            a.send(b"something to do")
            b._callbacks._calls.put((print, "something to do"))
            thread.join(PATIENCE / 10)          # a second one may not hit what reports the first
        assert "failed" in b.fault
        with pytest.raises(ClosedError, match="failed"):
            b.send(b"more")
    assert "SystemExit" in caplog.text


def test_a_channel_whose_thread_failed_halts_although_that_cannot_be_logged(monkeypatch):
    def emit(record):
        raise SystemExit

    with joined("A", {"A": {"on_view": print}}, stack="inproc") as (a,):
        monkeypatch.setattr(logging.getLogger("ringcast"), "handle", emit)
        with pytest.raises(SystemExit):
            a._callbacks.on_thread_error(RuntimeError("what came from elsewhere"))
        monkeypatch.undo()
        assert "failed" in a.fault


def interrupted(channel, name, error):
    """Let a method of this object raise once, as a signal handler would in the middle
    of it."""
    original = getattr(channel, name)

    def interrupt(*args, **kwargs):
        setattr(channel, name, original)
        original(*args, **kwargs)
        raise error

    setattr(channel, name, interrupt)


def stop_driver(channel):
    """From now on only who iterates has turns."""
    channel._driver.poller.stop()
    channel._threads.started[0].join(PATIENCE)
    channel._driver.poller._stopped = False


def test_an_iterator_that_is_interrupted_while_it_waits_goes_on(stack):
    with joined("AB") as (a, b):
        stop_driver(b)
        interrupted(b._transport, "links", KeyboardInterrupt)   # right behind the poll
        b._transport.wake()
        with pytest.raises(KeyboardInterrupt):
            next(iter(b))
        assert b.fault is None
        b._threads.start(b._driver.poller.run_driver, "driver")
        a.send_many([b"1", b"2", b"3"])
        messages = iter(b)
        assert [next(messages).payload for _ in range(3)] == [b"1", b"2", b"3"]


def test_an_iterator_that_is_interrupted_behind_a_poll_misses_nothing(stack):
    """What the poll brought is lost, and over TCP nobody would repeat it."""
    with joined("AB") as (a, b):
        stop_driver(b)
        poll, is_hit = b._transport.poll, []

        def poll_and_interrupt(*args):
            came = [bytes(each) for each in poll(*args)]
            if any(b"payload" in each for each in came) and not is_hit:
                is_hit.append(True)
                interrupted(b._transport, "links", KeyboardInterrupt)
            return came

        b._transport.poll = poll_and_interrupt
        a.send_many([b"payload 1", b"payload 2"])
        with pytest.raises(KeyboardInterrupt):
            next(iter(b))
        b._threads.start(b._driver.poller.run_driver, "driver")
        assert [b.receive(PATIENCE).payload for _ in range(2)] == [b"payload 1", b"payload 2"]
        assert b.fault is None


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_iterator_that_is_interrupted_in_a_turn_acknowledges_nothing_that_it_lost(stack, error):
    with joined("AB", {"A": {"deliver": False}}) as (a, b):
        taken = []

        def iterate():
            with pytest.raises(error):
                for message in b:
                    taken.append(message.payload)
                    if len(taken) == 1:
                        stop_driver(b)
                        # what it had taken out of the window is lost
                        interrupted(b._endpoint.stack, "deliver", error)
                        a.send(b"2")

        a.send(b"1")
        thread = threading.Thread(target=iterate)
        thread.start()
        thread.join(PATIENCE)
        assert not thread.is_alive() and taken == [b"1"]
        assert error.__name__ in b.fault
        with pytest.raises(ClosedError, match=error.__name__):
            b.send(b"3")
        b._threads.start(b._driver.poller.run_driver, "driver")
        assert [message.payload for message in b] == []
        assert b.digest().get(a.address, 0) <= 1
