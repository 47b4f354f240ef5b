"""Group a version's live files into fragments, as Arrow columns. Pure.

A fragment's *primary* file holds its rows. *Column files* hold further columns of these rows,
matched by position. Rules: spec/fragments.md, FRG-13 to FRG-18.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from txlog.actions.stats_text import MOST_ROWS
from txlog.base.arrow import arrow_array, arrow_scalar, pc
from txlog.base.columns import flat
from txlog.base.errors import LogCorruptError
from txlog.fragments.ids import fragment_ids, shared_ids, tag_texts, tagged_ids

FIELDS_TAG = "txlog.fields"  # This tag of a column file lists the physical names of its columns.
# This tag of a column file that gives values to some rows alone is its place above others.
LAYER_TAG = "txlog.layer"
LAYER_TEXT = "^[1-9][0-9]{0,8}$"
# A column of such files: true for the rows to which they give values.
GIVEN = "_txlog_given"
FEATURE = "txlog.fragments"
UNLISTED = f"files use the feature {FEATURE}, but the protocol does not list it"
_LISTS_IT = (
    "The writer of this log made an error. "
    'alter.add_features("txlog.fragments") lists the feature. If it is not wanted, restore a '
    "version without such files"
)


@dataclass(frozen=True)
class ColumnFiles:
    """The files that give columns to fragments."""

    rows: pa.Table  # `FILE_ROWS`.
    owners: pa.Array  # int64: for each row, the index of its fragment among the primaries.
    field_sets: tuple[tuple[str, ...], ...]  # The distinct lists of physical names that occur.
    field_set: pa.Array  # int64: for each row, the index of its list.
    layers: pa.Array  # int64: for each row, its place above the files of all rows, which have 0.

    def fields(self) -> list[tuple[str, ...]]:
        """Return the physical names of the columns of each file."""
        return [self.field_sets[at] for at in self.field_set.to_pylist()]

    def giving(self, *wanted: str) -> pa.Array:
        """Return which of the files contain one of some columns, by their physical names."""
        sets = [at for at, names in enumerate(self.field_sets) if not {*wanted}.isdisjoint(names)]
        return pc.is_in(self.field_set, value_set=arrow_array(sets, pa.int64()))

    def take(self, places: pa.Array, owners: pa.Array) -> ColumnFiles:
        """Return the files at some places, with new indexes of their fragments."""
        return ColumnFiles(
            self.rows.take(places),
            owners,
            self.field_sets,
            self.field_set.take(places),
            self.layers.take(places),
        )

    def filter(self, chosen: pa.Array, owners: pa.Array) -> ColumnFiles:
        """Return some of the files, with new indexes of their fragments."""
        return ColumnFiles(
            self.rows.filter(chosen),
            owners.filter(chosen),
            self.field_sets,
            self.field_set.filter(chosen),
            self.layers.filter(chosen),
        )


@dataclass(frozen=True)
class FragmentRows:
    """Fragments as columns; each has one row in `primaries`."""

    primaries: pa.Table  # `FILE_ROWS`.
    ids: pa.Array  # int64: the id of each primary.
    columns: ColumnFiles

    def filter(self, chosen: pa.Array) -> FragmentRows:
        """Return some of the fragments in the same order."""
        primaries, ids = pc.filter(self.primaries, chosen), pc.filter(self.ids, chosen)
        if not self.columns.rows.num_rows:
            return FragmentRows(primaries, ids, self.columns)
        places = pc.subtract(pc.cumulative_sum(chosen.cast(pa.int64())), 1)
        owners = self.columns.owners
        columns = self.columns.filter(chosen.take(owners), places.take(owners))
        return FragmentRows(primaries, ids, columns)


def single_files(rows: pa.Table, ids: pa.Array) -> FragmentRows:
    """Return `FILE_ROWS` as fragments of one file each."""
    nothing = pa.nulls(0, pa.int64())
    return FragmentRows(rows, ids, ColumnFiles(rows.slice(0, 0), nothing, (), nothing, nothing))


def fragment_rows(live: pa.Table, *, listed: bool) -> FragmentRows:
    """Group a version's live `FILE_ROWS` into fragments.

    Parameters
    ----------
    listed
        Whether the protocol lists the feature `txlog.fragments`. Without it, if two files claim an
        id, neither gets it; with it, this is an error.

    Raises
    ------
    LogCorruptError
        A column file has no fragment, contains a column of another file, or has deletions; or two
        primaries have the same id. The error names the file.
    """
    texts = tag_texts(live, FIELDS_TAG)
    is_column = pc.is_valid(texts)
    if texts.null_count == len(texts):
        primaries, columns = live, live.slice(0, 0)
    else:
        primaries, columns = live.filter(pc.invert(is_column)), live.filter(is_column)
    if listed:
        _require_distinct(primaries)
    ids = fragment_ids(primaries)
    if not columns.num_rows:
        return single_files(primaries, ids)
    owners = _owners(columns, ids)
    _require(
        columns,
        columns["dv_id"].is_null(),
        "a column file has its own deletions, but only a primary file may have them",
    )
    of_primary = flat(primaries["base_row_id"]).take(owners)
    same = pc.equal(flat(columns["base_row_id"]), of_primary)
    _require(
        columns, pc.fill_null(same, True), "its baseRowId differs from that of its primary file"
    )
    encoded = pc.dictionary_encode(pc.filter(texts, is_column))
    sets = tuple(
        _parsed(text, columns.filter(pc.equal(encoded.indices, at)))
        for at, text in enumerate(encoded.dictionary.to_pylist())
    )
    found = ColumnFiles(columns, owners, sets, encoded.indices.cast(pa.int64()), _layers(columns))
    _require_disjoint(found)
    return FragmentRows(primaries, ids, found)


def _require_distinct(primaries: pa.Table) -> None:
    """Raise if two files are primaries of the same fragment."""
    claimed = tagged_ids(primaries)
    shared = shared_ids(claimed)
    if len(shared):
        raise _corrupt(
            primaries.filter(pc.is_in(claimed, value_set=shared)),
            f"another file is also the primary of fragment {shared[0].as_py()}",
        )


def _owners(columns: pa.Table, ids: pa.Array) -> pa.Array:
    claimed = tagged_ids(columns)
    _require(columns, claimed.is_valid(), "a column file has no valid fragment id")
    owners = pc.index_in(claimed, value_set=ids)
    _require(columns, owners.is_valid(), "it contains columns of a fragment that does not exist")
    return owners.cast(pa.int64())


def _parsed(text: str, rows: pa.Table) -> tuple[str, ...]:
    try:
        names = orjson.loads(text)
    except orjson.JSONDecodeError:
        names = None
    ok = isinstance(names, list) and names and all(isinstance(name, str) for name in names)
    if not ok or len(set(names)) != len(names):
        raise _corrupt(
            rows, f"{FIELDS_TAG} is {text!r}; a JSON array of distinct names was expected"
        )
    return tuple(names)


def _layers(columns: pa.Table) -> pa.Array:
    texts = tag_texts(columns, LAYER_TAG)
    if texts.null_count == len(texts):
        return pa.repeat(arrow_scalar(0, pa.int64()), len(texts))
    valid = pc.match_substring_regex(texts, LAYER_TEXT)
    _require(
        columns,
        pc.fill_null(valid, True),
        f"{LAYER_TAG} is not a number from 1, without leading zeros",
    )
    return pc.fill_null(texts.cast(pa.int64()), 0)


def _require_disjoint(columns: ColumnFiles) -> None:
    """Raise if two files give the same column to all rows, or have the same place above others."""
    upper = pc.greater(columns.layers, 0)
    if pc.any(upper).as_py():
        places = pc.binary_join_element_wise(
            columns.owners.cast(pa.string()), columns.layers.cast(pa.string()), " "
        )
        counted = pc.value_counts(places.filter(upper))
        twice = counted.field("values").filter(pc.greater(counted.field("counts"), 1))
        same = pc.and_(upper, pc.is_in(places, value_set=twice))
        _require(
            columns.rows, pc.invert(same), f"another file of its fragment has the same {LAYER_TAG}"
        )
        columns = columns.filter(pc.invert(upper), columns.owners)
    names = arrow_array(columns.field_sets, pa.list_(pa.string())).take(columns.field_set)
    parents = pc.list_parent_indices(names)
    owners = columns.owners.take(parents).cast(pa.string())
    counted = pc.value_counts(pc.binary_join_element_wise(owners, names.flatten(), " "))
    twice = counted.field("values").filter(pc.greater(counted.field("counts"), 1))
    if len(twice):
        owner, _, name = twice[0].as_py().partition(" ")
        both = pc.and_(pc.equal(columns.owners, int(owner)), columns.giving(name))
        raise _corrupt(
            columns.rows.filter(both), f"another file of its fragment contains column {name} too"
        )


def _require(rows: pa.Table, ok: pa.Array | pa.ChunkedArray, reason: str) -> None:
    if not pc.all(ok).as_py():
        raise _corrupt(rows.filter(pc.invert(ok)), reason)


def _corrupt(rows: pa.Table, reason: str) -> LogCorruptError:
    return LogCorruptError(
        path=rows["path"][0].as_py(),
        field="tags",
        reason=reason,
        remedy="The writer of this log made an error: restore a version without the file",
    )


def deleted_counts(files: pa.Table) -> pa.Array:
    """Return the number of deleted rows of each of `FILE_ROWS`, from their descriptors.

    A number that no file can have counts as the largest possible one, so that sums do not overflow.
    """
    vectors = flat(files["deletion_vector"])
    counts = pc.fill_null(pc.struct_field(vectors, "cardinality"), 0)
    return pc.min_element_wise(counts, MOST_ROWS)


def require_fragments_feature(
    live: pa.Table, listed: bool, *, path: str, remedy: str = _LISTS_IT
) -> None:
    """Raise if live `FILE_ROWS` need the table feature `txlog.fragments` and it is not listed.

    Raises
    ------
    LogCorruptError
        There are deletions in Lance's form or column files without the feature (rules FRG-13 and
        FRG-14).
    """
    field = None if listed else _needs_feature(live)
    if field is not None:
        raise LogCorruptError(
            path=path,
            field=field,
            reason=UNLISTED,
            remedy=remedy,
        )


def needs_fragments_feature(live: pa.Table) -> bool:
    """Return whether `FILE_ROWS` need the table feature `txlog.fragments`. Pure."""
    return _needs_feature(live) is not None


def _needs_feature(live: pa.Table) -> str | None:
    """Return the field for which files need the feature, or None."""
    vectors = flat(live["deletion_vector"])
    # Usually there are none, and this is called often.
    some = vectors.null_count < len(vectors)
    lance = some and pc.any(pc.equal(pc.struct_field(vectors, "storageType"), "lance")).as_py()
    if lance:
        return "deletionVector"
    columns = tag_texts(live, FIELDS_TAG)
    return "tags" if columns.null_count < len(columns) else None


def column_files_of(
    columns: ColumnFiles,
) -> Iterator[tuple[int, dict[str, Any], tuple[str, ...], int]]:
    """Yield each column file's fragment index; path, size and row version; columns; and layer."""
    rows = columns.rows.select(["path", "size", "default_row_commit_version"]).to_pylist()
    yield from zip(
        columns.owners.to_pylist(),
        rows,
        columns.fields(),
        columns.layers.to_pylist(),
        strict=True,
    )
