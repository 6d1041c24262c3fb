"""The bounds that an honest member keeps after every turn, whatever the others send: of
its memory and of its answers.

And no member purges what another member of the view has not finished. One thing is
exempt. Under NAKACK2 the members trust the coordinator of the view with STABILITY. A
hostile one can make them purge too early, and a member that lacks what was purged never
gets it. It can also make them wait for messages that were never sent, so that the rest
of a large message finds no room. A hostile member that is not the coordinator cannot do
that. Neither of them can make a member deliver twice, out of order or with a gap.
"""

import reference
from honest import CONFIG, DONT_LOOPBACK, HONEST, LARGE, Honest

from ringcast.address import EVERYONE
from ringcast.config import MAX_MEMBERS, nanoseconds
from ringcast.protocols import frag, parts, unreliable
from ringcast.protocols.membership import Membership, coordinator, messages
from ringcast.protocols.multicast import (
    base as multicast,
    fetching,
    flush,
    mcast,
    nakack2,
    retention,
    stable,
)
from ringcast.protocols.multicast.keeping import MOST_HELD
from ringcast.protocols.multicast.lossless import MOST_ROOM
from ringcast.protocols.multicast.resync import PAUSE, RESYNC
from ringcast.protocols.multicast.windows import Departed
from ringcast.protocols.seqnos import MODULUS, precedes
from ringcast.protocols.stream import Stream
from ringcast.protocols.unicast3 import control, delivery, memory, receiving
from ringcast.protocols.unreliable import UNRELIABLE

SCAN, SEEKING = nanoseconds(CONFIG.xmit_interval), nanoseconds(CONFIG.seek_interval)
SYNC, STABLE, GAP = (nanoseconds(time) for time in (
    CONFIG.sync_min_interval, CONFIG.stable_interval, CONFIG.gap_timeout))
LARGEST = 700                           # bytes of a data datagram here: a bundle, or one payload
LARGEST_FORGED = 4 * LARGE              # bytes of messages in a datagram that B sends
LIMIT = 100                             # undelivered messages that an application allows, at most


def check(member: Honest, now: int) -> None:
    check_multicast(member)
    check_connections(member, now)
    check_membership(member.members)
    check_parts(member)
    assert len(member.unreliable.arrived) <= unreliable.MOST_WAITING
    check_answers(member, now)
    check_unicast_answers(member, now)


# ------------------------------------------------------------------------------------------- memory

def check_membership(layer: Membership) -> None:
    """Check that tables have members only, or few others."""
    discovery, detection = layer.meeting.discovery, layer.detection
    assert len(layer.members) <= MAX_MEMBERS
    assert len(discovery.seekers) <= MAX_MEMBERS and len(discovery.others) <= MAX_MEMBERS
    assert sum(map(len, discovery.strangers.values())) <= 8 * MAX_MEMBERS
    assert len(layer.coordinator.offered) <= coordinator.MOST_OFFERS
    change = layer.coordinator.change
    assert change is None or (len(change.seats) <= MAX_MEMBERS
                              and change.reports.keys() <= change.members)
    known = layer.members.keys()
    assert layer.leavers.keys() <= known and detection.reports.keys() <= known
    assert detection.probing.keys() | detection.silent | detection.departed <= known
    assert detection.said.keys() == detection.reports.keys()


def check_parts(member: Honest) -> None:
    """Check how much is kept of control datagrams that are not whole."""
    layer = next(each for each in member.stack.layers if isinstance(each, parts.Parts))
    partials = layer.partials.values()
    assert sum(partial.size for partial in partials) == layer.size <= parts.MOST_BYTES
    assert sum(len(each.parts) for each in partials) <= parts.MOST_BYTES // parts.OVERHEAD


