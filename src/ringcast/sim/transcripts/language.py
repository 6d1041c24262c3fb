"""The language of transcripts: a protocol text as a play that runs. Each line is a verb
and its words; `#` begins a comment.

    members A B C capacity=10   # start a group of shipped stacks
    drop A>B 2                  # lose the next transmission of message 2 from A to B
    send A 1..3                 # message n carries the number n: contents are checked
    run 10ms
    delivered B A 1             # B's application got this from A so far, nothing else
    windows B of A low=1 hd=1 hr=3

A datagram takes 1 ms and arrives, unless the script says otherwise. Some lines do
something, and some say what must be so; some do both: `add 5 -> true`. A line that
cannot be understood raises Mistake before anything runs. A line that is not so raises
Mismatch, which shows what was so instead, and the last datagrams. The checkers of the
simulation run after every turn.

A verb is one function in a table (verbs/): it reads its words and returns what to do.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ringcast._core.ring_buffer import RingBuffer
from ringcast.errors import ConfigError
from ringcast.protocols.seqnos import MODULUS, Range, is_seqno
from ringcast.sim.checkers import Violation
from ringcast.sim.transcripts.scripted import Disturbance, ScriptedCluster, ScriptedMember, spelled
from ringcast.units import parse_duration

MOST = 100_000              # seqnos in a range: a mistyped one must not take for ever
SHOWN = 24                  # datagrams of the history that a Mismatch shows


class Mistake(ValueError):
    """A line cannot be understood, or asks for what cannot be. The message names the
    file and the line."""


class Mismatch(AssertionError):
    """A line is not so. The message says what is so instead."""


class Unlike(Exception):
    """Raised by an act of a line: this is so instead."""


class Play:
    """A transcript that runs: its group or its window, and what the verbs remember."""

    def __init__(self) -> None:
        self.group: ScriptedCluster | None = None
        self.member_options: dict[str, dict[str, Any]] = {}     # by the name of the member
        self.since = 0                                  # when the group was ready
        self.counted: dict[int, dict[str, int]] = {}    # each member's counters at that time
        self.watched = 0                                # datagrams of the history before `watch`
        self.ring: RingBuffer | None = None
        self.accepted: dict[int, object] = {}           # the items that the ring took
        self.step: Step | None = None                   # the line that is being played
        self.disturbances: list[tuple[Step, Disturbance]] = []  # with the lines that ask for them
        self.notes: dict[str, Any] = {}                 # for verbs of other tables

    @property
    def cluster(self) -> ScriptedCluster:
        """The group; Mistake before there is one."""
        if self.group is None:
            raise Mistake("there is no group yet; write a line `members A B` before")
        return self.group

    @property
    def window(self) -> RingBuffer:
        """The window; Mistake before there is one."""
        if self.ring is None:
            raise Mistake("there is no window yet; write a line `ring capacity=10` before")
        return self.ring

    def member(self, name: str) -> ScriptedMember:
        """Return the present incarnation of a member."""
        member = self.cluster[name]
        assert isinstance(member, ScriptedMember)
        return member

    def disturb(self, disturbance: Disturbance) -> None:
        """Disturb datagrams from now on."""
        assert self.step is not None
        self.cluster.script.disturbances.append(disturbance)
        self.disturbances.append((self.step, disturbance))

    def expect(self, expected: str, actual: str) -> None:
        """Raise Unlike if the two differ; both are as a transcript writes them."""
        if expected != actual:
            raise Unlike(actual)

    def compare(self, expected: dict[str, str], actual: dict[str, str]) -> None:
        """Raise Unlike if one of the expected facts is not so."""
        if any(actual.get(key) != value for key, value in expected.items()):
            raise Unlike(facts(actual))

    def history(self) -> str:
        """Return the last datagrams, one a line, in milliseconds since the group was
        ready."""
        if self.group is None:
            return ""
        sent = [each for each in self.group.script.history if each.is_shown]
        lines = [f"  {(each.time - self.since) / 1e6:10.3f} ms  {each}" for each in sent[-SHOWN:]]
        now = (self.group.now - self.since) / 1e6
        return "\n".join([f"  at {now:g} ms, after these datagrams:", *lines])


Act = Callable[[Play], None]


class Words:
    """The words of a line behind its verb. Each method takes the next one, or several,
    and raises Mistake if they are not what it expects."""

    def __init__(self, words: list[str], names: list[str]) -> None:
        self.words = words
        self.names = names                          # of the members, so far

    def __bool__(self) -> bool:
        return bool(self.words)

    def take(self, expected: str) -> str:
        """Take the next word; `expected` says what it should be."""
        if not self.words:
            raise Mistake(f"{expected} is missing at the end")
        return self.words.pop(0)

    def end(self) -> None:
        """Check that no word is left."""
        if self.words:
            raise Mistake(f"{' '.join(self.words)!r} is too much")

    def last(self, expected: str) -> str:
        """Take the last word of the line."""
        if not self.words:
            raise Mistake(f"{expected} is missing at the end")
        return self.words.pop()

    def literal(self, word: str) -> str:
        """Take this word."""
        if (found := self.take(repr(word))) != word:
            raise Mistake(f"expected {word!r}, not {found!r}")
        return word

    def skip(self, word: str) -> bool:
        """Take this word if it is the next one; return whether it was."""
        return bool(self.words) and self.words[0] == word and self.words.pop(0) == word

    def member(self) -> str:
        """Take the name of a member."""
        return self.known(self.take("a member's name"))

    def known(self, name: str, others: tuple[str, ...] = ()) -> str:
        """Check that there is such a member, or that it is one of `others`."""
        if name not in self.names and name not in others:
            there = (f"the members are {', '.join(self.names)}" if self.names
                     else "write a line `members A B` before")
            raise Mistake(f"there is no member {name!r}; {there}")
        return name

    def link(self) -> tuple[str, str]:
        """Take A>B, where either side may be * for any member."""
        word = self.take("a link such as A>B")
        source, arrow, target = word.partition(">")
        if not arrow:
            raise Mistake(f"expected a link such as A>B, not {word!r}")
        return self.known(source, ("*",)), self.known(target, ("*",))

    def pair(self) -> tuple[str, str]:
        """Take A>B, where both are members."""
        source, target = self.link()
        return self.known(source), self.known(target)

    def number(self) -> int:
        """Take a number."""
        return number(self.take("a number"))

    def duration(self) -> int:
        """Take a duration; return nanoseconds."""
        return duration(self.take("a duration such as 500ms"))

    def seqnos(self) -> list[int]:
        """Take one word with seqnos."""
        return expanded(ranges(self.take("seqnos such as 1..3")))

    def all_seqnos(self) -> list[int]:
        """Take the rest of the line: seqnos and ranges of them, or `nothing`."""
        found = expanded(ranges(self.take("seqnos such as 1..3, or `nothing`")))
        while self.words:
            found += self.seqnos()
        return found

    def truth(self) -> bool:
        """Take true or false."""
        return truth(self.take("true or false"))

    def pairs(self, known: tuple[str, ...] = ()) -> dict[str, str]:
        """Take the rest of the line: key=value, at least once. `known` lists the
        possible keys; without it all are possible."""
        pairs: dict[str, str] = {}
        while self.words or not pairs:
            key, equals, value = (word := self.take("key=value")).partition("=")
            if not equals or not value:
                raise Mistake(f"expected key=value, not {word!r}")
            if key in pairs:
                raise Mistake(f"{key} is there twice")
            if known and key not in known:
                raise Mistake(f"there is no {key!r} here; there are {', '.join(known)}")
            pairs[key] = value
        return pairs


def number(word: str) -> int:
    """Return the number that a word is."""
    if not re.fullmatch(r"\d+", word):
        raise Mistake(f"expected a number, not {word!r}")
    return int(word)


def truth(word: str) -> bool:
    """Return whether a word is true, not false."""
    if word not in ("true", "false"):
        raise Mistake(f"expected true or false, not {word!r}")
    return word == "true"


def duration(word: str) -> int:
    """Return the nanoseconds of a word such as 500ms."""
    nanoseconds = parse_duration(word, fractions=True)
    if nanoseconds is None:
        raise Mistake(f"expected a duration such as 500ms, not {word!r}")
    return nanoseconds


def ranges(word: str) -> list[Range]:
    """Return the ranges of a word such as 2,5..7, or none for `nothing`."""
    return [] if word == "nothing" else [seqno_range(part) for part in word.split(",")]


def seqno_range(word: str) -> Range:
    """Return the first and the last seqno of 5..7, or of 2."""
    match = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", word)
    if not match:
        raise Mistake(f"expected seqnos such as 1..3 or 2,5..7, not {word!r}")
    first, last = int(match[1]), int(match[2] or match[1])
    if not is_seqno(first) or not is_seqno(last):
        raise Mistake(f"{word} is no seqno: they have 64 bits")
    if (last - first) % MODULUS >= MOST:
        raise Mistake(f"{word} is too long or ends before it begins; a range has at most {MOST} "
                      "seqnos")
    return first, last


def expanded(ranges: list[Range]) -> list[int]:
    """Return all seqnos of ranges."""
    return [(first + step) % MODULUS for first, last in ranges
            for step in range((last - first) % MODULUS + 1)]


def collapsed(seqnos: list[int]) -> str:
    """Return seqnos as a transcript writes them, in their order: 1..3,7"""
    found: list[Range] = []
    for seqno in seqnos:
        if found and (found[-1][1] + 1) % MODULUS == seqno:
            found[-1] = (found[-1][0], seqno)
        else:
            found.append((seqno, seqno))
    return spelled(found)


def facts(pairs: Mapping[str, str]) -> str:
    """Return facts as a transcript writes them: low=1 hd=3"""
    return " ".join(f"{key}={value}" for key, value in pairs.items())


def content(seqno: int) -> bytes:
    """Return what a message carries: its own number."""
    return b"%d" % seqno


Verb = Callable[[Words], Act]


@dataclass(frozen=True, slots=True)
class Entry:
    """A verb in a table. With `expects` its line, or what follows the arrow in it, says
    what must be so."""

    read: Verb
    expects: bool

    @property
    def usage(self) -> str:
        """Return how to write the line."""
        return (self.read.__doc__ or "").partition(":")[0].strip()


class Verbs(dict[str, Entry]):
    """A table of verbs, with two decorators that add a verb."""

    def does(self, name: str) -> Callable[[Verb], Verb]:
        """Add a verb that makes something happen."""
        return self._adding(name, expects=False)

    def expects(self, name: str) -> Callable[[Verb], Verb]:
        """Add a verb that says what must be so."""
        return self._adding(name, expects=True)

    def _adding(self, name: str, expects: bool) -> Callable[[Verb], Verb]:
        def add(read: Verb) -> Verb:
            self[name] = Entry(read, expects)
            return read
        return add


@dataclass(slots=True)
class Step:
    """A line that was understood."""

    line: int
    text: str
    expects: bool
    act: Act = field(repr=False)


def complaint(name: str, line: int, text: str, sentence: str) -> str:
    """Return the message of an error in a line."""
    return f"{name}:{line}: `{text}`: {sentence}"


class Transcript:
    """A file that was understood. play() may be called more than once, and does the
    same each time."""

    def __init__(self, name: str, text: str, verbs: Mapping[str, Entry]) -> None:
        self.name = name
        self.steps: list[Step] = []
        names: list[str] = []
        for line, whole in enumerate(text.splitlines(), start=1):
            words = whole.partition("#")[0].split()
            if words:
                self.steps.append(self._understood(line, " ".join(words), words, names, verbs))

    @classmethod
    def read(cls, path: Path, verbs: Mapping[str, Entry]) -> "Transcript":
        """Read a file."""
        return cls(str(path), path.read_text(), verbs)

    def _understood(self, line: int, text: str, words: list[str], names: list[str],
                    verbs: Mapping[str, Entry]) -> Step:
        entry = verbs.get(words[0])
        if entry is None:
            close = difflib.get_close_matches(words[0], verbs, n=1)
            hint = (f"did you mean {close[0]!r}?" if close
                    else f"the verbs are {', '.join(sorted(verbs))}")
            raise Mistake(complaint(self.name, line, text,
                                    f"there is no verb {words[0]!r}; {hint}"))
        rest = Words(words[1:], names)
        try:
            act = entry.read(rest)
            rest.end()
        except (Mistake, ConfigError) as mistake:
            sentence = f"{mistake}; write {entry.usage}"
            raise Mistake(complaint(self.name, line, text, sentence)) from None
        return Step(line, text, entry.expects, act)

    def play(self) -> Play:
        """Perform the lines one after the other."""
        play = Play()
        for step in self.steps:
            play.step = step
            try:
                step.act(play)
                if play.group is not None:
                    play.group.run(0)                   # what it causes at this instant
            except Unlike as unlike:
                raise Mismatch(self._unlike(step, play, f"instead: {unlike}")) from None
            except Violation as violation:
                raise Mismatch(self._unlike(step, play, str(violation))) from violation
            except (Mistake, ConfigError) as mistake:
                raise Mistake(complaint(self.name, step.line, step.text, str(mistake))) from None
        self._check_disturbances(play)
        return play

    def _unlike(self, step: Step, play: Play, sentence: str) -> str:
        message = complaint(self.name, step.line, step.text, sentence)
        return f"{message}\n{play.history()}".rstrip()

    def _check_disturbances(self, play: Play) -> None:
        """Raise Mistake if a script disturbs what was never sent."""
        for step, each in play.disturbances:
            if each.used < (each.times or 1):
                what = f"it happened {each.used} times" if each.used else "nothing like it was sent"
                message = complaint(self.name, step.line, step.text,
                                    f"{what}; write only what happens")
                raise Mistake(f"{message}\n{play.history()}")
