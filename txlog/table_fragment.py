"""`TableFragment`: one fragment of an opened table, as people who know Lance expect it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from operator import eq
from typing import Any, overload

import pyarrow as pa
import pyarrow.compute as pc

from txlog.actions.columns import flat
from txlog.expressions.sql import as_expression
from txlog.expressions.tree import Expression
from txlog.fragments.fragment import DataFile, DeletionFile, Fragment
from txlog.fragments.metadata import FragmentMetadata
from txlog.scan.lazy_plan import plan_fragments
from txlog.scan.scan import Scan
from txlog.scan.take import take_offsets
from txlog.schema.arrow import arrow_schema
from txlog.snapshot.snapshot import Snapshot
from txlog.writing.operation import Place
from txlog.writing.workers.fragments import (
    delete_from_fragment,
    fragment_metadata,
    merge_into_fragment,
)

Filter = str | Expression | None


class LogRows:
    """The `FILE_ROWS` of live files, read from the log when somebody asks for one of them.

    Parameters
    ----------
    load
        Returns them.
    """

    def __init__(self, load: Callable[[], pa.Table]) -> None:
        self._load = load

    def __reduce__(self) -> tuple[Any, ...]:
        return _loaded_rows, (self._live,)

    @cached_property
    def _live(self) -> pa.Table:
        return self._load()

    @cached_property
    def _by_path(self) -> tuple[pa.Array, pa.Array]:
        """The paths, ascending, and at which row each is."""
        paths = flat(self._live["path"])
        order = pc.sort_indices(paths)
        return paths.take(order), order

    def of(self, paths: Sequence[str]) -> pa.Table:
        """Return the rows of paths, in their order."""
        ordered, rows = self._by_path
        places = [
            bisect_left(range(len(ordered)), path, key=lambda at: str(ordered[at]))
            for path in paths
        ]
        return self._live.take(rows.take(pa.array(places, pa.int64())))


def _loaded_rows(live: pa.Table) -> LogRows:
    return LogRows(lambda: live)


class TableFragments(Sequence["TableFragment"]):
    """The fragments of one version of a table, ordered by id.

    They are columns; a fragment is made when it is taken out. A slice is of this class too.
    """

    def __init__(
        self, place: Place, snapshot: Snapshot, rows: LogRows, fragments: Sequence[Fragment]
    ):
        self._place = place
        self._snapshot = snapshot
        self._log_rows = rows
        self._fragments = fragments

    def __len__(self) -> int:
        return len(self._fragments)

    @overload
    def __getitem__(self, place: int) -> TableFragment: ...

    @overload
    def __getitem__(self, place: slice) -> TableFragments: ...

    def __getitem__(self, place: int | slice) -> TableFragment | TableFragments:
        if isinstance(place, slice):
            some = self._fragments[place]
            return TableFragments(self._place, self._snapshot, self._log_rows, some)
        return self._of(self._fragments[place])

    def __iter__(self) -> Iterator[TableFragment]:
        return map(self._of, self._fragments)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<txlog.TableFragments: {len(self)} of version {self._snapshot.version}>"

    def with_id(self, number: int) -> TableFragment | None:
        """Return the fragment of an id, or None if there is none."""
        place = bisect_left(range(len(self)), number, key=lambda at: self._fragments[at].id)
        found = self[place] if place < len(self) else None
        return found if found is not None and found.id == number else None

    def _of(self, fragment: Fragment) -> TableFragment:
        return TableFragment(self._place, self._snapshot, self._log_rows, fragment)


class TableFragment:
    """A fragment of one version of a table: its rows can be read, and changes of it prepared.

    What `delete`, `delete_rows` and `merge_columns` return is not committed: hand it, as JSON if
    need be, to `Table.commit`. A fragment pickles, so any worker can have it.
    """

    def __init__(
        self,
        place: Place,
        snapshot: Snapshot,
        rows: LogRows,
        fragment: Fragment,
    ):
        self._place = place
        self._snapshot = snapshot
        self._log_rows = rows  # This fragment's are among them.
        self._fragment = fragment

    def __repr__(self) -> str:
        fragment = self._fragment
        return (
            f"txlog.TableFragment(id={fragment.id}, physical_rows={fragment.physical_rows}, "
            f"num_deletions={fragment.num_deletions}, files={len(fragment.files)})"
        )

    def _key(self) -> tuple[str, int, int]:
        return (self._snapshot.root, self._snapshot.version, self._fragment.id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableFragment) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __getstate__(self) -> dict[str, Any]:
        # Without what the snapshot knows of other files: it may be as large as the table's log.
        return {
            **self.__dict__,
            "_snapshot": self._snapshot.without_files(),
            "_log_rows": _loaded_rows(self._rows()),
        }

    def _rows(self) -> pa.Table:
        """Return the `FILE_ROWS` of its files, in their order."""
        return self._log_rows.of([file.path for file in self._fragment.files])

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
        """The fragment's id, by the name that pylance gives it."""
        return self._fragment.id

    @property
    def is_durable(self) -> bool:
        """Whether the id means the same rows in other versions too."""
        return self._fragment.is_durable

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The data files: the primary, then those that give its rows further columns."""
        return self._fragment.files

    def data_files(self) -> list[DataFile]:
        """Return the data files, the primary first."""
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
        """How many rows the files have, deleted ones included; None if the log does not say."""
        return self._fragment.physical_rows

    @property
    def num_deletions(self) -> int:
        """How many rows are deleted."""
        return self._fragment.num_deletions

    @property
    def num_rows(self) -> int | None:
        """How many rows are left, or None if the log does not say; `count_rows` looks."""
        return self._fragment.num_rows

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return arrow_schema(self._snapshot.schema)

    @property
    def metadata(self) -> FragmentMetadata:
        """The fragment as other processes get it: `to_json`, `FragmentMetadata.from_json`."""
        return fragment_metadata(self._snapshot, self._fragment, self._rows())

    # Reading -------------------------------------------------------------------------------

    def scanner(self, columns: list[str] | None = None, filter: Filter = None) -> Scan:
        """Plan a scan of this fragment; arguments and errors as for `Table.scan`."""
        where = as_expression(filter)
        plan = plan_fragments(self._snapshot, [self._fragment], columns=columns, where=where)
        return Scan(self._place.store, plan, self._place.engine)

    def count_rows(self, filter: Filter = None) -> int:
        """Return the number of rows that are left, from the log if it knows and all are meant."""
        return self.scanner([], filter).count()

    def to_table(self, columns: list[str] | None = None, filter: Filter = None) -> pa.Table:
        """Return the rows as one Arrow table."""
        return self.scanner(columns, filter).to_arrow()

    def to_batches(
        self, columns: list[str] | None = None, filter: Filter = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows as Arrow batches."""
        return self.scanner(columns, filter).to_batches()

    def head(self, num_rows: int = 5, columns: list[str] | None = None) -> pa.Table:
        """Return the first rows."""
        return self.scanner(columns).head(num_rows)

    def take(self, indices: Sequence[int], columns: list[str] | None = None) -> pa.Table:
        """Return rows by their offsets in the fragment, in the order given.

        Offsets count all rows of the files, deleted ones too; one may occur more than once. Only
        the row groups that hold the rows are read.

        Raises
        ------
        InvalidInputError
            One is no whole number from 0.
        NotFoundError
            A row is beyond the fragment, or deleted; those at fault are named by row address.
        """
        plan = plan_fragments(self._snapshot, [self._fragment], columns=columns)
        return take_offsets(self._place.store, plan, self._fragment, indices, self._place.engine)

    # Changes to be committed ---------------------------------------------------------------

    def delete(self, predicate: str | Expression) -> FragmentMetadata | None:
        """Write the deletion of the rows of which a predicate is true; nothing is committed.

        Returns
        -------
        The fragment for `Operation.Delete(updated_fragments=…)`; None if no row is left, so that
        its id belongs into `deleted_fragment_ids`.

        Raises
        ------
        UnsupportedFeatureError
            The table does not use deletion vectors, or may not be written by txlog.
        """
        where = as_expression(predicate)
        assert where is not None
        return self._deleted(where)

    def delete_rows(self, offsets: Sequence[int]) -> FragmentMetadata | None:
        """Write the deletion of rows by their offsets; as `delete` otherwise.

        Raises
        ------
        InvalidInputError
            One is no whole number from 0, or there twice.
        NotFoundError
            A row is beyond the fragment, or deleted already.
        """
        return self._deleted(offsets)

    def _deleted(self, going: Expression | Sequence[int]) -> FragmentMetadata | None:
        return delete_from_fragment(
            self._place, self._snapshot, self.metadata, self._fragment, going
        )

    def merge_columns(
        self, columns: Any, read_columns: Sequence[str] | None = None
    ) -> tuple[FragmentMetadata, pa.Schema]:
        """Write further columns of the rows, in a file of their own; nothing is committed.

        Arguments and errors are those of `Table.add_columns`.

        Returns
        -------
        The fragment and the schema for `Operation.Merge`.
        """
        return merge_into_fragment(
            self._place, self._snapshot, self.metadata, self._fragment, columns, read_columns
        )
