"""Facts about the batch system calls. Everything is on loopback; a port is whatever the
kernel had free."""

import errno
import gc
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, closing, contextmanager

import pytest
from hypothesis import given, strategies as st

from ringcast._core.receiver import Receiver
from ringcast._core.sender import Sender
from ringcast._core.sockets import MAX_DATAGRAM, SockAddr, drop_own, size_receive_buffer
from ringcast.errors import MessageTooLargeError

SECOND = 10**9
LOOPBACK = "127.0.0.1"


def udp_socket():
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((LOOPBACK, 0))
    return sock


def refused_socket():
    """A UDP socket connected to a port where nobody listens: what it sends comes back
    as an ICMP error."""
    sock = udp_socket()
    with udp_socket() as gone:
        sock.connect(gone.getsockname())
        return sock


def open_files():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


class Pair:
    """A socket with a sender, and a socket with a receiver that the sender knows as
    1."""

    def __init__(self, segments=False, **options):
        self.source, self.target = udp_socket(), udp_socket()
        self.sender = Sender(self.source.fileno(), segments=segments)
        self.receiver = Receiver([self.target.fileno()], **options)
        self.routes = {1: SockAddr(*self.target.getsockname())}

    def send(self, *datagrams):
        return self.sender.send_many([(1, each) for each in datagrams], self.routes)

    def close(self):
        self.receiver.close()
        self.source.close()
        self.target.close()


@pytest.fixture
def pair():
    with closing(Pair()) as made:
        size_receive_buffer(made.target, 4 << 20)
        yield made


@contextmanager
def running(work):
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield thread
    finally:
        thread.join()


# -- What goes in comes out
# -----------------------------------------------------------------------------------------------

def test_a_batch_arrives_whole_and_in_order(pair):
    datagrams = [b"%d" % each for each in range(8)]
    assert pair.send(*datagrams) == 8
    assert [bytes(each) for each in pair.receiver.receive(None)] == datagrams
    assert (pair.receiver.datagrams, pair.receiver.bytes) == (8, sum(map(len, datagrams)))
    assert (pair.sender.datagrams, pair.sender.bytes) == (8, sum(map(len, datagrams)))


@pytest.mark.parametrize("size", [0, 1, 60_000, MAX_DATAGRAM])
def test_a_datagram_keeps_its_size_and_bytes(pair, size):
    datagram = os.urandom(size)
    assert pair.send(datagram) == 1
    assert [bytes(each) for each in pair.receiver.receive(None)] == [datagram]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_contiguous_buffer_is_sent(pair, kind):
    assert pair.send(kind(b"payload")) == 1
    assert [bytes(each) for each in pair.receiver.receive(None)] == [b"payload"]


def test_one_call_takes_at_most_the_slots_and_the_next_takes_the_rest():
    with closing(Pair(slots=4)) as pair:
        pair.send(*[b"%d" % each for each in range(6)])
        assert [bytes(each) for each in pair.receiver.receive(None)] == [b"0", b"1", b"2", b"3"]
        assert not pair.receiver.emptied
        assert [bytes(each) for each in pair.receiver.receive(None)] == [b"4", b"5"]
        assert pair.receiver.emptied


@pytest.mark.parametrize(("size", "taken"), [(10, 50), (20_000, 8), (3_000, 48)])
def test_one_call_takes_many_small_datagrams_and_few_large_ones(pair, size, taken):
    """A member whose threads compute has few turns: each must take what waits."""
    assert pair.send(*[bytes(size)] * 50) == 50
    assert len(pair.receiver.receive(0)) == taken
    assert pair.receiver.emptied == (taken == 50)


def test_every_socket_gets_its_turn_in_one_call():
    with udp_socket() as first, udp_socket() as second, udp_socket() as source:
        routes = {1: SockAddr(*first.getsockname()), 2: SockAddr(*second.getsockname())}
        receiver = Receiver([first.fileno(), second.fileno()], slots=2)
        batch = [(2, b"c"), (1, b"a"), (1, b"b"), (1, b"later"), (2, b"d")]
        Sender(source.fileno()).send_many(batch, routes)
        assert [bytes(each) for each in receiver.receive(None)] == [b"a", b"b", b"c", b"d"]
        assert not receiver.emptied
        assert [bytes(each) for each in receiver.receive(None)] == [b"later"]
        assert receiver.emptied
        assert receiver.receive(0) == [] and receiver.emptied


