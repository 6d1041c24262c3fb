"""MCAST: reliable multicast with transmission windows of fixed size (MCAST.txt), with
the corrections of decisions 8 to 15. What it shares with NAKACK2 is in base.py.

A receiver acknowledges what its application has finished: after ack_threshold messages,
or on a scan. A sender purges up to the minimum of its ack-map. An ACK also carries the
senders' credit: how many bytes each may have on the way to this receiver. One ACK tells
several senders what the receiver has of each of them.

An ACK with a credit of 0 says that its member takes no messages. It may be forged, and
a sender that believed it would purge what the member still needs. So the sender asks,
by HIGHEST, and believes a second one: a member that takes messages never gives that
answer, and its next ACK with a credit withdraws the refusal.
"""

from collections.abc import Iterable
from typing import Annotated, cast

import msgspec
from msgspec import Meta

from ringcast._core.ack_table import AckTable
from ringcast._core.ring_buffer import RingBuffer
from ringcast.address import EVERYONE, Address
from ringcast.config import MAX_MEMBERS, Config
from ringcast.digest import Digest
from ringcast.kinds import Kind, takes
from ringcast.protocols.budget import Budget
from ringcast.protocols.multicast.announcing import HIGHEST
from ringcast.protocols.multicast.base import Multicast
from ringcast.protocols.multicast.credits import Parts, latest_parts
from ringcast.protocols.multicast.retention import keeps_for_others
from ringcast.protocols.multicast.windows import ReceiveWindow
from ringcast.protocols.retransmission import Backoff
from ringcast.protocols.seqnos import MODULUS, Seqno, precedes
from ringcast.protocols.stream import Stream, estimate_bytes
from ringcast.stack import Instant
from ringcast.status import McastStatus

# What members keep for each other should fit their caches, so it must be freed soon.
# Then LOW is told so often in a window:
KEPT_LOWS = 32


class Ack(msgspec.Struct, array_like=True):
    # {sender: highest finished by the application}, of senders that may not know it
    finished: Annotated[dict[int, Seqno], Meta(max_length=MAX_MEMBERS)]
    budget: int     # the credit of each sender in bytes; 0: this member takes no messages
    view_id: int = 0        # in which it was sent; members that do not say it are believed
    parts: Parts = {}                                   # of some of these senders


ACK = Kind(5, "ack", Ack, about="finished")             # what I have finished


