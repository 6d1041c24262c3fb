"""The rule by which two members agree on a link, in every order of events: all
schedules of a small world, explored.

The world has two members, connections between them that carry records in order, and
ends that are read after what was said before. What each member does with a record is
the rule itself (LinkNumbers) and the few lines around it that tcp.py has.
"""

import copy

import pytest

from ringcast.transport.tcp.handshake import (
    FARTHEST,
    HIGHEST,
    SIZE,
    Kind,
    LinkNumbers,
    Record,
    decode,
    encode,
)

END = "end"


class Side:
    def __init__(self, dials, losses):
        self.numbers, self.link, self.dial = LinkNumbers(), None, None
        self.dials, self.losses = dials, losses                # that it may still begin, and have


class World:
    """Connections are (dialer, [what is on its way to side 0], [to side 1], open
    ends)."""

    def __init__(self, dials, losses):
        self.sides = [Side(dials[0], losses[0]), Side(dials[1], losses[1])]
        self.connections = []

    def key(self):
        sides = tuple((s.numbers.established, s.numbers.proposed, s.numbers.highest, s.link, s.dial,
                       s.dials, s.losses) for s in self.sides)
        return sides, tuple((dialer, tuple(to[0]), tuple(to[1]), tuple(ends)) for dialer, to,
                            ends in self.connections)

    def steps(self):
        for me, side in enumerate(self.sides):
            if side.link is None and side.dials:
                yield ("dial", me)
            if side.link is not None and side.losses:
                yield ("lose", me)
            for index, (_, to, ends) in enumerate(self.connections):
                if to[me] and ends[me]:
                    yield ("read", me, index)

    def step(self, what, me, index=None):
        if what == "dial":                      # a connection, on which the acceptor has said HELLO
            self.sides[me].dials -= 1
            to = [[], []]
            to[me].append((Kind.HELLO, 0))
            self.connections.append((me, to, [True, True]))
        elif what == "lose":                    # the program forgets it, the network does not tell
            self.sides[me].losses -= 1
            self.sides[me].dials += 2
            self.connections[self.sides[me].link][2][me] = False
            self.sides[me].link = None
        else:
            self.hear(me, index, self.connections[index][1][me].pop(0))

    def hear(self, me, index, said):
        side, mine = self.sides[me], self.connections[index][0] == me
        if said == END:
            self.close(me, index)
        elif said[0] == Kind.HELLO:
            if side.link is not None or side.numbers.proposed:
                self.close(me, index)
            else:
                side.dial = index
                self.say(me, index, (Kind.PROPOSE, side.numbers.propose()))
        elif said[0] == Kind.PROPOSE:
            if side.numbers.allows(said[1], peer_is_smaller=me == 1):
                self.say(me, index, (Kind.ACCEPT, said[1]))
                self.establish(me, index, said[1])
            else:
                self.say(me, index, (Kind.REFUSE, side.numbers.highest))
                self.close(me, index)
        elif said[0] == Kind.ACCEPT:
            assert mine and said[1] == side.numbers.proposed
            self.establish(me, index, said[1])
        else:
            side.numbers.learn(said[1])
            self.close(me, index)

    def establish(self, me, index, number):
        side = self.sides[me]
        for former in {side.dial, side.link} - {None, index}:
            self.close(me, former)
        side.numbers.establish(number)
        side.link, side.dial = index, None

    def say(self, me, index, record):
        if self.connections[index][2][1 - me]:
            self.connections[index][1][1 - me].append(record)

    def close(self, me, index):
        side = self.sides[me]
        if side.link == index:
            side.link = None
        if side.dial == index:
            side.dial = None
            side.numbers.give_up()
        self.connections[index][2][me] = False
        self.connections[index][1][me].clear()
        self.say(me, index, END)


def explore(world):
    """Every state that can be reached, with whether nothing more can happen in it."""
    todo, seen = [world], {world.key()}
    while todo:
        state = todo.pop()
        steps = list(state.steps())
        yield state, not steps
        for step in steps:
            after = copy.deepcopy(state)
            after.step(*step)
            if after.key() not in seen:
                seen.add(after.key())
                todo.append(after)


