"""One test a threat (docs/threats.md, docs/security.md): what somebody without the
secret may try, and that nothing comes of it. For each defence there is a mistake in
tests/mutations/protocol.py that takes it out, and a test here or beside that fails
then.
"""

import copy
import logging
import threading
from itertools import count
from pathlib import Path
from random import Random

import pytest
from sealed_members import ALIVE, MS, SECRET, Member, keys, meet, pair, pair_in_view

from ringcast._core import wire
from ringcast.access import open_access
from ringcast.address import Address
from ringcast.config import configure
from ringcast.protocols.membership.messages import PRESENT, SEEK
from ringcast.protocols.security import hello, seal as sealing
from ringcast.protocols.security.seal import ENTROPY, HEADER, HEADER_SIZE, KIND, Seal
from ringcast.sim.cluster import Cluster
from ringcast.stacks import build_stack, open_transport
from ringcast.transport.sealed import SealedTransport

RECORDED = Path(__file__).parents[1] / "transcripts" / "datagrams.tsv"
OF_EACH_KIND = [bytes.fromhex(line.split("\t")[2]) for line in RECORDED.read_text().splitlines()]


def state(seal):
    """All that a member remembers of others."""
    return copy.deepcopy((seal.challenge, seal._answers, seal._asked, {
        sender: (known.salt, known.number, {
            number: [[*map(window.is_new, range(window.highest + 1))] for window in epoch.windows]
            for number, epoch in known.epochs.items()})
        for senders in (seal.senders, *(view.senders for view in seal._views.values()))
        for sender, known in senders.items()}))


def flipped(datagram):
    """Yield the datagram with each of its bits flipped, one at a time."""
    for bit in range(8 * len(datagram)):
        damaged = bytearray(datagram)
        damaged[bit // 8] ^= 1 << bit % 8
        yield bytes(damaged)


def sealed_by(member, datagram, dest=0):
    ((_, sealed),), = member.seal([(dest, datagram)])
    return bytes(sealed)


def own(member, datagram):
    """The datagram as this member would send it."""
    return datagram[:8] + member.member.to_bytes(8, "little") + datagram[16:]


# ------------------------------------------------------------- who reads along and forges

@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "without a seal"])
def test_a_datagram_without_a_check_is_read_only_where_a_seal_is_its_check(sealed):
    """Each group takes the one form, and never the other."""
    a, b = (build_stack("mcast-udp", Address(name, number), configure({}, "mcast-udp"), group="g",
                        receive_budget=1 << 20, sealed=sealed)
            for number, name in enumerate("ab", 1))
    said = a.datagram(ALIVE, b"x").data
    other = wire.make_datagram(ALIVE, a.group, 1, 0, b"x", checked=sealed)
    assert b.open(said).kind == ALIVE and b.open(other) is None
    b.receive([other], 0)
    assert b.malformed == 1


def check_flipped_bits(a, b):
    """See that `b` opens what `a` says, and nothing of that with one other bit. Return
    the clear headers."""
    opening, headers = [b, *b._views.values()], []
    for datagram in OF_EACH_KIND:
        said = sealed_by(a, own(a, datagram))
        headers.append(HEADER.unpack_from(said))
        for damaged in flipped(said):
            assert b.open([damaged], 0) == []
        assert {each.senders[1].number for each in opening if 1 in each.senders} == {0}
        assert b.open([said], 0) == [own(a, datagram)]
    assert len(headers) > 30
    return headers


@pytest.mark.parametrize("members", [pair, pair_in_view])
def test_of_every_kind_of_datagram_no_flipped_bit_opens(members):
    """Be it sealed with the secret alone, or with the key of a view too."""
    headers = check_flipped_bits(*members())
    assert {bool(number >> 32) for *_, number in headers} == {members is pair_in_view}


def test_who_seeks_without_a_seal_is_not_even_asked_who_it_is():
    """A stranger has nothing sent to a place of his choice by a SEEK or a PRESENT."""
    a, _ = pair()
    for datagram in OF_EACH_KIND:
        if datagram[KIND] in (SEEK, PRESENT):
            assert a.open([own(Member(3), datagram)] * 10, 0) == [] and not a.has_to_say
    assert a.count("datagrams_unsealed") >= 20


def test_of_a_hello_no_flipped_bit_is_believed():
    a, b = Member(1), Member(2)
    b.hellos(0)
    a.open(Member(2).hellos(0), 0)
    b.linked([1])
    a.open(b.hellos(0), 0)
    hello, = a.hellos(0)                            # it answers b
    for damaged in flipped(hello):
        b.open([damaged], 0)
        assert not b.senders and not b._answers
    b.open([hello], 0)
    assert list(b.senders) == [1]


