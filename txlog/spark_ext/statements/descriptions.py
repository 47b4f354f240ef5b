"""SQL statements that describe tables: `DESCRIBE`, `SHOW COLUMNS`, `SHOW CREATE TABLE` and others.

The rows are those of Spark for its own tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from txlog.base.errors import InvalidInputError
from txlog.data_files.identity import identity_of
from txlog.expressions.tree import And, Column, Comparison, Expression, quote_name, quote_text
from txlog.protocol.access import features_of
from txlog.protocol.properties import FEATURE_PREFIX, VERSIONS, Owner, owner_of
from txlog.schema.types import (
    CURRENT_DEFAULT,
    GENERATION,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    no_field,
    sql_name,
)
from txlog.snapshot.snapshot import Snapshot
from txlog.spark_ext.catalog import path_in, split_name
from txlog.spark_ext.delta.frames import as_frame
from txlog.spark_ext.reads.places import NULL_FOLDER, folder_text
from txlog.spark_ext.spark_types import spark_schema
from txlog.spark_ext.statements.ground import Ground, NotOursError
from txlog.spark_ext.statements.partitions import partition_of
from txlog.spark_ext.zones import zone_of
from txlog.verbs.mapped_columns import clustering_columns, logical_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from txlog.table.table import Table

Described = tuple[str, str, str | None]  # A name, a type, and a comment.


def _texts(*names: str) -> pa.Schema:
    return pa.schema([(name, pa.string()) for name in names])


_COLUMNS = _texts("col_name", "data_type", "comment")
_ONE_COLUMN = _texts("info_name", "info_value")
_NAMES = _texts("col_name")
_PARTITIONS = _texts("partition")
_JSON = _texts("json_metadata")
_STATEMENT = _texts("createtab_stmt")
_PROPERTIES = _texts("key", "value")
_OTHERS = (  # What DESCRIBE describes beside tables.
    ("FUNCTION",), ("DATABASE",), ("SCHEMA",), ("NAMESPACE",), ("CATALOG",), ("PROCEDURE",),
)  # fmt: skip
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Descriptions(Ground):
    """The statements that describe tables. Each method runs one kind of them."""

    def _describe(self) -> DataFrame:
        """Describe the columns of a table or of a query, or one column; after DESCRIBE."""
        reader = self.reader
        if any(reader.sees(*words) for words in _OTHERS):
            raise NotOursError
        if reader.accepts("QUERY") or any(reader.sees(word) for word in ("SELECT", "WITH")):
            found = self._query(self._rest()).schema
            return self._rows(_COLUMNS, [_described(one) for one in found.fields])
        reader.accepts("TABLE")
        extended = reader.accepts("EXTENDED") or reader.accepts("FORMATTED")
        name = reader.table()
        opened = self._opened(name).refresh()
        if extended and reader.accepts("AS", "JSON"):
            reader.end()
            return self._rows(_JSON, [(orjson.dumps(self._as_json(name, opened)).decode(),)])
        column = None if reader.token is None else reader.name()
        reader.end()
        if column is not None:
            return self._rows(_ONE_COLUMN, describe_column(opened.snapshot, column))
        rows = describe_columns(opened.snapshot)
        if extended:
            rows += [("", "", ""), ("# Detailed Table Information", "", "")]
            rows += [(fact, text, "") for fact, text in self._details(name, opened)]
        return self._rows(_COLUMNS, [*rows, *_defaults(opened.snapshot)])

    def _as_json(self, name: str, opened: Table) -> dict[str, Any]:
        """Return the facts of `DESCRIBE EXTENDED` in the form of Spark's JSON."""
        base, named = opened.snapshot, {}
        if path_in(name) is None:
            catalog, schema, table = self._full_name(name)
            named = {
                "table_name": table, "catalog_name": catalog, "namespace": [schema],
                "schema_name": schema,
            }  # fmt: skip
        clustered = [".".join(logical_path(base, path)) for path in clustering_columns(base)]
        facts = {
            **named,
            "columns": [_column_as_json(field) for field in base.schema.fields],
            "location": opened.uri,
            "comment": base.metadata.description,
            "provider": "delta",
            "table_properties": dict(shown_properties(base)),
            "partition_columns": base.partition_columns,
            "clustering_columns": clustered,
            "type": "EXTERNAL",
        }
        return {key: value for key, value in facts.items() if value not in (None, [])}

    def _details(self, name: str, opened: Table) -> Iterable[tuple[str, str]]:
        if path_in(name) is None:
            yield from zip(("Catalog", "Database", "Table"), self._full_name(name), strict=True)
        else:
            yield "Name", name
        yield "Type", "EXTERNAL"
        yield "Provider", "delta"
        if opened.metadata.description is not None:
            yield "Comment", opened.metadata.description
        yield "Location", opened.uri
        shown = ", ".join(f"{key}={value}" for key, value in shown_properties(opened.snapshot))
        yield "Table Properties", f"[{shown}]"

    def _full_name(self, name: str) -> list[str]:
        """Return the catalog, the schema and the name of a table."""
        parts = split_name(name)
        current = [self.spark.catalog.currentCatalog(), self.spark.catalog.currentDatabase()]
        return [*current, *parts][-max(3, len(parts)) :][:3]

    def _columns(self) -> DataFrame:
        """List the columns, after SHOW COLUMNS."""
        reader = self.reader
        if not reader.accepts("IN"):
            reader.expect("FROM")
        name = reader.table()
        if reader.accepts("IN") or reader.accepts("FROM"):
            schema = reader.name()
            *own, last = split_name(name)
            if own and own[-1].lower() != split_name(schema)[-1].lower():
                raise InvalidInputError(
                    argument="text",
                    reason=f"{name} is not in the schema {schema}",
                    remedy="Name the schema once",
                )
            name = f"{schema}.{quote_name(last)}"
        opened = self._opened(name).refresh()
        reader.end()
        return self._rows(_NAMES, [(one,) for one in opened.snapshot.schema.names()])

    def _partitions(self) -> DataFrame:
        """List the partitions as names of folders, after SHOW PARTITIONS."""
        reader = self.reader
        opened = self._opened(reader.table()).refresh()
        where: Expression | None = None
        if reader.accepts("PARTITION"):
            given = partition_of(reader, opened.snapshot, zone_of(self.spark))
            known = [
                Comparison("<=>", Column((name,)), value)
                for name, value in given.items()
                if value is not None
            ]
            if len(known) < len(given):
                raise reader.unexpected("a value for each column of PARTITION")
            where = And(tuple(known)) if known[1:] else known[0]
        reader.end()
        if not opened.partition_columns:
            raise InvalidInputError(
                argument="text",
                reason="the table has no partitions",
                remedy="Choose a table that PARTITIONED BY has divided",
            )
        folders = [_folder(row) for row in opened.partitions(where).to_pylist()]
        return self._rows(_PARTITIONS, [(folder,) for folder in sorted(folders)])

    def _tables(self) -> DataFrame:
        """Show tables with their facts, after SHOW TABLE EXTENDED; ours have Delta's format."""
        from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users name it

        shown = self.spark.sql(self.text)
        if "information" not in shown.columns:
            return shown
        ours = F.regexp_replace("information", "(?m)^Provider: txlog$", "Provider: delta")
        return shown.withColumn("information", ours)

    def _creation(self) -> DataFrame:
        """Show the statement that creates such a table, after SHOW CREATE TABLE."""
        reader = self.reader
        name = reader.table()
        opened = self._opened(name).refresh()
        if reader.sees("AS", "SERDE"):
            raise reader.unexpected("no form of Hive")
        reader.end()
        parts = split_name(name) if path_in(name) else self._full_name(name)
        shown = ".".join(map(_quoted, parts))
        location = None if path_in(name) else opened.uri
        return self._rows(_STATEMENT, [(creation(opened.snapshot, shown, location),)])

    def _shown_properties(self) -> DataFrame:
        """List the properties, after SHOW TBLPROPERTIES."""
        reader = self.reader
        name = reader.table()
        opened = self._opened(name).refresh()
        keys = list(reader.properties(valued=False)) if reader.sees("(") else []
        if keys[1:]:
            raise reader.unexpected("one property")
        reader.end()
        rows = shown_properties(opened.snapshot)
        if keys:
            lacks = f"Table {name} does not have property: {keys[0]}"
            rows = [(keys[0], dict(rows).get(keys[0], lacks))]
        return self._rows(_PROPERTIES, rows)

    def _rows(self, schema: pa.Schema, rows: Sequence[Sequence[str | None]]) -> DataFrame:
        found = [dict(zip(schema.names, row, strict=True)) for row in rows]
        return as_frame(self.spark, found, schema)


