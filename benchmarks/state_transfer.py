"""How much senders lose while a member that comes is given a large state.

    python benchmarks/state_transfer.py [--stack NAME] [--megabytes N] [--rounds N]

Two members, processes on loopback, send messages of 1000 bytes as fast as they can. In
turns a third one comes that is given a state of so many megabytes, and one that is
given none and stays as long. The figures are the messages that both senders sent in a
second from when the third has begun to come until it has the state, or leaves; medians
of the rounds, and their spread.
"""

import argparse
import multiprocessing
import secrets
import statistics
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection

from ringcast import Channel

SIZE, CALL = 1000, 20
CHUNK = bytes(1 << 20)
SAMPLE = 0.01                           # seconds between two looks at what was sent
PATIENCE = 600.0                        # seconds that a transfer may take


def send(group: str, stack: str, megabytes: int, pipe: Connection) -> None:
    """Be a member that sends until it is told to stop; return what was sent when."""
    def state() -> Iterator[bytes]:
        for _ in range(megabytes):
            yield CHUNK

    sent, is_over = 0, threading.Event()
    samples: list[tuple[float, int]] = []

    def sample() -> None:
        while not is_over.wait(SAMPLE):
            samples.append((time.monotonic(), sent))

    payloads = [bytes(SIZE)] * CALL
    with Channel(group, stack=stack, on_message=lambda batch: None, on_state_request=state,
                 min_members=2) as channel:
        pipe.send("ready")
        threading.Thread(target=sample).start()
        while not pipe.poll():
            channel.send_many(payloads)
            sent += CALL
        is_over.set()
        pipe.send(samples)


def come(group: str, stack: str, with_state: bool, seconds: float, pipe: Connection) -> None:
    """Come, take the state or stay so long, and leave; tell when that began and
    ended."""
    nbytes = 0

    def take(chunks: Iterator[bytes]) -> None:
        nonlocal nbytes
        for chunk in chunks:
            nbytes += len(chunk)

    channel = Channel(group, stack=stack, on_message=lambda batch: None,
                      on_state=take if with_state else None, min_members=3)
    begun = time.monotonic()
    channel.connect(PATIENCE)
    if not with_state:
        time.sleep(max(0.0, begun + seconds - time.monotonic()))
    ended = time.monotonic()
    pipe.send((begun, ended, nbytes))
    channel.close(0)


def rate(samples: list[tuple[float, int]], begun: float, ended: float) -> float:
    """Return the messages that one sender sent in a second."""
    between = [each for each in samples if begun <= each[0] <= ended]
    (first, before), (last, after) = between[0], between[-1]
    return (after - before) / (last - first)


def measure(stack: str, megabytes: int, rounds: int) -> None:
    group, processes = secrets.token_hex(8), multiprocessing.get_context("spawn")
    senders = []
    for _ in range(2):
        pipe, theirs = processes.Pipe()
        processes.Process(target=send, args=(group, stack, megabytes, theirs)).start()
        senders.append(pipe)
    for pipe in senders:
        pipe.recv()
    turns: list[tuple[bool, float, float]] = []
    seconds = 2.0
    for number in range(2 * rounds):
        with_state = number % 2 == 0
        pipe, theirs = processes.Pipe()
        process = processes.Process(target=come, args=(group, stack, with_state, seconds, theirs))
        process.start()
        begun, ended, nbytes = pipe.recv()
        process.join()
        assert nbytes == (megabytes << 20 if with_state else 0), (nbytes, with_state, number)
        turns.append((with_state, begun, ended))
        seconds = ended - begun
        time.sleep(1)
    for pipe in senders:
        pipe.send("stop")
    counts = [pipe.recv() for pipe in senders]
    for with_state in (False, True):
        rates = [sum(rate(samples, begun, ended) for samples in counts)
                 for kind, begun, ended in turns if kind == with_state]
        spent = [ended - begun for kind, begun, ended in turns if kind == with_state]
        what = f"a state of {megabytes} MB" if with_state else "without state"
        print(f"{stack:12} {what:20} {statistics.median(rates):10,.0f} messages/s "
              f"({min(rates):,.0f} to {max(rates):,.0f}), {statistics.median(spent):.2f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stack", default="mcast-udp")
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    measure(arguments.stack, arguments.megabytes, arguments.rounds)
