"""Fragments that a caller has chosen: their shares for several readers, and their missing files."""

from __future__ import annotations

from collections.abc import Sequence

from txlog.base.thresholds import Threshold
from txlog.fragments.fragment import Fragment
from txlog.log.paths import decode_path
from txlog.scan.data_file import RowRange
from txlog.scan.scan import packed, row_ranges
from txlog.store.base import Store, is_far, is_there, map_many
from txlog.store.open import locate

# From this number of remote files on, the table's folder is listed instead.
_LISTED_FROM: Threshold = 256

Piece = tuple[Fragment, RowRange | None]
"""A fragment, and the positions at which row groups begin that are read; None: all."""


def shares(fragments: Sequence[Fragment], most_bytes: int) -> list[tuple[Piece, ...]]:
    """Divide fragments into shares of about so many bytes of files, in their order. Pure.

    A larger fragment becomes several shares, and small ones share one. `read_fragment` reads each
    piece of a share; all pieces together have each row once.
    """
    pieces = [(one, rows) for one in fragments for rows in row_ranges(one, most_bytes)]
    weights = [min(most_bytes, sum(file.size for file in one.files)) for one, _ in pieces]
    return [tuple(pieces[at] for at in places) for places in packed(weights, most_bytes)]


def missing_files(store: Store, fragments: Sequence[Fragment]) -> list[str]:
    """Return the paths, as logged, of the data files of fragments that do not exist.

    Many files of a remote store are looked up by one listing of the table's folder.
    """
    paths = [file.path for fragment in fragments for file in fragment.files]
    places = [(path, *locate(store, decode_path(path))) for path in paths]
    listed: set[str] = set()
    if is_far(store) and len(places) >= _LISTED_FROM:
        listed = {info.name for info in store.list_tree("")}
    asked = [place for place in places if place[1] is not store or place[2] not in listed]
    there = map_many(store, lambda place: is_there(place[1], place[2]), asked)
    return [path for (path, _, _), found in zip(asked, there, strict=True) if not found]
