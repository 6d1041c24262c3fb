"""The verbs of transcripts. Each is a function that reads its words and returns what to
do; its docstring begins with how to write it.

A protocol adds its verbs with the two decorators: `@does` for what happens, `@expects`
for what must be so. A line with an arrow is
both: what stands behind `->` must come out. The verbs of messages to one member are in
verbs/unicast.py, those of NAKACK2, STABLE and connections in verbs/nakack2.py, in the
same table.
"""

import re
from dataclasses import asdict
from typing import Any

from ringcast._core.batch import Batch
from ringcast._core.ring_buffer import RingBuffer
from ringcast._core.window import Window
from ringcast.config import configure
from ringcast.digest import Digest
from ringcast.protocols import unicast3
from ringcast.protocols.multicast import mcast, nakack2, stable as stable_layer
from ringcast.protocols.seqnos import MODULUS, later, precedes
from ringcast.protocols.static_members import HELLO
from ringcast.sim.member import Member
from ringcast.sim.network import MS
from ringcast.sim.transcripts.language import (
    Act,
    Mistake,
    Play,
    Unlike,
    Verbs,
    Words,
    collapsed,
    duration,
    number,
    ranges,
    truth,
)
from ringcast.sim.transcripts.scripted import (
    ANY,
    Rule,
    ScriptedCluster,
    ScriptedMember,
    spelled,
)
from ringcast.sim.transcripts.verbs import nakack2 as verbs_nakack2, unicast as verbs_unicast
from ringcast.stacks import NETWORKED

VERBS = Verbs(verbs_unicast.VERBS | verbs_nakack2.VERBS)
does, expects = VERBS.does, VERBS.expects
KIND = re.compile(r"(?!x\d+$|always$)[a-z]\w*")  # what can be the name of a kind: no number, and
                                                 # not how often
NEAR = 1_000                                     # seqnos around a window that are looked at for
                                                 # what it holds


# --------------------------------------------------------------------------------------- one window

@does("ring")
def ring(words: Words) -> Act:
    """`ring capacity=10 offset=4`: a new RingBuffer whose first seqno is offset + 1."""
    pairs = {key: number(value) for key, value in words.pairs(("capacity", "offset")).items()}
    if "capacity" not in pairs:
        raise Mistake("capacity is missing")

    def act(play: Play) -> None:
        play.ring, play.accepted = RingBuffer(**pairs), {}
    return act


@expects("add")
def add(words: Words) -> Act:
    """`add 5..7 -> true`: each of these is received, as an item of its own; whether
    each was taken."""
    seqnos, _, outcome = words.seqnos(), words.literal("->"), words.truth()

    def act(play: Play) -> None:
        for seqno in seqnos:
            item = object()
            if play.window.add(seqno, item) != outcome:
                raise Unlike(f"{str(not outcome).lower()} for {seqno}")
            if outcome:
                play.accepted[seqno] = item
    return act


@expects("remove")
def remove(words: Words) -> Act:
    """`remove [x3] [keep] -> 5..7`: the next in order is taken out, three times; with
    `keep` its slot stays filled. Or `-> nothing`."""
    times = number(words.take("x3")[1:]) if words and words.words[0].startswith("x") else 1
    nullify = not words.skip("keep")
    words.literal("->")
    seqnos = words.all_seqnos()

    def act(play: Play) -> None:
        items = [play.window.remove(nullify) for _ in range(times)]
        taken = [item for item in items if item is not None]
        came = [seqno for item in taken for seqno, accepted in play.accepted.items()
                if accepted is item]
        if len(came) < len(taken):
            raise Unlike("an item that was not taken before")
        play.expect(collapsed(seqnos), collapsed(came) + (", then nothing" if taken
                                                          and None in items else ""))
    return act


