"""The faults of a plan: actions that a seed draws.

Most functions draw the actions of one kind of fault. `names` are the members, and
`duration` is the length of the part of the run that has faults, in nanoseconds.
"""

from random import Random
from typing import Any

import msgspec

from ringcast.sim.network import MS, Direction
from ringcast.sim.runs.plan import Action, Start
from ringcast.sim.runs.settings import FAULTS, Settings, pick
from ringcast.stacks import STACKS

SECOND = 1000 * MS


def faults(rng: Random, names: str, settings: Settings, duration: int) -> list[Action]:
    """Draw the faults of FAULTS: each kind in about half of all runs, and then up to
    three of it."""
    actions: list[Action] = []
    for name, kind in zip(FAULTS, (crash, partition, pause, slow, exclusion, leaving, jump),
                          strict=True):
        share, most = (0.2, 1) if name in ("exclusions", "leaves") else (0.5, 3)
        drawn = rng.randint(1, most) if rng.random() < share else 0
        for _ in range(pick(getattr(settings, name), drawn)):
            actions += kind(rng, names, rng.randrange(duration), duration)
    return actions


def crash(rng: Random, names: str, at: int, duration: int) -> list[Action]:
    """Let a member die. Most come back, at the same address or another one, with or
    without their journal."""
    who = rng.choice(names)
    back = at + rng.choice([0, 10 * MS, rng.randrange(duration)])
    how = {"resumes": rng.random() < 0.6, "moves": rng.random() < 0.4}
    comes_back = rng.random() < 0.7
    return [Action(at, "crash", who), *([Action(back, "restart", who, how)] if comes_back else ())]


