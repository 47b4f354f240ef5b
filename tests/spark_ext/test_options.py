"""Options of the data source: known ones, and names that are nearly right."""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import txlog
import txlog.spark_ext
from txlog.base.errors import InvalidInputError, NotFoundError, SchemaMismatchError
from txlog.spark_ext.source.options import KNOWN, Options
from txlog.spark_ext.source.source import TxlogDataSource
from txlog.verbs.create import NewTable

_ASKED = re.compile(r"\.(?:text|flag|number|size|names|moment|choice)\(\s*\"(\w+)\"")


def test_every_option_that_is_asked_for_is_known() -> None:
    folder = Path(txlog.spark_ext.__file__).parent
    asked = {
        name for path in folder.rglob("*.py") for name in _ASKED.findall(path.read_text("utf-8"))
    }
    assert len(asked) > 20
    assert asked <= set(KNOWN)


@pytest.mark.parametrize("name", KNOWN)
def test_known_options_pass_in_any_case(name: str) -> None:
    for spelled in (name, name.lower(), name.upper()):
        Options({spelled: "x"}).require_spelled()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("replace_where", "replaceWhere"),
        ("mergeSchemas", "mergeSchema"),
        ("maxFilePerTrigger", "maxFilesPerTrigger"),
        ("partition-by", "partitionBy"),
        ("column", "columns"),
        ("startVersion", "startingVersion"),
        ("version", "versionAsOf"),
        ("timestamp", "timestampAsOf"),
    ],
)
def test_names_that_are_nearly_those_of_options_are_refused(name: str, meant: str) -> None:
    with pytest.raises(InvalidInputError, match=f"Use {meant} if you mean it"):
        TxlogDataSource({"path": "t", name: "1"})


@pytest.mark.parametrize(
    "name",
    ["header", "checkpointLocation", "queryName", "compression", "delta.appendOnly", "mode",
     "timestampFormat", "dateFormat", "serialization.format", "maxColumns", "numPartitions"],
)  # fmt: skip
def test_options_of_others_pass(name: str) -> None:
    Options({name: "x"}).require_spelled()


def test_several_paths_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="several paths"):
        Options({"paths": '["a", "b"]'}).store()


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("10b", 10), ("2k", 2048), (" 3KB ", 3072), ("1m", 1 << 20), ("1g", 1 << 30),
     ("1tb", 1 << 40), ("1p", 1 << 50)],
)  # fmt: skip
def test_sizes_are_spelled_as_for_spark(text: str, size: int) -> None:
    assert Options({"maxBytesPerTrigger": text}).size("maxBytesPerTrigger") == size


@pytest.mark.parametrize("text", ["0", "0m", "-1", "1.5g", "1 g", "g", "", "1bb", "many", "١"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"number of bytes was expected.*maxBytesPer"):
        Options({"maxBytesPerTrigger": text}).size("maxBytesPerTrigger")


ROWS = StructType([StructField("x", LongType()), StructField("p", StringType())])


@pytest.mark.parametrize(
    ("options", "overwrite", "named", "told"),
    [
        ({"partitionBy": "q"}, True, "partitionBy", "partitioned by"),
        ({"replaceWhere": "x >"}, True, "replaceWhere", "not a SQL expression"),
        ({"replaceWhere": "q > 1"}, True, "replaceWhere", "no column q"),
        ({"replaceWhere": "x > 1"}, False, "mode", r'partitionOverwriteMode.*mode\("overwrite"\)'),
        (
            {"partitionOverwriteMode": "dynamic"},
            True,
            "partitionOverwriteMode",
            "partitionOverwriteMode=static",
        ),
        ({"overwriteSchema": "true"}, False, "overwriteSchema", "mergeSchema=true"),
        ({"tableProperties": '{"a": "b"}'}, False, "tableProperties", "properties"),
        ({"txnAppId": "", "txnVersion": "1"}, False, "txnAppId", "id of an application"),
        ({"txnAppId": "a", "txnVersion": "-1"}, False, "txnVersion", "whole number from 0"),
        ({"txnAppId": "a", "txnVersion": f"{2**63}"}, False, "txnAppId", "not a long from 0"),
    ],
    ids=str,
)
def test_errors_of_a_write_name_options(
    tmp_path: Path, options: dict[str, str], overwrite: bool, named: str, told: str
) -> None:
    txlog.write(tmp_path, pa.table({"x": [1], "p": ["a"]}))
    with pytest.raises(InvalidInputError, match=told) as caught:
        TxlogDataSource({"path": str(tmp_path), **options}).writer(ROWS, overwrite)
    assert caught.value.argument == named
    assert not re.search(r"[a-z]_[a-z]", f"{caught.value.reason} {caught.value.remedy}")


@pytest.mark.spec("STR-43")
@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"replaceWhere": "x > 1"}, "replaceWhere"),
        ({"partitionOverwriteMode": "Dynamic"}, "partitionOverwriteMode"),
        ({"partitionOverwriteMode": "dynamic", "partitionBy": "p"}, "partitionOverwriteMode"),
    ],
    ids=str,
)
@pytest.mark.parametrize("exists", [False, True])
def test_complete_mode_refuses_options_that_let_rows_stay(
    tmp_path: Path, options: dict[str, str], named: str, exists: bool
) -> None:
    if exists:
        txlog.write(tmp_path, pa.table({"x": [1], "p": ["a"]}), partition_by=["p"])
    source = TxlogDataSource({"path": str(tmp_path), **options})
    with pytest.raises(InvalidInputError, match="complete mode replaces all rows") as caught:
        source.streamWriter(ROWS, True)
    assert caught.value.argument == named
    stays = TxlogDataSource({"path": str(tmp_path), "partitionOverwriteMode": "static"})
    assert stays.streamWriter(ROWS, True)


