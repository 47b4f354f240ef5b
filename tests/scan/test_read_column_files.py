"""Fragments of several files, made by hand: read, pruned, and refused where they break a rule."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

import txlog
from tests.examples import examples
from txlog.fragments.deletion_vector import encode_vector, inline_descriptor

FEATURES = ["deletionVectors", "txlog.fragments"]
KINDS = {"x": "long", "y": "string", "z": "double"}


def schema_text() -> str:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in KINDS.items()
    ]
    return json.dumps({"type": "struct", "fields": fields})


def commit(root: Path, version: int, *actions: dict[str, Any]) -> None:
    path = root / "_delta_log" / f"{version:020d}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(action) for action in actions))


def made(root: Path, *adds: dict[str, Any], features: list[str] = FEATURES) -> txlog.Table:
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": features,
    }
    metadata = {
        "id": "m",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema_text(),
        "partitionColumns": [],
        "configuration": {"delta.enableDeletionVectors": "true"},
    }
    commit(root, 0, {"protocol": protocol}, {"metaData": metadata}, *({"add": a} for a in adds))
    return txlog.Table(root)


def file(
    root: Path,
    name: str,
    data: pa.Table,
    *,
    fragment: int = 0,
    gives: bool = False,
    row_group_size: int | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Write a data file, and return its `add`."""
    root.mkdir(parents=True, exist_ok=True)
    pq.write_table(data, root / name, row_group_size=row_group_size)
    tags = {"txlog.fragmentId": str(fragment)}
    if gives:
        tags["txlog.fields"] = json.dumps(data.column_names)
    stats: dict[str, Any] = {"numRecords": len(data), "minValues": {}, "maxValues": {}}
    for column in data.column_names:
        bounds = pc.min_max(data[column]).as_py()
        if bounds["min"] is not None:
            stats["minValues"][column], stats["maxValues"][column] = bounds.values()
    return {
        "path": name,
        "partitionValues": {},
        "size": (root / name).stat().st_size,
        "modificationTime": 0,
        "dataChange": True,
        "stats": json.dumps(stats),
        "tags": tags,
        **more,
    }


def vector(positions: set[int]) -> dict[str, Any]:
    data = encode_vector(BitMap64(positions))
    return inline_descriptor(data, len(positions)).to_json()


rows = st.lists(
    st.tuples(
        st.integers(-20, 20),
        st.none() | st.sampled_from(["", "a", "b", "é"]),
        st.none() | st.floats(-5, 5),
    ),
    min_size=1,
    max_size=60,
)
tables = st.lists(
    st.tuples(rows, st.integers(1, 20), st.integers(1, 20), st.integers(1, 20), st.randoms()),
    min_size=1,
    max_size=3,
)


@pytest.mark.spec("FRG-17", "FRG-18")
@settings(max_examples=examples(60))
@given(
    tables,
    st.sampled_from(
        [None, "x > 3", "z < 0", "y = 'a'", "x > 0 AND z > 0", "x > 5 OR y = 'b'", "z IS NULL"]
    ),
    st.sampled_from([None, ["z"], ["y", "x"], ["z", "_rowaddr"], ["_rowaddr"], []]),
)
def test_files_side_by_side(found: Any, where: str | None, columns: list[str] | None) -> None:
    """The same rows as a table of one file for each fragment, whatever the row groups are."""
    with tempfile.TemporaryDirectory() as folder:
        adds, plain = [], []
        for number, (values, first, second, third, chance) in enumerate(found):
            data = pa.table(
                {
                    "x": pa.array([row[0] for row in values], pa.int64()),
                    "y": pa.array([row[1] for row in values], pa.string()),
                    "z": pa.array([row[2] for row in values], pa.float64()),
                }
            )
            gone = {at for at in range(len(data)) if chance.random() < 0.3}
            gone -= {chance.randrange(len(data))}  # A fragment always keeps a row.
            # What the primary has of a column that another file gives counts for nothing.
            old = data.select(["x"]).append_column("z", pa.array([99.0] * len(data)))
            more = {"deletionVector": vector(gone)} if gone else {}
            for part, gives, size, extra in (
                (old, False, first, more),
                (data.select(["y"]), True, second, {}),
                (data.select(["z"]), True, third, {}),
            ):
                name = f"{number}-{'-'.join(part.column_names)}.parquet"
                add = file(
                    Path(folder), name, part, fragment=number, gives=gives,
                    row_group_size=size, **extra,
                )  # fmt: skip
                adds.append(add)
            kept = [at for at in range(len(data)) if at not in gone]
            addresses = pa.array([(number << 32) + at for at in kept], pa.int64())
            plain.append(data.take(kept).append_column("_rowaddr", addresses))
        adds.sort(key=lambda add: str(add["path"])[::-1])  # The order of adds has no meaning.
        table = made(Path(folder), *adds)
        everything = pa.concat_tables(plain)
        txlog.write("memory://side-by-side", everything.rename_columns([*KINDS, "a"]),
                    mode="overwrite", schema_mode="overwrite")  # fmt: skip
        names = columns if columns is not None else list(KINDS)
        expected = txlog.Table("memory://side-by-side").to_arrow(
            [{"_rowaddr": "a"}.get(name, name) for name in names], where
        )
        scanned = table.to_arrow(columns, where)
        assert scanned.num_rows == table.count(where) == expected.num_rows
        for name, column in zip(names, expected.columns, strict=True):
            assert scanned[name].to_pylist() == column.to_pylist()
        assert table.count() == everything.num_rows
        picked = everything["_rowaddr"].to_pylist()[::-2]
        taken = table.take(addresses=picked, columns=["z", "x"])
        places = [everything["_rowaddr"].to_pylist().index(address) for address in picked]
        assert taken.to_pydict() == everything.select(["z", "x"]).take(places).to_pydict()


