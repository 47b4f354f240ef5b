"""What types of files with labels have in common: names, and the parts of a training set."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import pyarrow as pa

from txlog.base.arrow import arrow_array
from txlog.base.errors import SchemaMismatchError
from txlog.training.datasets.formats.image_folder import unique_name
from txlog.training.datasets.limits import Limits, fault_of_step
from txlog.training.datasets.types.archive import write_zip
from txlog.training.datasets.types.base import Parts, Rows, require_options
from txlog.training.datasets.types.csv_rows import csv_bytes
from txlog.training.datasets.types.text_intent import (
    distinct,
    first_seen,
    label_ids,
    labels_table,
)

EXAMPLES = pa.schema(
    [
        ("filename", pa.string()),
        ("label_id", pa.int32()),
        ("content", pa.binary()),
        ("uri", pa.string()),
    ]
)
_COLUMNS = ["filename", "label", "content", "uri"]

ContentOf = Callable[[pa.BinaryScalar, str | None, Rows], bytes | Iterator[bytes]]
"""Returns the content of a row, or its chunks, by its `content` and `uri`."""


def label_of(label: str, name: str, where: str, limits: Limits) -> str:
    """Return the label of a file in its normal form; raise if it is no name."""
    label = unicodedata.normalize("NFC", label.strip())
    if wrong := fault_of_step(label, limits.name_bytes):
        raise SchemaMismatchError(reason=f"the label of {name!r} in {where} {wrong}")
    return label


def require_names(names: Mapping[str, str | None], place: str, limits: Limits) -> None:
    """Raise if a value of a row is no name of a file or folder. Null is allowed.

    Parameters
    ----------
    names
        The values by the names of their columns.
    place
        The row, for the message.
    """
    for column, text in names.items():
        if text is not None and (wrong := fault_of_step(text, limits.name_bytes)):
            raise SchemaMismatchError(
                field=column, reason=f"{place}: the name {text[:100]!r} {wrong}"
            )


def build_examples(
    rows: Rows, out: Parts, options: Mapping[str, str], content_of: ContentOf
) -> dict[str, int]:
    """Number the labels by first appearance, and write examples and labels.

    An example without a label has no number. The form `csv` is one zip.
    """
    require_options(options, {})
    labels = distinct(rows.map(partial(first_seen, "label"), ["label"], of_all=True))
    if out.form == "csv":
        count = _write_zip(rows, out, labels, content_of)
    else:
        count = out.write("examples", rows, partial(_numbered, labels), _COLUMNS)
        out.write_table("labels", labels_table(labels))
    return {"numExamples": count, "numLabels": len(labels)}


def _numbered(labels: pa.Array, batch: pa.RecordBatch) -> pa.RecordBatch:
    numbers = label_ids(labels, batch["label"])
    return pa.RecordBatch.from_arrays(
        [batch["filename"], numbers, batch["content"], batch["uri"]], schema=EXAMPLES
    )


def _write_zip(rows: Rows, out: Parts, labels: pa.Array, content_of: ContentOf) -> int:
    """Write `examples.zip`, and return how many files are in `examples/` there."""
    names: list[str] = []
    seen: dict[str, int] = {}
    numbers = []
    for batch in rows.batches(["filename", "label"]):
        names += [unique_name(name, seen) for name in batch["filename"].to_pylist()]
        numbers.append(label_ids(labels, batch["label"]))
    listed = pa.Table.from_arrays(
        [arrow_array(names, pa.string()), pa.chunked_array(numbers, pa.int32())],
        names=["filename", "label_id"],
    )

    def members() -> Iterator[tuple[str, bytes | Iterator[bytes]]]:
        yield "examples.csv", b"".join(map(csv_bytes, listed.to_batches()))
        yield "labels.csv", b"".join(map(csv_bytes, labels_table(labels).to_batches()))
        following = iter(names)
        for batch in rows.batches(_COLUMNS):
            for content, uri in zip(batch["content"], batch["uri"].to_pylist(), strict=True):
                yield f"examples/{next(following)}", content_of(content, uri, rows)

    with out.open_file("examples.zip", len(names)) as sink:
        write_zip(sink, members())
    return len(names)
