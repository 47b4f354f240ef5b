"""The picked rows of a training set, and the files that the table's engine makes from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from hashlib import sha256
from inspect import signature
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from txlog import Expression, Fragment, FragmentMetadata, Table, col, lit
from txlog.base.arrow import arrow_array, numpy_array, pq
from txlog.base.effects import Effects
from txlog.base.errors import InvalidInputError
from txlog.base.threads import Engine, prefetch
from txlog.base.thresholds import Threshold
from txlog.extend import (
    Context,
    Piece,
    ReadPlan,
    Store,
    context_of,
    decode_path,
    plan_fragments,
    read_fragment,
    required_expression,
    shares,
    write_files,
)
from txlog.training.datasets.aside import open_object
from txlog.training.datasets.commits import COMMIT_ID, pieces
from txlog.training.datasets.limits import DEFAULT_LIMITS, fault_of_path
from txlog.training.datasets.types.base import Convert, Rows
from txlog.training.datasets.types.csv_rows import csv_bytes
from txlog.training.datasets.values import Part

Result = TypeVar("Result")

# The approximate bytes of data files that are read at a time. They become one file.
RUN_BYTES: Threshold = 32 << 20
_AT_ONCE: Threshold = 32  # The number of runs whose results are held at a time.
_ROW_ID = "_rowid"
_CHUNK_BYTES: Threshold = 8 << 20


@cache
def part_properties() -> Mapping[str, str]:
    """Return the properties of tables of parts.

    A loader that shuffles reads single rows, so the pages are small, if pyarrow supports this.
    """
    can_choose = "max_rows_per_page" in signature(pq.ParquetWriter).parameters
    return {"txlog.pageRows": "1024"} if can_choose else {}


@dataclass(frozen=True)
class Run:
    """Consecutive rows of one commit. It pickles."""

    pieces: tuple[Piece, ...]
    must_sort: bool = False  # Another engine has changed the order of the rows.


@dataclass(frozen=True)
class _Reading:
    """The plan for reading runs, with the wanted columns. It pickles."""

    store: Store
    plan: ReadPlan
    plan_with_ids: ReadPlan

    def batches(self, run: Run) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a run in their order."""
        plan = self.plan_with_ids if run.must_sort else self.plan
        read = (
            batch
            for fragment, rows in run.pieces
            for batch in read_fragment(self.store, plan, fragment, rows=rows)
        )
        if not run.must_sort:
            yield from read
            return
        found = pa.Table.from_batches(list(read), schema=plan.schema)
        ids = numpy_array(found[_ROW_ID].combine_chunks())
        order = arrow_array(np.argsort(ids, kind="stable"))
        yield from found.select(self.plan.schema.names).take(order).combine_chunks().to_batches()


class PickedRows:
    """The rows of some commits, in the order of the commits and of their rows.

    Parameters
    ----------
    where
        Only rows for which this predicate is true (DST-46). Default: all.
    """

    def __init__(
        self, table: Table, commit_ids: Sequence[int], home: Store, where: str | None = None
    ) -> None:
        columns = [one for one in table.schema if one.name != COMMIT_ID]
        self.schema = pa.schema(columns, table.schema.metadata)
        self._table = table
        self._home = home
        self._where = None if where is None else required_expression(where, argument="where")
        self._engine: Engine = context_of(table).engine
        self.runs = _runs(table, commit_ids)

    def map(
        self,
        function: Callable[[Iterator[pa.RecordBatch]], Result],
        columns: Sequence[str] | None = None,
        *,
        of_all: bool = False,
    ) -> Iterator[Result]:
        """Yield the result of a function for each run, in order, from the table's engine.

        Parameters
        ----------
        of_all
            Whether the function also gets the rows that the predicate leaves out.
        """
        return self.map_numbered(partial(_of_batches, function), columns, of_all=of_all)

    def map_numbered(
        self,
        function: Callable[[tuple[int, Iterator[pa.RecordBatch]]], Result],
        columns: Sequence[str] | None = None,
        *,
        of_all: bool = False,
    ) -> Iterator[Result]:
        """Do the same with a function that also gets the number of the run."""
        work = partial(_of_run, function, self._reading(columns, None if of_all else self._where))
        for start in range(0, len(self.runs), _AT_ONCE):
            runs = self.runs[start : start + _AT_ONCE]
            yield from self._engine.map(work, list(enumerate(runs, start)))

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows in this process."""
        reading = self._reading(columns, self._where)
        return prefetch(batch for run in self.runs for batch in reading.batches(run))

    def open_object(self, uri: str) -> Any:
        """Return the content at a row's `uri`, as a file for a `with`."""
        return open_object(self._home, uri)

    def _reading(self, columns: Sequence[str] | None, where: Expression | None) -> _Reading:
        names = self.schema.names if columns is None else list(columns)
        snapshot = self._table.snapshot
        return _Reading(
            context_of(self._table).store,
            plan_fragments(snapshot, (), columns=names, where=where).reading,
            plan_fragments(snapshot, (), columns=[*names, _ROW_ID], where=where).reading,
        )


