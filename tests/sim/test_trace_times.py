"""The trace of a simulation has one time: clocks of members that run wrong do not show
in it."""

from pathlib import Path

import pyarrow as arrow
from pyarrow import parquet

from ringcast.sim.runs.draw import draw
from ringcast.sim.runs.run import Run
from ringcast.sim.runs.settings import Settings
from ringcast.sim.trace import Trace
from ringcast.trace.schema import SCHEMA


def test_messages_leave_their_sender_by_the_time_of_the_simulation(tmp_path):
    run = Run(draw(113, Settings(members=4, messages=500, loss=0.1, crashes=0, jumps=3)))
    with Trace(run.cluster, tmp_path / "trace"):
        assert not run.outcome().check
    parts = [parquet.read_table(path).cast(SCHEMA)
             for path in sorted(Path(tmp_path).rglob("*.parquet"))]
    rows = arrow.concat_tables(parts).to_pylist()
    left = {}
    for row in rows:
        if row["event"] == "send":
            left.setdefault((row["sender"], row["conn_id"], row["sent_at"]), row["wall"])
    assert all(sent_at == wall for (*_, sent_at), wall in left.items())
    came = [row["wall"] - row["sent_at"] for row in rows if row["event"] == "deliver"
            and row["sender"] != row["member"]]
    assert len(came) > 100 and min(came) >= 0
