"""Commit coordinators: key-value stores with an atomic insert, in SQL or DynamoDB."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from txlog.base.effects import REAL
from txlog.base.errors import (
    InvalidInputError,
    StoreError,
    TxlogError,
    UnsupportedFeatureError,
    not_installed,
)
from txlog.store.cloud_options import without_options

COORDINATOR = "txlog.coordinator"
_LOG = "_delta_log/"
_TABLE = "delta_log"
_KEPT_S = 24 * 60 * 60  # How long other clients keep an entry after the copy.


class CommitEntry(NamedTuple):
    """The entry of a file in a coordinator."""

    file_name: str  # Relative to `_delta_log`.
    temp_path: str  # The path of its staged bytes, relative to `_delta_log`.
    complete: bool  # Whether they were copied to the file's name.


class CommitCoordinator(Protocol):
    """A key-value store with an atomic insert. It pickles, and its `repr` shows no secrets.

    Each method raises `StoreError` if it fails. `table` is the root of a table, as opened.
    """

    def get(self, table: str, file_name: str) -> CommitEntry | None:
        """Return the entry of a file, or None. The read must be strongly consistent."""
        ...

    def put_if_absent(self, table: str, entry: CommitEntry) -> bool:
        """Insert an entry atomically; return false if the file already has an entry."""
        ...

    def complete(self, table: str, file_name: str) -> None:
        """Record that a file was copied to its name."""
        ...


@dataclass(frozen=True)
class SqlCoordinator:
    """A coordinator in a database that SQLAlchemy supports.

    The table `delta_log` is created at the first use.
    """

    url: str = field(repr=False)
    _made: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.url,)

    def _table(self) -> tuple[Any, Any]:
        if not self._made:
            try:
                import sqlalchemy as sql
            except ImportError as error:
                raise _missing("sqlalchemy", "sql", error) from error
            from sqlalchemy.pool import NullPool

            try:
                # No connection is kept, so none crosses a fork, a thread or a time-out.
                engine = sql.create_engine(self.url, poolclass=NullPool)
            except Exception as error:
                raise InvalidInputError(
                    argument="storage_options",
                    field=COORDINATOR,
                    reason=f"the database cannot be opened: {_message_of(error, self.url)}",
                    remedy="Write the URL as for SQLAlchemy, such as "
                    "postgresql+psycopg://host/name",
                ) from None
            table = sql.Table(
                _TABLE,
                sql.MetaData(),
                sql.Column("tablePath", sql.String(600), primary_key=True),
                sql.Column("fileName", sql.String(100), primary_key=True),
                sql.Column("tempPath", sql.String(200), nullable=False),
                sql.Column("complete", sql.Boolean, nullable=False),
            )
            # Another process creates it. If creating is not possible, the first use raises.
            with suppress(Exception):
                table.create(engine, checkfirst=True)
            self._made["table"] = engine, table
        found: tuple[Any, Any] = self._made["table"]
        return found

    def _run(self, statement: Any) -> Any:
        engine, _ = self._table()
        try:
            with engine.begin() as connection:
                result = connection.execute(statement)
                return result.first() if result.returns_rows else None
        except Exception as error:
            if type(error).__name__ == "IntegrityError":
                raise FileExistsError from error
            raise _failed(f"{type(error).__name__}: {_message_of(error, self.url)}") from error

    def get(self, table: str, file_name: str) -> CommitEntry | None:
        """Return the entry of a file, or None."""
        _, rows = self._table()
        columns = rows.c.fileName, rows.c.tempPath, rows.c.complete
        found = self._run(
            rows.select()
            .with_only_columns(*columns)
            .where(rows.c.tablePath == table, rows.c.fileName == file_name)
        )
        return None if found is None else CommitEntry(*found)

    def put_if_absent(self, table: str, entry: CommitEntry) -> bool:
        """Insert an entry atomically; return false if the file already has an entry."""
        _, rows = self._table()
        try:
            self._run(
                rows.insert().values(
                    tablePath=table,
                    fileName=entry.file_name,
                    tempPath=entry.temp_path,
                    complete=entry.complete,
                )
            )
        except FileExistsError:
            return False
        return True

    def complete(self, table: str, file_name: str) -> None:
        """Record that a file was copied to its name."""
        _, rows = self._table()
        self._run(
            rows.update()
            .where(rows.c.tablePath == table, rows.c.fileName == file_name)
            .values(complete=True)
        )


@dataclass(frozen=True)
class DynamoCoordinator:
    """A coordinator in DynamoDB, with the entry format of delta-spark and older delta-rs.

    Its table is created at the first use if it does not exist.
    """

    table_name: str = field(repr=False)
    client_options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    _made: dict[int, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.table_name, self.client_options)

    def _client(self) -> Any:
        process = os.getpid()
        if process not in self._made:
            try:
                import boto3
            except ImportError as error:
                raise _missing("boto3", "dynamodb", error) from error
            self._made[process] = boto3.client("dynamodb", **self.client_options)
        return self._made[process]

    def _run(self, operation: str, **given: Any) -> Any:
        for is_first in (True, False):
            try:
                return getattr(self._client(), operation)(TableName=self.table_name, **given)
            except TxlogError:
                raise
            except Exception as error:
                code = getattr(error, "response", {}).get("Error", {}).get("Code")
                if code == "ConditionalCheckFailedException":
                    raise FileExistsError from error
                if code == "ResourceNotFoundException" and is_first:
                    self._make_table()
                    continue
                reason = without_options(f"{type(error).__name__}: {error}", self.client_options)
                raise _failed(reason) from error
        raise AssertionError

    def _make_table(self) -> None:
        keys = {"tablePath": "HASH", "fileName": "RANGE"}
        # Another process creates it. If creating is not possible, the next use raises.
        with suppress(Exception):
            self._client().create_table(
                TableName=self.table_name,
                AttributeDefinitions=[
                    {"AttributeName": name, "AttributeType": "S"} for name in keys
                ],
                KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys.items()],
                BillingMode="PAY_PER_REQUEST",
            )
        with suppress(Exception):
            self._client().get_waiter("table_exists").wait(TableName=self.table_name)

    def get(self, table: str, file_name: str) -> CommitEntry | None:
        """Return the entry of a file, or None."""
        answer = self._run("get_item", Key=_key(table, file_name), ConsistentRead=True)
        return _entry(answer["Item"]) if "Item" in answer else None

    def put_if_absent(self, table: str, entry: CommitEntry) -> bool:
        """Insert an entry atomically; return false if the file already has an entry."""
        item = {
            **_key(table, entry.file_name),
            "tempPath": {"S": entry.temp_path},
            "complete": {"S": str(entry.complete).lower()},
        }
        try:
            self._run("put_item", Item=item, ConditionExpression="attribute_not_exists(fileName)")
        except FileExistsError:
            return False
        return True

    def complete(self, table: str, file_name: str) -> None:
        """Record that a file was copied to its name, and when others may delete the entry."""
        until = REAL.now_ms() // 1000 + _KEPT_S
        with suppress(FileExistsError):  # Another process copied it too.
            self._run(
                "update_item",
                Key=_key(table, file_name),
                UpdateExpression="SET complete = :yes, expireTime = :until",
                ConditionExpression="complete = :no",
                ExpressionAttributeValues={
                    ":yes": {"S": "true"}, ":no": {"S": "false"}, ":until": {"N": str(until)},
                },
            )  # fmt: skip


def _key(table: str, file_name: str) -> dict[str, Any]:
    return {"tablePath": {"S": table}, "fileName": {"S": file_name}}


def _entry(item: Mapping[str, Any]) -> CommitEntry:
    complete = item["complete"].get("S") == "true"
    return CommitEntry(item["fileName"]["S"], item["tempPath"]["S"], complete)


def _message_of(error: Exception, url: str) -> str:
    """Return the first line of a database's message, without the secrets of its URL."""
    password = url.partition("@")[0].rpartition(":")[2] if "@" in url else ""
    return without_options(str(error).partition("\n")[0], {"url": url, "password": password})


