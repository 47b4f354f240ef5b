"""Scans that an index narrows: to the rows that have the keys of a predicate, or are in its ranges.

A predicate such as `id = 7 AND delay > 60` compares the key column of an index with a value, so
the index names the few rows that may match. All rows that it names are compared with the predicate,
and files that it does not cover are scanned. So the result is that of a scan without the index.
Where the rows of files are sorted by the key, it also finds ranges of keys, as of `id < 7`, and
keys of which only the first columns are known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import Protocol

import pyarrow as pa

from txlog.base.arrow import arrow_array, pc
from txlog.base.columns import flat
from txlog.base.errors import InvalidInputError
from txlog.base.threads import cached_property
from txlog.base.thresholds import Threshold
from txlog.expressions.listed import listed_values
from txlog.expressions.operators import OPERATORS
from txlog.expressions.tree import And, Column, Comparison, Expression, In, Like, Literal, Or
from txlog.fragments.fragment import Fragment
from txlog.lookup.composite import Box
from txlog.lookup.indexes import Coverage, Parts
from txlog.lookup.keys import AskedKeys, KeyRanges, Numbers, can_be_key, ordered, orders
from txlog.lookup.lookup import LookupCache, as_keys
from txlog.protocol.properties import IndexDefinition, index_definitions
from txlog.scan.plan import PlannedFiles, ScanPlan
from txlog.scan.read_plan import Candidates
from txlog.schema.arrow import arrow_type
from txlog.schema.types import StructField
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store

_MOST_KEYS: Threshold = 1 << 20
_LEAST_BYTES: Threshold = 4 << 20  # Fewer bytes are read sooner than an index.
_LEAST_SHARE: Threshold = 4  # A file of which more than a fourth may match is read whole.
_MOST_RANGES: Threshold = 1 << 10
_RANGE_SHARE: Threshold = 16
_MOST_TIMES: Threshold = 1  # If a search reads more bytes than the files have, they are scanned.


class GivenKeys(Protocol):
    """What is known of the keys of rows that are looked for."""

    @property
    def names(self) -> Collection[str]:
        """The names of the columns whose values are known."""
        ...

    def of(self, columns: Sequence[StructField]) -> AskedKeys | None:
        """Return the keys that the rows may have in some columns; None: too many, or no keys."""
        ...

    def ranges(self, columns: Sequence[StructField]) -> KeyRanges | None:
        """Return ranges of the first of some columns in which keys are; None: they may be any."""
        ...


class PredicateKeys:
    """The values that a bound predicate compares with columns."""

    def __init__(self, where: Expression) -> None:
        self._values = listed_values(where)
        self._where = where

    @property
    def names(self) -> Collection[str]:
        """The names of the columns for which it lists values."""
        return self._values.keys()

    def of(self, columns: Sequence[StructField]) -> AskedKeys | None:
        """Return all combinations of its values of some columns."""
        values = [self._values[column.name] for column in columns]
        if prod([len(some) for some in values]) > _MOST_KEYS:
            return None
        rows = list(product(*values))
        try:
            return _asked(
                columns,
                {
                    column.name: pa.array([row[place] for row in rows], arrow_type(column.type))
                    for place, column in enumerate(columns)
                },
            )
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return None  # It is no value of the column, as with a decimal of more digits.

    def ranges(self, columns: Sequence[StructField]) -> KeyRanges | None:
        """Return the values of the first columns, and the ranges of the next one."""
        boxes: list[Box] = [()]
        used = 0
        for column in columns:
            found = _ranges(self._where, column) if orders(column) else None
            if found is None or len(boxes) * len(found) > _MOST_RANGES:
                break
            boxes = [(*box, one) for box in boxes for one in found]
            used += 1
            if any(least != most for least, most in found):
                break  # Behind a range, the order says nothing of the next columns.
        return KeyRanges(tuple(columns[:used]), tuple(boxes)) if used else None


_LARGEST = (1 << 64) - 1
_Ranges = tuple[tuple[int, int], ...]


def _ranges(where: Expression, column: StructField) -> _Ranges | None:
    """Return ranges of encodings: if a predicate is true for a row, its key is in one of them.

    None if the key may be any. Encodings of different keys may be equal, so both ends are included.
    """
    match where:
        case Comparison(sign, Column((name,)), Literal(value)) if name == column.name:
            at = None if value is None else _encoding(value, column)
            of = OPERATORS[sign]
            if at is None or (of.less and of.greater):
                return None
            return ((0 if of.less else at, _LARGEST if of.greater else at),)
        case In(Column((name,)), values) if name == column.name:
            places = [_encoding(one.value, column) for one in values if one.value is not None]
            known = tuple((at, at) for at in places if at is not None)
            return known if len(known) == len(places) else None
        case Like(Column((name,)), pattern) if name == column.name:
            prefix = re.split(r"[%_\\]", pattern, maxsplit=1)[0].encode()[:8]
            begin, end = (int.from_bytes(prefix.ljust(8, fill)) for fill in (b"\0", b"\xff"))
            return ((begin, end),) if prefix else None
        case And(parts):
            found: _Ranges | None = None
            for part in parts:
                more = _ranges(part, column)
                if found is None or more is None:
                    found = more if found is None else found
                elif len(found) * len(more) <= _MOST_RANGES:
                    both = [(max(a, c), min(b, d)) for a, b in found for c, d in more]
                    found = tuple((a, b) for a, b in both if a <= b)
            return found
        case Or(parts):
            either: list[tuple[int, int]] = []
            for part in parts:
                more = _ranges(part, column)
                if more is None:
                    return None
                either += more
            return tuple(either)
    return None


def _encoding(value: object, column: StructField) -> int | None:
    """Return the ordered encoding of a value; None if it is no value of the column."""
    if isinstance(value, float):
        return None  # As floating point numbers, several whole numbers are equal.
    try:
        array = pa.array([value], arrow_type(column.type))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    return int(ordered(column, array)[0])


@dataclass(frozen=True)
class RowKeys:
    """The keys of given rows: arrays of the same length, by the names of columns."""

    arrays: Mapping[str, pa.Array]

    @property
    def names(self) -> Collection[str]:
        """The names of the columns."""
        return self.arrays.keys()

    def of(self, columns: Sequence[StructField]) -> AskedKeys | None:
        """Return the keys of the rows in some columns."""
        arrays = {column.name: self.arrays[column.name] for column in columns}
        if any(pa.types.is_floating(one.type) or len(one) > _MOST_KEYS for one in arrays.values()):
            return None  # As floating point numbers, several whole numbers are equal.
        return _asked(columns, arrays)

    def ranges(self, columns: Sequence[StructField]) -> None:
        """Return None: the rows have keys, not ranges."""


def _asked(columns: Sequence[StructField], arrays: Mapping[str, pa.Array]) -> AskedKeys | None:
    try:
        return AskedKeys.of(columns, as_keys(columns, pa.table(dict(arrays))))
    except InvalidInputError:
        return None


@dataclass(frozen=True)
class AskedIndex:
    """An index, and the keys that rows must have."""

    definition: IndexDefinition
    columns: tuple[StructField, ...]  # The key columns in the order of the index.
    keys: AskedKeys | KeyRanges


def asked_indexes(snapshot: Snapshot, keys: GivenKeys) -> list[AskedIndex]:
    """Return the indexes of a table that may find keys; empty if there is none. Pure.

    The first one is over the most columns of those whose values are known. The other one, for which
    values or ranges of its first columns are known, is there if it knows more of them. What it
    finds depends on the order of the rows in the files.
    """
    found: list[AskedIndex] = []
    ranged: list[AskedIndex] = []
    for definition in index_definitions(snapshot.metadata.configuration).values():
        names = logical_columns(snapshot, definition) or ()
        columns = tuple(one for name in names if (one := snapshot.schema.get(name)) is not None)
        if not columns:
            continue
        if not all(one.name in keys.names and can_be_key(one) for one in columns):
            is_whole = len(columns) == len(definition.columns) and all(map(can_be_key, columns))
            ranges = keys.ranges(columns) if is_whole else None
            if ranges is not None:
                ranged.append(AskedIndex(definition, columns, ranges))
            continue
        asked = keys.of(columns)
        if asked is not None:
            found.append(AskedIndex(definition, columns, asked))
    best = sorted(found, key=lambda one: len(one.columns))[-1:]
    known = len(best[0].columns) if best else 0
    ranged = [one for one in ranged if len(one.keys.columns) > known]
    return best + sorted(ranged, key=lambda one: len(one.keys.columns))[-1:]


def logical_columns(snapshot: Snapshot, definition: IndexDefinition) -> tuple[str, ...] | None:
    """Return the names of an index's columns; None if the table has lost one."""
    names = {
        column.name_in_files(snapshot.mapping_mode): column.name
        for column in snapshot.schema.fields
    }
    found = [names.get(name) for name in definition.columns]
    return None if None in found else tuple(name for name in found if name is not None)


