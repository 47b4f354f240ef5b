"""Delete rows with deletion vectors, or by rewriting files if the table forbids vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyroaring import BitMap64

from txlog.actions.file import Add, DeletionVectorDescriptor, Remove
from txlog.actions.stats_text import StatsText
from txlog.base.arrow import arrow_array, pc
from txlog.base.effects import Effects
from txlog.base.errors import InternalError
from txlog.base.threads import Engine, for_sizes, map_all
from txlog.base.thresholds import Threshold
from txlog.commit.context import Context
from txlog.data_files.change_files import (
    RowsOf,
    deleted_rows,
    discard_changes,
    records_changes,
    write_rows_of,
)
from txlog.data_files.options import WriteOptions
from txlog.data_files.rewrite import RewritePlan, RewrittenPart, plan_rewrite, rewrite
from txlog.data_files.row_changes import FileDeletes, RowChanges
from txlog.data_files.write import discard_groups
from txlog.expressions.tree import Expression
from txlog.fragments.deletion_file import (
    DELETIONS_FOLDER,
    deletion_kind,
    deletion_name,
    encode_deletions,
    lance_descriptor,
)
from txlog.fragments.deletion_vector import (
    INLINE_LIMIT,
    encode_file,
    encode_vector,
    file_name,
    inline_descriptor,
    logged_path,
    stored_descriptor,
)
from txlog.fragments.fragment import Fragment, is_in_log, rows_left
from txlog.scan.deletions import load_deletions
from txlog.scan.files import as_fragments
from txlog.scan.lazy_plan import plan_snapshot
from txlog.scan.plan import ScanPlan
from txlog.scan.read import FragmentReader
from txlog.scan.read_plan import ReadPlan, require_table_columns
from txlog.snapshot.commits import Commit, file_rows
from txlog.snapshot.live_files import Select, load_files, rows_at
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.structs import with_json_stats
from txlog.store.base import Store


def _deletes_of(store: Store, plan: ReadPlan, fragment: Fragment) -> FileDeletes:
    rows, physical_rows = FragmentReader(store, plan, fragment).matching()
    deleted = load_deletions(store, fragment) if rows else None
    return FileDeletes(fragment, rows, BitMap64() if deleted is None else deleted, physical_rows)


def find_rows(store: Store, plan: ScanPlan, engine: Engine) -> list[FileDeletes]:
    """Return the rows for which the plan's predicate is true, for each fragment with any."""
    every = replace(plan.reading, where=None)
    parts = [
        (every if sure else plan.reading, fragment)
        for fragment, sure in zip(plan.fragments, plan.certain, strict=True)
    ]
    engine = for_sizes(engine, (file.size for _, fragment in parts for file in fragment.files))
    return [one for one in engine.map(partial(_rows_found, store), parts) if one.rows]


def _rows_found(store: Store, part: tuple[ReadPlan, Fragment]) -> FileDeletes:
    return _deletes_of(store, *part)


def find_deletes(
    store: Store, plan: ScanPlan, engine: Engine
) -> tuple[list[Fragment], list[FileDeletes]]:
    """Return the fragments that are deleted completely, and those from which rows are deleted.

    Reads only the predicate's columns, and only of fragments that statistics do not decide.
    """
    pairs = list(zip(plan.fragments, plan.certain, strict=True))
    whole = [fragment for fragment, sure in pairs if sure]
    open_ = [fragment for fragment, sure in pairs if not sure]
    engine = for_sizes(engine, (file.size for fragment in open_ for file in fragment.files))
    deletes = engine.map(partial(_deletes_of, store, plan.reading), open_)
    return whole, [one for one in deletes if one.rows]


def write_deletions(
    context: Context, snapshot: Snapshot, deletes: Sequence[FileDeletes]
) -> list[DeletionVectorDescriptor]:
    """Store the deletions of each file, in the form that a table has them."""
    if snapshot.deletion_format != "lance":
        return write_vectors(context.store, deletes, context.effects)
    descriptors = []
    with context.store.new_files() as open_output:  # All files are written, or none.
        for one in deletes:
            gone = one.rows | one.deleted
            kind = deletion_kind(len(gone))
            number = int(context.effects.uuid().replace("-", ""), 16) % 2**64
            name = deletion_name(one.fragment.id, snapshot.version, number, kind)
            data = encode_deletions(gone, kind=kind)
            with open_output(f"{DELETIONS_FOLDER}/{name}") as sink:
                sink.write(data)
            descriptors.append(lance_descriptor(name, data, len(gone)))
    return descriptors


def deletion_path(descriptor: DeletionVectorDescriptor) -> str | None:
    """Return the path of a deletion file relative to the table's root; None if there is none."""
    if descriptor.storage_type == "lance":
        return f"{DELETIONS_FOLDER}/{descriptor.path_or_inline_dv}"
    return logged_path(descriptor, path="") if descriptor.storage_type == "u" else None


