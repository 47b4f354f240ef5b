"""Which fragments a scan reads, and which columns of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from txlog.actions.columns import empty_rows
from txlog.arrow import arrow_array, arrow_scalar, pc
from txlog.errors import InvalidInputError, InvalidTypeError, LogCorruptError
from txlog.expressions.bind import bind, columns_of
from txlog.expressions.sql import to_sql
from txlog.expressions.tree import Expression, col
from txlog.fragments.fragment import Fragment, fragments_of
from txlog.fragments.rows import FEATURE, FragmentRows, deleted_counts, fragment_rows
from txlog.scan.columns import (
    ROW_VERSION,
    RowTracking,
    require_row_tracking,
    row_tracking,
    visible_metadata,
)
from txlog.scan.narrow import Explanation, Narrowed, narrowed
from txlog.schema.arrow import arrow_schema
from txlog.schema.types import DataType, StructField, StructType
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.files import physical_rows, require_same_counts, require_same_partitions

if TYPE_CHECKING:
    from txlog.scan.pages import FooterCache


class ReadMemo:
    """What readers of a plan found out of one file and know of the next ones; no part of a pickle.

    Threads may find the same thing twice, which does no harm.
    """

    def __init__(self) -> None:
        self.places: dict[tuple[str, ...], tuple[pa.Schema, dict[str, int]]] = {}
        self.schemas: dict[tuple[str, ...], pa.Schema] = {}
        self._footers: FooterCache | None = None
        self.partition_values: dict[tuple[str, str | None], pa.Scalar] = {}

    @property
    def footers(self) -> FooterCache:
        """The footers of files whose rows are read by their pages."""
        if self._footers is None:
            from txlog.scan.pages import FooterCache  # Scans need none.

            self._footers = FooterCache()
        return self._footers

    @footers.setter
    def footers(self, footers: FooterCache) -> None:
        self._footers = footers

    def __reduce__(self) -> tuple[type[ReadMemo], tuple[()]]:
        return ReadMemo, ()


@dataclass(frozen=True, kw_only=True)
class ReadPlan:
    """How to read a fragment: it pickles, so any worker can do it without the log."""

    root: str
    version: int
    columns: tuple[StructField, ...]  # In the order of the result.
    needed: tuple[StructField, ...]  # Those and the predicate's: the table's, then metadata's.
    metadata_columns: frozenset[str] = frozenset()  # Of those, the ones that are no table's.
    partition_columns: frozenset[str]  # Logical names.
    mapping_mode: str
    where: Expression | None  # Bound to the table's schema.
    row_tracking: RowTracking | None = None
    # Of the columns, those that are fields of structs, with their paths. Of `needed`, their structs
    # may have no more than the fields that are read.
    nested: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    memo: ReadMemo = field(default_factory=ReadMemo, repr=False, compare=False)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        return arrow_schema(StructType(self.columns))


@dataclass(frozen=True, kw_only=True)
class ScanPlan(ReadPlan):
    """A scan, decided: what to read, and how."""

    fragments: tuple[Fragment, ...] = field(repr=False)  # That survive, ordered by id.
    # For each fragment, whether the predicate is true of all its rows.
    certain: tuple[bool, ...] = field(repr=False)
    explanation: Explanation

    @property
    def reading(self) -> ReadPlan:
        """How any of the fragments is read: what a worker gets, however many there are."""
        return ReadPlan(**_reading(self))

    @property
    def counts(self) -> tuple[int | None, ...]:
        """For each fragment, how many of its rows are wanted; None where only reading tells."""
        return tuple(
            rows if certain and rows is not None and rows >= 0 else None  # A log may be wrong.
            for rows, certain in zip(
                (fragment.num_rows for fragment in self.fragments), self.certain, strict=True
            )
        )

    @property
    def to_read(self) -> tuple[Fragment, ...]:
        """The fragments, with what reading takes of them."""
        return self.fragments

    @property
    def paths(self) -> pa.Array:
        """The paths of the files to read, as logged, in the order of their fragments."""
        paths = [file.path for fragment in self.fragments for file in fragment.files]
        return arrow_array(paths, pa.string())

    def count(self) -> tuple[int, tuple[Fragment, ...]]:
        """Return how many rows the log counts, and the fragments of which only reading tells."""
        pairs = list(zip(self.fragments, self.counts, strict=True))
        known = sum(count for _, count in pairs if count is not None)
        return known, tuple(fragment for fragment, count in pairs if count is None)

    def only(self, chosen: Callable[[Fragment], bool]) -> ScanPlan:
        """Return the plan for some of its fragments."""
        kept = [pair for pair in zip(self.fragments, self.certain, strict=True) if chosen(pair[0])]
        return replace(
            self,
            fragments=tuple(fragment for fragment, _ in kept),
            certain=tuple(certain for _, certain in kept),
        )


@dataclass(frozen=True, kw_only=True)
class FilePlan(ReadPlan):
    """A scan, decided, with its fragments as columns: none of them is an object yet."""

    rows: FragmentRows = field(repr=False)  # That survive.
    physical_rows: pa.Array = field(repr=False)  # int64, of each; null where the log does not say.
    certain: pa.Array = field(repr=False)  # bool, of each: the predicate is true of all its rows.
    explanation: Explanation

    @property
    def reading(self) -> ReadPlan:
        """How any of the fragments is read: what a worker gets, however many there are."""
        return ReadPlan(**_reading(self))

    @property
    def paths(self) -> pa.ChunkedArray:
        """The paths of the files to read, as logged, in no order."""
        chunks = self.rows.primaries["path"].chunks + self.rows.columns.rows["path"].chunks
        return pa.chunked_array(chunks, pa.string())


def live_counts(physical_rows: pa.Array, files: pa.Table) -> pa.Array:
    """Return how many rows of files are not deleted; null where the log does not say that."""
    left = pc.subtract(physical_rows, deleted_counts(files))
    return pc.if_else(pc.greater_equal(left, 0), left, None)  # A log may be wrong.


def _reading(plan: ReadPlan) -> dict[str, Any]:
    return {part.name: getattr(plan, part.name) for part in fields(ReadPlan)}


def scan_schema(snapshot: Snapshot) -> StructType:
    """Return what a scan can return: the table's columns, then the metadata columns."""
    return StructType((*snapshot.schema.fields, *visible_metadata(snapshot).values()))


