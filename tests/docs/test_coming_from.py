"""The lines of docs/coming-from.md run in this order, each on a new table."""

import json
import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog
from txlog.table.hints import OF_MODULE, OF_TABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "coming-from.md"
SCHEMA = pa.schema([("n", pa.int64()), ("p", pa.string())])
ROWS = pa.table({"n": [1, 2, 3, 4], "p": ["x", "x", "y", "y"]}, SCHEMA)


def lines() -> list[tuple[str, str]]:
    """Return the right-hand code of each row, with the title of its section."""
    found, title = [], ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        title = line.removeprefix("## ") if line.startswith("## ") else title
        cells = re.match(r"\| `.*` \| (`+)(.+)\1 \|$", line)
        if cells:
            found.append((title, cells[2]))
    return found


def names(folder: Path) -> dict[str, Any]:
    table = txlog.Table.create(folder / "t", SCHEMA, ["p"], {"delta.enableChangeDataFeed": "true"})
    table.append(ROWS)
    wide = txlog.write(
        folder / "wide", ROWS, properties={"delta.feature.txlog.fragments": "supported"}
    )
    mapped = txlog.write(folder / "m", ROWS, properties={"delta.columnMapping.mode": "name"})
    indexed = txlog.write(folder / "indexed", ROWS)
    indexed.indexes.create("n", name="n_idx")
    (folder / "plain").mkdir()
    pq.write_table(ROWS, folder / "plain" / "a.parquet")
    (folder / "by_value" / "x").mkdir(parents=True)
    pq.write_table(ROWS.select(["n"]), folder / "by_value" / "x" / "a.parquet")
    return {
        "txlog": txlog,
        "pa": pa,
        "by_value": folder / "by_value",
        "folder": folder / "plain",
        "t": table,
        "wide": wide,
        "mapped": mapped,
        "indexed": indexed,
        "uri": table.uri,
        "new": folder / "new",
        "rows": pa.table({"n": [4, 9], "p": ["x", "y"]}, SCHEMA),
        "rows_of_x": ROWS.slice(0, 1),
        "nanos": pa.table({"t": pa.array([1], pa.timestamp("ns"))}),
        "schema": SCHEMA,
        "field": pa.field("extra", pa.float64()),
    }


@pytest.mark.slow
@pytest.mark.parametrize(("title", "code"), [line for line in lines() if "spark" not in line[1]])
def test_the_line_runs(tmp_path: Path, title: str, code: str) -> None:
    exec(code, names(tmp_path))


@pytest.mark.slow
@pytest.mark.spark
def test_the_lines_of_spark_run(spark: "SparkSession", tmp_path: Path) -> None:

    chosen = [code for _, code in lines() if "spark" in code]
    assert len(chosen) > 4
    for place, code in enumerate(chosen):
        given = {**names(tmp_path / str(place)), "spark": spark}
        given["df"] = spark.createDataFrame(given["rows"])
        found = eval(code, given)
        if hasattr(found, "whenMatchedUpdateAll"):
            found = found.whenMatchedUpdateAll().execute()
            assert found.collect()[0].num_updated_rows == 1


def test_all_sections_have_lines() -> None:
    titles = {title for title, _ in lines()}
    assert titles == {
        f"From {name}"
        for name in (
            "deltalake",
            "delta-spark",
            "pylance",
            "pyiceberg",
            "Iceberg on Spark",
            "pandas, polars and pyarrow",
        )
    }


def test_errors_tell_what_the_page_tells() -> None:
    """If this fails, run `python docs/hints.py`."""
    made = runpy.run_path(str(PAGE.parent / "hints.py"))["hints_of"](PAGE.read_text("utf-8"))
    assert made == (OF_TABLE, OF_MODULE)
    guesses = (
        "to_table", "count_rows", "columns", "shape", "filter", "select", "load_as_version",
        "create_checkpoint", "file_uris", "to_pyarrow_table", "inspect", "current_snapshot",
        "location", "get_fragments", "add_columns", "tags", "__getitem__", "latest_version",
        "checkout_version", "get_add_actions", "deletion_vectors", "slice", "take_rows", "repair",
        "create_index", "drop_index", "compact", "z_order", "add_constraint", "tail", "describe",
        "drop_duplicates", "is_empty", "iterrows", "snapshot_by_id", "refs", "update_spec",
        "deep_clone", "fragment_ids",
    )  # fmt: skip
    assert [name for name in guesses if name not in OF_TABLE] == []
    modules = {"DeltaTable", "write_deltalake", "dataset", "write_dataset", "scan_delta", "Schema"}
    assert modules | {"LanceOperation", "load_catalog"} <= OF_MODULE.keys()
    assert OF_TABLE["load_as_version"][2] == "t.at(1)"
    assert OF_TABLE["to_pydict"][2] == "t.to_arrow().to_pydict()"