def _of_batches(
    function: Callable[[Iterator[pa.RecordBatch]], Result],
    item: tuple[int, Iterator[pa.RecordBatch]],
) -> Result:
    return function(item[1])


def _of_run(
    function: Callable[[tuple[int, Iterator[pa.RecordBatch]]], Result],
    reading: _Reading,
    item: tuple[int, Run],
) -> Result:
    number, run = item
    return function((number, reading.batches(run)))


def _runs(table: Table, commit_ids: Sequence[int]) -> list[Run]:
    """Cut the rows of commits into runs of about `RUN_BYTES`; small commits share one."""
    runs: list[Run] = []
    together: list[Fragment] = []

    def finish() -> None:
        runs.extend(map(Run, shares(together, RUN_BYTES)))
        together.clear()

    for commit_id in commit_ids:
        ordered = pieces(table, commit_id)
        if ordered is None:
            finish()
            fragments = table.scan(where=col(COMMIT_ID) == lit(commit_id)).fragments()
            runs.append(Run(tuple((fragment, None) for fragment in fragments), must_sort=True))
            continue
        together += ordered
    finish()
    return runs


# Files -----------------------------------------------------------------------------------------


class SetFiles:
    """The parts of one attempt to make a training set.

    Parameters
    ----------
    store
        The store of the attempt's folder, to which only this attempt writes.
    uri
        The folder, relative to the folder's root.
    check
        Called from time to time; it raises if the attempt must stop.
    """

    def __init__(
        self, store: Store, uri: str, form: str, check: Callable[[], None] = lambda: None
    ) -> None:
        self.form = form
        self.parts: list[Part] = []
        self._store = store
        self._uri = uri
        self._check = check

    def write(
        self, name: str, rows: Rows, convert: Convert, columns: Sequence[str] | None = None
    ) -> int:
        """Write the converted batches of rows as one part, and return its number of rows."""
        assert isinstance(rows, PickedRows)
        if self.form == "csv":
            return self._write_csv(name, rows, convert, columns)
        folder = open_below(self._store, name)
        chosen = (
            rows.schema if columns is None else pa.schema([rows.schema.field(c) for c in columns])
        )
        schema = convert(_no_rows(chosen)).schema
        write = partial(_write_run, folder, schema, convert)
        written = []
        for files in rows.map_numbered(write, columns):
            self._check()
            written += files
        Table.create(
            folder.root,
            schema,
            properties=part_properties(),
            fragments=[fragment for fragment, _ in written],
            storage_options=folder.options,
        )
        count = 0
        for number, (fragment, digest) in enumerate(written):
            add = fragment.adds[0]
            part_rows = fragment.physical_rows or 0
            uri = f"{self._uri}/{name}/{decode_path(add.path)}"
            part = f"{name}/{number:05d}.parquet"
            self.parts.append(Part(part, uri, add.size, part_rows, digest))
            count += part_rows
        return count

    def _write_csv(
        self, name: str, rows: PickedRows, convert: Convert, columns: Sequence[str] | None
    ) -> int:
        count = 0
        with self._open(f"{name}.csv", lambda: count) as sink:
            for data, lines in rows.map(partial(_csv_of, convert), columns):
                self._check()
                sink.write(data)
                count += lines
        return count

    def write_table(self, name: str, table: pa.Table) -> None:
        """Write a small table as one part: `name.parquet`, or `name.csv`."""
        with self.open_file(f"{name}.{self.form}", table.num_rows) as sink:
            if self.form == "csv":
                for batch in table.to_batches():
                    sink.write(csv_bytes(batch))
            else:
                buffer = pa.BufferOutputStream()
                pq.write_table(table, buffer, compression="zstd")
                sink.write(buffer.getvalue())

    def open_file(self, name: str, rows: int | None = None) -> Any:
        """Return a part that is a file of any kind, to write in a `with`."""
        return self._open(name, lambda: rows)

    @contextmanager
    def _open(self, name: str, rows: Callable[[], int | None]) -> Iterator[_Digesting]:
        if wrong := fault_of_path(name, DEFAULT_LIMITS):
            raise InvalidInputError(argument="name", reason=f"the part {name[:100]!r} {wrong}")
        self._check()
        with self._store.open_output(name) as sink:
            digesting = _Digesting(sink)
            yield digesting
        self.parts.append(
            Part(name, f"{self._uri}/{name}", digesting.size, rows(), digesting.digest.hexdigest())
        )

    def refer(self, name: str, uri: str, size: int, sha256: str) -> None:
        """Use an existing file as a part; its path is relative to the folder's root."""
        self.parts.append(Part(name, uri, size, None, sha256))


