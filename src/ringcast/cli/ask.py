"""Ask a group who is in it, without joining it."""

import time
from contextlib import closing
from typing import Any

from ringcast import Address, arguments
from ringcast.access import open_access
from ringcast.address import new_incarnation
from ringcast.channel.seeking import Seeking
from ringcast.config import configure, nanoseconds
from ringcast.discovery import parse
from ringcast.protocols.membership.asking import Asking
from ringcast.protocols.membership.messages import Present
from ringcast.protocols.parts import Parts
from ringcast.secret import Secret
from ringcast.stack import Stack
from ringcast.stacks import needs_ports, open_transport
from ringcast.trust import Trust

LOOK = 20_000_000       # nanoseconds between two looks for addresses that were found


def ask(group: str, stack: str, discovery: str, timeout: float, options: dict[str, Any],
        secret: Secret | None = None, trust: Trust | None = None) -> list[Present]:
    """Return the views of a group, those of most members first. End as soon as a few
    questions bring nothing new, or after `timeout` seconds."""
    config = configure(options, stack)
    local = Address("nobody", new_incarnation())
    access = open_access(arguments.text("group", group), local.incarnation, config, secret, trust)
    finder = parse(discovery, needs_ports=needs_ports(stack))
    with closing(finder), closing(open_transport(
            stack, group, local.incarnation, config, access)) as transport:
        asking, seeking = Asking(config), Seeking(finder, transport)
        layers = Stack([asking, Parts(config.fitted(transport.max_datagram).max_datagram)],
                       local=local, group=group, physical=transport.physical,
                       sealed=access is not None)
        end = time.monotonic_ns() + nanoseconds(1000 * timeout)
        layers.start(now := time.monotonic_ns())
        while now < end and not asking.is_over:
            seeking.tell(now)
            transport.put(layers.take().packets)
            wait = min(asking.deadline(), end, now + LOOK) - now
            datagrams = transport.poll(max(0, wait))
            now = time.monotonic_ns()
            layers.linked(transport.links(), now)
            layers.receive(datagrams, now)
            layers.tick(now)
        return sorted(asking.found.values(), key=lambda view: (-view.size, view.view_id))
