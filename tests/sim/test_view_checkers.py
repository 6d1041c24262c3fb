"""Every check of views and of streams can fail: it is fed a history in which one
promise is broken, and names it."""

from contextlib import nullcontext

import pytest

from ringcast import Address, Batch, View
from ringcast._core import wire
from ringcast.config import configure
from ringcast.protocols.membership.change import Change
from ringcast.sim.checkers import Checkers, Violation
from ringcast.sim.cluster import Cluster
from ringcast.sim.network import MS


class History:
    """A group of three whose protocol does nothing. A test says what its members
    install, show and deliver."""

    def __init__(self):
        self.group = Cluster("ABCDE", capacity=64).start()
        self.group.run(500)
        self.checkers = self.group.checkers = Checkers(self.group)
        for member in self.group.living():
            member.views.clear()

    def addresses(self, names):
        return tuple(self.group[name].address for name in names)

    def view(self, number, names, **fields):
        return View(number, self.addresses(names), **fields)

    def add_primary(self, number, names, left="", observers=""):
        """Add a primary view to the row of them. `left` have left by then."""
        view = self.view(number, names, observers=self.addresses(observers))
        self.checkers.views.primaries.add(view, self.addresses(left))

    def install(self, number, names, at="", **fields):
        """Let members install a view; return it."""
        view = self.view(number, names, **fields)
        for name in at or names:
            self.checkers.installed(self.group[name], view)
        return view

    def show(self, view, at=""):
        for name in at or view.names:
            self.group[name].views.append(view)
            self.checkers.viewed(self.group[name], view)

    def pass_to(self, number, names, at="", **fields):
        """Let members install a view, and show it to their applications."""
        view = self.install(number, names, at, **fields)
        self.show(view, at)
        return view

    def change(self, number, names, at="", joined="", departed=None, **fields):
        """As pass_to(), with who came, and who is gone with how much."""
        address = {name: self.group[name].address for name in "ABCDE"}
        departed = {address[name]: seqno for name, seqno in (departed or {}).items()}
        return self.pass_to(number, names, at, joined=tuple(address[name] for name in joined),
                            left=tuple(departed), departed=departed, **fields)

    def send(self, name, *payloads):
        """Send messages; None stands for a fragment of the one that follows."""
        log = self.group[name].log
        for payload in payloads:
            log.append(payload)
            if payload is None or log.begun is not None:
                log.note_fragments(log.offset + len(log), payload is not None)

    def deliver(self, sender, first, count=1, at="ABC"):
        """Give applications messages that the sender has in its log."""
        member = self.group[sender]
        payloads = member.log[first - 1:first - 1 + count]
        for name in at:
            batch = Batch(member.address, first, payloads, 1)
            self.checkers.delivered(self.group[name], batch)
            self.group[name].consumer.finished[member.incarnation] = batch.last


@pytest.fixture
def history():
    history = History()
    history.pass_to(1, "ABC")
    history.send("A", *[b"%d" % number for number in range(1, 21)])
    history.deliver("A", 1, 10)
    return history


def broken(check, part=""):
    return pytest.raises(Violation, match=f"^{check}: .*{part}.* event [0-9]+\\)$")


def test_a_history_in_which_no_promise_is_broken(history):
    history.change(2, "ABCD", joined="D", at="ABC")
    history.pass_to(2, "ABCD", at="D")
    history.deliver("A", 11, 3, at="ABCD")
    history.group["A"].crash()
    history.change(3, "BCD", departed={"A": 13})
    history.checkers.check_agreement()


# ------------------------------------------------------------------------------------- installation

def test_an_id_that_does_not_grow(history):
    with broken("view id", "after .1: A, B, C"):
        history.install(1, "AB", at="A")


def test_a_view_without_its_owner(history):
    with broken("view", "C installed .*in which it is not"):
        history.install(2, "AB", at="C")


def test_two_views_with_one_id(history):
    history.install(2, "ABCD", at="A")
    with broken("view", "another view with this id"):
        history.install(2, "ABDC", at="B")


def test_an_id_that_is_made_twice(history):
    a, b = history.group["A"], history.group["B"]
    a.members.coordinator.change = Change(2, [], {}, 0, 64)
    for _ in range(2):
        history.checkers.views.after_turn(a)
    b.members.coordinator.change = Change(2, [], {}, 0, 64)
    with broken("view id", "B prepares a second view with the id 2"):
        history.checkers.views.after_turn(b)


def test_a_name_that_is_twice_in_a_view(history):
    view = View(2, (history.group["A"].address, Address("A", 7)))
    with broken("view", "a name is twice"):
        history.checkers.installed(history.group["A"], view)


