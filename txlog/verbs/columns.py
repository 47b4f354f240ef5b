"""Add and replace columns with values, without rewriting rows.

Rules: spec/fragments.md, FRG-20 to FRG-23.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa
from pyroaring import BitMap64

from txlog.actions.file import Add, Cdc
from txlog.actions.table import Metadata
from txlog.base.errors import CommitConflictError, InvalidInputError, UnsupportedFeatureError
from txlog.base.threads import Threads, map_all
from txlog.commit.context import Context
from txlog.commit.intent import Intent, Reads
from txlog.commit.operation import Operation, require_table_writable
from txlog.data_files.change_files import discard_changes
from txlog.data_files.column_files import ColumnWriter, outdated_files
from txlog.data_files.column_updates import write_images
from txlog.data_files.column_values import ColumnValues, column_values, require_described
from txlog.data_files.constraints import constraints_of
from txlog.data_files.incoming import merged_schema
from txlog.data_files.rewrite import require_movable, version_column
from txlog.data_files.write import discard_files
from txlog.data_files.write_plan import require_same_mapping, settled
from txlog.expressions.bind import columns_of
from txlog.fragments.fragment import Fragment
from txlog.fragments.metadata import data_file
from txlog.fragments.rows import FEATURE
from txlog.protocol.mapping import unmapped, with_schema
from txlog.protocol.properties import dropped_columns, still_dropped, with_dropped
from txlog.scan.deletions import load_deletions
from txlog.scan.plan import plan_scan
from txlog.scan.read import read_fragment
from txlog.scan.read_plan import choose_columns
from txlog.schema.types import StructField, StructType, require_columns
from txlog.snapshot.live_files import load_files
from txlog.snapshot.snapshot import Snapshot
from txlog.verbs.append import require_free_names

_SAMPLE_ROWS = 100

ColumnVerb = Literal["add columns", "replace columns"]


@dataclass
class _Written:
    """The column files that all attempts have written so far.

    A fragment's column file stays valid while the fragment and the files from which its values were
    computed exist, and no deleted row is restored, because such a row has no value.
    """

    by_fragment: dict[tuple[str, ...], tuple[Add | None, Fragment]] = field(default_factory=dict)
    outdated: list[Add] = field(default_factory=list)

    def files(self) -> list[Add]:
        current = [add for add, _ in self.by_fragment.values() if add is not None]
        return current + self.outdated

    def forget(self, key: tuple[str, ...]) -> None:
        add, _ = self.by_fragment.pop(key)
        self.outdated.extend([] if add is None else [add])


class GiveValues(Operation):
    """Add columns with values for all rows, or replace the values of columns.

    Data files do not change: each fragment gets one column file.
    """

    keeps_files = True

    def __init__(
        self,
        verb: ColumnVerb,
        columns: Any,
        *,
        read_columns: Sequence[str] | None = None,
    ) -> None:
        """Take values.

        Parameters
        ----------
        columns, read_columns
            As for `column_values`.
        """
        require_described(columns)
        self.name = verb.upper()
        self._verb: ColumnVerb = verb
        self._columns = columns
        self._read_columns = read_columns
        self._first: tuple[Snapshot, ColumnValues] | None = None
        self._written = _Written()
        self._cdc: list[Cdc] = []  # Of the last attempt.

    def intent(self, base: Snapshot) -> Intent:
        """Return the column files of all fragments; missing ones are written.

        Raises
        ------
        InvalidInputError
            A column to add exists already, a column to replace does not exist or is a partition
            column, or values do not fit.
        UnsupportedFeatureError
            The table lacks the feature `txlog.fragments`; or columns would be replaced, and it is
            append-only, or it tracks rows but names no columns for their ids and versions.
        CommitConflictError
            Another writer added the same column, or rows for which the data has no values.
        """
        require_columns_apart(base)
        if self._first is None:
            self._first = base, self._values(base)
        seen, values = self._first
        _require_nameable(values, base, self._verb)
        _require_unchanged(values, seen, base)
        if self._verb == "replace columns":
            require_replaceable(base)
        metadata = _metadata(values, base, self._verb)
        live = load_files(self.context.store, base).live
        skips = self._verb == "add columns" and _are_null(base, values)
        names = set(values.names_in_files(base.mapping_mode))
        given, version = names, None
        if self._verb == "replace columns" and (column := version_column(base)) is not None:
            version = column.name
            given = {*names, version}
        pairs = () if skips else _files(self.context, base, live, values, self._written, version)
        adds = [add for _, add in pairs]
        removes, shortened = outdated_files(live, given, self.context.effects.now_ms())
        if self._verb == "replace columns":
            self._record(base, pairs)
        return Intent(
            operation=self.name,
            kind=self._verb,
            read_version=base.version,
            metadata=metadata,
            removes=tuple(removes),
            adds=(*shortened, *adds),
            own_files=frozenset(add.path for add in adds),
            cdc=tuple(self._cdc),
            columns=frozenset(names),
            reads=Reads(everything=True),
            parameters={"columns": [f.name for f in values.fields]},
            metrics={
                "numAddedFiles": len(adds),
                "numRemovedFiles": len(removes),
                "numOutputBytes": sum(add.size for add in adds),
            },
        )

    def _values(self, base: Snapshot) -> ColumnValues:
        values = column_values(
            self._columns,
            base.schema,
            read_columns=self._read_columns,
            sample=lambda names: _sample(self.context, base, names),
            nanos=base.supports("timestampNanos"),
        )
        if self._verb == "replace columns":
            return _typed_as_table(values, base)
        return named_in_files(values, base)

    def _record(self, base: Snapshot, pairs: Sequence[tuple[Fragment, Add]]) -> None:
        """Write the rows before and after the change, if the table records changes."""
        self._discard_changes()
        images = [(one, None, one.with_file(data_file(add))) for one, add in pairs]
        self._cdc = write_images(self.context, base, images)

    def _discard_changes(self) -> None:
        cdc, self._cdc = self._cdc, []
        discard_changes(self.context.store, cdc)

    def discard(self) -> None:
        """Delete all files that were written."""
        discard_files(self.context.store, self._written.files())
        self._discard_changes()

    def landed(self, intent: Intent) -> None:
        """Delete the column files of fragments that no longer exist."""
        committed = {add.path for add in intent.adds}
        unused = [add for add in self._written.files() if add.path not in committed]
        discard_files(self.context.store, unused, kept=intent.adds)


def _files(
    context: Context,
    base: Snapshot,
    live: pa.Table,
    values: ColumnValues,
    written: _Written,
    version: str | None,
) -> list[tuple[Fragment, Add]]:
    """Return all fragments with their column files; write those that do not exist yet.

    `version` is the column of versions that the files give, too; then it is a part of the keys.
    """
    rules = _rules_of(base, values)
    reads = _columns_read(base, values)
    plan = plan_scan(base, live, columns=[f.name for f in base.schema.fields if f.name in reads])
    physical = frozenset(f.name_in_files(base.mapping_mode) for f in plan.reading.needed)
    texts = tuple(rule.text for rule in rules)
    texts = texts if version is None else (*texts, version)
    keys = {(*_key(fragment, physical), *texts): fragment for fragment in plan.fragments}
    began = bool(written.by_fragment)
    for key in [*written.by_fragment]:
        if key in keys and not _has_all_values(context, written.by_fragment[key][1], keys[key]):
            written.forget(key)
    missing = {key: f for key, f in keys.items() if key not in written.by_fragment}
    if values.in_order and began and missing:
        raise CommitConflictError(
            version=base.version,
            rule="CON-6",
            path=next(iter(missing.values())).path,
            reason="another writer added or moved rows, or set a constraint, while the values were "
            "written, and the data cannot be read again",
            remedy="Nothing was committed; make the data for the latest version, and try again",
        )
    writer = ColumnWriter(context, plan.reading, values, base.properties, tuple(rules), version)
    engine = Threads(1) if values.in_order else context.engine
    added = map_all(
        engine,
        writer.write,
        missing.values(),
        undo=lambda found: discard_files(context.store, [add for add in found if add is not None]),
    )
    pairs = zip(added, missing.values(), strict=True)
    written.by_fragment.update(zip(missing, pairs, strict=True))
    values.check_end()
    found = ((fragment, written.by_fragment[key][0]) for key, fragment in keys.items())
    return [(fragment, add) for fragment, add in found if add is not None]


def _has_all_values(context: Context, then: Fragment, now: Fragment) -> bool:
    """Whether all rows of a fragment have values in its column file."""
    if then.deletion == now.deletion:
        return True
    gone, still = (load_deletions(context.store, f) or BitMap64() for f in (then, now))
    return not gone - still


def _columns_read(base: Snapshot, values: ColumnValues) -> set[str]:
    """Return the columns on which values and their constraints depend."""
    given = {f.name for f in values.fields}
    rules = _rules_of(base, values)
    ruled = {path[0] for rule in rules for path in columns_of(rule.predicate)}
    return set(values.reads) | (ruled - given)


def _key(fragment: Fragment, read: frozenset[str]) -> tuple[str, ...]:
    """Return a key of the rows and columns from which a fragment's values were computed."""
    files = [f.path for f in fragment.files if f.fields is None or read & set(f.fields)]
    return tuple(files)


