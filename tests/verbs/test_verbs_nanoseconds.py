"""Nanoseconds, by the feature timestampNanos: files, statistics, partitions, predicates, verbs."""

import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog import col
from txlog.base.errors import TxlogWarning
from txlog.schema.types import PrimitiveType, StructField, StructType

NANOS = {"delta.feature.timestampNanos": "supported"}
NTZ, UTC_NS = pa.timestamp("ns"), pa.timestamp("ns", "UTC")
BASE = 1_700_000_000_000_000_000  # 2023-11-14 22:13:20.
LEAST, MOST = -(2**63) + 1, 2**63 - 1  # Of pandas and Arrow, -2**63 is no moment.


@pytest.fixture
def judge() -> Iterator[Any]:
    """Give deltalake, which knows nanoseconds only when it is told to."""
    deltalake.enable_nanosecond_timestamps()
    yield deltalake.DeltaTable
    deltalake._disable_nanosecond_timestamps()


def moments(*values: int | None, kind: pa.DataType = NTZ) -> pa.Array:
    return pa.array(values, kind)


def data(*values: int | None) -> pa.Table:
    return pa.table(
        {
            "a": moments(*values),
            "z": moments(*reversed(values), kind=UTC_NS),
            "s": pa.array([{"l": [value]} for value in values], pa.struct([("l", pa.list_(NTZ))])),
            "i": range(len(values)),
        }
    )


VALUES = (BASE + 1, None, -1, MOST, LEAST, BASE, BASE + 999_999)


def test_deltalake_reads_what_is_written(tmp_path: Path, judge: Any) -> None:
    rows = data(*VALUES)
    table = txlog.write(tmp_path / "t", rows, properties=NANOS)
    assert table.to_arrow().equals(rows)
    assert table.schema.field("a").type == NTZ
    assert table.schema.field("z").type == UTC_NS
    assert judge(tmp_path / "t").to_pyarrow_table().equals(rows)
    features = table.protocol.reader_features or ()
    assert {"timestampNanos", "timestampNtz"} <= set(features)
    stored = pq.read_metadata(next((tmp_path / "t").glob("*.parquet"))).schema.column(0)
    assert "timeUnit=nanoseconds" in str(stored.logical_type)
    for structs in ("false", "true"):
        table.alter.set_properties({"delta.checkpoint.writeStatsAsStruct": structs})
        table.maintenance.checkpoint()
        opened = txlog.Table(tmp_path / "t")
        assert opened.to_arrow(where="a = '2023-11-14 22:13:20.000000001'")["i"].to_pylist() == [0]
        assert judge(tmp_path / "t").to_pyarrow_table().equals(rows)
    frame = table.to_polars()
    assert frame["a"].dtype == pl.Datetime("ns")
    assert frame.to_arrow()["a"].cast(NTZ).equals(rows["a"])
    assert table.to_pyarrow_dataset().to_table().equals(rows)


