"""After a crash, a torn write, flipped bytes or a full disk a reader gets the durable
prefix or a clear error, never a wrong row."""

import errno
import os
import resource
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from journals import A, B, crash, open_journal, record, seqnos

from ringcast.errors import JournalError
from ringcast.spark import JournalReader


@pytest.fixture
def two_syncs(tmp_path):
    """Leave a journal that died just before its second digest: messages 1..5 are
    confirmed, 6..9 are in the files."""
    path = tmp_path / "journal"
    journal = open_journal(path)
    record(journal, A, 1, 5)
    journal.sync()
    confirmed = {file: file.stat().st_size for file in path.glob("*/*")
                 if file.suffix in (".arrows", ".idx")}
    digest = (path / "digest.json").read_bytes()
    record(journal, A, 6, 9)
    journal.sync()
    crash(journal)
    (path / "digest.json").write_bytes(digest)
    return path, confirmed


def assert_continues_at(path: Path, high: int) -> None:
    with open_journal(path) as journal:
        assert journal.digest == {A: high}
        assert seqnos(path, A) == list(range(1, high + 1))
        record(journal, A, high + 1, high + 2)
        journal.sync()
        # from the mended tail, before it is sealed
        assert seqnos(path, A) == list(range(1, high + 3))


@pytest.mark.prove
@pytest.mark.parametrize("suffix", [".arrows", ".idx"])
def test_a_tail_cut_in_its_last_batch_opens_with_the_confirmed_prefix(two_syncs, tmp_path, suffix):
    path, confirmed = two_syncs
    [name] = [file.relative_to(path) for file in confirmed if file.suffix == suffix]
    start, end = confirmed[path / name], (path / name).stat().st_size
    assert end > start
    for size in range(start, end + 1):
        copy = tmp_path / "copy"
        shutil.copytree(path, copy)
        os.truncate(copy / name, size)
        assert_continues_at(copy, 9 if size == end else 5)
        shutil.rmtree(copy)


def test_a_tail_whose_unconfirmed_bytes_are_zeros_opens_with_the_confirmed_prefix(two_syncs):
    path, confirmed = two_syncs
    [data] = [file for file in confirmed if file.suffix == ".arrows"]
    with open(data, "r+b") as file:  # the power went: the length is there, the bytes are zeros
        file.seek(confirmed[data])
        file.write(bytes(data.stat().st_size - confirmed[data]))
    assert_continues_at(path, 5)


@pytest.mark.parametrize("suffix", [".arrows", ".idx"])
def test_a_tail_cut_below_the_digest_is_reported(two_syncs, suffix):
    path, confirmed = two_syncs
    [file] = [file for file in confirmed if file.suffix == suffix]
    os.truncate(file, confirmed[file] - 1)
    with pytest.raises(JournalError, match="no longer has message 1 .*restore"):
        open_journal(path)
    with pytest.raises(JournalError, match="message 1 .*restore|restore it"):
        seqnos(path, A)


def test_a_damaged_tail_loses_no_intact_message(tmp_path, caplog):
    """The digest says what was durable: nothing is touched. Without it, all bytes are
    kept under other names."""
    path = tmp_path / "journal"
    journal = open_journal(path)
    ends = []
    for seqno in range(1, 6):
        record(journal, A, seqno, seqno)
        journal.sync()
        [data] = path.glob("A*/*.arrows")
        ends.append(data.stat().st_size)
    crash(journal)
    [index] = path.glob("A*/*.idx")
    data.write_bytes(flip(data.read_bytes(), ends[0]))
    before = [data.read_bytes(), index.read_bytes()]
    with pytest.raises(JournalError, match="no longer has message 2 "):
        open_journal(path)
    assert [data.read_bytes(), index.read_bytes()] == before
    assert seqnos(path, A, 3, 5) == [3, 4, 5]
    shutil.copytree(path, copy := tmp_path / "copy")    # as docs/spark-journal.md says
    (path / "digest.json").unlink()
    assert_continues_at(path, 1)
    kept = [*path.glob("A*/*.damaged")]
    assert sorted(file.read_bytes() for file in kept) == sorted(before)
    assert all(f"is kept in {file.name}" in caplog.text for file in kept)
    assert seqnos(copy, A, 3, 5) == [3, 4, 5]


