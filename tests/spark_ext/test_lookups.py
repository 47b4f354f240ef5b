"""Look-ups on Spark's executors, compared with Spark's joins."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import txlog
from tests.lookup.test_indexes import PAGE, blocks_of, provenance_tables
from txlog import spark_ext
from txlog.base.errors import InvalidInputError
from txlog.scan.pages import load_paged
from txlog.store.open import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the three tables of a provenance database, indexed, with deleted rows.

    `c_in_d`: which directories a content is in; `d_in_r`: which revisions a directory is in;
    `c_in_r`: which revisions a content is in without such a directory.
    """
    draw = np.random.default_rng(11)
    root = tmp_path_factory.mktemp("provenance")
    columns = {"c_in_d": ("cnt", "dir"), "d_in_r": ("dir", "rev"), "c_in_r": ("cnt", "rev")}
    for name, (key, value) in columns.items():
        data = pa.table({key: draw.integers(0, 300, 2_000), value: draw.integers(0, 300, 2_000)})
        table = txlog.write(root / name, data.slice(0, 1_200), properties={"txlog.pageRows": "64"})
        table.indexes.create(key)
        table.append(data.slice(1_200).sort_by(key))
        table.delete(f"{value} % 10 = 3")
    return {name: str(root / name) for name in columns}


def rows_of(frame: "DataFrame") -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()), key=repr)


@pytest.mark.slow
@pytest.mark.spec("LKP-1")
@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_join_is_sparks_own(spark: "SparkSession", tables: dict[str, str], how: Any) -> None:
    keys = [
        (1, "a"),
        (1, "b"),
        (None, "c"),
        (7, "d"),
        (10_000, "e"),
        *((n, "f") for n in range(40)),
    ]
    frame = spark.createDataFrame(keys, "cnt int, note string").repartition(3)
    found = spark_ext.lookup_join(frame, tables["c_in_d"], on="cnt", how=how)
    own = spark_ext.read(spark, tables["c_in_d"])
    assert found.columns == ["cnt", "note", "dir"]
    assert rows_of(found) == rows_of(frame.join(own, "cnt", how).select("cnt", "note", "dir"))


@pytest.mark.slow
def test_a_column_of_the_name_of_the_numbers(spark: "SparkSession", tmp_path: Path) -> None:
    """A join adds it; a look-up refuses the name, which says two things."""
    txlog.write(tmp_path, pa.table({"k": [5, 1], "_key": ["x", "y"]}))
    frame = spark.createDataFrame([(1,), (5,)], "k long")
    assert rows_of(spark_ext.lookup_join(frame, tmp_path, on="k")) == [(1, "y"), (5, "x")]
    with pytest.raises(InvalidInputError, match="the table has a column _key"):
        spark_ext.lookup(spark, tmp_path, [1], on="k")
    assert rows_of(spark_ext.lookup(spark, tmp_path, [1], on="k", columns=["k"])) == [(1,)]


def provenance(spark: "SparkSession", tables: dict[str, str], contents: list[int]) -> "DataFrame":
    """Return in which revisions contents are: (A ⋈ B) ∪ C, by look-ups."""
    directories = spark_ext.lookup(spark, tables["c_in_d"], contents)
    through = spark_ext.lookup_join(directories, tables["d_in_r"], on="dir")
    without = spark_ext.lookup(spark, tables["c_in_r"], contents)
    return through.select("cnt", "rev").unionByName(without)


@pytest.mark.slow
def test_provenance(spark: "SparkSession", tables: dict[str, str]) -> None:
    contents = [5, 17, 250, 299, 5_000]
    found = provenance(spark, tables, contents)
    a, b, c = (spark_ext.read(spark, tables[name]) for name in ("c_in_d", "d_in_r", "c_in_r"))
    expected = a.join(b, "dir").select("cnt", "rev").unionByName(c)
    assert rows_of(found) == rows_of(expected.where("cnt in (5, 17, 250, 299, 5000)"))
    assert found.count() > 50


