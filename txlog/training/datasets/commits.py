"""Commits of a data set: versions of its table, and the domains that describe them.

A commit is one Delta version: it adds the rows of the partition `commit_id=k` and sets the domain
`txlog.dataset.commit.k`. If two writers take the same number, they set the same domain. CON-16
refuses one of them, and this writer takes the next number. Rules: spec/datasets.md, DST-1 to DST-6.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from txlog import Fragment, Scan, Table, WriteOptions, col, lit
from txlog.base.arrow import arrow_array, arrow_scalar, numpy_array
from txlog.base.errors import (
    CommitConflictError,
    InvalidInputError,
    LogCorruptError,
    OutcomeUnknownError,
    RetriesExhaustedError,
    TxlogError,
)
from txlog.commit.loop import DEADLINE_S
from txlog.commit.operation import Done, execute
from txlog.data_files.incoming import incoming
from txlog.data_files.write import discard_files, write_data_files
from txlog.data_files.write_plan import AddedFiles, plan_append, require_still_fits, settled
from txlog.extend import (
    Context,
    DomainMetadata,
    Intent,
    Operation,
    SchemaMode,
    Snapshot,
    StructType,
    context_of,
    decode_path,
    encode_path,
    plan_fragments,
    wait_after,
)
from txlog.snapshot.load import refresh
from txlog.stats.partition import partition_folder
from txlog.training.datasets.digest import Digest
from txlog.training.datasets.events import canonical
from txlog.training.datasets.types.base import Statistics
from txlog.training.datasets.values import FORMAT, Code, Commit, Input
from txlog.verbs.append import evolved, require_additive, write_metrics

COMMIT_ID = "commit_id"
"""The partition column of the table of a data set."""

_DOMAIN = "txlog.dataset.commit."
FORMAT_PROPERTY = "txlog.dataset.format"
TYPE_PROPERTY = "txlog.dataset.type"
PROPERTIES = {
    FORMAT_PROPERTY: FORMAT,
    "delta.feature.domainMetadata": "supported",
    "delta.appendOnly": "true",  # No engine may change the rows of a commit.
    "delta.enableRowTracking": "true",  # Row ids keep the order of rows if an engine compacts.
}


def commits_of(snapshot: Snapshot, dataset: str) -> list[Commit]:
    """Return the commits of a data set's table, in order.

    Raises
    ------
    LogCorruptError
        A domain does not describe a commit.
    """
    found = []
    for name, domain in snapshot.controls.domains.items():
        if name.startswith(_DOMAIN) and not domain.removed:
            found.append(_decoded(dataset, name, domain.configuration, snapshot.root))
    return sorted(found, key=lambda commit: commit.commit_id)


def commit_with_txn(snapshot: Snapshot, dataset: str, txn: tuple[str, int]) -> Commit | None:
    """Return the commit that recorded an application's version, or None."""
    for name, domain in snapshot.controls.domains.items():
        if name.startswith(_DOMAIN) and orjson.loads(domain.configuration).get("txn") == [*txn]:
            return _decoded(dataset, name, domain.configuration, snapshot.root)
    return None


