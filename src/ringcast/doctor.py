"""Checks of a machine, an interface and a group: what is wrong here. Each
gives a sentence that says what was found and one that says what to do.

A check is a function that is given what was measured, so it can be tried with every
fault. `measure` measures. It listens and sends only on the interface of the options,
which is loopback unless somebody chose another one. What it sends goes to a port of its
own, so no member of any group gets it.
"""

import ctypes
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Literal

import msgspec

from ringcast._core import wire
from ringcast.address import EVERYONE
from ringcast.config import (
    MAX_DATAGRAM,
    OF_FLUSH,
    OF_QUORUM,
    UDP_HEADERS,
    Config,
    nanoseconds,
    terms_of,
)
from ringcast.errors import ConfigError, TransportError
from ringcast.protocols.membership.messages import Present
from ringcast.snapshot import Snapshot
from ringcast.stack import group_id
from ringcast.stacks import multicast_address, place_of
from ringcast.statusfile import Life, life_of
from ringcast.transport.udp import UdpTransport, largest_datagram
from ringcast.units import counted

PLAIN = wire.make_header(0, 0, 0, 0)[:3]        # magic and version of a datagram
SEALED = b"RS\x01"                              # and of a sealed one
PATIENCE = 1_000_000_000                        # nanoseconds in which a datagram comes back
TRIES = 4               # ports that are tried
CLOCKSOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
QUICK_CLOCKS = {"tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"}
TIME_ERROR = 5                                  # of adjtimex(2): nothing keeps the clock right
LARGEST_PACKET = MAX_DATAGRAM + UDP_HEADERS     # of IPv4, as loopback has them
ETHERNET_PACKET = 1_500
BLOCKED = 1.0                                   # seconds for which a send waits; more is not usual


class Finding(msgspec.Struct, frozen=True):
    """Says what a check has found. A fault keeps a group from working. What a warning
    names costs time, makes times differ, or is good to know."""

    check: str
    level: Literal["ok", "warning", "fault"]
    text: str
    advice: str = ""


class Heard(msgspec.Struct):
    """What came to the address and port of a group within a while."""

    ours: int = 0               # datagrams of the group
    sealed: int = 0             # sealed datagrams, of whatever group
    foreign: int = 0            # of other groups
    other_version: int = 0      # of other versions of ringcast
    strange: int = 0            # of other programs

    def count(self, datagram: bytes, group: int) -> None:
        """Count a datagram."""
        if datagram[:3] == SEALED:
            self.sealed += 1
        elif datagram[:2] in (PLAIN[:2], SEALED[:2]) and datagram[:3] != PLAIN:
            self.other_version += 1
        elif datagram[:3] != PLAIN:
            self.strange += 1
        elif wire.is_foreign(datagram, group):
            self.foreign += 1
        else:
            self.ours += 1


class Measured(msgspec.Struct, kw_only=True):
    """What was measured. None: it could not be, or the stack does not need it."""

    place: str
    refusal: str | None = None          # why no socket could be opened
    came_back: bool | None = None       # a datagram to a multicast address
    granted: int | None = None          # bytes of receive buffer
    mtu: int | None = None
    is_loopback: bool = True
    clocksource: str | None = None
    is_synchronised: bool | None = None
    heard: Heard | None = None


def measure(group: str, stack: str, config: Config, seconds: float) -> Measured:
    """Measure this machine, and listen to the group for so many seconds."""
    measured = Measured(place=place_of(stack, group, config), clocksource=clocksource(),
                        is_synchronised=is_synchronised(),
                        is_loopback=config.interface.startswith("127."))
    if not stack.endswith("udp"):
        return measured
    address = multicast_address(group, config)
    try:
        measured.mtu = UDP_HEADERS + largest_datagram(address, config.port, config.interface, True)
        with closing(open_udp(address, config.port, config)) as ears:
            measured.granted = ears.receive_budget
            measured.came_back = comes_back(address, config)
            measured.heard = listen(ears, group_id(group), seconds)
    except (ConfigError, TransportError) as error:
        measured.refusal = str(error)
    return measured


def open_udp(address: str, port: int, config: Config) -> UdpTransport:
    """Open a transport that hears, and sends nothing but a random number to itself: so
    it may be on any interface without a key."""
    return UdpTransport(group_address=address, port=port, interface=config.interface,
                        ttl=config.ttl, receive_buffer=config.receive_buffer, insecure=True)


