"""Messages a second as a ratio to a bare C program (bare.c), which is the limit.

    python benchmarks/bare.py [--receivers N ...] [--size N ...] [--rounds N]
                              [--seconds S] [--stack NAME]

Both have a process for each member and send over UDP multicast on loopback. The C
program is compiled by gcc. It copies each message once into and once out of datagrams
of 60,000 bytes, has credit so that nothing is lost, and does nothing else. ringcast
runs as in `ringcast perf`, which checks what arrives. The two take turns; a ratio is
that of neighbours, and the figures are medians of the rounds: messages a second at the
slowest receiver.
"""

import argparse
import random
import secrets
import statistics
import subprocess
import tempfile
from pathlib import Path

from ringcast.cli.perf.plan import PerfPlan
from ringcast.cli.perf.run import run_once

SOURCE = Path(__file__).with_name("bare.c")
GROUP = "239.192.7.61"


def compiled(folder: str) -> str:
    """Compile the C program; return its path."""
    program = f"{folder}/bare"
    try:
        subprocess.run(["gcc", "-O2", "-Wall", "-Werror", "-o", program,
                        str(SOURCE)], check=True)
    except FileNotFoundError:
        raise SystemExit("the C program needs a compiler: install gcc") from None
    return program


def bare(program: str, receivers: int, size: int, seconds: float) -> float:
    """Run the C program once; return messages a second at the slowest receiver."""
    place = [GROUP, str(random.randrange(20_000, 60_000))]
    calls = [*(["receive", *place] for _ in range(receivers)),
             ["send", *place, str(receivers), str(size), str(seconds)]]
    processes = [subprocess.Popen([program, *call], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  text=True) for call in calls]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    *others, sender = processes
    sender.communicate("\n")
    told = [process.communicate()[0] for process in others]
    if any(process.returncode for process in processes):
        raise SystemExit("a process of the C program failed; its figure is worth nothing")
    return min(map(float, told))


def ours(receivers: int, size: int, seconds: float, stack: str) -> float:
    """Run a group once; return messages a second at the slowest receiver."""
    plan = PerfPlan(group=f"bare-{secrets.token_hex(4)}", members=receivers + 1, senders=1,
                    size=size, seconds=seconds, timeout=20, stack=stack)
    return run_once(plan)["delivered_per_second"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--receivers", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--size", type=int, nargs="+", default=[1000, 100],
                        help="bytes of a message")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.7)
    parser.add_argument("--stack", default="mcast-udp")
    given = parser.parse_args()
    print(f"{given.stack}, {given.rounds} rounds of {given.seconds:g} s")
    print("bytes  receivers   ringcast/s        C/s   ratio [quartiles]")
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(folder)
        for size in given.size:
            for receivers in given.receivers:
                pairs = [(ours(receivers, size, given.seconds, given.stack),
                          bare(program, receivers, size, given.seconds))
                         for _ in range(given.rounds)]
                low, middle, high = statistics.quantiles(
                    [group / limit for group, limit in pairs], n=4, method="inclusive")
                rates = map(statistics.median, zip(*pairs, strict=True))
                print(f"{size:5}  {receivers:9}",
                      "{:12,.0f} {:12,.0f}".format(*rates),
                      f"  {middle:.2f} [{low:.2f} - {high:.2f}]", flush=True)


if __name__ == "__main__":
    main()
