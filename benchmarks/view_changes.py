"""How quickly a group forms, and changes its view.

    python benchmarks/view_changes.py [PART ...] [--stack NAME] [--rounds N]

Members are processes on loopback, except where it says "inproc". Each figure is the
median and the worst of several rounds.

kill    one of 3, and one of 5, is killed by signal 9: the time until every other has
        the view without it. Idle, and while one member sends as fast as it can.
load    one of 3 members sends as fast as it can while a fourth joins and leaves: the
        coordinator's time from PREPARE to INSTALL; and how much the sender sends in
        the 100 ms around that, compared with half a second before.
start   the time until all of 10 members that start at once have one view; and all of
        50 in this process, inproc.
keys    in groups with and without a secret, in turns: the time from a coordinator's first
        PREPARE until all of 50 in this process, inproc, have the next view of the same
        members. And what of that the keys alone take: a coordinator makes and seals 50,
        and then each member, where it has a core of its own, opens one.
idle    bytes a second that one of 50 members that say nothing sends and receives
        (inproc; without the headers of UDP and IP).
"""

import argparse
import multiprocessing
import os
import secrets
import signal
import statistics
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

from ringcast import Batch, Channel, View
from ringcast.protocols.membership.messages import INSTALL, PREPARE, Seat
from ringcast.protocols.security.keyring import ENTROPY, Keyring
from ringcast.stack import Instant, Layer, Packet

SIZE, CALL = 1000, 20
AROUND, BEFORE = 0.1, 0.5               # seconds
PATIENCE = 30.0                         # seconds, for whatever should happen


class Meter(Layer):
    """Counts bytes next to the wire, and notes when PREPARE and INSTALL are sent."""

    def __init__(self) -> None:
        self.sent = self.received = 0
        self.times: list[tuple[int, float]] = []        # kind, when

    def send(self, packets: list[Packet], now: Instant) -> None:
        for packet in packets:
            self.sent += len(packet.data)
            if packet.kind in (PREPARE, INSTALL):
                self.times.append((packet.kind, time.monotonic()))
        super().send(packets, now)

    def receive(self, packets: list[Packet], now: Instant) -> None:
        self.received += sum(len(packet.data) for packet in packets)
        super().receive(packets, now)

    def changes(self) -> list[tuple[float, float]]:
        """Return when each change sent its first PREPARE and its first INSTALL."""
        found, began = [], 0.0
        for kind, at in self.times:
            if kind == PREPARE:
                began = began or at
            elif began:
                found.append((began, at))
                began = 0.0
        return found


