"""Merges and updates with Spark's conditions and values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users name it

from txlog.base.errors import (
    InvalidInputError,
    in_callers_words,
)
from txlog.base.frames import is_frame
from txlog.commit.operation import Operation
from txlog.data_files.assignments import require_apart, target_field
from txlog.data_files.options import WriteOptions, as_options
from txlog.data_files.row_changes import RowChanges
from txlog.data_files.write_plan import evolved_schema
from txlog.expressions.bind import columns_of
from txlog.expressions.sql import as_expression, to_sql
from txlog.expressions.tree import And, Column, Expression, quote_name
from txlog.scan.plan import ScanPlan
from txlog.schema.types import StructField, StructType
from txlog.snapshot.snapshot import Snapshot
from txlog.spark_ext.engine import SparkEngine, before_commit, of_own_engine
from txlog.spark_ext.names import placed
from txlog.spark_ext.spark_types import frame_schema
from txlog.spark_ext.transactions import transaction
from txlog.spark_ext.writes.change_tasks import ADDRESS, PLACE, SOURCE
from txlog.spark_ext.writes.clause_names import OneSide, quoted
from txlog.spark_ext.writes.column_text import OF_SOURCE, OF_TARGET, column_text
from txlog.spark_ext.writes.conditions import as_predicate, is_alike, is_plain_text
from txlog.spark_ext.writes.own_reads import reads_table
from txlog.spark_ext.writes.refused_rows import FixedSource
from txlog.spark_ext.writes.row_changes import (
    ClauseValues,
    Given,
    PlannedChange,
    SparkChange,
    find_work,
    require_free_names,
    target_frame,
)
from txlog.spark_ext.writes.same_columns import GivenFrames
from txlog.spark_ext.writes.small_sources import small_merge
from txlog.spark_ext.writes.source_keys import SourceKeys
from txlog.spark_ext.writes.write_frame import require_batch
from txlog.table.merge import TableMerger
from txlog.table.seam import context_of, open_table
from txlog.table.table import Table
from txlog.verbs.merge.clauses import (
    ACTIONS,
    REMOVING,
    Clause,
    Kind,
    MergeRequest,
    Understood,
    columns_of_same_name,
    may_lack_fields,
    own_path,
    require_insertable,
    require_reachable,
)
from txlog.verbs.merge.condition import conjuncts, require_distinct, require_key, with_columns
from txlog.verbs.merge.merge import merge_metrics, parameters
from txlog.verbs.update import update_metrics

if TYPE_CHECKING:
    import os
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from txlog.commit.app_versions import AnyAppVersion, AppVersion
    from txlog.commit.intent import UserMetadata
    from txlog.commit.operation import Companion, Outcome
    from txlog.data_files.sieve import Rejects
    from txlog.store.base import Store


SPARK = Understood(
    "Spark",
    frozenset({"kind", "action", "predicate", "updates", "except_cols", "partial", "keeps_fields",
               "data", "on", "source_alias", "target_alias", "schema_mode", "options",
               "target_file_bytes", "max_rows_per_file", "writer_properties",
               "use_index", "quarantine"}),
    ACTIONS,
)  # fmt: skip


_TARGET = "_txlog_target"  # The alias of a table that has none.
_COPY = "_txlog_source_"  # The names of columns of the source that both sides have.


def as_column(value: Any) -> SparkColumn:
    """Return a Spark expression from SQL text or a Column."""
    return F.expr(value) if isinstance(value, str) else value


def _as_text(value: Any) -> Any:
    """Return a txlog expression as SQL text, and other values unchanged."""
    return to_sql(value) if isinstance(value, Expression) else value


def text_of(value: Any) -> str:
    """Return the text of an expression for the commit."""
    return value if isinstance(value, str) else str(value)[len("Column<'") : -2]


class SparkUpdate(SparkChange):
    """Change values of the rows for which a Spark condition is true; None: all rows."""

    name = "UPDATE"

    def __init__(
        self,
        spark: SparkSession,
        updates: Mapping[str, Any],
        where: str | SparkColumn | None,
        *,
        alias: str | None = None,
        frames: GivenFrames | None = None,
    ) -> None:
        super().__init__()
        self._frames = frames or GivenFrames()
        self._spark = spark
        self._updates = updates
        self._where = where
        self._alias = alias

    def where(self, base: Snapshot) -> Expression | None:
        """Return the condition, if txlog evaluates it as Spark does."""
        return as_predicate(self._where, base.schema, self._alias)

    def planned(self, base: Snapshot, only: pa.ChunkedArray | None = None) -> PlannedChange:
        """Return the rows for which the condition is true, with their new values."""
        where = self.where(base)
        target = target_frame(self._spark, base, self.context, where, only)
        target = self._frames.added_to(target, [self._where, *self._updates.values()])
        target = target if self._alias is None else target.alias(self._alias)
        rows = target if self._where is None else target.where(self._where)
        given = _given(self._updates, self._alias, base.schema, base.schema)
        return PlannedChange(
            rows.withColumn(PLACE, F.lit(0)),
            target,
            (ClauseValues("update", given),),
            base.schema,
            {"predicate": [] if self._where is None else [text_of(self._where)]},
        )

    def metrics(self, changes: RowChanges) -> dict[str, int]:
        """Return Delta's metrics of UPDATE."""
        return update_metrics(changes)


