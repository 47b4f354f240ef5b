"""Columns that the data lacks get the default values in the table's schema."""

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from txlog.base.errors import SchemaMismatchError
from txlog.schema.types import (
    STRING,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

LONG = PrimitiveType("long")

ROWS = pa.table({"x": pa.array([1, 2], pa.int64())})


def table_with(
    path: Path, kind: DataType | str, default: str, *, nullable: bool = True
) -> txlog.Table:
    kind = PrimitiveType(kind) if isinstance(kind, str) else kind
    column = StructField("c", kind, nullable, {"CURRENT_DEFAULT": default})
    schema = StructType((StructField("x", PrimitiveType("long")), column))
    return txlog.Table.create(path, schema)


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ("long", "7", 7),
        ("integer", "-7", -7),
        ("byte", "1 + 2 * 3", 7),
        ("double", "1.5", 1.5),
        ("double", "1", 1.0),
        ("float", "0.5", 0.5),
        (DecimalType(6, 2), "12.5", Decimal("12.50")),
        ("string", r"'it\'s'", "it's"),
        ("string", '"a.b"', "a.b"),
        ("string", "''", ""),
        ("boolean", "true", True),
        ("boolean", "1 > 2", False),
        ("date", "DATE '2020-02-29'", date(2020, 2, 29)),
        ("date", "CAST('2020-02-29' AS DATE)", date(2020, 2, 29)),
        ("timestamp", "TIMESTAMP '2020-02-29 10:00:00Z'", datetime(2020, 2, 29, 10, tzinfo=UTC)),
        ("binary", "X'00ff'", b"\x00\xff"),
        ("long", "NULL", None),
        ("long", "CAST(NULL AS BIGINT)", None),
    ],
)
def test_a_column_left_out_gets_its_default(
    tmp_path: Path, kind: DataType | str, default: str, value: Any
) -> None:
    table = table_with(tmp_path, kind, default)
    assert "allowColumnDefaults" in (table.protocol.writer_features or [])
    table.append(ROWS)
    assert table.to_arrow()["c"].to_pylist() == [value, value]
    table.overwrite(ROWS.slice(1))
    assert table.to_arrow().to_pylist() == [{"x": 2, "c": value}]


def test_nulls_that_are_given_stay_nulls(tmp_path: Path) -> None:
    table = table_with(tmp_path, "long", "7")
    table.append(pa.table({"x": [1, 2], "C": pa.array([None, 3], pa.int64())}))
    assert table.to_arrow()["c"].to_pylist() == [None, 3]


def test_a_default_stands_in_for_a_column_that_must_not_be_null(tmp_path: Path) -> None:
    table = table_with(tmp_path / "t", "long", "7", nullable=False)
    table.append(ROWS)
    assert table.to_arrow()["c"].to_pylist() == [7, 7]
    table = table_with(tmp_path / "u", "long", "NULL", nullable=False)
    with pytest.raises(txlog.SchemaMismatchError, match="c must not be null"):
        table.append(ROWS)


def test_a_default_holds_for_fragments_of_workers_and_merges(tmp_path: Path) -> None:
    table = table_with(tmp_path, "long", "7")
    fragments = txlog.write_fragments(ROWS, table)
    table.commit(txlog.FragmentOperation.Append(fragments))
    table.append(pa.table({"x": [3], "new": ["a"]}), schema_mode="merge")
    assert table.to_arrow()["c"].to_pylist() == [7, 7, 7]
    assert table.metadata.schema_string.count("CURRENT_DEFAULT") == 1


def test_a_default_of_now(tmp_path: Path) -> None:
    table = table_with(tmp_path, "timestamp", "current_timestamp()")
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    table.append(pa.table({"x": [3]}))
    (moment,) = table.to_arrow(where="x = 3")["c"].to_pylist()
    assert before <= moment <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("double", "rand()"),
        ("string", "soundex('a')"),
        ("long", "'no number'"),
        ("byte", "300"),
        ("long", "x + 1"),
        ("long", "1 +"),
    ],
)
def test_a_default_that_cannot_be_evaluated_is_refused(
    tmp_path: Path, kind: str, default: str
) -> None:
    table = table_with(tmp_path, kind, default)
    with pytest.raises(txlog.UnsupportedFeatureError, match="allowColumnDefaults") as caught:
        table.append(ROWS)
    assert f"column c, and txlog cannot evaluate its default {default} " in str(caught.value)
    assert not list(tmp_path.glob("*.parquet"))
    given = table.schema.field("c").type
    table.append(ROWS.append_column("c", pa.nulls(2, given)))
    assert table.to_arrow()["c"].to_pylist() == [None, None]


