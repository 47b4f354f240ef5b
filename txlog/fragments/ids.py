"""Ids of fragments and of rows. Pure.

A fragment's id is in a tag if txlog assigned it; otherwise it follows from the order of paths
(spec/fragments.md, FRG-1 to FRG-9). Ids of rows are those of the Delta protocol, "Row Tracking":
its properties, and the domain with the highest id.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import orjson
import pyarrow as pa

from txlog.actions.table import DomainMetadata, Protocol
from txlog.base.arrow import arrow_array, arrow_scalar, numpy_array, pc
from txlog.base.columns import flat, nulled
from txlog.base.errors import LogCorruptError
from txlog.base.text_bytes import WORD_BYTES, text_bytes, words_of
from txlog.base.thresholds import Threshold
from txlog.protocol.access import supports
from txlog.protocol.properties import Properties

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FIRST = np.array([(1 << 64) - (1 << 8 * (8 - count)) for count in range(9)], np.uint64)
"""The masks of the first bytes of a word, by their number."""

Words: TypeAlias = "NDArray[np.uint64]"
Numbers: TypeAlias = "NDArray[np.int64]"


def places_of(wanted: Sequence[bytes], paths: pa.Array) -> tuple[Numbers, Numbers]:
    """Return for each wanted path the number of paths below it and the number of equal ones.

    The paths are compared in groups of eight bytes, from the first byte in which they differ.

    Parameters
    ----------
    wanted
        Ascending, without a null.
    paths
        A `binary` or `string` array, of any offset, without a null.
    """
    if not len(paths) or not wanted:
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.int64)
    asked = arrow_array(wanted, pa.binary())
    ends = pc.min_max(paths.cast(pa.binary())).as_py()
    start = _shared(min(wanted[0], ends["min"]), max(wanted[-1], ends["max"]))
    longest = pc.max(pc.binary_length(asked)).as_py()
    found = np.zeros(len(paths), np.int64)  # For each path, its position among the wanted paths.
    rows = np.arange(len(paths))
    # For each remaining path and each wanted path, the first wanted path with an equal prefix.
    alike, ours_alike = np.zeros(len(paths), np.int64), np.zeros(len(wanted), np.int64)
    while len(rows) and start <= longest:
        words = _words(asked, start, np.arange(len(wanted)))
        distinct = np.unique(words)
        scale = 2 * len(distinct) + 2
        ours = ours_alike * scale + _ranks(words, distinct)
        theirs = alike * scale + _ranks(_words(paths, start, rows), distinct)
        first = np.searchsorted(ours, theirs, "left")
        found[rows] = first
        same = np.flatnonzero(first != np.searchsorted(ours, theirs, "right"))
        rows, alike = rows[same], first[same]
        ours_alike = np.searchsorted(ours, ours, "left")
        start += WORD_BYTES
    # The remaining paths equal a wanted path, except for trailing zeros.
    same = np.zeros(len(wanted), np.int64)
    for row, path in zip(
        rows.tolist(), paths.take(arrow_array(rows)).cast(pa.binary()).to_pylist(), strict=True
    ):
        found[row] = bisect_right(wanted, path)
        same[bisect_left(wanted, path) : found[row]] += 1
    return np.cumsum(np.bincount(found, minlength=len(wanted) + 1))[: len(wanted)], same


def _ranks(words: Words, distinct: Words) -> Numbers:
    """Return the rank of each word; ranks of words in `distinct` are odd."""
    at = np.searchsorted(distinct, words)
    found: Numbers = 2 * at + (distinct[np.minimum(at, len(distinct) - 1)] == words)
    return found


def _shared(least: bytes, greatest: bytes) -> int:
    """Return the length of the common prefix of all paths: that of the first and the last one."""
    pairs = enumerate(zip(least, greatest, strict=False))
    return next((at for at, (one, other) in pairs if one != other), len(least))


def _words(paths: pa.Array, start: int, rows: Numbers) -> Words:
    """Return eight bytes of each path, from an offset, as numbers that sort like the bytes.

    Missing bytes are zeros.
    """
    texts = text_bytes(paths)
    begins, ends = texts.starts[rows] + start, texts.ends[rows]
    words = words_of(texts.data, ">u8")
    # Near the end of the buffer, the bytes before the offset are shifted out.
    last = len(words) - 1
    found: Words = words[np.minimum(begins, last)].astype(np.uint64)
    found <<= (8 * np.clip(begins - last, 0, WORD_BYTES - 1)).astype(np.uint64)
    found &= _FIRST[np.clip(ends - begins, 0, WORD_BYTES)]
    return found


ID_TAG = "txlog.fragmentId"
ID_APP = "txlog.fragments"  # The `txn` that records the highest id that was ever assigned.
PROVISIONAL = 1 << 30  # Durable ids are below this, provisional ids start here.

# Up to this number of files, Python is faster than the import of `pyarrow.compute`.
_FEW: Threshold = 64
_ID_TEXT = r"^(0|[1-9][0-9]{0,9})$"
_IS_ID = re.compile(_ID_TEXT)


def valid_id(text: str | None) -> bool:
    """Return whether a tag's text is a durable fragment id."""
    return bool(text and _IS_ID.fullmatch(text) and int(text) < PROVISIONAL)


