"""A member on a lossy wire: sends its share, and says how what came to it came.

    python talker.py STACK NAMES SENDERS COUNT SIZE RATE WHOM PATIENCE

Each of SENDERS (a string of names, one letter each) sends COUNT messages of SIZE bytes,
RATE a second (0: as fast as they find room), to everybody or (WHOM "one") to the member
after it.
"""

import json
import os
import sys
import threading
import time

from ringcast import Channel
from ringcast.status import by_name


class Ear:
    """What came, in which order, and the longest time in which nothing did."""

    def __init__(self, expected):
        self.expected = expected
        self.counts = {}
        self.errors = []
        self.began = self.last = time.monotonic()
        self.longest = 0.0
        self.all_came = threading.Event()
        if not expected:
            self.all_came.set()

    def __call__(self, batch):
        now = time.monotonic()
        if self.counts:
            self.longest = max(self.longest, now - self.last)
        self.last = now
        count = self.counts.get(batch.sender.name, 0)
        for payload in batch.payloads:
            number = int.from_bytes(payload[:8], "little")
            if number != count:
                self.errors.append(f"{batch.sender.name}: {number} where {count} was due")
                count = number
            count += 1
        self.counts[batch.sender.name] = count
        if sum(self.counts.values()) >= self.expected:
            self.all_came.set()


def talk(channel, count, size, rate, dest):
    """Send the share."""
    filler, began, sent = bytes(size - 8), time.monotonic(), 0
    while sent < count:
        due = count if not rate else min(count, int((time.monotonic() - began) * rate) + 1)
        for number in range(sent, due):
            channel.send(number.to_bytes(8, "little") + filler, dest, timeout=60)
        sent = due
        if rate:
            time.sleep(0.002)               # the load is a rate, whatever the clock does


def main(stack, names, senders, count, size, rate, whom, patience):
    """UnicastLog and listen; the last line tells what came of it."""
    me, count = os.environ["LAB_MEMBER"], int(count)
    after = dict(zip(names, names[1:] + names[:1], strict=True))
    to_me = [each for each in senders if whom == "all" or after[each] == me]
    ear = Ear(len(to_me) * count)
    channel = Channel("wire", name=me, min_members=len(names), stack=stack, on_message=ear,
                      interface=os.environ["LAB_ADDRESS"], insecure=True)
    channel.connect()
    ear.began = ear.last = time.monotonic()
    if me in senders:
        talk(channel, count, int(size), float(rate), after[me] if whom == "one" else None)
    complete = ear.all_came.wait(float(patience))
    pause = max(ear.longest, 0.0 if complete else time.monotonic() - ear.last)
    took, status = ear.last - ear.began, by_name(channel.status())
    unacked = channel.close(60)
    kept = ("xmit_reqs_sent", "num_missing_asked", "xmit_rsps_sent", "unicast_xmit_rsps_sent",
            "unicast_highest_resent",
            "num_duplicates", "unicast_duplicates", "send_errors", "send_dropped", "datagrams_sent",
            "send_calls", "datagrams_received")
    print(json.dumps({"counts": ear.counts, "errors": ear.errors[:5], "pause": pause, "took": took,
                      "unacked": unacked} | {name: status.get(name) for name in kept}))


if __name__ == "__main__":
    main(*sys.argv[1:])
