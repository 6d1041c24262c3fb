"""`ringcast perf` says what it measured, its check finds every difference, and it ends
whatever its members do."""

import json
import multiprocessing
import signal
import subprocess
import time
from dataclasses import replace

import pytest
from perf_processes import FIGURES, cpu_ticks, left_over, perf, signal_member
from ports import free_port
from processes import RINGCAST, children, is_running, wait_for
from typer.testing import CliRunner

from ringcast import ConfigError
from ringcast.cli.app import app
from ringcast.cli.perf import measure, naive, peers, run as perf_run, steady, table
from ringcast.cli.perf.member import Report, slowest
from ringcast.cli.perf.peers import largest
from ringcast.cli.perf.plan import POOL, PerfPlan, StreamChecker
from ringcast.cli.perf.run import RunError, run_once

PLAN = PerfPlan(group="test", members=3, senders=2, size=20, seconds=0.1, timeout=10)



def udp_plan(**changes):
    return replace(PLAN, options={"port": free_port()}, **changes)


# ---------------------------------------------------------------------------------------- the check


def stream(sender, first, last):
    """Return the payloads that a checker of PLAN expects for these seqnos."""
    pool = PLAN.payloads(sender)
    return [pool[(seqno - 1) % POOL] for seqno in range(first, last + 1)]


def checked(*ranges, sent=10):
    """Return the verdict on batches of S with the seqnos `ranges`, when `sent` messages
    are expected."""
    checker = StreamChecker(PLAN)
    for first, last in ranges:
        messages = stream("S", first, last)
        checker.take("S", first, messages, sum(map(len, messages)))
    return checker.verdict({"S": sent})


def test_what_was_sent_is_accepted():
    assert checked((1, 3), (4, 4), (5, 10)) == ""


@pytest.mark.parametrize(("ranges", "said"), [
    ([(1, 3), (5, 10)], "message 3 was followed by 5: 1 missing"),
    ([(2, 10)], "message 0 was followed by 2: 1 missing"),
    ([(1, 3), (3, 10)], "message 3 was followed by 3: again"),
    ([(1, 3), (7, 10), (4, 6)], "message 3 was followed by 7"),
    ([(1, 9)], "10 messages of S were sent and 9 delivered"),
    ([(1, 11)], "10 messages of S were sent and 11 delivered"),
], ids=["gap", "no beginning", "duplicate", "swap", "no end", "too many"])
def test_each_difference_in_the_seqnos_is_a_sentence(ranges, said):
    assert said in checked(*ranges)


@pytest.mark.parametrize("damage", [
    lambda messages: [messages[1], messages[0], *messages[2:]],
    lambda messages: [*messages[:-1], b"x" * 20],
    lambda messages: [*messages[:-2], b"x" * 21, messages[-1]],
], ids=["swapped payloads", "foreign payload", "longer payload"])
def test_a_payload_under_another_seqno_is_a_difference(damage):
    checker = StreamChecker(PLAN)
    messages = damage(stream("S", 1, 10))
    checker.take("S", 1, messages, sum(map(len, messages)))
    assert "do not have the payloads" in checker.verdict({"S": 10})


def test_a_message_of_no_sender_is_a_difference():
    checker = StreamChecker(PLAN)
    checker.take("R1", 1, [b""], 0)
    assert "not among the senders" in checker.verdict({"S": 0})


def test_waiting_ends_at_the_first_difference():
    checker = StreamChecker(PLAN)
    checker.take("S", 2, stream("S", 2, 2), 20)
    begin = time.monotonic()
    checker.await_all({"S": 5}, 60)
    assert time.monotonic() - begin < 50 and checker.fault


def test_of_several_members_in_a_process_the_slowest_one_counts_without_its_own_messages():
    checkers = [StreamChecker(PLAN, member) for member in PLAN.names]       # S, S2, R1
    for checker, seconds in zip(checkers, (1, 2, 4), strict=True):
        for sender, last in (("S", 30), ("S2", 10)):
            messages = stream(sender, 1, last)
            checker.take(sender, 1, messages, sum(map(len, messages)))
        checker.latest = 100.0 + seconds
    assert [checker.rates(100.0) for checker in checkers] == [(40, 10), (20, 15), (10, 10)]
    assert slowest(checkers, 100.0) == (10, 10) and slowest(checkers[:2], 100.0) == (20, 10)
    assert slowest([], 100.0) == (0, 0)


