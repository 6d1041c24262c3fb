"""Check an installed ringcast: it comes from a wheel, nothing here can compile, and two
members hear each other within a process and over UDP."""

import shutil
import threading
from pathlib import Path

import ringcast
from ringcast import Channel

TIMEOUT = 60        # seconds after which a message has not come


def exchange(stack: str) -> None:
    """Send a message from one member to another one."""
    came = threading.Event()
    group = f"check-wheel-{stack}"
    with (Channel(group, name="B", stack=stack, on_message=lambda batch: came.set()),
          Channel(group, name="A", stack=stack, min_members=2, deliver=False) as sender):
        sender.send(b"hello")
        assert came.wait(TIMEOUT), f"no message came over {stack}"


compilers = [name for name in ("cc", "gcc", "clang", "c99") if shutil.which(name)]
assert not compilers, f"this environment has {compilers}"
assert "site-packages" in Path(ringcast.__file__).parts, f"this is {ringcast.__file__}"
for stack in ("inproc", "mcast-udp"):
    exchange(stack)
print(f"ringcast {ringcast.__version__}: inproc and mcast-udp work")
