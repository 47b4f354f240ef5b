"""Columns and fragments of workers, while others change their base."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import txlog
from txlog import FragmentOperation
from txlog.base.effects import REAL
from txlog.commit.intent import Intent
from txlog.commit.loop import Committed, commit
from txlog.extend import context_of
from txlog.snapshot.load import load_snapshot

FEATURE = {"delta.feature.txlog.fragments": "supported"}


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    schema = pa.schema([("x", pa.int64())])
    table = txlog.Table.create(tmp_path / "t", schema, properties=FEATURE)
    table.append(pa.table({"x": range(8)}), options=txlog.WriteOptions(max_rows_per_file=4))
    return table


def values(table: txlog.Table, name: str) -> dict[int, Any]:
    found = txlog.Table(table.uri).to_arrow(["x", name])
    return dict(zip(found["x"].to_pylist(), found[name].to_pylist(), strict=True))


def data_files(table: txlog.Table) -> set[str]:
    return {path.name for path in Path(table.uri).rglob("*.parquet")}


def meanwhile(
    column: Callable[[pa.RecordBatch], Any], winner: Callable[[], Any], calls: int = 2
) -> Callable[[pa.RecordBatch], Any]:
    """A function of batches during one of whose calls another writer commits.

    The first call is for the type alone.
    """
    left = calls

    def called(batch: pa.RecordBatch) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            winner()
        return column(batch)

    return called


def double(batch: pa.RecordBatch) -> Any:
    return pc.multiply(batch["x"], 2)


@pytest.mark.spec("FRG-20", "CON-11")
def test_rows_that_come_back_get_values(table: txlog.Table) -> None:
    before = table.version
    table.delete("x = 1")
    other = txlog.Table(table.uri)
    table.alter.add_columns({"y": meanwhile(double, lambda: other.restore(before))})
    assert values(table, "y") == {x: 2 * x for x in range(8)}
    again = txlog.Table(table.uri)
    table.delete("x = 2")
    version = table.version - 1
    live = table.to_arrow(["x"])["x"]
    data = pa.RecordBatchReader.from_batches(
        pa.schema([("z", pa.int64())]),
        (_restoring(batch, lambda: again.restore(version)) for batch in [live]),
    )
    with pytest.raises(txlog.CommitConflictError, match="rows"):
        table.alter.add_columns(data)
    assert "z" not in txlog.Table(table.uri).schema.names


def _restoring(column: pa.ChunkedArray, winner: Callable[[], Any]) -> pa.RecordBatch:
    winner()
    return pa.record_batch({"z": column.combine_chunks()})


@pytest.mark.spec("FRG-20", "CON-11")
@pytest.mark.parametrize("engine_order", [2, 3])
def test_rows_that_come_and_go_meanwhile(table: txlog.Table, engine_order: int) -> None:
    other = txlog.Table(table.uri)

    def winner() -> None:
        other.append(pa.table({"x": [100]}))
        other.delete("x = 0")
        other.delete("x >= 4 AND x < 8")

    table.alter.add_columns({"y": meanwhile(double, winner, engine_order)})
    assert values(table, "y") == {x: 2 * x for x in (1, 2, 3, 100)}
    referred = {Path(path).name for path in table.files()["path"].to_pylist()}
    past = {
        Path(path).name
        for version in range(table.version)
        for path in txlog.Table(table.uri, version).files()["path"].to_pylist()
    }
    assert data_files(table) == referred | past  # What was written in vain is gone.


@pytest.mark.spec("CON-14")
def test_values_of_columns_that_others_replaced(table: txlog.Table) -> None:
    other = txlog.Table(table.uri)
    column = meanwhile(double, lambda: other.alter.replace_columns({"x": "x + 100"}))
    table.alter.add_columns({"y": column}, read_columns=["x"])
    assert values(table, "y") == {x: 2 * x for x in range(100, 108)}


@pytest.mark.spec("CON-14")
def test_a_constraint_over_two_columns_that_two_replace(tmp_path: Path) -> None:
    properties = {**FEATURE, "delta.constraints.order": "a < b"}
    table = txlog.Table.create(
        tmp_path / "t", pa.schema([("a", pa.int64()), ("b", pa.int64())]), properties=properties
    )
    table.append(pa.table({"a": [1], "b": [10]}))
    other = txlog.Table(table.uri)
    five = meanwhile(lambda batch: pa.array([5] * len(batch)),
                     lambda: other.alter.replace_columns({"b": "4"}))  # fmt: skip
    with pytest.raises(txlog.SchemaMismatchError, match="order"):
        table.alter.replace_columns({"a": five})
    assert txlog.Table(table.uri).to_arrow().to_pylist() == [{"a": 1, "b": 4}]


@pytest.mark.spec("FRG-25", "CON-14")
def test_a_workers_delete_by_values_that_were_replaced(table: txlog.Table) -> None:
    table.alter.add_columns({"score": "x"})
    seen = txlog.Table(table.uri)
    by_value = seen.fragments()[0].delete("score > 2")
    by_place = seen.fragments()[1].delete_rows([0])
    assert by_value is not None
    assert by_place is not None
    table.alter.replace_columns({"score": "0 - x"})
    with pytest.raises(txlog.CommitConflictError) as raised:
        seen.commit(FragmentOperation.Delete([by_value]))
    assert raised.value.rule == "CON-14"
    seen.commit(FragmentOperation.Delete([by_place]))  # It went by no value.
    assert sorted(values(table, "score")) == [0, 1, 2, 3, 5, 6, 7]


@pytest.mark.spec("FRG-26", "CON-14")
def test_workers_columns_of_values_that_were_replaced(table: txlog.Table) -> None:
    seen = txlog.Table(table.uri)
    found = [fragment.merge_columns({"y": "x * 2"}) for fragment in seen.fragments()]
    table.alter.replace_columns({"x": "x + 100"})
    with pytest.raises(txlog.CommitConflictError):
        seen.commit(FragmentOperation.Merge([held for held, _ in found], found[0][1]))
    assert txlog.Table(table.uri).schema.names == ["x"]


@pytest.mark.spec("FRG-26")
def test_a_merge_that_is_repeated(table: txlog.Table) -> None:
    found = [fragment.merge_columns({"y": "x * 2"}) for fragment in table.fragments()]
    operation = FragmentOperation.Merge([held for held, _ in found], found[0][1])
    seen = txlog.Table(table.uri)
    table.commit(operation, txn=("job", 1))
    assert seen.commit(operation, txn=("job", 1)).skipped


@pytest.mark.spec("FRG-24")
def test_a_fragment_is_committed_once_though_it_was_compacted(table: txlog.Table) -> None:
    found = txlog.write_fragments(pa.table({"x": [100]}), table)
    table.commit(FragmentOperation.Append(found))
    table.optimize.compact()
    with pytest.raises(txlog.InvalidInputError, match="had this file"):
        table.commit(FragmentOperation.Append(found))
    assert sorted(txlog.Table(table.uri).to_arrow()["x"].to_pylist()) == [*range(8), 100]


@pytest.mark.spec("FRG-27")
def test_a_rewrite_of_another_version_or_partition(tmp_path: Path) -> None:
    schema = pa.schema([("x", pa.int64()), ("p", pa.string())])
    table = txlog.Table.create(tmp_path / "t", schema, partition_by=["p"], properties=FEATURE)
    table.append(pa.table({"x": [1, 2], "p": ["a", "b"]}))
    stale = txlog.write_fragments(table.scan(), table)
    table.alter.replace_columns({"x": "x + 1"})
    old = [fragment.metadata for fragment in table.fragments()]
    with pytest.raises(txlog.InvalidInputError, match="was written on version 1, not 2"):
        table.commit(FragmentOperation.Rewrite([FragmentOperation.RewriteGroup(old, stale)]))
    moved = txlog.write_fragments(pa.table({"x": [2], "p": ["b"]}), table)
    with pytest.raises(txlog.InvalidInputError, match="in its partition"):
        table.commit(FragmentOperation.Rewrite([FragmentOperation.RewriteGroup(old[:1], moved)]))


@pytest.mark.spec("FRG-6")
def test_provisional_ids_cannot_be_committed(tmp_path: Path) -> None:
    deltalake: Any = pytest.importorskip("deltalake")
    for x in range(2):
        deltalake.write_deltalake(tmp_path / "t", pa.table({"x": [x]}), mode="append")
    table = txlog.Table(tmp_path / "t")
    (first, _) = table.fragments()
    with pytest.raises(txlog.InvalidInputError, match="provisional"):
        table.commit(FragmentOperation.Delete([], deleted_fragment_ids=[first.id]))


@pytest.mark.spec("FRG-19", "CON-15")
def test_files_that_come_while_the_feature_is_added(tmp_path: Path) -> None:
    """Another engine's file has no id; the feature is added again, with one for it."""
    table = txlog.write(tmp_path / "t", pa.table({"x": [1]}))
    base = load_snapshot(context_of(table).store)
    seen = txlog.Table(table.uri)
    (add,) = txlog.write_fragments(pa.table({"x": [2]}), table)[0].adds
    path = tmp_path / "t/_delta_log" / f"{1:020d}.json"
    done = commit(
        context_of(table).store, base, Intent("WRITE", 0, "append", adds=(add,)), effects=REAL
    )
    assert isinstance(done, Committed)
    lines = path.read_text().replace('"txlog.fragmentId":"1"', '"other":"1"')
    path.write_text(lines.replace('"txlogCrc32"', '"noCrc32"'))
    seen.alter.add_features("txlog.fragments")
    found = txlog.Table(table.uri)
    assert [f.is_durable for f in found.fragments()] == [True, True]
    found.alter.add_columns({"y": "x"})
    assert values(found, "y") == {1: 1, 2: 2}


