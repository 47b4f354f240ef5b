"""Adding table features to a table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from txlog.actions import Add
from txlog.commit import Intent, run
from txlog.fragments import FEATURE, ID_TAG, Fragment
from txlog.protocol import features_of, with_features
from txlog.scan import FragmentReader, ScanPlan, plan_scan
from txlog.snapshot import Snapshot, load_files
from txlog.store import Store
from txlog.writing.operation import Done, Place, done, require_table_writable
from txlog.writing.options import WriteOptions
from txlog.writing.vectors import adds_of


def add_features(
    place: Place, snapshot: Snapshot, names: Sequence[str], *, options: WriteOptions | None = None
) -> Done:
    """List table features in a table's protocol, in one commit; those that it has are no matter.

    With `txlog.fragments`, the same commit gives every fragment a durable id (rule FRG-19).

    Raises
    ------
    InvalidInputError
        txlog cannot write tables with one of them.
    UnsupportedFeatureError
        The table may not be written by txlog.
    """
    options = options or WriteOptions()

    def build(base: Snapshot) -> Intent | None:
        require_table_writable(base, removes_rows=False)
        protocol = with_features(base.protocol, names)
        if features_of(protocol) == features_of(base.protocol):
            return None
        added = features_of(protocol) - features_of(base.protocol)
        return Intent(
            operation="ADD FEATURE",
            kind="protocol",
            read_version=base.version,
            protocol=protocol,
            adds=_adopted(place, base) if FEATURE in added else (),
            parameters={"featureName": sorted(added)},
            user_metadata=options.user_metadata,
        )

    after, committed = run(place.store, snapshot, build, effects=place.effects)
    return done("ADD FEATURE", after, committed, skipped=False)


def _adopted(place: Place, base: Snapshot) -> tuple[Add, ...]:
    """Return the files whose fragments have no durable id, or no row count, to be logged again."""
    files = load_files(place.store, base).live
    plan = plan_scan(base, files, columns=[])
    lacking = [f for f in plan.fragments if not f.is_durable or f.physical_rows is None]
    counts = place.engine.map(partial(_rows_in, place.store, plan), lacking)
    rows = dict(zip((fragment.path for fragment in lacking), counts, strict=True))
    chosen = files.filter(pc.is_in(files["path"], value_set=pa.array(list(rows), pa.string())))
    durable = {fragment.path for fragment in lacking if fragment.is_durable}
    return tuple(
        _logged_again(add, rows[add.path], keeps_id=add.path in durable) for add in adds_of(chosen)
    )


def _rows_in(store: Store, plan: ScanPlan, fragment: Fragment) -> int:
    if fragment.physical_rows is not None:
        return fragment.physical_rows
    return FragmentReader(store, plan, fragment).count_rows()


def _logged_again(add: Add, rows: int, *, keeps_id: bool) -> Add:
    """Return a file's `add` with its row count; without an id, it gets one in the commit."""
    tags = {name: text for name, text in (add.tags or {}).items() if keeps_id or name != ID_TAG}
    stats = (add.stats or "").strip()
    if '"numRecords"' not in stats:  # Put into the text itself: parsing would round its decimals.
        rest = stats[1:] if stats.startswith("{") else "}"
        stats = f'{{"numRecords":{rows}{"" if rest.strip() == "}" else ","}{rest}'
    return add.model_copy(update={"tags": tags, "stats": stats, "data_change": False})
