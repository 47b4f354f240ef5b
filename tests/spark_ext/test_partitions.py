"""Input partitions: what tasks get and read, and what the log makes unnecessary.

They are made and read as Spark does it, by pickles, but without a JVM where that is enough.
"""

import pickle
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType
from pyspark.sql.types import StructField as Field
from pyspark.sql.types import StructType as Struct

import txlog
from tests.moved import moved
from txlog.base.errors import SchemaMismatchError
from txlog.fragments.fragment import Fragment, FragmentSequence
from txlog.spark_ext.source.reader import FragmentsReader
from txlog.spark_ext.source.source import TxlogDataSource
from txlog.spark_ext.source.tasks import FragmentPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

METADATA = ["_rowid", "_rowaddr", "_fragid"]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> txlog.Table:
    """Four fragments of ten rows in row groups of three; the second lacks two rows.

    They are small, but each has a task of its own.
    """
    monkeypatch.setattr("txlog.spark_ext.source.partitions._LEAST_BYTES", 1)
    monkeypatch.setattr("txlog.data_files.write.ROW_GROUP_ROWS", 3)
    data = pa.table({"x": list(range(40)), "text": [f"t{n}" for n in range(40)]})
    made = txlog.write(tmp_path / "t", data, options=txlog.WriteOptions(max_rows_per_file=10))
    made.delete("x IN (10, 17)")
    return made


def planned(table: txlog.Table, **options: Any) -> tuple[FragmentsReader, list[FragmentPartition]]:
    """Return a reader and its partitions, as tasks get them."""
    given = {name.lower(): str(value) for name, value in options.items()}
    source = TxlogDataSource({"path": table.uri, **given})
    reader = source.reader(source.schema())
    found: tuple[FragmentsReader, list[FragmentPartition]] = pickle.loads(
        pickle.dumps((reader, reader.partitions()))
    )
    return found


def test_columns_that_change_between_schema_and_reader(table: txlog.Table) -> None:
    source = TxlogDataSource({"path": table.uri, "columns": "x,_rowaddr"})
    loaded = source.schema()
    assert read(*planned(table, columns="x"))[0] == {"x": 0}
    for data, told in (
        ({"x": ["text"]}, "column x was long and became string"),
        ({"y": [1]}, "column x was dropped or renamed"),
    ):
        table.overwrite(pa.table(data), schema_mode="overwrite")
        with pytest.raises(SchemaMismatchError, match=rf"{told}.*Load the frame again"):
            source.reader(loaded)


def test_columns_that_become_nullable(tmp_path: Path) -> None:
    strict = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    made = txlog.write(tmp_path / "strict", pa.table({"x": [1]}, schema=strict))
    source = TxlogDataSource({"path": made.uri})
    assert source.schema() == Struct([Field("x", LongType())])
    # A caller, or the catalog, may have been stricter: Spark would take no null for granted.
    loaded = Struct([Field("x", LongType(), nullable=False)])
    source.reader(loaded)
    made.overwrite(pa.table({"x": [None]}, pa.schema([("x", pa.int64())])),
                   schema_mode="overwrite")  # fmt: skip
    with pytest.raises(SchemaMismatchError, match="column x may be null now"):
        source.reader(loaded)


def read(reader: FragmentsReader, partitions: list[FragmentPartition]) -> list[dict[str, Any]]:
    return [
        row for partition in partitions for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]  # fmt: skip


def count(reader: FragmentsReader, partitions: list[FragmentPartition]) -> int:
    return sum(batch.num_rows for partition in partitions for batch in reader.read(partition))


def delete_files(table: txlog.Table, places: set[int]) -> None:
    for place, fragment in enumerate(table.fragments()):
        if place in places:
            (Path(table.uri) / fragment.files[0].path).unlink()


