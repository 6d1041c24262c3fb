"""Who gets what was delivered, when it is finished, and that each lock of a channel is
needed."""

import gc
import signal
import sysconfig
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice

import pytest
from channels import PATIENCE, STACKS, joined, side_by_side, use_stack

from ringcast import Address, Batch, Channel
from ringcast.channel.inbox import Inbox, Outstanding
from ringcast.channel.reentry import Alarm, LockFreeCondition, deadline_after
from ringcast.protocols import frag

A = Address("A", 1)


@pytest.fixture(params=STACKS)
def stack(request, monkeypatch):
    use_stack(monkeypatch, request.param)
    return request.param


def test_a_new_iterator_for_each_message_gets_all_in_order(stack):
    with joined("AB", {"A": {"deliver": False}}) as (a, b):
        a.send_many([b"%d" % number for number in range(10)])
        got = []

        def read():
            while (message := next(iter(b), None)) is not None:  # the eleventh time says that the
                                                                 # tenth is finished
                got.append(message.payload)

        reader = threading.Thread(target=read)
        reader.start()
        assert a.close(PATIENCE) == 0
        assert got == [b"%d" % number for number in range(10)]
        b.close()
        reader.join(PATIENCE)


@pytest.mark.parametrize("way", ["messages", "batches", "deliveries"])
def test_what_was_not_handed_out_goes_to_the_next_iterator(way):
    with joined("AB", {"A": {"deliver": False}}, stack="inproc") as (a, b):
        for part in range(5):
            a.send_many([b"%d.%d" % (part, number) for number in range(4)])
        while b.status().delivery.num_undelivered < 20:
            threading.Event().wait(0.001)
        got = []
        while len(got) < 20:
            iterator = iter(b) if way == "messages" else getattr(b, way)()
            given = next(iterator)
            batches = {"messages": [], "batches": [given], "deliveries": given}[way]
            got += [given.payload] if way == "messages" else [
                payload for batch in batches for payload in batch.payloads]
            iterator.close()
        assert got == [b"%d.%d" % (part, number) for part in range(5) for number in range(4)]


def test_what_an_iterator_was_left_with_is_not_finished_by_another_thread():
    """T1 leaves its iterator after 1 of 3; T2 has finished what came later. An ack of
    that would cover 2 and 3, which nobody has."""
    with joined("AB", {"A": {"deliver": False}}, stack="inproc") as (a, b):
        a.send_many([b"1", b"2", b"3"])
        first = iter(b)
        assert next(first).payload == b"1"
        a.send(b"4")
        while b.status().delivery.num_undelivered < 4:
            threading.Event().wait(0.001)
        other = b.deliveries()
        [batch] = next(other)                           # this thread has: 4
        assert batch.payloads == [b"4"]
        first.close()
        got = []
        thread = threading.Thread(target=lambda: got.extend(message.payload
                                                            for message in islice(b, 2)))
        thread.start()
        thread.join(PATIENCE)
        assert got == [b"2", b"3"]
        assert b.digest()[a.address] == 0   # nobody has asked for another one after any of these


def test_break_finishes_nothing_before_the_next_is_asked_for():
    with joined("AB", {"A": {"deliver": False}}, stack="inproc") as (a, b):
        a.send_many([b"1", b"2"])
        for message in b:
            assert message.payload == b"1"
            break
        gc.collect()
        assert b.digest()[a.address] == 0
        with closing(iter(b)) as messages:
            assert next(messages).payload == b"2"
            while b.digest()[a.address] == 0:           # and now it is
                threading.Event().wait(0.001)
            assert b.digest()[a.address] == 1


def test_the_rest_wakes_a_thread_that_waits():
    with joined("AB", {"A": {"deliver": False}}, stack="inproc") as (a, b):
        a.send_many([b"1", b"2"])
        messages = iter(b)
        assert next(messages).payload == b"1"
        got = []
        thread = threading.Thread(target=lambda: got.append(next(iter(b)).payload))
        thread.start()
        while not b._inbox._take_lock.locked():
            threading.Event().wait(0.001)
        messages.close()
        thread.join(PATIENCE)
        assert got == [b"2"]


