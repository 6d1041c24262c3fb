"""The examples run and print what a reader expects."""

import re
import select
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from ports import free_port
from processes import PATIENCE, starting, wait_for

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture
def start(request):
    """Return a function that starts an example. Kill what is left at the end.

    With -u a line and its end are two writes, and a line of another thread may come in
    between. So those that flush what they print, as threads of theirs print too, are
    started without it.
    """
    def command(name, *arguments):
        example = ROOT / "examples" / name
        unbuffered = [] if "flush=True" in example.read_text() else ["-u"]
        return [sys.executable, *unbuffered, str(example), *map(str, arguments)]

    with starting(stderr=subprocess.PIPE) as run:
        yield lambda *words: run(command(*words))


@pytest.fixture
def port():
    return ["--port", free_port(1)]


def ended(process, stdin=""):
    """Return what a process prints until it ends well."""
    out, error = process.communicate(stdin, timeout=PATIENCE)
    assert (process.returncode, error) == (0, "")
    return out


def has_line(process, line):
    """Read the output of a process up to a line. Say whether the line came."""
    return any(said == line for said in process.stdout)


def is_stopped(process):
    """Say whether a process was stopped by a signal, and has not gone on since."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def before(process, line):
    """Return the lines that a process prints before this one."""
    return list(iter(process.stdout.readline, line))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_says_how_to_run_it(path):
    text = path.read_text()
    assert text.count("\n") <= 60
    assert max(map(len, text.splitlines())) <= 100
    assert f"    python examples/{path.name}" in text.partition('"""')[2].partition('"""')[0]


def test_each_example_has_a_test():
    tests = Path(__file__).read_text()
    assert [path.name for path in EXAMPLES if f'start("{path.name}"' not in tests] == []
    assert len(EXAMPLES) == 14


@pytest.mark.udp
def test_chat(start, port):
    ann = start("chat.py", "ann", *port)
    assert has_line(ann, "-- ann\n")
    bob = start("chat.py", "bob", *port)
    assert has_line(ann, "-- ann, bob\n") and has_line(bob, "-- ann, bob\n")
    ann.stdin.write("hello bob\n")
    ann.stdin.flush()
    assert has_line(bob, "ann: hello bob\n")
    bob.stdin.write("hello ann\n")
    bob.stdin.flush()
    assert has_line(ann, "bob: hello ann\n")
    ended(ann)
    assert has_line(bob, "-- bob\n")
    assert ended(bob) == ""


@pytest.mark.udp
def test_asyncio_chat(start, port):
    ann = start("asyncio_chat.py", "ann", *port)
    assert has_line(ann, "-- ann\n")
    bob = start("asyncio_chat.py", "bob", *port)
    assert has_line(ann, "-- ann, bob\n") and has_line(bob, "-- ann, bob\n")
    ann.stdin.write("hello bob\n")
    ann.stdin.flush()
    assert has_line(bob, "ann: hello bob\n")
    bob.stdin.write("hello ann\n")
    bob.stdin.flush()
    assert has_line(ann, "bob: hello ann\n")
    ended(ann)
    assert has_line(bob, "-- bob\n")
    assert ended(bob) == ""


@pytest.mark.udp
def test_replicated_dictionary(start, port):
    ann = start("replicated_dictionary.py", "ann", *port)
    assert has_line(ann, "ann has 0 keys\n")
    ann.stdin.write("red 1\nblue 2\nred 3\n")
    ann.stdin.flush()
    assert has_line(ann, "ann: red = 3\n")
    bob = start("replicated_dictionary.py", "bob", *port)
    assert has_line(bob, "bob has 2 keys\n")
    ann.stdin.write("blue\n")
    ann.stdin.flush()
    assert has_line(bob, "ann: blue = None\n")
    assert ended(bob, "\n") == '{"red": "3"}\n'
    ended(ann)


@pytest.mark.udp
def test_sensor(start, port):
    names = ("display", "archive")
    receivers = {name: start("sensor.py", "receive", name, *port) for name in names}
    said = ended(start("sensor.py", "send", *port))
    assert said == "sent 10000 readings; 0 of them are not acknowledged\n"
    for name, receiver in receivers.items():
        assert re.fullmatch(rf"{name} received 10000 readings in \d+ batches\n", ended(receiver))


@pytest.mark.udp
def test_telemetry(start, port):
    receivers = [start("telemetry.py", role, *port) for role in ("record", "watch")]
    said = ended(start("telemetry.py", "send", *port))
    assert re.fullmatch(r"500000 readings in \d+\.\d s; 0 not acknowledged\n", said)
    recorded, watched = map(ended, receivers)
    assert recorded == "record: 500000 readings, and 0 skipped\n"
    taken, skipped = map(int, re.fullmatch(r"watch: (\d+) readings, and (\d+) skipped\n",
                                           watched).groups())
    assert taken > 0 and skipped > 0 and taken + skipped == 500_000


@pytest.mark.udp
def test_questions(start, port):
    answerer = start("questions.py", "answer", *port)
    asker = start("questions.py", "ask", "6*7", "6-7", "6/7", *port)
    refusal = "I can add, subtract and multiply two numbers"
    assert ended(asker) == f"6*7 = 42\n6-7 = -1\n6/7 = {refusal}\n"
    assert ended(answerer) == "asker asks 6*7\nasker asks 6-7\nasker asks 6/7\n"


@pytest.mark.udp
@pytest.mark.kill
def test_leader(start, port):
    often = ["--pause", 0.001, *port]
    ann = start("leader.py", "ann", *often)
    assert has_line(ann, "-- ann: ann leads\n") and has_line(ann, "ann did step 2\n")
    bob = start("leader.py", "bob", *often)
    assert has_line(bob, "-- ann, bob: ann leads\n")
    told = bob.stdout.readline()
    ann.kill()
    steps = [told, *before(bob, "-- bob: bob leads\n")]
    assert all(line.startswith("ann did step ") for line in steps)
    assert bob.stdout.readline() == f"bob did step {int(steps[-1].split()[-1]) + 1}\n"


@pytest.mark.udp
@pytest.mark.kill
def test_settings(start, port):
    """ann passes the changes on until she is killed; bob's are not lost with her."""
    ann = start("settings.py", "ann", *port)
    assert has_line(ann, "-- ann\n")
    ann.stdin.write("colour red\n")
    ann.stdin.flush()
    assert has_line(ann, '{"colour": "red"}\n')
    bob = start("settings.py", "bob", *port)
    assert has_line(bob, "-- ann, bob\n")
    bob.stdin.write("colour blue\n")
    bob.stdin.flush()
    assert has_line(ann, '{"colour": "blue"}\n')
    ann.send_signal(signal.SIGSTOP)
    bob.stdin.write("size 7\n")
    bob.stdin.flush()
    ann.kill()
    assert has_line(bob, "-- bob\n")
    assert has_line(bob, '{"colour": "blue", "size": "7"}\n')
    ended(bob)


