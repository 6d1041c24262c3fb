"""The traces of a simulated group, changed in one thing and written under another name.

    python tests/audit/planted_help.py 113           # make the run that is kept again
    python tests/audit/planted_help.py 20 formed     # and that of a group that forms itself
"""

import copy
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from zlib import crc32

import pyarrow as arrow
from pyarrow import parquet

from ringcast.sim.runs.draw import draw
from ringcast.sim.runs.run import run_of
from ringcast.sim.runs.settings import Settings
from ringcast.sim.trace import Trace
from ringcast.trace import KINDS, id_of, part_name
from ringcast.trace.schema import SCHEMA, write
from ringcast.trace.writer import folder_of

BEGIN = 1_700_000_000_000_000_000       # wall of the beginning
MASK = (1 << 64) - 1
KEPT = Path(__file__).with_name("planted.parquet")
SETTINGS = Settings(members=4, messages=200, loss=0.1, unicast=30, leaves=1, crashes=0,
                    partitions=0, pauses=0, exclusions=0, jumps=0, returns=0, breaks=0, splits=0,
                    slow=0)
KEPT_FORMED = Path(__file__).with_name("formed.parquet")
FORMED = Settings(members=4, messages=150, loss=0.1, unicast=0, leaves=1, crashes=1, partitions=1,
                  pauses=0, exclusions=0, jumps=0, breaks=0, splits=0, slow=0, forming=True)


def kept(path=KEPT):
    """Return the rows of each member, in their order, by its letter. A second
    incarnation of D is D'.

    They are those of one simulated run, which is kept as a file: what a plant is found
    as depends on the run, and a run depends on every rule of the protocols.
    """
    members, letters = {}, {}
    for row in parquet.read_table(path).cast(SCHEMA).to_pylist():
        earlier = sum(each[0] == row["member"][0] and each != row["member"] for each in letters)
        letter = row["member"][0] + "'" * earlier
        members.setdefault(letters.setdefault(row["member"], letter), []).append(row)
    return members


def keep(seed, settings=SETTINGS, path=KEPT):
    """Simulate a run and keep its rows, each incarnation's in their order."""
    run = run_of(draw(seed, settings))
    with TemporaryDirectory() as directory:
        with Trace(run.cluster, Path(directory) / "trace"):
            assert not run.outcome().check
        tables = [parquet.read_table(path).cast(SCHEMA)
                  for path in sorted(Path(directory).rglob("*.parquet"))]
    rows = sorted(arrow.concat_tables(tables).to_pylist(), key=lambda row: (row["wall"], row["ev"]))
    incarnations = list(dict.fromkeys(row["member"] for row in rows))
    rows.sort(key=lambda row: (row["member"][0], incarnations.index(row["member"]), row["ev"]))
    parquet.write_table(arrow.Table.from_pylist(rows, SCHEMA), path, compression="zstd")


class Copy:
    """The traces of one group, whose `rows` a test may change. Ordinals and event
    numbers are counted when they are written."""

    def __init__(self, rows, name):
        self.name = name
        self.rows = copy.deepcopy(rows)
        self.begin = BEGIN
        for member in self.rows:
            for row in self.rows[member]:
                for column in ("member", "sender", "peer"):
                    row[column] = self._renamed(row[column])
                row["members"] = row["members"] and [self._renamed(each) for each in row["members"]]
                row["wall"] += BEGIN
                row["sent_at"] = row["sent_at"] and row["sent_at"] + BEGIN

    def _renamed(self, address):
        if address is None:
            return None
        name, _, incarnation = address.rpartition("#")
        number = (int(incarnation, 16) ^ (crc32(self.name.encode()) << 32)) & MASK
        return f"{self.name}-{name}#{number:016x}"

    def address(self, member):
        return self.rows[member][0]["member"]

    def find(self, member, *events, sender=None, to_one=False, over=None):
        """Return the rows of some events, of one sender's stream to all or to one, that
        have a position in `over`: (first, last)."""
        sender = sender and self.address(sender)
        return [row for row in self.rows[member] if row["event"] in events
                and (sender is None or row["sender"] == sender and row["first"] is not None)
                and (row["conn_id"] is not None) == to_one
                and (over is None or (row["first"] <= over[1] and row["last"] >= over[0]))]

    def take(self, member, rows):
        """Remove rows of a member."""
        self.rows[member] = [row for row in self.rows[member]
                             if not any(row is each for each in rows)]

    def move(self, member, row, before):
        """Put a row in front of another, at the time of that one."""
        self.take(member, [row])
        row["wall"] = before["wall"]
        at = next(index for index, each in enumerate(self.rows[member]) if each is before)
        self.rows[member].insert(at, row)

    def skew(self, member, ahead, rate=0.0):
        """Set a member's clock ahead, in nanoseconds, and `rate` more for each."""
        mine = self.address(member)
        for rows in self.rows.values():
            for row in rows:
                if row["member"] == mine:
                    row["wall"] += ahead + round(rate * (row["wall"] - BEGIN))
                if row["sender"] == mine and row["sent_at"] is not None:
                    row["sent_at"] += ahead + round(rate * (row["sent_at"] - BEGIN))

    def write(self, directory):
        for rows in self.rows.values():
            given = {}
            for number, row in enumerate(rows):
                row["ev"] = number
                key = row["sender"], row["conn_id"]
                if row["event"] == "deliver" and row["ord"] is not None:
                    row["ord"] = given.get(key, 0)
                    given[key] = row["ord"] + row["count"]
                elif row["event"] in ("ack", "purge") and row["ord"] is not None:
                    row["ord"] = given.get(key, 0)
                row |= {"member_id": id_of(row["member"]), "sender_id": id_of(row["sender"]),
                        "peer_id": id_of(row["peer"]), "kind": KINDS[row["event"]]}
            folder = folder_of(directory, rows[0]["member"], rows[0]["epoch"])
            folder.mkdir(parents=True)
            write(arrow.Table.from_pylist(rows, SCHEMA), folder / part_name(1))


if __name__ == "__main__":
    keep(int(sys.argv[1]), *([FORMED, KEPT_FORMED] if sys.argv[2:] == ["formed"] else []))
