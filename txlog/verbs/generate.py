"""Manifests: lists of a version's files, for engines that read these lists instead of the log.

Source: Delta's documentation of `symlink_format_manifest`.
"""

from __future__ import annotations

import pyarrow as pa

from txlog.base.effects import is_rehearsing
from txlog.base.errors import InvalidInputError, UnsupportedFeatureError
from txlog.commit.context import Context
from txlog.commit.operation import require_table_writable
from txlog.fragments.ids import tag_texts
from txlog.fragments.rows import FIELDS_TAG
from txlog.scan.files import uris_of
from txlog.snapshot.live_files import load_files
from txlog.snapshot.snapshot import Snapshot
from txlog.snapshot.successor import require_in_place
from txlog.stats.partition import partition_folder
from txlog.store.branches import require_main

FOLDER = "_symlink_format_manifest"


def generate(context: Context, snapshot: Snapshot, mode: str) -> int:
    """Write the manifests of a version, one for each partition; return their number.

    Manifests of partitions that no longer exist are deleted.

    Raises
    ------
    InvalidInputError
        The mode is unknown.
    UnsupportedFeatureError
        A list of files does not describe the rows: there are deletion vectors, mapped column names
        or column files. Or a partition has no folder.
    CommitConflictError
        Another table took the place of this one.
    """
    if mode.lower() != "symlink_format_manifest":
        raise InvalidInputError(
            argument="mode",
            reason=f"{mode!r} is unknown",
            remedy="Use symlink_format_manifest",
        )
    require_main(context.store, "writing manifests, which are the table's,")
    require_table_writable(snapshot, removes_rows=False)
    context.store.require_writable()
    require_in_place(context.store, snapshot)
    live = load_files(context.store, snapshot).live
    _require_plain(snapshot, live)
    lists: dict[str, list[str]] = {} if snapshot.partition_columns else {"": []}
    partitions = live["partition_values"].to_pylist(maps_as_pydicts="lossy")
    for uri, values in zip(uris_of(context.store, live["path"]), partitions, strict=True):
        of_columns = {name: (values or {}).get(name) for name in snapshot.partition_columns}
        folder = partition_folder(of_columns)
        if of_columns and not folder:
            raise UnsupportedFeatureError(
                path=snapshot.root,
                features=("partition folders",),
                reason=f"no folder can be named after the partition {of_columns}",
                remedy="Give these rows another partition value, or read the table as Delta",
            )
        lists.setdefault(folder, []).append(f"file://{uri}" if uri.startswith("/") else uri)
    if is_rehearsing():
        return len(lists)
    written = set()
    for folder, uris in lists.items():
        name = f"{folder}/manifest" if folder else "manifest"
        text = "".join(f"{uri}\n" for uri in sorted(uris))
        context.store.replace(f"{FOLDER}/{name}", text.encode())
        written.add(name)
    existing = {info.name for info in context.store.list_tree(FOLDER)}
    context.store.delete([f"{FOLDER}/{name}" for name in sorted(existing - written)])
    return len(written)


def _require_plain(snapshot: Snapshot, live: pa.Table) -> None:
    reason = ""
    if live["dv_id"].null_count < len(live):
        reason = "rows of its files are deleted by deletion vectors"
    elif tag_texts(live, FIELDS_TAG).null_count < len(live):
        reason = "the table has column files"
    elif snapshot.mapping_mode != "none":
        reason = "columns have other names in its files"
    if reason:
        raise UnsupportedFeatureError(
            path=snapshot.root,
            features=("symlink_format_manifest",),
            reason=f"a list of the table's files does not describe its rows: {reason}",
            remedy="optimize.compact(max_deleted_fraction=0, max_column_files=0) rewrites them",
        )
