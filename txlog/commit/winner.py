"""The effects of a winner's commit on the table. Pure; its files stay columns.

They depend only on its actions, never on the name of its operation. Rules: spec/commit.md, CON-12.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from txlog.actions.columns import empty_rows
from txlog.actions.table import DomainMetadata, Metadata, Protocol
from txlog.base.arrow import arrow_array, arrow_scalar, numpy_array, pc
from txlog.base.columns import flat
from txlog.base.errors import LogCorruptError, UnsupportedFeatureError
from txlog.fragments.ids import ROW_TRACKING_DOMAIN, tag_texts, tagged_ids
from txlog.fragments.rows import FIELDS_TAG
from txlog.log.paths import canonical_keys
from txlog.protocol.access import brings_vectors, with_vectors
from txlog.protocol.properties import binds_writers
from txlog.schema.json import parse_schema
from txlog.schema.types import StructField, StructType
from txlog.snapshot.commits import Commit
from txlog.snapshot.snapshot import Snapshot

_MOST = 2**63 - 1
# The prefix of domains with notes about versions: pins, registered clones, commits of data sets.
_NOTES = "txlog."
# Metadata keys of columns that do not bind writers.
_HARMLESS = ("delta.columnMapping.", "comment")


def is_additive(old: Metadata, new: Metadata) -> bool:
    """Return whether new metadata only adds nullable columns or changes users' properties.

    Properties that bind writers are not the users'. Unreadable metadata is not additive.
    """
    columns, before = schema_of(new), schema_of(old)
    if columns is None or before is None or not _same_but_columns_and_properties(old, new):
        return False
    now = {field.name: field for field in columns.fields}
    return (
        not _set_or_changed(old.configuration, new.configuration)
        and not _set_or_changed(new.configuration, old.configuration)
        and all(now.get(field.name) == field for field in before.fields)
        and all(is_harmless(field) for field in new_columns(before, columns))
    )


def tightens(old: Metadata, new: Metadata) -> bool:
    """Return whether new metadata may forbid rows that the old metadata permitted.

    Conservative: the answer is true unless all permitted rows certainly stay permitted.
    """
    columns, before = schema_of(new), schema_of(old)
    if columns is None or before is None or old.partition_columns != new.partition_columns:
        return True
    existing = {field.physical_name.lower() for field in before.fields}
    return _set_or_changed(old.configuration, new.configuration) or any(
        field.physical_name.lower() in existing or not is_harmless(field)
        for field in new_columns(before, columns)
    )


def schema_of(metadata: Metadata) -> StructType | None:
    """Return the schema of metadata, or None if it cannot be read."""
    try:
        return parse_schema(metadata.schema_string or "")
    except (LogCorruptError, UnsupportedFeatureError):
        return None


def new_columns(old: StructType, new: StructType) -> list[StructField]:
    """Return the columns of a schema that another schema lacks or has in another form."""
    known = {field.name: field for field in old.fields}
    return [field for field in new.fields if known.get(field.name) != field]


def is_harmless(field: StructField) -> bool:
    """Return whether writers may ignore a new column: if they omit it, it is null."""
    return field.nullable and all(name.startswith(_HARMLESS) for name in field.metadata)


def _same_but_columns_and_properties(old: Metadata, new: Metadata) -> bool:
    rest: dict[str, Any] = {"schema_string": None, "configuration": {}}
    return old.model_copy(update=rest) == new.model_copy(update=rest)


def _set_or_changed(old: Mapping[str, str | None], new: Mapping[str, str | None]) -> bool:
    """Return whether a property that binds writers has changed."""
    return any(binds_writers(name) and old.get(name) != value for name, value in new.items())


class Effect(StrEnum):
    """A kind of change that a commit makes: a column of the table of CON-11.

    The values complete the sentence "another writer …".
    """

    ROWS_BLIND = "added rows without reading the table"
    ROWS = "added rows"
    VECTORS = "deleted rows from files"
    REMOVED = "removed files"
    MOVED = "rearranged files"
    COLUMNS = "added or replaced column files"
    ADDITIONS = "added nullable columns or changed properties"
    METADATA = "changed the metadata"
    PROTOCOL = "changed the protocol"
    DOMAIN = "changed the metadata of a domain"
    NOTE = "pinned a version or registered a clone"


@dataclass(frozen=True)
class Change:
    """The files and columns of one effect of a commit.

    `files` are its `FILE_ROWS` in the order of the commit. `columns` are the physical and logical
    names of the affected columns in lower case; None if they are unknown.
    """

    files: pa.Table
    columns: frozenset[str] | None = frozenset()


def changes_of(winner: Commit, files: pa.Table, base: Snapshot) -> dict[Effect, Change]:
    """Return the effects of a commit, in the order of `Effect`.

    Parameters
    ----------
    files
        Its file actions as `FILE_ROWS`.
    base
        The version with which its metadata is compared.
    """
    found = _file_changes(files, is_blind(winner)) if files.num_rows else {}
    for _, action in winner.controls:
        if isinstance(action, Protocol):
            found[Effect.PROTOCOL] = Change(empty_rows())
        elif isinstance(action, Metadata) and is_additive(base.metadata, action):
            found[Effect.ADDITIONS] = Change(empty_rows(), _names_added(base, action))
        elif isinstance(action, Metadata):
            found[Effect.METADATA] = Change(empty_rows(), None)
        elif isinstance(action, DomainMetadata) and action.domain != ROW_TRACKING_DOMAIN:
            is_note = action.domain.startswith(_NOTES)
            found[Effect.NOTE if is_note else Effect.DOMAIN] = Change(empty_rows())
    return {effect: found[effect] for effect in Effect if effect in found}


def only_enables_vectors(winner: Commit, base: Snapshot) -> bool:
    """Return whether a commit changes protocol and metadata only as in CON-22."""
    actions = [one for _, one in winner.controls if isinstance(one, Protocol | Metadata)]
    if not actions or not brings_vectors(base.properties):
        return False
    expected = with_vectors(base.protocol, base.metadata)
    return all(action in expected for action in actions)


def is_blind(winner: Commit) -> bool:
    """Return whether a commit states that it is a blind append."""
    return winner.info is not None and winner.info.is_blind_append is True


def keys_of(files: pa.Table) -> pa.Array:
    """Return the canonical keys of the paths of `FILE_ROWS`."""
    return flat(canonical_keys(files["path"]))


def _names_added(base: Snapshot, metadata: Metadata) -> frozenset[str] | None:
    schema = schema_of(metadata)
    if schema is None:
        return None
    added = new_columns(base.schema, schema)
    return frozenset(name.lower() for f in added for name in (f.name, f.physical_name))


def _file_changes(files: pa.Table, blind: bool) -> dict[Effect, Change]:
    """Group file actions by effect; each row has exactly one."""
    added = Effect.ROWS_BLIND if blind else Effect.ROWS
    adds = flat(files["is_add"])
    lists = tag_texts(files, FIELDS_TAG)
    if pc.all(adds).as_py() and lists.null_count == len(lists):
        return {added: Change(files)}  # A fast path for appends.
    data_change, keys, ids = flat(files["data_change"]), keys_of(files), tagged_ids(files)
    of_columns = pc.is_valid(lists)
    primary = pc.invert(of_columns)
    vectors = pc.and_(primary, _has_grown(files, keys, primary))
    rest = pc.and_not(primary, vectors)
    gone, came = pc.and_not(rest, adds), pc.and_(rest, adds)
    # Column files are removed with their fragment; this changes no column.
    lost = ids.filter(pc.and_not(gone, pc.is_in(keys, value_set=keys.filter(adds))))
    with_fragment = pc.and_(pc.and_not(of_columns, adds), pc.is_in(ids, value_set=lost.drop_null()))
    gone = pc.or_(gone, with_fragment)
    columns = pc.and_not(of_columns, with_fragment)
    moved = pc.and_not(gone, data_change)
    # A file without new rows has its rows from a file that the same commit removes. If both have
    # the same path, the vector did not grow, and deleted rows may be back.
    again = pc.is_in(keys, value_set=keys.filter(pc.invert(adds)))
    rearranges = pc.and_not(pc.and_not(came, data_change), again)
    if not pc.any(moved).as_py():
        rearranges = pc.and_(rearranges, False)
    masks = {
        added: pc.and_not(came, rearranges),
        Effect.VECTORS: vectors,
        Effect.REMOVED: pc.and_(gone, data_change),
        Effect.MOVED: pc.or_(moved, rearranges),
        Effect.COLUMNS: columns,
    }
    return {
        effect: Change(files.filter(mask), _names_listed(lists.filter(mask)))
        for effect, mask in masks.items()
        if pc.any(mask).as_py()
    }


def _has_grown(files: pa.Table, keys: pa.Array, primary: pa.Array) -> pa.Array:
    """Return true for actions of files that a commit removes and adds with more deleted rows.

    Only the numbers are compared: the rows are in the vectors, which only CON-10 reads.
    """
    counts = pc.fill_null(pc.struct_field(flat(files["deletion_vector"]), "cardinality"), 0)
    adds = flat(files["is_add"])
    removed = numpy_array(pc.and_not(primary, adds))
    if not removed.any():
        return pa.repeat(arrow_scalar(False), len(keys))
    added = numpy_array(pc.and_(primary, adds))
    coded = pc.dictionary_encode(keys)
    codes, deleted = numpy_array(coded.indices), numpy_array(counts)
    # The largest number of deleted rows before, and the smallest after; `group_by` would import
    # pandas.
    before, after = np.full(len(coded.dictionary), _MOST), np.full(len(coded.dictionary), -1)
    before[codes[removed]] = -1
    np.maximum.at(before, codes[removed], deleted[removed])
    after[codes[added]] = _MOST
    np.minimum.at(after, codes[added], deleted[added])
    return pc.and_(primary, arrow_array((after > before)[codes]))


def _names_listed(lists: pa.Array) -> frozenset[str] | None:
    """Return the columns of column files; a commit's files have few distinct lists."""
    names: set[str] = set()
    for text in lists.drop_null().unique().to_pylist():
        listed = _parsed(text)
        if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
            return None
        names.update(name.lower() for name in listed)
    return frozenset(names)


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
