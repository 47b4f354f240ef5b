"""SQL functions of text, and `get_json_object`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cache, partial
from typing import Any

import pyarrow as pa

from txlog.base.arrow import arrow_scalar, pc
from txlog.base.texts import is_unicode
from txlog.expressions.signatures import INTEGER, Args, Function, refuse, text
from txlog.expressions.tree import Call, Cast, Expression, Literal
from txlog.expressions.values import Compute, of_distinct
from txlog.schema.types import STRING

# Case ------------------------------------------------------------------------------------------


def _case(ascii_name: str, function: Callable[[str], str]) -> Compute:
    distinct = of_distinct(function)

    def compute(value: Any, kind: pa.DataType) -> Any:
        value = text(value)
        plain = pc.string_is_ascii(value)
        if (plain.as_py() is not False) if isinstance(plain, pa.Scalar) else pc.all(plain).as_py():
            return getattr(pc, ascii_name)(value)
        return distinct(value, kind)

    return compute


def _initcap(item: str) -> str:
    if not item.isascii():
        raise refuse("initcap", f"supports only ASCII, not {item!r}")
    return re.sub(r"(?:^| )[a-z]", lambda found: found[0].upper(), item.lower())


# Parts -----------------------------------------------------------------------------------------


def _substring(value: Any, start: int, *more: Any) -> Any:
    kind, count = more[-1], more[0] if len(more) > 1 else None
    if start < 0:
        return of_distinct(lambda item: _from_end(item, start, count))(text(value), kind)
    first = max(0, start - 1)
    stop = None if count is None else first + max(0, count)
    return pc.utf8_slice_codeunits(text(value), first, stop)


def _from_end(item: str, start: int, count: int | None) -> str:
    """Return the result of `substring` for a start that is counted from the end."""
    first = len(item) + start
    stop = len(item) if count is None else first + max(0, count)
    return item[max(0, first) : max(0, stop)]


def _left(value: Any, count: int, _kind: pa.DataType) -> Any:
    return pc.utf8_slice_codeunits(text(value), 0, max(0, count))


def _right(value: Any, count: int, _kind: pa.DataType) -> Any:
    if count <= 0:
        return pc.utf8_slice_codeunits(text(value), 0, 0)
    return pc.utf8_slice_codeunits(text(value), -count, None)


def _split_part(item: str, delimiter: str, part: int) -> str:
    parts = item.split(delimiter) if delimiter else [item]
    place = part - 1 if part > 0 else len(parts) + part
    return parts[place] if 0 <= place < len(parts) else ""


def _substring_index(item: str, delimiter: str, count: int) -> str:
    if not delimiter or count == 0:
        return ""
    parts = item.split(delimiter)
    return delimiter.join(parts[:count] if count > 0 else parts[count:])


def _overlay(item: str, new: str, start: int, length: int = -1) -> str:
    if start < 1:
        raise refuse("overlay", "needs a start of at least 1")
    end = start - 1 + (len(new) if length < 0 else length)
    return item[: start - 1] + new + item[end:]


def _locate(part: str, value: Any, *more: Any) -> Any:
    start = more[0] if len(more) > 1 else 1
    if not part and start != 1:
        raise refuse("locate", "of an empty string does not support a position")
    return of_distinct(
        lambda item: item.find(part, start - 1) + 1 if 1 <= start <= len(item) + 1 else 0
    )(text(value), more[-1])


def _from_nowhere(args: Args) -> Expression | None:
    """Return 0 for a position that is NULL, as Spark does before it looks at the other values."""
    is_null = len(args) == 3 and isinstance(args[2], Literal) and args[2].value is None
    return Cast(Literal(0), INTEGER) if is_null else None


def _per_item(function: Callable[..., Any]) -> Compute:
    """Return a function whose arguments after the first are constants."""

    def compute(value: Any, *more: Any) -> Any:
        *constants, kind = more
        return of_distinct(lambda item: function(item, *constants))(text(value), kind)

    return compute


# Putting together ------------------------------------------------------------------------------


TEXT = "string|number|decimal|boolean|date|timestamp"
"""The types of values that become texts in `concat`."""


def joined(*values: Any) -> Any:
    """Return texts put together; null if one is null."""
    *texts, _ = values
    return pc.binary_join_element_wise(*map(text, texts), "", null_handling="emit_null")


def _concat_ws(separator: str, *values: Any) -> Any:
    *given, kind = values
    if separator is None:
        raise refuse("concat_ws", "needs a separator that is not null")
    texts = [value for value in given if not pa.types.is_null(value.type)]
    if not texts:
        return arrow_scalar("", kind)
    # Arrow's join drops rows of only nulls, so each value gets its own separator instead.
    parts = [
        pc.coalesce(pc.binary_join_element_wise(separator, text(value), ""), "") for value in texts
    ]
    return pc.utf8_slice_codeunits(pc.binary_join_element_wise(*parts, ""), len(separator), None)


def _pad(name: str) -> Compute:
    def compute(value: Any, width: int, *more: Any) -> Any:
        wanted = max(0, width)
        fill = more[0] if len(more) > 1 else " "
        if len(fill) != 1:
            return of_distinct(partial(_padded, name == "utf8_lpad", wanted, fill))(
                text(value), more[-1]
            )
        padded = getattr(pc, name)(text(value), width=wanted, padding=fill)
        return pc.utf8_slice_codeunits(padded, 0, wanted)

    return compute


def _padded(left: bool, width: int, fill: str, item: str) -> str:
    lacking = max(0, width - len(item)) if fill else 0
    padding = (fill * (lacking // max(1, len(fill)) + 1))[:lacking]
    return ((padding + item) if left else (item + padding))[:width]


def _trim(name: str) -> Compute:
    def compute(value: Any, *more: Any) -> Any:
        characters = more[0] if len(more) > 1 else " "
        return getattr(pc, name)(text(value), characters) if characters else text(value)

    return compute


def _translate(item: str, old: str, new: str) -> str:
    table: dict[int, str | None] = {}
    for place, character in enumerate(old):
        table.setdefault(ord(character), new[place] if place < len(new) else None)
    return item.translate(table)


def _replace(value: Any, old: str, *more: Any) -> Any:
    new = more[0] if len(more) > 1 else ""
    return pc.replace_substring(text(value), old, new) if old else value


def reversed_text(value: Any, _kind: pa.DataType) -> Any:
    """Return texts with their characters in the opposite order."""
    return pc.utf8_reverse(text(value))


# JSON ------------------------------------------------------------------------------------------
# Spark reads JSON with Jackson, and writes a part as Jackson writes it: without spaces, numbers and
# keys as they are. A text that Jackson and Python's reader may read differently is refused.

_JSON = "get_json_object"
_STEP = re.compile(r"\.(?!\s)([^.\[*?]+)|\['(?!\s)([^'?*]+)'\]|\[(\d{1,9})\]")
_BEGINNING = re.compile(r"[ \t\r\n]*(?=[{\[\"']|-?[0-9]|true|false|null)")
_SINGLE_QUOTE = re.compile(r"(?:\A|[{\[,:])[ \t\r\n]*'")  # Where a name or a value may begin.
_LONGEST_NUMBER = 1000  # In characters; Jackson reads no longer ones.
_MOST_DIGITS = 15  # So many digits of a double are the same in its shortest text.
# What Jackson writes otherwise than Python: digits of escapes, characters of two UTF-16 units.
_ODD = re.compile("\\\\\\\\|\\\\u00[01][0-9a-f]|[\U00010000-\U0010ffff]")

_Step = str | int


class _Number(str):
    """The text of a number."""


class _Object(list[tuple[str, Any]]):
    """The members of an object, in their order; a name may be there twice."""


def _steps(path: str) -> tuple[_Step, ...]:
    """Return the names and indexes of a path such as `$.a['b'][0]`."""
    steps: list[_Step] = []
    at = 1
    while path.startswith("$") and (found := _STEP.match(path, at)):
        steps.append(int(found[3]) if found[3] else found[1] or found[2])
        at = found.end()
    if path[:1] != "$" or at < len(path):
        raise refuse(_JSON, f"needs a path of names and indexes, such as $.a['b'][0], not {path!r}")
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


def _parsed(item: str, *, whole: bool) -> tuple[bool, Any]:
    """Return the first value of a text, and whether it begins with one.

    `whole` says that the value itself is asked for, not a part of it.
    """
    found = _BEGINNING.match(item)
    if not found:
        return False, None
    try:
        value, end = _decoder().raw_decode(item, found.end())
    except ValueError as error:
        if _SINGLE_QUOTE.search(item):
            raise refuse(_JSON, f"does not read JSON with single quotes: {item!r}") from error
        return False, None
    ends = item[end : end + 1] in ("", " ", "\t", "\r", "\n")
    if whole and not ends and not isinstance(value, list):
        raise refuse(_JSON, f"does not read a value that other text follows: {item!r}")
    return True, value


def _at(value: Any, steps: Sequence[_Step]) -> str | None:
    """Return the text of the part of a value at the end of a path; None if there is no such part.

    A null member of an object counts as absent; a null element of an array does not.
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
    if len(given) <= _LONGEST_NUMBER and re.fullmatch(r"-?\d+", given):
        return "0" if given == "-0" else str(given)
    try:
        exact = Decimal(given)
    except ArithmeticError:  # The exponent has too many digits.
        exact = Decimal("Infinity")
    plain = (
        exact.is_finite()
        and len(given) <= _LONGEST_NUMBER
        and len(exact.as_tuple().digits) <= _MOST_DIGITS
    )
    if not plain or not (exact.is_zero() or -3 <= exact.adjusted() <= 6):
        raise refuse(_JSON, f"does not write the number {given} as Spark does")
    return repr(float(exact))


