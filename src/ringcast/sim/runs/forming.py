"""Draw the plan of a run in which the group forms itself.

Members start together or one after the other. They crash, some of them at a chosen step
of an agreement; they come back, leave, pause and are cut off from each other, while all
of them send.
"""

from random import Random
from typing import Any

import msgspec

from ringcast.sim.network import MS
from ringcast.sim.runs.draw import (
    NEAR_WRAPS,
    STRENGTHS,
    draw_clock,
    nakack2_options,
    sometimes,
    stack_options,
    unicast_options,
    wire,
)
from ringcast.sim.runs.faults import (
    SECOND,
    breaks,
    exclusion,
    jump,
    leaving,
    partition,
    pause,
    slow,
)
from ringcast.sim.runs.load import large_messages, multicast_load, unicast_load
from ringcast.sim.runs.plan import COORDINATOR, Action, Plan, Start
from ringcast.sim.runs.settings import FAULTS, NAMES, Settings, pick
from ringcast.stacks import STACKS

LONG_ABSENCE = 3_600.0                  # seconds: a member comes back before

# Datagrams at which a member may die, and how often it is that kind.
STEPS = {"prepare": 4, "report": 4, "install": 6, "installed": 4, "refuse": 1, "seek": 1,
         "present": 1, "offer": 2, "suspects": 2, "leave": 1, "fetch": 2, "held": 3, "data": 1,
         "highest": 1}
MOST_DELAY = 5 * MS         # of a network in which a member that is probed answers in time


def forming_plan(seed: int, settings: Settings) -> Plan:
    """Return the plan of a seed."""
    stack = STACKS[settings.stack]
    rng = Random(f"{seed} forming")
    names = NAMES[:pick(settings.members, rng.choice([2, 3, 3, 4, 5, 7, 9, 12]))]
    options = stack_options(rng) | unicast_options(rng)
    del options["hello_interval"]
    options["xmit_interval"] = rng.choice([1, 3, 3, 10, 50])
    if stack.votes:
        options = nakack2_options(rng, settings.stack) | options
        options["discard_delivered_msgs"] = False
    longest = int(pick(settings.delay, rng.choice([0.2, 1, 5, 20])) * MS)
    options |= membership_options(rng, len(names), longest)
    network: dict[str, Any] = {name: pick(getattr(settings, name), sometimes(rng, most))
                               for name, most in STRENGTHS.items()}
    framed = wire(rng, settings)
    network = {"delay": (min(50_000, longest), longest)} | (
        {} if stack.is_lossless else network | framed)
    options |= partition_options(Random(f"{seed} primary"), len(names)) | settings.options
    suspicion = int(options["suspect_timeout"] * MS)
    duration = int(pick(settings.duration, min(6.0, rng.uniform(4, 16) * suspicion / SECOND + 0.5))
                   * SECOND)
    last = rng.choice([0, 5 * MS, 200 * MS, duration // 2])     # all have started by then
    publisher = rng.choice(names) if len(names) > 2 and rng.random() < 0.15 else ""
    replicas = draw_replicas(Random(f"{seed} state"), names, options)
    replicas.pop(publisher, None)
    if replicas:
        settings = msgspec.structs.replace(settings, splits=0)
    starts = {name: Start(rng.randrange(last + 1), rng.choice(NEAR_WRAPS), draw_clock(rng),
                          name != publisher, rng.choice(NEAR_WRAPS), replicas.get(name, {}))
              for name in names}
    draw_durable(Random(f"{seed} durable"), starts, options, settings)
    actions = multicast_load(rng, names, settings, options, duration)
    actions += unicast_load(rng, names, settings, duration)
    actions += large_messages(rng, names, settings, duration)
    actions += forming_faults(rng, names, settings, duration, suspicion)
    if stack.is_lossless:
        actions += breaks(rng, names, settings, duration)
    of_refusals = Random(f"{seed} refusals")
    refuses = of_refusals.random() < 0.5
    if refuses and longest <= MOST_DELAY:
        actions += forged_refusals(of_refusals, names, duration)
    return Plan(
        seed=seed, names=names, stack=settings.stack, options=options, network=network,
        starts=starts, duration=duration, forming=True, refuses=refuses,
        threads=pick(settings.threads, rng.choice([0, 0, 0, 1, 2])),
        socket_bytes=rng.choice([16 << 20, 1 << 20, 200_000]),
        turn_time=rng.choice([0, 10_000, 50_000]),
        actions=sorted((action for action in actions if action.at < duration),
                       key=lambda action: action.at),
        comebacks={name: rng.random() < 0.6 or options.get("partition") == "primary"
                   for name in names})


def partition_options(rng: Random, members: int) -> dict[str, Any]:
    """Draw what goes on when the group comes apart, and how many members form one: so
    many that no two groups form apart, if only the primary part goes on."""
    majority = members // 2 + 1
    if rng.random() < 0.35:
        return {"partition": "primary", "min_members": rng.choice([majority, majority, members])}
    return {}


def draw_replicas(rng: Random, names: str, options: dict[str, Any]) -> dict[str, Any]:
    """Let most members have a state, in half of all runs; return their options."""
    if rng.random() < 0.5:
        return {}
    options["state_backlog"] = rng.choice([1 << 30, 1 << 30, 300_000])
    return {name: {"replica": rng.choices(["both", "takes", "gives"], [20, 2, 1])[0]}
            for name in names if rng.random() < 0.9}


def membership_options(rng: Random, members: int, delay: int) -> dict[str, Any]:
    """Draw the intervals of the membership layer. A round trip is short beside the
    time after which a member is suspected, else no view would last."""
    heartbeat = rng.choice([10, 20, 50] if members < 6 else [20, 50])
    return {"heartbeat_interval": heartbeat,
            "suspect_timeout": max(heartbeat * rng.choice([5, 10, 20]), 20 * delay / MS, 60),
            "seek_interval": rng.choice([5, 20, 50]), "form_margin": rng.choice([20, 100, 300])}


def draw_durable(rng: Random, starts: dict[str, Start], options: dict[str, Any],
                 settings: Settings) -> None:
    """Let some members be durable, in a third of all runs. They are waited for until
    they come back, or only for a short time. Replicas are not: see Channel."""
    receivers = [name for name, start in starts.items() if start.receiving and not start.options]
    wanted = pick(settings.durable, rng.choice([0, 0, 0, 0, 1, 2]))
    if wanted and receivers:
        options.setdefault("absence", rng.choice([0.1, 1.0, LONG_ABSENCE, LONG_ABSENCE]))
        for name in rng.sample(receivers, min(wanted, len(receivers))):
            starts[name] = msgspec.structs.replace(starts[name], durable=True)


def forming_faults(rng: Random, names: str, settings: Settings, duration: int,
                   suspicion: int) -> list[Action]:
    """Draw the faults: each kind in about half of all runs, and then up to three of
    it."""
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


def forged_refusals(rng: Random, names: str, duration: int) -> list[Action]:
    """Let members hear that others have refused a datagram, which is not true: anybody
    can forge that. Nobody may be excluded for it."""
    wanted = rng.choice([0, 0, 1, 3, 10]) if len(names) > 1 else 0
    pairs = [rng.sample(names, 2) for _ in range(wanted)]
    return [Action(rng.randrange(duration), "refuse", by, who) for by, who in pairs]


def some(rng: Random, names: str) -> str:
    """Draw a member, or whoever coordinates then."""
    return rng.choice(names) if rng.random() < 0.6 else COORDINATOR
