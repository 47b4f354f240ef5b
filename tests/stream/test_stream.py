"""Streams: offsets, limits, the rows of a version, and the end of a stream."""

import json
import os
import pickle
import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import txlog
from tests.data_files.test_column_updates import by
from tests.examples import examples
from txlog.base.effects import Effects
from txlog.base.errors import (
    CommitConflictError,
    InvalidInputError,
    NotFoundError,
    UnsupportedFeatureError,
)
from txlog.changes.file_changes import read_changes
from txlog.expressions.sql import as_expression
from txlog.extend import context_of
from txlog.log.names import commit_name, log_path
from txlog.scan.read import read_fragment
from txlog.stream.offsets import (
    UNDECIDED,
    Limits,
    Step,
    StreamOffset,
    advance,
    parse_offset,
    unit_ranges,
)
from txlog.stream.stream import StreamOptions, TableStream
from txlog.stream.version_files import ChangePolicy
from txlog.testing.stores import unsealed

NUMBERS = count()
VECTORS = {"delta.enableDeletionVectors": "true"}


# Offsets and limits --------------------------------------------------------------------------

histories = st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=6)
limits = st.builds(
    Limits, files=st.none() | st.integers(1, 6), bytes=st.none() | st.integers(1, 12)
)


def steps(history: list[list[int]], at: StreamOffset, whole: bool = False) -> Iterator[Step]:
    for version in range(at.version, len(history)):
        yield Step(version, pa.array(history[version], pa.int64()), whole=whole)


@pytest.mark.spec("STR-1", "STR-4", "STR-5")
@given(histories, st.lists(limits, min_size=1, max_size=30), st.booleans(), st.booleans())
@example([[5], [5]], [Limits(bytes=8)], False, False)
@example([[1], [2, 2], [1]], [Limits(files=2)], True, True)
def test_batches_that_meet_are_all_units_once(
    history: list[list[int]], chosen: list[Limits], initial: bool, whole: bool
) -> None:
    at = StreamOffset("t", 0, initial, 0)
    read: list[tuple[int, int]] = []
    for limit in [*chosen, *[Limits(files=1)] * 30]:
        end = advance(at, steps(history, at, whole), limit)
        assert parse_offset(json.loads(json.dumps(end.to_json()))) == end
        units = [
            (part.version, index)
            for part in unit_ranges(at, end)
            for index in range(len(history[part.version]))[part.first : part.stop]
        ]
        assert list(unit_ranges(end, at)) == []
        sizes = [history[version][index] for version, index in units]
        last = units[-1][0] if units else 0
        if whole:  # Versions are not cut, so only those before the last one fit for certain.
            sizes = sizes if units and units[0][0] != last else []
            assert end.index == 0
        if limit.files is not None and sizes:
            assert len(units) <= limit.files
        if limit.bytes is not None and len(sizes) > 1:
            assert sum(sizes) <= limit.bytes
        if any(history[version][at.index if version == at.version else 0 :]
               for version in range(at.version, len(history))):  # fmt: skip
            assert units  # There was something, so a batch has something.
        read += units
        at = end
    assert read == [(v, i) for v, units in enumerate(history) for i in range(len(units))]
    assert at == StreamOffset("t", 0, initial, len(history))
    assert advance(at, steps(history, at), Limits()) == at


@given(histories)
def test_no_limit_is_everything(history: list[list[int]]) -> None:
    at = StreamOffset("t", 0, True, 0)
    assert advance(at, steps(history, at), Limits()).version == len(history)


def test_no_more_versions_are_read_than_the_limits_let_in() -> None:
    asked = []

    def lazily() -> Iterator[Step]:
        for version in range(9):
            asked.append(version)
            yield Step(version, pa.array([1, 1], pa.int64()))

    end = advance(StreamOffset("t", 0, False, 0), lazily(), Limits(files=4))
    assert (end.version, end.index, asked) == (2, 0, [0, 1])


@pytest.mark.spec("STR-12")
@pytest.mark.parametrize(
    "change",
    [
        {"format": 2}, {"format": True}, {"version": -1}, {"index": "0"}, {"table": None},
        {"initial": 1}, {"began": 1.0}, {"changes": "false"}, {"branch": 7},
    ],
)  # fmt: skip
def test_offsets_of_other_sources_are_refused(change: dict[str, Any]) -> None:
    fine = StreamOffset("t", 1, True, 2, 3).to_json()
    (name,) = change
    with pytest.raises(InvalidInputError, match=name):
        parse_offset({**fine, **change})
    with pytest.raises(InvalidInputError, match="checkpoint"):
        parse_offset({"sourceVersion": 1, "reservoirId": "x", "reservoirVersion": 4, "index": -1})


# A table -------------------------------------------------------------------------------------


def xs(*values: int) -> pa.Table:
    return pa.table({"x": list(values), "p": ["ab"[x % 2] for x in values]})


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    made = txlog.Table.create(tmp_path / "t", xs(0).schema, properties=VECTORS)
    made.append(xs(0, 1, 2, 3, 4, 5), options=txlog.WriteOptions(max_rows_per_file=2))
    return made


def open_stream(table: txlog.Table, **options: Any) -> TableStream:
    return TableStream(context_of(table).store, StreamOptions(**options))


def rows_of(stream: TableStream, table: txlog.Table, work: list[Any]) -> list[int]:
    return sorted(
        x
        for fragment in work
        for batch in read_fragment(context_of(table).store, stream.plan, fragment)
        for x in batch.column("x").to_pylist()
    )


def pull(
    stream: TableStream, table: txlog.Table, start: Any = UNDECIDED, limits: Limits | None = None
) -> tuple[dict[str, Any], list[int]]:
    end = stream.latest(start, limits)
    return end, rows_of(stream, table, stream.work(start, end))


