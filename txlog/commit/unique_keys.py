"""Unique keys: no commit makes a version in which two rows have the same key.

Before each put of a commit, the keys of its new rows are compared with each other, and with those
of all other rows of the version that it would make. After a lost race, only the winners' files are
compared. Keys are compared as 64 bits; only where these are equal, the values are. Rules:
spec/unique_keys.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from txlog.actions.file import Add
from txlog.base.arrow import arrow_array, pc
from txlog.base.columns import flat, python_values
from txlog.base.errors import DuplicateKeyError, InvalidInputError, UnsupportedFeatureError
from txlog.base.thresholds import Threshold
from txlog.commit.context import Context
from txlog.commit.intent import Intent, Kind
from txlog.commit.loop import prepare
from txlog.expressions.tree import Expression
from txlog.fragments.fragment import Fragment
from txlog.fragments.rows import FEATURE, FIELDS_TAG
from txlog.lookup.indexed import RowKeys
from txlog.lookup.keys import AskedKeys, Encodings, can_be_key, encode, spanning
from txlog.lookup.runs import complete_rows
from txlog.protocol.properties import UniqueKey, unique_keys
from txlog.scan.files import as_fragments, live_sequence
from txlog.scan.lazy_plan import plan_snapshot
from txlog.scan.plan import ScanPlan, plan_fragments, plan_scan
from txlog.scan.scan import Scan
from txlog.schema.types import SIZED_TEXT, StructField
from txlog.snapshot.commits import Commit, file_rows
from txlog.snapshot.live_files import load_files, rows_at
from txlog.snapshot.snapshot import Snapshot

_LISTED: Threshold = 1 << 20  # New keys from which on only their least and greatest are searched.
_AT_ONCE: Threshold = 10_000  # Equal encodings whose keys are compared at once.
_SHOWN = 5  # Keys in an error.


@dataclass(frozen=True)
class KeyColumns:
    """A unique key, and its columns in the schema of a version."""

    key: UniqueKey
    columns: tuple[StructField, ...]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]


def key_columns(snapshot: Snapshot) -> dict[str, KeyColumns]:
    """Return the unique keys of a version by their names.

    Raises
    ------
    UnsupportedFeatureError
        The table lacks a column of a key, or its values cannot be keys.
    InvalidInputError
        A column is CHAR, or may be null in a primary key; or there are two primary keys.
    """
    by_name = {one.name_in_files(snapshot.mapping_mode): one for one in snapshot.schema.fields}
    found: dict[str, KeyColumns] = {}
    primary: str | None = None
    for name, key in unique_keys(snapshot.metadata.configuration).items():
        columns = tuple(by_name[one] for one in key.columns if one in by_name)
        if key.primary and primary is not None:
            raise InvalidInputError(
                argument="constraints",
                field=name,
                reason=f"the table has the primary key {primary} already",
                remedy="Make this key UNIQUE, or drop the other one first",
            )
        primary = name if key.primary else primary
        for column in columns:
            _require_key_column(name, key, column)
        if len(columns) < len(key.columns) or not all(map(can_be_key, columns)):
            raise UnsupportedFeatureError(
                path=snapshot.root,
                features=("txlog.uniqueKeys",),
                field=name,
                reason=f"the unique key {name} is over {', '.join(key.columns)}, and the table has "
                "no such columns whose values can be keys",
                remedy=f"Call alter.drop_constraint({name!r}) first",
            )
        found[name] = KeyColumns(key, columns)
    return found


def _require_key_column(name: str, key: UniqueKey, column: StructField) -> None:
    if str(column.metadata.get(SIZED_TEXT, "")).lower().startswith("char("):
        raise InvalidInputError(
            argument="constraints",
            field=column.name,
            reason=f"{column.name} is a CHAR column: engines differ in the spaces at the end of "
            "its values",
            remedy="Choose another column, or make it a STRING or VARCHAR column",
        )
    if key.primary and column.nullable:
        raise InvalidInputError(
            argument="schema",
            field=column.name,
            reason=f"{column.name} is a part of the primary key {name}, so it cannot be null, but "
            "the schema lets it",
            remedy="Let the column be NOT NULL, or drop the key first: "
            f"alter.drop_constraint({name!r})",
        )


@dataclass(frozen=True)
class _NewKeys:
    """The keys of the rows that an intent adds."""

    plan: ScanPlan  # Of these rows, with the columns of the key.
    kind: Kind | None  # Of the intent that writes them. None: it defines the key.
    encodings: Encodings  # Ascending, of keys without null.
    where: Expression | None  # True for all rows with one of these keys. None: there are no keys.
    given: RowKeys | None  # The keys, if they are few enough to be listed.


@dataclass(frozen=True)
class _Compared:
    """The new rows that were compared with all others of a version (-1: there was none)."""

    subject: object  # What identifies the new rows.
    keys: _NewKeys
    version: int


@dataclass
class UniqueCheck:
    """The check of one operation's commits: before each attempt it is asked again.

    Parameters
    ----------
    context
        The table's store, and the engine that reads keys.
    """

    context: Context
    _compared: dict[str, _Compared] = field(default_factory=dict)  # By the names of unique keys.

    def require(
        self,
        before: Snapshot | None,
        intent: Intent,
        after: Snapshot,
        winners: Sequence[Commit],
    ) -> None:
        """Raise if two rows of a version would have the same key.

        Parameters
        ----------
        before, after
            The version that the intent changes (None: it makes the table), and the new one.
        winners
            The commits of others since the intent was checked last.

        Raises
        ------
        DuplicateKeyError
            The error names the unique key, a value, and the winner that has it.
        """
        known = {} if before is None else before.memo(key_columns)
        source = None if winners else intent.rows_of
        if source is not None and source.supports("txlog.uniqueKeys"):
            kept = source.memo(key_columns)
            if all(kept.get(name) == key for name, key in after.memo(key_columns).items()):
                return  # These rows were compared when they came into their table.
        for name, key in after.memo(key_columns).items():
            is_new = known.get(name) != key or not intent.columns.isdisjoint(key.key.columns)
            adds = () if is_new else _added(intent)
            if is_new or adds:
                self._require(key, before, intent, after, winners, adds)

    def _require(
        self,
        key: KeyColumns,
        before: Snapshot | None,
        intent: Intent,
        after: Snapshot,
        winners: Sequence[Commit],
        adds: Sequence[Add],
    ) -> None:
        """Compare new rows with each other and with those that stay; without `adds` all are new."""
        subject = (key, *((add.path, _vector(add)) for add in adds)) if adds else None
        version = -1 if before is None else before.version
        kept = self._compared.get(key.key.name)
        if kept is not None and subject is not None and kept.subject == subject:
            new = kept.keys
            # An operation that was decided again may have passed winners that were not compared.
            only_winners = kept.version + len(winners) == version
        else:
            is_given = not intent.columns.isdisjoint(key.key.columns)
            by = intent.kind if adds or is_given else None
            new, only_winners = self._read(key, after, adds, by), False
            places = np.flatnonzero(new.encodings[1:] == new.encodings[:-1])
            twice = np.unique(new.encodings[places])
            for start in range(0, len(twice), _AT_ONCE):
                self._require_apart(key, new, twice[start : start + _AT_ONCE])
        if adds and before is not None and new.where is not None:
            if only_winners:
                self._compare_with_winners(key, new, before, intent, winners)
            else:
                self._compare_with_all(key, new, before, intent)
        self._compared[key.key.name] = _Compared(subject, new, version)

    def _compare_with_all(
        self, key: KeyColumns, new: _NewKeys, before: Snapshot, intent: Intent
    ) -> None:
        """Compare new rows with all that stay of a version."""
        stays = self._without_new(before, intent)
        plan = plan_snapshot(
            self.context.store,
            stays,
            lambda: load_files(self.context.store, stays).live,
            columns=key.names,
            where=new.where,
            engine=self.context.engine,
        )
        if new.given is not None:
            plan = self.context.indexed(stays, plan, new.given)
        self._compare(key, new, plan, before.version)

    def _compare_with_winners(
        self,
        key: KeyColumns,
        new: _NewKeys,
        before: Snapshot,
        intent: Intent,
        winners: Sequence[Commit],
    ) -> None:
        """Compare new rows with those that winners brought, as far as they stay."""
        stays = self._without_new(before, intent) if winners else before
        for winner in winners:
            files = file_rows([winner])
            fragments = self._fragments(stays, files.filter(files["is_add"])["path"].to_pylist())
            if fragments:
                plan = plan_fragments(stays, fragments, columns=key.names, where=new.where)
                self._compare(key, new, plan, winner.version)

    def _without_new(self, before: Snapshot, intent: Intent) -> Snapshot:
        """Return the version that an intent would make without the rows that it adds."""
        if not intent.removes:
            return before
        added = {add.path for add in _added(intent)}
        kept = tuple(add for add in intent.adds if add.path not in added)
        left = replace(intent, adds=kept, metadata=None, protocol=None)
        store, effects = self.context.store, self.context.effects
        now_ms = effects.now_ms()
        return prepare(store, before, left, effects.uuid(), made_ms=now_ms, now_ms=now_ms).after

    def _fragments(self, snapshot: Snapshot, paths: Sequence[str]) -> list[Fragment]:
        """Return the fragments of a version that have a file, primary or not, at some paths."""
        if not paths:
            return []
        store = self.context.store
        if not snapshot.supports(FEATURE):
            return as_fragments(rows_at(store, snapshot, paths))
        wanted = set(paths)
        every = live_sequence(snapshot, load_files(store, snapshot).live)
        return [one for one in every if any(file.path in wanted for file in one.files)]

    def _batches(self, plan: ScanPlan) -> Iterator[pa.RecordBatch]:
        yield from Scan(self.context.store, plan, self.context.engine).to_batches()

    def _read(
        self, key: KeyColumns, after: Snapshot, adds: Sequence[Add], by: Kind | None
    ) -> _NewKeys:
        """Read the keys of new rows: those of some files, or without these of all."""
        if adds:
            fragments = self._fragments(after, [add.path for add in adds])
            plan: ScanPlan = plan_fragments(after, fragments, columns=key.names)
        else:
            live = load_files(self.context.store, after).live
            plan = plan_scan(after, live, columns=key.names)
        found: list[Encodings] = []
        values: list[pa.RecordBatch] | None = []
        ends: list[pa.RecordBatch] = []
        rows = 0
        for batch in self._batches(plan):
            batch = batch.filter(arrow_array(complete_rows(_arrays(key, batch))))
            if not batch.num_rows:
                continue
            found.append(encode(key.columns, _arrays(key, batch)))
            ends.append(_ends(batch))
            rows += batch.num_rows
            if values is not None:
                values.append(batch)
                values = None if rows > _LISTED else values
        if not found:
            return _NewKeys(plan, by, np.empty(0, np.uint64), None, None)
        encodings = np.sort(np.concatenate(found))
        if values is None:
            listed = pa.Table.from_batches(ends)
            where = spanning(key.columns, [flat(listed[name]) for name in key.names])
            return _NewKeys(plan, by, encodings, where, None)
        table = pa.Table.from_batches(values)
        arrays = {name: flat(table[name]) for name in key.names}
        where = AskedKeys.of(key.columns, tuple(arrays.values())).predicate()
        return _NewKeys(plan, by, encodings, where, RowKeys(arrays))

    def _rows_with(
        self, key: KeyColumns, plan: ScanPlan, codes: Encodings
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a plan whose keys have one of some ascending encodings."""
        for batch in self._batches(plan):
            arrays = _arrays(key, batch)
            hit = complete_rows(arrays)
            hit[hit] = _are_among(encode(key.columns, arrays)[hit], codes)
            if hit.any():
                yield batch.filter(arrow_array(hit))

    def _compare(self, key: KeyColumns, new: _NewKeys, plan: ScanPlan, version: int) -> None:
        """Raise if a row of a plan has one of the new keys."""
        for there in self._rows_with(key, plan, new.encodings):
            codes = np.unique(encode(key.columns, _arrays(key, there)))
            self._require_apart(key, new, codes, there, version)

    def _require_apart(
        self,
        key: KeyColumns,
        new: _NewKeys,
        codes: Encodings,
        there: pa.RecordBatch | None = None,
        version: int | None = None,
    ) -> None:
        """Raise if new rows with some encodings have the same key as each other, or as others.

        Two keys may have the same encoding, so the values decide.
        """
        found = self._rows_with(key, new.plan, codes)
        rows = pa.Table.from_batches(found, schema=new.plan.reading.schema)
        if there is not None:
            both = [_distinct(rows), _distinct(pa.Table.from_batches([there]))]
            rows = pa.concat_tables(both)
        counts = rows.group_by(key.names).aggregate([([], "count_all")])
        counts = counts.filter(pc.greater(counts["count_all"], 1))
        if counts.num_rows:
            raise _duplicate(key, new, counts, version)


