"""Transports carry datagrams between members: one contract, several implementations.

A transport does not know what is in the datagrams, nor who is in the group. It may
lose, duplicate and reorder datagrams, unless its own docstring promises more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ringcast.status import InprocStatus, SealStatus, TcpStatus, UdpStatus

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ringcast.stack import HeldKeys


@runtime_checkable
class Rekeyed(Protocol):
    """What a transport that seals can do besides (sealed.py). Any thread may call
    it."""

    def rekey(self, held: HeldKeys) -> None:
        """Seal and open with these keys of views from now on."""


class Transport(Protocol):
    """The contract between a transport and the driver of a channel.

    A member's id is its incarnation (1 .. 2**64-1). No method raises for what a peer or
    the network does: the transport counts it in `status` and drops it. Methods raise
    for mistakes of this program: ClosedError for `poll` or `put` after `close`, and
    MessageTooLargeError for a datagram above `max_datagram` (then nothing of that `put`
    is sent).

    Threads: one thread calls `poll`, `links`, `refused` and `lose`. Any thread may call
    `connect`, `seek`, `put`, `wake`, `status` and `close` at any time, also while
    another one is in `poll` or `put`. The packets of one `put` reach the operating
    system in their order; those of several threads may interleave.
    """

    lossless: bool
    """True if every datagram arrives, once and in order, as long as `links` reports no
    new connection. Kinds that the transport was told to hurry may be lost and overtake
    others all the same."""

    @property
    def physical(self) -> str:
        """Where this member can be reached. Other members pass it to `connect`, and
        never look inside."""

    @property
    def max_datagram(self) -> int:
        """Bytes of the largest datagram that `put` takes."""

    @property
    def receive_budget(self) -> int:
        """Bytes of large datagrams (8 KB and more) that may be on their way to this
        member before some are lost."""

    @property
    def send_budget(self) -> int:
        """Bytes of datagrams of 1,000 bytes and more that may wait to leave this member
        before `put` drops some."""

    def connect(self, routes: Mapping[int, str]) -> None:
        """Replace the table of routes: member ids, and the `physical` of each. Entries
        that make no sense are counted and left out."""

    def seek(self, addresses: Collection[str]) -> list[str]:
        """Replace the list of addresses where other members may be: what is sent to
        EVERYONE from now on also goes there, as far as the transport can. Return those
        that are left out.

        An address is `host:port` of one IPv4 host, or `host` alone where members take
        ports of a range. At most 1,024 places are sought. Addresses that make no sense
        or are too many are counted and left out.
        """

    def poll(self, timeout_ns: int | None, expecting: bool = False) -> Sequence[Buffer]:
        """Return the datagrams that have arrived. If there are none, wait for some, at
        most `timeout_ns` nanoseconds (None: for ever; 0: not at all).

        `expecting` says that the caller has nothing else to do: the transport may then
        poll without sleeping for a moment. May return early and empty. Views among them
        are read-only, and valid until the next `poll`.
        """

    @property
    def emptied(self) -> bool:
        """Return whether the last `poll` has left nothing of what had arrived. A
        transport that seals has left what was said by one who asks to be heard, and has
        not proved yet that it is there."""

    def links(self) -> list[int]:
        """Return the members to which a new connection was made since the last call, in
        order: what was on its way to or from them may be lost.

        Call it after each `poll`. What that poll returned of these members came before
        the new connection; what later polls return came over it. `poll` returns early
        when there is a new connection. Always empty for a transport without
        connections.
        """

    def refused(self) -> list[int]:
        """Return the members of the routes whose process seems to be gone, since the
        last call.

        A datagram to them was refused (UDP: ICMP port unreachable), or nobody or
        somebody else answers where they listened (TCP). A connection that ended is no
        reason: the transport makes it again. It is a hint, which others verify: a
        stranger can forge ICMP. `poll` returns early when there is such a hint.
        """

    def lose(self) -> None:
        """Note that what the last `poll`, `links` and `refused` returned is lost: a
        signal handler's exception came before anybody handled it. A transport with
        connections makes them again, so that `links` tells of the loss."""

    def put(self, packets: Sequence[tuple[int, Buffer]]) -> None:
        """Send each datagram to its member, or to all others for the id EVERYONE.
        Datagrams to unknown ids are counted and dropped.

        Never waits for a receiver. The caller may change the datagrams as soon as `put`
        has returned.
        """

    def wake(self) -> None:
        """Make the `poll` that waits now return, or else the next one at once. Several
        wakes before that count as one."""

    def status(self) -> UdpStatus | TcpStatus | InprocStatus:
        """Return the counters since the start; they can be read after `close`, too."""

    def seal_status(self) -> SealStatus | None:
        """Return the counters of what seals datagrams; None if nothing does."""

    def close(self) -> None:
        """Make a `poll` that waits return, and close all descriptors. A second call
        does nothing."""

    def forget(self) -> None:
        """Close a forked child's copies of the descriptors. Tell nobody, and change
        nothing that the parent shares."""
