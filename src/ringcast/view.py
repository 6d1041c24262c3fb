"""Who is in the group, as one member sees it (MCAST.txt, "On reception of view V")."""

import msgspec

from ringcast.address import Address


class View(msgspec.Struct, frozen=True, array_like=True):
    """The members at one time, in the order of their names, under an id that only
    grows.

    Two views with the same id have the same members in the same order. `address in
    view` tests whether an Address is a member.
    """

    id: int
    members: tuple[Address, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the members, in their order."""
        return tuple(member.name for member in self.members)

    def __contains__(self, member: object) -> bool:
        return member in self.members

    def __len__(self) -> int:
        return len(self.members)

    def __str__(self) -> str:
        return f"[{self.id}: {', '.join(self.names)}]"
