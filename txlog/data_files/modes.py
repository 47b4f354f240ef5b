"""What a write replaces: the modes of all writers, checked in one place. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from txlog.base.errors import InvalidInputError, require_whole

if TYPE_CHECKING:
    from txlog.expressions.tree import Expression
    from txlog.schema.types import StructType
    from txlog.snapshot.snapshot import Snapshot

WriteMode = Literal["append", "overwrite", "error", "ignore"]
ComputedFrom = int | Literal["nothing"] | None
"""The version of a table from whose rows new rows are computed; `"nothing"`: from no rows of it."""
PartitionMode = Literal["static", "dynamic"]
SchemaMode = Literal["merge", "overwrite"] | None

_KNOWN = {
    "mode": ("append", "overwrite", "error", "ignore"),
    "partition_mode": ("static", "dynamic"),
    "schema_mode": (None, "merge", "overwrite"),
}


@dataclass(frozen=True, kw_only=True)
class WriteModes:
    """Which rows of a table a write replaces, and whether it may change the columns.

    Raises
    ------
    InvalidInputError
        A mode is unknown, or would have no effect beside the others; the error names the argument.
    """

    mode: WriteMode = "append"  # Only `overwrite` replaces rows.
    where: Expression | None = None  # Replace the rows for which this is true.
    partition_mode: PartitionMode = "static"  # `dynamic`: replace those of the written partitions.
    schema_mode: SchemaMode = None
    partition_by: Sequence[str] | None = None  # Other partition columns; None keeps them.

    def __post_init__(self) -> None:
        for argument, known in _KNOWN.items():
            value = getattr(self, argument)
            if value not in known:
                raise InvalidInputError(
                    argument=argument,
                    reason=f"{value!r} is not one of {', '.join(map(repr, known))}",
                )
        is_dynamic = self.partition_mode == "dynamic"
        if self.mode != "overwrite":
            self._require_additive()
        if is_dynamic and self.where is not None:
            raise InvalidInputError(
                argument="where",
                reason="a predicate and dynamic partitions both define the replaced rows",
                remedy="Pass only one of them",
            )
        if self.partition_by is not None:
            if not self.replaces_schema:
                raise InvalidInputError(
                    argument="partition_by",
                    reason="the partitioning can be replaced only together with the schema",
                    remedy='Use schema_mode="overwrite", or omit partition_by',
                )
            if self.replaces_some:
                raise _all_or_nothing("partition_by")

    def _require_additive(self) -> None:
        if self.replaces_some:
            raise InvalidInputError(
                argument="mode",
                reason=f"a predicate or partition_mode selects rows to replace, but mode "
                f"{self.mode!r} replaces no rows",
                remedy='Use mode="overwrite", or omit these arguments',
            )
        if self.replaces_schema:
            raise InvalidInputError(
                argument="schema_mode",
                reason="the schema can be replaced only together with all rows",
                remedy='Use schema_mode="merge" to add columns, or overwrite the table',
            )

    @property
    def replaces_some(self) -> bool:
        """Whether only some rows are replaced, and others may stay."""
        return self.where is not None or self.partition_mode == "dynamic"

    @property
    def replaces_schema(self) -> bool:
        """Whether the table gets the columns of the data in place of its own."""
        return self.schema_mode == "overwrite"

    def require_possible(self, table: Snapshot, schema: StructType) -> None:
        """Raise if the table has no partitions to replace, or rows stay that lack new columns.

        Parameters
        ----------
        schema
            The table's schema after the write.

        Raises
        ------
        InvalidInputError
            The error names the argument.
        """
        if self.partition_mode == "dynamic" and not table.partition_columns:
            raise InvalidInputError(
                argument="partition_mode",
                reason="the table has no partition columns",
                remedy='Use partition_mode="static", or a predicate',
            )
        if self.replaces_schema and self.replaces_some and schema != table.schema:
            raise _all_or_nothing("schema_mode")


ADDING = WriteModes()
"""The modes of a write that adds rows and no columns."""


def _all_or_nothing(argument: str) -> InvalidInputError:
    return InvalidInputError(
        argument=argument,
        reason="the schema or the partitioning can be replaced only together with all rows",
        remedy='Use schema_mode="merge" to add columns',
    )


def computed_from_in(mode: str, given: object) -> ComputedFrom:
    """Return the caller's statement from which version the rows of a write are computed.

    Raises
    ------
    InvalidTypeError, InvalidInputError
        It is no version, or no row is replaced.
    """
    if given is None:
        return None
    if isinstance(given, str) and given != "nothing":
        raise InvalidInputError(
            argument="computed_from",
            reason=f'{given!r} is neither a version nor "nothing"',
            remedy='Pass the number of the version whose rows were read, or "nothing"',
        )
    found: ComputedFrom = "nothing"
    if not isinstance(given, str):
        found = require_whole("computed_from", given)
    if mode != "overwrite":
        raise InvalidInputError(
            argument="computed_from",
            reason=f"no row is replaced in mode {mode}, so it has no effect",
            remedy='Omit it, or use mode="overwrite"',
        )
    return found


def require_version_known(computed_from: object, latest: int | None, path: str) -> None:
    """Raise if rows are said to be from a version that a table does not have yet.

    `latest` is None if there is no table.

    Raises
    ------
    InvalidInputError
        The error names the latest version.
    """
    if isinstance(computed_from, int) and (latest is None or computed_from > latest):
        raise InvalidInputError(
            argument="computed_from",
            reason=f"there is no table at {path}"
            if latest is None
            else f"no rows are from version {computed_from}: the latest one of {path} is {latest}",
            remedy="Pass the version that was read, such as the property version of its Table",
        )
