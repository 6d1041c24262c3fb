"""The audit finds every kind of violation and names the first message that shows it. It
finds nothing where nothing is wrong."""

import shutil
from collections import defaultdict

import pyarrow as arrow
import pytest
from audit_help import Group
from pyarrow import parquet

from ringcast.audit import aggregates, files as audit_files, groups as audit_groups, verdict
from ringcast.audit.rows import Rows
from ringcast.audit.synchrony import Paths
from ringcast.flags import FRAGMENT
from ringcast.trace import PART, VERSION, part_name
from ringcast.trace.schema import SCHEMA

pytestmark = pytest.mark.spark


def gap(group):
    group.take("B", "deliver", 50)
    group.take("B", "ack", 50)
    group.row("A", "purge", 50)["wall"] += 10_000_000


def gap_at_the_begin(group):
    group.take("D", "deliver", 110)
    group.take("D", "ack", 110)
    group.row("A", "purge", 110)["wall"] += 10_000_000


def duplicate(group):
    first = group.row("B", "deliver", 50)
    group.rows["B"].insert(group.find("B", "deliver", 60), dict(first))


def overlap(group):
    group.row("B", "deliver", 50).update(first=38, count=13)


def inversion(group):
    one, other = group.row("B", "deliver", 50), group.row("B", "deliver", 60)
    for name in ("first", "last"):
        one[name], other[name] = other[name], one[name]
    group.take("B", "ack", 50)
    group.row("A", "purge", 50)["wall"] += 10_000_000
    group.rows["A"].sort(key=lambda row: row["wall"])


def one_lacks_the_tail_of_a_view(group):
    group.take("B", "deliver", 150)
    group.take("B", "ack", 150)


def ack_before_delivery(group):
    row = group.take("B", "ack", 50)
    group.rows["B"].insert(group.find("B", "deliver", 50), row)


def purge_before_ack(group):
    group.row("A", "purge", 50)["wall"] -= 3_200_000


def purge_before_own_delivery(group):
    rows = group.rows["A"]
    rows.insert(group.find("A", "purge", 50), group.take("A", "deliver", 50))
    row = group.take("A", "purge", 50)
    rows.insert(group.find("A", "deliver", 50), row)


def more_than_was_sent(group):
    group.add("B", 399, "deliver", sender="A", first=151, last=153)
    group.rows["B"][-2:] = reversed(group.rows["B"][-2:])


def from_before_the_begin(group):
    group.rows["D"].insert(1, dict(group.row("B", "deliver", 100)))


def view_of_others(group):
    group.row("B", "view")["members"] = [group.address(each) for each in "AB"]


def view_id_goes_back(group):
    group.rows["B"].insert(-1, dict(group.rows["B"][0], wall=350_000_000))


def view_without_itself(group):
    for member in "ABD":
        group.row(member, "view", view_id=2)["members"] = [group.address(each) for each in "AD"]


def missing_event(group):
    group.row("B", "deliver", 50)["lost"] = True


def dropped_events(group):
    group.rows["B"][group.find("B", "deliver", 50)] = {
        "wall": 43_000_000, "event": "dropped", "count": 3}


# what is planted: (kinds that are found at the member, message of the first, member)
VIOLATIONS = {
    gap: ({"gap"}, 41, "B"),
    gap_at_the_begin: ({"gap"}, 101, "D"),
    duplicate: ({"duplicate"}, 41, "B"),
    overlap: ({"duplicate"}, 38, "B"),
    inversion: ({"order"}, 41, "B"),
    one_lacks_the_tail_of_a_view: ({"set", "purge"}, 141, "B"),
    ack_before_delivery: ({"ack"}, 41, "B"),
    purge_before_ack: ({"purge"}, 41, "B"),
    purge_before_own_delivery: ({"purge"}, 41, "A"),
    more_than_was_sent: ({"forged"}, 151, "B"),
    from_before_the_begin: ({"start"}, 91, "D"),
    view_of_others: ({"view"}, None, "B"),
    view_id_goes_back: ({"view"}, None, "B"),
    view_without_itself: ({"view"}, None, "B"),
}
HOLES = (missing_event, dropped_events)


def pieces(row, *ranges):
    """Return a row cut into rows of the ranges (first, last, changes)."""
    return [dict(row, first=first, last=last, count=last - first + 1, **changes)
            for first, last, changes in ranges]


def replace(group, member, event, *ranges):
    """Cut the row with messages 41 to 50 into pieces."""
    at = group.find(member, event, 50)
    group.rows[member][at:at + 1] = pieces(group.rows[member][at], *ranges)


