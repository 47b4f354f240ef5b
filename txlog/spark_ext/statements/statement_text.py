"""Parse SQL statements into their parts, as text.

Pure. Expressions are never rebuilt: Spark gets them exactly as written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from txlog.base.errors import InvalidInputError

_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")
_GENERIC = ("STRUCT", "ARRAY", "MAP")
_AT_VERSION = re.compile(r"(.*)@v(\d+)", re.DOTALL)


@dataclass(frozen=True)
class Token:
    """A word, a quoted name, a constant or a sign."""

    raw: str
    start: int
    end: int  # After its last character.
    value: str  # The text of a constant or a quoted name, without quotes.
    is_name: bool  # In backticks, or a word.
    is_text: bool

    @property
    def word(self) -> str:
        """The word in upper case, or the sign; empty for a quoted name or text."""
        return "" if self.raw[:1] in "`'\"" else self.raw.upper()


def tokens_of(text: str) -> tuple[Token, ...]:
    """Return the tokens of a statement, without comments and without final semicolons.

    Raises
    ------
    sqlglot.errors.TokenError
        The text is not SQL.
    """
    from sqlglot import TokenType
    from sqlglot.dialects.spark import Spark  # It is slow to import, and only text needs it.

    opening = "( "  # For some first words of a text, sqlglot returns the rest as one token.
    found: list[Token] = []
    for token in Spark().tokenize(opening + text)[1:]:
        start = token.start - len(opening)
        raw = text[start : token.end + 1 - len(opening)]
        is_text = token.token_type == TokenType.STRING
        if is_text and found and found[-1].is_text and found[-1].end == start:  # 'it''s'
            before = found.pop()
            value = before.value + raw[0] + token.text
            raw, start = text[before.start : start + len(raw)], before.start
            found.append(Token(raw, start, start + len(raw), value, False, True))
        elif is_text or raw[:1] == "`":
            found.append(Token(raw, start, start + len(raw), token.text, not is_text, is_text))
        else:  # For sqlglot, `ORDER BY` is one token.
            for part in re.finditer(r"\S+", raw):
                is_name = re.match(r"\w", part[0]) is not None
                at = start + part.start()
                found.append(Token(part[0], at, at + len(part[0]), part[0], is_name, False))
    while found and found[-1].raw == ";":
        found.pop()
    return tuple(found)


@dataclass(frozen=True)
class Moment:
    """The version of a table in a statement, by its number or by a time."""

    version: int | None = None
    timestamp: str | None = None  # A Spark expression.


@dataclass(frozen=True)
class Relation:
    """A table, function or query to select from, and its alias if it has one."""

    text: str
    alias: str | None


class Reader:
    """A cursor over the tokens of a statement. Methods raise `InvalidInputError`."""

    def __init__(self, text: str, tokens: Sequence[Token], at: int = 0) -> None:
        self._text = text
        self._tokens = tokens
        self._at = at

    @property
    def token(self) -> Token | None:
        """The next token, or None at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    @property
    def at(self) -> int:
        """The index of the next token."""
        return self._at

    @property
    def passed(self) -> int:
        """The end of the previous token, in characters."""
        return self._tokens[self._at - 1].end

    def sees(self, *words: str) -> bool:
        """Return whether the next tokens are these words or signs."""
        ahead = self._tokens[self._at : self._at + len(words)]
        return tuple(token.word for token in ahead) == words

    def accepts(self, *words: str) -> bool:
        """Skip these words if they are the next tokens; return whether they were."""
        found = self.sees(*words)
        self._at += len(words) if found else 0
        return found

    def expect(self, *words: str) -> None:
        """Skip these words, which must be the next tokens."""
        if not self.accepts(*words):
            raise self.unexpected(" ".join(words))

    def end(self) -> None:
        """Raise unless the statement ends here."""
        if self.token is not None:
            raise self.unexpected("the end of the statement")

    def unexpected(self, wanted: str) -> InvalidInputError:
        """Return the error for the next token."""
        there = "the end of the statement" if self.token is None else repr(self.token.raw)
        return InvalidInputError(
            argument="text",
            reason=f"{wanted} was expected, not {there}"
            + ("" if self.token is None else f", at character {self.token.start + 1}"),
            remedy="Write it in a form of docs/sql.md, or run it with Delta Lake",
        )

    def taken(self, wanted: str) -> Token:
        """Skip the next token and return it; `wanted` describes it for an error."""
        token = self.token
        if token is None:
            raise self.unexpected(wanted)
        self._at += 1
        return token

    def quoted(self, wanted: str) -> str:
        """Return a text in quotes, without them; `wanted` describes it for an error."""
        if self.token is None or not self.token.is_text:
            raise self.unexpected(f"{wanted} in quotes")
        return self.taken(wanted).value

    def name(self) -> str:
        """Return a name of one or more parts, as written."""
        first = self.token
        if first is None or not first.is_name:
            raise self.unexpected("a name")
        last = self.taken("a name")
        while self.sees(".") and self._at + 1 < len(self._tokens):
            self._at += 1
            last = self.taken("a name")
        return self._text[first.start : last.end]

    def table(self) -> str:
        """Return a table's name as written, or the path in a text as ``delta.`/path` ``."""
        token = self.token
        if token is None or not token.is_text:
            return self.name()
        path = self.taken("a table").value.replace("`", "``")
        return f"delta.`{path}`"

    def alias(self, *followers: str) -> str | None:
        """Return an alias, with or without `AS`; None if one of these words is next."""
        given = self.accepts("AS")
        token = self.token
        if not given and (token is None or not token.is_name or token.word in followers):
            return None
        return self.taken("an alias").value

    def number(self) -> int:
        """Return a whole number."""
        token = self.taken("a number")
        if not token.value.isdecimal():
            self._at -= 1
            raise self.unexpected("a whole number")
        return int(token.value)

    def until(self, *stops: tuple[str, ...], types: bool = False) -> str:
        """Return the text up to one of these words outside of parentheses, or up to the end.

        With `types`, `<` and `>` of types are parentheses, too.
        """
        first, depth, cases = self._at, 0, 0
        angles = list[int]()  # The depth of each open `<`.
        while (token := self.token) is not None:
            stopped = cases == 0 and any(self.sees(*words) for words in stops)
            if depth == 0 and (token.word in _CLOSING or stopped):
                break
            depth += token.word in _OPENING
            depth -= token.word in _CLOSING
            is_field = self._at > 0 and self._tokens[self._at - 1].raw == "."
            if not is_field and token.word == "CASE":
                cases += 1
            elif not is_field and token.word == "END" and cases:  # Else it is a column.
                cases -= 1
            if types and not token.raw.strip("<>"):  # Elsewhere they are comparisons.
                if self._tokens[self._at - 1].word in _GENERIC:
                    depth += 1
                    angles.append(depth)
                for _ in range(token.raw.count(">")):
                    if angles and angles[-1] == depth:
                        angles.pop()
                        depth -= 1
            self._at += 1
        if self._at == first:
            raise self.unexpected("an expression")
        return self._text[self._tokens[first].start : self._tokens[self._at - 1].end]

    def names(self) -> list[str]:
        """Return texts that commas separate, in parentheses or without them."""
        if self.sees("("):
            return self.items()
        found = [self.until((",",))]
        while self.accepts(","):
            found.append(self.until((",",)))
        return found

    def finds(self, *words: str) -> bool:
        """Go to the next place of these words outside of parentheses; return whether it exists."""
        start = self._at
        self.until(words)
        if self.sees(*words):
            return True
        self._at = start
        return False

    def items(self, *, types: bool = False) -> list[str]:
        """Return the texts in parentheses, which commas separate."""
        self.expect("(")
        found = [] if self.sees(")") else [self.until((",",), types=types)]
        while self.accepts(","):
            found.append(self.until((",",), types=types))
        self.expect(")")
        return found

    def relation(self, *followers: str) -> Relation:
        """Return a table with its version, a function, or a query in parentheses; and its alias."""
        first = self._at
        if self.accepts("("):
            self.until()
            self.expect(")")
        else:
            self.name()
            if self.accepts("("):
                if not self.sees(")"):
                    self.until()
                self.expect(")")
            self.moment()
        end = self._tokens[self._at - 1].end
        alias = self.alias(*followers)
        if alias is not None and self.sees("("):  # AS s(id, x)
            self.items()
            end = self._tokens[self._at - 1].end
        return Relation(self._text[self._tokens[first].start : end], alias)

    def moment(self) -> Moment | None:
        """Return the version after a table's name, or None."""
        start = self._at
        self.accepts("FOR")
        for word, is_version in (
            ("VERSION", True), ("SYSTEM_VERSION", True),
            ("TIMESTAMP", False), ("SYSTEM_TIME", False),
        ):  # fmt: skip
            if self.accepts(word, "AS", "OF"):
                return Moment(version=self.number()) if is_version else Moment(None, self._time())
        self._at = start
        return None

    def changes(self) -> list[str] | None:
        """Return the arguments of `table_changes` if it is next: the table, then the others."""
        is_by_path = self.sees("TABLE_CHANGES_BY_PATH", "(")
        if not is_by_path and not self.sees("TABLE_CHANGES", "("):
            return None
        self._at += 1
        first, *others = self.items() or [""]
        table = Reader(first, tokens_of(first))
        if is_by_path:
            return [table.table(), *others]
        name = table.quoted("the name of a table")
        return [name, *others]

    def skips_with(self) -> frozenset[str]:
        """Go past a `WITH` and its queries; return the names that it defines, in lower case.

        If it is no such `WITH`, nothing is skipped.
        """
        start = self._at
        try:
            return self._skipped_with()
        except InvalidInputError:  # Spark has a better error.
            self._at = start
            return frozenset()

    def _skipped_with(self) -> frozenset[str]:
        found = set[str]()
        if not self.sees("WITH") or self.sees("WITH", "SCHEMA", "EVOLUTION"):
            return frozenset()
        self.expect("WITH")
        self.accepts("RECURSIVE")
        while True:
            found.add("" if self.token is None else self.token.value.lower())
            self.name()
            if self.sees("("):
                self.items()
            if self.accepts("MAX", "RECURSION", "LEVEL"):
                self.number()
            self.accepts("AS")
            self.items()
            if not self.accepts(","):
                return frozenset(found)

    def _time(self) -> str:
        """Return a constant, a call, or a sum of them."""
        first = self._at
        while True:
            token = self.taken("a time")
            if token.word in _OPENING:
                self._at -= 1
                self.items()
            elif token.word == "INTERVAL":
                self.taken("an interval")
                self.taken("a unit")
            elif token.is_name and self.sees("("):
                self.items()
            elif token.is_name and self.token is not None and self.token.is_text:
                self._at += 1  # TIMESTAMP '…'
            if not (self.accepts("+") or self.accepts("-")):
                return self._text[self._tokens[first].start : self._tokens[self._at - 1].end]

    def properties(self, *, valued: bool) -> dict[str, str]:
        """Return properties in parentheses; their names may be quoted. `valued`: with values."""
        found = {}
        self.expect("(")
        while True:
            token = self.taken("a property")
            key = token.value
            while not token.is_text and self.accepts("."):
                key += "." + self.taken("a name").value
            value = ""
            if valued:
                self.accepts("=")
                value = self.taken("a value").value
            found[key] = value
            if self.accepts(")"):
                return found
            self.expect(",")