@dataclass(frozen=True)
class _Narrowed:
    """What an index says of the files of a plan."""

    text: str  # For people.
    positions: Mapping[str, Numbers] = field(default_factory=dict)  # Of rows, by paths of files.
    left_out: pa.Array = field(default_factory=lambda: _no_paths())  # Paths of files without rows.
    whole: int | None = None  # The number of files to read whole; None: all of them.
    rows: int = 0  # Rows to read in other files.

    @property
    def cost(self) -> tuple[bool, int, int]:
        """Say how much is to be read, to be compared with what another index leaves."""
        return self.whole is None, self.whole or 0, self.rows


def _no_paths() -> pa.Array:
    return pa.nulls(0, pa.string())


@dataclass(frozen=True)
class _Search:
    """The search for the keys of a predicate in an index."""

    store: Store
    cache: LookupCache
    asked: AskedIndex
    plan: ScanPlan
    physical: tuple[str, ...]  # The key columns' names in files.
    fragments: Callable[[], Sequence[Fragment]] | None
    coverages: dict[tuple[str, ...], Coverage]
    defined: frozenset[str]
    table_id: str | None

    @cached_property
    def found(self) -> _Narrowed:
        """The positions of rows that have one of the keys, in files that the index covers."""
        name = self.asked.definition.name
        files = self.plan.read_files
        size = files.explanation.bytes_to_read
        if self.physical not in self.coverages and size < _LEAST_BYTES:
            return _Narrowed(f"{name}: not used, because few bytes are to be read")
        keys = self.asked.keys
        if isinstance(keys, KeyRanges):
            # The runs of unsorted files do not find ranges, so perhaps it is opened in vain.
            room, count, has_keys = _MOST_TIMES * size // _RANGE_SHARE, 2 * len(keys.boxes), True
        else:
            found = keys.codes >= 0
            room, count, has_keys = _MOST_TIMES * size, len(found), bool(found.any())
        answers: list[bool] = []

        def may_read(unread: int) -> bool:
            answers.append(unread <= room)
            return answers[-1]

        def cover(without: Collection[str]) -> Coverage:
            if without:
                self.coverages.pop(self.physical, None)
            coverage = self.coverages.get(self.physical)
            if coverage is not None:
                return coverage
            coverage = self.cache.segments.coverage(
                self.store,
                [name],
                self.plan.to_read if self.fragments is None else self.fragments(),
                self.physical,
                self.asked.columns,
                self.defined,
                self.table_id,
                may_read,
                keys=count,
                without=without,
            )
            is_final = all(answers) and not without and not coverage.is_passing
            if self.fragments is not None and is_final:
                self.coverages[self.physical] = coverage
            return coverage

        coverage, parts = self.cache.segments.search(cover, keys if has_keys else None)
        if not all(answers):
            return _Narrowed(f"{name}: not used, because it is larger than the files to be read")
        return self._narrowed(coverage, parts, flat(files.rows.primaries["path"]))

    def _narrowed(self, coverage: Coverage, parts: Parts, paths: pa.Array) -> _Narrowed:
        """Return which rows of some files may match, by the runs that cover them."""
        if isinstance(self.asked.keys, KeyRanges):
            coverage = coverage.ordered
        # Reading a file whole is faster than reading many of its rows.
        few = {
            fragment.path: at
            for fragment, at in parts
            if _LEAST_SHARE * len(at) <= (fragment.physical_rows or 0)
        }
        found = arrow_array([fragment.path for fragment, _ in parts], pa.string())
        planned = found.filter(pc.is_in(found, value_set=paths)).to_pylist()
        rows = sum(len(few[path]) for path in planned if path in few)
        covered = pc.sum(pc.is_in(paths, value_set=coverage.paths)).as_py() or 0
        whole = len(paths) - covered + sum(path not in few for path in planned)
        name = self.asked.definition.name
        is_range = isinstance(self.asked.keys, KeyRanges)
        which = "whose rows it has in the order of the keys" if is_range else "that it covers"
        text = f"{name}: {rows:,} rows may match in {covered:,} files {which}"
        if whole:
            text += f", {whole:,} files are read whole"
        left_out = pc.invert(pc.is_in(coverage.paths, value_set=found))
        return _Narrowed(text, few, coverage.paths.filter(left_out), whole, rows)


