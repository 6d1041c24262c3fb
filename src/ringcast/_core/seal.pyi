from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import final

from typing_extensions import Buffer, disjoint_base

from ringcast.protocols.security.keys import Cipher
from ringcast.protocols.security.seal import Outgoing, Sender
from ringcast.status import SealStatus

MAGIC: int
VERSION: int
SIZE: int

def nonce(channel: int, number: int) -> bytes: ...
@final
class ReplayWindow:
    def __new__(cls, floor: int) -> ReplayWindow: ...
    @property
    def highest(self) -> int: ...
    def is_new(self, number: int) -> bool: ...
    def note(self, number: int) -> None: ...

@final
class Epoch:
    def __init__(self, cipher: Cipher, floors: Iterable[int]) -> None: ...
    @property
    def cipher(self) -> Cipher: ...
    @property
    def windows(self) -> tuple[ReplayWindow, ...]: ...

@final
class Arena: ...

@disjoint_base
class SealCore:
    senders: dict[int, Sender]
    _without_view: Outgoing
    _in_view: Outgoing | None
    def __init__(self, member: int, counters: SealStatus, bulk: Collection[int],
                 hurried: Collection[int], outside: Collection[int]) -> None: ...
    @property
    def member(self) -> int: ...
    @property
    def counters(self) -> SealStatus: ...
    def seal(self, packets: Sequence[tuple[int, Buffer]]) -> (
        Iterator[list[tuple[int, memoryview]]]): ...
    def open(self, datagrams: Sequence[Buffer], now: int) -> list[memoryview]: ...
