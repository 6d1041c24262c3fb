"""A process that is flooded: python flood.py STACK FLOOD. It may take MORE bytes of
address space beyond those that it has when the flood begins. What a hostile member
sends is many times that, so whatever keeps it without a bound ends the process."""

import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from group import GROUPS, Group
from honest import Honest
from hostile import HOSTILE, STRANGER, make_run

from ringcast._core import wire
from ringcast.address import EVERYONE
from ringcast.config import MAX_MEMBERS
from ringcast.flags import FRAGMENT, Flag
from ringcast.protocols.frag import HEAD
from ringcast.protocols.membership import messages
from ringcast.protocols.multicast import base as multicast, fetching, mcast, stable
from ringcast.protocols.unicast3 import control
from ringcast.protocols.unreliable import UNRELIABLE

MORE = 16 << 20                         # bytes
SENT = 8 * MORE                         # bytes that a flood has, at least ...
MOST = 30_000                           # ... or so many datagrams
SIZE = 60_000                           # bytes of the largest messages
STEP = 2_000                            # nanoseconds from one datagram to the next
Said = tuple[int, bytes, int]           # kind, body, sender


class Roomy:
    """A group whose windows have so much room that a leak is seen: more than bounds.py
    is about."""

    def honest(self, name: str, stack: str, options: dict[str, Any]) -> Honest:
        return Honest(name, stack, **options | {
            "capacity": 8192, "max_bytes": 1 << 20, "max_bundle_size": SIZE,
            "max_message_size": 1 << 20, "max_closed_connections": 1000,
            "become_server_queue_size": 1000})

    def check(self, member: Honest) -> None:
        pass


def never_low(group: Group) -> Iterator[Said]:
    """Say large messages in order, and never that all have them."""
    for seqno in range(1, MOST):
        yield multicast.DATA, make_run(seqno, 0, [bytes(SIZE)]), HOSTILE


def first_fragments(group: Group) -> Iterator[Said]:
    """Say the first part of messages in order, or out of order, and no second one."""
    for seqno in range(1, MOST):
        part = HEAD.pack(seqno, 0, 1000) + bytes(4_000)
        flags = FRAGMENT | (int(Flag.OOB) if seqno % 2 else 0)
        yield multicast.DATA, make_run(seqno, flags, [part] * 1), HOSTILE
        if seqno % 8 == 0:
            yield highest(group, seqno)


def highest(group: Group, low: int) -> Said:
    body = multicast.Highest(low, low, group.members[0].view_id)
    return multicast.HIGHEST, msgspec.msgpack.encode(body), HOSTILE


def of_strangers(group: Group) -> Iterator[Said]:
    """Say messages as members that no view has."""
    for number in range(MOST):
        kind = (multicast.DATA, control.FIRST, control.MESSAGE, UNRELIABLE)[number % 4]
        body = make_run(1, 0, [bytes(5_000)])
        if kind in (control.FIRST, control.MESSAGE):
            body = number.to_bytes(8, "little") + body
        yield kind, body, STRANGER + (number << 32)


def of_connections(group: Group) -> Iterator[Said]:
    """Open one connection after the other, with messages behind a gap."""
    for conn_id in range(1, MOST):
        body = conn_id.to_bytes(8, "little") + make_run(2 + conn_id % 3, 0, [bytes(5_000)])
        yield (control.FIRST, control.MESSAGE)[conn_id % 2], body, HOSTILE


def of_joiners(group: Group) -> Iterator[Said]:
    """Seek, and say that there are other views, as ever more members."""
    layer = group.members[0].members
    terms, view_id = layer.meeting.terms, layer.view_id
    for number in range(MOST):
        sender, name, far = STRANGER + (number << 32), f"{number:060}", view_id + (number << 32)
        where = chr(0x1F600) * 240 + f"{number}"                # four bytes each
        kind, body = ((messages.SEEK, messages.Seek(name, where, terms, 2)),
                      (messages.PRESENT, messages.Present(name, where, terms, far, 9, 5, None, [])),
                      (messages.ALIVE, messages.Alive(far, far)))[number % 3]
        yield kind, msgspec.msgpack.encode(body), sender


def of_views(group: Group) -> Iterator[Said]:
    """Say views of 50 members, one after the other, none of which is there."""
    view_id = group.members[0].members.view_id
    for number in range(MOST // 6):
        sender, far = STRANGER + (number << 32), view_id + (number << 32)
        seats = [messages.Seat(f"{number:050}/{each}", sender + each, "x" * 100, 0)
                 for each in range(50)]
        kind, body = ((messages.OFFER, messages.Install(far, seats, [], [])),
                      (messages.PREPARE, messages.Prepare(far, seats)))[number % 2]
        yield kind, msgspec.msgpack.encode(body), sender


def numbers(group: Group) -> Iterator[Said]:
    """Say acks, votes, announcements and requests, with numbers far away and tables as
    large as they may be."""
    target, view_id = group.members[0].incarnation, group.members[0].view_id
    for number in range(MOST // 3):
        far = number << 40
        digest = {far + each: (far, far) for each in range(MAX_MEMBERS)}
        some: tuple[tuple[int, Any], ...] = (
            (mcast.ACK, [{target: far} | dict.fromkeys(range(MAX_MEMBERS - 1), far), far]),
            (multicast.HIGHEST, [far, far, view_id]),
            (multicast.XMIT_REQ, [[(1, far)] * 2000]),
            (fetching.FETCH, fetching.Fetch(far, [(1, far)])),
            (stable.VOTE, [view_id + number, True, 1500, digest]),
            (stable.STABILITY, [view_id + number, 1500, digest, {}]))
        kind, body = some[number % len(some)]
        yield kind, msgspec.msgpack.encode(body), HOSTILE


FLOODS: dict[str, Callable[[Group], Iterator[Said]]] = {
    flood.__name__: flood for flood in (never_low, first_fragments, of_strangers, of_connections,
                                        of_joiners, of_views, numbers)}


def flood(group: Group, said: Iterator[Said]) -> tuple[int, int]:
    """Let a member hear it. Its application takes and finishes all that comes. Return
    how many datagrams and bytes there were."""
    member = group.members[0]
    count = size = 0
    for kind, body, sender in said:
        if kind in member.stack.kinds and size < SENT:
            datagram = wire.make_datagram(kind, group.id, sender, EVERYONE, body)
            count, size = count + 1, size + len(datagram)
            hear(member, datagram, group.now + count * STEP)
    return count, size


def hear(member: Honest, datagram: bytes, now: int) -> None:
    endpoint = member.endpoint
    endpoint.receive([datagram], [], now)
    endpoint.tick(now)
    endpoint.deliver(now)
    endpoint.finish(endpoint.take().deliveries, now)


def space() -> int:
    """Return how many bytes of address space this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    _, stack, name = sys.argv
    group = type("Flooded", (Roomy, GROUPS[stack]), {})(b"", stack)
    resource.setrlimit(resource.RLIMIT_AS, (space() + MORE, resource.RLIM_INFINITY))
    before = space()
    count, size = flood(group, FLOODS[name](group))
    print(f"{count} datagrams, {size >> 20} MiB, {(space() - before) >> 20} MiB more")
