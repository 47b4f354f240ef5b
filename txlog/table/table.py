"""`Table`: a table at a version, and one call for each verb."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from txlog.commit.context import Context
from txlog.errors import (
    AlreadyExistsError,
    InvalidInputError,
    LogCorruptError,
    UnsupportedFeatureError,
)
from txlog.observe import observed
from txlog.snapshot.time_travel import snapshot_at
from txlog.store.base import threads_for
from txlog.store.open import open_store
from txlog.table.about import About
from txlog.table.handle import checked
from txlog.table.lookup import Lookups
from txlog.table.reading import Reading
from txlog.table.writing import Writing
from txlog.threads import Engine

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


@checked
class Table(About, Reading, Lookups, Writing):
    """A Delta table at one version.

    Reading verbs answer for that version. Writing verbs commit on top of the latest version and
    move the table on to what they made.

    Parameters
    ----------
    uri
        A folder, or a URI such as `file:///data/flights` or `memory://flights`. Plain paths are
        taken literally but for `~`, the user's home; `file:` URIs are percent-decoded.
    version
        Open this version, or that of a pin (`Table.pins`), by its name. Default: the latest.
    timestamp
        Open the version that was the latest at this moment: ISO 8601 text, a datetime, or
        milliseconds since the epoch; UTC where there is no zone.
    storage_options
        Passed to the store, and to Spark's executors; never shown.
    out_of_range
        `nearest` takes the first or last version for a timestamp before or after all of them.
    catalog_commits
        Of a catalog-managed table, what its catalog answered: which commits count. Without it
        such a table is refused.
    index_cache
        A folder of this machine in which segments of indexes are kept that come from a store far
        away, for the next process. Default: each process fetches each of them once.
    engine
        Where the work over many files is done, of reading and of writing. Default: threads of
        this process. `txlog.spark_ext.SparkEngine(spark)` has Spark's executors do it, and only
        what they found comes back here. A table that is pickled leaves it behind.

    Raises
    ------
    NotFoundError
        There is no table, no such version, or none at that moment.
    UnsupportedFeatureError
        The table needs features to be read that txlog lacks; all are named.
    LogCorruptError
        The log is damaged; the file is named.
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
        with observed("OPEN", store.root, "open") as seen:
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
        partition_by: Sequence[str] | str = (),
        properties: Mapping[str, str] | None = None,
        *,
        mode: Literal["error", "ignore", "overwrite"] = "error",
        cluster_by: Sequence[str] | str = (),
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
        """Make a table, empty or of fragments.

        Parameters
        ----------
        mode
            What to do if the table is there: raise an `error`, return it (`ignore`), or `overwrite`
            it: give it this schema, partitioning and properties, and take out all rows, in a new
            version.
        cluster_by
            Up to four columns that `optimize.cluster` sorts the rows by, as `alter.cluster_by`
            says, instead of partitions.
        generated
            Columns whose values are computed from others, with SQL: `{"day": "CAST(at AS DATE)"}`.
            Data may leave them out; values that it has must be the computed ones.
        identity
            Columns of int64 whose values count on, for rows that give none: names, from 1 by 1, or
            names with a `txlog.Identity(start, step, explicit)`.
        fragments
            What `txlog.write_fragments` wrote here before there was a table: its first rows.

        Notes
        -----
        The protocol lists only what the table uses. The first delete, update or merge that leaves
        a deletion vector adds the feature `deletionVectors`, and its outcome says so; with
        `delta.enableDeletionVectors=true` it is there at once, and with `false` files are
        rewritten instead. The engine is that of the table that is returned. If the table is there
        and records `txn`, it is returned as it is.

        Raises
        ------
        AlreadyExistsError
            There is a table already.
        InvalidInputError
            The schema, the partitioning or a property is wrong.
        """
        from txlog.data_files.identity import with_identities
        from txlog.data_files.options import as_names, as_schema, with_generated
        from txlog.protocol.properties import asks_for
        from txlog.verbs.create import create, existing

        if mode not in ("error", "ignore", "overwrite"):
            raise InvalidInputError(
                argument="mode", reason=f"{mode!r} is none of 'error', 'ignore', 'overwrite'"
            )
        store = open_store(uri, storage_options)
        context = Context(store, engine=engine or threads_for(store))
        declared = as_schema(schema, nanos=asks_for("timestampNanos", properties))
        definition: dict[str, Any] = {
            "schema": with_identities(with_generated(declared, generated), identity),
            "partition_by": as_names(partition_by),
            "cluster_by": as_names(cluster_by),
            "properties": properties,
            "name": name,
            "description": description,
        }
        try:
            first = None
            if fragments:
                from txlog.verbs.fragments.commit import first_files

                first = partial(first_files, fragments)
            done = create(context, **definition, first=first, txn=txn, user_metadata=user_metadata)
        except AlreadyExistsError:
            snapshot = existing(store)
            if mode == "error" or snapshot is None:
                raise
            table = cls._of(context, snapshot)
            if mode == "overwrite" and fragments:
                raise InvalidInputError(
                    argument="fragments",
                    reason="the table is there, and they were written for a new one",
                    remedy="Write them again, and commit them with Operation.Overwrite",
                ) from None
            if mode == "overwrite":
                from txlog.verbs.replace import ReplaceTable

                operation = ReplaceTable(context, **definition, or_create=True)
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
        """Make another table that is what a version of this one is, and return it.

        It has the rows, schema, partitioning and properties, and a history of its own: what is
        written to one is not seen in the other. Rows keep their ids where the table tracks rows.

        Parameters
        ----------
        target
            The clone's folder or URI, beside this table.
        shallow
            Copy no data: the clone refers to this table's files, by absolute paths. It breaks if
            they go, for example by a vacuum; see `register`. Engines that take absolute paths read
            it; deltalake 1.6 and polars do not. Default: all files of the version are copied.
        version, timestamp
            The version, or its pin, or a moment. Default: the version that this table is at.
        replace
            If there is a table at the target, make a new version of it that is the clone.
        properties
            Properties that differ in the clone.
        register
            Tell this table of a shallow clone, in a commit: `vacuum` then keeps what it needs. The
            first one adds the writer feature `domainMetadata` to this table.
        storage_options
            Of the target. Default: those of this table.

        Raises
        ------
        AlreadyExistsError
            There is a table at the target, and `replace` is not set.
        InvalidInputError
            The target is within this table, or the other way round.
        DataFileError, NotFoundError, StoreError
            A file cannot be copied. Nothing was committed, and no copy is left.
        UnsupportedFeatureError
            The table has features that txlog cannot write.
        """
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

    def checkout_version(self, version: int | str) -> Table:
        """Return this table at a version, or the name of a pin, as another object."""
        catalog = self._snapshot.catalog
        context = self._context
        return Table._of(context, snapshot_at(context.store, version, catalog=catalog))

    @property
    def latest_version(self) -> int:
        """The table's latest version; the log is looked at each time."""
        return self._latest().version

    def refresh(self) -> Table:
        """Move on to the latest version, and return this table."""
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
        """Delete files that no version within the retention refers to; by default, only list them.

        Older versions can no longer be read then. Files that a version within the retention, a pin
        or a clone that the table was told of needs stay whatever the arguments: data files,
        deletion vectors, column files. So do files of the log (see `maintenance.expire`), and files
        and folders whose names begin with `_` or `.`, apart from change data, and from parts of
        indexes, which go with the files that they cover. If files go, two
        commits tell of it, VACUUM START and VACUUM END, as Delta has them.

        Parameters
        ----------
        retention_hours
            How long files are kept that no version needs. Default: the table's
            `delta.deletedFileRetentionDuration`, 7 days if it has none.
        dry_run
            Delete nothing.
        enforce_retention_duration
            Refuse a retention that is below the table's.
        lite
            Look only at files that the log says were removed: quick, but files of writers that
            failed stay.
        trash
            Move the files to the folder `_txlog_trash`: `maintenance.put_back` undoes it, and
            `maintenance.empty_trash` deletes them for good.
        keep_versions
            Versions, or names of pins, of which all files stay this time. A pin keeps a version's
            files for good.

        Returns
        -------
        pyarrow.Table
            Each file that was looked at: `file`, `bytes`, `modified_ms`, `decision` (`keep` or
            `delete`) and `reason`.

        Raises
        ------
        InvalidInputError
            The retention is below the table's.
        NotFoundError
            A version to keep, a pinned one, or a registered clone is not there; nothing was
            deleted.
        UnsupportedFeatureError
            The table, or the store, may not be written by txlog.
        """
        from txlog.verbs.vacuum import vacuum

        done = vacuum(
            self._context,
            self._latest(),
            hours=retention_hours,
            dry_run=dry_run,
            enforce=enforce_retention_duration,
            lite=lite,
            trash=trash,
            keep_versions=keep_versions,
            user_metadata=user_metadata,
        )
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
        """Make a new version that is what an older one was: rows, schema, properties.

        Nothing of the versions between is lost: they can still be read, and restored. The
        protocol stays at least what it is. If the table is so already, the outcome has no version.

        Parameters
        ----------
        version, timestamp
            The version, or the name of its pin, or a moment at which it was the latest: one of
            the three.
        out_of_range
            For a moment before the first version or after the last one: `error` refuses, `nearest`
            takes that version.
        ignore_missing_files
            Leave out files whose bytes are gone, with their rows. Default: refuse.

        Raises
        ------
        NotFoundError
            There is no such version, or it was cleaned up.
        DataFileError
            Files that the version needs are gone. They are named, and nothing is committed.
        UnsupportedFeatureError
            The table is append-only, or may not be written by txlog as it is or was.
        """
        from txlog.verbs.restore import Restore

        operation = Restore(
            self._context,
            version,
            timestamp,
            out_of_range=out_of_range,
            ignore_missing_files=ignore_missing_files,
        )
        return self._run(operation, txn, user_metadata)
