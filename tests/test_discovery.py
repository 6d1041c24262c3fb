"""Where other members may be: what each kind of discovery finds, and that nobody waits
for it."""

import errno
import gc
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from asyncio import CancelledError
from functools import partial

import msgspec
import pytest
from channels import new_group
from ports import free_port
from processes import PATIENCE, wait_for

from ringcast import Channel, discovery
from ringcast.channel import seeking
from ringcast.cli.ask import ask
from ringcast.discovery import DEAD, STALE, Entry, Folder, parse
from ringcast.errors import ConfigError


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Look again at once."""
    for name in ("ASK_FIRST", "ASK_LAST", "REWRITE"):
        monkeypatch.setattr(discovery, name, 0.001)


@pytest.fixture
def finder():
    """Makes finders, closes them, and waits for their threads."""
    made = []

    def make(*args):
        made.append(parse(*args))
        return made[-1]
    yield make
    for each in made:
        each.close()
        if each._thread is not None:
            each._thread.join(PATIENCE)


def threads():
    return {each for each in threading.enumerate() if each.name == "ringcast discovery"}


class Resolver:
    """Answers in the place of the system's resolver, from a table that a test may
    change."""

    def __init__(self, **table):
        self.table = {name.replace("_", "."): answer for name, answer in table.items()}
        self.asked = []
        self.may_answer = threading.Event()
        self.may_answer.set()

    def __call__(self, name, port, family, kind):
        self.asked.append(name)
        assert (port, family) == (None, socket.AF_INET)
        self.may_answer.wait(PATIENCE)
        answer = self.table.get(name, socket.gaierror(-2, "Name or service not known"))
        if isinstance(answer, Exception):
            raise answer
        return [(family, kind, 6, "", (address, 0)) for address in answer]

    def wait_for_round(self):
        """Wait until a round of questions has begun and another one after it."""
        count = len(self.asked)
        wait_for(lambda: len(self.asked) > count + 2)


@pytest.fixture
def resolver(monkeypatch):
    made = Resolver(a_example=["10.0.0.1"], all_example=["10.0.0.3", "10.0.0.2", "10.0.0.3"])
    monkeypatch.setattr(socket, "getaddrinfo", made)
    yield made
    made.may_answer.set()


@pytest.fixture
def warnings(caplog):
    """The warnings so far."""
    caplog.set_level(logging.WARNING, "ringcast")
    return lambda: [record.getMessage() for record in caplog.records]


def in_child(act):
    """Call `act` in a forked child; return what it returned."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, repr(act()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said


# ------------------------------------------------------------------------------------- What is said

@pytest.mark.parametrize("stack", [pytest.param("mcast-udp", marks=pytest.mark.udp), "mcast-tcp"])
@pytest.mark.parametrize("bad", ["192.0.2.1:7700", "localhost:7700"])
def test_addresses_at_which_nobody_can_be_sought_are_named_once(warnings, monkeypatch, stack, bad):
    """That of another host, say, where the interface is loopback; or a name."""
    monkeypatch.setattr(seeking, "PAUSE", 1)
    found, asked = [bad, "127.0.0.1:9"], []

    def find():
        asked.append(len(found))
        return list(found)

    with Channel(new_group(), stack=stack, port=free_port(), discovery=find) as channel:
        physical = channel._transport.physical
        wait_for(lambda: warnings())
        found.append("127.0.0.2:9")
        wait_for(lambda: asked[-1] == 3 and len(channel._driver.seeking._known) == 3)
    assert warnings() == [f"cannot look for members at {bad} from {physical}; give IPv4 addresses "
                          "with a port that the option interface reaches, at most 1024"]


def test_who_asks_only_names_such_addresses_too(warnings):
    how = "hosts:192.0.2.1:7700,192.0.2.2:7700"
    assert ask(new_group(), "mcast-tcp", how, 0.1, {"port": free_port()}) == []
    assert [line.split(" from")[0] for line in warnings()] == [
        "cannot look for members at 192.0.2.1:7700 and 1 more"]



