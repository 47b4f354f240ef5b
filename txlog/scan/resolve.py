"""Decide how the columns of data files become the columns of a table. Pure.

Readers decide here for a file whose footer is known (`resolve`), or by what the log says of all
files (`promised`). A reader that cannot convert reads a file only if it `is_plain`; for others,
`assemble` makes the table's columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from txlog.actions.stats_text import Path
from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.base.threads import cached_property
from txlog.base.thresholds import Threshold
from txlog.fragments.fragment import Fragment
from txlog.fragments.rows import GIVEN
from txlog.parquet.file_footer import FileFooter
from txlog.protocol.form import ReadForm
from txlog.protocol.mapping import in_files
from txlog.scan.columns import (
    METADATA_COLUMNS,
    conform,
    find_columns,
    is_legacy,
    metadata_column,
    stored_metadata,
)
from txlog.schema.arrow import arrow_type
from txlog.schema.casts import Reading, reading
from txlog.schema.types import DataType, StructField, StructType
from txlog.stats.partition import parse_partition_values

How = Literal["stored", "null", "partition", "metadata"]

_PARTITION_VALUES: Threshold = 10_000  # The number of cached values of a scan.


@dataclass(frozen=True)
class ColumnSource:
    """Where the values of a table's column come from.

    Parameters
    ----------
    name
        The column's name in the file; None if the file does not store it.
    kind
        Its type in the file.
    reading
        What happens to its values. Nested values are the `SAME` if their fields have the names that
        they must have in files; they are `OTHER` else, even if only some of them are converted.
    """

    column: StructField
    how: How
    name: str | None = None
    kind: pa.DataType | None = None
    reading: Reading = Reading.SAME


@dataclass(frozen=True)
class Resolved:
    """The columns of a table in the files of one schema.

    Parameters
    ----------
    is_legacy
        Whether the footer marks dates or timestamps in the old calendar.
    ambiguous
        The name of a wanted column that the file has several times, and how often.
    """

    columns: tuple[ColumnSource, ...]
    form: ReadForm
    is_legacy: bool
    ambiguous: tuple[str, int] | None

    @cached_property
    def names(self) -> Mapping[str, str]:
        """The names in the file of the columns that are read from it, by the table's names."""
        return {one.column.name: one.name for one in self.columns if one.name is not None}

    @cached_property
    def stored(self) -> list[str]:
        """The names in the file of the columns that are read from it."""
        return list(self.names.values())

    @cached_property
    def parts(self) -> list[str]:
        """The paths to read if only some fields of structs are wanted."""
        mode = self.form.mapping_mode
        return [
            path
            for one in self.columns
            if one.name is not None and one.kind is not None
            for path in stored_parts(one.kind, one.column.type, one.name, mode)
        ]

    @cached_property
    def is_plain(self) -> bool:
        """Whether a reader that knows only the names in files reads the table's values."""
        return (
            not self.is_legacy
            and self.ambiguous is None
            and all(
                one.how != "metadata" and one.reading in (Reading.SAME, Reading.LAYOUT)
                for one in self.columns
            )
        )

    def leaf(self, path: Path, readings: Collection[Reading] = (Reading.SAME,)) -> Path | None:
        """Return the path in the file of a column with statistics that fit the table's type.

        `readings` are those that may make the table's values of the file's.
        """
        for one in self.columns:
            if one.column.name == path[0]:
                if one.how != "stored" or one.name is None or one.reading not in readings:
                    return None
                return (one.name, *self.form.physical(path)[1:])
        return None


def how_of(form: ReadForm, column: StructField) -> How:
    """Return where a column's values come from if all files that should store it do so."""
    if column.name in form.partition_columns:
        return "partition"
    if form.schema.get(column.name) is None and METADATA_COLUMNS.get(column.name) is not None:
        return "metadata"
    return "stored"  # In the table's schema, or in that of change data files.


class Promise(NamedTuple):
    """What the log alone says of a column in all files: `stored` has its names there."""

    column: StructField
    how: How
    stored: StructField


def promised(form: ReadForm, needed: Sequence[StructField]) -> Iterator[Promise]:
    """Yield where the values of columns come from in files that store what they should."""
    stored = in_files(StructType(tuple(needed)), form.mapping_mode)
    for column, own in zip(needed, stored.fields, strict=True):
        yield Promise(column, how_of(form, column), own)


