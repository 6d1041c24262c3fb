"""What must hold of an honest member after every turn, whatever the others say: its memory is bounded, and so is what it answers."""

import reference
from honest import CONFIG, DONT_LOOPBACK, HONEST, NAMES, Honest

from ringcast.config import MAX_MEMBERS, milliseconds
from ringcast.protocols import frag, multicast, unreliable
from ringcast.protocols.seqnos import MODULUS, precedes
from ringcast.protocols.stream import Stream
from ringcast.protocols.unicast3 import layer, memory
from ringcast.stack import EVERYONE, Kind

LOOK, GREETING = milliseconds(CONFIG.xmit_interval), milliseconds(CONFIG.hello_interval) // 10
SYNC = milliseconds(CONFIG.sync_min_interval)
LARGEST = 700                           # bytes of a data datagram here: a bundle, or one payload
LIMIT = 100                             # messages that an application takes in hand, at most


def check(member: Honest, now: int) -> None:
    check_multicast(member)
    check_connections(member, now)
    assert member.members.table.keys() == set(NAMES) >= member.members.heard.keys() | member.members.rumours.keys()
    assert len(member.unreliable.arrived) <= unreliable.MOST_WAITING
    check_answers(member, now)
    check_unicast_answers(member, now)


# ------------------------------------------------------------------------------------------------------------- memory

def check_stream(stream: Stream) -> None:
    """The window's bounds (R1), the flags of what is in it, and fragments."""
    ring = stream.ring
    assert (ring.hd - ring.low) % MODULUS <= (ring.hr - ring.low) % MODULUS <= ring.capacity == CONFIG.capacity
    assert ring.nbytes <= CONFIG.max_bytes + LARGEST
    assert all((seqno - ring.low - 1) % MODULUS < ring.capacity for seqno in stream.marks.flags)
    if stream.whole is not None:
        assert len(stream.whole.ordered) <= 1
        check_fragments(stream.whole.ordered, CONFIG.max_message_size)
        check_fragments(stream.whole.oob, CONFIG.max_message_size + CONFIG.max_bytes)


def check_fragments(assemblies: dict[int, frag.Assembly], most: int) -> None:
    """Their bytes, and their number: each takes memory of its own, however small it is."""
    assert sum(assembly.nbytes for assembly in assemblies.values()) <= most
    assert all(assembly.nbytes == sum(map(len, assembly.parts.values())) for assembly in assemblies.values())
    assert sum(len(assembly.parts) for assembly in assemblies.values()) <= 2 + 2 * most // frag.SMALLEST


def check_multicast(member: Honest) -> None:
    layer = member.multicast
    for stream in (layer.own, *(window.stream for window in (*layer.windows.values(), *layer.leaving))):
        check_stream(stream)
    others = layer.members.keys() - {member.incarnation}
    assert layer.windows.keys() | layer.joiners.keys() | layer.budgets.keys() <= others
    assert dict(layer.acks.items()).keys() <= layer.members.keys() and len(layer.members) <= len(NAMES)
    assert not layer.requests and len(layer.leaving) <= multicast.MOST_LEAVING and len(layer.early) <= MAX_MEMBERS
    assert not layer.early_deliveries


def check_connections(member: Honest, now: int) -> None:
    """Windows of those who are there, and of few who are gone; of what is closed or early, as little as is said."""
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
    assert unicast.closed.streams.keys() == {peer for peer, closed in unicast.closed.entries.items() if closed.stream is not None}
    early = unicast.early
    assert early.size == sum(map(len, early.packets.values())) <= memory.MOST_EARLY_OF_ALL
    assert all(0 < len(packets) <= memory.MOST_EARLY for packets in early.packets.values())
    assert unicast.unacked.keys() <= unicast.senders.keys() and unicast.gapped.keys() | unicast.ready.keys() <= unicast.receivers.keys()
    assert all(unicast.receivers[peer] is entry for table in (unicast.gapped, unicast.ready) for peer, entry in table.items())
    assert unicast.refusing | unicast.syncs.wanted.keys() <= unicast.members.keys() and not unicast.early_deliveries
    assert len(unicast.syncs.last_sync_sent) <= most_gone + len(NAMES)
    assert len(unicast.acks) <= member.num_arrived + member.num_finished