def _failed(reason: str) -> StoreError:
    return StoreError(
        operation="coordinate",
        path=_LOG,
        reason=f"the commit coordinator failed: {reason}",
        remedy="Check the database of the coordinator, then try again",
    )


def _missing(package: str, extra: str, error: ImportError) -> UnsupportedFeatureError:
    reason = f"a package for the commit coordinator is missing: {package}: {error}"
    return not_installed(extra, "commit coordinator", reason, path=_LOG)


def coordinator_of(options: Mapping[str, Any], *, is_s3: bool) -> CommitCoordinator | None:
    """Return the coordinator from storage options or, for S3, from the environment; else None.

    `txlog.coordinator` is a `CommitCoordinator`, a URL of SQLAlchemy or `dynamodb://TABLE`.
    `AWS_S3_LOCKING_PROVIDER=dynamodb` and `DELTA_DYNAMO_TABLE_NAME` are deltalake's options.
    """
    given = {str(name).upper(): value for name, value in options.items()}

    def found(name: str) -> str | None:
        value = given.get(name, os.environ.get(name) if is_s3 else None)
        return None if value is None else str(value)

    named = options.get(COORDINATOR)
    if named is not None and not isinstance(named, str):
        return named  # type: ignore[no-any-return]
    table: str | None = None
    if named is not None and named.startswith("dynamodb://"):
        table = named.removeprefix("dynamodb://").strip("/") or _TABLE
    elif named is not None:
        return SqlCoordinator(named)
    elif is_s3 and (found("AWS_S3_LOCKING_PROVIDER") or "").lower() == "dynamodb":
        table = found("DELTA_DYNAMO_TABLE_NAME") or _TABLE
    if table is None:
        return None
    names = {
        "endpoint_url": "AWS_ENDPOINT_URL", "region_name": "AWS_REGION",
        "aws_access_key_id": "AWS_ACCESS_KEY_ID",
        "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY", "aws_session_token": "AWS_SESSION_TOKEN",
    }  # fmt: skip
    clients = {
        ours: value
        for ours, theirs in names.items()
        if (value := found(f"{theirs}_DYNAMODB") or found(theirs)) is not None
    }
    return DynamoCoordinator(table, clients)
