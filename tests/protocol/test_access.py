"""Who may read and write, and the lowest protocol of a new table."""

import pytest

from txlog.actions.table import Format, Metadata, Protocol
from txlog.base.errors import InvalidInputError, LogCorruptError, UnsupportedFeatureError
from txlog.protocol.access import (
    features_of,
    new_protocol,
    require_readable,
    require_writable,
    supports,
)
from txlog.protocol.features import CATALOG_MANAGED, FEATURES, Feature
from txlog.protocol.properties import Properties
from txlog.schema.json import schema_json
from txlog.schema.types import ArrayType, MapType, PrimitiveType, StructField, StructType

LONG = StructType((StructField("a", PrimitiveType("long")),))
NTZ = PrimitiveType("timestamp_ntz")


def metadata(**configuration: str) -> Metadata:
    named = {name.replace("__", "."): value for name, value in configuration.items()}
    return Metadata(id="1", schema_string="", configuration=named)


def listing(*names: str, readers: tuple[str, ...] = ()) -> Protocol:
    """Return a protocol that lists features; reader-writer ones go into both lists."""
    both = [n for n in names if n in FEATURES and FEATURES[n].kind == "reader-writer"]
    return Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=[*both, *readers],
        writer_features=[*names, *readers],
    )


# The protocol's table of features: kind, and the legacy versions that imply them.
SPEC = {
    "appendOnly": ("writer", None, 2),
    "invariants": ("writer", None, 2),
    "checkConstraints": ("writer", None, 3),
    "changeDataFeed": ("writer", None, 4),
    "generatedColumns": ("writer", None, 4),
    "columnMapping": ("reader-writer", 2, 5),
    "identityColumns": ("writer", None, 6),
    "deletionVectors": ("reader-writer", None, None),
    "rowTracking": ("writer", None, None),
    "timestampNtz": ("reader-writer", None, None),
    "domainMetadata": ("writer", None, None),
    "v2Checkpoint": ("reader-writer", None, None),
    "catalogManaged": ("reader-writer", None, None),
    "icebergCompatV1": ("writer", None, None),
    "icebergCompatV2": ("writer", None, None),
    "clustering": ("writer", None, None),
    "vacuumProtocolCheck": ("reader-writer", None, None),
    "inCommitTimestamp": ("writer", None, None),
    "allowColumnDefaults": ("writer", None, None),
    "typeWidening": ("reader-writer", None, None),
    "variantType": ("reader-writer", None, None),
    "variantShredding": ("reader-writer", None, None),
}
IN_THE_WILD = {
    "typeWidening-preview": "reader-writer",
    "variantType-preview": "reader-writer",
    "variantShredding-preview": "reader-writer",
    "catalogOwned-preview": "reader-writer",
    "timestampNanos": "reader-writer",
    "txlog.fragments": "reader-writer",
    "txlog.uniqueKeys": "writer",
    "txlog.catalogWrites-dev": "writer",
    "tableBranching-dev": "writer",
    "txlog.branchPages": "writer",
    "txlog.blobs-dev": "writer",
    "multiTableTransaction-dev": "writer",
    "checkpointProtection": "writer",
    "collations": "writer",
    "collations-preview": "writer",
    "icebergCompatV3": "writer",
    "icebergWriterCompatV1": "writer",
    "icebergWriterCompatV3": "writer",
    "materializePartitionColumns": "writer",
}


def test_the_registry_is_the_protocols_table() -> None:
    rows = {r.name: (r.kind, r.legacy_reader, r.legacy_writer) for r in FEATURES.values()}
    assert rows == SPEC | {name: (kind, None, None) for name, kind in IN_THE_WILD.items()}