@pytest.mark.parametrize("wrong", [
    "", "multicasts", "multicast:", "hosts", "hosts:", "hosts:a,", "hosts:a:7700,,b", "hosts:a:0",
    "hosts:a:65536", "hosts:a:b", "hosts:a b:1", "hosts:a:1:2", "hosts:::1", "dns", "dns:",
    "dns:a,b", "dns:a:", "dns:a:99999", "dns:" + "a" * 254, "folder", "folder:", "folder:\0",
    "etcd:a", None, 7, b"multicast", ["hosts:a"],
])
def test_what_is_no_discovery_is_refused_with_a_sentence(wrong):
    with pytest.raises(ConfigError, match="discovery=.*(is none of multicast|is not HOST)"):
        parse(wrong)


def test_an_async_function_is_refused_with_a_sentence():
    """Its body would never run."""
    async def find():
        return ["127.0.0.1:7700"]

    with pytest.raises(TypeError, match="discovery is called on a thread .* cannot be async"):
        Channel("g", stack="mcast-tcp", discovery=find)


@pytest.mark.parametrize("how", ["hosts:a", "hosts:127.0.0.1", "hosts:a:7700,b", "dns:a"])
def test_over_udp_an_address_without_a_port_is_refused_with_a_sentence(how):
    for stack in ("mcast-udp", "nakack2-udp"):
        with pytest.raises(ConfigError, match="over UDP nobody is at .* without a port"):
            Channel("g", stack=stack, discovery=how)
        with pytest.raises(ConfigError, match="over UDP nobody is at .* without a port"):
            ask("g", stack, how, 0, {})
    Channel("g", stack="inproc", discovery=how).close()
    parse(how).close()


def test_a_folder_that_is_a_file_is_refused_with_a_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is no folder; name one that all members share"):
        parse(f"folder:{tmp_path}/file")


def test_a_folder_that_cannot_be_looked_at_is_refused_with_a_sentence(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="cannot be read: File name too long; name a folder"):
        parse(f"folder:{tmp_path}/{'a' * 300}")

    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "stat", refuse)
    with pytest.raises(ConfigError, match="cannot be read: Permission denied; name a folder"):
        parse(f"folder:{tmp_path}/folder")


def test_what_needs_no_asking_is_known_at_once_and_without_a_thread(finder):
    before = threads()
    assert finder("multicast").find() == []
    hosts = finder("hosts:10.0.0.1:7700,10.0.0.2,10.0.0.1:7700")
    assert hosts.find() == ["10.0.0.1:7700", "10.0.0.2", "10.0.0.1:7700"]
    hosts.publish("10.0.0.9:1")
    assert finder("dns:10.0.0.3:80").find() == ["10.0.0.3:80"]
    assert threads() <= before


def test_the_list_that_is_returned_is_the_callers(finder):
    hosts = finder("hosts:10.0.0.1:7700")
    hosts.find().clear()
    assert hosts.find() == ["10.0.0.1:7700"]


# -------------------------------------------------------------------------------------------- Names

def test_a_name_stands_for_all_its_addresses(finder, resolver):
    named, with_port = finder("dns:all.example"), finder("dns:all.example:7700")
    wait_for(lambda: named.find() == ["10.0.0.2", "10.0.0.3"])
    wait_for(lambda: with_port.find() == ["10.0.0.2:7700", "10.0.0.3:7700"])


def test_hosts_may_be_names_and_those_that_are_none_are_known_before(finder, resolver):
    resolver.may_answer.clear()
    hosts = finder("hosts:10.0.0.7:1,a.example:7700,all.example")
    assert hosts.find() == ["10.0.0.7:1"]
    resolver.may_answer.set()
    wait_for(lambda: hosts.find() == ["10.0.0.7:1", "10.0.0.1:7700", "10.0.0.2", "10.0.0.3"])