class Views:
    """An on_view that notes when each view came."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, tuple[str, ...]]] = []

    def __call__(self, view: View) -> None:
        self.seen.append((time.monotonic(), tuple(member.name for member in view.members)))


def ignore(batch: Batch) -> None:
    """Take messages, as on_message."""


def open_channel(group: str, name: str, stack: str, **options: Any) -> tuple[Channel, Views, Meter]:
    views, meter = Views(), Meter()
    return Channel(group, name=name, stack=stack, on_message=ignore, on_view=views, faults=[meter],
                   **options), views, meter


def run_member(pipe: Connection, group: str, name: str, stack: str, min_members: int) -> None:
    """Be a member: do what the other end of the pipe says, and answer."""
    channel, views, meter = open_channel(group, name, stack, min_members=min_members)
    pipe.send(None)
    while True:
        match pipe.recv():
            case "connect":
                channel.connect(PATIENCE)
                pipe.send(None)
            case "await", members:
                pipe.send(await_view(views, members))
            case "send":
                sender = Sender(channel)
                pipe.send(None)
            case "stop":
                pipe.send(sender.stop())
            case "changes":
                pipe.send(meter.changes())
            case "close":
                channel.close(PATIENCE)
                pipe.send(None)
                return


def await_view(views: Views, members: set[str]) -> float:
    """Return when the last view came, as soon as it has these members."""
    end = time.monotonic() + PATIENCE
    while not views.seen or set(views.seen[-1][1]) != members:
        if time.monotonic() > end:
            raise TimeoutError(f"the last view is {views.seen[-1:]}, and not {members}")
        time.sleep(0.001)
    return views.seen[-1][0]


class Sender:
    """Sends as fast as possible, on a thread, and notes when each CALL messages were
    sent."""

    def __init__(self, channel: Channel) -> None:
        self.channel, self.times, self.is_stopped = channel, [time.monotonic()], False
        self.thread = threading.Thread(target=self._send)
        self.thread.start()

    def _send(self) -> None:
        payloads = [bytes(SIZE)] * CALL
        while not self.is_stopped:
            self.channel.send_many(payloads)
            self.times.append(time.monotonic())

    def stop(self) -> list[float]:
        """Stop, and return the times."""
        self.is_stopped = True
        self.thread.join()
        return self.times


class Group:
    """Members, each a process."""

    def __init__(self, stack: str, names: Sequence[str], min_members: int = 1) -> None:
        self.stack, self.name = stack, f"bench-{secrets.token_hex(4)}"
        self.pipes: dict[str, Connection] = {}
        self.processes: dict[str, Any] = {}
        for name in names:
            self.start(name, min_members)
        self.answers()

    def start(self, name: str, min_members: int = 1) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipes[name], theirs = context.Pipe()
        self.processes[name] = context.Process(
            target=run_member, args=(theirs, self.name, name, self.stack, min_members), daemon=True)
        self.processes[name].start()
        theirs.close()

    def tell(self, word: Any, *names: str) -> list[Any]:
        """Have members (all, if none is named) do something; return the answers."""
        for name in names or self.pipes:
            self.pipes[name].send(word)
        return self.answers(*names)

    def answers(self, *names: str) -> list[Any]:
        return [self.pipes[name].recv() for name in names or self.pipes]

    def kill(self, name: str) -> float:
        """Kill a member, and return when."""
        at = time.monotonic()
        os.kill(self.processes[name].pid, signal.SIGKILL)
        self.processes.pop(name).join()
        self.pipes.pop(name).close()
        return at

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.join()


def killed(stack: str, members: int, is_loaded: bool, victim: int) -> float:
    """Return the seconds until every other has a view without the one that is
    killed."""
    names = [f"M{number}" for number in range(members)]
    group = Group(stack, names, members)
    try:
        group.tell("connect")
        group.tell(("await", set(names)))
        victim_name = names[victim]
        sender = names[1 if victim == 0 else 0]
        time.sleep(0.3)
        if is_loaded:
            group.tell("send", sender)
            time.sleep(1.0)
        at = group.kill(victim_name)
        return max(group.tell(("await", set(names) - {victim_name}))) - at
    finally:
        group.end()


def loaded(stack: str, changes: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each view change under load, and how much was sent around
    it, compared with before."""
    names = ["A", "B", "C"]
    group = Group(stack, names, 3)
    try:
        group.tell("connect")
        group.tell(("await", set(names)))
        group.tell("send", "A")
        time.sleep(BEFORE + AROUND)
        for _ in range(changes):
            group.start("D")
            group.answers("D")
            time.sleep(BEFORE)
            group.tell("connect", "D")
            group.tell(("await", {*names, "D"}), "B", "C")
            time.sleep(BEFORE + AROUND)
            group.tell("close", "D")
            group.tell(("await", set(names)), "B", "C")
            group.pipes.pop("D").close()
            group.processes.pop("D").join()
            time.sleep(BEFORE)
        sent = group.tell("stop", "A")[0]
        found = sorted(span for spans in group.tell("changes") for span in spans)
    finally:
        group.end()
    spans = [(began, end) for began, end in found
             if sent[0] + BEFORE + AROUND < began < sent[-1] - AROUND]
    return [end - began for began, end in spans], [share(sent, began) for began, _ in spans]


def share(sent: Sequence[float], at: float) -> float:
    """Return the rate in the time around an instant, by that before."""
    begin = at - AROUND / 2
    around = sum(begin <= each < begin + AROUND for each in sent) / AROUND
    before = sum(begin - BEFORE <= each < begin for each in sent) / BEFORE
    return around / before


def started(stack: str, members: int) -> float:
    """Return the seconds until all of these members, which start at once, have one
    view."""
    names = [f"M{number}" for number in range(members)]
    group = Group(stack, names)
    try:
        at = time.monotonic()
        group.tell("connect")
        return max(group.tell(("await", set(names)))) - at
    finally:
        group.end()


def in_one_process(members: int, **options: Any) -> list[tuple[Channel, Views, Meter]]:
    """Start members in this process at once, and wait until they have one view."""
    group, names = f"bench-{secrets.token_hex(4)}", [f"M{number}" for number in range(members)]
    peers = [open_channel(group, name, "inproc", **options) for name in names]
    with ThreadPoolExecutor(members) as threads:
        list(threads.map(lambda peer: peer[0].connect(PATIENCE), peers))
        list(threads.map(lambda peer: await_view(peer[1], set(names)), peers))
    return peers


def close_all(peers: Sequence[tuple[Channel, Views, Meter]]) -> None:
    with ThreadPoolExecutor(len(peers)) as threads:
        list(threads.map(lambda peer: peer[0].close(PATIENCE), peers))


def started_inproc(members: int) -> float:
    began = time.monotonic()
    peers = in_one_process(members)
    last = max(views.seen[-1][0] for _, views, _ in peers)
    close_all(peers)
    return last - began


