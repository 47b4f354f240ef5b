"""Writing with row tracking: row ids and versions, compared with a simple reading of the log."""

import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus import ROOT as CORPUS
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.verb_calls import append, delete
from txlog.actions.file import Add
from txlog.base.errors import InvalidInputError, LogCorruptError, UnsupportedFeatureError
from txlog.commit.intent import RowIds, with_row_ids
from txlog.extend import context_of
from txlog.fragments.rows import FIELDS_TAG
from txlog.snapshot.load import load_snapshot
from txlog.testing import unsealed

SCHEMA = pa.schema([("x", pa.int64()), ("p", pa.string())])
TRACKING = {"delta.enableRowTracking": "true"}
NO_VECTORS = {"delta.enableDeletionVectors": "false"}
IDS = ["x", "_rowid", "_row_last_updated_at_version"]


def xs(*values: int) -> pa.Table:
    return pa.table({"x": list(values), "p": ["ab"[x % 2] for x in values]}, schema=SCHEMA)


def log(root: Path) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    for path in sorted(root.glob("_delta_log/*.json")):
        lines = path.read_text(encoding="utf-8").splitlines()
        yield int(path.stem), [json.loads(line) for line in lines]


def check_protocol(root: Path) -> int:
    """Hold a log against the protocol's rules on row ids; return the mark. An oracle: no txlog."""
    mark = -1
    given: set[int] = set()  # Fresh ids, of all versions.
    known: dict[str, tuple[int, int]] = {}  # What each path was committed with.
    for version, lines in log(root):
        marks = [
            json.loads(line["domainMetadata"]["configuration"])["rowIdHighWaterMark"]
            for line in lines
            if line.get("domainMetadata", {}).get("domain") == "delta.rowTracking"
        ]
        assert len(marks) <= 1
        before, mark = mark, max([mark, *marks])
        assert not marks or marks[0] >= before
        for add in (line["add"] for line in lines if "add" in line):
            base, rows = add["baseRowId"], json.loads(add["stats"])["numRecords"]
            if add["path"] in known:  # The same file once more: nothing new is given.
                assert known[add["path"]] == (base, add["defaultRowCommitVersion"])
                continue
            assert base > before
            assert add["defaultRowCommitVersion"] == version
            fresh = set(range(base, base + rows))
            assert not fresh & given
            given |= fresh
            known[add["path"]] = (base, version)
        for remove in (line["remove"] for line in lines if "remove" in line):
            held = known.get(remove["path"])
            assert held in (None, (remove["baseRowId"], remove["defaultRowCommitVersion"]))
        assert mark >= max(given, default=-1)
    return mark


def ids(table: txlog.Table) -> dict[int, tuple[int, int]]:
    """Return the id and version of each row, by the row's value."""
    rows = table.to_arrow(IDS)
    found = list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
    assert len({number for _, number, _ in found}) == len(found)  # No id is there twice.
    return {x: (number, version) for x, number, version in found}


def stored_ids(root: Path, table: txlog.Table) -> dict[int, int]:
    """Return the ids of all rows of live files, deleted ones too, as the protocol says."""
    column = table.properties["delta.rowTracking.materializedRowIdColumnName"]
    bases = {
        line["add"]["path"]: line["add"]["baseRowId"]
        for _, lines in log(root)
        for line in lines
        if "add" in line
    }
    found: dict[int, int] = {}
    for path in table.files()["path"].to_pylist():
        file = pq.ParquetFile(root / unquote(path)).read()
        moved = file[column].to_pylist() if column in file.column_names else [None] * len(file)
        for at, (x, number) in enumerate(zip(file["x"].to_pylist(), moved, strict=True)):
            found[x] = bases[path] + at if number is None else number
    return found


