"""Verbs for RingBuffer.txt's own add() and remove(), one access to shared memory a step
(tests/core/text_ring.py), by threads whose steps a transcript puts in order. They stand
apart from the shipped language because what they play is not shipped."""

import sys
from pathlib import Path

from ringcast.sim.transcripts.language import Entry, Mistake, Unlike, collapsed, number

sys.path.insert(0, str(Path(__file__).parents[1] / "core"))

from text_ring import TextRing, Thread  # noqa: E402


class UnguardedRing(TextRing):
    """What the text begins with: add() looks at HD once, then at nothing but the slot,
    in its CAS."""

    def add(self, seqno):
        if seqno <= self.hd:
            return False
        yield "#1 HD read"
        if self.slots[self.slot(seqno)] is not None:
            return False
        self.slots[self.slot(seqno)] = seqno
        yield "#2 CAS"
        self.hr = max(self.hr, seqno)
        return True


def textring(words):
    """`textring [unguarded] capacity=8 hd=4 holds=5`: the text's window, with LOW = HD,
    and a message in it or none."""
    kind = UnguardedRing if words.skip("unguarded") else TextRing
    pairs = {key: number(value) for key, value in words.pairs(("capacity", "hd", "holds")).items()}

    def act(play):
        ring = kind(pairs["capacity"])
        ring.low = ring.hd = ring.hr = pairs.get("hd", 0)
        if "holds" in pairs:
            ring.slots[ring.slot(pairs["holds"])] = ring.hr = pairs["holds"]
        play.notes = {"ring": ring, "threads": {}}
    return act


def begin(words):
    """`begin T1 add 5`: thread T1 calls add(5), and stands before its first access. Or
    `begin T2 remove`."""
    name, call = words.take("a thread's name"), words.take("add or remove")
    if call not in ("add", "remove"):
        raise Mistake(f"expected add or remove, not {call!r}")
    arguments = [words.number()] if call == "add" else []

    def act(play):
        play.notes["threads"][name] = Thread(getattr(play.notes["ring"], call)(*arguments))
    return act


def step(words):
    """`step T1 HD read`: T1 goes on until it has done this."""
    name = words.take("a thread's name")
    wanted, words.words = " ".join(words.words), []

    def act(play):
        call, passed = play.notes["threads"][name].call, []
        for access in call:
            passed.append(access.rpartition("#")[2].lstrip("1234 "))
            if passed[-1] == wanted:
                return
        raise Mistake(f"{name} came to its end; on the way were: {', '.join(passed)}")
    return act


def end(words):
    """`end T1 -> true`: T1 goes on to the end of its call, which returns this: true or
    false, a seqno or nothing."""
    name, _, outcome = words.take("a thread's name"), words.literal("->"), words.take(
        "what it returns")

    def act(play):
        returned = play.notes["threads"].pop(name).finish()
        play.expect(outcome, "nothing" if returned is None else str(returned).lower())
    return act


def textslots(words):
    """`textslots 5`: the messages in the slots of the text's window. Or `textslots
    nothing`."""
    seqnos = words.all_seqnos()
    return lambda play: play.expect(collapsed(seqnos),
                                    collapsed(sorted(slot for slot in play.notes["ring"].slots
                                                     if slot is not None)))


def textpointers(words):
    """`textpointers low=4 hd=5 hr=5`: where the pointers of the text's window are."""
    pairs = words.pairs(("low", "hd", "hr"))

    def act(play):
        actual = {key: str(getattr(play.notes["ring"], key)) for key in ("low", "hd", "hr")}
        if any(actual[key] != value for key, value in pairs.items()):
            raise Unlike(" ".join(f"{key}={value}" for key, value in actual.items()))
    return act


VERBS = {verb.__name__: Entry(verb, verb in (end, textslots, textpointers)) for verb in
         (textring, begin, step, end, textslots, textpointers)}
