"""Intents: what a transaction read and changes, and the text of its commit. Pure.

Each attempt encodes the text again, with the ids of its new rows. Rules: the Delta protocol,
"Row Tracking"; spec/fragments.md, FRG-30 and FRG-31.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

import orjson
import pyarrow as pa

from txlog.actions.action import Action
from txlog.actions.file import Add, Cdc, Remove
from txlog.actions.ndjson import (
    BLANK,
    COMMIT_MARK,
    as_rows,
    encode,
    encode_rows,
    json_of,
    seal_of,
    sealed,
)
from txlog.actions.table import (
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    TransactionGroup,
    Txn,
)
from txlog.base.arrow import pc
from txlog.base.errors import LogCorruptError
from txlog.base.version import __version__
from txlog.expressions.tree import Expression, Or
from txlog.fragments.ids import (
    GREATEST_ROW_ID,
    ID_APP,
    ID_TAG,
    PENDING_VERSION,
    PRESERVED_TAG,
    PROVISIONAL,
    gives_row_ids,
    mark_domain,
    valid_id,
)
from txlog.fragments.rows import FIELDS_TAG
from txlog.protocol.access import is_active, is_stamped
from txlog.protocol.properties import Properties, compatibilities
from txlog.snapshot.commits import FEW_FILES
from txlog.stats.files import num_records

if TYPE_CHECKING:
    from txlog.snapshot.snapshot import Snapshot

UserMetadata: TypeAlias = "str | Mapping[str, Any]"
"""A caller's notes for a commit: text, or a mapping of names to JSON values."""

Isolation = Literal["Serializable", "WriteSerializable", "SnapshotIsolation"]

Kind = Literal[
    "append",
    "delete",
    "replace",
    "overwrite",
    "compact",
    "add columns",
    "replace columns",
    "metadata",
    "restore",
    "protocol",
]
"""The kind of change of a transaction: its row of the table in spec/commit.md.

`replace`: other rows replace the rows that match a predicate (update, merge, an overwrite with a
predicate). `metadata`: only the schema or properties change. `protocol`: an upgrade.
"""


@dataclass(frozen=True)
class Reads:
    """The rows that determine the changes of a transaction.

    `everything`: all rows. `where`: the rows for which this bound predicate may be true. Neither:
    no rows, as for a blind append.
    """

    everything: bool = False
    where: Expression | None = None

    def __bool__(self) -> bool:
        return self.everything or self.where is not None


def united(reads: Sequence[Reads]) -> Reads:
    """Return everything that is in any of several reads."""
    wheres = [one.where for one in reads if one.where is not None]
    return Reads(
        everything=any(one.everything for one in reads),
        where=Or(tuple(wheres)) if len(wheres) > 1 else next(iter(wheres), None),
    )


