"""Settings that all members share. All have the same values, whoever changes them.

    python examples/settings.py ann                 # in one terminal
    python examples/settings.py bob                 # in others, at any time

Type "key value". It goes to the oldest member, which sends it to all, in one order.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import suppress

from ringcast import Batch, Channel, NotMemberError, View


class Settings:
    def __init__(self, name: str, port: int) -> None:
        self.values: dict[str, str] = {}
        self.channel = Channel("settings", name=name, port=port, on_message=self.on_message,
                               on_view=self.on_view, on_undelivered=self.on_undelivered,
                               on_state_request=lambda: [json.dumps(self.values).encode()],
                               on_state=self.take)

    def change(self, payload: bytes) -> None:
        """Ask the oldest member for a change, whoever that is by now."""
        with suppress(NotMemberError):  # it has just gone
            return self.channel.send(payload, self.channel.view.coordinator)
        return self.change(payload)

    def on_message(self, batch: Batch) -> None:
        """Pass on what was asked for; change what the oldest member tells all."""
        if batch.dest is not None:
            self.channel.send_many(batch.payloads)
        else:
            self.values |= map(json.loads, batch.payloads)
            print(json.dumps(self.values), flush=True)

    def on_undelivered(self, batch: Batch) -> None:
        """Ask again: the oldest member went before it had finished these requests."""
        for payload in batch.payloads:
            self.change(payload)

    def on_view(self, view: View) -> None:
        print("--", ", ".join(view.names), flush=True)

    def take(self, chunks: Iterator[bytes]) -> None:
        self.values = json.loads(b"".join(chunks))


parser = argparse.ArgumentParser(description="Settings that all members share.")
parser.add_argument("name")
parser.add_argument("--port", type=int, default=7700, help="port of the group")
args = parser.parse_args()
settings = Settings(args.name, args.port)
with settings.channel:
    for line in map(str.split, sys.stdin):
        settings.change(json.dumps([line[0], " ".join(line[1:])]).encode())