@dataclass(frozen=True)
class Reference:
    """A table in a query, and the position of its name in characters."""

    name: str
    moment: Moment | None
    start: int
    end: int
    has_alias: bool
    changes: tuple[str, ...] | None = None  # The arguments of `table_changes` after the table.


def references(text: str) -> list[Reference]:
    """Return the tables of a query in their order, without the tables that its `WITH` defines.

    Paths and tables with a version are always found, other names only if sqlglot can parse the
    query.
    """
    tokens = tokens_of(text)
    explicit = _explicit_references(text, tokens)
    marked, pieces, done = dict[str, Reference](), list[str](), 0
    for at, one in enumerate(explicit):
        mark = f"_txlog_{at}_".ljust(one.end - one.start, "_")
        if len(mark) > one.end - one.start:  # Otherwise positions would change.
            return explicit
        marked[mark] = one
        pieces += [text[done : one.start], mark]
        done = one.end
    found = _parsed("".join([*pieces, text[done:]]))
    if found is None:
        return explicit
    known = [
        replace(one, has_alias=has_alias)
        for mark, one in marked.items()
        for name, _, _, has_alias in found
        if name == mark
    ]
    own = [
        Reference(text[start:end], None, start, end, has_alias)
        for name, start, end, has_alias in found
        if name not in marked
    ]
    return sorted([*known, *own], key=lambda one: one.start)


