"""A snapshot's live files as Lance-style fragments.

A fragment is a horizontal slice of the table. All of its data files hold the same rows in the same
order. The deleted positions are not part of it. Rules: spec/fragments.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
import pyarrow as pa

from txlog.actions.file import DeletionVectorDescriptor
from txlog.base.arrow import arrow_array, arrow_scalar, numpy_array, pc
from txlog.base.columns import flat
from txlog.base.thresholds import Threshold
from txlog.fragments.deletion_file import DeletionFileName, parse_deletion_name
from txlog.fragments.ids import PROVISIONAL
from txlog.fragments.rows import FragmentRows, column_files_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

FRAGMENT_COLUMNS = [
    "path", "size", "deletion_vector", "partition_values", "base_row_id",
    "default_row_commit_version",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of a fragment."""

    path: str  # As logged: percent-encoded, relative to the table's root or absolute.
    size: int  # Bytes.
    # For a column file, the physical names of its columns. None for the primary file.
    fields: tuple[str, ...] | None = None
    # For a column file, the version of rows for which it has no own one.
    row_version: int | None = None
    # The place above others of a column file that gives values to some rows alone; 0: to all rows.
    layer: int = 0


@dataclass(frozen=True, slots=True)
class DeletionFile:
    """The location of a fragment's deleted row positions."""

    descriptor: DeletionVectorDescriptor

    @property
    def num_deleted_rows(self) -> int:
        """The number of deleted rows."""
        return self.descriptor.cardinality

    @property
    def file_type(self) -> str:
        """The encoding by Lance's names: `array` or `bitmap`."""
        return "array" if self._name is not None and self._name.kind == "arrow" else "bitmap"

    @property
    def read_version(self) -> int | None:
        """The version from which the delete was computed; known only for Lance's form."""
        return None if self._name is None else self._name.read_version

    @property
    def id(self) -> int | None:
        """The number in the file's name; it exists only in Lance's form."""
        return None if self._name is None else self._name.id

    @property
    def _name(self) -> DeletionFileName | None:
        if self.descriptor.storage_type != "lance":
            return None
        return parse_deletion_name(self.descriptor.path_or_inline_dv.rpartition("/")[2])


@dataclass(frozen=True, slots=True)
class Fragment:
    """A slice of one table version: an immutable value that pickles, the unit of parallel work."""

    id: int
    files: tuple[DataFile, ...]  # The primary file, then the files with further columns.
    deletion: DeletionFile | None = None
    partition_values: Mapping[str, str | None] = field(default_factory=dict)
    physical_rows: int | None = None  # None if the log does not state it.
    base_row_id: int | None = None
    default_row_commit_version: int | None = None

    @property
    def path(self) -> str:
        """The logged path of the primary file, which identifies the fragment in errors."""
        return self.files[0].path

    def data_files(self) -> list[DataFile]:
        """Return the data files, with the primary file first."""
        return list(self.files)

    def deletion_file(self) -> DeletionFile | None:
        """Return the location of the deleted rows, or None if no row is deleted."""
        return self.deletion

    def files_giving(self, name: str) -> tuple[DataFile, ...]:
        """Return the files that give a column, by its physical name.

        The first has values for all rows. Those of a later one replace them in some rows.
        """
        giving = [file for file in self.files[1:] if name in (file.fields or ())]
        whole = next((file for file in giving if not file.layer), self.files[0])
        layers = sorted((file for file in giving if file.layer), key=lambda file: file.layer)
        return (whole, *layers)

    def row_version(self, file: DataFile) -> int | None:
        """Return the version of those rows of a file for which it has no own one (FRG-48)."""
        return self.default_row_commit_version if file.fields is None else file.row_version

    def with_file(self, new: DataFile) -> Fragment:
        """Return the fragment with one more column file.

        If the file gives columns to all rows, others give these columns no longer.
        """
        kept = []
        for file in self.files[1:]:
            left = tuple(name for name in file.fields or () if name not in (new.fields or ()))
            kept += [file] if new.layer else [replace(file, fields=left)] if left else []
        return replace(self, files=(self.files[0], *kept, new))

    @property
    def highest_layer(self) -> int:
        """The highest place of a column file that gives values to some rows; 0 if there is none."""
        return max(file.layer for file in self.files)

    @property
    def fragment_id(self) -> int:
        """The id, with the attribute name of pylance."""
        return self.id

    @property
    def is_durable(self) -> bool:
        """Whether the id identifies the same rows in other versions too."""
        return self.id < PROVISIONAL

    @property
    def num_deletions(self) -> int:
        """The number of deleted rows."""
        return self.deletion.num_deleted_rows if self.deletion else 0

    @property
    def num_rows(self) -> int | None:
        """The number of rows without the deleted ones; None as for `rows_left`."""
        return rows_left(self.physical_rows, self.num_deletions)


def is_in_log(deletion: DeletionFile | None) -> bool:
    """Return whether the log has the deleted rows themselves, so that no file is read for them."""
    return deletion is None or deletion.descriptor.storage_type == "i"


def rows_left(physical_rows: int | None, deleted: int) -> int | None:
    """Return how many rows are not deleted.

    None if the log does not state the rows, or states more deleted rows than rows; then reading the
    file raises an error.
    """
    if physical_rows is None or physical_rows < deleted:
        return None
    return physical_rows - deleted


