"""What one datagram in another's name can do to the membership of a group
(docs/threats.md), and what it cannot."""

from collections import Counter

import msgspec
import pytest
from membership_world import MS, World
from msgspec.structs import replace

from ringcast.address import EVERYONE, Address
from ringcast.config import MAX_MEMBERS
from ringcast.protocols.membership import Membership, sense
from ringcast.protocols.membership.asking import Asking
from ringcast.protocols.membership.ends import Ends
from ringcast.protocols.membership.layer import STRANGERS, WAIT
from ringcast.protocols.membership.meeting import TAKEN
from ringcast.protocols.membership.messages import (
    ALIVE,
    INSTALL,
    LEAVE,
    OFFER,
    PREPARE,
    PRESENT,
    REFUSE,
    REPORT,
    SEEK,
    WHO,
    Absent,
    Alive,
    Empty,
    Gone,
    Install,
    Leave,
    Prepare,
    Present,
    Quorum,
    Refuse,
    Report,
    Seat,
    Seek,
)
from ringcast.protocols.multicast.keeping import Part
from ringcast.stack import Layer, Stack

HIGH = (sense.FIRST_LAST - 1) << sense.COUNTER
VIEW = 1 << 33


def formed(names="ABC", **options):
    world = World(5, **options).start(*names)
    assert world.run_until_one(5000) is not None
    world.run(500)
    return world


def hear(node, sender, kind, body):
    """`node` hears what `sender` has not said; a number is a stranger. Return how many
    bytes that are."""
    if isinstance(sender, int):
        stack = Stack([Layer()], local=Address("Z", sender), group="world")
    else:
        stack = sender.stack
    data = stack.control(kind, body).data
    node.arrive(data)
    return len(data)


def test_a_joiner_keeps_no_promise_to_somebody_who_does_not_come():
    world = formed("AB")
    world.start("C")
    world.at(world.now, lambda: None)
    world.run(0.01)
    joiner = world["C"]
    hear(joiner, 77, PREPARE, Prepare(HIGH, [Seat("Z", 77, "z", 0), joiner.layer.seat()]))
    world.run(0.1)
    assert joiner.layer.promised == HIGH
    assert world.run_until_one(5000) is not None and len(joiner.view) == 3


def test_a_joiner_takes_a_lower_view_when_the_one_that_it_has_promised_did_not_come():
    world = World(5, min_members=3).start("C")
    joiner = world["C"]
    for sender, view_id in ((77, HIGH), (78, VIEW)):
        seats = [Seat("Z", sender, "z", 0), joiner.layer.seat()]
        hear(joiner, sender, PREPARE, Prepare(view_id, seats))
        world.run(0.1)
        assert joiner.layer.promised == view_id
        world.run(WAIT / MS)


def test_a_group_whose_ids_somebody_drives_up_goes_on():
    world = formed()
    for step in range(30):
        for node in world.nodes.values():
            for counter in (node.layer.ceiling.counter + step % 3 * sense.STEP, (1 << 32) - 1):
                seats = [Seat("Z", 77, "z", 0), node.layer.seat()]
                hear(node, world["A"], PREPARE, Prepare(counter << sense.COUNTER, seats))
        world.run(100)
    world.run(3000)
    world.start("D")
    assert world.run_until_one(10_000) is not None
    assert world["D"].view.id >> sense.COUNTER < sense.FIRST_LAST + 20 * sense.STEP


def test_two_that_prepare_for_each_other_do_not_outbid_each_other_without_a_pause():
    """B has heard that A has gone, waits for a joiner that does not answer, and hears
    that A prepares again as soon as it has prepared itself."""
    world = formed("AB")
    first, layer = world["A"], world["B"].layer
    hear(world["B"], 77, SEEK, Seek("Z", "z", layer.meeting.terms, 1))
    layer.detection.depart({first.layer.local.incarnation})
    world.cut = {("A", "B")}                             # it says only what follows
    begun = []
    for _ in range(500):
        world.run(1)
        if layer.coordinator.is_changing:
            begun.append(world.now / MS)
            seats = [node.layer.seat().moved(layer.view_id) for node in (first, world["B"])]
            hear(world["B"], first, PREPARE, Prepare(layer.promised + (1 << sense.COUNTER), seats))
    pauses = [later - earlier for earlier, later in zip(begun, begun[1:], strict=False)]
    assert pauses == [1, 1, 10, 20, 40, 80, 160, 160]


