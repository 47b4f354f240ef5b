"""Rows of a batch, spread over partitions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import txlog
from txlog.data_files import write as files
from txlog.data_files.partitions import by_partition
from txlog.schema.arrow import from_arrow
from txlog.stats.partition import format_partition_values

SCHEMA = pa.schema([("n", pa.int64()), ("p", pa.string()), ("q", pa.int32()), ("r", pa.bool_())])
cells = st.tuples(
    st.sampled_from(["", "a", "b", "é", "aa", None]),
    st.integers(-3, 300) | st.none(),
    st.booleans() | st.none(),
)


@given(
    st.lists(cells, max_size=12),
    st.permutations(["p", "q", "r"]),
    st.integers(1, 3),
    st.integers(0, 2),
)
def test_each_row_goes_to_its_partition_in_its_order(
    rows: list[tuple[Any, ...]], names: list[str], count: int, cut: int
) -> None:
    held = [dict(zip(SCHEMA.names, (at, *row), strict=True)) for at, row in enumerate(rows)]
    batch = pa.RecordBatch.from_pylist(held, SCHEMA)[cut:]
    types = {field.name: field.type for field in from_arrow(SCHEMA).fields}
    kinds = {name: types[name] for name in names[:count]}
    texts = {
        name: format_partition_values(batch.column(name), kind).to_pylist()
        for name, kind in kinds.items()
    }
    wanted: dict[tuple[Any, ...], list[Any]] = {}
    for at, row in enumerate(batch.to_pylist()):
        key = tuple(texts[name][at] for name in names[:count])
        wanted.setdefault(key, []).append(
            {name: value for name, value in row.items() if name not in names[:count]}
        )
    found = [(key, part.to_pylist()) for key, part in by_partition(batch, kinds)]
    assert dict(found) == wanted
    assert len(found) == len(wanted)


@pytest.mark.parametrize("count", [200, 300, 70_000])
def test_many_partitions(count: int) -> None:
    schema = pa.schema([("n", pa.int64()), ("p", pa.int64())])
    batch = pa.RecordBatch.from_pydict({"n": range(count), "p": range(count, 0, -1)}, schema)
    kinds = {"p": from_arrow(schema).fields[1].type}
    found = {key: part["n"].to_pylist() for key, part in by_partition(batch, kinds)}
    assert found == {(str(count - at),): [at] for at in range(count)}


def test_rows_of_a_rare_partition_keep_no_others_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ROW_GROUP_ROWS", 20_000)
    monkeypatch.setattr(files, "_PINNED_BYTES", 1 << 20)
    rows, count, seen = 70_000, 30, []
    before = pa.total_allocated_bytes()

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(count):
            seen.append(pa.total_allocated_bytes() - before)
            names = {f"d{at}": np.full(rows, 1.0) for at in range(8)}
            yield pa.RecordBatch.from_pydict({"p": ["rare", *["usual"] * (rows - 1)], **names})

    first = next(batches())
    seen.clear()
    txlog.write(
        tmp_path, pa.RecordBatchReader.from_batches(first.schema, batches()), partition_by="p"
    )
    assert txlog.Table(tmp_path).count(where="p = 'rare'") == count
    assert max(seen) < 8 * first.nbytes


@pytest.mark.parametrize("value", ["", None])
def test_an_empty_text_is_null_where_null_must_not_be(tmp_path: Path, value: str | None) -> None:
    schema = pa.schema([("x", pa.int64()), pa.field("p", pa.string(), False)])
    table = txlog.Table.create(tmp_path, schema, partition_by="p")
    data = pa.table({"x": [1, 2], "p": ["a", value]})
    for act in (table.append, table.overwrite):
        with pytest.raises(txlog.SchemaMismatchError, match="p must not be null") as caught:
            act(data)
        assert caught.value.field == "p"
    assert not list(tmp_path.rglob("*.parquet"))
    table.append(data.slice(0, 1))
    assert table.to_arrow()["p"].to_pylist() == ["a"]
