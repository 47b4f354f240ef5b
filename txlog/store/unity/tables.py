"""Tables of Unity Catalog: where they are, and the credentials for their storage."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from threading import Lock
from typing import Any, Literal

from txlog.base.effects import REAL
from txlog.base.errors import NotFoundError, StoreError, UnsupportedFeatureError
from txlog.base.uris import file_path, is_file_uri, scheme_of
from txlog.store.base import kind_of
from txlog.store.cloud_options import UNITY
from txlog.store.places import same_place
from txlog.store.unity.address import TOKEN, Secret, access_of, is_address
from txlog.store.unity.client import Client, Credentials, ForbiddenError, TableInfo

MANAGED, EXTERNAL = "MANAGED", "EXTERNAL"
_DELTA = "DELTA"
_FEATURES = ("delta.feature.catalogManaged", "delta.feature.catalogOwned-preview")
_LAST_MS = 253_402_300_800_000  # The end of the year 9999.
_MARGIN_MS = 5 * 60 * 1000  # How long before its end a credential is renewed, at most.

_FIELDS = {
    "s3": "aws_temp_credentials", "az": "azure_user_delegation_sas", "gs": "gcp_oauth_token",
}  # fmt: skip
Operation = Literal["READ", "READ_WRITE", "PATH_READ", "PATH_CREATE_TABLE"]


@dataclass(frozen=True)
class UnityTable:
    """A table of Unity Catalog. It pickles, without the token.

    Parameters
    ----------
    location
        As the catalog states it; also the name under which credentials are asked for if the table
        has no id yet.
    commits
        Who decides its commits: the catalog, everybody (an external table), or nobody here.
    """

    client: Client
    name: str  # `schema.table`
    table_id: str | None
    location: str
    commits: Literal["catalog", "anybody", "nobody"]
    is_new: bool = True  # Whether a table without id is to be made, not only read.

    @property
    def address(self) -> str:
        """The address that opens it."""
        return f"{self.client.place}/{self.name}"

    @property
    def connection_key(self) -> tuple[Any, ...]:
        """What tells its storage connections from others: they have its credentials."""
        return (self.client, self.name, self.table_id, self.location, self.is_new)

    def provider(self, kind: str) -> Callable[[], dict[str, Any]]:
        """Return a provider of credentials for obstore, which renews them before they expire.

        The first credentials are asked for now.

        Raises
        ------
        StoreError
            The catalog gives none.
        """
        vended = Vended(self, kind)
        vended()
        return vended

    def credentials(self) -> Credentials:
        """Ask for credentials to write, and if this is not allowed, for some to read.

        Raises
        ------
        StoreError
            Reading is not allowed either.
        """
        wanted: list[Operation] = ["READ_WRITE", "READ"]
        if self.table_id is None:
            wanted = ["PATH_CREATE_TABLE" if self.is_new else "PATH_READ"]
        elif self.commits == "nobody":
            wanted = ["READ"]
        for operation in wanted:
            try:
                return self._credentials(operation)
            except ForbiddenError:
                if operation == wanted[-1]:
                    raise
        raise AssertionError(wanted)

    def _credentials(self, operation: Operation) -> Credentials:
        if self.table_id is None:
            body = {"url": self.location, "operation": operation}
            return self.client.ask("POST", "/temporary-path-credentials", Credentials, body=body)
        body = {"table_id": self.table_id, "operation": operation}
        return self.client.ask("POST", "/temporary-table-credentials", Credentials, body=body)


@dataclass
class Vended:
    """The credentials of a table for one kind of storage, renewed while the table is open."""

    table: UnityTable
    kind: str
    _found: Credentials | None = field(default=None, repr=False)
    _renew_ms: float = 0.0
    _lock: Lock = field(default_factory=Lock, repr=False)

    def __call__(self) -> dict[str, Any]:
        """Return credentials in the form of obstore; errors as for `UnityTable.credentials`."""
        with self._lock:
            now = REAL.now_ms()
            if self._found is None or now >= self._renew_ms:
                self._found = self.table.credentials()
                end = _end_of(self._found)
                self._renew_ms = (
                    float("inf") if end is None else end - min(_MARGIN_MS, (end - now) / 2)
                )
            return self._as_obstore(self._found)

    def _as_obstore(self, found: Credentials) -> dict[str, Any]:
        end = _end_of(found)
        expires = {"expires_at": None if end is None else datetime.fromtimestamp(end / 1000, UTC)}
        keys = found.aws_temp_credentials
        if self.kind == "s3" and keys is not None:
            return {
                "access_key_id": keys.access_key_id,
                "secret_access_key": keys.secret_access_key,
                "token": keys.session_token or None,
                **expires,
            }
        signature = found.azure_user_delegation_sas
        if self.kind == "az" and signature is not None:
            return {"sas_token": signature.sas_token.lstrip("?"), **expires}
        token = found.gcp_oauth_token
        if self.kind == "gs" and token is not None:
            return {"token": token.oauth_token, **expires}
        raise StoreError(
            operation="ask the catalog for credentials",
            path=self.table.location,
            reason=f"the answer of {self.table.client.place} has no {_FIELDS[self.kind]} for this "
            "storage",
            remedy="Check the location of the table, and the server's settings for it",
        )


def _end_of(found: Credentials) -> int | None:
    """Return when credentials end; None if the answer states no time, or one that is no date."""
    end = found.expiration_time
    return end if end is not None and 0 < end < _LAST_MS else None


def find(text: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the location of a table by its address, and the options for it. This asks the catalog.

    Raises
    ------
    NotFoundError
        There is no such table.
    UnsupportedFeatureError
        It is not a Delta table, or its storage is not one that credentials are given for.
    """
    access, rest = access_of(text, options)
    opened = rest.get(UNITY)
    if isinstance(opened, UnityTable):  # These are the options of another table.
        access = access.with_token_of(opened.client.access)
    if access.address.table is None:
        raise NotFoundError(
            path=text,
            reason="this is the address of a catalog, not of a table",
            remedy="Open it as a catalog, or add /schema.table",
        )
    name = access.address.table
    client = Client(replace(access, address=access.address._replace(table=None)))
    table = table_of(client, name, client.table(name))
    return table.location, {**rest, UNITY: table}