def test_a_leave_of_another_view_takes_nobody_out():
    world = formed()
    for node in world.nodes.values():
        for other in world.nodes.values():
            if node is not other:
                hear(node, other, LEAVE, Leave(node.layer.view_id - 1))
    world.run(3000)
    assert {len(node.views) for node in world.nodes.values()} == {1}


@pytest.mark.parametrize("view_id", [HIGH, (1 << 64) - 1])
def test_a_leave_of_a_view_far_ahead_does_not_end_the_absence_of_a_member(view_id):
    """It is back, and is waited for when it dies later."""
    world = World(5).start("A", "B")
    world.start("C", durable=True)
    assert world.run_until_one(5000) is not None
    world.run(500)
    for name in "AB":
        hear(world[name], world["C"], LEAVE, Leave(view_id))
    world.run(100)
    assert world.run_until_one(5000) is not None
    world.run(500)
    world["C"].crash()
    world.run(5000)
    assert world["A"].view.names == world["B"].view.names
    assert world["A"].view.absent == (world["C"].address,)


def test_a_member_that_is_not_complete_knows_that_nothing_is_settled():
    world = World(5).start(*"ABC")
    for node in world.nodes.values():
        node.paper.complete = False
    world.run(2000)
    node, other = world["A"], world["B"]
    view_id = node.layer.view_id
    hear(node, other, ALIVE, Alive(view_id, view_id))
    world.run(10)
    assert view_id and node.paper.num_settled == 0


def test_however_many_seek_a_view_can_be_prepared():
    world, prepared = formed(), []
    world.tap = lambda node, datagram: prepared.append(datagram) if datagram[3] == PREPARE else None
    for number in range(1000, 1400):
        for node in world.nodes.values():
            hear(node, number, SEEK, Seek(f"m{number}", "nowhere", node.layer.meeting.terms, 1))
    world.run(1)
    assert {len(node.layer.meeting.discovery.seekers) for node in world.living()} == {MAX_MEMBERS}
    world["C"].crash()
    world.run(1000)
    sizes = {len(PREPARE.decode(datagram).seats) for datagram in prepared}
    assert max(sizes) == MAX_MEMBERS
    assert world.run_until_one(20_000) is not None


def test_however_many_seek_a_member_says_only_so_often_that_there_is_a_view():
    """Each member says it once in half a seek_interval, to everybody: a SEEK from a
    forged place sends nothing there, and 1,000 of them cost what a few do."""
    world, said = formed(), []

    def tap(node, datagram):
        kind, dest = datagram[3], int.from_bytes(datagram[16:24], "little")
        if kind == PRESENT:
            said.append((node.name, dest))

    world.tap = tap
    for number in range(1000, 2000):
        for node in world.nodes.values():
            hear(node, number, SEEK, Seek(f"m{number}", "elsewhere", {"stack": "another"}, 1))
        world.run(0.1)
    assert {dest for _, dest in said} == {EVERYONE}
    assert len(said) <= 3 * (100 / 25 + 1)


def test_however_many_seek_with_the_name_of_a_member_it_is_said_only_so_often():
    """What each of them must hear goes to everybody, so a forger has it sent around."""
    world, said = formed(), []
    world.tap = lambda node, datagram: said.append(node.name) if datagram[3] == PRESENT else None
    for number in range(1000, 2000):
        for node in world.nodes.values():
            hear(node, number, SEEK, Seek("A", "elsewhere", node.layer.meeting.terms, 1))
        world.run(0.1)
    assert set(said) == {"A"} and TAKEN <= len(said) <= TAKEN + 100 / 25 + 1
    world.run(5_000)
    before = len(said)
    hear(world["A"], 7, SEEK, Seek("A", "elsewhere", world["A"].layer.meeting.terms, 1))
    world.run(1)
    assert said[before:] == ["A"]


def of_stranger(kind, number, terms):
    """What a stranger says who wants an answer, as briefly as it can."""
    return {SEEK: lambda: Seek(f"m{number}", "elsewhere", terms, 1),
            PRESENT: lambda: Present(f"m{number}", "elsewhere", terms, number << 32, 1, number),
            ALIVE: lambda: Alive(number << 32, 0), WHO: Empty}[kind]()


