"""Adding table features to a table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from txlog.actions.file import Add
from txlog.actions.stats_text import StatsText
from txlog.commit.context import Context
from txlog.commit.intent import Intent
from txlog.commit.operation import Operation
from txlog.data_files.deletions import adds_of
from txlog.errors import InvalidInputError, UnsupportedFeatureError
from txlog.fragments.fragment import DataFile, Fragment
from txlog.fragments.ids import ID_TAG
from txlog.fragments.rows import FEATURE
from txlog.protocol.access import features_of, with_features
from txlog.scan.files import files_at
from txlog.scan.plan import ReadPlan, plan_fragments, plan_scan
from txlog.scan.read import FragmentReader
from txlog.snapshot.live_files import load_files
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store


class AddFeatures(Operation):
    """List table features in a table's protocol; those that it has make no difference.

    With `txlog.fragments`, the same commit gives every fragment a durable id (rule FRG-19).
    """

    name = "ADD FEATURE"

    def __init__(self, context: Context, names: Sequence[str]) -> None:
        super().__init__(context)
        if not names or not all(isinstance(name, str) for name in names):
            raise InvalidInputError(
                argument="features",
                reason=f"names of features were expected, not {list(names)!r}",
                remedy='Write add_features("txlog.fragments")',
            )
        self._names = tuple(names)

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the protocol with the features.

        Raises
        ------
        InvalidInputError
            txlog cannot write tables with one of them.
        """
        protocol = with_features(base.protocol, self._names)
        added = features_of(protocol) - features_of(base.protocol)
        _require_no_backlog(base, added)
        adds = _adopted(self.context, base) if FEATURE in features_of(protocol) else ()
        if not added and not adds:
            return None
        return Intent(
            operation=self.name,
            kind="protocol",
            read_version=base.version,
            protocol=protocol if added else None,
            adds=adds,
            parameters={"featureName": sorted(added)},
        )


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


def with_counts(context: Context, snapshot: Snapshot, adds: Sequence[Add]) -> list[Add]:
    """Return files' adds, each with its `numRecords`: of the footer where the log does not say."""
    lacking = [add for add in adds if add.num_records is None]
    fragments = [Fragment(0, (DataFile(add.path, add.size),)) for add in lacking]
    plan = plan_fragments(snapshot, fragments, columns=[])
    rows = context.engine.map(partial(_rows_in, context.store, plan.reading), fragments)
    counted = {add.path: _counted(add, count) for add, count in zip(lacking, rows, strict=True)}
    return [counted.get(add.path, add) for add in adds]


def _adopted(context: Context, base: Snapshot) -> tuple[Add, ...]:
    """Return the files whose fragments have no durable id, or no row count, to be logged again."""
    files = load_files(context.store, base).live
    plan = plan_scan(base, files, columns=[])
    lacking = [f for f in plan.fragments if not f.is_durable or f.physical_rows is None]
    rows = {f.path: f.physical_rows for f in lacking if f.physical_rows is not None}
    unknown = [fragment for fragment in lacking if fragment.physical_rows is None]
    counts = context.engine.map(partial(_rows_in, context.store, plan.reading), unknown)
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
    """Return a file's `add` with a row count in its statistics."""
    if add.num_records is not None:
        return add
    return add.model_copy(update={"stats": StatsText(add.stats).with_num_records(rows).text})
