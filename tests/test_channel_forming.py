"""Groups that form themselves, over real sockets: members find each other, agree on who
is there, and go on when one of them is killed."""

import contextlib
import itertools
import signal
import subprocess
import sys
import threading
from functools import partial

import pytest
from channels import STACKS, new_group, side_by_side
from ports import free_port
from processes import PATIENCE, wait_for

from ringcast import Channel, ConfigError, JoinTimeoutError, RingcastError, View
from ringcast.channel import seeking
from ringcast.config import own_options
from ringcast.stack import Layer

NETWORKED = [each for each in STACKS if each != "inproc"]


class Member:
    """A channel, and what its callbacks were called with, in order."""

    def __init__(self, name=None, **options):
        self.events, self.undelivered = [], []
        self.channel = Channel(name=name, on_message=self.events.append, on_view=self.events.append,
                               **{"on_undelivered": self.undelivered.append, **options})
        self.name = self.channel.address.name

    @property
    def views(self):
        return [event for event in self.events if isinstance(event, View)]

    @property
    def names(self):
        return self.views[-1].names if self.views else ()

    def got(self, sender):
        """Return the payloads of one sender's name."""
        return [payload for event in self.events if not isinstance(event, View)
                and event.sender.name == sender for payload in event.payloads]

    def until_left(self, name):
        """Return the seqnos that came of a member up to the view without it, that view,
        and how many came later. The one meant is the first to leave."""
        seqnos, later, found = [], 0, None
        gone = next((address for view in self.views for address in view.left
                     if address.name == name), None)
        for event in self.events:
            if isinstance(event, View):
                found = found or (event if gone in event.left else None)
            elif event.sender == gone:
                later += len(event) * bool(found)
                seqnos += range(event.first, event.last + 1)
        return seqnos, found, later


class Group:
    """Members in this process that share a group, a stack and a port."""

    def __init__(self, stack, **options):
        place = own_options({"port": free_port(64), "port_range": 64}, stack)
        self.common = {"group": new_group(), "stack": stack} | place | options
        self.members = {}

    def __getitem__(self, name):
        return self.members[name]

    def __iter__(self):
        return iter(self.members.values())

    def open(self, *names, **options):
        for name in names:
            self.members[name] = Member(name, **(self.common | options))
        return [self.members[name] for name in names]

    def start(self, *names, **options):
        """Open members and let them join."""
        return self.join(self.open(*names, **options))

    def join(self, members):
        """Let members join, side by side. Wait until all have the same view."""
        side_by_side([member.channel.connect for member in members])
        self.wait_for_one_view()
        return self

    def wait_for_one_view(self, *others):
        wanted = {*self.members, *others}
        wait_for(lambda: all(set(member.names) == wanted for member in self)
                 and len({member.views[-1] for member in self}) == 1)

    def close(self, *names):
        side_by_side([self.members.pop(name).channel.close for name in names])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        side_by_side([partial(member.channel.close, 1) for member in self])


def check_same_between_views(members):
    """Members that go together from one view to the next get the same messages in
    between: of each sender, the same ones."""
    said = {}
    for member in members:
        before, messages = None, {}
        for event in member.events:
            if isinstance(event, View):
                if before is not None:
                    key = before.id, event.id
                    assert said.setdefault(key, messages) == messages, key
                before, messages = event, {}
            else:
                messages.setdefault(event.sender, []).extend(event.payloads)


# ------------------------------------------------------------------------------------------ forming

@pytest.mark.parametrize("size", [2, 3, 10])
@pytest.mark.parametrize("stack", STACKS)
def test_members_form_one_group_and_their_messages_flow(stack, size):
    names = [f"m{number}" for number in range(size)]
    payloads = [b"%d" % number for number in range(200)]
    with Group(stack).start(*names) as group:
        side_by_side([lambda each=each: each.channel.send_many(payloads) for each in group])
        wait_for(lambda: all(each.got(name) == payloads for each in group for name in names))
        views = {each.views[-1] for each in group}
        assert len(views) == 1 and views.pop().primary
        assert {each.channel.view.coordinator.name for each in group} <= set(names)
        check_same_between_views(group)


