"""Membership by a list of names given at start; discovery and agreement by a
coordinator replace it later.

Every member keeps one table: for each listed name a generation and an incarnation, 0
meaning that the name is vacant (its member left or was taken out). Whoever changes a
line raises its generation; of two lines for a name the one with the higher (generation,
incarnation) wins, but for the first generation: there the one that was heard first
stays, since the other may be a former incarnation whose HELLO comes late, and if it is
alive it will raise the generation. (In later generations that holds for one that is in
our view, against one that says itself that it has none.) So all tables become equal in
whatever order they are heard.

A view is a function of the table: its members are the incarnations in the order of
their names, whatever the order of anybody's list (so all agree who is the first, to
whom NAKACK2 sends votes); its id is the sum of the lines' weights. A weight grows
whenever its line is superseded, so ids only grow; and it holds 32 random bits of the
incarnation, so that different tables, as members have them who have not heard the same
yet, have different ids.

HELLO carries the sender's table. It is repeated every hello_interval until every member
that is in the table was heard with an equal one; it is answered when its sender asks,
or when it shows a table other than ours; then there is silence. That a name is
*occupied* is believed only from its owner, because the owner's HELLO also brings what
the others need: where it can be reached, and, after a restart, the digest of what it
already has. That a name is *vacant* is believed from anybody. The first view comes when
all listed names are settled and every member has heard of this incarnation, so that a
former incarnation of the same name gives way before.

A member whose name is taken by a later incarnation of it, or that was taken out, stops
with a sentence that says so. It may have been out of reach at the time, and all others
agree already: so whoever gets anything from an incarnation that its table lacks says
HELLO. (A member also stops when it formed a view without some, whom it excluded, and
these know a line of its name that supersedes its own.)

An incarnation may come back after its process died (address.Session): with its old
incarnation, so it takes over whatever generation its line has by now, and its view may
be one that the others have already. What tells its processes apart is the epoch, in the
HELLO of whoever has heard of it: an earlier process's HELLO that comes late is no news
any more, and the incarnation has no view before everybody knows of the present epoch,
thus where it can be reached. To the layers above it is a member whose link broke and
came back.

One datagram may say anything. So a line is not believed whose generation is far above
ours: honest tables differ by as many incarnations as a partition hides. (Who has no
view yet knows nothing, and believes all but the last half of the generations there
are.)

A line that is believed only from its owner is never believed by those whom it did not
reach before it died. They keep it as a rumour, so that exclude() supersedes it all the
same; and excluding a name that was never heard of supersedes its first incarnation.

A HELLO names the terms that all members must share, the stack among them: members on
different stacks understand each other's HELLO and nothing else. Nothing is taken from a
member with other terms. Whoever has no view yet stops and says what differs; a member
that has one stays, because anybody can send such a HELLO, and answers so that the one
that is joining stops.
"""

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from ringcast.address import EVERYONE, Address
from ringcast.config import MAX_MEMBERS, MAX_NAME, MAX_RESUME, Config, milliseconds
from ringcast.digest import Digest
from ringcast.errors import ConfigError
from ringcast.kinds import Kind, takes
from ringcast.protocols.seqnos import is_seqno
from ringcast.stack import Instant, Layer, Packet
from ringcast.view import View

MAX_TERMS = 16
HIGHEST = 1 << 21   # generation that a sane group never reaches, and from where there is room to
                    # count on
FARTHEST = 1 << 16  # generations that a line may be ahead of ours, once we have a view

Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
Term = Annotated[str, Meta(max_length=64)]


class Line(msgspec.Struct, array_like=True, frozen=True, order=True):
    """What is known of one name; lines of one name compare by what supersedes what."""

    generation: Annotated[int, Meta(ge=0, lt=1 << 22)] = 0  # 0: never heard of; a sum of 256
                                                            # weights has 62 bits
    incarnation: int = 0                                    # 0: vacant

    def supersedes(self, other: "Line") -> bool:
        return self > other and (self.generation > other.generation or self.generation > 1)

    @property
    def weight(self) -> int:
        return (self.generation << 32) + (self.incarnation >> 32)


class Hello(msgspec.Struct, array_like=True):
    """A HELLO. Earlier versions leave out what has a default."""

    name: Name
    physical: Annotated[str, Meta(max_length=256)]
    table: Annotated[dict[Name, Line], Meta(max_length=MAX_MEMBERS)]
    asks: bool                                                      # the sender has not heard from
                                                                    # everybody that they agree:
                                                                    # please answer
    resume: Annotated[dict[int, int], Meta(max_length=MAX_RESUME)]  # {sender: highest seqno it has}
    installed: bool = True                                          # the sender has a view
    # of incarnations that have come back, the sender's among them
    epochs: Annotated[dict[int, int], Meta(max_length=MAX_MEMBERS)] = {}
    terms: Annotated[dict[Name, Term], Meta(max_length=MAX_TERMS)] = {}  # what all must share


