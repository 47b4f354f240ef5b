"""One fault is one error, at every door of Spark as in this process."""

from __future__ import annotations

import inspect
import json
import traceback
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.base import errors
from txlog.base.errors import TxlogError
from txlog.spark_ext import DeltaTable, sql, write
from txlog.spark_ext.engine import engine_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CLASSES = [
    one
    for _, one in inspect.getmembers(errors, inspect.isclass)
    if issubclass(one, TxlogError) and one is not TxlogError
]
_TEXT = st.text("ab\nc'\"(=).,\\[]x", min_size=1, max_size=20).map(str.strip).filter(bool)
_VALUES = {
    "str": _TEXT,
    "int": st.integers(0, 99),
    "bool": st.booleans(),
    "tuple[str, ...]": st.lists(_TEXT, min_size=1).map(tuple),
}


@st.composite
def _errors(draw: st.DrawFn) -> TxlogError:
    kind = draw(st.sampled_from(_CLASSES))
    facts: dict[str, Any] = {"reason": draw(_TEXT), "remedy": draw(_TEXT)}
    for field in fields(kind):
        if field.name in facts or "Mapping" in str(field.type):  # Executors audit nothing.
            continue
        needed = "None" not in str(field.type) and "tuple" not in str(field.type)
        if needed or draw(st.booleans()):
            facts[field.name] = draw(_VALUES[str(field.type).partition(" | ")[0]])
    return kind(**facts)


@settings(max_examples=examples(300))
@given(_errors())
def test_an_error_comes_back_from_the_text_of_a_traceback(error: TxlogError) -> None:
    told = "".join(traceback.format_exception(error))
    found = engine_error(
        RuntimeError(f"Job aborted\n{told}\n\tat java\nCaused by: {told} \n\tat x")
    )
    assert type(found) is type(error)
    assert str(found) == str(error)


@dataclass
class _Given:
    """Rows for a table, and a folder of the test."""

    spark: SparkSession
    uri: str
    rows: DataFrame
    folder: Path

    @property
    def table(self) -> DeltaTable:
        return DeltaTable.forPath(self.spark, self.uri)


def _insert(it: _Given) -> None:
    it.rows.createOrReplaceTempView("given_rows")
    columns = ", ".join(it.rows.columns)
    sql(it.spark, f"INSERT INTO delta.`{it.uri}` ({columns}) SELECT * FROM given_rows")


def _merge(it: _Given) -> None:
    merge = it.table.alias("t").merge(it.rows.alias("s"), "t.k = 's' AND s.k = 't'")
    merge.whenNotMatchedInsert(values={name: f"s.{name}" for name in it.rows.columns}).execute()


def _update(it: _Given) -> None:
    # Only Spark can compute this condition.
    it.table.update("abs(1) = 1", {name: _constant(it.rows, name) for name in it.rows.columns})


def _stream(it: _Given) -> None:
    source = it.folder / "source"
    it.rows.write.parquet(str(source))
    stream = it.spark.readStream.schema(it.rows.schema).parquet(str(source)).writeStream
    stream = stream.format("txlog").option("checkpointLocation", str(it.folder / "checkpoint"))
    stream.trigger(availableNow=True).start(it.uri).awaitTermination()


_DOORS: dict[str, Callable[[_Given], object]] = {
    "write": lambda it: write(it.rows, it.uri),
    "SQL": _insert,
    "merge": _merge,
    "update": _update,
    "format": lambda it: it.rows.write.format("txlog").mode("append").save(it.uri),
    "stream": _stream,
}


def _constant(rows: DataFrame, name: str) -> Any:
    from pyspark.sql import functions as fn

    return fn.lit(rows.collect()[0][name]).cast(rows.schema[name].dataType)


def _declare(path: Path, column: str, kind: str) -> None:
    """Give a column of a new table a length, as Spark does."""
    first = path / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            (field,) = (one for one in schema["fields"] if one["name"] == column)
            field["metadata"]["__CHAR_VARCHAR_TYPE_STRING"] = kind
            action["metaData"]["schemaString"] = json.dumps(schema)
    first.write_text("".join(json.dumps(action) + "\n" for action in actions))
    for checksum in first.parent.glob("*.crc"):
        checksum.unlink()


