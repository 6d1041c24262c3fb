"""Former members (decision 40): who was excluded or has left knows the secret, the keys
of its views, and all that is sent. It reads nothing of later views, and nothing that it
says is taken there."""

from random import Random

import pytest
from sealed_members import MS

from ringcast.config import NETWORKED
from ringcast.protocols.membership.messages import INSTALL, PREPARE
from ringcast.protocols.security import keyring as keyrings
from ringcast.protocols.security.keyring import Held, Keyring
from ringcast.protocols.security.seal import OLD_KEY
from ringcast.sim.checkers import Violation
from ringcast.sim.cluster import Cluster
from ringcast.sim.former import Former
from ringcast.stacks import OUTSIDE


class Listener(Former):
    """It tries all that it can, each time."""

    def __init__(self, cluster):
        super().__init__(cluster, cluster.sealing, Random(5))
        self.tried = 0

    def hear(self, source, datagram, sealed):
        members = source.members
        if members.install is None or datagram[3] in OUTSIDE:
            return
        self.heard.append(datagram)
        for outsider in self.keys.keys() - members.members.keys():
            self.tried += 1
            roots = [self.sealing.keys.of_view(as_id, key)
                     for view_id, key in self.keys[outsider].items()
                     for as_id in (view_id, members.view_id)]
            assert not any(self._opens(source, sealed, root) for root in (None, *roots)), outsider
        for insider in self.keys.keys() & members.members.keys():
            key = self.keys[insider].get(members.view_id)
            assert key and self._opens(source, sealed,
                                       self.sealing.keys.of_view(members.view_id, key))


def group(stack="mcast-udp", names="ABC", **options):
    cluster = Cluster(names, stack=stack, sealed=True, seed=3, form_margin=20,
                      heartbeat_interval=20, suspect_timeout=200, **options)
    cluster.former = Listener(cluster)
    cluster.start()
    cluster.settle(20_000)
    return cluster


def load(cluster):
    for member in cluster.living():
        member.offer(30, 20)
    cluster.settle(20_000)


def excluded(cluster, name="C"):
    """Part a member from the others, for so long that they exclude it, and load all."""
    others = [each.name for each in cluster.living() if each.name != name]
    cluster.checkers.note_cause()
    cluster.network.cut = {pair for other in others for pair in ((name, other), (other, name))}
    if cluster.links is not None:
        cluster.links.break_all_cut()
    cluster.run(1_500)
    assert [len(member.views[-1]) for member in cluster.living()] == [2, 2, 1]
    return cluster[name].incarnation


@pytest.mark.parametrize("stack", NETWORKED)
def test_who_was_excluded_reads_nothing_of_the_next_views(stack):
    """Also not of those of a coordinator that succeeds, and after it was a member
    again."""
    cluster = group(stack)
    load(cluster)
    excluded(cluster)
    for member in cluster.living():
        member.offer(30, 20)
    cluster.run(500)
    assert cluster.former.tried >= 10
    cluster.heal()
    cluster.settle(20_000)
    load(cluster)
    cluster["A"].crash()
    cluster.run(1_000)
    cluster.start("A")
    cluster.settle(20_000)
    load(cluster)
    keys = [key for known in cluster.former.keys.values() for key in known.values()]
    views = {view_id for known in cluster.former.keys.values() for view_id in known}
    assert len(set(keys)) == len(views) > 3         # one key for each id


