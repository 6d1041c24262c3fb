"""Draw the plan of a run from its seed: the group, its network, its load and its
faults.

Every seed draws the size of the group and of the windows, the intervals, and some of
the possible faults with their strengths. So runs differ in kind, and not only in
details. Small windows and short streams put every boundary within reach. What is set in
Settings is not drawn.
"""

from random import Random
from typing import Any

import msgspec

from ringcast.config import configure, nanoseconds
from ringcast.sim.network import MS
from ringcast.sim.runs.faults import SECOND, breaks, faults, joins, returns, switches
from ringcast.sim.runs.load import large_messages, multicast_load, unicast_load
from ringcast.sim.runs.plan import Plan, Start
from ringcast.sim.runs.settings import NAMES, Settings, pick
from ringcast.sim.runs.steady import steady_plan
from ringcast.stacks import STACKS

# Offsets and counters: some are so high that numbers of 31 to 64 bits wrap.
NEAR_WRAPS = [0, 0, 0, 2**31 - 20, 2**32 - 20, 2**53 - 20, 2**63 - 20, 2**64 - 20]
# The highest rates that are drawn.
STRENGTHS = {"loss": 0.3, "burst": 0.02, "duplicate": 0.2, "reorder": 0.1, "corrupt": 0.05,
             "truncate": 0.02}


def draw(seed: int, settings: Settings) -> Plan:
    """Return the plan of a seed."""
    if settings.steady is not None:
        return steady_plan(seed, settings)
    if settings.forming:
        from ringcast.sim.runs.forming import forming_plan  # which draws with this file
        return forming_plan(seed, settings)
    stack = STACKS[settings.stack]
    rng = Random(f"{seed} plan")
    names = NAMES[:pick(settings.members, rng.choice([2, 3, 3, 4, 5, 7]))]
    options = stack_options(rng) | settings.options
    interval = nanoseconds(configure(options, settings.stack).scan_interval)
    seconds = min(10.0, max(0.8, rng.uniform(80, 300) * interval / SECOND))
    duration = int(pick(settings.duration, seconds) * SECOND)
    network: dict[str, Any] = {name: pick(getattr(settings, name), sometimes(rng, most))
                               for name, most in STRENGTHS.items()}
    longest = int(pick(settings.delay, rng.choice([0.2, 1, 5, 30])) * MS)
    network["delay"] = (min(50_000, longest), longest)
    publisher = rng.choice(names) if len(names) > 2 and rng.random() < 0.15 else ""
    # Each part that was added later has a random source of its own: it changes nothing
    # else of a seed.
    of_unicast = Random(f"{seed} unicast")
    starts = {name: Start(rng.randrange(200 * MS), rng.choice(NEAR_WRAPS), draw_clock(rng),
                          name != publisher, of_unicast.choice(NEAR_WRAPS)) for name in names}
    options = unicast_options(of_unicast) | options
    actions = [action for action in multicast_load(rng, names, settings, options, duration)
               + faults(rng, names, settings, duration)
               + unicast_load(of_unicast, names, settings, duration) if action.at < duration]
    if stack.votes:
        drawn = nakack2_options(Random(f"{seed} nakack2"), settings.stack)
        options = drawn | options | settings.options
    if stack.is_lossless:
        network = {"delay": network["delay"]}
        of_links = Random(f"{seed} links")
        actions += breaks(of_links, names, settings, duration)
        actions += switches(of_links, names, settings, options, duration)
        if stack.may_skip_retransmission:
            starts = {name: msgspec.structs.replace(start, options=own_windows(of_links, settings))
                      for name, start in starts.items()}
    else:
        network |= wire(Random(f"{seed} wire"), settings)
    actions = returns(Random(f"{seed} returns"), names, settings, duration, starts, actions)
    actions += large_messages(Random(f"{seed} large"), names, settings, duration)
    of_threads = Random(f"{seed} bundling")
    threads = pick(settings.threads, of_threads.choice([0, 0, 1, 2, 4]))
    if threads:
        options = {"bundle_delay": of_threads.choice([0.02, 0.3, 0.3, 1, 5, 30, 30])} | options
        few_receivers(of_threads, names, starts)
    actions += joins(of_threads, names, settings, duration, starts, longest, bool(threads))
    return Plan(
        seed=seed, names=names, stack=settings.stack, options=options, network=network,
        starts=starts, duration=duration, threads=threads,
        socket_bytes=rng.choice([16 << 20, 1 << 20, 200_000, 70_000]),
        turn_time=rng.choice([0, 10_000, 50_000]),
        actions=sorted(actions, key=lambda action: action.at),
        comebacks={name: rng.random() < 0.6 for name in names})


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
    return {"capacity": rng.choice([1, 2, 3, 8, 33, 64, 1000, 32_768]),
            "xmit_interval": rng.choice([1, 3, 3, 10, 50, 200]),
            "ack_threshold": rng.choice([1, 8, 100, 4096]),
            "max_bundle_size": rng.choice([512, 1500, 9000, 60_000]),
            "max_bytes": rng.choice([2000, 100_000, 8 << 20]),
            "hello_interval": rng.choice([20, 100, 100, 500])}


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


def own_windows(rng: Random, settings: Settings) -> dict[str, Any]:
    """Draw a smaller or larger window for one member, in some runs: then a receiver has
    no room for all that its sender may send."""
    own = {"capacity": rng.choice([1, 2, 8, 33, 1000]),
           "max_bytes": rng.choice([2000, 100_000])} if rng.random() < 0.3 else {}
    return {key: value for key, value in own.items() if key not in settings.options}


def wire(rng: Random, settings: Settings) -> dict[str, Any]:
    """Draw a wire that carries frames, with a bandwidth and a queue, in some runs."""
    mtu = pick(settings.mtu, rng.choice([0, 0, 0, 1500, 9000]))
    bandwidth = rng.choice([0, 0, 1_250_000, 12_500_000, 125_000_000])
    return {"mtu": mtu, "bandwidth": bandwidth,
            "queue": rng.choice([50_000, 500_000])} if mtu else {}


def few_receivers(rng: Random, names: str, starts: dict[str, Start]) -> None:
    """Let only one or two members receive messages, in some groups. Then nobody but the
    sender itself may have to acknowledge a message."""
    few = min(len(names), rng.choice([1, 2, 2]))
    receivers = rng.sample(names, few) if rng.random() < 0.4 else names
    for name in names:
        if name not in receivers:
            starts[name] = msgspec.structs.replace(starts[name], receiving=False)
