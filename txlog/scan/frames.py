"""Reading fragments with polars, where it reads what `read_fragment` does; else with that."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from txlog.expressions import Expression, columns_of
from txlog.fragments import Fragment, alive_mask
from txlog.log import decode_path
from txlog.scan.calendar import is_legacy
from txlog.scan.columns import find_column
from txlog.scan.data_file import open_parquet
from txlog.scan.engine import Engine
from txlog.scan.plan import ReadPlan
from txlog.scan.polars_predicates import as_polars
from txlog.scan.read import FragmentReader, read_fragment
from txlog.schema import DecimalType, PrimitiveType, StructField, arrow_type
from txlog.store import LocalStore, Store, locate

# Of these, row groups' statistics mean the same to all: no NaN, no order of text, no cut values.
_ORDERED = frozenset({"byte", "short", "integer", "long", "date", "timestamp", "timestamp_ntz"})
_READ_ALIKE = _ORDERED | {"boolean", "float", "double", "string", "binary"}
_TEXTS = (pa.string(), pa.large_string(), pa.string_view())
_BYTES = (pa.binary(), pa.large_binary(), pa.binary_view())


@dataclass(frozen=True)
class _Found:
    """Where the columns of a plan are, of a file that polars can read."""

    names: Mapping[str, str]  # By the table's names, the file's.
    absent: tuple[StructField, ...]  # Null in all rows.


def read_frame(
    store: Store, plan: ReadPlan, fragments: tuple[Fragment, ...], engine: Engine
) -> pl.DataFrame:
    """Return the rows of some fragments, in their order; errors as in `read_fragment`."""
    none = as_frame(plan.schema.empty_table())
    frames = engine.map(partial(_fragment_frame, store, plan, none.schema), fragments)
    return pl.concat([none, *(frame for frame in frames if frame.height)], rechunk=False)


def _fragment_frame(
    store: Store, plan: ReadPlan, schema: pl.Schema, fragment: Fragment
) -> pl.DataFrame:
    frame = _by_polars(store, plan, fragment)
    if frame is not None and frame.schema == schema:
        return frame
    batches = read_fragment(store, plan, fragment)
    return as_frame(pa.Table.from_batches(batches, schema=plan.schema))


def as_frame(table: pa.Table) -> pl.DataFrame:
    """Return a table as a polars frame."""
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _by_polars(store: Store, plan: ReadPlan, fragment: Fragment) -> pl.DataFrame | None:
    """Return a fragment's rows, or None if polars cannot read them, or might read others."""
    if not _may_read(plan, fragment):
        return None
    path = fragment.files[0].path
    home, name = locate(store, decode_path(path))
    if not isinstance(home, LocalStore):
        return None
    with ExitStack() as stack:
        parquet = open_parquet(stack, store, fragment.files[0], plan.version)
        found = find_in(parquet.schema_arrow, parquet.metadata, plan, fragment)
    if found is None:
        return None
    reader = FragmentReader(store, plan, fragment)
    constants = _constants(reader, plan, found)
    where = None if plan.where is None else _predicate(plan.where, found, constants)
    if plan.where is not None and where is None:
        return None
    alive = alive_mask(reader.deletions(), 0, parquet.metadata.num_rows)
    try:
        rows = _rows(home.resolve(name), plan, found, where, alive)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
        return None  # Read the other way, it says what is wrong, or is not.
    if not constants:
        return rows
    return rows.with_columns(
        constants[column.name].new_from_index(0, rows.height)
        for column in plan.columns
        if column.name in constants
    ).select(column.name for column in plan.columns)


def _may_read(plan: ReadPlan, fragment: Fragment) -> bool:
    """Whether polars can read a fragment, as far as the log tells. Pure."""
    return (
        len(fragment.files) == 1
        and not plan.metadata_columns
        and any(column.name not in plan.partition_columns for column in plan.columns)
        and all(
            isinstance(column.type, DecimalType)
            or (isinstance(column.type, PrimitiveType) and column.type.name in _READ_ALIKE)
            for column in plan.needed
        )
    )


