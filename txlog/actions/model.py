"""Pydantic models with the fields of actions. They read bodies that are not plain, or raise.

This module is imported at the first use of a model, because Pydantic is slow to import.
"""

from __future__ import annotations

from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model
from pydantic.alias_generators import to_camel
from pydantic_core import core_schema

from txlog.actions.fields import FieldSpec, Made, texts_of

Long = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
Integer = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]
Size = Annotated[int, Field(ge=0, le=2**63 - 1)]
ShortSize = Annotated[int, Field(ge=0, le=2**31 - 1)]
Texts = Annotated[dict[str, str | None], BeforeValidator(texts_of)]

CONFIG = ConfigDict(
    frozen=True, strict=True, extra="ignore", alias_generator=to_camel, populate_by_name=True
)


_MODELS: dict[type[Any], type[BaseModel]] = {}


def model_of(kind: type[Any]) -> type[BaseModel]:
    """Return the Pydantic model with the fields of an action; it is built once."""
    if kind not in _MODELS:
        _MODELS[kind] = _built(kind)
    return _MODELS[kind]


def _built(kind: type[Any]) -> type[BaseModel]:
    names = {
        "Long": Long, "Integer": Integer, "Size": Size, "ShortSize": ShortSize, "Texts": Texts,
    }  # fmt: skip
    hints = get_type_hints(kind, localns=names, include_extras=True)
    fields: dict[str, Any] = {
        field.name: (_hint(field, hints[field.name]), _default(field)) for field in kind.fields
    }
    model: type[BaseModel] = create_model(kind.__name__, __config__=CONFIG, **fields)
    return model


def _hint(field: FieldSpec, hint: Any) -> Any:
    if not field.or_default:
        return hint
    return Annotated[hint, BeforeValidator(lambda v: _absent(field) if v is None else v)]


def _absent(field: FieldSpec) -> Any:
    default = field.default
    return default.default_factory() if isinstance(default, Made) else default


def _default(field: FieldSpec) -> Any:
    if isinstance(field.default, Made):
        return Field(default_factory=field.default.default_factory)
    return field.default


def schema_of(kind: type[Any], handler: Any) -> core_schema.CoreSchema:
    """Return how Pydantic reads and writes a field whose type is an action."""

    def read(value: Any, validate: Any) -> Any:
        if isinstance(value, kind):
            return value
        return kind.of_values(vars(validate(value)))

    return core_schema.no_info_wrap_validator_function(
        read,
        handler.generate_schema(model_of(kind)),
        serialization=core_schema.plain_serializer_function_ser_schema(kind.to_json),
    )


class Record(BaseModel):
    """A record with the methods of an action that is not an action of the log."""

    model_config = CONFIG

    def to_json(self) -> dict[str, Any]:
        """Return the record's JSON object, without absent fields."""
        return {
            info.alias or name: _plain(value)
            for name, info in type(self).model_fields.items()
            if (value := getattr(self, name)) is not None
        }


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.to_json() if hasattr(value, "to_json") else value
