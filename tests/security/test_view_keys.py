"""The keys of views (keyring.py, rekeying.py): who holds which, and what opens with
them. For each rule there is a mistake in tests/mutations/protocol.py."""

from random import Random

import pytest
from sealed_members import ALIVE, DATA, MS, SECRET, keys, meet

from ringcast._core import wire
from ringcast.protocols.membership.messages import Seat
from ringcast.protocols.security import keyring as keyrings, seal as sealing
from ringcast.protocols.security.keyring import MOST_HELD, Keyring
from ringcast.protocols.security.seal import (
    ENTROPY,
    HEADER,
    MOST_SENDERS,
    MOST_VIEWS,
    OLD_KEY,
    Seal,
)
from ringcast.stack import HeldKeys

A, B, C = 1, 2, 3


def view(counter, maker=A):
    return counter << 32 | maker


class Process(Keyring):
    """A process with a keyring. It keeps nothing of former views."""

    def __init__(self, number, group="g"):
        super().__init__(group, number, Random(f"{number} {group}").randbytes(keyrings.ENTROPY))

    def seat(self):
        return Seat(f"m{self.member}", self.member, "", 0, public=self.public)


def prepared(coordinator, view_id, *members):
    """What a PREPARE of a view says of its key."""
    seats = [member.seat() for member in members]
    return view_id, seats, *coordinator.make(view_id, seats)


def take(member, coordinator, prepare, *, chained=False):
    view_id, seats, sealed, chain = prepare
    return member.take(coordinator.member, view_id, seats, sealed, chain if chained else None)


def install(coordinator, view_id, *members, chained=False):
    """Let members take a key and install the view."""
    prepare = prepared(coordinator, view_id, *members)
    for member in members:
        assert take(member, coordinator, prepare, chained=chained)
        member.install(view_id)
    return prepare


def group(*numbers, view_id=None):
    """Members of one view, of which the first has made the key."""
    members = [Process(number) for number in numbers]
    install(members[0], view_id or view(1), *members)
    return members


def test_all_members_and_nobody_else_get_the_key_of_a_view():
    a, b, c = map(Process, (A, B, C))
    prepare = install(a, view(1), a, b)
    assert a.held() == b.held() and a.held().keys.keys() == {view(1)}
    assert not take(c, a, prepare) and not c.held().keys
    sealed = prepare[2]
    thief = Process(C)
    thief.member = B                                # it says that it is b, and has not its key
    assert not take(thief, a, prepare) and len(sealed) == 2


def test_each_view_has_a_new_key():
    a, b, c = group(A, B, C)
    known = set(c.held().keys.values())
    install(a, view(2), a, b, chained=True)         # without c
    install(b, view(3, B), a, b, chained=True)      # a has died as coordinator: b succeeds
    install(a, view(4), a, b, c)                    # c comes again
    assert len(known | set(a.held().keys.values())) == 2
    assert a.held().keys.keys() == {view(4)}        # and nothing of former ones


def test_a_key_is_bound_to_the_view_and_to_the_member():
    """A key that was sealed for an earlier view is that of no later one, even if
    somebody says that it is, and that of one member is not another's."""
    a, b, c = group(A, B, C)
    _, seats, sealed, chain = prepared(a, view(2), a, b, c)
    assert not b.take(A, view(3), seats, sealed, None)
    assert not b.take(A, view(2), seats, {B: sealed[A]}, None)
    other = Process(B, group="another")
    other._private = b._private
    assert not other.take(A, view(2), seats, sealed, None)
    assert b.take(A, view(2), seats, sealed, chain)


def test_of_one_view_there_is_one_key():
    """The id has a part of the coordinator; whoever takes another's id is refused by
    those who have a key of it. And a process makes the same key of an id again."""
    a, b, c = group(A, B, C)
    first = prepared(a, view(2), a, b, c)
    assert take(b, a, first) and not take(b, c, prepared(c, view(2), a, b, c))
    assert take(b, a, first)                        # PREPARE was repeated
    assert take(c, a, prepared(a, view(2), a, b, c))
    assert b.held().keys[view(2)] == c.held().keys[view(2)]