def change_commit(table: txlog.Table, version: int, change: Any) -> None:
    """Rewrite the lines of a commit."""
    path = Path(table.uri) / "_delta_log" / commit_name(version)
    lines = [json.loads(line) for line in unsealed(path.read_bytes()).splitlines()]
    path.write_text("\n".join(json.dumps(line) for line in change(lines)), encoding="utf-8")


@pytest.mark.spec("STR-3")
def test_where_streams_begin(table: txlog.Table) -> None:
    table.append(xs(6))
    table.append(xs(7))
    old = {"x": {"began": 3, "initial": True, "version": 4}}["x"]
    end, rows = pull(open_stream(table), table)
    assert {name: end[name] for name in old} == old
    assert rows == list(range(8))
    end, rows = pull(open_stream(table, start_version=2), table)
    assert (end["began"], end["initial"], rows) == (2, False, [6, 7])
    second_ms = txlog.Table(table.uri, version=2).timestamp_ms
    assert pull(open_stream(table, start_ms=second_ms), table)[1][-2:] == [6, 7]
    latest = open_stream(table, start_version="latest")
    end, rows = pull(latest, table)
    assert (end["began"], end["version"], rows) == (4, 4, [])
    table.append(xs(8))
    assert pull(latest, table, end)[1] == [8]
    with pytest.raises(NotFoundError, match="later than the latest version, 4"):
        open_stream(table, start_version=5).latest(UNDECIDED)
    with pytest.raises(NotFoundError, match="after the last version"):
        open_stream(table, start_ms=2**42).latest(UNDECIDED)


@pytest.mark.spec("STR-2")
@pytest.mark.parametrize("start", [None, "latest", 1])
def test_a_first_batch_begins_where_it_did(table: txlog.Table, start: Any) -> None:
    stream = open_stream(table, start_version=start)
    end = stream.latest(UNDECIDED, Limits(files=2))
    planned = stream.work(UNDECIDED, end)
    # Only the end was stored when the process died, and the table went on.
    table.append(xs(6))
    table.delete("x < 3")
    table.maintenance.checkpoint()
    again = open_stream(table, start_version=start)
    assert again.work(UNDECIDED, end) == planned
    if start == "latest":
        policy = ChangePolicy(skip_change_commits=True)
        _, rows = pull(open_stream(table, policy=policy), table, end)
        assert rows == [6]  # Nothing between the beginning and the restart is lost.


@pytest.mark.spec("STR-4", "STR-6")
def test_the_first_rows_come_by_age_and_in_parts(table: txlog.Table) -> None:
    table.append(xs(10, 11, 12, 13), options=txlog.WriteOptions(max_rows_per_file=1))
    stream, seen, at = open_stream(table), [], dict(UNDECIDED)
    for _ in range(7):
        at, rows = pull(stream, table, at, Limits(files=1))
        seen.append(rows)
    assert sorted(seen[:3]) == [[0, 1], [2, 3], [4, 5]]
    assert sorted(seen[3:]) == [[10], [11], [12], [13]]
    assert pull(stream, table, at) == (at, [])
    size = max(file.size for f in table.fragments() for file in f.value.files)
    assert len(pull(open_stream(table), table, limits=Limits(bytes=2 * size))[1]) == 4
    assert len(pull(open_stream(table), table, limits=Limits(bytes=1))[1]) == 2
    assert len(pull(open_stream(table), table, limits=Limits(files=3, bytes=1))[1]) == 2


@pytest.mark.spec("STR-6")
def test_the_order_of_the_first_rows_outlives_the_log(table: txlog.Table) -> None:
    table.append(xs(6, 7, 8), options=txlog.WriteOptions(max_rows_per_file=1))
    table.delete("x = 2")
    stream = open_stream(table)
    middle = stream.latest(UNDECIDED, Limits(files=2))
    rest = stream.latest(middle)
    expected = stream.work(middle, rest)
    assert len(expected) == 4
    table.maintenance.checkpoint()
    for version in range(table.version):
        (Path(table.uri) / "_delta_log" / commit_name(version)).unlink()
    table.append(xs(9))
    assert open_stream(table).work(middle, rest) == expected


@pytest.mark.spec("STR-5")
def test_a_predicate_leaves_files_out_but_not_out_of_the_count(table: txlog.Table) -> None:
    where = as_expression("x >= 4")
    plain = open_stream(table).latest(UNDECIDED, Limits(files=2))
    chosen = open_stream(table, where=where, columns=("x",))
    assert chosen.latest(UNDECIDED, Limits(files=2)) == plain
    end, rows = pull(chosen, table)
    assert rows == [4, 5]
    assert len(chosen.work(UNDECIDED, end)) == 1
    assert chosen.plan.schema.names == ["x"]
    structs = txlog.write("memory://structs", pa.table({"st": [{"a": 1, "b": "x"}]}), "overwrite")
    inside = open_stream(structs, columns=("st.b",))
    units = inside.work(UNDECIDED, inside.latest(UNDECIDED))
    found = [
        batch
        for unit in units
        for batch in read_fragment(context_of(structs).store, inside.plan, unit)
    ]
    assert [batch.to_pylist() for batch in found] == [[{"st.b": "x"}]]
    for wrong in ({"columns": ("y",)}, {"columns": ("_rowid",)},
                  {"where": as_expression("_fragid = 1")}):  # fmt: skip
        with pytest.raises(InvalidInputError):
            open_stream(table, **wrong)