def test_members_that_change_their_order(history):
    with broken("age"):
        history.install(2, "ACB", at="A")


def test_a_first_view_beside_another_one(history):
    with broken("split", "D installed"):
        history.install(2, "DE")


def test_a_first_view_beside_another_one_of_which_it_could_not_hear_in_time(history):
    history.group.network.delay = 0, 130 * MS           # to and fro, and a SEEK: over form_margin
    history.install(2, "D")
    history.group.network.delay = 0, MS
    with broken("split", "E installed"):
        history.install(3, "E")


@pytest.mark.parametrize("happens", [lambda group: group.checkers.note_cause(),
                                     lambda group: group["B"].crash()], ids=["cause", "death"])
def test_groups_may_form_apart_if_something_has_happened(history, happens):
    happens(history.group)
    history.install(2, "DE")


def test_a_first_view_of_observers_alone(history):
    history.checkers.note_cause()
    history.group["D"].observes = True
    history.install(2, "DE")
    history = History()
    history.group["D"].observes = True
    with broken("first view", "in which all observe"):
        history.install(1, "D")


@pytest.mark.parametrize("names", ["AB", "A", "BC"])
def test_a_primary_view_needs_a_majority_of_the_one_before(history, names):
    history.checkers.note_cause()
    if len(names) == 2:
        history.install(2, names, at=names[0])
        history.install(3, names[0])                    # the oldest of two
    else:
        with broken("primary", "has no majority of .1: A, B, C"):
            history.install(2, names)


def test_the_younger_half_is_not_primary(history):
    history.checkers.note_cause()
    history.install(2, "AB")
    with broken("primary", "has no majority of .2: A, B"):
        history.install(3, "B")


def test_two_primary_views_that_overlap_whichever_is_installed_first(history):
    history.checkers.note_cause()
    history.install(3, "BC", at="C")
    with broken("primary", ".3: B, C. is primary, and has no majority of .2: A, B"):
        history.install(2, "AB", at="A")


def test_two_primary_views_that_follow_the_same():
    """D and E take part in one, and then leave. Without them, A and B are most of the
    rest."""
    history = History()
    history.add_primary(1, "ABCDE")
    history.add_primary(2, "CDE")
    history.add_primary(3, "AB", left="DE")
    with broken("primary", ".3: A, B. and .2: C, D, E. are primary, and both follow .1: A"):
        history.checkers.views.primaries.check()


def test_a_view_that_all_have_left_keeps_nobody_from_following_the_one_before():
    """B and C went on without A, and left. If D came to them meanwhile, it goes on."""
    history = History()
    history.add_primary(1, "ABC")
    history.add_primary(2, "BC")
    history.add_primary(4, "A", left="BC")
    history.checkers.views.primaries.check()
    history.add_primary(3, "CD", left="B")
    with broken("primary", ".4: A. and .2: B, C. are primary, and both follow .1: A, B, C"):
        history.checkers.views.primaries.check()


def test_who_observes_a_view_does_not_follow_it():
    """E observed what A did. It does not keep B from forming a group, once A has gone
    on without it."""
    history = History()
    history.add_primary(1, "AE", observers="E")
    history.add_primary(2, "A")
    history.add_primary(3, "BE", observers="E")
    history.checkers.views.primaries.check()


def test_groups_that_formed_apart_need_the_majority_of_each():
    history = History()
    history.checkers.note_cause()
    history.install(1, "ABC")
    history.install(2, "DE")
    with broken("primary", "has no majority of .2: D, E"):
        history.install(3, "ABCE")


def test_a_first_primary_view_has_min_members(history):
    history.checkers.note_cause()
    for member in history.group.living():
        member.config = configure({"min_members": 2})
    with broken("primary", "has less than 2 members"):
        history.install(2, "D")


def test_a_member_that_sends_without_a_quorum(history):
    history.checkers.note_cause()
    member = history.group["C"]
    member.config = configure({"partition": "primary"})
    history.install(2, "C", primary=False)
    history.checkers.after_turn(member)
    member.multicast.send_window.push(b"not allowed")
    with broken("no quorum", "C sends in"):
        history.checkers.after_turn(member)


def test_a_member_that_is_excluded_though_nothing_happened(history):
    with broken("excluded", "without C"):
        history.install(2, "AB", at="A")


def test_one_who_never_had_the_view_may_go_with_others(history):
    """Its coordinator died before all had it."""
    history.install(2, "ABCD", at="ABC")
    with broken("excluded", "without D"):
        history.install(3, "ABC", at="C")
    history.group["E"].crash()
    history.install(3, "ABC", at="B")
    history.install(2, "ABCD", at="D")
    with broken("excluded", "without D"):
        history.install(3, "ABC", at="A")


