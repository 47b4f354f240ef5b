"""Logical plans of frames: there is no public way to get, read or change the plan of a frame.

Only frames of classic Spark have plans in this process; those of Spark Connect have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_CLASSIC, _COLUMN = "_jdf", "_jc"
_PLAIN = frozenset({"AttributeReference", "UnresolvedAttribute", "Literal"})


def has_plan(df: DataFrame) -> bool:
    """Return whether a frame has a plan in this process."""
    return hasattr(df, _CLASSIC)


def plan_of(df: DataFrame) -> Any:
    """Return the resolved plan of a frame, an object of the JVM."""
    return getattr(df, _CLASSIC).queryExecution().analyzed()


def plans_of(df: DataFrame) -> list[Any]:
    """Return the plan of a frame, and those of its subqueries at any depth."""
    plan = plan_of(df)
    return [plan, *each(plan.subqueriesAll())]


def kept_parts(df: DataFrame) -> Iterator[Any]:
    """Yield the largest parts of a frame's plan whose rows Spark keeps (`cache`, `persist`).

    Spark finds them by their plans, so they may also have been kept as parts of other frames. Parts
    of subqueries are among them.
    """
    session = getattr(df, _CLASSIC).sparkSession()
    manager = session.sharedState().cacheManager()
    left = [] if manager.isEmpty() else [plan_of(df)]
    while left:
        plan = left.pop()
        if manager.lookupCachedData(session, plan).isDefined():
            yield plan
        else:
            left += [*each(plan.children()), *each(plan.subqueries())]


def output_of(plan: Any) -> list[Any]:
    """Return the attributes of the columns of a plan."""
    return list(each(plan.output()))


def key_of(attribute: Any) -> str:
    """Return what tells an attribute of Spark from all others."""
    return str(attribute.exprId().toString())


def class_of(found: Any) -> str:
    """Return the name of the class of an object of the JVM; `hasattr` is true for any name."""
    return str(found.getClass().getSimpleName())


def each(sequence: Any) -> Iterator[Any]:
    """Yield the members of a sequence of Scala."""
    found = sequence.iterator()
    while found.hasNext():
        yield found.next()


def java_class(df: DataFrame, name: str) -> Any:
    """Return a class of the JVM by its full name: one request, and not one for each package."""
    return getattr(df.sparkSession._jvm, name)


def renamed(df: DataFrame, attribute: Any, name: str, key: Any, metadata: Any = None) -> Any:
    """Return the expression for a column of a plan under a name and under an id of Spark."""
    nothing = getattr(java_class(df, "scala.collection.immutable.Nil$"), "MODULE$")
    own = java_class(df, "scala.Option").apply(metadata)
    alias = java_class(df, "org.apache.spark.sql.catalyst.expressions.Alias")
    return alias(attribute, name, key, nothing, own, nothing)


def projected(df: DataFrame, columns: Sequence[Any], plan: Any) -> Any:
    """Return the plan with some expressions over a plan; `df` is any frame of its session."""
    jvm: Any = df.sparkSession._jvm
    every = jvm.PythonUtils.toSeq(list(columns))
    return java_class(df, "org.apache.spark.sql.catalyst.plans.logical.Project")(every, plan)


def replaced(df: DataFrame, expression: Any, parts: Mapping[Any, Any]) -> Any:
    """Return an expression with other parts; `df` is any frame of its session."""
    return expression.transformDown(_partial(df, parts))


def _partial(df: DataFrame, parts: Mapping[Any, Any]) -> Any:
    """Return a partial function of Scala: its maps are such functions."""
    jvm: Any = df.sparkSession._jvm
    pairs = java_class(df, "java.util.HashMap")()
    for old, new in parts.items():
        pairs.put(old, new)
    return jvm.PythonUtils.toScalaMap(pairs)


def with_parts(df: DataFrame, parts: Mapping[Any, Any]) -> DataFrame:
    """Return a frame with other parts in its plan, and in the plans of its subqueries."""
    return frame_of(df, plan_of(df).transformDownWithSubqueries(_partial(df, parts)))


def expression_of(df: DataFrame, column: Column) -> Any:
    """Return the expression of a Column, an object of the JVM; `df` is any frame of its session."""
    converter = java_class(df, "org.apache.spark.sql.classic.ColumnNodeToExpressionConverter$")
    node: Any = getattr(column, _COLUMN)
    return getattr(converter, "MODULE$").apply(node.node())


def is_plain(df: DataFrame, column: Column) -> bool:
    """Return whether a Column is a column of a frame, or a constant."""
    return class_of(expression_of(df, column)) in _PLAIN


def tried(df: DataFrame, column: Column) -> Column:
    """Return a Column that is null where another one is an error."""
    from pyspark.sql.classic.column import Column as ClassicColumn

    attempt = java_class(df, "org.apache.spark.sql.catalyst.expressions.TryEval")
    to_column = java_class(df, "org.apache.spark.sql.classic.ExpressionUtils").column
    return ClassicColumn(to_column(attempt(expression_of(df, column))))


def frame_of(df: DataFrame, plan: Any) -> DataFrame:
    """Return a resolved plan as a frame of the session of a frame."""
    from pyspark.sql import DataFrame

    session = getattr(df, _CLASSIC).sparkSession()
    found = java_class(df, "org.apache.spark.sql.classic.Dataset").ofRows(session, plan)
    return DataFrame(found, df.sparkSession)