def test_rows_of_a_list(spark: "SparkSession", tables: dict[str, str]) -> None:
    table = txlog.Table(tables["c_in_d"])
    keys = [9, 8, 9, None, 4_000]
    for missing in ("skip", "null"):
        found = spark_ext.lookup(
            spark,
            tables["c_in_d"],
            keys,
            columns=["_key", "dir"],
            missing=missing,  # type: ignore[arg-type]
        )
        expected = table.lookup(keys, columns=["_key", "dir"], missing=missing)  # type: ignore[arg-type]
        rows = zip(*expected.to_pydict().values(), strict=True)
        assert rows_of(found) == sorted(rows, key=repr)
    old = spark_ext.lookup(spark, tables["c_in_d"], keys, on="cnt", version=0)
    then = txlog.Table(tables["c_in_d"], version=0).lookup(keys, on="cnt")
    assert old.count() == then.num_rows
    pairs = table.to_arrow().slice(5, 3)
    both = spark_ext.lookup(spark, tables["c_in_d"], pairs, on=["cnt", "dir"])
    assert both.count() == table.lookup(pairs, on=["cnt", "dir"]).num_rows


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"on": "other"}, "other"),
        ({"on": {"note": "cnt"}}, "they are not values of the column 'cnt'"),
        ({"on": {"none": "cnt"}}, "the frame has no column none"),
        ({"on": {"dir": "cnt"}}, "both the frame and the table have a column"),
        ({"on": "cnt", "how": "full"}, "not one of inner, left"),
        ({"on": "cnt", "columns": ["nothing"]}, "nothing"),
    ],
)
def test_bad_arguments_before_any_task(
    spark: "SparkSession", tables: dict[str, str], arguments: Any, reason: str
) -> None:
    frame = spark.createDataFrame([(1, "a", 2)], "cnt long, note string, dir long")
    with pytest.raises(InvalidInputError, match=reason):
        spark_ext.lookup_join(frame, tables["c_in_d"], **arguments)
    with pytest.raises(InvalidInputError, match="not one of skip, null"):
        spark_ext.lookup(spark, tables["c_in_d"], [1], missing="error")


def test_building_on_executors(spark: "SparkSession", tmp_path: Path) -> None:
    data = pa.table({"k": [5, 3, None, 9]})
    plain = txlog.write(tmp_path, data)
    for start in range(0, 40, 10):
        plain.append(pa.table({"k": range(start, start + 10)}))
    table = spark_ext.table(spark, str(tmp_path))
    table.indexes.create("k")
    (info,) = table.indexes.list().values()
    assert (info.files, info.files_covered, info.keys) == (5, 5, 43)
    assert txlog.Table(tmp_path).lookup_counts([5, 39, 40]).to_pylist() == [2, 1, 0]