def partition(rng: Random, names: str, at: int, duration: int) -> list[Action]:
    """Cut the links between two halves of the group, in one direction or both; or delay
    all that they carry."""
    shuffled = rng.sample(names, len(names))
    size = rng.randint(1, max(1, len(names) - 1))
    one, other = shuffled[:size], shuffled[size:]
    links: list[Direction] = [(a, b) for a in one for b in other]
    if rng.random() < 0.6:
        links += [(b, a) for a, b in links]
    elif rng.random() < 0.3:
        links = links[:1]
    until = at + rng.randrange(1, max(2, duration // 2))
    if rng.random() < 0.2:
        return [Action(at, "clog", value=(links, until))]
    return [Action(at, "cut", value=links), Action(until, "mend", value=links)]


def pause(rng: Random, names: str, at: int, duration: int) -> list[Action]:
    """Pause a member."""
    return [Action(at, "pause", rng.choice(names),
                   rng.choice([10 * MS, 300 * MS, rng.randrange(1, 3 * SECOND)]))]


def slow(rng: Random, names: str, at: int, duration: int) -> list[Action]:
    """Make an application slow, and let it take few messages at a time; or fill the
    send buffer of a member now and then."""
    who = rng.choice(names)
    until = at + rng.randrange(1, max(2, duration // 2))
    if rng.random() < 0.3:
        return [Action(at, "send buffer", who, rng.random() * 0.5),
                Action(until, "send buffer", who, 0.0)]
    return [Action(at, "slow", who, (rng.choice([1 * MS, 20 * MS, 200 * MS]),
                                     rng.choice([1, 10, 65_536]))),
            Action(until, "slow", who, (0, 65_536))]


def exclusion(rng: Random, names: str, at: int, duration: int) -> list[Action]:
    """Let a member exclude another one, which may be alive, and may come back later as
    a new incarnation."""
    if len(names) < 2:
        return []
    by, who = rng.sample(names, 2)
    return [Action(at, "exclude", by, who), *perhaps_restart(rng, who, at, duration)]


def leaving(rng: Random, names: str, at: int, duration: int) -> list[Action]:
    """Let a member leave, and perhaps come back later as a new incarnation."""
    who = rng.choice(names)
    return [Action(at, "leave", who), *perhaps_restart(rng, who, at, duration)]


def perhaps_restart(rng: Random, who: str, at: int, duration: int) -> list[Action]:
    """Start a member again in half of all cases."""
    if rng.random() < 0.5:
        return [Action(at + rng.randrange(1, duration), "restart", who,
                       {"resumes": rng.random() < 0.5, "moves": False})]
    return []


def jump(rng: Random, names: str, at: int, duration: int) -> list[Action]:
    """Let a clock jump ahead."""
    return [Action(at, "jump", rng.choice(names),
                   rng.choice([1 * SECOND, 3600 * SECOND, 86_400 * SECOND]))]


def split(rng: Random, names: str, at: int, duration: int) -> list[Action]:
    """Take a member out of another one's view for a while. Often the network between
    them is cut at the same time."""
    if len(names) < 2:
        return []
    who, other = rng.sample(names, 2)
    until = at + rng.randrange(1, max(2, duration // 2))
    actions = [Action(at, "hide", who, other), Action(until, "show", who, other)]
    if rng.random() < 0.5:
        links = [(other, who)] if rng.random() < 0.5 else [(other, who), (who, other)]
        actions += [Action(at, "cut", value=links), Action(until, "mend", value=links)]
    return actions


def breaks(rng: Random, names: str, settings: Settings, duration: int) -> list[Action]:
    """Break connections, often several times in a row."""
    if len(names) < 2:
        return []
    actions: list[Action] = []
    wanted = pick(settings.breaks, rng.choice([0, 1, 3, 10, 50]))
    while len(actions) < wanted:
        pair, at = rng.sample(names, 2), rng.randrange(duration)
        for _ in range(min(wanted - len(actions), rng.choice([1, 1, 1, 5]))):
            actions.append(Action(at, "break", value=pair))
            at = min(duration - 1, at + rng.randrange(100 * MS))
    return actions


def switches(rng: Random, names: str, settings: Settings, options: dict[str, Any],
             duration: int) -> list[Action]:
    """Draw whether NAKACK2 retransmits, and in some runs switch that on and off."""
    interval = options["xmit_interval"]
    if STACKS[settings.stack].may_skip_retransmission and "xmit_interval" not in settings.options:
        options["xmit_interval"] = rng.choice([0, 0, 0, -1, interval])
        if rng.random() < 0.3:
            return [Action(rng.randrange(duration), "interval", rng.choice(names),
                           rng.choice([0, interval])) for _ in range(10)]
    return []


def returns(rng: Random, names: str, settings: Settings, duration: int, starts: dict[str, Start],
            actions: list[Action]) -> list[Action]:
    """Let a member that only sends die and come back as the same incarnation, in some
    runs. Return all actions.

    It sends half of all messages to everybody, and none to single members. It comes
    back at its address or another one, and may have been excluded meanwhile.
    """
    wanted = pick(settings.returns, rng.choice([0, 0, 0, 0, 0, 0, 0, 1, 3, 10]))
    if not wanted or len(names) < 2:
        return actions
    who = rng.choice(names)
    starts[who] = msgspec.structs.replace(starts[who], receiving=False, returns=True)
    actions = [msgspec.structs.replace(action, who=who) if action.what == "send"
               and rng.random() < 0.5 else action
               for action in actions if (action.what, action.who) != ("send unicast", who)]
    for _ in range(wanted):
        at = rng.randrange(duration)
        back = at + rng.choice([0, 10 * MS, rng.randrange(duration)])
        how = {"lag": rng.choice([0, 0, 1, 10, 1000]), "moves": rng.random() < 0.5}
        actions += [Action(at, "crash", who), Action(back, "return", who, how)]
        if rng.random() < 0.3:
            actions.append(Action(rng.randrange(at, back + 1), "exclude",
                                  rng.choice([name for name in names if name != who]), who))
    return [action for action in actions if action.at < duration]


def joins(rng: Random, names: str, settings: Settings, duration: int, starts: dict[str, Start],
          delay: int, may_be: bool) -> list[Action]:
    """Let members leave and join again while others send, so that messages wait to be
    bundled when the view comes.

    If two members receive messages, the one that joins and the one that sends do.
    """
    drawn = rng.choice([0, 0, 1, 3, 8]) if may_be else 0
    may_come = [name for name in names if not starts[name].returns]
    if len(names) < 2 or not may_come:
        return []
    receivers = [name for name in names if starts[name].receiving]
    pairs = [(who, sender) for who in may_come for sender in names if who != sender]
    pairs = [pair for pair in pairs if set(pair) <= set(receivers)] or pairs
    actions: list[Action] = []
    for _ in range(pick(settings.joins, drawn)):
        who, sender = rng.choice(pairs)
        at = rng.randrange(duration)
        back = at + rng.choice([50 * MS, 200 * MS, rng.randrange(1, duration)])
        actions += [Action(at, "leave", who),
                    Action(back, "restart", who, {"resumes": rng.random() < 0.5, "moves": False})]
        for _ in range(rng.choice([1, 5, 20])):
            size = rng.choice([0, 20, 200]) if settings.size is None else settings.size
            actions.append(Action(back + rng.randrange(2 * delay + MS), "send", sender,
                                  (rng.choice([1, 3, 10, 50]), size)))
    return [action for action in actions if action.at < duration]
