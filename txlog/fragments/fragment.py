"""A snapshot's live files as Lance-style fragments.

A fragment is a horizontal slice of the table: the same rows, in the same order, in its data files,
less the deleted positions. Rules: spec/fragments.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import eq
from typing import Any, overload

import pyarrow as pa
import pyarrow.compute as pc

from txlog.actions.file import DeletionVectorDescriptor
from txlog.fragments.deletion_file import DeletionFileName, parse_deletion_name
from txlog.fragments.ids import PROVISIONAL
from txlog.fragments.rows import FragmentRows, column_files_of, deleted_counts

_FRAGMENT_COLUMNS = [
    "path", "size", "deletion_vector", "partition_values", "base_row_id",
    "default_row_commit_version",
]  # fmt: skip
_AT_ONCE = 1024  # Fragments that become values together.


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of a fragment."""

    path: str  # As in the log: percent-encoded, relative to the table's root or absolute.
    size: int  # Bytes.
    # Of a column file, the physical names of the columns that it gives. None: the primary file.
    fields: tuple[str, ...] | None = None


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
    files: tuple[DataFile, ...]  # The primary, then the files that give further columns.
    deletion: DeletionFile | None = None
    partition_values: Mapping[str, str | None] = field(default_factory=dict)
    physical_rows: int | None = None  # None when the log does not say.
    base_row_id: int | None = None
    default_row_commit_version: int | None = None

    @property
    def path(self) -> str:
        """The path of the primary file, as in the log; it stands for the fragment in errors."""
        return self.files[0].path

    def data_files(self) -> list[DataFile]:
        """Return the data files, the primary first."""
        return list(self.files)

    def deletion_file(self) -> DeletionFile | None:
        """Return where the deleted rows are, or None if none is deleted."""
        return self.deletion

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


class Fragments(Sequence[Fragment]):
    """Fragments ordered by id, held as columns; a fragment becomes a value when it is asked for.

    A slice is `Fragments` too, and costs no more than its numbers. Iterating makes `_AT_ONCE`
    values at a time. It equals any sequence of the same fragments, and pickles as columns.

    Parameters
    ----------
    rows
        The fragments, in any order.
    physical_rows
        int64, for each of them its number of rows; null where the log does not say.
    """

    def __init__(self, rows: FragmentRows, physical_rows: pa.Array) -> None:
        rows = rows.select(_FRAGMENT_COLUMNS, ["path", "size"])
        order = None if _is_ascending(rows.ids) else pc.sort_indices(rows.ids)
        self._rows = rows.in_one_piece() if order is None else rows.take(order)
        self._physical_rows = physical_rows if order is None else physical_rows.take(order)

    def __len__(self) -> int:
        return len(self._rows.ids)

    @overload
    def __getitem__(self, place: int) -> Fragment: ...

    @overload
    def __getitem__(self, place: slice) -> Fragments: ...

    def __getitem__(self, place: int | slice) -> Fragment | Fragments:
        places = range(len(self))[place]
        if isinstance(places, int):
            return self._slice(places, 1)._values()[0]
        if places.step == 1:
            return self._slice(places.start, len(places))
        return self._take(pa.array(places, pa.int64()))

    def __iter__(self) -> Iterator[Fragment]:
        for start in range(0, len(self), _AT_ONCE):
            yield from self._slice(start, _AT_ONCE)._values()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} fragments>"

    def __reduce__(self) -> tuple[Any, ...]:
        # A slice would bring all of the columns along that it is a part of.
        some = self._take(pa.array(range(len(self)), pa.int64()))
        return _restored, (some._rows, some._physical_rows)

    @property
    def ids(self) -> pa.Array:
        """The ids, ascending, as int64."""
        return self._rows.ids

    @property
    def physical_rows(self) -> pa.Array:
        """How many rows the files of each have, deleted ones included, as int64; null: unknown."""
        return self._physical_rows

    @property
    def num_deletions(self) -> pa.Array:
        """How many rows of each are deleted, as int64."""
        return deleted_counts(self._rows.primaries)

    @property
    def sizes(self) -> pa.Array:
        """How many bytes the files of each have together, as int64."""
        return self._rows.sizes

    def filter(self, chosen: pa.Array) -> Fragments:
        """Return some of them: `chosen` has a truth value for each."""
        return _restored(self._rows.filter(chosen), self._physical_rows.filter(chosen))

    def _slice(self, start: int, count: int) -> Fragments:
        return _restored(self._rows.slice(start, count), self._physical_rows.slice(start, count))

    def _take(self, places: pa.Array) -> Fragments:
        return _restored(self._rows.take(places), self._physical_rows.take(places))

    def _values(self) -> list[Fragment]:
        columns: dict[int, list[DataFile]] = {}
        for owner, row, fields in column_files_of(self._rows.columns):
            columns.setdefault(owner, []).append(DataFile(row["path"], row["size"], fields))
        rows = self._rows.primaries.to_pylist(maps_as_pydicts="lossy")
        counts = self._physical_rows.to_pylist()
        return [
            Fragment(
                id=number,
                files=(
                    DataFile(row["path"], row["size"]),
                    *sorted(columns.get(place, ()), key=lambda file: file.path),
                ),
                deletion=_deletion(row["deletion_vector"]),
                partition_values=row["partition_values"] or {},
                physical_rows=count,
                base_row_id=row["base_row_id"],
                default_row_commit_version=row["default_row_commit_version"],
            )
            for place, (number, count, row) in enumerate(
                zip(self.ids.to_pylist(), counts, rows, strict=True)
            )
        ]


def _restored(rows: FragmentRows, physical_rows: pa.Array) -> Fragments:
    """Return the fragments of columns that are in order and `in_one_piece`."""
    found = object.__new__(Fragments)
    found._rows, found._physical_rows = rows, physical_rows
    return found


def fragments_of(rows: FragmentRows, physical_rows: pa.Array) -> list[Fragment]:
    """Return fragments as values, ordered by id.

    `physical_rows` (null where unknown) belong to the primaries.
    """
    return list(Fragments(rows, physical_rows))


def _is_ascending(ids: pa.Array) -> bool:
    return len(ids) < 2 or bool(pc.all(pc.less_equal(ids[:-1], ids[1:])).as_py())


def _deletion(value: dict[str, Any] | None) -> DeletionFile | None:
    if value is None:
        return None
    return DeletionFile(DeletionVectorDescriptor.model_validate(value))