@pytest.mark.slow
@pytest.mark.spec("LKP-12")
def test_what_spark_writes_is_indexed(spark: "SparkSession", tmp_path: Path) -> None:
    """Each task brings the runs of its files, with pages as the table wants them."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    table = txlog.Table.create(tmp_path, schema, properties={"txlog.pageRows": "64"})
    table.indexes.create("k")
    frame = spark.range(1_000).selectExpr("(id * 7) % 1000 as k", "concat('v', id) as v")
    frame.repartition(2).write.format("txlog").mode("append").save(str(tmp_path))
    (info,) = table.refresh().indexes.list().values()
    assert (info.files, info.files_covered, info.keys) == (2, 2, 1_000)
    assert table.lookup([7, 14, 5_000])["v"].to_pylist() == ["v1", "v2"]
    for file in table.scan().file_uris():
        paged = load_paged(open_store(tmp_path), file, Path(file).stat().st_size)
        assert paged is not None
        assert paged.read_rows(["k"], np.array([5])) is not None
        pages = paged.footer.pages(0, 0)
        assert pages is not None
        assert np.diff(pages.first_row).max() <= 64
    own = spark.read.format("txlog").load(str(tmp_path)).where("k in (7, 14)")
    assert sorted(rows_of(own)) == [(7, "v1"), (14, "v2")]


@pytest.mark.slow
def test_on_spark_connect(remote: Callable[..., Any], tables: dict[str, str]) -> None:
    def work(spark: Any, tables: dict[str, str]) -> Any:
        from txlog import spark_ext

        directories = spark_ext.lookup(spark, tables["c_in_d"], [5, 17])
        through = spark_ext.lookup_join(directories, tables["d_in_r"], on="dir", how="left")
        without = spark_ext.lookup(spark, tables["c_in_r"], [5, 17])
        found = through.select("cnt", "rev").unionByName(without)
        return sorted(map(repr, map(tuple, found.collect())))

    a, b, c = (txlog.Table(tables[name]) for name in ("c_in_d", "d_in_r", "c_in_r"))
    expected = []
    for row in a.lookup([5, 17]).to_pylist():
        partners = b.lookup([row["dir"]])["rev"].to_pylist() or [None]
        expected += [(row["cnt"], rev) for rev in partners]
    expected += [(row["cnt"], row["rev"]) for row in c.lookup([5, 17]).to_pylist()]
    assert remote(work, tables) == sorted(map(repr, expected))


@pytest.mark.slow
def test_the_lines_of_the_page_run(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    provenance_tables(tmp_path)
    names: dict[str, Any] = {"spark": spark}
    for block in blocks_of(PAGE):
        if block.startswith("# spark"):
            here = block.replace('"by_spark"', repr(str(tmp_path / "by_spark")))
            for name in ("contents_in_directories", "directories_in_revisions"):
                here = here.replace(f'"{name}"', repr(str(tmp_path / name)))
            here = here.replace(
                '"contents_in_revisions"', repr(str(tmp_path / "contents_in_revisions"))
            )
            exec(here, names)
    assert rows_of(names["revisions"]([17, 4])) == [(17, 10), (17, 11), (17, 30), (4, 20)]
    table = txlog.Table(tmp_path / "by_spark")
    table.indexes.create("id")
    assert table.indexes.list()["id"].forms == ("ordered",)


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["snappy", "zstd"])
def test_pages_of_files_of_spark(spark: "SparkSession", tmp_path: Path, codec: str) -> None:
    frame = spark.range(5_000).selectExpr(
        "id", "cast(id % 7 as int) as few", "if(id % 5 = 0, null, concat('t', id)) as text",
        "cast(id as decimal(20, 2)) as money", "id % 3 = 0 as truth", "array(id, id + 1) as list",
    )  # fmt: skip
    writer = frame.coalesce(1).write.option("parquet.page.row.count.limit", "100")
    writer.option("compression", codec).parquet(str(tmp_path / "t"))
    table = txlog.convert_to_delta(tmp_path / "t")
    everything = table.to_arrow()
    assert table.lookup([4_711, 3, 17], on="id").equals(everything.take([4_711, 3, 17]))
    asked = [0, 4_999, 2_500, 7]
    assert table.take(asked).equals(everything.take(asked))
    (file,) = table.scan().file_uris()
    paged = load_paged(open_store(tmp_path), file, Path(file).stat().st_size)
    assert paged is not None
    assert paged.read_rows(["id", "list", "text"], np.array([5, 3_000])) is not None


@pytest.mark.slow
def test_another_table_at_the_same_place_has_its_own_rows(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """Workers keep tables open, and both tables have the same version here."""
    for keys in ([1, 2], [3, 4]):
        shutil.rmtree(tmp_path / "t", ignore_errors=True)
        txlog.write(tmp_path / "t", pa.table({"id": keys, "name": [f"n{key}" for key in keys]}))
        frame = spark.createDataFrame([(key,) for key in keys], "id long").coalesce(1)
        found = spark_ext.lookup_join(frame, tmp_path / "t", on="id", how="left")
        assert rows_of(found) == [(key, f"n{key}") for key in keys]


@pytest.mark.slow
def test_a_join_that_was_made_before_reads_no_other_table(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """Executors open the table when the frame is computed."""
    root = tmp_path / "t"
    txlog.write(root, pa.table({"k": [1, 2], "v": ["old", "old"]}))
    asked = spark.createDataFrame([(1,)], "k long")
    joined = spark_ext.lookup_join(asked, str(root), on="k")
    shutil.rmtree(root)
    txlog.write(root, pa.table({"k": [1, 2], "v": ["new", "new"]}))
    with pytest.raises(Exception, match="another table replaced this one"):
        joined.collect()


@pytest.mark.spec("LKP-9")
def test_a_write_merges_many_segments(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"k": pa.array(range(9), pa.int64())}))
    table.indexes.create("k")
    table.append(pa.table({"k": pa.array([10], pa.int64())}))
    assert table.indexes.list()["k"].segments == 2
    monkeypatch.setattr("txlog.verbs.indexes.MOST_SEGMENTS", 2)
    spark_ext.write(spark.range(20, 30).withColumnRenamed("id", "k"), tmp_path / "t", mode="append")
    assert table.refresh().indexes.list()["k"].segments == 1
