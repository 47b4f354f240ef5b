"""Frames in a transaction: tasks write their files, which are committed with its other changes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from txlog.commit.context import Context
from txlog.commit.operation import Operation
from txlog.data_files.definition import Definition
from txlog.data_files.identity import counted, with_marks
from txlog.data_files.modes import WriteModes
from txlog.data_files.options import WriteOptions, as_options
from txlog.data_files.write_plan import AddedFiles, require_still_fits
from txlog.schema.types import StructType
from txlog.snapshot.snapshot import Snapshot
from txlog.spark_ext.writes.merge import SPARK, merge_of
from txlog.spark_ext.writes.target import plan_target
from txlog.spark_ext.writes.write_frame import require_batch, written_by_tasks
from txlog.spark_ext.writes.write_tasks import WriteRequest
from txlog.verbs.merge.clauses import Clause, MergeRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from txlog.data_files.write_plan import Sieve


class SparkFrames:
    """What Spark does with frames that are given to a transaction."""

    def files(self, frame: DataFrame, modes: WriteModes, options: WriteOptions) -> AddedFiles:
        """Return the files that tasks write for the rows of a frame."""
        require_batch(frame)
        return _FrameFiles(frame, modes, options)

    def merge(
        self,
        request: MergeRequest,
        clauses: Sequence[Clause],
        table: StructType,
        *,
        is_committed: bool,
    ) -> Operation:
        """Return the merge of a frame: conditions and values are expressions of Spark."""
        source = request.data
        require_batch(source)
        SPARK.require(request, as_options(request.options))
        return merge_of(
            table,
            source.alias(request.source_alias),
            request.condition,
            clauses,
            on=request.on or (),
            alias=request.target_alias,
            merges_schema=request.schema_mode == "merge",
            options=request.options,
            is_committed=is_committed,
        )


class _FrameFiles(AddedFiles):
    """Files that tasks write for a frame when they are first needed; the frame is computed once."""

    def __init__(self, frame: DataFrame, modes: WriteModes, options: WriteOptions) -> None:
        super().__init__(modes=modes, options=options)
        self._frame = frame
        columns = modes.partition_by
        self._request = WriteRequest(
            mode=modes.mode,
            definition=Definition(partition_by=None if columns is None else list(columns)),
            where=modes.where,
            partition_mode=modes.partition_mode,
            schema_mode=modes.schema_mode,
            options=options,
        )

    def _fill(self, context: Context, base: Snapshot, sieve: Sieve | None) -> None:
        """Let tasks write the files for a version of the table.

        Raises
        ------
        InvalidInputError, SchemaMismatchError, EngineError
            As for `spark_ext.write`.
        """
        target = plan_target(context.store, self._request, self._frame.schema, base)
        adds, _ = written_by_tasks(self._frame, target, None)
        self.adds = adds
        schema = target.plan.schema
        marks = counted(schema, target.numbered, adds, base.mapping_mode)
        self.schema = with_marks(schema, marks)
        self._require_fit = partial(require_still_fits, written_for=base, numbered=target.numbered)