def fresh(table: txlog.Table, **options: Any) -> tuple[TableStream, dict[str, Any]]:
    """Return a stream that has read what is there."""
    stream = open_stream(table, **options)
    return stream, stream.latest(UNDECIDED)


WHOLE, PART = "x IN (0, 1)", "x = 0"


@pytest.mark.spec("STR-7")
@pytest.mark.parametrize(
    ("policy", "where", "expected"),
    [
        ({}, WHOLE, None),
        ({}, PART, None),
        ({"ignore_deletes": True}, WHOLE, []),
        ({"ignore_deletes": True}, PART, None),
        ({"skip_change_commits": True}, WHOLE, []),
        ({"skip_change_commits": True}, PART, []),
        ({"ignore_changes": True}, WHOLE, []),
        ({"ignore_changes": True}, PART, [1]),
        ({"ignore_changes": True, "ignore_deletes": True}, PART, [1]),
    ],
)
def test_commits_that_delete(
    table: txlog.Table, policy: dict[str, bool], where: str, expected: list[int] | None
) -> None:
    # Which of the deletes is a whole file depends on how files were cut: here by twos.
    stream, at = fresh(table, policy=ChangePolicy(**policy))
    table.delete(where)
    if expected is not None:
        assert pull(stream, table, at)[1] == expected
        return
    verb = "deletes" if where == WHOLE else "changes"
    with pytest.raises(UnsupportedFeatureError, match=f"version 2 {verb} rows") as caught:
        stream.latest(at)
    assert "skipChangeCommits" in caught.value.remedy
    assert ("ignoreDeletes" in caught.value.remedy) == (verb == "deletes")


def without_stats(lines: list[Any]) -> list[Any]:
    for line in lines:
        line.get("add", {}).pop("stats", None)
    return lines


@pytest.mark.spec("STR-7", "FRG-38")
def test_overwrites_and_compactions(table: txlog.Table) -> None:
    stream, at = fresh(table)
    table.optimize.compact()
    change_commit(table, table.version, without_stats)
    table = txlog.Table(table.uri)
    assert table.optimize.compute_statistics()
    at, rows = pull(stream, table, at)
    assert (rows, at["version"]) == ([], table.version + 1)
    skipping, _ = fresh(table, policy=ChangePolicy(skip_change_commits=True))
    ignoring, _ = fresh(table, policy=ChangePolicy(ignore_changes=True))
    table.overwrite(xs(7))
    table.append(xs(8))
    with pytest.raises(UnsupportedFeatureError, match="changes rows"):
        stream.latest(at)
    assert pull(skipping, table, at)[1] == [8]
    assert pull(ignoring, table, at)[1] == [7, 8]
    with pytest.raises(InvalidInputError, match="skipChangeCommits"):
        open_stream(table, policy=ChangePolicy(ignore_changes=True, skip_change_commits=True))


@pytest.mark.spec("STR-7")
def test_new_columns_of_old_rows_are_a_change(table: txlog.Table) -> None:
    table.alter.add_features("txlog.fragments")
    table.alter.add_columns({"y": "x * 2"})
    stream, at = fresh(table)
    ignoring = open_stream(table, policy=ChangePolicy(ignore_changes=True))
    table.alter.replace_columns({"y": "x * 3"})
    with pytest.raises(UnsupportedFeatureError, match=f"version {table.version} changes rows"):
        stream.latest(at)
    # They are read again, with the columns of the other files.
    end = ignoring.latest(at)
    assert rows_of(ignoring, table, ignoring.work(at, end)) == [*range(6)]
    assert {len(one.files) for one in ignoring.work(at, end)} == {2}
    # And where a stream begins, a fragment has all its files.
    begun = open_stream(table)
    (work,) = {len(f.files) for f in begun.work(UNDECIDED, begun.latest(UNDECIDED))}
    assert work == 2
    size = sum(file.size for file in begun.work(UNDECIDED, begun.latest(UNDECIDED))[0].files)
    assert len(begun.work(UNDECIDED, begun.latest(UNDECIDED, Limits(bytes=size)))) == 1


@pytest.mark.spec("STR-7", "FRG-17")
def test_changed_rows_have_the_values_of_all_files(table: txlog.Table) -> None:
    """A delete logs the primary file again alone, and an update only a column file."""
    table.alter.add_features("txlog.fragments")
    _, at = fresh(table)
    stream = open_stream(table, policy=ChangePolicy(ignore_changes=True))
    with by("layer"):
        table.update({"p": "'new'"}, "x = 1")
    table.delete("x = 0")
    table.append(xs(6))
    with by("whole"):
        table.update({"p": "'later'"}, "x = 2")
    found = [
        pair
        for fragment in stream.work(at, stream.latest(at))
        for batch in read_fragment(context_of(table).store, stream.plan, fragment)
        for pair in zip(batch["x"].to_pylist(), batch["p"].to_pylist(), strict=True)
    ]
    assert found == [(0, "a"), (1, "new"), (1, "new"), (6, "a"), (2, "later"), (3, "b")]


