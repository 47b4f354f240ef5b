"""Checks of the arguments of a client, so that it refuses what `Datasets` refuses."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import isfunction, signature
from typing import Any

from pydantic import ConfigDict, ValidationError, validate_call

from txlog.base.errors import InvalidInputError, InvalidTypeError

_STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True)
_OF_VALUES = ("literal_error", "none_required")


def check_arguments(kind: type) -> None:
    """Let Pydantic check the types of the arguments of a class's public methods.

    JSON and addresses would turn a wrong value into another one, or leave it out: an empty list in
    a query is no list, and the text of `b"x"` is a name.
    """
    for name, member in list(vars(kind).items()):
        if isfunction(member) and not name.startswith("_"):
            setattr(kind, name, _checked(member))


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    strict = validate_call(config=_STRICT)(function)
    called = signature(function)

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        try:
            arguments = called.bind(*given, **named).arguments
        except TypeError:
            return function(*given, **named)  # It raises Python's own error, with its name.
        try:
            return strict(*given, **named)
        except ValidationError as error:
            if error.title.rpartition(".")[2] != function.__name__:  # It is of an answer.
                raise
            faults = error.errors()
            place = faults[0]["loc"][0]  # The number of an argument, or its name.
            name, value = next(
                one for at, one in enumerate(arguments.items()) if place in (at, one[0])
            )
            raise _refused(name, function.__annotations__[name], value, faults) from error

    return call


def _refused(name: str, annotation: str, value: object, faults: Any) -> InvalidInputError:
    if isinstance(value, str) and all(one["type"] in _OF_VALUES for one in faults):
        return InvalidInputError(
            argument=name, reason=f"{faults[0]['ctx']['expected']} was expected, not {value!r}"
        )
    return InvalidTypeError(
        argument=name, reason=f"{annotation} was expected, not {type(value).__name__}"
    )