def test_flags_and_send_times_stay_with_the_rest():
    batch = Batch(A, 7, [b"a", b"b", b"c"], 5, None, 2, None,
                  b"".join(each.to_bytes(8, "little") for each in (1, 2, 3)))
    inbox = inbox_of(0)
    inbox.put([batch])
    held = []
    assert inbox.take(held)
    assert held[0].hand_out().payload == b"a"
    held.pop().abandon()
    assert inbox.take(held)
    [rest] = held[0].batches
    assert (rest.first, rest.payloads, rest.flags) == (8, [b"b", b"c"], 2)
    assert (list(rest.sent_at), rest.view_id) == ([2, 3], 5)


# -------------------------------------------------------------------------------------------- locks


class Watched:
    """A lock that tells when somebody has to wait for it."""

    def __init__(self, gate):
        self.lock, self.gate = threading.Lock(), gate

    def __enter__(self):
        if not self.lock.acquire(blocking=False):
            self.gate.contended.set()
            self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()

    def acquire(self, blocking=True, timeout=-1):
        if self.lock.acquire(blocking=False):
            return True
        self.gate.contended.set()
        return blocking and self.lock.acquire()

    def release(self):
        self.__exit__()

    locked = property(lambda self: self.lock.locked)


class Removed(Watched):
    """The same without the lock."""

    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass

    def acquire(self, *_):
        return True


class Gate:
    """Put around what a lock protects: who comes first waits until somebody else has
    come too, or waits for the lock."""

    def __init__(self):
        self.contended, self.counting = threading.Event(), threading.Lock()
        self.inside = 0
        self.overlapped = False

    def around(self, call):
        def gated(*args, **kwargs):
            with self.counting:
                self.inside += 1
                if self.inside > 1:
                    self.overlapped = True
                    self.contended.set()
            try:
                assert self.contended.wait(PATIENCE)
                return call(*args, **kwargs)
            finally:
                with self.counting:
                    self.inside -= 1
        return gated


def both_look(lock, gate, monkeypatch):
    channel = Channel("alone", stack="inproc")
    channel._driver.turn = lock
    channel._multicast.digest = gate.around(channel._multicast.digest)
    side_by_side([channel.digest] * 2)
    return channel


def both_send(lock, gate, monkeypatch):
    channel = Channel("alone", stack="inproc").connect()
    channel._driver.turn = Watched(Gate())                     # the driver's turns do not count
    channel._driver.turn = lock
    thread_of_driver = channel._threads.started[0].ident
    flush = channel._multicast.flush
    gated = gate.around(flush)
    channel._multicast.flush = lambda *args, **kwargs: (
        flush if threading.get_ident() == thread_of_driver else gated)(*args, **kwargs)
    side_by_side([lambda: channel.send_many([b"x" * 50_000] * 3)] * 2)
    return channel


def both_send_large(lock, gate, monkeypatch):
    channel = Channel("alone", stack="inproc")
    channel._sending._large[None] = lock
    monkeypatch.setattr(frag, "cut", gate.around(frag.cut))
    side_by_side([lambda: channel.send(bytes(100_000))] * 2)
    return channel


def inbox_of(batches, finish=lambda batches: None):
    inbox = Inbox(lambda condition, by: None, finish, lambda: None, lambda: 1, set())
    for number in range(batches):
        inbox.put([Batch(A, number + 1, [b"%d" % number])])
    return inbox


def both_take(lock, gate, monkeypatch):
    inbox = inbox_of(2)
    inbox._take_lock = lock
    monkeypatch.setattr(Outstanding, "fill", gate.around(Outstanding.fill))
    inbox._ended = True
    side_by_side([lambda: inbox.take([])] * 2)


def both_finish(lock, gate, monkeypatch):
    inbox = inbox_of(0, gate.around(lambda batches: None))
    outstanding = []
    for number in range(2):
        inbox.put([Batch(A, number + 1, [b"x"])])
        held = []
        inbox.take(held)
        outstanding += held
    inbox._finish_lock = lock
    outstanding[0].state = Outstanding.FINISHED
    side_by_side([lambda each=each: inbox.mark_finished(each) for each in outstanding])


LOCKS = {"the turn": both_look, "the turn of senders": both_send, "large messages": both_send_large,
         "taking": both_take,
         "finishing": both_finish}