@pytest.mark.spec("STR-7")
def test_a_commit_that_adds_a_file_twice_gives_it_once(table: txlog.Table) -> None:
    stream, at = fresh(table)
    table.append(xs(6))

    def double(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return lines + [line for line in lines if "add" in line]

    change_commit(table, 2, double)
    assert pull(stream, table, at)[1] == [6]


# What ends a stream --------------------------------------------------------------------------


def with_schema(table: txlog.Table, change: Any) -> None:
    """Append a row, in a commit that changes the metadata as well."""
    metadata = table.metadata.to_json()
    changed = change(json.loads(metadata["schemaString"]), metadata)
    changed["schemaString"] = json.dumps(changed.pop("schema"))
    table.append(xs(9))
    change_commit(table, table.version, lambda lines: [{"metaData": changed}, *lines])
    table.refresh()


def added(schema: Any, metadata: Any) -> Any:
    field = {"name": "y", "type": "long", "nullable": True, "metadata": {}}
    return {**metadata, "schema": {**schema, "fields": [*schema["fields"], field]}}


def commented(schema: Any, metadata: Any) -> Any:
    first = {**schema["fields"][0], "metadata": {"comment": "a number"}}
    fields = [first, *schema["fields"][1:]]
    return {**metadata, "description": "d", "schema": {**schema, "fields": fields}}


def partitioned(schema: Any, metadata: Any) -> Any:
    return {**metadata, "schema": schema, "partitionColumns": ["p"]}


def dropped(schema: Any, metadata: Any) -> Any:
    return {**metadata, "schema": {**schema, "fields": schema["fields"][:1]}}


def retyped(schema: Any, metadata: Any) -> Any:
    first = {**schema["fields"][0], "type": "string"}
    return {**metadata, "schema": {**schema, "fields": [first, *schema["fields"][1:]]}}


@pytest.mark.spec("STR-8", "STR-11")
@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (added, "column y was added"),
        (dropped, "column p was dropped or renamed"),
        (retyped, "column x was long and became string"),
        (partitioned, "the partition columns changed"),
    ],
)
def test_other_columns_end_a_running_stream(table: txlog.Table, change: Any, fault: str) -> None:
    stream, at = fresh(table)
    table.append(xs(6))
    with_schema(table, change)
    at, rows = pull(stream, table, at)
    assert (rows, at["version"]) == ([6], 3)  # What came before is read first.
    with pytest.raises(UnsupportedFeatureError, match=f"version 3 has other columns .*{fault}"):
        stream.latest(at)
    # Started again, it goes on with the new columns.
    again = open_stream(table)
    assert len(again.work(at, again.latest(at))) == 1


@pytest.mark.spec("STR-8")
def test_column_mapping_ends_a_running_stream_as_well(table: txlog.Table) -> None:
    stream, at = fresh(table)
    table.append(xs(6))
    metadata = table.metadata.to_json()
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"], start=1):
        field["metadata"] = {
            "delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"],
        }  # fmt: skip
    metadata["schemaString"] = json.dumps(schema)
    metadata["configuration"] = {
        **metadata["configuration"], "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": "2",
    }  # fmt: skip
    protocol = table.protocol.to_json()
    for name in ("readerFeatures", "writerFeatures"):
        protocol[name] = [*protocol[name], "columnMapping"]
    change_commit(table, 2, lambda lines: [{"protocol": protocol}, {"metaData": metadata}, *lines])
    with pytest.raises(UnsupportedFeatureError, match="column mapping went from none to name"):
        stream.latest(at)
    table.refresh()
    assert pull(open_stream(table), table, at)[1] == [6]
    assert pull(open_stream(table, start_version=1), table)[1] == [0, 1, 2, 3, 4, 5, 6]


def test_comments_end_no_stream(table: txlog.Table) -> None:
    stream, at = fresh(table)
    with_schema(table, commented)
    assert pull(stream, table, at)[1] == [9]


@pytest.mark.spec("STR-9")
def test_older_versions_must_be_tellable(table: txlog.Table) -> None:
    with_schema(table, added)
    assert pull(open_stream(table, start_version=1), table)[1] == [0, 1, 2, 3, 4, 5, 9]
    with_schema(table, dropped)
    with pytest.raises(
        UnsupportedFeatureError, match=r"version 1 has other columns.*p was dropped"
    ):
        open_stream(table, start_version=1).latest(UNDECIDED)
    assert open_stream(table, start_version=3).latest(UNDECIDED)["version"] == 4


@pytest.mark.spec("STR-9")
def test_columns_that_could_be_null_before(table: txlog.Table) -> None:
    def strict(schema: Any, metadata: Any) -> Any:
        first = {**schema["fields"][0], "nullable": False}
        return {**metadata, "schema": {**schema, "fields": [first, *schema["fields"][1:]]}}

    with_schema(table, strict)
    with pytest.raises(UnsupportedFeatureError, match="column x could be null"):
        open_stream(table, start_version=1).latest(UNDECIDED)


def lose(table: txlog.Table, *versions: int) -> None:
    for version in versions:
        (Path(table.uri) / "_delta_log" / commit_name(version)).unlink()


@pytest.mark.spec("STR-10", "STR-11")
def test_lost_commits_are_named(table: txlog.Table) -> None:
    _, at = fresh(table)
    for number in range(6, 11):
        table.append(xs(number))
    table.maintenance.checkpoint()
    table.append(xs(11))
    lose(table, 3, 4)
    stream = open_stream(table)
    at, rows = pull(stream, table, at)
    assert (rows, at["version"]) == ([6], 3)
    with pytest.raises(
        NotFoundError, match=r"version 3 was cleaned up .* with version 5"
    ) as caught:
        stream.latest(at)
    assert caught.value.version == 3
    assert "failOnDataLoss" in caught.value.remedy
    tolerant = open_stream(table, fail_on_data_loss=False)
    end, rows = pull(tolerant, table, at)
    assert (rows, end["version"]) == ([9, 10, 11], 8)
    with pytest.raises(NotFoundError, match="version 3"):
        stream.work(at, end)