def fragments(group):
    """A sends a large message in three parts, 41, 43 and 44, with a small one between,
    and the first part of one that it gives up."""
    changes = {41: {"flags": 8 | PART}, 43: {"flags": 8 | PART}, 44: {"flags": 8, "ord": 41},
               50: {"flags": 8 | PART}}
    replace(group, "A", "send", *((n, n, changes.get(n, {})) for n in range(41, 51)))
    for member in "ABC":
        replace(group, member, "deliver", (42, 42, {}), (44, 49, {}))


def out_of_band(group):
    """Message 45 is OOB and comes late to all, 46 early. Neither is a gap."""
    replace(group, "A", "send", (41, 44, {}), (45, 46, {"flags": 1}), (47, 50, {}))
    for member in "ABC":
        replace(group, member, "deliver",
                (46, 46, {"flags": 1}), (41, 44, {}), (47, 50, {}), (45, 45, {"flags": 1}))


def not_looped_back(group):
    group.row("A", "send", 50)["flags"] = 2
    group.take("A", "deliver", 50)


def crash(group, receivers):
    """Let A send five more and die. These members get three of them."""
    group.rows["A"].pop()
    for member in "BD":
        group.rows[member].pop()
    group.add("A", 380, "send", sender="A", first=151, last=155)
    for member in receivers:
        group.add(member, 385, "deliver", sender="A", first=151, last=153)
    group.view(3, "BD", 390)
    for member in "BD":
        group.add(member, 400, "close")


def crashed_and_all_have_the_same(group):
    crash(group, "BD")


def crashed_and_one_has_less(group):
    crash(group, "B")


def crashed_in_the_middle_of_a_large_message(group):
    """A was given that message already: 156 to 160, of which it sent the begin."""
    crash(group, "BD")
    group.add("A", 381, "deliver", sender="A", first=151, last=155)
    group.add("A", 382, "send", sender="A", first=156, last=157)["flags"] = FRAGMENT | PART
    group.add("A", 383, "deliver", sender="A", first=160, last=160)


def lost_tail_of_a_crash(group):
    """B crashed, and its trace lacks its last second: A knows more of it."""
    del group.rows["B"][group.find("B", "deliver", 150):]


def to_one_member(group):
    for first in (1, 2):
        columns = {"sender": "B", "peer": "D", "conn_id": -5, "first": first, "last": first}
        group.add("B", 300 + first, "send", **columns)
        group.add("D", 310 + first, "deliver", **columns)
        group.add("D", 315 + first, "ack", **columns)
    for member in "BD":
        group.rows[member].append(group.take(member, "close"))


def without_reliability(group):
    group.rows["B"].insert(-1, {"wall": 300_000_000, "event": "deliver",
                                "sender": group.address("A"), "count": 1, "flags": 4})


def back_behind_what_is_freed(group):
    """B lacks the tail of view 2, parts from the others and is back, and leaves before
    it has that view. Then A frees the tail."""
    one_lacks_the_tail_of_a_view(group)
    purge = group.take("A", "purge", 150)
    closes = {member: group.take(member, "close") for member in "AD"}
    group.view(3, "AD", 300)
    for member in closes:
        group.add(member, 350, "view", view_id=4, flags=1,
                  members=[*map(group.address, "ABD")])
    group.add("A", 350, "start", sender="A", peer="B", first=151)
    group.rows["A"].append(dict(purge, wall=360_000_000))
    for member, close in closes.items():
        group.rows[member].append(close)


HEALTHY = (fragments, out_of_band, not_looped_back, crashed_and_all_have_the_same,
           crashed_in_the_middle_of_a_large_message, lost_tail_of_a_crash, to_one_member,
           without_reliability, back_behind_what_is_freed)


def fragments_with_a_gap(group):
    fragments(group)
    group.row("B", "deliver", first=44).update(first=45, count=5)


def crashed_without_one_of_its_own(group):
    crashed_in_the_middle_of_a_large_message(group)
    group.row("A", "deliver", 155).update(last=153, count=3)


def out_of_band_lost(group):
    out_of_band(group)
    group.take("B", "deliver", first=45)


def out_of_band_twice(group):
    out_of_band(group)
    index = group.find("B", "deliver", first=46)
    group.rows["B"].insert(index, dict(group.rows["B"][index]))


