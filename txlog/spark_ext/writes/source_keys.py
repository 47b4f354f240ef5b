"""The keys of a merge's source: they exclude files of the table before Spark's join reads them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users name it

from txlog.base.arrow import numpy_array, pc
from txlog.base.columns import flat
from txlog.base.errors import InvalidInputError
from txlog.base.thresholds import Threshold
from txlog.expressions.bind import bind
from txlog.expressions.sql import parse_sql
from txlog.expressions.tree import And, Column, Expression, quote_name
from txlog.lookup.keys import within, within_spans
from txlog.scan.plan import PlannedFiles
from txlog.schema.types import WHOLE_NUMBERS, DecimalType, PrimitiveType, StructType
from txlog.snapshot.snapshot import Snapshot
from txlog.spark_ext.engine import before_commit
from txlog.spark_ext.reads.predicates import as_spark
from txlog.spark_ext.writes.conditions import is_alike, is_plain_text
from txlog.spark_ext.writes.own_reads import is_repeatable
from txlog.spark_ext.writes.small_sources import sides_of
from txlog.stats.files import fragment_bounds
from txlog.stats.skip import ColumnBounds
from txlog.verbs.merge.condition import Key, Sides, by_own_names, conjuncts, merge_condition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SPANS: Threshold = 1_024  # Into so many parts the range of the keys is divided.
_TEXTS: Threshold = 1_024  # So many distinct texts come to the driver; of more, only the ends.


@dataclass(frozen=True)
class KeySpans:
    """The values of a key that a source has.

    Parameters
    ----------
    count
        The number of rows with a value.
    firsts, lasts, counts
        For whole numbers and dates: the ends of spans that have all values, ascending, and the
        number of rows in each span.
    """

    count: int
    firsts: pa.Array | None = None
    lasts: pa.Array | None = None
    counts: pa.Array | None = None


def about_matches(live: pa.Array, bounds: ColumnBounds, spans: KeySpans) -> float:
    """Return about how many rows of some files have a key of a source. Pure.

    Whole numbers and dates are taken to be spread evenly between the bounds of a file, and between
    the ends of a span. Of other values it counts only files in which all rows have the same one.

    Parameters
    ----------
    live
        The number of rows of each file, all of which may have a key of the source.
    bounds
        Of the column in each file, of the type of the spans.
    """
    is_known = pc.and_(bounds.low.is_valid(), bounds.high.is_valid())
    rows = _numbers(live.filter(is_known))
    low, high = bounds.low.filter(is_known), bounds.high.filter(is_known)
    if not spans.count:
        return 0.0
    if spans.firsts is None or spans.lasts is None or spans.counts is None:
        same = numpy_array(pc.equal(low, high))
        return float(rows[same].sum())
    least, greatest = _numbers(low), _numbers(high)
    # The number of keys up to some value: it rises from the beginning of a span to its end.
    at = np.stack([_numbers(spans.firsts) - 1, _numbers(spans.lasts)], axis=1).ravel()
    below = np.concatenate([[0.0], np.cumsum(_numbers(spans.counts))])
    keys = np.interp([least - 1, greatest], at, np.stack([below[:-1], below[1:]], axis=1).ravel())
    matched = (keys[1] - keys[0]) * rows / np.maximum(greatest - least + 1, 1)
    return float(np.clip(matched, 0, rows).sum())


def _numbers(values: pa.Array) -> NDArray[np.float64]:
    """Return numbers as doubles. A date becomes the number of days since 1970."""
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    numbers: NDArray[np.float64] = numpy_array(values).astype(np.float64)
    return numbers


class SourceKeys:
    """The keys by which a merge's condition compares columns of the table with a frame."""

    def __init__(self, source: DataFrame, sides: Sides, keys: tuple[Key, ...]) -> None:
        self._source = source
        self._sides = sides
        self._keys = keys
        # Of each key: the column of the table, and what the source has; known by `where`.
        self._found: list[tuple[Column, KeySpans]] = []

    @classmethod
    def of(
        cls,
        predicate: str | None,
        source: DataFrame,
        *,
        alias: str | None,
        target: StructType,
        columns: StructType,
    ) -> SourceKeys | None:
        """Return the keys of a condition, or None if it has none that txlog compares as Spark does.

        The rows of a source that depends on chance or on the order of its rows may differ each time
        they are computed, so such a source has no keys, either.
        """
        if predicate is None or not is_plain_text(predicate):
            return None
        try:
            parts = conjuncts(parse_sql(predicate))
        except InvalidInputError:
            return None
        sides = sides_of(source, columns, alias, target, [predicate])
        if sides is None:
            return None
        keys = tuple(key for part in parts for key in _keys(part, sides))
        return cls(source, sides, keys) if keys and _is_repeatable(source) else None

    def where(self) -> Expression | None:
        """Return a predicate that is true of all rows of the table that can match; None: any row.

        Spark computes the keys of all rows of the source. At most a few thousand values come to
        this process.

        Raises
        ------
        EngineError, InvalidInputError
            Spark cannot compute the source.
        """
        self._found = []
        with before_commit():
            found = [part for key in self._keys for part in self._of_key(key)]
        if not found:
            return None
        return found[0] if len(found) == 1 else And(tuple(found))

    def _of_key(self, key: Key) -> Iterator[Expression]:
        target = by_own_names(key.target, self._sides)
        name = self._sides.name(_column(key.source).path[0])
        rows = self._source.select(self._source[quote_name(name)].alias("key"))
        kind = _column(key.source).type
        divides = isinstance(kind, PrimitiveType) and kind.name in (*WHOLE_NUMBERS, "date")
        spans, part = _spans(target, rows) if divides else _values(target, rows)
        self._found.append((_column(target), spans))
        # Spark's reader evaluates it, too. It would not read a predicate that it understands
        # otherwise.
        if part is not None and as_spark(bind(part, self._sides.target)) is not None:
            yield part

    def about_rows(self, base: Snapshot, files: PlannedFiles) -> int | None:
        """Return about how many rows of some files have all keys; None before `where`.

        An estimate from the statistics: see `about_matches`. It is the number of keys of the
        source or more.
        """
        live = pc.fill_null(files.live_rows, 0)
        about = []
        for column, spans in self._found:
            bounds = fragment_bounds(
                files.rows,
                base.schema,
                base.partition_columns,
                column,
                mapping_mode=base.mapping_mode,
            ).columns
            known = bounds.get(column.path)
            matches = 0.0 if known is None else about_matches(live, known, spans)
            about.append(max(spans.count, int(matches)))
        return min(about, default=None)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep the rows of the source within the context, so that Spark computes them once."""
        level = self._source.storageLevel
        if level.useMemory or level.useDisk:  # The caller keeps them.
            yield
            return
        self._source.persist()
        try:
            yield
        finally:
            self._source.unpersist()


def _keys(part: Expression, sides: Sides) -> Iterator[Key]:
    """Yield the key of a part of a condition, if it compares two columns as Spark does."""
    try:
        alike = is_alike(sides.resolved(part), sides.schema)
        found = merge_condition(part, sides).keys
    except InvalidInputError:
        return
    for key in found:
        columns = [one for one in (key.target, key.source) if isinstance(one, Column)]
        if len(columns) != 2 or any(len(one.path) > 1 for one in columns) or key.nulls_match:
            continue
        # Texts of these types may mean another value, but columns of one type need no cast.
        kind = columns[0].type
        is_exact = isinstance(kind, DecimalType) or kind in _TIMESTAMPS
        if alike or (is_exact and kind == columns[1].type):
            yield key


_TIMESTAMPS = (PrimitiveType("timestamp"), PrimitiveType("timestamp_ntz"))


def _column(value: Expression) -> Column:
    assert isinstance(value, Column)
    return value


def _is_repeatable(source: DataFrame) -> bool:
    """Return whether the rows of a frame are the same each time, as far as Spark can tell.

    Spark Connect does not tell; there the rows that are kept must do.
    """
    return not hasattr(source, "_jdf") or is_repeatable(source)


def _spans(target: Expression, rows: DataFrame) -> tuple[KeySpans, Expression | None]:
    """Return spans of whole numbers or dates, in which the source has keys, and a predicate."""
    number = F.col("key").cast("double") if _is_number(rows) else F.unix_date("key").cast("double")
    (low, high, count), *_ = rows.agg(F.min(number), F.max(number), F.count("key")).collect()
    if low is None:
        return KeySpans(0), None
    width = max((high - low) / _SPANS, 1.0)
    # The division only says which keys are taken together. The ends of a span are exact.
    place = F.floor((number - F.lit(low)) / F.lit(width))
    ends = [F.min("key").alias("first"), F.max("key").alias("last"), F.count("key").alias("count")]
    spans = (
        rows.where(F.col("key").isNotNull())
        .groupBy(place.alias("place"))
        .agg(*ends)
        .toArrow()
        .sort_by("first")
    )
    found = KeySpans(count, *(flat(spans[name]) for name in ("first", "last", "count")))
    return found, within_spans(target, flat(spans["first"]), flat(spans["last"]))


def _is_number(rows: DataFrame) -> bool:
    return rows.schema["key"].dataType.typeName() != "date"


def _values(target: Expression, rows: DataFrame) -> tuple[KeySpans, Expression | None]:
    """Return how many texts or other values the source has, and a predicate by them or by ends."""
    known = rows.where(F.col("key").isNotNull())
    about = F.approx_count_distinct("key")
    number = F.count("key")
    # Arrow has no text of other bytes.
    is_text = F.every(F.is_valid_utf8(F.col("key").cast("string")))
    ends = [F.min("key").alias("first"), F.max("key").alias("last")]
    of_all = known.agg(*ends, about.alias("about"), number.alias("count"), is_text.alias("is_text"))
    named = [F.when(F.col("is_text"), F.col(one)).alias(one) for one in ("first", "last")]
    found = of_all.select("about", "count", *named).toArrow()
    spans = KeySpans(found["count"][0].as_py())
    if not found["first"][0].is_valid:
        return spans, None
    if found["about"][0].as_py() <= _TEXTS:
        values = _plain(known.distinct().limit(2 * _TEXTS + 1).toArrow()["key"])
        if len(values) <= 2 * _TEXTS:  # The count is not exact.
            return spans, within(target, values.take(pc.sort_indices(values)))
    return spans, within_spans(target, _plain(found["first"]), _plain(found["last"]))


def _plain(values: pa.ChunkedArray) -> pa.Array:
    """Return values of Spark as the type that constants have: texts, or moments in UTC."""
    kind = values.type
    if pa.types.is_large_string(kind):
        return flat(values.cast(pa.string()))
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return flat(values.cast(pa.timestamp("us", "UTC")))
    return flat(values)
