"""Deletions in Lance's form: written on request, read like others, refused where necessary."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from txlog.fragments.deletion_file import decode_deletions, parse_deletion_name

LANCE = {"txlog.deletionFormat": "lance"}
ROWS = 20_000


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    schema = pa.schema([("x", pa.int64())])
    table = txlog.Table.create(tmp_path / "t", schema, properties=LANCE)
    table.append(pa.table({"x": list(range(ROWS))}))
    return table


def deletions(table: txlog.Table) -> list[str]:
    folder = Path(table.uri) / "_deletions"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.mark.spec("FRG-12", "FRG-13")
def test_few_rows_are_an_array_and_many_a_bitmap(table: txlog.Table) -> None:
    assert {"txlog.fragments", "deletionVectors"} <= set(table.protocol.reader_features or ())
    table.delete("x < 10")
    (name,) = deletions(table)
    assert name.startswith("0-1-")
    assert name.endswith(".arrow")
    (fragment,) = table.fragments()
    assert fragment.deletion is not None
    said = parse_deletion_name(name)
    assert said is not None
    assert (fragment.deletion.file_type, fragment.deletion.read_version) == ("array", 1)
    assert fragment.deletion.id == said.id
    table.delete("x % 2 = 0")
    (name,) = [found for found in deletions(table) if found != name]
    assert name.startswith("0-2-")
    assert name.endswith(".bin")
    expected = [x for x in range(ROWS) if x >= 10 and x % 2]
    assert table.to_arrow()["x"].to_pylist() == expected
    assert table.count() == len(expected)
    assert txlog.Table(table.uri, version=2).count() == ROWS - 10
    data = (Path(table.uri) / "_deletions" / name).read_bytes()
    gone = decode_deletions(data, kind="bin", cardinality=None, rows=ROWS, path=name)
    assert len(gone) == ROWS - len(expected)


@pytest.mark.spec("FRG-13")
def test_other_engines_refuse_rather_than_show_deleted_rows(table: txlog.Table) -> None:
    table.delete("x < 10")
    deltalake: Any = pytest.importorskip("deltalake")
    with pytest.raises(Exception, match=r"txlog\.fragments"):
        deltalake.DeltaTable(table.uri).to_pyarrow_table()
    polars: Any = pytest.importorskip("polars")
    with pytest.raises(Exception, match=r"txlog\.fragments"):
        polars.scan_delta(table.uri).collect()


def rewrite(table: txlog.Table, change: Any) -> txlog.Table:
    for path in sorted((Path(table.uri) / "_delta_log").glob("*.json")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for line in lines:
            (line.get("commitInfo") or {}).pop("txlogCrc32", None)
            change(line)
        path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return txlog.Table(table.uri)


def without_feature(line: Any) -> None:
    for names in ("readerFeatures", "writerFeatures"):
        if "protocol" in line:
            line["protocol"][names].remove("txlog.fragments")


@pytest.mark.spec("FRG-13")
def test_the_form_needs_its_feature(table: txlog.Table) -> None:
    table.delete("x < 10")
    with pytest.raises(txlog.LogCorruptError, match=r"txlog\.fragments"):
        rewrite(table, without_feature).to_arrow()


@pytest.mark.spec("FRG-14")
@pytest.mark.parametrize("listed", [True, False])
def test_column_files_need_the_feature_and_a_fragment(table: txlog.Table, listed: bool) -> None:
    def as_column_file(line: Any) -> None:
        if "add" in line:
            line["add"]["tags"]["txlog.fields"] = '["y"]'
        if not listed:
            without_feature(line)

    reason = "a fragment that does not exist" if listed else r"txlog\.fragments"
    with pytest.raises(txlog.LogCorruptError, match=reason):
        rewrite(table, as_column_file).to_arrow()


@pytest.mark.spec("FRG-12")
@pytest.mark.parametrize("kind", ["gone", "torn", "renamed"])
def test_a_bad_deletion_file_is_named(table: txlog.Table, kind: str) -> None:
    table.delete("x < 10")
    (name,) = deletions(table)
    path = Path(table.uri) / "_deletions" / name
    if kind == "gone":
        path.unlink()
    elif kind == "torn":
        path.write_bytes(path.read_bytes()[:100])
    else:
        rewrite(table, lambda line: _rename(line, name))
        table = txlog.Table(table.uri)
    with pytest.raises(txlog.BadDeletionVectorError, match="_deletions/0-1-"):
        table.to_arrow()


def _rename(line: Any, name: str) -> None:
    vector = (line.get("add") or {}).get("deletionVector")
    if vector:
        vector["pathOrInlineDv"] = name.replace(".arrow", ".roaring")


def test_the_form_is_one_of_deletion_vectors(tmp_path: Path) -> None:
    schema = pa.schema([("x", pa.int64())])
    off = {**LANCE, "delta.enableDeletionVectors": "false"}
    with pytest.raises(txlog.InvalidInputError, match="deletion vectors"):
        txlog.Table.create(tmp_path / "t", schema, properties=off)
    with pytest.raises(txlog.InvalidInputError, match="delta or lance"):
        txlog.Table.create(tmp_path / "t", schema, properties={"txlog.deletionFormat": "x"})
    plain = txlog.Table.create(tmp_path / "t", schema)
    assert "txlog.fragments" not in (plain.protocol.reader_features or ())


def test_deletes_at_once_are_united_in_this_form_too(table: txlog.Table) -> None:
    late = txlog.Table(table.uri)
    seen = late.snapshot
    table.delete("x < 10")
    late._latest = lambda: seen  # type: ignore[method-assign]
    late.delete("x >= 19990")
    assert late.count() == ROWS - 20
    assert len(deletions(late)) == 2  # That of the lost attempt is gone.