def differences() -> list[str]:
    """Return the left-hand cells of the table of differences from deltalake."""
    text = PAGE.read_text(encoding="utf-8")
    part = text.partition("Differences from deltalake")[2].partition("\n## ")[0]
    cells = [re.split(r"(?<!\\) \| ", line[2:]) for line in part.splitlines() if line[:2] == "| "]
    return [row[0] for row in cells[1:]]


def refused(kind: type[Exception], match: str, *calls: Any) -> None:
    for call in calls:
        with pytest.raises(kind, match=match):
            call()


def made(folder: Path, **more: Any) -> txlog.Table:
    return txlog.write(folder / "d", ROWS, **more)


def of_deltalake(folder: Path, **more: Any) -> Any:
    deltalake.write_deltalake(folder / "o", ROWS, **more)
    return deltalake.DeltaTable(folder / "o")


def quotes(f: Path) -> None:
    odd = pa.table({"a b": ["x", "y"]})
    on = {"delta.columnMapping.mode": "name"}
    assert txlog.write(f / "d", odd, properties=on).count("`a b` = 'x'") == 1
    count = txlog.Table(f / "d").count
    refused(txlog.InvalidInputError, "in quotes is a text", lambda: count("\"a b\" = 'x'"))
    assert count("\"c d\" = 'x'") == 0
    deltalake.write_deltalake(f / "o", odd)
    assert deltalake.DeltaTable(f / "o").delete("\"a b\" = 'x'")["num_deleted_rows"] == 1


def tuples(f: Path) -> None:
    table = txlog.write(f / "d", pa.table({"m": ["4", "12"], "x": [1, 2]}), partition_by="m")
    assert table.to_arrow(where=[("m", ">=", 12)])["x"].to_pylist() == [2]
    refused(txlog.InvalidInputError, "string", lambda: made(f / "s").count([("p", ">", 1)]))


def overwrites_at_once(f: Path) -> None:
    first = made(f)
    second = txlog.Table(first.uri)
    first.overwrite(ROWS.slice(0, 1))
    second.overwrite(ROWS.slice(1, 2))
    assert (second.version, second.count()) == (2, 2)
    theirs = of_deltalake(f)
    other = deltalake.DeltaTable(f / "o")
    deltalake.write_deltalake(theirs, ROWS, mode="overwrite")
    with pytest.raises(deltalake.exceptions.CommitFailedError):
        deltalake.write_deltalake(other, ROWS, mode="overwrite")


def checkpoints(f: Path) -> None:
    table = made(f, properties={"delta.checkpointInterval": "2"})
    table.append(ROWS)
    assert not list(Path(table.uri, "_delta_log").glob("*.checkpoint*"))
    table.append(ROWS)
    assert list(Path(table.uri, "_delta_log").glob(f"{2:020d}.checkpoint*"))


def two_deletes(f: Path) -> None:
    source = pa.table({"n": [1, 1]})
    merge = made(f).merge(source, "target.n = source.n").when_matched_delete("source.n > 0")
    assert merge.execute().metrics["numTargetRowsDeleted"] == 1
    theirs = of_deltalake(f).merge(source, "t.n = s.n", "s", "t").when_matched_delete("s.n > 0")
    with pytest.raises(deltalake.exceptions.DeltaError, match="duplicate"):
        theirs.execute()


def stats_of(uri: str | Path) -> dict[str, Any]:
    (add,) = [
        line["add"]
        for line in map(
            json.loads, Path(uri, "_delta_log", f"{0:020d}.json").read_text().splitlines()
        )
        if "add" in line
    ]
    found: dict[str, Any] = json.loads(add["stats"])
    return found


