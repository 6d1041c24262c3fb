"""Deliberate mistakes in the protocol code, each of which the simulator must catch.

A mutation replaces `old`, which must occur once in the file, by `new`. They are the mistakes that somebody could make: the texts'
own slips, what an earlier version did, a line forgotten, a comparison turned round.

    python tests/mutations/protocol.py            # apply each one to a copy, simulate seeds until one fails, list what was caught
    python tests/mutations/protocol.py purge      # those whose name has this word
"""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "ringcast"
SEEDS = 200                             # of each kind that a mutation may survive at most

HUNT = """
from ringcast.sim.plan import Settings
from ringcast.sim.run import simulate
for seed in range(%d):
    for settings in %s:
        outcome = simulate(seed, settings)
        if outcome.check:
            print(f"{outcome.check}, seed {seed}: {outcome.sentence}")
            raise SystemExit(1)
"""


TO_ALL = """(Settings(unicast=0), Settings(unicast=0, loss=0.2, crashes=2, partitions=2),
              Settings(unicast=0, reorder=0.3, crashes=2, exclusions=4))"""
TO_ONE = """(Settings(unicast=300, messages=20), Settings(unicast=300, messages=20, splits=4, reorder=0.3, duplicate=0.2),
              Settings(unicast=200, messages=20, splits=3, loss=0.2, crashes=2, partitions=2))"""


@dataclass(frozen=True)
class Mutation:
    name: str
    file: str                           # below src/ringcast
    old: str
    new: str
    draws: str = TO_ALL


MCAST, MULTICAST, MEMBERS = (f"protocols/{name}.py" for name in ("mcast", "multicast", "static_members"))
RETRANSMISSION, STREAM, FRAG = "protocols/retransmission.py", "protocols/stream.py", "protocols/frag.py"
UNICAST, SENDER, RECEIVER = (f"protocols/unicast3/{name}.py" for name in ("layer", "sender", "receiver"))
STATES, MEMORY, SYNC = (f"protocols/unicast3/{name}.py" for name in ("states", "memory", "sync"))

