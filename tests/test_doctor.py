"""The doctor finds each fault that is planted, says what to do, and finds none where
there is none."""

import json
import os
import secrets
import shlex
import shutil
import socket
import subprocess
import threading
from contextlib import ExitStack, closing

import pytest
from channels import new_group
from processes import RINGCAST, ringcast, wait_for
from test_statusfile import snapshot

from ringcast import Channel, doctor, statusfile
from ringcast.cli import ask
from ringcast.cli.doctor import doctor_command
from ringcast.config import OF_FLUSH, configure, terms_of
from ringcast.doctor import (
    LARGEST_PACKET,
    SEALED,
    Finding,
    Heard,
    Measured,
    examine,
    measure,
    open_udp,
)
from ringcast.errors import TransportError
from ringcast.protocols.membership.messages import Present
from ringcast.protocols.security.seal import HEADER, MAGIC, VERSION
from ringcast.snapshot import Waiting
from ringcast.status import InprocStatus, MembershipStatus, SealStatus, Status
from ringcast.statusfile import snapshots

pytestmark = pytest.mark.udp


@pytest.fixture(autouse=True)
def shared(tmp_path, monkeypatch):
    """The folder for status files, of this test alone."""
    monkeypatch.setattr(statusfile, "SHARED", tmp_path)


def healthy(**changed):
    """What is measured where nothing is wrong, but for what a test changes."""
    return Measured(**{"place": "239.1.1.1:7700 on 127.0.0.1", "came_back": True,
                       "granted": 16 << 20, "mtu": LARGEST_PACKET, "clocksource": "tsc",
                       "is_synchronised": True, "heard": Heard()} | changed)


def found(measured, *known, group="g", stack="mcast-udp"):
    """The checks that found something, and what they found."""
    findings = examine(group, stack, configure({}), measured, known)
    for each in findings:
        assert bool(each.advice) is (each.level != "ok"), each
    return {each.check: each for each in findings if each.level != "ok"}


def test_nothing_is_found_where_nothing_is_wrong():
    assert found(healthy()) == {}


@pytest.mark.parametrize(("fault", "check", "words"), [
    ({"came_back": False}, "multicast", "did not come back"),
    ({"granted": 212_992}, "buffers", "net.core.rmem_max=16777216"),
    ({"mtu": 1_500}, "mtu", "cuts each datagram"),
    ({"mtu": 1_280, "is_loopback": False}, "mtu", "max_datagram=1252"),
    ({"clocksource": "hpet"}, "clock", "hpet"),
    ({"is_synchronised": False}, "wall clock", "chrony"),
    ({"refusal": "another program uses it"}, "socket", "another program uses it"),
    ({"heard": Heard(foreign=3)}, "two groups", "port or group_address"),
    ({"heard": Heard(other_version=3)}, "version", "ringcast --version"),
    ({"heard": Heard(strange=3)}, "strangers", "not of ringcast"),
    ({"heard": Heard(ours=1, sealed=1)}, "secret", "the same secret")])
def test_a_fault_of_the_machine_or_the_traffic_is_found_and_explained(fault, check, words):
    (name, finding), = found(healthy(**fault)).items()
    assert name == check and words in f"{finding.text} {finding.advice}"


def living(**fields):
    """A snapshot of this very process."""
    return snapshot(**{"pid": os.getpid(), "started": statusfile.process("self")[1],
                       "stack": "mcast-udp", "written_at": 2**62} | fields)


@pytest.mark.parametrize(("known", "check", "words"), [
    ([living(), living(version="9")], "version", "1 with ringcast 9"),
    ([living(), living(stack="nakack2-udp")], "stack", "1 with nakack2-udp"),
    ([living(place="here"), living(place="there")], "place", "1 with there"),
    ([living(), living(is_sealed=True)], "secret", "1 with a secret or keys"),
    ([living(name="A"), living(name="B", view_id=5)], "views", "'A'; 'B'"),
    ([living(group="other", place="239.1.1.1:7700 on 127.0.0.1")], "two groups", "'other'"),
    ([living(written_at=0)], "process", "takes no turns"),
    ([living(fault="because")], "process", "because"),
    ([living(slowest="B", waiting=[Waiting(None, 0.5), Waiting(None, 16)])], "application",
     "has waited 16 s for room to send see whether 'B'"),
    ([living(slowest="B", waiting=[Waiting("C", 16)])], "application", "see whether 'C'"),
    ([living(waiting=[Waiting(None, 16)])], "application", "see whether some member takes"),
    ([snapshot(pid=2**22 + 1)], "process", "is dead"),
    ([living(stack="nakack2-udp")], "stack", "--stack nakack2-udp")])