@pytest.mark.parametrize("partition", [None, "z", "a"])
def test_what_deltalake_writes_is_read(tmp_path: Path, judge: Any, partition: str | None) -> None:
    rows = data(*VALUES).drop_columns("s")
    deltalake.write_deltalake(tmp_path / "t", rows, partition_by=partition)
    table = txlog.Table(tmp_path / "t")
    assert table.to_arrow().sort_by("i").equals(rows)
    table.append(rows)
    both = table.to_arrow().sort_by("i")
    assert both.equals(pa.concat_tables([rows, rows]).sort_by("i"))
    values = table.files()["partition_values"].to_pylist()  # The newer files come first or last.
    assert sorted(map(str, values[: len(values) // 2])) == sorted(
        map(str, values[len(values) // 2 :])
    )
    query = deltalake.QueryBuilder().register("t", judge(tmp_path / "t"))
    judged = pa.table(query.execute("SELECT i, a, z FROM t").read_all())
    assert (
        judged.sort_by("i")
        .cast(both.select(["i", "a", "z"]).schema)
        .equals(both.select(["i", "a", "z"]))
    )


@pytest.mark.filterwarnings("ignore:.*the table has no nanoseconds")
def test_a_table_of_microseconds_refuses_what_it_would_lose(tmp_path: Path) -> None:
    rows = pa.table({"t": moments(BASE + 1, BASE + 1000)})
    with pytest.raises(txlog.SchemaMismatchError, match=r"allow_truncated_timestamps=True.*Nanos"):
        txlog.write(tmp_path / "t", rows)
    assert not (tmp_path / "t").exists() or not any((tmp_path / "t").rglob("*.parquet"))
    whole = txlog.write(tmp_path / "t", rows.slice(1))  # Nothing is lost.
    assert whole.schema.field("t").type == pa.timestamp("us")
    assert whole.protocol.reader_features == ["timestampNtz"]
    properties = txlog.WriterProperties(allow_truncated_timestamps=True)
    cut = txlog.WriteOptions(writer_properties=properties)
    whole.append(rows, options=cut)
    whole.overwrite(pa.table({"t": moments(-1, BASE + 1999)}), options=cut)
    whole.append(rows.to_pandas(), options=cut)
    whole.append(pl.from_arrow(rows), options=cut)
    source = pa.table({"t": moments(BASE + 7)})
    merge = whole.merge(source, "target.t = source.t", options=cut)
    merge.when_matched_delete().execute()
    # As deltalake cuts them, towards the epoch.
    assert whole.to_arrow()["t"].cast(pa.int64()).to_pylist() == [0, *[BASE // 1000 + 1] * 3]


def test_new_columns_of_nanoseconds_become_microseconds_with_a_warning(tmp_path: Path) -> None:
    rows = pa.table({"t": moments(BASE)})
    with pytest.warns(TxlogWarning, match="t: the table has no nanoseconds"):
        txlog.Table.create(tmp_path / "made", rows.schema)
    with pytest.warns(TxlogWarning, match="t: the table has no nanoseconds"):
        table = txlog.write(tmp_path / "t", rows)
    table.append(rows)  # The column is not new.
    with pytest.warns(TxlogWarning, match="u: the table has no nanoseconds"):
        table.append(rows.append_column("u", rows["t"]), schema_mode="merge")
    txlog.write(tmp_path / "kept", rows, properties=NANOS)
    txlog.write(tmp_path / "pandas", rows.to_pandas())  # Its usual unit.


def test_columns_that_come_later(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"i": [1]}))
    with pytest.warns(TxlogWarning, match="whole: the table has no nanoseconds"):
        table.alter.add_columns({"whole": NTZ})
    assert table.schema.field("whole").type == pa.timestamp("us")
    kind = PrimitiveType("timestamp_nanos")  # Named so, it brings the feature.
    added = table.alter.add_columns(StructType((StructField("first", kind),)))
    assert set(added.features_added) == {"timestampNanos"}
    table.alter.add_columns({"t": UTC_NS})
    more = pa.table({"i": [2], "t": moments(BASE + 1, kind=UTC_NS), "u": moments(BASE + 2)})
    table.append(more, schema_mode="merge")
    assert table.to_arrow().column_names == ["i", "whole", "first", "t", "u"]
    assert table.to_arrow()["u"].cast(pa.int64()).to_pylist() == [None, BASE + 2]
    with pytest.raises(txlog.TxlogError, match="timestampNanos"):
        table.alter.drop_feature("timestampNanos")
    table.alter.set_properties({"delta.columnMapping.mode": "name"})
    table.alter.drop_columns(["first", "t", "u"])
    with pytest.raises(txlog.SchemaMismatchError, match="timestampNanos"):
        table.append(pa.table({"whole": moments(BASE + 1)}))


def test_every_verb_keeps_nanoseconds(tmp_path: Path, judge: Any) -> None:
    properties = {**NANOS, "delta.enableChangeDataFeed": "true"}
    rows = pa.table({"t": moments(BASE + 1, BASE + 2, BASE + 1001, kind=UTC_NS), "k": [1, 2, 3]})
    table = txlog.write(tmp_path / "t", rows, properties=properties)

    def held() -> dict[int, int]:
        found = table.to_arrow()
        return dict(
            zip(found["t"].cast(pa.int64()).to_pylist(), found["k"].to_pylist(), strict=True)
        )

    table.update({"t": "'2023-11-14T22:13:20.123456789Z'"}, "t = '2023-11-14T22:13:20.000000001Z'")
    table.update({"k": "k * 10"}, col("t") == np.datetime64(BASE + 2, "ns"))
    assert held() == {BASE + 123_456_789: 1, BASE + 2: 20, BASE + 1001: 3}
    source = pa.table({"t": moments(BASE + 1001, BASE + 5, kind=UTC_NS), "k": [30, 50]})
    table.upsert(source, "t")
    assert held() == {BASE + 123_456_789: 1, BASE + 2: 20, BASE + 1001: 30, BASE + 5: 50}
    table.delete(col("t") == pd.Timestamp(BASE + 5, unit="ns", tz="UTC"))
    table.delete(col("t").isin([pa.scalar(BASE + 2, UTC_NS)]))
    assert table.optimize.z_order(["t"]).version is not None
    assert held() == {BASE + 123_456_789: 1, BASE + 1001: 30}
    assert table.lookup(moments(BASE + 1001, kind=UTC_NS), on="t")["k"].to_pylist() == [30]
    assert table.lookup(moments(BASE + 1002, kind=UTC_NS), on="t").num_rows == 0
    changes = pa.table(table.changes(0))
    deleted = changes.filter(pa.compute.field("_change_type") == "delete")["t"].cast(pa.int64())
    assert sorted(deleted.to_pylist()) == [BASE + 2, BASE + 5]
    assert judge(tmp_path / "t").version() == table.version


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.lists(st.none() | st.integers(BASE - 3, BASE + 3) | st.integers(LEAST, MOST),
                      min_size=1, max_size=4), min_size=1, max_size=4),
    st.integers(BASE - 3, BASE + 3) | st.sampled_from([-(10**19), 10**19, LEAST, MOST, -1, 0]),
    st.sampled_from(["<", "<=", "=", ">", ">=", "<>", "<=>"]),
    st.booleans(),
    st.sampled_from(["json", "struct", "partition"]),
)  # fmt: skip
def test_predicates_are_exact(
    files: list[list[int | None]], value: int, op: str, zoned: bool, form: str
) -> None:
    kind = UTC_NS if zoned else NTZ
    with tempfile.TemporaryDirectory() as home:
        properties = {**NANOS, "delta.checkpoint.writeStatsAsStruct": str(form == "struct").lower()}
        table = txlog.Table.create(
            home,
            pa.schema([("t", kind), ("i", pa.int64())]),
            properties=properties,
            partition_by=["t"] if form == "partition" else [],
        )
        for held in files:
            table.append(pa.table({"t": pa.array(held, kind), "i": range(len(held))}))
        if form == "struct":
            table.maintenance.checkpoint()
            table = txlog.Table(home)
        text = _text(value)
        found = table.to_arrow(where=f"t {op} '{text}'")["t"].cast(pa.int64()).to_pylist()
    every = [one for held in files for one in held]
    compare = {
        "<": lambda x: x < value, "<=": lambda x: x <= value, "=": lambda x: x == value,
        ">": lambda x: x > value, ">=": lambda x: x >= value, "<>": lambda x: x != value,
        "<=>": lambda x: x == value,
    }[op]  # fmt: skip
    expected = [one for one in every if one is not None and compare(one)]
    assert sorted(found) == sorted(expected)


def _text(nanos: int) -> str:
    """Return a moment as text, by NumPy's calendar."""
    whole, below = divmod(nanos, 10**9)
    return f"{np.datetime64(whole, 's')}.{below:09d}Z"


def test_statistics_rule_out_files(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path / "t", pa.schema([("t", NTZ)]), properties=NANOS)
    for second in range(4):
        table.append(pa.table({"t": moments(BASE + second * 10**9)}))
    scan = table.scan(where="t >= '2023-11-14 22:13:22.5'")
    assert len(scan.file_uris()) == 1
    early = datetime(2023, 11, 14, 22, 13, 21, tzinfo=UTC)
    assert len(table.scan(where=col("t") < early).file_uris()) <= 2


def test_microseconds_of_them_on_demand(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"t": moments(BASE + 1, -1)}), properties=NANOS)
    assert table.count("CAST(t AS TIMESTAMP_NTZ) = '1969-12-31 23:59:59.999999'") == 1
    assert table.count("CAST(t AS DATE) = '1969-12-31'") == 1
    assert table.count("year(CAST(t AS TIMESTAMP_NTZ)) = 2023") == 1
    with pytest.raises(txlog.InvalidInputError, match="not timestamp_nanos_ntz"):
        table.count("year(t) = 2023")
    with pytest.raises(txlog.InvalidInputError, match="cannot be compared"):
        table.count("t = CAST(t AS TIMESTAMP_NTZ)")
    with pytest.raises(txlog.InvalidInputError, match="a timestamp was expected"):
        table.count("t > 5")
    table.alter.add_columns({"i": pa.int64()})
    with pytest.raises(txlog.InvalidInputError, match="long cannot be compared"):
        table.count(col("i") == np.datetime64(5, "ns"))


