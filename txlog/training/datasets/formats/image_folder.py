"""Folders of images: a folder for each label, or a table of names and labels beside the images.

The table is `metadata.csv` or `metadata.jsonl` of Hugging Face, with the column `file_name`.
Rules: spec/datasets.md, DST-52 and DST-56.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from txlog.base.errors import SchemaMismatchError, reason_of
from txlog.extend import is_litter
from txlog.training.datasets.formats.base import Output
from txlog.training.datasets.formats.samples import class_name, classes_of, has_files
from txlog.training.datasets.limits import DEFAULT_LIMITS, fault_of_step
from txlog.training.datasets.sources import SourceFile

_TABLES = ("metadata.csv", "metadata.jsonl")
_NAME = "file_name"


def labelled(
    files: Sequence[SourceFile], where: str, *, what: str = "image", needs_label: bool = True
) -> list[tuple[str, str, SourceFile]] | None:
    """Return the labels, names and files of a folder with a table of labels, or None.

    Without a column `label` in the table, the label is the name of the file's folder.

    Parameters
    ----------
    what
        What the files are, for messages.
    needs_label
        Whether each file must have a label; else one without it has the label "".

    Raises
    ------
    SchemaMismatchError
        The table is damaged, or names other files than the folder has; the error names the row.
    """
    named = {file.name: file for file in files}
    tables = [name for name in _TABLES if name in named]
    if not tables:
        return None
    if len(tables) > 1:
        raise SchemaMismatchError(
            reason=f"{where} has {' and '.join(tables)}: one of them was expected"
        )
    table = named.pop(tables[0])
    found, seen = [], set()
    for row, values in enumerate(_rows(table), 1):
        name, place = values.get(_NAME), f"row {row} of {table.name}"
        if not isinstance(name, str) or name not in named:
            raise SchemaMismatchError(
                field=_NAME, reason=f"{place} names the file {name!r}, which {where} does not have"
            )
        if name in seen:
            raise SchemaMismatchError(field=_NAME, reason=f"{place} names {name!r} again")
        seen.add(name)
        folder, _, filename = name.rpartition("/")
        label = values.get("label", folder.rpartition("/")[2])
        label = "" if label is None else str(label)
        if needs_label and not label.strip():
            raise SchemaMismatchError(field="label", reason=f"{place} has no label")
        found.append((label, filename, named[name]))
    if missing := sorted(named.keys() - seen):
        raise SchemaMismatchError(
            field=_NAME, reason=f"{table.name} of {where} does not name the file {missing[0]!r}"
        )
    if not found:
        raise SchemaMismatchError(reason=f"{where} has no {what}")
    return found


def _rows(table: SourceFile) -> Iterable[Mapping[str, Any]]:
    """Return the rows of a table of labels."""
    try:
        text = table.content().decode("utf-8-sig")
        if table.name.endswith(".csv"):
            read = csv.DictReader(io.StringIO(text, newline=""), strict=True, restkey="")
            rows = list(read)
            if any(None in row.values() or "" in row for row in rows):
                raise ValueError("a row has another number of fields than the header")
            return rows
        rows = [json.loads(line) for line in text.split("\n") if line.strip()]
        if not all(isinstance(row, dict) for row in rows):
            raise ValueError("a line is no JSON object")
        return rows
    except (ValueError, csv.Error) as error:
        raise SchemaMismatchError(
            reason=f"{table.name} cannot be read: {reason_of(error)}"
        ) from error


class ImageFolder:
    """A folder for each label, as IMAGE_CLASS, torchvision and Hugging Face read it."""

    name = "imagefolder"

    def write(self, rows: pa.RecordBatchReader, out: Output) -> None:
        """Write each content as `label/filename`; a second file of a name is `name-2`."""
        for column in ("content", "filename", "label"):
            if column not in rows.schema.names:
                raise SchemaMismatchError(
                    field=column,
                    reason=f"images need the column {column}, there are "
                    f"{', '.join(rows.schema.names)}",
                    remedy="Export it in another format",
                )
        if not has_files(rows.schema):
            raise SchemaMismatchError(
                field="content", reason="images need bytes in content, and texts in filename"
            )
        classes = classes_of(rows.schema, "label")
        seen: dict[str, int] = {}
        row = 0
        for batch in rows:
            columns = zip(
                batch["content"],
                batch["filename"].to_pylist(),
                batch["label"].to_pylist(),
                strict=True,
            )
            for content, filename, label in columns:
                row += 1
                named = label if classes is None else class_name(classes, label)
                data = content.as_buffer()
                for column, step in (("label", named), ("filename", filename), ("content", data)):
                    if step is None:
                        raise SchemaMismatchError(field=column, reason=f"row {row} has no {column}")
                    if column == "content":
                        continue
                    if wrong := fault_of_step(str(step), DEFAULT_LIMITS.name_bytes):
                        raise SchemaMismatchError(
                            field=column, reason=f"row {row}: the name {step!r} {wrong}"
                        )
                if is_litter(f"{named}/{filename}"):
                    raise SchemaMismatchError(
                        field="filename",
                        reason=f"row {row}: {named}/{filename} is the name of a file that systems "
                        "leave behind, so a reader of the folder would skip it",
                        remedy="Export it in another format",
                    )
                with out.open(unique_name(f"{named}/{filename}", seen)) as sink:
                    sink.write(data)


def unique_name(name: str, seen: dict[str, int]) -> str:
    """Return a name, with a number before its ending if an earlier file has the name."""
    while True:
        seen[name] = count = seen.get(name, 0) + 1
        if count == 1:
            return name
        stem, dot, ending = name.rpartition(".")
        name = f"{stem}-{count}{dot}{ending}" if dot else f"{name}-{count}"
