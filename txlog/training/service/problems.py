"""Errors as responses: `application/problem+json` over HTTP, status codes over gRPC. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from txlog.base.errors import (
    AlreadyExistsError,
    CommitConflictError,
    EngineError,
    InvalidInputError,
    NotFoundError,
    OutcomeUnknownError,
    OutOfMemoryError,
    StoreError,
    TxlogError,
    UnsupportedFeatureError,
)
from txlog.base.remedies import reworded
from txlog.training.datasets.access import AccessError

RETRY_AFTER_S = 5
# The first matching class counts: HTTP status, name of the gRPC status.
_STATUSES: tuple[tuple[type[TxlogError], int, str], ...] = (
    (AccessError, 401, "UNAUTHENTICATED"),
    (NotFoundError, 404, "NOT_FOUND"),
    (AlreadyExistsError, 409, "ALREADY_EXISTS"),
    (CommitConflictError, 409, "ABORTED"),
    (InvalidInputError, 422, "INVALID_ARGUMENT"),
    (UnsupportedFeatureError, 501, "UNIMPLEMENTED"),
    (OutcomeUnknownError, 503, "UNAVAILABLE"),
    (StoreError, 503, "UNAVAILABLE"),
    (EngineError, 503, "UNAVAILABLE"),
    (OutOfMemoryError, 503, "UNAVAILABLE"),
)
_FIELD = re.compile(r'(form|tags)=(".*"|\{.*\})', re.DOTALL)  # Of bodies of requests.
_REQUESTS = {"fetch": "GET /v1/datasets/{dataset}/training-sets/{version_hash}?wait=60"}
_UNDELETE = re.compile(r"datasets\.dataset\((\d+)\)\.undelete\(\)")
_PUBLIC = frozenset({"argument", "field", "version"})  # Paths may reveal private facts.


def status_of(error: TxlogError) -> tuple[int, str]:
    """Return the HTTP status, and the name of the gRPC status."""
    if isinstance(error, AccessError) and error.is_known:
        return 403, "PERMISSION_DENIED"
    for kind, status, name in _STATUSES:
        if isinstance(error, kind):
            return status, name
    return 500, "INTERNAL"


def on_http(code: str) -> str | None:
    """Return what a caller over HTTP sends for a piece of Python in a remedy; None if nothing."""
    if (undelete := _UNDELETE.fullmatch(code)) is not None:
        return f"POST /v1/datasets/{undelete[1]}:undelete"
    keyword = _FIELD.fullmatch(code)
    return f'"{keyword[1]}": {keyword[2]}' if keyword else _REQUESTS.get(code.partition("(")[0])


def text_of(error: TxlogError, words: Callable[[str], str | None] = on_http) -> str:
    """Return the text for a caller: reason and remedy; no details of internal errors.

    `words` returns what the caller writes for a piece of Python, as `on_http` does.
    """
    if status_of(error)[0] >= 500 and not isinstance(error, UnsupportedFeatureError):
        return f"{error.summary}; the server's log has the details"
    reason = error.reason or error.summary
    return f"{reason}. {reworded(error.remedy, words)}" if error.remedy else reason


def problem_of(error: TxlogError) -> dict[str, Any]:
    """Return the body of a response."""
    known = {field.name for field in fields(error)} & _PUBLIC
    facts = {name: getattr(error, name) for name in sorted(known)}
    return {
        "type": f"urn:txlog:error:{error.code}",
        "title": error.summary,
        "status": status_of(error)[0],
        "code": error.code,
        "detail": text_of(error),
        "fields": {name: value for name, value in facts.items() if value is not None},
    }