def counted_nulls(f: Path) -> None:
    rows = pa.table({"l": [[1]], "b": [b"x"], "t": [True], "at": pa.array([0], pa.timestamp("us"))})
    ours = stats_of(txlog.write(f / "d", rows).uri)
    deltalake.write_deltalake(f / "o", rows)
    theirs = stats_of(f / "o")
    assert {"l", "b"} <= ours["nullCount"].keys()
    assert not {"l", "b"} & theirs["nullCount"].keys()
    assert "t" not in ours["minValues"]
    assert ours["minValues"]["at"].endswith(":00.000")


def versions_in_properties(f: Path) -> None:
    asked = {"delta.minReaderVersion": "1", "delta.minWriterVersion": "4"}
    table = made(f, properties=asked)
    assert table.protocol.min_writer_version == 4
    assert not asked.keys() & table.metadata.configuration.keys()
    table.alter.add_features("v2Checkpoint")
    assert {"appendOnly", "changeDataFeed"} <= set(table.protocol.writer_features or ())


def feed(f: Path) -> None:
    table = made(f, properties={"delta.enableChangeDataFeed": "true"})
    before = table.files()["path"].to_pylist()
    table.delete("n = 1")
    assert table.files()["path"].to_pylist() == before
    changes = len(list(Path(table.uri, "_change_data").glob("*")))
    table.delete(None)
    assert len(list(Path(table.uri, "_change_data").glob("*"))) == changes
    found = table.changes(1).to_arrow()
    assert found["_change_type"].to_pylist() == ["delete"] * 4
    assert found.schema.field("_commit_timestamp").type == pa.timestamp("us", "UTC")
    assert found.schema.field("_commit_version").type == pa.int64()


def edited(f: Path) -> None:
    path = Path(made(f).uri, "_delta_log", f"{0:020d}.json")
    path.write_text(path.read_text().replace('"numRecords', '"numrecords'))
    refused(txlog.LogCorruptError, "checksum", lambda: txlog.Table(f / "d").files())


def writer_defaults(f: Path) -> None:
    def encodings(**more: Any) -> set[str]:
        table = txlog.write(f / f"d{len(more)}", pa.table({"x": range(5000)}), **more)
        (path,) = Path(table.uri).glob("*.parquet")
        return set(pq.read_metadata(path).row_group(0).column(0).encodings)

    assert "RLE_DICTIONARY" not in encodings()
    asked = {"x": txlog.ColumnProperties(dictionary_enabled=True)}
    properties = txlog.WriterProperties(column_properties=asked)
    assert "RLE_DICTIONARY" in encodings(options=txlog.WriteOptions(writer_properties=properties))


def history(f: Path) -> None:
    table = made(f)
    assert table.history()[0]["operation"] == "CREATE TABLE AS SELECT"
    assert table.history()[0]["operationMetrics"]["numOutputRows"] == "4"
    assert of_deltalake(f).history()[0]["operation"] == "WRITE"
    assert not table.alter.set_properties({"txlog.deletionVectors": "auto"})
    assert not table.alter.set_nullable("n")
    table.alter.set_name("x" * 300)
    refused(
        txlog.InvalidInputError,
        "readVersion",
        lambda: table.append(ROWS, user_metadata={"readVersion": 7}),
    )
    refused(txlog.InvalidInputError, "zz", lambda: table.update({"zz": "1"}))
    refused(txlog.SchemaMismatchError, "string", lambda: table.append(pa.table({"n": ["1"]})))
    refused(txlog.InvalidInputError, "CAST", lambda: table.update({"n": "p"}))


def once(f: Path) -> None:
    table = made(f)
    assert table.append(ROWS, txn=("app", 1))
    assert table.append(ROWS, txn=("app", 1)).skipped
    assert table.count() == 8


