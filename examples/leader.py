"""The oldest member of a group does a job. If it dies or leaves, the next one goes on.

    python examples/leader.py ann                   # in one terminal
    python examples/leader.py bob                   # in another one
    pkill -9 -f leader.py.ann                       # in a third one: bob takes over

The job is to count, a step each second. Each step goes to all, so everybody knows where
to go on. While a group is parted, each part has a leader, and both count.
"""

import argparse
import threading
import time

from ringcast import Batch, Channel, View


class Worker:
    """Does the job while it is the leader, and else notes what the leader has done."""

    def __init__(self, name: str, port: int) -> None:
        self.done = 0                                   # the last step that all know of
        self.leads, self.has_heard = threading.Event(), threading.Event()
        self.channel = Channel("leader", name=name, port=port,
                               on_message=self.on_message, on_view=self.on_view)

    def on_view(self, view: View) -> None:
        """Say who leads. All that a former leader has sent comes before this view."""
        print(f"-- {', '.join(view.names)}: {view.coordinator.name} leads", flush=True)
        if view.coordinator == self.channel.address:
            self.channel.send(str(self.done).encode())  # for those who have just come
            self.leads.set()
        else:
            self.leads.clear()

    def on_message(self, batch: Batch) -> None:
        if (step := int(batch.payloads[-1])) > self.done:
            self.done = step
            print(f"{batch.sender.name} did step {step}", flush=True)
        self.has_heard.set()

    def work(self, pause: float) -> None:
        """Do a step, wait until this member has heard of it, and pause."""
        while self.leads.wait():
            step = self.done + 1
            self.channel.send(str(step).encode())
            while self.done < step:
                self.has_heard.wait()
                self.has_heard.clear()
            time.sleep(pause)


parser = argparse.ArgumentParser(description="The oldest member does a job.")
parser.add_argument("name")
parser.add_argument("--pause", type=float, default=1.0, help="seconds between two steps")
parser.add_argument("--port", type=int, default=7700, help="port of the group")
args = parser.parse_args()
worker = Worker(args.name, args.port)
with worker.channel:
    worker.work(args.pause)
