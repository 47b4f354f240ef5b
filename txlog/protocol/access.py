"""Whether a table can be read or written, and which protocol a new table needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from txlog.actions.table import Metadata, Protocol
from txlog.base.errors import InvalidInputError, LogCorruptError, UnsupportedFeatureError
from txlog.protocol.features import (
    ACTIVATION,
    CATALOG_MANAGED,
    FEATURES,
    REQUIRES,
    THROUGH_CATALOG,
    Feature,
)
from txlog.protocol.iceberg import (
    feature_of,
    require_compatible,
    require_makeable,
)
from txlog.protocol.properties import (
    UNIQUE_PREFIX,
    Properties,
    asks_for,
    compatibilities,
    unique_keys,
)
from txlog.schema.blobs import has_blobs
from txlog.schema.types import (
    CHANGE_TYPE,
    CURRENT_DEFAULT,
    GENERATION,
    NANOS,
    PrimitiveType,
    StructType,
    types_in,
)

READERS = (1, 2, 3)
WRITERS = (1, 2, 3, 4, 5, 6, 7)


def features_of(protocol: Protocol) -> frozenset[str]:
    """Return the names of all features that the protocol lists or implies."""
    implied = _implied(protocol.min_reader_version, protocol.min_writer_version)
    return implied.union(protocol.reader_features or (), protocol.writer_features or ())


@lru_cache(maxsize=64)
def _implied(reader: int, writer: int) -> frozenset[str]:
    return frozenset(row.name for row in FEATURES.values() if _is_implied(row, reader, writer))


def _is_implied(row: Feature, reader: int, writer: int) -> bool:
    by_writer = row.legacy_writer is not None and row.legacy_writer <= writer < 7
    if row.legacy_reader is None:
        return by_writer
    # A reader feature needs both versions: readers of version 1 have no column mapping.
    return row.legacy_reader <= reader < 3 and (by_writer or writer == 7)


def supports(protocol: Protocol, feature: str) -> bool:
    """Return whether the protocol lists or implies a feature."""
    return feature in features_of(protocol)


def is_active(feature: str, protocol: Protocol, properties: Properties) -> bool:
    """Return whether a feature is enabled by its property and supported by the protocol."""
    value = properties.get(ACTIVATION[feature])
    return bool(value) and value != "none" and supports(protocol, feature)


def mapping_mode(protocol: Protocol, properties: Properties) -> str:
    """Return the column mapping in force: `none`, `name` or `id`."""
    active = is_active("columnMapping", protocol, properties)
    return str(properties.get(ACTIVATION["columnMapping"])) if active else "none"


PROTECTED = "delta.requireCheckpointProtectionBeforeVersion"
DELETION_VECTORS = "delta.enableDeletionVectors"
VECTORS_ON_USE = "txlog.deletionVectors"


def brings_vectors(properties: Properties) -> bool:
    """Return whether the first commit with a deletion vector enables the feature (rule CON-22)."""
    if DELETION_VECTORS in properties.raw or properties.get(VECTORS_ON_USE) != "auto":
        return False
    return not {1, 2}.intersection(compatibilities(properties.raw))


def with_vectors(protocol: Protocol, metadata: Metadata) -> tuple[Protocol, Metadata]:
    """Return the protocol and metadata of a table after a commit with deletion vectors.

    Both are unchanged if the table already has the feature and its property.
    """
    if not supports(protocol, "deletionVectors"):
        protocol = upgraded(protocol, ["deletionVectors"])
    if brings_vectors(Properties(metadata.configuration)):
        configuration = {**metadata.configuration, DELETION_VECTORS: "true"}
        metadata = metadata.model_copy(update={"configuration": configuration})
    return protocol, metadata


def with_types(protocol: Protocol, schema: StructType) -> Protocol:
    """Return the protocol of a table that gets a schema, with the features that its fields need."""
    needed = list(new_protocol(schema, Properties()).reader_features or ())
    if any(GENERATION in field.metadata for field in schema.fields):
        needed.append("generatedColumns")
    if has_blobs(schema):
        needed.append("txlog.blobs-dev")
    lacking = [name for name in needed if not supports(protocol, name)]
    return upgraded(protocol, lacking) if lacking else protocol


def materializes_partitions(protocol: Protocol | None, properties: Properties) -> bool:
    """Return whether data files contain the partition columns too, in addition to the log.

    Without a protocol, the answer is for a new table with these properties.
    """
    name = "materializePartitionColumns"
    asked = asks_for(name, properties.raw) if protocol is None else supports(protocol, name)
    asked = asked or bool(properties.get("delta.writePartitionColumnsToParquet"))
    return asked or bool(compatibilities(properties.raw))


def is_stamped(protocol: Protocol | None, metadata: Metadata | None) -> bool:
    """Return whether in-commit timestamps are enabled; False if the actions are unknown."""
    if protocol is None or metadata is None:
        return False
    return is_active("inCommitTimestamp", protocol, Properties(metadata.configuration))


def require_readable(
    protocol: Protocol, metadata: Metadata, *, path: str, catalog: bool = False
) -> None:
    """Raise if txlog cannot read a table correctly; the error names all reasons.

    Parameters
    ----------
    catalog
        Whether the table was opened through its catalog, or with the catalog's answer about the
        commits.

    Raises
    ------
    UnsupportedFeatureError
        The reader version is unknown, there are reader features that txlog lacks, or only a
        catalog knows the table's commits.
    LogCorruptError
        The versions and feature lists contradict each other.
    """
    version = protocol.min_reader_version
    if version not in READERS:
        raise UnsupportedFeatureError(
            path=path,
            features=(f"reader version {version}",),
            reason="txlog does not know the table's reader version",
            remedy="Upgrade txlog, or read the table with a newer engine",
        )
    if version == 3 and protocol.min_writer_version != 7:
        raise LogCorruptError(
            path=path,
            field="protocol",
            reason=f"reader version 3 requires writer version 7, not {protocol.min_writer_version}",
        )
    listed = set(protocol.reader_features or ()) if version == 3 else set[str]()
    lacking = sorted(listed - FEATURES.keys())
    managed = set() if catalog else CATALOG_MANAGED & listed
    if lacking:
        raise UnsupportedFeatureError(
            path=path,
            features=tuple(sorted({*lacking, *managed})),
            reason=f"the table needs reader features that txlog lacks: {', '.join(lacking)}",
            remedy="Upgrade txlog, or read the table with an engine that has them",
        )
    if managed:
        raise UnsupportedFeatureError(
            path=path,
            features=tuple(sorted(managed)),
            reason="the table is catalog-managed: its files alone do not show which commits are "
            "valid",
            remedy="Open it by its name in its catalog. Of another kind of catalog, pass the "
            "answer as txlog.Table(…, catalog_commits=…)",
        )
    mode = "delta.columnMapping.mode"
    if supports(protocol, "columnMapping") and not Properties(metadata.configuration).is_readable(
        mode
    ):
        raise UnsupportedFeatureError(
            path=path,
            features=("columnMapping",),
            reason=f"{mode} is {metadata.configuration[mode]!r}, so the column "
            "names in data files are unknown",
            remedy="Set it to none, name or id with the engine that wrote it",
        )
    if metadata.format.provider.lower() != "parquet":
        raise UnsupportedFeatureError(
            path=path,
            features=(f"format {metadata.format.provider}",),
            reason=f"its data files are {metadata.format.provider!r}, not Parquet",
        )


def require_writable(
    protocol: Protocol, metadata: Metadata, *, path: str, managed: bool = False
) -> None:
    """Raise if txlog cannot write a table correctly; the error names all reasons.

    Parameters
    ----------
    managed
        Whether the table was opened through its catalog.

    Raises
    ------
    UnsupportedFeatureError
        The writer version is unknown, or the table lists a feature that txlog cannot write, or uses
        one that txlog writes only while it is unused.
    """
    require_readable(protocol, metadata, path=path, catalog=managed)
    if protocol.min_writer_version not in WRITERS:
        raise UnsupportedFeatureError(
            path=path,
            features=(f"writer version {protocol.min_writer_version}",),
            reason="txlog does not know the table's writer version",
            remedy="Upgrade txlog, or write the table with a newer engine",
        )
    active = set(_active(metadata))
    features = features_of(protocol)
    guarded = sorted(THROUGH_CATALOG & features)
    if guarded and not managed:
        raise UnsupportedFeatureError(
            path=path,
            features=tuple(guarded),
            reason="all writers of the table must go through its catalog",
            remedy="Open it by its name in its catalog",
        )
    if guarded and not is_stamped(protocol, metadata):
        raise UnsupportedFeatureError(
            path=path,
            features=("inCommitTimestamp",),
            reason="a table that a catalog manages needs in-commit timestamps",
            remedy="Let the property be true, or let the table out of its catalog first",
        )
    lacking = sorted(name for name in features if not _can_write(FEATURES.get(name), name, active))
    if lacking:
        raise UnsupportedFeatureError(
            path=path,
            features=tuple(lacking),
            reason=f"txlog can read this table, but not write it: {', '.join(lacking)}",
            remedy="Write it with an engine that has these features",
        )
    if compatibilities(metadata.configuration):
        require_compatible(protocol, metadata, path=path)
    try:
        unique_keys(metadata.configuration)
    except ValueError as error:
        raise UnsupportedFeatureError(
            path=path,
            features=("txlog.uniqueKeys",),
            reason=f"a property {UNIQUE_PREFIX}NAME does not say which key is unique: {error}",
            remedy="Upgrade txlog, or write the table with the release that set the property",
        ) from error


def _can_write(row: Feature | None, name: str, active: set[str]) -> bool:
    if row is None or row.write == "no":
        return False
    return row.write in ("yes", "catalog") or name not in active


def _active(metadata: Metadata) -> Iterator[str]:
    """Yield the features in use that txlog can write only while they are unused."""
    if _COLLATED in (metadata.schema_string or ""):
        yield from ("collations", "collations-preview")


_COLLATED = '"__COLLATIONS"'  # A field's metadata: how its texts are compared.


def with_features(protocol: Protocol, names: Iterable[str]) -> Protocol:
    """Return a protocol with further features.

    Raises
    ------
    InvalidInputError
        txlog does not know a feature, or cannot write tables with it.
    """
    added = set(names)
    unknown = sorted(
        name for name in added if name not in FEATURES or FEATURES[name].write != "yes"
    )
    if unknown:
        known = ", ".join(sorted(row.name for row in FEATURES.values() if row.write == "yes"))
        raise InvalidInputError(
            argument="features",
            field=unknown[0],
            reason=f"txlog cannot write tables with {', '.join(unknown)}",
            remedy=f"Choose from {known}",
        )
    for name in added & REQUIRES.keys():
        added.update(REQUIRES[name])
    readers = sorted(name for name in added if FEATURES[name].kind == "reader-writer")
    wanted = Protocol(
        min_reader_version=3 if readers else 1,
        min_writer_version=7,
        reader_features=readers or None,
        writer_features=sorted(added),
    )
    return merged_protocol(protocol, wanted)


def upgraded(protocol: Protocol, names: Iterable[str]) -> Protocol:
    """Return a protocol with further features, by a higher version if one implies them.

    Raises
    ------
    InvalidInputError
        As for `with_features`.
    """
    added = set(names) - features_of(protocol)
    rows = [FEATURES[name] for name in added if name in FEATURES]
    versions = [row.legacy_writer for row in rows if row.write == "yes" and row.kind == "writer"]
    if len(versions) < len(added) or None in versions or protocol.min_writer_version == 7:
        return with_features(protocol, added) if added else protocol
    version = max(one for one in (protocol.min_writer_version, *versions) if one is not None)
    return protocol.model_copy(update={"min_writer_version": version})


def lowest_protocol(names: Iterable[str]) -> Protocol:
    """Return the lowest protocol with exactly these features, by versions if they imply them."""
    features = frozenset(names)
    for reader, writer in _LEGACY:
        if _implied(reader, writer) == features:
            return Protocol(min_reader_version=reader, min_writer_version=writer)
    readers = sorted(
        name for name in features if name in FEATURES and FEATURES[name].kind == "reader-writer"
    )
    return Protocol(
        min_reader_version=3 if readers else 1,
        min_writer_version=7,
        reader_features=readers or None,
        writer_features=sorted(features),
    )


def at_least(protocol: Protocol, versions: tuple[int, int]) -> Protocol:
    """Return a protocol with at least these reader and writer versions.

    Raises
    ------
    InvalidInputError
        The two versions are not compatible.
    """
    reader, writer = versions
    if (reader == 3 and writer != 7) or (reader == 2 and writer < 5):
        raise InvalidInputError(
            argument="writer",
            reason=f"reader version {reader} is not compatible with writer version {writer}",
            remedy="Use writer version 7" if reader == 3 else "Use writer version 5 or higher",
        )
    wanted = Protocol(
        min_reader_version=reader,
        min_writer_version=writer,
        reader_features=[] if reader == 3 else None,
        writer_features=[] if writer == 7 else None,
    )
    return merged_protocol(protocol, wanted)


_LEGACY = ((1, 1), (1, 2), (1, 3), (1, 4), (2, 5), (2, 6))  # These versions imply all features.


def new_protocol(schema: StructType, properties: Properties) -> Protocol:
    """Return the lowest protocol for a new table of this schema and these properties.

    Raises
    ------
    InvalidInputError
        A property turns on a feature that txlog cannot write yet.
    """
    needed = needed_features(schema, properties)
    require_makeable(schema, properties.raw)
    versions = [FEATURES[name].legacy_writer for name in needed]
    if all(version is not None and version <= 4 for version in versions):
        least = max((version for version in versions if version is not None), default=2)
        return Protocol(min_reader_version=1, min_writer_version=max(2, least))
    readers = sorted(name for name in needed if FEATURES[name].kind == "reader-writer")
    return Protocol(
        min_reader_version=3 if readers else 1,
        min_writer_version=7,
        reader_features=readers or None,
        writer_features=sorted(needed),
    )


def needed_features(schema: StructType, properties: Properties) -> frozenset[str]:
    """Return the features that a table with this schema and these properties uses.

    Raises
    ------
    InvalidInputError
        A property turns on a feature that txlog cannot write yet.
    """
    readers, writers = set[str](), set[str]()
    if properties.get("delta.enableDeletionVectors"):
        readers.add("deletionVectors")
    names = {kind.name for kind in types_in(schema) if isinstance(kind, PrimitiveType)}
    if not names.isdisjoint(("timestamp_ntz", *NANOS)):
        readers.add("timestampNtz")
    if not names.isdisjoint(NANOS):
        readers.add("timestampNanos")
    if properties.get("delta.columnMapping.mode") != "none":
        readers.add("columnMapping")
    shreds = properties.get("delta.enableVariantShredding")
    if shreds or "variant" in names:
        readers.update(("variantType", "variantShredding") if shreds else ("variantType",))
    if properties.get("delta.enableInCommitTimestamps"):
        writers.add("inCommitTimestamp")
    if any(field.metadata.get(CURRENT_DEFAULT) is not None for field in schema.fields):
        writers.add("allowColumnDefaults")
    if properties.get("delta.checkpointPolicy") == "v2":
        readers.add("v2Checkpoint")
    if properties.get("delta.enableTypeWidening"):
        readers.add("typeWidening")
    if properties.get("delta.enableRowTracking"):
        if properties.get("delta.rowTrackingSuspended"):
            raise InvalidInputError(
                argument="properties",
                reason="delta.rowTrackingSuspended=true gives rows no ids, but "
                "delta.enableRowTracking=true requires ids",
                remedy="Set only one of them",
            )
        writers.update(("rowTracking", "domainMetadata"))
    if properties.get("txlog.deletionFormat") == "lance":
        if "deletionVectors" not in readers:
            raise InvalidInputError(
                argument="properties",
                reason="txlog.deletionFormat=lance needs deletion vectors, but they are disabled",
                remedy="Omit delta.enableDeletionVectors=false",
            )
        readers.add("txlog.fragments")
    writers.update(map(feature_of, compatibilities(properties.raw)))
    if properties.get("delta.enableChangeDataFeed"):
        _require_no_change_columns(schema)
        writers.add("changeDataFeed")
    if properties.get("delta.appendOnly"):
        writers.add("appendOnly")
    if any(name.startswith("delta.constraints.") for name in properties.raw):
        writers.add("checkConstraints")
    if any(name.startswith(UNIQUE_PREFIX) for name in properties.raw):
        writers.add("txlog.uniqueKeys")
    if any(GENERATION in field.metadata for field in schema.fields):
        writers.add("generatedColumns")
    if any(field.is_identity for field in schema.fields):
        writers.add("identityColumns")
    if has_blobs(schema):
        writers.add("txlog.blobs-dev")
    if any("delta.invariants" in field.metadata for field in schema.fields):
        writers.add("invariants")
    return frozenset(readers | writers)


_CHANGE_COLUMNS = (CHANGE_TYPE, "_commit_version", "_commit_timestamp")


def _require_no_change_columns(schema: StructType) -> None:
    """Raise if a table with a change data feed has a column whose name the feed reserves."""
    for name in _CHANGE_COLUMNS:
        if schema.get(name) is not None:
            raise InvalidInputError(
                argument="properties",
                field=name,
                reason=f"the table has a column {name}, but the change data feed reserves this "
                "name",
                remedy="Rename the column, or omit delta.enableChangeDataFeed",
            )


def merged_protocol(now: Protocol, other: Protocol) -> Protocol:
    """Return the lowest protocol that supports the features of both; `now` itself if it does."""
    reader = max(now.min_reader_version, other.min_reader_version)
    writer = max(now.min_writer_version, other.min_writer_version)
    names = features_of(now) | features_of(other)
    versions = (now.min_reader_version, now.min_writer_version)
    if versions == (reader, writer) and names == features_of(now):
        return now
    if writer < 7:
        return Protocol(min_reader_version=reader, min_writer_version=writer)
    listed = {*(now.reader_features or ()), *(other.reader_features or ())}
    readers = {
        name
        for name in names
        if name in listed or (name in FEATURES and FEATURES[name].kind == "reader-writer")
    }
    return Protocol(
        min_reader_version=reader,
        min_writer_version=7,
        reader_features=sorted(readers) if reader == 3 else None,
        writer_features=sorted(names),
    )