@pytest.mark.spec("FRG-30", "FRG-31")
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_a_new_table_lists_the_features_and_names_the_columns(tmp_path: Path, vectors: str) -> None:
    properties = TRACKING | {"delta.enableDeletionVectors": vectors}
    table = txlog.Table.create(tmp_path / "t", SCHEMA, properties=properties)
    writers = table.protocol.writer_features or []
    assert {"rowTracking", "domainMetadata"} <= set(writers)
    names = {name: value for name, value in table.properties.items() if "rowTracking." in name}
    kinds = {"RowIdColumnName": "_row-id-col-", "RowCommitVersionColumnName": "_row-commit-version"}
    for kind, prefix in kinds.items():
        assert (names[f"delta.rowTracking.materialized{kind}"] or "").startswith(prefix)
    assert len(names) == len(set(names.values())) == 2
    assert table.snapshot.has_stable_row_ids
    assert table.append(xs(1, 2)).version == 1
    assert ids(table) == {1: (0, 1), 2: (1, 1)}
    assert check_protocol(tmp_path / "t") == 1


def test_data_of_the_first_version_has_ids(tmp_path: Path) -> None:
    table = txlog.write(
        tmp_path, xs(5, 6, 7), properties=TRACKING, options=txlog.WriteOptions(max_rows_per_file=2)
    )
    assert ids(table) == {5: (0, 0), 6: (1, 0), 7: (2, 0)}
    assert check_protocol(tmp_path) == 2


def test_tracked_and_suspended_at_once_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="rowTrackingSuspended"):
        txlog.Table.create(
            tmp_path, SCHEMA, properties=TRACKING | {"delta.rowTrackingSuspended": "true"}
        )


@pytest.mark.spec("FRG-32")
@pytest.mark.parametrize("vectors", ["true", "false"])
@pytest.mark.parametrize("partition_by", [[], ["p"]], ids=str)
def test_rows_keep_ids_and_versions(tmp_path: Path, vectors: str, partition_by: list[str]) -> None:
    properties = TRACKING | {"delta.enableDeletionVectors": vectors}
    table = txlog.write(tmp_path, xs(*range(6)), properties=properties, partition_by=partition_by)
    table.append(xs(*range(6, 9)))
    before = ids(table)
    assert {number for number, _ in before.values()} == set(range(9))
    table.delete("x = 1 or x = 7")
    table.overwrite(xs(3), "x = 3")
    after = ids(table)
    number, version = after.pop(3)
    assert number > 8
    assert version == table.version == 3
    assert after == {x: held for x, held in before.items() if x not in (1, 3, 7)}
    assert check_protocol(tmp_path) >= 9
    stored = stored_ids(tmp_path, table)
    assert {x: stored[x] for x in ids(table)} == {x: n for x, (n, _) in ids(table).items()}
    table.maintenance.checkpoint()
    again = txlog.Table(tmp_path)
    assert ids(again) == ids(table)
    again.append(xs(20))
    check_protocol(tmp_path)


@pytest.mark.spec("FRG-32")
def test_moved_ids_are_in_files_and_not_in_schema_or_statistics(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, xs(1, 2, 3), properties=TRACKING | NO_VECTORS, partition_by="p")
    table.delete("x = 1")
    names = sorted(
        value or "" for name, value in table.properties.items() if "rowTracking." in name
    )
    (moved,) = [
        path
        for path in table.files()["path"].to_pylist()
        if pq.read_schema(tmp_path / path).names != ["x"]
    ]
    schema = pq.read_schema(tmp_path / moved)
    assert sorted(schema.names[1:]) == names
    assert [(field.type, field.nullable) for field in schema][1:] == [(pa.int64(), True)] * 2
    assert table.schema.names == ["x", "p"]
    for stats in table.files()["stats"].to_pylist():
        held = json.loads(stats)
        assert set(held["minValues"]) | set(held["nullCount"]) == {"x"}


