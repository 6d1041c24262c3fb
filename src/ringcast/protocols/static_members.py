"""Membership by a list of names that is given at start. Discovery, and agreement by a
coordinator, replace it later.

*The table.* Every member keeps a table with a line for each listed name: a generation
and an incarnation. Incarnation 0 means that the name is vacant: its member left or was
taken out. A member that changes a line raises its generation. Of two lines for a name,
the one with the higher (generation, incarnation) wins. But in the first generation the
line that was heard first stays: the other may be of an older incarnation whose HELLO
comes late, and if that one is alive, it will raise the generation. (In later
generations the same holds for an incarnation in our view, against one that says that it
has no view.) So all tables become equal, in whatever order lines are heard.

*The view* follows from the table. Its members are the incarnations in the order of
their names, whatever the order of anybody's list: so all agree who is the first, to
whom NAKACK2 sends votes. Its id is the sum of the weights of the lines. The weight of a
line grows whenever the line is superseded, so ids only grow. A weight also has 32
random bits of the incarnation: while members have not heard the same yet, their tables
differ, and so do the ids of their views.

*HELLO* carries its sender's table. A member repeats it every hello_interval until it
has heard an equal table from every member in its own; then there is silence. A member
answers a HELLO if its sender asks, or if its table differs. That a name is occupied is
believed only from its owner. The owner's HELLO also has what the others need: where the
owner can be reached and, after a restart, the digest of what it already has. That a
name is vacant is believed from anybody. The first view comes when all listed names are
settled and every member has heard of this incarnation, so that an older incarnation of
the same name yields first.

*Who yields.* A peer claims that our name belongs to another incarnation, or is vacant.
An older incarnation, which has a view, yields to a line that supersedes its own: it
stops, with a sentence that says so. A newer one, which has no view yet, keeps the name
and raises the generation. The older one may have been out of reach when its line was
superseded, and all others agree already. So a member that gets anything from an
incarnation that its table lacks says HELLO. (A member that formed a view without some
whom it had excluded also yields, if these know a line that supersedes its own.)

*Incarnations that come back.* An incarnation may come back after its process died
(address.Session). It takes over whatever generation its line has by now, and its view
may be one that the others have already. The epoch tells its processes apart: every
HELLO has the epochs that its sender has heard of, and a late HELLO of an earlier
process is dropped. The incarnation has no view before all know its present epoch, and
so where it can be reached. To the layers above, it is a member whose link broke and was
made again.

*Forgeries.* One datagram may claim anything. So a line is not believed if its
generation is far above ours: honest tables differ by as many incarnations as a
partition hides. A member without a view knows nothing yet: it believes the first half
of all possible generations.

*Rumours.* If an owner dies before its HELLO reaches a member, that member never
believes its line. It keeps the line as a rumour, so that exclude() supersedes the line
all the same. To exclude a name that was never heard of supersedes its first
incarnation.

*Terms.* HELLO has the terms that all members must share, the stack among them: members
on different stacks understand each other's HELLO and nothing else. Nothing is taken
from a member with other terms. A member without a view stops, and says what differs. A
member with a view stays, because anybody can send such a HELLO; it answers, so that the
one that is joining stops.
"""

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from ringcast.address import EVERYONE, Address
from ringcast.config import MAX_MEMBERS, MAX_NAME, MAX_RESUME, Config, nanoseconds
from ringcast.digest import Digest
from ringcast.errors import ConfigError
from ringcast.kinds import Kind, takes
from ringcast.protocols.seqnos import is_seqno
from ringcast.protocols.terms import Difference, difference
from ringcast.stack import Instant, Layer, Packet
from ringcast.view import View

MAX_TERMS = 16
HIGHEST = 1 << 21   # a generation that a group never reaches; there are twice as many
FARTHEST = 1 << 16  # generations that a line may be ahead of ours, once we have a view

Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
Term = Annotated[str, Meta(max_length=64)]


class Line(msgspec.Struct, array_like=True, frozen=True, order=True):
    """What is known of one name. Generation 0: never heard of; incarnation 0: vacant.
    (The sum of 256 weights has 62 bits.)"""

    generation: Annotated[int, Meta(ge=0, lt=1 << 22)] = 0
    incarnation: int = 0

    def supersedes(self, other: "Line") -> bool:
        """Return whether this line replaces the other. Of two lines of the first
        generation, neither does."""
        return self > other and (self.generation > other.generation or self.generation > 1)

    @property
    def weight(self) -> int:
        """Return what the line adds to the id of a view."""
        return (self.generation << 32) + (self.incarnation >> 32)


