"""Groups that trust keys: one test a threat, as test_threats.py has them for a secret.
Whoever has no trusted key is not heard, no member takes another one's name, and whose
key is removed does not come back.
"""

from contextlib import closing
from random import Random

import pytest
from ports import free_port
from sealed_members import MS, keys, meet
from test_former import held_installs
from test_threats import check_answers, check_flipped_bits, flipped, sealed_by
from trusting_members import Trusting, key_of, private, trusting

from ringcast._core import wire
from ringcast._core.seal import nonce
from ringcast.config import MIN_DATAGRAM, PROOF_SIZE
from ringcast.protocols.membership.coordinator import MEETING
from ringcast.protocols.membership.messages import (
    INSTALL,
    PREPARE,
    PRESENT,
    SEEK,
    Present,
    Refuse,
    Seek,
)
from ringcast.protocols.security import hello, identity as identities, seal as seals
from ringcast.protocols.security.hello import MOST_ASKED, MOST_SIGNED_ANSWERS
from ringcast.protocols.security.identity import Identity, may_use
from ringcast.protocols.security.seal import CONTROL, HEADER, HEADER_SIZE, MAGIC, VERSION
from ringcast.sim.checkers import Violation
from ringcast.sim.cluster import Cluster
from ringcast.sim.pretender import Pretender
from ringcast.stack import HeldKeys
from ringcast.transport.tcp.handshake import SIZE, Kind, Record, decode, encode, size_of
from ringcast.transport.tcp.transport import TcpTransport


def pair(**options):
    a, b = Trusting(1, "a", **options), Trusting(2, "b", **options)
    meet(a, b)
    return a, b


# ------------------------------------------------------------------------------ HELLO

def test_two_who_trust_each_other_hear_each_other():
    a, b = pair()
    assert b.hear(a.say(b"x")) == [b"x"] and a.hear(b.say(b"y")) == [b"y"]
    assert b.identity.fits(1, "a", a.keyring.public) and b.identity.fits(1, "a/again")
    assert not b.identity.fits(1, "b") and not b.identity.fits(1, "a", b.keyring.public)


@pytest.mark.parametrize("stranger", [
    Trusting(3, "x", trusts="abcx"), Trusting(3, "c", secret=bytes([1] * 32)),
    Trusting(3, "c", group="other")], ids=["another key", "another secret", "another group"])
def test_who_has_no_trusted_key_is_not_heard_and_hears_nothing(stranger):
    a, b = pair()
    meet(a, b, stranger)
    assert 3 not in a.senders and 3 not in a.identity.proved
    assert a.hear(stranger.say(b"x")) == [] and stranger.hear(a.say(b"x")) == []
    assert not stranger.senders


def test_one_who_trusts_me_and_whom_i_do_not_trust_is_not_heard():
    a, c = Trusting(1, "a", trusts="ab"), Trusting(3, "c")
    meet(a, c)
    assert not a.senders and not c.senders and a.count("hellos_refused") > 0


def test_of_a_signed_hello_no_flipped_bit_is_believed():
    """Also if the check that everybody can make is made again."""
    a, b = Trusting(1, "a"), Trusting(2, "b")
    b.hellos(0)
    a.open(Trusting(2, "b").hellos(0), 0)
    b.linked([1])
    a.open(b.hellos(0), 0)
    said, = a.hellos(0)                             # it answers b
    for damaged in flipped(said[:-16]):
        b.identity._checks._left = 99
        b.open([damaged + hello._mac(b.keys.hello, damaged)], 0)
        assert not b.senders and not b._answers and not b.identity.proved.keys() - {2}
    b.open([said], 0)
    assert list(b.senders) == [1]


def test_of_every_kind_of_datagram_no_flipped_bit_opens_where_keys_are_trusted():
    """Where it is sealed with what a HELLO has brought."""
    a, b = pair()
    check_flipped_bits(a, b)
    assert b.senders[1].root


