"""Compute missing statistics of files, from footers or else from the rows.

Rules: spec/fragments.md, FRG-38 and FRG-39.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from txlog.actions.file import Add
from txlog.actions.stats_text import Path, StatsText, stats_json
from txlog.base.arrow import arrow_array, arrow_scalar, pc
from txlog.base.columns import flat
from txlog.base.errors import DataFileError, InvalidInputError, NotFoundError, TxlogError, reason_of
from txlog.commit.intent import Intent
from txlog.commit.operation import Operation
from txlog.data_files.deletions import adds_of
from txlog.data_files.rewrite import require_partition_columns
from txlog.expressions.bind import column_path
from txlog.expressions.sql import to_sql
from txlog.expressions.tree import And, Column, Expression, IsNull
from txlog.fragments.fragment import Fragment
from txlog.fragments.rows import FIELDS_TAG, FragmentRows
from txlog.protocol.form import physical_path
from txlog.protocol.mapping import in_files, parquet_schema, with_names
from txlog.scan.columns import is_legacy
from txlog.scan.data_file import BATCH_ROWS
from txlog.scan.deletions import load_deletions
from txlog.scan.files import as_fragments
from txlog.scan.plan import plan_scan
from txlog.scan.read import FragmentReader
from txlog.scan.read_plan import ReadPlan, read_plan
from txlog.schema.types import DataType, StructType
from txlog.snapshot.live_files import load_files
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.collect import (
    Extent,
    StatsCollector,
    footer_extents,
    has_bounds,
    leaf_types,
    stats_leaves,
)
from txlog.stats.file_bounds import bound_type, child_of, struct_count
from txlog.stats.files import file_bounds, num_records
from txlog.stats.skip import ColumnBounds
from txlog.store.base import Store


class ComputeStatistics(Operation):
    """Add missing statistics to files, in one commit that changes no row."""

    name = "COMPUTE STATS"
    deadline_s = 3600.0  # Computed statistics stay correct, so try again after conflicts.

    def __init__(
        self,
        columns: Sequence[str] | str | None = None,
        *,
        where: Expression | None = None,
        recompute: bool = False,
    ) -> None:
        """Choose the statistics and the files.

        Parameters
        ----------
        columns
            The columns, nested ones with dots. Default: those for which the table's writers write
            statistics.
        where
            Only files of the partitions for which this is true.
        recompute
            Compute them for all files, not only for those that lack some.
        """
        self._columns = columns
        self._where = where
        self._recompute = recompute
        self._known: dict[_Job, str] = {}  # Kept for all attempts: files never change.

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the files with their statistics.

        Raises
        ------
        InvalidInputError
            There is no such column, it is a partition column, or the predicate is not over
            partition columns alone.
        DataFileError
            A file is missing, unreadable, or contradicts the log.
        """
        store, known = self.context.store, self._known
        chosen = _chosen_columns(base, self._columns)
        leaves = {  # These are physical paths, as in jobs and statistics.
            physical_path(base.schema, path, base.mapping_mode): kind
            for path, kind in chosen.items()
        }
        files = load_files(store, base).live
        plan = plan_scan(base, files, columns=[], where=self._where)
        where = plan.reading.where
        require_partition_columns(where, base)
        jobs, rows = _jobs(plan.files.rows, leaves, everything=self._recompute)
        missing = [job for job in jobs if job not in known]
        work = partial(_computed, store, _reading(base, chosen))
        known.update(zip(missing, self.context.engine.map(work, missing), strict=True))
        adds = [
            _logged_again(add, known[job], job)
            for add, job in zip(adds_of(rows), jobs, strict=True)
        ]
        changed = tuple(add for add in adds if add is not None)
        if not changed:
            return None
        return Intent(
            operation=self.name,
            kind="compact",
            read_version=base.version,
            adds=changed,
            isolation="SnapshotIsolation",
            parameters={"predicate": [] if where is None else [to_sql(where)]},
            metrics={"numUpdatedFiles": len(changed)},
        )


@dataclass(frozen=True)
class _Job:
    """A file, and the columns whose statistics it lacks."""

    path: str
    columns: tuple[Path, ...]
    fragment: Fragment = field(compare=False)  # The columns of this file only.


def _chosen_columns(base: Snapshot, columns: Sequence[str] | str | None) -> dict[Path, DataType]:
    """Return the leaf columns that need statistics, and their types."""
    stored = StructType(
        tuple(f for f in base.schema.fields if f.name not in base.partition_columns)
    )
    if columns is None:
        return stats_leaves(stored, base.properties)
    leaves = leaf_types(stored)
    found: dict[Path, DataType] = {}
    for name in (columns,) if isinstance(columns, str) else columns:
        fields = stored.along(path := column_path(stored, name))
        asked = tuple(field.name for field in fields)
        below = {
            leaf: kind
            for leaf, kind in leaves.items()
            if len(fields) == len(path) and leaf[: len(asked)] == asked
        }
        if not below:
            raise InvalidInputError(
                argument="columns",
                field=str(name),
                reason="data files have no such column",
                remedy=f"Choose from {', '.join(stored.names())}",
            )
        found |= below
    return found