@expects("stable")
def stable(words: Words) -> Act:
    """`stable 7 -> 5..7`: all members have the messages up to 7; those that were given
    up now. Or `-> nothing`."""
    seqno, _, freed = words.number(), words.literal("->"), words.all_seqnos()

    def act(play: Play) -> None:
        low = play.window.low
        count = play.window.stable(seqno)
        play.expect(collapsed(freed),
                    collapsed([(low + step) % MODULUS for step in range(1, count + 1)]))
    return act


@expects("get")
def get(words: Words) -> Act:
    """`get 5 -> true`: whether the window has message 5, to answer a request for it."""
    seqno, _, there = words.number(), words.literal("->"), words.truth()

    def act(play: Play) -> None:
        item = play.window.get(seqno)
        if item is not None and item is not play.accepted.get(seqno):
            raise Unlike("another message")
        play.expect(str(there).lower(), str(item is not None).lower())
    return act


@expects("pointers")
def pointers(words: Words) -> Act:
    """`pointers low=4 hd=4 hr=5`: where the window's pointers are; some of them, or
    all."""
    pairs = words.pairs(("low", "hd", "hr"))
    return lambda play: play.compare(pairs, pointers_of(play.window))


@expects("missing")
def missing(words: Words) -> Act:
    """`missing 6 9..10`: the gaps in the window. Or `missing nothing`."""
    seqnos = words.all_seqnos()
    return lambda play: play.expect(collapsed(seqnos), spelled(play.window.missing()))


@expects("holds")
def holds(words: Words) -> Act:
    """`holds 5..6 8`: which slots of the window are filled. Or `holds nothing`."""
    seqnos = words.all_seqnos()
    return lambda play: play.expect(collapsed(seqnos), collapsed(held(play.window)))


def pointers_of(window: Window) -> dict[str, str]:
    return {"low": str(window.low), "hd": str(window.hd), "hr": str(window.hr)}


def held(window: Window) -> list[int]:
    """The seqnos of filled slots, whatever the pointers say."""
    near = [(window.low + step) % MODULUS for step in range(-NEAR, min(window.capacity, NEAR) + 1)]
    return [seqno for seqno in near if window.get(seqno) is not None]


# ---------------------------------------------------------------------------------------- the group

# Options of a member that are not the stack's: `receiving=false` refuses all messages
# (Channel: deliver=False), `counters=6` makes 7 its first conn-id and its first
# timestamp.
MEMBER_OPTIONS = {"offset": number, "counters": number, "socket_bytes": number,
                  "receive_budget": number, "receiving": truth}


@does("members")
def members(words: Words) -> Act:
    """`members A B C capacity=10 B.capacity=5 delay=1ms`: a group, started; options are
    for all, or for one member. Unless other values are given, windows have 10 places,
    every message is acknowledged at once (NAKACK2: voted), and xmit_interval is 100ms.
    `stack=nakack2-tcp` is another stack than mcast-udp; over TCP, a rule that loses
    something does so below the protocol."""
    if words.names:
        raise Mistake("there is a group already")
    while words and "=" not in words.words[0]:
        words.names.append(words.take("a member's name"))
    if len(set(words.names)) != len(words.names) or not words.names or ANY in words.names:
        raise Mistake("every member needs a name of its own")
    names = tuple(words.names)
    options = {"": {"capacity": "10", "ack_threshold": "1", "xmit_interval": "100ms", "delay": "1ms"}} | {name: {} for name in names}
    for key, value in (words.pairs() if words else {}).items():
        name, _, option = key.rpartition(".")
        options[words.known(name, ("",))][option] = value
    delay = duration(options[""].pop("delay"))
    stack = options[""].pop("stack", "mcast-udp")
    if stack not in NETWORKED:
        raise Mistake(f"there is no stack {stack!r}; there are {', '.join(NETWORKED)}")
    common, *own = (option_values(each, stack) for each in options.values())
    of_all = {key: common.pop(key) for key in MEMBER_OPTIONS if key in common}
    incarnations = {name: of_all | each for name, each in zip(names, own, strict=True)}

    def act(play: Play) -> None:
        play.group = ScriptedCluster(names, delay=delay, stack=stack, **common)
        play.member_options_by_name = incarnations
        for name in names:
            play.group.start(name, **incarnations[name])
        settle_group(play.group)
        play.group.script.history.clear()
        play.since = play.group.now
        play.counted = {member.incarnation: counted(member) for member in play.group.living()}
    return act


