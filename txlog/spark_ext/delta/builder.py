"""The builders of `DeltaTable.create(spark)` and similar: define a table column by column."""

# ruff: noqa: N802, N803, N806 (the names are delta-spark's)

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar
from weakref import WeakKeyDictionary

from pyspark.sql.types import StructType

from txlog.base.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    TxlogError,
    UnsupportedFeatureError,
    named_for_callers,
    use_given_names,
)
from txlog.base.uris import file_path, is_file_uri, scheme_of
from txlog.commit.context import require_shared
from txlog.data_files.constraints import with_default
from txlog.data_files.definition import Definition
from txlog.data_files.identity import Identity
from txlog.expressions.tree import quote_name
from txlog.schema.json import parse_schema
from txlog.schema.types import GENERATION
from txlog.schema.types import StructType as DeltaType
from txlog.spark_ext.catalog import (
    keeps_case,
    path_in,
    register_table,
    split_name,
    table_location,
)
from txlog.spark_ext.delta.arguments import (
    TypeTextError,
    as_errors_of_spark,
    names_in,
    of_type,
)
from txlog.spark_ext.spark_types import require_storable
from txlog.spark_ext.writes.merge import table
from txlog.store.open import open_store
from txlog.store.places import same_place
from txlog.table.seam import execute
from txlog.table.table import Table
from txlog.verbs.replace import ReplaceTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructField

    from txlog.data_files.modes import WriteMode

How = Literal["create", "createIfNotExists", "replace", "createOrReplace"]
Handle = TypeVar("Handle")


_SIZED_TEXT = re.compile(r"\b(?:var)?char(?:acter)?\s*\(", re.IGNORECASE)
_SIZED_TYPE = re.compile(r'"(?:type|elementType|keyType|valueType)":"((?:var)?char\(\d+\))"')
_SPARKS_NAME = re.compile(r"[A-Za-z0-9_]+")  # The names of tables that Spark's own catalog allows.


@dataclass
class IdentityGenerator:
    """The first value and the step of an identity column."""

    start: int = 1
    step: int = 1


