"""What concerns all files of a table makes no Python object for each of them."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import deltalake
import orjson
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import txlog

SCHEMA = {
    "type": "struct",
    "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}],
}
FEW, MANY = 100, 1100


def bulk_table(root: Path, files: int, *, checkpoint: bool) -> Path:
    """Write a table of many files in one commit, some of their paths encoded."""
    metadata = {
        "id": "5f9f1c1e-6b1f-4d53-9b7e-000000000001",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": orjson.dumps(SCHEMA).decode(),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": 0,
    }
    adds = [
        {
            "path": f"a%20b/part-{number:08}.parquet"
            if number % 3
            else f"part-{number:08}.parquet",
            "partitionValues": {},
            "size": 100 + number,
            "modificationTime": 1,
            "dataChange": True,
            "stats": orjson.dumps({"numRecords": number}).decode(),
        }
        for number in range(files)
    ]
    lines = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": metadata},
        *({"add": add} for add in adds),
    ]
    log = root / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_bytes(b"\n".join(map(orjson.dumps, lines)) + b"\n")
    if checkpoint:
        DeltaTable(root).create_checkpoint()
    return root


WORKS: dict[str, Callable[[txlog.Table], object]] = {
    "file_uris": lambda table: table.scan().file_uris(),
    "len of fragments": lambda table: len(table.fragments()),
    "one fragment": lambda table: table.fragments()[7].physical_rows,
    "a slice of fragments": lambda table: table.fragments()[10:-10:2][5].num_rows,
    "get_fragment": lambda table: table.fragments().of_id(1 << 30),
    "explain": lambda table: table.scan().explain().files_to_read,
    "count": lambda table: table.scan().count(),
    "Scan.file_uris": lambda table: table.scan(["x"]).file_uris(),
}


def calls_of(work: Callable[[], object]) -> int:
    """Return how many Python functions are called."""
    calls = 0

    def counted(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.slow
@pytest.mark.parametrize("log", ["commits", "checkpoint", "large checkpoint"])
@pytest.mark.parametrize("name", list(WORKS))
def test_no_call_for_each_file(
    tmp_path: Path, log: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if log == "large checkpoint":
        monkeypatch.setattr("txlog.snapshot.live_files._LARGE_BYTES", 0)
    roots = [
        bulk_table(tmp_path / str(files), files, checkpoint=log != "commits")
        for files in (FEW, MANY)
    ]
    WORKS[name](txlog.Table(roots[0]))  # What is loaded when it is first used.
    tables = [txlog.Table(root) for root in roots]
    few, many = (calls_of(lambda held=held: WORKS[name](held)) for held in tables)
    assert many - few < (MANY - FEW) / 10, (few, many)


def test_a_long_mixed_or_is_work_in_proportion(tmp_path: Path) -> None:
    """20,000 comparisons took 17 s: no step may be repeated for each of the others."""
    table = txlog.write(tmp_path, pa.table({"a": range(90), "b": [f"{n}" for n in range(90)]}))

    def where(parts: int) -> str:
        forms = ("(a = {0} AND b = '{0}')", "a > 50{0}", "a IN ({0}, 7) OR NOT b <= 'x{0}'")
        return " OR ".join(forms[part % 3].format(part) for part in range(parts))

    assert table.to_arrow(where=where(9))["a"].to_pylist() == [0, 2, 3, 5, 6, 7, 8]
    few, many = (calls_of(lambda n=n: table.to_arrow(where=where(n))) for n in (60, 240))
    assert 2 < many / few < 4.2, (few, many)


@pytest.mark.parametrize("log", ["commits", "checkpoint", "large checkpoint"])
def test_the_answers_are_those_of_deltalake(
    tmp_path: Path, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if log == "large checkpoint":
        monkeypatch.setattr("txlog.snapshot.live_files._LARGE_BYTES", 0)
    root = bulk_table(tmp_path, FEW, checkpoint=log != "commits")
    table, theirs = txlog.Table(root), deltalake.DeltaTable(root)
    uris = table.scan().file_uris()
    assert all(type(uri) is str for uri in uris)
    assert sorted(uris) == sorted(theirs.file_uris())
    assert table.count() == sum(range(FEW)) == theirs.count()
    fragments = table.fragments()
    assert [fragment.id for fragment in fragments] == list(range(1 << 30, (1 << 30) + FEW))
    adds = theirs.get_add_actions(flatten=True)
    rows = dict(
        zip(adds.column("path").to_pylist(), adds.column("num_records").to_pylist(), strict=True)
    )
    found = {fragment.files[0].path.replace("%20", " "): fragment for fragment in fragments}
    assert {path.replace("%20", " "): count for path, count in rows.items()} == {
        path: fragment.physical_rows for path, fragment in found.items()
    }
    some = fragments[3]
    assert some.metadata == txlog.Table(root).fragments()[3].metadata
    assert some.metadata.files[0].path == some.files[0].path
