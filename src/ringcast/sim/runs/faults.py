"""The faults of a plan: actions that a seed draws.

Most functions draw the actions of one kind of fault. `names` are the members, and
`duration` is the length of the part of the run that has faults, in nanoseconds.
"""

from collections.abc import Mapping
from itertools import combinations
from random import Random

from ringcast.sim.network import MS, Direction
from ringcast.sim.runs.plan import COORDINATOR, Action, Start
from ringcast.sim.runs.settings import FAULTS, Settings, pick

SECOND = 1000 * MS
LONG_ABSENCE = 3_600.0                  # seconds: a member comes back before

# Datagrams at which a member may die, and how often it is that kind.
STEPS = {"prepare": 4, "report": 4, "install": 6, "installed": 4, "refuse": 1, "seek": 1,
         "present": 1, "offer": 2, "suspects": 2, "leave": 1, "fetch": 2, "held": 3, "data": 1,
         "highest": 1}


def faults(rng: Random, names: str, settings: Settings, duration: int,
           suspicion: int) -> list[Action]:
    """Draw the faults of FAULTS: each kind in about half of all runs, and then up to
    three of it. `suspicion` is the time after which a silent member is suspected."""
    def stop(rng: Random, names: str, at: int, duration: int) -> list[Action]:
        """Pause a member, or whoever coordinates; sometimes for so long that it is
        taken for dead."""
        (drawn,) = pause(rng, names, at, duration)
        return [Action(at, "pause", some(rng, names),
                       rng.choice([drawn.value, rng.randrange(1, 3 * suspicion)]))]

    actions: list[Action] = []
    for name, kind in zip(FAULTS, (death, partition, stop, slow, exclusion, leaving, jump),
                          strict=True):
        drawn = rng.randint(1, 3) if rng.random() < 0.5 else 0
        for _ in range(pick(getattr(settings, name), drawn)):
            actions += kind(rng, names, rng.randrange(duration), duration)
    return actions


def death(rng: Random, names: str, at: int, duration: int) -> list[Action]:
    """Let a member die, at once or at its next step of some kind. Most come back."""
    who = some(rng, names)
    if rng.random() < 0.4:
        action = Action(at, "crash", who)
    else:
        kind = rng.choices(list(STEPS), list(STEPS.values()))[0]
        who = rng.choice([who, ""])
        how = kind, rng.random() < 0.5, rng.choice([1, 1, 1, 2, 5])
        action = Action(at, "crash at", who, how)
    back = at + rng.choice([10 * MS, 100 * MS, rng.randrange(duration)])
    comes_back = rng.random() < 0.7
    return [action, *([Action(back, "restart", "", {"resumes": False, "moves": rng.random() < 0.4})]
                      if comes_back else ())]


def some(rng: Random, names: str) -> str:
    """Draw a member, or whoever coordinates then."""
    return rng.choice(names) if rng.random() < 0.6 else COORDINATOR


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


def slow_observers(rng: Random, starts: Mapping[str, Start], duration: int) -> list[Action]:
    """Make the applications of observers slow, or let them finish nothing at all, until
    the end of the run."""
    return [Action(rng.randrange(duration // 2), "slow", name,
                   (rng.choice([0, 1 * MS, 20 * MS, None]), rng.choice([1, 10, 65_536])))
            for name, start in starts.items() if start.observes]


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


def outages(rng: Random, names: str, settings: Settings, duration: int,
            suspicion: int) -> list[Action]:
    """Break connections that come again late, as if the first dial had got lost, but
    before anybody is silent for too long: nobody may be excluded for it."""
    pairs = list(combinations(names, 2))
    wanted = min(pick(settings.outages, rng.choice([0, 0, 1, 3, 10])), len(pairs))
    return [Action(rng.randrange(duration), "break for",
                   value=[*pair, rng.randrange(1, suspicion // 2)])
            for pair in rng.sample(pairs, wanted)]


def switches(rng: Random, names: str, settings: Settings, duration: int) -> list[Action]:
    """Switch the retransmission of NAKACK2 off and on, at one member or another."""
    return [Action(rng.randrange(duration), "interval", rng.choice(names), rng.choice([0, 3]))
            for _ in range(settings.switches or 0)]


def forged_refusals(rng: Random, names: str, duration: int) -> list[Action]:
    """Let members hear that others have refused a datagram, which is not true: anybody
    can forge that. Nobody may be excluded for it."""
    wanted = rng.choice([0, 0, 1, 3, 10]) if len(names) > 1 else 0
    pairs = [rng.sample(names, 2) for _ in range(wanted)]
    return [Action(rng.randrange(duration), "refuse", by, who) for by, who in pairs]
