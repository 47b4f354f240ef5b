"""Checks of the arguments of a client, so that it refuses what a catalog refuses."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from inspect import Parameter, isfunction, signature
from typing import Any, TypeVar, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from txlog.base.errors import InvalidInputError, InvalidTypeError

Class = TypeVar("Class", bound=type)
_STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True)


def checked(kind: Class) -> Class:
    """Let the public methods of a class check the types of their arguments.

    JSON and addresses would turn a wrong value into another one, or leave it out: an empty list in
    a query is no list, and the text of `b"x"` is a name.
    """
    for name, member in list(vars(kind).items()):
        if isfunction(member) and not name.startswith("_"):
            setattr(kind, name, _checked(member))
    return kind


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    called = signature(function)
    _, *others = called.parameters.values()

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        try:
            bound = called.bind(*given, **named)
        except TypeError:
            return function(*given, **named)  # It raises Python's own error, with its name.
        for parameter in others:
            if parameter.name in bound.arguments:
                _require(function, parameter, bound.arguments[parameter.name])
        return function(*given, **named)

    return call


def _require(function: Callable[..., Any], parameter: Parameter, value: Any) -> None:
    kind = _adapter(function, parameter.name)
    try:
        kind.validate_python(value)
    except ValidationError as error:
        wrong = error.errors()[0]
        if all(one["type"] in ("literal_error", "none_required") for one in error.errors()):
            if not isinstance(value, str):
                raise _of_type(parameter, value) from error
            raise InvalidInputError(
                argument=parameter.name,
                reason=f"{wrong['ctx']['expected']} was expected, not {value!r}",
            ) from error
        raise _of_type(parameter, value) from error


def _of_type(parameter: Parameter, value: Any) -> InvalidTypeError:
    return InvalidTypeError(
        argument=parameter.name,
        reason=f"{parameter.annotation} was expected, not {type(value).__name__}",
    )


@cache
def _adapter(function: Callable[..., Any], name: str) -> TypeAdapter[Any]:
    """Return what validates a parameter."""
    # Other annotations may use names that are imported for type checkers alone.
    alone = type("Parameter", (), {"__annotations__": {name: function.__annotations__[name]}})
    kind = get_type_hints(alone, globalns=function.__globals__)[name]
    try:
        return TypeAdapter(kind, config=_STRICT)
    except PydanticUserError:  # A dataclass has a configuration of its own.
        return TypeAdapter(kind)