def _json_part(value: Any, path: str | None, kind: pa.DataType) -> Any:
    if path is None:
        return of_distinct(lambda _item: None)(text(value), kind)
    steps = _steps(path)

    def part(item: str) -> str | None:
        try:
            is_json, value = _parsed(item, whole=not steps)
            found = _at(value, steps) if is_json else None
        except RecursionError as error:
            raise refuse(_JSON, "does not read JSON that is nested too deeply") from error
        if found is not None and not is_unicode(found):
            raise refuse(_JSON, f"does not read the escapes of {item!r}, which are not characters")
        return found

    return of_distinct(part)(text(value), kind)


# The table -------------------------------------------------------------------------------------


def _octets(item: str) -> int:
    return len(item.encode())


def _repeat(value: Any, count: int, _kind: pa.DataType) -> Any:
    return pc.binary_repeat(text(value), max(0, count))


def _chr(item: int) -> str:
    return "" if item < 0 else chr(item & 0xFF)


_S = "string"


def _trim_text(side: str) -> Callable[[Args, Sequence[str]], str | None]:
    return lambda _, texts: f"trim({side} {texts[1]} FROM {texts[0]})" if len(texts) == 2 else None


def _of_side(name: str, side: str) -> Function:
    """Return `ltrim` or `rtrim`, to which SQL text names the characters to trim first."""
    return Function(
        STRING,
        (_S, "string!"),
        _trim(f"utf8_{name}"),
        1,
        rewrite=lambda args: Call(name, (args[1], args[0])) if len(args) == 2 else None,
        text=_trim_text(side),
    )


