from typing_extensions import Buffer

from ringcast._core.batch import Batch
from ringcast._core.marks import Marks

def list_runs(datagram: Buffer, prefix: int = 32,
              marks: Marks | None = None) -> list[tuple[int, int, int, int, int, int]]: ...
def runs_of(batch: Batch) -> list[tuple[int, int, int]]: ...
