"""The stacks on which a group can run, by name: one table, and the function that builds
a stack from a row of it.

A layer is added to a stack here, and a stack to the table. Channel, simulator and
fuzzer all build their stacks with this file.
"""

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringcast.access import Access
from ringcast.address import Address
from ringcast.config import (
    BULK_CHANNEL,
    HURRIED_CHANNEL,
    MAX_DATAGRAM,
    NETWORKED,
    OF_FLUSH,
    OF_QUORUM,
    SEAL,
    STACK_NAMES,
    Config,
    nanoseconds,
    terms_of,
)
from ringcast.digest import Digest
from ringcast.protocols.budget import NO_LIMIT, Budget
from ringcast.protocols.membership import Membership
from ringcast.protocols.membership.ends import Ends
from ringcast.protocols.membership.state import StateTransfer
from ringcast.protocols.multicast.base import Multicast
from ringcast.protocols.multicast.mcast import Mcast
from ringcast.protocols.multicast.nakack2 import Nakack2
from ringcast.protocols.multicast.stable import Stable
from ringcast.protocols.parts import Parts
from ringcast.protocols.unicast3 import Unicast3
from ringcast.protocols.unreliable import Unreliable
from ringcast.stack import Layer, Stack, group_id
from ringcast.transport import Transport
from ringcast.transport.inproc import InprocTransport
from ringcast.transport.tcp.transport import TcpTransport
from ringcast.transport.udp import UdpTransport, largest_datagram

if TYPE_CHECKING:
    from ringcast.protocols.security.keyring import Keyring

Extra = Callable[[Address, Config, Multicast], Layer]


@dataclass(frozen=True)
class Carrier:
    """What carries datagrams between members.

    `open` makes a member's transport from the group's name, the member's incarnation,
    its configuration, and what gives access to a sealed group; it raises what the
    transport's constructor raises. `largest_datagram` returns the bytes of the largest
    datagram that this transport will take, for a group, a configuration, and whether it
    is sealed. A lossless carrier loses datagrams only when a connection breaks.
    A local one connects members of one process.
    """

    open: Callable[[str, int, Config, Access | None], Transport]
    largest_datagram: Callable[[str, Config, bool], int] = lambda *_: MAX_DATAGRAM
    is_lossless: bool = False
    is_local: bool = False


@dataclass(frozen=True)
class StackSpec:
    """One row of the table. `defaults` are the options whose defaults differ from
    Config's. `extra` makes layers that only this stack has, above all others, the
    topmost first.
    """

    multicast: type[Multicast]
    carrier: Carrier
    defaults: Mapping[str, Any] = field(default_factory=dict)
    extra: Sequence[Extra] = ()

    @property
    def is_lossless(self) -> bool:
        """Return whether its transport loses nothing, except when a connection
        breaks."""
        return self.carrier.is_lossless

    @property
    def votes(self) -> bool:
        """Return whether members agree by STABLE on what all have finished; otherwise
        each sender counts acks."""
        return issubclass(self.multicast, Nakack2)

    @property
    def may_skip_retransmission(self) -> bool:
        """Return whether its xmit_interval may be 0."""
        return self.votes and self.is_lossless


# Kinds that carry messages. Everything else passes them.
BULK = frozenset(int(kind) for layer in (Mcast, Nakack2, Unicast3, Unreliable)
                 for kind in layer.kinds if kind.measured != "control")
# Kinds that have a connection of their own over TCP, because a view change must not
# wait behind megabytes of messages. Others must stay behind them: what is announced
# (HIGHEST, STABILITY) would be asked for before it comes.
CONTROL = frozenset(int(kind) for layer in (Membership, Parts) for kind in layer.kinds)

# Kinds that are sealed without a view; all others with the key of a view.
OUTSIDE = frozenset(int(kind) for layer in (Membership, Parts) for kind in layer.kinds
                    if kind.outside)


def control_of(is_sealed: bool) -> Collection[int]:
    """Return what a datagram of CONTROL has in the place of its kind: this, or if it is
    sealed, the channel of these."""
    return [HURRIED_CHANNEL] if is_sealed else CONTROL


def open_transport(stack: str, group: str, member: int, config: Config,
                   access: Access | None) -> Transport:
    """Open the transport of a member, sealed if there is an access. Raises what the
    transport's constructor raises."""
    carrier = STACKS[stack].carrier
    inner = carrier.open(group, member, config, access)
    if access is None:
        return inner
    from ringcast.protocols.security.seal import ENTROPY, Seal
    from ringcast.transport.sealed import SealedTransport

    seal = Seal(access.keys, member, secrets.token_bytes(ENTROPY), BULK, CONTROL, OUTSIDE,
                access.keyring)
    return SealedTransport(inner, seal, access.folder)


def open_udp(group: str, member: int, config: Config, access: Access | None) -> Transport:
    """Open a UDP transport."""
    return UdpTransport(
        group_address=multicast_address(group, config), port=config.port,
        interface=config.interface, ttl=config.ttl, receive_buffer=config.receive_buffer,
        max_datagram=config.max_datagram, bulk=BULK if access is None else [BULK_CHANNEL],
        busy_poll=nanoseconds(config.busy_poll), insecure=config.insecure or access is not None)


