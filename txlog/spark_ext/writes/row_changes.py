"""Updates and merges on Spark: Spark computes rows, tasks write them, the driver commits once.

Rules: spec/spark.md, SPK-20 to SPK-24.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users name it
from pyspark.sql.types import ArrayType, DataType, MapType
from pyspark.sql.types import StructField as SparkField
from pyspark.sql.types import StructType as SparkStruct

from txlog.base.errors import TxlogError, UnsupportedFeatureError
from txlog.commit.context import Context, require_shared
from txlog.commit.intent import Reads
from txlog.commit.operation import discarding
from txlog.data_files.change_files import change_layout, discard_changes, records_changes
from txlog.data_files.constraints import is_generated
from txlog.data_files.deletions import delete_positions, plan_changes
from txlog.data_files.identity import counted, identities, with_marks
from txlog.data_files.incoming import is_storable, lacking_fields, require_whole_structs
from txlog.data_files.options import WriteOptions, as_options
from txlog.data_files.rewrite import plan_rewrite
from txlog.data_files.row_changes import RowChanges
from txlog.data_files.write_plan import plan_write
from txlog.expressions.tree import Expression, quote_name
from txlog.scan.columns import ROW_ADDRESS, ROW_ID
from txlog.scan.plan import ScanPlan
from txlog.schema.types import StructField as DeltaField
from txlog.schema.types import StructType
from txlog.snapshot.snapshot import Snapshot
from txlog.spark_ext.answers import answered, unpacked
from txlog.spark_ext.engine import before_commit, map_in_arrow
from txlog.spark_ext.plans import has_plan, is_plain, tried
from txlog.spark_ext.reads.read_frame import read_version
from txlog.spark_ext.session_settings import with_settings
from txlog.spark_ext.spark_types import frame_schema, read_schema, require_storable
from txlog.spark_ext.writes.change_tasks import (
    ADDRESS,
    MOST_NAMED,
    PLACE,
    ROW_NUMBER,
    SOURCE,
    SOURCE_ROW,
    Action,
    ChangeTask,
    RowChange,
    Touched,
    Written,
    change_task,
    new_name,
    old_name,
)
from txlog.spark_ext.writes.followed import followed
from txlog.spark_ext.writes.own_reads import (
    change_reads_table,
    is_settled,
    require_unchanged,
)
from txlog.spark_ext.writes.refused_tasks import FindTask, GivenValue
from txlog.spark_ext.writes.taken_rows import TakenRows, takes_rows
from txlog.spark_ext.writes.write_frame import assigned, by_rows, is_stored
from txlog.verbs.change_rows import ChangeRows
from txlog.verbs.merge.clauses import REMOVING
from txlog.verbs.merge.match import must_not_match, several_match

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_ANSWER = "answer binary"
_EACH_APART = {"spark.sql.subexpressionElimination.enabled": "false"}
_KEY, _COPY = "_txlog_key", "_txlog_copy"
_GIVEN, _FITS, _COMPUTED = "_txlog_given_", "_txlog_fits_", "_txlog_computed_"


@dataclass(frozen=True, eq=False)
class Given:
    """A value that a clause gives to a column, as the caller wrote it.

    Parameters
    ----------
    keeps_fields
        Whether structs may lack fields of their column. They keep those of the old value.
    argument
        What the caller calls the values, for errors.
    """

    column: Column
    keeps_fields: bool = False
    argument: str = "updates"


@dataclass(frozen=True)
class ClauseValues:
    """One clause: its action, and the assigned values by column path."""

    action: Action
    given: Mapping[tuple[str, ...], Given] = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedChange:
    """A change of one version that Spark computes.

    Parameters
    ----------
    rows
        The rows to which a clause applies, with the number of the clause in the column `PLACE`.
        They have the columns of the target, unless all rows are new.
    target
        The frame of the target, for references to its columns. None: all rows are new.
    """

    rows: DataFrame
    target: DataFrame | None
    clauses: tuple[ClauseValues, ...]
    schema: StructType  # The schema of the table after the change.
    parameters: Mapping[str, Any] = field(default_factory=dict)


class SparkChange(ChangeRows):
    """A change whose rows Spark finds and computes.

    Spark's shuffles and joins move the rows, and its tasks write them. This process gets the
    actions of the new files, and for each file a bitmap of the removed rows.
    """

    # Returns the version of the log on which a transaction began that has changed the table before
    # this change. None: the version that is changed is in the log.
    begun: Callable[[], Snapshot] | None = None

    def __init__(self, options: WriteOptions | None = None) -> None:
        self._options = as_options(options)
        # Of the last attempt that was not extended: the change, and the frame with its rows.
        self._planned: PlannedChange | None = None
        self._frame: DataFrame | None = None
        self._asked: int | None = None  # The version of the log at the first attempt.
        self.takes = False  # Whether tasks of the last whole attempt read rows by their addresses.
        self.inserted = self.updated = 0  # Rows, of the last attempt.

    @abstractmethod
    def where(self, base: Snapshot) -> Expression | None:
        """Return a predicate that is true for all rows that may be removed. None: any row may."""

    @abstractmethod
    def planned(self, base: Snapshot, only: pa.ChunkedArray | None = None) -> PlannedChange:
        """Return the change of a version.

        Parameters
        ----------
        only
            The logged paths of the only files of the table to read. No row is inserted then.
        """

    def changed(self, base: Snapshot) -> RowChanges:
        """Let Spark compute the change of a version.

        Raises
        ------
        InvalidInputError
            Several rows of the source would change one row, or a value cannot be computed.
        SchemaMismatchError
            A new row breaks a constraint, or a new value does not fit its column.
        EngineError
            Spark cannot compute the rows.
        """
        self.context.store.require_writable()
        require_shared(
            self.context.store,
            argument="path",
            remedy="Put the table in a store that all workers can access",
        )
        self._frame = None
        self._require_computed_from(base)
        plan = self.look(base, self.where(base))
        self.takes = takes_rows(plan, self.most_changed(base, plan))
        change = self.planned(base)
        require_storable(change.schema)
        change = self.settled(base, change, plan)
        self._planned = change
        self.inserted = self.updated = 0
        return self._changes_of(base, change, plan)

    def settled(self, base: Snapshot, change: PlannedChange, plan: ScanPlan) -> PlannedChange:
        """Return the change that is carried out. Default: the planned one."""
        return change

    def most_changed(self, base: Snapshot, plan: ScanPlan) -> int | None:
        """Return about how many rows of a plan's files change. Default: None, it is not known."""
        return None

    @property
    def takes_ids(self) -> bool:
        """Whether tasks read the ids of rows, too. Rows of open transactions have none yet."""
        return self.takes and self.begun is None

    def require_single(self, base: Snapshot, touched: Touched) -> None:
        """Raise if rows of the table must not match, or several rows would change one of them."""
        if refused := touched.refused:
            which = [_row_text(self.context, base, one) for one in refused[:MOST_NAMED]]
            raise must_not_match(which, more=len(refused) > MOST_NAMED)
        if touched.twice is not None:
            raise several_match(_row_text(self.context, base, touched.twice))

    def extended(self, base: Snapshot, changes: RowChanges, added: pa.Table) -> RowChanges | None:
        """Return the changes with those of added files: Spark reads these files alone.

        None if the rows may read something that has changed since the last attempt.
        """
        if not self.may_extend():
            return None
        change = self.planned(base, added["path"])
        plan = plan_changes(self.context, base, self.where(base), only=added["path"])
        before = self.inserted, self.updated
        both = changes.extended_by(self._changes_of(base, change, plan), self.context.store)
        if both is None:
            self.inserted, self.updated = before
        return both

    @property
    def source(self) -> DataFrame | None:
        """The other side of a merge."""
        return None

    def followed(self, df: DataFrame, base: Snapshot) -> DataFrame:
        """Return a frame that reads this table at the version of the log that is changed."""
        return followed(df, self.context.store, self._logged(base))

    def _logged(self, base: Snapshot) -> Snapshot:
        """Return the version of the log that is changed. In a transaction: on which it began."""
        return base if self.begun is None else self.begun()

    def _require_computed_from(self, base: Snapshot, frame: DataFrame | None = None) -> None:
        """Raise as `require_unchanged` does; the frame is that of this attempt, if it is known."""
        logged = self._logged(base)
        if self._asked is None:
            self._asked = logged.version
        known = self._frame if frame is None else frame
        require_unchanged(known, self.source, self.context.store, logged, self._asked)

    def reads(self, changes: RowChanges) -> Reads:
        """Return all rows if the source or a subquery reads the table, else as for each change.

        So after any winner it is decided again, with the rows that there are then.
        """
        return Reads(everything=True) if self._reads_table() else super().reads(changes)

    def _reads_table(self) -> bool:
        return change_reads_table(self._frame, self.source, self.context.store)

    def may_extend(self) -> bool:
        """Return whether the files of the last attempt have the changes that they would get now."""
        if self._frame is None or self._reads_table():
            return False
        return is_settled(self._frame)

    def work(self, base: Snapshot, change: PlannedChange, plan: ScanPlan) -> ChangeTask:
        """Return the arguments of the tasks that write a change of the files of a plan."""
        task = _work_of(self.context, base, change, self._options)
        return _taking(base, task, change, plan, ids=self.takes_ids) if self.takes else task

    def _changes_of(self, base: Snapshot, change: PlannedChange, plan: ScanPlan) -> RowChanges:
        """Let Spark compute the change of the files of a plan."""
        task = self.work(base, change, plan)
        frame = self.followed(_frame_of(task, base, change), base)
        if self._frame is None:
            self._require_computed_from(base, frame)
            self._frame = frame
        written = _computed(task, frame)
        if written.repeats and task.feed is not None:
            # Several tasks recorded the delete of the same row. So the change is computed again,
            # with each deleted row once.
            written.discard(task.store)
            change = replace(change, rows=_distinct_deletes(change))
            written = _computed(task, self.followed(_frame_of(task, base, change), base))
        with discarding(partial(written.discard, task.store)):
            self.require_single(base, written.touched)
            gone = written.touched.gone
            deletes = delete_positions(self.context, base, plan, gone, self._options, records=False)
        if not gone:  # For new rows, readers take changes from the adds.
            discard_changes(task.store, written.cdc)
            written.cdc = []
        self.inserted += written.inserted
        self.updated += sum(map(len, written.touched.updated.values()))
        marks = counted(change.schema, task.numbered, written.adds, base.mapping_mode)
        return replace(
            deletes,
            where=plan.reading.where,
            written=(*deletes.written, *written.adds),
            cdc=tuple(written.cdc),
            schema=with_marks(change.schema, marks),
        )

    def parameters(self, changes: RowChanges) -> Mapping[str, Any]:
        """Return the parameters of the planned change."""
        assert self._planned is not None
        return self._planned.parameters


