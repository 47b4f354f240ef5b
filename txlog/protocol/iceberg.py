"""Iceberg compatibility: rules for tables whose data files an Iceberg table can also use.

txlog writes no Iceberg metadata: a converter, such as UniForm, does this. Pure.
Rules: the Delta protocol, "Iceberg Compatibility V1" and "V2", and its proposal of V3;
spec/commit.md, CON-27.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from txlog.actions.file import Add
from txlog.actions.table import Metadata, Protocol
from txlog.base.errors import InvalidInputError, UnsupportedFeatureError
from txlog.protocol.properties import COMPATIBILITY, compatibilities, is_on
from txlog.schema.json import parse_schema
from txlog.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructType,
    recorded_changes,
    type_name,
    types_in,
)

_MOVED_IDS = (2_147_483_540, 2_147_483_539)
_ROW_TRACKING = "delta.enableRowTracking"
_VECTORS = "delta.enableDeletionVectors"
_MAPPING = "delta.columnMapping.mode"
_PRIMITIVES = frozenset(
    (
        *("byte", "short", "integer", "long", "float", "double", "string", "binary"),
        *("boolean", "timestamp", "timestamp_ntz", "date"),
    )
)
_WHOLE = ("byte", "short", "integer", "long")


def feature_of(version: int) -> str:
    """Return the name of the table feature of a version of Iceberg compatibility."""
    return f"icebergCompatV{version}"


def gives_nested_ids(raw: Mapping[str, str | None]) -> bool:
    """Return whether elements of lists, and keys and values of maps, also have ids."""
    return any(version > 1 for version in compatibilities(raw))


def moved_ids(raw: Mapping[str, str | None]) -> tuple[int, int] | None:
    """Return the field ids of the columns for row ids and row versions; None without such ids."""
    return _MOVED_IDS if 3 in compatibilities(raw) else None


def completed(raw: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the properties of a new table, and the properties that its compatibility needs."""
    needed: dict[str, str | None] = {}
    for version in compatibilities(raw):
        needed[_MAPPING] = "name"
        if version == 3:
            needed[_ROW_TRACKING] = "true"
    return {**needed, **raw}


def fault_of(
    schema: StructType, raw: Mapping[str, str | None], features: Iterable[str] = ()
) -> tuple[str, str] | None:
    """Return why a table breaks its Iceberg compatibility, and the remedy.

    The result is None if the table does not break it, or has no Iceberg compatibility.
    """
    versions = compatibilities(raw)
    if not versions:
        return None
    name = feature_of(versions[0])
    if len(versions) > 1:
        names = " and ".join(COMPATIBILITY[version] for version in versions)
        return f"{names} exclude each other", "Turn one of them on, and the others off"
    if (raw.get(_MAPPING) or "none").strip().lower() == "none":
        return f"{name} needs column mapping", f"Set {_MAPPING} to name"
    if versions[0] < 3 and is_on(raw, _VECTORS):
        return f"{name} excludes deletion vectors", f"Set {_VECTORS} to false"
    if versions[0] == 3 and not is_on(raw, _ROW_TRACKING):
        return f"{name} needs row tracking", f"Set {_ROW_TRACKING} to true"
    if "txlog.fragments" in features:
        reason = f"{name} excludes txlog.fragments, which spreads the columns of a row over files"
        return reason, "Drop the feature txlog.fragments"
    for field in schema.fields:
        for kind in types_in(StructType((field,))):
            if not _is_allowed(kind, versions[0]):
                reason = f"{name} excludes the type {type_name(kind)}, which {field.name} has"
                return reason, "Leave the column out, or give it another type"
    for column, change in recorded_changes(schema):
        old, new = str(change.get("fromType")), str(change.get("toType"))
        if not _is_change_of_iceberg(old, new):
            reason = f"{column} was widened from {old} to {new}, which Iceberg does not allow"
            return reason, f"Write the rows to a new table, or turn {name} off"
    return None


def _is_allowed(kind: DataType, version: int) -> bool:
    match kind:
        case StructType() | DecimalType():
            return True
        case ArrayType() | MapType():
            return version > 1
        case PrimitiveType(name):
            allowed = name in _PRIMITIVES or (version == 3 and name == "variant")
            return allowed or (version == 1 and name != "void")
    return False


def _is_change_of_iceberg(old: str, new: str) -> bool:
    if old in _WHOLE and new in _WHOLE:
        return True
    if (old, new) == ("float", "double"):
        return True
    scales = [text.rpartition(",")[2].strip() for text in (old, new)]
    return old.startswith("decimal") and new.startswith("decimal") and scales[0] == scales[1]


def require_compatible(
    protocol: Protocol,
    metadata: Metadata,
    *,
    path: str,
    before: Metadata | None = None,
    adds: Sequence[Add] = (),
) -> None:
    """Raise if a table, or a commit to it, breaks the table's Iceberg compatibility.

    Parameters
    ----------
    before
        The metadata before the commit.
    adds
        Files that the commit adds.

    Raises
    ------
    UnsupportedFeatureError
        The error names the feature and what it excludes.
    """
    raw = metadata.configuration
    versions = compatibilities(raw)
    found = None
    if before is None or before != metadata:
        listed = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
        found = fault_of(parse_schema(metadata.schema_string or ""), raw, listed)
    name = feature_of(versions[0])
    columns = metadata.partition_columns
    if before is not None and before.partition_columns not in ([], columns):
        reason = f"{name} keeps the partition columns {', '.join(before.partition_columns)}"
        found = found or (reason, "Write the rows to a new table")
    for add in adds:
        if add.num_records is None:
            found = found or (
                f"{name} needs the number of rows of each file, and {add.path} has none",
                "Call optimize.compute_statistics first",
            )
        if versions[0] < 3 and add.deletion_vector is not None:
            reason = f"{name} excludes deletion vectors, and {add.path} has one"
            found = found or (reason, "Write the rows of the file again")
    if found is not None:
        raise UnsupportedFeatureError(path=path, features=(name,), reason=found[0], remedy=found[1])


def require_makeable(schema: StructType, raw: Mapping[str, str | None]) -> None:
    """Raise if a new table would break its Iceberg compatibility.

    Raises
    ------
    InvalidInputError
        The error names the broken rule.
    """
    if (found := fault_of(schema, raw)) is not None:
        raise InvalidInputError(argument="properties", reason=found[0], remedy=found[1])
