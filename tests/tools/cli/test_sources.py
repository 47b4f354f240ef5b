"""Sources of rows: a folder is the same rows for each call that reads it."""

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.store.open import open_store
from txlog.tools.cli.app import run
from txlog.tools.cli.sources import rows_of
from txlog.training import Datasets
from txlog.training.datasets.ingest import ingest
from txlog.training.datasets.limits import Limits
from txlog.training.datasets.sources import Sources
from txlog.training.datasets.types import type_of

Rows = list[dict[str, Any]]
LITTER = (
    "_SUCCESS",
    ".DS_Store",
    "._part.parquet",
    ".part.parquet.crc",
    "Thumbs.db",
    "~$a.parquet",
)
TYPES = {"a": pa.int64(), "b": pa.string(), "c": pa.float64()}


def by_command(folder: Path, _: Path) -> Rows:
    return (
        pa.RecordBatchReader.from_stream(rows_of(str(folder), pa.schema([]))).read_all().to_pylist()
    )


def by_dataset(folder: Path, work: Path) -> Rows:
    read = ingest(
        type_of("TABLE"),
        str(folder),
        sources=Sources(),
        limits=Limits(),
        store=open_store(str(work)),
    )
    return read.reader.read_all().to_pylist()


def by_convert(folder: Path, _: Path) -> Rows:
    return txlog.convert_to_delta(str(folder)).to_arrow().to_pylist()


DOORS: list[Callable[[Path, Path], Rows]] = [by_command, by_dataset, by_convert]


@st.composite
def folders(draw: st.DrawFn) -> tuple[dict[str, pa.Table], list[str], Rows]:
    """Return files with rows, files of litter, and the rows that are expected."""
    keys = draw(st.sampled_from([(), ("day",), ("day", "place")]))
    values = {"day": ["2026-11-01", "2026-11-02"], "place": ["x y", "__HIVE_DEFAULT_PARTITION__"]}
    files, rows, litter = {}, [], []
    for number in range(draw(st.integers(1, 4))):
        where = {key: draw(st.sampled_from(values[key])) for key in keys}
        folder = "".join(f"{key}={value}/" for key, value in where.items())
        names = draw(st.permutations(sorted(TYPES)))[: draw(st.integers(1, 3))]
        count = draw(st.integers(0, 2))
        table = pa.table(
            {n: pa.array([number] * count).cast(pa.string()).cast(TYPES[n]) for n in names}
        )
        files[f"{folder}part-{number}.parquet"] = table
        read = {key: None if value.startswith("__") else value for key, value in where.items()}
        rows += [{**row, **read} for row in table.to_pylist()]
        litter += [folder + name for name in draw(st.sets(st.sampled_from(LITTER)))]
    names = sorted({name for table in files.values() for name in table.schema.names})
    return files, litter, [{name: row.get(name) for name in (*names, *keys)} for row in rows]


def plain(rows: Rows) -> list[list[tuple[str, str]]]:
    """Return rows without their order and that of their columns."""
    return sorted(sorted((name, str(value)) for name, value in row.items()) for row in rows)


@settings(max_examples=examples(60), deadline=None)
@given(folders())
def test_a_folder_is_the_same_rows_for_each_reader(
    made: tuple[dict[str, pa.Table], list[str], Rows],
) -> None:
    files, litter, expected = made
    with TemporaryDirectory() as place:
        folder = Path(place) / "in"
        for name, table in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(table, folder / name)
        for name in litter:
            (folder / name).write_bytes(b"litter")
        for door in DOORS:
            assert plain(door(folder, Path(place) / "work")) == plain(expected), door.__name__


def a_table(folder: Path) -> None:
    txlog.write(folder, pa.table({"n": [1, 2]})).delete("n = 1")


@pytest.mark.parametrize("door", DOORS[:2])
def test_a_table_is_read_by_its_log_whatever_its_name(door: Any, tmp_path: Path) -> None:
    a_table(tmp_path / "src.parquet")
    assert door(tmp_path / "src.parquet", tmp_path / "work") == [{"n": 2}]


