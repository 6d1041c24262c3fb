"""Options: the properties of a channel, with name, default, range and unit.

Each option is a keyword argument of `Channel` and an option of the commands. If nothing
else is said, times are in milliseconds, sizes in bytes, and lengths of windows and
queues in messages. (Arguments called `timeout` are seconds, as everywhere in Python.)
Names that the protocol texts have are the texts' own.
"""

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from ringcast.errors import ConfigError

# Stacks whose members may be different processes, and all stacks. What they
# are made of is in stacks.py, which takes long to import.
NETWORKED = ("mcast-udp", "mcast-tcp", "nakack2-udp", "nakack2-tcp")
STACK_NAMES = (*NETWORKED, "inproc")

MAX_MEMBERS = 256   # a view, a table of members and an ack map stay small enough for one datagram
MAX_NAME = 64       # bytes of UTF-8 in a member's name
MAX_CAPACITY = 1 << 26  # messages of a window
MAX_RESUME = 1024   # entries of a digest that a returning member may bring

SEAL = 40                               # bytes by which a sealed datagram is longer
IDENTITY_SIZE = 32                      # bytes of a public key that signs
PROOF_SIZE = IDENTITY_SIZE + 64         # by which what is signed is longer
BULK_CHANNEL = 2                        # of sealed datagrams: those that carry messages ...
HURRIED_CHANNEL = 4                     # ... and those that pass them
UDP_HEADERS = 28                        # bytes of the IPv4 and UDP headers of a datagram
MIN_DATAGRAM = 512                      # bytes
MAX_DATAGRAM = 65_535 - UDP_HEADERS     # of IPv4, without the headers

SCAN_INTERVAL = 3.0                     # milliseconds
DAY = 86_400_000                        # milliseconds
SHORTEST = 0.001                        # milliseconds
LONGEST_ABSENCE = 31 * 86_400           # seconds

Count = Annotated[int, Meta(ge=1, le=10**18)]
Milliseconds = Annotated[float, Meta(ge=SHORTEST, le=DAY)]

