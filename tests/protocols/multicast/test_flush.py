"""The flush: what the layers of reliable multicast do about views that the members
agree on. Several layers, of both protocols, over a small wire; the membership is a fake
that calls prepare() on all, takes the maximum of the reports, and calls agree() and
view()."""

import heapq
import itertools
from random import Random

import pytest

from ringcast import Address, Flag, Skipped
from ringcast._core import wire
from ringcast.address import EVERYONE
from ringcast.config import configure, own_options
from ringcast.protocols.budget import Budget
from ringcast.protocols.frag import HEAD, cut as fragments_of
from ringcast.protocols.multicast import keeping
from ringcast.protocols.multicast.base import DATA, HIGHEST, REPEAT, XMIT_REQ
from ringcast.protocols.multicast.fetching import FETCH, HELD, Fetch
from ringcast.protocols.multicast.flush import MOST_PENDING, Agreed
from ringcast.protocols.multicast.mcast import ACK
from ringcast.protocols.multicast.stable import STABILITY, VOTE, Stable
from ringcast.stack import Stack
from ringcast.stacks import STACKS
from ringcast.view import View

MS = 1_000_000
FRAGMENT = 8
OPTIONS = {"capacity": 64, "ack_threshold": 8, "max_bundle_size": 600, "max_datagram": 1200}
PROTOCOLS = ["mcast-udp", "nakack2-udp", "nakack2-tcp"]


class Process:
    """A member: a stack of one multicast layer, and an application that notes what it
    is given. It finishes messages at once, while it `finishes`."""

    def __init__(self, wire, name, protocol, receiving=True, observes=False, **options):
        self.wire, self.name, self.observes = wire, name, observes
        self.address = Address(name, next(wire.incarnations))
        config = configure(own_options(OPTIONS | options, protocol), protocol)
        spec = STACKS[protocol]
        self.multicast = spec.multicast(self.address, config, Budget(1 << 22),
                                        receiving=receiving, lossless=spec.is_lossless,
                                        observes=observes)
        layers = [Stable(self.address, config, self.multicast)] if spec.votes else []
        self.stack = Stack([*layers, self.multicast], local=self.address, group="group")
        self.inbox, self.log, self.outstanding = [], [], []
        self.shown = []                         # views
        self.departed = {}                      # as views told it
        self.begun = {}                         # where streams begin, whatever senders say
        self.room, self.finishes, self.alive = 1 << 20, True, True
        self.installed = self.settled = 0       # the ids of its view, and of the last settled one
        self.alarm = self.wakes = None
        self.stack.start(0)

    @property
    def incarnation(self):
        return self.address.incarnation

    def send(self, *payloads, flags=0):
        """Send messages as far as there is room; return how many."""
        taken = 0
        for payload in payloads:
            if self.multicast.send_window.push(payload, flags) == 1:
                break
            taken += 1
        self.multicast.flush(self.wire.now)
        self.turn()
        return taken

    def turn(self):
        """Bring in what arrived, do what is due, deliver, and perform the effects."""
        if not self.alive:
            return
        now, arrived, self.inbox = self.wire.now, self.inbox, []
        self.wakes = None
        self.stack.receive(arrived, now)
        self.stack.tick(now)
        self.stack.deliver(self.room - sum(map(len, self.outstanding)), now)
        self.perform(self.stack.take())
        if (due := self.stack.deadline()) is not None and (self.alarm is None or due < self.alarm
                                                           or self.alarm <= now):
            self.alarm = max(due, now + 1)
            self.wire.at(self.alarm, self.turn)

    def perform(self, effects):
        """Perform the fields in their order, as Channel and the simulator do."""
        for installed in effects.installed:
            self.begun |= installed.begun
        self.wire.put(self, effects.packets)
        assert not effects.warnings and effects.fault is None
        self.log += [("view", view.id) for view in effects.views]
        self.shown += effects.views
        for view in effects.views:
            self.departed = view.departed | self.departed      # as it was told first
        for batch in effects.deliveries:
            self.log += [("message", batch.sender.name, payload, batch.view_id)
                         for payload in batch.payloads]
            if isinstance(batch, Skipped):
                self.log.append(("skipped", batch.sender.name, batch.first, batch.last))
            self.outstanding.append(batch)
        if effects.arrived:
            self.request_turn()
        if self.finishes and self.outstanding:
            self.finish()

    def finish(self, count=None):
        """Finish what the application has, or the first `count` batches."""
        done, self.outstanding = self.outstanding[:count], self.outstanding[len(
            self.outstanding) if count is None else count:]
        for batch in done:
            self.stack.delivered(batch, self.wire.now)
        if done:
            self.request_turn()

    def request_turn(self):
        if self.wakes is None:
            self.wakes = self.wire.now
            self.wire.at(self.wire.now, self.turn)

    def window(self, sender):
        return self.multicast.windows[sender.incarnation]

    def got(self, sender, view_id=None):
        """Return what the application was given of a sender, in a view or in all."""
        return [entry[2] for entry in self.log if entry[0] == "message"
                and entry[1] == sender.name and view_id in (None, entry[3])]

    def views(self):
        return [entry[1] for entry in self.log if entry[0] == "view"]

    def between(self):
        """Return the messages of each view, as the order of the log has them."""
        parts, view_id = {}, 0
        for kind, *entry in self.log:
            if kind == "view":
                view_id = entry[0]
            else:
                sender, payload, batch_view = entry
                assert batch_view == view_id, "a batch has the id of another view"
                parts.setdefault(view_id, {}).setdefault(sender, []).append(payload)
        return parts


class Wire:
    """Carries datagrams with a delay; some are lost, unless the protocol's transport
    is lossless. `dropped(source, dest, kind)` loses more. Everything follows from a
    seed."""

    def __init__(self, protocol="mcast-udp", seed=1, loss=0.0, delay=(1, 1)):
        self.protocol, self.rng, self.loss, self.delay = protocol, Random(seed), loss, delay
        self.incarnations = itertools.count(101)
        self.lossless = STACKS[protocol].is_lossless
        self.now, self.events, self.ids = 0, [], itertools.count()
        self.processes = []
        self.dropped = lambda source, dest, kind: False
        self.sent = []                          # (source, kind, datagram) of all
        self.due = {}                           # when the last datagram of a link arrives
        self.view_ids = itertools.count(1)

    def add(self, *names, receiving=True, **options):
        new = [Process(self, name, self.protocol, receiving, **options) for name in names]
        self.processes += new
        return new[0] if len(new) == 1 else new

    def at(self, time, act, *arguments):
        heapq.heappush(self.events, (time, next(self.ids), act, arguments))

    def put(self, source, packets):
        for dest, datagram in packets:
            kind = datagram[3]
            self.sent.append((source, kind, datagram))
            for process in self.processes:
                if process is not source and dest in (0, process.incarnation):
                    self._carry(source, process, kind, datagram)

    def _carry(self, source, process, kind, datagram):
        is_lost = not self.lossless and self.rng.random() < self.loss
        if is_lost or self.dropped(source, process, kind):
            return
        due = self.now + self.rng.randint(*self.delay) * MS
        if self.lossless:
            due = self.due[source, process] = max(due, self.due.get((source, process), 0))
        self.at(due, self._arrive, process, datagram)

    def _arrive(self, process, datagram):
        if process.alive:
            process.inbox.append(datagram)
            process.request_turn()

    def run(self, milliseconds):
        end = self.now + milliseconds * MS
        while self.events and self.events[0][0] <= end:
            self.now, _, act, arguments = heapq.heappop(self.events)
            act(*arguments)
        self.now = end

    def rest(self):
        """Run until nothing happens any more: a group comes to rest."""
        for _ in range(200_000):
            if not self.events:
                return
            self.now, _, act, arguments = heapq.heappop(self.events)
            act(*arguments)
        raise AssertionError("the group does not come to rest")

    def num_sent(self, kind, source=None):
        return sum(kind == number and source in (None, sender) for sender, number, _ in self.sent)


class Membership:
    """A fake: it knows all, and loses nothing. `chosen` takes the cut out of the
    reports; `says_over` is False if it keeps to itself what only observers reported."""

    chosen = staticmethod(max)
    says_over = True

    def __init__(self, wire):
        self.wire = wire
        self.addresses = {}

    def prepare(self, processes):
        """Have members report; return the reports."""
        reports = {}
        for process in processes:
            reports[process] = process.multicast.prepare(self.wire.now)
            process.lacking = process.multicast.lacking()
            process.turn()
        return reports

    def install(self, reports, one_by_one=0):
        """Have the members that reported install a view; with `one_by_one` so many
        milliseconds apart."""
        view_id = next(self.wire.view_ids)
        members = sorted(reports, key=lambda process: process.incarnation)
        left = [process for process in self.wire.processes if not process.alive]
        view = View(view_id, tuple(process.address for process in members),
                    left=tuple(process.address for process in left),
                    departed={process.address: max(report.get(process.incarnation, 0)
                                                   for report in reports.values())
                              for process in left},
                    observers=tuple(process.address for process in members if process.observes))
        for process in members:
            agreed = self.agreed(process, reports)
            process.multicast.agree(agreed)
            process.multicast.view(view, self.wire.now)
            process.turn()
            if one_by_one:
                self.wire.run(one_by_one)
        for process in members:
            process.installed = view_id
        return view

    def agreed(self, process, reports):
        """Return what a member has to know of the reports."""
        together = self.side_of(process, reports)
        cuts, holders, over = {}, {}, set()
        for origin in set().union(*together.values()):
            said = {other: report[origin] for other, report in together.items()
                    if origin in report}
            cuts[origin] = self.chosen(said.values())
            holders[origin] = max(said, key=said.__getitem__).incarnation
            if self.says_over and all(other.observes for other in said) and not any(
                    origin in other.lacking for other in together):
                over.add(origin)
        for origin in {origin for other in together for origin in other.lacking} - cuts.keys():
            cuts[origin] = min(other.lacking[origin] for other in together
                               if origin in other.lacking)
        for other in reports:
            holders.pop(other.incarnation, None)
            if other not in together:
                cuts[other.incarnation] = max(
                    report.get(other.incarnation, 0)
                    for report in self.side_of(other, reports).values())
        return Agreed(cuts, holders, frozenset(other.incarnation for other in together),
                      over=frozenset(over))

    def side_of(self, process, reports):
        """Return the reports of those who come from the same view as a member."""
        return {other: report for other, report in reports.items() if other is process
                or (process.installed and other.installed == process.installed)}

    def change(self, processes, one_by_one=0):
        """Let these processes, and no others, form the next view."""
        for process in self.wire.processes:
            if process not in processes:
                process.alive = False
        return self.install(self.prepare(processes), one_by_one)

    def settle(self, processes):
        """Run until all members are complete, and settle."""
        for _ in range(1000):
            if all(process.multicast.is_complete() for process in processes):
                break
            self.wire.run(5)
        else:
            raise AssertionError("a member does not become complete")
        for process in processes:
            process.multicast.settle()
            process.settled = process.installed
            process.turn()


