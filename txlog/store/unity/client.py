"""Requests to Unity Catalog, and its answers.

The interface is that of the project's OpenAPI document: paths below `/api/2.1/unity-catalog`.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from txlog.base.effects import REAL
from txlog.base.errors import (
    AlreadyExistsError,
    NotFoundError,
    StoreError,
    TxlogError,
    not_installed,
)
from txlog.store.cloud_options import without_options
from txlog.store.places import same_place
from txlog.store.unity.address import VARIABLES, Access

if TYPE_CHECKING:
    import httpx

ROOT = "/api/2.1/unity-catalog"
TRIES = 4
_TIMEOUT_S = 60.0
_LONGEST_PAUSE_S = 10.0
_BUSY = (429, 502, 503, 504)  # The same request may succeed a little later.
_DONE = (b"", b"200 OK")  # How the open server says that it is done, beside an empty object.
_LONGEST_MESSAGE = 300
_PAGE = 50  # The largest page of tables that the interface allows.


def _present(value: Any) -> Any:
    """Return an answer without nulls, which servers write for a field that is not there."""
    if not isinstance(value, dict):
        return value
    return {name: _present(one) for name, one in value.items() if one is not None}


class Model(BaseModel):
    """A part of an answer. Fields that are not named here are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        return _present(value)


class Empty(Model):
    """An answer in which nothing counts."""


class CatalogInfo(Model):
    """A catalog."""

    name: str
    id: str | None = None


class SchemaInfo(Model):
    """A schema, which is the namespace of tables."""

    name: str


class SchemaPage(Model):
    """Some schemas."""

    schemas: list[SchemaInfo] = []
    next_page_token: str | None = None


class TableInfo(Model):
    """A table."""

    name: str
    schema_name: str
    table_type: str
    data_source_format: str | None = None
    storage_location: str | None = None
    table_id: str | None = None
    properties: dict[str, str] = {}
    comment: str | None = None
    created_at: int | None = None


class TablePage(Model):
    """Some tables."""

    tables: list[TableInfo] = []
    next_page_token: str | None = None


class StagingTable(Model):
    """A place for a managed table that is to be made."""

    id: str
    staging_location: str


class AwsCredentials(Model):
    """Keys of S3."""

    access_key_id: str
    secret_access_key: str
    session_token: str | None = None


class AzureSas(Model):
    """A shared access signature of Azure."""

    sas_token: str


class GcpToken(Model):
    """An OAuth token of Google Cloud."""

    oauth_token: str


class Credentials(Model):
    """Credentials for the storage of a table, for a limited time."""

    aws_temp_credentials: AwsCredentials | None = None
    azure_user_delegation_sas: AzureSas | None = None
    gcp_oauth_token: GcpToken | None = None
    expiration_time: int | None = None  # Milliseconds since the epoch.


class _Problem(Model):
    error_code: str = ""
    message: str = ""


Answer = TypeVar("Answer", bound=Model)


class Response(NamedTuple):
    """The answer of a server."""

    status: int
    kind: str  # The type of its content.
    body: bytes

    @property
    def is_success(self) -> bool:
        """Whether the request was done."""
        return 200 <= self.status < 300


class ForbiddenError(StoreError):
    """The server does not allow the request to the owner of the token."""


class RefusedError(Exception):
    """The server surely did not do what was asked; `error` is what a caller gets to know."""

    def __init__(self, error: TxlogError) -> None:
        super().__init__(str(error))
        self.error = error


