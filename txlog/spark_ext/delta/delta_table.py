"""`DeltaTable`: a table by the method names of delta-spark."""

# ruff: noqa: N802, N803, ARG003 (the names are delta-spark's)

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from txlog.base.errors import InvalidInputError, named_for_callers
from txlog.base.texts import without_secrets
from txlog.commit.operation import Operation, Outcome
from txlog.schema.arrow import arrow_schema
from txlog.spark_ext.catalog import catalog_entry, is_table_name, path_in, require_in_log
from txlog.spark_ext.delta.arguments import (
    as_errors_of_spark,
    checks_retention,
    expression_in,
    merges_schema_in_session,
    of_type,
    session_of,
    storage_options_of,
    updates_in,
)
from txlog.spark_ext.delta.builder import DeltaTableBuilder
from txlog.spark_ext.delta.frames import (
    DETAIL,
    HISTORY,
    RESTORE,
    as_frame,
    detail_row,
    history_rows,
    restore_row,
)
from txlog.spark_ext.delta.merge_builder import DeltaMergeBuilder, Refusal
from txlog.spark_ext.delta.optimize import DeltaOptimizeBuilder
from txlog.spark_ext.engine import SparkEngine, of_own_engine
from txlog.spark_ext.reads import read
from txlog.spark_ext.spark_types import frame_schema, moment_text
from txlog.spark_ext.transactions import transaction
from txlog.spark_ext.writes.conditions import RowsFound, as_predicate
from txlog.spark_ext.writes.merge import SparkUpdate, latest_schema, merge_of, table, text_of
from txlog.spark_ext.writes.same_columns import GivenFrames
from txlog.spark_ext.writes.write_frame import require_batch
from txlog.table.row_verbs import keeper_of
from txlog.table.seam import context_of, execute
from txlog.table.table import Table
from txlog.table.write_table import convert_to_delta
from txlog.verbs.delete import Delete, DeleteFound

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from txlog.commit.app_versions import AppVersion
    from txlog.verbs.merge.clauses import Clause

_PARQUET = re.compile(r"parquet\.`([^`]+)`", re.IGNORECASE)
_NOTHING = pa.schema([("path", pa.string())])


