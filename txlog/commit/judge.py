"""May a transaction still be committed after another writer's commit? Pure and total."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from txlog.commit.intent import Intent
from txlog.fragments import ID_APP
from txlog.log import canonical_keys
from txlog.schema import StructType
from txlog.snapshot import Commit
from txlog.stats import file_bounds, keep

_NONE = pa.nulls(0, pa.string())  # `pa.array` would import pandas.


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do after a winner.

    `ok`: commit on top of it. `rebase`: the same, if the rows that both delete are others, with
    the winner's rows deleted too. `redo`: run the operation again from the new version.
    """

    outcome: Literal["ok", "rebase", "redo"]
    rule: str  # In spec/commit.md.
    path: str | None = None


def judge(
    intent: Intent,
    winner: Commit,
    files: pa.Table,
    schema: StructType,
    partitions: list[str],
) -> Verdict:
    """Return the verdict on an intent after one commit that it did not see.

    Decided from the winner's actions, never from the name of its operation.

    Parameters
    ----------
    intent
        What we want to commit.
    winner
        The other writer's commit.
    files
        Its file actions as `FILE_ROWS`.
    schema, partitions
        Columns and partition columns of the table as the intent read it.
    """
    names = {type(action).__name__ for _, action in winner.controls}
    if "Protocol" in names:
        return Verdict("redo", "CON-1")
    if "Metadata" in names:
        return Verdict("redo", "CON-2")
    if intent.txn is not None and intent.txn.app_id in _apps(winner):
        return Verdict("redo", "CON-3")
    if intent.metadata is not None or intent.protocol is not None:
        return Verdict("redo", "CON-4")
    if files.num_rows == 0:
        return Verdict("ok", "CON-9")
    vectors = _changed_vectors(files) if intent.row_deletes else _NONE
    by_rows = pc.is_in(_keys_of(files), value_set=vectors)
    touched = _first_touched(intent, files, by_rows)
    if touched is not None:
        return Verdict("redo", "CON-5", touched)
    verdict = _judge_reads(intent, winner, files.filter(pc.invert(by_rows)), schema, partitions)
    if verdict.outcome == "ok" and len(vectors):
        return Verdict("rebase", "CON-10", str(files.filter(by_rows)["path"][0].as_py()))
    return verdict


def _apps(winner: Commit) -> set[str]:
    names = {action.app_id for _, action in winner.controls if hasattr(action, "app_id")}
    return names - {ID_APP}  # Fragment ids are given afresh on every attempt.


def _first_touched(intent: Intent, files: pa.Table, by_rows: pa.Array) -> str | None:
    """Return a file that both change, if there is one, and not only by rows."""
    if not intent.removes:
        return None
    keys = _keys_of(files)
    shared = pc.is_in(keys, value_set=_keys([remove.path for remove in intent.removes]))
    rows_only = pc.and_(by_rows, pc.is_in(keys, value_set=_keys(sorted(intent.row_deletes))))
    found = files.filter(pc.and_not(shared, rows_only))
    return str(found["path"][0].as_py()) if found.num_rows else None


def _changed_vectors(files: pa.Table) -> pa.Array:
    """Return the keys of files that a commit removes and adds: only their vectors differ."""
    keys = _keys_of(files)
    added, removed = keys.filter(files["is_add"]), keys.filter(pc.invert(files["is_add"]))
    return added.filter(pc.is_in(added, value_set=removed)).unique()


def _keys_of(files: pa.Table) -> pa.Array:
    return _flat(canonical_keys(files["path"]))


def _keys(paths: Sequence[str]) -> pa.Array:
    return _flat(canonical_keys(pa.array(paths, pa.string())))


def _flat(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _judge_reads(
    intent: Intent,
    winner: Commit,
    files: pa.Table,
    schema: StructType,
    partition_columns: list[str],
) -> Verdict:
    """Compare what we read with the rows that the winner added."""
    if not intent.reads:
        return Verdict("ok", "CON-9")
    added = files.filter(files["is_add"])
    if intent.isolation == "SnapshotIsolation" or added.num_rows == 0:
        return Verdict("ok", "CON-9")
    blind = winner.info is not None and winner.info.is_blind_append is True
    if intent.isolation == "WriteSerializable" and blind:
        return Verdict("ok", "CON-7")
    if intent.reads.everything or intent.reads.where is None:
        return Verdict("redo", "CON-6", str(added["path"][0].as_py()))
    bounds = file_bounds(added, schema, partition_columns, intent.reads.where)
    hit = added.filter(keep(intent.reads.where, bounds))
    if hit.num_rows:
        return Verdict("redo", "CON-6", str(hit["path"][0].as_py()))
    return Verdict("ok", "CON-8")
