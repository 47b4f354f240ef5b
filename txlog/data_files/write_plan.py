"""Plan how rows become data files of a table; any process can carry out the plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import orjson
import pyarrow as pa

from txlog.actions.file import Add
from txlog.actions.table import Metadata, Protocol
from txlog.base.arrow import pc
from txlog.base.effects import is_rehearsing
from txlog.base.errors import CommitConflictError, InvalidInputError, SchemaMismatchError
from txlog.base.threads import cached_property
from txlog.commit.context import Context
from txlog.data_files.constraints import (
    Constraint,
    checked,
    constraints_of,
    given_list_error,
    sized,
)
from txlog.data_files.identity import Numbering, marks_of, with_marks, without_mark
from txlog.data_files.incoming import (
    fitted,
    incoming,
    merged_schema,
    require_typed,
    target_schema,
)
from txlog.data_files.modes import ADDING, WriteModes
from txlog.data_files.options import WriteOptions, as_options
from txlog.data_files.write import (
    FileLayout,
    discard_files,
    partitioning,
    write_data_files,
)
from txlog.expressions.bind import bind, columns_of
from txlog.expressions.evaluate import is_true
from txlog.expressions.sql import to_sql
from txlog.expressions.tree import Expression
from txlog.protocol.access import materializes_partitions
from txlog.protocol.mapping import mapped, require_plain_names, same_in_files, unmapped
from txlog.protocol.properties import Properties
from txlog.schema.arrow import arrow_schema, fixed_schema
from txlog.schema.json import schema_json
from txlog.schema.storable import require_storable
from txlog.schema.types import (
    StructField,
    StructType,
)
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store


@dataclass(frozen=True)
class WritePlan:
    """The layout of the data files, and the constraints that rows must satisfy. It pickles."""

    layout: FileLayout
    rules: tuple[Constraint, ...]
    replaced: Expression | None = None  # A bound predicate that every row must satisfy.
    lane: tuple[int, int] = (0, 1)  # This task, and the number of tasks.

    @property
    def schema(self) -> StructType:
        """The schema of the table after the write."""
        return self.layout.schema

    @cached_property
    def has_sizes(self) -> bool:
        """Whether a column has fixed-size lists or half floats."""
        return not fixed_schema(self.schema).equals(arrow_schema(self.schema))

    def with_moved(self, moved: tuple[StructField, ...]) -> WritePlan:
        """Return the plan for rows that have these columns of ids and versions."""
        return replace(self, layout=replace(self.layout, moved=moved))

    def written_for(self, table_id: str | None) -> str:
        """Return a digest of the table id, the columns, the partitioning and the constraints."""
        from hashlib import sha256  # This import loads OpenSSL.

        rules = [rule.text for rule in self.rules]
        parts = [table_id, schema_json(self.schema), list(self.layout.partition_by), rules]
        return sha256(orjson.dumps(parts)).hexdigest()

    def numbering(self) -> Numbering | None:
        """Return the numbering of the rows of one write, if the table has identity columns."""
        counts = any(field.is_identity for field in self.schema.fields)
        return Numbering(self.schema, self.lane) if counts else None

    def write(
        self,
        context: Context,
        reader: pa.RecordBatchReader,
        numbering: Numbering | None = None,
        tap: Tap | None = None,
        sieve: Sieve | None = None,
    ) -> list[Add]:
        """Write a stream of rows as data files, and return their `add` actions.

        Raises
        ------
        SchemaMismatchError
            A row does not fit, and no sieve takes it; no file remains.
        """
        rows = self.checked(reader, numbering, sieve=sieve)
        if tap is not None:
            rows = _tapped(rows, partial(tap, self.schema))
        return write_data_files(context.store, rows, self.layout, effects=context.effects)

    def checked(
        self,
        reader: pa.RecordBatchReader,
        numbering: Numbering | None = None,
        list_error: Callable[[StructField], Exception] = given_list_error,
        *,
        sieve: Sieve | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows in the table's columns and types; none is empty.

        `sieve` takes the rows that do not fit. Without one they are an error.

        Raises
        ------
        SchemaMismatchError
            A row does not fit the table, or breaks a constraint. For a list of another length than
            its column's, `list_error` returns the error.
        """
        numbering = numbering or self.numbering()
        if sieve is not None:
            return sieve(self, reader, numbering)
        rows: Iterator[pa.RecordBatch] = fitted(
            reader,
            self.schema,
            numbering,
            partition_by=self.layout.partition_by,
            truncates=self.truncates,
        )
        return self.satisfied(rows, list_error)

    @property
    def truncates(self) -> bool:
        """Whether nanoseconds may be cut off."""
        return self.layout.writer_properties.allow_truncated_timestamps

    def satisfied(
        self,
        rows: Iterator[pa.RecordBatch],
        list_error: Callable[[StructField], Exception] = given_list_error,
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows in the table's columns that satisfy its constraints; errors as `checked`."""
        # A usual append calls nothing more for this.
        if self.has_sizes:
            rows = sized(rows, self.schema, list_error)
        if self.rules:
            rows = checked(rows, list(self.rules))
        return rows if self.replaced is None else _satisfying(rows, self.replaced)


def plan_write(
    metadata: Metadata,
    schema: StructType,
    options: WriteOptions,
    *,
    mapping_mode: str,
    protocol: Protocol | None,
    replaced: Expression | None = None,
) -> WritePlan:
    """Return the plan to write rows of a schema to a table of this metadata and column mapping.

    Raises
    ------
    InvalidInputError
        The schema lacks a partition column, or `replaced` does not fit it.
    UnsupportedFeatureError
        A constraint of the table cannot be evaluated over the schema.
    """
    _require_partitions(metadata, schema)
    require_storable(schema, metadata.partition_columns)
    properties = Properties(metadata.configuration)
    layout = FileLayout(
        schema,
        tuple(metadata.partition_columns),
        properties,
        options.file_bytes,
        options.max_rows_per_file,
        mapping_mode=mapping_mode,
        writer_properties=options.encoding,
        materializes=materializes_partitions(protocol, properties),
    )
    bound = None if replaced is None else bind(replaced, schema)
    return WritePlan(layout, tuple(constraints_of(metadata, schema)), bound)


def plan_append(snapshot: Snapshot, schema: StructType, options: WriteOptions) -> WritePlan:
    """Return the plan to append rows to a table; errors as for `plan_write`.

    For rows with the table's own schema the plan is cached with the snapshot.
    """
    if schema is not snapshot.schema:
        mode, protocol = snapshot.mapping_mode, snapshot.protocol
        return plan_write(snapshot.metadata, schema, options, mapping_mode=mode, protocol=protocol)
    plan = _usual_plan(snapshot) if is_rehearsing() else snapshot.memo(_usual_plan)
    if options == WriteOptions():
        return plan
    layout = replace(
        plan.layout,
        target_file_bytes=options.file_bytes,
        max_rows_per_file=options.max_rows_per_file,
        writer_properties=options.encoding,
    )
    return replace(plan, layout=layout)


def _usual_plan(snapshot: Snapshot) -> WritePlan:
    return plan_write(
        snapshot.metadata,
        snapshot.schema,
        WriteOptions(),
        mapping_mode=snapshot.mapping_mode,
        protocol=snapshot.protocol,
    )


def schema_after(base: Snapshot, data: StructType, modes: WriteModes) -> StructType:
    """Return the schema of a table after rows of another schema are written to it.

    Raises
    ------
    SchemaMismatchError
        The rows do not fit, and `modes` do not allow a change of the schema.
    InvalidInputError
        `modes` contradict the table, or as for `settled`.
    """
    fixed = fixed_types(base) if modes.schema_mode == "merge" else None
    schema = settled(base, target_schema(base.schema, data, modes, fixed=fixed))
    modes.require_possible(base, schema)
    return schema


def evolved_schema(base: Snapshot, data: StructType) -> StructType:
    """Return the schema of a table after new columns and wider types of data are merged into it.

    Raises
    ------
    SchemaMismatchError, InvalidInputError
        As for `merged_schema` and `settled`.
    """
    return settled(base, merged_schema(base.schema, data, fixed=fixed_types(base)))


def fixed_types(base: Snapshot) -> frozenset[str] | None:
    """Return the columns whose types cannot become wider; None if no type can.

    The property `delta.enableTypeWidening` allows it, except for columns on which a constraint or
    a generated column depends.
    """
    if not base.properties.get("delta.enableTypeWidening"):
        return None
    rules = constraints_of(base.metadata, base.schema)
    return frozenset(path[0] for rule in rules for path in columns_of(rule.predicate))


def settled(base: Snapshot, schema: StructType) -> StructType:
    """Return the new schema of a table, with ids and physical names for its new columns.

    Raises
    ------
    InvalidInputError
        The name of a new column needs column mapping, and the table has none.
    """
    if schema == base.schema:
        return base.schema
    if base.mapping_mode != "none":
        return mapped(schema, base.metadata, before=base.schema)
    require_plain_names(schema, base.schema)
    return schema


def require_same_mapping(base: Snapshot, written: StructType, schema: StructType) -> None:
    """Raise if columns of written files have other ids or physical names in a table's schema.

    Raises
    ------
    CommitConflictError
        Another writer added other columns, which got these ids.
    """
    if base.mapping_mode != "none" and not same_in_files(written, schema):
        raise CommitConflictError(
            version=base.version,
            rule="CON-2",
            reason="another writer added columns, so the new columns of this write have other ids "
            "in data files",
            remedy="Nothing was committed; write again",
        )


Tap = Callable[[StructType, pa.RecordBatch], None]
"""Sees the rows that are written: the table's schema after the write, and a batch."""

Sieve = Callable[[WritePlan, pa.RecordBatchReader, Numbering | None], Iterator[pa.RecordBatch]]
"""Yields the rows that fit a table, as `WritePlan.checked` does, and takes the others."""

RequireFit = Callable[[Snapshot], None]
"""Raises a `CommitConflictError` for a version to which written files do not fit."""


def require_still_fits(
    base: Snapshot, written_for: Snapshot, numbered: Collection[str] = ()
) -> None:
    """Raise if the table's metadata changed so that files written before no longer fit.

    New nullable columns are allowed, because rows of older files have nulls in them. New values of
    identity columns are allowed, too, except for the columns `numbered`, which have values in the
    files.

    Raises
    ------
    CommitConflictError
        Another writer has meanwhile changed the partitioning, a constraint, or a column (rule
        CON-2).
    """
    if base.metadata == written_for.metadata:
        return
    now = {field.name: without_mark(field) for field in base.schema.fields}
    changed = [f.name for f in written_for.schema.fields if now.get(f.name) != without_mark(f)]
    known = set(written_for.schema.names())
    changed += [f.name for f in base.schema.fields if f.name not in known and not f.nullable]
    if base.metadata.id != written_for.metadata.id:
        reason = "the table was replaced by another one"
    elif changed:
        reason = f"another writer changed the columns {', '.join(changed)}"
    elif _other_marks(written_for, base, numbered):
        reason = "another writer's rows took the values of identity columns"
    elif base.partition_columns != written_for.partition_columns:
        reason = "another writer changed the partitioning"
    elif _rules(base) != _rules(written_for):
        reason = "another writer changed the constraints"
    else:
        return
    raise CommitConflictError(
        version=base.version,
        rule="CON-2",
        reason=f"{reason} while the rows were written",
        remedy="Nothing was committed; write again",
    )


def _other_marks(before: Snapshot, now: Snapshot, names: Collection[str]) -> bool:
    """Return whether identity columns of an earlier version have other marks in a later one."""
    then, current = marks_of(before.schema), marks_of(now.schema)
    keys = [field.physical_name for field in before.schema.fields if field.name in names]
    return any(then.get(key) != current.get(key) for key in keys)


def _rules(snapshot: Snapshot) -> list[tuple[str, str]]:
    return [(rule.name, rule.text) for rule in constraints_of(snapshot.metadata, snapshot.schema)]


def _tapped(
    batches: Iterator[pa.RecordBatch], tap: Callable[[pa.RecordBatch], None]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        tap(batch)
        yield batch


def _satisfying(
    batches: Iterator[pa.RecordBatch], predicate: Expression
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        true = is_true(predicate, batch)
        outside = batch.num_rows - int(pc.sum(true).as_py() or 0)
        if outside:
            raise SchemaMismatchError(
                argument="data",
                reason=f"{outside} rows do not satisfy {to_sql(predicate)}, "
                "so they would not replace the selected rows",
                remedy="Nothing was written; omit these rows, or widen the predicate",
            )
        yield batch


def _require_partitions(metadata: Metadata, schema: StructType) -> None:
    """Raise unless a schema has the partition columns that a table keeps."""
    lost = [name for name in metadata.partition_columns if schema.get(name) is None]
    if lost:
        raise InvalidInputError(
            argument="schema_mode",
            field=lost[0],
            reason=f"the new columns lack {lost[0]}, by which the table is partitioned",
            remedy="Name the columns of the new partitioning, or no column for none: "
            "partition_by=[]",
        )
    partitioning(schema, metadata.partition_columns)


def partitioned_by(
    metadata: Metadata, schema: StructType, columns: Sequence[str] | None
) -> Metadata:
    """Return metadata with other partition columns; None keeps them. Errors as `partitioning`."""
    if columns is None:
        return metadata
    return metadata.model_copy(update={"partition_columns": list(partitioning(schema, columns))})


class AddedFiles:
    """Data files, or the data from which they are written when they are first needed."""

    def __init__(
        self,
        data: Any = None,
        *,
        modes: WriteModes = ADDING,
        options: WriteOptions | None = None,
        tap: Tap | None = None,
    ) -> None:
        """Take data to write.

        Parameters
        ----------
        modes
            Every row must satisfy their predicate, because it selects the rows to replace.
        tap
            Called with the new schema of the table and each batch that is written from the data.
        """
        self.modes = modes
        self.adds: list[Add] = []
        self.schema: StructType | None = None
        self._data = data
        self._options = as_options(options)
        self._tap = tap
        self._owned = True
        self._require_fit: RequireFit | None = None
        self._written_for: Snapshot | None = None  # The files' base; None: others wrote them.
        self._numbered: frozenset[str] = frozenset()  # Identity columns numbered here.
        self._before: list[Add] = []  # Files that were written again; their packs are still needed.

    @classmethod
    def written(
        cls,
        adds: list[Add],
        schema: StructType,
        require_fit: RequireFit,
        *,
        modes: WriteModes = ADDING,
        owned: bool = True,
    ) -> AddedFiles:
        """Take files that others wrote.

        Parameters
        ----------
        schema
            The table's schema after the write.
        require_fit
            Raises for versions of the table to which the files do not fit.
        owned
            Whether to delete the files if they are not committed.
        """
        files = cls(modes=modes)
        files.adds, files.schema = adds, schema
        files._require_fit, files._owned = require_fit, owned
        return files

    def fit(self, context: Context, base: Snapshot, sieve: Sieve | None = None) -> StructType:
        """Write the files if they are not written yet; return the new schema of the table.

        `sieve` takes the rows that do not fit. Without one they are an error.

        They are written again if another writer's columns use the ids of the new columns, or
        another writer's rows use the values of identity columns.

        Raises
        ------
        SchemaMismatchError
            The data does not fit the table.
        InvalidInputError
            The modes contradict the table.
        CommitConflictError
            The files were written for other columns, partitions or constraints than those of
            `base`.
        """
        if self.schema is None or self._require_fit is None:
            self._fill(context, base, sieve)
        assert self._require_fit is not None
        self._require_fit(base)
        if self._written_for is not None and base.metadata != self._written_for.metadata:
            self._write_again(context, base, self._written_for, sieve)
        assert self.schema is not None
        self.modes.require_possible(base, self.schema)
        return self.schema

    def _fill(self, context: Context, base: Snapshot, sieve: Sieve | None) -> None:
        """Write the files for a version of the table."""
        nanos = base.supports("timestampNanos")
        columns = None if self.modes.replaces_schema else base.schema
        truncates = self._options.encoding.allow_truncated_timestamps
        rows = incoming(self._data, columns, nanos=nanos, truncates=truncates)
        schema = schema_after(base, rows.schema, self.modes)
        if columns is not None:
            require_typed(schema.fields, columns)
        self._write(context, base, schema, rows.reader, sieve)
        self._data = None

    def _write(
        self,
        context: Context,
        base: Snapshot,
        schema: StructType,
        reader: pa.RecordBatchReader,
        sieve: Sieve | None = None,
    ) -> None:
        modes = self.modes
        if modes.where is None and modes.partition_by is None:
            plan = plan_append(base, schema, self._options)
        else:
            plan = plan_write(
                partitioned_by(base.metadata, schema, modes.partition_by),
                schema,
                self._options,
                mapping_mode=base.mapping_mode,
                protocol=base.protocol,
                replaced=modes.where,
            )
        numbering = plan.numbering()
        self.adds = plan.write(context, reader, numbering, self._tap, sieve)
        self._tap = None  # Rows that are written again were given to it already.
        self.schema = schema
        if numbering is not None:
            self.schema = with_marks(schema, numbering.marks())
            self._numbered = numbering.columns
        self._written_for = base
        self._require_fit = partial(require_still_fits, written_for=base)

    def _write_again(
        self, context: Context, base: Snapshot, before: Snapshot, sieve: Sieve | None
    ) -> None:
        """Write the rows of the files again, if other writers used their ids or values.

        Then their columns get other physical names, or identity columns get later values.
        """
        assert self.schema is not None
        schema = unmapped(self.schema)
        if not self.modes.replaces_schema:
            schema = merged_schema(base.schema, schema)
        schema = settled(base, schema)
        outdated = _other_marks(before, base, self._numbered)
        if not outdated and same_in_files(self.schema, schema):
            return
        adds = self.adds
        from txlog.data_files.change_files import rows_of_files

        kept = StructType(tuple(f for f in self.schema.fields if f.name not in self._numbered))
        rows = rows_of_files(context, before, kept, adds)
        reader = pa.RecordBatchReader.from_batches(arrow_schema(kept), rows)
        self._write(context, base, schema, reader, sieve)
        discard_files(context.store, adds, kept=self.adds)
        self._before += adds

    @property
    def own_files(self) -> frozenset[str]:
        """The files, as `Intent.own_files`; files of fragments may be committed by others, too."""
        own = (add.path for add in (*self.adds, *self._before))
        return frozenset(own) if self._owned else frozenset()

    def discard(self, store: Store) -> None:
        """Delete the files: no commit refers to them."""
        if self._owned:
            discard_files(store, [*self.adds, *self._before])