@dataclass(frozen=True)
class Intent:
    """A transaction that can be committed on top of `read_version` or a later version."""

    operation: str  # Delta's usual names: WRITE, DELETE, CREATE TABLE, …
    read_version: int  # -1 before the table's first commit.
    kind: Kind
    adds: tuple[Add, ...] = ()
    removes: tuple[Remove, ...] = ()
    cdc: tuple[Cdc, ...] = ()  # If there are any, they contain all changes of rows.
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    txn: Txn | None = None
    query_txns: tuple[Txn, ...] = ()  # Further `txn` records for a micro-batch (STR-41).
    domains: tuple[DomainMetadata, ...] = ()  # The commit adds the domain of row ids itself.
    group: TransactionGroup | None = None  # The tables that change at the same moment.
    coordinator: str | None = None  # The catalog of a transaction that changes this table alone.
    reads: Reads = field(default_factory=Reads)
    # Files that were written for this intent alone, under names that no other commit can have:
    # paths of data files, and unique ids of stored deletion vectors. If one of them is in the
    # table, the commit is (CON-19). A file that others may commit, too, is none of them.
    own_files: frozenset[str] = frozenset()
    # Paths in `removes` that are added again, with more deleted rows and no other change.
    row_deletes: frozenset[str] = frozenset()
    # Physical names of the columns to which column files of the intent give values.
    columns: frozenset[str] = frozenset()
    # Names of the columns, in the touched files, whose values determined the changes.
    read_columns: frozenset[str] = frozenset()
    # Whether it needs files that are not in the latest version and that a vacuum may delete
    # (CON-25).
    revives: bool = False
    # Whether its files were files of a version before, so that their packs are known (BLB-8).
    keeps_packs: bool = False
    # The version of a table whose rows, and no others, the new version has (UNQ-7).
    rows_of: Snapshot | None = None
    # Whether files that announce no change of rows have rows of the caller, not of the table.
    has_given_rows: bool = False
    isolation: Isolation = "Serializable"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, int] = field(default_factory=dict)
    user_metadata: UserMetadata | None = None

    @property
    def is_blind_append(self) -> bool:
        """Whether the intent only adds rows, independent of the table's rows."""
        appends = self.kind == "append" and bool(self.adds)  # Column files add no rows.
        return appends and not self.removes and not self.reads and self.metadata is None

    @property
    def is_idle(self) -> bool:
        """Whether the intent changes nothing, and at most records application versions."""
        changes = (self.adds, self.removes, self.cdc, self.protocol, self.metadata, self.domains)
        return not any(changes)

    @property
    def txns(self) -> tuple[Txn, ...]:
        """All application versions that the intent records."""
        return self.query_txns if self.txn is None else (self.txn, *self.query_txns)

    def facts(self) -> dict[str, Any]:
        """Return facts for log events: numbers, but no values of rows."""
        adds = [add for add in self.adds if add.path not in self.row_deletes]
        rows = [add.num_records for add in adds]
        metric = self.metrics.get
        return {
            "kind": self.kind,
            "read_version": self.read_version,
            "added_files": len(adds),
            "added_bytes": sum(add.size for add in adds),
            "added_rows": None if None in rows else sum(row or 0 for row in rows),
            "removed_files": len(self.removes) - len(self.row_deletes),
            "deleted_rows": metric("numDeletedRows", metric("numTargetRowsDeleted")),
            "updated_rows": metric("numUpdatedRows", metric("numTargetRowsUpdated")),
        }


# Kinds that move rows at most: no file of theirs may announce a change of rows.
_WITHOUT_ROWS = ("compact", "metadata", "protocol")
# Kinds whose files are changes of rows. (Column files are never.)
_OF_ROWS = ("append", "delete", "replace")
_OF_COLUMNS = ("add columns", "replace columns")


def contradiction(
    intent: Intent, read_version: int, *, removes_rows: bool
) -> tuple[str, str] | None:
    """Return the first field of an intent that contradicts the rest, and why; None if none does.

    The conflict table (CON-11) and the readers of the log rely on all that is checked here.

    Parameters
    ----------
    read_version
        The version from which the intent was made; -1 for a new table.
    removes_rows
        Whether the operation declares that it may remove rows.
    """
    kind, adds, removes = intent.kind, intent.adds, intent.removes
    if kind not in get_args(Kind):
        return "kind", f"{kind!r} is none of {', '.join(get_args(Kind))}"
    if intent.read_version != read_version:
        return "read_version", f"it is {intent.read_version}, but version {read_version} was read"
    if kind == "append" and removes:
        return "removes", "an append removes no file"
    if kind == "protocol" and intent.protocol is None:
        return "protocol", "an intent of the kind protocol has one"
    if intent.columns and kind not in (*_OF_COLUMNS, "replace"):
        return "columns", f"an intent of the kind {kind} writes no columns"
    added = Counter((add.path, _vector_id(add)) for add in adds)
    removed = Counter((remove.path, _vector_id(remove)) for remove in removes)
    for name, files in (("adds", added), ("removes", removed)):
        if len(files) < files.total():
            path = next(key[0] for key, count in files.items() if count > 1)
            return name, f"{path} is there twice"
    for path, _ in added.keys() & removed.keys():
        return "adds", f"{path} is in adds and in removes, with the same deletion vector"
    both = {path for path, _ in added} & {path for path, _ in removed}
    for path in intent.row_deletes - both:
        return "row_deletes", f"{path} is not both in adds and in removes"
    for name, given in (("adds", adds), ("removes", removes)):
        for file in given:
            if file.data_change and kind in _WITHOUT_ROWS:
                return name, f"{file.path} has data_change, but the kind {kind} changes no rows"
            moves = not file.data_change and kind in _OF_ROWS
            if moves and FIELDS_TAG not in (file.tags or {}):
                return name, f"{file.path} lacks data_change, but the kind {kind} changes rows"
    if not removes_rows and kind not in _OF_COLUMNS:  # Their removes are column files.
        for path in (remove.path for remove in removes if remove.data_change):
            return "removes", f"{path} loses rows, but the operation has removes_rows = False"
    return None