MUTATIONS = [
    # ---------------------------------------------------------------------------------------------- retransmission
    Mutation("never ask for what is missing", MULTICAST, "        if ranges:\n            self.counters.xmit_reqs_sent",
             "        if False:\n            self.counters.xmit_reqs_sent"),
    Mutation("never ask again", RETRANSMISSION, "        elif self.patience:\n            self.patience -= 1",
             "        elif True:\n            pass"),
    Mutation("never answer a request", MULTICAST, "            if self.requests:\n                self._retransmit(now)",
             "            if self.requests:\n                self.requests = {}"),
    Mutation("answer only the first range", RETRANSMISSION, "for first, last in ranges[:MAX_RANGES]:",
             "for first, last in ranges[:1]:\n        last = first"),
    Mutation("ask only for gaps, not for a lost tail (no HIGHEST)", MULTICAST, "            if self._has_unacked():\n",
             "            if False:\n"),
    Mutation("announce the highest seqno once", MULTICAST, "return self.stillness.is_due", "return self.stillness.looks == 0"),
    Mutation("do not wake up while something is missing", MULTICAST,
             "window.stream.unacked_messages or window.ring.hd != window.ring.hr or", "window.stream.unacked_messages or"),
    # --------------------------------------------------------------------------------------------------------- acks
    Mutation("ack before the application has finished", MCAST, "finished = window.ring.low\n", "finished = window.ring.hd\n"),
    Mutation("ack what was received", MCAST, "finished = window.ring.low\n", "finished = window.ring.hr\n"),
    Mutation("purge on the first ack", MCAST, "minimum = self.acks.minimum if self.acks else self.send_window.sent",
             "minimum = max(dict(self.acks.items()).values(), default=self.send_window.sent)"),
    Mutation("purge what was sent", MCAST, "minimum = self.acks.minimum if self.acks else self.send_window.sent",
             "minimum = self.send_window.sent"),
    Mutation("do not ack again for the announcement", MULTICAST,
             "            window.report_due |= not precedes(window.ring.low, highest.seqno)\n", ""),
    Mutation("own messages need no ack", MCAST, "            self.acks.add(member, self.send_window.ring.low)",
             "                pass"),
    Mutation("a publish-only member's ack must have a seqno in the window", MCAST,
             "        if ack.budget == 0 and is_seqno(ack.seqno):",
             "        if ack.budget == 0 and not precedes(self.send_window.sent, ack.seqno):"),
    # ----------------------------------------------------------------------------------------------------- blocking
    Mutation("a purge unblocks nobody", MCAST,
             "        if minimum is not None and self.send_window.stable(minimum):\n            self.stack.effects.writable = True",
             "        if minimum is not None and self.send_window.stable(minimum):\n            pass"),
    Mutation("an ack never purges", MCAST, "        if self.acks.ack(member, ack.seqno):\n", "        if False:\n"),
    # -------------------------------------------------------------------------------------------------------- views
    Mutation("who left still counts for the minimum", MCAST, "        self.acks.remove(member)\n", ""),
    Mutation("a view does not purge", MCAST,
             "        self._fit_budgets()\n        self._purge()\n\n    def _wait_no_more",
             "        self._fit_budgets()\n\n    def _wait_no_more"),
    Mutation("windows of leavers stay", MULTICAST, "window = self.windows.pop(sender, None)", "window = self.windows.get(sender)"),
    Mutation("a joiner is not waited for", MCAST, "            self.acks.add(member, start)\n", "            pass\n"),
    Mutation("START is said once", MULTICAST, "        if self._repeats_itself():\n            self._start_joiners(now)\n",
             "        if self._repeats_itself():\n"),
    Mutation("a window begins at the digest, whatever the sender says", MULTICAST,
             "            self._open_window(self.members[sender], start.seqno, started=True)",
             "            self._open_window(self.members[sender], self.resume.get(self.members[sender], 0), started=True)"),
    Mutation("a window begins one too late", MULTICAST,
             "            self._open_window(self.members[sender], start.seqno, started=True)",
             "            self._open_window(self.members[sender], (start.seqno + 1) % MODULUS, started=True)"),
    Mutation("deliver before the START", MULTICAST, "self._open_window(sender, self.resume[sender], started=False)",
             "self._open_window(sender, self.resume[sender], started=True)"),
    Mutation("heed a START of another view", MULTICAST, "        elif start.view_id != self.view_id:\n", "        elif False:\n"),
    Mutation("forget what a returning member already has", MULTICAST,
             "        if resume is not None and not precedes(start, resume):\n            start = self.send_window.ring.low",
             "        pass"),
    # ---------------------------------------------------------------------------------------------------- delivering
    Mutation("own messages are not delivered", MULTICAST, "if window.started), None]", "if window.started)]"),
    Mutation("deliver as long as anything is there, in any order", STREAM,
             "        payloads = self.ring.remove_many(limit, nullify=False)\n",
             "        payloads = self.ring.remove_many(limit, nullify=False)\n"
             "        if not payloads and self.ring.hr != self.ring.hd and self.ring.get((first + 1) % MODULUS):\n"
             "            payloads = [self.ring.get((first + 1) % MODULUS)]\n"),
    Mutation("the seqno of a batch is counted from its end", STREAM, "first = (self.ring.hd + 1) % MODULUS\n        payloads",
             "first = self.ring.hd\n        payloads"),
    # ---------------------------------------------------------------------------------------------------- membership
    Mutation("HELLO is said once", MEMBERS,
             "        if self.hello_due or self.missing() or not self.agreed():\n            self._hello(now)\n"
             "            self.next_hello = now + self.interval",
             "        if self.hello_due or self.missing() or not self.agreed():\n            self._hello(now)"),
    Mutation("a HELLO is not answered", MEMBERS,
             "        if changed or hello.asks or hello.table != self.table:\n            self._answer(now)\n", ""),
    Mutation("that a name is vacant is believed only from its owner", MEMBERS,
             "elif line.incarnation == 0 or (name == hello.name and line.incarnation == sender):",
             "elif name == hello.name and line.incarnation in (0, sender):"),
    Mutation("that a name is occupied is believed from anybody", MEMBERS,
             "elif line.incarnation == 0 or (name == hello.name and line.incarnation == sender):", "elif True:"),
    Mutation("who was taken out goes on", MEMBERS, "        self.stack.effects.fault = self.fault = (", "        self.fault = ("),
    Mutation("a joiner that finds its name vacant gives up its line", MEMBERS,
             "            self._write(self.local.name, Line(line.generation + 1, self.local.incarnation))\n            return True\n",
             "            return False\n"),
    Mutation("strangers are not answered", MEMBERS,
             "            if packet.sender not in self.incarnations:\n                self._answer(now)\n", ""),
    Mutation("the id of a view is the sum of its generations", MEMBERS, "return (self.generation << 32) + (self.incarnation >> 32)",
             "return self.generation"),
    Mutation("digests of returning members are not told to the layers", MEMBERS,
             "if mine in hello.resume}", "if False}"),
    # ------------------------------------------------------------------------------------------- messages to one member
    Mutation("never send the highest message again", UNICAST, "            elif entry.stands_still():\n",
             "            elif False:\n", TO_ONE),
    Mutation("never ask a sender for what is missing", UNICAST, "        if ranges and peer in self.members:\n", "        if False:\n",
             TO_ONE),
    Mutation("acknowledge what was received", UNICAST, "control.Ack(entry.conn_id, entry.ring.low,",
             "control.Ack(entry.conn_id, entry.ring.hr,", TO_ONE),
    Mutation("acknowledge what the application has in hand", UNICAST, "control.Ack(entry.conn_id, entry.ring.low,",
             "control.Ack(entry.conn_id, entry.ring.hd,", TO_ONE),
    Mutation("closed connections are forgotten", UNICAST,
             "        if entry is None and closed is not None and closed.conn_id == conn_id and not closed.by_sender:\n",
             "        if False:\n", TO_ONE),
    Mutation("an older connection replaces a newer one", UNICAST,
             "return (entry is None or precedes(entry.conn_id, conn_id)) and (closed is None or precedes(closed.conn_id, conn_id))",
             "return True", TO_ONE),
    Mutation("SEND_FIRST_SEQNO is not answered", UNICAST,
             "            self._repeat_as(Kind.UNICAST_FIRST, entry, [(lowest, lowest)], now)",
             "            pass", TO_ONE),
    Mutation("what was given up is not reported", UNICAST, "        self.stack.effects.failures += failed\n", "", TO_ONE),
    Mutation("a connection with a gap expires", RECEIVER,
             "return self.ring.low == self.ring.hr and not self.stream.in_hand and not self.stream.is_incomplete",
             "return True", TO_ONE),
    Mutation("of a stream with gaps only the highest delivered is remembered", UNICAST,
             "        stream = entry.stream if entry.is_busy else None\n", "        stream = None\n", TO_ONE),
    Mutation("a message that stands still is not acknowledged", STREAM, "        if self.in_hand == 0 and self.looks > 1:\n",
             "        if False:\n", TO_ONE),
]