@pytest.mark.parametrize("has_view", [True, False])
@pytest.mark.parametrize("kind", [SEEK, PRESENT, ALIVE, WHO], ids=str)
def test_strangers_have_a_small_part_sent_of_what_they_send(kind, has_view):
    """In bytes: to where they say that they are, a quarter at most, and nothing where
    there is a view; to everybody a fifth."""
    world = formed() if has_view else World(5, min_members=3).start("A")
    world.run(20)
    nodes, said = list(world.nodes.values()), Counter()
    ours = {node.address.incarnation for node in nodes}

    def tap(node, datagram):
        said[int.from_bytes(datagram[16:24], "little")] += len(datagram)

    world.tap, came = tap, 0
    for number in [*range(1000, 1200)] * 5:
        body = of_stranger(kind, number, nodes[0].layer.meeting.terms)
        came += [hear(node, number, kind, body) for node in nodes][0]
        world.run(0.1)
    to_strangers = sum(size for dest, size in said.items() if dest not in ours | {EVERYONE})
    assert to_strangers <= (0 if has_view else came / 4) and said[EVERYONE] <= came / 5
    assert said[EVERYONE] or to_strangers


@pytest.mark.parametrize("name", ["A", "A" * 64])
def test_a_seek_is_answered_with_one_that_differs_only_in_names(name):
    """By who has no view, and once: a forger has little more sent than he sends."""
    world, said = World(5, min_members=3).start(name), []
    world.run(20)
    world.tap = lambda node, datagram: said.append(datagram)
    for _ in range(3):
        came = hear(world[name], 7, SEEK, of_stranger(SEEK, 7, world[name].layer.meeting.terms))
        world.run(0)
    answers = [len(each) for each in said if each[16:24] == (7).to_bytes(8, "little")]
    assert len(answers) == 1 and answers[0] <= came + len(name) + len(world[name].physical)


@pytest.mark.parametrize("is_joining", [False, True])
def test_however_many_strangers_prepare_they_are_answered_only_so_often(is_joining):
    """Each answer goes where the stranger says that it is, and is larger."""
    world, answers = formed("AB"), []
    if is_joining:
        world.start("C")
        world.run(0.01)
    node = world["C" if is_joining else "A"]
    world.tap = lambda node, datagram: answers.append(datagram[3]) if datagram[3] in (
        REPORT, REFUSE) else None
    before = node.layer.view_id
    for number in range(1000):
        seats = [Seat("Z", 77, "victim", 0), node.layer.seat()]
        hear(node, 77, PREPARE, Prepare((number + 9 << sense.COUNTER) + before, seats))
        world.run(0.1)
    assert STRANGERS <= len(answers) <= STRANGERS + 100 / 10 + 9


def test_no_member_installs_a_view_that_ends_its_stream_where_it_cannot_end():
    world = formed()
    node, other = world["A"], world["B"]
    node.paper.may_end_at = lambda cut: cut == 0
    before = node.layer.view_id
    view_id = before + (1 << sense.COUNTER)
    seats = [Seat(each.name, each.address.incarnation, each.physical, before, 5)
             for each in world.nodes.values()]
    hear(node, other, PREPARE, Prepare(view_id, seats))
    hear(node, other, INSTALL, Install(view_id, seats, [], []))
    world.run(1)
    assert node.layer.view_id == before
    world.run(3000)
    assert world.is_one()


@pytest.mark.parametrize("names", ["AB", "ABC"])
def test_a_member_that_reports_a_view_that_nobody_else_can_install_is_left_behind(names):
    """The coordinator cannot install it, either, and goes on with the others of its
    view."""
    world = formed(names)
    first, *_, liar = (world[name] for name in world["A"].view.names)
    view, layer = first.layer.install, first.layer
    seats = [replace(seat.moved(view.id), name=seat.name + "x" * (seat.name == first.name))
             for seat in view.seats]
    made_up = replace(view, id=view.id + 1, seats=seats)

    def lie(sender, prepare, now):
        report = Report(prepare.id, made_up.id, {liar.address.incarnation: 0}, [], False, made_up)
        liar.layer.send_control(REPORT, report, sender, now)

    liar.layer.take_prepare = lie
    before = layer.coordinator.num_changes
    world.start("D")
    world.run(2000)
    assert set(first.view.names) == {*names, "D"} - {liar.name}
    assert layer.coordinator.num_changes - before < 20