def base(root: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    primary = file(root, "p.parquet", pa.table({"x": [1, 2, 3]}))
    given = file(root, "c.parquet", pa.table({"y": ["a", "b", "c"]}), gives=True)
    return primary, given


@pytest.mark.spec("FRG-17")
def test_only_the_files_of_needed_columns_are_opened(tmp_path: Path) -> None:
    table = made(tmp_path, *base(tmp_path))
    assert table.to_arrow().to_pydict() == {
        "x": [1, 2, 3], "y": ["a", "b", "c"], "z": [None] * 3
    }  # fmt: skip
    (tmp_path / "p.parquet").rename(tmp_path / "hidden")
    assert table.to_arrow(["y", "_rowaddr"])["y"].to_pylist() == ["a", "b", "c"]
    both = [str(tmp_path / name) for name in ("c.parquet", "p.parquet")]
    assert sorted(table.scan(["y"]).file_uris()) == sorted(table.scan().file_uris()) == both
    with pytest.raises(txlog.DataFileError, match=r"p\.parquet"):
        table.to_arrow(["x", "y"])
    (tmp_path / "hidden").rename(tmp_path / "p.parquet")
    (tmp_path / "c.parquet").unlink()
    assert table.to_arrow(["x"])["x"].to_pylist() == [1, 2, 3]
    with pytest.raises(txlog.DataFileError, match=r"c\.parquet"):
        table.to_arrow()


@pytest.mark.spec("FRG-18")
def test_statistics_come_from_the_file_that_gives_the_column(tmp_path: Path) -> None:
    primary = file(tmp_path, "p.parquet", pa.table({"x": [0, 1], "y": ["a", "b"]}))
    given = file(tmp_path, "c.parquet", pa.table({"x": [7, 8]}), gives=True)
    other = file(tmp_path, "q.parquet", pa.table({"x": [5], "y": ["c"]}), fragment=1)
    table = made(tmp_path, primary, given, other)
    scan = table.scan(where="x > 6")
    assert [fragment.id for fragment in scan.fragments()] == [0]
    assert scan.to_arrow()["y"].to_pylist() == ["a", "b"]
    assert [fragment.id for fragment in table.scan(where="x < 6").fragments()] == [1]


# What is wrong with `f`, the adds of a primary and of a column file.
FAULTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no id": (lambda f: f[1]["tags"].pop("txlog.fragmentId"), "no valid fragment id"),
    "no primary": (lambda f: f[1]["tags"].update({"txlog.fragmentId": "7"}), "does not exist"),
    "two primaries": (lambda f: f[1]["tags"].pop("txlog.fields"), "also the primary of fragment 0"),
    "own deletions": (lambda f: f[1].update(deletionVector=vector({0})), "its own deletions"),
    "no list": (lambda f: f[1]["tags"].update({"txlog.fields": "y"}), "JSON array"),
    "empty list": (lambda f: f[1]["tags"].update({"txlog.fields": "[]"}), "JSON array"),
    "no names": (lambda f: f[1]["tags"].update({"txlog.fields": "[1]"}), "JSON array"),
    "a name twice": (lambda f: f[1]["tags"].update({"txlog.fields": '["y","y"]'}), "distinct"),
    "another count": (lambda f: f[1].update(stats='{"numRecords":2}'), "2 rows"),
    "no count": (lambda f: f[1].update(stats=None), "None rows"),
    "no count in the primary": (lambda f: f[0].update(stats=None), "None"),
    "another base id": (
        lambda f: (f[0].update(baseRowId=0), f[1].update(baseRowId=5)), "baseRowId",
    ),
}  # fmt: skip