def test_a_hello_that_is_not_signed_is_not_read_where_keys_are_trusted():
    """Nor one that is, where a secret is enough."""
    a, b = pair()
    header = HEADER.pack(MAGIC, VERSION, 0, 0, 9, 0)
    plain = hello.write_hello(b.keys.hello, header, hello.Hello(
        bytes(16), bytes(16), (0,) * 4, [0], {2: b.challenge}))
    b.open([plain], 0)
    assert 9 not in b.senders and b.count("hellos_refused") == 1 and not b.has_to_say
    a.linked([5])
    signed, = a.hellos(0)
    assert hello.read_hello(a.keys.hello, signed, HEADER_SIZE) is None


@pytest.mark.parametrize("change", [{"secret": bytes([1] * 32)}, {"group": "other"}],
                         ids=lambda change: next(iter(change)))
def test_a_hello_is_signed_for_one_group_and_secret(change):
    """The check that everybody can make is made again."""
    a, other = Trusting(1, "a"), Trusting(9, "b", **change)
    said, = other.hellos(0)
    assert hello.read_hello(other.keys.hello, said, HEADER_SIZE, True) is not None
    said = said[:-16] + hello._mac(a.keys.hello, said[:-16])
    a.open([said], 0)
    assert not a._answers and a.count("hellos_refused") == 1


def test_nobody_speaks_in_the_name_of_a_process_that_has_proved_another_key():
    """Who has a key cannot put itself in the place of another member's process."""
    a, b = pair()
    thief = Trusting(1, "c")
    thief.salt = a.salt
    thief._without_view.epoch = 5
    thief._answers, thief._publics = {2: b.challenge}, {2: b.keyring.public}
    b.open(thief.hellos(0), 0)
    assert b.count("hellos_refused") == 1
    assert b.disputed == {1: (key_of("a"), key_of("c"))}
    assert b.identity.proved[1].key == key_of("a") and b.senders[1].number == 0
    assert b.hear(a.say(b"x")) == [b"x"]


def test_a_key_that_nobody_trusts_disputes_nothing():
    """Else a stranger writes into the log of a member."""
    a, b = pair()
    meet(a, b, Trusting(1, "x", trusts="abx"))
    forged, = Trusting(1, "c").hellos(0)
    forged = forged[:-80] + bytes(64)
    b.open([forged + hello._mac(b.keys.hello, forged)], 0)
    assert b.count("hellos_refused") == 2 and not b.disputed


def test_nobody_takes_a_members_place_however_many_processes_it_begins(monkeypatch):
    """Who has another trusted key makes others forget nobody of their view."""
    monkeypatch.setattr(seals, "MOST_SENDERS", 8)
    a, b = pair()
    a.rekey(HeldKeys(1, {1: bytes(32)}, {1: (1, 2)}), 0)
    for number in range(1000, 1020):
        meet(a, Trusting(number, "c"), now=number * 20 * MS)
    assert len(a.senders) == 8 and list(a.senders)[0] == 2 and 1000 not in a.senders
    thief = Trusting(2, "c")
    meet(a, thief, now=30_000 * MS)
    assert a.identity.proved[2].key == key_of("b")
    assert a.hear(thief.say(b"x")) == [] and a.hear(b.say(b"y")) == [b"y"]


def test_whoever_is_in_the_view_is_not_forgotten():
    cluster = group()
    for member in cluster.living():
        held = member.members.rekeying.keyring.held()
        assert set(held.members[held.present]) == set(member.members.members)
        assert set(member.transport.seal._members) == set(member.members.members)


def test_what_a_hello_brings_opens_for_the_one_whom_it_answers_alone():
    a, b, c = Trusting(1, "a"), Trusting(2, "b"), Trusting(3, "c")
    meet(a, b, c)
    a._answers, a._publics, a._asked = {2: b.challenge}, {2: b.keyring.public}, {}
    said, = a.hellos(0)
    found = hello.read_hello(a.keys.hello, said, HEADER_SIZE, True)
    for other in (b, c):
        opened = [other.keyring.unseal(found.roots[2], b"ringcast 1 root 1 %d 0" % number)
                  for number in (2, 3)]
        assert (opened[0] == a._drawn) == (other is b) and opened[1] is None
    assert a._drawn not in said