def plan_files(
    snapshot: Snapshot,
    files: pa.Table,
    *,
    columns: list[str] | None = None,
    where: Expression | None = None,
) -> FilePlan:
    """Decide which of a snapshot's files can hold rows that a scan wants. Pure.

    Parameters
    ----------
    files
        The snapshot's live files, as `FILE_ROWS`.
    columns
        The columns to return, in this order: the table's, or metadata columns. None for all of
        the table's.
    where
        Keep the rows of which this is true.

    Raises
    ------
    InvalidInputError
        A column is not in the table, or the predicate does not fit its schema.
    """
    return plan_live(snapshot, read_plan(snapshot, columns=columns, where=where), files)


def plan_live(snapshot: Snapshot, reading: ReadPlan, files: pa.Table) -> FilePlan:
    """Decide which of a snapshot's live `FILE_ROWS` can hold rows that a scan wants. Pure."""
    rows = fragment_rows(files, listed=snapshot.supports(FEATURE))
    require_same_partitions(rows, snapshot.physical_partition_columns)
    return plan_rows(snapshot, reading, rows)


def plan_rows(snapshot: Snapshot, reading: ReadPlan, rows: FragmentRows) -> FilePlan:
    """Decide which of some fragments of a snapshot can hold rows that a scan wants. Pure."""
    bound, files = reading.where, len(rows.ids)
    if files and snapshot.metadata.schema_string is None:
        raise LogCorruptError(
            path=rows.primaries["path"][0].as_py(),
            version=snapshot.version,
            field="metaData.schemaString",
            reason="the table has files, but no schema that says how to read them",
            remedy="The writer of this log is at fault; open a later version, if there is one",
        )
    if bound is None:
        everything = pa.repeat(arrow_scalar(True), files)
        left = Narrowed(rows, physical_rows(rows), everything, files)
    else:
        require_same_counts(rows)
        left = narrowed(snapshot, bound, rows, reading.row_tracking)
    survivors = left.rows
    return FilePlan(
        **_reading(reading),
        rows=survivors,
        physical_rows=left.physical_rows,
        certain=left.certain,
        explanation=Explanation(
            version=reading.version,
            predicate=None if bound is None else to_sql(bound),
            columns=tuple(column.name for column in reading.columns),
            files=files,
            pruned_by_partition=files - left.in_partition,
            pruned_by_statistics=left.in_partition - len(survivors.ids),
            files_to_read=len(survivors.ids),
            files_with_deletions=len(survivors.ids) - survivors.primaries["dv_id"].null_count,
            bytes_to_read=sum(
                pc.sum(held["size"]).as_py() or 0
                for held in (survivors.primaries, survivors.columns.rows)
            ),
        ),
    )