COMMON = ("max_message_size",)          # options that all members of a group must share ...
OF_FLUSH = ("capacity", "max_bytes", "partition")   # ... because of the flush also these
OF_QUORUM = ("min_members",)            # ... and if only the primary part goes on, these


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of one channel: one list, with a comment above each option.

    Make it with `configure`, which checks every value. docs/reference.md has the same
    list as tables, and ringcast.Options as a type; docs/generate_reference.py reads the
    headings and comments here, and writes both.
    """

    # ---------------------------------------------------------------------- MCAST and NAKACK2

    # Messages that a send window or a receive window holds at most (MCAST.txt:
    # capacity).
    capacity: Annotated[int, Meta(ge=1, le=MAX_CAPACITY)] = 32_768

    # Bytes of messages that a window holds at most. While receivers wait for a repeat,
    # a send window holds up to half as many more, which they have (decision 7).
    max_bytes: Count = 8 << 20

    # Milliseconds between two scans, which repeat acks and the highest seqno; more in
    # large groups (decision 38). Gaps are looked for up to twelve times as often
    # (decision 9). 0 or less: no retransmission; only nakack2-tcp can do without.
    xmit_interval: Annotated[float, Meta(le=DAY)] = SCAN_INTERVAL

    # Delivered messages after which an ack is sent immediately (MCAST.txt: N).
    ack_threshold: Count = 4096

    # --------------------------------------------------------------------- NAKACK2 and STABLE

    # Use windows of fixed size instead of tables that grow with what they hold.
    use_ring_buffer: bool = False

    # Let a receiver free a message as soon as its own application has finished it;
    # otherwise when the applications of all members have. In a view of three or more
    # it keeps them for the others in any case, until they are stable.
    discard_delivered_msgs: bool = True

    # Messages that are kept while their receive window does not exist yet. Without
    # retransmission all are kept.
    become_server_queue_size: Count = 50

    # Milliseconds after which a gap is reported as a warning, where there is no
    # retransmission.
    gap_timeout: Milliseconds = 5_000.0

    # Milliseconds between two rounds of votes, while some message is not known to be
    # stable; more in large groups (decision 38).
    stable_interval: Milliseconds = 20.0

    # Finished bytes after which a vote is sent as soon as it is this member's turn
    # (decision 38).
    stable_bytes: Count = 1 << 20

    # ------------------------------------------------------------------------------- UNICAST3

    # Shortest time between two acks of one connection, in milliseconds (UNICAST3.txt:
    # min time).
    ack_min_interval: Milliseconds = 0.2

    # Longest time from when a message is finished until it is acknowledged, in
    # milliseconds (UNICAST3.txt: max time).
    ack_max_interval: Milliseconds = 1.0

    # Shortest time between two SEND_FIRST_SEQNOs to one member, and between two answers
    # to one member, in milliseconds.
    sync_min_interval: Milliseconds = 10.0

    # Milliseconds after which an idle connection closes; 0: it never does.
    conn_expiry_timeout: Annotated[float, Meta(ge=0, le=DAY)] = 120_000.0

    # Milliseconds after which a connection that closes is closed and forgotten.
    conn_close_timeout: Milliseconds = 10_000.0

    # Closed connections whose highest delivered seqno is remembered (decision 16).
    max_closed_connections: Annotated[int, Meta(ge=0)] = 1024

    # --------------------------------------------------------- messages larger than a datagram

    # Bytes of the largest message; the same at all members.
    max_message_size: Annotated[int, Meta(ge=1, le=1 << 31)] = 16 << 20

    # Milliseconds after which a receiver drops an incomplete message that its sender
    # does not go on with. A send() that waits for room gives such a message up after
    # half of that.
    frag_timeout: Milliseconds = 60_000.0

    # ----------------------------------------------------------------------------- membership

    # Milliseconds between two heartbeats of a member (ALIVE).
    heartbeat_interval: Milliseconds = 200.0

    # Milliseconds of silence after which a member is probed, and then suspected.
    suspect_timeout: Milliseconds = 2_000.0

    # Milliseconds between two questions of a member that looks for its group (SEEK).
    seek_interval: Milliseconds = 50.0

    # Milliseconds without anybody new, after which members without a group form one.
    form_margin: Milliseconds = 300.0

    # With fewer members this one forms no group; connect() waits for so many.
    min_members: Annotated[int, Meta(ge=1, le=MAX_MEMBERS)] = 1

    # What goes on when the group comes apart: "merge", every part; or "primary", only
    # the part with a majority of the last primary view: in the others send() raises
    # NoQuorumError. "primary" needs min_members, too.
    partition: Literal["merge", "primary"] = "merge"

    # Seconds for which the others wait for a durable member that went without leaving,
    # and keep what it has not acknowledged.
    absence: Annotated[float, Meta(ge=0.001, le=LONGEST_ABSENCE)] = 3_600.0

    # Milliseconds that connect() waits for a view of min_members, unless it is given a
    # timeout.
    join_timeout: Milliseconds = 30_000.0

    # Milliseconds that a member that leaves waits for the others to notice it.
    leave_timeout: Milliseconds = 2_000.0

    # ------------------------------------------------------------------- bundling and delivery

    # Bytes of the largest datagram. Over UDP, off loopback, it is limited to the
    # interface's MTU less 28 bytes of headers as well; give less if some part of the
    # path has a smaller MTU.
    max_datagram: Annotated[int, Meta(ge=MIN_DATAGRAM, le=MAX_DATAGRAM)] = MAX_DATAGRAM

    # Bytes of a datagram that several messages are bundled into; at most max_datagram.
    max_bundle_size: Annotated[int, Meta(ge=MIN_DATAGRAM, le=MAX_DATAGRAM)] = 60_000

    # Milliseconds that messages wait for others, after a full datagram; after any other
    # they leave at once, or as soon as the sender's thread gives way.
    bundle_delay: Milliseconds = 0.3

    # Deliver OOB messages at their place in the order, as a recorder of the order needs
    # it.
    oob_in_order: bool = False

    # Messages that the application may have at a time: given to it, and not finished by
    # it.
    max_undelivered: Count = 65_536

    # Bytes of messages that a member holds back until it has been given the
    # application's state; with more, their senders wait.
    state_backlog: Count = 1 << 30

    # Write what status() says into a file that only this user can read, at most every
    # 100 ms, for `ringcast status` and `ringcast top`.
    status_file: bool = True

    # Directory into which a trace for `ringcast audit` is written; empty: no trace.
    trace: str = ""

    # --------------------------------------------------------------------------- sealed groups

    # What encrypts and authenticates datagrams in a sealed group; the same at all
    # members. ChaCha20 is quicker where the processor has no instructions for AES.
    cipher: Literal["aes-256-gcm", "chacha20-poly1305"] = "aes-256-gcm"

    # Seconds after which the members of a view with a key get another one, by a view
    # with the same members; 0: only when the members change.
    rekey_interval: Annotated[float, Meta(ge=0, le=LONGEST_ABSENCE)] = 3_600.0

    # ----------------------------------------------------------------------------- UDP and TCP

    # Milliseconds that a thread that waits for a message polls the network before it
    # sleeps; 0: it sleeps at once, as it always does on a machine with one core.
    busy_poll: Annotated[float, Meta(ge=0, le=10)] = 0.1

    # UDP: port of the multicast group. TCP: the first port that a member tries to
    # listen on.
    port: Annotated[int, Meta(ge=1, le=65_535)] = 7700

    # IPv4 address of the network interface to use; one that is not loopback needs a
    # secret, trusted keys, or `insecure`.
    interface: str = "127.0.0.1"

    # Allow an interface other than loopback without a secret or trusted keys: everybody
    # on that network may read and write the group's messages.
    insecure: bool = False

    # ------------------------------------------------------------------------------------- UDP

    # IPv4 multicast address of the group; empty: one in 239.255.0.0/16 that follows
    # from its name.
    group_address: str = ""

    # Routers that a multicast datagram may pass, plus one; 0: it does not leave this
    # machine.
    ttl: Annotated[int, Meta(ge=0, le=255)] = 1

    # Bytes of receive buffer asked of the kernel for each socket; UDP needs 65536 or
    # more.
    receive_buffer: Annotated[int, Meta(ge=4096)] = 16 << 20

    # ------------------------------------------------------------------------------------- TCP

    # Number of ports, from `port` on; a member listens on the first that is free.
    port_range: Annotated[int, Meta(ge=1, le=1024)] = 32

    # Where other members may be, as address:port,address:port,...; empty: at the own
    # interface, on all ports of the range.
    hosts: str = ""

    # Bytes that may wait for a slow member; with more its connection is cut.
    max_unsent: Annotated[int, Meta(ge=1 << 20)] = 64 << 20

    # Milliseconds after which the connection to a peer that has vanished is cut.
    link_timeout: Milliseconds = 5_000.0

    @property
    def may_be_plain(self) -> bool:
        """Return whether datagrams may go over this interface that are not sealed."""
        return self.insecure or self.interface.startswith("127.")

    @property
    def scan_interval(self) -> float:
        """Return the time between two scans that other rules than NAKACK2's
        retransmission need: xmit_interval, or its default where that is 0 or less."""
        return self.xmit_interval if self.xmit_interval > 0 else SCAN_INTERVAL

    @property
    def max_payload(self) -> int:
        """Return the size of the largest message that fits one datagram, in bytes."""
        # Imported here, because Spark's workers may have no compiled core.
        from ringcast._core.wire import MAX_PAYLOAD

        return self.max_datagram - (MAX_DATAGRAM - MAX_PAYLOAD)

    def fitted(self, datagram: int) -> "Config":
        """Return the same options, but no datagram larger than `datagram` bytes."""
        largest = min(self.max_datagram, datagram)
        bundle = min(self.max_bundle_size, largest)
        if (largest, bundle) == (self.max_datagram, self.max_bundle_size):
            return self
        return msgspec.structs.replace(self, max_datagram=largest, max_bundle_size=bundle)


# What transports use that are opened without a channel. It is converted, as all others
# are, while one thread imports this: two threads that make what msgspec knows of a type
# at one time make the process crash.
DEFAULTS = msgspec.convert({}, Config)

# Which stacks have which options: those whose protocols and transport use them. All
# other stacks refuse them, so no option does nothing.
OF_STACKS = {
    STACK_NAMES:
        "capacity max_bytes xmit_interval ack_threshold ack_min_interval ack_max_interval "
        "sync_min_interval conn_expiry_timeout conn_close_timeout max_closed_connections "
        "max_message_size frag_timeout heartbeat_interval suspect_timeout seek_interval "
        "form_margin min_members partition absence join_timeout leave_timeout max_datagram "
        "max_bundle_size bundle_delay oob_in_order max_undelivered state_backlog status_file "
        "trace cipher rekey_interval",
    ("nakack2-udp", "nakack2-tcp"):
        "use_ring_buffer discard_delivered_msgs become_server_queue_size stable_interval "
        "stable_bytes",
    ("nakack2-tcp",): "gap_timeout",
    NETWORKED: "busy_poll port interface insecure",
    ("mcast-udp", "nakack2-udp"): "group_address ttl",
    ("mcast-udp", "nakack2-udp", "inproc"): "receive_buffer",
    ("mcast-tcp", "nakack2-tcp"): "port_range hosts max_unsent link_timeout",
}
STACKS_WITH = {name: stacks for stacks, names in OF_STACKS.items() for name in names.split()}


def configure(options: Mapping[str, Any], stack: str = "mcast-udp") -> Config:
    """Return the configuration of a stack, with `options` in the place of defaults.
    ConfigError names an option that does not exist, is out of its range, or is one that
    this stack does not have."""
    # Imported here, because Spark's workers may have no compiled core.
    from ringcast.stacks import STACKS

    check_stack(stack, STACKS)
    for name in options:
        if name not in Config.__struct_fields__:
            raise ConfigError(f"there is no option {name!r}; {suggestion(name)}")
    try:
        config = msgspec.convert({**STACKS[stack].defaults, **options}, Config, strict=False)
    except msgspec.ValidationError as error:
        name = str(error).rpartition("$.")[2].rstrip("`")
        raise ConfigError(refusal(name, options[name])) from None
    check_xmit_interval(config.xmit_interval, stack)
    check_owner(options, config, stack)
    return config.fitted(MAX_DATAGRAM)


def check_quorum(options: Mapping[str, Any]) -> None:
    """Raise ConfigError if a group may have two primary parts because nobody has said
    how many the first one needs."""
    if options.get("partition") == "primary" and "min_members" not in options:
        raise ConfigError('partition="primary" needs min_members, too: more than half of the '
                          "processes that you start. Else two that start apart would each be "
                          "the primary part")


def refusal(name: str, value: Any) -> str:
    """Return what an option takes, since it does not take this value."""
    taken = values({field.name: field.type for field in msgspec.structs.fields(Config)}[name])
    kind = "a " if "number" in taken else ""
    return (f"{name} takes {kind}{taken.replace('`, `', '` or `')}, not {value!r}; the page "
            "Reference of the documentation says what it means")


def values(annotation: Any) -> str:
    """Return the range of an option's values in words."""
    from msgspec import inspect

    kind = inspect.type_info(annotation)
    if isinstance(kind, inspect.BoolType):
        return "`True`, `False`"
    if isinstance(kind, inspect.StrType):
        return "text"
    if isinstance(kind, inspect.LiteralType):
        return ", ".join(f"`{value}`" for value in get_args(annotation))
    assert isinstance(kind, inspect.IntType | inspect.FloatType)
    whole = "whole number" if isinstance(kind, inspect.IntType) else "number"
    bounds = {"from": kind.ge, "above": kind.gt, "up to": kind.le}
    said = [f"{word} {bound:.12g}" for word, bound in bounds.items() if bound is not None]
    return " ".join([whole, *said])


