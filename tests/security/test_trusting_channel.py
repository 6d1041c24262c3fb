"""Groups that trust keys, over real transports."""

import errno
import logging
import threading
from contextlib import closing

import pytest
from channels import DEFAULTS, PATIENCE, STACKS, Collector, joined, new_group, use_stack
from ports import free_port
from processes import wait_for
from saying import assert_no_key, failed_joins, failures, keys_of, said_by, traced
from sealed_commands import check_commands
from trust_folders import folders

from ringcast import Channel, JoinTimeoutError, Succession, trust as trusts
from ringcast.cli.demo.members import DemoPlan
from ringcast.outbox.publisher import channel_factory
from ringcast.secret import write_secret
from ringcast.stacks import STACKS as STACK_SPECS
from ringcast.status import by_name
from ringcast.trust import Folder, add_key, new_key, remove_key


@pytest.fixture(params=STACKS)
def stack(request, monkeypatch):
    use_stack(monkeypatch, request.param)
    return request.param


@pytest.mark.parametrize("has_secret", [False, True], ids=["keys", "keys and a secret"])
def test_a_group_that_trusts_keys_delivers_what_it_is_sent(stack, has_secret, tmp_path):
    """Also messages to one member, and messages larger than a datagram."""
    secret = tmp_path / "secret" if has_secret else None
    if secret is not None:
        write_secret(secret)
    got, trust = {name: Collector(202) for name in "AB"}, folders(tmp_path, "AB")
    each = {name: {"on_message": got[name], "trust": trust[name]} for name in "AB"}
    with joined("AB", each, secret=secret) as channels:
        for channel in channels:
            channel.send_many([b"%d" % number for number in range(100)])
            channel.send(bytes(200_000))
        channels[0].send(b"for B", "B")
        channels[1].send(b"for A", "A")
        for collector in got.values():
            collector.wait()
        for channel in channels:
            status = channel.status()
            assert status.seal.num_verified == 1 and status.seal.hellos_refused == 0
            assert status.wire.malformed == status.seal.datagrams_unopened == 0
        if STACK_SPECS[stack].is_lossless:
            wait_for(lambda: all(by_name(channel.status())["control_links"] == 1
                                 for channel in channels))


def test_who_has_no_trusted_key_is_never_in_a_group_with_those_who_have(stack, tmp_path):
    """Also if it trusts all of them, or has a secret instead."""
    trust = folders(tmp_path, "AB")
    new_key(tmp_path / "C", "C")
    for name in "AB":
        add_key(tmp_path / "C", name, (trust[name] / f"{name}.pub").read_text())
    group, options = new_group(), {"form_margin": 300, **DEFAULTS}
    with Channel(group, name="A", trust=trust["A"], **options) as inside:
        with Channel(group, name="C", trust=tmp_path / "C", **options) as outside:
            assert outside.view.names == ("C",) and inside.view.names == ("A",)
            for other in ({"trust": tmp_path / "C"}, {"secret": lambda: bytes(32)}):
                with pytest.raises(JoinTimeoutError):
                    Channel(group, name="C/2", min_members=3, **other, **options).connect(0.3)
            status = inside.status()
    dropped = ("datagrams_unsealed", "datagrams_of_strangers", "hellos_refused",
               "handshakes_refused")
    assert status.seal.num_verified == 0
    assert sum(by_name(status).get(name, 0) for name in dropped) > 0


def test_whose_key_is_removed_is_excluded_soon_and_does_not_come_back(stack, tmp_path):
    """And who is added may come, while the others run."""
    trust, options = folders(tmp_path, "ABC"), {"suspect_timeout": 300, **DEFAULTS}
    group = new_group()
    with (Channel(group, name="A", trust=trust["A"], **options) as a,
          Channel(group, name="B", trust=trust["B"], min_members=2, **options) as b):
        with Channel(group, name="C", trust=trust["C"], min_members=3, **options) as c:
            for name in "AB":
                remove_key(trust[name], "C")
            wait_for(lambda: {"C"}.isdisjoint({*a.view.names, *b.view.names}))
            a.send(b"not for C")
            wait_for(lambda: c.view.names == ("C",))
            assert c.digest() == type(c.digest())() or a.address not in c.view
        with pytest.raises(JoinTimeoutError):
            Channel(group, name="C", trust=trust["C"], min_members=2, **options).connect(0.5)
        for name in "AB":
            add_key(trust[name], "C", (trust["C"] / "C.pub").read_text())
        with Channel(group, name="C/2", trust=trust["C"], min_members=3, **options) as c:
            assert sorted(c.view.names) == ["A", "B", "C/2"]


def test_a_key_is_changed_while_the_group_runs_as_the_page_on_security_says(stack, tmp_path):
    trust = folders(tmp_path, "ABC")
    with joined("AB", {name: {"trust": trust[name]} for name in "AB"}) as (a, b):
        group = a.group
        with Channel(group, name="C", trust=trust["C"], min_members=3, **DEFAULTS) as c:
            before = c.address
        for name in "ABC":
            remove_key(trust[name], "C")
        (trust["C"] / "C.key").unlink()
        public = new_key(trust["C"], "C")
        for name in "AB":
            add_key(trust[name], "C", public)
        with Channel(group, name="C", trust=trust["C"], min_members=3, **DEFAULTS) as c:
            assert sorted(c.view.names) == ["A", "B", "C"] and before not in c.view
            wait_for(lambda: len(a.view) == len(b.view) == 3)


