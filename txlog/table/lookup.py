"""Rows by key, and the indexes that say where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from txlog.observe import reading
from txlog.table.handle import Handle, OpenVersion, checked

if TYPE_CHECKING:
    import pyarrow as pa

    from txlog.commit.app_versions import AppVersion
    from txlog.commit.intent import UserMetadata
    from txlog.commit.operation import Outcome
    from txlog.lookup.lookup import Lookup, LookupCache, Missing
    from txlog.verbs.indexes import IndexFiles, IndexInfo, IndexReport


@checked
class Lookups(Handle):
    """The part of `Table` that finds rows by key."""

    @reading("LOOKUP")
    def lookup(
        self,
        keys: Any,
        *,
        on: str | Sequence[str] | None = None,
        columns: list[str] | None = None,
        missing: Missing = "skip",
    ) -> pa.Table:
        """Return the rows that have given keys, in the order of the keys.

        An index over the key columns (`create_index`) says where the rows are. Of files that it
        does not cover, or without one, the first look-up reads the key columns of the files that
        may have the keys, and keeps them in memory, for this version and all others. Each one then
        reads only the pages that hold the rows. Rows of one key come in the order of `to_arrow`; a
        key that is given twice is answered twice; a key with a null has no row.

        Parameters
        ----------
        keys
            A list or an Arrow array; of several columns a table or record batch with these
            columns, or a list of tuples. They are cast to the columns' types if nothing is lost.
        on
            The key column, or several. Floating point and nested columns are refused. Default: the
            columns of the table's only index.
        columns
            The columns to return: the table's, metadata columns (`_rowaddr`, …), and `_key`
            (int64), the place in `keys` of the key that a row answers. Default: the table's.
        missing
            Of a key that no row has: `skip` leaves it out, `null` gives one row of nulls with the
            key, `error` raises.

        Raises
        ------
        InvalidInputError
            A column is unknown or cannot be a key, or the keys are not of its type.
        NotFoundError
            With `missing="error"`: some keys have no row; five are named.
        """
        version = self._open
        chosen = version.snapshot.schema.names() if columns is None else columns
        return self._lookup(version, on).rows(keys, chosen, missing)

    def contains(self, keys: Any, *, on: str | Sequence[str] | None = None) -> pa.BooleanArray:
        """Return for each key whether a row has it; arguments and errors as for `lookup`."""
        from txlog.arrow import pc

        return pc.greater(self.lookup_counts(keys, on=on), 0)

    @reading("LOOKUP")
    def lookup_counts(self, keys: Any, *, on: str | Sequence[str] | None = None) -> pa.Int64Array:
        """Return how many rows each key has; arguments and errors as for `lookup`."""
        return self._lookup(self._open, on).counts(keys)

    def _lookup(self, version: OpenVersion, on: str | Sequence[str] | None) -> Lookup:
        from txlog.lookup.lookup import Lookup
        from txlog.scan.read_plan import choose_columns
        from txlog.verbs.indexes import indexed_columns

        snapshot = version.snapshot
        asked = None if on is None else (on,) if isinstance(on, str) else tuple(on)
        kept = version.lookups.get(asked)
        if kept is None:
            names = indexed_columns(snapshot) if asked is None else asked
            kept = version.lookups[asked] = Lookup(
                self._context.store,
                self._context.engine,
                version.plan,
                self._cached(),
                choose_columns(snapshot.schema, names),
                version.indexes(),
                version.coverages,
            )
        return kept

    def _cached(self) -> LookupCache:
        from txlog.lookup.lookup import LookupCache

        if self._lookup_cache is None:
            self._lookup_cache = LookupCache(segment_folder=self._index_cache)
        return self._lookup_cache

    def create_index(
        self,
        columns: str | Sequence[str],
        *,
        name: str | None = None,
        build: bool = True,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Define an index over key columns, and build it: look-ups then read wanted pages alone.

        It is a property of the table, `txlog.index.NAME`, and files in the hidden folder
        `_txlog_index`; the table needs no table feature, and other engines read and write it as
        before. Whatever txlog writes from now on comes with its part of the index. Files of other
        writers are covered by the next `build_index`. If parts are missing, stale or damaged,
        look-ups are slower, never wrong.

        Parameters
        ----------
        columns
            The key column, or several. A key need not be unique, and may be null, which is not
            indexed. Partition columns, floating point and nested columns are refused.
        name
            At most 63 of a-z, 0-9 and `_`. Default: made of the columns' names.
        build
            Read the keys of the files that are there (`build_index`).

        Returns
        -------
        Outcome
            Without a version if the table has this very index already.

        Raises
        ------
        InvalidInputError
            A column is unknown or cannot be a key, or the name is none.
        AlreadyExistsError
            There is an index of the name over other columns.
        """
        from txlog.data_files.options import as_names
        from txlog.verbs.indexes import CreateIndex

        operation = CreateIndex(self._context, as_names(columns, argument="columns"), name)
        outcome = self._run(operation, txn, user_metadata)
        if build and not outcome.skipped:
            self.build_index(operation.index)
        return outcome

    def build_index(self, name: str | None = None, *, rebuild: bool = False) -> IndexReport:
        """Read the keys of files that an index does not cover, and write them as a new segment.

        The files are those of the latest version, deleted rows included. The table's engine reads
        them: threads, or Spark's executors.

        Parameters
        ----------
        name
            Default: the table's only index.
        rebuild
            Of all files; what was there before is deleted.

        Raises
        ------
        NotFoundError, InvalidInputError
            There is no such index, or not exactly one.
        DataFileError
            A file is missing or unreadable.
        """
        return self._index_files(name).build(rebuild=rebuild)

    def optimize_index(self, name: str | None = None) -> IndexReport:
        """Make one segment of all those of an index, and of their runs as few as can be.

        No data is read. Keys of files that neither this table nor its tombstones name are left out.
        Arguments and errors as for `build_index`. A write that finds 32 segments merges the small
        ones by itself.
        """
        return self._index_files(name).merge()

    def _index_files(self, name: str | None) -> IndexFiles:
        from txlog.verbs.indexes import IndexFiles, definition_of

        self._move(self._latest())
        self._open.coverages.clear()
        definition = definition_of(self._snapshot, name)
        return IndexFiles(self._context, self._snapshot, definition, self._cached().segments)

    def drop_index(
        self,
        name: str,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Take an index out of the table, and delete its files.

        Raises
        ------
        NotFoundError
            There is no such index.
        """
        from txlog.verbs.indexes import DropIndex, delete_index

        outcome = self._run(DropIndex(self._context, name), txn, user_metadata)
        if outcome:
            delete_index(self._context, name)
        return outcome

    def indexes(self) -> list[IndexInfo]:
        """Return the indexes of this version, by name, and what they cover of it."""
        from txlog.protocol.properties import index_definitions
        from txlog.verbs.indexes import IndexFiles

        snapshot, segments = self._snapshot, self._cached().segments
        return [
            IndexFiles(self._context, snapshot, definition, segments).info()
            for _, definition in sorted(index_definitions(snapshot.metadata.configuration).items())
        ]
