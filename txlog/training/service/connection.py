"""Requests of the client, and the errors in responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from txlog.base.effects import REAL
from txlog.base.errors import (
    AlreadyExistsError,
    CommitConflictError,
    InvalidInputError,
    InvalidTypeError,
    NotFoundError,
    SchemaMismatchError,
    StoreError,
    TxlogError,
    UnsupportedFeatureError,
)
from txlog.training.datasets.access import AccessError

KINDS: dict[str, type[TxlogError]] = {
    kind.code: kind
    for kind in (
        AccessError,
        AlreadyExistsError,
        CommitConflictError,
        InvalidInputError,
        InvalidTypeError,
        NotFoundError,
        SchemaMismatchError,
        UnsupportedFeatureError,
    )
}
"""The errors that a server can return, by their codes."""
TRIES = 4
_LONGEST_PAUSE_S = 10.0


class Connection:
    """Sends requests, and raises the error that an error response describes."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        txn: tuple[str, int] | None = None,
    ) -> Any:
        """Return the JSON of a response, or None if it has no body; errors as for `answer`."""
        found = self.answer(method, path, query=query, body=body, txn=txn)
        return found.json() if found.content else None

    def answer(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        txn: tuple[str, int] | None = None,
    ) -> httpx.Response:
        """Return the response to a request that was not refused.

        Raises
        ------
        StoreError
            The server cannot be reached, or has a problem of its own.
        AccessError, NotFoundError, InvalidInputError, …
            The server refused the request; `KINDS` has all types.
        """
        headers = {} if txn is None else {"Idempotency-Key": f"{txn[0]}:{txn[1]}"}
        given = {name: value for name, value in (query or {}).items() if value is not None}
        # Only a request without a second effect is repeated.
        tries = TRIES if method == "GET" or txn is not None else 1
        for left in range(tries - 1, -1, -1):
            try:
                answer = self.client.request(method, path, params=given, json=body, headers=headers)
            except httpx.TransportError as error:
                # The transport has already repeated failed connections. After a timeout, the server
                # may still work on the request.
                is_at_work = body is not None and isinstance(error, httpx.ReadTimeout)
                if left and not (is_at_work or isinstance(error, httpx.ConnectError)):
                    continue
                address = f"{self.client.base_url}{path}"
                raise _unreachable(method.lower(), address, error) from error
            if answer.status_code == 503 and left:
                delay = answer.headers.get("retry-after", "")
                REAL.sleep_s(min(float(delay) if delay.isdigit() else 1.0, _LONGEST_PAUSE_S))
                continue
            break
        if answer.is_success:
            return answer
        raise _error_of(answer)

    @contextmanager
    def opened(self, path: str) -> Iterator[_Body]:
        """Yield the bytes of a response. After a redirect, another host gets no credentials."""
        try:
            with self.client.stream("GET", path, follow_redirects=True) as answer:
                if not answer.is_success:
                    answer.read()
                    raise _error_of(answer)
                yield _Body(answer.iter_bytes())
        except httpx.TransportError as error:
            raise _unreachable("read", f"{self.client.base_url}{path}", error) from error


def _unreachable(operation: str, path: str, error: Exception) -> StoreError:
    return StoreError(
        operation=operation,
        path=path,
        reason=f"{type(error).__name__}: {error}",
        remedy="Check the address, and that the server runs",
    )


class _Body:
    """The bytes of a response, as a file; each read returns what has arrived."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks

    def read(self, _: int = -1) -> bytes:
        """Return the next bytes, or none at the end."""
        return next(self._chunks, b"")


def _error_of(answer: httpx.Response) -> TxlogError:
    """Return the error for a server's problem."""
    try:
        problem = answer.json()
        detail, code, facts = problem["detail"], problem["code"], dict(problem["fields"])
    except (ValueError, KeyError, TypeError):
        detail, code, facts = f"the server answered {answer.status_code}", "", {}
    kind = KINDS.get(code)
    if kind is None:
        return StoreError(
            operation="request",
            path=str(answer.request.url.copy_with(query=None)),
            reason=f"{detail} (status {answer.status_code})",
            remedy="Try again later, or ask the operator of the server",
        )
    known = {name: facts[name] for name in facts if name in kind.__dataclass_fields__}
    return kind(reason=detail, **known)
