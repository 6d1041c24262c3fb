"""A member without clock, thread or socket.

An endpoint is a stack, and what every member does around it: it bundles messages into
datagrams, cuts messages that are too large for one, counts the messages that are
delivered and not finished, and leaves in good order. Channel gives it threads and a
transport, the simulator a simulated world, the fuzzer a program of bytes. So these
prove the object that users run.

Its owner calls one method at a time (but any thread may use the windows, see
SendWindow), passes the time as `now`, and then performs what `take` returns:

    endpoint.receive(datagrams, links, now, refused)    # what came
    endpoint.finish(batches, now)               # what the application has finished
    endpoint.tick(now)                          # what is due
    endpoint.deliver(now)                       # what the application has room for
    effects = endpoint.take(now)                # perform this, in the order of its fields
    endpoint.deadline()                         # when to call tick again, if nothing comes
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ringcast._core.batch import Batch
from ringcast._core.send_window import SendWindow
from ringcast.address import Address
from ringcast.config import Config, nanoseconds
from ringcast.errors import NotMemberError
from ringcast.flags import FRAGMENT
from ringcast.protocols import frag
from ringcast.protocols.bundler import Bundler, Dest
from ringcast.protocols.membership import Membership
from ringcast.protocols.membership.ends import Ends
from ringcast.protocols.membership.state import StateTransfer
from ringcast.protocols.multicast.base import Multicast
from ringcast.protocols.seqnos import MODULUS
from ringcast.protocols.unicast3 import Unicast3
from ringcast.protocols.unreliable import Unreliable
from ringcast.snapshot import Peer
from ringcast.stack import Effects, Instant, LayerT, sooner
from ringcast.stacks import build_stack
from ringcast.status import Layers
from ringcast.view import View

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Endpoint:
    """One member. `stack` names a row of ringcast.stacks.STACKS; the other arguments,
    and all keywords, are those of build_stack. `bundler` makes the object that decides
    when datagrams leave.

    `max_undelivered` is the number of messages that may be delivered and not finished;
    the owner may change it at any time.
    """

    def __init__(self, stack: str, local: Address, config: Config, *,
                 bundler: type[Bundler] | Any = Bundler, **options: Any) -> None:
        self.local, self.config = local, config
        self.stack = build_stack(stack, local, config, **options)
        self.multicast = self.stack.layer(Multicast)
        self.unicast = self.stack.layer(Unicast3)
        self.unreliable = self.stack.layer(Unreliable)
        self.members = self.stack.layer(Membership)
        self.ends = self.stack.layer(Ends)
        self.transfer = self.stack.layer(StateTransfer)
        self.bundler: Bundler = bundler(self.multicast, self.unicast,
                                        nanoseconds(config.bundle_delay))
        self.max_undelivered = config.max_undelivered
        self.undelivered = 0                    # messages delivered and not finished
        self.view: View | None = None
        # There was a view in which this member may send, with enough members: connect()
        # may return. Others may have left since, before its thread ran.
        self.has_joined = False
        self.leaving: Leaving | None = None

    def layer(self, wanted: type[LayerT]) -> LayerT:
        """Return the layer of this type; LookupError if the stack has none."""
        return self.stack.layer(wanted)

    def start(self, now: Instant) -> None:
        """Start the layers, which announce this member."""
        self.stack.start(now)

    @property
    def may_send(self) -> bool:
        """Return whether this member is in a part of its group that goes on. Where it
        is not, the send window to everybody is closed."""
        return self.members.voting.may_send

    # ----------------------------------------------------------------------------------- sending

    def window(self, dest: Dest, now: Instant) -> SendWindow:
        """Return the send window for `dest`; open a connection if there is none.
        NotMemberError if `dest` is not in the view."""
        if dest is None:
            return self.multicast.send_window
        return self.unicast.connection(dest, now).window

    def send_unreliable(self, payload: bytes, dest: Dest, flags: int, now: Instant) -> None:
        """Send a message without a seqno. NotMemberError if `dest` is not in the
        view."""
        if dest is not None and (self.view is None or dest not in self.view):
            raise NotMemberError(f"{dest} is not in the view, which is {self.view}")
        self.unreliable.send_one(payload, dest, flags, now)

    def num_unacked(self) -> int:
        """Return how many messages some member has not acknowledged."""
        return self.multicast.unacked() + self.unicast.num_unacked()

    # --------------------------------------------------------------------------------- receiving

    def receive(self, datagrams: "Sequence[Buffer]", links: Sequence[int], now: Instant,
                refused: Sequence[int] = (), emptied: bool = True) -> None:
        """Handle what came: first the members with new connections (`links`), then the
        datagrams, then the members whose processes seem to be gone (`refused`): their
        last datagrams came before. `emptied` says that nothing more had arrived. Who
        leaves may take its next step after that."""
        if links:
            self.stack.linked(links, now)
        self.stack.receive(datagrams, now, emptied)
        if refused:
            self.stack.refused(refused, now)
        if self.leaving is not None:
            self.leaving.advance(now)

    def finish(self, batches: Iterable[Batch], now: Instant) -> bool:
        """Note what the application has finished, so that it can be acknowledged. If
        the application had max_undelivered messages, deliver more; return whether it
        got any."""
        was_full = self.undelivered >= self.max_undelivered
        for batch in batches:
            self.undelivered -= len(batch)
            self.stack.delivered(batch, now)
        return (was_full or self.stack.effects.arrived) and self.deliver(now) > 0

    def deliver(self, now: Instant) -> int:
        """Deliver as many messages as the application has room for; return how many."""
        transfer, deliver = self.transfer, self.stack.deliver
        if transfer.to_finish or transfer.is_full:
            to_finish, transfer.to_finish = transfer.to_finish, []
            for batch in to_finish:
                self.undelivered -= len(batch)
                self.stack.delivered(batch, now)
            deliver = self.unicast.deliver if transfer.is_full else deliver
        handed = deliver(self.max_undelivered - self.undelivered, now)
        self.undelivered += handed
        return handed

    # -------------------------------------------------------------------------------------- time

    def tick(self, now: Instant) -> None:
        """Do what is due: the layers' timers, bundles that have waited long enough, and
        the next step of leaving."""
        self.stack.tick(now)
        if self.bundler.due:
            self.bundler.flush_due(now)
        if self.leaving is not None:
            self.leaving.advance(now)

    def deadline(self) -> Instant | None:
        """Return the instant when tick has something to do, or None if nothing is
        pending."""
        earliest = self.stack.deadline()
        if self.bundler.due:
            earliest = sooner(earliest, self.bundler.deadline())
        if self.leaving is not None:
            earliest = sooner(earliest, self.leaving.deadline())
        return earliest

    def take(self, now: Instant) -> Effects:
        """Return the effects of this turn; perform them in the order of the fields.
        What could not be sent because too much was on its way goes on first; where
        nobody need acknowledge that, the rest goes on in another turn."""
        window, effects = self.multicast.send_window, self.stack.effects
        if window.can_go_on:
            sent = window.sent
            self.multicast.flush(now)
            effects.arrived |= window.can_go_on and window.sent != sent
        effects = self.stack.take()
        self.undelivered += self.transfer.pass_on(effects)
        for view in effects.views:
            self.view = view
            self.has_joined = self.has_joined or self._is_enough(view)
        for dest in effects.closed:
            self.bundler.forget(dest)
        return effects

    def _is_enough(self, view: View) -> bool:
        """Return whether a view has enough members, and this one may send in it."""
        return (len(view) - len(view.observers) >= self.config.min_members
                and (view.primary or self.config.partition == "merge"))

    # ----------------------------------------------------------------------------------- leaving

    def stop_receiving(self, now: Instant) -> None:
        """Accept no more messages, and tell the others not to wait for this member."""
        self.multicast.stop_receiving(now)
        self.unicast.stop_receiving(now)

    def leave(self, by: Instant | None, now: Instant) -> None:
        """Begin to leave in good order; each tick may take a step, and `has_left` tells
        when it is done. Wait for acks until the instant `by` (None: for ever); without
        a view, for none."""
        if self.leaving is None:
            by = now if self.view is None else by
            self.stop_receiving(now)
            self.bundler.flush_all(now)
            self.leaving = Leaving(self, by, now)
            self.leaving.advance(now)

    @property
    def has_left(self) -> bool:
        """Return whether leaving is over: the others have noticed it, or leave_timeout
        has passed."""
        return self.leaving is not None and self.leaving.is_over

    def describe(self, status: Layers) -> None:
        """Write into `status` the pointers and counters of all layers."""
        self.stack.describe(status)
        status.delivery.num_undelivered = self.undelivered

    def slowest(self) -> Address | None:
        """Return the member that keeps the window to everybody from being freed, if it
        keeps a message and that member is known: while one is absent, nothing is
        freed."""
        if self.view is None or not self.multicast.unacked():
            return None
        if self.view.absent:
            return self.view.absent[0]
        number = self.multicast.slowest()
        return next((each for each in self.view.members if each.incarnation == number), None)

    def peers(self, now: Instant) -> list[Peer]:
        """Return how this member sees each member of the view, the oldest first."""
        multicast, detection, me = self.multicast, self.members.detection, self.local.incarnation
        peers = []
        view = self.view
        for member in view.members if view is not None else ():
            number = member.incarnation
            peer = Peer(name=member.name, incarnation=number, unacked=multicast.unacked_by(number),
                        suspected=number in detection.silent,
                        observes=view is not None and member in view.observers)
            if (window := multicast.windows.get(number)) is not None:
                peer.missing, peer.undelivered = window.ring.num_missing, window.num_stranded
            if number != me and number in detection.heard:
                peer.silent_for = (now - detection.heard[number]) / 1e9
            peers.append(peer)
        return peers

    def status(self) -> Layers:
        """Return the pointers and counters of all layers."""
        status = Layers()
        self.describe(status)
        return status


class Leaving:
    """Leaving a group takes three steps. First all members acknowledge what was sent,
    and learn what was finished here. Then this member tells them that it leaves. Then
    they install a view without it.

    Any thread may bring `by` forward.
    """

    def __init__(self, endpoint: Endpoint, by: Instant | None, now: Instant) -> None:
        self.endpoint = endpoint
        self.leave_timeout = nanoseconds(endpoint.config.leave_timeout)
        # Until when it waits for acks, for others to learn what was finished, for their
        # views.
        self.by = by
        self.learn_by = now + self.leave_timeout
        self.view_by: Instant | None = None
        self.is_over = False

    @property
    def has_said_goodbye(self) -> bool:
        """Return whether this member has told the others that it leaves."""
        return self.view_by is not None

    def deadline(self) -> Instant | None:
        """Return the instant when it stops waiting for what it waits for now."""
        if self.is_over:
            return None
        if self.view_by is not None:
            return self.view_by
        if self.endpoint.num_unacked():
            return self.by
        return self.learn_by if self.by is None else min(self.learn_by, self.by)

    def advance(self, now: Instant) -> None:
        """Take the steps that are possible now."""
        endpoint = self.endpoint
        if self.view_by is None:
            is_waiting = endpoint.num_unacked() or endpoint.unicast.peers_to_tell()
            deadline = self.deadline()
            if is_waiting and (deadline is None or now < deadline):
                return
            endpoint.unicast.send_closes(now)
            endpoint.members.leave(now)
            self.view_by = now + self.leave_timeout
        self.is_over = endpoint.members.agreed() or now >= self.view_by


class Fragments:
    """A message that is too large for a datagram, on its way into a send window.

    All fragments go into one window: if the connection is replaced, the new one gets
    all of them. They go in together if they are not too many (frag.goes_whole);
    otherwise other threads may send something between them. In each stream one such
    message is sent at a time.
    """

    def __init__(self, payload: bytes, flags: int, config: Config) -> None:
        frag.check_size(payload, config.max_message_size)
        self.payload, self.flags, self.config = payload, flags | FRAGMENT, config
        self.pieces: list[bytes] = []
        self.sent = 0                                   # pieces that are in the window
        self.window: SendWindow | None = None

    def push(self, window: SendWindow) -> int:
        """Push the fragments that have room; return how many."""
        if window is not self.window:
            # The number is the same each time a member of a Succession sends the
            # message.
            number = (window.ring.hr + 1) % MODULUS
            self.window, self.sent = window, 0
            self.pieces = frag.cut(self.payload, number, self.config.max_bundle_size)
        if not self.sent and frag.goes_whole(len(self.pieces), len(self.pieces[0]), self.config):
            taken = window.push_whole(self.pieces, self.flags)
        else:
            taken = window.push_many(self.pieces, self.sent, self.flags)
        self.sent += taken
        return taken

    def give_up(self) -> None:
        """Push no more, whether all is pushed or not."""
        if self.window is not None:
            self.window.give_up_whole()

    @property
    def is_sent(self) -> bool:
        """Return whether the window has all fragments."""
        return self.window is not None and self.sent == len(self.pieces)
