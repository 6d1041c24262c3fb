"""The rows of a campaign on disk: Parquet files that appear whole or not at all.

Each is written under a hidden name, forced to disk and renamed; readers, Spark among
them, pass over hidden names. So a campaign that was killed has lost no more than the
chunks that were under way, and what it left half-written is not read.
"""

import os
import uuid
from collections.abc import Iterable
from pathlib import Path

import pyarrow as arrow
from pyarrow import parquet

from ringcast.campaign.runs import SCHEMA
from ringcast.errors import ConfigError
from ringcast.paths import local_path


class Results:
    """The rows in a folder, and those that are added to it; in memory alone without a
    folder.

    Several threads may call `add` at the same time. `strange` are files of the folder
    that are not read, as they are damaged or no rows of a campaign.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder = None if folder is None else local_path(folder)
        self.strange: list[Path] = []
        self._tables: list[arrow.Table] = []
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self._tables = list(self._read(sorted(folder.glob("part-*.parquet"))))
            except OSError as error:
                raise ConfigError(f"the results cannot be kept in {folder}: {error.strerror or error}") from None

    def _read(self, paths: Iterable[Path]) -> Iterable[arrow.Table]:
        for path in paths:
            try:
                table = parquet.read_table(path)
            except (arrow.ArrowException, OSError):
                self.strange.append(path)
                continue
            if table.schema.equals(SCHEMA):
                yield table
            else:
                self.strange.append(path)

    def add(self, table: arrow.Table) -> None:
        """Keep these rows: on disk when this returns. OSError when the disk is full, or
        gone."""
        if self.folder is not None:
            path = self.folder / f"part-{uuid.uuid4().hex}.parquet"
            hidden = self.folder / f".{path.name}.tmp"
            with hidden.open("wb") as file:
                parquet.write_table(table, file, compression="zstd")
                file.flush()
                os.fsync(file.fileno())
            hidden.rename(path)
        self._tables.append(table)

    def done(self) -> set[str]:
        """Names of the runs whose rows are there."""
        return {name for table in self._tables for name in table["run"].to_pylist()}

    def rows_of(self, runs: Iterable[str]) -> arrow.Table:
        """The rows of these runs, one each."""
        wanted, chosen = set(runs), []
        for table in list(self._tables):
            places = {name: index for index, name in enumerate(table["run"].to_pylist())
                      if name in wanted}
            wanted -= places.keys()
            chosen.append(table.take(arrow.array(places.values(), arrow.int64())))
        return arrow.concat_tables([SCHEMA.empty_table(), *chosen])
