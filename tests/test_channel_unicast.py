"""Messages to one member, flags and large messages, on real threads; over both
transports."""

import random
import threading
from contextlib import contextmanager

import pytest
from channels import PATIENCE, joined, side_by_side
from ports import free_port

from ringcast import Channel, ClosedError, Flag, NotMemberError, SendTimeoutError
from ringcast.config import own_options
from ringcast.protocols.faults import Delay, Discard, Duplicate
from ringcast.protocols.unicast3 import control
from ringcast.stack import Layer, Packet


class Reader:
    """Iterates a channel on a thread of its own; keeps (sender, payload, to one, flags)
    in the order of delivery."""

    def __init__(self, channel):
        self.got = []
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self.read, args=(channel,))
        self.thread.start()

    def read(self, channel):
        for message in channel:
            with self.changed:
                self.got.append((message.sender.name, message.payload, message.dest is not None,
                                 message.flags))
                self.changed.notify_all()

    def wait(self, count):
        with self.changed:
            has_all = self.changed.wait_for(lambda: len(self.got) >= count, PATIENCE)
            assert has_all, f"{len(self.got)} of {count}"
        return self.got

    def to_me(self, sender):
        return [payload for name, payload, to_one, _ in self.got if name == sender and to_one]


@pytest.fixture(params=["inproc", pytest.param("mcast-udp", marks=pytest.mark.udp)])
def stack(request):
    return {"stack": request.param} | own_options({"port": free_port()}, request.param)


@contextmanager
def reading(names, per_member=None, **options):
    with joined(names, per_member, **options) as channels:
        readers = [Reader(channel) for channel in channels]
        try:
            yield channels, readers
        finally:
            side_by_side([channel.close for channel in channels])
            for reader in readers:
                reader.thread.join(PATIENCE)


class Closer(Layer):
    """Says CLOSE in the name of whoever sends to one member, for each of the conn-ids
    that somebody would try first."""

    def receive(self, packets, now):
        self.above.receive(packets, now)
        forged = [self.stack.control(control.CLOSE, control.Close(conn_id))
                  for conn_id in range(1, 65)]
        for sender in {packet.sender for packet in packets if packet.kind == control.MESSAGE}:
            self.above.receive([Packet(control.CLOSE, sender, packet.dest,
                                       packet.data) for packet in forged], now)


def test_the_conn_id_that_a_close_needs_is_not_guessed(stack):
    with reading("AB", {"B": {"faults": [Closer()]}}, **stack) as ((a, b), (_, to_b)):
        for number in range(10):                # each in a datagram of its own
            a.send(b"%d" % number, b.address)
            to_b.wait(number + 1)
        assert to_b.to_me("A") == [b"%d" % number for number in range(10)]


def test_messages_to_one_come_to_that_one_only_beside_those_to_everybody(stack):
    with reading("ABC", **stack) as ((a, b, _), (to_a, to_b, to_c)):
        a.send(b"to B", b.address)
        a.send(b"to all")
        a.send(b"to B by name", "B")
        a.send_many([b"1", b"2", b"3"], "B")
        a.send(b"to myself", a.address)
        b.send(b"back", "A")
        to_b.wait(6), to_a.wait(3), to_c.wait(1)
        assert to_b.to_me("A") == [b"to B", b"to B by name", b"1", b"2", b"3"]
        assert to_a.to_me("A") == [b"to myself"] and to_a.to_me("B") == [b"back"]
        assert [payload for _, payload, *_ in to_c.got] == [b"to all"]


def test_many_threads_send_to_many_members_and_each_pair_keeps_its_order(stack):
    faults = {name: {"faults": [Discard(0.02, random.Random(name)),
                                Duplicate(0.02, random.Random(name)),
                                Delay(0.02, random.Random(name), 3_000_000)]} for name in "ABC"}
    with reading("ABC", faults, capacity=100, **stack) as (channels, readers):
        def talk(channel, thread):
            for number in range(200):
                for dest in "ABC":
                    channel.send(b"%d.%d" % (thread, number), dest)

        side_by_side([lambda c=channel, t=thread: talk(c, t) for channel in channels
                      for thread in range(3)])
        for reader in readers:
            reader.wait(3 * 3 * 200)
            for sender in "ABC":
                for thread in range(3):
                    mine = [payload for payload in reader.to_me(sender)
                            if payload.startswith(b"%d." % thread)]
                    assert mine == [b"%d.%d" % (thread, number) for number in range(200)]


