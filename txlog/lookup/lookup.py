"""Look-ups: the rows of a version that have given keys.

The positions of keys come from the runs of an index. For files that it does not cover, the key
columns are read once and kept in sorted order. Data files never change, so a run is valid for every
version that has its file. Only the snapshot decides which rows exist, and the key of every row that
a run names is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.base.arrow import arrow_array, empty_table, pc
from txlog.base.columns import flat
from txlog.base.errors import InvalidInputError, NotFoundError, reason_of
from txlog.base.threads import BoundedCache, Engine
from txlog.base.thresholds import Threshold
from txlog.expressions.tree import Expression
from txlog.fragments.fragment import Fragment
from txlog.lookup.bits import expanded
from txlog.lookup.indexes import Coverage, SegmentCache
from txlog.lookup.keys import (
    AskedKeys,
    Encodings,
    KeyRun,
    Numbers,
    encode,
    require_key_columns,
)
from txlog.lookup.runs import complete_rows
from txlog.protocol.properties import IndexDefinition
from txlog.scan.data_file import BATCH_ROWS
from txlog.scan.pages import FooterCache
from txlog.scan.plan import ScanPlan
from txlog.scan.positions import Part, VectorCache, rows_at, without_deleted
from txlog.scan.read import FragmentReader
from txlog.scan.read_plan import ReadPlan
from txlog.schema.arrow import arrow_type
from txlog.schema.casts import Reading, reading
from txlog.schema.types import StructField, type_name
from txlog.store.base import Store

Missing = Literal["skip", "null", "error"]
PlanOf = Callable[[list[str], Expression | None], ScanPlan]
"""Plans a scan of the version: columns to return, and a predicate that only excludes files."""

KEY = "_key"
"""The column with the number of the requested key that a row has."""

_RUN_BYTES: Threshold = 512 << 20
_SHOWN = 5  # The largest number of keys in an error.
_EXACT = 1 << 53  # From this number on, several whole numbers have the same double.
# Physical names and types of the key columns, then paths and sizes of the files that may hold them.
RunName = tuple[tuple[tuple[str, str], ...], tuple[tuple[str, int], ...]]


class LookupCache:
    """A cache of look-ups for all versions: runs, footers and deletion vectors of data files."""

    def __init__(self, max_bytes: int = _RUN_BYTES, segment_folder: str | None = None) -> None:
        self.segments = SegmentCache(segment_folder)
        self.footers = FooterCache(tails=self.segments.tail)
        self.vectors = VectorCache()
        self._runs: BoundedCache[RunName, KeyRun] = BoundedCache(max_bytes)

    def get(self, name: RunName) -> KeyRun | None:
        """Return a run, or None if the cache does not have it."""
        return self._runs.get(name)

    def keep(self, name: RunName, run: KeyRun) -> None:
        """Keep a run, unless it is larger than the whole cache may be."""
        if run.nbytes <= self._runs.max_bytes:
            self._runs.put(name, run, run.nbytes)


@dataclass(frozen=True)
class Lookup:
    """Look-ups in one version of a table by some key columns.

    Parameters
    ----------
    key_columns, asked_columns
        The key columns in the order of an index over them, and in the order of the caller's keys.
    indexes
        The indexes of the table.
    coverages
        The coverage of this version by indexes, by the columns of the index; kept with the version.
    has_key_column
        Whether the table has a column named `_key`, which is used then.
    """

    store: Store
    engine: Engine
    plan_of: PlanOf
    cache: LookupCache
    key_columns: tuple[StructField, ...]
    asked_columns: tuple[StructField, ...]
    indexes: Sequence[IndexDefinition]
    coverages: dict[tuple[str, ...], Coverage]
    has_key_column: bool = False
    table_id: str | None = None

    def __post_init__(self) -> None:
        require_key_columns(self.key_columns)

    @property
    def _key_names(self) -> list[str]:
        return [column.name for column in self.key_columns]

    def rows(self, keys: object, columns: Sequence[str], missing: Missing) -> pa.Table:
        """Return the rows with given keys, in the order of the keys; errors as `Table.lookup`."""
        numbered = KEY in columns and not self.has_key_column
        wanted = [name for name in columns if name != KEY] if numbered else columns
        rows, key_numbers = self.numbered(keys, wanted, missing)
        if numbered:
            field = pa.field(KEY, pa.int64(), nullable=False)
            rows = rows.append_column(field, arrow_array(key_numbers))
        return rows.select(list(columns))

    def numbered(
        self, keys: object, columns: Sequence[str], missing: Missing
    ) -> tuple[pa.Table, Numbers]:
        """Return the rows as `rows` does, each column once, and the number of each row's key."""
        if missing not in get_args(Missing):
            raise InvalidInputError(
                argument="missing",
                reason=f"{missing!r} is not one of {', '.join(get_args(Missing))}",
            )
        asked = self._asked(keys)
        names = list(dict.fromkeys([*columns, *self._key_names]))
        found, codes = self._found(asked, names)
        order, key_numbers = _answer(asked.codes, codes)
        absent = np.empty(0, np.int64)
        if missing != "skip":
            is_absent = np.ones(len(asked.codes), bool)
            is_absent[key_numbers] = False
            absent = np.flatnonzero(is_absent)
        if missing == "error" and len(absent):
            raise _not_found(asked, absent, self.asked_columns)
        in_order = len(order) == found.num_rows and bool((order[1:] > order[:-1]).all())
        rows = found if in_order else found.take(arrow_array(order))
        if len(rows) and rows.column(0).num_chunks > 1:
            rows = rows.combine_chunks()
        if missing == "null" and len(absent):
            rows, key_numbers = _with_absent(rows, key_numbers, asked, absent)
        return rows, key_numbers

    def counts(self, keys: object) -> pa.Array:
        """Return the number of rows of each key, as int64."""
        asked = self._asked(keys)
        _, codes = self._found(asked, self._key_names)
        counts = np.bincount(codes, minlength=int(asked.codes.max(initial=0)) + 1)
        return arrow_array(np.where(asked.codes >= 0, counts[asked.codes], 0))

    def _asked(self, keys: object) -> AskedKeys:
        arrays = as_keys(self.asked_columns, keys)
        if self.asked_columns != self.key_columns:
            by_name = dict(zip([one.name for one in self.asked_columns], arrays, strict=True))
            arrays = tuple(by_name[column.name] for column in self.key_columns)
        return AskedKeys.of(self.key_columns, arrays)

    def _found(self, asked: AskedKeys, names: list[str]) -> tuple[pa.Table, Numbers]:
        """Return the rows that have a key, by address, and the code of each one's key."""
        plan = self.plan_of(names, None)
        plan.reading.memo.footers = self.cache.footers
        parts: list[Part] = []
        if (asked.codes >= 0).any():
            parts = self._candidates(plan, asked)
            parts = without_deleted(self.store, self.cache.vectors, parts)
        if not parts:
            return empty_table(plan.reading.schema), np.empty(0, np.int64)
        rows, _ = rows_at(self.store, plan.reading, parts)
        codes = asked.codes_of([flat(rows.column(name)) for name in self._key_names])
        if (codes < 0).any():  # Two keys may have the same encoding.
            rows, codes = rows.filter(arrow_array(codes >= 0)), codes[codes >= 0]
        return rows, codes

    def _candidates(self, plan: ScanPlan, asked: AskedKeys) -> list[Part]:
        """Return fragments, and the positions of rows in them that may have one of the keys."""
        coverage, found = self.cache.segments.search(partial(self._coverage, plan), asked)
        unknown = [plan.values[place] for place in coverage.uncovered]
        if unknown:
            encodings = asked.encodings()
            for fragment, run in self._runs_of(plan, unknown, asked):
                positions = run.find(encodings)
                if len(positions):
                    found.append((fragment, positions))
            found.sort(key=lambda part: part[0].id)
        return found

    def _coverage(self, plan: ScanPlan, without: Collection[str]) -> Coverage:
        """Return the coverage of the version by the runs of an index over the key columns.

        It is kept unless segments are left out or fail: the next search may find others.
        """
        columns = tuple(
            column.name_in_files(plan.reading.form.mapping_mode) for column in self.key_columns
        )
        if without:
            self.coverages.pop(columns, None)
        coverage = self.coverages.get(columns)
        if coverage is None:
            named = [one.name for one in self.indexes if one.columns == columns]
            coverage = self.cache.segments.coverage(
                self.store,
                named,
                plan.values,
                columns,
                self.key_columns,
                {one.name for one in self.indexes},
                self.table_id,
                without=without,
            )
            if not without and not coverage.is_passing:
                self.coverages[columns] = coverage
        return coverage

    def _runs_of(
        self, plan: ScanPlan, fragments: Sequence[Fragment], asked: AskedKeys
    ) -> list[tuple[Fragment, KeyRun]]:
        """Return the runs in memory of fragments that may have a key; missing runs are built."""
        physical = tuple(
            (column.name_in_files(plan.reading.form.mapping_mode), type_name(column.type))
            for column in self.key_columns
        )
        names = {
            one.id: (physical, tuple((file.path, file.size) for file in one.files))
            for one in fragments
        }
        runs = {number: self.cache.get(name) for number, name in names.items()}
        if any(run is None for run in runs.values()):
            possible = {
                one.id for one in self.plan_of(self._key_names, asked.predicate()).fragments
            }
            unknown = [one for one in fragments if runs[one.id] is None and one.id in possible]
            build = partial(_build_run, self.store, plan.reading, self.key_columns)
            for fragment, new in zip(unknown, self.engine.map(build, unknown), strict=True):
                runs[fragment.id] = new
                self.cache.keep(names[fragment.id], new)
        return [(one, run) for one in fragments if (run := runs[one.id]) is not None]