@pytest.mark.spec("STR-10")
def test_lost_commits_behind_which_only_a_checkpoint_is_left(table: txlog.Table) -> None:
    _, at = fresh(table)
    tolerant = open_stream(table, fail_on_data_loss=False)
    table.append(xs(6))
    table.maintenance.checkpoint()
    lose(table, 2)
    with pytest.raises(NotFoundError, match=r"version 2 was cleaned up .* only a checkpoint"):
        open_stream(table).latest(at)
    assert tolerant.latest(at) == at
    table.append(xs(7))
    assert pull(open_stream(table, fail_on_data_loss=False), table, at)[1] == [7]
    with pytest.raises(NotFoundError, match="version 2"):
        open_stream(table, start_version=2).latest(UNDECIDED)


@pytest.mark.spec("STR-9")
@pytest.mark.parametrize("change", [None, commented])
def test_a_version_that_cannot_be_rebuilt_goes_by_the_commits_after_it(
    table: txlog.Table, change: Any
) -> None:
    _, at = fresh(table)
    table.append(xs(6))
    if change is None:
        table.append(xs(9))
    else:
        with_schema(table, change)
    table.maintenance.checkpoint()
    lose(table, 1)
    stream = open_stream(table)
    if change is None:
        assert pull(stream, table, at)[1] == [6, 9]
    else:  # What the columns were before that commit, nobody knows any more.
        with pytest.raises(NotFoundError, match=f"{1:020d}.json is missing.*a new checkpoint"):
            stream.latest(at)


class Clock(Effects):
    now_s = 0.0

    def monotonic_s(self) -> float:
        return Clock.now_s


class Counting:
    """A store that counts what it is asked."""

    def __init__(self, store: Any) -> None:
        self.inner, self.calls = store, []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not callable(found):
            return found

        def counted(*arguments: Any, **more: Any) -> Any:
            self.calls.append(name)
            return found(*arguments, **more)

        return counted


@pytest.mark.spec("STR-10")
def test_waiting_costs_one_look_and_still_finds_what_was_lost(table: txlog.Table) -> None:
    store = Counting(context_of(table).store)
    Clock.now_s = 0.0
    stream = TableStream(store, StreamOptions(), effects=Clock())
    at = stream.latest(UNDECIDED)
    store.calls.clear()
    for _ in range(5):
        assert stream.latest(at) == at
    assert store.calls == ["info"] * 5
    table.append(xs(6))
    table.append(xs(7))
    lose(table, 2)
    assert stream.latest(at) == at  # One look at one file cannot tell.
    Clock.now_s = 11.0
    with pytest.raises(NotFoundError, match="version 2"):
        stream.latest(at)


@pytest.mark.spec("STR-10")
@pytest.mark.parametrize("goes_on", [True, False])
def test_many_lost_commits_cost_one_listing(table: txlog.Table, goes_on: bool) -> None:
    _, at = fresh(table)
    for number in range(6, 26):
        table.append(xs(number))
    end = open_stream(table).latest(at)
    table.maintenance.checkpoint()
    lose(table, *range(2, 19 if goes_on else 22))
    store = Counting(context_of(table).store)
    stream = TableStream(store, StreamOptions(fail_on_data_loss=False))
    store.calls.clear()
    assert len(stream.work(at, end)) == (3 if goes_on else 0)
    assert len(store.calls) < 12


@pytest.mark.spec("STR-10")
@settings(max_examples=examples(60))
@given(
    steps=st.lists(st.sampled_from(["append", "pull", "clean up", "wait"]), max_size=16),
    limit=st.integers(1, 3),
    tolerant=st.booleans(),
)
@example(["append"] * 3 + ["wait", "pull", "append", "clean up"], 1, True)
@example(["append"] * 3 + ["wait", "pull", "append", "clean up"], 1, False)
def test_a_clean_up_behind_a_listing_is_as_one_before_it(
    steps: list[str], limit: int, tolerant: bool
) -> None:
    """A running stream has listed commits, and has read some of them, when they are deleted."""
    Clock.now_s = 0.0
    table = txlog.Table.create(f"memory://streams/listed-{next(NUMBERS)}", xs(0).schema)
    options = StreamOptions(fail_on_data_loss=not tolerant, limits=Limits(files=limit))
    stream = TableStream(context_of(table).store, options, effects=Clock())
    at, kept, came = stream.latest(UNDECIDED), 0, list[int]()
    lost: list[int | None] = []

    def read() -> bool:
        """Read a batch; return whether there may be more."""
        nonlocal at
        before = at
        try:
            at, rows = pull(stream, table, at)
        except NotFoundError as error:
            lost.append(error.version)
            return False
        came.extend(rows)  # The version that adds n is n.
        return at != before

    for step in [*steps, "wait"]:
        match step:
            case "append":
                table.append(xs(table.version + 1))
            case "pull":
                read()
            case "clean up":
                table.maintenance.checkpoint()
                kept = table.version
                old = [log_path(commit_name(version)) for version in range(kept)]
                context_of(table).store.delete(old)
            case "wait":
                Clock.now_s += 11.0
    while read():
        pass
    assert came == sorted(set(came))
    if lost:
        assert not tolerant
        assert lost[-1] == at["version"] < kept
    else:
        # What the stream had read before the clean-up may still come.
        assert set(range(max(kept, 1), table.version + 1)) <= set(came)
    if not kept:
        assert came == list(range(1, table.version + 1))


