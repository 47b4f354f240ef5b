"""Overwrites that change schema and partitioning together, and `Table.create` over a table."""

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import txlog
from txlog.base.errors import AlreadyExistsError, InvalidInputError, UnsupportedFeatureError

OLD = pa.table({"n": [1, 2, 3], "p": ["a", "a", "b"]})
NEW = pa.table({"m": [1.5, 2.5], "q": ["x", "y"], "n": [7, 8]})


def folders(table: txlog.Table) -> set[str]:
    return {path.rpartition("/")[0] for path in table.files()["path"].to_pylist()}


@pytest.mark.parametrize("columns", [["q"], ["n", "q"], [], "q"])
@pytest.mark.parametrize("old", [["p"], []])
def test_schema_and_partitioning_change_together(
    tmp_path: Path, columns: list[str] | str, old: list[str]
) -> None:
    table = txlog.write(tmp_path / "t", OLD, partition_by=old, properties={"owner": "me"})
    table.append(OLD)
    table.overwrite(NEW, partition_by=columns, schema_mode="overwrite")
    assert table.partition_columns == ([columns] if isinstance(columns, str) else columns)
    assert table.to_arrow().sort_by("n") == NEW.cast(table.schema)
    assert len(folders(table)) == (2 if columns else 1)
    assert table.properties["owner"] == "me"
    theirs = deltalake.DeltaTable(table.uri)
    assert theirs.metadata().partition_columns == table.partition_columns
    assert pa.table(theirs.to_pyarrow_table()).sort_by("n").to_pydict() == NEW.to_pydict()
    assert txlog.Table(table.uri, version=1).to_arrow().num_rows == 6
    table.append(NEW)
    assert table.count() == 4
    assert table.restore(0).version == 4
    assert table.partition_columns == old
    assert table.to_arrow(["n"]).num_rows == 3


