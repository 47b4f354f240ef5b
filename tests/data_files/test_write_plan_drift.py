"""A table that changes between reading and committing."""

import shutil
from pathlib import Path

import orjson
import pyarrow as pa
import pytest

import txlog
from tests.verb_calls import append, overwrite
from txlog.actions.table import Metadata
from txlog.base.effects import REAL
from txlog.commit.intent import Intent
from txlog.commit.loop import Committed, commit
from txlog.extend import context_of
from txlog.schema.json import schema_json
from txlog.schema.types import PrimitiveType, StructField, StructType
from txlog.snapshot.load import load_snapshot

ROWS = pa.table({"a": [1, 2], "s": ["x", "y"]})


def parquet_files(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*.parquet")}


def change_metadata(table: txlog.Table, **change: object) -> None:
    """Commit other metadata, as another writer would."""
    base = load_snapshot(context_of(table).store)
    metadata = Metadata.model_validate({**base.metadata.model_dump(), **change})
    intent = Intent("CHANGE", base.version, "metadata", metadata=metadata)
    assert isinstance(commit(context_of(table).store, base, intent, effects=REAL), Committed)


def test_a_table_that_is_gone_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = txlog.write(path, ROWS)
    shutil.rmtree(path)
    for act in (lambda: table.append(ROWS), lambda: table.delete("a = 1"), table.refresh):
        with pytest.raises(txlog.NotFoundError):
            act()
    assert not path.exists()


@pytest.mark.parametrize("versions", [1, 3])
def test_a_table_in_the_place_of_another_is_left_alone(tmp_path: Path, versions: int) -> None:
    path = tmp_path / "t"
    table = txlog.write(path, ROWS)
    table.append(ROWS)
    shutil.rmtree(path)
    other = txlog.write(path, pa.table({"other": [1]}))
    for _ in range(versions - 1):
        other.append(pa.table({"other": [2]}))
    with pytest.raises(txlog.CommitConflictError, match="replaced this one"):
        table.append(ROWS)
    again = txlog.Table(path)
    assert (again.version, again.count()) == (versions - 1, versions)
    assert len(parquet_files(path)) == versions


@pytest.mark.spec("CON-2")
def test_rows_are_not_committed_under_a_rule_that_they_never_saw(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, ROWS)
    stale = table.snapshot
    change_metadata(
        table, configuration={**table.metadata.configuration, "delta.constraints.small": "a < 5"}
    )
    before = parquet_files(tmp_path)
    with pytest.raises(txlog.CommitConflictError, match="constraints"):
        append(context_of(table), stale, pa.table({"a": [99], "s": ["z"]}))
    with pytest.raises(txlog.CommitConflictError, match="constraints"):
        overwrite(context_of(table), stale, pa.table({"a": [99], "s": ["z"]}))
    assert txlog.Table(tmp_path).count() == 2
    assert parquet_files(tmp_path) == before


@pytest.mark.spec("CON-2")
@pytest.mark.parametrize("mode", [None, "merge"])
def test_a_column_that_was_dropped_does_not_come_back(tmp_path: Path, mode: str | None) -> None:
    table = txlog.write(tmp_path, ROWS)
    stale = table.snapshot
    table.overwrite(pa.table({"a": [7]}), schema_mode="overwrite")
    with pytest.raises(txlog.CommitConflictError, match="columns s"):
        append(context_of(table), stale, ROWS, schema_mode=mode)  # type: ignore[arg-type]
    again = txlog.Table(tmp_path)
    assert again.schema.names == ["a"]
    assert again.count() == 1


def test_a_new_nullable_column_does_no_harm(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, ROWS)
    stale = table.snapshot
    table.append(pa.table({"a": [3], "new": [1.5]}), schema_mode="merge")
    append(context_of(table), stale, ROWS)
    append(context_of(table), stale, pa.table({"a": [4], "mine": [True]}),
           schema_mode="merge")  # fmt: skip
    again = txlog.Table(tmp_path)
    assert again.schema.names == ["a", "s", "new", "mine"]
    assert (again.count(), again.count("new IS NULL"), again.count("mine")) == (6, 5, 1)


@pytest.mark.spec("CON-2")
def test_files_for_other_partitions_are_not_committed(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, ROWS)
    stale = table.snapshot
    table.delete(None)
    change_metadata(table, partition_columns=["s"])
    with pytest.raises(txlog.CommitConflictError, match="partitioning"):
        append(context_of(table), stale, ROWS)


def test_a_schema_that_could_not_be_opened_makes_no_table(tmp_path: Path) -> None:
    odd = {"delta.typeChanges": [{"fromType": "string", "toType": "long"}]}
    schema = StructType((StructField("a", PrimitiveType("long"), True, odd),))
    assert orjson.loads(schema_json(schema))
    with pytest.raises(txlog.UnsupportedFeatureError, match="string to long"):
        txlog.Table.create(tmp_path / "t", schema)
    assert not (tmp_path / "t").exists()


def test_write_says_that_a_transaction_was_recorded(tmp_path: Path) -> None:
    first = txlog.write(tmp_path, ROWS, txn=("job", 1))
    assert first.outcome is not None
    assert first.outcome.version == 0
    for mode in ("error", "append", "overwrite", "ignore"):
        again = txlog.write(tmp_path, ROWS, mode, txn=("job", 1))  # type: ignore[arg-type]
        assert again.outcome is not None
        assert again.outcome.skipped
        assert again.count() == 2


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"mode": "append", "where": "a = 1"}, "mode"),
        ({"mode": "append", "partition_mode": "dynamic"}, "mode"),
        ({"mode": "sometimes"}, "mode"),
        ({"mode": "append", "schema_mode": "bogus"}, "schema_mode"),
        ({"mode": "overwrite", "properties": {"mine": "1"}}, "properties"),
        ({"mode": "append", "partition_by": "s"}, "partition_by"),
        ({"mode": "append", "partition_by": 5}, "partition_by"),
    ],
)
def test_arguments_without_effect_are_refused(
    tmp_path: Path, arguments: dict[str, object], named: str
) -> None:
    table = txlog.write(tmp_path, ROWS)
    with pytest.raises(txlog.InvalidInputError) as caught:
        txlog.write(tmp_path, ROWS, **arguments)  # type: ignore[arg-type]
    assert caught.value.argument == named
    assert txlog.Table(tmp_path).version == table.version


def test_a_new_table_holds_only_rows_that_the_predicate_allows(tmp_path: Path) -> None:
    with pytest.raises(txlog.SchemaMismatchError, match="do not satisfy"):
        txlog.write(tmp_path / "t", ROWS, "overwrite", where="a = 1")
    assert not txlog.Table.exists(tmp_path / "t")
    made = txlog.write(tmp_path / "t", ROWS.slice(0, 1), "overwrite", where="a = 1")
    assert made.count() == 1


def test_more_partitions_than_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txlog.data_files.write._OPEN_FILES", 3)
    data = pa.table({"p": [n % 10 for n in range(100)], "x": range(100)})
    table = txlog.write(tmp_path, data, partition_by="p")
    assert sorted(table.to_arrow(["x"])["x"].to_pylist()) == list(range(100))


def test_a_table_that_may_not_be_written_gets_no_checkpoint(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, ROWS)
    log = tmp_path / "_delta_log"
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors", "zap"]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    (log / "00000000000000000001.json").write_bytes(orjson.dumps({"protocol": protocol}))
    assert txlog.Table(tmp_path).count() == 2
    with pytest.raises(txlog.UnsupportedFeatureError, match="zap"):
        table.refresh().maintenance.checkpoint()
    assert not list(log.glob("*.checkpoint.parquet"))
