"""Values of Spark as they are stored in columns: cast, and put together by the names of fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users name it
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StructType

from txlog.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import Column

Typed = tuple["Column", DataType]


@dataclass(frozen=True, eq=False)
class Given:
    """A value that a clause gives to a column, as the caller wrote it."""

    column: Column


def stored(value: Column, have: DataType, want: DataType, name: str) -> Column:
    """Return a value as a column of another type holds it.

    Structs go by the names of their fields, which are null where they are missing. Other values
    are cast; one that does not fit is an error, in sessions without ANSI mode too.

    Parameters
    ----------
    name
        The column, for errors.

    Raises
    ------
    InvalidInputError
        The value has fields that the column lacks.
    """
    if have == want:
        return value
    match have, want:
        case StructType(), StructType():
            return _struct(value, have, want, name)
        case ArrayType(elementType=inner), ArrayType(elementType=target) if _nested(inner):
            return F.transform(value, lambda one: stored(one, inner, target, f"{name}.element"))
        case MapType(), MapType() if _nested(have.valueType) and have.keyType == want.keyType:
            return F.transform_values(
                value, lambda _, one: stored(one, have.valueType, want.valueType, f"{name}.value")
            )
        case NullType(), _:
            return value.cast(want)
    if _nested(have) or _nested(want):
        return value.cast(want)
    return F.coalesce(
        value.try_cast(want),
        F.when(
            value.isNotNull(),
            F.raise_error(
                F.concat(F.lit(f"a value of column {name} does not fit its type: "), value)
            ).cast(want),
        ),
    )


def _nested(kind: DataType) -> bool:
    return isinstance(kind, StructType | ArrayType | MapType)


def _struct(value: Column, have: StructType, want: StructType, name: str) -> Column:
    known = {field.name.lower(): field for field in have.fields}
    extra = known.keys() - {field.name.lower() for field in want.fields}
    if extra:
        raise InvalidInputError(
            argument="updates",
            field=f"{name}.{known[min(extra)].name}",
            reason=f"column {name} has no such field",
            remedy="Leave it out, or let the schema evolve",
        )
    fields = []
    for field in want.fields:
        held = known.get(field.name.lower())
        if held is None:
            inner = F.lit(None).cast(field.dataType)
        else:
            own = value.getField(held.name)
            inner = stored(own, held.dataType, field.dataType, f"{name}.{field.name}")
        fields.append(inner.alias(field.name))
    return F.when(value.isNotNull(), F.struct(*fields))


def assigned(
    own: Typed | None, given: Mapping[tuple[str, ...], Typed], want: DataType, name: str
) -> Column:
    """Return a column with the values that fields inside of it are given.

    A null struct of which a field is given a value becomes one whose other fields are null.

    Parameters
    ----------
    own
        The column as it is, with its type. None: it is new.
    given
        Values by the path of the field below the column.
    """
    if not given:
        if own is None:
            return F.lit(None).cast(want)
        return stored(*own, want, name)
    assert isinstance(want, StructType)
    held = {}
    if own is not None and isinstance(own[1], StructType):
        held = {f.name.lower(): (own[0].getField(f.name), f.dataType) for f in own[1].fields}
    fields = []
    for field in want.fields:
        inner = {path[1:]: value for path, value in given.items() if path[0] == field.name}
        path = f"{name}.{field.name}"
        if () in inner:
            value = stored(*inner[()], field.dataType, path)
        else:
            value = assigned(held.get(field.name.lower()), inner, field.dataType, path)
        fields.append(value.alias(field.name))
    return F.struct(*fields)
