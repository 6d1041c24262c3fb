"""Retention removes what limits and subscriptions allow, in whole segments. A purge
that dies at any step leaves nothing wrong."""

import fcntl
import os
import shutil
import threading
from functools import partial, partialmethod
from pathlib import Path

import pytest
from journals import A, B, C, crash, open_journal, record, seqnos
from processes import PATIENCE, wait_for

import ringcast.journal.subscriptions
from ringcast.errors import ConfigError, JournalError
from ringcast.journal.manifest import Extent
from ringcast.journal.retention import Retention
from ringcast.journal.subscriptions import committed, subscribe, subscriptions
from ringcast.spark import JournalReader

HOUR = 3600 * 10**9


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal"


def filled(path, senders=(A, B), count=10):
    """Record `count` messages of each sender, one an hour, two in a segment."""
    journal = open_journal(path, segment_rows=2)
    for number in range(1, count + 1):
        for sender in senders:
            record(journal, sender, number, number, at=number * HOUR)
        journal.sync()
    return journal


def kept(path):
    """Return {sender: the seqnos that are left}."""
    return {sender: seqnos(path, sender) for sender in JournalReader(path).extents()}


def size_of(path):
    """Return the bytes of all segments."""
    reader = JournalReader(path)
    return sum(piece.size for sender in reader.extents() for piece in reader.segments(sender))


def test_messages_older_than_the_limit_are_removed_in_whole_segments(path):
    with filled(path) as journal:
        assert Retention(keep_ns=3 * HOUR).enforce(journal, now=10 * HOUR) > 0
        assert kept(path) == {A: [7, 8, 9, 10], B: [7, 8, 9, 10]}
        assert JournalReader(path).extents()[A] == Extent(7, 10, [], 1)
        assert Retention(keep_ns=3 * HOUR).enforce(journal, now=10 * HOUR) == 0
    assert len(list(path.glob("*/*.arrow"))) == len(list(path.glob("*/*.idx"))) == 4


def test_the_oldest_goes_until_the_journal_is_small_enough(path):
    with filled(path) as journal:
        limit = size_of(path) // 2
        freed = Retention(keep_bytes=limit).enforce(journal)
        assert freed > 0 and size_of(path) <= limit
        assert kept(path)[A] == [7, 8, 9, 10] and kept(path)[B] in ([5, 6, 7, 8, 9, 10],
                                                                    [7, 8, 9, 10])
        assert Retention(keep_bytes=limit).enforce(journal) == 0


def test_a_limit_by_size_below_one_segment_keeps_the_newest_messages(path):
    with filled(path, [A], 4) as journal:
        record(journal, A, 5, 5, at=5 * HOUR)
        record(journal, B, 1, 1)
        retention = Retention(keep_bytes=1)
        assert retention.enforce(journal) > 0
        assert kept(path) == {A: [5], B: [1]}   # the open segments
        assert retention.enforce(journal) == 0


def test_a_small_limit_by_size_makes_small_segments():
    assert Retention().segment_bytes == Retention(keep_bytes=1 << 40).segment_bytes == 64 << 20
    assert Retention(keep_bytes=40 << 20).segment_bytes == 5 << 20
    assert Retention(keep_bytes=1).segment_bytes == 64 << 10


def test_what_all_named_streams_have_committed_is_removed_whatever_others_need(path):
    with filled(path) as journal:
        retention = Retention(subscriptions=("one", "two"))
        subscribe(path, "one", {A: 6, B: 10})
        subscribe(path, "unregistered", {A: 0})
        assert retention.enforce(journal) == 0  # two has not committed yet
        subscribe(path, "two", {A: 9, B: 5})
        assert retention.enforce(journal) > 0
        assert kept(path) == {A: [7, 8, 9, 10], B: [5, 6, 7, 8, 9, 10]}
        subscribe(path, "two", {A: 6, B: 3})  # it begins again: what is there is kept for it
        assert retention.enforce(journal) == 0


def test_limits_remove_nothing_that_a_named_stream_still_needs(path):
    with filled(path) as journal:
        subscribe(path, "slow", {A: 4, B: 0})
        retention = Retention(keep_bytes=1, keep_ns=1, subscriptions=("slow",))
        assert retention.enforce(journal, now=99 * HOUR) > 0
        assert kept(path) == {A: [5, 6, 7, 8, 9, 10], B: list(range(1, 11))}
        subscribe(path, "slow", {A: 10, B: 10})
        Retention(keep_ns=8 * HOUR, subscriptions=("slow",)).enforce(journal, now=11 * HOUR)
        # of A, which it had let go, nothing comes back
        assert kept(path) == {A: [5, 6, 7, 8, 9, 10], B: [3, 4, 5, 6, 7, 8, 9, 10]}


