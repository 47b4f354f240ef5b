"""Rows that a table refuses are kept in another table, its quarantine.

The rows are committed to the quarantine before the good rows are committed to the table, so that no
row is lost. Rules: spec/commit.md, CON-32 and CON-33.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from txlog.base.arrow import arrow_array
from txlog.base.errors import InvalidInputError, SchemaMismatchError
from txlog.base.texts import without_secrets
from txlog.base.thresholds import Threshold
from txlog.commit.app_versions import AnyAppVersion
from txlog.commit.context import Context
from txlog.commit.intent import Intent, Reads
from txlog.commit.operation import Companion, Operation, execute
from txlog.data_files.incoming import require_fit
from txlog.data_files.modes import ADDING, WriteModes
from txlog.data_files.row_json import row_texts, slices
from txlog.data_files.sieve import Faults, Rejects
from txlog.data_files.write import discard_files
from txlog.data_files.write_plan import AddedFiles, require_still_fits
from txlog.expressions.tree import col
from txlog.schema.arrow import from_arrow
from txlog.schema.blobs import names_packs
from txlog.snapshot.snapshot import Snapshot
from txlog.store.branches import chain_of
from txlog.verbs.append import Append
from txlog.verbs.create import existing, new_table
from txlog.verbs.delete import Delete
from txlog.verbs.overwrite import Overwrite

if TYPE_CHECKING:
    from txlog.actions.file import Add
    from txlog.snapshot.commits import Commit
    from txlog.store.base import Store

COLUMNS = pa.schema(
    [
        pa.field("quarantined_at", pa.timestamp("us", "UTC")),
        pa.field("table", pa.string()),
        pa.field("version", pa.int64()),
        pa.field("operation", pa.string()),
        pa.field("batch", pa.string()),
        pa.field("rule", pa.string()),
        pa.field("name", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("row", pa.string()),
    ]
)
"""The columns of a quarantine: docs/guides/quarantine.md says what they hold."""
ROWS = "numQuarantinedRows"
"""The metric of a write with a quarantine: the rows that went there."""

_MEMORY_BYTES: Threshold = 64 * 1024 * 1024  # So many bytes of rows are kept in memory.


def require_columns(quarantine: Snapshot) -> None:
    """Raise unless a table takes the rows of a quarantine.

    Raises
    ------
    SchemaMismatchError
        It lacks a column, or has one of another type: the table is none that was made for this.
    """
    try:
        require_fit(quarantine.schema, from_arrow(COLUMNS))
    except SchemaMismatchError as error:
        error.argument, error.table = "quarantine", quarantine.root
        error.remedy = "Name a table that a quarantine has made, or a location for a new one"
        raise


class Quarantine(Rejects):
    """The rows of one write that do not fit, and the table that keeps them.

    Parameters
    ----------
    there
        The quarantine's store.
    here
        The context of the table that is written.
    """

    def __init__(self, there: Context, here: Context) -> None:
        if there.store.root == here.store.root:
            raise InvalidInputError(
                argument="quarantine",
                reason="the table cannot be its own quarantine",
                remedy="Name another table, or a location for a new one",
            )
        self._there = there
        self._here = here
        self._rows = Spool()
        self._own_id = here.effects.uuid()
        self._is_kept = True  # Whether all rows are in the quarantine.
        self._was_kept = False  # Whether rows of this write are in the quarantine.
        self._table_id = ""

    @property
    def there(self) -> Context:
        """The place of the rows."""
        return self._there

    @property
    def num_rows(self) -> int:
        """The number of rows that do not fit."""
        return self._rows.num_rows

    @property
    def metrics(self) -> dict[str, int]:
        """The metric of the write."""
        return {ROWS: self.num_rows}

    def take(
        self, operation: str, base: Snapshot | None, batch: pa.RecordBatch, faults: Faults
    ) -> None:
        """Take the rows of a batch that do not fit a version of the table; None: a new table.

        Raises
        ------
        InvalidInputError
            The bytes of a value are in a pack: the text of the row would have its name alone.
        """
        wrong = batch.take(pa.array(faults.rows))
        for name, values in zip(wrong.schema.names, wrong.columns, strict=True):
            if names_packs(values):
                raise InvalidInputError(
                    argument="data",
                    field=name,
                    reason=f"a row does not fit ({faults.faults[0].reason}), and the bytes are in "
                    f"a pack that its value of {name} names: a quarantine would not have them",
                    remedy="Write the bytes of the values, as the blob objects read them, or "
                    "correct the row",
                )
        here, now_ms = self._here.store, self._here.effects.now_ms()
        version = None if base is None else base.version
        write = Write(without_secrets(here.root), version, operation)
        for rows in described(batch, faults, write, now_ms):
            self._rows.add(rows)
        self._is_kept = False

    def at(self, base: Snapshot | None) -> None:
        """Note the version of the table on which an attempt is made; None: it is a new table."""
        self._table_id = table_id(self._here.store, base)

    def companions(self, txn: AnyAppVersion | None) -> Sequence[Companion]:
        """Return the commit of the rows to the quarantine, if one is needed.

        Parameters
        ----------
        txn
            The application's version of the write. If an earlier run of it, which did not finish,
            has left rows in the quarantine, these are replaced, so each row is there once (CON-33).
        """
        place = place_of(self._here.store, self._table_id)
        recorded = _recorded_by(txn, place)
        batch = batch_id(txn, place) or self._own_id
        if self._is_kept and (recorded is None or self._was_kept):
            return ()
        latest = existing(self._there.store)
        was_kept = self._was_kept or _is_recorded(latest, recorded)
        replaced = [batch] if was_kept else []
        # An earlier run may have stopped before it made the table, which another writer made then.
        new = place_of(self._here.store, table_id(self._here.store, None))
        if new != place and (found := batch_id(txn, new)):
            replaced += [found] if _is_recorded(latest, _recorded_by(txn, new)) else []
        if not self.num_rows and not replaced:
            return ()
        if latest is not None:
            require_columns(latest)
        operation = KeepRows(self, batch, replaced)
        return (Companion(self._there, latest, operation, None if was_kept else recorded),)

    def withdraw(self, txn: AnyAppVersion | None) -> None:
        """Delete the rows of this write from the quarantine, if they are there."""
        if self._was_kept:
            batch = batch_id(txn, place_of(self._here.store, self._table_id)) or self._own_id
            execute(Delete(col("batch") == batch), self._there, existing(self._there.store))

    def reader(self, batch: str) -> pa.RecordBatchReader:
        """Return the rows for the quarantine, with the id of their batch."""
        return self._rows.reader(batch)

    def putting(self, batch: str, replaced: Sequence[str]) -> Operation:
        """Return the operation that puts the rows into the quarantine.

        `replaced` has the ids of batches in whose place they are put; there may be none.
        """
        if not replaced:
            return Append(self.reader(batch))
        where = col("batch").isin({batch, *replaced})
        if not self.num_rows:
            return Delete(where)
        return Overwrite.of_data(self.reader(batch).read_all(), where=where)

    def kept(self) -> None:
        """Record that the quarantine has all rows."""
        self._is_kept = self._was_kept = True


class WrittenQuarantine(Quarantine):
    """Rows that do not fit and that tasks have written as files of the quarantine.

    Parameters
    ----------
    table_id
        Of the table that is written, as in `place_of`.
    own_id
        The id of the rows' batch, if the write has no application's version.
    base
        The version of the quarantine for which the files were written.
    txn
        The application's version from which tasks have made the id of the rows' batch.
    """

    def __init__(
        self,
        there: Context,
        here: Context,
        *,
        table_id: str,
        own_id: str,
        base: Snapshot,
        adds: list[Add],
        txn: AnyAppVersion | None,
    ) -> None:
        super().__init__(there, here)
        self._txn = txn
        self._table_id, self._own_id = table_id, own_id
        self._base = base
        self._adds = adds
        self._is_kept = not adds

    @property
    def num_rows(self) -> int:
        """The number of rows that do not fit."""
        return sum(add.num_records or 0 for add in self._adds)

    def at(self, base: Snapshot | None) -> None:
        """Do nothing: the rows are known."""

    def companions(self, txn: AnyAppVersion | None) -> Sequence[Companion]:
        """Return the commit of the files, if one is needed, with the id that tasks know."""
        return super().companions(self._txn)

    def withdraw(self, txn: AnyAppVersion | None) -> None:
        """Delete the rows from the quarantine, with the id that tasks know."""
        super().withdraw(self._txn)

    def putting(self, batch: str, replaced: Sequence[str]) -> Operation:
        """Return the operation that adds the files; `replaced` as for `Quarantine`."""
        where = col("batch").isin({batch, *replaced})
        if replaced and not self._adds:
            return Delete(where)
        files = AddedFiles.written(
            self._adds,
            self._base.schema,
            partial(require_still_fits, written_for=self._base),
            modes=WriteModes(mode="overwrite", where=where) if replaced else ADDING,
        )
        return Overwrite(files) if replaced else Append.of_files(files)

    def discard(self) -> None:
        """Delete the files, which no commit needs."""
        if not self._was_kept:
            discard_files(self._there.store, self._adds)


def table_id(store: Store, base: Snapshot | None) -> str:
    """Return what names a table in the quarantine; `base` is None for a new table.

    A new table has no id that another run would find, so its location names it.
    """
    return without_secrets(store.root) if base is None else base.metadata.id


def place_of(store: Store, table_id: str) -> tuple[str, ...]:
    """Return the ids of a table, and of the branch that a store shows, if it shows one.

    A branch has the id of its table. An application may write the same version to both.
    """
    branch = chain_of(store)
    return (table_id,) if branch is None else (table_id, branch.id)


def batch_id(txn: AnyAppVersion | None, place: Sequence[str]) -> str | None:
    """Return the id of the rows of an application's version; None: there is none.

    It is a list in JSON, because the id of an application may contain any character. `place` is
    that of `place_of`.
    """
    return None if txn is None else json.dumps([txn[0], txn[1], *place])


def _recorded_by(txn: AnyAppVersion | None, place: Sequence[str]) -> AnyAppVersion | None:
    """Return the application's version that the quarantine records for one of a table's."""
    return None if txn is None else (json.dumps(["quarantine", txn[0], *place]), txn[1])


def _is_recorded(quarantine: Snapshot | None, recorded: AnyAppVersion | None) -> bool:
    if quarantine is None or recorded is None:
        return False
    known = quarantine.transaction_version(recorded[0])
    return known is not None and known >= recorded[1]


class KeepRows(Operation):
    """Put the rows of a write into its quarantine, in place of those of an earlier run."""

    name = "WRITE"
    keeps_files = True

    def __init__(self, quarantine: Quarantine, batch: str, replaced: Sequence[str]) -> None:
        self._quarantine = quarantine
        self._inner = quarantine.putting(batch, replaced)
        self.removes_rows = bool(replaced)
        self._batch = batch
        self._new: list[Add] = []

    def creation(self) -> Intent:
        """Return the intent of a new quarantine with the rows."""
        new = new_table(from_arrow(COLUMNS), effects=self.context.effects)
        self._new = new.plan().write(self.context, self._quarantine.reader(self._batch))
        return new.intent(self._new)

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the intent of the append, or of the replacement."""
        self._discard_new()
        self._inner.context = self.context
        return self._inner.intent(base)

    def read(self) -> Reads:
        """Return what the inner operation read."""
        return self._inner.read()

    def rebase(self, current: Snapshot, intent: Intent, winners: Sequence[Commit]) -> Intent | None:
        """Return what the inner operation makes of winners."""
        return self._inner.rebase(current, intent, winners)

    def discard(self) -> None:
        """Delete the files that were written."""
        self._discard_new()
        self._inner.context = self.context
        self._inner.discard()

    def landed(self, intent: Intent) -> None:
        """Record that the rows are kept."""
        self._inner.landed(intent)
        self._quarantine.kept()

    def _discard_new(self) -> None:
        new, self._new = self._new, []
        discard_files(self.context.store, new)


