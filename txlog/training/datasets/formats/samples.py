"""Samples in the columns of known formats: labels by their names, images by content and name.

The names of classes are those of the metadata `huggingface` of an Arrow schema, which Parquet files
of Hugging Face have, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from txlog.base.arrow import arrow_array, pc
from txlog.base.errors import SchemaMismatchError
from txlog.training.datasets.formats.base import KEY

_METADATA = b"huggingface"
# What the columns of a type are called in other formats: Hugging Face's names, WebDataset's.
_OTHER_NAMES = {
    "utterance": ("text", "txt"),
    "labels": ("label", "cls"),
    "label": ("cls",),
}
_ENCODED = "image/encoded"  # What TensorFlow calls the content of an image.
_LABELS = ("image/class/text", "image/class/label", "label")
_MAGIC = (
    (b"\xff\xd8\xff", "jpg"),
    (b"\x89PNG", "png"),
    (b"GIF8", "gif"),
    (b"BM", "bmp"),
    (b"II*\0", "tif"),
    (b"MM\0*", "tif"),
)


def features_of(schema: pa.Schema) -> dict[str, Any]:
    """Return the features of Hugging Face by their names; none if the schema has none."""
    try:
        known = json.loads((schema.metadata or {}).get(_METADATA, b"{}"))
        found = known["info"]["features"]
    except (ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def with_features(schema: pa.Schema, features: Mapping[str, Any]) -> pa.Schema:
    """Return a schema with features of Hugging Face for some columns."""
    text = json.dumps({"info": {"features": features}}, ensure_ascii=False)
    return schema.with_metadata({**(schema.metadata or {}), _METADATA: text.encode()})


def classes_of(schema: pa.Schema, column: str) -> list[str] | None:
    """Return the names of the classes whose numbers a column has, or None."""
    feature = features_of(schema).get(column)
    if isinstance(feature, dict) and isinstance(feature.get("feature"), dict):
        feature = feature["feature"]  # A list of labels.
    if not isinstance(feature, dict) or feature.get("_type") != "ClassLabel":
        return None
    names = feature.get("names")
    return list(names) if isinstance(names, list) else None


def class_name(classes: Sequence[str], number: int | None) -> str | None:
    """Return the name of a class; None if there is none, as for the number -1 of Hugging Face."""
    return classes[number] if number is not None and 0 <= number < len(classes) else None


def has_files(schema: pa.Schema) -> bool:
    """Return whether rows are files: bytes in `content`, with a text `filename`."""
    if not {"content", "filename"} <= set(schema.names):
        return False
    kinds = schema.field("content").type, schema.field("filename").type
    is_bytes = pa.types.is_binary(kinds[0]) or pa.types.is_large_binary(kinds[0])
    return bool(is_bytes and pa.types.is_string(kinds[1]))


def as_columns(batch: pa.RecordBatch, wanted: Iterable[str], first: int) -> pa.RecordBatch:
    """Return a batch with the columns of a type, if it has them under the names of other formats.

    Numbers of classes become the names of the classes.

    Parameters
    ----------
    first
        The number of the first row, for messages.

    Raises
    ------
    SchemaMismatchError
        A number has no class; the error names the row.
    """
    for name in wanted:
        named = (name, *_OTHER_NAMES.get(name, ()))
        found = next((one for one in named if one in batch.schema.names), None)
        if KEY in batch.schema.names and (found is None or found == "cls"):
            about = [one.get(name) for one in _json_of(batch, first, "the data")]
            if about and all(one is not None for one in about):
                batch = _with(batch, name, _texts(about, name, first))
                continue
        if found is None:
            continue
        values = batch[found]
        if (classes := classes_of(batch.schema, found)) is not None:
            values = _named(values, classes, found, first)
        batch = _with(batch, name, values)
    return batch


def as_images(
    batch: pa.RecordBatch, first: int, where: str, endings: Sequence[str]
) -> pa.RecordBatch:
    """Return a batch with `content`, `label`, and `filename` or `path`, if it has images.

    It knows the feature `Image` of Hugging Face (a struct of `bytes` and `path`), the features
    `image/…` of TensorFlow, and samples of WebDataset, whose label is `cls`, the `label` in their
    `json`, or the folder of their key.

    Parameters
    ----------
    endings
        The endings of images, without a dot.

    Raises
    ------
    SchemaMismatchError
        A row has no image, or several; the error names it.
    """
    if "content" in batch.schema.names:
        return as_columns(batch, ["label"], first)
    image = next((one.name for one in batch.schema if _is_image(one.type)), None)
    if image is not None:
        return as_columns(_of_structs(batch, image, first, where), ["label"], first)
    if _ENCODED in batch.schema.names:
        return _of_features(batch, first)
    if KEY in batch.schema.names:
        return as_columns(_of_samples(batch, first, where, endings), ["label"], first)
    return as_columns(batch, ["label"], first)


def _of_features(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """Return the images of TensorFlow's features."""
    found = _with(batch, "content", batch[_ENCODED])
    if "image/filename" in batch.schema.names:
        names = batch["image/filename"].cast(pa.string())
    else:
        names = arrow_array(
            [
                f"{first + row - 1:08d}.{_ending((content.as_py() or b'')[:12])}"
                for row, content in enumerate(found["content"])
            ],
            pa.string(),
        )
    label = next((name for name in _LABELS if name in batch.schema.names), None)
    found = _with(found, "filename", names)
    return found if label is None else _with(found, "label", batch[label].cast(pa.string()))


