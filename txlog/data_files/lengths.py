"""The lengths of texts in columns that were declared as CHAR(n) or VARCHAR(n). Pure.

Delta has no such types. Spark stores a string, and the declared type as text in the metadata of
the column, such as `struct<code:char(2),names:array<varchar(9)>>`. Names in it need no quotes, and
may be keywords or contain any character. So the text is read beside the type of the column, which
has the same names.
"""

from __future__ import annotations

import re

from txlog.expressions.tree import quote_name
from txlog.schema.types import (
    SIZED_TEXT,
    STRING,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    type_name,
)

_SIZED = re.compile(r"\b(?:var)?char(?:acter)?\s*\(", re.IGNORECASE)
_LEAF = re.compile(r"\s*([a-z_][\w ]*?)\s*(?:\(\s*([\d\s,]*)\))?\s*(?=[,>]|$)", re.IGNORECASE)
_LIMITED = {"char", "character", "varchar"}


def declared_type(field: StructField) -> str | None:
    """Return the declared type of a column if it limits the length of texts."""
    text = field.metadata.get(SIZED_TEXT)
    return text if isinstance(text, str) and _SIZED.search(text) else None


def fits_declared(field: StructField, text: str) -> str:
    """Return SQL that is true if no text in a column is too long; empty if none is limited.

    Parameters
    ----------
    text
        The declared type of the column. It may lack fields, which were added to structs later.

    Raises
    ------
    ValueError
        The text is no type, or not that of the column; the message says where they differ.
    """
    reader = _Reader(text)
    found = reader.rule(quote_name(field.name), field.type, 0)
    if text[reader.at :].strip():
        raise ValueError(f"{text[reader.at :]!r} follows the type")
    return found


class _Reader:
    """A position in the text of a declared type."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.at = 0

    def rule(self, value: str, kind: DataType, depth: int) -> str:
        """Read a type; return the rule of a value, which is SQL of the type `kind`."""
        if isinstance(kind, StructType) and self._takes("struct"):
            parts = self._fields(value, kind, depth)
        elif isinstance(kind, ArrayType) and self._takes("array"):
            parts = [self._items(value, kind.element, depth)]
            self._need(">")
        elif isinstance(kind, MapType) and self._takes("map"):
            parts = [self._items(f"map_keys({value})", kind.key, depth)]
            self._need(",")
            parts.append(self._items(f"map_values({value})", kind.value, depth))
            self._need(">")
        else:
            parts = [self._leaf(value, kind)]
        return " AND ".join(f"coalesce({part}, true)" for part in parts if part)

    def _fields(self, value: str, kind: StructType, depth: int) -> list[str]:
        parts: list[str] = []
        if self._takes(">", ""):
            return parts
        while True:
            field = self._name(kind)
            self._need(":")
            parts.append(self.rule(f"({value}).{quote_name(field.name)}", field.type, depth))
            if self._takes(">", ""):
                return parts
            self._need(",")

    def _items(self, value: str, kind: DataType, depth: int) -> str:
        item = f"`item {depth}`"
        rule = self.rule(item, kind, depth + 1)
        return rule and f"forall({value}, {item} -> {rule})"

    def _leaf(self, value: str, kind: DataType) -> str:
        found = _LEAF.match(self._text, self.at)
        if found is None or isinstance(kind, StructType | ArrayType | MapType):
            raise self._differs(kind)
        self.at = found.end()
        if found[1].lower() not in _LIMITED:
            return ""
        if kind != STRING or not (found[2] or "").strip().isdecimal():
            self.at = found.start()
            raise self._differs(kind)
        return f"length({value}) <= {int(found[2])}"

    def _name(self, kind: StructType) -> StructField:
        """Read the name of a field, which may be quoted."""
        self._skip()
        rest = self._text[self.at :].lower()
        forms = (
            (len(form), field)
            for field in kind.fields
            for form in (field.name.lower(), quote_name(field.name).lower())
            if rest[len(form) :].lstrip().startswith(":") and rest.startswith(form)
        )
        size, found = max(forms, key=lambda one: one[0], default=(0, None))
        if found is None:
            raise self._differs(kind)
        self.at += size
        return found

    def _takes(self, word: str, bracket: str = "<") -> bool:
        """Read a word and a bracket if they come next."""
        pattern = re.compile(rf"\s*{word}\s*{bracket}", re.IGNORECASE)
        if found := pattern.match(self._text, self.at):
            self.at = found.end()
        return found is not None

    def _need(self, character: str) -> None:
        if not self._takes(character, ""):
            raise ValueError(f"{character!r} is expected before {self._text[self.at :]!r}")

    def _skip(self) -> None:
        while self._text[self.at : self.at + 1].isspace():
            self.at += 1

    def _differs(self, kind: DataType) -> ValueError:
        return ValueError(f"{self._text[self.at :]!r} does not begin with {type_name(kind)}")
