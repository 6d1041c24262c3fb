"""The verbs of one window: a RingBuffer without a group around it."""

from ringcast._core.ring_buffer import RingBuffer
from ringcast._core.window import Window
from ringcast.protocols.seqnos import MODULUS
from ringcast.sim.transcripts.language import (
    Act,
    Mistake,
    Play,
    Unlike,
    Verbs,
    Words,
    collapsed,
    number,
)
from ringcast.sim.transcripts.scripted import spelled

VERBS = Verbs()
does, expects = VERBS.does, VERBS.expects
NEAR = 1_000                    # seqnos on each side of LOW that may be in a window


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
    """`remove [x3] [keep] -> 5..7`: the next in order is removed, three times; with
    `keep` its slot stays filled. Or `-> nothing`."""
    times = number(words.take("x3")[1:]) if words and words.words[0].startswith("x") else 1
    nullify = not words.skip("keep")
    words.literal("->")
    seqnos = words.all_seqnos()

    def act(play: Play) -> None:
        items = [play.window.remove(nullify) for _ in range(times)]
        removed = [item for item in items if item is not None]
        came = [seqno for item in removed for seqno, accepted in play.accepted.items()
                if accepted is item]
        if len(came) < len(removed):
            raise Unlike("an item that was not added before")
        rest = ", then nothing" if removed and None in items else ""
        play.expect(collapsed(seqnos), collapsed(came) + rest)
    return act


@expects("stable")
def stable(words: Words) -> Act:
    """`stable 7 -> 5..7`: all members have the messages up to 7; which of them the
    window frees now. Or `-> nothing`."""
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
    seqno, _, is_there = words.number(), words.literal("->"), words.truth()

    def act(play: Play) -> None:
        item = play.window.get(seqno)
        if item is not None and item is not play.accepted.get(seqno):
            raise Unlike("another message")
        play.expect(str(is_there).lower(), str(item is not None).lower())
    return act


@expects("pointers")
def pointers(words: Words) -> Act:
    """`pointers low=4 hd=4 hr=5`: the window's pointers, some or all of them."""
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
    """Return the pointers of a window."""
    return {"low": str(window.low), "hd": str(window.hd), "hr": str(window.hr)}


def held(window: Window) -> list[int]:
    """Return the seqnos of all filled slots, also of those outside the pointers."""
    near = [(window.low + step) % MODULUS for step in range(-NEAR, min(window.capacity, NEAR) + 1)]
    return [seqno for seqno in near if window.get(seqno) is not None]
