"""The tasks of an update or merge, which write the rows that Spark computed.

A Python worker imports this module for its first task, so the module imports no code of commits.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64

from txlog.actions.file import Add, Cdc
from txlog.base.arrow import arrow_array, numpy_array
from txlog.base.effects import REAL
from txlog.data_files.incoming import fit_column
from txlog.data_files.write import FileLayout, discard_files, write_data_files
from txlog.fragments.deletion_vector import as_array
from txlog.scan.columns import ROW_ID
from txlog.scan.take import by_fragment
from txlog.schema.arrow import arrow_schema
from txlog.spark_ext.writes.write_tasks import counting

if TYPE_CHECKING:
    from txlog.data_files.change_files import ChangeType
    from txlog.data_files.identity import Numbering
    from txlog.data_files.write_plan import WritePlan
    from txlog.spark_ext.writes.taken_rows import TakenRows
    from txlog.store.base import Store

Action = Literal["update", "delete", "insert", "fail"]
Positions = dict[int, BitMap64]
"""Positions of rows by fragment id."""

MOST_NAMED = 5  # The number of rows that an error names.

PLACE = "_txlog_place"  # The number of the clause that applies to a row.
ADDRESS = "_txlog_address"  # The address of the old row; null for a new row.
ROW_NUMBER = "_txlog_row_id"  # The id of the old row, if the table tracks rows and Spark reads it.
SOURCE = "_txlog_source"  # True in the rows of a merge that have a row of the source, else null.
SOURCE_ROW = "_txlog_source_row"  # The number of this row, if the merge has a quarantine.


def new_name(at: int) -> str:
    """Return the name of the column with new values of the table's column at a position."""
    return f"_txlog_new_{at}"


def old_name(at: int) -> str:
    """Return the name of the column with old values of the table's column at a position."""
    return f"_txlog_old_{at}"


@dataclass(frozen=True)
class RowChange:
    """The effect of one clause on rows."""

    action: Action
    given: tuple[str, ...] = ()  # Columns with values.
    # Columns that stay, and that the task reads by the addresses of rows. All others are computed,
    # or get defaults.
    kept: tuple[str, ...] = ()


