"""What carries datagrams between members: one contract, several implementations.

A transport moves datagrams and knows nothing else: not what is in them, not who is in
the group. It may lose, repeat and reorder them unless its own docstring promises more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Transport(Protocol):
    """The contract between a transport and the driver of a channel.

    A member id is its incarnation (1 .. 2**64-1). Nothing that a remote peer or the
    network does raises out of a method
    here: it is counted in `status` and dropped. What this program does wrong raises:
    `poll` or `put` after `close` is `ClosedError`, a datagram above `max_datagram` is
    `MessageTooLargeError` (and then nothing of that `put` was sent).

    Threads: one thread polls, and asks for `links`. `connect`, `put`, `hold`, `wake`,
    `status` and `close` are for any thread, at any time, also while another is in
    `poll` or `put`. Packets of one `put` keep their order on the way to the operating
    system; those of several threads may interleave.
    """

    lossless: bool
    """Whether what was put arrives, once and in order, unless `links` tells of a new connection."""

    @property
    def physical(self) -> str:
        """Where this member can be reached; other members hand it to `connect` and
        never look inside."""

    @property
    def max_datagram(self) -> int:
        """The largest datagram that `put` takes, in bytes."""

    @property
    def receive_budget(self) -> int:
        """Bytes of large datagrams (8 KB and more) that may be on their way to this
        member before some are lost."""

    def connect(self, routes: Mapping[int, str]) -> None:
        """Replace the table of member ids and their `physical`; an entry that makes no
        sense is counted and left out."""

    def poll(self, timeout_ns: int | None, expecting: bool = False) -> list[memoryview]:
        """Return what has arrived, waiting up to `timeout_ns` (None: for ever, 0: not
        at all) if nothing has.

        Who is `expecting` something has nothing else to do: the transport may look for
        it for a moment instead of sleeping.

        May return early and empty. The views are read-only and valid until the next
        `poll`.
        """

    def links(self) -> list[int]:
        """Members to which a new connection was made since the last call, in order:
        what was on its way to or from them may be lost.

        Call it after each `poll`: what that returned of these members came before, what
        later ones return comes over the new connection. `poll` returns early when there
        is such news. Always empty for a transport without connections.
        """

    def hold(self, members: Collection[int]) -> None:
        """From now on read nothing of these members; replaces the set given before.

        What they send stays in the network, which pushes back; what of theirs was read
        already is returned once. Does nothing where a datagram that is not read would
        be lost.
        """

    def put(self, packets: Sequence[tuple[int, Buffer]]) -> None:
        """Send each datagram to its member, or to all others for the id `EVERYONE`; an
        unknown id is counted and dropped.

        Never waits for a receiver. The datagrams may be changed as soon as `put` has
        returned.
        """

    def wake(self) -> None:
        """Make `poll` return: the one that waits now, or else the next, at once.
        Several wakes collapse into one."""

    def status(self) -> dict[str, int]:
        """The counters since the start; they can be read after `close` too."""

    def close(self) -> None:
        """Make a waiting `poll` return and give back what the operating system lent; a
        second call does nothing."""

    def forget(self) -> None:
        """Give back a forked child's copies of the descriptors. Say nothing to anybody,
        and change nothing that the parent shares."""
