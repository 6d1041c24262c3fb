"""A caller's mistake raises at once, in one sentence that says what to do (decision
24)."""

import random
import threading
from contextlib import ExitStack

import pytest

from ringcast import (
    Address,
    Channel,
    ClosedError,
    ConfigError,
    Digest,
    Flag,
    NotMemberError,
    RingcastError,
)
from ringcast.config import (
    DEFAULTS,
    OF_STACKS,
    STACK_NAMES,
    STACKS_WITH,
    Config,
    configure,
)
from ringcast.errors import JoinTimeoutError
from ringcast.protocols.faults import Discard
from ringcast.stacks import build_stack, open_transport

NAN, INF = float("nan"), float("inf")
A = Address("A", 1)


async def coroutine(*_):
    """Take what a callback takes."""


def generator(*_):
    """Take what a callback takes, and yield."""
    yield b""


async def async_generator(*_):
    """Take what a callback takes, and yield."""
    yield b""


class Coroutine:
    async def __call__(self, *_):
        """Take what a callback takes."""


OF_A_CHANNEL = {
    "a group that is no text": (TypeError, "group is a str, not int", {"group": 5}),
    "a group without a name": (ConfigError, "group is empty", {"group": ""}),
    "a group that UTF-8 cannot encode": (ConfigError, "UTF-8 cannot encode", {"group": "\ud800"}),
    "a name that is no text": (TypeError, "name is a str, not int", {"name": 5}),
    "a name of bytes": (TypeError, "name is a str, not bytes", {"name": b"A"}),
    "an empty name": (ConfigError, "name is empty", {"name": ""}),
    "a long name": (ConfigError, "at most 64", {"name": "ä" * 33}),
    "a list of members": (ConfigError, "there is no option 'members'", {"members": ["A", "B"]}),
    "a durable member that takes a state": (
        ConfigError, "goes on where it stood", {"durable": True, "on_state": print}),
    "messages to a number": (TypeError, "on_message is a function", {"on_message": 5}),
    "messages to a coroutine": (TypeError, "on_message is called on a thread of the channel",
                                {"on_message": coroutine}),
    "views to an object whose call is a coroutine": (TypeError, "it cannot be async",
                                                     {"on_view": Coroutine()}),
    "messages to a generator": (TypeError, "on_message yields, and so its body would never run",
                                {"on_message": generator}),
    "a state to a generator": (TypeError, "on_state yields", {"on_state": generator}),
    "a state of an async generator": (TypeError, "it cannot be async",
                                      {"on_state_request": async_generator}),
    "more undelivered than there can be": (ConfigError, "up to 1e\\+18",
                                           {"max_undelivered": 1 << 70}),
    "a heartbeat that never ends": (ConfigError, "from 0.001", {"heartbeat_interval": 1e-7}),
    "repeats without a pause": (ConfigError, "less than 0.001", {
        "xmit_interval": 1e-7, "stack": "mcast-udp"}),
    "no repeats for ever": (ConfigError, "more than 86400000", {
        "xmit_interval": -INF, "stack": "nakack2-tcp"}),
    "views to a text": (TypeError, "on_view is a function", {"on_view": "print"}),
    "undelivered to a list": (TypeError, "on_undelivered is a function", {"on_undelivered": []}),
    "deliver as a word": (TypeError, "deliver is True or False", {"deliver": "no"}),
    "resume that is no digest": (TypeError, "resume is a ringcast.Digest, not int", {"resume": 5}),
    "resume by names": (TypeError, "Address to a seqno", {"resume": Digest({"B": 1})}),
    "resume at a part of a seqno": (TypeError, "Address to a seqno", {"resume": Digest({A: 1.5})}),
    "resume before the first seqno": (ConfigError, "a seqno is in", {"resume": Digest({A: -1})}),
    "resume of a member that is not durable": (ConfigError, "pass durable=True, or leave",
                                               {"resume": Digest({A: 1})}),
    "a durable member that takes no messages": (ConfigError, "leave out deliver=False",
                                                {"durable": True, "deliver": False}),
    "a discovery that is none": (ConfigError, "discovery='bees' is none of multicast, hosts:",
                                 {"discovery": "bees"}),
    "a discovery of nothing": (ConfigError, "discovery=None is none of", {"discovery": None}),
    "faults that are no list": (TypeError, "faults is a list of Layer", {"faults": 5}),
    "a fault that is no layer": (TypeError, "5 is not one", {"faults": [5]}),
    "a stack that is no text": (ConfigError, "there is no stack", {"stack": ["inproc"]}),
    "a stack that is not": (ConfigError, "choose one of", {"stack": "mcast-carrier-pigeon"}),
}


