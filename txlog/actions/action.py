"""What all models of actions share: how they are read and written, and the types of their fields.

A field has the name of the protocol: in camelCase on disk, in snake_case in Python. The types of
integers state their range and their type in Parquet; all other types of Parquet follow from the
Python types (`txlog.actions.columns.struct_of`).
"""

from __future__ import annotations

from typing import Annotated, Any

import orjson
import pyarrow as pa
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel


def texts_of(value: Any) -> Any:
    """Return a map in which bare numbers and booleans, which some writers write, are JSON texts."""
    if not isinstance(value, dict):
        return value
    return {
        name: orjson.dumps(item).decode() if _is_number(item) else item
        for name, item in value.items()
    }


def _is_number(item: Any) -> bool:
    """Return whether a JSON value is a boolean or a finite number."""
    return isinstance(item, bool | float) or (isinstance(item, int) and -(2**63) <= item < 2**64)


Long = Annotated[int, Field(ge=-(2**63), le=2**63 - 1), pa.int64()]
Integer = Annotated[int, Field(ge=-(2**31), le=2**31 - 1), pa.int32()]
Size = Annotated[int, Field(ge=0, le=2**63 - 1), pa.int64()]
ShortSize = Annotated[int, Field(ge=0, le=2**31 - 1), pa.int32()]
Texts = Annotated[dict[str, str | None], BeforeValidator(texts_of)]


class Action(BaseModel):
    """A record of the log: immutable, camelCase on disk, with the protocol's field names.

    An absent field and a null field mean the same: both have the default, and a `None` is not
    written. A null inside a map (a null partition value) is a value, and is written. Unknown fields
    are ignored. Types are strict: a number in quotes is not a number.
    """

    model_config = ConfigDict(
        frozen=True, strict=True, extra="ignore", alias_generator=to_camel, populate_by_name=True
    )

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, body: Any) -> Any:
        if isinstance(body, dict) and None in body.values():
            return {name: value for name, value in body.items() if value is not None}
        return body

    def to_json(self) -> dict[str, Any]:
        """Return the action's JSON object, without absent fields."""
        return self.model_dump(by_alias=True, exclude_none=True)
