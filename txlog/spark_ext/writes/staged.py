"""Frames in a transaction: tasks write their files, which are committed with its other changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from txlog.base.frames import Frames
from txlog.commit.app_versions import AnyAppVersion
from txlog.commit.context import Context
from txlog.commit.operation import Companion, Operation
from txlog.data_files.definition import Definition
from txlog.data_files.identity import counted, with_marks
from txlog.data_files.modes import WriteModes
from txlog.data_files.options import WriteOptions, as_options
from txlog.data_files.sieve import Faults, Rejects
from txlog.data_files.write_plan import AddedFiles, require_still_fits
from txlog.schema.types import StructType
from txlog.snapshot.snapshot import Snapshot
from txlog.spark_ext.writes.merge import SPARK, merge_of
from txlog.spark_ext.writes.own_reads import version_read
from txlog.spark_ext.writes.target import plan_target, with_refused
from txlog.spark_ext.writes.write_frame import require_batch, written_by_tasks
from txlog.spark_ext.writes.write_tasks import WriteRequest
from txlog.store.base import Store
from txlog.verbs.merge.clauses import Clause, MergeRequest
from txlog.verbs.quarantine import Quarantine, WrittenQuarantine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from txlog.data_files.write_plan import Sieve


class SparkFrames:
    """What Spark does with frames that are given to a transaction."""

    def files(
        self,
        frame: DataFrame,
        modes: WriteModes,
        options: WriteOptions,
        quarantine: Quarantine | None,
        txn: AnyAppVersion | None,
    ) -> tuple[AddedFiles, Rejects | None]:
        """Return the files that tasks write for the rows of a frame, and what has its other rows.

        `txn` names the rows in the quarantine.
        """
        require_batch(frame)
        refused = None if quarantine is None else _Refused(quarantine.there)
        return _FrameFiles(frame, modes, options, refused, txn), refused

    def version_read(self, frame: DataFrame, store: Store, latest: int) -> int | None:
        """Return the earliest version of a table that a frame reads, or None."""
        return version_read(frame, store, latest)

    def merge(
        self,
        request: MergeRequest,
        clauses: Sequence[Clause],
        table: StructType,
        store: Store,
        *,
        begun: Callable[[], Snapshot] | None,
    ) -> Operation:
        """Return the merge of a frame: conditions and values are expressions of Spark."""
        source = request.data
        require_batch(source)
        SPARK.require(request, as_options(request.options))
        return merge_of(
            table,
            store,
            source.alias(request.source_alias),
            request.condition,
            clauses,
            on=request.on or (),
            alias=request.target_alias,
            merges_schema=request.schema_mode == "merge",
            options=request.options,
            quarantine=request.quarantine,
            begun=begun,
        )


def frames() -> Frames:
    """Return the functions of Spark for its frames."""
    return SparkFrames()


class _Refused(Rejects):
    """The rows of a frame that do not fit, once tasks have written them to the quarantine."""

    def __init__(self, there: Context) -> None:
        self.there = there
        self.kept: WrittenQuarantine | None = None

    def take(
        self, operation: str, base: Snapshot | None, batch: pa.RecordBatch, faults: Faults
    ) -> None:
        """Raise: tasks have taken the rows."""
        raise NotImplementedError

    def at(self, base: Snapshot | None) -> None:
        """Do nothing: the rows are known."""

    def companions(self, txn: AnyAppVersion | None) -> Sequence[Companion]:
        """Return the commit of the files to the quarantine, if one is needed."""
        return () if self.kept is None else self.kept.companions(txn)

    def withdraw(self, txn: AnyAppVersion | None) -> None:
        """Do nothing: a transaction makes no table."""

    @property
    def metrics(self) -> Mapping[str, int]:
        """The number of rows in the quarantine."""
        return {} if self.kept is None else self.kept.metrics


class _FrameFiles(AddedFiles):
    """Files that tasks write for a frame when they are first needed; the frame is computed once."""

    def __init__(
        self,
        frame: DataFrame,
        modes: WriteModes,
        options: WriteOptions,
        refused: _Refused | None,
        txn: AnyAppVersion | None,
    ) -> None:
        super().__init__(modes=modes, options=options)
        self._frame = frame
        self._refused = refused
        self._txn = txn
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
        if self._refused is not None:
            target = with_refused(target, self._refused.there)
        adds, kept = written_by_tasks(self._frame, target, self._txn)
        self.adds = adds
        if self._refused is not None:
            self._refused.kept = kept
        schema = target.plan.schema
        marks = counted(schema, target.numbered, adds, base.mapping_mode)
        self.schema = with_marks(schema, marks)
        self._require_fit = partial(require_still_fits, written_for=base, numbered=target.numbered)

    def discard(self, store: Store) -> None:
        """Delete the files, also those of the quarantine that no commit needs."""
        super().discard(store)
        if self._refused is not None and self._refused.kept is not None:
            self._refused.kept.discard()
