"""The plan of a run with a steady load, which is there to measure (measure.py).

Nothing of it is drawn, and it has only the faults that were asked for. Its network
carries `bandwidth` bytes a second out of and into each member, and has a fixed delay.
The seed decides which datagrams are lost, and when the faults happen.
"""

from random import Random
from typing import Any

import msgspec

from ringcast.config import configure, nanoseconds
from ringcast.sim.network import MS
from ringcast.sim.runs.faults import SECOND, breaks, faults, outages
from ringcast.sim.runs.load import unicast_load
from ringcast.sim.runs.plan import Action, Plan, Start
from ringcast.sim.runs.settings import FAULTS, NAMES, RATES, STEADY, Settings, pick
from ringcast.stacks import STACKS

TICK = 1 * MS                   # the application gets its load in portions of this length
TURN = 10_000                   # nanoseconds that a turn keeps a member busy
MARGINS = 10                    # times form_margin, in which the group forms


def steady_plan(seed: int, settings: Settings) -> Plan:
    """Return the plan of a run: the group forms, its senders have something to send all
    the time, and in the end all of it arrives."""
    rng = Random(f"{seed} plan")
    settings = steady_settings(settings)
    names, size, rate = NAMES[:settings.members], settings.size or 0, settings.steady or 0.0
    config = configure(settings.options, settings.stack)
    bandwidth = int((settings.bandwidth or 0.0) * 1_000_000)
    delay = int((settings.delay or 0.0) * MS)
    begin = MARGINS * nanoseconds(config.form_margin) + 10 * delay
    end = begin + int((settings.duration or 0.0) * SECOND)
    window = max(1, min(config.capacity, config.max_bytes // max(1, size)))
    plenty = window + bandwidth * TICK // SECOND // (size + 20)     # more than leaves in one tick
    in_flight = window * (size + 100) * SECOND // bandwidth         # time of a window on the wire
    duration = end + 10 * nanoseconds(config.scan_interval) + 10 * delay + len(names) * in_flight
    network: dict[str, Any] = {name: getattr(settings, name) or 0.0 for name in RATES}
    timed = (*FAULTS, "unicast", "large", "oob", "splits", "breaks", "outages")
    asked = msgspec.structs.replace(settings, **{name: getattr(settings, name) or 0
                                                 for name in timed})
    suspicion = nanoseconds(config.suspect_timeout)
    actions = faults(rng, names, asked, end, suspicion)
    actions += unicast_load(rng, names, asked, end)
    if STACKS[settings.stack].is_lossless:
        network = {}
        actions += breaks(rng, names, asked, end)
        actions += outages(rng, names, asked, end, suspicion)
    for name in names[:settings.senders]:
        actions += steady_load(name, rate, begin, end, size, plenty)
    return Plan(
        seed=seed, names=names, stack=settings.stack, options=settings.options,
        network=network | {"bandwidth": bandwidth, "delay": (delay, delay),
                           "send_buffer": settings.send_buffer or 0},
        starts={name: Start(0, 0, (0, 1000), True, 0) for name in names}, duration=duration,
        threads=settings.threads or 0, socket_bytes=pick(settings.socket_buffer, 16 << 20),
        turn_time=TURN,
        actions=sorted(actions, key=lambda action: action.at), comebacks=dict.fromkeys(names, True),
        load=(begin, end))


def steady_settings(settings: Settings) -> Settings:
    """Return the settings with a value for all that a steady load needs."""
    return msgspec.structs.replace(settings, **{name: pick(getattr(settings, name), STEADY[name])
                                                for name in STEADY})


def steady_load(who: str, rate: float, begin: int, end: int, size: int,
                plenty: int) -> list[Action]:
    """Give an application in every TICK the messages of that time, or with a rate of 0
    more than it can send."""
    actions, given = [], 0
    for at in range(begin, end, TICK):
        due = plenty if not rate else int((at + TICK - begin) * rate / SECOND) - given
        given += due
        if due:
            actions.append(Action(at, "send", who, (due, size)))
    return [*actions, Action(end, "stop sending", who)]