def _jobs(
    fragments: FragmentRows, leaves: dict[Path, DataType], *, everything: bool
) -> tuple[list[_Job], pa.Table]:
    """Return the files to read, and their `FILE_ROWS`."""
    jobs: list[_Job] = []
    chosen = []
    for rows, answers in _files(fragments, {path[0] for path in leaves}):
        wanted = pc.or_(lacking(rows, leaves, answers), everything)
        found = rows.filter(wanted)
        answers_of = {name: mask.filter(wanted).to_pylist() for name, mask in answers.items()}
        chosen.append(found)
        for at, fragment in enumerate(as_fragments(found)):
            paths = tuple(p for p in leaves if p[0] not in answers_of or answers_of[p[0]][at])
            jobs.append(_Job(fragment.path, paths, fragment))
    return jobs, pa.concat_tables(chosen)


def _files(
    fragments: FragmentRows, names: set[str]
) -> Iterator[tuple[pa.Table, dict[str, pa.Array]]]:
    """Yield primary files, then column files, and which of them need statistics of each column."""
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
    return read_plan(base, columns=names)


def _computed(store: Store, plan: ReadPlan, job: _Job) -> str:
    """Return the statistics of all rows of a file, including deleted ones.

    A column is read only if the footer does not give the same statistics as its rows.
    """
    schema = in_files(StructType(plan.columns), plan.form.mapping_mode)
    collector = StatsCollector(schema, indexed=-1, only=job.columns)
    fragment = job.fragment
    if fragment.deletion is None:  # The footer has the true row count; the log has the deletions.
        fragment = replace(fragment, physical_rows=None)
    reader = FragmentReader(store, plan, fragment)
    footer = reader.footer()
    kinds = leaf_types(schema)
    # A footer has names, and with the mode `id` these may differ from the physical names.
    silent = is_legacy(footer.pairs) or plan.form.mapping_mode == "id"
    asked = {} if silent else {path: kinds[path] for path in job.columns}
    collector.settle(footer.num_rows, footer_extents(footer, asked))
    needed = tuple(
        c for c in plan.needed if c.name_in_files(plan.form.mapping_mode) in collector.open_columns
    )
    names = parquet_schema(in_files(StructType(needed), plan.form.mapping_mode))
    if needed or fragment.deletion is not None:
        for _, rows in reader.batches(needed, prune=False, batch_rows=BATCH_ROWS, threads=False):
            reader.require_texts(rows)
            collector.update(with_names(rows, names) if needed else rows)
    return stats_json(collector.finish())


def _logged_again(add: Add, computed: str, job: _Job) -> Add | None:
    """Return a file's `add` with the new statistics; None if the log has all of them already."""
    tight = add.deletion_vector is None and FIELDS_TAG not in (add.tags or {})
    before = StatsText(add.stats)
    after = before.with_columns(StatsText(computed), job.columns, tight=tight)
    if after is before:
        return None
    return add.model_copy(update={"stats": after.text, "data_change": False})


def lacking(
    files: pa.Table, columns: Mapping[Path, DataType], answers: Mapping[str, pa.Array]
) -> pa.Array:
    """Return for each of `FILE_ROWS` whether its statistics are incomplete.

    They are incomplete without the number of rows, without the null count of a column, or without
    the minimum of a column that has values and a type with bounds.

    Parameters
    ----------
    columns
        Leaf columns and their types, by their names in statistics.
    answers
        For a top-level column, the files that must have its statistics. Default: all.
    """
    documents = [StatsText(text) for text in flat(files["stats"]).to_pylist()]
    structs = flat(files["stats_parsed"]) if "stats_parsed" in files.column_names else None
    incomplete = pc.is_null(num_records(files))
    for path, kind in columns.items():
        lacks = arrow_array([_lacks(document, path, kind) for document in documents], pa.bool_())
        if structs is not None:
            lacks = pc.and_(lacks, _structs_lack(structs, path, kind))
        if path[0] in answers:
            lacks = pc.and_(lacks, answers[path[0]])
        incomplete = pc.or_(incomplete, lacks)
    return incomplete


def _lacks(stats: StatsText, path: Path, kind: DataType) -> bool:
    nulls = stats.value("nullCount", path)
    if type(nulls) is not int:
        return True
    if not has_bounds(kind) or nulls == stats.document.get("numRecords"):
        return False
    return stats.value("minValues", path) is None


