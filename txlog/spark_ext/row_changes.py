"""Updates and merges on Spark: Spark computes rows, tasks write them, the driver commits once.

Rules: spec/spark.md, SPK-20 to SPK-24.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users name it
from pyspark.sql.types import ArrayType, DataType, MapType, NullType
from pyspark.sql.types import StructType as SparkStruct

from txlog.commit.context import Context, require_shared
from txlog.commit.intent import Intent, Reads
from txlog.commit.operation import Operation, discarding
from txlog.data_files.change_files import change_layout, discard_changes, records_changes
from txlog.data_files.constraints import is_generated
from txlog.data_files.deletions import delete_positions
from txlog.data_files.identity import counted, identities, with_marks
from txlog.data_files.options import WriteOptions
from txlog.data_files.rewrite import plan_rewrite
from txlog.data_files.row_changes import RowChanges
from txlog.data_files.write_plan import plan_write
from txlog.errors import InvalidInputError, UnsupportedFeatureError
from txlog.expressions.sql import quote_name
from txlog.expressions.tree import Expression
from txlog.scan.columns import ROW_ADDRESS, ROW_ID
from txlog.schema.types import StructType
from txlog.snapshot.snapshot import Snapshot
from txlog.spark_ext.change_tasks import (
    ADDRESS,
    PLACE,
    ROW_NUMBER,
    Action,
    ChangeTask,
    RowChange,
    Written,
    change_task,
    new_name,
    old_name,
)
from txlog.spark_ext.engine import answered, before_commit, unpacked
from txlog.spark_ext.native.read_frame import read
from txlog.spark_ext.spark_types import read_schema, require_storable
from txlog.spark_ext.write_frame import batches_by_rows
from txlog.verbs.append import evolved
from txlog.verbs.merge.match import several_match

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_ANSWER = "answer binary"
Typed = tuple["Column", DataType]


@dataclass(frozen=True, eq=False)
class Given:
    """A value that a clause gives to a column, as the caller wrote it."""

    column: Column


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
    where: Expression | None = None  # Bound: true for all rows that may be removed. None: any row.
    parameters: Mapping[str, Any] = field(default_factory=dict)


class SparkChange(Operation):
    """A change whose rows Spark finds and computes.

    Spark's shuffles and joins move the rows, and its tasks write them. This process gets the
    actions of the new files, and for each file a bitmap of the removed rows.
    """

    def __init__(self, context: Context, options: WriteOptions | None = None) -> None:
        super().__init__(context)
        self._options = options or WriteOptions()
        self._changes: RowChanges | None = None

    @abstractmethod
    def planned(self, base: Snapshot) -> PlannedChange:
        """Return the change of a version."""

    @abstractmethod
    def metrics(self, written: Written, changes: RowChanges) -> dict[str, int]:
        """Return Delta's metrics of the operation."""

    def intent(self, base: Snapshot) -> Intent | None:
        """Let Spark compute the change of a version, and return the intent.

        Raises
        ------
        InvalidInputError
            Several rows of the source would change one row.
        SchemaMismatchError
            A new value does not fit its column, or breaks a constraint.
        EngineError
            Spark cannot compute the rows.
        """
        self.context.store.require_writable()
        require_shared(
            self.context.store,
            argument="path",
            remedy="Put the table in a store that all workers can access",
        )
        change = self.planned(base)
        require_storable(change.schema)
        task, frame = _task(self.context, base, change, self._options)
        written = _computed(task, frame)
        with discarding(partial(written.discard, task.store)):
            if written.touched.twice is not None:
                raise several_match(_row_text(self.context, base, written.touched.twice))
            gone = written.touched.gone
            deletes = delete_positions(self.context, base, gone, self._options, records=False)
        if not gone:  # For new rows, readers take changes from the adds.
            discard_changes(self.context, written.cdc)
            written.cdc = []
            if not written.adds:
                return None
        changes = self._changes = RowChanges(
            deletes,
            tuple(written.adds),
            tuple(written.cdc),
            _rows_in(deletes.written),
            counted(change.schema, task.numbered, written.adds, base.mapping_mode),
        )
        return Intent(
            operation=self.name,
            kind="replace",
            read_version=base.version,
            removes=deletes.removes,
            adds=changes.adds,
            cdc=changes.cdc,
            metadata=evolved(base, with_marks(change.schema, changes.marks)),
            reads=Reads(everything=change.where is None, where=change.where),
            row_deletes=frozenset(file.fragment.path for file in deletes.files),
            parameters=change.parameters,
            metrics=self.metrics(written, changes),
        )

    def discard(self) -> None:
        """Delete the vectors, change files and data files of the last attempt."""
        changes, self._changes = self._changes, None
        if changes is not None:
            changes.discard(self.context)