class SparkMerge(SparkChange):
    """Merge a Spark frame by Spark's join.

    Parameters
    ----------
    source
        The frame, under the alias that expressions use.
    predicate, clauses
        Conditions and values are Spark's SQL text or Columns.
    alias
        The name of the table in expressions.
    merges_schema
        Whether columns that only the source has are added.
    frames
        Earlier frames of the table, whose Columns conditions and values may use.
    quarantine
        Takes the source rows that make rows which do not fit. Default: they are an error.
    """

    name = "MERGE"

    def __init__(
        self,
        source: DataFrame,
        predicate: Any,
        clauses: Sequence[Clause],
        *,
        on: Sequence[str] = (),
        alias: str | None = None,
        merges_schema: bool = False,
        options: WriteOptions | None = None,
        frames: GivenFrames | None = None,
        quarantine: Rejects | None = None,
    ) -> None:
        super().__init__(options)
        self._frames = frames or GivenFrames()
        if not clauses:
            raise InvalidInputError(
                reason="the merge has no clause",
                remedy="State what it does, for example .whenMatchedUpdateAll()",
            )
        SPARK.require(*clauses)
        require_reachable(clauses)
        self._given = source
        self._read = source  # It reads this table at the version that the attempt changes.
        self._source = source  # With a quarantine: its rows, once they are computed.
        self._quarantine = quarantine
        self._fixed: FixedSource | None = None
        self._predicate = predicate
        self._key = on
        self._clauses = tuple(clauses)
        self._alias = alias
        self._merges_schema = merges_schema
        # Of the last attempt at all files: true for the rows that have a key of the source.
        self._matching: Expression | None = None
        self._keys: SourceKeys | None = None
        self._said: tuple[str | None, str | None, DataFrame] = None, alias, source

    @property
    def removes_rows(self) -> bool:  # type: ignore[override]
        """Whether rows may be removed. Append-only tables allow merges that only insert."""
        return any(clause.action in REMOVING for clause in self._clauses)

    @property
    def source(self) -> DataFrame:
        """The other side of the merge."""
        return self._read

    def companions(self, txn: AnyAppVersion | None) -> Sequence[Companion]:
        """Return the commit of rows to the quarantine."""
        return () if self._quarantine is None else self._quarantine.companions(txn)

    def side_metrics(self) -> Mapping[str, int]:
        """Return the number of rows in the quarantine, if there is one."""
        return {} if self._quarantine is None else self._quarantine.metrics

    def extended(self, base: Snapshot, changes: RowChanges, added: pa.Table) -> RowChanges | None:
        """Return the changes with those of added files, which may match rows of the source.

        None also if they do and the merge inserts rows: these may be among those that it inserted.
        None with a quarantine: further rows of the source may be refused.
        """
        if self._quarantine is not None:
            return None
        if any(clause.kind == "not_matched" for clause in self._clauses):
            if not self.may_extend() or self._matches(base, added["path"]):
                return None
            if not self._changes_others:
                return changes
        return super().extended(base, changes, added)

    def _matches(self, base: Snapshot, only: pa.ChunkedArray) -> bool:
        """Return whether a row of some files of the table matches a row of the source."""
        kinds = {clause.kind for clause in self._clauses}
        target = self._target(base, self.where(base), kinds, only)
        found = target.join(self._source, as_column(self._predicate), "left_semi")
        with before_commit():
            return not found.isEmpty()

    def changed(self, base: Snapshot) -> RowChanges:
        """Let Spark compute the merge with a version: see `SparkChange.changed`."""
        self._matching = self._keys = None
        if self._fixed is None:
            self._read = self._source = self.followed(self._given, base)
        if self._quarantine is not None:
            self._quarantine.at(base)
            if self._fixed is None:
                self._require_computed_from(base)
                require_distinct(frame_schema(self._given.schema))  # Names of the kept values.
                self._fixed = FixedSource(self._read, self._quarantine)
                self._source = self._fixed.frame
        keys = None
        if not self._changes_others:
            self._said = text, alias, source = self._text(base)
            keys = SourceKeys.of(
                text,
                source,
                alias=alias,
                target=base.schema,
                columns=frame_schema(self._given.schema),
            )
        if keys is None:
            return super().changed(base)
        with keys.kept():
            self._matching, self._keys = keys.where(), keys
            return super().changed(base)

    def _text(self, base: Snapshot) -> tuple[str | None, str | None, DataFrame]:
        """Return the condition as text, the table's alias in it, and the source under its alias.

        For a Column, the text has those parts of it that txlog can parse.
        """
        if isinstance(self._predicate, str):
            return self._predicate, self._alias, self._source
        source = self._source
        text = column_text(self._predicate, base.schema, self._alias, source, self._frames)
        return text, OF_TARGET, source.alias(OF_SOURCE)

    def most_changed(self, base: Snapshot, plan: ScanPlan) -> int | None:
        """Return about how many rows of the plan's files have a key of the source."""
        return None if self._keys is None else self._keys.about_rows(base, plan.files)

    @property
    def _changes_others(self) -> bool:
        """Whether rows without a match may change."""
        return any(clause.kind == "not_matched_by_source" for clause in self._clauses)

    def settled(self, base: Snapshot, change: PlannedChange, plan: ScanPlan) -> PlannedChange:
        """Put source rows at fault into the quarantine; return the change without them."""
        if self._fixed is None:
            return change
        task, frame = find_work(self.work(base, change, plan), base, change)
        found = self._fixed.find(task, self.followed(frame, base))
        self.require_single(base, found.touched)
        if not len(found.rows):
            return change
        self._fixed.refuse(found, self.name, base)
        return self.planned(base)

    def planned(self, base: Snapshot, only: pa.ChunkedArray | None = None) -> PlannedChange:
        """Return the rows of the join that a clause applies to, with their new values."""
        columns = frame_schema(self._given.schema)
        require_free_names(columns)
        require_key(self._key, target=base.schema, source=columns)
        schema = base.schema
        if self._merges_schema:
            schema = evolved_schema(base, columns)
        kinds = {clause.kind for clause in self._clauses}
        target = self._target(base, self.where(base), kinds, only)
        copies: dict[str, str] = {}
        seeing = [
            self._seeing(clause, self._name(kinds), base.schema, columns, copies)
            for clause in self._clauses
        ]
        source = self._source.withColumn(SOURCE, F.lit(True))
        for name, copy in copies.items():
            source = source.withColumn(copy, self._source[quote_name(name)])
        joined = kinds if only is None else kinds - {"not_matched"}
        rows = _joined(target, source, as_column(self._predicate), joined)
        if self._fixed is not None:
            rows = self._fixed.without_refused(rows)
        place = _place(seeing, only_source=kinds == {"not_matched"})
        clauses = []
        for clause in seeing:
            values = self._values(clause, source, schema, columns, base.schema)
            clauses.append(ClauseValues(clause.action, values))
        texts = [None if one.predicate is None else text_of(one.predicate) for one in self._clauses]
        return PlannedChange(
            rows.withColumn(PLACE, place).where(F.col(PLACE).isNotNull()),
            None if kinds == {"not_matched"} else target,
            tuple(clauses),
            schema,
            parameters(text_of(self._predicate), self._clauses, texts),
        )

    def where(self, base: Snapshot) -> Expression | None:
        """Return a predicate that is true for every row of the table that the merge may change."""
        if self._changes_others:
            return None
        columns = frame_schema(self._given.schema)
        text, alias, _ = self._said
        of_target = None if text is None else _of_target(text, alias, base.schema, columns)
        return _all_of([one for one in (of_target, self._matching) if one is not None])

    def _name(self, kinds: set[Kind]) -> str | None:
        """Return the alias of the table's frame."""
        if self._alias is None and "not_matched_by_source" in kinds:
            return _TARGET
        return self._alias

    def _target(
        self,
        base: Snapshot,
        where: Expression | None,
        kinds: set[Kind],
        only: pa.ChunkedArray | None,
    ) -> DataFrame:
        """Return the rows of the table, under the name that expressions use."""
        target = target_frame(
            self._source.sparkSession,
            base,
            self.context,
            where,
            only,
            is_committed=self.begun is None,
            ids=not self.takes_ids,
        )
        target = self._frames.added_to(target, self._expressions(), self._source)
        alias = self._name(kinds)
        return target if alias is None else target.alias(alias)

    def _seeing(
        self,
        clause: Clause,
        alias: str | None,
        target: StructType,
        source: StructType,
        copies: dict[str, str],
    ) -> Clause:
        """Return a clause whose SQL text means the columns of the side that it sees.

        `copies` gets the columns of the source that are needed under another name, with that name.
        """
        side: OneSide
        if clause.kind == "not_matched_by_source":
            assert alias is not None
            side = OneSide("target", target, source, self._is_of_source(target), quoted(alias))
        elif clause.kind == "not_matched":

            def copied(field: StructField) -> str:
                return quote_name(copies.setdefault(field.name, f"{_COPY}{field.name}"))

            def is_of_target(first: str, name: str) -> bool:
                is_alias = self._alias is not None and first.lower() == self._alias.lower()
                return is_alias and target.get(name) is not None

            side = OneSide("source", source, target, is_of_target, copied)
        else:
            return clause
        return replace(
            clause,
            predicate=side.text(clause.predicate)
            if isinstance(clause.predicate, str)
            else clause.predicate,
            updates=clause.updates
            and {
                name: side.text(value) if isinstance(value, str) else value
                for name, value in clause.updates.items()
            },
        )

    def _is_of_source(self, target: StructType) -> Callable[[str, str], bool]:
        """Return a function that tells whether `first.second` is a column of the source.

        The alias of a frame cannot be read, but Spark can check whether a name is an alias.
        """

        def is_of_source(first: str, name: str) -> bool:
            from pyspark.errors import AnalysisException

            own = self._alias is not None and first.lower() == self._alias.lower()
            if own or target.get(first) is not None:
                return False
            try:
                _ = self._source.select(f"{quote_name(first)}.{quote_name(name)}").schema
            except AnalysisException:
                return False
            return True

        return is_of_source

    def _expressions(self) -> Iterator[Any]:
        """Yield all conditions and values."""
        yield self._predicate
        for clause in self._clauses:
            yield clause.predicate
            yield from (clause.updates or {}).values()

    def _values(
        self,
        clause: Clause,
        source: DataFrame,
        schema: StructType,
        columns: StructType,
        target: StructType,
    ) -> dict[tuple[str, ...], Given]:
        if clause.action in ("delete", "fail"):
            return {}
        given: dict[tuple[str, ...], Given] = {}
        if clause.updates is None:
            names = columns_of_same_name(clause, schema, columns, merges_schema=self._merges_schema)
            for name, theirs in names.items():
                given[name,] = Given(source[quote_name(theirs)], argument="source")
        else:
            given = _given(clause.updates, self._alias, schema, target)
        if may_lack_fields(clause, merges_schema=self._merges_schema):
            given = {path: replace(one, keeps_fields=True) for path, one in given.items()}
        if clause.action == "insert":
            require_insertable(list(given), schema)
        return given

    def metrics(self, changes: RowChanges) -> dict[str, int]:
        """Return Delta's metrics of MERGE, without the number of source rows."""
        return merge_metrics(
            inserted=self.inserted,
            updated=self.updated,
            gone=changes.rows,
            changes=changes,
        )


