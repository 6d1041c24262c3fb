"""What the seal adds to a round trip of two members.

    python benchmarks/round_trip.py [--stack NAME ...] [--size N]
                                    [--turns N] [--seconds S]

The round trips are those of `ringcast perf --unicast`: one message is on the way at a
time. Plain and sealed runs take turns, so what else the machine does meets both. Each
turn prints the median of its plain and of its sealed round trips, in microseconds, and
the last line the median of the differences.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from ringcast.cli.perf.round_trip import RoundTripPlan
from ringcast.cli.perf.run import run_once
from ringcast.secret import write_secret


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stack", nargs="+", default=["mcast-udp", "nakack2-tcp"])
    parser.add_argument("--size", type=int, default=100, help="bytes of a message")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a run")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        secret = Path(folder) / "secret"
        write_secret(secret)
        for stack in given.stack:
            measure(stack, str(secret), given)


def measure(stack: str, secret: str, given: argparse.Namespace) -> None:
    """Print a line for each turn, and the medians."""
    common = {"group": "round-trip", "stack": stack, "size": given.size,
              "seconds": given.seconds, "timeout": 30.0}
    plain, sealed = RoundTripPlan(**common), RoundTripPlan(**common, secret=secret)
    print(f"{stack}, {given.size} bytes      plain   sealed     more")
    pairs = []
    for turn in range(given.turns):
        off, on = (run_once(plan)["p50_us"] for plan in (plain, sealed))
        pairs.append((off, on))
        print(f"turn {turn + 1:3}              {off:8.1f} {on:8.1f} {on - off:8.1f}", flush=True)
    off, on = (statistics.median(column) for column in zip(*pairs, strict=True))
    more = statistics.median(each_on - each_off for each_off, each_on in pairs)
    print(f"median                {off:8.1f} {on:8.1f} {more:8.1f}")


if __name__ == "__main__":
    main()