@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-tcp"])
def test_who_has_left_reads_nothing_and_nobody_hears_it(stack):
    cluster = group(stack)
    load(cluster)
    gone = cluster["C"].incarnation
    cluster["C"].leave()
    cluster.run(1_000)
    cluster.settle(20_000)
    load(cluster)
    former = cluster.former
    assert former.tried >= 10
    cluster.run(OLD_KEY // MS + 100)
    for _ in range(50):
        former._forge_datagrams(cluster["A"], gone, cluster["B"].incarnation)
    assert cluster["A"].transport.seal.status().datagrams_of_other_views >= 100


def test_the_simulator_notices_who_is_heard():
    """The key of the present view would do."""
    cluster = group()
    load(cluster)
    former, target, name = cluster.former, cluster["A"], cluster["B"].incarnation
    former.keys[9] = dict(former.keys[target.incarnation])
    former.given_up[target.incarnation] = dict.fromkeys(former.keys[9], -2 * OLD_KEY)
    with pytest.raises(Violation, match="secrecy"):
        former._forge_datagrams(target, 9, name)
    with pytest.raises(Violation, match="secrecy"):
        former._forge_view(target, 9, name)


def test_who_was_excluded_makes_no_view_of_the_others():
    cluster = group()
    load(cluster)
    gone = excluded(cluster)
    for target, other in ("AB", "BA"):
        cluster.former._forge_view(cluster[target], gone, cluster[other].incarnation)
        assert cluster.former.keys[gone]


def held_installs(cluster, comes=None, deaf="B"):
    """Let A renew the view, or take in who comes. Return what it says as INSTALL, which
    the `deaf` do not get."""
    held = []

    def hold(source, datagram, sealed):
        if datagram[3] == INSTALL:
            held.append(datagram)
    cluster.former.hear = hold
    cluster["A"].members.coordinator.renews = comes is None
    cluster.network.discard = lambda source, to, datagram: bool(held) and to in deaf
    if comes is not None:
        cluster.start(comes)
    cluster["A"].request_turn()
    while not held:
        cluster.run(50)
    return held


def forged(cluster, target, name, kind, body):
    """Let a member hear something in another one's name, as who knows the secret can
    say it."""
    data = cluster[name].stack.control(kind, body).data
    target.turn([data])


def test_a_view_with_a_public_key_that_was_changed_is_not_installed():
    """Somebody knows the secret and says INSTALL in the coordinator's name, before it
    does, with a key of his own in the place of a member's: that would get him the key
    of the view after that."""
    cluster = group()
    target, held = cluster["B"], held_installs(cluster)
    assert held and target.members.promised > target.members.view_id
    install = INSTALL.decode(held[0])
    thief = Keyring("simulated", 9, Random(9).randbytes(keyrings.ENTROPY))
    for seat in install.seats:
        if seat.name == "C":
            seat.public = thief.public
    before = target.members.view_id
    forged(cluster, target, "A", INSTALL, install)
    assert target.members.view_id == before
    forged(cluster, target, "A", INSTALL, INSTALL.decode(held[0]))
    assert target.members.view_id == install.id


def said_of_views(cluster, kind):
    """Let C be excluded and come again. Return what all have said of this kind until
    then, with the one who said it."""
    heard = []
    cluster.former.hear = lambda source, datagram, sealed: heard.append((source, datagram))
    for member in cluster.living():
        member.members.coordinator.renews = True
        member.request_turn()
    cluster.run(500)
    excluded(cluster)
    cluster.heal()
    cluster.settle(20_000)
    said = [(source, datagram) for source, datagram in heard if datagram[3] == kind]
    assert len({datagram for _, datagram in said}) >= 3
    return said


def keys_and_views(cluster):
    """All that members have of views: their keys, what they have promised and what they
    have installed."""
    return [(member.members.rekeying.keyring.held(), member.members.promised,
             member.members.install, member.members.num_views) for member in cluster.living()]


def say_again(cluster, said):
    for source, datagram in said:
        for member in cluster.living():
            if member is not source:
                member.turn([datagram])


def test_a_former_member_that_says_prepare_again_is_refused():
    """What a coordinator has said once is not said again by others: who repeats it in
    a later view, to those who know the secret."""
    cluster = group()
    said = said_of_views(cluster, PREPARE)
    before = keys_and_views(cluster)
    say_again(cluster, said)
    assert keys_and_views(cluster) == before


def test_a_former_member_that_says_install_again_changes_nothing():
    """Be it of a former view or of the present one. More than one rule forbids it, so
    the mistake that this finds is one in all of them."""
    cluster = group()
    said = said_of_views(cluster, INSTALL)
    before = keys_and_views(cluster)
    assert cluster["A"].members.view_id in {INSTALL.decode(datagram).id for _, datagram in said}
    say_again(cluster, said)
    assert keys_and_views(cluster) == before
    load(cluster)


def test_a_view_that_was_given_up_for_a_later_one_is_not_installed():
    """Its coordinator keeps INSTALL back, is excluded, and says it then, before a
    member has heard the INSTALL of the view without it."""
    cluster = group()
    former, later, late = cluster["A"].views[-1].names
    held = held_installs(cluster, deaf=(later, late))
    target, given_up = cluster[late].members, INSTALL.decode(held[0])
    cluster.checkers.note_cause()
    cluster.network.discard = lambda source, to, datagram: former in (source, to) or (
        to == late and INSTALL.decode(held[-1]).id != given_up.id)
    while target.promised == given_up.id:
        cluster.run(1)
    before = target.view_id
    assert before < given_up.id < target.promised
    cluster[late].turn([held[0]])
    assert target.view_id == before
    cluster.network.discard = lambda source, to, datagram: former in (source, to)
    cluster.run(500)
    assert target.view_id == cluster[later].members.view_id > given_up.id


def test_a_view_that_stands_long_is_followed_by_one_with_another_key():
    cluster = group(rekey_interval=0.5)
    first = cluster["A"].members.view_id
    cluster.run(2_200)
    views = [view.id for view in cluster["B"].views if view.id >= first]
    assert 4 <= len(views) <= 6
    assert all(set(view.members) == set(cluster["A"].views[-1].members)
               for view in cluster["B"].views if view.id >= first)
    keys = {view_id: key for known in cluster.former.keys.values()
            for view_id, key in known.items()}
    assert len(set(keys.values())) == len(keys) >= len(views)


def test_a_view_that_was_made_by_whoever_is_in_it_is_taken():
    """So a member that is hostile can do it; the test shows that only the chain keeps
    others out."""
    cluster = group()
    load(cluster)
    target, member = cluster["A"], cluster["B"]
    known = cluster.former.keys[member.incarnation]
    ring = Keyring("simulated", member.incarnation, bytes(keyrings.ENTROPY))
    for view_id, key in known.items():
        ring.hold(view_id, Held(key, 0, {}))
    cluster.former.keys[9] = known
    with pytest.raises(Violation, match="promises a view"):
        cluster.former._forge_view(target, 9, member.incarnation)