def _given(
    updates: Mapping[str, Any], alias: str | None, schema: StructType, before: StructType
) -> dict[tuple[str, ...], Given]:
    """Return the values by the exact paths of their fields; `before` is the schema before."""
    given = {}
    paths = []
    for name, value in updates.items():
        path, _ = target_field(own_path(name, alias, before), schema)
        paths.append(path)
        given[path] = Given(as_column(value))
    require_apart(paths)
    return given


def _joined(
    target: DataFrame, source: DataFrame, condition: SparkColumn, kinds: set[Kind]
) -> DataFrame:
    """Return the pairs of matching rows and, if requested, rows of a side without a match."""
    if kinds == {"not_matched"}:
        return source.join(target, condition, "left_anti")
    how = {
        (False, False): "inner",
        (True, False): "right",
        (False, True): "left",
        (True, True): "full",
    }["not_matched" in kinds, "not_matched_by_source" in kinds]
    return target.join(source, condition, how)


def _place(clauses: Sequence[Clause], *, only_source: bool) -> SparkColumn:
    """Return the number of the clause that applies to a row of the join; null: none applies."""
    of_target = F.lit(False) if only_source else F.col(ADDRESS).isNotNull()
    of_source = F.col(SOURCE).isNotNull()
    kinds = {
        "matched": of_target & of_source,
        "not_matched": ~of_target,
        "not_matched_by_source": ~of_source,
    }
    branches = []
    for clause in clauses:
        applies = kinds[clause.kind]
        if clause.predicate is not None:
            applies = applies & as_column(clause.predicate)
        branches.append(applies)
    chain = F.when(branches[0], F.lit(0))
    return reduce(lambda c, b: c.when(b[1], F.lit(b[0])), list(enumerate(branches))[1:], chain)


