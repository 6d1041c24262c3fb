"""The traces of a simulated group, changed in one thing and written under another name.

    python tests/audit/planted_help.py          # make the two runs that are kept again
"""

import copy
from pathlib import Path
from tempfile import TemporaryDirectory
from zlib import crc32

import pyarrow as arrow
from msgspec.structs import replace
from pyarrow import parquet

from ringcast.sim.runs.draw import draw
from ringcast.sim.runs.plan import Action
from ringcast.sim.runs.run import Run
from ringcast.sim.runs.settings import Settings
from ringcast.sim.trace import Trace
from ringcast.trace import KINDS, id_of, part_name
from ringcast.trace.schema import SCHEMA, write
from ringcast.trace.writer import folder_of

BEGIN = 1_700_000_000_000_000_000       # wall of the beginning
MASK = (1 << 64) - 1
MS = 1_000_000
# No fault but loss and what the script says.
QUIET = {"loss": 0.1, "delay": 1.0, "duration": 2.0} | dict.fromkeys(
    ("burst", "duplicate", "reorder", "corrupt", "truncate", "mtu", "messages", "unicast", "large",
     "crashes", "partitions", "pauses", "slow", "exclusions", "leaves", "jumps", "splits",
     "durable", "threads"), 0)
OPTIONS = {"capacity": 64, "ack_threshold": 1, "max_bundle_size": 1200, "heartbeat_interval": 20,
           "suspect_timeout": 200, "seek_interval": 20, "form_margin": 100, "partition": "merge"}

LEFT = Path(__file__).with_name("planted.parquet")
CRASHED = Path(__file__).with_name("formed.parquet")


def load(names, first, last, every=10):
    """Let each of these members send three messages to all, again and again."""
    return [Action(at * MS, "send", name, (3, 100)) for at in range(first, last, every)
            for name in names]


# D leaves and comes back, while all send, and C to D alone. In the end A leaves, in the
# other run C: the seed says who.
SCRIPTS = {LEFT: (112, "ABCD", [*load("ABCD", 400, 1000), Action(1000 * MS, "leave", "D"),
                           Action(1300 * MS, "restart", "D", {"resumes": False, "moves": False}),
                           *load("ABC", 1000, 1800, 20),
                           *(Action(at * MS, "send unicast", "C", ("D", 2, 20, False))
                             for at in range(450, 900, 30))])}
# B is cut off, and meets the others again. Then A crashes and comes back.
BETWEEN = [(one, other) for one, other in ("AB", "BA", "CB", "BC")]
SCRIPTS[CRASHED] = (113, "ABC", [*load("ABC", 400, 1800), Action(600 * MS, "cut", value=BETWEEN),
                            Action(1000 * MS, "mend", value=BETWEEN),
                            Action(1500 * MS, "crash", "A"),
                            Action(1700 * MS, "restart", "A", {"resumes": False, "moves": False})])


def planned(seed, names, actions):
    """Return the plan of a group whose members start together and do this."""
    plan = draw(seed, Settings(members=len(names), options=OPTIONS, **QUIET))
    starts = {name: replace(start, at=0, replica="", receiving=True)
              for name, start in plan.starts.items()}
    return replace(plan, starts=starts, actions=sorted(actions, key=lambda action: action.at))


def kept(path):
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


def keep(path):
    """Simulate a run and keep its rows, each incarnation's in their order."""
    run = Run(planned(*SCRIPTS[path]))
    with TemporaryDirectory() as directory:
        with Trace(run.cluster, Path(directory) / "trace"):
            outcome = run.outcome()
        assert not outcome.check, outcome.sentence
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
            folder = folder_of(directory, rows[0]["member"])
            folder.mkdir(parents=True)
            write(arrow.Table.from_pylist(rows, SCHEMA), folder / part_name(1))


if __name__ == "__main__":
    for path in SCRIPTS:
        keep(path)
