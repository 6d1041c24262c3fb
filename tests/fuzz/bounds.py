"""What must hold of an honest member after every turn, whatever the others say: its
memory is bounded, and so is what it answers.

And nobody purges what somebody who is there has not finished. Of all this one thing is
exempt: under NAKACK2 the coordinator of the view is trusted with STABILITY, so a
hostile one can make its members purge too early, and what was purged never comes to who
lacks it; and it can make them wait for what was never sent, so that the rest of a large
message may not find room. A hostile member that is not the coordinator cannot, and
neither of them can make a member deliver twice, out of order or with a gap.
"""

import reference
from honest import CONFIG, DONT_LOOPBACK, HONEST, LARGE, NAMES, Honest

from ringcast.address import EVERYONE
from ringcast.config import MAX_MEMBERS, milliseconds
from ringcast.protocols import frag, unreliable
from ringcast.protocols.multicast import base as multicast, mcast, nakack2, stable
from ringcast.protocols.multicast.lossless import MOST_ROOM
from ringcast.protocols.multicast.resync import PAUSE, RESYNC
from ringcast.protocols.multicast.starts import START
from ringcast.protocols.multicast.windows import MOST_LEAVING
from ringcast.protocols.seqnos import MODULUS, precedes
from ringcast.protocols.static_members import HELLO
from ringcast.protocols.stream import Stream
from ringcast.protocols.unicast3 import control, layer, memory
from ringcast.protocols.unreliable import UNRELIABLE

LOOK, GREETING = milliseconds(CONFIG.xmit_interval), milliseconds(CONFIG.hello_interval) // 10
SYNC, STABLE, GAP = (milliseconds(time) for time in (CONFIG.sync_min_interval,
                                                     CONFIG.stable_interval, CONFIG.gap_timeout))
LARGEST = 700                           # bytes of a data datagram here: a bundle, or one payload
LIMIT = 100                             # messages that an application takes in hand, at most


def check(member: Honest, now: int) -> None:
    check_multicast(member)
    check_connections(member, now)
    assert member.members.table.keys() == set(NAMES) >= member.members.heard.keys() | member.members.rumours.keys()
    assert len(member.unreliable.arrived) <= unreliable.MOST_WAITING
    check_answers(member, now)
    check_unicast_answers(member, now)


# ------------------------------------------------------------------------------------------- memory

def check_stream(stream: Stream, most: int = CONFIG.max_bytes + LARGEST) -> None:
    """The window's bounds (R1), the flags of what is in it, and fragments."""
    ring = stream.ring
    assert (ring.hd - ring.low) % MODULUS <= (ring.hr - ring.low) % MODULUS <= ring.capacity == CONFIG.capacity
    assert ring.nbytes <= most
    assert all((seqno - ring.low - 1) % MODULUS < ring.capacity for seqno in stream.marks.flags)
    if stream.reassembly is not None:
        assert len(stream.reassembly.ordered) <= 1
        check_fragments(stream.reassembly.ordered, CONFIG.max_message_size)
        check_fragments(stream.reassembly.oob, CONFIG.max_message_size + CONFIG.max_bytes)


def check_fragments(assemblies: dict[int, frag.Assembly], most: int) -> None:
    """Their bytes, and their number: each takes memory of its own, however small it
    is."""
    assert sum(assembly.nbytes for assembly in assemblies.values()) <= most
    assert all(assembly.nbytes == sum(map(len, assembly.parts.values()))
               for assembly in assemblies.values())
    assert sum(len(assembly.parts) for assembly in assemblies.values()) <= 2 + 2 * most // frag.SMALLEST


def check_multicast(member: Honest) -> None:
    layer = member.multicast
    lossless = isinstance(layer, nakack2.Nakack2) and layer.lossless
    check_stream(layer.own)
    for window in (*layer.windows.values(), *layer.windows.leaving):
        handed = (window.ring.hd - window.ring.low) % MODULUS  # what comes next always has room,
                                                               # and stays until LOW passes it
        check_stream(window.stream, MOST_ROOM * CONFIG.max_bytes if lossless
                     else CONFIG.max_bytes + (1 + handed) * LARGE)
    others = layer.members.keys() - {member.incarnation}
    assert layer.windows.keys() | layer.starts.joiners.keys() <= others and len(layer.members) <= len(NAMES)
    if isinstance(layer, nakack2.Nakack2):
        check_nakack2(layer)
        check_stable(layer.above)
    else:
        assert layer.budgets.keys() <= others and dict(layer.acks.items()).keys() <= layer.members.keys()
    assert not layer.requests and len(layer.windows.leaving) <= MOST_LEAVING
    assert len(layer.starts.deferred) <= MAX_MEMBERS
    assert not layer.oob.batches


