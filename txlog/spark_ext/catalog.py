"""Find the locations of tables in Spark's catalog, and create views over tables.

Spark does not pass the location of a catalog table to a Python source, but its catalog shows it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from txlog.base.errors import (
    InvalidInputError,
    NotFoundError,
    UnsupportedFeatureError,
    in_callers_words,
)
from txlog.expressions.tree import Expression, quote_name, quote_text
from txlog.protocol.access import features_of
from txlog.protocol.properties import FEATURE_PREFIX, split_features
from txlog.snapshot.snapshot import Snapshot
from txlog.spark_ext.engine import format_known
from txlog.spark_ext.names import location_in
from txlog.spark_ext.reads import read
from txlog.spark_ext.source.options import plain_path
from txlog.store.branches import with_branch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_FORMATS = ("delta", "txlog")
_OWN_CATALOG = "spark_catalog"
_NAME = re.compile("[A-Za-z0-9_]+")  # Spark's own catalog allows no other names of tables.
# Spark's error classes for a missing table; the last one is of 4.2.
_NO_SCHEMA = ("_NOT_FOUND", "SINGLE_PART_NAMESPACE", "NESTED_DATABASE", "Nested databases")
_NESTED = re.compile("NESTED_DATABASE|Nested databases")  # It took a catalog for a database.
_PROPERTY = re.compile(
    r"(?:^\[|, )(delta\.[^=\s]+)=(.*?)(?=, [^=\s]+=|\]$)"
)  # The form in which Spark shows them.
_PART = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^.`\s]+))\s*(\.|$)")


def split_name(name: str) -> list[str]:
    """Return the parts of `catalog.schema.table`, each of which may be in backticks.

    Raises
    ------
    InvalidInputError
        The text is not such a name.
    """
    parts: list[str] = []
    at, more = 0, True
    while more:
        found = _PART.match(name, at) if isinstance(name, str) else None
        if found is None:
            raise InvalidInputError(
                argument="name",
                reason=f"{name!r} is not the name of a table",
                remedy="Write it as table, schema.table or delta.`/path`",
            )
        parts.append(found[2] or found[1].replace("``", "`"))
        at, more = found.end(), found[3] == "."
    return parts


def path_in(identifier: str) -> str | None:
    """Return the path in ``delta.`/path` ``, or None if the text has another form.

    The name of Spark's own catalog may stand before it.
    """
    try:
        parts = split_name(identifier)
    except InvalidInputError:
        return None
    if len(parts) == 3 and parts[0].lower() == _OWN_CATALOG:
        parts = parts[1:]
    is_path = len(parts) == 2 and parts[0].lower() in _FORMATS and "/" in parts[1]
    return parts[1] if is_path else None


def is_table_name(text: str) -> bool:
    """Return whether a text can be `table`, `schema.table` or `catalog.schema.table`."""
    try:
        parts = split_name(text)
    except InvalidInputError:
        return False
    return len(parts) <= 3 and all(map(_NAME.fullmatch, parts))


def keeps_case(spark: SparkSession) -> bool:
    """Return whether Spark distinguishes names by case."""
    return spark.conf.get("spark.sql.caseSensitive") == "true"


def table_location(spark: SparkSession, name: str) -> str:
    """Return the location of a catalog table (`CREATE TABLE … USING txlog LOCATION …`).

    For ``delta.`/path` `` and ``txlog.`/path` `` it is the path. Options of the table, such as
    `storageOptions`, cannot be read, because Spark hides them.

    Raises
    ------
    NotFoundError
        The catalog has no such table, or no such schema.
    UnsupportedFeatureError
        It is a temporary view, which has no location, or a table in another format.
    """
    return catalog_entry(spark, name).location


@dataclass(frozen=True)
class CatalogEntry:
    """The entry of a table in Spark's catalog."""

    location: str
    properties: Mapping[str, str] = field(default_factory=dict)  # Those of Delta, for `txlog`.


