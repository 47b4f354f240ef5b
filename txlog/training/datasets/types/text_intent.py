"""TEXT_INTENT: texts with one or several labels each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.base.errors import SchemaMismatchError
from txlog.training.datasets.formats.samples import Places, as_columns
from txlog.training.datasets.limits import Limits
from txlog.training.datasets.sources import Source, SourceFile
from txlog.training.datasets.types.base import ObjectFiles, Parts, Rows, require_options
from txlog.training.datasets.types.csv_rows import CsvRows, read_csv

_LABELS = pa.list_(pa.string())
_SPACES = " \t\r\n"
_CONTROL = r"[\x00-\x1f\x7f]"

LABELS = pa.schema([("label_id", pa.int32()), ("label_name", pa.string())])


class TextIntent:
    """Utterances with their labels.

    It reads CSV files: an utterance and one or more labels, in separate fields or separated by `;`.
    A first row `utterance,label` or `utterance,labels` is a header and no example. A first row that
    looks like another header is refused. It also accepts Arrow data with the columns `utterance`
    and `labels`; labels are a list, or a text with `;` between them.
    """

    name = "TEXT_INTENT"
    version = 1
    aliases = ("LANGUAGE_INTENT",)
    as_rows = True
    ingestion = pa.schema(
        [pa.field("utterance", pa.string(), nullable=False), pa.field("labels", _LABELS, False)]
    )
    training: Mapping[str, pa.Schema | None] = {
        "examples": pa.schema([("utterance", pa.string()), ("label_ids", pa.list_(pa.int32()))]),
        "labels": LABELS,
    }

    def read(self, source: Source, limits: Limits, files: ObjectFiles) -> Iterator[pa.RecordBatch]:
        """Yield utterances with their labels. The files of a folder are read in order."""
        if source.data is not None:
            first = 1
            places: Places = {}
            for batch in source.data:
                yield from _checked(_of_columns(batch, first, places), first, source.name, limits)
                first += batch.num_rows
            return
        for file in source.files:
            yield from _of_csv(file, limits)

    def statistics(self) -> LabelCounts:
        """Return the counts of a commit without rows."""
        return LabelCounts("labels")

    def build(self, rows: Rows, out: Parts, options: Mapping[str, str]) -> dict[str, int]:
        """Number the labels by first appearance, and write examples and labels."""
        require_options(options, {})
        labels = distinct(rows.map(partial(first_seen, "labels"), ["labels"], of_all=True))
        count = out.write("examples", rows, partial(_numbered, labels))
        out.write_table("labels", labels_table(labels))
        return {"numExamples": count, "numLabels": len(labels)}


class LabelCounts:
    """The numbers of examples and of different labels of a commit."""

    def __init__(self, column: str) -> None:
        self._column = column
        self._examples = 0
        self._labels: set[str] = set()

    def add(self, batch: pa.RecordBatch) -> None:
        """Count more rows."""
        self._examples += batch.num_rows
        self._labels.update(_different(batch[self._column]).to_pylist())

    def result(self) -> dict[str, int]:
        """Return `numExamples` and `numLabels`."""
        return {"numExamples": self._examples, "numLabels": len(self._labels)}


# Labels, by their numbers ----------------------------------------------------------------------


def first_seen(column: str, batches: Iterator[pa.RecordBatch]) -> pa.Array:
    """Return the labels of some rows in the order of their first appearance."""
    found = [_different(batch[column]) for batch in batches]
    return pa.concat_arrays(found).unique() if found else pa.nulls(0, pa.string())


def distinct(parts: Iterator[pa.Array]) -> pa.Array:
    """Return the labels of all parts in the order of their first appearance."""
    found = pa.nulls(0, pa.string())
    for part in parts:
        found = pa.concat_arrays([found, part]).unique()
    return found


def labels_table(labels: pa.Array) -> pa.Table:
    """Return the labels with their numbers, from 0."""
    numbers = arrow_array(np.arange(len(labels), dtype=np.int32))
    return pa.Table.from_arrays([numbers, labels], schema=LABELS)


def label_ids(labels: pa.Array, values: pa.Array) -> pa.Array:
    """Return the numbers of labels, as int32."""
    return pc.index_in(values, value_set=labels).cast(pa.int32())


def _different(values: pa.Array) -> pa.Array:
    flat = values.flatten() if pa.types.is_list(values.type) else values
    return flat.cast(pa.string()).drop_null().unique()


def _numbered(labels: pa.Array, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of the ingestion schema as rows of the training schema."""
    lists = batch["labels"]
    numbers = pa.ListArray.from_arrays(_offsets(lists), label_ids(labels, lists.flatten()))
    schema = TextIntent.training["examples"]
    return pa.RecordBatch.from_arrays([batch["utterance"], numbers], schema=schema)