def test_a_sender_whose_messages_are_all_purged_keeps_its_place_over_a_restart(path):
    with filled(path, [A], 3) as journal:
        record(journal, B, 1, 1)
        assert Retention(subscriptions=("s",)).enforce(journal, committed=[{A: 3, B: 1}]) == 0
        subscribe(path, "s", {A: 3, B: 1})
        # the open segments too: everything in them is committed
        assert Retention(subscriptions=("s",)).enforce(journal) > 0
        assert kept(path) == {A: [], B: []} and journal.digest == {A: 3, B: 1}
    with open_journal(path) as journal:
        assert journal.digest == {A: 3, B: 1}
        assert record(journal, A, 2, 5) == 2  # the group delivers some again
        journal.sync()
        assert kept(path) == {A: [4, 5], B: []}
    assert JournalReader(path).extents() == {A: Extent(4, 5, [], 1), B: Extent(2, 1, [], 1)}


def test_lost_ranges_are_removed_with_the_messages_around_them(path):
    with open_journal(path) as journal:
        record(journal, A, 1, 3)
        journal.skip(A, 5)
        record(journal, A, 6, 7)
        journal.skip(A, 9)
        record(journal, A, 10, 11)
        journal.sync()
        assert journal.purge({A: 2, C: 7}) == 0
        assert journal.purge({A: 3}) > 0
        assert JournalReader(path).extents()[A] == Extent(6, 11, [(8, 9)], 1)
        journal.purge({A: 8})
        assert JournalReader(path).extents()[A] == Extent(10, 11, [], 1)
    assert seqnos(path, A) == [10, 11]


@pytest.mark.parametrize("options", [{"keep_ns": 0}, {"keep_bytes": -1},
                                     {"subscriptions": ("a b",)}, {"subscriptions": ("../x",)}])
def test_impossible_limits_and_names_are_refused(options):
    with pytest.raises(ConfigError):
        Retention(**options)


def test_retention_without_limits_removes_nothing(path):
    with filled(path) as journal:
        assert Retention().keeps_everything and Retention().enforce(journal) == 0


def test_a_purge_that_dies_at_any_step_leaves_all_or_what_the_digest_says(path, tmp_path,
                                                                          monkeypatch):
    """Each file that is renamed or removed is a step."""
    crash(filled(path))
    steps = 0
    while True:
        copy = tmp_path / f"copy{steps}"
        shutil.copytree(path, copy)
        left = steps

        def dying(real, *arguments, **options):
            nonlocal left
            if left == 0:
                raise KeyboardInterrupt
            left -= 1
            return real(*arguments, **options)

        journal = open_journal(copy, segment_rows=2)
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", partial(dying, os.replace))
            patch.setattr(Path, "unlink", partialmethod(partial(dying, Path.unlink)))
            try:
                journal.purge({A: 6, B: 10})
                died = False
            except KeyboardInterrupt:
                died = True
        crash(journal)
        found = kept(copy)
        assert found in ({A: list(range(1, 11)), B: list(range(1, 11))}, {A: [7, 8, 9, 10], B: []})
        with open_journal(copy) as journal:
            assert journal.digest == {A: 10, B: 10} and kept(copy) == found
            record(journal, A, 11, 11)
            journal.sync()
            assert kept(copy)[A] == [*found[A], 11]
        if found[A][0] == 7:  # recovery removes what the purge could not
            both = {"sender.json", "segments.log"}
            names = {f"{n:020d}" for n in (7, 9, 11)}
            assert {file.name[:20] for file in copy.glob("A*/*")} == names | both
            assert {file.name for file in copy.glob("B*/*")} == both
        if not died:
            break
        steps += 1
    assert steps > 10


@pytest.mark.prove
def test_readers_beside_a_purging_writer_get_each_message_or_an_error(path):
    journal = filled(path, [A], 400)
    over = threading.Event()
    errors = []

    def read():
        reads = 0
        while not over.is_set() or reads == 0:
            found = seqnos(path, A)
            low = JournalReader(path).extents()[A].low
            if found != sorted(set(found)) or not set(range(low, 401)) <= set(found):
                errors.append((low, found))
            reads += 1

    thread = threading.Thread(target=read)
    thread.start()
    for bound in range(2, 402, 2):
        journal.purge({A: bound})
    over.set()
    thread.join()
    journal.close()
    assert errors == [] and seqnos(path, A) == []


def test_two_writers_of_one_subscription_do_not_disturb_each_other(path, monkeypatch):
    """The second writer begins while the first has a draft that it has not renamed."""
    with filled(path, [A], 2):
        second = threading.Thread(target=subscribe, args=(path, "s", {A: 2}))
        locking = []

        def noted(*arguments, real=fcntl.flock):
            locking.append(threading.current_thread())
            real(*arguments)

        def disturbed(*arguments, real=os.replace):
            if second.ident is None:
                second.start()
                wait_for(lambda: second in locking or not second.is_alive())
            real(*arguments)

        monkeypatch.setattr(fcntl, "flock", noted)
        monkeypatch.setattr(os, "replace", disturbed)
        subscribe(path, "s", {A: 1})
        second.join(PATIENCE)
        assert subscriptions(path)["s"].digest == {A: 2}


