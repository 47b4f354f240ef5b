"""Describe a table: its version, schema, properties and files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txlog.base.errors import require_texts, require_whole
from txlog.table.handle import Handle, OpenVersion

if TYPE_CHECKING:
    import pyarrow as pa

    from txlog.actions.table import Metadata, Protocol
    from txlog.commit.operation import Outcome
    from txlog.expressions.sql import Where
    from txlog.fragments.rows import FragmentRows
    from txlog.scan.files import Statistics
    from txlog.snapshot.snapshot import Snapshot
    from txlog.table.fragment import TableFragments
    from txlog.table.history import History
    from txlog.verbs.capabilities import Capability
    from txlog.verbs.doctor import Diagnosis


class About(Handle):
    """The part of `Table` that describes the table."""

    def _repr_html_(self) -> str:
        from txlog.base.html import facts_html, rows_html, titled
        from txlog.base.uris import without_secrets
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
        files, small files, skew, unused features, and timestamps out of order. All commits are read
        and the table's folder is listed; nothing is written.

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
        return History(history(self._context.store, self._snapshot, limit))

    def versions(self) -> pa.Table:
        """Return the versions up to this one that can still be opened, ascending.

        Columns: `version`, `timestamp` (milliseconds since the epoch; null if its commit was
        cleaned up, or the store does not know the time) and `pins`: its names in `Table.pins`.
        """
        from txlog.snapshot.time_travel import versions

        return versions(self._context.store, self._snapshot)

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
            result is fast but unordered if `fragment_id` and `fields` are omitted.
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
        `deletion_vector` (its unique id), `fields` (for a column file, the names of its columns;
        else null). With typed statistics, the last columns are `partition` (also typed; none for a
        table without partitions), `null_count`, `min` and `max` or their fields, in place of
        `partition_values` and `stats`.
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

        The columns are the partition columns, with the values as logged texts.

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
        return plan_scan(version.snapshot, files, where=as_expression(where)).files.rows

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
