"""A path with the scheme `file:` is the local path that it means. A store that is not
mounted is refused at once."""

import os
import re
from pathlib import Path

import pytest
from journals import A, open_journal, record

from ringcast.errors import ConfigError, RingcastError
from ringcast.spark import Journal, JournalReader

ABROAD = ["s3a://bucket/j", "s3://b/j", "hdfs://name:8020/j", "gs://b/j", "abfss://c@a.net/j",
          "HDFS:/j", "file://server/share/j"]


@pytest.mark.parametrize("text, expected", [
    ("j", "j"), ("/data/j", "/data/j"), ("a:b", "a:b"), ("C:/j", "C:/j"), ("1:/j", "1:/j"),
    ("x/s3a://j", "x/s3a:/j"), ("50%25/j", "50%25/j"),
    ("file:/data/j", "/data/j"), ("file:///data/j", "/data/j"),
    ("FILE://localhost/data/j", "/data/j"),
    ("file:///my%20data/50%25/%C3%B6", "/my data/50%/ö"),
    (Path("file:///data/my%20j"), "/data/my j"),
    (Path("/data/j"), "/data/j"),
])
def test_a_path_is_local_with_and_without_its_scheme(text, expected):
    from ringcast.paths import local_path

    assert local_path(text) == Path(expected)


def test_a_path_survives_as_a_uri(tmp_path):
    from ringcast.paths import local_path

    strange = tmp_path / "a b#c?d%20é"
    assert local_path(strange.as_uri()) == strange


@pytest.mark.parametrize("text", [*ABROAD, "file:j", "file://", "file:///a%00b", "a\0b",
                                  Path("s3a://bucket/j")])
def test_another_path_is_refused_in_one_sentence(text):
    from ringcast.paths import local_path

    says = f"^{re.escape(str(text))} is not a path .*: name [^.]+[.]$"
    with pytest.raises(ConfigError, match=says):
        local_path(text)


def takers():
    """Return everything of the library that is given a path, by a name."""
    from ringcast.audit.files import find
    from ringcast.campaign.results import Results
    from ringcast.config import Config
    from ringcast.journal.merge import Journals
    from ringcast.journal.subscriptions import committed, subscribe
    from ringcast.outbox.owned import OwnedOutbox
    from ringcast.outbox.store import Outbox
    from ringcast.spark.sink import BatchWriter
    from ringcast.spark.source import RingcastDataSource

    def write(path):
        from pyspark.sql.types import StructType

        BatchWriter({"path": path}, StructType().add("payload", "binary"), False)

    def stream(path):
        source = RingcastDataSource({"path": path})
        source.streamReader(source.schema())

    def batch(path):
        source = RingcastDataSource({"path": path})
        source.reader(source.schema())

    return {"journal": lambda path: Journal(path, group="g"), "reader": JournalReader,
            "journals": Journals, "subscribe": lambda path: subscribe(path, "x", {}),
            "checkpoint": committed, "outbox": Outbox,
            "publisher": lambda path: OwnedOutbox(path, "g", Config()), "write": write,
            "stream": stream, "batch": batch, "audit": lambda path: find([path]),
            "campaign": Results}


@pytest.mark.parametrize("taker", takers())
def test_everything_that_takes_a_path_refuses_a_store(taker, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in ABROAD:
        with pytest.raises(ConfigError, match="is not a path of this machine"):
            takers()[taker](path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("taker", ["reader", "journals", "subscribe", "audit", "checkpoint",
                                   "campaign"])
def test_a_path_that_the_system_refuses_is_an_error_of_ours(taker):
    with pytest.raises(RingcastError, match="File name too long"):
        takers()[taker]("j" * 300)


@pytest.mark.parametrize("words", [
    "record {} --group g", "publish {} --group g",
    "journal show {}", "journal purge {} --keep-for 1d", "journal purge . --checkpoint {}",
    "journal commit {} x --checkpoint c", "journal commit . x --checkpoint {}",
    "journal retire {}", "audit {}", "audit . --tables {}", "audit . --report {}",
    "simulate --spark --results {}", "simulate --spark --report {}",
    "simulate --seed 1 --trace {}"])
def test_every_command_refuses_a_store(words, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from ringcast.cli.app import app, load

    monkeypatch.chdir(tmp_path)
    load(words.split())
    for path in ("s3a://bucket/j", "file://server/share/j"):
        result = CliRunner().invoke(app, words.format(path).split())
        assert result.exit_code == 2
        assert f"{path} is not a path of this machine" in result.stderr
    assert os.listdir(tmp_path) == []


def test_a_journal_is_written_and_read_by_its_uri(tmp_path, monkeypatch):
    from ringcast.journal.merge import Journals

    monkeypatch.chdir(tmp_path)                 # where a path that was not understood would end
    path = tmp_path / "my journal"
    with open_journal(path.as_uri()) as journal:
        record(journal, A, 1, 3)
    assert path.is_dir()
    assert JournalReader(path.as_uri()).digest() == Journals(tmp_path.as_uri()).reach() == {A: 3}