def _build_run(
    store: Store, plan: ReadPlan, columns: tuple[StructField, ...], fragment: Fragment
) -> KeyRun:
    """Read the key columns of a fragment, deleted rows too, and return their run."""
    encodings: list[Encodings] = []
    valid: list[NDArray[np.bool_]] = []
    reader = FragmentReader(store, plan, fragment)
    for _, batch in reader.batches(columns, prune=False, batch_rows=BATCH_ROWS, threads=False):
        arrays = [batch.column(place) for place in range(len(columns))]
        encodings.append(encode(columns, arrays))
        valid.append(complete_rows(arrays))
    if not encodings:
        return KeyRun(np.empty(0, np.uint64), None)
    complete = np.concatenate(valid)
    return KeyRun.of(np.concatenate(encodings), None if complete.all() else complete)


def _answer(asked: Numbers, codes: Numbers) -> tuple[Numbers, Numbers]:
    """Return the rows in the order of the keys, and the number of each row's key. Pure.

    Parameters
    ----------
    asked
        The code of each key.
    codes
        The code of each row's key; the rows are ordered by address.
    """
    if len(asked) == 1 or not len(codes):  # All rows have the same key.
        return np.arange(len(codes)), np.zeros(len(codes), np.int64)
    by_code = np.argsort(codes, kind="stable")
    ordered = codes[by_code]
    starts = np.searchsorted(ordered, asked, "left")
    counts = np.searchsorted(ordered, asked, "right") - starts
    places = expanded(starts, counts)
    return by_code[places], np.repeat(np.arange(len(asked)), counts)