def _of_target(
    predicate: str, alias: str | None, schema: StructType, source: StructType
) -> Expression | None:
    """Return the parts of a condition about only the table that txlog evaluates as Spark does.

    Pure. They exclude files, and tell the conflict check which rows were read.
    """
    if not is_plain_text(predicate):
        return None
    try:
        expression = as_expression(predicate)
    except InvalidInputError:
        return None
    parts = []
    for part in conjuncts(expression) if expression is not None else ():
        paths = [_own(path, alias, schema, source) for path in columns_of(part)]
        if not paths or None in paths:
            continue
        plain = with_columns(
            part, lambda column: Column(_own(column.path, alias, schema, source) or column.path)
        )
        if is_alike(plain, schema):
            parts.append(plain)
    return _all_of(parts)


def _all_of(parts: Sequence[Expression]) -> Expression | None:
    """Return the condition that all of some are true; None without any."""
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _own(
    path: tuple[str, ...], alias: str | None, schema: StructType, source: StructType
) -> tuple[str, ...] | None:
    """Return the path of a column if it certainly belongs to the table, or None."""
    if alias is not None and len(path) > 1 and path[0].lower() == alias.lower():
        return path[1:]
    alone = len(path) == 1 and source.get(path[0]) is None and schema.get(path[0]) is not None
    return path if alone else None