def test_who_is_in_the_view_must_show_its_key_to_make_the_next_one():
    a, b, c = group(A, B, C)
    install(a, view(2), a, b, chained=True)         # c is out, and knows the key of the first
    forged = prepared(c, view(3), a, b)             # in a's name
    assert c.held().keys.keys() == {view(1)} and forged[3].keys() == {view(1)}
    assert not take(b, a, forged, chained=True)
    view_id, seats, sealed, chain = forged
    for told in ({}, {view(2): chain[view(1)]}, {view(2): b"", view(1): chain[view(1)]}):
        assert not b.take(A, view_id, seats, sealed, told)
    assert take(b, a, prepared(a, view(3), a, b), chained=True)


def test_a_chain_covers_all_that_a_prepare_says_of_keys():
    a, b, c = group(A, B, C)
    view_id, seats, sealed, chain = prepared(a, view(2), a, b, c)
    thief = Process(4)
    changed = [seats[0], seats[1], Seat("m3", C, "", 0, public=thief.public)]
    assert not b.take(A, view_id, changed, sealed, chain)
    assert not b.take(A, view_id, seats[:2], sealed, chain)
    assert not b.take(A, view_id, seats, sealed | {C: sealed[A]}, chain)
    assert not b.take(A, view(3), seats, sealed, chain)
    assert b.take(A, view_id, seats, sealed, chain)


def test_who_missed_a_view_and_who_has_it_understand_each_other():
    """A member that has promised a view holds its key, whether it was installed or
    not. So each of them can make the next view of both."""
    a, b, c = group(A, B, C)
    prepare = prepared(a, view(2), a, b, c)
    assert all(take(member, a, prepare, chained=True) for member in (a, b, c))
    b.install(view(2))                              # a has died, and c has heard no INSTALL
    assert take(c, b, prepared(b, view(3, B), b, c), chained=True)
    assert take(b, c, prepared(c, view(4, C), b, c), chained=True)
    assert b.held().keys.keys() == {view(2), view(4, C)}


def test_who_was_to_come_and_did_not_makes_no_view_of_the_others():
    """It holds the key of a view that they have promised and not installed."""
    a, b, c = *group(A, B), Process(C)
    assert all(take(member, a, prepared(a, view(2), a, b, c)) for member in (b, c))
    forged = prepared(c, view(3), a, b)
    assert forged[3].keys() == {view(2)} and not take(b, a, forged, chained=True)


def test_an_older_view_is_not_prepared_again():
    a, b, c = group(A, B, C)
    old = prepared(a, view(2), a, b, c)
    install(a, view(3), a, b, chained=True)
    assert not take(b, a, old) and b.held().keys.keys() == {view(3)}


def test_a_view_is_that_of_the_members_for_whom_its_key_was_made():
    a, b, c = group(A, B, C)
    view_id, seats, _, _ = prepare = prepared(a, view(2), a, b, c)
    assert take(b, a, prepare)
    thief = Seat("m3", C, "", 0, public=Process(4).public)
    assert b.fits(view_id, seats) and not b.fits(view(3), seats)
    assert not b.fits(view_id, seats[:2]) and not b.fits(view_id, [*seats[:2], thief])


def test_a_member_with_a_public_key_that_is_none_gets_no_key_and_disturbs_nobody():
    a, b = group(A, B)
    for bad in (b"", b"short", bytes(32), b"\1" + bytes(31), bytes([255]) * 32):
        seats = [a.seat(), b.seat(), Seat("bad", 9, "", 0, public=bad)]
        sealed, chain = a.make(view(2), seats)
        assert sealed.keys() - {9} == {A, B}
        assert b.take(A, view(2), seats, sealed, chain)


@pytest.mark.parametrize("sealed", [b"", b"x", bytes(80), bytes(32) + b"y" * 48])
def test_a_sealed_key_that_is_none_is_refused(sealed):
    a, b = group(A, B)
    assert not b.take(A, view(2), [a.seat(), b.seat()], {B: sealed}, None)


def test_however_many_views_are_prepared_few_keys_are_held_and_the_present_one_stays():
    a, b = group(A, B)
    for counter in range(2, 3 * MOST_HELD):
        assert take(b, a, prepared(a, view(counter), a, b))
    assert len(b.held().keys) == MOST_HELD and {view(1), view(counter)} <= b.held().keys.keys()


# --------------------------------------------------------------- what is sealed with which key

