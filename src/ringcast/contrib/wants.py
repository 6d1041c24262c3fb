"""For how many messages of a channel the tasks of each process wait, as it told last.
Each telling has a number, so that what was given before does not count twice."""

from collections.abc import Iterable

from ringcast import Address


class Wants:
    """Whose turn it is: first told, first served."""

    def __init__(self) -> None:
        self._of: dict[str, dict[Address, tuple[int, int]]] = {}

    def told(self, name: str, member: Address, count: int, number: int) -> None:
        """Note for how many messages a process waits, in its telling `number`."""
        wants = self._of.pop(name, {})
        wants.pop(member, None)
        if count > 0:
            wants[member] = count, number
        if wants:
            self._of[name] = wants

    def of(self, name: str) -> dict[Address, tuple[int, int]]:
        """Return who waits for messages of a channel, with count and number; the next
        one first."""
        return self._of.get(name, {})

    def given(self, name: str, member: Address, number: int) -> None:
        """Note that a process waits for one message less, if it has told nothing
        newer. It is the last one now."""
        count, told = self.of(name).get(member, (0, 0))
        self.told(name, member, count - (told == number), told)

    def keep(self, members: Iterable[Address]) -> list[str]:
        """Forget who is gone. Return the names of channels."""
        for name, wants in list(self._of.items()):
            for member in wants.keys() - members:
                self.told(name, member, 0, 0)
        return list(self._of)

    def clear(self) -> None:
        """Forget all."""
        self._of.clear()
