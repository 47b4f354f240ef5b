"""Choose the files that contain the changes of a version. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from txlog.actions.columns import FILE_ROWS
from txlog.actions.file import Cdc
from txlog.actions.ndjson import decode_action
from txlog.base.arrow import pc, table_of_rows
from txlog.base.errors import LogCorruptError, UnsupportedFeatureError
from txlog.fragments.fragment import DataFile, DeletionFile, Fragment, fragments_of
from txlog.fragments.ids import tag_texts
from txlog.fragments.rows import FEATURE, FIELDS_TAG, fragment_rows
from txlog.log.paths import canonical_keys
from txlog.scan.files import as_fragments
from txlog.schema.types import (
    CHANGE_TYPE,
    VOID,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    is_widening,
    type_name,
)
from txlog.snapshot.commits import Commit, file_rows
from txlog.stats.files import num_records

COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
# Nullable, as in deltalake and delta-spark, so that their feeds and ours fit into one table.
CHANGE_COLUMNS = StructType(
    (
        StructField(CHANGE_TYPE, PrimitiveType("string")),
        StructField(COMMIT_VERSION, PrimitiveType("long")),
        StructField(COMMIT_TIMESTAMP, PrimitiveType("timestamp")),
    )
)

PartitionValues = Callable[[int, str], Mapping[str, str | None]]


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """Rows of one file that one version changed. A value; it pickles."""

    version: int
    timestamp_ms: int | None  # The time of the version; None if unknown.
    change_type: str | None  # None: the file has a column `_change_type`.
    fragment: Fragment  # Its deletion file has the rows that do not belong to the change.
    among: DeletionFile | None = None  # Only these rows; None for all.
    stats: str | None = None


def changed_files(
    commit: Commit, made_ms: int | None, partition_values: PartitionValues
) -> list[ChangeFile]:
    """Return the files that contain the changes of a commit, in the commit's order.

    If a commit has `cdc` files, they have all changes. Otherwise its adds insert rows and its
    removes delete rows, except for files that only moved rows (`dataChange` false). If a file is
    removed and added with another deletion vector, the changes are the rows in which the vectors
    differ.

    Parameters
    ----------
    made_ms
        The time of the version, in milliseconds since the epoch.
    partition_values
        Returns the partition values of a file that was live in a version, for removes without them.
    """
    return list(_cdc_files(commit, made_ms)) or list(_by_actions(commit, made_ms, partition_values))


def _cdc_files(commit: Commit, made_ms: int | None) -> Iterator[ChangeFile]:
    for line, row in enumerate(commit.rows, start=1):
        if (body := row.get("cdc")) is None:
            continue
        cdc = decode_action("cdc", body, path=commit.path, line=line)
        assert isinstance(cdc, Cdc)
        files = (DataFile(cdc.path, cdc.size),)
        fragment = Fragment(0, files, partition_values=cdc.partition_values)
        yield ChangeFile(commit.version, made_ms, None, fragment)


@dataclass
class _Sides:
    """The changes of a commit to one path."""

    added: Fragment | None = None
    removed: Fragment | None = None
    data_change: bool = False
    # Only if the commit has one action on the path: with two, each may omit rows of the other.
    stats: str | None = None


def _by_actions(
    commit: Commit, made_ms: int | None, partition_values: PartitionValues
) -> Iterator[ChangeFile]:
    rows = file_rows([commit])
    if tag_texts(rows, FIELDS_TAG).null_count < rows.num_rows:
        rows = rows.filter(rows["data_change"])
        with_columns = _with_columns(rows, commit.version)
        rows = rows.filter(tag_texts(rows, FIELDS_TAG).is_null())
    else:
        with_columns = {}
    sides: dict[str, _Sides] = {}
    for key, fragment, is_add, data_change, known, stats in zip(
        canonical_keys(rows["path"]).to_pylist(),
        as_fragments(rows),
        rows["is_add"].to_pylist(),
        rows["data_change"].to_pylist(),
        rows["partition_values"].is_valid().to_pylist(),
        rows["stats"].to_pylist(),
        strict=True,
    ):
        side = sides.setdefault(key, _Sides())
        side.data_change |= data_change
        alone = side.added is None and side.removed is None
        whole = with_columns.get((fragment.path, is_add), fragment)
        side.stats = stats if alone and fragment.deletion is None and whole is fragment else None
        fragment = whole
        if is_add:
            side.added = fragment
            continue
        if not known:
            values = partition_values(commit.version - 1, fragment.path)
            fragment = replace(fragment, partition_values=values)
        side.removed = fragment
    for side in sides.values():
        if side.data_change:
            for change_type, fragment, among in file_differences(side.added, side.removed):
                yield ChangeFile(commit.version, made_ms, change_type, fragment, among, side.stats)


def _with_columns(rows: pa.Table, version: int) -> dict[tuple[str, bool], Fragment]:
    """Return fragments of several files that a commit adds (true) or removes, by their paths.

    Raises
    ------
    UnsupportedFeatureError
        It adds or removes column files of other fragments: the changes of their rows are not
        recorded.
    """
    found = {}
    for is_add in (False, True):
        side = rows.filter(pc.equal(rows["is_add"], is_add))
        try:
            fragments = fragment_rows(side, listed=True)
        except LogCorruptError as error:
            raise UnsupportedFeatureError(
                path=error.path,
                features=(FEATURE,),
                reason=f"version {version} changed column files, whose changes a change data feed "
                "does not contain",
                remedy="Ask for the changes before and after it separately",
            ) from error
        for one in fragments_of(fragments, num_records(fragments.primaries)):
            found[one.path, is_add] = one
    return {key: one for key, one in found.items() if len(one.files) > 1}


def file_differences(
    added: Fragment | None, removed: Fragment | None
) -> Iterator[tuple[str, Fragment, DeletionFile | None]]:
    """Yield the rows that a file, or its new deletion vector, inserted or deleted.

    Each item is the change, the fragment, and the affected rows if these are not all rows.
    """
    if added is None or removed is None:
        if added is not None:
            yield "insert", added, None
        if removed is not None:
            yield "delete", removed, None
        return
    if added.deletion is not None:
        yield "delete", replace(added, deletion=removed.deletion), added.deletion
    if removed.deletion is not None:
        yield "insert", added, removed.deletion


def change_rows(files: Iterable[ChangeFile]) -> pa.Table:
    """Return files as `FILE_ROWS` with the columns that statistics need."""
    return table_of_rows(
        [
            {
                "version": file.version,
                "is_add": True,
                "path": file.fragment.path,
                "partition_values": list(file.fragment.partition_values.items()),
                "stats": file.stats,
            }
            for file in files
        ],
        FILE_ROWS,
    )


def incompatible(
    old: StructType, new: StructType, mode: str, above: str = "", *, drops: bool = False
) -> Sequence[str]:
    """Return why rows of an old schema do not fit a new one; empty if they fit.

    Columns may have been added, types widened, and types given to columns of void; under column
    mapping, names may have changed. Pure.

    Parameters
    ----------
    mode
        The column mapping of the new schema.
    drops
        Whether columns may have been dropped, too.
    """
    by_name = {field.name_in_files(mode): field for field in new.fields}
    faults: list[str] = []
    for field in old.fields:
        name = f"{above}{field.name}"
        now = by_name.get(field.name_in_files(mode))
        if now is not None:
            faults.extend(_type_faults(field.type, now.type, mode, name, drops=drops))
        elif not drops:
            faults.append(f"column {name} was dropped")
    return faults


def _type_faults(
    old: DataType, new: DataType, mode: str, name: str, *, drops: bool
) -> Iterator[str]:
    match old, new:
        case StructType(), StructType():
            yield from incompatible(old, new, mode, f"{name}.", drops=drops)
        case ArrayType(), ArrayType():
            yield from _type_faults(old.element, new.element, mode, f"{name}.element", drops=drops)
        case MapType(), MapType():
            yield from _type_faults(old.key, new.key, mode, f"{name}.key", drops=drops)
            yield from _type_faults(old.value, new.value, mode, f"{name}.value", drops=drops)
        case _:
            before, after = type_name(old), type_name(new)
            if old not in (new, VOID) and not is_widening(before, after):
                yield f"column {name} was {before} and became {after}"
