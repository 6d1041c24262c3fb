"""Draw the plan of a run from its seed: the group, its network, its load and its
faults.

Members start together or one after the other. They crash, some of them at a chosen step
of an agreement; they come back, leave, pause and are cut off from each other, while all
of them send.

Every seed draws the size of the group and of the windows, the intervals, and some of
the possible faults with their strengths. So runs differ in kind, and not only in
details. Small windows and short streams put every boundary within reach. What is set in
Settings is not drawn.
"""

from random import Random
from typing import Any

import msgspec

from ringcast.config import configure
from ringcast.sim.network import MS
from ringcast.sim.runs.faults import (
    LONG_ABSENCE,
    SECOND,
    breaks,
    faults,
    forged_refusals,
    outages,
    slow_observers,
    switches,
)
from ringcast.sim.runs.lasting import lasting_cuts
from ringcast.sim.runs.load import large_messages, multicast_load, oob_messages, unicast_load
from ringcast.sim.runs.plan import Plan, Start
from ringcast.sim.runs.settings import NAMES, Settings, pick
from ringcast.sim.runs.steady import steady_plan
from ringcast.stacks import STACKS

# Offsets and counters: some are so high that numbers of 31 to 64 bits wrap.
NEAR_WRAPS = [0, 0, 0, 2**31 - 20, 2**32 - 20, 2**53 - 20, 2**63 - 20, 2**64 - 20]
# The highest rates that are drawn.
STRENGTHS = {"loss": 0.3, "burst": 0.02, "duplicate": 0.2, "reorder": 0.1, "corrupt": 0.05,
             "truncate": 0.02}
MOST_DELAY = 5 * MS         # of a network in which a member that is probed answers in time