class DeltaTableBuilder(Generic[Handle]):
    """Collects the definition of a table; only `execute` creates it.

    Parameters
    ----------
    handle
        Creates the result of `execute` from a session and the table: a `DeltaTable`.
    """

    def __init__(
        self, spark: SparkSession, how: How, handle: Callable[[SparkSession, Table], Handle]
    ) -> None:
        self._spark = spark
        self._how = how
        self._handle = handle
        self._name: str | None = None
        self._location: str | None = None
        self._path: str | None = None  # That of a name such as delta.`/path`.
        self._comment: str | None = None
        self._fields: list[StructField] = []
        self._partition_by: list[str] = []
        self._cluster_by: list[str] = []
        self._properties: dict[str, str] = {}
        self._options: Mapping[str, Any] = {}  # Those of the store.

    def tableName(self, identifier: str) -> DeltaTableBuilder[Handle]:
        """Set the name in Spark's catalog, or a location as ``delta.`/path` ``.

        Without a location, the table is at the catalog's location for this name. For a new name,
        this is a folder in the folder of its schema, as for Spark's own tables.
        """
        of_type(str, identifier, "identifier")
        path = path_in(identifier)
        if path is not None:
            if self._location is not None:
                _require_same(path, self._location)
            self._path = self._location = path
            return self
        split_name(identifier)
        self._name = identifier
        return self

    def location(self, location: str) -> DeltaTableBuilder[Handle]:
        """Set the table's path."""
        found = of_type(str, location, "location")
        if self._path is not None:
            _require_same(self._path, found)
        self._location = found
        return self

    def comment(self, comment: str) -> DeltaTableBuilder[Handle]:
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
    ) -> DeltaTableBuilder[Handle]:
        """Add a column with a Spark type or an SQL type: `INT`, or `INT NOT NULL`.

        Raises
        ------
        InvalidInputError
            The text is not one type of Spark SQL.
        """
        from pyspark.sql.types import DataType, StructField

        of_type(str, colName, "colName")
        of_type(bool, nullable, "nullable")
        if not isinstance(generatedAlwaysAs, IdentityGenerator | None):
            of_type(str, generatedAlwaysAs, "generatedAlwaysAs")
        metadata: dict[str, Any] = {}
        if isinstance(dataType, str):
            field = self._field_of(colName, dataType)
            dataType, nullable = field.dataType, nullable and field.nullable
            metadata = dict(field.metadata)
        elif not isinstance(dataType, DataType):
            of_type(str, dataType, "dataType")
        if isinstance(generatedAlwaysAs, str):
            metadata[GENERATION] = generatedAlwaysAs
        metadata |= _identity(colName, generatedAlwaysAs, generatedByDefaultAs)
        if comment is not None:
            metadata["comment"] = of_type(str, comment, "comment")
        self._fields.append(StructField(colName, dataType, nullable, metadata))
        return self

    def _with_default(self, text: str) -> DeltaTableBuilder[Handle]:
        """Give the last column a default, as `Table.alter.set_default` does; errors as there."""
        field = self._fields[-1]
        declared = parse_schema(StructType([field]).json()).fields[0]
        field.metadata = {**field.metadata, **with_default(declared, text).metadata}
        return self

    def _field_of(self, name: str, text: str) -> StructField:
        """Return a column with a type in SQL."""
        if _SIZED_TEXT.search(text):
            raise _unchecked_length(name, text)
        try:
            return one_field(self._spark, f"{quote_name(name)} {text}")
        except ValueError as error:
            raise _no_type(name, text, str(error)) from error

    def addColumns(self, cols: StructType | list[StructField]) -> DeltaTableBuilder[Handle]:
        """Add the columns of a Spark schema."""
        from pyspark.sql.types import StructField

        for column in cols:
            self._fields.append(of_type(StructField, column, "cols"))
        return self

    def partitionedBy(self, *cols: str | list[str] | tuple[str, ...]) -> DeltaTableBuilder[Handle]:
        """Set the partition columns."""
        self._partition_by = names_in(cols, "cols")
        return self

    def clusterBy(self, *cols: str | list[str] | tuple[str, ...]) -> DeltaTableBuilder[Handle]:
        """Set the columns by which `optimize` clusters rows, up to four, instead of partitions."""
        self._cluster_by = names_in(cols, "cols")
        return self

    def property(self, key: str, value: str) -> DeltaTableBuilder[Handle]:
        """Set a property of the table."""
        self._properties[of_type(str, key, "key")] = of_type(str, value, "value")
        return self

    def _with_options(self, options: Mapping[str, Any]) -> DeltaTableBuilder[Handle]:
        """Set the options of the table's store, which Spark's catalog does not get."""
        self._options = options
        return self

    def execute(self) -> Handle:
        """Create or replace the table, and return it.

        Then the name is added to Spark's catalog, for `DeltaTable.forName`. Spark's own SQL also
        needs the path: `SELECT … FROM name WITH ('path'='…')`. `DROP TABLE` does not delete files.

        Raises
        ------
        AlreadyExistsError
            The table exists (with `create`), or the folder for the name has other files.
        NotFoundError
            The table does not exist (with `replace`), or the catalog does not have the schema.
        InvalidInputError
            Name and location are missing, or a column, the partitioning or a property is invalid.
        UnsupportedFeatureError
            txlog cannot write such a table, or the folder of the schema is not on a local disk.
        """
        try:
            with as_errors_of_spark():
                location = self._place()
                made = self._made(location)
        except InvalidInputError as error:
            use_given_names(error, self._given())
            raise
        self._register(made.uri)
        return self._handle(self._spark, table(self._spark, location, None, None, self._options))

    def _given(self) -> dict[str, Any]:
        """Return the arguments that the builder's methods got, by their names there."""
        return {
            "cols": self._fields,
            "comment": self._comment,
            "identifier": self._name,
            "location": self._location,
            "value": self._properties,
        }

    def _filled(self, frame: DataFrame) -> None:
        """Create the table with a frame's rows, in one version; errors as for `execute`."""
        from txlog.spark_ext.writes.write_frame import write, write_defined

        location = self._place()
        if self._how == "replace":
            self._open(location)  # Raises if there is none.
        left = self._left_version(location)
        if self._how in ("createOrReplace", "replace") or left is not None:
            definition = Definition(**self._definition())
            write_defined(frame, location, definition, replaced=left, storage_options=self._options)
        else:
            mode: WriteMode = "ignore" if self._how == "createIfNotExists" else "error"
            write(frame, location, mode=mode, storage_options=self._options, **self._definition())
        self._register(Table(location, storage_options=self._options).uri)

    def _cloned(self, clone: Callable[[str], Table]) -> None:
        """Create the table at its place by a function, unless it exists and is kept."""
        location = self._place()
        if self._how == "replace":
            self._open(location)
        if self._how != "createIfNotExists" or not Table.exists(location, self._options):
            with as_errors_of_spark():
                clone(location)
        self._register(Table(location, storage_options=self._options).uri)

    def _registered(self) -> None:
        """Add the table that is at the place to Spark's catalog; nothing else is created.

        Raises
        ------
        AlreadyExistsError
            The catalog has the name already (with `create`).
        InvalidInputError
            There is no table, or it has other partition columns or properties than were given.
        """
        location = self._place()
        known = self._name is not None and _registered_folder(self._spark, self._name) is not None
        if self._how in ("createOrReplace", "replace") or not Table.exists(location, self._options):
            raise InvalidInputError(
                argument="text",
                reason="the statement has neither columns nor a query"
                + ("" if self._how != "create" else f", and there is no table at {location}"),
                remedy="Add the columns in parentheses, or AS and a query",
            )
        opened = Table(location, storage_options=self._options)
        if self._how == "create" and (known or self._name is None):
            raise AlreadyExistsError(
                path=opened.uri,
                reason=f"the table {self._name or location} already exists",
                remedy="Write IF NOT EXISTS, or CREATE OR REPLACE TABLE",
            )
        self._require_same(opened)
        self._register(opened.uri)

    def _require_same(self, opened: Table) -> None:
        """Raise if a table is not what the statement says of it."""
        own = opened.properties
        wrong = [key for key, value in self._properties.items() if own.get(key) != value]
        if self._partition_by and self._partition_by != opened.partition_columns:
            wrong.append("PARTITIONED BY")
        if self._cluster_by:
            wrong.append("CLUSTER BY")
        if wrong:
            raise InvalidInputError(
                argument="text",
                reason=f"the table at {opened.uri} exists, and differs in {', '.join(wrong)}",
                remedy="Omit what the table defines itself, or change it with ALTER TABLE",
            )

    def _register(self, uri: str) -> None:
        if self._name is not None:
            register_table(self._spark, self._name, uri)
            _LEFT.get(self._spark, {}).pop(open_store(uri).root, None)

    def _open(self, location: str) -> Table:
        """Return the existing table; the error of a missing one names what the caller wrote."""
        try:
            return Table(location, storage_options=self._options)
        except NotFoundError as error:
            if self._name is not None:  # The caller does not know the path.
                error.path = self._name
                error.reason = "the table cannot be found"
            raise

    def _made(self, location: str) -> Table:
        left = self._left_version(location)
        if self._how != "replace" and left is None:
            try:
                return Table.create(
                    location, self._schema(), storage_options=self._options, **self._definition()
                )
            except AlreadyExistsError as error:
                if self._how == "create":
                    if self._name is not None:
                        error.reason = f"the table {self._name} already exists"
                    raise
        table = self._open(location)
        if self._how == "createIfNotExists" and left is None:
            return table
        operation = ReplaceTable(
            self._schema(),
            Definition(**self._definition()),
            or_create=self._how == "createOrReplace",
            only_version=left,
        )
        execute(table, operation)
        return table

    def _definition(self) -> dict[str, Any]:
        return {
            "partition_by": self._partition_by,
            "cluster_by": self._cluster_by,
            "properties": self._properties,
            "description": self._comment,
        }

    def _schema(self) -> DeltaType:
        for field in self._fields:
            if found := _SIZED_TYPE.search(StructType([field]).json()):
                raise _unchecked_length(field.name, found[1])
        schema = parse_schema(StructType(self._fields).json())
        require_storable(schema, argument="cols")
        return schema

    def _left_version(self, location: str) -> int | None:
        """Return the version of a table that `DROP TABLE` in this session left at a place.

        None if there is no such table, or if it is in use again: under its name, or by its path.
        """
        if self._location is not None or self._name is None:
            return None
        notes = _LEFT.get(self._spark, {})
        root = open_store(location).root
        if root not in notes:
            return None
        is_used = _registered_folder(self._spark, self._name) is not None
        if is_used or version_at(location, self._options) != notes[root]:
            del notes[root]
            return None
        return notes[root]

    def _place(self) -> str:
        """Return the path of the table. Nothing is created."""
        if self._name is None:
            if self._location is None:
                raise InvalidInputError(
                    argument="location",
                    reason="neither a name nor a path was given",
                    remedy="Call location(path) or tableName(name)",
                )
            return _without_other_files(self._location)
        existing = _registered_folder(self._spark, self._name)
        if self._location is None:
            return existing or _own_folder(self._spark, self._name)
        if existing is not None and not same_place(
            open_store(existing).root, open_store(self._location).root
        ):
            raise AlreadyExistsError(
                path=existing,
                reason=f"another table has the name {self._name} in the catalog",
                remedy="Choose another name, or drop this name from the catalog; its files remain",
            )
        return _without_other_files(self._location)