@dataclass(frozen=True)
class Write:
    """The write whose rows do not fit: the table's location, its version, and the operation."""

    table: str
    version: int | None
    operation: str


def described(
    batch: pa.RecordBatch, faults: Faults, write: Write, now_ms: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch that do not fit, as rows of a quarantine without a batch id.

    Raises
    ------
    InvalidInputError
        A row is too long for a text.
    """
    given: dict[str, Any] = {
        "quarantined_at": datetime.fromtimestamp(now_ms / 1000, UTC),
        "table": write.table,
        "version": write.version,
        "operation": write.operation,
    }
    bad = batch.take(arrow_array(faults.rows))
    texts: dict[str, list[str | None]] = {
        "rule": [one.rule for one in faults.faults],
        "name": [one.name for one in faults.faults],
        "reason": [one.reason for one in faults.faults],
    }
    start = 0
    for rows in slices(bad):
        of_row = arrow_array(faults.of_row[start : start + rows.num_rows])
        start += rows.num_rows
        arrays = []
        for field in COLUMNS:
            if field.name == "row":
                arrays.append(row_texts(rows))
            elif field.name in texts:
                arrays.append(arrow_array(texts[field.name], pa.string()).take(of_row))
            else:
                value = pa.scalar(given.get(field.name), field.type)
                arrays.append(pa.repeat(value, rows.num_rows))
        yield pa.RecordBatch.from_arrays(arrays, schema=COLUMNS)


class Spool:
    """Rows in memory, or in a temporary file if they are many. They can be read again."""

    def __init__(self) -> None:
        self.num_rows = 0
        self._kept: list[pa.RecordBatch] = []
        self._size = 0
        self._files: list[pa.ipc.RecordBatchFileReader] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows in `COLUMNS`."""
        self.num_rows += batch.num_rows
        self._kept.append(batch)
        self._size += batch.nbytes
        if self._size > _MEMORY_BYTES:
            self._spill()

    def _spill(self) -> None:
        # The file has no name when this returns, so it is deleted with the reader.
        with tempfile.TemporaryDirectory(prefix="txlog-quarantine-") as folder:
            path = str(Path(folder) / "rows.arrow")
            with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, COLUMNS) as writer:
                for batch in self._kept:
                    writer.write_batch(batch)
            self._files.append(pa.ipc.open_file(pa.memory_map(path)))
        self._kept, self._size = [], 0

    def reader(self, batch: str) -> pa.RecordBatchReader:
        """Return the rows, with the id of their batch."""
        place = COLUMNS.get_field_index("batch")

        def rows() -> Iterator[pa.RecordBatch]:
            for one in self._batches():
                ids = pa.repeat(pa.scalar(batch), one.num_rows)
                yield one.set_column(place, COLUMNS.field(place), ids)

        return pa.RecordBatchReader.from_batches(COLUMNS, rows())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for file in self._files:
            for place in range(file.num_record_batches):
                yield file.get_batch(place)
        yield from self._kept