@pytest.mark.parametrize("row", FEATURES.values(), ids=lambda row: row.name)
def test_every_row_decides_reading_and_writing(row: Feature) -> None:
    protocol = listing(row.name)
    require_readable(protocol, metadata(), path="t", catalog=True)
    if row.name in CATALOG_MANAGED:
        with pytest.raises(UnsupportedFeatureError, match="catalog_commits") as caught:
            require_readable(protocol, metadata(), path="t")
        assert caught.value.features == (row.name,)
    if row.write == "catalog":
        with pytest.raises(UnsupportedFeatureError, match=r"catalog"):
            require_writable(protocol, metadata(), path="t")
        with pytest.raises(UnsupportedFeatureError, match="timestamps"):
            require_writable(protocol, metadata(), path="t", managed=True)
        stamped = metadata(delta__enableInCommitTimestamps="true")
        both = listing(row.name, "inCommitTimestamp")
        require_writable(both, stamped, path="t", managed=True)
    elif row.write == "no":
        with pytest.raises(UnsupportedFeatureError, match=row.name):
            require_writable(protocol, metadata(), path="t")
    else:
        require_writable(protocol, metadata(), path="t")
    assert supports(protocol, row.name)


def with_field(**field_metadata: object) -> StructType:
    named = {name.replace("__", "."): value for name, value in field_metadata.items()}
    return StructType((StructField("a", PrimitiveType("long"), metadata=named),))


COLLATED = Metadata(
    id="1",
    schema_string=schema_json(
        StructType(
            (
                StructField(
                    "a", PrimitiveType("string"), metadata={"__COLLATIONS": {"a": "ICU.de_DE"}}
                ),
            )
        )
    ),
)
ACTIVE = {"collations": COLLATED, "collations-preview": COLLATED}


def test_every_inactive_row_has_an_activation() -> None:
    assert set(ACTIVE) == {row.name for row in FEATURES.values() if row.write == "inactive"}


@pytest.mark.parametrize("name", ACTIVE)
def test_what_is_in_use_blocks_writes_and_not_reads(name: str) -> None:
    active = ACTIVE[name]
    require_readable(listing(name), active, path="t")
    with pytest.raises(UnsupportedFeatureError) as caught:
        require_writable(listing(name), active, path="t")
    assert caught.value.features == (name,)


def test_all_lacking_reader_features_are_named_at_once() -> None:
    protocol = listing("variantType", "deletionVectors", "catalogManaged", readers=("zebra", "ant"))
    with pytest.raises(UnsupportedFeatureError) as caught:
        require_readable(protocol, metadata(), path="t")
    assert caught.value.features == ("ant", "catalogManaged", "zebra")
    assert caught.value.path == "t"


def test_unknown_writer_features_block_writes_and_not_reads() -> None:
    protocol = listing("zebra", "icebergWriterCompatV1", "appendOnly")
    require_readable(protocol, metadata(), path="t")
    with pytest.raises(UnsupportedFeatureError) as caught:
        require_writable(protocol, metadata(), path="t")
    assert caught.value.features == ("icebergWriterCompatV1", "zebra")


@pytest.mark.parametrize("reader", [0, -1, 4, 99])
def test_unknown_reader_versions_are_refused(reader: int) -> None:
    protocol = Protocol(min_reader_version=reader, min_writer_version=7)
    with pytest.raises(UnsupportedFeatureError, match=f"reader version {reader}"):
        require_readable(protocol, metadata(), path="t")


@pytest.mark.parametrize("writer", [0, 8])
def test_unknown_writer_versions_are_read_and_not_written(writer: int) -> None:
    protocol = Protocol(min_reader_version=1, min_writer_version=writer)
    require_readable(protocol, metadata(), path="t")
    with pytest.raises(UnsupportedFeatureError, match=f"writer version {writer}"):
        require_writable(protocol, metadata(), path="t")


def test_reader_three_goes_with_writer_seven() -> None:
    protocol = Protocol(min_reader_version=3, min_writer_version=6, reader_features=[])
    with pytest.raises(LogCorruptError, match="writer version 7"):
        require_readable(protocol, metadata(), path="t")


def test_other_file_formats_are_refused() -> None:
    orc = Metadata(id="1", schema_string="", format=Format(provider="orc"))
    with pytest.raises(UnsupportedFeatureError, match="orc"):
        require_readable(Protocol(min_reader_version=1, min_writer_version=2), orc, path="t")


LEGACY = {
    1: set(),
    2: {"appendOnly", "invariants"},
    3: {"checkConstraints"},
    4: {"changeDataFeed", "generatedColumns"},
    5: {"columnMapping"},
    6: {"identityColumns"},
}


