"""Statistics of files whose writers left them out: from footers, or else from the rows.

Rules: spec/fragments.md, FRG-38 and FRG-39.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from txlog.actions.columns import empty_rows
from txlog.actions.file import Add
from txlog.commit.intent import Intent
from txlog.commit.loop import run
from txlog.errors import InvalidInputError
from txlog.expressions.sql import as_expression, to_sql
from txlog.expressions.tree import Expression
from txlog.fragments.fragment import Fragment
from txlog.fragments.rows import FIELDS_TAG, FragmentRows
from txlog.maintain.partitions import require_partition_columns
from txlog.scan.columns import is_legacy
from txlog.scan.lazy_plan import plan_scan
from txlog.scan.listing import as_fragments
from txlog.scan.plan import ReadPlan
from txlog.scan.reader import BATCH_ROWS, FragmentReader
from txlog.schema.types import DataType, StructType
from txlog.snapshot.files import load_files
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.bounds import Path
from txlog.stats.collect import StatsCollector, leaf_types, stats_json
from txlog.stats.document import lacking, with_columns
from txlog.stats.footer import footer_extents
from txlog.store.base import Store
from txlog.writing.operation import Done, Place, done, require_table_writable
from txlog.writing.options import WriteOptions
from txlog.writing.vectors import adds_of

_DEADLINE_S = 3600.0  # What was computed stays right, so conflicts are worth another try.


def compute_statistics(
    place: Place,
    snapshot: Snapshot,
    columns: Sequence[str] | str | None = None,
    *,
    where: str | Expression | None = None,
    recompute: bool = False,
    options: WriteOptions | None = None,
) -> Done:
    """Give files the statistics that they lack, in one commit that changes no row.

    Parameters
    ----------
    columns
        Which columns, nested ones with dots. Default: those of which the table's writers give
        statistics.
    where
        Only files of the partitions of which this is true.
    recompute
        Compute them for all files, not only for those that lack some.

    Raises
    ------
    InvalidInputError
        There is no such column, it is a partition column, or the predicate is not over partition
        columns alone.
    UnsupportedFeatureError
        The table may not be written by txlog.
    DataFileError
        A file is missing, unreadable, or other than the log says.
    """
    options = options or WriteOptions()
    predicate = as_expression(where)
    known: dict[_Job, str] = {}  # Over all attempts: a file never changes.

    def build(base: Snapshot) -> Intent | None:
        require_table_writable(base, removes_rows=False)
        leaves = _chosen_columns(base, columns)
        files = load_files(place.store, base).live
        plan = plan_scan(base, files, columns=[], where=predicate)
        require_partition_columns(plan.where, base)
        jobs, rows = _jobs(plan.rows, leaves, everything=recompute)
        missing = [job for job in jobs if job not in known]
        work = partial(_computed, place.store, _reading(base, leaves))
        known.update(zip(missing, place.engine.map(work, missing), strict=True))
        adds = [
            _logged_again(add, known[job], job)
            for add, job in zip(adds_of(rows), jobs, strict=True)
        ]
        changed = tuple(add for add in adds if add is not None)
        if not changed:
            return None
        return Intent(
            operation="COMPUTE STATS",
            kind="compact",
            read_version=base.version,
            adds=changed,
            isolation="SnapshotIsolation",
            parameters={"predicate": [] if plan.where is None else [to_sql(plan.where)]},
            metrics={"numUpdatedFiles": len(changed)},
            user_metadata=options.user_metadata,
        )

    after, committed = run(
        place.store, snapshot, build, effects=place.effects, deadline_s=_DEADLINE_S
    )
    return done("COMPUTE STATS", after, committed, skipped=False)


@dataclass(frozen=True)
class _Job:
    """A file, and the columns of which it is to tell."""

    path: str
    columns: tuple[Path, ...]
    fragment: Fragment = field(compare=False)  # Of this file alone.


def _chosen_columns(base: Snapshot, columns: Sequence[str] | str | None) -> dict[Path, DataType]:
    """Return the leaf columns that files are to tell of, and their types."""
    stored = StructType(
        tuple(f for f in base.schema.fields if f.name not in base.partition_columns)
    )
    if columns is None:
        return leaf_types(stored, indexed=base.properties.get("delta.dataSkippingNumIndexedCols"))
    leaves = leaf_types(stored)
    found: dict[Path, DataType] = {}
    for name in (columns,) if isinstance(columns, str) else columns:
        below = {path: kind for path, kind in leaves.items() if _is_at(path, name)}
        if not below:
            raise InvalidInputError(
                argument="columns",
                field=str(name),
                reason="files have no such column",
                remedy=f"Choose from {', '.join(stored.names())}",
            )
        found |= below
    return found


def _is_at(path: Path, name: str) -> bool:
    """Whether a name, with dots, is that of a leaf column, or of one that it is in."""
    return any(".".join(path[:end]) == name for end in range(1, len(path) + 1))


def _jobs(
    fragments: FragmentRows, leaves: dict[Path, DataType], *, everything: bool
) -> tuple[list[_Job], pa.Table]:
    """Return the files to look into, and their `FILE_ROWS`."""
    jobs: list[_Job] = []
    chosen = []
    for rows, answers in _files(fragments, {path[0] for path in leaves}):
        wanted = pc.or_(lacking(rows, leaves, answers), everything)
        found = rows.filter(wanted)
        told = {name: mask.filter(wanted).to_pylist() for name, mask in answers.items()}
        chosen.append(found)
        for at, fragment in enumerate(as_fragments(found)):
            paths = tuple(p for p in leaves if p[0] not in told or told[p[0]][at])
            jobs.append(_Job(fragment.path, paths, fragment))
    return jobs, pa.concat_tables(chosen)


def _files(
    fragments: FragmentRows, names: set[str]
) -> Iterator[tuple[pa.Table, dict[str, pa.Array]]]:
    """Yield primaries, then column files, and which of them tell of which columns."""
    columns = fragments.columns
    if not columns.rows.num_rows:
        yield fragments.primaries, {}
        return
    giving = {name: columns.giving(name) for name in names}
    places = pa.arange(0, fragments.primaries.num_rows)
    yield (
        fragments.primaries,
        {
            name: pc.invert(pc.is_in(places, value_set=columns.owners.filter(gives)))
            for name, gives in giving.items()
        },
    )
    yield columns.rows, giving


def _reading(base: Snapshot, leaves: dict[Path, DataType]) -> ReadPlan:
    names = list(dict.fromkeys(path[0] for path in leaves))
    return plan_scan(base, empty_rows(), columns=names).reading


def _computed(store: Store, plan: ReadPlan, job: _Job) -> str:
    """Return the statistics of a file, of what is in it whether deleted or not.

    Only the columns are read whose statistics the footer does not give as reading them would.
    """
    schema = StructType(plan.columns)
    collector = StatsCollector(schema, indexed=-1, only=job.columns)
    fragment = job.fragment
    if fragment.deletion is None:  # The footer knows better; deletions go by what the log says.
        fragment = replace(fragment, physical_rows=None)
    reader = FragmentReader(store, plan, fragment)
    footer = reader.footer()
    kinds = leaf_types(schema)
    asked = {} if is_legacy(footer.metadata) else {path: kinds[path] for path in job.columns}
    collector.settle(footer.num_rows, footer_extents(footer, asked))
    needed = tuple(c for c in plan.needed if c.name in collector.open_columns)
    if needed or fragment.deletion is not None:
        for _, rows in reader.batches(needed, prune=False, batch_rows=BATCH_ROWS, threads=False):
            collector.update(rows)
    return stats_json(collector.finish())


def _logged_again(add: Add, computed: str, job: _Job) -> Add | None:
    """Return a file's `add` with what was computed; None if the log says all of it already."""
    tight = add.deletion_vector is None and FIELDS_TAG not in (add.tags or {})
    stats = with_columns(add.stats, computed, job.columns, tight=tight)
    if stats is None:
        return None
    return add.model_copy(update={"stats": stats, "data_change": False})