def test_commits_say_that_ids_were_kept(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", xs(1, 2), properties=TRACKING)
    table.delete("x = 1")
    for entry in table.history():
        assert entry["tags"] == {"delta.rowTracking.preserved": "true"}
    plain = txlog.write(tmp_path / "plain", xs(1))
    assert "tags" not in plain.history()[0]


def changed(root: Path, **configuration: str | None) -> txlog.Table:
    """Change properties in a table's first commit; None takes one away."""
    path = root / "_delta_log" / f"{0:020d}.json"
    lines = [orjson.loads(line) for line in unsealed(path.read_bytes()).splitlines()]
    for line in lines:
        if "metaData" in line:
            held = line["metaData"]["configuration"]
            for name, value in configuration.items():
                held.pop(name.replace("__", "."), None)
                if value is not None:
                    held[name.replace("__", ".")] = value
    path.write_bytes(b"\n".join(map(orjson.dumps, lines)) + b"\n")
    return txlog.Table(root)


@pytest.mark.spec("FRG-30")
def test_files_get_ids_where_the_feature_is_only_listed(tmp_path: Path) -> None:
    txlog.Table.create(tmp_path, SCHEMA, properties=TRACKING | NO_VECTORS)
    table = changed(tmp_path, delta__enableRowTracking="false")
    table.append(xs(1, 2, 3))
    table.delete("x = 2")  # The rows that stay move, and nobody keeps their ids.
    assert not table.snapshot.has_stable_row_ids
    assert check_protocol(tmp_path) == 4
    assert "tags" not in table.history(1)[0]
    (path,) = table.files()["path"].to_pylist()
    assert pq.read_schema(tmp_path / path).names == ["x", "p"]


@pytest.mark.spec("FRG-30")
def test_no_ids_are_given_while_tracking_is_suspended(tmp_path: Path) -> None:
    txlog.Table.create(tmp_path, SCHEMA, properties=TRACKING)
    table = changed(tmp_path, delta__enableRowTracking=None, delta__rowTrackingSuspended="true")
    table.append(xs(1, 2))
    text = (tmp_path / "_delta_log" / f"{1:020d}.json").read_text(encoding="utf-8")
    for name in ("baseRowId", "defaultRowCommitVersion", "domainMetadata"):
        assert name not in text


@pytest.mark.spec("FRG-32")
def test_rows_are_not_moved_where_their_ids_would_be_lost(tmp_path: Path) -> None:
    txlog.Table.create(tmp_path, SCHEMA, properties=TRACKING | NO_VECTORS)
    table = changed(tmp_path, delta__rowTracking__materializedRowIdColumnName=None)
    table.append(xs(1, 2))
    denied = table.capabilities()["delete"]
    assert not denied
    with pytest.raises(UnsupportedFeatureError, match="materializedRowIdColumnName") as caught:
        table.delete("x = 1")
    assert (caught.value.reason, caught.value.features) == (denied.reason, denied.features)
    assert table.refresh().version == 1
    assert len(list(tmp_path.glob("*.parquet"))) == 1


def test_a_column_that_hides_ids_keeps_rows_from_moving(tmp_path: Path) -> None:
    data = pa.table({"x": [1, 2], "_rowid": ["mine", "yours"]})
    table = txlog.write(tmp_path / "t", data, properties=TRACKING | NO_VECTORS)
    with pytest.raises(UnsupportedFeatureError, match="_rowid"):
        table.delete("x = 1")
    other = txlog.write(tmp_path / "u", data, properties=TRACKING)
    other.delete("x = 1")
    assert other.to_arrow().to_pylist() == [{"x": 2, "_rowid": "yours"}]


def an_add(path: str, rows: int | None, **fields: Any) -> Add:
    stats = None if rows is None else json.dumps({"numRecords": rows})
    return Add(
        path=path, partition_values={}, size=1, modification_time=0, data_change=True, stats=stats,
        **fields,
    )  # fmt: skip


@pytest.mark.spec("FRG-30")
def test_ids_are_given_in_order_and_those_there_are_kept() -> None:
    adds = [
        an_add("a", 3),
        an_add("b", 5, base_row_id=2, default_row_commit_version=1),
        an_add("empty", 0),
        an_add("c", 2, default_row_commit_version=4),
        an_add("column", 3, tags={FIELDS_TAG: '["j"]'}),
        an_add("its", 3, tags={FIELDS_TAG: '["j"]'}, base_row_id=2, default_row_commit_version=1),
    ]
    given, mark = with_row_ids(adds, RowIds(version=9, mark=10, enabled=True))
    assert [(add.base_row_id, add.default_row_commit_version) for add in given] == [
        (11, 9),
        (2, 1),
        (14, 9),
        (14, 4),
        (None, 9),
        (2, 1),
    ]
    assert mark == 15
    again, later = with_row_ids(adds, RowIds(version=12, mark=99, enabled=True))
    assert (again[0].base_row_id, again[0].default_row_commit_version, later) == (100, 12, 104)


def test_what_is_carried_is_never_given_again() -> None:
    adds = [an_add("a", 1), an_add("b", 5, base_row_id=20, default_row_commit_version=1)]
    given, mark = with_row_ids(adds, RowIds(version=3, mark=4, enabled=True))
    assert (given[0].base_row_id, mark) == (25, 25)


@pytest.mark.parametrize("stats", [None, "", "{}", "[1]", '{"numRecords":"3"}', "{"])
def test_a_file_that_does_not_tell_its_rows_is_named(stats: str | None) -> None:
    add = an_add("odd.parquet", None).model_copy(update={"stats": stats})
    with pytest.raises(LogCorruptError, match=r"odd\.parquet") as caught:
        with_row_ids([add], RowIds(version=1, mark=-1, enabled=True))
    assert caught.value.field == "numRecords"


def without_mark(root: Path, configuration: str | None) -> None:
    """Take the recorded mark out of a log, or put another text in its place."""
    for path in root.glob("_delta_log/*.json"):
        lines = [orjson.loads(line) for line in unsealed(path.read_bytes()).splitlines()]
        if configuration is None:
            lines = [line for line in lines if "domainMetadata" not in line]
        for line in lines:
            if "domainMetadata" in line:
                line["domainMetadata"]["configuration"] = configuration
        path.write_bytes(b"\n".join(map(orjson.dumps, lines)) + b"\n")


@pytest.mark.spec("FRG-31")
def test_a_mark_that_nobody_recorded_is_found_in_the_files(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, xs(1, 2, 3), properties=TRACKING)
    table.append(xs(4, 5))
    table.delete("x = 1")
    without_mark(tmp_path, None)
    again = txlog.Table(tmp_path)
    again.append(xs(6))
    assert ids(again)[6] == (5, 3)
    assert again.snapshot.controls.domains["delta.rowTracking"].configuration == (
        '{"rowIdHighWaterMark":5}'
    )


@pytest.mark.spec("FRG-31")
@pytest.mark.parametrize("text", ["{}", "", "7", '{"rowIdHighWaterMark":"7"}'])
def test_a_mark_that_cannot_be_read_forbids_new_rows(tmp_path: Path, text: str) -> None:
    txlog.write(tmp_path, xs(1, 2, 3), properties=TRACKING)
    without_mark(tmp_path, text)
    table = txlog.Table(tmp_path)
    with pytest.raises(LogCorruptError, match="rowIdHighWaterMark"):
        table.append(xs(4))
    assert table.refresh().version == 0
    assert len(list(tmp_path.glob("*.parquet"))) == 1


@pytest.mark.spec("FRG-30", "FRG-31")
def test_two_writers_from_one_version_give_other_ids(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, xs(1, 2, 3, 4), properties=TRACKING)
    place, seen = context_of(table), load_snapshot(context_of(table).store)
    append(place, seen, xs(10, 11))
    append(place, seen, xs(20, 21, 22))
    delete(place, seen, "x = 2")
    found = ids(txlog.Table(tmp_path))
    assert {x: found[x] for x in (10, 11, 20, 21, 22)} == {
        10: (4, 1), 11: (5, 1), 20: (6, 2), 21: (7, 2), 22: (8, 2),
    }  # fmt: skip
    assert found[3] == (2, 0)
    assert check_protocol(tmp_path) == 8


@pytest.mark.spec("FRG-30")
def test_many_writers_at_once_give_other_ids(tmp_path: Path) -> None:
    txlog.write(tmp_path, xs(*range(8)), properties=TRACKING | {"delta.checkpointInterval": "3"})
    first = ids(txlog.Table(tmp_path))

    def work(number: int) -> None:
        table = txlog.Table(tmp_path)
        for x in range(100 * number, 100 * number + 3):
            table.append(xs(x, x + 50))
        table.delete(f"x = {number}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(1, 5)))
    found = ids(txlog.Table(tmp_path))
    assert len(found) == 8 - 4 + 4 * 6
    assert {x: found[x] for x in (0, 5, 6, 7)} == {x: first[x] for x in (0, 5, 6, 7)}
    assert check_protocol(tmp_path) == 8 + 24 - 1


OPERATIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4)),
    st.tuples(st.just("delete"), st.integers(0, 5)),
    st.tuples(st.just("replace"), st.integers(0, 5)),
    st.tuples(st.just("compact"), st.integers(0, 1)),
    st.tuples(st.just("checkpoint"), st.just(0)),
)