def write_vectors(
    store: Store, deletes: Sequence[FileDeletes], effects: Effects
) -> list[DeletionVectorDescriptor]:
    """Store the deletion vector of each file, all of a commit's larger ones in one file."""
    vectors = [encode_vector(one.rows | one.deleted) for one in deletes]
    counts = [len(one.rows) + len(one.deleted) for one in deletes]
    stored = [vector for vector in vectors if len(vector) > INLINE_LIMIT]
    uuid = effects.uuid()
    offsets: list[int] = []
    if stored:
        data, offsets = encode_file(stored)
        store.write_new(file_name(uuid), data)
    remaining = iter(offsets)
    return [
        inline_descriptor(vector, count)
        if len(vector) <= INLINE_LIMIT
        else stored_descriptor(uuid, offset=next(remaining), size=len(vector), cardinality=count)
        for vector, count in zip(vectors, counts, strict=True)
    ]


def only_deleted(store: Store, rows: pa.Table) -> bool:
    """Return whether a commit with new vectors only deleted rows and restored none.

    `rows` are its file actions as `FILE_ROWS`.
    """
    sides: dict[str, dict[bool, Fragment]] = {}
    for fragment, is_add in zip(as_fragments(rows), rows["is_add"].to_pylist(), strict=True):
        sides.setdefault(fragment.path, {})[is_add] = fragment
    for side in sides.values():
        if len(side) == 2:
            before, after = (load_deletions(store, side[key]) for key in (False, True))
            if before is not None and (after is None or before - after):
                return False
    return True


# What a `remove` has of the file's `add`, and what it states besides.
_OF_ADD = (
    "path",
    "partition_values",
    "size",
    "tags",
    "deletion_vector",
    "base_row_id",
    "default_row_commit_version",
)
_STATED = {*_OF_ADD, "deletion_timestamp", "data_change", "extended_file_metadata"}


def removes_of(rows: pa.Table, now_ms: int, *, data_change: bool = True) -> list[Remove]:
    """Return the `remove` actions for live `FILE_ROWS`, which need not have statistics.

    Without `data_change`, the same commit adds their rows again.
    """
    return [
        # The values of an `add` are valid. All removes share one set of names, which would need as
        # much memory as the rest: an overwrite may remove a million files.
        Remove.model_construct(
            _STATED,
            deletion_timestamp=now_ms,
            data_change=data_change,
            extended_file_metadata=True,
            **{name: getattr(add, name) for name in _OF_ADD},
        )
        for add in _adds_in(_without_statistics(rows))
    ]


def _without_statistics(rows: pa.Table) -> pa.Table:
    names = [name for name in rows.column_names if name not in ("stats", "stats_parsed")]
    return rows.select(names).append_column("stats", pa.nulls(rows.num_rows, pa.string()))


def adds_of(rows: pa.Table) -> list[Add]:
    """Return live `FILE_ROWS` as `add` actions: for the few that a commit touches."""
    return list(_adds_in(rows))


_ROWS_AT_ONCE: Threshold = 1024


def _adds_in(rows: pa.Table) -> Iterator[Add]:
    """Yield the results of `adds_of`. The dicts of few rows exist at a time: they are large."""
    step = max(_ROWS_AT_ONCE, 1)
    for start in range(0, rows.num_rows, step):
        part = with_json_stats(rows.slice(start, step)).select(list(Add.model_fields))
        for row in part.to_pylist(maps_as_pydicts="lossy"):
            yield Add.model_validate({**row, "partition_values": row["partition_values"] or {}})


def with_vector(add: Add, vector: DeletionVectorDescriptor, physical_rows: int) -> Add:
    """Return a file's `add` with a new deletion vector; its bounds are then no longer tight."""
    return add.model_copy(
        update={
            "deletion_vector": vector,
            "data_change": True,
            "stats": StatsText(add.stats).loosened(physical_rows).text,
        }
    )


def plan_changes(
    context: Context,
    snapshot: Snapshot,
    where: Expression | None,
    chosen: Select | None = None,
    only: pa.ChunkedArray | None = None,
) -> ScanPlan:
    """Plan which files of a version an operation looks at; errors as for `plan_scan`.

    Of a large table the plan reads only what shows this, as that of a scan does. Of a very large
    one, workers of the context's engine read it. `chosen` and `only` are those of `plan_snapshot`.
    """
    store = context.store
    return plan_snapshot(
        store,
        snapshot,
        lambda: load_files(store, snapshot).live,
        columns=[],
        where=where,
        engine=context.engine,
        chosen=chosen,
        only=only,
    )


