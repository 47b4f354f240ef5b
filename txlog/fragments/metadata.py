"""A fragment in the form that one process passes to another: its file actions as JSON. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from txlog.actions.file import Add
from txlog.actions.ndjson import decode_action
from txlog.base.errors import InvalidInputError, LogCorruptError
from txlog.fragments.fragment import DataFile, DeletionFile, rows_left
from txlog.fragments.rows import FIELDS_TAG, LAYER_TAG, LAYER_TEXT

_KEYS = frozenset({"id", "read_version", "written_for", "reads", "files"})


@dataclass(frozen=True)
class FragmentMetadata:
    """A fragment that a worker wrote or changed and that is not committed yet.

    The worker sends it to the driver as JSON, and `Table.commit` adds it to the table.
    """

    id: int | None  # None for a new fragment: its commit assigns the id.
    # The `add` of the primary file, then those of column files.
    adds: tuple[Add, ...] = field(repr=False)
    read_version: int  # The version of the table from which the fragment was made.
    # For a new fragment: a digest of the table, its columns and rules. For a fragment with new
    # columns: a digest of these columns.
    written_for: str | None = None
    reads: tuple[str, ...] = ()  # The columns whose values determined the change.

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The data files, with the primary file first."""
        return tuple(data_file(add) for add in self.adds)

    def data_files(self) -> list[DataFile]:
        """Return the data files, with the primary file first."""
        return list(self.files)

    @property
    def physical_rows(self) -> int | None:
        """The number of rows of the files, including deleted rows; None if unknown."""
        return self.adds[0].num_records

    @property
    def deletion_file(self) -> DeletionFile | None:
        """The location of the deleted rows, or None."""
        vector = self.adds[0].deletion_vector
        return None if vector is None else DeletionFile(vector)

    @property
    def num_deletions(self) -> int:
        """How many rows are deleted."""
        found = self.deletion_file
        return 0 if found is None else found.num_deleted_rows

    @property
    def num_rows(self) -> int | None:
        """The number of rows without the deleted ones; None as for `rows_left`."""
        return rows_left(self.physical_rows, self.num_deletions)

    @property
    def row_id_meta(self) -> range | None:
        """The stable ids of rows that did not move; None before the commit or without such ids."""
        first = self.adds[0].base_row_id
        rows = self.physical_rows
        return None if first is None or rows is None else range(first, first + rows)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that `from_json` reads; `json.dumps` converts it to text."""
        return {
            "id": self.id,
            "read_version": self.read_version,
            "written_for": self.written_for,
            "reads": list(self.reads),
            "files": [add.to_json() for add in self.adds],
        }

    @staticmethod
    def from_json(data: str | bytes | Mapping[str, Any]) -> FragmentMetadata:
        """Return the fragment of a JSON object, given as text or parsed.

        Raises
        ------
        InvalidInputError
            The JSON is not valid for a fragment. The error names the field.
        """
        try:
            body = data if isinstance(data, Mapping) else orjson.loads(data)
        except (orjson.JSONDecodeError, TypeError) as error:
            raise _bad(None, f"it is not JSON: {error}") from error
        if not isinstance(body, Mapping) or not set(body) <= _KEYS:
            raise _bad(None, f"an object with the fields {', '.join(sorted(_KEYS))} was expected")
        number, version = body.get("id"), body.get("read_version")
        if number is not None and (type(number) is not int or number < 0):
            raise _bad("id", f"{number!r} is not a fragment id")
        if type(version) is not int:
            raise _bad("read_version", f"{version!r} is not a version")
        files = body.get("files")
        if not isinstance(files, list) or not files:
            raise _bad("files", "a list of files was expected")
        written_for = body.get("written_for")
        if not isinstance(written_for, str | None):
            raise _bad("written_for", "a string was expected")
        reads = body.get("reads", [])
        if not isinstance(reads, list) or not all(isinstance(name, str) for name in reads):
            raise _bad("reads", "a list of column names was expected")
        return FragmentMetadata(number, tuple(map(_add, files)), version, written_for, tuple(reads))


def data_file(add: Add) -> DataFile:
    """Return the file of an `add`."""
    fields = column_fields(add)
    if fields is None:
        return DataFile(add.path, add.size)
    layer = int((add.tags or {}).get(LAYER_TAG) or 0)
    return DataFile(add.path, add.size, fields, add.default_row_commit_version, layer)


def column_fields(add: Add) -> tuple[str, ...] | None:
    """Return the physical names of a column file's columns; None for a primary file."""
    text = (add.tags or {}).get(FIELDS_TAG)
    if text is None:
        return None
    names = orjson.loads(text)
    return tuple(names) if isinstance(names, list) else ()


def _add(body: Any) -> Add:
    try:
        found = decode_action("add", body, path="fragment", line=1)
    except LogCorruptError as error:
        raise _bad(error.field or "files", error.reason) from error
    assert isinstance(found, Add)
    try:
        names = column_fields(found)
    except orjson.JSONDecodeError as error:
        raise _bad(FIELDS_TAG, f"it is not JSON: {error}") from error
    if names is not None and not (names and all(isinstance(name, str) for name in names)):
        raise _bad(FIELDS_TAG, "a list of column names was expected")
    layer = (found.tags or {}).get(LAYER_TAG)
    if layer is not None and not re.fullmatch(LAYER_TEXT, layer):
        raise _bad(LAYER_TAG, "a number from 1, without leading zeros, was expected")
    return found


def _bad(field_name: str | None, reason: str) -> InvalidInputError:
    return InvalidInputError(
        argument="data",
        field=field_name,
        reason=f"a fragment's metadata cannot be read: {reason}",
        remedy="Pass the result of FragmentMetadata.to_json unchanged",
    )