def _vector_id(file: Add | Remove) -> str | None:
    return None if file.deletion_vector is None else file.deletion_vector.unique_id


@dataclass(frozen=True)
class RowIds:
    """The start of the ids, and the version, of new rows."""

    version: int  # The version of the attempt.
    mark: int  # The highest assigned id; -1 for none.
    enabled: bool  # Whether rows keep their ids when they move.
    # Of a state within a transaction: the first pending id. Then there is no mark.
    pending: int | None = None


def with_pending_ids(adds: Iterable[Add], first: int) -> list[Add]:
    """Return the files of a transaction's operation with ids for its later operations only.

    They are the ids from `first` on, below 0; the commit gives the rows other ones.

    Raises
    ------
    LogCorruptError
        The statistics of a file do not state the number of rows.
    """
    given = []
    for add in adds:
        change: dict[str, int] = {}
        if add.base_row_id is None and FIELDS_TAG not in (add.tags or {}):
            change["base_row_id"] = first
            first += _require_rows(add)
        if add.default_row_commit_version is None:
            change["default_row_commit_version"] = PENDING_VERSION
        given.append(add.model_copy(update=change) if change else add)
    return given


def with_row_ids(adds: Iterable[Add], ids: RowIds) -> tuple[list[Add], int]:
    """Return files with row ids and versions, and the highest assigned id.

    A file that has them keeps them. A column file without ids gets none, but a version.

    Raises
    ------
    LogCorruptError
        The statistics of a file do not state the number of rows, or there are not enough ids.
    """
    kept = list(adds)
    mark = max([ids.mark, *(_last_id(add) for add in kept)])
    given = []
    for add in kept:
        change: dict[str, int] = {}
        if add.base_row_id is None and FIELDS_TAG not in (add.tags or {}):
            change["base_row_id"] = mark + 1
            mark += _require_rows(add)
            if max(mark, change["base_row_id"]) > GREATEST_ROW_ID:
                raise _no_ids_left(add.path, ids.mark)
        if add.default_row_commit_version is None:
            change["default_row_commit_version"] = ids.version
        given.append(add.model_copy(update=change) if change else add)
    if mark > GREATEST_ROW_ID:
        raise _no_ids_left(None, mark)
    return given, mark


def _no_ids_left(path: str | None, mark: int) -> LogCorruptError:
    return LogCorruptError(
        path=path,
        field="baseRowId",
        reason=f"the highest assigned row id is {mark}, so not enough ids up to 2^63 - 1 remain "
        "for new rows",
        remedy="Nothing was committed. The writer of this log made an error: restore an earlier "
        "version, or drop the feature rowTracking",
    )


def _last_id(add: Add) -> int:
    if add.base_row_id is None:
        return -1
    return add.base_row_id + max(add.num_records or 0, 1) - 1


def _require_rows(add: Add) -> int:
    rows = add.num_records
    if rows is None:
        raise LogCorruptError(
            path=add.path,
            field="numRecords",
            reason="the table tracks rows, but the statistics of this file do not state its "
            "number of rows, so the rows cannot get ids",
            remedy="The writer of this file made an error. Write the file again with the row "
            "count in its statistics",
        )
    return rows


