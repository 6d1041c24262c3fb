"""A member of a storm: a process that sends and reads as its traits say.

    python actor.py TRAITS

TRAITS is a JSON object, which plans.py draws. Lines of the input say what to do: `stop`
sending, `look N`, `exclude NAME`, `leave`. It answers with JSON lines:

    {"joined": true}                it is in the group, and sends from now on
    {"merged": id}                  two groups have become one, with this view
    {"stopped": true}               it sends nothing more
    {"look": N, "view": id, "members": [...], "fault": null, "state": {...}}
    {"closed": count}               it has left; so many messages were not acknowledged

An error that a sender must expect is nothing. Any other one is a traceback in stderr,
and the storm finds it there. SIGUSR1 shows what all threads do.
"""

import asyncio
import faulthandler
import json
import signal
import sys
import threading
import time
from contextlib import suppress
from random import Random
from zlib import crc32

from ringcast import (
    Channel,
    ClosedError,
    ConfigError,
    Flag,
    Message,
    NoQuorumError,
    NotMemberError,
    SendTimeoutError,
    Skipped,
    aio,
)

EXPECTED = SendTimeoutError, NotMemberError, ClosedError, NoQuorumError
JOIN, CLOSE = 120, 30               # seconds that it takes at most
UNRELIABLE = 1000                   # bytes of a message without reliability: it has one datagram
LONG = 50_000                       # bytes of a message that is sent alone
CHUNK = 50_000                      # bytes of a part of a state
WAYS = ["send"] * 16 + ["send_many"] * 2 + ["try_send", "give up"]


class Tally:
    """What an application keeps of the messages to everybody: of each sender, the count
    and the crc32 of all of them in their order. It is the state of the group."""

    def __init__(self, rng, slow):
        self.rng, self.slow = rng, slow
        self.by_sender = {}                             # incarnation: [count, crc32]
        self.lock = threading.Lock()

    def note(self, got):
        """Note a message, a batch or a list of batches. Rarely, take a while for it."""
        for each in got if isinstance(got, list) else [got]:
            if (isinstance(each, Skipped) or each.dest is not None
                    or each.flags & (Flag.OOB | Flag.NO_RELIABILITY)):
                continue
            with self.lock:
                entry = self.by_sender.setdefault(str(each.sender.incarnation), [0, 0])
                for payload in [each.payload] if isinstance(each, Message) else each.payloads:
                    entry[:] = entry[0] + 1, crc32(payload, entry[1])
        if self.rng.random() < self.slow:
            time.sleep(self.rng.uniform(0, 0.02))

    def copy(self):
        with self.lock:
            return {sender: list(entry) for sender, entry in self.by_sender.items()}

    def give(self):
        """Return the state in chunks, some of which hold only filler."""
        filler = "x" * self.rng.choice([0, 1_000, 500_000])
        data = json.dumps([self.copy(), filler]).encode()
        return (data[place:place + CHUNK] for place in range(0, len(data), CHUNK))

    def take(self, chunks):
        state, _ = json.loads(b"".join(chunks))
        with self.lock:
            self.by_sender = state


def say(**answer):
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def on_view(view):
    if len(view.subgroups) > 1:
        say(merged=view.id)


def obey(channel, tally, word, argument):
    """Do what a line says that is the same with threads and with tasks."""
    if word == "look":
        say(look=int(argument), view=channel.view.id, fault=channel.fault, state=tally.copy(),
            members=list(map(str, channel.view.members)))
    elif word == "exclude":
        with suppress(ConfigError):                     # it is not in the view
            channel.exclude(argument)


def draw(rng, channel):
    """Return how to send the next message, the message, and the call's arguments."""
    way = rng.choice(WAYS)
    flags = rng.choices([Flag(0), Flag.OOB, Flag.NO_RELIABILITY], [92, 5, 3])[0]
    sizes = [(0, 2_000), (20_000, 200_000), (0, 2_000_000)]
    size = rng.randrange(*rng.choices(sizes, [90, 9, 1])[0])
    if flags & Flag.NO_RELIABILITY:
        size = min(size, UNRELIABLE)
    elif way == "try_send":
        size = min(size, channel.max_payload)           # it has no time for fragments
    dest = rng.choice(channel.view.members) if rng.random() < 0.2 else None
    payload = rng.randbytes(size)
    return way, payload, {"dest": dest, "flags": flags}, rng.choice([0.01, 5, 5, 5])


