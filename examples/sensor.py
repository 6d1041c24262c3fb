"""One member sends readings, and others receive them with callbacks.

    python examples/sensor.py receive display       # in one terminal
    python examples/sensor.py receive archive       # in another one
    python examples/sensor.py send                  # in a third one

The sender ends when all have acknowledged all readings. The receivers end when the
sender has left.
"""

import argparse
import threading

from ringcast import Batch, Channel, View

RECEIVERS = ["display", "archive"]
READINGS = 10_000


def send(port: int) -> None:
    """Send the readings. This member receives no messages (deliver=False), so nobody
    waits for its acks."""
    with Channel("sensor", name="sensor", min_members=3, port=port, deliver=False) as channel:
        for number in range(READINGS):
            channel.send(f"{number} {20 + number % 7 / 10:.1f}".encode())
        missing = channel.close()
    print(f"sent {READINGS} readings; {missing} of them are not acknowledged")


def receive(name: str, port: int) -> None:
    """Count readings until the sender has left."""
    counts: list[int] = []
    left = threading.Event()

    def on_message(batch: Batch) -> None:
        counts.append(len(batch))           # the batch is acknowledged when this returns

    def on_view(view: View) -> None:
        if "sensor" in [member.name for member in view.left]:
            left.set()

    with Channel("sensor", name=name, port=port, on_message=on_message, on_view=on_view):
        left.wait()
    print(f"{name} received {sum(counts)} readings in {len(counts)} batches")


def main() -> None:
    parser = argparse.ArgumentParser(description="One member sends, others receive.")
    parser.add_argument("role", choices=["send", "receive"])
    parser.add_argument("name", nargs="?", default="display", choices=RECEIVERS)
    parser.add_argument("--port", type=int, default=7700, help="port of the group")
    args = parser.parse_args()
    send(args.port) if args.role == "send" else receive(args.name, args.port)


if __name__ == "__main__":
    main()
