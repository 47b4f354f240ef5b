"""What a table is: its version, schema, properties, files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from txlog.errors import require_whole
from txlog.table.handle import Handle, checked

if TYPE_CHECKING:
    import pyarrow as pa

    from txlog.actions.table import Metadata, Protocol
    from txlog.commit.intent import UserMetadata
    from txlog.commit.operation import Outcome
    from txlog.expressions.sql import Where
    from txlog.report.page import Report
    from txlog.snapshot.snapshot import Snapshot
    from txlog.store.base import Store
    from txlog.table.fragment import TableFragment, TableFragments
    from txlog.verbs.capabilities import Capability
    from txlog.verbs.doctor import Diagnosis


class History(list[dict[str, Any]]):
    """What commits say of themselves, newest first."""

    def _repr_html_(self) -> str:
        from txlog.html import rows_html

        names = ("version", "time (UTC)", "operation", "what it did", "note", "engine")
        return rows_html(names, map(_history_row, self))


def _history_row(entry: dict[str, Any]) -> list[Any]:
    from txlog.schema.timestamps import format_moment

    metrics = (entry.get("operationMetrics") or {}).items()
    made_ms = entry.get("timestamp")
    return [
        entry.get("version"),
        None if made_ms is None else format_moment(made_ms * 1000, digits=3, separator=" "),
        entry.get("operation"),
        ", ".join(f"{name} {value}" for name, value in metrics if str(value) != "0"),
        entry.get("userMetadata"),
        entry.get("engineInfo"),
    ]


@checked
class About(Handle):
    """The part of `Table` that tells what the table is."""

    def _repr_html_(self) -> str:
        from txlog.html import facts_html, rows_html, titled
        from txlog.snapshot.live_files import has_large_checkpoint
        from txlog.store.base import without_secrets

        snapshot = self._snapshot
        facts: dict[str, int | None] = {}
        if not has_large_checkpoint(snapshot):  # A look at a table takes no seconds.
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
        """Where the table is."""
        return self._context.store.root

    @property
    def version(self) -> int:
        """The version that this object stands at."""
        return self._snapshot.version

    @property
    def timestamp_ms(self) -> int:
        """When this version was made, milliseconds since the epoch, UTC: as in `history`.

        A table that is opened at this time is at this version. Without in-commit timestamps, the
        log is listed when this is asked for first.
        """
        return self._open.made_ms()

    @property
    def schema(self) -> pa.Schema:
        """The columns, in Arrow's terms; every scan of all columns has exactly these.

        The comments and other texts of columns are the metadata of their fields. Rows that are
        read do not carry them.
        """
        from txlog.schema.arrow import described_schema

        return described_schema(self._snapshot.schema)

    def doctor(self, sample: int | None = 32) -> Diagnosis:
        """Examine this version: what is wrong or slow, what that costs, and what mends it.

        It looks for gaps and damage in the log, checkpoints and checksums that do not fit, data,
        deletion and sidecar files that are gone or cut off, statistics that disagree with files,
        files that nothing needs, small files, skew, features without use, and times out of order.
        All commits are read and the table's folder is listed; nothing is written.

        Parameters
        ----------
        sample
            How many data files are opened to hold their statistics against them; None: all.

        Returns
        -------
        Diagnosis
            Iterate over its findings, print it, or call its `to_arrow()`.
        """
        from txlog.verbs.doctor import examine

        return examine(self._context, self._snapshot, sample=sample)

    def report(self, sample: int | None = 8) -> Report:
        """Return a picture of this version: one page of HTML, which a notebook shows as it is.

        It tells what happened and by whom, what the table is made of, how well scans skip files,
        what the log costs, and what `doctor` finds. `report.save("report.html")` writes the page;
        it fetches nothing. The log is read, and the table's folder is listed.

        Parameters
        ----------
        sample
            How many data files are opened to hold their statistics against them; None: all.

        Raises
        ------
        UnsupportedFeatureError
            The extra `report` is not installed.
        """
        from txlog.report.page import report

        return report(self._context, self._snapshot, self.timestamp_ms, sample)

    def repair(
        self,
        dry_run: bool = True,
        missing_files: bool = False,
        *,
        user_metadata: UserMetadata | None = None,
    ) -> pa.Table:
        """Mend what `doctor` finds in the log; by default, only say what would be done.

        A checkpoint is written where `_last_checkpoint` names none that is there, and a version
        checksum that does not fit is deleted. Other files are never touched.

        Parameters
        ----------
        dry_run
            Write nothing.
        missing_files
            Also take files out of the table whose data or deletion vectors are gone, in a commit
            `FSCK`. Their rows are given up, so first look whether a copy or `restore` has them.

        Returns
        -------
        pyarrow.Table
            A row for each repair: `action`, `path`, `rows` that go, `decision` (`do` or `skip`) and
            `reason`.

        Raises
        ------
        UnsupportedFeatureError
            txlog may not write the table, or it is append-only and rows would go.
        """
        from txlog.verbs.repair import repair

        done = repair(
            self._context,
            self._latest(),
            dry_run=dry_run,
            lost_files=missing_files,
            user_metadata=user_metadata,
        )
        self._move(done.snapshot)
        return done.decided

    @property
    def metadata(self) -> Metadata:
        """The `metaData` action in force."""
        return self._snapshot.metadata

    @property
    def protocol(self) -> Protocol:
        """The `protocol` action in force."""
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
        """This version as a value: it pickles, and does not move when the table does."""
        return self._snapshot

    @property
    def store(self) -> Store:
        """The store that holds the table."""
        return self._context.store

    def history(self, limit: int | None = None) -> History:
        """Return what each commit up to this version says of itself, newest first.

        Each entry has `version` and `timestamp` (milliseconds since the epoch: the time by which
        `Table(uri, timestamp=…)` and `restore` find this version), and what its writer noted:
        `operation`, `operationParameters`, `operationMetrics`, `engineInfo`, …

        It is a list, which notebooks show as a table.
        """
        from txlog.snapshot.time_travel import history

        if limit is not None:
            require_whole("limit", limit)
        return History(history(self._context.store, self._snapshot, limit))

    def versions(self) -> list[dict[str, Any]]:
        """Return the versions that the log still makes up, up to this one, ascending.

        Each entry has `version`, `timestamp` (milliseconds since the epoch; None if its commit was
        cleaned up) and `pins`: the names that `Table.pins` has for it.
        """
        from txlog.snapshot.time_travel import versions

        return versions(self._context.store, self._snapshot)

    def capabilities(self) -> dict[str, Capability]:
        """Return for each verb whether this version of the table lets it be done.

        The verbs are `scan`, `stable_row_ids`, `changes`, `refresh`, `append`, `overwrite`,
        `delete`, `compact`, `compute_statistics`, `restore`, `add_columns`, `replace_columns`,
        `drop_columns` and `checkpoint`. Each capability is true or false, and says of a verb that
        cannot be done which features stand in the way, why, and what to do.
        """
        from txlog.verbs.capabilities import capabilities

        return capabilities(self._context.store, self._snapshot)

    def files(self, columns: list[str] | None = None) -> pa.Table:
        """Return the data files of this version, one row each.

        Parameters
        ----------
        columns
            Of those below, the ones to return, in this order. Default: all. Of a large table,
            all but `fragment_id` and `fields` are quickly there, and in no order without these.

        Notes
        -----
        Columns: `path` (as logged), `size_bytes`, `num_records` (rows in the file; null if
        unknown), `num_deleted`, `partition_values` (a map), `modification_time` (milliseconds),
        `fragment_id`, `stats` (JSON text; null too where a checkpoint has them as structs
        alone), `deletion_vector` (its unique id), `fields` (of a file that gives a fragment
        further columns, their names; else null).
        """
        from txlog.scan.files import list_files

        version = self._open
        return list_files(
            self._context.store, version.snapshot, lambda: version.files().live, columns
        )

    def get_add_actions(self, flatten: bool = False) -> pa.Table:
        """Return the data files with partition values and statistics in the table's types.

        Columns: `path`, `size_bytes`, `modification_time` (milliseconds), `num_records`, and the
        structs `partition`, `null_count`, `min` and `max`, as deltalake has them. Statistics are
        null where the log has none; of columns that the table's properties give none, they are left
        out. `files` is faster, and tells more of each file.

        Parameters
        ----------
        flatten
            Have the fields of the structs as columns, such as `min.x`.
        """
        from txlog.scan.files import add_actions

        version = self._open
        return add_actions(version.snapshot, version.files().live, flatten=flatten)

    def deletion_vectors(self) -> pa.RecordBatchReader:
        """Return which rows of the files are left, of files some of whose rows are deleted.

        A stream with a row for each such file, read one by one: `filepath`, a URI, and
        `selection_vector`, a list of true for each row that is left and false for each deleted
        one, in the order of the file.
        """
        from txlog.scan.read import selection_vectors

        version = self._open
        deleted = (one for one in version.fragments() if one.deletion is not None)
        return selection_vectors(self._context.store, version.plan([]), deleted)

    def partitions(self, where: Where = None) -> list[dict[str, str | None]]:
        """Return the partition values of the files, as the log has them: each once, as text.

        Parameters
        ----------
        where
            Only partitions that a row of which this is true may be in.
        """
        from txlog.expressions.sql import as_expression
        from txlog.scan.files import partitions_of
        from txlog.scan.plan import plan_scan

        version = self._open
        plan = plan_scan(version.snapshot, version.files().live, where=as_expression(where))
        return partitions_of(version.snapshot, plan.files.rows.primaries)

    def fragments(self) -> TableFragments:
        """Return the fragments of this version, ordered by id: a sequence, as a list is.

        A `TableFragment` is made when it is asked for.
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

    def get_fragment(self, fragment_id: int) -> TableFragment | None:
        """Return the fragment of an id, or None if this version has none."""
        return self.fragments().of_id(fragment_id)

    @property
    def outcome(self) -> Outcome | None:
        """What the last writing verb of this object did, or None if there was none.

        Also after `txlog.write`, which returns the table.
        """
        return self._outcome

    def transaction_version(self, app_id: str) -> int | None:
        """Return the last version that an application recorded with `txn`, or None."""
        return self._snapshot.transaction_version(app_id)