def test_without_its_digest_a_journal_has_what_the_segments_hold(tmp_path):
    path = tmp_path / "journal"
    with open_journal(path, segment_rows=2) as journal:
        for first in (1, 3, 5, 7):
            record(journal, A, first, first + 1)
            journal.sync()
    for file in path.glob(f"*/{3:020d}-*"):
        file.unlink()
    with pytest.raises(JournalError, match="no longer has message 3 .*delete digest.json"):
        open_journal(path)
    with pytest.raises(JournalError, match="cannot give message 3"):
        seqnos(path, A)
    (path / "digest.json").unlink()
    with pytest.raises(JournalError, match="lost its digest"):
        JournalReader(path).digest()
    open_journal(path).close()
    assert JournalReader(path).extents()[A].lost == [(3, 4)]
    assert seqnos(path, A) == [1, 2, 5, 6, 7, 8]


def test_a_senders_folder_that_vanished_is_reported(tmp_path):
    path = tmp_path / "journal"
    with open_journal(path) as journal:
        record(journal, A, 1, 2)
    shutil.rmtree(next(path.glob("A*")))
    with pytest.raises(JournalError, match="no longer has message 1"):
        open_journal(path)
    with pytest.raises(JournalError, match="cannot give message 1"):
        seqnos(path, A)
    assert JournalReader(path).segments(A) == []


def flip(raw, at):
    """Return `raw` with one bit of the byte `at` flipped."""
    return raw[:at] + bytes([raw[at] ^ 1 << at % 8]) + raw[at + 1:]


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """Leave a sealed segment (1..6), a tail (7..9), another sender; for damage."""
    path = tmp_path_factory.mktemp("damaged") / "journal"
    journal = open_journal(path, segment_rows=5)
    record(journal, A, 1, 6)
    record(journal, B, 1, 2)
    journal.sync()
    record(journal, A, 7, 9)
    journal.sync()
    crash(journal)
    return path


@pytest.mark.prove
@pytest.mark.parametrize("pattern", [
    "journal.json", "digest.json", "A*/*.arrows", "A*/*7.idx", "A*/*.arrow", "A*/*6.idx"])
def test_a_flipped_byte_is_an_error_or_harmless_for_a_reader(damaged, pattern):
    [file] = damaged.glob(pattern)
    good = file.read_bytes()
    errors = 0
    try:
        for at in range(len(good)):
            file.write_bytes(flip(good, at))
            try:
                assert JournalReader(damaged).group == "g"
                assert JournalReader(damaged).digest() == {A: 9, B: 2}
                assert seqnos(damaged, A) == list(range(1, 10))
            except JournalError:
                errors += 1
    finally:
        file.write_bytes(good)
    # Arrow files also have a schema, a footer and padding, which we do not need
    exact = pattern.endswith((".json", ".idx"))
    assert errors == len(good) if exact else errors > len(good) // 3


@pytest.mark.prove
@pytest.mark.parametrize("pattern", [
    "journal.json", "digest.json", "A*/sender.json", "A*/*.arrows", "A*/*7.idx"])
def test_a_flipped_byte_is_an_error_or_harmless_for_the_next_writer(damaged, tmp_path, pattern):
    [file] = damaged.glob(pattern)
    good = file.read_bytes()
    for at in range(0, len(good), 1 if len(good) < 200 else 7):
        copy = tmp_path / "copy"
        shutil.copytree(damaged, copy)
        (copy / file.relative_to(damaged)).write_bytes(flip(good, at))
        try:
            journal = open_journal(copy)
        except JournalError:
            pass
        else:
            assert pattern.endswith(".arrows")  # the schema message at its start
            assert journal.digest == {A: 9, B: 2}
            crash(journal)
            assert seqnos(copy, A) == list(range(1, 10))
        shutil.rmtree(copy)


