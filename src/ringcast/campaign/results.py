"""The rows of a campaign on disk: Parquet files that appear whole or not at all.

Each file is written under a hidden name, synced to disk and renamed. Readers, also
Spark, skip hidden names. So a campaign that was killed has lost only the chunks that
were under way, and half-written files are not read.
"""

import os
import uuid
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ringcast.campaign.runs import SCHEMA
from ringcast.errors import ConfigError
from ringcast.paths import local_path


class Results:
    """The rows in a folder, and those that are added to it. Without a folder, rows are
    kept in memory alone.

    Several threads may call `add` at the same time. `strange` are files of the folder
    that are not read, because they are damaged or are not rows of a campaign.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder = None if folder is None else local_path(folder)
        self.strange: list[Path] = []
        self._tables: list[pa.Table] = []
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self._tables = list(self._read(sorted(folder.glob("part-*.parquet"))))
            except OSError as error:
                raise ConfigError(f"the results cannot be kept in {folder}: "
                                  f"{error.strerror or error}") from None

    def _read(self, paths: Iterable[Path]) -> Iterable[pa.Table]:
        for path in paths:
            try:
                table = pq.read_table(path)
            except (pa.ArrowException, OSError):
                self.strange.append(path)
                continue
            if table.schema.equals(SCHEMA):
                yield table
            else:
                self.strange.append(path)

    def add(self, table: pa.Table) -> None:
        """Store these rows; they are on disk when this returns. Raises OSError if they
        cannot be written."""
        if self.folder is not None:
            path = self.folder / f"part-{uuid.uuid4().hex}.parquet"
            hidden = self.folder / f".{path.name}.tmp"
            with hidden.open("wb") as file:
                pq.write_table(table, file, compression="zstd")
                file.flush()
                os.fsync(file.fileno())
            hidden.rename(path)
        self._tables.append(table)

    def done(self) -> set[str]:
        """Return the names of the runs that have rows."""
        return {name for table in self._tables for name in table["run"].to_pylist()}

    def rows_of(self, runs: Iterable[str]) -> pa.Table:
        """Return the rows of these runs, one for each."""
        wanted, chosen = set(runs), []
        for table in list(self._tables):
            places = {name: index for index, name in enumerate(table["run"].to_pylist())
                      if name in wanted}
            wanted -= places.keys()
            chosen.append(table.take(pa.array(places.values(), pa.int64())))
        return pa.concat_tables([SCHEMA.empty_table(), *chosen])