def target_frame(
    spark: SparkSession,
    base: Snapshot,
    context: Context,
    where: Expression | None,
    only: pa.ChunkedArray | None = None,
    *,
    is_committed: bool = True,
    ids: bool = True,
) -> DataFrame:
    """Return the rows of a version with their addresses, and their ids if the table tracks rows.

    Parameters
    ----------
    only
        The logged paths of the files to read. None: all files.
    is_committed
        Whether the version is in the log.
    ids
        Whether the ids of rows are needed.
    """
    hidden = [name for name in (ROW_ADDRESS, ROW_ID) if base.schema.get(name) is not None]
    if hidden:
        raise UnsupportedFeatureError(
            path=base.root,
            reason=f"a column named {hidden[0]} hides the addresses or ids of rows",
            remedy="Rename it",
        )
    require_free_names(base.schema, base.root)
    names = {ROW_ADDRESS: ADDRESS}
    if ids and plan_rewrite(base, WriteOptions()).layout.moved:
        names[ROW_ID] = ROW_NUMBER
    frame = read_version(
        spark,
        context.store,
        base,
        columns=[*base.schema.names(), *names],
        where=where,
        only=only,
        is_committed=is_committed,
    )
    return frame.withColumnsRenamed(names)


def require_free_names(schema: StructType, path: str | None = None) -> None:
    """Raise if a column of a table or frame has a name that changes of rows need.

    Raises
    ------
    UnsupportedFeatureError
        The error names the column.
    """
    for name in (PLACE, ADDRESS, ROW_NUMBER, SOURCE, SOURCE_ROW):
        if schema.get(name) is not None:
            raise UnsupportedFeatureError(
                path=path,
                field=name,
                reason=f"updates and merges on Spark use the name {name} themselves",
                remedy="Rename the column",
            )


