"""Frames that read the table that they change: they read the version on which the change decides.

A plan of Spark names files, so it stays at the version that was read. Where the caller has not
chosen that version, the part of the plan that reads the table is made anew for another one. Its
columns keep their ids, by which the rest of the plan and the Columns of the caller know them.

Rules: spec/spark.md, SPK-27.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from txlog.base.errors import InvalidInputError
from txlog.expressions.sql import as_expression
from txlog.spark_ext.engine import format_known
from txlog.spark_ext.plans import (
    each,
    has_plan,
    output_of,
    plan_of,
    plans_of,
    projected,
    renamed,
    with_parts,
)
from txlog.spark_ext.reads.marks import Recipe, marks_of, recipe_on
from txlog.spark_ext.reads.read_frame import read_version
from txlog.spark_ext.writes.own_reads import (
    LATER,
    Relation,
    kept_relations,
    relation_of,
    relations_of_plan,
    version_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from txlog.snapshot.snapshot import Snapshot
    from txlog.store.base import Store

_CHANGES = ("readchangefeed", "readchangedata")


def followed(df: DataFrame, store: Store, snapshot: Snapshot) -> DataFrame:
    """Return a frame that reads a table at a version of the log, wherever the caller chose none.

    What cannot be read so stays as it is: frames of Spark Connect, which have no plan here, reads
    of columns that this version does not have with the same type, and rows that are computed
    already. If Spark keeps rows of the table at another version (`cache`, `persist`), all of the
    frame stays: in another plan Spark would not find them, and would compute other rows.

    Parameters
    ----------
    df
        A frame, which may read the table anywhere, in subqueries and views too.
    snapshot
        The version of the table. The frame may have read an older or a newer one.
    """
    if not has_plan(df):
        return df

    def is_other(one: Relation) -> bool:
        return version_of(one, store, LATER) not in (None, snapshot.version)

    plans = [plan for plan in plans_of(df) if any(map(is_other, relations_of_plan(plan)))]
    if not plans or any(map(is_other, kept_relations(df))):
        return df
    parts = {}
    for plan in plans:
        for old, how in _reads(plan, df, store, snapshot):
            new = _read_again(how, df, store, snapshot)
            if new is not None and (part := _in_place_of(old, new)) is not None:
                parts[old] = part
    return with_parts(df, parts) if parts else df


def _reads(
    plan: Any, df: DataFrame, store: Store, snapshot: Snapshot
) -> Iterator[tuple[Any, Recipe | Relation]]:
    """Yield the parts of a plan that read a table at another version, with how they read it."""
    recipe = recipe_on(plan, df)
    if recipe is not None:
        versions = {version_of(one, store, LATER) for one in relations_of_plan(plan)}
        if versions and versions.isdisjoint((None, snapshot.version)):
            yield plan, recipe
        return
    children = list(each(plan.children()))
    for child in children:
        yield from _reads(child, df, store, snapshot)
    leaf = None if children else relation_of(plan)
    if leaf is not None and version_of(leaf, store, LATER) == LATER:
        yield plan, leaf


def _read_again(
    how: Recipe | Relation, df: DataFrame, store: Store, snapshot: Snapshot
) -> DataFrame | None:
    """Return the rows of a version, read in the same way; None if it has not all of the columns."""
    marks = marks_of(store, snapshot.version)
    if isinstance(how, Relation):
        of_changes = any(how.options.get(name, "false") != "false" for name in _CHANGES)
        asked = "endingVersion" if of_changes else "versionAsOf"
        reader = df.sparkSession.read.format("txlog").options(**how.options, **marks)
        with format_known():
            return reader.option(asked, snapshot.version).load()
    try:
        return read_version(
            df.sparkSession,
            store,
            snapshot,
            columns=how.columns,
            where=as_expression(how.where, how.zone),
            marks=marks,
            manifests=how.manifests,
            use_index=how.use_index,
        )
    except InvalidInputError:
        return None


def _in_place_of(old: Any, new: DataFrame) -> Any | None:
    """Return the plan of a frame with the columns of another plan: their order, names and ids.

    None if the frame has not all of these columns with their types, or if one may have nulls that
    the rest of the plan does not expect.
    """
    now = {one.name(): one for one in output_of(plan_of(new))}
    columns = []
    for before in output_of(old):
        found = now.get(before.name())
        if found is None or not found.dataType().equals(before.dataType()):
            return None
        if found.nullable() and not before.nullable():
            return None
        columns.append(renamed(new, found, before.name(), before.exprId(), before.metadata()))
    return projected(new, columns, plan_of(new))
