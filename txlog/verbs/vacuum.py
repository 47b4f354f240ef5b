"""Deleting files that no version within the retention refers to.

Rules: spec/vacuum.md. The decision is a pure function over columns; nothing is deleted that it does
not name, and it is made again if the table changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import pyarrow as pa

from txlog.actions.columns import flat
from txlog.actions.file import DeletionVectorDescriptor
from txlog.arrow import arrow_array, pc
from txlog.commit.context import Context
from txlog.commit.operation import require_table_writable
from txlog.data_files.change_files import FOLDER as CHANGES_FOLDER
from txlog.data_files.deletions import deletion_path
from txlog.errors import InvalidInputError, InvalidTypeError
from txlog.fragments.deletion_file import DELETIONS_FOLDER
from txlog.fragments.rows import FEATURE
from txlog.log.paths import canonical_keys, encode_path
from txlog.reconcile.files import FileState
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import refresh
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import ObjectInfo

DECISIONS = pa.schema(
    [
        pa.field("file", pa.string(), False),
        pa.field("bytes", pa.int64(), False),
        pa.field("modified_ms", pa.int64(), False),
        pa.field("decision", pa.string(), False),
        pa.field("reason", pa.string(), False),
    ]
)
"""A row for each file: its path below the table, its size, `keep` or `delete`, and why."""

_HOUR_MS = 3_600_000
_AT_ONCE = 10_000  # Files that are deleted by one call of the store.


def retention_ms(snapshot: Snapshot, hours: float | None, *, enforce: bool) -> int:
    """Return how long files are kept that no version refers to any more.

    Raises
    ------
    InvalidInputError
        It is below the table's own retention, and `enforce` is set.
    """
    own = int(snapshot.properties.get("delta.deletedFileRetentionDuration"))
    if hours is None:
        return own
    if isinstance(hours, bool) or not isinstance(hours, int | float):
        raise InvalidTypeError(
            argument="retention_hours", reason=f"a number was expected, not {hours!r}"
        )
    if not hours >= 0:
        raise InvalidInputError(
            argument="retention_hours", reason=f"a number from 0 was expected, not {hours!r}"
        )
    asked = int(hours * _HOUR_MS)
    if enforce and asked < own:
        raise InvalidInputError(
            argument="retention_hours",
            reason=f"{hours} hours are less than the table's delta.deletedFileRetentionDuration, "
            f"{own / _HOUR_MS:g} hours: writers and readers that are under way may need the files",
            remedy="Pass enforce_retention_duration=False if there are none",
        )
    return asked


def vacuum(
    context: Context,
    snapshot: Snapshot,
    *,
    hours: float | None,
    dry_run: bool,
    enforce: bool,
    lite: bool,
) -> pa.Table:
    """Decide which files go, and delete them unless it is a dry run.

    Parameters
    ----------
    snapshot
        The latest version.
    lite
        Look only at files that the log says were removed, and list no folder.

    Returns
    -------
    pyarrow.Table
        As `DECISIONS`.

    Raises
    ------
    InvalidInputError
        The retention is too short.
    UnsupportedFeatureError
        The table may not be written by txlog.
    """
    require_table_writable(snapshot, removes_rows=False)
    kept_ms = retention_ms(snapshot, hours, enforce=enforce)
    listed = None if lite else _listed(context.store.list_tree(""), snapshot)
    while True:
        cutoff_ms = context.effects.now_ms() - kept_ms
        files = load_files(context.store, snapshot)
        found = _expired(files, cutoff_ms, snapshot.root) if listed is None else listed
        decided = decide(found, referenced(files, cutoff_ms, snapshot.root), cutoff_ms)
        if dry_run:
            return decided
        context.store.require_writable()
        latest = refresh(context.store, snapshot)
        if latest.version == snapshot.version:
            break
        snapshot = latest  # A restore may have brought files back.
    gone = decided.filter(pc.equal(decided["decision"], "delete"))["file"].to_pylist()
    paths = iter(gone)
    while some := list(islice(paths, _AT_ONCE)):
        context.store.delete(some)
    return decided


def _listed(infos: Iterable[ObjectInfo], snapshot: Snapshot) -> pa.Table:
    """Return the files below a table's root that may be its data, change or deletion files."""
    ours = {CHANGES_FOLDER, DELETIONS_FOLDER} if snapshot.supports(FEATURE) else {CHANGES_FOLDER}
    names, sizes, times = [], [], []
    for info in infos:
        if _is_visible(info.name, ours):
            names.append(info.name)
            sizes.append(info.size)
            times.append(info.modified_ms)
    return pa.table(
        [
            arrow_array(names, pa.string()),
            arrow_array(sizes, pa.int64()),
            arrow_array(times, pa.int64()),
        ],
        names=DECISIONS.names[:3],
    )


