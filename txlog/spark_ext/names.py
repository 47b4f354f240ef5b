"""The names of a catalog of tables (`txlog.Catalog`) in a session of Spark."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from txlog.base.errors import InvalidInputError
from txlog.store.branches import with_branch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txlog.catalog.catalog import Catalog

_SETTING = "spark.txlog.catalog"
# By id. A session's setting has the id alone, so that no setting shows the URL of a database; the
# sessions that Spark makes of a session, for foreachBatch, have its settings.
_KNOWN: dict[str, Catalog] = {}


def use(spark: SparkSession, catalog: Catalog | None) -> None:
    """Let a session know the names of a catalog: in `read`, `write`, `table`, `sql`, `DeltaTable`.

    A name of the catalog counts before one of Spark's own catalog, and paths stay paths. Its
    managed tables are read and written through the catalog. `format("txlog")` takes
    `Catalog.storage_options` instead, because Spark runs it in other processes.

    Parameters
    ----------
    catalog
        None: no catalog any more.
    """
    if catalog is None:
        spark.conf.unset(_SETTING)
        return
    _KNOWN[catalog.id] = catalog
    spark.conf.set(_SETTING, catalog.id)


def catalog_in(spark: SparkSession | None) -> Catalog | None:
    """Return the catalog that a session uses, or None.

    Raises
    ------
    InvalidInputError
        The session uses a catalog of another process.
    """
    # A table can be made without a session, for what needs none.
    known = None if spark is None else spark.conf.get(_SETTING, None)
    if not known:
        return None
    if known not in _KNOWN:
        raise InvalidInputError(
            argument=_SETTING,
            reason="the session uses a catalog that this process has not opened",
            remedy="Let the session use the catalog again, or unset the setting",
        )
    return _KNOWN[known]


def location_in(spark: SparkSession, name: str) -> str | None:
    """Return the location of a table by its name in the session's catalog; None if it has none."""
    catalog = catalog_in(spark)
    return catalog.location_of(name) if catalog is not None and name in catalog else None


def options_in(spark: SparkSession, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return storage options with those of the session's catalog."""
    catalog = catalog_in(spark)
    return {**({} if catalog is None else catalog.storage_options()), **(given or {})}


def placed(
    spark: SparkSession,
    uri: str | PathLike[str],
    given: Mapping[str, Any] | None,
    branch: str | None = None,
) -> tuple[str | PathLike[str], Mapping[str, Any] | None]:
    """Return the location and the storage options of a table, or of a branch of it.

    Parameters
    ----------
    uri
        A location, or a name of the session's catalog.

    Raises
    ------
    InvalidInputError
        No branch can have such a name, or the options choose another one.
    """
    given = with_branch(given, branch)
    catalog = catalog_in(spark)
    if catalog is None:
        return uri, given
    text = fspath(uri) if isinstance(uri, str | PathLike) else uri
    place = catalog.location_of(text) if text in catalog else uri
    return place, options_in(spark, given)