def open_tcp(group: str, member: int, config: Config, access: Access | None) -> Transport:
    """Open a TCP transport."""
    return TcpTransport(
        group=group_id(group), member=member, interface=config.interface, port=config.port,
        port_range=config.port_range, hosts=[host for host in config.hosts.split(",") if host],
        max_unsent=config.max_unsent, link_timeout=config.link_timeout / 1000,
        control=control_of(access is not None),
        busy_poll=nanoseconds(config.busy_poll),
        key=b"" if access is None else access.keys.link,
        identity=None if access is None else access.keyring.identity, insecure=config.insecure)


def open_inproc(group: str, member: int, config: Config, access: Access | None) -> Transport:
    """Open a transport between members of this process."""
    return InprocTransport(group, receive_buffer=config.receive_buffer)


def needs_ports(stack: str) -> bool:
    """Return whether an address where others may be needs a port: over UDP none stands
    for it, because the system chooses those of members."""
    carrier = STACKS[stack].carrier
    return not (carrier.is_local or carrier.is_lossless)


def largest_udp(group: str, config: Config, is_sealed: bool) -> int:
    """Return the bytes of the largest datagram that the interface carries."""
    return largest_datagram(multicast_address(group, config), config.port, config.interface,
                            config.insecure or is_sealed)


def multicast_address(group: str, config: Config) -> str:
    """Return the multicast address of a group: the one that was chosen, else one of
    65,536 that follows from the name. So groups rarely read each other's datagrams."""
    high, low = divmod(group_id(group) % (1 << 16), 256)
    return config.group_address or f"239.255.{high}.{low}"


def place_of(stack: str, group: str, config: Config) -> str:
    """Return where the datagrams of a group go, for people: two groups that have the
    same place read each other's datagrams."""
    carrier = STACKS[stack].carrier
    if carrier.is_local:
        return "this process"
    if carrier.is_lossless:
        last = config.port + config.port_range - 1
        return f"{config.interface}, TCP ports {config.port} to {last}"
    return f"{multicast_address(group, config)}:{config.port} on {config.interface}"


UDP = Carrier(open_udp, largest_udp)
TCP = Carrier(open_tcp, is_lossless=True)
INPROC = Carrier(open_inproc, is_local=True)

STACKS = {
    "mcast-udp": StackSpec(Mcast, UDP),
    "mcast-tcp": StackSpec(Mcast, TCP),
    "nakack2-udp": StackSpec(Nakack2, UDP),
    "nakack2-tcp": StackSpec(Nakack2, TCP, {"xmit_interval": 0.0}),
    "inproc": StackSpec(Mcast, INPROC, {"form_margin": 100.0, "seek_interval": 5.0}),
}
assert tuple(STACKS) == STACK_NAMES
assert tuple(name for name, spec in STACKS.items() if not spec.carrier.is_local) == NETWORKED


def fitted(config: Config, stack: str, group: str, is_sealed: bool) -> Config:
    """Return the configuration that a channel of this group will have, whose datagrams
    fit the interface, also when they are sealed. Raises what the transport of `stack`
    raises."""
    largest = STACKS[stack].carrier.largest_datagram(group, config, is_sealed)
    return config.fitted(min(largest, config.max_datagram) - is_sealed * SEAL)


def build_stack(name: str, local: Address, config: Config, *, group: str, receive_budget: int,
                physical: str = "", anchor: int = 0, resume: Digest | None = None,
                receiving: bool = True, offset: int = 0, conn_id: int = 0, timestamp: int = 0,
                first_unicast: int = 0, filters: Sequence[Layer] = (),
                faults: Sequence[Layer] = (), durable: bool = False,
                sealed: bool = False, keyring: "Keyring | None" = None,
                observes: bool = False, send_budget: int = NO_LIMIT) -> Stack:
    """Build the stack of one member.

    Args:
        name: a row of STACKS.
        local: this member.
        config: the options.
        group: the name of the group.
        receive_budget: bytes that may be on their way to this member before some are
            lost.
        physical: where this member can be reached; opaque.
        anchor: nanoseconds to add to an instant to get wall time since 1970.
        resume: what an earlier incarnation of this member had finished.
        receiving: whether this member accepts messages.
        offset: the seqno after which its stream begins.
        conn_id, timestamp, first_unicast: the values of UNICAST3 before its first
            conn-id, timestamp and seqno.
        filters: layers between messages to single members and messages to all.
        faults: layers next to the wire.
        durable: whether this member is expected back when it goes without leaving.
        sealed: whether its transport seals datagrams.
        keyring: what makes and holds the keys of views, in a sealed group.
        observes: whether this member is an observer, for which nobody waits.
        send_budget: bytes that its messages to all, or to one member, may have on their
            way before some are lost here.
    """
    spec, budget = STACKS[name], Budget(receive_budget, send_budget)
    multicast = spec.multicast(local, config, budget, resume=resume, receiving=receiving,
                               offset=offset, lossless=spec.is_lossless, observes=observes)
    transfer = StateTransfer(local, config)
    more = OF_FLUSH + (OF_QUORUM if config.partition == "primary" else ())
    layers = [
        transfer,
        *(make(local, config, multicast) for make in spec.extra),
        Unreliable(local, receiving=receiving),
        Unicast3(local, config, budget, receiving=receiving, conn_id=conn_id, timestamp=timestamp,
                 offset=first_unicast),
        *filters,
        *([Stable(local, config, multicast)] if isinstance(multicast, Nakack2) else []),
        multicast,
        Ends(config, multicast),
        Membership(local, config, multicast, terms_of(name, config, more), transfer, durable,
                   keyring),
        Parts(config.max_datagram),
        *faults,
    ]
    return Stack(layers, local=local, group=group, physical=physical, anchor=anchor, sealed=sealed)
