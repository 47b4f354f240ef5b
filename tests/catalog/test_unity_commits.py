"""Managed tables of Unity Catalog: commits, and tables that are made."""

import json
import multiprocessing
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from tests.catalog.conftest import SCHEMA, content, rows
from tests.catalog.unity_server import MOST_UNPUBLISHED, TOKEN, Fault, Stub, external
from txlog import Catalog, Table
from txlog.base.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
    TxlogError,
    UnsupportedFeatureError,
)
from txlog.log.names import commit_name, log_path
from txlog.store.managed import ManagedStore
from txlog.store.unity.address import VARIABLES
from txlog.store.unity.columns import _OF_CATALOG, TABLE_ID, properties_of
from txlog.testing import Fault as StoreFault
from txlog.testing import FaultyStore

NAME = "sales.orders"


@pytest.fixture
def managed(stub: Stub, unity: Catalog) -> Table:
    """A managed table with one row."""
    stub.schemas.append("sales")
    unity.create_table(NAME, SCHEMA, managed="all").append(rows((1, 10)))
    return unity.table(NAME)


def folder_of(table: Table) -> Path:
    return Path(table.uri)


def tracked(stub: Stub) -> tuple[list[int], int]:
    """Return the versions that the server holds as not published, and the latest one."""
    (info,) = [one for one in stub.tables.values() if one["table_type"] == "MANAGED"]
    return sorted(stub.commits[info["table_id"]]), stub.latest[info["table_id"]]


def reported(stub: Stub) -> list[int]:
    sent = [body for name, body in stub.calls if name == "commit"]
    return [one["latest_backfilled_version"] for one in sent if "latest_backfilled_version" in one]


@pytest.mark.spec("CAT-23")
def test_a_managed_table_is_made_and_changed_through_the_catalog(
    stub: Stub, unity: Catalog, managed: Table
) -> None:
    managed.append(rows((2, 20), (3, 30)))
    managed.delete("id = 1")
    managed.update({"v": "v + 1"}, where="id = 2")
    assert content(unity.table(NAME)) == [(2, 21), (3, 30)]
    assert content(unity.table(NAME, version=1)) == [(1, 10)]
    info = stub.tables[f"main.{NAME}"]
    assert info["properties"]["io.unitycatalog.tableId"] == info["table_id"]
    assert info["properties"]["delta.feature.catalogManaged"] == "supported"
    assert [one["type_name"] for one in info["columns"]] == ["LONG", "LONG"]
    assert stub.latest[info["table_id"]] == 4
    assert reported(stub)[-1] == 4
    assert stub.commits[info["table_id"]].keys() <= {4}
    log = folder_of(managed) / "_delta_log"
    assert [(log / commit_name(v)).exists() for v in range(5)] == [True] * 5
    # Other engines may still read them by the names that the catalog gave.
    assert len(list((log / "_staged_commits").iterdir())) == 4
    first = [json.loads(line) for line in (log / commit_name(0)).read_text().splitlines()]
    (protocol,) = [one["protocol"] for one in first if "protocol" in one]
    features = {"catalogManaged", "vacuumProtocolCheck", "v2Checkpoint", "deletionVectors"}
    assert features <= set(protocol["readerFeatures"])
    assert {*features, "inCommitTimestamp"} <= set(protocol["writerFeatures"])
    with pytest.raises(UnsupportedFeatureError, match="catalog"):
        txlog.Table(managed.uri)


@pytest.mark.spec("CAT-23")
def test_the_catalog_gets_the_facts_of_each_commit(stub: Stub, managed: Table) -> None:
    stub.calls.clear()
    managed.append(rows((2, 20)))
    sent = next(b for name, b in stub.calls if name == "commit" and "commit_info" in b)
    info = sent["commit_info"]
    assert (info["version"], sent["latest_backfilled_version"]) == (2, 1)
    assert sent["table_uri"] == stub.tables[f"main.{NAME}"]["storage_location"]
    staged = folder_of(managed) / "_delta_log" / "_staged_commits" / info["file_name"]
    assert staged.stat().st_size == info["file_size"]
    written = json.loads(staged.read_text().splitlines()[0])["commitInfo"]
    assert written["inCommitTimestamp"] == info["timestamp"]
    assert "metadata" not in sent


