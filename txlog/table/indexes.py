"""`Table.indexes`: indexes over key columns, for look-ups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from txlog.base.errors import TxlogError, require_flags
from txlog.table.handle import Namespace

if TYPE_CHECKING:
    from txlog.commit.app_versions import AppVersion
    from txlog.commit.intent import UserMetadata
    from txlog.commit.operation import Outcome
    from txlog.verbs.indexes import IndexFiles, IndexInfo, IndexReport


class TableIndexes(Namespace):
    """Create and maintain indexes. Other engines read and write the table as before."""

    _name = "indexes"

    def create(
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
        on, txlog's writes extend the index. The next `build` covers the files of other
        writers. If parts are missing, stale or damaged, look-ups are slower, never wrong.

        Parameters
        ----------
        columns
            The key column, or several. Keys need not be unique. Null keys are not indexed.
            Partition columns, floating point and nested columns are refused.
        name
            At most 63 characters of a-z, 0-9 and `_`. Default: derived from the columns' names.
        build
            Whether to read the keys of existing files (`build`).

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
        DataFileError
            A file is missing or unreadable. The index is defined, and covers nothing yet.
        """
        require_flags(build=build)
        from txlog.base.effects import is_rehearsing
        from txlog.data_files.options import as_names
        from txlog.verbs.indexes import CreateIndex

        operation = CreateIndex(as_names(columns, argument="columns"), name)
        outcome = self._table._run(operation, txn, user_metadata)
        if build and not outcome.skipped and not is_rehearsing():
            try:
                self.build(operation.index)
            except TxlogError as error:
                name = operation.index
                error.remedy = (
                    f"{error.remedy or 'Remove the cause'}. The index is defined all the same, and "
                    "look-ups read the files that it does not cover. When the cause is gone, "
                    f"indexes.build({name!r}) covers them; indexes.drop({name!r}) removes the index"
                )
                raise
        return outcome

    def build(self, name: str | None = None, *, rebuild: bool = False) -> IndexReport:
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
        return self._files(name).build(rebuild=rebuild)

    def merge(self, name: str | None = None) -> IndexReport:
        """Merge all segments of an index into one, with as few runs as possible.

        No data is read. Keys of files that are neither in the table nor tombstones are omitted.
        Arguments and errors as for `build`. A write that finds 32 segments merges the small
        ones automatically.
        """
        return self._files(name).merge()

    def drop(
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

        outcome = self._table._run(DropIndex(name), txn, user_metadata)
        if outcome:
            delete_index(self._table._context, name)
        return outcome

    def list(self) -> dict[str, IndexInfo]:
        """Return the indexes of this version by name, and how much of it each one covers."""
        from txlog.protocol.properties import index_definitions
        from txlog.verbs.indexes import IndexFiles

        snapshot, segments = self._table._snapshot, self._table._cached().segments
        return {
            name: IndexFiles(self._table._context, snapshot, definition, segments).info()
            for name, definition in sorted(
                index_definitions(snapshot.metadata.configuration).items()
            )
        }

    def _files(self, name: str | None) -> IndexFiles:
        from txlog.verbs.indexes import IndexFiles, definition_of

        table = self._table
        table._move(table._latest())
        table._open.coverages.clear()
        definition = definition_of(table._snapshot, name)
        return IndexFiles(table._context, table._snapshot, definition, table._cached().segments)