def delete_rows(
    context: Context, snapshot: Snapshot, plan: ScanPlan, options: WriteOptions
) -> RowChanges:
    """Find the rows of a plan's predicate, and write vectors or new files to delete them."""
    require_table_columns(plan.reading.where, snapshot, plan.live, row_ids=True)
    if options.use_index:
        plan = context.indexed(snapshot, plan)
    whole, deletes = find_deletes(context.store, plan, context.engine)
    return apply_deletes(context, snapshot, plan, whole, deletes, options)


def delete_positions(
    context: Context,
    snapshot: Snapshot,
    plan: ScanPlan,
    rows: Mapping[int, BitMap64],
    options: WriteOptions,
    *,
    records: bool = True,
) -> RowChanges:
    """Delete rows, given by fragment id and position, with vectors or new files.

    Parameters
    ----------
    plan
        Of the files that may have such rows, with their ids.
    records
        As for `apply_deletes`.

    Raises
    ------
    InternalError
        A row is not in the version.
    """
    wanted_ids = arrow_array(list(rows), pa.int64())
    chosen = plan.files.filter(pc.is_in(plan.files.rows.ids, value_set=wanted_ids))
    fragments = {fragment.id: fragment for fragment in chosen.fragments()}
    parts = [(fragments.get(number), wanted) for number, wanted in rows.items() if wanted]
    find = partial(_deletes_at, context.store, plan.reading)
    known = [part for part in parts if _is_known(part[0])]  # These need no reading of files.
    unknown = [part for part in parts if not _is_known(part[0])]
    deletes = [*map(find, known), *context.engine.map(find, unknown)]
    return apply_deletes(context, snapshot, plan, [], deletes, options, records=records)


def _is_known(fragment: Fragment | None) -> bool:
    """Return whether the log itself has the count of a fragment's rows, and its deleted rows."""
    return fragment is None or (is_in_log(fragment.deletion) and fragment.physical_rows is not None)


def _deletes_at(
    store: Store, plan: ReadPlan, part: tuple[Fragment | None, BitMap64]
) -> FileDeletes:
    fragment, rows = part
    deleted = BitMap64()
    physical_rows = 0
    if fragment is not None:
        deleted = load_deletions(store, fragment) or deleted
        physical_rows = fragment.physical_rows or FragmentReader(store, plan, fragment).count_rows()
    if fragment is None or rows.max() >= physical_rows or rows & deleted:
        raise InternalError(
            reason="the version does not have some of the found rows"
            + ("" if fragment is None else f", in {fragment.path}"),
            remedy="Nothing was committed. Please report this error with the table's log",
        )
    return FileDeletes(fragment, rows, deleted, physical_rows)


def apply_deletes(
    context: Context,
    snapshot: Snapshot,
    plan: ScanPlan,
    whole: Sequence[Fragment],
    deletes: Sequence[FileDeletes],
    options: WriteOptions,
    *,
    records: bool = True,
) -> RowChanges:
    """Write vectors or new files to delete rows, and remove whole fragments.

    Parameters
    ----------
    records
        Whether to record the deleted rows as changes if the table requires it.
    """
    # Removes of whole files record their rows, but not those of fragments with column files.
    gone = [*whole, *(one.fragment for one in deletes if one.is_whole)]
    shown = all(one.is_whole for one in deletes) and all(len(one.files) == 1 for one in gone)
    if not records or not records_changes(snapshot) or shown:
        return _applied(context, snapshot, plan, whole, deletes, options)
    parts = [RowsOf("delete", one.fragment, one.rows) for one in deletes]
    cdc = write_rows_of(context, snapshot, [*parts, *deleted_rows(whole)])
    try:
        applied = _applied(context, snapshot, plan, whole, deletes, options)
    except BaseException:
        discard_changes(context.store, cdc)
        raise
    return replace(applied, cdc=tuple(cdc))


def _applied(
    context: Context,
    snapshot: Snapshot,
    plan: ScanPlan,
    whole: Sequence[Fragment],
    deletes: Sequence[FileDeletes],
    options: WriteOptions,
) -> RowChanges:
    now_ms = context.effects.now_ms()
    emptied = [one for one in deletes if one.is_whole]
    partial_ones = tuple(one for one in deletes if not one.is_whole)
    removed = [*whole, *(one.fragment for one in emptied)]
    marks = snapshot.marks_deletions
    leaving = [file.path for fragment in removed for file in fragment.files]
    for one in partial_ones:  # A deletion vector changes only the primary file's `add`.
        leaving.extend(file.path for file in one.fragment.files[: 1 if marks else None])
    touched = plan.rows_at(leaving)
    result = RowChanges(
        plan.reading.where,
        tuple(removes_of(touched, now_ms)),
        rows=_count_rows(context, plan.reading, whole) + sum(len(one.rows) for one in deletes),
        files_removed=len(removed),
    )
    if not partial_ones:
        return result
    if marks:
        adds, stored = _with_vectors(context, snapshot, partial_ones, touched)
        return replace(result, vectored=adds, vector_files=stored, files=partial_ones)
    rewritten = _rewritten(context, plan_rewrite(snapshot, options), partial_ones)
    return replace(
        result,
        written=rewritten,
        copied_rows=sum(add.num_records or 0 for add in rewritten),
        files_removed=len(removed) + len(partial_ones),
    )