def check_stream(stream: Stream, most: int = CONFIG.max_bytes + LARGEST,
                 capacity: int = CONFIG.capacity) -> None:
    """Check the window's bounds (R1), the flags of what is in it, and fragments."""
    ring = stream.ring
    assert (ring.hd - ring.low) % MODULUS <= (ring.hr - ring.low) % MODULUS <= ring.capacity
    assert ring.capacity == capacity
    assert stream.kept_marks is None or all(
        (seqno - ring.low - 1) % MODULUS < ring.capacity for seqno in stream.kept_marks.flags)
    assert ring.nbytes <= most
    assert all((seqno - ring.low - 1) % MODULUS < ring.capacity for seqno in stream.marks.flags)
    if stream.reassembly is not None:
        assert len(stream.reassembly.ordered) <= 1
        check_fragments(stream.reassembly.ordered, CONFIG.max_message_size)
        check_fragments(stream.reassembly.oob, CONFIG.max_message_size + CONFIG.max_bytes)


def check_fragments(assemblies: dict[int, frag.Assembly], most: int) -> None:
    """Check the bytes of fragments and their number: each takes memory of its own."""
    assert sum(assembly.nbytes for assembly in assemblies.values()) <= most
    assert all(assembly.nbytes == sum(map(len, assembly.parts.values()))
               for assembly in assemblies.values())
    num_parts = sum(len(assembly.parts) for assembly in assemblies.values())
    assert num_parts <= 2 + 2 * most // frag.SMALLEST


def check_multicast(member: Honest) -> None:
    layer = member.multicast
    flushing, departed = layer.flushing, layer.flushing.departed
    lossless = isinstance(layer, nakack2.Nakack2) and layer.lossless
    check_stream(layer.own)
    for window in (*layer.windows.values(), *departed.values()):
        # one message may exceed the bytes (decision 7); over TCP, one datagram
        most = window.ring.max_bytes + LARGE
        if lossless and not isinstance(window, Departed):
            most = MOST_ROOM * CONFIG.max_bytes + LARGEST_FORGED
        check_stream(window.stream, most, retention.ROOM * CONFIG.capacity)
        assert isinstance(window, Departed) or lossless or window.ring.max_bytes == max(
            retention.ROOM * CONFIG.max_bytes, CONFIG.max_datagram)
    others = layer.members.keys() - {member.incarnation}
    assert layer.windows.keys() <= others
    assert len(layer.members) <= MAX_MEMBERS
    assert len(departed) <= max(2 * MOST_HELD, MAX_MEMBERS)
    assert layer.fetching.wanted.keys() <= departed.keys() | layer.windows.keys()
    streams = {window.stream for window in (*layer.windows.values(), *departed.values())}
    assert flushing.unsettled | flushing.skips.keys() <= streams
    assert len(layer.fetching.paces) <= MAX_MEMBERS + MOST_HELD
    assert len(flushing.pending) <= flush.MOST_PENDING
    if isinstance(layer, nakack2.Nakack2):
        check_nakack2(layer)
        check_stable(layer.above)
    else:
        assert layer.budgets.keys() <= others
        assert dict(layer.acks.items()).keys() <= layer.members.keys()
    assert not layer.requests and not layer.oob.batches


def check_nakack2(layer: nakack2.Nakack2) -> None:
    """Check what waits for a window or for room in one. Tables have members only."""
    queue, others = layer.queue, layer.windows.keys()
    entries = queue._entries
    assert queue.num_bytes == sum(len(packet.data) for packet, _ in entries) <= queue.max_bytes
    assert queue.num_messages == sum(messages for _, messages in entries)
    assert queue.bound == (0 if not layer.retransmits else layer.config.become_server_queue_size)
    assert not queue.bound or queue.num_messages <= queue.bound
    assert layer.resyncs.members() | others <= layer.members.keys() - {layer.local.incarnation}


def check_stable(layer: stable.Stable) -> None:
    """Check that votes are of members and on members only. What a coordinator says of
    others fits in one datagram."""
    members = set(layer.members)
    assert layer.votes.keys() | layer.known.keys() <= members
    assert len(layer.early) <= MAX_MEMBERS
    assert all(vote.view_id > layer.view_id for vote in layer.early.values())
    assert all(vote.digest.keys() <= members for vote in layer.votes.values())
    assert not layer.votes or layer.coordinator == layer.local.incarnation
    assert len(layer.awaited) <= MAX_MEMBERS


def num_waiting(member: Honest) -> int:
    """Return how many messages of earlier turns still wait for a place."""
    layer = member.multicast
    if not isinstance(layer, nakack2.Nakack2):
        return 0
    return len(layer.queue)