def renewed(members: int, secret: bytes | None, rounds: int) -> list[float]:
    """Return the seconds of each change to a view of the same members."""
    peers = in_one_process(members, secret=None if secret is None else lambda: secret)
    time.sleep(1.0)
    times = []
    for _ in range(rounds):
        channel = next(each for each, _, _ in peers if each.view.coordinator == each.address)
        coordinator = channel._endpoint.members.coordinator
        counts = [len(views.seen) for _, views, _ in peers]
        began = time.monotonic()
        coordinator.renews = True
        channel._driver.run_in_turn(channel._endpoint.members.tick)
        while any(len(views.seen) == count
                  for (_, views, _), count in zip(peers, counts, strict=True)):
            time.sleep(0.0002)
        times.append(max(views.seen[-1][0] for _, views, _ in peers) - began)
        time.sleep(0.3)
    close_all(peers)
    return times


def made_and_opened(members: int) -> tuple[float, float]:
    """Return the seconds in which a coordinator makes the key of a view and seals it
    for each member, and in which a member checks and opens it."""
    rings = [Keyring("bench", number, secrets.token_bytes(ENTROPY))
             for number in range(1, members + 1)]
    seats = [Seat(f"M{ring.member}", ring.member, "", 0, public=ring.public) for ring in rings]
    maker, member = rings[0], rings[1]
    made, opened = [], []
    for view_id in range(1, 21):
        began = time.perf_counter()
        keys, chain = maker.make(view_id, seats)
        middle = time.perf_counter()
        assert member.take(maker.member, view_id, seats, keys, chain if view_id > 1 else None)
        made.append(middle - began)
        opened.append(time.perf_counter() - middle)
        assert maker.take(maker.member, view_id, seats, keys, None)
        for ring in (maker, member):
            ring.install(view_id)
    return statistics.median(made), statistics.median(opened)


def idle(members: int, seconds: float) -> tuple[float, float]:
    """Return the bytes a second that a member sends and receives."""
    peers = in_one_process(members)
    time.sleep(2.0)
    before = [(meter.sent, meter.received) for _, _, meter in peers]
    time.sleep(seconds)
    rates = [((meter.sent - sent) / seconds, (meter.received - received) / seconds)
             for (_, _, meter), (sent, received) in zip(peers, before, strict=True)]
    close_all(peers)
    return (statistics.median(sent for sent, _ in rates),
            statistics.median(received for _, received in rates))


def show(title: str, values: Sequence[float], unit: str, scale: float, *,
         lowest: bool = False) -> None:
    worst = min(values) if lowest else max(values)
    print(f"{title}: {scale * statistics.median(values):.1f} {unit}, worst of {len(values)} "
          f"{scale * worst:.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=[])
    parser.add_argument("--stack", default="mcast-udp")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    parts = given.parts or ["kill", "load", "start", "keys", "idle"]
    stack, rounds = given.stack, given.rounds
    if "kill" in parts:
        for members in (3, 5):
            for is_loaded in (False, True):
                times = [killed(stack, members, is_loaded, round_ % members)
                         for round_ in range(rounds)]
                how = "under load" if is_loaded else "idle"
                show(f"{stack}: one of {members} killed, {how}", times, "ms", 1e3)
    if "load" in parts:
        times, shares = loaded(stack, rounds)
        show(f"{stack}: PREPARE to INSTALL, 3 members under load", times, "ms", 1e3)
        show(f"{stack}: sent in the {AROUND * 1e3:.0f} ms around", shares, "% of before", 100,
             lowest=True)
    if "start" in parts:
        show(f"{stack}: 10 members start", [started(stack, 10) for _ in range(rounds)], "ms", 1e3)
        show("inproc: 50 members start", [started_inproc(50) for _ in range(rounds)], "ms", 1e3)
    if "keys" in parts:
        secret = secrets.token_bytes(32)
        found: dict[str, list[float]] = {"with a secret": [], "without": []}
        for _ in range(rounds):
            found["with a secret"] += renewed(50, secret, 4)
            found["without"] += renewed(50, None, 4)
        for how, times in found.items():
            show(f"inproc: another view of the same 50 members, {how}", times, "ms", 1e3)
        made, opened = made_and_opened(50)
        print(f"the keys alone: {made * 1e3:.1f} ms to make and seal 50, {opened * 1e3:.2f} to "
              "open one")
    if "idle" in parts:
        sent, received = idle(50, 5.0)
        print(f"inproc: one of 50 idle members sends {sent:.0f} bytes/s and receives "
              f"{received:.0f}")


if __name__ == "__main__":
    main()