def test_a_member_that_died_or_leaves_may_be_excluded(history):
    history.group["C"].crash()
    history.install(2, "AB")
    history.group["B"].leave()
    history.install(3, "A")


# -------------------------------------------------------------------------------- what an app sees

def test_a_view_that_was_never_installed(history):
    with broken("view order", "due is one of none"):
        history.show(history.view(2, "ABC"))


def test_a_view_that_is_shown_too_late(history):
    earlier, later = history.install(2, "ABC"), history.install(3, "ABC")
    history.show(later)
    with broken("view order", "is shown .2: A, B, C"):
        history.show(earlier)


def test_an_application_need_not_see_every_view(history):
    history.group["D"].crash()
    history.install(2, "ABCD", at="ABC")
    history.deliver("A", 11)
    history.change(3, "ABC")
    assert history.group["A"].views[-1].id == 3


@pytest.mark.parametrize(("said", "name"), [
    ({}, "joined"), ({"joined": "D", "departed": {"B": 0}}, "left")], ids=str)
def test_a_view_that_does_not_say_who_came_or_is_gone(history, said, name):
    with broken("changes", f"it says {name}"):
        history.change(2, "ABCD", at="A", **said)


def test_a_view_that_says_nothing_about_the_stream_of_who_is_gone(history):
    gone = history.group["C"]
    gone.crash()
    with broken("changes", "it says departed: nobody"):
        history.pass_to(2, "AB", left=(gone.address,))


def test_members_that_are_not_equally_far(history):
    history.deliver("A", 11, at="B")
    with broken("synchrony", "B goes from view 1 .*up to 11; others did with those up to 10"):
        history.change(2, "ABCD", joined="D", at="ABC")


def test_members_that_are_not_equally_far_in_the_stream_of_who_is_gone(history):
    history.group["A"].crash()
    history.deliver("A", 11, at="C")
    with broken("synchrony", "C goes .*up to 11; others did with those up to 10"):
        history.change(2, "BC", at="B", departed={"A": 10})
        history.change(2, "BC", at="C", departed={"A": 11})


def test_a_view_that_says_another_cut_than_was_delivered(history):
    history.group["A"].crash()
    with broken("synchrony", "the view says up to 12"):
        history.change(2, "BC", departed={"A": 12})


def test_a_member_that_got_nothing_and_others_that_got_more(history):
    history.change(2, "ABCD", joined="D", at="ABC")
    history.pass_to(2, "ABCD", at="D")
    history.deliver("A", 11, at="ABC")
    history.change(3, "ABCD", at="ABC")
    with broken("synchrony", "D goes from view 2 .*up to 10; others did with those up to 11"):
        history.change(3, "ABCD", at="D")


@pytest.mark.parametrize(("place", "is_excused"), [(10, True), (9, False)])
def test_a_stream_that_was_given_up_where_it_began(history, place, is_excused):
    history.change(2, "ABCD", joined="D", at="ABC")
    history.pass_to(2, "ABCD", at="D")
    history.deliver("A", 11, 3)
    history.group["A"].crash()
    history.change(3, "BCD", departed={"A": 13}, at="BC")
    history.checkers.lives.given_up["D", history.group["A"].incarnation] = {place}
    with nullcontext() if is_excused else broken("synchrony", "up to 10; others did"):
        history.change(3, "BCD", departed={"A": 10}, at="D")


def test_two_sides_of_a_partition_need_not_be_equally_far(history):
    history.checkers.note_cause()
    history.change(2, "AB", departed={"C": 0})
    history.change(3, "C", departed={"A": 10, "B": 0}, primary=False)
    history.deliver("A", 11, 5, at="AB")
    history.change(4, "ABC", joined="C", at="AB")
    history.change(4, "ABC", joined="AB", at="C")
    history.deliver("A", 16)                # C never gets 11 to 15
    assert history.group["C"].consumer.got[history.group["A"].address][9:] == [
        b"10", None, None, None, None, None, b"16"]
    assert history.group["C"].address in history.group["C"].views[-1]


def test_a_merge_after_which_something_is_delivered_again(history):
    history.checkers.note_cause()
    history.change(2, "AB", departed={"C": 0})
    history.change(3, "C", departed={"A": 10, "B": 0}, primary=False)
    history.change(4, "ABC", joined="AB", at="C")
    with broken("duplicate", "the next seqno of A is 11"):
        history.deliver("A", 10, at="C")


# ------------------------------------------------------------------------------------- new members

