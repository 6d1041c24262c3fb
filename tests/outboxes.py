"""Help for tests of outboxes: a group in one process, with a publisher on a thread and
a member that keeps what it gets."""

import subprocess
import threading
from contextlib import contextmanager

import pyarrow as pa
from ports import free_port
from processes import PATIENCE, RINGCAST

from ringcast import Channel, RingcastError
from ringcast.outbox.owned import OwnedOutbox
from ringcast.outbox.publisher import Publisher, channel_factory
from ringcast.outbox.store import PAYLOADS

GROUP = "g"


def batches_of(payloads, rows=1000):
    """Return record batches of payloads, each of at most `rows` rows."""
    return [pa.RecordBatch.from_arrays([pa.array(payloads[start:start + rows], pa.binary())],
                                       schema=PAYLOADS)
            for start in range(0, len(payloads), rows)]


def put(outbox, query, batch, *parts):
    """Commit a batch whose parts have these payloads. Return its number."""
    return outbox.commit(query, batch, [outbox.write_part(batches_of(payloads), 1 << 40)
                                        for payloads in parts])


class Publishing(threading.Thread):
    """Runs a publisher on a thread of its own and keeps what it raised."""

    def __init__(self, path, keep_parts=3600.0, expect=(), **options):
        super().__init__()
        config, join = channel_factory(GROUP, name="spark",
                                       **({"stack": "nakack2-tcp"} | options))
        self.held = OwnedOutbox(path, GROUP, config)
        self.stop = threading.Event()
        self.publisher = Publisher(self.held, "spark", join, self.stop, expect=expect,
                                   keep_parts=keep_parts)
        self.error = None
        self.start()

    def run(self):
        try:
            self.publisher.run()
        except RingcastError as error:
            self.error = error
        finally:
            self.held.release()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.join(PATIENCE)


class Member:
    """Keeps the payloads that it gets. Finishes none while `may_finish` is clear."""

    def __init__(self, name="r", **options):
        self.got, self.may_finish = [], threading.Event()
        self.may_finish.set()
        # often the publisher is dead when this one leaves
        defaults = {"stack": "nakack2-tcp", "leave_timeout": 100.0}
        self.channel = Channel(GROUP, name=name, on_message=self._take,
                               **(defaults | options))
        self.connecting = threading.Thread(target=self.channel.connect)
        self.connecting.start()

    def _take(self, batch):
        self.may_finish.wait(PATIENCE)
        self.got += batch.payloads

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.may_finish.set()
        self.connecting.join(PATIENCE)
        self.channel.close(0)


@contextmanager
def served(path, keep_parts=3600.0, **options):
    """Run an outbox's publisher and the one other member, and yield both."""
    options = {"port": free_port()} | options
    with (Member(**options) as member,
          Publishing(path, keep_parts=keep_parts, **options) as publishing):
        yield publishing, member
    if publishing.error is not None:
        raise publishing.error


def start_publisher(path, port, *more, stack="nakack2-tcp"):
    """Start `ringcast publish` as a process of its own."""
    command = [*RINGCAST, "publish", path, "--group", GROUP, "--quiet", "--set", f"port={port}",
               "--stack", stack, *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