def check_nakack2(layer: nakack2.Nakack2) -> None:
    """What waits for a window or for room in one, and tables only of members."""
    queue, others = layer.queue, layer.windows.keys() | layer.starts.joiners.keys()
    entries = queue._entries
    assert queue.num_bytes == sum(len(packet.data) for packet, _ in entries) <= queue.max_bytes
    assert queue.num_messages == sum(messages for _, messages in entries)
    assert queue.bound == (0 if not layer.retransmits else layer.config.become_server_queue_size)
    assert not queue.bound or queue.num_messages <= queue.bound
    assert len(queue.incomplete) <= MAX_MEMBERS
    assert layer.intake.held.keys() <= layer.windows.keys() and all(layer.intake.held.values()) and (
        layer.lossless or not layer.intake.held)
    tables = layer.resyncs.wanted.keys() | layer.resyncs.answered.keys() | layer.resyncs.stalled.keys()
    assert tables | others <= layer.members.keys() - {layer.local.incarnation}


def check_stable(layer: stable.Stable) -> None:
    """Votes only of members, and on members. What a coordinator says of others is as
    much as one datagram holds."""
    members = set(layer.members)
    assert layer.votes.keys() | layer.known.keys() <= members
    assert len(layer.early) <= MAX_MEMBERS
    assert all(vote.view_id > layer.view_id for vote in layer.early.values())
    assert all(vote.digest.keys() <= members for vote in layer.votes.values())
    assert not layer.votes or layer.coordinator == layer.local.incarnation
    assert len(layer.awaited) <= MAX_MEMBERS


def waiting(member: Honest) -> int:
    """Messages that came in earlier turns and have found no place yet."""
    layer = member.multicast
    if not isinstance(layer, nakack2.Nakack2):
        return 0
    held = [packet for packets in layer.intake.held.values() for packet in packets]
    runs = [run for packet in held for run in reference.runs(packet.data[reference.HEADER:]) or ()]
    return len(layer.queue) + sum(len(payloads) for _, _, payloads in runs)


def check_connections(member: Honest, now: int) -> None:
    """Windows of those who are there, and of few who are gone; of what is closed or
    early, as little as is said."""
    unicast = member.unicast
    most_gone, most_leaving = max(layer.MOST_GONE, len(NAMES)), max(layer.MOST_LEAVING, len(NAMES))
    kept = [entry.stream for entry in (*unicast.receivers.values(), *unicast.leaving)]
    kept += [closed.stream for closed in unicast.closed.streams.values()]
    for stream in kept:
        check_stream(stream)
    for entry in unicast.senders.values():
        assert entry.num_unacked() <= CONFIG.capacity and entry.ring.nbytes <= CONFIG.max_bytes + LARGEST
        assert all(precedes(entry.ring.low, seqno) for seqno in entry.window.marks.flags)
    assert len(unicast.receivers.keys() - unicast.members.keys()) <= most_gone and len(unicast.leaving) <= most_leaving
    assert len(unicast.closed) <= CONFIG.max_closed_connections and len(unicast.closed.streams) <= memory.MOST_STREAMS
    assert unicast.closed.streams.keys() == {peer for peer, closed in unicast.closed.entries.items()
                                             if closed.stream is not None}
    early = unicast.early
    assert early.size == sum(map(len, early.packets.values())) <= memory.MOST_EARLY_OF_ALL
    assert all(0 < len(packets) <= memory.MOST_EARLY for packets in early.packets.values())
    assert unicast.unacked.keys() <= unicast.senders.keys() and unicast.gapped.keys() | unicast.ready.keys() <= unicast.receivers.keys()
    assert all(unicast.receivers[peer] is entry for table in (unicast.gapped, unicast.ready)
               for peer, entry in table.items())
    assert unicast.refusing | unicast.syncs.wanted.keys() <= unicast.members.keys() and not unicast.oob.batches
    assert len(unicast.syncs.last_sync_sent) <= most_gone + len(NAMES)
    assert len(unicast.acks) <= member.num_arrived + member.num_finished


def check_hands(member: Honest) -> None:
    """OOB messages come at once, but not without an end when the application takes
    nothing. (Those of one turn are not counted.)"""
    assert sum(len(batch) for batch, _ in member.outstanding) <= LIMIT + CONFIG.capacity + member.most_messages


def check_finished(sender: Honest, members: tuple[Honest, ...], trusting: bool) -> bool:
    """What a sender gives up was finished by all whom it was for. Only a coordinator
    can make it give up more, because nobody but the coordinator sees the votes: of
    those who are `trusting` it is said that they were misled, by False."""
    for dest in (EVERYONE, *HONEST):
        said = sender.said.get(dest, [])
        while (number := sender.purged[dest]) < len(said) and not precedes(said[number].window.ring.low, said[number].seqno):
            for receiver in members:
                if dest in (EVERYONE, receiver.incarnation) and not (receiver is sender
                                                                     and said[number].flags & DONT_LOOPBACK):
                    finished = number in receiver.heard[sender.incarnation, dest].finished
                    if trusting and dest == EVERYONE and not finished:
                        return False
                    assert finished, (sender.name, receiver.name, number)
            sender.purged[dest] += 1
    return True