@dataclass(frozen=True, kw_only=True)
class IndexedPlan(ScanPlan):
    """A scan of the rows that have one of the keys of its predicate."""

    inner: ScanPlan
    narrowed: Callable[[], _Narrowed] = field(repr=False, compare=False)

    def __reduce__(self) -> tuple[Callable[[ScanPlan], ScanPlan], tuple[ScanPlan]]:
        """Pickle the plan without the index, which is in the memory of this process."""
        return _unpickled, (replace(self.inner, reading=replace(self.reading, candidates=None)),)

    def _find(self) -> PlannedFiles:
        return self._kept(self.inner.files)

    def rows_at(self, paths: Iterable[str]) -> pa.Table:
        """As for `ScanPlan`."""
        return self.inner.rows_at(paths)

    @cached_property
    def read_files(self) -> PlannedFiles:
        """As for `ScanPlan`."""
        return self._kept(self.inner.read_files)

    def _kept(self, files: PlannedFiles) -> PlannedFiles:
        found = self.narrowed()
        before = files.rows.primaries
        left_out = pc.is_in(flat(before["path"]), value_set=found.left_out)
        kept = files.filter(pc.invert(left_out))
        read = kept.rows.primaries
        told = replace(
            files.explanation,
            index=found.text,
            pruned_by_index=before.num_rows - read.num_rows,
            files_to_read=read.num_rows,
            files_with_deletions=read.num_rows - read["dv_id"].null_count,
            bytes_to_read=sum(
                pc.sum(rows["size"]).as_py() or 0 for rows in (read, kept.rows.columns.rows)
            ),
        )
        return replace(kept, explanation=told)