def odd_columns(f: Path) -> None:
    rows = pa.table({"n": [1], "v": pa.nulls(1)})
    refused(txlog.InvalidInputError, "only nulls", lambda: txlog.write(f / "v", rows))
    with pytest.warns(txlog.TxlogWarning, match="uint32 as int64"):
        big = txlog.write(f / "u", pa.table({"x": pa.array([2**32 - 1], pa.uint32())}))
    assert big.to_arrow()["x"].to_pylist() == [2**32 - 1]
    mapped = made(f, properties={"delta.columnMapping.mode": "name"})
    mapped.append(ROWS.append_column("new", ROWS["n"]), schema_mode="merge")
    assert mapped.to_arrow()["new"].null_count == 4
    listed = {"delta.dataSkippingStatsColumns": "p"}
    refused(
        txlog.InvalidInputError,
        "partition column",
        lambda: txlog.write(f / "s", ROWS, partition_by="p", properties=listed),
    )


def out_of_time(f: Path) -> None:
    table = made(f)
    early = "1999-01-01"  # Without a zone: UTC.
    refused(txlog.NotFoundError, "before", lambda: txlog.Table(table.uri, timestamp=early))
    nearest = txlog.Table(table.uri, timestamp=early, out_of_range="nearest")
    assert nearest.version == 0
    assert len(table.scan(where="p LIKE '%x%'").file_uris()) == 1


def clauses(f: Path) -> None:
    merge = made(f).merge(ROWS, "target.n = source.n").when_matched_update_all()
    refused(txlog.InvalidInputError, "never apply", lambda: merge.when_matched_delete().execute())


def schema_and_predicate(f: Path) -> None:
    data = pa.table({"n": [1], "other": ["x"]})
    refused(
        txlog.InvalidInputError,
        "all rows",
        lambda: made(f).overwrite(data, "n = 1", schema_mode="overwrite"),
    )


def folders(f: Path) -> None:
    (f / "p=1").mkdir(parents=True)
    pq.write_table(ROWS.select(["n"]), f / "p=1" / "a.parquet")
    table = txlog.convert_to_delta(f, collect_stats=False)
    assert table.partition_columns == ["p"]
    assert table.files()["stats"].to_pylist() == ['{"numRecords":4}']


HELD = {
    "predicates of DataFusion": quotes,
    '`("month"': tuples,
    "casts data": history,
    "`restore` and `load_as_version` take": out_of_time,
    "`custom_metadata` may set": history,
    "two source rows": two_deletes,
    "no null counts": counted_nulls,
    "if two overwrites": overwrites_at_once,
    "`load_cdf` returns": feed,
    '`schema_mode="overwrite"` together': schema_and_predicate,
    "`convert_to_deltalake(collect_stats=False)`": folders,
    "protocol versions": versions_in_properties,
    "when a protocol": versions_in_properties,
    "checkpoints at versions": checkpoints,
    "`_commit_timestamp` has no zone": feed,
    "deletes, updates and merges rewrite": feed,
    "`_change_data` for every change": feed,
    "clauses after one": clauses,
    "`update` ignores": history,
    "new columns are refused": odd_columns,
    "columns of Arrow's null type": odd_columns,
    "minima and maxima of booleans": counted_nulls,
    "dictionaries for every column": writer_defaults,
    "`dataSkippingStatsColumns`": odd_columns,
    "names and descriptions": history,
    "if two appends": once,
    "a commit that was edited": edited,
    "`convert_to_deltalake` needs": folders,
    "unsigned integers": odd_columns,
    "`load_as_version` requires": out_of_time,
    "`file_uris` refuses": out_of_time,
    "the first write is called": history,
    "metrics of `history`": history,
    "a call that changes nothing": history,
    "a minimum of a timestamp": counted_nulls,
}
ELSEWHERE = (  # What txlog does not have, or tests of its own hold.
    "a commit records several", "OpenTelemetry", "`optimize.compact(min_commit", "`filesystem=`",
    "`create_write_transaction`", "DataFusion's tables", "times of commits", "expired commits",
    "`PostCommitHookProperties`", "`operationParameters`", "metrics of a planner",
    "the configuration has only", "deprecated arguments", "the text of errors",
)  # fmt: skip


@pytest.mark.parametrize("check", dict.fromkeys(HELD.values()), ids=lambda check: check.__name__)
def test_the_difference_is_as_told(tmp_path: Path, check: Any) -> None:
    check(tmp_path)


def test_each_difference_is_held() -> None:
    told = differences()
    known = (*HELD, *ELSEWHERE)
    assert len(told) > 40
    assert [row for row in told if not row.startswith(known)] == []
    assert [start for start in known if not any(row.startswith(start) for row in told)] == []
