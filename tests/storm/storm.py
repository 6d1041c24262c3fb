"""A storm: a group of real processes with mixed traits, which are killed, started
again, paused and excluded, join and leave, while they send. In the end all is as
promised."""

import json
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

from traces import check_traces

ACTOR = Path(__file__).with_name("actor.py")
PATIENCE = 120          # seconds after which what should have happened will not


class Member:
    """A process, with files for what it says and for its errors."""

    def __init__(self, folder, number, name, traits):
        self.name, self.traits = name, traits
        self.out, self.err = (folder / f"{number}-{name}.{kind}" for kind in ("out", "err"))
        with open(self.out, "w") as out, open(self.err, "w") as err:
            self.process = subprocess.Popen(
                [sys.executable, str(ACTOR), json.dumps(traits | {"name": name})], text=True,
                stdin=subprocess.PIPE, stdout=out, stderr=err)

    def tell(self, line):
        assert self.process.poll() is None, f"{self.name} has ended: {self.err.read_text()}"
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def said(self, word):
        """Return the answers that have this word. The last line may be incomplete."""
        text = self.out.read_text()
        lines = map(json.loads, text[:text.rfind("\n") + 1].splitlines())
        return [line for line in lines if word in line]

    def wait(self, word, value=True):
        """Wait for an answer in which this word has this value, and return it."""
        deadline = time.monotonic() + PATIENCE
        while not (found := [line for line in self.said(word) if line[word] == value]):
            assert self.process.poll() is None, f"{self.name} has ended: {self.err.read_text()}"
            assert time.monotonic() < deadline, f"{self.name}: not {word}; {self.threads()}"
            time.sleep(0.05)
        return found[0]

    def wait_for_end(self):
        """Wait until the process has ended, well and without complaint."""
        try:
            assert self.process.wait(PATIENCE) == 0, f"{self.name}: {self.err.read_text()}"
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end; {self.threads()}") from None
        assert self.said("closed"), f"{self.name} has not closed"

    def threads(self):
        """Return what all threads of the process do."""
        self.process.send_signal(signal.SIGUSR1)
        time.sleep(1)
        return self.err.read_text()


class Storm:
    """One run of a plan, in a folder and at ports of its own."""

    def __init__(self, plan, folder, port):
        self.plan, self.folder = plan, folder
        self.common = plan.options | {"port": port, "trace": str(folder / "trace")}
        if plan.secret is not None:
            secret = folder / "secret"
            secret.touch(0o600)
            secret.write_text(plan.secret)
            self.common["secret"] = str(secret)
        self.everybody = []             # all processes that were started
        self.living = {}                # those that are to live on, by name
        self.leaving = []

    def run(self):
        """Run the plan and check all but the traces. Leave no process behind."""
        try:
            self.rage()
            self.calm_down()
            self.end()
        finally:
            for member in self.everybody:
                member.process.kill()
                member.process.communicate()

    def start(self, name, traits):
        traits = traits | {"group": f"storm-{self.plan.seed}-{self.common['port']}",
                           "options": self.common | traits["options"]}
        self.living[name] = Member(self.folder, len(self.everybody), name, traits)
        self.everybody.append(self.living[name])

    def rage(self):
        for name, traits in self.plan.members.items():
            self.start(name, traits)
        for member in self.living.values():
            member.wait("joined")
        for step in self.plan.steps:
            time.sleep(step.after)
            getattr(self, step.what)(step.name, step.detail)

    def join(self, name, traits):
        self.start(name, traits)

    def kill(self, name, _):
        self.living.pop(name).process.kill()

    def restart(self, name, traits):
        self.kill(name, None)
        self.start(name, traits)

    def leave(self, name, _):
        self.living[name].wait("joined")                # else it leaves when all is over
        self.leaving.append(self.living.pop(name))
        self.leaving[-1].tell("leave")

    def exclude(self, name, other):
        self.living[name].tell(f"exclude {other}")

    def pause(self, name, seconds):
        self.living[name].process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.living[name].process.send_signal(signal.SIGCONT)

    def calm_down(self):
        """Let all stop sending. Wait until those who live agree."""
        for member in self.living.values():
            member.wait("joined")
            member.tell("stop")
        for member in self.living.values():
            member.wait("stopped")
        deadline = time.monotonic() + PATIENCE
        for number in count():
            for member in self.living.values():
                member.tell(f"look {number}")
            looks = {name: member.wait("look", number) for name, member in self.living.items()}
            found = difference(looks, self.stateful())
            if found is None:
                break
            assert time.monotonic() < deadline, found
            time.sleep(0.5)

    def stateful(self):
        """Return the names of those who have the same state in the end. A member that
        was cut off may lack a part of a large message, and two groups that have become
        one have two states: docs/groups.md."""
        if self.plan.has_cuts or any(member.said("merged") for member in self.everybody):
            return []
        return [name for name, member in self.living.items() if member.traits["state"]]

    def end(self):
        for member in self.living.values():
            member.tell("leave")
        for member in (*self.living.values(), *self.leaving):
            member.wait_for_end()
        noise = {each.err.name: said for each in self.everybody
                 if "Traceback" in (said := each.err.read_text())}
        assert not noise, noise

    def check_traces(self, spark):
        """Check that no trace shows a broken promise."""
        check_traces(spark, self.folder / "trace")


def difference(looks, stateful):
    """Return in what the members differ, or None. `looks` are their answers, by name;
    `stateful` are the names of those whose states must be the same."""
    faults = {name: look["fault"] for name, look in looks.items() if look["fault"]}
    assert not faults, f"closed by themselves: {faults}"
    views = {name: (look["view"], look["members"]) for name, look in looks.items()}
    members = sorted(member.rpartition("#")[0] for member in looks[min(looks)]["members"])
    if any(view != views[min(views)] for view in views.values()) or members != sorted(looks):
        return f"not one view of all who live: {views}"
    states = {name: looks[name]["state"] for name in stateful}
    senders = {sender for state in states.values() for sender in state}
    differing = {sender: {name: state.get(sender) for name, state in states.items()}
                 for sender in senders
                 if len({json.dumps(state.get(sender)) for state in states.values()}) > 1}
    return f"the states differ, [count, crc32] by sender: {differing}" if differing else None
