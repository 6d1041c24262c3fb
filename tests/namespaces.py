"""A network of network namespaces, for tests that run as root on Linux.

Each member has a network namespace of its own, whose only way out is a veth pair
(MTU 1500) to one bridge. nftables drops frames as they arrive, before the kernel looks
at them: at random, so each receiver loses others, and data is lost as control is; or
all of some senders. The kernel hands whole bursts (GSO) through a veth pair in one
piece, so that one drop would take all of a burst; real wires carry frames, so bursts
are cut here (gso_max_segs). The addresses of all are known to all from the start (no
ARP, whose loss costs a second).

All of this, and every process that is started in it, is in namespaces that end with the
test's process, however that ends (setpriv --pdeathsig): nothing is left to be removed.
Nothing of it has a way to the network of the machine.
"""

import os
import shutil
import subprocess
from functools import cache

WITH_US = ["setpriv", "--pdeathsig", "KILL"]    # a process that ends with the one that starts it
BOX = [*WITH_US,
       "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
TRIAL = ("mount -t tmpfs tmpfs /run && ip netns add trial && ip link add hub type bridge && "
         "ip link add p1 type veth peer name eth0 netns trial && nft add table netdev trial")
# Named network namespaces are files in /run, which the box has for itself.
STAY = "mount -t tmpfs tmpfs /run && echo ready && exec sleep infinity"


@cache
def refusal():
    """Say why this machine has no such networks; "" when it has."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for name in ("setpriv", "unshare", "nsenter", "ip", "nft"):
        if not shutil.which(name):
            return f"{name} is missing; install util-linux, iproute2 and nftables"
    trial = subprocess.run([*BOX, "sh", "-c", TRIAL], capture_output=True, text=True, env=plain())
    return trial.stderr.strip() or "a trial failed" if trial.returncode else ""


def plain():
    """Return an environment in which tools run that a sanitizer's library would make
    crash."""
    return {**os.environ, "LD_PRELOAD": ""}


def address(number):
    """Return an address of the block that is set aside for tests of networks."""
    return f"198.18.0.{number}"


def ethernet(number):
    return f"02:00:00:00:00:{number:02x}"


class Network:
    """Members on a bridge of their own, by name. `loss` is the share of frames that
    each of them loses. With `megabits` each sends no more than that in a second; what
    it has beyond waits at its interface. Leaving the `with` block ends all processes in
    the network."""

    def __init__(self, names, loss=0.0, megabits=None):
        self.numbers = {name: number for number, name in enumerate(names, 1)}
        self.loss, self.megabits = loss, megabits
        self.cuts = set()               # (sender, receiver): frames that do not arrive
        self.started = []

    def __enter__(self):
        self.box = subprocess.Popen([*BOX, "sh", "-c", STAY], stdout=subprocess.PIPE, text=True,
                                    env=plain())
        try:
            assert self.box.stdout.readline() == "ready\n"
            self._run("ip", "-batch", "-", text=f"link set lo up\n{HUB}")
            for name, number in self.numbers.items():
                self._plug(name, number)
            self._filter(self.numbers)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in (self.box, *self.started):
            process.kill()
            process.communicate()

    def address(self, name):
        return address(self.numbers[name])

    def start(self, name, command, **options):
        """Start a command at a member. The process returned waits for that of the
        command, which is its only child."""
        process = subprocess.Popen([*self._inside(), "nsenter", f"--net=/run/netns/{name}",
                                    *command], **options)
        self.started.append(process)
        return process

    # ------------------------------------------------------------------------------------- faults

    def cut(self, senders, receivers):
        """Let no frame of these senders arrive at these receivers."""
        self.cuts |= {(sender, receiver) for sender in senders for receiver in receivers
                      if sender != receiver}
        self._filter(receivers)

    def part(self, *sides):
        """Let no frame pass between members of different sides."""
        for side in sides:
            self.cut(self.numbers.keys() - set(side), side)

    def heal(self):
        """Let frames pass again, but for those that are lost at random."""
        self.cuts.clear()
        self._filter(self.numbers)

    # -------------------------------------------------------------------------------------- tools

    def _inside(self):
        """Return the beginning of a command that runs in the box."""
        return [*WITH_US, "nsenter", f"--target={self._init}", "--net", "--mount", "--pid"]

    @property
    def _init(self):
        """Return the first process of the box, which `unshare` has started."""
        pid = self.box.pid
        with open(f"/proc/{pid}/task/{pid}/children") as children:
            return int(children.read())

    def _run(self, *command, text):
        """Run a tool of the system in the box; it must end well."""
        done = subprocess.run([*self._inside(), *command], input=text, capture_output=True,
                              text=True, env=plain())
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")

    def _plug(self, name, number):
        self._run("ip", "netns", "add", name, text="")
        self._run("ip", "-batch", "-", text=PLUG.format(number=number, name=name))
        neighbours = (f"neighbour replace {address(other)} lladdr {ethernet(other)} dev eth0 "
                      "nud permanent\n" for other in self.numbers.values() if other != number)
        inside = INSIDE.format(address=address(number), ethernet=ethernet(number))
        self._run("ip", "-n", name, "-batch", "-", text=inside + "".join(neighbours))
        if self.megabits is not None:
            self._run("tc", "-n", name, "-batch", "-", text=SLOW.format(rate=self.megabits))

    def _filter(self, receivers):
        """Write the rules for what arrives, at each receiver in one step."""
        for receiver in receivers:
            rules = [RULES.format(rate=round(self.loss * 100_000))]
            rules += [f"add rule netdev wire arrival ether saddr {ethernet(self.numbers[sender])} "
                      "drop\n" for sender, other in sorted(self.cuts) if other == receiver]
            self._run("nsenter", f"--net=/run/netns/{receiver}", "nft", "-f", "-",
                      text="".join(rules))


HUB = """
link add hub type bridge mcast_snooping 0
link set hub up
"""
PLUG = """
link add p{number} type veth peer name eth0 netns {name}
link set p{number} master hub up
"""
INSIDE = """
link set lo up
link set eth0 address {ethernet} gso_max_segs 1
address add {address}/24 dev eth0
link set eth0 up
route add 224.0.0.0/4 dev eth0
"""
SLOW = """
qdisc replace dev eth0 root tbf rate {rate}mbit burst 32kb limit 64mb
"""
RULES = """
add table netdev wire
delete table netdev wire
add table netdev wire
add chain netdev wire arrival {{ type filter hook ingress device eth0 priority 0; }}
add rule netdev wire arrival numgen random mod 100000 < {rate} counter drop
"""