def refuse_all(node, at_install, after):
    """`node` refuses each PREPARE, or each INSTALL, after some milliseconds, as if it
    had promised a higher one, and forms no group itself. Return the ids, which grow."""
    refused, layer, world = [], node.layer, node.world

    def refuse(sender, body, now):
        refused.append(body.id)
        world.at(now + after * MS, say, sender, Refuse(body.id, body.id + (1 << sense.COUNTER)))

    def say(sender, refusal):
        layer.send_control(REFUSE, refusal, sender, world.now)
        node.end_turn()

    layer.meeting.discovery.may_form = lambda now, unread_at: False
    setattr(layer, "take_install" if at_install else "take_prepare", refuse)
    return refused


@pytest.mark.parametrize("at_install", [False, True])
@pytest.mark.parametrize(("role", "after"), [("member", 0), ("member", 700), ("comes", 0),
                                             ("comes", 300), ("forms", 0), ("forms", 300)])
def test_who_refuses_each_view_keeps_nobody_else_from_one(role, after, at_install):
    world = formed("ABC") if role == "member" else formed("AB") if role == "comes" else World(5)
    liar = world[world["A"].view.names[-1]] if role == "member" else world.start("C")["C"]
    refused = refuse_all(liar, at_install, after)
    if role == "forms":
        world.start("A", "B")
    world.start("D")
    world.run(3300)
    honest = [node for node in world.nodes.values() if node is not liar]
    assert all({other.name for other in honest} <= set(node.view.names) for node in honest)
    assert 2 < len(set(refused)) < 200


def test_who_refuses_the_first_attempt_each_time_is_not_excluded():
    world = formed("ABC")
    first, last = (world[world["A"].view.names[index]] for index in (0, -1))
    take, refused = last.layer.take_prepare, set()

    def refuse_once(sender, prepare, now):
        if last.layer.view_id in refused:
            take(sender, prepare, now)
        else:
            refused.add(last.layer.view_id)
            last.layer.send_control(REFUSE, Refuse(prepare.id, prepare.id + VIEW), sender, now)

    last.layer.take_prepare = refuse_once
    for number in range(5):
        world.start(f"D{number}")
        world.run(700)
    assert len(refused) >= 5 and len(first.view.names) == 8
    assert all(last.name in view.names for view in first.views[-5:])


def test_who_refused_before_another_one_coordinated_has_not_refused_since():
    world = World(5)
    world.partition("AB", "CDE")
    world.start(*"ABCDE")
    world.run(1000)
    first, last = (world[name] for name in world["A"].view.names)
    first.layer.coordinator.refused[last.address.incarnation] = world.now, 1
    world.cut.clear()
    assert world.run_until_one(5000) is not None and first.view.names[0] in "CDE"
    world.run(100)
    assert not first.layer.coordinator.refused


@pytest.mark.parametrize("kind", [SEEK, OFFER], ids=["seek", "offer"])
@pytest.mark.parametrize("dies", [False, True])
def test_who_comes_under_ever_more_numbers_keeps_no_member_from_a_view(dies, kind):
    """It answers under none of them."""
    world = formed("ABC")
    first, last = (world[world["A"].view.names[index]] for index in (0, -1))
    if dies:
        last.crash()
    world.start("D")
    for number in range(1000, 1060):
        offer = Install((number << sense.COUNTER) + 1, [Seat(f"m{number}", number, "", 0)], [], [])
        seek = Seek(f"m{number}", "nowhere", first.layer.meeting.terms, 1)
        for node in world.living():
            hear(node, number, kind, seek if kind == SEEK else offer)
        world.run(100)
    assert set(first.view.names) == {node.name for node in world.living()}


