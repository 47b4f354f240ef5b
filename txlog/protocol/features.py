"""The registry of table features: one row each.

`read` and `write` say what txlog does with a table that lists the feature. `write` is one of
`yes`, `no`, or `inactive`: written as long as no property or column makes use of the feature.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Write = Literal["yes", "inactive", "no"]


@dataclass(frozen=True, slots=True)
class Feature:
    """A table feature. `legacy_reader` and `legacy_writer` are the versions that imply it."""

    name: str
    kind: Literal["writer", "reader-writer"]
    read: bool  # Writer-only features never hinder reading.
    write: Write
    legacy_reader: int | None = None
    legacy_writer: int | None = None


_ROWS = (
    Feature("appendOnly", "writer", True, "yes", legacy_writer=2),
    Feature("invariants", "writer", True, "yes", legacy_writer=2),
    Feature("checkConstraints", "writer", True, "yes", legacy_writer=3),
    Feature("changeDataFeed", "writer", True, "inactive", legacy_writer=4),
    Feature("generatedColumns", "writer", True, "inactive", legacy_writer=4),
    Feature(
        "columnMapping", "reader-writer", True, "inactive", legacy_reader=2, legacy_writer=5
    ),
    Feature("identityColumns", "writer", True, "inactive", legacy_writer=6),
    Feature("deletionVectors", "reader-writer", True, "yes"),
    Feature("timestampNtz", "reader-writer", True, "yes"),
    Feature("v2Checkpoint", "reader-writer", True, "yes"),
    Feature("vacuumProtocolCheck", "reader-writer", True, "yes"),
    Feature("typeWidening", "reader-writer", True, "yes"),
    Feature("typeWidening-preview", "reader-writer", True, "yes"),
    Feature("domainMetadata", "writer", True, "yes"),
    Feature("inCommitTimestamp", "writer", True, "yes"),
    Feature("allowColumnDefaults", "writer", True, "yes"),
    Feature("rowTracking", "writer", True, "no"),
    Feature("clustering", "writer", True, "yes"),
    Feature("icebergCompatV1", "writer", True, "inactive"),
    Feature("icebergCompatV2", "writer", True, "inactive"),
    Feature("checkpointProtection", "writer", True, "no"),
    Feature("variantType", "reader-writer", False, "no"),
    Feature("variantType-preview", "reader-writer", False, "no"),
    Feature("variantShredding", "reader-writer", False, "no"),
    Feature("variantShredding-preview", "reader-writer", False, "no"),
    Feature("catalogManaged", "reader-writer", False, "no"),
)  # fmt: skip

FEATURES: dict[str, Feature] = {row.name: row for row in _ROWS}
