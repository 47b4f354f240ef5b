"""Column files: separate files with some columns of all rows of a fragment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import orjson
import pyarrow as pa

from txlog.actions.file import Add, Remove
from txlog.actions.stats_text import StatsText
from txlog.base.arrow import arrow_array, pc
from txlog.base.effects import is_rehearsing
from txlog.base.errors import DataFileError, LogCorruptError
from txlog.commit.context import Context
from txlog.data_files.column_values import ColumnValues
from txlog.data_files.constraints import Constraint, checked, sized
from txlog.data_files.deletions import adds_of, removes_of
from txlog.data_files.write import FileLayout, discard_files, write_data_files
from txlog.fragments.deletion_vector import alive_mask
from txlog.fragments.fragment import Fragment
from txlog.fragments.ids import ID_TAG
from txlog.fragments.rows import FIELDS_TAG, LAYER_TAG, fragment_rows
from txlog.protocol.properties import Properties
from txlog.scan.data_file import BATCH_ROWS
from txlog.scan.read import FragmentReader
from txlog.scan.read_plan import ReadPlan
from txlog.schema.arrow import arrow_schema
from txlog.schema.types import StructType

ONE_FILE = 1 << 62  # This size is so large that a fragment never gets several column files.


@dataclass(frozen=True)
class ColumnWriter:
    """Writes column files of fragments of one version. It pickles if its values do."""

    context: Context
    plan: ReadPlan  # The plan to read the columns from which values are computed.
    values: ColumnValues
    properties: Properties
    rules: tuple[Constraint, ...] = ()
    # The name of the files' column of the versions of rows, if they get the commit's version.
    version_column: str | None = None
    is_indexed: bool = field(default_factory=lambda: not is_rehearsing())  # As in `FileLayout`.

    def write(self, fragment: Fragment) -> Add | None:
        """Write the column file of a fragment and return its `add`, or None if it has no rows.

        Deleted rows have nulls in the file.

        Raises
        ------
        DataFileError, BadDeletionVectorError
            A file of the fragment is missing or unreadable, or contradicts the log.
        InvalidInputError, SchemaMismatchError
            The values do not fit.
        """
        if fragment.physical_rows == 0:
            return None
        require_addressable(fragment)
        layout = FileLayout(
            self._in_file(),
            (),
            self.properties,
            ONE_FILE,
            mapping_mode=self.plan.form.mapping_mode,
            sorts=False,
            is_indexed=self.is_indexed,
        )
        batches = self._batches(fragment)
        names = self.values.names_in_files(self.plan.form.mapping_mode)
        add = written_for(self.context, self.plan.version, fragment, batches, layout, names)
        if self.version_column is None:
            version = fragment.default_row_commit_version
            return add.model_copy(update={"default_row_commit_version": version})
        # The file lists the column without storing it: all rows have the version of its `add`.
        tags = {**(add.tags or {}), FIELDS_TAG: fields_text([*names, self.version_column])}
        return add.model_copy(update={"tags": tags})

    def _in_file(self) -> StructType:
        """Return the columns of the file, all nullable because deleted rows are null."""
        return StructType(tuple(replace(field, nullable=True) for field in self.values.fields))

    def _batches(self, fragment: Fragment) -> Iterator[pa.RecordBatch]:
        reader = FragmentReader(self.context.store, self.plan, fragment)
        deleted = reader.deletions()
        schema = arrow_schema(self._in_file())
        for start, batch in reader.batches(
            self.plan.needed, prune=False, batch_rows=BATCH_ROWS, threads=False
        ):
            alive = alive_mask(deleted, start, batch.num_rows)
            live = batch if alive is None else batch.filter(alive)
            reader.require_texts(live)
            values = self._values(live, schema)
            arrays = [a if alive is None else _spread(a, alive) for a in values.columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _values(self, live: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        if not live.num_rows:
            return _empty(schema)
        values = pa.RecordBatch.from_arrays(self.values.of(live), schema=schema)
        (values,) = sized([values], StructType(self.values.fields))
        if self.rules:
            given = set(values.schema.names)
            others = [name for name in live.schema.names if name not in given]
            whole = live.select(others)
            for name, array in zip(values.schema.names, values.columns, strict=True):
                whole = whole.append_column(name, array)
            for _ in checked([whole], list(self.rules)):
                pass
        return values


def written_for(
    context: Context,
    version: int,
    fragment: Fragment,
    batches: Iterator[pa.RecordBatch],
    layout: FileLayout,
    names: Sequence[str],
    *,
    layer: int = 0,
) -> Add:
    """Write a column file of a fragment, and return its `add`; the commit gives it a row version.

    Parameters
    ----------
    batches
        A row for each physical row of the fragment.
    names
        The physical names of the columns that the file gives.
    layer
        Its place above files of all rows, if it gives values to some rows alone.

    Raises
    ------
    DataFileError
        The fragment has another number of rows than the log says.
    """
    (add,) = write_data_files(context.store, batches, layout, effects=context.effects)
    if add.num_records != fragment.physical_rows:
        discard_files(context.store, [add])
        raise DataFileError(
            path=fragment.path,
            version=version,
            reason=f"the log says {fragment.physical_rows} rows, but the file has "
            f"{add.num_records}",
            remedy="The log's numRecords is wrong. Correct it with "
            "optimize.compute_statistics(recompute=True)",
        )
    tags = {**(add.tags or {}), ID_TAG: str(fragment.id), FIELDS_TAG: fields_text(names)}
    if layer:
        tags[LAYER_TAG] = str(layer)
    return add.model_copy(
        update={
            "partition_values": dict(fragment.partition_values),
            "stats": StatsText(add.stats).loosened().text,
            "tags": tags,
            "base_row_id": fragment.base_row_id,
        }
    )


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)


def _spread(values: pa.Array, alive: pa.Array) -> pa.Array:
    """Return the values of live rows at their positions, and nulls for deleted rows."""
    places = pc.subtract(pc.cumulative_sum(alive.cast(pa.int64())), 1)
    return values.take(pc.if_else(alive, places, None))


def require_addressable(fragment: Fragment) -> None:
    """Raise if a fragment of a table with the feature cannot have column files.

    Raises
    ------
    LogCorruptError
        It has no durable id, or the log does not state its number of rows (FRG-19).
    """
    if not fragment.is_durable or fragment.physical_rows is None:
        raise LogCorruptError(
            path=fragment.path,
            field="tags" if fragment.physical_rows is not None else "stats",
            reason="the table has the feature txlog.fragments, but this file's add has no unique "
            "fragment id or no numRecords (FRG-19)",
            remedy="The writer of this log made an error: restore a version without the file",
        )


def fields_text(names: Sequence[str]) -> str:
    """Return the tag of a column file: a JSON array of its columns' physical names."""
    return orjson.dumps(list(names)).decode()


def outdated_files(live: pa.Table, names: set[str], now_ms: int) -> tuple[list[Remove], list[Add]]:
    """Return the column files that are no longer needed, and those with fewer needed columns.

    `names` are the physical names of columns that other files provide from now on.
    """
    rows = fragment_rows(live, listed=True).columns
    if not any(names & set(fields) for fields in rows.field_sets):
        return [], []
    gone = arrow_array([names >= set(fields) for fields in rows.field_sets], pa.bool_())
    less = arrow_array(
        [bool(names & set(fields)) and not names >= set(fields) for fields in rows.field_sets],
        pa.bool_(),
    )
    removes = removes_of(rows.rows.filter(gone.take(rows.field_set)), now_ms)
    shortened = [
        _without(add, names) for add in adds_of(rows.rows.filter(less.take(rows.field_set)))
    ]
    return removes, shortened


def _without(add: Add, names: set[str]) -> Add:
    tags = dict(add.tags or {})
    fields = orjson.loads(tags[FIELDS_TAG] or "[]")
    tags[FIELDS_TAG] = fields_text([name for name in fields if name not in names])
    return add.model_copy(update={"tags": tags, "data_change": False})
