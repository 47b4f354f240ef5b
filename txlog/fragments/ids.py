"""Fragment ids: in tags if txlog gave them, else by the order of paths. Pure.

Rules: spec/fragments.md, FRG-1 to FRG-9.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

ID_TAG = "txlog.fragmentId"
ID_APP = "txlog.fragments"  # The `txn` that remembers the highest id ever given.
PROVISIONAL = 1 << 30  # Durable ids are below, provisional ones from here on.

_ID_TEXT = r"^(0|[1-9][0-9]{0,9})$"


def valid_id(text: str | None) -> bool:
    """Return whether a tag's text is a durable fragment id."""
    return bool(text and re.fullmatch(_ID_TEXT, text) and int(text) < PROVISIONAL)


def tag_texts(files: pa.Table, tag: str) -> pa.Array:
    """Return a tag of `FILE_ROWS`; null where there is none."""
    return pc.map_lookup(files["tags"].combine_chunks(), pa.scalar(tag), "last")


def tagged_ids(files: pa.Table) -> pa.Array:
    """Return the valid fragment ids in the tags of `FILE_ROWS`; null where there is none."""
    texts = tag_texts(files, ID_TAG)
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
    durable = pc.and_(pc.is_valid(ids), pc.invert(pc.is_in(ids, shared_ids(ids))))
    if pc.all(durable).as_py() or files.num_rows == 0:
        return ids
    rows = pc.indices_nonzero(pc.invert(durable))
    paths = files["path"].take(rows).cast(pa.binary()).combine_chunks()
    places = pc.rank(paths, sort_keys="ascending", tiebreaker="first").cast(pa.int64())
    provisional = pc.add(places, PROVISIONAL - 1)
    return pc.replace_with_mask(ids, pc.invert(durable), provisional)


def highest_id(files: pa.Table, recorded: int | None) -> int:
    """Return the highest id ever given: the recorded one, or a live file's; -1 for none."""
    highest = pc.max(tagged_ids(files)).as_py() if files.num_rows else None
    return max(-1 if recorded is None else recorded, -1 if highest is None else highest)
