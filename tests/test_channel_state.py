"""State transfer over real transports."""

import logging
import pickle
import threading

import pytest
from processes import wait_for

from ringcast import Channel, ClosedError, ConfigError, StateLostError
from ringcast.stack import Layer

STACKS = ["inproc", "mcast-udp", "nakack2-tcp"]


class Replica:
    """All messages that a member has, and how it gives them to others."""

    def __init__(self, group, name, stack, *, chunk=1000, **options):
        self.got = {}
        self.calls = []
        self.chunk = chunk
        self.changed = threading.Condition()
        given = {"on_message": self.on_message, "on_view": lambda view: self.calls.append(view.id),
                 "on_state_request": self.on_state_request, "on_state": self.on_state, **options}
        self.channel = Channel(group, name=name, stack=stack, **given)

    def on_message(self, batch):
        self.calls.append("message")
        with self.changed:
            self.got.setdefault(batch.sender.name, []).extend(batch.payloads)
            self.changed.notify_all()

    def on_state_request(self):
        self.calls.append("request")
        whole = pickle.dumps(self.got)
        return [whole[at:at + self.chunk] for at in range(0, len(whole), self.chunk)]

    def on_state(self, chunks):
        self.calls.append("state")
        self.got = pickle.loads(b"".join(chunks))

    def wait_for(self, sender, count):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.got.get(sender, ())) >= count, 30)


@pytest.fixture
def replicas(request):
    made = []

    def make(*names, stack="inproc", **options):
        """Make replicas; the first is the oldest member. None forms a group of its own
        if the others are slow to answer."""
        for name in names:
            made.append(Replica(request.node.name, name, stack, min_members=len(made) + 1,
                                **options))
            made[-1].channel.connect()
        return made[-len(names):]
    yield make
    for each in made:
        each.channel.close(0)


@pytest.mark.parametrize("stack", STACKS)
def test_the_state_and_the_messages_after_it_fit(replicas, stack):
    old, _ = replicas("old", "other", stack=stack)
    stop = threading.Event()

    def send():
        number = 0
        while not stop.is_set():
            old.channel.send(b"%d" % number)
            number += 1
        numbers.append(number)
    numbers = []
    sender = threading.Thread(target=send)
    sender.start()
    try:
        old.wait_for("old", 2000)
        new, = replicas("new", stack=stack)
        new.wait_for("old", len(old.got["old"]) + 1000)
    finally:
        stop.set()
        sender.join()
    new.wait_for("old", numbers[0])
    assert new.got["old"] == [b"%d" % number for number in range(numbers[0])]


@pytest.mark.parametrize("stack", STACKS)
def test_messages_larger_than_a_window_fit_too_and_others_between_their_parts(replicas, stack):
    old, other = replicas("old", "other", stack=stack, capacity=16)
    stop = threading.Event()

    def send(size):
        while not stop.is_set():
            old.channel.send(size * (b"%d" % len(old.got["old"])))
            stop.wait(0.001)
    old.got["old"] = []
    senders = [threading.Thread(target=send, args=[size]) for size in (1, 1_000_000)]
    for sender in senders:
        sender.start()
    try:
        old.wait_for("old", 10)
        new, = replicas("new", stack=stack, capacity=16)
    finally:
        stop.set()
        for sender in senders:
            sender.join()
    for each in (old, other, new):
        each.channel.send(b"end")
    for each in (old, other, new):
        for sender in ("old", "other", "new"):
            wait_for(lambda each=each, sender=sender: b"end" in each.got.get(sender, ()))
    assert old.got == other.got == new.got


def test_the_state_comes_before_the_first_view_and_is_taken_before_it(replicas):
    old, new = replicas("old", "new")
    view = new.channel.view.id
    wait_for(lambda: len(new.calls) > 1)            # connect() may return between these two calls
    assert new.calls == ["state", view]
    wait_for(lambda: old.calls[-1] == view)         # its application may see it later than new's
    assert old.calls[-2:] == ["request", view]