def test_files_of_nanoseconds_become_a_table(tmp_path: Path, judge: Any) -> None:
    pq.write_table(data(*VALUES), tmp_path / "a.parquet")
    with pytest.raises(txlog.SchemaMismatchError, match=r"column a has nanoseconds in a.parquet"):
        txlog.convert_to_delta(tmp_path)
    assert not (tmp_path / "_delta_log").exists()
    table = txlog.convert_to_delta(tmp_path, properties=NANOS)
    assert table.to_arrow().equals(data(*VALUES))
    assert judge(tmp_path).to_pyarrow_table().equals(data(*VALUES))
    cut = tmp_path / "cut"
    cut.mkdir()
    pq.write_table(pa.table({"t": moments(BASE + 1)}), cut / "a.parquet")
    table = txlog.convert_to_delta(cut, allow_truncated_timestamps=True)
    assert table.schema.field("t").type == pa.timestamp("us")
    assert table.to_arrow()["t"].cast(pa.int64()).to_pylist() == [BASE // 1000]
    older = tmp_path / "int96"
    older.mkdir()
    rows = pa.table({"t": moments(BASE)})
    pq.write_table(rows, older / "a.parquet", use_deprecated_int96_timestamps=True)
    kind = txlog.convert_to_delta(older).schema.field("t").type
    assert kind == pa.timestamp("us", "UTC")  # INT96 is an instant.


def test_workers_write_them(tmp_path: Path) -> None:
    rows = data(*VALUES)
    first = txlog.write_fragments(rows, tmp_path / "t", properties=NANOS)
    table = txlog.Table.create(tmp_path / "t", rows.schema, properties=NANOS, fragments=first)
    table.commit(txlog.FragmentOperation.Append(txlog.write_fragments(rows, table)))
    assert table.to_arrow().equals(pa.concat_tables([rows, rows]))


def test_the_command_line_prints_them_as_text() -> None:
    """Without pandas, Arrow makes no Python values of them."""
    from txlog.tools.cli.output import as_rows

    found = as_rows(pa.table({"t": moments(BASE + 1, None), "k": [1, 2]}))
    assert found[0] == {"t": "2023-11-14 22:13:20.000000001", "k": 1}
    assert found[1] == {"t": None, "k": 2}


def test_spark_has_no_such_type() -> None:
    from txlog.spark_ext.spark_types import spark_schema

    nested = StructType((StructField("n", PrimitiveType("timestamp_nanos_ntz")),))
    with pytest.raises(txlog.UnsupportedFeatureError, match="Spark has no type"):
        spark_schema(StructType((StructField("t", nested),)))