def resolve(form: ReadForm, needed: Sequence[StructField], footer: FileFooter) -> Resolved:
    """Return where a file has columns of a table.

    Parameters
    ----------
    form
        The table's. A metadata column is one that its schema does not hide.
    needed
        The columns to read from this file, or constants.
    """
    schema = footer.schema
    places = find_columns(schema, needed, form.mapping_mode)
    names = schema.names
    has_column = frozenset(names)
    columns = tuple(
        _source(form, column, schema, place, has_column)
        for column, place in zip(needed, places, strict=True)
    )
    ambiguous = None
    if len(set(names)) < len(names):
        counts = Counter(names)
        ambiguous = next(
            (
                (one.name, counts[one.name])
                for one in columns
                if one.name is not None and counts[one.name] > 1
            ),
            None,
        )
    return Resolved(columns, form, is_legacy(footer.pairs), ambiguous)


def _source(
    form: ReadForm,
    column: StructField,
    schema: pa.Schema,
    place: int | None,
    names: Set[str],
) -> ColumnSource:
    how = how_of(form, column)
    if how == "partition":
        return ColumnSource(column, how)
    if how == "metadata":
        stored = stored_metadata(column.name, form.row_tracking)
        if stored not in names:
            return ColumnSource(column, how)
        return ColumnSource(column, how, stored, schema.field(stored).type)
    # Parquet allows groups without columns, from which nothing can be read.
    if place is None or schema.field(place).type == pa.struct([]):
        return ColumnSource(column, "null")
    field = schema.field(place)
    found = _reading(field.type, column.type, form.mapping_mode)
    return ColumnSource(column, how, field.name, field.type, found)


def _reading(have: pa.DataType, want: DataType, mode: str) -> Reading:
    target = arrow_type(want)
    if not pa.types.is_nested(target):
        return reading(have, target)
    if mode == "id":
        return Reading.OTHER  # Equal names may be different fields.
    if mode == "name":
        renamed = in_files(StructType((StructField("", want),)), mode)
        target = arrow_type(renamed.fields[0].type)
    return Reading.SAME if _alike(have, target) else Reading.OTHER


def _alike(have: pa.DataType, want: pa.DataType) -> bool:
    """Return whether types are equal, but that a file may have no nulls where a table may."""
    if pa.types.is_struct(have) and pa.types.is_struct(want):
        return have.num_fields == want.num_fields and all(
            one.name == other.name and _fields_alike(one, other)
            for one, other in zip(have, want, strict=True)
        )
    if pa.types.is_list(have) and pa.types.is_list(want):
        return _fields_alike(have.value_field, want.value_field)
    if pa.types.is_map(have) and pa.types.is_map(want):
        return _alike(have.key_type, want.key_type) and _fields_alike(
            have.item_field, want.item_field
        )
    return bool(have == want)


def _fields_alike(have: pa.Field, want: pa.Field) -> bool:
    return (want.nullable or not have.nullable) and _alike(have.type, want.type)


def stored_parts(stored: pa.DataType, want: DataType | None, path: str, mode: str) -> Iterator[str]:
    """Yield the paths in a file of the wanted parts of a column, such as fields of a struct."""
    if isinstance(want, StructType) and pa.types.is_struct(stored):
        places = find_columns(stored, want.fields, mode)
        if any(place is not None for place in places):
            for place, field in zip(places, want.fields, strict=True):
                if place is not None:
                    inner = stored.field(place)
                    yield from stored_parts(inner.type, field.type, f"{path}.{inner.name}", mode)
            return
    yield path  # If no field is wanted, any field shows which structs are null.


PartitionValues: TypeAlias = dict[tuple[str, str | None], pa.Scalar]
"""Typed partition values by column and logged text."""


def constants(
    form: ReadForm,
    fragment: Fragment,
    needed: Sequence[StructField],
    known: PartitionValues | None = None,
) -> dict[str, pa.Scalar]:
    """Return the needed columns that have one value in all rows of a fragment: its partition's.

    Parameters
    ----------
    known
        A cache of values for several fragments.

    Raises
    ------
    LogCorruptError
        A logged text is not a value of its column's type.
    """
    kept = {} if known is None else known
    found = {}
    for column in needed:
        if column.name not in form.partition_columns:
            continue
        text = form.partition_text(fragment.partition_values, column)
        value = kept.get((column.name, text))
        if value is None:
            value = parse_partition_values(arrow_array([text], pa.string()), column.type)[0]
            if len(kept) < _PARTITION_VALUES:
                kept[column.name, text] = value
        found[column.name] = value
    return found


