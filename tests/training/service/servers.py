"""A catalog in three forms for callers: itself, over HTTP, and over gRPC."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any, cast

import grpc
import httpx

from txlog.training import Datasets, RemoteDatasets, connect, create_app, create_server
from txlog.training.service.auth import Authenticator
from txlog.training.service.connection import KINDS
from txlog.training.service.messages import messages
from txlog.training.service.rpc import TYPES

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
    catalog: Datasets, token: str | None = None, **options: Any
) -> Iterator[RemoteDatasets]:
    """Yield a client of a server of its own, over a real socket."""
    import socket

    import uvicorn

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    programs = options.pop("programs", ())
    app = create_app(catalog, options.pop("authenticator", None), programs=programs)
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

    def __init__(self, channel: grpc.Channel, address: str, token: str | None = None) -> None:
        self.address = address
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
    catalog: Datasets, authenticator: Authenticator | None = None, token: str | None = None
) -> Iterator[Stub]:
    """Yield calls of a server of its own."""
    server, port = create_server(catalog, authenticator, address="127.0.0.1:0")
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield Stub(channel, f"127.0.0.1:{port}", token)
    finally:
        server.stop(grace=None).wait()


class GrpcCatalog:
    """The calls of the chapter under the names of the catalog's methods, and with its errors."""

    def __init__(self, call: Stub) -> None:
        self._call = call

    def send(self, name: str, /, **request: Any) -> Any:
        try:
            return self._call(name, **request)
        except grpc.RpcError as error:
            call = cast(grpc.Call, error)  # What a call raises is the call itself.
            trailing = dict(call.trailing_metadata())
            kind = KINDS[str(trailing["txlog-code"])]
            raise kind(reason=call.details()) from error

    def create(self, name: str, type: str, source: str = "", **more: Any) -> GrpcDataset:
        bucket, _, path = source.partition("/")
        request = {"name": name, "description": more.get("description"), "bucket": bucket}
        made = self.send(
            "CreateDataset", **request, path=path, dataset_type=type, tags=_tags(more.get("tags"))
        )
        return GrpcDataset(self, made)

    def dataset(self, wanted: int) -> GrpcDataset:
        return GrpcDataset(self, self.send("GetDatasetSummary", dataset_id=str(wanted)))

    def list(self, limit: int = 0, after: int = 0) -> list[Any]:
        return [_summary(one) for one in self.send("ListDatasets", limit=limit, index=after)]


class GrpcDataset:
    """A data set by its calls."""

    def __init__(self, sets: GrpcCatalog, made: Any) -> None:
        self._send = partial(sets.send, dataset_id=made.dataset_id)
        found = _summary(made)
        self.dataset_id, self.name, self.type = found.dataset_id, found.name, found.type

    def summary(self) -> Any:
        return _summary(self._send("GetDatasetSummary"))

    def commits(self) -> list[Any]:
        return [*self.summary().commits]

    def update(self, source: str, message: str = "", tags: Any = None) -> Any:
        bucket, _, path = source.partition("/")
        made = self._send(
            "UpdateDataset", commit_message=message, bucket=bucket, path=path, tags=_tags(tags)
        )
        return _summary(made).commits[-1]

    def prepare(self, commit: Any = None, tags: Any = None, form: str = "csv") -> Any:
        assert form == "csv"
        wanted = "" if commit is None else str(commit)
        made = self._send("PrepareTrainingDataset", commit_id=wanted, tags=_tags(tags))
        return SimpleNamespace(
            version_hash=made.version_hash, picked=tuple(int(c.commit_id) for c in made.commits)
        )

    def fetch(self, version_hash: str, wait_s: float = 0) -> Any:
        until = monotonic() + wait_s
        while True:
            made = self._send("FetchTrainingDataset", version_hash=version_hash)
            if made.state != 0 or monotonic() > until:
                break
            sleep(0.01)
        return SimpleNamespace(
            state=("RUNNING", "READY", "FAILED")[made.state],
            parts=made.parts,
            statistics={name: int(value) for name, value in made.statistics.items()},
        )

    def delete(self) -> None:
        self._send("DeleteDataset")


def _tags(tags: Any) -> list[dict[str, str]]:
    return [{"tag_key": key, "tag_value": value} for key, value in (tags or {}).items()]


def _summary(made: Any) -> Any:
    return SimpleNamespace(
        dataset_id=int(made.dataset_id),
        name=made.name,
        type=TYPES[made.dataset_type],
        description=made.description or None,
        commits=tuple(
            SimpleNamespace(
                commit_id=int(one.commit_id),
                message=one.commit_message,
                tags={tag.tag_key: tag.tag_value for tag in one.tags},
                statistics={name: int(value) for name, value in one.statistics.items()},
            )
            for one in made.commits
        ),
    )


def within(app: Any) -> httpx.Client:
    """Return a client of an application in this process."""
    from starlette.testclient import TestClient

    return TestClient(app, base_url="http://localhost", raise_server_exceptions=False)
