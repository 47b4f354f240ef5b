"""Read rows by their offsets among live rows, by their addresses, or by their ids."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64

from txlog.base.arrow import arrow_array, empty_table, numpy_array, pc
from txlog.base.errors import (
    InvalidInputError,
    InvalidTypeError,
    NotFoundError,
    UnsupportedFeatureError,
)
from txlog.base.threads import Engine, is_in_process
from txlog.fragments.deletion_vector import as_array, as_bitmap
from txlog.fragments.fragment import Fragment
from txlog.scan.columns import ROW_ADDRESS, ROW_ID
from txlog.scan.deletions import load_deletions
from txlog.scan.plan import PlannedFiles, ScanPlan
from txlog.scan.positions import Numbers, Part, VectorCache, rows_at, without_deleted
from txlog.scan.read import FragmentReader
from txlog.scan.read_plan import ReadPlan
from txlog.scan.scan import Scan, count_live
from txlog.store.base import Store, map_many

PlanOf = Callable[[list[str] | None], ScanPlan]

_SHOWN = 5  # The number of faulty addresses in an error.


def take_rows(
    store: Store,
    plan_of: PlanOf,
    *,
    addresses: Sequence[int] | None,
    row_ids: Sequence[int] | None,
    columns: list[str] | None,
    engine: Engine,
) -> pa.Table:
    """Return rows by their addresses or ids in the given order.

    Parameters
    ----------
    plan_of
        Plans a scan of all rows with given columns.
    addresses, row_ids
        One of them.

    Raises
    ------
    InvalidInputError, NotFoundError
        As for `take` and `addresses_of`.
    """
    asked: Sequence[int] | pa.Array | None = addresses
    if asked is None:
        of_ids = plan_of([ROW_ID, ROW_ADDRESS])
        if not {ROW_ID, ROW_ADDRESS} <= of_ids.reading.metadata_columns:
            raise UnsupportedFeatureError(
                features=("row ids",),
                reason=f"columns of the table hide {ROW_ID} or {ROW_ADDRESS}",
                remedy="Look the rows up by other columns",
            )
        asked = addresses_of(Scan(store, of_ids, engine), row_ids or ())
    wanted = _numbers(asked, "addresses")
    plan = plan_of(columns)
    return take(store, plan.reading, _fragments_of(plan.files, wanted), wanted, engine)


def take_live(
    store: Store, plan: ScanPlan, indices: Sequence[int] | pa.Array, engine: Engine
) -> pa.Table:
    """Return rows by their offsets among the live rows of a scan, in the given order.

    Only the row groups with these rows are read, and the deletions of their fragments.

    Parameters
    ----------
    plan
        A scan of all rows, and the columns to return.

    Raises
    ------
    InvalidInputError
        An offset is not a whole number from 0.
    NotFoundError
        There are fewer rows. The error names the offsets.
    """
    asked = _numbers(indices, "indices")
    files = plan.files
    order = pc.sort_indices(files.rows.ids)
    ids = numpy_array(files.rows.ids.take(order))
    counts = numpy_array(_live_counts(store, plan, engine).take(order))
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    _require_within(asked, total, "this version")
    offsets = numpy_array(asked)
    places = np.searchsorted(ends, offsets, "right")
    offsets = offsets - (ends - counts)[places]
    owners = ids[places]
    known = _fragments_of(files, arrow_array(owners << 32))
    for number, fragment in known.items():
        deleted = load_deletions(store, fragment)
        if deleted is not None:
            theirs = owners == number
            offsets[theirs] = positions_of_live(offsets[theirs], numpy_array(as_array(deleted)))
    addresses = arrow_array((owners << 32) | offsets)
    return take(store, plan.reading, known, addresses, engine)


def _require_within(offsets: pa.Array, rows: int, whose: str) -> None:
    beyond = offsets.filter(pc.greater_equal(offsets, rows))
    if len(beyond):
        raise NotFoundError(
            reason=f"{whose} has only {rows} rows: {_listed('offset', beyond.to_pylist())}",
            remedy="Pass offsets from 0 to the number of rows minus 1",
        )


def take_live_of(
    store: Store,
    plan: ScanPlan,
    fragment: Fragment,
    indices: Sequence[int] | pa.Array,
    engine: Engine,
) -> pa.Table:
    """Return rows of one fragment by offsets among its live rows; errors as for `take_live`."""
    asked = _numbers(indices, "indices")
    deleted = load_deletions(store, fragment)  # First: the log may state too many rows.
    count = fragment.num_rows
    rows = count_live(store, plan.reading, fragment) if count is None else count
    _require_within(asked, rows, "the fragment")
    if deleted is not None:
        live = positions_of_live(numpy_array(asked), numpy_array(as_array(deleted)))
        asked = arrow_array(live)
    addresses = pc.add(asked, fragment.id << 32)
    return take(store, plan.reading, {fragment.id: fragment}, addresses, engine)


def positions_of_live(offsets: Numbers, deleted: NDArray[Any]) -> Numbers:
    """Return the positions of rows by their offsets among those that are not deleted. Pure.

    `deleted` are the positions of deleted rows, ascending.
    """
    live_before = deleted.astype(np.int64) - np.arange(len(deleted))
    return offsets + np.searchsorted(live_before, offsets, "right")


def _live_counts(store: Store, plan: ScanPlan, engine: Engine) -> pa.Array:
    """Return the number of live rows of each fragment, from the log or else from its files."""
    counts = plan.files.live_rows
    if not counts.null_count:
        return counts
    unknown = plan.files.filter(counts.is_null())
    fragments = list(unknown.fragments())
    read = dict(
        zip(
            (fragment.id for fragment in fragments),
            engine.map(partial(count_live, store, plan.reading), fragments),
            strict=True,
        )
    )
    found = [read[number] for number in unknown.rows.ids.to_pylist()]
    return pc.replace_with_mask(counts, counts.is_null(), arrow_array(found, pa.int64()))


def _fragments_of(files: PlannedFiles, addresses: pa.Array) -> dict[int, Fragment]:
    """Return the existing fragments of addresses, by id."""
    wanted = pc.is_in(files.rows.ids, value_set=pc.shift_right(addresses, 32).unique())
    return {fragment.id: fragment for fragment in files.filter(wanted).fragments()}


def take(
    store: Store,
    plan: ReadPlan,
    known: Mapping[int, Fragment],
    addresses: pa.Array,
    engine: Engine,
) -> pa.Table:
    """Return the rows at addresses in the given order; an address may occur more than once.

    Only the row groups that hold the rows are read.

    Parameters
    ----------
    plan
        How fragments are read, and the columns to return.
    known
        The existing fragments, by id: at least those of the addresses.
    addresses
        int64: fragment id × 2³² + position, as in `_rowaddr`.

    Raises
    ------
    NotFoundError
        A fragment or position does not exist, or the row is deleted. The error names the addresses.
    """
    ordered = addresses.unique().sort()
    wanted = by_fragment(ordered)
    _refuse(
        "this version has no fragment with these ids",
        {number: positions for number, positions in wanted.items() if number not in known},
    )
    asked = [(known[number], positions) for number, positions in wanted.items()]
    deletions = map_many(store, partial(load_deletions, store), [of for of, _ in asked])
    for (fragment, positions), deleted in zip(asked, deletions, strict=True):
        if deleted is not None:
            _refuse("these rows are deleted", {fragment.id: positions & deleted})
    parts = [(of, numpy_array(as_array(at)).astype(np.int64)) for of, at in asked]
    found, counts = _rows_by(engine, store, plan, parts)
    for (fragment, positions), count in zip(asked, counts, strict=True):
        if count < len(positions):
            _refuse_beyond(store, plan, fragment, positions)
    return found.take(pc.index_in(addresses, value_set=ordered))


def _rows_by(
    engine: Engine, store: Store, plan: ReadPlan, parts: Sequence[Part]
) -> tuple[pa.Table, list[int]]:
    """Return `rows_at` of all parts: in this process at once, elsewhere each by a worker."""
    shares = [parts] if is_in_process(engine) else [[part] for part in parts]
    read = partial(rows_at, store, plan)
    found = [read(parts)] if len(shares) == 1 else list(engine.map(read, shares))
    tables = [table for table, _ in found]
    rows = tables[0] if len(tables) == 1 else pa.concat_tables([empty_table(plan.schema), *tables])
    return rows, [count for _, counts in found for count in counts]


def _refuse_beyond(store: Store, plan: ReadPlan, fragment: Fragment, positions: BitMap64) -> None:
    count = FragmentReader(store, plan, fragment).count_rows()
    beyond = positions - BitMap64(range(count))
    _refuse(f"their fragment has only {count} rows", {fragment.id: beyond})


def addresses_of(scan: Scan, row_ids: Sequence[int]) -> pa.Array:
    """Return the addresses of rows by their ids, in the order of the ids.

    Parameters
    ----------
    scan
        A scan of all rows with the columns `_rowid` and `_rowaddr`. It is read only if the table
        keeps ids; otherwise ids are addresses.

    Raises
    ------
    InvalidInputError
        An id is not a whole number from 0.
    NotFoundError
        No row has one of the ids; the error names them.
    """
    asked = _numbers(row_ids, "row_ids")
    if scan.plan.reading.form.row_tracking is None:
        return asked
    found = _where_they_began(scan, asked)
    missing = asked.filter(pc.invert(pc.is_in(asked, value_set=found[ROW_ID])))
    if len(missing):
        moved = [
            batch.filter(pc.is_in(batch.column(ROW_ID), value_set=missing))
            for batch in scan.to_batches()
        ]
        found = pa.concat_tables([found, pa.Table.from_batches(moved, schema=scan.schema)])
    found = found.combine_chunks()
    places = pc.index_in(asked, value_set=found[ROW_ID])
    if places.null_count:
        gone = asked.filter(places.is_null()).unique().to_pylist()
        raise NotFoundError(
            reason=f"no row of this version has {_listed('id', gone)}",
            remedy="The row may be deleted. Get ids from the column _rowid in a scan of this "
            "version",
        )
    return found[ROW_ADDRESS].take(places).combine_chunks()


def _where_they_began(scan: Scan, asked: pa.Array) -> pa.Table:
    """Return the ids and addresses of rows that are still in the file in which they got their ids.

    A file's `baseRowId` determines their positions. Only the row groups with these rows are read.
    """
    tracked = [f for f in scan.plan.fragments if f.base_row_id is not None and f.physical_rows]
    tracked.sort(key=lambda fragment: fragment.base_row_id or 0)
    bases = [fragment.base_row_id or 0 for fragment in tracked]
    wanted: dict[int, list[int]] = {}
    for row_id in asked.unique().to_pylist():
        at = bisect_right(bases, row_id) - 1
        if at >= 0 and row_id - bases[at] < (tracked[at].physical_rows or 0):
            wanted.setdefault(at, []).append(row_id - bases[at])
    parts = [
        (tracked[at], np.sort(np.array(positions, np.int64))) for at, positions in wanted.items()
    ]
    alive = without_deleted(scan.store, VectorCache(), parts)
    found, _ = _rows_by(scan.engine, scan.store, scan.plan.reading, alive)
    return found.filter(pc.is_in(found[ROW_ID], value_set=asked))


def take_offsets(
    store: Store, plan: ScanPlan, fragment: Fragment, offsets: Sequence[int], engine: Engine
) -> pa.Table:
    """Return rows of one fragment by their positions, in their order; errors as for `take`."""
    asked = _numbers(offsets, "offsets")
    if len(asked) and pc.max(asked).as_py() >= 1 << 32:
        _refuse("no fragment has so many rows", {fragment.id: [pc.max(asked).as_py()]})
    addresses = pc.add(asked, fragment.id << 32)
    return take(store, plan.reading, {fragment.id: fragment}, addresses, engine)


def positions_of(offsets: Sequence[int], fragment: Fragment, rows: int) -> BitMap64:
    """Return positions of a fragment as a bitmap.

    Parameters
    ----------
    rows
        The fragment's number of rows, including deleted ones.

    Raises
    ------
    InvalidInputError
        A value is not a whole number from 0, or occurs twice.
    NotFoundError
        A position is beyond the fragment.
    """
    asked = _numbers(offsets, "offsets")
    found = as_bitmap(asked.cast(pa.uint64()))
    if len(found) != len(asked):
        raise InvalidInputError(
            argument="offsets",
            reason=f"only {len(found)} of {len(asked)} are distinct",
            remedy="Name each row once",
        )
    beyond = found - BitMap64(range(rows))
    _refuse(f"their fragment has only {rows} rows", {fragment.id: beyond})
    return found


def _numbers(values: Sequence[int] | pa.Array, argument: str) -> pa.Array:
    try:
        found = arrow_array(values)  # With a requested type, a float would become an integer here.
        if len(found) and not pa.types.is_integer(found.type):
            raise TypeError(f"these are {found.type}")
        found = found.cast(pa.int64())
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        kind = InvalidTypeError if isinstance(error, TypeError) else InvalidInputError
        raise kind(argument=argument, reason=f"whole numbers were expected: {error}") from error
    if found.null_count or pc.any(pc.less(found, 0)).as_py():
        raise InvalidInputError(argument=argument, reason="one is null, or below 0")
    return found


def by_fragment(addresses: pa.Array) -> dict[int, BitMap64]:
    """Return the positions of ascending addresses by their fragments, in the same order."""
    numbers = pc.shift_right(addresses, 32)
    positions = pc.bit_wise_and(addresses, 0xFFFF_FFFF).cast(pa.uint64())
    wanted: dict[int, BitMap64] = {}
    start = 0
    for run in pc.run_end_encode(numbers, run_end_type=pa.int64()).run_ends.to_pylist():
        wanted[numbers[start].as_py()] = as_bitmap(positions.slice(start, run - start))
        start = run
    return wanted


def _refuse(reason: str, at_fault: Mapping[int, Iterable[int]]) -> None:
    """Raise an error that names addresses, if there are any."""
    addresses = [number << 32 | at for number, positions in at_fault.items() for at in positions]
    if not addresses:
        return
    raise NotFoundError(
        reason=f"{reason}: {_listed('row address', addresses)}",
        remedy="Get addresses from the column _rowaddr in a scan of this version",
    )


def _listed(name: str, values: Sequence[int]) -> str:
    shown = ", ".join(map(str, values[:_SHOWN]))
    return f"{name} {shown}" + (f" and {len(values) - _SHOWN} more" if values[_SHOWN:] else "")