def numbers_of(world):
    return [side.numbers.established for side in world.sides]


@pytest.mark.parametrize("dials", [(1, 0), (0, 1), (1, 1), (2, 1), (1, 2), (2, 2)])
def test_in_every_order_of_dials_both_end_with_one_and_the_same_link(dials):
    ends = [state for state, is_end in explore(World(dials, (0, 0))) if is_end]
    assert ends
    for state in ends:
        first, second = (side.link for side in state.sides)
        assert first is not None and first == second, state.key()
        assert state.connections[first][2] == [True, True]


@pytest.mark.parametrize("dials", [(1, 1), (2, 2)])
def test_two_that_have_no_trouble_never_stand_on_two_connections(dials):
    for state, _ in explore(World(dials, (0, 0))):
        first, second = (side.link for side in state.sides)
        assert first == second or None in (first, second), state.key()


@pytest.mark.parametrize("dials, losses", [((1, 0), (1, 0)), ((1, 0), (0, 1)), ((0, 1), (1, 0)),
                                           ((1, 1), (1, 0)), ((1, 1), (0, 1)),
                                           ((1, 0), (1, 1))])
def test_who_has_forgotten_its_link_gets_a_new_one_on_which_both_agree(dials, losses):
    """Who has lost its link may dial twice more: at the end both have one, and the
    same."""
    for state, is_end in explore(World(dials, losses)):
        first, second = (side.link for side in state.sides)
        if is_end:
            assert first is not None and first == second, state.key()
        if first == second is not None:
            assert state.connections[first][2] == [True, True]


def test_on_each_side_the_numbers_of_links_only_grow():
    for state, _ in explore(World((1, 1), (1, 0))):
        before = numbers_of(state)
        for step in list(state.steps()):
            after = copy.deepcopy(state)
            after.step(*step)
            assert all(new >= old for old, new in zip(before, numbers_of(after), strict=True))


def test_a_refused_dialer_proposes_above_what_it_was_told():
    numbers = LinkNumbers()
    assert numbers.propose() == 1
    numbers.give_up()
    numbers.learn(41)
    assert numbers.propose() == 42


def test_nobody_takes_the_last_number_at_once():
    """In another's name, so that the one whose name it is could propose nothing
    higher."""
    numbers = LinkNumbers()
    numbers.establish(5)
    for far in (5 + FARTHEST + 1, HIGHEST):
        assert not numbers.allows(far, peer_is_smaller=True)
        numbers.learn(far)
    assert numbers.highest == 5 and numbers.allows(5 + FARTHEST, peer_is_smaller=False)


def test_records_are_read_as_they_were_written_and_no_flipped_bit_is_overlooked():
    record = Record(Kind.PROPOSE, (1 << 64) - 1, HIGHEST, ("127.0.0.1", 65535), b"n" * 16)
    for key in (b"", b"k" * 32):
        raw = encode(7, record, key=key)
        assert len(raw) == SIZE and decode(raw, 7, key=key) == record
        assert decode(raw, 8, key=key) is None
        for bit in range(8 * SIZE):
            flipped = bytearray(raw)
            flipped[bit // 8] ^= 1 << bit % 8
            assert decode(bytes(flipped), 7, key=key) is None


def test_a_record_answers_one_record_and_is_made_with_one_key():
    record = Record(Kind.ACCEPT, 1, 1, ("127.0.0.1", 7700), bytes(16))
    raw = encode(7, record, before=b"a" * SIZE, key=b"k" * 32)
    assert decode(raw, 7, b"a" * SIZE, b"k" * 32) == record
    for before, key in ((b"b" * SIZE, b"k" * 32), (b"a" * SIZE, b"l" * 32), (b"a" * SIZE, b""),
                        (b"", b"k" * 32)):
        assert decode(raw, 7, before, key) is None