def test_a_signed_hello_that_asks_and_answers_many_fits_the_smallest_datagram():
    a, b = pair()
    a.linked(range(10, 10 + MOST_ASKED))
    a._answers = {number: bytes(16) for number in range(20, 20 + 2 * MOST_SIGNED_ANSWERS)}
    a._publics = dict.fromkeys(a._answers, b.keyring.public)
    hellos = a.hellos(0)
    assert len(hellos) == 2 and max(map(len, hellos)) <= MIN_DATAGRAM


def test_who_has_a_public_key_that_is_none_is_not_answered():
    a, b = pair()
    a._answers, a._publics = {2: bytes(16), 3: bytes(16)}, {2: bytes(32), 3: b.keyring.public}
    said, = a.hellos(0)
    found = hello.read_hello(a.keys.hello, said, HEADER_SIZE, True)
    assert list(found.answers) == list(found.roots) == [3]


def test_with_a_secret_too_both_are_needed():
    """The secret is asked first: a stranger does not even make us check a signature."""
    a, b = pair(secret=bytes([7] * 32))
    other = Trusting(3, "c")
    checks = a.identity._checks._left
    meet(a, b, other)
    assert 3 not in a.senders and a.identity._checks._left == checks
    assert b.hear(a.say(b"x")) == [b"x"]


# ------------------------------------------------------------------------------ bounds

def test_only_so_many_signatures_are_checked(monkeypatch):
    """However many a stranger forges, in the name of a key that it has read."""
    a, b = pair()
    checked = []
    loaded = identities.Ed25519PublicKey
    monkeypatch.setattr(identities, "Ed25519PublicKey", type("Noted", (), {
        "from_public_bytes": staticmethod(
            lambda raw: checked.append(raw) or loaded.from_public_bytes(raw))}))
    asking, = Trusting(9, "c").hellos(0)
    forged = asking[:-80] + bytes(64)
    forged += hello._mac(b.keys.hello, forged)
    for step in range(1000):                        # 1 s
        b.open([forged] * 20, step * MS)
    assert identities.BURST <= len(checked) <= identities.BURST + 501
    assert not b._answers and 9 not in b.senders and b.count("hellos_refused") == 20_000


def test_no_signed_hello_is_answered_with_much_more_than_it_has():
    a, _ = pair()
    recorded = [Trusting(number, "c").hellos(0)[0] for number in range(3, 103)]
    check_answers(a, recorded, hello._ANSWER.size + hello.ROOT_SIZE)


def test_what_concerns_others_is_not_checked():
    a, b = pair()
    checks = b.identity._checks._left
    a.linked([77])                                  # it asks another one
    b.open(a.hellos(0), 0)
    assert b.identity._checks._left == checks


# ------------------------------------------------------------------------------ names

@pytest.mark.parametrize(("name", "is_allowed"), [
    ("a", True), ("a/1", True), ("a/b/c", True), ("b", False), ("", False), ("ab", False),
    ("A", False), ("a ", False), ("/a", False), ("b/a", False)])
def test_a_key_may_use_its_name_and_what_is_below_it(name, is_allowed):
    assert may_use(name, frozenset("a")) == is_allowed


def group(names="ABC", stack="mcast-udp", **options):
    cluster = Cluster(names, stack=stack, trusted=True, seed=3, form_margin=20,
                      heartbeat_interval=20, suspect_timeout=200, **options)
    for pretender in cluster.pretenders:
        pretender.end()
    cluster.stranger = None
    cluster.start()
    cluster.settle(20_000)
    return cluster


def heard(cluster, target, sender, kind, body):
    """Let a member hear something that a process says which it hears."""
    data = cluster[target].stack.control(kind, body).data[wire.HEADER_SIZE:]
    member = cluster[target]
    member.turn([wire.make_datagram(kind, member.stack.group, sender, 0, bytes(data), False)])