def option_values(options: dict[str, str], stack: str) -> dict[str, Any]:
    """Options with their units taken off; those of the stack are checked by its own
    rules."""
    values: dict[str, Any] = {key: duration(value) / MS if value.endswith("s") else value for key,
                              value in options.items()}
    configure({key: value for key, value in values.items() if key not in MEMBER_OPTIONS}, stack)
    return {key: MEMBER_OPTIONS[key](value) if key in MEMBER_OPTIONS else value for key,
            value in values.items()}


def settle_group(group: ScriptedCluster) -> None:
    group.settle()
    if owed := group.owed():
        raise Unlike(owed)


# --- what applications do

@does("send")
def send(words: Words) -> Act:
    """`send A 1..3`: A's application sends these messages, each in a datagram; it waits
    when there is no room."""
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
        sent = member.send(content(seqno)) == 1
        if sent and member.last != seqno:
            raise Unlike(f"it was sent as {member.last}")
        play.expect(str(outcome).lower(), str(sent).lower())
    return act


@does("hold")
def hold(words: Words) -> Act:
    """`hold B`: from now on B's application takes messages, but is not finished with
    any until `finish` or `release`."""
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
        outstanding = {address.name: batch for address,
                       batch in in_hands(play.member(name)).items()}
        batch = outstanding.get(sender)
        if batch is None or batch.first != seqnos[0] or precedes(batch.last, seqnos[-1]):
            there = f"{batch.first}..{batch.last}" if batch else "nothing"
            raise Mistake(f"{name}'s application has {there} of {sender} in hand")
        play.member(name).consumer.finish(Batch(batch.sender, batch.first, batch.payloads[:len(seqnos)]))
    return act


@does("release")
def release(words: Words) -> Act:
    """`release B`: B's application finishes all it has in hand, and from now on each
    message at once."""
    name = words.member()

    def act(play: Play) -> None:
        play.member(name).consumer.finish_after = 0
        for batch in (*in_hands(play.member(name)).values(), *play.member(name).consumer.outstanding):
            play.member(name).consumer.finish(batch)
    return act


def in_hands(member: ScriptedMember) -> dict[Any, Batch]:
    """Of each sender, what the application was handed and has not finished."""
    found = {}
    for sender, payloads in member.consumer.got.items():
        first = member.consumer.first[sender]
        finished = member.consumer.finished.get(sender.incarnation)
        after = first if finished is None else later(first, (finished + 1) % MODULUS)
        rest = [payload for payload in payloads[(after - first) % MODULUS:] if payload is not None]
        if rest:
            found[sender] = Batch(sender, after, rest)
    return found


def content(seqno: int) -> bytes:
    """What a message carries: its own number."""
    return b"%d" % seqno


@does("take")
def take(words: Words) -> Act:
    """`take B 0`: from now on B's application has at most so many messages in hand."""
    name, count = words.member(), words.number()

    def act(play: Play) -> None:
        play.member(name).endpoint.max_undelivered = count
        play.member(name).request_turn()
    return act


# --- what happens to members

@does("crash")
def crash(words: Words) -> Act:
    """`crash C`: C is gone, without a word."""
    name = words.member()
    return lambda play: play.member(name).crash()


@does("restart")
def restart(words: Words) -> Act:
    """`restart C [digest A=10 B=3]`: a new incarnation of C, which knows nothing, or
    has a digest of what it already got."""
    name = words.member()
    digest = {}
    if words.skip("digest"):
        digest = {sender: number(seqno) for sender,
                  seqno in words.pairs(tuple(words.names)).items()}

    def act(play: Play) -> None:
        if play.member(name).alive:
            raise Mistake(f"{name} is alive; let it crash or leave before")
        resume = Digest({play.member(sender).address: seqno for sender, seqno in digest.items()})
        play.cluster.start(name, resume=resume, **play.member_options_by_name[name])
    return act