@pytest.fixture
def joined(history):
    history.change(2, "ABCD", joined="D", at="ABC")
    history.pass_to(2, "ABCD", at="D")
    return history


@pytest.mark.parametrize("first", [10, 12])
def test_a_stream_that_does_not_begin_behind_the_cut(joined, first):
    with broken("start", "D got .* first since view 2; the cut is 10"):
        joined.deliver("A", first, at="D")


def test_a_stream_that_begins_before_the_cut_is_known(history):
    history.install(2, "ABCD")
    history.show(history.view(2, "ABCD"), at="D")
    history.deliver("A", 12, at="D")
    with broken("start", "the cut is 10"):
        history.show(history.view(2, "ABCD", joined=(history.group["D"].address,)), at="A")


def test_two_new_members_for_whom_a_stream_begins_at_different_places(history):
    view = history.install(2, "ABCDE")      # A, B and C are slow to show it
    history.show(view, at="DE")
    history.deliver("A", 11, at="D")
    with broken("start", "E got .*for others the stream began after 10"):
        history.deliver("A", 12, at="E")


def test_a_stream_may_begin_behind_the_rest_of_a_large_message(history):
    history.send("B", b"1", None, None, b"large", b"5")
    history.deliver("B", 1)
    history.change(2, "ABCD", joined="D", at="ABC")     # perhaps with two fragments
    history.pass_to(2, "ABCD", at="D")
    history.deliver("B", 4)
    history.deliver("B", 5, at="ABCD")
    with broken("gap"):
        history.send("B", b"6", b"7")
        history.deliver("B", 7)


# ---------------------------------------------------------------------------------------- messages

def test_a_message_that_is_left_out_within_a_view(history):
    with broken("gap", "next seqno of A is 11"):
        history.deliver("A", 12, at="B")


def test_a_message_that_is_delivered_twice(history):
    with broken("duplicate", "next seqno of A is 11"):
        history.deliver("A", 10, at="B")


def test_a_message_of_somebody_who_is_gone(history):
    history.group["A"].crash()
    history.change(2, "BC", departed={"A": 10})
    with broken("sender", "its view is .2: B, C"):
        history.deliver("A", 11, at="B")


def test_a_message_before_the_first_view(history):
    with broken("sender", "its view is None"):
        history.deliver("A", 11, at="D")


def test_a_purge_of_what_somebody_has_not_finished(history):
    history.deliver("A", 11, at="ABC")
    history.checkers.streams.check_purge(history.group["A"], 11)
    history.group["C"].consumer.finished[history.group["A"].incarnation] = 10
    history.change(2, "ABC")
    with broken("purge", "of which C has finished those up to 10"):
        history.checkers.streams.check_purge(history.group["A"], 11)


def test_a_purge_of_what_a_new_member_has_not_finished(joined):
    joined.checkers.streams.check_purge(joined.group["A"], 10)     # what is before its cut
    joined.deliver("A", 11)
    with broken("purge", "of which D has finished those up to None; .*begins after 10"):
        joined.checkers.streams.check_purge(joined.group["A"], 11)


def test_a_purge_before_the_cut_is_known(history):
    view = history.install(2, "ABCD")
    history.show(view, at="D")
    for name in "ABC":
        history.group[name].consumer.finished[history.group["A"].incarnation] = 11
    history.checkers.streams.check_purge(history.group["A"], 11)
    with broken("purge", "D has finished those up to None"):
        history.show(history.view(2, "ABCD", joined=(history.group["D"].address,)), at="A")


def test_messages_that_are_reported_as_undelivered_and_were_not_sent(history):
    history.checkers.undelivered(history.group["A"], Batch(history.group["A"].address, 20, [b"20"]))
    with broken("forgery", "A is told that"):
        history.checkers.undelivered(history.group["A"],
                                     Batch(history.group["A"].address, 20, [b"21"]))


def test_messages_that_are_reported_as_undelivered_twice(history):
    told = Batch(history.group["A"].address, 20, [b"20"])
    history.checkers.undelivered(history.group["A"], told)
    with broken("undelivered", "A is told twice"):
        history.checkers.undelivered(history.group["A"], told)


# --------------------------------------------------------------------------------------- in the end

def test_a_member_that_says_more_than_that_it_is_alive(history):
    member = history.group["A"]
    history.checkers.begin_silence()
    datagram = wire.make_datagram(7, member.stack.group, member.incarnation, 0, b"")
    with broken("quiescence", "of kind highest although nothing is owed"):
        history.checkers.sent(member, datagram)


def test_a_member_that_stops(history):
    with broken("stopped", "A stopped"):
        history.checkers.stopped(history.group["A"])