def rows_named(plan: ScanPlan) -> int | None:
    """Return how many rows an index names for a plan; None if none is used."""
    if not isinstance(plan, IndexedPlan) or plan.narrowed().whole is None:
        return None
    return plan.narrowed().rows


def bytes_named(plan: ScanPlan) -> int:
    """Return about how many bytes of files have the rows that `rows_named` counts."""
    total = 0
    for fragment in plan.to_read:
        size = sum(file.size for file in fragment.files)
        positions = plan.reading.candidates_in(fragment)
        rows = fragment.physical_rows
        total += size if positions is None or not rows else size * len(positions) // rows
    return total


def _unpickled(plan: ScanPlan) -> ScanPlan:
    return plan


def indexed_plan(
    store: Store,
    snapshot: Snapshot,
    plan: ScanPlan,
    cache: LookupCache,
    *,
    keys: GivenKeys | None = None,
    fragments: Callable[[], Sequence[Fragment]] | None = None,
    coverages: dict[tuple[str, ...], Coverage] | None = None,
) -> ScanPlan:
    """Return a plan that uses an index if the keys of its rows are known; else the same plan.

    Nothing is read before the files of the plan are asked for.

    Parameters
    ----------
    keys
        What is known of the keys of rows for which the predicate is true. Default: what the
        predicate says.
    fragments, coverages
        All fragments of the version, to keep their coverage by an index in `coverages`. Default:
        the coverage of the fragments of the plan is found, and not kept.
    """
    where = plan.reading.where
    if where is None:
        return plan
    searches = [
        _Search(
            store,
            cache,
            asked,
            plan,
            tuple(one.name_in_files(snapshot.mapping_mode) for one in asked.columns),
            fragments,
            {} if coverages is None else coverages,
            frozenset(index_definitions(snapshot.metadata.configuration)),
            snapshot.metadata.id,
        )
        for asked in asked_indexes(snapshot, PredicateKeys(where) if keys is None else keys)
    ]
    if not searches:
        return plan

    def narrowed() -> _Narrowed:
        return min([search.found for search in searches], key=lambda found: found.cost)

    candidates = Candidates(where, lambda: narrowed().positions)
    reading = replace(plan.reading, candidates=candidates)
    reading.memo.footers = cache.footers
    return IndexedPlan(reading=reading, live=plan.live, inner=plan, narrowed=narrowed)
