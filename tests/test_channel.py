"""Channels on real threads: what a program that embeds ringcast relies on, whatever the
stack. In one process."""

import itertools
import logging
import queue
import threading
import time
from contextlib import ExitStack
from random import Random

import pytest
from channels import PATIENCE, STACKS, Collector, joined, new_group, side_by_side, use_stack
from processes import wait_for

import ringcast
from ringcast import (
    MAX_PAYLOAD,
    Address,
    Channel,
    ClosedError,
    ConfigError,
    Flag,
    JoinTimeoutError,
    MessageTooLargeError,
    NotMemberError,
    SendTimeoutError,
)
from ringcast.protocols.faults import Discard, Duplicate, Shuffle
from ringcast.status import by_name


@pytest.fixture(params=STACKS, autouse=True)
def stack(request, monkeypatch):
    use_stack(monkeypatch, request.param)
    return request.param


def test_every_member_gets_what_every_member_sends():
    collectors = {name: Collector(3000) for name in "ABC"}
    with joined("ABC", {name: {"on_message": collectors[name]} for name in "ABC"}) as channels:
        sent = {channel.address.name: [b"%s%d" % (channel.address.name.encode(), k)
                                       for k in range(1000)] for channel in channels}
        side_by_side([lambda c=channel: [c.send(payload) for payload in sent[c.address.name]]
                      for channel in channels])
        for collector in collectors.values():
            assert collector.wait() == sent


def test_iterating_yields_messages_until_the_channel_is_closed():
    with joined("AB") as (a, b):
        got = []
        reader = threading.Thread(target=lambda: got.extend(b))
        reader.start()
        eater = threading.Thread(target=lambda: list(a))
        eater.start()
        a.send_many([b"%d" % k for k in range(500)])
        assert a.close() == 0
        b.close()
        reader.join(PATIENCE)
        eater.join(PATIENCE)
    assert [message.payload for message in got] == [b"%d" % k for k in range(500)]
    assert [message.seqno for message in got] == list(range(1, 501))
    assert {message.sender for message in got} == {a.address}


@pytest.mark.parametrize("dest", [None, "B"])
def test_short_lists_leave_with_what_waits_and_the_last_one_too(dest):
    collector, lists = Collector(1000), [[b"%d" % (k + part) for part in range(4)]
                                         for k in range(0, 1000, 4)]
    with joined("AB", {"A": {"deliver": False}, "B": {"on_message": collector}}) as (a, _):
        for payloads in lists:
            a.send_many(payloads, dest)
        assert collector.wait() == {"A": sum(lists, [])}


def test_close_waits_until_all_have_everything():
    collector = Collector(20_000)
    with joined("AB", {"A": {"deliver": False}, "B": {"on_message": collector}}) as (a, _):
        a.send_many([b"x" * 100] * 20_000)
        assert a.close() == 0
        assert collector.done.is_set() or collector.wait()


def test_close_tells_how_many_somebody_has_not_acknowledged(caplog):
    with joined("AB", {"A": {"deliver": False}}) as (a, b):
        with caplog.at_level(logging.WARNING, "ringcast"):
            a.send_many([b"x"] * 10)
            assert a.close(timeout=0.2) == 10
        assert a.close() == 10
        assert "10 messages" in caplog.text
        assert next(b.batches()).payloads == [b"x"] * 10


def test_everything_arrives_over_a_network_that_loses_repeats_and_reorders(stack):
    if stack == "nakack2-tcp":
        pytest.skip("without retransmission nobody asks again for what is discarded below NAKACK2")
    rng = Random(3)
    collectors = {name: Collector(9000) for name in "ABC"}
    options = {name: {"on_message": collectors[name],
                      "faults": [Discard(0.1, Random(rng.random())),
                                 Duplicate(0.05, Random(rng.random())),
                                 Shuffle(0.05, Random(rng.random()))]} for name in "ABC"}
    with joined("ABC", options, max_bundle_size=512) as channels:
        sent = {channel.address.name: [b"%d" % k for k in range(3000)] for channel in channels}
        side_by_side([lambda c=channel: c.send_many(sent[c.address.name]) for channel in channels])
        for collector in collectors.values():
            assert collector.wait() == sent
        assert sum(channel.status().multicast.xmit_rsps_sent for channel in channels) > 0