@pytest.mark.udp
@pytest.mark.kill
def test_presence(start, port):
    ann = start("presence.py", "ann", *port)
    assert has_line(ann, "ann: online\n")
    ann.stdin.write("reading\n")
    ann.stdin.flush()
    assert has_line(ann, "ann: reading\n")
    bob = start("presence.py", "bob", *port)
    assert has_line(ann, "ann: reading bob: online\n")
    assert has_line(bob, "ann: reading bob: online\n")
    bob.kill()
    assert has_line(ann, "ann: reading\n")
    ended(ann)


# An example whose process stops as soon as it works on something.
STOPPING = """
import math, os, runpy, signal, sys
math.isqrt = lambda number: os.kill(os.getpid(), signal.SIGSTOP)
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


@pytest.mark.udp
@pytest.mark.kill
def test_work_queue(start, port, tmp_path):
    """ann stops in the middle of a job, with another one that waits, and is killed: bob
    does what she had."""
    (stopping := tmp_path / "stopping.py").write_text(STOPPING)
    ann = start(stopping, ROOT / "examples" / "work_queue.py", "worker", "ann", *port)
    giver = start("work_queue.py", "give", 10**9, 100_003, 30, 40, 50, *port)
    wait_for(lambda: is_stopped(ann))
    bob = start("work_queue.py", "worker", "bob", *port)
    ann.kill()
    assert has_line(bob, "bob works\n")
    assert sorted(ended(giver).splitlines()) == sorted(
        f"bob: {prime} is the largest prime below {number}" for prime, number in
        ((999_999_937, 10**9), (99_991, 100_003), (29, 30), (37, 40), (47, 50)))


# An example whose first message to a member comes when that one has gone.
TOO_LATE = """
import runpy, sys
import ringcast
send = ringcast.Channel.send
def fail(*arguments):
    ringcast.Channel.send = send
    print("too late", flush=True)
    raise ringcast.NotMemberError("it has gone")
