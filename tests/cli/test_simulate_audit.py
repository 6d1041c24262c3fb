"""`ringcast simulate --audit`: what the audit of a trace finds fails the run."""

from threading import Barrier

import pytest
from processes import PATIENCE, ringcast

from ringcast.cli.simulate import seeds as command
from ringcast.cli.simulate.audits import Audits
from ringcast.sim.runs.draw import draw
from ringcast.sim.runs.run import Run
from ringcast.sim.runs.settings import Settings
from ringcast.sim.trace import Trace

pytestmark = pytest.mark.spark

SMALL = Settings(members=2, messages=20, unicast=0, duration=0.1, crashes=0, leaves=0,
                 exclusions=0, partitions=0, threads=0)
SEED = 5


@pytest.fixture
def audits(spark, tmp_path):
    return Audits(spark, tmp_path / "traces", temporary=True)


def perform(audits, seed=SEED):
    return command.perform(Run(draw(seed, SMALL)), audits.traces / str(seed))


def test_a_run_that_keeps_its_promises_passes_and_its_trace_is_removed(audits):
    outcome = perform(audits)
    assert [*audits.traces.iterdir()] and audits.judge_seed(outcome) == outcome
    assert not outcome.check and not [*audits.traces.iterdir()]


def test_a_damaged_trace_fails_the_run(audits):
    outcome = perform(audits)
    next(audits.traces.glob("*/*/*.parquet")).write_bytes(b"damaged")
    judged = audits.judge_seed(outcome)
    assert judged.check == "audit" and judged.sentence.startswith("audit: INCOMPLETE: ")


def test_as_many_audits_run_at_a_time_as_there_are_workers(audits, monkeypatch):
    """Each waits for two others, and all find what they find alone."""
    outcomes = {seed: perform(audits, seed) for seed in range(6)}
    together, judge = Barrier(3, timeout=PATIENCE), audits.judge

    def wait_and_judge(outcome, trace):
        together.wait()
        return judge(outcome, trace)

    monkeypatch.setattr(audits, "judge", wait_and_judge)
    judged = [*audits.judge_all(outcomes.values(), workers=3)]
    assert {each.seed: each for each in judged} == outcomes and len(judged) == 6


def test_what_only_the_audit_finds_is_listed_with_a_command_that_finds_it(
        audits, monkeypatch, capsys):
    """Here the trace lacks what was delivered for a while."""
    record, taken = Trace.delivered, []

    def forget_some(trace, member, batch):
        taken.append(batch)
        if len(taken) % 5:
            record(trace, member, batch)

    monkeypatch.setattr(Trace, "delivered", forget_some)
    monkeypatch.setattr(command, "outcomes", lambda *_: (each for each in [perform(audits)]))
    assert command.run_all(range(SEED, SEED + 1), SMALL, 1, audits=audits) == 1
    said = capsys.readouterr().out
    assert "FAILED  audit: BROKEN: " in said and " --audit\n" in said and "1 failed" in said
    assert command.show_one(SEED, SMALL, None, None, audits=audits) == 1
    assert "FAILED  audit: BROKEN: " in capsys.readouterr().out


def test_many_seeds_are_audited_and_their_traces_are_kept_where_it_is_asked_for(tmp_path):
    run = ringcast("simulate", "--audit", "--seeds", "2", "--mixed", "--members", "2",
                   "--messages", "20", "--trace", tmp_path)
    assert run.returncode == 0 and "no promise was broken in 2 runs" in run.stdout
    assert {trace.name for trace in tmp_path.iterdir()} == {"0", "1"}
