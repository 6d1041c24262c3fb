"""receive(), iterators that end by themselves, the descriptor for selectors, and
try_send()."""

import gc
import os
import select
import threading
from itertools import islice

import pytest
from channels import PATIENCE, STACKS, joined, new_group, side_by_side, use_stack
from hypothesis import given, settings, strategies as st
from processes import wait_for

from ringcast import (
    Address,
    Batch,
    Channel,
    ClosedError,
    ConfigError,
    Flag,
    MessageTooLargeError,
    NotMemberError,
)
from ringcast.channel.bell import Bell
from ringcast.channel.inbox import Inbox

SENDER = {"A": {"deliver": False}}
A = Address("A", 1)


@pytest.fixture(params=STACKS)
def stack(request, monkeypatch):
    use_stack(monkeypatch, request.param)
    return request.param


def has(channel, count):
    """Wait until so many messages wait for the application."""
    wait_for(lambda: channel.status().delivery.num_undelivered >= count)


def is_readable(channel):
    return bool(select.select([channel], [], [], 0)[0])


# ------------------------------------------------------------------------------ one at a time

def test_receive_returns_each_message_once_and_in_order(stack):
    with joined("AB", SENDER) as (a, b):
        sent = [b"%d" % number for number in range(2000)]
        a.send_many(sent)
        assert [b.receive(PATIENCE).payload for _ in sent] == sent
        assert b.receive(0) is None


def test_receive_returns_none_when_the_time_is_up(stack):
    with joined("AB", SENDER) as (_, b):
        assert b.receive(0) is None
        assert b.receive(timeout=0.01) is None


def test_receive_that_returns_none_finishes_what_the_thread_had():
    with joined("AB", SENDER) as (a, b):
        a.send_many([b"1", b"2"])
        has(b, 2)
        assert b.receive().payload == b"1"
        assert b.receive().payload == b"2"
        assert b.digest()[a.address] == 0               # the thread may still work on it
        assert b.receive(0) is None
        wait_for(lambda: b.digest()[a.address] == 2)


def test_receive_of_a_closed_channel_returns_what_is_left_and_then_raises():
    with joined("AB", SENDER) as (a, b):
        a.send(b"last")
        has(b, 1)
        b.close(0)
        assert b.receive().payload == b"last"
        for timeout in (None, 0, 1):
            with pytest.raises(ClosedError, match="open a new one"):
                b.receive(timeout)


def test_receive_that_waits_ends_with_the_channel():
    with joined("AB", SENDER) as (_, b):
        ended = []

        def wait():
            with pytest.raises(ClosedError):
                b.receive()
            ended.append(True)

        waiting = threading.Thread(target=wait)
        waiting.start()
        wait_for(lambda: b._inbox._take_lock.locked())
        b.close(0)
        waiting.join(PATIENCE)
        assert ended


def test_receive_and_iterators_go_on_where_the_other_stands():
    with joined("AB", SENDER) as (a, b):
        a.send_many([b"%d" % number for number in range(10)])
        has(b, 10)
        got = [b.receive().payload]
        got += [message.payload for message in islice(b, 2)]
        got += [b.receive().payload, b.receive().payload]
        got += [payload for batch in b.batches(0) for payload in batch.payloads]
        assert got == [b"%d" % number for number in range(10)]


def test_the_rest_of_what_came_with_a_message_goes_to_whoever_asks():
    """T1 works on the first of 4; T2 gets the others meanwhile."""
    with joined("AB", SENDER) as (a, b):
        a.send_many([b"%d" % number for number in range(4)])
        has(b, 4)
        assert b.receive().payload == b"0"
        got = []
        other = threading.Thread(target=lambda: got.extend(
            b.receive(0).payload for _ in range(3)))
        other.start()
        other.join(PATIENCE)
        assert got == [b"1", b"2", b"3"]
        assert b.receive(0) is None                     # and the other one has ended
        wait_for(lambda: b.digest()[a.address] == 4)