def find_in(
    schema: pa.Schema, footer: pq.FileMetaData, plan: ReadPlan, fragment: Fragment
) -> _Found | None:
    """Return where a file has a plan's columns, or None if polars might read others. Pure.

    It reads the types of the table itself, but casts none to them; it does not know the old
    calendar, nor timestamps that are longer than the table's.
    """
    rows = fragment.physical_rows
    if is_legacy(footer.metadata) or (rows is not None and rows != footer.num_rows):
        return None
    leaves = footer.schema
    if any(leaves.column(at).physical_type == "INT96" for at in range(len(leaves))):
        return None
    names, absent = {}, []
    for column in plan.needed:
        if column.name in plan.partition_columns:
            continue
        place = find_column(schema, column, plan.mapping_mode)
        if place is None:
            absent.append(column)
            continue
        field = schema.field(place)
        if schema.names.count(field.name) > 1 or not _alike(field.type, arrow_type(column.type)):
            return None
        names[column.name] = field.name
    wanted = {column.name for column in plan.columns}
    return _Found(names, tuple(absent)) if wanted & set(names) else None


def _alike(have: pa.DataType, want: pa.DataType) -> bool:
    return have == want or any(have in kinds and want in kinds for kinds in (_TEXTS, _BYTES))


def _constants(reader: FragmentReader, plan: ReadPlan, found: _Found) -> dict[str, pl.Series]:
    """Return the columns that have one value in all rows, by one row of each."""
    values = {
        column.name: pa.repeat(reader.partition_value(column), 1)
        for column in plan.needed
        if column.name in plan.partition_columns
    } | {column.name: pa.nulls(1, arrow_type(column.type)) for column in found.absent}
    return {} if not values else as_frame(pa.table(values)).to_dict()


def _predicate(
    where: Expression, found: _Found, constants: Mapping[str, pl.Series]
) -> pl.Expr | None:
    """Return a predicate over the columns of a file, or None if polars cannot say the same."""
    held = {name: _literal(series) for name, series in constants.items()}
    return as_polars(where, held | {name: pl.col(own) for name, own in found.names.items()})


def _literal(one: pl.Series) -> pl.Expr:
    if one.dtype.is_temporal():  # Python knows no years after 9999.
        return pl.lit(one.to_physical().item()).cast(one.dtype)
    return pl.lit(one.item(), dtype=one.dtype)


def _rows(
    path: str, plan: ReadPlan, found: _Found, where: pl.Expr | None, alive: pa.Array | None
) -> pl.DataFrame:
    """Return the wanted rows of a file, with those of the wanted columns that it has."""
    position = max(found.names.values(), key=len) + "_"  # A name that no column has.
    filtered = where is not None
    rows = pl.scan_parquet(
        path,
        glob=False,
        hive_partitioning=False,
        use_statistics=filtered and _statistics_agree(plan),
        row_index_name=position if filtered and alive is not None else None,
    )
    if where is not None:
        rows = rows.filter(where)
    chosen = [
        pl.col(found.names[column.name]).alias(column.name)
        for column in plan.columns
        if column.name in found.names
    ]
    if alive is None:
        return rows.select(chosen).collect()
    mask = pl.Series(values=alive)
    if not filtered:
        return rows.select(chosen).collect().filter(mask)
    held = rows.select(*chosen, pl.col(position)).collect()
    return held.filter(mask.gather(held[position])).drop(position)


def _statistics_agree(plan: ReadPlan) -> bool:
    """Whether what polars makes of row groups' statistics is sure to leave out no wanted row."""
    asked = set() if plan.where is None else {path[0] for path in columns_of(plan.where)}
    return all(
        isinstance(column.type, PrimitiveType) and column.type.name in _ORDERED
        for column in plan.needed
        if column.name in asked and column.name not in plan.partition_columns
    )