def highest_row_id(files: pa.Table, *, exact: bool) -> int:
    """Return the highest assigned row id in `FILE_ROWS`; -1 if there is none.

    With `exact`, each live file must state its number of rows; otherwise a file without it counts
    as one row.

    Raises
    ------
    LogCorruptError
        A live file has ids, but does not state its number of rows.
    """
    files = files.filter(pc.is_valid(files["base_row_id"]))
    if files.num_rows == 0:
        return -1
    rows = num_records(files)
    if exact:
        unclear = files.filter(pc.and_(files["is_add"], pc.is_null(rows)))
        if unclear.num_rows:
            raise LogCorruptError(
                path=unclear["path"][0].as_py(),
                field="numRecords",
                reason="the log does not record the highest row id, and the statistics of this "
                "file do not state its number of rows",
                remedy="Nothing was committed. The writer of this log made an error: call "
                'alter.drop_feature("rowTracking"), after which rows have no ids',
            )
    more = pc.subtract(pc.max_element_wise(rows, 1), 1)
    beyond = pc.greater(
        more, pc.subtract(GREATEST_ROW_ID, pc.max_element_wise(files["base_row_id"], 0))
    )
    if pc.any(beyond).as_py():  # The sum of 64-bit numbers would wrap.
        wrong = files.filter(beyond)
        raise LogCorruptError(
            path=wrong["path"][0].as_py(),
            field="baseRowId",
            reason=f"the row ids of this file begin at {wrong['base_row_id'][0].as_py()} and would "
            "end above 2^63 - 1, so new rows cannot get ids",
            remedy="Nothing was committed. The writer of this log made an error: restore an "
            "earlier version, or drop the feature rowTracking",
        )
    return int(pc.max(pc.add(files["base_row_id"], more)).as_py())


class Duties(NamedTuple):
    """What a protocol and metadata require of each commit of a table."""

    compatible: bool  # The commit must be valid for Iceberg.
    stamped: bool  # It has an in-commit timestamp.
    numbered: bool  # Its files get row ids.
    tracked: bool  # Row tracking is enabled.


def duties_of(protocol: Protocol, metadata: Metadata) -> Duties:
    """Return which additional values a commit to a table with these actions must have."""
    properties = Properties(metadata.configuration)
    return Duties(
        compatible=bool(compatibilities(metadata.configuration)),
        stamped=is_stamped(protocol, metadata),
        numbered=gives_row_ids(protocol, properties),
        tracked=is_active("rowTracking", protocol, properties),
    )


