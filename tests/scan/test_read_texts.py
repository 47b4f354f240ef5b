"""Texts in data files that are not UTF-8: each door takes them or names the file and the column."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples

SOURCE = pa.table({"a": [0, 9], "s": ["n", "m"]})
Door = Callable[[txlog.Table], object]
FRAGMENTS = {"delta.feature.txlog.fragments": "supported"}


def merged(table: txlog.Table, condition: str) -> Any:
    return table.merge(SOURCE, condition)


def vectors(table: txlog.Table) -> None:
    table.alter.set_properties({"delta.enableDeletionVectors": "true"})


DOORS: dict[str, Door] = {
    "read": lambda t: t.to_arrow(),
    "polars": lambda t: t.to_polars(),
    "pandas": lambda t: t.to_pandas(),
    "dataset": lambda t: t.to_pyarrow_dataset().to_table(),
    "find": lambda t: t.to_arrow(where="s = 'ok'"),
    "compute": lambda t: t.to_arrow(where="upper(s) = 'OK'"),
    "like": lambda t: t.to_arrow(where="s LIKE '%k%'"),
    "matches": lambda t: t.count("s RLIKE 'k'"),
    "count": lambda t: t.count("length(s) > 1"),
    "take": lambda t: t.take([0]),
    "update": lambda t: t.update({"a": "a + 1"}),
    "update to a value": lambda t: t.update(new_values={"a": 5}),
    "update the text": lambda t: t.update({"s": "s || 'x'"}),
    "compute an update": lambda t: t.update({"a": "length(lower(s))"}),
    "update some": lambda t: t.update({"a": "a + 1"}, "a = 0"),
    "delete": lambda t: t.delete("lower(s) = 'ok'"),
    "delete without vectors": lambda t: (
        t.alter.set_properties({"delta.enableDeletionVectors": "false"}), t.delete("a = 0")
    ),
    "delete with vectors": lambda t: (vectors(t), t.delete("s = 'ok'")),
    "upsert": lambda t: t.upsert(SOURCE, on="a"),
    "upsert by the text": lambda t: t.upsert(SOURCE, on="s"),
    "merge": lambda t: merged(t, "upper(target.s) = source.s").when_matched_delete().execute(),
    "merge by source": lambda t: (
        merged(t, "target.a = source.a").when_not_matched_by_source_update({"s": "s"}).execute()
    ),
    "overwrite": lambda t: t.overwrite(SOURCE.slice(0, 1), where="a = 0"),
    "changes": lambda t: (
        t.alter.set_properties({"delta.enableChangeDataFeed": "true"}), t.delete("a = 0")
    ),
    "compact": lambda t: (t.append(SOURCE), t.optimize.compact()),
    "sort": lambda t: t.optimize.compact(sort_by=["s"]),
    "z-order": lambda t: t.optimize.z_order("s"),
    "statistics": lambda t: t.optimize.compute_statistics(recompute=True),
    "index": lambda t: (t.indexes.create("s"), t.lookup(["ok"], on="s", missing="skip")),
    "constraint": lambda t: t.alter.add_constraint({"c": "coalesce(upper(s), '') <> 'q'"}),
    "a broken constraint": lambda t: t.alter.add_constraint({"c": "a > 9"}),
    "a column with nulls": lambda t: t.alter.set_nullable("s", False),
    "diff": lambda t: (t.append(SOURCE), t.diff(0, on="s")),
    "new column": lambda t: (
        t.alter.add_features("txlog.fragments"), t.alter.add_columns({"z": "upper(s)"})
    ),
    "doctor": lambda t: t.doctor(),
    "page": lambda t: t._repr_html_(),  # type: ignore[operator]
}  # fmt: skip


def texts_of(values: list[bytes | None]) -> pa.Array:
    raw = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


def converted(folder: Path, column: pa.Array) -> txlog.Table:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table({"a": range(len(column)), "s": column}), folder / "1.parquet")
    return txlog.convert_to_delta(folder, collect_stats=False)


BYTES = st.binary(max_size=4) | st.sampled_from([b"ok", b"\xff\xfe", b"o\xc3", b"\xed\xa0\x80"])


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.none() | BYTES, min_size=1, max_size=5), st.sampled_from(sorted(DOORS)))
def test_no_door_raises_a_foreign_error(values: list[bytes | None], door: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = converted(Path(folder) / "t", texts_of(values))
        try:
            DOORS[door](table)
        except txlog.TxlogError as error:
            refused = error
        else:
            return
        if door.startswith("a ") and isinstance(refused, txlog.SchemaMismatchError):
            return
        assert isinstance(refused, txlog.DataFileError), refused
        assert "column s has text that is not UTF-8" in refused.reason
        assert refused.path.endswith(".parquet")
        with pytest.raises(UnicodeDecodeError):
            txlog.Table(table.uri).to_arrow()["s"].to_pylist()


NESTED: dict[str, Callable[[pa.Array], pa.Array]] = {
    "alone": lambda texts: texts,
    "in a list": lambda texts: pa.ListArray.from_arrays([0, 1], texts),
    "in a struct": lambda texts: pa.StructArray.from_arrays([texts], ["x"]),
    "in a map": lambda texts: pa.MapArray.from_arrays([0, 1], texts, pa.array([1])),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("nested", NESTED)
def test_new_rows_with_such_a_text_are_refused(tmp_path: Path, nested: str) -> None:
    column = NESTED[nested](texts_of([b"\xff"]))
    rows = pa.table({"a": [1], "s": column})
    for call in (
        lambda: txlog.write(tmp_path / "t", rows),
        lambda: txlog.write(tmp_path / "t", rows, partition_by="a"),
    ):
        with pytest.raises(txlog.SchemaMismatchError, match="not UTF-8") as caught:
            call()
        assert caught.value.field == "s"
    good = pa.table({"a": [1], "s": pa.nulls(1, column.type)})
    table = txlog.write(tmp_path / "t", good)
    for verb, argument in (
        (lambda: table.append(rows), "data"),
        (lambda: table.upsert(rows, on="a"), "source"),
        (lambda: table.overwrite(rows), "data"),
    ):
        with pytest.raises(txlog.SchemaMismatchError, match="not UTF-8") as caught:
            verb()
        assert (caught.value.argument, caught.value.field) == (argument, "s")
    assert table.to_arrow().equals(good)


def test_rows_without_such_a_text_can_be_changed(tmp_path: Path) -> None:
    table = converted(tmp_path / "t", texts_of([b"ok", b"\xff"]))
    vectors(table)
    table.update({"s": "'new'"}, "a = 0")
    table.delete("a = 1")
    table.optimize.compact()
    assert table.to_arrow().to_pydict() == {"a": [0], "s": ["new"]}