@pytest.mark.parametrize("writer", LEGACY)
def test_legacy_writer_versions_imply_features(writer: int) -> None:
    implied = set[str]().union(*(LEGACY[at] for at in range(1, writer + 1)))
    for reader in (1, 2):
        protocol = Protocol(min_reader_version=reader, min_writer_version=writer)
        # Column mapping concerns readers too, and those of version 1 do not know it.
        assert features_of(protocol) == implied - ({"columnMapping"} if reader == 1 else set())
        require_writable(protocol, metadata(), path="t")


def test_reader_two_implies_column_mapping() -> None:
    protocol = Protocol(min_reader_version=2, min_writer_version=7, writer_features=["appendOnly"])
    assert features_of(protocol) == {"appendOnly", "columnMapping"}
    require_readable(protocol, metadata(delta__columnMapping__mode="id"), path="t")


def test_writer_seven_implies_nothing() -> None:
    assert features_of(listing("deletionVectors")) == {"deletionVectors"}


def made(schema: StructType = LONG, **configuration: str) -> tuple[object, ...]:
    found = new_protocol(schema, Properties(metadata(**configuration).configuration))
    return (
        found.min_reader_version,
        found.min_writer_version,
        found.reader_features,
        found.writer_features,
    )


def test_a_new_protocol_lists_only_what_is_used() -> None:
    assert made() == (1, 2, None, None)
    assert made(delta__enableDeletionVectors="false") == (1, 2, None, None)
    assert made(delta__appendOnly="true") == (1, 2, None, None)
    assert made(delta__constraints__c="a > 0") == (1, 3, None, None)
    vectors = ["deletionVectors"]
    assert made(delta__enableDeletionVectors="true") == (3, 7, vectors, vectors)
    stamps = ["inCommitTimestamp"]
    assert made(delta__enableInCommitTimestamps="true") == (1, 7, None, stamps)
    tracking = ["domainMetadata", "rowTracking"]
    assert made(delta__enableRowTracking="true") == (1, 7, None, tracking)
    widening = ["typeWidening"]
    assert made(delta__enableTypeWidening="true") == (3, 7, widening, widening)
    assert made(
        delta__enableDeletionVectors="true",
        delta__enableInCommitTimestamps="true",
        delta__appendOnly="true",
        delta__constraints__c="a > 0",
    ) == (3, 7, vectors, ["appendOnly", "checkConstraints", "deletionVectors", "inCommitTimestamp"])


@pytest.mark.parametrize(
    "kind",
    [
        NTZ,
        ArrayType(NTZ),
        MapType(PrimitiveType("string"), ArrayType(NTZ)),
        StructType((StructField("b", NTZ),)),
    ],
    ids=["plain", "array", "map", "struct"],
)
def test_a_timestamp_without_zone_needs_a_feature_at_any_depth(kind: object) -> None:
    ntz = ["timestampNtz"]
    assert made(StructType((StructField("a", kind),))) == (3, 7, ntz, ntz)


def test_invariants_are_listed_where_lists_are() -> None:
    schema = with_field(delta__invariants="{}")
    assert made(schema) == (1, 2, None, None)
    assert made(schema, delta__enableInCommitTimestamps="true")[3] == [
        "inCommitTimestamp",
        "invariants",
    ]


def test_a_new_table_can_always_be_read_and_written() -> None:
    configuration = {"delta.enableDeletionVectors": "true", "delta.appendOnly": "true"}
    protocol = new_protocol(LONG, Properties(configuration))
    held = Metadata(id="1", schema_string="", configuration=configuration)
    require_writable(protocol, held, path="t")


@pytest.mark.parametrize(
    ("schema", "configuration", "name"),
    [
        (LONG, {"delta__enableIcebergCompatV2": "true"}, "icebergCompatV2 needs column mapping"),
    ],
)
def test_what_txlog_cannot_write_makes_no_new_table(
    schema: StructType, configuration: dict[str, str], name: str
) -> None:
    with pytest.raises(InvalidInputError, match=name):
        made(schema, **configuration)
