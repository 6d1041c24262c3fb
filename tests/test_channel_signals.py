"""close(), status() and send() in a signal handler, whatever it interrupts: they
answer, raise a sentence, or are done soon after."""

import subprocess
import sys
import threading
from contextlib import suppress
from itertools import islice

import pytest
from channels import PATIENCE, STACKS, joined, use_stack

from ringcast import Channel, ClosedError, Message, RingcastError
from ringcast.status import Status

# A process whose main thread does one thing with a channel all the time. A second
# thread sends it a signal as soon as the handler of the one before has run; the last of
# them closes the channel.
PROGRAM = """
import random, signal, sys, threading
from ringcast import Channel, ClosedError, RingcastError
from ringcast.config import own_options

stack, port, doing = sys.argv[1], int(sys.argv[2]), sys.argv[3]
place = own_options({"port": port}, stack)
rng = random.Random(doing)
refused = handled = 0
done = threading.Semaphore(0)

def main(number):
    global handled, refused
    names, group = ("A", "B"), f"signals-{number}"
    a, b = (Channel(group, name=name, min_members=2, stack=stack, bundle_delay=0.05,
                    capacity=256, **place) for name in names)
    others = threading.Thread(target=b.connect)
    others.start()
    a.connect()
    others.join()

    def drain(channel):
        for message in channel:
            pass

    def chat(channel):
        try:
            while True:
                channel.send(b"x" * 50)
        except ClosedError:
            pass

    helpers = [threading.Thread(target=target, args=(b,), daemon=True) for target in (drain, chat)]
    if doing != "iterate":
        helpers.append(threading.Thread(target=drain, args=(a,), daemon=True))
    for helper in helpers:
        helper.start()

    def look(*_):
        global refused, handled
        handled += 1
        assert a.status().multicast.num_unacked >= 0
        assert a.digest() is not None
        for kwargs in ({}, {"dest": "B"}, {"flags": 4}):
            try:
                a.send(b"from a handler", timeout=30, **kwargs)
            except RingcastError as error:
                assert "signal handler" in str(error) or isinstance(error, ClosedError), error
                refused += 1
        done.release()

    def end(*_):
        a.close()
        done.release()

    signal.signal(signal.SIGUSR1, look)
    signal.signal(signal.SIGTERM, end)
    count = rng.randint(5, 40)

    def disturb():
        me = threading.main_thread().ident
        for _ in range(count):
            signal.pthread_kill(me, signal.SIGUSR1)
            done.acquire()
        signal.pthread_kill(me, signal.SIGTERM)
        signal.pthread_kill(me, signal.SIGTERM)         # nobody is patient
        done.acquire()

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        while not a._state.closed:
            if doing == "send":
                a.send(b"y" * rng.choice((10, 1000, 100_000)))
            elif doing == "send to one":
                a.send(b"y" * rng.choice((10, 1000)), "B")
            elif doing == "iterate":
                for message in a:
                    pass
            elif doing == "look":
                a.status()
            elif doing == "close":
                if handled > count // 2:
                    a.close()
    except ClosedError:
        pass
    while disturber.is_alive():     # a signal that comes right before a wait is handled after it
        disturber.join(0.05)
    unacked = a.close()
    others = threading.Thread(target=b.close)
    others.start()
    others.join()
    for helper in helpers:
        helper.join()
    return unacked

for number in range(int(sys.argv[4])):
    print(main(number))
print(handled, refused, "done")
"""


@pytest.mark.parametrize("doing", ["send", "send to one", "iterate", "look", "close"])
@pytest.mark.parametrize("stack", STACKS)
def test_a_handler_may_come_at_any_time(stack, doing, monkeypatch):
    use_stack(monkeypatch, stack)
    from channels import DEFAULTS
    program = subprocess.run([sys.executable, "-X", "faulthandler", "-c", PROGRAM, stack,
                              str(DEFAULTS.get("port", 0)), doing, "2"],
                             capture_output=True, text=True, timeout=3 * PATIENCE, check=False)
    assert program.returncode == 0, program.stderr
    assert program.stdout.split()[-1] == "done", program.stderr
    assert "Traceback" not in program.stderr, program.stderr


