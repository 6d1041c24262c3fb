"""Who is in the group, as one member sees it (MCAST.txt, "On reception of view V")."""

from collections.abc import Iterator, Sequence

import msgspec

from ringcast.address import Address


class View(msgspec.Struct, frozen=True, array_like=True, eq=False):
    """The members at one time, under an id that only grows.

    - `members`: the oldest first;
    - `joined`, `left`: who came and who is gone since the view before, as this member
      saw it;
    - `departed`: of each who is gone, the last seqno that every member that stays has
      delivered;
    - `subgroups`: if several groups became one, the members that each of them had;
    - `primary`: whether this part of the group has the majority of the last primary
      view, or, if there was none, min_members. No other part has it at the same time,
      if min_members is more than half of the processes that were started;
    - `absent`: durable members that went without leaving and are expected back;
    - `observers`: members for which nobody waits. They come last in `members`.

    Two views with the same id have the same members in the same order, so views are
    equal if these are. `in` tests whether an Address or a name is that of a member, and
    a loop goes over the members.
    """

    id: int
    members: tuple[Address, ...]
    joined: tuple[Address, ...] = ()
    left: tuple[Address, ...] = ()
    departed: dict[Address, int] = {}
    subgroups: tuple[tuple[Address, ...], ...] = ()
    primary: bool = True
    absent: tuple[Address, ...] = ()
    observers: tuple[Address, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the members, in their order."""
        return tuple(member.name for member in self.members)

    @property
    def coordinator(self) -> Address:
        """Return the member that decides on the next view: the oldest one."""
        return self.members[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, View) and (self.id, self.members) == (other.id, other.members)

    def __ne__(self, other: object) -> bool:
        return not self == other        # msgspec's own __ne__ does not ask __eq__

    def __hash__(self) -> int:
        return hash(self.id)

    def __contains__(self, member: object) -> bool:
        return member in self.members or member in self.names

    def __iter__(self) -> Iterator[Address]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def __str__(self) -> str:
        return f"[{self.id}: {', '.join(self.names)}]"


def listed(names: Sequence[str], most: int) -> str:
    """Return names with commas between them; of many the first `most`, and how many
    more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
