"""The state of a simulated application, and its transfer.

The state has a checksum of all messages that each sender sent to everybody, in their
order. It also has a name, which says how it came about: two members whose states have
the same name when they are shown a view must have the same state, one message more or
less is a violation.
"""

from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from ringcast._core.batch import Batch
from ringcast._core.send_window import FULL
from ringcast.address import Address
from ringcast.errors import NotMemberError
from ringcast.flags import STATE
from ringcast.protocols.membership.messages import FAILED, HAS, NEEDS
from ringcast.protocols.membership.state import StateTransfer, broken, parts
from ringcast.sim.network import MS
from ringcast.stack import Giving, Instant, StateNews
from ringcast.view import View

if TYPE_CHECKING:
    from ringcast.sim.member import Member

MOST_STATE = 201_000        # bytes of a state at most: of its padding, and of the rest
ROLES = {"both": (NEEDS, True), "takes": (NEEDS, False), "gives": (HAS, True)}


class Content(msgspec.Struct):
    """What is transferred. `view_id` is the view that the application was shown last,
    `next_name` the name that the state has from the place of the transfer on."""

    name: str
    next_name: str = ""
    place: int = 0
    view_id: int = 0
    checksums: dict[int, int] = {}
    padding: bytes = b""


class Replica:
    """The state at one member, whose application gives it, takes it, or both, as `role`
    says."""

    def __init__(self, member: "Member", role: str) -> None:
        self.member, self.role = member, role
        self.rng = Random(f"{member.incarnation} state")
        self.content = Content("" if role != "gives" else member.name + str(member.incarnation))
        self.givings: dict[Address, list[bytes]] = {}   # parts that are not sent, the last first
        self.attempt = 0
        self.chunks: list[bytes] = []                   # of this attempt
        self.num_taken = 0
        self.transfer: StateTransfer = member.endpoint.transfer
        self.transfer.state, self.transfer.can_give = ROLES[role]

    # ------------------------------------------------------------------------- what it is delivered

    def deliver(self, batch: Batch) -> None:
        """Add messages to the state."""
        if not self.member.cluster.checkers.states.counts(batch):
            return
        if self.content.next_name:
            self._violated(f"got {batch}")
        else:
            sums, sender = self.content.checksums, batch.sender.incarnation
            for payload in batch.payloads:
                sums[sender] = crc32(payload, sums.get(sender, 0))

    def view(self, view: View) -> None:
        """Check the state at the place of a view, and name it anew. If that view is
        void for us, it is a part of the one that we are shown."""
        content = self.content
        if content.next_name and content.place != view.id and not self._was_void(view):
            self._violated(f"is shown {view}")
        content.name = content.next_name or self._name_at(view.id)
        content.view_id, content.next_name = view.id, ""
        if self.member.receiving:
            self.member.cluster.checkers.states.check(self.member, view, content.name,
                                                      dict(content.checksums))

    def _was_void(self, view: View) -> bool:
        """Return whether the layers have installed the view of the state before this
        one."""
        history = self.member.cluster.checkers.views.history(self.member)
        return any(each.id == self.content.place < view.id for each in history)

    def _violated(self, what: str) -> None:
        self.member.cluster.checkers.violated(
            "state", f"{self.member.name} {what} first behind the state of view "
                     f"{self.content.place}")

    def _name_at(self, view_id: int) -> str:
        """Return the name that the state has from a view on: it has all views on the
        way. Who begins without a state begins with the view."""
        if not self.content.name:
            return f"{view_id:x}"
        way = self.member.cluster.checkers.way(self.member, self.content.view_id, view_id)
        return f"{crc32(self.content.name.encode()):x} {' '.join(f'{each:x}' for each in way)}"

    # ----------------------------------------------------------------------------------- the giver

    def give(self, giving: Giving) -> None:
        """Take the state, to be sent as soon as there is room. Sometimes fail."""
        whole = msgspec.msgpack.encode(msgspec.structs.replace(
            self.content, next_name=self._name_at(giving.place), place=giving.place,
            padding=bytes(self.rng.choice([0, 1000, 200_000]))))
        at = sorted(self.rng.randrange(len(whole)) for _ in range(self.rng.choice([0, 1, 5])))
        chunks = [whole[begin:end] for begin, end in zip([0, *at], [*at, None], strict=True)]
        member = self.member
        made = list(parts(giving.place, chunks, member.multicast.send_window.largest,
                          member.config.max_message_size, giving.begins))
        is_given = self.rng.random() < 0.8
        if not is_given:
            made[self.rng.randrange(len(made)):] = [broken(giving.place)]
        self.transfer.note_given(is_given)
        self.givings[giving.dest] = made[::-1]

    def push(self, now: Instant) -> None:
        """Send the parts that find room."""
        endpoint = self.member.endpoint
        for dest, rest in list(self.givings.items()):
            while rest and endpoint.leaving is None:
                try:
                    window = endpoint.window(dest, now)
                except NotMemberError:
                    rest.clear()
                    break
                if window.push(rest[-1], STATE) == FULL:
                    break
                rest.pop()
                endpoint.bundler.flush(dest, now)
            if not rest:
                del self.givings[dest]

    # ----------------------------------------------------------------------------------- the joiner

    def take(self, news: StateNews, now: Instant) -> None:
        """Take chunks; when all are there, take a while to make a state of them."""
        if news.attempt != self.attempt:
            self.attempt, self.chunks = news.attempt, []
        self.chunks += news.chunks
        if news.batch is not None:
            self.member.endpoint.finish((news.batch,), now)
        if news.is_whole:
            cluster = self.member.cluster
            pause = self.rng.choice([0, 0, 1, 20, 200]) * MS
            cluster.at(cluster.now + pause, self._accept, news.attempt)

    def _accept(self, attempt: int) -> None:
        if self.member.alive and self.transfer.accept(attempt):
            self.content = msgspec.msgpack.decode(b"".join(self.chunks), type=Content)
            self.num_taken += 1
            self.member.request_turn()

    def owed(self) -> str | None:
        """Return a sentence if somebody could give this member the state, and it has
        none."""
        able = [each for each in self.member.cluster.living()
                if each.replica is not None and each.replica.transfer.state in (HAS, FAILED)]
        if able and self.transfer.is_holding:
            return f"{self.member.name} has no state, which {able[0].name} could give"
        return None