def test_decision_14_many_sending_threads_one_order_everywhere():
    collectors = {name: Collector(4000) for name in "AB"}
    with joined("AB", {name: {"on_message": collectors[name]} for name in "AB"}) as (a, b):
        side_by_side([lambda t=thread: [a.send(b"%d-%d" % (t, k)) for k in range(1000)]
                      for thread in range(4)])
        at_a, at_b = (collectors[name].wait()["A"] for name in "AB")
        assert at_a == at_b
        for thread in range(4):
            mine = [payload for payload in at_a if payload.startswith(b"%d-" % thread)]
            assert mine == [b"%d-%d" % (thread, k) for k in range(1000)]
        assert a.status().multicast.xmit_reqs_received == b.status().multicast.xmit_reqs_sent == 0


def test_a_message_waits_for_company_no_longer_than_its_delay():
    """Not until the next look for gaps, which here is a minute away."""
    collector = Collector(2)
    with joined("AB", {"A": {"deliver": False}, "B": {"on_message": collector}},
                xmit_interval=60_000, bundle_delay=400) as (a, _):
        a.send(b"first")
        a.send(b"right behind")
        assert collector.done.wait(PATIENCE / 3)


# ---------------------------------------------------------------------------------- blocked senders

def test_decision_12_a_blocked_sender_gives_up_at_its_timeout_and_burns_no_seqno():
    with joined("AB", {"A": {"deliver": False}}, capacity=10, max_undelivered=1) as (a, b):
        a.send_many([b"%d" % k for k in range(10)])
        with pytest.raises(SendTimeoutError, match="slowest to acknowledge is B"):
            a.send(b"given up", timeout=0.05)
        with pytest.raises(SendTimeoutError,
                           match="3 of 5 messages were sent|0 of 5 messages were sent"):
            a.send_many([b"given up"] * 5, timeout=0.05)
        stream = b.batches()
        got = []
        sender = threading.Thread(target=lambda: a.send(b"last"))
        sender.start()
        while b"last" not in got:
            got += next(stream).payloads
        sender.join(PATIENCE)
        assert got == [b"%d" % k for k in range(10)] + [b"last"]
        assert a.status().application.num_blockings == 3


def test_decision_12_a_blocked_sender_is_released_by_close():
    with joined("AB", {"A": {"deliver": False}}, capacity=4) as (a, _):
        a.send_many([b"x"] * 4)
        failed = []

        def blocked():
            with pytest.raises(ClosedError, match="open a new one"):
                a.send(b"y")
            failed.append(True)

        thread = threading.Thread(target=blocked)
        thread.start()
        wait_for(lambda: a.status().application.num_blocked == 1)
        a.close(timeout=0.01)
        thread.join(PATIENCE)
        assert failed


def test_decision_12_a_blocked_sender_is_released_when_the_slowest_is_taken_out():
    with joined("ABC", {"A": {"deliver": False}, "B": {"on_message": lambda batch: None}},
                capacity=4) as (a, b, c):
        view = a.view
        a.send_many([b"x"] * 4)
        sender = threading.Thread(target=lambda: a.send(b"y"))
        sender.start()
        wait_for(lambda: a.status().application.num_blockings == 1)
        b.exclude("C")
        sender.join(PATIENCE)
        assert not sender.is_alive()
        wait_for(lambda: c.view.id > view.id)           # it lives, and comes back
        assert c.fault is None


def test_a_member_that_nobody_reads_blocks_its_own_sender_and_is_told_so():
    with joined("A", capacity=8, max_undelivered=4) as (a,):
        with pytest.raises(SendTimeoutError, match="does not take its own messages"):
            for _ in range(100):
                a.send(b"x", timeout=0.05)