def check_stack(stack: str, names: Collection[str]) -> None:
    """Raise ConfigError for a stack that is not one of these."""
    if not isinstance(stack, str) or stack not in names:
        kind = " that connects processes" if names == NETWORKED else ""
        raise ConfigError(f"there is no stack {stack!r}{kind}; choose one of {', '.join(names)}")


def terms_of(stack: str, config: Config, more: tuple[str, ...] = ()) -> dict[str, str]:
    """Return what all members of a group must share, as they tell each other: the
    stack, and the options COMMON and `more`."""
    return {"stack": stack, **{name: str(getattr(config, name)) for name in COMMON + more}}


def check_xmit_interval(value: float, stack: str) -> None:
    """Raise ConfigError if a stack cannot use this xmit_interval: 0 and less are for
    stacks that need no retransmission."""
    # Imported here, because Spark's workers may have no compiled core.
    from ringcast.stacks import STACKS

    if not -DAY <= value <= DAY:
        raise ConfigError(f"xmit_interval={value} is more than {DAY} milliseconds, which are a "
                          "day, away from 0; pass a number that is nearer to it")
    if 0 < value < SHORTEST:
        raise ConfigError(f"xmit_interval={value:g} is less than {SHORTEST} milliseconds; pass "
                          "more")
    if value <= 0 and not STACKS[stack].may_skip_retransmission:
        raise ConfigError(f"xmit_interval={value:g} means no retransmission, and {stack} needs "
                          "it; use nakack2-tcp, or pass more than 0")