def test_what_is_not_sealed_does_not_come_in():
    """CVE-2016-2141: messages without the header were let through."""
    a, b = pair()
    before = state(b)
    inside = [own(a, datagram) for datagram in OF_EACH_KIND]
    assert b.open(inside, 0) == [] and b.count("datagrams_unsealed") == len(inside)
    headed = [HEADER.pack(sealing.MAGIC, sealing.VERSION, 1, 0, 1, number) + datagram
              for number, datagram in enumerate(inside, 1)]
    assert b.open(headed, 0) == [] and b.count("datagrams_unopened") == len(inside)
    assert state(b) == before


@pytest.mark.parametrize("changes", [
    {"secret": bytes(32)}, {"group": "another"}, {"cipher": "chacha20-poly1305"}],
    ids=lambda changes: next(iter(changes)))
def test_another_secret_group_or_cipher_opens_nothing_and_does_not_join(changes):
    a, b, stranger = *pair(), Member(3, **changes)
    meet(a, b, stranger)
    assert 3 not in a.senders and not stranger.senders
    assert b.hear(stranger.say(b"x")) == [] and stranger.hear(a.say(b"x")) == []
    stranger.senders.update(copy.copy(b.senders))   # it knows salts, which are no secret
    stranger.senders[1] = sealing.Sender(b.senders[1].salt, 0, sealing.Epoch(
        stranger.keys.cipher(b.senders[1].salt, 1, 0), [0] * len(sealing.CHANNELS)))
    assert stranger.hear(a.say(b"x")) == [] and stranger.count("datagrams_unopened") == 1


def test_no_member_seals_in_another_ones_name():
    a, b, c = Member(1), Member(2), Member(3)
    meet(a, b, c)
    assert c.open([sealed_by(a, own(b, OF_EACH_KIND[0]))], 0) == []
    assert c.count("datagrams_unopened") == 1


def test_nothing_can_be_read_of_what_is_sent():
    a, _ = pair()
    text = b"a text that is easy to find " * 20
    for kind in (1, 24):
        said = a.say(text, kind=kind)
        assert text[:20] not in said and len(set(said)) > 100


# -------------------------------------------------------------------- who says it again

class Recorder(Cluster):
    """A group with a secret or trusted keys, all that was sent in it, and what has come
    to each process."""

    class member_type(Cluster.member_type):
        def __init__(self, cluster, *args, **options):
            super().__init__(cluster, *args, **options)
            self.heard = list(cluster.recorded)     # before it started: it is to hear nothing of it

        def arrive(self, datagram):
            """What is hurried and has overtaken its sender's HELLO is not open yet."""
            _, _, channel, _, sender, _ = HEADER.unpack_from(datagram)
            if channel != sealing.HURRIED or sender in self.transport.seal.senders:
                self.heard.append(datagram)
            super().arrive(datagram)

    def __init__(self, stack, **access):
        self.recorded = []
        super().__init__("ABC", stack=stack, seed=7, form_margin=20, heartbeat_interval=20,
                         suspect_timeout=200, max_bundle_size=512,  # few messages in a datagram
                         **access)
        self.stranger = None
        for pretender in self.pretenders:
            pretender.end()
        self.start()

    def send(self, source, dest, datagram):
        self.recorded.append(datagram)
        super().send(source, dest, datagram)

    def load(self, messages=1200):
        for member in self.living():
            member.offer(messages, 400)
        self.settle(20_000)

    def seen(self):
        """Return what the applications have seen: the views and the messages."""
        return {member.name: (list(member.views), {
            sender: list(got) for sender, got in member.consumer.got.items()})
            for member in self.living()}

    def say_again(self, least=10_000):
        """Say to each member what it has heard, and what was sent before it started, in
        a random order: nothing opens, no connection seems to be new, and then and later
        no view or message comes of it."""
        seen = self.seen()
        for member in self.living():
            seal = member.transport.seal
            seal.open(member.transport.arrived, member.now)         # what it has not read yet
            member.transport.arrived = []
            seal.take_linked()
            before, said = state(seal)[-1], list(member.heard)
            assert len(set(said)) > least
            Random(1).shuffle(said)
            opened = [*map(bytes, seal.open(said, member.now))]
            assert state(seal)[-1] == before and not seal._linked
            member.turn(opened)
            assert self.seen() == seen and opened == []
        self.run(500)
        assert self.seen() == seen