def proved(cluster, name, number=9):
    """A process of this name that has proved its key to all, and is no member."""
    ring = cluster.sealing.keyring(number, name)
    for member in cluster.living():
        member.keyring.identity.proved[number] = identities.Proved(cluster.sealing.key(name),
                                                                   ring.public)
    return ring


def seek(cluster, target, ring, name, public=None):
    body = Seek(name, "there", cluster[target].members.meeting.terms, 1, 0, public or ring.public)
    heard(cluster, target, 9, SEEK, body)
    return 9 in cluster[target].members.meeting.discovery.seekers


def test_who_seeks_with_the_name_of_another_key_is_not_let_in():
    """Also with a name that nobody has now, and with another public key than it has
    proved."""
    cluster = group()
    ring = proved(cluster, "C")
    cluster.sealing.trusted[bytes(32)] = frozenset("D")
    assert not seek(cluster, "A", ring, "A") and not seek(cluster, "A", ring, "D")
    assert not seek(cluster, "A", ring, "C/1", bytes([9] * 32))
    assert cluster["A"].members.num_bad == 3
    present = Present("A", "there", cluster["A"].members.meeting.terms, 7, 1, 9)
    heard(cluster, "A", 9, PRESENT, present)
    assert cluster["A"].members.num_bad == 4
    assert 9 not in cluster["A"].members.meeting.discovery.others
    assert seek(cluster, "A", ring, "C/1")


@pytest.mark.parametrize("fooled", ["a member", "the one that comes"])
def test_who_signs_first_for_the_number_of_a_new_process_keeps_it_out_and_gets_nothing(fooled):
    """Until its key is removed: docs/threats.md says so. The members stay together."""
    cluster = group()
    trusted = cluster.sealing.trusted
    trusted |= {cluster.sealing.key(name): frozenset(name) for name in "DE"}
    retrust(cluster, dict(trusted))
    cluster.start("D")
    target, other = (cluster[name] for name in ("BD" if fooled == "a member" else "DB"))
    ring, seal = cluster.sealing.keyring(other.incarnation, "E"), target.transport.seal
    thief = cluster.sealing.seal(other.incarnation, ring)
    thief._answers = {target.incarnation: seal.challenge}
    thief._publics = {target.incarnation: target.keyring.public}
    seal.open(thief.hellos(0), target.now)
    names = [name for name in "ABCDE" if seal.identity.fits(other.incarnation, name)]
    before = len(cluster["A"].views)
    cluster.run(8_000)
    assert names == ["E"]
    assert seal.disputed[other.incarnation] == tuple(map(cluster.sealing.key, ("E", other.name)))
    assert all(sorted(view.names) == ["A", "B", "C"]
               for name in "ABC" for view in cluster[name].views[before:])
    assert "B" not in cluster["D"].views[-1].names
    del trusted[cluster.sealing.key("E")]
    retrust(cluster, dict(trusted), "ABCD")
    cluster.run(12_000)
    assert {len(member.views[-1]) for member in cluster.living()} == {4}


@pytest.mark.parametrize("change", [{"name": "A/1"}, {"public": bytes([9] * 32)},
                                    {"incarnation": 10}], ids=lambda change: next(iter(change)))
def test_no_member_promises_a_view_with_one_who_has_not_proved_its_seat(change):
    """Whoever coordinates it, and whomever he has let in."""
    cluster = group()
    ring, target = proved(cluster, "C"), cluster["B"]
    seats = [*target.members.members.values()]
    good = type(seats[0])("C/1", 9, "there", 0, public=ring.public)
    assert target.members.rekeying.strangers([*seats, good]) == []
    for field, value in change.items():
        setattr(good, field, value)
    assert target.members.rekeying.strangers([*seats, good]) == [good.incarnation]
    before, maker = target.members.promised, cluster["A"].members
    held = []
    cluster.former.hear = lambda source, datagram, sealed: held.append((source, datagram))
    ours = [seat.moved(maker.view_id) for seat in maker.members.values()]
    maker.coordinator.begin([*ours, good], None, cluster["A"].now)
    cluster["A"].request_turn()
    assert maker.coordinator.change is not None
    for member in (cluster["A"], target):
        assert member.members.promised == before
    cluster.run(5_000)
    assert [datagram[3] for source, datagram in held].count(PREPARE) > 0
    assert all(9 not in member.members.members and 10 not in member.members.members
               for member in cluster.living())
    assert [len(member.views[-1]) for member in cluster.living()] == [3, 3, 3]


