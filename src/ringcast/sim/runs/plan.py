"""What happens in one run: the group, its network, its load and its faults, all drawn
from the seed.

Every seed draws the size of the group and of the windows, the intervals, and a part of
the possible faults with their strengths, so that runs differ in kind and not only in
their dice; small windows and short streams put every boundary within reach. What is set
in Settings is not drawn. Actions are what happens at a certain time; the first N of
them are a prefix of the run.

A run with a steady load is there to measure (ringcast.sim.runs.measure): nothing of it
is drawn, and no fault is in it that was not asked for. Its network carries `bandwidth`
bytes a second out of and into each member and takes a fixed time for it; its seed
decides which datagrams are lost, and when the faults come that were asked for.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

from ringcast.config import configure, milliseconds
from ringcast.errors import ConfigError
from ringcast.sim.network import MS, Link
from ringcast.stacks import NETWORKED, STACKS

NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
SECOND = 1000 * MS
TICK = 1 * MS                   # a steady load comes in portions of this length
TURN = 10_000                   # nanoseconds that a member is busy with a turn, under a steady load
STEADY: dict[str, Any] = {      # of a run with a steady load, unless something else is said
    "members": 3, "senders": 1, "size": 1000, "duration": 1.0, "delay": 0.2, "bandwidth": 125.0}
# where arithmetic may go wrong
NEAR_WRAPS = [0, 0, 0, 2**31 - 20, 2**32 - 20, 2**53 - 20, 2**63 - 20, 2**64 - 20]


FAULTS = ("crashes", "partitions", "pauses", "slow", "exclusions", "leaves", "jumps")
# at most, if any
STRENGTHS = {"loss": 0.3, "burst": 0.02, "duplicate": 0.2, "reorder": 0.1, "corrupt": 0.05,
             "truncate": 0.02}


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the user fixes for all seeds; None is drawn for each. Rates are per datagram
    and receiver, numbers of faults per run."""

    members: int | None = None
    duration: float | None = None   # simulated seconds with load and faults; then the network heals
    messages: int | None = None     # that all applications send together
    size: int | None = None         # bytes of a message, at least
    loss: float | None = None
    burst: float | None = None
    duplicate: float | None = None
    reorder: float | None = None
    corrupt: float | None = None
    truncate: float | None = None
    delay: float | None = None          # longest, in milliseconds
    crashes: int | None = None
    partitions: int | None = None
    pauses: int | None = None
    slow: int | None = None             # receivers that are slow for a while
    exclusions: int | None = None       # of members that may well be alive
    leaves: int | None = None
    jumps: int | None = None        # of clocks
    unicast: int | None = None      # messages that are sent to single members, all together
    large: int | None = None        # messages to everybody that fit no datagram
    splits: int | None = None       # times that one member's view lacks another, but not the other
                                    # way round
    stack: str = "mcast-udp"        # a channel's
    breaks: int | None = None       # of connections, where the stack has some
    returns: int | None = None      # times that a member dies and comes back as the same
                                    # incarnation
    threads: int | None = None      # of each application that send to one destination; 0: a message
                                    # leaves as soon as it is sent
    joins: int | None = None        # times that a member leaves and joins again while others send
    steady: float | None = None     # messages a simulated second that each sender has to send all
                                    # the time; 0: what finds room
    senders: int | None = None      # of a steady load
    bandwidth: float | None = None  # with a steady load: megabytes a second that a member can send,
                                    # and receive
    mtu: int | None = None          # bytes of a frame; 0: datagrams travel whole
    options: dict[str, Any] = {}    # properties of the stack

    def check(self) -> None:
        """ConfigError for what cannot be simulated."""
        if self.members is not None and not 1 <= self.members <= len(NAMES):
            raise ConfigError(f"a simulated group has 1 to {len(NAMES)} members, not {self.members}")
        for name in ("loss", "burst", "duplicate", "reorder", "corrupt", "truncate"):
            rate = getattr(self, name)
            if rate is not None and not 0 <= rate < 1:
                raise ConfigError(f"{name} is a probability of 0 or more and less than 1, not {rate}")
        for name in (*FAULTS, "messages", "size", "delay", "unicast", "large", "splits", "breaks",
                     "returns",
                     "threads", "joins", "steady"):
            number = getattr(self, name)
            if number is not None and number < 0:
                raise ConfigError(f"{name} cannot be {number}")
        if self.duration is not None and not 0 < self.duration <= 86_400:
            raise ConfigError(f"duration is simulated seconds, more than 0 and at most a day, not {self.duration}")
        if self.size is not None and self.size > 60_000:
            raise ConfigError(f"a message has at most 60000 bytes here, not {self.size}")
        if "trace" in self.options:
            raise ConfigError("trace is not drawn or set for many runs; give --seed N --trace DIR for one")
        if self.stack not in NETWORKED:
            raise ConfigError(f"there is no stack {self.stack!r} to simulate; choose one of {', '.join(NETWORKED)}")
        if self.mtu and not 1100 <= self.mtu <= 65_535:
            raise ConfigError(f"mtu is 0, or bytes of a frame from 1100 to 65535, not {self.mtu}")
        for name in STRENGTHS:
            if STACKS[self.stack].is_lossless and getattr(self, name):
                raise ConfigError(f"{name} is for datagrams; the connections of {self.stack} lose nothing, but they break: give breaks")
        if self.breaks and not STACKS[self.stack].is_lossless:
            raise ConfigError(f"{self.stack} has no connections that could break; leave out breaks")
        configure(self.options, self.stack)
        self._check_steady()

    def _check_steady(self) -> None:
        """ConfigError for a steady load that cannot be, and for what is said of it when
        there is none."""
        if self.steady is None:
            for name in ("senders", "bandwidth"):
                if getattr(self, name) is not None:
                    raise ConfigError(f"{name} is for a steady load; give steady, messages a second, or 0 for as many as find room")
            return
        if self.steady > 10_000_000:
            raise ConfigError(f"steady is at most 10000000 messages a second, not {self.steady:g}; give 0 for as many as find room")
        members, senders = (pick(getattr(self, name), STEADY[name])
                            for name in ("members", "senders"))
        if members < 2:
            raise ConfigError("a steady load is measured at other members than its sender; give 2 members or more")
        if not 1 <= senders <= members:
            raise ConfigError(f"senders is from 1 to the number of members, {members}, not {senders}")
        if self.messages is not None:
            raise ConfigError("a steady load has no number of messages; give duration, and steady, messages a second")
        if self.mtu:
            raise ConfigError("under a steady load datagrams travel whole; leave out mtu")
        if self.returns:
            raise ConfigError("under a steady load nobody comes back as the same incarnation; leave out returns")
        if self.bandwidth is not None and not 0.1 <= self.bandwidth <= 10_000:
            raise ConfigError(f"bandwidth is megabytes a second, from 0.1 to 10000, not {self.bandwidth:g}")