@pytest.mark.parametrize("case", OF_A_CHANNEL)
def test_a_wrong_argument_of_a_channel_raises_at_once(case):
    error, sentence, wrong = OF_A_CHANNEL[case]
    with pytest.raises(error, match=sentence) as caught:
        Channel(**({"group": "arguments", "stack": "inproc"} | wrong))
    assert one_sentence(caught)


def test_a_layer_belongs_to_one_channel():
    layer = Discard(0, random.Random(1))
    with pytest.raises(ConfigError, match="or one twice; make new layers for each channel"):
        Channel("arguments", stack="inproc", faults=[layer, layer])
    Channel("arguments", stack="inproc", faults=[layer]).close()
    with pytest.raises(ConfigError, match="has a layer that another channel has"):
        Channel("arguments", stack="inproc", faults=[layer])


@pytest.mark.parametrize("wrong", [None, 5, [("A#0000000000000001", 1)], {1: 1},
                                   {"A#0000000000000001": "x"}])
def test_what_is_no_digest_by_names_raises_at_once(wrong):
    with pytest.raises(TypeError, match="seqnos maps each sender, as text, to a seqno"):
        Digest.from_names(wrong)


@pytest.fixture(scope="module")
def channel():
    with Channel("arguments of a member", name="A", stack="inproc",
                 on_message=lambda batch: None) as channel:
        yield channel


class Payloads(list):
    pass


TIMEOUTS = {
    "infinite": (ConfigError, "None to wait for ever", INF),
    "longer than a thread can wait": (ConfigError, "None to wait for ever", 1e10),
    "not a number": (ConfigError, "None to wait for ever", NAN),
    "negative": (ConfigError, "is not in 0 ..", -1),
    "a text": (TypeError, "number of seconds", "1"),
    "a truth": (TypeError, "number of seconds", True),
}

