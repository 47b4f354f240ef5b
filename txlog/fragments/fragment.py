"""A snapshot's live files as Lance-style fragments.

A fragment is a horizontal slice of the table: the same rows, in the same order, in its data file,
less the deleted positions. Ids that txlog gave are durable; files of other writers have
provisional ones. Rules: spec/fragments.md, FRG-1 to FRG-9.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from txlog.actions import DeletionVectorDescriptor
from txlog.errors import LogCorruptError, UnsupportedFeatureError
from txlog.fragments.deletion_file import DeletionFileName, parse_deletion_name

ID_TAG = "txlog.fragmentId"
FIELDS_TAG = "txlog.fields"  # Of a file that gives columns to another one.
ID_APP = "txlog.fragments"  # The `txn` that remembers the highest id ever given.
PROVISIONAL = 1 << 30  # Durable ids are below, provisional ones from here on.

_FRAGMENT_COLUMNS = [
    "path", "size", "deletion_vector", "partition_values", "base_row_id",
    "default_row_commit_version",
]  # fmt: skip
_ID_TEXT = r"^(0|[1-9][0-9]{0,9})$"


def valid_id(text: str | None) -> bool:
    """Return whether a tag's text is a durable fragment id."""
    return bool(text and re.fullmatch(_ID_TEXT, text) and int(text) < PROVISIONAL)


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of a fragment."""

    path: str  # As in the log: percent-encoded, relative to the table's root or absolute.
    size: int  # Bytes.


@dataclass(frozen=True, slots=True)
class DeletionFile:
    """Where a fragment's deleted row positions are."""

    descriptor: DeletionVectorDescriptor

    @property
    def num_deleted_rows(self) -> int:
        """How many rows are deleted."""
        return self.descriptor.cardinality

    @property
    def file_type(self) -> str:
        """The encoding, by Lance's name: `array` or `bitmap`."""
        return "array" if self._name is not None and self._name.kind == "arrow" else "bitmap"

    @property
    def read_version(self) -> int | None:
        """The version that the deletion was made from; only Lance's form says."""
        return None if self._name is None else self._name.read_version

    @property
    def id(self) -> int | None:
        """The number in the file's name; only Lance's form has one."""
        return None if self._name is None else self._name.id

    @property
    def _name(self) -> DeletionFileName | None:
        if self.descriptor.storage_type != "lance":
            return None
        return parse_deletion_name(self.descriptor.path_or_inline_dv.rpartition("/")[2])


@dataclass(frozen=True, slots=True)
class Fragment:
    """A slice of one table version. A value: it pickles, and is the unit of parallel work."""

    id: int
    files: tuple[DataFile, ...]
    deletion: DeletionFile | None = None
    partition_values: Mapping[str, str | None] = field(default_factory=dict)
    physical_rows: int | None = None  # None when the log does not say.
    base_row_id: int | None = None
    default_row_commit_version: int | None = None

    @property
    def fragment_id(self) -> int:
        """The id, by the name that pylance gives it."""
        return self.id

    @property
    def is_durable(self) -> bool:
        """Whether the id means the same rows in other versions too."""
        return self.id < PROVISIONAL

    @property
    def num_deletions(self) -> int:
        """How many rows are deleted."""
        return self.deletion.num_deleted_rows if self.deletion else 0

    @property
    def num_rows(self) -> int | None:
        """How many rows are left, or None when the log does not say."""
        return None if self.physical_rows is None else self.physical_rows - self.num_deletions


def require_fragments_feature(live: pa.Table, listed: bool, *, path: str) -> None:
    """Refuse live `FILE_ROWS` that need the table feature `txlog.fragments`, if it is not listed.

    Pure. Rules: FRG-13 and FRG-14.

    Raises
    ------
    LogCorruptError
        There are deletions in Lance's form, or column files, without the feature.
    UnsupportedFeatureError
        There are column files, which this version of txlog cannot read.
    """
    kinds = pc.struct_field(live["deletion_vector"].combine_chunks(), "storageType")
    lance = pc.any(pc.equal(kinds, "lance")).as_py()
    columns = pc.map_lookup(live["tags"].combine_chunks(), pa.scalar(FIELDS_TAG), "last")
    if columns.null_count < len(columns) and listed:
        raise UnsupportedFeatureError(
            path=path,
            features=("txlog.fragments: column files",),
            reason="columns of the table are in files of their own, which this txlog cannot read",
            remedy="Upgrade txlog",
        )
    if (lance or columns.null_count < len(columns)) and not listed:
        raise LogCorruptError(
            path=path,
            field="deletionVector" if lance else "tags",
            reason="files use txlog.fragments, but the protocol does not list that feature",
            remedy="The writer of this log is at fault",
        )


def tagged_ids(files: pa.Table) -> pa.Array:
    """Return the valid fragment ids in the tags of `FILE_ROWS`; null where there is none."""
    texts = pc.map_lookup(files["tags"].combine_chunks(), pa.scalar(ID_TAG), "last")
    valid = pc.fill_null(pc.match_substring_regex(texts, _ID_TEXT), False)
    ids = pc.if_else(valid, texts, None).cast(pa.int64())
    return pc.if_else(pc.less(ids, PROVISIONAL), ids, None)


def fragment_ids(files: pa.Table) -> pa.Array:
    """Return the id of each live file, durable or provisional.

    An id that two files claim belongs to neither. Provisional ids go by the byte order of paths,
    so every reader of a version gives the same ones.
    """
    ids = tagged_ids(files)
    counts = ids.value_counts()
    shared = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    durable = pc.and_(pc.is_valid(ids), pc.invert(pc.is_in(ids, shared)))
    if pc.all(durable).as_py() or files.num_rows == 0:
        return ids
    rows = pc.indices_nonzero(pc.invert(durable))
    paths = files["path"].take(rows).cast(pa.binary()).combine_chunks()
    places = pc.rank(paths, sort_keys="ascending", tiebreaker="first").cast(pa.int64())
    provisional = pc.add(places, PROVISIONAL - 1)
    return pc.replace_with_mask(ids, pc.invert(durable), provisional)


def highest_id(files: pa.Table, recorded: int | None) -> int:
    """Return the highest id ever given: the recorded one, or a live file's; -1 for none."""
    highest = pc.max(tagged_ids(files)).as_py() if files.num_rows else None
    return max(-1 if recorded is None else recorded, -1 if highest is None else highest)


def fragments_of(files: pa.Table, ids: pa.Array, physical_rows: pa.Array) -> list[Fragment]:
    """Return live `FILE_ROWS` as fragments, ordered by id.

    `ids` and `physical_rows` (null where unknown) belong to the rows of `files`.
    """
    columns = files.select(_FRAGMENT_COLUMNS).to_pylist(maps_as_pydicts="lossy")
    found = [
        Fragment(
            id=number,
            files=(DataFile(row["path"], row["size"]),),
            deletion=_deletion(row["deletion_vector"]),
            partition_values=row["partition_values"] or {},
            physical_rows=rows,
            base_row_id=row["base_row_id"],
            default_row_commit_version=row["default_row_commit_version"],
        )
        for number, rows, row in zip(
            ids.to_pylist(), physical_rows.to_pylist(), columns, strict=True
        )
    ]
    return sorted(found, key=lambda fragment: fragment.id)


def _deletion(value: dict[str, Any] | None) -> DeletionFile | None:
    if value is None:
        return None
    return DeletionFile(DeletionVectorDescriptor.model_validate(value))
