"""Rows by their addresses, their ids, or their offsets among the live rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap64

from txlog.errors import DataFileError, InvalidInputError, NotFoundError, UnsupportedFeatureError
from txlog.fragments.fragment import Fragment, Fragments
from txlog.fragments.positions import alive_mask, as_array, as_bitmap
from txlog.scan.deletions import load_deletions
from txlog.scan.engine import Engine
from txlog.scan.lazy_plan import ScanPlan
from txlog.scan.metadata_columns import ROW_ADDRESS, ROW_ID
from txlog.scan.plan import ReadPlan
from txlog.scan.reader import BATCH_ROWS, FragmentReader
from txlog.scan.scan import Scan, count_rows
from txlog.store.base import Store

PlanOf = Callable[[list[str] | None], ScanPlan]

_SHOWN = 5  # Of many addresses that are at fault.


def rows_at(
    store: Store,
    plan_of: PlanOf,
    *,
    addresses: Sequence[int] | None,
    row_ids: Sequence[int] | None,
    columns: list[str] | None,
    engine: Engine,
) -> pa.Table:
    """Return rows by their addresses or ids, in their order; either is given.

    Parameters
    ----------
    plan_of
        Plans a scan of all rows with given columns.

    Raises
    ------
    InvalidInputError, NotFoundError
        As for `take_addresses` and `addresses_of`.
    """
    if (addresses is None) == (row_ids is None):
        raise InvalidInputError(
            argument="row_addresses", reason="either row_addresses or row_ids is expected"
        )
    asked: Sequence[int] | pa.Array | None = addresses
    if asked is None:
        plan = plan_of([ROW_ID, ROW_ADDRESS])
        if not {ROW_ID, ROW_ADDRESS} <= plan.metadata_columns:
            raise UnsupportedFeatureError(
                features=("row ids",),
                reason=f"columns of the table hide {ROW_ID} or {ROW_ADDRESS}",
                remedy="Look the rows up by other columns",
            )
        asked = addresses_of(Scan(store, plan, engine), row_ids or ())
    return take_addresses(store, plan_of(columns), asked, engine)


def take_live(store: Store, plan: ScanPlan, indices: Sequence[int], engine: Engine) -> pa.Table:
    """Return live rows by their offsets, in the order given; one may be given more than once.

    Offset n is the row n of a scan without a predicate. Only the row groups that hold the rows are
    read, and the footers of fragments of which the log does not count the rows.

    Raises
    ------
    InvalidInputError
        An offset is no whole number from 0.
    NotFoundError
        There are not so many rows.
    """
    asked = _numbers(indices, "indices")
    if not len(asked):
        return plan.schema.empty_table()
    ordered = asked.unique().sort()
    counts = plan.counts
    if counts.null_count:
        unknown = plan.count()[1]
        counted = engine.map(partial(count_rows, store, plan.reading), unknown)
        counts = pc.replace_with_mask(counts, counts.is_null(), pa.array(list(counted), pa.int64()))
    ends = np.cumsum(counts.to_numpy())
    total = int(ends[-1]) if len(ends) else 0
    if len(ordered) and ordered[-1].as_py() >= total:
        raise NotFoundError(
            reason=f"this version has only {total} rows: "
            f"{_listed('offset', ordered.filter(pc.greater_equal(ordered, total)).to_pylist())}",
            remedy="Take offsets from 0 up to Table.count()",
        )
    offsets = ordered.to_numpy()
    owners = np.searchsorted(ends, offsets, "right")
    places, starts = np.unique(owners, return_index=True)
    parts = [
        (plan.fragments[int(place)], some - (ends[place - 1] if place else 0))
        for place, some in zip(places, np.split(offsets, starts[1:]), strict=True)
    ]
    tables = engine.map(partial(_take_live, store, plan.reading), parts)
    rows = pa.concat_tables([plan.schema.empty_table(), *tables])
    return rows.take(pc.index_in(asked, value_set=ordered))


def _take_live(store: Store, plan: ReadPlan, part: tuple[Fragment, NDArray[np.int64]]) -> pa.Table:
    """Return the rows of a fragment at ascending offsets among those that are not deleted."""
    fragment, offsets = part
    deleted = load_deletions(store, fragment)
    if deleted is not None:
        gone = as_array(deleted).to_numpy().astype(np.int64)
        # Before each deleted position, so many rows are left.
        left = gone - np.arange(len(gone))
        offsets = offsets + np.searchsorted(left, offsets, "right")
    positions = BitMap64(offsets.tolist())
    rows = _rows_at(store, plan, fragment, positions)
    if rows.num_rows < len(positions):
        raise DataFileError(
            path=fragment.path,
            version=plan.version,
            reason=f"the log says {fragment.physical_rows} rows, the file has fewer",
            remedy="The log's numRecords is wrong; its writer is at fault",
        )
    return rows


def take_addresses(
    store: Store, plan: ScanPlan, addresses: Sequence[int] | pa.Array, engine: Engine
) -> pa.Table:
    """Return the rows at addresses, in their order; an address may be given more than once.

    Only the row groups that hold the rows are read.

    Parameters
    ----------
    plan
        A scan of all rows: its fragments, and the columns to return.
    addresses
        Fragment id × 2³² + position, as `_rowaddr` gives them.

    Raises
    ------
    InvalidInputError
        An address is no whole number from 0.
    NotFoundError
        There is no such fragment or position, or the row is deleted; the addresses are named.
    """
    asked = _numbers(addresses, "row_addresses")
    ordered = asked.unique().sort()
    wanted = by_fragment(ordered)
    known = {fragment.id: fragment for fragment in _with_ids(plan.fragments, wanted)}
    _refuse(
        "this version has no fragment of theirs",
        {number: positions for number, positions in wanted.items() if number not in known},
    )
    parts = engine.map(
        partial(_take_from, store, plan.reading),
        [(known[number], positions) for number, positions in wanted.items()],
    )
    found = pa.concat_tables([plan.schema.empty_table(), *parts])
    return found.take(pc.index_in(asked, value_set=ordered))


def _with_ids(fragments: Sequence[Fragment], ids: Collection[int]) -> Sequence[Fragment]:
    """Return the fragments of some ids; many others do not become values."""
    if isinstance(fragments, Fragments):
        return fragments.filter(pc.is_in(fragments.ids, value_set=pa.array([*ids], pa.int64())))
    return [fragment for fragment in fragments if fragment.id in ids]


def addresses_of(scan: Scan, row_ids: Sequence[int]) -> pa.Array:
    """Return the addresses of rows by their ids, in the order of the ids.

    Parameters
    ----------
    scan
        A scan of all rows with the columns `_rowid` and `_rowaddr`. It is read only if the table
        keeps ids; elsewhere they are addresses.

    Raises
    ------
    InvalidInputError
        An id is no whole number from 0.
    NotFoundError
        No row has an id; those at fault are named.
    """
    asked = _numbers(row_ids, "row_ids")
    if scan.plan.reading.row_tracking is None:
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
            remedy="It may be deleted; take ids from a scan of this version, by its column _rowid",
        )
    return found[ROW_ADDRESS].take(places).combine_chunks()


def _where_they_began(scan: Scan, asked: pa.Array) -> pa.Table:
    """Return the ids and addresses of rows that are where their ids were given.

    A file's `baseRowId` tells where that is. Only the row groups that hold the rows are read.
    """
    held = [f for f in scan.plan.fragments if f.base_row_id is not None and f.physical_rows]
    held.sort(key=lambda fragment: fragment.base_row_id or 0)
    bases = [fragment.base_row_id or 0 for fragment in held]
    wanted: dict[int, list[int]] = {}
    for row_id in asked.unique().to_pylist():
        at = bisect_right(bases, row_id) - 1
        if at >= 0 and row_id - bases[at] < (held[at].physical_rows or 0):
            wanted.setdefault(at, []).append(row_id - bases[at])
    parts = scan.engine.map(
        partial(_ids_at, scan.store, scan.plan.reading),
        [(held[at], BitMap64(positions)) for at, positions in wanted.items()],
    )
    found = pa.concat_tables([scan.schema.empty_table(), *parts])
    return found.filter(pc.is_in(found[ROW_ID], value_set=asked))


def _ids_at(store: Store, plan: ReadPlan, part: tuple[Fragment, BitMap64]) -> pa.Table:
    """Return the rows of a fragment at those of some positions that are not deleted."""
    fragment, positions = part
    deleted = load_deletions(store, fragment)
    return _rows_at(store, plan, fragment, positions if deleted is None else positions - deleted)


def take_offsets(
    store: Store, plan: ScanPlan, fragment: Fragment, offsets: Sequence[int], engine: Engine
) -> pa.Table:
    """Return rows of one fragment by their positions, in order; errors as for `take_addresses`."""
    asked = _numbers(offsets, "offsets")
    if len(asked) and pc.max(asked).as_py() >= 1 << 32:
        _refuse("no fragment has so many rows", {fragment.id: [pc.max(asked).as_py()]})
    return take_addresses(store, plan, pc.add(asked, fragment.id << 32), engine)


def positions_of(
    offsets: Sequence[int], fragment: Fragment, deleted: BitMap64, rows: int
) -> BitMap64:
    """Return positions of a fragment as a bitmap.

    Parameters
    ----------
    deleted, rows
        The fragment's deleted rows, and how many it has, those included.

    Raises
    ------
    InvalidInputError
        One is no whole number from 0, or there twice.
    NotFoundError
        One is beyond the fragment, or of a deleted row.
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
    _refuse("these rows are deleted", {fragment.id: found & deleted})
    return found