def test_a_schema_that_does_not_fit_names_options(tmp_path: Path) -> None:
    txlog.write(tmp_path, pa.table({"x": [1]}))
    with pytest.raises(SchemaMismatchError, match="pass mergeSchema=true"):
        TxlogDataSource({"path": str(tmp_path)}).writer(ROWS, False)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"timestampAsOf": "soon"}, "timestampAsOf"),
        ({"versionAsOf": "1", "timestampAsOf": "2020-01-01"}, "timestampAsOf"),
        ({"readChangeFeed": "true", "startingTimestamp": "soon"}, "startingTimestamp"),
        ({"readChangeFeed": "true", "startingVersion": "1", "endingVersion": "0"}, "endingVersion"),
        (
            {"readChangeFeed": "true", "endingVersion": "0", "endingTimestamp": "2020-01-01"},
            "endingTimestamp",
        ),
    ],
    ids=str,
)
def test_errors_of_a_read_name_options(tmp_path: Path, options: dict[str, str], named: str) -> None:
    for start in (1, 2):
        txlog.write(tmp_path, pa.table({"x": [start]}), mode="append")
    source = TxlogDataSource({"path": str(tmp_path), **options})
    with pytest.raises(InvalidInputError) as caught:
        source.reader(source.schema()).partitions()
    assert caught.value.argument == named
    assert not re.search(r"[a-z]_[a-z]", f"{caught.value.reason} {caught.value.remedy}")


def test_versions_that_are_not_there_are_told_by_option(tmp_path: Path) -> None:
    txlog.write(tmp_path, pa.table({"x": [1]}))
    options = {"path": str(tmp_path), "readChangeFeed": "true", "startingVersion": "9"}
    with pytest.raises(NotFoundError, match="startingVersion is later"):
        TxlogDataSource({**options, "endingVersion": "9"}).schema()


def _written(path: Path, options: dict[str, str], *, overwrite: bool = False) -> txlog.Table:
    """Write one row as Spark does, without a JVM."""
    rows = pa.table({"x": [1], "p": ["a"]})
    raw = {name.lower(): text for name, text in options.items()}  # As Spark hands them over.
    writer = TxlogDataSource({"path": str(path), **raw}).writer(ROWS, overwrite)
    writer.commit([writer.write(iter(rows.to_batches()))])
    return txlog.Table(path)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"replaceUsing": "x"}, "rows that match"),
        ({"replaceOn": "s.x = t.x", "targetAlias": "t"}, "rows that match"),
        ({"dataChange": "false"}, "readers of changes"),
        ({"dataChange": "no"}, "true or false"),
        ({"compression": "lzo"}, "expected one of"),
        ({"delta.enableNothing": "true"}, "no such property"),
        ({"delta.appendOnly": "true"}, "the table has other values of delta.appendOnly"),
    ],
    ids=str,
)
def test_options_that_change_what_a_write_means_are_refused(
    tmp_path: Path, options: dict[str, str], told: str, overwrite: bool
) -> None:
    path = tmp_path if "appendOnly" in told else tmp_path / "new"
    txlog.write(tmp_path, pa.table({"x": [1, 2], "p": ["a", "b"]}))
    with pytest.raises(InvalidInputError, match=told):
        _written(path, options, overwrite=overwrite)
    assert txlog.Table(tmp_path).version == 0
    assert not (tmp_path / "new").exists()


