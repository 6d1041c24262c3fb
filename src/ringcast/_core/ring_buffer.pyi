from typing import final

from ringcast._core.window import Window

@final
class RingBuffer(Window):
    def __new__(cls, capacity: int, offset: int = 0, *, max_bytes: int = 0) -> RingBuffer: ...
    def __sizeof__(self) -> int: ...
