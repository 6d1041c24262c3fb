from collections.abc import Iterable
from socket import socket
from typing import Final

from typing_extensions import disjoint_base

MAX_DATAGRAM: Final[int]

@disjoint_base
class SockAddr:
    def __new__(cls, host: str, port: int) -> SockAddr: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...

def drop_own(fd: int, host: str, port: int, kinds: Iterable[int] | None = None,
             wanted: bool = True) -> None: ...
def size_receive_buffer(sock: socket, size: int) -> int: ...
