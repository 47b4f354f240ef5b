"""What a caller says of a new table: the same for all that create tables, with Spark too. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from txlog.data_files.identity import Identity, with_identities
from txlog.data_files.options import as_names, with_generated
from txlog.protocol.properties import asks_for
from txlog.schema.types import StructType


@dataclass(frozen=True, kw_only=True)
class Definition:
    """What the caller says of a new table beside its columns; names as in `Table.create`."""

    partition_by: Sequence[str] | str | None = None
    cluster_by: Sequence[str] | str | None = None
    generated: Mapping[str, str] | None = None
    identity: Mapping[str, Identity] | Sequence[str] | str | None = None
    properties: Mapping[str, str] | None = None
    name: str | None = None
    description: str | None = None

    @property
    def keeps_nanos(self) -> bool:
        """Whether columns of nanoseconds keep them."""
        return asks_for("timestampNanos", self.properties)

    def clustering(self) -> tuple[str, ...]:
        """Return the clustering columns."""
        return as_names(self.cluster_by, argument="cluster_by")

    def schema_of(self, declared: StructType) -> StructType:
        """Return the columns with what is said of them: which are generated, which count.

        Raises
        ------
        InvalidInputError
            There is no such column.
        """
        return with_identities(with_generated(declared, self.generated), self.identity)


PLAIN = Definition()
"""The definition of a table of which nothing is said but its columns."""