def read_plan(
    snapshot: Snapshot, *, columns: list[str] | None = None, where: Expression | None = None
) -> ReadPlan:
    """Decide how the fragments of a snapshot are read; arguments and errors as `plan_files`."""
    metadata = visible_metadata(snapshot)
    schema = scan_schema(snapshot)
    names = snapshot.schema.names() if columns is None else columns
    chosen, nested = choose_fields(schema, names)
    bound = None if where is None else bind(where, schema)
    needed = _needed(schema, chosen, bound, nested)
    if ROW_VERSION in metadata and any(column.name == ROW_VERSION for column in needed):
        require_row_tracking(snapshot)
    return ReadPlan(
        root=snapshot.root,
        version=snapshot.version,
        columns=chosen,
        needed=needed,
        metadata_columns=frozenset(column.name for column in needed if column.name in metadata),
        partition_columns=frozenset(snapshot.partition_columns),
        mapping_mode=snapshot.mapping_mode,
        where=bound,
        row_tracking=row_tracking(snapshot),
        nested=nested,
    )


def plan_scan(
    snapshot: Snapshot,
    files: pa.Table,
    *,
    columns: list[str] | None = None,
    where: Expression | None = None,
) -> ScanPlan:
    """Decide which fragments a scan reads; arguments and errors as for `plan_files`. Pure."""
    return as_scan_plan(plan_files(snapshot, files, columns=columns, where=where))


def as_scan_plan(plan: FilePlan) -> ScanPlan:
    """Return a plan with its fragments as values, ordered by id."""
    found = fragments_of(plan.rows, plan.physical_rows)
    # `fragments_of` orders by id; the certainty of each goes along.
    sure = dict(zip(plan.rows.ids.to_pylist(), plan.certain.to_pylist(), strict=True))
    return ScanPlan(
        **_reading(plan),
        fragments=tuple(found),
        certain=tuple(sure[fragment.id] for fragment in found),
        explanation=plan.explanation,
    )


def plan_fragments(
    snapshot: Snapshot,
    fragments: Sequence[Fragment],
    *,
    columns: list[str] | None = None,
    where: Expression | None = None,
) -> ScanPlan:
    """Decide how to read some fragments of a snapshot, in their order; errors as `plan_scan`."""
    plan = plan_scan(snapshot, empty_rows(), columns=columns, where=where)
    explanation = replace(
        plan.explanation,
        files=len(fragments),
        files_to_read=len(fragments),
        files_with_deletions=sum(fragment.deletion is not None for fragment in fragments),
        bytes_to_read=sum(file.size for fragment in fragments for file in fragment.files),
    )
    return replace(
        plan,
        fragments=tuple(fragments),
        certain=(where is None,) * len(fragments),
        explanation=explanation,
    )


