"""Commit coordinators: in SQL, and in DynamoDB beside deltalake."""

import json
import multiprocessing
import uuid
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from fault_proxy import at_random, proxy
from servers import SECRET, Server, missing, moto

import txlog
from txlog.base.errors import InvalidInputError, NotFoundError, StoreError, TxlogError
from txlog.commit.context import Context
from txlog.data_files.options import as_schema
from txlog.store.base import Store
from txlog.store.coordinated import CoordinatedStore
from txlog.store.coordinators import CommitEntry, DynamoCoordinator, SqlCoordinator, coordinator_of
from txlog.store.local.local import LocalStore
from txlog.store.open import open_store
from txlog.stream.offsets import UNDECIDED
from txlog.stream.stream import StreamOptions, TableStream
from txlog.testing import FaultyStore, LatencyStore, StoreContract, open_table
from txlog.verbs.create import create


def rows(start: int, stop: int) -> pa.Table:
    return pa.table({"x": pa.array(range(start, stop), pa.int64())})


@pytest.fixture(scope="module")
def aws() -> Iterator[Server]:
    """S3 and DynamoDB."""
    if why := missing("moto"):
        pytest.skip(why)
    with moto() as server:
        yield server


def with_dynamo(server: Server, table: str = "delta_log") -> dict[str, Any]:
    return {
        **{name: value for name, value in server.options.items() if name != "max_retries"},
        "AWS_S3_LOCKING_PROVIDER": "dynamodb",
        "DELTA_DYNAMO_TABLE_NAME": table,
        "AWS_ENDPOINT_URL_DYNAMODB": server.url,
    }


@pytest.mark.slow
class TestSql(StoreContract):
    names_in_races = 10

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make_store(self) -> Store:
        options = {"txlog.coordinator": f"sqlite:///{self.folder}/log.db", "key": "hunter2"}
        store = open_store(self.folder / "t", options)
        assert isinstance(store, CoordinatedStore)
        return store

    @pytest.mark.exhaustive
    def test_processes_race_and_one_wins(self) -> None:
        super().test_processes_race_and_one_wins()


@pytest.mark.slow
class TestDynamo(StoreContract):
    names_in_races = 8

    @pytest.fixture(autouse=True)
    def on_server(self, aws: Server) -> None:
        self.server = aws

    def make_store(self) -> Store:
        store = open_store(self.server.root(), with_dynamo(self.server))
        assert isinstance(store, CoordinatedStore)
        return store

    @pytest.mark.exhaustive
    def test_processes_race_and_one_wins(self) -> None:
        super().test_processes_race_and_one_wins()


def other_writer(table: txlog.Table, number: int, *, copies: bool) -> None:
    """Commit as delta-spark's log store does, by DynamoDB's own requests; perhaps die half-way."""
    store = table._context.store
    assert isinstance(store, CoordinatedStore)
    client = store.coordinator._client()  # type: ignore[attr-defined]
    version = table.refresh().version + 1
    sink = pa.BufferOutputStream()
    pq.write_table(rows(number, number + 1), sink)
    content = sink.getvalue().to_pybytes()
    store.inner.write_new(f"part-{number}.parquet", content)
    add = {"path": f"part-{number}.parquet", "partitionValues": {}, "size": len(content),
           "modificationTime": 0, "dataChange": True}  # fmt: skip
    data = json.dumps({"add": add}).encode()
    name = f"{version:020d}.json"
    staged = f".tmp/{name}.{uuid.uuid4()}"
    store.inner.write_new(f"_delta_log/{staged}", data)
    item = {"tablePath": {"S": store.root}, "fileName": {"S": name}, "tempPath": {"S": staged},
            "complete": {"S": "false"}}  # fmt: skip
    client.put_item(
        TableName="delta_log", Item=item, ConditionExpression="attribute_not_exists(fileName)"
    )
    if copies:
        store.inner.write_new(f"_delta_log/{name}", data)
        done = {**item, "complete": {"S": "true"}, "expireTime": {"N": "4102444800"}}
        client.put_item(TableName="delta_log", Item=done)


