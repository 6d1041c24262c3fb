from typing import final

from ringcast._core.window import Window

@final
class SeqnoTable(Window):
    def __new__(cls, offset: int = 0, *, capacity: int = ..., max_bytes: int = 0) -> SeqnoTable: ...
    def __sizeof__(self) -> int: ...
