r"""Java's regular expressions, as far as Python and RE2 read them in the same way; SQL's functions.

`java_regex` reads a pattern and writes it for the other two engines, or refuses it. It accepts
characters, `.`, classes (`[a-z]`, `[^"]`, `\d \w \s` and their opposites), groups, alternatives,
greedy and lazy repetition, `^`, `$` at the end, and `(?i)` at the beginning for ASCII letters. All
three engines look for the leftmost match and try alternatives in order. It refuses patterns that
they read differently or not at all: look-around, references, possessive and atomic groups, `\b`,
nested classes, letters beyond ASCII under `(?i)`, and the repetition of a part that may be empty.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from txlog.base.arrow import pc
from txlog.base.errors import InvalidInputError
from txlog.expressions.signatures import INTEGER, Function, refuse, text
from txlog.expressions.type_rules import BOOLEAN
from txlog.expressions.values import of_distinct
from txlog.schema.types import STRING, ArrayType

# The line breaks that a dot does not match and `$` ignores at the end.
_BREAKS = "\n\r\x85\u2028\u2029"
_CLASSES = {"d": "0-9", "w": "a-zA-Z0-9_", "s": r" \t\n\x0b\f\r"}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_COUNT = re.compile(r"\{(\d{1,3})(,(\d{1,3})?)?\}", re.ASCII)
_END_IN_PYTHON = "(?=(?:\r\n|[\r\x85\u2028\u2029])?\\Z|(?<!\r)(?=\n\\Z))"


@dataclass(frozen=True)
class JavaRegex:
    """A pattern for Python and for RE2, where `$` means the very end of a text."""

    python: str
    re2: str
    may_be_empty: bool
    has_end: bool  # The pattern has a `$`, which ignores a line break at the end.
    groups: int = 0
    # Groups in a repeated part: the engines may report another repetition for them.
    repeated: frozenset[int] = frozenset()


def java_regex(name: str, pattern: str) -> JavaRegex:
    """Return a Java pattern in the forms of Python and RE2.

    Raises
    ------
    InvalidInputError
        The pattern is invalid, or Python or RE2 would read it in another way. The error names the
        function and the part.
    """
    reader = _Reader(name, pattern)
    found = reader.alternatives()
    if reader.place < len(reader.text):
        raise reader.refused("a closing parenthesis without an opening one")
    return replace(found, groups=reader.groups, repeated=frozenset(reader.repeated))


class _Reader:
    """Reads a pattern from left to right."""

    def __init__(self, name: str, pattern: str) -> None:
        self._name, self._pattern = name, pattern
        self._folds = pattern.startswith("(?i)")
        self.text = pattern[4:] if self._folds else pattern
        self.place = 0
        self.groups = 0
        self.repeated: set[int] = set()

    def refused(self, what: str) -> InvalidInputError:
        return InvalidInputError(
            argument="where",
            reason=f"{self._name} does not support the pattern {self._pattern!r}: {what}",
            remedy="Use a regular expression that Java, Python and RE2 read in the same way",
        )

    def _peek(self) -> str:
        return self.text[self.place : self.place + 1]

    def _next(self) -> str:
        character = self._peek()
        if not character:
            raise self.refused("the pattern ends too early")
        self.place += 1
        return character

    def alternatives(self, depth: int = 0) -> JavaRegex:
        if depth > 50:
            raise self.refused("groups are nested too deeply")
        branches = [self._sequence(depth)]
        while self._peek() == "|":
            self.place += 1
            branches.append(self._sequence(depth))
        return JavaRegex(
            "|".join(branch.python for branch in branches),
            "|".join(branch.re2 for branch in branches),
            any(branch.may_be_empty for branch in branches),
            any(branch.has_end for branch in branches),
        )

    def _sequence(self, depth: int) -> JavaRegex:
        parts: list[JavaRegex] = []
        while (character := self._peek()) and character not in "|)":
            if parts and parts[-1].has_end:
                raise self.refused("$ is not at the end")
            before = self.groups
            parts.append(self._repeated(self._atom(depth), before))
        return JavaRegex(
            "".join(part.python for part in parts),
            "".join(part.re2 for part in parts),
            all(part.may_be_empty for part in parts),
            any(part.has_end for part in parts),
        )

    def _atom(self, depth: int) -> JavaRegex:
        character = self._next()
        match character:
            case "(":
                return self._group(depth)
            case "[":
                return self._same(self._class())
            case ".":
                return self._same(f"[^{_BREAKS}]")
            case "^":
                return replace(self._same("^"), may_be_empty=True)
            case "$":
                return JavaRegex(_END_IN_PYTHON, r"\z", True, True)
            case "\\":
                escaped = self._escaped()
                return self._same(f"[{escaped}]" if len(escaped) > 2 else escaped)
            case "*" | "+" | "?" | "{":
                raise self.refused(f"{character} repeats nothing")
        return self._same(self._character(character))

    def _same(self, text: str) -> JavaRegex:
        return JavaRegex(text, text, False, False)

    def _character(self, character: str) -> str:
        if self._folds and character.isalpha():
            if not character.isascii():
                raise self.refused(f"(?i) with {character}")
            return f"[{character.lower()}{character.upper()}]"
        return re.escape(character)

    def _escaped(self) -> str:
        """Return the meaning of a backslash and a character, as content of a class."""
        character = self._next()
        if inside := _CLASSES.get(character.lower()):
            return f"^{inside}" if character.isupper() else inside
        if character in _CONTROLS:
            return re.escape(_CONTROLS[character])
        if character.isalnum() or not character.isascii():
            raise self.refused(f"\\{character}")
        return re.escape(character)

    def _class(self) -> str:
        """Return a class in brackets. Inside it, Java reads `[` and `&&` as further classes."""
        inside = ""
        negated = self._peek() == "^"
        self.place += negated
        first = True
        while (character := self._next()) != "]" or first:
            if (
                character in "[]"
                or (character == "&" and self._peek() == "&")
                or (character == "^" and first)
            ):
                raise self.refused(f"{character} inside a class")
            first = False
            if character == "\\":
                part = self._escaped()
                if part.startswith("^"):
                    raise self.refused("a negated class inside a class")
                if len(part) > 2:
                    inside += part
                    continue
            else:
                part = re.escape(character)
            if self._peek() == "-" and self.text[self.place + 1 : self.place + 2] not in ("]", ""):
                self.place += 1
                last = self._next()
                if last in "[&" or (last == "\\" and self._peek().isalnum()):
                    raise self.refused("a range that ends with a class")
                end = self._escaped() if last == "\\" else re.escape(last)
                inside += self._range(part, end)
            else:
                inside += self._folded(part)
        return f"[{'^' if negated else ''}{inside}]"

    def _folded(self, part: str) -> str:
        if self._folds and part[-1].isalpha():
            if not part.isascii():
                raise self.refused(f"(?i) with {part}")
            return part.lower() + part.upper()
        return part

    def _range(self, first: str, last: str) -> str:
        low, high = first[-1], last[-1]
        if low > high:
            raise self.refused(f"the range {low}-{high}")
        if self._folds:
            plain = low.isascii() and high.isascii()
            if plain and low.isalpha() and high.isalpha() and low.isupper() == high.isupper():
                return f"{low.lower()}-{high.lower()}{low.upper()}-{high.upper()}"
            if not (plain and low.isdigit() and high.isdigit()):
                raise self.refused(f"(?i) with the range {low}-{high}")
        return f"{first}-{last}"

    def _group(self, depth: int) -> JavaRegex:
        opening = "("
        if self._peek() == "?":
            if self.text[self.place : self.place + 2] != "?:":
                raise self.refused(f"the group (?{self.text[self.place + 1 : self.place + 2]}")
            self.place += 2
            opening = "(?:"
        else:
            self.groups += 1
        inner = self.alternatives(depth + 1)
        if self._peek() != ")":
            raise self.refused("a group is not closed")
        self.place += 1
        return replace(inner, python=f"{opening}{inner.python})", re2=f"{opening}{inner.re2})")

    def _repeated(self, atom: JavaRegex, before: int) -> JavaRegex:
        character = self._peek()
        if character in ("*", "+", "?"):
            self.place += 1
            repetition, least = character, int(character == "+")
        elif character == "{":
            counts = _COUNT.match(self.text, self.place)
            if counts is None or int(counts[3] or counts[1]) < int(counts[1]):
                raise self.refused("a repetition must be {n}, {n,} or {n,m}")
            self.place = counts.end()
            repetition, least = counts[0], int(counts[1])
        else:
            return atom
        if atom.may_be_empty or atom.has_end:
            raise self.refused("the repeated part may be empty")
        following = self._peek()
        if following == "?":
            self.place += 1
            repetition += "?"
        elif following and following in "*+{":
            raise self.refused(f"{repetition}{following}")
        if not repetition.startswith("?"):
            self.repeated.update(range(before + 1, self.groups + 1))
        return replace(
            atom,
            python=atom.python + repetition,
            re2=atom.re2 + repetition,
            may_be_empty=least == 0,
        )


# Functions -------------------------------------------------------------------------------------


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


_S = "string"

REGEXES: dict[str, Function] = {
    "rlike": Function(BOOLEAN, (_S, "string!"), _rlike, aliases=("regexp", "regexp_like")),
    "regexp_extract": Function(STRING, (_S, "string!", "whole!"), _regexp_extract, 2),
    "regexp_replace": Function(STRING, (_S, "string!", "string!"), _regexp_replace),
    "regexp_count": Function(INTEGER, (_S, "string!"), _regexp_count),
    "regexp_substr": Function(STRING, (_S, "string!"), _regexp_substr),
    "split": Function(ArrayType(STRING, False), (_S, "string!", "whole!"), _split, 2),
}
