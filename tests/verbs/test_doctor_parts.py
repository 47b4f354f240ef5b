"""The log of a large table is read in parts, and the findings are those of all files at once."""

import json
import warnings
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.moved import moved

AT_ONCE = {"txlog.snapshot.live_files:_LARGE_BYTES": 1 << 40}
IN_PARTS = {
    "txlog.snapshot.live_files:_LARGE_BYTES": 0,
    "txlog.checkpoint.file_rows:_SMALL_BATCH_ROWS": 2,
    "txlog.checkpoint.file_rows:_MOST": 1,
}


def data(start: int, number: int = 12) -> pa.Table:
    ids = range(start, start + number)
    return pa.table({"id": ids, "p": [one % 3 for one in ids], "s": ["s" * 9] * number})


def without_statistics(table: txlog.Table, version: int) -> None:
    path = Path(table.uri) / "_delta_log" / f"{version:020}.json"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line.get("commitInfo", {}).pop("txlogCrc32", None)
        line.get("add", {}).pop("stats", None)
    path.write_text("\n".join(map(json.dumps, lines)))


def all_findings(
    table: txlog.Table, sample: int | None, looks: int, ways: dict[str, int]
) -> object:
    with moved(ways | {"txlog.verbs.doctor:_LOOKED_UP": looks}), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = txlog.Table(table.uri).doctor(sample=sample)
    return found.version, found.files, found.files_opened, list(found)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(
    draw=st.data(),
    partitioned=st.booleans(),
    sorts=st.booleans(),
    appends=st.integers(1, 4),
    sample=st.sampled_from([0, 1, 3, None]),
    looks=st.sampled_from([1, 2, 10_000]),
)
def test_findings_are_those_of_all_files_at_once(
    tmp_path_factory: pytest.TempPathFactory,
    draw: st.DataObject,
    partitioned: bool,
    sorts: bool,
    appends: int,
    sample: int | None,
    looks: int,
) -> None:
    root = tmp_path_factory.mktemp("t")
    parts = ["p"] if partitioned else None
    properties = {"txlog.sortBy": "id"} if sorts and not partitioned else None
    source = txlog.Table.create(
        root / "s", data(0).schema, partition_by=parts, properties=properties
    )
    source.append(data(1000))
    table = source.clone(root / "t", shallow=True) if draw.draw(st.booleans()) else source
    checkpoint = draw.draw(st.integers(0, appends))
    indexed = draw.draw(st.integers(0, 2 * appends))
    for number in range(appends):
        table.append(data(number * 7))
        if draw.draw(st.booleans()):
            without_statistics(table, table.version)
            table = txlog.Table(table.uri)
        if draw.draw(st.booleans()):
            table.delete(f"id = {number * 7 + draw.draw(st.integers(0, 3))}")
        if number == indexed:
            table.indexes.create("id", build=draw.draw(st.booleans()))
        if number == checkpoint:
            table.maintenance.checkpoint()
    folder = Path(table.uri)
    files = sorted(
        file for file in root.rglob("*") if file.suffix in (".parquet", ".bin")
        and "_delta_log" not in file.parts
    )  # fmt: skip
    for file in draw.draw(st.lists(st.sampled_from(files), max_size=6, unique=True)):
        if draw.draw(st.booleans()):
            file.unlink()
        else:
            file.write_bytes(file.read_bytes()[:-3])
    if draw.draw(st.booleans()):
        crc = folder / "_delta_log" / f"{table.version:020}.crc"
        crc.write_text('{"tableSizeBytes": 7, "numFiles": 2, "numMetadata": 1, "numProtocol": 1}')
    expected = all_findings(table, sample, looks, AT_ONCE)
    assert all_findings(table, sample, looks, IN_PARTS) == expected


def test_a_damaged_checkpoint_of_a_large_table_is_a_finding(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", data(0))
    table.maintenance.checkpoint()
    (log,) = (tmp_path / "t" / "_delta_log").glob("*.checkpoint*.parquet")
    version = txlog.Table(table.uri)
    for commit in (tmp_path / "t" / "_delta_log").glob("0*.json"):
        commit.unlink()
    log.write_bytes(log.read_bytes()[:40])
    with moved(IN_PARTS):
        assert [one.code for one in version.doctor()] == ["log-damaged"]