def comes_back(address: str, config: Config) -> bool:
    """Return whether a datagram to the multicast address comes to another socket of
    this machine, at a port that no group has."""
    for _ in range(TRIES - 1):
        with suppress(TransportError):                  # another program may use the port
            return comes_back_once(address, config)
    return comes_back_once(address, config)


def comes_back_once(address: str, config: Config) -> bool:
    """Return whether a datagram to one port comes back."""
    port = 20_000 + secrets.randbelow(40_000)
    sign = b"ringcast doctor " + secrets.token_bytes(16)
    with closing(open_udp(address, port, config)) as mouth:
        with closing(open_udp(address, port, config)) as ear:
            mouth.put([(EVERYONE, sign)])
            end = time.monotonic_ns() + PATIENCE
            while (left := end - time.monotonic_ns()) > 0:
                if any(bytes(datagram) == sign for datagram in ear.poll(left)):
                    return True
    return False


def listen(ears: UdpTransport, group: int, seconds: float) -> Heard:
    """Return what comes within so many seconds."""
    heard, end = Heard(), time.monotonic_ns() + nanoseconds(1000 * seconds)
    while (left := end - time.monotonic_ns()) > 0:
        for datagram in ears.poll(left):
            heard.count(bytes(datagram), group)
    return heard


def clocksource() -> str | None:
    """Return the name of the hardware clock that the kernel reads, if it tells."""
    try:
        return CLOCKSOURCE.read_text().strip()
    except OSError:
        return None


def is_synchronised() -> bool | None:
    """Return whether something keeps the wall clock right, if the kernel tells."""
    try:
        state: int = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != TIME_ERROR


# ------------------------------------------------------------------------------------------- checks


def examine(group: str, stack: str, config: Config, measured: Measured,
            snapshots: Iterable[Snapshot], answers: Iterable[Present] | None = (),
            assumed: Collection[str] = (),
            before: Iterable[Snapshot] = ()) -> list[Finding]:
    """Return what all checks have found. `snapshots` are those of all groups here, and
    `answers` what members of this group have said over the network, one for each view;
    None: they could not be asked, because that would go over a wire without a seal.
    `assumed` are options of which nobody has said that members have them. Of faults
    that members count, those that stand in the snapshots `before` are over."""
    known, over = list(snapshots), {each.incarnation: each for each in before}
    return [*check_machine(config, measured), *check_clocks(measured),
            *check_heard(measured), *check_group(group, stack, measured, known, over),
            *(check_answers(stack, config, list(answers), assumed) if answers is not None else [
                Finding("group", "warning",
                        f"no member was asked: without a key nothing is said on {measured.place}",
                        "give --secret-file or --trust; or --set insecure=true, if the members "
                        "have no key")])]


def check_machine(config: Config, measured: Measured) -> Iterator[Finding]:
    """Check sockets, multicast, buffers and MTU."""
    if measured.refusal is not None:
        yield Finding("socket", "fault", f"no socket at {measured.place}", measured.refusal)
        return
    if measured.came_back is True:
        yield Finding("multicast", "ok", f"a datagram came back on {config.interface}")
    elif measured.came_back is False:
        yield Finding(
            "multicast", "fault",
            f"a datagram that was sent to a multicast address on {config.interface} did not come "
            "back",
            "a firewall drops it, or the interface has no multicast (`ip link` shows MULTICAST; "
            "`ip link set DEV multicast on`); if it cannot be had, take a stack over TCP")
    if measured.granted is not None:
        if measured.granted >= config.receive_buffer:
            yield Finding("buffers", "ok", f"the kernel grants {measured.granted:,} bytes")
        else:
            yield Finding(
                "buffers", "warning",
                f"the kernel grants {measured.granted:,} bytes of receive buffer, and "
                f"{config.receive_buffer:,} were asked for: bursts are lost, and senders are held "
                "back",
                f"`sysctl -w net.core.rmem_max={config.receive_buffer}`, or a smaller option "
                "receive_buffer")
    if measured.mtu is not None:
        usual = LARGEST_PACKET if measured.is_loopback else ETHERNET_PACKET
        if measured.mtu >= usual:
            yield Finding("mtu", "ok", f"a packet has up to {measured.mtu:,} bytes")
        else:
            yield Finding(
                "mtu", "warning",
                f"a packet of {config.interface} has up to {measured.mtu:,} bytes, and "
                f"{usual:,} are usual: " + (
                    "the kernel cuts each datagram into many" if measured.is_loopback else
                    "a member behind a larger MTU may send what does not arrive here"),
                f"`ip link set DEV mtu {usual}`, or the option max_datagram="
                f"{measured.mtu - UDP_HEADERS} at all members")


