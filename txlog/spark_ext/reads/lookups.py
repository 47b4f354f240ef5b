"""Look-ups by key on Spark's executors: each task looks up the keys of its rows.

A worker caches the opened tables with their indexes, for the next batch and the next task.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyspark.sql.types import StructType as SparkStruct

from txlog.base.arrow import arrow_array
from txlog.base.errors import (
    CommitConflictError,
    InvalidInputError,
    in_callers_words,
)
from txlog.base.thresholds import Threshold
from txlog.commit.context import require_shared
from txlog.expressions.tree import quote_name
from txlog.lookup.keys import require_key_columns
from txlog.lookup.lookup import KEY, as_keys
from txlog.scan.read_plan import choose_columns
from txlog.schema.arrow import arrow_type
from txlog.schema.types import StructType
from txlog.spark_ext.engine import map_in_arrow
from txlog.spark_ext.names import placed
from txlog.spark_ext.spark_types import frame_schema, neutral, read_schema
from txlog.table.seam import context_of
from txlog.table.table import Table, lookup_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txlog.lookup.lookup import Missing

_KEPT_TABLES: Threshold = 8  # The maximum number of open tables of a worker.
_KEYS_A_TASK: Threshold = 1_000  # Keys of a list for one task. Starting a task costs many look-ups.
_ROWS_AT_ONCE: Threshold = 65_536  # Rows of one batch of the result.


@dataclass(frozen=True)
class _Asked:
    """The arguments of each task. It pickles.

    Parameters
    ----------
    given, on
        The columns of the frame that contain the keys, and the key columns of the table.
    columns
        The columns of the table to return.
    """

    uri: str
    table_id: str  # Another table may be at the same URI later, with the same versions.
    version: int
    storage_options: Mapping[str, Any] | None
    index_cache: str | None
    given: tuple[str, ...]
    on: tuple[str, ...]
    columns: tuple[str, ...]
    missing: Missing


_tables: OrderedDict[object, Table] = OrderedDict()


def _table(asked: _Asked) -> Table:
    """Return the table; this process opens it only once.

    Raises
    ------
    CommitConflictError
        Another table took its place after the join was made.
    """
    options = tuple(sorted((asked.storage_options or {}).items(), key=lambda item: item[0]))
    key = asked.uri, asked.table_id, asked.version, repr(options), asked.index_cache
    table = _tables.pop(key, None)
    if table is None:
        table = Table(
            asked.uri, asked.version, storage_options=asked.storage_options,
            index_cache=asked.index_cache,
        )  # fmt: skip
        if table.metadata.id != asked.table_id:
            raise CommitConflictError(
                version=asked.version,
                rule="CON-2",
                path=table.uri,
                reason="another table replaced this one after the look-up was made",
                remedy="Make the look-up again",
            )
    _tables[key] = table
    while len(_tables) > _KEPT_TABLES:
        _tables.popitem(last=False)
    return table


def _joined(asked: _Asked, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a frame with the table's columns; runs on an executor."""
    for batch in batches:
        if not batch.num_rows:
            continue
        keys = pa.table([batch.column(name) for name in asked.given], names=list(asked.on))
        table = _table(asked)
        # `lookup` would fail if the table has a column `_key`.
        found, numbers = lookup_of(table, asked.on).numbered(keys, asked.columns, asked.missing)
        for start in range(0, found.num_rows, _ROWS_AT_ONCE):
            part = found.slice(start, _ROWS_AT_ONCE).combine_chunks()
            rows = batch.take(arrow_array(numbers[start : start + _ROWS_AT_ONCE]))
            arrays = [*rows.columns, *(part.column(n).combine_chunks() for n in asked.columns)]
            yield pa.RecordBatch.from_arrays(arrays, names=[*rows.schema.names, *asked.columns])


@in_callers_words
def lookup_join(
    df: DataFrame,
    uri: str | os.PathLike[str],
    *,
    on: str | Sequence[str] | Mapping[str, str],
    columns: Sequence[str] | None = None,
    how: Literal["inner", "left"] = "inner",
    version: int | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    branch: str | None = None,
    index_cache: str | None = None,
) -> DataFrame:
    """Join a frame with a table by look-ups on Spark's executors, without a shuffle or scan.

    Each task looks up the keys of its rows, and reads only the pages with matching rows. It is
    faster than Spark's join if the frame has few rows compared with the table, and the table has an
    index over the key columns (`Table.indexes.create`): without one, each worker reads the key
    columns of the whole table once.

    Parameters
    ----------
    df
        A frame of a classic session, or of Spark Connect.
    on
        The key column, or several, with the same name on both sides; or a mapping of the frame's
        columns to those of the table: `{"target": "id"}`. A null matches no row.
    columns
        The columns of the table to add. Default: all except key columns with the same name in the
        frame.
    how
        `left` keeps rows without a match, with nulls in the columns of the table.
    version
        The version of the table, or a pin. Default: the latest at the time of the call; later
        commits are not shown.
    storage_options
        The options of the table's store, for this process and the executors.
    branch
        The name of an open branch to read, as for `Table`.
    index_cache
        A folder on each executor to cache segments of indexes of a remote store, as for `Table`.

    Returns
    -------
    DataFrame
        The frame's columns, then the table's.

    Raises
    ------
    InvalidInputError
        A column is unknown or cannot be a key, keys have another type than the column, or both
        sides have a column with the same name.

    Examples
    --------
    >>> lookup_join(commits, "tables/authors", on={"author": "id"})  # doctest: +SKIP
    """
    if how not in ("inner", "left"):
        raise InvalidInputError(argument="how", reason=f"{how!r} is not one of inner, left")
    pairs = dict(on) if isinstance(on, Mapping) else {name: name for name in _names(on)}
    place, options = placed(df.sparkSession, uri, storage_options, branch)
    table = Table(place, version, storage_options=options)
    if columns is None:
        same = {name for given, name in pairs.items() if given == name}
        columns = [name for name in table.snapshot.schema.names() if name not in same]
    asked = _asked(table, pairs, columns, "null" if how == "left" else "skip", index_cache)
    frame = frame_schema(df.schema)
    _require_keys(table, frame, pairs)
    clash = [name for name in asked.columns if frame.get(name) is not None]
    if clash:
        raise InvalidInputError(
            argument="columns",
            field=clash[0],
            reason=f"both the frame and the table have a column {clash[0]}",
            remedy="Rename the column of the frame, or choose other columns of the table",
        )
    return _mapped(df, table, asked)


