"""Whether members that live are excluded on a network that loses much.

    python benchmarks/false_exclusions.py [--stack NAME] [--loss P] [--seconds N]

Ten simulated members say something now and then, on a network that loses so many of the
datagrams. The figure is how many views there were beside the first, in so many
simulated seconds: nobody comes or goes, so there should be none.
"""

import argparse
import time

from ringcast.sim.cluster import Cluster
from ringcast.sim.network import Network

NAMES = "ABCDEFGHIJ"
FORMED = 60_000                         # milliseconds within which the group forms
BURST, SIZE = 20, 100                   # messages of one member each second, bytes


def count_views(stack: str, loss: float, seconds: int) -> int:
    """Return how many views followed the first one of all members."""
    group = Cluster(NAMES, stack=stack, network=Network(loss=loss)).start(*NAMES)
    group.run(FORMED)
    first = {member.views[-1] for member in group.living()}
    assert len(first) == 1 and len(first.pop()) == len(NAMES), "no group has formed"
    before = len(group[NAMES[0]].views)
    for second in range(seconds):
        group[NAMES[second % len(NAMES)]].offer(BURST, SIZE)
        group.run(1000)
    return len(group[NAMES[0]].views) - before


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stack", choices=["mcast-udp", "nakack2-udp"], default="mcast-udp")
    parser.add_argument("--loss", type=float, default=0.3)
    parser.add_argument("--seconds", type=int, default=3600)
    arguments = parser.parse_args()
    began = time.monotonic()
    views = count_views(arguments.stack, arguments.loss, arguments.seconds)
    print(f"{arguments.stack}: {views} views too many in {arguments.seconds} simulated seconds of "
          f"{len(NAMES)} members at {arguments.loss:.0%} loss ({time.monotonic() - began:.0f} s)")
