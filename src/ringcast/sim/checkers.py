"""Checks after every turn of every member what must hold, whatever the network and the
processes do.

The checkers know what no member knows: what each application sent, and what each has
finished. They look at the stacks and never change them. A failing run is known by the
name of the check that failed.

Each part of the checks is in a file of its own: the views (view_checkers.py), the
streams of messages to everybody (stream_checkers.py), those of durable members over
several lives (lives.py), messages to single members (unicast_checkers.py), the windows
and tables (window_checkers.py), and the states of applications (state_checkers.py).
"""

from collections import Counter
from typing import TYPE_CHECKING

from ringcast._core.batch import Batch, Skipped
from ringcast.protocols.seqnos import Seqno
from ringcast.sim.lives import Lives
from ringcast.sim.state_checkers import StateCheckers
from ringcast.sim.stream_checkers import StreamCheckers
from ringcast.sim.unicast_checkers import UnicastCheckers
from ringcast.sim.view_checkers import ViewCheckers
from ringcast.sim.window_checkers import WindowCheckers
from ringcast.view import View

if TYPE_CHECKING:
    from ringcast.sim.cluster import Cluster
    from ringcast.sim.member import Member

HEARTBEAT = 64              # bytes of one at most


class Violation(AssertionError):
    """A promise was broken: the name of the check, what was seen, the event, and the
    simulated time in nanoseconds."""

    def __init__(self, check: str, sentence: str, event: int, now: int) -> None:
        super().__init__(f"{check}: {sentence} (at {now / 1e6:.3f} ms, event {event})")
        self.check, self.sentence, self.event, self.now = check, sentence, event, now


class Checkers:
    """All checks of one cluster. The cluster and its members tell what happens."""

    def __init__(self, cluster: "Cluster") -> None:
        self.cluster = cluster
        self.views = ViewCheckers(self)
        self.lives = Lives(self)
        self.streams = StreamCheckers(self)
        self.unicast = UnicastCheckers(self)
        self.windows = WindowCheckers(self)
        self.states = StateCheckers(self)
        self.num_heartbeats: Counter[str] | None = None     # of each member, once nothing is owed

    def violated(self, check: str, sentence: str) -> None:
        """Raise Violation."""
        raise Violation(check, sentence, self.cluster.num_done, self.cluster.now)

    # ------------------------------------------------------------------------------------- on views

    def installed(self, member: "Member", view: View) -> None:
        """Check a view that the layers of a member install."""
        self.views.installed(member, view)
        self.lives.installed(member, view)
        self.states.installed(member, view)

    def viewed(self, member: "Member", view: View) -> None:
        """Check a view that an application is shown, the last one of its `views`."""
        before = member.views[-2] if len(member.views) > 1 else None
        self.views.viewed(member, before, view)
        self.streams.viewed(member, before, view)
        strangers = member.multicast.remembered() - member.multicast.members.keys()
        if strangers:
            self.violated("memory", f"{member.name} keeps something of {strangers}, who are not in "
                                    "its view")

    def way(self, member: "Member", after: int, to: int) -> list[int]:
        """Return the ids of the views that a member's layers have installed after one
        view, up to another; and before them the id of the first."""
        return [after, *(each.id for each in self.views.history(member) if after < each.id <= to)]

    def note_cause(self) -> None:
        """Note that from now on a member that is alive may be suspected."""
        self.views.has_cause = True

    def stopped(self, member: "Member") -> None:
        """Check that no member stops: it starts anew instead."""
        self.violated("stopped", f"{member.name} stopped: {member.fault}")

    # ---------------------------------------------------------------------------------- on messages

    def delivered(self, receiver: "Member", batch: Batch) -> None:
        """Check messages that an application gets."""
        sender = self.cluster.incarnations.get(batch.sender.incarnation)
        if sender is not None and isinstance(batch, Skipped):
            self.streams.skipped(receiver, sender, batch)
        elif sender is None or not batch.payloads:
            self.violated("forgery", f"{receiver.name} got {batch}, which nobody sent")
        elif batch.dest is not None:
            self.unicast.delivered(receiver, sender, batch)
        else:
            self.streams.delivered(receiver, sender, batch)

    def undelivered(self, sender: "Member", batch: Batch) -> None:
        """Check what a sender is told about messages that not all have acknowledged."""
        of_kind = self.streams if batch.dest is None else self.unicast
        of_kind.undelivered(sender, batch)

    def finished(self, receiver: "Member", sender: "Member") -> Seqno | None:
        """Return up to which seqno the receiver has all that is meant for it of the
        sender's stream to everybody."""
        return self.streams.finished(receiver, sender)

    # ----------------------------------------------------------------------- on turns and datagrams

    def after_turn(self, member: "Member") -> None:
        """Check what a member keeps, and whether it may send."""
        self.windows.after_turn(member)
        if member.unicast.senders or member.unicast.receivers:
            self.unicast.check_connections(member)
        self.views.after_turn(member)

    def begin_silence(self) -> None:
        """Note that nothing is owed from now on. Members say only that they are alive;
        observers that lack nothing ask whether that is so, and have no answer."""
        self.num_heartbeats = Counter()

    def sent(self, member: "Member", datagram: bytes) -> None:
        """Check a datagram: nothing else is sent once nothing is owed."""
        self.windows.sent(member, datagram)
        if self.num_heartbeats is not None:
            header = member.stack.open(datagram)
            kind = member.stack.kind(header.kind).name if header is not None else "nothing"
            if kind == "alive" and len(datagram) <= HEARTBEAT:
                self.num_heartbeats[member.name] += 1
            elif kind != "close" and not (      # of a connection that has been idle
                    kind == "xmit_req" and has_only_a_question(member)):
                self.violated("quiescence", f"{member.name} sent {len(datagram)} bytes of kind "
                                            f"{kind} although nothing is owed")

    # --------------------------------------------------------------------------------- when it ends

    def check_agreement(self) -> None:
        """Check what must hold for the streams that have ended."""
        self.lives.check()
        self.streams.check_agreement()


def has_only_a_question(member: "Member") -> bool:
    """Return whether a member that asks for messages is an observer that knows of none
    that it lacks (Observing.ask_resting)."""
    windows = member.multicast.windows.values()
    return member.observes and not any(window.ring.num_missing for window in windows)
