"""What is in the trace of a simulation."""

from collections import Counter

import pyarrow as arrow
from pyarrow import parquet

from ringcast.sim.runs.draw import draw
from ringcast.sim.runs.run import Run
from ringcast.sim.runs.settings import Settings
from ringcast.sim.trace import Trace
from ringcast.trace.schema import SCHEMA


def traced(run, directory):
    """Run, and return the rows of all traces in the order in which they were made."""
    with Trace(run.cluster, directory / "trace"):
        assert not run.outcome().check
    parts = [parquet.read_table(path).cast(SCHEMA) for path in sorted(directory.rglob("*.parquet"))]
    return sorted(arrow.concat_tables(parts).to_pylist(), key=lambda row: row["ev"])


def test_messages_leave_their_sender_by_the_time_of_the_simulation(tmp_path):
    rows = traced(Run(draw(113, Settings(members=4, messages=500, loss=0.1, crashes=0, jumps=3))),
                  tmp_path)
    left = {}
    for row in rows:
        if row["event"] == "send":
            left.setdefault((row["sender"], row["conn_id"], row["sent_at"]), row["wall"])
    assert all(sent_at == wall for (*_, sent_at), wall in left.items())
    came = [row["wall"] - row["sent_at"] for row in rows if row["event"] == "deliver"
            and row["sender"] != row["member"]]
    assert len(came) > 100 and min(came) >= 0


def test_an_ack_of_where_a_stream_begins_is_none_of_the_messages_before(tmp_path):
    settings = Settings(stack="nakack2-udp", members=3, durable=3, size=1, partitions=3, slow=3,
                        jumps=2, unicast=100, threads=2, trusted=True)
    given, num_acks = Counter(), 0
    for row in traced(Run(draw(1402616, settings), 26), tmp_path):
        stream = row["member"], row["sender"]
        if row["event"] == "deliver" and row["conn_id"] is None:
            given[stream] = row["last"]
        elif row["event"] == "ack" and row["sender"] and row["conn_id"] is None:
            assert row["last"] <= given[stream]
            num_acks += 1
    assert num_acks > 100