@pytest.mark.parametrize("stack", STACKS)
def test_a_member_that_joins_later_gets_what_is_sent_from_its_first_view_on(stack):
    with Group(stack).start("A", "B") as group:
        group["A"].channel.send(b"before")
        wait_for(lambda: group["B"].got("A") == [b"before"])
        group.start("C")
        assert group["C"].views[0].joined == group["C"].views[0].members
        assert [each.name for each in group["A"].views[-1].joined] == ["C"]
        assert group["C"].views[0].members[-1] == group["C"].channel.address
        group["A"].channel.send(b"after")
        wait_for(lambda: all(each.got("A")[-1:] == [b"after"] for each in group))
        assert group["C"].got("A") == [b"after"]


@pytest.mark.parametrize("stack", STACKS)
def test_members_that_join_while_others_send_agree_on_what_came_before(stack):
    with Group(stack).start("A", "B") as group:
        stop, last = threading.Event(), {}

        def send(member):
            for number in itertools.count():
                member.channel.send(b"%d" % number)
                last[member.name] = number
                if stop.is_set():
                    return

        senders = [threading.Thread(target=send, args=(group[name],)) for name in "AB"]
        for sender in senders:
            sender.start()
        try:
            for name in "CDE":
                group.start(name)
        finally:
            stop.set()
            for sender in senders:
                sender.join(PATIENCE)
        wait_for(lambda: all(each.got(name)[-1:] == [b"%d" % last[name]]
                             for each in group for name in "AB"))
        check_same_between_views(group)
        for each in group:
            for name in "AB":
                numbers = list(map(int, each.got(name)))
                assert numbers == list(range(numbers[0], last[name] + 1))


def test_a_member_alone_is_a_group_of_one():
    with Channel(new_group(), stack="inproc") as channel:
        assert channel.view.members == channel.view.joined == (channel.address,)
        channel.send(b"to myself")
        assert next(iter(channel)).payload == b"to myself"


def test_names_that_are_not_given_say_host_and_process_and_differ():
    names = {Channel(new_group(), stack="inproc").address.name for _ in range(3)}
    assert len(names) == 3 and all(len(name.encode()) <= 64 for name in names)


def test_a_name_that_is_not_given_fits_whatever_the_host_is_called(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "ä" * 64)
    name = Channel(new_group(), stack="inproc").address.name
    assert name.startswith("ää") and 60 < len(name.encode()) <= 64


# ------------------------------------------------------------------------------------------ leaving

@pytest.mark.parametrize("stack", STACKS)
def test_a_member_that_closes_has_left_and_how_far_its_stream_got_is_known(stack):
    with Group(stack).start("A", "B", "C") as group:
        gone = group["C"].channel.address
        group["C"].channel.send_many([b"%d" % number for number in range(100)])
        group.close("C")
        group.wait_for_one_view()
        for each in group:
            assert (each.views[-1].left, each.views[-1].departed) == ((gone,), {gone: 100})
            seqnos, view, later = each.until_left("C")
            assert (seqnos, view, later) == (list(range(1, 101)), each.views[-1], 0)


@pytest.mark.parametrize("stack", STACKS)
def test_a_member_that_was_excluded_while_it_lived_is_back_by_itself(stack):
    with Group(stack).start("A", "B", "C") as group:
        group["B"].channel.exclude("C")
        wait_for(lambda: len(group["A"].views) >= 3)
        group.wait_for_one_view()
        assert [each.name for each in group["A"].views[-2].left] == ["C"]
        for each in group:
            each.channel.send(b"here again")
        wait_for(lambda: all(each.got(name) == [b"here again"] for each in group for name in "ABC"))


def test_an_address_excludes_no_other_member_of_that_name():
    with Group("inproc").start("A", "B") as group:
        a, former = group["A"].channel, group["B"].channel.address
        group["B"].channel.close()
        group.start("B")
        with pytest.raises(ConfigError, match="'B#.*' is not in the view, which has A, B"):
            a.exclude(former)
        a.exclude(group["B"].channel.address)
        wait_for(lambda: [each.name for view in group["A"].views for each in view.left]
                 == ["B", "B"])