def _with_absent(
    rows: pa.Table, key_numbers: Numbers, asked: AskedKeys, absent: Numbers
) -> tuple[pa.Table, Numbers]:
    """Add a row for each key that no row has: the key, and nulls in all other columns."""
    values = {
        column.name: array.take(arrow_array(absent))
        for column, array in zip(asked.columns, asked.arrays, strict=True)
    }
    schema = pa.schema([field.with_nullable(True) for field in rows.schema])
    nulls = pa.table(
        [values.get(field.name, pa.nulls(len(absent), field.type)) for field in schema],
        schema=schema,
    )
    numbers = np.concatenate([key_numbers, absent])
    order = np.argsort(numbers, kind="stable")
    together = pa.concat_tables([rows.cast(schema), nulls]).take(arrow_array(order))
    return together.combine_chunks(), numbers[order]


def _not_found(asked: AskedKeys, absent: Numbers, columns: Sequence[StructField]) -> NotFoundError:
    first = arrow_array(absent[:_SHOWN])
    arrays = dict(zip([one.name for one in asked.columns], asked.arrays, strict=True))
    values = [arrays[column.name].take(first).to_pylist() for column in columns]
    keys = [key[0] if len(key) == 1 else key for key in zip(*values, strict=True)]
    shown = ", ".join(map(repr, keys)) + (
        f" and {len(absent) - _SHOWN} more" if len(absent) > _SHOWN else ""
    )
    return NotFoundError(
        reason=f"no row of this version has the key {shown}",
        remedy="Leave these keys out, or look them up with missing='skip' or missing='null'",
    )


def as_keys(columns: Sequence[StructField], keys: Any) -> tuple[pa.Array, ...]:
    """Convert a caller's keys to an array for each key column, in the column's type.

    Values of tables, frames, dicts and structs are matched by name, those of tuples by position.

    Raises
    ------
    InvalidInputError
        They do not fit the columns: another type, another number of columns, or a missing name.
    """
    arrays = _by_column([column.name for column in columns], keys)
    return tuple(_cast(column, array) for column, array in zip(columns, arrays, strict=True))