class _Digesting:
    """A file that is written once, from its start to its end, and hashed meanwhile."""

    def __init__(self, sink: Any) -> None:
        self.digest = sha256()
        self.size = 0
        self._sink = sink

    def write(self, data: Any) -> int:
        """Write bytes, and return their number."""
        view = memoryview(data)
        self.digest.update(view)
        self.size += view.nbytes
        self._sink.write(view)
        return view.nbytes

    def flush(self) -> None:
        """Do nothing: the store's file is complete when it is closed."""


def open_below(store: Store, path: str) -> Store:
    """Return the store of a folder of a store."""
    from txlog.extend import open_store

    return open_store(f"{store.root}/{path}", store.options)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)


@dataclass(frozen=True)
class _Numbered(Effects):
    """Effects whose ids begin with the number of a run, so that file names keep the order."""

    number: int
    _count: list[int] = field(default_factory=list)

    def uuid(self) -> str:
        """Return an id that sorts after the ids of earlier runs and files."""
        self._count.append(1)
        return f"{self.number:06d}-{len(self._count):04d}-{super().uuid()}"


def _write_run(
    folder: Store,
    schema: pa.Schema,
    convert: Convert,
    item: tuple[int, Iterator[pa.RecordBatch]],
) -> list[tuple[FragmentMetadata, str]]:
    """Write a run as data files, and return each with its digest. The engine calls this."""
    number, batches = item
    made = pa.RecordBatchReader.from_batches(schema, map(convert, batches))
    context = Context(folder, _Numbered(number))
    written = write_files(context, made, properties=part_properties())
    return [(one, digest_of_file(folder, decode_path(one.adds[0].path))) for one in written]


def _csv_of(convert: Convert, batches: Iterator[pa.RecordBatch]) -> tuple[bytes, int]:
    made = [convert(batch) for batch in batches]
    return b"".join(map(csv_bytes, made)), sum(batch.num_rows for batch in made)


def digest_of_file(store: Store, path: str) -> str:
    """Return the SHA-256 of a file's bytes."""
    digest = sha256()
    with store.open_input(path) as opened:
        while data := opened.read(_CHUNK_BYTES):
            digest.update(data)
    return digest.hexdigest()
