"""Merge the rows of a source into a table.

Rules: the Delta protocol does not define merges; their meaning is that of Delta's MERGE.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from txlog.base.arrow import arrow_array
from txlog.base.errors import InvalidInputError
from txlog.base.threads import cached_property, for_sizes
from txlog.data_files.options import as_options
from txlog.data_files.replace_rows import FileChange, replace_rows
from txlog.data_files.row_changes import RowChanges
from txlog.data_files.write_plan import evolved_schema
from txlog.expressions.sql import to_sql
from txlog.expressions.tree import Expression
from txlog.scan.plan import ScanPlan, plan_scan
from txlog.scan.read_plan import choose_columns
from txlog.schema.types import VOID, StructField, StructType
from txlog.snapshot.snapshot import Snapshot
from txlog.verbs.change_rows import ChangeRows
from txlog.verbs.merge.clauses import (
    CORE,
    REMOVING,
    BoundClause,
    Clause,
    MergeRequest,
    bound_clauses,
    decide,
)
from txlog.verbs.merge.condition import Condition, Sides, merge_condition, require_key
from txlog.verbs.merge.keys import SourceKeys, named, where_matched
from txlog.verbs.merge.match import (
    FragmentMatch,
    MatchPlan,
    bitmap_of,
    match_fragment,
    merged_rows,
)
from txlog.verbs.merge.source import MEMORY_BYTES, MergeSource

if TYPE_CHECKING:
    from txlog.commit.app_versions import AnyAppVersion
    from txlog.commit.operation import Companion


class Merge(ChangeRows):
    """Update, delete and insert rows by the rows of a source."""

    name = "MERGE"
    memory_bytes = MEMORY_BYTES  # A larger source is kept in a temporary file.

    def __init__(self, request: MergeRequest, clauses: Sequence[Clause]) -> None:
        """Take the merge, and its clauses in their order."""
        self._options = as_options(request.options)
        CORE.require(request, self._options, *clauses)
        self._data = request.data
        self._predicate: str | Expression = request.condition
        self._key = request.on or ()
        self._clauses = tuple(clauses)
        self._aliases = request.target_alias, request.source_alias
        self._schema_mode = request.schema_mode
        self._inserts_once = request.inserts_once
        self._quarantine = request.quarantine
        self._refused: NDArray[np.bool_] | None = None  # The source rows in the quarantine.
        self._source: MergeSource | None = None
        self._bound: _Bound | None = None
        self._open: NDArray[np.bool_] = np.zeros(0, np.bool_)  # The source rows without a match.
        self._metrics: dict[str, int] = {}  # Those of the last attempt.
        self._parameters: dict[str, Any] = {}

    @property
    def removes_rows(self) -> bool:  # type: ignore[override]
        """Whether rows may be removed; append-only tables allow a merge that only inserts."""
        return any(clause.action in REMOVING for clause in self._clauses)

    def changed(self, base: Snapshot) -> RowChanges:
        """Return the removed files, those with new deletion vectors, and those with new rows.

        Raises
        ------
        InvalidInputError
            The condition or a clause does not fit the columns, or several rows of the source would
            change one row.
        SchemaMismatchError
            A new value does not fit its column, or breaks a constraint.
        """
        if self._source is None:
            self._source = MergeSource(
                self._data,
                memory_bytes=self.memory_bytes,
                nanos=base.supports("timestampNanos"),
                truncates=self._options.encoding.allow_truncated_timestamps,
            )
            self._data = None
        source = self._source
        if self._quarantine is not None:
            self._quarantine.at(base)
        schema = base.schema
        if self._schema_mode == "merge":
            more = source.schema
            if not self._options.error_on_type_mismatch:
                more = _of_structs_and_new(base.schema, more)
            schema = evolved_schema(base, more)
        sides = Sides(base.schema, source.schema, *self._aliases)
        require_key(self._key, target=base.schema, source=source.schema)
        condition = merge_condition(self._predicate, sides, self.context.zone)
        clauses = bound_clauses(
            self._clauses,
            sides,
            schema,
            merges_schema=self._schema_mode == "merge",
            error_on_type_mismatch=self._options.error_on_type_mismatch,
            zone=self.context.zone,
        )
        keys = SourceKeys.of(source, condition, sides)
        every = any(clause.kind == "not_matched_by_source" for clause in clauses)
        where = None if every else where_matched(keys, condition, sides)
        self._bound = _Bound(sides, source, keys, condition, clauses, schema, where, every=every)
        plan = self.look(base, where)
        while True:
            found = self._matched(base, plan)
            inserts = self._inserts(found)
            self._metrics, self._open = {}, inserts.open
            if not found.changed and not inserts.any():
                nothing = RowChanges(found.plan.reading.where)
                self._count(found, nothing, 0)  # Files of winners may add changes.
                return nothing
            try:
                changes = self._replaced(base, found, inserts.batches())
            except InvalidInputError:
                # Each time there are fewer rows that may be at fault.
                if not self._refuse(base, found, inserts.open):
                    raise
                continue
            self._count(found, changes, inserts.count)
            return changes

    def _inserts(self, found: _Matched) -> _Inserts:
        """Return the source rows that are inserted."""
        inserts = _Inserts(found.steps, found.matches)
        if self._refused is not None:
            inserts.open &= ~self._refused
        if self._inserts_once:
            assert self._bound is not None
            inserts.open[self._bound.keys.repeated(self._refused)] = False
        return inserts

    def _refuse(self, base: Snapshot, found: _Matched, inserted: NDArray[np.bool_]) -> bool:
        """Put source rows at fault into the quarantine; return whether there are any."""
        if self._quarantine is None:
            return False
        from txlog.verbs.merge.refused import find_refused

        bound = self._bound
        assert bound is not None
        faults = find_refused(
            self.context,
            base,
            found.steps,
            found.changed,
            inserted,
            kept=_kept_columns(found.steps),
            schema=bound.schema,
            options=self._options,
        )
        if not len(faults.rows):
            return False
        rows = bound.source.take(faults.rows, bound.source.schema.names())
        own = replace(faults, rows=np.arange(len(faults.rows)))
        self._quarantine.take(self.name, base, rows, own)
        if self._refused is None:
            self._refused = np.zeros(bound.source.num_rows, np.bool_)
        self._refused[faults.rows] = True
        return True

    def companions(self, txn: AnyAppVersion | None) -> Sequence[Companion]:
        """Return the commit of rows to the quarantine."""
        return () if self._quarantine is None else self._quarantine.companions(txn)

    def side_metrics(self) -> Mapping[str, int]:
        """Return the number of rows in the quarantine, if there is one."""
        return {} if self._quarantine is None else self._quarantine.metrics

    def extended(self, base: Snapshot, changes: RowChanges, added: pa.Table) -> RowChanges | None:
        """Return the changes with those of added files, which may match further source rows.

        None if they match one that was inserted, or that is not inserted because of its values.
        """
        assert self._bound is not None
        plan = plan_scan(base, added, columns=[], where=self._bound.where)
        found = self._matched(base, plan)
        inserts = found.steps.has("not_matched")
        if inserts and any(bool(self._open[one.matched].any()) for one in found.matches):
            return None
        more = RowChanges(found.plan.reading.where)
        if found.changed:
            try:
                more = self._replaced(base, found, ())
            except InvalidInputError:
                if self._quarantine is None:
                    raise
                return None  # All rows are found again, with those at fault.
        both = changes.extended_by(more, self.context.store)
        if both is not None:
            self._count(found, both, 0)
        return both

    def _matched(self, base: Snapshot, plan: ScanPlan) -> _Matched:
        """Match the rows of a plan's files with the source."""
        assert self._bound is not None
        bound = self._bound
        if self._options.use_index and not bound.every:
            plan = self.context.indexed(base, plan, bound.keys.given(bound.sides))
        steps = replace(_match_plan(base, plan, bound), refused=self._refused)
        fragments = plan.values if bound.every or len(bound.keys.rows) else ()
        match = partial(match_fragment, self.context.store, steps)
        sizes = (file.size for fragment in fragments for file in fragment.files)
        engine = for_sizes(self.context.engine, sizes)
        matches = list(engine.map(match, fragments))
        return _Matched(plan, steps, len(fragments), matches)

    def _replaced(
        self, base: Snapshot, found: _Matched, inserted: Iterable[pa.RecordBatch]
    ) -> RowChanges:
        """Write the changed rows of some files, and inserted rows."""
        assert self._bound is not None
        updates = {one.deletes.fragment.id: one.updated for one in found.changed}
        return replace_rows(
            self.context,
            base,
            found.plan,
            [FileChange(one.deletes, bitmap_of(one.updated.positions)) for one in found.changed],
            partial(merged_rows, found.steps, updates),
            reads=_kept_columns(found.steps),
            inserted=inserted,
            schema=self._bound.schema,
            options=self._options,
        )

    def _count(self, found: _Matched, changes: RowChanges, inserted: int) -> None:
        """Add matched files to the metrics; `changes` are those of all files."""
        bound, before = self._bound, self._metrics
        assert bound is not None
        texts = [None if one.condition is None else to_sql(one.condition) for one in bound.clauses]
        self._parameters = parameters(to_sql(bound.condition.whole), bound.clauses, texts)
        updated = sum(len(one.updated.positions) for one in found.changed)
        gone = sum(len(one.deletes.rows) for one in found.changed)
        counted = merge_metrics(inserted=inserted, updated=updated, gone=gone, changes=changes)
        counted["numTargetFilesScanned"] = found.scanned
        counted["numTargetFilesSkippedDuringScan"] = found.plan.explanation.files - found.scanned
        names = (
            "numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted",
            "numTargetFilesScanned", "numTargetFilesSkippedDuringScan",
        )  # fmt: skip
        for name in names:
            counted[name] += before.get(name, 0)
        rows = counted["numTargetRowsInserted"] + counted["numTargetRowsUpdated"]
        counted["numOutputRows"] = rows + changes.copied_rows
        self._metrics = {"numSourceRows": bound.source.num_rows, **counted}

    def parameters(self, changes: RowChanges) -> Mapping[str, Any]:
        """Return the condition and the clauses."""
        return self._parameters

    def metrics(self, changes: RowChanges) -> dict[str, int]:
        """Return Delta's metrics of MERGE."""
        return self._metrics