def check_connections(member: Honest, now: int) -> None:
    """Check that there are windows of members, few of others, and that what is kept of
    closed and early connections is bounded."""
    unicast = member.unicast
    most_gone = max(receiving.MOST_GONE, 1 + member.most_peers)
    most_leaving = max(delivery.MOST_LEAVING, 1 + member.most_peers)
    kept = [entry.stream for entry in (*unicast.receivers.values(), *unicast.leaving)]
    kept += [closed.stream for closed in unicast.closed.streams.values()]
    for stream in kept:
        check_stream(stream, CONFIG.max_bytes + LARGE)          # one may exceed the bytes, as above
    for entry in unicast.senders.values():
        assert entry.num_unacked() <= CONFIG.capacity
        assert entry.ring.nbytes <= CONFIG.max_bytes + LARGEST
        assert all(precedes(entry.ring.low, seqno) for seqno in entry.window.marks.flags)
    assert len(unicast.receivers.keys() - unicast.members.keys()) <= most_gone
    assert len(unicast.leaving) <= most_leaving
    closed = unicast.closed
    assert len(closed) <= CONFIG.max_closed_connections
    assert sum(each.nbytes for each in closed.streams.values()) <= (
        memory.MOST_WINDOWS * CONFIG.max_bytes)
    assert closed.streams.keys() == {peer for peer, entry in closed.entries.items()
                                     if entry.stream is not None}
    early = unicast.early
    assert early.size == sum(map(len, early.packets.values())) <= memory.MOST_EARLY_OF_ALL
    assert all(0 < len(packets) <= memory.MOST_EARLY for packets in early.packets.values())
    senders, receivers, ready = unicast.senders, unicast.receivers, unicast.deliveries.ready
    assert senders.unacked.keys() <= senders.keys()
    assert all(receivers.get(peer) is entry for table in (receivers.gapped, ready)
               for peer, entry in table.items())
    assert senders.refusing | receivers.syncs.wanted.keys() <= unicast.members.keys()
    assert len(receivers.syncs.last_sync_sent) <= most_gone + 1 + member.most_peers
    assert not unicast.deliveries.oob.batches
    assert len(unicast.acks.heap) <= member.num_arrived + member.num_finished


def check_outstanding(member: Honest) -> None:
    """Check that OOB messages, which come at once, come only as long as the application
    takes them. Those of one turn are not counted."""
    num_messages = sum(len(batch) for batch, _ in member.outstanding)
    assert num_messages <= LIMIT + CONFIG.capacity + member.most_messages


def check_purged(sender: Honest, members: tuple[Honest, ...], trusting: bool) -> bool:
    """Check that all receivers have finished what a sender purges. Only a coordinator
    can make it purge more, because only the coordinator sees the votes: return False
    when it has done that to members that are `trusting`."""
    for dest in (EVERYONE, *HONEST):
        accepted = sender.accepted.get(dest, [])
        while (number := sender.purged[dest]) < len(accepted):
            message = accepted[number]
            if precedes(message.window.ring.low, message.seqno):
                break
            for receiver in members:
                if dest not in (EVERYONE, receiver.incarnation) or (
                        receiver is sender and message.flags & DONT_LOOPBACK):
                    continue
                finished = number in receiver.received[sender.incarnation, dest].finished
                if trusting and dest == EVERYONE and not finished:
                    return False
                assert finished, (sender.name, receiver.name, number)
            sender.purged[dest] += 1
    return True


# ------------------------------------------------------------------------------------------ answers