class Action(msgspec.Struct, frozen=True):
    """Something that happens at `at` (nanoseconds) to the member `who`, or to the
    network."""

    at: int
    what: str
    who: str = ""
    value: Any = None

    def __str__(self) -> str:
        value = " ".join(f"{source}>{target}" for source,
                         target in self.value) if self.what == "cut" else self.value
        return f"{self.at / MS:12.3f} ms  {self.what} {self.who} {'' if value is None else value}".rstrip()


class Start(msgspec.Struct, frozen=True):
    """How a member begins."""

    at: int
    offset: int                         # the seqno before its first message
    clock: tuple[int, int]              # what its clock shows at first, and ticks of it in 1000
    receiving: bool
    counters: int                 # what stands before its first conn-id and its first timestamp
    options: dict[str, Any] = {}  # of its stack, where they are not those of all
    returns: bool = False         # when it is dead in the end, it comes back as the same
                                  # incarnation


class Plan(msgspec.Struct, frozen=True):
    """One run, as the seed has it."""

    seed: int
    names: str
    stack: str
    options: dict[str, Any]             # of the stack
    socket_bytes: int
    turn_time: int
    network: dict[str, Any]
    starts: dict[str, Start]
    duration: int
    actions: list[Action]
    ends: dict[str, bool]                # whether a member that is dead in the end comes back; else
                                         # it is excluded
    load: tuple[int, int] | None = None  # from when to when a steady load is measured
    threads: int = 0                     # see Member