class Peer(Seal):
    """A seal that takes ALIVE with the secret alone, and DATA only with a view's
    key."""

    def __init__(self, number, seed=None):
        super().__init__(keys(), number, Random(seed or number).randbytes(ENTROPY), {DATA},
                         outside={ALIVE})

    def say(self, text, kind=DATA, dest=0):
        ((_, sealed),), = self.seal([(dest, wire.make_datagram(kind, 1, self.member, dest, text))])
        return bytes(sealed)

    def hear(self, *datagrams, now=0):
        return [bytes(each[wire.HEADER_SIZE:]) for each in self.open(datagrams, now)]


def key(view_id):
    return Random(view_id).randbytes(32)


def held(present, *others):
    held = [each for each in (present, *others) if each]
    return HeldKeys(present, {each: key(each) for each in held}, dict.fromkeys(held, (A, B, C)))


def peers(present=view(1)):
    a, b = Peer(A), Peer(B)
    meet(a, b)
    for each in (a, b):
        each.rekey(held(present), 0)
    return a, b


def test_without_a_view_only_what_needs_none_opens():
    a, b = Peer(A), Peer(B)
    meet(a, b)
    said = a.say(b"x")
    assert b.hear(said, a.say(b"there", ALIVE)) == [b"there"]
    assert b.status().datagrams_of_other_views == 1
    a.rekey(held(view(1)), 0)
    assert b.hear(a.say(b"x"), a.say(b"there", ALIVE)) == [b"there"]
    b.rekey(held(view(1)), 0)
    assert b.hear(a.say(b"x"), a.say(b"to one", dest=B)) == [b"x", b"to one"]
    assert b.hear(said) == []                       # made with the secret, by one with no view


def test_whoever_has_the_key_of_the_next_view_opens_what_is_said_there_before_installing_it():
    a, b = peers()
    b.rekey(held(view(1), view(2)), 0)              # b has promised it
    a.rekey(held(view(2)), 0)                       # a has installed it
    assert b.hear(a.say(b"next")) == [b"next"]
    assert a.hear(b.say(b"still before")) == [b"still before"]
    b.rekey(held(view(2)), 0)
    assert a.hear(b.say(b"there")) == [b"there"]


def test_a_key_that_was_replaced_seals_nothing_and_opens_for_a_moment():
    a, b = peers()
    late = [a.say(b"%d" % number) for number in range(3)]
    a.rekey(held(view(2)), MS)
    b.rekey(held(view(2)), MS)
    tag = HEADER.unpack_from(late[0])[5] >> 32
    assert HEADER.unpack_from(a.say(b"x"))[5] >> 32 not in (0, tag)
    assert b.hear(late[0], now=OLD_KEY) == [b"0"]
    assert b.hear(late[1], now=OLD_KEY + MS) == [] and b.hear(late[2], now=10 * OLD_KEY) == []
    assert b.status().datagrams_of_other_views == 2
    b.end_old(OLD_KEY), a.end_old(OLD_KEY + MS)
    assert len(b._views) == 2 and len(a._views) == 1


def test_who_is_in_another_view_opens_nothing_of_this_one():
    a, b = peers()
    a.rekey(held(view(2)), 0)
    assert b.hear(a.say(b"x"), a.say(b"x", dest=B)) == []
    c = Peer(C)                                     # it has the secret and has heard all salts
    meet(a, c)
    assert c.hear(a.say(b"x"), a.say(b"there", ALIVE)) == [b"there"]


def test_the_key_of_a_view_opens_nothing_of_the_view_with_another_id():
    a, b = Peer(A), Peer(B)
    meet(a, b)
    a.rekey(HeldKeys(view(1), {view(1): key(1)}, {view(1): (A, B)}), 0)
    b.rekey(HeldKeys(view(2), {view(2): key(1)}, {view(2): (A, B)}), 0)
    assert b.hear(a.say(b"x")) == []


def test_what_was_said_in_a_view_opens_once_also_if_a_sender_was_forgotten_and_came_back():
    a, b = peers()
    said = [a.say(b"%d" % number) for number in range(50)]
    assert len(b.hear(*said)) == 50
    b.senders.clear()
    b.linked([A])
    meet(a, b, now=MS)
    b.rekey(held(view(1), view(2)), MS)
    assert b.hear(*said, now=MS) == [] and b.hear(a.say(b"x"), now=MS) == [b"x"]