@pytest.mark.slow
@pytest.mark.spec("GUA-7")
def test_entries_are_those_of_delta_spark(aws: Server) -> None:
    root = f"s3://bucket/{uuid.uuid4().hex[:8]}/t"
    options = with_dynamo(aws)
    table = txlog.write(root, rows(0, 1), storage_options=options)
    other_writer(table, 1, copies=True)
    table.append(rows(2, 3))
    other_writer(table, 3, copies=False)  # It died: a reader finishes what it left.
    assert txlog.Table(root, storage_options=options).version == 3
    other_writer(table, 4, copies=False)  # So does a writer that lost to it.
    table.append(rows(5, 6))
    assert sorted(table.refresh().to_arrow()["x"].to_pylist()) == [*range(6)]
    client = table._context.store.coordinator._client()  # type: ignore[attr-defined]
    items = client.query(
        TableName="delta_log",
        KeyConditionExpression="tablePath = :t",
        ExpressionAttributeValues={":t": {"S": root}},
    )["Items"]
    assert [item["fileName"]["S"] for item in items] == [f"{n:020d}.json" for n in range(6)]
    for item in items:
        assert item.keys() == {"tablePath", "fileName", "tempPath", "complete", "expireTime"}
        assert item["complete"] == {"S": "true"}
        assert item["tempPath"]["S"].startswith(f".tmp/{item['fileName']['S']}.")
    # Whoever knows nothing of DynamoDB reads the log.
    assert DeltaTable(root, storage_options=aws.options).version() == 5


def _append_all(root: str, options: dict[str, Any], who: int, times: int) -> int:
    table = txlog.Table(root, storage_options=options)
    for n in range(times):
        table.append(rows(who * 1000 + n, who * 1000 + n + 1))
    return times


@pytest.mark.slow
@pytest.mark.parametrize(
    ("writers", "times"), [(2, 3), pytest.param(8, 15, marks=pytest.mark.exhaustive)]
)
def test_processes_append_through_a_database(tmp_path: Path, writers: int, times: int) -> None:
    options = {"txlog.coordinator": f"sqlite:///{tmp_path}/log.db"}
    txlog.Table.create(tmp_path / "t", rows(0, 0).schema, storage_options=options)
    with ProcessPoolExecutor(writers, multiprocessing.get_context("spawn")) as pool:
        runs = [
            pool.submit(_append_all, str(tmp_path / "t"), options, who, times)
            for who in range(writers)
        ]
        assert [run.result() for run in runs] == [times] * writers
    table = txlog.Table(tmp_path / "t", storage_options=options)
    expected = sorted(who * 1000 + n for who in range(writers) for n in range(times))
    assert sorted(table.to_arrow()["x"].to_pylist()) == expected
    assert table.version == writers * times
    # The log is a plain one: whoever knows nothing of the database reads it.
    assert DeltaTable(tmp_path / "t").version() == writers * times


class Dying:
    """A coordinator that fails at the n-th call of a method: before it, or with its answer lost."""

    def __init__(self, inner: Any, method: str, *, after: bool) -> None:
        self.inner, self.method, self.after = inner, method, after

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.inner, name)
        if name != self.method:
            return call

        def failing(*given: Any) -> Any:
            if self.after:
                call(*given)
            raise StoreError(operation="coordinate", path="", reason="planned")

        return failing


