"""Measure what the flush costs while no view changes, in turns with and without it.

    python benchmarks/flush.py [--stack NAME ...] [--size N ...] [--rounds N]

Three processes on loopback: one sends for a second as fast as it can, two receive
batches. So that all can agree on where the stream of a dead sender ends, a receiver
keeps what its application has finished until all have it. "Without" means that members
keep nothing for others, as before there was a flush. A ratio is the median of the
rounds, each with / without in neighbouring runs: messages a second at the slower
receiver, and CPU time for each message at the sender and at the receivers.
"""

import argparse
import secrets
import statistics
from multiprocessing.connection import Connection
from typing import Any

import senders
from members import run

from ringcast.protocols.multicast import mcast, nakack2, retention


def be(sends: bool, keeps: bool, size: int, options: dict[str, Any], pipe: Connection) -> None:
    """Be a member of a group; tell messages a second, and CPU time for each."""
    if not keeps:
        for module in (retention, mcast, nakack2):
            vars(module)["keeps_for_others"] = lambda layer, sender: False
    senders.be(sends, 1, 1, size, options, pipe)


def once(stack: str, size: int, keeps: bool) -> tuple[float, float, float]:
    """Run a group once; return messages a second, and both CPU times."""
    options = {"group": f"flush-{secrets.token_hex(4)}", "stack": stack, "min_members": 3}
    (_, sender), *receivers = run(
        be, [(number == 0, keeps, size, options) for number in range(3)])
    return min(rate for rate, _ in receivers), sender, max(cpu for _, cpu in receivers)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stack", nargs="+",
                        default=["mcast-udp", "nakack2-udp", "mcast-tcp", "nakack2-tcp"])
    parser.add_argument("--size", type=int, nargs="+", default=[1000, 100],
                        help="bytes of a message")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    print(f"1 -> 2, with / without the flush, {given.rounds} rounds")
    print("stack        bytes  messages/s without  messages/s  CPU: sender  receiver")
    for stack in given.stack:
        for size in given.size:
            ratios, rates = [], []
            for number in range(given.rounds):
                turns = {keeps: once(stack, size, keeps)
                         for keeps in ((True, False) if number % 2 else (False, True))}
                ratios.append([mine / other for mine, other in
                               zip(turns[True], turns[False], strict=True)])
                rates.append(turns[False][0])
            rate, sender, receiver = map(statistics.median, zip(*ratios, strict=True))
            print(f"{stack:12} {size:5}  {statistics.median(rates):18,.0f}  {rate:10.2f}  "
                  f"{sender:11.2f} {receiver:9.2f}", flush=True)


if __name__ == "__main__":
    main()
