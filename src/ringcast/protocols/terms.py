"""Terms: what all members of a group must share, the stack among them (decision 30).
Members tell each other their terms, and take nothing from one who has others.
"""

from typing import NamedTuple

from ringcast.address import Address


class Difference(NamedTuple):
    """Say which term differs between another member and us, and what to do."""

    sentence: str
    remedy: str

    @property
    def fault(self) -> str:
        """Return why a member that joins stops."""
        return f"{self.sentence}; {self.remedy}"

    @property
    def warning(self) -> str:
        """Return what a member that stays tells its operator."""
        return f"{self.sentence}, so it is not let in; {self.remedy}"


def difference(local: Address, ours: dict[str, str], name: str,
               theirs: dict[str, str]) -> Difference | None:
    """Return how the terms of the member `name` differ from ours, or None. A term that
    only one of us knows does not count."""
    for term, value in ours.items():
        if theirs.get(term, value) != value:
            return Difference(f"{name!r} has {term}={theirs[term]!r} and this member, "
                              f"{local.name!r}, has {term}={value!r}",
                              f"give all members of the group the same {term}")
    return None
