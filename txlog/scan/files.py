"""The data files of a version, as fragments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from txlog.actions.columns import flat
from txlog.arrow import arrow_array, pc
from txlog.checkpoint.file_rows import Wanted
from txlog.fragments.fragment import FRAGMENT_COLUMNS, Fragment, fragments_of
from txlog.fragments.ids import fragment_ids
from txlog.fragments.rows import FEATURE, fragment_rows, single_files
from txlog.fragments.sequence import FragmentSequence
from txlog.snapshot.live_files import fold_files, has_large_checkpoint
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.files import num_records, physical_rows
from txlog.store.base import Store


def files_at(rows: pa.Table, paths: Iterable[str]) -> pa.Table:
    """Return the live `FILE_ROWS` of paths; a path is live once, whatever its vector."""
    return rows.filter(pc.is_in(rows["path"], value_set=arrow_array(list(paths), pa.string())))


def live_sequence(snapshot: Snapshot, live: pa.Table) -> FragmentSequence:
    """Return a version's live `FILE_ROWS` as a sequence of fragments, ordered by id.

    Errors as for `fragment_rows` and `physical_rows`.
    """
    rows = fragment_rows(live, listed=snapshot.supports(FEATURE))
    return FragmentSequence(rows, physical_rows(rows))


def read_sequence(store: Store, snapshot: Snapshot) -> FragmentSequence | None:
    """Return a version's fragments, or None if it takes all that the log says of its files.

    Of a large checkpoint only the columns of the log are read that a `Fragment` has.
    """
    if snapshot.supports(FEATURE) or not has_large_checkpoint(snapshot):
        return None
    wanted = Wanted((*FRAGMENT_COLUMNS, "stats"), bounds_of=())
    files = fold_files(store, snapshot, wanted, _counted_files)
    rows = single_files(files.drop_columns(["physical_rows"]), fragment_ids(files))
    return FragmentSequence(rows, flat(files["physical_rows"]))


def _counted_files(batches: Iterable[tuple[Any, pa.Table]]) -> pa.Table:
    """Return the columns of live files that fragments need, with their row counts. Pure."""
    names = list(dict.fromkeys([*FRAGMENT_COLUMNS, "dv_id", "tags"]))
    return pa.concat_tables(
        [
            rows.select(names).append_column("physical_rows", num_records(rows))
            for _, rows in batches
        ],
        promote_options="permissive",
    )


def live_fragments(snapshot: Snapshot, live: pa.Table) -> list[Fragment]:
    """Return a version's live `FILE_ROWS` as fragments, ordered by id.

    Errors as for `fragment_rows` and `physical_rows`.
    """
    rows = fragment_rows(live, listed=snapshot.supports(FEATURE))
    return fragments_of(rows, physical_rows(rows))


def as_fragments(rows: pa.Table) -> list[Fragment]:
    """Return `FILE_ROWS`, which may be removes too, as fragments, in their order.

    Their ids are their places: nothing but the files is meant.
    """
    if rows.num_rows == 0:
        return []
    places = pa.arange(0, rows.num_rows)
    return fragments_of(single_files(rows, places), num_records(rows))
