"""Table properties (`metaData.configuration`) as typed values, with Delta's defaults."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

import orjson

from txlog.actions.table import Metadata
from txlog.base.errors import InvalidInputError, SchemaMismatchError, warn_caller
from txlog.base.moments import LONGEST_MS

_UNITS_MS = {
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 7 * 86_400_000,
}
_INTERVAL = re.compile(r"(?:interval\s+)?(\d+)\s+([a-z]+?)s?", re.IGNORECASE)
_CODECS = ("uncompressed", "none", "snappy", "gzip", "lz4", "lz4_raw", "zstd", "brotli")


def _flag(text: str) -> bool:
    folded = text.strip().lower()
    if folded not in ("true", "false"):
        raise ValueError("expected true or false")
    return folded == "true"


def _positive(text: str) -> int:
    number = int(text)
    if number <= 0:
        raise ValueError("expected a number above 0")
    return number


def _count_or_all(text: str) -> int:
    number = int(text)
    if number < -1:
        raise ValueError("expected -1 (all) or more")
    return number


def _interval_ms(text: str) -> int:
    match = _INTERVAL.fullmatch(text.strip())
    if match is None or match[2].lower() not in _UNITS_MS:
        raise ValueError("expected an interval such as 'interval 7 days'")
    return min(int(match[1]) * _UNITS_MS[match[2].lower()], LONGEST_MS)


_SIZE = re.compile(r"(\d+)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


def _bytes(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise ValueError("expected a number of bytes, or a size such as 128mb")
    return int(match[1]) << 10 * " kmgt".index(match[2].lower() or " ")


def _mapping_mode(text: str) -> str:
    folded = text.strip().lower()
    if folded not in ("none", "name", "id"):
        raise ValueError("expected none, name or id")
    return folded


_COLUMN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^.,`]*[^.,`\s]))\s*([.,]|$)")


def _column_paths(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the paths of comma-separated columns; names with dots are in backticks."""
    paths: list[tuple[str, ...]] = []
    path: list[str] = []
    position = 0
    more = bool(text.strip())
    while more:
        match = _COLUMN.match(text, position)
        if match is None:
            raise ValueError("expected column names, separated by commas")
        path.append(match[1].replace("``", "`") if match[1] else match[2].strip())
        if match[3] != ".":
            paths.append(tuple(path))
            path = []
        position, more = match.end(), bool(match[3])
    return tuple(paths)


def _text(text: str) -> str:
    return text


def _deletion_format(text: str) -> str:
    if text not in ("delta", "lance"):
        raise ValueError("expected delta or lance")
    return text


def _on_use(text: str) -> str:
    if text != "auto":
        raise ValueError("expected auto, or omit the property")
    return text


def _checkpoint_policy(text: str) -> str:
    if text not in ("classic", "v2"):
        raise ValueError("expected classic or v2")
    return text


def _auto_compact(text: str) -> bool:
    folded = text.strip().lower()
    if folded not in ("true", "false", "auto", "legacy"):  # Those of Databricks.
        raise ValueError("expected true, false, auto or legacy")
    return folded != "false"


def _codec(text: str) -> str:
    if text.lower() not in _CODECS:
        raise ValueError(f"expected one of {', '.join(_CODECS)}")
    return text.lower()