def tag_texts(files: pa.Table, tag: str) -> pa.Array:
    """Return the values of a tag of `FILE_ROWS`, null for files without it."""
    tags = flat(files["tags"])
    if tags.null_count == len(tags):  # The usual case, and this is called often.
        return pa.nulls(len(tags), pa.string())
    return pc.map_lookup(tags, arrow_scalar(tag), "last")


def tagged_ids(files: pa.Table) -> pa.Array:
    """Return the valid fragment ids in the tags of `FILE_ROWS`, null for files without one."""
    texts = tag_texts(files, ID_TAG)
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), pa.int64())
    valid = pc.fill_null(pc.match_substring_regex(texts, _ID_TEXT), False)
    ids = pc.cast(nulled(texts, pc.invert(valid)), pa.int64())
    return pc.if_else(pc.less(ids, PROVISIONAL), ids, None)


def shared_ids(ids: pa.Array) -> pa.Array:
    """Return the ids that occur more than once."""
    counts = pc.value_counts(pc.drop_null(ids))
    return pc.filter(counts.field("values"), pc.greater(counts.field("counts"), 1))


def fragment_ids(files: pa.Table) -> pa.Array:
    """Return the durable or provisional id of each live primary file.

    If two files claim an id, neither gets it. Provisional ids follow the byte order of paths, so
    all readers of a version assign the same ids.
    """
    return ids_of(tagged_ids(files), files["path"])


def ids_of(tagged: pa.Array, paths: pa.ChunkedArray) -> pa.Array:
    """Return the ids that `fragment_ids` returns, given `tagged_ids` and logged paths of files."""
    if tagged.null_count == len(tagged):
        return _provisional(paths)
    durable = pc.and_(pc.is_valid(tagged), pc.invert(pc.is_in(tagged, shared_ids(tagged))))
    if pc.all(durable).as_py() or not len(tagged):
        return tagged
    rows = pc.indices_nonzero(pc.invert(durable))
    return pc.replace_with_mask(tagged, pc.invert(durable), _provisional(paths.take(rows)))


def _provisional(paths: pa.ChunkedArray) -> pa.Array:
    whole = flat(paths.cast(pa.binary()))
    places = pc.rank(whole, sort_keys="ascending", tiebreaker="first").cast(pa.int64())
    return pc.add(places, PROVISIONAL - 1)


Places: TypeAlias = "tuple[Numbers, Numbers]"
"""For each wanted path in byte order: how many paths are below it, and how many are equal."""


