"""Read rows of many fragments at known positions; their pages are decoded together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64

from txlog.base.arrow import arrow_array, empty_table
from txlog.base.threads import BoundedCache
from txlog.base.thresholds import Threshold
from txlog.fragments.fragment import Fragment
from txlog.parquet.thrift import ThriftError
from txlog.scan.deletions import less, load_deletions
from txlog.scan.pages import MANY_ROWS, Picked, decode_rows
from txlog.scan.read import FragmentReader, in_table, require_in_place
from txlog.scan.read_plan import ReadPlan, chosen_columns
from txlog.store.base import Store, map_many, threads_for

if TYPE_CHECKING:
    from txlog.scan.data_file import OpenFile

Numbers = NDArray[np.int64]
Part = tuple[Fragment, Numbers]
"""A fragment, and ascending positions of its rows."""

_TASK_BYTES: Threshold = 8 << 20  # The bytes of pages that one thread decodes at a time.
_VECTOR_BYTES: Threshold = 64 << 20
_LEAST_BYTES = 512  # The size of a vector in a cache.


class VectorCache:
    """A cache of decoded deletion vectors by their location."""

    def __init__(self, max_bytes: int = _VECTOR_BYTES) -> None:
        self._vectors: BoundedCache[tuple[object, ...], tuple[BitMap64 | None]] = BoundedCache(
            max_bytes
        )

    def load(self, store: Store, fragment: Fragment) -> BitMap64 | None:
        """Return the deleted positions of a fragment; errors as for `load_deletions`."""
        if fragment.deletion is None:
            return None
        one = fragment.deletion.descriptor
        key = (
            store.root, fragment.path, one.storage_type, one.path_or_inline_dv, one.offset,
            one.cardinality, fragment.physical_rows,
        )  # fmt: skip
        kept = self._vectors.get(key)
        if kept is None:
            kept = (load_deletions(store, fragment),)
            self._vectors.put(key, kept, 2 * one.size_in_bytes + _LEAST_BYTES)
        return kept[0]


def without_deleted(store: Store, vectors: VectorCache, parts: Sequence[Part]) -> list[Part]:
    """Return the positions that are not deleted; fragments without any are omitted."""
    deleted = map_many(store, partial(vectors.load, store), [fragment for fragment, _ in parts])
    alive = [
        (fragment, less(positions, gone))
        for (fragment, positions), gone in zip(parts, deleted, strict=True)
    ]
    return [part for part in alive if len(part[1])]


@dataclass(frozen=True)
class _PickedFile:
    """The only file of a fragment to read, and its pages."""

    plan: ReadPlan
    file: OpenFile
    picked: Picked
    part: Part


def rows_at(store: Store, plan: ReadPlan, parts: Sequence[Part]) -> tuple[pa.Table, list[int]]:
    """Return rows of fragments at positions, deleted or not, and the number of rows of each.

    Positions that a fragment does not have are skipped. If files have offset indexes, only the
    pages with these rows are read, for files of the same layout together.

    Returns
    -------
    tuple
        The plan's columns, in the order of the parts; and the number of rows of each part.
    """
    many = sum([len(positions) for _, positions in parts]) >= MANY_ROWS
    opened = list(map_many(store, partial(_picked, store, plan, many), parts))
    tasks: dict[object, list[list[int]]] = {}
    sizes: dict[object, int] = {}
    for place, picked in enumerate(opened):
        key: object = place
        size = 0
        if picked is not None:
            key, size = (picked.file.layout, *picked.picked.few), picked.picked.size
        groups = tasks.setdefault(key, [[]])
        sizes[key] = sizes.get(key, 0) + size
        if groups[-1] and sizes[key] > _TASK_BYTES:
            groups.append([])
            sizes[key] = size
        groups[-1].append(place)
    work = [group for groups in tasks.values() for group in groups]

    def read(places: list[int]) -> list[pa.RecordBatch]:
        together = [picked for place in places if (picked := opened[place]) is not None]
        if len(together) == len(places):
            try:
                return [_decoded(together)]
            except (ThriftError, pa.ArrowException, OSError):
                pass  # Reading the files one by one raises an error that names the file.
        return [_alone(store, plan, parts[place]) for place in places]

    found = list(map(read, work) if len(work) == 1 else threads_for(store).map(read, work))
    require_in_place(store, plan, (fragment for fragment, _ in parts))
    counts = [len(positions) for _, positions in parts]
    for places, batches in zip(work, found, strict=True):
        if len(batches) == len(places):  # All rows of the files that were read together exist.
            for place, batch in zip(places, batches, strict=True):
                counts[place] = batch.num_rows
    order = [place for places in work for place in places]
    rows = pa.Table.from_batches(
        [chosen_columns(plan, batch) for batches in found for batch in batches], schema=plan.schema
    )
    if order != list(range(len(order))):
        rows = rows.take(arrow_array(_places(order, counts)))
    return (rows if parts else empty_table(plan.schema)), counts


def _places(order: Sequence[int], counts: Sequence[int]) -> Numbers:
    """Return the places of the rows of each part if the parts are in another order."""
    theirs = np.array([counts[place] for place in order], np.int64)
    begins = np.empty(len(order), np.int64)
    begins[list(order)] = np.cumsum(theirs) - theirs
    sizes = np.array(counts, np.int64)
    begins = begins - (np.cumsum(sizes) - sizes)
    found: Numbers = np.arange(sizes.sum()) + np.repeat(begins, sizes)
    return found


def _picked(store: Store, plan: ReadPlan, many: bool, part: Part) -> _PickedFile | None:
    """Return the pages of a fragment; None if it must be read separately."""
    fragment, positions = part
    file = FragmentReader(store, plan, fragment).paged_file()
    picked = None if file is None else file.picked(positions, many)
    return None if file is None or picked is None else _PickedFile(plan, file, picked, part)


def _decoded(together: Sequence[_PickedFile]) -> pa.RecordBatch:
    names = together[0].file.stored
    rows = decode_rows([(one.file.paged, one.picked) for one in together], names)
    parts = [(one.part[0], arrow_array(one.part[1])) for one in together]
    plan = together[0].plan
    return in_table(plan, plan.needed, [together[0].file], [rows], parts)


def _alone(store: Store, plan: ReadPlan, part: Part) -> pa.RecordBatch:
    fragment, positions = part
    # For a single file, reading its pages was not better, or failed.
    by_pages = len(fragment.files) > 1
    reader = FragmentReader(store, plan, fragment)
    return reader.rows_at(plan.needed, positions, by_pages=by_pages)
