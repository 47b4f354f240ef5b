"""Conditions of merges that are Columns, as SQL text that txlog reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from txlog.base.errors import InvalidInputError
from txlog.expressions.bind import columns_of
from txlog.expressions.sql import parse_sql
from txlog.spark_ext.plans import class_of, each, has_plan, key_of, output_of, plan_of, replaced
from txlog.spark_ext.spark_types import read_schema
from txlog.spark_ext.writes.conditions import is_plain_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from txlog.schema.types import StructType
    from txlog.spark_ext.writes.same_columns import GivenFrames

OF_TARGET, OF_SOURCE = "_txlog_of_target", "_txlog_of_source"
"""The aliases of both sides in the text."""

# Functions that may have the names of others.
_OF_USERS = frozenset({"HiveGenericUDF", "HiveSimpleUDF", "PythonUDF", "ScalaUDF"})
_WHOLE = ("byte", "short", "integer", "long")  # Each has all values of those before it.


def column_text(
    condition: Column, target: StructType, alias: str | None, source: DataFrame, frames: GivenFrames
) -> str | None:
    """Return the parts of a Column that txlog can parse, which a pair that matches fulfills.

    Spark resolves the Column over the source and an empty frame with the columns of the table, so
    each name in it is known to be a column of one side. None on Spark Connect, which has no plans
    in this process, and if Spark cannot resolve it.

    Parameters
    ----------
    target, alias
        The schema of the table, and its alias in the Column.
    frames
        Earlier frames of the table, to whose columns the Column may refer.
    """
    from pyspark.errors import AnalysisException

    if not has_plan(source):
        return None
    spark = source.sparkSession
    empty = spark.createDataFrame([], read_schema(target))
    try:
        probe = frames.added_to(empty, [condition], source)
        sides = probe if alias is None else probe.alias(alias)
        joined = plan_of(sides.join(source, condition))
    except AnalysisException:
        return None  # The merge itself raises an error that names the column.
    if class_of(joined) != "Join" or joined.condition().isEmpty():
        return None
    names = {key: (OF_TARGET, name) for key, name in frames.names().items()}
    names |= {key_of(one): (OF_TARGET, one.name()) for one in output_of(plan_of(empty))}
    names |= {key_of(one): (OF_SOURCE, one.name()) for one in output_of(joined.right())}
    parts = [
        text
        for part in _conjuncts(joined.condition().get())
        if (text := _text(source, part, names)) is not None
    ]
    return " AND ".join(parts) or None


def _conjuncts(expression: Any) -> Iterator[Any]:
    if class_of(expression) == "And":
        for part in each(expression.children()):
            yield from _conjuncts(part)
    else:
        yield expression


def _text(df: DataFrame, part: Any, names: Mapping[str, tuple[str, str]]) -> str | None:
    """Return the text of a part of a condition; None if txlog has no such expression."""
    changed: dict[Any, Any] = {}
    left = [part]
    while left:
        node = left.pop()
        if class_of(node) in _OF_USERS:
            return None
        if class_of(node) == "Cast" and _is_widened(node):
            inner = next(each(node.children()))
            if class_of(inner) == "AttributeReference":
                inner = _named(df, inner, names)
            if inner is None:
                return None
            changed[node] = inner  # For txlog, whole numbers of all types compare without a cast.
        elif class_of(node) == "AttributeReference":
            found = _named(df, node, names)
            if found is None:
                return None
            changed[node] = found
        else:
            left += each(node.children())
    text = str(replaced(df, part, changed).sql())
    try:
        paths = columns_of(parse_sql(text)) if is_plain_text(text) else ()
    except InvalidInputError:
        return None
    return text if paths and all(len(path) == 2 for path in paths) else None


def _is_widened(cast: Any) -> bool:
    """Return whether a cast changes no whole number that is a column or a constant."""
    inner = next(each(cast.children()))
    kinds = [inner.dataType().typeName(), cast.dataType().typeName()]
    if class_of(inner) not in ("AttributeReference", "Literal") or not {*kinds} <= {*_WHOLE}:
        return False
    return _WHOLE.index(kinds[0]) <= _WHOLE.index(kinds[1])


def _named(df: DataFrame, attribute: Any, names: Mapping[str, tuple[str, str]]) -> Any:
    """Return an attribute under the alias of its side; None if it is of neither."""
    side = names.get(key_of(attribute))
    if side is None:
        return None
    jvm: Any = df.sparkSession._jvm
    return attribute.withName(side[1]).withQualifier(jvm.PythonUtils.toSeq([side[0]]))