def draw(seed: int, settings: Settings) -> Plan:
    """The plan of a seed."""
    if settings.steady is not None:
        return steady_plan(seed, settings)
    rng = Random(f"{seed} plan")
    names = NAMES[:pick(settings.members, rng.choice([2, 3, 3, 4, 5, 7]))]
    options = stack_options(rng) | settings.options
    interval = milliseconds(configure(options, settings.stack).scan_interval)
    duration = int(pick(settings.duration, min(10.0, max(0.8, rng.uniform(80, 300) * interval / SECOND))) * SECOND)
    network: dict[str, Any] = {name: pick(getattr(settings, name), sometimes(rng, most)) for name,
                               most in STRENGTHS.items()}
    longest = int(pick(settings.delay, rng.choice([0.2, 1, 5, 30])) * MS)
    network["delay"] = (min(50_000, longest), longest)
    publisher = rng.choice(names) if len(names) > 2 and rng.random() < 0.15 else ""
    of_unicast = Random(f"{seed} unicast")  # a source of its own: it changes nothing else of the
                                            # seed
    starts = {name: Start(rng.randrange(200 * MS), rng.choice(NEAR_WRAPS), draw_clock(rng),
                          name != publisher,
                          of_unicast.choice(NEAR_WRAPS)) for name in names}
    options = unicast_options(of_unicast) | options
    actions = [action for action in load(rng, names, settings, options, duration)
               + faults(rng, names, settings, duration)
               + unicast_load(of_unicast, names, settings, duration) if action.at < duration]
    if STACKS[settings.stack].votes:
        options = nakack2_options(Random(f"{seed} nakack2"), settings.stack) | options | settings.options
    if not STACKS[settings.stack].is_lossless and (frames := wire(Random(f"{seed} wire"),
                                                                  settings)):
        network |= frames
    if STACKS[settings.stack].is_lossless:
        network = {"delay": network["delay"]}
        of_links = Random(f"{seed} links")
        actions += breaks(of_links, names, settings, duration) + switches(of_links, names, settings,
                                                                          options, duration)
        if STACKS[settings.stack].may_skip_retransmission:
            starts = {name: msgspec.structs.replace(start, options=own_windows(of_links, settings))
                      for name, start in starts.items()}
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
        starts=starts, duration=duration,
        threads=threads, socket_bytes=rng.choice([16 << 20, 1 << 20, 200_000, 70_000]),
        turn_time=rng.choice([0, 10_000, 50_000]),
        actions=sorted(actions, key=lambda action: action.at),
        ends={name: rng.random() < 0.6 for name in names})