@pytest.mark.parametrize("pause", [20, 250])
def test_who_seeks_under_ever_more_numbers_keeps_nobody_from_forming_a_group(pause):
    world = World(5).start("A", "B")
    world.run(1)
    for number in range(1000, 1000 + 30_000 // pause):
        for node in world.living():
            seek = Seek(f"m{number}", "nowhere", node.layer.meeting.terms, 1)
            hear(node, number, SEEK, seek)
        world.run(pause)
    assert {frozenset(node.view.names) for node in world.living()} == {frozenset("AB")}


def test_members_that_come_and_answer_only_so_often_keep_nobody_from_a_view_for_long():
    """The first goes along with no attempt, the second with one, and so on."""
    world = formed("ABC")
    first, last = (world[world["A"].view.names[index]] for index in (0, -1))

    def answer(node, times):
        take, asked = node.layer.take_prepare, set()

        def take_prepare(sender, prepare, now):
            asked.add(prepare.id)
            if len(asked) <= times:
                take(sender, prepare, now)

        node.layer.take_prepare = take_prepare

    for number in range(16):
        answer(world.start(f"D{number}")[f"D{number}"], number)
    world.run(100)
    last.crash()
    world.run(4500)
    assert last.name not in first.view.names


def test_who_knows_of_another_primary_view_each_time_keeps_no_other_member_from_one():
    world = formed("ABC")
    first, liar = (world[world["A"].view.names[index]] for index in (0, -1))
    take, true, number = liar.layer.take_prepare, first.layer.voting.quorums[-1], 1

    def lie(sender, prepare, now):
        nonlocal number
        number += 1
        roots = [true.id, number] if number == 2 else [2, number]
        false = Quorum(liar.layer.view_id + number, [liar.address.incarnation], roots, True)
        liar.layer.voting.quorums = [false]
        take(sender, prepare, now)

    liar.layer.take_prepare = lie
    before = first.layer.coordinator.num_changes
    for name in "DE":
        world.start(name)
        world.run(2000)
        assert name in first.view.names and len(first.view.names) == len(world.nodes)
        assert first.view.primary == (name == "D")
    assert 6 < first.layer.coordinator.num_changes - before < 20


def test_no_report_makes_somebody_absent_in_the_view_of_its_coordinator():
    """Senders would keep everything for a member that never was, for up to 31 days."""
    world = formed()
    first, other, last = (world[name] for name in world["A"].view.names)
    last.crash()
    change = None
    while change is None or other.address.incarnation not in change.missing():
        world.run(0.01)
        change = first.layer.coordinator.change
    ours = first.layer.install
    forged = replace(ours, absent=[Absent("Z", 99, 1_000_000)])
    hear(first, other, REPORT, Report(change.id, ours.id, {other.address.incarnation: 0}, [],
                                      install=forged))
    world.run(3000)
    assert world.is_one() and world.living()[0].view.absent == ()


@pytest.mark.parametrize("renamed", ["A", "B"])
def test_no_member_installs_a_view_in_which_one_of_its_view_has_another_name(renamed):
    """Then somebody else could have its own."""
    world = formed()
    node, other = world["A"], world["C"]
    before = node.layer.view_id
    view_id = before + (1 << sense.COUNTER)
    seats = [Seat("Z" if each.name == renamed else each.name, each.address.incarnation,
                  each.physical, before) for each in world.nodes.values()]
    hear(node, other, PREPARE, Prepare(view_id, [*seats, Seat(renamed, 99, "z", 0)]))
    hear(node, other, INSTALL, Install(view_id, [*seats, Seat(renamed, 99, "z", 0)], [], []))
    world.run(1)
    assert node.layer.promised >= view_id and node.layer.view_id == before
    world.run(3000)
    assert world.is_one() and world[renamed].address in node.view


def test_no_member_installs_a_view_in_which_an_absent_one_has_another_name():
    world = World(5).start("A", "B")
    world.start("C", durable=True)
    assert world.run_until_one(5000) is not None
    world.run(500)
    world["C"].crash()
    world.run(5000)
    node, other = world["A"], world["B"]
    before, (absent,) = node.layer.view_id, node.layer.install.absent
    assert absent.address == world["C"].address == node.view.absent[0]
    view_id = before + (1 << sense.COUNTER)
    seats = [seat.moved(before) for seat in node.layer.install.seats]
    hear(node, other, PREPARE, Prepare(view_id, seats))
    hear(node, other, INSTALL, Install(view_id, seats, [], [], [replace(absent, name="Z")]))
    world.run(1)
    assert node.layer.promised >= view_id and node.layer.view_id == before
    world.run(3000)
    assert set(node.view.names) == {"A", "B"} and node.view.absent == (absent.address,)


def test_no_joiner_installs_a_view_in_which_it_has_another_name():
    world = World(5).start("A")
    node = world["A"]
    seats = [Seat("A", 99, "z", 0), Seat("Z", node.address.incarnation, node.physical, 0)]
    hear(node, 99, PREPARE, Prepare(VIEW, seats))
    hear(node, 99, INSTALL, Install(VIEW, seats, [], []))
    world.run(1)
    assert node.layer.promised == VIEW and node.layer.view_id == 0


@pytest.mark.parametrize("install", [
    Install(VIEW, [Seat("A", 1, "", 0), Seat("A", 2, "", 0)], [], []),
    Install(VIEW, [Seat("A", 1, "", 0), Seat("B", 1, "", 0)], [], []),
    Install(VIEW, [Seat("A", 0, "", 0)], [], []),
    Install(VIEW, [Seat("A", 1, "", VIEW)], [], []),
    Install(VIEW, [Seat("A", 1, "", 7)], [Gone(2, 7, 0, 3)], []),
    Install(VIEW, [Seat("A", 1, "", 7)], [Gone(2, 8, 0, 1)], []),
    Install(VIEW, [Seat("A", 1, "", 7)], [Gone(2, 7, 0, 1, "B", [Part(3, 0, 9)])], []),
    Install(VIEW, [Seat("A", 1, "", 7)], [Gone(1, 7, 0, 1)], []),
    Install(VIEW, [Seat("A", 1, "", 7)], [Gone(2, 7, 0, 1), Gone(2, 7, 1, 1)], []),
], ids=["a name twice", "a member twice", "nobody", "from no earlier view",
        "a holder who is not there", "a holder from elsewhere",
        "a part of who is not there", "gone and there", "gone twice"])
def test_what_contradicts_itself_is_no_view(install):
    assert not sense.is_view(install)
    assert sense.is_view(Install(VIEW, [Seat("A", 1, "", 7)], [Gone(2, 7, 0, 1)], []))


def ints(info):
    """Yield the types of all numbers in a type that msgspec has inspected."""
    if isinstance(info, msgspec.inspect.IntType):
        yield info
    elif isinstance(info, msgspec.inspect.StructType):
        for field in info.fields:
            yield from ints(field.type)
    elif isinstance(info, msgspec.inspect.Metadata):
        yield from ints(info.type)
    else:
        for name in ("types", "item_type", "key_type", "value_type"):
            inner = getattr(info, name, ())
            for each in inner if isinstance(inner, tuple) else (inner,):
                yield from ints(each)


@pytest.mark.parametrize("layer", [Membership, Ends, Asking])
def test_nothing_that_is_said_of_the_group_has_a_negative_number(layer):
    """msgpack itself has no numbers beyond 64 bits. So nobody looks at each number of a
    view of hundreds of members, again and again."""
    for kind in layer.kinds:
        found = list(ints(msgspec.inspect.type_info(kind.body)))
        assert all(each.ge is not None and each.ge >= 0 for each in found), kind
    body = Install(VIEW, [Seat("A", 1, "", 0, (1 << 64) - 1)], [Gone(2, 7, 0, 1)], [])
    assert decoded(body) == body
    for number in (-1, -1 << 63):
        for wrong in (replace(body, seats=[Seat("A", 1, "", 0, number)]),
                      replace(body, gone=[Gone(2, 7, number, 1)])):
            assert decoded(wrong) is None


def decoded(install):
    return INSTALL.decode(Stack([Layer()], local=Address("Z", 9), group="world").control(
        INSTALL, install).data)


def test_the_ceiling_rises_seldom():
    ceiling, far = sense.Ceiling(), (1 << 64) - 1
    for instant in range(0, 10_000, 10):
        assert not ceiling.allows(far, instant * MS)
    assert ceiling.counter == sense.FIRST_LAST + 20 * sense.STEP


@pytest.mark.parametrize("pause", [0.3, 20.0])
def test_two_groups_become_one_soon_after_a_flood_of_prepares_of_strangers_ends(pause):
    """While it lasts, they do not: each promises the views of the strangers."""
    world = formed("ABCDE")
    world.partition("AB", "CDE")
    world.run(5000)
    world.cut = set()
    for number in range(1, int(2000 / pause)):
        for node in world.living():
            seats = [Seat("Z", 1000 + number, "elsewhere", 0), node.layer.seat()]
            view_id = node.layer.view_id + (1 << sense.COUNTER)
            hear(node, 1000 + number, PREPARE, Prepare(view_id, seats))
        world.run(pause)
    assert not world.is_one()
    assert world.run_until_one(5000) < 3000