def test_a_message_of_another_thread_is_not_acknowledged_while_that_works_on_it():
    with joined("AB", SENDER) as (a, b):
        a.send_many([b"1", b"2"])
        has(b, 2)
        got, works, may_end = [], threading.Event(), threading.Event()

        def work():
            got.append(b.receive().payload)
            works.set()
            may_end.wait(PATIENCE)

        worker = threading.Thread(target=work)
        worker.start()
        works.wait(PATIENCE)
        assert b.receive().payload == b"2" and b.receive(0) is None
        assert got == [b"1"] and not b._driver.finished and b.digest()[a.address] == 0
        may_end.set()
        worker.join(PATIENCE)
        assert b.receive(0) is None
        wait_for(lambda: b.digest()[a.address] == 2)


def test_several_threads_get_each_message_once(stack):
    with joined("AB", SENDER) as (a, b):
        sent = [b"%d" % number for number in range(3000)]
        got = [[], [], []]

        def work(mine):
            try:
                while True:
                    mine.append(int(b.receive().payload))
            except ClosedError:
                pass

        workers = [threading.Thread(target=work, args=(mine,)) for mine in got]
        for worker in workers:
            worker.start()
        a.send_many(sent)
        wait_for(lambda: sum(map(len, got)) == len(sent))
        assert all(mine == sorted(mine) for mine in got)
        assert sorted(sum(got, [])) == list(range(len(sent)))
        b.close()
        for worker in workers:
            worker.join(PATIENCE)


def test_a_thread_that_waits_does_not_hold_up_one_that_does_not():
    with joined("AB", SENDER) as (a, b):
        waiting = threading.Thread(target=b.receive)
        waiting.start()
        wait_for(lambda: b._inbox._take_lock.locked())
        assert b.receive(0) is None and b.receive(0.01) is None
        a.send(b"x")
        waiting.join(PATIENCE)


def test_receive_waits_for_connect_no_longer_than_it_may():
    channel = Channel(new_group(), stack="inproc")
    assert channel.receive(0.01) is None
    channel.close()


@pytest.mark.parametrize("call", [
    lambda channel: channel.receive(-1), lambda channel: channel.batches(timeout=float("nan")),
    lambda channel: channel.messages(timeout=-1)])
def test_a_wrong_timeout_raises_at_once(call):
    with Channel(new_group(), stack="inproc") as channel, pytest.raises(ConfigError):
        call(channel)


def test_a_channel_with_on_message_cannot_be_received_from():
    with Channel(new_group(), stack="inproc", on_message=print) as channel:
        for call in (channel.receive, channel.messages, channel.batches, channel.deliveries,
                     channel.fileno, lambda: iter(channel)):
            with pytest.raises(ConfigError, match="go to on_message"):
                call()


class Played:
    """An inbox whose queue the test fills, and what it has finished."""

    def __init__(self):
        self.finished, self.asker, self.filled = [], "T1", 0
        self.inbox = Inbox(lambda condition, by: None, self.finished.extend, lambda: None,
                           lambda: 1, set())
        self.inbox.asker, self.inbox.is_gone = lambda: self.asker, lambda asker: False

    def fill(self, count):
        self.inbox.put([Batch(A, self.filled + 1, [b"%d" % (self.filled + number)
                                                   for number in range(count)])])
        self.filled += count

    def num_finished(self):
        return sum(map(len, self.finished))


@settings(max_examples=200)
@given(st.lists(st.one_of(
    st.integers(1, 5).map(lambda count: ("fill", count)),
    st.sampled_from(["T1", "T2", "T3"]).map(lambda asker: ("receive", asker)),
    st.sampled_from(["T1", "T2", "T3"]).map(lambda asker: ("iterate", asker)))))
