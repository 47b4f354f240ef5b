"""Values of blob columns, read by Spark's executors."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField
from pyspark.sql.types import StructType as SparkStruct

from txlog.base.arrow import arrow_array, pc
from txlog.base.errors import (
    InvalidInputError,
    in_callers_words,
)
from txlog.base.thresholds import Threshold
from txlog.commit.context import require_shared
from txlog.scan.blobs import Packs, blobs_of
from txlog.schema.blobs import is_blob_type
from txlog.spark_ext.engine import map_in_arrow
from txlog.spark_ext.names import placed
from txlog.spark_ext.spark_types import frame_schema, neutral
from txlog.table.seam import context_of
from txlog.table.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BYTES_AT_ONCE: Threshold = 64 * 1024 * 1024  # Bytes of values in one batch of the result.


@dataclass(frozen=True)
class _Reading:
    """What each task does. It pickles."""

    packs: Packs
    place: int  # The column with the structs.
    is_replaced: bool
    names: tuple[str, ...]  # The columns of the result.

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows with the bytes of their values; runs on an executor."""
        for batch in batches:
            for part in _in_parts(batch, self.place):
                blobs = blobs_of(self.packs, part.column(self.place))
                values = [None if blob is None else blob.read() for blob in blobs]
                read = arrow_array(values, pa.binary())
                columns = list(part.columns)
                if self.is_replaced:
                    columns[self.place] = read
                else:
                    columns.append(read)
                yield pa.RecordBatch.from_arrays(columns, names=list(self.names))


def _in_parts(batch: pa.RecordBatch, place: int) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts whose values have not too many bytes together; none is empty."""
    sizes = pc.fill_null(pc.struct_field(batch.column(place), "size"), 0).to_pylist()
    start = total = 0
    for at, size in enumerate(sizes):
        if at > start and total + size > _BYTES_AT_ONCE:
            yield batch.slice(start, at - start)
            start, total = at, 0
        total += size
    if len(sizes) > start:
        yield batch.slice(start)


@in_callers_words
def read_blobs(
    df: DataFrame,
    column: str,
    uri: str | os.PathLike[str],
    *,
    into: str | None = None,
    version: int | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    branch: str | None = None,
) -> DataFrame:
    """Return a frame with the bytes of a blob column, which Spark's executors read.

    Only values of rows that the frame still has are read, so filter it before.

    Parameters
    ----------
    df
        A frame with a blob column of the table, as `read` gives it; of a classic session, or of
        Spark Connect.
    column
        The blob column of the frame.
    uri
        The table whose values they are.
    into
        The name of the new column. Default: the bytes replace the structs.
    version, storage_options, branch
        The version of the table that the frame was read from, and as for `read`. A version matters
        only for a shallow clone: its files say where the values of its source are.

    Returns
    -------
    DataFrame
        The frame's columns; that of the bytes is binary.

    Raises
    ------
    InvalidInputError
        The frame has no such column, it is none of blobs, or `into` is the name of another one.

    Examples
    --------
    >>> clips = spark_ext.read(spark, "clips").where("video.size < 10000000")  # doctest: +SKIP
    >>> spark_ext.read_blobs(clips, "video", "clips")  # doctest: +SKIP
    """
    fields = frame_schema(df.schema).fields
    names = [field.name for field in fields]
    if column not in names:
        raise InvalidInputError(
            argument="column",
            field=column,
            reason=f"the frame has no column {column}",
            remedy=f"Choose from {', '.join(names)}",
        )
    place = names.index(column)
    if not is_blob_type(fields[place].type):
        raise InvalidInputError(
            argument="column", field=column, reason=f"{column} is not a blob column"
        )
    folded = [name.lower() for name in names]
    if into is not None and into != column and into.lower() in folded:
        raise InvalidInputError(
            argument="into", field=into, reason=f"the frame has a column {into} already"
        )
    where, options = placed(df.sparkSession, uri, storage_options, branch)
    table = Table(where, version, storage_options=options)
    store = context_of(table).store
    require_shared(
        store, argument="uri", remedy="Put the table in a store that all workers can access"
    )
    packs = Packs(store, table.snapshot).settle()
    given = list(df.schema.fields)
    is_replaced = into is None or into == column
    read = StructField(into or column, BinaryType())
    made = [read if at == place else one for at, one in enumerate(given)]
    result = SparkStruct(made if is_replaced else [*given, read])
    reading = _Reading(packs, place, is_replaced, tuple(result.names))
    return map_in_arrow(neutral(df), reading.of, result)
