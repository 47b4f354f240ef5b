"""The files of a table as Arrow columns, decoded straight from the log's JSON.

A table may have millions of files, so they never become models: `FILE_ROWS` has one row for each
`add` or `remove` from any log file. Its columns and their types are derived from the models in
`file.py`, as are the structs of checkpoints, and a property test compares the two decoders.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import numpy as np
import pyarrow as pa

from txlog.actions.action import Action, texts_of
from txlog.actions.file import Add, DeletionVectorDescriptor, Remove, vector_id
from txlog.actions.ndjson import decode_action
from txlog.base.arrow import arrow_array, empty_table, pc
from txlog.base.errors import LogCorruptError
from txlog.base.thresholds import Threshold

STRING_MAP = pa.map_(pa.string(), pa.string())
_ARROW_TYPES: dict[Any, pa.DataType] = {
    str: pa.string(),
    bool: pa.bool_(),
    list[str]: pa.list_(pa.field("element", pa.string())),
    dict[str, str | None]: STRING_MAP,
}


def struct_of(model: type[Action]) -> pa.StructType:
    """Return the Arrow type of an action's JSON object: a field for each field of the model."""
    return pa.struct(
        [
            (str(info.alias), _arrow_type(info.rebuild_annotation()))
            for info in model.model_fields.values()
        ]
    )