def test_nulls_in_maps_are_refused(tmp_path: Path) -> None:
    inner = pa.struct([pa.field("v", pa.int64(), False)])
    schema = pa.schema(
        [
            pa.field("m", pa.map_(pa.string(), pa.field("value", pa.int64(), False))),
            pa.field("n", pa.map_(pa.string(), inner)),
        ]
    )
    nullable = pa.struct([("v", pa.int64())])
    loose = pa.schema(
        [("m", pa.map_(pa.string(), pa.int64())), ("n", pa.map_(pa.string(), nullable))]
    )
    table = txlog.Table.create(tmp_path / "t", schema)
    table.append(
        pa.table({"m": [[("a", 1)], None], "n": [[("a", {"v": 1}), ("b", None)], []]}, loose)
    )
    for name, value, says in (
        ("m", [("a", None)], "column m.value must not be null"),
        ("n", [("a", {"v": None})], "column n.value.v must not be null"),
    ):
        row = {"m": None, "n": None, name: value}
        with pytest.raises(txlog.SchemaMismatchError, match=says):
            table.append(pa.Table.from_pylist([row, row], loose).slice(1))
    assert table.count() == 2


def test_the_first_value_that_breaks_a_constraint_is_shown_on_one_line(tmp_path: Path) -> None:
    rows = [{"v": {"a": 1, "b": "x"}, "w": ["y"]}, {"v": {"a": -1, "b": "x"}, "w": ["é\n"] * 90}]
    table = txlog.write(tmp_path / "t", pa.Table.from_pylist(rows[:1]))
    table.alter.add_constraint({"positive": "v.a > 0"})
    with pytest.raises(txlog.SchemaMismatchError, match=r"the first has v\.a = -1 ") as caught:
        table.append(pa.Table.from_pylist(rows))
    assert "\n" not in caught.value.reason
    table.alter.drop_constraint("positive")
    table.alter.add_constraint({"few": "size(w) < 3 AND v.b = 'x'"})
    with pytest.raises(txlog.SchemaMismatchError) as caught:
        table.append(pa.Table.from_pylist(rows))
    shown = str(rows[1]["w"])[:80]
    assert caught.value.reason.endswith(f"; the first has w = {shown}…, v.b = 'x'")


SIZED = StructType(
    (
        StructField("v", STRING, True, {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}),
        StructField("c", STRING, True, {"__CHAR_VARCHAR_TYPE_STRING": "char(2)"}),
        StructField(
            "l",
            ArrayType(StructType((StructField("ab", STRING), StructField("n", LONG)))),
            True,
            {"__CHAR_VARCHAR_TYPE_STRING": "array<struct<ab:varchar(2),n:bigint>>"},
        ),
        StructField(
            "m",
            MapType(STRING, ArrayType(STRING)),
            True,
            {"__CHAR_VARCHAR_TYPE_STRING": "map<char(1),array<varchar(2)>>"},
        ),
        StructField("s", STRING, True, {"__CHAR_VARCHAR_TYPE_STRING": "string"}),
    )
)


def test_texts_are_not_longer_than_their_columns_say(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path / "t", SIZED)
    schema = pa.schema(
        [
            ("v", pa.string()),
            ("c", pa.string()),
            ("l", pa.list_(pa.struct([("ab", pa.string()), ("n", pa.int64())]))),
            ("m", pa.map_(pa.string(), pa.list_(pa.string()))),
            ("s", pa.string()),
        ]
    )
    fits = {"v": "äöü", "c": "x", "l": [{"ab": "ab", "n": 1000}, None], "m": [("k", ["ab", None])],
            "s": "any length"}  # fmt: skip
    table.append(pa.Table.from_pylist([fits, dict.fromkeys(fits)], schema))
    for name, wrong, declared in (
        ("v", "äöüx", "varchar(3)"),
        ("c", "abc", "char(2)"),
        ("l", [{"ab": "abc", "n": 1}], "array<struct<ab:varchar(2),n:bigint>>"),
        ("m", [("kk", [])], "map<char(1),array<varchar(2)>>"),
        ("m", [("k", ["abc"])], "map<char(1),array<varchar(2)>>"),
    ):
        with pytest.raises(SchemaMismatchError, match=re.escape(f"{name} ({declared})")):
            table.append(pa.Table.from_pylist([fits, {**fits, name: wrong}], schema))
    with pytest.raises(SchemaMismatchError, match="varchar"):
        table.update({"v": "'long'"})
    assert table.count() == 2