class Cut(Layer):
    """A fault: while `is_cut`, nothing leaves and nothing comes."""

    is_cut = False

    def send(self, packets, now):
        if not self.is_cut:
            self.below.send(packets, now)

    def receive(self, packets, now):
        if not self.is_cut:
            self.above.receive(packets, now)


@pytest.mark.parametrize("is_told", [True, False], ids=["on_undelivered", "the log"])
@pytest.mark.parametrize("stack", ["inproc", "nakack2-tcp", pytest.param("mcast-udp",
                                                                         marks=pytest.mark.udp)])
def test_what_the_others_will_not_be_given_goes_back_to_the_application(stack, is_told, caplog):
    cut = Cut()
    with caplog.at_level("WARNING", "ringcast"), Group(stack, suspect_timeout=1e7) as group:
        (c,) = group.open("C", faults=[cut], **({} if is_told else {"on_undelivered": None}))
        group.join([c, *group.open("A", "B")])
        c.channel.send(b"known")
        wait_for(lambda: all(each.got("C") == [b"known"] for each in group))
        cut.is_cut = True
        lost = [b"%d" % number for number in range(10)]
        c.channel.send_many(lost)
        wait_for(lambda: c.got("C") == [b"known", *lost])
        group["A"].channel.exclude("C")
        wait_for(lambda: all(has_left(group[name], "C") for name in "AB"))
        cut.is_cut = False
        group.wait_for_one_view()
        c.channel.send(b"back")
        wait_for(lambda: all(group[name].got("C") == [b"known", b"back"] for name in "AB"))
        check_same_between_views([group["A"], group["B"]])
    if is_told:
        assert [payload for batch in c.undelivered for payload in batch.payloads] == lost
        assert {batch.dest for batch in c.undelivered} == {None}
    said = ("10 messages to everybody will not reach the others, which excluded this member while "
            "it could not be heard")
    assert (said in caplog.text) is not is_told


def test_what_is_sent_until_the_view_without_the_others_goes_back_too():
    cut = Cut()
    with Group("inproc", suspect_timeout=1e7) as group:
        (c,) = group.open("C", faults=[cut])
        group.join([c, *group.open("A", "B")])
        c.channel.send(b"known")
        wait_for(lambda: all(each.got("C") == [b"known"] for each in group))
        endpoint = c.channel._endpoint
        depart = endpoint.members.detection.depart

        late = [b"late"]

        def send_and_depart(members, why=""):   # the application sends just when it is told
            endpoint.multicast.send_window.push_many(late, 0, 0)
            late.clear()
            depart(members, why)

        endpoint.members.detection.depart = send_and_depart
        cut.is_cut = True
        c.channel.send(b"lost")
        wait_for(lambda: c.got("C") == [b"known", b"lost"])
        group["A"].channel.exclude("C")
        wait_for(lambda: all(has_left(group[name], "C") for name in "AB"))
        cut.is_cut = False
        group.wait_for_one_view()
        assert [payload for batch in c.undelivered for payload in batch.payloads] == [
            b"lost", b"late"]


# -------------------------------------------------------------------------------------------- dying

PROGRAM = """
import sys
from ringcast import Channel
from ringcast.config import own_options
group, name, stack, port = sys.argv[1:]
place = own_options({"port": int(port), "port_range": 64}, stack)
channel = Channel(group, name=name, stack=stack, on_message=lambda batch: None,
                  suspect_timeout=1000, **place).connect()
print(channel.address, flush=True)
number = 0
while True:
    channel.send(b"%d" % number)
    number += 1
"""


@contextlib.contextmanager
def process(group, name):
    """Start a process with a member that sends all the time. Yield it when it is in
    everybody's view."""
    running = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, group.common["group"], name, group.common["stack"],
         str(group.common["port"])], stdout=subprocess.PIPE, text=True)
    try:
        running.address = running.stdout.readline().strip()
        assert running.address
        group.wait_for_one_view(name)
        yield running
    finally:
        running.kill()
        running.communicate()


def has_left(member, name):
    return member.until_left(name)[1] is not None