def _column_as_json(field: StructField) -> dict[str, Any]:
    found = spark_schema(StructType((field,))).fields[0]
    facts = {
        "name": field.name,
        "type": _type_as_json(found.dataType),
        "comment": field.metadata.get("comment"),
        "nullable": field.nullable,
        "default": field.metadata.get(CURRENT_DEFAULT),
    }
    return {key: value for key, value in facts.items() if value is not None}


def _type_as_json(kind: Any) -> dict[str, Any]:
    """Return a type of Spark in the form in which Spark describes it as JSON."""
    name = kind.typeName()
    match name:
        case "struct":
            fields = [
                {
                    "name": one.name,
                    "type": _type_as_json(one.dataType),
                    "nullable": one.nullable,
                    **({"comment": one.metadata["comment"]} if "comment" in one.metadata else {}),
                }
                for one in kind.fields
            ]
            return {"name": name, "fields": fields}
        case "array":
            element = _type_as_json(kind.elementType)
            return {"name": name, "element_type": element, "element_nullable": kind.containsNull}
        case "map":
            return {
                "name": name,
                "key_type": _type_as_json(kind.keyType),
                "value_type": _type_as_json(kind.valueType),
                "value_nullable": kind.valueContainsNull,
            }
        case "decimal":
            return {"name": name, "precision": kind.precision, "scale": kind.scale}
        case "string":
            return {"name": name, "collation": kind.collation}
        case "timestamp":
            return {"name": "timestamp_ltz"}
    return {"name": kind.simpleString()}


