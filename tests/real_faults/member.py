"""A member of a group on a network with faults: it sends, and writes down what its
application is given.

    python member.py LOG NAME STACK RATE OPTIONS

It sends RATE messages a second (0: as fast as they find room), until it reads a line.
When all have acknowledged them, it writes that it is quiet. It reads a second line when
all are, and writes the end. It leaves when its input ends. Each message carries a
number, which only grows, also from one process of a name to the next.

LOG gets JSON lines, in the order in which the application was given things; "at" is the
monotonic clock, which all processes of a machine share:

    {"view": {"id", "members", ...}, "at": seconds}
    {"from": address, "view": id, "seqnos": [first, last], "numbers": [first, last]}
    {"undelivered": count}, {"quiet": count of messages sent}, {"end": true}
    {"connecting": true, "at": seconds}
"""

import faulthandler
import json
import signal
import sys
import threading
import time
from array import array

from ringcast import Channel

CHUNK = 20              # messages of one send_many()
LONG = 2_000            # messages that are written as one line at most
SIZE = 100              # bytes of a message


class Log:
    """The log file. Messages that follow each other are written as one line. A view is
    written at once, after all messages before it."""

    def __init__(self, path):
        self.file = open(path, "a", buffering=1)
        self.ranges = {}                # by sender: the line that is not written yet
        self.lock = threading.Lock()

    def write(self, **line):
        with self.lock:
            for each in self.ranges.values():
                self._write(each)
            self.ranges.clear()
            self._write(line)

    def note(self, sender, view, seqnos, numbers):
        """Note messages whose seqnos and numbers follow each other."""
        with self.lock:
            line = self.ranges.get(sender)
            if line is not None:
                follow = (line["view"], line["seqnos"][1] + 1, line["numbers"][1] + 1)
                if follow == (view, seqnos[0], numbers[0]) and seqnos[1] - line["seqnos"][0] < LONG:
                    line["seqnos"][1], line["numbers"][1] = seqnos[1], numbers[1]
                    return
                self._write(line)
            self.ranges[sender] = {"from": sender, "view": view, "seqnos": list(seqnos),
                                   "numbers": list(numbers)}

    def _write(self, line):
        self.file.write(json.dumps(line) + "\n")


def main(path, name, stack, rate, options):
    """Be a member until the input ends. SIGUSR1 shows what all threads do."""
    faulthandler.register(signal.SIGUSR1)
    log, stop = Log(path), threading.Event()

    def on_message(batch):
        numbers = array("Q", b"".join([payload[:8] for payload in batch.payloads]))
        first, last = batch.first, batch.last
        if numbers == array("Q", range(numbers[0], numbers[0] + last - first + 1)):
            log.note(str(batch.sender), batch.view_id, (first, last), (numbers[0], numbers[-1]))
            return
        for seqno, number in zip(range(first, last + 1), numbers, strict=True):
            log.note(str(batch.sender), batch.view_id, (seqno, seqno), (number, number))

    def on_view(view):
        departed = {str(member): seqno for member, seqno in view.departed.items()}
        log.write(view={"id": view.id, "members": list(map(str, view.members)),
                        "left": list(map(str, view.left)), "departed": departed},
                  at=time.monotonic())

    def on_undelivered(batch):
        log.write(undelivered=len(batch))

    channel = Channel("faults", name=name, stack=stack, insecure=True, on_message=on_message,
                      on_view=on_view, on_undelivered=on_undelivered, **json.loads(options))
    log.write(connecting=True, at=time.monotonic())
    channel.connect(120)
    def read_line():
        sys.stdin.readline()
        stop.set()

    reader = threading.Thread(target=read_line)
    reader.start()
    sent = send(channel, float(rate), stop)
    reader.join()
    while channel.status().multicast.num_unacked:
        time.sleep(0.01)
    log.write(quiet=sent)
    sys.stdin.readline()
    log.write(end=True)
    sys.stdin.read()
    channel.close()


def send(channel, rate, stop):
    """Send until `stop`. Return how many messages were sent."""
    filler, began, sent = bytes(SIZE - 8), time.monotonic(), 0
    first = time.monotonic_ns()         # above the numbers of an earlier process of this name
    while not stop.is_set():
        if not rate or sent < (time.monotonic() - began) * rate:
            channel.send_many([number.to_bytes(8, "little") + filler
                               for number in range(first + sent, first + sent + CHUNK)])
            sent += CHUNK
        else:
            stop.wait(0.005)
    return sent


if __name__ == "__main__":
    main(*sys.argv[1:])
