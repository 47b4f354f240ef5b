"""Marks in the plans of frames, by which a write finds out whether its frame reads its table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from txlog.base.texts import without_secrets
from txlog.spark_ext.plans import has_plan, java_class, plan_of
from txlog.store.base import Store
from txlog.store.branches import branch_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

READ_TABLE = "txlog.readTable"
READ_VERSION = "txlog.readVersion"
READ_BRANCH = "txlog.readBranch"
_RECIPE = "txlog.recipe"  # The name of a tag.


def marks_of(store: Store, version: int) -> Mapping[str, str]:
    """Return options that have no effect on a read of the latest version of a table or a branch.

    Spark keeps the options of a read in all plans that contain it, and shows them.
    """
    marks = {READ_TABLE: without_secrets(store.root), READ_VERSION: str(version)}
    branch = branch_id(store)
    return marks if branch is None else {**marks, READ_BRANCH: branch}


@dataclass(frozen=True)
class Recipe:
    """How `read` was asked for the latest version of a table, to do the same with a later one.

    Parameters
    ----------
    columns
        As for `read`.
    where, zone
        The predicate as SQL, and the time zone of its dates and times.
    """

    columns: tuple[str, ...] | None
    where: str | None
    zone: str
    manifests: str | None
    use_index: bool


def with_recipe(frame: DataFrame, recipe: Recipe) -> DataFrame:
    """Put a recipe on the root of the plan of a frame that `read` returns, and return the frame.

    Spark copies the tags of a plan with it, into views and self-joins too, and shows them nowhere.
    Spark Connect has no plans in this process, so nothing happens there.
    """
    if has_plan(frame):
        plan_of(frame).setTagValue(_tag(frame), json.dumps(asdict(recipe)))
    return frame


def recipe_on(plan: Any, frame: DataFrame) -> Recipe | None:
    """Return the recipe on a node of a plan of the JVM; `frame` is any frame of its session."""
    found = plan.getTagValue(_tag(frame))
    if not found.isDefined():
        return None
    fields = json.loads(found.get())
    columns = fields.pop("columns")
    return Recipe(None if columns is None else tuple(columns), **fields)


def _tag(frame: DataFrame) -> Any:
    return java_class(frame, "org.apache.spark.sql.catalyst.trees.TreeNodeTag")(_RECIPE)