@pytest.mark.spec("CAT-23")
def test_the_catalog_gets_changes_of_the_schema(stub: Stub, unity: Catalog, managed: Table) -> None:
    managed.alter.add_columns(pa.schema([("price", pa.decimal128(10, 2))]))
    managed.alter.set_properties({"owner": "me"})
    info = stub.tables[f"main.{NAME}"]
    (column,) = [one for one in info["columns"] if one["name"] == "price"]
    assert (column["type_name"], column["type_text"]) == ("DECIMAL", "decimal(10,2)")
    assert (column["type_precision"], column["type_scale"], column["position"]) == (10, 2, 2)
    assert json.loads(column["type_json"])["type"] == "decimal(10,2)"
    assert info["properties"]["owner"] == "me"
    assert info["properties"]["delta.feature.catalogManaged"] == "supported"
    assert unity.table(NAME).schema.names == ["id", "v", "price"]


def features_of(stub: Stub, name: str = NAME) -> set[str]:
    stated = stub.tables[f"main.{name}"]["properties"]
    return {one.removeprefix("delta.feature.") for one in stated if "delta.feature." in one}


@pytest.mark.spec("CAT-23")
def test_the_catalog_has_the_properties_that_the_log_has(
    stub: Stub, unity: Catalog, managed: Table
) -> None:
    info = stub.tables[f"main.{NAME}"]
    own = {name: info["properties"][name] for name in _OF_CATALOG}
    managed.alter.set_description("all of them")
    assert info["comment"] == "all of them"
    managed.alter.set_description(None)
    assert info["comment"] == ""
    managed.alter.set_properties({"delta.enableRowTracking": "true"})
    for feature in (None, "rowTracking"):
        if feature is not None:
            unity.table(NAME).alter.drop_feature(feature)
        protocol = unity.table(NAME).protocol
        assert features_of(stub) == {*protocol.writer_features, *protocol.reader_features}
        assert info["properties"]["delta.minWriterVersion"] == str(protocol.min_writer_version)
    assert own.items() <= info["properties"].items()


@pytest.mark.spec("CAT-23")
def test_a_change_of_the_protocol_alone_gives_it_its_new_values() -> None:
    known = {
        "delta.feature.old": "supported", "delta.minReaderVersion": "1",
        "delta.minWriterVersion": "3", "owner": "me", "delta.lastUpdateVersion": "4",
    }  # fmt: skip
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": ["new"]}
    assert properties_of(known, protocol, known) == {
        "delta.feature.new": "supported", "delta.minReaderVersion": "3",
        "delta.minWriterVersion": "7", "owner": "me", "delta.lastUpdateVersion": "4",
    }  # fmt: skip


@pytest.mark.spec("CAT-23")
def test_the_id_of_the_catalog_stays(stub: Stub, unity: Catalog, managed: Table) -> None:
    acts: list[Callable[[], object]] = [
        lambda: managed.alter.unset_properties([TABLE_ID]),
        lambda: managed.alter.set_properties({TABLE_ID: "another"}),
    ]
    for act in acts:
        with pytest.raises(InvalidInputError, match=TABLE_ID):
            act()
    assert unity.table(NAME).version == 1
    info = stub.tables[f"main.{NAME}"]
    assert unity.table(NAME).properties[TABLE_ID] == info["table_id"]


@pytest.mark.spec("CAT-23")
def test_nothing_is_taken_from_another_table_that_has_the_name(
    stub: Stub, unity: Catalog, managed: Table
) -> None:
    info = stub.tables.pop(f"main.{NAME}")
    stub.tables["main.sales.moved"] = {**info, "name": "moved"}
    stub.add(NAME, "file:///nowhere", properties={"delta.feature.foreign": "supported"})
    with pytest.raises(NotFoundError, match="another table now"):
        managed.alter.set_properties({"owner": "me"})
    assert "foreign" not in features_of(stub, "sales.moved")
    managed = unity.table("sales.moved")
    managed.alter.set_properties({"owner": "me"})
    assert stub.tables["main.sales.moved"]["properties"]["owner"] == "me"


