"""The verbs of a group: its members, their applications, and what happens to them.

VERBS is the table of all verbs of the language. A verb is a function that reads its
words and returns what to do; its docstring begins with how to write it. A decorator
enters it into the table of its file: `@does` if it makes something happen, `@expects`
if it says what must be so. A line with an arrow is both: what stands behind `->` must
come out.
"""

from typing import Any

from ringcast._core.batch import Batch
from ringcast.config import NETWORKED, configure
from ringcast.protocols.seqnos import MODULUS, later, precedes
from ringcast.sim.network import MS
from ringcast.sim.transcripts.language import (
    Act,
    Mistake,
    Play,
    Unlike,
    Verbs,
    Words,
    content,
    duration,
    number,
    truth,
)
from ringcast.sim.transcripts.scripted import ANY, ScriptedCluster, ScriptedMember
from ringcast.sim.transcripts.verbs import expectations, nakack2, network, unicast, window

VERBS = Verbs()
for each in (window, network, expectations, unicast, nakack2):
    VERBS |= each.VERBS
does, expects = VERBS.does, VERBS.expects

# Nobody is suspected for silence: the next heartbeat is far ahead.
DEFAULTS = {"capacity": "10", "ack_threshold": "1", "xmit_interval": "100ms", "delay": "1ms",
            "form_margin": "10ms", "heartbeat_interval": "3600s"}
# Options of a member that are not the stack's. `receiving=false` refuses all messages
# (Channel: deliver=False); `counters=6` makes 7 its first conn-id and its first
# timestamp.
MEMBER_OPTIONS = {"offset": number, "counters": number, "socket_bytes": number,
                  "receive_budget": number, "receiving": truth}


@does("members")
def members(words: Words) -> Act:
    """`members A B C capacity=10 B.capacity=5 delay=1ms`: start a group; options are
    for all, or for one member. By default windows have 10 places, every message is
    acknowledged at once (NAKACK2: voted), and xmit_interval is 100ms. With
    `stack=nakack2-tcp` the stack is another one than mcast-udp; over TCP, a line that
    loses a datagram does so below the protocol."""
    if words.names:
        raise Mistake("there is a group already")
    while words and "=" not in words.words[0]:
        words.names.append(words.take("a member's name"))
    if len(set(words.names)) != len(words.names) or not words.names or ANY in words.names:
        raise Mistake("every member needs a name of its own")
    names = tuple(words.names)
    options = {"": dict(DEFAULTS)} | {name: {} for name in names}
    for key, value in (words.pairs() if words else {}).items():
        name, _, option = key.rpartition(".")
        options[words.known(name, ("",))][option] = value
    delay = duration(options[""].pop("delay"))
    stack = options[""].pop("stack", "mcast-udp")
    if stack not in NETWORKED:
        raise Mistake(f"there is no stack {stack!r}; there are {', '.join(NETWORKED)}")
    common, *own = (option_values(each, stack) for each in options.values())
    of_all = {key: common.pop(key) for key in MEMBER_OPTIONS if key in common}
    by_name = {name: of_all | each for name, each in zip(names, own, strict=True)}

    def act(play: Play) -> None:
        play.group = ScriptedCluster(names, delay=delay, stack=stack, **common)
        play.member_options = by_name
        for name in names:                      # one by one: so each is older than the next
            play.group.start(name, **by_name[name])
            settle_group(play.group)
        play.group.script.history.clear()
        play.since = play.group.now
        play.counted = {member.incarnation: expectations.counted(member)
                        for member in play.group.living()}
    return act


def option_values(options: dict[str, str], stack: str) -> dict[str, Any]:
    """Return the options without units. Raise ConfigError for a wrong option of the
    stack."""
    values: dict[str, Any] = {key: duration(value) / MS if value.endswith("s") else value
                              for key, value in options.items()}
    configure({key: value for key, value in values.items() if key not in MEMBER_OPTIONS}, stack)
    return {key: MEMBER_OPTIONS[key](value) if key in MEMBER_OPTIONS else value
            for key, value in values.items()}


def settle_group(group: ScriptedCluster) -> None:
    """Run until the group is at rest; then nothing may be owed."""
    group.settle()
    if owed := group.owed():
        raise Unlike(owed)


@does("settle")
def settle(words: Words) -> Act:
    """`settle`: run until nothing happens any more; then all must have everything, and
    every ack must be there."""
    return lambda play: settle_group(play.cluster)