def _require_same(path: str, location: str) -> None:
    """Raise if a table is named by one path, and has another one for its location."""
    if not same_place(open_store(path).root, open_store(location).root):
        raise InvalidInputError(
            argument="location",
            reason=f"the name of the table is the path {path}, and its location is {location}",
            remedy="Omit the location, or give the table a name in the catalog",
        )


# Tables in folders of schemas whose names this session has dropped. `DROP TABLE` keeps files, and a
# new table of the name replaces them, as if it was made anew. Each root has the version that the
# table had then: whoever commits a later one uses the table.
_LEFT: WeakKeyDictionary[SparkSession, dict[str, int]] = WeakKeyDictionary()


def version_at(location: str, options: Mapping[str, Any]) -> int | None:
    """Return the latest version of a table; None if it cannot be read."""
    try:
        return Table(location, storage_options=options).version
    except TxlogError:
        return None


def note_dropped(spark: SparkSession, name: str, location: str, version: int) -> None:
    """Let the next table of a dropped name replace the table in the folder of its schema.

    Only this version of it is replaced. A table at another place stays as it is.
    """
    try:
        own = open_store(_own_folder(spark, name)).root
    except TxlogError:  # The name has no folder.
        return
    root = open_store(location).root
    if same_place(own, root):
        _LEFT.setdefault(spark, {})[root] = version