def _distinct(rows: pa.Table) -> pa.Table:
    return rows.group_by(rows.column_names).aggregate([])


_ARGUMENTS = {None: "constraints", "add columns": "columns", "replace columns": "columns"}


def _duplicate(
    key: KeyColumns, new: _NewKeys, counts: pa.Table, version: int | None
) -> DuplicateKeyError:
    counts = counts.sort_by([(name, "ascending") for name in key.names])
    shown = counts.slice(0, _SHOWN)
    values = [*zip(*(python_values(shown[name]) for name in key.names), strict=True)]
    keys = [
        " and ".join(f"{name} = {value!r}" for name, value in zip(key.names, one, strict=True))
        for one in values
    ]
    if version is None:
        numbers = shown["count_all"].to_pylist()
        keys = [f"{text} ({count} rows)" for text, count in zip(keys, numbers, strict=True)]
    if counts.num_rows > len(keys):
        keys.append(f"{counts.num_rows - len(keys):,} more")
    whose = "rows of the table" if new.kind is None else "new rows"
    where = f"{whose} share a key" if version is None else f"version {version} has a new row's key"
    remedy = {
        None: "Look at these rows, and delete or change all but one of each key first",
        "append": "Leave these rows out, or give on_conflict='ignore' or 'update' to Table.append",
    }.get(
        new.kind,
        "Give each of these rows its own key"
        if version is None
        else "Give these rows other keys, or delete the rows that have theirs first",
    )
    return DuplicateKeyError(
        argument=_ARGUMENTS.get(new.kind, "data"),
        field=key.key.name,
        key=values[0],
        version=version,
        reason=f"{key.key.name} is a unique key over {', '.join(key.names)}, but {where}: "
        f"{', '.join(keys)}",
        remedy=f"Nothing was committed. {remedy}",
    )


def _added(intent: Intent) -> list[Add]:
    """Return the files that bring rows: not those that lose rows only, or whose rows move."""
    return [
        add
        for add in intent.adds
        if (add.data_change or intent.has_given_rows)
        and add.path not in intent.row_deletes
        and FIELDS_TAG not in (add.tags or {})
    ]


def _vector(add: Add) -> str | None:
    return None if add.deletion_vector is None else add.deletion_vector.unique_id


def _arrays(key: KeyColumns, batch: pa.RecordBatch) -> list[pa.Array]:
    return [batch.column(name) for name in key.names]


def _ends(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the least and the greatest value of each column, as two rows."""
    arrays = [
        pa.concat_arrays([pa.array([end], column.type) for end in pc.min_max(column).values()])
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _are_among(codes: Encodings, known: Encodings) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return for each code whether it is one of some ascending ones."""
    places = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = known[places] == codes
    return found