def test_a_resolver_that_does_not_answer_keeps_nobody_waiting(finder, resolver):
    resolver.may_answer.clear()
    names = finder("dns:a.example")
    assert names.find() == []
    wait_for(lambda: resolver.asked)
    assert names.find() == []
    names.close()
    assert names.find() == []


def test_a_new_answer_is_found(finder, resolver):
    names = finder("dns:a.example")
    wait_for(lambda: names.find() == ["10.0.0.1"])
    resolver.table["a.example"] = ["10.0.0.8"]
    wait_for(lambda: names.find() == ["10.0.0.8"])


@pytest.mark.parametrize("failure", [socket.gaierror(-3, "Try again"), UnicodeError("too long")])
def test_a_name_that_cannot_be_resolved_keeps_its_addresses_and_is_logged_once(
        finder, resolver, warnings, failure):
    names = finder("hosts:a.example:1,all.example:2")
    wait_for(lambda: len(names.find()) == 3)
    resolver.table |= {"a.example": failure, "all.example": ["10.0.0.4"]}
    wait_for(lambda: names.find() == ["10.0.0.1:1", "10.0.0.4:2"])
    resolver.wait_for_round()
    assert len(warnings()) == 1
    assert warnings()[0].startswith("cannot look for members: a.example:1, all.example:2: ")


def test_a_name_that_fails_again_later_is_logged_again(finder, resolver, warnings):
    names = finder("dns:new.example")
    names.find()
    for number, address in enumerate(("10.0.0.5", "10.0.0.6"), 1):
        resolver.table.pop("new.example", None)
        wait_for(lambda number=number: len(warnings()) == number)
        resolver.table["new.example"] = [address]
        wait_for(lambda address=address: names.find() == [address])


def test_pauses_grow_while_the_answer_stays_the_same_and_begin_again_with_a_new_one(
        monkeypatch, resolver):
    monkeypatch.setattr(discovery, "ASK_FIRST", 0.5)
    monkeypatch.setattr(discovery, "ASK_LAST", 3.0)
    names = parse("dns:a.example")
    assert [names.turn() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    resolver.table["a.example"] = ["10.0.0.8"]
    assert [names.turn() for _ in range(2)] == [0.5, 1.0]
    resolver.table.clear()
    assert [names.turn() for _ in range(3)] == [2.0, 3.0, 3.0]
    names.close()
    assert names.turn() is None


def test_the_systems_resolver_is_asked(finder):
    names = finder("dns:localhost:7700")
    wait_for(lambda: names.find() == ["127.0.0.1:7700"])


# -------------------------------------------------------------------------------- A user's function

def test_a_function_is_asked_again_and_again(finder):
    answers = [["10.0.0.1:1"], ("10.0.0.2:2", "10.0.0.3"), "10.0.0.4:4"]
    asked = finder(lambda: answers[0])
    wait_for(lambda: asked.find() == ["10.0.0.1:1"])
    del answers[0]
    wait_for(lambda: asked.find() == ["10.0.0.2:2", "10.0.0.3"])
    del answers[0]
    wait_for(lambda: asked.find() == ["10.0.0.4:4"])


@pytest.mark.parametrize("wrong", [None, [7], [b"10.0.0.1:1"], ["10.0.0.2:1", None], 0])
def test_what_a_function_does_wrong_is_logged_and_changes_nothing(finder, warnings, wrong):
    answer = [["10.0.0.1:1"]]
    asked = finder(lambda: answer[0])
    wait_for(lambda: asked.find() == ["10.0.0.1:1"])
    answer[0] = wrong
    wait_for(lambda: warnings())
    assert asked.find() == ["10.0.0.1:1"]


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, CancelledError])
def test_a_function_that_raises_is_asked_again(finder, warnings, error):
    count = []

    def members():
        count.append(1)
        if len(count) < 4:
            raise error("not yet")
        return ["10.0.0.1:1"]

    asked = finder(members)
    wait_for(lambda: asked.find() == ["10.0.0.1:1"])
    assert len(warnings()) == 1 and "members: not yet" in warnings()[0]