def test_large_messages_of_many_threads_arrive_whole(stack):
    rng = random.Random(3)
    payloads = [rng.randbytes(rng.choice([10, 70_000, 300_000])) for _ in range(24)]
    with reading("AB", per_member={"B": {"faults": [Discard(0.03, random.Random(4))]}},
                 **stack) as ((a, _), (to_a, to_b)):
        side_by_side([lambda start=start: [a.send(payload, dest) for payload in payloads[start::4]
                                           for dest in (None, "B")]
                      for start in range(4)])
        to_b.wait(48), to_a.wait(24)
        assert sorted(to_b.to_me("A")) == sorted(payloads)
        assert sorted(payload for _, payload, to_one, _ in to_b.got if not to_one) == sorted(
            payloads)
        assert sorted(payload for _, payload, *_ in to_a.got) == sorted(payloads)


def test_a_message_larger_than_a_window_goes_through_it():
    payload = random.Random(5).randbytes(1_000_000)
    with reading("AB", max_bytes=100_000) as ((a, _), (_, to_b)):
        a.send(payload, "B")
        a.send(payload)
        to_b.wait(2)
        assert [got for _, got, *_ in to_b.got] == [payload, payload]


@pytest.mark.parametrize("dest", [None, "B"])
def test_flags_travel_with_the_message_and_dont_loopback_does_not_come_back(stack, dest):
    with reading("AB", **stack) as ((a, _), (to_a, to_b)):
        a.send(b"plain", dest)
        a.send(b"oob", dest, flags=Flag.OOB)
        a.send(b"others", dest, flags=Flag.DONT_LOOPBACK)
        a.send(b"both", dest, flags=Flag.DONT_LOOPBACK | Flag.OOB)
        a.send(b"last", dest)
        to_b.wait(5)
        got = {payload: flags for _, payload, _, flags in to_b.got}
        assert got == {b"plain": 0, b"oob": Flag.OOB, b"others": 0, b"both": Flag.OOB, b"last": 0}
        if dest is None:
            to_a.wait(3)
            assert sorted(payload for _, payload, *_ in to_a.got) == [b"last", b"oob", b"plain"]
        assert a.close() == 0, "everything was acknowledged, by A as well"


def test_without_reliability_a_message_has_no_seqno(stack):
    with reading("AB", **stack) as ((a, b), (to_a, to_b)):
        sent = 0
        while not (to_b.got and to_a.got):              # one may be lost
            a.send(b"u%d" % sent, flags=Flag.NO_RELIABILITY)
            sent += 1
            with to_b.changed:
                to_b.changed.wait(0.1)
        assert {flags for *_, flags in to_b.got} == {Flag.NO_RELIABILITY}
        assert a.status().multicast.hr == 0 and b.status().unreliable.unreliable_delivered > 0


def test_nobody_can_send_to_one_who_is_not_there():
    with joined("AB") as (a, b):
        b.close()
        with pytest.raises(NotMemberError, match="not in the view|no member"):
            for _ in range(10_000):
                a.send(b"x", b.address, timeout=1)
        with pytest.raises(NotMemberError, match="no member 'B'"):
            a.send(b"x", "B")