def test_a_fault_of_the_members_is_found_and_explained(known, check, words):
    (name, finding), = found(healthy(), *known).items()
    assert name == check and words in f"{finding.text} {finding.advice}"


@pytest.mark.parametrize(("now", "level"), [(5, "warning"), (6, "fault")])
def test_what_members_counted_before_somebody_looked_is_over(now, level):
    def counted(number):
        return living(is_sealed=True, status=Status(
            transport=InprocStatus(), seal=SealStatus(hellos_refused=number),
            membership=MembershipStatus(num_refused=number)))

    findings = examine("g", "mcast-udp", configure({}), healthy(), [counted(now)],
                       before=[counted(5)])
    assert {each.check: each.level for each in findings if each.level != "ok"} == {
        "secret": level, "terms": level}


def answer(name="A", **terms):
    """What a member answers."""
    return Present(name, "", terms_of("mcast-udp", configure({}), OF_FLUSH) | terms, 5, 1, 1,
                   names=[name])


def test_members_elsewhere_with_other_options_and_a_parted_group_are_found_and_explained():
    findings = examine("g", "mcast-udp", configure({}), healthy(), [],
                       [answer("A"), answer("B", stack="nakack2-udp")])
    said = {each.check: f"{each.text} {each.advice}" for each in findings if each.level == "fault"}
    assert "'A'; 'B'" in said["group"]
    assert "'B' has stack='nakack2-udp'" in said["terms"] and "same stack" in said["terms"]
    findings = examine("g", "mcast-udp", configure({}), healthy(), [living()], [answer()])
    assert "fault" not in {each.level for each in findings}
    said = {each.check: each.text for each in findings}
    assert said["group"] == "1 member answered, in one view"
    assert said["views"] == "1 member here, in one view"


@pytest.mark.parametrize(("more", "level"), [
    (["--set", "capacity=200"], "fault"), (["--set", "capacity=100"], None), ([], "warning")])
def test_the_command_asks_the_members(shared, more, level):
    """That all of them have another value than the default keeps nobody out who knows
    it."""
    group, place = new_group(), {"port": port()}
    with Channel(group, name="A", capacity=100, **place):
        said = ringcast("doctor", group, "--json", "--seconds", 0.3, "--set",
                        f"port={place['port']}", *more)
        found = {each["check"]: each for each in map(json.loads, said.stdout.splitlines())}
    assert said.returncode == (level == "fault"), said.stderr + said.stdout
    assert found["group"]["level"] == "ok" and ("terms" in found) == (level is not None)
    if level is not None:
        assert found["terms"]["level"] == level and "capacity='100'" in found["terms"]["text"]


@pytest.mark.parametrize(("said", "is_asked"), [
    ({}, False), ({"secret_file": "file"}, True), ({"trust": "folder"}, True),
    ({"options": ["insecure=True"]}, True), ({"options": ["interface=127.0.0.1"]}, True)])
def test_off_loopback_it_asks_nobody_without_a_key(monkeypatch, capsys, said, is_asked):
    asked = []
    monkeypatch.setattr(doctor, "measure", lambda *_: healthy(is_loopback=False))
    monkeypatch.setattr(ask, "ask", lambda *call: asked.append(call[4]) or [])
    options = ["interface=192.0.2.2", *said.get("options", [])]
    doctor_command("g", seconds=0.1, **said | {"options": options})
    assert len(asked) == is_asked
    assert ("no member was asked" in capsys.readouterr().out) != is_asked
    assert all(("insecure" in chosen) == ("insecure=True" in options) for chosen in asked)


def looked_at(group, seconds=0.0, stack="mcast-udp", **options):
    """What the doctor finds of a group on this machine, but for this machine's own
    MTU and clocks."""
    config = configure(options, stack)
    findings = examine(group, stack, config, measure(group, stack, config, seconds), snapshots())
    return {each.check: each for each in findings
            if each.level != "ok" and each.check not in ("mtu", "clock", "wall clock", "buffers")}


def port():
    return 20_000 + secrets.randbelow(40_000)


def test_members_that_work_are_healthy():
    group, place = new_group(), {"port": port()}
    with Channel(group, name="A", **place), Channel(group, name="B", **place):
        wait_for(lambda: len(snapshots(group)) == 2
                 and {each.status.membership.num_members for each in snapshots(group)} == {2})
        assert looked_at(group, 0.05, **place) == {}