def several(payload):
    return [payload, payload[:10], b"x"] if len(payload) < LONG else [payload]


# ------------------------------------------------------------------------------------- with threads

def talk(channel, rng, stop):
    pause = rng.choice([0.001, 0.01, 0.05])
    while not stop.is_set():
        way, payload, how, timeout = draw(rng, channel)
        with suppress(*EXPECTED):
            if way == "send_many":
                channel.send_many(several(payload), timeout=timeout, **how)
            elif way == "try_send":
                channel.try_send(payload, **how)
            else:
                channel.send(payload, timeout=0 if way == "give up" else timeout, **how)
        if rng.random() < 0.1:
            time.sleep(pause)


def read(channel, reads, tally):
    with suppress(ClosedError):
        for got in getattr(channel, reads)():
            tally.note(got)


def run(channel, reads, tally, rngs):
    """Be a member whose threads send and read, until it is told to leave."""
    channel.connect(JOIN)
    say(joined=True)
    stop = threading.Event()
    talkers = [threading.Thread(target=talk, args=(channel, rng, stop)) for rng in rngs]
    readers = [threading.Thread(target=read, args=(channel, reads, tally))]
    for thread in talkers + readers * (reads != "callback"):
        thread.start()
    while (word := (sys.stdin.readline() or "leave").split())[0] != "leave":
        if word == ["stop"]:
            stop.set()
            for thread in talkers:
                thread.join()
            say(stopped=True)
        else:
            obey(channel, tally, *word)
    stop.set()
    say(closed=channel.close(CLOSE))


# ------------------------------------------------------------------------------------- with asyncio

async def talk_async(channel, rng, stop):
    while not stop.is_set():
        way, payload, how, timeout = draw(rng, channel)
        with suppress(*EXPECTED):
            if way == "send_many":
                await channel.send_many(several(payload), timeout=timeout, **how)
            elif way == "try_send":
                channel.try_send(payload, **how)
            elif way == "give up":
                with suppress(TimeoutError):
                    await asyncio.wait_for(channel.send(payload, **how), 0.002)
            else:
                await channel.send(payload, timeout=timeout, **how)
        await asyncio.sleep(0.005 if rng.random() < 0.2 else 0)


async def read_async(channel, reads, tally):
    with suppress(ClosedError):
        async for got in getattr(channel, reads)():
            tally.note(got)


async def run_async(channel, reads, tally, rngs):
    """Do the same as run(), with tasks."""
    await channel.connect(JOIN)
    say(joined=True)
    stop = threading.Event()
    tasks = [asyncio.create_task(talk_async(channel, rng, stop)) for rng in rngs]
    readers = [] if reads == "callback" else [read_async(channel, reads, tally)]
    readers = list(map(asyncio.create_task, readers))
    while (word := (await asyncio.to_thread(sys.stdin.readline) or "leave").split())[0] != "leave":
        if word == ["stop"]:
            stop.set()
            await asyncio.gather(*tasks)
            say(stopped=True)
        else:
            obey(channel, tally, *word)
    stop.set()
    say(closed=await channel.close(CLOSE))
    await asyncio.gather(*tasks, *readers)


def main(traits):
    faulthandler.register(signal.SIGUSR1)
    tally = Tally(Random(f"{traits['seed']} tally"), traits["slow"])
    rngs = [Random(f"{traits['seed']} {number}") for number in range(traits["senders"])]
    arguments = traits["options"] | {"on_view": on_view, "on_undelivered": lambda batch: None}
    if traits["reads"] == "callback":
        arguments["on_message"] = tally.note
    if traits["state"]:
        arguments |= {"on_state_request": tally.give, "on_state": tally.take}
    make = aio.Channel if traits["asyncio"] else Channel
    channel = make(traits["group"], name=traits["name"], **arguments)
    if traits["asyncio"]:
        asyncio.run(run_async(channel, traits["reads"], tally, rngs))
    else:
        run(channel, traits["reads"], tally, rngs)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
