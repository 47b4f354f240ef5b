"""`Table`: a table at one version, with a method for each verb."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from txlog.base.errors import (
    AlreadyExistsError,
    InvalidInputError,
    InvalidTypeError,
    LogCorruptError,
    UnsupportedFeatureError,
    require_flags,
    resource_errors,
)
from txlog.base.observe import observed
from txlog.base.threads import Engine
from txlog.commit.context import Context
from txlog.snapshot.time_travel import require_out_of_range, snapshot_at
from txlog.store.base import threads_for
from txlog.store.open import open_store
from txlog.table.about import About
from txlog.table.lookup import Lookups
from txlog.table.reading import Reading
from txlog.table.writing import Writing

if TYPE_CHECKING:
    import pyarrow as pa

    from txlog.commit.app_versions import AppVersion
    from txlog.commit.intent import UserMetadata
    from txlog.commit.operation import Done, Outcome
    from txlog.data_files.identity import Identity
    from txlog.fragments.metadata import FragmentMetadata
    from txlog.log.catalog import CatalogCommits
    from txlog.schema.types import StructType
    from txlog.snapshot.snapshot import Snapshot
    from txlog.snapshot.time_travel import OutOfRange


class Table(About, Reading, Lookups, Writing):
    """A Delta table at one version.

    Reading methods use that version. Writing methods commit on top of the latest version, and then
    the object moves to the new version.

    Parameters
    ----------
    uri
        A folder, or a URI such as `file:///data/flights` or `memory://flights`. Plain paths are
        literal, except `~`, which is the user's home; `file:` URIs are percent-decoded.
    version
        The version to open, or the name of a pin (`Table.pins`). Default: the latest version.
    timestamp
        Open the version that was the latest at this time: ISO 8601 text, a datetime, or
        milliseconds since the epoch; UTC if there is no zone.
    storage_options
        Passed to the store and to Spark's executors; never shown.
    out_of_range
        `nearest` opens the first or last version if the timestamp is before or after all versions.
    catalog_commits
        For a catalog-managed table, the answer of its catalog about valid commits. Without it, such
        a table is refused.
    index_cache
        A local folder that caches index segments from remote stores for later processes. Default:
        each process fetches each segment once.
    engine
        Runs the work over many files for reading and writing. Default: threads of this process.
        `txlog.spark_ext.SparkEngine(spark)` runs it on Spark's executors, and only the results come
        back. A pickled table omits the engine.

    Raises
    ------
    NotFoundError
        There is no table, no such version, or no version at that time.
    UnsupportedFeatureError
        Reading the table needs features that txlog lacks. The error names all of them.
    LogCorruptError
        The log is damaged. The error names the file.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        version: int | str | None = None,
        timestamp: str | datetime | int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        *,
        out_of_range: OutOfRange = "error",
        catalog_commits: CatalogCommits | None = None,
        index_cache: str | os.PathLike[str] | None = None,
        engine: Engine | None = None,
    ) -> None:
        store = open_store(uri, storage_options)
        context = Context(store, engine=engine or threads_for(store))
        with resource_errors(), observed("OPEN", store.root, "open") as seen:
            snapshot = snapshot_at(
                store, version, timestamp, out_of_range=out_of_range, catalog=catalog_commits
            )
            seen.note("opened", {"version": snapshot.version})
        self._context = context
        self._outcome: Outcome | None = None
        self._index_cache = None if index_cache is None else os.fspath(index_cache)
        self._stand_at(snapshot)

    @classmethod
    def _of(cls, context: Context, snapshot: Snapshot) -> Table:
        table = cls.__new__(cls)
        table._context = context
        table._outcome = None
        table._stand_at(snapshot)
        return table

    @classmethod
    def _made(cls, context: Context, done: Done) -> Table:
        table = cls._of(context, done.snapshot)
        table._finish(done)
        return table

    def __repr__(self) -> str:
        return f"txlog.Table({self.uri!r}, version={self.version})"

    if not TYPE_CHECKING:  # A type checker knows the names that there are.

        def __getattr__(self, name: str) -> Any:
            from txlog.table.hints import OF_TABLE, instead

            if name in OF_TABLE:
                hint = instead(OF_TABLE[name])
                raise AttributeError(f"'Table' object has no attribute {name!r}. {hint}.")
            return object.__getattribute__(self, name)  # It raises Python's own error.

    def __getitem__(self, key: object) -> NoReturn:
        from txlog.table.hints import OF_TABLE, instead

        raise InvalidTypeError(
            argument="key", reason="a table has no items", remedy=instead(OF_TABLE["__getitem__"])
        )

    def __getstate__(self) -> dict[str, Any]:
        return {
            "context": self._context,
            "snapshot": self._snapshot,
            "index_cache": self._index_cache,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._context = state["context"]
        self._outcome = None
        self._index_cache = state["index_cache"]
        self._stand_at(state["snapshot"])

    @staticmethod
    def exists(
        uri: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
    ) -> bool:
        """Return whether there is a Delta table at `uri`, readable or not."""
        from txlog.verbs.create import existing

        try:
            return existing(open_store(uri, storage_options)) is not None
        except (LogCorruptError, UnsupportedFeatureError):
            return True

    @classmethod
    def create(
        cls,
        uri: str | os.PathLike[str],
        schema: pa.Schema | StructType,
        partition_by: Sequence[str] | str | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        mode: Literal["error", "ignore", "overwrite"] = "error",
        cluster_by: Sequence[str] | str | None = None,
        generated: Mapping[str, str] | None = None,
        identity: Mapping[str, Identity] | Sequence[str] | str | None = None,
        name: str | None = None,
        description: str | None = None,
        fragments: Sequence[FragmentMetadata] = (),
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
        storage_options: Mapping[str, Any] | None = None,
        engine: Engine | None = None,
    ) -> Table:
        """Create a table, empty or from fragments.

        Parameters
        ----------
        mode
            What to do if the table exists: raise an `error`, return it (`ignore`), or `overwrite`
            it, which makes a new version without rows that has this schema, partitioning and
            properties.
        cluster_by
            Up to four clustering columns for `optimize.cluster`, instead of partitions; see
            `alter.cluster_by`.
        generated
            Columns whose values are computed from others, with SQL: `{"day": "CAST(at AS DATE)"}`.
            Data may omit them. If it has values, they must equal the computed ones. The metadata
            `delta.generationExpression` of a field has the same effect, also in data that creates a
            table.
        identity
            Columns of int64 that number the rows without a value: names, for numbers from 1 in
            steps of 1, or names with a `txlog.Identity(start, step, explicit)`.
        fragments
            The first rows: the result of `txlog.write_fragments` before the table existed.

        Notes
        -----
        The protocol lists only features that the table uses. The first delete, update or merge that
        writes a deletion vector adds the feature `deletionVectors`, and its outcome names it. With
        `delta.enableDeletionVectors=true` the new table has the feature, and with `false` files are
        rewritten instead. The returned table uses the engine. If the table exists and records
        `txn`, it is returned unchanged.

        Raises
        ------
        AlreadyExistsError
            The table exists already.
        InvalidInputError
            The schema, the partitioning or a property is wrong.
        """
        from txlog.data_files.options import as_schema
        from txlog.verbs.create import Definition, create, existing

        if mode not in ("error", "ignore", "overwrite"):
            raise InvalidInputError(
                argument="mode", reason=f"{mode!r} is not one of 'error', 'ignore', 'overwrite'"
            )
        store = open_store(uri, storage_options)
        context = Context(store, engine=engine or threads_for(store))
        definition = Definition(
            partition_by=partition_by,
            cluster_by=cluster_by,
            generated=generated,
            identity=identity,
            properties=properties,
            name=name,
            description=description,
        )
        columns = as_schema(schema, nanos=definition.keeps_nanos)
        try:
            first = None
            if fragments:
                from txlog.verbs.fragments.commit import first_files

                first = partial(first_files, fragments)
            done = create(
                context, columns, definition, first=first, txn=txn, user_metadata=user_metadata
            )
        except AlreadyExistsError:
            snapshot = existing(store)
            if mode == "error" or snapshot is None:
                raise
            table = cls._of(context, snapshot)
            if mode == "overwrite" and fragments:
                raise InvalidInputError(
                    argument="fragments",
                    reason="the table exists, but the fragments were written for a new table",
                    remedy="Write them again, and commit them with FragmentOperation.Overwrite",
                ) from None
            if mode == "overwrite":
                from txlog.verbs.replace import ReplaceTable

                operation = ReplaceTable(columns, definition, or_create=True)
                table._run(operation, txn, user_metadata)
            return table
        return cls._made(context, done)

    def clone(
        self,
        target: str | os.PathLike[str],
        shallow: bool = False,
        version: int | str | None = None,
        timestamp: str | datetime | int | None = None,
        *,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
        register: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Table:
        """Create a table that is a copy of a version of this one, and return it.

        It has the same rows, schema, partitioning and properties, but a separate history: writes to
        one table do not affect the other. Rows keep their ids if the table tracks rows.

        Parameters
        ----------
        target
            The clone's folder or URI, outside of this table.
        shallow
            Copy no data: the clone refers to this table's files by absolute paths. It breaks if
            these are deleted, for example by a vacuum; see `register`. Only engines that support
            absolute paths can read it; deltalake 1.6 and polars cannot. Default: all files of the
            version are copied.
        version, timestamp
            The version, its pin, or a timestamp. Default: the version of this table.
        replace
            If there is a table at the target, add a version to it that is the clone.
        properties
            Properties with other values in the clone. Those for which files would have to change
            (column mapping, row tracking) are refused: set them in the clone.
        register
            Record a shallow clone in this table, so that `vacuum` keeps the files of the clone:
            in a commit before the clone is made, and in another one after that. The first one adds
            the writer feature `domainMetadata` to this table.
        storage_options
            Options of the target's store. Default: those of this table.

        Raises
        ------
        AlreadyExistsError
            The target has a table, and `replace` is not set.
        InvalidInputError
            One of the two tables would be inside the folder of the other.
        DataFileError, NotFoundError, StoreError
            A file cannot be copied, or files of an older version no longer exist. Nothing was
            committed, and no copy remains.
        CommitConflictError
            With `register`: a vacuum may be deleting files of the version. Nothing was committed.
        UnsupportedFeatureError
            The table has features that txlog cannot write.
        """
        require_flags(shallow=shallow, replace=replace, register=register)
        from txlog.verbs.clone import CloneOptions, clone

        here = self._context
        options = here.store.options if storage_options is None else storage_options
        there = Context(open_store(target, options), here.effects, here.engine)
        snapshot = self._snapshot
        if version is not None or timestamp is not None:
            snapshot = snapshot_at(here.store, version, timestamp, catalog=snapshot.catalog)
        done = clone(
            here,
            snapshot,
            there,
            CloneOptions(shallow, replace, properties or {}, register),
            txn=txn,
            user_metadata=user_metadata,
        )
        return Table._made(there, done)

    def at(
        self,
        version: int | str | None = None,
        *,
        timestamp: str | datetime | int | None = None,
        out_of_range: OutOfRange = "error",
    ) -> Table:
        """Return another object of this table at a version; without arguments, at the latest one.

        Parameters
        ----------
        version, timestamp
            The version, the name of its pin, or a time at which it was the latest version. Pass at
            most one of them.
        out_of_range
            For a time before the first or after the last version: `error` raises, `nearest` uses
            that version.

        Raises
        ------
        InvalidInputError
            Both are given, or one is not a version or not a timestamp.
        NotFoundError
            There is no such version, or no version at that time.
        """
        require_out_of_range(out_of_range)
        if version is None and timestamp is None:
            snapshot = self._latest()
        else:
            catalog = self._snapshot.catalog
            snapshot = snapshot_at(
                self._context.store, version, timestamp, out_of_range=out_of_range, catalog=catalog
            )
        table = Table._of(self._context, snapshot)
        table._index_cache = self._index_cache
        return table

    def refresh(self) -> Table:
        """Move to the latest version, and return this table."""
        self._move(self._latest())
        return self

    def vacuum(
        self,
        retention_hours: float | None = None,
        dry_run: bool = True,
        enforce_retention_duration: bool = True,
        *,
        lite: bool = False,
        trash: bool = False,
        keep_versions: Sequence[int | str] = (),
        user_metadata: UserMetadata | None = None,
    ) -> pa.Table:
        """Delete files that no version within the retention needs; by default, only list them.

        Older versions can then no longer be read. Files that a version within the retention, a pin
        or a registered clone needs always stay: data files, deletion vectors, column files. Files
        of the log stay too (see `maintenance.expire`), and files and folders whose names begin with
        `_` or `.`, except change data and index segments, which are deleted with the files that
        they cover. If files are deleted, two commits record it, VACUUM START and VACUUM END, as in
        Delta.

        Parameters
        ----------
        retention_hours
            How long files are kept after no version needs them. Default: the table's
            `delta.deletedFileRetentionDuration`, or 7 days.
        dry_run
            Delete nothing. If this process's clock is ahead of the store's, which gives files their
            times, a vacuum finds that out and keeps more than a dry run says.
        enforce_retention_duration
            Raise if the retention is shorter than the table's.
        lite
            Check only files that the log removed. This is quick, but files of failed writers stay.
        trash
            Move the files to the folder `_txlog_trash`: `maintenance.put_back` undoes this, and
            `maintenance.empty_trash` deletes them permanently.
        keep_versions
            Versions, or names of pins, whose files stay in this call. A pin keeps a version's files
            permanently.

        Returns
        -------
        pyarrow.Table
            Each examined file: `file`, `bytes`, `modified_ms` (null: unknown, so it is kept),
            `decision` (`keep` or `delete`) and `reason`.

        Raises
        ------
        InvalidInputError
            The retention is shorter than the table's.
        NotFoundError
            A version to keep, a pinned version, or a registered clone does not exist. Nothing was
            deleted.
        UnsupportedFeatureError
            The table, or the store, cannot be written by txlog.
        """
        require_flags(
            dry_run=dry_run,
            enforce_retention_duration=enforce_retention_duration,
            lite=lite,
            trash=trash,
        )
        from txlog.verbs.vacuum import VacuumRequest, vacuum

        request = VacuumRequest(
            hours=retention_hours,
            dry_run=dry_run,
            enforce=enforce_retention_duration,
            lite=lite,
            trash=trash,
            keep_versions=keep_versions,
            user_metadata=user_metadata,
        )
        done = vacuum(self._context, self._latest(), request)
        self._move(done.snapshot)
        return done.decided

    def restore(
        self,
        version: int | str | None = None,
        timestamp: str | datetime | int | None = None,
        *,
        out_of_range: OutOfRange = "error",
        ignore_missing_files: bool = False,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Make a new version with the rows, schema and properties of an older one.

        The versions between are not lost: they can still be read and restored. The protocol is not
        lowered. If the table already equals that version, the outcome has no version.

        Parameters
        ----------
        version, timestamp
            The version, the name of its pin, or a time at which it was the latest version. Pass one
            of them.
        out_of_range
            For a time before the first or after the last version: `error` raises, `nearest` uses
            that version.
        ignore_missing_files
            Omit missing files and their rows. Default: raise.

        Raises
        ------
        NotFoundError
            The version does not exist, or it was cleaned up.
        DataFileError
            Files of the version are missing. The error names them, and nothing was committed.
        UnsupportedFeatureError
            The table is append-only, or txlog cannot write the current or the older version.
        """
        require_flags(ignore_missing_files=ignore_missing_files)
        from txlog.verbs.restore import Restore

        operation = Restore(
            version,
            timestamp,
            out_of_range=out_of_range,
            ignore_missing_files=ignore_missing_files,
        )
        return self._run(operation, txn, user_metadata)