def check_answers(member: Honest, now: int) -> None:
    """Check that what a member sends is bounded by what it received and by time,
    whatever it received: there is no amplification."""
    sent, arrived, scans = member.sent, member.arrived, 1 + now // SCAN
    answers = member.num_arrived + member.num_finished
    peers = member.most_peers
    assert sent[messages.SEEK] <= 1 + now // SEEKING + member.num_links
    # Each word is answered once, in a view to each member; and time passes.
    about_views = sum(sent[kind] for kind in Membership.kinds)
    assert about_views <= (1 + peers) * (answers + member.num_turns + now // SEEKING)
    # to all, to each who is asked for its credit, and when LOW has risen
    assert sent[multicast.HIGHEST] <= (1 + peers) * scans + sum(arrived.values())
    assert sent[multicast.XMIT_REQ] <= peers * scans
    assert sent[mcast.ACK] <= answers + peers * (scans + member.num_views) + member.num_turns
    assert sent[fetching.FETCH] <= (peers + MOST_HELD) * (scans + member.num_views)
    assert sent[fetching.HELD] == 0 or arrived[fetching.FETCH] > 0
    assert sent[UNRELIABLE] == member.num_unreliable
    check_nakack2_answers(member, now)
    member.resent = [each for each in member.resent if each[0] > now - PAUSE]
    # RESYNCs, one more for each link; and repeats
    windows = 2 + member.num_links + PAUSE // SCAN
    for dest in {dest for _, dest, _ in member.resent}:
        size = sum(size for _, to, size in member.resent if to == dest)
        assert size <= windows * (CONFIG.max_bytes + LARGEST)
    member.repeats = [each for each in member.repeats if each[0] > now - SCAN]
    for dest in {dest for _, dest, _ in member.repeats}:
        size = sum(size for _, to, size in member.repeats if to == dest)
        assert size <= 2 * (CONFIG.max_bytes + LARGEST)         # it may lie across two intervals


def check_nakack2_answers(member: Honest, now: int) -> None:
    """Check that NAKACK2 sends to one member only answers, or after a link or a view,
    and that STABLE votes by its interval or when many messages are finished."""
    sent, arrived, peers = member.sent, member.arrived, member.most_peers
    if isinstance(member.multicast, nakack2.Nakack2):
        counters = member.multicast.counters
        assert counters.resyncs_sent == sent[RESYNC]
        most = (member.num_links + counters.num_gaps + counters.num_dropped_for_resync
                + peers * (2 * member.num_views + member.num_switches))
        assert sent[RESYNC] <= most
        assert counters.num_gaps <= peers * (1 + now // (GAP - SCAN))
    votes = (1 + now // STABLE + 2 * member.num_views + member.num_links + member.num_finished
             + (1 + peers) * member.num_turns)
    assert sent[stable.VOTE] <= votes
    assert sent[stable.STABILITY] <= votes + arrived[stable.VOTE] + member.num_links


def check_unicast_answers(member: Honest, now: int) -> None:
    sent, arrived, scans = member.sent, member.arrived, 1 + now // SCAN
    counters, peers = member.unicast.counters, member.most_peers
    data = arrived[control.MESSAGE] + arrived[control.FIRST]
    assert sent[control.ACK] <= data + member.num_finished + member.num_turns * peers
    assert sent[control.XMIT_REQ] <= peers * scans
    # What came too early is looked at again with each view.
    assert sent[control.SEND_FIRST_SEQNO] <= min(data, peers * (1 + now // SYNC)) + member.num_views
    assert counters.syncs_answered <= min(arrived[control.SEND_FIRST_SEQNO],
                                          counters.conns_opened + peers * (1 + now // SYNC))
    # A repeated refusal is answered with CLOSE again, until the leaver knows.
    refusals = arrived[control.XMIT_REQ] + arrived[control.ACK]
    assert sent[control.CLOSE] <= refusals + counters.conns_closed


def note_repeats(member: Honest, kind: int, dest: int, datagram: bytes, now: int) -> None:
    """Note how many bytes of a datagram are repeated."""
    layer = member.multicast
    if kind == multicast.REPEAT and isinstance(layer, nakack2.Nakack2) and layer.lossless:
        member.resent.append((now, dest, len(datagram)))
    elif kind == multicast.REPEAT:
        member.repeats.append((now, EVERYONE, len(datagram)))
    elif kind == fetching.HELD:                 # each stream has a pace of its own
        member.repeats.append((now, -(fetching.HELD.origin(datagram) or 0), len(datagram)))
    elif kind in (control.MESSAGE, control.FIRST):
        sent_payloads = member.sent_payloads.setdefault(dest, set())
        payloads = [payload for _, _, run in reference.runs(datagram[reference.CONNECTION:])
                    for payload in run]
        repeated = sum(len(payload) for payload in payloads if payload in sent_payloads)
        sent_payloads.update(payloads)
        if repeated:
            member.repeats.append((now, dest, repeated))
