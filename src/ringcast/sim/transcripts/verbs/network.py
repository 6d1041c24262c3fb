"""The verbs of the network and of time: datagrams that are lost, late or doubled, links
that are cut, and time that passes."""

import re
from typing import Any

from ringcast.sim.network import MS
from ringcast.sim.transcripts.language import (
    Act,
    Mistake,
    Play,
    Unlike,
    Verbs,
    Words,
    duration,
    number,
)
from ringcast.sim.transcripts.scripted import ANY, Disturbance

VERBS = Verbs()
does, expects = VERBS.does, VERBS.expects
KIND = re.compile(r"(?!x\d+$|always$)[a-z]\w*")     # a kind's name: not a number, not x3 or always


@does("drop")
def drop(words: Words) -> Act:
    """`drop A>B 2 [x3|always]`: the next transmission of message 2 from A to B is lost;
    or the next three, or all until `pass`. Other kinds of datagrams by their names:
    `drop B>A ack`, `drop A>B repeat 2`. Of several seqnos, the next of each. A message
    to one member is named by its seqno in its connection."""
    return disturb(disturbance(words))


@does("delay")
def delay(words: Words) -> Act:
    """`delay A>B 2 50ms`: the next transmission of message 2 from A to B takes so much
    longer. Otherwise like drop."""
    late = duration(words.last("a duration such as 50ms"))
    return disturb(disturbance(words, late=late))


@does("duplicate")
def duplicate(words: Words) -> Act:
    """`duplicate A>B 2 50ms`: the next transmission of message 2 from A to B arrives,
    and a copy arrives so much later."""
    copy = duration(words.last("a duration such as 50ms"))
    return disturb(disturbance(words, copy=copy))


@does("pass")
def let_pass(words: Words) -> Act:
    """`pass A>B`: nothing that goes from A to B is disturbed any more."""
    link = words.link()

    def act(play: Play) -> None:
        before = list(play.cluster.script.disturbances)
        play.cluster.script.disturbances = [each for each in before
                                            if (each.source, each.target) != link]
        if len(before) == len(play.cluster.script.disturbances):
            raise Mistake(f"nothing disturbs {link[0]}>{link[1]}")
    return act


def disturbance(words: Words, **what: int) -> list[dict[str, Any]]:
    """Read A>B, a kind or nothing (messages), seqnos or nothing (any), how often.
    Return the fields of a Disturbance for each seqno."""
    source, target = words.link()
    kind = words.take("a kind") if words and KIND.fullmatch(words.words[0]) else None
    times: int | None = 1
    if words and words.words[-1] == "always":
        words.words.pop()
        times = None
    elif words and words.words[-1].startswith("x"):
        times = number(words.words.pop()[1:])
    seqnos: list[int | None] = [*words.seqnos()] if words or kind is None else [None]
    return [{"source": source, "target": target, "kind": kind, "seqno": seqno, "times": times}
            | what for seqno in seqnos]


def disturb(disturbances: list[dict[str, Any]]) -> Act:
    """Return an act that makes these disturbances happen."""
    def act(play: Play) -> None:
        for each in disturbances:
            play.disturb(Disturbance(**each))
    return act


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
        play.cluster.script.disturbances = []
    return act


@does("run")
def run(words: Words) -> Act:
    """`run 500ms`: let the time pass."""
    nanoseconds = words.duration()
    return lambda play: play.cluster.run(nanoseconds / MS)


@expects("expect")
def expect(words: Words) -> Act:
    """`expect silence 1s`: let the time pass, and nobody sends anything, except
    about views. Or `expect traffic 1s`: somebody does."""
    what = words.take("silence or traffic")
    if what not in ("silence", "traffic"):
        raise Mistake(f"expected silence or traffic, not {what!r}")
    nanoseconds = words.duration()

    def act(play: Play) -> None:
        before = len(play.cluster.script.history)
        play.cluster.run(nanoseconds / MS)
        count = sum(each.is_shown for each in play.cluster.script.history[before:])
        if (count == 0) != (what == "silence"):
            raise Unlike(f"{count} datagrams")
    return act
