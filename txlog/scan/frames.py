"""Read fragments with polars if the result is the same as that of `read_fragment`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain

import polars as pl
import pyarrow as pa

from txlog.base.arrow import arrow_scalar, empty_table
from txlog.base.errors import TxlogError
from txlog.base.threads import Engine, is_in_process
from txlog.base.thresholds import Threshold
from txlog.expressions.bind import columns_of
from txlog.expressions.tree import Expression
from txlog.fragments.deletion_vector import alive_mask
from txlog.fragments.fragment import Fragment
from txlog.log.paths import decode_path
from txlog.parquet.file_footer import FileFooter
from txlog.scan.data_file import open_parquet
from txlog.scan.deletions import load_deletions
from txlog.scan.polars_rules import (
    ORDERED,
    Layout,
    Run,
    Source,
    as_polars,
    find_sources,
    may_read,
    runs_of,
)
from txlog.scan.read import read_fragment, require_in_place
from txlog.scan.read_plan import ReadPlan
from txlog.scan.resolve import constants
from txlog.schema.arrow import arrow_type, has_halves
from txlog.schema.types import PrimitiveType
from txlog.store.base import Store, map_many
from txlog.store.open import locate

# The files of one call: polars distributes them over threads, and a call costs.
_RUN_FILES: Threshold = 128


def read_frame(
    store: Store, plan: ReadPlan, fragments: Sequence[Fragment], engine: Engine
) -> pl.DataFrame:
    """Return the rows of some fragments, in their order; errors as in `read_fragment`."""
    none = as_frame(empty_table(plan.schema))
    runs = runs_of(
        plan,
        fragments,
        _sources(store, plan, fragments, engine),
        files=_RUN_FILES if is_in_process(engine) else 1,
    )
    frames = engine.map(partial(_run_frames, store, plan, none.schema), runs)
    rows = [frame for frame in chain.from_iterable(frames) if frame.height]
    require_in_place(store, plan, fragments)
    return pl.concat([none, *rows], rechunk=False)


def as_frame(table: pa.Table) -> pl.DataFrame:
    """Return a table as a polars frame."""
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _sources(
    store: Store, plan: ReadPlan, fragments: Sequence[Fragment], engine: Engine
) -> list[Source | None]:
    """Return the file of each fragment, or None if polars might read other rows."""
    chosen = [
        may_read(plan, fragment) and _local_path(store, fragment) is not None
        for fragment in fragments
    ]
    asked = [fragment for fragment, may in zip(fragments, chosen, strict=True) if may]
    footer = partial(_footer, store, plan.version)
    # A footer on a local disk is read so quickly that threads would cost more than they save.
    near = is_in_process(engine)
    found = map_many(store, footer, asked) if near else engine.map(footer, asked)
    return find_sources(plan, fragments, [next(found) if may else None for may in chosen])


def _footer(store: Store, version: int, fragment: Fragment) -> FileFooter | None:
    try:
        with ExitStack() as stack:
            return FileFooter.of(open_parquet(stack, store, fragment.files[0], version))
    except TxlogError:
        return None  # Reading the file without polars raises the right error.


def _local_path(store: Store, fragment: Fragment) -> str | None:
    try:
        home, name = locate(store, decode_path(fragment.files[0].path))
    except TxlogError:
        return None
    return home.local_path(name)


def _run_frames(store: Store, plan: ReadPlan, schema: pl.Schema, run: Run) -> list[pl.DataFrame]:
    """Return the rows of a run in order, from one read of all fragments or one read of each."""
    # Of a float that is no half float, polars would take the nearest one.
    frame = None if plan.fixes and has_halves(plan.schema) else _by_polars(store, plan, run)
    if frame is not None and plan.fixes:
        frame = _with_arrays(frame, schema)
    if frame is not None and frame.schema == schema:
        return [frame]
    if len(run.fragments) > 1:
        return [frame for one in run.singles() for frame in _run_frames(store, plan, schema, one)]
    batches = read_fragment(store, plan, run.fragments[0])
    return [as_frame(pa.Table.from_batches(batches, schema=plan.schema))]


def _with_arrays(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame | None:
    """Return a frame with its fixed-size lists; None if a list has another length."""
    try:
        return frame.cast(dict(schema))  # type: ignore[arg-type]  # All other types are equal.
    except pl.exceptions.PolarsError:
        return None


def _by_polars(store: Store, plan: ReadPlan, run: Run) -> pl.DataFrame | None:
    """Return the rows of a run, or None if polars cannot read them or might read other rows."""
    if not run.sources:
        return None
    found = run.sources[0].layout
    paths = [_local_path(store, fragment) for fragment in run.fragments]
    try:
        values = _constants(plan, run.fragments[0], found)
        where = None if plan.where is None else _predicate(plan.where, found, values)
        if plan.where is not None and where is None:
            return None
        alive = _alive(store, run)
        rows = _rows([path for path in paths if path], plan, found, where, alive)
    except (TxlogError, pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
        return None  # `read_fragment` then raises the right error, or succeeds.
    left = sum(source.rows for source in run.sources) if alive is None else alive.sum()
    if where is None and rows.height != left:
        return None
    if not values:
        return rows
    return rows.with_columns(
        values[column.name].new_from_index(0, rows.height)
        for column in plan.columns
        if column.name in values
    ).select(column.name for column in plan.columns)


def _alive(store: Store, run: Run) -> pl.Series | None:
    """Return which rows of a run's files are not deleted, or None if no row is deleted."""
    masks = []
    for fragment, source in zip(run.fragments, run.sources, strict=True):
        deleted = load_deletions(store, replace(fragment, physical_rows=source.rows))
        masks.append(alive_mask(deleted, 0, source.rows))
    if all(mask is None for mask in masks):
        return None
    everything = arrow_scalar(True)
    return pl.Series(
        values=pa.concat_arrays(
            [
                pa.repeat(everything, source.rows) if mask is None else mask
                for mask, source in zip(masks, run.sources, strict=True)
            ]
        )
    )