@pytest.mark.spec("FRG-30", "FRG-31", "FRG-32")
@settings(max_examples=examples(25))
@given(st.booleans(), st.sampled_from([(), ("p",)]), st.lists(OPERATIONS, min_size=2, max_size=8))
def test_ids_stay_whatever_is_done(
    vectors: bool, partition_by: tuple[str, ...], operations: list[tuple[str, int]]
) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder) / "t"
        properties = TRACKING | {"delta.enableDeletionVectors": str(vectors).lower()}
        table = txlog.Table.create(root, SCHEMA, list(partition_by), properties)
        following = 0
        mark = -1
        known: dict[int, tuple[int, int]] = {}
        ever: set[int] = set()
        for name, number in operations:
            if name == "append":
                table.append(
                    xs(*range(following, following + number)),
                    options=txlog.WriteOptions(max_rows_per_file=2),
                )
                following += number
            elif name == "delete":
                table.delete(f"x % 6 = {number}")
                known = {x: held for x, held in known.items() if x % 6 != number}
            elif name == "replace":
                table.overwrite(xs(6 * following + number), f"x % 6 = {number}")
                known = {x: held for x, held in known.items() if x % 6 != number}
                following = 6 * following + 6
            elif name == "compact":
                table.optimize.compact(max_deleted_fraction=number)
            else:
                table.maintenance.checkpoint()
            found = ids(table)
            assert {x: found[x] for x in known} == known
            fresh = {number for x, (number, _) in found.items() if x not in known}
            assert not fresh & ever
            assert all(found[x][1] == table.version for x in found if x not in known)
            known, ever = found, ever | {number for number, _ in found.values()}
            last, mark = mark, check_protocol(root)
            assert mark >= max([last, *ever])
            stored = stored_ids(root, table)
            assert {x: stored[x] for x in found} == {x: n for x, (n, _) in found.items()}


