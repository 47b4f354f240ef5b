"""`TableFragment`: one fragment of an opened table, with the methods of Lance's fragments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import eq
from typing import Any, overload

import pyarrow as pa

from txlog.base.errors import named_for_callers, require_flags
from txlog.base.thresholds import Threshold
from txlog.commit.context import Context
from txlog.expressions.sql import as_expression, required_expression
from txlog.expressions.tree import Expression
from txlog.fragments.fragment import DataFile, DeletionFile, Fragment, FragmentSequence
from txlog.fragments.metadata import FragmentMetadata
from txlog.scan.plan import plan_fragments
from txlog.scan.scan import Scan
from txlog.scan.take import take_live_of, take_offsets
from txlog.schema.arrow import fixed_schema
from txlog.snapshot.snapshot import Snapshot
from txlog.verbs.fragments.workers import (
    delete_from_fragment,
    fragment_metadata,
    merge_into_fragment,
)

Filter = str | Expression | None

_AT_ONCE: Threshold = 1 << 16  # The number of fragments that an iteration creates together.
_MOST_SHOWN = 30  # In a notebook.
_SHOWN = ("id", "rows", "deleted rows", "partition", "files", "path")


def _facts(fragment: Fragment) -> list[Any]:
    """Return the values that a notebook shows for a fragment, in the order of `_SHOWN`."""
    partition = ", ".join(f"{name}={value}" for name, value in fragment.partition_values.items())
    return [
        fragment.id,
        fragment.num_rows,
        fragment.num_deletions,
        partition or None,
        len(fragment.files),
        fragment.path,
    ]


class TableFragment:
    """A fragment of one version of a table. It reads rows and prepares changes.

    The results of `delete`, `delete_rows` and `merge_columns` are not committed: pass them, perhaps
    as JSON, to `Table.commit`. A fragment pickles, so any worker can receive it.
    """

    def __init__(
        self,
        context: Context,
        snapshot: Snapshot,
        fragment: Fragment,
        rows: Callable[[], pa.Table],
    ):
        self._context = context
        self._snapshot = snapshot
        self._fragment = fragment
        self._rows = rows  # Returns the `FILE_ROWS` of its files in order.

    def __repr__(self) -> str:
        fragment = self._fragment
        return (
            f"txlog.TableFragment(id={fragment.id}, physical_rows={fragment.physical_rows}, "
            f"num_deletions={fragment.num_deletions}, files={len(fragment.files)})"
        )

    def _repr_html_(self) -> str:
        from txlog.base.html import facts_html, titled

        facts = dict(zip(_SHOWN, _facts(self._fragment), strict=True))
        return titled("txlog.TableFragment", facts_html(facts))

    def _key(self) -> tuple[str, int, int]:
        return (self._snapshot.root, self._snapshot.version, self._fragment.id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableFragment) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __getstate__(self) -> dict[str, Any]:
        # Without the other files of the snapshot, which may be as large as the table's log.
        return {
            **self.__dict__,
            "_snapshot": self._snapshot.without_files(),
            "_rows": partial(_held, self._rows()),
        }

    @property
    def value(self) -> Fragment:
        """The fragment as a plain value."""
        return self._fragment

    @property
    def id(self) -> int:
        """The fragment's id."""
        return self._fragment.id

    @property
    def fragment_id(self) -> int:
        """The fragment's id, with the attribute name of pylance."""
        return self._fragment.id

    @property
    def is_durable(self) -> bool:
        """Whether the id identifies the same rows in other versions too."""
        return self._fragment.is_durable

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The data files: the primary file, then the files with further columns."""
        return self._fragment.files

    def data_files(self) -> list[DataFile]:
        """Return the data files, with the primary file first."""
        return list(self._fragment.files)

    @property
    def deletion(self) -> DeletionFile | None:
        """Where the deleted rows are, or None if none is deleted."""
        return self._fragment.deletion

    def deletion_file(self) -> DeletionFile | None:
        """Return where the deleted rows are, or None if none is deleted."""
        return self._fragment.deletion

    @property
    def partition_values(self) -> dict[str, str | None]:
        """The values of the partition columns, as logged."""
        return dict(self._fragment.partition_values)

    @property
    def physical_rows(self) -> int | None:
        """The number of rows of the files, including deleted ones; None if the log has no count."""
        return self._fragment.physical_rows

    @property
    def num_deletions(self) -> int:
        """The number of deleted rows."""
        return self._fragment.num_deletions

    @property
    def num_rows(self) -> int | None:
        """The number of remaining rows, None if the log has none; `count_rows` reads the file."""
        return self._fragment.num_rows

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return fixed_schema(self._snapshot.schema)

    @property
    def metadata(self) -> FragmentMetadata:
        """The fragment for other processes: `to_json`, `FragmentMetadata.from_json`."""
        return fragment_metadata(self._snapshot, self._fragment, self._rows())

    # Reading -------------------------------------------------------------------------------

    def scanner(self, columns: list[str] | None = None, filter: Filter = None) -> Scan:
        """Plan a scan of this fragment; arguments and errors as for `Table.scan`."""
        where = as_expression(filter, self._context.zone)
        plan = plan_fragments(self._snapshot, [self._fragment], columns=columns, where=where)
        return Scan(self._context.store, plan.for_arrow(), self._context.engine)

    def count_rows(self, filter: Filter = None) -> int:
        """Return the number of matching rows, from the log if possible."""
        return self.scanner([], filter).count()

    def to_table(self, columns: list[str] | None = None, filter: Filter = None) -> pa.Table:
        """Return the rows as one Arrow table."""
        return self.scanner(columns, filter).to_arrow()

    def to_batches(
        self,
        columns: list[str] | None = None,
        filter: Filter = None,
        *,
        batch_size: int | None = None,
        strict_batch_size: bool = False,
        batch_size_bytes: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows as Arrow batches, in sizes as for `Table.to_batches`."""
        require_flags(strict_batch_size=strict_batch_size)
        sized = {} if batch_size is None else {"batch_size": batch_size}
        return self.scanner(columns, filter).to_batches(
            **sized, strict_batch_size=strict_batch_size, batch_size_bytes=batch_size_bytes
        )

    def head(self, num_rows: int = 5, columns: list[str] | None = None) -> pa.Table:
        """Return the first rows."""
        return self.scanner(columns).head(num_rows)

    def take(self, indices: Sequence[int], columns: list[str] | None = None) -> pa.Table:
        """Return rows by their offsets among the rows that are not deleted, in the given order.

        It is `Table.take` for one fragment, and equals pylance's `LanceFragment.take`. An offset
        may occur more than once. Only the pages with these rows are read.

        Raises
        ------
        InvalidInputError
            A value is not a whole number from 0.
        NotFoundError
            There are not as many rows; the offsets at fault are named.
        """
        plan = plan_fragments(self._snapshot, [self._fragment], columns=columns).for_arrow()
        return take_live_of(
            self._context.store, plan, self._fragment, indices, self._context.engine
        )

    def take_offsets(self, offsets: Sequence[int], columns: list[str] | None = None) -> pa.Table:
        """Return rows by their offsets in the files, in the given order.

        Offsets include deleted rows, as in `delete_rows`: an offset is the lower half of
        `_rowaddr`. An offset may occur more than once. Only the pages with these rows are read.

        Raises
        ------
        InvalidInputError
            A value is not a whole number from 0.
        NotFoundError
            A row is beyond the fragment or deleted. The error names the row addresses.
        """
        plan = plan_fragments(self._snapshot, [self._fragment], columns=columns).for_arrow()
        return take_offsets(
            self._context.store, plan, self._fragment, offsets, self._context.engine
        )

    def validate(self) -> None:
        """Raise unless the files of the fragment and the log agree.

        This reads the footers of all files and the deletions: files must exist and have equal
        numbers of rows, and the statistics of the log must be true. `Table.doctor` checks tables.

        Raises
        ------
        DataFileError, BadDeletionVectorError
            A file is missing or unreadable, or contradicts the log. The error names it.
        """
        from txlog.verbs.statistics import require_agreeing

        require_agreeing(self._context.store, self._snapshot, self._fragment, self._rows())

    # Changes to commit ---------------------------------------------------------------------

    def delete(self, predicate: str | Expression) -> FragmentMetadata | None:
        """Write the deletion of rows for which a predicate is true, without a commit.

        Returns
        -------
        The fragment for `FragmentOperation.Delete(updated_fragments=…)`. None if no row remains:
        then add its id to `deleted_fragment_ids`.

        Raises
        ------
        UnsupportedFeatureError
            The table does not use deletion vectors, or cannot be written by txlog.
        """
        return self._deleted(
            required_expression(predicate, argument="predicate", zone=self._context.zone)
        )

    def delete_rows(self, offsets: Sequence[int]) -> FragmentMetadata | None:
        """Write the deletion of rows by their offsets; otherwise as `delete`.

        Rows that are already deleted remain deleted.

        Raises
        ------
        InvalidInputError
            A value is not a whole number from 0, or there twice.
        NotFoundError
            A row is beyond the fragment.
        """
        return self._deleted(offsets)

    def _deleted(self, going: Expression | Sequence[int]) -> FragmentMetadata | None:
        return delete_from_fragment(
            self._context, self._snapshot, self.metadata, self._fragment, going
        )

    def merge_columns(
        self, columns: Any, read_columns: Sequence[str] | None = None
    ) -> tuple[FragmentMetadata, pa.Schema]:
        """Write further columns of the rows to a new file, without a commit.

        Arguments and errors are those of `Table.alter.add_columns`.

        Returns
        -------
        The fragment and the schema for `FragmentOperation.Merge`.
        """
        return merge_into_fragment(
            self._context, self._snapshot, self.metadata, self._fragment, columns, read_columns
        )


