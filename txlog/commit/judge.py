"""May a transaction still be committed after another writer's commit? Pure and total."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class Verdict:
    """`ok`: commit on top of it. `redo`: run the operation again from the new version."""

    outcome: Literal["ok", "redo"]
    rule: str  # In spec/commit.md.
    path: str | None = None


def judge(
    intent: Intent,
    winner: Commit,
    files: pa.Table,
    schema: StructType,
    partition_columns: list[str],
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
    schema, partition_columns
        Of the table as the intent read it.
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
    touched = _first_touched(intent, files)
    if touched is not None:
        return Verdict("redo", "CON-5", touched)
    return _judge_reads(intent, winner, files, schema, partition_columns)


def _apps(winner: Commit) -> set[str]:
    names = {action.app_id for _, action in winner.controls if hasattr(action, "app_id")}
    return names - {ID_APP}  # Fragment ids are given afresh on every attempt.


def _first_touched(intent: Intent, files: pa.Table) -> str | None:
    """Return a file that both change, if there is one."""
    ours = [remove.path for remove in intent.removes]
    if not ours:
        return None
    keys = canonical_keys(pa.chunked_array([pa.array(ours, pa.string())]))
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    shared = files.filter(pc.is_in(canonical_keys(files["path"]), value_set=keys))
    return str(shared["path"][0].as_py()) if shared.num_rows else None


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
