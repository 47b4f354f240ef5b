"""`DeltaTable.create(spark)` and its like: a table put together column by column."""

# ruff: noqa: N802, N803, N806 (the names are delta-spark's)

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from txlog.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from txlog.expressions import quote_name
from txlog.maintain import replace_table
from txlog.schema import parse_schema
from txlog.spark_ext.catalog import path_in, register_table, split_name, table_location
from txlog.spark_ext.delta.arguments import missing, names_in, of_type
from txlog.spark_ext.engine import table
from txlog.store import open_store
from txlog.table import Table
from txlog.writing import Place, maintain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructField, StructType

    from txlog.spark_ext.delta.table import DeltaTable

How = Literal["create", "createIfNotExists", "replace", "createOrReplace"]


_SIZED_TEXT = re.compile(r"\b(?:var)?char(?:acter)?\s*\(", re.IGNORECASE)


@dataclass
class IdentityGenerator:
    """How an identity column counts; tables with such columns are not made by txlog."""

    start: int = 1
    step: int = 1


class DeltaTableBuilder:
    """Puts a table together; nothing happens before `execute`."""

    def __init__(self, spark: SparkSession, how: How) -> None:
        self._spark = spark
        self._how = how
        self._name: str | None = None
        self._location: str | None = None
        self._comment: str | None = None
        self._fields: list[StructField] = []
        self._partition_by: list[str] = []
        self._properties: dict[str, str] = {}

    def tableName(self, identifier: str) -> DeltaTableBuilder:
        """Set the name for Spark's catalog, which also needs a location; or ``delta.`/path` ``."""
        of_type(str, identifier, "identifier")
        path = path_in(identifier)
        if path is not None:
            return self.location(path)
        split_name(identifier)
        self._name = identifier
        return self

    def location(self, location: str) -> DeltaTableBuilder:
        """Set the table's path."""
        self._location = of_type(str, location, "location")
        return self

    def comment(self, comment: str) -> DeltaTableBuilder:
        """Set the table's description."""
        self._comment = of_type(str, comment, "comment")
        return self

    def addColumn(
        self,
        colName: str,
        dataType: str | DataType,
        nullable: bool = True,
        generatedAlwaysAs: str | IdentityGenerator | None = None,
        generatedByDefaultAs: IdentityGenerator | None = None,
        comment: str | None = None,
    ) -> DeltaTableBuilder:
        """Add a column, of a type of Spark's or of SQL: `INT`, or `INT NOT NULL`.

        Raises
        ------
        InvalidInputError
            The text is no type of Spark SQL, or more than one.
        UnsupportedFeatureError
            Its values are to be generated.
        """
        from pyspark.sql.types import DataType, StructField

        of_type(str, colName, "colName")
        of_type(bool, nullable, "nullable")
        if generatedAlwaysAs is not None or generatedByDefaultAs is not None:
            raise missing(
                f"generating the values of column {colName}",
                "compute the column in the frame that is written",
                "generatedColumns" if isinstance(generatedAlwaysAs, str) else "identityColumns",
            )
        metadata = {}
        if isinstance(dataType, str):
            field = self._field_of(colName, dataType)
            dataType, nullable = field.dataType, nullable and field.nullable
            metadata = dict(field.metadata)
        elif not isinstance(dataType, DataType):
            of_type(str, dataType, "dataType")
        if comment is not None:
            metadata["comment"] = of_type(str, comment, "comment")
        self._fields.append(StructField(colName, dataType, nullable, metadata))
        return self

    def _field_of(self, name: str, text: str) -> StructField:
        """Return a column of a type as SQL writes it."""
        from pyspark.errors import PySparkException

        if _SIZED_TEXT.search(text):
            raise InvalidInputError(
                argument="dataType",
                field=name,
                reason=f"{text!r}: txlog does not hold text to a length",
                remedy="Use STRING, and a constraint of the table for its length",
            )
        try:
            fields = self._spark.createDataFrame([], f"{quote_name(name)} {text}").schema.fields
        except PySparkException as error:
            told = " ".join(str(error).split("== SQL")[0].split())
            raise _no_type(name, text, f"Spark does not read it: {told}") from error
        if len(fields) != 1:
            raise _no_type(name, text, f"it makes {len(fields)} columns")
        return fields[0]

    def addColumns(self, cols: StructType | list[StructField]) -> DeltaTableBuilder:
        """Add the columns of a schema of Spark's."""
        from pyspark.sql.types import StructField

        for column in cols:
            self._fields.append(of_type(StructField, column, "cols"))
        return self

    def partitionedBy(self, *cols: str | list[str] | tuple[str, ...]) -> DeltaTableBuilder:
        """Set the partition columns."""
        self._partition_by = names_in(cols, "cols")
        return self

    def clusterBy(self, *cols: str | list[str] | tuple[str, ...]) -> NoReturn:
        """Raise: txlog does not cluster rows."""
        raise missing("clusterBy", "partitionedBy", "clustering")

    def property(self, key: str, value: str) -> DeltaTableBuilder:
        """Set a property of the table."""
        self._properties[of_type(str, key, "key")] = of_type(str, value, "value")
        return self

    def execute(self) -> DeltaTable:
        """Make or replace the table, and return it.

        A name is put into Spark's catalog afterwards, for `DeltaTable.forName`; Spark's own SQL
        needs the path again: `SELECT … FROM name WITH ('path'='…')`.

        Raises
        ------
        AlreadyExistsError, NotFoundError
            A table is there for `create`, or none for `replace`.
        InvalidInputError
            The location is missing, or a column, the partitioning or a property is wrong.
        UnsupportedFeatureError
            txlog cannot write such a table.
        """
        from txlog.spark_ext.delta.table import DeltaTable

        location = self._require_location()
        self._require_same_place(location)
        made = self._made(location)
        if self._name is not None:
            register_table(self._spark, self._name, made.uri)
        return DeltaTable(self._spark, table(self._spark, location))

    def _made(self, location: str) -> Table:
        if self._how != "replace":
            try:
                return Table.create(location, **self._definition(), description=self._comment)
            except AlreadyExistsError:
                if self._how == "create":
                    raise
        table = Table(location)
        if self._how == "createIfNotExists":
            return table
        definition = self._definition()
        place = Place(table.store)
        maintain(
            place, replace_table(place, table.snapshot, **definition, description=self._comment)
        )
        return table

    def _definition(self) -> dict[str, Any]:
        from pyspark.sql.types import StructType

        return {
            "schema": parse_schema(StructType(self._fields).json()),
            "partition_by": self._partition_by,
            "properties": self._properties,
        }

    def _require_location(self) -> str:
        if self._location is None:
            raise InvalidInputError(
                argument="location",
                reason="no path was given; Spark's warehouse keeps no tables of Python sources",
                remedy="Call location(path)",
            )
        return self._location

    def _require_same_place(self, location: str) -> None:
        """Refuse a name that the catalog has for another table, before anything is made."""
        if self._name is None:
            return
        try:
            held = table_location(self._spark, self._name)
        except NotFoundError:
            return
        if open_store(held).root != open_store(location).root:
            raise AlreadyExistsError(
                path=held,
                reason=f"the catalog has {self._name} for another table",
                remedy="Choose another name, or drop that one: only the catalog forgets it",
            )


def _no_type(column: str, text: str, reason: str) -> InvalidInputError:
    return InvalidInputError(
        argument="dataType",
        field=column,
        reason=f"{text!r} is no type: {reason}",
        remedy="Write one type of Spark SQL, such as DECIMAL(10, 2), and call addColumn for each "
        "column",
    )