class Mcast(Multicast):
    """The layer; its arguments are those of Multicast."""

    protocol = "mcast"
    counters: McastStatus

    def __init__(self, local: Address, config: Config, budget: Budget, *,
                 resume: Digest | None = None, receiving: bool = True, offset: Seqno = 0,
                 lossless: bool = False, observes: bool = False) -> None:
        super().__init__(local, config, budget, resume=resume, receiving=receiving, offset=offset,
                         lossless=lossless, observes=observes)
        self.acks = AckTable()
        # Our credit at each member, and what it has and cannot acknowledge, in bytes.
        self.budgets: dict[int, tuple[int, int]] = {}
        self.are_parts = False                  # somebody has something that it cannot acknowledge
        self.refusals: dict[int, bool] = {}     # members without a credit for us: were they asked?
        self.doubts = Backoff()                 # when to ask them
        self.met: dict[int, int] = {}           # since which view we wait for a member
        self.next_ack: Instant = 0              # before it we only acknowledge what is urgent
        self.granted = config.max_bytes         # the credit that we told last
        self.counters = McastStatus()

    def make_window(self, offset: Seqno, capacity: int, max_bytes: int) -> RingBuffer:
        return RingBuffer(capacity, offset, max_bytes=max_bytes)

    # --------------------------------------------------------------------- a sender and its ack-map

    @takes(ACK)
    def _on_ack(self, member: int, ack: Ack, now: Instant) -> bool:
        """On reception of ACK from member P: raise its entry. When the minimum rises,
        purge; that unblocks senders. It may be only about others. One that P sent
        before we met again may say more than P has of what is kept for it: parts of a
        large message that P dropped when we parted."""
        if member in self.observers:
            return True
        if ack.budget == 0:
            self.counters.acks_received += 1
            self._on_refusal(member)
            return True
        finished = ack.finished.get(self.local.incarnation)
        if finished is None:
            return True
        seqno = self.sent_of(finished)
        if seqno is None or ack.budget < 0:
            return False
        self.counters.acks_received += 1
        if 0 < ack.view_id < self.met.get(member, 0):
            return True
        self._track_acks_again(member, seqno)
        is_new = self._note_budget(member, seqno, ack.budget,
                                   ack.parts.get(self.local.incarnation, 0))
        if self.acks.ack(member, seqno):
            self.purge()
        if is_new or self.are_parts:                    # then each ack counts
            self._fit_budgets()
        return True

    def _note_budget(self, member: int, seqno: Seqno, credit: int, parts: int) -> bool:
        """Note the credit that came with an ack, unless a later ack came before it.
        Return whether anything is new."""
        budget = self.budgets.get(member)
        latest = latest_parts(seqno, parts, self.acks.get(member), budget[1] if budget else 0)
        if latest is None or budget == (credit, latest):
            return False
        self.budgets[member] = credit, latest
        return True

    def _on_refusal(self, member: int) -> None:
        """Believe that a member takes no messages if it says so again after it was
        asked."""
        if self.refusals.get(member):
            self._stop_tracking_acks(member)
        elif member in self.acks:
            self.refusals.setdefault(member, False)

    def _ask_refusers(self, now: Instant) -> None:
        """Ask by HIGHEST whether refusals are true: a member that takes no messages
        answers each HIGHEST with a refusal. Ask new members for their credit, too: one
        by one, or all at once if they are many. The view 0 makes it a question that has
        an answer when all is acknowledged."""
        asked = [*self.refusals, *self._find_unheard()]
        if self.doubts.scan(tuple(asked)):
            question = self.announcing.highest(0)
            self.refusals = dict.fromkeys(self.refusals, True)
            for dest in asked if 2 * len(asked) < len(self.members) else [EVERYONE]:
                self.send_control(HIGHEST, question, dest, now)

    def _find_unheard(self) -> list[int]:
        """Return the members that we wait for and whose credit we do not know: their
        first ack came before we had them in our view, or was lost."""
        if len(self.budgets) + len(self.observers) + 1 >= len(self.members):
            return []
        return [member for member in self.members if member != self.local.incarnation
                and member not in self.budgets and member not in self.refusals
                and member in self.acks]

    def _track_acks_again(self, member: int, seqno: Seqno) -> None:
        """Withdraw a member's refusal after an ACK with a credit; wait for it again, if
        what it needs is still here."""
        self.refusals.pop(member, None)
        if member not in self.acks and not precedes(seqno, self.send_window.ring.low):
            self.acks.add(member, seqno)

    def has_up_to(self, member: int) -> Seqno:
        acked = self.acks.get(member)
        return self.send_window.ring.low if acked is None else acked

    def track(self, member: int, start: Seqno) -> None:
        """Wait for the acks of a member."""
        if member in self.observers:
            return
        self.met[member] = self.view_id
        if member != self.local.incarnation:
            self.acks.add(member, start)
        elif self.receiving:
            self.acks.add(member, self.send_window.ring.low)

    def forget(self, member: int) -> None:
        self.acks.remove(member)
        self.budgets.pop(member, None)
        self.refusals.pop(member, None)
        self.met.pop(member, None)

    def installed(self, now: Instant) -> None:
        self._fit_budgets()
        self.purge()

    def _stop_tracking_acks(self, member: int) -> None:
        """Wait for no more acks of a member that takes no messages."""
        self.refusals.pop(member, None)
        if self.budgets.pop(member, None) is not None:
            self._fit_budgets()
        if self.acks.remove(member) or not self.acks:
            self.purge()

    def _fit_budgets(self) -> None:
        """Bound the send window by the smallest credit. What a member has, acknowledged
        or not, is not on its way to it. One that misses nothing has acknowledged more
        than others, and has no parts."""
        budgets = self.budgets
        have, self.are_parts = 0, any(parts for _, parts in budgets.values())
        if self.are_parts:
            have = min(parts + self._acked_bytes(member) for member, (_, parts) in budgets.items())
        self.credits.use(min((credit for credit, _ in budgets.values()),
                             default=self.config.max_bytes), have)

    def _acked_bytes(self, member: int) -> int:
        """Estimate how many bytes a member has acknowledged of what not all have
        acknowledged."""
        window, acked = self.send_window, self.acks.get(member)
        if acked is None or not precedes(window.acked, acked):
            return 0
        return estimate_bytes(window.ring, (acked - window.acked) % MODULUS)

    def purge(self) -> None:
        """Free what all have acknowledged; if there is nobody to wait for, all that was
        sent."""
        ring = self.send_window.ring
        minimum = self.acks.minimum if self.acks else self.send_window.sent
        if not self.receiving:                          # stable() stops at HD, which nobody moves
            ring.remove_many(nullify=False)
        if minimum is not None:
            held = ring.nbytes
            self.free_sent(minimum)
            self.announcing.freed += max(0, held - ring.nbytes)     # meanwhile more may be sent

    def received(self, now: Instant) -> None:
        """Also tell LOW, at once if it has risen by a good part of a window."""
        super().received(now)
        if self._owes_much() and self._tells_low():
            self.announcing.tell(now)

    def _owes_much(self) -> bool:
        """Return whether LOW has risen by 1 / KEPT_LOWS of a window, in messages or in
        bytes, since it was told. Until then others keep that, and may have no room."""
        ring = self.send_window.ring
        freed = (ring.low - self.announcing.told_low) % MODULUS
        return KEPT_LOWS * freed >= ring.capacity or (
            KEPT_LOWS * self.announcing.freed > ring.max_bytes)

    def owes_low(self) -> bool:
        return self._tells_low() and precedes(self.announcing.told_low, self.send_window.ring.low)

    def _tells_low(self) -> bool:
        """Return whether others do anything when LOW rises."""
        return bool(self.observers) or keeps_for_others(self, self.local.incarnation)

    # ---------------------------------------------------------------------- a receiver and its acks

    def report_again(self, now: Instant) -> None:
        """In a large group an answer may wait for the next scan, and is for all."""
        asked = [window for window in self.windows.values() if window.report_due]
        if not asked:
            return
        if not self.is_large:
            self._tell_each(asked, now)
        elif self.next_ack <= now:
            self._acknowledge(now)

    def may_lack_report(self, window: ReceiveWindow, now: Instant) -> bool:
        """Return whether the sender may lack our last ack. Its HIGHEST may have crossed
        a new one."""
        return now - window.reported > self.pause // 2

    def begin(self, sender: int, now: Instant) -> None:
        if not self.receiving:
            self.refuse(sender, now)

    def refuse(self, sender: int, now: Instant) -> None:
        self._send_ack({}, sender, now)

    def _acknowledge(self, now: Instant) -> None:
        """Tell each sender that may not know it what the application has finished,
        unless it has asked within an xmit_interval: then it asks again, and the answers
        of all receivers come together. In a large group tell all members at once, if
        that is less work. What goes to all waits behind messages."""
        due = [window for window in self.windows.values() if window.report_due or (
            window.stream.is_unreported and now - window.reported >= self.pause)]
        if not due:
            return
        self.next_ack = now + self.report_pause
        if self.is_large and 2 * len(due) > len(self.members):
            self._send_ack(dict(self._report(window, now) for window in due), EVERYONE, now)
        else:
            self._tell_each(due, now)

    def _tell_each(self, due: Iterable[ReceiveWindow], now: Instant) -> None:
        for window in due:
            sender, finished = self._report(window, now)
            self._send_ack({sender: finished}, sender, now)

    def _report(self, window: ReceiveWindow, now: Instant) -> tuple[int, Seqno]:
        """Return what the application has finished of whose messages; it counts as
        reported now."""
        window.report_due, window.reported = False, now
        window.note_report()
        return window.stream.sender.incarnation, window.stream.finished

    def _send_ack(self, finished: dict[int, Seqno], dest: int, now: Instant) -> None:
        if self.observing is not None:
            return                                      # nobody waits for it
        self.granted = self.credits.grant()
        self.counters.acks_sent += 1
        ack = Ack(finished, self.granted, self.view_id, self.credits.parts_of(finished))
        self.send_control(ACK, ack, dest, now)

    def stop_receiving(self, now: Instant) -> None:
        self.receiving = False
        self.refuse(EVERYONE, now)
        self._stop_tracking_acks(self.local.incarnation)
        self.flushing.stop_receiving()

    def report_finished(self, window: ReceiveWindow | None, now: Instant) -> None:
        """Acknowledge what is finished, if it is due. Our own messages we acknowledge
        in our own ack-map."""
        if window is None:
            if self.acks.ack(self.local.incarnation, self.own.finished):
                self.purge()
                self._arm(now)
        elif self._count_finished(window.stream):
            if window.stream.is_report_due(self.credits.used(window, self.granted)):
                self._tell_each([window], now)
            self._arm(now)

    def _count_finished(self, stream: Stream) -> bool:
        """Count what is newly finished, to be acknowledged; free it, or keep it for
        others. Return whether there is anything to report."""
        keeps = keeps_for_others(self, stream.sender.incarnation)
        return stream.keep() if keeps else stream.free()

    # ---------------------------------------------------------------------------------------- timer

    def scan(self, now: Instant) -> None:
        """Scan the windows, while anything is missing, unacknowledged or
        unanswered."""
        pause = self.scan_pause
        for window in self.windows.values():
            if window.stream.scan(now, pause):
                self._count_finished(window.stream)
        self._acknowledge(now)
        self.fetching.ask(now)
        self.announcing.announce(now)
        self._ask_refusers(now)

    def is_busy(self) -> bool:
        return super().is_busy() or bool(self.refusals) or bool(self._find_unheard())

    # --------------------------------------------------------------------------------------- status

    def remembered(self) -> set[int]:
        ackers = cast("dict[int, int]", dict(self.acks.items())).keys()
        return super().remembered() | self.budgets.keys() | self.refusals.keys() | ackers

    def unacked_by(self, member: int) -> int | None:
        acked = self.acks.get(member)
        return None if acked is None else (self.send_window.ring.hr - acked) % MODULUS

    def slowest(self) -> int | None:
        return cast("int | None", self.acks.slowest)
