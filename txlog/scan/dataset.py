"""A version as a pyarrow dataset, into which pyarrow, duckdb and polars push filters down.

pyarrow reads a file itself if that returns the table's rows: the file has no deleted rows, no
column files, the table's own names and types, and no dates in the old calendar. `TableDataset`
reads the others like a scan when a scanner needs them. What the log shows is decided when the
dataset is made, which opens no file; what only a file's footer shows, when a scanner needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import reduce
from itertools import groupby
from operator import and_
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from txlog.base.arrow import arrow_array, arrow_scalar, ds, pc
from txlog.base.errors import InvalidInputError, InvalidTypeError, TxlogError
from txlog.expressions.listed import listed_values
from txlog.expressions.tree import And, Column, Expression, IsNull
from txlog.fragments.fragment import Fragment
from txlog.fragments.rows import FragmentRows
from txlog.log.paths import decode_path
from txlog.parquet.file_footer import FileFooter, footer_bytes
from txlog.protocol.properties import index_definitions
from txlog.scan.arrow_filters import values_of_filter
from txlog.scan.bloom_filters import groups_left
from txlog.scan.data_file import BATCH_ROWS
from txlog.scan.plan import Explanation, PlannedFiles, ScanPlan, plan_fragments
from txlog.scan.read import require_in_place
from txlog.scan.read_plan import Candidates, ReadPlan
from txlog.scan.resolve import resolve
from txlog.scan.scan import Scan
from txlog.schema.arrow import HALF, fixed_schema
from txlog.schema.types import (
    TYPE_CHANGES,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.collect import leaf_types
from txlog.stats.files import fragment_bounds
from txlog.stats.partition import parse_partition_values
from txlog.stats.skip import ALL, Bounds, ColumnBounds
from txlog.store.base import Store, is_confined, threads_for
from txlog.store.open import locate

# Types whose bounds Arrow uses to simplify filters. Not floats, because NaN is in no bounds.
_BOUNDED = frozenset(
    {"byte", "short", "integer", "long", "string", "date", "timestamp", "timestamp_ntz"}
)
_CALENDAR = ("date", "timestamp", "timestamp_ntz")
_NEW = {  # Since then all calendars that writers use agree.
    "date": date(1900, 1, 1),
    "timestamp": datetime(1900, 1, 1),
    "timestamp_ntz": datetime(1900, 1, 1),
}
# Columns that pyarrow adds to those of a dataset, if they are asked for.
_STATED = frozenset({"__filename", "__fragment_index", "__batch_index", "__last_in_fragment"})
PlanOf = Callable[[Expression], ScanPlan | None]
"""Plans a scan by an index for a predicate; None if the index does not help."""
_UNREADABLE = "only the scanner of the dataset can read this fragment, not pyarrow alone: "


def as_dataset(
    store: Store,
    snapshot: Snapshot,
    plan: ScanPlan,
    *,
    schema: pa.Schema | None = None,
    as_large_types: bool = False,
    parquet_read_options: Any = None,
    plan_of: PlanOf | None = None,
) -> Any:
    """Return the files of a plan of all columns as a `pyarrow.dataset.FileSystemDataset`.

    Parameters
    ----------
    plan_of
        Plans a scan by an index for a predicate; None: no index is used.
    schema
        The schema of the dataset. Default: the table's.
    as_large_types
        Use Arrow's large types for texts, binary values and lists.
    parquet_read_options
        A `pyarrow.dataset.ParquetReadOptions`. Default: INT96 as microseconds.
    """
    if schema is None:
        schema = fixed_schema(snapshot.schema)
        if as_large_types:
            schema = pa.schema([_large(field) for field in schema], schema.metadata)
    if not isinstance(parquet_read_options, ds.ParquetReadOptions | None):
        raise InvalidTypeError(
            argument="parquet_read_options",
            reason=f"ParquetReadOptions were expected, not {type(parquet_read_options).__name__}",
            remedy="Pass pyarrow.dataset.ParquetReadOptions(…)",
        )
    options = parquet_read_options or ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
    coded = set(options.dictionary_columns)
    fields = [_as_dictionary(f) if f.name in coded else f for f in schema]
    schema = pa.schema(fields, schema.metadata)
    parts = _Parts.of(store, snapshot, plan.files)
    files = ds.ParquetFileFormat(
        read_options=options,
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(
            pre_buffer=True, page_checksum_verification=True
        ),
    )
    home = _filesystem(store, parts.paths)
    made = [
        files.make_fragment(path, filesystem=home, partition_expression=guarantee)
        for path, guarantee in zip(parts.paths, parts.guarantees, strict=True)
    ]
    held = dict(zip(parts.paths, parts.fragments, strict=True))
    return TableDataset(made, schema, files, home, Held(store, snapshot, held, plan, plan_of))


@dataclass(frozen=True)
class Held:
    """The fragments of a dataset, by the paths that represent them there."""

    store: Store
    snapshot: Snapshot
    fragments: Mapping[str, Fragment]
    plan: ScanPlan
    plan_of: PlanOf | None = None
    faults: list[TxlogError] = field(default_factory=list, compare=False)  # Of `noted`.

    def __reduce__(self) -> tuple[Any, ...]:
        # The index is in the memory of this process.
        return Held, (self.store, self.snapshot, self.fragments, self.plan)

    def require_in_place(self, paths: Iterable[str]) -> None:
        """Raise if files may be of another table, which took the place of this one."""
        fragments = (self.fragments[path] for path in paths)
        require_in_place(self.store, self.plan.reading, fragments)

    def indexed(self, filter: Any, schema: pa.Schema) -> ScanPlan | None:
        """Return a plan by an index of the rows that a filter may keep; None: it does not help."""
        if filter is None or self.plan_of is None:
            return None
        where = self._where(filter, schema)
        return None if where is None else self.plan_of(where)

    def _where(self, filter: Any, schema: pa.Schema) -> Expression | None:
        """Return what `values_of_filter` finds for the columns that files store."""
        stored = StructType(
            tuple(
                column
                for column in self.snapshot.schema.fields
                if column.name not in self.snapshot.partition_columns
            )
        )
        return values_of_filter(filter, schema, stored)

    def listed(self, filter: Any, schema: pa.Schema) -> dict[str, list[object]]:
        """Return values of columns of which a row must have one, so that a filter keeps it."""
        where = None if filter is None else self._where(filter, schema)
        return {} if where is None else listed_values(where)

    def not_excluded(
        self, parts: Sequence[Any], names: Sequence[str], listed: Mapping[str, Sequence[object]]
    ) -> Iterator[Any]:
        """Yield fragments that pyarrow reads, without row groups that Bloom filters exclude.

        None in place of a fragment of which no row group is left.
        """

        def left_of(part: Any) -> Any:
            footer = _footer(part)
            if footer is None:
                return part
            leaves = {name: footer.leaf((name,)) for name in listed}
            wanted = {
                leaf: (name, listed[name]) for name, leaf in leaves.items() if leaf is not None
            }
            try:
                groups = [one.id for one in part.row_groups]
                chunks = [footer.chunk(groups[0], leaf) for leaf in wanted] if groups else []
                if not any(getattr(chunk, "bloom_filter_offset", None) for chunk in chunks):
                    return part
                read = [at for at, path in enumerate(footer.paths) if path.split(".")[0] in names]
                with part.filesystem.open_input_file(part.path) as source:
                    kept = groups_left(
                        footer,
                        wanted,
                        read,
                        groups,
                        lambda start, size: bytes(source.read_at(size, start)),
                        part.path,
                    )
            except (pa.ArrowException, OSError):
                return part  # Reading it raises the right error.
            if len(kept) == len(groups):
                return part
            return part.subset(row_group_ids=kept) if kept else None

        return threads_for(self.store).map(left_of, parts)

    def are_plain(
        self, parts: Sequence[Any], names: Sequence[str], *, twice: bool = False
    ) -> Iterator[bool]:
        """Yield whether pyarrow itself reads the table's values, for each of the fragments.

        pyarrow looks for exactly the names that a dataset gives to the columns. With `twice`, it
        may find one several times in a file: then it raises an error if that one is read.
        """
        form = self.snapshot.form
        asked = {name: form.schema.get(name) for name in names}
        known = [(name, column) for name, column in asked.items() if column is not None]
        needed = [column for _, column in known]
        # pyarrow knows the values of a partition column by the table's spelling alone.
        partitions = self.snapshot.partition_columns
        respelt = any(one.name != name and one.name in partitions for name, one in known)
        before: pa.Schema | None = None
        plain = False
        for footer in threads_for(self.store).map(_footer, parts):
            if footer is None:
                yield False
                continue
            if before is None or not before.equals(footer.schema, check_metadata=True):
                before = footer.schema
                found = resolve(form, needed, footer)
                found = replace(found, ambiguous=None) if twice else found
                # By a name that is no column of the file, pyarrow finds nulls.
                own = frozenset(before.names)
                reads = {name: name if name in own else None for name in names}
                wants = {
                    name: None if column is None else found.names.get(column.name)
                    for name, column in asked.items()
                }
                plain = found.is_plain and reads == wants and not respelt
            yield plain

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note an error of the `with` block: engines that call a dataset keep only its text."""
        try:
            yield
        except TxlogError as error:
            self.faults.append(error)
            raise

    def batches(
        self,
        paths: Sequence[str],
        schema: pa.Schema,
        names: Sequence[str],
        batch_size: int,
        indexed: ScanPlan | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some of these fragments, in columns of a schema.

        A column that the table lacks is null. `batch_size` is that of `Scan.to_batches`. Of a plan
        by an index, only the rows that it names are read, where it names rows.
        """
        known = {name: self.snapshot.schema.get(name) for name in names}
        columns = list(dict.fromkeys(one.name for one in known.values() if one is not None))
        fragments = [self.fragments[path] for path in paths]
        plan = plan_fragments(self.snapshot, fragments, columns=columns).for_arrow()
        if indexed is not None:
            plan = replace(plan, reading=_candidates_of(indexed.reading, plan.reading))
        target = pa.schema([schema.field(name) for name in names], schema.metadata)
        for batch in Scan(self.store, plan).to_batches(batch_size=batch_size):
            if not names:  # A batch that is made without columns has no rows.
                yield batch.select([])
                continue
            arrays = [
                batch.column(column.name).cast(field.type)
                if column is not None
                else pa.nulls(batch.num_rows, field.type)
                for column, field in zip(known.values(), target, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=target)


def _candidates_of(indexed: ReadPlan, reading: ReadPlan) -> ReadPlan:
    """Return how all rows are read that another plan names. The scanner filters them."""
    found = indexed.candidates
    assert found is not None
    candidates = Candidates(None, lambda: found.positions)
    new = replace(reading, candidates=candidates)
    new.memo.footers = indexed.memo.footers
    return new


def _footer(part: Any) -> FileFooter | None:
    """Return the footer of a fragment, which pyarrow keeps for its scan; None if that fails."""
    if part.path.startswith(_UNREADABLE):
        return None
    try:
        schema = part.physical_schema
        for at, field in enumerate(schema):
            if pa.types.is_dictionary(field.type):  # pyarrow converts it in both directions.
                schema = schema.set(at, field.with_type(field.type.value_type))
        return FileFooter(part.metadata, schema, lambda: footer_bytes(part.open()))
    except (pa.ArrowException, OSError):
        return None  # Reading the file like a scan raises the right error.


class TableDataset(ds.FileSystemDataset):  # type: ignore[misc]
    """A dataset whose scanners read like a scan the fragments that pyarrow cannot read itself.

    Code that hands the dataset to Arrow's C++ without a scanner gets an error that names such a
    fragment, if the log shows that it is one: it has deleted rows, for example.
    """

    def __init__(
        self,
        fragments: Sequence[Any],
        schema: pa.Schema,
        files: Any,
        home: Any,
        held: Held,
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__(fragments, schema, files, home)
        self._scan_options = dict(options)  # Of all scanners: the filter of a view.
        self._parts = (fragments, files, home)
        self._held = held

    def __reduce__(self) -> tuple[Any, ...]:
        fragments, files, home = self._parts
        return TableDataset, (fragments, self.schema, files, home, self._held, self._scan_options)

    @property
    def files(self) -> list[str]:
        """The paths of the files. They still contain rows that deletion vectors delete."""
        return [path.removeprefix(_UNREADABLE) for path in super().files]

    def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> Any:
        """Return a scanner of the rows that are not deleted. It can be used once."""
        with self._held.noted():
            return self._scanner(columns, filter, options)

    def _scanner(self, columns: Any, filter: Any, options: dict[str, Any]) -> Any:
        options = self._scanner_options({"columns": columns, "filter": filter, **options})
        columns, filter = options.pop("columns", None), options.pop("filter", None)
        fragments, files, home = self._parts
        everything = ds.FileSystemDataset(fragments, self.schema, files, home)
        left = list(everything.get_fragments(filter=filter))
        self._held.require_in_place(one.path for one in left)
        names = self._read(columns, filter)
        stated = _STATED.intersection(columns if isinstance(columns, list | tuple) else ())
        indexed = None if stated else self._held.indexed(filter, self.schema)
        found: Mapping[str, Any] = {}
        if indexed is not None and indexed.reading.candidates is not None:
            kept = frozenset(indexed.read_files.rows.primaries["path"].to_pylist())
            left = [one for one in left if self._held.fragments[one.path].path in kept]
            found = indexed.reading.candidates.positions
        few = [self._held.fragments[one.path].path in found for one in left]
        others = [one for one, is_few in zip(left, few, strict=True) if not is_few]
        of_others = self._held.are_plain(others, names)
        are_plain = [not is_few and next(of_others) for is_few in few]
        asked = self._held.listed(filter, self.schema)
        if asked:
            pairs = [*zip(left, are_plain, strict=True)]
            alone = self._held.not_excluded([one for one, of in pairs if of], names, asked)
            pairs = [(next(alone) if of else one, of) for one, of in pairs]
            left = [one for one, _ in pairs if one is not None]
            are_plain = [of for one, of in pairs if one is not None]

        def plain(parts: Sequence[Any]) -> Any:
            some = ds.FileSystemDataset(parts, self.schema, files, home)
            return some.scanner(columns=columns, filter=filter, **options)

        if all(are_plain):
            return plain(left)
        if stated:
            path = left[are_plain.index(False)].path.removeprefix(_UNREADABLE)
            raise InvalidInputError(
                argument="columns",
                field=min(stated),
                reason=f"pyarrow states it only for files that it reads alone, and {path} has "
                "deleted rows, or columns that differ from the table's",
                remedy="Omit it, or scan the column _fragid with Table.scan",
            )

        def batches() -> Iterator[pa.RecordBatch]:
            schema = pa.schema([self.schema.field(name) for name in names])
            # In the order of the fragments, whichever of them are plain for these columns.
            for is_plain, run in groupby(zip(are_plain, left, strict=True), lambda one: one[0]):
                parts = [part for _, part in run]
                if is_plain:
                    yield from plain(parts).to_batches()
                    continue
                paths = [part.path for part in parts]
                size = options.get("batch_size", BATCH_ROWS)
                with self._held.noted():
                    rows = self._held.batches(paths, self.schema, names, size, indexed)
                    yield from ds.Scanner.from_batches(
                        rows, schema=schema, columns=columns, filter=filter
                    ).to_batches()

        return ds.Scanner.from_batches(batches(), schema=plain([]).projected_schema)

    @property
    def fault(self) -> TxlogError | None:
        """The first error of txlog while an engine read the dataset; None if there was none."""
        return next(iter(self._held.faults), None)

    def require_readable(self) -> None:
        """Read all files, to name the one at fault after an error of pyarrow, which does not.

        Raises
        ------
        DataFileError
            A file is damaged or missing.
        """
        for part in self._parts[0]:
            try:
                for _ in part.to_batches():
                    pass
            except (OSError, pa.ArrowException):
                paths, names = [part.path], self.schema.names
                for _ in self._held.batches(paths, self.schema, names, BATCH_ROWS):
                    pass

    def to_table(self, *arguments: Any, **options: Any) -> pa.Table:
        """Return the rows as pyarrow does, and with the metadata of the schema, which it omits."""
        found = super().to_table(*arguments, **options)
        metadata = self.schema.metadata
        return found.replace_schema_metadata(metadata) if metadata else found

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """Return the first rows, as pyarrow does; only the files with these rows are opened."""
        columns = options.get("columns")
        if columns is not None and not columns:  # Tables without columns cannot be joined.
            return self.scanner(**options).head(num_rows)
        fragments, files, home = self._parts
        begin, size, left = 0, 1, num_rows
        found: list[pa.Table] = []
        while not found or (left > 0 and begin < len(fragments)):
            part = fragments[begin : begin + size]
            some = TableDataset(part, self.schema, files, home, self._held, self._scan_options)
            found.append(some.scanner(**options).head(left))
            left -= found[-1].num_rows
            begin, size = begin + size, 2 * size
        return pa.concat_tables(found)

    def indexed(self, filter: Any) -> ScanPlan | None:
        """Return a plan by an index of the rows that a filter keeps; None: no index is there."""
        return self._held.indexed(filter, self.schema)

    def index_columns(self) -> frozenset[str]:
        """Return the columns that an index of the table has, if indexes may be used."""
        if self._held.plan_of is None:
            return frozenset()
        snapshot = self._held.snapshot
        known = index_definitions(snapshot.metadata.configuration).values()
        stored = {name for one in known for name in one.columns}
        mode = snapshot.mapping_mode
        fields = snapshot.schema.fields
        return frozenset(one.name for one in fields if one.name_in_files(mode) in stored)

    def rows(self, indexed: ScanPlan, names: Sequence[str], filter: Any) -> pa.Table:
        """Return columns of the rows that a filter keeps, by the plan that `indexed` made for it.

        `names` are also those in the filter.
        """
        kept = frozenset(indexed.read_files.rows.primaries["path"].to_pylist())
        paths = [path for path, of in self._held.fragments.items() if of.path in kept]
        schema = pa.schema([self.schema.field(name) for name in names])
        rows = self._held.batches(paths, self.schema, names, BATCH_ROWS, indexed)
        return ds.Scanner.from_batches(rows, schema=schema, filter=filter).to_table()

    def explain(self, filter: Any = None) -> Explanation:
        """Return which files a scanner with a filter reads, if an index narrows it.

        If no index helps: all files of the dataset. pyarrow then skips some by their statistics.
        """
        options = self._scanner_options({"filter": filter})
        indexed = self._held.indexed(options.get("filter"), self.schema)
        return (self._held.plan if indexed is None else indexed).explanation

    def _read(self, columns: Any, filter: Any) -> list[str]:
        """Return the columns that a scanner reads."""
        computed = list(columns.values()) if isinstance(columns, dict) else []
        if columns is None or any("FieldPath" in str(one) for one in (*computed, filter)):
            return list(self.schema.names)
        text = " ".join(map(str, (*computed, filter)))  # Expressions have no other way to show it.
        asked = () if isinstance(columns, dict) else columns
        return [name for name in self.schema.names if name in asked or name in text]

    def get_fragments(self, filter: Any = None) -> Iterator[Any]:
        """Yield the fragments; the rows of those that pyarrow cannot read are in memory."""
        for part in super().get_fragments(filter=filter):
            names = self.schema.names
            if all(self._held.are_plain([part], names, twice=True)):
                yield part
                continue
            batches = self._held.batches([part.path], self.schema, names, BATCH_ROWS)
            rows = pa.Table.from_batches(batches, self.schema)
            yield from ds.InMemoryDataset(rows).get_fragments()

    def replace_schema(self, schema: pa.Schema) -> TableDataset:
        """Return a view of the same rows in another schema."""
        return self._with(schema, self._scan_options)

    def filter(self, expression: Any) -> TableDataset:
        """Return a view of the rows that a filter keeps."""
        before = self._scan_options.get("filter")
        both = expression if before is None else before & expression
        return self._with(self.schema, {**self._scan_options, "filter": both})

    def _with(self, schema: pa.Schema, options: Mapping[str, Any]) -> TableDataset:
        fragments, files, home = self._parts
        return TableDataset(fragments, schema, files, home, self._held, options)

    def sort_by(self, sorting: Any, **options: Any) -> Any:
        """Return the rows, sorted, as a dataset in memory."""
        return self._in_memory().sort_by(sorting, **options)

    def join(self, *arguments: Any, **options: Any) -> Any:
        """Return the rows joined with another dataset, as a dataset in memory."""
        return self._in_memory().join(*arguments, **options)

    def join_asof(self, *arguments: Any, **options: Any) -> Any:
        """Return the rows joined with another dataset by time, as a dataset in memory."""
        return self._in_memory().join_asof(*arguments, **options)

    def _in_memory(self) -> Any:
        return ds.InMemoryDataset(self.to_table())


@dataclass(frozen=True)
class _Parts:
    """Fragments for pyarrow: the path of each, and a predicate that is true for all of its rows."""

    paths: list[str]
    guarantees: list[Any]
    fragments: list[Fragment]

    @classmethod
    def of(cls, store: Store, snapshot: Snapshot, files: PlannedFiles) -> _Parts:
        """Return the fragments of a plan, ordered by id."""
        rows = files.rows
        fragments = list(files.fragments())
        order = arrow_array([fragment.id for fragment in fragments], pa.int64())
        places = pc.index_in(order, value_set=rows.ids)
        bounds = _bounds(snapshot, rows, places)
        odd = _may_be_of_the_old_calendar(snapshot.schema, bounds).to_pylist()
        guarantees, unclear = _guarantees(snapshot, fragments, bounds)
        parts = cls([], guarantees, fragments)
        by_name = _is_plain(snapshot)
        for at, fragment in enumerate(fragments):
            path = _path(store, fragment)
            if not by_name or odd[at] or unclear[at] or fragment.deletion or fragment.files[1:]:
                path = _UNREADABLE + path
            parts.paths.append(path)
        return parts


def _is_plain(snapshot: Snapshot) -> bool:
    """Return whether pyarrow finds a table's columns in files by name, with types that it casts."""
    return snapshot.mapping_mode == "none" and all(map(_is_plain_field, snapshot.schema.fields))


def _is_plain_field(field: StructField) -> bool:
    # Of a float that is no half float, pyarrow would take the nearest one.
    is_plain = TYPE_CHANGES not in field.metadata and not any(
        name.startswith(HALF) for name in field.metadata
    )
    return is_plain and _is_plain_type(field.type)


def _is_plain_type(kind: DataType) -> bool:
    match kind:
        case StructType(fields):
            return all(map(_is_plain_field, fields))
        case ArrayType(element):
            return _is_plain_type(element) and not _has_days(element)
        case MapType(key, value):
            return not any(_has_days(part) or not _is_plain_type(part) for part in (key, value))
        case PrimitiveType(name):
            return name not in ("variant", "void")
    return True


def _has_days(kind: DataType) -> bool:
    """Return whether a type has dates or timestamps in lists or maps, which have no bounds."""
    match kind:
        case StructType(fields):
            return any(_has_days(field.type) for field in fields)
        case ArrayType(element):
            return _has_days(element)
        case MapType(key, value):
            return _has_days(key) or _has_days(value)
    return isinstance(kind, PrimitiveType) and kind.name in _CALENDAR


def _bounds(snapshot: Snapshot, rows: FragmentRows, places: pa.Array) -> Bounds:
    """Return the bounds of fragments, in a given order."""
    stored = StructType(
        tuple(f for f in snapshot.schema.fields if f.name not in snapshot.partition_columns)
    )
    leaves = [
        IsNull(Column(path, kind))
        for path, kind in leaf_types(stored).items()
        if isinstance(kind, DecimalType)
        or (isinstance(kind, PrimitiveType) and kind.name in _BOUNDED)
    ]
    if not leaves:
        return Bounds(pa.nulls(len(places), pa.int64()))
    found = fragment_bounds(
        rows,
        snapshot.schema,
        snapshot.partition_columns,
        And(tuple(leaves)),
        mapping_mode=snapshot.mapping_mode,
    )
    columns = {
        path: ColumnBounds(
            known.low.take(places), known.high.take(places), known.nulls.take(places)
        )
        for path, known in found.columns.items()
    }
    return Bounds(found.rows.take(places), columns)


def _may_be_of_the_old_calendar(schema: StructType, bounds: Bounds) -> pa.Array:
    """Return the fragments that may have dates in the calendar of old versions of Spark."""
    odd = pc.fill_null(pa.nulls(len(bounds), pa.bool_()), False)
    for path, kind in leaf_types(schema).items():
        known = bounds.columns.get(path)
        if known is None or not isinstance(kind, PrimitiveType) or kind.name not in _CALENDAR:
            continue
        new = pc.greater_equal(known.low, arrow_scalar(_NEW[kind.name]).cast(known.low.type))
        empty = pc.or_kleene(pc.equal(known.nulls, bounds.rows), pc.equal(known.nulls, ALL))
        sure = pc.or_(pc.fill_null(new, False), pc.fill_null(empty, False))
        odd = pc.or_(odd, pc.invert(sure))
    return odd


def _guarantees(
    snapshot: Snapshot, fragments: Sequence[Fragment], bounds: Bounds
) -> tuple[list[Any], list[bool]]:
    """Return a predicate that is true for all rows of each fragment, and the incomplete ones."""
    true = ds.scalar(True)
    found: list[list[Any]] = [[] for _ in fragments]
    unclear = [False] * len(fragments)
    columns = {name: snapshot.schema.get(name) for name in snapshot.partition_columns}
    for name, column in columns.items():
        assert column is not None
        texts = [snapshot.form.partition_text(one.partition_values, column) for one in fragments]
        values = parse_partition_values(arrow_array(texts, pa.string()), column.type)
        for at, value in enumerate(values):
            if pa.types.is_floating(values.type) and value.as_py() != value.as_py():
                unclear[at] = True  # Nothing equals NaN.
                continue
            field = ds.field(name)
            found[at].append(field == value if value.is_valid else field.is_null())
    for path, known in bounds.columns.items():
        if len(path) == 1:
            _add_ranges(found, ds.field(path[0]), known, bounds.rows.to_pylist())
    return [reduce(and_, parts) if parts else true for parts in found], unclear


def _add_ranges(
    found: list[list[Any]], field: Any, known: ColumnBounds, rows: Sequence[int | None]
) -> None:
    """Add the bounds of a column, each side in a form that Arrow can use."""
    sides = zip(known.low, known.high, known.nulls.to_pylist(), rows, strict=True)
    for parts, (low, high, nulls, count) in zip(found, sides, strict=True):
        if nulls == ALL or (nulls is not None and nulls == count):
            parts.append(field.is_null())
            continue
        for bound, side in ((low, field >= low), (high, field <= high)):
            if bound.is_valid:
                parts.append(side if nulls == 0 else side | field.is_null())


def _path(store: Store, fragment: Fragment) -> str:
    """Return the path of a fragment's primary file: on the local disk, or in the store."""
    path = decode_path(fragment.path)
    try:
        home, name = locate(store, path)
    except TxlogError:
        return path  # Opening it raises the right error.
    return home.local_path(name) or path


def _filesystem(store: Store, paths: Sequence[str]) -> Any:
    """Return the file system of the paths of fragments."""
    # For a confined table, only the store checks paths.
    if not is_confined(store.options) and all(
        path.removeprefix(_UNREADABLE).startswith("/") for path in paths
    ):
        return pafs.LocalFileSystem()
    return pafs.PyFileSystem(StoreFiles(store))


class StoreFiles(pafs.FileSystemHandler):  # type: ignore[misc]
    """The files of a store for pyarrow, which only opens them for reading."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoreFiles) and other.store.root == self.store.root

    __hash__ = None  # type: ignore[assignment]

    def get_type_name(self) -> str:
        """Return the name of the kind of file system."""
        return "txlog"

    def normalize_path(self, path: str) -> str:
        """Return a path as it is."""
        return path

    def open_input_file(self, path: str) -> Any:
        """Return a file for random reading."""
        home, name = locate(self.store, path)
        file = home.open_input(name)
        return file if isinstance(file, pa.NativeFile) else pa.PythonFile(file, mode="r")

    open_input_stream = open_input_file

    def get_file_info(self, paths: Sequence[str]) -> list[Any]:
        """Return the sizes of files."""
        found = []
        for path in paths:
            home, name = locate(self.store, path)
            found.append(pafs.FileInfo(path, pafs.FileType.File, size=home.info(name).size))
        return found

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(
            "the dataset of a table is read-only. Use the methods of the table"
        )

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = _refuse
    delete_root_dir_contents = delete_file = move = copy_file = _refuse
    open_output_stream = open_append_stream = _refuse


def _large(field: pa.Field) -> pa.Field:
    return field.with_type(_large_type(field.type))


def _large_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string(kind):
        return pa.large_string()
    if pa.types.is_binary(kind):
        return pa.large_binary()
    if pa.types.is_list(kind):
        return pa.large_list(_large(kind.value_field))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_large(kind.value_field), kind.list_size)
    if pa.types.is_struct(kind):
        return pa.struct([_large(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_large_type(kind.key_type), _large(kind.item_field))
    return kind


def _as_dictionary(field: pa.Field) -> pa.Field:
    if pa.types.is_dictionary(field.type):
        return field
    return field.with_type(pa.dictionary(pa.int32(), field.type))
