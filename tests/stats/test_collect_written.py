"""The log's facts about files: statistics as a simple loop finds them, and partition values."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples

SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("f", pa.float64()),
        ("t", pa.string()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("m", pa.decimal128(5, 2)),
        ("s", pa.struct([("x", pa.int32())])),
        ("l", pa.list_(pa.int64())),
    ]
)
cells = {
    "i": st.integers(-5, 5),
    "f": st.sampled_from([-1.5, 0.0, -0.0, 2.0, math.nan, math.inf]),
    "t": st.sampled_from(["", "a", "b" * 40, "ü"]),
    "b": st.booleans(),
    "d": st.dates(date(2020, 1, 1), date(2020, 1, 9)),
    "m": st.integers(-999, 999).map(lambda n: Decimal(n).scaleb(-2)),
    "s": st.fixed_dictionaries({"x": st.none() | st.integers(0, 5)}),
    "l": st.lists(st.integers(0, 3), max_size=2),
}
rows = st.fixed_dictionaries({name: st.none() | value for name, value in cells.items()})


def plain_bounds(values: list[Any]) -> tuple[Any, Any]:
    known = [v for v in values if v is not None]
    numbers = [v for v in known if v == v]
    if not numbers:
        return None, None
    return min(numbers), None if len(numbers) < len(known) else max(numbers)


@settings(max_examples=examples(40))
@given(st.lists(rows, min_size=1, max_size=8), st.integers(1, 8))
def test_statistics_agree_with_a_plain_loop(data: list[dict[str, Any]], size: int) -> None:
    with TemporaryDirectory() as root:
        table = txlog.write(
            root,
            pa.Table.from_pylist(data, schema=SCHEMA),
            options=txlog.WriteOptions(max_rows_per_file=size),
        )
        for number, text in enumerate(table.files()["stats"].to_pylist()):
            part = data[number * size : (number + 1) * size]
            stats = orjson.loads(text)
            assert stats["numRecords"] == len(part)
            assert stats["tightBounds"] is True
            check_nulls(stats["nullCount"], part)
            low, high = stats["minValues"], stats["maxValues"]
            for name in "idtmf":
                least, greatest = plain_bounds([row[name] for row in part])
                if name == "d":
                    least, greatest = (v and v.isoformat() for v in (least, greatest))
                elif name == "t":
                    least = least if least is None else least[:32]
                    assert greatest is None or high["t"] >= greatest
                    assert greatest is None or len(greatest) > 32 or high["t"] == greatest
                    greatest = high.get("t")
                elif name == "m":
                    least, greatest = (v if v is None else float(v) for v in (least, greatest))
                elif name == "f":
                    least, greatest = (v if v != math.inf else None for v in (least, greatest))
                assert low.get(name) == least
                assert high.get(name) == greatest
            assert "b" not in low
            assert "l" not in low
            nested = plain_bounds([row["s"] and row["s"]["x"] for row in part])
            assert (low.get("s", {}).get("x"), high.get("s", {}).get("x")) == nested


def check_nulls(found: dict[str, Any], part: list[dict[str, Any]]) -> None:
    for name in "iftbdml":
        assert found[name] == sum(row[name] is None for row in part)
    assert found["s"]["x"] == sum(row["s"] is None or row["s"]["x"] is None for row in part)


def test_as_many_columns_have_statistics_as_told(tmp_path: Path) -> None:
    data = pa.table({name: [1] for name in "abc"})
    for count, names in ((0, ""), (2, "ab"), (-1, "abc")):
        table = txlog.write(
            tmp_path / str(count), data,
            properties={"delta.dataSkippingNumIndexedCols": str(count)},
        )  # fmt: skip
        stats = orjson.loads(table.files()["stats"][0].as_py())
        assert "".join(stats["minValues"]) == "".join(stats["nullCount"]) == names
        assert stats["numRecords"] == 1


def test_decimals_are_said_exactly(tmp_path: Path) -> None:
    value = Decimal("12345678901234567890123456789012345.678")
    data = pa.table({"m": pa.array([value], pa.decimal128(38, 3))})
    table = txlog.write(tmp_path, data)
    assert f'"minValues":{{"m":{value}}}' in table.files()["stats"][0].as_py()
    table.append(pa.table({"m": pa.array([Decimal(1)], pa.decimal128(38, 3))}))
    table.delete("m = 1")
    assert table.to_arrow() == data


def test_a_delete_keeps_the_digits_of_bounds(tmp_path: Path) -> None:
    low = Decimal("12345678901234567890123456789012345.678")
    high = Decimal("12345678901234567890123456789012345.679")
    data = pa.table({"m": pa.array([low, high], pa.decimal128(38, 3)), "x": [1, 2]})
    table = txlog.write(tmp_path, data)
    table.delete("x = 1")
    stats = table.files()["stats"][0].as_py()
    assert f'"minValues":{{"m":{low}' in stats
    assert table.to_arrow() == data.slice(1)
    assert table.count(f"m = {high}") == 1


LONG = "x" * 300
PARTITIONS: list[tuple[pa.DataType, list[Any]]] = [
    (
        pa.string(),
        ["a", " ", "a b", "50%", "a%20b", "#1", "a/b", "a=b", "ü", "日本", LONG, "..", ".", "a'b",
         "+", "?", "\n", "null", "__HIVE_DEFAULT_PARTITION__", "\\", "a&b", "😀", "_x", ".h"],
    ),
    (pa.int8(), [-128, 0, 127]),
    (pa.int16(), [-1]),
    (pa.int32(), [2**31 - 1]),
    (pa.int64(), [-(2**63), 2**63 - 1]),
    (pa.bool_(), [True, False]),
    (pa.float32(), [0.5, math.inf, -0.0]),
    (pa.float64(), [0.1, -math.inf, 1e300, 5e-324]),
    (pa.decimal128(10, 3), [Decimal("1.500"), Decimal("-0.001")]),
    (pa.date32(), [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)]),
    (
        pa.timestamp("us", "UTC"),
        [datetime(2024, 2, 29, 1, 2, 3, 4, UTC), datetime(1900, 1, 1, tzinfo=UTC)],
    ),
    (
        pa.timestamp("us"),
        [datetime(2024, 2, 29, 1, 2, 3, 4), datetime(1969, 12, 31, 23, 59, 59, 999_999)],
    ),
    (pa.binary(), [b"abc"]),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "values"), PARTITIONS, ids=[str(p[0]) for p in PARTITIONS])
def test_partition_values_come_back(tmp_path: Path, kind: pa.DataType, values: list[Any]) -> None:
    values = [*values, None]
    data = pa.table({"x": list(range(len(values))), "p": pa.array(values, kind)})
    table = txlog.write(tmp_path, data, partition_by="p")
    assert table.files().num_rows == len(values)
    found = txlog.Table(tmp_path).to_arrow().sort_by("x")
    assert found == data.cast(found.schema)
    assert table.count("p is null") == 1
    column = txlog.col("p")
    for row in data.to_pylist()[:-1]:
        scan = table.scan(["x"], column == row["p"])
        assert scan.to_arrow()["x"].to_pylist() == [row["x"]]
        assert scan.explain().files_to_read == 1
    # Deleting goes by the log alone, whatever is in the value.
    assert table.delete(column.is_not_null()).metrics["numDeletedRows"] == len(values) - 1
    assert table.to_arrow()["p"].to_pylist() == [None]


def test_an_empty_text_partition_is_null(tmp_path: Path) -> None:
    data = pa.table({"x": [1, 2, 3], "p": ["", None, "a"]})
    table = txlog.write(tmp_path, data, partition_by="p")
    assert table.count("p is null") == 2
    assert table.count("p = 'a'") == 1
    assert table.to_arrow().sort_by("x")["p"].to_pylist() == [None, None, "a"]


def test_dynamic_partitions_go_by_value(tmp_path: Path) -> None:
    data = pa.table({"x": [1, 2, 3], "p": ["", "a%", "b"]})
    table = txlog.write(tmp_path, data, partition_by="p")
    new = pa.table({"x": [7, 8], "p": pa.array([None, "a%"])})
    table.overwrite(new, partition_mode="dynamic")
    assert sorted(table.to_arrow()["x"].to_pylist()) == [3, 7, 8]


def test_nan_is_a_partition_like_any_other(tmp_path: Path) -> None:
    data = pa.table({"x": [1, 2], "p": [math.nan, 1.0]})
    table = txlog.write(tmp_path, data, partition_by="p")
    table.overwrite(pa.table({"x": [3], "p": [math.nan]}), partition_mode="dynamic")
    assert sorted(table.to_arrow()["x"].to_pylist()) == [2, 3]
    assert table.to_arrow(["x"], txlog.col("p") == math.nan)["x"].to_pylist() == [3]


def test_folders_say_their_partition(tmp_path: Path) -> None:
    data = pa.table({"x": [1, 2, 3], "p": ["a b", "50%", None], "q": [1, 1, 2]})
    table = txlog.write(tmp_path, data, partition_by=["p", "q"])
    folders = {path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.parquet")}
    assert folders == {"p=a b/q=1", "p=50%25/q=1", "p=__HIVE_DEFAULT_PARTITION__/q=2"}
    logged = sorted(path.rpartition("/")[0] for path in table.files()["path"].to_pylist())
    assert logged == ["p=50%2525/q=1", "p=__HIVE_DEFAULT_PARTITION__/q=2", "p=a%20b/q=1"]