def fragments_of(rows: FragmentRows, physical_rows: pa.Array) -> list[Fragment]:
    """Return fragments as `Fragment` values, ordered by id.

    `physical_rows` has one entry for each primary file, null if unknown.
    """
    columns: dict[int, list[DataFile]] = {}
    for owner, row, fields, layer in column_files_of(rows.columns):
        version = row["default_row_commit_version"]
        columns.setdefault(owner, []).append(
            DataFile(row["path"], row["size"], fields, version, layer)
        )
    primaries = rows.primaries.select(FRAGMENT_COLUMNS).to_pylist(maps_as_pydicts="lossy")
    found = [
        Fragment(
            id=number,
            files=(
                DataFile(row["path"], row["size"]),
                *sorted(columns.get(at, ()), key=lambda file: file.path),
            ),
            deletion=_deletion(row["deletion_vector"]),
            partition_values=row["partition_values"] or {},
            physical_rows=count,
            base_row_id=row["base_row_id"],
            default_row_commit_version=row["default_row_commit_version"],
        )
        for at, (number, count, row) in enumerate(
            zip(rows.ids.to_pylist(), physical_rows.to_pylist(), primaries, strict=True)
        )
    ]
    return sorted(found, key=lambda fragment: fragment.id)


def _deletion(value: dict[str, Any] | None) -> DeletionFile | None:
    if value is None:
        return None
    return DeletionFile(DeletionVectorDescriptor.model_validate(value))


Places: TypeAlias = "NDArray[Any]"  # Indexes.

_AT_ONCE: Threshold = 1 << 16  # The number of values that an iteration creates together.


class FragmentSequence(Sequence[Fragment]):
    """The fragments of a version, ordered by id.

    Parameters
    ----------
    rows
        The fragments in any order.
    physical_rows
        int64 for each fragment, null if the log does not state it.
    """

    def __init__(self, rows: FragmentRows, physical_rows: pa.Array) -> None:
        self.ids = rows.ids
        self._rows = rows
        self._physical_rows = physical_rows
        order = pc.sort_indices(rows.ids)
        self._order = numpy_array(order)  # The index of each fragment among the rows.
        if rows.columns.rows.num_rows:
            # Column files in the order of their fragments, each fragment's by path.
            owners = rows.columns.owners
            keys = {"owner": owners, "path": flat(rows.columns.rows["path"]).cast(pa.binary())}
            by_owner = pc.sort_indices(
                pa.table(keys), sort_keys=[("owner", "ascending"), ("path", "ascending")]
            )
            self._column_places = numpy_array(by_owner)
            self._owners = numpy_array(owners.take(by_owner))

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, at: int) -> Fragment: ...
    @overload
    def __getitem__(self, at: slice) -> list[Fragment]: ...
    def __getitem__(self, at: int | slice) -> Fragment | list[Fragment]:
        """Return a fragment by its index, or a list for a slice."""
        if isinstance(at, slice):
            found = self._values(self._order[at])
            return found[::-1] if at.step is not None and at.step < 0 else found
        return self._values(self._order[[range(len(self))[at]]])[0]

    def __iter__(self) -> Iterator[Fragment]:
        for start in range(0, len(self), _AT_ONCE):
            yield from self._values(self._order[start : start + _AT_ONCE])

    def file_bytes(self) -> Places:
        """Return the bytes of each fragment's files. No fragment becomes a value."""
        found = numpy_array(flat(self._rows.primaries["size"])).astype(np.int64)
        columns = self._rows.columns
        if columns.rows.num_rows:
            np.add.at(found, numpy_array(columns.owners), numpy_array(flat(columns.rows["size"])))
        sizes: Places = found[self._order]
        return sizes

    def place_of(self, fragment_id: int) -> int | None:
        """Return the index of the fragment with an id, or None if there is none."""
        place = pc.index(self.ids, arrow_scalar(fragment_id, pa.int64())).as_py()
        if place < 0:
            return None
        return int(np.flatnonzero(self._order == place)[0])

    def file_rows(self, at: int) -> pa.Table:
        """Return the `FILE_ROWS` of one fragment's files, with the primary file first."""
        place = self._order[at]
        primary = self._rows.primaries.slice(place, 1)
        columns = self._rows.columns.rows
        if not columns.num_rows:
            return primary
        return pa.concat_tables([primary, columns.take(arrow_array(self._columns_of(place)))])

    def _columns_of(self, place: int) -> Places:
        """Return the indexes of a fragment's column files, ordered by path."""
        first, end = np.searchsorted(self._owners, [place, place + 1])
        found: Places = self._column_places[first:end]
        return found

    def _values(self, places: Places) -> list[Fragment]:
        """Return the fragments at some indexes among the rows, ordered by id."""
        rows, taken = self._rows, arrow_array(places)
        if len(places) == 1:  # This avoids a copy of all chunks.
            primaries = rows.primaries.slice(places[0], 1)
        else:
            primaries = pc.take(rows.primaries, taken)
        columns, nothing = rows.columns, pa.nulls(0, pa.int64())
        if columns.rows.num_rows:
            theirs = [self._columns_of(place) for place in places]
            chosen = arrow_array(np.concatenate([numpy_array(nothing), *theirs]), pa.int64())
            owners = np.repeat(np.arange(len(places)), [len(one) for one in theirs])
            columns = columns.take(chosen, arrow_array(owners, pa.int64()))
        found = FragmentRows(primaries, pc.take(rows.ids, taken), columns)
        return fragments_of(found, pc.take(self._physical_rows, taken))