@pytest.mark.parametrize("stack", ["inproc", "nakack2-tcp"])
def test_a_sender_that_waits_because_a_member_is_absent_is_told_who_that_is(stack, monkeypatch):
    use_stack(monkeypatch, stack)
    options = {"A": {"on_message": lambda batch: None}, "D": {"durable": True}}
    with joined("AD", options, capacity=8) as (a, d):
        d.close(0, leave=False)
        wait_for(lambda: a.view.absent)
        with pytest.raises(SendTimeoutError, match="D is absent, and all is kept for it"):
            a.send_many([b"x"] * 100, timeout=0.1)
        assert a.slowest == "D"
        a.exclude("D")
        wait_for(lambda: a.slowest is None)


def test_a_slow_application_is_not_sent_more_than_its_window():
    with joined("AB", {"A": {"deliver": False}}, capacity=100, max_undelivered=10) as (a, b):
        with pytest.raises(SendTimeoutError, match="100 of 500"):
            a.send_many([b"x"] * 500, timeout=0.1)
        wait_for(lambda: b.status().delivery.num_undelivered > 0)
        assert b.status().delivery.num_undelivered <= 10


# ------------------------------------------------------------------------------------- the receiver

def test_decision_2_an_exception_in_a_callback_loses_nothing_and_repeats_nothing(caplog):
    got = []

    def picky(batch):
        got.extend(batch.payloads)
        if len(got) % 7:
            raise RuntimeError("seventh")

    options = {"B": {"on_message": picky}, "A": {"deliver": False}}
    with caplog.at_level(logging.ERROR, "ringcast"), joined("AB", options) as (a, b):
        for k in range(200):
            a.send(b"%d" % k)
        wait_for(lambda: len(got) == 200)
        wait_for(lambda: b.status().application.num_callback_errors > 0)
    assert got == [b"%d" % k for k in range(200)]
    assert "a callback failed" in caplog.text


def test_what_the_application_never_finished_is_never_acknowledged():
    with joined("AB", {"A": {"deliver": False}}) as (a, b):
        a.send_many([b"x"] * 10)
        stream = b.deliveries()
        assert sum(len(batch) for batch in next(stream)) == 10
        assert b.digest()[a.address] == 0
        assert a.close(timeout=0.1) == 10


def test_a_batch_is_finished_when_the_next_one_is_asked_for():
    with joined("AB", {"A": {"deliver": False}}) as (a, b):
        stream = b.deliveries()
        a.send(b"first")
        next(stream)
        a.send(b"second")
        next(stream)
        wait_for(lambda: a.status().multicast.low == 1)


def test_an_ack_waits_for_every_thread_that_took_something_earlier():
    with joined("AB", {"A": {"deliver": False}}) as (a, b):
        slow, quick = b.deliveries(), b.deliveries()
        for stream in (slow, quick):
            a.send(b"one each")
            next(stream)
        a.send(b"for whoever asks next")
        next(quick)
        assert not b._driver.finished and b.digest()[a.address] == 0
        a.send(b"and this")
        next(slow)
        wait_for(lambda: a.status().multicast.low == 2)


def test_what_an_iterator_left_behind_is_covered_by_what_is_finished_after_it():
    with joined("AB", {"A": {"deliver": False}}) as (a, b):
        a.send(b"taken, and then the loop is left")
        for _ in b.deliveries():
            break
        assert not b._driver.finished and b.digest()[a.address] == 0
        stream = b.deliveries()
        a.send(b"second")
        next(stream)
        a.send(b"third")
        next(stream)
        wait_for(lambda: a.status().multicast.low == 2)


def test_views_are_told_before_the_messages_that_follow_them():
    events = []
    done = threading.Event()
    options = {"on_view": lambda view: events.append(view.names),
               "on_message": lambda batch: (events.append("message"), done.set())}
    with joined("AB", {"A": options}) as (_, b):
        b.send(b"x")
        assert done.wait(PATIENCE)
        b.exclude("A")
    assert (set(events[0]), events[1]) == ({"A", "B"}, "message")


