"""SQL statements that change the columns and properties of tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from txlog.base.errors import InvalidInputError, UnsupportedFeatureError
from txlog.expressions.tree import quote_name
from txlog.fragments.rows import FEATURE as FRAGMENTS
from txlog.schema.edit import find_field
from txlog.schema.types import ArrayType, DataType, MapType, StructField, StructType
from txlog.spark_ext.catalog import path_in, split_name
from txlog.spark_ext.statements.columns import ColumnText, read_column, read_place, type_of
from txlog.spark_ext.statements.constraints import read_rule
from txlog.spark_ext.statements.ground import Ground, NotOursError
from txlog.spark_ext.statements.statement_text import Reader, tokens_of
from txlog.spark_ext.writes.merge import SparkTable, table
from txlog.table.seam import execute
from txlog.verbs.schema import AddFields, ChangeColumn, ReplaceFields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from txlog.table.alter import TableAlter
    from txlog.table.table import Table

_COLUMN_CHANGES = ("SET", "DROP", "SYNC", "COMMENT", "TYPE", "FIRST", "AFTER")


class Alterations(Ground):
    """The statements that change tables. Each method runs one kind of them."""

    def _alter(self) -> DataFrame:
        reader = self.reader
        name = reader.table()
        opened = self._opened(name).refresh()
        if reader.sees("RENAME", "TO") or reader.sees("SET", "LOCATION"):
            return self._renamed(name)
        change = self._change(opened)
        reader.end()  # Nothing is committed before the whole statement is known.
        change()
        return self._nothing()

    def _comment_on(self) -> DataFrame:
        """Set the comment of a table or of a column, after COMMENT ON."""
        reader = self.reader
        is_table = reader.accepts("TABLE")
        if not is_table and not reader.accepts("COLUMN"):
            raise NotOursError
        name = reader.table()
        field = ""
        if is_table:
            opened = self._opened(name)
        else:
            name, field, opened = self._with_field(name)
        reader.expect("IS")
        text = None if reader.accepts("NULL") else reader.quoted("a text")
        reader.end()
        if is_table:
            opened.alter.set_description(text)
        else:
            opened.alter.set_column_metadata(field, {"comment": text})
        return self._nothing()

    def _with_field(self, name: str) -> tuple[str, str, SparkTable]:
        """Return the parts of `schema.table.column`, and the table."""
        parts = [quote_name(part) for part in split_name(name)]
        for count in range(len(parts) - 1, 0, -1):
            of_table, field = ".".join(parts[:count]), ".".join(parts[count:])
            try:
                return of_table, field, self._opened(of_table)
            except NotOursError:
                pass
        raise NotOursError

    def _renamed(self, name: str) -> DataFrame:
        """Leave a change of Spark's catalog to Spark, unless nothing would be at the new place."""
        reader = self.reader
        if path_in(name) is not None:
            raise InvalidInputError(
                argument="text",
                reason=f"{name} is a path and no name of the catalog",
                remedy="Use the table's name in the catalog. Table.alter.set_name sets the name in "
                "the table's metadata",
            )
        if reader.accepts("SET", "LOCATION"):
            place = reader.quoted("a path")
            reader.end()
            table(self.spark, place, storage_options=self.storage_options)  # Raises if it is none.
        raise NotOursError

    def _change(self, opened: Table) -> Callable[[], object]:
        """Read the change that follows; return a function that commits it."""
        reader, alter = self.reader, opened.alter
        if reader.accepts("SET", "TBLPROPERTIES"):
            return partial(alter.set_properties, reader.properties(valued=True))
        if reader.accepts("UNSET", "TBLPROPERTIES"):
            exists = reader.accepts("IF", "EXISTS")
            names = list(reader.properties(valued=False))
            return partial(alter.unset_properties, names, if_exists=exists)
        if reader.accepts("ADD", "CONSTRAINT"):
            name = reader.taken("a name").value
            return partial(alter.add_constraint, {name: read_rule(reader)})
        if reader.accepts("DROP", "CONSTRAINT"):
            exists = reader.accepts("IF", "EXISTS")
            name = reader.taken("a name").value
            return partial(alter.drop_constraint, name, if_exists=exists)
        if reader.accepts("ADD", "COLUMNS") or reader.accepts("ADD", "COLUMN"):
            self._refuse_if()
            return self._additions(opened)
        if reader.accepts("REPLACE", "COLUMNS"):
            return self._replacements(opened)
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
        if reader.accepts("ALTER"):
            reader.accepts("COLUMN")
            return self._column_change(alter, reader.name())
        if reader.accepts("CHANGE"):
            reader.accepts("COLUMN")
            return self._column_definition(opened)
        raise self._unknown_change()

    def _additions(self, opened: Table) -> Callable[[], object]:
        """Read the columns to add, in parentheses or without them, each with its place."""
        reader, found = self.reader, list[ColumnText]()
        for text in reader.items(types=True) if reader.sees("(") else [None]:
            part = reader if text is None else Reader(text, tokens_of(text))
            found.append(read_column(part, placed=True))
            while text is None and part.accepts(","):
                found.append(read_column(part, placed=True))
            if text is not None:
                part.end()
        fields = [column.added(self.spark) for column in found]
        if all(column.place is None for column in found):
            return partial(opened.alter.add_columns, fields)
        if opened.snapshot.supports(FRAGMENTS):
            raise UnsupportedFeatureError(
                features=(FRAGMENTS,),
                reason="a table with column files gets new columns at its end",
                remedy="Add them without FIRST and AFTER, then ALTER COLUMN c FIRST or AFTER "
                "(Table.alter.move_column) moves them",
            )
        places = [column.place for column in found]
        pairs = [
            (column.path[:-1], replace(field, name=column.path[-1]))
            for column, field in zip(found, fields, strict=True)
        ]
        return partial(execute, opened, AddFields(pairs, places))

    def _replacements(self, opened: Table) -> Callable[[], object]:
        """Read all columns, in parentheses."""
        fields = list[StructField]()
        for text in self.reader.items(types=True):
            part = Reader(text, tokens_of(text))
            column = read_column(part)
            part.end()
            if len(column.path) > 1:
                raise InvalidInputError(
                    argument="text",
                    field=column.name,
                    reason=f"{column.name} is nested, and the list has the columns of the table",
                    remedy="ALTER COLUMN and ADD COLUMN change fields of structs",
                )
            fields.append(replace(column.added(self.spark), name=column.path[0]))
        return partial(execute, opened, ReplaceFields(fields))

    def _refuse_if(self) -> None:
        """Refuse `IF EXISTS` before columns: without it, IF would be the name of one."""
        if self.reader.sees("IF"):
            raise self.reader.unexpected("a column")

    def _column_definition(self, opened: Table) -> Callable[[], object]:
        """Read the column's name and its new definition: `a a BIGINT COMMENT '…' AFTER b`."""
        reader = self.reader
        name = reader.name()
        token = reader.token
        path = split_name(name)
        if token is None or token.value.lower() != path[-1].lower():
            if token is not None and token.is_name and token.word not in _COLUMN_CHANGES:
                raise InvalidInputError(
                    argument="text",
                    field=name,
                    reason=f"CHANGE COLUMN gives {name} the other name {token.value}",
                    remedy=f"RENAME COLUMN {name} TO {token.value} (Table.alter.rename_column), "
                    "and repeat the name in CHANGE COLUMN",
                )
            return self._column_change(opened.alter, name)
        column = read_column(reader, placed=True)
        column.added(self.spark)  # Raises if the definition is wrong.
        kind = type_of(self.spark, column.kind).type
        _, now = find_field(opened.snapshot.schema, tuple(path))
        change = ChangeColumn(
            name,
            metadata=None if column.comment is None else {"comment": column.comment},
            nullable=column.nullable,
            place=column.place,
            kind=None if _describes(kind, now.type) else kind,
        )
        return partial(execute, opened, change)

    def _column_change(self, alter: TableAlter, name: str) -> Callable[[], object]:
        reader = self.reader
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
            return partial(alter.widen_type, name, type_of(self.spark, reader.until()).type)
        match read_place(reader):
            case "first":
                return partial(alter.move_column, name, first=True)
            case ("after", after):
                return partial(alter.move_column, name, after=after)
        raise self._unknown_change()

    def _unknown_change(self) -> InvalidInputError:
        error = self.reader.unexpected("a change that txlog supports")
        error.remedy = (
            "Write SET or UNSET TBLPROPERTIES, ADD or DROP CONSTRAINT, CLUSTER BY, ADD, DROP, "
            "RENAME, CHANGE or ALTER COLUMN, or REPLACE COLUMNS; or use Table.alter"
        )
        return error


def _describes(given: DataType, now: DataType) -> bool:
    """Return whether a definition gives the type that a column has, and no new comment in it.

    The fields of the column's type may have more metadata, such as comments and ids: a definition
    need not repeat comments, and cannot state ids.
    """
    match given, now:
        case StructType(fields), StructType(others) if len(fields) == len(others):
            return all(
                (field.name, field.nullable) == (other.name, other.nullable)
                and field.metadata.items() <= other.metadata.items()
                and _describes(field.type, other.type)
                for field, other in zip(fields, others, strict=True)
            )
        case ArrayType(), ArrayType():
            nulls = given.contains_null == now.contains_null
            return nulls and _describes(given.element, now.element)
        case MapType(), MapType():
            nulls = given.value_contains_null == now.value_contains_null
            parts = ((given.key, now.key), (given.value, now.value))
            return nulls and all(_describes(*part) for part in parts)
    return given == now