def group(protocol="mcast-udp", names="ABC", **options):
    """Return a wire, a membership, and members that have a view."""
    network = Wire(protocol)
    membership = Membership(network)
    members = network.add(*names, **options)
    members = members if isinstance(members, list) else [members]
    membership.change(members)
    membership.settle(members)
    network.run(50)
    return network, membership, *members


def numbered(name, first, last):
    return [b"%s-%d" % (name.encode(), number) for number in range(first, last + 1)]


def lose_from(source, *kinds, to=None):
    """Lose what a process sends of these kinds, to some or to all."""
    return lambda sender, dest, kind: (sender is source and kind in kinds
                                       and (to is None or dest in to))


# --------------------------------------------------------------------------- virtual synchrony

def check_together(processes):
    """Check that members that went together from one view to the next were given the
    same messages in between, in the same order of each sender. (What a member was given
    that crashed before the group was settled may have been lost with it.)"""
    passages = 0
    for one, other in itertools.combinations(processes, 2):
        ours, theirs = one.between(), other.between()
        last = min(each.installed if each.alive else each.settled for each in (one, other))
        steps = set(itertools.pairwise(one.views())) & set(itertools.pairwise(other.views()))
        for before, after in steps:
            if after <= last:
                assert ours.get(before) == theirs.get(before), (one.name, other.name, before)
                passages += 1
    return passages


def check_streams(processes):
    """Check that nobody was given a message twice, in another order or after a gap."""
    for process in processes:
        for sender in process.wire.processes:
            numbers = [int(payload.split(b"-")[1]) for payload in process.got(sender)]
            first = numbers[0] if numbers else 0
            assert numbers == list(range(first, first + len(numbers))), (process.name, sender.name)


def run_group(protocol, seed):
    """Run a group whose members send, crash and join at random times, also while views
    are agreed on and fetches are on their way. Return the wire and the last members."""
    network = Wire(protocol, seed, loss=0.2, delay=(1, 8))
    membership, rng, names = Membership(network), Random(seed), iter("DEFGHIJKLMNOP")
    options = rng.choice([{}, {"max_bytes": 200}, {"capacity": 16, "use_ring_buffer": True}])
    members, sent = network.add(*"ABC", **options), {}
    everybody = list(members)

    def send():
        for process in [each for each in network.processes if each.alive and each.installed]:
            number = sent.get(process, 0)
            count = rng.randint(0, 12)
            taken = process.send(*numbered(process.name, number + 1, number + count))
            sent[process] = number + taken

    membership.change(members)
    for _ in range(14):
        for _ in range(rng.randint(1, 4)):
            send()
            network.run(rng.randint(0, 15))
        slow = rng.choice(members)
        slow.finishes = rng.random() < 0.5
        if len(members) > 2 and rng.random() < 0.6:
            crashed = rng.choice(members)
            crashed.alive = False
            members = [member for member in members if member is not crashed]
            network.run(rng.choice([0, 1, 30]))
        if len(members) < 5 and rng.random() < 0.6:
            members = [*members, network.add(next(names), **options)]
            everybody.append(members[-1])
        reports = {}
        for member in members:
            reports |= membership.prepare([member])
            if rng.random() < 0.5:
                send()
                network.run(rng.randint(0, 6))
        membership.install(reports, one_by_one=rng.choice([0, 3]))
        slow.finishes = True
        slow.request_turn()
        if rng.random() < 0.5:
            membership.settle(members)
    network.run(2000)
    membership.settle(members)
    network.rest()
    return network, membership, members, everybody


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_that_go_together_deliver_the_same_messages(protocol, seed):
    _, _, members, everybody = run_group(protocol, seed)
    assert check_together(everybody) >= 5
    check_streams(everybody)
    for member in members:
        assert not member.multicast.flushing.departed and not member.multicast.flushing.pending
        assert member.views()[-1] == member.installed
        assert member.multicast.remembered() <= member.multicast.members.keys()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_cut_that_is_not_the_maximum_is_noticed(protocol):
    """A test of the checks: the fake membership takes the minimum."""
    network, membership, a, b, c = group(protocol)
    membership.chosen = min
    network.dropped = lose_from(c, DATA, REPEAT, to=[a])
    c.send(*numbered("C", 1, 20))
    network.run(2)
    membership.change([a, b])
    network.rest()
    with pytest.raises(AssertionError):
        check_together([a, b])


# ----------------------------------------------------------------------------- freeze and views

@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_after_its_report_a_member_delivers_nothing_more_before_the_view(protocol):
    network, membership, a, b, c = group(protocol)
    a.send(*numbered("A", 1, 5))
    network.run(20)
    reports = membership.prepare([a, b, c])
    assert reports[b] == {a.incarnation: 5, b.incarnation: 0, c.incarnation: 0}
    a.send(*numbered("A", 6, 9))
    network.run(50)
    assert b.got(a) == a.got(a) == numbered("A", 1, 5)
    assert b.window(a).come_up_to == 9 and a.multicast.send_window.sent == 9
    assert b.multicast.prepare(network.now) == reports[b]       # another attempt
    membership.install(reports)
    network.run(50)
    assert b.got(a, 1) == numbered("A", 1, 5) and b.got(a, 2) == numbered("A", 6, 9)
    assert a.got(a, 2) == numbered("A", 6, 9)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_report_has_what_the_own_application_got_before_the_wire(protocol):
    _, membership, a, b = group(protocol, "AB")
    a.multicast.send_window.push(b"A-1")
    a.stack.deliver(100, 0)
    assert a.multicast.send_window.sent == 0            # delivered here, not sent yet
    assert a.multicast.prepare(0)[a.incarnation] == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_purged_beyond_the_report_until_the_view(protocol):
    network, membership, a, b = group(protocol, "AB")
    a.send(*numbered("A", 1, 5))
    network.run(100)
    reports = membership.prepare([a, b])
    b.multicast.flushing.frozen = None                  # B forgets to freeze: it finishes all
    a.multicast.flushing.frozen = None                  # so does A; its purge must wait
    a.send(*numbered("A", 6, 9))
    network.run(200)
    assert b.got(a) == numbered("A", 1, 9) and a.multicast.send_window.ring.low == 5
    membership.install(reports)
    network.run(200)
    assert a.multicast.send_window.ring.low == 9


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_joiner_gets_exactly_what_is_behind_the_cuts(protocol):
    network, membership, a, b = group(protocol, "AB")
    a.send(*numbered("A", 1, 30))
    network.run(100)
    c = network.add("C")
    reports = membership.prepare([a, b, c])
    a.send(*numbered("A", 31, 40))                      # between the cut and the view
    network.run(20)
    membership.install(reports, one_by_one=7)
    a.send(*numbered("A", 41, 45))
    c.send(*numbered("C", 1, 5))
    membership.settle([a, b, c])
    network.rest()
    assert c.got(a) == numbered("A", 31, 45) and a.got(c) == b.got(c) == numbered("C", 1, 5)
    assert b.got(a, 2) == c.got(a, 2) and c.views() == [2]
    assert a.multicast.unacked() == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("first", ["joiner", "sender"])
def test_it_does_not_matter_whether_sender_or_joiner_has_the_view_first(protocol, first):
    network, membership, a, b = group(protocol, "AB")
    c = network.add("C")
    reports = membership.prepare([a, b, c])
    a.send(*numbered("A", 1, 10))
    order = [c, a, b] if first == "joiner" else [a, b, c]
    view = View(2, (a.address, b.address, c.address))
    agreed = {process: membership.agreed(process, reports) for process in order}
    for process in order:
        process.multicast.agree(agreed[process])
        process.multicast.view(view, network.now)
        process.turn()
        process.installed = 2
        network.run(30)
    a.send(*numbered("A", 11, 12))
    membership.settle(order)
    network.rest()
    assert c.got(a) == numbered("A", 1, 12)
    assert a.multicast.unacked() == 0


def join_late(network, membership, a, b, is_first=False):
    """Let a new member come into the view of A and B; it installs the view last, in the
    second step, or is first."""
    c = network.add("C")
    reports = membership.prepare([a, b, c])
    a.send(*numbered("A", 1, 5))                        # behind the cut, before the view
    view = View(2, (a.address, b.address, c.address))
    for processes in ([c], [a, b]) if is_first else ([a, b], [c]):
        for process in processes:
            process.multicast.agree(membership.agreed(process, reports))
            process.multicast.view(view, network.now)
            process.turn()
        network.run(20)
        yield c
    for process in (a, b, c):
        process.installed = 2
    membership.settle([a, b, c])
    yield c


