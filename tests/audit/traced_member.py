"""A member that sends a steady load until its input ends, and writes a trace. It sends
no large messages: where the trace of a killed sender has lost its end, nothing tells
their fragments from messages that are missing.

    python traced_member.py STACK PORT NAME MEMBERS DIRECTORY

It prints the number of members with each view.
"""

import sys
import threading

from ringcast import Channel


def main(stack, port, name, members, directory):
    is_over = threading.Event()
    with Channel("traced", name=name, min_members=int(members), stack=stack, port=int(port),
                 on_message=lambda batch: None, on_view=lambda view: print(len(view), flush=True),
                 trace=directory) as channel:
        threading.Thread(target=lambda: (sys.stdin.read(), is_over.set()), daemon=True).start()
        while not is_over.wait(0.005):      # the load is a rate, whatever the clock does
            channel.send_many([b"x" * 100] * 20)


if __name__ == "__main__":
    main(*sys.argv[1:])