def test_a_folder_that_is_gone_for_a_while_changes_nothing(stack, tmp_path, caplog):
    trust = folders(tmp_path, "AB")
    with joined("AB", {name: {"trust": trust[name]} for name in "AB"}) as (a, b):
        transport = a._transport
        trust["A"].rename(tmp_path / "away")
        for _ in range(3):
            transport._look_now.set()
            wait_for(lambda: not transport._look_now.is_set())
        (tmp_path / "away").rename(trust["A"])
        a.send(b"x")
        assert b.receive(PATIENCE).payload == b"x" and len(a.view) == 2
    assert caplog.text.count("the keys that were there are trusted until it is back") == 1


def test_a_folder_whose_disk_hangs_delays_no_message(stack, tmp_path, monkeypatch):
    trust, over = folders(tmp_path, "AB"), threading.Event()
    looks = []                          # False: it began; True: it ended

    def hang(folder):
        looks.append(False)
        over.wait(PATIENCE)
        looks.append(True)

    with joined("AB", {name: {"trust": trust[name]} for name in "AB"}) as (a, b):
        monkeypatch.setattr(Folder, "changed", hang)
        wait_for(lambda: len(looks) == 2)
        a.send(b"x")
        assert b.receive(PATIENCE).payload == b"x" and looks == [False, False]
        over.set()


def test_a_key_that_cannot_be_read_for_a_while_stays_trusted(stack, tmp_path, caplog, monkeypatch):
    """The log says so once."""
    trust, looks = folders(tmp_path, "AB"), []

    def fail(path, flags):
        looks.append(path)
        raise OSError(errno.EMFILE, "Too many open files")

    with joined("AB", {name: {"trust": trust[name]} for name in "AB"}) as (a, b):
        with monkeypatch.context() as patch:
            patch.setattr(trusts, "_open_at_once", fail)
            (trust["A"] / "B.pub").touch()
            for number in range(3):
                a._transport._look_now.set()
                wait_for(lambda number=number: len(looks) > number)
        a.send(b"x")
        assert b.receive(PATIENCE).payload == b"x" and len(a.view) == 2
    said = "B.pub cannot be read: Too many open files; the key that was there is trusted until"
    assert caplog.text.count(said) == 1


def test_two_keys_that_sign_for_one_process_are_told(tmp_path, caplog):
    trust = folders(tmp_path, "ABC")
    with joined("AB", {name: {"trust": trust[name]} for name in "AB"}, stack="inproc") as (a, _):
        seal = a._transport._seal
        keys = {name: key for key, names in seal.identity.trusted.items() for name in names}
        seal.disputed[255] = keys["B"], keys["C"]
        a._transport.wake()
        wait_for(lambda: not seal.disputed)
    assert ("the key of C says that it is the process 00000000000000ff, which is one of the key of "
            "B for all that is known here") in caplog.text


def test_no_private_key_is_in_what_a_member_says_of_itself(stack, tmp_path, caplog):
    """Nor what a process has drawn: in texts, logs, traces, errors, also about the
    folder, and the status file."""
    caplog.set_level(logging.DEBUG)
    trust = folders(tmp_path, "AB")
    each = {name: {"trust": trust[name]} for name in "AB"}
    private = trust["A"] / "A.key"
    text = private.read_text()
    with joined("AB", each, trace=str(tmp_path / "traces")) as (a, b):
        a.send(b"x")
        seal, folder = a._transport._seal, a._transport._folder
        said = [repr(each) for each in (seal.identity, folder, vars(folder), vars(seal.identity))]
        said += failures(lambda: b.send(b"y", dest="nobody"),
                         *failed_joins(a.group, "A", trust=trust["A"]))
        keys = [*keys_of(seal), folder.private.private_bytes_raw(), seal._drawn]
        said += said_by(a)

    def join_again():
        Channel(new_group(), name="A", trust=trust["A"], min_members=2, **DEFAULTS).connect(0.1)

    for damaged in (text[:-len(text) // 2], text.replace("\n", "", 2), text[:40] + text[42:]):
        private.write_text(damaged)
        said += failures(join_again)
    private.write_text(text)
    private.chmod(0o644)
    said += failures(join_again)
    said += [caplog.text, *traced(tmp_path / "traces")]
    assert_no_key(said, keys)
    assert not any(line in each for each in said for line in text.splitlines()[1:-1])


@pytest.mark.parametrize("stack", [pytest.param("mcast-udp", marks=pytest.mark.udp), "nakack2-tcp"])
def test_a_publisher_knows_how_large_its_datagrams_are(tmp_path, stack):
    """Sealed ones are longer; its outbox is opened before its channel."""
    trust, secret = folders(tmp_path, ["host"])["host"], tmp_path / "secret"
    write_secret(secret)
    for access in ({}, {"trust": trust}, {"secret": secret}, {"trust": trust, "secret": secret}):
        config, join = channel_factory(new_group(), name="host/spark", stack=stack,
                                       port=free_port(), **access)
        prefix = "host/" * ("trust" in access)
        plan = DemoPlan(new_group(), 1, 1, 0, 0, {"port": free_port()}, stack, **access,
                        prefix=prefix)
        for expected, channel in ((config, join(Succession.begin(), lambda view: False)),
                                  (plan.config, plan.channel(plan.spark))):
            with closing(channel):
                assert (channel.config.max_datagram, channel.config.max_bundle_size) == (
                    expected.max_datagram, expected.max_bundle_size)
        assert plan.names == [f"{prefix}{name}" for name in ("publisher-1", "recorder", "spark")]


@pytest.mark.parametrize("stack", [pytest.param("mcast-udp", marks=pytest.mark.udp), "nakack2-tcp"])
def test_the_commands_take_the_folder(tmp_path, stack):
    """Two of them with one key, under names below it."""
    trust = folders(tmp_path, ["A", "host"])
    check_commands(tmp_path, stack, ["--trust", trust["host"]], "host/T",
                   ["A", "host/T", "host/recorder"], trust=trust["A"])