def test_lists_in_lists_are_damage(damaged, tmp_path):
    shutil.copytree(damaged, copy := tmp_path / "copy")
    (copy / "digest.json").write_bytes(b'{"crc32":1,"body":' + b"[" * 3000)
    for use in (seqnos, lambda path, sender: open_journal(path)):
        with pytest.raises(JournalError, match="digest.json is damaged"):
            use(copy, A)


def test_a_segment_of_another_sender_is_refused(tmp_path):
    path = tmp_path / "journal"
    with open_journal(path) as journal:
        record(journal, A, 1, 3)
        record(journal, B, 1, 3)
    [a], [b] = path.glob("A*"), path.glob("B*")
    for file in a.glob("*-*"):
        shutil.copy(file, b / file.name)
    with pytest.raises(JournalError, match="cannot give message 1"):
        seqnos(path, B)


def test_an_interrupted_sealing_leaves_the_tail_or_the_segment(tmp_path, monkeypatch):
    """The process dies at each of the two renames and before the tail is removed."""
    for step in range(3):
        path = tmp_path / f"journal{step}"
        journal = open_journal(path, segment_rows=3)
        calls = []

        def dying(*arguments, step=step, calls=calls, real=os.replace, **options):
            if str(arguments[0]).endswith((".data.tmp", ".index.tmp")):
                calls.append(arguments)
                if len(calls) > step:
                    raise KeyboardInterrupt
            return real(*arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", dying)
            if step == 2:
                patch.setattr("ringcast.journal.segments.remove",
                              lambda segment: dying(".data.tmp"))
            record(journal, A, 1, 4)
            with pytest.raises(KeyboardInterrupt):
                journal.sync()
            crash(journal)
        assert seqnos(path, A) == [1, 2, 3, 4]
        assert_continues_at(path, 4)
        assert not [file for file in path.rglob("*") if file.suffix == ".tmp"]
        stems = {file.stem for file in path.glob("A*/*.idx")}
        assert stems == {file.stem for file in path.glob("A*/*.arrow*")}


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from([A, B]), st.integers(1, 7)),
        st.tuples(st.just("repeat"), st.sampled_from([A, B]), st.integers(1, 7)),
        st.tuples(st.just("skip"), st.sampled_from([A, B]), st.integers(1, 3)),
        st.tuples(st.sampled_from(["sync", "crash", "reopen"]), st.none(), st.none()),
    ),
    max_size=30,
)


@pytest.mark.prove
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps, segment_rows=st.integers(1, 12))
def test_any_history_reads_back_as_what_was_synced_once_in_order(tmp_path_factory, steps,
                                                                 segment_rows):
    path = tmp_path_factory.mktemp("history") / "journal"
    journal = open_journal(path, segment_rows=segment_rows)
    durable = {A: [], B: []}  # the model: seqnos that must be there
    pending = {A: [], B: []}
    high = {A: 0, B: 0}  # with what is pending and what is lost

    def settle():
        for sender in durable:
            durable[sender] += pending[sender]
            pending[sender] = []

    for kind, sender, count in steps:
        if kind == "append":
            first = high[sender] + 1
            assert record(journal, sender, first, first + count - 1) == count
            pending[sender] += range(first, first + count)
            high[sender] += count
        elif kind == "repeat" and not pending[sender] and durable[sender]:
            first = high[sender] - count + 1
            if durable[sender][0] <= first:
                assert record(journal, sender, first, high[sender] + 1) == 1
                pending[sender].append(high[sender] + 1)
                high[sender] += 1
        elif kind == "skip":
            journal.skip(sender, high[sender] + count)
            settle()
            high[sender] += count
        elif kind == "sync":
            journal.sync()
            settle()
        elif kind == "crash":
            crash(journal)
            for name in pending:
                high[name] -= len(pending[name])
                pending[name] = []
            journal = open_journal(path, segment_rows=segment_rows)
        elif kind == "reopen":
            journal.close()
            settle()
            journal = open_journal(path, segment_rows=segment_rows)
        for name in durable:
            assert seqnos(path, name) == durable[name]
        assert JournalReader(path).digest() == journal.digest
        assert journal.digest == {name: high[name] - len(pending[name]) for name in (A, B)
                                  if high[name] > len(pending[name])}
    journal.close()