def _count_rows(context: Context, plan: ReadPlan, fragments: Sequence[Fragment]) -> int:
    """Return the row counts of fragments, from the log or else from their files."""
    unknown = [fragment for fragment in fragments if fragment.num_rows is None]
    known = sum(fragment.num_rows or 0 for fragment in fragments)
    return known + sum(context.engine.map(partial(_rows_left, context.store, plan), unknown))


def _with_vectors(
    context: Context, snapshot: Snapshot, deletes: Sequence[FileDeletes], rows: pa.Table
) -> tuple[tuple[Add, ...], tuple[str, ...]]:
    """Write deletion vectors; return the files' adds with them, and the new vector files.

    `rows` are live `FILE_ROWS`, at least those of the files.
    """
    vectors = write_deletions(context, snapshot, deletes)
    paths = {path for vector in vectors if (path := deletion_path(vector)) is not None}
    live = {add.path: add for add in adds_of(rows)}
    adds = tuple(
        with_vector(live[one.fragment.path], vector, one.physical_rows)
        for one, vector in zip(deletes, vectors, strict=True)
    )
    return adds, tuple(paths)


def united_with(
    context: Context, current: Snapshot, deletes: RowChanges, winners: Sequence[Commit]
) -> RowChanges | None:
    """Return a delete merged with winners that deleted other rows of its files (rule CON-10).

    None if they deleted some of the same rows, if no row of a file would remain, or if they
    restored rows: then the operation must run again.
    """
    if not all(only_deleted(context.store, file_rows([winner])) for winner in winners):
        return None
    paths = [one.fragment.path for one in deletes.files]
    rows = rows_at(context.store, current, paths)
    now = {fragment.path: fragment for fragment in as_fragments(rows)}
    united: list[FileDeletes] = []
    for one, path in zip(deletes.files, paths, strict=True):
        if path not in now:
            return None
        deleted = load_deletions(context.store, now[path]) or BitMap64()
        fragment = replace(now[path], id=one.fragment.id)
        both = replace(one, fragment=fragment, deleted=deleted)
        if one.rows & deleted or both.is_whole:
            return None
        united.append(both)
    ours = removes_of(rows, context.effects.now_ms())
    others = [remove for remove in deletes.removes if remove.path not in now]
    adds, stored = _with_vectors(context, current, united, rows)
    return replace(
        deletes, removes=(*others, *ours), vectored=adds, vector_files=stored, files=tuple(united)
    )


def _rewritten(
    context: Context, plan: RewritePlan, deletes: Sequence[FileDeletes]
) -> tuple[Add, ...]:
    """Write the remaining rows of files to new files; on an error, delete all new files."""
    parts = [(one.fragment, one.rows | one.deleted) for one in deletes]
    made = map_all(
        context.engine,
        partial(rewrite, context, plan),
        neighbours(parts, plan.layout.target_file_bytes),
        undo=partial(discard_groups, context.store),
    )
    return tuple(add for adds in made for add in adds)


def neighbours(parts: Sequence[RewrittenPart], target_bytes: int) -> list[list[RewrittenPart]]:
    """Group parts of rewrites by partition so that each group fills about one file. Pure."""
    groups: dict[frozenset[tuple[str, str | None]], list[list[RewrittenPart]]] = {}
    sizes: dict[frozenset[tuple[str, str | None]], int] = {}
    for part in parts:
        key = frozenset(part[0].partition_values.items())
        size = sum(file.size for file in part[0].files)
        of_partition = groups.setdefault(key, [[]])
        if of_partition[-1] and sizes[key] + size > target_bytes:
            of_partition.append([])
            sizes[key] = 0
        of_partition[-1].append(part)
        sizes[key] = sizes.get(key, 0) + size
    return [group for of_partition in groups.values() for group in of_partition]


def _rows_left(store: Store, plan: ReadPlan, fragment: Fragment) -> int:
    """Return the number of rows of a fragment whose count is not in the log.

    0 if the log states more deleted rows than the file has.
    """
    rows = FragmentReader(store, plan, fragment).count_rows()
    return rows_left(rows, fragment.num_deletions) or 0
