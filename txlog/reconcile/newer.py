"""Which files of a checkpoint the commits after it say something newer of. Pure.

Those are few among many, and most of the many are told apart from them by how their paths end.
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
from txlog.reconcile.keys import file_keys

_ODD_ENDS = np.frombuffer(b"/.", np.uint8)
_MOST_WORDS = 64  # More of them take longer to look for than all paths take to compare.

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Newer:
    """The logical files that some rows are about."""

    keys: pa.Array
    words: NDArray[np.uint64] | None  # Eight bytes of each path. None: they are no help.
    back: int  # So many bytes are between those and the end of the path.

    def __len__(self) -> int:
        return len(self.keys)


def newer_of(rows: pa.Table) -> Newer:
    """Return the logical files of `FILE_ROWS`, of which the columns `path` and `dv_id` count."""
    keys = flat(file_keys(rows))
    if rows.num_rows > _MOST_WORDS:
        return Newer(keys, None, 0)
    paths = canonical_keys(rows["path"]).to_pylist()
    return Newer(keys, *_words({path.rpartition("/")[2].encode() for path in paths}))


def _words(names: Collection[bytes]) -> tuple[NDArray[np.uint64] | None, int]:
    """Return eight bytes of each name, from where the names differ backwards, and how far that is.

    Of names that are too short, none.
    """
    backwards = [name[::-1] for name in names]
    shortest = min(map(len, names), default=0)
    if shortest < WORD_BYTES:
        return None, 0
    least, greatest = min(backwards), max(backwards)
    alike = next((at for at in range(shortest) if least[at] != greatest[at]), shortest)
    back = min(alike, shortest - WORD_BYTES)
    found = {name[len(name) - back - WORD_BYTES : len(name) - back] for name in names}
    return np.array([int.from_bytes(word, "little") for word in found], np.uint64), back


def untouched(rows: pa.Table, newer: Newer) -> pa.Table:
    """Return those of `FILE_ROWS` whose logical files are not among the newer ones."""
    if not len(newer) or not rows.num_rows:
        return rows
    at = np.flatnonzero(_maybe_touched(rows["path"], newer))
    if not len(at):
        return rows
    some = rows.select(["path", "dv_id"]).take(arrow_array(at))
    touched = pc.is_in(flat(file_keys(some)), value_set=newer.keys)
    if not pc.any(touched).as_py():
        return rows
    left = np.ones(rows.num_rows, np.bool_)
    left[at[numpy_array(touched)]] = False
    return rows.filter(arrow_array(left))


def _maybe_touched(paths: pa.ChunkedArray, newer: Newer) -> Mask:
    found = [_maybe_one_of(part, newer) for part in paths.chunks]
    return found[0] if len(found) == 1 else np.concatenate([np.zeros(0, np.bool_), *found])


def _maybe_one_of(paths: pa.Array, newer: Newer) -> Mask:
    """Return which paths may be those of newer files, in whatever way they are spelled.

    Without a percent sign, all spellings of a path have its last name at their end, but for those
    that end with a step of no meaning.
    """
    texts = text_bytes(paths)
    everything = np.ones(len(paths), np.bool_)
    if newer.words is None or b"%" in texts.used.tobytes():
        return everything
    words = words_of(texts.held)
    at = texts.ends - newer.back - WORD_BYTES
    inside = at >= texts.starts
    found: Mask = np.isin(words[np.maximum(at, 0)], newer.words) & inside
    ends = texts.held[np.maximum(texts.ends - 1, 0)]
    found |= np.isin(ends, _ODD_ENDS) & (texts.ends > texts.starts)
    return found
