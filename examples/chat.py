"""Chat between terminals. Each line that you type goes to all others.

    python examples/chat.py ann                 # in one terminal
    python examples/chat.py bob                 # in another one

End with Ctrl-D. The others go on.
"""

import argparse
import sys

from ringcast import Batch, Channel, Flag, View


def show(batch: Batch) -> None:
    """Print the messages of one sender. A thread of the channel calls this."""
    for message in batch:
        print(f"{message.sender.name}: {message.payload.decode(errors='replace')}", flush=True)


def show_view(view: View) -> None:
    """Print the members whenever they change."""
    print(f"-- {', '.join(view.names)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Chat between terminals.")
    parser.add_argument("name", help="your name")
    parser.add_argument("--port", type=int, default=7700, help="port of the group")
    args = parser.parse_args()
    with Channel("chat", name=args.name, port=args.port, on_message=show,
                 on_view=show_view) as channel:
        for line in sys.stdin:
            channel.send(line.rstrip("\n").encode(), flags=Flag.DONT_LOOPBACK)


if __name__ == "__main__":
    main()