@in_callers_words
def lookup(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    keys: Any,
    *,
    on: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    missing: Missing = "skip",
    version: int | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    branch: str | None = None,
    index_cache: str | None = None,
) -> DataFrame:
    """Return the rows of a table that have given keys, read by Spark's executors.

    Parameters
    ----------
    keys
        As for `Table.lookup`: a list or an Arrow array, a table or tuples for several columns. For
        the keys of a frame, see `lookup_join`.
    on
        The key column, or several. Default: the columns of the table's only index.
    columns
        Columns of the table, and `_key`: the position of the row's key in `keys`, for example to
        sort the rows. Default: the columns of the table.
    missing
        For a key without a row: `skip` it, or `null` for a row of nulls with the key.
    version, storage_options, branch, index_cache
        As for `lookup_join`.

    Raises
    ------
    InvalidInputError
        As for `Table.lookup`; or `missing` is `error`, which tasks cannot decide alone.
    """
    if missing not in ("skip", "null"):
        raise InvalidInputError(
            argument="missing",
            reason=f"{missing!r} is not one of skip, null: tasks do not see each other's rows",
            remedy="Use Table.lookup",
        )
    place, options = placed(spark, uri, storage_options, branch)
    table = Table(place, version, storage_options=options)
    names = _names(on) if on is not None else _indexed(table)
    key_columns = choose_columns(table.snapshot.schema, names)
    require_key_columns(key_columns)
    arrays = as_keys(key_columns, keys)
    wanted = list(table.snapshot.schema.names() if columns is None else columns)
    wanted = [_spelled(table, name) for name in wanted]
    if KEY in wanted and table.snapshot.schema.get(KEY) is not None:
        raise InvalidInputError(
            argument="columns",
            field=KEY,
            reason=f"the table has a column {KEY}, which is also the name for positions of keys",
            remedy="Name other columns, or use Table.lookup",
        )
    found = [name for name in wanted if name != KEY]
    given = {f"_txlog_key_{place}": name for place, name in enumerate(names)}
    asked = _asked(table, given, found, missing, index_cache)
    places = pa.array(range(len(arrays[0])), pa.int64())
    frame = spark.createDataFrame(pa.table([places, *arrays], names=[KEY, *given]))
    frame = frame.coalesce(1 + len(places) // _KEYS_A_TASK)
    return _mapped(frame, table, asked).select(*map(quote_name, wanted))


def _spelled(table: Table, name: str) -> str:
    """Return a column's name as the table spells it; names of other columns are unchanged."""
    field = table.snapshot.schema.get(name) if isinstance(name, str) else None
    return name if field is None else field.name


def _names(on: str | Sequence[str]) -> list[str]:
    return [on] if isinstance(on, str) else list(on)


def _indexed(table: Table) -> list[str]:
    from txlog.verbs.indexes import indexed_columns

    return list(indexed_columns(table.snapshot))


def _asked(
    table: Table,
    pairs: Mapping[str, str],
    columns: Sequence[str],
    missing: Missing,
    index_cache: str | None,
) -> _Asked:
    store = context_of(table).store
    require_shared(
        store, argument="uri", remedy="Put the table in a store that all workers can access"
    )
    schema = table.snapshot.schema
    chosen, on = choose_columns(schema, columns), choose_columns(schema, list(pairs.values()))
    return _Asked(
        store.root, table.metadata.id, table.version, store.options, index_cache, tuple(pairs),
        tuple(one.name for one in on), tuple(one.name for one in chosen), missing,
    )  # fmt: skip


def _require_keys(table: Table, frame: StructType, pairs: Mapping[str, str]) -> None:
    """Raise unless the keys of the frame have the types of the table's columns."""
    key_columns = choose_columns(table.snapshot.schema, list(pairs.values()))
    require_key_columns(key_columns)
    given = [frame.get(name) for name in pairs]
    for name, column in zip(pairs, given, strict=True):
        if column is None:
            raise InvalidInputError(
                argument="on", field=name, reason=f"the frame has no column {name}"
            )
    empty = [pa.nulls(0, arrow_type(column.type)) for column in given if column is not None]
    as_keys(key_columns, pa.table(empty, names=[column.name for column in key_columns]))


def _mapped(df: DataFrame, table: Table, asked: _Asked) -> DataFrame:
    """Return a frame whose tasks look up keys."""
    schema, names = table.snapshot.schema, df.columns
    fields = tuple(field for name in asked.columns if (field := schema.get(name)) is not None)
    more = read_schema(StructType(tuple(replace(field, nullable=True) for field in fields)))
    result = SparkStruct([*df.schema.fields, *more.fields])

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _joined(asked, (batch.rename_columns(names) for batch in batches))

    return map_in_arrow(neutral(df), run, result)
