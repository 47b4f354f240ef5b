"""A proxy in front of a server, with faults like those of a network."""

import contextlib
import http.client
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import urlsplit

Failure = Literal["lost answer", "lost request", "503", "reset", "slow", "twice"]
Plan = Callable[[str, str], Failure | None]  # Of a method and a path.

SLOW_S = 1.5
_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class Proxy(ThreadingHTTPServer):
    """Passes requests on, and has some fail as `plan` says.

    `requests` are the methods and paths that came, `signed` their headers that tell who asks;
    `headers` renames headers of requests.
    """

    daemon_threads = True

    def __init__(self, url: str, plan: Plan, headers: dict[str, tuple[str, str]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = urlsplit(url)
        self.plan = plan
        self.renamed = headers
        self.requests: list[tuple[str, str]] = []
        self.signed: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients hang up, as they are meant to."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Proxy

    def do_any(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        self.server.requests.append((self.command, self.path))
        self.server.signed.append(self.headers.get("authorization") or "")
        failure = self.server.plan(self.command, self.path)
        if failure == "slow":  # Its client does not wait for so long, but it is done.
            time.sleep(SLOW_S)
        if failure in ("reset", "lost request"):
            self._hang_up()
            return
        if failure == "503":
            self.send_response(503)
            self.send_header("content-length", "0")
            self.end_headers()
            return
        data, answer = self._asked(body)
        if failure == "twice":  # As a network may send a request again; the later answer comes.
            data, answer = self._asked(body)
        if failure == "lost answer":
            self._hang_up()
            return
        self.send_response(answer.status)
        sized = False
        for name, value in answer.getheaders():
            if name.lower() == "content-length" and self.command == "HEAD":
                self.send_header(name, value)
                sized = True
            elif name.lower() not in _HOP:
                self.send_header(name, value)
        if not sized:
            self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _asked(self, body: bytes) -> tuple[bytes, http.client.HTTPResponse]:
        """Return the server's answer."""
        target = self.server.target
        connection = http.client.HTTPConnection(target.hostname or "", target.port, timeout=60)
        try:
            headers = {
                name: value for name, value in self.headers.items() if name.lower() not in _HOP
            }
            for name in list(headers):
                if name.lower() in self.server.renamed:
                    new, value = self.server.renamed[name.lower()]
                    del headers[name]
                    headers[new] = value
            headers["content-length"] = str(len(body))
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            return answer.read(), answer
        finally:
            connection.close()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_any  # noqa: N815

    def _hang_up(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def proxy(
    url: str,
    plan: Plan = lambda _method, _path: None,
    headers: dict[str, tuple[str, str]] | None = None,
) -> Iterator[Proxy]:
    """Run a proxy in front of a server until the `with` ends."""
    server = Proxy(url, plan, headers or {})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def at_random(seed: int, share: float, *failures: Failure, methods: str = "PUT") -> Plan:
    """Return a plan by which a share of the requests of a method fail."""
    chance = random.Random(seed)
    lock = threading.Lock()

    def plan(method: str, path: str) -> Failure | None:
        with lock:
            fails = method in methods.split() and chance.random() < share
            return chance.choice(failures) if fails else None

    return plan
