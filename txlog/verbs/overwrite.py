"""Replace all rows, those that match a predicate, or those of the written partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from txlog.actions.columns import FILE_ROWS
from txlog.actions.file import Add
from txlog.actions.table import DomainMetadata, Metadata
from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.checkpoint.file_rows import Wanted
from txlog.commit.intent import Intent, Reads
from txlog.commit.operation import Companion, Operation
from txlog.data_files.change_files import inserted_rows, write_rows_of
from txlog.data_files.deletions import delete_rows, plan_changes, removes_of
from txlog.data_files.modes import PartitionMode, SchemaMode, WriteModes, require_version_known
from txlog.data_files.options import WriteOptions, as_options
from txlog.data_files.row_changes import RowChanges
from txlog.data_files.write_plan import AddedFiles, partitioned_by
from txlog.expressions.sql import to_sql
from txlog.expressions.tree import Expression
from txlog.protocol.form import logged_partition_value
from txlog.protocol.mapping import with_schema
from txlog.protocol.properties import with_dropped
from txlog.scan.lazy_plan import planner_of
from txlog.schema.types import StructField, StructType
from txlog.snapshot.live_files import (
    Select,
    chosen_rows,
    load_columns,
)
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.files import partition_texts
from txlog.stats.partition import encoded, format_partition_values, parse_partition_values
from txlog.verbs.append import evolved, require_free_names, sieve_of, write_metrics
from txlog.verbs.same_rows import EVERY_FILE, Replaced, possible_files, require_same_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from txlog.commit.app_versions import AnyAppVersion
    from txlog.data_files.sieve import Rejects


class Overwrite(Operation):
    """Replace all rows, those that match a predicate, or those of the written partitions."""

    name = "WRITE"
    removes_rows = True
    keeps_files = True

    def __init__(
        self,
        files: AddedFiles,
        *,
        options: WriteOptions | None = None,
        computed_from: int | None = None,
        is_stated: bool = False,
        quarantine: Rejects | None = None,
    ) -> None:
        """Take the new rows, whose modes say which rows they replace.

        Parameters
        ----------
        options
            The sizes of files for the remaining rows of files in which rows are replaced.
        computed_from
            The version of the table from whose rows the new rows are. None: from no rows of it.
        is_stated
            Whether the caller named this version: one that does not exist is the caller's error.
        quarantine
            As for `Append`.
        """
        self._quarantine = quarantine
        self._files = files
        self._computed_from = computed_from
        self._is_stated = is_stated
        self._options = as_options(options)
        self._deletes: RowChanges | None = None

    @classmethod
    def of_data(
        cls,
        data: Any,
        *,
        where: Expression | None = None,
        partition_mode: PartitionMode = "static",
        schema_mode: SchemaMode = None,
        options: WriteOptions | None = None,
        partition_by: Sequence[str] | None = None,
        computed_from: int | None = None,
        quarantine: Rejects | None = None,
    ) -> Overwrite:
        """Replace rows by the rows of data: anything that supports Arrow.

        `partition_by` changes the partition columns, together with the schema.
        """
        modes = WriteModes(
            mode="overwrite",
            where=where,
            partition_mode=partition_mode,
            schema_mode=schema_mode,
            partition_by=partition_by,
        )
        files = AddedFiles(data, modes=modes, options=options)
        return cls(
            files,
            options=options,
            computed_from=computed_from,
            is_stated=True,
            quarantine=quarantine,
        )

    def intent(self, base: Snapshot) -> Intent:
        """Return the rows to remove and the files to add.

        Raises
        ------
        InvalidInputError
            The arguments contradict each other or the table; or `computed_from` is a later version.
        SchemaMismatchError, CommitConflictError
            As for `AddedFiles.fit`.
        CommitConflictError
            The new rows are from a version that had other rows to replace (CON-30).
        """
        self._discard_deletes()
        if self._is_stated:
            require_version_known(self._computed_from, base.version, base.root)
        sieve = sieve_of(self, self._quarantine, base)
        schema, modes = self._files.fit(self.context, base, sieve), self._files.modes
        if self._computed_from is not None:
            engine = planner_of(self.context.store, base, self.context.engine)
            require_same_rows(
                self.context.store, base, self._computed_from, self._replaced(), engine
            )
        metadata, domains = _definition(base, schema, self._files)
        deletes = self._deletes = self._rows_replaced(base)
        if deletes.cdc:  # If there are change files, they must include the new rows, too.
            rows = inserted_rows(self._files.adds)
            cdc = write_rows_of(self.context, base, rows, schema=schema)
            deletes = self._deletes = replace(deletes, cdc=(*deletes.cdc, *cdc))
        return Intent(
            operation=self.name,
            read_version=base.version,
            # No predicate describes the partitions of a dynamic overwrite, so any file may matter.
            # With the kind "overwrite" it finds its files again after every winner, without writing
            # files again.
            kind="overwrite" if modes.where is None else "replace",
            removes=deletes.removes,
            adds=(*deletes.adds, *self._files.adds),
            own_files=deletes.own_files | self._files.own_files,
            cdc=deletes.cdc,
            metadata=metadata,
            domains=domains,
            reads=Reads(everything=modes.where is None, where=deletes.where),
            parameters={
                "mode": "Overwrite",
                "partitionBy": (metadata or base.metadata).partition_columns,
                "predicate": None if deletes.where is None else to_sql(deletes.where),
                "partitionOverwriteMode": modes.partition_mode if modes.where is None else None,
            },
            metrics={
                **write_metrics(self._files.adds),
                "numRemovedFiles": len(deletes.removes),
            },
        )

    def _replaced(self) -> Replaced:
        """Return the choice of the files in which this write replaces rows."""
        if self._files.modes.where is not None:
            return possible_files(self._files.modes.where)
        if self._files.modes.partition_mode == "dynamic":
            return Replaced(_partitions, partial(in_partitions, self._files.adds))
        return EVERY_FILE

    def _rows_replaced(self, base: Snapshot) -> RowChanges:
        modes = self._files.modes
        if modes.where is not None:
            plan = plan_changes(self.context, base, modes.where)
            return delete_rows(self.context, base, plan, self._options)
        store = self.context.store
        if modes.partition_mode == "dynamic":
            inside = in_partitions(self._files.adds, base)
            engine = planner_of(store, base, self.context.engine)
            rows = chosen_rows(store, base, _partitions(base), inside, engine)
        else:
            rows = load_columns(store, base, _OF_REMOVES).live
        return RowChanges(None, tuple(removes_of(rows, self.context.effects.now_ms())))

    def _discard_deletes(self) -> None:
        deletes, self._deletes = self._deletes, None
        if deletes is not None:
            deletes.discard(self.context.store)

    def companions(self, txn: AnyAppVersion | None) -> Sequence[Companion]:
        """Return the commit of rows to the quarantine."""
        return () if self._quarantine is None else self._quarantine.companions(txn)

    def side_metrics(self) -> Mapping[str, int]:
        """Return the number of rows in the quarantine, if there is one."""
        return {} if self._quarantine is None else self._quarantine.metrics

    def discard(self) -> None:
        """Delete the data files, and files that were written for replaced rows."""
        self._discard_deletes()
        self._files.discard(self.context.store)


_OF_REMOVES = tuple(name for name in FILE_ROWS.names if name != "stats")


def _partitions(_: Snapshot) -> Wanted:
    return Wanted(("path", "partition_values"), encoded=True)


def in_partitions(adds: Sequence[Add], snapshot: Snapshot) -> Select:
    """Return the choice of the files that are in one of the partitions of new ones; it pickles.

    Partitions are compared by value, because writers spell some types in several ways.
    """
    mode, fields = snapshot.mapping_mode, tuple(snapshot.partition_fields)
    logged = [
        [logged_partition_value(add.partition_values, field, mode) for add in adds]
        for field in fields
    ]
    different = list(zip(*set(zip(*logged, strict=True)), strict=True)) or [()] * len(fields)
    texts = (arrow_array(list(column), pa.string()) for column in different)
    wanted = tuple(_respelled(one, field) for one, field in zip(texts, fields, strict=True))
    return partial(_inside, fields, mode, wanted)


def _inside(
    fields: Sequence[StructField], mode: str, wanted: Sequence[pa.DictionaryArray], rows: pa.Table
) -> pa.Table:
    """Return the files that are in one of the wanted partitions, which are given by column. Pure.

    Column by column, the first values of a partition become a number: their place among those of
    the wanted partitions, or -1.
    """
    if not all(map(len, wanted)):
        return rows.slice(0, 0)
    ours = np.zeros(1, np.int64)
    theirs = np.zeros(rows.num_rows, np.int64)
    for field, texts in zip(fields, wanted, strict=True):
        known = pc.unique(texts.dictionary_decode())
        at = _places(_respelled(partition_texts(rows, field, mode), field), known)
        pairs = np.where((theirs < 0) | (at < 0), -1, theirs * len(known) + at)
        distinct, ours = np.unique(ours * len(known) + _places(texts, known), return_inverse=True)
        found = np.searchsorted(distinct, pairs).clip(max=len(distinct) - 1)
        theirs = np.where(distinct[found] == pairs, found, -1)
    return rows.filter(arrow_array(theirs >= 0))


def _respelled(texts: pa.Array, field: StructField) -> pa.DictionaryArray:
    """Return logged partition values in txlog's spelling, in which NaN equals itself. Pure.

    Each different text is spelt again once, so the dictionary may contain a text twice.
    """
    coded = encoded(texts)
    values = parse_partition_values(coded.dictionary, field.type)
    spelt = format_partition_values(values, field.type)
    return pa.DictionaryArray.from_arrays(coded.indices, spelt)


def _places(coded: pa.DictionaryArray, known: pa.Array) -> NDArray[np.int64]:
    """Return the place of each value among known ones, or -1. Pure."""
    values = pa.concat_arrays([coded.dictionary, pa.nulls(1, pa.string())])
    found = pc.fill_null(pc.index_in(values, value_set=known), -1)
    at = pc.fill_null(coded.indices, len(coded.dictionary))
    places: NDArray[np.int64] = numpy_array(found.take(at)).astype(np.int64)
    return places


def _definition(
    base: Snapshot, schema: StructType, files: AddedFiles
) -> tuple[Metadata | None, tuple[DomainMetadata, ...]]:
    """Return the metadata and the domains that change."""
    if not files.modes.replaces_schema:
        return evolved(base, schema), ()
    metadata = partitioned_by(base.metadata, schema, files.modes.partition_by)
    if schema == base.schema and metadata == base.metadata:
        return None, ()
    from txlog.verbs.mapped_columns import without_lost_columns

    if schema != base.schema:
        require_free_names(base, schema)
        metadata = with_dropped(metadata, ())  # The remaining files do not have them.
        metadata = with_schema(metadata, schema)
    return without_lost_columns(base, metadata, schema)
