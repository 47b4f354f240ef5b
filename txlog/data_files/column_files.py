"""Column files: separate files with some columns of all rows of a fragment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import orjson
import pyarrow as pa

from txlog.actions.file import Add
from txlog.actions.stats_text import StatsText
from txlog.base.arrow import pc
from txlog.base.errors import DataFileError, LogCorruptError
from txlog.commit.context import Context
from txlog.data_files.column_values import ColumnValues
from txlog.data_files.constraints import Constraint, checked, sized
from txlog.data_files.write import FileLayout, discard_files, write_data_files
from txlog.fragments.deletion_vector import alive_mask
from txlog.fragments.fragment import Fragment
from txlog.fragments.ids import ID_TAG
from txlog.fragments.rows import FIELDS_TAG
from txlog.protocol.properties import Properties
from txlog.scan.data_file import BATCH_ROWS
from txlog.scan.read import FragmentReader
from txlog.scan.read_plan import ReadPlan
from txlog.schema.arrow import arrow_schema
from txlog.schema.types import StructType

_ONE_FILE = 1 << 62  # This size is so large that a fragment never gets several column files.


@dataclass(frozen=True)
class ColumnWriter:
    """Writes column files of fragments of one version. It pickles if its values do."""

    context: Context
    plan: ReadPlan  # The plan to read the columns from which values are computed.
    values: ColumnValues
    properties: Properties
    rules: tuple[Constraint, ...] = ()

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
        _require_addressable(fragment)
        layout = FileLayout(
            self._in_file(),
            (),
            self.properties,
            _ONE_FILE,
            mapping_mode=self.plan.form.mapping_mode,
            sorts=False,
        )
        batches = self._batches(fragment)
        (add,) = write_data_files(self.context.store, batches, layout, effects=self.context.effects)
        if add.num_records != fragment.physical_rows:
            discard_files(self.context.store, [add])
            raise DataFileError(
                path=fragment.path,
                version=self.plan.version,
                reason=f"the log says {fragment.physical_rows} rows, but the file has "
                f"{add.num_records}",
                remedy="The log's numRecords is wrong. Correct it with "
                "optimize.compute_statistics(recompute=True)",
            )
        names = self.values.names_in_files(self.plan.form.mapping_mode)
        return add.model_copy(
            update={
                "partition_values": dict(fragment.partition_values),
                "stats": StatsText(add.stats).loosened().text,
                "tags": {
                    **(add.tags or {}),
                    ID_TAG: str(fragment.id),
                    FIELDS_TAG: fields_text(names),
                },
                "base_row_id": fragment.base_row_id,
                "default_row_commit_version": fragment.default_row_commit_version,
            }
        )

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


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)


def _spread(values: pa.Array, alive: pa.Array) -> pa.Array:
    """Return the values of live rows at their positions, and nulls for deleted rows."""
    places = pc.subtract(pc.cumulative_sum(alive.cast(pa.int64())), 1)
    return values.take(pc.if_else(alive, places, None))


def _require_addressable(fragment: Fragment) -> None:
    if not fragment.is_durable or fragment.physical_rows is None:
        raise LogCorruptError(
            path=fragment.path,
            field="tags" if fragment.physical_rows is not None else "stats",
            reason="the table has the feature txlog.fragments, but this file's add has no unique "
            "fragment id or no numRecords (FRG-19)",
            remedy="The writer of this log is at fault",
        )


def fields_text(names: Sequence[str]) -> str:
    """Return the tag of a column file: a JSON array of its columns' physical names."""
    return orjson.dumps(list(names)).decode()