def _distinct_deletes(change: PlannedChange) -> DataFrame:
    """Return the rows of a change, with one row for each row of the table that is deleted."""
    deletes = [at for at, clause in enumerate(change.clauses) if clause.action == "delete"]
    # All other rows have keys of their own, which addresses, being positive, never have.
    own = -1 - F.monotonically_increasing_id()
    key = F.when(F.col(PLACE).isin(deletes), F.col(ADDRESS)).otherwise(own)
    keyed = change.rows.withColumn(_KEY, key)
    numbered = keyed.withColumn(_COPY, F.row_number().over(Window.partitionBy(_KEY).orderBy(_KEY)))
    return numbered.where(F.col(_COPY) == 1)


def _frame_of(task: ChangeTask, base: Snapshot, change: PlannedChange) -> DataFrame:
    """Return the frame with the input rows of the tasks."""
    columns = _places_of(change)
    if ROW_NUMBER in change.rows.columns:
        columns.append(F.col(ROW_NUMBER))
    columns += _new_columns(base, change, task.clauses)
    for at, name in enumerate(task.old if task.taken is None else ()):
        assert change.target is not None
        columns.append(change.target[quote_name(name)].alias(old_name(at)))
    frame = change.rows.select(*columns)
    places = {name: at for at, name in enumerate(change.schema.names())}
    if task.write.layout.partition_by:  # Otherwise each task would have rows of all partitions.
        by = [F.col(new_name(places[name])) for name in task.write.layout.partition_by]
        frame = frame.hint("rebalance", *by)
    return frame