@pytest.mark.parametrize("which", LOCKS)
def test_one_thread_at_a_time(which, monkeypatch):
    gate = Gate()
    channel = LOCKS[which](Watched(gate), gate, monkeypatch)
    assert gate.contended.is_set() and not gate.overlapped
    if channel is not None:
        channel.close(0)


@pytest.mark.parametrize("which", LOCKS)
def test_without_its_lock_two_threads_meet(which, monkeypatch):
    gate = Gate()
    channel = LOCKS[which](Removed(gate), gate, monkeypatch)
    assert gate.overlapped
    if channel is not None:
        channel.close(0)


def test_a_bell_that_rings_between_the_look_and_the_sleep_is_heard():
    bell, has_changed = LockFreeCondition(), []

    def condition():
        if has_changed:
            return True
        has_changed.append(1)               # another thread changes it right after we looked ...
        bell.notify_all()                  # ... and rings before we sleep
        return False

    waiting = threading.Thread(target=bell.wait_for, args=(condition, deadline_after(None)),
                               daemon=True)
    waiting.start()
    waiting.join(PATIENCE)
    assert not waiting.is_alive()


def test_a_bell_wakes_all_who_wait_and_nobody_stays():
    bell, woken, goes = LockFreeCondition(), [], threading.Event()
    threads = [threading.Thread(target=lambda: woken.append(
        bell.wait_for(goes.is_set, deadline_after(PATIENCE)))) for _ in range(5)]
    for thread in threads:
        thread.start()
    while len(bell._waiting) < 5:
        threading.Event().wait(0.001)
    goes.set()
    bell.notify_all()
    for thread in threads:
        thread.join(PATIENCE)
    assert woken == [True] * 5 and not bell._waiting
    assert not bell.wait_for(lambda: False, deadline_after(0))


class Deaf:
    """Hears nothing, and allocates nothing."""

    def ring(self):
        pass


@pytest.mark.skipif(sysconfig.get_config_var("Py_GIL_DISABLED"),
                    reason="without the GIL the collector never runs inside an allocation")
def test_a_bell_rings_while_the_garbage_collector_lets_others_come_and_go():
    bell, allocated = LockFreeCondition(), []

    def come(phase, info):
        bell.watch(Deaf())

    before = gc.get_threshold()
    gc.callbacks.append(come)
    gc.set_threshold(1, 1, 1)               # it runs wherever memory is allocated
    try:
        for _ in range(100):
            allocated.append([])
            bell.notify_all()               # RuntimeError if it meets a change of the set
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(come)
    assert len(bell._waiting) >= 100


def test_a_signal_handler_that_outlasts_a_timeout_does_not_make_it_longer():
    alarm, late = Alarm(), threading.Event()
    rescue = threading.Timer(PATIENCE, lambda: (late.set(), alarm.ring()))
    before = signal.signal(signal.SIGALRM, lambda *_: time.sleep(0.2))
    rescue.start()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        alarm.sleep(0.1)
    finally:
        rescue.cancel()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not late.is_set()


def test_rings_before_an_alarm_is_heard_count_as_one():
    alarm = Alarm()
    alarm.ring()
    alarm.ring()
    alarm.sleep(PATIENCE)
    began = time.monotonic()
    alarm.sleep(0.01)
    assert time.monotonic() - began >= 0.01


def test_an_inbox_is_asked_for_news_while_others_take_and_finish():
    finished = []
    inbox = Inbox(lambda condition, by: None, finished.extend, lambda: None, lambda: 1, set())
    over = threading.Event()

    def take():
        taken = []
        for number in range(3_000):
            inbox.put([Batch(A, number + 1, [b"x"])])
            while not inbox.take_some(taken):
                pass
            inbox.mark_finished(taken.pop())

    def ask():
        asked = 0
        while not over.is_set():
            inbox.has_news()
            asked += 1
        return asked

    with ThreadPoolExecutor(3) as pool:
        asking = [pool.submit(ask) for _ in range(2)]
        pool.submit(take).result()
        over.set()
        assert all(each.result() for each in asking)
    assert [batch.first for batch in finished] == list(range(1, 3_001))