def test_whoever_asks_in_whatever_order_nothing_is_lost_repeated_or_finished_early(steps):
    """Askers receive one message, or take one from an iterator that they leave."""
    played, got, held = Played(), [], {}
    for step, what in steps:
        if step == "fill":
            played.fill(what)
            continue
        played.asker = what
        held.pop(what, None)                            # to ask is to finish
        if step == "receive":
            message = played.inbox.receive(0)
        else:
            taken, message = [], None
            if played.inbox.take(taken, 0):
                message = taken[0].hand_out()
                played.inbox.abandon(taken[0])
        if message is not None:
            got.append(message.seqno)
        if message is not None and step == "receive":   # who leaves an iterator holds nothing up
            held[what] = message.seqno
        assert played.num_finished() < min(held.values(), default=played.filled + 1)
    for asker in ("T1", "T2", "T3"):
        played.asker = asker
        while (message := played.inbox.receive(0)) is not None:
            got.append(message.seqno)
    assert got == list(range(1, played.filled + 1))


# ------------------------------------------------------------------- iterators that end

@pytest.mark.parametrize("way", ["messages", "batches", "deliveries"])
def test_an_iterator_with_a_timeout_ends_when_nothing_comes(stack, way):
    with joined("AB", SENDER) as (a, b):
        a.send_many([b"1", b"2"])
        has(b, 2)
        assert len(list(getattr(b, way)(timeout=0.01))) >= 1
        wait_for(lambda: b.digest()[a.address] == 2)    # its end has finished all
        assert list(getattr(b, way)(timeout=0)) == []


def test_an_iterator_in_a_view_ends_with_the_view_and_leaves_what_is_later(stack):
    with joined("ABC", {name: {"deliver": False} for name in "AC"}) as (a, b, c):
        view = b.view
        a.send_many([b"before"] * 3)
        has(b, 3)
        c.close()
        wait_for(lambda: b.view.id > view.id and a.view.id > view.id)
        a.send_many([b"after"] * 3)
        has(b, 6)
        before = [message.payload for message in b.messages(in_view=view)]
        assert before == [b"before"] * 3
        assert list(b.batches(in_view=view)) == []
        after = [message.payload for message in b.messages(0, in_view=b.view)]
        assert after == [b"after"] * 3


@pytest.mark.parametrize("way", ["messages", "batches", "deliveries"])
def test_an_iterator_that_waits_ends_when_the_view_changes(stack, way):
    with joined("ABC", SENDER) as (_, b, c):
        view, got = b.view, []
        reader = threading.Thread(target=lambda: got.extend(getattr(b, way)(in_view=view)))
        reader.start()
        wait_for(lambda: b._inbox._take_lock.locked())
        c.close()
        reader.join(PATIENCE)
        assert not reader.is_alive() and got == [] and set(b.view.names) == {"A", "B"}


def test_a_view_is_not_a_number():
    with Channel(new_group(), stack="inproc") as channel, \
            pytest.raises(TypeError, match="in_view is a View"):
        channel.batches(in_view=3)


# ------------------------------------------------------------------------- for selectors

def test_the_descriptor_is_readable_as_long_as_there_is_something(stack):
    with joined("AB", SENDER) as (a, b):
        assert not is_readable(b)
        a.send_many([b"%d" % number for number in range(3)])
        assert select.select([b], [], [], PATIENCE)[0] == [b]
        has(b, 3)
        for number in range(3):
            assert is_readable(b)
            assert b.receive(0).payload == b"%d" % number
        assert not is_readable(b)
        a.send(b"again")
        assert select.select([b], [], [], PATIENCE)[0] == [b]


def test_a_selector_alone_receives_a_stream(stack):
    with joined("AB", SENDER) as (a, b):
        sent, got = [b"%d" % number for number in range(5000)], []
        sender = threading.Thread(target=lambda: [a.send(payload) for payload in sent])
        sender.start()
        poll = select.poll()
        poll.register(b, select.POLLIN)
        while len(got) < len(sent):
            assert poll.poll(PATIENCE * 1000)
            while (message := b.receive(0)) is not None:
                got.append(message.payload)
        sender.join(PATIENCE)
        assert got == sent


def test_the_descriptor_is_readable_when_an_iterator_leaves_a_rest():
    with joined("AB", SENDER) as (a, b):
        a.send_many([b"1", b"2"])
        has(b, 2)
        messages = iter(b)
        next(messages)
        assert not is_readable(b)
        messages.close()
        assert is_readable(b)


