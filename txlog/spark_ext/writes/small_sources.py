"""Merges of few rows, which txlog executes without a Spark join.

A Spark join reads the keys of all files, but txlog excludes files by the keys of the source. So the
rows of a small source are collected, and sent to the executors with their work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from txlog.base.errors import InvalidInputError
from txlog.base.thresholds import Threshold
from txlog.data_files.constraints import is_generated
from txlog.data_files.options import WriteOptions
from txlog.expressions.bind import columns_of
from txlog.expressions.sql import parse_sql
from txlog.expressions.tree import Column, Expression
from txlog.schema.types import DecimalType, PrimitiveType, StructType
from txlog.spark_ext.engine import before_commit
from txlog.spark_ext.same_meaning import is_stored_alike
from txlog.spark_ext.spark_types import frame_schema
from txlog.spark_ext.writes.conditions import is_alike, is_plain_text
from txlog.verbs.merge.clauses import (
    SIDES_OF,
    Clause,
    MergeRequest,
    columns_of_same_name,
    own_path,
)
from txlog.verbs.merge.condition import Seen, Sides, merge_condition
from txlog.verbs.merge.merge import Merge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from txlog.data_files.sieve import Rejects

LOCAL_ROWS = "spark.txlog.merge.localRows"
DEFAULT_LOCAL_ROWS: Threshold = 10_000

_UNKNOWN = "_txlog_no_alias"


def small_merge(
    source: DataFrame,
    predicate: Any,
    clauses: Sequence[Clause],
    *,
    alias: str | None,
    schema: StructType,
    options: WriteOptions | None = None,
    quarantine: Rejects | None = None,
) -> Merge | None:
    """Return the merge if txlog can execute it, or None if Spark must do so.

    txlog can execute it if the source has at most `spark.txlog.merge.localRows` rows, none of its
    columns is nested, binary, a variant or void, the condition has an equality of keys, and every
    expression is text with the same meaning in txlog and Spark: columns, constants of their types,
    and comparisons, without functions.

    Parameters
    ----------
    schema
        The schema of the table.
    quarantine
        Takes the rows of the source that make rows which do not fit.

    Raises
    ------
    InvalidInputError
        The setting `spark.txlog.merge.localRows` is not a whole number.
    """
    max_rows = _max_rows(source)
    if max_rows <= 0 or not clauses:
        return None
    columns = frame_schema(source.schema)
    if not all(_is_flat(field.type) for field in columns.fields):  # Other values have any size.
        return None
    sides = sides_of(source, columns, alias, schema, [predicate, *_texts(clauses)])
    if sides is None or not _is_plain_condition(predicate, sides):
        return None
    if not all(_is_plain_clause(clause, sides) for clause in clauses):
        return None
    with before_commit():
        rows = source.limit(max_rows + 1).toArrow()
    if rows.num_rows > max_rows:
        return None
    request = MergeRequest(
        rows,
        predicate,
        sides.source_alias,
        sides.target_alias,
        options=options,
        quarantine=quarantine,
    )
    return Merge(request, clauses)


def _max_rows(source: DataFrame) -> int:
    text = source.sparkSession.conf.get(LOCAL_ROWS, str(DEFAULT_LOCAL_ROWS)) or "0"
    try:
        return int(text)
    except ValueError as error:
        raise InvalidInputError(
            argument=LOCAL_ROWS,
            reason=f"{text!r} is not a whole number",
            remedy="Set it to the greatest number of rows that this process may collect, or to 0",
        ) from error


def _is_flat(kind: Any) -> bool:
    return isinstance(kind, DecimalType) or (
        isinstance(kind, PrimitiveType) and kind.name not in ("binary", "variant", "void")
    )


def _texts(clauses: Sequence[Clause]) -> list[Any]:
    found: list[Any] = []
    for clause in clauses:
        found += [] if clause.predicate is None else [clause.predicate]
        found += [] if clause.updates is None else list(clause.updates.values())
    return found


def sides_of(
    source: DataFrame,
    columns: StructType,
    alias: str | None,
    schema: StructType,
    texts: Sequence[Any],
) -> Sides | None:
    """Return both sides with the aliases that expressions use; None if these are not plain text.

    The alias of a frame cannot be read, but Spark can check whether a name is an alias.
    """
    from pyspark.errors import AnalysisException

    own = alias or f"{_UNKNOWN}_target"
    qualified: set[tuple[str, str]] = set()
    for text in texts:
        if not isinstance(text, str) or not is_plain_text(text):
            return None
        try:
            paths = columns_of(parse_sql(text))
        except InvalidInputError:
            return None
        if any(len(path) > 2 for path in paths):
            return None
        qualified |= {(path[0].lower(), path[1]) for path in paths if len(path) == 2}
    others = {first for first, _ in qualified if first != own.lower()}
    if len(others) > 1:
        return None
    named = next(iter(others), _UNKNOWN)
    try:
        names = [f"{first}.`{name}`" for first, name in qualified if first == named]
        if names:
            _ = source.select(*names).schema  # Raises if a name is not an alias.
        return Sides(schema, columns, own, named)
    except (AnalysisException, InvalidInputError):
        return None


def _parsed(text: str, sides: Sides, seen: Seen = "both") -> Expression | None:
    """Return an expression over the flat schema of both sides, or None if it does not fit."""
    try:
        return sides.resolved(parse_sql(text), seen)
    except InvalidInputError:
        return None


def _is_plain_condition(text: str, sides: Sides) -> bool:
    resolved = _parsed(text, sides)
    if resolved is None or not is_alike(resolved, sides.schema):
        return False
    return bool(merge_condition(text, sides).keys)  # Without keys, all pairs are compared.


def _is_plain_clause(clause: Clause, sides: Sides) -> bool:
    seen = SIDES_OF[clause.kind]
    if clause.predicate is not None:
        resolved = _parsed(clause.predicate, sides, seen)
        if resolved is None or not is_alike(resolved, sides.schema):
            return False
    if clause.action in ("delete", "fail"):
        return True
    schema, source = sides.target, sides.source
    if clause.updates is None:
        try:
            names = columns_of_same_name(clause, schema, source, merges_schema=False)
        except InvalidInputError:
            return False
        return all(_same(schema, name, source, theirs) for name, theirs in names.items())
    return all(_is_plain_value(name, text, sides, seen) for name, text in clause.updates.items())


def _is_plain_value(name: str, text: str, sides: Sides, seen: Seen) -> bool:
    path = own_path(name, sides.target_alias, sides.target)
    field = sides.target.get(path[0])
    value = _parsed(text, sides, seen)
    if field is None or len(path) > 1 or is_generated(field):
        return False
    if isinstance(value, Column):
        given = sides.schema.get(value.path[0])
        if given is None or len(value.path) > 1:
            return False
        value = Column(value.path, given.type)
    return value is not None and _is_flat(field.type) and is_stored_alike(value, field.type)


def _same(schema: StructType, name: str, source: StructType, theirs: str) -> bool:
    ours, others = schema.get(name), source.get(theirs)
    if ours is None or others is None:
        return False
    given = Column((theirs,), others.type)
    return is_stored_alike(given, ours.type) and _is_flat(ours.type) and not is_generated(ours)
