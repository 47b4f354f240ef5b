"""Errors as HTTP responses, and checks of request bodies."""

from __future__ import annotations

import logging
from collections.abc import Generator
from itertools import chain
from threading import Semaphore
from typing import Any

from anyio import CancelScope, fail_after
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from txlog.base.errors import InvalidInputError, TxlogError
from txlog.training.service.problems import RETRY_AFTER_S, problem_of

PROBLEM = "application/problem+json"
MOST_BODY_BYTES = 1 << 20
# Each export has a thread, and takes one of those of the server while it waits for rows.
MOST_EXPORTS = 16
STALLED_S = 300.0  # The time after which an export ends whose receiver takes no bytes.
_LOG = logging.getLogger("txlog.serve")


def _answer(problem: dict[str, Any]) -> JSONResponse:
    headers = {}
    if problem["status"] == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if problem["status"] == 503:
        headers["Retry-After"] = str(RETRY_AFTER_S)
    return JSONResponse(problem, problem["status"], headers, media_type=PROBLEM)


async def on_error(request: Request, error: Exception) -> Response:
    """Respond with an error of txlog."""
    assert isinstance(error, TxlogError)
    problem = problem_of(error)
    if (argument := problem["fields"].get("argument")) is not None:
        problem["fields"]["argument"] = _in_request(argument, request)
    if problem["status"] >= 500:
        _LOG.error("%s %s: %s", request.method, request.url.path, error, exc_info=error)
    return _answer(problem)


def _in_request(argument: str, request: Request) -> str:
    """Return what requests call an argument of Python: by the names in the address, for example."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute):
        return argument
    of = route.dependant
    written = {one.name: one.alias for one in (*of.path_params, *of.query_params)}
    if argument == "wanted":  # A commit, as `Dataset.commit` calls it.
        argument = "commit"
    return written.get(argument, argument)


async def on_invalid(_: Request, error: Exception) -> Response:
    """Respond to a request that does not fit its model."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return _answer(
            problem_of(InvalidInputError(argument="body", reason="the body is not JSON"))
        )
    place = ".".join(str(step) for step in first["loc"][1:])
    wrong = InvalidInputError(argument=place or None, reason=f"{place or 'body'}: {first['msg']}")
    return _answer(problem_of(wrong))


async def on_http(_: Request, error: Exception) -> Response:
    """Respond to an error of the framework, such as an unknown path."""
    assert isinstance(error, HTTPException)
    return _plain_problem(error.status_code, str(error.detail))


async def on_fault(request: Request, error: Exception) -> Response:
    """Respond to an internal error, without its details."""
    _LOG.error("%s %s", request.method, request.url.path, exc_info=error)
    return _plain_problem(500, "an internal error; the server's log has the details")


def _plain_problem(status: int, detail: str) -> JSONResponse:
    return _answer(
        {
            "type": "about:blank",
            "title": detail,
            "status": status,
            "code": {404: "not-found", 405: "method-not-allowed"}.get(status, f"http-{status}"),
            "detail": detail,
            "fields": {},
        }
    )


class Bounded:
    """An ASGI application that refuses some requests, and gives the others to another one.

    It is no middleware of responses, which would end an answer that an error cut off as if it were
    complete.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request."""
        refused = _refused(Request(scope)) if scope["type"] == "http" else None
        await (refused or self._app)(scope, receive, send)


def _refused(request: Request) -> Response | None:
    """Refuse requests from other sites, and bodies that are not JSON or are too large.

    Without this check, a page of another site in a browser on this machine could send requests.
    """
    host = request.headers.get("host", "")
    known = request.app.state.hosts
    if known is not None and host.rpartition(":")[0] not in known and host not in known:
        return _plain_problem(400, "the server does not serve this host name")
    origin = request.headers.get("origin")
    if request.method not in ("GET", "HEAD", "OPTIONS") and (
        request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
        or (origin is not None and origin.partition("://")[2] != host)
    ):
        return _plain_problem(403, "the request comes from another site")
    length = request.headers.get("content-length", "0")
    if "transfer-encoding" in request.headers:
        return _plain_problem(411, "the header Content-Length is needed")
    if not length.isdigit() or int(length) > MOST_BODY_BYTES:
        return _plain_problem(413, f"a body has at most {MOST_BODY_BYTES} bytes")
    if int(length) and request.headers.get("content-type", "").partition(";")[0].strip() != (
        "application/json"
    ):
        return _plain_problem(415, "expected Content-Type: application/json")
    return None


class ExportAnswer(StreamingResponse):
    """An export, whose thread ends with the answer, and when the receiver stalls."""

    def __init__(
        self, first: bytes, chunks: Generator[bytes, None, None], slots: Semaphore, name: str
    ) -> None:
        headers = {
            "Content-Disposition": f'attachment; filename="{name}"',
            "X-Content-Type-Options": "nosniff",
        }
        self._chunks, self._slots = chunks, slots
        super().__init__(
            chain([first], chunks), headers=headers, media_type="application/octet-stream"
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the bytes; an error cuts the answer off."""

        async def send_or_end(message: Message) -> None:
            with fail_after(STALLED_S):
                await send(message)

        try:
            await super().__call__(scope, receive, send_or_end)
        finally:
            with CancelScope(shield=True):  # Also if the receiver has left.
                try:
                    await run_in_threadpool(self._chunks.close)
                finally:
                    self._slots.release()


def export_answer(chunks: Generator[bytes, None, None], slots: Semaphore, name: str) -> Response:
    """Return the answer with an export, or 503 if too many are being sent.

    Errors before the first bytes are raised, so that they have answers of their own.
    """
    if not slots.acquire(blocking=False):
        return _plain_problem(503, "the server sends as many exports as it may: try again later")
    try:
        first = next(chunks, b"")
    except BaseException:
        slots.release()
        raise
    return ExportAnswer(first, chunks, slots, name)