def fill_until_refused(path: Path, step: int, segment_rows: int) -> dict[str, int]:
    """Append and sync until the disk is full. Return the last confirmed digest."""
    confirmed: dict[str, int] = {}
    with pytest.raises(JournalError) as refusal:
        journal = open_journal(path, segment_rows=segment_rows, fsync=True)
        try:
            for first in range(1, 3_000, step):
                record(journal, A, first, first + step - 1)
                confirmed = journal.sync()
        finally:
            if confirmed:
                with pytest.raises(JournalError, match="close this journal and open it again"):
                    record(journal, A, 1, 1)
            journal.close()
    assert "free some space" in str(refusal.value)
    return confirmed


@pytest.mark.parametrize("step, segment_rows, largest", [(1, 100, 4000), (7, 7, 1350)])
def test_no_room_at_any_point_loses_nothing_confirmed(tmp_path, step, segment_rows, largest):
    """The largest file that a process may write stands for the disk: each kind of file
    becomes too large once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    stages = set()
    for limit in [*range(1, 200, 23), *range(200, largest, largest // 30)]:
        path = tmp_path / f"journal{limit}"
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            confirmed = fill_until_refused(path, step, segment_rows)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        with open_journal(path, segment_rows=segment_rows) as journal:
            high = journal.digest.get(A, 0)
            assert confirmed.get(A, 0) <= high
            record(journal, A, high + 1, high + 3)
        assert seqnos(path, A) == list(range(1, high + 4))
        stages.add((high, high > confirmed.get(A, 0)))
    # in a batch; in the index or the sealed file
    assert len(stages) > 5 if step == 1 else stages == {(0, False), (7, True)}


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_file_system_loses_nothing_confirmed(tmp_path):
    mount = tmp_path / "small"
    mount.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", mount],
                             capture_output=True)
    if mounted.returncode:
        pytest.skip("this machine does not let us mount a tmpfs")
    try:
        (mount / "ballast").write_bytes(bytes(48 << 10))
        confirmed = fill_until_refused(mount / "journal", 7, 20)
        assert confirmed[A] >= 7
        (mount / "ballast").unlink()
        with open_journal(mount / "journal") as journal:
            high = journal.digest[A]
            assert high >= confirmed[A]
            record(journal, A, high + 1, high + 1)
        assert seqnos(mount / "journal", A) == list(range(1, high + 2))
    finally:
        subprocess.run(["umount", mount], check=True)


def test_a_failed_fsync_stops_the_journal_and_confirms_nothing(tmp_path, monkeypatch):
    path = tmp_path / "journal"
    journal = open_journal(path, fsync=True)
    record(journal, A, 1, 2)
    journal.sync()
    record(journal, A, 3, 4)

    def failing(fd):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", failing)
        with pytest.raises(JournalError, match="Input/output error.*open it again"):
            journal.sync()
    with pytest.raises(JournalError, match="close this journal"):
        journal.sync()
    assert journal.digest == {A: 2}
    journal.close()
    assert_continues_at(path, 2)


def test_all_names_and_bytes_are_fsynced_before_the_digest_names_them(tmp_path, monkeypatch):
    synced: list[str] = []
    for name in ("fsync", "fdatasync"):

        def noting(file, real=getattr(os, name)):
            fd = file if isinstance(file, int) else file.fileno()
            synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
            real(file)

        monkeypatch.setattr(os, name, noting)
    journal = open_journal(tmp_path / "journal", fsync=True)
    record(journal, A, 1, 2)
    synced.clear()
    record(journal, B, 1, 2)
    journal.sync()
    tail, index = f"{1:020d}.arrows", f"{1:020d}.idx"
    ordered = [name for name in synced if name in (tail, index, "digest.json.tmp")]
    assert ordered == [tail, index, tail, index, "digest.json.tmp"]
    assert synced[-1] == "journal"  # the digest's new name
    assert "B%2F%C3%B6%2300000000000000b2" in synced  # the tail's name
    journal.close()
