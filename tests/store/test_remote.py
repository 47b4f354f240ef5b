"""Stores by fsspec: S3 and Google without obstore, HDFS by renames, and others."""

import errno
import json
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
import pytest
from fault_proxy import proxy
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem
from servers import Server, fake_gcs, localbucket, missing

import txlog
from txlog.base.effects import REAL
from txlog.base.errors import StoreError, UnsupportedFeatureError
from txlog.extend import context_of
from txlog.store.base import Store
from txlog.store.open import open_store
from txlog.store.ranged import PART_BYTES
from txlog.store.remote import Backend, FsspecStore
from txlog.testing import StoreContract


def rows(start: int, stop: int) -> pa.Table:
    return pa.table({"x": pa.array(range(start, stop), pa.int64())})


@pytest.fixture(scope="module")
def s3() -> Iterator[Server]:
    if why := missing("localbucket") or (None if find_spec("s3fs") else "s3fs is not installed"):
        pytest.skip(why)
    with localbucket() as server:
        yield server


@pytest.fixture(scope="module")
def google() -> Iterator[Server]:
    if why := missing("fake_gcs") or (None if find_spec("gcsfs") else "gcsfs is not installed"):
        pytest.skip(why)
    with fake_gcs() as server:
        options = {"google_base_url": server.url, "google_skip_signature": "true"}
        yield Server(server.name, "gs", server.url, options)


def by_fsspec(server: Server) -> dict[str, str]:
    options = {name: value for name, value in server.options.items() if name != "max_retries"}
    return {**options, "txlog.backend": "fsspec"}


class OnFsspec(StoreContract):
    names_in_races = 10
    processes_in_races = 8
    server: Server

    def make_store(self) -> Store:
        store = open_store(self.server.root(), by_fsspec(self.server))
        assert isinstance(store, FsspecStore)
        return store


