"""What all action models share.

An action is a frozen value. Nearly every body in a log is plain: each field is absent, or has
exactly the type of its annotation. This module reads plain bodies. Any other body goes to a
Pydantic model with the same fields (`txlog.actions.model`), which converts it or reports the error;
a property test compares both readers. Pydantic is imported only then, because importing it and
building its models takes longer than opening a table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, dataclass_transform

import orjson

from txlog.actions.fields import FieldSpec, Made, made
from txlog.base.texts import is_unicode

Long = int  # From -2**63 to 2**63 - 1.
Integer = int  # From -2**31 to 2**31 - 1.
Size = int  # From 0 to 2**63 - 1.
ShortSize = int  # From 0 to 2**31 - 1.
Texts = dict[str, str | None]  # Bare numbers and booleans are read as their JSON text.


class _Odd:
    """The type of `ODD`."""


ODD = _Odd()


def _text(value: Any) -> Any:
    return value if type(value) is str and is_unicode(value) else ODD


def _long(value: Any) -> Any:
    return value if type(value) is int and -(2**63) <= value < 2**63 else ODD


def _integer(value: Any) -> Any:
    return value if type(value) is int and -(2**31) <= value < 2**31 else ODD


def _size(value: Any) -> Any:
    return value if type(value) is int and 0 <= value < 2**63 else ODD


def _short_size(value: Any) -> Any:
    return value if type(value) is int and 0 <= value < 2**31 else ODD


def _truth(value: Any) -> Any:
    return value if type(value) is bool else ODD


def _texts(value: Any) -> Any:
    if type(value) is not dict:
        return ODD
    for name, item in value.items():
        if _text(name) is ODD or (item is not None and _text(item) is ODD):
            return ODD
    return dict(value)


def _names(value: Any) -> Any:
    if type(value) is not list or any(_text(item) is ODD for item in value):
        return ODD
    return list(value)


def _as_it_is(value: Any) -> Any:
    return value


_READERS: dict[str, Callable[[Any], Any]] = {
    "str": _text,
    "bool": _truth,
    "Long": _long,
    "Integer": _integer,
    "Size": _size,
    "ShortSize": _short_size,
    "Texts": _texts,
    "dict[str, str | None]": _texts,
    "list[str]": _names,
    "Any": _as_it_is,
}


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(made,))
class Action:
    """A record of the log: immutable, camelCase on disk, with the protocol's field names.

    An absent field and a null field mean the same: both are read as `None`, neither is written.
    A null inside a map (a null partition value) is a value, and is written. Unknown fields are
    ignored. Types are strict: a number in quotes is not a number.

    The methods are those of Pydantic models, and a field of a Pydantic model may be an action.
    """

    fields: ClassVar[tuple[FieldSpec, ...]] = ()
    field_names: ClassVar[frozenset[str]] = frozenset()  # In snake_case and in camelCase.
    keeps_unknown: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        cls.fields = tuple(
            _field(cls, name, kind)
            for name, kind in cls.__annotations__.items()
            if not kind.startswith("ClassVar")
        )
        cls.field_names = frozenset(n for field in cls.fields for n in (field.name, field.alias))
        for field in cls.fields:
            if field.default is not ...:
                delattr(cls, field.name)

    def __init__(self, /, **values: Any) -> None:
        self.__dict__.update(self.plain_values(values) or self.checked_values(values))

    @classmethod
    def of_values(cls, values: Mapping[str, Any]) -> Self:
        """Return the action with these values, which are not validated."""
        action = object.__new__(cls)
        action.__dict__.update(values)
        return action

    @classmethod
    def plain_values(cls, body: Any) -> dict[str, Any] | None:
        """Return the values of all fields, or None if the body is not plain."""
        if not isinstance(body, dict):
            return None
        values: dict[str, Any] = {}
        for field in cls.fields:
            value = body.get(field.alias, ODD)
            if value is ODD:
                value = body.get(field.name, ODD)
            if value is ODD or (value is None and field.or_default):
                value = field.default
                if value is ...:
                    return None
                if type(value) is Made:
                    value = value.default_factory()
            elif value is not None:
                value = field.read(value)
                if value is ODD:
                    if not field.or_none:
                        return None
                    value = None
            elif not field.is_nullable:
                return None
            values[field.name] = value
        if cls.keeps_unknown:
            known = cls.field_names
            values["model_extra"] = {name: body[name] for name in body if name not in known}
        return values

    @classmethod
    def checked_values(cls, body: Any) -> dict[str, Any]:
        """Return the values of all fields, validated by the Pydantic model."""
        from txlog.actions.model import model_of

        return dict(vars(model_of(cls).model_validate(body)))

    @classmethod
    def model_validate(cls, body: Any) -> Self:
        """Return the action of a JSON object, with field names in camelCase or in snake_case.

        Raises
        ------
        ValueError
            A field is missing or has a wrong type: Pydantic's `ValidationError`, which names it.
        """
        if type(body) is cls:
            return body
        return cls.of_values(cls.plain_values(body) or cls.checked_values(body))

    @classmethod
    def model_validate_json(cls, text: str | bytes) -> Self:
        """Return the action of a JSON text; errors as for `model_validate`."""
        return cls.model_validate(orjson.loads(text))

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """Return a copy with other values of some fields. The values are not validated."""
        return self.of_values({**self.__dict__, **(update or {})})

    def model_dump(
        self, *, mode: str = "python", by_alias: bool = False, exclude_none: bool = False
    ) -> dict[str, Any]:
        """Return the fields, and those of inner actions, as dictionaries."""
        values = self.__dict__
        dumped = {
            field.alias if by_alias else field.name: values[field.name]
            for field in self.fields
            if not (exclude_none and values[field.name] is None)
        }
        return {
            name: value.model_dump(mode=mode, by_alias=by_alias, exclude_none=exclude_none)
            if isinstance(value, Action)
            else _plain(value)
            for name, value in dumped.items()
        }

    def to_json(self) -> dict[str, Any]:
        """Return the action's JSON object, without absent fields."""
        values = self.__dict__
        return {
            field.alias: value if type(value) in _ATOMS else _plain(value)
            for field in self.fields
            if (value := values[field.name]) is not None
        }

    def __setattr__(self, name: str, value: Any) -> None:
        raise ValueError(f"{type(self).__name__} is frozen: use model_copy to change {name}")

    def __delattr__(self, name: str) -> None:
        raise ValueError(f"{type(self).__name__} is frozen: {name} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), tuple(self.__dict__.values())))

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({arguments})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from txlog.actions.model import schema_of

        return schema_of(cls, handler)


_ATOMS = frozenset({str, int, bool})


def _field(kind: type[Action], name: str, annotation: str) -> FieldSpec:
    """Return the field specification for an annotation, given as text."""
    text, or_default = _without_mark(annotation, "OR_DEFAULT")
    text, or_none = _without_mark(text, "OR_NONE")
    text, is_nullable = text.removesuffix(" | None"), text.endswith(" | None") or text == "Any"
    read = _READERS.get(text)
    if read is None:
        read = _reader_of(vars(sys.modules[kind.__module__])[text])
    default = vars(kind).get(name, ...)
    first, *others = name.split("_")
    alias = first + "".join(map(str.capitalize, others))
    return FieldSpec(name, alias, read, is_nullable, or_default, or_none, default)


def _without_mark(annotation: str, mark: str) -> tuple[str, bool]:
    start, end = "Annotated[", f", {mark}]"
    if annotation.startswith(start) and annotation.endswith(end):
        return annotation[len(start) : -len(end)], True
    return annotation, False


def _reader_of(inner: type[Action]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) is inner:
            return value
        values = inner.plain_values(value)
        return ODD if values is None else inner.of_values(values)

    return read


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.to_json() if hasattr(value, "to_json") else value