def _explicit_references(text: str, tokens: Sequence[Token]) -> list[Reference]:
    """Return the tables that are paths or have a version."""
    found: list[Reference] = []
    at = 0
    while at < len(tokens):
        if not tokens[at].is_name or (at and tokens[at - 1].raw == "."):
            at += 1
            continue
        reader = Reader(text, tokens, at)
        changes = reader.changes()
        if changes is not None:
            end, following = reader.passed, reader.token
            alias = following is not None and (following.word == "AS" or following.is_name)
            name, *span = changes
            found.append(Reference(name, None, tokens[at].start, end, alias, tuple(span)))
            at = reader.at
            continue
        name = reader.name()
        moment = reader.moment()
        end = reader.passed
        name, versioned = split_version(name)
        if moment is not None or versioned is not None or is_path(name):
            following = reader.token
            alias = following is not None and (following.word == "AS" or following.is_name)
            moment = moment or versioned
            found.append(Reference(name, moment, tokens[at].start, end, alias))
            at = reader.at
        else:
            at += 1
    return found


def is_path(name: str) -> bool:
    """Return whether a name is ``delta.`/path` `` or ``txlog.`/path` ``."""
    return re.fullmatch(r"(?i)`?(delta|txlog)`?\s*\.\s*`[^`]*/[^`]*`", name) is not None


