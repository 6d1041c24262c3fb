"""A small world for the membership layer alone: members whose multicast layer is made
of paper, and a network that loses, delays and cuts."""

import heapq
from random import Random

from ringcast.address import EVERYONE, Address
from ringcast.config import configure
from ringcast.protocols.membership import Membership
from ringcast.protocols.membership.state import StateTransfer
from ringcast.stack import Layer, Stack

MS = 1_000_000


class Gate:
    """What Voting needs of a send window: whether it takes messages."""

    def __init__(self):
        self.is_open = True

    def close(self):
        self.is_open = False

    def reopen(self):
        self.is_open = True


class PaperKeeping:
    """Of a layer without messages: it keeps nothing."""

    is_finished, is_too_much = True, False

    def low(self):
        return None

    def kept(self):
        return {}

    def has_finished(self):
        return self.is_finished

    def holds_too_much(self):
        return self.is_too_much


class Paper(Layer):
    """What Membership needs of a multicast layer: it sends nothing, and has
    everything."""

    observing = None

    def __init__(self, local, config):
        self.local, self.config = local, config
        self.send_window = Gate()
        self.sent = 0
        self.has = {}                   # up to where each stream has come
        self.known = []                 # views
        self.frozen = None
        self.agreed = []
        self.complete = True
        self.num_settled = self.num_released = 0
        self.keeping = PaperKeeping()
        self.failed_behind = []

    def prepare(self, now):
        if self.frozen is None:
            self.frozen = {**self.has, self.local.incarnation: self.sent}
        return dict(self.frozen)

    def lacking(self):
        return {}

    def may_end_at(self, cut):
        return True

    def has_told(self, sender, seqno):
        return self.frozen.get(sender, -1) >= seqno

    def can_give(self, sender, part):
        return True

    def withholding(self):
        return set()

    def agree(self, agreed):
        self.agreed.append(agreed)
        self.frozen = None

    def view(self, view, now):
        cuts = self.agreed[-1].cuts
        self.has = {member.incarnation: cuts[member.incarnation] for member in view.members}
        self.known.append(view)

    def is_complete(self):
        return self.complete

    def settle(self, is_released=True):
        self.num_settled += 1
        self.num_released += is_released

    def undelivered_behind(self, cut, end):
        self.failed_behind.append(cut)
        return []

    def refused(self, member, now):
        pass

    def linked(self, member, now):
        pass


class Node:
    def __init__(self, world, name, **options):
        self.world, self.name = world, name
        self.physical = f"{name}.{world.rng.getrandbits(32)}"
        self.address = Address(name, world.rng.getrandbits(63) + 1)
        durable = options.pop("durable", False)
        config = configure(world.options | options)
        self.paper = Paper(self.address, config)
        self.transfer = StateTransfer(self.address, config)
        self.layer = Membership(self.address, config, self.paper, {"stack": "paper"},
                                self.transfer, durable)
        self.stack = Stack([self.transfer, self.paper, self.layer], local=self.address,
                           group="world", physical=self.physical)
        self.alive, self.fault = True, None
        self.paused_until = 0
        self.inbox = []
        self.routes = {}
        self.alarm = None

    @property
    def views(self):
        return self.paper.known

    @property
    def view(self):
        return self.paper.known[-1] if self.paper.known else None

    def start(self):
        self.stack.start(self.world.now)
        self.end_turn()

    def arrive(self, datagram):
        if self.alive:
            self.inbox.append(datagram)
            self.world.at(max(self.world.now, self.paused_until), self.turn)

    def turn(self):
        if not self.alive or self.world.now < self.paused_until:
            return
        datagrams, self.inbox = self.inbox, []
        if datagrams:
            self.stack.receive(datagrams, self.world.now)
        self.stack.tick(self.world.now)
        self.end_turn()

    def pause(self, milliseconds):
        self.paused_until = self.world.now + int(milliseconds * MS)
        self.world.at(self.paused_until, self.turn)

    def end_turn(self):
        effects = self.stack.take()
        if effects.routes is not None:
            self.routes = effects.routes
        if effects.fault:
            self.fault = effects.fault
            self.crash()
        for dest, datagram in effects.packets:
            self.world.put(self, dest, datagram)
        deadline = self.stack.deadline()
        if deadline is not None and self.alive:
            at = max(deadline, self.world.now, self.paused_until)
            if self.alarm is None or at < self.alarm or self.alarm <= self.world.now:
                self.alarm = at
                self.world.at(at, self.ring, at)

    def ring(self, at):
        if at == self.alarm:
            self.alarm = None
            self.turn()

    def crash(self):
        self.alive = False

    def leave(self):
        self.layer.leave(self.world.now)
        self.end_turn()


class World:
    def __init__(self, seed=0, loss=0.0, delay=(50_000, 200_000), **options):
        self.rng = Random(f"world {seed}")
        self.loss, self.delay, self.options = loss, delay, options
        self.now = 0
        self.queue, self.number = [], 0
        self.nodes = {}
        self.cut = set()                # (from, to) names
        self.num_sent = self.num_bytes = 0
        self.tap = None                 # called with (node, kind, datagram) before it leaves

    def __getitem__(self, name):
        return self.nodes[name]

    def at(self, instant, do, *arguments):
        self.number += 1
        heapq.heappush(self.queue, (instant, self.number, do, arguments))

    def run(self, milliseconds):
        end = self.now + int(milliseconds * MS)
        while self.queue and self.queue[0][0] <= end:
            self.now, _, do, arguments = heapq.heappop(self.queue)
            do(*arguments)
        self.now = end

    def start(self, *names, within=0.0, **options):
        for name in names:
            node = self.nodes[name] = Node(self, name, **options)
            self.at(self.now + int(self.rng.random() * within * MS), node.start)
        return self

    def put(self, source, dest, datagram):
        if self.tap is not None:
            self.tap(source, datagram)
        if not source.alive:
            return
        self.num_sent += 1
        self.num_bytes += len(datagram)
        if dest == EVERYONE:
            targets = [node for node in self.nodes.values() if node is not source]
        else:
            physical = source.routes.get(dest)
            targets = [node for node in self.nodes.values() if node.physical == physical]
        for target in targets:
            if (source.name, target.name) in self.cut or self.rng.random() < self.loss:
                continue
            self.at(self.now + self.rng.randint(*self.delay), target.arrive, datagram)

    def partition(self, one, other):
        self.cut |= {(a, b) for a in one for b in other} | {(b, a) for a in one for b in other}

    def living(self):
        return [node for node in self.nodes.values() if node.alive]

    def run_until_one(self, milliseconds):
        """Run until all that live have one view with all of them; return how long that
        took, in milliseconds, or None."""
        began = self.now
        while self.now - began < milliseconds * MS:
            if self.is_one():
                return (self.now - began) / MS
            self.run(1)
        return None

    def is_one(self):
        living = self.living()
        everybody = {node.address for node in living}
        return len({node.view for node in living}) == 1 and living[0].view is not None and (
            set(living[0].view.members) == everybody)