def test_the_same_columns_can_be_partitioned_otherwise(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", OLD, partition_by="p")
    txlog.write(table.uri, OLD, "overwrite", partition_by="n", schema_mode="overwrite")
    assert table.refresh().partition_columns == ["n"]
    assert table.to_arrow().sort_by("n") == OLD
    assert table.history(1)[0]["operationParameters"]["partitionBy"] == '["n"]'
    txlog.write(table.uri, OLD, "overwrite", schema_mode="overwrite")
    assert table.refresh().partition_columns == ["n"]  # Nothing is said of them.


def test_the_change_feed_over_another_partitioning(tmp_path: Path) -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    table = txlog.write(tmp_path / "t", OLD, partition_by="p", properties=feed)
    table.overwrite(OLD, partition_by="n", schema_mode="overwrite")
    table.append(OLD)
    for start in (0, 1):  # What version 1 took out is in folders of the other partitioning.
        with pytest.raises(UnsupportedFeatureError, match="partitioned by other columns"):
            table.changes(start)
    assert table.changes(2).count() == 3
    assert table.changes(0, 0).count() == 3


def test_a_partitioning_that_cannot_be(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", OLD, partition_by="p")
    for wrong, reason in (
        ({"partition_by": "n"}, "only together with the schema"),
        ({"partition_by": "n", "schema_mode": "merge"}, "only together with the schema"),
        ({"partition_by": "none", "schema_mode": "overwrite"}, "no such column"),
        ({"partition_by": ["n", "p"], "schema_mode": "overwrite"}, "all columns"),
        ({"partition_by": "n", "schema_mode": "overwrite", "where": "n = 1"}, "all rows"),
    ):
        with pytest.raises(InvalidInputError, match=reason):
            table.overwrite(OLD, **wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="partitioned by"):
        txlog.write(table.uri, OLD, "overwrite", partition_by="n")
    assert txlog.Table(table.uri).version == 0
    assert len(list(Path(table.uri).rglob("*.parquet"))) == 2


def test_create_over_a_table(tmp_path: Path) -> None:
    made = txlog.Table.create(tmp_path / "t", OLD.schema, ["p"], mode="overwrite")
    made.append(OLD)
    same = txlog.Table.create(made.uri, NEW.schema, mode="ignore")
    assert (same.version, same.count(), same.schema) == (1, 3, made.schema)
    with pytest.raises(AlreadyExistsError):
        txlog.Table.create(made.uri, NEW.schema)
    with pytest.raises(InvalidInputError, match="not one of"):
        txlog.Table.create(made.uri, NEW.schema, mode="append")  # type: ignore[arg-type]
    new = txlog.Table.create(made.uri, NEW.schema, ["q"], name="new", mode="overwrite")
    assert (new.version, new.count(), new.schema) == (2, 0, NEW.schema)
    assert (new.partition_columns, new.metadata.name) == (["q"], "new")
    assert txlog.Table(made.uri, version=1).count() == 3
    assert deltalake.DeltaTable(made.uri).metadata().partition_columns == ["q"]


def test_the_same_schema_again_beside_a_predicate(tmp_path: Path) -> None:
    rows = pa.table({"x": [1, 2], "Name": ["a", "b"]})
    table = txlog.write(tmp_path, rows)
    table.overwrite(rows.slice(0, 1), where="x = 1", schema_mode="overwrite")
    assert table.to_arrow().sort_by("x") == rows
    for other in (rows.rename_columns(["x", "name"]), rows.select(["x"])):
        with pytest.raises(txlog.InvalidInputError, match="together with all rows"):
            table.overwrite(other.slice(0, 1), where="x = 1", schema_mode="overwrite")
    assert table.version == 1
    assert len(list(tmp_path.glob("*.parquet"))) == len(
        {*table.scan().file_uris()} | {*txlog.Table(tmp_path, version=0).scan().file_uris()}
    )


@pytest.mark.spec("CON-28")
@pytest.mark.parametrize("mode", ["none", "name"])
@pytest.mark.parametrize("partition_by", [None, ["b"]])
def test_what_names_a_lost_column_ends(
    tmp_path: Path, mode: str, partition_by: list[str] | None
) -> None:
    properties = {"delta.columnMapping.mode": mode, "delta.dataSkippingStatsColumns": "a,b"}
    rows = pa.table({"a": [1, 2], "b": [3, 4]})
    table = txlog.write(tmp_path / "t", rows, cluster_by=["b"], properties=properties)
    table.indexes.create("b")
    table.indexes.create("a")
    new = rows if partition_by else rows.select(["a"])
    table.overwrite(new, schema_mode="overwrite", partition_by=partition_by)
    table = txlog.Table(table.uri)
    assert table.properties["delta.dataSkippingStatsColumns"] == "`a`"
    assert list(table.indexes.list()) == ["a"]
    with pytest.raises(InvalidInputError, match="no clustering columns"):
        table.optimize.cluster()
    table.alter.set_properties({"mine": "1"})
    assert table.lookup([1], on="a").num_rows == 1


def test_what_names_a_column_that_stays_stays(tmp_path: Path) -> None:
    properties = {"delta.dataSkippingStatsColumns": "a, b"}
    rows = pa.table({"a": [1, 2], "b": [3, 4]})
    table = txlog.write(tmp_path / "t", rows, cluster_by=["b"], properties=properties)
    table.indexes.create("b")
    table.overwrite(rows.append_column("c", rows["a"]), schema_mode="overwrite")
    assert table.properties["delta.dataSkippingStatsColumns"] == "a, b"
    assert len(table.indexes.list()) == 1
    assert table.optimize.cluster().version is not None


ORDERS = ("before", "between", "after")


@pytest.mark.slow
@pytest.mark.spec("CON-30")
@pytest.mark.parametrize("when", ORDERS)
@pytest.mark.parametrize("winner", ["append", "delete", "compact", "property"])
@pytest.mark.parametrize(
    "how",
    [{}, {"where": "p = 'a'"}, {"partition_mode": "dynamic"}, {"schema_mode": "overwrite"}],
    ids=str,
)
def test_rows_computed_from_a_version_undo_nothing(
    tmp_path: Path, how: dict[str, Any], winner: str, when: str
) -> None:
    table = txlog.write(tmp_path / "t", OLD, partition_by="p")
    table.append(OLD)

    def wins() -> None:
        other = txlog.Table(table.uri)
        if winner == "append":
            other.append(pa.table({"n": [99], "p": ["a"]}))
        elif winner == "delete":
            other.delete("n = 1")
        elif winner == "compact":
            other.optimize.compact()
        else:
            other.alter.set_properties({"owner": "me"})

    if when == "before":
        wins()
    table.refresh()
    rows = table.to_arrow(where="p = 'a'")
    if when == "between":
        wins()
    write = partial(txlog.write, table.uri, rows, "overwrite", computed_from=table.version, **how)
    if when == "between" and winner not in ("property", "compact"):  # These change no row.
        before = table.refresh().to_arrow().sort_by("n")
        with pytest.raises(txlog.CommitConflictError, match="CON-30"):
            write()
        with pytest.raises(txlog.CommitConflictError, match="changed the rows"):
            table.overwrite(rows, computed_from=1, **how)
        assert table.refresh().to_arrow().sort_by("n") == before
        table.overwrite(rows, **how)
        return
    made = write()
    if when == "after":
        wins()
    numbers = made.refresh().to_arrow()["n"].to_pylist()
    assert (99 in numbers) == (winner == "append")
    assert (1 in numbers) == (winner != "delete")


def test_rows_elsewhere_do_not_matter_to_computed_ones(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", OLD, partition_by="p")
    rows = table.to_arrow(where="p = 'b'")
    txlog.Table(table.uri).append(pa.table({"n": [99], "p": ["a"]}))
    table.overwrite(rows, "p = 'b'", computed_from=0)
    table.overwrite(rows, partition_mode="dynamic", computed_from=0 + 2)
    assert sorted(table.to_arrow()["n"].to_pylist()) == [1, 2, 3, 99]


def test_no_rows_are_from_a_version_that_is_not_there(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", OLD)
    write = partial(txlog.write, mode="overwrite", computed_from=1)
    for call in (lambda: table.overwrite(OLD, computed_from=7), lambda: write(table.uri, OLD)):
        with pytest.raises(txlog.InvalidInputError, match=r"the latest one of .* is 0") as caught:
            call()
        assert caught.value.argument == "computed_from"
    with pytest.raises(txlog.InvalidInputError, match="there is no table"):
        write(tmp_path / "u", OLD)
    with pytest.raises(txlog.InvalidInputError, match="has no effect"):
        txlog.write(table.uri, OLD, computed_from=0)
    assert table.refresh().version == 0
    txlog.Table(table.uri).append(OLD)
    table.overwrite(OLD, computed_from=1)  # The object itself need not know this version.


def test_a_predicate_of_write_has_the_zone_that_is_given(tmp_path: Path) -> None:
    times = [datetime(2024, 1, day, hour, tzinfo=UTC) for day, hour in ((2, 1), (2, 15), (3, 2))]
    rows = pa.table({"at": pa.array(times, pa.timestamp("us", "UTC")), "n": [1, 2, 3]})
    of_day = "at >= TIMESTAMP'2024-01-02 00:00:00' AND at < TIMESTAMP'2024-01-03 00:00:00'"
    for zone, left in (("America/New_York", [1]), (None, [3]), ("UTC", [3])):
        path = tmp_path / str(zone).replace("/", "-")
        txlog.write(path, rows)
        made = txlog.write(path, rows.slice(1, 1), "overwrite", where=of_day, time_zone=zone)
        assert sorted(made.to_arrow()["n"].to_pylist()) == sorted([2, *left])
        assert made.count(of_day) == 1
    with pytest.raises(InvalidInputError):
        txlog.write(tmp_path / "x", rows, time_zone="Nowhere/City")
    assert not (tmp_path / "x").exists()


def test_a_new_schema_without_the_partition_column_needs_a_new_partitioning(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", OLD, partition_by="p")
    rows = pa.table({"n": [7]})
    for overwrite in (table.overwrite, partial(txlog.write, table.uri, mode="overwrite")):
        with pytest.raises(txlog.InvalidInputError, match="lack p, by which") as caught:
            overwrite(rows, schema_mode="overwrite")
        assert (caught.value.argument, caught.value.field) == ("schema_mode", "p")
        assert "partition_by=[]" in caught.value.remedy
    table.overwrite(rows, schema_mode="overwrite", partition_by=[])
    assert (table.partition_columns, table.to_arrow().to_pylist()) == ([], [{"n": 7}])
