"""A dictionary that all members of a group have. Who comes later is given it.

    python examples/replicated_dictionary.py ann        # in one terminal
    python examples/replicated_dictionary.py bob        # in others, at any time

Type "key value" to set a key at all members, "key" to delete it, and an empty line to
print all keys. All members have the same values if one member at a time sets a key.
"""

import argparse
import json
import sys
from collections.abc import Iterator

from ringcast import Batch, Channel


class Dictionary:
    """The values by their keys at one member, which follows all changes."""

    def __init__(self, name: str, port: int) -> None:
        self.values: dict[str, str] = {}
        self.channel = Channel("dictionary", name=name, port=port, on_message=self.change,
                               on_state_request=self.give, on_state=self.take)

    def change(self, batch: Batch) -> None:
        """Change what a member has set or deleted."""
        for payload in batch.payloads:
            key, value = json.loads(payload)
            self.values.pop(key, None)
            if value is not None:
                self.values[key] = value
            print(f"{batch.sender.name}: {key} = {value}")

    def give(self) -> list[bytes]:
        """Return a copy of all values, for a member that comes."""
        return [json.dumps(item).encode() for item in self.values.items()]

    def take(self, chunks: Iterator[bytes]) -> None:
        """Take all values from another member. More changes follow."""
        self.values = dict(json.loads(chunk) for chunk in chunks)


def main() -> None:
    parser = argparse.ArgumentParser(description="A dictionary that all members have.")
    parser.add_argument("name")
    parser.add_argument("--port", type=int, default=7700, help="port of the group")
    args = parser.parse_args()
    dictionary = Dictionary(args.name, args.port)
    with dictionary.channel as channel:
        print(f"{args.name} has {len(dictionary.values)} keys")
        for line in map(str.split, sys.stdin):
            if line:
                channel.send(json.dumps([line[0], " ".join(line[1:]) or None]).encode())
            else:
                print(json.dumps(dictionary.values, sort_keys=True))


if __name__ == "__main__":
    main()