VIOLATIONS |= {
    crashed_and_one_has_less: ({"synchrony"}, 151, "D"),
    crashed_without_one_of_its_own: ({"gap"}, 154, "A"),
    fragments_with_a_gap: ({"gap"}, 44, "B"),
    out_of_band_lost: ({"gap"}, 45, "B"),
    out_of_band_twice: ({"duplicate"}, 46, "B"),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Write each plant in a group of its own, and one group as it should be."""
    directory = tmp_path_factory.mktemp("traces")
    Group("untouched").write(directory, part_rows=7)
    for plant in (*VIOLATIONS, *HOLES, *HEALTHY):
        group = Group(plant.__name__)
        plant(group)
        group.write(directory)
    return directory


@pytest.fixture(scope="module")
def result(spark, directory):
    """Audit all of them at once."""
    return verdict.audit(spark, [directory], skew_ms=0)


def found_in(violations, plant):
    """Return the violations that were found in the group of a plant."""
    return [each for each in violations if each.member.startswith(plant.__name__ + "-")]


@pytest.mark.parametrize("plant", VIOLATIONS)
def test_a_planted_violation_is_found_and_its_first_message_named(result, plant):
    kinds, position, member = VIOLATIONS[plant]
    found = found_in(result[0].violations, plant)
    assert {violation.kind for violation in found} == kinds, found
    assert found[0].position == position, found
    assert found[0].member == Group(plant.__name__).address(member), found
    assert position is None or f"message {position} of {plant.__name__}-A" in str(found[0])


@pytest.mark.parametrize("plant", HEALTHY)
def test_an_allowed_event_is_no_violation(result, plant):
    assert found_in([*result[0].violations, *result[0].unproven], plant) == []


@pytest.mark.parametrize("plant", HOLES)
def test_a_trace_with_holes_is_incomplete_and_proves_nothing_broken(result, plant):
    audit = result[0]
    assert found_in(audit.violations, plant) == []
    assert {each.kind for each in found_in(audit.unproven, plant)} == {"gap", "ack"}
    incomplete = [member for member in audit.incomplete if member.startswith(plant.__name__)]
    assert incomplete == [Group(plant.__name__).address("B")]


def test_a_member_that_did_not_close_its_trace_is_named(result):
    (sentence,) = result[0].remarks()
    assert sentence.startswith("5 members did not close")
    assert Group("lost_tail_of_a_crash").address("B") in sentence


def test_nothing_is_found_that_was_not_planted(result):
    audit, planted = result[0], {plant.__name__ for plant in VIOLATIONS}
    assert {each.member.rpartition("-")[0] for each in audit.violations} == planted
    assert len(audit.incomplete) == len(HOLES) and audit.status == 1
    assert audit.verdict.startswith("BROKEN")
    assert audit.violations == sorted(audit.violations, key=lambda each: each.wall)


def test_the_aggregates_suspect_every_stream_in_which_a_row_is_wrong(result):
    """And they do not suspect every stream."""
    audit, rows = result
    everything = list(audit.groups.got)
    suspects = set(audit_groups.suspects(audit.groups, {}))
    judge = verdict._Judge(rows, audit, 0, [], Paths())
    begins = {key: begin for key in everything if (begin := judge._begin(*key)) is not None}
    with Rows(rows, everything, begins, {}) as second:
        found = {(member, stream) for kind, member, stream, *_ in second.found()}
    assert found <= suspects and len(found) < len(suspects) < len(everything)


def test_a_loop_over_single_messages_finds_the_same(result, directory):
    """Sets and lists of numbers, without Spark, are the oracle."""
    given, sent = defaultdict(list), defaultdict(set)
    for path in sorted(directory.glob("*/*.parquet")):
        for row in parquet.read_table(path).cast(SCHEMA).to_pylist():
            stream = row["sender"], row["conn_id"]
            span = range(row["first"] or 0, (row["last"] or -1) + 1)
            if row["event"] == "deliver" and row["first"] is not None:
                given[row["member"], stream] += [(number, row["flags"]) for number in span]
            elif row["event"] == "send" and not row["flags"] & PART:
                sent[stream] |= set(span) if row["flags"] != 2 else set()
    wrong = set()
    for (member, stream), messages in given.items():
        numbers = [number for number, _ in messages]
        ordered = [number for number, flags in messages if not flags & 1]
        begin = 101 if "-D#" in member and stream[1] is None else 1
        due = {number for number in sent[stream] if begin <= number <= max(ordered)}
        if len(set(numbers)) < len(numbers) or ordered != sorted(ordered) or due - set(numbers):
            wrong.add(member)
    judged = {violation.member for violation in (*result[0].violations, *result[0].unproven)
              if violation.kind in ("gap", "duplicate", "order")}
    assert wrong == judged


def test_spark_reads_a_large_trace_and_finds_the_same(spark, tmp_path, monkeypatch):
    """The driver itself reads a small one."""
    group = Group("large")
    group.take("B", "ack", 50)
    group.row("B", "ack", 60)["first"] = 41
    for row in group.rows["C"]:
        row["wall"] += 3600 * 10**9
    group.write(tmp_path, part_rows=7)
    found = []
    for small in (aggregates.SMALL, -1):
        monkeypatch.setattr(aggregates, "SMALL", small)
        found.append(verdict.audit(spark, [tmp_path])[0])
    one, other = found
    assert [(each.kind, each.position) for each in one.violations] == [("purge", 41)]
    assert one.violations == other.violations and one.groups == other.groups
    assert one.clocks == other.clocks
    assert [row["member"] for row in one.clocks.rows()] == [group.address("C")]


# ---------------------------------------------------------------------------------------- the files

@pytest.fixture
def one(tmp_path):
    return Group("one").write(tmp_path / "one", part_rows=7)


def part_of(directory, number, member="B"):
    return next(directory.glob(f"one-{member}_*/{part_name(number)}"))


def test_a_torn_part_is_reported_and_not_read(spark, one):
    path = part_of(one, 2)
    path.write_bytes(path.read_bytes()[:-100])
    audit, _ = verdict.audit(spark, [one], skew_ms=0)
    assert list(audit.files.bad) == [path] and "torn" in audit.files.bad[path]
    assert path not in audit.files.parts
    assert audit.status == 3 and audit.violations == [] and "torn" in audit.verdict


def test_a_part_that_is_damaged_inside_is_left_out(spark, one):
    path = part_of(one, 2)
    data = bytearray(path.read_bytes())
    data[4:400] = bytes(396)
    path.write_bytes(data)
    audit, _ = verdict.audit(spark, [one], skew_ms=0)
    assert list(audit.files.bad) == [path] and audit.status == 3 and audit.violations == []


def test_a_part_that_was_taken_away_is_reported_as_missing(one):
    part_of(one, 2).unlink()
    files = audit_files.find([one])
    assert [path.name for path in files.missing] == [part_name(2)]
    assert list(files.incomplete()) == [Group("one").address("B")]


def test_a_foreign_file_is_reported_and_not_read(one):
    parquet.write_table(arrow.table({"x": [1]}), part_of(one, 1).with_name("other.parquet"))
    (one / "notes.txt").write_text("hello")
    files = audit_files.find([one])
    assert list(files.bad.values()) == ["is not of a trace"] and not files.incomplete()


@pytest.mark.parametrize("version", [3, 99])
def test_a_part_of_another_version_is_reported_with_its_version(one, version):
    path = part_of(one, 1)
    table = parquet.read_table(path)
    if version == 3:
        table = table.append_column("epoch", arrow.array([0] * len(table), arrow.int32()))
    metadata = {b"ringcast.trace": str(version).encode()}
    parquet.write_table(table.replace_schema_metadata(metadata), path)
    assert audit_files.find([one]).bad[path] == (
        f"is of another version of ringcast (format {version}, not {VERSION.decode()})")


def test_the_same_trace_named_twice_is_read_once(one):
    parts = audit_files.find([one]).parts
    assert len(audit_files.find([one, one, part_of(one, 1)]).parts) == len(parts)


def test_the_name_of_a_folder_is_no_pattern(spark, tmp_path):
    directory = Group("one").write(tmp_path / "w[e]{i,r}*? d\\")
    assert verdict.audit(spark, [directory])[0].status == 0


def test_an_unfinished_file_of_a_crash_is_no_part(one):
    path = part_of(one, 1).with_name(".000009.part")
    path.write_bytes(b"PAR1")
    files = audit_files.find([one])
    assert files.unfinished == [path] and not files.bad


@pytest.mark.parametrize("what", ["nothing", "no trace", "all torn"])
def test_without_a_trace_the_audit_is_refused(tmp_path, one, what):
    if what == "all torn":
        for path in one.rglob("*.parquet"):
            path.write_bytes(b"PAR1")
    elif what == "no trace":
        shutil.rmtree(one)
        one.mkdir()
    with pytest.raises(audit_files.TraceError):
        audit_files.find([tmp_path / "nothing" if what == "nothing" else one])
