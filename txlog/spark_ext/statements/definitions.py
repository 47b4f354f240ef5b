"""SQL statements that define tables, or change their columns and properties."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructType as SparkStruct

from txlog.base.errors import InvalidInputError, NotFoundError, UnsupportedFeatureError
from txlog.schema.json import parse_schema
from txlog.schema.types import StructField
from txlog.spark_ext.catalog import split_name, table_location
from txlog.spark_ext.delta.builder import DeltaTableBuilder, IdentityGenerator, one_field
from txlog.spark_ext.delta.delta_table import DeltaTable
from txlog.spark_ext.delta.frames import as_frame
from txlog.spark_ext.statements.statement_text import Moment, Reader, tokens_of
from txlog.spark_ext.writes.merge import SparkTable, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txlog.table.alter import TableAlter

NOTHING = pa.schema([("path", pa.string())])
# What may follow the type of a column.
_CLAUSES = (("NOT", "NULL"), ("DEFAULT",), ("GENERATED",), ("COMMENT",))


class NotOursError(Exception):
    """Spark must run the statement, because it names a table of Spark, or can run it as well."""


@dataclass
class Definitions(ABC):
    """The statements that define tables. Each method runs one kind of them."""

    spark: SparkSession
    reader: Reader
    storage_options: dict[str, Any]
    text: str

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

    def _create(self) -> DataFrame:
        """Create a table in the format `delta` or `txlog`, from columns or a query."""
        reader = self.reader
        replaces = reader.accepts("OR", "REPLACE")
        if not reader.accepts("TABLE"):
            raise NotOursError
        keeps = not replaces and reader.accepts("IF", "NOT", "EXISTS")
        name = reader.table()
        is_shallow = reader.accepts("SHALLOW", "CLONE")
        if is_shallow or reader.accepts("DEEP", "CLONE") or reader.accepts("CLONE"):
            return self._clone(name, is_shallow=is_shallow, replaces=replaces, keeps=keeps)
        columns = reader.items(types=True) if reader.sees("(") else []
        if not reader.accepts("USING") or reader.name().lower() not in ("delta", "txlog"):
            raise NotOursError
        begin = DeltaTable.create
        if replaces or keeps:
            begin = DeltaTable.createOrReplace if replaces else DeltaTable.createIfNotExists
        builder = begin(self.spark).tableName(name)
        for column in columns:
            builder = _with_column(builder, column)
        while reader.token is not None:
            if reader.accepts("PARTITIONED", "BY"):
                builder = builder.partitionedBy([split_name(one)[0] for one in reader.items()])
            elif reader.accepts("CLUSTER", "BY"):
                builder = builder.clusterBy(reader.items())
            elif reader.accepts("LOCATION"):
                builder = builder.location(reader.quoted("a path"))
            elif reader.accepts("COMMENT"):
                builder = builder.comment(reader.quoted("a text"))
            elif reader.accepts("TBLPROPERTIES"):
                for key, value in reader.properties(valued=True).items():
                    builder = builder.property(key, value)
            else:
                break
        if not columns:
            reader.accepts("AS")
            if reader.token is None:  # The table exists already: Spark handles this.
                raise NotOursError
            builder._filled(self._query(self.text[reader.token.start :]))
            return as_frame(self.spark, [], NOTHING)
        reader.end()
        builder.execute()
        return as_frame(self.spark, [], NOTHING)

    def _clone(self, name: str, *, is_shallow: bool, replaces: bool, keeps: bool) -> DataFrame:
        """Create a table as a clone of another one, after the word CLONE."""
        reader = self.reader
        source = self._opened(reader.table())
        version, timestamp = self._moment(reader.moment())
        properties: dict[str, str] = {}
        builder = DeltaTable.createOrReplace(self.spark).tableName(name)
        while reader.token is not None:
            if reader.accepts("LOCATION"):
                builder = builder.location(reader.quoted("a path"))
            elif reader.accepts("TBLPROPERTIES"):
                properties = reader.properties(valued=True)
            else:
                raise reader.unexpected("TBLPROPERTIES or LOCATION")

        def clone(location: str) -> None:
            source.clone(
                location,
                is_shallow,
                version=version,
                timestamp=timestamp,
                replace=replaces,
                properties=properties,
            )

        builder._cloned(clone, keeps=keeps)
        return as_frame(self.spark, [], NOTHING)

    def _convert(self) -> DataFrame:
        """Make a table of Parquet files, after CONVERT TO DELTA."""
        reader, columns = self.reader, None
        name = reader.name()
        reader.accepts("NO", "STATISTICS")  # They are read from footers, which costs nothing more.
        if reader.accepts("PARTITIONED", "BY"):
            columns = ", ".join(reader.items(types=True))
        reader.end()
        DeltaTable.convertToDelta(self.spark, name, columns)
        return as_frame(self.spark, [], NOTHING)

    def _alter(self) -> DataFrame:
        reader = self.reader
        alter = self._opened(reader.table()).refresh().alter
        if reader.sees("RENAME", "TO"):
            raise NotOursError  # A name of the catalog.
        change = self._change(alter)
        reader.end()  # Nothing is committed before the whole statement is known.
        change()
        return as_frame(self.spark, [], NOTHING)

    def _change(self, alter: TableAlter) -> Callable[[], object]:
        """Read the change that follows; return a function that commits it."""
        reader = self.reader
        if reader.accepts("SET", "TBLPROPERTIES"):
            return partial(alter.set_properties, reader.properties(valued=True))
        if reader.accepts("UNSET", "TBLPROPERTIES"):
            exists = reader.accepts("IF", "EXISTS")
            names = list(reader.properties(valued=False))
            return partial(alter.unset_properties, names, if_exists=exists)
        if reader.accepts("ADD", "CONSTRAINT"):
            name = reader.taken("a name").value
            reader.expect("CHECK")
            return partial(alter.add_constraint, {name: ", ".join(reader.items())})
        if reader.accepts("DROP", "CONSTRAINT"):
            exists = reader.accepts("IF", "EXISTS")
            name = reader.taken("a name").value
            return partial(alter.drop_constraint, name, if_exists=exists)
        if reader.accepts("ADD", "COLUMNS") or reader.accepts("ADD", "COLUMN"):
            self._refuse_if()
            items = reader.items(types=True) if reader.sees("(") else [reader.until()]
            return partial(alter.add_columns, [self._field(item) for item in items])
        if reader.accepts("DROP", "COLUMNS"):
            self._refuse_if()
            return partial(alter.drop_columns, reader.items())
        if reader.accepts("DROP", "COLUMN"):
            self._refuse_if()
            return partial(alter.drop_columns, [reader.name()])
        if reader.accepts("RENAME", "COLUMN"):
            old = reader.name()
            reader.expect("TO")
            return partial(alter.rename_column, old, reader.taken("a name").value)
        if reader.accepts("DROP", "FEATURE"):
            feature = reader.taken("a feature").value
            return partial(alter.drop_feature, feature, reader.accepts("TRUNCATE", "HISTORY"))
        if reader.accepts("CLUSTER", "BY"):
            return partial(alter.cluster_by, *([] if reader.accepts("NONE") else reader.items()))
        if reader.accepts("ALTER", "COLUMN") or reader.accepts("CHANGE", "COLUMN"):
            return self._column_change(alter)
        raise self._unknown_change()

    def _refuse_if(self) -> None:
        """Refuse `IF EXISTS` before columns: without it, IF would be the name of one."""
        if self.reader.sees("IF"):
            raise self.reader.unexpected("a column")

    def _column_change(self, alter: TableAlter) -> Callable[[], object]:
        reader = self.reader
        name = reader.name()
        if reader.accepts("SET", "NOT", "NULL"):
            return partial(alter.set_nullable, name, False)
        if reader.accepts("DROP", "NOT", "NULL"):
            return partial(alter.set_nullable, name, True)
        if reader.accepts("SET", "DEFAULT"):
            return partial(alter.set_default, name, reader.until())
        if reader.accepts("DROP", "DEFAULT"):
            return partial(alter.drop_default, name)
        if reader.accepts("SYNC", "IDENTITY"):
            return partial(alter.sync_identity, name)
        if reader.accepts("COMMENT"):
            text = reader.quoted("a text")
            return partial(alter.set_column_metadata, name, {"comment": text})
        if reader.accepts("TYPE"):
            return partial(alter.widen_type, name, self._field(f"x {reader.until()}").type)
        if reader.accepts("FIRST"):
            return partial(alter.move_column, name, first=True)
        if reader.accepts("AFTER"):
            return partial(alter.move_column, name, after=reader.taken("a name").value)
        raise self._unknown_change()

    def _unknown_change(self) -> InvalidInputError:
        error = self.reader.unexpected("a change that txlog supports")
        error.remedy = (
            "Write SET or UNSET TBLPROPERTIES, ADD or DROP CONSTRAINT, CLUSTER BY, or ADD, DROP, "
            "RENAME or ALTER COLUMN; or use Table.alter"
        )
        return error

    def _field(self, text: str) -> StructField:
        """Return a column from its definition in SQL: `st.b INT COMMENT '…'`."""
        reader = Reader(text, tokens_of(text))
        name = reader.name()
        kind = text[reader.passed :]
        try:
            parsed = one_field(self.spark, f"x {kind}")
        except ValueError as error:
            raise InvalidInputError(
                argument="text",
                reason=f"{text!r} is not the definition of a column: {error}",
                remedy="Write a name and one type, and several columns in parentheses",
            ) from error
        field = parse_schema(SparkStruct([parsed]).json()).fields[0]
        return StructField(name, field.type, field.nullable, field.metadata)


def _with_column(
    builder: DeltaTableBuilder[DeltaTable], text: str
) -> DeltaTableBuilder[DeltaTable]:
    """Add a column from its definition in SQL: a name, a type, and further clauses in any order."""
    reader = Reader(text, tokens_of(text))
    name = split_name(reader.name())[0]
    kind = reader.until(*_CLAUSES, types=True)
    found: dict[str, Any] = {}
    default: str | None = None
    while (token := reader.token) is not None:
        given: dict[str, Any] = {}
        if reader.accepts("NOT", "NULL"):
            given["nullable"] = False
        elif reader.accepts("COMMENT"):
            given["comment"] = reader.quoted("a text")
        elif reader.accepts("GENERATED", "BY", "DEFAULT", "AS", "IDENTITY"):
            given["generatedByDefaultAs"] = _identity(reader)
        elif reader.accepts("GENERATED", "ALWAYS", "AS", "IDENTITY"):
            given["generatedAlwaysAs"] = _identity(reader)
        elif reader.accepts("GENERATED", "ALWAYS", "AS"):
            given["generatedAlwaysAs"] = ", ".join(reader.items())
        elif default is None and reader.accepts("DEFAULT"):
            default = reader.until(*_CLAUSES)
        if given.keys() & found.keys() or reader.token is token:
            raise reader.unexpected("NOT NULL, DEFAULT, GENERATED or COMMENT")
        found |= given
    builder = builder.addColumn(name, kind, **found)
    return builder if default is None else builder._with_default(default)


def _identity(reader: Reader) -> IdentityGenerator:
    """Return the values of an identity column: `(START WITH 5 INCREMENT BY 2)`, by default 1, 2."""
    start = step = 1
    if reader.accepts("("):
        while not reader.accepts(")"):
            if reader.accepts("START", "WITH"):
                start = _signed(reader)
            elif reader.accepts("INCREMENT", "BY"):
                step = _signed(reader)
            else:
                raise reader.unexpected("START WITH n or INCREMENT BY n")
    return IdentityGenerator(start, step)


def _signed(reader: Reader) -> int:
    sign = -1 if reader.accepts("-") else 1
    return sign * reader.number()