def _of_structs_and_new(table: StructType, source: StructType) -> StructType:
    """Return the source columns that may extend a schema; values of others are cast."""

    def extends(field: StructField) -> bool:
        own = table.get(field.name)
        return own is None or isinstance(own.type, StructType) or own.type == VOID

    return StructType(tuple(filter(extends, source.fields)))


@dataclass(frozen=True)
class _Bound:
    """A merge, bound to the schema of a table: the same for all attempts with this schema."""

    sides: Sides
    source: MergeSource
    keys: SourceKeys
    condition: Condition
    clauses: tuple[BoundClause, ...]
    schema: StructType  # The table's schema after the merge.
    where: Expression | None  # True for all rows that may match.
    every: bool  # Whether rows without a match are changed, too.


@dataclass(frozen=True)
class _Matched:
    """The matches of some files of a version."""

    plan: ScanPlan
    steps: MatchPlan
    scanned: int  # Fragments.
    matches: list[FragmentMatch]

    @cached_property
    def changed(self) -> list[FragmentMatch]:
        """Those with rows that are deleted or changed."""
        return [one for one in self.matches if one.deletes.rows]


def _match_plan(base: Snapshot, plan: ScanPlan, bound: _Bound) -> MatchPlan:
    """Return the plan for matching rows, with the columns that the conditions read."""
    sides, condition = bound.sides, bound.condition
    reads = set(condition.reads(sides)[0])
    for clause in bound.clauses:
        if clause.condition is not None:
            reads |= {name for name in clause.reads if sides.is_target((name,))}
    names = [field.name for field in base.schema.fields if _flat(sides, field.name) in reads]
    # Without a column, a batch would have no rows.
    columns = tuple(choose_columns(base.schema, names or base.schema.names()[:1]))
    return MatchPlan(
        plan.reading, columns, not bound.every, sides, bound.source, bound.keys, condition,
        bound.clauses,
    )  # fmt: skip