def test_a_stream_does_not_wait_for_ever_for_one_that_was_stopped_while_it_committed(
        path, monkeypatch):
    monkeypatch.setattr(ringcast.journal.subscriptions, "COMMIT_TIMEOUT", 0.0)
    with filled(path) as journal:
        subscribe(path, "s", {A: 1})
        with open(path / "subscriptions" / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.raises(JournalError, match="lock is held by another .*kill -CONT"):
                subscribe(path, "t", {A: 2})
            Retention(subscriptions=("s",)).enforce(journal)        # a recorder does not wait
        subscribe(path, "t", {A: 2})
        assert subscriptions(path)["t"].digest == {A: 2}


def test_a_damaged_subscription_is_reported_by_name(path):
    with filled(path) as journal:
        subscribe(path, "s", {A: 4})
        file = path / "subscriptions" / "s.json"
        file.write_bytes(file.read_bytes().replace(b"4", b"9"))
        with pytest.raises(JournalError, match="s.json is damaged .*delete it"):
            Retention(subscriptions=("s",)).enforce(journal)
        file.unlink()
        assert subscriptions(path) == {}


def checkpoint(tmp_path, offsets, commits):
    """Write a streaming query's checkpoint and return its path."""
    for name, batches in (("offsets", offsets), ("commits", commits)):
        (tmp_path / name).mkdir(parents=True)
        for number, text in batches.items():
            (tmp_path / name / str(number)).write_text(text)
            (tmp_path / name / f".{number}.crc").touch()
    return tmp_path


def test_a_checkpoint_has_what_its_query_committed_last(tmp_path):
    log = {number: f'v1\n{{"batchWatermarkMs":0}}\n{{"{A}":{number * 10}}}'
           for number in range(9, 12)}
    assert committed(checkpoint(tmp_path / "c", log, {9: "v1\n{}", 10: "v1\n{}"})) == {A: 100}
    mixed = {0: f'v1\n{{}}\n{{"logOffset":4}}\n{{"{A}":3}}\n-'}
    assert committed(checkpoint(tmp_path / "m", mixed, {0: "v1\n{}"})) == {A: 3}


@pytest.mark.parametrize("offsets, commits, says", [
    ({}, {}, "committed nothing yet"),
    ({0: f'v1\n{{}}\n{{"{A}":3}}'}, {}, "committed nothing yet"),
    ({0: 'v1\n{}\n{"logOffset":4}'}, {0: ""}, "has 0 offsets"),
    ({0: f'v1\n{{}}\n{{"{A}":3}}\n{{"{A}":4}}'}, {0: ""}, "has 2 offsets"),
    ({0: f'v2\n{{}}\n{{"{A}":3}}'}, {0: ""}, "format v2"),
    ({0: ""}, {0: ""}, "has 0 offsets"),
])
def test_a_checkpoint_without_offsets_is_refused_with_the_reason(tmp_path, offsets, commits, says):
    with pytest.raises(JournalError, match=says):
        committed(checkpoint(tmp_path / "c", offsets, commits))
    with pytest.raises(JournalError, match="not the checkpoint of a streaming query"):
        committed(tmp_path)


@pytest.mark.parametrize("raw, says", [
    (b'v1\n{}\n{"%s":3}\xff' % A.encode(), "utf-8"),
    (b'v1\n{}\n{"%s":-1}' % A.encode(), f"seqno -1 of {A}"),
    (b'v1\n{}\n{"%s":%d}' % (A.encode(), 2**63), f"seqno {2**63} of {A}"),
    (b'v1\n{}\n{"%s":%d}' % (A.encode(), 2**64), f"seqno {2**64} of {A}"),
])
def test_a_damaged_checkpoint_is_reported_by_name(tmp_path, raw, says):
    path = checkpoint(tmp_path / "c", {0: ""}, {0: ""})
    (path / "offsets" / "0").write_bytes(raw)
    with pytest.raises(JournalError, match=rf"offsets/0 is damaged .*{says}.*restore it"):
        committed(path)
    (path / "offsets" / "0").write_text(f'v1\n{{}}\n{{"{A}":{2**63 - 1}}}')
    assert committed(path) == {A: 2**63 - 1}
    (path / "offsets" / "0").unlink()
    (path / "offsets" / "0").mkdir()
    with pytest.raises(JournalError, match=r"offsets/0 cannot be read \(Is a directory"):
        committed(path)