Rows: TypeAlias = range | pa.Array
"""Positions of rows in a fragment: a range, or int64."""


@dataclass(frozen=True)
class RawRows:
    """Rows of a file as it stores them, and how its columns were resolved."""

    resolved: Resolved
    path: str
    batch: pa.RecordBatch
    layer: int = 0  # Above 0: the rows have values only where the column `GIVEN` is true.

    def wants(self, name: str) -> bool:
        """Return whether a column is read from the file, which may not store it."""
        return any(one.column.name == name for one in self.resolved.columns)

    def column(self, name: str) -> pa.Array | None:
        """Return a column by the table's name; None if the file does not store it."""
        stored = self.resolved.names.get(name)
        return None if stored is None else self.batch.column(stored)


def assemble(
    form: ReadForm,
    needed: Sequence[StructField],
    target: pa.Schema,
    files: Sequence[RawRows],
    parts: Sequence[tuple[Fragment, Rows]],
    known: PartitionValues,
) -> pa.RecordBatch:
    """Return rows in the table's columns: converted, constant or null.

    Parameters
    ----------
    target
        The Arrow schema of the needed columns.
    files
        The stored columns of all rows, each from the first file that has it. All files have the
        same rows. At the end are the files that give values to some rows, in their order.
    parts
        The fragments that the rows are from, in the order of the rows, and their positions there.
    known
        As for `constants`.

    Raises
    ------
    DataFileError, LogCorruptError
        As for `conform`, `metadata_column` and `constants`.
    """
    if not needed:
        return files[0].batch.select([])  # Keep the number of rows, which is lost without arrays.
    count = sum([len(rows) for _, rows in parts])
    values = [constants(form, fragment, needed, known) for fragment, _ in parts]
    arrays = []
    whole = [file for file in files if not file.layer]
    upper = [file for file in files if file.layer]
    for column in needed:
        stored, path = None, ""
        for file in whole:
            stored, path = file.column(column.name), file.path
            if stored is not None:
                break
        layers = [file for file in upper if file.wants(column.name)]
        how = how_of(form, column)
        if how == "stored":
            mode = form.mapping_mode
            array = _conformed(stored, column, mode, path, count)
            for file in layers:
                given = _conformed(file.column(column.name), column, mode, file.path, count)
                array = _chosen(array, given, file)
            arrays.append(array)
            continue
        pieces, begin = [], 0
        for (fragment, rows), of_part in zip(parts, values, strict=True):
            if how == "partition":
                pieces.append(pa.repeat(of_part[column.name], len(rows)))
            else:
                own = None if stored is None else stored.slice(begin, len(rows))
                pieces.append(_metadata(form, column, fragment, rows, own, layers))
            begin += len(rows)
        arrays.append(pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces))
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def _conformed(
    stored: pa.Array | None, column: StructField, mode: str, path: str, count: int
) -> pa.Array:
    if stored is None:
        return pa.nulls(count, arrow_type(column.type))
    return conform(stored, column.type, mode, path=path, column=column.name)


def _metadata(
    form: ReadForm,
    column: StructField,
    fragment: Fragment,
    rows: Rows,
    stored: pa.Array | None,
    layers: Sequence[RawRows],
) -> pa.Array:
    """Return a metadata column of rows of one fragment."""
    tracking = form.row_tracking
    name = stored_metadata(column.name, tracking)
    giving = fragment.files[:1] if name is None else fragment.files_giving(name)
    array = metadata_column(
        column.name,
        fragment,
        tracking,
        rows=rows,
        stored=stored,
        version=fragment.row_version(giving[0]),
    )
    for file, raw in zip(giving[1:], layers, strict=True):
        given = metadata_column(
            column.name,
            fragment,
            tracking,
            rows=rows,
            stored=raw.column(column.name),
            version=fragment.row_version(file),
        )
        array = _chosen(array, given, raw)
    return array


def _chosen(array: pa.Array, given: pa.Array, file: RawRows) -> pa.Array:
    """Return values with those that a file gives to some rows."""
    places = numpy_array(pc.fill_null(file.batch.column(GIVEN), False))
    if not places.any():
        return array
    if places.all():
        return given
    order = np.arange(len(array), dtype=np.int64)
    order[places] += len(array)
    return pa.concat_arrays([array, given]).take(arrow_array(order))