def steady_plan(seed: int, settings: Settings) -> Plan:
    """A run that measures: the group forms, its senders have something to send all the
    time, and what they sent arrives."""
    rng = Random(f"{seed} plan")
    settings = steady_settings(settings)
    names, size, rate = NAMES[:settings.members], settings.size or 0, settings.steady or 0.0
    config = configure(settings.options, settings.stack)
    bandwidth, delay = int((settings.bandwidth or 0.0) * 1_000_000), int((settings.delay or 0.0)
                                                                         * MS)
    begin = 10 * milliseconds(config.hello_interval)  # a lost announcement is repeated several
                                                      # times before
    end = begin + int((settings.duration or 0.0) * SECOND)
    window = max(1, min(config.capacity, config.max_bytes // max(1, size)))
    plenty = window + bandwidth * TICK // SECOND // (size + 20)  # more than can go out until there
                                                                 # is more
    on_its_way = window * (size + 100) * SECOND // bandwidth     # a window's way through the wire,
                                                                 # with its headers
    duration = end + 10 * milliseconds(config.scan_interval) + 10 * delay + len(names) * on_its_way
    network: dict[str, Any] = {name: getattr(settings, name) or 0.0 for name in STRENGTHS} | {
        "bandwidth": bandwidth}
    timed = (*FAULTS, "unicast", "large", "splits", "breaks")
    asked = msgspec.structs.replace(settings, **{name: getattr(settings, name) or 0
                                                 for name in timed})
    actions = faults(rng, names, asked, end) + unicast_load(rng, names, asked, end)
    if STACKS[settings.stack].is_lossless:
        network = {"bandwidth": bandwidth}
        actions += breaks(rng, names, asked, end)
    for name in names[:settings.senders]:
        actions += steady_load(name, rate, begin, end, size, plenty)
    return Plan(
        seed=seed, names=names, stack=settings.stack, options=settings.options,
        threads=settings.threads or 0,
        network=network | {"delay": (delay, delay)},
        starts={name: Start(0, 0, (0, 1000), True, 0) for name in names}, duration=duration,
        socket_bytes=16 << 20, turn_time=TURN,
        actions=sorted(actions, key=lambda action: action.at), ends=dict.fromkeys(names, True),
        load=(begin, end))


def steady_settings(settings: Settings) -> Settings:
    """With everything said that a steady load needs."""
    return msgspec.structs.replace(settings, **{name: pick(getattr(settings, name), STEADY[name])
                                                for name in STEADY})


def steady_load(who: str, rate: float, begin: int, end: int, size: int, plenty: int) -> list[
        Action]:
    """What its application gives it every TICK: what is due then, or so much that it
    never runs out."""
    actions, given = [], 0
    for at in range(begin, end, TICK):
        due = plenty if not rate else int((at + TICK - begin) * rate / SECOND) - given
        given += due
        if due:
            actions.append(Action(at, "send", who, (due, size)))
    return [*actions, Action(end, "stop sending", who)]


def pick(fixed: Any, drawn: Any) -> Any:
    """What the user set; else what was drawn. It is drawn in any case, so that a
    setting changes nothing else of the seed."""
    return drawn if fixed is None else fixed


def sometimes(rng: Random, most: float) -> float:
    """A rate up to `most` in half of all runs, else none."""
    strength = rng.random() * most
    return strength if rng.random() < 0.5 else 0.0


def draw_clock(rng: Random) -> tuple[int, int]:
    return rng.choice([0, 0, (1 << 32) * MS - SECOND, rng.getrandbits(55)]), rng.choice([1000, 1000,
                                                                                         900, 1100,
                                                                                         1001])


def stack_options(rng: Random) -> dict[str, Any]:
    capacity = rng.choice([1, 2, 3, 8, 33, 64, 1000, 32_768])
    return {"capacity": capacity, "xmit_interval": rng.choice([1, 3, 3, 10, 50, 200]),
            "ack_threshold": rng.choice([1, 8, 100, 4096]),
            "max_bundle_size": rng.choice([512, 1500, 9000, 60_000]),
            "max_bytes": rng.choice([2000, 100_000, 8 << 20]),
            "hello_interval": rng.choice([20, 100, 100, 500])}


def unicast_options(rng: Random) -> dict[str, Any]:
    least = rng.choice([0.1, 0.2, 5, 50])
    return {"ack_min_interval": least,
            "ack_max_interval": rng.choice([least, 2 * least, 10 * least]),
            "sync_min_interval": rng.choice([1, 10, 100]),
            "conn_expiry_timeout": rng.choice([0, 30, 100, 500, 120_000]),
            "conn_close_timeout": rng.choice([5, 50, 500, 5000])}


def nakack2_options(rng: Random, stack: str) -> dict[str, Any]:
    """Both windows, both ways to discard, rounds of all lengths."""
    options = {"use_ring_buffer": rng.random() < 0.5, "discard_delivered_msgs": rng.random() < 0.7,
               "stable_interval": rng.choice([1, 5, 20, 20, 200]),
               "stable_bytes": rng.choice([1, 1000, 1 << 20]),
               "become_server_queue_size": rng.choice([1, 10, 50])}
    return options | ({"gap_timeout": 3_600_000.0} if STACKS[stack].is_lossless else {})


def own_windows(rng: Random, settings: Settings) -> dict[str, Any]:
    """A window that is smaller or larger than those of others: then a receiver has no
    room for what its sender may send."""
    own = {"capacity": rng.choice([1, 2, 8, 33, 1000]),
           "max_bytes": rng.choice([2000, 100_000])} if rng.random() < 0.3 else {}
    return {key: value for key, value in own.items() if key not in settings.options}


def wire(rng: Random, settings: Settings) -> dict[str, Any]:
    """In some runs datagrams travel in frames, over ways that carry so much a second
    and let so much wait."""
    mtu = pick(settings.mtu, rng.choice([0, 0, 0, 1500, 9000]))
    bandwidth = rng.choice([0, 0, 1_250_000, 12_500_000, 125_000_000])
    return {"mtu": mtu, "bandwidth": bandwidth,
            "queue": rng.choice([50_000, 500_000])} if mtu else {}


def breaks(rng: Random, names: str, settings: Settings, duration: int) -> list[Action]:
    """Connections that break, often several times in a row."""
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
    """NAKACK2 without retransmission, with it, and now and then the one and the
    other."""
    interval = options["xmit_interval"]
    if STACKS[settings.stack].may_skip_retransmission and "xmit_interval" not in settings.options:
        options["xmit_interval"] = rng.choice([0, 0, 0, -1, interval])
        if rng.random() < 0.3:
            return [Action(rng.randrange(duration), "interval", rng.choice(names),
                           rng.choice([0, interval])) for _ in range(10)]
    return []


def unicast_load(rng: Random, names: str, settings: Settings, duration: int) -> list[Action]:
    """Messages to single members, oneself among them, in half of all runs; and views
    that lack somebody."""
    total = pick(settings.unicast, rng.choice([0, 0, 0, 20, 200, 1000]))
    actions = []
    while total > 0:
        count = min(total, rng.choice([1, 1, 2, 10, 50, 200]))
        size = rng.choice([0, 20, 20, 200, 1000, 8000,
                           70_000]) if settings.size is None else settings.size
        value = (rng.choice(names), count if size < 8000 else min(count, 3), size,
                 rng.random() < 0.15)
        actions.append(Action(rng.randrange(duration), "send unicast", rng.choice(names), value))
        total -= count
    for _ in range(pick(settings.splits, rng.randint(1, 3) if actions and len(names) > 1
                        and rng.random() < 0.4 else 0)):
        actions += split(rng, names, rng.randrange(duration), duration)
    return actions


def large_messages(rng: Random, names: str, settings: Settings, duration: int) -> list[Action]:
    """Messages to everybody that go out in fragments: only on request, because runs
    with them show what is not mended yet. A receiver that takes an incarnation out
    forgets fragments that it has acknowledged, and a late ack of these makes the
    incarnation's next process give up what is asked for again (mcast-udp, seed 43,
    --loss 0.2 --crashes 2 --partitions 2 --large 5)."""
    return [Action(rng.randrange(duration), "send", rng.choice(names),
                   (1, rng.choice([70_000, 150_000])))
            for _ in range(settings.large or 0)]


def split(rng: Random, names: str, at: int, duration: int) -> list[Action]:
    """One member does not see another any more, for a while; often the network between
    them is cut meanwhile."""
    if len(names) < 2:
        return []
    who, other = rng.sample(names, 2)
    until = at + rng.randrange(1, max(2, duration // 2))
    actions = [Action(at, "hide", who, other), Action(until, "show", who, other)]
    if rng.random() < 0.5:
        links = [(other, who)] if rng.random() < 0.5 else [(other, who), (who, other)]
        actions += [Action(at, "cut", value=links), Action(until, "mend", value=links)]
    return actions


def load(rng: Random, names: str, settings: Settings, options: dict[str, Any], duration: int) -> list[Action]:
    """Bursts of messages: of some members more than of others, some longer than a
    window."""
    total = pick(settings.messages, rng.choice([50, 300, 1000, 3000]))
    size = pick(settings.size, rng.choice([0, 20, 200, 1000, 8000]))
    longest = min(total, max(3, min(2 * int(options["capacity"]), total // 10)))
    senders = [name for name in names if rng.random() < 0.7] or [names[0]]
    actions = []
    while total > 0:
        count = min(total, rng.randint(1, max(1, longest)))
        actions.append(Action(rng.randrange(duration), "send", rng.choice(senders), (count, size)))
        total -= count
    return actions


def faults(rng: Random, names: str, settings: Settings, duration: int) -> list[Action]:
    """The faults that have a time: each kind in about half of all runs, and then one to
    three of it."""
    actions: list[Action] = []
    for name, kind in zip(FAULTS, (crash, partition, pause, slow, exclusion, leaving, jump),
                          strict=True):
        few = {"exclusions": 1, "leaves": 1}.get(name, 3)
        often = {"exclusions": 0.2, "leaves": 0.2}.get(name, 0.5)
        wanted = pick(getattr(settings, name), rng.randint(1, few) if rng.random() < often else 0)
        for _ in range(wanted):
            actions += kind(rng, names, rng.randrange(duration), duration)
    return actions


def crash(rng: Random, names: str, at: int, duration: int) -> list[Action]:
    """A member dies; it may come back at its address or another one, with or without
    what it had made durable."""
    who = rng.choice(names)
    back = at + rng.choice([0, 10 * MS, rng.randrange(duration)])
    how = {"resumes": rng.random() < 0.6, "moves": rng.random() < 0.4}
    return [Action(at, "crash", who),
            Action(back, "restart", who, how)] if rng.random() < 0.7 else [Action(at, "crash", who)]


def partition(rng: Random, names: str, at: int, duration: int) -> list[Action]:
    """Two sides that do not hear each other, or one of which does not hear the other;
    or links that hold everything back."""
    shuffled = rng.sample(names, len(names))
    size = rng.randint(1, max(1, len(names) - 1))
    one, other = shuffled[:size], shuffled[size:]
    links: list[Link] = [(a, b) for a in one for b in other]
    if rng.random() < 0.6:
        links += [(b, a) for a, b in links]
    elif rng.random() < 0.3:
        links = links[:1]
    until = at + rng.randrange(1, max(2, duration // 2))
    if rng.random() < 0.2:
        return [Action(at, "clog", value=(links, until))]
    return [Action(at, "cut", value=links), Action(until, "mend", value=links)]


def pause(rng: Random, names: str, at: int, duration: int) -> list[Action]:
    return [Action(at, "pause", rng.choice(names),
                   rng.choice([10 * MS, 300 * MS, rng.randrange(1, 3 * SECOND)]))]


def slow(rng: Random, names: str, at: int, duration: int) -> list[Action]:
    """An application that takes its time, and takes little in hand; or a send buffer
    that is full now and then."""
    who = rng.choice(names)
    until = at + rng.randrange(1, max(2, duration // 2))
    if rng.random() < 0.3:
        return [Action(at, "send buffer", who, rng.random() * 0.5),
                Action(until, "send buffer", who, 0.0)]
    return [Action(at, "slow", who, (rng.choice([1 * MS, 20 * MS, 200 * MS]),
                                     rng.choice([1, 10, 65_536]))),
            Action(until, "slow", who, (0, 65_536))]


def exclusion(rng: Random, names: str, at: int, duration: int) -> list[Action]:
    """Somebody takes a member out, which may be alive; it may come back later as a new
    incarnation."""
    if len(names) < 2:
        return []
    by, who = rng.sample(names, 2)
    actions = [Action(at, "exclude", by, who)]
    if rng.random() < 0.5:
        actions.append(Action(at + rng.randrange(1, duration), "restart", who,
                              {"resumes": rng.random() < 0.5, "moves": False}))
    return actions


def leaving(rng: Random, names: str, at: int, duration: int) -> list[Action]:
    who = rng.choice(names)
    actions = [Action(at, "leave", who)]
    if rng.random() < 0.5:
        actions.append(Action(at + rng.randrange(1, duration), "restart", who,
                              {"resumes": rng.random() < 0.5, "moves": False}))
    return actions


def jump(rng: Random, names: str, at: int, duration: int) -> list[Action]:
    return [Action(at, "jump", rng.choice(names),
                   rng.choice([1 * SECOND, 3600 * SECOND, 86_400 * SECOND]))]


def returns(rng: Random, names: str, settings: Settings, duration: int, starts: dict[str, Start],
            actions: list[Action]) -> list[Action]:
    """In some runs a member that only sends, half of all that is sent, dies and comes
    back as the same incarnation, at its address or another one; perhaps it was taken
    out meanwhile. It has nothing to say to single members."""
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


def few_receivers(rng: Random, names: str, starts: dict[str, Start]) -> None:
    """In some groups one member alone takes messages, or two: what their sender has
    itself, nobody else may have to acknowledge."""
    few = min(len(names), rng.choice([1, 2, 2]))
    receivers = rng.sample(names, few) if rng.random() < 0.4 else names
    for name in names:
        if name not in receivers:
            starts[name] = msgspec.structs.replace(starts[name], receiving=False)


def joins(rng: Random, names: str, settings: Settings, duration: int, starts: dict[str, Start],
          delay: int,
          may_be: bool) -> list[Action]:
    """A member leaves and joins again, and another sends at that time: some of it waits
    for company when the view comes. Both take messages, where two do."""
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


def listed(actions: Sequence[Action]) -> str:
    """The actions for people, one a line; of the load no more than its sum."""
    sends = sum(action.what == "send" for action in actions)
    lines = [str(action) for action in actions if action.what != "send"]
    return "\n".join([*lines, f"{'':12}     and {sends} bursts of messages"])