class Half(MemoryFileSystem):
    """A file system on which each write stops half-way, and then the disk is full."""

    protocol = "half"
    store: ClassVar[dict[str, Any]] = {}

    def pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        super().pipe_file(path, value[: len(value) // 2])
        raise OSError(errno.EDQUOT, "Disk quota exceeded")


def test_a_write_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txlog.store.remote.connect", lambda *_: Backend(Half(), "/half"))
    store = FsspecStore("half://t", is_coordinated=True)
    with pytest.raises(StoreError, match="Disk quota exceeded"):
        store.write_new("a", b"0123")
    assert [*store.list_tree("")] == []  # No half of a file is left.


@pytest.mark.parametrize("left", [3, PART_BYTES, PART_BYTES + 1])
def test_a_part_of_a_large_file_is_deleted(left: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole one stays: another process may have stored it, under a name that is its digest."""

    def close(file: MemoryFile) -> None:
        file.truncate(left)
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr("txlog.store.remote.connect", lambda *_: Backend(Half(), "/half"))
    store = FsspecStore("half://t", is_coordinated=True)
    monkeypatch.setattr(MemoryFile, "close", close)
    with (
        pytest.raises(StoreError, match="Disk quota exceeded"),
        store.open_output("a") as output,
    ):
        output.write(b"0" * (PART_BYTES + 1))
    assert [info.size for info in store.list_tree("")] == [left] * (left > PART_BYTES)


class Expires(MemoryFileSystem):
    """A store whose library tries again: the first try lands, the second is refused."""

    protocol = "expires"
    store: ClassVar[dict[str, Any]] = {}
    is_expired = False

    def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite") -> None:
        """Show that the file system has a conditional put."""

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        if mode == "create" and self.exists(path):
            raise FileExistsError(path)
        super().pipe_file(path, value)
        if type(self).is_expired and path.endswith(f"{1:020}.json"):
            raise PermissionError("the token has expired")


def test_a_refusal_of_a_second_try_does_not_undo_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("txlog.store.remote.connect", lambda *_: Backend(Expires(), "/bucket/t"))
    root, options = f"s3://bucket-{uuid.uuid4()}/t", {"txlog.backend": "fsspec"}
    table = txlog.write(root, pa.table({"x": [1]}), storage_options=options)
    monkeypatch.setattr(Expires, "is_expired", True)
    with suppress(txlog.OutcomeUnknownError):
        table.append(pa.table({"x": [2]}))
    monkeypatch.setattr(Expires, "is_expired", False)
    again = txlog.Table(root, storage_options=options)
    assert again.version == 1
    assert sorted(again.to_arrow()["x"].to_pylist()) == [1, 2]


def test_each_server_is_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust in a server does not reach another one with the same root."""
    probed: list[object] = []
    monkeypatch.setattr(FsspecStore, "_creates_by", "put")
    monkeypatch.setattr(FsspecStore, "_created", lambda *_: "created")
    monkeypatch.setattr(FsspecStore, "_probe", lambda store: probed.append(store.options))
    root = f"s3://{uuid.uuid4()}"
    for url in ("https://a", "https://b", "https://a"):
        FsspecStore(root, {"client_kwargs": {"endpoint_url": url}}).put_if_absent("f", b"")
    assert len(probed) == 2


@pytest.mark.slow
@pytest.mark.spec("GUA-1")
class TestS3fs(OnFsspec):
    @pytest.fixture(autouse=True)
    def on_server(self, s3: Server) -> None:
        self.server = s3

    @pytest.mark.exhaustive
    def test_processes_race_and_one_wins(self) -> None:
        super().test_processes_race_and_one_wins()


@pytest.mark.spec("GUA-1")
class TestGcsfs(OnFsspec):
    """On fake-gcs-server, which has Google's JSON interface, as gcsfs speaks it."""

    @pytest.fixture(autouse=True)
    def on_server(self, google: Server) -> None:
        self.server = google

    @pytest.mark.exhaustive
    def test_processes_race_and_one_wins(self) -> None:
        super().test_processes_race_and_one_wins()


class Hdfs(ThreadingHTTPServer):
    """A stand-in for WebHDFS in memory: each operation is one step, as in a name node.

    `overwrites` has renames replace their target, which HDFS never does.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _HdfsHandler)
        self.files: dict[str, bytes] = {}
        self.times_ms: dict[str, int] = {}
        self.lock = threading.Lock()
        self.overwrites = False

    @property
    def root(self) -> str:
        return f"webhdfs://127.0.0.1:{self.server_address[1]}/{uuid.uuid4().hex[:8]}/t"


class _HdfsHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Hdfs

    def do_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        url = urlsplit(self.path)
        query = {name.lower(): values[0] for name, values in parse_qs(url.query).items()}
        path = unquote(url.path.removeprefix("/webhdfs/v1"), errors="strict").rstrip("/")
        if "data" not in query and query["op"] in ("OPEN", "CREATE", "APPEND"):
            port = self.server.server_address[1]
            if query["op"] == "OPEN" and path not in self.server.files:
                self.answer(404, None)
                return
            self.send_response(307)
            self.send_header("Location", f"http://127.0.0.1:{port}{self.path}&data=1")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        with self.server.lock:
            found = self.done(query, path, body)
        if isinstance(found, bytes):
            self.send_response(200)
            self.send_header("Content-Length", str(len(found)))
            self.end_headers()
            self.wfile.write(found)
        else:
            self.answer(404 if found is None else 200, found)

    def done(self, query: dict[str, str], path: str, body: bytes) -> object:
        files, operation = self.server.files, query["op"]
        if operation == "OPEN":
            start = int(query.get("offset", 0))
            return files[path][start : start + int(query.get("length", 1 << 40))]
        if operation in ("CREATE", "APPEND"):
            files[path] = (files[path] if operation == "APPEND" else b"") + body
            self.server.times_ms[path] = REAL.now_ms()
            return {}
        if operation == "RENAME":
            target = query["destination"]
            if path not in files or (target in files and not self.server.overwrites):
                return {"boolean": False}
            files[target] = files.pop(path)
            self.server.times_ms[target] = self.server.times_ms.pop(path)
            return {"boolean": True}
        if operation == "DELETE":
            return {"boolean": files.pop(path, None) is not None}
        if operation == "GETFILESTATUS":
            return {"FileStatus": self.status(path, "")} if is_there(files, path) else None
        if operation == "LISTSTATUS":
            if not is_there(files, path):
                return None
            below = {p[len(path) + 1 :].split("/")[0] for p in files if p.startswith(f"{path}/")}
            entries = [self.status(f"{path}/{name}", name) for name in sorted(below)]
            return {"FileStatuses": {"FileStatus": entries}}
        return {"boolean": True}  # MKDIRS

    def status(self, path: str, name: str) -> dict[str, object]:
        files = self.server.files
        return {
            "type": "FILE" if path in files else "DIRECTORY",
            "length": len(files.get(path, b"")),
            "pathSuffix": name,
            "modificationTime": self.server.times_ms.get(path, 0),
        }

    def answer(self, code: int, found: object) -> None:
        wrong = {"RemoteException": {"exception": "FileNotFoundException", "message": "not found"}}
        data = json.dumps(wrong if found is None else found).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_DELETE = do_any  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def is_there(files: dict[str, bytes], path: str) -> bool:
    return path in files or any(name.startswith(f"{path}/") for name in files)


@pytest.fixture
def hdfs() -> Iterator[Hdfs]:
    if find_spec("requests") is None:
        pytest.skip("requests is not installed, which fsspec's WebHDFS needs")
    server = Hdfs()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.exhaustive
@pytest.mark.spec("GUA-1")
class TestWebHdfs(StoreContract):
    names_in_races = 10
    processes_in_races = 8

    @pytest.fixture(autouse=True)
    def on_server(self, hdfs: Hdfs) -> None:
        self.server = hdfs

    def make_store(self) -> Store:
        store = open_store(f"{self.server.root}/a table")
        assert isinstance(store, FsspecStore)
        return store


def test_hdfs_decides_by_renames(hdfs: Hdfs) -> None:
    store = open_store(hdfs.root)
    assert store.put_if_absent("log/0", b"first") == "created"
    assert store.put_if_absent("log/0", b"second") == "exists"
    assert store.read("log/0") == b"first"
    assert [info.name for info in store.list_tree("")] == ["log/0"]

    def put(who: int) -> list[int]:
        return [
            n for n in range(6) if store.put_if_absent(f"race/{n}", str(who).encode()) == "created"
        ]

    with ThreadPoolExecutor(4) as pool:
        won = [n for names in pool.map(put, range(4)) for n in names]
    assert sorted(won) == list(range(6))
    assert not [name for name in hdfs.files if ".tmp" in name]


def test_a_table_on_hdfs(hdfs: Hdfs) -> None:
    root = hdfs.root
    table = txlog.write(root, rows(0, 10))
    table.append(rows(10, 20))
    table.delete("x < 5")
    table.maintenance.checkpoint()
    assert sorted(txlog.Table(root).to_arrow()["x"].to_pylist()) == list(range(5, 20))


@pytest.mark.slow
@pytest.mark.spec("VAC-2")
@pytest.mark.parametrize("has_times", [True, False])
def test_a_file_of_a_running_writer_stays_on_hdfs(hdfs: Hdfs, has_times: bool) -> None:
    """Its field of the time is not that of other file systems; without it, a file is young."""
    table = txlog.write(f"{hdfs.root}/t", rows(0, 10))
    context_of(table).store.write_new("of-a-writer.parquet", b"x")
    context_of(table).store.write_new("old.parquet", b"x")
    hdfs.times_ms[next(path for path in hdfs.files if path.endswith("old.parquet"))] = 1000
    if not has_times:
        hdfs.times_ms.clear()
    table.vacuum(dry_run=False)
    left = {path.rpartition("/")[2] for path in hdfs.files}
    assert "of-a-writer.parquet" in left
    assert ("old.parquet" in left) is not has_times
    made_ms = table.history()[0]["timestamp"]
    if has_times:
        assert abs(made_ms - REAL.now_ms()) < 60_000
    else:
        assert made_ms is table.timestamp_ms is None
        with pytest.raises(txlog.NotFoundError, match="has no time of _delta_log/"):
            txlog.Table(table.uri, timestamp="2026-01-01")


@pytest.mark.spec("GUA-6")
def test_a_rename_that_overwrites_is_found_out(hdfs: Hdfs) -> None:
    hdfs.overwrites = True
    with pytest.raises(UnsupportedFeatureError, match="several writers"):
        txlog.write(hdfs.root, rows(0, 1))
    assert hdfs.files == {}


@pytest.mark.slow
def test_s3fs_on_a_server_that_overwrites_is_found_out(s3: Server) -> None:
    with proxy(s3.url, headers={"if-none-match": ("x-nobody-looks-at-it", "*")}) as server:
        options = {**by_fsspec(s3), "AWS_ENDPOINT_URL": server.url}
        with pytest.raises(UnsupportedFeatureError, match=r"txlog\.coordinator"):
            txlog.write(s3.root(), rows(0, 1), storage_options=options)


def test_both_backends_write_one_table(s3: Server) -> None:
    root = s3.root()
    txlog.write(root, rows(0, 10), storage_options=s3.options)
    table = txlog.Table(root, storage_options=by_fsspec(s3))
    table.append(rows(10, 20))
    table.delete("x = 3")
    assert txlog.Table(root, storage_options=s3.options).count() == 19


def test_a_table_is_read_over_http(tmp_path: Path) -> None:
    if find_spec("aiohttp") is None:
        pytest.skip("aiohttp is not installed, which fsspec's HTTP needs")
    table = txlog.write(tmp_path / "t", rows(0, 10))
    table.append(rows(10, 20))
    table.delete("x = 3")

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *given: object) -> None:
            super().__init__(*given, directory=str(tmp_path))  # type: ignore[arg-type]

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        found = txlog.Table(f"http://127.0.0.1:{server.server_address[1]}/t")
        assert sorted(found.to_arrow()["x"].to_pylist()) == sorted({*range(20)} - {3})
        with pytest.raises(UnsupportedFeatureError, match="atomic create"):
            found.append(rows(0, 1))
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