def test_a_member_that_refuses_a_stranger_stays_and_the_stranger_does_not_come():
    """Nor the others of its group. But two may first be about to meet."""
    cluster = group()
    maker, now = cluster["A"].members, cluster["A"].now
    seats = [seat.moved(maker.view_id) for seat in maker.members.values()]
    others = [type(seats[0])(name, number, "there", before, public=bytes([number] * 32))
              for name, number, before in (("A/1", 7, 77), ("A/2", 8, 77), ("A/3", 9, 0))]
    maker.coordinator.begin([*seats, *others], None, now)
    for after, names in ((MEETING - 1, {"A", "B", "C", "A/1", "A/2", "A/3"}),
                         (MEETING, {"A", "B", "C", "A/3"})):
        refusal = Refuse(maker.coordinator.change.id, 0, [8])
        maker.coordinator.take_refusal(cluster["B"].incarnation, refusal, now + after)
        assert {seat.name for seat in maker.coordinator.change.seats} == names
    assert "A/2 and B do not trust each other's keys" in cluster["A"].stack.take().warnings[0]
    assert maker.meeting.discovery.is_shunned(8, now + MEETING)


def test_who_takes_another_name_is_a_stranger():
    cluster = group()
    layer = cluster["B"].members
    seats = [seat.moved(layer.view_id) for seat in layer.members.values()]
    assert layer.rekeying.strangers(seats) == []
    seats[2].name = "A/1"
    assert layer.rekeying.strangers(seats) == [seats[2].incarnation]


def test_a_view_whose_names_were_changed_is_not_installed():
    """The key of the view says nothing of names, and nobody knows yet the name of who
    comes."""
    cluster = group()
    cluster.sealing.trusted = cluster.sealing.trusted | {cluster.sealing.key("D"): frozenset("D")}
    for name in "ABC":
        cluster[name].transport.seal.retrust(cluster.sealing.trusted)
    target, held = cluster["B"], held_installs(cluster, "D")
    install, before = INSTALL.decode(held[0]), target.members.view_id
    for seat in install.seats:
        seat.name = {"D": "A/1"}.get(seat.name, seat.name)
    assert len(install.seats) == 4
    heard(cluster, "B", cluster["A"].incarnation, INSTALL, install)
    assert target.members.view_id == before
    heard(cluster, "B", cluster["A"].incarnation, INSTALL, INSTALL.decode(held[0]))
    assert target.members.view_id == install.id


def test_one_whom_a_member_does_not_trust_is_not_let_in_and_nobody_is_excluded():
    """The folders differ: C trusts D not. All stay together, D waits, and comes when C
    trusts it."""
    cluster = group()
    trusted = cluster.sealing.trusted
    full = trusted | {cluster.sealing.key("D"): frozenset("D")}
    for name in "AB":
        cluster[name].transport.seal.retrust(full)
    before, changes = len(cluster["A"].views), cluster["A"].members.coordinator.num_changes
    cluster.sealing.trusted = full
    cluster.start("D")
    cluster.run(3_000)
    assert all(sorted(view.names) == ["A", "B", "C"] for view in cluster["A"].views[before:])
    assert not cluster["D"].views and len(cluster["C"].views[-1]) == 3
    assert cluster["A"].members.coordinator.num_changes <= changes + 2
    told = [warning for name in "ABC" for warning in cluster[name].warnings]
    assert len(told) == 1 and "C and D do not trust each other's keys" in told[0]
    cluster["C"].transport.seal.retrust(full)
    cluster.run(12_000)
    assert {len(member.views[-1]) for member in cluster.living()} == {4}