def hunt(mutation: Mutation) -> str:
    """How the mutation was caught, or nothing: it survived."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        shutil.copytree(PACKAGE, root / "ringcast", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        for library in (PACKAGE / "_core").glob("*.so"):
            (root / "ringcast" / "_core" / library.name).symlink_to(library)
        mutate(root / "ringcast" / mutation.file, mutation)
        run = subprocess.run([sys.executable, "-c", HUNT % (SEEDS, mutation.draws)], env=os.environ | {"PYTHONPATH": directory},
                             capture_output=True, text=True)
        if run.returncode not in (0, 1) or (run.returncode == 1 and not run.stdout):
            raise RuntimeError(f"{mutation.name}: the simulation could not be run\n{run.stderr}")
        return run.stdout.strip()


def mutate(path: Path, mutation: Mutation) -> None:
    text = path.read_text()
    if text.count(mutation.old) != 1:
        raise ValueError(f"{mutation.name}: bring it up to date; what it replaces occurs {text.count(mutation.old)} times")
    path.write_text(text.replace(mutation.old, mutation.new))


if __name__ == "__main__":
    word = " ".join(sys.argv[1:])
    survived = 0
    for mutation in MUTATIONS:
        if word in mutation.name:
            caught = hunt(mutation)
            survived += not caught
            print(f"{mutation.name:62} {caught[:140] or 'SURVIVED'}", flush=True)
    print(f"{survived} survived")
    sys.exit(survived > 0)