@pytest.mark.spec("STR-1")
@pytest.mark.spec("STR-12")
@pytest.mark.parametrize("changes", [False, True])
def test_offsets_of_a_branch_are_of_no_other_branch(table: txlog.Table, changes: bool) -> None:
    table.alter.set_properties({"delta.enableChangeDataFeed": "true"})
    began = table.version

    def branch() -> txlog.Table:
        return txlog.Table(table.uri, branch="b")

    def opened(one: txlog.Table) -> TableStream:
        return open_stream(one, changes=changes, start_version=began)

    table.branches.create("b")
    branch().append(xs(6))
    at = opened(branch()).latest(UNDECIDED)
    branch().append(xs(7))
    assert json.loads(json.dumps(at)) == at
    end = opened(branch()).latest(at)  # The same branch goes on.
    assert len(opened(branch()).work(at, end)) == 1
    of_main = opened(table).latest(UNDECIDED)
    assert of_main["branch"] is None
    with pytest.raises(InvalidInputError, match="the table itself, and this is the branch 'b'"):
        opened(branch()).latest(of_main)
    with pytest.raises(InvalidInputError, match=r"the branch with id .*, and this is the table"):
        opened(table).latest(at)
    table.branches.discard("b")
    table.branches.create("b")
    for number in range(8, 12):  # It has versions beyond the offset.
        branch().append(xs(number))
    with pytest.raises(InvalidInputError, match="the branch with id"):
        opened(branch()).latest(at)
    with pytest.raises(InvalidInputError, match="the branch with id"):
        opened(branch()).work(at, end)


@pytest.mark.spec("STR-12")
@pytest.mark.parametrize("branch", [None, "b"])
def test_offsets_from_before_they_named_a_branch_are_those_of_what_is_read(
    table: txlog.Table, branch: str | None
) -> None:
    table.branches.create("b")

    def stream() -> TableStream:
        return open_stream(txlog.Table(table.uri, branch=branch))

    at = stream().latest(UNDECIDED)
    old = {name: value for name, value in at.items() if name != "branch"}
    assert old != at
    assert stream().latest(old) == at
    txlog.Table(table.uri, branch=branch).append(xs(6))
    end = stream().latest(old)
    assert end == stream().latest(at)
    assert len(stream().work(old, end)) == 1


@pytest.mark.spec("STR-12")
def test_offsets_of_other_tables_and_of_the_future(table: txlog.Table, tmp_path: Path) -> None:
    _, at = fresh(table)
    other = txlog.write(tmp_path / "other", xs(1))
    with pytest.raises(InvalidInputError, match="another table"):
        open_stream(other).latest(at)
    with pytest.raises(InvalidInputError, match="another table"):
        open_stream(other).work(UNDECIDED, at)
    with pytest.raises(InvalidInputError, match="of a stream of changes"):
        open_stream(table).latest({**at, "changes": True})
    for ahead in ({**at, "version": 9}, {**at, "version": 3}):
        with pytest.raises(NotFoundError, match="the log does not have"):
            open_stream(table).latest(ahead)
        with pytest.raises(NotFoundError):
            open_stream(table).work(at, ahead)


@pytest.mark.spec("STR-12")
def test_a_table_that_is_replaced_under_a_stream(table: txlog.Table, tmp_path: Path) -> None:
    Clock.now_s = 0.0
    stream = TableStream(context_of(table).store, StreamOptions(), effects=Clock())
    at = stream.latest(UNDECIDED)
    shutil.rmtree(tmp_path / "t")
    Clock.now_s += 11
    with pytest.raises(NotFoundError, match="has read version 1"):
        stream.latest(at)
    again = txlog.write(tmp_path / "t", xs(100))
    Clock.now_s += 11
    with pytest.raises(NotFoundError, match="has read version 1"):
        stream.latest(at)
    again.append(xs(101))
    assert stream.latest(at) == at
    metadata = {"metaData": again.metadata.to_json()}
    again.append(xs(102))
    change_commit(again, 2, lambda lines: [metadata, *lines])
    with pytest.raises(CommitConflictError, match="another table"):
        stream.latest(at)


@pytest.mark.spec("STR-12")
@settings(max_examples=examples(25), deadline=None)
@given(
    made=st.integers(0, 3),
    read=st.integers(0, 3),
    again=st.integers(0, 8),
    waits=st.booleans(),
    changes=st.booleans(),
)
@example(made=1, read=0, again=3, waits=False, changes=False)
def test_no_row_of_another_table_in_its_place(
    tmp_path_factory: pytest.TempPathFactory,
    made: int,
    read: int,
    again: int,
    waits: bool,
    changes: bool,
) -> None:
    """A table is removed and made anew while a stream reads: it takes no row of the new one."""
    path = tmp_path_factory.mktemp("t") / "t"
    feed = {"delta.enableChangeDataFeed": "true"}

    def write(versions: int, first: int) -> txlog.Table:
        table = txlog.write(path, xs(first), properties=feed)
        for number in range(versions):
            table.append(xs(first + 1 + number))
        return table

    table = write(made, 0)
    Clock.now_s = 0.0
    options = StreamOptions(changes=changes)
    stream = TableStream(context_of(table).store, options, effects=Clock())
    at = stream.latest(UNDECIDED)
    for number in range(read):
        table.append(xs(10 + number))
        at = stream.latest(at)
    shutil.rmtree(path)
    write(again, 100)
    Clock.now_s += 11 * waits
    if again > made + read:
        with pytest.raises(CommitConflictError, match="another table"):
            stream.latest(at)
    elif again < made + read and waits:
        with pytest.raises(NotFoundError, match="does not have it"):
            stream.latest(at)
    else:
        assert stream.latest(at) == at


def test_the_last_version_can_be_pinned(table: txlog.Table) -> None:
    stream = open_stream(table)
    stream.stop_at_latest()
    table.append(xs(6))
    at, rows = pull(stream, table)
    assert rows == [0, 1, 2, 3, 4, 5]
    assert stream.latest(at) == at
    assert stream.reached() == at
    later = open_stream(table)
    later.latest(at)
    assert later.reached() == {**at, "version": 3}