@pytest.mark.parametrize("access", ["sealed", "trusted"])
@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-tcp"])
def test_ten_thousand_recorded_datagrams_change_nothing(stack, access):
    """So many others to each member, after each of these: a restart, a new epoch, a new
    key of the view, a leave, and two parts that have met again."""
    cluster = Recorder(stack, **{access: True})
    cluster.load(5_100)
    cluster.say_again()
    cluster["C"].crash()                            # a restart, of one who receives
    cluster.run(500)
    cluster.start("C")
    cluster.settle(20_000)
    cluster.say_again()
    for member in cluster.living():
        seal = member.transport.seal
        for under in (seal._without_view, seal._in_view):
            seal._begin_epoch(under)
    cluster.load()
    cluster.say_again()
    before, first = cluster["A"].members.view_id, cluster["A"].views[-1].coordinator.name
    cluster[first].members.coordinator.renews = True
    cluster[first].request_turn()
    cluster.run(500)
    assert before < cluster["A"].members.view_id == cluster["B"].members.view_id
    cluster.say_again()
    cluster.load()
    cluster.say_again()
    cluster["C"].leave()
    cluster.run(1_000)
    cluster.settle(20_000)
    cluster.say_again()
    cluster.checkers.note_cause()
    cluster.network.cut = {("A", "B"), ("B", "A")}
    if cluster.links is not None:
        cluster.links.break_all_cut()
    cluster.run(1_000)
    assert [len(member.views[-1]) for member in cluster.living()] == [1, 1]
    cluster.heal()
    cluster.settle(20_000)
    cluster.say_again()


def test_what_was_said_before_a_member_started_does_not_open_there():
    a, b = pair()
    before = [a.say(b"%d" % number) for number in range(100)]
    assert len(b.hear(*before)) == 100
    late = Member(3)
    meet(a, late)
    assert late.hear(*before) == [] and late.hear(a.say(b"now")) == [b"now"]


def test_recorded_hellos_do_not_bring_a_dead_process_back():
    """They answer challenges of others, or of former processes."""
    a, b = Member(1), Member(2)
    said = [*a.hellos(0), *b.hellos(0)]
    a.open(said[1:], 0), b.open(said[:1], 0)
    said += [*a.hellos(0), *b.hellos(0)]
    again = Member(2)                               # b's next process
    again.hellos(0)
    again.open(said * 3 + [a.say(b"x")], 0)
    assert not again.senders and again.count("hellos_received") > 0


# ------------------------------------------------------------------- nonces, keys, processes

def test_in_a_thousand_starts_no_key_meets_a_number_twice(monkeypatch):
    """Also if a process continues an incarnation, and in many epochs."""
    monkeypatch.setattr(sealing.Seal, "most_sealed", 3)
    used = set()

    class Noted:
        def __init__(self, key):
            self.key = key

        def encrypt_into(self, nonce, data, associated_data, buffer):
            assert (self.key, nonce) not in used
            used.add((self.key, nonce))

    made = keys()
    made._cipher = Noted
    for start in range(1000):
        seal = Seal(made, 1, Random(start).randbytes(ENTROPY), {1}, {24})
        for dest, kind in ((0, 1), (0, 3), (2, 3), (0, 24)) * 3:
            sealed_by(seal, bytes([0, 0, 0, kind]) + bytes(60), dest)
    assert len(used) == 12_000


def test_threads_that_send_at_once_never_use_a_number_twice():
    """While one is at work with its numbers and the memory of what it sealed, no other
    one begins."""
    class Inner:
        lossless, max_datagram, said = False, 65_507, []

        def put(self, packets):
            is_first, is_other = not self.said, threading.current_thread() is other
            self.said += [(HEADER.unpack_from(datagram)[-1], is_other) for _, datagram in packets]
            if is_first:
                other.start()
                has_entered.wait(0.5)           # it does, if nothing keeps it
            elif is_other:
                has_entered.set()

    inner, has_entered = Inner(), threading.Event()
    transport = SealedTransport(inner, Seal(keys(), 1, bytes(ENTROPY)))
    many = [(0, bytes(60_000))] * 8             # they leave a few at a time
    other = threading.Thread(target=transport.put, args=(many,))
    transport.put(many)
    other.join()
    assert inner.said == [(number, number > 8) for number in range(1, 17)]


