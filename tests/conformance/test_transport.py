"""What the contract in ringcast/transport/__init__.py promises of every transport, over
UDP, in one process and over TCP."""

import random
import struct
import threading
import time
from contextlib import ExitStack, closing, suppress

import pytest
from ports import free_port

from ringcast.address import EVERYONE
from ringcast.errors import ClosedError, MessageTooLargeError
from ringcast.status import by_name
from ringcast.transport import Transport
from ringcast.transport.inproc import InprocTransport
from ringcast.transport.tcp.transport import TcpTransport
from ringcast.transport.udp import UdpTransport

PATIENCE = 60.0                         # seconds; only a failing test ever waits so long


def udp():
    place = {"group_address": f"239.255.{random.randrange(1, 255)}.{random.randrange(1, 255)}",
             "port": free_port(1)}
    return lambda member, **options: UdpTransport(**place, **options)


def inproc():
    group = f"conformance-{random.random()}"
    return lambda member: InprocTransport(group)


def tcp():
    place = {"group": random.randrange(1 << 32), "port": free_port(4), "port_range": 4}
    return lambda member, **options: TcpTransport(member=member, **place, **options)


KINDS = {"udp": (udp, "send_unknown"), "inproc": (inproc, "unknown_dest"),
         "tcp": (tcp, "send_unlinked")}


def datagram(sender, payload=b""):
    return struct.pack("<HBBIQQQ", 0x4352, 1, 1, 0, sender, EVERYONE, 0) + payload


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.udp if name == "udp" else ())
                        for name in KINDS])
def kind(request):
    return request.param


@pytest.fixture
def members(kind):
    """Three members that can reach each other; their incarnations are 1, 2 and 3."""
    make = KINDS[kind][0]()
    with ExitStack() as stack:
        made = [make(member) for member in (1, 2, 3)]
        for each in made:
            stack.callback(each.close)
            each.connect({number: other.physical for number, other in enumerate(made, 1)})
        if kind == "tcp":
            poll(made, lambda: all(each.status().links == 2 for each in made))
        for each in made:
            while each.poll(0) or each.links():
                pass
        yield made


def poll(transports, done):
    """Poll in turn until it is done; what each returned."""
    got, deadline = [[] for _ in transports], time.monotonic() + PATIENCE
    while not done(*got) if done.__code__.co_argcount else not done():
        assert time.monotonic() < deadline, got
        for mine, transport in zip(got, transports, strict=True):
            mine += [bytes(view) for view in transport.poll(200_000)]
    return got


def test_a_poll_that_finds_nothing_says_that_nothing_is_left(members):
    a, b, _ = members
    a.put([(EVERYONE, datagram(1, b"%d" % number)) for number in range(100)])
    poll([b], lambda came: len(came) == 100)
    assert b.poll(0) == [] and b.emptied


def test_a_datagram_to_one_reaches_it_alone(members):
    a, b, c = members
    a.put([(2, datagram(1, b"to b")), (3, datagram(1, b"to c"))])
    assert poll((b, c), lambda b, c: b and c) == [[datagram(1, b"to b")], [datagram(1, b"to c")]]
    assert a.poll(0) == []


def test_a_datagram_to_everyone_reaches_all_others(members):
    a, b, c = members
    a.put([(EVERYONE, datagram(1, b"all"))])
    assert poll(members, lambda a, b, c: b and c) == [[], [datagram(1, b"all")],
                                                      [datagram(1, b"all")]]


def test_one_put_may_hold_datagrams_to_several_and_to_everyone(members, kind):
    a, b, c = members
    a.put([(EVERYONE, datagram(1, b"1")), (2, datagram(1, b"2")), (EVERYONE, datagram(1, b"3")),
           (3, datagram(1, b"4"))])
    got = [[each[32:] for each in mine] for mine in poll((b, c), lambda b,
                                                         c: len(b) == len(c) == 3)]
    if kind == "udp":                       # two sockets, so that the order is not kept
        got = [sorted(mine) for mine in got]
    assert got == [[b"1", b"2", b"3"], [b"1", b"3", b"4"]]


@pytest.mark.parametrize("size", [32, 33, 60_000, 65_507])
@pytest.mark.parametrize("to", [EVERYONE, 2])
def test_a_datagram_keeps_its_size_and_bytes(members, to, size):
    a, b, _ = members
    sent = datagram(1, random.randbytes(size - 32))
    a.put([(to, sent)])
    assert poll([b], lambda b: b) == [[sent]]


def test_what_poll_returns_is_read_only_and_keeps_until_the_next(members):
    a, b, _ = members
    b.put([(1, datagram(2, b"%d" % number)) for number in range(3)])
    seen, deadline = [], time.monotonic() + PATIENCE
    while len(seen) < 3:
        assert time.monotonic() < deadline
        views = a.poll(1_000_000)
        b.put([(1, datagram(2, b"overwrites nothing"))] if views and len(seen) == 0 else [])
        assert all(isinstance(view, memoryview) and view.readonly for view in views)
        seen += [bytes(view[32:]) for view in views]
    assert seen[:3] == [b"0", b"1", b"2"]


def test_datagrams_may_be_of_any_buffer_and_change_after_put(members):
    a, b, _ = members
    changing = bytearray(datagram(1, b"before"))
    a.put([(2, changing), (2, memoryview(bytes(changing)))])
    changing[32:] = b"after!"
    assert poll([b], lambda b: len(b) == 2) == [[datagram(1, b"before")] * 2]


def test_an_unknown_member_is_counted_and_the_rest_is_sent(members, kind):
    a, b, _ = members
    a.put([(99, datagram(1, b"whom?")), (2, datagram(1, b"you"))])
    assert poll([b], lambda b: b) == [[datagram(1, b"you")]]
    assert getattr(a.status(), KINDS[kind][1]) == 1