HELLO = Kind(3, "hello", Hello, traced=False)           # who I am and whom I know


class StaticMembers(Layer):
    """The layer. `names` is the whole group, this member's name included; `resume` is
    what this member already has; `epoch` says which process of its incarnation it is
    (address.Session); `terms` is what all must share (config.terms_of)."""

    def __init__(self, local: Address, names: tuple[str, ...], config: Config,
                 resume: Digest | None = None, epoch: int = 0,
                 terms: dict[str, str] | None = None) -> None:
        check_names(local.name, names)
        self.local = local
        self.terms = terms or {}
        self.epochs = {local.incarnation: epoch} if epoch else {}  # of incarnations that have come
                                                                   # back, in the table
        self.interval = milliseconds(config.hello_interval)
        self.resume = {sender.incarnation: seqno for sender, seqno in (resume or {}).items()}
        if len(self.resume) > MAX_RESUME:
            raise ConfigError(f"resume names {len(self.resume)} senders; leave out those that left, {MAX_RESUME} are possible")
        self.table = {name: Line() for name in sorted(names)}  # a view's order is the table's
        self.rumours: dict[str, Line] = {}                     # lines that supersede ours, from
                                                               # members that are not their owners
        self.heard: dict[str, Hello] = {}                      # the last HELLO of each member that
                                                               # is in the table
        self._write(local.name, Line(1, local.incarnation))
        self.installed: View | None = None
        self.next_hello: Instant | None = None
        self.last_hello: Instant | None = None
        self.hello_due = False
        self.fault: str | None = None
        self.num_hellos_sent = self.num_hellos_received = self.num_strangers = self.num_refused = self.num_lines_refused = 0

    # --------------------------------------------------------------------------------------- events

    def start(self, now: Instant) -> None:
        self.next_hello = now
        self._install(now)

    def receive(self, packets: list[Packet], now: Instant) -> None:
        """Take the HELLOs, and answer whoever is not in the table and says anything
        else."""
        if not self.incarnations.issuperset([packet.sender for packet in packets
                                             if packet.kind != HELLO]):
            self._answer(now)
        super().receive(packets, now)

    def count_bad(self) -> None:
        self.num_strangers += 1

    @takes(HELLO)
    def _on_hello(self, sender: int, hello: Hello, now: Instant) -> bool:
        """On reception of HELLO: merge the tables, and answer if somebody lacks
        something."""
        if hello.name not in self.table or not all(map(is_seqno, numbers(hello))):
            return False
        self.num_hellos_received += 1
        if hello.epochs.get(sender, 0) < self.epochs.get(sender, 0):
            return True
        if (differing := self._differing(hello)) is not None:
            self._refuse(hello, differing, now)
            return True
        changed = self._merge(hello, sender)
        if self.table[hello.name].incarnation == sender:
            self._hear(hello, sender, now)
        if changed or hello.asks or hello.table != self.table:
            self._answer(now)
        if changed or self.installed is None:
            self._install(now)
        return True

    def _differing(self, hello: Hello) -> str | None:
        """Return the name of a term that a member has otherwise than we; what only one
        of us knows of does not count."""
        theirs = hello.terms
        return next((name for name, our in self.terms.items() if theirs.get(name, our) != our),
                    None)

    def _refuse(self, hello: Hello, differing: str, now: Instant) -> None:
        """Take nothing from a member with other terms: stop if we are joining, and let
        it know if it is."""
        self.num_refused += 1
        sentence = (f"{hello.name!r} has {differing}={hello.terms[differing]!r} and this member, "
                    f"{self.local.name!r}, has {differing}={self.terms[differing]!r}")
        remedy = f"give all members of the group the same {differing}"
        if self.installed is None and self.fault is None:
            self._hello(now)                            # the other one may hear it from nobody else
            self.stack.effects.fault = self.fault = f"{sentence}; {remedy}"
        elif self.installed is not None and self.num_refused == 1:
            warning = f"{sentence}, so it is not let in; {remedy}"
            self.stack.effects.warnings.append(warning)
        if not hello.installed:
            self._answer(now)

    def _hear(self, hello: Hello, sender: int, now: Instant) -> None:
        """Somebody who is in the table. Of an incarnation that has come back we learn
        at once where it is now; and once it has a view, that what was on its way to and
        from it may be lost."""
        before, self.heard[hello.name] = self.heard.get(hello.name), hello
        if not (epoch := hello.epochs.get(sender)):
            return
        self.epochs[sender] = epoch
        self.above.returned(sender, epoch, now)
        if self.installed is not None and (before is None or before.physical != hello.physical):
            self._route()
        if hello.installed and (before is None or not before.installed
                                or before.epochs.get(sender) != epoch):
            self.above.linked(sender, now)

    def _merge(self, hello: Hello, sender: int) -> bool:
        """Take over the lines that supersede ours; whether any did."""
        changed = False
        for name, line in hello.table.items():
            if name in self.table and not self._can_be(name, line):
                self.num_lines_refused += 1
            elif name == self.local.name:
                changed |= self._contest(line)
            elif name not in self.table or not line.supersedes(self.table[name]) or self._is_stale(
                    hello, name, line):
                continue
            elif line.incarnation == 0 or (name == hello.name and line.incarnation == sender):
                self._write(name, line)
                changed = True
            else:
                self.rumours[name] = max(line, self.rumours.get(name, line))
        return changed

    def _can_be(self, name: str, line: Line) -> bool:
        """Whether a name can have changed hands so often since we heard of it. Nothing
        supersedes a line of the last generation, so one HELLO that made us believe such
        a line would keep a name from the group for good."""
        known = self.installed is not None
        return line.generation <= (self.table[name].generation + FARTHEST if known else HIGHEST)

    def _is_stale(self, hello: Hello, name: str, line: Line) -> bool:
        """Of two incarnations with one generation, the one in our view was heard of by
        every member, so the other's HELLO was held back for long. If that one is alive
        all the same, it raises its generation when it hears of the tie, as it has no
        view yet."""
        ours = self.table[name]
        return (name == hello.name and not hello.installed and line.generation == ours.generation
                and ours.incarnation != 0
                and self.installed is not None
                and Address(name, ours.incarnation) in self.installed)

    def _write(self, name: str, line: Line) -> None:
        self.table[name] = line
        self.heard.pop(name, None)
        self.incarnations = {line.incarnation for line in self.table.values()}
        known = self.incarnations | {self.local.incarnation}  # whose goodbye is not that of an
                                                              # earlier process
        self.epochs = {member: epoch for member, epoch in self.epochs.items() if member in known}

    def _contest(self, line: Line) -> bool:
        """Somebody says that our name is another's, or vacant: a former incarnation of
        ours gives way, a later one does not. Or that it is ours, from a time that only
        an earlier process of ours has seen."""
        mine = self.table[self.local.name]
        if line.generation < mine.generation or line == mine:
            return False
        if line.incarnation == self.local.incarnation:
            self._write(self.local.name, line)
            return True
        if self.installed is None or line.generation == mine.generation == 1:
            self._write(self.local.name, Line(line.generation + 1, self.local.incarnation))
            return True
        if not line.supersedes(mine):
            return False
        self._write(self.local.name, line)
        self.stack.effects.fault = self.fault = (
            f"another process has joined as {self.local.name!r}; give every member its own name"
            if line.incarnation else
            f"this member, {self.local.name!r}, was taken out of the group; open a new channel to "
            f"come back")
        return True

    # ---------------------------------------------------------------------------------------- views

    def exclude(self, name: str, now: Instant) -> None:
        """Take a member out of the view, here and at everybody who hears of it."""
        if name not in self.table:
            raise ConfigError(f"{name!r} is not in the list of members: {', '.join(self.table)}")
        line = self.table[name]
        if line.incarnation or not line.generation or line < self.rumours.get(name, line):
            self._vacate(name)
            self._answer(now)
            self._install(now)

    def leave(self, now: Instant) -> None:
        """Take this member out, and say so at once: it may have no later chance."""
        self._vacate(self.local.name)
        self._hello(now)
        self.next_hello = now + self.interval

    def _vacate(self, name: str) -> None:
        newest = max(self.table[name], self.rumours.get(name, Line(1)))
        self._write(name, Line(newest.generation + 1, 0))

    def missing(self) -> list[str]:
        """What a starting member waits for: listed names that were neither heard nor
        are known to be vacant, and members that have not heard of it. (A HELLO that is
        older than our start may hide that our name was another incarnation's.)"""
        return [name for name, line in self.table.items() if line.generation == 0 or (
            self.installed is None and line.incarnation and name != self.local.name
            and not self._knows_us(name))]

    def _knows_us(self, name: str) -> bool:
        hello, line, me = self.heard.get(name), self.table[self.local.name], self.local.incarnation
        return (hello is not None and hello.table.get(self.local.name) == line
                and (not line.incarnation or hello.epochs.get(me, 0) == self.epochs.get(me, 0)))

    def agreed(self) -> bool:
        """Whether every member in the table was last heard with a table equal to
        ours."""
        return all(name in self.heard and self.heard[name].table == self.table
                   and self._is_settled(name)
                   for name, line in self.table.items() if line.incarnation
                   and name != self.local.name)

    def _is_settled(self, name: str) -> bool:
        """Whether nothing is left to be said about a comeback, theirs or ours."""
        return self._knows_us(name) and (self.heard[name].installed
                                         or self.table[name].incarnation not in self.epochs)

    def _install(self, now: Instant) -> None:
        """Send the view up, once all listed names are settled and whenever it changes
        after that."""
        if self.missing() or self.fault or self.table[self.local.name].incarnation == 0:
            return
        members = tuple(Address(name, line.incarnation) for name, line in self.table.items()
                        if line.incarnation)
        view = View(sum(line.weight for line in self.table.values()), members)
        if self.installed == view:
            return
        before, self.installed = self.installed, view
        self._route()
        mine = self.local.incarnation
        resumes = {self.table[name].incarnation: hello.resume[mine] for name,
                   hello in self.heard.items() if mine in hello.resume}
        self.above.view(view, resumes, now)
        if before is not None and (gone := set(before.members) - set(members)):
            self.above.left({member.incarnation for member in gone}, now)

    def _route(self) -> None:
        self.stack.effects.routes = {self.table[name].incarnation: hello.physical for name,
                                     hello in self.heard.items()}

    def linked(self, member: int, now: Instant) -> None:
        """Whoever has just been reached may not know us, nor we it."""
        self._answer(now)
        self.above.linked(member, now)

    # ---------------------------------------------------------------------------------------- timer

    def deadline(self) -> Instant | None:
        return self.next_hello

    def tick(self, now: Instant) -> None:
        """Every hello_interval until all agree."""
        self.next_hello = None
        if self.hello_due or self.missing() or not self.agreed():
            self._hello(now)
            self.next_hello = now + self.interval

    def _answer(self, now: Instant) -> None:
        """Somebody lacks something: say HELLO at once, but no more often than ten times
        in an interval (no amplification)."""
        soonest = now if self.last_hello is None else max(now,
                                                          self.last_hello + self.interval // 10)
        self.hello_due = True
        self.next_hello = soonest if self.next_hello is None else min(self.next_hello, soonest)

    def _hello(self, now: Instant) -> None:
        self.last_hello, self.hello_due = now, False
        self.num_hellos_sent += 1
        body = Hello(self.local.name, self.stack.physical, self.table, not self.agreed(),
                     self.resume,
                     self.installed is not None, self.epochs, self.terms)
        self.send_control(HELLO, body, EVERYONE, now)

    def status(self) -> dict[str, int]:
        return {"view_id": self.installed.id if self.installed else 0,
                "num_members": len(self.installed or ()),
                "num_hellos_sent": self.num_hellos_sent,
                "num_hellos_received": self.num_hellos_received,
                "num_strangers": self.num_strangers, "num_refused": self.num_refused,
                "num_lines_refused": self.num_lines_refused}


def numbers(hello: Hello) -> Iterator[int]:
    """All 64-bit numbers of a HELLO; msgspec cannot bound those itself."""
    yield from (line.incarnation for line in hello.table.values())
    yield from hello.resume
    yield from hello.resume.values()
    yield from hello.epochs
    yield from hello.epochs.values()


def check_names(local: str, names: tuple[str, ...]) -> None:
    """ConfigError unless `names` is a list of members that `local` is in."""
    if local not in names:
        raise ConfigError(f"the list of members ({', '.join(names)}) lacks this member's own name {local!r}; add it")
    if len(set(names)) < len(names):
        raise ConfigError("the list of members names somebody twice; give every member its own name")
    if len(names) > MAX_MEMBERS:
        raise ConfigError(f"{len(names)} members are listed; a group has at most {MAX_MEMBERS}")
    for name in names:
        if not 0 < len(name.encode()) <= MAX_NAME:
            raise ConfigError(f"the member name {name!r} has {len(name.encode())} bytes; it may have 1 to {MAX_NAME}")