def test_status_has_the_texts_names():
    with joined("AB", {"A": {"deliver": False}, "B": {"deliver": False}}) as (a, _):
        a.send(b"x")
        wait_for(lambda: a.status().multicast.low == 1)
        assert {"low", "hd", "hr", "sent", "xmit_reqs_sent", "num_blockings", "num_missing",
                "view_id"} <= by_name(a.status()).keys()
        assert a.status().multicast.hr == 1


# --------------------------------------------------------------------------------------- life cycle

def test_a_channel_that_could_not_join_is_closed():
    channel = Channel(new_group(), name="A", min_members=3, stack="inproc")
    with pytest.raises(JoinTimeoutError, match="1 of the 3 members"):
        channel.connect(timeout=0.05)
    with pytest.raises(ClosedError, match="open a new one"):
        channel.connect()


def test_a_member_that_closes_waits_for_nobody_to_read_its_messages_to_itself():
    with joined("A") as (a,):
        a.send(b"never read here")
        assert a.close() == 0


def test_send_after_close_says_so():
    with joined("A", deliver=False) as (a,):
        a.close()
        for call in (lambda: a.send(b"x"), lambda: a.send_many([b"x"])):
            with pytest.raises(ClosedError, match="open a new one"):
                call()


def test_what_is_sent_before_connect_waits_for_the_first_view():
    collector = Collector(10)
    channel = Channel(new_group(), name="A", stack="inproc", on_message=collector)
    channel.send_many([b"x"] * 10)
    with channel:
        assert collector.wait() == {"A": [b"x"] * 10}


def test_iterators_end_with_the_channel():
    with joined("AB") as (a, b):
        threads = [threading.Thread(target=lambda: list(b)) for _ in range(3)]
        for thread in threads:
            thread.start()
        a.send(b"x", timeout=1)
        b.close()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()


def test_no_thread_is_left_behind():
    before = threading.active_count()
    with joined("ABC", on_message=lambda batch: None) as (a, *_):
        a.send(b"x")
    assert threading.active_count() == before


def test_a_callback_may_close_its_own_channel():
    closed = threading.Event()
    with ExitStack() as stack:
        a, = stack.enter_context(joined("A", on_message=lambda batch: (a.close(0), closed.set())))
        a.send(b"x")
        assert closed.wait(PATIENCE)


@pytest.mark.parametrize("flags", [0, Flag.NO_RELIABILITY])
def test_a_message_that_comes_while_the_driver_makes_up_its_mind_to_sleep_is_delivered(flags):
    collector = Collector(1)
    with joined("A", on_message=collector) as (a,):
        plan, todo = a._driver.plan_sleep, [b"x"]

        def send_first():
            while todo:
                a.send(todo.pop(), flags=flags)
            return plan()
        a._driver.plan_sleep = send_first
        a._transport.wake()
        collector.wait()


def test_a_layer_that_has_more_to_deliver_gets_another_turn():
    """A view must not be in one turn with the messages before it (flush.py)."""
    with joined("A") as (a,):
        endpoint, has_delivered = a._driver.endpoint, threading.Event()
        deliver = endpoint.deliver

        def deliver_and_tell(now):
            has_delivered.set()
            return deliver(now)

        def ask_for_more(now):
            endpoint.deliver = deliver_and_tell
            endpoint.stack.effects.arrived = True
        a._driver.run_in_turn(ask_for_more)
        assert has_delivered.wait(PATIENCE)


def test_a_returning_member_goes_on_where_its_digest_ends():
    group = new_group()
    a = Channel(group, name="A", min_members=2, stack="inproc", deliver=False)
    b = Channel(group, name="B", min_members=2, stack="inproc", durable=True)
    side_by_side([a.connect, b.connect])
    a.send_many([b"%d" % k for k in range(100)])
    had = next(b.batches())
    b.close(leave=False)
    a.send_many([b"%d" % k for k in range(100, 200)])
    with Channel(group, name="B", stack="inproc", durable=True,
                 resume=ringcast.Digest({a.address: 40})) as again:
        got = []
        for batch in again.batches():
            assert batch.first == 41 + len(got)
            got += batch.payloads
            if len(got) == 160:
                break
    assert len(had) == 100 and got == [b"%d" % k for k in range(40, 200)]
    a.close()


