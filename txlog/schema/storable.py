"""Whether data files can hold rows of a schema. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from txlog.base.errors import InvalidInputError
from txlog.schema.blobs import require_blobs
from txlog.schema.types import VOID, StructType, unstorable


def require_storable(schema: StructType, partition_by: Sequence[str] = ()) -> None:
    """Raise if data files could not hold rows of a schema.

    Raises
    ------
    InvalidInputError
        All columns are void, those of a struct are, or an array or map holds voids. Or something
        is declared as a blob that cannot be one (`require_blobs`).
    """
    require_blobs(schema)
    odd = next(unstorable(schema.fields), None)
    if odd is not None:
        raise InvalidInputError(
            argument="schema",
            field=odd,
            reason=f"{odd} holds nothing but values of type void, which data files leave out",
            remedy="Give its fields or elements another type",
        )
    stored = [one for one in schema.fields if one.name not in partition_by]
    if stored and all(one.type == VOID for one in stored):
        raise InvalidInputError(
            argument="schema",
            field=stored[0].name,
            reason="all columns are of type void, which data files do not contain",
            remedy="Add a column of another type",
        )