# ------------------------------------------------------------------------------ removed keys

def test_whose_key_is_removed_is_heard_no_more_and_reads_nothing():
    """It knew what opens all that is said without a view."""
    a, b, c = Trusting(1, "a"), Trusting(2, "b"), Trusting(3, "c")
    meet(a, b, c)
    known = {number: sender.root for number, sender in c.senders.items()}
    for member in (a, b):
        member.retrust(trusting("ab"))
        assert 3 not in member.senders and 3 not in member.identity.proved
    meet(a, b)
    assert a.hear(c.say(b"x")) == [] and c.hear(a.say(b"x")) == []
    assert b.hear(a.say(b"x")) == [b"x"] and a.hear(b.say(b"y")) == [b"y"]
    assert known[1] != b.senders[1].root and known[2] != a.senders[2].root
    meet(a, b, c)
    assert 3 not in a.senders and c.hear(a.say(b"x")) == []
    for epoch in range(4):                          # it speaks for a, with what a told it once
        header = HEADER.pack(MAGIC, VERSION, CONTROL, epoch, 1, 1000)
        text = wire.make_datagram(24, 1, 1, 0, b"forged")
        cipher = c.keys.cipher(a.salt, 1, epoch, known[1])
        said = header + cipher.encrypt(nonce(CONTROL, 1000), text, header)
        assert b.open([said], 0) == []


def test_who_did_not_hear_of_the_new_root_asks_for_it():
    a, b = pair()
    a.retrust(trusting("ab"))
    a.hellos(0)                                     # lost
    assert b.hear(a.say(b"x"), now=20 * MS) == []
    meet(a, b, now=20 * MS)
    assert b.hear(a.say(b"x"), now=20 * MS) == [b"x"]


def test_a_key_that_is_added_disturbs_nobody_and_is_trusted():
    a, b = Trusting(1, "a", trusts="ab"), Trusting(2, "b", trusts="ab")
    meet(a, b)
    before = a.challenge, a._drawn
    for member in (a, b):
        member.retrust(trusting("abc"))
    assert (a.challenge, a._drawn) == before and not a.has_to_say
    c = Trusting(3, "c")
    meet(a, b, c)
    assert a.hear(c.say(b"x")) == [b"x"]


def test_who_asked_before_its_key_was_removed_is_not_answered_with_the_new_root():
    a, b, c = Trusting(1, "a"), Trusting(2, "b"), Trusting(3, "c")
    meet(a, b, c)
    c.linked([1]), c._asked.update({1: None})
    a.open(c.hellos(0), 0)
    assert 3 in a._answers
    a.retrust(trusting("ab"))
    answered = {each for said in a.hellos(0)
                for each in hello.read_hello(a.keys.hello, said, HEADER_SIZE, True).answers}
    assert answered == {2}


def test_a_key_that_comes_back_brings_no_process_back():
    """Its answer to our challenge was recorded."""
    a, b = pair()
    recorded = Trusting(3, "c")
    a._answers, a._publics, a._asked = {}, {}, {3: None}
    recorded.hellos(0), recorded.open(a.hellos(0), 0)
    answer, = recorded.hellos(0)
    a.open([answer], 0)
    said = recorded.say(b"x")
    assert a.hear(said) == [b"x"]
    a.retrust(trusting("ab")), a.retrust(trusting("abc"))
    a.open([answer], 0)
    assert 3 not in a.senders and a.hear(said) == []


def test_what_opens_the_datagrams_of_a_process_takes_the_secret_too():
    made = {keys(secret=bytes([number] * 32), group=name).of_process(b"k" * 32)
            for number in (0, 1) for name in "gh"}
    assert len(made) == 4


