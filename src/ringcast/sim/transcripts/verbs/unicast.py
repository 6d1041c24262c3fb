"""The verbs of messages to one member. A>B is what A sends to B: its messages, and both
ends of the connection that they travel on.

A's application numbers its messages to B: 1, 2, 3 and so on, and each message carries
its number. On the first connection the number is also the seqno. The seqnos of a later
connection begin again at 1 (or behind A's offset), and datagrams and windows have only
those.
"""

from collections.abc import Callable

from ringcast._core.batch import Batch
from ringcast.protocols.seqnos import MODULUS
from ringcast.protocols.unicast3.layer import Unicast3
from ringcast.sim.transcripts.language import (
    Act,
    Mistake,
    Play,
    Unlike,
    Verbs,
    Words,
    collapsed,
    facts,
)
from ringcast.sim.transcripts.scripted import spelled

VERBS = Verbs()
does, expects = VERBS.does, VERBS.expects


# --- what applications do

@does("tell")
def tell(words: Words) -> Act:
    """`tell A>B 1..3 [oob]`: A's application sends these messages to B alone, each in a
    datagram; it waits if there is no room."""
    (name, to), numbers, is_oob = words.pair(), words.seqnos(), words.skip("oob")

    def act(play: Play) -> None:
        member, dest = play.member(name), play.member(to).address
        log = play.cluster.unicast_log(member, dest)
        following = (log.base + len(log.sent) + len(log.backlog)) % MODULUS
        if numbers[0] != following:
            raise Mistake(f"the next message of {name} to {to} is {following}")
        member.submit_unicast(dest, numbers, is_oob)
    return act


@does("done")
def done(words: Words) -> Act:
    """`done B A 1..3`: B's application, which holds, has finished these messages of A
    to B alone."""
    name, sender, numbers = words.member(), words.member(), words.seqnos()

    def act(play: Play) -> None:
        member = play.member(name)
        rest, outstanding = list(numbers), list(member.consumer.outstanding)
        for batch in outstanding:
            came = [*map(int, batch.payloads)]
            if (batch.sender == play.member(sender).address and rest
                    and came[:len(rest)] == rest[:len(came)]):
                member.consumer.finish(part := beginning(batch, len(rest)))
                del rest[:len(part)]
        if rest:
            there = [int(payload) for batch in outstanding for payload in batch.payloads]
            raise Mistake(f"{name}'s application has {collapsed(there)} outstanding")
    return act


def beginning(batch: Batch, count: int) -> Batch:
    """Return the first `count` messages of a batch, or the whole batch."""
    return Batch(batch.sender, batch.first, batch.payloads[:count], batch.view_id, batch.dest,
                 batch.flags, batch.stream)


# --- who sees whom

@does("hide")
def hide(words: Words) -> Act:
    """`hide A by B`: B's view lacks A from now on, for messages to one member; nobody
    else's view changes (an asymmetric split)."""
    name, _, by = words.member(), words.literal("by"), words.member()
    return lambda play: play.member(by).hide(name)


@does("show")
def show(words: Words) -> Act:
    """`show A by B`: B's view has A again."""
    name, _, by = words.member(), words.literal("by"), words.member()
    return lambda play: play.member(by).show(name)


# --- what must be so

@expects("told")
def told(words: Words) -> Act:
    """`told B A 1..3`: the messages of A to B alone that B's application got so far, in
    the order of delivery. Or `nothing`."""
    name, sender, numbers = words.member(), words.member(), words.all_seqnos()

    def act(play: Play) -> None:
        received = play.member(name).consumer.unicast_received
        play.expect(collapsed(numbers),
                    collapsed(received.get(play.member(sender).address, [])))
    return act


@expects("waiting")
def waiting(words: Words) -> Act:
    """`waiting A>B 11..12`: these messages of A's application to B wait for room. Or
    `nothing`."""
    (name, to), numbers = words.pair(), words.all_seqnos()

    def act(play: Play) -> None:
        log = play.cluster.unicast_log(play.member(name), play.member(to).address)
        play.expect(collapsed(numbers), collapsed([int(payload) for payload, _ in log.backlog]))
    return act