# --- what applications do

@does("send")
def send(words: Words) -> Act:
    """`send A 1..3`: A's application sends these messages, each in a datagram; it waits
    if there is no room."""
    name, seqnos = words.member(), words.seqnos()

    def act(play: Play) -> None:
        member = play.member(name)
        following = (member.last + len(member.producer.multicasts.backlog) + 1) % MODULUS
        if seqnos[0] != following:
            raise Mistake(f"the next message of {name} is {following}")
        member.submit([content(seqno) for seqno in seqnos])
    return act


@expects("try")
def attempt(words: Words) -> Act:
    """`try A 11 -> false`: A's application wants to send message 11, but not to wait
    for room; whether it was sent."""
    name, seqno, _, outcome = words.member(), words.number(), words.literal("->"), words.truth()

    def act(play: Play) -> None:
        member = play.member(name)
        was_sent = member.send(content(seqno)) == 1
        if was_sent and member.last != seqno:
            raise Unlike(f"it was sent as {member.last}")
        play.expect(str(outcome).lower(), str(was_sent).lower())
    return act


@does("hold")
def hold(words: Words) -> Act:
    """`hold B`: from now on B's application takes messages, but finishes none until
    `finish` or `release`."""
    name = words.member()

    def act(play: Play) -> None:
        play.member(name).consumer.finish_after = None
    return act


@does("finish")
def finish(words: Words) -> Act:
    """`finish B A 1..3`: B's application, which holds, has finished these messages of
    A."""
    name, sender, seqnos = words.member(), words.member(), words.seqnos()

    def act(play: Play) -> None:
        batch = next((each for each in outstanding(play.member(name))
                      if each.sender.name == sender), None)
        if batch is None or batch.first != seqnos[0] or precedes(batch.last, seqnos[-1]):
            there = f"{batch.first}..{batch.last}" if batch else "nothing"
            raise Mistake(f"{name}'s application has {there} of {sender} outstanding")
        finished = Batch(batch.sender, batch.first, batch.payloads[:len(seqnos)])
        play.member(name).consumer.finish(finished)
    return act


@does("release")
def release(words: Words) -> Act:
    """`release B`: B's application finishes all that it got, and from now on each
    message at once."""
    name = words.member()

    def act(play: Play) -> None:
        consumer = play.member(name).consumer
        consumer.finish_after = 0
        for batch in (*outstanding(play.member(name)), *consumer.outstanding):
            consumer.finish(batch)
    return act


def outstanding(member: ScriptedMember) -> list[Batch]:
    """Return for each sender the messages to everybody that were delivered to the
    application and that it has not finished."""
    found = []
    for sender, payloads in member.consumer.got.items():
        first = member.consumer.first[sender]
        finished = member.consumer.finished.get(sender.incarnation)
        begin = first if finished is None else later(first, (finished + 1) % MODULUS)
        rest = [payload for payload in payloads[(begin - first) % MODULUS:] if payload is not None]
        if rest:
            found.append(Batch(sender, begin, rest))
    return found


@does("take")
def take(words: Words) -> Act:
    """`take B 0`: from now on B's application takes at most so many messages that it
    has not finished."""
    name, count = words.member(), words.number()

    def act(play: Play) -> None:
        play.member(name).endpoint.max_undelivered = count
        play.member(name).request_turn()
    return act


# --- what happens to members

@does("crash")
def crash(words: Words) -> Act:
    """`crash C`: C dies, and tells nobody."""
    name = words.member()
    return lambda play: play.member(name).crash()


@does("restart")
def restart(words: Words) -> Act:
    """`restart C`: a new incarnation of C, which knows nothing."""
    name = words.member()

    def act(play: Play) -> None:
        if play.member(name).alive:
            raise Mistake(f"{name} is alive; let it crash or leave before")
        play.cluster.start(name, **play.member_options[name])
    return act


@does("leave")
def leave(words: Words) -> Act:
    """`leave C`: C leaves in good order: it waits until what it sent is acknowledged,
    and says goodbye."""
    name = words.member()
    return lambda play: play.member(name).leave()


@does("exclude")
def exclude(words: Words) -> Act:
    """`exclude C by A`: A excludes C from the group, and tells the others."""
    name, _, by = words.member(), words.literal("by"), words.member()
    return lambda play: play.member(by).exclude(name)