def describe_columns(base: Snapshot) -> list[Described]:
    """Return a table's columns, then those of its partitions and clustering, as Spark lists them.

    Pure.
    """
    columns = spark_schema(base.schema)
    rows = [_described(one) for one in columns.fields]
    clustered = [logical_path(base, path) for path in clustering_columns(base)]
    for title, paths in (
        ("# Partition Information", [[name] for name in base.partition_columns]),
        ("# Clustering Information", clustered),
    ):
        if paths:
            rows += [(title, "", ""), ("# col_name", "data_type", "comment")]
        for path in paths:
            *_, field = base.schema.along(path)
            found = _described(spark_schema(StructType((field,))).fields[0])
            rows.append((".".join(path), *found[1:]))
    return rows


def describe_column(base: Snapshot, name: str) -> list[tuple[str, str]]:
    """Return the facts about one column. Pure.

    Raises
    ------
    InvalidInputError
        There is no such column, or it is a field of a struct.
    """
    path = split_name(name)
    if len(path) > 1:
        raise InvalidInputError(
            argument="text",
            field=name,
            reason=f"{name} is nested, and DESCRIBE describes only columns of the table",
            remedy=f"DESCRIBE the column {path[0]}, whose type shows its fields",
        )
    field = base.schema.get(path[0])
    if field is None:
        raise no_field(base.schema, path[0], (), argument="text")
    _, kind, comment = _described(spark_schema(StructType((field,))).fields[0])
    return [
        ("col_name", path[0]),  # As written, like Spark.
        ("data_type", kind),
        ("comment", "NULL" if comment is None else comment),
    ]


def _described(field: object) -> Described:
    """Return a column of Spark's schema with its type and comment."""
    from pyspark.sql.types import StructField as SparkField

    assert isinstance(field, SparkField)
    return field.name, field.dataType.simpleString(), field.metadata.get("comment")


