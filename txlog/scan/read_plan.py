"""How fragments are read: the columns of the result and of the predicate. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from txlog.base.arrow import pc
from txlog.base.errors import DataFileError, InvalidInputError, InvalidTypeError, warn_caller
from txlog.base.threads import cached_property
from txlog.expressions.bind import bind, column_path, columns_of
from txlog.expressions.tree import (
    Column,
    Comparison,
    Expression,
    In,
    Literal,
    col,
    nodes,
    quote_name,
)
from txlog.protocol.form import ReadForm
from txlog.protocol.mapping import all_fields
from txlog.scan.columns import (
    ROW_ID,
    ROW_VERSION,
    require_row_tracking,
    visible_metadata,
)
from txlog.schema.arrow import (
    DICTIONARY,
    arrow_schema,
    arrow_type,
    fixed_rows,
    fixed_schema,
    is_kept,
    misfit,
    schema_metadata,
    with_dictionaries,
)
from txlog.schema.types import StructField, StructType
from txlog.snapshot.snapshot import Place, Snapshot

if TYPE_CHECKING:
    from txlog.fragments.fragment import Fragment
    from txlog.parquet.footer import Numbers
    from txlog.scan.pages import FooterCache
    from txlog.scan.resolve import PartitionValues, Resolved


class ReadMemo:
    """A cache of facts that readers of a plan share between files; it is not pickled.

    Two threads may compute the same value, which does no harm.
    """

    def __init__(self) -> None:
        self.resolved: dict[tuple[str, ...], tuple[pa.Schema, Resolved]] = {}
        self.schemas: dict[tuple[str, ...], pa.Schema] = {}
        self._footers: FooterCache | None = None
        self.partition_values: PartitionValues = {}
        # Times of the commit of the version, None without one, with which it was in its place.
        self.in_place: set[int | None] = set()

    @property
    def footers(self) -> FooterCache:
        """The footers of files whose rows are read by their pages."""
        if self._footers is None:
            from txlog.scan.pages import FooterCache  # Scans need no footers.

            self._footers = FooterCache()
        return self._footers

    @footers.setter
    def footers(self, footers: FooterCache) -> None:
        self._footers = footers

    def __reduce__(self) -> tuple[type[ReadMemo], tuple[()]]:
        return ReadMemo, ()


class Candidates:
    """The rows that may match a predicate, where something other than statistics knows them.

    They are found at their first use.

    Parameters
    ----------
    where
        The predicate, or None for a plan without one. A plan with another one does not use them.
    find
        Returns ascending positions by the logged paths of fragments' primary files. All rows of
        other fragments may match.
    """

    def __init__(self, where: Expression | None, find: Callable[[], Mapping[str, Numbers]]) -> None:
        self.where = where
        self._find = find

    @cached_property
    def positions(self) -> Mapping[str, Numbers]:
        """The positions, by paths."""
        return self._find()

    def __reduce__(self) -> tuple[Any, ...]:
        return _found_candidates, (self.where, self.positions)


def _found_candidates(where: Expression | None, positions: Mapping[str, Numbers]) -> Candidates:
    return Candidates(where, lambda: positions)


@dataclass(frozen=True, kw_only=True)
class ReadPlan:
    """How to read a fragment: it pickles, so any worker can do it without the log."""

    root: str
    version: int
    columns: tuple[StructField, ...]  # The columns in the order of the result.
    needed: tuple[StructField, ...]  # With the predicate's; first the table's.
    metadata_columns: frozenset[str] = frozenset()  # The needed metadata columns.
    form: ReadForm  # The table's, with only the needed columns that its files have.
    where: Expression | None  # Bound to the table's schema.
    # The columns that are fields of structs, with their paths. In `needed`, their structs may have
    # only the fields that are read.
    nested: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fixes: bool = False  # Whether the result is as the Arrow data was: `fixed_schema`.
    metadata: Mapping[str, str] | None = None  # Of the Arrow schema of the table.
    dictionaries: frozenset[str] = frozenset()  # The columns of the result that are dictionaries.
    candidates: Candidates | None = field(default=None, repr=False, compare=False)
    place: Place | None = field(default=None, repr=False, compare=False)
    memo: ReadMemo = field(default_factory=ReadMemo, repr=False, compare=False)

    def candidates_in(self, fragment: Fragment) -> Numbers | None:
        """Return the positions of the rows that may match; None: any row of the fragment may."""
        if self.candidates is None or self.candidates.where is not self.where:
            return None
        return self.candidates.positions.get(fragment.path)

    def for_fragments(self, fragments: Sequence[Fragment]) -> Self:
        """Return the plan with what it knows of the rows of some fragments alone."""
        if self.candidates is None:
            return self
        found = self.candidates.positions
        own = {one.path: found[one.path] for one in fragments if one.path in found}
        return replace(self, candidates=Candidates(self.candidates.where, lambda: own))

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone: what was computed from them is computed again."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        if not self.fixes:
            return self.plain_schema
        schema = fixed_schema(StructType(self.columns)).with_metadata(self.metadata)
        return with_dictionaries(schema, self.dictionaries)

    @cached_property
    def plain_schema(self) -> pa.Schema:
        """The Arrow schema of the result, in types of Delta."""
        return arrow_schema(StructType(self.columns))

    @cached_property
    def listed(self) -> dict[str, list[object]]:
        """The values that the predicate lists for columns, as `listed_values` returns them."""
        from txlog.expressions.listed import listed_values

        return {} if self.where is None else listed_values(self.where)

    def schema_of(self, needed: Sequence[StructField]) -> pa.Schema:
        """Return the Arrow schema of needed columns."""
        names = tuple(column.name for column in needed)
        if names not in self.memo.schemas:
            self.memo.schemas[names] = arrow_schema(StructType(tuple(needed)))
        return self.memo.schemas[names]

    def for_arrow(self) -> Self:
        """Return the plan with the result as the Arrow data was; the same plan if it is that."""
        fixed = fixed_schema(StructType(self.columns))
        is_plain = fixed.equals(self.plain_schema, check_metadata=True)
        is_same = is_plain and not self.metadata and not self.dictionaries
        return self if is_same else replace(self, fixes=True)

    def with_dictionaries(self, wanted: bool | Sequence[str]) -> Self:
        """Return the plan with some columns of the result as dictionaries, for `for_arrow`.

        Parameters
        ----------
        wanted
            Names of the result. True: those that were dictionaries when the table got them.

        Raises
        ------
        InvalidTypeError, InvalidInputError
            It is no list of names, or a column is not in the result, or is nested.
        """
        known = {column.name: column for column in self.columns}
        if isinstance(wanted, bool):
            given = [one.name for one in self.columns if wanted and one.metadata.get(DICTIONARY)]
        elif isinstance(wanted, str) or not hasattr(wanted, "__iter__"):
            raise InvalidTypeError(
                argument="dictionaries",
                reason=f"a list of names, or True, was expected, not {type(wanted).__name__}",
            )
        else:
            given = list(wanted)
        for name in given:
            column = known.get(name) if isinstance(name, str) else None
            if column is None:
                raise InvalidInputError(
                    argument="dictionaries",
                    reason=f"{name!r} is no column of the result",
                    remedy=f"Choose from {', '.join(known)}",
                )
            kind = arrow_type(column.type)
            if pa.types.is_nested(kind) or pa.types.is_null(kind) or pa.types.is_interval(kind):
                raise InvalidInputError(
                    argument="dictionaries",
                    field=name,
                    reason=f"values of {kind} cannot be in a dictionary",
                )
        return replace(self, dictionaries=frozenset(given)) if given else self


def chosen_columns(plan: ReadPlan, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows in the columns of a plan: of those that it needs, or fields in them.

    Raises
    ------
    DataFileError
        A list has another number of elements than the metadata of its column says, or a number is
        no half float.
    """
    if plan.nested:
        arrays = [
            pc.struct_field(rows.column(path[0]), list(path[1:]))
            if (path := plan.nested.get(column.name)) is not None
            else rows.column(column.name)
            for column in plan.columns
        ]
        rows = pa.RecordBatch.from_arrays(arrays, schema=plan.plain_schema)
    else:
        rows = rows.select([column.name for column in plan.columns])
    wrong = partial(stored_list_error, plan.root, plan.version)
    if not plan.fixes:
        return rows
    rows = fixed_rows(rows, plan.columns, wrong)
    if plan.dictionaries:
        arrays = [
            column.dictionary_encode() if name in plan.dictionaries else column
            for name, column in zip(rows.schema.names, rows.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=plan.schema)
    return rows.replace_schema_metadata(plan.metadata) if plan.metadata else rows


def stored_list_error(path: str, version: int, column: StructField) -> DataFileError:
    """Return the error for a value in a file or a table that its column's metadata excludes."""
    name, keys = next(
        (name, keys)
        for name, field in all_fields(StructType((column,)))
        if (keys := [key for key in field.metadata if is_kept(key)])
    )
    return DataFileError(
        path=path,
        version=version,
        reason=f"the metadata of the column {column.name} says that it is "
        f"{fixed_schema(StructType((column,))).field(0).type}, but {misfit(column)}",
        remedy=f"Read all values: alter.set_column_metadata({'.'.join(name)!r}, "
        f"{dict.fromkeys(keys)}). For an older version, clone it, and call this for the clone",
    )


def scan_schema(snapshot: Snapshot) -> StructType:
    """Return all possible columns of a scan: the table's columns, then the metadata columns."""
    return StructType((*snapshot.schema.fields, *visible_metadata(snapshot).values()))


def read_plan(
    snapshot: Snapshot, *, columns: list[str] | None = None, where: Expression | None = None
) -> ReadPlan:
    """Decide how the fragments of a snapshot are read; arguments and errors as `plan_scan`."""
    metadata = visible_metadata(snapshot)
    schema = scan_schema(snapshot)
    names = snapshot.schema.names() if columns is None else columns
    chosen, nested = choose_fields(schema, names)
    bound = None if where is None else bind(where, schema)
    _warn_of_empty_partitions(bound, snapshot)
    needed = needed_columns(schema, chosen, bound, nested)
    if ROW_VERSION in metadata and any(column.name == ROW_VERSION for column in needed):
        require_row_tracking(snapshot)
    return ReadPlan(
        root=snapshot.root,
        version=snapshot.version,
        columns=chosen,
        needed=needed,
        metadata_columns=frozenset(column.name for column in needed if column.name in metadata),
        form=form_for(snapshot.form, needed, metadata),
        where=bound,
        nested=nested,
        metadata=schema_metadata(snapshot.schema),
        place=Place.of(snapshot),
    )


def _warn_of_empty_partitions(where: Expression | None, snapshot: Snapshot) -> None:
    """Warn if a partition value is compared with the empty text, which the log stores as null."""
    for node in nodes(where) if where is not None and snapshot.partition_columns else ():
        match node:
            case Comparison(sign, Column(path), Literal("")) if sign in ("=", "<=>"):
                name = path[0]
            case In(Column(path), values) if any(one.value == "" for one in values):
                name = path[0]
            case _:
                continue
        if name in snapshot.partition_columns:
            warn_caller(
                f"no value of the partition column {name} is an empty text, because Delta stores "
                f'it as null. Ask for {quote_name(name)} IS NULL, or ("{name}", "=", None)'
            )


def form_for(
    form: ReadForm, needed: Sequence[StructField], metadata: Collection[str] = ()
) -> ReadForm:
    """Return a table's form with only some of its columns, for a plan that workers get."""
    columns = tuple(column for column in needed if column.name not in metadata)
    return replace(form, schema=StructType(columns))


def require_table_columns(
    where: Expression | None,
    snapshot: Snapshot,
    files: pa.Table | None = None,
    *,
    row_ids: bool = False,
) -> None:
    """Raise if the predicate of a write uses metadata columns.

    Addresses and provisional ids belong to one version, and a write uses the latest version.

    Parameters
    ----------
    files
        The live `FILE_ROWS` that are looked at.
    row_ids
        Accept `_rowid` if the table tracks rows: the id identifies the same row in all versions.
        Rows that an open transaction has added have no ids yet.

    Raises
    ------
    InvalidInputError
        The predicate uses them.
    """
    metadata = set(visible_metadata(snapshot))
    if row_ids and snapshot.has_stable_row_ids:
        metadata.discard(ROW_ID)
    for path in () if where is None else columns_of(where):
        if path[0] in metadata:
            other = " or `_rowid` if the table tracks rows (delta.enableRowTracking=true)"
            raise InvalidInputError(
                argument="where",
                field=path[0],
                reason="a write cannot use metadata columns, because they may identify other rows "
                "in a newer version",
                remedy=f"Use columns of the table{other if row_ids else ''}",
            )
        if path[0] == ROW_ID and row_ids and files is not None and _has_pending_ids(files):
            raise InvalidInputError(
                argument="where",
                field=ROW_ID,
                reason="the transaction has added rows, which get their ids by its commit",
                remedy="Use columns of the table, or change rows by their ids first",
            )


def _has_pending_ids(files: pa.Table) -> bool:
    least = pc.min(files["base_row_id"]).as_py()
    return least is not None and least < 0


def column_names(columns: Sequence[str]) -> list[str]:
    """Return the names of columns that a caller chose.

    Raises
    ------
    InvalidTypeError
        The argument is a single string, or no list.
    """
    if isinstance(columns, str) or not hasattr(columns, "__iter__"):
        is_name = isinstance(columns, str)
        raise InvalidTypeError(
            argument="columns",
            reason="a list of names was expected, not "
            + ("a string" if is_name else type(columns).__name__),
            remedy=f"Write columns=[{columns!r}]" if is_name else "",
        )
    return list(columns)


def choose_columns(
    schema: StructType, columns: Sequence[str], fits: Callable[[StructField], bool] | None = None
) -> tuple[StructField, ...]:
    """Return the columns of a schema that a caller names, in the caller's order.

    `fits` says which columns the error offers in place of one that is not there. Default: all.

    Raises
    ------
    InvalidInputError
        There is no column of a name.
    """
    found = []
    for name in column_names(columns):
        column = schema.get(name) if isinstance(name, str) else None
        if column is None:
            offered = [field.name for field in schema.fields if fits is None or fits(field)]
            raise InvalidInputError(
                argument="columns",
                field=str(name),
                reason="the table has no such column",
                remedy=f"Choose from {', '.join(offered)}" if offered else "",
            )
        found.append(column)
    return tuple(found)


def choose_fields(
    schema: StructType, columns: Sequence[str]
) -> tuple[tuple[StructField, ...], dict[str, tuple[str, ...]]]:
    """Return the columns, and the fields of structs (`st.b`), that a caller names.

    A field becomes a column with its dotted name; the second value has its path.

    Raises
    ------
    InvalidInputError
        There is no column of a name.
    """
    nested: dict[str, tuple[str, ...]] = {}
    found: list[StructField] = []
    for name in column_names(columns):
        inside = _in_struct(schema, name)
        if inside is None:
            found += choose_columns(schema, [_unquoted(schema, name)])
            continue
        path, inner = inside
        dotted = ".".join(path)
        nested[dotted] = path
        found.append(StructField(dotted, inner.type, True, inner.metadata))
    return tuple(found), nested


def _unquoted(schema: StructType, name: str) -> str:
    """Return a column's name without the backticks around it."""
    if not isinstance(name, str) or not name.startswith("`"):
        return name
    try:
        path = column_path(schema, name)
    except InvalidInputError:
        return name
    return path[0] if len(path) == 1 and schema.get(path[0]) is not None else name


def _in_struct(schema: StructType, name: str) -> tuple[tuple[str, ...], StructField] | None:
    """Return a field that is only in structs, with its path; None if there is no such field."""
    if not isinstance(name, str) or "." not in name or schema.get(name) is not None:
        return None
    try:
        steps = col(name).path
    except InvalidInputError:
        return None
    found = schema.along(steps)
    if len(found) < max(2, len(steps)):
        return None
    return tuple(one.name for one in found), found[-1]


def needed_columns(
    schema: StructType,
    chosen: tuple[StructField, ...],
    where: Expression | None,
    nested: Mapping[str, tuple[str, ...]],
) -> tuple[StructField, ...]:
    """Return the columns of a schema that must be read for a result and a predicate."""
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
    """Return a field with only the nested fields at some paths; (): all of it."""
    if not isinstance(field.type, StructType) or () in paths:
        return field
    kept = [
        _part(inner, below)
        for inner in field.type.fields
        if (below := [path[1:] for path in paths if path[0] == inner.name])
    ]
    return replace(field, type=StructType(tuple(kept)))
