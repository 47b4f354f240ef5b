"""SQL functions of text."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from txlog.arrow import arrow_scalar, pc
from txlog.expressions.regex import JavaRegex, java_regex
from txlog.expressions.signatures import (
    INTEGER,
    Compute,
    Function,
    of_distinct,
    refuse,
    text,
)
from txlog.expressions.type_rules import BOOLEAN
from txlog.schema.types import STRING, ArrayType

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


def _per_item(function: Callable[..., Any]) -> Compute:
    """Return a function whose arguments after the first are constants."""

    def compute(value: Any, *more: Any) -> Any:
        *constants, kind = more
        return of_distinct(lambda item: function(item, *constants))(text(value), kind)

    return compute


# Putting together ------------------------------------------------------------------------------


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


# Regular expressions ---------------------------------------------------------------------------


def _rlike(value: Any, pattern: str, _kind: pa.DataType) -> Any:
    regex = java_regex("rlike", pattern)
    value = text(value)
    found = pc.match_substring_regex(value, regex.re2)
    if not regex.has_end:
        return found
    # `$` ignores one line break at the end.
    shorter = pc.replace_substring_regex(value, "(?:\r\n|[\n\r\x85\u2028\u2029])\\z", "")
    return pc.or_(found, pc.match_substring_regex(shorter, regex.re2))


def _compiled(
    name: str, pattern: str, *, all_of: bool = False
) -> tuple[re.Pattern[str], JavaRegex]:
    """Return a compiled pattern. If all matches are wanted, it must not match an empty string.

    Java finds empty matches between the two UTF-16 units of a character such as an emoji.
    """
    regex = java_regex(name, pattern)
    if all_of and regex.may_be_empty:
        raise refuse(name, f"does not support {pattern!r}, because it may match an empty string")
    return re.compile(regex.python, re.ASCII), regex


def _regexp_extract(value: Any, pattern: str, *more: Any) -> Any:
    group = more[0] if len(more) > 1 else 1
    compiled, regex = _compiled("regexp_extract", pattern)
    if not 0 <= group <= regex.groups or group in regex.repeated:
        raise refuse("regexp_extract", f"does not support group {group} of {pattern!r}")

    def extract(item: str) -> str:
        found = compiled.search(item)
        return "" if found is None else found[group] or ""

    return of_distinct(extract)(text(value), more[-1])


def _regexp_replace(value: Any, pattern: str, replacement: str, kind: pa.DataType) -> Any:
    compiled, regex = _compiled("regexp_replace", pattern, all_of=True)
    parts = re.findall(r"\\(.)|\$(\d+)|([^\\$]+)|(.)", replacement, re.DOTALL)
    taken = {str(group) for group in {*range(min(9, regex.groups) + 1)} - regex.repeated}
    if any(odd or (number and number not in taken) for _, number, _, odd in parts):
        raise refuse("regexp_replace", f"does not support the replacement {replacement!r}")

    def replaced(found: re.Match[str]) -> str:
        return "".join(
            (found[int(number)] or "") if number else escaped or plain
            for escaped, number, plain, _ in parts
        )

    return of_distinct(lambda item: compiled.sub(replaced, item))(text(value), kind)


def _regexp_count(value: Any, pattern: str, kind: pa.DataType) -> Any:
    compiled, _ = _compiled("regexp_count", pattern, all_of=True)
    return of_distinct(lambda item: sum(1 for _ in compiled.finditer(item)))(text(value), kind)


def _regexp_substr(value: Any, pattern: str, kind: pa.DataType) -> Any:
    compiled, _ = _compiled("regexp_substr", pattern)

    def first(item: str) -> str | None:
        found = compiled.search(item)
        # The result is null for an empty string too.
        return None if found is None else found[0] or None

    return of_distinct(first)(text(value), kind)


def _split(value: Any, pattern: str, *more: Any) -> Any:
    limit = more[0] if len(more) > 1 else -1
    compiled, _ = _compiled("split", pattern, all_of=True)

    def parts(item: str) -> list[str]:
        places = [0]
        for found in compiled.finditer(item):
            if 0 < limit <= len(places) // 2 + 1:
                break
            places += found.span()
        places.append(len(item))
        return [item[a:b] for a, b in zip(places[::2], places[1::2], strict=True)]

    return of_distinct(parts)(text(value), more[-1])


# The table -------------------------------------------------------------------------------------


def _octets(item: str) -> int:
    return len(item.encode())


def _repeat(value: Any, count: int, _kind: pa.DataType) -> Any:
    return pc.binary_repeat(text(value), max(0, count))


def _chr(item: int) -> str:
    return "" if item < 0 else chr(item & 0xFF)


_S, _TEXT = "string", "string|whole|date"

TEXTS: dict[str, Function] = {
    "upper": Function(STRING, (_S,), _case("ascii_upper", str.upper)),
    "lower": Function(STRING, (_S,), _case("ascii_lower", str.lower)),
    "initcap": Function(STRING, (_S,), of_distinct(_initcap)),
    "length": Function(INTEGER, (_S,), lambda value, _: pc.utf8_length(text(value))),
    "octet_length": Function(INTEGER, (_S,), lambda value, _: pc.binary_length(text(value))),
    "bit_length": Function(INTEGER, (_S,), of_distinct(lambda item: 8 * _octets(item))),
    "ascii": Function(INTEGER, (_S,), of_distinct(lambda item: ord(item[0]) if item else 0)),
    "chr": Function(STRING, ("whole",), of_distinct(_chr)),
    "space": Function(STRING, ("whole",), of_distinct(lambda item: " " * max(0, item))),
    "concat_ws": Function(STRING, ("string!", _TEXT), _concat_ws, 1, repeats=True, of_null=True),
    "substring": Function(STRING, (_S, "whole!", "whole!"), _substring, 2),
    "left": Function(STRING, (_S, "whole!"), _left),
    "right": Function(STRING, (_S, "whole!"), _right),
    "split_part": Function(STRING, (_S, "string!", "whole!"), _per_item(_split_part)),
    "substring_index": Function(STRING, (_S, "string!", "whole!"), _per_item(_substring_index)),
    "overlay": Function(STRING, (_S, "string!", "whole!", "whole!"), _per_item(_overlay), 3),
    "instr": Function(INTEGER, (_S, "string!"), _per_item(lambda item, part: item.find(part) + 1)),
    "locate": Function(INTEGER, ("string!", _S, "whole!"), _locate, 2),
    "trim": Function(STRING, (_S, "string!"), _trim("utf8_trim"), 1),
    "ltrim": Function(STRING, (_S, "string!"), _trim("utf8_ltrim"), 1),
    "rtrim": Function(STRING, (_S, "string!"), _trim("utf8_rtrim"), 1),
    "replace": Function(STRING, (_S, "string!", "string!"), _replace, 2),
    "translate": Function(STRING, (_S, "string!", "string!"), _per_item(_translate)),
    "repeat": Function(STRING, (_S, "whole!"), _repeat),
    "lpad": Function(STRING, (_S, "whole!", "string!"), _pad("utf8_lpad"), 2),
    "rpad": Function(STRING, (_S, "whole!", "string!"), _pad("utf8_rpad"), 2),
    "rlike": Function(BOOLEAN, (_S, "string!"), _rlike),
    "regexp_extract": Function(STRING, (_S, "string!", "whole!"), _regexp_extract, 2),
    "regexp_replace": Function(STRING, (_S, "string!", "string!"), _regexp_replace),
    "regexp_count": Function(INTEGER, (_S, "string!"), _regexp_count),
    "regexp_substr": Function(STRING, (_S, "string!"), _regexp_substr),
    "split": Function(ArrayType(STRING, False), (_S, "string!", "whole!"), _split, 2),
}