# Property → the parser of its text and its default.
_KNOWN: dict[str, tuple[Callable[[str], Any], Any]] = {
    "delta.appendOnly": (_flag, False),
    "delta.autoOptimize.autoCompact": (_auto_compact, False),
    "delta.checkpointInterval": (_positive, 100),  # As in delta-rs; Spark has 10.
    "delta.checkpointPolicy": (_checkpoint_policy, "classic"),
    "delta.checkpoint.writeStatsAsJson": (_flag, True),
    "delta.checkpoint.writeStatsAsStruct": (_flag, False),
    "delta.columnMapping.mode": (_mapping_mode, "none"),
    "delta.dataSkippingNumIndexedCols": (_count_or_all, 32),
    "delta.dataSkippingStatsColumns": (_column_paths, None),
    "delta.deletedFileRetentionDuration": (_interval_ms, 7 * 86_400_000),
    "delta.enableChangeDataFeed": (_flag, False),
    "delta.enableDeletionVectors": (_flag, False),
    "delta.enableExpiredLogCleanup": (_flag, True),
    "delta.enableIcebergCompatV1": (_flag, False),
    "delta.enableIcebergCompatV2": (_flag, False),
    "delta.enableIcebergCompatV3": (_flag, False),
    "delta.enableInCommitTimestamps": (_flag, False),
    "delta.enableRowTracking": (_flag, False),
    "delta.enableTypeWidening": (_flag, False),
    "delta.enableVariantShredding": (_flag, False),
    "delta.inCommitTimestampEnablementTimestamp": (int, None),
    "delta.inCommitTimestampEnablementVersion": (int, None),
    "delta.logRetentionDuration": (_interval_ms, 30 * 86_400_000),
    "delta.parquet.compression.codec": (_codec, "zstd"),
    "delta.rowTrackingSuspended": (_flag, False),
    "delta.setTransactionRetentionDuration": (_interval_ms, None),
    "delta.targetFileSize": (_bytes, None),
    "delta.writePartitionColumnsToParquet": (_flag, False),
    "txlog.bloomFilterColumns": (_column_paths, None),
    "txlog.catalog": (_text, None),
    "txlog.catalog.stamped": (_flag, False),
    "txlog.dataset.cleared": (_positive, None),  # txlog.training sets these four.
    "txlog.dataset.format": (_positive, None),
    "txlog.dataset.ledger": (_positive, None),
    "txlog.dataset.type": (_text, None),
    "txlog.deletionFormat": (_deletion_format, "delta"),
    "txlog.deletionVectors": (_on_use, None),
    "txlog.pageRows": (_positive, None),
    "txlog.rowGroupRows": (_positive, None),
    "txlog.sortBy": (_column_paths, None),
    "txlog.logCompactionInterval": (_positive, None),
    "txlog.writeChecksums": (_flag, False),
}


@dataclass(frozen=True)
class Properties:
    """The properties of a table.

    Reading is lenient: an invalid value gives the default, so that a typing error does not make the
    table unreadable. Writers use `validate_properties`, which is strict.
    """

    raw: Mapping[str, str | None] = field(default_factory=dict)

    def get(self, name: str) -> Any:
        """Return the typed value of a known property, by its full name (`delta.appendOnly`)."""
        read, default = _KNOWN[name]
        text = self.raw.get(name)
        if text is None:
            return default
        try:
            return read(text)
        except ValueError:
            return default

    def is_readable(self, name: str) -> bool:
        """Return whether a known property is absent or has a valid value."""
        text = self.raw.get(name)
        try:
            return text is None or _KNOWN[name][0](text) is not None
        except ValueError:
            return False


CHECK_PREFIX = "delta.constraints."  # The prefix of the properties with CHECK constraints.
INDEX_PREFIX = "txlog.index."
_INDEX_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


@dataclass(frozen=True)
class IndexDefinition:
    """An index over key columns, defined by the property `txlog.index.NAME` (LKP-6).

    `columns` are names in data files; more `bits` make false matches of absent keys rarer.
    """

    name: str
    columns: tuple[str, ...]
    bits: int = 16

    @property
    def text(self) -> str:
        """The value of the property."""
        return orjson.dumps({"format": 1, "columns": self.columns, "bits": self.bits}).decode()

    @classmethod
    def parse(cls, name: str, text: str) -> IndexDefinition:
        """Return the index that a property defines; raise `ValueError` if it defines none."""
        expected = 'expected {"format":1,"columns":[names in data files],"bits":0 to 32}'
        if not _INDEX_NAME.fullmatch(name):
            raise ValueError("the name of an index has at most 63 characters of a-z, 0-9 and _")
        columns, read = _columns_in(text, expected)
        bits = read.get("bits", 16)
        if type(bits) is not int or not 0 <= bits <= 32:
            raise ValueError(expected)
        return cls(name, columns, bits)