def check_clocks(measured: Measured) -> Iterator[Finding]:
    """Check the clocks."""
    if measured.clocksource is not None:
        if measured.clocksource in QUICK_CLOCKS:
            yield Finding("clock", "ok", f"the kernel reads {measured.clocksource}, which is quick")
        else:
            yield Finding(
                "clock", "warning",
                f"the kernel reads the clock {measured.clocksource}, which takes microseconds, "
                "several times in each turn",
                f"see what {CLOCKSOURCE.with_name('available_clocksource')} offers; in a virtual "
                "machine, ask its host")
    if measured.is_synchronised is False:
        yield Finding(
            "wall clock", "warning", "nothing keeps the wall clock of this machine right",
            "start chrony or systemd-timesyncd; members work without it, but times in logs and "
            "traces of several machines do not fit together")
    elif measured.is_synchronised:
        yield Finding("wall clock", "ok", "it is kept right")


def check_heard(measured: Measured) -> Iterator[Finding]:
    """Check what came to the group's address and port."""
    heard, place = measured.heard, measured.place
    if heard is None:
        return
    if heard.foreign:
        yield Finding(
            "two groups", "fault",
            f"{counted(heard.foreign, 'datagram')} of another group came to {place}: each group "
            "reads all that the other sends",
            "give one of them another option port or group_address")
    if heard.other_version:
        yield Finding(
            "version", "fault",
            f"{counted(heard.other_version, 'datagram')} of another version of ringcast came to "
            f"{place}",
            "bring all members to one version, which `ringcast --version` tells")
    if heard.strange:
        yield Finding(
            "strangers", "warning",
            f"{counted(heard.strange, 'datagram')} not of ringcast came to {place}",
            "another program sends there; choose another option port or group_address")
    if heard.sealed and heard.ours:
        yield Finding(
            "secret", "fault",
            f"sealed datagrams and others came to {place}: some members have a secret or trusted "
            "keys, others none", "give all members the same secret, or the same trusted keys")
    if not (heard.foreign or heard.other_version or heard.strange):
        came = heard.ours + heard.sealed
        yield Finding("traffic", "ok", f"{counted(came, 'datagram')} came, all of members of one "
                                       "kind" if came else "nobody sends")


def check_group(group: str, stack: str, measured: Measured, known: list[Snapshot],
                over: Mapping[int, Snapshot]) -> Iterator[Finding]:
    """Check what the members of the group on this machine say, and who else is at their
    place."""
    mine = [each for each in known if each.group == group]
    living = [each for each in mine if life_of(each) in (Life.RUNNING, Life.UNKNOWN)]
    yield from check_lives(mine, over)
    for what, value_of in SHARED.items():
        values = Counter(map(value_of, living))
        if len(values) > 1:
            said = ", ".join(f"{count} with {value}" for value, count in values.most_common())
            yield Finding(what, "fault", f"members here differ: {said}",
                          f"they never meet: give all of them the same {ADVICE[what]}")
    yield from check_views(living)
    others = sorted({each.group for each in known if each.group != group
                     and each.place == measured.place and life_of(each) is Life.RUNNING})
    if others and measured.heard is not None and not measured.heard.foreign:
        yield Finding("two groups", "fault",
                      f"the group {', '.join(map(repr, others))} is at {measured.place}, too",
                      "give one of them another option port or group_address")
    if living and stack not in (stacks := {each.stack for each in living}):
        yield Finding("stack", "warning", f"the members here have {living[0].stack}, not {stack}",
                      f"say --stack {min(stacks)} to look at them")


SHARED: dict[str, Callable[[Snapshot], str]] = {        # what members must share to meet
    "version": lambda each: f"ringcast {each.version}", "stack": lambda each: each.stack,
    "place": lambda each: each.place,
    "secret": lambda each: "a secret or keys" if each.is_sealed else "none"}
ADVICE = {"version": "version, with pip", "stack": "argument stack", "secret": "secret or keys",
          "place": "options interface, port and group_address"}


