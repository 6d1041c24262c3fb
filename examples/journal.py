"""Record the messages of a group in a journal, and read them.

    python examples/journal.py weather.journal

Both members are in this process here. Usually the recorder is a process of its own:

    ringcast record weather.journal --group weather
"""

import argparse
import threading

from ringcast import Channel
from ringcast.journal.recorder import close_when_alone, connected, record, resume_of
from ringcast.spark import Journal, JournalReader


def run_recorder(directory: str) -> None:
    """Write every message to disk before it is acknowledged, until the station has
    left. If this process dies, the station waits for it (`durable`). Started again on
    the same directory, it continues where the journal ends (`resume`)."""
    with Journal(directory, group="weather", recorder="recorder") as journal:
        channel = Channel("weather", name="recorder", stack="inproc", durable=True,
                          oob_in_order=True, resume=resume_of(journal),
                          on_view=lambda view: close_when_alone(channel, view))
        with connected(channel):              # connect; leave only when all went well
            record(channel, journal)


def read(directory: str) -> None:
    """Print for each sender the number of its messages, and the last one."""
    reader = JournalReader(directory)
    for sender, last in reader.digest().items():
        for rows in reader.read(sender, last, last):
            name, payload = sender.partition("#")[0], rows["payload"][0].as_py()
            print(f"{name}: {last} messages, the last is {payload.decode()}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Record the messages of a group, and read them.")
    parser.add_argument("journal", help="a directory; made if it does not exist")
    args = parser.parse_args()
    recorder = threading.Thread(target=run_recorder, args=[args.journal])
    recorder.start()
    with Channel("weather", name="station", min_members=2, stack="inproc",
                 deliver=False) as channel:
        for hour in range(24):
            channel.send(f"{hour}:00 {10 + hour % 5} degrees".encode())
    recorder.join()
    read(args.journal)


if __name__ == "__main__":
    main()
