"""Sealing and opening, without a network."""

import random
from sys import getsizeof

import pytest
from hypothesis import given, strategies as st
from sealed_members import ALIVE, DATA, HIGHEST, MS, Member, keys, meet, pair

from ringcast._core.seal import SIZE, Epoch, ReplayWindow
from ringcast.address import EVERYONE
from ringcast.config import BULK_CHANNEL, HURRIED_CHANNEL, MIN_DATAGRAM, SEAL
from ringcast.protocols.security import seal as sealing
from ringcast.protocols.security.hello import MOST_ANSWERS, MOST_ASKED
from ringcast.protocols.security.seal import BURST, HEADER, HELLO, KIND, MOST_SENDERS, REFILL
from ringcast.stacks import control_of


@pytest.mark.parametrize("cipher", ["aes-256-gcm", "chacha20-poly1305"])
def test_what_one_seals_the_other_opens(cipher):
    a, b = pair(cipher=cipher)
    assert b.hear(a.say(b"x"), a.say(b"y", kind=DATA), a.say(b"", dest=2)) == [b"x", b"y", b""]
    assert a.hear(b.say(b"back")) == [b"back"]
    assert a.take_linked() == [2] and b.take_linked() == [1]


def test_a_sealed_datagram_is_longer_by_what_the_configuration_says():
    a, _ = pair()
    assert len(a.say(bytes(100))) == 32 + 100 + SEAL


def test_each_channel_counts_for_itself_so_that_one_may_wait_behind_another():
    """Over UDP messages wait in the kernel while control goes past them."""
    a, b = pair()
    waiting = [a.say(b"%d" % number, kind=DATA) for number in range(3 * SIZE)]
    for kind in (HIGHEST, ALIVE):
        assert len(b.hear(*(a.say(b"control", kind=kind) for _ in range(3 * SIZE)))) == 3 * SIZE
    assert len(b.hear(*waiting)) == 3 * SIZE


@pytest.mark.parametrize("dest", [EVERYONE, 2])
def test_the_clear_header_tells_what_has_a_connection_of_its_own(dest):
    """And nothing else: TCP sends by it, and UDP has a socket by it."""
    a, _ = pair()
    others = {DATA: BULK_CHANNEL, HIGHEST: 1} if dest == EVERYONE else {DATA: 3, HIGHEST: 3}
    for kind, channel in (others | {ALIVE: HURRIED_CHANNEL}).items():
        said = a.say(b"x", dest, kind)
        assert said[KIND] == HEADER.unpack_from(said)[2] == channel
        assert (said[KIND] in control_of(is_sealed=True)) == (kind == ALIVE)


def test_three_steps_are_enough_and_nothing_is_kept_of_who_has_not_answered():
    a, b = Member(1), Member(2)
    hello, = a.hellos(0)
    assert b.open([hello], 0) == [] and not b.senders
    reply, = b.hellos(0)
    assert a.open([reply], 0) == [] and list(a.senders) == [2] and a.take_linked() == [2]
    answer, = a.hellos(0)
    assert b.open([answer], 0) == [] and list(b.senders) == [1] and b.take_linked() == [1]
    assert not a.hellos(0) and not b.hellos(0)


def test_who_was_not_heard_in_time_is_asked_when_he_speaks():
    a, b = Member(1), Member(2)
    a.hellos(0), b.hellos(0)                        # both are lost
    assert b.hear(a.say(b"lost"), now=MS) == [] and b.count("datagrams_of_strangers") == 1
    meet(a, b, now=MS)
    assert b.hear(a.say(b"heard"), now=MS) == [b"heard"]


def test_a_new_connection_counts_when_its_member_has_answered():
    a, b = Member(1), Member(2)
    a.hellos(0), b.hellos(0)
    a.linked([2])
    assert a.take_linked() == [] and a.has_to_say
    meet(a, b)
    assert a.take_linked() == [2]
    a.linked([2])
    assert a.take_linked() == [2] and not a.has_to_say