def _held(rows: pa.Table) -> pa.Table:
    """Return the file rows as a value, so that the fragment pickles."""
    return rows


named_for_callers(TableFragment)


class TableFragments(Sequence[TableFragment]):
    """The fragments of one version of a table, ordered by id.

    Each `TableFragment` is created at its use, so a table with many files needs no object for each
    file. The sequence equals any sequence of the same fragments.

    Parameters
    ----------
    whole
        Returns the same fragments with all columns of their files.
    places
        The indexes of the fragments that are in this sequence.
    """

    def __init__(
        self,
        context: Context,
        snapshot: Snapshot,
        fragments: FragmentSequence,
        whole: Callable[[], FragmentSequence],
        places: range,
    ):
        self._context = context
        self._snapshot = snapshot
        self._fragments = fragments
        self._whole = whole
        self._places = places

    def __repr__(self) -> str:
        return f"<{self._counted()} of version {self._snapshot.version}>"

    def _counted(self) -> str:
        return f"{len(self):,} fragment" + ("" if len(self) == 1 else "s")

    def _repr_html_(self) -> str:
        from txlog.base.html import rows_html, titled

        shown = [_facts(self._fragments[place]) for place in self._places[:_MOST_SHOWN]]
        left = len(self) - len(shown)
        more = f"<div>… and {left:,} more</div>" if left else ""
        title = f"{self._counted()} of version {self._snapshot.version}"
        return titled(title, rows_html(_SHOWN, shown), more)

    def __len__(self) -> int:
        return len(self._places)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TableFragments | list | tuple):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]  # As for a list.

    @overload
    def __getitem__(self, at: int) -> TableFragment: ...
    @overload
    def __getitem__(self, at: slice) -> TableFragments: ...
    def __getitem__(self, at: int | slice) -> TableFragment | TableFragments:
        """Return a fragment by its index, or the sequence for a slice."""
        if isinstance(at, slice):
            return TableFragments(
                self._context, self._snapshot, self._fragments, self._whole, self._places[at]
            )
        place = self._places[at]
        return self._opened(place, self._fragments[place])

    def __iter__(self) -> Iterator[TableFragment]:
        for start in range(0, len(self), _AT_ONCE):
            places = self._places[start : start + _AT_ONCE]
            if len(places) < 2:
                fragments = [self._fragments[place] for place in places]
            else:
                stop = places.stop if places.stop >= 0 else None
                fragments = self._fragments[places.start : stop : places.step]
            yield from map(self._opened, places, fragments)

    def of_id(self, fragment_id: int) -> TableFragment | None:
        """Return the fragment with an id, or None if it is not in this sequence."""
        place = self._fragments.place_of(fragment_id)
        if place is None or place not in self._places:
            return None
        return self._opened(place, self._fragments[place])

    def __reduce__(self) -> Any:
        return list, (list(self),)  # A fragment pickles without the files of other fragments.

    def _opened(self, place: int, fragment: Fragment) -> TableFragment:
        return TableFragment(
            self._context, self._snapshot, fragment, partial(_rows_at, self._whole, place)
        )


def _rows_at(whole: Callable[[], FragmentSequence], place: int) -> pa.Table:
    """Return the `FILE_ROWS` of the fragment at an index."""
    return whole().file_rows(place)
