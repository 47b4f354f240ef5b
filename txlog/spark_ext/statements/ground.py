"""What all kinds of statements share: the session, the text, and the tables that it names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from txlog.base.errors import InvalidInputError, NotFoundError, UnsupportedFeatureError
from txlog.spark_ext.catalog import create_view, split_name, table_location, view_place
from txlog.spark_ext.statements.statement_text import Moment, Reader
from txlog.spark_ext.writes.merge import SparkTable, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERIES = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "(")  # The first words of a query.


class NotOursError(Exception):
    """Spark must run the statement, because it names a table of Spark, or can run it as well."""


@dataclass
class Ground(ABC):
    """One statement: a session, and a cursor over its text."""

    spark: SparkSession
    reader: Reader
    storage_options: dict[str, Any]
    text: str
    before: str = ""  # The beginning of its query, if the statement has it before its first word.
    defined: frozenset[str] = frozenset()  # The names that this WITH defines, in lower case.

    # The views through which it changes tables: their names, with the places of the tables.
    views: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)

    @abstractmethod
    def _moment(self, moment: Moment | None) -> tuple[int | None, int | None]:
        """Return a version, or a time in milliseconds."""

    @abstractmethod
    def _query(self, text: str) -> DataFrame:
        """Run a query that may name tables that Spark does not know."""

    def _place(self, name: str) -> str | None:
        """Return the location of a table, or None if Spark may know it in another format.

        Raises
        ------
        NotFoundError
            The name has the form of a path, ``txlog.`folder` ``, and there is no such table.
        """
        try:
            return table_location(self.spark, name)
        except NotFoundError:
            parts = split_name(name)
            if len(parts) == 2 and parts[0].lower() in ("delta", "txlog"):
                raise
            return None
        except (InvalidInputError, UnsupportedFeatureError):
            return None

    def _opened(self, name: str) -> SparkTable:
        place = self._place(name)
        if place is None:
            raise NotOursError
        return table(self.spark, place, storage_options=self.storage_options)

    def _changed(self, name: str) -> SparkTable:
        """Return the table whose rows change, also by a view of `create_view`."""
        place = self._place(name)
        if place is not None:
            return table(self.spark, place, storage_options=self.storage_options)
        found = view_place(self.spark, name)
        if found is None:
            raise NotOursError
        place, options = found
        options = {**options, **self.storage_options}
        self.views.append((name, place, options))
        return table(self.spark, place, storage_options=options)

    def _show(self) -> None:
        """Let the views by which the statement has changed tables show the new versions."""
        for name, place, options in self.views:
            create_view(self.spark, split_name(name)[0], place, storage_options=options)

    def _rest(self) -> str:
        """Return the text from the next token on."""
        token = self.reader.token
        if token is None:
            raise self.reader.unexpected("a query")
        return self.text[token.start :]

    def _nothing(self) -> DataFrame:
        """Return the result of a statement that returns no columns."""
        return self.spark.range(0).select()
