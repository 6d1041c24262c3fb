"""The plan of a run: the group, how each member starts, and what happens later.

An action happens at a certain time. The first N actions are a prefix of the run.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from ringcast.sim.network import MS, Direction

COORDINATOR = "*"       # in the place of a name: who coordinates the group when it happens


class Action(msgspec.Struct, frozen=True):
    """An event at the time `at`, in nanoseconds: it happens to the member `who`, or to
    the network."""

    at: int
    what: str
    who: str = ""
    value: Any = None

    def __str__(self) -> str:
        value = self.value
        if self.what == "cut":
            value = listed_links(value)
        return (f"{self.at / MS:12.3f} ms  {self.what} {self.who} "
                f"{'' if value is None else value}").rstrip()


class Start(msgspec.Struct, frozen=True):
    """How a member starts."""

    at: int
    offset: int                     # the seqno before its first message
    clock: tuple[int, int]          # what its clock shows at first, and its ticks in 1000 ns
    receiving: bool
    counters: int                   # what comes before its first conn-id and first timestamp
    replica: str = ""               # its role in state transfer (sim/replica.py)
    durable: bool = False           # it is expected back, and goes on with what it had finished
    observes: bool = False          # nobody waits for it
    options: dict[str, Any] = {}    # that others do not have


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
    comebacks: dict[str, bool]          # whether a member comes back, if dead in the end
    load: tuple[int, int] | None = None     # from when to when a steady load is measured
    threads: int = 0                        # see Member
    between: int = 0                        # see Cluster
    sealed: bool = False                    # datagrams are sealed: see Cluster
    trusted: bool = False                   # with keys that members trust: see Cluster
    lasting: list[Direction] | None = None  # the links that stay cut after the faults
    refuses: bool = False                   # processes that are gone refuse datagrams: see Cluster


def listed_links(links: Sequence[Direction]) -> str:
    """Return links as text."""
    return " ".join(f"{source}>{target}" for source, target in links)


def listed(actions: Sequence[Action]) -> str:
    """Return the actions as text, one a line. Of the load there is only the number of
    bursts."""
    sends = sum(action.what == "send" for action in actions)
    lines = [str(action) for action in actions if action.what != "send"]
    return "\n".join([*lines, f"{'':12}     and {sends} bursts of messages"])
