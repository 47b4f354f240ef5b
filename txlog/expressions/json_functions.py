"""The SQL function `get_json_object`: a part of a JSON text, by its path.

Spark reads JSON with Jackson, and writes a part as Jackson writes it: without spaces, numbers and
keys as they are. A text that Jackson and Python's reader may read differently is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa

from txlog.actions.base import is_unicode
from txlog.expressions.signatures import Function, of_distinct, refuse, text
from txlog.lazy import compiled
from txlog.schema.types import STRING

_NAME = "get_json_object"
_STEP = compiled(r"\.(?!\s)([^.\[*?]+)|\['(?!\s)([^'?*]+)'\]|\[(\d{1,9})\]")
_BLANK = compiled(r"[ \t\r\n]*")
_MOST_DIGITS = 15  # So many digits of a double are the same in its shortest text.
_ODD = compiled("\\\\\\\\|\\\\u00[01][0-9a-f]|[\U00010000-\U0010ffff]")

Step = str | int


class _Number(str):
    """The text of a number."""


class _Object(list[tuple[str, Any]]):
    """The members of an object, in their order; a name may be there twice."""


def _steps(path: str) -> tuple[Step, ...]:
    """Return the names and indexes of a path such as `$.a['b'][0]`."""
    steps: list[Step] = []
    at = 1
    while path.startswith("$") and (found := _STEP.match(path, at)):
        steps.append(int(found[3]) if found[3] else found[1] or found[2])
        at = found.end()
    if path[:1] != "$" or at < len(path):
        raise refuse(_NAME, f"needs a path of names and indexes, such as $.a['b'][0], not {path!r}")
    return tuple(steps)


@cache
def _decoder() -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=_Object,
        parse_float=_Number,
        parse_int=_Number,
        parse_constant=_no_constant,
        strict=False,  # Jackson reads line breaks within a string too.
    )


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number in JSON")


def _parsed(item: str) -> tuple[bool, Any]:
    """Return the first value of a text, and whether it begins with one."""
    found = _BLANK.match(item)
    start = found.end() if found else 0
    try:
        value, end = _decoder().raw_decode(item, start)
    except ValueError as error:
        if "'" in item:
            raise refuse(_NAME, f"does not read JSON with single quotes: {item!r}") from error
        return False, None
    except RecursionError as error:
        raise refuse(_NAME, "does not read JSON that is nested so deeply") from error
    ends = item[end : end + 1] in ("", " ", "\t", "\r", "\n")
    if not ends and not isinstance(value, list):
        raise refuse(_NAME, f"does not read a value with other text behind it: {item!r}")
    return True, value


def _at(value: Any, steps: Sequence[Step]) -> str | None:
    """Return the text of the part of a value at the end of a path; None if there is no such part.

    A null of an object counts as absent, a null of an array does not.
    """
    if not steps:
        return str(value) if type(value) is str else _written(value)
    step, *rest = steps
    if isinstance(step, int):
        is_there = type(value) is list and step < len(value)
        return _at(value[step], rest) if is_there else None
    for name, member in value if isinstance(value, _Object) else ():
        if name == step and member is not None:
            found = _at(member, rest)
            if found is not None:
                return found
    return None


def _written(value: Any) -> str:
    """Return the text of a value as Jackson writes it."""
    if isinstance(value, _Number):
        return _number(value)
    if isinstance(value, _Object):
        members = (f"{_written(name)}:{_written(member)}" for name, member in value)
        return f"{{{','.join(members)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_written, value))}]"
    return _ODD.sub(_escaped, json.dumps(value, ensure_ascii=False))


def _escaped(found: re.Match[str]) -> str:
    """Return an escape in upper case, and two escapes for a character of two UTF-16 units."""
    one = found[0] if found[0] < "\U00010000" else json.dumps(found[0])[1:-1]
    return re.sub(r"[0-9a-f]{4}", lambda digits: digits[0].upper(), one)


def _number(given: _Number) -> str:
    """Return the text of a number as Java writes an integer or a double."""
    if re.fullmatch(r"-?\d+", given):
        return "0" if given == "-0" else str(given)
    try:
        exact = Decimal(given)
    except ArithmeticError:  # Its exponent has too many digits.
        exact = Decimal("Infinity")
    plain = exact.is_finite() and len(exact.as_tuple().digits) <= _MOST_DIGITS
    if not plain or not (exact.is_zero() or -3 <= exact.adjusted() <= 6):
        raise refuse(_NAME, f"does not write the number {given} as Spark does")
    return repr(float(exact))


def _get(value: Any, path: str | None, kind: pa.DataType) -> Any:
    if path is None:
        return of_distinct(lambda _item: None)(text(value), kind)
    steps = _steps(path)

    def part(item: str) -> str | None:
        is_json, whole = _parsed(item)
        found = _at(whole, steps) if is_json else None
        if found is not None and not is_unicode(found):
            raise refuse(_NAME, f"does not read the escapes of {item!r}, which are no characters")
        return found

    return of_distinct(part)(text(value), kind)


JSON: dict[str, Function] = {_NAME: Function(STRING, ("string", "string!"), _get)}