class DeltaTable:
    """A table for Spark, with the interface of delta-spark's class of the same name.

    Every method uses the latest version. Create an instance with `forPath`, `forName` or a builder.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: Table,
        alias: str | None = None,
        frames: GivenFrames | None = None,
    ) -> None:
        self._frames = frames or GivenFrames()  # Those of `toDF`.
        self._spark = spark
        self._table = table
        self._alias = alias

    @property
    def table(self) -> Table:
        """The `txlog.Table`, for operations without a method in delta-spark."""
        return self._table

    def __repr__(self) -> str:
        return f"DeltaTable({without_secrets(self._table.uri)!r})"

    @classmethod
    def forPath(
        cls,
        sparkSession: SparkSession,
        path: str,
        hadoopConf: Mapping[str, str] = {},
        *,
        branch: str | None = None,
    ) -> DeltaTable:
        """Return the table at a path, or a branch of it.

        Parameters
        ----------
        hadoopConf
            Options of the store with the names of fsspec, which are never shown. Options of Hadoop
            (`fs.…`) are refused.
        branch
            The name of an open branch, which all methods read and change. delta-spark has no such
            argument.

        Raises
        ------
        NotFoundError
            There is no table, or no such branch.
        """
        options = storage_options_of(hadoopConf)
        of_type(str, path, "path")
        with as_errors_of_spark():
            return cls(sparkSession, table(sparkSession, path, None, None, options, branch=branch))

    @classmethod
    def forName(
        cls, sparkSession: SparkSession, tableOrViewName: str, *, branch: str | None = None
    ) -> DeltaTable:
        """Return the table with a name in Spark's catalog, or at ``delta.`/path` ``.

        `branch` is that of `forPath`.

        Raises
        ------
        NotFoundError
            There is no such table, schema or branch.
        UnsupportedFeatureError
            It is a temporary view, which does not reveal its table, or a table in another format.
            Or the catalog has Delta properties that the table lacks, so they have no effect.
        """
        of_type(str, tableOrViewName, "tableOrViewName")
        with as_errors_of_spark():
            entry = catalog_entry(sparkSession, tableOrViewName)
            opened = table(sparkSession, entry.location, branch=branch)
        require_in_log(entry, tableOrViewName, opened.snapshot)
        return cls(sparkSession, opened)

    @classmethod
    def isDeltaTable(
        cls,
        sparkSession: SparkSession,
        identifier: str,
    ) -> bool:
        """Return whether there is a table at a path, or at the path in ``delta.`/path` ``."""
        of_type(str, identifier, "identifier")
        return Table.exists(path_in(identifier) or identifier)

    @classmethod
    def convertToDelta(
        cls,
        sparkSession: SparkSession,
        identifier: str,
        partitionSchema: str | StructType | None = None,
    ) -> DeltaTable:
        """Create a table from the Parquet files at ``parquet.`/path` ``; no data is written.

        Parameters
        ----------
        partitionSchema
            The partition columns with their types. Default: the names in the folders, as whole
            numbers, dates or text.

        Raises
        ------
        AlreadyExistsError
            There is a table already.
        SchemaMismatchError
            A column has two types; the error names both files. Nothing was committed.
        InvalidInputError
            The identifier does not have this form, or the folders have other partition columns.
        """
        of_type(str, identifier, "identifier")
        path = _PARQUET.fullmatch(identifier.strip())
        if path is None:
            raise InvalidInputError(
                argument="identifier",
                reason=f"parquet.`/path` was expected, not {identifier!r}",
            )
        columns = None
        if partitionSchema is not None:
            from pyspark.sql.types import StructType

            given: Any = partitionSchema
            given = StructType.fromDDL(given) if isinstance(given, str) else given
            columns = arrow_schema(frame_schema(given))
        with as_errors_of_spark(), of_own_engine("identifier"):
            convert_to_delta(path[1], columns, engine=SparkEngine(sparkSession))
        return cls.forPath(sparkSession, path[1])

    @classmethod
    def create(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder[Self]:
        """Start to define a table that must not exist yet."""
        return DeltaTableBuilder(session_of(sparkSession), "create", cls)

    @classmethod
    def createIfNotExists(
        cls,
        sparkSession: SparkSession | None = None,
    ) -> DeltaTableBuilder[Self]:
        """Start to define a table; an existing table does not change."""
        return DeltaTableBuilder(session_of(sparkSession), "createIfNotExists", cls)

    @classmethod
    def replace(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder[Self]:
        """Start to define an existing table anew; its rows are removed."""
        return DeltaTableBuilder(session_of(sparkSession), "replace", cls)

    @classmethod
    def createOrReplace(
        cls,
        sparkSession: SparkSession | None = None,
    ) -> DeltaTableBuilder[Self]:
        """Start to define a table, which replaces an existing one."""
        return DeltaTableBuilder(session_of(sparkSession), "createOrReplace", cls)

    def toDF(self) -> DataFrame:
        """Return the table's rows as a frame, under the alias if there is one.

        The frame shows the version at the time of this call, but follows the table in changes of
        it: see `spark_ext.read`.

        Conditions and values of this object's methods may be made of the frame's columns, also
        after later commits. On Spark Connect they need names: `F.col("id")`.
        """
        frame = read(self._spark, self._table.uri, storage_options=self._storage_options)
        frame = self._frames.note(frame)
        return frame if self._alias is None else frame.alias(self._alias)

    def alias(self, aliasName: str) -> DeltaTable:
        """Return this table under another name, for conditions and frames."""
        name = of_type(str, aliasName, "aliasName")
        return DeltaTable(self._spark, self._table, name, self._frames)

    def delete(self, condition: str | Column | None = None) -> None:
        """Delete the rows for which a condition is true; without a condition, all rows.

        All conditions of `DataFrame.where` are allowed: functions, UDFs, subqueries. SQL text that
        compares columns with constants needs no Spark job. For other conditions, Spark finds the
        rows. Both are one commit.

        Raises
        ------
        UnsupportedFeatureError
            The table is append-only, or cannot be written by txlog.
        AnalysisException
            Spark cannot resolve the condition.
        """
        self._delete(expression_in(condition, "condition"))

    def _delete(self, condition: str | Column | None) -> Outcome:
        table = self._table.refresh()
        predicate = as_predicate(condition, table.snapshot.schema, self._alias)
        operation: Operation
        if condition is None or predicate is not None:
            operation = Delete(predicate)
        else:
            rows = RowsFound(
                self._spark, table.uri, condition, self._alias, self._storage_options, self._frames
            )
            text = text_of(condition)
            operation = DeleteFound(rows.of, find_more=rows.of_files, description=text)
        return self._committed(table, operation)

    def _committed(self, table: Table, operation: Operation) -> Outcome:
        """Commit a change, with the transaction in the session's settings if there is one."""
        with transaction(None, self._spark) as txn:
            return execute(table, operation, txn=txn)

    def update(
        self,
        condition: str | Column | None = None,
        set: Mapping[str, str | Column] | None = None,
    ) -> None:
        """Update the rows for which a condition is true; without a condition, all rows.

        Parameters
        ----------
        condition
            Any condition of `DataFrame.where`.
        set
            Columns, or fields such as `st.b`, with SQL text or Columns over the old row.

        Raises
        ------
        InvalidInputError
            There is no such column, or it gets two values; or a value cannot be computed.
        SchemaMismatchError
            A new value breaks a constraint, or does not fit its column. Nothing was committed.
        EngineError
            Spark failed. Nothing was committed.
        """
        updates = updates_in(set, "set")
        self._update(expression_in(condition, "condition"), updates)

    def _update(self, condition: str | Column | None, updates: Mapping[str, Any]) -> Outcome:
        operation = SparkUpdate(
            self._spark, updates, condition, alias=self._alias, frames=self._frames
        )
        return self._committed(self._table, operation)

    def merge(self, source: DataFrame, condition: str | Column) -> DeltaMergeBuilder:
        """Start to define a merge of a frame; only `execute` changes the table.

        Parameters
        ----------
        source
            Any frame. Expressions may use its alias and this table's alias.
        condition
            The condition for matching rows, over both.
        """
        require_batch(source)
        if expression_in(condition, "condition") is None:
            raise InvalidInputError(argument="condition", reason="a merge needs a condition")

        def run(
            clauses: Sequence[Clause],
            merges_schema: bool,
            txn: AppVersion | None,
            refusal: Refusal,
        ) -> Outcome:
            session = source.sparkSession
            operation = merge_of(
                latest_schema(self._table),
                context_of(self._table).store,
                source,
                condition,
                clauses,
                alias=self._alias,
                merges_schema=merges_schema or merges_schema_in_session(session),
                frames=self._frames,
                quarantine=keeper_of(context_of(self._table), *refusal),
            )
            with transaction(txn, session, self._spark) as recorded:
                return execute(self._table, operation, txn=recorded)

        return DeltaMergeBuilder(self._spark, run)

    def vacuum(self, retentionHours: float | None = None) -> DataFrame:
        """Delete files that no version within the retention needs; return an empty frame.

        A retention below the table's is refused, unless the session has
        `spark.databricks.delta.retentionDurationCheck.enabled=false`. `Table.vacuum` lists the
        files first.

        Raises
        ------
        InvalidInputError
            The retention is below the table's.
        """
        checked = checks_retention(self._spark)
        self._table.refresh().vacuum(
            retentionHours, dry_run=False, enforce_retention_duration=checked
        )
        return as_frame(self._spark, [], _NOTHING)

    def generate(self, mode: str) -> None:
        """Write manifests (`symlink_format_manifest`), as `Table.maintenance.generate` does."""
        self._table.refresh().maintenance.generate(of_type(str, mode, "mode"))

    def history(self, limit: int | None = None) -> DataFrame:
        """Return the history of commits, newest first, in Delta's columns."""
        entries = self._table.refresh().history(limit)
        return as_frame(self._spark, history_rows(entries), HISTORY)

    def detail(self) -> DataFrame:
        """Return one row that describes the table, in Delta's columns."""
        return as_frame(self._spark, [detail_row(self._table.refresh())], DETAIL)

    def optimize(self) -> DeltaOptimizeBuilder:
        """Return a builder that rewrites small files into fewer files."""
        return DeltaOptimizeBuilder(self._spark, self._table)

    def restoreToVersion(self, version: int) -> DataFrame:
        """Create a version that equals an older one; errors as for `Table.restore`.

        Returns
        -------
        A frame with one row: the numbers and bytes of the table's files, and of restored and
        removed files.
        """
        return self._restored(of_type(int, version, "version"))

    def restoreToTimestamp(self, timestamp: str) -> DataFrame:
        """Create a version that equals the version at a time.

        Text without a zone is in the session's time zone. Otherwise as `restoreToVersion`.
        """
        return self._restored(timestamp=moment_text(self._spark, timestamp))

    def _restored(
        self, version: int | None = None, timestamp: str | int | None = None
    ) -> DataFrame:
        outcome = self._table.restore(version, timestamp)
        return as_frame(self._spark, [restore_row(self._table, outcome)], RESTORE)

    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> None:
        """Raise the versions of the protocol; errors as for `Table.alter.upgrade_protocol`."""
        of_type(int, readerVersion, "readerVersion")
        of_type(int, writerVersion, "writerVersion")
        self._table.alter.upgrade_protocol(readerVersion, writerVersion)

    def addFeatureSupport(self, featureName: str) -> None:
        """Add a table feature to the protocol; errors as for `Table.alter.add_features`."""
        self._table.alter.add_features(of_type(str, featureName, "featureName"))

    def dropFeatureSupport(
        self,
        featureName: str,
        truncateHistory: bool | None = None,
    ) -> None:
        """Drop a table feature; errors as for `Table.alter.drop_feature`."""
        name = of_type(str, featureName, "featureName")
        truncates = truncateHistory is not None and of_type(
            bool, truncateHistory, "truncateHistory"
        )
        self._table.alter.drop_feature(name, truncates)

    def clone(
        self,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Clone this table, as `Table.clone` does.

        Parameters
        ----------
        target
            A path, or a name for Spark's catalog: `table`, `schema.table`. A relative path of one
            word begins with `./`.
        """
        return self._cloned(target, isShallow, replace, properties)

    def cloneAtVersion(
        self,
        version: int,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Clone a version of this table; arguments are those of `clone`."""
        number = of_type(int, version, "version")
        return self._cloned(target, isShallow, replace, properties, version=number)

    def cloneAtTimestamp(
        self,
        timestamp: str,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Clone the version of this table at a time; other arguments are those of `clone`.

        Text without a zone is in the session's time zone.
        """
        moment = moment_text(self._spark, timestamp)
        return self._cloned(target, isShallow, replace, properties, timestamp=moment)

    def _cloned(
        self,
        target: str,
        isShallow: bool,
        replace: bool,
        properties: Mapping[str, str] | None,
        **moment: Any,
    ) -> DeltaTable:
        place = of_type(str, target, "target")
        clone = partial(
            self._table.refresh().clone,
            shallow=of_type(bool, isShallow, "isShallow"),
            replace=of_type(bool, replace, "replace"),
            properties=None if properties is None else of_type(dict, properties, "properties"),
            **moment,
        )
        if path_in(place) is None and is_table_name(place):
            builder = DeltaTableBuilder(self._spark, "create", DeltaTable).tableName(place)
            builder._with_options(self._storage_options)._cloned(
                lambda location: clone(target=location)
            )
            return DeltaTable.forName(self._spark, place)
        with as_errors_of_spark():
            made = clone(target=path_in(place) or place)
        opened = table(self._spark, made.uri, storage_options=self._storage_options)
        return DeltaTable(self._spark, opened)

    @property
    def _storage_options(self) -> dict[str, Any]:
        return dict(context_of(self._table).store.options)


named_for_callers(DeltaTable)
