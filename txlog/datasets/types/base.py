"""What a type of data sets must do: read sources, count, and build training sets.

A type has two schemas: what the table keeps (ingestion), and what training sets hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import pyarrow as pa


class Statistics(Protocol):
    """Counts over the rows of one commit: a fold, so that one pass writes, digests and counts."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Take further rows, in the ingestion schema."""
        ...

    def result(self) -> dict[str, int]:
        """Return the counts by their names, such as `numExamples`."""
        ...


class DatasetType(Protocol):
    """A type of data sets.

    `version` is that of the recipe by which training sets are made: another recipe needs another
    version, since the same version hash must always give the same bytes.
    """

    @property
    def name(self) -> str:
        """The name in capitals, such as `TEXT_INTENT`."""
        ...

    @property
    def version(self) -> int:
        """The version of the recipe, from 1."""
        ...

    @property
    def aliases(self) -> tuple[str, ...]:
        """Further names of the type."""
        ...

    @property
    def ingestion(self) -> pa.Schema | None:
        """The columns that the table keeps; None: those of the first commit."""
        ...

    @property
    def training(self) -> Mapping[str, pa.Schema | None]:
        """What each part of a training set holds; None: the ingestion columns, or bytes."""
        ...

    def read(self, source: Any, limits: Any, files: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a source in the ingestion schema."""
        ...

    def statistics(self) -> Statistics:
        """Return the counts of a commit without rows, to be added to."""
        ...

    def build(self, rows: Any, out: Any, options: Mapping[str, str]) -> dict[str, int]:
        """Make the parts of a training set from the picked rows, and return its statistics."""
        ...


def type_key(kind: DatasetType) -> str:
    """Return the name and version of a type as commits and hashes have it: `text-intent/1`."""
    return f"{kind.name.lower().replace('_', '-')}/{kind.version}"
