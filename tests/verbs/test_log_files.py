"""Version checksums and log compactions: verified by txlog, and read by others."""

import os
import warnings
from itertools import count
from pathlib import Path
from typing import Any

import deltalake
import orjson
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.reliability.cases import CASES, context_of, opened
from txlog.extend import context_of as context_of_table
from txlog.snapshot.load import list_log
from txlog.store.memory import MemoryStore
from txlog.verbs.log_files import write_checksum

ALL = {"txlog.writeChecksums": "true", "txlog.logCompactionInterval": "3"}
FEED = {"delta.enableChangeDataFeed": "true"}
TRACKED = {"delta.enableRowTracking": "true", "delta.enableInCommitTimestamps": "true"}
SHAPES: list[dict[str, str]] = [{}, FEED, TRACKED]


def xs(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


VERBS: dict[str, Any] = {
    "append": lambda table: table.append(xs(1, 2, 3), txn=("app", table.version)),
    "delete": lambda table: table.delete("x = 1"),
    "update": lambda table: table.update({"x": "x + 10"}, "x = 2"),
    "compact": lambda table: table.optimize.compact(),
    "property": lambda table: table.alter.set_properties({"mine": str(table.version)}),
    "overwrite": lambda table: table.overwrite(xs(7)),
    "restore": lambda table: table.restore(0),
    "checkpoint": lambda table: table.maintenance.checkpoint(),
}


def test_a_compaction_after_a_clean_up_is_of_what_is_left(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, xs(0), properties={"txlog.logCompactionInterval": "10"})
    for number in range(1, 15):
        table.append(xs(number))
    table.maintenance.checkpoint()
    for path in (tmp_path / "_delta_log").glob("*"):
        os.utime(path, (1_000_000, 1_000_000))
    table.append(xs(15))
    table.maintenance.expire(1, dry_run=False)
    assert not (tmp_path / "_delta_log" / f"{13:020d}.json").exists()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(16, 20):
            table.append(xs(number))
    name = f"{14:020d}.{19:020d}.compacted.json"
    assert name in {
        file.name for file in list_log(context_of_table(table).store) if file.kind == "compaction"
    }
    assert txlog.Table(tmp_path).count() == 20
    for number in range(20, 29):
        table.append(xs(number))
    (tmp_path / "_delta_log" / f"{25:020d}.json").write_bytes(b"{")
    with pytest.warns(txlog.TxlogWarning, match="could not be written"):  # It is damaged.
        table.append(xs(29))


NUMBERS = count()  # Of tables: each example has one of its own.


@pytest.mark.spec("MNT-40", "MNT-41")
@settings(max_examples=examples(25))
@given(st.lists(st.sampled_from(sorted(VERBS)), min_size=3, max_size=9), st.sampled_from(SHAPES))
def test_every_version_agrees_with_its_checksum(verbs: list[str], shape: dict[str, str]) -> None:
    uri = f"memory://log-files/{next(NUMBERS)}"
    table = txlog.write(uri, xs(1, 2), properties={**ALL, **shape}, mode="overwrite")
    before = [sorted(table.to_arrow()["x"].to_pylist())]
    for name in verbs:
        version = table.version
        VERBS[name](table)
        if table.version > version:
            before.append(sorted(table.to_arrow()["x"].to_pylist()))
    for version, rows in enumerate(before):
        then = txlog.Table(uri, version=version)
        report = then.maintenance.verify_checksum()
        assert report.found, str(report)
        assert report.ok, str(report)
        assert sorted(then.to_arrow()["x"].to_pylist()) == rows
    compactions = [n for n in names_of(table) if n.endswith(".compacted.json")]
    assert len(compactions) == len(before) // 3
    if "checkpoint" in verbs:
        return
    # Without the commits that compactions stand for, the latest version is the same.
    covered = 3 * len(compactions)
    gone = [f"_delta_log/{n:020d}.json" for n in range(covered) if n % 3 == 1]
    context_of_table(table).store.delete(gone)
    assert sorted(txlog.Table(uri).to_arrow()["x"].to_pylist()) == before[-1]


def names_of(table: txlog.Table) -> list[str]:
    return [file.name for file in list_log(context_of_table(table).store)]


@pytest.mark.spec("MNT-40")
def test_checkpoints_leave_checksums(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, xs(1, 2))
    assert not table.maintenance.verify_checksum().found
    table.maintenance.checkpoint()
    report = table.maintenance.verify_checksum()
    assert report.found
    assert report.ok
    assert {"metadata", "protocol", "numFiles", "setTransactions"} <= set(report.checked)
    table.append(xs(3))
    table.maintenance.write_checksum()
    assert table.maintenance.verify_checksum().ok
    assert deltalake.DeltaTable(tmp_path).to_pandas().shape == (3, 1)
    assert pl.read_delta(str(tmp_path)).height == 3


@pytest.mark.spec("MNT-40")
def test_checksums_of_others_go_on(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, xs(1, 2), properties=ALL)
    deltalake.write_deltalake(tmp_path, xs(3), mode="append")  # Leaves none.
    table.refresh().append(xs(4))
    assert table.maintenance.verify_checksum().ok
    table.delete("x = 4")
    report = table.maintenance.verify_checksum()
    assert report.found
    assert report.ok


@pytest.mark.spec("MNT-41")
def test_a_compaction_is_what_the_protocol_says(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, xs(1, 2), properties={"delta.enableDeletionVectors": "true"})
    table.delete("x = 1")
    table.append(xs(3), txn=("app", 1))
    table.append(xs(4), txn=("app", 2))
    path = table.maintenance.compact_log(1)
    lines = [orjson.loads(line) for line in (tmp_path / path).read_bytes().splitlines()]
    kinds = sorted(kind for line in lines for kind in line)
    assert kinds == ["add", "add", "add", "remove", "txn", "txn"]  # One of the fragment ids.
    assert {"txn": {"appId": "app", "version": 2}}["txn"].items() <= next(
        line["txn"].items() for line in lines if line.get("txn", {}).get("appId") == "app"
    )
    for version in (2, 3):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    assert sorted(txlog.Table(tmp_path).to_arrow()["x"].to_pylist()) == [2, 3, 4]
    for start, end in ((3, 3), (2, 9), (-1, 2)):
        with pytest.raises(txlog.InvalidInputError, match="version"):
            table.maintenance.compact_log(start, end)


@pytest.mark.spec("MNT-41")
def test_a_compaction_of_versions_that_were_cleaned_up_names_the_first_that_is_there(
    tmp_path: Path,
) -> None:
    table = txlog.write(tmp_path, xs(0))
    for number in range(1, 8):
        table.append(xs(number))
    table.maintenance.checkpoint()
    for version in range(5):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    for start, end, words in ((0, 7, "from 5"), (3, 6, "from 5"), (0, 4, "later"), (2, 5, "later")):
        with pytest.raises(txlog.NotFoundError, match=f"before version 5.*{words}"):
            table.maintenance.compact_log(start, end)
    assert table.maintenance.compact_log(5, 7)
    (tmp_path / "_delta_log" / f"{6:020d}.json").unlink()
    with pytest.raises(txlog.LogCorruptError):  # A gap is no clean-up.
        table.maintenance.compact_log(5, 7)


@pytest.mark.slow(cases=26)
@pytest.mark.spec("MNT-40")
# Only through its catalog could the table of the last one be given the property.
@pytest.mark.parametrize(
    "name", [n for n, case in CASES.items() if case.commits and not case.new and n != "let out"]
)
def test_every_verb_leaves_a_checksum_that_agrees(name: str) -> None:
    """The checksum before it is a base: the next one is computed from the commit."""
    case, store = CASES[name], MemoryStore(f"memory://checksums/{next(NUMBERS)}")
    case.make(context_of(store))
    opened(store).alter.set_properties({"txlog.writeChecksums": "true"})
    first = opened(store).version
    assert opened(store).maintenance.verify_checksum().found
    case.run(context_of(store, case.hours), opened(store, case.hours))
    latest = txlog.Table(store.root)
    assert latest.version > first
    write_checksum(store, latest.snapshot)  # Some verbs end the property.
    report = latest.maintenance.verify_checksum()
    assert report.found
    assert report.ok, str(report)
