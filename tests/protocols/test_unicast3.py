"""UNICAST3 beside its transcripts: every state and event, what is bounded, what is
remembered, and what a damaged peer can do."""

import itertools
import sys

import msgspec
import pytest

from ringcast._core import wire
from ringcast._core.marks import Marks
from ringcast._core.send_window import FULL, SendWindow
from ringcast.address import Address
from ringcast.config import Config, configure
from ringcast.errors import NotMemberError
from ringcast.flags import FRAGMENT, Flag
from ringcast.protocols.budget import Budget
from ringcast.protocols.frag import cut
from ringcast.protocols.unicast3 import Unicast3, control
from ringcast.protocols.unicast3.context import Context
from ringcast.protocols.unicast3.memory import (
    MOST_EARLY,
    MOST_EARLY_OF_ALL,
    MOST_WINDOWS,
    Closed,
)
from ringcast.protocols.unicast3.receiving import MOST_GONE
from ringcast.protocols.unicast3.states import TABLE, Act, Event, State
from ringcast.protocols.unicast3.sync import Counter
from ringcast.sim.network import MS
from ringcast.stack import Stack
from ringcast.view import View

A, B, C = Address("A", 1), Address("B", 2), Address("C", 3)
WRAP = 2**64


class End:
    """One member's layer, alone in a stack; its datagrams are passed by hand."""

    def __init__(self, address, members=(A, B), *, now=0, **options):
        counters = {name: options.pop(name) for name in ("conn_id", "timestamp", "offset",
                                                         "receiving") if name in options}
        self.address, self.now = address, now
        self.layer = Unicast3(address, configure(options), Budget(1 << 20), **counters)
        self.stack = Stack([self.layer], local=address, group="g")
        self.got, self.failed = [], []
        self.view(*members)

    def view(self, *members):
        self.layer.view(View(1, members), self.now)
        return self.done()

    def tell(self, dest, *payloads, flags=0):
        """Send these, each in a datagram of its own; return the datagrams."""
        for payload in payloads:
            self.layer.connection(dest, self.now).window.push(payload, flags)
            self.layer.flush(dest, self.now)
        return self.done()

    def hear(self, *datagrams, finish=True):
        """Receive, deliver, finish; return the datagrams that it sends."""
        self.stack.receive(datagrams, self.now)
        return self.deliver(finish)

    def deliver(self, finish=True):
        self.stack.deliver(1000, self.now)
        effects = self.stack.take()
        self.failed += effects.failures
        for batch in effects.deliveries:
            self.got += batch.payloads
            if finish:
                self.stack.delivered(batch, self.now)
        return [datagram for _, datagram in effects.packets] + self.done()

    def wait(self, milliseconds):
        """Let the time pass; return the datagrams that it sends meanwhile."""
        said = []
        end = self.now + int(milliseconds * MS)
        while (deadline := self.stack.deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.stack.tick(self.now)
            said += self.done()
        self.now = end
        return said

    def done(self):
        effects = self.stack.take()
        self.failed += effects.failures
        self.got += [payload for batch in effects.deliveries for payload in batch.payloads]
        return [datagram for _, datagram in effects.packets]


def encoded(body):
    return msgspec.msgpack.encode(body)


def kinds(datagrams):
    return [datagram[3] for datagram in datagrams]


def bodies(datagrams, kind):
    return [kind.decode(datagram) for datagram in datagrams if datagram[3] == kind]


def acks(datagrams):
    return [(ack.conn_id, ack.seqno) for ack in bodies(datagrams, control.ACK)]


# ------------------------------------------------------------------------------------------- states

def test_the_table_has_every_state_and_event():
    assert set(TABLE) == set(itertools.product(State, Event))


EXPECTED = {
    State.OPEN: {Event.USED: State.OPEN, Event.EXPIRED: State.CLOSING,
                 Event.PEER_LEFT: State.CLOSING, Event.TIMED_OUT: State.OPEN,
                 Event.CLOSE: State.CLOSED},
    State.CLOSING: {Event.USED: State.OPEN, Event.EXPIRED: State.CLOSING,
                    Event.PEER_LEFT: State.CLOSING,
                    Event.TIMED_OUT: State.CLOSED, Event.CLOSE: State.CLOSED},
    State.CLOSED: dict.fromkeys(Event, State.CLOSED),
}


@pytest.mark.parametrize(("state", "event"), TABLE, ids=lambda each: each.name)
def test_every_state_and_event_leads_where_the_text_says(state, event):
    """By the entries themselves, on both ends."""
    a, b = End(A), End(B)
    b.hear(*a.tell(B, b"1"))
    for entry in (a.layer.senders[B.incarnation], b.layer.receivers[A.incarnation]):
        entry.state, entry.touched = state, -1
        act = entry.on(event, 7)
        assert entry.state is EXPECTED[state][event]
        is_reset = entry.touched == 7
        assert is_reset == ((state, event) in {(State.OPEN, Event.USED),
                                               (State.OPEN, Event.EXPIRED),
                                               (State.OPEN, Event.PEER_LEFT),
                                               (State.CLOSING, Event.USED)})
        assert bool(act & Act.REMOVE) == (entry.state is State.CLOSED != state)
        assert bool(act & Act.REPLACE) == (state is State.CLOSED and event is Event.USED)


def test_a_sender_of_a_closed_entry_gets_a_new_connection():
    a = End(A)
    a.tell(B, b"1")
    former = a.layer.senders[B.incarnation]
    former.state = State.CLOSED
    a.tell(B, b"2")
    assert a.layer.senders[B.incarnation].conn_id == former.conn_id + 1


def test_a_message_that_slips_in_while_a_connection_times_out_reopens_it():
    """U9: pushed by another thread, not yet framed, in the very tick in which
    conn_close_timeout expires."""
    a, b = End(A, conn_expiry_timeout=100, conn_close_timeout=100), End(B)
    a.hear(*b.hear(*a.tell(B, b"1")), *b.wait(5))
    a.wait(150)
    entry = a.layer.senders[B.incarnation]
    assert entry.state is State.CLOSING
    entry.window.push(b"2")
    a.wait(200)
    assert entry.state is State.OPEN and a.failed == []
    b.now = a.now
    a.layer.flush(B, a.now)
    b.hear(*a.done())
    assert b.got == [b"1", b"2"]


# ------------------------------------------------------------------------------- who may be sent to

def test_who_is_not_in_the_view_is_not_sent_to():
    a = End(A)
    for dest in (C, Address("B", 77)):
        with pytest.raises(NotMemberError, match="not in the view"):
            a.layer.connection(dest, 0)
    assert a.layer.senders == {}


def test_messages_to_one_who_left_fail_within_conn_close_timeout_with_their_payloads():
    a = End(A, conn_close_timeout=50)
    a.tell(B, b"1", b"2")
    a.view(A)
    assert a.layer.senders[B.incarnation].window.push(b"3") == FULL, "it is closing"
    a.wait(49)
    assert a.failed == []
    said = a.wait(2)
    assert [(batch.dest, batch.first, batch.payloads) for batch in a.failed] == [(B, 1,
                                                                                  [b"1", b"2"])]
    assert kinds(said) == [control.CLOSE] and a.layer.senders == {} and a.layer.num_unacked() == 0


def test_what_waits_to_be_framed_for_one_who_left_fails_too_and_keeps_no_connection_open():
    a = End(A, conn_close_timeout=50)
    a.tell(B, b"1")
    a.layer.senders[B.incarnation].window.push(b"2")
    a.view(A)
    a.layer.flush(B, a.now)
    a.wait(51)
    assert [batch.payloads for batch in a.failed] == [[b"1", b"2"]]
    assert a.layer.senders == {} and a.layer.num_unacked() == 0


def test_a_member_that_takes_no_messages_refuses_them_and_nobody_waits():
    a, b = End(A), End(B, receiving=False)
    a.hear(*b.hear(*a.tell(B, b"1", b"2")))
    assert [batch.payloads for batch in a.failed] == [[b"1", b"2"]] and a.layer.num_unacked() == 0
    with pytest.raises(NotMemberError, match="takes no messages"):
        a.layer.connection(B, a.now)
    with pytest.raises(NotMemberError, match="takes no messages"):
        b.layer.connection(B, b.now)


def test_a_member_talks_to_itself_without_the_network():
    a = End(A)
    assert a.tell(A, b"1", b"2") == [] and a.deliver() == []
    assert a.got == [b"1", b"2"] and a.layer.num_unacked() == 0
    assert a.tell(A, b"3", flags=Flag.DONT_LOOPBACK) == [] and a.deliver() == []
    assert a.got == [b"1", b"2"] and a.layer.num_unacked() == 0


# ------------------------------------------------------------------------------- once, and in order

def test_oob_messages_overtake_and_come_once():
    a, b = End(A), End(B)
    one, two, oob = a.tell(B, b"1"), a.tell(B, b"2"), a.tell(B, b"oob", flags=Flag.OOB)
    b.hear(*one, *oob, *oob)
    assert b.got == [b"oob", b"1"]
    b.hear(*two, *oob)
    assert b.got == [b"oob", b"1", b"2"]
    assert acks(b.wait(2)) == [(1, 3)]


def test_an_oob_message_is_not_acknowledged_before_what_the_application_holds():
    a, b = End(A), End(B)
    b.hear(*a.tell(B, b"1"), finish=False)
    b.hear(*a.tell(B, b"oob", flags=Flag.OOB))
    assert acks(b.wait(100)) in ([(1, 0)], [])


def test_nothing_comes_twice_after_an_entry_was_removed():
    """Decision 16: the ack of 1..3 is lost, the receiver forgets the window, the sender
    repeats."""
    a, b = End(A), End(B, conn_expiry_timeout=20, conn_close_timeout=20)
    first = a.tell(B, b"1", b"2", b"3")
    b.hear(*first)
    b.wait(200)
    assert b.layer.receivers == {} and len(b.layer.closed) == 1
    assert acks(b.hear(first[2]) + b.wait(2))[-1] == (1, 3)
    b.hear(*first, *a.tell(B, b"4"))
    assert b.got == [b"1", b"2", b"3", b"4"]


def test_oob_messages_above_a_gap_are_remembered_when_the_window_goes():
    a, b = End(A), End(B, conn_close_timeout=20)
    one, two, oob = a.tell(B, b"1"), a.tell(B, b"2"), a.tell(B, b"oob", flags=Flag.OOB)
    b.hear(*one, *oob)
    b.view(B)
    b.wait(100)
    assert b.layer.receivers == {}
    b.view(A, B)
    b.hear(*oob, *two)
    assert b.got == [b"oob", b"1", b"2"]


def test_a_late_datagram_of_an_older_connection_opens_nothing():
    a, b = End(A, conn_expiry_timeout=20, conn_close_timeout=20), End(B)
    old = a.tell(B, b"old")
    a.hear(*b.hear(*old), *b.wait(5))
    close = a.wait(100)
    assert kinds(close) == [control.CLOSE]
    new = a.tell(B, b"new")
    b.hear(*new)
    b.hear(*old, *close)
    assert b.got == [b"old", b"new"] and b.layer.receivers[A.incarnation].conn_id == 2


@pytest.mark.parametrize("last", [0, WRAP - 2, WRAP - 1, 2**63 - 1])
def test_conn_ids_and_timestamps_only_grow_and_skip_0(last):
    counter = Counter(last)
    numbers = [counter.next() for _ in range(4)]
    assert 0 not in numbers and numbers[0] == (last + 1 if last != WRAP - 1 else 1)
    a, b = End(A, conn_id=last, conn_expiry_timeout=20, conn_close_timeout=20), End(B,
                                                                                    timestamp=last)
    for text in (b"1", b"2", b"3"):
        a.hear(*b.hear(*a.tell(B, text)), *b.wait(5))
        assert a.layer.num_unacked() == 0, "an ack whose timestamp has wrapped is newer"
        a.wait(100)
    assert b.got == [b"1", b"2", b"3"]


# ---------------------------------------------------------------------------------- what is bounded

def test_what_comes_too_early_is_kept_but_not_without_bound():
    b = End(B, members=(B,))
    for number in range(MOST_EARLY + 5):
        b.hear(*End(A, offset=number).tell(B, b"%d" % number))
    assert b.layer.early.size == MOST_EARLY
    for incarnation in range(100, 100 + MOST_EARLY_OF_ALL):
        b.hear(*End(Address("X", incarnation), members=(Address("X", incarnation), B)).tell(B,
                                                                                            b"x"))
    assert b.layer.early.size == MOST_EARLY_OF_ALL and b.got == []
    b.view(A, B)
    b.deliver()
    assert b.got[:1] == [b"0"]
    b.wait(1000)
    assert b.layer.early.size == 0, "nobody came for the rest"


@pytest.mark.parametrize(("size", "most"), [(1, 20), (1900, MOST_WINDOWS)])
def test_only_so_many_closed_connections_are_remembered(size, most):
    """And of those with a gap only so many bytes behind it."""
    peers = [Address("P", number) for number in range(10, 60)]
    b = End(B, members=(B, *peers), max_closed_connections=20, conn_close_timeout=1,
            max_bytes=2000)
    for peer in peers:
        end = End(peer, members=(B, peer))
        one, _, three = end.tell(B, b"1"), end.tell(B, b"2"), end.tell(B, bytes(size))
        b.hear(*one, *three)
    b.view(B)
    b.wait(50)
    assert len(b.layer.closed) == 20 and len(b.layer.closed.streams) == most
    assert b.layer.receivers == {}


def test_incarnations_that_come_and_go_do_not_fill_the_memory_of_a_slow_application():
    b = End(B)
    ends = [End(Address("A", number), members=(Address("A", number), B))
            for number in range(100, 100 + 3 * MOST_GONE)]
    said = []
    for end in ends:
        b.view(end.address, B)
        said.append(end.tell(B, b"%d" % end.address.incarnation))
        b.stack.receive(said[-1], b.now)                # and the application takes nothing
    assert list(b.layer.receivers) == [end.address.incarnation for end in ends[-MOST_GONE - 1:]]
    b.view(ends[0].address, B)
    b.hear(*said[0])
    assert b"100" in b.got, "what was given up is not acknowledged, and comes again"


@pytest.mark.parametrize("most", [0, 1024])
@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("flags", [0, FRAGMENT])
def test_lives_that_come_and_go_leave_a_slow_application_no_window_of_each(most, is_closed, flags):
    """It has one message of each, which it does not finish. The rest is not kept with
    that."""
    b, got = End(B, capacity=16, max_bytes=16_000, max_closed_connections=most), []
    for number in range(100, 300):
        end = End(Address("A", number), members=(Address("A", number), B))
        b.view(end.address, B)
        said = end.tell(B, b"one") + end.tell(B, *cut(bytes(10_000), 1, 1000)[:-1], flags=flags)
        if is_closed:
            end.layer.send_closes(end.now)
            said += end.done()
        b.stack.receive(said[:-1], b.now)
        b.stack.deliver(1000 if flags else 1, b.now)
        b.stack.receive(said[-1:], b.now)
        b.stack.deliver(0, b.now)
        got += b.stack.take().deliveries
    streams = {id(batch.stream): batch.stream for batch in got}
    assert len(got) == 200 and len(streams) > 150
    held = sum(Closed(1, 0, stream=stream).nbytes for stream in streams.values())
    # A fragment is in its window, too.
    assert held <= (2 * (MOST_GONE + 1) + MOST_WINDOWS) * 16_000
    for batch in got:
        b.stack.delivered(batch, b.now)
    assert b.layer.deliveries.former == {}


def come_and_go(b, number, size, *members):
    """Let so many others come to these members of B's view, say something that B's
    application does not finish, and go."""
    for incarnation in range(size * 100, size * 100 + number):
        other = Address("O", incarnation)
        b.view(*members, other)
        b.stack.receive(End(other, members=(other, B)).tell(B, bytes(size)), b.now)
        b.view(*members)


def cut_off_among_others(b, others=1, size=2):
    """A is cut off from B. Others come, say something that B's application does not
    finish, and go; so many more than B has windows for."""
    b.view(B)
    come_and_go(b, MOST_GONE + others, size, B)
    assert A.incarnation not in b.layer.receivers
    b.view(A, B)


def given_up_among_others(b):
    """The same, and those who come leave so much that B forgets what came of A."""
    cut_off_among_others(b, 2 + MOST_WINDOWS, b.layer.context.config.max_bytes - 100)
    assert A.incarnation not in b.layer.receivers, "its window was not kept"


def given_up_in_hand():
    """Return A and B, of which the application has a message of A in hand while the
    connection is given up; and this batch."""
    a, b = End(A), End(B, capacity=64, max_bytes=2000)
    b.stack.receive(a.tell(B, b"1"), b.now)
    b.stack.deliver(1000, b.now)
    [batch] = b.stack.take().deliveries
    given_up_among_others(b)
    return a, b, batch


def talk(a, b, said, finish=True):
    """Let both hear each other for a while."""
    for _ in range(50):
        b.now = a.now
        back = b.hear(*said, finish=finish) + b.wait(0)
        said = a.hear(*back) + a.wait(20)


def test_a_large_message_of_a_member_that_was_cut_off_among_many_comes_whole():
    a, b = End(A), End(B, capacity=64)
    pieces = cut(bytes(600), 1, 0)
    b.hear(*a.tell(B, *pieces[:2], flags=FRAGMENT))
    cut_off_among_others(b)
    talk(a, b, a.tell(B, *pieces[2:], flags=FRAGMENT))
    assert b.got[-1] == bytes(600) and a.layer.num_unacked() == 0


def test_what_an_application_has_not_finished_of_one_among_many_is_not_acknowledged():
    a, b = End(A), End(B, capacity=64)
    b.hear(*a.tell(B, b"1"), finish=False)
    cut_off_among_others(b)
    talk(a, b, a.wait(20), finish=False)
    assert b.got.count(b"1") == 1 and a.layer.num_unacked() == 1


def test_an_oob_message_of_one_among_many_does_not_come_again():
    a, b = End(A), End(B, capacity=64)
    b.hear(*a.tell(B, b"1"))
    a.tell(B, b"2")                                     # it is lost
    b.hear(*a.tell(B, b"oob", flags=int(Flag.OOB)))
    cut_off_among_others(b)
    talk(a, b, a.wait(20))
    assert b.got.count(b"oob") == b.got.count(b"2") == 1 and a.layer.num_unacked() == 0


def acknowledged_begin(b):
    """Return A, of whose large message B has acknowledged all but the last part, and
    this part."""
    a = End(A)
    *begin, last = cut(bytes(60_000), 1, 1500)
    for piece in begin:
        talk(a, b, a.tell(B, piece, flags=FRAGMENT))
    assert a.layer.num_unacked() == 0
    return a, last


def test_a_large_message_of_a_member_that_is_back_does_not_time_out():
    """Its begin, which was acknowledged, takes more than B has for closed
    connections."""
    b = End(B, max_bytes=2000, conn_close_timeout=500)
    a, last = acknowledged_begin(b)
    b.view(B)
    b.view(A, B)
    b.wait(2000)
    a.now = b.now
    talk(a, b, a.tell(B, last, flags=FRAGMENT))
    assert b.got == [bytes(60_000)] and a.layer.num_unacked() == 0


def test_a_large_message_of_a_member_that_is_back_is_not_given_up():
    """It was closed while A was cut off. Those who come and go then leave too much."""
    b = End(B, max_bytes=4000)
    a, last = acknowledged_begin(b)
    cut_off_among_others(b)
    come_and_go(b, 2 * MOST_WINDOWS, 3900, A, B)
    talk(a, b, a.tell(B, last, flags=FRAGMENT))
    assert b.got[-1:] == [bytes(60_000)] and a.layer.num_unacked() == 0


def test_a_large_message_is_not_given_up_for_those_who_go_when_its_sender_is_back():
    b, other = End(B, max_bytes=4000), Address("X", 99)
    a, last = acknowledged_begin(b)
    b.view(B)
    come_and_go(b, MOST_GONE + 1, 3900, B)
    b.view(B, other)
    b.stack.receive(End(other, members=(other, B)).tell(B, bytes(3900)), b.now)
    assert A.incarnation in b.layer.closed.streams
    b.view(A, B)
    talk(a, b, a.tell(B, last, flags=FRAGMENT))
    assert b.got[-1:] == [bytes(60_000)] and a.layer.num_unacked() == 0


@pytest.mark.parametrize("flags", [0, int(Flag.OOB)])
def test_the_rest_of_a_large_message_that_was_given_up_is_reported_and_not_acknowledged(flags):
    a, b = End(A), End(B, capacity=64, max_bytes=2000)
    *begin, last = cut(bytes(1500), 1, 600)
    for piece in begin:
        talk(a, b, a.tell(B, piece, flags=FRAGMENT | flags))
    talk(a, b, a.wait(2000))
    assert a.layer.num_unacked() == 0
    given_up_among_others(b)
    talk(a, b, a.tell(B, last, flags=FRAGMENT | flags))
    assert bytes(1500) not in b.got and a.layer.num_unacked() == 0
    [failed] = a.failed
    assert failed.bits & Flag.INCOMPLETE and failed.last == len(begin) + 1


def test_what_is_ready_of_a_member_that_is_back_is_delivered_at_once():
    a, b = End(A), End(B)
    b.stack.receive(a.tell(B, b"1"), b.now)
    b.view(B)
    come_and_go(b, MOST_GONE, 2, B)
    assert A.incarnation in b.layer.closed.streams
    b.layer.view(View(1, (A, B)), b.now)
    assert b.stack.effects.arrived


def test_a_large_message_of_a_connection_that_was_given_up_comes_whole():
    a, b = End(A), End(B, capacity=64, max_bytes=4000)
    pieces = cut(bytes(600), 1, 0)
    b.hear(*a.tell(B, *pieces[:2], flags=FRAGMENT))
    given_up_among_others(b)
    talk(a, b, a.tell(B, *pieces[2:], flags=FRAGMENT))
    assert b.got.count(bytes(600)) == 1 and a.layer.num_unacked() == 0


def test_what_an_application_has_of_a_connection_that_was_given_up_is_not_acknowledged():
    a, b, batch = given_up_in_hand()
    talk(a, b, a.tell(B, b"2"))
    assert b"2" not in b.got and a.layer.num_unacked() == 2
    b.stack.delivered(batch, b.now)
    talk(a, b, a.wait(20))
    assert b.got[-1:] == [b"2"] and b.got.count(b"1") == 0 and a.layer.num_unacked() == 0


def test_a_newer_connection_waits_for_what_an_application_has_of_one_that_was_given_up():
    _, b, batch = given_up_in_hand()
    later = End(A, conn_id=1_000_000)
    talk(later, b, later.tell(B, b"2"))
    assert b"2" not in b.got
    b.stack.delivered(batch, b.now)
    talk(later, b, later.wait(20))
    assert b.got[-1:] == [b"2"] and later.layer.num_unacked() == 0


@pytest.mark.parametrize("given_up", [False, True])
def test_who_stops_does_not_acknowledge_what_its_application_has_of_a_closed_connection(given_up):
    a, b = End(A), End(B, capacity=64, max_bytes=2000)
    b.hear(*a.tell(B, b"1"), finish=False)
    (given_up_among_others if given_up else cut_off_among_others)(b)
    b.layer.stop_receiving(b.now)
    a.hear(*b.hear(*a.tell(B, b"2"), finish=False))
    assert [payload for batch in a.failed for payload in batch.payloads] == [b"1", b"2"]


def test_who_tells_which_connection_is_the_latest_acknowledges_nothing_that_is_not_finished():
    old, a = End(A), End(A, conn_id=1_000_000)
    b = End(B, capacity=64, max_bytes=2000)
    b.hear(*a.tell(B, b"1"), finish=False)
    given_up_among_others(b)
    a.hear(*b.hear(*old.tell(B, b"0"), finish=False))
    assert a.layer.num_unacked() == 1


def test_whom_a_member_asked_for_its_first_seqno_is_forgotten_though_no_connection_ages():
    b = End(B, sync_min_interval=10)
    for number in range(100, 200):
        incarnation = Address("A", number)
        b.view(incarnation, B)
        b.hear(*End(incarnation, members=(incarnation, B)).tell(B, b"1", b"2")[1:])
        b.wait(10)
    assert b.layer.counters.syncs_sent == 100 and len(b.layer.receivers.syncs.last_sync_sent) < 5


def test_oob_messages_do_not_flood_an_application_that_takes_nothing():
    """Each connection is a window of its own; a hostile member opens one after the
    other."""
    b, got = End(B, capacity=8), []
    for conn_id in range(100):
        datagrams = End(A, conn_id=conn_id).tell(B, *[b"%d" % number for number in range(8)],
                                                 flags=Flag.OOB)
        b.stack.receive(datagrams, b.now)
        b.stack.deliver(10 - sum(map(len, got)), b.now)
        got += b.stack.take().deliveries
    assert sum(map(len, got)) <= 10 + 8 + 8
    for batch in got:
        b.stack.delivered(batch, b.now)
    b.hear()
    b.hear()
    assert len(b.got) > 8, "what had to wait comes when there is room"


@pytest.mark.parametrize("is_closed", [False, True])
def test_an_application_has_messages_of_one_connection_of_a_sender_at_a_time(is_closed):
    """A sender that opens one after the other fills the memory of nobody who is slow
    with a window for each."""
    b, got = End(B, capacity=8), []
    for conn_id in range(1, 100):
        a = End(A, conn_id=conn_id - 1)
        b.stack.receive(a.tell(B, *[b"%d" % (conn_id * 8 + each) for each in range(8)]), b.now)
        b.stack.deliver(1000, b.now)
        got += b.stack.take().deliveries
        if is_closed:
            a.layer.send_closes(a.now)
            b.stack.receive([datagram for _, datagram in a.stack.take().packets], b.now)
    assert sum(map(len, got)) == 8
    others = End(Address("C", 3), members=(A, B, Address("C", 3)))
    b.view(A, B, others.address)
    b.hear(*others.tell(B, b"of another"))
    assert b.got == [b"of another"]
    for batch in got:
        assert not b.stack.effects.arrived
        b.stack.delivered(batch, b.now)
    assert b.stack.effects.arrived
    for _ in range(10):
        b.hear()
    numbers = list(map(int, b.got[1:]))
    assert numbers == sorted(set(numbers)) and numbers[-1] == 99 * 8 + 7


def test_an_idle_connection_takes_less_than_2_kib_and_a_reaped_one_gives_it_back():
    """Both ends of a thousand connections, after messages went both ways."""
    peers = [Address("P", number) for number in range(10, 1010)]
    b = End(B, members=(B, *peers), conn_expiry_timeout=1000, conn_close_timeout=1000,
            max_closed_connections=0)
    ends = [End(peer, members=(B, peer)) for peer in peers]
    for peer, end in zip(peers, ends, strict=True):
        b.hear(*end.tell(B, b"to you"))
        b.hear(*end.hear(*b.tell(peer, b"and back")), *end.wait(5))
    assert b.layer.num_unacked() == 0 and len(b.layer.senders) == len(b.layer.receivers) == 1000
    entries = [*b.layer.senders.values(), *b.layer.receivers.values()]
    assert 500 < sum(map(size, entries)) / 1000 < 2048
    b.wait(2500)
    assert b.layer.senders == {} == b.layer.receivers and b.layer.acks.heap == []
    assert len(b.layer.closed) == 0 and b.failed == []


def test_a_connection_with_a_gap_does_not_expire():
    for has_gap in (False, True):
        a, b = End(A), End(B, conn_expiry_timeout=1000, conn_close_timeout=1000)
        said = [a.tell(B, payload) for payload in (b"1", b"2", b"3")]
        for number, datagrams in enumerate(said):
            if not has_gap or number != 1:
                b.hear(*datagrams)
        b.wait(5000)
        assert (A.incarnation in b.layer.receivers) == has_gap


def size(thing, seen=None):
    """Return the bytes of an entry and of all that it alone has."""
    seen = set() if seen is None else seen
    shared = (Address, Unicast3, Context, Config, int, bytes, str, type(None))
    if isinstance(thing, shared) or id(thing) in seen:
        return 0
    seen.add(id(thing))
    parts = [getattr(thing, name) for name in getattr(type(thing), "__slots__", ())]
    if isinstance(thing, SendWindow):
        parts = [thing.ring, thing.marks]
    elif isinstance(thing, Marks):
        parts = [thing.flags]
    collected = 16                      # the header that the cycle collector puts in front of it
    return sys.getsizeof(thing) + collected + sum(size(part, seen) for part in parts)


def test_a_sync_is_answered_only_so_often_however_many_come():
    """One comes each millisecond for two seconds, in which the pace of repeats would
    allow many."""
    a = End(A, sync_min_interval=500)
    a.tell(B, b"1", b"2")
    answers = []
    for timestamp in range(1, 2001):
        body = control.SendFirstSeqno(1, timestamp)
        answers += a.hear(wire.make_datagram(control.SEND_FIRST_SEQNO, a.stack.group,
                                             B.incarnation, A.incarnation, encoded(body)))
        a.wait(1)
    assert kinds(answers) == [control.FIRST] * 4
    assert a.layer.counters.syncs_answered == 4


def test_a_request_costs_at_most_a_window_in_an_interval():
    a = End(A, max_bytes=10_000)
    for _ in range(9):
        a.tell(B, bytes(1000))
    request = encoded(control.XmitReq(1, [(1, 9)], 1))
    datagram = wire.make_datagram(control.XMIT_REQ, a.stack.group, B.incarnation, A.incarnation,
                                  request)
    repeated = sum(len(answer) for _ in range(50) for answer in a.hear(datagram))
    assert 9_000 < repeated < 25_000


# --------------------------------------------------------------------------------------- a bad peer

@pytest.mark.parametrize(("kind", "body"), [
    (control.ACK, control.Ack(1, -1, 1, 1000)), (control.ACK, control.Ack(1, 3, -1, 1000)),
    (control.ACK, control.Ack(1, 3, 1, -1)), (control.ACK, control.Ack(1, 2, 1, 1000)),
    (control.ACK, control.Ack(-1, 1, 1, 1000)),
    (control.XMIT_REQ, control.XmitReq(1, [(0, -1)], 1)),
    (control.XMIT_REQ, control.XmitReq(1, [(1, 1)] * 3000, 1)),
    (control.SEND_FIRST_SEQNO, control.SendFirstSeqno(1, -1)),
    (control.XMIT_REQ, control.XmitReq(1, [(1, 1)], -1)), (control.CLOSE, control.Close(-1)),
    (control.ACK, [1, "2"]), (control.MESSAGE, None), (control.FIRST, None),
], ids=lambda each: repr(each)[:40])
def test_what_makes_no_sense_is_counted_and_changes_nothing(kind, body):
    a = End(A)
    a.tell(B, b"1")
    data = b"" if body is None else encoded(body)
    if isinstance(body, control.Ack) and body.seqno == 2:
        assert a.layer.senders[B.incarnation].highest_sent == 1, "2 was never sent"
    said = a.hear(wire.make_datagram(kind, a.stack.group, B.incarnation, A.incarnation, data))
    assert said == [] and a.layer.counters.unicast_bad == 1
    assert a.layer.num_unacked() == 1 and a.layer.receivers == {}


def test_control_datagrams_of_strangers_and_about_other_connections_do_nothing():
    a = End(A)
    a.tell(B, b"1")
    for sender, conn_id in ((C, 1), (B, 2), (B, WRAP - 1)):
        for kind, body in ((control.ACK, control.Ack(conn_id, 1, 5, 1000)),
                           (control.CLOSE, control.Close(conn_id)),
                           (control.SEND_FIRST_SEQNO, control.SendFirstSeqno(conn_id, 5))):
            datagram = wire.make_datagram(kind, a.stack.group, sender.incarnation, A.incarnation,
                                          encoded(body))
            assert a.hear(datagram) == []
    assert a.layer.num_unacked() == 1
    ack = wire.make_datagram(control.ACK, a.stack.group, B.incarnation, A.incarnation,
                             encoded(control.Ack(1, 1, 1, 1000)))
    a.hear(ack)
    assert a.layer.num_unacked() == 0, "and none of their timestamps was taken for the receiver's"


def test_a_close_of_another_connection_closes_none():
    """Whoever does not know the conn-id may try many."""
    a, b = End(A, conn_id=1 << 40), End(B)
    b.hear(*a.tell(B, b"1"))
    for conn_id in (1, (1 << 40) - 1, (1 << 40) + 2, WRAP - 1, *range(1000, 2000)):
        assert b.hear(wire.make_datagram(control.CLOSE, b.stack.group, A.incarnation,
                                         B.incarnation, encoded(control.Close(conn_id)))) == []
    assert b.layer.receivers[A.incarnation].conn_id == (1 << 40) + 1
    b.hear(*a.tell(B, b"2"))
    assert b.got == [b"1", b"2"] and b.layer.counters.closes_received == 0


def test_a_damaged_first_datagram_opens_no_window():
    a, b = End(A), End(B)
    good = a.tell(B, b"message")[0]
    body = good[wire.HEADER_SIZE:-1]
    b.hear(wire.make_datagram(control.FIRST, b.stack.group, A.incarnation, B.incarnation, body))
    assert b.layer.receivers == {} and b.layer.counters.unicast_bad == 1
    b.hear(good)
    assert b.got == [b"message"]