@does("leave")
def leave(words: Words) -> Act:
    """`leave C`: C goes in good order: it waits until what it sent is acknowledged, and
    says goodbye."""
    name = words.member()
    return lambda play: play.member(name).leave()


@does("exclude")
def exclude(words: Words) -> Act:
    """`exclude C by A`: A takes C out of the group, and tells the others."""
    name, _, by = words.member(), words.literal("by"), words.member()
    return lambda play: play.member(by).exclude(name)


# --- what happens on the network

@does("drop")
def drop(words: Words) -> Act:
    """`drop A>B 2 [x3|always]`: the next transmission of message 2 from A to B is lost;
    or the next three, or all until `pass`. Other kinds of datagrams by their names:
    `drop B>A ack`, `drop A>B repeat 2`. Of several seqnos, the next of each. A message
    to one member is named by its seqno in its connection."""
    rules = disturbance(words)
    words.end()
    return lambda play: disturb(play, rules)


@does("delay")
def delay(words: Words) -> Act:
    """`delay A>B 2 50ms`: the next transmission of message 2 from A to B takes so much
    longer. Otherwise like drop."""
    by = duration(words.last("a duration such as 50ms"))
    rules = disturbance(words, late=by)
    return lambda play: disturb(play, rules)


@does("duplicate")
def duplicate(words: Words) -> Act:
    """`duplicate A>B 2 50ms`: the next transmission of message 2 from A to B arrives,
    and once more so much later."""
    by = duration(words.last("a duration such as 50ms"))
    rules = disturbance(words, copy=by)
    return lambda play: disturb(play, rules)


@does("pass")
def let_pass(words: Words) -> Act:
    """`pass A>B`: nothing that goes from A to B is disturbed any more."""
    source, target = words.link()

    def act(play: Play) -> None:
        before = list(play.cluster.script.rules)
        play.cluster.script.rules = [rule for rule in before
                                     if (rule.source, rule.target) != (source, target)]
        if len(before) == len(play.cluster.script.rules):
            raise Mistake(f"nothing disturbs {source}>{target}")
    return act


def disturbance(words: Words, late: int | None = None, copy: int | None = None) -> list[dict[str,
                                                                                             Any]]:
    """A>B, a kind or nothing (messages), seqnos or nothing (any), how often."""
    source, target = words.link()
    kind = words.take("a kind") if words and KIND.fullmatch(words.words[0]) else None
    times: int | None = 1
    if words and words.words[-1] == "always":
        words.words.pop()
        times = None
    elif words and words.words[-1].startswith("x"):
        times = number(words.words.pop()[1:])
    seqnos: list[int | None] = [*words.seqnos()] if words or kind is None else [None]
    return [{"source": source, "target": target, "kind": kind, "seqno": seqno, "times": times,
             "late": late, "copy": copy}
            for seqno in seqnos]


def disturb(play: Play, rules: list[dict[str, Any]]) -> None:
    for rule in rules:
        play.disturb(Rule(**rule))


@does("cut")
def cut(words: Words) -> Act:
    """`cut A>B`: nothing that is sent from A to B arrives, until `heal`."""
    source, target = words.link()

    def act(play: Play) -> None:
        names = play.cluster.names
        play.cluster.script.cut |= {(one, other) for one in names for other in names
                                    if one != other and source in (ANY, one)
                                    and target in (ANY, other)}
        if play.cluster.links is not None:
            play.cluster.links.break_all_cut()
    return act


@does("heal")
def heal(words: Words) -> Act:
    """`heal`: the network is whole again."""
    def act(play: Play) -> None:
        play.cluster.script.heal()
        play.cluster.script.rules = []
    return act


# --- time

