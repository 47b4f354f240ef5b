"""Fragment ids: in tags if txlog gave them, else by the order of paths. Pure.

Rules: spec/fragments.md, FRG-1 to FRG-9.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from txlog.actions.columns import flat
from txlog.arrow import arrow_array, arrow_scalar, numpy_array, pc
from txlog.fragments.places import places_of

ID_TAG = "txlog.fragmentId"
ID_APP = "txlog.fragments"  # The `txn` that remembers the highest id ever given.
PROVISIONAL = 1 << 30  # Durable ids are below, provisional ones from here on.

_ID_TEXT = r"^(0|[1-9][0-9]{0,9})$"
_IS_ID = re.compile(_ID_TEXT).fullmatch


def valid_id(text: str | None) -> bool:
    """Return whether a tag's text is a durable fragment id."""
    return bool(text and _IS_ID(text) and int(text) < PROVISIONAL)


def tag_texts(files: pa.Table, tag: str) -> pa.Array:
    """Return a tag of `FILE_ROWS`; null where there is none."""
    tags = flat(files["tags"])
    if tags.null_count == len(tags):  # Mostly, and it is looked at often.
        return pa.nulls(len(tags), pa.string())
    return pc.map_lookup(tags, arrow_scalar(tag), "last")


def tagged_ids(files: pa.Table) -> pa.Array:
    """Return the valid fragment ids in the tags of `FILE_ROWS`; null where there is none."""
    texts = tag_texts(files, ID_TAG)
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), pa.int64())
    valid = pc.fill_null(pc.match_substring_regex(texts, _ID_TEXT), False)
    ids = pc.if_else(valid, texts, None).cast(pa.int64())
    return pc.if_else(pc.less(ids, PROVISIONAL), ids, None)


def shared_ids(ids: pa.Array) -> pa.Array:
    """Return the ids that are there more than once."""
    counts = ids.drop_null().value_counts()
    return counts.field("values").filter(pc.greater(counts.field("counts"), 1))


def fragment_ids(files: pa.Table) -> pa.Array:
    """Return the id of each live file that begins a fragment, durable or provisional.

    An id that two files claim belongs to neither. Provisional ids go by the byte order of paths,
    so every reader of a version gives the same ones.
    """
    ids = tagged_ids(files)
    if ids.null_count == len(ids):
        return _provisional(files["path"])
    durable = pc.and_(pc.is_valid(ids), pc.invert(pc.is_in(ids, shared_ids(ids))))
    if pc.all(durable).as_py() or files.num_rows == 0:
        return ids
    rows = pc.indices_nonzero(pc.invert(durable))
    return pc.replace_with_mask(ids, pc.invert(durable), _provisional(files["path"].take(rows)))


def _provisional(paths: pa.ChunkedArray) -> pa.Array:
    """Return the ids that files have by the order of their paths."""
    whole = flat(paths.cast(pa.binary()))
    places = pc.rank(whole, sort_keys="ascending", tiebreaker="first").cast(pa.int64())
    return pc.add(places, PROVISIONAL - 1)


def provisional_ids(paths: pa.Array, batches: Iterable[pa.Table]) -> pa.Array | None:
    """Return the ids that `fragment_ids` gives some live files, or None if it takes all of them.

    It does where a file may have a durable id, or two files one path.

    Parameters
    ----------
    paths
        Those of the files, as logged.
    batches
        All live files, as `FILE_ROWS`, of which the columns `path` and `tags` are looked at.
    """
    order = pc.sort_indices(paths.cast(pa.binary()))
    wanted = paths.cast(pa.binary()).take(order).to_pylist()
    below, alike = np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.int64)
    for batch in batches:
        if tagged_ids(batch).null_count < batch.num_rows:
            return None
        for part in batch["path"].chunks:
            lower, same = places_of(wanted, part)
            below += lower
            alike += same
    if (alike != 1).any():
        return None
    found = np.empty(len(wanted), np.int64)
    found[numpy_array(order)] = below + PROVISIONAL
    return arrow_array(found)


def highest_id(files: pa.Table, recorded: int | None) -> int:
    """Return the highest id ever given: the recorded one, or a live file's; -1 for none."""
    highest = pc.max(tagged_ids(files)).as_py() if files.num_rows else None
    return max(-1 if recorded is None else recorded, -1 if highest is None else highest)