def merge_of(
    table: StructType,
    store: Store,
    source: DataFrame,
    predicate: Any,
    clauses: Sequence[Clause],
    *,
    on: Sequence[str] = (),
    alias: str | None,
    merges_schema: bool,
    options: WriteOptions | None = None,
    frames: GivenFrames | None = None,
    quarantine: Rejects | None = None,
    begun: Callable[[], Snapshot] | None = None,
) -> Operation:
    """Return the merge of a frame: with Spark's join, or without it if the frame has few rows.

    Parameters
    ----------
    table, store
        The schema and the store of the table.
    begun
        As for `SparkChange`.
    """
    predicate = _as_text(predicate)
    clauses = [
        replace(
            clause,
            predicate=_as_text(clause.predicate),
            updates=clause.updates
            and {name: _as_text(value) for name, value in clause.updates.items()},
        )
        for clause in clauses
    ]
    operation = SparkMerge(
        source,
        predicate,
        clauses,
        on=on,
        alias=alias,
        merges_schema=merges_schema,
        options=options,
        frames=frames,
        quarantine=quarantine,
    )
    operation.begun = begun
    # Rows that are collected once do not follow a table that they were read from.
    if merges_schema or reads_table(source, store):
        return operation
    small = small_merge(
        source,
        predicate,
        clauses,
        alias=alias,
        schema=table,
        options=options,
        quarantine=quarantine,
    )
    return small or operation


