"""The verbs of NAKACK2 and STABLE, and of the connections below them. A>B names the
connection between A and B."""

from ringcast.protocols.multicast.nakack2 import Nakack2
from ringcast.protocols.multicast.stable import Stable
from ringcast.sim.network import MS
from ringcast.sim.transcripts.language import (
    Act,
    Mistake,
    Play,
    Unlike,
    Verbs,
    Words,
    duration,
    facts,
    number,
)
from ringcast.sim.transcripts.scripted import ScriptedMember

VERBS = Verbs()
does, expects = VERBS.does, VERBS.expects


# --- connections

@does("break")
def break_connection(words: Words) -> Act:
    """`break A>B 30ms [lag 5ms] [unnoticed]`: the connection between A and B breaks;
    what was on its way is lost, and after 30 ms there is a new one. The first of them
    in the list of members knows of the new one at once, the other `lag` later (by
    default the delay of the network). With `unnoticed` A does not notice the break, and
    what it sends until then is lost."""
    (a, b), again = words.pair(), words.duration()
    lag = words.duration() if words.skip("lag") else 0
    is_unnoticed = words.skip("unnoticed")

    def act(play: Play) -> None:
        links = play.cluster.links
        if links is None:
            raise Mistake("this group has no connections; choose a stack over TCP")
        links.sever(a, b, again, lag, {play.member(a).incarnation} if is_unnoticed else set())
    return act


# --- NAKACK2

@does("xmit_interval")
def xmit_interval(words: Words) -> Act:
    """`xmit_interval C 100ms`: from now on; 0 (or less, -1) is no retransmission."""
    name, word = words.member(), words.take("a duration such as 100ms, or 0")
    interval = int(word) if word in ("0", "-1") else duration(word)
    return lambda play: play.member(name).change_interval(interval / MS)


@does("bound")
def bound(words: Words) -> Act:
    """`bound C 50`: C's become_server_queue takes so many messages from now on, also
    where it should be unbounded."""
    name, messages = words.member(), words.number()
    return lambda play: nakack2_of(play, name).queue.rebound(messages)


@expects("queue")
def queue(words: Words) -> Act:
    """`queue C = 50`: how many messages wait in C's become_server_queue."""
    name, _, messages = words.member(), words.literal("="), words.number()
    return lambda play: play.expect(str(messages), str(len(nakack2_of(play, name).queue)))


@expects("warned")
def warned(words: Words) -> Act:
    """`warned C 1`: how many warnings C's operator has got."""
    name, count = words.member(), words.number()
    return lambda play: play.expect(str(count), str(len(play.member(name).warnings)))


# --- STABLE

@expects("stability")
def stability(words: Words) -> Act:
    """`stability B A=3 B=2`: up to which seqno B knows each of these streams to be
    stable in this view. Or `stability B none`: nothing."""
    name = words.member()
    expected = {} if words.skip("none") else words.pairs(tuple(words.names))

    def act(play: Play) -> None:
        known = stable_of(play, name).known
        compare(expected, {play.cluster.incarnations[sender].name: str(seqno)
                           for sender, seqno in known.items()})
    return act


@expects("votes")
def votes(words: Words) -> Act:
    """`votes A of B A=3 B=2`: B's vote at the coordinator A: up to which seqno B has
    finished these streams. Or `votes A of B none`."""
    name, _, of = words.member(), words.literal("of"), words.member()
    expected = {} if words.skip("none") else words.pairs(tuple(words.names))

    def act(play: Play) -> None:
        vote = stable_of(play, name).votes.get(play.member(of).incarnation)
        digest = vote.digest if vote is not None else {}
        compare(expected, {play.cluster.incarnations[sender].name: str(finished)
                           for sender, (finished, _) in digest.items()})
    return act


@expects("slowest")
def slowest(words: Words) -> Act:
    """`slowest A = C`: which member holds A's stream up, as far as A knows. Or `slowest
    A = none`."""
    name, _ = words.member(), words.literal("=")
    expected = "none" if words.skip("none") else words.member()

    def act(play: Play) -> None:
        member = stable_of(play, name).slowest()
        play.expect(expected, play.cluster.incarnations[member].name if member is not None
                    else "none")
    return act


def compare(expected: dict[str, str], actual: dict[str, str]) -> None:
    """Raise Unlike if one of the expected facts is not so, or if none is expected and
    there are some."""
    for value in expected.values():
        number(value)
    if (not expected and actual) or any(actual.get(key) != value
                                        for key, value in expected.items()):
        raise Unlike(facts(actual) or "none")


def nakack2_of(play: Play, name: str) -> Nakack2:
    """Return NAKACK2 of a member."""
    layer = play.member(name).multicast
    if not isinstance(layer, Nakack2):
        raise Mistake("this group's stack has no NAKACK2")
    return layer


def stable_of(play: Play, name: str) -> Stable:
    """Return STABLE of a member."""
    member: ScriptedMember = play.member(name)
    for layer in member.stack.layers:
        if isinstance(layer, Stable):
            return layer
    raise Mistake("this group's stack has no STABLE")