@pytest.mark.kill
@pytest.mark.parametrize("stack", NETWORKED)
def test_the_others_exclude_a_member_that_is_killed_and_have_the_same_of_it(stack):
    with Group(stack, suspect_timeout=1000).start("A", "B", "C") as group:
        with process(group, "V") as victim:
            wait_for(lambda: all(len(each.got("V")) > 1000 for each in group))
            victim.send_signal(signal.SIGKILL)
            wait_for(lambda: all(has_left(each, "V") for each in group))
        ends = set()
        for each in group:
            seqnos, view, later = each.until_left("V")
            (gone,) = view.left
            assert str(gone) == victim.address and later == 0
            assert seqnos == list(range(seqnos[0], view.departed[gone] + 1))
            ends.add(view.departed[gone])
        assert len(ends) == 1
        check_same_between_views(group)
        group["A"].channel.send(b"we go on")
        wait_for(lambda: all(each.got("A") == [b"we go on"] for each in group))


@pytest.mark.kill
@pytest.mark.parametrize("stack", NETWORKED)
def test_a_member_that_was_killed_may_start_again_under_its_name(stack):
    with Group(stack, suspect_timeout=1000).start("A", "B") as group:
        with process(group, "V") as former:
            wait_for(lambda: all(each.got("V") for each in group))
        with process(group, "V") as latter:
            assert former.address != latter.address
            for each in group:
                _, view, later = each.until_left("V")
                assert [str(member) for member in view.left] == [former.address] and later == 0
                wait_for(lambda each=each: any(not isinstance(event, View)
                                               and str(event.sender) == latter.address
                                               for event in list(each.events)))


@pytest.mark.kill
@pytest.mark.parametrize("stack", NETWORKED)
def test_a_member_that_slept_is_excluded_and_back_when_it_wakes(stack):
    with Group(stack, suspect_timeout=1000).start("A", "B") as group:
        with process(group, "V") as sleeper:
            wait_for(lambda: all(each.got("V") for each in group))
            sleeper.send_signal(signal.SIGSTOP)
            wait_for(lambda: all(has_left(each, "V") for each in group))
            counts = {each.name: len(each.got("V")) for each in group}
            sleeper.send_signal(signal.SIGCONT)
            group.wait_for_one_view("V")
            wait_for(lambda: all(len(each.got("V")) > counts[each.name] for each in group))
            for each in group:
                numbers = list(map(int, each.got("V")))
                assert numbers == sorted(set(numbers))              # nothing twice
        check_same_between_views(group)


# ------------------------------------------------------------------------------ who may not come in

@pytest.mark.parametrize("stack", STACKS)
def test_a_second_member_with_a_name_is_refused_and_the_first_one_stays(stack):
    with Group(stack).start("A", "B") as group:
        second = Member("A", **group.common)
        with pytest.raises(RingcastError, match="another member has the name 'A'; give every "
                                                "member its own name"):
            second.channel.connect(PATIENCE)
        group["A"].channel.send(b"still here")
        wait_for(lambda: group["B"].got("A") == [b"still here"])
        assert set(group["B"].names) == {"A", "B"}


@pytest.mark.parametrize("stack", STACKS)
def test_a_member_with_other_terms_is_refused_and_the_group_goes_on(stack, caplog):
    with Group(stack, capacity=1000).start("A", "B") as group:
        stranger = Member("C", **(group.common | {"capacity": 500}))
        with caplog.at_level("WARNING", "ringcast"), pytest.raises(
                RingcastError, match="has capacity='1000' and this member, 'C', has "
                                     "capacity='500'; give all members of the group the same"):
            stranger.channel.connect(PATIENCE)
        group["A"].channel.send(b"still here")
        wait_for(lambda: group["B"].got("A") == [b"still here"])
        assert set(group["A"].names) == {"A", "B"}


# ------------------------------------------------------------------------------ enough, and in time

@pytest.mark.parametrize("stack", STACKS)
def test_connect_returns_when_there_are_min_members(stack):
    with Group(stack, min_members=3) as group:
        first = group.open("A", "B")
        waiting = [threading.Thread(target=each.channel.connect) for each in first]
        for thread in waiting:
            thread.start()
        wait_for(lambda: all(len(each.channel._endpoint.members.present()) == 2 for each in first))
        assert all(thread.is_alive() and each.channel._endpoint.view is None
                   for thread, each in zip(waiting, first, strict=True))
        group.start("C")
        for thread in waiting:
            thread.join(PATIENCE)
        assert all(len(each.views) == 1 for each in group)