@pytest.mark.spec("GUA-7")
@pytest.mark.parametrize("method", ["get", "put_if_absent", "complete"])
@pytest.mark.parametrize("after", [False, True])
def test_a_coordinator_that_fails_loses_nothing(tmp_path: Path, method: str, after: bool) -> None:
    coordinator = SqlCoordinator(f"sqlite:///{tmp_path}/log.db")
    txlog.write(tmp_path / "t", rows(0, 1), storage_options={"txlog.coordinator": coordinator})
    failing = {"txlog.coordinator": Dying(coordinator, method, after=after)}
    landed = True
    try:
        table = txlog.Table(tmp_path / "t", storage_options=failing)
        table.append(rows(1, 2), txn=("loader", 1))
    except TxlogError:
        landed = False
    table = txlog.Table(tmp_path / "t", storage_options={"txlog.coordinator": coordinator})
    assert table.version == int(landed)
    again = table.append(rows(1, 2), txn=("loader", 1))
    assert again.skipped == landed
    table.append(rows(2, 3))
    assert sorted(table.refresh().to_arrow()["x"].to_pylist()) == [0, 1, 2]


class Uncopied(FaultyStore):
    """A store in which copies fail."""

    broken = False
    error: TxlogError = StoreError(operation="replace", path="f", reason="planned")

    def replace(self, path: str, data: bytes) -> None:
        if self.broken:
            raise self.error
        super().replace(path, data)


@pytest.mark.spec("GUA-7")
@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("error", [Uncopied.error, NotFoundError(path="f", reason="404")])
def test_a_commit_that_was_not_copied_is_seen_by_all(
    tmp_path: Path, far: bool, outside: bool, error: TxlogError
) -> None:
    """The entry is the commit, for new and held handles and for streams."""
    inner = Uncopied(LocalStore(str(tmp_path / "t")))
    inner.error = error
    coordinator = SqlCoordinator(f"sqlite:///{tmp_path}/log.db")
    store = CoordinatedStore(LatencyStore(inner, delay_s=0) if far else inner, coordinator)
    create(Context(store), as_schema(rows(0, 0).schema))
    writer, held = open_table(store), open_table(store)
    stream = TableStream(store, StreamOptions(start_version="latest"))
    at = stream.latest(stream.latest(UNDECIDED))
    if outside:  # Its entry comes after those of all commits.
        assert store.put_if_absent("zone/data", b"x") == "created"
    inner.broken = True
    assert writer.append(rows(0, 1)).version == 1
    inner.broken = False
    log = tmp_path / "t" / "_delta_log"
    name = f"{1:020d}.json"
    match (far, outside):
        case (False, False):
            assert stream.latest(at)["version"] == 2
        case (False, True):
            assert held.refresh().version == 1
        case _:
            assert open_table(store).version == 1
    assert (log / name).exists()
    for table in (writer, held, open_table(store)):
        assert table.refresh().version == 1
        assert table.to_arrow()["x"].to_pylist() == [0]
    assert stream.latest(at)["version"] == 2


@pytest.mark.spec("GUA-7")
@pytest.mark.parametrize("path", ["zone/data", "_delta_log/x.crc", f"_delta_log/{3:020d}.crc"])
def test_any_file_that_was_not_copied_is_read(tmp_path: Path, path: str) -> None:
    inner = Uncopied(LocalStore(str(tmp_path / "t")))
    store = CoordinatedStore(inner, SqlCoordinator(f"sqlite:///{tmp_path}/log.db"))
    inner.broken = True
    assert store.put_if_absent(path, b"first") == "created"
    with pytest.raises(StoreError, match="planned"):
        store.info(path)
    inner.broken = False
    assert store.put_if_absent(path, b"second") == "exists"
    assert store.info(path).size == 5
    assert store.read(path) == (tmp_path / "t" / path).read_bytes() == b"first"


def test_a_table_of_before_goes_on_with_a_coordinator(tmp_path: Path) -> None:
    txlog.write(tmp_path / "t", rows(0, 1)).append(rows(1, 2))
    options = {"txlog.coordinator": f"sqlite:///{tmp_path}/log.db"}
    store = open_store(tmp_path / "t", options)
    assert store.put_if_absent(f"_delta_log/{1:020d}.json", b"{}") == "exists"
    table = txlog.Table(tmp_path / "t", storage_options=options)
    table.append(rows(2, 3))
    assert (table.refresh().version, table.count()) == (2, 3)


