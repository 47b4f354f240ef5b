"""SQL statements that create tables and drop them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from txlog.base.errors import UnsupportedFeatureError
from txlog.protocol.mapping import MAPPING_MODE
from txlog.spark_ext.catalog import path_in, split_name
from txlog.spark_ext.delta.builder import DeltaTableBuilder, note_dropped, version_at
from txlog.spark_ext.delta.delta_table import DeltaTable
from txlog.spark_ext.statements.columns import read_column
from txlog.spark_ext.statements.constraints import constraint_in, is_constraint
from txlog.spark_ext.statements.descriptions import creation
from txlog.spark_ext.statements.ground import QUERIES, Ground, NotOursError
from txlog.spark_ext.statements.statement_text import Reader, is_path, tokens_of
from txlog.table.table import Table
from txlog.verbs.constraints import Unique

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from txlog.spark_ext.delta.builder import How

_FORMATS = ("delta", "txlog")
Builder: TypeAlias = DeltaTableBuilder[DeltaTable]
_BUILDERS = {
    "create": DeltaTable.create,
    "createIfNotExists": DeltaTable.createIfNotExists,
    "createOrReplace": DeltaTable.createOrReplace,
    "replace": DeltaTable.replace,
}


class Definitions(Ground):
    """The statements that create and drop tables. Each method runs one kind of them."""

    def _create(self) -> DataFrame:
        """Create a table in the format `delta` or `txlog`, after CREATE."""
        replaces = self.reader.accepts("OR", "REPLACE")
        self.reader.accepts("EXTERNAL")  # As all tables here: `DROP TABLE` keeps the files.
        if not self.reader.accepts("TABLE"):
            raise NotOursError
        keeps = not replaces and self.reader.accepts("IF", "NOT", "EXISTS")
        how: How = "createOrReplace" if replaces else "createIfNotExists" if keeps else "create"
        return self._defined(how)

    def _replace(self) -> DataFrame:
        """Define an existing table anew, after REPLACE TABLE."""
        return self._defined("replace")

    def _defined(self, how: How) -> DataFrame:
        """Create a table from columns, a query, another table, or one that is there already."""
        reader = self.reader
        name = reader.table()
        is_shallow = reader.accepts("SHALLOW", "CLONE")
        if is_shallow or reader.accepts("DEEP", "CLONE") or reader.accepts("CLONE"):
            return self._clone(name, how, is_shallow=is_shallow)
        if reader.accepts("LIKE"):
            return self._like(name, how)
        listed = reader.items(types=True) if reader.sees("(") else []
        if not self._is_ours(name):
            raise NotOursError
        constraints, columns = [], []
        for text in listed:
            if is_constraint(text):
                constraints.append(constraint_in(text))
            else:
                columns.append(text)
        builder = _BUILDERS[how](self.spark).tableName(name)._with_options(self.storage_options)
        required = {name for one in constraints for name in one.required}
        for column in columns:
            builder = _with_column(builder, column, required)
        builder = self._with_clauses(builder)
        maps = builder._properties.get(MAPPING_MODE, "none") != "none"
        for constraint in constraints:
            if maps and isinstance(constraint.rule, Unique):
                raise UnsupportedFeatureError(
                    features=("txlog.uniqueKeys",),
                    field=constraint.name,
                    reason="the columns of a table with column mapping get their names in files "
                    "when it is created, and a key needs these",
                    remedy="Create the table without the key, and add it by a statement of its "
                    f"own: ALTER TABLE {name} ADD CONSTRAINT {constraint.name} "
                    f"{constraint.rule.text} ENFORCED",
                )
            names = [column.name for column in builder._fields]
            found = constraint.properties(names, builder._partition_by, builder._properties)
            for key, value in found.items():
                builder = builder.property(key, value)
        has_query = reader.accepts("AS") or any(reader.sees(word) for word in QUERIES)
        if columns or not has_query:
            reader.end()
        if columns:
            builder.execute()
        elif has_query:
            builder._filled(self._query(self._rest()))
        else:
            builder._registered()
        return self._nothing()

    def _is_ours(self, name: str) -> bool:
        """Return whether a table gets the format of Delta.

        It is that of USING, that of a path such as ``delta.`/path` ``, or that of the session.
        """
        reader = self.reader
        if not reader.accepts("USING"):
            if is_path(name):
                return True
            usual = self.spark.conf.get("spark.sql.sources.default", "")
            return usual is not None and usual.lower() in _FORMATS
        return reader.name().strip("`").lower() in _FORMATS

    def _with_clauses(self, builder: Builder) -> Builder:
        """Add what follows the columns of a new table."""
        reader = self.reader
        while True:
            if reader.accepts("PARTITIONED", "BY"):
                builder = self._partitioned(builder)
            elif reader.accepts("CLUSTER", "BY"):
                builder = builder.clusterBy(reader.items())
            elif reader.accepts("LOCATION"):
                builder = builder.location(reader.quoted("a path"))
            elif reader.accepts("COMMENT"):
                builder = builder.comment(reader.quoted("a text"))
            elif reader.accepts("TBLPROPERTIES"):
                for key, value in reader.properties(valued=True).items():
                    builder = builder.property(key, value)
            elif reader.accepts("OPTIONS"):
                options = reader.properties(valued=True)
                if "path" in options:
                    builder = builder.location(options.pop("path"))
                _refuse_options(options)
            else:
                return builder

    def _partitioned(self, builder: Builder) -> Builder:
        """Set the partition columns. One with a type is also added to the columns."""
        names = []
        for item in self.reader.items(types=True):
            part = Reader(item, tokens_of(item))
            names.append(split_name(part.name())[0])
            if part.sees("("):
                raise UnsupportedFeatureError(
                    field=item,
                    reason=f"PARTITIONED BY ({item}): Delta partitions by values of columns",
                    remedy=f"Define a column GENERATED ALWAYS AS ({item}), and partition by it",
                )
            if part.token is not None:
                builder = _with_column(builder, item)
        return builder.partitionedBy(names)

    def _like(self, name: str, how: How) -> DataFrame:
        """Create an empty table with the definition of another one, after the word LIKE."""
        reader = self.reader
        source = self._opened(reader.table()).snapshot
        if reader.sees("USING") and not self._is_ours(name):
            raise NotOursError
        text = creation(source, name, None) + ("" if reader.token is None else self._rest())
        statement = type(self)(
            self.spark, Reader(text, tokens_of(text)), self.storage_options, text
        )
        statement.reader.expect("CREATE", "TABLE")
        return statement._defined(how)

    def _clone(self, name: str, how: How, *, is_shallow: bool) -> DataFrame:
        """Create a table as a clone of another one, after the word CLONE."""
        reader = self.reader
        source = self._opened(reader.table())
        version, timestamp = self._moment(reader.moment())
        properties: dict[str, str] = {}
        builder = _BUILDERS[how](self.spark).tableName(name)._with_options(self.storage_options)
        while reader.token is not None:
            if reader.accepts("LOCATION"):
                builder = builder.location(reader.quoted("a path"))
            elif reader.accepts("TBLPROPERTIES"):
                properties = reader.properties(valued=True)
            else:
                raise reader.unexpected("TBLPROPERTIES or LOCATION")
        clone = partial(
            source.clone,
            shallow=is_shallow,
            version=version,
            timestamp=timestamp,
            replace=how in ("createOrReplace", "replace"),
            properties=properties,
            storage_options=self.storage_options,
        )
        builder._cloned(clone)
        return self._nothing()

    def _drop(self) -> DataFrame:
        """Let Spark drop a name, after DROP TABLE; refuse to drop a table at a path."""
        reader = self.reader
        keeps_silent = reader.accepts("IF", "EXISTS")
        name = reader.table()
        path = path_in(name)
        place = self._place(name) if path is None else None
        if path is None and place is None:
            raise NotOursError
        reader.accepts("PURGE")
        reader.end()
        if path is None:
            version = version_at(str(place), self.storage_options)
            dropped = self.spark.sql(self.text)
            if version is not None:
                note_dropped(self.spark, name, str(place), version)
            return dropped
        if keeps_silent and not Table.exists(path, self.storage_options):
            return self._nothing()
        self._opened(name)  # Raises if there is none.
        raise UnsupportedFeatureError(
            path=path,
            reason="DROP TABLE removes a name from Spark's catalog, and keeps the files of the "
            "table: a path has no name to remove",
            remedy='TRUNCATE TABLE deletes all rows, as Table.delete("true") does. To remove a '
            "table, delete its folder with the tools of its store",
        )

    def _convert(self) -> DataFrame:
        """Make a table of Parquet files, after CONVERT TO DELTA."""
        reader, columns = self.reader, None
        name = reader.name()
        reader.accepts("NO", "STATISTICS")  # They are read from footers, which costs nothing more.
        if reader.accepts("PARTITIONED", "BY"):
            columns = ", ".join(reader.items(types=True))
        reader.end()
        DeltaTable.convertToDelta(self.spark, name, columns)
        return self._nothing()


def _with_column(builder: Builder, text: str, required: Collection[str] = ()) -> Builder:
    """Add a column from its definition in SQL; `required` are columns that may not be null."""
    reader = Reader(text, tokens_of(text))
    column = read_column(reader)
    reader.end()
    name = split_name(column.name)[0]
    builder = builder.addColumn(
        name,
        column.kind,
        column.nullable is not False and name.lower() not in required,
        generatedAlwaysAs=column.always,
        generatedByDefaultAs=column.by_default,
        comment=column.comment,
    )
    return builder if column.default is None else builder._with_default(column.default)


def _refuse_options(options: Mapping[str, str]) -> None:
    if options:
        raise UnsupportedFeatureError(
            reason=f"OPTIONS ({', '.join(options)}): a table of txlog has no options but its path, "
            "and Spark's catalog would show them to all of its users",
            remedy="Pass options of the store as spark_ext.sql(…, storage_options={…}), and write "
            "properties of the table as TBLPROPERTIES",
        )
