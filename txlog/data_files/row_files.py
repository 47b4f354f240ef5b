"""Files with rows below a folder: which they are, their partitions, and one schema for all. Pure.

Each call that reads a folder decides with this module, so that all of them read the same rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from urllib.parse import unquote

import pyarrow as pa

from txlog.base.arrow import arrow_array
from txlog.base.errors import (
    InvalidInputError,
    NotFoundError,
    SchemaMismatchError,
    TxlogError,
    reason_of,
)
from txlog.base.texts import is_unicode, visible
from txlog.schema.arrow import arrow_type, schema_of
from txlog.schema.types import DataType, PrimitiveType, StructField, StructType, type_name
from txlog.stats.partition import NULL_FOLDER, parse_partition_values

_PARQUET = (".parquet", ".parq", ".pq")
_LOG = "_delta_log"
_LITTER = frozenset({".ds_store", "thumbs.db", "desktop.ini", "_success"})
_LITTER_STARTS = ("._", "~$", "_committed_", "_started_")
_LITTER_FOLDERS = frozenset({"__MACOSX", "@eaDir", ".ipynb_checkpoints", "_temporary"})
_WHOLE = re.compile(r"-?(0|[1-9]\d{0,17})")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_COARSE = ("s", "ms", "us")  # The units of timestamps that a column of microseconds can hold.


@dataclass(frozen=True)
class RowFile:
    """A file with rows, and its partition from the names of folders."""

    name: str  # The path below the folder, with `/` between its parts.
    partition: tuple[tuple[str, str | None], ...] = ()


def is_litter(name: str) -> bool:
    """Return whether a path names a file that a system or an engine left beside the data.

    Such files have no data of the user: `.DS_Store`, `._a.png`, `Thumbs.db`, `_SUCCESS`,
    `.part-0.parquet.crc`, `~$book.csv` and the like.
    """
    *folders, last = name.split("/")
    return (
        not _LITTER_FOLDERS.isdisjoint(folders)
        or last.lower() in _LITTER
        or last.startswith(_LITTER_STARTS)
        or (last.startswith(".") and last.endswith(".crc"))
    )


def row_files(
    names: Iterable[str],
    root: str,
    columns: Sequence[str] | None = None,
    *,
    parquet: bool = False,
    links: Iterable[str] = (),
) -> list[RowFile]:
    """Return the files with rows among those below a folder, with their partitions.

    Litter and files and folders whose names begin with `_` or `.` are left out, except partition
    folders.

    Parameters
    ----------
    names
        Paths below the folder, of files that are not empty.
    root
        The folder, for messages.
    columns
        The partition columns, in order, whose values are the folder names. Default: folders such as
        `day=1` name them.
    parquet
        Only files whose names end like those of Parquet files, in either case. Default: all files.
    links
        Paths of symbolic links below the folder; those of folders end with a slash.

    Raises
    ------
    InvalidInputError
        There is a link where a file or folder would be read, because its rows would be missing.
        The number of a file's folders differs from the number of columns, or its name is not
        UTF-8. Or there is a table below the folder, whose files are not its rows, or a log without
        a commit in it.
    NotFoundError
        There is none.
    """
    for name in links:
        *folders, file = name.split("/")
        is_other = parquet and file != "" and not file.lower().endswith(_PARQUET)
        if not (_is_hidden(folders, file) or is_litter(name) or is_other):
            raise InvalidInputError(
                argument="source",
                field=visible(name),
                reason=f"{visible(name)} below {root} is a symbolic link, which is not followed",
                remedy="Replace the link by its target, or move it away",
            )
    found: list[RowFile] = []
    log: list[str] = []
    for name in names:
        *folders, file = name.split("/")
        if folders == [_LOG] and file[:1] not in ("_", "."):
            log.append(file)
        if _LOG in folders[1:]:
            if _is_hidden(folders[: folders.index(_LOG)]):
                continue
            table = name.partition(f"/{_LOG}/")[0]
            raise InvalidInputError(
                argument="source",
                field=table,
                reason=f"{table} below {root} is a table: its files may have rows that the table "
                "no longer has",
                remedy="Name the table itself, or move it away",
            )
        if _is_hidden(folders, file) or is_litter(name):
            continue
        if parquet and not file.lower().endswith(_PARQUET):
            continue
        if not is_unicode(name):
            raise InvalidInputError(
                argument="source",
                reason=f"the name {visible(name)} below {root} is not UTF-8",
                remedy="Rename the file",
            )
        pairs = _pairs(folders) if columns is None else _in_order(columns, folders, name)
        found.append(RowFile(name, tuple(pairs)))
    if log and not any(name.endswith((".json", *_PARQUET)) for name in log):
        raise InvalidInputError(  # With a commit: another writer has just made the table.
            argument="source",
            field=f"{_LOG}/{visible(log[0])}",
            reason=f"{root} has a log without a commit, which alone could say what its rows are",
            remedy="Restore the log, or move it away if all files have rows that you want",
        )
    if not found:
        raise NotFoundError(
            path=root,
            reason="there is no Parquet file below the folder"
            if parquet
            else "there is no table, and no file with rows below the folder",
            remedy="Check the path. The names of files must end in .parquet"
            if parquet
            else "Check the path. Files whose names begin with _ or . are left out",
        )
    return found


def _is_hidden(folders: Sequence[str], *files: str) -> bool:
    plain = [step for step in folders if "=" not in step and step != NULL_FOLDER]
    return any(step[:1] in ("_", ".") for step in (*plain, *files)) or not (
        _LITTER_FOLDERS.isdisjoint(folders)
    )


def _pairs(folders: Sequence[str]) -> Iterable[tuple[str, str | None]]:
    for step in folders:
        column, equals, text = step.partition("=")
        if equals:
            value = unquote(text)
            yield unquote(column), None if value in (NULL_FOLDER, "") else value


def _in_order(
    columns: Sequence[str], folders: Sequence[str], file: str
) -> Iterable[tuple[str, str | None]]:
    if len(columns) != len(folders):
        raise InvalidInputError(
            argument="partition_by",
            field=file,
            reason=f"the file is in {len(folders)} folders, but there are {len(columns)} "
            "partition columns",
            remedy="Pass one column for each level of folders",
        )
    values = map(unquote, folders)
    return [(c, None if v == NULL_FOLDER else v) for c, v in zip(columns, values, strict=True)]


def partition_columns(
    files: Sequence[RowFile], given: StructType | None = None, *, known: StructType | None = None
) -> StructType:
    """Return the partition columns of files with their types; each value must have the type.

    Parameters
    ----------
    given
        All partition columns with their types, in any order and case: the result has its spelling.
    known
        Columns of the table for which the rows are. Types that are in neither follow from the
        values: integers, dates, else strings.

    Raises
    ------
    InvalidInputError
        Files have different partition columns, others than those given, or a value of another type.
    """
    names = [column for column, _ in files[0].partition]
    for file in files:
        own = [column for column, _ in file.partition]
        if own != names or len({name.lower() for name in own}) < len(own):
            raise InvalidInputError(
                argument="partition_by",
                field=file.name,
                reason=f"its folders have the partition columns {own}, but those of "
                f"{files[0].name} have {names}",
                remedy="Use a folder in which all files have the same partition columns",
            )
    spelt = {} if given is None else {name.lower(): name for name in given.names()}
    if given is not None and sorted(map(str.lower, given.names())) != sorted(map(str.lower, names)):
        raise InvalidInputError(
            argument="partition_by",
            reason=f"the folders have the columns {names}, not {given.names()}",
            remedy="Omit the argument to use the columns of the folder names",
        )
    types = {f.name.lower(): f.type for f in (() if known is None else known.fields)}
    types |= {f.name.lower(): f.type for f in (() if given is None else given.fields)}
    fields = []
    for place, name in enumerate(names):
        texts = list(dict.fromkeys(file.partition[place][1] for file in files))
        kind = types.get(name.lower()) or _kind_of(texts)
        _parsed(name, texts, kind)
        fields.append(StructField(spelt.get(name.lower(), name), kind))
    return StructType(tuple(fields))


def _kind_of(texts: Sequence[str | None]) -> DataType:
    """Return a type that fits all values of a partition column."""
    known = [text for text in texts if text is not None]
    if known and all(_WHOLE.fullmatch(text) for text in known):
        return PrimitiveType("long")
    if known and all(map(_is_date, known)):
        return PrimitiveType("date")
    return PrimitiveType("string")


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:  # Such as 30 February, or digits of another script.
        return False
    return True


def _parsed(name: str, texts: Sequence[str | None], kind: DataType) -> pa.Array:
    """Return the values of a partition column."""
    try:
        return parse_partition_values(arrow_array(texts, pa.string()), kind)
    except (TxlogError, pa.ArrowException, ValueError) as error:
        raise InvalidInputError(
            argument="partition_by",
            field=name,
            reason=f"the value of {name} in a folder name is not of type {type_name(kind)}: "
            f"{reason_of(error)}",
            remedy="Give the column another type",
        ) from error


# Rows ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UnitedRows:
    """The columns that the rows of several files have together."""

    files: tuple[RowFile, ...]
    schema: pa.Schema
    _partitions: StructType

    def fit(self, file: RowFile, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of a file with all columns, in the order of the schema.

        Columns that the file lacks are null; the values of partition columns are those of the
        file's folders.

        Raises
        ------
        SchemaMismatchError
            A value does not fit the type of the column, or the file has other columns than before.
        """
        if not file.partition and batch.schema.equals(self.schema):
            return batch
        own = {name.lower(): place for place, name in enumerate(batch.schema.names)}
        if not own.keys() <= {name.lower() for name in self.schema.names}:
            raise SchemaMismatchError(
                argument="source",
                path=file.name,
                reason=f"{file.name} was changed while it was read",
            )
        values = dict(file.partition)
        kinds = {column.name: column.type for column in self._partitions.fields}
        columns = []
        for field in self.schema:
            place = own.get(field.name.lower())
            if field.name in values:
                one = _parsed(field.name, [values[field.name]], kinds[field.name])
                columns.append(pa.repeat(one[0], batch.num_rows).cast(field.type))
            elif place is None:
                columns.append(pa.nulls(batch.num_rows, field.type))
            else:
                columns.append(_cast(batch.column(place), field, file))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def united_rows(
    files: Sequence[RowFile], schemas: Iterable[pa.Schema], table: pa.Schema | None = None
) -> UnitedRows:
    """Return the columns of several files: by name, in the order in which they are seen.

    A column that some files lack is null in their rows. Forms of one type in Arrow are one type:
    string and large string, dictionaries and their values, seconds and microseconds.

    Parameters
    ----------
    schemas
        The columns of each file.
    table
        The columns of the table for which the rows are; they decide the types of partition columns.

    Raises
    ------
    SchemaMismatchError
        A column has two types, the name of another one but for case, or that of a partition
        column. The error names the files.
    InvalidInputError
        Files have different partition columns, or a value of another type.
    """
    known = None if table is None else schema_of(table, None, nanos=True)
    partitions = partition_columns(files, known=known)
    own = {name.lower() for name in partitions.names()}
    columns: dict[str, tuple[pa.Field, str]] = {}
    count: dict[str, int] = {}
    metadata: Mapping[bytes, bytes] | None = None
    for file, schema in zip(files, schemas, strict=True):
        metadata = metadata or schema.metadata
        seen: dict[str, str] = {}
        for field in schema:
            folded = field.name.lower()
            if folded in seen or folded in own:
                other = seen.get(folded)
                raise _refused(
                    file,
                    field,
                    f"columns {other} and {field.name} of {file.name} have one name, or names that "
                    "differ only in case"
                    if other is not None
                    else f"column {field.name} of {file.name} is also a partition column of its "
                    "folders",
                )
            seen[folded] = field.name
            first, where = columns.setdefault(folded, (field, file.name))
            kind = _united(first.type, field.type)
            if kind is None:
                raise _refused(
                    file,
                    field,
                    f"column {field.name} is {field.type} in {file.name}, and {first.type} in "
                    f"{where}",
                )
            nullable = first.nullable or field.nullable
            columns[folded] = first.with_type(kind).with_nullable(nullable), where
            count[folded] = count.get(folded, 0) + 1
    fields = [
        field if count[name] == len(files) else field.with_nullable(True)
        for name, (field, _) in columns.items()
    ]
    fields += [pa.field(field.name, arrow_type(field.type)) for field in partitions.fields]
    return UnitedRows(tuple(files), pa.schema(fields, metadata), partitions)


