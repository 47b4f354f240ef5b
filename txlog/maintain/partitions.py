"""Files that are chosen by their partition."""

from __future__ import annotations

from txlog.errors import InvalidInputError
from txlog.expressions.bind import columns_of
from txlog.expressions.tree import Expression
from txlog.snapshot.snapshot import Snapshot


def require_partition_columns(where: Expression | None, snapshot: Snapshot) -> None:
    """Refuse a predicate that reads other columns than those of the partitioning.

    Raises
    ------
    InvalidInputError
        Names the column.
    """
    for path in () if where is None else columns_of(where):
        if path[0] not in snapshot.partition_columns:
            raise InvalidInputError(
                argument="where",
                field=".".join(path),
                reason="files are chosen by partition, and this is no partition column",
                remedy=f"Use {', '.join(snapshot.partition_columns) or 'no predicate'}",
            )