def one_field(spark: SparkSession, definition: str) -> StructField:
    """Return the column that SQL text defines, such as `x INT NOT NULL`.

    Raises
    ------
    ValueError
        Spark cannot parse the text, or it defines several columns; the message says so.
    """
    from pyspark.errors import PySparkException

    try:
        fields = spark.createDataFrame([], definition).schema.fields
    except PySparkException as error:
        message = " ".join(str(error).split("== SQL")[0].split())
        raise ValueError(f"Spark cannot parse it: {message}") from error
    if len(fields) != 1:
        raise ValueError(f"it defines {len(fields)} columns")
    return fields[0]


def _identity(
    column: str,
    always: str | IdentityGenerator | None,
    by_default: IdentityGenerator | None,
) -> dict[str, Any]:
    """Return the metadata of an identity column; an empty dict for other columns."""
    if by_default is not None:
        of_type(IdentityGenerator, by_default, "generatedByDefaultAs")
    given = by_default if by_default is not None else always
    if given is None or isinstance(given, str):
        return {}
    if by_default is not None and always is not None:
        raise InvalidInputError(
            argument="generatedByDefaultAs",
            field=column,
            reason="generatedAlwaysAs and generatedByDefaultAs both define the values",
            remedy="Pass one of them",
        )
    argument = "generatedAlwaysAs" if by_default is None else "generatedByDefaultAs"
    of_type(int, given.start, "start", argument)
    of_type(int, given.step, "step", argument)
    return Identity(given.start, given.step, by_default is not None).metadata()