def _rules_of(base: Snapshot, values: ColumnValues) -> list[Any]:
    """Return the constraints that use the columns."""
    given = {f.name for f in values.fields}
    return [
        rule
        for rule in constraints_of(base.metadata, base.schema)
        if any(path[0] in given for path in columns_of(rule.predicate))
    ]


def _sample(context: Context, snapshot: Snapshot, names: tuple[str, ...]) -> pa.RecordBatch:
    """Return a few rows, or none if the table has none."""
    plan = plan_scan(snapshot, load_files(context.store, snapshot).live, columns=list(names))
    for fragment in plan.fragments:
        for batch in read_fragment(context.store, plan.reading, fragment, batch_rows=_SAMPLE_ROWS):
            return batch
    return pa.RecordBatch.from_arrays(
        [pa.nulls(0, kind) for kind in plan.reading.schema.types], schema=plan.reading.schema
    )


def _are_null(base: Snapshot, values: ColumnValues) -> bool:
    """Whether no file is needed: the columns are null, and no file has columns of their names."""
    names = set(values.names_in_files(base.mapping_mode))
    free = still_dropped(base.metadata, names) == dropped_columns(base.metadata)
    return values.are_null and free


def _metadata(values: ColumnValues, base: Snapshot, verb: ColumnVerb) -> Metadata | None:
    if verb == "replace columns":
        return None
    merged = merged_schema(base.schema, StructType(values.fields))
    require_columns(merged)
    require_free_names(base, merged)
    again = settled(base, merged_schema(base.schema, unmapped(StructType(values.fields))))
    require_same_mapping(base, StructType(values.fields), again)
    names = set(values.names_in_files(base.mapping_mode))
    metadata = with_schema(base.metadata, merged)
    return with_dropped(metadata, still_dropped(base.metadata, names))


