"""Deaths at a chosen point: a member dies just before or just after it sends a datagram
of some kind. So every step of an agreement can be the last that a member takes.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringcast.sim.cluster import Cluster
    from ringcast.sim.member import Member


@dataclass(slots=True)
class Trap:
    """Kills a member at the datagram of this kind that it sends when `left` is 1;
    `is_after` says whether the datagram still goes out. Without `name` it is whoever
    sends that one."""

    name: str
    kind: str
    is_after: bool
    left: int


class Deaths:
    """The traps that are set in a cluster."""

    def __init__(self, cluster: "Cluster") -> None:
        self.cluster = cluster
        self.traps: list[Trap] = []
        self.num_sprung = 0

    def set(self, name: str, kind: str, is_after: bool, nth: int = 1) -> None:
        """Let a member die at the `nth` datagram of a kind from now on. An empty name
        stands for any member: then the datagrams of all count."""
        self.traps.append(Trap(name, kind, is_after, nth))

    def sprung(self, source: "Member", datagram: bytes) -> Trap | None:
        """Return the trap that a member is in when it sends this datagram, if any."""
        if not self.traps:
            return None
        header = source.stack.open(datagram)
        kind = source.stack.kind(header.kind).name if header is not None else ""
        for trap in self.traps:
            if trap.kind == kind and trap.name in ("", source.name):
                trap.left -= 1
                if not trap.left:
                    self.traps.remove(trap)
                    self.num_sprung += 1
                    return trap
        return None
