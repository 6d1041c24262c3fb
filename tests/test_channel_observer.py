"""Observers over real transports: slow applications, callbacks, what is refused."""

import threading

import pytest
from channels import DEFAULTS, PATIENCE, QUICK, STACKS, joined, new_group, use_stack
from processes import wait_for

from ringcast import Channel, ConfigError, JoinTimeoutError, Skipped

OBSERVER = {"slow": "observe", "max_undelivered": 50, "min_members": 2}
MEMBERS = {"A": {"min_members": 2}, "B": {"min_members": 2, "on_message": lambda batch: None}}
SMALL = {"capacity": 64}


@pytest.fixture(params=STACKS)
def stack(request, monkeypatch):
    use_stack(monkeypatch, request.param)
    return request.param


def drain(channel):
    """Let a thread take all that a channel gets."""
    threading.Thread(target=lambda: [None for _ in channel.batches()], daemon=True).start()


def others(channel):
    """Return whether this channel has a view of three members."""
    return lambda: len(channel.view) == 3


def test_a_group_goes_on_while_an_observer_takes_nothing_and_it_is_told_what_it_missed(stack):
    with joined("ABO", MEMBERS | {"O": OBSERVER}, **SMALL) as (a, _, o):
        wait_for(others(a))
        wait_for(others(o))
        drain(a)
        assert a.view.observers == (o.address,) and a.view.names[-1] == "O"
        a.send_many([b"%d" % number for number in range(5000)], timeout=PATIENCE)
        wait_for(lambda: not a.status().multicast.num_unacked)
        assert o.status().delivery.num_undelivered <= 50
        last, given, missed = 0, 0, 0
        for batch in o.batches(timeout=PATIENCE):
            assert batch.sender == a.address and batch.first == last + 1
            last = batch.last
            if isinstance(batch, Skipped):
                assert list(batch) == [] == batch.payloads and len(batch) == 0
                missed += batch.count
            else:
                assert batch.payloads == [b"%d" % (seqno - 1)
                                          for seqno in range(batch.first, batch.last + 1)]
                given += len(batch)
            if last == 5000:
                break
        assert given >= 50 and missed > 1000 and given + missed == 5000
        counters = o.status().multicast
        assert counters.num_skipped == missed and counters.num_skips > 0
        assert (o.status().membership.num_observers, a.status().multicast.num_skipped) == (1, 0)


def test_callbacks_are_told_in_the_order_of_the_messages():
    told, go, done = [], threading.Event(), threading.Event()

    def note(first, last):
        told.append((first, last))
        if last == 2000:
            done.set()

    def on_message(batch):
        go.wait(PATIENCE)
        note(batch.first, batch.last)

    def on_skipped(sender, first, last):
        assert sender.name == "A"
        note(first, last)

    of_observer = OBSERVER | {"on_message": on_message, "on_skipped": on_skipped}
    with joined("ABO", MEMBERS | {"O": of_observer}, **SMALL) as (a, _, o):
        wait_for(others(a))
        wait_for(others(o))
        drain(a)
        a.send_many([b"x"] * 2000, timeout=PATIENCE)
        wait_for(lambda: not a.status().multicast.num_unacked)
        go.set()
        assert done.wait(PATIENCE)
    assert [first for first, _ in told] == [1, *(last + 1 for _, last in told[:-1])]


def test_an_observer_may_send_and_is_sent_to():
    with joined("ABO", MEMBERS | {"O": OBSERVER}) as (a, _, o):
        wait_for(others(a))
        wait_for(others(o))
        o.send(b"from O")
        a.send(b"to O", "O")
        assert a.receive(PATIENCE).payload == b"from O" and a.receive(0) is None
        assert {message.payload for message in (o.receive(PATIENCE), o.receive(PATIENCE))} == {
            b"from O", b"to O"}
        assert o.receive(0) is None                     # now it has finished its own, too
        wait_for(lambda: not o.status().multicast.num_unacked)


def test_an_iterator_that_was_left_tells_nothing_twice():
    with joined("ABO", MEMBERS | {"O": OBSERVER}, **SMALL) as (a, _, o):
        wait_for(others(a))
        wait_for(others(o))
        drain(a)
        a.send_many([b"x"] * 2000, timeout=PATIENCE)
        wait_for(lambda: not a.status().multicast.num_unacked)
        last = 0
        while last < 2000:
            for batch in o.batches(timeout=PATIENCE):
                assert batch.first == last + 1
                last = batch.last
                break


def test_an_observer_alone_waits_for_others_and_says_so():
    channel = Channel(new_group(), name="O", slow="observe", **QUICK, **DEFAULTS)
    with pytest.raises(JoinTimeoutError, match="has 0 of the 1 members that min_members asks for "
                                               "besides observers, O, after 0.2 s"):
        channel.connect(0.2)


@pytest.mark.parametrize(("wrong", "sentence"), [
    ({"slow": "skip"}, 'slow is "block" or "observe", not \'skip\''),
    ({"slow": "observe", "deliver": False}, "holds nobody up; leave out slow"),
    ({"slow": "observe", "durable": True}, "leave out slow, or durable"),
    ({"on_skipped": print}, 'give slow="observe", or leave out on_skipped'),
    ({"slow": "observe", "on_state": print}, "leave out slow, or on_state_request and on_state")])
def test_what_an_observer_cannot_be_is_refused(wrong, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Channel(new_group(), **wrong, **DEFAULTS)
    with pytest.raises(TypeError, match='slow is "block" or "observe", not'):
        Channel(new_group(), slow=True, **DEFAULTS)
