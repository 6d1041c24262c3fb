"""What the user fixes for the runs of all seeds. The rest is drawn from each seed.

A field is also an option of `ringcast simulate`: its name, its help and what its
default is called stand beside its type.
"""

from typing import Annotated, Any, NamedTuple

import msgspec

from ringcast.config import MAX_DATAGRAM, NETWORKED, check_stack, configure
from ringcast.errors import ConfigError

NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
FAULTS = ("crashes", "partitions", "pauses", "slow", "exclusions", "leaves", "jumps")
RATES = ("loss", "burst", "duplicate", "reorder", "corrupt", "truncate")
STEADY: dict[str, Any] = {              # values under a steady load, if no others are given
    "members": 3, "senders": 1, "size": 1000, "duration": 1.0, "delay": 0.2, "bandwidth": 125.0}


class Help(NamedTuple):
    """What `ringcast simulate --help` says about a setting."""

    meaning: str
    default: str | bool = "drawn"       # True: the default of the field


def rate(what: str) -> Help:
    """Return the help of a probability."""
    return Help(f"Probability that a datagram {what}, for each receiver of it.")


def times(what: str) -> Help:
    """Return the help of a number of faults."""
    return Help(f"How often in a run {what}.")


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One list of options: what is the same for all seeds. None means that each seed
    draws a value."""

    members: Annotated[int | None, Help("Members of the group.", "drawn, 2 to 12")] = None
    duration: Annotated[float | None, Help("Simulated seconds with load and faults. Then the "
                                           "network heals.")] = None
    messages: Annotated[int | None, Help("Messages that all members send together.")] = None
    size: Annotated[int | None, Help("Bytes of a message, at least.")] = None
    loss: Annotated[float | None, rate("is lost")] = None
    burst: Annotated[float | None, rate("begins a spell in which its link loses all")] = None
    duplicate: Annotated[float | None, rate("arrives twice")] = None
    reorder: Annotated[float | None, rate("is delayed, so that later ones overtake it")] = None
    corrupt: Annotated[float | None, rate("has bits flipped")] = None
    truncate: Annotated[float | None, rate("loses its end")] = None
    delay: Annotated[float | None, Help("Longest delay in milliseconds.")] = None
    crashes: Annotated[int | None, times("a member dies. Most come back")] = None
    partitions: Annotated[int | None, times("links are cut, in one direction or both, or "
                                            "delayed")] = None
    pauses: Annotated[int | None, times("a member pauses")] = None
    slow: Annotated[int | None, times("a receiver is slow for a while, or a send buffer "
                                      "full")] = None
    exclusions: Annotated[int | None, times("a member excludes another one, alive or dead")] = None
    leaves: Annotated[int | None, times("a member leaves in good order")] = None
    jumps: Annotated[int | None, times("a clock jumps ahead")] = None
    unicast: Annotated[int | None, Help("Messages to single members, all together.")] = None
    large: Annotated[int | None, Help("Messages to everybody that are too large for a datagram.",
                                      "0")] = None
    oob: Annotated[int | None, Help("OOB messages to everybody.", "0")] = None
    between: Annotated[int | None, Help("How often in 100, where it may, a member sends something "
                                        "between two fragments of a large message.", "0")] = None
    splits: Annotated[int | None, times("a member does not see another one, for messages to "
                                        "single members")] = None
    stack: Annotated[str, Help(f"The stack of the group: {', '.join(NETWORKED)}.",
                               True)] = "mcast-udp"
    breaks: Annotated[int | None, times("a connection breaks, on a stack over TCP")] = None
    outages: Annotated[int | None, times("a connection breaks and comes again late, at most once "
                                         "between two members")] = None
    switches: Annotated[int | None, Help("How often in a run a member switches retransmission off "
                                         "or on, on a stack that may do without.", "0")] = None
    threads: Annotated[int | None, Help("Threads of each member that send to one destination; "
                                        "messages are bundled for bundle_delay. 0: each message "
                                        "leaves at once.")] = None
    mtu: Annotated[int | None, Help("Bytes of a frame on the wire, behind a queue that may "
                                    "overflow. 0: datagrams travel whole.")] = None
    send_buffer: Annotated[int | None, Help("Bytes that may wait for a member's way out, on a "
                                            "stack over UDP. What finds no room is dropped. "
                                            "0: no limit.")] = None
    socket_buffer: Annotated[int | None, Help("Bytes that have arrived at a member and were not "
                                              "read yet. What finds no room is lost on a stack "
                                              "over UDP. Senders are granted the half.")] = None
    steady: Annotated[float | None, Help("Measure: each sender has so many messages to send in a "
                                         "simulated second, 0: as many as find room. No fault is "
                                         "drawn.", "a drawn load")] = None
    senders: Annotated[int | None, Help("With --steady: members that send.", "1")] = None
    bandwidth: Annotated[float | None, Help("With --steady: megabytes a second that a member can "
                                            "send, and receive.", "125")] = None
    durable: Annotated[int | None, Help("Members that are expected back when they have "
                                        "died.")] = None
    observers: Annotated[int | None, Help("Members for which nobody waits. Their applications are "
                                          "slow, or stand still until the end.", "0")] = None
    late: Annotated[int | None, Help("Members that start just when others are about to form a "
                                     "group.", "0")] = None
    sealed: Annotated[bool, Help("Seal the datagrams, as in a group with a secret, and let a "
                                 "stranger say again what it heard.", True)] = False
    trusted: Annotated[bool, Help("The same with keys that the members trust instead of a secret. "
                                  "Others, whose keys are not trusted, or not any more, try to be "
                                  "members.", True)] = False
    lasting: Annotated[bool, Help("After the faults some links stay cut for 45 simulated seconds, "
                                  "and nobody may stand still.", True)] = False
    options: dict[str, Any] = {}        # of the stack

    def of_seed(self, seed: int) -> "Settings":
        """Return the settings of a seed: these, unless they are Mixed (mixed.py)."""
        return self

    def check(self) -> None:
        """Raise ConfigError for what cannot be simulated."""
        if self.members is not None and not 1 <= self.members <= len(NAMES):
            raise ConfigError(f"a simulated group has 1 to {len(NAMES)} members, "
                              f"not {self.members}")
        for name in RATES:
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ConfigError(f"{name} is a probability of 0 or more and less than 1, "
                                  f"not {value}")
        for name in (*FAULTS, "messages", "size", "delay", "unicast", "large", "oob", "between",
                     "splits", "breaks", "outages", "switches", "threads", "steady", "durable",
                     "observers", "late", "send_buffer"):
            number = getattr(self, name)
            if number is not None and number < 0:
                raise ConfigError(f"{name} cannot be {number}")
        if self.duration is not None and not 0 < self.duration <= 86_400:
            raise ConfigError("duration is simulated seconds, more than 0 and at most a day, "
                              f"not {self.duration}")
        if self.size is not None and self.size > 60_000:
            raise ConfigError(f"a message has at most 60000 bytes here, not {self.size}")
        if "trace" in self.options:
            raise ConfigError("trace is no option of simulated members; give --trace DIR")
        if self.mtu and not 1100 <= self.mtu <= 65_535:
            raise ConfigError(f"mtu is 0, or bytes of a frame from 1100 to 65535, not {self.mtu}")
        if self.socket_buffer is not None and self.socket_buffer < MAX_DATAGRAM:
            raise ConfigError(f"socket_buffer has room for one datagram, {MAX_DATAGRAM} bytes or "
                              f"more, not {self.socket_buffer}")
        self._check_stack()
        self._check_steady()

    def _check_stack(self) -> None:
        """Raise ConfigError for a stack that cannot be simulated, and for faults that
        its transport cannot have."""
        from ringcast.stacks import STACKS  # takes long, and the help needs only names

        check_stack(self.stack, NETWORKED)
        is_lossless = STACKS[self.stack].is_lossless
        for name in RATES:
            if is_lossless and getattr(self, name):
                raise ConfigError(f"{name} is for datagrams; the connections of {self.stack} lose "
                                  "nothing, but they break: give breaks")
        for name in ("breaks", "outages"):
            if getattr(self, name) and not is_lossless:
                raise ConfigError(f"{self.stack} has no connections that could break; leave out "
                                  f"{name}")
        if self.switches and not STACKS[self.stack].may_skip_retransmission:
            raise ConfigError(f"{self.stack} always retransmits; leave out switches")
        configure(self.options, self.stack)

    def _check_steady(self) -> None:
        """Raise ConfigError for a steady load that cannot be simulated, and for its
        settings if there is none."""
        if self.steady is None:
            for name in ("senders", "bandwidth"):
                if getattr(self, name) is not None:
                    raise ConfigError(f"{name} is for a steady load; give steady, messages a "
                                      "second, or 0 for as many as find room")
            return
        if self.steady > 10_000_000:
            raise ConfigError(f"steady is at most 10000000 messages a second, not {self.steady:g}; "
                              "give 0 for as many as find room")
        members, senders = (pick(getattr(self, name), STEADY[name])
                            for name in ("members", "senders"))
        if members < 2:
            raise ConfigError("a steady load is measured at other members than its sender; give "
                              "2 members or more")
        if not 1 <= senders <= members:
            raise ConfigError(f"senders is from 1 to the number of members, {members}, "
                              f"not {senders}")
        if self.lasting:
            raise ConfigError("under a steady load no links are cut; leave out lasting")
        if self.messages is not None:
            raise ConfigError("a steady load has no number of messages; give duration, and "
                              "steady, messages a second")
        if self.mtu:
            raise ConfigError("under a steady load datagrams travel whole; leave out mtu")
        if self.bandwidth is not None and not 0.1 <= self.bandwidth <= 10_000:
            raise ConfigError("bandwidth is megabytes a second, from 0.1 to 10000, "
                              f"not {self.bandwidth:g}")


def pick(fixed: Any, drawn: Any) -> Any:
    """Return what the user fixed, else what was drawn.

    A value is always drawn, so that a setting changes nothing else of the seed.
    """
    return drawn if fixed is None else fixed
