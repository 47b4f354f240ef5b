"""Find the source rows of a merge that would make rows which the table refuses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.base.arrow import arrow_array
from txlog.base.columns import flat
from txlog.base.errors import InvalidInputError
from txlog.commit.context import Context
from txlog.data_files.assignments import Assignments
from txlog.data_files.incoming import Fitting
from txlog.data_files.options import WriteOptions
from txlog.data_files.rewrite import plan_rewrite
from txlog.data_files.sieve import Faults, Found, faults_of, find_unfit, halve
from txlog.data_files.write_plan import WritePlan, plan_write
from txlog.expressions.evaluate import evaluate
from txlog.scan.data_file import BATCH_ROWS
from txlog.scan.read import FragmentReader
from txlog.schema.types import StructType
from txlog.snapshot.snapshot import Snapshot
from txlog.verbs.merge.clauses import decide
from txlog.verbs.merge.keys import named
from txlog.verbs.merge.match import FragmentMatch, MatchPlan, pair_rows

Indices = NDArray[np.int64]


def find_refused(
    context: Context,
    base: Snapshot,
    plan: MatchPlan,
    matches: Sequence[FragmentMatch],
    inserted: NDArray[np.bool_],
    *,
    kept: Collection[str],
    schema: StructType,
    options: WriteOptions,
) -> Faults:
    """Return the source rows that make rows at fault.

    A source row is at fault if one of the rows that it updates or inserts is. Rows that no source
    row makes are not looked at.

    Parameters
    ----------
    matches
        Those with changed rows.
    inserted
        The source rows without a match.
    kept
        The columns of the table that updated rows keep, or from which they are computed.
    schema
        The table's after the merge.
    """
    writing = plan_write(
        base.metadata, schema, options, mapping_mode=base.mapping_mode, protocol=base.protocol
    )
    found = Found(plan.source.num_rows)
    for match in matches:
        for places, old in _old_rows(context, base, match, kept, options):
            _updates(found, plan, writing, match, places, old)
    if plan.has("not_matched") and inserted.any():
        _inserts(found, plan, writing, inserted)
    return found.faults()


def _old_rows(
    context: Context,
    base: Snapshot,
    match: FragmentMatch,
    kept: Collection[str],
    options: WriteOptions,
) -> Iterator[tuple[Indices, pa.RecordBatch]]:
    """Yield the old rows of updates, with their places in `match.updated`."""
    positions = match.updated.positions
    rewriting = plan_rewrite(base, options)
    columns = tuple(one for one in rewriting.read.columns if one.name in kept)
    if not columns:
        for start in range(0, len(positions), BATCH_ROWS):
            part = positions[start : start + BATCH_ROWS]
            rows = pa.RecordBatch.from_arrays([arrow_array(part)], names=[""])
            yield np.arange(start, start + len(part)), rows
        return
    reader = FragmentReader(context.store, rewriting.read, match.deletes.fragment)
    for found, rows in reader.at(columns, positions, BATCH_ROWS):
        yield np.searchsorted(positions, found), rows


def _updates(
    found: Found,
    plan: MatchPlan,
    writing: WritePlan,
    match: FragmentMatch,
    places: Indices,
    old: pa.RecordBatch,
) -> None:
    target = named(old, plan.sides.target_alias)
    clauses, theirs = match.updated.clauses[places], match.updated.source_rows[places]
    for place in np.unique(clauses).tolist():
        values = plan.clauses[place].values
        chosen = np.flatnonzero((clauses == place) & (theirs >= 0))
        if values is None or not len(chosen):
            continue
        both = pair_rows(plan.sides, plan.source, target, chosen, theirs[chosen], values.reads)
        own = old.take(arrow_array(chosen))
        _record(found, theirs[chosen], _made(writing, values, both, own))


def _inserts(
    found: Found, plan: MatchPlan, writing: WritePlan, inserted: NDArray[np.bool_]
) -> None:
    for start, batch in plan.source.batches():
        places = np.flatnonzero(inserted[start : start + batch.num_rows])
        if not len(places):
            continue
        rows = named(batch.take(arrow_array(places)), plan.sides.source_alias)
        actions = decide(plan.clauses, "not_matched", rows)
        for place in np.unique(actions[actions >= 0]).tolist():
            values = plan.clauses[place].values
            assert values is not None
            chosen = np.flatnonzero(actions == place)
            data = rows.take(arrow_array(chosen))
            _record(found, start + places[chosen], _made(writing, values, data, None))


def _record(found: Found, source_rows: Indices, faults: Faults) -> None:
    for number, fault in enumerate(faults.faults):
        found.add(np.unique(source_rows[faults.rows[faults.of_row == number]]), fault)


def _made(
    writing: WritePlan, values: Assignments, data: pa.RecordBatch, own: pa.RecordBatch | None
) -> Faults:
    """Return the faults of new rows.

    Parameters
    ----------
    data
        The rows from which values are computed.
    own
        The old rows. None: the new rows are inserted.
    """
    found = Found(data.num_rows)

    def new(rows: Indices) -> pa.RecordBatch:
        part = arrow_array(rows)
        given = data.take(part)
        return values.alone(given) if own is None else values.of(own.take(part), given)

    for one in values.values:
        try:
            computed = flat(evaluate(one.value, data))
        except InvalidInputError:
            continue  # Such rows are found alone, below.
        if one.part is None:
            find_unfit(found, computed, one.field)
    _halve(found, new)
    left = found.open
    if len(left):
        rows = new(left)
        fitting = Fitting(
            rows.schema.names,
            writing.schema,
            writing.numbering(),
            partition_by=writing.layout.partition_by,
            truncates=writing.truncates,
        )
        found.add_all(faults_of(writing, fitting, rows), left)
    return found.faults()


def _halve(found: Found, new: Callable[[Indices], object]) -> None:
    places = found.open
    rows = pa.RecordBatch.from_arrays([arrow_array(places)], names=["row"])
    halve(found, places, rows, lambda part: new(part.column(0).to_numpy()), "VALUE")