def test_no_packets_are_no_system_trouble(pair):
    assert pair.sender.send_many([], {}) == 0


def test_a_thousand_datagrams_go_in_one_call(pair):
    assert pair.send(*[b"x"] * 1_000) == 1_000
    got = 0
    while got < 1_000:
        got += len(pair.receiver.receive(None))
    assert got == 1_000


# ----------------------------------------------------------------------------------------- segments

UDP_SEGMENTED = 104  # UDP_GRO: a reader of this option gets a burst in the piece in which it was
                     # sent
NO_CHECKSUM = 11     # SO_NO_CHECK: without checksums the kernel takes no segments


@given(st.lists(st.tuples(st.integers(1, 2), st.sampled_from([0, 1, 7, 1000, 1000, 1000, 1472])),
                max_size=150))
def test_whatever_the_sizes_segments_arrive_as_the_datagrams_they_are(plan):
    with closing(Pair(segments=True, slots=256)) as one, closing(Pair(slots=256)) as other:
        routes = {1: one.routes[1], 2: other.routes[1]}
        for each in (one, other):
            size_receive_buffer(each.target, 4 << 20)
        packets = [(dest, bytes([number % 256]) * size) for number, (dest, size) in enumerate(plan)]
        assert one.sender.send_many(packets, routes) == len(plan)
        for dest, pair in ((1, one), (2, other)):
            assert [bytes(each) for each in pair.receiver.receive(0)] == [data for to,
                                                                          data in packets
                                                                          if to == dest]
        assert one.sender.datagrams == len(plan)
        assert one.sender.bytes == sum(size for _, size in plan)
        assert one.sender.segments and one.sender.errors == one.sender.dropped == 0


@pytest.mark.parametrize("segments, pieces", [(True, [64 * 1000, 3100]),
                                              (False, [1000] * 67 + [100])])
def test_datagrams_of_one_size_go_to_the_kernel_in_one_piece(segments, pieces):
    with closing(Pair(segments=segments, slots=256)) as pair:
        size_receive_buffer(pair.target, 4 << 20)
        pair.target.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENTED, 1)
        assert pair.send(*[bytes(1000)] * 67, bytes(100)) == 68
        assert [len(each) for each in pair.receiver.receive(None)] == pieces


def test_where_the_kernel_takes_no_segments_datagrams_go_one_by_one():
    with closing(Pair(segments=True, slots=256)) as pair:
        pair.source.setsockopt(socket.SOL_SOCKET, NO_CHECKSUM, 1)
        datagrams = [bytes([each]) * 100 for each in range(100)]
        assert pair.send(*datagrams) == 100
        assert [bytes(each) for each in pair.receiver.receive(None)] == datagrams
        assert not pair.sender.segments and pair.sender.errors == 0


def test_an_icmp_error_costs_no_segments():
    with refused_socket() as source, closing(Pair(slots=256)) as pair:
        sender = Sender(source.fileno(), segments=True)
        sender.send_many([(1, b"to nobody")], {1: SockAddr(*source.getpeername())})
        datagrams = [bytes([each]) * 100 for each in range(30)]
        # the error of the first waits here
        assert sender.send_many([(1, each) for each in datagrams], pair.routes) == 30
        assert [bytes(each) for each in pair.receiver.receive(None)] == datagrams
        assert sender.segments and sender.errors == 0


def test_a_datagram_that_is_larger_than_agreed_is_refused():
    with udp_socket() as source, closing(Pair()) as pair:
        sender = Sender(source.fileno(), 1472, segments=True)
        with pytest.raises(MessageTooLargeError, match="takes 1472 at most"):
            sender.send_many([(1, bytes(1472)), (1, bytes(1473))], pair.routes)
        assert pair.receiver.receive(0) == []


@pytest.mark.parametrize("largest", [0, -1, MAX_DATAGRAM + 1])
def test_the_largest_datagram_is_one_that_udp_knows(largest):
    with pytest.raises(ValueError, match="outside 1..65507"):
        Sender(0, largest)


# -------------------------------------------------------------------------------------------- views

def test_views_are_read_only_and_show_the_next_datagram_after_the_next_call(pair):
    pair.send(b"first")
    (view,) = pair.receiver.receive(None)
    assert view.readonly
    pair.send(b"other")
    pair.receiver.receive(None)
    assert bytes(view) == b"other"