def _flat(sides: Sides, name: str) -> str:
    return f"{sides.target_alias}.{name}"


def _kept_columns(plan: MatchPlan) -> set[str]:
    """Return the target columns that updated rows keep or from which they are computed."""
    kept: set[str] = set()
    for clause in plan.clauses:
        if clause.action == "update" and clause.values is not None:
            kept |= clause.values.keeps
            reads = (name for name in clause.values.reads if plan.sides.is_target((name,)))
            kept |= {plan.sides.name(name) for name in reads}
    return kept


class _Inserts:
    """The source rows without a match, which are inserted."""

    def __init__(self, plan: MatchPlan, matches: Sequence[FragmentMatch]) -> None:
        self._plan = plan
        self.open: NDArray[np.bool_] = np.ones(plan.source.num_rows, np.bool_)
        for one in matches:
            self.open[one.matched] = False
        self.count = 0

    def any(self) -> bool:
        """Return whether a row may be inserted."""
        return self._plan.has("not_matched") and bool(self.open.any())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, with the columns for which each clause gives values."""
        plan = self._plan
        if not self.any():
            return
        for start, batch in plan.source.batches():
            places = np.flatnonzero(self.open[start : start + batch.num_rows])
            if not len(places):
                continue
            rows = named(batch.take(arrow_array(places)), plan.sides.source_alias)
            actions = decide(plan.clauses, "not_matched", rows)
            for place in np.unique(actions[actions >= 0]).tolist():
                values = plan.clauses[place].values
                assert values is not None
                chosen = rows.filter(arrow_array(actions == place))
                self.count += chosen.num_rows
                yield values.alone(chosen)


def parameters(
    predicate: str, clauses: Sequence[Clause | BoundClause], texts: Sequence[str | None]
) -> dict[str, Any]:
    """Return Delta's parameters of MERGE; `texts` are the predicates of the clauses."""

    def described(kind: str) -> str:
        found = [
            {"actionType": clause.action}
            if text is None
            else {"predicate": text, "actionType": clause.action}
            for clause, text in zip(clauses, texts, strict=True)
            if clause.kind == kind
        ]
        return orjson.dumps(found).decode()

    return {
        "predicate": [predicate],
        "matchedPredicates": described("matched"),
        "notMatchedPredicates": described("not_matched"),
        "notMatchedBySourcePredicates": described("not_matched_by_source"),
    }


def merge_metrics(*, inserted: int, updated: int, gone: int, changes: RowChanges) -> dict[str, int]:
    """Return Delta's metrics of MERGE.

    Parameters
    ----------
    gone
        Rows that were deleted or updated.
    """
    return {
        "numTargetRowsInserted": inserted,
        "numTargetRowsUpdated": updated,
        "numTargetRowsDeleted": gone - updated,
        "numTargetRowsCopied": changes.copied_rows,
        "numOutputRows": inserted + updated + changes.copied_rows,
        "numTargetFilesAdded": len(changes.written),
        "numTargetFilesRemoved": changes.files_removed,
        "numTargetDeletionVectorsAdded": len(changes.files),
    }