def test_options_pickle() -> None:
    options = StreamOptions(start_version=3, where=as_expression("x > 1"))
    found = pickle.loads(pickle.dumps(options))
    assert repr(found) == repr(options)


# Changes -------------------------------------------------------------------------------------


def told(stream: TableStream, table: txlog.Table, work: list[Any]) -> list[tuple[Any, ...]]:
    return sorted(
        (row["_commit_version"], row["_change_type"], row["x"], row["_commit_timestamp"])
        for file in work
        for batch in read_changes(context_of(table).store, stream.plan, file)
        for row in batch.to_pylist()
    )


def as_told(table: txlog.Table, first: int) -> list[tuple[Any, ...]]:
    rows = table.changes(first).to_arrow().to_pylist()
    return sorted(
        (r["_commit_version"], r["_change_type"], r["x"], r["_commit_timestamp"]) for r in rows
    )


def record_changes(table: txlog.Table) -> txlog.Table:
    """Make a table one that records changes; adds and removes tell them all."""

    def enabled(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for line in lines:
            if "protocol" in line:
                line["protocol"]["writerFeatures"].append("changeDataFeed")
            if "metaData" in line:
                line["metaData"]["configuration"]["delta.enableChangeDataFeed"] = "true"
        return lines

    change_commit(table, 0, enabled)
    return txlog.Table(table.uri)


@pytest.mark.spec("STR-13")
def test_changes_come_version_by_version(table: txlog.Table) -> None:
    table.delete("x IN (0, 1, 2)")
    table.append(xs(6, 7), options=txlog.WriteOptions(max_rows_per_file=1))
    table.optimize.compact()
    table.overwrite(xs(8))
    table = record_changes(table)
    # The stream begins with version 1, when the others were not there yet.
    at = {**fresh(table, changes=True, start_version=1)[1], "initial": True, "version": 1}
    stream = open_stream(table, changes=True)
    batches = []
    while (end := stream.latest(at, Limits(files=2))) != at:
        batches.append(told(stream, table, stream.work(at, end)))
        again = open_stream(table, changes=True)
        assert told(again, table, again.work(at, end)) == batches[-1]
        at = end
    assert [len(batch) for batch in batches[:2]] == [4, 2]
    first = [row for batch in batches[:2] for row in batch]
    assert {row[:2] for row in first} == {(1, "insert")}
    assert sorted(row[2] for row in first) == [0, 1, 2, 3, 4, 5]
    assert {row[3] for row in first} == {row[3] for row in as_told(table, 0) if row[0] == 1}
    rest = batches[2:]
    assert [sorted({row[0] for row in batch}) for batch in rest] == [[2], [3], [5]]
    assert len(rest[-1]) > 4  # Over the limit, yet never cut.
    assert sorted(row for batch in rest for row in batch) == as_told(table, 2)
    where = as_expression("x = 6 AND _change_type = 'insert'")
    later = open_stream(table, changes=True, start_version=2, where=where)
    found = told(later, table, later.work(UNDECIDED, later.latest(UNDECIDED)))
    assert [row[:3] for row in found] == [(3, "insert", 6)]


@pytest.mark.spec("STR-13")
def test_changes_must_be_recorded(tmp_path: Path) -> None:
    made = txlog.write(tmp_path / "t", xs(1))
    with pytest.raises(UnsupportedFeatureError, match="enableChangeDataFeed"):
        open_stream(made, changes=True)


@pytest.mark.spec("GUA-12")
@pytest.mark.parametrize("enabled", [None, 3, 5])
def test_changes_have_the_times_of_the_history(table: txlog.Table, enabled: int | None) -> None:
    """Files have equal and descending times, and the table goes on while the stream runs."""
    table = record_changes(table)

    def age() -> None:
        for version in range(txlog.Table(table.uri).version + 1):
            at_s = 1_600_000_000 - version // 2
            os.utime(Path(table.uri) / "_delta_log" / commit_name(version), (at_s, at_s))

    def write(version: int) -> None:
        if version == enabled:
            table.alter.set_properties({"delta.enableInCommitTimestamps": "true"})
        else:
            table.append(xs(version))
        age()

    for version in (2, 3):
        write(version)
    stream = open_stream(txlog.Table(table.uri), changes=True, start_version=1)
    end = stream.latest(UNDECIDED)
    found = told(stream, table, stream.work(UNDECIDED, end))
    for version in (4, 5, 6):
        write(version)
        before, end = end, stream.latest(end)
        found += told(stream, table, stream.work(before, end))
    shown = {one["version"]: one["timestamp"] for one in txlog.Table(table.uri).history()}
    made = {version: round(moment.timestamp() * 1000) for version, *_, moment in found}
    assert made == {version: shown[version] for version in range(1, 7) if version != enabled}
    assert sorted(found) == as_told(txlog.Table(table.uri), 1)


VALUES: dict[str, pa.Array] = {
    "int": pa.array([1, 2], pa.int32()),
    "long": pa.array([3, 4], pa.int64()),
    "text": pa.array(["x", "y"]),
}
kinds_of = st.dictionaries(st.sampled_from("ab"), st.sampled_from([*VALUES]), min_size=1)


def changed_rows(stream: TableStream, table: txlog.Table) -> list[dict[str, Any]]:
    """Return all rows of a new stream of changes."""
    return [
        row
        for file in stream.work(UNDECIDED, stream.latest(UNDECIDED))
        for batch in read_changes(context_of(table).store, stream.plan, file)
        for row in batch.to_pylist()
    ]


@st.composite
def forms_of_rows(draw: st.DrawFn) -> tuple[pa.Table, list[str]]:
    """Draw rows, and the columns by which they are partitioned."""
    rows = pa.table({name: VALUES[kind] for name, kind in sorted(draw(kinds_of).items())})
    names = rows.schema.names
    return rows, draw(st.sampled_from([[], names[:1]])) if len(names) > 1 else []


@pytest.mark.slow
@pytest.mark.spec("FED-6", "FED-7")
@settings(max_examples=examples(60), deadline=None)
@given(before=forms_of_rows(), after=forms_of_rows(), mapped=st.booleans(), deletes=st.booleans())
@example(  # A stream of changes had null for the `a` of the removed rows.
    before=(pa.table({"a": VALUES["int"], "b": VALUES["int"]}), []),
    after=(pa.table({"a": VALUES["int"], "b": VALUES["int"]}), ["a"]),
    mapped=False,
    deletes=False,
)
@example(  # The feed said that the writer of the old file made an error.
    before=(pa.table({"a": VALUES["int"]}), []),
    after=(pa.table({"a": VALUES["text"]}), []),
    mapped=False,
    deletes=False,
)
@example(  # The transaction could not be committed.
    before=(pa.table({"a": VALUES["int"]}), []),
    after=(pa.table({"a": VALUES["text"]}), []),
    mapped=False,
    deletes=True,
)
def test_rows_with_another_form_are_whole_or_refused(
    before: tuple[pa.Table, list[str]],
    after: tuple[pa.Table, list[str]],
    mapped: bool,
    deletes: bool,
) -> None:
    """A version replaces all rows, columns and the partitioning: the feed and a stream agree."""
    properties = {"delta.enableChangeDataFeed": "true"}
    if mapped:
        properties["delta.columnMapping.mode"] = "name"
    table = txlog.write(
        f"memory://forms-{next(NUMBERS)}",
        before[0],
        partition_by=before[1],
        properties=properties,
    )
    with table.transaction() as tx:
        if deletes:  # Then there are files of changes.
            first = before[0].schema.names[0]
            tx.delete(txlog.col(first) == before[0][first][0].as_py())
        tx.overwrite(after[0], schema_mode="overwrite", partition_by=after[1])
    names = table.schema.names
    stream = open_stream(table, changes=True, start_version=1)
    try:
        feed = table.changes(1).to_arrow()
    except UnsupportedFeatureError:
        with pytest.raises(UnsupportedFeatureError, match="removes rows that do not fit"):
            stream.latest(UNDECIDED)
        assert len(changed_rows(open_stream(table, changes=True), table)) == 2  # As advised.
        return
    seen = changed_rows(stream, table)
    assert sorted(map(str, seen)) == sorted(map(str, feed.to_pylist()))
    # With column mapping, a column of another type is another column of this name.
    old, new = (txlog.Table(table.uri, version=at).snapshot.schema for at in (0, 1))
    kept = {one.physical_name for one in old.fields} & {one.physical_name for one in new.fields}
    same = {one.name for one in new.fields if one.physical_name in kept}
    rows = Counter(
        str([row[name] if name in same else None for name in names])
        for row in before[0].to_pylist()
    )
    for row in feed.to_pylist():
        sign = -1 if row["_change_type"] == "delete" else 1
        rows[str([row[name] for name in names])] += sign
    expected = Counter(str([row[name] for name in names]) for row in after[0].to_pylist())
    assert {row: n for row, n in rows.items() if n} == expected


@pytest.mark.spec("STR-9", "FED-6", "FED-20")
@pytest.mark.parametrize("swapped", [False, True])
def test_partition_values_by_names_that_were_renamed_since(tmp_path: Path, swapped: bool) -> None:
    """Some writers log the logical names, which later versions give to other columns."""
    properties = {"delta.enableChangeDataFeed": "true", "delta.columnMapping.mode": "name"}
    rows = pa.table({"x": [1, 2], "p": ["a", None], "r": ["b", "c"]})
    table = txlog.Table.create(tmp_path / "t", rows.schema, ["p", "r"], properties)
    table.append(rows)
    physical = {one.physical_name: one.name for one in table.snapshot.schema.fields}

    def logical(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for add in (line["add"] for line in lines if "add" in line):
            add["partitionValues"] = {physical[k]: v for k, v in add["partitionValues"].items()}
        return lines

    change_commit(table, 1, logical)
    table = txlog.Table(table.uri)
    began = fresh(table)[1] | {"version": 1, "index": 0}
    for old, new in [("p", "o"), ("r", "p"), ("o", "r")] if swapped else [("p", "q")]:
        table.alter.rename_column(old, new)
    names = ["x", "r", "p"] if swapped else ["x", "q", "r"]
    expected = [(1, "a", "b"), (2, None, "c")]

    def told_by(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return sorted(tuple(row[name] for name in names) for row in found)

    assert told_by(table.to_arrow().to_pylist()) == expected
    assert told_by(table.changes(1).to_arrow().to_pylist()) == expected
    assert told_by(changed_rows(open_stream(table, changes=True, start_version=1), table)) == (
        expected
    )
    for where in (None, f"{names[1]} = 'a' OR {names[1]} IS NULL"):
        asked = None if where is None else as_expression(where)
        first = open_stream(table, start_version=1, where=asked)
        for stream, start in ((first, UNDECIDED), (open_stream(table, where=asked), began)):
            work = stream.work(start, stream.latest(start))
            batches = (read_fragment(context_of(table).store, stream.plan, one) for one in work)
            assert told_by([r for one in batches for b in one for r in b.to_pylist()]) == expected
    table.delete("x = 1")
    assert told_by(table.diff(1, table.version, on=[]).to_arrow().to_pylist()) == expected[:1]