def check_owner(names: Iterable[str], config: Config, stack: str) -> None:
    """Raise ConfigError if one of our stacks would ignore one of these options, and it
    has another value than its default. Of a stack of somebody else nothing is known."""
    for name in names if stack in STACK_NAMES else ():
        stacks = STACKS_WITH[name]
        if stack not in stacks and getattr(config, name) != getattr(DEFAULTS, name):
            raise ConfigError(f"{stack} has no option {name}; leave it out, or use "
                              f"{' or '.join(stacks)}")


def own_options(options: Mapping[str, Any], stack: str) -> dict[str, Any]:
    """Return the options without those that only other stacks have, for a program that
    gives the same options to several stacks."""
    return {name: value for name, value in options.items()
            if stack not in STACK_NAMES or stack in STACKS_WITH.get(name, STACK_NAMES)}


def suggestion(name: str) -> str:
    """Return what to do about an option that does not exist, for an error message."""
    options = Config.__struct_fields__
    close = difflib.get_close_matches(name, options, n=1) or [
        each for each in options if name and name in each]
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    return "the page Reference of the documentation has all options"


def nanoseconds(value: float) -> int:
    """Convert milliseconds, the unit of options, to nanoseconds, the unit of every
    instant inside the stack."""
    return int(value * 1_000_000)