FOREIGN = ["streaming-row-tracking-append", "streaming-dv-rt-append"]


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus is not here")
@pytest.mark.parametrize("name", FOREIGN)
def test_tables_of_spark_are_written_by_its_rules(tmp_path: Path, name: str) -> None:
    root = tmp_path / "t"
    shutil.copytree(CORPUS / "tables" / "delta_prs" / name, root)
    table = txlog.Table(root)
    assert check_protocol(root) == 8

    def rows() -> dict[int, tuple[int, int]]:
        found = table.to_arrow(["id", *IDS[1:]]).to_pylist()
        return {row["id"]: (row["_rowid"], row["_row_last_updated_at_version"]) for row in found}

    before = rows()
    assert before == {x: (x - 1, (x + 2) // 3) for x in range(1, 10)}
    table.append(pa.table({"id": pa.array([10, 11], pa.int32()), "value": ["j", "k"]}))
    table.delete("id = 2 or id = 11")
    expected = before | {10: (9, 4)}
    del expected[2]
    assert rows() == expected
    assert check_protocol(root) >= 10
    table.maintenance.checkpoint()
    table = txlog.Table(root)
    table.append(pa.table({"id": pa.array([12], pa.int32()), "value": ["l"]}))
    assert rows() == expected | {12: (check_protocol(root), 6)}


def test_others_read_such_tables(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    table = txlog.write(tmp_path, xs(*range(9)), properties=TRACKING | NO_VECTORS, partition_by="p")
    table.delete("x = 1 or x = 2")
    table.append(xs(20))
    builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(tmp_path)))
    found = pa.table(builder.execute("select * from t"))
    assert sorted(found.column_names) == ["p", "x"]
    assert sorted(found["x"].to_pylist()) == sorted(table.to_arrow()["x"].to_pylist())
    with pytest.raises(Exception, match=r"(?i)row.?tracking"):
        deltalake.write_deltalake(str(tmp_path), xs(30), mode="append")


STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4)),
    st.tuples(st.just("update"), st.integers(0, 3)),
    st.tuples(st.just("delete"), st.integers(0, 3)),
    st.tuples(st.just("merge"), st.integers(0, 3)),
    st.tuples(st.just("replace"), st.integers(0, 3)),
)


