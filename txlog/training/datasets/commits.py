"""Commits of a data set: versions of its table, and the domains that describe them.

A commit is one Delta version: it adds the rows of the partition `commit_id=k` and sets the domain
`txlog.dataset.commit.k`. If two writers take the same number, they set the same domain. CON-16
refuses one of them, and this writer takes the next number. Rules: spec/datasets.md, DST-1 to DST-6.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from txlog import Fragment, Scan, Table, col, lit
from txlog.base.arrow import arrow_array, arrow_scalar, numpy_array
from txlog.base.errors import (
    InvalidInputError,
    LogCorruptError,
    TxlogError,
    tidied,
)
from txlog.base.frozen import freeze
from txlog.extend import (
    Add,
    Append,
    DomainMetadata,
    Intent,
    SchemaMode,
    Snapshot,
    StructType,
    context_of,
    decode_path,
    encode_path,
    plan_fragments,
)
from txlog.training.datasets.digest import Digest
from txlog.training.datasets.events import canonical, text_or_none
from txlog.training.datasets.types.base import Statistics
from txlog.training.datasets.values import (
    FORMAT,
    NOBODY,
    Code,
    Commit,
    Input,
    Who,
    require_same_request,
)

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


def folder_of(commit_id: int) -> str:
    """Return the folder of a commit's rows in the table of a data set."""
    return f"{COMMIT_ID}={commit_id}"


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
        code, branch = facts.get("code"), facts.get("branch", _NO_BRANCH)
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
            user=text_or_none(facts, "user"),
            client=text_or_none(facts, "client"),
            replaces=_replaced(facts),
            spares=tuple(facts.get("spares", ())),
            branch=branch["name"],
            branch_id=branch["id"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise LogCorruptError(
            path=root,
            field=domain,
            reason=f"the domain does not say what the commit is: {error!r}",
            remedy="Only txlog.training may write the table; restore a version before",
        ) from error


def _replaced(facts: Mapping[str, Any]) -> int:
    """Return the last replaced commit, or 0; raises `ValueError` if it is no such number."""
    found = facts.get("replaces", 0)
    if type(found) is not int or not 0 <= found < facts["commit"]:
        raise ValueError(f"replaces is no commit before it, but {found!r}")
    return found


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
    facts |= Who(commit.user, commit.client).to_json()
    if commit.replaces:
        facts["replaces"] = commit.replaces
    if commit.spares:
        facts["spares"] = list(commit.spares)
    if commit.branch_id:
        facts["branch"] = {"id": commit.branch_id, "name": commit.branch}
    if txn is not None:
        facts["txn"] = list(txn)
    return canonical(facts)


_NO_BRANCH = {"id": 0, "name": None}


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
    who: Who = NOBODY
    replaces: int = 0
    spares: tuple[int, ...] = ()
    branch: tuple[int, str | None] = (0, None)

    def __post_init__(self) -> None:
        freeze(self)


class _Tally:
    """The number of a commit, and what is counted over its rows while they are written."""

    def __init__(self, statistics: Statistics) -> None:
        self.number = 0
        self.statistics = statistics
        self.digest: Digest | None = None  # None: there are no rows.

    def add(self, schema: StructType, batch: pa.RecordBatch) -> None:
        """Hash and count rows."""
        fields = [field for field in schema.fields if field.name != COMMIT_ID]
        if self.digest is None:
            self.digest = Digest(fields)
        self.digest.add(batch)
        self.statistics.add(batch.select([field.name for field in fields]))


class AddCommit(Append):
    """Add the rows of a commit, and set its domain, in one version."""

    redo_on = frozenset({"CON-16"})  # Another writer set the domain: take the next number.

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
        # Without a reference to `self`, an error closes the source at once, and not only when the
        # garbage collector runs.
        tally = _Tally(statistics)
        super().__init__(_with_number(rows, tally), schema_mode=schema_mode, tap=tally.add)
        self._tally = tally
        self._require = require
        self._note = note
        self._moved: list[Add] = []  # Copies of the files, in the folder of a later number.
        self.commit: Commit | None = None  # The last committed or attempted commit.

    def intent(self, base: Snapshot) -> Intent:
        """Return the files of the next commit. The first call writes, hashes and counts them."""
        try:
            return self._intent(base)
        except TxlogError:
            raise  # `execute` calls `discard`.
        except BaseException:  # Nothing is committed yet, so the files can be deleted.
            self.discard()
            raise

    def _intent(self, base: Snapshot) -> Intent:
        if (txn := self._note.txn) is not None:
            require_same_request(txn, base.transaction_version(txn[0]))
        last = max((c.commit_id for c in commits_of(base, self._note.dataset)), default=0)
        tally = self._tally
        if self.commit is None:
            tally.number = last + 1
        intent = super().intent(base)
        commit = self.commit or self._described()
        self._require(base)
        if tally.number != last + 1:
            self._renumber(intent.adds, last + 1)
        self.commit = replace(commit, commit_id=tally.number)
        domain = DomainMetadata(
            domain=f"{_DOMAIN}{tally.number}",
            configuration=_configuration(self.commit, self._note.txn),
        )
        adds = tuple(self._moved) or intent.adds
        own_files = frozenset(add.path for add in adds)
        return replace(intent, adds=adds, own_files=own_files, domains=(domain,))

    def discard(self) -> None:
        """Delete the files, and their copies."""
        self._delete_copies()
        super().discard()

    def landed(self, intent: Intent) -> None:
        """Delete the files if the commit has copies of them."""
        if self._moved:
            super().discard()

    def _described(self) -> Commit:
        """Return the commit of the written rows."""
        tally = self._tally
        if tally.digest is None:
            raise InvalidInputError(
                argument="source",
                reason="it has no rows, but a commit needs at least one row",
                remedy="Check whether it is the right source",
            )
        note = self._note
        return Commit(
            dataset=note.dataset,
            commit_id=tally.number,
            created_ms=self.context.effects.now_ms(),
            type=note.type,
            rows=tally.digest.rows,
            digest=tally.digest.result(),
            message=note.message,
            tags=dict(note.tags),
            statistics=tally.statistics.result(),
            inputs=tuple(note.inputs()),
            code=note.code,
            user=note.who.user,
            client=note.who.client,
            replaces=note.replaces,
            spares=note.spares,
            branch=note.branch[1],
            branch_id=note.branch[0],
        )

    def _renumber(self, adds: Sequence[Add], number: int) -> None:
        """Copy the files to the folder of another number: some readers need the folder's name."""
        self._delete_copies()
        store = self.context.store
        value = {COMMIT_ID: str(number)}
        for add in adds:
            path = decode_path(add.path)
            moved = f"{folder_of(number)}/{path.rpartition('/')[2]}"
            with store.open_input(path, size=add.size) as old, store.open_output(moved) as new:
                shutil.copyfileobj(old, new, 1 << 22)
            update = {"path": encode_path(moved), "partition_values": value}
            self._moved.append(add.model_copy(update=update))
        self._tally.number = number

    def _delete_copies(self) -> None:
        copies, self._moved = self._moved, []
        if copies:
            paths = [decode_path(add.path) for add in copies]
            tidied(lambda: self.context.store.delete(paths))


def _with_number(reader: pa.RecordBatchReader, tally: _Tally) -> pa.RecordBatchReader:
    """Return rows with the number of their commit as the first column.

    The number is asked when the rows are read.
    """
    if COMMIT_ID in {name.lower() for name in reader.schema.names}:
        raise InvalidInputError(
            argument="source",
            field=COMMIT_ID,
            reason=f"a data set keeps the number of a row's commit in the column {COMMIT_ID}",
            remedy="Rename the column",
        )
    schema = pa.schema([pa.field(COMMIT_ID, pa.int32()), *reader.schema])

    def numbered() -> Iterator[pa.RecordBatch]:
        value = arrow_scalar(tally.number, pa.int32())
        for batch in reader:
            numbers = pa.repeat(value, batch.num_rows)
            yield pa.RecordBatch.from_arrays([numbers, *batch.columns], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, numbered())


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
    table: Table,
    commit_ids: Sequence[int],
    columns: Sequence[str] | None = None,
    *,
    as_given: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of commits, one commit after another, each in the order of its rows.

    Parameters
    ----------
    columns
        Default: all columns except `commit_id`.
    as_given
        Return the types of Arrow that the table was given, and not those that it stores.
    """
    names = [name for name in table.schema.names if name != COMMIT_ID]
    wanted = names if columns is None else list(columns)
    for commit_id in commit_ids:
        ordered = pieces(table, commit_id)
        if ordered is not None:
            yield from _scan(table, ordered, wanted, as_given).to_batches()
            continue
        found = _scan(
            table, _fragments_of(table, commit_id), [*wanted, "_rowid"], as_given
        ).to_arrow()
        ids = numpy_array(found["_rowid"].combine_chunks())
        order = arrow_array(np.argsort(ids, kind="stable"))
        yield from found.select(wanted).take(order).to_batches()


def _fragments_of(table: Table, commit_id: int) -> list[Fragment]:
    return table.scan(where=col(COMMIT_ID) == lit(commit_id)).fragments()


def _scan(
    table: Table, fragments: Sequence[Fragment], columns: list[str], as_given: bool = False
) -> Scan:
    plan = plan_fragments(table.snapshot, fragments, columns=columns)
    context = context_of(table)
    return Scan(context.store, plan.for_arrow() if as_given else plan, context.engine)


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
