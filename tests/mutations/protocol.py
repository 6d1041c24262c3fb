"""Deliberate mistakes in the protocol code, each of which the simulator must catch.

A mutation replaces `old`, which must occur once in the file, by `new`. They are the mistakes that somebody could make: the texts'
own slips, what an earlier version did, a line forgotten, a comparison turned round.

    python tests/mutations/protocol.py            # apply each one to a copy, simulate seeds until one fails, list what was caught
    python tests/mutations/protocol.py purge      # those whose name, or whose file, has this word
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
from msgspec.structs import replace
from ringcast.sim.runs.plan import Settings
from ringcast.sim.runs.run import simulate
for seed in range(%d):
    for settings in %s:
        later = {name: getattr(settings, name) or 0 for name in ("returns", "threads", "joins", "mtu", "large")}
        outcome = simulate(seed, replace(settings, **later))
        if outcome.check:
            print(f"{outcome.check}, seed {seed}: {outcome.sentence}")
            raise SystemExit(1)
"""


TO_ALL = """(Settings(unicast=0), Settings(unicast=0, loss=0.2, crashes=2, partitions=2),
              Settings(unicast=0, reorder=0.3, crashes=2, exclusions=4))"""
TO_ONE = """(Settings(unicast=300, messages=20), Settings(unicast=300, messages=20, splits=4, reorder=0.3, duplicate=0.2),
              Settings(unicast=200, messages=20, splits=3, loss=0.2, crashes=2, partitions=2))"""
LOSSY = """(Settings(stack="nakack2-udp", unicast=0), Settings(stack="nakack2-udp", unicast=0, loss=0.2, crashes=2, partitions=2),
             Settings(stack="nakack2-udp", unicast=0, reorder=0.3, duplicate=0.2, crashes=2, exclusions=3,
                      options={"use_ring_buffer": True, "discard_delivered_msgs": False}))"""
LOSSLESS = """(Settings(stack="nakack2-tcp", unicast=0, breaks=20, messages=500),
                Settings(stack="nakack2-tcp", unicast=0, breaks=0, crashes=1, slow=3, options={"xmit_interval": 0}),
                Settings(stack="nakack2-tcp", unicast=0, breaks=200, delay=30, messages=500, options={"xmit_interval": 0}),
                Settings(stack="nakack2-tcp", unicast=0, breaks=0, crashes=3, exclusions=2, slow=3, options={"xmit_interval": 0,
                         "use_ring_buffer": True, "discard_delivered_msgs": False}))"""
TIGHT = """(Settings(stack="nakack2-tcp", unicast=200, messages=300),)"""
CROWDED = """(Settings(stack="nakack2-udp", members=26, mtu=1500, loss=0.02, messages=100, size=100, unicast=0,
                      options={"max_datagram": 512}),)"""
RETURNING = """(Settings(returns=4, unicast=0), Settings(returns=4, unicast=0, exclusions=4, partitions=2, loss=0.2),
                 Settings(stack="nakack2-udp", returns=4, unicast=0, exclusions=4),
                 Settings(stack="nakack2-tcp", returns=4, unicast=0, exclusions=4, breaks=5))"""
LATE = """(Settings(unicast=0, reorder=0.3, delay=50, exclusions=8, crashes=0, messages=300, returns=6),)"""
WAITING = """(Settings(threads=2, joins=8, unicast=0, members=2, loss=0, crashes=0),
               Settings(stack="mcast-tcp", threads=2, joins=8, unicast=0, members=3, crashes=0, partitions=0),
               Settings(threads=2, joins=0, unicast=300, messages=20))"""
WAITING_FOR_VOTES = """(Settings(stack="nakack2-udp", threads=2, joins=3, unicast=0),
                         Settings(stack="nakack2-tcp", threads=2, joins=3, unicast=0))"""
SLOW = """(Settings(stack="nakack2-tcp", unicast=0, breaks=0, exclusions=6, slow=8, size=8000, messages=1000,
                     options={"xmit_interval": 0}),)"""


@dataclass(frozen=True)
class Mutation:
    name: str
    file: str                           # below src/ringcast
    old: str
    new: str
    draws: str = TO_ALL


MCAST, MULTICAST = "protocols/multicast/mcast.py", "protocols/multicast/base.py"
MEMBERS = "protocols/static_members.py"
RETRANSMISSION, STREAM, FRAG = "protocols/retransmission.py", "protocols/stream.py", "protocols/frag.py"
UNICAST, SENDER, RECEIVER = (f"protocols/unicast3/{name}.py" for name in ("layer", "sender", "receiver"))
NAKACK2, STABLE, QUEUE = (f"protocols/multicast/{name}.py" for name in ("nakack2", "stable", "become_server_queue"))
BUNDLER = "protocols/bundler.py"
PARTS = "protocols/parts.py"
STATES, MEMORY, SYNC = (f"protocols/unicast3/{name}.py" for name in ("states", "memory", "sync"))

