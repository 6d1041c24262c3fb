"""Seqnos are 64 bits wide and compare by serial arithmetic (decision 6): of two, the
later is less than 2**63 steps ahead.

Ranges of seqnos are inclusive pairs (first, last).
"""

from collections import deque
from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

Seqno = int
Range = tuple[Seqno, Seqno]
# A number of 64 bits in a body, checked while it is decoded: msgpack has none that are
# larger.
Number = Annotated[int, Meta(ge=0)]

MODULUS = 1 << 64
HALF = 1 << 63


def precedes(a: Seqno, b: Seqno) -> bool:
    """Return whether `a` comes before `b`; nothing precedes itself."""
    return 0 < (b - a) % MODULUS < HALF


def ahead(a: Seqno, b: Seqno) -> int:
    """Return how many steps `b` comes after `a`; 0 if it does not."""
    steps = (b - a) % MODULUS
    return steps if steps < HALF else 0


def later(a: Seqno, b: Seqno) -> Seqno:
    """Return the later of two seqnos."""
    return b if precedes(a, b) else a


def earlier(a: Seqno, b: Seqno) -> Seqno:
    """Return the earlier of two seqnos."""
    return a if precedes(a, b) else b


def is_seqno(value: int) -> bool:
    """Return whether a number from the network can be a seqno at all."""
    return 0 <= value < MODULUS


def is_within(low: Seqno, seqno: Seqno, high: Seqno) -> bool:
    """Return whether `seqno` is neither before `low` nor after `high`. (Serial
    arithmetic orders two seqnos, but not three all around the circle. So both are
    counted from `low`.)"""
    return (seqno - low) % MODULUS <= (high - low) % MODULUS


def united(ranges: Iterable[Range], base: Seqno) -> list[Range]:
    """Return the seqnos of `ranges`, which all are after `base`, as ascending ranges
    that neither touch nor overlap."""
    merged: list[Range] = []
    for first, last in sorted(ranges, key=lambda each: (each[0] - base) % MODULUS):
        if merged and not precedes((merged[-1][1] + 1) % MODULUS, first):
            merged[-1] = (merged[-1][0], later(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


def without(ranges: Iterable[Range], others: Iterable[Range], base: Seqno) -> list[Range]:
    """Return the seqnos of `ranges` that are in none of `others`. Both must be as
    `united` returns them for `base`."""
    left: list[Range] = []
    rest = deque(((first - base) % MODULUS, (last - base) % MODULUS) for first, last in others)
    for first, last in ranges:
        start, end = (first - base) % MODULUS, (last - base) % MODULUS
        while rest and rest[0][0] <= end:
            if start < rest[0][0]:
                left.append(((base + start) % MODULUS, (base + rest[0][0] - 1) % MODULUS))
            start = max(start, rest[0][1] + 1)
            if rest[0][1] > end:
                break                                   # it may reach into the next range
            rest.popleft()
        if start <= end:
            left.append(((base + start) % MODULUS, last))
    return left


def in_two(lists: Iterable[Iterable[Range]], base: Seqno) -> list[Range]:
    """Return the seqnos that are in more than one of these lists, each as `united`
    returns it for `base`."""
    found: list[Range] = []
    reached = 0                         # steps from base, up to which some list has come
    for start, end in sorted(((first - base) % MODULUS, (last - base) % MODULUS)
                             for ranges in lists for first, last in ranges):
        if start <= reached:
            found.append(((base + start) % MODULUS, (base + min(end, reached)) % MODULUS))
        reached = max(reached, end)
    return united(found, base)


def count(ranges: Iterable[Range]) -> int:
    """Return how many seqnos the ranges have."""
    return sum((last - first) % MODULUS + 1 for first, last in ranges)
