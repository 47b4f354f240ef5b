"""A catalog as a caller meets it: itself, over HTTP, and over gRPC."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any

import grpc
import httpx

from txlog.datasets import Catalog
from txlog.serve import RemoteCatalog, connect, create_app, create_server
from txlog.serve.auth import Authenticator
from txlog.serve.messages import messages

LABELS = 151


def write_intents(path: Path, rows: int, labels: int = LABELS) -> Path:
    """Write a CSV of utterances, each with one of so many labels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerows((f"utterance {n}, please", f"intent_{n % labels}") for n in range(rows))
    return path


@contextmanager
def http_client(
    catalog: Catalog, token: str | None = None, **options: Any
) -> Iterator[RemoteCatalog]:
    """Yield a client of a server of its own, over a real socket."""
    import socket

    import uvicorn

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    app = create_app(catalog, options.pop("authenticator", None))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    thread = Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    until = monotonic() + 30
    while not server.started and monotonic() < until:
        sleep(0.005)
    client = connect(f"http://127.0.0.1:{listener.getsockname()[1]}", token, **options)
    try:
        yield client
    finally:
        client.close()
        server.should_exit = True
        thread.join()
        listener.close()


class Stub:
    """Calls of the gRPC service by their names, with JSON-like arguments."""

    def __init__(self, channel: grpc.Channel, token: str | None = None) -> None:
        self._channel = channel
        self._metadata = () if token is None else (("authorization", f"Bearer {token}"),)

    def __call__(self, name: str, /, **request: Any) -> Any:
        kinds = messages()
        method = kinds.service.methods_by_name[name]
        taken = getattr(kinds, method.input_type.name)
        given = getattr(kinds, method.output_type.name)
        make = self._channel.unary_stream if method.server_streaming else self._channel.unary_unary
        call = make(
            f"/{kinds.service.full_name}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=given.FromString,
        )
        answer = call(taken(**request), metadata=self._metadata, timeout=60)
        return [*answer] if method.server_streaming else answer


@contextmanager
def grpc_stub(
    catalog: Catalog, authenticator: Authenticator | None = None, token: str | None = None
) -> Iterator[Stub]:
    """Yield calls of a server of its own."""
    server, port = create_server(catalog, authenticator, address="127.0.0.1:0")
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield Stub(channel, token)
    finally:
        server.stop(grace=None).wait()


def within(app: Any) -> httpx.Client:
    """Return a client of an application in this process."""
    from starlette.testclient import TestClient

    return TestClient(app, base_url="http://localhost", raise_server_exceptions=False)
