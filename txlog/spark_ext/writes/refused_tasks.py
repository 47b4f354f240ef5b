"""The tasks that find the source rows of a merge which would make rows that the table refuses.

A Python worker imports this module for its first task, so the module imports no code of commits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.base.arrow import arrow_array, numpy_array
from txlog.base.columns import decoded
from txlog.data_files.incoming import Fitting
from txlog.data_files.sieve import Fault, Faults, Found, Indices, faults_of, find_unfit
from txlog.schema.types import StructField, type_name
from txlog.spark_ext.writes.change_tasks import (
    ADDRESS,
    PLACE,
    SOURCE_ROW,
    ChangeTask,
    Touched,
    new_rows,
)

if TYPE_CHECKING:
    from txlog.data_files.write_plan import WritePlan

_AFTER_ALL = 1 << 31  # In place of the fragment of rows that are inserted.


@dataclass(frozen=True)
class GivenValue:
    """A value of a clause, as Spark computed it before it is cast to the type of its field.

    Parameters
    ----------
    field
        The field of the table that gets it.
    kind
        The name of its type.
    value
        The column of the frame that has it, if txlog judges it. None: only Spark does.
    is_stored
        The column of the frame that tells whether Spark can cast it. None: nothing is cast.
    is_computed
        The column of the frame that tells whether Spark can compute it. None: it is not asked.
    """

    field: StructField
    kind: str
    value: str | None
    is_stored: str | None
    is_computed: str | None = None


@dataclass(frozen=True)
class FindTask:
    """The arguments of each task. It pickles."""

    change: ChangeTask
    values: tuple[tuple[GivenValue, ...], ...]  # Of each clause.


@dataclass
class FoundRefused:
    """Source rows at fault, each once, with the first of their faults.

    What is first depends on no order in which tasks run: the lowest fragment with a row that is
    refused, the first clause there, and of that clause the first value, column or rule.
    """

    rows: Indices = field(default_factory=lambda: np.zeros(0, np.int64))
    # Of each row: the fragment, the clause and the rank of its fault; shape (rows, 3).
    order: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    of_row: Indices = field(default_factory=lambda: np.zeros(0, np.int64))
    faults: tuple[Fault, ...] = ()
    touched: Touched = field(default_factory=Touched)

    def add(self, rows: Indices, order: NDArray[np.int64], of_row: Indices, faults: object) -> None:
        """Add rows with their faults; of a row that is known, the first fault stays."""
        assert isinstance(faults, tuple)
        known = {fault: number for number, fault in enumerate(self.faults)}
        numbers = np.array([known.setdefault(one, len(known)) for one in faults], np.int64)
        self.faults = tuple(known)
        every = np.concatenate([self.rows, rows])
        orders = np.concatenate([self.order, order])
        own = numbers[of_row] if len(of_row) else of_row
        all_faults = np.concatenate([self.of_row, own])
        by = np.lexsort((all_faults, orders[:, 2], orders[:, 1], orders[:, 0], every))
        first = np.ones(len(by), np.bool_)
        first[1:] = every[by][1:] != every[by][:-1]
        kept = by[first]
        self.rows, self.order, self.of_row = every[kept], orders[kept], all_faults[kept]

    def unite(self, other: FoundRefused) -> None:
        """Add what another task has found."""
        self.add(other.rows, other.order, other.of_row, other.faults)
        self.touched.unite(other.touched)

    def of(self, start: int, stop: int) -> Faults:
        """Return the faults of some of the rows, which are a batch."""
        return Faults(np.arange(stop - start), self.faults, self.of_row[start:stop])


def find_task(task: FindTask, batches: Iterable[pa.RecordBatch]) -> FoundRefused:
    """Return the source rows of a task's rows that make rows at fault; on an executor.

    It ends early if nothing will be committed: a row must not match, or would be changed twice.
    """
    found = FoundRefused()
    for batch in (part for one in batches for part in task.change.parts(one)):
        places = numpy_array(batch[PLACE])
        for place in np.unique(places).tolist():
            clause = task.change.clauses[place]
            rows = batch.filter(arrow_array(places == place))
            if clause.action == "fail":
                found.touched.forbid(numpy_array(rows[ADDRESS]))
                return found
            if clause.action != "insert":
                found.touched.add(numpy_array(rows[ADDRESS]), updates=clause.action == "update")
                if found.touched.twice is not None:
                    return found
            if clause.action in ("insert", "update"):
                made = rows.filter(rows[SOURCE_ROW].is_valid())
                if made.num_rows:
                    _find(found, task, place, decoded(made))
    return found


def _find(found: FoundRefused, task: FindTask, place: int, rows: pa.RecordBatch) -> None:
    """Find the faults of the rows that a clause makes."""
    faults, ranks = _faults(task, place, rows)
    if not len(faults.rows):
        return
    source_rows = numpy_array(rows[SOURCE_ROW])[faults.rows]
    fragments = np.full(len(faults.rows), _AFTER_ALL, np.int64)
    if task.change.clauses[place].action == "update":
        fragments = numpy_array(rows[ADDRESS])[faults.rows] >> 32
    order = np.stack([fragments, np.full(len(fragments), place), ranks[faults.of_row]], axis=1)
    found.add(source_rows, order, faults.of_row, faults.faults)


def _faults(task: FindTask, place: int, rows: pa.RecordBatch) -> tuple[Faults, NDArray[np.int64]]:
    """Return the faults of rows, and the rank of each fault: values first, then columns, rules."""
    found, ranks = Found(rows.num_rows), list[int]()
    values = task.values[place]
    for number, one in enumerate(values):
        if one.is_computed is not None:  # First: such a value is null in the other columns.
            wrong = np.flatnonzero(~numpy_array(rows[one.is_computed]))
            reason = f"Spark cannot compute the value for column {one.field.name}"
            found.add(wrong, Fault("VALUE", one.field.name, reason))
        if one.value is not None:
            find_unfit(found, rows[one.value], one.field)
        if one.is_stored is not None:
            wrong = np.flatnonzero(~numpy_array(rows[one.is_stored]))
            reason = f"column {one.field.name} is {one.kind}, and the value does not fit "
            reason += type_name(one.field.type)
            found.add(wrong, Fault("TYPE", one.field.name, reason))
        known = found.faults().faults
        ranks += [2 * number + (fault.rule != "NOT NULL") for fault in known[len(ranks) :]]
    left = found.open
    if len(left):
        write, clause = task.change.write, task.change.clauses[place]
        rest = rows.take(arrow_array(left))
        new = new_rows(task.change, clause, rest, task.change.taken_for(clause, rest))
        fitting = Fitting(
            new.schema.names,
            write.schema,
            write.numbering(),
            partition_by=write.layout.partition_by,
            truncates=write.truncates,
        )
        found.add_all(faults_of(write, fitting, new), left)
        names = _rule_ranks(write)
        known = found.faults().faults
        start = 2 * len(values)
        ranks += [start + names.get(_key(one), len(names)) for one in known[len(ranks) :]]
    return found.faults(), np.array(ranks, np.int64)


def _key(fault: Fault) -> tuple[bool, str]:
    is_of_column = fault.rule in ("TYPE", "NOT NULL", "VALUE")
    name = fault.name or ""
    return is_of_column, name.partition(".")[0] if is_of_column else name


def _rule_ranks(write: WritePlan) -> dict[tuple[bool, str], int]:
    """Return the places of columns, and after them those of rules."""
    keys = [(True, name) for name in write.schema.names()]
    keys += [(False, rule.name or "") for rule in write.rules]
    return {key: number for number, key in reversed(list(enumerate(keys)))}
