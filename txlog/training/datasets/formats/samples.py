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
from txlog.base.thresholds import Threshold
from txlog.training.datasets.formats.base import KEY

_CUT_BYTES: Threshold = 8 << 20  # Of the contents of a batch that do not lie in the rows.
# Of the contents of a batch: the values of an Arrow column have offsets of 32 bits.
_MOST_BYTES = (1 << 31) - 2
_METADATA = b"huggingface"
# What the columns of a type are called in other formats. Names of labels come before their numbers.
_NAMES = {
    "utterance": ("utterance", "text", "txt"),
    "labels": ("labels/text", "labels", "label/text", "label", "cls"),
    "label": ("label/text", "label", "cls"),
}
_ENCODED = "image/encoded"  # What TensorFlow calls the content of an image.
_LABELS = ("image/class/text", "image/class/label", "label/text", "label")
_MAGIC = (
    (b"\xff\xd8\xff", "jpg"),
    (b"\x89PNG", "png"),
    (b"GIF8", "gif"),
    (b"BM", "bmp"),
    (b"II*\0", "tif"),
    (b"MM\0*", "tif"),
    (b"fLaC", "flac"),
    (b"OggS", "ogg"),
    (b"ID3", "mp3"),
    (b"\xff\xfb", "mp3"),
    (b"\x1a\x45\xdf\xa3", "mkv"),
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
    if isinstance(feature, list) and len(feature) == 1:
        (feature,) = feature  # An older form of a list.
    elif isinstance(feature, dict) and isinstance(feature.get("feature"), dict):
        feature = feature["feature"]  # A list of labels.
    return _names_of(feature)


def _names_of(feature: Any) -> list[str] | None:
    if not isinstance(feature, dict) or feature.get("_type") != "ClassLabel":
        return None
    names = feature.get("names")
    return list(names) if isinstance(names, list) else None


def require_classes(found: pa.Schema, known: pa.Schema, where: str, other: str) -> None:
    """Raise if numbers of classes in some data mean other classes than in what is known.

    The data may lack the last classes, because its numbers mean the same then.

    Parameters
    ----------
    where, other
        What the data and the known is called in messages.

    Raises
    ------
    SchemaMismatchError
        The error names the column and both lists.
    """
    ours = dict(_all_classes(features_of(known)))
    for column, theirs in _all_classes(features_of(found)):
        names = ours.get(column, theirs)
        if theirs != names[: len(theirs)]:
            numbers = {name: number for number, name in enumerate(names)}
            raise SchemaMismatchError(
                field=column,
                reason=f"{where} has the classes {theirs} in the column {column}, and {other} "
                f"has {names}: a number would mean another class",
                remedy="If it has no further classes, give it these numbers: "
                f"data.align_labels_with_mapping({numbers}, {column!r}). Else make another "
                "data set",
            )


def _all_classes(feature: Any, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield the names of all classes in features, each with the path of the column."""
    if (names := _names_of(feature)) is not None:
        yield path, names
    elif isinstance(feature, list):
        for one in feature:
            yield from _all_classes(one, path)
    elif isinstance(feature, dict):
        for name, one in feature.items():
            is_list = name == "feature" and "_type" in feature
            step = path if is_list else f"{path}.{name}" if path else name
            yield from _all_classes(one, step)


def new_classes(found: pa.Schema, known: pa.Schema) -> list[str]:
    """Return the columns of some data that have classes, and none in the data set."""
    ours = dict(_all_classes(features_of(known)))
    return [name for name, _ in _all_classes(features_of(found)) if name not in ours]


def with_known_features(found: pa.Schema, known: pa.Schema) -> pa.Schema:
    """Return a schema with the features of the data set, if it has all columns with features."""
    given, ours = features_of(found), features_of(known)
    if not given or not set(given) <= set(ours):
        return found
    return found.with_metadata({**found.metadata, _METADATA: known.metadata[_METADATA]})


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


Places = dict[str, str]
"""Where the rows of a source have their labels, by the column; it is decided by the first row."""


def as_columns(
    batch: pa.RecordBatch, wanted: Iterable[str], first: int, places: Places
) -> pa.RecordBatch:
    """Return a batch with the columns of a type, if it has them under the names of other formats.

    Numbers of classes become the names of the classes.

    Parameters
    ----------
    first
        The number of the first row, for messages.
    places
        Where the earlier batches of this source have their labels. Empty for the first one.

    Raises
    ------
    SchemaMismatchError
        A number has no class, or a row has its label at another place than the rows before it;
        the error names the row.
    """
    for name in wanted:
        named = _NAMES.get(name, (name,))
        found = next((one for one in named if one in batch.schema.names), None)
        if KEY in batch.schema.names and (found is None or found == "cls"):
            about = [one.get(name) for one in _json_of(batch, first, "the data")]
            for row, one in enumerate(about):
                place = f"column {found}" if one is None else f"{name} of its json"
                _require_place(name, place, first + row, places)
            if about and about[0] is not None:
                batch = _with(batch, name, _texts(about, name, first))
                continue
        if found is None:
            continue
        values = batch[found]
        if found == "labels/text" and not _is_list(
            values.type
        ):  # One label, also with a `;` in it.
            offsets = arrow_array(range(len(values) + 1), pa.int32())
            mask = pc.is_null(values) if values.null_count else None
            values = pa.ListArray.from_arrays(offsets, values, mask=mask)
        if (classes := classes_of(batch.schema, found)) is not None:
            values = _named(values, classes, found, first)
        batch = _with(batch, name, values)
    return batch


def _require_place(name: str, place: str, row: int, places: Places) -> None:
    """Raise if a row has its label at another place than the rows before it."""
    if places.setdefault(name, place) != place:
        raise SchemaMismatchError(
            field=name,
            reason=f"row {row} has its label in the {place}, and the rows before it in the "
            f"{places[name]}".replace("the column None", "no column"),
            remedy="Write the labels of all rows at one place",
        )


def as_contents(
    batch: pa.RecordBatch,
    first: int,
    where: str,
    endings: Sequence[str],
    places: Places,
    what: str,
) -> pa.RecordBatch:
    """Return a batch with `content`, `label`, and `filename` or `path`, if it has contents.

    It knows the features `Image`, `Audio` and `Video` of Hugging Face (a struct of `bytes` and
    `path`), the features `image/…` of TensorFlow, and samples of WebDataset, whose label is `cls`,
    the `label` in their `json`, or the folder of their key.

    Parameters
    ----------
    endings
        The endings of the contents, without a dot.
    places
        As for `as_columns`.
    what
        What a content is: `image`, `sound` or `video`, for messages.

    Raises
    ------
    SchemaMismatchError
        A row has no content, or several, or its label at another place than the rows before it; the
        error names it.
    """
    if "content" in batch.schema.names:
        return as_columns(batch, ["label"], first, places)
    image = next((one.name for one in batch.schema if _is_image(one.type)), None)
    if image is not None:
        return as_columns(_of_structs(batch, image, first, where, what), ["label"], first, places)
    if _ENCODED in batch.schema.names:
        return _of_features(batch, first)
    if KEY in batch.schema.names:
        return _of_samples(batch, first, where, endings, places, what)
    return as_columns(batch, ["label"], first, places)


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


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _named(values: pa.Array, classes: Sequence[str], column: str, first: int) -> pa.Array:
    """Return the names of classes for their numbers, also in lists."""
    names = arrow_array(list(classes), pa.string())
    if not _is_list(values.type):
        if not pa.types.is_integer(values.type):
            return values
        _require_numbers(values.to_pylist(), range(len(values)), names, column, first)
        return names.take(values)
    if not pa.types.is_integer(values.type.value_type):
        return values
    lists = values.cast(pa.list_(values.type.value_type))
    flat = lists.flatten()
    _require_numbers(
        flat.to_pylist(), pc.list_parent_indices(lists).to_pylist(), names, column, first
    )
    offsets = [0]
    for count in pc.fill_null(pc.list_value_length(lists), 0).to_pylist():
        offsets.append(offsets[-1] + count)
    mask = pc.is_null(lists) if lists.null_count else None
    return pa.ListArray.from_arrays(arrow_array(offsets, pa.int32()), names.take(flat), mask=mask)


def _require_numbers(
    numbers: Iterable[int | None], rows: Iterable[int], names: pa.Array, column: str, first: int
) -> None:
    """Raise if a number has no class."""
    for row, number in zip(rows, numbers, strict=True):
        if number is not None and not 0 <= number < len(names):
            raise SchemaMismatchError(
                field=column,
                reason=f"row {first + row} has the class {number}, there are the classes 0 to "
                f"{len(names) - 1}",
                remedy="Leave out rows without a class" if number == -1 else "",
            )


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


def _of_structs(
    batch: pa.RecordBatch, column: str, first: int, where: str, what: str
) -> pa.RecordBatch:
    images = batch[column]
    contents, paths = images.field("bytes"), images.field("path").to_pylist()
    valid = images.is_valid().to_pylist()
    names = []
    for row, (content, path) in enumerate(zip(contents, paths, strict=True)):
        data = content.as_buffer() if valid[row] else None
        if data is None:
            raise SchemaMismatchError(
                field=column, reason=f"row {first + row} of {where} has no {what}"
            )
        last = str(path or "").replace("\\", "/").rpartition("/")[2]
        names.append(last or f"{first + row - 1:08d}.{_ending(data.slice(0, 12).to_pybytes())}")
    found = _with(batch, "content", contents)
    return _with(found, "filename", arrow_array(names, pa.string()))


def _ending(start: bytes) -> str:
    """Return the usual ending of a file by its first bytes."""
    if start[:4] in (b"RIFF", b"RF64") and (kind := start[8:]) in (b"WEBP", b"WAVE"):
        return "webp" if kind == b"WEBP" else "wav"
    if start[4:8] == b"ftyp":
        return "mov" if start[8:] == b"qt  " else "mp4"
    return next((ending for magic, ending in _MAGIC if start.startswith(magic)), "bin")


def _of_samples(
    batch: pa.RecordBatch,
    first: int,
    where: str,
    endings: Sequence[str],
    places: Places,
    what: str,
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
                reason=f"the sample {key!r} of {where} has {len(found)} {what}s: "
                f"{', '.join(found) or 'none'}",
            )
        folder, _, last = key.rpartition("/")
        label, place = about[row].get("label"), "label of its json"
        if label is None:
            label, place = numbers[row], "column cls" if numbers[row] is not None else "folder"
        if label is not None or folder:  # Sounds and videos need no label.
            _require_place("label", place, first + row, places)
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
        first = 1
        for batch in rows if content_of is None else _cut(rows):
            columns = [
                _contents(batch, first, content_of)
                if name == "content" and content_of
                else batch[name]
                for name in sources
            ]
            first += batch.num_rows
            yield pa.RecordBatch.from_arrays(
                [
                    values if values.type == field.type else values.cast(field.type)
                    for values, field in zip(columns, schema, strict=True)
                ],
                schema=schema,
            )

    return pa.RecordBatchReader.from_batches(schema, batches())


def _cut(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows so that their contents beside them have a bounded number of bytes.

    Without a column `size` a batch has one row.
    """
    for batch in rows:
        if "size" in batch.schema.names:
            sizes = pc.fill_null(batch["size"], 0).to_pylist()
        else:
            sizes = [_CUT_BYTES] * len(batch)
        inside = pc.fill_null(pc.binary_length(batch["content"]), 0).to_pylist()
        start = total = held = 0
        for at, (size, uri, own) in enumerate(zip(sizes, batch["uri"], inside, strict=True)):
            size, own = (size, size) if uri.is_valid else (0, own)
            if start < at and held + own > _MOST_BYTES:
                yield batch.slice(start, at - start)
                start, total, held = at, 0, 0
            total, held = total + size, held + own
            if total >= _CUT_BYTES or at + 1 == len(batch):
                yield batch.slice(start, at + 1 - start)
                start, total, held = at + 1, 0, 0


def _contents(batch: pa.RecordBatch, first: int, content_of: Callable[[str], bytes]) -> pa.Array:
    """Return the contents, also those that lie beside the rows.

    Raises
    ------
    SchemaMismatchError
        A content has more bytes than a value of Arrow; the error names its row and file.
    """
    contents, uris = batch["content"], batch["uri"]
    if uris.null_count == len(uris):
        return contents
    has_sizes = "size" in batch.schema.names
    found = []
    for at, (content, uri) in enumerate(zip(contents, uris.to_pylist(), strict=True)):
        if uri is None:
            found.append(content.as_py())
            continue
        if has_sizes:  # So that a content is refused before it is in memory.
            _require_fits(batch, at, first + at, batch["size"][at].as_py() or 0)
        read = content_of(uri)
        _require_fits(batch, at, first + at, len(read))
        found.append(read)
    return arrow_array(found, contents.type)


def _require_fits(batch: pa.RecordBatch, at: int, row: int, size: int) -> None:
    if size <= _MOST_BYTES:
        return
    named = next((name for name in ("filename", "path") if name in batch.schema.names), "uri")
    raise SchemaMismatchError(
        field="content",
        reason=f"the example in row {row}, {batch[named][at].as_py()!r}, has a content of {size} "
        f"bytes, {_MOST_BYTES} are the most that an export holds",
        remedy="Prepare a training set without it, by a predicate, or take its file, which the "
        "column uri of the training set's table names",
    )


def without_extensions(
    schema: pa.Schema, tables: Iterable[pa.Table], remedy: str
) -> pa.RecordBatchReader:
    """Return tables as a stream in which types of extensions are those of their storage.

    Parameters
    ----------
    remedy
        What to do if later tables have other columns than `schema`.

    Raises
    ------
    SchemaMismatchError
        A table has other columns, or values that its column cannot hold; the error names the rows.
    """
    plain = _plain_schema(schema)

    def batches() -> Iterator[pa.RecordBatch]:
        first = 1
        for table in tables:
            yield from _plain(table, plain, first, remedy).combine_chunks().to_batches()
            first += table.num_rows

    return pa.RecordBatchReader.from_batches(plain, batches())


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose types of extensions are those of their storage."""
    return pa.schema(
        [
            field.with_type(getattr(field.type, "storage_type", field.type)).with_nullable(True)
            for field in schema
        ],
        metadata=schema.metadata,
    )


def _plain(table: pa.Table, schema: pa.Schema, first: int, remedy: str) -> pa.Table:
    rows = f"a row from {first} to {first + table.num_rows - 1}"
    for ours, theirs, has in (
        (schema.names, table.schema.names, "has the column {}, which the first rows lack"),
        (table.schema.names, schema.names, "lacks the column {}, which the first rows have"),
    ):
        if other := [name for name in theirs if name not in ours]:
            reason = f"{rows} {has.format(other[0])}"
            raise SchemaMismatchError(field=other[0], reason=reason, remedy=remedy)
    columns = []
    for field in schema:
        values = table[field.name]
        if hasattr(values.type, "storage_type"):
            chunks = [chunk.storage for chunk in values.chunks]
            values = pa.chunked_array(chunks, values.type.storage_type)
        if values.type != field.type:
            try:
                values = values.cast(field.type)
            except pa.ArrowException as error:
                raise SchemaMismatchError(
                    field=field.name,
                    reason=f"{rows} has {values.type} in the column {field.name}, and the first "
                    f"rows have {field.type}: {error}",
                    remedy=remedy,
                ) from error
        columns.append(values)
    return pa.Table.from_arrays(columns, schema=schema)