def catalog_entry(spark: SparkSession, name: str) -> CatalogEntry:
    """Return a table's entry in Spark's catalog; errors as for `table_location`."""
    path = path_in(name)
    if path is not None:
        return CatalogEntry(path)
    if (place := location_in(spark, ".".join(split_name(name)))) is not None:
        return CatalogEntry(place)
    try:
        return _named_entry(spark, name)
    except NotFoundError as error:
        parts = split_name(name)
        if len(parts) != 2 or parts[0].lower() not in _FORMATS:
            raise
        # A name without a slash is a table of the schema `txlog`, or otherwise a folder.
        from txlog.table.table import Table

        if Table.exists(parts[1]):
            return CatalogEntry(f"./{parts[1]}")
        error.remedy = f"Check the path: {parts[0]}.`./{parts[1]}`"
        raise


def _named_entry(spark: SparkSession, name: str) -> CatalogEntry:
    parts = split_name(name)
    inside = f" IN {'.'.join(map(quote_name, parts[:-1]))}" if len(parts) > 1 else ""
    pattern = quote_text(parts[-1])
    rows = _shown(spark, f"SHOW TABLE EXTENDED{inside} LIKE {pattern}", name)
    same = [row for row in rows if row["tableName"] == parts[-1]]
    if not same and not keeps_case(spark):
        same = [row for row in rows if row["tableName"].lower() == parts[-1].lower()]
    if inside:  # Spark lists temporary views with the tables of each schema.
        same = [row for row in same if row["namespace"]]
    if any(row["isTemporary"] for row in same):
        raise UnsupportedFeatureError(
            path=name,
            reason="Spark does not tell which table a temporary view is over",
            remedy="Use the path of the table, for example with forPath",
        )
    if not same:
        raise _no_table(name, "Spark's catalog has no such table")
    lines = same[0]["information"].split("\nSchema: ")[0].splitlines()
    provider, location = _fact_in(lines, "Provider"), _fact_in(lines, "Location")
    if provider is None or provider.lower() not in _FORMATS or location is None:
        current = spark.catalog.currentCatalog()
        if (catalog := parts[0] if len(parts) > 2 else current) != _OWN_CATALOG:
            raise UnsupportedFeatureError(
                path=name,
                reason=f"it is a table of the catalog {catalog}, and no Delta table",
                remedy="Name a Delta table. In spark_ext.sql, queries and the sources of INSERT, "
                "MERGE, UPDATE and DELETE may name tables of any catalog",
            )
        raise UnsupportedFeatureError(
            path=name,
            reason=f"the catalog has it as a table of {provider or 'no format'}, "
            f"{'without' if location is None else 'with'} a location",
            remedy="Use forPath with the path of a Delta table",
        )
    # Other engines keep notes of their own beside tables of the format `delta`.
    properties = _fact_in(lines, "Table Properties") if provider.lower() == "txlog" else None
    return CatalogEntry(plain_path(location), dict(_PROPERTY.findall(properties or "")))


def require_in_log(entry: CatalogEntry, name: str, snapshot: Snapshot) -> None:
    """Raise if Spark's catalog has properties that the log lacks, because they have no effect.

    `ALTER TABLE … SET TBLPROPERTIES` and `CREATE TABLE … TBLPROPERTIES` store properties in the
    catalog, and Spark does not inform Python sources.

    Raises
    ------
    UnsupportedFeatureError
        The error names the properties.
    """
    features, properties = split_features(entry.properties)
    own = snapshot.metadata.configuration
    lacking = [key for key, value in properties.items() if own.get(key) != value]
    lacking += [FEATURE_PREFIX + one for one in sorted(features - features_of(snapshot.protocol))]
    if lacking:
        raise UnsupportedFeatureError(
            path=name,
            reason="Spark's catalog has properties that the table's log does not have, so they "
            f"have no effect: {', '.join(lacking)}",
            remedy=f"ALTER TABLE {name} UNSET TBLPROPERTIES ({', '.join(map(repr, lacking))}); "
            "addFeatureSupport adds features, and DeltaTable.replace(…).property properties",
        )


def _shown(spark: SparkSession, command: str, name: str) -> Sequence[Row]:
    """Return the result of a command for Spark's catalog; its errors become those of txlog."""
    from pyspark.errors import AnalysisException

    try:
        return spark.sql(command).collect()
    except AnalysisException as error:
        message = str(error).splitlines()[0]
        first, *others = split_name(name)
        if len(others) == 2 and _NESTED.search(message):
            raise _no_table(name, f"Spark has no catalog {first}") from error
        if any(part in message for part in _NO_SCHEMA):
            raise _no_table(name, f"Spark's catalog has no such schema: {message}") from error
        raise UnsupportedFeatureError(
            path=name,
            reason=f"Spark does not report the location of tables in this catalog: {message}",
            remedy="Use the path of the table, for example with forPath",
        ) from error