def _numbers(values: Sequence[int] | pa.Array, argument: str) -> pa.Array:
    try:
        found = pa.array(values)  # A float would become a number here, if one were asked for.
        if len(found) and not pa.types.is_integer(found.type):
            raise TypeError(f"these are {found.type}")
        found = found.cast(pa.int64())
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise InvalidInputError(
            argument=argument, reason=f"whole numbers were expected: {error}"
        ) from error
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


def _take_from(store: Store, plan: ReadPlan, part: tuple[Fragment, BitMap64]) -> pa.Table:
    """Return the rows of a fragment at positions, ascending."""
    fragment, positions = part
    deleted = load_deletions(store, fragment)
    if deleted is not None:
        _refuse("these rows are deleted", {fragment.id: positions & deleted})
    found = _rows_at(store, plan, fragment, positions)
    if found.num_rows < len(positions):
        count = FragmentReader(store, plan, fragment).count_rows()
        beyond = positions - BitMap64(range(count))
        _refuse(f"their fragment has only {count} rows", {fragment.id: beyond})
    return found


def _rows_at(store: Store, plan: ReadPlan, fragment: Fragment, positions: BitMap64) -> pa.Table:
    """Return the rows of a fragment at those of some positions that it has, ascending."""
    names = [column.name for column in plan.columns]
    batches = []
    for start, batch in FragmentReader(store, plan, fragment).batches(
        plan.needed, prune=False, batch_rows=BATCH_ROWS, threads=False, only=positions
    ):
        others = alive_mask(positions, start, batch.num_rows)
        if others is not None:
            batches.append(batch.filter(pc.invert(others)).select(names))
    return pa.Table.from_batches(batches, schema=plan.schema)


def _refuse(reason: str, at_fault: Mapping[int, Iterable[int]]) -> None:
    """Raise an error that names addresses, if there are any."""
    addresses = [number << 32 | at for number, positions in at_fault.items() for at in positions]
    if not addresses:
        return
    raise NotFoundError(
        reason=f"{reason}: {_listed('row address', addresses)}",
        remedy="Take addresses from a scan of this version, by its column _rowaddr",
    )


def _listed(name: str, values: Sequence[int]) -> str:
    shown = ", ".join(map(str, values[:_SHOWN]))
    return f"{name} {shown}" + (f" and {len(values) - _SHOWN} more" if values[_SHOWN:] else "")
