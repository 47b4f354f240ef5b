"""Access to the pages: only a browser on this machine that has the token is allowed.

Any site in a browser can send requests to a server on this machine, and any user of the machine can
connect to it. So a request must contain the token in its URL or in a cookie. Its host must be this
machine; this refuses sites whose own name resolves to this machine. A form must come from a page of
this server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from hmac import compare_digest
from hmac import new as hmac
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

Message = dict[str, Any]
Send = Callable[[Any], Awaitable[None]]
Receive = Callable[[], Awaitable[Any]]
App = Callable[[Any, Receive, Send], Awaitable[None]]
Refuse = Callable[[int, str, str], Response]

HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})

HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_OPEN = ("/static/",)  # The same content for everybody.


class Guard:
    """Passes allowed requests to the app, and adds headers to all responses.

    `refuse` makes the page of a refusal from a status, a title and a text. The port is part of the
    cookie's name, because browsers send a host's cookies to all of its ports.
    """

    def __init__(self, app: App, token: str, port: int, refuse: Refuse) -> None:
        self._app = app
        self._token = token.encode()
        self._cookie = f"txlog-ui-{port}"
        self._refuse = refuse

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Respond to a request."""
        if scope["type"] != "http":
            return
        request = Request(scope)  # type: ignore[arg-type]
        answer: App = self._refusal(request) or self._app
        is_open = request.url.path.startswith(_OPEN)

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("cache-control", "max-age=3600" if is_open else "no-store")
            await send(message)

        await answer(scope, receive, send_on)

    def _refusal(self, request: Request) -> Response | None:
        """Return the response to a refused request; None for an allowed one."""
        if host_of(request.headers.getlist("host")) not in HOSTS:
            text = "The host of the request is not this machine. Open http://127.0.0.1 instead."
            return self._refuse(421, "Wrong host", text)
        if request.url.path.startswith(_OPEN):
            return None
        given = request.query_params.get("token")
        if request.method == "GET" and given is not None and self._is_token(given):
            return self._with_cookie(request)
        if not self._is_token(request.cookies.get(self._cookie, "")):
            text = "Open the address that txlog printed when it started. It ends with a token."
            return self._refuse(403, "The token is missing or wrong", text)
        if request.method == "POST" and not comes_from_here(request.headers):
            text = "The form does not come from a page of this server."
            return self._refuse(403, "The form was refused", text)
        return None

    def _is_token(self, text: str) -> bool:
        return compare_digest(text.encode("utf-8", "surrogateescape"), self._token)

    def _with_cookie(self, request: Request) -> Response:
        """Return a redirection to the same page without the token, which sets the cookie."""
        url = request.url.remove_query_params("token")
        path = url.path + (f"?{url.query}" if url.query else "")
        found = RedirectResponse("/" + path.lstrip("/"), status_code=303)
        # Not `strict`, because a page of another host, such as a notebook, may link to these pages.
        # A GET changes nothing, and a form must come from these pages and contain their secret.
        found.set_cookie(self._cookie, self._token.decode(), httponly=True, samesite="lax")
        return found


def host_of(values: list[str]) -> str:
    """Return the host of a request without its port; empty unless there is exactly one header."""
    if len(values) != 1:
        return ""
    try:
        return urlsplit(f"//{values[0]}").hostname or ""
    except ValueError:
        return ""


def comes_from_here(headers: Mapping[str, str]) -> bool:
    """Return whether a browser says that a request comes from a page of the same host and port."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site not in (None, "same-origin"):
        return False
    return origin is None or urlsplit(origin).netloc == headers.get("host")


def form_secret(token: str) -> str:
    """Return the secret in the forms of these pages, which no other page knows."""
    return hmac(token.encode(), b"form", sha256).hexdigest()


def is_form_secret(token: str, given: str) -> bool:
    """Return whether a form contains the secret."""
    return compare_digest(given.encode("utf-8", "surrogateescape"), form_secret(token).encode())