def test_a_fault_of_one_member_fails_the_run():
    good = Report(name="S", sent=1, sent_rate=1, received=0, received_rate=0, others_rate=0,
                  cpu_seconds=0, cores=0, unacked=0, fault="", status={})
    perf_run.verify([good])
    bad = [replace(good, name="R1", fault="something"), replace(good, name="S2", unacked=3)]
    with pytest.raises(RunError) as error:
        perf_run.verify([good, *bad])
    assert "at R1: something; 3 messages of S2 were never acknowledged" in str(error.value)


# --------------------------------------------------------------------------------- the naive bundle


@pytest.mark.parametrize("messages", [[b""], [b"a", b"", b"bc" * 1000], [b"x"] * 500],
                         ids=["empty", "mixed", "many"])
def test_a_bundle_is_split_as_it_was_joined(messages):
    data = naive.bundle(messages, sum(map(len, messages)))
    count, nbytes = naive.HEAD.unpack_from(data)
    assert nbytes == sum(map(len, messages))
    assert naive.split(data[naive.HEAD.size:], count) == messages


def test_a_flush_with_nothing_to_send_sends_nothing():
    """Of a size of which 61 messages fill a bundle, nothing is left at the end."""
    receiver = naive.NaiveReceiver()
    sender = naive.NaiveSender([receiver.port])
    sender.send(b"x" * naive.LIMIT)
    sender.flush()
    sender.close()
    assert list(map(len, receiver.bundles())) == [1]


def test_naive_members_pass_the_same_check():
    figures = run_once(replace(PLAN, naive=True, senders=1))
    assert figures["messages_sent"] > 0 and set(figures) == FIGURES


def test_cores_have_the_same_names_with_and_without_a_prefix():
    for prefix in ("", "tower/", "S", "a+b/"):
        plan = replace(PLAN, prefix=prefix)
        assert [perf_run.short(name, plan) for name in plan.processes] == ["S", "S2", "R1"]
        assert list(map(plan.sends, plan.processes)) == [True, True, False]
        alone = replace(plan, stack="inproc")
        assert [perf_run.short(name, alone) for name in alone.processes] == ["S+S2+R1"]


@pytest.mark.parametrize(("members", "said"), [
    (4, "S 0.50 R1 0.10 R2 0.20 R3 0.30"), (5, "1 S 0.50-0.50, 4 R 0.10-0.40")])
def test_the_cores_of_many_members_are_two_ranges(members, said):
    plan = replace(PLAN, members=members, senders=1, prefix="tower/")
    cores = zip(plan.processes, (0.5, 0.1, 0.2, 0.3, 0.4), strict=False)
    assert table.shares({perf_run.short(name, plan): share for name, share in cores}) == said


# ------------------------------------------------------------------------------ the limit, in words


@pytest.mark.parametrize(("cores", "others", "loss", "said"), [
    ({"S": 0.95, "R1": 0.9}, 0.0, 0.0, "all 2 cores"),
    ({"S": 0.5, "R1": 0.4}, 1.0, 0.0, "all 2 cores (1.00 not ours)"),
    ({"S": 0.95, "R1": 0.4}, 0.0, 0.0, "the core of S"),
    ({"S": 0.3, "R1": 0.4}, 0.0, 0.05, "waiting for retransmissions"),
    ({"S": 0.6, "R1": 0.4}, 0.0, 0.0, "switches between processes: no core is full"),
])
def test_the_limit_follows_from_cpu_time(cores, others, loss, said):
    assert perf_run.limit({"cores": cores, "cores_others": others}, loss, 2) == said


def test_medians_are_taken_within_tables_and_of_none_are_none():
    runs = [{"a": value, "cores": {"S": value}, "none": None} for value in (3, 1, 2)]
    assert perf_run.medians(runs) == {"a": 2, "cores": {"S": 2}, "none": None}


# -------------------------------------------------------------------------------------- the command


@pytest.mark.prove
@pytest.mark.udp
def test_json_has_every_figure_of_every_run(tmp_path):
    target = tmp_path / "perf.json"
    done = perf("--members", 3, "--senders", "all", "--size", "100,1000", "--seconds", 0.1,
                "--runs", 2, "--port", free_port(), "--json", target)
    assert done.returncode == 0, done.stderr
    document = json.loads(target.read_text())
    assert {"ringcast", "python", "system", "cores_available", "seconds", "runs", "seed", "options",
            "rows"} <= set(document)
    assert [row["title"] for row in document["rows"]] == [
        "100 B, 3 of 3 send", "100 B, naive, 1 -> 2", "1,000 B, 3 of 3 send",
        "1,000 B, naive, 1 -> 2"]
    for row in document["rows"]:
        assert set(row) == FIGURES | {"title", "naive", "members", "senders", "batch", "rate",
                                      "size", "loss", "stack", "limit", "all_runs"}
        assert [set(run) for run in row["all_runs"]] == [FIGURES, FIGURES]
        assert row["delivered_per_second"] > 0 and row["title"] in done.stdout