def test_only_so_many_addresses_are_taken(finder):
    def endless():
        number = 0
        while True:
            number += 1
            yield f"10.0.{number >> 8 & 255}.{number & 255}:1"

    asked = finder(endless)
    wait_for(lambda: len(asked.find()) == 1024)


# ------------------------------------------------------------------------------------------ Folders

def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_members_that_share_a_folder_find_each_other_and_not_themselves(finder, tmp_path):
    path = tmp_path / "deep" / "group"              # is made
    members = [finder(f"folder:{path}", name) for name in "ABC"]
    for number, each in enumerate(members, 1):
        each.publish(f"10.0.0.{number}:7700")
    everybody = {f"10.0.0.{number}:7700" for number in (1, 2, 3)}
    for number, each in enumerate(members, 1):
        wait_for(lambda each=each, number=number:
                 set(each.find()) == everybody - {f"10.0.0.{number}:7700"})
    entries = [msgspec.json.decode((path / name).read_bytes()) for name in files(path)
               if not name.endswith(".draft")]
    assert {(entry["name"], entry["physical"]) for entry in entries} == {
        (name, f"10.0.0.{number}:7700") for number, name in enumerate("ABC", 1)}
    assert all(isinstance(entry["time"], int) for entry in entries)


def test_who_only_looks_writes_nothing(finder, tmp_path):
    one, other = finder(f"folder:{tmp_path}"), finder(f"folder:{tmp_path}")
    one.publish("10.0.0.1:7700")
    wait_for(lambda: other.find() == ["10.0.0.1:7700"])
    assert {name.removesuffix(".draft") for name in files(tmp_path)} == {one.file.name}


def test_who_only_looks_makes_no_folder_and_says_that_there_is_none(finder, tmp_path, warnings):
    other = finder(f"folder:{tmp_path}/typed wrong")
    wait_for(lambda: other.find() == [] and warnings())
    assert "typed wrong: [Errno 2] No such file or directory" in warnings()[0]
    assert not list(tmp_path.iterdir())
    finder(f"folder:{tmp_path}/typed wrong").publish("10.0.0.1:7700")
    wait_for(lambda: other.find() == ["10.0.0.1:7700"])


def test_a_new_address_replaces_the_former_one(finder, tmp_path):
    one, other = finder(f"folder:{tmp_path}"), finder(f"folder:{tmp_path}")
    for address in ("10.0.0.1:1", "10.0.0.1:2"):
        one.publish(address)
        wait_for(lambda address=address: other.find() == [address])


def test_who_closes_is_found_no_more(finder, tmp_path):
    one, other = finder(f"folder:{tmp_path}"), finder(f"folder:{tmp_path}")
    one.publish("10.0.0.1:7700")
    wait_for(lambda: other.find() == ["10.0.0.1:7700"])
    one.close()
    one.close()
    one.publish("10.0.0.1:7701")
    wait_for(lambda: other.find() == [])
    one._thread.join(PATIENCE)
    assert files(tmp_path) == []


@pytest.mark.parametrize("round_number", range(20))
def test_a_close_between_two_rounds_leaves_no_file(tmp_path, round_number):
    one = parse(f"folder:{tmp_path}")
    one.publish("10.0.0.1:7700")
    wait_for(lambda: files(tmp_path))
    one.close()
    one._thread.join(PATIENCE)
    assert files(tmp_path) == []


@pytest.mark.parametrize("is_written", [False, True])
def test_a_close_while_the_file_is_written_leaves_no_file(tmp_path, monkeypatch, is_written):
    """Before and after the file appears."""
    one = parse(f"folder:{tmp_path}")
    one._physical = "10.0.0.1:7700"
    replace = os.replace

    def close_in_the_middle(draft, path):
        if is_written:
            replace(draft, path)
        one.close()
        if not is_written:
            replace(draft, path)

    monkeypatch.setattr(os, "replace", close_in_the_middle)
    assert one.look() == []
    assert files(tmp_path) == []