@pytest.mark.parametrize("is_first", [False, True])
def test_over_a_lossless_transport_a_sender_repeats_for_a_joiner_which_keeps_that(is_first):
    """There was no connection yet when A sent it; and what C asks comes before A has
    the view."""
    network, membership, a, b = group("nakack2-tcp", "AB")
    network.dropped = lambda source, dest, kind: kind == DATA and dest.name == "C"
    c = list(join_late(network, membership, a, b, is_first))[-1]
    network.rest()
    assert c.got(a) == numbered("A", 1, 5)


def test_over_a_lossless_transport_a_joiner_asks_at_once_for_what_broke_with_a_connection():
    network, membership, a, b = group("nakack2-tcp", "AB")
    network.dropped = lambda source, dest, kind: kind in (DATA, REPEAT) and dest.name == "C"
    steps = join_late(network, membership, a, b)
    next(steps)
    network.dropped = lambda source, dest, kind: False
    c = next(steps)
    next(steps)
    network.run(50)
    assert c.got(a) == numbered("A", 1, 5)


def test_a_new_member_says_at_once_what_credit_it_gives():
    network, membership, a, b = group(names="AB")
    c = network.add("C")
    membership.install(membership.prepare([a, b, c]))
    network.run(2)
    assert {b.incarnation, c.incarnation} <= a.multicast.budgets.keys()
    assert a.incarnation in c.multicast.budgets


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_groups_that_merge_begin_with_each_other_at_the_cuts(protocol):
    network, membership, a, b = group(protocol, "AB")
    c, d = network.add(*"CD")
    membership.install(membership.prepare([c, d]))
    membership.settle([c, d])
    a.send(*numbered("A", 1, 7))
    c.send(*numbered("C", 1, 9))
    network.run(100)
    membership.change([a, b, c, d])
    a.send(*numbered("A", 8, 9))
    c.send(*numbered("C", 10, 12))
    membership.settle([a, b, c, d])
    network.rest()
    assert a.got(c) == b.got(c) == numbered("C", 10, 12)
    assert c.got(a) == d.got(a) == numbered("A", 8, 9)
    assert d.got(c) == numbered("C", 1, 12) and b.got(a) == numbered("A", 1, 9)
    assert check_together([a, b, c, d]) == 2


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_a_member_heard_of_another_part_after_its_report_comes_once(protocol):
    """C does not know yet that A and B have gone on without it. It is given what A
    sends after its report to the view in which they meet again."""
    network, membership, a, b, c = group(protocol)
    a.send(*numbered("A", 1, 5))
    network.run(100)
    membership.install(membership.prepare([a, b]))
    reports = membership.prepare([a, b])
    a.send(*numbered("A", 6, 7))
    network.run(100)
    assert c.got(a) == numbered("A", 1, 7)
    membership.install(membership.prepare([c]))
    membership.install(reports | membership.prepare([c]))
    membership.settle([a, b, c])
    a.send(*numbered("A", 8, 8))
    network.rest()
    assert c.got(a) == b.got(a) == a.got(a) == numbered("A", 1, 8)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_application_sees_a_view_behind_what_comes_before_it(protocol):
    network, membership, a, b, c = group(protocol)
    b.room = 4
    b.finishes = False
    a.send(*numbered("A", 1, 10))
    network.run(50)
    membership.change([a, b])
    a.send(*numbered("A", 11, 12))
    network.run(50)
    assert b.multicast.members.keys() == {a.incarnation, b.incarnation}     # installed at once
    assert b.views() == [1] and b.got(a) == numbered("A", 1, 4)
    assert a.views() == [1, 2] and a.got(a, 2) == numbered("A", 11, 12)     # B delays only itself
    b.finishes, b.room = True, 100
    b.finish()
    network.rest()
    assert b.log[-3:] == [("view", 2), *(("message", "A", payload, 2)
                                         for payload in numbered("A", 11, 12))]
    assert b.got(a, 1) == numbered("A", 1, 10) and a.multicast.unacked() == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_view_never_shares_effects_with_what_comes_before_it(protocol):
    """Effects have views before deliveries."""
    network, membership, a, b = group(protocol, "AB")
    a.send(b"A-1")
    b.room = 0
    network.run(20)
    membership.install(membership.prepare([a, b]))
    assert b.log == [("view", 1)]
    b.room = 10
    b.stack.deliver(10, network.now)
    effects = b.stack.take()
    assert [len(batch) for batch in effects.deliveries] == [1] and not effects.views
    assert effects.arrived                                      # have it deliver again
    b.stack.deliver(10, network.now)
    effects = b.stack.take()
    assert [view.id for view in effects.views] == [2] and not effects.deliveries
    assert not effects.arrived


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_last_view_of_an_idle_group_comes_without_a_message(protocol):
    network, membership, a, b, c = group(protocol)
    membership.change([a, b])
    assert a.views() == b.views() == [1, 2]                     # in the turn that installs it
    membership.change([a])
    network.rest()
    assert a.views() == [1, 2, 3]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_slow_application_gets_several_views_each_at_its_place(protocol):
    network, membership, a, b = group(protocol, "AB")
    b.finishes, b.room = False, 1
    for number in range(1, 6):
        a.send(b"A-%d" % number)
        network.run(30)
        membership.install(membership.prepare([a, b]))
    network.run(50)
    assert a.views() == [1, 2, 3, 4, 5, 6] and b.views() == [1, 2]
    b.finishes = True
    b.finish()
    network.rest()
    assert b.log == a.log and b.between() == {
        view_id: {"A": [b"A-%d" % view_id]} for view_id in range(1, 6)}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_oob_messages_do_not_wait_for_a_view(protocol):
    network, membership, a, b = group(protocol, "AB")
    reports = membership.prepare([a, b])
    a.send(b"A-1")
    a.send(b"A-2", flags=int(Flag.OOB))
    network.run(20)
    assert b.got(a) == [b"A-2"]
    membership.install(reports)
    network.rest()
    assert b.got(a) == [b"A-2", b"A-1"] and b.got(a, 1) == [b"A-2"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_takes_no_messages_sees_each_view_at_once(protocol):
    network = Wire(protocol)
    membership = Membership(network)
    a, b = network.add(*"AB")
    p = network.add("P", receiving=False)
    membership.change([a, b, p])
    p.send(*numbered("P", 1, 5))
    a.send(*numbered("A", 1, 5))
    network.run(50)
    b.alive = False
    membership.change([a, p])
    assert p.views() == [1, 2] and p.multicast.is_complete() and not p.got(a)
    p.send(*numbered("P", 6, 9))
    a.send(*numbered("A", 6, 9))
    membership.settle([a, p])
    network.rest()
    assert a.got(p) == numbered("P", 1, 9) and a.multicast.unacked() == p.multicast.unacked() == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_stops_receiving_waits_for_no_messages(protocol):
    network, membership, a, b, c = group(protocol)
    b.room = 0
    a.send(*numbered("A", 1, 5))
    network.run(20)
    network.dropped = lose_from(c, DATA, REPEAT, to=[b])
    c.send(*numbered("C", 1, 5))
    network.run(5)
    membership.change([a, b])
    assert b.views() == [1] and not b.multicast.is_complete()
    b.multicast.stop_receiving(network.now)
    b.turn()
    network.run(1)
    assert b.views() == [1, 2] and b.multicast.is_complete()
    membership.settle([a, b])
    network.run(500)
    assert not b.multicast.flushing.departed and a.multicast.unacked() == 0
    num_sent = len(network.sent)
    network.run(500)
    assert len(network.sent) == num_sent


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_oob_message_has_the_id_of_the_view_that_the_application_has_seen(protocol):
    network, membership, a, b = group(protocol, "AB")
    b.finishes, b.room = False, 0
    a.send(b"A-1")
    network.run(20)
    membership.install(membership.prepare([a, b]))
    a.send(b"A-2", flags=int(Flag.OOB))
    network.run(20)
    assert b.log == [("view", 1), ("message", "A", b"A-2", 1)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_view_brings_a_lost_tail_to_light(protocol):
    """No HIGHEST and no STABILITY tells B of it."""
    network, membership, a, b, c = group(protocol)
    if network.lossless:
        pytest.skip("nothing is lost there")
    network.dropped = lambda source, dest, kind: dest is b and kind in (DATA, HIGHEST, STABILITY)
    a.send(*numbered("A", 1, 5))
    network.run(100)
    assert b.window(a).ring.hr == 0
    membership.install(membership.prepare([a, b, c]))
    assert not b.multicast.is_complete()
    membership.settle([a, b, c])
    assert b.got(a, 1) == numbered("A", 1, 5)


def test_a_view_is_a_reason_to_announce_the_highest_seqno_soon():
    """It had been announced for a second, ever more rarely; the joiner did not hear
    it."""
    network, membership, a, b = group(names="AB")
    c = network.add("C")
    reports = membership.prepare([a, b, c])
    b.finishes = False
    a.send(*numbered("A", 1, 5))
    network.run(1000)
    announced = network.num_sent(HIGHEST, a)
    membership.install(reports)
    network.run(4)
    assert network.num_sent(HIGHEST, a) > announced
    membership.settle([a, b, c])
    network.run(20)
    assert c.got(a) == numbered("A", 1, 5)


# ------------------------------------------------------------------------------- fetch and hold

@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_missing_of_a_crashed_sender_comes_from_its_holder(protocol):
    network, membership, a, b, c = group(protocol)
    network.dropped = lose_from(c, DATA, REPEAT, to=[a])
    c.send(*numbered("C", 1, 20))
    network.run(2)
    membership.change([a, b])
    assert a.views() == [1] and b.views() == [1, 2] and not a.multicast.is_complete()
    assert b.multicast.is_complete()
    membership.settle([a, b])
    network.rest()
    assert a.log == b.log and a.got(c, 1) == numbered("C", 1, 20) and a.views() == [1, 2]
    assert a.multicast.counters.held_received == b.multicast.counters.held_sent == 20
    assert not a.multicast.flushing.departed and not b.multicast.flushing.departed
    assert c.incarnation not in a.multicast.remembered()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_holder_keeps_what_its_application_has_finished(protocol):
    """More than one window of it went by, so that the oldest were freed."""
    network, membership, a, b, c = group(protocol)
    for first in range(1, 200, 20):
        c.send(*numbered("C", first, first + 19))
        network.run(30)
    network.dropped = lose_from(c, DATA, REPEAT, to=[a])
    c.send(*numbered("C", 201, 240))
    network.run(20)
    assert b.got(c) == numbered("C", 1, 240) and not b.outstanding
    membership.change([a, b])
    membership.settle([a, b])
    network.rest()
    assert a.got(c) == numbered("C", 1, 240)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_fetch_that_is_lost_is_sent_again(protocol):
    network, membership, a, b, c = group(protocol)
    network.dropped = lose_from(c, DATA, REPEAT, to=[a])
    c.send(*numbered("C", 1, 20))
    network.run(2)
    lost = iter([True, False, True])
    network.dropped = lambda source, dest, kind: kind in (FETCH, HELD) and next(lost, False)
    membership.change([a, b])
    membership.settle([a, b])
    network.rest()
    assert a.got(c) == numbered("C", 1, 20) and network.num_sent(FETCH) == 3


def test_what_comes_late_over_a_connection_is_fetched_once():
    """Under load the answer waits behind messages."""
    network, membership, a, b, c = group("nakack2-tcp")
    network.dropped = lose_from(c, DATA, REPEAT, to=[a])
    c.send(*numbered("C", 1, 20))
    network.run(2)
    network.delay = 40, 40
    membership.change([a, b])
    membership.settle([a, b])
    network.rest()
    assert a.got(c) == numbered("C", 1, 20) and network.num_sent(FETCH) == 1
    assert b.multicast.counters.held_sent == 20


def test_over_a_connection_the_next_holder_is_asked_at_once():
    network, membership, a, b, c, d = group("nakack2-tcp", "ABCD")
    network.dropped = lose_from(d, DATA, REPEAT, to=[a])
    d.send(*numbered("D", 1, 20))
    network.run(2)
    network.dropped = lambda source, dest, kind: kind == FETCH
    membership.change([a, b, c])
    network.dropped = lambda source, dest, kind: False
    membership.change([a, c])
    network.run(3)
    assert a.got(d) == numbered("D", 1, 20)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_holder_that_dies_is_replaced_by_the_next(protocol):
    network, membership, a, b, c, d = group(protocol, "ABCD")
    network.dropped = lose_from(d, DATA, REPEAT, to=[a])
    d.send(*numbered("D", 1, 20))
    network.run(2)
    network.dropped = lambda source, dest, kind: kind == FETCH
    membership.change([a, b, c])
    assert a.multicast.flushing.departed[d.incarnation].holder == b.incarnation
    network.run(20)
    membership.change([a, c])                               # B dies before it was asked
    assert a.views() == [1] and a.multicast.flushing.departed[d.incarnation].holder == c.incarnation
    network.dropped = lambda source, dest, kind: False
    membership.settle([a, c])
    network.rest()
    assert a.log == c.log and a.got(d, 1) == numbered("D", 1, 20) and a.views() == [1, 2, 3]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_died_with_its_only_holder_lowers_the_cut_of_a_view_that_waits(protocol):
    network, membership, a, b, c, d = group(protocol, "ABCD")
    network.dropped = lose_from(d, DATA, REPEAT, to=[a])
    d.send(*numbered("D", 1, 4))
    network.run(2)
    network.dropped = lose_from(d, DATA, REPEAT, to=[a, c])
    d.send(*numbered("D", 5, 9))
    network.run(2)
    network.dropped = lambda source, dest, kind: kind == FETCH
    membership.change([a, b, c])
    assert b.views() == [1, 2] and b.got(d) == numbered("D", 1, 9)
    assert a.views() == c.views() == [1]
    membership.change([a, c])
    network.dropped = lambda source, dest, kind: False
    membership.settle([a, c])
    network.rest()
    assert a.log == c.log and a.got(d, 1) == numbered("D", 1, 4)
    assert a.views() == [1, 3]                          # nobody is left who can show the second


def observed(names):
    """Return a wire, a membership, the observer O, and members that have a view."""
    network = Wire()
    membership, o = Membership(network), network.add("O", observes=True)
    members = network.add(*names)
    membership.change([o, *members])
    membership.settle([o, *members])
    network.run(50)
    return network, membership, o, *members


@pytest.mark.parametrize("is_alone", [False, True])
def test_an_observer_is_told_nothing_of_a_sender_that_its_application_was_never_shown(
        is_alone):
    """It waits for what came before the view that brought the sender S. The others
    settle that view without it, and S dies."""
    network, membership, o, b, d = observed("BD")
    membership.says_over = False                        # so that view is void
    d.send(b"D-1")
    network.run(5)
    network.dropped = lambda source, dest, kind: dest is o
    s = network.add("S")
    d.send(*numbered("D", 2, 3))
    network.run(2)
    membership.change([o, b, s])
    membership.settle([b, s])
    s.send(*numbered("S", 1, 3))
    network.run(5)
    assert o.views() == [1] and b.got(s) == numbered("S", 1, 3)
    membership.change([o, b])
    membership.says_over = True
    if is_alone:
        membership.change([o])
    membership.settle([o] if is_alone else [o, b])
    network.run(1000)
    assert o.views() == [1, 3, 4][:2 + is_alone]
    assert not [entry for entry in o.log if entry[:2] == ("skipped", "S")]


def test_what_an_observer_alone_has_of_a_sender_that_died_comes_to_the_others():
    """The observer knows that the view is settled, and reports the sender S. C does
    not."""
    network, membership, o, a, c = observed("AC")
    s = network.add("S")
    membership.change([o, a, c, s])
    for process in (o, a, s):
        process.multicast.settle()
    network.dropped = lose_from(s, DATA, REPEAT, to=[c])
    s.send(*numbered("S", 1, 5))
    network.run(2)
    assert o.got(s) == numbered("S", 1, 5)
    membership.change([o, c])
    membership.settle([o, c])
    network.run(50)
    assert c.got(s) == numbered("S", 1, 5)


def test_an_observer_is_told_of_the_end_that_the_others_have_settled():
    """They do not know it any more when the view changes again, and the observer is the
    only one that reports it: too little."""
    network, membership, o, a, b, d = observed("ABD")
    d.send(*numbered("D", 1, 3))
    network.run(5)
    network.dropped = lambda source, dest, kind: dest is o
    d.send(*numbered("D", 4, 9))
    network.run(2)
    membership.change([o, a, b])
    membership.settle([a, b])
    membership.change([o, b])
    membership.settle([o, b])
    assert o.log == [("view", 1), *(("message", "D", each, 1) for each in numbered("D", 1, 3)),
                     ("skipped", "D", 4, 9), ("view", 2), ("view", 3)]


def test_what_an_observer_lacks_is_not_lost_for_a_slow_application():
    """It has everything up to the cut, so it holds and reports that no more. The
    observer reports less."""
    network, membership, o, a, b, d = observed("ABD")
    b.room = 0
    d.send(*numbered("D", 1, 3))
    network.run(2)
    network.dropped = lambda source, dest, kind: dest is o
    d.send(*numbered("D", 4, 9))
    network.run(2)
    membership.change([o, a, b])
    membership.settle([a, b])
    membership.change([o, b])
    b.room = 20
    membership.settle([o, b])
    network.run(5)
    assert b.got(d, 1) == numbered("D", 1, 9) and b.views() == [1, 2, 3]


@pytest.mark.parametrize("is_skipped_before", [True, False])
def test_an_observer_is_told_of_no_gap_before_the_begin_of_a_stream(is_skipped_before):
    """It waits for what came before the view that brought S. It skips what S sends in
    that view, before or after the next view; but not before it knows that the view is
    settled, because the stream may end at its begin. So it is shown both, and may be
    told."""
    network, membership, o, b, d = observed("BD")
    network.dropped = lambda source, dest, kind: dest is o
    d.send(*numbered("D", 1, 3))
    network.run(2)
    s = network.add("S")
    membership.change([o, b, s])
    membership.settle([b, s])
    s.send(*numbered("S", 1, 6))
    network.run(50)
    lose_messages = lose_from(s, DATA, REPEAT, to=[o])
    if is_skipped_before:
        network.dropped = lose_messages
        network.run(500)
        assert not o.multicast.observing.untold
        o.multicast.settle(is_released=False)
        network.run(500)
        assert o.multicast.observing.untold and o.views() == [1]
    membership.change([o, b, s])
    membership.settle([b, s])
    network.dropped = lose_messages
    membership.settle([o])
    network.run(500)
    assert o.log == [("view", 1), ("skipped", "D", 1, 3), ("view", 2), ("skipped", "S", 1, 6),
                     ("view", 3)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("holder", [None, 4711])
def test_a_stream_that_no_member_holds_ends_with_what_has_come(protocol, holder):
    network, membership, a, b, c = group(protocol)
    c.send(*numbered("C", 1, 5))
    network.run(20)
    a.multicast.prepare(network.now)
    a.multicast.agree(Agreed({a.incarnation: 0, b.incarnation: 0, c.incarnation: 8},
                             {c.incarnation: holder} if holder else {},
                             frozenset([a.incarnation, b.incarnation])))
    a.multicast.view(View(2, (a.address, b.address)), network.now)
    a.turn()
    assert a.multicast.is_complete() and a.views() == [1, 2] and a.got(c) == numbered("C", 1, 5)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_nobody_has_ends_the_stream_though_more_came_behind_the_gap(protocol):
    network, membership, a, b, c = group(protocol)
    c.send(*numbered("C", 1, 3))
    network.run(2)
    network.dropped = lose_from(c, DATA, REPEAT)
    c.send(*numbered("C", 4, 5))
    network.dropped = lambda source, dest, kind: kind == XMIT_REQ
    c.send(*numbered("C", 6, 9))
    network.run(2)
    membership.change([a, b])
    membership.settle([a, b])
    network.rest()
    assert a.got(c) == b.got(c) == numbered("C", 1, 3) and a.views() == b.views() == [1, 2]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_joiner_delivers_and_reports_no_stream_that_others_may_miss(protocol):
    """A has up to 3, and the cut is 6. When the sender dies then, the stream ends at 3,
    and the joiner has delivered nothing behind 6."""
    network, membership, a, c = group(protocol, "AC")
    j = network.add("J")
    network.dropped = lose_from(c, DATA, REPEAT, to=[a])
    c.send(*numbered("C", 1, 6))
    network.run(2)
    reports = membership.prepare([a, c, j])
    membership.install(reports)
    c.send(*numbered("C", 7, 9))
    network.run(5)
    assert j.multicast.windows[c.incarnation].come_up_to == 9 and not a.multicast.is_complete()
    assert j.got(c) == [] and j.multicast.is_complete()
    assert c.incarnation not in j.multicast.prepare(network.now)
    membership.change([a, j])
    membership.settle([a, j])
    network.rest()
    assert a.got(c) == j.got(c) == [] and a.views() == [1, 3] and j.views() == [2, 3]


@pytest.mark.parametrize("misses", ["", "E", "BE"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_stream_ends_alike_for_all_who_came_if_who_was_there_before_them_dies(protocol, misses):
    """B and E come, C dies, and then A, who alone has everything of C. Nobody is left
    who reports what it has of C. If one misses something, neither is given any."""
    network, membership, a, c = group(protocol, "AC")
    b, e = network.add("B", "E")
    membership.change([a, c, b, e])
    network.dropped = lambda source, dest, kind: (
        source is c and dest.name == "E" or kind in (ACK, VOTE))
    c.send(*numbered("C", 1, 3))
    network.run(2)
    network.dropped = lambda source, dest, kind: (
        source is c and dest.name in "BE" or kind in (ACK, VOTE))
    c.send(*numbered("C", 4, 6))
    network.run(2)
    network.dropped = lambda source, dest, kind: kind == FETCH and source.name in misses
    membership.change([a, b, e])
    network.run(50)
    assert [each.multicast.is_complete() for each in (b, e)] == [
        each.name not in misses for each in (b, e)]
    membership.change([b, e])
    membership.settle([b, e])
    network.rest()
    assert b.got(c) == e.got(c) == ([] if misses else numbered("C", 1, 6))
    assert b.log == e.log and b.views() == e.views()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_who_came_later_ends_where_it_begins_though_the_others_end_before(protocol):
    """B and then E come before the first view is settled, and all who were there die. B
    lacks what it was to be given before E came."""
    network, membership, a, c = group(protocol, "AC")
    b = network.add("B")
    membership.change([a, c, b])
    network.dropped = lambda source, dest, kind: source is c and dest is b or kind in (ACK, VOTE)
    c.send(*numbered("C", 1, 3))
    network.run(2)
    e = network.add("E")
    membership.change([a, c, b, e])
    begin = e.window(c).offset
    network.dropped = lambda source, dest, kind: kind == FETCH
    membership.change([a, b, e])
    membership.change([b, e])
    network.dropped = lambda source, dest, kind: False
    assert b.multicast.flushing.departed[c.incarnation].cut == begin - 3
    assert e.multicast.flushing.departed[c.incarnation].cut == begin
    membership.settle([b, e])
    network.rest()
    assert b.got(c) == e.got(c) == [] and b.views()[-1] == e.views()[-1]


def test_what_an_observer_that_came_lacks_ends_no_stream():
    network, membership, a, c = group(names="AC")
    b, o = network.add("B"), network.add("O", observes=True)
    membership.change([a, c, b, o])
    network.dropped = lambda source, dest, kind: source is c and dest is o or kind in (ACK, VOTE)
    c.send(*numbered("C", 1, 3))
    network.run(2)
    network.dropped = lambda source, dest, kind: kind == FETCH
    membership.change([a, b, o])
    assert b.multicast.is_complete() and not o.multicast.flushing.departed[
        c.incarnation].is_complete
    membership.change([b, o])
    network.dropped = lambda source, dest, kind: False
    membership.settle([b, o])
    network.run(100)
    assert b.got(c) == numbered("C", 1, 3)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_held_message_keeps_its_flags(protocol):
    """Flags are forgotten when a message leaves the window of a receiver."""
    network, membership, a, b, c = group(protocol)
    network.dropped = lose_from(c, DATA, REPEAT, to=[a])
    c.send(b"C-1")
    network.run(2)
    c.send(b"C-2", flags=int(Flag.OOB))
    parts = fragments_of(bytes(range(256)) * 8, 3, 600)
    c.send(*parts, flags=FRAGMENT)
    network.run(5)
    assert b.got(c) == [b"C-1", b"C-2", bytes(range(256)) * 8]
    membership.change([a, b])
    membership.settle([a, b])
    network.rest()
    assert sorted(a.got(c)) == sorted(b.got(c)) and a.got(c)[-1] == bytes(range(256)) * 8
    assert b.multicast.counters.held_sent == 2 + len(parts) > 4


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_large_message_that_is_cut_in_the_middle_is_delivered_by_nobody(protocol):
    network, membership, a, b, c = group(protocol)
    parts = fragments_of(bytes(3000), 1, 600)
    network.dropped = lose_from(c, DATA, REPEAT, to=[a])
    c.send(*parts[:2], flags=FRAGMENT)
    network.run(2)
    assert b.window(c).stream.is_incomplete
    membership.change([a, b])
    stream = b.multicast.flushing.departed[c.incarnation].stream
    assert stream.is_incomplete             # it may go on, if b should come back
    membership.settle([a, b])
    network.rest()
    assert not stream.is_incomplete
    assert a.got(c) == b.got(c) == [] and a.views() == b.views() == [1, 2]
    assert not a.multicast.flushing.departed and not a.multicast.is_busy()


def test_a_view_comes_behind_a_part_of_a_large_message_that_is_forgotten_by_then():
    """C has left in the middle of it, and has reported that it sent the part. It is too
    large to be acknowledged in one step, and A keeps its begin, because B has finished
    nothing. A's application is shown the view only when it takes what B sent."""
    network, membership, a, b, c = group("nakack2-udp", capacity=40)
    membership.chosen = lambda said: max(said) or 6
    b.room = 0
    a.send(b"A-1")
    c.send(*fragments_of(bytes(7000), 1, 600)[:6], flags=FRAGMENT)
    network.run(10)
    a.room = 0
    b.send(b"B-1")
    network.run(10)
    c.alive = False
    membership.change([a, b])
    membership.settle([a, b])
    assert not a.multicast.flushing.departed and a.views() == [1]
    a.room = 1 << 20
    a.turn()
    network.run(10)
    assert a.views() == [1, 2] and a.got(b) == [b"B-1"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_large_message_of_a_living_sender_may_have_a_view_in_its_middle(protocol):
    network, membership, a, b, c = group(protocol)
    parts = fragments_of(bytes(3000), 1, 600)
    c.send(*parts[:2], flags=FRAGMENT)
    network.run(2)
    membership.install(membership.prepare([a, b, c]))
    c.send(*parts[2:], flags=FRAGMENT)
    network.rest()
    assert [each.got(c, 2) for each in (a, b, c)] == [[bytes(3000)]] * 3


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("has_come", [2, 4])
def test_a_joiner_gets_a_large_message_that_is_on_its_way_when_it_comes(protocol, has_come):
    """The cut is before it, though fragments have come to a member and its application
    has been given what is before them."""
    network, membership, a, b = group(protocol, "AB")
    parts = fragments_of(bytes(3000), 4, 600)
    a.send(*numbered("A", 1, 3))
    a.send(*parts[:has_come], flags=FRAGMENT)
    network.run(2)
    c = network.add("C")
    reports = membership.prepare([a, b, c])
    assert {report[a.incarnation] for report in reports.values() if a.incarnation in report} == {3}
    membership.install(reports)
    a.send(*parts[has_come:], flags=FRAGMENT)
    membership.settle([a, b, c])
    network.rest()
    assert [each.got(a)[-1] for each in (a, b, c)] == [bytes(3000)] * 3
    assert len(c.got(a)) == 1 and b.got(a) == a.got(a)
    assert a.multicast.unacked() == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("names", ["A", "AB"])
def test_a_joiner_gets_a_large_message_whose_sender_rested_in_its_middle(protocol, names):
    """Who is alone needs no ack of the begin, but keeps it for who comes."""
    network, membership, a, *others = group(protocol, names)
    parts = fragments_of(bytes(5000), 4, 600)
    a.send(*numbered("A", 1, 3))
    a.send(*parts[:5], flags=FRAGMENT)
    network.run(2000)
    others_lack = 5 if others else 0
    assert a.multicast.unacked() == others_lack
    assert a.multicast.has_unacked() == bool(others_lack)
    assert a.multicast.send_window.ring.low == 3
    c = network.add("C")
    membership.install(membership.prepare([a, *others, c]))
    assert a.multicast.unacked() == 5
    membership.settle([a, *others, c])
    network.run(2000)
    assert a.multicast.unacked() == 5
    a.send(*parts[5:], flags=FRAGMENT)
    network.rest()
    assert c.got(a) == [bytes(5000)]
    assert [each.got(a)[-1] for each in others] == [bytes(5000)] * len(others)
    assert a.multicast.send_window.ring.low == 3 + len(parts)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("options", "low"), [
    ({"capacity": 4 * 10}, 0), ({"capacity": 4 * 10 - 1}, 4),
    ({"max_bytes": 4 * 10 * 534}, 0), ({"max_bytes": 4 * 10 * 534 - 1}, 4),
])
def test_the_begin_of_a_large_message_fills_no_more_than_a_quarter_of_the_window(protocol, options,
                                                                                  low):
    network, membership, a = group(protocol, "A", **options)
    parts = fragments_of(bytes(5000), 1, 600)
    assert len(parts) == 10 and len(parts[0]) == 534
    a.send(*parts[:4], flags=FRAGMENT)
    network.run(2000)
    assert a.multicast.send_window.ring.low == low and a.multicast.unacked() == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_cut_is_behind_what_we_were_given_though_others_had_no_room(protocol):
    network, membership, a, b = group(protocol, "AB")
    window = a.multicast.send_window
    parts, window.credit = fragments_of(bytes(5000), 1, 600), 1000
    window.ring.max_bytes = window.credit
    assert window.push_whole(parts, FRAGMENT) == len(parts)
    window.aim(600)
    a.multicast.flush(network.now)
    assert window.is_held and window.sent < window.ring.hr
    reports = membership.prepare([a, b])
    assert reports[a][a.incarnation] == window.ring.hr == len(parts)
    membership.install(reports)
    membership.settle([a, b])
    assert a.got(a) == b.got(a) == [bytes(5000)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_a_sender_that_died_sent_between_the_parts_of_a_large_message_was_given(protocol):
    """Whoever goes on in its place does not send that again."""
    network, membership, a, b, c = group(protocol)
    c.send(fragments_of(bytes(3000), 1, 600)[0], flags=FRAGMENT)
    c.send(b"C-2")
    network.run(10)
    membership.change([a, b])
    membership.settle([a, b])
    network.rest()
    assert a.got(c) == [b"C-2"]
    assert a.multicast.flushing.ended.taken(c.incarnation).last == 2


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_was_not_delivered_is_told_whole_though_another_message_is_between_its_parts(protocol):
    network, membership, a, *_ = group(protocol)
    parts = fragments_of(bytes(3000), 1, 600)
    network.dropped = lambda source, dest, kind: True
    a.send(parts[0], flags=FRAGMENT)
    a.send(b"A-2")
    a.send(*parts[1:], flags=FRAGMENT)
    last = len(parts) + 1
    told = a.multicast.undelivered_behind(0, last)
    assert [(batch.first, batch.payloads, batch.flags) for batch in told] == [
        (2, [b"A-2"], 0), (last, [bytes(3000)], 0)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_cut_is_behind_what_an_application_has_got_between_two_fragments(protocol):
    """Another thread of the sender has sent it. Of the large message a member that
    comes gets the rest, which state transfer needs."""
    network, membership, a, b = group(protocol, "AB")
    parts = fragments_of(bytes(3000), 1, 600)
    a.send(parts[0], flags=FRAGMENT)
    a.send(b"between")
    a.send(parts[1], flags=FRAGMENT)
    network.run(2)
    assert b.got(a) == [b"between"]
    c = network.add("C")
    reports = membership.prepare([a, b, c])
    assert {report[a.incarnation] for report in reports.values() if a.incarnation in report} == {3}
    membership.install(reports)
    a.send(*parts[2:], flags=FRAGMENT)
    membership.settle([a, b, c])
    network.rest()
    assert b.got(a) == [b"between", bytes(3000)]
    assert c.got(a) == [parts[2] + b"".join(part[HEAD.size:] for part in parts[3:])]
    assert c.window(a).offset == c.window(a).stream.finished == 1 + len(parts)


def test_a_message_that_comes_late_from_the_crashed_sender_itself_counts():
    network, membership, a, b, c = group()
    network.delay = (1, 1)
    c.send(*numbered("C", 1, 5))
    datagram = network.sent[-1][2]
    network.dropped = lambda source, dest, kind: kind == FETCH
    network.events = [event for event in network.events if event[3] != (a, datagram)]
    heapq.heapify(network.events)
    network.run(5)
    membership.change([a, b])
    assert not a.multicast.is_complete()
    a.inbox.append(datagram)
    a.turn()
    assert a.multicast.is_complete() and a.got(c, 1) == numbered("C", 1, 5)
    network.rest()
    assert a.views() == [1, 2]


def test_what_comes_late_from_behind_the_cut_is_not_taken():
    network, membership, a, b, c = group()
    network.dropped = lose_from(c, DATA, REPEAT, to=[a])
    c.send(*numbered("C", 1, 5))
    network.run(5)
    network.dropped = lambda source, dest, kind: source is c or kind == FETCH
    c.send(b"C-6", flags=int(Flag.OOB))
    datagram = next(datagram for source, kind, datagram in reversed(network.sent) if kind == DATA)
    membership.change([a, b])
    a.inbox.append(datagram)
    a.turn()
    assert a.got(c) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_flags_are_kept_no_longer_than_their_messages(protocol):
    network, _, a, b, c = group(protocol)
    c.finishes = False
    for _ in range(10):
        a.send(b"A", flags=int(Flag.OOB))
    network.run(50)
    assert len(b.window(a).stream.kept_marks) == 10
    c.finishes = True
    c.finish()
    network.rest()
    assert len(b.window(a).stream.kept_marks) == len(b.window(a).stream.marks) == 0


def test_a_fetch_is_answered_with_no_more_than_asked_and_no_faster_than_the_pace():
    network, membership, a, b, c = group(capacity=4096, max_bytes=1 << 16)
    c.send(b"")                                         # who is acknowledged may use all
    network.rest()
    a.finishes = False
    assert c.send(*[bytes(500)] * 100) == 100
    network.run(20)
    fetch = a.stack.control(FETCH, Fetch(c.incarnation, [(1, 2**40)]), b.incarnation).data
    for _ in range(20):
        b.inbox.append(fetch)
        b.turn()
    sent = sum(len(datagram) for source, kind, datagram in network.sent if kind == HELD)
    assert 0 < sent <= 1 << 16                          # once in one interval
    assert b.multicast.counters.fetches_received == 20


@pytest.mark.parametrize("ranges", [[(-1, 3)], [(1, -1)], [(1, 1)] * 3000])
def test_a_fetch_that_makes_no_sense_is_counted(ranges):
    _, _, a, b, c = group()
    b.inbox.append(a.stack.control(FETCH, Fetch(c.incarnation, ranges), 0).data)
    b.turn()
    assert b.multicast.counters.num_bad == 1


def test_a_fetch_of_what_we_do_not_have_is_not_answered():
    network, _, a, b, c = group()
    c.send(*numbered("C", 1, 5))
    network.run(20)
    for origin, ranges in [(4711, [(1, 5)]), (c.incarnation, [(6, 9)]), (c.incarnation, [(5, 1)])]:
        b.inbox.append(a.stack.control(FETCH, Fetch(origin, ranges), 0).data)
        b.turn()
    assert not network.num_sent(HELD)


@pytest.mark.parametrize("cut_off", [0, 4, 8, 20])
def test_a_held_that_is_damaged_is_counted(cut_off):
    network, membership, a, b, c = group()
    network.dropped = lose_from(c, DATA, REPEAT, to=[a])
    c.send(*numbered("C", 1, 5))
    network.run(2)
    network.dropped = lambda source, dest, kind: kind in (FETCH, HELD)
    membership.change([a, b])
    body = (c.incarnation.to_bytes(8, "little") + bytes(20))[:cut_off]
    a.inbox.append(wire.make_datagram(HELD, a.stack.group, b.incarnation, 0, body))
    a.turn()
    assert a.multicast.counters.num_bad == 1 and not a.got(c)


def test_held_says_whose_messages_it_has_and_has_no_conn_id():
    network, membership, a, b, c = group()
    network.dropped = lose_from(c, DATA, REPEAT, to=[a])
    c.send(*numbered("C", 1, 5))
    network.run(2)
    membership.change([a, b])
    network.rest()
    datagram = next(datagram for _, kind, datagram in network.sent if kind == HELD)
    assert HELD.conn_id(datagram) is None and HELD.origin(datagram) == c.incarnation
    assert HELD.ranges(datagram) == [(1, 5)] and DATA.origin(datagram) is None
    assert HELD.measured == "repeat"


@pytest.mark.parametrize("protocol", ["mcast-udp", "nakack2-udp"])
def test_a_sender_that_departs_three_times_is_heard_to_the_end_each_time(protocol):
    """The application has taken nothing meanwhile. The group of A and B parts, meets,
    and parts again."""
    network, membership, a, b = group(protocol, names="AB")
    a.finishes, a.room, a.multicast.keeping.durable = False, 0, True
    for number in range(3):
        b.send(b"%d-1" % number, b"%d-2" % number)
        network.run(10)
        b.alive = False
        membership.install(membership.prepare([a]))
        membership.settle([a])
        b.alive = True
        membership.install(membership.prepare([b]))
        membership.settle([b])
        membership.install(membership.prepare([a, b]))
        membership.settle([a, b])
    assert len(a.multicast.flushing.departed) == 3
    assert a.multicast.digest()[b.address] == 0, "a next life would need all of it"
    a.finishes, a.room = True, 100
    a.request_turn()
    network.rest()
    assert a.got(b) == [b"%d-%d" % (number, index) for number in range(3) for index in (1, 2)]
    assert a.multicast.counters.num_gone_undelivered == 0
    assert not a.multicast.flushing.departed


@pytest.mark.parametrize("has_more", ["", "D", "AD"])
@pytest.mark.parametrize("protocol", ["mcast-udp", "nakack2-udp"])
def test_who_came_when_a_sender_went_holds_nothing_that_comes_before(protocol, has_more):
    """B misses the last messages of C. D's stream of C begins behind them, when C
    leaves and then A, who has them, dies. What D has got there ends nobody's wait."""
    network, membership, a, b, c = group(protocol)
    network.dropped = lambda source, dest, kind: dest is b and kind not in (ACK, VOTE)
    c.send(*numbered("C", 1, 2))
    network.run(2)
    d = network.add("D")
    membership.change([a, b, c, d])
    if has_more:
        network.dropped = lambda source, dest, kind: source is c and dest.name not in has_more
        c.send(b"C-3")
        network.run(2)
        assert d.window(c).come_up_to == 3
    network.dropped = lambda source, dest, kind: kind == FETCH
    membership.change([a, b, d])
    network.run(20)
    membership.change([b, d])
    membership.settle([b, d])
    network.rest()
    assert b.got(c) == d.got(c) == []
    assert b.views()[-1] == d.views()[-1] == 4


@pytest.mark.parametrize("misses", ["C", "AC"])
@pytest.mark.parametrize("protocol", ["mcast-udp", "nakack2-udp"])
def test_who_misses_the_first_stream_of_a_sender_that_departs_twice_is_told_so(protocol, misses):
    """C parts from the group, is back, and gone again with all who have its first
    messages before B has them. If B misses messages of A, too, it is not shown the view
    in which C was back. D has come with C, and has nothing of it."""
    network, membership, a, b, c = group(protocol)
    network.dropped = lambda source, dest, kind: dest is b and source.name in misses
    c.send(*numbered("C", 1, 2))
    a.send(b"A-1")
    network.run(2)
    network.dropped = lambda source, dest, kind: dest is b and source is a
    c.alive = False
    membership.install(membership.prepare([a, b]))
    c.alive = True
    membership.install(membership.prepare([c]))
    c.send(b"C-3")
    d = network.add("D")
    membership.install(membership.prepare([a, b, c, d]))
    network.run(20)
    membership.change([b, d])
    membership.settle([b, d])
    network.rest()
    assert b.got(c) == d.got(c) == []
    assert b.views() == ([1, 4, 5] if misses == "C" else [1, 5])
    assert (b.departed[c.address], d.departed[c.address]) == (0, 3)


def group_without_c(protocol, lie=0):
    """Let C part from the group, after all have got a message of it; B may report that
    it has more."""
    network, membership, a, b, c = group(protocol)
    c.send(b"C-1")
    network.run(10)
    c.alive = False
    reports = membership.prepare([a, b])
    reports[b][c.incarnation] += lie
    membership.install(reports)
    c.alive = True
    membership.install(membership.prepare([c]))
    return network, membership, a, b, c


@pytest.mark.parametrize("lie", [0, 1 << 40])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_says_where_the_streams_of_new_members_begin(protocol, lie):
    """Not behind an end that no window reaches: C would not be heard for years."""
    network, membership, a, b, c = group_without_c(protocol, lie)
    c.send(b"C-2")
    network.run(10)
    for member in (a, b):
        member.begun.clear()
    membership.install(membership.prepare([a, b, c]))
    assert a.begun == b.begun == {c.address: 2}


@pytest.mark.parametrize("protocol", ["mcast-udp", "nakack2-udp"])
def test_a_view_that_waits_for_a_stream_of_which_nothing_comes_is_void(protocol):
    """C is back, and B lacks what C sends then. B parts from all before the group is
    settled, so it has reported nothing of that, and holds nothing for it."""
    network, membership, a, b, c = group_without_c(protocol)
    membership.install(membership.prepare([a, b, c]))
    network.dropped = lambda source, dest, kind: dest is b
    c.send(b"C-2")
    network.run(2)
    membership.install(membership.prepare([a, b, c]))
    assert b.views() == [1, 2, 4]
    membership.change([b])
    membership.settle([b])
    network.rest()
    assert b.views() == [1, 2, 4, 6] and b.got(c) == [b"C-1"]


# ---------------------------------------------------------------------------------- bounded memory

def come_and_go(network, membership, a, count, *payloads):
    """While A's application takes nothing, let so many members come, send this, and go.
    Return the last."""
    a.finishes, a.room = False, 0
    for number in range(count):
        b = network.add(f"B{number}")
        membership.install(membership.prepare([a, b]))
        membership.settle([a, b])
        b.send(*payloads)
        network.run(10)
        b.alive = False
        membership.install(membership.prepare([a]))
        membership.settle([a])
    return b


def test_departed_streams_that_nobody_takes_are_bounded(monkeypatch):
    monkeypatch.setattr(keeping, "MOST_HELD", 4)
    network, membership, a = group(names="A")
    b = come_and_go(network, membership, a, 7, b"B-1", b"B-2")
    assert len(a.multicast.flushing.departed) == 4
    assert a.multicast.counters.num_gone_undelivered == 2 * 3
    a.finishes, a.room = True, 100
    a.request_turn()
    network.rest()
    assert len(a.got(b)) == 2 and a.views() == list(range(1, 16))
    assert not a.multicast.flushing.departed
    assert [*a.departed.values()] == 3 * [0] + 4 * [2]


def test_departed_streams_are_held_while_they_take_little_memory():
    network, membership, a = group(names="A")
    come_and_go(network, membership, a, 20, b"last words")
    a.finishes, a.room = True, 100
    a.request_turn()
    network.rest()
    assert [*a.departed.values()] == 20 * [1]
    assert a.multicast.counters.num_gone_undelivered == 0


def test_a_second_stream_that_is_given_up_ends_with_the_second_departure(monkeypatch):
    """B goes, is back and goes again, while A's application takes nothing."""
    monkeypatch.setattr(keeping, "MOST_HELD", 2)
    network, membership, a, b, c = group(names="ABC")

    def go(*members):
        membership.install(membership.prepare(members))
        membership.settle(members)
        network.run(10)

    b.send(b"B-1")
    network.run(10)
    a.finishes, a.room = False, 0
    c.send(b"C-1")
    network.run(10)
    b.alive = False
    go(a, c)
    b.alive = True
    go(a, b, c)
    b.send(b"B-2", b"B-3")
    network.run(10)
    b.alive = False
    go(a, c)
    c.alive = False
    go(a)
    d = network.add("D")
    go(a, d)
    d.send(b"D-1")
    network.run(10)
    d.alive = False
    go(a)
    a.finishes, a.room = True, 100
    a.request_turn()
    network.rest()
    ends = [(who.name, last) for view in a.shown for who, last in view.departed.items() if last]
    assert ends == [("B", 1), ("B", 1), ("C", 1), ("D", 1)]
    assert a.got(b) == [b"B-1"] and a.multicast.counters.num_gone_undelivered == 2


def test_a_group_that_shrinks_holds_as_many_streams_as_it_had_members(monkeypatch):
    monkeypatch.setattr(keeping, "MOST_HELD", 4)
    network, membership, a, *others = group(names="ABCDEFGH")
    a.finishes, a.room = False, 0
    for member in others:
        member.send(b"last words")
    network.run(20)
    for number, member in enumerate(others, 1):
        member.alive = False
        membership.install(membership.prepare([a, *others[number:]]))
    assert len(a.multicast.flushing.departed) == len(others) > keeping.MOST_HELD
    a.finishes, a.room = True, 100
    a.request_turn()
    network.rest()
    assert [a.got(member) for member in others] == [[b"last words"]] * len(others)


def test_views_that_wait_are_bounded():
    network, membership, a, b = group(names="AB")
    b.finishes, b.room = False, 0
    a.send(b"A-1")
    network.run(10)
    for _ in range(MOST_PENDING + 5):
        membership.install(membership.prepare([a, b]))
    assert len(b.multicast.flushing.pending) == MOST_PENDING and b.views() == [1, 2, 3, 4, 5, 6]


# -------------------------------------------------------------------------------------- retention

@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_receiver_keeps_what_not_all_members_have_finished(protocol):
    network, _, a, b, c = group(protocol)
    c.finishes = False
    a.send(*numbered("A", 1, 30))
    network.run(200)
    assert not b.outstanding and b.window(a).stream.finished == 30
    assert b.window(a).ring.low == 0 and a.multicast.send_window.ring.low == 0
    c.finishes = True
    c.finish()
    network.rest()
    assert a.multicast.send_window.ring.low == b.window(a).ring.low == c.window(a).ring.low == 30


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_in_a_view_of_two_nothing_is_kept_for_others(protocol):
    """Nobody else can miss what the other one sent; and nobody needs its LOW."""
    network, _, a, b = group(protocol, names="AB")
    a.send(b"A-1", flags=Flag.OOB)
    network.run(5)
    a.send(*numbered("A", 2, 30))
    network.run(5)
    window = b.window(a)
    assert window.stream.finished == window.ring.low == 30
    assert not window.stream.kept_marks.flags
    network.rest()
    assert a.multicast.send_window.ring.low == 30
    assert not any(HIGHEST.decode(datagram).low == 30 for source, kind, datagram in network.sent
                   if kind == HIGHEST and source is a)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_was_kept_is_freed_when_two_are_left_and_kept_again_with_a_third(protocol):
    network, membership, a, b, c = group(protocol)
    c.finishes = False
    a.send(*numbered("A", 1, 30))
    network.run(200)
    assert b.window(a).ring.low == 0
    membership.change([a, b])
    membership.settle([a, b])
    assert b.window(a).ring.low == 30
    d = network.add("D")
    membership.change([a, b, d])
    membership.settle([a, b, d])
    d.finishes = False
    a.send(*numbered("A", 31, 40))
    network.run(200)
    window = b.window(a)
    assert window.stream.finished == 40 and window.ring.low == 30
    assert a.multicast.send_window.ring.low == 30
    d.finishes = True
    d.finish()
    network.rest()
    assert window.ring.low == d.window(a).ring.low == a.multicast.send_window.ring.low == 40


def test_the_last_low_is_announced_once_and_not_answered():
    network, _, a, b, _ = group()
    a.send(*numbered("A", 1, 5))
    network.rest()
    announcements = [HIGHEST.decode(datagram) for source, kind, datagram in network.sent
                     if kind == HIGHEST and source is a]
    assert [(each.seqno, each.low) for each in announcements][-1] == (5, 5)
    assert sum(each.low == 5 for each in announcements) == 1
    acks = network.num_sent(ACK, b)
    b.inbox.append(a.stack.control(HIGHEST, announcements[-1], 0).data)
    b.turn()
    assert network.num_sent(ACK, b) == acks


def test_low_is_told_at_once_when_it_has_risen_by_a_part_of_a_window():
    """What the members keep is freed long before xmit_interval."""
    network, _, a, b, c = group(xmit_interval=1000)
    low = 0
    for first in range(1, 200, 20):
        assert a.send(*numbered("A", first, first + 19)) == 20
        network.run(20)
        assert b.window(a).ring.low == c.window(a).ring.low > low
        low = b.window(a).ring.low
    assert network.num_sent(HIGHEST, a) <= 11
    a.send(*numbered("A", 201, 201))
    network.run(20)                                     # a single message is told in time
    assert b.window(a).ring.low < 201 == b.window(a).stream.finished


def test_a_duplicate_of_what_is_finished_and_kept_is_acknowledged_again():
    network, _, a, b, c = group()
    c.finishes = False
    a.send(*numbered("A", 1, 10))
    network.run(100)
    datagram = next(datagram for source, kind, datagram in network.sent if kind == DATA)
    assert b.window(a).ring.low == 0
    acks = network.num_sent(ACK, b)
    b.inbox.append(datagram)
    b.turn()
    network.run(4)                                      # it may have to take its turn
    assert network.num_sent(ACK, b) == acks + 1
    ack = next(ACK.decode(sent) for source, kind, sent in reversed(network.sent)
               if kind == ACK and source is b)
    assert ack.finished == {a.incarnation: 10}          # what is finished, not LOW
    c.inbox.append(datagram)                            # C has finished nothing: it says nothing
    acks = network.num_sent(ACK, c)
    c.turn()
    assert network.num_sent(ACK, c) == acks


def test_a_highest_of_what_is_finished_and_kept_is_acknowledged_again():
    network, _, a, b, c = group()
    c.finishes = False
    a.send(*numbered("A", 1, 10))
    network.run(102)                                    # the last ack is a while ago
    acks = network.num_sent(ACK, b)
    body = a.multicast.announcing.highest(a.multicast.view_id)
    b.inbox.append(a.stack.control(HIGHEST, body, 0).data)
    b.turn()
    network.run(4)                                      # it may have to take its turn
    assert network.num_sent(ACK, b) == acks + 1


@pytest.mark.parametrize("protocol", ["mcast-udp", "nakack2-udp"])
def test_a_receiver_keeps_two_windows_and_takes_no_more_before_it_hears_of_low(protocol):
    network, _, a, b, c = group(protocol)
    network.dropped = lambda source, dest, kind: dest is b and kind in (HIGHEST, STABILITY)
    for first in range(1, 121, 20):
        assert a.send(*numbered("A", first, first + 19)) == 20
        network.run(50)
    assert b.got(a) == numbered("A", 1, 120) and b.window(a).ring.low == 0
    a.send(*numbered("A", 121, 160))                    # 128 have room
    network.run(50)
    assert b.window(a).ring.low == 0 and b.got(a) == numbered("A", 1, 128)
    network.dropped = lambda source, dest, kind: False
    network.rest()
    assert b.got(a) == numbered("A", 1, 160)


def test_low_of_another_view_frees_nothing():
    """A sender that is cut off waits for nobody, and what it says of that is not about
    us."""
    network, _, a, b, _ = group()
    network.dropped = lambda source, dest, kind: kind == HIGHEST
    a.send(*numbered("A", 1, 20))
    network.run(20)
    assert b.got(a) == numbered("A", 1, 20) and a.multicast.unacked() == 0
    said = a.multicast.announcing.highest(a.multicast.view_id)
    for view_id in (said.view_id + 1, said.view_id):
        assert b.window(a).ring.low == 0
        body = type(said)(said.seqno, said.low, view_id)
        b.inbox.append(a.stack.control(HIGHEST, body, 0).data)
        b.turn()
    assert b.window(a).ring.low == 20


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_window_that_goes_round_under_loss_loses_nothing(protocol):
    network = Wire(protocol, seed=7, loss=0.2, delay=(1, 5))
    membership = Membership(network)
    a, b, c = network.add(*"ABC", max_bytes=3000)
    membership.change([a, b, c])
    membership.settle([a, b, c])
    waiting = numbered("A", 1, 500)
    while waiting:
        del waiting[:a.send(*waiting)]
        network.run(3)
    network.rest()
    assert b.got(a) == c.got(a) == a.got(a) == numbered("A", 1, 500)
    assert a.multicast.unacked() == 0


@pytest.mark.parametrize("protocol", ["mcast-udp", "nakack2-udp"])
def test_what_is_missing_of_a_departed_sender_has_room_beside_what_is_kept(protocol):
    """C does not hear what all have, so its window is full when A dies."""
    network, membership, a, b, c = group(protocol, max_bytes=1000)
    network.dropped = lambda source, dest, kind: dest is c and kind in (HIGHEST, STABILITY)
    messages = [b"%500d" % number for number in range(6)]
    while c.window(a).ring.nbytes < 2 * 1000:
        messages = messages[a.send(*messages[:2]):]
        network.run(100)
    network.dropped = lambda source, dest, kind: dest is c
    a.send(*messages[:2])
    network.run(20)
    assert len(c.got(a)) < len(b.got(a))
    a.alive = False
    network.dropped = lambda source, dest, kind: False
    membership.change([b, c])
    network.run(200)
    membership.settle([b, c])
    network.rest()
    assert c.got(a) == b.got(a)


# ------------------------------------------------------------------------------- acks and credit

def test_a_sender_asks_a_new_member_for_its_credit_if_the_first_ack_was_lost():
    network, membership, a, b = group(names="AB")
    c = network.add("C")
    network.dropped = lambda source, dest, kind: source is c and kind == ACK
    membership.install(membership.prepare([a, b, c]))
    network.run(20)
    assert c.incarnation not in a.multicast.budgets
    network.dropped = lambda source, dest, kind: False
    membership.settle([a, b, c])
    network.rest()
    assert c.incarnation in a.multicast.budgets and c.incarnation in b.multicast.budgets
    assert not a.multicast.is_busy()


@pytest.mark.parametrize("num_new", [2, 3])
def test_many_new_members_are_asked_for_their_credit_in_one_datagram(num_new):
    network, membership, a, *old = group(names="ABC")
    new = network.add(*"DEF"[:num_new])
    asked, put = [], network.put

    def note(source, packets):
        asked.extend(dest for dest, datagram in packets if source is a and datagram[3] == HIGHEST)
        put(source, packets)

    network.put = note
    network.dropped = lambda source, dest, kind: kind == ACK
    membership.install(membership.prepare([a, *old, *new]))
    network.run(20)
    to_each = [process.incarnation for process in new]
    assert asked and set(asked) == (set(to_each) if num_new == 2 else {EVERYONE})
    network.dropped = lambda source, dest, kind: False
    network.rest()
    assert a.multicast.budgets.keys() == {process.incarnation for process in [*old, *new]}
    assert not a.multicast.is_busy()


def test_a_vote_that_comes_before_its_view_counts_in_it():
    network, membership, a, b, c = group("nakack2-udp")
    reports = membership.prepare([a, b])
    view = View(2, (a.address, b.address))
    for process in (b, a):
        process.multicast.agree(membership.agreed(process, reports))
        process.multicast.view(view, network.now)
        process.turn()
        if process is b:
            network.run(5)
            network.dropped = lambda source, dest, kind: kind == VOTE
    assert b.incarnation in a.stack.layer(Stable).votes


def test_votes_of_a_view_go_on_in_the_next():
    network, membership, a, b, c = group("nakack2-udp")
    a.send(*numbered("A", 1, 20))
    network.run(5)
    membership.change([a, b])
    votes = network.num_sent(VOTE)
    a.send(*numbered("A", 21, 40))
    membership.settle([a, b])
    network.rest()
    assert network.num_sent(VOTE) > votes
    assert a.multicast.send_window.ring.low == b.window(a).ring.low == 40
