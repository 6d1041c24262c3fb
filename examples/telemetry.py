"""A recorder is given every reading, and a slow dashboard holds nobody up.

    python examples/telemetry.py record         # in one terminal
    python examples/telemetry.py watch          # in another one
    python examples/telemetry.py send           # in a third one
"""

import argparse
import threading
import time

from ringcast import Address, Batch, Channel, View

READINGS = 500_000


def send(port: int) -> None:
    """Send as fast as the recorder takes them."""
    with Channel("telemetry", name="sensor", min_members=2, port=port, deliver=False) as channel:
        while not channel.view.observers:
            time.sleep(0.01)                # until the dashboard has come
        began = time.monotonic()
        for _ in range(READINGS // 1000):
            channel.send_many([b"21.5"] * 1000)
        missing = channel.close(None)
    print(f"{READINGS} readings in {time.monotonic() - began:.1f} s; {missing} not acknowledged")


def receive(role: str, port: int) -> None:
    """Receive until the sender has left."""
    observes, left, counts = role == "watch", threading.Event(), {"taken": 0, "skipped": 0}

    def on_message(batch: Batch) -> None:
        counts["taken"] += len(batch)
        time.sleep(0.05 if observes else 0) # a picture takes so long

    def on_skipped(sender: Address, first: int, last: int) -> None:
        counts["skipped"] += last - first + 1

    def on_view(view: View) -> None:
        if "sensor" in [member.name for member in view.left]:
            left.set()

    with Channel("telemetry", name=role, port=port, on_message=on_message, on_view=on_view,
                 max_undelivered=1000, slow="observe" if observes else "block",
                 on_skipped=on_skipped if observes else None):
        left.wait()
    print(f"{role}: {counts['taken']} readings, and {counts['skipped']} skipped")


def main() -> None:
    parser = argparse.ArgumentParser(description="A dashboard beside a recorder.")
    parser.add_argument("role", choices=["send", "record", "watch"])
    parser.add_argument("--port", type=int, default=7700, help="port of the group")
    args = parser.parse_args()
    send(args.port) if args.role == "send" else receive(args.role, args.port)


if __name__ == "__main__":
    main()