def _structs_lack(structs: pa.Array, path: Path, kind: DataType) -> pa.Array:
    nulls = struct_count(structs, ("nullCount", *path))
    if not has_bounds(kind):
        return pc.is_null(nulls)
    low = child_of(structs, ("minValues", *path), bound_type(kind))
    has_values = pc.fill_null(pc.less(nulls, struct_count(structs, ("numRecords",))), True)
    return pc.or_(pc.is_null(nulls), pc.and_(pc.is_null(low), has_values))


# Comparing statistics with the files ------------------------------------------------------------


class FileFault(NamedTuple):
    """What is wrong with a file, or nothing."""

    text: str = ""
    is_damage: bool = False
    """Whether the file, or its deletion vector, cannot be read; else its statistics are wrong."""


def file_fault(store: Store, snapshot: Snapshot, row: pa.Table) -> FileFault:
    """Return whether a file can be read, and agrees with its statistics, as its footer shows.

    A missing file has no fault.
    """
    (fragment,) = as_fragments(row)
    plan = read_plan(snapshot, columns=[])
    try:
        footer = FragmentReader(store, plan, replace(fragment, physical_rows=None)).footer()
        if fragment.deletion is not None:
            load_deletions(store, fragment)
    except TxlogError as error:
        if isinstance(error, NotFoundError) or isinstance(error.__cause__, NotFoundError):
            return FileFault()  # Missing files are a separate finding.
        return FileFault(reason_of(error), is_damage=True)
    stated = num_records(row)[0].as_py()
    if stated is not None and stated != footer.num_rows:
        return FileFault(f"it has {footer.num_rows} rows, not {stated}")
    if fragment.deletion is not None or is_legacy(footer.pairs) or snapshot.mapping_mode == "id":
        return FileFault()
    stored = StructType(
        tuple(one for one in snapshot.schema.fields if one.name not in snapshot.partition_columns)
    )
    kinds = leaf_types(in_files(stored, snapshot.mapping_mode))
    paths = {
        path: physical_path(snapshot.schema, path, snapshot.mapping_mode)
        for path in leaf_types(stored)
    }
    extents = footer_extents(footer, {own: kinds[own] for own in paths.values() if own in kinds})
    asked = [path for path, own in paths.items() if own in extents]
    if not asked:
        return FileFault()
    where = And(tuple(IsNull(Column(path)) for path in asked))
    bounds = file_bounds(
        row, snapshot.schema, snapshot.partition_columns, where, mapping_mode=snapshot.mapping_mode
    )
    faults = (
        _beyond(".".join(path), bounds.columns[path], extents[paths[path]])
        for path in asked
        if path in bounds.columns
    )
    return FileFault(next((fault for fault in faults if fault), ""))


def require_agreeing(store: Store, snapshot: Snapshot, fragment: Fragment, rows: pa.Table) -> None:
    """Raise unless the footers of a fragment's files, its deletions and the log agree.

    `rows` are the `FILE_ROWS` of its files, with the primary file first.

    Raises
    ------
    DataFileError, BadDeletionVectorError
        A file is missing or unreadable, or contradicts the log.
    """
    plan = read_plan(snapshot, columns=[])
    counts = FragmentReader(store, plan, fragment).file_rows()
    faults = [
        (file, f"it has {count} rows, but the primary file has {counts[0]}")
        for file, count in zip(fragment.files, counts, strict=True)
        if count != counts[0]
    ]
    fault = file_fault(store, snapshot, rows.slice(0, 1))
    if fault.text:
        faults.insert(0, (fragment.files[0], f"the log contradicts the file: {fault.text}"))
    for file, reason in faults:
        raise DataFileError(
            path=file.path,
            version=snapshot.version,
            reason=reason,
            remedy="Correct statistics with optimize.compute_statistics(recompute=True); restore "
            "a damaged file from a copy",
        )


def _beyond(name: str, stated: ColumnBounds, extent: Extent) -> str:
    low, high, nulls = (getattr(stated, side)[0] for side in ("low", "high", "nulls"))
    if nulls.is_valid and (nulls.as_py() == 0) != (extent.nulls == 0) and nulls.as_py() == 0:
        return f"{name} has {extent.nulls} nulls, not 0"
    for side, value, below in (("least", low, True), ("greatest", high, False)):
        real = extent.low if below else extent.high
        if not value.is_valid or real is None or isinstance(real, float):
            continue
        own = arrow_scalar(real, value.type)
        if (pc.less(own, value) if below else pc.greater(own, value)).as_py():
            return f"the {side} {name} is {real!r}, outside of the stated {value.as_py()!r}"
    return ""