def store_of(table: Table) -> ManagedStore:
    store = table._context.store
    assert isinstance(store, ManagedStore)
    return store


def commit_of(data: bytes, version: int) -> bytes:
    """Return a commit like another one, with an id of its own."""
    lines = [json.loads(line) for line in data.splitlines()]
    del lines[0]["commitInfo"]["txlogCrc32"]
    lines[0]["commitInfo"]["inCommitTimestamp"] += version
    lines[0]["commitInfo"]["txnId"] = f"txn-{version}"
    return b"\n".join(json.dumps(line, separators=(",", ":")).encode() for line in lines)


class ReadOnly(FaultyStore):
    """A store that refuses every write."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner, [StoreFault("replace", call, "not_done") for call in range(1, 99)])


def for_reading(store: ManagedStore) -> ManagedStore:
    import dataclasses

    return dataclasses.replace(store, inner=ReadOnly(store.inner))


@pytest.mark.spec("CAT-23")
def test_commits_of_all_pages_that_are_not_published_are_read(
    stub: Stub, unity: Catalog, managed: Table
) -> None:
    store = store_of(managed)
    blocked = for_reading(store)
    data = store.read(log_path(commit_name(1)))
    for version in range(2, 7):  # Pages of two.
        changed = commit_of(data, version)
        assert store.database.ratify([blocked.stage(version, changed)]) == "ratified"
    assert tracked(stub) == ([2, 3, 4, 5, 6], 6)
    stub.calls.clear()
    assert sorted(store.database.ratified(store.table_id).staged) == [2, 3, 4, 5, 6]
    assert stub.count("getCommits") == 3
    # Who may not write reads the staged bytes, in order with the others.
    listed = [info.name for info in blocked.list_after("_delta_log", "") if ".json" in info.name]
    assert listed == [commit_name(v) for v in range(7)]
    assert b'"txn-6"' in blocked.read(log_path(commit_name(6)))
    assert not (folder_of(managed) / "_delta_log" / commit_name(2)).exists()
    # Who may, publishes them and says so.
    assert store.latest_version() == 6
    assert (folder_of(managed) / "_delta_log" / commit_name(6)).exists()
    assert reported(stub)[-1] == 6
    assert store.database.ratified(store.table_id).staged == {}


@pytest.mark.spec("CAT-23")
def test_no_commit_is_published_before_the_one_before(stub: Stub, managed: Table) -> None:
    store = store_of(managed)
    data = store.read(log_path(commit_name(1)))
    proposed = []
    for version in (2, 3):
        proposed.append(for_reading(store).stage(version, commit_of(data, version)))
        assert store.database.ratify([proposed[-1]]) == "ratified"
    before = reported(stub)
    with pytest.raises(StoreError, match="before it is not"):
        store.publish({3: proposed[1].staged})
    assert reported(stub) == before  # Else the catalog would forget version 2.
    assert tracked(stub) == ([2, 3], 3)


def write_many(address: str, first: int, count: int) -> int:
    table = txlog.Table(address)
    for number in range(first, first + count):
        table.append(rows((number, number)))
    return count


@pytest.mark.slow
@pytest.mark.spec("CAT-23")
def test_writers_of_several_processes_race(
    stub: Stub, managed: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLES[0], TOKEN)
    address = f"{stub.address}/{NAME}"
    with ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = [pool.submit(write_many, address, 100 * n, 6) for n in (1, 2, 3)]
        assert [one.result() for one in waiting] == [6, 6, 6]
    expected = [(1, 10), *((100 * n + k, 100 * n + k) for n in (1, 2, 3) for k in range(6))]
    assert content(managed.refresh()) == expected
    assert managed.version == 1 + 18
    assert tracked(stub)[1] == 19


@pytest.mark.spec("CAT-23")
def test_handles_see_what_others_committed(stub: Stub, unity: Catalog, managed: Table) -> None:
    other = unity.table(NAME)
    other.append(rows((2, 20)))
    managed.append(rows((3, 30)))  # On top of it.
    other.delete("id = 1")
    assert content(unity.table(NAME)) == [(2, 20), (3, 30)]


LOST: dict[str, tuple[list[Fault | None], bool]] = {
    "answer": ([Fault("lost")], True),
    "answers": ([Fault("lost"), Fault("lost")], True),
    "request": ([Fault("dropped")], True),
    "busy": ([Fault("answer", 503)], True),
    "unknown": ([Fault("answer", 500, b'{"error_code": "COMMIT_STATE_UNKNOWN"}')], True),
    "after": ([Fault("after", 500, b"{}")], True),
    "html": ([Fault("answer", 200, b"<html>", "text/html")], True),
    "html after": ([Fault("after", 200, b"<html>", "text/html")], True),
    "refused after": ([Fault("lost"), Fault("answer", 403, b"{}")], True),
}


@pytest.mark.slow
@pytest.mark.parametrize("replays", [True, False], ids=["replays", "conflicts"])
@pytest.mark.parametrize("case", list(LOST))
@pytest.mark.spec("CAT-23")
def test_a_lost_answer_is_found(
    stub: Stub, unity: Catalog, managed: Table, case: str, replays: bool
) -> None:
    """Also with a server that refuses a commit that it has accepted before."""
    stub.replays = replays
    faults, _ = LOST[case]
    stub.faults["commit"] = [*faults]
    assert managed.append(rows((2, 20))).version == 2
    assert content(unity.table(NAME)) == [(1, 10), (2, 20)]
    assert tracked(stub)[1] == 2


@pytest.mark.parametrize("replays", [True, False], ids=["replays", "conflicts"])
@pytest.mark.spec("CAT-23")
def test_a_commit_that_another_process_published_meanwhile_is_found(
    stub: Stub, unity: Catalog, managed: Table, replays: bool
) -> None:
    """The answer is lost; another writer publishes the commit, and the catalog forgets it."""
    stub.replays = replays
    commit = stub.commit
    done = threading.Event()

    def between(query: Any, body: Any) -> Any:
        answer = commit(query, body)
        if "commit_info" in body and not done.is_set():
            done.set()
            stub.lock.release()  # The other writer needs the server.
            try:
                worker = threading.Thread(target=lambda: unity.table(NAME).append(rows((3, 30))))
                worker.start()
                worker.join(60)
            finally:
                stub.lock.acquire()
        return answer

    stub.handlers["commit"] = between
    stub.faults["commit"] = [Fault("lost")]
    managed.append(rows((2, 20)))
    assert done.is_set()
    assert content(unity.table(NAME)) == [(1, 10), (2, 20), (3, 30)]


@pytest.mark.spec("CAT-23")
def test_a_server_that_answers_with_a_text(stub: Stub, unity: Catalog, managed: Table) -> None:
    stub.is_brief = True
    stub.calls.clear()
    assert managed.append(rows((2, 20))).version == 2
    assert stub.count("commit") == 2  # One is the report that it is published.
    stub.faults["commit"] = [Fault("after", 200, b"", "text/plain"), None]
    assert managed.append(rows((3, 30))).version == 3
    assert stub.count("commit") == 4
    unity.drop(NAME)
    assert NAME not in unity


@pytest.mark.parametrize("commits", ["", '"commits": null, '], ids=["absent", "null"])
@pytest.mark.spec("CAT-23")
def test_an_answer_without_commits_has_none(
    stub: Stub, unity: Catalog, managed: Table, commits: str
) -> None:
    body = f'{{{commits}"latest_table_version": 1}}'.encode()
    stub.faults["getCommits"] = [Fault("answer", 200, body)] * 20
    assert content(unity.table(NAME)) == [(1, 10)]


@pytest.mark.parametrize("kind", ["lost", "dropped"])
@pytest.mark.spec("CAT-23")
def test_nothing_is_acknowledged_and_nothing_deleted_while_the_catalog_is_away(
    stub: Stub, unity: Catalog, managed: Table, kind: str
) -> None:
    stub.faults["commit"] = [Fault("lost" if kind == "lost" else "dropped")] + [
        Fault("dropped") for _ in range(9)
    ]
    stub.faults["getCommits"] = [None] * 2 + [Fault("dropped")] * 40
    with pytest.raises((OutcomeUnknownError, StoreError)) as caught:
        managed.append(rows((2, 20)))
    assert isinstance(caught.value, OutcomeUnknownError) or kind == "dropped"
    stub.faults.clear()
    is_there = (2, 20) in content(unity.table(NAME))
    assert is_there == (kind == "lost")
    unity.table(NAME).append(rows((3, 30)))
    assert len(content(unity.table(NAME))) == 2 + is_there


@pytest.mark.spec("CAT-23")
def test_a_catalog_that_cannot_be_reached_refuses(
    stub: Stub, unity: Catalog, managed: Table
) -> None:
    for operation in ("getCommits", "commit"):
        stub.faults[operation] = [Fault("answer", 403, b'{"error_code": "PERMISSION_DENIED"}')] * 9
        with pytest.raises(StoreError, match="403"):
            unity.table(NAME).append(rows((2, 20)))
        stub.faults.clear()
    assert content(unity.table(NAME)) == [(1, 10)]
    assert len(list((folder_of(managed) / "_delta_log" / "_staged_commits").iterdir())) == 1


@pytest.mark.spec("CAT-23")
def test_too_many_unpublished_commits_are_an_error_until_they_are_published(
    stub: Stub, unity: Catalog, managed: Table
) -> None:
    store = store_of(managed)
    blocked = for_reading(store)
    data = store.read(log_path(commit_name(1)))
    last = 1 + MOST_UNPUBLISHED
    for version in range(2, last + 1):
        changed = commit_of(data, version)
        assert blocked.put_if_absent(log_path(commit_name(version)), changed) == "created"
    with pytest.raises(StoreError, match=r"(?s)429.*published"):
        blocked.put_if_absent(log_path(commit_name(last + 1)), changed)
    staged = folder_of(managed) / "_delta_log" / "_staged_commits"
    assert len(list(staged.iterdir())) == last  # That of the refused one is deleted.
    unity.table(NAME).append(rows((2, 20)))  # It may write, so it publishes them all.
    assert tracked(stub)[1] == last + 1


ANSWER = b'{"commits": [{"version": %d, "file_name": "%b%020d.x.json"}], "latest_table_version": 1}'
DAMAGED = {
    "html": b"<html>",
    "missing": b'{"commits": []}',
    "wrong type": b'{"commits": [], "latest_table_version": "1"}',
    "negative": b'{"commits": [], "latest_table_version": -2}',
    "above": ANSWER % (9, b"", 9),
    "path": ANSWER % (1, b"../", 1),
    "other": ANSWER % (1, b"", 0),
    "name": ANSWER.replace(b"%020d", b"%d") % (1, b"", 1),
}


@pytest.mark.parametrize("case", list(DAMAGED))
@pytest.mark.spec("CAT-21")
def test_damaged_answers_about_commits_are_errors(
    stub: Stub, unity: Catalog, managed: Table, case: str
) -> None:
    kind = "text/html" if case == "html" else "application/json"
    stub.faults["getCommits"] = [Fault("answer", 200, DAMAGED[case], kind)]
    with pytest.raises(StoreError, match="not one of Unity Catalog") as caught:
        unity.table(NAME)
    assert "/delta/preview/commits" in str(caught.value)


@pytest.mark.spec("CAT-23")
def test_a_dropped_table_takes_no_commits(stub: Stub, unity: Catalog, managed: Table) -> None:
    unity.drop(NAME)
    with pytest.raises(NotFoundError):
        managed.append(rows((2, 20)))
    assert not (folder_of(managed) / "_delta_log" / commit_name(2)).exists()
    with pytest.raises(NotFoundError):
        unity.table(NAME)


@pytest.mark.spec("CAT-23")
def test_a_writer_that_bypassed_the_catalog_is_named(
    stub: Stub, unity: Catalog, managed: Table
) -> None:
    log = folder_of(managed) / "_delta_log"
    (log / commit_name(2)).write_bytes((log / commit_name(1)).read_bytes())
    with pytest.raises(txlog.LogCorruptError, match="version 2"):
        unity.table(NAME)


def test_a_managed_table_crosses_processes_without_the_token(
    stub: Stub, managed: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = pickle.dumps(store_of(managed))
    assert TOKEN.encode() not in passed
    store = pickle.loads(passed)
    with pytest.raises(StoreError, match="401"):
        store.latest_version()
    monkeypatch.setenv(VARIABLES[0], TOKEN)
    assert store.latest_version() == 1


# Tables that are made ------------------------------------------------------------------------


@pytest.mark.spec("CAT-24")
def test_external_tables_are_made_and_registered(
    stub: Stub, unity: Catalog, tmp_path: Path
) -> None:
    stub.schemas.append("a")
    table = unity.create_table(
        "a.t", SCHEMA, "id", {"owner": "me"}, location=tmp_path / "new", description="all of them"
    )
    table.append(rows((1, 1)))
    info = stub.tables["main.a.t"]
    assert info["storage_location"] == (tmp_path / "new").as_uri()
    assert (info["table_type"], info["comment"]) == ("EXTERNAL", "all of them")
    assert info["properties"]["owner"] == "me"
    assert [one.get("partition_index") for one in info["columns"]] == [0, None]
    assert content(unity.table("a.t")) == [(1, 1)] == content(txlog.Table(tmp_path / "new"))
    txlog.write(tmp_path / "old", rows((2, 2)))
    assert content(unity.register("a.old", tmp_path / "old")) == [(2, 2)]
    assert unity.tables()["name"].to_pylist() == ["a.old", "a.t"]
    with pytest.raises(NotFoundError):
        unity.register("a.u", tmp_path / "nothing")
    for act in (
        lambda: unity.create_table("A.T", SCHEMA, location=tmp_path / "again"),
        lambda: unity.register("a.t", tmp_path / "old"),
        lambda: unity.create_table("a.u", SCHEMA, location=tmp_path / "old"),
    ):
        with pytest.raises(AlreadyExistsError):
            act()
    assert not (tmp_path / "again").exists()
    assert unity.tables()["name"].to_pylist() == ["a.old", "a.t"]


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({}, InvalidInputError),
        ({"managed": "all", "location": "/nowhere"}, InvalidInputError),
        ({"managed": "writes"}, UnsupportedFeatureError),
    ],
)
@pytest.mark.spec("CAT-24")
def test_what_the_catalog_cannot_make_is_refused(
    stub: Stub, unity: Catalog, more: Any, error: type[Exception]
) -> None:
    stub.schemas.append("a")
    with pytest.raises(error):
        unity.create_table("a.t", SCHEMA, **more)
    with pytest.raises(UnsupportedFeatureError):
        unity.register("a.t", "/nowhere", managed="all")
    with pytest.raises(NotFoundError, match="SCHEMA_NOT_FOUND"):
        unity.create_table("nowhere.t", SCHEMA, managed="all")
    assert stub.tables == {}


@pytest.mark.parametrize("kind", [False, "all"])
@pytest.mark.parametrize(
    "fault", [Fault("lost"), Fault("after", 200, b"<html>", "text/html"), Fault("after", 500)]
)
@pytest.mark.spec("CAT-24")
def test_a_table_whose_registration_was_lost_is_found(
    stub: Stub, unity: Catalog, tmp_path: Path, kind: Any, fault: Fault
) -> None:
    stub.schemas.append("a")
    stub.faults["createTable"] = [fault]
    place = {} if kind else {"location": tmp_path / "new"}
    unity.create_table("a.t", SCHEMA, managed=kind, **place).append(rows((1, 1)))
    assert content(unity.table("a.t")) == [(1, 1)]
    assert stub.count("createTable") == 1


@pytest.mark.spec("CAT-24")
def test_a_name_that_another_process_takes_meanwhile(
    stub: Stub, unity: Catalog, tmp_path: Path
) -> None:
    external(stub, "a.t", (1, 1))
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "notes.txt").write_text("mine")
    stub.faults["getTable"] = [Fault("answer", 404, b'{"error_code": "TABLE_NOT_FOUND"}')]
    with pytest.raises(AlreadyExistsError):
        unity.create_table("a.t", SCHEMA, location=tmp_path / "new")
    assert [one.name for one in (tmp_path / "new").rglob("*") if one.is_file()] == ["notes.txt"]
    assert content(unity.table("a.t")) == [(1, 1)]


@pytest.mark.parametrize("status", [400, 403, 404, 429])
@pytest.mark.spec("CAT-24")
def test_a_table_that_was_refused_can_be_made_again(
    stub: Stub, unity: Catalog, tmp_path: Path, status: int
) -> None:
    stub.schemas.append("a")
    refused = Fault("answer", status, b'{"error_code": "NO", "message": "no"}')
    stub.faults["createTable"] = [refused]
    with pytest.raises(TxlogError, match=str(status)):
        unity.create_table("a.t", SCHEMA, location=tmp_path / "new")
    assert not Table.exists(tmp_path / "new")
    unity.create_table("a.t", SCHEMA, location=tmp_path / "new").append(rows((1, 1)))
    stub.faults["createTable"] = [refused]
    with pytest.raises(TxlogError, match=str(status)):
        unity.register("a.u", tmp_path / "new")
    assert content(unity.table("a.t")) == [(1, 1)]


@pytest.mark.parametrize("is_known", [True, False], ids=["seen", "not seen"])
@pytest.mark.parametrize("pairs", [[], [(1, 1)]], ids=["empty", "rows"])
@pytest.mark.spec("CAT-24")
def test_a_refused_table_that_somebody_else_registered_stays(
    stub: Stub, unity: Catalog, tmp_path: Path, pairs: list[tuple[int, int]], is_known: bool
) -> None:
    """The server refuses the place: the folder has another name meanwhile."""
    stub.schemas.append("a")

    def plan(operation: str) -> Fault | None:
        if operation != "createTable":
            return None
        if is_known:
            stub.add("a.other", (tmp_path / "new").as_uri())
        if pairs:
            Table(tmp_path / "new").append(rows(*pairs))
        return Fault("answer", 409, b'{"error_code": "LOCATION_OVERLAP", "message": "no"}')

    stub.plan = plan
    with pytest.raises(AlreadyExistsError, match="LOCATION_OVERLAP"):
        unity.create_table("a.t", SCHEMA, location=tmp_path / "new")
    stub.plan = None
    assert content(Table(tmp_path / "new")) == pairs


@pytest.mark.spec("CAT-24")
def test_columns_are_stated_in_the_words_of_the_catalog(
    stub: Stub, unity: Catalog, tmp_path: Path
) -> None:
    stub.schemas.append("a")
    kinds = {
        "b": (pa.bool_(), "BOOLEAN", "boolean"),
        "i8": (pa.int8(), "BYTE", "tinyint"),
        "i16": (pa.int16(), "SHORT", "smallint"),
        "i32": (pa.int32(), "INT", "int"),
        "i64": (pa.int64(), "LONG", "bigint"),
        "f": (pa.float32(), "FLOAT", "float"),
        "d": (pa.float64(), "DOUBLE", "double"),
        "day": (pa.date32(), "DATE", "date"),
        "t": (pa.timestamp("us", "UTC"), "TIMESTAMP", "timestamp"),
        "n": (pa.timestamp("us"), "TIMESTAMP_NTZ", "timestamp_ntz"),
        "s": (pa.string(), "STRING", "string"),
        "x": (pa.binary(), "BINARY", "binary"),
        "m": (pa.decimal128(5, 2), "DECIMAL", "decimal(5,2)"),
        "l": (pa.list_(pa.int64()), "ARRAY", "array<bigint>"),
        "o": (pa.struct([("a", pa.int32())]), "STRUCT", "struct<a:int>"),
        "k": (pa.map_(pa.string(), pa.int16()), "MAP", "map<string,smallint>"),
    }
    schema = pa.schema([(name, kind) for name, (kind, *_) in kinds.items()])
    unity.create_table("a.t", schema, location=tmp_path / "new")
    stated = {one["name"]: one for one in stub.tables["main.a.t"]["columns"]}
    found = {name: (one["type_name"], one["type_text"]) for name, one in stated.items()}
    assert found == {name: (kind, text) for name, (_, kind, text) in kinds.items()}
    assert [one["position"] for one in stated.values()] == list(range(len(kinds)))


MAINTENANCE: dict[str, Callable[[Table], object]] = {
    "vacuum": lambda table: table.vacuum(dry_run=False),
    "expire": lambda table: table.maintenance.expire(0, dry_run=False),
}


@pytest.mark.parametrize("what", list(MAINTENANCE))
@pytest.mark.spec("CAT-23")
def test_the_server_cleans_up_its_tables_itself(stub: Stub, managed: Table, what: str) -> None:
    managed.maintenance.checkpoint()
    with pytest.raises(UnsupportedFeatureError, match="Unity Catalog"):
        MAINTENANCE[what](managed)
    assert content(managed) == [(1, 10)]


@pytest.mark.parametrize("before", [0, 1, 5])
@pytest.mark.spec("CAT-23")
def test_other_places_get_the_options_of_a_table_and_not_its_commits(
    stub: Stub, unity: Catalog, tmp_path: Path, before: int
) -> None:
    """Whatever the version of the other table is."""
    stub.schemas.append("sales")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    place = str(tmp_path / "others")
    bad = pa.table({"id": pa.array([None, 9], pa.int64())})
    plain = Table.create(tmp_path / "plain", schema)
    for _ in range(before):
        plain.append(bad, on_error="quarantine", quarantine=place)
    table = unity.create_table(NAME, schema, managed="all")
    for _ in range(2):
        table.append(bad, on_error="quarantine", quarantine=place)
    assert Table(place).count() == before + 2
    assert unity.table(NAME).count() == 2
    assert tracked(stub)[1] == 2
    unity.register("sales.bad", place)
    table.append(bad, on_error="quarantine", quarantine=f"{stub.address}/sales.bad")
    assert Table(place).count() == before + 3
    assert unity.table(NAME).clone(tmp_path / "clone").count() == 3
    unity.register("sales.clone", tmp_path / "clone")
    assert table.clone(f"{stub.address}/sales.clone", replace=True).version == 1
    assert unity.table("sales.clone").count() == 3
    assert tracked(stub)[1] == 3


@pytest.mark.spec("CAT-23")
def test_a_conflict_that_cannot_be_judged_deletes_nothing(
    stub: Stub, unity: Catalog, managed: Table
) -> None:
    """The server has accepted the commit, says 409 when it is sent again, and is away then."""
    stub.replays = False
    stub.faults["commit"] = [Fault("lost")]
    commit = stub.commit

    def away(query: Any, body: Any) -> Any:
        stub.faults["getCommits"] = [Fault("dropped")] * 40
        return commit(query, body)

    stub.handlers["commit"] = away
    with pytest.raises(OutcomeUnknownError):
        managed.append(rows((2, 20)))
    stub.faults.clear()
    stub.handlers["commit"] = commit
    assert content(unity.table(NAME)) == [(1, 10), (2, 20)]


@pytest.mark.spec("CAT-23")
def test_a_server_that_counts_from_the_first_commit(
    stub: Stub, unity: Catalog, managed: Table
) -> None:
    unity.create_table("sales.new", SCHEMA, managed="all")
    answer = Fault("answer", 200, b'{"commits": [], "latest_table_version": -1}')
    stub.faults["getCommits"] = [answer] * 50
    table = unity.table("sales.new")
    assert (table.version, content(table)) == (0, [])