def test_a_key_that_loses_a_name_has_to_prove_itself_again():
    a, b = pair()
    a.retrust({key_of("a"): frozenset("a"), key_of("b"): frozenset("z")})
    assert 2 not in a.senders and a.hear(b.say(b"x")) == []
    meet(a, b, now=20 * MS)
    assert a.identity.fits(2, "z") and not a.identity.fits(2, "b")


@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-tcp"])
def test_whose_key_is_removed_while_it_is_a_member_is_excluded_and_does_not_come_back(stack):
    cluster = group(stack=stack)
    cluster.checkers.note_cause()
    trusted = dict(cluster.sealing.trusted)
    del trusted[cluster.sealing.key("C")]
    for name in "AB":
        cluster[name].transport.seal.retrust(trusted)
        cluster[name].request_turn()
    cluster.run(3_000)
    for name in "AB":
        assert sorted(cluster[name].views[-1].names) == ["A", "B"]
    cluster["C"].crash()
    cluster.start("C")
    cluster.run(3_000)
    assert all(sorted(cluster[name].views[-1].names) == ["A", "B"] for name in "AB")
    for name in "AB":
        cluster[name].transport.seal.retrust(cluster.sealing.trusted)
    cluster.run(3_000)
    assert {len(member.views[-1]) for member in cluster.living()} == {3}


def named(cluster, *names):
    """What is trusted if the key of C has these names."""
    return cluster.sealing.trusted | {cluster.sealing.key("C"): frozenset(names)}


def retrust(cluster, trusted, names="ABC"):
    cluster.sealing.trusted = trusted
    for name in names:
        cluster[name].transport.seal.retrust(trusted)
        cluster[name].request_turn()


def test_a_member_whose_key_loses_its_name_keeps_nobody_out():
    """The key is trusted under another name, so the member is heard. It goes: who is
    new takes no view with it."""
    cluster = group()
    cluster.checkers.note_cause()
    retrust(cluster, named(cluster, "C", "C2"))
    cluster.run(1_000)
    assert len(cluster["A"].views[-1]) == 3
    retrust(cluster, named(cluster, "C2"), "AB")
    cluster.run(3_000)
    assert all(sorted(cluster[name].views[-1].names) == ["A", "B"] for name in "AB")
    retrust(cluster, cluster.sealing.trusted | {cluster.sealing.key("D"): frozenset("D")}, "AB")
    cluster.start("D")
    cluster.run(3_000)
    assert all(sorted(cluster[name].views[-1].names) == ["A", "B", "D"] for name in "ABD")


def test_a_key_that_loses_a_name_that_is_not_used_stays():
    cluster = group()
    retrust(cluster, named(cluster, "C", "C2"))
    before = len(cluster["A"].views)
    cluster.run(1_000)
    retrust(cluster, named(cluster, "C"))
    assert cluster["C"].incarnation not in cluster["A"].transport.seal.senders
    assert not cluster["A"].members.rekeying.misnamed(cluster["A"].members.members)
    cluster.run(3_000)
    assert len(cluster["A"].views) == before and len(cluster["A"].views[-1]) == 3


def test_a_member_that_has_lost_its_name_must_go_in_the_next_view_too():
    """Somebody else has made it, who still trusts the name."""
    cluster = group()
    layer, target = cluster["B"].members, cluster["C"].incarnation
    identity = layer.rekeying.keyring.identity
    identity.trusted = named(cluster, "C2")
    layer.detection.departed.clear()
    maker = cluster["A"].members
    seats = [seat.moved(maker.view_id) for seat in maker.members.values()]
    before = layer.view_id
    maker.coordinator.begin(seats, None, cluster["A"].now)
    cluster["A"].request_turn()
    while layer.view_id == before:
        cluster.run(1)
    assert layer.detection.departed == {target}


# ------------------------------------------------------------------------------ the simulator

def test_the_simulator_notices_who_is_let_in():
    cluster = group()
    pretender = Pretender(cluster, Random(1), "stranger")
    pretender._check()
    cluster["A"].members.meeting.discovery.seekers.remember(pretender.incarnation, None)
    with pytest.raises(Violation, match="is let in by A"):
        pretender._check()