def check_answers(stack: str, config: Config, answers: list[Present],
                  assumed: Collection[str]) -> Iterator[Finding]:
    """Check what members have answered, wherever they are: whether they are in one
    view, and whether a member with these options could join them."""
    more = OF_FLUSH + (OF_QUORUM if config.partition == "primary" else ())
    ours = terms_of(stack, config, more)
    if len(answers) > 1:
        views = "; ".join(", ".join(map(repr, answer.names)) for answer in answers)
        yield Finding("group", "fault", f"the group is in {len(answers)} views: {views}",
                      "wait a few seconds, for a parted group becomes one again; if it does not, "
                      "they differ in their options, or do not hear each other")
    elif answers:
        yield Finding("group", "ok", f"{counted(answers[0].size, 'member')} answered, in one view")
    for term, value in ours.items():
        common = {answer.terms.get(term, value) for answer in answers}
        if term in assumed and len(common) == 1 and common != {value}:
            yield Finding("terms", "warning",
                          f"all have {term}={common.pop()!r}, and by default it is {value!r}: a "
                          "member with that would not be let in",
                          f"give {term} to all new members, too, and to the doctor with --set")
            continue
        for answer in answers:
            if (theirs := answer.terms.get(term, value)) != value:
                yield Finding("terms", "fault",
                              f"{answer.name!r} has {term}={theirs!r}, and a member with these "
                              f"options would have {term}={value!r}: it would not be let in",
                              f"give all members of the group the same {term}")


def check_lives(mine: Iterable[Snapshot],
                over: Mapping[int, Snapshot]) -> Iterator[Finding]:
    """Check the processes of members, and what each says about itself."""
    for each in mine:
        life, counts = life_of(each), each.status
        if life is Life.DEAD:
            yield Finding("process", "fault", f"{each.name!r} is dead (process {each.pid})",
                          "`ringcast monitor --past` tells what it saw last; the file goes when "
                          "the member is started again")
        elif life is Life.STOPPED:
            yield Finding("process", "fault", f"{each.name!r} is stopped (process {each.pid})",
                          f"`kill -CONT {each.pid}` lets it go on")
        elif each.fault is not None:
            yield Finding("process", "fault", f"{each.name!r} has closed by itself", each.fault)
        elif (time.time_ns() - each.written_at) / 1e9 > each.quiet_after:
            yield Finding("process", "fault", f"{each.name!r} takes no turns (process {each.pid})",
                          "the machine is overloaded, or something holds the interpreter")
        past = over.get(each.incarnation)
        if strange := unsealed(each):
            is_over = past is not None and unsealed(past) == strange
            yield Finding("secret", "warning" if is_over else "fault",
                          f"{each.name!r} {'has heard' if is_over else 'hears'} members with "
                          "another secret or a key that it does not trust, or with none"
                          f"{', but hears them no more' * is_over}",
                          "give all members the same secret, or the same trusted keys")
        if refused := counts.membership.num_refused:
            is_over = past is not None and past.status.membership.num_refused == refused
            yield Finding("terms", "warning" if is_over else "fault",
                          f"{each.name!r} has refused members with other options or another stack"
                          f"{', but nobody just now' * is_over}",
                          "the log of those members names what differs")
        if (blocked := each.longest_waiting()) is not None and blocked.seconds > BLOCKED:
            slowest = each.awaited(blocked)
            whoever = "some member" if slowest is None else repr(slowest)
            yield Finding("application", "warning",
                          f"{each.name!r} has waited {blocked.seconds:.0f} s for room to send",
                          f"see whether {whoever} takes its messages")
        if counts.delivery.num_undelivered >= each.max_undelivered:
            yield Finding("application", "warning",
                          f"the application of {each.name!r} has {each.max_undelivered:,} "
                          "messages that it does not finish, so all senders wait",
                          "make it quicker, or give it more threads")


def unsealed(snapshot: Snapshot) -> int:
    """Return how often a member has heard somebody who has not its secret or keys."""
    seal = snapshot.status.seal
    return 0 if seal is None else seal.hellos_refused + seal.datagrams_unsealed


def check_views(living: Iterable[Snapshot]) -> Iterator[Finding]:
    """Check whether members that could meet are in one view."""
    views: dict[tuple[str, str, bool], dict[int, list[str]]] = {}
    for each in living:
        if each.state == "member":
            views.setdefault((each.stack, each.place, each.is_sealed), {}).setdefault(
                each.view_id, []).append(each.name)
    for found in views.values():
        if len(found) > 1:
            parts = "; ".join(", ".join(map(repr, names)) for names in found.values())
            yield Finding("views", "fault", f"members here are in several views: {parts}",
                          "wait a few seconds, for a parted group becomes one again; if it does "
                          "not, they do not hear each other")
        elif found:
            yield Finding("views", "ok",
                          f"{counted(sum(map(len, found.values())), 'member')} here, in one view")
