"""What several threads share in a transport is used under its lock only."""

import gc
import threading
from functools import partial

import pytest
from guarded import GuardedDict, guard

from ringcast.address import EVERYONE
from ringcast.errors import ClosedError
from ringcast.transport import inproc
from ringcast.transport.inproc import InprocTransport
from ringcast.transport.lifetime import RefCountedTransport


class Lent(RefCountedTransport):
    """Something that threads enter, and that must be given back once."""

    def __init__(self):
        super().__init__()
        self.releases = self.wakes = 0

    def wake(self):
        self.wakes += 1

    def _close_sockets(self):
        self.releases += 1

    def begin(self):
        use = object()
        self._begin_use(use)
        return use

    def end(self, use):
        self._uses.discard(use)
        self._close_if_unused()


def test_what_threads_share_of_a_transport_is_counted_under_its_lock():
    lent = Lent()
    guarded = guard(lent, lent._lock, "_closed", "_is_released")
    uses = [lent.begin(), lent.begin()]
    lent.end(uses[0])
    lent.close()
    lent.close()
    assert (lent.wakes, lent.releases) == (1, 0)
    lent.end(uses[1])
    assert lent.releases == 1 and guarded.uses >= 2
    with pytest.raises(ClosedError):
        lent.begin()


def test_the_sockets_go_once_however_many_threads_leave_and_close_at_once():
    for _ in range(50):
        lent, start = Lent(), threading.Barrier(4)
        leave = [partial(lent.end, lent.begin()) for _ in range(2)]

        def act(what, start=start):
            start.wait()
            what()
        threads = [threading.Thread(target=act, args=(what,))
                   for what in (*leave, lent.close, lent.close)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert lent.releases == 1


@pytest.fixture
def hubs(monkeypatch):
    """Members whose shared things are guarded from the start."""
    guarded = GuardedDict({}, inproc._hubs_lock)
    monkeypatch.setattr(inproc, "_hubs", guarded)
    made = inproc.Hub.__init__

    def make(hub):
        made(hub)
        hub.attached = GuardedDict({}, hub.lock)
    monkeypatch.setattr(inproc.Hub, "__init__", make)
    return guarded


def test_members_of_one_process_share_their_hub_and_inboxes_under_locks(hubs):
    a, b = InprocTransport("guarded"), InprocTransport("guarded")
    guards = [guard(each, each._arrived, read=("_inbox", "_inbox_bytes", "_woken"))
              for each in (a, b)]
    a.connect({2: b.physical})
    a.put([(EVERYONE, b"to all"), (2, b"to one"), (3, b"to nobody")])
    b.wake()
    assert [bytes(each) for each in b.poll(0)] == [b"to all", b"to one"]
    assert a.poll(0) == [] and a.status().unknown_dest == 1
    a.close()
    b.close()
    assert hubs.guard.uses and a._hub.attached.guard.uses >= 5 and all(each.uses > 3
                                                                       for each in guards)


def test_a_signal_handler_may_send_while_its_thread_looks_for_the_members():
    """Another channel of the same group, in the same process."""
    a, b = InprocTransport("handled"), InprocTransport("handled")
    with a._hub.lock:
        b.put([(EVERYONE, b"from the handler")])
    assert [bytes(each) for each in a.poll(0)] == [b"from the handler"]
    a.close()
    b.close()


def test_a_group_whose_members_are_gone_leaves_nothing_behind():
    members = [InprocTransport("gone") for _ in range(2)]
    assert members[0]._hub is members[1]._hub and "gone" in inproc._hubs
    for member in members:
        member.close()
    del member, members
    gc.collect()
    assert "gone" not in inproc._hubs


def test_a_datagram_larger_than_the_buffer_finds_room_alone():
    a, b = InprocTransport("small"), InprocTransport("small", receive_buffer=4096)
    a.put([(EVERYONE, b"x" * 5000), (EVERYONE, b"y")])
    assert [len(each) for each in b.poll(0)] == [5000]
    assert b.status().datagrams_dropped == 1
    a.close()
    b.close()
