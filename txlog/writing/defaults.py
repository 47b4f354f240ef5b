"""Default values of columns, for data that leaves a column out. Pure.

Rules: the Delta protocol, "Default Columns".
"""

from __future__ import annotations

import pyarrow as pa

from txlog.arrow import arrow_scalar
from txlog.errors import InvalidInputError, UnsupportedFeatureError
from txlog.expressions.bind import bind_value
from txlog.expressions.evaluate import evaluate
from txlog.expressions.sql import parse_sql
from txlog.expressions.tree import Literal
from txlog.schema.arrow import arrow_type
from txlog.schema.cast import cast_array
from txlog.schema.types import CURRENT_DEFAULT, StructField, StructType, type_name


def has_default(field: StructField) -> bool:
    """Return whether a column has a default value, of whatever form."""
    return field.metadata.get(CURRENT_DEFAULT) is not None


def default_value(field: StructField) -> pa.Scalar:
    """Return the value that rows get in a column that the data leaves out: null without a default.

    Raises
    ------
    UnsupportedFeatureError
        The default is an expression that txlog cannot evaluate; names the column and it.
    """
    target = arrow_type(field.type)
    text = field.metadata.get(CURRENT_DEFAULT)
    if text is None:
        return arrow_scalar(None, target)
    try:
        bound, _ = bind_value(parse_sql(str(text)), StructType())
        if isinstance(bound, Literal) and bound.value is None:
            return arrow_scalar(None, target)
        values = evaluate(bound, pa.table({"row": pa.nulls(1)}))
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        return cast_array(values, field.type, target)[0]
    except (InvalidInputError, pa.ArrowException, ValueError) as error:
        reason = error.reason if isinstance(error, InvalidInputError) else str(error)
        raise UnsupportedFeatureError(
            features=("allowColumnDefaults",),
            field=field.name,
            reason=f"the data leaves out column {field.name}, whose default {text} txlog cannot "
            f"evaluate as {type_name(field.type)}: {reason}",
            remedy=f"Give the column {field.name} a value in every row",
        ) from error
