"""Messages a second over links with an MTU of 1,500 bytes, beside loopback, whose
datagrams are 40 times as large.

    python benchmarks/real_wire.py [--stack NAME ...] [--receivers N] [--size N]
                                   [--rounds N] [--megabits N] [--loss SHARE]

Each member is a process in a network namespace of its own, and a veth pair joins each
to one bridge (tests/namespaces.py). It needs root and Linux. One member sends for a
second as fast as it can. The networks are measured in turns; the figures are medians of
the rounds: what the slowest receiver delivers in a second, the CPU time for each
message, in microseconds, of the sender and of the receiver that needs most, and how
often a message was repeated.

With --megabits each member sends no more than that in a second. With --loss each loses
so many of the frames that come, in a row of its own.
"""

import argparse
import json
import secrets
import statistics
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

from members import receive

from ringcast import Channel

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from namespaces import Network, refusal  # noqa: E402

SECONDS = 1.0
LOOPBACK = "127.0.0.1"
BURST = 100                             # messages between two looks at the clock
Figures = tuple[float, ...]


def be(name: str, group: str, stack: str, size: int, addresses: list[str]) -> None:
    """Be a member: the first sends, the others receive. Say what was measured.
    `addresses` are those of all members, its own first."""
    options = {"interface": addresses[0], "insecure": True, "min_members": len(addresses)}
    if addresses[0] != LOOPBACK and stack.endswith("tcp"):      # no ports tell members apart
        places = [f"{each}:7700" for each in addresses]
        options |= {"discovery": f"hosts:{','.join(places)}", "port_range": 1}
    with Channel(group, name=name, stack=stack, deliver=name != "S", **options) as channel:
        began, spent = time.monotonic(), time.process_time()
        count = send(channel, size) if name == "S" else receive(channel)
        elapsed, spent = time.monotonic() - began, time.process_time() - spent
        while name == "S" and channel.status().multicast.num_unacked:
            time.sleep(0.01)                            # until then it may have to repeat
        repeats = channel.status().multicast.xmit_rsps_sent
        print(json.dumps([count / elapsed, spent / count * 1e6, repeats / count]), flush=True)
        if name != "S":
            deque(channel.batches(timeout=1.0), 0)      # only now is the last one finished
        sys.stdin.read()                # the others may still need something


def send(channel: Channel, size: int) -> int:
    """Send for SECONDS; return how many messages."""
    count, payload, end = 0, bytes(size), time.monotonic() + SECONDS
    while time.monotonic() < end:
        for _ in range(BURST):
            channel.send(payload)
        count += BURST
    channel.send(b"")
    return count


def once(stack: str, receivers: int, size: int, network: Network | None) -> Figures:
    """Run a group once; return the figures."""
    names = ["S", *(f"R{number}" for number in range(receivers))]
    group, processes = f"wire-{secrets.token_hex(4)}", []
    for name in names:
        others = [each for each in names if each != name]
        addresses = [network.address(each) if network is not None else LOOPBACK
                     for each in (name, *others)]
        command = [sys.executable, __file__, "--be", name, group, stack, str(size), *addresses]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        processes.append(network.start(name, command, **pipes) if network is not None
                         else subprocess.Popen(command, **pipes))
    (_, sender, repeats), *others = [json.loads(process.stdout.readline()) for process in processes]
    for process in processes:
        process.communicate()
    speeds, costs, _ = zip(*others, strict=True)
    return min(speeds), sender, max(costs), repeats


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stack", nargs="+", default=["mcast-udp", "nakack2-udp", "nakack2-tcp"])
    parser.add_argument("--receivers", type=int, default=1)
    parser.add_argument("--size", type=int, default=1000, help="bytes of a message")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabits", type=int, help="a second, that a member can send")
    parser.add_argument("--loss", type=float, default=0.0, help="share of frames, 0 to 1")
    given = parser.parse_args()
    if why := refusal():
        raise SystemExit(f"this machine has no such links: {why}")
    for stack in given.stack:
        rows: dict[str, list[Figures]] = {}
        for _ in range(given.rounds):
            names = ["S", *(f"R{number}" for number in range(given.receivers))]
            for loss in sorted({0.0, given.loss}):
                with Network(names, loss, given.megabits) as network:
                    rows.setdefault(f"MTU 1,500, {loss:.0%} lost", []).append(
                        once(stack, given.receivers, given.size, network))
            rows.setdefault("loopback", []).append(once(stack, given.receivers, given.size, None))
        print(f"{stack}, {given.size} bytes, 1 -> {given.receivers}, {given.rounds} rounds")
        for title, figures in rows.items():
            speed, sender, receiver, repeats = map(statistics.median, zip(*figures, strict=True))
            print(f"  {title:20}{speed:10,.0f}/s; CPU {sender:.2f} us at the sender, "
                  f"{receiver:.2f} at the receiver; {repeats:.3f} repeats", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--be"]:
        name, group, stack, size, *addresses = sys.argv[2:]
        be(name, group, stack, int(size), addresses)
    else:
        main()