@expects("refused")
def refused(words: Words) -> Act:
    """`refused A>B 4`: these messages could not be sent, because B is not in A's view,
    or takes none. Or `nothing`."""
    (name, to), numbers = words.pair(), words.all_seqnos()

    def act(play: Play) -> None:
        refused = play.member(name).producer.refused
        play.expect(collapsed(numbers), collapsed(refused.get(play.member(to).address, [])))
    return act


@expects("failed")
def failed(words: Words) -> Act:
    """`failed A>B 2..3`: A's application was told that these messages were not
    acknowledged and never will be. Or `nothing`."""
    (name, to), numbers = words.pair(), words.all_seqnos()

    def act(play: Play) -> None:
        log = play.cluster.unicast_log(play.member(name), play.member(to).address)
        play.expect(collapsed(numbers),
                    collapsed([(log.base + number) % MODULUS for number in sorted(log.failed)]))
    return act


@expects("sender")
def sender(words: Words) -> Act:
    """`sender A>B state=OPEN conn_id=1 ha=45 hs=50`: A's end of its connection to B;
    `timestamp` is the last that it received. Or `sender A>B none`."""
    return end_of(words, ("state", "conn_id", "ha", "hs", "timestamp"), sender_facts, own=True)


@expects("receiver")
def receiver(words: Words) -> Act:
    """`receiver A>B state=OPEN conn_id=1 low=1 hd=1 hr=3 missing=2`: B's end of A's
    connection to it. Or `receiver A>B none`."""
    return end_of(words, ("state", "conn_id", "low", "hd", "hr", "missing"), receiver_facts,
                  own=False)


@expects("remembers")
def remembers(words: Words) -> Act:
    """`remembers A>B conn_id=1 hd=10`: what B remembers of the latest connection of A
    that was closed. Or `remembers A>B none`."""
    return end_of(words, ("conn_id", "hd"), remembered_facts, own=False)


def end_of(words: Words, known: tuple[str, ...],
           facts_of: Callable[[Unicast3, int], dict[str, str]], own: bool) -> Act:
    """Read A>B, and facts or `none`; return an act that compares them with A's end of a
    connection (`own`), or with B's."""
    source, target = words.pair()
    expected = {} if words.skip("none") else words.pairs(known)

    def act(play: Play) -> None:
        at, peer = (source, target) if own else (target, source)
        actual = facts_of(play.member(at).unicast, play.member(peer).incarnation)
        if not expected and actual:
            raise Unlike(f"there is one: {facts(actual)}")
        if expected and not actual:
            raise Unlike("none")
        play.compare(expected, actual)
    return act


def sender_facts(unicast: Unicast3, peer: int) -> dict[str, str]:
    """Return the facts of a member's connection to a peer."""
    entry = unicast.senders.get(peer)
    if entry is None:
        return {}
    last = entry.last_timestamp_received
    return {"state": entry.state.name, "conn_id": str(entry.conn_id),
            "ha": str(entry.highest_acked), "hs": str(entry.highest_sent),
            "timestamp": "none" if last is None else str(last)}


def receiver_facts(unicast: Unicast3, peer: int) -> dict[str, str]:
    """Return the facts of a peer's connection to a member."""
    entry = unicast.receivers.get(peer)
    if entry is None:
        return {}
    ring = entry.ring
    return {"state": entry.state.name, "conn_id": str(entry.conn_id), "low": str(ring.low),
            "hd": str(ring.hd), "hr": str(ring.hr),
            "missing": spelled(ring.missing())}


def remembered_facts(unicast: Unicast3, peer: int) -> dict[str, str]:
    """Return the facts of a peer's connection that was closed."""
    closed = unicast.closed.get(peer)
    if closed is None:
        return {}
    return {"conn_id": str(closed.conn_id), "hd": str(closed.delivered)}
