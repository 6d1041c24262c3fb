"""A queue of jobs: one member gives them out, the others do them and send the answers.

    python examples/work_queue.py worker ann        # in one terminal
    python examples/work_queue.py worker bob        # in another one
    python examples/work_queue.py give 10 20 30     # in a third one

A job: find the largest prime below a number. If a worker dies, its jobs go to others.
"""

import argparse
from collections import deque
from contextlib import suppress
from math import isqrt

from ringcast import Address, Channel, NotMemberError

MOST = 2                                # jobs that a worker has at a time

def work(number: int) -> int:
    """Return the largest prime number below a number from 3."""
    return next(n for n in range(number - 1, 1, -1) if all(n % d for d in range(2, isqrt(n) + 1)))


def give(channel: Channel, jobs: deque[int]) -> None:
    """Give out the jobs, each to a worker that has few, until all have an answer."""
    given: dict[int, Address] = {}      # to whom
    while jobs or given:
        workers = [each for each in channel.view.members if each != channel.address]
        for job in [job for job, worker in given.items() if worker not in workers]:
            del given[job]              # its worker has died: somebody else does it
            jobs.append(job)
        for worker in workers:
            while jobs and list(given.values()).count(worker) < MOST:
                try:
                    channel.send(str(jobs[0]).encode(), worker)
                except NotMemberError:  # it has died just now
                    break
                given[jobs.popleft()] = worker
        if answer := channel.receive(timeout=0.1):      # and look who is there, now and then
            job, prime = map(int, answer.payload.split())
            if given.pop(job, None):    # else another worker was faster
                print(f"{answer.sender.name}: {prime} is the largest prime below {job}", flush=True)


parser = argparse.ArgumentParser(description="A queue of jobs.")
parser.add_argument("role", choices=["worker", "give"])
parser.add_argument("words", nargs="+", help="the name of a worker, or the jobs: numbers")
parser.add_argument("--port", type=int, default=7700, help="port of the group")
args = parser.parse_args()
name = args.words[0] if args.role == "worker" else "giver"
with Channel("work", name=name, min_members=2, port=args.port,
             on_undelivered=lambda batch: None) as channel:     # give() sees who has died
    if args.role == "give":
        give(channel, deque(map(int, args.words)))
    else:
        print(f"{name} works", flush=True)
        for message in channel:         # it is acknowledged when the next one is asked for
            number = int(message.payload)
            with suppress(NotMemberError):              # who gave the job has gone meanwhile
                channel.send(f"{number} {work(number)}".encode(), message.sender)