def test_a_blocked_sender_is_told_when_its_receiver_leaves_and_the_application_what_was_lost():
    lost = []
    told = threading.Event()

    def on_undelivered(batch):
        lost.append(batch)
        told.set()

    options = {"A": {"on_undelivered": on_undelivered}}
    with joined("AB", options, capacity=4, conn_close_timeout=20) as (a, b):
        outcome = []

        def send():
            try:
                for number in range(100):
                    a.send(b"%d" % number, b.address)
            except NotMemberError as error:
                outcome.append((number, str(error)))

        sender = threading.Thread(target=send)
        sender.start()                          # B takes nothing, so A fills the window and blocks
        while a.status().application.num_blockings == 0:
            sender.join(0.01)
        b.close(0, leave=False)
        sender.join(PATIENCE)
        [(number, error)] = outcome
        assert number == 4 and "not in the view" in error
        assert told.wait(PATIENCE)
        assert [(batch.dest, batch.payloads) for batch in lost] == [(b.address,
                                                                     [b"0", b"1", b"2", b"3"])]


def test_a_full_connection_times_out_and_says_who_is_slow():
    with joined("AB", capacity=4) as (a, b):
        with pytest.raises(SendTimeoutError, match=r"B#\w+ does not acknowledge"):
            for _ in range(100):
                a.send(b"x", b.address, timeout=0.05)
        a.send(b"to all go on")
        b.close(0)


def test_closing_releases_a_sender_to_one_member():
    with joined("AB", capacity=4) as (a, b):
        errors = []

        def send():
            try:
                while True:
                    a.send(b"x", b.address)
            except (ClosedError, NotMemberError) as error:
                errors.append(error)

        sender = threading.Thread(target=send)
        sender.start()
        while a.status().application.num_blockings == 0:
            sender.join(0.01)
        a.close(0.1)
        sender.join(PATIENCE)
        assert [type(error) for error in errors] == [ClosedError]
        with pytest.raises(ClosedError):
            a.send(b"x", b.address)
        with pytest.raises(ClosedError):
            a.send(b"x", flags=Flag.NO_RELIABILITY)


def test_close_waits_until_messages_to_one_are_acknowledged():
    with reading("AB") as ((a, _), (_, to_b)):
        a.send_many([b"%d" % number for number in range(5000)], "B")
        assert a.close() == 0
        assert to_b.to_me("A") == [b"%d" % number for number in range(5000)]


def test_callbacks_get_messages_to_one_as_well():
    got = []
    done = threading.Event()

    def on_message(batch):
        got.extend((message.payload, message.dest) for message in batch)
        if len(got) == 3:
            done.set()

    with joined("AB", {"B": {"on_message": on_message}}) as (a, b):
        for payload, dest in ((b"1", "B"), (b"2", None), (b"3", b.address)):
            a.send(payload, dest)
        assert done.wait(PATIENCE)
        assert dict(got) == {b"1": b.address, b"2": None, b"3": b.address}


def test_a_member_alone_talks_to_itself():
    with Channel("alone", name="A", stack="inproc") as channel:
        for number in range(3000):
            channel.send(b"%d" % number, "A")
        got = [message.payload for _, message in zip(range(3000), channel, strict=False)]
        assert got == [b"%d" % number for number in range(3000)]


def test_views_come_to_a_callback_while_a_thread_iterates():
    """Two threads wait for something; only one of them may poll."""
    views = []
    with reading("AB", {"B": {"on_view": views.append}}) as ((a, b), (_, to_b)):
        for number in range(200):
            a.send(b"%d" % number, "B")
            to_b.wait(number + 1)
        assert to_b.to_me("A") == [b"%d" % number for number in range(200)]
        assert [len(view.members) for view in views] == [2] and b.view == views[0]


def test_a_message_that_goes_into_another_connection_than_was_tried_first_is_sent(stack):
    """Its connection was closed and nobody was told yet: the port that send() remembers
    leads to a window that takes nothing."""
    with reading("AB", xmit_interval=60_000, **stack) as ((a, b), (_, to_b)):
        for send in (a.send, lambda payload, dest: a.send_many([payload], dest)):
            before = len(to_b.got)
            a.send(b"1", b.address)
            to_b.wait(before + 1)
            with a._driver.turn:
                entry = a._endpoint.unicast.senders[b.address.incarnation]
                a._endpoint.unicast.lifecycle.close_sender(entry, 0)
            send(b"2", b.address)
            to_b.wait(before + 2)