def split_version(name: str) -> tuple[str, Moment | None]:
    """Split ``delta.`/path@v3` `` into the path and the version, which is None without one."""
    found = _AT_VERSION.fullmatch(name[:-1]) if is_path(name) else None
    return (name, None) if found is None else (found[1] + "`", Moment(int(found[2])))


def _parsed(text: str) -> list[tuple[str, int, int, bool]] | None:
    """Return the tables of a query: name, place, and whether it has an alias."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        tree: Any = sqlglot.parse_one(text, dialect="spark")
    except (SqlglotError, RecursionError):
        return None
    found = []
    for table in tree.find_all(exp.Table):
        parts = [part for part in table.parts if isinstance(part, exp.Identifier)]
        if len(parts) < len(table.parts) or not parts:  # A function.
            continue
        if len(parts) == 1 and _is_of_with(table):
            continue
        start = min(int(part.meta["start"]) for part in parts)
        end = max(int(part.meta["end"]) for part in parts) + 1
        found.append((".".join(part.name for part in parts), start, end, bool(table.alias)))
    return found


def _is_of_with(table: Any) -> bool:
    """Return whether a name is that of a query in a `WITH` around it.

    A query of `WITH` sees only those before it, and with `RECURSIVE` also itself.
    """
    from sqlglot import exp

    for cte in table.root().find_all(exp.CTE):
        if cte.alias.lower() != table.name.lower():
            continue
        clause = cte.parent
        ancestors = list(_ancestors(table))
        if not any(one is clause.parent for one in ancestors):
            continue
        inside = [
            at for at, one in enumerate(clause.expressions) if any(a is one for a in ancestors)
        ]
        own = next(at for at, one in enumerate(clause.expressions) if one is cte)
        if not inside or inside[0] > own or (inside[0] == own and clause.args.get("recursive")):
            return True
    return False


def _ancestors(node: Any) -> Iterator[Any]:
    while node.parent is not None:
        node = node.parent
        yield node
