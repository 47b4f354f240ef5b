"""The list of a table's branches."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from txlog.base.arrow import table_of_rows
from txlog.base.errors import NotFoundError
from txlog.snapshot.branches import Branch, registry_of
from txlog.snapshot.load import list_log
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store, map_many
from txlog.store.branches import BranchStore, require_main

BRANCHES = pa.schema(
    [
        pa.field("name", pa.string(), False),
        pa.field("id", pa.string(), False),
        pa.field("base_version", pa.int64(), False),
        pa.field("created_version", pa.int64(), False),
        pa.field("status", pa.string(), False),
        pa.field("published_version", pa.int64(), True),
        pa.field("version", pa.int64(), True),
    ]
)


def listed_branches(store: Store, snapshot: Snapshot) -> pa.Table:
    """Return the branches of a table, as `BRANCHES`, in the order of their names.

    The log of each open branch is listed.
    """
    require_main(store, "a list of branches")
    branches = sorted(registry_of(snapshot).branches, key=lambda one: (one.name, one.base_version))
    versions = map_many(store, partial(_last_version, store), branches)
    rows = [
        {
            "name": one.name,
            "id": one.id,
            "base_version": one.base_version,
            "created_version": one.created_version,
            "status": one.status,
            "published_version": one.published_version,
            "version": version,
        }
        for one, version in zip(branches, versions, strict=True)
    ]
    return table_of_rows(rows, BRANCHES)


def _last_version(store: Store, branch: Branch) -> int | None:
    """Return the version of the last commit of a branch; None if it is closed."""
    if not branch.is_open:
        return None
    view = BranchStore.of(store, branch.chain)
    try:
        found = list_log(view, since=branch.base_version + 1, briefly=True)
    except NotFoundError:
        found = []
    return max((one.last_version for one in found), default=branch.base_version)
