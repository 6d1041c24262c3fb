"""`ringcast journal`: what it shows, removes and refuses."""

import re

import pytest
from journals import A, B, open_journal, record, seqnos
from typer.testing import CliRunner

from ringcast.cli.journal.command import journal_app
from ringcast.cli.retention_options import retention_of
from ringcast.errors import ConfigError, JournalError
from ringcast.journal.retention import Retention
from ringcast.journal.subscriptions import subscribe, subscriptions
from ringcast.spark import JournalReader

PLACE = {"group": "flights", "fsync": False}

@pytest.fixture
def path(tmp_path):
    with open_journal(tmp_path / "j", recorder="r", segment_rows=2, **PLACE) as journal:
        for number in (1, 3, 5):
            record(journal, A, number, number + 1)
            journal.sync()
        journal.skip(A, 8)
        record(journal, A, 9, 9)
    return tmp_path / "j"


@pytest.fixture
def checkpoint(tmp_path):
    for name, text in (("offsets", f'v1\n{{}}\n{{"{A}":5}}'), ("commits", "v1\n{}")):
        (tmp_path / "c" / name).mkdir(parents=True)
        (tmp_path / "c" / name / "0").write_text(text)
    return tmp_path / "c"


def run(*arguments):
    result = CliRunner().invoke(journal_app, [str(argument) for argument in arguments],
                                env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def cells(output, first):
    """Return the cells of the table row that begins with `first`."""
    [line] = [line for line in output.splitlines() if re.match(rf"\W*{re.escape(first)}\b", line)]
    return re.split(r"  +", line.strip())


def test_show_prints_ranges_losses_sizes_and_who_is_behind(path):
    subscribe(path, "table", {A: 4})
    with open_journal(path, **PLACE) as journal:
        journal.purge({A: 2})
    output = run("show", path)
    size = sum(piece.size for piece in JournalReader(path).segments(A))
    assert "group flights, recorded by r" in output
    assert cells(output, A) == [A, "3", "9", "1..2 (2)", "7..8 (2)", "3", f"{size:,}"]
    assert cells(output, "table")[::2] == ["table", "5"]


def test_show_merges_several_journals(path, tmp_path):
    with open_journal(tmp_path / "k", **PLACE) as journal:
        record(journal, A, 1, 7)
    run("retire", tmp_path / "k")
    output = run("show", tmp_path)
    assert f"{tmp_path / 'k'}: group flights, retired" in output
    merged = output.partition("all journals")[2]
    assert cells(merged, A) == [A, "1", "9", "8..8 (1)", "-"]
    with open_journal(tmp_path / "k", **PLACE) as journal:
        record(journal, A, 8, 8)
        record(journal, B, 1, 1)
    merged = run("show", tmp_path).partition("all journals")[2]
    assert cells(merged, A) == [A, "1", "9", "-", "-"]


def test_show_prints_the_messages_that_a_stream_waits_for(path, tmp_path):
    with open_journal(tmp_path / "k", **PLACE) as journal:
        record(journal, A, 1, 6)
    merged = run("show", tmp_path).partition("all journals")[2]
    assert cells(merged, A) == [A, "1", "6", "-", "7..9 (3)"]


def test_purge_removes_what_a_checkpoint_has_committed(path, checkpoint):
    output = run("purge", path, "--checkpoint", checkpoint)
    assert re.fullmatch(rf"{path}: [\d,]+ bytes freed\n", output)
    assert seqnos(path, A) == [5, 6, 9]
    subscribe(path, "slow", {A: 0})
    assert "freed" in run("purge", path, "--keep-until-committed", "slow", "--keep-for", "1s")
    assert seqnos(path, A) == [5, 6, 9]
    run("purge", path, "--keep-bytes", "1")
    assert seqnos(path, A) == []
    with open_journal(path, **PLACE) as journal:
        assert journal.digest == {A: 9}


def test_while_a_recorder_runs_purge_is_refused_and_commit_works(path, checkpoint):
    with open_journal(path, **PLACE):
        with pytest.raises(JournalError, match="open for writing elsewhere"):
            run("purge", path, "--checkpoint", checkpoint)
        output = run("commit", path, "table", "--checkpoint", checkpoint)
        assert output == "table has committed 5 messages of 1 sender\n"
    assert subscriptions(path)["table"].digest == {A: 5}


def test_purge_needs_a_limit_and_every_command_needs_a_journal(path, tmp_path):
    with pytest.raises(ConfigError, match="say what may be removed"):
        run("purge", path)
    for command in (("show",), ("purge", "--keep-for", "1d"), ("retire",)):
        with pytest.raises(JournalError, match="(?i)there is no journal at"):
            run(command[0], tmp_path / "nowhere", *command[1:])
    assert not (tmp_path / "nowhere").exists()


def test_the_limits_of_retention_have_units():
    assert retention_of("90m", "20G", ["table"]) == Retention(5_400 * 10**9, 20 << 30, ("table",))
    assert retention_of(None, "512", None) == Retention(None, 512, ())


@pytest.mark.parametrize("keep_for, keep_bytes", [
    ("90", None), ("0s", None), ("1y", None), (None, "-1G"), (None, "1.5G"), (None, "")])
def test_impossible_limits_are_refused(keep_for, keep_bytes):
    with pytest.raises(ConfigError, match="--keep-(for|bytes) must be a whole number from 1"):
        retention_of(keep_for, keep_bytes, None)