def _constants(plan: ReadPlan, fragment: Fragment, found: Layout) -> dict[str, pl.Series]:
    """Return the columns that have the same value in all rows, each as a series of one row."""
    known = constants(plan.form, fragment, plan.needed, plan.memo.partition_values)
    values = {name: pa.repeat(value, 1) for name, value in known.items()}
    values |= {column.name: pa.nulls(1, arrow_type(column.type)) for column in found.absent}
    return {} if not values else as_frame(pa.table(values)).to_dict()


def _predicate(
    where: Expression, found: Layout, constants: Mapping[str, pl.Series]
) -> pl.Expr | None:
    """Return a predicate over a file's columns, or None if polars has no equal predicate."""
    literals = {name: _literal(series) for name, series in constants.items()}
    return as_polars(where, literals | {name: pl.col(own) for name, own in found.names.items()})


def _literal(one: pl.Series) -> pl.Expr:
    if one.dtype.is_temporal():  # Python's types end with the year 9999.
        return pl.lit(one.to_physical().item()).cast(one.dtype)
    return pl.lit(one.item(), dtype=one.dtype)


def _rows(
    paths: list[str],
    plan: ReadPlan,
    found: Layout,
    where: pl.Expr | None,
    alive: pl.Series | None,
) -> pl.DataFrame:
    """Return the wanted rows of some files, with the wanted columns that the files have."""
    position = max(found.schema.names, key=len) + "_"  # No column has this name.
    filtered = where is not None
    rows = pl.scan_parquet(
        paths,
        glob=False,
        hive_partitioning=False,
        use_statistics=filtered and _statistics_agree(plan),
        row_index_name=position if filtered and alive is not None else None,
    )
    chosen = [
        pl.col(found.names[column.name]).alias(column.name)
        for column in plan.columns
        if column.name in found.names
    ]
    if where is None:
        return (rows if alive is None else rows.filter(pl.lit(alive))).select(chosen).collect()
    if alive is None:
        return rows.filter(where).select(chosen).collect()
    collected = rows.filter(where).select(*chosen, pl.col(position)).collect()
    return collected.filter(alive.gather(collected[position])).drop(position)


def _statistics_agree(plan: ReadPlan) -> bool:
    """Return whether polars certainly keeps all wanted rows if it uses row groups' statistics."""
    asked = set() if plan.where is None else {path[0] for path in columns_of(plan.where)}
    return all(
        isinstance(column.type, PrimitiveType) and column.type.name in ORDERED
        for column in plan.needed
        if column.name in asked and column.name not in plan.form.partition_columns
    )
