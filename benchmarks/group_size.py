"""What it costs to agree on what everybody has, for groups of 2 to 128 members.

    python benchmarks/group_size.py --members 2 8 32 --senders all --plot sizes.html
    python benchmarks/group_size.py --members 8 64 128 --senders one --stack nakack2-udp
    python benchmarks/group_size.py --members 8 32 128 --stack inproc

With `--senders all` every member sends `--rate` messages a second, for a second. With
`--senders one` a single member sends 10,000 as fast as it can. Each member is a
process; with the stack `inproc` all are in one. A row of the table:

control  datagrams that carry no messages, for each message that was sent; one to all
         members counts once
load     how long the load took, in seconds
tail     the time from the end of the load until each sender knows that everybody has
         all of its messages, in milliseconds
CPU      processor time of all members, for each message that was delivered, in
         microseconds
"""

import argparse
import gc
import secrets
import statistics
import time
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from members import PATIENCE as JOINING, run

from ringcast import Channel
from ringcast.protocols.multicast.base import DATA, REPEAT
from ringcast.stack import Instant, Layer, Packet

SECONDS, COUNT = 1.0, 10_000            # of the load with --senders all, messages with one
TICK = 0.01                             # seconds between two looks at what is due
PATIENCE = 30.0                         # seconds, for acks
SETTLED = 1.0                           # seconds between the last view and the load
ROWS = ("control", "load", "tail", "CPU")


class Count(Layer):
    """Counts the datagrams that a member sends."""

    def __init__(self) -> None:
        self.control = 0

    def send(self, packets: list[Packet], now: Instant) -> None:
        self.control += sum(packet.kind not in (DATA, REPEAT) for packet in packets)
        self.below.send(packets, now)


class Told(NamedTuple):
    """What a member tells: of its own sending, and of what it has received."""

    sent: int
    control: int
    load: float
    tail: float
    spent: int                          # nanoseconds of its process


def be(seat: int, group: str, size: int, rate: int, options: dict[str, Any],
       pipe: Connection) -> None:
    """Be a member; with rate 0 the first sends COUNT messages."""
    count = Count()
    with Channel(group, name=f"m{seat:03}", on_message=lambda batch: None, faults=[count],
                 **options) as channel:
        time.sleep(SETTLED)
        pipe.send(None)
        pipe.recv()
        gc.disable()
        controls, spent = count.control, time.process_time_ns()
        began = time.monotonic()
        sent = send(channel, bytes(size), rate) if rate or not seat else 0
        ended = time.monotonic()
        while channel.acknowledged < sent:
            if time.monotonic() > ended + PATIENCE:
                unacked = channel.status().multicast.num_unacked
                raise SystemExit(f"{unacked} messages are unacknowledged")
            time.sleep(0.005)
        tail = time.monotonic() - ended
        pipe.send(None)
        pipe.recv()                     # all have all
        pipe.send(Told(sent, count.control - controls, ended - began, tail,
                       time.process_time_ns() - spent))
        pipe.recv()                     # the others may still need its acks


def send(channel: Channel, payload: bytes, rate: int) -> int:
    """Send at a rate for SECONDS, or COUNT messages as fast as possible; return how
    many."""
    if not rate:
        for _ in range(COUNT):
            channel.send(payload)
        return COUNT
    sent, began = 0, time.monotonic()
    while sent < rate * SECONDS:
        if sent / rate > time.monotonic() - began:
            time.sleep(TICK)
            continue
        channel.send(payload)
        sent += 1
    return sent


def once(members: int, given: argparse.Namespace) -> list[float]:
    """Run a group once; return a row of the table."""
    is_local = given.stack == "inproc"
    options = {"stack": given.stack, "min_members": members,
               "join_timeout": 1000 * JOINING}
    group, rate = f"sizes-{secrets.token_hex(4)}", given.rate if given.senders == "all" else 0
    told = run(be, [(seat, group, given.size, rate, options) for seat in range(members)],
               pauses=2, in_threads=is_local)
    sent = sum(each.sent for each in told)
    spent = max(each.spent for each in told) if is_local else sum(each.spent for each in told)
    return [sum(each.control for each in told) / sent, max(each.load for each in told),
            max(each.tail for each in told) * 1e3, spent / 1e3 / (sent * members)]


def plot(file: str, title: str, medians: dict[int, list[float]]) -> None:
    """Write a page with a plot of each figure by the number of members."""
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=len(ROWS), cols=1, shared_xaxes=True, subplot_titles=ROWS)
    for number, _ in enumerate(ROWS):
        figure.add_scatter(x=list(medians), y=[row[number] for row in medians.values()],
                           row=number + 1, col=1, showlegend=False)
    figure.update_xaxes(type="log", tickvals=list(medians), ticktext=list(map(str, medians)))
    figure.update_layout(title=title, height=220 * len(ROWS))
    figure.write_html(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--members", type=int, nargs="+", default=[2, 4, 8, 16, 32, 64, 128])
    parser.add_argument("--senders", choices=["all", "one"], default="all")
    parser.add_argument("--stack", default="mcast-udp")
    parser.add_argument("--rate", type=int, default=300, help="messages a second of each sender")
    parser.add_argument("--size", type=int, default=100, help="bytes of a message")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--plot", metavar="FILE", help="also write a page with plots")
    given = parser.parse_args()
    title = f"{given.stack}, {given.senders} sending, {given.size} bytes, {given.rounds} rounds"
    print(f"{title}\n{'members':>8}  " + "  ".join(f"{name:>8}" for name in ROWS))
    medians = {}
    for members in given.members:
        rows = zip(*(once(members, given) for _ in range(given.rounds)), strict=True)
        medians[members] = list(map(statistics.median, rows))
        print(f"{members:8}  " + "  ".join(f"{each:8.2f}" for each in medians[members]), flush=True)
    if given.plot:
        plot(given.plot, title, medians)


if __name__ == "__main__":
    main()
