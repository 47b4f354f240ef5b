"""Leaving files and row groups out never changes an answer."""

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.predicates import predicates_over
from txlog import Expression, col
from txlog.expressions.bind import bind
from txlog.expressions.evaluate import mask

SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("f", pa.float64()),
        ("t", pa.string()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("z", pa.timestamp("us", "UTC")),
        ("n", pa.timestamp("us")),
        ("m", pa.decimal128(6, 2)),
        ("y", pa.binary()),
        ("s", pa.struct([("i", pa.int32()), ("f", pa.float32())])),
        ("p", pa.string()),
    ]
)
DAY = datetime(2024, 1, 1, 12, 0, 0, 1)
values: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-3, 3),
    "f": st.sampled_from([math.nan, -math.inf, math.inf, -0.0, 0.0, 1.5, -1.5]),
    "t": st.sampled_from(["", "a", "ab", "b", "ü", "😀", "\uffff", "a" * 40, "a" * 40 + "b"]),
    "b": st.booleans(),
    "d": st.sampled_from([date(1969, 12, 31), date(2024, 1, 1), date(9999, 12, 31)]),
    "n": st.integers(0, 3).map(lambda us: DAY + timedelta(microseconds=us)),
    "m": st.sampled_from(["-1.00", "0.00", "0.01", "9999.99"]).map(Decimal),
    "y": st.sampled_from([b"", b"a", b"\xff"]),
    "p": st.sampled_from(["a", "b", "%"]),
}
values["z"] = values["n"].map(lambda moment: moment.replace(tzinfo=UTC))
values["s"] = st.fixed_dictionaries({"i": st.none() | values["i"], "f": st.none() | values["f"]})
rows = st.fixed_dictionaries({name: st.none() | values[name] for name in SCHEMA.names})
COLUMNS = {**{name: values[name] for name in SCHEMA.names if name != "s"},
           "s.i": values["i"], "s.f": values["f"]}  # fmt: skip


predicates = predicates_over(COLUMNS, texts=("t", "p"))
tables = st.lists(rows, min_size=1, max_size=12)


def unpruned(table: txlog.Table, where: Expression) -> pa.Table:
    """The oracle: all rows, of which the predicate itself keeps some."""
    everything = table.to_arrow()
    batch = everything.combine_chunks().to_batches()
    if not batch:
        return everything
    kept = pc.fill_null(mask(bind(where, table.snapshot.schema), batch[0]), False)
    return everything.filter(kept)


def as_text(found: pa.Table) -> list[str]:
    return [repr(row) for row in found.to_pylist()]


@settings(max_examples=examples(60))
@given(tables, st.integers(1, 3), st.booleans(), predicates, predicates, st.booleans())
def test_pruned_rows_are_the_unpruned_ones(
    data: list[dict[str, Any]],
    size: int,
    partitioned: bool,
    where: Expression,
    gone: Expression,
    deletes: bool,
) -> None:
    with TemporaryDirectory() as root:
        table = txlog.write(
            root,
            pa.Table.from_pylist(data, schema=SCHEMA),
            partition_by=["p"] if partitioned else [],
            options=txlog.WriteOptions(max_rows_per_file=size),
        )
        expected = unpruned(table, where)
        assert as_text(table.to_arrow(where=where)) == as_text(expected)
        assert table.count(where) == expected.num_rows
        if deletes:
            going, before = unpruned(table, gone).num_rows, table.count()
            table.delete(gone)
            assert table.count() == before - going
            assert as_text(table.to_arrow(where=where)) == as_text(unpruned(table, where))
            assert table.count(where) == unpruned(table, where).num_rows


@settings(max_examples=examples(50))
@given(tables, predicates, st.integers(1, 3), st.none() | st.integers(-3, 3))
def test_pruned_row_groups_change_nothing(
    data: list[dict[str, Any]], where: Expression, size: int, deleted: int | None
) -> None:
    """Deleted positions count from the file's first row, whichever row groups are read."""
    with TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr("txlog.data_files.write.ROW_GROUP_ROWS", size)
        table = txlog.write(root, pa.Table.from_pylist(data, schema=SCHEMA))
        if deleted is not None:
            table.delete(col("i") == deleted)
        expected = unpruned(table, where)
        assert as_text(table.to_arrow(where=where)) == as_text(expected)
        assert table.count(where) == expected.num_rows
        table.delete(where)
        assert table.count() == table.to_arrow().num_rows
        assert table.count(where) == 0


def test_row_groups_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    monkeypatch.setattr("txlog.data_files.write.ROW_GROUP_ROWS", 10)
    table = txlog.write(tmp_path, pa.table({"x": list(range(100))}))
    table.delete("x % 10 = 5")
    path = next(tmp_path.glob("*.parquet"))
    assert pq.ParquetFile(path).num_row_groups == 10
    read: list[list[int]] = []
    whole = pq.ParquetFile.iter_batches

    def counted(self: pq.ParquetFile, **options: Any) -> Any:
        read.append(options["row_groups"])
        return whole(self, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    assert table.to_arrow(where="x between 33 and 48")["x"].to_pylist() == [
        33, 34, 36, 37, 38, 39, 40, 41, 42, 43, 44, 46, 47, 48
    ]  # fmt: skip
    assert read == [[3], [4]]


def test_plans_say_what_they_leave_out(tmp_path: Path) -> None:
    for p in "ab":
        data = pa.table({"x": list(range(10)), "p": [p] * 10})
        txlog.write(
            tmp_path,
            data,
            "append",
            partition_by="p",
            options=txlog.WriteOptions(max_rows_per_file=5),
        )
    table = txlog.Table(tmp_path)
    table.delete("p = 'a' and x = 9")
    explained = table.scan(["x"], "p = 'a' and x > 6").explain()
    assert explained.version == table.version
    assert explained.columns == ("x",)
    assert (explained.files, explained.files_to_read) == (4, 1)
    assert (explained.pruned_by_partition, explained.pruned_by_statistics) == (2, 1)
    assert explained.files_with_deletions == 1
    sizes = table.files().to_pylist()
    assert explained.bytes_to_read == next(f["size_bytes"] for f in sizes if f["num_deleted"])
    text = str(explained)
    assert "1 of 4" in text
    assert "> 6" in text
    everything = table.scan().explain()
    assert (everything.files_to_read, everything.predicate) == (4, None)
    assert "all rows" in str(everything)