def find_work(
    task: ChangeTask, base: Snapshot, change: PlannedChange
) -> tuple[FindTask, DataFrame]:
    """Return a task and a frame, which find the rows of a merge's source that make wrong rows.

    The frame also has the values before they are cast, in columns of their own. A value that Spark
    cannot compute or cast is null in the new row. Its jobs have settings of their own: Spark would
    compute a part that several columns have once for all of them, and outside of what makes an
    error null.
    """
    asked, change = change, _tried(change)
    columns = [*_places_of(change), F.col(SOURCE_ROW).alias(SOURCE_ROW)]
    columns += _new_columns(base, change, task.clauses, fails=False)
    wanted = read_schema(change.schema)
    types = _types_of(change)
    found = []
    for place, clause in enumerate(change.clauses):
        applies = F.col(PLACE) == place
        values = []
        for path, one in clause.given.items():
            field, have = change.schema.along(path)[-1], types[id(one)]
            want, number = _type_at(wanted, path), len(columns)
            given = fits = None
            if _is_judged(have, field, keeps_fields=one.keeps_fields):
                given = f"{_GIVEN}{number}"
                columns.append(F.when(applies, one.column).alias(given, metadata={}))
            if have != want:
                fits = f"{_FITS}{number}"
                is_cast = F.when(applies, is_stored(one.column, have, want))
                columns.append(F.coalesce(is_cast, F.lit(True)).alias(fits))
            computed, before = None, asked.clauses[place].given[path]
            if before is not one:
                computed = f"{_COMPUTED}{number}"
                # Null only where Spark cannot compute the value.
                is_null = tried(change.rows, before.column.isNull())
                columns.append(F.when(applies, is_null.isNotNull()).otherwise(True).alias(computed))
            values.append(GivenValue(field, have.simpleString(), given, fits, computed))
        found.append(tuple(values))
    frame = change.rows.select(*columns)
    apart = with_settings(frame, _EACH_APART)
    return FindTask(task, tuple(found)), frame if apart is None else apart


