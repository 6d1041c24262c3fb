"""Where the streams of departed senders ended, told to those who ask.

A sender that was killed comes back as a new member. It asks all members of its view, by
the incarnation that it had: what do you have of that stream? Each answers for itself,
with the range that its application has finished, or that it does not know the stream.
The answers of members that went together are the same, because they have agreed on the
cut (flush.py). Those of others differ: who came later has a later begin, and who was
parted from the sender an earlier end.

A member says nothing yet while the asked one is in its view, or while anything of the
stream is to be fetched, delivered or finished. The question is repeated until all have
answered. Who came after the sender was gone answers at once: it does not know.
"""

from dataclasses import dataclass, field

import msgspec

from ringcast.address import EVERYONE
from ringcast.config import Config, nanoseconds
from ringcast.kinds import Kind, takes
from ringcast.protocols.multicast.base import Multicast
from ringcast.protocols.multicast.ended import Taken
from ringcast.protocols.seqnos import Number
from ringcast.stack import Instant, Layer
from ringcast.status import Layers
from ringcast.view import View


class AskEnd(msgspec.Struct, array_like=True):
    """ASK_END: what do you have of the stream of this incarnation?"""

    incarnation: Number


class End(msgspec.Struct, array_like=True):
    """END: my application has finished the messages behind `after`, up to `last`.
    Without `known`, I do not know the stream."""

    incarnation: Number
    known: bool
    after: Number = 0
    last: Number = 0


ASK_END = Kind(40, "ask_end", AskEnd, traced=False)
END = Kind(41, "end", End, traced=False)

Answers = dict[int, Taken | None]       # by member; None: it does not know the stream


@dataclass(eq=False)
class Question:
    """Holds what was answered to one thread of our application, which asks for the end
    of the stream of an incarnation."""

    incarnation: int
    given: Answers = field(default_factory=dict)


class Ends(Layer):
    """The layer that asks and answers. `asked` has the questions of our application."""

    def __init__(self, config: Config, multicast: Multicast) -> None:
        self.multicast = multicast
        self.interval = nanoseconds(config.seek_interval)
        self.asked: dict[Question, None] = {}       # in order, so that a seed is one run
        self.next_ask: Instant | None = None
        self.num_bad = 0

    # --------------------------------------------------------------------------------------- asking

    def ask(self, question: Question, now: Instant) -> None:
        """Ask all members, now and until `stop_asking`."""
        self.asked[question] = None
        self.next_ask = now
        self.tick(now)

    def stop_asking(self, question: Question) -> None:
        """Forget a question. Any thread may call, also the garbage collector in the
        middle of a turn."""
        self.asked.pop(question, None)

    def answers(self, question: Question) -> Answers | None:
        """Return what each member of the view has answered; None until there is a view
        and all have. A member that is in the view has no end yet."""
        members, given = self.multicast.members, question.given
        if not members or question.incarnation in members or not members.keys() <= given.keys():
            return None
        return {member: given[member] for member in members}

    def tick(self, now: Instant) -> None:
        """Ask (again) those who have not answered, and ourselves."""
        if self.next_ask is None or now < self.next_ask:
            return
        self.next_ask = now + self.interval
        asked = [each.incarnation for each in self.asked.copy() if self.answers(each) is None]
        for incarnation in dict.fromkeys(asked):
            self.send_control(ASK_END, AskEnd(incarnation), EVERYONE, now)
            if (mine := self._end(incarnation)) is not None:
                self._take(self.stack.local.incarnation, mine)

    def view(self, view: View, now: Instant) -> None:
        """Forget what was told of a stream whose sender is back: it will end again."""
        members = {member.incarnation for member in view.members}
        for question in self.asked.copy():
            if question.incarnation in members:
                question.given.clear()
        super().view(view, now)

    def deadline(self) -> Instant | None:
        return self.next_ask if self.asked else None

    @takes(END)
    def _on_end(self, sender: int, end: End, now: Instant) -> bool:
        """On reception of END."""
        self._take(sender, end)
        return True

    def _take(self, member: int, end: End) -> None:
        """Note the answer of a member of the view."""
        for question in self.asked.copy() if member in self.multicast.members else ():
            if question.incarnation == end.incarnation:
                question.given[member] = Taken(end.after, end.last) if end.known else None
                self.stack.effects.answered = True

    # ------------------------------------------------------------------------------------ answering

    @takes(ASK_END)
    def _on_ask_end(self, sender: int, asked: AskEnd, now: Instant) -> bool:
        """On reception of ASK_END: answer a member, as soon as there is an answer."""
        if sender in self.multicast.members and (end := self._end(asked.incarnation)) is not None:
            self.send_control(END, end, sender, now)
        return True

    def _end(self, incarnation: int) -> End | None:
        """Return what our application has of a stream; None if it is not over yet."""
        flush = self.multicast.flushing
        if (incarnation in self.multicast.members or incarnation in flush.departed
                or flush.ended.is_outstanding(incarnation)):
            return None
        if self.multicast.observing is not None:
            return End(incarnation, False)              # it may not have had all of it
        taken = flush.ended.taken(incarnation)
        return End(incarnation, False) if taken is None else End(incarnation, True, *taken)

    def count_bad(self) -> None:
        self.num_bad += 1

    def describe(self, status: Layers) -> None:
        status.ends.num_bad_ends = self.num_bad
