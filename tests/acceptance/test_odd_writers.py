"""Unusual logs and files of other writers, each one built by hand."""

import json
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog

Actions = list[dict[str, Any]]
LONG = '{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}'
DATA = pa.table({"a": [1, 2, 3]})


def column(name: str, kind: Any, **metadata: Any) -> str:
    field = {"name": name, "type": kind, "nullable": True, "metadata": metadata}
    return json.dumps({"type": "struct", "fields": [field]})


class Maker:
    """Makes tables commit by commit, with nothing but JSON and Parquet."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = root / "_delta_log"
        self.log.mkdir(parents=True)
        self.version = -1

    def start(self, schema: str = LONG, *, protocol: Any = (1, 2), **metadata: Any) -> Actions:
        reader, writer = protocol
        return [
            {"protocol": {"minReaderVersion": reader, "minWriterVersion": writer}},
            {
                "metaData": {
                    "id": "1",
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": schema,
                    "partitionColumns": [],
                    "configuration": {},
                    **metadata,
                }
            },
        ]

    def add(self, data: pa.Table, name: str = "f.parquet", **fields: Any) -> dict[str, Any]:
        pq.write_table(data, self.root / name)
        body = {
            "path": name,
            "partitionValues": {},
            "size": (self.root / name).stat().st_size,
            "modificationTime": 0,
            "dataChange": True,
        }
        return {"add": {**body, **fields}}

    def commit(self, *actions: dict[str, Any]) -> None:
        self.text("\n".join(map(json.dumps, actions)))

    def text(self, text: str) -> None:
        self.version += 1
        (self.log / f"{self.version:020d}.json").write_text(text, encoding="utf-8")

    def table(self) -> txlog.Table:
        return txlog.Table(self.root)


@pytest.fixture
def made(tmp_path: Path) -> Maker:
    return Maker(tmp_path / "t")


def values(table: txlog.Table) -> list[Any]:
    return sorted(table.to_arrow().column(0).to_pylist())


def test_actions_that_are_spelled_out_as_nulls(made: Maker) -> None:
    none = {"add": None, "remove": None, "commitInfo": None}
    made.commit(*({**none, **action} for action in made.start()), {**none, **made.add(DATA)})
    assert values(made.table()) == [1, 2, 3]
    made.commit({**none, "txn": {"appId": "x", "version": 7}})
    assert made.table().transaction_version("x") == 7
    features = {"readerFeatures": ["fooBar"], "writerFeatures": ["fooBar"]}
    made.commit({**none, "protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})
    with pytest.raises(txlog.UnsupportedFeatureError, match="fooBar"):
        made.table()


def test_several_actions_in_one_object(made: Maker) -> None:
    protocol, metadata = made.start()
    made.commit({**protocol, **metadata, **made.add(DATA), "txn": {"appId": "x", "version": 1}})
    assert values(made.table()) == [1, 2, 3]
    assert made.table().transaction_version("x") == 1


def test_a_mark_of_byte_order(made: Maker) -> None:
    actions = [*made.start(), made.add(DATA)]
    made.text("\ufeff" + "\r\n".join(map(json.dumps, actions)) + "\r\n\r\n")
    assert values(made.table()) == [1, 2, 3]


def test_two_equal_adds_are_one(made: Maker) -> None:
    add = made.add(DATA)
    made.commit(*made.start(), add, add)
    assert values(made.table()) == [1, 2, 3]
    other = made.add(DATA, tags={"x": "y"})
    made.commit(other, made.add(DATA, tags={"x": "z"}))
    with pytest.raises(txlog.LogCorruptError, match="twice"):
        made.table().to_arrow()


CHECKPOINT_ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", pa.map_(pa.string(), pa.string())),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("partitionValues_parsed", pa.struct([("p", pa.int32())])),
    ]
)


STRINGS = pa.map_(pa.string(), pa.string())
CHECKPOINT = pa.schema(
    [
        (
            "protocol",
            pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())]),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", STRINGS),
                ]
            ),
        ),
        ("add", CHECKPOINT_ADD),
    ]
)


def checkpoint(made: Maker, start: Actions, adds: Actions, *, parsed: Any = None) -> None:
    """Write a checkpoint of version 0, and take its commit away."""
    protocol, metadata = start
    rows: Actions = [protocol, {"metaData": metadata["metaData"] | {"configuration": []}}]
    for action in adds:
        pairs = None if parsed is not None else list(action["add"]["partitionValues"].items())
        values = {"partitionValues": pairs, "partitionValues_parsed": parsed}
        rows.append({"add": {**action["add"], **values}})
    name = f"{0:020d}.checkpoint.parquet"
    pq.write_table(pa.Table.from_pylist(rows, CHECKPOINT), made.log / name)
    (made.log / f"{0:020d}.json").unlink(missing_ok=True)


def test_a_checkpoint_that_holds_a_file_twice(made: Maker) -> None:
    add = made.add(DATA)
    respelled = {"add": {**add["add"], "path": "./f.parquet"}}
    checkpoint(made, made.start(), [add, add, respelled])
    assert values(made.table()) == [1, 2, 3]
    assert made.table().count() == 3
    checkpoint(made, made.start(), [add, {"add": {**add["add"], "size": 1}}])
    with pytest.raises(txlog.LogCorruptError, match="adds the same file twice"):
        made.table().to_arrow()


def test_partition_values_that_are_only_there_as_a_struct(made: Maker) -> None:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("a", "long"), ("p", "integer"))
    ]
    schema = json.dumps({"type": "struct", "fields": fields})
    add = made.add(DATA, partitionValues={"p": "7"})
    checkpoint(made, made.start(schema, partitionColumns=["p"]), [add], parsed={"p": 7})
    table = made.table()
    assert table.to_arrow()["p"].to_pylist() == [7, 7, 7]
    assert table.count("p = 7") == 3


@pytest.mark.parametrize(
    "metadata",
    [
        {"configuration": None}, {"partitionColumns": None}, {"format": None},
        {"format": {"provider": "PARQUET", "options": None}},
        {"configuration": {"x": True, "y": 5, "z": None}},
    ],
    ids=str,
)  # fmt: skip
def test_metadata_with_nulls_and_bare_values(made: Maker, metadata: dict[str, Any]) -> None:
    made.commit(*made.start(**metadata), made.add(DATA, tags={"n": 1}))
    assert values(made.table()) == [1, 2, 3]


def test_partition_values_that_are_no_text(made: Maker) -> None:
    schema = '{"type":"struct","fields":[{"name":"p","type":"boolean","nullable":true}]}'
    actions = made.start(schema, partitionColumns=["P"])  # Spelled otherwise, too.
    made.commit(*actions, made.add(DATA, partitionValues={"p": True}))
    assert made.table().partition_columns == ["p"]
    assert values(made.table()) == [True] * 3


@pytest.mark.parametrize(
    "info",
    [[], "x", {"txnId": 5}, {"inCommitTimestamp": 1.5}, {"inCommitTimestamp": 10**30},
     {"txlogCrc32": 4}, {"timestamp": "soon", "operation": 3}],
    ids=str,
)  # fmt: skip
def test_what_writers_say_of_themselves_decides_nothing(made: Maker, info: Any) -> None:
    made.commit({"commitInfo": info}, *made.start(), made.add(DATA))
    table = made.table()
    assert values(table) == [1, 2, 3]
    assert table.history()[0]["version"] == 0


@pytest.mark.parametrize("mode", ["NAME", "Id"])
def test_a_mapping_mode_is_read_in_any_case(made: Maker, mode: str) -> None:
    named = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "x"}
    schema = column("a", "long", **named)
    field = pa.field("x", pa.int64(), metadata={"PARQUET:field_id": "1"})
    data = pa.Table.from_arrays([pa.array([4])], schema=pa.schema([field]))
    configuration = {"delta.columnMapping.mode": mode}
    actions = made.start(schema, protocol=(2, 5), configuration=configuration)
    made.commit(*actions, made.add(data))
    assert values(made.table()) == [4]


def test_a_mapping_mode_that_nobody_knows_is_refused(made: Maker) -> None:
    configuration = {"delta.columnMapping.mode": "position"}
    made.commit(*made.start(protocol=(2, 5), configuration=configuration), made.add(DATA))
    with pytest.raises(txlog.UnsupportedFeatureError, match="position"):
        made.table()


@pytest.mark.parametrize(
    ("kind", "arrow"),
    [
        ("null", pa.null()), ("timestamp_ltz", pa.timestamp("us", "UTC")),
        ("char(5)", pa.string()), ("varchar( 7 )", pa.string()),
        ("string collate UTF8_LCASE", pa.string()),
        ({"type": "udt", "class": "v", "sqlType": "double"}, pa.float64()),
    ],
    ids=str,
)  # fmt: skip
def test_types_by_their_other_names(made: Maker, kind: Any, arrow: pa.DataType) -> None:
    made.commit(*made.start(column("x", kind)), made.add(DATA))
    assert made.table().to_arrow().schema.field("x").type == arrow


@pytest.mark.parametrize(
    ("metadata", "names"),
    [({"delta.columnMapping.id": "z"}, "columnMapping.id"), ({"delta.typeChanges": 7}, "Changes")],
    ids=str,
)
def test_columns_whose_metadata_is_no_metadata(
    made: Maker, metadata: dict[str, Any], names: str
) -> None:
    made.commit(*made.start(column("a", "long", **metadata)), made.add(DATA))
    with pytest.raises(txlog.LogCorruptError, match=names) as caught:
        made.table()
    assert caught.value.field == "a"


def test_names_that_only_a_dictionary_takes_for_one(made: Maker) -> None:
    schema = json.dumps(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": "long", "nullable": True, "metadata": {}}
                for name in ("straße", "strasse", "ΣΑΣ")
            ],
        }
    )
    made.commit(*made.start(schema), made.add(pa.table({"strasse": [1], "ΣΑΣ": [2]})))
    found = made.table().to_arrow().to_pylist()
    assert found == [{"straße": None, "strasse": 1, "ΣΑΣ": 2}]


LIST = {"type": "array", "elementType": "long", "containsNull": True}


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        ("string", pa.nulls(2), [None, None]),
        ("variant", pa.nulls(2), [None, None]),
        (LIST, pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), [[1, 2], None]),
        (LIST, pa.array([[None], None], pa.list_(pa.null())), [[None], None]),
        ("binary", pa.array(["x", None]), [b"x", None]),
        ("string", pa.array([b"x", None]), ["x", None]),
        ("string", pa.array(["x", None]).dictionary_encode(), ["x", None]),
    ],
    ids=str,
)
def test_columns_in_other_types_that_hold_the_same(
    made: Maker, kind: Any, data: pa.Array, expected: list[Any]
) -> None:
    actions = made.start(column("a", kind))
    if kind == "variant":
        features = {"readerFeatures": ["variantType"], "writerFeatures": ["variantType"]}
        actions[0] = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    made.commit(*actions, made.add(pa.table({"a": data})))
    assert made.table().to_arrow()["a"].to_pylist() == expected


def test_numbers_are_not_read_from_text(made: Maker) -> None:
    made.commit(*made.start(), made.add(pa.table({"a": [b"12"]})))
    with pytest.raises(txlog.DataFileError, match="column a"):
        made.table().to_arrow()


def test_two_columns_of_one_name_in_a_file(made: Maker) -> None:
    data = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["a", "a", "b"])
    made.commit(*made.start(), made.add(data))
    with pytest.raises(txlog.DataFileError, match="2 columns with the name 'a'"):
        made.table().to_arrow()


def test_a_wrong_number_of_records_hinders_no_reading(made: Maker) -> None:
    made.commit(*made.start(), made.add(DATA, stats='{"numRecords":8}'))
    with pytest.warns(txlog.TxlogWarning, match=r"f\.parquet has 8 rows"):
        assert values(made.table()) == [1, 2, 3]


EMPTY = {"storageType": "i", "pathOrInlineDv": "", "sizeInBytes": 0, "cardinality": 0}


def test_a_vector_of_nothing(made: Maker) -> None:
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    actions = made.start()
    actions[0] = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    made.commit(*actions, made.add(DATA, stats='{"numRecords":3}', deletionVector=EMPTY))
    assert values(made.table()) == [1, 2, 3]
    assert made.table().count() == 3


@pytest.mark.parametrize("spelling", ["FILE:{}/f.parquet", "file://localhost{}/f.parquet"])
def test_removes_that_spell_the_path_otherwise(made: Maker, spelling: str) -> None:
    add = made.add(DATA)
    add["add"]["path"] = f"{made.root}/f.parquet"
    made.commit(*made.start(), add)
    made.commit({"remove": {"path": spelling.format(made.root), "dataChange": True}})
    assert made.table().count() == 0


def test_in_commit_timestamps_count_only_where_they_are_in_force(made: Maker) -> None:
    made.commit({"commitInfo": {"inCommitTimestamp": 5}}, *made.start(), made.add(DATA))
    table = made.table()
    assert table.timestamp_ms == (made.log / f"{0:020d}.json").stat().st_mtime_ns // 1_000_000


def test_oddities_warn_no_more_than_they_must(made: Maker) -> None:
    made.commit(*made.start(), made.add(DATA))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert values(made.table()) == [1, 2, 3]