def put_file(folder, name, data=None, age=0.0, **entry):
    """Write a member's file that was last written so long ago."""
    path = folder / name
    path.write_bytes(msgspec.json.encode(Entry(**{"name": "X", "physical": "10.0.0.9:1", "time": 0,
                                                  **entry})) if data is None else data)
    written = time.time() - age
    os.utime(path, (written, written))
    return path


MEMBER = "member-00000000000000aa.json"


@pytest.mark.parametrize("age, is_found, is_kept", [
    (0, True, True), (STALE / 2, True, True), (STALE * 2, False, True), (DEAD / 2, False, True),
    (DEAD * 2, False, False), (-3600, True, True)])
def test_files_of_who_died_are_ignored_soon_and_removed_late(tmp_path, age, is_found, is_kept):
    file = put_file(tmp_path, MEMBER, age=age)
    assert parse(f"folder:{tmp_path}").look() == ["10.0.0.9:1"] * is_found
    assert file.exists() == is_kept


def test_the_clock_of_the_file_system_counts_and_not_that_of_the_machine(tmp_path, monkeypatch):
    put_file(tmp_path, MEMBER)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 10 * DEAD)
    one = parse(f"folder:{tmp_path}")
    one._physical = "10.0.0.1:1"
    assert one.look() == ["10.0.0.9:1"]


@pytest.mark.parametrize("data", [
    b"", b"{", b"null", b"[]", b'{"name": "X"}', b'{"name": "X", "physical": 7, "time": 0}',
    b'{"name": "X", "physical": "10.0.0.9:1", "time": "now"}', b"\xff" * 20, bytes(100),
    b'{"name": "\xff", "physical": "\xff", "time": 0}', b" " * 10_000,
    b'{"name": "X", "physical": "10.0.0.9:1", "time": 0} and more', b'{"more": ' + b"[" * 4000,
])
def test_damaged_files_are_ignored(tmp_path, data):
    put_file(tmp_path, "member-00000000000000bb.json", data)
    put_file(tmp_path, MEMBER, physical="10.0.0.1:1")
    assert parse(f"folder:{tmp_path}").look() == ["10.0.0.1:1"]


def test_a_field_that_a_later_version_adds_does_no_harm(tmp_path):
    put_file(tmp_path, MEMBER, b'{"name":"X","physical":"10.0.0.9:1","time":1,"more":[1]}')
    assert parse(f"folder:{tmp_path}").look() == ["10.0.0.9:1"]


def test_what_is_no_members_file_is_left_alone_however_old(tmp_path):
    strangers = [put_file(tmp_path, name, age=2 * DEAD).name for name in (
        "notes.txt", "member-1.json", "member-00000000000000AA.json", "member-00000000000000aa.jso",
        "x" + MEMBER, MEMBER + ".draft.draft")]
    (tmp_path / "member-00000000000000cc.json").mkdir()
    os.mkfifo(tmp_path / "member-00000000000000dd.json")
    (tmp_path / "member-00000000000000ee.json").symlink_to(tmp_path / "notes.txt")
    before = files(tmp_path)
    assert parse(f"folder:{tmp_path}").look() == [] and strangers
    assert files(tmp_path) == before


def test_a_draft_that_a_member_left_is_not_read_and_removed_late(tmp_path):
    old = put_file(tmp_path, "member-00000000000000bb.json.draft", age=2 * DEAD)
    new = put_file(tmp_path, MEMBER + ".draft")
    assert parse(f"folder:{tmp_path}").look() == []
    assert (old.exists(), new.exists()) == (False, True)


def test_a_file_that_vanishes_while_the_folder_is_read_does_no_harm(tmp_path, monkeypatch):
    first = put_file(tmp_path, MEMBER)
    put_file(tmp_path, "member-00000000000000bb.json", physical="10.0.0.1:1")
    read = Folder._read_entry

    def read_entry(self, entry, now):
        first.unlink(missing_ok=True)
        return read(self, entry, now)

    monkeypatch.setattr(Folder, "_read_entry", read_entry)
    assert parse(f"folder:{tmp_path}").look() == ["10.0.0.1:1"]


