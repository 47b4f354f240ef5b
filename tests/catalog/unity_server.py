"""A stub of Unity Catalog's server, generated from its OpenAPI document, for one test.

The document (`unity_openapi.yaml`) gives the routes, and the schemas with which each request and
each answer is checked. `Stub` has one method for each operation; a missing or unknown one is an
error. What the methods do follows the documents and the server's published behaviour.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import jsonschema
import pyarrow as pa
import yaml

import txlog

DOCUMENT = yaml.safe_load(
    Path(__file__).with_name("unity_openapi.yaml").read_text(encoding="utf-8")
)
ROOT = DOCUMENT["servers"][0]["url"]
TOKEN = "dapi-very-secret"


def is_valid(token: str) -> bool:
    """Return whether the server takes a token."""
    return token == TOKEN


MOST_UNPUBLISHED = 10
Json = dict[str, Any]


class RefusedError(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


@dataclass(frozen=True)
class Fault:
    """What happens to one request of an operation.

    `lost`: it is done, and the connection ends without an answer. `dropped`: the same, and it is
    not done. `answer`: another answer comes instead, and it is not done; `after`: it is done first.
    """

    kind: str
    status: int = 200
    body: bytes = b""
    content: str = "application/json"


@dataclass(frozen=True)
class Grant:
    """Credentials that were given."""

    subject: str  # The id of a table, or a URL.
    operation: str
    key: str
    until_ms: int | None


@dataclass
class Stub:
    """The state of a server, with one method for each operation of the document."""

    root: Path
    page: int = 2  # How many entries a page has at most.
    lifetime_ms: int | None = 3_600_000  # Of credentials.
    readers_only: bool = False  # Whether credentials are for reading only.
    is_brief: bool = False  # Whether it answers `200 OK` as text where nothing else is to be said.
    replays: bool = True  # Whether a commit that was accepted may be sent again.
    storage: str = ""  # Where managed tables are; default: below `root`.
    url: str = ""
    schemas: list[str] = field(default_factory=list)
    tables: dict[str, Json] = field(default_factory=dict)  # By full name, in lower case.
    staging: dict[str, Json] = field(default_factory=dict)  # By id.
    commits: dict[str, dict[int, Json]] = field(default_factory=dict)  # By id; not published ones.
    latest: dict[str, int] = field(default_factory=dict)
    grants: list[Grant] = field(default_factory=list)
    calls: list[tuple[str, Json]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    faults: dict[str, list[Fault | None]] = field(default_factory=dict)
    plan: Callable[[str], Fault | None] | None = None  # Of operations without `faults`.
    handlers: dict[str, Callable[[Json, Json], Json]] = field(default_factory=dict)
    lock: Any = field(default_factory=threading.RLock)

    @property
    def address(self) -> str:
        return f"uc+{self.url}/main"

    def count(self, operation: str) -> int:
        return sum(name == operation for name, _ in self.calls)

    def add(self, name: str, location: str, **more: Any) -> Json:
        """Add a table without a request."""
        schema, table = name.split(".")
        if schema not in self.schemas:
            self.schemas.append(schema)
        info = {
            "name": table, "catalog_name": "main", "schema_name": schema,
            "table_type": "EXTERNAL", "data_source_format": "DELTA", "columns": [],
            "storage_location": location, "table_id": str(uuid.uuid4()), "properties": {},
            "created_at": int(time.time() * 1000), **more,
        }  # fmt: skip
        self.tables[f"main.{name}".lower()] = info
        return info

    # Operations --------------------------------------------------------------------------------

    def getCatalog(self, query: Json, body: Json) -> Json:  # noqa: N802
        self._require_catalog(query["name"])
        return {"name": "main", "id": "5a2b0c1e-0000-4000-8000-000000000001"}

    def listSchemas(self, query: Json, body: Json) -> Json:  # noqa: N802
        self._require_catalog(query["catalog_name"])
        found = [{"name": one, "catalog_name": "main"} for one in self.schemas]
        return self._paged("schemas", found, query)

    def listTables(self, query: Json, body: Json) -> Json:  # noqa: N802
        self._require_catalog(query["catalog_name"])
        if query["schema_name"] not in self.schemas:
            raise RefusedError(404, "SCHEMA_NOT_FOUND", f"no schema {query['schema_name']}")
        found = [t for t in self.tables.values() if t["schema_name"] == query["schema_name"]]
        return self._paged("tables", found, query)

    def getTable(self, query: Json, body: Json) -> Json:  # noqa: N802
        found = self.tables.get(query["full_name"].lower())
        if found is None:
            raise RefusedError(404, "TABLE_NOT_FOUND", f"Table not found: {query['full_name']}")
        return found

    def deleteTable(self, query: Json, body: Json) -> Json:  # noqa: N802
        found = self.getTable(query, body)
        del self.tables[query["full_name"].lower()]
        self.commits.pop(found["table_id"], None)
        self.latest.pop(found["table_id"], None)
        return {}

    def createTable(self, query: Json, body: Json) -> Json:  # noqa: N802
        full = f"{body['catalog_name']}.{body['schema_name']}.{body['name']}".lower()
        self._require_catalog(body["catalog_name"])
        if body["schema_name"] not in self.schemas:
            raise RefusedError(404, "SCHEMA_NOT_FOUND", f"no schema {body['schema_name']}")
        if full in self.tables:
            raise RefusedError(409, "TABLE_ALREADY_EXISTS", f"Table already exists: {full}")
        place = body.get("storage_location")
        if not place:
            raise RefusedError(400, "INVALID_ARGUMENT", "Storage location is required")
        table_id = str(uuid.uuid4())
        if body["table_type"] == "MANAGED":
            staged = [one for one in self.staging.values() if one["staging_location"] == place]
            if not staged or staged[0]["name"] != body["name"]:
                raise RefusedError(404, "NOT_FOUND", "no staging table has this location")
            table_id = staged[0]["id"]
            if body.get("properties", {}).get("io.unitycatalog.tableId") != table_id:
                raise RefusedError(
                    400, "INVALID_ARGUMENT", "io.unitycatalog.tableId is another one"
                )
            del self.staging[table_id]
        made = {**body, "table_id": table_id, "created_at": int(time.time() * 1000)}
        self.tables[full] = made
        return made

    def createStagingTable(self, query: Json, body: Json) -> Json:  # noqa: N802
        full = f"{body['catalog_name']}.{body['schema_name']}.{body['name']}".lower()
        if body["schema_name"] not in self.schemas:
            raise RefusedError(404, "SCHEMA_NOT_FOUND", f"no schema {body['schema_name']}")
        if full in self.tables:
            raise RefusedError(409, "TABLE_ALREADY_EXISTS", f"Table already exists: {full}")
        table_id = str(uuid.uuid4())
        storage = self.storage or self.root.as_uri()
        made = {**body, "id": table_id, "staging_location": f"{storage}/__managed/{table_id}"}
        self.staging[table_id] = made
        return made

    def generateTemporaryTableCredentials(self, query: Json, body: Json) -> Json:  # noqa: N802
        ids = {one["table_id"] for one in self.tables.values()} | self.staging.keys()
        if body["table_id"] not in ids:
            raise RefusedError(404, "TABLE_NOT_FOUND", f"Table not found: {body['table_id']}")
        return self._granted(body["table_id"], body["operation"])

    def generateTemporaryPathCredentials(self, query: Json, body: Json) -> Json:  # noqa: N802
        return self._granted(body["url"], body["operation"])

    def getCommits(self, query: Json, body: Json) -> Json:  # noqa: N802
        table_id = self._managed(body)
        found = self.commits.get(table_id, {})
        start, end = body["start_version"], body.get("end_version", 1 << 62)
        first = max(start, min(found, default=0))
        end = min(end, first + self.page - 1)
        chosen = [found[v] for v in sorted(found, reverse=True) if start <= v <= end]
        return {"commits": chosen, "latest_table_version": self.latest.get(table_id, 0)}

    def commit(self, query: Json, body: Json) -> Json:
        table_id = self._managed(body)
        commits = self.commits.setdefault(table_id, {})
        latest, info = self.latest.get(table_id), body.get("commit_info")
        published = body.get("latest_backfilled_version")
        is_first = latest is None and info is not None
        if published is not None and not is_first and (latest is None or published > latest):
            raise RefusedError(400, "INVALID_ARGUMENT", f"{published} was not committed")
        if info is not None and latest is not None and info["version"] <= latest:
            self._require_replay(body["table_uri"], info, commits.get(info["version"]))
            return {}
        if info is not None and latest is not None and info["version"] > latest + 1:
            raise RefusedError(400, "INVALID_ARGUMENT", f"the next version is {latest + 1}")
        kept = {v: one for v, one in commits.items() if published is None or v > published}
        if info is not None and len(kept) >= MOST_UNPUBLISHED:
            raise RefusedError(429, "RESOURCE_EXHAUSTED", "Max number of commits per table reached")
        self.commits[table_id] = kept
        if info is not None:
            kept[info["version"]] = info
            self.latest[table_id] = info["version"]
            changed = body.get("metadata", {})
            table = next(t for t in self.tables.values() if t["table_id"] == table_id)
            if "schema" in changed:
                table["columns"] = changed["schema"]["columns"]
            if "properties" in changed:
                table["properties"] = changed["properties"]["properties"]
            if "description" in changed:
                table["comment"] = changed["description"]
        return {}

    # -------------------------------------------------------------------------------------------

    def _require_replay(self, place: str, sent: Json, known: Json | None) -> None:
        """Raise unless a commit of a version that is taken is the accepted one again."""
        if not self.replays:
            raise RefusedError(409, "COMMIT_VERSION_CONFLICT", "Commit version already accepted")
        if known is not None:
            is_same = known["file_name"] == sent["file_name"]
        else:  # It is published, so only the bytes can tell.
            log = Path(unquote(urlsplit(place).path)) / "_delta_log"
            try:
                is_same = (log / f"{sent['version']:020d}.json").read_bytes() == (
                    log / "_staged_commits" / sent["file_name"]
                ).read_bytes()
            except OSError as error:
                raise RefusedError(500, "COMMIT_STATE_UNKNOWN", "retry the request") from error
        if not is_same:
            raise RefusedError(409, "COMMIT_VERSION_CONFLICT", "Commit version already accepted")

    def _require_catalog(self, name: str) -> None:
        if name != "main":
            raise RefusedError(404, "CATALOG_NOT_FOUND", f"Catalog not found: {name}")

    def _managed(self, body: Json) -> str:
        found = [t for t in self.tables.values() if t["table_id"] == body["table_id"]]
        if not found:
            raise RefusedError(404, "TABLE_NOT_FOUND", f"Table not found: {body['table_id']}")
        if found[0]["table_type"] != "MANAGED":
            raise RefusedError(400, "INVALID_ARGUMENT", "the table is not managed")
        if found[0]["storage_location"] != body["table_uri"]:
            raise RefusedError(400, "INVALID_ARGUMENT", "table_uri is not that of the table")
        table_id: str = body["table_id"]
        return table_id

    def _paged(self, name: str, found: list[Json], query: Json) -> Json:
        begin = int(query.get("page_token", "0"))
        end = begin + min(self.page, int(query.get("max_results", 0)) or self.page)
        more = {"next_page_token": str(end)} if end < len(found) else {}
        return {name: found[begin:end], **more}

    def _granted(self, subject: str, operation: str) -> Json:
        if self.readers_only and operation not in ("READ", "PATH_READ"):
            raise RefusedError(403, "PERMISSION_DENIED", "you may only read")
        key = f"KEY{len(self.grants)}"
        until = None if self.lifetime_ms is None else int(time.time() * 1000) + self.lifetime_ms
        self.grants.append(Grant(subject, operation, key, until))
        return {
            "aws_temp_credentials": {
                "access_key_id": key, "secret_access_key": f"secret-of-{key}",
                "session_token": f"session-of-{key}",
            },
            "azure_user_delegation_sas": {"sas_token": f"?sv=1&sig={key}"},
            "gcp_oauth_token": {"oauth_token": f"ya29.{key}"},
            **({} if until is None else {"expiration_time": until}),
        }  # fmt: skip


@dataclass(frozen=True)
class Operation:
    """An operation of the document."""

    name: str
    method: str
    path: re.Pattern[str]
    parameters: tuple[Json, ...]
    request: Json | None
    answers: dict[str, Json | None]


def _resolved(node: Json) -> Json:
    """Follow a reference within the document."""
    while "$ref" in node:
        found: Any = DOCUMENT
        for step in node["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        node = found
    return node


def _schema_of(node: Json) -> Json | None:
    content = _resolved(node).get("content", {}).get("application/json")
    return None if content is None else content["schema"]


def operations() -> list[Operation]:
    """Return the operations of the document."""
    found = []
    for path, methods in DOCUMENT["paths"].items():
        pattern = re.compile(ROOT + re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path))
        for method, node in methods.items():
            body = node.get("requestBody")
            found.append(
                Operation(
                    node["operationId"],
                    method.upper(),
                    pattern,
                    tuple(_resolved(one) for one in node.get("parameters", ())),
                    None if body is None else _schema_of(body),
                    {status: _schema_of(one) for status, one in node["responses"].items()},
                )
            )
    return found


def _check(schema: Json | None, value: Any) -> None:
    if schema is not None:
        whole = {**schema, "components": DOCUMENT["components"]}
        jsonschema.Draft202012Validator(whole).validate(value)


def _arguments(operation: Operation, path: re.Match[str], query: str) -> Json:
    """Return the parameters of a request; `jsonschema.ValidationError` if one is wrong."""
    given = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
    named = {name: unquote(value) for name, value in path.groupdict().items()}
    known = {one["name"]: one for one in operation.parameters}
    if strange := {*given, *named} - known.keys():
        raise jsonschema.ValidationError(f"unknown parameters {strange}")
    for name, one in known.items():
        value: Any = given.get(name) if one["in"] == "query" else named.get(name)
        if value is None and one.get("required"):
            raise jsonschema.ValidationError(f"{name} is missing")
        if value is not None and one["schema"]["type"] == "integer":
            value = int(value)
        if value is not None:
            _check(one["schema"], value)
    return {**given, **named}


@contextmanager
def serving(stub: Stub) -> Iterator[Stub]:
    """Let a stub answer on the loopback, and stop it; the requests must fit the document."""
    known = operations()
    for operation in known:
        stub.handlers[operation.name] = getattr(stub, operation.name)

    connections: list[socket.socket] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def setup(self) -> None:
            super().setup()
            connections.append(self.connection)

        def log_message(self, format: str, *args: object) -> None:
            pass

        def _any(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            sent = self.rfile.read(length)
            place = urlsplit(self.path)
            for operation in known:
                found = operation.path.fullmatch(place.path)
                if found is not None and operation.method == self.command:
                    with stub.lock:
                        self._answer(operation, found, place.query, sent)
                    return
            stub.violations.append(f"{self.command} {self.path} is not in the document")
            self._send(404, b"no such page", "text/plain")

        do_GET = do_POST = do_DELETE = do_PATCH = do_PUT = do_HEAD = _any  # noqa: N815

        def _answer(
            self, operation: Operation, found: re.Match[str], query: str, sent: bytes
        ) -> None:
            try:
                arguments = _arguments(operation, found, query)
                body = json.loads(sent) if sent else {}
                _check(operation.request, body)
            except (ValueError, jsonschema.ValidationError) as error:
                stub.violations.append(f"{operation.name}: {error}")
                self._json(400, {"error_code": "INVALID_ARGUMENT", "message": str(error)[:200]})
                return
            stub.calls.append((operation.name, {**arguments, **body}))
            planned = stub.faults.get(operation.name, [])
            fault = planned.pop(0) if planned else stub.plan and stub.plan(operation.name)
            if fault is not None and fault.kind == "dropped":
                self._hang_up()
                return
            if fault is not None and fault.kind == "answer":
                self._send(fault.status, fault.body, fault.content)
                return
            if not is_valid(self.headers.get("authorization", "").removeprefix("Bearer ")):
                self._json(401, {"error_code": "UNAUTHENTICATED", "message": "no valid token"})
                return
            try:
                answer = stub.handlers[operation.name](arguments, body)
                _check(operation.answers["200"], answer)
                status = 200
            except RefusedError as refused:
                answer = {"error_code": refused.code, "message": refused.message}
                _check(DOCUMENT["components"]["schemas"]["Error"], answer)
                status = refused.status
            if fault is not None and fault.kind == "lost":
                self._hang_up()
            elif fault is not None:
                self._send(fault.status, fault.body, fault.content)
            elif stub.is_brief and answer == {}:
                self._send(200, b"200 OK", "text/plain; charset=utf-8")
            else:
                self._json(status, answer)

        def _hang_up(self) -> None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

        def _json(self, status: int, value: Json) -> None:
            self._send(status, json.dumps(value).encode(), "application/json")

        def _send(self, status: int, body: bytes, content: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # A client that went away.

    server = Server(("127.0.0.1", 0), Handler)
    stub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
    assert stub.violations == []


def external(stub: Stub, name: str, *pairs: tuple[int, int]) -> Path:
    """Make an external table with rows, and return its folder."""
    ids, values = zip(*pairs, strict=True)
    folder = stub.root / name
    txlog.write(folder, pa.table({"id": list(ids), "v": list(values)}))
    stub.add(name, folder.as_uri())
    return folder