def _by_column(names: list[str], keys: Any) -> list[Any]:
    is_arrow = isinstance(keys, pa.Array | pa.ChunkedArray)
    if isinstance(keys, pa.Table | pa.RecordBatch | pa.RecordBatchReader) or (
        not is_arrow and hasattr(keys, "columns")
    ):
        try:  # Frames of other libraries become tables.
            table = keys if isinstance(keys, pa.Table | pa.RecordBatch) else pa.table(keys)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise _no_keys(keys, f": {reason_of(error)}") from error
        _require_names(names, table.schema.names)
        columns = [table.column(name) for name in names]
        return [_of_pandas(one) for one in columns] if _is_pandas(keys) else columns
    if is_arrow and pa.types.is_struct(keys.type):
        _require_names(names, [field.name for field in keys.type])
        return [pc.struct_field(keys, name) for name in names]
    if isinstance(keys, str | bytes | dict) or not hasattr(keys, "__iter__"):
        raise _no_keys(keys)
    if is_arrow and len(names) == 1:
        return [keys]
    if len(names) == 1 and _is_pandas(keys) and not _has_dicts(keys):
        return [_of_pandas(pa.Array.from_pandas(keys))]
    rows = keys.to_pylist() if is_arrow else list(keys)
    if len(names) == 1 and not _has_dicts(rows):
        return [rows]
    parts = [_parts(row, names) for row in rows]
    return [[part[place] for part in parts] for place in range(len(names))]


def _has_dicts(rows: Any) -> bool:
    return any(issubclass(kind, dict) for kind in set(map(type, rows)))


def _is_pandas(keys: object) -> bool:
    return type(keys).__module__.partition(".")[0] == "pandas"


def _of_pandas(values: Any) -> Any:
    """Convert doubles to whole numbers: pandas stores whole numbers with gaps as doubles."""
    if not pa.types.is_float64(values.type):
        return values
    if values.null_count == len(values):
        return pa.nulls(len(values))
    try:
        whole = values.cast(pa.int64())
    except pa.ArrowInvalid:
        return values
    least, most = pc.min_max(whole).as_py().values()
    return whole if max(-least, most) < _EXACT else values


def _no_keys(keys: object, detail: str = "") -> InvalidInputError:
    return InvalidInputError(
        argument="keys",
        reason=f"a {type(keys).__name__} is not a list of keys{detail}",
        remedy="Give a list, an Arrow array or, for several columns, a table, tuples or dicts",
    )


def _require_names(names: Sequence[str], given: Sequence[str]) -> None:
    for name in names:
        if given.count(name) != 1:
            count = f"{given.count(name)} columns" if name in given else "no column"
            raise InvalidInputError(
                argument="keys", reason=f"they have {count} {name!r}, but `on` names it"
            )


def _parts(row: Any, names: Sequence[str]) -> Sequence[Any]:
    """Return the value of each key column of one key."""
    if row is None:
        return (None,) * len(names)
    if isinstance(row, dict):
        _require_names(names, list(row))
        return [row[name] for name in names]
    if len(names) == 1:
        return (row,)
    if not isinstance(row, tuple | list) or len(row) != len(names):
        raise InvalidInputError(
            argument="keys", reason=f"{row!r} is not a tuple of {', '.join(names)}"
        )
    return row


# Given values must be of the column's kind, and none may be lost.
_TAKEN = (Reading.NULLS, Reading.LAYOUT, Reading.CHECKED, Reading.CUT)


def _cast(column: StructField, values: Any) -> pa.Array:
    target = arrow_type(column.type)
    try:
        if not isinstance(values, pa.Array | pa.ChunkedArray):
            if pa.types.is_decimal(target):  # Its values may be larger than an int64.
                values = [Decimal(one) if type(one) is int else one for one in values]
            values = arrow_array(values)
        if pa.types.is_dictionary(values.type):
            chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
            decoded = [_cast(column, one.dictionary).take(one.indices) for one in chunks]
            return flat(pa.chunked_array(decoded, target))
        array = flat(values)
        if array.type == target:
            return array
        if reading(array.type, target) not in _TAKEN:
            raise TypeError(f"the column has {target}, these are {array.type}")
        if pa.types.is_integer(array.type) and pa.types.is_decimal(target):
            # Cast through a decimal that can hold all of them, because pyarrow does not cast to a
            # narrower one.
            array = array.cast(pa.decimal128(20, 0))
        return array.cast(target)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            argument="keys",
            reason=f"they are not values of the column {column.name!r} "
            f"({type_name(column.type)}): {reason_of(error)}",
            remedy="Give values of the column's type",
        ) from error
