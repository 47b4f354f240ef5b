"""Commit several operations as one version; each works on the result of the earlier ones.

The intents are merged file by file into one, which is judged against winners as a whole: if a
winner may have changed what one of the operations read, all of them run again. Rules:
spec/commit.md, CON-21.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from txlog.actions.file import Add, Cdc, Remove
from txlog.base.errors import CommitConflictError, clean_after, tidied
from txlog.changes.forms import faults_between
from txlog.commit.app_versions import AnyAppVersion
from txlog.commit.context import Context
from txlog.commit.intent import Intent, Kind, Reads, united
from txlog.commit.loop import prepare
from txlog.commit.operation import Companion, Operation, require_table_writable
from txlog.data_files.change_files import (
    deleted_rows,
    discard_changes,
    inserted_rows,
    write_rows_of,
)
from txlog.data_files.deletions import deletion_path
from txlog.data_files.write import discard_files
from txlog.fragments.ids import ID_TAG, PENDING_ROW_IDS
from txlog.scan.files import as_fragments
from txlog.snapshot.live_files import rows_at
from txlog.snapshot.snapshot import Snapshot

Value = TypeVar("Value")

_OF_BLOCK = (
    "Nothing was committed. The rows were read before another writer, or an earlier change of this "
    "transaction, changed the table. Make this change the first one of the transaction, and read "
    "the table again before the transaction begins. If the new rows do not depend on that change, "
    "pass another `computed_from`"
)


class Transaction(Operation):
    """Several operations that are committed as one version."""

    keeps_files = True  # The files of operations that keep their files.

    def __init__(self, context: Context, base: Snapshot) -> None:
        self.context = context  # Operations run before `execute` does.
        self._first = base  # The operations run on it when they are added.
        self._state = base
        self._operations: list[Operation] = []
        self._intents: list[Intent] = []
        # The states from which each intent was made, and which it made.
        self._states: list[tuple[Snapshot, Snapshot]] = []
        self._idle: list[Reads] = []  # The reads of operations that change nothing.
        self._cdc: list[Cdc] = []
        self._pending = PENDING_ROW_IDS  # The first id of the next operation's rows.

    @property
    def name(self) -> str:  # type: ignore[override]
        """The operation's own name if there is one, else TRANSACTION."""
        return self._operations[0].name if len(self._operations) == 1 else "TRANSACTION"

    @property
    def first(self) -> Snapshot:
        """The version of the log that the first operation changes."""
        return self._first

    @property
    def state(self) -> Snapshot:
        """The version that the next operation changes."""
        return self._state

    @property
    def has_changes(self) -> bool:
        """Whether an operation was added, so that `state` may not be in the log.

        One that changes nothing counts: after a lost race it may have something to change.
        """
        return bool(self._operations)

    def next_part_of(self, txn: AnyAppVersion | None) -> AnyAppVersion | None:
        """Return the version for what the next operation commits to other tables."""
        return _part_of(txn, len(self._operations))

    def __repr__(self) -> str:
        return ", ".join(operation.name for operation in self._operations) or "no change"

    @property
    def removes_rows(self) -> bool:  # type: ignore[override]
        """Whether one of the operations may remove rows."""
        return any(operation.removes_rows for operation in self._operations)

    def add(self, operation: Operation) -> None:
        """Run an operation on the result of the earlier ones; errors as for the operation."""
        try:
            self._decide(operation)
        except BaseException as error:
            clean_after(error, operation.discard)
            raise
        self._operations.append(operation)

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the merged intent of all operations."""
        if base is not self._first:
            self._first = self._state = base
            self._intents, self._states, self._idle = [], [], []
            for operation in self._operations:
                if not operation.keeps_files:
                    tidied(operation.discard)
                self._decide(operation)
        if not self._intents:
            tidied(self._discard_changes)
            return None
        intent = merged(self._with_changes(), base)
        reads = united([intent.reads, *self._idle])
        # A delete does not mind that rows are gone which it read. Another operation may have had
        # nothing to do because of them.
        is_replace = intent.kind == "delete" and any(self._idle)
        return replace(intent, reads=reads, kind="replace" if is_replace else intent.kind)

    def read(self) -> Reads:
        """Return everything that the operations read, if none of them has something to change."""
        return united(self._idle)

    def _with_changes(self) -> list[Intent]:
        """Return the intents; if one records changes, all of them do."""
        tidied(self._discard_changes)  # Those of the last attempt.
        if len(self._intents) == 1 or not any(intent.cdc for intent in self._intents):
            return self._intents
        # Rows of a form that does not fit the last one are in no file that stays: what was done to
        # them is told as one change.
        last = self._state.form
        stop = 0
        for place, (before, _) in enumerate(self._states, start=1):
            stop = place if faults_between(before.form, last, drops=True) else stop
        intents = []
        if stop:
            removes, adds, _ = _merged_files(self._intents[:stop])
            cdc = self._changes(self._first, self._states[stop - 1][1], removes, adds)
            intents = [replace(intent, cdc=()) for intent in self._intents[:stop]]
            intents[-1] = replace(intents[-1], cdc=cdc)
        for (before, after), intent in zip(self._states[stop:], self._intents[stop:], strict=True):
            if not intent.cdc:
                removes = {remove.path: remove for remove in intent.removes}
                adds = {add.path: add for add in intent.adds}
                intent = replace(intent, cdc=self._changes(before, after, removes, adds))
            intents.append(intent)
        return intents

    def _changes(
        self,
        before: Snapshot,
        after: Snapshot,
        removes: Mapping[str, Remove],
        adds: Mapping[str, Add],
    ) -> tuple[Cdc, ...]:
        """Write the rows of files that are removed as a whole, and of new ones, as changes."""
        removed = {path for path, remove in removes.items() if remove.data_change}
        gone = as_fragments(rows_at(self.context.store, before, removed - adds.keys()))
        deleted = write_rows_of(self.context, before, deleted_rows(gone))
        self._cdc += deleted
        # The operation may have given the table new columns.
        new = [add for path, add in adds.items() if add.data_change and path not in removed]
        inserted = write_rows_of(self.context, after, inserted_rows(new))
        self._cdc += inserted
        return (*deleted, *inserted)

    def _discard_changes(self) -> None:
        cdc, self._cdc = self._cdc, []
        discard_changes(self.context.store, cdc)

    def _decide(self, operation: Operation) -> None:
        operation.context = self.context
        operation.is_part = True
        require_table_writable(self._state, removes_rows=operation.removes_rows)
        try:
            intent = operation.intent(self._state)
        except CommitConflictError as error:
            if error.rule == "CON-30" and self._intents:
                error.remedy = _OF_BLOCK
            raise
        if intent is None:
            self._idle.append(operation.read())
            return
        now_ms = self.context.effects.now_ms()
        attempt = prepare(
            self.context.store,
            self._state,
            intent,
            self.context.effects.uuid(),
            made_ms=now_ms,
            now_ms=now_ms,
            pending_ids=self._pending,
            first=self._first,
        )
        protocol = attempt.after.protocol
        if intent.metadata is not None and protocol != self._first.protocol:
            # The metadata may state what an earlier operation brought, such as deletion vectors,
            # even if no file of that operation stays.
            intent = replace(intent, protocol=protocol)
        self._pending += sum(add.num_records or 0 for add in intent.adds)
        self._intents.append(intent)
        self._states.append((self._state, attempt.after))
        self._state = attempt.after

    def discard(self) -> None:
        """Delete the files of all operations; a failure is a warning."""
        for operation in self._operations:
            tidied(operation.discard)
        self._discard_changes()

    def companions(self, txn: AnyAppVersion | None) -> Sequence[Companion]:
        """Return those of all operations; each has its own part of `txn`."""
        return [
            companion
            for place, operation in enumerate(self._operations)
            for companion in operation.companions(_part_of(txn, place))
        ]

    def side_metrics(self) -> Mapping[str, int]:
        """Return the sums of those of all operations."""
        sums: dict[str, int] = {}
        for operation in self._operations:
            for name, value in operation.side_metrics().items():
                sums[name] = sums.get(name, 0) + value
        return sums

    def landed(self, intent: Intent) -> None:
        """Delete files that one operation wrote and a later operation removed."""
        for operation in self._operations:
            operation.landed(intent)
        committed = {add.path for add in intent.adds}
        vectors = _vector_paths(intent.adds)
        written = list(chain.from_iterable(one.adds for one in self._intents))
        removed = {remove.path for remove in intent.removes}
        unused = [add for add in written if add.path not in committed | removed]
        discard_files(self.context.store, unused, kept=intent.adds)
        self.context.store.delete(sorted(_vector_paths(written) - vectors))
        told = {cdc.path for cdc in intent.cdc}
        untold = [cdc for one in self._intents for cdc in one.cdc if cdc.path not in told]
        discard_changes(self.context.store, untold)


def _part_of(txn: AnyAppVersion | None, place: int) -> AnyAppVersion | None:
    """Return the application's version for what one operation commits to other tables."""
    if txn is None or not place:
        return txn
    return json.dumps(["txlog.part", txn[0], place]), txn[1]  # An id may contain any character.