def _refused(file: RowFile, field: pa.Field, reason: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        argument="source",
        path=file.name,
        field=field.name,
        reason=reason,
        remedy="Write one of the files again, or use them one by one",
    )


def _united(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type for the values of two types that are one type of tables, or None."""
    if one.equals(other) or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_dictionary(one) or pa.types.is_dictionary(other):
        return _united(_plain(one), _plain(other))
    if _is_text(one) and _is_text(other):
        return pa.large_string()
    if _is_bytes(one) and _is_bytes(other):
        return pa.large_binary()
    if _is_list(one) and _is_list(other):
        inner = _united(one.value_type, other.value_type)
        return None if inner is None else pa.large_list(inner)
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return _united_structs(one, other)
    if pa.types.is_map(one) and pa.types.is_map(other):
        key, value = (
            _united(one.key_type, other.key_type),
            _united(one.item_type, other.item_type),
        )
        return None if key is None or value is None else pa.map_(key, value)
    if pa.types.is_timestamp(one) and pa.types.is_timestamp(other):
        coarse = one.unit in _COARSE and other.unit in _COARSE
        return pa.timestamp("us", one.tz) if coarse and one.tz == other.tz else None
    return None


def _united_structs(one: pa.StructType, other: pa.StructType) -> pa.DataType | None:
    if [field.name for field in one] != [field.name for field in other]:
        return None
    fields = []
    for field, theirs in zip(one, other, strict=True):
        kind = _united(field.type, theirs.type)
        if kind is None:
            return None
        fields.append(field.with_type(kind).with_nullable(field.nullable or theirs.nullable))
    return pa.struct(fields)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _cast(column: pa.Array, field: pa.Field, file: RowFile) -> pa.Array:
    if column.type.equals(field.type):
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise SchemaMismatchError(
            argument="source",
            path=file.name,
            field=field.name,
            reason=f"column {field.name} of {file.name} does not fit {field.type}: {error}",
        ) from error
