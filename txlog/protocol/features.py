"""The registry of table features: one row for each feature that txlog knows.

txlog reads tables with all of them and refuses a reader feature without a row. `write` says whether
txlog writes a table that lists the feature: `yes`, `no`, `inactive`, which means only while no
property or column uses the feature, or `catalog`, which means only through the table's catalog.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Write = Literal["yes", "inactive", "catalog", "no"]

CLUSTERING = "delta.clustering"
"""The domain that holds the clustering columns."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A table feature. `legacy_reader` and `legacy_writer` are the versions that imply it."""

    name: str
    kind: Literal["writer", "reader-writer"]
    write: Write
    legacy_reader: int | None = None
    legacy_writer: int | None = None


_ROWS = (
    Feature("appendOnly", "writer", "yes", legacy_writer=2),
    Feature("invariants", "writer", "yes", legacy_writer=2),
    Feature("checkConstraints", "writer", "yes", legacy_writer=3),
    Feature("changeDataFeed", "writer", "yes", legacy_writer=4),
    Feature("generatedColumns", "writer", "yes", legacy_writer=4),
    Feature(
        "columnMapping", "reader-writer", "yes", legacy_reader=2, legacy_writer=5
    ),
    Feature("identityColumns", "writer", "yes", legacy_writer=6),
    Feature("deletionVectors", "reader-writer", "yes"),
    Feature("timestampNtz", "reader-writer", "yes"),
    Feature("timestampNanos", "reader-writer", "yes"),
    Feature("v2Checkpoint", "reader-writer", "yes"),
    Feature("vacuumProtocolCheck", "reader-writer", "yes"),
    Feature("typeWidening", "reader-writer", "yes"),
    Feature("typeWidening-preview", "reader-writer", "yes"),
    Feature("domainMetadata", "writer", "yes"),
    Feature("inCommitTimestamp", "writer", "yes"),
    Feature("allowColumnDefaults", "writer", "yes"),
    Feature("rowTracking", "writer", "yes"),
    Feature("clustering", "writer", "yes"),
    Feature("icebergCompatV1", "writer", "yes"),
    Feature("icebergCompatV2", "writer", "yes"),
    Feature("icebergCompatV3", "writer", "yes"),
    Feature("icebergWriterCompatV1", "writer", "no"),
    Feature("icebergWriterCompatV3", "writer", "no"),
    Feature("collations", "writer", "inactive"),
    Feature("collations-preview", "writer", "inactive"),
    Feature("materializePartitionColumns", "writer", "yes"),
    Feature("checkpointProtection", "writer", "yes"),
    Feature("variantType", "reader-writer", "yes"),
    Feature("variantType-preview", "reader-writer", "yes"),
    Feature("variantShredding", "reader-writer", "yes"),
    Feature("variantShredding-preview", "reader-writer", "yes"),
    # txlog's own features: spec/fragments.md and spec/unique_keys.md.
    Feature("txlog.fragments", "reader-writer", "yes"),
    Feature("txlog.uniqueKeys", "writer", "yes"),
    # A draft (spec/branches.md), so its final name is not known.
    Feature("tableBranching-dev", "writer", "yes"),
    Feature("txlog.branchPages", "writer", "yes"),
    Feature("txlog.blobs-dev", "writer", "yes"),  # spec/blobs.md
    # spec/catalog.md. The names end in -dev until the protocol has accepted such features.
    Feature("txlog.catalogWrites-dev", "writer", "catalog"),
    Feature("multiTableTransaction-dev", "writer", "catalog"),
    Feature("catalogManaged", "reader-writer", "catalog"),
    Feature("catalogOwned-preview", "reader-writer", "no"),
)  # fmt: skip

FEATURES: dict[str, Feature] = {row.name: row for row in _ROWS}

# Features that require other features.
REQUIRES: dict[str, tuple[str, ...]] = {
    "rowTracking": ("domainMetadata",),
    "clustering": ("domainMetadata",),
    "tableBranching-dev": ("domainMetadata",),
    "txlog.branchPages": ("tableBranching-dev", "domainMetadata"),
    "icebergCompatV1": ("columnMapping",),
    "icebergCompatV2": ("columnMapping",),
    "icebergCompatV3": ("columnMapping", "rowTracking", "domainMetadata"),
    "timestampNanos": ("timestampNtz",),
    "variantShredding": ("variantType",),
    "variantShredding-preview": ("variantType-preview",),
    "txlog.fragments": ("deletionVectors",),
    "catalogManaged": ("inCommitTimestamp",),
    "txlog.catalogWrites-dev": ("inCommitTimestamp",),
}

# The features of tables whose commits only a catalog knows.
CATALOG_MANAGED = frozenset({"catalogManaged", "catalogOwned-preview"})

# The features of a table whose writers go through its catalog.
THROUGH_CATALOG = frozenset(row.name for row in _ROWS if row.write == "catalog")

# Features of a log or its catalog: they say nothing about the files of the table.
OF_THE_LOG = (
    frozenset({"checkpointProtection", "tableBranching-dev", "txlog.branchPages"})
    | CATALOG_MANAGED
    | THROUGH_CATALOG
)

# The property that enables a feature.
ACTIVATION = {
    "appendOnly": "delta.appendOnly",
    "changeDataFeed": "delta.enableChangeDataFeed",
    "columnMapping": "delta.columnMapping.mode",
    "deletionVectors": "delta.enableDeletionVectors",
    "inCommitTimestamp": "delta.enableInCommitTimestamps",
    "icebergCompatV1": "delta.enableIcebergCompatV1",
    "icebergCompatV2": "delta.enableIcebergCompatV2",
    "icebergCompatV3": "delta.enableIcebergCompatV3",
    "rowTracking": "delta.enableRowTracking",
    "typeWidening": "delta.enableTypeWidening",
    "variantShredding": "delta.enableVariantShredding",
}
