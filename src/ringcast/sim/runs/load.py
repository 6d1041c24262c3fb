"""The load of a plan: the messages that a seed draws."""

from random import Random
from typing import Any

from ringcast.sim.runs.faults import split
from ringcast.sim.runs.plan import Action
from ringcast.sim.runs.settings import Settings, pick

MOST_WINDOWS = 500          # of bytes, that are drawn for all members together


def multicast_load(rng: Random, names: str, settings: Settings, options: dict[str, Any],
                   duration: int) -> list[Action]:
    """Draw bursts of messages to everybody. Some members send more than others, and
    some bursts are longer than a window."""
    total = pick(settings.messages, rng.choice([50, 300, 1000, 3000]))
    size = pick(settings.size, rng.choice([0, 20, 200, 1000, 8000]))
    if settings.messages is None:
        total = min(total, MOST_WINDOWS * int(options["max_bytes"]) // max(1, size))
    longest = min(total, max(3, min(2 * int(options["capacity"]), total // 10)))
    senders = [name for name in names if rng.random() < 0.7] or [names[0]]
    actions = []
    while total > 0:
        count = min(total, rng.randint(1, max(1, longest)))
        actions.append(Action(rng.randrange(duration), "send", rng.choice(senders), (count, size)))
        total -= count
    return actions


def unicast_load(rng: Random, names: str, settings: Settings, duration: int) -> list[Action]:
    """Draw messages to single members, also to the sender itself, in half of all runs;
    and views without one of the members."""
    total = pick(settings.unicast, rng.choice([0, 0, 0, 20, 200, 1000]))
    actions = []
    while total > 0:
        count = min(total, rng.choice([1, 1, 2, 10, 50, 200]))
        sizes = [0, 20, 20, 200, 1000, 8000, 70_000]
        size = rng.choice(sizes) if settings.size is None else settings.size
        value = (rng.choice(names), count if size < 8000 else min(count, 3), size,
                 rng.random() < 0.15)
        actions.append(Action(rng.randrange(duration), "send unicast", rng.choice(names), value))
        total -= count
    drawn = rng.randint(1, 3) if actions and len(names) > 1 and rng.random() < 0.4 else 0
    for _ in range(pick(settings.splits, drawn)):
        actions += split(rng, names, rng.randrange(duration), duration)
    return actions


def oob_messages(rng: Random, names: str, settings: Settings, duration: int) -> list[Action]:
    """Draw OOB messages to everybody, as many as were asked for."""
    left, actions = settings.oob or 0, []
    while left > 0:
        count, size = min(left, rng.choice([1, 1, 1, 2, 5])), rng.choice([0, 20, 200, 1000, 70_000])
        actions.append(Action(rng.randrange(duration), "send oob", rng.choice(names),
                              (count, size)))
        left -= count
    return actions


def large_messages(rng: Random, names: str, settings: Settings, duration: int) -> list[Action]:
    """Draw messages to everybody that go out in fragments, as many as were asked
    for."""
    return [Action(rng.randrange(duration), "send", rng.choice(names),
                   (1, rng.choice([70_000, 150_000])))
            for _ in range(settings.large or 0)]
