"""Object stores, on real servers: the contract, races, uploads, faults, options and errors."""

import json
import multiprocessing
import os
import re
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from fault_proxy import SLOW_S, Failure, at_random, proxy
from servers import SECRET, SERVERS, Server, missing

import txlog
from tests.moved import moved
from tests.scan.test_lazy_plan_apart import Workers
from txlog.base.errors import (
    InvalidInputError,
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
    TxlogError,
    UnsupportedFeatureError,
)
from txlog.expressions.sql import as_expression
from txlog.scan.lazy_plan import plan_snapshot
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import load_snapshot
from txlog.store.base import Store
from txlog.store.cloud import CloudStore
from txlog.store.cloud_options import fsspec_options, obstore_config, place_of
from txlog.store.open import open_store
from txlog.store.ranged import PART_BYTES
from txlog.store.remote import FsspecStore
from txlog.testing import StoreContract, unsealed

pytestmark = pytest.mark.skipif(bool(missing("localbucket")), reason="no server can be run")

# Google's own protocol is that of S3 but for this name.
GOOGLE = {"x-goog-if-generation-match": ("If-None-Match", "*")}
NO_PRECONDITION = {"if-none-match": ("x-nobody-looks-at-it", "*")}


@pytest.fixture(scope="module")
def running() -> Iterator[dict[str, Server]]:
    """Servers by name, each started at its first use."""
    with ExitStack() as stack:

        class Running(dict[str, Server]):
            def __missing__(self, name: str) -> Server:
                server = _google(self) if name == "google" else SERVERS[name]()
                self[name] = stack.enter_context(server)
                return self[name]

        yield Running()


@contextmanager
def _google(running: dict[str, Server]) -> Iterator[Server]:
    with proxy(running["localbucket"].url, headers=GOOGLE) as server:
        yield Server("google", "gs", server.url, {
            "google_base_url": server.url, "google_bearer_token": SECRET,
            "google_allow_http": "true", "max_retries": "3",
        })  # fmt: skip


@pytest.fixture
def s3(running: dict[str, Server]) -> Server:
    return running["localbucket"]


def through(server: Server, url: str) -> dict[str, Any]:
    """Return options by which a proxy is asked instead of the server behind it."""
    return {**server.options, "AWS_ENDPOINT_URL": url}


def numbers(start: int, stop: int) -> pa.Table:
    return pa.table({"x": pa.array(range(start, stop), pa.int64())})


class OnServer(StoreContract):
    """The contract of a store on a server."""

    server_name: str
    names_in_races = 25

    @pytest.fixture(autouse=True)
    def server(self, running: dict[str, Server]) -> None:
        if why := missing("localbucket" if self.server_name == "google" else self.server_name):
            pytest.skip(why)
        self.running = running[self.server_name]

    def make_store(self) -> Store:
        store = open_store(self.running.root(), self.running.options)
        assert isinstance(store, CloudStore)
        return store


@pytest.mark.slow
@pytest.mark.spec("GUA-1")
class TestS3(OnServer):
    server_name = "localbucket"


@pytest.mark.spec("GUA-1")
class TestAzure(OnServer):
    server_name = "azurite"
    processes_in_races = 8

    @pytest.mark.exhaustive
    def test_processes_race_and_one_wins(self) -> None:
        super().test_processes_race_and_one_wins()