@dataclass
class PlainRows:
    """Rows by their key: the value, the id and the version; None until the commit gives them."""

    rows: dict[int, tuple[int, int | None, int | None]]
    following: int = 0

    def do(self, tx: Any, step: tuple[str, int]) -> None:
        """Do a step of a transaction, and the same with the plain rows."""
        name, number = step
        chosen = [x for x in self.rows if x >= 0 and x % 4 == number]
        where = f"x >= 0 AND x % 4 = {number}"
        if name == "append":
            tx.append(self.new(number), options=txlog.WriteOptions(max_rows_per_file=2))
        elif name == "update":
            tx.update({"y": "y + 1"}, where)
            self.rows |= {x: (self.rows[x][0] + 1, self.rows[x][1], None) for x in chosen}
        elif name == "merge":
            source = pa.concat_tables([xys(dict.fromkeys(chosen, -1)), self.new(2)])
            merger = tx.merge(source, "target.x = source.x")
            merger.when_matched_update({"y": "source.y"}).when_not_matched_insert_all().execute()
            self.rows |= {x: (-1, self.rows[x][1], None) for x in chosen}
        else:
            for x in chosen:
                del self.rows[x]
            if name == "delete":
                tx.delete(where)
            else:
                x = 4 * self.following + number
                self.rows[x], self.following = (0, None, None), x + 1
                tx.overwrite(xys({x: 0}), where)

    def new(self, count: int) -> pa.Table:
        """Return new rows, which become part of the plain rows."""
        values = dict.fromkeys(range(self.following, self.following + count), 0)
        self.rows |= {x: (y, None, None) for x, y in values.items()}
        self.following += count
        return xys(values)

    def compare(self, table: txlog.Table, version: int, ever: set[int]) -> set[int]:
        """Compare the table's rows with the plain ones, and return the new ids."""
        names = ["x", "y", "_rowid", "_row_last_updated_at_version"]
        columns = [column.to_pylist() for column in table.to_arrow(names).columns]
        found = {x: values for x, *values in zip(*columns, strict=True)}
        assert len(found) == len(columns[0])
        fresh = [number for x, (_, number, _) in found.items() if self.rows[x][1] is None]
        assert len(set(fresh)) == len(fresh)
        assert not ever & set(fresh)
        for x, (value, number, at) in self.rows.items():
            own = found[x][1] if number is None else number
            assert found[x] == [value, own, version if at is None else at]
        assert found.keys() == self.rows.keys()
        self.rows = {x: (value, number, at) for x, (value, number, at) in found.items()}
        return set(fresh)


def xys(values: dict[int, int]) -> pa.Table:
    long = pa.int64()
    return pa.table({"x": pa.array([*values], long), "y": pa.array([*values.values()], long)})