# ------------------------------------------------------------------------------------------- misuse

@pytest.mark.parametrize(("kwargs", "says"), [
    ({"stack": "carrier-pigeon"}, "choose one of"),
    ({"xmit_intervall": 5}, "did you mean 'xmit_interval'"),
    ({"cap": 5}, "did you mean 'capacity'"),
    ({"frobnicate": 5}, "the page Reference of the documentation has all options"),
    ({"capacity": 0}, "^capacity takes a whole number from 1 up to 67108864, not 0; "),
    ({"capacity": "lots"}, "^capacity takes a whole number from 1 up to 67108864, not 'lots'; "),
    ({"port": 70_000}, "^port takes a whole number from 1 up to 65535, not 70000; "),
    ({"heartbeat_interval": None}, "takes a number from 0.001 up to 86400000, not None; "),
    ({"partition": "none"}, "^partition takes `merge` or `primary`, not 'none'; "),
    ({"status_file": "no way"}, "^status_file takes `True` or `False`, not 'no way'; "),
    ({"trace": 5}, "^trace takes text, not 5; "),
    ({"xmit_interval": -1}, "xmit_interval"),
], ids=lambda value: str(value)[:30])
def test_a_wrong_argument_is_refused_with_what_to_do(kwargs, says):
    with pytest.raises(ConfigError, match=says):
        Channel("g", name="A", **({"stack": "inproc"} | kwargs))


def test_a_wrong_payload_is_refused_and_nothing_is_sent():
    with joined("A", deliver=False) as (a,):
        with pytest.raises(MessageTooLargeError, match="split it"):
            a.send(bytes(a.config.max_message_size + 1))
        with pytest.raises(MessageTooLargeError, match="NO_RELIABILITY"):
            a.send(bytes(MAX_PAYLOAD + 1), flags=Flag.NO_RELIABILITY)
        with pytest.raises(TypeError, match="encode it"):
            a.send("text")
        with pytest.raises(ConfigError, match="Flag"):
            a.send(b"x", flags=64)
        with pytest.raises(TypeError, match="name"):
            a.send(b"x", dest=7)
        for dest in ("nobody", Address("B", 7), a.address):
            with pytest.raises(NotMemberError):
                a.send(b"x", dest=dest)
        assert a.status().multicast.hr == 0


def test_a_channel_with_callbacks_cannot_be_iterated():
    with joined("A", on_message=lambda batch: None) as (a,):
        with pytest.raises(ConfigError, match="leave that out"):
            next(iter(a))


def test_nobody_excludes_itself():
    with joined("A", deliver=False) as (a,):
        with pytest.raises(ConfigError, match="closing its channel"):
            a.exclude("A")


def test_the_largest_message_arrives():
    collector = Collector(1)
    with joined("AB", {"A": {"deliver": False}, "B": {"on_message": collector}}) as (a, _):
        a.send(bytes(MAX_PAYLOAD))
        assert collector.wait() == {"A": [bytes(MAX_PAYLOAD)]}


def test_a_callback_may_answer_while_a_message_larger_than_the_window_is_sent():
    """So the window is not reserved for the fragments of a message: the thread that
    waits for that would take nothing, and so make no room."""
    collector, channels = Collector(6), []

    def answer(batch):
        if any(len(payload) > 100 for payload in batch.payloads):
            channels[0].send(b"answer", timeout=PATIENCE)

    with joined("AB", {"A": {"on_message": answer}, "B": {"on_message": collector}},
                max_bytes=1_000_000) as (a, b):
        channels.append(a)
        for _ in range(3):
            a.send(bytes(1_500_000), timeout=PATIENCE)
        assert sorted(map(len, collector.wait()["A"])) == [6] * 3 + [1_500_000] * 3