def _vector_paths(adds: Sequence[Add]) -> set[str]:
    paths = {deletion_path(add.deletion_vector) for add in adds if add.deletion_vector}
    return {path for path in paths if path is not None}


def merged(intents: Sequence[Intent], base: Snapshot) -> Intent:
    """Return one intent with the same effect on `base` as several in order. Pure."""
    if len(intents) == 1:
        return intents[0]
    removes, adds, row_deletes = _merged_files(intents)
    metrics: dict[str, int] = {}
    for intent in intents:
        for name, value in intent.metrics.items():
            metrics[name] = metrics.get(name, 0) + value
    return Intent(
        operation="TRANSACTION",
        read_version=base.version,
        kind=_merged_kind(intents),
        adds=tuple(adds.values()),
        own_files=frozenset().union(*(intent.own_files for intent in intents)),
        removes=tuple(removes.values()),
        cdc=tuple(chain.from_iterable(intent.cdc for intent in intents)),
        protocol=_last([intent.protocol for intent in intents]),
        metadata=_last([intent.metadata for intent in intents]),
        domains=tuple(
            {domain.domain: domain for intent in intents for domain in intent.domains}.values()
        ),
        reads=united([intent.reads for intent in intents]),
        row_deletes=row_deletes,
        has_given_rows=any(intent.has_given_rows for intent in intents),
        columns=frozenset().union(*(intent.columns for intent in intents)),
        read_columns=frozenset().union(*(intent.read_columns for intent in intents)),
        parameters={
            "operations": [
                {"operation": intent.operation, **intent.parameters} for intent in intents
            ]
        },
        metrics=metrics,
    )