@dataclass(frozen=True)
class ChangeTask:
    """The arguments of each task. It pickles."""

    store: Store
    write: WritePlan
    clauses: tuple[RowChange, ...]
    feed: FileLayout | None = None  # Of change data files, if changes are recorded.
    old: tuple[str, ...] = ()  # The columns of old rows, for change data files.
    numbered: tuple[str, ...] = ()  # Identity columns that get generated values.
    # How the task reads kept columns, old rows and ids. None: Spark has read them.
    taken: TakenRows | None = None

    def taken_for(self, clause: RowChange, rows: pa.RecordBatch) -> pa.RecordBatch | None:
        """Return what a clause needs of old rows; None: nothing, or Spark has read it."""
        if self.taken is None or clause.action == "insert":
            return None
        moves = self.write.layout.moved and clause.action == "update"
        if self.feed is None and not clause.kept and not moves:
            return None
        return self.taken.at(self.store, numpy_array(rows[ADDRESS]))

    def parts(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Return a batch in the parts that are worked on together."""
        return [batch] if self.taken is None else self.taken.parts(batch, ADDRESS)


@dataclass
class Touched:
    """The changed rows and the deleted rows of the table."""

    updated: Positions = field(default_factory=dict)
    deleted: Positions = field(default_factory=dict)
    twice: int | None = None  # The address of a row that two source rows would change.
    refused: tuple[int, ...] = ()  # The addresses of some rows that must not match.

    def add(self, addresses: NDArray[np.int64], *, updates: bool) -> None:
        """Add rows of one action; deleting a row twice is allowed."""
        distinct, counts = np.unique(addresses, return_counts=True)
        if updates and (counts > 1).any():
            self.twice = int(distinct[counts > 1][0])
        found = by_fragment(arrow_array(distinct))
        self.unite(Touched(found, {}) if updates else Touched({}, found))

    def forbid(self, addresses: NDArray[np.int64]) -> None:
        """Add rows that must not match."""
        self.unite(Touched(refused=tuple(addresses.tolist())))

    def deletes_first(self, addresses: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return for each of these deleted rows whether nothing deleted the same row before it."""
        distinct, places = np.unique(addresses, return_index=True)
        first = np.zeros(len(addresses), np.bool_)
        first[places] = True
        for fragment, rows in by_fragment(arrow_array(distinct)).items():
            if again := rows & self.deleted.get(fragment, _NONE):
                known = numpy_array(as_array(again)).astype(np.int64) | fragment << 32
                first &= ~np.isin(addresses, known)
        return first

    def unite(self, others: Touched) -> None:
        """Add the rows of another object."""
        for fragment, rows in others.updated.items():
            self._note(fragment, rows & self.updated.get(fragment, _NONE))
            self._note(fragment, rows & self.deleted.get(fragment, _NONE))
            self.updated[fragment] = self.updated.get(fragment, _NONE) | rows
        for fragment, rows in others.deleted.items():
            self._note(fragment, rows & self.updated.get(fragment, _NONE))
            self.deleted[fragment] = self.deleted.get(fragment, _NONE) | rows
        if self.twice is None:
            self.twice = others.twice
        self.refused = tuple(sorted({*self.refused, *others.refused})[: MOST_NAMED + 1])

    def _note(self, fragment: int, both: BitMap64) -> None:
        if both and self.twice is None:
            self.twice = (fragment << 32) | both.min()

    @property
    def gone(self) -> Positions:
        """All updated and deleted rows, which leave their old positions."""
        fragments = sorted({*self.updated, *self.deleted})
        return {
            one: self.updated.get(one, _NONE) | self.deleted.get(one, _NONE) for one in fragments
        }


_NONE = BitMap64()


@dataclass
class Written:
    """The result of one task or of several tasks."""

    adds: list[Add] = field(default_factory=list)
    cdc: list[Cdc] = field(default_factory=list)
    touched: Touched = field(default_factory=Touched)
    inserted: int = 0
    repeats: bool = False  # Whether several tasks deleted the same row.

    def unite(self, other: Written) -> None:
        """Add the result of another task."""
        deleted = self.touched.deleted
        self.repeats |= any(
            rows & deleted.get(fragment, _NONE) for fragment, rows in other.touched.deleted.items()
        )
        self.adds += other.adds
        self.cdc += other.cdc
        self.touched.unite(other.touched)
        self.inserted += other.inserted

    def discard(self, store: Store) -> None:
        """Delete the files: no commit refers to them."""
        from txlog.data_files.change_files import discard_changes

        discard_files(store, self.adds)
        discard_changes(store, self.cdc)


class _NothingCommittedError(Exception):
    """A clause forbids the change of a row, so the task ends, and its files are not needed."""


def change_task(task: ChangeTask, batches: Iterable[pa.RecordBatch]) -> Written:
    """Write the new rows of a task, and record the rows that they replace; on an executor.

    Memory is bounded by a few row groups: changes wait in a temporary file while the rows are
    written. If anything fails, the files of this attempt are deleted.

    Raises
    ------
    SchemaMismatchError
        A new row does not fit the table, or breaks a constraint.
    """
    from txlog.commit.context import Context
    from txlog.data_files.change_files import write_changes

    done = Written()
    with ExitStack() as stack:
        waiting = None if task.feed is None else _Waiting(task.feed, stack)
        rows = _new_rows(task, batches, done, waiting)
        try:
            layout = task.write.layout
            done.adds = write_data_files(task.store, rows, layout, effects=REAL)
        except _NothingCommittedError:
            return done
        if waiting is not None and task.feed is not None:
            try:
                done.cdc = write_changes(Context(task.store), waiting.batches(), task.feed)
            except BaseException:
                discard_files(task.store, done.adds)
                raise
    return done


class _Waiting:
    """Changed rows in a temporary file, until the task has read all of its rows."""

    def __init__(self, layout: FileLayout, stack: ExitStack) -> None:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="txlog-changes-"))
        self._path = str(Path(folder) / "changes.arrow")
        self._layout = layout
        self._sink = stack.enter_context(pa.OSFile(self._path, "wb"))
        self._stack = stack
        self._writer = pa.ipc.new_stream(self._sink, arrow_schema(layout.schema))

    def add(self, rows: pa.RecordBatch, change: ChangeType) -> None:
        from txlog.data_files.change_files import as_changes

        self._writer.write_batch(as_changes(rows, change, self._layout))

    def batches(self) -> Iterator[pa.RecordBatch]:
        self._writer.close()
        self._sink.flush()
        yield from pa.ipc.open_stream(self._stack.enter_context(pa.OSFile(self._path)))