def test_nothing_stands_between_the_parts_of_a_large_message(stack):
    """Threads that send without a pause do not keep it out, either."""
    came, done, is_over = [], threading.Event(), threading.Event()

    def take(batch):
        came.extend(zip(range(batch.first, batch.last + 1), map(len, batch.payloads), strict=True))
        if batch.payloads[-1] == b"last":
            done.set()

    def flood(send):
        while not is_over.is_set():
            send()

    with joined("AB", {"A": {"deliver": False}, "B": {"on_message": take}}, max_datagram=1400,
                max_bundle_size=1400, max_bytes=200_000, capacity=128) as (a, _):
        count, size = 20, 20 * a.fragment_size
        others = [threading.Thread(target=flood, args=[send])
                  for send in (lambda: a.send(b"small"), lambda: a.send_many([b"some"] * 10))]
        for each in others:
            each.start()
        for _ in range(50):
            a.send(bytes(size), timeout=PATIENCE)
        is_over.set()
        for each in others:
            each.join(PATIENCE)
        a.send(b"last")
        assert done.wait(PATIENCE), len(came)
    assert [nbytes for _, nbytes in came].count(size) == 50
    for (before, _), (last, nbytes) in itertools.pairwise(came):
        assert last - before == (count if nbytes == size else 1)


def test_a_large_message_of_which_nothing_was_sent_waits_for_room_as_long_as_it_may():
    """It does not go by frag_timeout, which is for those of which a part was sent."""
    may_go_on, large, failed = threading.Event(), threading.Event(), []

    def take(batch):
        may_go_on.wait(PATIENCE)
        if any(len(payload) > MAX_PAYLOAD for payload in batch.payloads):
            large.set()

    with joined("AB", {"A": {"deliver": False}, "B": {"on_message": take}}, capacity=16,
                frag_timeout=20) as (a, _):
        while a.try_send(b"small"):
            pass

        def send():
            try:
                a.send(bytes(2 * MAX_PAYLOAD), timeout=PATIENCE)
            except SendTimeoutError as error:
                failed.append(error)

        sender = threading.Thread(target=send)
        sender.start()
        sender.join(0.1)
        may_go_on.set()
        sender.join(PATIENCE)
        assert not failed and large.wait(PATIENCE)


def test_a_message_says_when_it_left_and_the_same_to_everybody(stack):
    began, got = time.time_ns(), {name: {} for name in "ABC"}
    done, lost = threading.Event(), [] if stack == "nakack2-tcp" else [Discard(0.2, Random(1))]

    def taker(name):
        def take(batch):
            assert len(batch.sent_at) == len(batch) and batch.sent_at.itemsize == 8
            assert [message.sent_at for message in batch] == batch.sent_at.tolist()
            got[name].update(((str(batch.sender), seqno), sent_at)
                             for seqno, sent_at in enumerate(batch.sent_at.tolist(), batch.first))
            if all(len(each) >= 2003 for each in got.values()):
                done.set()
        return take

    with joined("ABC", {name: {"on_message": taker(name), "faults": lost if name == "B"
                               else []} for name in "ABC"}) as (a, b, _):
        a.send_many([b"x" * 50] * 1000)
        a.send(b"y" * 200_000)
        a.send(b"z", flags=Flag.OOB)
        b.send_many([b"x" * 50] * 1000)
        b.send(b"y" * 200_000)
        assert done.wait(PATIENCE), {name: len(each) for name, each in got.items()}
    assert got["A"] == got["B"] == got["C"]
    assert all(began <= sent_at <= time.time_ns() for sent_at in got["A"].values())
    assert len(set(got["A"].values())) > 2


def test_messages_to_one_and_those_without_reliability_say_when_they_left_too():
    began, arrived = time.time_ns(), queue.SimpleQueue()
    with joined("AB", {"B": {"on_message": arrived.put}}) as (a, b):
        a.send(b"to B", b.address)
        b.send(b"to itself", b.address)
        a.send(b"once", flags=Flag.NO_RELIABILITY)
        batches = [arrived.get(timeout=PATIENCE) for _ in range(3)]
    assert {batch.payloads[0] for batch in batches} == {b"to B", b"to itself", b"once"}
    assert all(began <= batch.sent_at[0] <= time.time_ns() for batch in batches)