def test_the_simulator_notices_who_is_heard():
    cluster = group()
    pretender = Pretender(cluster, Random(1), "stranger")
    cluster["A"].transport.seal.senders[pretender.incarnation] = None
    with pytest.raises(Violation, match="is heard by A"):
        pretender._check()


# ------------------------------------------------------------------------------ TCP

def identity(name, trusts="abc"):
    return Identity(private(name), trusting(trusts))


def test_a_handshake_of_somebody_without_a_trusted_key_is_refused():
    record = Record(Kind.PROPOSE, 1, 1, ("127.0.0.1", 7700), bytes(16))
    said = encode(7, record, b"before", b"k", identity("a"))
    assert len(said) == SIZE + PROOF_SIZE == size_of(identity("a"))
    assert decode(said, 7, b"before", b"k", identity("b")) == record._replace(key=key_of("a"))
    assert decode(said, 7, b"another", b"k", identity("b")) is None
    assert decode(said, 7, b"before", b"k", identity("b", "bc")) is None
    for damaged in flipped(said):
        assert decode(damaged, 7, b"before", b"k", identity("b")) is None


def test_no_handshake_is_taken_in_the_name_of_a_process_that_has_proved_another_key():
    """Else who has a key gets the link to another member's process."""
    ours = identity("a")
    record = Record(Kind.PROPOSE, 2, 1000, ("127.0.0.1", 7700), bytes(16))
    said = {name: encode(7, record, b"before", b"k", identity(name)) for name in "bc"}
    assert decode(said["c"], 7, b"before", b"k", ours).key == key_of("c")   # nobody knows better
    ours.proved[2] = identities.Proved(key_of("b"), bytes(32))
    assert decode(said["c"], 7, b"before", b"k", ours) is None
    assert decode(said["b"], 7, b"before", b"k", ours) == record._replace(key=key_of("b"))


def test_the_links_of_a_key_that_is_removed_are_cut_and_not_made_again():
    ours, port = identity("a"), free_port(2)
    with closing(linked(port, 1, ours)) as a, closing(linked(port, 2, identity("b"))) as b:
        poll(a, b, until=lambda: a.status().control_links == b.status().control_links == 1)
        ours.trusted = trusting("a")
        refused, looks = a.status().handshakes_refused, iter(range(2_000))
        while a.status().links and next(looks, None) is not None:
            a._check_links_at = a._timer = 0            # it is time to look
            poll(a, b)
        assert a.status().links == 0
        poll(a, b, until=lambda: a.status().handshakes_refused > refused)
        assert a.status().links == a.status().control_links == 0
        ours.trusted = trusting("ab")
        poll(a, b, until=lambda: a.status().links == 1)


def linked(port, member, ours):
    return TcpTransport(group=7, member=member, port=port, port_range=2, key=b"k", identity=ours,
                        link_timeout=1.0, control={24})


def poll(*transports, until=None):
    """Poll once, or until something holds."""
    while True:
        for transport in transports:
            transport.poll(1_000_000)
        if until is None or until():
            return


def test_what_was_signed_for_one_purpose_proves_nothing_for_another():
    """A HELLO as a record of TCP, and the other way round."""
    a, b = pair()
    record = encode(7, Record(Kind.HELLO, 1, 0, ("127.0.0.1", 7700), bytes(16)), b"", b"k",
                    a.identity)
    raw, proof = record[:SIZE], record[SIZE:]
    assert b.identity.believes(b"ringcast 1 link " + raw, proof, 0)
    assert not b.identity.believes(hello._signed_hello(a.keys.hello, raw), proof, 0)


def test_a_sealed_datagram_is_that_of_its_sender():
    a, b, c = Trusting(1, "a"), Trusting(2, "b"), Trusting(3, "c")
    meet(a, b, c)
    inside = wire.make_datagram(24, 1, 2, 0, b"")
    assert c.open([sealed_by(a, inside)], 0) == []
