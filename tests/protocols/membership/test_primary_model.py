"""In a model of all that members may do, at most one part is primary.

The model is in primary_model.py. Walks of other seeds are worth their time: one in
88,000 showed that two halves could be primary.
"""

import pytest
from primary_model import Broken, Model, Walk

from ringcast.protocols.membership import primary
from ringcast.protocols.membership.change import Change
from ringcast.protocols.membership.primary import Voting

WALKS = 1500


def walk(seeds):
    """Walk from each of these seeds. Return how many primary views there were."""
    found = 0
    for seed in seeds:
        one = Walk(seed)
        one.run(4 + seed % 12)
        found += len(one.model.primaries.left)
    return found


@pytest.mark.parametrize("first", range(0, 4 * WALKS, WALKS))
def test_at_most_one_part_is_primary_wherever_a_change_stops(first):
    assert walk(range(first, first + WALKS)) > WALKS


@pytest.mark.parametrize("mistake", [
    (Voting, "attempt", lambda *_: None),
    (Change, "has_told", lambda change, verdict: True),
    (primary, "has_majority", lambda quorum, present: 2 * sum(
        voter in present for voter in quorum.voters) >= len(quorum.voters)),
    (primary, "follows", lambda later, earlier: later.id > earlier.id)],
    ids=["attempts are forgotten", "members are not told", "any half", "any later one follows"])
def test_the_model_finds_mistakes(monkeypatch, mistake):
    monkeypatch.setattr(*mistake)
    with pytest.raises(Broken):
        walk(range(WALKS))


# --------------------------------------------------------------------- plays

class Play(Model):
    """The model, with the members A, B, C and so on."""

    def __init__(self, count, min_members):
        super().__init__(count, min_members)
        self.named = dict(zip("ABCDEF", self.members.values(), strict=False))

    def change(self, first, others, reporters=None, is_decided=True, installers=None):
        """The first one prepares a view with the others. These report; if they are all,
        it decides, and these install the view. Return it."""
        member, named = self.named[first], self.named
        self.begin(member, [named[each] for each in others])
        while True:
            sender, prepare = self.prepared[-1]
            for each in others if reporters is None else reporters:
                self.take_prepare(named[each], sender, prepare)
            if not is_decided:
                return None
            self.decide(member)
            if self.prepared[-1][1] is prepare:
                break
        for each in others if installers is None else installers:
            self.take_install(named[each], self.installs[-1])
        return self.installs[-1]


def test_who_reported_to_two_attempts_follows_neither_in_vain():
    """A prepared a view of all, then one with B alone, which B never got. C, D and E
    follow the first one. B knows both, and may not make them forget the second."""
    play = Play(5, min_members=2)
    play.change("A", "BCDE", is_decided=False)
    assert play.change("A", "B", installers="").is_primary
    assert play.change("C", "DE").is_primary
    assert not play.change("C", "DEB").is_primary


def test_the_oldest_may_be_another_one_than_the_attempt_said():
    """D prepares a view in which it is the first. It learns that B is older, as D has
    missed a view of B's. B and A are half of the new view, with the oldest. D and C are
    not, though C reported to what D had prepared."""
    play = Play(4, min_members=2)
    assert play.change("D", "A").is_primary
    assert play.change("B", "C").is_primary
    play.change("B", "AD", installers="A")
    view = play.change("D", "ABC", installers="AB")
    assert view.is_primary and [seat.name for seat in view.seats] == ["m2", "m1", "m4", "m3"]
    assert not play.change("C", "D").is_primary
    assert play.change("B", "A").is_primary


def test_who_has_promised_a_lower_view_since_finishes_none_that_it_gave_up():
    """B promises A's view of two, and hears no more. So it goes with D, whose primary
    view has a lower id, and does not hear of that, either. A cannot make B finish the
    view of two, which knows nothing of D's: else B would count for A's next one, too.
    """
    play = Play(5, min_members=3)
    a, b, d = (play.named[name] for name in "ABD")
    play.change("A", "B", is_decided=False)
    play.change("A", "B", installers="")
    play.begin(d, [play.named["E"], b])
    for each in (play.named["E"], b):
        play.take_prepare(each, *play.prepared[-1], is_void=True)
    play.decide(d)
    assert d.install.is_primary and d.view_id < a.view_id
    play.begin(a, [b, play.named["C"]])
    for _ in range(9):                          # it tries to have B finish the view of two
        for each in (b, play.named["C"]):
            play.take_prepare(each, *play.prepared[-1])
        play.decide(a)
    assert not b.install and not a.install.is_primary
