"""Facts about UDP multicast on loopback. Each test has a group of its own: a random
address and port in 239.255/16."""

import errno
import gc
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from ports import free_port

from ringcast._core import sockets
from ringcast.address import EVERYONE
from ringcast.errors import ClosedError, ConfigError, TransportError
from ringcast.transport import udp
from ringcast.transport.ipv4 import parse_host_port
from ringcast.transport.udp import UdpTransport

pytestmark = pytest.mark.udp
OWN_NETWORK = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("ip"),
    reason="a network of its own needs root"
)


def open_files():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def sockets_of_this_process():
    """Local addresses of the UDP sockets that this process has open, as /proc tells
    them."""
    links = [str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    found = set()
    for line in Path("/proc/self/net/udp").read_text().splitlines()[1:]:
        fields = line.split()
        if f"socket:[{fields[9]}]" in links:
            address, port = fields[1].split(":")
            host = int(address, 16).to_bytes(4, sys.byteorder)
            found.add(f"{socket.inet_ntoa(host)}:{int(port, 16)}")
    return found


@pytest.fixture
def group():
    """A group that nobody uses."""
    host = random.randrange(1, 255)
    return {"group_address": f"239.255.{host}.{random.randrange(1, 255)}", "port": free_port(1)}


@pytest.fixture
def member(group):
    """Makes members of one group, and closes them."""
    with ExitStack() as stack:
        def make(**options):
            transport = UdpTransport(**{**group, "receive_buffer": 1 << 20, **options})
            stack.callback(transport.close)
            return transport
        yield make


def drain(transport):
    """All that waits in the sockets."""
    found = []
    while datagrams := transport.poll(0):
        found += [bytes(each) for each in datagrams]
    return found


# ----------------------------------------------------------------------------------- Who hears what

def test_members_on_one_host_hear_each_others_multicast_and_not_their_own(member):
    a, b, c = member(), member(), member()
    a.put([(EVERYONE, b"from a"), (EVERYONE, b"again")])
    b.put([(EVERYONE, b"from b")])
    assert (drain(a), drain(b), drain(c)) == ([b"from b"], [b"from a", b"again"],
                                              [b"from a", b"again", b"from b"])


def test_what_is_no_bulk_passes_all_bulk_that_waits(member):
    a, b = member(), member(bulk=[1, 2])
    bulk = [b"RC\2\1%d" % number for number in range(100)]
    a.put([(EVERYONE, each) for each in bulk])
    a.put([(EVERYONE, b"RC\2\3control"), (EVERYONE, b"RC\2\2repeat"), (EVERYONE, b"")])
    came = [bytes(each) for each in b.poll(None)]
    assert not b.emptied
    assert came[:2] == [b"RC\2\3control", b""] and came[2:] == bulk[:len(came) - 2]
    assert came[2:] + drain(b) == [*bulk, b"RC\2\2repeat"]
    assert b.emptied


def test_a_unicast_reaches_its_member_alone(member):
    a, b, c = member(), member(), member()
    a.connect({2: b.physical, 3: c.physical})
    a.put([(3, b"to c"), (2, b"to b")])
    assert (drain(a), drain(b), drain(c)) == ([], [b"to b"], [b"to c"])


def test_a_member_may_send_to_itself(member):
    a = member()
    a.connect({2**64 - 1: a.physical})
    a.put([(2**64 - 1, b"self")])
    assert drain(a) == [b"self"]


@pytest.mark.parametrize("size", [0, 1, 60_000, sockets.MAX_DATAGRAM])
@pytest.mark.parametrize("to", [EVERYONE, 2])
def test_a_datagram_keeps_its_size_and_bytes(member, size, to):
    a, b = member(), member()
    a.connect({2: b.physical})
    datagram = os.urandom(size)
    a.put([(to, datagram)])
    assert drain(b) == [datagram]


def test_groups_on_one_port_do_not_hear_each_other(member, group):
    low, high = member(group_address="239.255.0.1"), member(group_address="239.255.0.2")
    low.put([(EVERYONE, b"low")])
    high.put([(EVERYONE, b"high")])
    assert (drain(low), drain(high)) == ([], [])


def test_nothing_listens_on_all_interfaces(member):
    before = sockets_of_this_process()
    a = member()
    bound = sockets_of_this_process() - before
    assert len(bound) == 2
    assert all(not address.startswith("0.0.0.0:") for address in bound)
    assert a.physical in bound


def test_the_granted_receive_buffer_holds_the_budget_of_large_datagrams(member):
    a, b = member(), member(receive_buffer=2 << 20)
    count = b.receive_budget // 60_000
    a.put([(EVERYONE, bytes(60_000))] * count)
    assert len(drain(b)) == count


# ------------------------------------------------------------------------ What others do is counted

@pytest.mark.parametrize("physical", [
    "", ":", "127.0.0.1", "127.0.0.1:", ":7700", "localhost:7700", "127.0.0.1:0", "127.0.0.1:65536",
    "127.0.0.1:-1",
    "127.0.0.1: 1", "127.0.0.1:1_0", "127.0.0.1:\u0661", "127.0.0.1\0:9", "::1:9",
    "127.0.0.1:" + "9" * 10_000, None, 7,
    b"127.0.0.1:9", "239.255.0.1:7700", "255.255.255.255:9", "0.0.0.0:9", "192.0.2.1:9",
])
def test_a_malformed_or_foreign_physical_is_counted_and_left_out(member, physical):
    a, b = member(), member()
    a.connect({2: physical, 3: b.physical})
    a.put([(2, b"lost"), (3, b"kept")])
    assert drain(b) == [b"kept"]
    assert (a.status().bad_routes, a.status().send_unknown) == (1, 1)


def test_only_a_route_that_is_new_is_parsed(member, monkeypatch):
    """A group that forms tells all routes whenever one is added."""
    a, b, c = member(), member(), member()
    parsed = []
    monkeypatch.setattr(udp, "parse_host_port",
                        lambda *route: parsed.append(route[0]) or parse_host_port(*route))
    a.connect({2: b.physical, 4: "nowhere"})
    a.connect({2: b.physical, 3: b.physical, 4: "nowhere"})
    a.put([(2, b"to b"), (3, b"and again")])
    assert drain(b) == [b"to b", b"and again"]
    a.connect({2: c.physical, 4: "nowhere"})
    a.put([(2, b"to c"), (3, b"lost"), (4, b"lost")])
    assert drain(c) == [b"to c"]
    assert parsed == [b.physical, "nowhere", b.physical, c.physical]
    assert (a.status().bad_routes, a.status().send_unknown) == (3, 2)


def test_nobody_can_take_the_place_of_everyone(member):
    a, b = member(), member()
    a.connect({EVERYONE: a.physical})
    a.put([(EVERYONE, b"all")])
    assert (drain(a), drain(b), a.status().bad_routes) == ([], [b"all"], 1)


def test_connect_replaces_the_table(member):
    a, b = member(), member()
    a.connect({2: b.physical})
    a.connect({3: b.physical})
    a.put([(2, b"former"), (3, b"present")])
    assert drain(b) == [b"present"]


def test_a_member_that_died_raises_nothing_and_shows(member):
    a, b, gone = member(), member(), member()
    a.connect({2: gone.physical, 3: b.physical, 4: gone.physical})
    gone.close()
    for _ in range(3):
        a.put([(2, b"anybody?"), (3, b"and you?")])
        assert a.poll(None) == []           # comes back for that
        assert (a.refused(), a.refused()) == ([2, 4], [])
    assert drain(b) == [b"and you?"] * 3
    assert a.status().send_errors == a.status().send_dropped == 0


def test_a_refusal_by_somebody_who_is_no_member_is_none(member):
    a, b, gone = member(), member(), member()
    a.connect({2: gone.physical, 3: b.physical})
    gone.close()
    a.put([(2, b"anybody?")])
    a.connect({3: b.physical})
    assert (a.poll(None), a.refused()) == ([], [])
    assert a.status().receive_errors == 1


# ------------------------------------------------------------------------------- Places to seek

@pytest.fixture
def elsewhere(member, group):
    """Makes members of another group: multicasts to the first do not reach them."""
    return lambda: member(group_address="239.254.0.1")


def test_what_is_for_everyone_goes_to_each_place_that_is_sought_too(member, elsewhere):
    a, b, c, d = member(), member(), elsewhere(), elsewhere()
    a.connect({2: b.physical})
    a.seek([c.physical, d.physical, c.physical])
    a.put([(EVERYONE, b"1"), (2, b"2"), (EVERYONE, b"3")])
    assert (drain(b), drain(c), drain(d)) == ([b"2", b"1", b"3"], [b"1", b"3"], [b"1", b"3"])
    a.seek([d.physical])
    a.put([(EVERYONE, b"4")])
    assert (drain(a), drain(b), drain(c), drain(d)) == ([], [b"4"], [], [b"4"])


def test_who_is_in_the_table_is_not_sought(member):
    """It hears the multicast."""
    a, b = member(), member()
    a.seek([b.physical, a.physical])
    a.connect({2: b.physical})
    a.put([(EVERYONE, b"once")])
    assert (drain(a), drain(b)) == ([], [b"once"])
    a.connect({})
    a.put([(EVERYONE, b"twice")])
    assert (drain(a), drain(b)) == ([], [b"twice"] * 2)


def test_addresses_to_seek_that_make_no_sense_or_are_too_many_are_counted(member, elsewhere):
    a, b = member(), elsewhere()
    a.seek(["", "127.0.0.1", "localhost:9", "192.0.2.1:9", "239.255.0.1:9", None, 7, b.physical])
    assert a.status().bad_addresses == 7
    a.put([(EVERYONE, b"found")])
    assert drain(b) == [b"found"]
    a.seek([f"127.0.0.2:{port}" for port in range(10_000, 11_030)])
    assert a.status().bad_addresses == 7 + 6


def test_a_place_where_nobody_is_costs_the_others_nothing(member, elsewhere):
    a, b, gone = member(), member(), elsewhere()
    a.seek([gone.physical])
    gone.close()
    a.put([(EVERYONE, b"%d" % number) for number in range(50)])
    assert drain(b) == [b"%d" % number for number in range(50)]
    assert (a.poll(None), a.refused()) == ([], [])
    assert a.status().send_errors == a.status().send_dropped == 0


# ------------------------------------------------------------------------- Waiting, waking, closing

def test_close_ends_the_poll_of_another_thread_and_then_gives_the_sockets_back(member):
    before = open_files()
    a = member()
    thread = threading.Thread(target=a.close)
    thread.start()
    with suppress(ClosedError):             # close() may be first
        assert a.poll(None) == []
    thread.join()
    assert open_files() == before


def test_a_signal_handler_may_close_during_a_poll(member):
    before, left, main = open_files(), threading.Event(), threading.get_ident()
    a = member()
    old = signal.signal(signal.SIGUSR1, lambda number, frame: a.close())

    def interrupt():
        while not left.wait(0.001):
            signal.pthread_kill(main, signal.SIGUSR1)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        assert a.poll(None) == []
    except ClosedError:
        pass                                # the first signal came before the poll
    finally:
        left.set()
        thread.join()
        signal.signal(signal.SIGUSR1, old)
    assert open_files() == before


# ------------------------------------------------------------------------------------------- A wire

A_WIRE = ("ip link set lo up && ip link add w0 mtu {mtu} type veth peer name w1 mtu {mtu} && "
          "ip link set w1 up && ip link set w0 up && "
          "ip address add 198.18.0.1/24 dev w0 && ip route add 224.0.0.0/4 dev w0")
ON_A_WIRE = """
import subprocess
from ringcast._core.sockets import SockAddr
plain = {**os.environ, "LD_PRELOAD": ""}
a = opened(interface="198.18.0.1", insecure=True)
"""


@OWN_NETWORK
@pytest.mark.parametrize("mtu, largest", [(1500, 1472), (9000, 8972), (65_535, 65_507)])
def test_a_datagram_fits_a_frame_of_its_interface(mtu, largest):
    program = ON_A_WIRE + f"""
assert a.max_datagram == {largest}, a.max_datagram
try:
    a.put([(0, bytes({largest} + 1))])
except MessageTooLargeError:
    pass
else:
    raise SystemExit("it was taken")
a.put([(0, bytes({largest}))] * 3)
assert a.status().datagrams_sent == 3, a.status()
b = opened(interface="198.18.0.1", insecure=True, max_datagram=1000)
assert b.max_datagram == 1000
"""
    in_own_network(A_WIRE.format(mtu=mtu), program)


@OWN_NETWORK
def test_what_does_not_fit_any_more_is_counted_and_never_cut():
    """The MTU shrinks under us: nothing goes out in fragments."""
    program = ON_A_WIRE + """
subprocess.run(["ip", "link", "set", "w0", "mtu", "1000"], check=True, env=plain)
a.put([(0, bytes(1400))] * 5 + [(0, bytes(900))])
assert (a.status().send_errors, a.status().datagrams_sent) == (5, 1), a.status()
assert "Ip: " in open("/proc/net/snmp").read()
names, values = [line.split() for line in open("/proc/net/snmp") if line.startswith("Ip:")]
assert dict(zip(names, values))["FragCreates"] == "0"
"""
    in_own_network(A_WIRE.format(mtu=1500), program)


@OWN_NETWORK
def test_a_wire_that_is_too_narrow_is_refused_with_a_sentence():
    program = REFUSED.format(options='interface="198.18.0.1", insecure=True', words="raise its MTU")
    in_own_network(A_WIRE.format(mtu=500), program)


# ------------------------------------------------------ Starting: one sentence that says what to do

@pytest.mark.parametrize("option, value, sentence", [
    ("group_address", "10.1.2.3", "not a multicast address; choose one in 239"),
    ("group_address", "news", "not an IPv4 address"),
    ("group_address", None, "not an IPv4 address"),
    ("port", 0, "outside 1..65535"),
    ("port", 65536, "outside 1..65535"),
    ("port", "7700", "outside 1..65535"),
    ("ttl", -1, "outside 0..255"),
    ("ttl", 256, "outside 0..255"),
    ("receive_buffer", 0, "outside 65536.."),
    ("send_buffer", 1 << 40, "outside 65536.."),
    ("interface", "eth0", "not an IPv4 address"),
    ("interface", "192.0.2.1", "say insecure=True"),
])
def test_a_value_outside_its_range_is_refused_with_a_sentence(option, value, sentence):
    before = open_files()
    with pytest.raises(ConfigError, match=sentence):
        UdpTransport(**{"group_address": "239.255.1.2", option: value})
    assert open_files() == before


@pytest.mark.parametrize("interface", ["0.0.0.0", "239.255.0.1", "255.255.255.255"])
def test_what_is_not_one_interface_is_refused_even_insecurely(group, interface):
    with pytest.raises(ConfigError, match="not the address of one interface"):
        UdpTransport(**group, interface=interface, insecure=True)


@pytest.mark.parametrize("address", ["", "group"])
def test_a_port_of_another_program_is_refused_with_a_sentence(group, address):
    before = open_files()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind((address and group["group_address"], group["port"]))
        with pytest.raises(TransportError, match="stop it or choose another port") as refusal:
            UdpTransport(**group)
    assert refusal.value.errno == errno.EADDRINUSE
    assert open_files() == before


def test_an_interface_that_is_not_here_is_refused_with_a_sentence(group):
    before = open_files()
    with pytest.raises(TransportError, match="choose one that `ip -4 address` lists") as refusal:
        UdpTransport(**group, interface="192.0.2.1", insecure=True)
    assert refusal.value.errno == errno.EADDRNOTAVAIL
    assert open_files() == before


def test_failures_late_in_the_start_leak_nothing(group, monkeypatch):
    before = open_files()

    def fail(*ignored):
        raise OSError(errno.EMFILE, "planted")

    monkeypatch.setattr("ringcast.transport.udp.Receiver", fail)
    with pytest.raises(TransportError, match="too many files open"):
        UdpTransport(**group)
    assert open_files() == before


def in_own_network(setting_up, program):
    """Run `program` in a network that holds nothing but a loopback interface; it must
    end well."""
    # The shell and its tools crash with a sanitizer's library in them; the program gets
    # it back.
    script = f'{setting_up}; exec env LD_PRELOAD="$PRELOAD" "$0" -c "$1"'
    environment = {**os.environ, "LD_PRELOAD": "", "PRELOAD": os.environ.get("LD_PRELOAD", "")}
    head = ("import functools, os\nfrom ringcast.errors import *\n"
            "from ringcast.transport.udp import UdpTransport\n"
            "opened = functools.partial(UdpTransport, group_address='239.255.77.1')\n")
    command = ["unshare", "-n", "sh", "-c", script, sys.executable, head + program]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


REFUSED = """
try:
    opened({options})
except TransportError as error:
    assert {words!r} in str(error), error
else:
    raise SystemExit("it started")
"""


@OWN_NETWORK
def test_a_loopback_that_is_down_is_refused_with_a_sentence():
    in_own_network("true", REFUSED.format(options="", words="or bring it up"))


@OWN_NETWORK
def test_a_missing_multicast_route_is_found_at_the_start():
    address_without_link = "ip address add 127.0.0.1/8 dev lo"  # can be bound to, but leads nowhere
    in_own_network(address_without_link,
                   REFUSED.format(options="", words="no multicast route to 239.255.77.1"))


@OWN_NETWORK
def test_a_low_port_without_permission_is_refused_with_a_sentence():
    refused = REFUSED.format(options="port=77", words="choose a port above 1023")
    in_own_network("ip link set lo up", "os.setresuid(65534, 65534, 65534)\n" + refused)


NETWORK_FAILS = """
import subprocess
plain = {**os.environ, "LD_PRELOAD": ""}
a, b = opened(), opened()
a.connect({2: b.physical})
subprocess.run(["ip", "link", "set", "lo", "down"], check=True, env=plain)
a.put([(0, b"all"), (2, b"one")])
assert a.poll(1000) == [] and b.poll(1000) == []
assert a.status().send_errors + a.status().datagrams_sent == 2, a.status()
subprocess.run(["ip", "link", "set", "lo", "up"], check=True, env=plain)
a.put([(2, b"back")])
assert [bytes(each) for each in b.poll(None)] == [b"back"]
"""


@OWN_NETWORK
def test_a_network_that_fails_after_the_start_raises_nothing_and_may_come_back():
    in_own_network("ip link set lo up", NETWORK_FAILS)


def test_the_largest_datagram_is_what_ipv4_allows():
    assert sockets.MAX_DATAGRAM == 65_535 - 20 - 8
