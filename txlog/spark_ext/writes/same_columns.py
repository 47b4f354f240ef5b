"""Columns of the frames that a `DeltaTable` gave away, in conditions and values of its methods.

Each reading of a table gives its columns new ids, by which Spark knows the columns of a frame. So a
Column of `toDF()` belongs to no frame of a later update or merge. This module adds columns with the
old ids to the frame of the target. It does nothing on Spark Connect, whose Columns have other ids.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from txlog.base.thresholds import Threshold
from txlog.spark_ext.plans import (
    class_of,
    each,
    expression_of,
    frame_of,
    has_plan,
    key_of,
    output_of,
    plan_of,
    projected,
    renamed,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FRAMES: Threshold = 100  # How many frames are remembered; the oldest ones are forgotten.
_NAME = "_txlog_same_"


class GivenFrames:
    """The columns of the frames that a table gave away."""

    def __init__(self) -> None:
        self._outputs: deque[Any] = deque(maxlen=_FRAMES)

    def note(self, frame: DataFrame) -> DataFrame:
        """Remember the columns of a frame, and return it."""
        if has_plan(frame):
            self._outputs.append(output_of(plan_of(frame)))
        return frame

    def names(self) -> dict[str, str]:
        """Return the names of all columns of these frames, by what tells attributes apart."""
        return {key_of(one): str(one.name()) for output in self._outputs for one in output}

    def added_to(
        self, target: DataFrame, values: Iterable[Any], source: DataFrame | None = None
    ) -> DataFrame:
        """Return the target's frame with the columns of earlier frames that Columns refer to.

        Parameters
        ----------
        values
            Conditions and values: Columns, and text, which names columns of no frame.
        source
            The source of a merge. Its columns are its own, also if it was made of an earlier frame.
        """
        columns = [value for value in values if hasattr(value, "_jc")]
        if not self._outputs or not columns or not has_plan(target):
            return target
        used = {key for column in columns for key in _references(target, column)}
        used -= set() if source is None else {key_of(one) for one in output_of(plan_of(source))}
        earlier = {key_of(one): one for output in self._outputs for one in output}
        now = {one.name().lower(): one for one in output_of(plan_of(target))}
        again = []
        for key in used & earlier.keys():
            old = earlier[key]
            current = now.get(old.name().lower())
            if current is not None and current.dataType().equals(old.dataType()):
                again.append((current, old.exprId()))
        return _with_ids(target, again) if again else target


def _references(frame: DataFrame, column: Any) -> set[str]:
    """Return the keys of the attributes to which a Column refers.

    A name, as in `F.col("id")`, is of no frame, and has no key yet.
    """
    leaves = each(expression_of(frame, column).collectLeaves())
    return {key_of(one) for one in leaves if class_of(one) == "AttributeReference"}


def _with_ids(frame: DataFrame, again: list[tuple[Any, Any]]) -> DataFrame:
    """Return a frame with further columns: copies of some attributes under given ids."""
    copies = [renamed(frame, one, f"{_NAME}{at}", key) for at, (one, key) in enumerate(again)]
    plan = plan_of(frame)
    return frame_of(frame, projected(frame, [*output_of(plan), *copies], plan))