@lru_cache(maxsize=1 << 14)
def _decoded(dataset: str, domain: str, text: str, root: str) -> Commit:
    try:
        facts = orjson.loads(text)
        if domain != f"{_DOMAIN}{facts['commit']}":
            raise ValueError(f"it is of the commit {facts['commit']}")
        code = facts.get("code")
        return Commit(
            dataset=dataset,
            commit_id=facts["commit"],
            created_ms=facts["created_ms"],
            type=facts["type"],
            rows=facts["rows"],
            digest=facts["digest"],
            message=facts["message"],
            tags=facts["tags"],
            statistics=facts["statistics"],
            inputs=tuple(Input(**one) for one in facts["inputs"]),
            code=None if code is None else Code(**code),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise LogCorruptError(
            path=root,
            field=domain,
            reason=f"the domain does not say what the commit is: {error!r}",
            remedy="Only txlog.training may write the table of a data set",
        ) from error


def _configuration(commit: Commit, txn: tuple[str, int] | None) -> str:
    facts: dict[str, Any] = {
        "code": None
        if commit.code is None
        else {"name": commit.code.name, "version": commit.code.version},
        "commit": commit.commit_id,
        "created_ms": commit.created_ms,
        "digest": commit.digest,
        "inputs": [
            {"digest": one.digest, "role": one.role, "uri": one.uri, "version": one.version}
            for one in commit.inputs
        ],
        "message": commit.message,
        "rows": commit.rows,
        "statistics": dict(commit.statistics),
        "tags": dict(commit.tags),
        "type": commit.type,
    }
    if txn is not None:
        facts["txn"] = list(txn)
    return canonical(facts)


@dataclass(frozen=True)
class Note:
    """The description of a commit, without its rows."""

    dataset: str
    type: str
    message: str
    tags: Mapping[str, str]
    inputs: Callable[[], Sequence[Input]]  # It is called after all rows are read.
    code: Code | None = None
    txn: tuple[str, int] | None = None


class AddCommit(Operation):
    """Add the rows of a commit, and set its domain, in one version."""

    name = "WRITE"
    keeps_files = True

    def __init__(
        self,
        rows: pa.RecordBatchReader,
        note: Note,
        statistics: Statistics,
        schema_mode: SchemaMode = None,
        *,
        require: Callable[[Snapshot], None] = lambda _: None,
    ) -> None:
        """Take the rows.

        Parameters
        ----------
        require
            Raises if the commit cannot be made on a version: a `TxlogError`. Called when the rows
            are written.
        """
        require_additive(schema_mode)
        self._require = require
        self._reader = rows
        self._note = note
        self._statistics = statistics
        self._schema_mode = schema_mode
        self._files: AddedFiles | None = None
        self._number = 0
        self.commit: Commit | None = None  # The last committed or attempted commit.

    def intent(self, base: Snapshot) -> Intent:
        """Return the files of the next commit. The first call writes them."""
        try:
            return self._intent(base)
        except TxlogError:
            raise  # `add_commit` calls `give_up`.
        except BaseException:  # Nothing is committed yet, so the files can be deleted.
            self.give_up()
            raise

    def _intent(self, base: Snapshot) -> Intent:
        last = max((c.commit_id for c in commits_of(base, self._note.dataset)), default=0)
        if self._files is None:
            self._number = last + 1
            self._write(base)
        elif self._number != last + 1:
            self._renumber(last + 1)
        assert self._files is not None
        assert self.commit is not None
        self._require(base)
        schema = self._files.fit(self.context, base)
        self.commit = replace(self.commit, commit_id=self._number)
        domain = DomainMetadata(
            domain=f"{_DOMAIN}{self._number}",
            configuration=_configuration(self.commit, self._note.txn),
        )
        return Intent(
            operation=self.name,
            kind="append",
            read_version=base.version,
            adds=tuple(self._files.adds),
            own_files=self._files.own_files,
            metadata=evolved(base, schema),
            domains=(domain,),
            parameters={"mode": "Append", "partitionBy": base.partition_columns},
            metrics=write_metrics(self._files.adds),
        )

    def discard(self) -> None:
        """Keep the files for an attempt with another number. `give_up` deletes them."""

    def give_up(self) -> None:
        """Delete the files: no commit refers to them."""
        if self._files is not None:
            self._files.discard(self.context.store)

    def _write(self, base: Snapshot) -> None:
        """Write, hash and count the rows in one pass."""
        numbered = _with_number(self._reader, self._number)
        rows = incoming(numbered, base.schema, self._schema_mode)
        schema = settled(base, rows.schema)
        plan = plan_append(base, schema, WriteOptions())
        fields = StructType(tuple(f for f in schema.fields if f.name != COMMIT_ID))
        digest = Digest(fields.fields)
        names = fields.names()

        def passing() -> Iterator[pa.RecordBatch]:
            for batch in plan.checked(rows.reader):
                digest.add(batch)
                self._statistics.add(batch.select(names))
                yield batch

        store, effects = self.context.store, self.context.effects
        adds = write_data_files(store, passing(), plan.layout, effects=effects)
        self._files = AddedFiles.written(
            adds,
            schema,
            partial(require_still_fits, written_for=base),
            schema_mode=self._schema_mode,
        )
        if not digest.rows:
            raise InvalidInputError(
                argument="source",
                reason="it has no rows, but a commit needs at least one row",
                remedy="Check whether it is the right source",
            )
        note = self._note
        self.commit = Commit(
            dataset=note.dataset,
            commit_id=self._number,
            created_ms=effects.now_ms(),
            type=note.type,
            rows=digest.rows,
            digest=digest.result(),
            message=note.message,
            tags=dict(note.tags),
            statistics=self._statistics.result(),
            inputs=tuple(note.inputs()),
            code=note.code,
        )

    def _renumber(self, number: int) -> None:
        """Copy the files to the folder of another number: some readers need the folder's name."""
        assert self._files is not None
        store = self.context.store
        adds, self._files.adds = self._files.adds, []
        value = {COMMIT_ID: str(number)}
        for add in adds:
            path = decode_path(add.path)
            moved = f"{partition_folder(value)}/{path.rpartition('/')[2]}"
            with store.open_input(path, size=add.size) as old, store.open_output(moved) as new:
                shutil.copyfileobj(old, new, 1 << 22)
            update = {"path": encode_path(moved), "partition_values": value}
            self._files.adds.append(add.model_copy(update=update))
        self._number = number
        discard_files(store, adds)


def _with_number(reader: pa.RecordBatchReader, number: int) -> pa.RecordBatchReader:
    """Return rows with the number of their commit as the first column."""
    if COMMIT_ID in {name.lower() for name in reader.schema.names}:
        raise InvalidInputError(
            argument="source",
            field=COMMIT_ID,
            reason=f"a data set keeps the number of a row's commit in the column {COMMIT_ID}",
            remedy="Rename the column",
        )
    schema = pa.schema([pa.field(COMMIT_ID, pa.int32()), *reader.schema])
    value = arrow_scalar(number, pa.int32())

    def numbered() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            numbers = pa.repeat(value, batch.num_rows)
            yield pa.RecordBatch.from_arrays([numbers, *batch.columns], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, numbered())


def add_commit(
    operation: AddCommit, context: Context, snapshot: Snapshot, txn: tuple[str, int] | None
) -> Done:
    """Commit rows with the next free number.

    Raises
    ------
    RetriesExhaustedError
        Other writers took every number until the deadline. Nothing was committed.

    Further errors are those of `execute`; if the outcome is unknown, the files stay.
    """
    message = operation._note.message
    started = context.effects.monotonic_s()
    losses = 0
    try:
        while True:
            try:
                done = execute(operation, context, snapshot, txn=txn, user_metadata=message or None)
                break
            except CommitConflictError as error:
                if error.rule != "CON-16" or isinstance(error, RetriesExhaustedError):
                    raise
                if context.effects.monotonic_s() - started > DEADLINE_S:
                    raise RetriesExhaustedError(
                        version=error.version,
                        rule=error.rule,
                        path=snapshot.root,
                        reason="other writers kept taking the next number of a commit",
                        remedy="Try again when they are done",
                    ) from error
                losses += 1
                wait_after(losses, context.effects)
                snapshot = refresh(context.store, snapshot)
    except OutcomeUnknownError:
        raise
    except TxlogError:
        operation.give_up()
        raise
    if done.outcome.skipped:
        operation.give_up()
    table = Table._of(context, done.snapshot)
    table._finish(done)
    return done


# Reading -------------------------------------------------------------------------------------


def pieces(table: Table, commit_id: int) -> list[Fragment] | None:
    """Return the fragments of a commit in the order of its rows; None if rows must be sorted.

    The order is that of row ids, which survive compaction. txlog writes files in this order; other
    engines may write the rows of one range into several files.
    """
    ranges = []
    for fragment in _fragments_of(table, commit_id):
        first, last, ascends = _row_ids(table, fragment)
        if not ascends:
            return None
        if last >= 0:
            ranges.append((first, last, fragment))
    ranges.sort(key=lambda one: one[0])
    if any(left[1] >= right[0] for left, right in pairwise(ranges)):
        return None
    return [fragment for _, _, fragment in ranges]


def read_rows(
    table: Table, commit_ids: Sequence[int], columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of commits, one commit after another, each in the order of its rows.

    Parameters
    ----------
    columns
        Default: all columns except `commit_id`.
    """
    names = [name for name in table.schema.names if name != COMMIT_ID]
    wanted = names if columns is None else list(columns)
    for commit_id in commit_ids:
        ordered = pieces(table, commit_id)
        if ordered is not None:
            yield from _scan(table, ordered, wanted).to_batches()
            continue
        found = _scan(table, _fragments_of(table, commit_id), [*wanted, "_rowid"]).to_arrow()
        ids = numpy_array(found["_rowid"].combine_chunks())
        order = arrow_array(np.argsort(ids, kind="stable"))
        yield from found.select(wanted).take(order).to_batches()


def _fragments_of(table: Table, commit_id: int) -> list[Fragment]:
    return table.scan(where=col(COMMIT_ID) == lit(commit_id)).fragments()


def _scan(table: Table, fragments: Sequence[Fragment], columns: list[str]) -> Scan:
    plan = plan_fragments(table.snapshot, fragments, columns=columns)
    context = context_of(table)
    return Scan(context.store, plan, context.engine)


def _row_ids(table: Table, fragment: Fragment) -> tuple[int, int, bool]:
    """Return the first and the last row id of a fragment, and whether they ascend; -1 for none."""
    first = last = -1
    for batch in _scan(table, [fragment], ["_rowid"]).to_batches():
        ids = numpy_array(batch.column(0))
        if not len(ids):
            continue
        if ids[0] <= last or (len(ids) > 1 and bool((np.diff(ids) <= 0).any())):
            return first, last, False
        first = int(ids[0]) if first < 0 else first
        last = int(ids[-1])
    return first, last, True


def digest_of(table: Table, commit_id: int) -> tuple[int, str]:
    """Return the number of rows of a commit and their digest, from the current rows."""
    fields = [f for f in table.snapshot.schema.fields if f.name != COMMIT_ID]
    digest = Digest(fields)
    for batch in read_rows(table, [commit_id]):
        digest.add(batch)
    return digest.rows, digest.result()
