"""The text of a commit, made anew for every attempt. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from txlog.actions.base import Action
from txlog.actions.commit_info import CommitInfo
from txlog.actions.file import Add
from txlog.actions.ndjson import as_rows, encode_rows
from txlog.actions.table import Txn
from txlog.commit.intent import Intent
from txlog.commit.row_ids import RowIds, with_row_ids
from txlog.fragments.ids import ID_APP, ID_TAG, valid_id
from txlog.log.seal import BLANK, COMMIT_MARK, seal_of, sealed
from txlog.protocol.row_tracking import PRESERVED_TAG, mark_domain
from txlog.version import __version__


@dataclass(frozen=True)
class Encoded:
    """A commit as it is written, and as it was before it became text."""

    data: bytes
    actions: list[Action]
    rows: list[dict[str, Any]]  # What parsing the text gives.


def encode_commit(
    intent: Intent,
    *,
    highest_id: int,
    timestamp_ms: int,
    stamped: bool,
    txn_id: str,
    row_ids: RowIds | None = None,
) -> Encoded:
    """Return the JSON lines of an intent, sealed.

    Parameters
    ----------
    highest_id
        The highest fragment id given up to the version below; new files get the ids after it.
    timestamp_ms
        When the commit is made; with `stamped` it becomes the in-commit timestamp.
    txn_id
        Tells this attempt's commit from every other one when an answer is lost.
    row_ids
        Where the ids of new rows begin; None if the table does not track rows.

    Raises
    ------
    LogCorruptError
        A file needs row ids, but does not tell how many.
    """
    adds, last_id = _with_ids(intent.adds, highest_id)
    actions: list[Action] = [_commit_info(intent, timestamp_ms, stamped, txn_id, row_ids)]
    actions.extend(action for action in (intent.protocol, intent.metadata) if action)
    actions.extend(intent.txns)
    if last_id > highest_id:
        actions.append(Txn(app_id=ID_APP, version=last_id, last_updated=timestamp_ms))
    actions.extend(intent.domains)
    if row_ids is not None:
        adds, last_row_id = with_row_ids(adds, row_ids)
        if last_row_id > row_ids.mark:
            actions.append(mark_domain(last_row_id))
    actions.extend(intent.removes)
    actions.extend(adds)
    rows = as_rows(actions)
    data = sealed(encode_rows(rows), COMMIT_MARK)
    rows[0]["commitInfo"]["txlogCrc32"] = seal_of(data, COMMIT_MARK)
    return Encoded(data, actions, rows)


def _with_ids(adds: tuple[Add, ...], highest: int) -> tuple[list[Add], int]:
    """Give every file without a valid fragment id the next one."""
    given = []
    for add in adds:
        tags = add.tags or {}
        if not valid_id(tags.get(ID_TAG)):
            highest += 1
            add = add.model_copy(update={"tags": {**tags, ID_TAG: str(highest)}})
        given.append(add)
    return given, highest


def _commit_info(
    intent: Intent, timestamp_ms: int, stamped: bool, txn_id: str, row_ids: RowIds | None
) -> CommitInfo:
    tracked = row_ids is not None and row_ids.enabled
    return CommitInfo(
        timestamp=timestamp_ms,
        operation=intent.operation,
        operation_parameters={
            name: value if isinstance(value, str) else orjson.dumps(value).decode()
            for name, value in intent.parameters.items()
            if value is not None
        },
        operation_metrics={name: str(value) for name, value in intent.metrics.items()},
        read_version=intent.read_version if intent.read_version >= 0 else None,
        isolation_level=intent.isolation,
        is_blind_append=intent.is_blind_append,
        engine_info=f"txlog/{__version__}",
        user_metadata=intent.user_metadata,
        tags={PRESERVED_TAG: "true"} if tracked else None,
        txn_id=txn_id,
        in_commit_timestamp=timestamp_ms if stamped else None,
        txlog_crc32=BLANK,
    )


def txn_id_of(row: dict[str, Any]) -> str | None:
    """Return the `txnId` of a log line, if it is a `commitInfo` with one."""
    info = row.get("commitInfo")
    return info.get("txnId") if isinstance(info, dict) else None