def test_a_view_outlives_its_receiver(pair):
    pair.send(b"kept" * 1_000)
    (view,) = pair.receiver.receive(None)
    pair.receiver.close()
    del pair.receiver
    pair.receiver = Receiver([pair.target.fileno()])
    assert bytes(view) == b"kept" * 1_000


def test_a_buffer_is_free_again_after_sending(pair):
    datagram = bytearray(b"payload")
    pair.send(datagram)
    datagram.append(0)


def test_a_buffer_is_free_again_after_a_refused_batch(pair):
    datagram = bytearray(b"payload")
    with pytest.raises(TypeError):
        pair.send(datagram, "text")
    datagram.append(0)


# ------------------------------------------------------------------------------- waiting and waking

@pytest.mark.parametrize("timeout", [0, -1, 1, 10**6])
def test_without_datagrams_the_answer_is_empty_when_the_time_has_passed(pair, timeout):
    assert pair.receiver.receive(timeout) == []


def test_a_datagram_ends_the_wait(pair):
    with running(lambda: pair.send(b"now")):
        assert [bytes(each) for each in pair.receiver.receive(None)] == [b"now"]


def test_the_longest_timeout_does_not_overflow(pair):
    pair.receiver.wake()
    assert pair.receiver.receive(2**63 - 1) == []
    with running(pair.receiver.wake):
        assert pair.receiver.receive(2**63 - 1) == []


def test_a_wake_before_the_wait_makes_it_return_at_once(pair):
    pair.receiver.wake()
    assert pair.receiver.receive(None) == []


def test_a_wake_from_another_thread_ends_the_wait(pair):
    for _ in range(200):                # before the wait, in it, or between: whichever way it falls
        with running(pair.receiver.wake):
            assert pair.receiver.receive(None) == []


def test_wakes_collapse_into_one(pair):
    for _ in range(1_000):
        pair.receiver.wake()
    assert pair.receiver.receive(None) == []
    with running(lambda: pair.send(b"only this ends the second wait")):
        assert len(pair.receiver.receive(None)) == 1


def test_wakes_of_many_threads_during_one_wait_leave_at_most_one_behind(pair):
    threads = [threading.Thread(target=pair.receiver.wake) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert pair.receiver.receive(None) == []
    for thread in threads:
        thread.join()
    assert pair.receiver.receive(0) == []
    pair.send(b"only this ends the last wait")
    assert len(pair.receiver.receive(None)) == 1


def test_a_wake_does_not_hide_datagrams(pair):
    pair.send(b"there")
    pair.receiver.wake()
    assert [bytes(each) for each in pair.receiver.receive(None)] == [b"there"]
    with running(pair.receiver.wake):
        assert pair.receiver.receive(None) == []


def test_the_gil_is_free_during_the_wait(pair):
    seen = []
    with running(lambda: (seen.append("ran"), pair.receiver.wake())):
        pair.receiver.receive(None)
    assert seen == ["ran"]


@contextmanager
def interrupts(handler):
    """Signals this thread again and again until the block is left: one that comes just
    before the wait is not enough."""
    entered, left, main = threading.Event(), threading.Event(), threading.get_ident()
    old = signal.signal(signal.SIGINT, handler)

    def interrupt():
        entered.wait()                  # a signal before that would leave nobody to end this
        while not left.wait(0.001):
            signal.pthread_kill(main, signal.SIGINT)

    try:
        with running(interrupt):
            try:
                entered.set()
                yield
            finally:
                left.set()
    finally:
        signal.signal(signal.SIGINT, old)


def test_keyboard_interrupt_ends_the_wait_and_the_receiver_works_on(pair):
    raised = []

    def once(number, frame):
        if not raised:
            raised.append(number)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), interrupts(once):
        pair.receiver.receive(None)
    pair.send(b"after")
    assert [bytes(each) for each in pair.receiver.receive(None)] == [b"after"]


def test_a_signal_whose_handler_does_not_raise_does_not_end_the_wait(pair):
    seen = []

    def handler(number, frame):
        seen.append(number)
        if len(seen) == 5:
            pair.send(b"the fifth signal sent this")

    with interrupts(handler):
        assert len(pair.receiver.receive(None)) == 1