def test_an_oversized_datagram_raises_and_nothing_of_its_put_is_sent(members):
    a, b, _ = members
    with pytest.raises(MessageTooLargeError):
        a.put([(EVERYONE, datagram(1, b"first")),
               (EVERYONE, datagram(1, bytes(a.max_datagram - 31)))])
    a.put([(EVERYONE, datagram(1, b"second"))])
    assert poll([b], lambda b: b) == [[datagram(1, b"second")]]


def test_wakes_before_the_poll_collapse_and_make_it_return(members):
    a = members[0]
    a.wake()
    a.wake()
    assert a.poll(None) == []
    began = time.monotonic_ns()
    a.poll(1_000_000)                       # a poll may return early, and this one has no reason to
    assert time.monotonic_ns() - began >= 1_000_000


def test_a_wake_from_another_thread_ends_the_poll(members):
    a = members[0]
    thread = threading.Thread(target=a.wake)
    thread.start()
    assert a.poll(None) == []
    thread.join()


def test_an_exact_timeout_is_kept_to_within_a_millisecond_or_so_from_below(members):
    """A timer of the layers that fires early costs a turn for nothing."""
    for wait in (100_000, 900_000, 3_000_000):
        began = time.monotonic_ns()
        assert members[0].poll(wait) == []
        assert time.monotonic_ns() - began >= wait * 9 // 10


def test_what_comes_after_polls_in_vain_comes_all_the_same(kind):
    make = KINDS[kind][0]()
    options = {} if kind == "inproc" else {"busy_poll": 100_000}
    with closing(make(1)) as a, closing(make(2, **options)) as b:
        for each in a, b:
            each.connect({1: a.physical, 2: b.physical})
        for number in range(20):
            for _ in range(number % 4):                 # answers that come at once, and none
                b.poll(100_000, expecting=True)
            came, deadline = [], time.monotonic() + PATIENCE
            while not came:
                assert time.monotonic() < deadline
                a.put([(2, datagram(1, b"%d" % number))])
                a.poll(0)
                came = [bytes(view) for view in b.poll(1_000_000, expecting=True)]
            while came:
                assert set(came) == {datagram(1, b"%d" % number)}
                came = [bytes(view) for view in b.poll(1_000_000, expecting=True)]


def test_one_thread_puts_while_another_polls(members):
    a, b, _ = members
    count = 500

    def send():
        for number in range(count):
            a.put([(2, datagram(1, number.to_bytes(4, "big")))])
            b.put([(1, datagram(2))])

    thread = threading.Thread(target=send)
    thread.start()
    got, = poll([b], lambda b: len(b) == count)
    thread.join()
    assert [int.from_bytes(each[32:], "big") for each in got] == list(range(count))


def test_without_new_connections_there_is_no_news(members):
    a, b, _ = members
    a.put([(2, datagram(1, b"through"))])
    assert poll([b], lambda b: b) == [[datagram(1, b"through")]]
    assert b.links() == []


def test_a_member_that_is_gone_shows_and_those_that_live_do_not(members):
    a, b, c = members
    c.close()
    refused, deadline = set(), time.monotonic() + PATIENCE
    while 3 not in refused:
        assert time.monotonic() < deadline
        a.put([(2, datagram(1)), (3, datagram(1))])
        a.poll(1_000_000)
        b.poll(0)
        refused |= set(a.refused())
    assert refused == {3}


def test_the_end_of_a_member_ends_the_poll(members):
    a, _, c = members
    c.close()
    a.put([(3, datagram(1))])
    while a.poll(None) or a.links() or 3 not in a.refused():    # for ever, but for that
        pass


def test_who_is_not_in_the_table_is_not_refused(members):
    a, b, c = members
    a.connect({2: b.physical})
    a.poll(0)                               # takes the table
    c.close()
    a.put([(3, datagram(1)), (2, datagram(1, b"there"))])
    assert poll([b], lambda b: b) == [[datagram(1, b"there")]]
    a.poll(20_000_000)
    assert a.refused() == []


def test_seeking_does_not_keep_a_datagram_from_anybody(members):
    a, b, c = members
    for places in ([b.physical, c.physical, a.physical], [], ["nonsense"]):
        a.seek(places)
        a.put([(EVERYONE, datagram(1, b"all"))])
        assert poll((b, c), lambda b, c: b and c) == [[datagram(1, b"all")]] * 2


def test_close_ends_the_poll_of_another_thread(members):
    a = members[0]
    thread = threading.Thread(target=a.close)
    thread.start()
    with suppress(ClosedError):             # close() may be first
        assert a.poll(None) == []
    thread.join()


def test_a_second_close_does_nothing_and_what_follows_a_close_is_harmless_or_refused(members):
    a = members[0]
    before = a.status()
    a.close()
    a.close()
    a.wake()
    a.connect({2: members[1].physical})
    a.seek([members[1].physical])
    assert a.links() == a.refused() == []
    assert type(a.status()) is type(before)
    with pytest.raises(ClosedError):
        a.poll(0)
    with pytest.raises(ClosedError):
        a.put([(EVERYONE, datagram(1, b"late"))])


def test_it_has_what_the_contract_lists(members, kind):
    transport: Transport = members[0]
    assert transport.max_datagram == 65_507
    assert transport.receive_budget > 0
    assert transport.send_budget > 1 << 30, "what was put does not wait at home here"
    assert isinstance(transport.physical, str) and transport.physical
    assert transport.lossless is (kind == "tcp")
    assert transport.seal_status() is None
    assert all(isinstance(value, int) for value in by_name(transport.status()).values())