def _tried(change: PlannedChange) -> PlannedChange:
    """Return a change in which values that Spark cannot compute are null.

    Columns and constants stay as they are, and so do all values on Spark Connect.
    """
    if not has_plan(change.rows):
        return change

    def of(one: Given) -> Given:
        if is_plain(change.rows, one.column):
            return one
        return replace(one, column=tried(change.rows, one.column))

    clauses = [
        replace(clause, given={path: of(one) for path, one in clause.given.items()})
        for clause in change.clauses
    ]
    return replace(change, clauses=tuple(clauses))


def _is_judged(have: DataType, want: DeltaField, *, keeps_fields: bool) -> bool:
    """Return whether txlog can tell of each value of a type of Spark whether a field stores it.

    Where `keeps_fields` is true, structs may lack fields that must not be null: they keep the old
    values.
    """
    try:
        (field,) = frame_schema(SparkStruct([SparkField("value", have)])).fields
    except TxlogError:
        return False
    if keeps_fields and any(lacking_fields(field.type, want.type, want.name)):
        return False
    return is_storable(field.type, want.type)


def _type_at(schema: SparkStruct, path: Sequence[str]) -> DataType:
    """Return the type of a field; the exact names of its path lead through structs only."""
    kind: DataType = schema
    for name in path:
        assert isinstance(kind, SparkStruct)
        kind = kind[name].dataType
    return kind


def _places_of(change: PlannedChange) -> list[Column]:
    """Return the clause of each row, and the address of the row of the table."""
    nothing = F.lit(None).cast("long")
    return [
        F.col(PLACE).cast("int").alias(PLACE),
        (F.col(ADDRESS) if change.target is not None else nothing).alias(ADDRESS),
    ]


def _work_of(
    context: Context, base: Snapshot, change: PlannedChange, options: WriteOptions
) -> ChangeTask:
    """Return the arguments of the tasks that write a change."""
    moved = plan_rewrite(base, options).layout.moved
    write = plan_write(
        base.metadata,
        change.schema,
        options,
        mapping_mode=base.mapping_mode,
        protocol=base.protocol,
    ).with_moved(moved)
    loses = any(clause.action in REMOVING for clause in change.clauses)
    feed = loses and records_changes(base)
    old = base.schema.names() if feed else []
    clauses = [RowChange(one.action, _given_columns(one, change.schema)) for one in change.clauses]
    return ChangeTask(
        context.store,
        write,
        tuple(clauses),
        change_layout(base, change.schema) if feed else None,
        tuple(old),
        tuple(
            name
            for name in identities(change.schema)
            if any(one.action == "insert" and name not in one.given for one in clauses)
        ),
    )


def _taking(
    base: Snapshot, task: ChangeTask, change: PlannedChange, plan: ScanPlan, *, ids: bool
) -> ChangeTask:
    """Return the task that reads by addresses what Spark need not compute of the old rows.

    These are columns that no clause changes, old rows for change data files, and ids.
    """
    clauses = []
    for does, clause in zip(task.clauses, change.clauses, strict=True):
        assigned_columns = {path[0] for path in clause.given}
        kept = tuple(
            name
            for name in (does.given if does.action == "update" else ())
            if name not in assigned_columns and _is_kept(name, base, change.schema)
        )
        given = tuple(name for name in does.given if name not in kept)
        clauses.append(replace(does, given=given, kept=kept))
    names = {*task.old, *(name for one in clauses for name in one.kept)}
    if ids and task.write.layout.moved and any(one.action == "update" for one in clauses):
        names.add(ROW_ID)
    taken = TakenRows.of(base, plan, sorted(names)) if names else None
    return replace(task, clauses=tuple(clauses), taken=taken)


def _is_kept(name: str, base: Snapshot, schema: StructType) -> bool:
    """Return whether a row may keep its value of a column as it is in the file.

    Spark has the values of partition columns without reading, and distributes rows by them.
    """
    old, new = base.schema.get(name), schema.get(name)
    if old is None or new is None or name in base.partition_columns:
        return False
    return old.name == new.name and old.type == new.type