def test_the_descriptor_is_readable_when_the_channel_is_closed():
    with joined("AB", SENDER) as (_, b):
        assert not is_readable(b)
        b.close(0)
        assert is_readable(b)
        with pytest.raises(ClosedError):
            b.receive(0)
        assert is_readable(b)


def test_the_descriptor_is_readable_at_once_if_there_is_something():
    with joined("AB", SENDER) as (a, b):
        a.send(b"x")
        has(b, 1)
        assert is_readable(b)


def test_two_threads_that_ask_for_the_descriptor_get_the_same():
    with Channel(new_group(), stack="inproc") as channel:
        got = []
        side_by_side([lambda: got.append(channel.fileno())] * 8)
        assert len(set(got)) == 1


def test_a_bell_that_rings_while_it_is_silenced_is_rung_again_by_who_silences(monkeypatch):
    """T1 has read the descriptor; T2 rings, and finds that it rings already. So T1
    looks again after it has silenced it."""

    played = Played()
    descriptor, read = played.inbox.fileno(), os.eventfd_read

    def read_and_put(number):
        read(number)
        played.fill(1)

    played.fill(1)
    monkeypatch.setattr(os, "eventfd_read", read_and_put)
    taken = []
    played.inbox.take(taken, 0)
    monkeypatch.undo()
    assert select.select([descriptor], [], [], 0)[0]


def test_a_bell_has_one_descriptor_which_goes_with_it():
    bell = Bell()
    for _ in range(3):
        bell.ring()
    assert select.select([bell], [], [], 0)[0]
    bell.silence()
    bell.silence()
    assert not select.select([bell], [], [], 0)[0]


def test_a_bell_that_a_collector_took_rings_in_vain():
    """The channel that it was the bell of closes then, in a thread, and rings."""
    rung = []

    class Dropped:
        def __init__(self, bell):
            self.bell, self.itself = bell, self

        def __del__(self):
            self.bell.ring()
            rung.append(self.bell)

    Dropped(Bell())
    gc.collect()
    assert rung


# -------------------------------------------------------------------------------------- try_send

def test_try_send_sends_while_there_is_room_and_never_waits(stack):
    with joined("AB", SENDER, capacity=10, max_undelivered=1) as (a, b):
        assert all(a.try_send(b"%d" % number) for number in range(10))
        assert not a.try_send(b"no room")
        assert a.status().multicast.num_unacked == 10
        got = [b.receive(PATIENCE).payload for _ in range(10)]
        assert b.receive(0) is None
        wait_for(lambda: a.try_send(b"last"))
        assert got + [b.receive(PATIENCE).payload] == [b"%d" % each for each in range(10)] + [
            b"last"]
        assert a.status().application.num_blockings == 0


def test_try_send_to_one_member_has_a_window_of_its_own(stack):
    with joined("AB", SENDER, capacity=4) as (a, b):
        assert all(a.try_send(b"%d" % number, "B") for number in range(4))
        assert not a.try_send(b"no room", b.address) and a.try_send(b"to all")
        got = [b.receive().payload for _ in range(5)]
        assert [payload for payload in got if payload != b"to all"] == [b"0", b"1", b"2", b"3"]


def test_try_send_takes_flags_and_refuses_what_send_refuses():
    with joined("AB", {"B": {"deliver": False}}) as (a, _):
        assert a.try_send(b"x", flags=Flag.DONT_LOOPBACK)
        assert a.try_send(b"x", flags=Flag.NO_RELIABILITY)
        for error, call in ((TypeError, lambda: a.try_send("text")),
                            (TypeError, lambda: a.try_send(b"x", [])),
                            (ConfigError, lambda: a.try_send(b"x", flags=1 << 9)),
                            (NotMemberError, lambda: a.try_send(b"x", "nobody")),
                            (MessageTooLargeError, lambda: a.try_send(bytes(a.max_payload + 1)))):
            with pytest.raises(error):
                call()
        assert a.try_send(bytes(a.max_payload))
    with pytest.raises(ClosedError):
        a.try_send(b"x")