CALLS = {
    "send": lambda channel, timeout: channel.send(b"", timeout=timeout),
    "send to one": lambda channel, timeout: channel.send(b"", "A", timeout),
    "send_many": lambda channel, timeout: channel.send_many([b""], timeout=timeout),
    "connect": lambda channel, timeout: Channel("others", stack="inproc").connect(timeout),
    "close": lambda channel, timeout: channel.close(timeout),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("case", TIMEOUTS)
def test_a_wrong_timeout_raises_at_once_even_where_nothing_would_wait(channel, call, case):
    error, sentence, timeout = TIMEOUTS[case]
    before = channel.status().multicast.hr
    with pytest.raises(error, match=sentence) as caught:
        CALLS[call](channel, timeout)
    assert one_sentence(caught)
    assert channel.status().multicast.hr == before


def test_to_leave_or_not_is_no_word(channel):
    with pytest.raises(TypeError, match="leave is True or False, not str"):
        channel.close(leave="no")
    channel.send(b"it is open")


def test_send_many_may_send_what_the_same_channel_receives():
    with Channel("arguments that are received", name="A", stack="inproc") as echo:
        echo.send_many([b"a", b"b"])
        echo.send_many(message.payload.upper() for message in echo.messages(timeout=0.5))
        assert [message.payload for message in echo.messages(timeout=0.5)] == [b"A", b"B"]


FLAGS = {
    "a fraction": (TypeError, "flags is a ringcast.Flag, not float", 1.5),
    "a text": (TypeError, "flags is a ringcast.Flag, not str", "OOB"),
    "nothing": (TypeError, "flags is a ringcast.Flag, not NoneType", None),
    "negative": (ConfigError, "not all ringcast.Flag", -1),
    "of more than 16 bits": (ConfigError, "not all ringcast.Flag", 1 << 20),
    "of more than 64 bits": (ConfigError, "not all ringcast.Flag", 1 << 70),
    "not for senders": (ConfigError, "not all ringcast.Flag", Flag.INCOMPLETE),
}


@pytest.mark.parametrize("case", FLAGS)
def test_wrong_flags_raise_at_once_and_nothing_is_sent(channel, case):
    error, sentence, flags = FLAGS[case]
    before = channel.status().multicast.hr
    for send in (lambda: channel.send(b"", flags=flags),
                 lambda: channel.send_many([b""], flags=flags)):
        with pytest.raises(error, match=sentence) as caught:
            send()
        assert one_sentence(caught)
    assert channel.status().multicast.hr == before


DESTS = {
    "a number": (TypeError, "Address or its name", 5),
    "a list": (TypeError, "Address or its name", ["A"]),
    "a pair": (TypeError, "Address or its name", ("A", 1)),
    "a stranger": (NotMemberError, "no member 'Z' is in the view", "Z"),
}


@pytest.mark.parametrize("case", DESTS)
def test_a_wrong_dest_raises_at_once(channel, case):
    error, sentence, dest = DESTS[case]
    with pytest.raises(error, match=sentence):
        channel.send(b"", dest)


@pytest.mark.parametrize("flags", [Flag(0), Flag.NO_RELIABILITY], ids=repr)
@pytest.mark.parametrize("dest", ["B", Address("B", 2)], ids=repr)
def test_before_connect_nobody_can_be_sent_to_alone(dest, flags):
    channel = Channel("arguments", name="A", stack="inproc")
    for send in (channel.send, channel.try_send):
        with pytest.raises(NotMemberError, match="^this channel has no view yet, so B.* is no "
                                                 "member of it; call connect.. first$"):
            send(b"", dest, flags=flags)
    channel.close(0)
    with pytest.raises(ClosedError):
        channel.send(b"", dest, flags=flags)


@pytest.mark.parametrize("payloads", [b"one message", "one message", None, 5], ids=repr)
def test_send_many_wants_many(channel, payloads):
    with pytest.raises(TypeError, match="send_many takes a list of messages"):
        channel.send_many(payloads)


def test_send_many_takes_any_iterable_of_messages(channel):
    before = channel.status().multicast.hr
    for payloads in (Payloads([b"1", b"2"]), (b"3",), iter([b"4", b"5"]), {b"6": None}, []):
        channel.send_many(payloads)
    assert channel.status().multicast.hr == before + 6


@pytest.mark.parametrize(("call", "error", "sentence"), [
    (lambda channel: channel.exclude(5), TypeError, "member is an Address or a name"),
    (lambda channel: channel.exclude("Z"), ConfigError, "not in the view, which has A"),
    (lambda channel: setattr(channel, "xmit_interval", "3"), TypeError,
     "xmit_interval is a number"),
    (lambda channel: setattr(channel, "xmit_interval", NAN), ConfigError, "nan"),
    (lambda channel: setattr(channel, "xmit_interval", INF), ConfigError,
     "more than 86400000 milliseconds"),
], ids=["exclude a number", "exclude a stranger", "an interval of text", "no number",
        "an endless interval"])
def test_other_calls_check_their_arguments_too(channel, call, error, sentence):
    with pytest.raises(error, match=sentence) as caught:
        call(channel)
    assert one_sentence(caught)


def test_timeouts_may_be_as_long_as_a_thread_can_wait(channel):
    channel.send(b"", timeout=threading.TIMEOUT_MAX)
    channel.send(b"", timeout=0)
    channel.send_many([b""], timeout=None)


@pytest.mark.parametrize(("stack", "options", "users"), [
    ("mcast-udp", {"hosts": "127.0.0.1:7700"}, "mcast-tcp or nakack2-tcp"),
    ("nakack2-udp", {"port_range": 3}, "mcast-tcp or nakack2-tcp"),
    ("mcast-udp", {"link_timeout": 1000}, "mcast-tcp or nakack2-tcp"),
    ("nakack2-tcp", {"group_address": "239.255.7.7"}, "mcast-udp or nakack2-udp"),
    ("mcast-tcp", {"ttl": "0"}, "mcast-udp or nakack2-udp"),
    ("mcast-tcp", {"receive_buffer": 1 << 20}, "mcast-udp or nakack2-udp or inproc"),
    ("mcast-udp", {"stable_interval": 50}, "nakack2-udp or nakack2-tcp"),
    ("nakack2-udp", {"gap_timeout": 50}, "nakack2-tcp"),
    ("inproc", {"port": 7777}, "mcast-udp or mcast-tcp or nakack2-udp or nakack2-tcp"),
])
def test_an_option_that_the_stack_does_not_have_is_refused(stack, options, users):
    (name, value), = options.items()
    with pytest.raises(ConfigError, match=f"^{stack} has no option {name}; leave it out, or use "
                                          f"{users}$") as caught:
        Channel("arguments", stack=stack, **options)
    assert one_sentence(caught)
    for other in users.split(" or "):
        assert configure(options, other)
    assert configure({name: getattr(DEFAULTS, name)}, stack)


def test_every_option_belongs_to_some_stacks():
    listed = sorted(" ".join(OF_STACKS.values()).split())
    assert listed == sorted(Config.__struct_fields__)


@pytest.mark.parametrize("stack", STACK_NAMES)
def test_a_stack_reads_only_options_that_it_has_and_its_transport_reads_its_own(stack):
    reads = set()

    class Reading:
        def __getattr__(self, name):
            reads.add(name)
            return getattr(DEFAULTS, name)

    open_transport(stack, "arguments", 1, Reading(), None).close()
    own = {name for name, stacks in STACKS_WITH.items() if stack in stacks}
    of_transports = {name for name, stacks in STACKS_WITH.items()
                     if stacks != STACK_NAMES and {"mcast-udp", "mcast-tcp"}.intersection(stacks)}
    assert reads & of_transports == own & of_transports
    build_stack(stack, A, Reading(), group="arguments", receive_budget=1 << 20)
    assert reads & STACKS_WITH.keys() <= own


def test_a_group_that_has_not_formed_in_time_says_who_was_heard():
    channel = Channel("arguments", name="A", stack="inproc", form_margin=1e6)
    with pytest.raises(JoinTimeoutError, match="^group 'arguments' has no view with this member "
                                               "after 0 s, although it hears A; give"):
        channel.connect(0)


def test_a_group_that_is_too_small_says_who_is_there():
    channel = Channel("arguments", name="A", stack="inproc", min_members=3)
    with pytest.raises(JoinTimeoutError, match="^group 'arguments' has 1 of the 3 members that "
                                               "min_members asks for, A, after 0 s; start more"):
        channel.connect(0)


def test_of_a_large_group_an_error_lists_some():
    with ExitStack() as members:
        for number in range(12):
            members.enter_context(Channel("arguments", name=f"m{number}", stack="inproc"))
        late = Channel("arguments", name="late", stack="inproc", min_members=20)
        with pytest.raises(JoinTimeoutError, match=r"(m\d+, ){9}m\d+ and 3 more, after 1 s"):
            late.connect(1)


def test_a_channel_that_is_closed_while_it_joins_says_so():
    channel = Channel("arguments", name="A", min_members=2, stack="inproc")
    threading.Timer(0.05, channel.close).start()
    with pytest.raises(RingcastError, match="closed while it joined"):
        channel.connect()


def one_sentence(caught):
    text = str(caught.value)
    return "\n" not in text and len(text) < 300