def test_connect_waits_for_min_members_also_in_a_group_that_is_smaller():
    with Group("inproc").start("A") as group:
        (b,) = group.open("B", min_members=3)
        waiting = threading.Thread(target=b.channel.connect)
        waiting.start()
        group.wait_for_one_view()
        assert waiting.is_alive()
        group.start("C")
        waiting.join(PATIENCE)
        assert not waiting.is_alive() and len(b.channel.view) == 3


@pytest.mark.parametrize("stack", STACKS)
def test_who_is_there_when_they_are_too_few(stack):
    with Group(stack).start("A") as group:
        few = Member("B", **(group.common | {"min_members": 3}))
        with pytest.raises(JoinTimeoutError) as error:
            few.channel.connect(2)
        found = str(error.value)
        assert "has 2 of the 3 members that min_members asks for, A, B, after 2 s" in found
        wait_for(lambda: group["A"].names == ("A",))            # it has left


def test_a_member_that_gives_up_before_there_is_a_group_is_not_waited_for():
    with Group("inproc", form_margin=200) as group:
        quitter = Member("Q", **(group.common | {"form_margin": 1e6}))
        with pytest.raises(JoinTimeoutError):
            quitter.channel.connect(0)
        group.start("A", "B")
        assert [view.names for view in group["A"].views] == [group["A"].names]


def test_a_member_that_only_sends_is_not_waited_for():
    with Group("inproc").start("A") as group:
        sender = Channel(name="S", deliver=False, **group.common).connect()
        sender.send_many([b"%d" % number for number in range(3000)])
        wait_for(lambda: len(group["A"].got("S")) == 3000)
        assert sender.close() == 0


# ---------------------------------------------------------------------------------------- discovery

@pytest.mark.parametrize("how", ["hosts", "folder", "function"])
@pytest.mark.parametrize("stack", ["mcast-tcp", "nakack2-tcp"])
def test_members_find_each_other_where_discovery_says(stack, how, tmp_path):
    """Without it, each would dial no port but its own."""
    first = free_port(3)
    hosts = [f"127.0.0.1:{first + number}" for number in range(3)]
    discovery = {"hosts": f"hosts:{','.join(hosts)}", "folder": f"folder:{tmp_path}",
                 "function": lambda: iter(hosts)}[how]
    with Group(stack, port_range=1, discovery=discovery, min_members=3) as group:
        for number, name in enumerate("ABC"):
            group.open(name, port=first + number)
        side_by_side([each.channel.connect for each in group])
        group.wait_for_one_view()
    if how == "folder":
        wait_for(lambda: not list(tmp_path.iterdir()))


def test_no_group_forms_before_who_may_be_there_is_known():
    asked, may_answer = threading.Event(), threading.Event()

    def resolves():
        asked.set()
        may_answer.wait(PATIENCE)
        return []

    with Group("mcast-udp", discovery=resolves, form_margin=10) as group:
        channel = group.open("A")[0].channel
        joining = threading.Thread(target=channel.connect)
        joining.start()
        assert asked.wait(PATIENCE)
        joining.join(0.5)
        assert joining.is_alive()
        may_answer.set()
        joining.join(PATIENCE)
        assert channel.view.names == ("A",)


def test_a_function_that_never_answers_does_not_keep_a_group_from_forming(monkeypatch):
    monkeypatch.setattr(seeking, "PATIENCE", 100_000_000)
    may_end = threading.Event()
    try:
        with Group("mcast-udp", discovery=lambda: may_end.wait(PATIENCE), form_margin=10) as group:
            group.start("A")
            assert group["A"].names == ("A",)
    finally:
        may_end.set()


def test_a_function_that_fails_is_logged_once_and_the_group_forms(caplog):
    def fails():
        raise OSError("no register")

    with caplog.at_level("WARNING", "ringcast"), Group("inproc", discovery=fails) as group:
        group.start("A")
        wait_for(lambda: "no register; trying again" in caplog.text)
        assert group["A"].names == ("A",)
    assert caplog.text.count("no register") == 1
