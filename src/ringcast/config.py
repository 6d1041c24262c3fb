"""Every property of a stack: its name (the texts' own where they have one), unit,
default and range.

All of them are keyword arguments of `Channel` and options of the commands. Times here
are milliseconds, sizes are bytes, seqno-shaped things are counted in messages.
(Arguments called `timeout` are seconds, as everywhere in Python.)
"""

import difflib
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ringcast.errors import ConfigError

MAX_MEMBERS = 256   # a view, a table of members and an ack map stay small enough for one datagram
MAX_NAME = 64       # bytes of UTF-8 in a member's name
MAX_RESUME = 1024   # entries of a digest that a returning member may bring

MIN_DATAGRAM = 512                      # bytes
MAX_DATAGRAM = 65_507                   # of IPv4

SCAN_INTERVAL = 3.0                     # milliseconds
DAY = 86_400_000                        # milliseconds

Count = Annotated[int, Meta(ge=1)]
Milliseconds = Annotated[float, Meta(gt=0, le=DAY)]

COMMON = ("max_message_size",)          # properties that all members of a group must share


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The properties of one channel; build it with `configure`, which turns mistakes
    into sentences."""

    # MCAST and NAKACK2
    capacity: Annotated[int, Meta(ge=1, le=1 << 26)] = 32_768      # messages in a transmission
                                                                   # window (MCAST.txt: capacity)
    max_bytes: Annotated[int, Meta(ge=1)] = 8 << 20                # bytes in a transmission window
                                                                   # (decision 7)
    xmit_interval: Annotated[float, Meta(le=DAY)] = SCAN_INTERVAL  # between looks for gaps, repeats
                                                                   # of the highest, acks; 0 or
                                                                   # less, as nakack2-tcp has it: no
                                                                   # retransmission
    ack_threshold: Count = 4096                                    # deliveries after which an ack
                                                                   # goes out at once (MCAST.txt: N)
    # NAKACK2 and STABLE
    use_ring_buffer: bool = False         # windows of fixed size instead of tables that grow
    discard_delivered_msgs: bool = True   # a receiver gives up what it has finished before all have
                                          # it
    become_server_queue_size: Count = 50  # messages that wait for a window; without retransmission
                                          # all do
    gap_timeout: Milliseconds = 5_000.0   # until a gap is reported, where there is no
                                          # retransmission
    stable_interval: Milliseconds = 20.0  # between rounds, while anything is not known to be stable
    stable_bytes: Count = 1 << 20         # bytes finished after which a round begins at once
    # UNICAST3
    ack_min_interval: Milliseconds = 0.2                       # between two acks of one connection
                                                               # (UNICAST3.txt: min time)
    ack_max_interval: Milliseconds = 1.0                       # until a message that was taken is
                                                               # acknowledged (max time)
    sync_min_interval: Milliseconds = 10.0                     # between SEND_FIRST_SEQNOs to one
                                                               # member, and between answers
    conn_expiry_timeout: Annotated[float, Meta(ge=0, le=DAY)] = 120_000.0  # of an idle connection
                                                                # until it closes; 0: never
    conn_close_timeout: Milliseconds = 10_000.0                # of a closing connection until it is
                                                               # closed and forgotten
    max_closed_connections: Annotated[int, Meta(ge=0)] = 1024  # of which it is remembered what was
                                                               # delivered (decision 16)
    # messages larger than a datagram
    max_message_size: Annotated[int, Meta(ge=1, le=1 << 31)] = 16 << 20  # bytes of the largest
                                                                # message; the same at all members
    frag_timeout: Milliseconds = 60_000.0  # until a message whose sender has stopped sending it is
                                           # dropped
    # membership: a list given at start
    hello_interval: Milliseconds = 100.0    # between announcements while somebody has not agreed
    join_timeout: Milliseconds = 30_000.0   # for all listed members to appear
    leave_timeout: Milliseconds = 2_000.0   # for the others to notice that this member leaves
    # bundling and delivery
    max_bundle_size: Annotated[int, Meta(ge=512, le=65_507)] = 60_000  # bytes of a datagram that
                                        # messages are packed into; no more than max_datagram
    bundle_delay: Milliseconds = 0.3  # how long a message may wait for company
    oob_in_order: bool = False        # deliver OOB messages in their place: for who keeps the order
    max_undelivered: Count = 65_536   # messages handed to the application and not yet finished by
                                      # it
    trace: str = ""                   # directory that gets a trace for `ringcast audit`; "": none
    # UDP and TCP
    busy_poll: Annotated[float, Meta(ge=0, le=10)] = 0.1  # looks for an answer this long before it
                                                          # sleeps, where that pays
    port: Annotated[int, Meta(ge=1, le=65_535)] = 7700    # UDP: of the multicast group; TCP: the
                                                          # first that is tried
    interface: str = "127.0.0.1"                          # address of the interface to use;
                                                          # loopback unless insecure
    insecure: bool = False                                # allow an interface other than loopback,
                                                          # without encryption
    # UDP
    max_datagram: Annotated[int, Meta(ge=MIN_DATAGRAM, le=MAX_DATAGRAM)] = MAX_DATAGRAM
                                        # bytes of any datagram. Off loopback it is no more than one
                                        # frame of the interface carries (its MTU less 28); give
                                        # less where the way has a narrower part
    group_address: str = "239.255.77.1"                       # IPv4 multicast group
    ttl: Annotated[int, Meta(ge=0, le=255)] = 1               # routers that a multicast may pass,
                                                              # plus one
    receive_buffer: Annotated[int, Meta(ge=4096)] = 16 << 20  # bytes asked of the kernel for each
                                                              # socket
    # TCP
    port_range: Annotated[int, Meta(ge=1, le=1024)] = 32     # ports that a member may listen on,
                                                             # from `port` on
    hosts: str = ""                                          # where members may be:
                                                             # address:port,address:port,...; or all
                                                             # ports of the range at the own
                                                             # interface
    max_unsent: Annotated[int, Meta(ge=1 << 20)] = 64 << 20  # bytes that wait for a slow member
                                                             # before its connection is cut
    link_timeout: Milliseconds = 5_000.0                     # until a connection is cut whose other
                                                             # end has vanished

    @property
    def scan_interval(self) -> float:
        """Between looks for whatever is repaired even where NAKACK2 does without
        retransmission: xmit_interval, or its default."""
        return self.xmit_interval if self.xmit_interval > 0 else SCAN_INTERVAL

    @property
    def max_payload(self) -> int:
        """Bytes of the largest message that fits one datagram."""
        from ringcast._core.wire import MAX_PAYLOAD  # here, because Spark's workers may have no
                                                     # compiled core

        return self.max_datagram - (MAX_DATAGRAM - MAX_PAYLOAD)

    def fitted(self, datagram: int) -> "Config":
        """Return the same with no datagram larger than `datagram` bytes."""
        largest = min(self.max_datagram, datagram)
        bundle = min(self.max_bundle_size, largest)
        if (largest, bundle) == (self.max_datagram, self.max_bundle_size):
            return self
        return msgspec.structs.replace(self, max_datagram=largest, max_bundle_size=bundle)


def configure(options: dict[str, Any], stack: str = "mcast-udp") -> Config:
    """The configuration of a stack that `options` describe; ConfigError names the
    option that is unknown or out of its range."""
    from ringcast.stacks import STACKS  # here, because Spark's workers may have no compiled core

    if not isinstance(stack, str) or stack not in STACKS:
        raise ConfigError(f"there is no stack {stack!r}; choose one of {', '.join(STACKS)}")
    for name in options:
        if name not in Config.__struct_fields__:
            raise ConfigError(f"there is no option {name!r}; {suggestion(name)}")
    try:
        config = msgspec.convert({**STACKS[stack].defaults, **options}, Config, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{error}; see ringcast.config.Config for each option's unit and range".replace("$.", "")) from None
    check_xmit_interval(config.xmit_interval, stack)
    return config.fitted(MAX_DATAGRAM)


def terms_of(stack: str, config: Config) -> dict[str, str]:
    """Return what all members of a group must share, as each tells the others."""
    return {"stack": stack, **{name: str(getattr(config, name)) for name in COMMON}}


def check_xmit_interval(value: float, stack: str) -> None:
    """Raise ConfigError when a stack cannot do with this one; 0 and less are for those
    that need no retransmission."""
    from ringcast.stacks import STACKS  # here, because Spark's workers may have no compiled core

    if value > DAY:
        raise ConfigError(f"xmit_interval={value:g} is not a number of milliseconds up to {DAY}, which is a day")
    if value <= 0 and not STACKS[stack].may_skip_retransmission:
        raise ConfigError(f"xmit_interval={value:g} is no retransmission, and {stack} needs it; use nakack2-tcp, or pass more than 0")


def suggestion(name: str) -> str:
    """What to do about an option that does not exist."""
    close = difflib.get_close_matches(name, Config.__struct_fields__, n=1)
    return f"did you mean {close[0]!r}?" if close else f"the options are {', '.join(Config.__struct_fields__)}"


def milliseconds(value: float) -> int:
    """Nanoseconds, the unit of every instant inside the stack."""
    return int(value * 1_000_000)