@pytest.mark.parametrize("name", ["azurite", "localbucket"])
@pytest.mark.spec("VAC-12")
def test_folders_are_listed_where_no_name_begins_a_request(
    running: dict[str, Server], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Azure, and a directory bucket: LocalBucket stands in for S3 Express."""
    if why := missing(name):
        pytest.skip(why)
    server = running[name]
    store = open_store(server.root(), server.options)
    assert isinstance(store, CloudStore)
    if name == "localbucket":
        monkeypatch.setattr(CloudStore, "ranges_by", lambda _: "folders")
    assert store.ranges_by() == "folders"
    names = [f"x={x}{end}/y={y}/f {n}" for x in range(3) for end in ("", "%20-") for y in "ab"
             for n in range(2)]  # fmt: skip
    for at in [*names, "f", "x=1-"]:
        store.write_new(at, b"1")
    whole = list(store.list_tree(""))
    assert len(whole) == len(names) + 2
    for bounds in (["x=1/"], ["x=0%20-/", "x=1/", "x=1/y=b/"], ["x=1", "x=1-", "x=1/y=a/f 0"]):
        ranges = zip(["", *bounds], [*bounds, None], strict=True)
        pages = [page for one in ranges for page in store.list_pages(*one)]
        assert sorted(info for page in pages for info in page) == whole


@pytest.mark.spec("GUA-1")
class TestGoogle(OnServer):
    """Of Google there is no emulator that has its own protocol: LocalBucket stands in."""

    server_name = "google"
    processes_in_races = 8

    @pytest.mark.exhaustive
    def test_processes_race_and_one_wins(self) -> None:
        super().test_processes_race_and_one_wins()


@pytest.mark.exhaustive
class TestMoto(OnServer):
    server_name = "moto"


@pytest.mark.exhaustive
@pytest.mark.spec("GUA-1")
class TestRadosgw(OnServer):
    """Ceph's own gateway."""

    server_name = "radosgw"
    processes_in_races = 8


@pytest.mark.parametrize(
    "name",
    ["localbucket", "azurite", "google", pytest.param("radosgw", marks=pytest.mark.exhaustive)],
)
def test_verbs_and_other_engines_share_a_table(running: dict[str, Server], name: str) -> None:
    if why := missing("localbucket" if name == "google" else name):
        pytest.skip(why)
    server = running[name]
    root, options = server.root().replace(" ", "_"), server.options
    table = txlog.write(root, numbers(0, 100), storage_options=options)
    table.append(numbers(100, 200), txn=("loader", 1))
    assert table.append(numbers(100, 200), txn=("loader", 1)).skipped
    table.delete("x < 10")
    table.update({"x": "x + 1000"}, "x = 50")
    table.upsert(numbers(150, 250), on="x")
    table.maintenance.checkpoint()
    table.optimize.compact()
    expected = sorted({*range(10, 250), 1050} - {50})
    assert (
        sorted(txlog.Table(root, storage_options=options).to_arrow()["x"].to_pylist()) == expected
    )
    assert txlog.Table(root, version=0, storage_options=options).count() == 100
    theirs = {name: str(value) for name, value in options.items() if name != "max_retries"}
    if name == "google":
        key = {
            "gcs_base_url": server.url,
            "disable_oauth": True,
            "client_email": "",
            "private_key_id": "",
        }
        theirs = {"google_service_account_key": json.dumps({**key, "private_key": ""}),
                  "google_allow_http": "true"}  # fmt: skip
    other = DeltaTable(root, storage_options=theirs)
    assert other.version() == table.version
    if name == "azurite":  # deltalake appends to no table of more than one version there.
        table.append(numbers(5000, 5001))
    else:
        write_deltalake(other, numbers(5000, 5001), mode="append")
    assert table.refresh().count() == len(expected) + 1
    assert table.vacuum(0, dry_run=False, enforce_retention_duration=False).num_rows > 0
    assert txlog.Table(root, storage_options=options).count() == len(expected) + 1


def _append_all(root: str, options: dict[str, Any], who: int, times: int) -> int:
    table = txlog.Table(root, storage_options=options)
    for n in range(times):
        table.append(numbers(who * 1000 + n, who * 1000 + n + 1), txn=(f"w{who}", n))
        table.refresh()
    return times


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "writers", "times"),
    [
        ("localbucket", 2, 3),
        pytest.param("localbucket", 8, 25, marks=pytest.mark.exhaustive),
        pytest.param("azurite", 8, 25, marks=pytest.mark.exhaustive),
        pytest.param("google", 8, 25, marks=pytest.mark.exhaustive),
        pytest.param("radosgw", 8, 25, marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.spec("GUA-1", "GUA-3")
def test_processes_append_and_nothing_is_lost_or_doubled(
    running: dict[str, Server], name: str, writers: int, times: int
) -> None:
    if why := missing("localbucket" if name == "google" else name):
        pytest.skip(why)
    root, options = running[name].root(), running[name].options
    txlog.Table.create(root, numbers(0, 0).schema, storage_options=options)
    with ProcessPoolExecutor(writers, multiprocessing.get_context("spawn")) as pool:
        runs = [pool.submit(_append_all, root, options, who, times) for who in range(writers)]
        # A reader meanwhile sees whole versions alone: a row for each commit.
        while not all(run.done() for run in runs):
            seen = txlog.Table(root, storage_options=options)
            assert seen.count() == seen.version
        assert [run.result() for run in runs] == [times] * writers
    table = txlog.Table(root, storage_options=options)
    expected = sorted(who * 1000 + n for who in range(writers) for n in range(times))
    assert sorted(table.to_arrow()["x"].to_pylist()) == expected
    assert table.version == writers * times


@pytest.mark.slow
@pytest.mark.parametrize("appends", [25, pytest.param(150, marks=pytest.mark.exhaustive)])
@pytest.mark.spec("GUA-4")
def test_each_append_lands_once_though_answers_are_lost(s3: Server, appends: int) -> None:
    root = s3.root()
    txlog.Table.create(root, numbers(0, 0).schema, storage_options=s3.options)
    failures: list[Failure] = [
        "lost answer",
        "lost answer",
        "503",
        "reset",
        "lost request",
        "twice",
    ]
    options: dict[str, Any] = {}
    if appends > 100:
        failures, options = [*failures, "slow"], {"timeout": f"{SLOW_S / 2}s"}
    with proxy(s3.url, at_random(7, 0.2, *failures)) as server:
        options |= through(s3, server.url)
        table = txlog.Table(root, storage_options=options)
        for n in range(appends):
            while True:
                try:
                    table.append(numbers(n, n + 1), txn=("loader", n))
                    break
                except (OutcomeUnknownError, StoreError):
                    table.refresh()
        assert sum(method == "PUT" for method, _ in server.requests) > 2 * appends
    found = txlog.Table(root, storage_options=s3.options)
    assert sorted(found.to_arrow()["x"].to_pylist()) == list(range(appends))
    assert found.version == appends


@pytest.mark.spec("GUA-4")
def test_a_lost_answer_alone_needs_no_help(s3: Server) -> None:
    root = s3.root()
    txlog.Table.create(root, numbers(0, 0).schema, storage_options=s3.options)

    seen: set[str] = set()

    def lost(method: str, path: str) -> Failure | None:
        if method != "PUT" or path in seen or "json" not in path:
            return None
        seen.add(path)
        return "lost answer"

    with proxy(s3.url, lost) as server:
        table = txlog.Table(root, storage_options=through(s3, server.url))
        for n in range(3):
            table.append(numbers(n, n + 1))
    assert len(seen) == 3
    found = txlog.Table(root, storage_options=s3.options)
    assert (found.version, found.count()) == (3, 3)


@pytest.mark.slow
def test_many_files_are_deleted_by_one_request(running: dict[str, Server]) -> None:
    if why := missing("moto"):
        pytest.skip(why)
    with proxy(running["moto"].url) as server:
        store = open_store(running["moto"].root(), through(running["moto"], server.url))
        names = [f"x={number % 3}/a file {number}" for number in range(30)]
        for name in names:
            store.write_new(name, b"x")
        server.requests.clear()
        store.delete([*names[1:], "absent"])
        assert [method for method, _ in server.requests] == ["POST"]
        assert [info.name for info in store.list_tree("")] == names[:1]


@pytest.mark.slow
@pytest.mark.spec("SPK-31")
def test_a_plan_on_a_store_that_throttles_is_whole_or_an_error(s3: Server) -> None:
    """Workers read the log, as executors of Spark do."""
    root = s3.root()
    properties = {"delta.checkpointPolicy": "v2"}
    table = txlog.write(root, numbers(0, 4), properties=properties, storage_options=s3.options)
    table.append(numbers(4, 8))
    table.append(numbers(8, 12))
    with moved({"txlog.checkpoint.sidecars:PART_ROWS": 1}):
        table.maintenance.checkpoint()
    seen: set[str] = set()
    refuses_all = False

    def busy(method: str, path: str) -> Failure | None:
        is_new = path not in seen
        seen.add(path)
        return "503" if "_sidecars" in path and (is_new or refuses_all) else None

    apart = {"txlog.snapshot.live_files:_LARGE_BYTES": 1, "txlog.scan.lazy_plan:APART_FROM": 1}
    with moved(apart), proxy(s3.url, busy) as server:
        store = open_store(root, through(s3, server.url))
        snapshot = load_snapshot(store)

        def planned(where: str) -> list[str]:
            engine = Workers()
            plan = plan_snapshot(
                store,
                snapshot,
                lambda: load_files(store, snapshot).live,
                where=as_expression(where),
                engine=engine,
            )
            found = sorted(plan.paths.to_pylist())
            assert len(engine.items) == 4  # The sidecars, and the file that names them.
            return found

        assert planned("x > 5") == sorted(table.files(["path"], where="x > 5")["path"].to_pylist())
        assert len({path for path in seen if "_sidecars" in path}) == 3
        refuses_all = True
        with pytest.raises(StoreError, match="_sidecars"):
            planned("x > 5")


@pytest.mark.spec("GUA-6")
def test_a_store_that_overwrites_is_refused_before_anything_is_written(s3: Server) -> None:
    with proxy(s3.url, headers=NO_PRECONDITION) as server:
        root, options = s3.root(), through(s3, server.url)
        with pytest.raises(UnsupportedFeatureError, match=r"txlog\.coordinator"):
            txlog.write(root, numbers(0, 3), storage_options=options)
        assert list(open_store(root, options).list_tree("")) == []


def test_a_large_file_goes_up_in_parts_and_is_dropped_on_an_error(s3: Server) -> None:
    with proxy(s3.url) as server:
        store = open_store(s3.root(), through(s3, server.url))
        block = os.urandom(1 << 20)
        with store.open_output("large") as file:
            for _ in range(20):
                file.write(block)
        assert store.info("large").size == 20 << 20
        assert store.read("large")[-10:] == block[-10:]
        parts = [path for _, path in server.requests if "partNumber" in path]
        assert len(parts) == -(-(20 << 20) // PART_BYTES)
        with pytest.raises(KeyboardInterrupt):
            output(store, "dropped", block, KeyboardInterrupt())
        assert [info.name for info in store.list_tree("")] == ["large"]
        deadline = time.monotonic() + 30  # The answer of a listing may come first.
        while "DELETE" not in [method for method, _ in server.requests]:
            assert time.monotonic() < deadline, "the parts that had gone up are not dropped"
            time.sleep(0.01)
        with pytest.raises(StoreError, match="another file"):
            output(store, "large", block)
        with pytest.raises(StoreError, match="another file"):
            store.write_new("large", bytes(PART_BYTES + 1))


def output(store: Store, path: str, block: bytes, error: BaseException | None = None) -> None:
    with store.open_output(path) as file:
        for _ in range(20):
            file.write(block)
        if error is not None:
            raise error


def test_new_files_go_up_side_by_side_or_not_at_all(s3: Server) -> None:
    store = open_store(s3.root(), s3.options)
    with store.new_files() as open_output:
        for n in range(20):
            with open_output(f"f{n:02}") as file:
                file.write(b"x" * n)
    assert [info.size for info in store.list_tree("")] == list(range(20))

    def write(names: list[str], error: BaseException | None = None) -> None:
        with store.new_files() as open_output:
            for name in names:
                with open_output(name) as file:
                    file.write(b"another")
            if error is not None:
                raise error

    with pytest.raises(RuntimeError):
        write(["g"], RuntimeError())
    with pytest.raises(StoreError, match="another file"):
        write(["h", "f00", "i"])
    assert [info.size for info in store.list_tree("")] == list(range(20))


def test_opening_and_appending_take_no_more_requests_than_deltalake(s3: Server) -> None:
    counts: dict[str, list[int]] = {}
    for who in ("txlog", "deltalake"):
        root = s3.root().replace(" ", "_")
        txlog.write(root, numbers(0, 10), storage_options=s3.options)
        with proxy(s3.url) as server:
            options = through(s3, server.url)
            txlog.write(f"{root}_probe", numbers(0, 1), storage_options=options)
            theirs = {name: value for name, value in options.items() if name != "max_retries"}
            for _ in range(2):
                server.requests.clear()
                if who == "txlog":
                    table: Any = txlog.Table(root, storage_options=options)
                else:
                    table = DeltaTable(root, storage_options=theirs)
                counts.setdefault(who, []).append(len(server.requests))
                server.requests.clear()
                if who == "txlog":
                    table.append(numbers(10, 20))
                else:
                    write_deltalake(table, numbers(10, 20), mode="append")
                counts[who].append(len(server.requests))
    assert all(a <= b for a, b in zip(counts["txlog"], counts["deltalake"], strict=True)), counts


@pytest.mark.slow
def test_folders_in_a_folder_cost_no_pages(s3: Server) -> None:
    with proxy(s3.url) as server:
        store = open_store(s3.root(), through(s3, server.url))
        assert isinstance(store, CloudStore)
        client, key = store._at("log")
        for n in range(1100):
            client.put(f"{key}/_sidecars/{n:04}", b"")
        for name in ("00", "01", "_last"):
            store.replace(f"log/{name}", b"x")
        server.requests.clear()
        assert [info.name for info in store.list_after("log", "01")] == ["01", "_last"]
        assert len(server.requests) <= 3


@pytest.mark.spec("VAC-10")
def test_a_vacuum_keeps_files_that_are_named_by_another_scheme(s3: Server) -> None:
    def vacuum(uri: str) -> None:
        table = txlog.Table(uri, storage_options=s3.options)
        time.sleep(1.1)  # The server's times may be whole seconds.
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)

    root = s3.root()
    alias, clone = root.replace("s3://", "s3a://"), root.replace("s3://", "S3N://") + " clone"
    txlog.write(root, numbers(0, 3), storage_options=s3.options)
    opened = txlog.Table(alias, storage_options=s3.options)
    with pytest.raises(InvalidInputError, match="is inside the folder"):
        opened.clone(f"{root}/clone", storage_options=s3.options)
    cloned = opened.clone(clone, shallow=True, register=True, storage_options=s3.options)
    txlog.Table(root, storage_options=s3.options).overwrite(numbers(5, 6))
    vacuum(root)
    assert cloned.to_arrow().num_rows == 3
    # A log whose own files have absolute URIs.
    store = open_store(root, s3.options)
    name = txlog.Table(root, storage_options=s3.options).files()["path"][0].as_py()
    path = f"_delta_log/{1:020d}.json"
    uri = f"{alias}/{name}".replace(" ", "%20")
    text = unsealed(store.read(path)).replace(f'"{name}"'.encode(), f'"{uri}"'.encode())
    store.replace(path, text)
    for uri in (root, alias):
        vacuum(uri)
        assert txlog.Table(uri, storage_options=s3.options).to_arrow().num_rows == 1


def test_secrets_are_not_shown(s3: Server) -> None:
    root, options = s3.root(), s3.options
    table = txlog.write(root, numbers(0, 1), storage_options=options)
    shown = [repr(table), repr(open_store(root, options))]
    wrong = {**options, "AWS_ENDPOINT_URL": "http://127.0.0.1:1", "max_retries": "0"}
    for uri, given in (
        (root, wrong),
        (root, {**options, "aws_secret_key_of_mine": SECRET}),
        (root, {**options, "AWS_DISABLE_BULK_DELETE": SECRET}),
        ("az://c/t", {"azure_storage_account_name": "a", "azure_storage_account_key": SECRET}),
        ("gs://c/t", {"google_service_account_key": SECRET}),
    ):
        with pytest.raises(TxlogError) as caught:
            txlog.Table(uri, storage_options=given)
        shown += [
            str(caught.value),
            repr(caught.value),
            "".join(traceback.format_exception(caught.value)),
        ]
    assert not [text for text in shown if SECRET in text]


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(InvalidInputError, match="aws_regoin"):
        open_store("s3://b/t", {"aws_regoin": "x"}).read("f")
    with pytest.raises(InvalidInputError, match="not a backend"):
        open_store("s3://b/t", {"txlog.backend": "x"})
    with pytest.raises(InvalidInputError, match="no bucket"):
        open_store("s3:///t", {}).read("f")


@pytest.mark.parametrize(
    ("kind", "given", "config"),
    [
        ("s3", {"AWS_REGION": "r", "AWS_ALLOW_HTTP": True, "txlog.x": "y"},
         {"aws_region": "r", "aws_allow_http": "true"}),
        ("s3", {"key": "k", "secret": "s", "token": "t", "endpoint_url": "http://h"},
         {"access_key_id": "k", "secret_access_key": "s", "session_token": "t",
          "endpoint": "http://h", "allow_http": "true"}),
        ("s3", {"anon": True, "client_kwargs": {"region_name": "r", "endpoint_url": "https://h"}},
         {"skip_signature": "true", "region": "r", "endpoint": "https://h"}),
        ("s3", {"AWS_S3_ALLOW_UNSAFE_RENAME": "true", "AWS_S3_LOCKING_PROVIDER": "dynamodb",
                "DELTA_DYNAMO_TABLE_NAME": "x", "AWS_ENDPOINT_URL_DYNAMODB": "h"}, {}),
        ("gs", {"token": "/a.json", "project": "p"}, {"service_account": "/a.json"}),
        ("gs", {"token": {"a": 1}}, {"service_account_key": '{"a": 1}'}),
        ("gs", {"token": "anon"}, {"skip_signature": "true"}),
        ("gs", {"token": "google_default"}, {}),
        ("az", {"connection_string": "AccountName=a;AccountKey=k==;BlobEndpoint=http://h/a"},
         {"account_name": "a", "account_key": "k==", "endpoint": "http://h/a",
          "allow_http": "true"}),
        ("az", {"account_name": "a", "tenant_id": "t"}, {"account_name": "a", "tenant_id": "t"}),
    ],
)  # fmt: skip
def test_options_of_fsspec_that_mean_the_same(
    kind: str, given: dict[str, Any], config: dict[str, str]
) -> None:
    assert obstore_config(kind, given)[0] == config


@pytest.mark.parametrize(
    ("kind", "given", "theirs"),
    [
        ("s3", {"AWS_REGION": "r", "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s",
                "AWS_ENDPOINT_URL": "http://h", "AWS_ALLOW_HTTP": "true"},
         {"key": "k", "secret": "s", "endpoint_url": "http://h",
          "client_kwargs": {"region_name": "r"}}),
        ("s3", {"aws_skip_signature": "true", "profile": "p"}, {"anon": True, "profile": "p"}),
        ("gs", {"google_service_account": "/a", "google_base_url": "h"},
         {"token": "/a", "endpoint_url": "h"}),
        ("az", {"azure_storage_account_name": "a", "AZURE_STORAGE_SAS_TOKEN": "t"},
         {"account_name": "a", "sas_token": "t"}),
        (None, {"anything": 1}, {"anything": 1}),
    ],
)  # fmt: skip
def test_options_of_object_store_for_fsspec(
    kind: str | None, given: dict[str, Any], theirs: dict[str, Any]
) -> None:
    assert fsspec_options(kind, given) == theirs


def test_what_only_fsspec_can_is_left_to_it() -> None:
    for options in (
        {"profile": "p"},
        {"client_kwargs": {"verify": False}},
        {"txlog.backend": "fsspec"},
    ):
        assert isinstance(open_store("s3://b/t", options), FsspecStore)
    for options in ({"client_kwargs": {"region_name": "r"}}, {"txlog.backend": "obstore"}):
        assert isinstance(open_store("s3://b/t", options), CloudStore)


def test_where_a_uri_leads() -> None:
    assert place_of("s3a://b/t%20x/y z/") == ("s3", "b", None, "t%20x/y z")
    assert place_of("abfss://c@acct.dfs.core.windows.net/t") == ("az", "c", "acct", "t")
    assert place_of("s3://user:pw@b/t") == ("s3", "b", None, "t")
    assert place_of("gs://b").key == ""


def test_the_environment_says_how_to_connect(s3: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.options.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    root = s3.root()
    before = s3.options["AWS_ENDPOINT_URL"]
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert open_store(root)._at("f")  # type: ignore[attr-defined]  # Connects by the old address.
    monkeypatch.setenv("AWS_ENDPOINT_URL", before)
    txlog.write(root, numbers(0, 3))
    assert txlog.Table(root, storage_options=s3.options).count() == 3


class Instance(BaseHTTPRequestHandler):
    """Tells credentials as a machine of Amazon's does, new ones at each call, which expire soon."""

    given: list[str]

    def do_PUT(self) -> None:
        self._say("a token")

    def do_GET(self) -> None:
        if self.path.endswith("/security-credentials/"):
            self._say("a-role")
            return
        self.given.append(f"key{len(self.given)}")
        soon = datetime.now(UTC) + timedelta(minutes=1)  # They are renewed 5 minutes before.
        self._say(
            json.dumps(
                {
                    "AccessKeyId": self.given[-1], "SecretAccessKey": SECRET, "Token": "t",
                    "Expiration": f"{soon:%Y-%m-%dT%H:%M:%SZ}", "Code": "Success",
                    "LastUpdated": "2026-01-01T00:00:00Z", "Type": "AWS-HMAC",
                }
            )
        )  # fmt: skip

    def _say(self, text: str) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def test_credentials_of_the_machine_are_renewed_before_they_expire(
    s3: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    given: list[str] = []
    handler = type("Given", (Instance,), {"given": given})
    with proxy(s3.url) as server, ThreadingHTTPServer(("127.0.0.1", 0), handler) as machine:
        thread = Thread(target=machine.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            options = {
                name: value for name, value in through(s3, server.url).items() if "KEY" not in name
            }
            options["AWS_METADATA_ENDPOINT"] = f"http://127.0.0.1:{machine.server_address[1]}"
            root = s3.root()
            table = txlog.write(root, numbers(0, 3), storage_options=options)
            first = len(given)
            for n in range(3, 5):
                time.sleep(0.12)  # A client asks for new ones at most ten times a second.
                table.append(numbers(n, n + 1))
            assert table.refresh().count() == 5
        finally:
            machine.shutdown()
            thread.join()
    assert len(given) > first > 0
    used = [match[1] for text in server.signed if (match := re.search(r"Credential=(\w+)/", text))]
    assert len(used) == len(server.signed)
    assert given[-1] in used
    assert not [key for key in used if key not in given]
    assert txlog.Table(root, storage_options=s3.options).count() == 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:lance is not fork-safe")  # Of a package that others import.
def test_a_forked_process_is_told(s3: Server) -> None:
    store = open_store(s3.root(), s3.options)
    store.write_new("f", b"x")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            store.read("f")
        except BaseException as error:
            os.write(write, repr(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert b"forked" in os.read(read, 10_000)


def test_errors_say_what_happened(s3: Server) -> None:
    with pytest.raises(NotFoundError):
        txlog.Table(s3.root(), storage_options=s3.options)
    with pytest.raises(InvalidInputError):
        open_store(s3.root(), s3.options).read("a//b")
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:1/"):
        open_store(s3.root(), {**through(s3, "http://127.0.0.1:1"), "max_retries": 0}).read("f")


def test_a_file_beside_a_full_folder_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name is that of the folder and a `0`, the character after the slash."""
    keys = sorted([*(f"t/abc/{n:05}" for n in range(1000)), "t/abc0", "t/abd"])

    class Client:
        def list(self, prefix: str, offset: str | None, chunk_size: int) -> Iterator[Any]:
            found = [key for key in keys if key.startswith(prefix) and key > (offset or "")]
            for start in range(0, len(found), chunk_size):
                yield [self.head(key) for key in found[start : start + chunk_size]]

        def head(self, key: str) -> dict[str, Any]:
            if key not in keys:
                raise FileNotFoundError(key)
            return {"path": key, "size": 1, "last_modified": datetime(2026, 1, 1, tzinfo=UTC)}

    monkeypatch.setattr(CloudStore, "_client", lambda *_: Client())
    store = CloudStore("s3://bucket/t", {})
    assert [info.name for info in store.list_after("", "")] == ["abc0", "abd"]