@pytest.mark.spec("FRG-19")
def test_restored_files_have_counts(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"x": [1, 2]}))
    path = tmp_path / "t/_delta_log" / f"{0:020d}.json"
    text = path.read_text().replace('"txlogCrc32"', '"noCrc32"')
    path.write_text(text.replace('\\"numRecords\\":2,', ""))
    table = txlog.Table(tmp_path / "t")
    assert [f.physical_rows for f in table.fragments()] == [None]
    table.overwrite(pa.table({"x": [3]}))
    table.alter.add_features("txlog.fragments")
    table.restore(0)
    assert [f.physical_rows for f in table.fragments()] == [2]
    table.alter.add_columns({"y": "x"})
    assert values(table, "y") == {1: 1, 2: 2}


def test_features_that_a_property_would_put_in_force(tmp_path: Path) -> None:
    txlog.write(tmp_path / "t", pa.table({"x": [1, 2]}))
    path = tmp_path / "t/_delta_log" / f"{0:020d}.json"
    text = path.read_text().replace('"txlogCrc32"', '"noCrc32"')
    assert '"configuration":{' in text
    path.write_text(text.replace('"configuration":{',
                                 '"configuration":{"delta.enableRowTracking":"true",'))  # fmt: skip
    with pytest.raises(txlog.UnsupportedFeatureError, match="have no ids"):
        txlog.Table(tmp_path / "t").alter.add_features("rowTracking")