def _offsets(lists: pa.ListArray) -> pa.Array:
    """Return the offsets of lists into their flattened values."""
    places = numpy_array(lists.offsets)
    return arrow_array((places - places[0]).astype(np.int32))


# From CSV and columns to rows ------------------------------------------------------------------


_UTTERANCE = "utterance"
_TEXTS = frozenset({_UTTERANCE, "text", "sentence", "query", "question", "message", "content"})
_LABEL_NAMES = frozenset(
    {"label", "labels", "intent", "intents", "category", "class", "target", "tag", "tags"}
)
_NUMBERS = frozenset({"id", "index", "no", "#", ""})


def _is_header(rows: CsvRows, name: str) -> bool:
    """Return whether the first row of a CSV has the names of the columns of the type.

    Raises
    ------
    SchemaMismatchError
        It looks like a header with other names, or in another order.
    """
    fields = [field.as_py() for field in rows.fields.slice(0, int(rows.starts[1]))]
    names = [field.strip(_SPACES).lower() for field in fields]
    known = _TEXTS | _LABEL_NAMES | _NUMBERS
    if not (_TEXTS.intersection(names) and _LABEL_NAMES.intersection(names) and known >= {*names}):
        return False
    if names in ([_UTTERANCE, "label"], [_UTTERANCE, "labels"]):
        return True
    raise SchemaMismatchError(
        reason=f"{rows.where(0)} of {name} looks like a header: {','.join(fields)}",
        remedy="If it is one and the columns are a text and its labels, call them "
        "utterance,labels; else bring the columns into this order. If it is an example, put it "
        "below another row",
    )


def _of_csv(file: SourceFile, limits: Limits) -> Iterator[pa.RecordBatch]:
    for rows in read_csv(file.chunks(), file.name, limits):
        skipped = int(rows.first_row == 1 and _is_header(rows, file.name))
        utterances = rows.fields.take(arrow_array(rows.starts[:-1]))
        is_label = np.ones(len(rows.fields), bool)
        is_label[rows.starts[:-1]] = False
        starts = rows.starts - np.arange(len(rows.starts))  # The index of each row's first label.
        labels = _split(rows.fields.filter(arrow_array(is_label)), starts)
        batch = pa.RecordBatch.from_arrays([utterances, labels], schema=TextIntent.ingestion)
        yield from _checked(batch, rows, file.name, limits, skipped)


def _of_columns(batch: pa.RecordBatch, first: int, places: Places) -> pa.RecordBatch:
    """Return Arrow data with the columns `utterance` and `labels` as rows."""
    batch = as_columns(batch, ["utterance", "labels"], first, places)
    utterances = column_of(batch, "utterance", pa.string(), first)
    labels = column_of(batch, "labels", None, first)
    if isinstance(labels, pa.ChunkedArray):
        labels = labels.combine_chunks()
    kind = labels.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        labels = as_type(labels, _LABELS, "labels")
        if labels.flatten().null_count:
            raise SchemaMismatchError(field="labels", reason="a label is null")
        lists = pa.ListArray.from_arrays(
            _offsets(labels), pc.utf8_trim(labels.flatten(), characters=_SPACES)
        )
    else:
        texts = as_type(labels, pa.string(), "labels")
        lists = _split(texts, np.arange(len(texts) + 1))
    return pa.RecordBatch.from_arrays([utterances, lists], schema=TextIntent.ingestion)


