"""Arguments of the verbs, in the forms that people pass them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from txlog.errors import InvalidInputError
from txlog.schema.arrow import from_arrow
from txlog.schema.types import StructType
from txlog.writing.options import WriteOptions


def as_schema(schema: pa.Schema | StructType) -> StructType:
    """Return a schema in Delta's terms, whatever it came in.

    Raises
    ------
    InvalidInputError
        It is no schema, or has a type that no Delta table holds.
    """
    if isinstance(schema, StructType):
        return schema
    if isinstance(schema, pa.Schema):
        return from_arrow(schema)
    if hasattr(schema, "__arrow_c_schema__"):
        return from_arrow(pa.schema(schema))
    raise InvalidInputError(
        argument="schema",
        reason=f"a pyarrow.Schema was expected, not {type(schema).__name__}",
    )


def as_names(names: Sequence[str] | str | None) -> tuple[str, ...]:
    """Return column names as a tuple; one name may come alone.

    Raises
    ------
    InvalidInputError
        These are no names.
    """
    if names is None:
        return ()
    found = (names,) if isinstance(names, str) else names
    if not isinstance(found, Sequence) or not all(isinstance(name, str) for name in found):
        raise InvalidInputError(
            argument="partition_by", reason=f"column names were expected, not {names!r}"
        )
    return tuple(found)


def write_options(
    target_file_bytes: int | None, max_rows_per_file: int | None, user_metadata: str | None
) -> WriteOptions:
    """Return the options of a write; None stands for a default."""
    if target_file_bytes is None:
        return WriteOptions(max_rows_per_file=max_rows_per_file, user_metadata=user_metadata)
    return WriteOptions(target_file_bytes, max_rows_per_file, user_metadata)