@pytest.mark.parametrize("stack", STACKS)
def test_a_state_larger_than_all_windows_comes_whole(replicas, stack):
    old, = replicas("old", stack=stack, max_bytes=1 << 20, chunk=1 << 19)
    old.got["before"] = [bytes([number]) * 100_000 for number in range(100)]
    new, = replicas("new", stack=stack, max_bytes=1 << 20)
    assert new.got == old.got


def test_who_gives_a_state_hurries_when_the_other_has_much_to_hold_back(replicas):
    old, = replicas("old", state_backlog=1000)
    transfer, seen = old.channel._driver.endpoint.transfer, []
    old.channel.send(bytes(100))                        # before it gives any
    old.wait_for("old", 1)
    transfer.givings.add("this one")
    for count in (2, 3, 4):
        old.channel.send(bytes(250))
        old.wait_for("old", count)
        seen.append((transfer.passed_bytes, transfer.leisure(0)))
    assert seen == [(250, 0.5), (500, 0.0), (750, 0.0)]


def test_chunks_that_are_no_bytes_are_a_fault_of_the_giver(replicas, caplog):
    bad, _ = replicas("bad", "good")
    bad.channel._callbacks.state_calls._on_state_request = lambda: ["text"]
    new, = replicas("new")
    assert new.calls[0] == "state"
    assert "the chunks of on_state_request failed" in caplog.text


def test_another_member_gives_when_one_raises(replicas, caplog):
    def fail():
        raise ValueError("no state today")
    bad, _ = replicas("bad", "good")
    bad.channel._callbacks.state_calls._on_state_request = fail
    new, = replicas("new")
    assert new.calls[0] == "state"
    assert "no state today" in caplog.text
    assert bad.channel.status().application.num_callback_errors == 1


def test_on_state_is_called_again_when_the_giver_is_gone(replicas):
    first, second = replicas("first", "second", chunk=10)
    first.got["before"] = second.got["before"] = [b"x" * 1000]
    begun, is_closed, lost = threading.Event(), threading.Event(), []

    def endless():
        yield from [bytes(200_000)] * 2         # the first one is sent with the second
        is_closed.wait(30)

    def on_state(chunks):
        begun.set()
        try:
            new[0].got = pickle.loads(b"".join(chunks))
        except StateLostError as error:
            lost.append(str(error))
            raise
    first.channel._callbacks.state_calls._on_state_request = endless
    new = [Replica(first.channel.group, "new", "inproc", on_state=on_state, min_members=2)]
    joining = threading.Thread(target=new[0].channel.connect)
    joining.start()
    try:
        assert begun.wait(30)
        first.channel.close(0)
        is_closed.set()
        joining.join(30)
        assert len(lost) == 1 and new[0].got == second.got
    finally:
        new[0].channel.close(0)


@pytest.mark.parametrize("error", [ValueError, StateLostError])
def test_a_member_that_cannot_use_its_state_closes(replicas, caplog, error):
    def fail(chunks):
        list(chunks)
        raise error("I cannot read this")
    old, = replicas("old")
    new = Channel(old.channel.group, stack="inproc",
                  on_message=lambda batch: None, on_state=fail, min_members=2)
    with pytest.raises(ClosedError, match="on_state failed"):
        new.connect()
    assert "I cannot read this" in caplog.text and "so this channel closes" in caplog.text
    assert "another member is asked" not in caplog.text


def test_a_member_that_cannot_use_its_state_closes_although_that_cannot_be_logged(
        replicas, monkeypatch):
    log = logging.getLogger("ringcast")
    handle = log.handle

    def emit(record):
        if "on_state failed" in record.getMessage():
            raise SystemExit
        handle(record)

    old, = replicas("old")
    monkeypatch.setattr(log, "handle", emit)
    new = Channel(old.channel.group, stack="inproc", on_message=lambda batch: None,
                  on_state=lambda chunks: 1 / 0, min_members=2)
    with pytest.raises(ClosedError, match="on_state failed"):
        new.connect()


