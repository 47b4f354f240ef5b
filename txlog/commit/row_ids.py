"""Row ids of the files of a commit, where the table tracks rows. Pure.

Rules: the Delta protocol, "Row Tracking"; spec/fragments.md, FRG-30 and FRG-31.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from txlog.actions.file import Add
from txlog.arrow import pc
from txlog.errors import LogCorruptError
from txlog.fragments.rows import FIELDS_TAG
from txlog.stats.files import num_records


@dataclass(frozen=True, slots=True)
class RowIds:
    """Where the ids and versions of new rows begin."""

    version: int  # Of the attempt.
    mark: int  # The highest id given so far; -1 for none.
    enabled: bool  # Whether rows keep their ids when they move.


def with_row_ids(adds: Iterable[Add], ids: RowIds) -> tuple[list[Add], int]:
    """Return files with row ids and versions, and the highest id given.

    A file that has them keeps them. One that gives columns to the rows of another file has none
    of its own.

    Raises
    ------
    LogCorruptError
        The statistics of a file that needs ids do not tell how many.
    """
    held = list(adds)
    mark = max([ids.mark, *(_last_id(add) for add in held)])
    given = []
    for add in held:
        if add.base_row_id is None and FIELDS_TAG in (add.tags or {}):
            given.append(add)
            continue
        change: dict[str, int] = {}
        if add.base_row_id is None:
            change["base_row_id"] = mark + 1
            mark += _require_rows(add)
        if add.default_row_commit_version is None:
            change["default_row_commit_version"] = ids.version
        given.append(add.model_copy(update=change) if change else add)
    return given, mark


def _last_id(add: Add) -> int:
    if add.base_row_id is None:
        return -1
    return add.base_row_id + max(add.num_records or 0, 1) - 1


def _require_rows(add: Add) -> int:
    rows = add.num_records
    if rows is None:
        raise LogCorruptError(
            path=add.path,
            field="numRecords",
            reason="the table tracks rows, but the statistics of this file do not tell how many "
            "it has, so that they cannot be given ids",
            remedy="The writer of this file is at fault",
        )
    return rows


def highest_row_id(files: pa.Table, *, exact: bool) -> int:
    """Return the highest id that `FILE_ROWS` show to have been given; -1 if they show none.

    With `exact`, a live file must tell its rows; else it counts as one row if it does not.

    Raises
    ------
    LogCorruptError
        A live file has ids, but does not tell how many.
    """
    files = files.filter(pc.is_valid(files["base_row_id"]))
    if files.num_rows == 0:
        return -1
    rows = num_records(files)
    if exact:
        unclear = files.filter(pc.and_(files["is_add"], pc.is_null(rows)))
        if unclear.num_rows:
            raise LogCorruptError(
                path=unclear["path"][0].as_py(),
                field="numRecords",
                reason="no highest row id is recorded, and the statistics of this file do not "
                "tell how many ids it has",
                remedy="The writer of this log is at fault",
            )
    last = pc.add(files["base_row_id"], pc.subtract(pc.max_element_wise(rows, 1), 1))
    return int(pc.max(last).as_py())