@pytest.mark.parametrize("door", DOORS)
def test_folders_of_which_only_a_log_knows_the_rows_are_refused(door: Any, tmp_path: Path) -> None:
    a_table(tmp_path / "in" / "sub")
    with pytest.raises(txlog.InvalidInputError, match="is a table"):
        door(tmp_path / "in", tmp_path / "work")


@pytest.mark.parametrize("door", DOORS[:2])
def test_a_folder_of_a_table_is_refused(door: Any, tmp_path: Path) -> None:
    rows = pa.table({"n": [1, 2], "p": ["x", "x"]})
    txlog.write(tmp_path / "t", rows, partition_by=["p"]).delete("n = 1")
    with pytest.raises(txlog.InvalidInputError, match="belongs to"):
        door(tmp_path / "t" / "p=x", tmp_path / "work")


REFUSED: list[tuple[str, dict[str, pa.Table]]] = [
    ("a is string in y.parquet, and int64 in x.parquet", {
        "x.parquet": pa.table({"a": [1]}), "y.parquet": pa.table({"a": ["1"]})
    }),
    ("names that differ only in case", {"x.parquet": pa.table({"a": [1], "A": [2]})}),
    ("is also a partition column", {"k=1/x.parquet": pa.table({"k": [1]})}),
    ("have the partition columns", {
        "k=1/x.parquet": pa.table({"a": [1]}), "x.parquet": pa.table({"a": [1]})
    }),
]  # fmt: skip


@pytest.mark.parametrize("door", DOORS[:2])
@pytest.mark.parametrize(("words", "files"), REFUSED)
def test_columns_that_do_not_fit_are_refused(
    door: Any, words: str, files: dict[str, pa.Table], tmp_path: Path
) -> None:
    for name, table in files.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, tmp_path / "in" / name)
    with pytest.raises(txlog.InvalidInputError, match=words):
        door(tmp_path / "in", tmp_path / "work")


def test_forms_of_one_type_in_arrow_are_one_type(tmp_path: Path) -> None:
    nested = [{"t": ["a"]}]
    forms = [
        pa.table({"t": pa.array(["a"]), "m": pa.array([1], pa.timestamp("ms")), "l": [["a"]]}),
        pa.table(
            {"t": pa.array(["a"]).dictionary_encode(), "m": pa.array([1], pa.timestamp("us"))}
        ),
        pa.table({"t": pa.array(["a"], pa.large_string()), "l": pa.nulls(1), "n": nested}),
        pa.table({"n": pa.array(nested, pa.struct([("t", pa.large_list(pa.large_string()))]))}),
    ]
    for number, table in enumerate(forms):
        pq.write_table(table, tmp_path / f"{number}.parquet")
    rows = by_command(tmp_path, tmp_path)
    assert [row["t"] for row in rows] == ["a", "a", "a", None]
    assert [row["n"] for row in rows] == [None, None, *nested, *nested]


def test_folders_of_csv_take_the_types_of_the_table(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"n": ["x"], "k": ["y"], "v": [1.5]}))
    for key, text in (("1", "v,n\n1,7\n"), ("2", "n,v\n8,2.5\n")):
        (tmp_path / "in" / f"k={key}").mkdir(parents=True)
        (tmp_path / "in" / f"k={key}" / "a.csv").write_text(text)
    assert run(["append", table.uri, str(tmp_path / "in")]) == 0
    rows = table.refresh().to_arrow().sort_by("v").to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("7", "1", 1.0),
        ("x", "y", 1.5),
        ("8", "2", 2.5),
    ]


def test_folders_with_other_files_are_refused(tmp_path: Path, capsys: Any) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"n": [1]}))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("n\n1\n")
    for name, words in (("notes.txt", "the extension of notes.txt"), ("b.json", "two formats")):
        (tmp_path / "in" / name).write_text('{"n": 1}')
        assert run(["append", table.uri, str(tmp_path / "in")]) == 2
        assert words in capsys.readouterr().err
        (tmp_path / "in" / name).unlink()


def test_a_bad_value_far_behind_is_an_error_of_one_line(tmp_path: Path, capsys: Any) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"n": [1], "t": ["x"]}))
    (tmp_path / "a.csv").write_text("m,t\n" + f"1,{'x' * 50}\n" * 60_000 + "bad,x\n")
    call = ["append", table.uri, str(tmp_path / "a.csv"), "--merge-schema"]
    assert run(call) == 2
    assert "a.csv cannot be read" in capsys.readouterr().err
    assert table.refresh().version == 0