MUTATIONS = [
    # ---------------------------------------------------------------------------------------------- retransmission
    Mutation("never ask for what is missing", MULTICAST, "in requests(window.gaps.look(window.ring), self.config.max_datagram):",
             "in ():"),
    Mutation("never ask again", RETRANSMISSION, "if (not ask.times and not is_coming) or is_late or is_passed_over:",
             "if not ask.times and not is_coming:"),
    Mutation("never fill the bucket of repeats", RETRANSMISSION,
             "self.budget = max(self.budget, 0) + max(window.bundle, ring.max_bytes // SHARES)", "pass"),
    Mutation("repeat nothing twice", RETRANSMISSION, "            self.repeated = None\n", ""),
    # ------------------------------------------------------------------------------------------------- frames
    Mutation("control datagrams are not cut", PARTS, "if max(map(len_of, packets), default=0) > self.datagram:", "if False:", CROWDED),
    Mutation("never answer a request", MULTICAST, "        if self.requests:\n            self._retransmit(now)",
             "        if self.requests:\n            self.requests = {}"),
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
    Mutation("an ack never purges", MCAST, "        if self.acks.ack(member, seqno):\n", "        if False:\n"),
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
             "self._open_window(self.members[sender], start.seqno)",
             "self._open_window(self.members[sender], self.resume.get(self.members[sender], 0))"),
    Mutation("a window begins one too late", MULTICAST,
             "self._open_window(self.members[sender], start.seqno)",
             "self._open_window(self.members[sender], (start.seqno + 1) % MODULUS)"),
    Mutation("deliver before the START", MULTICAST, "Gaps(offset), started=False)", "Gaps(offset), started=True)"),
    Mutation("heed a START of another view", MULTICAST, "        elif start.view_id != self.view_id or start.stint >",
             "        elif start.stint >", LATE),
    Mutation("forget what a returning member already has", MULTICAST,
             "        start = self.send_window.sent if kept is None else kept\n"
             "        if resume is not None and not precedes(start, resume):\n"
             "            start = self.send_window.ring.low",
             "        start = self.send_window.sent"),
    Mutation("give the next life nothing of what was kept", MULTICAST,
             "self.send_window.sent if kept is None else kept", "self.send_window.sent"),
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
    Mutation("the id of a view is the sum of its generations", MEMBERS, "return (self.generation << 32) + (self.incarnation >> 32)",
             "return self.generation"),
    # ------------------------------------------------------------------------------------------- messages to one member
    Mutation("never send the highest message again", UNICAST, "            elif entry.stands_still():\n",
             "            elif False:\n", TO_ONE),
    Mutation("never ask a sender for what is missing", UNICAST,
             "in requests(entry.gaps.look(entry.ring), self.config.max_datagram) if peer in self.members else ():", "in ():", TO_ONE),
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
             "            self._repeat_as(control.FIRST, entry, [(lowest, lowest)], now)",
             "            pass", TO_ONE),
    Mutation("what was given up is not reported", UNICAST, "        self.stack.effects.failures += failed\n", "", TO_ONE),
    Mutation("a connection with a gap expires", RECEIVER,
             "return self.ring.low == self.ring.hr and not self.stream.in_hand and not self.stream.is_incomplete",
             "return True", TO_ONE),
    Mutation("of a stream with gaps only the highest delivered is remembered", UNICAST,
             "        stream = entry.stream if entry.is_busy else None\n", "        stream = None\n", TO_ONE),
    Mutation("a message that stands still is not acknowledged", STREAM, "        if self.in_hand == 0 and self.looks > 1:\n",
             "        if False:\n", TO_ONE),
    # ------------------------------------------------------------------------------- NAKACK2 without retransmission
    Mutation("a new connection needs no RESYNC", NAKACK2,
             "        if window is not None:\n            self._resync(member, window, now)\n        if member in self.joiners:",
             "        if member in self.joiners:", LOSSLESS),
    Mutation("a RESYNC tells the highest received", NAKACK2, "have = (gaps[0][0] - 1) % MODULUS if gaps else window.ring.hr",
             "have = window.ring.hr", LOSSLESS),
    Mutation("a RESYNC is not answered", NAKACK2, "        self.resyncs[member] = seqno\n", "", LOSSLESS),
    Mutation("a RESYNC is answered with one message", NAKACK2, "            ranges = [(first, window.sent)]\n",
             "            ranges = [(first, first)]\n", LOSSLESS),
    Mutation("a RESYNC is answered one message too late", NAKACK2,
             "first = ((have if precedes(low, have) else low) + 1) % MODULUS",
             "first = ((have if precedes(low, have) else low) + 2) % MODULUS",
             LOSSLESS),
    Mutation("the START of a joiner is not said again over a new connection", NAKACK2,
             "            self._send_start(member, self.joiners[member], now)\n", "", LOSSLESS),
    Mutation("a START that is said again is not followed by what was sent since", NAKACK2,
             "            self.resyncs[member] = self.joiners[member]\n            self._answer_resyncs(now)\n        self._arm",
             "        self._arm", LOSSLESS),
    Mutation("a returning member is only sent what is new", NAKACK2,
             "        if self.lossless and member in self.joiners and precedes(start, self.send_window.sent):", "        if False:",
             LOSSLESS),
    Mutation("what finds no room is dropped", NAKACK2, "            else:\n                self._hold(packet)\n", "", LOSSLESS),
    Mutation("what finds no room in the ring is dropped", NAKACK2, "        if self.lossless and arrivals.beyond:\n",
             "        if False:\n",
             LOSSLESS),
    Mutation("who has no room is read on", NAKACK2,
             "            self.held[packet.sender] = deque()\n            self.stack.effects.held = set(self.held)\n",
             "            self.held[packet.sender] = deque()\n", LOSSLESS),
    Mutation("who has room again is not read again", NAKACK2,
             "                del self.held[sender]\n                self.stack.effects.held = set(self.held)\n",
             "                del self.held[sender]\n", LOSSLESS),
    Mutation("room that the application makes is not used", NAKACK2, "        if self.held:\n            self._release(now)\n", "",
             LOSSLESS),
    Mutation("what is held of a leaver stays", NAKACK2, "(self.held, self.resyncs,", "(self.resyncs,", SLOW),
    Mutation("a window takes whatever bytes come", NAKACK2,
             "return window.ring.nbytes > 0 and window.ring.nbytes + len(packet.data) >", "return False and 0 >", SLOW),
    Mutation("what comes next in order has no more room than others", NAKACK2,
             "first is not None and not precedes((window.ring.hd + 1) % MODULUS, first))", "False)", TIGHT),
    Mutation("what is finished but not stable takes the room of what comes", NAKACK2,
             "        return window.ring.stable(window.stream.finished)\n", "        return 0\n", LOSSLESS),
    Mutation("what is not finished is discarded for room", NAKACK2, "        return window.ring.stable(window.stream.finished)\n",
             "        return window.ring.stable(window.ring.hd)\n", LOSSLESS),
    Mutation("the retransmit task runs without retransmission", NAKACK2, "            if window.started and self.retransmits:\n",
             "            if window.started:\n", LOSSLESS),
    Mutation("the last seqno is announced without retransmission", NAKACK2,
             "        if self.retransmits:\n            self._say_again(now)", "        if True:\n            self._say_again(now)",
             LOSSLESS),
    # --------------------------------------------------------------------------------------------- become_server_queue
    Mutation("the queue is bounded without retransmission", NAKACK2,
             "return self.config.become_server_queue_size if self.retransmits else UNBOUNDED",
             "return self.config.become_server_queue_size",
             LOSSLESS),
    Mutation("the queue is never bounded", NAKACK2,
             "return self.config.become_server_queue_size if self.retransmits else UNBOUNDED", "return UNBOUNDED", LOSSY),
    Mutation("the queue keeps its bound when retransmission is switched", NAKACK2, "        self.queue.rebound(self._queue_bound())\n",
             "",
             LOSSLESS),
    Mutation("a joiner does not queue", NAKACK2, "if not self.receiving or (self.lossless and packet.sender not in self.early):",
             "if self.lossless:", LOSSLESS),
    Mutation("the queue is not drained", NAKACK2, "        for packet in packets:\n            self._on_data(packet, now)\n", "",
             LOSSLESS),
    Mutation("the queue is forgotten with a view", NAKACK2, "self.queue.retain(self.early.keys() | self.members.keys())",
             "self.queue.retain(set())", LOSSLESS),
    Mutation("what the queue lacks is not asked for", NAKACK2, "        if not is_complete and self.lossless", "        if False",
             LOSSLESS),
    Mutation("the queue does not say that it lacks something", QUEUE, "            self.incomplete.add(sender)\n", "            pass\n",
             LOSSLESS),
    Mutation("the queue has no bound in bytes", QUEUE, "while self.num_bytes > self.max_bytes:", "while False:", LOSSLESS),
    Mutation("draining the queue drains all of it", QUEUE, "        taken = self._remove({sender})\n",
             "        taken = [packet for packet in self._remove({packet.sender for packet, _ in self._entries})"
             " if packet.sender == sender]\n", LOSSLESS),
    # ---------------------------------------------------------------------------------------------------------- STABLE
    Mutation("vote what was received", NAKACK2, "{sender: (window.stream.finished, window.ring.hr)",
             "{sender: (window.ring.hr, window.ring.hr)",
             LOSSY),
    Mutation("vote what the application has in hand", NAKACK2, "{sender: (window.stream.finished, window.ring.hr)",
             "{sender: (window.ring.hd, window.ring.hr)", LOSSLESS),
    Mutation("of its own messages a member votes what it sent", NAKACK2, "digest = {self.local.incarnation: (self.own.finished, sent)}",
             "digest = {self.local.incarnation: (sent, sent)}", LOSSLESS),
    Mutation("STABILITY is the maximum", STABLE, "slowest = max(lags, key=lags.__getitem__)",
             "slowest = min(lags, key=lags.__getitem__)", LOSSY),
    Mutation("who has not voted has everything", STABLE, "            return QUARTER\n", "            return 0\n", LOSSY),
    Mutation("who has not voted is not waited for", STABLE, "if member not in self.votes or self.votes[member].receiving]",
             "if member in self.votes and self.votes[member].receiving]", LOSSLESS),
    Mutation("a report of another view is obeyed", STABLE, "if report.view_id == self.view_id and sender ==",
             "if sender ==", LOSSY),
    Mutation("still suspended when it has joined", STABLE, "    def resumed(self, now: Instant) -> None:\n        self._vote(now)",
             "    def resumed(self, now: Instant) -> None:\n        pass", LOSSLESS),
    Mutation("a vote is said once", STABLE, "        if self.is_asked or self.stillness.is_due:\n", "        if self.is_asked:\n",
             LOSSY),
    Mutation("only the sender of a message votes again", STABLE,
             "return nakack.receiving and any(", "return False and any(", LOSSLESS),
    Mutation("a publish-only member is waited for", STABLE, "Vote(self.view_id, self.nakack.receiving, grant, digest)",
             "Vote(self.view_id, True, grant, digest)", LOSSLESS),
    Mutation("a publish-only member keeps its own messages", NAKACK2,
             "            self.send_window.ring.remove_many(nullify=False)        # nobody", "            pass        # nobody",
             LOSSLESS),
    Mutation("a publish-only member never finishes its own messages", NAKACK2,
             "            self.own.finished = later(self.own.finished, self.send_window.sent)\n"
             "            self._report_finished(None, now)\n",
             "            pass\n", WAITING_FOR_VOTES),
    Mutation("a receiver gives up what is not stable", NAKACK2, "window is None or not self.config.discard_delivered_msgs",
             "window is None",
             LOSSY),
    Mutation("a receiver keeps what is stable", NAKACK2, "                    window.ring.stable(seqno)\n",
             "                    pass\n", LOSSY),
    Mutation("STABILITY does not purge", NAKACK2, "                self._purge_to(seqno)\n", "                pass\n", LOSSY),
    Mutation("a purge wakes up nobody", NAKACK2, "self.send_window.stable(sent):\n            self.stack.effects.writable = True",
             "self.send_window.stable(sent):\n            pass", LOSSLESS),
    # ------------------------------------------------------------------------------------- messages that wait for company
    Mutation("free what was not framed", MCAST, "self.send_window.stable(minimum):",
             "self.send_window.ring.stable(minimum):", WAITING),
    Mutation("what its sender had finished before it was framed is not freed then", MULTICAST,
             "            self._purge()                               # it may be finished already",
             "            pass  # it may be finished already", WAITING),
    Mutation("what its sender had finished before it was framed is not voted then", NAKACK2,
             "        if precedes(sent, self.own.finished):\n            self.stability.finished(False, now)\n", "",
             WAITING_FOR_VOTES),
    Mutation("what was pushed while a thread framed is forgotten", BUNDLER,
             "            self.due.pop(dest, None)\n        self.frame(dest, now, full_only)\n",
             "            pass\n        self.frame(dest, now, full_only)\n"
             "        if not full_only:\n            self.due.pop(dest, None)\n",
             WAITING),
    # ------------------------------------------------------------------------------- lives that come back
    Mutation("how far departed lives had come is forgotten", MULTICAST,
             "            self.departed[window.stream.sender.incarnation] = window.stream\n", "", RETURNING),
    Mutation("an ack of more than this process has sent makes no sense", MULTICAST,
             "return self.send_window.sent if self.stint else None", "return None", RETURNING),
    Mutation("a life that comes back is looked for where it was", MEMBERS, "            self._route()\n        if hello.installed",
             "            pass\n        if hello.installed", RETURNING),
    Mutation("let a life that came back say goodbye as its first process would", MEMBERS,
             "self.incarnations | {self.local.incarnation}", "self.incarnations", RETURNING),
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
        if word in f"{mutation.file} {mutation.name}":
            caught = hunt(mutation)
            survived += not caught
            print(f"{mutation.name:62} {caught[:140] or 'SURVIVED'}", flush=True)
    print(f"{survived} survived")
    sys.exit(survived > 0)