@does("run")
def run(words: Words) -> Act:
    """`run 500ms`: let the time pass."""
    nanoseconds = words.duration()
    return lambda play: play.cluster.run(nanoseconds / MS)


@does("settle")
def settle(words: Words) -> Act:
    """`settle`: run until nothing happens any more; then all must have everything, and
    every ack must be there."""
    return lambda play: settle_group(play.cluster)


# --- what must be so

@expects("delivered")
def delivered(words: Words) -> Act:
    """`delivered B A 1..3`: B's application got these messages of A so far, in this
    order, and nothing else. Or `nothing`."""
    name, sender, seqnos = words.member(), words.member(), words.all_seqnos()

    def act(play: Play) -> None:
        address = play.member(sender).address
        first, got = play.member(name).consumer.first.get(address, 0), play.member(name).consumer.got.get(address, [])
        came = [(first + step) % MODULUS for step in range(len(got))]
        if got != [content(seqno) for seqno in came]:
            raise Unlike(f"{collapsed(came)} with other contents")
        play.expect(collapsed(seqnos), collapsed(came))
    return act


@expects("windows")
def windows(words: Words) -> Act:
    """`windows B of A low=1 hd=1 hr=3 missing=2`: B's window for what A sends (`of A`
    may be left out when there is no other). `windows A of A` is A's send window. Or
    `windows B of A none`: there is no such window."""
    name = words.member()
    sender = words.member() if words.skip("of") else None
    expected = {} if words.skip("none") else words.pairs(("low", "hd", "hr", "missing",
                                                          "max_bytes"))

    def act(play: Play) -> None:
        window = window_of(play, name, sender)
        if not expected or window is None:
            if expected or window is not None:
                raise Unlike("none" if window is None else "there is one")
            return
        gaps = spelled(window.missing())
        wanted = {key: spelled(ranges(value)) if key == "missing" else value for key,
                  value in expected.items()}
        play.compare(wanted, pointers_of(window) | {"missing": gaps,
                                                    "max_bytes": str(window.max_bytes)})
    return act


def window_of(play: Play, name: str, sender: str | None) -> Window | None:
    layer = play.member(name).multicast
    if sender == name:
        return layer.send_window.ring
    if sender is not None:
        receiving = layer.windows.get(play.member(sender).incarnation)
        return receiving.ring if receiving else None
    if len(layer.windows) != 1:
        raise Mistake(f"{name} has {len(layer.windows)} windows; say whose: `windows {name} of ...`")
    return next(iter(layer.windows.values())).ring


@expects("kept")
def kept(words: Words) -> Act:
    """`kept A [of B] 4..6`: what A's send window holds, to repeat it on request; or A's
    window for what B sends. Or `nothing`."""
    name = words.member()
    sender = words.member() if words.skip("of") else name
    seqnos = words.all_seqnos()

    def act(play: Play) -> None:
        window = window_of(play, name, sender)
        play.expect(collapsed(seqnos), collapsed(held(window)) if window is not None
                    else "no window")
    return act


@expects("blocked")
def blocked(words: Words) -> Act:
    """`blocked A 11..12`: these messages of A's application wait for room. Or `blocked
    A nothing`."""
    name, seqnos = words.member(), words.all_seqnos()
    return lambda play: play.expect(collapsed(seqnos),
                                    collapsed([int(payload)
                                               for payload in play.member(name).producer.multicasts.backlog]))


@expects("acks")
def acks(words: Words) -> Act:
    """`acks A B=3 C=2 min=2`: A's ack-map, all but A's own entry, which may be given as
    well; and its minimum."""
    name, expected = words.member(), words.pairs((*words.names, "min"))
    for value in expected.values():
        number(value)

    def act(play: Play) -> None:
        layer = play.member(name).multicast
        if not isinstance(layer, mcast.Mcast):
            raise Mistake("only MCAST has acks; with NAKACK2, STABLE has votes")
        table = layer.acks
        actual = {member.name: str(table.get(incarnation)) for incarnation,
                  member in play.cluster.incarnations.items() if incarnation in table}
        actual = {key: value for key, value in actual.items() if key != name or key in expected} | {
            "min": str(table.minimum)}
        if any(expected.get(key) != value for key, value in actual.items() if key != "min") or expected.keys() - actual.keys():
            raise Unlike(" ".join(f"{key}={value}" for key, value in actual.items()))
        play.compare(expected, actual)
    return act