# ------------------------------------------------------------------------------------------ answers

def check_answers(member: Honest, now: int) -> None:
    """No amplification: what goes out is bounded by what came in and by time, whatever
    it was."""
    sent, looks = member.sent, 1 + now // LOOK
    answers = member.num_arrived + member.num_finished
    assert sent[HELLO] <= 1 + now // GREETING
    assert sent[multicast.HIGHEST] <= len(NAMES) * looks  # to all, and to each who says that it
                                                          # takes no messages
    assert sent[multicast.XMIT_REQ] <= (len(NAMES) - 1) * looks
    assert sent[START] <= len(NAMES) * (looks + member.num_views) + member.num_links
    assert sent[mcast.ACK] <= answers + (len(NAMES) - 1) * looks + member.num_turns
    assert sent[UNRELIABLE] == member.num_shouted
    check_rounds(member, now)
    member.resent = [each for each in member.resent if each[0] > now - PAUSE]
    windows = 2 + member.num_links + PAUSE // LOOK  # RESYNCs, one more for each
                                                                   # link; and repeats
    for dest in {dest for _, dest, _ in member.resent}:
        assert sum(size for _, to, size in member.resent if to == dest) <= windows * (
            CONFIG.max_bytes + LARGEST)
    member.repeats = [each for each in member.repeats if each[0] > now - LOOK]
    for dest in {dest for _, dest, _ in member.repeats}:
        size = sum(size for _, to, size in member.repeats if to == dest)
        assert size <= 2 * (CONFIG.max_bytes + LARGEST)         # it may lie across two intervals


def check_rounds(member: Honest, now: int) -> None:
    """NAKACK2's words to one member are answers, or of a link or a view; STABLE votes
    by its interval, or when much is finished."""
    sent, arrived = member.sent, member.arrived
    assert sent[nakack2.STARTED] <= arrived[START]
    if isinstance(member.multicast, nakack2.Nakack2):
        counters = member.multicast.counters
        assert counters.resyncs_sent == sent[RESYNC]
        most = member.num_links + counters.num_gaps + arrived[START] + (len(NAMES) - 1) * member.num_switches
        assert sent[RESYNC] <= most
        assert counters.num_gaps <= (len(NAMES) - 1) * (1 + now // (GAP - LOOK))
    votes = 1 + now // STABLE + 2 * member.num_views + member.num_links + member.num_finished + len(NAMES) * member.num_turns
    assert sent[stable.VOTE] <= votes
    assert sent[stable.STABILITY] <= votes + arrived[stable.VOTE] + member.num_links


def check_unicast_answers(member: Honest, now: int) -> None:
    sent, arrived, looks = member.sent, member.arrived, 1 + now // LOOK
    counters, peers = member.unicast.counters, len(NAMES) - 1
    data = arrived[control.MESSAGE] + arrived[control.FIRST]
    assert sent[control.ACK] <= data + member.num_finished + member.num_turns * peers
    assert sent[control.XMIT_REQ] <= peers * looks
    assert sent[control.SEND_FIRST_SEQNO] <= min(data, peers * (1 + now // SYNC) + member.num_views)
    assert counters.syncs_answered <= min(arrived[control.SEND_FIRST_SEQNO],
                                          counters.conns_opened + peers * (1 + now // SYNC))
    # A refusal that comes again is answered with CLOSE again, until the leaver knows.
    assert sent[control.CLOSE] <= arrived[control.XMIT_REQ] + arrived[control.ACK] + counters.conns_closed


def note(member: Honest, kind: int, dest: int, datagram: bytes, now: int) -> None:
    """How much of a datagram is said again."""
    if kind == multicast.REPEAT and isinstance(member.multicast, nakack2.Nakack2) and member.multicast.lossless:
        member.resent.append((now, dest, len(datagram)))
    elif kind == multicast.REPEAT:
        member.repeats.append((now, EVERYONE, len(datagram)))
    elif kind in (control.MESSAGE, control.FIRST):
        uttered = member.uttered.setdefault(dest, set())
        payloads = [payload for _, _, run in reference.runs(datagram[reference.CONNECTION:])
                    for payload in run]
        repeated = sum(len(payload) for payload in payloads if payload in uttered)
        uttered.update(payloads)
        if repeated:
            member.repeats.append((now, dest, repeated))
