"""Verbs succeed if capabilities allow them, and fail with the stated reason if not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

import txlog
from txlog.store.open import open_store
from txlog.testing import unsealed

DATA = pa.table({"a": pa.array([1, 2], pa.int64())})


LISTED = {"delta.enableDeletionVectors": "true"}


def remade(root: Path, writers: list[str], configuration: dict[str, str]) -> txlog.Table:
    """Return a table whose protocol lists features, as another writer would have made it."""
    txlog.Table.create(root, DATA.schema, properties=LISTED).append(DATA)
    path = root / "_delta_log" / f"{0:020d}.json"
    lines = [orjson.loads(line) for line in unsealed(path.read_bytes()).splitlines()]
    for line in lines:
        if "protocol" in line:
            line["protocol"]["writerFeatures"].extend(writers)
        if "metaData" in line:
            line["metaData"]["configuration"] |= configuration
    path.write_bytes(b"\n".join(map(orjson.dumps, lines)))
    return txlog.Table(root)


VERBS: dict[str, Callable[[txlog.Table], Any]] = {
    "scan": lambda table: table.to_arrow(),
    "lookup": lambda table: table.lookup([1], on="a"),
    "stable_row_ids": lambda table: table.to_arrow(["_row_last_updated_at_version"]),
    "changes": lambda table: table.changes(table.version),
    "refresh": lambda table: table.refresh(),
    "append": lambda table: table.append(DATA),
    "overwrite": lambda table: table.overwrite(DATA),
    "delete": lambda table: table.delete("a = 1"),
    "update": lambda table: table.update({"a": "a + 1"}, "a = 1"),
    "merge": lambda table: table.upsert(DATA, on="a"),
    "compact": lambda table: table.optimize.compact(),
    "z_order": lambda table: table.optimize.z_order("a"),
    "compute_statistics": lambda table: table.optimize.compute_statistics(recompute=True),
    "restore": lambda table: table.restore(0),
    "create_index": lambda table: table.indexes.create("a"),
    "add_columns": lambda table: table.alter.add_columns({"more": "a + 1"}),
    "replace_columns": lambda table: table.alter.replace_columns({"a": "a + 1"}),
    "drop_columns": lambda table: table.alter.drop_columns("a"),
    "clone": lambda table: table.clone(f"{table.uri}-clone"),
    "vacuum": lambda table: table.vacuum(dry_run=False),
    "expire": lambda table: table.maintenance.expire(dry_run=False),
    "checkpoint": lambda table: table.maintenance.checkpoint(),
}
COLUMNS = {"add_columns", "replace_columns", "drop_columns"}  # They need a feature of their own.
WRITING = {
    "append", "overwrite", "delete", "update", "merge", "compact", "z_order", "compute_statistics",
    "restore", "create_index", "vacuum", "expire", "checkpoint",
}  # fmt: skip
CASES: dict[str, tuple[list[str], dict[str, str], set[str], str]] = {
    # Features that are listed, properties, verbs that cannot be done, what stands in the way.
    "plain": ([], {}, set(), ""),
    "append-only": (["appendOnly"], {"delta.appendOnly": "true"},
                    {"overwrite", "delete", "update", "merge", "restore"}, "appendOnly"),
    "unknown": (["zebra"], {}, {*WRITING, "clone"}, "zebra"),
    "row ids": (["rowTracking", "domainMetadata"], {"delta.enableRowTracking": "true"},
                {"update", "merge", "compact", "z_order"}, "rowTracking"),
    "row ids without columns": (["rowTracking", "domainMetadata"],
                {"delta.enableRowTracking": "true", "delta.enableDeletionVectors": "false"},
                {"delete", "update", "merge", "compact", "z_order"},
                "rowTracking"),
    "a feed": (["changeDataFeed"], {"delta.enableChangeDataFeed": "true"}, set(), ""),
    "compatibility": (["icebergCompatV2"], {"delta.enableIcebergCompatV2": "true"},
                      {*WRITING, "clone"},
                      "icebergCompatV2"),
    "structs": ([], {"delta.checkpoint.writeStatsAsStruct": "true"}, set(), ""),
    "SQL": (["checkConstraints"], {"delta.constraints.x": "my_udf(a) > 0"},
            {"append", "overwrite", "update", "merge"}, ""),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_verbs_do_as_capabilities_say(tmp_path: Path, case: str) -> None:
    writers, configuration, denied, feature = CASES[case]
    has = {
        "stable_row_ids": "rowTracking" in writers,
        "changes": "changeDataFeed" in writers,
        **dict.fromkeys(COLUMNS, False),
    }
    found = remade(tmp_path / "t", writers, configuration).capabilities()
    assert list(found) == list(VERBS)
    for verb, capability in found.items():
        assert capability.verb == verb
        assert bool(capability) == has.get(verb, verb not in denied)
        table = remade(tmp_path / verb, writers, configuration)
        if verb == "stable_row_ids" and capability:
            continue  # Its files have no ids here.
        if capability:
            VERBS[verb](table)
            assert str(capability) == f"{verb}: yes"
            continue
        with pytest.raises(txlog.TxlogError) as caught:
            VERBS[verb](table)
        assert caught.value.reason == capability.reason or verb in (
            "append",
            "overwrite",
            "update",
            "merge",
        )
        assert capability.reason in str(capability)
        assert capability.remedy in str(capability)
        if verb in denied and feature:
            assert feature in capability.features or verb == "clone"  # Its reason names it.


def test_stores_that_cannot_be_written(tmp_path: Path) -> None:
    txlog.Table.create(tmp_path / "t", DATA.schema)
    table = txlog.Table(f"local://{tmp_path}/t")
    found = table.capabilities()
    assert {verb for verb, capability in found.items() if not capability} == {
        *WRITING, *COLUMNS, "changes", "stable_row_ids",
    }  # fmt: skip
    with pytest.raises(txlog.UnsupportedFeatureError):
        open_store(f"local://{tmp_path}/t").require_writable()


@pytest.mark.parametrize("append_only", [False, True])
def test_columns_in_files_of_their_own(tmp_path: Path, append_only: bool) -> None:
    properties = {
        "delta.feature.txlog.fragments": "supported",
        "delta.appendOnly": str(append_only).lower(),
    }
    table = txlog.write(tmp_path / "t", DATA, properties=properties)
    found = table.capabilities()
    denied = {"replace_columns"} if append_only else set()
    assert {verb for verb in COLUMNS if not found[verb]} == denied
    for verb in ("add_columns", "replace_columns", "drop_columns"):
        if verb not in denied:
            VERBS[verb](table)
