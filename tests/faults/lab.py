"""Groups of processes on a wire of their own that loses frames, for tests that run as
root on Linux.

    python lab.py '{"members": ["A", "B"], "loss": 0.01, "command": [...], ...}'

runs `command` once for each member, in a network namespace of its own, whose only way
out is a veth pair (MTU 1500) to one bridge. Frames that arrive are dropped at random,
by nftables, before the kernel looks at them: each receiver loses others, and data is
lost as control is. The kernel hands whole bursts (GSO) through a veth pair in one
piece, so that one drop would take all of a burst; real wires carry frames, so bursts
are cut here (gso_max_segs).

A member is told its name and address (LAB_MEMBER, LAB_ADDRESS), says "ready" as its
first line, and is told "go" when its wire is there. All of this happens in namespaces
that end with the process, however it ends (`unshare --kill-child`): nothing is left to
be removed.
"""

import json
import os
import shutil
import subprocess
import sys
from functools import cache

BOX = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
TRIAL = "ip link add hub type bridge && nft add table netdev trial"


@cache
def refusal():
    """Say why this machine has no such wires; "" when it has."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("unshare", "nsenter", "ip", "nft"):
        if not shutil.which(tool):
            return f"{tool} is missing; install util-linux, iproute2 and nftables"
    trial = subprocess.run([*BOX, "sh", "-c", TRIAL], capture_output=True, text=True, env=plain())
    return trial.stderr.strip() if trial.returncode else ""


def run_group(members, command, *, loss, timeout):
    """Run a group in a box; return what each member printed last, as JSON, by its
    name."""
    plan = {"members": members, "command": command, "loss": loss, "timeout": timeout}
    box = subprocess.run([*BOX, sys.executable, __file__, json.dumps(plan)], capture_output=True,
                         text=True, timeout=timeout + 60)
    assert box.returncode == 0, f"{box.stdout[-2000:]}\n{box.stderr[-4000:]}"
    return json.loads(box.stdout.splitlines()[-1])


def plain():
    """Return an environment in which tools run that a sanitizer's library would make
    crash."""
    return {**os.environ, "LD_PRELOAD": ""}


def tool(*command, text=None):
    """Run a tool of the system; it must end well."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, env=plain())
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


class Wire:
    """The bridge, and a member's end of it for each process that was started."""

    def __init__(self, loss):
        self.loss = loss
        self.ends = []
        tool("ip", "link", "set", "lo", "up")
        tool("ip", "link", "add", "hub", "type", "bridge", "mcast_snooping", "0")
        tool("ip", "link", "set", "hub", "up")

    def plug(self, process):
        """Give a process, which is in a network namespace of its own, a way to the
        bridge."""
        number = len(self.ends) + 1
        inside = ["nsenter", f"--net=/proc/{process.pid}/ns/net"]
        tool("ip", "link", "add", f"p{number}", "type", "veth", "peer", "name", "eth0",
             "netns", str(process.pid))
        tool("ip", "link", "set", f"p{number}", "master", "hub", "up")
        tool(*inside, "ip", "link", "set", "lo", "up")
        tool(*inside, "ip", "link", "set", "eth0", "address", ethernet(number), "gso_max_segs", "1")
        tool(*inside, "ip", "address", "add", f"{address(number)}/24", "dev", "eth0")
        tool(*inside, "ip", "link", "set", "eth0", "up")
        tool(*inside, "ip", "route", "add", "224.0.0.0/4", "dev", "eth0")
        self.ends.append(inside)

    def finish(self):
        """Tell all whose address belongs to which end (no ARP, whose loss costs a
        second); then frames get lost."""
        for mine, inside in enumerate(self.ends, 1):
            for number in range(1, len(self.ends) + 1):
                if number != mine:
                    tool(*inside, "ip", "neighbour", "replace", address(number), "lladdr",
                         ethernet(number), "dev", "eth0", "nud", "permanent")
            tool(*inside, "nft", "-f", "-", text=RULES.format(rate=round(self.loss * 100_000)))


RULES = """
add table netdev wire
add chain netdev wire arrival {{ type filter hook ingress device eth0 priority 0; }}
add rule netdev wire arrival numgen random mod 100000 < {rate} counter drop
"""


def address(number):
    """Return an address of the block that is set aside for tests of networks."""
    return f"198.18.0.{number}"


def ethernet(number):
    return f"02:00:00:00:00:{number:02x}"


def main(plan):
    """Start the members, plug them in, let them go, collect what they say."""
    wire = Wire(plan["loss"])
    processes = {}
    for number, name in enumerate(plan["members"], 1):
        told = {**os.environ, "LAB_MEMBER": name, "LAB_ADDRESS": address(number)}
        processes[name] = subprocess.Popen(["unshare", "--net", "--", *plan["command"]], env=told,
                                           text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for process in processes.values():
        assert process.stdout.readline() == "ready\n"
        wire.plug(process)
    wire.finish()
    for process in processes.values():
        process.stdin.write("go\n")
        process.stdin.flush()
    said = {}
    for name, process in processes.items():
        output, _ = process.communicate(timeout=plan["timeout"])
        assert process.returncode == 0, f"{name} ended with {process.returncode}"
        said[name] = json.loads(output.splitlines()[-1])
    print(json.dumps(said))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