def _registered_folder(spark: SparkSession, name: str) -> str | None:
    """Return the location of a table in the catalog; None if the catalog lacks the name."""
    try:
        return table_location(spark, name)
    except NotFoundError:
        return None


def _own_folder(spark: SparkSession, name: str) -> str:
    """Return the path that Spark would choose for its own table; it is empty or a Delta table.

    Raises
    ------
    AlreadyExistsError
        The folder has files that belong to no table.
    InvalidInputError
        Spark's catalog does not allow the name.
    NotFoundError
        The catalog does not have the schema.
    UnsupportedFeatureError
        The schema's folder is not on a local disk.
    """
    *schema, last = split_name(name)
    if _SPARKS_NAME.fullmatch(last) is None:  # Such as `..`, which would leave the folder.
        raise InvalidInputError(
            argument="identifier",
            reason=f"{name!r}: Spark allows only ASCII letters, digits and _ in a table's name",
            remedy="Choose another name, or a path with location(path)",
        )
    home = _folder_of_schema(spark, ".".join(map(quote_name, schema)), name)
    if not is_file_uri(home):
        raise UnsupportedFeatureError(
            path=name,
            reason=f"the location of its schema is {home or 'unknown'}, and txlog "
            "chooses folders only on local disks",
            remedy="Call location(path)",
        )
    if not keeps_case(spark):
        last = last.lower()
    return _without_other_files(str(Path(file_path(home, decode=True), last)))


def _without_other_files(location: str) -> str:
    """Return a location; raise if it is a local folder with files that belong to no Delta table.

    A vacuum of the new table would delete these files. A place in memory is refused, too.
    """
    store = open_store(location)
    require_shared(
        store, argument="location", remedy="Put the table in a store that all workers can access"
    )
    root = store.root
    if scheme_of(root) not in (None, "file"):
        return location
    folder = Path(root)
    if folder.is_dir() and any(folder.iterdir()) and not Table.exists(folder):
        raise AlreadyExistsError(
            path=root,
            reason="the folder has files that belong to no Delta table",
            remedy="Delete these files, or choose another folder with location(path)",
        )
    return location


def _folder_of_schema(spark: SparkSession, schema: str, name: str) -> str:
    """Return the URI of the folder for tables of a schema; "" is the current schema."""
    from pyspark.errors import AnalysisException

    try:
        found = spark.catalog.getDatabase(schema or spark.catalog.currentDatabase())
    except AnalysisException as error:
        message = str(error).splitlines()[0]
        raise NotFoundError(
            path=name,
            reason=f"Spark's catalog does not have this schema: {message}",
            remedy="Create it with CREATE SCHEMA, or choose another one",
        ) from error
    return found.locationUri or ""


def _unchecked_length(column: str, text: str) -> InvalidInputError:
    return InvalidInputError(
        argument="dataType",
        field=column,
        reason=f"{text!r}: txlog declares no length of text",
        remedy="Use STRING, and a CHECK constraint for the length",
    )


def _no_type(column: str, text: str, reason: str) -> TypeTextError:
    return TypeTextError(
        argument="dataType",
        field=column,
        reason=f"{text!r} is not a type: {reason}",
        remedy="Write one type of Spark SQL, such as DECIMAL(10, 2), and call addColumn for each "
        "column",
    )


named_for_callers(DeltaTableBuilder)
