"""The acts of B against NAKACK2 and STABLE, besides those against any stack: it forges
their datagrams, floods, and now and then does its part."""

from typing import Any

import msgspec
from honest import HONEST, LARGE, Honest
from hostile import EDGES, HOSTILE, STRANGER, Hostile, make_run

from ringcast._core import wire
from ringcast.address import EVERYONE
from ringcast.config import MAX_MEMBERS
from ringcast.protocols.multicast import base as multicast, stable
from ringcast.protocols.multicast.resync import RESYNC

GRANTS = (1500, 1500, 0, 1, 2, 300, -1, 2**62, 2**64 - 1)
Digest = dict[int, tuple[int, int]]


class HostileNakack2(Hostile):
    """The acts of B, whether or not it is the coordinator, who is trusted."""

    # ---------------------------------------------------------------------------------------- words

    def forged_word(self, target: Honest) -> None:
        """Forge RESYNC, VOTE or STABILITY, now and then with a field too few or too
        many, or a wrong one."""
        kind = self.program.choice((RESYNC, stable.VOTE, stable.STABILITY, stable.VOTE,
                                    stable.STABILITY))
        if kind == RESYNC:
            fields: list[Any] = [self.number(target)]
        else:
            fields = [self.draw_view_id(target), self.program.choice(GRANTS),
                      self.draw_digest(target)]
            if kind == stable.VOTE:
                fields.insert(1, bool(self.program.byte() & 7))
            else:
                fields.append({self.somebody(target): self.somebody(target)
                               for _ in range(self.program.byte() % 4)})
        damage = self.program.byte()
        if damage >= 240:
            wrong = (None, "", -1, [], 2**64 - 1, 1.5, {}, {1: 1}, True)
            fields[damage % len(fields)] = self.program.choice(wrong)
        elif damage >= 230:
            fields = fields[:-1] if damage & 1 else [*fields, 0]
        self.forge(target, kind, msgspec.msgpack.encode(fields))

    def draw_view_id(self, target: Honest) -> int:
        """Return the present one, most often."""
        which = self.program.byte()
        if which >= 248:
            return EDGES[which % len(EDGES)]
        return target.view_id if which < 200 else target.view_id + which - 228

    def somebody(self, target: Honest) -> int:
        return self.program.choice((*HONEST, self.incarnation_of(target), HOSTILE, STRANGER, 0, -1,
                                    2**64 - 1))

    def draw_digest(self, target: Honest) -> Digest:
        """Return a digest of members and others, now and then of one too many."""
        many = self.program.choice((0, 0, 0, 0, 0, 0, MAX_MEMBERS - 1, MAX_MEMBERS,
                                    MAX_MEMBERS + 1))
        first = self.program.byte() << 16 if many else 0
        digest = {first + number: (1, 1) for number in range(many)}
        return digest | {self.somebody(target): (self.number(target), self.number(target))
                         for _ in range(self.program.byte() % 4)}

    def forged_stream(self, target: Honest) -> None:
        """Send more of B's messages, where its stream is or a little further."""
        window = target.multicast.windows.get(self.incarnation_of(target))
        first = (window.ring.hr if window else 0) + self.program.choice((1, 1, 1, 2, 9, 20))
        flags = self.program.choice((0, 0, 0, 1))
        sizes = [self.program.choice((0, 20, 250, LARGE))
                 for _ in range(1 + self.program.byte() % 12)]
        while sum(sizes) > 4 * LARGE:       # an empty window takes a datagram of any size
            sizes.pop()
        self.put_last(target, self.program.choice((multicast.DATA, multicast.REPEAT)),
                      make_run(first, flags, [bytes(size) for size in sizes]))

    def put_last(self, target: Honest, kind: int, body: bytes, sender: int | None = None) -> None:
        """Put a datagram after the rest of what the target receives."""
        sender = self.incarnation_of(target) if sender is None else sender
        target.arriving.append(wire.make_datagram(kind, self.id, sender, EVERYONE, body))

    # --------------------------------------------------------------------------------------- floods

    def flood_queue(self, target: Honest) -> None:
        """Send messages of many strangers, which wait for a view that has them."""
        count = 1 + self.program.byte()
        first = self.program.byte() << 8
        payload = bytes(self.program.byte())
        body = make_run(1, 0, [payload] * (1 + self.program.byte() % 12))
        for number in range(count):
            sender = STRANGER + (first + number << 32)
            self.put_last(target, multicast.DATA, body, sender)

    def flood_requests(self, target: Honest) -> None:
        """Ask for everything by RESYNC and XMIT-REQ, in turn or all the same."""
        ring = target.multicast.send_window.ring
        resync = (RESYNC, msgspec.msgpack.encode([ring.low]))
        request = (multicast.XMIT_REQ, msgspec.msgpack.encode([[(ring.low, ring.hr)]]))
        words = self.program.choice(((resync,), (request,), (resync, request)))
        for number in range(1 + self.program.byte() % 64):
            self.put_last(target, *words[number % len(words)])

    def flood_votes(self, target: Honest) -> None:
        """Send votes, each on other members."""
        for number in range(1 + self.program.byte() % 8):
            digest = {(number << 32) + each: (1, 1) for each in range(MAX_MEMBERS)}
            vote = msgspec.msgpack.encode([target.view_id, True, 1500, digest])
            self.put_last(target, stable.VOTE, vote)

    # ------------------------------------------------------------------------------------- its part

    def finish_all(self, target: Honest) -> None:
        """Tell that B has finished all that it was sent."""
        incarnation, layer = self.incarnation_of(target), target.multicast
        digest = {target.incarnation: (layer.send_window.sent, layer.send_window.sent),
                  incarnation: (0, 0)}
        digest |= {sender: (window.ring.hr, window.ring.hr)
                   for sender, window in layer.windows.items()}
        vote = msgspec.msgpack.encode([target.view_id, True, 1500, digest])
        self.put_last(target, stable.VOTE, vote)

    def conclude(self, target: Honest) -> None:
        """Tell, as an honest coordinator does, what both members have finished."""
        digest: Digest = {}
        for sender in HONEST:
            windows = [each.multicast.windows.get(sender) for each in self.members
                       if each.incarnation != sender]
            own = next(each.multicast.own for each in self.members if each.incarnation == sender)
            if windows[0] is not None:
                finished = min((own.finished, windows[0].stream.finished))
                digest[sender] = (finished, windows[0].ring.hr)
        report = msgspec.msgpack.encode([target.view_id, 1500, digest, {}])
        for each in self.members:
            self.put_last(each, stable.STABILITY, report)

    def mislead(self, target: Honest) -> None:
        """Tell that everything that was sent is finished by all."""
        digest = {each.incarnation: (each.multicast.send_window.sent,) * 2 for each in self.members}
        report = [target.view_id, self.program.choice(GRANTS), digest, {}]
        self.put_last(target, stable.STABILITY, msgspec.msgpack.encode(report))

    ACTS = (forged_word, forged_word, forged_word, forged_word, forged_stream,
            forged_stream, forged_stream, flood_queue, flood_requests, flood_votes,
            finish_all, finish_all, finish_all, conclude, mislead)
