"""A member without clock, thread or socket.

An endpoint is a stack, and what every member does around it: it bundles messages into
datagrams, cuts messages that are too large for one, counts what the application has in
hand, and leaves in good order. Channel gives it threads and a transport, the simulator
a simulated world, the fuzzer a program of bytes: so what they prove is the object that
ships.

Its owner calls one method at a time (the windows may be used by any thread, see
SendWindow), tells it the time, and then performs what `take` returns:

    endpoint.receive(datagrams, links, now)     # what came
    endpoint.finish(batches, now)               # what the application is done with
    endpoint.tick(now)                          # what is due
    endpoint.deliver(now)                       # what the application has room for
    effects = endpoint.take()                   # perform this, in the order of its fields
    endpoint.deadline()                         # when to call tick again, if nothing comes
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ringcast._core.batch import Batch
from ringcast._core.send_window import SendWindow
from ringcast.address import Address
from ringcast.config import Config, milliseconds
from ringcast.errors import NotMemberError
from ringcast.flags import FRAGMENT
from ringcast.protocols import frag
from ringcast.protocols.bundler import Bundler, Dest
from ringcast.protocols.multicast.base import Multicast
from ringcast.protocols.seqnos import MODULUS
from ringcast.protocols.static_members import StaticMembers
from ringcast.protocols.unicast3 import Unicast3
from ringcast.protocols.unreliable import Unreliable
from ringcast.stack import Effects, Instant, LayerT
from ringcast.stacks import build_stack
from ringcast.view import View

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Endpoint:
    """One member. `stack` is a row of ringcast.stacks.STACKS; the other arguments, and
    all keywords, are those of build_stack. `bundler` makes the object that decides when
    datagrams leave.

    `max_undelivered` may be changed at any time: messages that the application may have
    in hand.
    """

    def __init__(self, stack: str, local: Address, names: Sequence[str], config: Config, *,
                 bundler: type[Bundler] | Any = Bundler, **options: Any) -> None:
        self.local, self.config = local, config
        self.stack = build_stack(stack, local, names, config, **options)
        self.multicast = self.stack.layer(Multicast)
        self.unicast = self.stack.layer(Unicast3)
        self.unreliable = self.stack.layer(Unreliable)
        self.members = self.stack.layer(StaticMembers)
        self.bundler: Bundler = bundler(self.multicast, self.unicast,
                                        milliseconds(config.bundle_delay))
        self.max_undelivered = config.max_undelivered
        self.undelivered = 0                    # messages handed to the application, not finished
        self.view: View | None = None
        self.leaving: Leaving | None = None

    def layer(self, wanted: type[LayerT]) -> LayerT:
        """Return the layer of this type; LookupError when the stack has none."""
        return self.stack.layer(wanted)

    def start(self, now: Instant) -> None:
        """Begin: announce this member."""
        self.stack.start(now)

    # ----------------------------------------------------------------------------------- sending

    def window(self, dest: Dest, now: Instant) -> SendWindow:
        """Return where messages to `dest` go, of a new connection if there is none.
        NotMemberError when `dest` is not in the view."""
        if dest is None:
            return self.multicast.send_window
        return self.unicast.connection(dest, now).window

    def send_unreliable(self, payload: bytes, dest: Dest, flags: int, now: Instant) -> None:
        """Send a message without a seqno. NotMemberError when `dest` is not in the
        view."""
        if dest is not None and (self.view is None or dest not in self.view):
            raise NotMemberError(f"{dest} is not in the view, which is {self.view}")
        self.unreliable.send_one(payload, dest, flags, now)

    def num_unacked(self) -> int:
        """Return how many messages somebody has not acknowledged."""
        return self.multicast.unacked() + self.unicast.num_unacked()

    # --------------------------------------------------------------------------------- receiving

    def receive(self, datagrams: "Sequence[Buffer]", links: Sequence[int], now: Instant) -> None:
        """Bring in what came: first the members with new connections, then
        datagrams."""
        if links:
            self.stack.linked(links, now)
        if datagrams:
            self.stack.receive(datagrams, now)

    def finish(self, batches: Iterable[Batch], now: Instant) -> bool:
        """Note what the application has finished: it may be acknowledged. When the
        application had its hands full it gets more. Return whether it got any."""
        was_full = self.undelivered >= self.max_undelivered
        for batch in batches:
            self.undelivered -= len(batch)
            self.stack.delivered(batch, now)
        return (was_full or self.stack.effects.arrived) and self.deliver(now) > 0

    def deliver(self, now: Instant) -> int:
        """Hand the application as much as it has room for; return how many messages."""
        handed = self.stack.deliver(self.max_undelivered - self.undelivered, now)
        self.undelivered += handed
        return handed

    # -------------------------------------------------------------------------------------- time

    def tick(self, now: Instant) -> None:
        """Do what is due: what the layers wait for, bundles that have waited, the next
        step of leaving."""
        self.stack.tick(now)
        if self.bundler.due:
            self.bundler.flush_due(now)
        if self.leaving is not None:
            self.leaving.go_on(now)

    def deadline(self) -> Instant | None:
        """Return when tick has something to do, or None while nothing is pending."""
        earliest = self.stack.deadline()
        if self.bundler.due:
            earliest = sooner(earliest, self.bundler.deadline())
        if self.leaving is not None:
            earliest = sooner(earliest, self.leaving.deadline())
        return earliest

    def take(self) -> Effects:
        """Return what this turn asks for; perform it in the order of its fields."""
        effects = self.stack.take()
        if effects.views:
            self.view = effects.views[-1]
        for dest in effects.closed:
            self.bundler.forget(dest)
        return effects

    # ----------------------------------------------------------------------------------- leaving

    def stop_receiving(self, now: Instant) -> None:
        """Take no more messages: nobody is to wait for this member."""
        self.multicast.stop_receiving(now)
        self.unicast.stop_receiving(now)

    def leave(self, by: Instant | None, now: Instant) -> None:
        """Leave in good order, step by step with each tick; `has_left` says when that
        is done. At `by` wait no longer for acks (None: wait for ever)."""
        if self.leaving is None:
            self.stop_receiving(now)
            self.bundler.flush_all(now)
            self.leaving = Leaving(self, by, now)
            self.leaving.go_on(now)

    @property
    def has_left(self) -> bool:
        """Whether leaving is over: the others know, or have not said so for
        leave_timeout."""
        return self.leaving is not None and self.leaving.is_over

    def status(self) -> dict[str, int]:
        """Return pointers and counters of all layers."""
        return {**self.stack.status(), "num_undelivered": self.undelivered}


def sooner(one: Instant | None, other: Instant | None) -> Instant | None:
    """Return the earlier of two instants; None is never."""
    return min(one,
               other) if one is not None and other is not None else one if other is None else other


class Leaving:
    """The way out of a group, in three steps. First everybody acknowledges what was
    sent, and learns what was finished here. Then this member says goodbye. Then the
    others have a view without it.

    `by` may be brought forward by any thread."""

    def __init__(self, endpoint: Endpoint, by: Instant | None, now: Instant) -> None:
        self.endpoint = endpoint
        self.by = by                                    # when it waits no longer for acks
        self.patience = milliseconds(endpoint.config.leave_timeout)
        self.told_by = now + self.patience          # ... nor for others to learn what was finished
        self.gone_by: Instant | None = None         # ... nor for their views
        self.is_over = False

    @property
    def said_goodbye(self) -> bool:
        return self.gone_by is not None

    def deadline(self) -> Instant | None:
        """Return when it gives up what it waits for now."""
        if self.is_over:
            return None
        if self.gone_by is not None:
            return self.gone_by
        if self.endpoint.num_unacked():
            return self.by
        return self.told_by if self.by is None else min(self.told_by, self.by)

    def go_on(self, now: Instant) -> None:
        """Take the steps that are possible now."""
        endpoint = self.endpoint
        if self.gone_by is None:
            is_waiting = endpoint.num_unacked() or endpoint.unicast.untold()
            deadline = self.deadline()
            if is_waiting and (deadline is None or now < deadline):
                return
            endpoint.unicast.close_all(now)
            endpoint.members.leave(now)
            self.gone_by = now + self.patience
        self.is_over = endpoint.members.agreed() or now >= self.gone_by


class Fragments:
    """A message that is too large for a datagram, on its way into a send window. All
    fragments go into one window: a new connection gets all of them. In each stream one
    such message is sent at a time."""

    def __init__(self, payload: bytes, flags: int, config: Config) -> None:
        frag.check_size(payload, config.max_message_size)
        self.payload, self.flags = payload, flags | FRAGMENT
        self.bundle = config.max_bundle_size
        self.pieces: list[bytes] = []
        self.sent = 0                                   # of the pieces
        self.window: SendWindow | None = None

    def push(self, window: SendWindow) -> int:
        """Push what has room; return how many fragments that were."""
        if window is not self.window:
            number = (window.ring.hr + 1) % MODULUS  # the same whenever this incarnation sends the
                                                     # message
            self.window, self.sent = window, 0
            self.pieces = frag.cut(self.payload, number, self.bundle)
        taken = window.push_many(self.pieces, self.sent, self.flags)
        self.sent += taken
        return taken

    @property
    def is_sent(self) -> bool:
        """Whether the window has all of it."""
        return self.window is not None and self.sent == len(self.pieces)