def test_an_application_that_takes_only_some_chunks_gets_the_messages_all_the_same(replicas):
    old, = replicas("old", chunk=10)
    new, = replicas("new", on_state=lambda chunks: next(chunks))
    old.channel.send(b"after")
    new.wait_for("old", 1)


def test_on_state_is_allowed_for_an_application_that_iterates(replicas):
    old, = replicas("old")
    states = []
    with Channel(old.channel.group, stack="inproc", on_state=states.extend, min_members=2) as new:
        assert len(states) == 1
        old.channel.send(b"after")
        assert next(iter(new)).payload == b"after"


@pytest.mark.parametrize(("arguments", "words"), [
    ({"on_state_request": list}, "needs on_message"),
    ({"on_state": list, "deliver": False}, "has no state")])
def test_what_does_not_fit_is_refused(arguments, words):
    with pytest.raises(ConfigError, match=words):
        Channel("g", stack="inproc", **arguments)


def test_a_callback_must_be_a_function():
    with pytest.raises(TypeError, match="on_state is a function"):
        Channel("g", stack="inproc", on_state=7)


def test_an_application_that_goes_on_when_its_state_does_not_come_does_not_keep_close(replicas):
    goes_on, begun, told = threading.Event(), threading.Event(), []

    def endless():
        yield bytes(300_000)
        yield bytes(300_000)
        goes_on.wait(30)
        yield b"second"

    def catch(chunks):
        begun.set()
        try:
            list(chunks)
        except ClosedError as error:
            told.append(error)

    replicas("A", on_state_request=endless)
    b = Replica("test_an_application_that_goes_on_when_its_state_does_not_come_does_not_keep_close",
                "B", "inproc", on_state=catch, min_members=2)
    connecting = threading.Thread(target=lambda: pytest.raises(ClosedError, b.channel.connect, 30),
                                  daemon=True)
    connecting.start()
    assert begun.wait(30)
    closing = threading.Thread(target=b.channel.close, args=(None,), daemon=True)
    closing.start()
    closing.join(30)
    goes_on.set()
    connecting.join(30)
    assert not closing.is_alive() and told


class Cut(Layer):
    """Lets nothing pass between those whose names are `apart` and all others, while
    that is not empty."""

    def __init__(self, name, names, apart):
        self.name, self.names, self.apart = name, names, apart

    def receive(self, packets, now):
        is_apart = self.name in self.apart
        if came := [packet for packet in packets
                    if not self.apart
                    or (self.names.get(packet.sender) in self.apart) == is_apart]:
            self.above.receive(came, now)


def test_who_comes_to_a_part_without_quorum_is_given_its_state(request):
    names, apart, asked = {}, set(), []

    def member(name, **options):
        channel = Channel(request.node.name, name=name, stack="inproc", partition="primary",
                          min_members=2, suspect_timeout=200, heartbeat_interval=20,
                          on_message=lambda batch: None, faults=[Cut(name, names, apart)],
                          **options)
        names[channel.address.incarnation] = name
        return channel

    old = [member(name, on_state_request=lambda name=name: asked.append(name) or [b"state"])
           for name in "ABC"]
    state = []
    new = member("X", on_state=state.extend)
    try:
        for thread in [threading.Thread(target=each.connect) for each in old]:
            thread.start()
        wait_for(lambda: all(each._endpoint.view and len(each.view) == 3 for each in old))
        apart |= {"A", "X"}
        wait_for(lambda: not old[0].view.primary)
        joining = threading.Thread(target=new.connect)
        joining.start()
        wait_for(lambda: new._endpoint.view is not None and state)
        assert asked == ["A"] and not new.view.primary
        apart.clear()
        joining.join(60)
        assert new.view.primary and state == [b"state"]
    finally:
        for each in (new, *old):
            each.close(0)