class LostError(Exception):
    """No answer came.

    Parameters
    ----------
    error
        What a caller gets to know.
    is_sent
        Whether the server may have got the request.
    """

    def __init__(self, error: StoreError, *, is_sent: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.is_sent = is_sent


class Client(NamedTuple):
    """Sends requests to the server of a catalog. It pickles, without the token."""

    access: Access

    @property
    def place(self) -> str:
        """The address of the catalog."""
        return str(self.access.address._replace(table=None))

    def url(self, path: str, **parts: str) -> str:
        """Return the URL of an operation; `{name}` in the path is a part."""
        named = {name: quote(part, safe="") for name, part in parts.items()}
        return f"{self.access.address.server}{ROOT}{path.format(**named)}"

    def send(
        self,
        method: str,
        url: str,
        *,
        query: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Response:
        """Send a request once.

        Raises
        ------
        LostError
            There is no answer.
        StoreError
            No request to such a host can be made.
        """
        token = self.access.token
        headers = {"Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        http = _http(self.access.address.server)
        import httpx

        try:
            answer = http.request(method, url, params=query, json=body, headers=headers)
        except (httpx.InvalidURL, ValueError) as error:  # Such as a name that no host can have.
            reason = f"no request can be made: {type(error).__name__}"
            raise self.failed(method, url, reason, UNREACHABLE) from None
        except httpx.HTTPError as error:
            is_sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            reason = f"{type(error).__name__}: {error}".strip(": ")
            if isinstance(error, httpx.LocalProtocolError):  # It quotes what cannot be sent.
                reason = type(error).__name__
            raise LostError(
                self.failed(method, url, reason, UNREACHABLE), is_sent=is_sent
            ) from None
        return Response(
            answer.status_code, answer.headers.get("content-type", "none"), answer.content
        )

    def ask(
        self,
        method: str,
        path: str,
        answer: type[Answer],
        *,
        query: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
        is_repeatable: bool = True,
        **parts: str,
    ) -> Answer:
        """Send a request, several times if no answer comes, and return the answer.

        Parameters
        ----------
        is_repeatable
            Whether a second request has no second effect.

        Raises
        ------
        NotFoundError
            The server does not know what the request names.
        StoreError
            It cannot be reached, refuses the request, or its answer is not one of the interface.
        """
        url = self.url(path, **parts)
        for left in range(TRIES - 1, -1, -1):
            try:
                found = self.send(method, url, query=query, body=body)
            except LostError as lost:
                if not left or (lost.is_sent and not is_repeatable):
                    raise lost.error from None
            else:
                if found.status not in _BUSY or not left or not is_repeatable:
                    break
            pause(TRIES - left)
        if not found.is_success:
            raise self.refused(method, url, found)
        return self.parsed(method, url, found, answer)

    def parsed(self, method: str, url: str, found: Response, answer: type[Answer]) -> Answer:
        """Return the content of an answer.

        Raises
        ------
        StoreError
            It is not one of the interface: another kind of content, or wrong or missing fields.
        """
        if answer is Empty and found.body.strip() in _DONE:
            return answer()
        try:
            return answer.model_validate_json(found.body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            field = ".".join(map(str, first["loc"]))
            reason = f"field {field}: {first['msg']}" if field else first["msg"]
            if first["type"] == "json_invalid":
                reason = f"no JSON, but {found.kind}"
            raise self.failed(
                method, url, f"the answer is not one of Unity Catalog: {reason}", WRONG_SERVER
            ) from None

    def refused(self, method: str, url: str, found: Response) -> TxlogError:
        """Return the error for an answer that is no success."""
        try:
            problem = _Problem.model_validate_json(found.body)
        except ValidationError:
            problem = _Problem()
        said = " ".join(f"{problem.error_code} {problem.message}".split())[:_LONGEST_MESSAGE]
        reason = f"the server answered {found.status}{': ' if said else ''}{said}"
        if found.status == 404 and problem.error_code:
            return NotFoundError(
                path=self.place,
                reason=self._clean(f"{method} {url}: {reason}"),
                remedy="Check the names: those of the catalog, the schema and the table",
            )
        if found.status == 409:
            return AlreadyExistsError(
                path=self.place,
                reason=self._clean(f"{method} {url}: {reason}"),
                remedy="Choose another name, or drop that table",
            )
        if found.status in (401, 403):
            kind = ForbiddenError if found.status == 403 else StoreError
            return self.failed(method, url, reason, NOT_ALLOWED, kind)
        return self.failed(method, url, reason, WRONG_SERVER if found.status < 500 else LATER)

    def failed(
        self, method: str, url: str, reason: str, remedy: str, kind: type[StoreError] = StoreError
    ) -> StoreError:
        """Return the error of a request."""
        # Who opens a table names its folder as the path of an error, so the reason has the URL.
        return kind(
            operation="ask the catalog",
            path=self.place,
            reason=self._clean(f"{method} {url}: {reason}"),
            remedy=remedy,
        )

    def _clean(self, text: str) -> str:
        for token in self.access.secrets:
            text = without_options(text, {"token": token})
        return text

    # What several operations share -------------------------------------------------------------

    def catalog(self) -> CatalogInfo:
        """Return the catalog; errors as for `ask`."""
        name = self.access.address.catalog
        return self.ask("GET", "/catalogs/{name}", CatalogInfo, name=name)

    def schemas(self) -> list[str]:
        """Return the names of all schemas, ascending; errors as for `ask`."""
        query = {"catalog_name": self.access.address.catalog}
        pages = self._pages("/schemas", SchemaPage, query)
        return sorted(schema.name for page in pages for schema in page.schemas)

    def tables(self, schema: str) -> Iterator[TableInfo]:
        """Yield the tables of a schema, in any order; errors as for `ask`."""
        query = {"catalog_name": self.access.address.catalog, "schema_name": schema}
        for page in self._pages("/tables", TablePage, {**query, "max_results": _PAGE}):
            yield from page.tables

    def has_at(self, location: str) -> bool:
        """Return whether a table of the catalog is at a location; errors as for `ask`."""
        return any(
            one.storage_location is not None and same_place(one.storage_location, location)
            for schema in self.schemas()
            for one in self.tables(schema)
        )

    def table(self, name: str) -> TableInfo:
        """Return a table by the name `schema.table`; errors as for `ask`."""
        return self.ask("GET", "/tables/{name}", TableInfo, name=self.full_name(name))

    def stage(self, name: str) -> StagingTable:
        """Return a place for a new managed table; errors as for `ask`."""
        # A second one is never used, and has no effect.
        body = self._named(name)
        return self.ask("POST", "/staging-tables", StagingTable, body=body)

    def create(self, name: str, given: Mapping[str, Any]) -> TableInfo:
        """Register a table, whose files are there.

        If the answer is lost, the catalog is asked whether it has the table.

        Raises
        ------
        RefusedError
            The server refuses it. With `AlreadyExistsError`, the catalog has a table of this name
            or at this place.
        StoreError
            As for `ask`.
        """
        url = self.url("/tables")
        error: TxlogError
        try:
            found = self.send("POST", url, body={**self._named(name), **given})
            if found.is_success:
                return self.parsed("POST", url, found, TableInfo)
            error = self.refused("POST", url, found)
            if found.status < 500 and found.status != 408:
                raise RefusedError(error)
        except LostError as lost:
            error = lost.error
        except StoreError as damaged:
            error = damaged
        with suppress(TxlogError):
            known = self.table(name)
            if known.storage_location == given["storage_location"]:
                return known
        raise error

    def _named(self, name: str) -> dict[str, str]:
        schema, _, table = name.partition(".")
        catalog = self.access.address.catalog
        return {"catalog_name": catalog, "schema_name": schema, "name": table}

    def drop(self, name: str, table_id: str | None) -> None:
        """Drop a table by the name `schema.table`, but no other one that has the name meanwhile.

        Errors as for `ask`.
        """
        url = self.url("/tables/{name}", name=self.full_name(name))
        for left in range(TRIES - 1, -1, -1):
            try:
                found = self.send("DELETE", url)
            except LostError as lost:
                if not left:
                    raise lost.error from None
            else:
                # After a lost answer, another process may have dropped what was still there.
                if found.is_success or (found.status == 404 and left < TRIES - 1):
                    return
                if found.status not in _BUSY or not left:
                    raise self.refused("DELETE", url, found)
            pause(TRIES - left)
            try:
                if self.table(name).table_id != table_id:
                    return
            except NotFoundError:
                return

    def full_name(self, name: str) -> str:
        """Return the name of a table with that of the catalog."""
        return f"{self.access.address.catalog}.{name}"

    def _pages(self, path: str, kind: type[Page], query: Mapping[str, str | int]) -> Iterator[Page]:
        """Yield all pages of a list."""
        seen: set[str] = set()
        token: str | None = None
        while True:
            more = {} if token is None else {"page_token": token}
            page = self.ask("GET", path, kind, query={**query, **more})
            yield page
            token = page.next_page_token
            if not token:
                return
            if token in seen:  # Else the list would never end.
                reason = "the answer is not one of Unity Catalog: its pages begin again"
                raise self.failed("GET", self.url(path), reason, WRONG_SERVER)
            seen.add(token)


Page = TypeVar("Page", SchemaPage, TablePage)

UNREACHABLE = "Check the address, and that the server runs"
WRONG_SERVER = "Check the address: it is that of a server with Unity Catalog's interface"
NOT_ALLOWED = (
    f"Check the token (the storage option 'token', or the variable {VARIABLES[0]}), and what its "
    "owner may do in the catalog"
)
LATER = "Try again later, or ask the operator of the server"


def pause(attempt: int) -> None:
    """Wait before the next attempt, longer each time."""
    REAL.sleep_s(min(_LONGEST_PAUSE_S, 0.1 * 4 ** (attempt - 1)) * (0.5 + REAL.jitter() / 2))


_MOST_SERVERS = 16
_open: dict[tuple[str, int], httpx.Client] = {}


def _http(server: str) -> httpx.Client:
    """Return the connections of this process to a server; they do not survive a fork."""
    try:
        import httpx
    except ImportError as error:
        reason = f"a package for Unity Catalog is missing: {error}"
        raise not_installed("unity", "Unity Catalog", reason, path=server) from error

    key = server, os.getpid()
    if key not in _open:
        if not _open:
            atexit.register(_close, 0)
        _close(_MOST_SERVERS - 1)
        # Redirects lead to pages for people, and would take the token along.
        made = httpx.Client(timeout=_TIMEOUT_S, follow_redirects=False)
        if _open.setdefault(key, made) is not made:  # Another thread was first.
            made.close()
    return _open[key]


def _close(kept: int) -> None:
    """Close the oldest connections of this process, except for so many servers."""
    own = [key for key in _open if key[1] == os.getpid()]
    for key in own[: len(own) - kept]:
        if (client := _open.pop(key, None)) is not None:
            client.close()