def test_a_signal_handler_may_wake(pair):
    with interrupts(lambda number, frame: pair.receiver.wake()):
        assert pair.receiver.receive(None) == []


def test_a_second_thread_in_receive_is_refused(pair):
    refused = []

    def intrude():
        try:
            while not refused:
                pair.receiver.receive(0)        # until the main thread is inside
        except RuntimeError as error:
            refused.append(str(error))
        finally:
            pair.send(b"done")

    with running(intrude):
        while not refused:
            try:
                pair.receiver.receive(SECOND // 100)
            except RuntimeError as error:
                refused.append(str(error))
    assert "one reading thread" in refused[0]


# -- What the network does is counted
# -------------------------------------------------------------------------------------

def test_a_truncated_datagram_is_counted_and_dropped_and_its_neighbours_are_not():
    with closing(Pair(datagram_size=100)) as pair:
        pair.send(b"a" * 100, b"b" * 101, b"c" * 99)
        assert [bytes(each) for each in pair.receiver.receive(None)] == [b"a" * 100, b"c" * 99]
        assert (pair.receiver.truncated, pair.receiver.datagrams, pair.receiver.bytes) == (1, 2,
                                                                                           199)


def test_an_icmp_error_is_counted_by_the_receiver_and_does_not_raise():
    with refused_socket() as sock:
        sock.send(b"nobody listens")
        receiver = Receiver([sock.fileno()])
        assert receiver.receive(0) == []
        assert receiver.errors == 1


def test_an_icmp_error_on_one_socket_does_not_hide_what_the_other_has(pair):
    with refused_socket() as sock:
        sock.send(b"nobody listens")
        receiver = Receiver([sock.fileno(), pair.target.fileno()])
        pair.send(b"there")
        assert [bytes(each) for each in receiver.receive(None)] == [b"there"]
        assert receiver.errors == 1


def test_an_icmp_error_during_the_wait_does_not_raise(pair):
    with refused_socket() as sock:
        receiver = Receiver([sock.fileno()])
        with running(lambda: sock.send(b"nobody listens")):
            assert receiver.receive(None) == []
        assert receiver.errors == 1


def test_a_datagram_that_is_told_of_an_earlier_ones_error_is_tried_again():
    with refused_socket() as sock:
        routes = {1: SockAddr(*sock.getpeername())}
        sender = Sender(sock.fileno())
        assert sender.send_many([(1, b"brings the error back")], routes) == 1
        assert sender.send_many([(1, b"meets it"), (1, b"meets that of the one before")],
                                routes) == 2
        assert (sender.errors, sender.datagrams) == (0, 3)


# ------------------------------------------------------------------------- Where nobody listens

IP_RECVERR = 11                             # Linux; the socket module does not name it


@pytest.fixture
def asking():
    """A socket that is told who refused its datagrams, and an address where nobody
    listens."""
    with udp_socket() as sock, udp_socket() as gone:
        sock.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
        yield sock, gone.getsockname(), gone


@pytest.mark.parametrize("segments", [False, True])
def test_refused_datagrams_cost_the_others_nothing(asking, segments):
    """The error of each datagram to nobody meets the next one, whoever that is for."""
    sock, place, gone = asking
    gone.close()
    with closing(Pair(slots=256)) as pair:
        routes = {**pair.routes, 2: SockAddr(*place)}
        sender = Sender(sock.fileno(), segments=segments)
        plan = [2, 1, 1, 2, 2, 2, 1, 2, 1, 1, 1, 1, 2, 1] * 5
        packets = [(to, b"%3d" % number) for number, to in enumerate(plan)]
        assert sender.send_many(packets, routes) == len(plan)
        assert (sender.errors, sender.dropped, sender.segments) == (0, 0, segments)
        assert [bytes(each) for each in pair.receiver.receive(0)] == [
            datagram for to, datagram in packets if to == 1]


def test_a_receiver_tells_once_where_nobody_listens(pair, asking):
    sock, place, gone = asking
    gone.close()
    receiver = Receiver([sock.fileno()])
    routes = {**pair.routes, 2: SockAddr(*place)}
    Sender(sock.fileno()).send_many([(1, b"somebody"), (2, b"nobody")] * 100, routes)
    while receiver.errors < 100:                # more than one reading takes
        assert receiver.receive(None) == []     # comes back at once
    assert receiver.refused() == [place]
    assert (receiver.receive(0), receiver.refused()) == ([], [])


def test_what_a_sender_has_met_already_still_ends_the_wait(pair, asking):
    sock, place, gone = asking
    gone.close()
    routes = {**pair.routes, 2: SockAddr(*place)}
    Sender(sock.fileno()).send_many([(2, b"brings the error back"), (1, b"meets it")], routes)
    receiver = Receiver([sock.fileno()])
    assert receiver.receive(None) == []
    assert receiver.refused() == [place]


def test_the_addresses_are_for_the_thread_that_receives(pair):
    refused = []

    def intrude():
        while not refused:
            try:
                pair.receiver.refused()
            except RuntimeError as error:
                refused.append(str(error))
                pair.receiver.wake()

    with running(intrude):
        while not refused:
            pair.receiver.receive(SECOND // 100)
    assert "from the thread" in refused[0]


def test_a_stream_of_datagrams_hides_no_refusal(asking):
    """There is always something to read, so it never waits."""
    sock, place, gone = asking
    gone.close()
    sender, receiver = Sender(sock.fileno()), Receiver([sock.fileno()], slots=1)
    routes = {1: SockAddr(*sock.getsockname()), 2: SockAddr(*place)}
    sender.send_many([(2, b"brings the error back"), *[(1, b"more")] * 100], routes)
    reads = 0
    while not (found := receiver.refused()):
        assert len(receiver.receive(None)) == 1
        reads += 1
    assert found == [place] and reads < 100


def test_only_so_many_addresses_are_kept(asking):
    sock, _, _ = asking
    with ExitStack() as stack:
        many = [stack.enter_context(udp_socket()) for _ in range(100)]
        routes = {number: SockAddr(*each.getsockname()) for number, each in enumerate(many)}
    receiver = Receiver([sock.fileno()])
    Sender(sock.fileno()).send_many([(number, b"anybody?") for number in routes], routes)
    while receiver.errors < 100:
        assert receiver.receive(None) == []
    assert len(receiver.refused()) == 64 and receiver.refused() == []


def test_other_errors_are_no_refusals(asking):
    """The kernel itself refuses what the interface does not carry, and says so in the
    same queue."""
    sock, _, _ = asking
    sock.setsockopt(socket.IPPROTO_IP, 10, 2)       # IP_MTU_DISCOVER: never cut
    with pytest.raises(OSError, match="too long"):
        sock.sendto(bytes(MAX_DATAGRAM + 1), (LOOPBACK, 9))
    receiver = Receiver([sock.fileno()])
    assert (receiver.receive(0), receiver.refused(), receiver.errors) == ([], [], 1)


def test_an_unreachable_address_is_counted_and_the_next_datagram_goes_out(pair):
    pair.routes[2] = SockAddr("255.255.255.255", 9)  # the kernel forbids broadcast without
                                                     # SO_BROADCAST
    packets = [(1, b"before"), (2, b"nowhere"), (1, b"after")]
    assert pair.sender.send_many(packets, pair.routes) == 2
    assert [bytes(each) for each in pair.receiver.receive(None)] == [b"before", b"after"]
    assert pair.sender.errors == 1


def test_a_key_without_a_route_is_counted(pair):
    assert pair.sender.send_many([(7, b"whom?"), (1, b"known")], pair.routes) == 1
    assert pair.sender.unknown == 1


FULL_BUFFER = """
import socket
from ringcast._core.sender import Sender
from ringcast._core.sockets import SockAddr
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    sender = Sender(sock.fileno())
    sent = sender.send_many([(1, bytes(1000))] * 100, {1: SockAddr("127.0.0.1", 9)})
    assert sent == sender.datagrams < 100, sent
    assert (sender.dropped, sender.errors) == (100 - sent, 0), (sender.dropped, sender.errors)
"""


FULL_QUEUE = """
import socket
from ringcast._core.sender import Sender
from ringcast._core.sockets import SockAddr
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
    sock.setsockopt(socket.IPPROTO_IP, 11, 1)       # IP_RECVERR
    sender, routes = Sender(sock.fileno()), {1: SockAddr("127.0.0.1", 9)}
    sent = sender.send_many([(1, bytes(1000))] * 20, routes)
    assert 0 < sent < 20 and sender.dropped == 20 - sent, (sent, sender.dropped)
    packets = [(1, bytes(1000)), (1, b"small"), (1, bytes(1000))]
    assert sender.send_many(packets, routes) == 1       # the small one
    assert (sender.dropped, sender.errors) == (22 - sent, 0), (sender.dropped, sender.errors)
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("tc"),
                    reason="slows a loopback of its own down: root and tc")
@pytest.mark.parametrize("limit, program", [("1mb", FULL_BUFFER), ("2500", FULL_QUEUE)])
def test_what_finds_no_room_is_dropped_and_nobody_waits(limit, program):
    """If the send buffer is full, so is the rest. The queue of the interface may have
    room for the next one."""
    slow_loopback = ("ip link set lo up && "
                     f"tc qdisc add dev lo root tbf rate 1kbit burst 2kb limit {limit}")
    # The shell and its tools crash with a sanitizer's library in them; the program gets
    # it back.
    script = f'{slow_loopback} && exec env LD_PRELOAD="$PRELOAD" "$0" -c "$1"'
    environment = {**os.environ, "LD_PRELOAD": "", "PRELOAD": os.environ.get("LD_PRELOAD", "")}
    command = ["unshare", "-n", "sh", "-c", script, sys.executable, program]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


# -- What this program does wrong raises
# ----------------------------------------------------------------------------------

def test_an_oversized_datagram_raises_and_nothing_of_its_batch_is_sent(pair):
    with pytest.raises(MessageTooLargeError, match="65508 bytes does not fit"):
        pair.send(b"first", bytes(MAX_DATAGRAM + 1))
    assert pair.receiver.receive(0) == []
    assert (pair.sender.datagrams, pair.sender.calls) == (0, 0)


@pytest.mark.parametrize("packets", [[(1, "text")], [(1, None)], [1], [(1,)], [(1, b"", b"")], None,
                                     [([], b"")]])
def test_what_is_not_a_packet_raises_and_nothing_of_its_batch_is_sent(pair, packets):
    with pytest.raises((TypeError, ValueError)):
        pair.sender.send_many(packets and [(1, b"first"), *packets], pair.routes)
    assert pair.receiver.receive(0) == []


def test_a_buffer_with_holes_raises(pair):
    with pytest.raises(BufferError):
        pair.send(memoryview(b"abcdef")[::2])


def test_a_route_that_is_no_sockaddr_raises(pair):
    with pytest.raises(TypeError):
        pair.sender.send_many([(1, b"x")], {1: (LOOPBACK, 9)})


def test_a_closed_socket_raises_in_both_directions(pair):
    pair.source.close()
    pair.target.close()
    with pytest.raises(OSError) as sending:
        pair.send(b"x")
    with pytest.raises(OSError) as receiving:
        pair.receiver.receive(None)
    assert (sending.value.errno, receiving.value.errno) == (errno.EBADF, errno.EBADF)


def test_a_descriptor_that_is_no_socket_raises_in_both_directions(tmp_path):
    with open(tmp_path / "file", "wb") as file:
        with pytest.raises(OSError) as receiving:
            Receiver([file.fileno()]).receive(0)
        with pytest.raises(OSError) as sending:
            Sender(file.fileno()).send_many([(1, b"x")], {1: SockAddr(LOOPBACK, 9)})
    assert (sending.value.errno, receiving.value.errno) == (errno.ENOTSOCK, errno.ENOTSOCK)


def test_a_closed_receiver_refuses_to_receive_and_ignores_wakes(pair):
    pair.receiver.close()
    pair.receiver.close()
    pair.receiver.wake()
    with pytest.raises(ValueError, match="closed"):
        pair.receiver.receive(0)


def test_close_is_refused_while_somebody_receives(pair):
    """A signal that comes just before the wait closes the receiver, rightly; then it is
    tried again with a new one."""
    for _ in range(1000):
        receiver = Receiver([pair.target.fileno()])
        try:
            with interrupts(lambda number, frame, receiver=receiver: receiver.close()):
                receiver.receive(None)
        except ValueError:
            continue
        except RuntimeError as error:
            assert "wake it" in str(error)
            return
    raise AssertionError("no signal came while somebody received")


@pytest.mark.parametrize("options", [
    {"slots": 0}, {"slots": 1025}, {"datagram_size": 0}, {"datagram_size": 65537}, {"fds": []},
    {"fds": [0] * 1025},
])
def test_impossible_sizes_are_refused(options):
    with pytest.raises(ValueError):
        Receiver(**{"fds": [0], **options})


@pytest.mark.parametrize("host", ["", "localhost", "127.1", "127.0.0.1 ", "127.0.0.1\0", "::1",
                                  "1.2.3.256", "é"])
def test_a_host_that_is_not_four_numbers_is_refused(host):
    with pytest.raises(ValueError):
        SockAddr(host, 1)


@pytest.mark.parametrize("port", [-1, 0, 65536])
def test_a_port_out_of_range_is_refused(port):
    with pytest.raises(ValueError):
        SockAddr(LOOPBACK, port)


def test_failed_constructors_leak_no_descriptor():
    before = open_files()
    for arguments in [([0], 0), ([0], 1025), ([],), (["text"],), ([2**40],), (None,)]:
        with pytest.raises((ValueError, TypeError, OverflowError)):
            Receiver(*arguments)
    assert open_files() == before


def test_close_and_collection_both_give_the_eventfd_back():
    before = open_files()
    closed, dropped = Receiver([0]), Receiver([0])
    assert open_files() == before + 2
    closed.close()
    del dropped
    assert open_files() == before


# ------------------------------------------------------------------------------------------ options

def test_own_datagrams_vanish_in_the_kernel_and_those_of_others_arrive(pair):
    drop_own(pair.target.fileno(), *pair.source.getsockname())
    with udp_socket() as other:
        pair.send(b"own", b"own" * 20_000, b"")
        Sender(other.fileno()).send_many([(1, b"other"), (1, b"o" * MAX_DATAGRAM), (1, b"")],
                                         pair.routes)
        assert [bytes(each) for each in pair.receiver.receive(None)] == [b"other",
                                                                         b"o" * MAX_DATAGRAM, b""]
        assert pair.receiver.receive(0) == []


def test_the_same_port_on_another_address_is_not_own(pair):
    port = pair.source.getsockname()[1]
    drop_own(pair.target.fileno(), LOOPBACK, port)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.2", port))
        Sender(other.fileno()).send_many([(1, b"other")], pair.routes)
        assert [bytes(each) for each in pair.receiver.receive(None)] == [b"other"]


@pytest.mark.parametrize("kinds", [[1], [0, 2, 255], range(32)])
def test_a_filter_keeps_or_discards_the_kinds_that_it_is_told(pair, kinds):
    """The kind is the fourth byte of a datagram. One that is too short has none."""
    all_kinds = [b"RC\2%c" % kind for kind in (1, 2, 3, 31, 32, 254, 255, 0)]
    short = [b"", b"RC\2"]
    for wanted in (True, False):
        drop_own(pair.target.fileno(), LOOPBACK, 1, kinds, wanted)
        pair.send(*all_kinds, *short)
        came = []
        while some := pair.receiver.receive(0):
            came += map(bytes, some)
        assert came == [each for each in all_kinds if (each[3] in kinds) == wanted] + (
            [] if wanted else short)
    drop_own(pair.target.fileno(), *pair.source.getsockname(), kinds, True)
    pair.send(*all_kinds, *short)
    assert pair.receiver.receive(0) == []


def test_a_filter_of_no_kinds_wants_none_and_too_many_are_refused(pair):
    drop_own(pair.target.fileno(), LOOPBACK, 1, [], True)
    pair.send(b"RC\2\1", b"")
    assert pair.receiver.receive(0) == []
    drop_own(pair.target.fileno(), LOOPBACK, 1, [], False)
    pair.send(b"RC\2\1", b"")
    assert [bytes(each) for each in pair.receiver.receive(0)] == [b"RC\2\1", b""]
    with pytest.raises(ValueError, match="32 kinds at most, not 33"):
        drop_own(pair.target.fileno(), LOOPBACK, 1, range(33))


def test_a_filter_on_a_closed_socket_raises():
    with udp_socket() as sock:
        fd = sock.fileno()
    with pytest.raises(OSError):
        drop_own(fd, LOOPBACK, 1)


def test_the_granted_receive_buffer_is_what_the_socket_has():
    with udp_socket() as sock:
        granted = size_receive_buffer(sock, 100_000)
        assert granted == sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 200_000
