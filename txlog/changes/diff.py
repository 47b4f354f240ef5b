"""The difference of two versions: inserted, deleted and changed rows, read from changed files only.

The feed has the changes of each version; a difference has the rows that two versions do not have in
common, for every table. Files that both versions have are not opened. Rules: spec/feed.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from txlog.base.arrow import arrow_array, arrow_scalar, numpy_array, pc
from txlog.base.columns import flat
from txlog.base.errors import InvalidInputError, UnsupportedFeatureError, require_whole
from txlog.base.observe import reading
from txlog.base.row_codes import Codes, comparable, row_codes
from txlog.base.threads import Engine, Threads
from txlog.base.thresholds import Threshold
from txlog.changes.change_plan import CHANGE_COLUMNS, ChangeFile, file_differences
from txlog.changes.changes import possible_changes
from txlog.changes.file_changes import read_changes
from txlog.changes.forms import faults_between, rows_in_names_of_files
from txlog.expressions.tree import Expression
from txlog.fragments.fragment import Fragment
from txlog.fragments.rows import FEATURE
from txlog.log.paths import canonical_keys
from txlog.reconcile.files import file_keys, overlay, text_hashes
from txlog.scan.columns import ROW_ID
from txlog.scan.data_file import BATCH_ROWS
from txlog.scan.deletions import load_deletions
from txlog.scan.files import as_fragments, live_sequence
from txlog.scan.read import FragmentReader
from txlog.scan.read_plan import ReadPlan, column_names, read_plan, require_table_columns
from txlog.scan.scan import ArrowStream, repr_of
from txlog.schema.types import CHANGE_TYPE, StructType, as_nullable
from txlog.snapshot.commits import DamagedError, read_deltas
from txlog.snapshot.live_files import fold_files, load_files
from txlog.snapshot.load import list_commits, warn_of_damage
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store

# The rows of both versions that are held and compared at a time.
ROWS_AT_ONCE: Threshold = 2_000_000
_TURNED = {"insert": "delete", "delete": "insert"}
_WANTED = ("path", "deletion_vector", "dv_id", "partition_values", "size", "stats", "tags",
           "base_row_id", "default_row_commit_version", "modification_time")  # fmt: skip


@dataclass(frozen=True, repr=False)
class Diff(ArrowStream):
    """Rows that two versions do not have in common, planned but not yet read.

    Besides the columns, each row has `_change_type`: `insert`, `delete`, and with a key also
    `update_preimage` followed by `update_postimage`. Rows come in no special order.
    Every library that reads the Arrow C stream (pyarrow, polars, duckdb, pandas) can read a diff.
    """

    store: Store
    plan: ReadPlan
    files: tuple[ChangeFile, ...]
    start_version: int
    end_version: int
    columns: tuple[str, ...]  # The names of the table's columns.
    on: tuple[str, ...]  # The key; empty: rows are compared as a whole.
    engine: Engine = field(default_factory=Threads)
    rows_at_once: int = ROWS_AT_ONCE

    def __repr__(self) -> str:
        versions = f"start_version={self.start_version}, end_version={self.end_version}"
        on = f", on=[{', '.join(self.on)}]" if self.on else ""
        return repr_of("Diff", self.plan, versions + on, self.columns)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        kept = [self.plan.schema.field(name) for name in (*self.columns, CHANGE_TYPE)]
        return pa.schema(kept)

    def to_batches(self, *, batch_size: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the rows, in batches of 1 to `batch_size` rows."""
        require_whole("batch_size", batch_size, 1)
        names = self.schema.names
        if len({file.change_type for file in self.files}) < 2:  # No row can be on both sides.
            for file in self.files:
                for batch in read_changes(self.store, self.plan, file, batch_rows=batch_size):
                    yield batch.select(names)
            return
        for before, after in self._sides():
            for batch in compared(before, after, self.on, self.columns).to_batches(batch_size):
                if batch.num_rows:
                    yield batch.select(names)

    @reading("DIFF")
    def to_arrow(self) -> pa.Table:
        """Return the rows as one table."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def count(self) -> dict[str, int]:
        """Return the numbers of inserted, deleted and updated rows: `insert`, `delete`, `update`.

        No data file is opened if there are only inserts or only deletes and the log has the
        numbers.
        """
        found = dict.fromkeys(("insert", "delete", "update"), 0)
        if len({file.change_type for file in self.files}) < 2:
            counts = self.engine.map(partial(_count, self.store, self.plan), self.files)
            for file, rows in zip(self.files, counts, strict=True):
                found[str(file.change_type)] += rows
            return found
        for batch in self.to_batches():
            for item in pc.value_counts(batch.column(CHANGE_TYPE)).to_pylist():
                name = item["values"].removesuffix("_preimage")
                if name in found:
                    found[name] += item["counts"]
        return found

    def _sides(self) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Yield the rows of both versions in parts that fit into memory; equal keys together."""
        known = [_known_rows(file) for file in self.files]
        total = sum(rows for rows in known if rows is not None)
        if None in known:  # A file without a row count may be large.
            total += sum(
                _rows_in(self.store, self.plan, file)
                for file, rows in zip(self.files, known, strict=True)
                if rows is None
            )
        parts = max(1, -(-total // self.rows_at_once))
        keys = self.on or self.columns
        for part in range(parts):
            read = partial(_read_part, self.store, self.plan, keys, parts, part)
            sides: dict[str, list[pa.RecordBatch]] = {"delete": [], "insert": []}
            for file, batches in zip(self.files, self.engine.map(read, self.files), strict=True):
                sides[str(file.change_type)].extend(batches)
            before, after = (
                pa.Table.from_batches(sides[side], schema=self.plan.schema)
                for side in ("delete", "insert")
            )
            yield before, after


def _known_rows(file: ChangeFile) -> int | None:
    """Return the maximum number of rows of a file by the log."""
    if file.among is not None:
        return file.among.num_deleted_rows
    return file.fragment.physical_rows


def _rows_in(store: Store, plan: ReadPlan, file: ChangeFile) -> int:
    return FragmentReader(store, plan, file.fragment).count_rows()


def _count(store: Store, plan: ReadPlan, file: ChangeFile) -> int:
    """Return the number of changed rows of a file, from the log or else from the file."""
    if plan.where is None:
        left_out = load_deletions(store, file.fragment) or BitMap64()
        if file.among is not None:
            among = load_deletions(store, replace(file.fragment, deletion=file.among))
            return len((among or BitMap64()) - left_out)
        rows = file.fragment.physical_rows
        return (_rows_in(store, plan, file) if rows is None else rows) - len(left_out)
    return sum(batch.num_rows for batch in read_changes(store, plan, file))


def _read_part(
    store: Store, plan: ReadPlan, keys: Sequence[str], parts: int, part: int, file: ChangeFile
) -> list[pa.RecordBatch]:
    batches = read_changes(store, plan, file)
    if parts == 1:
        return list(batches)
    kept = (batch.filter(arrow_array(_parts(batch, keys, parts) == part)) for batch in batches)
    return [batch for batch in kept if batch.num_rows]


def _parts(rows: pa.RecordBatch, keys: Sequence[str], parts: int) -> Any:
    """Return the part of each row; equal rows are in the same part."""
    hashes = np.zeros(rows.num_rows, np.uint64)
    for name in keys:
        for values in comparable(rows.column(name)):
            if not pa.types.is_binary(values.type):
                # For a text, whole groups of eight bytes count, from its end.
                texts = pc.binary_join_element_wise(
                    "." * 8, pc.fill_null(values.cast(pa.string()), ""), ""
                )
                hashes = _mixed(hashes * np.uint64(31) + text_hashes(texts))
    return hashes % np.uint64(parts)


def _mixed(hashes: Any) -> Any:
    """Return hashes in which every bit depends on all bits."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        hashes = (hashes ^ (hashes >> np.uint64(33))) * np.uint64(factor)
    return hashes ^ (hashes >> np.uint64(33))


# Comparing. Pure. --------------------------------------------------------------------------------


def _ranks(codes: Codes) -> Codes:
    """Return for each row the number of earlier rows with the same code."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    first = np.searchsorted(ordered, ordered, "left")
    ranks = np.empty(len(codes), np.int64)
    ranks[order] = np.arange(len(codes)) - first
    return ranks


def _left_over(codes: Codes, others: Codes) -> Codes:
    """Return the rows that the other side does not have, or has fewer times."""
    size = int(max(codes.max(initial=-1), others.max(initial=-1))) + 1
    counts = np.bincount(others, minlength=size)
    return np.flatnonzero(_ranks(codes) >= counts[codes]) if len(codes) else codes


def compared(
    before: pa.Table, after: pa.Table, on: Sequence[str], columns: Sequence[str]
) -> pa.Table:
    """Return the rows that only one side has, with `_change_type`.

    Rows that both sides have equally often do not count as changes. Among the other rows, two rows
    with the same key are the images of an update. If a key occurs more than once, its rows are
    paired in order. Null keys are equal.
    """
    names = dict.fromkeys((*on, *columns))
    gone, came = row_codes(before, after, names)
    old, new = _left_over(gone, came), _left_over(came, gone)
    left, right = before.take(arrow_array(old)), after.take(arrow_array(new))
    paired = np.zeros(len(old), np.int64), np.zeros(len(new), np.int64)
    kinds = [np.full(len(old), "delete", object), np.full(len(new), "insert", object)]
    if on and len(old) and len(new):
        old_keys, new_keys = row_codes(left, right, on)
        both = row_codes(
            pa.table({"key": arrow_array(old_keys), "rank": arrow_array(_ranks(old_keys))}),
            pa.table({"key": arrow_array(new_keys), "rank": arrow_array(_ranks(new_keys))}),
            ("key", "rank"),
        )
        for kind, own, other, image in zip(kinds, both, both[::-1], ("pre", "post"), strict=True):
            kind[np.isin(own, other)] = f"update_{image}image"
        paired = both
    whole = pa.concat_tables([left, right])
    changes = np.concatenate(kinds)
    is_update = np.char.startswith(changes.astype(str), "update")
    side = np.repeat([0, 1], [len(old), len(new)])
    # The two images of a row are adjacent; other rows keep their order.
    order = np.lexsort((side, np.where(is_update, np.concatenate(paired), 0), is_update))
    place = whole.schema.get_field_index(CHANGE_TYPE)
    field_ = whole.schema.field(place)
    whole = whole.set_column(place, field_, arrow_array(changes.tolist(), pa.string()))
    return whole.take(arrow_array(order.astype(np.int64)))


# Planning ----------------------------------------------------------------------------------------


def plan_diff(
    store: Store,
    start: Snapshot,
    end: Snapshot,
    *,
    on: Sequence[str] | None = None,
    columns: list[str] | None = None,
    where: Expression | None = None,
    engine: Engine | None = None,
) -> Diff:
    """Plan the difference of two versions; arguments as for `Table.diff`.

    Only commits between the two are read; the lists of files are read only if the commits are not
    sufficient.

    Raises
    ------
    UnsupportedFeatureError
        The rows of one version do not fit the columns of the other.
    InvalidInputError
        A column is unknown, or the predicate does not fit.
    """
    first, last = (start, end) if start.version <= end.version else (end, start)
    if faults := faults_between(first.form, last.form):
        raise UnsupportedFeatureError(
            path=last.root,
            features=("diff",),
            reason=f"rows of version {first.version} do not fit the columns of version "
            f"{last.version}: {'; '.join(faults)}",
            remedy="Compare versions before it, or after it, with each other",
        )
    require_table_columns(where, last)
    by_id = on is None and first.has_stable_row_ids and last.has_stable_row_ids
    names = last.schema.names() if columns is None else _known("columns", last.schema, columns)
    key = (
        [ROW_ID] if by_id else _known("on", last.schema, [on] if isinstance(on, str) else on or ())
    )
    plan = read_plan(last, columns=list(dict.fromkeys((*names, *key))), where=where)
    change = CHANGE_COLUMNS.fields[0]
    if last.schema.get(change.name) is not None:
        raise InvalidInputError(
            argument="columns", field=change.name, reason="a diff needs this column for itself"
        )
    # Rows may be older than a column or its NOT NULL.
    shown, needed = as_nullable(plan.columns), as_nullable(plan.needed)
    plan = replace(plan, columns=(*shown, change), needed=needed).for_arrow()
    files = changed_between(store, first, last, with_ids=by_id)
    if start is not first:
        files = [replace(file, change_type=_TURNED[str(file.change_type)]) for file in files]
    if where is not None:
        files = possible_changes(files, plan, last)
    return Diff(
        store, plan, tuple(files), start.version, end.version, tuple(names), tuple(key),
        engine or Threads(),
    )  # fmt: skip


def _known(argument: str, schema: StructType, names: Sequence[str]) -> list[str]:
    """Return columns of the table by their exact names."""
    found = [(name, schema.get(name)) for name in column_names(names)]
    for name, column in found:
        if column is None:
            raise InvalidInputError(
                argument=argument,
                field=name,
                reason=f"the table has no column {name}",
                remedy=f"Choose from {', '.join(schema.names())}",
            )
    return [column.name for _, column in found if column is not None]


def changed_between(
    store: Store, first: Snapshot, last: Snapshot, *, with_ids: bool = False
) -> list[ChangeFile]:
    """Return the files whose rows only the earlier version has, or only the later one.

    If both versions have a file with different deletion vectors, these are the rows in which the
    vectors differ.
    """
    if first.supports(FEATURE) or last.supports(FEATURE):
        before, after = (
            list(live_sequence(one, rows_in_names_of_files(load_files(store, one).live, one.form)))
            for one in (first, last)
        )
    else:
        gone, came = _touched(store, first, last, with_ids)
        gone = rows_in_names_of_files(gone, first.form)
        came = rows_in_names_of_files(came, last.form)
        old, new = file_keys(gone), file_keys(came)
        before, after = (
            as_fragments(rows.filter(pc.invert(pc.is_in(own, value_set=flat(other)))))
            for rows, own, other in ((gone, old, new), (came, new, old))
        )
    return [
        ChangeFile(last.version, 0, change_type, fragment, among)
        for was, now in _pairs(before, after)
        for change_type, fragment, among in file_differences(now, was)
    ]


def _pairs(
    before: Sequence[Fragment], after: Sequence[Fragment]
) -> Iterator[tuple[Fragment | None, Fragment | None]]:
    """Yield the change of each file; unchanged files are left out."""
    old = dict(zip(_keys_of(before), before, strict=True))
    for key, fragment in zip(_keys_of(after), after, strict=True):
        was = old.pop(key, None)
        if was is None:
            yield None, fragment
        elif was.deletion != fragment.deletion:
            yield was, fragment
    for fragment in old.values():
        yield fragment, None


def _keys_of(fragments: Sequence[Fragment]) -> Iterator[tuple[str, ...]]:
    """Yield the keys of the files of fragments."""
    paths = [file.path for fragment in fragments for file in fragment.files]
    keys = iter(canonical_keys(arrow_array(paths, pa.string())).to_pylist())
    for fragment in fragments:
        yield tuple(next(keys) for _ in fragment.files)


def _touched(
    store: Store, first: Snapshot, last: Snapshot, with_ids: bool
) -> tuple[pa.Table, pa.Table]:
    """Return the files that commits between two versions touch, as they are in each version."""
    since = first.version + 1
    commits = list_commits(store, last, since=since) if first.version < last.version else []
    if [file.version for file in commits] != list(range(since, last.version + 1)):
        return load_files(store, first).live, load_files(store, last).live
    try:
        actions = read_deltas(store, commits).files
    except DamagedError as damage:  # A checkpoint after it has the files of the later version.
        warn_of_damage(damage)
        return load_files(store, first).live, load_files(store, last).live
    if not actions.num_rows:
        return actions, actions
    paths = canonical_keys(actions["path"])
    known = _told_by_removes(actions, with_ids=with_ids, partitioned=bool(last.partition_columns))
    if known is None:
        among = pc.unique(paths)

        def chosen(files: pa.Table) -> pa.Table:
            return files.filter(pc.is_in(canonical_keys(files["path"]), value_set=flat(among)))

        from txlog.checkpoint.file_rows import Wanted

        known = fold_files(
            store,
            first,
            Wanted(_WANTED),
            lambda batches: pa.concat_tables(
                [batch for _, batch in batches], promote_options="permissive"
            ),
            select=chosen,
        )
    known = known.select(actions.column_names)
    return known, overlay(known, actions).live


def _told_by_removes(actions: pa.Table, *, with_ids: bool, partitioned: bool) -> pa.Table | None:
    """Return the touched files of the earlier version, if the commits show all of them.

    The first action on a file decides: after a remove, the earlier version had the file; after an
    add with new rows, it did not. After an add without new rows, it may have had the file.
    """
    keys = flat(file_keys(actions))
    encoded = keys.dictionary_encode()
    places = numpy_array(encoded.indices)
    _, first = np.unique(places, return_index=True)  # The commits are in ascending order.
    firsts = actions.take(arrow_array(np.sort(first).astype(np.int64)))
    added = firsts.filter(firsts["is_add"])
    removed = firsts.filter(pc.invert(firsts["is_add"]))
    if not pc.all(added["data_change"]).as_py() and added.num_rows:
        return None
    needs = ["base_row_id"] * with_ids + ["partition_values"] * partitioned
    if any(removed[name].null_count for name in needs):
        return None
    place = removed.schema.get_field_index("is_add")
    true = pa.repeat(arrow_scalar(True), removed.num_rows)
    return removed.set_column(place, removed.schema.field(place), true)