@pytest.mark.prove
@pytest.mark.udp
def test_a_row_with_loss_is_complete_and_has_what_was_repeated():
    done = perf("--loss", 0.2, "--seconds", 0.3, "--runs", 1, "--size", 1000, "--no-naive",
                "--port", free_port(), "--json", "-")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["discarded_datagrams"] > 0 and row["retransmitted"] > 0 and row["requests"] > 0
    assert "20 % lost" in done.stderr


@pytest.mark.parametrize(("arguments", "said"), [
    (["--members", 1], "--members 1 is outside 2 to 16"),
    (["--members", 0], "--members 0 is outside 2 to 16"),
    (["--members", 17], "--members 17 is outside 2 to 16"),
    (["--senders", "3"], "--senders '3' is neither a number from 1 to 2"),
    (["--senders", "some"], "--senders 'some' is neither"),
    (["--batch", 0], "--batch 0 is outside 1 to 10,000"),
    (["--rate", 0], "--rate 0 is outside 1 to 10,000,000"),
    (["--batch", 2, "--rate", 2], "--batch and --rate do not go together"),
    (["--rate", 10, "--size", 7], "with --rate, --size 7 is outside 8 to"),
    (["--loss", 1], "--loss 1 is outside 0 to 0.9"),
    (["--loss", "nan"], "--loss nan is outside"),
    (["--size", "100,big"], "--size 'big' is not a number of bytes"),
    (["--size", 70_000], "--size 70000 is outside"),
    (["--seconds", 0], "--seconds 0 is outside"),
    (["--runs", 0], "--runs 0 is outside"),
    (["--timeout", 0], "--timeout 0 is outside"),
    (["--port", 0], "port"),
    (["--stack", "nakack3-udp"], "there is no stack 'nakack3-udp'; choose one of mcast-udp, "
                                 "mcast-tcp, nakack2-udp, nakack2-tcp, inproc"),
    (["--stack", ",", "--port", 7777], "there is no stack ''; choose one of mcast-udp"),
    (["--stack", "nakack2-tcp", "--loss", 0.1],
     "nakack2-tcp without retransmission would not send them again"),
    (["--xmit-interval", 0], "mcast-udp needs it"),
    (["--json", "/no/such/folder/perf.json"], "--json /no/such/folder/perf.json: No such file"),
    (["--group-address", "10.0.0.1", "--seconds", 0.1], "is not a multicast address"),
    (["--interface", "192.0.2.1", "--seconds", 0.1], "is not loopback"),
    (["--unicast", "--senders", 1], "--senders and --unicast do not go together"),
    (["--unicast", "--members", 2], "--members and --unicast do not go together"),
    (["--unicast", "--rate", 2], "--rate and --unicast do not go together"),
    (["--unicast", "--naive"], "--naive and --unicast do not go together"),
    (["--unicast", "--no-naive"], "--naive and --unicast do not go together"),
    (["--unicast", "--loss", 0.95], "--loss 0.95 is outside 0 to 0.9"),
    (["--unicast", "--size", 0], "--size 0 is outside"),
    (["--unicast", "--xmit-interval", 0], "xmit_interval"),
    (["--unicast", "--group-address", "10.0.0.1", "--seconds", 0.1], "is not a multicast address"),
    (["--stack", "mcast-tcp,inproc", "--group-address", "239.255.7.7"],
     "mcast-tcp has no option group_address; leave it out, or use mcast-udp or nakack2-udp"),
], ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "")
def test_an_impossible_option_is_one_sentence_and_status_2(arguments, said):
    done = perf(*arguments)
    assert done.returncode == 2 and said in done.stderr and done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_the_standard_table_has_the_promised_rows():
    common = {"group": "", "seconds": 1, "timeout": 1}
    plans = [measure.plan_of(scenario, 100, "mcast-udp", common)
             for scenario in measure.scenarios({}, naive=True)]
    assert [plan.title for plan in plans] == [
        "100 B, 1 -> 1", "100 B, naive, 1 -> 1", "100 B, 1 -> 1, send_many of 100", "100 B, 1 -> 2",
        "100 B, 1 -> 3", "100 B, 1 -> 1, 5 % lost", "100 B, 3 of 3 send",
        "100 B, 1 -> 1, 10,000/s each"]
    assert not any(scenario.naive for scenario in measure.scenarios({}, naive=False))