class Hello(msgspec.Struct, array_like=True):
    """A HELLO. Earlier versions leave out what has a default.

    - `asks`: the sender has not heard from everybody that they agree; please answer;
    - `resume`: the highest seqno that it has of each sender;
    - `installed`: it has a view;
    - `epochs`: of incarnations that have come back, its own among them;
    - `terms`: what all members must share.
    """

    name: Name
    physical: Annotated[str, Meta(max_length=256)]
    table: Annotated[dict[Name, Line], Meta(max_length=MAX_MEMBERS)]
    asks: bool
    resume: Annotated[dict[int, int], Meta(max_length=MAX_RESUME)]
    installed: bool = True
    epochs: Annotated[dict[int, int], Meta(max_length=MAX_MEMBERS)] = {}
    terms: Annotated[dict[Name, Term], Meta(max_length=MAX_TERMS)] = {}


HELLO = Kind(3, "hello", Hello, traced=False)           # who I am and whom I know


class StaticMembers(Layer):
    """The layer. `names` are all members of the group, this one included; `resume` is
    the digest of what this member already has; `epoch` is the number of this process
    within its incarnation (address.Session); `terms` are what all members must share
    (config.terms_of)."""

    def __init__(self, local: Address, names: tuple[str, ...], config: Config,
                 resume: Digest | None = None, epoch: int = 0,
                 terms: dict[str, str] | None = None) -> None:
        check_names(local.name, names)
        self.local = local
        self.terms = terms or {}
        # Of incarnations in the table that have come back:
        self.epochs = {local.incarnation: epoch} if epoch else {}
        self.interval = nanoseconds(config.hello_interval)
        self.resume = {sender.incarnation: seqno for sender, seqno in (resume or {}).items()}
        if len(self.resume) > MAX_RESUME:
            raise ConfigError(f"resume names {len(self.resume)} senders; leave out those that "
                              f"left, {MAX_RESUME} are possible")
        self.table = {name: Line() for name in sorted(names)}   # in the order of views
        self.rumours: dict[str, Line] = {}      # lines that supersede ours, not from their owners
        self.heard: dict[str, Hello] = {}       # the last HELLO of each member in the table
        self._set_line(local.name, Line(1, local.incarnation))
        self.installed: View | None = None
        self.next_hello: Instant | None = None
        self.last_hello: Instant | None = None
        self.hello_due = False
        self.fault: str | None = None
        self.num_hellos_sent = self.num_hellos_received = 0
        self.num_strangers = self.num_refused = self.num_lines_refused = 0

    # --------------------------------------------------------------------------------------- events

    def start(self, now: Instant) -> None:
        self.next_hello = now
        self._install_view(now)

    def receive(self, packets: list[Packet], now: Instant) -> None:
        """Take HELLOs. Say HELLO if a sender of anything else is not in the table."""
        senders = [packet.sender for packet in packets if packet.kind != HELLO]
        if not self.incarnations.issuperset(senders):
            self._schedule_hello(now)
        super().receive(packets, now)

    def count_bad(self) -> None:
        self.num_strangers += 1

    @takes(HELLO)
    def _on_hello(self, sender: int, hello: Hello, now: Instant) -> bool:
        """On reception of HELLO: merge the tables, and answer if the sender lacks
        something."""
        if hello.name not in self.table or not all(map(is_seqno, numbers(hello))):
            return False
        self.num_hellos_received += 1
        if hello.epochs.get(sender, 0) < self.epochs.get(sender, 0):
            return True
        differs = difference(self.local, self.terms, hello.name, hello.terms)
        if differs is not None:
            self._refuse_member(hello, differs, now)
            return True
        changed = self._merge_table(hello, sender)
        if self.table[hello.name].incarnation == sender:
            self._note_hello(hello, sender, now)
        if changed or hello.asks or hello.table != self.table:
            self._schedule_hello(now)
        if changed or self.installed is None:
            self._install_view(now)
        return True

    def _refuse_member(self, hello: Hello, differs: Difference, now: Instant) -> None:
        """Take nothing from a member with other terms. Stop if we are joining; answer
        if it is joining, so that it stops."""
        self.num_refused += 1
        if self.installed is None and self.fault is None:
            self._send_hello(now)                       # nobody else may tell the other one
            self.stack.effects.fault = self.fault = differs.fault
        elif self.installed is not None and self.num_refused == 1:
            self.stack.effects.warnings.append(differs.warning)
        if not hello.installed:
            self._schedule_hello(now)

    def _note_hello(self, hello: Hello, sender: int, now: Instant) -> None:
        """Note the HELLO of a member in the table. If its incarnation has come back,
        tell the layers above and the transport where it is now; once it has a view,
        tell them that what was on its way to and from it may be lost."""
        before, self.heard[hello.name] = self.heard.get(hello.name), hello
        if not (epoch := hello.epochs.get(sender)):
            return
        self.epochs[sender] = epoch
        self.above.returned(sender, epoch, now)
        if self.installed is not None and (before is None or before.physical != hello.physical):
            self._update_routes()
        if hello.installed and (before is None or not before.installed
                                or before.epochs.get(sender) != epoch):
            self.above.linked(sender, now)

    def _merge_table(self, hello: Hello, sender: int) -> bool:
        """Take over the lines that supersede ours; return whether any did."""
        changed = False
        for name, line in hello.table.items():
            if name in self.table and not self._is_plausible(name, line):
                self.num_lines_refused += 1
            elif name == self.local.name:
                changed |= self._answer_claim(line)
            elif (name not in self.table or not line.supersedes(self.table[name])
                  or self._is_stale(hello, name, line)):
                continue
            elif line.incarnation == 0 or (name == hello.name and line.incarnation == sender):
                self._set_line(name, line)
                changed = True
            else:
                self.rumours[name] = max(line, self.rumours.get(name, line))
        return changed

    def _is_plausible(self, name: str, line: Line) -> bool:
        """Return whether a name can have had so many incarnations since we heard of it.
        (Nothing supersedes a line of the last generation. If we believed such a line,
        nobody could ever have that name again.)"""
        known = self.installed is not None
        return line.generation <= (self.table[name].generation + FARTHEST if known else HIGHEST)

    def _is_stale(self, hello: Hello, name: str, line: Line) -> bool:
        """Return whether a line comes too late. Of two incarnations with the same
        generation, every member has heard of the one in our view, so the HELLO of the
        other was delayed for long. If that one is alive all the same, it has no view
        yet, and raises its generation when it hears of the tie."""
        ours = self.table[name]
        return (name == hello.name and not hello.installed and line.generation == ours.generation
                and ours.incarnation != 0 and self.installed is not None
                and Address(name, ours.incarnation) in self.installed)

    def _set_line(self, name: str, line: Line) -> None:
        """Change a line of the table. What was known of its former incarnation is
        forgotten; but our own epoch stays, because a goodbye of ours is not that of an
        earlier process."""
        self.table[name] = line
        self.heard.pop(name, None)
        self.incarnations = {line.incarnation for line in self.table.values()}
        known = self.incarnations | {self.local.incarnation}
        self.epochs = {member: epoch for member, epoch in self.epochs.items() if member in known}

    def _answer_claim(self, line: Line) -> bool:
        """Answer a claim about our name, and return whether our line has changed.

        The name belongs to another incarnation, or is vacant: if we have a view we
        yield and stop; if we have none, or if both lines are of the first generation,
        we keep the name and raise the generation. The name is ours, in a generation
        that only an earlier process of ours has seen: we take that over."""
        mine = self.table[self.local.name]
        if line.generation < mine.generation or line == mine:
            return False
        if line.incarnation == self.local.incarnation:
            self._set_line(self.local.name, line)
            return True
        if self.installed is None or line.generation == mine.generation == 1:
            self._set_line(self.local.name, Line(line.generation + 1, self.local.incarnation))
            return True
        if not line.supersedes(mine):
            return False
        self._set_line(self.local.name, line)
        self.stack.effects.fault = self.fault = (
            f"another process has joined as {self.local.name!r}; give every member its own name"
            if line.incarnation else
            f"this member, {self.local.name!r}, was taken out of the group; open a new channel to"
            f" come back")
        return True

    # ---------------------------------------------------------------------------------------- views

    def exclude(self, name: str, now: Instant) -> None:
        """Take a member out of the view, here and at all members that hear of it."""
        if name not in self.table:
            raise ConfigError(f"{name!r} is not in the list of members: {', '.join(self.table)}")
        line = self.table[name]
        if line.incarnation or not line.generation or line < self.rumours.get(name, line):
            self._vacate_name(name)
            self._schedule_hello(now)
            self._install_view(now)

    def leave(self, now: Instant) -> None:
        """Take this member out, and say so at once: it may not get another turn."""
        self._vacate_name(self.local.name)
        self._send_hello(now)
        self.next_hello = now + self.interval

    def _vacate_name(self, name: str) -> None:
        """Make a name vacant, above all that we have heard of it."""
        newest = max(self.table[name], self.rumours.get(name, Line(1)))
        self._set_line(name, Line(newest.generation + 1, 0))

    def missing(self) -> list[str]:
        """Return the names that a starting member waits for: those that it has not
        heard of, and members that have not heard of it. (A HELLO that is older than our
        start may hide that our name was another incarnation's.)"""
        return [name for name, line in self.table.items() if line.generation == 0
                or (self.installed is None and line.incarnation and name != self.local.name
                    and not self._knows_us(name))]

    def _knows_us(self, name: str) -> bool:
        """Return whether a member has our line, and our epoch."""
        hello, line, me = self.heard.get(name), self.table[self.local.name], self.local.incarnation
        return (hello is not None and hello.table.get(self.local.name) == line
                and (not line.incarnation or hello.epochs.get(me, 0) == self.epochs.get(me, 0)))

    def agreed(self) -> bool:
        """Return whether every member in the table has an equal table, by its last
        HELLO, and nothing is left to say about incarnations that came back."""
        others = [name for name, line in self.table.items()
                  if line.incarnation and name != self.local.name]
        return all(name in self.heard and self.heard[name].table == self.table
                   and self._is_settled(name) for name in others)

    def _is_settled(self, name: str) -> bool:
        """Return whether a member knows our epoch, and has a view if it came back."""
        has_come_back = self.table[name].incarnation in self.epochs
        return self._knows_us(name) and (self.heard[name].installed or not has_come_back)

    def _install_view(self, now: Instant) -> None:
        """Send the view up: first when all listed names are settled, then whenever it
        changes."""
        if self.missing() or self.fault or self.table[self.local.name].incarnation == 0:
            return
        members = tuple(Address(name, line.incarnation) for name, line in self.table.items()
                        if line.incarnation)
        view = View(sum(line.weight for line in self.table.values()), members)
        if self.installed == view:
            return
        before, self.installed = self.installed, view
        self._update_routes()
        mine = self.local.incarnation
        resumes = {self.table[name].incarnation: hello.resume[mine]
                   for name, hello in self.heard.items() if mine in hello.resume}
        self.above.view(view, resumes, now)
        if before is not None and (gone := set(before.members) - set(members)):
            self.above.left({member.incarnation for member in gone}, now)

    def _update_routes(self) -> None:
        """Tell the transport where the members can be reached."""
        self.stack.effects.routes = {self.table[name].incarnation: hello.physical
                                     for name, hello in self.heard.items()}

    def linked(self, member: int, now: Instant) -> None:
        """Say HELLO: a member that has just been reached may not know us, nor we it."""
        self._schedule_hello(now)
        self.above.linked(member, now)

    # ---------------------------------------------------------------------------------------- timer

    def deadline(self) -> Instant | None:
        return self.next_hello

    def tick(self, now: Instant) -> None:
        """Say HELLO, and again every hello_interval until all agree."""
        self.next_hello = None
        if self.hello_due or self.missing() or not self.agreed():
            self._send_hello(now)
            self.next_hello = now + self.interval

    def _schedule_hello(self, now: Instant) -> None:
        """Say HELLO in this turn, because somebody lacks something; but at most ten
        times in an interval, so that forged datagrams are not amplified."""
        soonest = now
        if self.last_hello is not None:
            soonest = max(now, self.last_hello + self.interval // 10)
        self.hello_due = True
        self.next_hello = soonest if self.next_hello is None else min(self.next_hello, soonest)

    def _send_hello(self, now: Instant) -> None:
        """Send a HELLO to everybody."""
        self.last_hello, self.hello_due = now, False
        self.num_hellos_sent += 1
        body = Hello(self.local.name, self.stack.physical, self.table, not self.agreed(),
                     self.resume, self.installed is not None, self.epochs, self.terms)
        self.send_control(HELLO, body, EVERYONE, now)

    def status(self) -> dict[str, int]:
        return {"view_id": self.installed.id if self.installed else 0,
                "num_members": len(self.installed or ()),
                "num_hellos_sent": self.num_hellos_sent,
                "num_hellos_received": self.num_hellos_received,
                "num_strangers": self.num_strangers, "num_refused": self.num_refused,
                "num_lines_refused": self.num_lines_refused}


def numbers(hello: Hello) -> Iterator[int]:
    """Yield all 64-bit numbers of a HELLO, which msgspec cannot bound by itself."""
    yield from (line.incarnation for line in hello.table.values())
    yield from hello.resume
    yield from hello.resume.values()
    yield from hello.epochs
    yield from hello.epochs.values()


def check_names(local: str, names: tuple[str, ...]) -> None:
    """Raise ConfigError unless `names` is a list of members that has `local`."""
    if local not in names:
        raise ConfigError(f"the list of members ({', '.join(names)}) lacks this member's own name "
                          f"{local!r}; add it")
    if len(set(names)) < len(names):
        raise ConfigError("the list of members names somebody twice; give every member its own"
                          " name")
    if len(names) > MAX_MEMBERS:
        raise ConfigError(f"{len(names)} members are listed; a group has at most {MAX_MEMBERS}")
    for name in names:
        if not 0 < len(name.encode()) <= MAX_NAME:
            raise ConfigError(f"the member name {name!r} has {len(name.encode())} bytes; it may "
                              f"have 1 to {MAX_NAME}")