def test_files_and_folders_of_object_stores(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "x.parquet")
    store = open_store("memory://sources-of-rows")
    for name in ("in.parquet/k=1/x.parquet", "one.parquet"):
        with store.open_output(name) as file:
            file.write((tmp_path / "x.parquet").read_bytes())
    found = [
        rows_of(f"memory://sources-of-rows/{name}", pa.schema([])).read_all().to_pylist()
        for name in ("one.parquet", "in.parquet")
    ]
    assert found == [[{"n": 1}], [{"n": 1, "k": 1}]]
    with pytest.raises(txlog.NotFoundError):
        rows_of("memory://sources-of-rows/none.parquet", pa.schema([]))


def put(path: Path, rows: Any = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"a": [1]}) if rows is None else rows, path)


@pytest.mark.parametrize("door", DOORS)
def test_extensions_have_no_case_and_hidden_tables_are_left_out(door: Any, tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.parquet")
    put(tmp_path / "in" / "B.PARQUET")
    a_table(tmp_path / "in" / "_old" / "t")
    assert door(tmp_path / "in", tmp_path / "work") == [{"a": 1}] * 2


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("odd", ["2020-02-30", "0000-01-01"])
def test_folders_that_are_no_dates_are_texts(door: Any, odd: str, tmp_path: Path) -> None:
    for day in (odd, "2020-02-28"):
        put(tmp_path / "in" / f"d={day}" / "a.parquet")
    rows = door(tmp_path / "in", tmp_path / "work")
    assert sorted(row["d"] for row in rows) == sorted([odd, "2020-02-28"])


def test_a_folder_takes_the_types_of_the_data_set(tmp_path: Path) -> None:
    for key in ("01", "x", "11"):
        put(tmp_path / key / f"k={key}" / "a.parquet")
    (tmp_path / "both").mkdir()
    (tmp_path / "x" / "k=x").rename(tmp_path / "both" / "k=x")
    (tmp_path / "01" / "k=01").rename(tmp_path / "both" / "k=01")
    found = Datasets(tmp_path / "d").create("n", "TABLE", str(tmp_path / "both"))
    found.update(str(tmp_path / "11"))
    assert sorted(found.table().to_arrow()["k"].to_pylist()) == ["01", "11", "x"]


DAMAGED = {
    "a.orc": b"ORC" + b"x" * 100,
    "a.csv": b"a\n1,2\n",
    "a.json": b'{"a": 1}\n{"a": [}\n',
    "a.feather": b"FEA1" + b"x" * 20,
    "a.arrow": b"ARROW1",
    "a.parquet": b"PAR1",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(DAMAGED[name])
    for source in (tmp_path, tmp_path / name):
        with pytest.raises(txlog.InvalidInputError, match=f"{name} cannot be read"):
            rows_of(str(source), pa.schema([])).read_all()


@pytest.mark.parametrize("codec", ["snappy", "zstd", "gzip"])
def test_a_damaged_page_is_named(codec: str, tmp_path: Path) -> None:
    rows = pa.table({"a": ["abcabc" * 5, "zz"] * 5000})
    pq.write_table(rows, tmp_path / "a.parquet", compression=codec, use_dictionary=False)
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    data[30:200] = b"\xff" * 170
    (tmp_path / "a.parquet").write_bytes(data)
    table = txlog.write(tmp_path / "t", pa.table({"a": ["x"]}))
    with pytest.raises(txlog.TxlogError, match=r"a\.parquet"):
        table.append(rows_of(str(tmp_path / "a.parquet"), table.schema))
    assert table.refresh().version == 0


@pytest.mark.parametrize("door", DOORS)
def test_a_name_that_is_not_utf8_is_refused(door: Any, tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.parquet")
    try:
        (tmp_path / "in" / "a.parquet").rename(
            os.fsdecode(bytes(tmp_path / "in") + b"/\xff.parquet")
        )
    except OSError:
        pytest.skip("the file system has no such names")
    with pytest.raises(txlog.InvalidInputError) as caught:
        door(tmp_path / "in", tmp_path / "work")
    str(caught.value).encode()


def partitioned(place: Any) -> Any:
    rows = pa.table({"n": [1, 2], "p": ["x", "x"]})
    return txlog.write(place, rows, partition_by=["p"]).delete("n = 1")


@pytest.mark.parametrize("door", DOORS[:2])
def test_files_of_a_table_are_refused_by_each_name(door: Any, tmp_path: Path) -> None:
    partitioned(tmp_path / "t")
    (file, *_) = (tmp_path / "t" / "p=x").glob("*.parquet")
    (tmp_path / "to folder").symlink_to(tmp_path / "t" / "p=x")
    (tmp_path / "to file.parquet").symlink_to(file)
    for source in (file, tmp_path / "to folder", tmp_path / "to file.parquet"):
        with pytest.raises(txlog.InvalidInputError, match="belongs to"):
            door(source, tmp_path / "work")


@pytest.mark.parametrize("door", DOORS[:2])
def test_files_of_a_table_in_a_store_of_objects_are_refused(door: Any, tmp_path: Path) -> None:
    place = f"memory://sources/{tmp_path.name}"
    partitioned(f"{place}/t")
    name = next(f.name for f in open_store(f"{place}/t").list_tree("p=x") if f.size)

    for source in (f"{place}/t/p=x", f"{place}/t/p=x/{name}"):
        with pytest.raises(txlog.InvalidInputError, match="belongs to"):
            door(source, tmp_path / "work")


@pytest.mark.parametrize("door", DOORS[:2])
@pytest.mark.parametrize("left", ["nothing", "checksums"])
def test_a_log_without_a_commit_is_no_folder_of_files(door: Any, left: str, tmp_path: Path) -> None:
    a_table(tmp_path / "t")
    for path in (tmp_path / "t" / "_delta_log").iterdir():
        if left == "nothing" or path.suffix == ".json":
            path.unlink()
    with pytest.raises(txlog.TxlogError, match=r"log|belongs to"):
        door(tmp_path / "t", tmp_path / "work")


def test_no_table_is_made_of_files_whose_log_lost_its_commits(tmp_path: Path) -> None:
    a_table(tmp_path / "t")
    log = tmp_path / "t" / "_delta_log"
    (log / ".0.json.tmp").write_text("{}")  # A writer that died leaves such a file.
    (log / f"{0:020}.crc").write_text("{}")
    for path in log.glob("*.json"):
        path.unlink()
    with pytest.raises(txlog.InvalidInputError, match="log without a commit"):
        txlog.convert_to_delta(tmp_path / "t")
    for path in log.glob("*.crc"):
        path.unlink()
    assert txlog.convert_to_delta(tmp_path / "t").version == 0


def test_a_value_of_a_folder_that_does_not_fit_names_no_log(tmp_path: Path) -> None:
    put(tmp_path / "in" / "k=x" / "a.parquet")
    with pytest.raises(txlog.InvalidInputError, match=r"'x'.*not of type") as caught:
        rows_of(str(tmp_path / "in"), pa.schema([("k", pa.int64())]))
    assert "log" not in str(caught.value).replace(str(tmp_path), "")


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", ["file", "folder", "partition"])
def test_links_below_a_folder_are_named(door: Any, kind: str, tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.parquet")
    put(tmp_path / "far" / "b.parquet")
    name = {"file": "b.parquet", "folder": "b", "partition": "_p=1"}[kind]
    target = tmp_path / "far" / "b.parquet" if kind == "file" else tmp_path / "far"
    (tmp_path / "in" / name).symlink_to(target)
    with pytest.raises(txlog.InvalidInputError, match=f"{name}.* is a symbolic link"):
        door(tmp_path / "in", tmp_path / "work")


@pytest.mark.parametrize("door", [by_command, by_convert])
def test_links_that_are_hidden_are_left_out(door: Any, tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.parquet")
    put(tmp_path / "far" / "b.parquet")
    for name in ("_b.parquet", ".c", "_SUCCESS"):
        (tmp_path / "in" / name).symlink_to(tmp_path / "far" / "b.parquet")
    (tmp_path / "in" / "_d").symlink_to(tmp_path / "far")
    assert door(tmp_path / "in", tmp_path / "work") == [{"a": 1}]