def test_after_so_many_datagrams_a_new_key_seals_and_the_old_one_opens_for_a_while(monkeypatch):
    monkeypatch.setattr(sealing.Seal, "most_sealed", 10)
    a, b = pair()
    said = [a.say(b"%d" % number) for number in range(35)]
    assert [HEADER.unpack_from(each)[3] for each in said] == [number // 10 for number in range(35)]
    late = said.pop(9)
    assert b.hear(*said[:15]) == [b"%d" % number for number in range(16) if number != 9]
    assert b.hear(late) == [b"9"]
    assert len(b.hear(*said[15:])) == 19 and b.hear(late) == []
    assert len(b.senders[1].epochs) == 2


def test_a_new_key_seals_also_if_the_last_datagram_of_the_old_one_failed(monkeypatch):
    monkeypatch.setattr(sealing.Seal, "most_sealed", 10)
    a = Member(1)
    said = [a.say(b"x") for _ in range(9)]
    with monkeypatch.context() as patch:
        patch.setattr(a._without_view, "cipher", None)
        with pytest.raises(AttributeError):
            a.say(b"x")
    said += [a.say(b"x") for _ in range(2)]
    assert [HEADER.unpack_from(each)[3] for each in said] == [0] * 10 + [1]


def test_there_is_a_last_epoch(monkeypatch):
    """Also without asserts (python -O)."""
    monkeypatch.setattr(sealing.Seal, "most_sealed", 1)
    monkeypatch.setattr(sealing, "LAST_EPOCH", 2)
    a = Member(1)
    assert [HEADER.unpack_from(a.say(b"x"))[3] for _ in range(2)] == [0, 1]
    with pytest.raises(OverflowError, match="used all epochs"):
        a.say(b"x")


def test_who_missed_whole_epochs_is_told_where_the_sender_is(monkeypatch):
    monkeypatch.setattr(sealing.Seal, "most_sealed", 10)
    a, b = pair()
    b.take_linked()
    missed = [a.say(b"missed") for _ in range(25)]
    assert b.hear(a.say(b"first"), now=20 * MS) == []
    meet(a, b, now=20 * MS)
    assert b.hear(a.say(b"next"), *missed, now=20 * MS) == [b"next"]
    assert b.take_linked() == [1]                   # what came before may be lost


def taken_by(window, number):
    """Whether a datagram with this number, which opens, is taken."""
    is_new = window.is_new(number)
    if is_new:
        window.note(number)
    return is_new


@given(st.lists(st.integers(1, 3 * SIZE), max_size=60), st.integers(0, SIZE))
def test_a_number_is_taken_once_if_it_is_not_older_than_the_window(numbers, floor):
    window, taken, highest = ReplayWindow(floor), set(range(floor + 1)), floor
    for number in numbers:
        expected = number not in taken and number > highest - SIZE
        assert taken_by(window, number) == expected
        highest = max(highest, number)
        if expected:
            taken.add(number)
    assert getsizeof(window) <= SIZE // 8 + 64


def test_the_window_remembers_so_many_numbers_and_no_more():
    window = ReplayWindow(0)
    assert taken_by(window, SIZE + 10)
    assert taken_by(window, 11) and not any(taken_by(window, old) for old in (9, 10, 11))


def test_what_came_before_is_dropped_without_being_opened():
    """Somebody who repeats what was said makes nobody decrypt it."""
    a, b = pair()
    said = a.say(b"x")
    assert b.hear(said) == [b"x"]
    altered = said[:-1] + bytes([said[-1] ^ 1])
    assert b.hear(said, altered) == [] and b.count("datagrams_replayed") == 2


def test_what_is_no_datagram_is_a_mistake_of_the_caller():
    a, b = pair()
    with pytest.raises(ValueError, match="longer than what stands before its kind"):
        next(a.seal([(EVERYONE, bytes(KIND))]))
    with pytest.raises(BufferError, match="one behind the other"):
        b.open([memoryview(bytes(200))[::2]], 0)
    with pytest.raises(ValueError, match="4 floors"):
        Epoch(None, [0])


def test_a_number_that_somebody_has_forged_is_not_remembered():
    a, b = pair()
    said = bytearray(a.say(b"x"))
    forged = said[:-1] + bytes([said[-1] ^ 1])
    ahead = forged[:16] + (2 * SIZE).to_bytes(8, "little") + forged[24:]
    assert b.hear(ahead, forged) == [] and b.count("datagrams_unopened") == 2
    assert b.hear(said) == [b"x"]


def test_a_hello_that_asks_and_answers_many_fits_the_smallest_datagram():
    a = Member(1)
    a.hellos(0)
    a.linked(range(10, 10 + 3 * MOST_ASKED))
    a._answers = {number: bytes(16) for number in range(2 * MOST_ANSWERS)}
    hellos = a.hellos(0)
    assert len(hellos) == 3 and max(map(len, hellos)) <= MIN_DATAGRAM
    b = Member(20)
    b.open(hellos, 0)
    assert b._answers.keys() == {1}


def test_many_who_start_at_once_all_hear_each_other():
    members = [Member(number) for number in range(1, 41)]
    meet(*members)
    for member in members:
        said = member.say(b"x")
        assert all(other.hear(said) == [b"x"] for other in members if other is not member)
    assert max(member.count("hellos_sent") for member in members) < 20


def test_the_oldest_makes_room_and_what_it_sent_opens_no_more():
    """Also not after its last answer, which somebody recorded, is said again."""
    a, victim = Member(1), Member(2)
    a.hellos(0)
    a.linked([2])
    question, = a.hellos(0)
    victim.hellos(0)
    victim.open([question], 0)
    answer, = victim.hellos(0)
    a.open([answer], 0)
    said = victim.say(b"said")
    assert a.hear(said) == [b"said"]
    for number in range(3, 3 + MOST_SENDERS):
        other = Member(number)
        other._answers, other._asked = {1: a.challenge}, {}
        a.open(other.hellos(0), 0)
    assert len(a.senders) == MOST_SENDERS and 2 not in a.senders
    a.open([answer], 0)
    assert 2 not in a.senders and a.hear(said) == []


def test_a_sender_that_would_be_everybody_is_dropped():
    """Else a datagram of a stranger makes us ask all, each time that we ask strangers;
    and a HELLO of it, too."""
    a, nobody = Member(1), Member(0)
    a.hellos(0)
    a.open([nobody.say(b"x"), *nobody.hellos(0)], MS)
    assert a.count("datagrams_unsealed") == 2 and a.count("hellos_received") == 0
    assert not a.has_to_say and a.hellos(MS) == []


def test_recorded_questions_are_answered_only_so_often():
    a, b = Member(1), Member(2)
    a.hellos(0)
    recorded, = b.hellos(0)                         # it asks everybody
    answers = 0
    for _ in range(2 * BURST):
        a.open([recorded], 0)
        answers += len(a.hellos(0))
    assert answers <= BURST
    a.open([recorded], 10 * REFILL)
    assert len(a.hellos(10 * REFILL)) == 1


def test_who_sends_garbage_in_many_names_is_asked_rarely():
    a, chance, asked = Member(1), random.Random(1), 0
    a.hellos(0)
    for step in range(1000):                        # 1 s
        garbage = [HEADER.pack(sealing.MAGIC, sealing.VERSION, 1, 0, chance.getrandbits(63), 1)
                   + bytes(50) for _ in range(20)]
        a.open(garbage, step * MS)
        asked += len(a.hellos(step * MS))
    assert asked <= 5 and not a.senders and len(a._strangers) <= MOST_ASKED + 1


def test_own_datagrams_and_hellos_are_nobodys():
    a = Member(1)
    hello, = a.hellos(0)
    assert a.hear(hello, a.say(b"echo")) == [] and not a.has_to_say


def test_the_next_epoch_is_made_once_however_often_somebody_forges_it():
    a, b = pair()
    header = HEADER.pack(sealing.MAGIC, sealing.VERSION, 1, 1, 1, 1)
    made = []
    derive, b.keys.cipher = b.keys.cipher, lambda *args: made.append(args) or derive(*args)
    assert b.hear(*[header + bytes(60)] * 50) == [] and len(made) == 1
    assert b.senders[1].number == 0 and b.hear(a.say(b"x")) == [b"x"]


def test_no_two_processes_groups_or_ciphers_share_a_key():
    ciphers = ("aes-256-gcm", "chacha20-poly1305")
    found = [key for group in "ab" for cipher in ciphers
             for made in [keys(group=group, cipher=cipher)]
             for key in (made.hello, made.link, made._senders, made._views)]
    assert len(set(found)) == 16
    a, b = Member(7), Member(7)                     # a process that continues an incarnation
    datagram = bytes(60)
    one, other = (member._without_view.cipher for member in (a, b))
    assert one.encrypt(bytes(12), datagram, b"") != other.encrypt(bytes(12), datagram, b"")


def test_a_hello_is_of_a_channel_of_its_own():
    a, b = pair()
    said = bytearray(a.say(b"x"))
    channel = said[KIND]
    assert channel != HELLO
    said[KIND] = HELLO
    assert b.hear(bytes(said)) == [] and b.count("hellos_refused") == 1
    said[KIND] = channel
    assert b.hear(bytes(said)) == [b"x"] and ALIVE != DATA