def _given_columns(clause: ClauseValues, schema: StructType) -> tuple[str, ...]:
    """Return the columns for which a clause has values; others are computed or get defaults."""
    given = {path[0] for path in clause.given}
    if clause.action in ("delete", "fail"):
        return ()
    if clause.action == "insert":
        return tuple(name for name in schema.names() if name in given)
    return tuple(one.name for one in schema.fields if one.name in given or not is_generated(one))


def _types_of(change: PlannedChange) -> dict[int, DataType]:
    """Return the types of all given values, by the ids of their objects."""
    values = [value for clause in change.clauses for value in clause.given.values()]
    probe = change.rows.select(*(one.column.alias(f"v{at}") for at, one in enumerate(values)))
    return dict(zip(map(id, values), (one.dataType for one in probe.schema.fields), strict=True))


def _new_columns(
    base: Snapshot,
    change: PlannedChange,
    clauses: Sequence[RowChange],
    *,
    fails: bool = True,
) -> Iterator[Column]:
    """Yield an expression for the new value of each column, which depends on the clause.

    A value that does not fit is an error, or null if `fails` is false.
    """
    spark_schema = read_schema(base.schema)
    kinds = {one.name: one.dataType for one in spark_schema.fields}
    wanted = read_schema(change.schema)
    types = _types_of(change)
    for at, want in enumerate(wanted.fields):
        branches: list[tuple[int, Column]] = []
        for place, (clause, does) in enumerate(zip(change.clauses, clauses, strict=True)):
            if want.name not in does.given:
                continue
            given = {
                path[1:]: (value, types[id(value)])
                for path, value in clause.given.items()
                if path[0] == want.name
            }
            own = None
            if change.target is not None and want.name in kinds:
                own = change.target[quote_name(want.name)], kinds[want.name]
            columns = {path: (one.column, have) for path, (one, have) in given.items()}
            branches.append((place, assigned(own, columns, want.dataType, want.name, fails=fails)))
            for path, (one, have) in given.items():
                if not one.keeps_fields:
                    _require_whole(one, have, (want.name, *path), change.schema)
        column = F.lit(None).cast(want.dataType)
        if branches:
            (first, value), *others = branches
            chain = F.when(F.col(PLACE) == first, value)
            column = reduce(lambda c, b: c.when(F.col(PLACE) == b[0], b[1]), others, chain)
        yield column.alias(new_name(at), metadata={})


def _require_whole(value: Given, have: DataType, path: tuple[str, ...], schema: StructType) -> None:
    """Raise if the structs of a value lack fields of the column or field at a path."""
    if isinstance(have, SparkStruct | ArrayType | MapType):
        kind = frame_schema(SparkStruct([SparkField("value", have)])).fields[0].type
        want = schema.along(path)[-1].type
        require_whole_structs(kind, want, ".".join(path), argument=value.argument)


def _computed(task: ChangeTask, frame: DataFrame) -> Written:
    """Let tasks write a frame, and return their results.

    If a task finds a wrong row, the files of all tasks are deleted. If Spark fails, for example
    because it cannot compute a value, only those of the failed tasks are; vacuum deletes the rest.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        work: Callable[[Iterable[pa.RecordBatch]], Written] = partial(change_task, task)
        answer = pa.array([answered(work, batches)], pa.binary())
        yield pa.RecordBatch.from_arrays([answer], names=["answer"])

    with before_commit():
        found = map_in_arrow(by_rows(frame), run, _ANSWER).toArrow()
    answers = [unpacked(answer) for answer in found["answer"]]
    together = Written()
    for one in answers:
        if one.error is None:
            together.unite(one.result)
    try:
        for one in answers:
            one.value()
    except BaseException:
        together.discard(task.store)
        raise
    return together


def _row_text(context: Context, base: Snapshot, address: int) -> str:
    """Return the first columns of a row as text, for an error."""
    from txlog.table.seam import open_table

    table = open_table(context.store, snapshot=base)
    (row,) = table.take(addresses=[address], columns=base.schema.names()[:3]).to_pylist()
    return ", ".join(f"{name} = {value!r}" for name, value in row.items())