def latest_schema(table: Table) -> StructType:
    """Return the schema of the latest version of a table, which stays at its own version."""
    return open_table(context_of(table).store, snapshot=table.snapshot).refresh().snapshot.schema


class SparkTable(Table):
    """A table whose verbs do the work on many files on Spark's executors."""

    def merge(self, source: Any, predicate: Any = None, *aliases: str, **more: Any) -> TableMerger:
        """Merge rows like `Table.merge`; the source may also be a Spark frame.

        For a frame, conditions and values are Spark expressions: SQL text or Columns. Executors
        join and write its rows. Without `txn`, the settings of the frame's session apply, as for
        `write`.

        Raises
        ------
        UnsupportedFeatureError
            `options.error_on_type_mismatch` is false, which merges of frames do not support: cast
            the values in the frame, with `try_cast`.
        """
        if is_frame(source):
            require_batch(source)
        return super().merge(source, predicate, *aliases, **more)

    def _merge(
        self,
        request: MergeRequest,
        clauses: Sequence[Clause],
        txn: AppVersion | None,
        user_metadata: UserMetadata | None,
    ) -> Outcome:
        source = request.data
        if not is_frame(source):
            return super()._merge(request, clauses, txn, user_metadata)
        require_batch(source)
        SPARK.require(request, as_options(request.options))
        operation = merge_of(
            latest_schema(self),
            context_of(self).store,
            source.alias(request.source_alias),
            request.condition,
            clauses,
            on=request.on or (),
            alias=request.target_alias,
            merges_schema=request.schema_mode == "merge",
            options=request.options,
            quarantine=request.quarantine,
        )
        with transaction(txn, source.sparkSession) as recorded:
            return self._run(operation, recorded, user_metadata)


@in_callers_words
def table(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    version: int | None = None,
    timestamp: str | datetime | int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    *,
    branch: str | None = None,
) -> SparkTable:
    """Open a table whose verbs do the work on many files on Spark's executors.

    The arguments and errors are those of `txlog.Table`; the engine is `SparkEngine(spark)`.
    """
    place, options = placed(spark, uri, storage_options, branch)
    with of_own_engine("uri"):
        return SparkTable(place, version, timestamp, options, engine=SparkEngine(spark))