def target_frame(
    spark: SparkSession, base: Snapshot, context: Context, where: Expression | None
) -> DataFrame:
    """Return the rows of a version with their addresses, and their ids if the table tracks rows."""
    hidden = [name for name in (ROW_ADDRESS, ROW_ID) if base.schema.get(name) is not None]
    if hidden:
        raise UnsupportedFeatureError(
            path=base.root,
            reason=f"a column named {hidden[0]} hides the addresses or ids of rows",
            remedy="Rename it",
        )
    names = {ROW_ADDRESS: ADDRESS}
    if plan_rewrite(base, WriteOptions()).layout.moved:
        names[ROW_ID] = ROW_NUMBER
    frame = read(
        spark,
        context.store.root,
        base.version,
        columns=[*base.schema.names(), *names],
        where=where,
        storage_options=dict(context.store.options),
    )
    return frame.withColumnsRenamed(names)


def _task(
    context: Context, base: Snapshot, change: PlannedChange, options: WriteOptions
) -> tuple[ChangeTask, DataFrame]:
    """Return the arguments of the tasks, and the frame with their input rows."""
    moved = plan_rewrite(base, options).layout.moved
    write = plan_write(
        base.metadata,
        change.schema,
        options,
        mapping_mode=base.mapping_mode,
        protocol=base.protocol,
    ).with_moved(moved)
    loses = any(clause.action != "insert" for clause in change.clauses)
    feed = loses and records_changes(base)
    old = base.schema.names() if feed else []
    clauses = [RowChange(one.action, _given_columns(one, change.schema)) for one in change.clauses]
    task = ChangeTask(
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
    nothing = F.lit(None).cast("long")
    columns = [
        F.col(PLACE).cast("byte").alias(PLACE),
        (F.col(ADDRESS) if change.target is not None else nothing).alias(ADDRESS),
    ]
    if moved:
        known = change.target is not None
        columns.append((F.col(ROW_NUMBER) if known else nothing).alias(ROW_NUMBER))
    columns += _new_columns(base, change, clauses)
    for at, name in enumerate(old):
        assert change.target is not None
        columns.append(change.target[quote_name(name)].alias(old_name(at)))
    frame = change.rows.select(*columns)
    places = {name: at for at, name in enumerate(change.schema.names())}
    if write.layout.partition_by:  # Otherwise each task would have rows of all partitions.
        by = [F.col(new_name(places[name])) for name in write.layout.partition_by]
        frame = frame.hint("rebalance", *by)
    return task, frame


def _given_columns(clause: ClauseValues, schema: StructType) -> tuple[str, ...]:
    """Return the columns for which a clause has values; others are computed or get defaults."""
    given = {path[0] for path in clause.given}
    if clause.action == "delete":
        return ()
    if clause.action == "insert":
        return tuple(name for name in schema.names() if name in given)
    return tuple(one.name for one in schema.fields if one.name in given or not is_generated(one))


def _new_columns(
    base: Snapshot, change: PlannedChange, clauses: Sequence[RowChange]
) -> Iterator[Column]:
    """Yield an expression for the new value of each column, which depends on the clause."""
    spark_schema = read_schema(base.schema)
    kinds = {one.name: one.dataType for one in spark_schema.fields}
    wanted = read_schema(change.schema)
    values = [value for clause in change.clauses for value in clause.given.values()]
    probe = change.rows.select(*(one.column.alias(f"v{at}") for at, one in enumerate(values)))
    types = dict(zip(map(id, values), (one.dataType for one in probe.schema.fields), strict=True))
    for at, want in enumerate(wanted.fields):
        branches: list[tuple[int, Column]] = []
        for place, (clause, does) in enumerate(zip(change.clauses, clauses, strict=True)):
            if want.name not in does.given:
                continue
            given = {
                path[1:]: (value.column, types[id(value)])
                for path, value in clause.given.items()
                if path[0] == want.name
            }
            own = None
            if change.target is not None and want.name in kinds:
                own = change.target[quote_name(want.name)], kinds[want.name]
            if () in given:
                value = stored(*given[()], want.dataType, want.name)
            else:
                value = assigned(own, given, want.dataType, want.name)
            branches.append((place, value))
        column = F.lit(None).cast(want.dataType)
        if branches:
            (first, value), *others = branches
            chain = F.when(F.col(PLACE) == first, value)
            column = reduce(lambda c, b: c.when(F.col(PLACE) == b[0], b[1]), others, chain)
        yield column.alias(new_name(at), metadata={})


def _computed(task: ChangeTask, frame: DataFrame) -> Written:
    """Let tasks write a frame, and return their results; if a task fails, delete all files."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        work: Callable[[Iterable[pa.RecordBatch]], Written] = partial(change_task, task)
        answer = pa.array([answered(work, batches)], pa.binary())
        yield pa.RecordBatch.from_arrays([answer], names=["answer"])

    with before_commit(), batches_by_rows(frame):
        found = frame.mapInArrow(run, _ANSWER).toArrow()
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


def _rows_in(adds: Sequence[Any]) -> int:
    """Return the number of rows of files that txlog wrote, from their statistics."""
    return sum(orjson.loads(add.stats)["numRecords"] for add in adds)


def _row_text(context: Context, base: Snapshot, address: int) -> str:
    """Return the first columns of a row as text, for an error."""
    from txlog.table.table import Table

    table = Table._of(context, base)
    (row,) = table.take_rows([address], columns=base.schema.names()[:3]).to_pylist()
    return ", ".join(f"{name} = {value!r}" for name, value in row.items())


def stored(value: Column, have: DataType, want: DataType, name: str) -> Column:
    """Return a value in the type of a column.

    Struct fields are matched by name, and missing fields become null. Other values are cast. A
    value that does not fit is an error, also in sessions without ANSI mode.

    Parameters
    ----------
    name
        The column, for errors.

    Raises
    ------
    InvalidInputError
        The value has fields that the column lacks.
    """
    if have == want:
        return value
    match have, want:
        case SparkStruct(), SparkStruct():
            return _struct(value, have, want, name)
        case ArrayType(elementType=inner), ArrayType(elementType=target) if _nested(inner):
            return F.transform(value, lambda one: stored(one, inner, target, f"{name}.element"))
        case MapType(), MapType() if _nested(have.valueType) and have.keyType == want.keyType:
            return F.transform_values(
                value, lambda _, one: stored(one, have.valueType, want.valueType, f"{name}.value")
            )
        case NullType(), _:
            return value.cast(want)
    if _nested(have) or _nested(want):
        return value.cast(want)
    return F.coalesce(
        value.try_cast(want),
        F.when(
            value.isNotNull(),
            F.raise_error(
                F.concat(F.lit(f"a value of column {name} does not fit its type: "), value)
            ).cast(want),
        ),
    )


def _nested(kind: DataType) -> bool:
    return isinstance(kind, SparkStruct | ArrayType | MapType)


def _struct(value: Column, have: SparkStruct, want: SparkStruct, name: str) -> Column:
    known = {part.name.lower(): part for part in have.fields}
    extra = known.keys() - {part.name.lower() for part in want.fields}
    if extra:
        raise InvalidInputError(
            argument="updates",
            field=f"{name}.{known[min(extra)].name}",
            reason=f"column {name} has no such field",
            remedy="Omit the field, or use schema evolution",
        )
    fields = []
    for part in want.fields:
        existing = known.get(part.name.lower())
        if existing is None:
            inner = F.lit(None).cast(part.dataType)
        else:
            own = value.getField(existing.name)
            inner = stored(own, existing.dataType, part.dataType, f"{name}.{part.name}")
        fields.append(inner.alias(part.name))
    return F.when(value.isNotNull(), F.struct(*fields))


def assigned(
    own: Typed | None, given: Mapping[tuple[str, ...], Typed], want: DataType, name: str
) -> Column:
    """Return a column in which some nested fields have new values.

    If a field of a null struct gets a value, the struct is no longer null, and its other fields are
    null.

    Parameters
    ----------
    own
        The current column with its type. None for a new column.
    given
        Values by the path of the field below the column.
    """
    if not given:
        if own is None:
            return F.lit(None).cast(want)
        return stored(*own, want, name)
    assert isinstance(want, SparkStruct)
    inner_fields = {}
    if own is not None and isinstance(own[1], SparkStruct):
        inner_fields = {
            f.name.lower(): (own[0].getField(f.name), f.dataType) for f in own[1].fields
        }
    fields = []
    for part in want.fields:
        inner = {path[1:]: value for path, value in given.items() if path[0] == part.name}
        path = f"{name}.{part.name}"
        if () in inner:
            value = stored(*inner[()], part.dataType, path)
        else:
            value = assigned(inner_fields.get(part.name.lower()), inner, part.dataType, path)
        fields.append(value.alias(part.name))
    return F.struct(*fields)