def _last(values: Sequence[Value | None]) -> Value | None:
    return next((value for value in reversed(values) if value is not None), None)


def _merged_kind(intents: Sequence[Intent]) -> Kind:
    """Return the kind whose conflicts cover those of all intents."""
    kinds = {intent.kind for intent in intents}
    if len(kinds) == 1:
        return intents[0].kind
    return "overwrite" if "overwrite" in kinds else "replace"


def _merged_files(
    intents: Sequence[Intent],
) -> tuple[dict[str, Remove], dict[str, Add], frozenset[str]]:
    """Return the removes and adds of all intents, and the paths that only lose rows.

    Each path has at most one remove, of the file in the base, and one add.
    """
    removes: dict[str, Remove] = {}
    adds: dict[str, Add] = {}
    first: dict[str, Add] = {}  # The adds as the operations first made them.
    new: set[str] = set()
    for intent in intents:
        for remove in intent.removes:
            adds.pop(remove.path, None)
            if remove.path not in new:
                removes.setdefault(remove.path, remove)
        for add in intent.adds:
            if add.path not in removes:
                new.add(add.path)
            adds[add.path] = _as_first(add, first.setdefault(add.path, add))
    listed = frozenset().union(*(intent.row_deletes for intent in intents))
    return removes, adds, frozenset(path for path in listed if path in removes and path in adds)


def _as_first(add: Add, first: Add) -> Add:
    """Return an add without the ids of a state within the transaction.

    Only the commit gives ids. A file of the base keeps those that it has.
    """
    if add is first:
        return add
    tags = dict(add.tags or {})
    tags.pop(ID_TAG, None)
    return add.model_copy(
        update={
            "tags": {**(first.tags or {}), **tags} or None,
            "base_row_id": first.base_row_id,
            "default_row_commit_version": first.default_row_commit_version,
        }
    )
