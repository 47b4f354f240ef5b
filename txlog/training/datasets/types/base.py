"""The interface of types of data sets: read sources, count, and build training sets.

A type has two schemas: that of the table (ingestion), and that of training sets. Rules:
spec/datasets.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from txlog.base.arrow import table_of_rows
from txlog.base.errors import InvalidInputError
from txlog.training.datasets.limits import Limits
from txlog.training.datasets.sources import Source

Result = TypeVar("Result")
Convert = Callable[[pa.RecordBatch], pa.RecordBatch]


class Statistics(Protocol):
    """Counts over the rows of one commit. Rows are added batch by batch, while they are written."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, in the ingestion schema."""
        ...

    def result(self) -> dict[str, int]:
        """Return the counts by their names, such as `numExamples`."""
        ...


class ObjectFiles(Protocol):
    """The storage of contents too large for a row: files named by the SHA-256 of their bytes."""

    def put(self, content: bytes) -> str:
        """Return the path of a file with a content, relative to the folder's root.

        It is written if it does not exist.
        """
        ...

    def put_chunks(self, chunks: Iterator[bytes], digest: Callable[[], str]) -> str:
        """Do the same for a content in chunks; its digest is requested after the last chunk."""
        ...


class Rows(Protocol):
    """The rows of the commits of a training set, in order."""

    @property
    def schema(self) -> pa.Schema:
        """The ingestion columns."""
        ...

    def map(
        self,
        function: Callable[[Iterator[pa.RecordBatch]], Result],
        columns: Sequence[str] | None = None,
        *,
        of_all: bool = False,
    ) -> Iterator[Result]:
        """Yield the results of a function for each run of consecutive rows, in their order.

        The function may run in other processes on the table's engine, so it and its results must
        pickle.

        Parameters
        ----------
        of_all
            Whether the function also gets the rows of the picked commits that the training set
            leaves out, such as those of other parts of a split. Labels need them, so that all parts
            number them alike.
        """
        ...

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows in this process."""
        ...

    def open_object(self, uri: str) -> Any:
        """Return the content at a row's `uri`, as a file for a `with`."""
        ...


class Parts(Protocol):
    """The output for the parts of a training set."""

    @property
    def form(self) -> str:
        """`parquet` or `csv`."""
        ...

    def write(
        self, name: str, rows: Rows, convert: Convert, columns: Sequence[str] | None = None
    ) -> int:
        """Write the converted batches of rows as one part, and return its number of rows.

        In the form `parquet` the output is a Delta table `name`, whose data files are the parts. In
        the form `csv` it is one file `name.csv` without a header. `convert` runs on the table's
        engine, so it must pickle.
        """
        ...

    def write_table(self, name: str, table: pa.Table) -> None:
        """Write a small table as one part: `name.parquet`, or `name.csv`."""
        ...

    def open_file(self, name: str, rows: int | None = None) -> AbstractContextManager[Any]:
        """Return a part that is a file of any kind, to write in a `with`."""
        ...

    def refer(self, name: str, uri: str, size: int, sha256: str) -> None:
        """Use an existing file as a part; its path is relative to the folder's root."""
        ...


class DatasetType(Protocol):
    """A type of data sets.

    `version` is the version of the recipe by which training sets are made. Another recipe needs
    another version, because the same version hash must always give the same bytes. If the source is
    a folder with a table in it, a type with a true attribute `as_files` gets its files; other types
    get the table's rows. A type with a true attribute `as_rows` gets files of a known format, such
    as tars of WebDataset, as Arrow data; other types get the files. A type that stores contents
    with `files` keeps their paths in the column `uri` of its `ingestion`. Contents that no such
    column names are deleted after a day.
    """

    @property
    def name(self) -> str:
        """The name in capitals, such as `TEXT_INTENT`."""
        ...

    @property
    def version(self) -> int:
        """The version of the recipe, from 1."""
        ...

    @property
    def aliases(self) -> tuple[str, ...]:
        """Further names of the type."""
        ...

    @property
    def ingestion(self) -> pa.Schema | None:
        """The columns of the table; None means the columns of the first commit."""
        ...

    @property
    def training(self) -> Mapping[str, pa.Schema | None]:
        """The schema of each part of a training set; None means the ingestion columns, or bytes."""
        ...

    def read(self, source: Source, limits: Limits, files: ObjectFiles) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a source in the ingestion schema.

        Raises
        ------
        SchemaMismatchError
            Something does not fit; the error names file, row and column.
        InvalidInputError
            The source exceeds a limit, or the type cannot read it.
        """
        ...

    def statistics(self) -> Statistics:
        """Return the counts of a commit without rows, to which rows are added."""
        ...

    def build(self, rows: Rows, out: Parts, options: Mapping[str, str]) -> dict[str, int]:
        """Make the parts of a training set from the picked rows, and return its statistics."""
        ...


def type_key(kind: DatasetType) -> str:
    """Return the name and version of a type in the form of commits and hashes: `text-intent/1`."""
    return f"{kind.name.lower().replace('_', '-')}/{kind.version}"


_BATCH_ROWS, _BATCH_BYTES = 1024, 32 << 20


def content_batches(
    rows: Iterable[Mapping[str, Any]], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield rows that may have a large `content` as batches of a bounded number of bytes."""
    batch: list[Mapping[str, Any]] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += len(row["content"] or b"")
        if len(batch) == _BATCH_ROWS or size >= _BATCH_BYTES:
            yield from table_of_rows(batch, schema).combine_chunks().to_batches()
            batch, size = [], 0
    if batch:
        yield from table_of_rows(batch, schema).combine_chunks().to_batches()


def require_options(options: Mapping[str, str], known: Mapping[str, Sequence[str]]) -> None:
    """Refuse options of a training set that its type does not know.

    Parameters
    ----------
    known
        The valid values of each option.
    """
    for name, value in options.items():
        if value not in known.get(name, ()):
            values = " or ".join(known.get(name, ()))
            raise InvalidInputError(
                argument="options",
                field=name,
                reason=f"{value!r} is not {values}"
                if values
                else f"the type has no option {name!r}, it has {', '.join(known) or 'none'}",
            )
