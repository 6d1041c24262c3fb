"""One incarnation of a member in a simulation: an endpoint, the one that ships, and a
simulated world around it.

Channel has a transport, threads and the user's application. Here there are parts that
do these jobs: a clock (clock.py), a transport (transport.py), the schedule of turns
(schedule.py), and the two halves of an application (producer.py, consumer.py). The
checkers look at the member after each turn.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ringcast.address import Address
from ringcast.config import SEAL, configure, nanoseconds
from ringcast.digest import Digest
from ringcast.endpoint import Endpoint
from ringcast.protocols.bundler import Dest
from ringcast.protocols.multicast.nakack2 import Nakack2
from ringcast.protocols.seqnos import precedes
from ringcast.sim.clock import Clock
from ringcast.sim.consumer import Consumer
from ringcast.sim.log import Log
from ringcast.sim.producer import Producer
from ringcast.sim.replica import Replica
from ringcast.sim.schedule import Schedule
from ringcast.sim.threads import PreemptedBundler
from ringcast.sim.transport import MemberTransport
from ringcast.sim.view_filter import ViewFilter
from ringcast.stack import Effects, Instant
from ringcast.stacks import STACKS
from ringcast.view import View

if TYPE_CHECKING:
    from ringcast.sim.cluster import Cluster

CLOSE_TIMEOUT = 5_000_000_000   # nanoseconds that a leaver waits for acks, as Channel.close()


class Member:
    """A process of the group.

    `physical` is its address; `offset` is the seqno before its first message, and
    `counters` is what comes before its first conn-id and its first timestamp;
    `socket_bytes` is the size of its socket buffer; `turn_time` is how long a turn
    keeps it busy, in nanoseconds. With `threads` its application sends from so many
    threads for each destination, and its messages are bundled (bundler.py); with 0 they
    leave in the instant in which they are sent. `replica` is a role in state transfer
    (replica.py). All other keywords are options of the stack.

    A `durable` member is expected back when it has died. For one that `observes`
    nobody waits.
    """

    producer_type: type[Producer] = Producer
    consumer_type: type[Consumer] = Consumer

    def __init__(self, cluster: "Cluster", name: str, *, resume: Digest | None = None,
                 receiving: bool = True, offset: int = 0, counters: int = 0,
                 physical: str | None = None, clock: Clock | None = None,
                 socket_bytes: int = 1 << 24, turn_time: int = 0, threads: int = 0,
                 receive_budget: int | None = None, durable: bool = False, replica: str = "",
                 observes: bool = False, send_budget: int | None = None, **options: object) -> None:
        self.cluster = cluster
        self.name = name
        self.physical = physical or name
        self.clock = clock or Clock()
        self.address = Address(name, cluster.rng.getrandbits(63) + 1)
        self.incarnation = self.address.incarnation
        config = configure(cluster.options | options, cluster.stack)
        largest = min(config.max_datagram, cluster.network.largest)
        self.config = config.fitted(largest - SEAL * (cluster.sealing is not None))
        self.resume: Digest = resume or Digest()
        self.receiving = receiving
        self.durable = durable
        self.observes = observes
        self.offset = offset
        self.log = Log(offset)          # its messages to everybody
        self.keyring = None
        if cluster.sealing is not None:
            self.keyring = cluster.sealing.keyring(self.incarnation, name)
        self.transport = MemberTransport(self, socket_bytes, STACKS[cluster.stack].is_lossless)
        self.schedule = Schedule(self, turn_time)
        self.consumer: Consumer = self.consumer_type(self)
        self.producer: Producer = self.producer_type(self, threads)
        self.view_filter = ViewFilter(partial(cluster.checkers.installed, self))
        self.endpoint: Endpoint = Endpoint(
            cluster.stack, self.address, self.config, group="simulated",
            physical=self.physical, resume=resume, receiving=receiving,
            # The kernel counts twice what is sent.
            receive_budget=socket_bytes // 2 if receive_budget is None else receive_budget,
            send_budget=cluster.network.send_budget if send_budget is None else send_budget,
            offset=offset, conn_id=counters, timestamp=counters, first_unicast=offset,
            anchor=cluster.now - self.now, filters=[self.view_filter],
            bundler=partial(PreemptedBundler, self.producer.threads), durable=durable,
            observes=observes,
            sealed=cluster.sealing is not None,
            keyring=self.keyring)
        self.stack, self.members = self.endpoint.stack, self.endpoint.members
        self.multicast, self.unicast = self.endpoint.multicast, self.endpoint.unicast
        self.replica = Replica(self, replica) if replica else None
        self.views: list[View] = []
        self.warnings: list[str] = []
        self.alive = True
        self.fault: str | None = None   # why it stopped, if it did so by itself
        # Turns after which it had got messages of its own that were not framed; turns
        # after which some of its messages had no room on their way.
        self.num_ahead = self.num_held = 0

    @property
    def now(self) -> Instant:
        """Return what its clock shows, in nanoseconds."""
        return self.clock.read(self.cluster.now)

    @property
    def left(self) -> bool:
        """Return whether it has said goodbye."""
        return self.endpoint.leaving is not None and self.endpoint.leaving.has_said_goodbye

    @property
    def last(self) -> int:
        """The seqno of the last message that it sent. A message that it gave up in the
        middle does not count."""
        return self.log.last

    # -------------------------------------------------------------------------- what happens to it

    def start(self) -> None:
        """Announce the member."""
        self.transport.say_hello()
        self.endpoint.start(self.now)
        self.turn()

    def arrive(self, datagram: bytes) -> None:
        """Take a datagram from the network, if the socket has room."""
        if self.transport.arrive(datagram):
            self.schedule.request_turn(has_work=False)

    def linked(self, other: int) -> None:
        """Note a new connection to another member."""
        self.transport.new_links.append(other)
        self.request_turn()

    def refused(self, other: int) -> None:
        """Note that the process of another member refused a datagram, because it is
        gone."""
        self.transport.refused[other] = None
        self.request_turn()

    def request_turn(self) -> None:
        """Schedule the next turn for when the process is free."""
        self.schedule.request_turn()

    def pause(self, nanoseconds: int) -> None:
        """Stop the process for so long, while its socket fills up."""
        self.schedule.pause(nanoseconds)

    def end_pause(self) -> None:
        """Let the process go on now."""
        self.schedule.end_pause()
        self.producer.threads.resume()

    def crash(self, lingers: int = 0) -> None:
        """End the process; all that it had in memory is lost. What it has sent over
        connections still arrives if it takes at most `lingers` nanoseconds."""
        self.alive = False
        if lingers:
            self.cluster.at(self.cluster.now + lingers, self.cluster.unbind, self)
        else:
            self.cluster.unbind(self)

    def hide(self, name: str) -> None:
        """Take a member out of its view, for messages to single members."""
        self.view_filter.hide(name, self.now)
        self.request_turn()

    def show(self, name: str) -> None:
        """End what hide() began."""
        self.view_filter.show(name, self.now)
        self.request_turn()

    # -------------------------------------------------------------------------- what its user does

    def send(self, *payloads: bytes) -> int:
        """Send as many as find room now; return how many."""
        taken = self.producer.send(list(payloads))
        self.turn()
        return taken

    def offer(self, count: int, size: int, is_oob: bool = False) -> None:
        """Send `count` messages of `size` bytes and more, as soon as there is room."""
        self.producer.offer(count, size, is_oob)
        self.request_turn()

    def send_unicast(self, to: str, count: int, size: int, is_oob: bool = False) -> None:
        """Send `count` messages of `size` bytes and more to the member `to` of its
        view, as soon as there is room."""
        for address in self.views[-1].members if self.views else ():
            if address.name == to and self.endpoint.leaving is None:
                self.producer.offer_unicast(address, count, size, is_oob)
                self.request_turn()

    def change_interval(self, milli: float) -> None:
        """Change xmit_interval; 0 is NAKACK2 without retransmission."""
        assert isinstance(self.multicast, Nakack2)
        self.multicast.change_interval(nanoseconds(milli), self.now)
        self.request_turn()

    def stop_receiving(self) -> None:
        """Take no more messages: nobody is to wait for this member."""
        self.receiving = False
        self.endpoint.stop_receiving(self.now)
        self.request_turn()

    def leave(self) -> None:
        """Leave in good order: take no more messages, wait for acks, and say
        goodbye."""
        if self.endpoint.leaving is None and self.alive:
            self.producer.stop()
            self.receiving = False
            self.endpoint.leave(self.now + CLOSE_TIMEOUT, self.now)
            self.request_turn()

    def exclude(self, name: str) -> None:
        """Take a member out of the group."""
        self.members.exclude(name, self.now)
        self.request_turn()

    # --------------------------------------------------------------------------------------- turns

    def turn(self, datagrams: Sequence[bytes] = ()) -> None:
        """Bring in what arrived, let the layers decide, perform what they ask for, and
        check."""
        if not self.alive:
            return
        now = self.now
        self.schedule.begin_turn()
        is_due = self.schedule.is_due(now) or not datagrams
        self.endpoint.receive(datagrams, self.transport.take_links(), now,
                              self.transport.take_refused(), self.transport.emptied)
        self.consumer.report_all(now)
        if is_due:                          # as in Driver.poll
            self.endpoint.tick(now)
        self.producer.begin(now)
        if self.replica is not None:
            self.replica.push(now)
        self.producer.threads.preempt()
        self.endpoint.deliver(now)
        self._end_turn(now)

    def flush(self, dest: Dest, full_only: bool) -> None:
        """Take the turn of a thread that sends what waits for `dest`."""
        now = self.now
        self.schedule.begin_turn()
        self.endpoint.bundler.flush(dest, now, full_only)
        self._end_turn(now)
        self.endpoint.bundler.rest(dest, now, self.schedule.busy_until)
        if dest is None and self.multicast.hears_itself():
            self.request_turn()

    def _end_turn(self, now: Instant) -> None:
        self.producer.log_layers()
        self._perform(self.endpoint.take(now), now)
        window = self.multicast.send_window
        self.num_ahead += precedes(window.sent, self.multicast.own.finished)
        self.num_held += window.is_held
        if self.endpoint.has_left and self.alive:
            self.crash()
        self.cluster.checkers.after_turn(self)
        self.cluster.observer.after_turn(self)
        if self.alive:
            self.schedule.set_alarm()

    def _perform(self, effects: Effects, now: Instant) -> None:
        """Perform the fields in their order. If the application finishes something at
        once, or sends, there may be more to perform."""
        while True:
            if effects.routes is not None:
                self.transport.routes = effects.routes
            for installed in effects.installed:
                self.cluster.observer.installed(self, installed)
            if effects.keys is not None:
                self.transport.rekey(effects.keys)
            if effects.packets:
                self.transport.put(effects.packets)
                if not self.alive:          # it died at a datagram (deaths.py)
                    break
            for view in effects.views if self.replica is None else ():
                self._view(view)
            if self.replica is not None:
                self._replicate(self.replica, effects, now)
            for batch in effects.deliveries:
                self.consumer.take(batch, now)
            for batch in effects.failures:
                self.cluster.checkers.undelivered(self, batch)
            self.warnings += effects.warnings
            if effects.arrived:
                self.request_turn()
            for dest in effects.closed:
                self.producer.close_port(dest)
            if effects.writable:
                self.producer.resume(now)
            if effects.fault is not None:
                self.fault = effects.fault
                self.cluster.checkers.stopped(self)
                self.crash()
            if not effects.deliveries and not effects.writable:
                break
            if effects.deliveries:          # what it has finished of them may make room for more
                self.endpoint.deliver(now)
            effects = self.endpoint.take(now)

    def _replicate(self, replica: Replica, effects: Effects, now: Instant) -> None:
        """Check what the layers deliver when they do; give the replica what the
        application gets."""
        views, batches = effects.came or (effects.views, effects.deliveries)
        for view in views:
            self._view(view)
        for view in effects.views:
            for giving in effects.givings:
                if giving.place == view.id:
                    replica.give(giving)
            replica.view(view)
        for batch in effects.deliveries:
            replica.deliver(batch)
        for batch in batches:
            if not any(batch is each for each in effects.deliveries):
                self.consumer.hold(batch)
        released = [batch for batch in effects.deliveries
                    if not any(batch is each for each in batches)]
        effects.deliveries = [batch for batch in effects.deliveries if batch not in released]
        self.endpoint.finish(released, now)
        for news in effects.state:
            replica.take(news, now)
        if effects.givings or effects.writable:
            self.request_turn()

    def _view(self, view: View) -> None:
        self.views.append(view)
        self.producer.close_ports()
        self.cluster.checkers.viewed(self, view)
        self.cluster.observer.viewed(self, view)
