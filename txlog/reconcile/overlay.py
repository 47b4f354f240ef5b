"""Laying newer commits over a checkpoint, whose files are reconciled already. Pure.

Few of a checkpoint's files are touched by newer commits. Eight bytes near the end of each path show
for most of the others that they are not.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.actions.columns import flat
from txlog.actions.text_bytes import WORD_BYTES, text_bytes, words_of
from txlog.arrow import arrow_array, numpy_array, pc
from txlog.log.paths import canonical_keys
from txlog.reconcile.distinct import file_keys
from txlog.reconcile.files import FileState, newest, state_of

_ODD_ENDS = np.frombuffer(b"/.", np.uint8)
_MOST_WORDS = 64  # More of them take longer to look for than all paths take to compare.

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Newer:
    """The logical files that newer commits touch."""

    keys: pa.Array
    words: NDArray[np.uint64] | None  # Eight bytes of each path. None: they are no help.
    back: int  # So many bytes are between those and the end of the path.

    def __len__(self) -> int:
        return len(self.keys)


def newer_of(rows: pa.Table) -> Newer:
    """Return the logical files of `FILE_ROWS`; only the columns `path` and `dv_id` are needed."""
    keys = flat(file_keys(rows))
    if rows.num_rows > _MOST_WORDS:
        return Newer(keys, None, 0)
    paths = canonical_keys(rows["path"]).to_pylist()
    return Newer(keys, *_words({path.rpartition("/")[2].encode() for path in paths}))


def _words(names: Collection[bytes]) -> tuple[NDArray[np.uint64] | None, int]:
    """Return eight bytes of each name, where the names differ, and their distance from the end.

    None if a name is too short.
    """
    backwards = [name[::-1] for name in names]
    shortest = min(map(len, names), default=0)
    if shortest < WORD_BYTES:
        return None, 0
    least, greatest = min(backwards), max(backwards)
    alike = next((place for place in range(shortest) if least[place] != greatest[place]), shortest)
    back = min(alike, shortest - WORD_BYTES)
    chosen = {name[len(name) - back - WORD_BYTES : len(name) - back] for name in names}
    return np.array([int.from_bytes(word, "little") for word in chosen], np.uint64), back


def untouched(rows: pa.Table, newer: Newer) -> pa.Table:
    """Return the rows of `FILE_ROWS` whose logical files no newer commit touches."""
    if not len(newer) or not rows.num_rows:
        return rows
    maybe = np.flatnonzero(_maybe_touched(rows["path"], newer))
    if not len(maybe):
        return rows
    some = rows.select(["path", "dv_id"]).take(arrow_array(maybe))
    touched = pc.is_in(flat(file_keys(some)), value_set=newer.keys)
    if not pc.any(touched).as_py():
        return rows
    left = np.ones(rows.num_rows, np.bool_)
    left[maybe[numpy_array(touched)]] = False
    return rows.filter(arrow_array(left))


def _maybe_touched(paths: pa.ChunkedArray, newer: Newer) -> Mask:
    masks = [_maybe_one_of(part, newer) for part in paths.chunks]
    return masks[0] if len(masks) == 1 else np.concatenate([np.zeros(0, np.bool_), *masks])


def _maybe_one_of(paths: pa.Array, newer: Newer) -> Mask:
    """Return which paths may be those of newer files, whichever way they are spelled.

    Without a percent sign, every spelling of a path ends with its last name, except those that end
    with `/` or `/.`.
    """
    texts = text_bytes(paths)
    everything = np.ones(len(paths), np.bool_)
    if newer.words is None or b"%" in texts.used.tobytes():
        return everything
    words = words_of(texts.held)
    places = texts.ends - newer.back - WORD_BYTES
    inside = places >= texts.starts
    mask: Mask = np.isin(words[np.maximum(places, 0)], newer.words) & inside
    ends = texts.held[np.maximum(texts.ends - 1, 0)]
    mask |= np.isin(ends, _ODD_ENDS) & (texts.ends > texts.starts)
    return mask


def overlay(base: pa.Table, tail: pa.Table) -> FileState:
    """Return the state of an already reconciled base under the newer rows of `tail`.

    The same as `reconcile_files` over both, at the cost of a look-up instead of a grouping:
    a checkpoint has each logical file once, and its versions are all below those of the tail.
    """
    tail = newest(tail)
    if tail.num_rows == 0:
        return state_of(base)
    rows = [untouched(base, newer_of(tail)), tail]
    return state_of(pa.concat_tables(rows, promote_options="default"))


def left_of(base: pa.Table, newer: Newer) -> FileState:
    """Return the part of a base, or of some of its rows, that stays under newer commits."""
    return state_of(untouched(base, newer))
