"""Variants are written from JSON, Python values and variants."""

from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples

NUMBERS = count()  # Of tables: each example has one of its own.

SCHEMA = pa.schema([("id", pa.int64()), pa.field("v", txlog.variant_type())])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


def held(table: txlog.Table) -> list[Any]:
    return txlog.variant_to_python(txlog.Table(table.uri).to_arrow().sort_by("id")["v"])


@settings(max_examples=examples(40))
@given(st.lists(VALUES, min_size=1, max_size=5))
def test_values_come_back(values: list[Any]) -> None:
    table = txlog.Table.create(f"memory://variants/{next(NUMBERS)}", SCHEMA)
    column = txlog.variant_from_python(values)
    table.append(pa.table({"id": range(len(values)), "v": column}))
    assert held(table) == values
    table.delete("id = 0")
    table.optimize.compact()
    assert held(table) == values[1:]


def test_texts_are_read_as_json(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path, SCHEMA)
    assert table.protocol.reader_features == ["variantType"]
    texts = ['{"a": [1, 2.50, 1e3, null, "x"]}', None, "null", "123456789012345678901"]
    table.append(pa.table({"id": range(4), "v": texts}))
    found = txlog.variant_to_json(table.to_arrow().sort_by("id")["v"]).to_pylist()
    assert found == ['{"a":[1,2.5,1000.0,null,"x"]}', None, "null", "123456789012345678901"]
    for wrong, why in (("{nope", "row 1"), ('{"a":1,"a":2}', "twice"), ("NaN", "not JSON")):
        with pytest.raises(txlog.SchemaMismatchError, match=why):
            table.append(pa.table({"id": [8, 9], "v": ["1", wrong]}))
    assert table.refresh().version == 1


def test_other_values_and_verbs(tmp_path: Path) -> None:
    properties = {"delta.enableVariantShredding": "true", "delta.enableChangeDataFeed": "true"}
    table = txlog.Table.create(tmp_path, SCHEMA, properties=properties)
    assert table.protocol.reader_features == ["variantShredding", "variantType"]
    table.append(pa.table({"id": [1], "v": [{"k": [1, 2]}]}))
    table.append(
        pa.table({"id": [2], "v": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))})
    )
    table.append(pa.table({"id": [3], "v": [7]}))
    table.append(table.to_arrow().set_column(0, "id", pa.array([4, 5, 6])))
    assert held(table) == [{"k": [1, 2]}, {"a": 1}, 7] * 2
    table.update({"id": "id + 10"}, "id = 6")
    table.upsert(pa.table({"id": [1], "v": ["[]"]}), on="id")
    assert held(table) == [[], {"a": 1}, 7, {"k": [1, 2]}, {"a": 1}, 7]
    assert table.changes(1).to_arrow().num_rows >= 9
    table.maintenance.checkpoint()
    assert held(table)[0] == []
    table.alter.drop_feature("variantShredding", truncate_history=True)
    assert held(table)[0] == []
    with pytest.raises(txlog.UnsupportedFeatureError, match="columns need it: v"):
        table.alter.drop_feature("variantType")


def test_files_are_as_the_protocol_says(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"v": txlog.variant_from_json(["[1]", None])}))
    (path,) = tmp_path.glob("*.parquet")
    leaves = pq.ParquetFile(path).schema
    assert [leaves.column(at).path for at in range(2)] == ["v.value", "v.metadata"]
    assert '"nullCount":{"v":1}' in str(table.snapshot.tail.rows["stats"][0].as_py())
    with pytest.raises(txlog.InvalidInputError, match="cannot partition"):
        txlog.Table.create(tmp_path / "p", SCHEMA, partition_by=["v"])


VARIANT = txlog.variant_type()
NESTED = pa.schema(
    [
        ("s", pa.struct([("v", VARIANT), ("deep", pa.list_(pa.struct([("w", VARIANT)])))])),
        ("l", pa.list_(VARIANT)),
        ("m", pa.map_(pa.string(), VARIANT)),
    ]
)
NESTED_ROWS = pa.table(
    {
        "s": [{"v": '{"a":1}', "deep": [{"w": "[2]"}, {"w": None}]}, None],
        "l": [["1", None, '"x"'], []],
        "m": pa.array([[("k", "true")], []], pa.map_(pa.string(), pa.string())),
    }
)


