"""Files that polars reads at once: the rows of `to_arrow`, or its error, whatever is among them."""

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.scan import frames
from txlog.scan.plan import ScanPlan
from txlog.scan.polars_rules import Layout, Source, runs_of

ROWS = 5
SCHEMA = pa.schema(
    [("k", pa.int64()), ("s", pa.string()), ("u", pa.timestamp("us", "UTC")), ("p", pa.string())]
)


def rows_from(start: int, p: str | None) -> pa.Table:
    ks = range(start, start + ROWS)
    columns = [
        list(ks),
        [None if k % 3 == 0 else f"s{k}" for k in ks],
        [datetime(2020, 1, 1, tzinfo=UTC).replace(microsecond=k) for k in ks],
        [p] * ROWS,
    ]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


def with_columns(change: Callable[[pa.Table], pa.Table], **how: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        held = pq.ParquetFile(path).read()
        pq.write_table(change(held), path, **how)

    return write


def cast(held: pa.Table, name: str, kind: str) -> pa.Table:
    return held.set_column(held.column_names.index(name), name, held[name].cast(kind))


def unchanged(path: Path) -> None:
    assert path.exists()


def torn(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4:24] = b"\xff" * 20  # The footer stays as it was.
    path.write_bytes(data)


KINDS: dict[str, Callable[[Path], None]] = {
    "as written": unchanged,
    "row groups": with_columns(lambda held: held, row_group_size=2),
    "encoded otherwise": with_columns(lambda held: held, use_dictionary=False, store_schema=False),
    "reversed": with_columns(lambda held: held.select(held.column_names[::-1])),
    "large text": with_columns(lambda held: cast(held, "s", "large_string")),
    "another case": with_columns(
        lambda held: held.rename_columns([n.upper() for n in held.column_names])
    ),
    "one more column": with_columns(lambda held: held.append_column("z", held["k"])),
    "no text": with_columns(lambda held: held.drop_columns(["s"])),
    "narrower": with_columns(lambda held: cast(held, "k", "int32")),
    "INT96": with_columns(lambda held: held, use_deprecated_int96_timestamps=True),
    "empty": with_columns(lambda held: held.slice(0, 0)),
    "fewer": with_columns(lambda held: held.slice(0, 3)),
    "torn": torn,
    "gone": Path.unlink,
}
SOUND = [kind for kind in KINDS if kind not in ("empty", "fewer", "torn", "gone")]


def make(
    root: Path, files: list[tuple[str, str | None]], deleted: list[int], partition_by: list[str]
) -> txlog.Table:
    """Make a table of one file for each kind and value of `p`; rows are deleted before."""
    table = txlog.Table.create(
        root,
        SCHEMA,
        partition_by=partition_by,
        properties={"delta.enableDeletionVectors": "true"},
    )
    paths = []
    for at, (_, p) in enumerate(files):
        before = set(table.files()["path"].to_pylist())
        table.append(rows_from(at * ROWS, p))
        paths += [path for path in table.files()["path"].to_pylist() if path not in before]
    if deleted:
        table.delete(f"k in ({', '.join(map(str, deleted))})")
    for (kind, _), path in zip(files, paths, strict=True):
        KINDS[kind](root / path)
    return txlog.Table(root)


def outcome(read: Callable[[], pl.DataFrame]) -> tuple[Any, ...]:
    """Return what a read gives: rows and warnings, or an error."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            frame = read()
        except txlog.TxlogError as error:
            return type(error), str(error)
    return frame.schema, frame.rows(), sorted(str(one.message) for one in told)


def in_arrow(scan: txlog.Scan) -> pl.DataFrame:
    found = pl.from_arrow(scan.to_arrow())
    assert isinstance(found, pl.DataFrame)
    return found


def mixtures(kinds: list[str]) -> st.SearchStrategy[list[tuple[str, str | None]]]:
    one = st.tuples(st.sampled_from(kinds), st.sampled_from(["a", "a", "b", None]))
    return st.lists(one, min_size=1, max_size=6)


@settings(max_examples=examples(60))
@given(
    files=mixtures(SOUND) | mixtures(list(KINDS)),
    deleted=st.lists(st.integers(0, 6 * ROWS - 1), unique=True, max_size=12),
    partition_by=st.sampled_from([[], ["p"]]),
    columns=st.sampled_from([None, ["s", "k"], ["k"], ["u", "p"], ["p"]]),
    where=st.sampled_from(
        [None, "k > 3 and k < 21", "s = 's7' or p = 'a'", "p is null", "k + 1 > 9"]
    ),
    run_files=st.sampled_from([1, 2, 3, 128]),
)
def test_mixtures_give_the_rows_or_the_error_of_to_arrow(
    files: list[tuple[str, str | None]],
    deleted: list[int],
    partition_by: list[str],
    columns: list[str] | None,
    where: str | None,
    run_files: int,
) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "_RUN_FILES", run_files)
        scan = make(Path(folder, "t"), files, deleted, partition_by).scan(columns, where)
        assert outcome(scan.to_polars) == outcome(lambda: in_arrow(scan))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For each call of polars, how many files it reads."""
    counts: list[int] = []
    scan = pl.scan_parquet

    def counted(paths: list[str], **options: Any) -> pl.LazyFrame:
        counts.append(len(paths))
        return scan(paths, **options)

    monkeypatch.setattr(pl, "scan_parquet", counted)
    return counts


@pytest.mark.parametrize("deleted", [[], [0, 7, 12]])
@pytest.mark.parametrize("where", [None, "k > 1"])
def test_files_alike_are_read_at_once(
    tmp_path: Path, calls: list[int], deleted: list[int], where: str | None
) -> None:
    scan = make(tmp_path / "t", [("as written", "a")] * 4, deleted, []).scan(where=where)
    assert scan.to_polars().equals(in_arrow(scan))
    assert calls == [4]


def test_others_are_read_apart(tmp_path: Path, calls: list[int]) -> None:
    kinds = ["as written", "row groups", "no text", "no text", "INT96", "as written"]
    scan = make(tmp_path / "t", [(kind, "a") for kind in kinds], [3], []).scan()
    assert scan.to_polars().equals(in_arrow(scan))
    assert sorted(calls) == [1, 2, 2]


def test_files_that_differ_in_the_ids_of_their_columns_alone_are_read_apart(
    tmp_path: Path, calls: list[int]
) -> None:
    def file(name: str, *ids: int) -> dict[str, Any]:
        fields = [
            pa.field(column, pa.int64(), metadata={"PARQUET:field_id": str(number)})
            for column, number in zip("ab", ids, strict=True)
        ]
        pq.write_table(pa.table({"a": [1, 2], "b": [3, 4]}, pa.schema(fields)), tmp_path / name)
        size = (tmp_path / name).stat().st_size
        facts = {"size": size, "modificationTime": 0, "dataChange": True}
        return {"add": {"path": name, "partitionValues": {}, **facts}}

    columns = [
        {
            "name": name,
            "type": "long",
            "nullable": True,
            "metadata": {"delta.columnMapping.id": at, "delta.columnMapping.physicalName": name},
        }
        for at, name in enumerate("ab", start=1)
    ]
    metadata = {
        "id": "1",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": columns}),
        "partitionColumns": [],
        "configuration": {"delta.columnMapping.mode": "id"},
    }
    log = [
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        {"metaData": metadata},
        file("one", 1, 2),
        file("other", 2, 1),
    ]
    (tmp_path / "_delta_log").mkdir()
    path = tmp_path / "_delta_log" / f"{0:020d}.json"
    path.write_text("\n".join(map(json.dumps, log)), encoding="utf-8")
    scan = txlog.Table(tmp_path).scan()
    assert scan.to_polars().rows() == [(1, 3), (2, 4), (3, 1), (4, 2)]
    assert scan.to_polars().equals(in_arrow(scan))
    assert calls == [1, 1, 1, 1]


def test_of_a_run_that_fails_the_sound_files_are_read_by_polars(
    tmp_path: Path, calls: list[int]
) -> None:
    kinds = ["as written", "torn", "as written"]
    scan = make(tmp_path / "t", [(kind, "a") for kind in kinds], [], []).scan()
    assert outcome(scan.to_polars) == outcome(lambda: in_arrow(scan))
    assert calls[:3] == [3, 1, 1]


def test_partitions_are_read_apart_only_where_they_are_asked_for(
    tmp_path: Path, calls: list[int]
) -> None:
    table = make(tmp_path / "t", [("as written", p) for p in ("a", "a", "b")], [], ["p"])
    assert table.to_polars(["k"])["k"].to_list() == list(range(3 * ROWS))
    assert calls == [3]
    assert table.to_polars(["k", "p"])["p"].to_list() == ["a"] * 2 * ROWS + ["b"] * ROWS
    assert sorted(calls) == [1, 2, 3]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> ScanPlan:
    table = make(tmp_path_factory.mktemp("runs") / "t", [("as written", "a")], [], [])
    return table.scan().plan


@given(
    pattern=st.lists(st.sampled_from(["known", "other", "none", "long"]), max_size=12),
    files=st.integers(1, 4),
)
def test_runs_keep_the_order_and_their_limits(
    plan: ScanPlan, pattern: list[str], files: int
) -> None:
    fragment = plan.fragments[0]
    layout = Layout(SCHEMA, (), {"k": "k"}, ())
    held = {
        "known": Source(5, layout),
        "other": Source(5, replace(layout, physical=("INT32",))),
        "long": Source((1 << 31) - 8, replace(layout)),
        "none": None,
    }
    sources = [held[kind] for kind in pattern]
    runs = list(runs_of(plan.reading, [fragment] * len(sources), sources, files=files))
    assert [s for run in runs for s in run.sources or (None,)] == sources
    for run in runs:
        assert len(run.fragments) <= files
        assert len({source.layout.physical for source in run.sources}) <= 1
        assert len(run.sources) < 2 or sum(source.rows for source in run.sources) < 1 << 31
        assert [one for single in run.singles() for one in single.sources] == list(run.sources)
