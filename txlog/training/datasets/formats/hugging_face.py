"""Hugging Face: its data sets as sources, and Parquet files that `datasets.load_dataset` opens.

Only objects of the package `datasets` need that package. Rules: spec/datasets.md, DST-57.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import pyarrow as pa

from txlog.base.arrow import pq
from txlog.base.errors import SchemaMismatchError, TxlogError, reason_of
from txlog.training.datasets.formats.base import Output
from txlog.training.datasets.formats.samples import features_of, with_features, without_extensions
from txlog.training.datasets.sources import refused

_ROWS = 256  # Of one read: rows may be images.
_FILE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_COLUMNS = {"Image": "image", "Audio": "audio", "Video": "video"}


class HuggingFace:
    """Parquet files in the folder `data`, whose schema has the features of the columns."""

    name = "huggingface"

    def write(self, rows: pa.RecordBatchReader, out: Output) -> None:
        """Write `data/train-00000.parquet` and so on.

        A column `content` of images, sounds or videos becomes `image`, `audio` or `video`, with the
        name of its file; classes become the feature `ClassLabel`.
        """
        schema = _written(rows.schema)
        batches = iter(rows)
        following: pa.RecordBatch | None = next(batches, None)
        number = 0
        while number == 0 or following is not None:
            count = size = 0
            with (
                out.open(f"data/train-{number:05d}.parquet") as sink,
                pq.ParquetWriter(sink, schema, compression="zstd") as writer,
            ):
                while following is not None and count < out.shard_rows and size < out.shard_bytes:
                    taken = following.slice(0, out.shard_rows - count)
                    left = following.slice(taken.num_rows)
                    writer.write_batch(_converted(taken, schema))
                    count += taken.num_rows
                    size += taken.get_total_buffer_size()
                    following = left if left.num_rows else next(batches, None)
            number += 1


def rows_of_hugging_face(source: Any) -> pa.RecordBatchReader:
    """Return the rows of a `datasets.Dataset` or `IterableDataset`, in its order.

    Contents that it names by a path are read. The schema keeps the metadata `huggingface`.

    Raises
    ------
    InvalidInputError
        It is a dictionary of splits, or cannot be read.
    """
    if isinstance(source, dict):
        raise refused(
            f"it has the splits {', '.join(map(str, source))}",
            f"Name one of them: source[{next(iter(source), 'train')!r}]",
        )
    if not hasattr(source, "with_format"):
        raise refused(f"a {type(source).__qualname__} is no data set", "Pass a datasets.Dataset")
    if _has_transform(source):
        raise refused(
            "the data set has a transform, which computes its rows only when Python reads them",
            "Compute them with map, or pass source.with_format(None) to read the rows below",
        )
    tables = _tables(source)
    features = getattr(source, "features", None)
    if features is None:  # It is known when a row is read.
        first = next(tables, None)
        if first is None:
            raise refused("the data set has no rows")
        schema, tables = first.schema, chain([first], tables)
    else:
        schema = features.arrow_schema
    return without_extensions(
        schema, tables, "State the columns: IterableDataset.from_generator(…, features=…)"
    )


def _has_transform(source: Any) -> bool:
    """Return whether `set_transform` or `with_transform` changed what rows an object shows."""
    form = getattr(source, "_formatting", None)
    return "custom" in (getattr(source, "_format_type", None), getattr(form, "format_type", None))


def _tables(source: Any) -> Iterator[pa.Table]:
    from datasets.table import embed_table_storage

    try:
        for table in source.with_format("arrow").iter(batch_size=_ROWS):
            yield embed_table_storage(table)
    except TxlogError:
        raise
    except Exception as error:  # Files, servers and functions of the user are behind it.
        raise refused(f"the data set cannot be read: {reason_of(error)}") from error


# Write -----------------------------------------------------------------------------------------


def _written(schema: pa.Schema) -> pa.Schema:
    """Return the columns of the files."""
    features = dict(features_of(schema))
    fields = []
    for field in schema:
        kind = _kind(schema, field.name)
        if kind is None:
            if field.name != "filename" or _kind(schema, "content") is None:
                fields.append(field)
            continue
        features.pop(field.name)
        features[_COLUMNS[kind]] = {"_type": kind}
        fields.append(pa.field(_COLUMNS[kind], _FILE))
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise SchemaMismatchError(
                field=name, reason="the contents and another column would have this name"
            )
    made = pa.schema(fields, metadata=schema.metadata)
    return with_features(made, features) if features else made


def _kind(schema: pa.Schema, column: str) -> str | None:
    """Return the feature of a column of contents, such as `Image`; None for other columns."""
    if column != "content":
        return None
    kind = (features_of(schema).get(column) or {}).get("_type")
    return kind if kind in _COLUMNS else None


def _converted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for field in schema:
        if field.type == _FILE and field.name not in batch.schema.names:
            names = batch["filename"]
            columns.append(pa.StructArray.from_arrays([batch["content"], names], fields=[*_FILE]))
        else:
            columns.append(batch[field.name])
    return pa.RecordBatch.from_arrays(columns, schema=schema)