def _is_visible(name: str, ours: set[str]) -> bool:
    """Return whether a vacuum may look at a file: hidden ones are another's, but for some of ours.

    Names that begin with `_` or `.` are hidden, but for folders of partitions.
    """
    if "/_" not in name and "/." not in name and name[0] not in "_.":
        return True
    steps = name.split("/")
    return all(
        step[0] not in "_."
        or ("=" in step and place < len(steps) - 1)
        or (not place and step in ours)
        for place, step in enumerate(steps)
    )


def _expired(files: FileState, cutoff_ms: int, root: str) -> pa.Table:
    """Return the files that were removed before a moment, as `_listed` does."""
    rows = files.tombstones
    times = pc.fill_null(rows["deletion_timestamp"], 0)
    old = pc.less(times, cutoff_ms)
    rows, times = rows.filter(old), times.filter(old)
    paths = _relative(flat(canonical_keys(rows["path"])), root)
    inside = pc.invert(pc.match_substring_regex(paths, r"^(/|\w+:)"))
    found = pa.table(
        [paths, flat(pc.fill_null(rows["size"], 0)), flat(times)], names=DECISIONS.names[:3]
    ).filter(inside)
    vectors = sorted(_vectors(rows))
    nothing = arrow_array([0] * len(vectors), pa.int64())
    more = pa.table(
        [arrow_array(vectors, pa.string()), nothing, nothing], names=DECISIONS.names[:3]
    )
    return pa.concat_tables([found, more])


def referenced(files: FileState, cutoff_ms: int, root: str) -> pa.Array:
    """Return the files that versions from a moment on refer to, relative to the table. Pure.

    They are those of the live files, of files removed after the moment, and the deletion vectors
    of both.
    """
    young = files.tombstones.filter(
        pc.greater_equal(pc.fill_null(files.tombstones["deletion_timestamp"], 0), cutoff_ms)
    )
    paths = [flat(canonical_keys(rows["path"])) for rows in (files.live, young)]
    vectors = _vectors(files.live) | _vectors(young)
    found = [*paths, arrow_array(sorted(vectors), pa.string())]
    return _relative(pa.concat_arrays([part.cast(pa.string()) for part in found]), root)


def _relative(keys: pa.Array, root: str) -> pa.Array:
    """Return keys of files, relative to the table where they are below it."""
    (key,) = canonical_keys(arrow_array([encode_path(root) if "://" in root else root])).to_pylist()
    prefix = f"{key}/"
    below = pc.starts_with(keys, prefix)
    if not pc.any(below).as_py():
        return keys
    return pc.if_else(below, pc.utf8_slice_codeunits(keys, len(prefix)), keys)


def _vectors(rows: pa.Table) -> set[str]:
    """Return the files of deletion vectors that file actions refer to."""
    vectors = flat(rows.filter(pc.is_valid(rows["dv_id"]))["deletion_vector"])
    kinds = pc.struct_field(vectors, "storageType")
    texts = pc.struct_field(vectors, "pathOrInlineDv")
    pairs = set(zip(kinds.to_pylist(), texts.to_pylist(), strict=True))
    paths = set()
    for kind, text in pairs:
        descriptor = DeletionVectorDescriptor(
            storage_type=kind, path_or_inline_dv=text, size_in_bytes=0, cardinality=0
        )
        path = deletion_path(descriptor)
        paths |= set() if path is None else {path}
    return paths


def decide(found: pa.Table, needed: pa.Array, cutoff_ms: int) -> pa.Table:
    """Return for each file whether it is kept or deleted, and why, as `DECISIONS`. Pure.

    Parameters
    ----------
    found
        Files by path, size, and when they were written or removed; 0: nobody knows.
    needed
        Files that versions within the retention refer to.
    """
    is_needed = pc.is_in(found["file"], value_set=needed)
    is_young = pc.greater_equal(found["modified_ms"], cutoff_ms)
    decision = pc.if_else(pc.or_(is_needed, is_young), "keep", "delete")
    reason = pc.if_else(
        is_needed,
        "a version within the retention needs it",
        pc.if_else(
            is_young,
            "it is younger than the retention: a writer may be about to commit it",
            "no version within the retention needs it",
        ),
    )
    columns = [*found.columns, decision, reason]
    return pa.table([flat(column) for column in columns], schema=DECISIONS).sort_by("file")