@pytest.mark.spec("FRG-40")
def test_tasks_read_fragments_without_the_log(table: txlog.Table) -> None:
    expected = table.to_arrow(["x", *METADATA], "x > 5").to_pylist()
    names = ",".join(["x", *METADATA])
    reader, partitions = planned(table, columns=names, where="x > 5")
    assert [one.fragments for one in partitions] == [(one.value,) for one in table.fragments()]
    assert all(one.rows is None and one.limit is None for one in partitions)
    shutil.rmtree(Path(table.uri) / "_delta_log")
    assert read(reader, partitions) == expected


@pytest.mark.spec("FRG-40")
@pytest.mark.parametrize("options", [{}, {"columns": ""}, {"limit": 3}])
def test_where_nothing_is_left_a_partition_yields_nothing(
    table: txlog.Table, options: dict[str, Any]
) -> None:
    reader, partitions = planned(table, where="x > 500", **options)
    assert len(partitions) == 1
    assert list(reader.read(partitions[0])) == []


@pytest.mark.spec("FRG-41")
@pytest.mark.parametrize("where", [None, "x % 4 < 2", "x >= 20"])
def test_a_large_fragment_has_several_partitions(table: txlog.Table, where: str | None) -> None:
    options = {} if where is None else {"where": where}
    size = max(fragment.files[0].size for fragment in table.fragments())
    reader, partitions = planned(table, maxPartitionBytes=size // 3, **options)
    assert len(partitions) > 2 * len(table.scan(where=where).fragments())
    assert {one.fragments[0].id for one in partitions} == {
        fragment.id for fragment in table.scan(where=where).fragments()
    }
    assert read(reader, partitions) == table.to_arrow(where=where).to_pylist()
    for far in (size, 10**12):
        assert len(planned(table, maxPartitionBytes=far)[1]) == 4


@pytest.mark.slow
@pytest.mark.spec("FRG-41", "FRG-17")
@pytest.mark.parametrize("columns", ["x,score,text", "score", "text,score,_rowaddr", ""])
@pytest.mark.parametrize("where", [None, "score > 31 AND x % 3 = 0"])
def test_tasks_put_column_files_beside_the_rows(
    table: txlog.Table, columns: str, where: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.alter.add_features("txlog.fragments")
    monkeypatch.setattr("txlog.data_files.write.ROW_GROUP_ROWS", 4)  # The rows' files have threes.
    table.alter.add_columns({"score": "x * 2"})
    options = {} if where is None else {"where": where}
    reader, partitions = planned(table, columns=columns, maxPartitionBytes=200, **options)
    names = columns.split(",") if columns else []
    expected = table.to_arrow(names, where)
    if columns:
        assert len(partitions) > 4
        assert read(reader, partitions) == expected.to_pylist()
    assert count(reader, partitions) == table.count(where) == expected.num_rows


@pytest.mark.slow
@pytest.mark.spec("FRG-43")
@pytest.mark.parametrize("where", [None, "x >= 10", "x % 2 = 0", "x > 500"])
@pytest.mark.parametrize("limit", [0, 1, 8, 9, 19, 1000])
@pytest.mark.parametrize("columns", ["x,text,_rowaddr", ""])
def test_a_limit_is_the_head_of_the_table(
    table: txlog.Table, where: str | None, limit: int, columns: str
) -> None:
    options = {} if where is None else {"where": where}
    reader, partitions = planned(table, columns=columns, limit=limit, **options)
    names = columns.split(",") if columns else []
    expected = table.head(limit, names, where)
    assert expected.num_rows == min(limit, table.count(where))
    if names:
        assert read(reader, partitions) == expected.to_pylist()
    else:
        assert count(reader, partitions) == expected.num_rows


@pytest.mark.spec("FRG-43")
def test_a_limit_opens_no_more_fragments_than_it_needs(table: txlog.Table) -> None:
    delete_files(table, {2, 3})
    reader, partitions = planned(table, limit=18)
    assert [one.limit for one in partitions] == [10, 8]
    assert len(read(reader, partitions)) == 18
    # Where the log cannot count, one task reads on until it has enough.
    reader, partitions = planned(table, limit=7, where="x % 2 = 0")
    assert len(partitions) == 1
    assert [row["x"] for row in read(reader, partitions)] == [0, 2, 4, 6, 8, 12, 14]


@pytest.mark.spec("FRG-44")
def test_no_columns_need_no_file_that_the_log_counts(table: txlog.Table) -> None:
    delete_files(table, {0, 1, 2, 3})
    assert count(*planned(table, columns="")) == 38
    assert count(*planned(table, columns="[]", where="x >= 0")) == 38
    assert count(*planned(table, columns="", where="x < 20")) == 18
    assert count(*planned(table, columns="", limit=15)) == 15
    with pytest.raises(txlog.DataFileError, match="is missing"):
        count(*planned(table, columns="", where="x < 15"))


@pytest.mark.spec("FRG-44")
def test_no_columns_of_fragments_that_must_be_read(table: txlog.Table) -> None:
    delete_files(table, {0, 2, 3})
    reader, partitions = planned(table, columns="", where="x < 15")
    assert [(len(one.fragments), one.counted) for one in partitions] == [(1, 0), (0, 10)]
    assert count(reader, partitions) == 14


def test_very_many_rows_are_counted_in_parts(
    table: txlog.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txlog.spark_ext.source.partitions._COUNTED_ROWS", 15)
    monkeypatch.setattr("txlog.spark_ext.source.tasks.BATCH_ROWS", 4)
    reader, partitions = planned(table, columns="")
    sizes = [[batch.num_rows for batch in reader.read(one)] for one in partitions]
    assert sizes == [[4, 4, 4, 3], [4, 4, 4, 3], [4, 4]]


@pytest.mark.spec("FRG-42")
def test_predicates_on_metadata_columns_rule_fragments_out(table: txlog.Table) -> None:
    first, second, *_ = table.fragments()
    names = ",".join(["x", *METADATA])
    last = (second.id << 32) + 9
    for where in (f"_fragid > {second.id}", f"_rowaddr > {last}", f"_rowid > {last}"):
        reader, partitions = planned(table, where=where, columns=names)
        assert len(partitions) == 2
        assert {row["_fragid"] for row in read(reader, partitions)}.isdisjoint(
            {first.id, second.id}
        )
    _, partitions = planned(table, where=f"_fragid IN ({first.id}, {second.id})", columns=names)
    assert [one.fragments for one in partitions] == [(first.value,), (second.value,)]
    with pytest.raises(txlog.UnsupportedFeatureError, match="rowTracking"):
        planned(table, columns="_row_last_updated_at_version")


@pytest.mark.parametrize(
    ("option", "value"),
    [("limit", "-1"), ("limit", "many"), ("maxPartitionBytes", "0"), ("maxPartitionBytes", "1x")],
)
def test_numbers_are_expected(table: txlog.Table, option: str, value: str) -> None:
    with pytest.raises(txlog.InvalidInputError, match=option):
        planned(table, **{option: value})


@pytest.mark.spec("FRG-40")
def test_fragments_are_values_one_block_at_a_time(
    table: txlog.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    values_of = FragmentSequence._values

    def counting(sequence: FragmentSequence, places: Any) -> list[Fragment]:
        made.append(len(places))
        return values_of(sequence, places)

    monkeypatch.setattr(FragmentSequence, "_values", counting)
    monkeypatch.setattr("txlog.spark_ext.source.partitions._LEAST_BYTES", 12 << 20)
    expected = [one.value for one in table.fragments()]
    made.clear()
    with moved({"txlog.spark_ext.source.partitions:_AT_ONCE": 2}):
        source = TxlogDataSource({"path": table.uri})
        partitions = source.reader(source.schema()).partitions()
        assert made == []  # The driver of millions of files would need gigabytes for the values.
        sent = [pickle.dumps(one) for one in partitions]
    assert made == [2, 2]
    found = [pickle.loads(one).fragments for one in sent]
    assert [len(one) for one in found] == [2, 2]
    assert [fragment for one in found for fragment in one] == expected


def test_bytes_of_fragments_are_those_of_all_their_files(table: txlog.Table) -> None:
    table.alter.add_features("txlog.fragments")
    table.alter.add_columns({"score": "x * 2"})
    table.append(pa.table({"x": [40], "text": ["t"], "score": [80]}))
    table.alter.add_columns({"more": "x * 3"})
    fragments = table.fragments()
    sizes = [sum(file.size for file in one.files) for one in fragments]
    assert len({len(one.files) for one in fragments}) > 1
    assert FragmentSequence.file_bytes(table.scan().plan.fragments).tolist() == sizes


# With Spark ----------------------------------------------------------------------------------


def load(spark: "SparkSession", table: txlog.Table, **options: str):
    return spark.read.format("txlog").options(**options).load(table.uri)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.spec("FRG-44")
def test_spark_counts_a_table_whose_files_are_gone(
    spark: "SparkSession", table: txlog.Table
) -> None:
    expected = table.count()
    delete_files(table, {0, 1, 2, 3})
    frame = load(spark, table, columns="")
    assert frame.columns == []
    assert frame.rdd.getNumPartitions() == 1
    assert frame.count() == expected == 38
    assert load(spark, table, columns="", where="x >= 20").count() == 20
    assert load(spark, table, columns="", where="x >= 2000").count() == 0


@pytest.mark.slow
@pytest.mark.spark
def test_spark_reads_metadata_columns(spark: "SparkSession", table: txlog.Table) -> None:
    frame = load(spark, table, columns=",".join(["x", *METADATA]))
    assert [(field.name, field.dataType.typeName()) for field in frame.schema] == [
        ("x", "long"), ("_rowid", "long"), ("_rowaddr", "long"), ("_fragid", "integer"),
    ]  # fmt: skip
    expected = [tuple(row.values()) for row in table.to_arrow(["x", *METADATA]).to_pylist()]
    assert sorted(map(tuple, frame.collect())) == sorted(expected)
    chosen = table.fragments()[2]
    delete_files(table, {0, 1, 3})
    names = ",".join(["x", *METADATA])
    found = load(spark, table, columns=names, where=f"_fragid = {chosen.id}").collect()
    assert sorted(row.x for row in found) == list(range(20, 30))
    found = load(spark, table, columns=names, where=f"_rowaddr = {chosen.id << 32 | 3}").collect()
    assert [row.x for row in found] == [23]
    with pytest.raises(Exception, match=r"invalid-input.*_fragid"):
        load(spark, table, columns="nope")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.spec("FRG-41", "FRG-43")
def test_spark_reads_parts_and_limits(spark: "SparkSession", table: txlog.Table) -> None:
    parts = load(spark, table, maxPartitionBytes="300")
    assert parts.rdd.getNumPartitions() > 8
    assert sorted(row.x for row in parts.collect()) == table.to_arrow()["x"].to_pylist()
    delete_files(table, {2, 3})
    head = load(spark, table, limit="12")
    assert head.rdd.getNumPartitions() == 2
    assert sorted(row.x for row in head.collect()) == [*range(10), 11, 12]
    assert head.where("x > 8").count() == 3
    assert load(spark, table, limit="3", where="x % 2 = 1").count() == 3


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.spec("FRG-17")
def test_spark_reads_added_columns(spark: "SparkSession", table: txlog.Table) -> None:
    table.alter.add_features("txlog.fragments")
    table.alter.add_columns({"score": "x * 2"})
    table.delete("score = 60")
    frame = load(spark, table, maxPartitionBytes="300")
    expected = [(x, f"t{x}", 2 * x) for x in range(40) if x not in (10, 17, 30)]
    assert sorted(map(tuple, frame.collect())) == expected
    assert frame.where("score > 70").count() == 4