def count_places(paths: pa.Array, batches: Iterable[pa.Table]) -> Places | None:
    """Count the places of some paths among all live files, or a part of them.

    The counts of parts add up to those of all files. None if a file may have a durable id.

    Parameters
    ----------
    paths
        The logged paths of the files.
    batches
        Live files as `FILE_ROWS` with at least the columns `path` and `tags`.
    """
    whole = paths.cast(pa.binary())
    wanted = whole.take(pc.sort_indices(whole)).to_pylist()
    below, alike = np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.int64)
    for batch in batches:
        if tagged_ids(batch).null_count < batch.num_rows:
            return None
        for part in batch["path"].chunks:
            lower, same = places_of(wanted, part)
            below += lower
            alike += same
    return below, alike


def ids_at(paths: pa.Array, counts: Sequence[Places | None]) -> pa.Array | None:
    """Return the provisional ids of some live files, or None if `fragment_ids` is needed.

    It is needed if a file may have a durable id, or if two files have the same path.

    Parameters
    ----------
    counts
        The results of `count_places` for these paths and all parts of the live files.
    """
    below, alike = np.zeros(len(paths), np.int64), np.zeros(len(paths), np.int64)
    for part in counts:
        if part is None:
            return None
        below += part[0]
        alike += part[1]
    if (alike != 1).any():
        return None
    found = np.empty(len(paths), np.int64)
    found[numpy_array(pc.sort_indices(paths.cast(pa.binary())))] = below + PROVISIONAL
    return arrow_array(found)


def highest_id(files: pa.Table, recorded: int | None) -> int:
    """Return the highest id ever assigned: the recorded one or that of a live file; else -1."""
    if files.num_rows > _FEW:
        highest = pc.max(tagged_ids(files)).as_py()
    else:
        texts = [dict(tags or ()).get(ID_TAG) for tags in flat(files["tags"]).to_pylist()]
        highest = max((int(text) for text in texts if text and valid_id(text)), default=None)
    return max(-1 if recorded is None else recorded, -1 if highest is None else highest)


ROW_TRACKING_DOMAIN = "delta.rowTracking"
PRESERVED_TAG = "delta.rowTracking.preserved"  # A field of `commitInfo`.

_MARK = "rowIdHighWaterMark"


PENDING_ROW_IDS = -(1 << 62)
"""The first id of rows that have no id yet: a transaction added them, and is not committed.

The commit gives them ids. Until then their ids are below 0, so that no file can repeat them as ids
that a commit has given (`settled_ids`).
"""
PENDING_VERSION = -1  # The version of these rows.
GREATEST_ROW_ID = (1 << 63) - 1


def settled_ids(ids: pa.Array) -> pa.Array:
    """Return the ids, or versions, that rows keep in another file (int64); null if pending.

    A row with null gets its id from the commit, like a new row.
    """
    pending = pc.less(ids, arrow_scalar(0, pa.int64()))
    return pc.if_else(pending, arrow_scalar(None, pa.int64()), ids)


def gives_row_ids(protocol: Protocol, properties: Properties) -> bool:
    """Return whether committed files get row ids: the feature is supported and not suspended."""
    suspended = bool(properties.get("delta.rowTrackingSuspended"))
    return supports(protocol, "rowTracking") and not suspended


def row_id_mark(domain: DomainMetadata | None, *, path: str) -> int | None:
    """Return the recorded high water mark of row ids; None if there is no record.

    Raises
    ------
    LogCorruptError
        The record cannot be read.
    """
    if domain is None or domain.removed:
        return None
    try:
        mark: Any = orjson.loads(domain.configuration)[_MARK]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        mark = None
    if type(mark) is not int:
        raise LogCorruptError(
            path=path,
            field=f"domainMetadata.{ROW_TRACKING_DOMAIN}",
            reason=f"{domain.configuration!r} contains no {_MARK}, so new rows cannot get ids",
            remedy="Nothing was committed. The writer of this log made an error: call "
            'alter.drop_feature("rowTracking"), after which rows have no ids',
        )
    return mark


def mark_domain(mark: int) -> DomainMetadata:
    """Return the action that records the high water mark of row ids."""
    return DomainMetadata(
        domain=ROW_TRACKING_DOMAIN, configuration=orjson.dumps({_MARK: mark}).decode()
    )
