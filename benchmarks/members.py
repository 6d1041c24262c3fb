"""The processes of a benchmark: members of a group, or peers in their place."""

import multiprocessing
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from ringcast import Channel

PATIENCE = 180.0                        # seconds, for whatever should happen


def run(be: Callable[..., None], members: Sequence[Sequence[Any]],
        pauses: int = 1, in_threads: bool = False) -> list[Any]:
    """Run `be(*arguments, pipe)` in a process for each of `members`, or in a thread,
    and return what each of them tells.

    It sends None when it is there, and waits; with more `pauses` so many times. Then it
    sends what it has measured, and waits again, because others may still need something
    of it. All go on together.
    """
    pipes, processes = [], []
    one: Any = threading.Thread if in_threads else multiprocessing.Process
    for arguments in members:
        ours, theirs = multiprocessing.Pipe()
        processes.append(one(target=be, args=(*arguments, theirs), daemon=True))
        pipes.append(ours)
        processes[-1].start()
    for _ in range(pauses):
        gather(pipes)
    told = gather(pipes)
    for process in processes:
        process.join(PATIENCE)
    return told


def gather(pipes: Sequence[Connection]) -> list[Any]:
    """Take what each process tells, then let all go on."""
    told = []
    for pipe in pipes:
        if not pipe.poll(PATIENCE):
            raise SystemExit("a process has not ended")
        told.append(pipe.recv())
    for pipe in pipes:
        pipe.send(None)
    return told


def receive(channel: Channel) -> int:
    """Receive until the sender says by an empty message that it has ended; return how
    many messages."""
    count = 0
    for batch in channel.batches():
        count += len(batch)
        if not batch.payloads[-1]:
            break
    return count