def test_a_table_with_the_feature_is_written_to_again(tmp_path: Path) -> None:
    for x in range(2):
        txlog.write(tmp_path / "t", pa.table({"x": [x]}), mode="append", properties=FEATURE)
    assert txlog.Table(tmp_path / "t").count() == 2
    plain = txlog.write(tmp_path / "u", pa.table({"x": [1]}))
    with pytest.raises(txlog.InvalidInputError, match=r"txlog\.fragments"):
        txlog.write(plain.uri, pa.table({"x": [2]}), mode="append", properties=FEATURE)


@pytest.mark.spec("FRG-35", "FRG-22")
def test_restoring_files_that_give_other_columns_now(table: txlog.Table) -> None:
    table.alter.add_columns({"c": "x * 2", "d": "x * 3"})
    first = table.version
    table.alter.replace_columns({"c": "x * 100"})
    second = table.version
    table.restore(first)
    assert values(table, "c") == {x: 2 * x for x in range(8)}
    table.restore(second)
    assert values(table, "c") == {x: 100 * x for x in range(8)}
    table.overwrite(pa.table({"x": [1], "c": [1], "d": [1]}))
    for version, factor in ((first, 2), (second, 100), (first, 2)):
        table.restore(version)
        assert values(table, "c") == {x: factor * x for x in range(8)}
        assert values(table, "d") == {x: 3 * x for x in range(8)}


@pytest.mark.spec("FRG-22")
def test_nulls_replace_values(table: txlog.Table) -> None:
    table.alter.replace_columns({"x": pa.int64()})
    assert txlog.Table(table.uri).to_arrow()["x"].to_pylist() == [None] * 8


@pytest.mark.spec("FRG-23", "FRG-26")
def test_workers_give_a_dropped_column_again(table: txlog.Table) -> None:
    table.alter.add_columns({"c": "x * 2", "d": "x"})
    table.alter.drop_columns("c")
    found = [fragment.merge_columns({"c": "x * 3"}) for fragment in table.fragments()]
    table.commit(FragmentOperation.Merge([held for held, _ in found], found[0][1]))
    assert values(table, "c") == {x: 3 * x for x in range(8)}
    assert values(table, "d") == {x: x for x in range(8)}


def test_names_and_shapes_that_cannot_be(tmp_path: Path) -> None:
    properties = {**FEATURE, "delta.enableRowTracking": "true"}
    table = txlog.write(tmp_path / "t", pa.table({"x": [1, 2], "_rowaddr": [7, 8]}),
                        properties=properties)  # fmt: skip
    name = table.properties["delta.rowTracking.materializedRowIdColumnName"]
    assert name is not None
    with pytest.raises(txlog.InvalidInputError, match="ids or versions"):
        table.append(pa.table({"x": [1], "_rowaddr": [1], name: [5]}), schema_mode="merge")
    with pytest.raises(txlog.InvalidInputError, match="ids or versions"):
        table.alter.add_columns({name.upper(): "x"})
    with pytest.raises(txlog.UnsupportedFeatureError, match="hide"):
        table.take(row_ids=[0])
    for nothing in (lambda batch: batch.select([]), pa.schema([])):
        with pytest.raises(txlog.InvalidInputError, match="no column is given"):
            table.alter.add_columns(nothing)