def check_hands(member: Honest) -> None:
    """OOB messages come at once, but not without an end when the application takes nothing. (Those of one turn are not counted.)"""
    assert sum(len(batch) for batch, _ in member.in_hand) <= LIMIT + CONFIG.capacity + member.most_messages


def check_finished(sender: Honest, members: tuple[Honest, ...]) -> None:
    """What a sender gives up was finished by all whom it was for."""
    for dest in (EVERYONE, *HONEST):
        said = sender.said.get(dest, [])
        while (number := sender.purged[dest]) < len(said) and not precedes(said[number].window.ring.low, said[number].seqno):
            for receiver in members:
                if dest in (EVERYONE, receiver.incarnation) and not (receiver is sender and said[number].flags & DONT_LOOPBACK):
                    assert number in receiver.heard[sender.incarnation, dest].finished, (sender.name, receiver.name, number)
            sender.purged[dest] += 1


# ------------------------------------------------------------------------------------------------------------ answers

def check_answers(member: Honest, now: int) -> None:
    """No amplification: what goes out is bounded by what came in and by time, whatever it was."""
    sent, looks = member.sent, 1 + now // LOOK
    answers = member.num_arrived + member.num_finished
    assert sent[Kind.HELLO] <= 1 + now // GREETING
    assert sent[Kind.HIGHEST] <= looks
    assert sent[Kind.XMIT_REQ] <= (len(NAMES) - 1) * looks
    assert sent[Kind.START] <= len(NAMES) * (looks + member.num_views)
    assert sent[Kind.ACK] <= answers + (len(NAMES) - 1) * looks + member.num_turns
    assert sent[Kind.UNRELIABLE] == member.num_shouted
    member.repeats = [each for each in member.repeats if each[0] > now - LOOK]
    for dest in {dest for _, dest, _ in member.repeats}:
        size = sum(size for _, to, size in member.repeats if to == dest)
        assert size <= 2 * (CONFIG.max_bytes + LARGEST)         # it may lie across two intervals


def check_unicast_answers(member: Honest, now: int) -> None:
    sent, arrived, looks = member.sent, member.arrived, 1 + now // LOOK
    counters, peers = member.unicast.counters, len(NAMES) - 1
    data = arrived[Kind.UNICAST] + arrived[Kind.UNICAST_FIRST]
    assert sent[Kind.UNICAST_ACK] <= data + member.num_finished + member.num_turns * peers
    assert sent[Kind.UNICAST_XMIT_REQ] <= peers * looks
    assert sent[Kind.SEND_FIRST_SEQNO] <= min(data, peers * (1 + now // SYNC) + member.num_views)
    assert counters.syncs_answered <= min(arrived[Kind.SEND_FIRST_SEQNO], counters.conns_opened + peers * (1 + now // SYNC))
    assert sent[Kind.CLOSE] <= arrived[Kind.UNICAST_XMIT_REQ] + counters.conns_closed


def note(member: Honest, kind: int, dest: int, datagram: bytes, now: int) -> None:
    """How much of a datagram is said again."""
    if kind == Kind.REPEAT:
        member.repeats.append((now, EVERYONE, len(datagram)))
    elif kind in (Kind.UNICAST, Kind.UNICAST_FIRST):
        uttered = member.uttered.setdefault(dest, set())
        payloads = [payload for _, _, run in reference.runs(datagram[reference.CONNECTION:]) for payload in run]
        repeated = sum(len(payload) for payload in payloads if payload in uttered)
        uttered.update(payloads)
        if repeated:
            member.repeats.append((now, dest, repeated))
