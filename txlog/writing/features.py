"""Adding table features to a table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from txlog.actions.file import Add
from txlog.commit.intent import Intent
from txlog.commit.loop import run
from txlog.errors import InvalidInputError, UnsupportedFeatureError
from txlog.fragments.fragment import DataFile, Fragment
from txlog.fragments.ids import ID_TAG
from txlog.fragments.rows import FEATURE
from txlog.protocol.access import features_of, with_features
from txlog.scan.lazy_plan import plan_fragments, plan_scan
from txlog.scan.listing import files_at
from txlog.scan.plan import ReadPlan
from txlog.scan.reader import FragmentReader
from txlog.snapshot.files import load_files
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store
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
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidInputError(
            argument="features",
            reason=f"names of features were expected, not {list(names)!r}",
            remedy='Write add_features("txlog.fragments")',
        )

    def build(base: Snapshot) -> Intent | None:
        require_table_writable(base, removes_rows=False)
        protocol = with_features(base.protocol, names)
        added = features_of(protocol) - features_of(base.protocol)
        _require_no_backlog(base, added)
        adds = _adopted(place, base) if FEATURE in features_of(protocol) else ()
        if not added and not adds:
            return None
        return Intent(
            operation="ADD FEATURE",
            kind="protocol",
            read_version=base.version,
            protocol=protocol if added else None,
            adds=adds,
            parameters={"featureName": sorted(added)},
            user_metadata=options.user_metadata,
        )

    after, committed = run(place.store, snapshot, build, effects=place.effects)
    return done("ADD FEATURE", after, committed, skipped=False)


def _require_no_backlog(base: Snapshot, added: frozenset[str]) -> None:
    """Refuse a feature that a property would put in force, while rows lack what it promises.

    Raises
    ------
    UnsupportedFeatureError
        It is row tracking: nobody gave the rows that are there their ids.
    """
    if "rowTracking" in added and base.properties.get("delta.enableRowTracking"):
        raise UnsupportedFeatureError(
            path=base.root,
            features=("rowTracking",),
            reason="delta.enableRowTracking is true already, and rows that are there have no ids",
            remedy="Turn row tracking on with an engine that gives them ids",
        )


def with_counts(place: Place, snapshot: Snapshot, adds: Sequence[Add]) -> list[Add]:
    """Return files' adds, each with its `numRecords`: of the footer where the log does not say."""
    lacking = [add for add in adds if add.num_records is None]
    fragments = [Fragment(0, (DataFile(add.path, add.size),)) for add in lacking]
    plan = plan_fragments(snapshot, fragments, columns=[])
    rows = place.engine.map(partial(_rows_in, place.store, plan.reading), fragments)
    counted = {add.path: _counted(add, count) for add, count in zip(lacking, rows, strict=True)}
    return [counted.get(add.path, add) for add in adds]


def _adopted(place: Place, base: Snapshot) -> tuple[Add, ...]:
    """Return the files whose fragments have no durable id, or no row count, to be logged again."""
    files = load_files(place.store, base).live
    plan = plan_scan(base, files, columns=[])
    lacking = [f for f in plan.fragments if not f.is_durable or f.physical_rows is None]
    rows = {f.path: f.physical_rows for f in lacking if f.physical_rows is not None}
    unknown = [fragment for fragment in lacking if fragment.physical_rows is None]
    counts = place.engine.map(partial(_rows_in, place.store, plan.reading), unknown)
    rows |= zip((fragment.path for fragment in unknown), counts, strict=True)
    chosen = files_at(files, rows)
    durable = {fragment.path for fragment in lacking if fragment.is_durable}
    return tuple(
        _logged_again(add, rows[add.path], keeps_id=add.path in durable) for add in adds_of(chosen)
    )


def _rows_in(store: Store, plan: ReadPlan, fragment: Fragment) -> int:
    return FragmentReader(store, plan, fragment).count_rows()


def _logged_again(add: Add, rows: int, *, keeps_id: bool) -> Add:
    """Return a file's `add` with its row count; without an id, it gets one in the commit."""
    tags = {name: text for name, text in (add.tags or {}).items() if keeps_id or name != ID_TAG}
    return _counted(add, rows).model_copy(update={"tags": tags, "data_change": False})


def _counted(add: Add, rows: int) -> Add:
    """Put a row count into the statistics, as text: parsing would round their decimals."""
    if add.num_records is not None:
        return add
    stats = (add.stats or "").strip()
    rest = stats[1:].strip() if stats.startswith("{") else "}"
    more = rest if rest == "}" else f",{rest}"
    return add.model_copy(update={"stats": f'{{"numRecords":{rows}{more}'})
