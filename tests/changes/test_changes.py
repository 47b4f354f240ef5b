"""The change data feed: cdc files, plain adds and removes, deletion vectors, ranges."""

import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

import txlog
from txlog.base.errors import InvalidInputError, NotFoundError, TxlogError, UnsupportedFeatureError
from txlog.fragments.deletion_vector import encode_vector, inline_descriptor

FEED = {"delta.enableChangeDataFeed": "true"}
PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 4}
NOON = 1_750_000_000_000


def schema_string(*fields: tuple[str, str]) -> str:
    return orjson.dumps(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": kind, "nullable": True, "metadata": {}}
                for name, kind in fields
            ],
        }
    ).decode()


LONG_AND_TEXT = schema_string(("a", "long"), ("s", "string"))


class Writer:
    """Another writer: it puts files and commits as the test says."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.version = -1
        (root / "_delta_log").mkdir(parents=True)

    def metadata(self, schema: str = LONG_AND_TEXT, **fields: Any) -> dict[str, Any]:
        return {
            "metaData": {
                "id": "feed",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": schema,
                "partitionColumns": [],
                "configuration": FEED,
                **fields,
            }
        }

    def file(self, path: str, rows: list[dict[str, Any]], schema: pa.Schema | None = None) -> str:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), self.root / path)
        return path

    def add(self, path: str, **fields: Any) -> dict[str, Any]:
        return {"add": {**self._body(path), "modificationTime": 0, **fields}}

    def remove(self, path: str, **fields: Any) -> dict[str, Any]:
        return {"remove": {**self._body(path), "extendedFileMetadata": True, **fields}}

    def cdc(self, path: str) -> dict[str, Any]:
        return {"cdc": {**self._body(path), "dataChange": False}}

    def _body(self, path: str) -> dict[str, Any]:
        size = (self.root / path).stat().st_size
        return {"path": path, "partitionValues": {}, "size": size, "dataChange": True}

    def commit(self, *actions: dict[str, Any]) -> int:
        self.version += 1
        path = self.root / "_delta_log" / f"{self.version:020d}.json"
        path.write_bytes(b"\n".join(map(orjson.dumps, actions)))
        stamp = (NOON + self.version * 60_000) * 1_000_000
        os.utime(path, ns=(stamp, stamp))
        return self.version


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    writer = Writer(tmp_path / "t")
    writer.commit({"protocol": PROTOCOL}, writer.metadata())
    return writer


def told(changes: txlog.Changes) -> list[tuple[Any, ...]]:
    rows = changes.to_arrow().to_pylist()
    return sorted((r["_commit_version"], r["_change_type"], r["a"], r["s"]) for r in rows)


@pytest.mark.spec("FED-2", "FED-4")
def test_inserts_and_deletes_of_whole_files(writer: Writer) -> None:
    path = writer.file("x.parquet", [{"a": 1, "s": "x"}, {"a": 2, "s": "y"}])
    writer.commit(writer.add(path))
    writer.commit(writer.remove(path))
    changes = txlog.Table(writer.root).changes()
    assert told(changes) == [
        (1, "insert", 1, "x"), (1, "insert", 2, "y"),
        (2, "delete", 1, "x"), (2, "delete", 2, "y"),
    ]  # fmt: skip
    assert (changes.start_version, changes.end_version) == (0, 2)
    assert changes.count() == 4
    assert changes.schema.names == [
        "a",
        "s",
        "_change_type",
        "_commit_version",
        "_commit_timestamp",
    ]
    assert changes.schema.field("_commit_timestamp").type == pa.timestamp("us", "UTC")
    stamps = dict(
        zip(*(changes.to_arrow()[n].to_pylist() for n in changes.schema.names[-2:]), strict=True)
    )
    noon = datetime.fromtimestamp(NOON / 1000, UTC)
    assert stamps == {v: noon + timedelta(minutes=v) for v in (1, 2)}


@pytest.mark.spec("FED-1")
def test_cdc_files_tell_everything_of_their_version(writer: Writer) -> None:
    old = writer.file("x.parquet", [{"a": 1, "s": "x"}, {"a": 2, "s": "y"}])
    writer.commit(writer.add(old))
    new = writer.file("y.parquet", [{"a": 1, "s": "x"}, {"a": 2, "s": "z"}])
    cdc = writer.file(
        "_change_data/c.parquet",
        [
            {"a": 2, "s": "y", "_change_type": "update_preimage"},
            {"a": 2, "s": "z", "_change_type": "update_postimage"},
        ],
    )
    writer.commit(writer.remove(old), writer.add(new), writer.cdc(cdc))
    table = txlog.Table(writer.root)
    assert told(table.changes(2)) == [
        (2, "update_postimage", 2, "z"), (2, "update_preimage", 2, "y"),
    ]  # fmt: skip
    # They are no part of the table.
    assert sorted(table.to_arrow()["s"].to_pylist()) == ["x", "z"]


@pytest.mark.spec("FED-2")
def test_rows_that_only_moved_are_no_change(writer: Writer) -> None:
    old = writer.file("x.parquet", [{"a": 1, "s": "x"}])
    writer.commit(writer.add(old))
    new = writer.file("y.parquet", [{"a": 1, "s": "x"}])
    writer.commit(writer.remove(old, dataChange=False), writer.add(new, dataChange=False))
    assert told(txlog.Table(writer.root).changes(2)) == []


def vector(*positions: int) -> dict[str, Any]:
    return inline_descriptor(encode_vector(BitMap64(positions)), len(positions)).to_json()


@pytest.mark.spec("FED-3")
@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, [0, 2], [("delete", 0), ("delete", 2)]),
        ([0], [0, 2], [("delete", 2)]),
        ([0, 2], [2], [("insert", 0)]),
        ([0, 1], [1, 2], [("delete", 2), ("insert", 0)]),
        ([3], None, [("insert", 3)]),
        ([0], [0], []),
        (None, None, []),
    ],
)
def test_two_vectors_of_a_file_differ_by_its_changes(
    tmp_path: Path, before: Any, after: Any, expected: list[Any]
) -> None:
    writer = Writer(tmp_path / "t")
    both = ["deletionVectors"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": both,
        "writerFeatures": [*both, "changeDataFeed"],
    }
    writer.commit({"protocol": protocol}, writer.metadata())
    path = writer.file("x.parquet", [{"a": n, "s": "x"} for n in range(4)])
    held, holds = (
        {} if rows is None else {"deletionVector": vector(*rows)} for rows in (before, after)
    )
    writer.commit(writer.add(path, stats='{"numRecords":4}', **held))
    writer.commit(writer.remove(path, **held), writer.add(path, stats='{"numRecords":4}', **holds))
    table = txlog.Table(writer.root)
    assert [row[1:3] for row in told(table.changes(2))] == expected
    assert table.changes(1, 1).count() == 4 - len(before or [])


def test_partition_values_that_a_remove_leaves_out(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "t")
    writer.commit({"protocol": PROTOCOL}, writer.metadata(partitionColumns=["s"]))
    path = writer.file("s=x/1.parquet", [{"a": 1}])
    writer.commit(writer.add(path, partitionValues={"s": "x"}))
    writer.commit({"remove": {"path": path, "dataChange": True, "deletionTimestamp": 1}})
    assert told(txlog.Table(writer.root).changes(2)) == [(2, "delete", 1, "x")]


@pytest.mark.spec("FED-6")
def test_columns_come_later(writer: Writer) -> None:
    short = schema_string(("a", "integer"))
    writer.commit(writer.metadata(short) | {})
    writer.commit(writer.add(writer.file("x.parquet", [{"a": 1}])))
    writer.commit(writer.metadata())
    writer.commit(writer.add(writer.file("y.parquet", [{"a": 2, "s": "y"}])))
    assert told(txlog.Table(writer.root).changes(2)) == [
        (2, "insert", 1, None), (4, "insert", 2, "y"),
    ]  # fmt: skip


@pytest.mark.spec("FED-6")
@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        (schema_string(("a", "long")), "column s was dropped"),
        (schema_string(("a", "long"), ("s", "binary")), "column s was string and became binary"),
        (schema_string(("a", "short"), ("s", "string")), "column a was long and became short"),
    ],
)
def test_columns_that_changed_their_kind_are_named(writer: Writer, schema: str, fault: str) -> None:
    writer.commit(writer.metadata(schema))
    table = txlog.Table(writer.root)
    with pytest.raises(UnsupportedFeatureError, match=fault):
        table.changes()
    assert table.changes(1).count() == 0
    assert txlog.Table(writer.root, version=0).changes().count() == 0


@pytest.mark.spec("FED-5")
def test_versions_without_the_feed_are_named(writer: Writer) -> None:
    writer.commit(writer.metadata(configuration={}))
    writer.commit(writer.metadata())
    table = txlog.Table(writer.root)
    with pytest.raises(UnsupportedFeatureError, match="version 1 does not record changes"):
        table.changes(0, 2)
    assert table.changes(2).count() == 0
    assert table.changes(0, 0).count() == 0


def test_the_property_counts_only_with_the_feature(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "t")
    writer.commit({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, writer.metadata())
    with pytest.raises(UnsupportedFeatureError, match="version 0 does not record changes"):
        txlog.Table(writer.root).changes()


def test_the_feed_has_the_columns_of_deltalakes(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"a": [1, 2]}), properties=FEED)
    table.delete("a = 1")
    ours = table.changes(0).to_arrow()
    theirs = pa.table(deltalake.DeltaTable(tmp_path).load_cdf(0).read_all())
    names = ("_change_type", "_commit_version", "_commit_timestamp")
    for name in names:
        assert ours.schema.field(name).nullable == theirs.schema.field(name).nullable is True
    assert table.diff(0, 1, on="a").to_arrow().schema.field("_change_type").nullable


NESTED = pa.struct([pa.field("x", pa.int64()), pa.field("y", pa.int64(), nullable=False)])
ITEMS = pa.list_(pa.field("element", pa.int64(), nullable=False))
ENTRIES = pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))
OLDER = {  # Values before NOT NULL, if the column was there, and a later value of its type.
    "added": (None, 1, pa.int64()),
    "plain": (pa.array([None, 7]), 1, pa.int64()),
    "struct": (pa.array([None, {"x": 7}]), {"x": 1, "y": 2}, NESTED),
    "list": (pa.array([None, [None, 7]]), [1], ITEMS),
    "map": (pa.array([None, [("k", None)]], pa.map_(pa.string(), pa.int64())), [("k", 1)], ENTRIES),
}


@pytest.mark.spec("FED-6")
@pytest.mark.parametrize("name", OLDER)
def test_rows_older_than_not_null_can_be_written(tmp_path: Path, name: str) -> None:
    """Parquet refuses nulls in a column whose schema excludes them."""
    values, later, kind = OLDER[name]
    old = pa.table({"a": [1, 2]} if values is None else {"a": [1, 2], "c": values})
    schema = pa.schema([pa.field("a", pa.int64()), pa.field("c", kind, nullable=False)])
    new = pa.Table.from_arrays([pa.array([3]), pa.array([later], kind)], schema=schema)
    table = txlog.write(tmp_path / "t", old, properties=FEED)
    table.overwrite(new, schema_mode="overwrite")
    for found in (table.changes(0), table.changes(1), table.diff(0, 1)):
        rows = found.to_arrow()
        assert rows["c"].null_count > 0
        pq.write_table(rows, tmp_path / "changes.parquet")
        assert pq.read_table(tmp_path / "changes.parquet").num_rows == rows.num_rows


def test_predicates_and_columns(writer: Writer) -> None:
    for number in range(4):
        path = writer.file(f"{number}.parquet", [{"a": number, "s": "x"}])
        low = {"a": number}
        stats = orjson.dumps({"numRecords": 1, "minValues": low, "maxValues": low}).decode()
        writer.commit(writer.add(path, stats=stats))
    table = txlog.Table(writer.root)
    changes = table.changes(where="a >= 2", columns=["_commit_version", "a"])
    assert changes.to_arrow().to_pylist() == [
        {"_commit_version": 3, "a": 2}, {"_commit_version": 4, "a": 3},
    ]  # fmt: skip
    assert len(changes.files) == 2  # The others' statistics rule them out.
    assert table.changes(where="_commit_version = 2").count() == 1
    assert table.changes(where="_change_type = 'delete'").count() == 0
    assert pa.table(changes).num_rows == 2
    assert sum(batch.num_rows for batch in changes.to_batches(batch_size=1)) == 2
    with pytest.raises(InvalidInputError):
        table.changes(columns=["b"])


def test_fields_of_structs(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "st": [{"a": 1, "b": "x"}, None]})
    table = txlog.write(tmp_path, rows, properties={"delta.enableChangeDataFeed": "true"})
    table.update({"st.b": "'y'"}, "id = 1")
    feed = table.changes(1, columns=["st.b", "_change_type"], where="st.a = 1")
    assert feed.schema.names == ["st.b", "_change_type"]
    assert sorted(feed.to_arrow().to_pylist(), key=str) == [
        {"st.b": "x", "_change_type": "update_preimage"},
        {"st.b": "y", "_change_type": "update_postimage"},
    ]
    whole = table.changes().to_arrow()
    told = table.changes(columns=["id", "st.b"]).to_arrow().to_pylist()
    assert told == [
        {"id": row["id"], "st.b": None if row["st"] is None else row["st"]["b"]}
        for row in whole.to_pylist()
    ]
    with pytest.raises(InvalidInputError):
        table.changes(columns=["st.c"])


def moment(version: int, extra_ms: int = 0) -> datetime:
    return datetime.fromtimestamp((NOON + version * 60_000 + extra_ms) / 1000, UTC)


@pytest.mark.parametrize(
    ("starting", "ending", "expected"),
    [
        (moment(1), moment(2), (1, 2)),
        (moment(1, 1), moment(3, -1), (2, 2)),
        (moment(0, -1), moment(9), (0, 3)),
        (moment(2, 30_000), None, (3, 3)),
        (None, moment(0, 5), (0, 0)),
    ],
)
def test_ranges_by_time(writer: Writer, starting: Any, ending: Any, expected: Any) -> None:
    for _ in range(3):
        writer.commit({"txn": {"appId": "a", "version": 1}})
    changes = txlog.Table(writer.root).changes(start_timestamp=starting, end_timestamp=ending)
    assert (changes.start_version, changes.end_version) == expected


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"start_version": 9}, NotFoundError),
        ({"end_version": 9}, NotFoundError),
        ({"start_version": 1, "end_version": 0}, InvalidInputError),
        ({"start_version": -1}, InvalidInputError),
        ({"start_version": True}, InvalidInputError),
        ({"start_version": 0, "start_timestamp": 0}, InvalidInputError),
        ({"end_version": 0, "end_timestamp": 0}, InvalidInputError),
        ({"start_timestamp": moment(5)}, NotFoundError),
        ({"end_timestamp": moment(0, -1)}, NotFoundError),
        ({"start_timestamp": "soon"}, InvalidInputError),
    ],
)
def test_ranges_that_are_none(
    writer: Writer, arguments: dict[str, Any], error: type[TxlogError]
) -> None:
    writer.commit({"txn": {"appId": "a", "version": 1}})
    with pytest.raises(error):
        txlog.Table(writer.root).changes(**arguments)


THEIRS = {
    f"{end}_{what}": f"{end}ing_{what}"
    for end in ("start", "end")
    for what in ("version", "timestamp")
}


@pytest.mark.parametrize(
    ("arguments", "versions"),
    [
        ({"start_version": 9}, []),
        ({"start_version": 9, "end_version": 12}, []),
        ({"start_timestamp": "2999-01-01T00:00:00Z"}, []),
        ({"start_version": 1, "end_version": 9}, [1, 2]),
        ({"end_timestamp": "2999-01-01T00:00:00Z"}, [0, 1, 2]),
    ],
)
def test_ranges_that_may_be_out_of_the_history(
    tmp_path: Path, arguments: dict[str, Any], versions: list[int]
) -> None:
    table = txlog.write(
        tmp_path, pa.table({"x": [0]}), properties={"delta.enableChangeDataFeed": "true"}
    )
    table.append(pa.table({"x": [1]}))
    table.append(pa.table({"x": [2]}))
    found = table.changes(**arguments, out_of_range="clip")
    assert found.to_arrow()["_commit_version"].to_pylist() == versions
    assert found.count() == len(versions)
    theirs = deltalake.DeltaTable(tmp_path).load_cdf(
        **{THEIRS[name]: value for name, value in arguments.items()},
        allow_out_of_range=True,
    )
    told = theirs.read_all()
    rows = told["_commit_version"].to_pylist() if told.num_rows else []
    assert sorted(rows) == versions


def test_ranges_between_pins(tmp_path: Path) -> None:
    table = txlog.write(
        tmp_path, pa.table({"x": [0]}), properties={"delta.enableChangeDataFeed": "true"}
    )
    for x in (1, 2, 3):
        table.append(pa.table({"x": [x]}))
    table.pins.create("first", 1)
    table.pins.create("second", 2)
    found = table.changes("first", "second")
    assert (found.start_version, found.end_version) == (1, 2)
    assert found.to_arrow()["x"].to_pylist() == [1, 2]
    assert table.at(2).changes("second").count() == 1
    with pytest.raises(NotFoundError, match="no pin 'third'"):
        table.changes("third")
    with pytest.raises(InvalidInputError, match="'cut' is not error or clip"):
        table.changes(0, out_of_range="cut")  # type: ignore[arg-type]


@pytest.mark.spec("FED-5")
def test_commits_that_were_cleaned_up(writer: Writer) -> None:
    for number in range(3):
        path = writer.file(f"{number}.parquet", [{"a": number, "s": "x"}])
        writer.commit(writer.add(path))
    table = txlog.Table(writer.root)
    pq.write_table(
        pa.Table.from_pylist(
            [
                {"protocol": PROTOCOL},
                {"metaData": writer.metadata()["metaData"] | {"configuration": [("a", "b")]}},
            ]
        ),
        writer.root / "x.tmp",
    )
    (writer.root / "_delta_log" / f"{0:020d}.json").rename(writer.root / "kept")
    with pytest.raises(NotFoundError, match="from version 1 on"):
        table.changes()
    with pytest.raises(NotFoundError, match="there were versions before it"):
        table.changes(start_timestamp=moment(0))


def test_tight_statistics_hide_no_deleted_row(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "t")
    both = ["deletionVectors"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": both,
        "writerFeatures": [*both, "changeDataFeed"],
    }
    writer.commit({"protocol": protocol}, writer.metadata())
    path = writer.file("x.parquet", [{"a": 1, "s": "x"}, {"a": 100, "s": "y"}])
    writer.commit(writer.add(path, stats='{"numRecords":2}'))
    # The statistics are made anew, of the rows that are left.
    tight = '{"numRecords":2,"tightBounds":true,"minValues":{"a":1},"maxValues":{"a":1}}'
    vectored = writer.add(path, stats=tight, deletionVector=vector(1))
    writer.commit(writer.remove(path), vectored)
    table = txlog.Table(writer.root)
    assert told(table.changes(2, where="a > 50")) == [(2, "delete", 100, "y")]


def test_a_column_of_the_feeds_name(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "t")
    schema = schema_string(("_change_type", "string"))
    writer.commit({"protocol": PROTOCOL}, writer.metadata(schema))
    with pytest.raises(UnsupportedFeatureError, match="_change_type"):
        txlog.Table(writer.root).changes()


Rows = Counter[str]


def as_counter(table: pa.Table, names: list[str]) -> Rows:
    return Counter(map(str, table.select(names).to_pylist()))


def replayed(table: txlog.Table, before: Rows, changes: pa.Table) -> Rows:
    """Return rows after changes: what a follower of the feed would hold."""
    names = table.schema.names
    kinds = changes["_change_type"]
    after = before.copy()
    for kind, sign in (
        ("delete", -1), ("update_preimage", -1), ("insert", 1), ("update_postimage", 1),
    ):  # fmt: skip
        rows = as_counter(changes.filter(pa.compute.equal(kinds, kind)), names)
        for row, count in rows.items():
            after[row] += sign * count
    return +after


@pytest.mark.spec("FED-7")
def test_a_follower_holds_what_the_table_holds(writer: Writer) -> None:
    files: list[str] = []
    for number in range(6):
        actions = [writer.add(writer.file(f"{number}.parquet", [{"a": number, "s": "x"}]))]
        if number % 3 == 2:
            actions.append(writer.remove(files.pop(0)))
        files.append(f"{number}.parquet")
        writer.commit(*actions)
    held: Rows = Counter()
    for version in range(writer.version + 1):
        table = txlog.Table(writer.root, version=version)
        held = replayed(table, held, table.changes(version).to_arrow())
        assert held == as_counter(table.to_arrow(), table.schema.names)
