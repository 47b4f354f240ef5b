"""The verbs that change rows, which a table and its transactions share."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from txlog.base.errors import (
    InvalidInputError,
    named_for_callers,
    require_whole,
)
from txlog.base.frames import frames_of

if TYPE_CHECKING:
    from txlog.base.frames import Frames
    from txlog.commit.app_versions import AnyAppVersion, AppVersion
    from txlog.commit.context import Context
    from txlog.commit.intent import UserMetadata
    from txlog.commit.operation import Operation, Outcome
    from txlog.data_files.assignments import Updates
    from txlog.data_files.modes import PartitionMode, SchemaMode, WriteModes
    from txlog.data_files.options import WriteOptions
    from txlog.data_files.sieve import Rejects
    from txlog.data_files.write_plan import AddedFiles
    from txlog.expressions.sql import Where
    from txlog.expressions.tree import Expression
    from txlog.snapshot.snapshot import Snapshot
    from txlog.table.handle import Handle
    from txlog.table.merge import TableMerger
    from txlog.verbs.constraints import OnConflict
    from txlog.verbs.merge.clauses import Clause, MergeRequest
    from txlog.verbs.quarantine import Quarantine

OnError = Literal["error", "quarantine"]
"""What a write does with rows that do not fit the table."""


def quarantine_place(
    on_error: OnError,
    given: Handle | str | os.PathLike[str] | None,
    options: Mapping[str, Any],
) -> Context | None:
    """Return where the quarantine of a write is; None if rows that do not fit are an error.

    `options` are the storage options of the table that is written.

    Raises
    ------
    InvalidInputError
        One argument lacks the other.
    """
    if on_error not in ("error", "quarantine"):
        raise InvalidInputError(
            argument="on_error",
            reason=f"{on_error!r} is not one of 'error', 'quarantine'",
        )
    if (on_error == "quarantine") != (given is not None):
        raise InvalidInputError(
            argument="quarantine",
            reason="no table for rows that do not fit is named"
            if given is None
            else 'a quarantine has no effect without on_error="quarantine"',
            remedy="Say that such rows go to a quarantine, and name a table or location",
        )
    if given is None:
        return None
    from txlog.commit.context import Context
    from txlog.store.base import threads_for
    from txlog.store.branches import without_branch
    from txlog.store.open import open_store
    from txlog.table.handle import Handle

    if isinstance(given, Handle):
        return given._context
    store = open_store(given, without_branch(options))
    return Context(store, engine=threads_for(store))


def keeper_of(
    context: Context, on_error: OnError, given: Handle | str | os.PathLike[str] | None
) -> Quarantine | None:
    """Return the quarantine of a write; None if rows that do not fit are an error.

    Raises
    ------
    InvalidInputError
        One argument lacks the other, or the table would be its own quarantine.
    """
    there = quarantine_place(on_error, given, context.store.options)
    if there is None:
        return None
    from txlog.verbs.quarantine import Quarantine  # Few writes have one.

    return Quarantine(there, context)


class RowVerbs(ABC):
    """Verbs that change rows. A subclass carries out their operations."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        named_for_callers(cls)

    _context: Context

    def _quarantine_of(
        self, on_error: OnError, given: Handle | str | os.PathLike[str] | None
    ) -> Quarantine | None:
        """Return the quarantine of a write, as `keeper_of`."""
        return keeper_of(self._context, on_error, given)

    def _frames_of(self, data: Any) -> Frames | None:
        """Return how the workers of an engine write data; None: this process does."""
        return None

    def _version_read(self, data: Any) -> int | None:
        """Return the version of this table that data reads, if it is a frame of an engine."""
        frames = frames_of(data)
        if frames is None:
            return None
        return frames.version_read(data, self._context.store, self._log_version())

    def _log_version(self) -> int:
        """Return the version of the log that frames read now."""
        return self._latest().version

    def _named(self) -> AnyAppVersion | None:
        """Return the name of the next operation's rows in a quarantine, if workers write them."""
        return None

    def _files_of(
        self, data: Any, modes: WriteModes, options: WriteOptions | None, keeper: Quarantine | None
    ) -> tuple[AddedFiles, Rejects | None]:
        """Return the files for data, which are written when they are first needed.

        Also what takes the rows that do not fit, if anything does.
        """
        from txlog.data_files.options import as_options
        from txlog.data_files.write_plan import AddedFiles

        frames = self._frames_of(data)
        if frames is None:
            return AddedFiles(data, modes=modes, options=options), keeper
        found: tuple[AddedFiles, Rejects | None]
        found = frames.files(data, modes, as_options(options), keeper, self._named())
        return found

    @abstractmethod
    def _run(
        self, operation: Operation, txn: AnyAppVersion | None, user_metadata: UserMetadata | None
    ) -> Outcome:
        """Carry out an operation."""

    @abstractmethod
    def _latest(self) -> Snapshot:
        """Return the version that the next operation changes."""

    @property
    @abstractmethod
    def _zone(self) -> str | None:
        """The time zone of predicates; None: UTC."""

    def _merge(
        self,
        request: MergeRequest,
        clauses: Sequence[Clause],
        txn: AppVersion | None,
        user_metadata: UserMetadata | None,
    ) -> Outcome:
        """Carry out a merge."""
        from txlog.verbs.merge.merge import Merge

        return self._run(Merge(request, clauses), txn, user_metadata)

    def append(
        self,
        data: Any,
        *,
        schema_mode: SchemaMode = None,
        on_conflict: OnConflict = "error",
        on_error: OnError = "error",
        quarantine: Handle | str | os.PathLike[str] | None = None,
        options: WriteOptions | None = None,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Add rows, in one commit.

        Parameters
        ----------
        data
            Anything that supports Arrow: pyarrow, polars, pandas, duckdb, a reader, a scan.
        schema_mode
            `merge` adds columns that only the data has. Default: refuse them.
        on_conflict
            What to do with rows whose unique key (`alter.add_constraint`) the table has already.
            `error` refuses all rows. `ignore` leaves these rows out, and of several new rows with
            one key it adds the first. `update` updates the table's rows, as `upsert` does. The last
            two are for tables with one unique key.
        on_error
            What to do if rows do not fit: they break a constraint, have a null in a NOT NULL column
            or a text that is too long, or a value that is none of the column's type. `error`
            refuses all rows. `quarantine` puts these rows into another table, each with its reason,
            and commits the others.
        quarantine
            That table, or its location: a new table is made for the first such row
            (docs/guides/quarantine.md). Its commit comes before that of the good rows. With `txn`,
            a repeated call has each row once in one of the tables. The metric
            `numQuarantinedRows` counts its rows.
        options
            The sizes and the encoding of new files: `txlog.WriteOptions(max_rows_per_file=…)`.
        txn
            `(app_id, version)`: if the table records this or a later version of the application,
            nothing is written and the outcome is `skipped`. Otherwise the commit records it.
        user_metadata
            Text for the commit, or a mapping of names to JSON values, such as `{"job": "nightly",
            "attempt": 2}`, which become fields of the commit's `commitInfo`. `userName`, `userId`
            and `userMetadata` name the author and the reason. `operationParameters` are added to
            those of the verb, which win. The parameters of writes, such as `mode` and `predicate`,
            are always those of the verb.

        Raises
        ------
        SchemaMismatchError
            The data does not fit the table. Nothing was committed.
        DuplicateKeyError
            The table, or another new row, has the unique key of a new row. Nothing was committed.
        CommitConflictError, OutcomeUnknownError, StoreError
            The commit failed; see these classes.
        """
        keeper = self._quarantine_of(on_error, quarantine)
        if on_conflict != "error":
            return self._append_over(
                data, on_conflict, schema_mode, options, txn, user_metadata, keeper
            )
        from txlog.data_files.modes import WriteModes
        from txlog.verbs.append import Append

        modes = WriteModes(schema_mode=schema_mode)
        files, rejects = self._files_of(data, modes, options, keeper)
        return self._run(Append.of_files(files, rejects), txn, user_metadata)

    def _append_over(
        self,
        data: Any,
        on_conflict: OnConflict,
        schema_mode: SchemaMode,
        options: WriteOptions | None,
        txn: AppVersion | None,
        user_metadata: UserMetadata | None,
        quarantine: Quarantine | None,
    ) -> Outcome:
        """Add rows to a table that may have their keys already."""
        from txlog.verbs.constraints import over_conflicts
        from txlog.verbs.merge.clauses import Clause

        request = over_conflicts(
            data, on_conflict, self._latest(), schema_mode, options, quarantine
        )
        # As in an append without conflicts, the data may lack columns.
        clauses = [Clause("not_matched", "insert", partial=True)]
        if on_conflict == "update":
            clauses.insert(0, Clause("matched", "update", partial=True, keeps_fields=True))
        return self._merge(request, clauses, txn, user_metadata)

    def overwrite(
        self,
        data: Any,
        where: Where = None,
        *,
        partition_mode: PartitionMode = "static",
        partition_by: Sequence[str] | str | None = None,
        schema_mode: SchemaMode = None,
        computed_from: int | None = None,
        on_error: OnError = "error",
        quarantine: Handle | str | os.PathLike[str] | None = None,
        options: WriteOptions | None = None,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Replace all rows, the rows of a predicate, or the partitions of the data.

        Parameters
        ----------
        where
            Replace only rows for which this is true; each new row must satisfy it.
        partition_mode
            `dynamic` replaces only the partitions for which the data has rows.
        partition_by
            The new partition columns of the table, with `schema_mode="overwrite"`.
        schema_mode
            `overwrite` replaces the schema too, `merge` adds columns.
        computed_from
            The version of this table from whose rows the data is computed, such as
            `t.version` for a filter of `t.scan()`. If another writer has changed rows that are
            replaced since then, the call raises `CommitConflictError`, because the overwrite would
            undo that. None: the data replaces the rows of every version, but a frame of Spark those
            of the version that it reads.

        The other arguments and the errors are those of `append`.
        """
        from txlog.data_files.modes import WriteModes
        from txlog.data_files.options import as_names
        from txlog.expressions.sql import as_expression
        from txlog.verbs.overwrite import Overwrite

        if computed_from is not None:
            computed_from = require_whole("computed_from", computed_from)
        keeper = self._quarantine_of(on_error, quarantine)
        modes = WriteModes(
            mode="overwrite",
            where=as_expression(where, self._zone),
            partition_mode=partition_mode,
            schema_mode=schema_mode,
            partition_by=None if partition_by is None else as_names(partition_by),
        )
        files, rejects = self._files_of(data, modes, options, keeper)
        is_stated = computed_from is not None
        operation = Overwrite(
            files,
            options=options,
            computed_from=computed_from if is_stated else self._version_read(data),
            is_stated=is_stated,
            quarantine=rejects,
        )
        return self._run(operation, txn, user_metadata)

    def delete(
        self,
        where: Where,
        *,
        options: WriteOptions | None = None,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Delete the rows for which a predicate is true; None deletes all rows.

        Data files are not rewritten: deletion vectors mark the rows, unless the table disables
        them. The predicate can use `_rowid` if the table tracks rows.

        Raises
        ------
        InvalidInputError
            The predicate does not fit the table.
        UnsupportedFeatureError
            The table is append-only, or cannot be written by txlog.
        """
        from txlog.expressions.sql import as_expression
        from txlog.verbs.delete import Delete

        operation = Delete(as_expression(where, self._zone), options=options)
        return self._run(operation, txn, user_metadata)

    def update(
        self,
        updates: Updates | None = None,
        where: Where = None,
        *,
        new_values: Updates | None = None,
        options: WriteOptions | None = None,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Update rows in one commit::

            table.update({"delay": "delay + 1"}, "carrier = 'UA'")

        Only changed rows are written; deletion vectors mark the old rows. If the table disables
        deletion vectors, files are rewritten. In a table with the feature `txlog.fragments`, only
        the columns with new values are written where this is cheaper; then rows keep their places.
        Rows keep their ids if the table tracks rows. All values are computed from the old row.

        Parameters
        ----------
        updates
            Columns, or nested fields such as `st.b`, with SQL text or expressions. A value of
            another type is converted as in ANSI SQL: numbers if they fit, all simple values to
            strings. A struct needs all fields, in any order.
        where
            Update only rows for which this is true; as for `delete`. Default: all rows.
        new_values
            Columns with Python values.

        The other arguments are those of `append`.

        Raises
        ------
        InvalidInputError
            A column does not exist, or a value or the predicate does not fit the table.
        SchemaMismatchError
            A new value does not fit its column, or breaks a constraint. Nothing was committed.
        UnsupportedFeatureError
            The table is append-only, or cannot be written by txlog.
        """
        from txlog.expressions.sql import as_expression
        from txlog.verbs.update import Update

        operation = Update(
            updates,
            as_expression(where, self._zone),
            new_values=new_values,
            options=options,
        )
        return self._run(operation, txn, user_metadata)

    def merge(
        self,
        source: Any,
        predicate: str | Expression | None = None,
        source_alias: str = "source",
        target_alias: str = "target",
        *,
        on: Sequence[str] | str | None = None,
        schema_mode: Literal["merge"] | None = None,
        on_error: OnError = "error",
        quarantine: Handle | str | os.PathLike[str] | None = None,
        options: WriteOptions | None = None,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> TableMerger:
        """Update, delete and insert rows from a source in one commit::

            (
                table.merge(new_rows, "target.id = source.id")
                .when_matched_update_all()
                .when_not_matched_insert_all()
                .execute()
            )

        Files whose statistics show that no source row can match are not read. In other files, the
        columns of the condition are read first. Only changed rows are written. Memory holds the
        keys of the source and a few batches; a source of more than 1 GiB is kept in a temporary
        file.

        Parameters
        ----------
        source
            Anything that supports Arrow: pyarrow, polars, pandas, duckdb, a reader, a scan.
        predicate
            The match condition over both sides. Without an equality between the sides, all pairs of
            rows are compared.
        on
            In place of a predicate: key columns, which both sides have. A null equals nothing.
            Columns that the source lacks keep their values in updated rows, and get their defaults
            in new ones. Fields of structs that it lacks keep their values, too; they are null in
            new rows and in elements of arrays and maps, which are replaced as a whole.
        source_alias, target_alias
            The names of the sides in expressions. A column that only one side has needs no alias.
        schema_mode
            `merge` adds columns and fields of structs that only the source has; those that it lacks
            keep their values, as with `on`. Default: the source's structs must have all fields.
        on_error, quarantine
            As for `append`. A source row goes to the quarantine if a row that it updates or inserts
            does not fit. It changes nothing then, but still matches.

        The other arguments are those of `append`. Nothing happens before `execute`.
        """
        from txlog.data_files.options import as_names
        from txlog.table.merge import TableMerger
        from txlog.verbs.merge.clauses import MergeRequest

        request = MergeRequest(
            data=source,
            predicate=predicate,
            on=None if on is None else as_names(on, argument="on"),
            source_alias=source_alias,
            target_alias=target_alias,
            schema_mode=schema_mode,
            options=options,
            quarantine=self._quarantine_of(on_error, quarantine),
        )

        def run(clauses: Sequence[Clause]) -> Outcome:
            return self._merge(request, clauses, txn, user_metadata)

        return TableMerger(run, by_key=on is not None)

    def upsert(
        self,
        source: Any,
        on: Sequence[str] | str,
        *,
        schema_mode: Literal["merge"] | None = None,
        on_error: OnError = "error",
        quarantine: Handle | str | os.PathLike[str] | None = None,
        options: WriteOptions | None = None,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Update the rows whose key occurs in the source, and insert the other source rows.

        Fields of structs that the source lacks keep their values in updated rows. The source must
        have all columns, unless `schema_mode` is `merge`. The other arguments and the errors are
        those of `merge`.

        Parameters
        ----------
        on
            The columns of the key. A null equals nothing.
        """
        from txlog.data_files.options import as_names
        from txlog.verbs.merge.clauses import UPSERT, MergeRequest

        request = MergeRequest(
            data=source,
            on=as_names(on, argument="on"),
            schema_mode=schema_mode,
            options=options,
            quarantine=self._quarantine_of(on_error, quarantine),
        )
        return self._merge(request, UPSERT, txn, user_metadata)