def _named(values: pa.Array, classes: Sequence[str], column: str, first: int) -> pa.Array:
    """Return the names of classes for their numbers, also in lists."""
    names = arrow_array(list(classes), pa.string())
    if pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        flat = _named(values.flatten(), classes, column, first)
        counts = pc.fill_null(pc.list_value_length(values), 0).to_pylist()
        offsets = [0]
        for count in counts:
            offsets.append(offsets[-1] + count)
        return pa.ListArray.from_arrays(arrow_array(offsets, pa.int32()), flat)
    if not pa.types.is_integer(values.type):
        return values
    numbers = values.to_pylist()
    for row, number in enumerate(numbers):
        if number is not None and not 0 <= number < len(classes):
            raise SchemaMismatchError(
                field=column,
                reason=f"row {first + row} has the class {number}, there are the classes 0 to "
                f"{len(classes) - 1}",
                remedy="Leave out rows without a class" if number == -1 else "",
            )
    return names.take(values)


def _with(batch: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    """Return a batch with a column in place of one of its name, or as a further one."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True)) | {name: values}
    return pa.RecordBatch.from_arrays(
        list(columns.values()), names=list(columns), metadata=batch.schema.metadata
    )


def _is_image(kind: pa.DataType) -> bool:
    if not pa.types.is_struct(kind):
        return False
    fields = {kind.field(index).name: kind.field(index).type for index in range(kind.num_fields)}
    return set(fields) == {"bytes", "path"} and fields["bytes"] in (pa.binary(), pa.large_binary())


def _of_structs(batch: pa.RecordBatch, column: str, first: int, where: str) -> pa.RecordBatch:
    images = batch[column]
    contents, paths = images.field("bytes"), images.field("path").to_pylist()
    valid = images.is_valid().to_pylist()
    names = []
    for row, (content, path) in enumerate(zip(contents, paths, strict=True)):
        data = content.as_buffer() if valid[row] else None
        if data is None:
            raise SchemaMismatchError(
                field=column, reason=f"row {first + row} of {where} has no image"
            )
        last = str(path or "").replace("\\", "/").rpartition("/")[2]
        names.append(last or f"{first + row - 1:08d}.{_ending(data.slice(0, 12).to_pybytes())}")
    found = _with(batch, "content", contents)
    return _with(found, "filename", arrow_array(names, pa.string()))


def _ending(start: bytes) -> str:
    """Return the usual ending of an image by its first bytes."""
    if start[:4] == b"RIFF" and start[8:] == b"WEBP":
        return "webp"
    return next((ending for magic, ending in _MAGIC if start.startswith(magic)), "bin")


def _of_samples(
    batch: pa.RecordBatch, first: int, where: str, endings: Sequence[str]
) -> pa.RecordBatch:
    columns = [
        name
        for name in batch.schema.names
        if name.rpartition(".")[2] in endings and batch[name].type == pa.binary()
    ]
    keys = batch[KEY].to_pylist()
    about = _json_of(batch, first, where)
    present = [batch[name].is_valid().to_pylist() for name in columns]
    contents, names, labels = [], [], []
    numbers = batch["cls"].to_pylist() if "cls" in batch.schema.names else [None] * len(keys)
    for row, key in enumerate(keys):
        found = [name for name, valid in zip(columns, present, strict=True) if valid[row]]
        if len(found) != 1:
            raise SchemaMismatchError(
                field="content",
                reason=f"the sample {key!r} of {where} has {len(found)} images: "
                f"{', '.join(found) or 'none'}",
            )
        folder, _, last = key.rpartition("/")
        label = about[row].get("label", numbers[row])
        named = about[row].get("filename")
        contents.append(batch[found[0]][row].as_py())
        names.append(named if isinstance(named, str) else f"{last}.{found[0]}")
        labels.append(folder.rpartition("/")[2] or None if label is None else str(label))
    return pa.RecordBatch.from_arrays(
        [
            arrow_array(names, pa.string()),
            arrow_array(labels, pa.string()),
            arrow_array(contents, pa.binary()),
        ],
        names=["filename", "label", "content"],
    )


def _texts(values: Sequence[Any], name: str, first: int) -> pa.Array:
    """Return labels of JSON: texts, or lists of texts."""
    is_list = isinstance(values[0], list)
    for row, value in enumerate(values):
        texts = value if isinstance(value, list) else [value]
        if isinstance(value, list) != is_list or not all(isinstance(one, str) for one in texts):
            raise SchemaMismatchError(
                field=name, reason=f"row {first + row} has {value!r} in its json, not labels"
            )
    return arrow_array(list(values), pa.list_(pa.string()) if is_list else pa.string())


def _json_of(batch: pa.RecordBatch, first: int, where: str) -> list[dict[str, Any]]:
    """Return the objects in the column `json`."""
    if "json" not in batch.schema.names:
        return [{} for _ in range(batch.num_rows)]
    found = []
    for row, text in enumerate(batch["json"].to_pylist()):
        try:
            value = {} if text is None else json.loads(text)
        except ValueError as error:
            raise SchemaMismatchError(
                field="json", reason=f"row {first + row} of {where} is no JSON: {error}"
            ) from error
        found.append(value if isinstance(value, dict) else {})
    return found


def as_samples(
    rows: pa.RecordBatchReader,
    classes: Sequence[str] | None,
    kind: str | None,
    content_of: Callable[[str], bytes] | None,
) -> pa.RecordBatchReader:
    """Return the examples of a training set as samples of other tools.

    Parameters
    ----------
    classes
        The names of labels. Then `label_id` and `label_ids` become `label` and `labels`, classes
        of Hugging Face.
    kind
        The feature of the column `content`, such as `Image`.
    content_of
        A function that returns the content at a row's `uri`. Then there is no column `uri`.
    """
    features = dict(features_of(rows.schema))
    fields, sources = [], []
    for field in rows.schema:
        name, wanted = field.name, field.type
        if name == "uri" and content_of is not None:
            continue
        if classes is not None and name in ("label_id", "label_ids"):
            named = {"_type": "ClassLabel", "names": list(classes)}
            is_list = name == "label_ids"
            features[name.replace("_id", "")] = (
                {"_type": "Sequence", "feature": named} if is_list else named
            )
            wanted = pa.list_(pa.int64()) if is_list else pa.int64()
            name = name.replace("_id", "")
        fields.append(pa.field(name, wanted))
        sources.append(field.name)
    if kind is not None:
        features["content"] = {"_type": kind}
    schema = pa.schema(fields, metadata=rows.schema.metadata)
    schema = with_features(schema, features) if features else schema

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            columns = [
                _contents(batch, content_of) if name == "content" and content_of else batch[name]
                for name in sources
            ]
            yield pa.RecordBatch.from_arrays(
                [
                    values if values.type == field.type else values.cast(field.type)
                    for values, field in zip(columns, schema, strict=True)
                ],
                schema=schema,
            )

    return pa.RecordBatchReader.from_batches(schema, batches())


def _contents(batch: pa.RecordBatch, content_of: Callable[[str], bytes]) -> pa.Array:
    """Return the contents, also those that lie beside the rows."""
    contents, uris = batch["content"], batch["uri"]
    if uris.null_count == len(uris):
        return contents
    pairs = zip(contents, uris.to_pylist(), strict=True)
    return arrow_array(
        [content.as_py() if uri is None else content_of(uri) for content, uri in pairs],
        contents.type,
    )


def without_extensions(schema: pa.Schema, tables: Iterable[pa.Table]) -> pa.RecordBatchReader:
    """Return tables as a stream in which types of extensions are those of their storage."""
    plain = _plain_schema(schema)
    batches = (
        batch for table in tables for batch in _plain(table, plain).combine_chunks().to_batches()
    )
    return pa.RecordBatchReader.from_batches(plain, batches)


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose types of extensions are those of their storage."""
    return pa.schema(
        [
            field.with_type(getattr(field.type, "storage_type", field.type)).with_nullable(True)
            for field in schema
        ],
        metadata=schema.metadata,
    )


def _plain(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = []
    for field in schema:
        values = table[field.name]
        if hasattr(values.type, "storage_type"):
            chunks = [chunk.storage for chunk in values.chunks]
            values = pa.chunked_array(chunks, values.type.storage_type)
        columns.append(values if values.type == field.type else values.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)