def _new_rows(
    task: ChangeTask, batches: Iterable[pa.RecordBatch], done: Written, waiting: _Waiting | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows to write, and record the updated and deleted rows."""
    numbering = (counting(task.write) if task.numbered else task.write).numbering()
    for batch in (part for one in batches for part in task.parts(one)):
        places = numpy_array(batch[PLACE])
        for place in np.unique(places).tolist():
            clause = task.clauses[place]
            rows = batch.filter(arrow_array(places == place))
            if clause.action == "fail":
                done.touched.forbid(numpy_array(rows[ADDRESS]))
                raise _NothingCommittedError
            if clause.action == "insert":
                done.inserted += rows.num_rows
            else:
                addresses = numpy_array(rows[ADDRESS])
                if clause.action == "delete" and waiting is not None:  # Changes state it once.
                    rows = rows.filter(arrow_array(done.touched.deletes_first(addresses)))
                done.touched.add(addresses, updates=clause.action == "update")
                if done.touched.twice is not None:
                    raise _NothingCommittedError
            taken = task.taken_for(clause, rows)
            if clause.action != "insert" and waiting is not None:
                before: ChangeType = "delete" if clause.action == "delete" else "update_preimage"
                waiting.add(_old_rows(task, task.feed, rows, taken), before)
            if clause.action != "delete":
                yield _written(task, clause, rows, taken, waiting, numbering)


def _old_rows(
    task: ChangeTask, feed: FileLayout | None, rows: pa.RecordBatch, taken: pa.RecordBatch | None
) -> pa.RecordBatch:
    """Return the old rows of changes, in the table's columns and types.

    Spark gives a null struct nulls in all of its fields, also in those that must not be null.
    """
    assert feed is not None
    if taken is not None:
        return taken.select(list(task.old))
    old = named_columns(rows, old_name, task.old, task.old)
    fields = {field.name: field for field in feed.schema.fields}
    arrays = [
        fit_column(array, fields[name]) if pa.types.is_nested(array.type) else array
        for name, array in zip(task.old, old.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(task.old))


def _written(
    task: ChangeTask,
    clause: RowChange,
    rows: pa.RecordBatch,
    taken: pa.RecordBatch | None,
    waiting: _Waiting | None,
    numbering: Numbering | None,
) -> pa.RecordBatch:
    """Return the new rows: checked, and with their old ids if the table tracks rows."""
    new = new_rows(task, clause, rows, taken)
    reader = pa.RecordBatchReader.from_batches(new.schema, [new])
    (checked,) = task.write.checked(reader, numbering)
    if waiting is not None:
        waiting.add(checked, "insert" if clause.action == "insert" else "update_postimage")
    layout = task.write.layout
    # The commit assigns an id to rows without one, and its version to all rows.
    ids = []
    if layout.moved:
        nothing = pa.nulls(rows.num_rows, pa.int64())
        own = nothing
        if taken is not None and ROW_ID in taken.schema.names:
            own = taken[ROW_ID]
        elif ROW_NUMBER in rows.schema.names:
            own = rows[ROW_NUMBER]
        ids = [own, nothing]
    schema = arrow_schema(layout.row_schema)
    return pa.RecordBatch.from_arrays([*checked.columns, *ids], schema=schema)


def new_rows(
    task: ChangeTask, clause: RowChange, rows: pa.RecordBatch, taken: pa.RecordBatch | None
) -> pa.RecordBatch:
    """Return the values that a clause gives to rows, and those that it keeps."""
    new = named_columns(rows, new_name, clause.given, task.write.schema.names())
    if taken is None:
        return new
    names = [*clause.given, *clause.kept]
    kept = [taken[name] for name in clause.kept]
    return pa.RecordBatch.from_arrays([*new.columns, *kept], names=names)


def named_columns(
    rows: pa.RecordBatch,
    name: Callable[[int], str],
    chosen: Iterable[str],
    columns: Iterable[str],
) -> pa.RecordBatch:
    """Return some columns of the table, with their names in the table."""
    at = {column: place for place, column in enumerate(columns)}
    names = list(chosen)
    return pa.RecordBatch.from_arrays([rows[name(at[one])] for one in names], names=names)