# What the caller of a door gave in place of `data`.
_ARGUMENTS = {"SQL": "text", "merge": "values", "update": "set", "write": "df"}
_FAULTS: dict[str, tuple[str, str]] = {  # The field of the error, and the values of the row.
    "a constraint": ("small", "'a' k, 1L id, 500 x"),
    "null": ("id", "'a' k, cast(null as bigint) id, 5 x"),
    "a generated column": ("g", "'a' k, 1L id, 5 x, 7L g"),
    "a number": ("x", "'a' k, 1L id, 5000000000L x"),
    "a length": ("k", "'abcdef' k, 1L id, 5 x"),
    "a length, with line breaks": ("k", "'ab\\nc\\n\\ndef' k, 1L id, 5 x"),
}


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("fault", list(_FAULTS))
def test_a_fault_is_the_same_error_at_every_door(
    spark: SparkSession, tmp_path: Path, fault: str
) -> None:
    schema = pa.schema(
        [
            ("k", pa.string()),
            pa.field("id", pa.int64(), nullable=False),
            ("x", pa.int32()),
            ("g", pa.int64()),
        ]
    )
    txlog.Table.create(tmp_path / "t", schema, generated={"g": "id * 2"})
    _declare(tmp_path / "t", "k", "varchar(3)")
    table = txlog.Table(tmp_path / "t")
    table.alter.add_constraint({"small": "x < 100"})
    table.append(pa.table({"k": ["z"], "id": [0], "x": pa.array([0], pa.int32())}))
    field, values = _FAULTS[fault]
    rows = spark.sql(f"SELECT {values}")
    with pytest.raises(txlog.SchemaMismatchError) as core:
        table.append(rows.toArrow())
    assert core.value.field == field
    wanted = (type(core.value), core.value.argument, core.value.field, core.value.remedy)
    files = set((tmp_path / "t").rglob("*.parquet"))
    spark.conf.set("spark.txlog.merge.localRows", "0")
    try:
        for name, door in _DOORS.items():
            with pytest.raises(Exception, match=r"schema-mismatch|does not fit") as caught:
                door(_Given(spark, table.uri, rows, tmp_path))
            error: Exception = caught.value
            if name in ("format", "stream"):  # Spark raises it, and shows that of txlog first.
                text = str(error)
                assert text.index(f"[{core.value.code}]") < 600, text
                error = engine_error(error)
            assert isinstance(error, txlog.SchemaMismatchError), (name, error)
            found = (type(error), error.argument, error.field, error.remedy)
            argument = _ARGUMENTS.get(name, core.value.argument)
            assert found == (wanted[0], argument, *wanted[2:]), name
    finally:
        spark.conf.unset("spark.txlog.merge.localRows")
    assert table.refresh().version == 2
    assert set((tmp_path / "t").rglob("*.parquet")) == files


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    "value",
    [
        "id div (id - id)",
        "cast('a' || id AS int)",
        "cast('a\\n\\nb' || id AS int)",
        "raise_error('not this')",
        "raise_error('not\\nthis')",
    ],
)
def test_a_value_that_cannot_be_computed_is_no_failure_of_the_engine(
    spark: SparkSession, tmp_path: Path, value: str
) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"id": [1, 2]}))
    for call in (
        lambda: write(spark.range(3).selectExpr(f"cast({value} AS bigint) AS id"), table.uri),
        lambda: DeltaTable.forPath(spark, table.uri).update("abs(id) > 0", {"id": value}),
    ):
        with pytest.raises(txlog.InvalidInputError, match="cannot compute") as caught:
            call()
        assert caught.value.retry == "never"
        assert "logs" not in caught.value.remedy
        assert "again" not in caught.value.remedy
    assert table.refresh().version == 0


def test_results_that_are_too_large_for_the_driver_have_a_remedy() -> None:
    said = (
        "Total size of serialized results of 12 tasks (1034.3 MiB) is bigger than "
        "spark.driver.maxResultSize (1024.0 MiB)"
    )
    text = f"Job aborted due to stage failure: {said}\nDriver stacktrace:\n\tat java"
    found = engine_error(RuntimeError(text))
    assert isinstance(found, txlog.EngineError)
    assert said in found.reason
    assert "predicate" in found.remedy
    assert "maxResultSize" in found.remedy