def _arrow_type(annotation: Any) -> pa.DataType:
    """Return the Arrow type of a field's annotation, with or without `| None`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:  # An integer states its type; a validator changes none.
        marks = [mark for mark in arguments[1:] if isinstance(mark, pa.DataType)]
        return marks[0] if marks else _arrow_type(arguments[0])
    if origin in (Union, UnionType):
        return _arrow_type(arguments[0])
    if annotation in _ARROW_TYPES:
        return _ARROW_TYPES[annotation]
    return struct_of(annotation)


def required_of(model: type[Action]) -> dict[str, str]:
    """Return the required fields of a model: the name in the log, and that of the column."""
    fields = model.model_fields.items()
    return {str(info.alias): name for name, info in fields if info.is_required()}


COLUMNS = {str(info.alias): name for name, info in (Add.model_fields | Remove.model_fields).items()}
"""Log field → column, for all fields of file actions."""
DELETION_VECTOR = struct_of(DeletionVectorDescriptor)
_TYPES = {field.name: field.type for model in (Remove, Add) for field in struct_of(model)}
FILE_ROWS = pa.schema(
    [
        ("version", pa.int64()),  # The version of the log file that the row came from.
        ("is_add", pa.bool_()),  # False for a `remove`.
        *((column, _TYPES[name]) for name, column in COLUMNS.items()),
        ("dv_id", pa.string()),  # The vector's unique id; null without one.
    ]
)

MAPS = {name: column for name, column in COLUMNS.items() if _TYPES[name] == STRING_MAP}
FIELDS = {name: column for name, column in COLUMNS.items() if not pa.types.is_nested(_TYPES[name])}
"""Log field → column, for the fields that need no conversion."""

UNREADABLE = (
    pa.ArrowException,
    KeyError,
    TypeError,
    AttributeError,
    ValueError,
    OverflowError,
)
"""The errors that a body with an unexpected shape can cause."""
_REQUIRED = required_of(Add)
VECTOR_REQUIRED = required_of(DeletionVectorDescriptor)
_VECTOR_SIZES = ("sizeInBytes", "cardinality")
_INTEGERS = {int, type(None)}
_NOTHING = {type(None)}
_FEW_KEYS: Threshold = 4096


def empty_rows() -> pa.Table:
    """Return `FILE_ROWS` without rows."""
    return empty_table(FILE_ROWS)


def decode_rows(commits: Iterable[tuple[int, list[dict[str, Any]], str]]) -> pa.Table:
    """Return the `add` and `remove` actions of log files as `FILE_ROWS`.

    Parameters
    ----------
    commits
        For each log file its version, its JSON objects (from `ndjson.rows`), and its name.

    Raises
    ------
    LogCorruptError
        A field is missing or of a wrong type; the error names file, line and field.
    """
    files = list(commits)
    versions: list[int] = []
    is_add: list[bool] = []
    bodies: list[dict[str, Any]] = []
    for version, rows, _ in files:
        before = len(bodies)
        for row in rows:
            if (body := row.get("add")) is not None:
                bodies.append(body)
                is_add.append(True)
            if (body := row.get("remove")) is not None:
                bodies.append(body)
                is_add.append(False)
        versions += [version] * (len(bodies) - before)
    if not bodies:
        return empty_rows()
    try:
        return _columns(versions, is_add, bodies)
    except UNREADABLE as error:
        raise _at_fault(files, error) from error


def _at_fault(
    commits: list[tuple[int, list[dict[str, Any]], str]], error: Exception
) -> LogCorruptError:
    """Return the error for actions that cannot become columns; it names file, line and field.

    The models find the wrong field. The columns accept everything that the models accept.
    """
    first: tuple[str | None, int | None] = (None, None)
    for _, rows, name in commits:
        for line, row in enumerate(rows, start=1):
            for kind in ("add", "remove"):
                if (body := row.get(kind)) is not None:
                    first = (name, line) if first[0] is None else first
                    try:
                        decode_action(kind, body, path=name, line=line)
                    except LogCorruptError as fault:
                        return fault
    return LogCorruptError(
        path=first[0], line=first[1], reason=f"a file action cannot be read: {error}"
    )


def _columns(versions: list[int], is_add: list[bool], bodies: list[dict[str, Any]]) -> pa.Table:
    fields = _by_name(bodies)
    _require_fields(fields, is_add)
    count = len(bodies)
    changes = fields.get("dataChange", [None] * count)
    if None in changes:  # For a `remove`, whose default is true.
        fields["dataChange"] = [True if change is None else change for change in changes]
    columns: dict[str, pa.Array] = {
        "version": arrow_array(versions, pa.int64()),
        "is_add": arrow_array(is_add, pa.bool_()),
    }
    for name, column in MAPS.items():
        columns[column] = _maps(fields[name]) if name in fields else pa.nulls(count, STRING_MAP)
    for name, column in FIELDS.items():
        kind = FILE_ROWS.field(column).type
        if name not in fields:
            columns[column] = pa.nulls(count, kind)
            continue
        if pa.types.is_int64(kind) and not _INTEGERS.issuperset(map(type, fields[name])):
            raise TypeError(f"{name} is not an integer")
        columns[column] = arrow_array(fields[name], kind)
    vectors = fields.get("deletionVector", [None])
    columns["deletion_vector"], columns["dv_id"] = (
        _no_vectors(count) if _NOTHING.issuperset(map(type, vectors)) else _vectors(vectors)
    )
    return pa.table([columns[name] for name in FILE_ROWS.names], schema=FILE_ROWS)


def _by_name(bodies: list[dict[str, Any]]) -> dict[str, Sequence[Any]]:
    """Return the values of each field that any object has; None for an object without the field."""
    if _are_alike(bodies):  # Objects of one writer usually are.
        return dict(zip(bodies[0], zip(*map(dict.values, bodies), strict=True), strict=True))
    there = set().union(*bodies)
    return {name: [body.get(name) for body in bodies] for name in there}


def _are_alike(objects: Sequence[Any]) -> bool:
    """Return whether objects have the same names, in the same order."""
    return list(map(tuple, objects)).count(tuple(objects[0])) == len(objects)


def require_fields(columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> None:
    """Raise `KeyError` if an action lacks a required field, `ValueError` if one is null.

    `columns` are the columns of `FILE_ROWS`, by name.
    """
    require_sizes(columns, columns["is_add"])
    missing = columns["path"].null_count
    for name in _REQUIRED.values():
        column = columns[name]
        if column.null_count:
            missing += pc.sum(pc.and_(column.is_null(), columns["is_add"])).as_py()
    if missing:
        raise KeyError("a required field is null")


def require_sizes(
    columns: Mapping[str, pa.Array | pa.ChunkedArray], is_add: pa.Array | pa.ChunkedArray
) -> None:
    """Raise `ValueError` if an `add` or a deletion vector has a negative size.

    `columns` are the present columns of `FILE_ROWS`, by name.
    """
    sizes = []
    if "size" in columns:
        sizes.append(pc.filter(columns["size"], is_add))
        if sizes[0].null_count:
            raise KeyError("a required field is null")
    vectors = columns.get("deletion_vector")
    if vectors is not None and vectors.null_count < len(vectors):
        sizes += [pc.struct_field(vectors, name) for name in _VECTOR_SIZES]
    if any((pc.min(numbers).as_py() or 0) < 0 for numbers in sizes):
        raise ValueError("a size is below 0")


def _require_fields(fields: Mapping[str, Sequence[Any]], is_add: Sequence[bool]) -> None:
    """Check JSON bodies as `require_fields` does, without `pyarrow.compute`."""
    if None in fields["path"] or any(_is_missing(fields.get(name), is_add) for name in _REQUIRED):
        raise KeyError("a required field is null")
    sizes = fields.get("size", ())
    if any(s is not None and s < 0 and added for s, added in zip(sizes, is_add, strict=False)):
        raise ValueError("a size is below 0")


def _is_missing(values: Sequence[Any] | None, is_add: Sequence[bool]) -> bool:
    """Return whether an `add` lacks a field; `values` is None for a field that no action has."""
    if values is None:
        return any(is_add)
    return None in values and any(
        added and value is None for value, added in zip(values, is_add, strict=True)
    )


def _no_vectors(count: int) -> tuple[pa.Array, pa.Array]:
    return pa.nulls(count, DELETION_VECTOR), pa.nulls(count, pa.string())


def _maps(values: Sequence[Mapping[str, str | None] | None]) -> pa.Array:
    """Return dictionaries of strings as an Arrow map array."""
    if None not in values and _are_alike(values):
        names: list[str] = list(values[0] or ())
        offsets = np.arange(len(values) + 1, dtype=np.int32) * np.int32(len(names))
        # Few rows do not justify importing `pyarrow.compute`.
        if len(names) * len(values) <= _FEW_KEYS:
            keys = arrow_array(names * len(values), pa.string())
        else:
            every = np.tile(np.arange(len(names)), len(values))
            keys = arrow_array(names, pa.string()).take(arrow_array(every))
        return pa.MapArray.from_arrays(arrow_array(offsets), keys, _items(values))
    there: list[Any] = [{} if v is None else v for v in values]
    ends = list(accumulate(map(len, there), initial=0))
    begins: list[int | None] = [
        None if v is None else begin for v, begin in zip(values, ends, strict=False)
    ]
    keys = arrow_array(chain.from_iterable(there), pa.string())
    return pa.MapArray.from_arrays(
        arrow_array([*begins, ends[-1]], pa.int32()), keys, _items(there)
    )


def _items(maps: Iterable[Any]) -> pa.Array:
    """Return the values of all maps as one array, map by map."""
    items = list(chain.from_iterable(map(dict.values, maps)))
    try:
        return arrow_array(items, pa.string())
    except pa.ArrowException:
        return arrow_array(texts_of(dict(enumerate(items))).values(), pa.string())


def _vectors(values: Sequence[dict[str, Any] | None]) -> tuple[pa.Array, pa.Array]:
    for value in values:
        if value is None:
            continue
        for name in VECTOR_REQUIRED:
            if value[name] is None:
                raise KeyError(name)
        for name in (*_VECTOR_SIZES, "offset"):
            if type(value.get(name)) not in (int, type(None)):
                raise TypeError(f"{name} is not an integer")
        if any(value[name] < 0 for name in _VECTOR_SIZES):
            raise ValueError("a size is below 0")
    ids = [
        None if v is None else vector_id(v["storageType"], v["pathOrInlineDv"], v.get("offset"))
        for v in values
    ]
    return arrow_array(values, DELETION_VECTOR), arrow_array(ids, pa.string())


def vector_ids(vectors: pa.StructArray) -> pa.Array:
    """Return the ids of deletion vectors, as `vector_id` makes them."""
    kinds, texts, offsets = (
        pc.struct_field(vectors, name) for name in ("storageType", "pathOrInlineDv", "offset")
    )
    plain = pc.binary_join_element_wise(kinds, texts, "")
    return pc.coalesce(pc.binary_join_element_wise(plain, offsets.cast(pa.string()), "@"), plain)


def files_at(rows: pa.Table, paths: Iterable[str]) -> pa.Table:
    """Return the live `FILE_ROWS` of paths; a path has at most one live row."""
    chosen = pc.is_in(rows["path"], value_set=arrow_array(list(paths), pa.string()))
    return pc.filter(rows, chosen)
