"""Look up rows by key, and manage indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from txlog.base.errors import require_flags
from txlog.base.observe import reading
from txlog.table.handle import Handle, OpenVersion

if TYPE_CHECKING:
    import pyarrow as pa

    from txlog.commit.app_versions import AppVersion
    from txlog.commit.intent import UserMetadata
    from txlog.commit.operation import Outcome
    from txlog.lookup.lookup import Lookup, LookupCache, Missing
    from txlog.verbs.indexes import IndexFiles, IndexInfo, IndexReport


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
        """Return the rows with given keys, in the order of the keys.

        An index over the key columns (`create_index`) gives the positions of rows. For files that
        no index covers, the first look-up reads the key columns of the files that may contain the
        keys, and keeps them in memory for all versions. Each look-up then reads only the pages with
        the rows. Rows with the same key have the order of `to_arrow`. A key that is given twice
        returns its rows twice. A key with a null has no row.

        Parameters
        ----------
        keys
            A list or an Arrow array. For several columns, a table, record batch or frame (pandas,
            polars, …) with these columns, dicts or an array of structs with these names, or a list
            of tuples in the order of `on`. Keys are cast to the columns' types if the cast is
            lossless. NaN and NA of pandas are nulls.
        on
            The key column, or several. Floating point and nested columns are refused. Default: the
            columns of the table's only index.
        columns
            The columns to return: those of the table, metadata columns (`_rowaddr`, …), and `_key`
            (int64), the index in `keys` of the row's key, unless the table has a column of this
            name. Default: those of the table.
        missing
            What to do for a key without rows: `skip` omits it, `null` returns one row with the key
            and nulls, `error` raises.

        Raises
        ------
        InvalidInputError
            A column is unknown or cannot be a key, or the keys do not have its type.
        NotFoundError
            With `missing="error"`, some keys have no row. The error names five of them.
        """
        version = self._open
        schema = version.snapshot.schema
        chosen = schema.names()
        if columns is not None:  # As the table spells them.
            fields = [(name, schema.get(name)) for name in columns]
            chosen = [name if field is None else field.name for name, field in fields]
        return self._lookup(version, on).rows(keys, chosen, missing)

    def contains(self, keys: Any, *, on: str | Sequence[str] | None = None) -> pa.BooleanArray:
        """Return for each key whether any row has it; arguments and errors as for `lookup`."""
        from txlog.base.arrow import pc

        return pc.greater(self.lookup_counts(keys, on=on), 0)

    @reading("LOOKUP")
    def lookup_counts(self, keys: Any, *, on: str | Sequence[str] | None = None) -> pa.Int64Array:
        """Return the number of rows for each key; arguments and errors as for `lookup`."""
        return self._lookup(self._open, on).counts(keys)

    def _lookup(self, version: OpenVersion, on: str | Sequence[str] | None) -> Lookup:
        from txlog.lookup.lookup import KEY, Lookup
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
                choose_columns(snapshot.schema, _in_index_order(version, names)),
                choose_columns(snapshot.schema, names),
                version.indexes(),
                version.coverages,
                snapshot.schema.get(KEY) is not None,
                snapshot.metadata.id,
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
        """Define and build an index over key columns: look-ups then read only the needed pages.

        It is a table property, `txlog.index.NAME`, and files in the hidden folder `_txlog_index`.
        It needs no table feature, and other engines read and write the table as before. From now
        on, txlog's writes extend the index. The next `build_index` covers the files of other
        writers. If parts are missing, stale or damaged, look-ups are slower, never wrong.

        Parameters
        ----------
        columns
            The key column, or several. Keys need not be unique. Null keys are not indexed.
            Partition columns, floating point and nested columns are refused.
        name
            At most 63 characters of a-z, 0-9 and `_`. Default: derived from the columns' names.
        build
            Whether to read the keys of existing files (`build_index`).

        Returns
        -------
        Outcome
            Without a version if the table already has exactly this index.

        Raises
        ------
        InvalidInputError
            A column is unknown or cannot be a key, or the name is invalid.
        AlreadyExistsError
            An index with this name exists over other columns.
        """
        require_flags(build=build)
        from txlog.data_files.options import as_names
        from txlog.verbs.indexes import CreateIndex

        operation = CreateIndex(self._context, as_names(columns, argument="columns"), name)
        outcome = self._run(operation, txn, user_metadata)
        if build and not outcome.skipped:
            self.build_index(operation.index)
        return outcome

    def build_index(self, name: str | None = None, *, rebuild: bool = False) -> IndexReport:
        """Read the keys of files that an index does not cover, and write them as a new segment.

        The files are those of the latest version, including deleted rows. The table's engine reads
        them: threads or Spark's executors.

        Parameters
        ----------
        name
            Default: the table's only index.
        rebuild
            Read the keys of all files, and delete the old segments.

        Raises
        ------
        NotFoundError, InvalidInputError
            The index does not exist, or `name` is omitted and there is not exactly one index.
        DataFileError
            A file is missing or unreadable.
        """
        require_flags(rebuild=rebuild)
        return self._index_files(name).build(rebuild=rebuild)

    def optimize_index(self, name: str | None = None) -> IndexReport:
        """Merge all segments of an index into one, with as few runs as possible.

        No data is read. Keys of files that are neither in the table nor tombstones are omitted.
        Arguments and errors as for `build_index`. A write that finds 32 segments merges the small
        ones automatically.
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
        """Drop an index and delete its files.

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
        """Return the indexes of this version by name, and how much of it each one covers."""
        from txlog.protocol.properties import index_definitions
        from txlog.verbs.indexes import IndexFiles

        snapshot, segments = self._snapshot, self._cached().segments
        return [
            IndexFiles(self._context, snapshot, definition, segments).info()
            for _, definition in sorted(index_definitions(snapshot.metadata.configuration).items())
        ]


def _in_index_order(version: OpenVersion, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return key columns in the order of an index over them, if there is none in their own."""
    from txlog.verbs.indexes import logical_columns

    orders = [logical_columns(version.snapshot, one) or () for one in version.indexes()]
    same = [found for found in orders if sorted(found) == sorted(names)]
    return names if names in same or not same else same[0]
