"""Constraints that every written row must satisfy: CHECK constraints and column invariants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from txlog.actions.table import Metadata
from txlog.arrow import pc
from txlog.errors import InvalidInputError, SchemaMismatchError, UnsupportedFeatureError
from txlog.expressions.bind import bind
from txlog.expressions.evaluate import is_true
from txlog.expressions.sql import parse_sql
from txlog.expressions.tree import Expression
from txlog.schema.types import StructType

_CHECK = "delta.constraints."
_INVARIANT = "delta.invariants"


@dataclass(frozen=True)
class Constraint:
    """A predicate that must be true (not null, not false) of every row."""

    name: str
    text: str
    predicate: Expression


def constraints_of(metadata: Metadata, schema: StructType) -> list[Constraint]:
    """Return the constraints of a table.

    Raises
    ------
    UnsupportedFeatureError
        txlog cannot evaluate the SQL of a constraint, so nothing may be written.
    """
    texts = [
        (name.removeprefix(_CHECK), text)
        for name, text in metadata.configuration.items()
        if name.startswith(_CHECK) and text is not None
    ]
    texts.extend(
        (field.name, _invariant_text(field.metadata[_INVARIANT]))
        for field in schema.fields
        if _INVARIANT in field.metadata
    )
    return [_parsed(name, text, schema) for name, text in texts]


def _invariant_text(value: Any) -> str:
    try:
        return str(orjson.loads(value)["expression"]["expression"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return str(value)


def _parsed(name: str, text: str, schema: StructType) -> Constraint:
    try:
        return Constraint(name, text, bind(parse_sql(text), schema))
    except InvalidInputError as error:
        raise UnsupportedFeatureError(
            features=("checkConstraints",),
            reason=f"the table's rule {name} ({text}) cannot be evaluated: {error.reason}",
            remedy="Write with an engine that can, such as Spark, or drop the constraint there",
        ) from error


def checked(
    batches: Iterable[pa.RecordBatch], constraints: list[Constraint]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches; raise at the first one with a row that breaks a constraint.

    Raises
    ------
    SchemaMismatchError
        Names the constraint and the number of rows that break it in the batch.
    """
    for batch in batches:
        for constraint in constraints:
            kept = is_true(constraint.predicate, batch)
            broken = batch.num_rows - int(pc.sum(kept).as_py() or 0)
            if broken:
                raise SchemaMismatchError(
                    argument="data",
                    field=constraint.name,
                    reason=f"{broken} rows break the constraint "
                    f"{constraint.name} ({constraint.text})",
                    remedy="Nothing was written; correct or leave out these rows",
                )
        yield batch