@pytest.mark.udp
def test_a_row_at_a_rate_says_how_long_messages_take_and_one_with_batches_sends_them_together():
    steady = run_once(udp_plan(members=2, senders=1, rate=1000))
    assert steady["messages_sent"] == 100
    assert 0 < steady["p50_us"] <= steady["p99_us"] <= steady["p999_us"]
    together = run_once(udp_plan(members=2, senders=1, batch=100))
    assert together["messages_sent"] % 100 == 0 and together["p50_us"] is None


class Clock:
    """A clock that goes on when somebody sleeps, or sends: that takes a
    millisecond."""

    def __init__(self):
        self.now = 7_000_000_000

    def monotonic_ns(self):
        return self.now

    def monotonic(self):
        return self.now / 1e9

    perf_counter = monotonic

    def sleep(self, seconds):
        self.now += round(seconds * 1e9)

    def send(self, payload):
        assert len(payload) == PLAN.size
        self.now += 1_000_000


@pytest.mark.parametrize(("rate", "sent", "ended"), [(100, 200, 1.991), (10_000, 3000, 3.0)],
                         ids=["in time", "too fast"])
def test_a_sender_at_a_rate_ends_also_if_it_cannot_keep_it(rate, sent, ended, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(steady, "time", clock)
    peer = steady.SteadyPeer(replace(PLAN, rate=rate, stack="inproc"), "S")
    peer.channel = clock
    assert peer.work(2.0) == {"S": sent}
    assert clock.now / 1e9 - 7 == pytest.approx(ended)


@pytest.mark.parametrize(("batch", "portion"), [(1, 61), (2, 122), (100, 100), (10_000, 10_000)])
def test_a_sender_looks_at_the_clock_after_each_large_batch(batch, portion, monkeypatch):
    """With 10,000 messages a call and 65,000 bytes, 61 calls take a minute."""
    clock, took = Clock(), []

    class Slow(peers.Sending):
        def send_each(self, payloads):
            took.extend(payloads)
            clock.sleep(1)

    monkeypatch.setattr(peers, "time", clock)
    plan = replace(PLAN, batch=batch)
    assert Slow(plan, "S").work(2.5) == {"S": 3 * portion}
    assert took == stream("S", 1, POOL) * (3 * portion // POOL) + stream("S", 1, 3 * portion % POOL)


@pytest.mark.parametrize(("rate", "sent", "said"), [
    (0, 100, "the core of S"), (1000, 1950, "its rate"), (1000, 900, "the core of S")])
def test_a_row_is_limited_by_its_rate_only_if_its_senders_keep_it(rate, sent, said, monkeypatch):
    monkeypatch.setattr(table, "cores_available", lambda: 2)
    figures = dict.fromkeys(FIGURES, 0) | {"sent_per_second": sent, "cores": {"S": 0.95}}
    assert table.row_of(replace(PLAN, rate=rate), [figures])["limit"] == said


def test_members_of_one_process_say_how_long_messages_take_to_the_slowest():
    figures = run_once(replace(PLAN, senders=1, rate=1000, stack="inproc"))
    assert 0 < figures["p50_us"] <= figures["p99_us"] <= figures["p999_us"]
    assert largest([{"p50_us": 2, "p99_us": 3}, {}, {"p50_us": 1, "p99_us": 4}]) == {
        "p50_us": 2, "p99_us": 4}


@pytest.mark.prove
@pytest.mark.udp
def test_every_row_is_measured_with_each_stack():
    done = perf("--stack", "nakack2-tcp,nakack2-udp", "--stack", "mcast-tcp", "--seconds", 0.1,
                "--runs", 1, "--size", 1000, "--members", 3, "--port", free_port(), "--json", "-",
                "--group-address", "239.255.77.7")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["title"] for row in rows] == [f"1,000 B, {row}" for row in (
        "1 -> 2, nakack2-tcp", "1 -> 2, nakack2-udp", "1 -> 2, mcast-tcp", "naive, 1 -> 2")]
    assert [row["requests"] for row in rows if row["stack"] == "nakack2-tcp"] == [0]


def test_without_retransmission_the_standard_row_with_loss_is_left_out():
    lossy, both = measure.Scenario(2, loss=0.05), ["nakack2-tcp", "mcast-tcp"]
    assert measure.stacks_for(lossy, both, {}) == ["mcast-tcp"]
    assert measure.stacks_for(lossy, both[:1], {"xmit_interval": 3.0}) == ["nakack2-tcp"]
    assert measure.stacks_for(measure.Scenario(2), both, {}) == both


# ------------------------------------------------------------------------- members that die or hang


@pytest.mark.prove
@pytest.mark.udp
@pytest.mark.kill
@pytest.mark.parametrize("name", ["S", "R1"])
def test_a_killed_member_ends_the_run(name):
    plan = udp_plan(senders=1, seconds=30)
    killer = signal_member(name, signal.SIGKILL, sending=60)
    with pytest.raises(RunError, match=rf"{name} died while \w+ \(killed by SIGKILL\)"):
        run_once(plan)
    killer.join()
    assert not left_over(plan)


def test_a_death_is_noticed_although_the_exit_code_comes_later():
    """A process that dies closes its pipe before it has an exit code: when the pipe
    closes, the first query finds none."""
    class Dying:
        def __init__(self):
            self.ours, theirs = multiprocessing.Pipe()
            theirs.close()
            self.sentinel, self.queries = self.ours.fileno(), 0

        @property
        def exitcode(self):
            return -signal.SIGKILL if self.queries > 2 else None

        def is_alive(self):
            self.queries += 1
            return self.exitcode is None

    members = perf_run.Members(PLAN)
    (ours, theirs), (quiet, _silent) = multiprocessing.Pipe(), multiprocessing.Pipe()
    members.pipes, members.processes = {"R1": ours, "S": quiet}, {"R1": Dying()}
    theirs.send("done")
    with pytest.raises(RunError, match=r"R1 died while sending \(killed by SIGKILL\)"):
        members.gather("sending", 5)


@pytest.mark.prove
@pytest.mark.udp
@pytest.mark.kill
def test_a_member_that_hangs_ends_the_run(monkeypatch):
    monkeypatch.setattr(perf_run, "GRACE", 2.0)
    plan = udp_plan(senders=1, seconds=3, timeout=3)
    killer = signal_member("R1", signal.SIGSTOP, sending=60)
    with pytest.raises(RunError, match=r"R1.* did not finish"):
        run_once(plan)
    killer.join()
    assert not left_over(plan)


@pytest.mark.udp
@pytest.mark.parametrize(("options", "title"), [
    (["--members", "2", "--no-naive"], "1,000 B, 1 -> 1"),
    (["--unicast"], "1,000 B, unicast, 1 -> 1")])
def test_a_run_that_fails_is_one_sentence_and_status_1(monkeypatch, options, title):
    def differ(reports):
        raise RunError("at R1: a difference")

    monkeypatch.setattr(perf_run, "verify", differ)
    words = ["perf", *options, "--seconds", "0.1", "--port", str(free_port())]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1 and f"{title}: at R1: a difference" in done.stderr
    assert done.stdout == ""


@pytest.mark.udp
def test_an_interface_that_does_not_exist_is_a_mistake_of_the_caller():
    with pytest.raises(ConfigError, match="no interface that is up has the address"):
        run_once(replace(PLAN, options={"interface": "192.0.2.1", "insecure": True}))


@pytest.mark.prove
@pytest.mark.udp
@pytest.mark.kill
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_members_end_with_the_command(number):
    process = subprocess.Popen(
        [*RINGCAST, "perf", "--members", "3", "--seconds", "60", "--runs", "1", "--size", "100",
         "--port", str(free_port())], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: len(children(process.pid)) >= 3)
    members = children(process.pid)
    wait_for(lambda: max(map(cpu_ticks, members)) > 60)
    process.send_signal(number)
    assert process.wait(30) != 0
    wait_for(lambda: not any(map(is_running, members)))


@pytest.mark.parametrize(("more", "rows"), [
    ([], [True]), (["--insecure"], [False, True]), (["--interface", "127.0.0.1"], [False, True])])
def test_off_loopback_rows_are_sealed_or_insecure(tmp_path, monkeypatch, more, rows):
    def found(plans, runs):
        plain = [plan for plan in plans if plan.secret is None]
        assert [plan.secret is not None for plan in plans] == rows
        assert {plan.options.get("insecure") for plan in plans} - {None} <= {True}
        assert all(plan in plain for plan in plans if "insecure" in plan.options)
        raise RunError("enough")

    monkeypatch.setattr(measure, "measure", found)
    file = tmp_path / "secret"
    file.write_text("00" * 32)
    file.chmod(0o600)
    said = CliRunner().invoke(app, ["perf", "--members", "2", "--no-naive", "--size", "100",
                                    "--interface", "192.0.2.2", "--secret-file", str(file), *more])
    assert "enough" in said.stderr, said.output
