"""Reading a fragment: its rows, less the deleted ones, of which the predicate is true."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from txlog.errors import (
    BadDeletionVectorError,
    DataFileError,
    NotFoundError,
    TxlogError,
    TxlogWarning,
)
from txlog.expressions import columns_of, mask
from txlog.fragments import Fragment, alive_mask, as_bitmap
from txlog.log import decode_path
from txlog.scan.calendar import is_legacy, rebased
from txlog.scan.columns import conform, find_column
from txlog.scan.deletions import load_deletions
from txlog.scan.metadata_columns import metadata_column
from txlog.scan.plan import ReadPlan
from txlog.schema import StructField, arrow_type
from txlog.stats import keep, parse_partition_values, row_group_bounds
from txlog.store import Store, locate

BATCH_ROWS = 131_072


class FragmentReader:
    """An open data file of one fragment: its physical rows, in order, by batches."""

    def __init__(self, store: Store, plan: ReadPlan, fragment: Fragment) -> None:
        self._store = store
        self._plan = plan
        self._fragment = fragment
        self._path = fragment.files[0].path
        self._home, self._name = locate(store, decode_path(self._path))

    @contextmanager
    def _opened(self) -> Iterator[pq.ParquetFile]:
        """Open the file, and turn whatever it makes pyarrow raise into one error."""
        try:
            with self._home.open_input(self._name) as source:
                yield pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
        except NotFoundError as error:
            raise DataFileError(
                path=self._path,
                version=self._plan.version,
                reason="the file is gone, though this version of the table needs it",
                remedy="Open a newer version; vacuum may have removed what this one needs",
            ) from error
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, TxlogError):
                raise
            raise DataFileError(
                path=self._path,
                version=self._plan.version,
                reason=f"no readable Parquet: {error}",
                remedy="Restore the file from a copy, or open a version without it",
            ) from error

    def count_rows(self) -> int:
        """Return the number of physical rows, from the file's footer."""
        with self._opened() as file:
            return int(file.metadata.num_rows)

    def deletions(self) -> BitMap64 | None:
        """Return the positions of deleted rows, or None; errors as in `load_deletions`."""
        deleted = load_deletions(self._store, self._fragment)
        if deleted is not None and self._fragment.physical_rows is None:
            rows = self.count_rows()
            if deleted.max() >= rows:
                raise BadDeletionVectorError(
                    path=self._path,
                    reason=f"row {deleted.max()} is deleted of a file that has {rows} rows",
                    remedy="The writer of this log is at fault",
                )
        return deleted

    def batches(
        self,
        needed: tuple[StructField, ...],
        *,
        prune: bool,
        batch_rows: int,
        threads: bool,
        only: BitMap64 | None = None,
        rows: tuple[int, int] | None = None,
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield physical rows with the position of each batch's first one.

        With `prune`, row groups of which the plan's predicate is certainly not true are left out;
        with `only`, those that hold none of its positions; with `rows`, those whose first row is
        not in that range of positions.
        """
        with self._opened() as file:
            self._check_rows(file)
            names = file.schema_arrow.names
            places = {
                column.name: self._place(file.schema_arrow, column)
                for column in needed
                if column.name not in self._plan.partition_columns
            }
            wanted = [names[place] for place in places.values() if place is not None]
            self._check_names(names, wanted)
            start = 0
            legacy = is_legacy(file.metadata.metadata)
            kept = self._kept_row_groups(file, places) if prune and not legacy else None
            for group in range(file.num_row_groups):
                count = file.metadata.row_group(group).num_rows
                asked = only is None or only.range_cardinality(start, start + count) > 0
                asked = asked and (rows is None or rows[0] <= start < rows[1])
                if asked and (kept is None or kept[group]):
                    at = start
                    for raw in _raw(file, group, count, wanted, batch_rows, threads):
                        if legacy:
                            raw = _in_todays_calendar(raw)
                        yield at, self._table_columns(raw, needed, places, names, at)
                        at += raw.num_rows
                start += count

    def _place(self, file: pa.Schema, column: StructField) -> int | None:
        """Return where the file has a column, or None if it does not."""
        if column.name not in self._plan.metadata_columns:
            place = find_column(file, column, self._plan.mapping_mode)
            # Parquet knows groups without columns, of which nothing can be read.
            return None if place is None or file.field(place).type == pa.struct([]) else place
        tracking = self._plan.row_tracking
        stored = None if tracking is None else tracking.stored(column.name)
        return file.names.index(stored) if stored in file.names else None

    def _check_names(self, names: list[str], wanted: list[str]) -> None:
        for name in wanted:
            if names.count(name) > 1:
                raise DataFileError(
                    path=self._path,
                    version=self._plan.version,
                    reason=f"the file has {names.count(name)} columns of the name {name!r}",
                    remedy="Its writer is at fault; other columns can be read",
                )

    def _check_rows(self, file: pq.ParquetFile) -> None:
        stated = self._fragment.physical_rows
        if stated is None or stated == file.metadata.num_rows:
            return
        if self._fragment.deletion is None:
            warnings.warn(
                f"the log says {stated} rows of {self._path}, but it has "
                f"{file.metadata.num_rows}: counts from the log alone are wrong",
                TxlogWarning,
                stacklevel=3,
            )
        else:
            raise DataFileError(
                path=self._path,
                version=self._plan.version,
                reason=f"the log says {stated} rows, the file has {file.metadata.num_rows}, "
                "so its deletion vector cannot be trusted",
                remedy="The log's numRecords is wrong; its writer is at fault",
            )

    def _kept_row_groups(
        self, file: pq.ParquetFile, places: dict[str, int | None]
    ) -> list[bool] | None:
        where = self._plan.where
        if where is None or file.num_row_groups < 2:
            return None
        constant = self._plan.partition_columns | self._plan.metadata_columns
        if any(path[0] in constant for path in columns_of(where)):
            return None  # Partition values are the same in all row groups; footers know no others.
        if self._plan.mapping_mode != "none" and any(len(path) > 1 for path in columns_of(where)):
            return None  # Nested columns may have other names in the file.
        fields = {column.name: column for column in self._plan.needed}
        if any(
            place is None
            or file.schema_arrow.field(place).type != arrow_type(fields[name].type)
            or file.schema_arrow.field(place).name != name
            for name, place in places.items()
        ):
            return None  # Statistics of another type, or of none: read all of it.
        bounds = row_group_bounds(file.metadata, columns_of(where), self._plan.needed)
        return [bool(value) for value in keep(where, bounds).to_pylist()]

    def _table_columns(
        self,
        raw: pa.RecordBatch,
        needed: tuple[StructField, ...],
        places: dict[str, int | None],
        names: list[str],
        start: int,
    ) -> pa.RecordBatch:
        """Return a batch of the file as the table's columns: conformed, or constant, or null."""
        if not needed:
            return raw.select([])  # Keeps the number of rows; a batch of no arrays has none.
        arrays, fields = [], []
        for column in needed:
            target = arrow_type(column.type)
            if column.name in self._plan.partition_columns:
                array = pa.repeat(self._partition_value(column), raw.num_rows)
            elif column.name in self._plan.metadata_columns:
                place = places[column.name]
                array = metadata_column(
                    column.name,
                    self._fragment,
                    self._plan.row_tracking,
                    start=start,
                    count=raw.num_rows,
                    stored=None if place is None else raw.column(names[place]),
                )
            elif (place := places[column.name]) is None:
                array = pa.nulls(raw.num_rows, target)
            else:
                array = conform(
                    raw.column(names[place]),
                    column.type,
                    self._plan.mapping_mode,
                    path=self._path,
                    column=column.name,
                )
            arrays.append(array)
            fields.append(pa.field(column.name, target, column.nullable))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _partition_value(self, column: StructField) -> pa.Scalar:
        values = self._fragment.partition_values
        physical = column.name if self._plan.mapping_mode == "none" else column.physical_name
        text = values.get(physical, values.get(column.name))
        return parse_partition_values(pa.array([text], pa.string()), column.type)[0]


def _in_todays_calendar(raw: pa.RecordBatch) -> pa.RecordBatch:
    columns = [rebased(column) for column in raw.columns]
    return pa.RecordBatch.from_arrays(columns, schema=raw.schema) if columns else raw


def _raw(
    file: pq.ParquetFile, group: int, rows: int, wanted: list[str], batch_rows: int, threads: bool
) -> Iterator[pa.RecordBatch]:
    if not wanted:  # Only constants are wanted, but as many as there are rows.
        yield pa.RecordBatch.from_arrays([pa.nulls(rows)], names=["rows"])
        return
    yield from file.iter_batches(
        batch_size=batch_rows, row_groups=[group], columns=wanted, use_threads=threads
    )


def read_fragment(
    store: Store,
    plan: ReadPlan,
    fragment: Fragment,
    *,
    batch_rows: int = BATCH_ROWS,
    threads: bool = False,
    rows: tuple[int, int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a fragment that the plan wants, in the plan's columns.

    Row groups that the predicate rules out are not read; deletions go by physical position,
    before the predicate. `threads` lets one file be decoded by several threads. With `rows`, a
    range of positions, only the row groups whose first row is in it are read: ranges that divide
    the fragment's positions yield each row once, wherever their borders are.

    Raises
    ------
    DataFileError, BadDeletionVectorError
        A file is missing, unreadable, or other than the log says.
    """
    reader = FragmentReader(store, plan, fragment)
    deleted = reader.deletions()
    names = [column.name for column in plan.columns]
    for start, batch in reader.batches(
        plan.needed, prune=True, batch_rows=batch_rows, threads=threads, rows=rows
    ):
        kept = alive_mask(deleted, start, batch.num_rows)
        if plan.where is not None:
            true = pc.fill_null(mask(plan.where, batch), False)
            kept = true if kept is None else pc.and_(true, kept)
        if kept is not None:
            batch = batch.filter(kept)
        if batch.num_rows:
            yield batch.select(names)


def matching_positions(store: Store, plan: ReadPlan, fragment: Fragment) -> tuple[BitMap64, int]:
    """Return the positions of a fragment's rows of which the plan's predicate is true.

    Deleted rows are not among them. The second value is the number of physical rows.
    """
    found = BitMap64()
    reader = FragmentReader(store, plan, fragment)
    total = reader.count_rows()
    if plan.where is None:
        found = BitMap64(range(total))
    else:
        needed = tuple(
            column
            for column in plan.needed
            if column.name in {path[0] for path in columns_of(plan.where)}
        )
        for start, batch in reader.batches(
            needed, prune=True, batch_rows=BATCH_ROWS, threads=False
        ):
            rows = pc.indices_nonzero(pc.fill_null(mask(plan.where, batch), False))
            found |= as_bitmap(pc.add(rows.cast(pa.uint64()), start))
    deleted = reader.deletions()
    return (found if deleted is None else found - deleted), total
