"""Several members, one after the other, send one stream; and a member ends with a
view."""

import sys
import threading

import pytest
from channels import new_group
from processes import wait_for

from ringcast import Address, AnswerTimeoutError, Channel, ClosedError, ConfigError, Succession
from ringcast.address import TURNS
from ringcast.channel.callbacks import asked


def test_members_of_a_succession_differ_and_have_one_origin():
    succession = Succession.begin()
    members = {Address("s", succession.next_incarnation()) for _ in range(10)}
    assert len(members) > 1 and {member.origin for member in members} == {
        Address("s", succession.origin)}
    assert not members & {Address("s", succession.origin)}


def test_any_other_member_is_its_own_origin():
    with Channel(new_group(), stack="inproc") as channel:
        assert channel.address.origin == channel.address


def test_seqnos_go_on_and_the_end_is_told():
    group, succession = new_group(), Succession.begin()
    with Channel(group, name="r", stack="inproc", on_message=lambda batch: None) as receiver:
        for begin in (0, 3, 6):
            sender = Channel(group, name="s", stack="inproc", deliver=False, min_members=2,
                             succession=Succession(succession.origin, begin)).connect()
            sender.send_many([b"1", b"2", b"3"])
            assert sender.close() == 0
            assert receiver.finished_of(sender.address) == {receiver.address: (begin, begin + 3)}
            assert receiver.end_of(sender.address.incarnation) == begin + 3
        assert receiver.end_of(4711) is None
        with pytest.raises(AnswerTimeoutError, match="not all members said"):
            receiver.end_of(receiver.address, 0.05)


def test_two_threads_may_ask_for_the_same_end():
    group = new_group()
    with Channel(group, name="a", stack="inproc", on_message=lambda batch: None) as a:
        b = Channel(group, name="b", stack="inproc").connect()
        b.send_many([b"1", b"2", b"3"])
        found = []
        patient = threading.Thread(target=lambda: found.append(a.end_of(b.address, 60)))
        patient.start()
        wait_for(lambda: a._endpoint.ends.asked)
        with pytest.raises(AnswerTimeoutError):
            a.end_of(b.address, 0.02)
        b.close()
        assert a.end_of(b.address) == 3
        patient.join(60)
        assert found == [3] and not a._endpoint.ends.asked


def test_answers_hold_although_somebody_comes_then_who_has_not_answered(monkeypatch):
    with Channel(new_group(), stack="inproc") as channel:
        asking = channel._asking.finished_of(4711, 30.0)
        wait_for(next(asking).ready)
        monkeypatch.setattr(channel._endpoint.ends, "answers", lambda incarnation: None)
        with pytest.raises(StopIteration) as end:
            asking.send(True)
        assert end.value.value == {}


@pytest.mark.parametrize("wrong", [Succession(0), Succession(5), Succession(1 << 63, -1),
                                   Succession((1 << 63) + TURNS)])
def test_an_impossible_succession_is_refused(wrong):
    with pytest.raises(ConfigError, match="is out of range"):
        Channel("g", stack="inproc", succession=wrong)


def test_who_cannot_be_asked_says_so():
    channel = Channel(new_group(), stack="inproc")
    with pytest.raises(ClosedError, match="not connected"):
        channel.end_of(1)
    for wrong, error in ((0, ConfigError), (1 << 64, ConfigError), ("a", TypeError)):
        with pytest.raises(error):
            channel.end_of(wrong)
    channel.close()


def test_a_member_goes_on_if_nobody_can_say_whether_a_view_is_its_last(caplog):
    with Channel(new_group(), name="a", stack="inproc", until=lambda view: 1 / 0) as member:
        member.send(b"it works all the same")
    assert member.fault is None and "until raised ZeroDivisionError" in caplog.text


def test_an_exit_in_until_on_a_thread_of_the_channel_is_an_error_as_any_other(caplog):
    with Channel(new_group(), name="a", stack="inproc", until=lambda view: sys.exit(3)) as member:
        member.send(b"it works all the same")
    assert member.fault is None and "until raised RuntimeError('SystemExit(3)')" in caplog.text


def test_what_a_signal_handler_raises_while_until_is_asked_comes_to_the_main_thread():
    def until(view):
        raise error

    for error in (SystemExit(), KeyboardInterrupt(), ZeroDivisionError()):
        with pytest.raises(type(error)):
            asked(until, None)


def test_until_may_ask_and_send_and_is_told_that_it_must_not_wait(caplog):
    def until(view):
        seen.append(member.status().membership.view_id)
        member.send(b"in a view")
        member.exclude("b")

    seen = []
    member = Channel(new_group(), name="a", stack="inproc", until=until)
    with member:
        member.send(b"it works all the same")
    assert seen == [member.view.id] and member.fault is None
    assert "until raised RingcastError" in caplog.text and "in the middle of another" in caplog.text


def test_a_member_ends_in_the_turn_of_its_last_view():
    group = new_group()
    with Channel(group, name="a", stack="inproc", until=lambda view: "b" in view.names) as member:
        assert member.fault is None
        with Channel(group, name="b", stack="inproc"):
            wait_for(lambda: member.fault is not None)
    assert "was to end with the view" in member.fault
