"""The files of traces: find the parts of a trace, and the faults of other files.

A part is written under another name and then renamed, so a crash leaves whole parts and
at most one unfinished part. A file with the name of a part that is not one was damaged,
or something else put it there. It is reported, and never read as data. So every part is
read here once, to verify its checksum (ringcast.trace.seal).
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from ringcast.errors import TraceError
from ringcast.paths import local_path
from ringcast.trace import SUFFIX, UNFINISHED, VERSION, VERSION_KEY, part_name
from ringcast.trace.seal import fits

FOREIGN = "is not of a trace"
READERS = 8                             # threads for parts that the driver itself reads


@dataclass
class Files:
    """The files of traces."""

    parts: list[Path] = field(default_factory=list)
    bad: dict[Path, str] = field(default_factory=dict)      # with the reason; they are not read
    unfinished: list[Path] = field(default_factory=list)    # parts that a crash left
    missing: list[Path] = field(default_factory=list)       # parts that must have been there

    def incomplete(self) -> dict[str, str]:
        """Return the members whose traces lack something that was written, by the names
        in their traces, and what is missing."""
        holes = {path.parent: f"{path.name} {why}" for path, why in self.bad.items()
                 if why != FOREIGN}
        holes |= {path.parent: f"{path.name} is missing" for path in self.missing}
        named = {folder: next((part for part in self.parts if part.parent == folder), None)
                 for folder in holes}
        return {member_of(part): holes[folder] for folder, part in named.items()
                if part is not None}


def find(traces: Sequence[Path | str]) -> Files:
    """Find the parts in these directories; a path may also be a single part. Raises
    TraceError if one of them has no trace."""
    hint = "name the directory that a channel's option trace, or simulate --trace, names"
    files = Files()
    seen: set[Path] = set()
    for trace in map(local_path, traces):
        try:
            if not trace.exists():
                raise TraceError(f"there is no {trace}; {hint}")
            found = [path for path in ([trace] if trace.is_file() else sorted(trace.rglob("*")))
                     if path.is_file()]
        except OSError as error:
            raise TraceError(f"{trace} cannot be read ({error.strerror}); {hint}") from error
        files.unfinished += [path for path in found if path.suffix == UNFINISHED]
        candidates = [path for path in found if path.suffix == SUFFIX
                      and path.resolve() not in seen]
        seen |= {path.resolve() for path in candidates}
        with ThreadPoolExecutor(READERS) as pool:
            verdicts = list(pool.map(fault_of, candidates))
        files.parts += [path for path, fault in zip(candidates, verdicts, strict=True)
                        if fault is None]
        files.bad |= {path: fault for path, fault in zip(candidates, verdicts, strict=True)
                      if fault is not None}
        if not any(path.suffix == SUFFIX for path in found):
            raise TraceError(f"{trace} holds no trace; {hint}")
    if not files.parts:
        path, why = next(iter(files.bad.items()))
        raise TraceError(f"nothing of the trace can be read: {path} {why}")
    files.missing = list(missing([*files.parts, *files.bad]))
    return files


def fault_of(path: Path, whole: bool = False) -> str | None:
    """Return why a file is not a part of a trace; None if it is one. With `whole`,
    decode all of it, else its footer alone."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ringcast.trace.schema import SCHEMA

    try:
        data = path.read_bytes()
        if fits(data) is False:
            return "is damaged (its checksum does not fit)"
        file = pa.BufferReader(data)
        schema = pq.read_table(file).schema if whole else pq.read_schema(file)
        names, metadata = schema.names, schema.metadata or {}
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        return f"is torn or damaged ({str(error).splitlines()[0][:100]})"
    version = metadata.get(VERSION_KEY)
    if version is None:
        return FOREIGN
    if version != VERSION or names != SCHEMA.names:
        return (f"is of another version of ringcast (format {version.decode(errors='replace')}, "
                f"not {VERSION.decode()})")
    if fits(data) is None:
        return "is damaged (its checksum is gone)"
    return None


def missing(paths: Iterable[Path]) -> Iterable[Path]:
    """Return the parts that are not there though later parts of their trace are."""
    folders: dict[Path, set[str]] = {}
    for path in paths:
        folders.setdefault(path.parent, set()).add(path.name)
    for folder, names in folders.items():
        numbers = [int(name.removesuffix(SUFFIX)) for name in names
                   if name.removesuffix(SUFFIX).isdecimal()]
        if len(names) == len(numbers):
            yield from (folder / part_name(number) for number in range(1, max(numbers, default=0))
                        if part_name(number) not in names)


def member_of(part: Path) -> str:
    """Return the member whose trace a part belongs to."""
    import pyarrow.parquet as pq

    return str(next(pq.ParquetFile(part).iter_batches(1, columns=["member"])).column(0)[0])
