"""The verbs that say what must be so in a group: deliveries, windows, acks, views,
datagrams, counters."""

from ringcast._core.window import Window
from ringcast.protocols.membership.layer import Membership
from ringcast.protocols.multicast import mcast
from ringcast.protocols.seqnos import MODULUS
from ringcast.sim.member import Member
from ringcast.sim.transcripts.language import (
    Act,
    Mistake,
    Play,
    Unlike,
    Verbs,
    Words,
    collapsed,
    content,
    facts,
    number,
    ranges,
)
from ringcast.sim.transcripts.scripted import spelled
from ringcast.sim.transcripts.verbs.window import held, pointers_of
from ringcast.status import McastStatus, Nakack2Status, StableStatus, UnicastStatus, counts, numbers

VERBS = Verbs()
does, expects = VERBS.does, VERBS.expects
LAYERS = (McastStatus, Nakack2Status, StableStatus, UnicastStatus)
COUNTERS = tuple(dict.fromkeys(name for each in LAYERS for name, number in numbers(each).items()
                               if not number.falls))


@expects("delivered")
def delivered(words: Words) -> Act:
    """`delivered B A 1..3`: B's application got these messages of A so far, in this
    order, and nothing else. Or `nothing`."""
    name, sender, seqnos = words.member(), words.member(), words.all_seqnos()

    def act(play: Play) -> None:
        address, consumer = play.member(sender).address, play.member(name).consumer
        first, got = consumer.first.get(address, 0), consumer.got.get(address, [])
        came = [(first + step) % MODULUS for step in range(len(got))]
        if got != [content(seqno) for seqno in came]:
            raise Unlike(f"{collapsed(came)} with other contents")
        play.expect(collapsed(seqnos), collapsed(came))
    return act


@expects("windows")
def windows(words: Words) -> Act:
    """`windows B of A low=1 hd=1 hr=3 missing=2`: B's window for what A sends (`of A`
    may be left out if there is no other). `windows A of A` is A's send window. Or
    `windows B of A none`: there is no such window."""
    name = words.member()
    sender = words.member() if words.skip("of") else None
    expected = {} if words.skip("none") else words.pairs(("low", "hd", "hr", "missing",
                                                          "max_bytes"))
    if "missing" in expected:
        expected["missing"] = spelled(ranges(expected["missing"]))

    def act(play: Play) -> None:
        window = window_of(play, name, sender)
        if not expected or window is None:
            if expected or window is not None:
                raise Unlike("none" if window is None else "there is one")
            return
        play.compare(expected, pointers_of(window) | {"missing": spelled(window.missing()),
                                                      "max_bytes": str(window.max_bytes)})
    return act


def window_of(play: Play, name: str, sender: str | None) -> Window | None:
    """Return a member's window for a sender, or its only window; None if there is
    none."""
    layer = play.member(name).multicast
    if sender == name:
        return layer.send_window.ring
    if sender is not None:
        window = layer.windows.get(play.member(sender).incarnation)
        return window.ring if window else None
    if len(layer.windows) != 1:
        raise Mistake(f"{name} has {len(layer.windows)} windows; name the sender: "
                      f"`windows {name} of ...`")
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

    def act(play: Play) -> None:
        backlog = play.member(name).producer.multicasts.backlog
        play.expect(collapsed(seqnos), collapsed([*map(int, backlog)]))
    return act


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
        actual = {member.name: str(table.get(incarnation)) for incarnation, member
                  in play.cluster.incarnations.items() if incarnation in table}
        if name not in expected:
            actual.pop(name, None)
        actual["min"] = str(table.minimum)
        if actual.keys() - expected.keys() - {"min"} or expected.keys() - actual.keys():
            raise Unlike(facts(actual))
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
    """`watch`: `sent` counts from here."""
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
    if kind in {each.name for each in Membership.kinds}:
        raise Mistake("a transcript cannot expect what members say about views")
    datagrams = [spelled(ranges(words.take("seqnos, or `nothing`")))]
    while words:
        datagrams.append(spelled(ranges(words.take("seqnos"))))

    def act(play: Play) -> None:
        if kind not in (kinds := play.cluster.kinds()):
            raise Mistake(f"no member's stack has a kind {kind!r}; there are "
                          f"{', '.join(sorted(kinds))}")
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


def counted(member: Member) -> dict[str, int]:
    """Return the counters of a member's layers."""
    status = member.stack.status()
    return counts(status.multicast, status.unicast, *filter(None, [status.stable]))
