"""What the tests of `ringcast perf` do to its processes, and see of them."""

import multiprocessing
import os
import subprocess
import sys
import threading
import time


def command(*arguments, timeout=120):
    return subprocess.run([sys.executable, "-c", "from ringcast.cli import main; main()", "perf",
                           *map(str, arguments)],
                          capture_output=True, text=True, timeout=timeout)


def signal_member(name, number, sending):
    """Send a signal to the member `name` of a run in this process, once it has been
    sending for a while."""
    def act():
        for _ in range(6000):
            for process in multiprocessing.active_children():
                if process.name == name and cpu_ticks(process.pid) > sending:
                    os.kill(process.pid, number)
                    return
            time.sleep(0.01)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


def cpu_ticks(pid):
    """CPU time of a process in hundredths of a second: how one sees from outside that
    it is past its start."""
    with open(f"/proc/{pid}/stat") as file:
        return sum(map(int, file.read().rpartition(")")[2].split()[11:13]))


def wait_until(condition, patience=60):
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def is_running(pid):
    """Neither gone nor waiting to be buried."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