@pytest.mark.spec("FRG-15", "FRG-16")
@pytest.mark.parametrize("name", FAULTS)
def test_a_fragment_that_breaks_a_rule_is_refused(tmp_path: Path, name: str) -> None:
    primary, given = base(tmp_path)
    change, reason = FAULTS[name]
    change((primary, given))
    table = made(tmp_path, primary, given)
    with pytest.raises(txlog.LogCorruptError, match=reason) as raised:
        table.to_arrow()
    assert str(raised.value.path).endswith("parquet")


@pytest.mark.spec("FRG-15")
def test_two_files_that_give_one_column_are_refused(tmp_path: Path) -> None:
    primary, given = base(tmp_path)
    again = file(tmp_path, "d.parquet", pa.table({"z": [0.0] * 3, "y": ["d"] * 3}), gives=True)
    with pytest.raises(txlog.LogCorruptError, match="contains column y"):
        made(tmp_path, primary, given, again).count("y = 'a'")


@pytest.mark.spec("FRG-16")
@pytest.mark.parametrize("longer", ["p.parquet", "c.parquet"])
def test_a_file_of_another_length_than_the_log_says(tmp_path: Path, longer: str) -> None:
    table = made(tmp_path, *base(tmp_path))
    column = "x" if longer == "p.parquet" else "y"
    values = table.to_arrow([column])[column].combine_chunks()
    pq.write_table(pa.table({column: pa.concat_arrays([values, values])}), tmp_path / longer)
    with pytest.raises(txlog.DataFileError, match=r"3 rows, but the file has 6") as raised:
        table.to_arrow()
    assert raised.value.path == longer


@pytest.mark.spec("FRG-14", "FRG-16")
def test_partitions_of_column_files(tmp_path: Path) -> None:
    primary, given = base(tmp_path)
    given["partitionValues"] = {"z": "1.0"}
    primary["partitionValues"] = {"z": "2.0"}
    made(tmp_path, primary, given)
    text = (tmp_path / "_delta_log" / f"{0:020d}.json").read_text()
    partitioned = text.replace('"partitionColumns": []', '"partitionColumns": ["z"]')
    (tmp_path / "_delta_log" / f"{0:020d}.json").write_text(partitioned)
    with pytest.raises(
        txlog.LogCorruptError, match=r"its z is 1\.0, but that of the primary file is 2"
    ):
        txlog.Table(tmp_path).to_arrow()


@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize("of_columns", [True, False])
def test_a_file_with_other_rows_than_the_log_says_is_an_error_of_txlog(
    tmp_path: Path, rows: int, of_columns: bool
) -> None:
    feature = {"delta.feature.txlog.fragments": "supported"}
    table = txlog.write(tmp_path / "t", pa.table({"v": [1, 2]}), properties=feature)
    table.alter.add_columns({"n": "v * 2"})
    for path in (tmp_path / "t").glob("*.parquet"):
        if ("n" in pq.read_schema(path).names) == of_columns:
            three = pa.concat_tables([pq.read_table(path)] * 2).slice(0, rows)
            pq.write_table(three, path)
    table = txlog.Table(tmp_path / "t")
    own = ["n"] if of_columns else ["v"]
    for read in (
        table.to_arrow,
        lambda: table.to_arrow(own),
        lambda: table.to_arrow(where="n > 2 AND v > 0"),
        lambda: table.take([1]),
        lambda: table.take([0], columns=own),
        lambda: table.head(1),
        lambda: table.scan(["v", "n"]).to_polars(),
        lambda: table.to_pyarrow_dataset().to_table(),
        lambda: table.delete("n > 2 AND v > 0"),
        lambda: table.alter.replace_columns({"n": "v + n"}),
        lambda: table.alter.add_columns({"m": "v + n"}),
        lambda: table.optimize.compact(max_column_files=0),
    ):
        with pytest.raises(txlog.DataFileError, match="the log says 2 rows, but the file has"):
            read()
