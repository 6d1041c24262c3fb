"""What a storm does, drawn from its seed: the group, its members, and their faults.
Only the times at which processes run are not in it."""

from dataclasses import dataclass
from itertools import count
from random import Random

from ringcast.config import own_options

STACKS = ["mcast-udp", "mcast-tcp", "nakack2-udp", "nakack2-tcp"]
READS = ["callback", "batches", "messages", "deliveries"]
MOST = 6                # members at one time
STATE, SECRET, PAUSES, EXCLUSIONS = 0.7, 0.4, 0.3, 0.3      # the share of the plans that have it


@dataclass
class Step:
    """A fault, `after` so many seconds. `detail` is what it needs beside the name: the
    traits of who starts, the seconds of a pause, or who is to be excluded."""

    after: float
    what: str
    name: str
    detail: object = None


@dataclass
class Plan:
    """What a seed stands for. `members` are the traits, by name, of those who begin."""

    seed: int
    stack: str
    options: dict
    secret: str | None
    members: dict
    steps: list

    def traits(self):
        """Return the traits of all processes of the plan."""
        started = [step.detail for step in self.steps if step.what in ("join", "restart")]
        return [*self.members.values(), *started]

    @property
    def has_cuts(self):
        """Say whether members may be cut off that live."""
        return any(step.what in ("pause", "exclude") for step in self.steps)


def draw(seed):
    """Return the plan of a seed."""
    rng = Random(seed)
    stack = rng.choice(STACKS)
    options = draw_options(rng, stack)
    secret = rng.randbytes(32).hex() if rng.random() < SECRET else None
    has_state = rng.random() < STATE
    # A group needs members that are no observers, so the first two are none.
    members = {name: draw_traits(rng, has_state, may_observe=name not in "AB")
               for name in "ABCDE"[:rng.randint(2, 5)]}
    faults = ["kill", "restart", "leave", "join"] * 2
    faults += ["pause"] * 4 * (rng.random() < PAUSES)
    faults += ["exclude"] * 2 * (rng.random() < EXCLUSIONS)
    steps = draw_steps(rng, dict(members), faults, has_state)
    return Plan(seed, stack, options, secret, members, steps)


def draw_options(rng, stack):
    """Return the options that all members have."""
    return own_options({
        "stack": stack, "partition": "merge", "heartbeat_interval": 50, "leave_timeout": 2000,
        "suspect_timeout": 1000, "max_message_size": 4_000_000, "status_file": False,
        "capacity": rng.choice([4, 64, 1024, 32768]),
        "max_bytes": rng.choice([100_000, 1_000_000, 8_388_608]),
        "max_undelivered": rng.choice([10, 65536]),
        "xmit_interval": rng.choice([3, 10, 30]),
        "receive_buffer": rng.choice([65536, 1 << 24]),
        "discard_delivered_msgs": rng.choice([True, False]),
        "use_ring_buffer": rng.choice([True, False])}, stack)


def draw_traits(rng, has_state, may_observe=True):
    """Return how a process sends and reads. Only who reads by callback has a state."""
    observes = may_observe and rng.random() < 0.15
    state = has_state and not observes and rng.random() < 0.8
    options = {"slow": "observe"} if observes else {}
    if rng.random() < 0.15:
        options["oob_in_order"] = True
    return {"seed": rng.getrandbits(32), "options": options, "state": state,
            "reads": "callback" if state else rng.choice(READS), "asyncio": rng.random() < 0.25,
            "senders": rng.choice([0, 1, 1, 2, 3]), "slow": rng.choice([0, 0, 0.01, 0.05])}


def draw_steps(rng, living, faults, has_state):
    """Return the faults, in order. `living` are the traits of those who live."""
    steps, fresh, now = [], map("M{}".format, count(1)), 0.0
    end = rng.uniform(3, 8)
    while now < end:
        after, what, name = rng.uniform(0, 1), rng.choice(faults), rng.choice(list(living))
        now += after
        detail = None
        rest = [each for each in living if each != name]
        may_go = len(rest) > 1 and any("slow" not in living[each]["options"] for each in rest)
        if what == "join" and len(living) < MOST:
            name = next(fresh)
            detail = living[name] = draw_traits(rng, has_state)
        elif what == "restart" and may_go:
            detail = living[name] = draw_traits(rng, has_state, "slow" in living[name]["options"])
        elif what in ("kill", "leave") and may_go:
            del living[name]
        elif what == "exclude" and may_go:
            detail = rng.choice(rest)
        elif what == "pause":
            detail = rng.choice([0.1, 0.5, 2.5])
        else:
            continue
        steps.append(Step(after, what, name, detail))
    return steps
