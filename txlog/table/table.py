"""`Table`: a table at one version, with a method for each verb."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from txlog.base.errors import (
    AlreadyExistsError,
    InvalidInputError,
    InvalidTypeError,
    LogCorruptError,
    NotFoundError,
    UnsupportedFeatureError,
    clean_after,
    in_callers_words,
    require_flags,
    require_texts,
    require_whole,
    resource_errors,
    warn_committed,
)
from txlog.base.observe import observed, reading
from txlog.base.texts import without_secrets
from txlog.base.threads import Engine
from txlog.commit.context import Context, Lookups
from txlog.snapshot.time_travel import require_out_of_range, snapshot_at
from txlog.store.base import threads_for
from txlog.store.branches import branch_name, with_branch, without_branch
from txlog.store.open import open_store
from txlog.table.handle import Handle, OpenVersion
from txlog.table.row_verbs import RowVerbs

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from txlog.actions.table import Metadata, Protocol
    from txlog.changes.blame import Blame
    from txlog.changes.changes import Changes, Clipping
    from txlog.changes.diff import Diff
    from txlog.commit.app_versions import AppVersion
    from txlog.commit.intent import UserMetadata
    from txlog.commit.operation import Done, Outcome
    from txlog.data_files.identity import Identity
    from txlog.expressions.sql import Where
    from txlog.expressions.tree import Expression
    from txlog.fragments.metadata import FragmentMetadata
    from txlog.fragments.rows import FragmentRows
    from txlog.log.catalog import CatalogCommits
    from txlog.lookup.lookup import Lookup, Missing
    from txlog.scan.blobs import Blob
    from txlog.scan.files import Statistics
    from txlog.scan.plan import ScanPlan
    from txlog.scan.scan import Scan
    from txlog.scan.take import PlanOf
    from txlog.schema.types import StructType
    from txlog.snapshot.branches import Branch
    from txlog.snapshot.snapshot import Snapshot
    from txlog.snapshot.time_travel import OutOfRange
    from txlog.table.alter import TableAlter
    from txlog.table.audit import TableAudit
    from txlog.table.branches import TableBranches
    from txlog.table.follow import TableChange
    from txlog.table.fragment import TableFragments
    from txlog.table.history import History
    from txlog.table.indexes import TableIndexes
    from txlog.table.maintenance import TableMaintenance, TablePins
    from txlog.table.optimize import TableOptimize
    from txlog.table.transaction import TableTransaction
    from txlog.verbs.capabilities import Capability
    from txlog.verbs.doctor import Diagnosis
    from txlog.verbs.fragments.operations import FragmentOperation


_PICKLED_ACTIONS = 100  # With more, a pickle begins at a newer checkpoint, if there is one.


class Table(Handle, RowVerbs):
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
    time_zone
        The time zone of dates and times in predicates and in values as SQL: `America/New_York` or
        `+05:30`. Default: that of the session with an engine of Spark, else UTC. Constraints and
        generated columns are always in UTC, and so is `timestamp`.
    branch
        The name of an open branch of the table (`Table.branches`). Default: the table itself.
        `storage_options={"txlog.branch": "audit"}` does the same, also where only options are
        passed on.
    engine
        Runs the work over many files for reading and writing. Default: threads of this process.
        `txlog.spark_ext.SparkEngine(spark)` runs it on Spark's executors, and only the results come
        back. A pickled table omits the engine.

    Raises
    ------
    NotFoundError
        There is no table, no such version, no version at that time, or no such branch.
    UnsupportedFeatureError
        Reading the table needs features that txlog lacks. The error names all of them.
    LogCorruptError
        The log is damaged. The error names the file.
    """

    @in_callers_words
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
        time_zone: str | None = None,
        branch: str | None = None,
        engine: Engine | None = None,
    ) -> None:
        if time_zone is not None:
            from txlog.expressions.zones import known_zone

            known_zone(time_zone)  # It raises.
        store = open_store(uri, with_branch(storage_options, branch))
        lookups = Lookups(None if index_cache is None else os.fspath(index_cache))
        context = Context(
            store, engine=engine or threads_for(store), time_zone=time_zone, lookups=lookups
        )
        with resource_errors(), observed("OPEN", store.root, "open") as seen:
            snapshot = snapshot_at(
                store, version, timestamp, out_of_range=out_of_range, catalog=catalog_commits
            )
            seen.note("opened", {"version": snapshot.version})
        self._context = context
        self._outcome: Outcome | None = None
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
        branch = "" if self.branch is None else f", branch={self.branch!r}"
        return f"txlog.Table({without_secrets(self.uri)!r}, version={self.version}{branch})"

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
        snapshot = self._snapshot
        if snapshot.tail.num_actions > _PICKLED_ACTIONS and snapshot.catalog is None:
            from txlog.snapshot.load import from_newer_checkpoint

            snapshot = from_newer_checkpoint(self._context.store, snapshot)
        return {
            "context": self._context,
            "snapshot": snapshot,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._context = state["context"]
        self._outcome = None
        self._stand_at(state["snapshot"])

    @staticmethod
    def exists(
        uri: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
    ) -> bool:
        """Return whether there is a Delta table at `uri`, readable or not.

        Raises
        ------
        UnsupportedFeatureError
            No table can be there, because txlog knows no such store.
        """
        from txlog.verbs.create import existing

        try:
            store = open_store(uri, storage_options)
        except NotFoundError:  # A catalog has no such table.
            return False
        try:
            return existing(store) is not None
        except LogCorruptError:
            return True
        except UnsupportedFeatureError:
            from txlog.log.names import LOG_FOLDER

            next(store.list_after(LOG_FOLDER, ""), None)  # Raises if it is about the store.
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
        from txlog.data_files.definition import Definition
        from txlog.data_files.options import as_schema
        from txlog.verbs.create import create, existing

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
            the writer feature `domainMetadata` to this table. If this table is a shallow clone
            itself, the tables whose files it names record the new one, too.
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
            With `register`: a vacuum may be deleting files of the version. Or another table took
            the place of this one. No clone was made.
        UnsupportedFeatureError
            The table has features that txlog cannot write.
        """
        require_flags(shallow=shallow, replace=replace, register=register)
        from txlog.verbs.clone import CloneOptions, clone

        here = self._context
        options = here.store.options if storage_options is None else storage_options
        options = options if storage_options is not None else without_branch(options)
        there = Context(open_store(target, options), here.effects, here.engine, here.time_zone)
        snapshot = self._snapshot
        if version is not None or timestamp is not None:
            snapshot = snapshot_at(here.store, version, timestamp, catalog=snapshot.catalog)
        self._require_in_place()
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

        Reads of the returned object see that version. A write on it is committed after the latest
        version, as on every object of the table, and moves the object there: it does not change or
        undo versions. `restore` makes an earlier version the latest one again.

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
        CommitConflictError
            Another table took the place of this one.
        """
        require_out_of_range(out_of_range)
        if version is None and timestamp is None:
            snapshot = self._latest()
        else:
            catalog = self._snapshot.catalog
            snapshot = snapshot_at(
                self._context.store, version, timestamp, out_of_range=out_of_range, catalog=catalog
            )
            self._require_in_place()
        return Table._of(self._context, snapshot)

    def refresh(self) -> Table:
        """Move to the latest version, and return this table."""
        self._move(self._latest())
        return self

    # Facts and listings -------------------------------------------------------------------------

    def _repr_html_(self) -> str:
        from txlog.base.html import facts_html, rows_html, titled
        from txlog.snapshot.live_files import has_large_checkpoint

        snapshot = self._snapshot
        facts: dict[str, int | None] = {}
        if not has_large_checkpoint(snapshot):  # Showing a table must be quick.
            known, unknown = self._open.plan([]).count()
            facts["rows"] = None if unknown else known
            facts["files"] = self.files(["path"]).num_rows
        partitioned = snapshot.partition_columns
        columns = [
            (field.name, field.type, field.nullable, field.name in partitioned)
            for field in self.schema
        ]
        return titled(
            f"txlog.Table {snapshot.metadata.name or ''} {without_secrets(self.uri)}",
            facts_html(
                {"version": snapshot.version, **facts, "about": snapshot.metadata.description}
            ),
            rows_html(("column", "type", "nullable", "partition"), columns),
        )

    @property
    def uri(self) -> str:
        """The location of the table."""
        return self._context.store.root

    @property
    def branch(self) -> str | None:
        """The name of the branch; None for the table itself."""
        return branch_name(self._context.store)

    @property
    def version(self) -> int:
        """The version of this object."""
        return self._snapshot.version

    @property
    def timestamp_ms(self) -> int | None:
        """The time of this version in milliseconds since the epoch, UTC, as in `history`.

        A table that is opened at this time has this version. None if the time is not known: the
        store has no times of files, or the commit was cleaned up. The first use lists the log.
        """
        return self._open.made_ms()

    @property
    def schema(self) -> pa.Schema:
        """The columns as an Arrow schema; each scan of all columns has exactly this schema.

        Comments and other texts of columns are metadata of the fields. Scans omit them.
        """
        from txlog.schema.arrow import described_schema

        return described_schema(self._snapshot.schema)

    def doctor(self, sample: int | None = 32) -> Diagnosis:
        """Examine this version: what is wrong or slow, what it costs, and how to repair it.

        It looks for gaps and damage in the log, wrong checkpoints and checksums, missing or
        truncated data, deletion and sidecar files, statistics that contradict the files, unneeded
        files, small files, skew, files that an index does not cover, unused features, and
        timestamps out of order. All commits are read and the table's folder is listed; nothing is
        written. If the table was opened with an engine such as `SparkEngine`, and has very many
        files, its workers read the checkpoint; they list the folder of a large table in an object
        store, and open the sample.

        Parameters
        ----------
        sample
            How many data files are opened to check their statistics; None means all.

        Returns
        -------
        Diagnosis
            Iterate over the findings, print the object, or call its `to_arrow()`.
        """
        from txlog.verbs.doctor import examine

        return examine(self._context, self._snapshot, sample=sample)

    @property
    def metadata(self) -> Metadata:
        """The current `metaData` action."""
        return self._snapshot.metadata

    @property
    def protocol(self) -> Protocol:
        """The current `protocol` action."""
        return self._snapshot.protocol

    @property
    def properties(self) -> dict[str, str | None]:
        """The table's properties, as set."""
        return dict(self._snapshot.metadata.configuration)

    @property
    def sort_columns(self) -> list[str]:
        """The columns by which the rows of each file are sorted (`txlog.sortBy`)."""
        from txlog.data_files.sort_order import sort_columns

        snapshot = self._snapshot
        found = sort_columns(snapshot.properties, snapshot.schema, snapshot.partition_columns)
        return list(found)

    @property
    def partition_columns(self) -> list[str]:
        """The partition columns, in order."""
        return list(self._snapshot.partition_columns)

    @property
    def snapshot(self) -> Snapshot:
        """This version as an immutable value: it pickles, and it stays when the table moves on."""
        return self._snapshot

    def history(self, limit: int | None = None) -> History:
        """Return the `commitInfo` of each commit up to this version, newest first.

        Each dict has `version`, `timestamp` (milliseconds since the epoch, as used by `Table(uri,
        timestamp=…)` and `restore`; None if the store does not know it), and the writer's fields:
        `operation`, `operationParameters`, `operationMetrics`, `engineInfo`, …

        The result is a list with a method `to_arrow`; notebooks show it as a table.
        """
        from txlog.snapshot.time_travel import history
        from txlog.table.history import History

        if limit is not None:
            require_whole("limit", limit)
        found = History(history(self._context.store, self._snapshot, limit))
        self._require_in_place()
        return found

    def versions(self) -> pa.Table:
        """Return the versions up to this one that can still be opened, ascending.

        Columns: `version`, `timestamp` (milliseconds since the epoch; null if its commit was
        cleaned up, or the store does not know the time) and `pins`: its names in `Table.pins`.

        All commits are read, to leave out the versions that a damaged file takes with it. A
        `TxlogWarning` names these versions and the file.
        """
        from txlog.snapshot.time_travel import versions

        found = versions(self._context.store, self._snapshot)
        self._require_in_place()
        return found

    def capabilities(self) -> dict[str, Capability]:
        """Return for each verb whether this version of the table allows it.

        The verbs are `scan`, `stable_row_ids`, `changes`, `refresh`, `append`, `overwrite`,
        `delete`, `compact`, `compute_statistics`, `restore`, `add_columns`, `replace_columns`,
        `drop_columns` and `checkpoint`. Each capability is true or false. For a verb that is not
        possible, it names the features that prevent it, the reason, and what to do.
        """
        from txlog.verbs.capabilities import capabilities

        return capabilities(self._context.store, self._snapshot)

    def files(
        self,
        columns: list[str] | None = None,
        *,
        where: Where = None,
        statistics: Statistics = "json",
    ) -> pa.Table:
        """Return the data files of this version, one row each.

        Parameters
        ----------
        columns
            The columns to return, in this order; see below. Default: all. For a large table, the
            result is fast but unordered if `fragment_id`, `fields`, `kind` and `layer` are omitted.
        where
            Return only files that may contain rows for which this predicate is true.
        statistics
            `json`: the log's texts, in `stats`. `struct`: typed values, in the structs
            `null_count`, `min` and `max`. `flat`: typed values, in a column for each field of these
            structs, such as `min.x`. The typed values are null if the log has none, and columns for
            which the table's properties turn statistics off are omitted.

        Raises
        ------
        InvalidInputError
            A column does not exist, or the predicate does not fit the table.

        Notes
        -----
        Columns: `path` (as logged), `size_bytes`, `num_records` (rows in the file; null if
        unknown), `num_deleted`, `partition_values` (a map of the logged texts), `modification_time`
        (milliseconds), `fragment_id`, `stats` (JSON text; null if a checkpoint has only structs),
        `deletion_vector` (its unique id), `fields`, `kind` and `layer`. With typed statistics, the
        last columns are `partition` (also typed; none for a table without partitions),
        `null_count`, `min` and `max` or their fields, in place of `partition_values` and `stats`.

        `kind` says what the file is. A `data` file has the rows of a fragment, with the columns
        that no other file gives to all of them; its `fields` are null. A file of `columns` gives
        the columns `fields` to all rows. A `layer` gives them to some rows, over the other files;
        of two layers, the one with the greater number in `layer` is over the other. `fields` has
        the names in the table; a column that the table does not have is read by nobody, or is the
        one in which files keep the versions of rows.
        """
        from txlog.scan.files import list_files

        version = self._open
        return list_files(
            self._context.store,
            version.snapshot,
            lambda: version.files().live,
            columns,
            statistics=statistics,
            chosen=None if where is None else self._chosen(version, where),
        )

    def partitions(self, where: Where = None) -> pa.Table:
        """Return the distinct partition values of the files, sorted.

        The columns are the partition columns, with the values as logged texts. A partition of which
        the log says that all rows are deleted is left out.

        Parameters
        ----------
        where
            Return only partitions that may contain rows for which this predicate is true.
        """
        from txlog.scan.files import partitions_of

        version = self._open
        return partitions_of(version.snapshot, self._chosen(version, where).primaries)

    def _chosen(self, version: OpenVersion, where: Where) -> FragmentRows:
        """Return the files that a predicate does not exclude."""
        from txlog.expressions.sql import as_expression
        from txlog.scan.plan import plan_scan

        files = version.files().live
        return plan_scan(version.snapshot, files, where=as_expression(where, self._zone)).files.rows

    def fragments(self) -> TableFragments:
        """Return the fragments of this version as a sequence, ordered by id.

        Each `TableFragment` is created at its first use. `fragments().of_id(7)` returns the
        fragment with an id, or None.
        """
        from txlog.table.fragment import TableFragments

        version = self._open
        fragments = version.fragments()
        return TableFragments(
            self._context,
            version.snapshot,
            fragments,
            version.whole_fragments,
            range(len(fragments)),
        )

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of this object's last writing verb, or None if there was none.

        `txlog.write` sets it too.
        """
        return self._outcome

    def transaction_version(self, app_id: str) -> int | None:
        """Return the last version that an application recorded with `txn`, or None."""
        require_texts(app_id=app_id)
        return self._snapshot.transaction_version(app_id)

    # Rows ---------------------------------------------------------------------------------------

    def scan(
        self,
        columns: list[str] | None = None,
        where: Where = None,
        *,
        use_index: bool = True,
        dictionaries: bool | Sequence[str] = False,
    ) -> Scan:
        """Plan a scan of this version; nothing is read until its rows are asked for.

        Parameters
        ----------
        columns
            The columns to return, in this order. Default: all. A field of a struct (`st.b`) becomes
            a column with its dotted name, null where the struct is null.
        where
            Return only the rows for which this is true: SQL text (`"dep_delay > 60 AND carrier =
            'UA'"`), an expression (`col("dep_delay") > 60`), or filters as in pyarrow and
            deltalake: `[("dep_delay", ">", 60), ("carrier", "in", ["UA"])]`. All filters of a list
            must be true, or all filters of one of several lists.
        use_index
            If the predicate compares the key columns of an index with values (`=`, `<=>`, `IN`),
            read only the rows that the index names, where this is less than statistics leave.
            `explain()` says what the index does. False: do not use it. The rows are the same.
        dictionaries
            The columns to return as dictionaries of Arrow, which are categories in pandas and
            polars. True: those that were dictionaries when the table got them.

        Raises
        ------
        InvalidInputError
            A column is not in the table, or the predicate does not fit it.
        """
        require_flags(use_index=use_index)
        from txlog.expressions.sql import as_expression
        from txlog.scan.lazy_plan import plan_snapshot
        from txlog.scan.scan import Scan

        version = self._open
        plan = plan_snapshot(
            self._context.store,
            version.snapshot,
            lambda: version.files().live,
            columns=columns,
            where=as_expression(where, self._zone),
        )
        if use_index:
            plan = self._indexed(version, plan)
        if dictionaries is not False:
            plan = plan.with_dictionaries(dictionaries)
        return Scan(self._context.store, plan.for_arrow(), self._context.engine)

    def _indexed(self, version: OpenVersion, plan: ScanPlan) -> ScanPlan:
        """Return a plan that uses an index of a version if its predicate gives keys."""
        from txlog.scan.lazy_plan import is_large

        large = is_large(version.snapshot)
        return self._context.indexed(
            version.snapshot,
            plan,
            fragments=None if large else lambda: tuple(version.fragments()),
            coverages=version.coverages,
        )

    def to_arrow(self, columns: list[str] | None = None, where: Where = None) -> pa.Table:
        """Return the rows as one Arrow table; arguments as for `scan`."""
        return self.scan(columns, where).to_arrow()

    def to_polars(self, columns: list[str] | None = None, where: Where = None) -> pl.DataFrame:
        """Return the rows as a polars frame; arguments and errors as for `scan`."""
        return self.scan(columns, where).to_polars()

    def to_pandas(self, columns: list[str] | None = None, where: Where = None) -> pd.DataFrame:
        """Return the rows as a pandas frame; arguments and errors as for `scan`."""
        return self.scan(columns, where).to_pandas()

    def to_batches(
        self,
        columns: list[str] | None = None,
        where: Where = None,
        *,
        batch_size: int | None = None,
        strict_batch_size: bool = False,
        batch_size_bytes: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows as Arrow batches; the arguments are those of `scan` and of its result."""
        require_flags(strict_batch_size=strict_batch_size)
        sized = {} if batch_size is None else {"batch_size": batch_size}
        return self.scan(columns, where).to_batches(
            **sized, strict_batch_size=strict_batch_size, batch_size_bytes=batch_size_bytes
        )

    def to_pyarrow_dataset(
        self,
        where: Where = None,
        *,
        schema: pa.Schema | None = None,
        as_large_types: bool = False,
        parquet_read_options: Any = None,
        use_index: bool = True,
    ) -> Any:
        """Return this version as a `pyarrow.dataset.Dataset`.

        pyarrow, duckdb and polars push filters and columns down to it: partition values and
        statistics of the log skip files that cannot match, and an index finds the rows if a filter
        compares its key columns with values (`=`, `IN`). It does not contain deleted rows. Files
        with deleted rows, and other files that pyarrow alone would read differently, are read as in
        `scan`.

        Parameters
        ----------
        where
            Omit files without any row for which this is true. All rows of the other files stay.
        schema
            The schema of the dataset. Default: the table's.
        as_large_types
            Use Arrow's large types for strings, binary values and lists.
        parquet_read_options
            A `pyarrow.dataset.ParquetReadOptions`.
        use_index
            As for `scan`; also for the filters of scanners. The method `explain(filter)` of the
            dataset says what the index does.

        Raises
        ------
        InvalidInputError
            The predicate does not fit the table.
        """
        require_flags(as_large_types=as_large_types, use_index=use_index)
        from txlog.expressions.sql import as_expression
        from txlog.scan.dataset import as_dataset
        from txlog.scan.plan import plan_scan

        version, predicate = self._open, as_expression(where, self._zone)
        plan = plan_scan(version.snapshot, version.files().live, where=predicate)
        if use_index:
            plan = self._indexed(version, plan)

        def plan_of(asked: Expression) -> ScanPlan | None:
            plain = plan_scan(version.snapshot, version.files().live, where=asked)
            found = self._indexed(version, plain)
            return None if found is plain else found

        return as_dataset(
            self._context.store,
            version.snapshot,
            plan,
            schema=schema,
            as_large_types=as_large_types,
            parquet_read_options=parquet_read_options,
            plan_of=plan_of if use_index else None,
        )

    def head(
        self, num_rows: int = 5, columns: list[str] | None = None, where: Where = None
    ) -> pa.Table:
        """Return the first rows as one Arrow table; the other arguments as for `scan`.

        Only the needed fragments are opened, if the log has their row counts.
        """
        return self.scan(columns, where).head(num_rows)

    def sample(
        self, num_rows: int, columns: list[str] | None = None, *, seed: int | None = None
    ) -> pa.Table:
        """Return a random sample of rows without repetition, in the order of the table.

        The rows are counted first; then only the pages with the sample are read.

        Parameters
        ----------
        num_rows
            The number of rows. If the table has fewer rows, all are returned.
        columns
            As for `scan`.
        seed
            With the same seed, version and number, the result is the same.

        Raises
        ------
        InvalidInputError
            `num_rows` is not a whole number from 0.
        """
        import numpy as np

        num_rows = require_whole("num_rows", num_rows)
        total = self.count()
        begin = (
            int(self._context.effects.jitter() * 2**53)
            if seed is None
            else require_whole("seed", seed)
        )
        chosen = np.random.default_rng(begin).choice(total, min(num_rows, total), replace=False)
        return self.take(sorted(chosen.tolist()), columns)

    def count(self, where: Where = None) -> int:
        """Return the number of rows, from the log alone if possible."""
        return self.scan([], where).count()

    @reading("TAKE")
    def take(
        self,
        indices: Sequence[int] | pa.Array | None = None,
        columns: list[str] | None = None,
        *,
        addresses: Sequence[int] | pa.Array | None = None,
        row_ids: Sequence[int] | pa.Array | None = None,
        dictionaries: bool | Sequence[str] = False,
    ) -> pa.Table:
        """Return rows by their offsets in the table, their addresses or ids, in the given order.

        Only the pages with these rows are read, or the row groups of a file without an offset
        index. Ids are looked up first, which reads the ids of all rows unless ids are addresses
        (see `_rowid`).

        Parameters
        ----------
        indices
            Offsets from 0 among the rows that are not deleted, in the order of `to_arrow`, as in
            pylance's `Dataset.take`.
        columns, dictionaries
            As for `scan`.
        addresses, row_ids
            Instead of offsets: values of `_rowaddr` or of `_rowid`.

        Raises
        ------
        InvalidInputError
            Not exactly one of the three is given, or a value is not a whole number from 0. Any
            value may occur more than once.
        NotFoundError
            There are not as many rows, or a row is not in this version or is deleted in it. The
            error names the values at fault.
        """
        from txlog.scan.take import take_live, take_rows
        from txlog.schema.arrow import as_dictionaries

        store, engine = self._context.store, self._context.engine
        given = (indices, addresses, row_ids)
        if sum(one is not None for one in given) != 1:
            raise InvalidInputError(
                argument="indices",
                reason="exactly one of indices, addresses and row_ids is expected",
            )
        plan_of = self._plan_all(self._open)
        chosen = plan_of(columns).with_dictionaries(dictionaries).reading.dictionaries
        if indices is not None:
            found = take_live(store, plan_of(columns), indices, engine)
        else:
            found = take_rows(
                store, plan_of, addresses=addresses, row_ids=row_ids, columns=columns, engine=engine
            )
        return as_dictionaries(found, chosen)

    def blobs(self, values: Any) -> list[Blob | None]:
        """Return values of a blob column as objects that read their bytes when asked; null is None.

        No byte is read before. The values must be of this table, and of a version whose files still
        exist.

        Parameters
        ----------
        values
            The column of a result, such as `table.take([3])["video"]`, or a list of its values.

        Raises
        ------
        InvalidTypeError, InvalidInputError
            They are not values of a blob column.

        Examples
        --------
        >>> import pyarrow as pa, txlog
        >>> table = txlog.Table.create("t", pa.schema([("id", pa.int64()), txlog.blob("video")]))
        >>> table.append(pa.table({"id": [1], "video": [bytes(100_000)]}))  # doctest: +ELLIPSIS
        Outcome(...)
        >>> (video,) = table.blobs(table.to_arrow()["video"])
        >>> video.size, video.read_range(10, 3)
        (100000, b'\\x00\\x00\\x00')
        """
        from txlog.scan.blobs import Packs, blobs_of

        return blobs_of(Packs(self._context.store, self._snapshot), values)

    def _plan_all(self, version: OpenVersion) -> PlanOf:
        """Return a function from columns to the plan of a scan of all rows."""
        from txlog.scan.plan import plan_scan

        def plan(chosen: list[str] | None) -> ScanPlan:
            return plan_scan(version.snapshot, version.files().live, columns=chosen).for_arrow()

        return plan

    def diff(
        self,
        start_version: int | str,
        end_version: int | str | None = None,
        *,
        on: str | Sequence[str] | None = None,
        columns: list[str] | None = None,
        where: Where = None,
    ) -> Diff:
        """Plan the difference of two versions: the rows that only one of them has.

        This works with and without the change data feed. Only files that one of the versions lacks
        are read, and the differing rows of files whose deletion vectors differ. A file that was
        only rewritten adds no row to the result. The result has the table's columns and
        `_change_type`: `insert`, `delete`, `update_preimage`, `update_postimage`.

        Parameters
        ----------
        start_version, end_version
            Versions or names of pins; the start may be the later one. Default end: this version.
        on
            Key columns: a row that is in both versions with different values is an update. Default:
            the row id if both versions track rows. Otherwise no row is an update, and equal rows
            are counted; an empty list requests this.
        columns, where
            As for `scan`. Only these columns, and only matching rows, are compared.

        Raises
        ------
        NotFoundError
            There is no such version.
        UnsupportedFeatureError
            The versions have different columns or different partition columns.
        InvalidInputError
            A column or the predicate does not fit the table.

        Examples
        --------
        >>> table.diff(3, 7, on=["id"]).to_arrow()  # doctest: +SKIP
        >>> table.diff(3).count()  # doctest: +SKIP
        {'insert': 10, 'delete': 0, 'update': 2}
        """
        from txlog.changes.diff import plan_diff
        from txlog.expressions.sql import as_expression

        context = self._context
        start, end = self._version(start_version), self._version(end_version)
        predicate = as_expression(where, self._zone)
        return plan_diff(
            context.store, start, end, on=on, columns=columns, where=predicate,
            engine=context.engine,
        )  # fmt: skip

    def blame(self, columns: list[str] | None = None, where: Where = None) -> Blame:
        """Plan a scan of rows with the version and the commit that wrote each row.

        The result has the columns, then `_commit_version`, `_commit_timestamp`, `_operation` and
        `_user`. In a table that tracks rows, the version is the last one that changed the row, even
        if its file was rewritten later. In another table it is the newest of the versions that
        added the row's files: the one with the row, which may be of a compaction, and those that
        give it columns (`kind` in `files`), of a layer only the rows to which it gives values.
        Values from deleted log files are null.

        Parameters
        ----------
        columns, where
            As for `scan`. In a table that does not track rows, files that only give other columns
            do not count: `blame(["price"])` says who wrote prices.
        """
        from txlog.changes.blame import plan_blame
        from txlog.expressions.sql import as_expression

        context = self._context
        found = plan_blame(
            context.store, self._snapshot, columns=columns, where=as_expression(where, self._zone),
            engine=context.engine,
        )  # fmt: skip
        self._require_in_place()
        return found

    def _version(self, version: int | str | None) -> Snapshot:
        """Return a version by its number or pin; None means this version."""
        from txlog.snapshot.time_travel import snapshot_at

        own = self._snapshot
        if version is None or version == own.version:
            return own
        found = snapshot_at(self._context.store, version, None, catalog=own.catalog)
        self._require_in_place()
        return found

    def changes(
        self,
        start_version: int | str | None = None,
        end_version: int | str | None = None,
        *,
        start_timestamp: str | datetime | int | None = None,
        end_timestamp: str | datetime | int | None = None,
        columns: list[str] | None = None,
        where: Where = None,
        out_of_range: Clipping = "error",
    ) -> Changes:
        """Plan a read of the change data feed: inserted, deleted and updated rows.

        The columns are those of the last version in the range, then `_change_type` (`insert`,
        `delete`, `update_preimage`, `update_postimage`), `_commit_version`, and
        `_commit_timestamp`. `delta.enableChangeDataFeed` must have been enabled during these
        versions.

        Parameters
        ----------
        start_version, end_version
            The range, both included: versions or names of pins. Default: from the first version to
            this one.
        start_timestamp, end_timestamp
            Instead of versions: the first version at or after the first timestamp, and the last
            version at or before the second one.
        columns, where
            As for `scan`; the three columns of the feed can be named too.
        out_of_range
            `clip`: if the range begins after the last version, return no rows; if it ends later,
            end with the last version. `error` raises in both cases.

        Raises
        ------
        InvalidInputError
            The range is invalid, or a column or the predicate does not fit the table.
        NotFoundError
            A version of the range does not exist, or its commit was cleaned up.
        UnsupportedFeatureError
            A version recorded no changes or had other columns. The error names it.
        """
        from txlog.changes.changes import feed_range, plan_feed
        from txlog.expressions.sql import as_expression

        store = self._context.store
        first, last = feed_range(
            store,
            self._snapshot,
            start=(start_version, start_timestamp),
            end=(end_version, end_timestamp),
            out_of_range=out_of_range,
        )
        changes = plan_feed(
            store, last, first, columns=columns, where=as_expression(where, self._zone),
            engine=self._context.engine, latest=self._snapshot,
        )  # fmt: skip
        self._require_in_place()
        return replace(changes, plan=changes.plan.for_arrow())

    def _feed(self, first: int, columns: list[str] | None, where: Expression | None) -> Changes:
        """Return the changes from a version up to this one."""
        from txlog.changes.changes import plan_feed

        changes = plan_feed(
            self._context.store, self._snapshot, first, columns=columns, where=where,
            engine=self._context.engine,
        )  # fmt: skip
        return replace(changes, plan=changes.plan.for_arrow())

    def follow(
        self,
        start: int | str | None = None,
        *,
        token: str | None = None,
        until: int | Literal["latest"] | None = None,
        timeout_s: float | None = None,
        poll_s: float = 1.0,
        changes: bool = False,
        columns: list[str] | None = None,
        where: Where = None,
    ) -> Iterator[TableChange[Table]]:
        """Yield the versions of the table, one after the other, and wait for those to come::

            for change in table.follow(timeout_s=60):
                print(change.version, change.operation, change.table.count())
                save(change.token)

        Every version comes exactly once and in order, whoever commits it. This object stays at its
        version.

        Parameters
        ----------
        start
            The first version, or the name of a pin. Default: the one after the version of this
            object.
        token
            Instead of `start`: the `token` of a change, after which to continue.
        until
            The last version; `latest`: the one that is the latest at the call. Default: none is
            the last.
        timeout_s
            End if no new version came for so many seconds; 0 does not wait. Default: wait for ever.
        poll_s
            The most seconds between two looks at the log. The first ones are shorter.
        changes
            Give each change the rows that it changed, from the change data feed (`change.rows`),
            which the table must record.
        columns, where
            With `changes`: the columns and the rows to read, as for `Table.changes`.

        Raises
        ------
        NotFoundError
            There is no such version, or it was cleaned up before it was reached, or the table is
            gone.
        InvalidInputError
            An argument is wrong, or the token is of another table, or of another branch.
        CommitConflictError
            Another table has replaced this one.
        UnsupportedFeatureError
            With `changes`: the table does not record them. If it stops to do so while it is
            followed, `change.rows` raises.
        """
        require_flags(changes=changes)
        from txlog.changes.changes import feed_read_plan
        from txlog.expressions.sql import as_expression
        from txlog.table.follow import follow

        if not changes and (columns is not None or where is not None):
            raise InvalidInputError(
                argument="columns" if where is None else "where",
                reason="only the rows of changes have columns",
                remedy="Follow the changes, or omit it",
            )
        predicate = as_expression(where, self._zone)

        def feed(table: Table) -> Changes:
            return table._feed(table.version, columns, predicate)

        def check(snapshot: Snapshot) -> object:
            return feed_read_plan(snapshot, columns, predicate)

        return follow(
            self._context,
            self._snapshot,
            self._latest(),
            self.at,
            start=start,
            token=token,
            until=until,
            timeout_s=timeout_s,
            poll_s=poll_s,
            feed=feed if changes else None,
            check=check,
        )

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.scan().__arrow_c_stream__(requested_schema)

    # Rows by key --------------------------------------------------------------------------------

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

        An index over the key columns (`indexes.create`) gives the positions of rows. For files that
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

    # Changes; RowVerbs has append, delete, update and merge -------------------------------------

    @contextmanager
    def transaction(
        self, *, txn: AppVersion | None = None, user_metadata: UserMetadata | None = None
    ) -> Iterator[TableTransaction]:
        """Put several changes into one version::

            with table.transaction() as tx:
                tx.delete("day = '2026-11-24'")
                tx.append(corrected)

        Each change sees the result of the changes before it. At the end of the block, all changes
        are committed together, with one conflict check. If the block raises, nothing is committed.
        The outcome is `tx.outcome`.

        Raises
        ------
        CommitConflictError
            Another writer's commit conflicts with one of the changes. Nothing was committed.
        """
        from txlog.commit.app_versions import is_recorded, require_app_version
        from txlog.commit.operation import execute
        from txlog.table.transaction import TableTransaction

        require_app_version(txn)
        latest, looked_s = self._latest(), self._context.effects.monotonic_s()
        changes = TableTransaction(self._context, latest, is_recorded(latest, txn), txn)
        try:
            yield changes
        except BaseException as error:
            clean_after(error, changes.operation.discard)
            raise
        finally:
            changes.is_closed = True
        changes.outcome = self._finish(
            execute(
                changes.operation,
                self._context,
                latest,
                txn=txn,
                user_metadata=user_metadata,
                looked_s=looked_s,
            )
        )

    def commit(
        self,
        operation: FragmentOperation.Base,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Commit fragments that workers wrote (`txlog.write_fragments`, `TableFragment`).

        Parameters
        ----------
        operation
            `FragmentOperation.Append`, `Overwrite`, `Delete`, `Merge` or `Rewrite`.

        Raises
        ------
        InvalidInputError
            A fragment occurs twice, is not valid, is missing in the table, or is already in it.
        CommitConflictError
            The rows or columns from which the fragments were made have changed since. Nothing was
            committed, and no file was deleted.
        """
        from txlog.verbs.fragments.commit import commit_fragments

        request = commit_fragments(self._context, self._snapshot, operation)
        return self._run(request, txn, user_metadata)

    @property
    def alter(self) -> TableAlter:
        """Add, replace and drop columns; add features."""
        from txlog.table.alter import TableAlter

        return TableAlter(self)

    @property
    def optimize(self) -> TableOptimize:
        """Compact files; compute statistics that files lack."""
        from txlog.table.optimize import TableOptimize

        return TableOptimize(self)

    @property
    def maintenance(self) -> TableMaintenance:
        """Write a checkpoint; clean up, verify and repair the log."""
        from txlog.table.maintenance import TableMaintenance

        return TableMaintenance(self)

    @property
    def indexes(self) -> TableIndexes:
        """Create and maintain indexes over key columns, for look-ups."""
        from txlog.table.indexes import TableIndexes

        return TableIndexes(self)

    def audit(
        self,
        name: str,
        checks: Mapping[str, str | Callable[[Table], object]] | None = None,
        *,
        new_rows: Mapping[str, str | Callable[[pa.Table], object]] | None = None,
        replace: bool = False,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> TableAudit[Table]:
        """Write to a branch, check it, and publish it in one commit if all checks hold::

            with table.audit("nightly", {"no nulls": "count_if(id IS NULL) = 0"}) as branch:
                branch.append(rows)

        The block gets the branch as a table, with every verb. Others see nothing of it until it is
        published. If the block raises, the branch is discarded.

        Parameters
        ----------
        name
            The name of the branch, which is made at the latest version.
        checks
            Checks by their names, over the whole table as the branch has it: predicates in SQL over
            the aggregates `count`, `count_if`, `sum`, `min`, `max` and `avg`, or functions that get
            the branch and return whether they hold. A check whose result is null, or which raises,
            does not hold.
        new_rows
            The same over the rows that the branch adds to the table: new ones, and the new values
            of changed ones. Functions get them as an Arrow table.
        replace
            Discard an open branch of this name first, such as that of an earlier audit that failed.
        txn, user_metadata
            Of the commit that publishes the branch. If the table records `txn` already, the branch
            is discarded at the end of the block, without the checks.

        Raises
        ------
        AuditFailedError
            At the end of the block: a check does not hold. Nothing was published, and the branch
            stays. The error has the figures of all checks.
        CommitConflictError
            A commit of the table conflicts with the branch, or another writer has changed the
            branch after the block, or closed it. Nothing was published, and the branch stays.
        AlreadyExistsError
            There is an open branch of this name.
        InvalidInputError
            A check is no predicate over aggregates, or does not fit the columns of the branch.
        UnsupportedFeatureError
            The table is itself a branch, or the changes cannot be published. With `new_rows`: the
            branch has other columns than the table.
        """
        require_flags(replace=replace)
        from txlog.commit.app_versions import require_app_version
        from txlog.commit.operation import require_user_metadata
        from txlog.snapshot.load import load_snapshot
        from txlog.store.branches import BranchStore
        from txlog.table.audit import TableAudit

        require_app_version(txn)
        require_user_metadata(user_metadata)

        def opened(branch: Branch, at: Snapshot | None) -> Table:
            here = self._context
            view = BranchStore.of(here.store, branch.chain)
            context = Context(view, here.effects, here.engine, here.time_zone)
            return Table._of(context, load_snapshot(view) if at is None else at)

        return TableAudit(
            self.branches,
            name,
            opened,
            {} if checks is None else checks,
            {} if new_rows is None else new_rows,
            replace=replace,
            zone=self._zone,
            txn=txn,
            user_metadata=user_metadata,
        )

    @property
    def branches(self) -> TableBranches:
        """Branches: create, list, publish, discard; `Table(uri, branch=…)` opens one."""
        from txlog.table.branches import TableBranches

        return TableBranches(self)

    @property
    def pins(self) -> TablePins:
        """Names of versions, which vacuum and expire keep."""
        from txlog.table.maintenance import TablePins

        return TablePins(self)

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

        If the latest version cannot be opened because a commit is damaged, open an older one and
        call this on it. The new version replaces all that is left of the latest one, and gets a
        checkpoint, so that it can be opened without the damaged commit.

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

        latest, cause = self._latest_left()
        operation = Restore(
            version,
            timestamp,
            out_of_range=out_of_range,
            ignore_missing_files=ignore_missing_files,
            salvages=cause is not None,
        )
        outcome = self._run(operation, txn, user_metadata, latest)
        if cause is not None and outcome:  # Without it, opening would need the damaged commit.
            try:
                self.maintenance.checkpoint()
            except Exception as error:
                warn_committed(
                    f"version {outcome.version} is committed, but its checkpoint failed: {error}. "
                    "Without one the table does not open, because of the damaged commit: restore "
                    "it again"
                )
        return outcome


def _in_index_order(version: OpenVersion, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return key columns in the order of an index over them, if there is none in their own."""
    from txlog.lookup.indexed import logical_columns

    orders = [logical_columns(version.snapshot, one) or () for one in version.indexes()]
    same = [found for found in orders if sorted(found) == sorted(names)]
    return names if names in same or not same else same[0]


def lookup_of(table: Table, on: str | Sequence[str] | None) -> Lookup:
    """Return the look-up of a table's version by key columns; None: those of its only index."""
    return table._lookup(table._open, on)