@pytest.mark.slow
@pytest.mark.spec("CON-21", "FRG-30", "FRG-31", "FRG-32")
@pytest.mark.parametrize("vectors", ["true", "false"])
@settings(max_examples=examples(60))
@given(
    st.lists(
        st.tuples(st.lists(STEPS, min_size=1, max_size=5), st.integers(0, 2)),
        min_size=1,
        max_size=3,
    )
)
def test_ids_of_transactions_are_those_of_plain_rows(
    vectors: str, transactions: list[tuple[list[tuple[str, int]], int]]
) -> None:
    """Each transaction has several steps, and another writer may append before it commits."""
    with TemporaryDirectory() as folder:
        properties = TRACKING | {"delta.enableDeletionVectors": vectors}
        table = txlog.Table.create(f"{folder}/t", xys({}).schema, properties=properties)
        plain, ever, others = PlainRows({}), set[int](), 0
        table.append(plain.new(4))
        ever |= plain.compare(table, 1, ever)
        for steps, winners in transactions:
            with table.transaction() as tx:
                for step in steps:
                    plain.do(tx, step)
                won: list[int] = []
                for _ in range(winners):
                    others -= 1
                    other = txlog.Table(table.uri)
                    other.append(xys({others: 0}))
                    won.append(other.version)
            found = ids(table.refresh())  # It may have had nothing to commit.
            for x, at in zip(range(others + winners - 1, others - 1, -1), won, strict=True):
                assert found[x][1] == at
                assert found[x][0] not in ever
                plain.rows[x] = (0, found[x][0], at)
                ever.add(found[x][0])
            ever |= plain.compare(table, table.version, ever)
            assert check_protocol(Path(table.uri)) >= max(ever)


def with_lines(root: Path, change: Callable[[dict[str, Any]], None]) -> txlog.Table:
    """Change each line of a log."""
    for path in root.glob("_delta_log/*.json"):
        lines = [orjson.loads(line) for line in unsealed(path.read_bytes()).splitlines()]
        for line in lines:
            change(line)
        path.write_bytes(b"\n".join(map(orjson.dumps, lines)) + b"\n")
    return txlog.Table(root)


@pytest.mark.spec("FRG-30", "FRG-31")
@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("left", [-1, 0, 1, 2])
def test_ids_end_at_the_largest_number(tmp_path: Path, recorded: bool, left: int) -> None:
    """`left` ids remain for two rows; -1: the ids of the first file already go beyond the end."""
    txlog.write(tmp_path, xs(1, 2, 3), properties=TRACKING)
    mark = 2**63 - 1 - left

    def near_the_end(line: dict[str, Any]) -> None:
        if "add" in line and (left < 0 or not recorded):
            line["add"]["baseRowId"] = mark - 2
        if "domainMetadata" in line:
            line["domainMetadata"]["configuration"] = json.dumps(
                {"rowIdHighWaterMark": mark if left >= 0 else 2}
            )

    table = with_lines(tmp_path, near_the_end)
    if not recorded:
        without_mark(tmp_path, None)
        table = txlog.Table(tmp_path)
    if left == 2:
        table.append(xs(4, 5))
        assert [ids(table)[x][0] for x in (4, 5)] == [2**63 - 2, 2**63 - 1]
        return
    with pytest.raises(LogCorruptError, match=r"no ids|not enough|above"):
        table.append(xs(4, 5))
    assert txlog.Table(tmp_path).version == 0
    assert len(list(tmp_path.glob("*.parquet"))) == 1


@pytest.mark.spec("CON-21", "FRG-5")
def test_a_transaction_gives_fragment_ids_once(tmp_path: Path) -> None:
    """The base's file has no id: each step logs it again, and only the commit gives it one."""
    write_deltalake(tmp_path, xys({1: 0, 2: 0, 3: 0}))
    table = txlog.Table(tmp_path)
    table.alter.set_properties({"delta.enableDeletionVectors": "true"})
    with table.transaction() as tx:
        tx.append(xys({10: 0}))
        tx.delete("x = 1")
        tx.delete("x = 2")
        txlog.Table(tmp_path).append(xys({20: 0}))
    table.maintenance.checkpoint()
    table.append(xys({30: 0}))
    numbers = table.to_arrow(["_fragid"])["_fragid"].to_pylist()
    assert sorted(numbers) == [0, 1, 2, 3]