def _no_table(name: str, reason: str) -> NotFoundError:
    return NotFoundError(
        path=name,
        reason=reason,
        remedy="Use forPath, or add it with CREATE TABLE … USING txlog LOCATION '…'",
    )


def _fact_in(lines: Sequence[str], what: str) -> str | None:
    """Return a fact in a description; None if several lines have it, as users' text may do."""
    found = [line.partition(": ")[2] for line in lines if line.startswith(f"{what}: ")]
    return found[0] if len(found) == 1 else None


def register_table(spark: SparkSession, name: str, uri: str) -> None:
    """Add an existing table to Spark's catalog, under a name."""
    quoted = ".".join(map(quote_name, split_name(name)))
    with format_known():
        spark.sql(f"CREATE TABLE IF NOT EXISTS {quoted} USING txlog LOCATION {quote_text(uri)}")


@in_callers_words
def create_view(
    spark: SparkSession,
    name: str,
    uri: str,
    version: int | None = None,
    timestamp: str | datetime | int | None = None,
    *,
    columns: Sequence[str] | None = None,
    where: str | Expression | None = None,
    storage_options: Mapping[str, Any] | None = None,
    branch: str | None = None,
) -> None:
    """Create or replace a temporary view over a table, for SQL queries.

    In `spark_ext.sql`, `MERGE`, `UPDATE`, `DELETE` and `INSERT` change the table of a view that
    shows all of it, and then let the view show the new version. For Spark alone, the view is for
    reading: for its `INSERT INTO`, use `CREATE TEMPORARY VIEW … USING txlog`.

    Parameters
    ----------
    uri
        The table's path, or ``delta.`/path` ``; for a catalog table, the result of
        `table_location`.
    version, timestamp
        The version that the view shows; at most one of the two. Text without a zone is in the
        session's time zone. Default: the latest version at the time of the call.
    columns, where
        As for `Table.scan`; metadata columns may be named too.
    branch
        The name of an open branch. The view shows it, and statements change it through the view.

    Raises
    ------
    InvalidInputError
        Both a version and a timestamp are given, or one is malformed.
    NotFoundError
        There is no table, or no such version or branch.
    """
    if version is not None and timestamp is not None:
        raise InvalidInputError(
            argument="timestamp", reason="version and timestamp exclude each other"
        )
    path = path_in(uri) or uri
    options = with_branch(storage_options, branch)
    frame = read(
        spark,
        path,
        version,
        timestamp,
        columns=columns,
        where=where,
        storage_options=options,
    )
    frame.createOrReplaceTempView(name)
    is_whole = version is None and timestamp is None and columns is None and where is None
    made = _View(frame, path, dict(options or {}), is_whole)
    _VIEWS.setdefault(spark, {})[name.lower()] = made


@dataclass(frozen=True)
class _View:
    """What `create_view` made."""

    frame: DataFrame
    path: str
    storage_options: dict[str, Any]
    is_whole: bool  # Whether it shows all rows and columns of the latest version at its creation.


# Spark does not tell which table a view is over. Sessions that end take their views with them.
_VIEWS: WeakKeyDictionary[SparkSession, dict[str, _View]] = WeakKeyDictionary()


def view_place(spark: SparkSession, name: str) -> tuple[str, dict[str, Any]] | None:
    """Return the path and the options of the store of the table that a view shows.

    None if `create_view` has not made the view of this name that the session has now.

    Raises
    ------
    UnsupportedFeatureError
        The view shows a part of the table or an older version, which cannot be changed.
    """
    from pyspark.errors import AnalysisException

    parts = split_name(name)
    view = _VIEWS.get(spark, {}).get(parts[-1].lower()) if len(parts) == 1 else None
    if view is None:
        return None
    try:
        if not spark.table(quote_name(parts[0])).sameSemantics(view.frame):
            return None
    except AnalysisException:  # It was dropped.
        return None
    if not view.is_whole:
        raise UnsupportedFeatureError(
            path=view.path,
            reason=f"the view {name} shows a part of the table or an older version",
            remedy=f"Change the table by its path: delta.`{view.path}`",
        )
    return view.path, view.storage_options