class Once:
    """Calls `body` in the middle of a method of `owner`, the first time that this
    thread comes there."""

    def __init__(self, owner, name, body):
        self.original, self.body, self.thread, self.outcome = getattr(owner, name), body, None, []
        self.done = threading.Event()
        setattr(owner, name, self)

    def __call__(self, *args, **kwargs):
        if threading.get_ident() == self.thread:
            self.thread = None
            try:
                self.outcome.append(self.body())
            except RingcastError as error:
                self.outcome.append(error)
            self.done.set()
        return self.original(*args, **kwargs)


BODIES = {
    "status": lambda a: a.status(), "digest": lambda a: a.digest(), "send": lambda a: a.send(b"2"),
    "send to one": lambda a: a.send(b"2", "B"),
    "send a large one": lambda a: a.send(bytes(200_000)),
    "send_many": lambda a: a.send_many([b"2"]), "exclude": lambda a: a.exclude("B"),
    "iterate": lambda a: next(iter(a)),
    "close": lambda a: a.close(), "close and wait": lambda a: a.close(None)}
ANSWERS = {"status": Status, "digest": dict, "send": type(None), "close": int,
           "close and wait": int}
PLACES = {"in a turn": ("_end_turn", "send"), "in a poll": ("_poll", "iterate"),
          "while it takes": ("take_some", "iterate"),
          "while it opens a window": ("_open_window", "to one"),
          "while it looks": ("describe", "status")}


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("stack", ["inproc", "mcast-tcp"])
def test_a_handler_that_interrupts_a_call_of_the_channel_never_waits_for_it(stack, place, body,
                                                                            monkeypatch):
    use_stack(monkeypatch, stack)
    method, doing = PLACES[place]
    with joined("AB") as (a, b):
        owner = {"_end_turn": a._driver, "_poll": a._driver.poller, "take_some": a._inbox,
                 "_open_window": a._sending, "describe": a._endpoint.stack}[method]
        once = Once(owner, "_turn" if method == "_poll" else method, lambda: BODIES[body](a))

        def act():
            once.thread = threading.get_ident()
            if place != "in a poll":
                b.send(b"to A")
            try:
                {"send": lambda: a.send(b"1"), "iterate": lambda: next(iter(a), None),
                 "to one": lambda: a.send(b"1", "B"),
                 "status": a.status}[doing]()
            except RingcastError:
                assert a._state.closing

        thread = threading.Thread(target=act, daemon=True)
        thread.start()
        if place == "in a poll":                        # it polls as long as nothing comes
            assert once.done.wait(PATIENCE), "it waits for itself"
            with suppress(RingcastError):
                b.send(b"to A")
        thread.join(PATIENCE)
        assert not thread.is_alive(), "it waits for itself"
        [outcome] = once.outcome
        if body in ANSWERS and not (body == "send" and isinstance(outcome, RingcastError)):
            assert isinstance(outcome, ANSWERS[body])
        elif not isinstance(outcome, Message):
            assert "signal handler" in str(outcome)
        if "close" in body:
            reader = threading.Thread(target=lambda: list(b))
            reader.start()
            assert a.close() == 0                       # this one waits
            assert a._state.closed
            while len(b.view) > 1:
                threading.Event().wait(0.001)
            b.close()
            reader.join(PATIENCE)
        elif body == "send" and doing == "send":
            got = [message.payload for message in islice(b, 3)]
            assert [payload for payload in got if payload != b"to A"] == [b"1", b"2"]


def test_a_handler_may_close_before_a_thread_has_started(monkeypatch):
    """The thread that closes does not wait for one that starts only when the handler is
    over, and that one ends at once."""
    channel = Channel("g", name="A", stack="inproc")
    start, late = threading.Thread.start, []

    def interrupted(thread):
        if not thread.name.endswith("driver"):
            return start(thread)
        late.append(thread)
        channel.close(None)
        for other in threading.enumerate():
            if other.name.endswith("closing"):
                other.join(PATIENCE)
        assert channel._state.closed
        return start(thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(ClosedError, match="while it joined"):
        channel.connect()
    late[0].join(PATIENCE)
    assert not late[0].is_alive()
