"""The change data feeds of the corpus, compared with the tables' versions and with deltalake."""

import warnings
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from corpus import cases, require_corpus

import txlog

TABLES = [
    "delta_rs/cdc_ict_table", "delta_rs/cdf-table", "delta_rs/cdf-table-with-cdc-and-dvs",
    "delta_rs/checkpoint-cdf-table", "delta_rs/simple_table_with_cdc", "kernel_rs/cdf-table",
    "kernel_rs/cdf-column-mapping-name-mode", "kernel_rs/cdf-column-mapping-name-mode-3-7",
    "kernel_rs/cdf-table-partitioned", "kernel_rs/cdf-table-simple",
    "kernel_rs/cdf-table-delete-unconditional", "kernel_rs/cdf-table-backtick-column-names",
    "kernel_rs/cdf-table-with-cdc-and-dvs", "kernel_rs/compacted-log-files-table",
    "lake_pulse/delta_dataset_with_features",
]  # fmt: skip
# A commit that its maker wrote by hand: cdc files, without the adds and removes they tell of.
CHANGES_ALONE = {("kernel_rs/cdf-table-simple", 2)}
PATHS = {case.name: case.path for case in cases()}

# What deltalake 1.6.6 cannot read: percent signs in paths, column mapping, ranges of its own.
NOT_FOR_DELTALAKE = {
    "delta_rs/checkpoint-cdf-table", "kernel_rs/cdf-column-mapping-name-mode",
    "kernel_rs/cdf-column-mapping-name-mode-3-7", "kernel_rs/cdf-table-partitioned",
    "kernel_rs/cdf-table-simple", "kernel_rs/cdf-table-delete-unconditional",
    "kernel_rs/cdf-table-backtick-column-names",
}  # fmt: skip


def opened(name: str, version: int | None = None) -> txlog.Table:
    require_corpus()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", txlog.TxlogWarning)
        return txlog.Table(PATHS[name], version=version)


def rows(table: pa.Table, names: list[str]) -> Counter[str]:
    return Counter(map(str, table.select(names).to_pylist()))


def applied(before: Counter[str], changes: pa.Table, names: list[str]) -> Counter[str]:
    after = before.copy()
    for kinds, sign in ((["delete", "update_preimage"], -1), (["insert", "update_postimage"], 1)):
        chosen = changes.filter(pc.is_in(changes["_change_type"], pa.array(kinds)))
        for row, count in rows(chosen, names).items():
            after[row] += sign * count
    return +after


@pytest.mark.slow
@pytest.mark.spec("FED-7")
@pytest.mark.parametrize("name", TABLES)
def test_each_version_is_the_one_before_and_its_changes(name: str) -> None:
    told = 0
    for version in range(opened(name).version + 1):
        if (name, version) in CHANGES_ALONE:
            continue
        try:
            table = opened(name, version)
            changes = table.changes(version).to_arrow()
            earlier = opened(name, version - 1) if version else None
        except (txlog.NotFoundError, txlog.UnsupportedFeatureError):
            continue  # Cleaned up, or the feed was not enabled yet; some must remain.
        names = table.schema.names
        if earlier is not None and earlier.schema.names != names:
            continue
        before = Counter() if earlier is None else rows(earlier.to_arrow(), names)
        assert applied(before, changes, names) == rows(table.to_arrow(), names), version
        assert set(changes["_commit_version"].to_pylist()) <= {version}
        told += 1
    assert told, "no version had a feed"


@pytest.mark.parametrize("name", [name for name in TABLES if name not in NOT_FOR_DELTALAKE])
def test_deltalake_tells_the_same(name: str) -> None:
    deltalake: Any = pytest.importorskip("deltalake")
    ours = opened(name).changes().to_arrow()
    theirs = pa.table(deltalake.DeltaTable(str(PATHS[name])).load_cdf(0).read_all())
    names = [column for column in ours.column_names if column != "_commit_timestamp"]
    assert rows(ours, names) == rows(theirs.select(names), names)