def _typed_as_table(values: ColumnValues, snapshot: Snapshot) -> ColumnValues:
    return replace(values, fields=tuple(_existing(snapshot, f.name) for f in values.fields))


def named_in_files(values: ColumnValues, snapshot: Snapshot) -> ColumnValues:
    """Return new columns with ids and physical names if the table uses column mapping."""
    known = snapshot.schema
    after = settled(snapshot, StructType((*known.fields, *values.fields)))
    return replace(values, fields=after.fields[len(known.fields) :])


def _existing(snapshot: Snapshot, name: str) -> StructField:
    (found,) = choose_columns(snapshot.schema, [name])
    if found.name in snapshot.partition_columns:
        raise InvalidInputError(
            argument="columns",
            field=found.name,
            reason="it is a partition column, so its values determine the files of rows",
            remedy="Choose another column",
        )
    return found


def _require_nameable(values: ColumnValues, snapshot: Snapshot, verb: ColumnVerb) -> None:
    counts = Counter(f.name.lower() for f in values.fields)
    for f in values.fields:
        if counts[f.name.lower()] > 1:
            raise InvalidInputError(
                argument="columns", field=f.name, reason="the column is given twice"
            )
        if verb == "add columns" and snapshot.schema.get(f.name) is not None:
            raise InvalidInputError(
                argument="columns",
                field=f.name,
                reason="the table already has this column",
                remedy="Replace its values with alter.replace_columns",
            )


def _require_unchanged(values: ColumnValues, seen: Snapshot, base: Snapshot) -> None:
    """Raise if a winner changed a column that is written, or from which values are computed.

    Raises
    ------
    CommitConflictError
        The column was dropped or changed, or the table is now partitioned by it (rule CON-2).
    """
    for name in dict.fromkeys((*values.reads, *(given.name for given in values.fields))):
        existing = seen.schema.get(name)
        moved = (name in base.partition_columns) != (name in seen.partition_columns)
        if existing is not None and (base.schema.get(name) != existing or moved):
            raise CommitConflictError(
                version=base.version,
                rule="CON-2",
                field=name,
                reason=f"another writer dropped or changed the column {name} while values were "
                "written",
                remedy="Nothing was committed. Look at the table's current state, and try again",
            )


def require_addable(values: ColumnValues, snapshot: Snapshot) -> None:
    """Raise if columns cannot be added to a table; errors as for `add_columns`."""
    require_columns_apart(snapshot)
    _require_nameable(values, snapshot, "add columns")
    _metadata(values, snapshot, "add columns")


def require_columns_apart(snapshot: Snapshot) -> None:
    """Raise if a table cannot have column files.

    Raises
    ------
    UnsupportedFeatureError
        The table lacks the feature, or txlog cannot write it.
    """
    require_table_writable(snapshot, removes_rows=False)
    if not snapshot.supports(FEATURE):
        raise UnsupportedFeatureError(
            path=snapshot.root,
            features=(FEATURE,),
            reason="column files need the table feature txlog.fragments, and only txlog can read "
            "a table with this feature",
            remedy='If this is acceptable, call alter.add_features("txlog.fragments") first',
        )


def require_replaceable(snapshot: Snapshot) -> None:
    """Raise if values of rows cannot change.

    Raises
    ------
    UnsupportedFeatureError
        The table is append-only, or tracks rows but names no columns for their ids and versions.
    """
    if snapshot.is_active("appendOnly"):
        raise UnsupportedFeatureError(
            path=snapshot.root,
            features=("appendOnly",),
            reason="the table is append-only: rows cannot be removed or changed",
            remedy="Add a column with another name instead",
        )
    require_movable(snapshot)