def test_a_folder_that_fails_is_logged_once_and_what_was_known_stays(
        finder, tmp_path, monkeypatch, warnings):
    one, other = finder(f"folder:{tmp_path}"), finder(f"folder:{tmp_path}")
    one.publish("10.0.0.1:1")
    wait_for(lambda: other.find() == ["10.0.0.1:1"])
    failures = []

    def fail(path):
        failures.append(path)
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", fail)
        wait_for(lambda: len(warnings()) == 2 and len(failures) > 20)       # of both
        assert other.find() == ["10.0.0.1:1"]
    one.publish("10.0.0.1:2")
    wait_for(lambda: other.find() == ["10.0.0.1:2"])
    assert len(warnings()) == 2 and all("Stale file" in each for each in warnings())


def test_who_cannot_write_into_a_folder_finds_the_others_all_the_same(
        finder, tmp_path, monkeypatch, warnings):
    one, other = finder(f"folder:{tmp_path}"), finder(f"folder:{tmp_path}")
    one.publish("10.0.0.1:1")
    wait_for(lambda: list(tmp_path.glob("*.json")))

    def fail(folder):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(other, "_write", partial(fail, other))
    other.publish("10.0.0.1:2")
    wait_for(lambda: other.find() == ["10.0.0.1:1"])
    wait_for(warnings)
    assert "Read-only file system" in warnings()[0]


# -------------------------------------------------------------------------------- Threads and forks

def test_a_system_that_has_no_thread_is_asked_again(monkeypatch):
    start, refused = threading.Thread.start, []

    def refuse_once(thread):
        if not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    asked = parse(lambda: ["10.0.0.1:1"])
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse_once)
        assert asked.find() == [] and refused
        wait_for(lambda: asked.find() == ["10.0.0.1:1"])
    asked.close()


def test_a_finder_that_everybody_has_forgotten_ends_its_thread():
    asked = parse(lambda: [])
    asked.find()
    thread = asked._thread
    del asked

    def is_over():
        gc.collect()
        return not thread.is_alive()
    wait_for(is_over)


def test_close_ends_the_thread_however_long_it_would_wait(monkeypatch):
    for name in ("ASK_FIRST", "ASK_LAST"):
        monkeypatch.setattr(discovery, name, 10 * PATIENCE)
    asked = parse(lambda: ["10.0.0.1:1"])
    wait_for(asked.find)
    asked.close()
    asked._thread.join(PATIENCE)
    assert not asked._thread.is_alive()


def test_publish_is_known_however_long_the_folder_would_wait(monkeypatch, finder, tmp_path):
    monkeypatch.setattr(discovery, "REWRITE", 10 * PATIENCE)
    one = finder(f"folder:{tmp_path}")
    one.find()
    one.publish("10.0.0.1:1")
    wait_for(lambda: one.file.name in files(tmp_path))


def test_a_finder_has_one_thread_whoever_asks(finder):
    before = threads()
    asked = finder(lambda: [])
    asking = [threading.Thread(target=asked.find) for _ in range(8)]
    for each in asking:
        each.start()
    for each in asking:
        each.join()
    assert threads() - before == {asked._thread}


def test_a_forked_child_knows_what_was_known_and_removes_nothing(finder, tmp_path):
    one, other = finder(f"folder:{tmp_path}"), finder(f"folder:{tmp_path}")
    one.publish("10.0.0.1:1")
    wait_for(lambda: other.find() == ["10.0.0.1:1"] and one.file.exists())
    assert in_child(lambda: (other.find(), one.publish("10.0.0.1:2"), one.close())) == repr(
        (["10.0.0.1:1"], None, None))
    assert one.file.exists()
    assert in_child(lambda: parse(f"folder:{tmp_path}").look()) == repr(["10.0.0.1:1"])


def test_a_process_ends_although_a_finder_was_not_closed():
    program = ("import threading\nfrom ringcast.discovery import parse\n"
               "parse(threading.Event().wait).find()\n")
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE)