def as_text(place: str, options: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return a place and its options for another program, as texts.

    A table of Unity Catalog is named by its address, and the token is shown: keep it secret. With
    the options of another table, a place remains as it is.
    """
    table: UnityTable | None = options.get(UNITY)
    if table is None and TOKEN not in options:
        return place, options
    rest = {name: value for name, value in options.items() if name not in (UNITY, TOKEN)}
    secret: Secret = options.get(TOKEN, Secret())
    if table is not None:
        if not is_address(place):
            if not same_place(root_of(table.location), place):
                return place, rest
            place = table.address
        access, _ = access_of(place, {TOKEN: secret})
        secret = access.with_token_of(table.client.access).given
    return place, {**rest, **({"token": secret.reveal()} if secret else {})}


def root_of(place: str) -> str:
    """Return a place as the root of its store: decoded, and absolute on the local disk."""
    if is_file_uri(place):
        return file_path(place, decode=True)
    is_local = scheme_of(place) in (None, "file")
    return os.path.abspath(os.path.expanduser(place)) if is_local else place


def is_delta(info: TableInfo) -> bool:
    """Return whether a table of the catalog is a Delta table, not a view or one of other files."""
    return info.table_type in (MANAGED, EXTERNAL) and info.data_source_format == _DELTA


def table_of(client: Client, name: str, info: TableInfo) -> UnityTable:
    """Return a table that can be opened.

    Raises
    ------
    UnsupportedFeatureError
        It is not a Delta table, or the catalog states no location or id.
    """
    if not is_delta(info):
        is_table = info.table_type in (MANAGED, EXTERNAL)
        said = (is_table and info.data_source_format) or info.table_type
        raise UnsupportedFeatureError(
            path=name,
            features=(said,),
            reason=f"{client.full_name(name)} is no Delta table in the catalog, but {said}",
            remedy="Read it with an engine that has this format",
        )
    if not info.storage_location or not info.table_id:
        raise UnsupportedFeatureError(
            path=name,
            features=("a table without location",),
            reason=f"the catalog states no location or id of {client.full_name(name)}",
            remedy="Ask the operator of the server",
        )
    scheme = scheme_of(info.storage_location)
    if scheme != "file" and kind_of(scheme or "") is None:
        raise UnsupportedFeatureError(
            path=info.storage_location,
            features=(str(scheme),),
            reason=f"{client.full_name(name)} is in a storage that txlog has no credentials for",
            remedy="Read it with an engine that has this storage",
        )
    commits: Literal["catalog", "anybody", "nobody"] = "anybody"
    if info.table_type == MANAGED:
        is_ours = any(info.properties.get(feature) == "supported" for feature in _FEATURES)
        commits = "catalog" if is_ours else "nobody"
    return UnityTable(client, name, info.table_id, info.storage_location, commits)