def _split(fields: pa.Array, starts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.ListArray:
    """Return the labels in texts with `;` between them, trimmed and without empty ones.

    Parameters
    ----------
    starts
        The index of each row's first field, and at the end the number of fields.
    """
    pieces = pc.split_pattern(fields, pattern=";")
    flat = pc.utf8_trim(pieces.flatten(), characters=_SPACES)
    is_label = numpy_array(pc.binary_length(flat)) > 0
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(is_label)])
    offsets = before[numpy_array(_offsets(pieces))[starts]]
    return pa.ListArray.from_arrays(
        arrow_array(offsets.astype(np.int32)), flat.filter(arrow_array(is_label))
    )


def _checked(
    batch: pa.RecordBatch, place: CsvRows | int, name: str, limits: Limits, skipped: int = 0
) -> Iterator[pa.RecordBatch]:
    """Yield rows; raise if a row has no utterance, no label, or a label that is not valid.

    Of a CSV with a header, the first row is checked and left out.
    """
    utterances, labels = batch.columns
    labels = pa.ListArray.from_arrays(_offsets(labels), normalized(labels.flatten()))
    batch = pa.RecordBatch.from_arrays([utterances, labels], schema=TextIntent.ingestion)

    def unfit(row: int, column: str, wrong: str) -> SchemaMismatchError:
        where = f"row {place + row}" if isinstance(place, int) else place.where(row)
        return SchemaMismatchError(field=column, reason=f"{where} of {name} {wrong}")

    empty = numpy_array(pc.binary_length(pc.utf8_trim(utterances, characters=_SPACES))) == 0
    if empty.any():
        raise unfit(int(np.argmax(empty)), "utterance", "has no utterance")
    offsets = numpy_array(_offsets(labels))
    missing = np.diff(offsets) == 0
    if missing.any():
        raise unfit(int(np.argmax(missing)), "labels", "has no label")
    flat = labels.flatten()
    sizes = numpy_array(pc.binary_length(flat))
    for wrong, text in (
        (sizes == 0, "has an empty label"),
        (sizes > limits.name_bytes, f"has a label of more than {limits.name_bytes} bytes"),
        (_has_control(flat), "has a control character in a label"),
    ):
        if wrong.any():
            row = int(np.searchsorted(offsets, np.argmax(wrong), side="right")) - 1
            raise unfit(row, "labels", text)
    if batch.num_rows > skipped:
        yield batch.slice(skipped)


def normalized(texts: pa.Array) -> pa.Array:
    """Return labels in the normal form C of Unicode: other forms show the same characters.

    macOS names folders in another form, so one label would become two classes.
    """
    if pc.all(pc.string_is_ascii(texts)).as_py() is not False:
        return texts
    return pc.utf8_normalize(texts, "NFC")


def _has_control(texts: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return whether texts have control characters. Each distinct text is searched once."""
    encoded = texts.dictionary_encode()
    wrong = numpy_array(pc.match_substring_regex(encoded.dictionary, pattern=_CONTROL))
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = wrong[numpy_array(encoded.indices)]
    return found


# Columns of Arrow data -------------------------------------------------------------------------


def column_of(batch: pa.RecordBatch, name: str, kind: pa.DataType | None, first: int) -> pa.Array:
    """Return a column of Arrow data without nulls, as a type.

    Raises
    ------
    SchemaMismatchError
        There is no such column, its type is wrong, or a value is null. The error names the row.
    """
    if name not in batch.schema.names:
        raise SchemaMismatchError(
            field=name,
            reason=f"the data has no column {name}, it has {', '.join(batch.schema.names)}",
        )
    values = batch[name]
    if values.null_count:
        row = first + int(np.argmax(numpy_array(pc.is_null(values))))
        raise SchemaMismatchError(field=name, reason=f"row {row} of the data has no {name}")
    return values if kind is None else as_type(values, kind, name)


def as_type(values: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """Return values cast to a type; raise if it cannot hold all of them."""
    try:
        return values.cast(kind)
    except pa.ArrowException as error:
        raise SchemaMismatchError(
            field=name, reason=f"a column of {kind} was expected, not {values.type}: {error}"
        ) from error
