"""Catalog-managed tables are read only by the catalog's answers."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

import txlog
from txlog import CatalogCommits
from txlog.base.errors import (
    InvalidInputError,
    LogCorruptError,
    NotFoundError,
    UnsupportedFeatureError,
)
from txlog.testing import unsealed

Make = Callable[..., txlog.Table]
UUID = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"


def commit(version: int) -> str:
    return f"{version:020d}.json"


def staged(version: int, uuid: str = UUID) -> str:
    return f"{version:020d}.{uuid}.json"


def values(table: txlog.Table) -> list[int]:
    return sorted(table.to_arrow()["a"].to_pylist())


def manage(log: Path, feature: str = "catalogManaged", *, version: int = 0) -> None:
    """Make a table catalog-managed from a version on."""
    path = log / commit(version)
    written = path.stat().st_mtime_ns
    lines = [orjson.loads(line) for line in unsealed(path.read_bytes()).splitlines()]
    lines = [line for line in lines if "protocol" not in line]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": [feature, "deletionVectors"],
        "writerFeatures": [feature, "deletionVectors", "inCommitTimestamp"],
    }
    path.write_bytes(b"\n".join(map(orjson.dumps, [*lines, {"protocol": protocol}])))
    os.utime(path, ns=(written, written))


def stage(log: Path, version: int, uuid: str = UUID) -> str:
    """Move a published commit to where only the catalog tells that it counts."""
    (log / "_staged_commits").mkdir(exist_ok=True)
    (log / commit(version)).rename(log / "_staged_commits" / staged(version, uuid))
    return staged(version, uuid)


@pytest.fixture
def table(make: Make, log: Path) -> Path:
    make(5)  # Versions 0 to 4; 3 and 4 are staged.
    manage(log)
    for version in (3, 4):
        stage(log, version)
    return log.parent


@pytest.mark.parametrize("feature", ["catalogManaged", "catalogOwned-preview"])
def test_without_its_catalog_it_is_refused(make: Make, log: Path, feature: str) -> None:
    make(3)
    manage(log, feature)
    with pytest.raises(UnsupportedFeatureError, match="catalog_commits") as caught:
        txlog.Table(log.parent)
    assert caught.value.features == (feature,)
    assert values(txlog.Table(log.parent, catalog_commits=CatalogCommits(2))) == [1, 2]


def test_staged_commits_count_as_far_as_the_catalog_names_them(table: Path) -> None:
    names = [staged(3), staged(4)]
    opened = txlog.Table(table, catalog_commits=CatalogCommits(4, names))
    assert (opened.version, values(opened)) == (4, [1, 2, 3, 4])
    assert [entry["version"] for entry in opened.history()] == [4, 3, 2, 1, 0]
    assert opened.timestamp_ms > 0
    again = pickle.loads(pickle.dumps(opened))
    assert values(again) == [1, 2, 3, 4]
    behind = txlog.Table(table, catalog_commits=CatalogCommits(3, names[:1]))
    assert (behind.version, values(behind)) == (3, [1, 2, 3])
    old = txlog.Table(table, version=1, catalog_commits=CatalogCommits(4, names))
    assert values(old) == [1]
    by_time = txlog.Table(
        table, timestamp=opened.timestamp_ms, catalog_commits=CatalogCommits(4, names)
    )
    assert by_time.version == 4


def test_sql_reads_other_versions_by_the_catalog_too(table: Path) -> None:
    pytest.importorskip("duckdb")
    opened = txlog.Table(table, catalog_commits=CatalogCommits(4, [staged(3), staged(4)]))
    query = "SELECT a FROM t VERSION AS OF 3 ORDER BY a"
    assert txlog.sql(query, {"t": opened})["a"].to_pylist() == [1, 2, 3]


def test_what_was_published_above_the_ratified_version_is_ignored(table: Path) -> None:
    assert values(txlog.Table(table, catalog_commits=CatalogCommits(1))) == [1]
    with pytest.raises(NotFoundError):
        txlog.Table(table, version=2, catalog_commits=CatalogCommits(1))


def test_the_catalogs_commit_counts_in_place_of_the_published_one(table: Path, log: Path) -> None:
    # Published wrongly, on purpose: the same content again, but for another row's file.
    (log / commit(3)).write_bytes((log / commit(2)).read_bytes())
    opened = txlog.Table(table, catalog_commits=CatalogCommits(4, [staged(3), staged(4)]))
    assert values(opened) == [1, 2, 3, 4]


def test_commits_that_the_catalog_keeps_itself(table: Path, log: Path) -> None:
    content = (log / "_staged_commits" / staged(4)).read_bytes()
    catalog = CatalogCommits(4, [staged(3)], inline={4: content})
    opened = txlog.Table(table, catalog_commits=catalog)
    assert values(opened) == [1, 2, 3, 4]
    assert str(content) not in repr(catalog)
    assert [entry["version"] for entry in opened.history(2)] == [4, 3]


def test_a_checkpoint_is_the_base_if_it_is_not_above(make: Make, log: Path) -> None:
    table = make(4)
    table.maintenance.checkpoint()
    table.append(pa.table({"a": pa.array([9], pa.int64())}))
    manage(log, version=4)
    for version in range(4):
        (log / commit(version)).unlink()
    name = stage(log, 4)
    opened = txlog.Table(log.parent, catalog_commits=CatalogCommits(4, [name]))
    assert values(opened) == [1, 2, 3, 9]
    # Before it was managed, the catalog has nothing to say.
    assert values(txlog.Table(log.parent, 3, catalog_commits=CatalogCommits(4, [name]))) == [
        1, 2, 3,
    ]  # fmt: skip


def test_only_the_catalog_knows_what_is_newer(table: Path) -> None:
    opened = txlog.Table(table, catalog_commits=CatalogCommits(3, [staged(3)]))
    for verb in (opened.refresh, lambda: opened.append({"a": [1]}), lambda: opened.delete(None)):
        with pytest.raises(UnsupportedFeatureError) as caught:
            verb()
        assert caught.value.features == ("catalogManaged",)


def test_a_gap_is_named(table: Path) -> None:
    with pytest.raises(LogCorruptError, match="ratified version 4"):
        txlog.Table(table, catalog_commits=CatalogCommits(4, [staged(3)]))
    with pytest.raises(LogCorruptError, match=commit(3)):
        txlog.Table(table, catalog_commits=CatalogCommits(4, [staged(4)]))
    with pytest.raises(LogCorruptError, match="published meanwhile"):
        txlog.Table(table, catalog_commits=CatalogCommits(3, [staged(3, "gone")]))


@pytest.mark.parametrize(
    "arguments",
    [
        (-1,),
        ("4",),
        (4, ["x.json"]),
        (4, [commit(4)]),
        (4, [7]),
        (4, ["../" + staged(4)]),
        (3, [staged(4)]),
        (4, [staged(4), staged(4, "other")]),
        (4, [staged(4)], {4: b"{}"}),
        (4, [], {5: b"{}"}),
    ],
)
def test_what_no_catalog_can_have_answered(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidInputError, match="answer of the table's catalog"):
        CatalogCommits(*arguments)


def test_a_table_without_a_catalog_is_not_opened_by_one(make: Make, log: Path) -> None:
    make(2)
    with pytest.raises(InvalidInputError, match="not catalog-managed"):
        txlog.Table(log.parent, catalog_commits=CatalogCommits(1))