ringcast.Channel.send = fail
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


@pytest.mark.udp
@pytest.mark.kill
def test_a_worker_works_for_the_next_one_if_the_giver_has_gone(start, port, tmp_path):
    (too_late := tmp_path / "too_late.py").write_text(TOO_LATE)
    ann = start(too_late, ROOT / "examples" / "work_queue.py", "worker", "ann", *port)
    giver = start("work_queue.py", "give", 30, *port)
    assert has_line(ann, "too late\n")
    giver.kill()
    assert ended(start("work_queue.py", "give", 40, *port)) == (
        "ann: 37 is the largest prime below 40\n")


@pytest.mark.udp
def test_fencing(start, port, tmp_path):
    """The leader is stopped, and still believes that it leads when it goes on."""
    ledger = tmp_path / "ledger"
    members = {name: start("fencing.py", name, ledger, *port) for name in ("ann", "bob", "cid")}
    for each in members.values():
        assert any(line.startswith("-- ") and line.count(",") == 2 for line in each.stdout)
    first = who_wrote(members)
    stopped = members.pop(first)
    stopped.send_signal(signal.SIGSTOP)
    wait_for(lambda: is_stopped(stopped))
    say(stopped, "too late")
    for each in members.values():
        assert any(line.startswith("-- ") for line in each.stdout)
    second = who_wrote(members)
    stopped.send_signal(signal.SIGCONT)
    assert answer(stopped).startswith(("the file refused too late", f"{first} does not lead in ["))
    assert [line.split()[1:] for line in ledger.read_text().splitlines()] == [
        ["by", first], ["by", second]]


def say(process, line):
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def answer(process):
    """Return the next line that does not tell of a view."""
    return next(line for line in process.stdout if not line.startswith("-- "))


def who_wrote(members):
    """Let each member write, and return the name of the one that could."""
    said = {}
    for name, process in members.items():
        say(process, f"by {name}")
        said[name] = answer(process)
    writer, = (name for name in members if said[name] == f"{name} wrote by {name}\n")
    assert all(said[name].startswith(f"{name} does not lead in [") for name in members
               if name != writer)
    return writer


@pytest.mark.udp
def test_web_push(start, port):
    ports = [free_port(1), free_port(1)]
    services = [start("web_push.py", each, *port) for each in ports]
    assert all(has_line(each, f"http://127.0.0.1:{number}\n")
               for each, number in zip(services, ports, strict=True))
    streams = [urlopen(f"http://127.0.0.1:{number}/events", timeout=PATIENCE) for number in ports]
    assert [stream.readline() for stream in streams] == [b": welcome\n"] * 2
    assert b"EventSource" in urlopen(f"http://127.0.0.1:{ports[0]}/", timeout=PATIENCE).read()
    said = False
    while not said:                     # until both are in one group
        urlopen(f"http://127.0.0.1:{ports[0]}/say", b"hello\nall", timeout=PATIENCE).read()
        said = select.select([streams[1]], [], [], 0.1)[0] != []
    for stream in streams:
        assert b"data: hello all\n" in (stream.readline(), stream.readline())
        stream.close()


def test_journal(start, tmp_path):
    for _ in range(2):                      # the second time it goes on with the journal
        said = ended(start("journal.py", tmp_path / "journal"))
    assert said == "station: 24 messages, the last is 23:00 13 degrees\n" * 2


@pytest.mark.spark
def test_warm_hours(start, tmp_path):
    from ringcast.errors import RingcastError
    from ringcast.spark.session import find_java

    try:
        find_java()
    except RingcastError as error:
        pytest.skip(str(error))
    ended(start("journal.py", tmp_path / "journal"))
    spark = start("warm_hours.py", tmp_path / "journal", tmp_path / "warm")
    out, _ = spark.communicate(timeout=3 * PATIENCE)
    assert spark.returncode == 0
    hours = re.findall(r"\|\s*(\d+)\|\s*(\d+):00\|\s*(\d+)\|", out)
    warm = [hour for hour in range(24) if hour % 5 >= 3]
    assert hours == [(str(hour + 1), str(hour), str(10 + hour % 5)) for hour in warm]
