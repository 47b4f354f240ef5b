"""The data files of a version, as fragments. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from txlog.arrow import arrow_array, pc
from txlog.fragments.fragment import Fragment, fragments_of
from txlog.fragments.rows import FEATURE, fragment_rows, single_files
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.files import num_records, physical_rows


def files_at(rows: pa.Table, paths: Iterable[str]) -> pa.Table:
    """Return the live `FILE_ROWS` of paths; a path is live once, whatever its vector."""
    return rows.filter(pc.is_in(rows["path"], value_set=arrow_array(list(paths), pa.string())))


def live_fragments(snapshot: Snapshot, live: pa.Table, only: int | None = None) -> list[Fragment]:
    """Return a version's live `FILE_ROWS` as fragments, ordered by id; or the one of an id.

    Errors as for `fragment_rows` and `physical_rows`.
    """
    rows = fragment_rows(live, listed=snapshot.supports(FEATURE))
    if only is not None:
        rows = rows.filter(pc.equal(rows.ids, only))
    return fragments_of(rows, physical_rows(rows))


def as_fragments(rows: pa.Table) -> list[Fragment]:
    """Return `FILE_ROWS`, which may be removes too, as fragments, in their order.

    Their ids are their places: nothing but the files is meant.
    """
    if rows.num_rows == 0:
        return []
    places = pa.arange(0, rows.num_rows)
    return fragments_of(single_files(rows, places), num_records(rows))
