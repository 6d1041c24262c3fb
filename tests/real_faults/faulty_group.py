"""A group of member processes on a network with faults."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import histories
from processes import children
from traces import check_traces

MEMBER = [sys.executable, str(Path(__file__).with_name("member.py"))]
PATIENCE = 120          # seconds after which what should have happened will not
AT_END = 30             # seconds that a member takes to end, at most


class Group:
    """Members, by name, of whom each runs in a network namespace of its own. `row` is
    what the table of results says of them; its times are seconds until the views were
    right, and `goals` has those that were set for them."""

    def __init__(self, network, folder, stack, rate, spark, **options):
        self.network, self.folder, self.spark = network, folder, spark
        self.stack, self.rate = stack, rate
        self.options = options | {"trace": str(folder / "trace")}
        if stack.endswith("tcp"):       # else each would dial its own address alone
            places = [f"{network.address(name)}:7700" for name in network.numbers]
            self.options |= {"discovery": f"hosts:{','.join(places)}", "port_range": 1}
        self.processes = {}
        self.times, self.goals = {}, {}
        self.row = {"times": self.times, "goals": self.goals}

    # ----------------------------------------------------------------------------------- processes

    def start(self, *names):
        """Start these members."""
        for name in names:
            options = self.options | {"interface": self.network.address(name)}
            command = [*MEMBER, str(self._log(name)), name, self.stack, str(self.rate),
                       json.dumps(options)]
            with open(self._log(name, "err"), "a") as errors:
                self.processes[name] = self.network.start(
                    name, command, stdin=subprocess.PIPE, stderr=errors, text=True)

    def signal(self, name, number):
        """Send a signal to a member, and return the time."""
        (pid,) = children(self.processes[name].pid)
        at = time.monotonic()
        os.kill(pid, number)
        return at

    def kill(self, name):
        """Kill a member: nothing is left of it, and nobody is told. Return the time."""
        at = self.signal(name, signal.SIGKILL)
        self.processes.pop(name).communicate()
        return at

    @contextmanager
    def paused(self, name):
        """Stop a member, as a machine that is frozen; it goes on afterwards. Yield the
        time."""
        try:
            yield self.signal(name, signal.SIGSTOP)
        finally:
            self.signal(name, signal.SIGCONT)
            # The process that waits for it has stopped with it.
            self.processes[name].send_signal(signal.SIGCONT)

    # --------------------------------------------------------------------------------------- wires

    def cut(self, senders, receivers):
        """Let no frame of these senders arrive at these receivers. Return the time."""
        at = time.monotonic()
        self.network.cut(senders, receivers)
        return at

    def part(self, *sides):
        """Let no frame pass between members of different sides. Return the time."""
        at = time.monotonic()
        self.network.part(*sides)
        return at

    def heal(self):
        """Let all frames pass again. Return the time."""
        at = time.monotonic()
        self.network.heal()
        return at

    # --------------------------------------------------------------------------------------- views

    def _log(self, name, kind="log"):
        return self.folder / f"{name}.{kind}"

    def history(self, name):
        path = self._log(name)
        return histories.read(name, path.read_text() if path.exists() else "")

    def views(self, name):
        """Return the views in the log of a member, with their times."""
        path = self._log(name)
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines
                if line.startswith('{"view": {') and line.endswith("\n")]

    def names(self, name):
        """Return the names in a member's latest view, the oldest first."""
        views = self.views(name)
        return [histories.name_of(each) for each in views[-1]["view"]["members"]] if views else []

    def wait_until(self, condition, what):
        """Wait until something has happened. Fail if it does not, or a member ends."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            for name, process in self.processes.items():
                assert process.poll() is None, f"{name} has ended: {self.said(name)}"
            assert time.monotonic() < deadline, f"{what}: not within {PATIENCE} s; {self.state()}"
            time.sleep(0.02)

    def wait_for_view(self, who, members, what, since=None, goal=None):
        """Wait until all of `who` have one view of these members, which came after
        `since` (now). Note the time until the last of them had its first such view, and
        its goal in seconds: the table shows both, and no test fails for being slow."""
        since = time.monotonic() if since is None else since
        firsts = {}

        def all_have_it():
            latest = set()
            for name in who:
                views = self.views(name)
                right = [each for each in views if each["at"] >= since and set(members) ==
                         set(map(histories.name_of, each["view"]["members"]))]
                if not right or right[-1] != views[-1]:
                    return False
                firsts[name] = right[0]["at"]
                latest.add(right[-1]["view"]["id"])
            return len(latest) == 1

        self.wait_until(all_have_it, what)
        self.times[what] = max(firsts.values()) - since
        if goal is not None:
            self.goals[what] = goal

    def said(self, name):
        return self._log(name, "err").read_text()[-2000:]

    def state(self):
        return {name: self.names(name) for name in self.processes}

    def connecting(self, names):
        """Return the time when the last of these members has begun to connect."""
        logs = {name: self._log(name) for name in names}
        self.wait_until(lambda: all(path.exists() and path.read_text().endswith("\n")
                                    for path in logs.values()), "started")
        return max(json.loads(path.read_text().splitlines()[0])["at"] for path in logs.values())

    # ---------------------------------------------------------------------------------------- load

    def run(self, seconds, since=None):
        """Let the load run, from now on or since a time. Fail if a member ends."""
        end = (time.monotonic() if since is None else since) + seconds
        self.wait_until(lambda: time.monotonic() >= end, "the load")

    def finish(self, *parts):
        """Stop the load, wait until everything has come, and check all that any run
        promises: in what the applications wrote down (see histories.check for `parts`),
        and in the traces of their channels. Note the numbers for the table."""
        for answer in "quiet", "end":
            for process in self.processes.values():
                process.stdin.write("go on\n")
                process.stdin.flush()
            self.wait_until(lambda answer=answer: all(
                f'{{"{answer}"' in self._log(name).read_text() for name in self.processes), answer)
        everybody = [self.history(path.stem) for path in sorted(self.folder.glob("*.log"))]
        self.row |= {"views": max(len(each.views) for each in everybody),
                     "messages": sum(each.count() for each in everybody)}
        histories.check_same_at_end([each for each in everybody if each.name in self.processes])
        histories.check(everybody, *parts)
        for process in self.processes.values():
            process.stdin.close()
        for name in self.processes:
            self._wait_for_end(name)
        noise = {name: said for name in self.processes if "Traceback" in (said := self.said(name))}
        assert not noise
        check_traces(self.spark, self.folder / "trace")

    def _wait_for_end(self, name):
        """Wait until a member has ended well, or say what it does instead."""
        process = self.processes[name]
        try:
            assert process.wait(AT_END) == 0, f"{name} ended badly: {self.said(name)}"
        except subprocess.TimeoutExpired:
            self.signal(name, signal.SIGUSR1)
            time.sleep(1)
            raise AssertionError(f"{name} does not end: {self.said(name)}") from None
