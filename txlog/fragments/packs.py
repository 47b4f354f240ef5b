"""Packs: the files that hold the large values of blob columns, and the tag that names them. Pure.

Rules: spec/blobs.md. The last step of a pack's path is its name, which no other pack has. Structs
in data files name packs by it. The tag of a data file says where its packs are.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping
from struct import Struct
from typing import NamedTuple

import pyarrow as pa

from txlog.actions.file import Add, Cdc
from txlog.base.arrow import pc
from txlog.fragments.ids import tag_texts

PACKS_FOLDER = "_blobs"  # Relative to the table's root.
PACKS_TAG = "txlog.blobs"
_ENDING = ".blobs"
_MAGIC = b"TXB1"
_HEAD = Struct("<4sIQ")
HEAD_BYTES = _HEAD.size
"""The bytes before each value in a pack."""


class Head(NamedTuple):
    """What a pack says of one of its values."""

    crc: int
    size: int  # Bytes.


def head_of(value: Collection[int] | memoryview | pa.Buffer) -> bytes:
    """Return the bytes that stand before a value in a pack, with its checksum and its length."""
    view = memoryview(value)  # type: ignore[arg-type]  # Arrow's buffers are buffers.
    return _HEAD.pack(_MAGIC, zlib.crc32(view), view.nbytes)


def parse_head(data: bytes) -> Head | None:
    """Return the checksum and the length in such bytes; None if these are other bytes."""
    if len(data) != HEAD_BYTES:
        return None
    magic, crc, size = _HEAD.unpack(data)
    return Head(crc, size) if magic == _MAGIC else None


def pack_of(path: str) -> str:
    """Return the path of the pack that is written beside a data file; both are logged paths."""
    return f"{PACKS_FOLDER}/{name_of(path).removesuffix('.parquet')}{_ENDING}"


def name_of(place: str) -> str:
    """Return the last step of a path."""
    return place.rpartition("/")[2]


def is_pack(path: str) -> bool:
    """Return whether a path below a table has a name that only packs get."""
    return path.startswith(f"{PACKS_FOLDER}/") and path.endswith(_ENDING)


def packs_text(places: Iterable[str]) -> str:
    """Return the text of the tag. Logged paths have no spaces: those are encoded."""
    return " ".join(places)


def packs_in(tags: Mapping[str, str | None] | None) -> list[str]:
    """Return the logged paths of the packs that the tags of a file name."""
    return ((tags or {}).get(PACKS_TAG) or "").split()


def own_packs(adds: Iterable[Add | Cdc]) -> list[str]:
    """Return the packs that were written beside files, not those that they took over."""
    return [pack_of(add.path) for add in adds if pack_of(add.path) in packs_in(add.tags)]


def carried_packs(add: Add) -> list[str]:
    """Return the packs of a file that were not written beside it."""
    return [place for place in packs_in(add.tags) if place != pack_of(add.path)]


def packs_of(rows: pa.Table) -> pa.Array:
    """Return the logged paths of all packs that `FILE_ROWS` name, each once."""
    texts = tag_texts(rows, PACKS_TAG)
    if texts.null_count == len(texts):
        return pa.nulls(0, pa.string())
    places = pc.list_flatten(pc.split_pattern(pc.unique(texts.drop_null()), " "))
    return pc.unique(places.filter(pc.not_equal(places, "")))


def named(places: pa.Array, names: pa.Array) -> pa.Array:
    """Return the places of the packs with some names."""
    own = pc.replace_substring_regex(places, r"^.*/", "")
    return places.filter(pc.is_in(own, value_set=names))
