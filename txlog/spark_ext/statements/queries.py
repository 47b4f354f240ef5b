"""Queries that name tables by paths, or by names of which Spark's catalog does not give a path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from txlog.base.errors import InvalidInputError, UnsupportedFeatureError
from txlog.base.moments import format_moment
from txlog.expressions.tree import quote_name, quote_text
from txlog.spark_ext.catalog import path_in, split_name, table_location
from txlog.spark_ext.engine import format_known
from txlog.spark_ext.reads import read
from txlog.spark_ext.reads.read_frame import as_option
from txlog.spark_ext.statements.ground import QUERIES, Ground
from txlog.spark_ext.statements.statement_text import (
    Moment,
    Reader,
    Reference,
    is_path,
    references,
    tokens_of,
)
from txlog.spark_ext.writes.merge import table
from txlog.store.unity.tables import as_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Queries(Ground):
    """Queries, and statements of Spark that contain one."""

    def _query(self, text: str) -> DataFrame:
        """Run a query. Frames replace the tables that Spark cannot read by name."""
        embedded, frames = self._embedded(text)
        return self.spark.sql(embedded, **frames) if frames else self.spark.sql(text)

    def _embedded(self, text: str) -> tuple[str, dict[str, Any]]:
        """Return a query for `spark.sql`, with the frames that it names in braces."""
        text = _without_short_queries(text)
        pieces, frames, done = list[str](), dict[str, Any](), 0
        for one in references(text):
            frame = self._frame(one)
            if frame is None:
                continue
            key = f"txlog_{len(frames)}"
            frames[key] = frame
            pieces += [escaped(text[done : one.start]), "{", key, "}", own_alias(one)]
            done = one.end
        return "".join([*pieces, escaped(text[done:])]), frames

    def _frame(self, one: Reference) -> DataFrame | None:
        """Return the rows of a table in a query; None if Spark finds it by its name."""
        place = self._place(one.name)
        if place is None and one.changes is not None:
            place = table_location(self.spark, one.name)  # It raises.
        if place is None:
            return None
        if one.changes is not None:
            return self._changes(place, one.changes)
        version, timestamp = self._moment(one.moment)
        return read(self.spark, place, version, timestamp, storage_options=self.storage_options)

    def _changes(self, place: str, span: tuple[str, ...]) -> DataFrame:
        """Return the changes between two versions or times, each as SQL; the end may be omitted."""
        if not 1 <= len(span) <= 2:
            raise InvalidInputError(
                argument="text",
                reason=f"table_changes has {len(span) + 1} arguments",
                remedy="Write table_changes('t', start) or table_changes('t', start, end)",
            )
        reader = self.spark.read.format("txlog").option("readChangeFeed", "true")
        asked: dict[str, Any] = {}
        for edge, text in zip(("start", "end"), span, strict=False):
            if text.isdecimal():
                asked[f"{edge}_version"] = int(text)
                reader = reader.option(f"{edge}ingVersion", text)
                continue
            _, timestamp = self._moment(Moment(None, text))
            assert timestamp is not None
            asked[f"{edge}_timestamp"] = timestamp
            moment = format_moment(timestamp * 1000, digits=3, zone="Z")
            reader = reader.option(f"{edge}ingTimestamp", moment)
        # The data source would raise the error within one of Spark.
        table(self.spark, place, storage_options=self.storage_options).changes(**asked)
        place, options = as_text(place, self.storage_options or {})
        if options:
            reader = reader.option("secretStorageOptions", as_option(options))
        with format_known():
            return reader.load(place)

    def _moment(self, moment: Moment | None) -> tuple[int | None, int | None]:
        """Return a version, or a time in milliseconds."""
        if moment is None or moment.timestamp is None:
            return None if moment is None else moment.version, None
        query = f"SELECT unix_millis(CAST({moment.timestamp} AS TIMESTAMP)) AS ms"
        (row,) = self.spark.sql(query).collect()
        if row["ms"] is None:
            raise InvalidInputError(
                argument="text",
                reason=f"{moment.timestamp} is not a timestamp",
                remedy="Write a time",
            )
        return None, row["ms"]

    def _by_spark(self) -> DataFrame:
        """Let Spark run the statement; frames replace the tables in its query, if it has one."""
        reader = Reader(self.text, tokens_of(self.text))
        if reader.accepts("ALTER", "VIEW"):
            return self._altered_view(reader)
        if reader.sees("CREATE") and reader.finds("AS"):
            head = Reader(self.text, tokens_of(self.text), 1)
            if (view := _view_of(head)) is not None:
                return self._view(view, head)
            reader.expect("AS")
        elif reader.accepts("EXPLAIN"):
            while any(map(reader.accepts, ("EXTENDED", "CODEGEN", "COST", "FORMATTED"))):
                pass
        elif any(map(reader.sees, ("MERGE", "UPDATE", "DELETE"))):
            return self._query(self.text)  # It changes a table of another catalog.
        elif not reader.sees("INSERT") and not reader.sees("WITH") and not reader.sees("FROM"):
            return self.spark.sql(self.text)
        embedded, frames = self._embedded_from(reader)
        return self.spark.sql(embedded, **frames) if frames else self.spark.sql(self.text)

    def _embedded_from(self, reader: Reader) -> tuple[str, dict[str, Any]]:
        """Return the statement whose query begins at the next token, and the frames in it."""
        start = len(self.text) if reader.token is None else reader.token.start
        embedded, frames = self._embedded(self.text[start:])
        return escaped(self.text[:start]) + embedded, frames

    def _view(self, view: _View, reader: Reader) -> DataFrame:
        """Create a temporary view of a query that names tables of txlog."""
        start = len(self.text) if reader.token is None else reader.token.start
        embedded, frames = self._embedded(self.text[start:])
        if not frames:
            return self.spark.sql(self.text)
        if not view.is_temporary:
            return self.spark.sql(self.text[:start] + self._lasting(self.text[start:], view.name))
        return self._shown_as(view, self.spark.sql(embedded, **frames))

    def _altered_view(self, reader: Reader) -> DataFrame:
        """Give a view another query, which may name tables of txlog."""
        name = reader.name()
        if not reader.accepts("AS") and not any(reader.sees(word) for word in QUERIES):
            return self.spark.sql(self.text)  # Its name, or its properties.
        start = len(self.text) if reader.token is None else reader.token.start
        embedded, frames = self._embedded(self.text[start:])
        if not frames:
            return self.spark.sql(self.text)
        parts = split_name(name)
        found = self.spark.catalog.getTable(name)  # Raises if there is none.
        if not found.isTemporary:
            return self.spark.sql(self.text[:start] + self._lasting(self.text[start:], parts[-1]))
        is_global = len(parts) > 1
        view = _View(parts[-1], replaces=True, is_global=is_global, is_temporary=True)
        return self._shown_as(view, self.spark.sql(embedded, **frames))

    def _shown_as(self, view: _View, frame: DataFrame) -> DataFrame:
        """Make a temporary view of a frame."""
        if view.is_global and view.replaces:
            frame.createOrReplaceGlobalTempView(view.name)
        elif view.is_global:
            frame.createGlobalTempView(view.name)
        elif view.replaces:
            frame.createOrReplaceTempView(view.name)
        else:
            frame.createTempView(view.name)
        return self._nothing()

    def _lasting(self, text: str, view: str) -> str:
        """Return the query of a view that Spark's catalog keeps: it names tables with their paths.

        Raises
        ------
        UnsupportedFeatureError
            The query names a table by its path, a version, or changes, which such a view cannot.
        """
        text = _without_short_queries(text)
        pieces, done = list[str](), 0
        for one in references(text):
            place = self._place(one.name)
            if place is None:
                continue
            if path_in(one.name) is not None or one.moment is not None or one.changes is not None:
                raise UnsupportedFeatureError(
                    reason=f"Spark's catalog cannot keep the view {view}, because Spark alone "
                    f"does not find {one.name} as the query names it",
                    remedy="Name the table as the catalog has it, without a version, or write "
                    "CREATE TEMPORARY VIEW (spark_ext.create_view)",
                )
            if self.storage_options:
                raise UnsupportedFeatureError(
                    reason=f"the view {view} would keep the options of the store in Spark's "
                    "catalog, which shows them to all of its users",
                    remedy="Write CREATE TEMPORARY VIEW (spark_ext.create_view)",
                )
            pieces += [text[done : one.end], f" WITH ('path'={quote_text(place)})"]
            done = one.end
        return "".join([*pieces, text[done:]])


@dataclass(frozen=True)
class _View:
    name: str
    replaces: bool
    is_global: bool
    is_temporary: bool


def _view_of(reader: Reader) -> _View | None:
    """Return the view that a statement defines, after CREATE, and go to its query.

    None for another statement, and for views with clauses that only Spark reads.
    """
    replaces = reader.accepts("OR", "REPLACE")
    is_global = reader.accepts("GLOBAL")
    is_temporary = reader.accepts("TEMPORARY") or reader.accepts("TEMP")
    if not reader.accepts("VIEW"):
        return None
    reader.accepts("IF", "NOT", "EXISTS")
    name = split_name(reader.name())
    if not is_temporary and not reader.sees("AS"):  # Spark reads the columns and the comment.
        reader.finds("AS")
    if not reader.accepts("AS"):
        return None
    return _View(name[-1], replaces, is_global, is_temporary)


_SET_OPERATORS = ("UNION", "EXCEPT", "MINUS", "INTERSECT")
_COMBINING = ("", *_SET_OPERATORS)
_QUANTIFIERS = ("ALL", "DISTINCT")
_COMBINED = (*_COMBINING, *_QUANTIFIERS)
# Before a parenthesis with a query. After other names it has arguments, as in `f(TABLE t)`.
_BEFORE_QUERIES = (*_COMBINED, "AS", "IN", "EXISTS", "FROM", "JOIN", "(", ",", "=", "USING")


def _without_short_queries(text: str) -> str:
    """Return a query with `SELECT * FROM t` in place of `TABLE t`, which sqlglot cannot parse."""
    pieces, done = list[str](), 0
    tokens = tokens_of(text)
    words = ["", "", *(token.word or "`" for token in tokens)]
    for at, token in enumerate(tokens):
        is_named = at + 1 < len(tokens) and tokens[at + 1].is_name
        is_inside = words[at + 1] == "(" and words[at] in _BEFORE_QUERIES
        # After SELECT DISTINCT, it is a column.
        is_whole = words[at + 1] in _QUANTIFIERS and words[at] in _SET_OPERATORS
        is_query = is_inside or is_whole or words[at + 1] in _COMBINING
        if token.word == "TABLE" and is_named and is_query:
            pieces += [text[done : token.start], "SELECT * FROM"]
            done = token.end
    return "".join([*pieces, text[done:]])


def last_part(name: str) -> str | None:
    """Return the last part of a catalog table's name, for expressions; None for a path."""
    try:
        return None if is_path(name) else split_name(name)[-1]
    except InvalidInputError:
        return None


def own_alias(one: Reference) -> str:
    """Return SQL that gives a replaced table its own name as alias, unless it has another one."""
    name = None if one.has_alias or one.changes is not None else last_part(one.name)
    return "" if name is None else f" AS {quote_name(name)}"


def escaped(text: str) -> str:
    """Return a text for `spark.sql` with frames, in which braces have no meaning."""
    return text.replace("{", "{{").replace("}", "}}")