def require_table_columns(where: Expression | None, snapshot: Snapshot) -> None:
    """Refuse a predicate of a write that asks for metadata columns.

    Addresses and provisional ids belong to one version, and a write is made on the latest one.

    Raises
    ------
    InvalidInputError
        It does.
    """
    metadata = visible_metadata(snapshot)
    for path in () if where is None else columns_of(where):
        if path[0] in metadata:
            raise InvalidInputError(
                argument="where",
                field=path[0],
                reason="a write cannot go by metadata columns, which may mean other rows by then",
                remedy="Use columns of the table",
            )


def column_names(columns: Sequence[str]) -> list[str]:
    """Return the names of columns that a caller chose.

    Raises
    ------
    InvalidTypeError
        It is one text, whose letters would be taken for names.
    """
    if isinstance(columns, str):
        raise InvalidTypeError(
            argument="columns",
            reason="a list of names was expected, not text",
            remedy=f"Write columns=[{columns!r}]",
        )
    return list(columns)


def choose_columns(schema: StructType, columns: Sequence[str]) -> tuple[StructField, ...]:
    """Return the columns of a schema that a caller names, in the caller's order.

    Raises
    ------
    InvalidInputError
        There is none of a name.
    """
    found = []
    for name in column_names(columns):
        column = schema.get(name) if isinstance(name, str) else None
        if column is None:
            raise InvalidInputError(
                argument="columns",
                field=str(name),
                reason="the table has no such column",
                remedy=f"Choose from {', '.join(schema.names())}",
            )
        found.append(column)
    return tuple(found)


def choose_fields(
    schema: StructType, columns: Sequence[str]
) -> tuple[tuple[StructField, ...], dict[str, tuple[str, ...]]]:
    """Return the columns, and the fields of structs (`st.b`), that a caller names.

    A field comes as a column with its dotted name; the second value has its path.

    Raises
    ------
    InvalidInputError
        There is none of a name.
    """
    nested: dict[str, tuple[str, ...]] = {}
    found: list[StructField] = []
    for name in column_names(columns):
        inside = _in_struct(schema, name)
        if inside is None:
            found += choose_columns(schema, [name])
            continue
        path, inner = inside
        dotted = ".".join(path)
        nested[dotted] = path
        found.append(StructField(dotted, inner.type, True, inner.metadata))
    return tuple(found), nested


def _in_struct(schema: StructType, name: str) -> tuple[tuple[str, ...], StructField] | None:
    """Return a field in structs alone, with its path; None for what is no such field."""
    if not isinstance(name, str) or "." not in name or schema.get(name) is not None:
        return None
    try:
        steps = col(name).path
    except InvalidInputError:
        return None
    kind: DataType = schema
    found: list[StructField] = []
    for step in steps:
        inner = kind.get(step) if isinstance(kind, StructType) else None
        if inner is None:
            return None
        found.append(inner)
        kind = inner.type
    return (tuple(one.name for one in found), found[-1]) if found[1:] else None


def _needed(
    schema: StructType,
    chosen: tuple[StructField, ...],
    where: Expression | None,
    nested: Mapping[str, tuple[str, ...]],
) -> tuple[StructField, ...]:
    whole = {column.name for column in chosen if column.name not in nested}
    if where is not None:
        whole.update(path[0] for path in columns_of(where))
    parts: dict[str, list[tuple[str, ...]]] = {}
    for path in nested.values():
        parts.setdefault(path[0], []).append(path[1:])
    return tuple(
        column if column.name in whole else _part(column, parts[column.name])
        for column in schema.fields
        if column.name in whole or column.name in parts
    )


def _part(field: StructField, paths: Sequence[tuple[str, ...]]) -> StructField:
    """Return a field with no more inside than some paths lead to; (): all of it."""
    if not isinstance(field.type, StructType) or () in paths:
        return field
    kept = [
        _part(inner, below)
        for inner in field.type.fields
        if (below := [path[1:] for path in paths if path[0] == inner.name])
    ]
    return replace(field, type=StructType(tuple(kept)))