def prove(process, member):
    """Let a process answer the challenge of a member, which asks nobody for it."""
    process._answers, process._asked = {member.member: member.challenge}, {}
    member.open(process.hellos(0), 0)


@pytest.mark.parametrize("has_key", [False, True], ids=["without the key", "with the key"])
def test_however_many_processes_begin_each_member_of_a_view_is_heard(has_key):
    """Who has the secret sends a datagram of each with the tag of the view, and a
    member may seal it with the view's key, too. Some members have said nothing yet."""
    a, b = peers()
    c = Peer(C)
    c.rekey(held(view(1)), 0)
    assert b.hear(a.say(b"x")) == [b"x"]
    for number in range(10, 10 + MOST_SENDERS + 10):
        thief = Peer(number)
        thief.rekey(held(view(1)), 0)
        prove(thief, b)
        said = thief.say(b"evil")
        assert b.hear(said if has_key else said[:-1] + bytes([said[-1] ^ 1])) == []
    prove(c, b)
    assert b.hear(a.say(b"y"), c.say(b"first")) == [b"y", b"first"]
    assert b._by_tag[b._in_view.tag].senders.keys() == {A, C}


def test_who_proves_himself_with_the_number_of_a_member_takes_no_place_in_its_view():
    """He has the secret, and not the key of the view. He may come before the member
    has said anything there, or after."""
    a, b = peers()
    thief = Peer(A, seed="thief")
    thief.rekey(HeldKeys(view(1), {view(1): bytes(32)}, {view(1): (A,)}), 0)
    thief._in_view.tag = b._in_view.tag
    for said in (b"first", b"later"):
        prove(thief, b)
        assert b.senders[A].salt == thief.salt and b.hear(thief.say(b"evil")) == []
        assert b.hear(a.say(b"lost")) == []
        prove(a, b)
        assert b.hear(a.say(said)) == [said]


def test_a_member_whose_number_somebody_proves_is_asked_when_it_speaks_in_its_view():
    a, b = peers()
    assert b.hear(a.say(b"x")) == [b"x"]
    prove(Peer(A, seed="thief"), b)
    assert b.hear(a.say(b"lost"), now=20 * MS) == [] and b.has_to_say
    meet(a, b, now=20 * MS)
    assert b.hear(a.say(b"heard"), now=20 * MS) == [b"heard"]


def test_in_a_view_whole_epochs_may_be_missed(monkeypatch):
    monkeypatch.setattr(sealing.Seal, "most_sealed", 10)
    a, b = peers()
    for _ in range(45):
        last = a.say(b"x")
    assert b.hear(last) == [b"x"] and len(b.hear(a.say(b"y"))) == 1
    header = HEADER.unpack_from(last)
    known, = b._by_tag[header[5] & ~sealing.COUNT].senders.values()
    assert len(known.epochs) == 1 and known.number == 4
    derived, derive = [], b.keys.cipher
    monkeypatch.setattr(b.keys, "cipher", lambda *of: derived.append(of) or derive(*of))
    forged = [HEADER.pack(*header[:3], epoch, *header[4:]) + bytes(60)
              for epoch in (*range(4 + sealing.MOST_AHEAD + 20), 1 << 20)]
    assert b.hear(*forged * 3) == [] and known.number == 4
    assert len(derived) == sealing.MOST_AHEAD == len(known.epochs) - 1
    assert b.hear(a.say(b"z")) == [b"z"]


def test_however_quickly_views_follow_few_keys_open():
    a, b = peers()
    for counter in range(2, 3 * MOST_VIEWS):
        a.rekey(held(view(counter)), 0)
        b.rekey(held(view(counter)), 0)
    assert len(b._views) == MOST_VIEWS and b.hear(a.say(b"x")) == [b"x"]


def test_no_key_is_shown_by_what_is_printed():
    a, b = group(A, B)
    news = a.held()
    shown = f"{a!r} {news!r} {a._held!r} {Peer(A)!r} {keys()!r} {[news]!r}"
    for secret in (SECRET, a._entropy, *news.keys.values()):
        assert repr(secret)[2:-1] not in shown and secret.hex() not in shown