@pytest.mark.slow
def test_lost_answers_of_dynamodb(aws: Server) -> None:
    root = f"s3://bucket/{uuid.uuid4().hex[:8]}/t"
    txlog.Table.create(root, rows(0, 0).schema, storage_options=with_dynamo(aws))
    plan = at_random(3, 0.2, "lost answer", "503", methods="POST")
    failures: list[TxlogError] = []
    with proxy(aws.url, plan) as server:
        options = {**with_dynamo(aws), "AWS_ENDPOINT_URL_DYNAMODB": server.url}
        table = txlog.Table(root, storage_options=options)
        for n in range(6):
            for _ in range(8):
                try:
                    table = txlog.Table(root, storage_options=options)
                    table.append(rows(n, n + 1), txn=("loader", n))
                    break
                except TxlogError as error:
                    failures.append(error)
    found = txlog.Table(root, storage_options=with_dynamo(aws))
    assert sorted(found.to_arrow()["x"].to_pylist()) == list(range(6)), failures
    assert found.version == 6


def test_what_names_a_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    assert coordinator_of({}, is_s3=True) is None
    assert coordinator_of({"txlog.coordinator": "sqlite:///x"}, is_s3=False) == SqlCoordinator(
        "sqlite:///x"
    )
    assert coordinator_of({"txlog.coordinator": "dynamodb://"}, is_s3=False) == DynamoCoordinator(
        "delta_log"
    )
    options = {"aws_s3_locking_provider": "dynamodb", "aws_region": "r", "AWS_REGION_DYNAMODB": "q"}
    found = coordinator_of(options, is_s3=True)
    assert found == DynamoCoordinator("delta_log", {"region_name": "q"})
    assert coordinator_of(options, is_s3=False) is None
    monkeypatch.setenv("AWS_S3_LOCKING_PROVIDER", "dynamodb")
    monkeypatch.setenv("DELTA_DYNAMO_TABLE_NAME", "mine")
    assert coordinator_of({"AWS_REGION": "r"}, is_s3=True) == DynamoCoordinator(
        "mine", {"region_name": "r"}
    )
    assert isinstance(open_store("/t"), LocalStore)


def test_secrets_of_a_coordinator_are_not_shown(tmp_path: Path) -> None:
    url = f"postgresql+nothing://user:{SECRET}@host/db"
    with pytest.raises(InvalidInputError) as caught:
        txlog.write(tmp_path / "t", rows(0, 1), storage_options={"txlog.coordinator": url})
    assert SECRET not in repr(caught.value)
    assert SECRET not in repr(open_store(tmp_path, {"txlog.coordinator": url}))
    with pytest.raises(StoreError, match="coordinator failed") as failed:
        SqlCoordinator(f"sqlite:///{tmp_path}/no/such/folder.db").get("t", "f")
    assert failed.value.remedy
    assert CommitEntry("a", "b", False).complete is False


@pytest.mark.parametrize("earlier", [0, 1])
def test_a_commit_of_a_branch_without_its_copy_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, earlier: int
) -> None:
    options = {"txlog.coordinator": f"sqlite:///{tmp_path}/commits.db"}
    table = txlog.write(tmp_path / "t", pa.table({"x": [1]}), storage_options=options)
    table.branches.create("b")
    branch = txlog.Table(table.uri, branch="b", storage_options=options)
    for _ in range(earlier):
        branch.append(pa.table({"x": [2]}))

    def fails(*_: object) -> None:
        raise StoreError(operation="replace", path="", reason="away")

    monkeypatch.setattr(CoordinatedStore, "_finish", fails)
    branch.append(pa.table({"x": [3]}))  # It is acknowledged, but its copy is not made.
    monkeypatch.undo()
    again = txlog.Table(table.uri, branch="b", storage_options=options)
    assert again.count() == 2 + earlier
    assert branch.refresh().count() == 2 + earlier