def plant(undo, **channels):
    """Open channels of one group or of several, and return when all are published."""
    made = [undo.enter_context(Channel(options.pop("group"), name=name, **options))
            for name, options in channels.items()]
    wait_for(lambda: {each.state for each in snapshots()} == {"member"}
             and len(snapshots()) == len(made))


def test_two_groups_at_one_address_and_port_are_heard_and_known():
    place = {"port": port(), "group_address": "239.255.7.7", "heartbeat_interval": 5}
    group, other = new_group(), new_group()
    with ExitStack() as undo:
        plant(undo, A={"group": group, **place}, B={"group": other, **place})
        heard = looked_at(group, 0.1, **place)["two groups"]
        known = looked_at(group, 0, **place)["two groups"]
    assert "datagrams of another group" in heard.text and repr(other) in known.text


def test_members_with_another_stack_another_port_and_another_secret_are_found():
    group, first = new_group(), port()
    with ExitStack() as undo:
        plant(undo, A={"group": group, "port": first},
              B={"group": group, "port": first + 1, "stack": "nakack2-udp"},
              C={"group": group, "port": first, "secret": lambda: bytes(range(32))})
        found = looked_at(group, 0.0, port=first)
    assert {"stack", "place", "secret"} <= found.keys()


def test_a_datagram_of_another_version_and_one_of_another_program_are_told_apart():
    group, config = new_group(), configure({"port": port(), "group_address": "239.255.7.8"})
    with closing(open_udp("239.255.7.8", config.port, config)) as mouth:
        stop = threading.Event()

        def speak():
            while not stop.wait(0.005):
                mouth.put([(0, b"RC\x09" + bytes(40)), (0, b"hello"), (0, SEALED + bytes(40))])

        speaker = threading.Thread(target=speak)
        speaker.start()
        heard = measure(group, "mcast-udp", config, 0.1).heard
        stop.set()
        speaker.join()
    assert heard.other_version and heard.strange and heard.sealed and not heard.ours


def test_the_start_of_a_sealed_datagram_is_the_seals():
    assert HEADER.pack(MAGIC, VERSION, 0, 0, 0, 0)[:3] == SEALED


def test_an_interface_that_is_not_there_and_a_port_that_is_taken_are_found():
    assert "no interface" in looked_at("g", interface="192.0.2.1")["socket"].advice
    taken, address = port(), "239.255.7.9"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind((address, taken))
        said = looked_at("g", port=taken, group_address=address)["socket"].advice
    assert "another program uses" in said


def test_a_port_that_another_program_uses_just_now_is_no_fault_of_the_group(monkeypatch):
    ports, open_udp = [], doctor.open_udp

    def refuse_some(address, port, config):
        ports.append(port)
        if len(ports) < doctor.TRIES:
            raise TransportError("another program uses it")
        return open_udp(address, port, config)

    monkeypatch.setattr(doctor, "open_udp", refuse_some)
    assert doctor.comes_back("239.255.7.9", configure({}))


def in_namespace(script):
    """Run the doctor in a network of its own, after `script`; what it finds. Nobody who
    was killed can have been in its group."""
    if os.geteuid() or not all(map(shutil.which, ("unshare", "ip", "nft"))):
        pytest.skip("needs root, unshare, ip and nft")
    if subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode:
        pytest.skip("no namespaces here")
    doctor = shlex.join(RINGCAST)
    run = subprocess.run(["unshare", "--net", "sh", "-ec",
                          f"{script}\n{doctor} doctor {secrets.token_hex(8)} --json --seconds 0"],
                         capture_output=True, text=True)
    assert run.returncode in (0, 1), run.stderr
    return run.returncode, {each["check"]: Finding(**each)
                            for each in map(json.loads, run.stdout.splitlines())}


def test_in_a_real_network_a_small_mtu_is_found_and_a_firewall_that_drops_multicast():
    status, findings = in_namespace("ip link set lo mtu 1500\nip link set lo up")
    assert findings["mtu"].level == "warning" and "1,500" in findings["mtu"].text
    assert findings["multicast"].level == "ok" and status == 0
    status, findings = in_namespace(
        "ip link set lo up\nnft add table ip t\n"
        "nft add chain ip t in '{ type filter hook input priority 0; }'\n"
        "nft add rule ip t in ip daddr 224.0.0.0/4 drop")
    assert findings["multicast"].level == "fault" and status == 1


def test_in_a_network_that_is_down_the_doctor_says_so():
    _, findings = in_namespace("true")
    assert findings["socket"].level == "fault"