TEXTS: dict[str, Function] = {
    "upper": Function(STRING, (_S,), _case("ascii_upper", str.upper), aliases=("ucase",)),
    "lower": Function(STRING, (_S,), _case("ascii_lower", str.lower), aliases=("lcase",)),
    "initcap": Function(STRING, (_S,), of_distinct(_initcap)),
    "length": Function(
        INTEGER,
        (_S,),
        lambda value, _: pc.utf8_length(text(value)),
        aliases=("char_length", "character_length", "len"),
    ),
    "octet_length": Function(INTEGER, (_S,), lambda value, _: pc.binary_length(text(value))),
    "bit_length": Function(INTEGER, (_S,), of_distinct(lambda item: 8 * _octets(item))),
    "ascii": Function(INTEGER, (_S,), of_distinct(lambda item: ord(item[0]) if item else 0)),
    "chr": Function(STRING, ("whole",), of_distinct(_chr), aliases=("char",)),
    "space": Function(STRING, ("whole",), of_distinct(lambda item: " " * max(0, item))),
    "concat_ws": Function(STRING, ("string!", TEXT), _concat_ws, 1, repeats=True, of_null=True),
    "substring": Function(STRING, (_S, "whole!", "whole!"), _substring, 2, aliases=("substr",)),
    "left": Function(STRING, (_S, "whole!"), _left),
    "right": Function(STRING, (_S, "whole!"), _right),
    "split_part": Function(STRING, (_S, "string!", "whole!"), _per_item(_split_part)),
    "substring_index": Function(STRING, (_S, "string!", "whole!"), _per_item(_substring_index)),
    "overlay": Function(STRING, (_S, "string!", "whole!", "whole!"), _per_item(_overlay), 3),
    "instr": Function(INTEGER, (_S, "string!"), _per_item(lambda item, part: item.find(part) + 1)),
    "locate": Function(INTEGER, ("string!", _S, "whole!"), _locate, 2, rewrite=_from_nowhere),
    "trim": Function(
        STRING,
        (_S, "string!"),
        _trim("utf8_trim"),
        1,
        aliases=("btrim",),
        text=_trim_text("BOTH"),
    ),
    "ltrim": _of_side("ltrim", "LEADING"),
    "rtrim": _of_side("rtrim", "TRAILING"),
    "replace": Function(STRING, (_S, "string!", "string!"), _replace, 2),
    _JSON: Function(STRING, (_S, "string!"), _json_part),
    "translate": Function(STRING, (_S, "string!", "string!"), _per_item(_translate)),
    "repeat": Function(STRING, (_S, "whole!"), _repeat),
    "lpad": Function(STRING, (_S, "whole!", "string!"), _pad("utf8_lpad"), 2),
    "rpad": Function(STRING, (_S, "whole!", "string!"), _pad("utf8_rpad"), 2),
}