def draw(seed: int, settings: Settings) -> Plan:
    """Return the plan of a seed."""
    settings = settings.of_seed(seed)
    if settings.steady is not None:
        return steady_plan(seed, settings)
    stack = STACKS[settings.stack]
    rng = Random(f"{seed} forming")
    names = NAMES[:pick(settings.members, rng.choice([2, 3, 3, 4, 5, 7, 9, 12]))]
    options = stack_options(rng) | unicast_options(rng)
    options["xmit_interval"] = rng.choice([1, 3, 3, 10, 50])
    if stack.votes:
        options = nakack2_options(rng, settings.stack) | options
        options["discard_delivered_msgs"] = False
    longest = int(pick(settings.delay, rng.choice([0.2, 1, 5, 20])) * MS)
    options |= membership_options(rng, len(names), longest)
    network: dict[str, Any] = {name: pick(getattr(settings, name), sometimes(rng, most))
                               for name, most in STRENGTHS.items()}
    framed = wire(rng, settings)
    framed |= send_buffer(Random(f"{seed} send buffer"), settings, framed)
    network = {"delay": (min(50_000, longest), longest)} | (
        {} if stack.is_lossless else network | framed)
    options |= partition_options(Random(f"{seed} primary"), len(names), given_options(settings))
    suspicion = int(options["suspect_timeout"] * MS)
    if (settings.sealed or settings.trusted) and (of_keys := Random(f"{seed} keys")).random() < 0.5:
        options = {"rekey_interval": of_keys.uniform(0.2, 2.0)} | options
    duration = int(pick(settings.duration, min(6.0, rng.uniform(4, 16) * suspicion / SECOND + 0.5))
                   * SECOND)
    last = rng.choice([0, 5 * MS, 200 * MS, duration // 2])     # all have started by then
    publisher = rng.choice(names) if len(names) > 2 and rng.random() < 0.15 else ""
    replicas = draw_replicas(Random(f"{seed} state"), names, options)
    replicas.pop(publisher, None)
    if replicas:
        settings = msgspec.structs.replace(settings, splits=0)
    starts = {name: Start(rng.randrange(last + 1), rng.choice(NEAR_WRAPS), draw_clock(rng),
                          name != publisher, rng.choice(NEAR_WRAPS), replicas.get(name, ""))
              for name in names}
    draw_late(Random(f"{seed} late"), starts, options, settings)
    draw_durable(Random(f"{seed} durable"), starts, options, settings)
    draw_least(Random(f"{seed} least"), starts, options)
    draw_observers(of_observers := Random(f"{seed} observers"), starts, options, settings)
    all_come_back = any("min_members" in each for each in (options, *(
        start.options for start in starts.values())))
    actions = multicast_load(rng, names, settings, options, duration)
    actions += unicast_load(rng, names, settings, duration)
    actions += large_messages(rng, names, settings, duration)
    actions += oob_messages(Random(f"{seed} oob"), names, settings, duration)
    actions += faults(rng, names, settings, duration, suspicion)
    actions += slow_observers(of_observers, starts, duration)
    if stack.is_lossless:
        actions += breaks(rng, names, settings, duration)
    if stack.may_skip_retransmission:
        actions += switches(Random(f"{seed} switches"), names, settings, duration)
    late = outages(Random(f"{seed} outages"), names, settings, duration, suspicion) if (
        stack.is_lossless) else []
    actions += late
    of_refusals = Random(f"{seed} refusals")
    refuses = of_refusals.random() < 0.5
    if refuses and longest <= MOST_DELAY and not late:      # who is refused must be able to answer
        actions += forged_refusals(of_refusals, names, duration)
    return Plan(
        seed=seed, names=names, stack=settings.stack, options=options, network=network,
        starts=starts, duration=duration, refuses=refuses, sealed=settings.sealed,
        trusted=settings.trusted,
        lasting=lasting_cuts(Random(f"{seed} lasting"), names) if settings.lasting else None,
        threads=pick(settings.threads, rng.choice([0, 0, 0, 1, 2])),
        between=settings.between or 0,
        socket_bytes=pick(settings.socket_buffer, rng.choice([16 << 20, 1 << 20, 200_000])),
        turn_time=rng.choice([0, 10_000, 50_000]),
        actions=sorted((action for action in actions if action.at < duration),
                       key=lambda action: action.at),
        comebacks={name: rng.random() < 0.6 or all_come_back or bool(settings.observers)
                   for name in names})


def given_options(settings: Settings) -> dict[str, Any]:
    """Return the options of the stack that are set, as numbers where they are numbers:
    a command has them as text."""
    config = configure(settings.options, settings.stack)
    return {name: getattr(config, name) for name in settings.options}


def sometimes(rng: Random, most: float) -> float:
    """Draw a rate up to `most` in half of all runs, else 0."""
    strength = rng.random() * most
    return strength if rng.random() < 0.5 else 0.0


def draw_clock(rng: Random) -> tuple[int, int]:
    """Draw what a clock shows at first, and its ticks in 1000 nanoseconds."""
    base = rng.choice([0, 0, (1 << 32) * MS - SECOND, rng.getrandbits(55)])
    return base, rng.choice([1000, 1000, 900, 1100, 1001])


def stack_options(rng: Random) -> dict[str, Any]:
    """Draw options that all stacks have."""
    options = {"capacity": rng.choice([1, 2, 3, 8, 33, 64, 1000, 32_768]),
               "xmit_interval": rng.choice(range(6)),       # which is drawn anew below
               "ack_threshold": rng.choice([1, 8, 100, 4096]),
               "max_bundle_size": rng.choice([512, 1500, 9000, 60_000]),
               "max_bytes": rng.choice([2000, 100_000, 8 << 20])}
    rng.choice(range(4))            # an option that is gone: kept seeds stay what they were
    return options


def unicast_options(rng: Random) -> dict[str, Any]:
    """Draw options of the connections for messages to single members."""
    least = rng.choice([0.1, 0.2, 5, 50])
    return {"ack_min_interval": least,
            "ack_max_interval": rng.choice([least, 2 * least, 10 * least]),
            "sync_min_interval": rng.choice([1, 10, 100]),
            "conn_expiry_timeout": rng.choice([0, 30, 100, 500, 120_000]),
            "conn_close_timeout": rng.choice([5, 50, 500, 5000])}


def nakack2_options(rng: Random, stack: str) -> dict[str, Any]:
    """Draw options of NAKACK2 and STABLE: either window, either way to discard, short
    and long rounds."""
    options = {"use_ring_buffer": rng.random() < 0.5, "discard_delivered_msgs": rng.random() < 0.7,
               "stable_interval": rng.choice([1, 5, 20, 20, 200]),
               "stable_bytes": rng.choice([1, 1000, 1 << 20]),
               "become_server_queue_size": rng.choice([1, 10, 50])}
    return options | ({"gap_timeout": 3_600_000.0} if STACKS[stack].is_lossless else {})


def membership_options(rng: Random, members: int, delay: int) -> dict[str, Any]:
    """Draw the intervals of the membership layer. A round trip is short beside the
    time after which a member is suspected, else no view would last."""
    heartbeat = rng.choice([10, 20, 50] if members < 6 else [20, 50])
    return {"heartbeat_interval": heartbeat,
            "suspect_timeout": max(heartbeat * rng.choice([5, 10, 20]), 20 * delay / MS, 60),
            "seek_interval": rng.choice([5, 20, 50]), "form_margin": rng.choice([20, 100, 300])}


def partition_options(rng: Random, members: int, given: dict[str, Any]) -> dict[str, Any]:
    """Draw what goes on when the group comes apart, and how many members form one: so
    many that no two groups form apart, if only the primary part goes on."""
    drawn = {"partition": "primary"} if rng.random() < 0.35 else {}
    if (drawn | given).get("partition") != "primary":
        return given
    majority = members // 2 + 1
    return drawn | {"min_members": rng.choice([majority, majority, members])} | given


def draw_late(rng: Random, starts: dict[str, Start], options: dict[str, Any],
              settings: Settings) -> None:
    """Let as many members as were asked for, but not all, start about when the others
    have waited for form_margin."""
    late = rng.sample([*starts], min(settings.late or 0, len(starts) - 1))
    last = max(start.at for name, start in starts.items() if name not in late)
    for name in late:
        at = last + int(rng.uniform(0.7, 1.3) * options["form_margin"] * MS)
        starts[name] = msgspec.structs.replace(starts[name], at=at)


def draw_least(rng: Random, starts: dict[str, Start], options: dict[str, Any]) -> None:
    """Draw the `min_members` of each member, in many runs in which it is not set. For
    one there are always enough, for others never. A replica would wait for them without
    a state."""
    if "min_members" in options or any(start.replica for start in starts.values()):
        return
    if rng.random() < 0.5:
        content = rng.choice([*starts])
        for name, start in starts.items():
            least = 1 if name == content else rng.choice([1, len(starts), len(starts) + 1])
            starts[name] = msgspec.structs.replace(start, options={"min_members": least})


def draw_observers(rng: Random, starts: dict[str, Start], options: dict[str, Any],
                   settings: Settings) -> None:
    """Let as many members observe as were asked for, but not all. The others must be
    enough to form a group."""
    receivers = [name for name, start in starts.items()
                 if start.receiving and not start.replica and not start.durable]
    most = min(settings.observers or 0, len(receivers), len(starts) - 1)
    for name in rng.sample(receivers, most):
        starts[name] = msgspec.structs.replace(starts[name], observes=True)
    if most and "min_members" in options:
        options["min_members"] = (len(starts) - most) // 2 + 1
    elif most:
        for name, start in starts.items():
            starts[name] = msgspec.structs.replace(start, options={})


def wire(rng: Random, settings: Settings) -> dict[str, Any]:
    """Draw a wire that carries frames, with a bandwidth and a queue, in some runs."""
    mtu = pick(settings.mtu, rng.choice([0, 0, 0, 1500, 9000]))
    bandwidth = rng.choice([0, 0, 1_250_000, 12_500_000, 125_000_000])
    return {"mtu": mtu, "bandwidth": bandwidth,
            "queue": rng.choice([50_000, 500_000])} if mtu else {}


def send_buffer(rng: Random, settings: Settings, framed: dict[str, Any]) -> dict[str, Any]:
    """Draw the send buffer of all members, and a wire that is slow enough for it, in
    some runs. Two of the largest datagrams find room."""
    nbytes = pick(settings.send_buffer, rng.choice([0, 0, 140_000, 500_000]))
    slow = framed.get("bandwidth") or rng.choice([1_250_000, 12_500_000])
    return {"send_buffer": nbytes, "bandwidth": slow} if nbytes else {}


def draw_replicas(rng: Random, names: str, options: dict[str, Any]) -> dict[str, str]:
    """Let most members have a state, in half of all runs; return their roles."""
    if rng.random() < 0.5:
        return {}
    options["state_backlog"] = rng.choice([1 << 30, 1 << 30, 300_000])
    return {name: rng.choices(["both", "takes", "gives"], [20, 2, 1])[0]
            for name in names if rng.random() < 0.9}


def draw_durable(rng: Random, starts: dict[str, Start], options: dict[str, Any],
                 settings: Settings) -> None:
    """Let some members be durable, in a third of all runs. They are waited for until
    they come back, or only for a short time. Replicas are not: see Channel."""
    receivers = [name for name, start in starts.items() if start.receiving and not start.replica]
    wanted = pick(settings.durable, rng.choice([0, 0, 0, 0, 1, 2]))
    if wanted and receivers:
        options.setdefault("absence", rng.choice([0.1, 1.0, LONG_ABSENCE, LONG_ABSENCE]))
        for name in rng.sample(receivers, min(wanted, len(receivers))):
            starts[name] = msgspec.structs.replace(starts[name], durable=True)