def _defaults(base: Snapshot) -> list[Described]:
    rows: list[Described] = []
    for field in base.schema.fields:
        if CURRENT_DEFAULT in field.metadata:
            kind = spark_schema(StructType((field,))).fields[0].dataType.simpleString()
            rows.append((field.name, kind, str(field.metadata[CURRENT_DEFAULT])))
    return [("", "", ""), ("# Column Default Values", "", ""), *rows] if rows else []


def shown_properties(base: Snapshot) -> list[tuple[str, str]]:
    """Return a table's properties with those of its protocol, as Delta shows them. Pure."""
    found = {key: value or "" for key, value in base.metadata.configuration.items()}
    protocol = base.protocol
    versions = (protocol.min_reader_version, protocol.min_writer_version)
    found |= {key: str(value) for key, value in zip(VERSIONS, versions, strict=True)}
    if protocol.writer_features is not None:
        found |= {f"{FEATURE_PREFIX}{one}": "supported" for one in features_of(protocol)}
    return sorted(found.items())


def _folder(values: Mapping[str, str | None]) -> str:
    """Return the name of a partition as Spark writes it."""
    return "/".join(
        f"{folder_text(name)}={NULL_FOLDER if value is None else folder_text(value)}"
        for name, value in values.items()
    )


def creation(base: Snapshot, name: str, location: str | None) -> str:
    """Return the statement that creates a table with the definition of a version. Pure.

    `spark_ext.sql` runs it. It does not say which values of arrays and maps may be null.
    """
    lines = ",\n  ".join(_column(field) for field in base.schema.fields)
    text = f"CREATE TABLE {name} (\n  {lines})\nUSING delta\n"
    if base.partition_columns:
        text += f"PARTITIONED BY ({', '.join(map(_quoted, base.partition_columns))})\n"
    if clustered := clustering_columns(base):
        paths = [".".join(map(_quoted, logical_path(base, path))) for path in clustered]
        text += f"CLUSTER BY ({', '.join(paths)})\n"
    if base.metadata.description is not None:
        text += f"COMMENT {quote_text(base.metadata.description)}\n"
    if location is not None:
        text += f"LOCATION {quote_text(location)}\n"
    own = [(key, value) for key, value in shown_properties(base) if _is_of_definition(key)]
    if own:
        lines = ",\n  ".join(f"{quote_text(key)} = {quote_text(value)}" for key, value in own)
        text += f"TBLPROPERTIES (\n  {lines})\n"
    return text


def _is_of_definition(key: str) -> bool:
    return owner_of(key) in (Owner.USER, Owner.FEATURE)


def _column(field: StructField) -> str:
    """Return the definition of a column, of a table or of a struct."""
    return f"{_quoted(field.name)} {_type(field)}{_clauses(field)}"


def _clauses(field: StructField) -> str:
    text = "" if field.nullable else " NOT NULL"
    if CURRENT_DEFAULT in field.metadata:
        text += f" DEFAULT {field.metadata[CURRENT_DEFAULT]}"
    if field.is_identity:
        identity = identity_of(field)
        how = "BY DEFAULT" if identity.explicit else "ALWAYS"
        first = f"START WITH {identity.start} INCREMENT BY {identity.step}"
        text += f" GENERATED {how} AS IDENTITY ({first})"
    if GENERATION in field.metadata:
        text += f" GENERATED ALWAYS AS ({field.metadata[GENERATION]})"
    if "comment" in field.metadata:
        text += f" COMMENT {quote_text(str(field.metadata['comment']))}"
    return text


def _type(field: StructField) -> str:
    """Return a column's type in SQL."""
    if not isinstance(field.type, StructType | ArrayType | MapType):
        return spark_schema(StructType((field,))).fields[0].dataType.simpleString().upper()
    return _inner(field.type)


def _inner(kind: DataType) -> str:
    match kind:
        case StructType(fields):
            inner = [f"{_quoted(one.name)}: {_type(one)}{_clauses(one)}" for one in fields]
            return f"STRUCT<{', '.join(inner)}>"
        case ArrayType(element):
            return f"ARRAY<{_inner(element)}>"
        case MapType(key, value):
            return f"MAP<{_inner(key)}, {_inner(value)}>"
    return sql_name(kind)


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else quote_name(name)