def parts(table: txlog.Table) -> list[list[str | None]]:
    """Return the JSON of all nested variants, column by column."""
    rows = table.to_arrow().combine_chunks()
    structs = rows["s"].chunk(0)
    found = [
        structs.field("v"),
        structs.field("deep").flatten().field("w"),
        rows["l"].chunk(0).flatten(),
        rows["m"].chunk(0).items,
    ]
    return [txlog.variant_to_json(column).to_pylist() for column in found]


def test_they_may_be_nested(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path / "t", NESTED)
    table.append(NESTED_ROWS)
    expected = [['{"a":1}', None], ["[2]", None], ["1", None, '"x"'], ["true"]]
    assert parts(table) == expected
    table.overwrite(table.to_arrow())  # As variants, which they are by now.
    assert parts(table) == expected
    table.update({"l": "l"}, "s IS NULL")
    table.optimize.compact()
    assert sorted(map(repr, parts(table)[2])) == sorted(map(repr, expected[2]))
    with pytest.raises(txlog.SchemaMismatchError, match="not JSON"):
        table.append(pa.table({"l": [["NaN"]]}))
    torn = pa.array([[{"value": b"x", "metadata": None}]], pa.list_(
        pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
    ))  # fmt: skip
    with pytest.raises(txlog.SchemaMismatchError, match="metadata is null"):
        table.append(pa.table({"l": torn}))


@pytest.mark.exhaustive
@pytest.mark.spark
def test_spark_reads_nested_ones(spark: Any, tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path, NESTED)
    table.append(NESTED_ROWS)
    files = [str(path) for path in tmp_path.glob("*.parquet")]
    kinds = "s struct<v variant, deep array<struct<w variant>>>, l array<variant>"
    frame = spark.read.schema(f"{kinds}, m map<string, variant>").parquet(*files).limit(1)
    (found,) = frame.selectExpr(
        "to_json(s.v)", "to_json(s.deep[0].w)", "to_json(l[2])", "l[1] IS NULL", "to_json(m['k'])"
    ).collect()
    assert tuple(found) == ('{"a":1}', "[2]", '"x"', True, "true")


@pytest.mark.slow
@pytest.mark.spark
def test_spark_reads_them(spark: Any, tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path, SCHEMA)
    texts = ['{"a":[1,2.5,null,"x"]}', None, "true", '"text"']
    table.append(pa.table({"id": range(4), "v": texts}))
    files = [str(path) for path in tmp_path.glob("*.parquet")]
    frame = spark.read.schema("id long, v variant").parquet(*files)
    found = frame.selectExpr("id", "to_json(v) AS j").orderBy("id").collect()
    assert [row.j for row in found] == texts


@pytest.mark.parametrize(
    ("metadata", "value"),
    [
        (b"", b""),
        (b"\x01\x00\x00", b""),
        (b"\x01\x00\x00", b"abc"),
        (b"\x02\x00\x00", b"\x00"),
        (b"\x01\x01\x00\x09a", b"\x00"),
        (b"\x01\x00\x00", b"\x02\x01\x00\x00\x01\x00"),
    ],
)
def test_bytes_that_are_no_variant_are_refused(
    tmp_path: Path, metadata: bytes, value: bytes
) -> None:
    """Other engines could not read the table."""
    sound = txlog.variant_from_python([1, None, {"a": [2]}])
    table = txlog.write(tmp_path, pa.table({"v": sound}))
    kind = pa.struct(
        [pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)]
    )
    rows = [{"metadata": b"\x01\x00\x00", "value": b"\x00"}, {"metadata": metadata, "value": value}]
    data = pa.table({"v": pa.array(rows, kind)})
    for verb in (table.append, table.overwrite):
        with pytest.raises(txlog.SchemaMismatchError, match="row 1: ") as caught:
            verb(data)
        assert "omit the row" in caught.value.remedy  # No cast helps.
    table.append(data.slice(0, 1))
    assert txlog.variant_to_python(table.to_arrow()["v"])[-1] is None
    assert table.count() == 4
