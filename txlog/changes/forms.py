"""Check whether the rows of one version fit the columns of another. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from txlog.actions.table import Metadata, Protocol
from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.base.columns import flat
from txlog.base.errors import SchemaMismatchError
from txlog.changes.change_plan import ChangeFile, incompatible
from txlog.protocol.form import ReadForm, logged_otherwise
from txlog.schema.types import ArrayType, DataType, MapType, StructField, StructType, type_name
from txlog.snapshot.commits import Commit

_MAPPING = ("delta.columnMapping.physicalName", "delta.columnMapping.id")


def in_names_of_files(file: ChangeFile, form: ReadForm) -> ChangeFile:
    """Return a change whose partition values have the names that the columns have in files.

    Some writers log the logical names, which a later version may have given to other columns.
    """
    mode, values = form.mapping_mode, file.fragment.partition_values
    if mode == "none":
        return file
    named = {
        field.name_in_files(mode): form.partition_text(values, field)
        for field in form.partition_fields
    }
    if named == values:
        return file
    return replace(file, fragment=replace(file.fragment, partition_values=named))


def rows_in_names_of_files(rows: pa.Table, form: ReadForm) -> pa.Table:
    """Return `FILE_ROWS` of a version with partition values as `in_names_of_files` has them.

    Values that are not known stay so.
    """
    mode, fields = form.mapping_mode, form.partition_fields
    if mode == "none":
        return rows
    maps = flat(rows["partition_values"])
    if not any(pc.any(logged_otherwise(maps, field, mode)).as_py() for field in fields):
        return rows
    known = numpy_array(maps.is_valid())
    texts = [form.partition_texts(maps, field).cast(pa.string()) for field in fields]
    count = len(fields)
    places = np.arange(count * len(maps)).reshape(count, len(maps)).T[known].ravel()
    names = arrow_array([field.name_in_files(mode) for field in fields], pa.string())
    keys = names.take(arrow_array(np.tile(np.arange(count), int(known.sum()))))
    offsets = np.append(0, np.cumsum(known * count)).astype(np.int32)
    named = pa.MapArray.from_arrays(
        arrow_array(offsets, mask=np.append(~known, False)),
        keys,
        pa.concat_arrays(texts).take(arrow_array(places)),
    )
    at = rows.schema.get_field_index("partition_values")
    return rows.set_column(at, rows.schema.field(at), named.cast(rows.schema.field(at).type))


def brings_older_rows(commit: Commit, files: Iterable[ChangeFile]) -> bool:
    """Return whether files of a version's changes may have the form of the version before.

    `files` are all that `changed_files` returns for the commit.
    """
    changes_form = any(isinstance(one, Protocol | Metadata) for _, one in commit.controls)
    return changes_form and any(file.change_type != "insert" for file in files)


def faults_between(old: ReadForm, new: ReadForm, *, drops: bool = False) -> list[str]:
    """Return why rows of an old form do not fit a new one; empty if they fit (FED-6).

    `drops`: columns may have been dropped, because nobody asks for the values of removed rows.
    """
    faults = list(incompatible(old.schema, new.schema, new.mapping_mode, drops=drops))
    in_new_terms = replace(old, mapping_mode=new.mapping_mode)
    if in_new_terms.physical_partition_columns != new.physical_partition_columns:
        faults.append("the table was partitioned by other columns")
    return faults


def tightened(old: StructType, new: StructType, mode: str) -> list[str]:
    """Return the columns that are nullable in an old schema, but not in a new one."""
    return list(_tightened(old, new, mode, ""))


def _tightened(old: DataType, new: DataType, mode: str, above: str) -> Iterator[str]:
    match old, new:
        case StructType(), StructType():
            by_name = {field.name_in_files(mode): field for field in old.fields}
            for field in new.fields:
                name = f"{above}{field.name}"
                before = by_name.get(field.name_in_files(mode))
                if before is None or (before.nullable and not field.nullable):
                    if not field.nullable:
                        yield name
                else:
                    yield from _tightened(before.type, field.type, mode, f"{name}.")
        case ArrayType(), ArrayType():
            if old.contains_null and not new.contains_null:
                yield f"{above}element"
            yield from _tightened(old.element, new.element, mode, f"{above}element.")
        case MapType(), MapType():
            if old.value_contains_null and not new.value_contains_null:
                yield f"{above}value"
            yield from _tightened(old.value, new.value, mode, f"{above}value.")


def differences(old: ReadForm, new: ReadForm) -> list[str]:
    """Return the differences of columns; empty if the files of both are read in the same way."""
    found = []
    for field in old.schema.fields:
        now = new.schema.get(field.name)
        if now is None or now.name != field.name:
            found.append(f"column {field.name} was dropped or renamed")
        elif _bare_field(field) != _bare_field(now):
            found.append(_change(field, now))
    for field in new.schema.fields:
        before = old.schema.get(field.name)
        if before is None or before.name != field.name:
            found.append(f"column {field.name} was added")
    if not found and old.schema.names() != new.schema.names():
        found.append("the order of the columns changed")
    if old.partition_columns != new.partition_columns:
        found.append("the partition columns changed")
    if old.mapping_mode != new.mapping_mode:
        found.append(f"column mapping went from {old.mapping_mode} to {new.mapping_mode}")
    return found


def _change(old: StructField, new: StructField) -> str:
    before, after = type_name(old.type), type_name(new.type)
    if before != after:
        return f"column {old.name} was {before} and became {after}"
    return f"column {old.name} was replaced, or its fields or nullability changed"


def _bare_field(field: StructField) -> StructField:
    """Return a field without metadata that does not affect files, such as comments and defaults."""
    kept = {name: field.metadata[name] for name in _MAPPING if name in field.metadata}
    return StructField(field.name, _bare(field.type), field.nullable, kept)


def _bare(kind: DataType) -> DataType:
    match kind:
        case StructType():
            return StructType(tuple(_bare_field(field) for field in kind.fields))
        case ArrayType():
            return ArrayType(_bare(kind.element), kind.contains_null)
        case MapType():
            return MapType(_bare(kind.key), _bare(kind.value), kind.value_contains_null)
    return kind


def require_loaded(
    loaded: StructType, now: StructType, *, path: str, version: int, of_all: bool
) -> None:
    """Raise if the rows of a version do not fit the columns that Spark has loaded. Pure.

    Spark asks for a schema when a frame is loaded, and for rows when the frame is used, perhaps
    much later. In between, another writer may change the columns.

    Parameters
    ----------
    loaded
        The columns that Spark has loaded.
    now
        The columns of the version.
    of_all
        Whether Spark must know all columns of the version, in their order, so that a new column is
        not left out silently.

    Raises
    ------
    SchemaMismatchError
        A column was added or dropped, has another type, or is nullable now.
    """
    found = list(_column_changes(loaded, now))
    if of_all:
        found += [f"column {name} was added" for name in now.names() if loaded.get(name) is None]
        if not found and loaded.names() != now.names():
            found.append("the names or the order of the columns changed")
    if found:
        raise SchemaMismatchError(
            argument="schema",
            path=path,
            reason=f"version {version} has other columns than those that Spark took from the table "
            f"when it was loaded: {'; '.join(found)}",
            remedy="Load the stream again, without a schema of your own, and start it with the "
            "same checkpoint"
            if of_all
            else "Load the frame again; make a table of Spark's catalog again, which keeps columns",
        )


def _column_changes(loaded: StructType, now: StructType) -> Iterator[str]:
    for field in loaded.fields:
        found = now.get(field.name)
        if found is None:
            yield f"column {field.name} was dropped or renamed"
        elif type_name(field.type) != type_name(found.type):
            yield (
                f"column {field.name} was {type_name(field.type)} "
                f"and became {type_name(found.type)}"
            )
        else:
            for name in tightened(StructType((found,)), StructType((field,)), "none"):
                yield f"column {name} may be null now"
