"""Reading a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from txlog.base.errors import InvalidInputError, require_flags, require_whole
from txlog.base.observe import reading
from txlog.table.handle import Handle, OpenVersion

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from txlog.changes.blame import Blame
    from txlog.changes.changes import Changes, Clipping
    from txlog.changes.diff import Diff
    from txlog.expressions.sql import Where
    from txlog.scan.plan import ScanPlan
    from txlog.scan.scan import Scan
    from txlog.scan.take import PlanOf
    from txlog.snapshot.snapshot import Snapshot


class Reading(Handle):
    """The part of `Table` that reads rows."""

    def scan(self, columns: list[str] | None = None, where: Where = None) -> Scan:
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

        Raises
        ------
        InvalidInputError
            A column is not in the table, or the predicate does not fit it.
        """
        from txlog.expressions.sql import as_expression
        from txlog.scan.lazy_plan import plan_snapshot
        from txlog.scan.scan import Scan

        version = self._open
        plan = plan_snapshot(
            self._context.store,
            version.snapshot,
            lambda: version.files().live,
            columns=columns,
            where=as_expression(where),
        )
        return Scan(self._context.store, plan.for_arrow(), self._context.engine)

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
    ) -> Any:
        """Return this version as a `pyarrow.dataset.Dataset`.

        pyarrow, duckdb and polars push filters and columns down to it: partition values and
        statistics of the log skip files that cannot match. It does not contain deleted rows. Files
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

        Raises
        ------
        InvalidInputError
            The predicate does not fit the table.
        """
        require_flags(as_large_types=as_large_types)
        from txlog.expressions.sql import as_expression
        from txlog.scan.dataset import as_dataset
        from txlog.scan.plan import plan_scan

        version = self._open
        return as_dataset(
            self._context.store,
            version.snapshot,
            plan_scan(version.snapshot, version.files().live, where=as_expression(where)),
            schema=schema,
            as_large_types=as_large_types,
            parquet_read_options=parquet_read_options,
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
        columns
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

        store, engine = self._context.store, self._context.engine
        given = (indices, addresses, row_ids)
        if sum(one is not None for one in given) != 1:
            raise InvalidInputError(
                argument="indices",
                reason="exactly one of indices, addresses and row_ids is expected",
            )
        plan_of = self._plan_all(self._open)
        if indices is not None:
            return take_live(store, plan_of(columns), indices, engine)
        return take_rows(
            store, plan_of, addresses=addresses, row_ids=row_ids, columns=columns, engine=engine
        )

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
        return plan_diff(
            context.store, start, end, on=on, columns=columns, where=as_expression(where),
            engine=context.engine,
        )  # fmt: skip

    def blame(self, columns: list[str] | None = None, where: Where = None) -> Blame:
        """Plan a scan of rows with the version and the commit that wrote each row.

        The result has the columns, then `_commit_version`, `_commit_timestamp`, `_operation` and
        `_user`. In a table that tracks rows, the version is the last one that changed the row, even
        if its file was rewritten later. In another table it is the version that added the row's
        file, which may be a compaction. Values from deleted log files are null.

        Parameters
        ----------
        columns, where
            As for `scan`.
        """
        from txlog.changes.blame import plan_blame
        from txlog.expressions.sql import as_expression

        context = self._context
        return plan_blame(
            context.store, self._snapshot, columns=columns, where=as_expression(where),
            engine=context.engine,
        )  # fmt: skip

    def _version(self, version: int | str | None) -> Snapshot:
        """Return a version by its number or pin; None means this version."""
        from txlog.snapshot.time_travel import snapshot_at

        own = self._snapshot
        if version is None or version == own.version:
            return own
        return snapshot_at(self._context.store, version, None, catalog=own.catalog)

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
            store, last, first, columns=columns, where=as_expression(where),
            engine=self._context.engine, latest=self._snapshot,
        )  # fmt: skip
        return replace(changes, plan=changes.plan.for_arrow())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.scan().__arrow_c_stream__(requested_schema)