def test_data_change_may_be_said(tmp_path: Path) -> None:
    assert _written(tmp_path, {"dataChange": "true"}).count() == 1


def test_compression_is_that_of_the_files_of_a_write(tmp_path: Path) -> None:
    def codecs(table: txlog.Table) -> list[str]:
        files = [pq.ParquetFile(tmp_path / path) for path in table.files()["path"].to_pylist()]
        return sorted(file.metadata.row_group(0).column(0).compression for file in files)

    assert codecs(_written(tmp_path, {"compression": "gzip"})) == ["GZIP"]
    table = _written(tmp_path, {})
    assert codecs(table) == ["GZIP", "ZSTD"]
    assert "delta.parquet.compression.codec" not in table.properties


def test_options_of_delta_are_properties_of_a_new_table(tmp_path: Path) -> None:
    options = {
        "delta.dataSkippingNumIndexedCols": "1",
        "delta.feature.deletionVectors": "supported",
        "tableProperties": '{"delta.checkpointInterval": "7"}',
    }
    table = _written(tmp_path, options)
    assert table.properties["delta.dataSkippingNumIndexedCols"] == "1"
    assert table.properties["delta.checkpointInterval"] == "7"
    assert "deletionVectors" in (table.protocol.writer_features or ())
    assert _written(tmp_path, options).version == 1  # The table is already so.
    with pytest.raises(InvalidInputError, match="tableProperties contains it too"):
        _written(tmp_path, {**options, "delta.checkpointInterval": "7"})


def test_the_partitioning_is_replaced_with_the_schema(tmp_path: Path) -> None:
    """As `schema_mode="overwrite"` with `partition_by` does without Spark."""
    txlog.write(tmp_path, pa.table({"x": [1], "p": ["a"]}), partition_by=["p"])
    options = {"path": str(tmp_path), "overwriteSchema": "true", "partitionBy": "x"}
    planned = TxlogDataSource(options).writer(ROWS, True)
    rows = pa.table({"x": pa.array([2, 3], pa.int64()), "p": ["b", "b"]})
    planned.commit([planned.write(iter(rows.to_batches()))])
    table = txlog.Table(tmp_path)
    assert table.partition_columns == ["x"]
    assert table.files().num_rows == 2
    assert sorted(table.to_arrow(["x"])["x"].to_pylist()) == [2, 3]


def test_no_file_stays_if_the_new_table_cannot_be_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After tasks have written the files, the intent of the first version refuses them."""
    planned = TxlogDataSource({"path": str(tmp_path / "t")}).writer(ROWS, False)
    written = planned.write(iter(pa.table({"x": [2], "p": ["b"]}).to_batches()))
    assert any(tmp_path.rglob("*.parquet"))

    def refused(*_: object) -> None:
        raise InvalidInputError(argument="df", reason="it is refused")

    monkeypatch.setattr(NewTable, "intent", refused)
    with pytest.raises(InvalidInputError, match="it is refused"):
        planned.commit([written])
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


@pytest.mark.parametrize("name", ["branch", "txlog.branch"])
def test_a_branch_is_an_option_of_the_store(name: str) -> None:
    assert Options({name: "b"}).storage == {"txlog.branch": "b"}
    both = {name.upper(): "b", "storageOptions": '{"a": "1"}'}
    assert Options(both).storage == {"a": "1", "txlog.branch": "b"}
    twice = {name: "b", "storageOptions": '{"txlog.branch": "c"}'}
    with pytest.raises(InvalidInputError, match="only one"):
        _ = Options(twice).storage
    with pytest.raises(InvalidInputError, match="only one"):
        _ = Options({"branch": "b", "txlog.branch": "b"}).storage
    for wrong in ("txlog.brnch", "txlogBranch"):
        with pytest.raises(InvalidInputError, match=r"txlog\.branch"):
            Options({wrong: "b"}).require_spelled()