@dataclass(frozen=True)
class Encoded:
    """The bytes of a commit, and the values from which they were encoded."""

    data: bytes
    actions: list[Action]
    rows: list[dict[str, Any]] | None  # The result of parsing the text; None of many actions.


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
        The highest fragment id assigned up to the previous version; new files get the next ids.
    timestamp_ms
        The time of the commit; with `stamped` it becomes the in-commit timestamp.
    txn_id
        Identifies this attempt's commit if an answer is lost.
    row_ids
        The start of the ids of new rows; None if the table does not track rows.

    Raises
    ------
    LogCorruptError
        A file needs row ids, but does not state its number of rows.
    """
    adds, last_id = _with_ids(intent.adds, highest_id)
    actions: list[Action] = [_commit_info(intent, timestamp_ms, stamped, txn_id, row_ids)]
    actions.extend(action for action in (intent.protocol, intent.metadata) if action)
    actions.extend(intent.txns)
    if last_id > highest_id:
        actions.append(Txn(app_id=ID_APP, version=last_id, last_updated=timestamp_ms))
    actions.extend(intent.domains)
    if intent.group is not None:
        actions.append(intent.group)
    if row_ids is not None and row_ids.pending is not None:
        adds = with_pending_ids(adds, row_ids.pending)
    elif row_ids is not None:
        adds, last_row_id = with_row_ids(adds, row_ids)
        if last_row_id > row_ids.mark:
            actions.append(mark_domain(last_row_id))
    actions.extend(intent.removes)
    actions.extend(adds)
    actions.extend(intent.cdc)
    if len(actions) > FEW_FILES:
        return Encoded(sealed(encode(actions), COMMIT_MARK), actions, None)
    rows = list(as_rows(actions))
    data = sealed(encode_rows(rows), COMMIT_MARK)
    rows[0]["commitInfo"]["txlogCrc32"] = seal_of(data, COMMIT_MARK)
    return Encoded(data, actions, rows)


def _with_ids(adds: tuple[Add, ...], highest: int) -> tuple[list[Add], int]:
    """Assign the next fragment id to each file without a valid one.

    Raises
    ------
    LogCorruptError
        There are not enough ids.
    """
    given = []
    for add in adds:
        tags = add.tags or {}
        if not valid_id(tags.get(ID_TAG)):
            highest += 1
            if highest >= PROVISIONAL:
                raise LogCorruptError(
                    field=f"txn {ID_APP}",
                    reason=f"the highest assigned fragment id is {highest - 1}, so no id below "
                    "2^30 remains for new files",
                    remedy="Nothing was committed. The writer of this log made an error: clone the "
                    "table with Table.clone, which numbers its files anew",
                )
            add = add.model_copy(update={"tags": {**tags, ID_TAG: str(highest)}})
        given.append(add)
    return given, highest


CALLERS_TEXTS = frozenset({"userId", "userName", "userMetadata"})
"""Fields of `commitInfo` that a caller may set to text."""
COMMIT_INFO_NAMES = {"version"}.union(
    *({name, str(info.alias)} for name, info in CommitInfo.model_fields.items())
).difference(CALLERS_TEXTS)
"""Fields of `commitInfo` that commits fill in themselves."""
TRANSACTION_TAG = "delta.multiTableTransaction.transactionId"
"""A tag in `commitInfo`: the id of a transaction over several tables."""
COORDINATOR_TAG = "txlog.transactionCatalog"
"""A tag in `commitInfo`: the id of the catalog whose transaction changed this table alone."""
WRITE_PARAMETERS = frozenset(
    {
        "mode", "partitionBy", "partitionOverwriteMode", "predicate", "matchedPredicates",
        "notMatchedPredicates", "notMatchedBySourcePredicates",
    }
)  # fmt: skip
"""Parameters that say what rows a commit wrote and replaced. A caller cannot state them: a commit
without one of them says by this that it replaced no such rows."""


def _commit_info(
    intent: Intent, timestamp_ms: int, stamped: bool, txn_id: str, row_ids: RowIds | None
) -> CommitInfo:
    tracked = row_ids is not None and row_ids.enabled
    noted, own, parameters = intent.user_metadata, {}, intent.parameters
    if noted is not None and not isinstance(noted, str):
        own = orjson.loads(json_of(dict(noted)))
        stated = {name.lower() for name in WRITE_PARAMETERS.union(parameters)}
        noted_parameters = own.pop("operationParameters", {}).items()
        added = {name: value for name, value in noted_parameters if name.lower() not in stated}
        parameters = {**added, **parameters}
        noted = own.pop("userMetadata", None)
    return CommitInfo(
        timestamp=timestamp_ms,
        operation=intent.operation,
        operation_parameters={
            name: value if isinstance(value, str) else json_of(value).decode()
            for name, value in parameters.items()
            if value is not None
        },
        operation_metrics={name: str(value) for name, value in intent.metrics.items()},
        read_version=intent.read_version if intent.read_version >= 0 else None,
        isolation_level=intent.isolation,
        is_blind_append=intent.is_blind_append,
        engine_info=f"txlog/{__version__}",
        user_metadata=noted,
        tags=_tags(intent, tracked),
        txn_id=txn_id,
        in_commit_timestamp=timestamp_ms if stamped else None,
        txlog_crc32=BLANK,
        **own,  # `require_user_metadata` refuses names of fields.
    )


def _tags(intent: Intent, tracked: bool) -> dict[str, str] | None:
    tags = {PRESERVED_TAG: "true"} if tracked else {}
    if intent.group is not None:
        tags[TRANSACTION_TAG] = intent.group.transaction_id
    if intent.coordinator is not None:
        tags[COORDINATOR_TAG] = intent.coordinator
    return tags or None


def txn_id_of(row: dict[str, Any]) -> str | None:
    """Return the `txnId` of a log line if it is a `commitInfo` that has one."""
    info = row.get("commitInfo")
    return info.get("txnId") if isinstance(info, dict) else None
