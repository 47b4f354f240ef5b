"""Changes of one field of a schema, at any depth. Pure.

A path consists of field names, and of `element`, `key` and `value` for parts of lists and maps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

from txlog.base.errors import InvalidInputError
from txlog.schema.types import ArrayType, DataType, MapType, StructField, StructType, no_field

FieldPath = tuple[str, ...]
Place = Literal["first", "last"] | tuple[Literal["after"], str]


def find_field(schema: StructType, path: FieldPath) -> tuple[FieldPath, StructField]:
    """Return a field and its exact path; names are looked up ignoring case.

    Raises
    ------
    InvalidInputError
        There is no such field.
    """
    found: list[StructField] = []
    exact: list[str] = []

    def note(field: StructField, at: FieldPath) -> StructField:
        found.append(field)
        exact.extend(at)
        return field

    _changed(schema, path, (), note)
    return tuple(exact), found[-1]


def with_field(
    schema: StructType, path: FieldPath, change: Callable[[StructField], StructField]
) -> StructType:
    """Return a schema with one field changed.

    Raises
    ------
    InvalidInputError
        There is no such field.
    """
    changed = _changed(schema, path, (), lambda field, _: change(field))
    assert isinstance(changed, StructType)
    return changed


def _changed(
    kind: DataType,
    path: FieldPath,
    above: FieldPath,
    change: Callable[[StructField, FieldPath], StructField],
) -> DataType:
    """Return a type in which the field at a path is changed."""
    name, rest = path[0], path[1:]
    match kind:
        case StructType(fields):
            field = kind.get(name)
            if field is not None:
                at = (*above, field.name)
                if rest:
                    new = replace(field, type=_changed(field.type, rest, at, change))
                else:
                    new = change(field, at)
                return StructType(tuple(new if one is field else one for one in fields))
        case ArrayType(element) if name == "element" and rest:
            return replace(kind, element=_changed(element, rest, (*above, name), change))
        case MapType(key, value) if name in ("key", "value") and rest:
            at = (*above, name)
            if name == "key":
                return replace(kind, key=_changed(key, rest, at, change))
            return replace(kind, value=_changed(value, rest, at, change))
    raise no_field(kind, name, above, argument="column")


def with_new_field(schema: StructType, path: FieldPath, field: StructField) -> StructType:
    """Return a schema with a new last field in the struct at a path; the path () is the table.

    If the field exists and is a struct, the fields that it lacks are added to it.

    Raises
    ------
    InvalidInputError
        The field exists already, or there is no struct at the path.
    """
    changed = _within(schema, path, (), partial(_added, field))
    assert isinstance(changed, StructType)
    return changed


def _added(field: StructField, kind: DataType, at: FieldPath) -> DataType:
    if not isinstance(kind, StructType):
        raise InvalidInputError(
            argument="columns",
            field=".".join(at),
            reason=f"{'.'.join(at)} is not a struct, so it has no fields",
            remedy="Name a struct; write LIST.element for one in a list, and MAP.value for one in "
            "a map",
        )
    existing = kind.get(field.name)
    if existing is None:
        return StructType((*kind.fields, field))
    grown = existing.type
    if isinstance(existing.type, StructType) and isinstance(field.type, StructType):
        for inner in field.type.fields:
            known = existing.type.get(inner.name)
            if known is None or known.type != inner.type:
                grown = _added(inner, grown, (*at, existing.name))
    if grown == existing.type:
        raise InvalidInputError(
            argument="columns",
            field=".".join((*at, field.name)),
            reason=f"{'.'.join(at) or 'the table'} already has a field {field.name}",
            remedy="Choose another name",
        )
    return StructType(tuple(replace(f, type=grown) if f is existing else f for f in kind.fields))


def moved(schema: StructType, path: FieldPath, place: Place) -> StructType:
    """Return a schema in which a field has another position in its struct.

    Raises
    ------
    InvalidInputError
        The field, or the field that it should follow, does not exist.
    """
    name = path[-1]

    def reordered(kind: DataType, at: FieldPath) -> DataType:
        field = kind.get(name) if isinstance(kind, StructType) else None
        if field is None or not isinstance(kind, StructType):
            raise no_field(kind, name, at, argument="column")
        others = [one for one in kind.fields if one is not field]
        if place == "first":
            index = 0
        elif place == "last":
            index = len(others)
        else:
            before = kind.get(place[1])
            if before is None or before is field:
                raise no_field(kind, place[1], at, argument="after")
            index = others.index(before) + 1
        return StructType((*others[:index], field, *others[index:]))

    changed = _within(schema, path[:-1], (), reordered)
    assert isinstance(changed, StructType)
    return changed


def _within(
    kind: DataType,
    path: FieldPath,
    above: FieldPath,
    change: Callable[[DataType, FieldPath], DataType],
) -> DataType:
    """Return a type with a change of the inner type at a path."""
    if not path:
        return change(kind, above)
    name, rest = path[0], path[1:]
    match kind:
        case StructType(fields):
            field = kind.get(name)
            if field is not None:
                inner = _within(field.type, rest, (*above, field.name), change)
                new = replace(field, type=inner)
                return StructType(tuple(new if one is field else one for one in fields))
        case ArrayType(element) if name == "element":
            return replace(kind, element=_within(element, rest, (*above, name), change))
        case MapType(key, value) if name in ("key", "value"):
            at = (*above, name)
            if name == "key":
                return replace(kind, key=_within(key, rest, at, change))
            return replace(kind, value=_within(value, rest, at, change))
    raise no_field(kind, name, above, argument="column")


def without_field(schema: StructType, path: FieldPath) -> StructType:
    """Return a schema without a field.

    Raises
    ------
    InvalidInputError
        There is no such field, or it is the last one of its struct.
    """
    name = path[-1]

    def left(kind: DataType, at: FieldPath) -> DataType:
        field = kind.get(name) if isinstance(kind, StructType) else None
        if field is None or not isinstance(kind, StructType):
            raise no_field(kind, name, at, argument="column")
        others = tuple(one for one in kind.fields if one is not field)
        if at and not others:
            raise InvalidInputError(
                argument="columns",
                field=".".join((*at, name)),
                reason=f"{'.'.join(at)} would have no field left",
                remedy=f"Drop {'.'.join(at)} itself, or leave one field",
            )
        return StructType(others)

    changed = _within(schema, path[:-1], (), left)
    assert isinstance(changed, StructType)
    return changed


def renamed(schema: StructType, path: FieldPath, name: str) -> StructType:
    """Return a schema in which a field has another name; its physical name stays.

    Raises
    ------
    InvalidInputError
        There is no such field, or another one beside it has the name.
    """

    def changed(kind: DataType, at: FieldPath) -> DataType:
        field = kind.get(path[-1]) if isinstance(kind, StructType) else None
        if field is None or not isinstance(kind, StructType):
            raise no_field(kind, path[-1], at, argument="column")
        others = [one.name for one in kind.fields if one is not field]
        taken = next((one for one in others if one.lower() == name.lower()), None)
        if taken is not None:
            raise InvalidInputError(
                argument="new_name",
                field=".".join((*at, taken)),
                reason=f"{'.'.join(at) or 'the table'} already has a field {taken}",
                remedy="Choose another name",
            )
        new = replace(field, name=name)
        return StructType(tuple(new if one is field else one for one in kind.fields))

    found = _within(schema, path[:-1], (), changed)
    assert isinstance(found, StructType)
    return found
