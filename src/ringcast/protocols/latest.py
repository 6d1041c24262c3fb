"""A table of bounded size: however many peers there are, honest or not, it remembers
the latest.
"""

from typing import TypeVar

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class Latest(dict[KeyT, ValueT]):
    """The `most` entries that were remembered last."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def remember(self, key: KeyT, value: ValueT) -> bool:
        """Set an entry. Return False if the oldest had to be dropped for it."""
        self.pop(key, None)
        self[key] = value
        if len(self) <= self.most:
            return True
        del self[next(iter(self))]
        return False