@expects("view")
def view(words: Words) -> Act:
    """`view A = A B`: the members of A's view."""
    name, _ = words.member(), words.literal("=")
    names = [words.member()]
    while words:
        names.append(words.member())

    def act(play: Play) -> None:
        views = play.member(name).views
        play.expect(" ".join(names), " ".join(views[-1].names) if views else "none")
    return act


@does("watch")
def watch(words: Words) -> Act:
    """`watch`: `sent` tells from here."""
    def act(play: Play) -> None:
        play.watched = len(play.cluster.script.history)
    return act


@expects("sent")
def sent(words: Words) -> Act:
    """`sent B>A xmit_req 2 5..6`: the datagrams of this kind that B sent to A alone
    (A>*: to everybody) since the beginning, or since `watch`: these, in this order, one
    word for each; one that asks for 2 and 5..6 is `2,5..6`. Or `nothing`. A message
    counts by its seqno, `send_first_seqno` and `close` by the conn-id that they are
    about."""
    source, target = words.link()
    kind = words.take("a kind")
    if kind == HELLO.name:
        raise Mistake("a transcript says nothing of HELLOs")
    datagrams = [spelled(ranges(words.take("seqnos, or `nothing`")))]
    while words:
        datagrams.append(spelled(ranges(words.take("seqnos"))))

    def act(play: Play) -> None:
        if kind not in play.cluster.kinds():
            raise Mistake(f"no member's stack has a kind {kind!r}; there are {', '.join(sorted(play.cluster.kinds()))}")
        history = play.cluster.script.history[play.watched:]
        found = [spelled(each.ranges) for each in history
                 if (each.source, each.dest, each.kind.name) == (source, target, kind)]
        play.expect(" ".join(datagrams), " ".join(found) or "nothing")
    return act


@expects("counters")
def counters(words: Words) -> Act:
    """`counters B num_duplicates=1 num_out_of_window=2`: what B's stack has counted
    since the group was ready; some of it."""
    name, expected = words.member(), words.pairs(COUNTERS)

    def act(play: Play) -> None:
        member = play.member(name)
        actual, before = counted(member), play.counted.get(member.incarnation, {})
        if strangers := expected.keys() - actual.keys():
            raise Mistake(f"the stack of this group does not count {', '.join(sorted(strangers))}")
        play.compare(expected, {key: str(actual[key] - before.get(key, 0)) for key in expected})
    return act


COUNTERS = tuple(dict.fromkeys(name for each in (mcast, nakack2, stable_layer, unicast3.context)
                               for name in asdict(each.Counters())))


def counted(member: Member) -> dict[str, int]:
    stable = next((asdict(layer.counters) for layer in member.stack.layers if isinstance(layer, stable_layer.Stable)), {})
    return asdict(member.multicast.counters) | asdict(member.unicast.counters) | stable


@expects("expect")
def expect(words: Words) -> Act:
    """`expect silence 1s`: let the time pass, in which nobody sends anything. Or
    `expect traffic 1s`: somebody does."""
    what = words.take("silence or traffic")
    if what not in ("silence", "traffic"):
        raise Mistake(f"expected silence or traffic, not {what!r}")
    nanoseconds = words.duration()

    def act(play: Play) -> None:
        before = len(play.cluster.script.history)
        play.cluster.run(nanoseconds / MS)
        count = len(play.cluster.script.history) - before
        if (count == 0) != (what == "silence"):
            raise Unlike(f"{count} datagrams")
    return act