def test_a_real_channel_draws_what_is_random_from_the_operating_system():
    """Two channels with all the same arguments have nothing in common."""
    config = configure({}, "inproc")
    transports = [open_transport("inproc", "g", 1, config,
                                 open_access("g", 1, config, lambda: SECRET)) for _ in range(2)]
    one, other = (transport._seal for transport in transports)
    assert one.salt != other.salt and one.challenge != other.challenge
    assert one.keyring.public != other.keyring.public
    for transport in transports:
        transport.close()


# ------------------------------------------------------------------------- floods

def garbage(chance):
    """Datagrams as a stranger may make them, who has read the wire format."""
    for number in count(1):
        channel = chance.randrange(6)
        header = HEADER.pack(sealing.MAGIC, sealing.VERSION, channel, chance.randrange(3),
                             chance.choice([1, 2, chance.getrandbits(63)]), number)
        yield (header + chance.randbytes(chance.randrange(200)))[:chance.randrange(240)]


def test_a_flood_of_garbage_is_counted_and_leaves_nothing_behind(caplog):
    caplog.set_level(logging.DEBUG)
    a, b = pair()
    before, chance = state(b), Random(3)
    made = garbage(chance)
    for step in range(500):
        assert b.open([next(made) for _ in range(40)], step * MS) == []
        b.hellos(step * MS)
    counted = ("datagrams_unsealed", "datagrams_unopened", "datagrams_of_strangers",
               "hellos_refused")
    assert sum(map(b.count, counted)) == 20_000 and all(map(b.count, counted))
    assert len(b.senders) == 1 and len(b.senders[1].epochs) == 2 and len(b._strangers) < 10
    assert state(b)[:3] == before[:3] and caplog.records == []
    assert b.hear(a.say(b"heard")) == [b"heard"]


def test_who_only_records_makes_a_member_say_no_more_than_it_has_said():
    """In bytes: for what strangers say again, a member sends at most one HELLO in each
    pause, or one for each of the HELLOs that it may answer."""
    a, b = pair()
    recorded = [Member(number).hellos(0)[0] for number in range(3, 3 + 100)]
    came = said = 0
    for step in range(1000):
        b.open(recorded, step * MS)
        came += sum(map(len, recorded))
        said += sum(map(len, b.hellos(step * MS)))
    assert said < came / 20


def check_answers(member, recorded, of_an_answer):
    """See how much a member says when it is told HELLOs that somebody has recorded: for
    each alone no more than that and an answer, and for all at once no more than those.
    What is no HELLO brings one that asks, however many come in a PAUSE."""
    for said in recorded:
        member.open([said], 0)
        assert 0 < sum(map(len, member.hellos(0))) <= len(said) + of_an_answer
    member.open(recorded, 0)
    assert 0 < sum(map(len, member.hellos(0))) <= sum(map(len, recorded))
    garbage = [HEADER.pack(sealing.MAGIC, sealing.VERSION, 1, 0, number, 1) + bytes(16)
               for number in range(1000, 1008)]
    asked = []
    for step in range(100):
        member.open(garbage, step * sealing.PAUSE // 10)
        asked += member.hellos(step * sealing.PAUSE // 10)
    assert 0 < len(asked) <= 11 and sum(map(len, asked)) < 100 * len(b"".join(garbage)) / 10


def test_no_hello_is_answered_with_much_more_than_it_has():
    """Whoever says it again has no more sent around than he sends: what a member says
    goes to everybody, and nowhere else."""
    a, _ = pair()
    recorded = [Member(number).hellos(0)[0] for number in range(3, 103)]
    check_answers(a, recorded, hello._ANSWER.size)


@pytest.mark.parametrize("size", range(HEADER_SIZE + 40))
def test_a_datagram_of_any_length_is_read_without_an_error(size):
    _, b = pair()
    for channel in range(6):
        header = HEADER.pack(sealing.MAGIC, sealing.VERSION, channel, 0, 1, 1)
        assert b.open([(header + bytes(100))[:size], memoryview(bytes(size))], 0) == []


def test_a_hello_with_counts_that_do_not_fit_is_refused():
    """Also one that was made with the secret."""
    b = Member(2)
    header = HEADER.pack(sealing.MAGIC, sealing.VERSION, sealing.HELLO, 0, 1, 0)
    for num_asked, num_answers, rest in ((255, 255, b""), (1, 0, bytes(9)), (0, 1, bytes(23))):
        raw = header + bytes(16 + 16 + 32) + bytes([num_asked, num_answers]) + rest
        b.open([raw + hello._mac(b.keys.hello, raw)], 0)
    b.open([header + hello._mac(b.keys.hello, header)], 0)
    assert b.count("hellos_refused") == 4 and not b._answers