def _columns_in(text: str, expected: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the columns that the JSON of a definition names, and all of it."""
    read = orjson.loads(text)
    if not isinstance(read, dict) or read.get("format") != 1:
        raise ValueError(expected)
    columns = read.get("columns")
    if not isinstance(columns, list) or not all(isinstance(one, str) for one in columns):
        raise ValueError(expected)
    if not columns:
        raise ValueError(expected)
    return tuple(columns), read


UNIQUE_PREFIX = "txlog.unique."


@dataclass(frozen=True)
class UniqueKey:
    """Columns whose values no two rows share, as the property `txlog.unique.NAME` says (UNQ-1).

    `columns` are names in data files. `primary`: it was declared as the primary key.
    """

    name: str
    columns: tuple[str, ...]
    primary: bool = False

    @property
    def text(self) -> str:
        """The value of the property."""
        found = {"format": 1, "columns": self.columns, "primary": self.primary}
        return orjson.dumps(found).decode()

    @classmethod
    def parse(cls, name: str, text: str) -> UniqueKey:
        """Return the key that a property defines; raise `ValueError` if it defines none."""
        expected = 'expected {"format":1,"columns":[names in data files],"primary":true or false}'
        columns, read = _columns_in(text, expected)
        primary = read.get("primary", False)
        if type(primary) is not bool or len(set(columns)) < len(columns) or not name:
            raise ValueError(expected)
        return cls(name, columns, primary)


def unique_keys(raw: Mapping[str, str | None]) -> dict[str, UniqueKey]:
    """Return the unique keys that properties define, by name.

    Raises
    ------
    ValueError
        A definition is invalid, so nobody knows which rows it forbids.
    """
    return {
        name: UniqueKey.parse(name, text)
        for key, text in raw.items()
        if key.startswith(UNIQUE_PREFIX) and text is not None
        for name in [key.removeprefix(UNIQUE_PREFIX)]
    }


def index_definitions(raw: Mapping[str, str | None]) -> dict[str, IndexDefinition]:
    """Return the indexes that properties define, by name; invalid definitions are ignored."""
    found = {}
    for key, text in raw.items():
        if key.startswith(INDEX_PREFIX) and text is not None:
            name = key.removeprefix(INDEX_PREFIX)
            with suppress(ValueError):
                found[name] = IndexDefinition.parse(name, text)
    return found


def definitions_of_columns(
    raw: Mapping[str, str | None],
) -> list[tuple[str, IndexDefinition | UniqueKey]]:
    """Return the unique keys of a table, then its indexes, each with the prefix of its property.

    Errors as for `unique_keys`.
    """
    return [
        *((UNIQUE_PREFIX, key) for key in unique_keys(raw).values()),
        *((INDEX_PREFIX, index) for index in index_definitions(raw).values()),
    ]


# With the value `supported`, the property asks to list the feature.
FEATURE_PREFIX = "delta.feature."


def split_features(raw: Mapping[str, str | None]) -> tuple[frozenset[str], dict[str, str | None]]:
    """Split properties into the features that they ask for and the properties to store.

    Neither contains the properties that ask for protocol versions (`asked_versions`).
    """
    asked = frozenset(
        name.removeprefix(FEATURE_PREFIX) for name in raw if name.startswith(FEATURE_PREFIX)
    )
    kept = {
        name: text
        for name, text in raw.items()
        if not name.startswith(FEATURE_PREFIX) and name not in VERSIONS
    }
    return asked, kept


def asks_for(feature: str, raw: Mapping[str, str | None] | Mapping[str, str] | None) -> bool:
    """Return whether properties ask for a feature."""
    return f"{FEATURE_PREFIX}{feature}" in (raw or {})


VERSIONS = ("delta.minReaderVersion", "delta.minWriterVersion")


def asked_versions(raw: Mapping[str, str | None]) -> tuple[int, int]:
    """Return the lowest reader and writer versions that properties ask for; the default is 1.

    They raise the protocol (`protocol.access.at_least`), and no table stores them.
    """
    reader, writer = (int(raw.get(name) or 1) for name in VERSIONS)
    return reader, writer


_OWNED = ("delta.", "txlog.")  # Names with these prefixes have a meaning.
_REFUSED = ("delta.enable", "txlog.")  # An unknown name with these prefixes has no effect.


def _version(known: tuple[int, ...]) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or int(text) not in known:
            raise ValueError(f"expected one of {', '.join(map(str, known))}")
        return int(text)

    return read


def validate_properties(raw: Mapping[str, str], *, warns: bool = True) -> None:
    """Raise unless a caller may set these properties; warn of those that txlog does not use.

    Raises
    ------
    InvalidInputError
        A value is not a string or is invalid, a `delta.enable…` or `txlog.` property is unknown,
        a name differs from Delta's spelling in case, or two constraints differ only in case. One
        error names all faults.
    """
    faults, idle = [], []
    folded = [name.lower() for name in raw if name.startswith(CHECK_PREFIX)]
    for name, text in raw.items():
        if not isinstance(text, str):
            faults.append(f"{name}: the value must be a string, not {type(text).__name__}")
        elif name.startswith(CHECK_PREFIX) and folded.count(name.lower()) > 1:
            faults.append(f"{name}: another constraint has this name in other case")
        elif name.startswith(FEATURE_PREFIX):
            if text != "supported":
                faults.append(f"{name}={text!r}: expected supported")
        elif name in _READERS or name.startswith((INDEX_PREFIX, UNIQUE_PREFIX)):
            try:
                _reader_of(name)(text)
            except ValueError as error:
                faults.append(f"{name}={text!r}: {error}")
            if name in KEPT:
                idle.append(name)
        elif name.lower().startswith(_OWNED) and not name.startswith(_FREE_PREFIXES):
            known = property_name(name)
            prefix = next((one for one in _PREFIXES if name.lower().startswith(one.lower())), None)
            if prefix is not None:
                faults.append(f"{name}: the prefix is spelled {prefix}")
            elif known != name:
                faults.append(f"{name}: Delta spells it {known}")
            elif name.lower().startswith(_REFUSED):
                faults.append(f"{name}: no such property in txlog")
            else:
                from difflib import get_close_matches

                near = get_close_matches(name, [*_READERS], 1, 0.9)
                idle.append(name + (f" (did you mean {near[0]}?)" if near else ""))
    if idle and warns and not faults:
        warn_caller(
            f"the properties are stored for other engines, but txlog does not use {', '.join(idle)}"
        )
    if faults:
        raise InvalidInputError(
            argument="properties", reason="; ".join(faults), remedy="Correct or omit them"
        )


def _reader_of(name: str) -> Callable[[str], Any]:
    if name.startswith(INDEX_PREFIX):
        return partial(IndexDefinition.parse, name.removeprefix(INDEX_PREFIX))
    if name.startswith(UNIQUE_PREFIX):
        return partial(UniqueKey.parse, name.removeprefix(UNIQUE_PREFIX))
    return _READERS[name]


_FREE_PREFIXES = (CHECK_PREFIX,)
# Property names that begin alike.
_PREFIXES = (CHECK_PREFIX, FEATURE_PREFIX, INDEX_PREFIX, UNIQUE_PREFIX)

# Properties that guide other engines when they write or clean up. txlog stores them. They have no
# effect on the rows or on reading.
KEPT: dict[str, Callable[[str], Any]] = {
    "delta.autoOptimize.optimizeWrite": _flag,
    "delta.isolationLevel": _text,
    "delta.randomizeFilePrefixes": _flag,
    "delta.randomPrefixLength": _positive,
    "delta.tuneFileSizesForRewrites": _flag,
}

# They raise the protocol and are not stored, as with delta-spark.
_RAISING: dict[str, Callable[[str], Any]] = {
    VERSIONS[0]: _version((1, 2, 3)),
    VERSIONS[1]: _version((1, 2, 3, 4, 5, 6, 7)),
}
_READERS = {**{name: known[0] for name, known in _KNOWN.items()}, **KEPT, **_RAISING}


class Owner(StrEnum):
    """Who decides what a property says. The rules are in spec/commit.md, CON-28."""

    USER = "user"  # Callers set and unset it. It is a part of the table's definition.
    WRITER = "writer"  # Writers record it about the data files, and it goes where these go.
    LOG = "log"  # Writers record it about the commits of this log, and it stays with the log.
    FEATURE = "feature"  # It asks for a protocol. No table stores it.


OWNERS: dict[str, Owner] = {
    "delta.columnMapping.maxColumnId": Owner.WRITER,
    "delta.inCommitTimestampEnablementTimestamp": Owner.LOG,
    "delta.inCommitTimestampEnablementVersion": Owner.LOG,
    "delta.minReaderVersion": Owner.FEATURE,
    "delta.minWriterVersion": Owner.FEATURE,
    "delta.requireCheckpointProtectionBeforeVersion": Owner.LOG,
    "delta.rowTracking.materializedRowCommitVersionColumnName": Owner.WRITER,
    "delta.rowTracking.materializedRowIdColumnName": Owner.WRITER,
    "txlog.catalog": Owner.LOG,
    "txlog.catalog.stamped": Owner.LOG,
    "txlog.droppedColumns": Owner.WRITER,
}
"""The owners of properties. `delta.feature.…` belongs to features, all others to the user."""

STAMPS = "delta.enableInCommitTimestamps"
"""The one property of the user that is about the log: its commits have times, or have not."""

STAMPED_SINCE = (  # The version and the timestamp from which in-commit timestamps are enabled.
    "delta.inCommitTimestampEnablementVersion",
    "delta.inCommitTimestampEnablementTimestamp",
)


def owner_of(name: str) -> Owner:
    """Return the owner of a property: the user, the writers, the log or a feature."""
    if name.startswith(FEATURE_PREFIX):
        return Owner.FEATURE
    return OWNERS.get(name, Owner.USER)


def is_of_writers(name: str) -> bool:
    """Return whether writers record a property, so that no caller sets or unsets it."""
    return owner_of(name) in (Owner.WRITER, Owner.LOG)


def is_of_the_log(name: str) -> bool:
    """Return whether a property describes the log: it does not move with rows and files."""
    return owner_of(name) is Owner.LOG or name == STAMPS


def carried(
    definition: Mapping[str, str | None],
    current: Mapping[str, str | None] | None,
    asked: Mapping[str, str | None] | None = None,
) -> dict[str, str | None]:
    """Return the properties of a table that takes over a definition: rule CON-28.

    Parameters
    ----------
    definition
        The properties of another version, of another table, or of a new one.
    current
        Those of the table; None if its log begins now.
    asked
        Those that the caller gives, which count most.
    """
    found = {
        name: text
        for name, text in definition.items()
        if not is_of_the_log(name) or (current is None and name == STAMPS)
    }
    found |= {name: text for name, text in (current or {}).items() if is_of_the_log(name)}
    return without_old_stamps({**found, **(asked or {})})


def without_old_stamps(raw: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return properties without the start of in-commit timestamps if these are off."""
    on = bool(Properties(raw).get(STAMPS))
    return {name: text for name, text in raw.items() if on or name not in STAMPED_SINCE}


# Properties with a prefix of Delta or txlog that do not bind writers: with any value, all files and
# rows are valid. The first is a counter, which each new mapped column moves.
_UNBINDING = (
    "delta.columnMapping.maxColumnId",
    "txlog.bloomFilterColumns",
    "txlog.logCompactionInterval",
    "txlog.pageRows",
    "txlog.rowGroupRows",
    "txlog.sortBy",
    "txlog.writeChecksums",
)


def binds_writers(name: str) -> bool:
    """Return whether a property may say which files or rows writers may commit.

    A name with a prefix of Delta or txlog does so if nothing else is known.
    """
    return name.startswith(_OWNED) and name not in _UNBINDING and not name.startswith(INDEX_PREFIX)


_BY_FOLDED_NAME = {name.lower(): name for name in (*_READERS, *OWNERS)}


def property_name(name: str) -> str:
    """Return the name of a known property in Delta's spelling, ignoring case; others unchanged."""
    return _BY_FOLDED_NAME.get(name.lower(), name)


COMPATIBILITY = {n: f"delta.enableIcebergCompatV{n}" for n in (1, 2, 3)}
"""The properties that turn the versions of Iceberg compatibility on."""


def compatibilities(raw: Mapping[str, str | None]) -> list[int]:
    """Return the versions of Iceberg compatibility that are turned on; only one is valid."""
    return [version for version, name in COMPATIBILITY.items() if is_on(raw, name)]


def is_on(raw: Mapping[str, str | None], name: str) -> bool:
    """Return whether a property is true."""
    return (raw.get(name) or "").strip().lower() == "true"


DROPPED = "txlog.droppedColumns"  # This property is a JSON array of physical names.


def dropped_columns(metadata: Metadata) -> frozenset[str]:
    """Return the physical names of dropped columns that data files may still contain."""
    try:
        names = orjson.loads(metadata.configuration.get(DROPPED) or "[]")
    except orjson.JSONDecodeError:
        names = []
    return frozenset(name for name in names if isinstance(name, str))


def with_dropped(metadata: Metadata, names: Iterable[str]) -> Metadata:
    """Return metadata that lists exactly these dropped columns."""
    kept = {key: text for key, text in metadata.configuration.items() if key != DROPPED}
    if dropped := sorted(names):
        kept[DROPPED] = orjson.dumps(dropped).decode()
    return metadata.model_copy(update={"configuration": kept})


def still_dropped(metadata: Metadata, names: Iterable[str]) -> frozenset[str]:
    """Return the dropped columns except those with these names, ignoring case."""
    given = {name.lower() for name in names}
    return frozenset(name for name in dropped_columns(metadata) if name.lower() not in given)


def require_not_dropped(metadata: Metadata, names: Iterable[str]) -> None:
    """Raise if a dropped column has this name and data files may still contain its values.

    Raises
    ------
    SchemaMismatchError
        The error names the column.
    """
    folded = {name.lower() for name in dropped_columns(metadata)}
    for name in names:
        if name.lower() in folded:
            raise SchemaMismatchError(
                argument="data",
                field=name,
                reason="a column with this name was dropped, and data files still contain its "
                "values",
                remedy="Add it with alter.add_columns, which gives all rows a value, or rename the "
                "column in the data",
            )
