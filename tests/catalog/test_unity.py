"""Catalogs of Unity Catalog: tables by name. The server is a stub of its OpenAPI document."""

import copy
import json
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fault_proxy import Proxy
from fault_proxy import proxy as proxied
from servers import localbucket

import txlog
from tests.catalog import unity_server
from tests.catalog.conftest import SCHEMA, content, rows
from tests.catalog.unity_server import DOCUMENT, TOKEN, Fault, Stub, external, serving
from txlog import Catalog
from txlog.base.errors import (
    InvalidInputError,
    NotFoundError,
    StoreError,
    TxlogError,
    UnsupportedFeatureError,
)
from txlog.store.open import open_store
from txlog.store.unity.address import VARIABLES, Address, parse_address
from txlog.store.unity.tables import as_text


@pytest.mark.spec("CAT-18")
def test_tables_of_all_pages_are_listed(stub: Stub, unity: Catalog) -> None:
    names = sorted(f"{schema}.t{n}" for schema in ("a", "b", "c") for n in range(5))
    for name in names:
        stub.add(name, f"file:///nowhere/{name}")
    stub.schemas.append("empty")
    stub.add("a.words", "file:///nowhere/words", data_source_format="CSV")
    stub.add("a.seen", "", table_type="VIEW")
    stub.add("b.own", "file:///nowhere/own", table_type="MANAGED")
    found = unity.tables()
    assert found["name"].to_pylist() == sorted([*names, "b.own"])
    assert unity.namespaces() == ["a", "b", "c", "empty"]
    assert unity.tables("c")["name"].to_pylist() == [f"c.t{n}" for n in range(5)]
    managed = dict(zip(found["name"].to_pylist(), found["managed"].to_pylist(), strict=True))
    assert managed == {**dict.fromkeys(names), "b.own": "all"}
    assert found["version"].null_count == len(found)
    assert stub.count("listTables") == 4 + 3 + 3 + 1 + 3  # Pages of two.


@pytest.mark.spec("CAT-18")
def test_tables_open_by_name_in_any_case(stub: Stub, unity: Catalog) -> None:
    external(stub, "sales.orders", (1, 10))
    for name in ("sales.orders", "Sales.ORDERS", "main.sales.orders"):
        assert content(unity.table(name)) == [(1, 10)]
        assert name in unity
    table = unity.table("sales.orders")
    table.append(rows((2, 20)))
    table.delete("id = 1")
    assert content(unity.table("sales.orders")) == [(2, 20)]
    assert content(unity.table("sales.orders", version=0)) == [(1, 10)]
    stub.calls.clear()
    unity.table("sales.orders")
    assert [name for name, _ in stub.calls] == ["getTable"]
    assert "sales.nothing" not in unity
    assert "nothing" not in unity
    with pytest.raises(NotFoundError, match=r"main\.sales\.nothing"):
        unity.table("sales.nothing")
    with pytest.raises(InvalidInputError, match=r"schema\.table"):
        unity.table("orders")


@pytest.mark.spec("CAT-18")
def test_an_address_opens_a_table_everywhere(stub: Stub, unity: Catalog) -> None:
    external(stub, "sales.orders", (1, 10))
    place, options = unity.location_of("sales.orders"), unity.storage_options()
    assert place == f"{stub.address}/sales.orders"
    assert content(txlog.Table(place, storage_options=options)) == [(1, 10)]
    again = f"{stub.address}/sales/orders"
    txlog.write(again, rows((2, 20)), mode="append", storage_options={"token": TOKEN})
    assert txlog.Table.exists(again, {"token": TOKEN})
    query = "SELECT sum(v) AS v FROM sales.orders"
    assert unity.sql(query).to_pylist() == [{"v": 30}]  # type: ignore[union-attr]  # A query gives rows.
    assert txlog.sql(query, unity.snapshot()).to_pylist() == [{"v": 30}]
    unity.sql("DELETE FROM sales.orders WHERE id = 1")
    assert content(unity.table("sales.orders")) == [(2, 20)]


@pytest.mark.spec("CAT-18")
def test_whether_there_is_a_table_of_the_catalog(stub: Stub, unity: Catalog) -> None:
    external(stub, "a.t", (1, 1))
    options = unity.storage_options()
    assert txlog.Table.exists(unity.location_of("a.t"), options)
    assert not txlog.Table.exists(f"{stub.address}/a.missing", options)


@pytest.mark.spec("CAT-18")
def test_names_are_those_that_the_server_has(stub: Stub, unity: Catalog) -> None:
    for name in ("a._t", "_a.t", "a.t-1", "a.t'1", "a.t=1"):
        external(stub, name, (1, 1))
        assert name in unity
        assert content(unity.table(name)) == [(1, 1)]
        assert content(unity.snapshot()[name]) == [(1, 1)]
    for name in ("a./t", "a.t t", "a.t?", "a..t", "a.t#"):
        with pytest.raises(InvalidInputError):
            unity.table(name)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"data_source_format": "CSV"}, "CSV"),
        ({"data_source_format": "ICEBERG"}, "ICEBERG"),
        ({"table_type": "VIEW", "data_source_format": None}, "VIEW"),
        ({"table_type": "STREAMING_TABLE"}, "STREAMING_TABLE"),
        ({"storage_location": None}, "location"),
        ({"storage_location": "hdfs://name/folder"}, "hdfs"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.spec("CAT-18")
def test_other_tables_are_refused_by_name(
    stub: Stub, unity: Catalog, more: dict[str, Any], said: str
) -> None:
    info = stub.add("a.words", "file:///nowhere/words")
    info.update(more)
    for field in [name for name, value in more.items() if value is None]:
        del info[field]
    for act in (unity.table, unity.location_of):
        with pytest.raises(UnsupportedFeatureError, match=said) as caught:
            act("a.words")
        assert "main.a.words" in str(caught.value)


@pytest.mark.spec("CAT-19")
def test_a_token_is_needed_and_never_shown(
    stub: Stub, unity: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    external(stub, "a.t", (1, 1))
    with pytest.raises(StoreError, match=r"(?s)/catalogs/main.*401.*token"):
        Catalog(stub.address)
    with pytest.raises(StoreError) as caught:
        Catalog(stub.address, storage_options={"token": "dapi-not-valid"})
    assert "dapi-not-valid" not in str(caught.value)
    table = unity.table("a.t")
    store = table._context.store
    for value in (unity, unity.storage_options(), store, store.options, table):
        assert TOKEN not in repr(value)
        if value is not table:
            assert TOKEN.encode() not in pickle.dumps(value)
    assert store.options["txlog.unity"].client.access.token == TOKEN
    passed = pickle.dumps((unity, store))
    with pytest.raises(StoreError, match="401"):
        pickle.loads(passed)
    monkeypatch.setenv(VARIABLES[-1], TOKEN)
    found, _ = pickle.loads(passed)
    assert content(found.table("a.t")) == [(1, 1)]
    monkeypatch.setenv(VARIABLES[0], "dapi-of-another-server")  # It counts before the others.
    with pytest.raises(StoreError, match="401"):
        Catalog(stub.address)


@pytest.mark.spec("CAT-19")
def test_other_programs_get_the_address_and_the_token_of_a_table_for_it_alone(
    stub: Stub, unity: Catalog, tmp_path: Path
) -> None:
    external(stub, "a.t", (1, 1))
    store = unity.table("a.t")._context.store
    options = {**store.options, "region": "x"}
    own = {"token": TOKEN, "region": "x"}
    address = f"{stub.address}/a.t"
    assert as_text(store.root, options) == (address, own)
    assert as_text(f"{stub.address}/a.u", options) == (f"{stub.address}/a.u", own)
    for place in (str(tmp_path / "other"), f"{store.root}/inside", "uc://elsewhere/main/a.t"):
        assert as_text(place, options) == (place, {"region": "x"})
    given = {**unity.storage_options(), "region": "x"}
    assert as_text(address, given) == (address, own)


ODD_TOKENS = [
    "dapi\nsecret",
    "dapi\r\nsecret",
    "dapi-s\u00e9cret",
    "dapi\x00secret",
    "dapi\u2028secret",
]


@pytest.mark.parametrize("token", ODD_TOKENS)
@pytest.mark.spec("CAT-19")
def test_a_token_that_no_header_can_have_is_refused_and_not_shown(
    stub: Stub, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    with pytest.raises(InvalidInputError, match="token") as caught:
        Catalog(stub.address, storage_options={"token": token})
    assert "secret" not in str(caught.value)
    if "\0" not in token:  # No variable can have it.
        monkeypatch.setenv(VARIABLES[0], token)
        with pytest.raises(InvalidInputError, match=VARIABLES[0]) as caught:
            Catalog(stub.address)
        assert "secret" not in str(caught.value)
    assert stub.calls == []


@pytest.mark.spec("CAT-19")
def test_a_line_end_after_the_token_does_not_count(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Catalog(stub.address, storage_options={"token": f" {TOKEN}\r\n"}).namespaces() == []
    monkeypatch.setenv(VARIABLES[0], "\n")
    monkeypatch.setenv(VARIABLES[1], f"{TOKEN}\n")
    assert Catalog(stub.address).namespaces() == []


@pytest.mark.spec("CAT-19")
def test_the_token_goes_where_the_options_go_but_into_no_pickle(stub: Stub, unity: Catalog) -> None:
    external(stub, "a.t", (1, 1))
    place, options = unity.location_of("a.t"), unity.storage_options()
    ways: list[dict[str, Any]] = [
        copy.deepcopy(options),
        json.loads(json.dumps(options)),
        {name: str(value) for name, value in options.items()},
        {"Token": TOKEN},
    ]
    for given in ways:
        assert content(txlog.Table(place, storage_options=given)) == [(1, 1)]
    odd = Catalog(stub.address, storage_options={"TOKEN": TOKEN, "Token": "dapi-another"})
    for value in (odd, options, odd.table("a.t")._context.store.options):
        passed = pickle.dumps(value)
        assert TOKEN.encode() not in passed
        assert b"dapi-another" not in passed


@pytest.mark.spec("CAT-19")
def test_a_function_is_asked_for_the_token_of_each_request(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server takes another token from time to time, and the tables stay open."""
    external(stub, "a.t", (1, 1))
    valid = [TOKEN]
    monkeypatch.setattr(unity_server, "is_valid", lambda token: token == valid[-1])
    unity = Catalog(stub.address, token=lambda: f" {valid[-1]} ")
    table = unity.table("a.t")
    others = [
        txlog.Table(f"{stub.address}/a.t", storage_options=given)
        for given in ({"token": lambda: valid[-1]}, unity.storage_options())
    ]
    for number in range(2):
        valid.append(f"dapi-another-{number}")
        assert unity.namespaces() == ["a"]
        for one in (table, *others):
            again = txlog.Table(f"{stub.address}/a.t", storage_options=one._context.store.options)
            assert content(again) == [(1, 1)]
    assert json.loads(json.dumps(unity.storage_options()))["txlog.catalog.token"] == TOKEN
    for value in (unity, unity.storage_options(), table._context.store.options):
        assert b"dapi-" not in pickle.dumps(value)
    valid.append("dapi-one-more")
    monkeypatch.setattr(unity_server, "is_valid", lambda _: False)
    with pytest.raises(StoreError) as caught:
        unity.namespaces()
    assert "dapi-" not in str(caught.value)


@pytest.mark.spec("CAT-19")
def test_a_function_that_gives_no_token_is_named(stub: Stub, tmp_path: Path) -> None:
    def fails() -> str:
        raise ValueError("the token dapi-secret is old")

    odd: Any
    for odd, reason in (
        (fails, "raised ValueError"), (lambda: None, "returned no text"), (lambda: "", "no text"),
        (lambda: "a\nb", "characters that no token has"), (7, "a function that returns it"),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match=reason) as caught:
            Catalog(stub.address, token=odd)
        assert "dapi-secret" not in str(caught.value)
    with pytest.raises(InvalidInputError, match="only Unity Catalog"):
        Catalog(tmp_path / "lake.db", tmp_path, token="x")


@pytest.mark.spec("CAT-19")
def test_the_token_of_a_table_opens_others_of_its_server_only(
    stub: Stub, unity: Catalog, tmp_path: Path
) -> None:
    external(stub, "a.t", (1, 1))
    options = unity.table("a.t")._context.store.options
    assert content(txlog.Table(f"{stub.address}/a.t", storage_options=options)) == [(1, 1)]
    with serving(Stub(tmp_path)) as other:
        other.add("a.t", stub.tables["main.a.t"]["storage_location"])
        with pytest.raises(StoreError, match="401"):
            txlog.Table(f"{other.address}/a.t", storage_options=options)


@pytest.mark.spec("CAT-19")
def test_the_token_of_the_environment_is_not_sent_in_the_clear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from txlog.store.unity.address import Access, Secret

    monkeypatch.setenv(VARIABLES[0], "dapi-x")
    sent = {
        "uc://unity.example/main": "dapi-x",
        "uc+http://unity.example/main": "",
        "uc+http://127.0.0.1.example/main": "",
        "uc+http://127.0.0.1:8080/main": "dapi-x",
        "uc+http://localhost:8080/main": "dapi-x",
        "uc+http://[::1]:8080/main": "dapi-x",
        "uc+http://[::2]:8080/main": "",
    }
    assert {text: Access(parse_address(text)).token for text in sent} == sent
    given = Access(parse_address("uc+http://unity.example/main"), Secret("mine"))
    assert given.token == "mine"


def test_addresses() -> None:
    assert parse_address("uc://h/main") == Address("uc", "h", "main")
    assert parse_address("UC+HTTP://h:80/main/").server == "http://h:80"
    assert parse_address("uc://h/main/s/t") == parse_address("uc://h/main/s.t")
    assert str(parse_address("uc://[::1]:8/main/s/t")) == "uc://[::1]:8/main/s.t"


@pytest.mark.parametrize(
    "text",
    ["uc://", "uc://h", "uc://h/", "uc:///main", "uc://h/a/b", "uc://h/a/b/c/d", "uc://h:99999/a",
     "uc://a..b/a", f"uc://{'a' * 70}.com/a", "uc://[::::]/a",
     "uc://h/a?token=secret", "uc://user:secret@h/a", "uc://h/a b", "uc://h/a..b.c", "uc://h/%2e/s/t"],
)  # fmt: skip
def test_other_texts_are_no_addresses(text: str) -> None:
    for act in (Catalog, txlog.Table):
        with pytest.raises(InvalidInputError, match=r"uc://host/catalog") as caught:
            act(text)
        assert "secret" not in str(caught.value)


def test_a_catalog_is_no_table_and_a_table_no_catalog(stub: Stub, unity: Catalog) -> None:
    with pytest.raises(NotFoundError, match="a catalog, not of a table"):
        txlog.Table(stub.address, storage_options={"token": TOKEN})
    with pytest.raises(InvalidInputError, match="a table, not of a catalog"):
        Catalog(f"{stub.address}/a/t")
    with pytest.raises(InvalidInputError, match="location"):
        Catalog(stub.address, stub.root)
    with pytest.raises(NotFoundError, match="other"):
        Catalog(stub.address.replace("/main", "/other"), storage_options={"token": TOKEN})


REFUSED: dict[str, Callable[[Catalog], object]] = {
    "rename": lambda c: c.rename("a.t", "a.u"),
    "dropped": lambda c: c.dropped(),
    "undrop": lambda c: c.undrop("a.t"),
    "purge": lambda c: c.purge(),
    "manage": lambda c: c.manage("a.t"),
    "release": lambda c: c.release("a.t"),
    "repair": lambda c: c.repair("a.t"),
    "branches": lambda c: c.branches,
    "at": lambda c: c.at("2026-01-01"),
    "follow": lambda c: c.follow(timeout_s=0),
    "transaction": lambda c: c.transaction(),
    "run": lambda c: c.run(print),
}


@pytest.mark.parametrize("what", list(REFUSED))
@pytest.mark.spec("CAT-20")
def test_what_the_interface_lacks_is_refused_with_another_way(
    stub: Stub, unity: Catalog, what: str
) -> None:
    external(stub, "a.t", (1, 1))
    before = len(stub.calls)
    with pytest.raises(UnsupportedFeatureError, match="published interface") as caught:
        REFUSED[what](unity)
    assert caught.value.features == ("transaction" if what == "run" else what,)
    assert caught.value.remedy
    assert len(stub.calls) == before


def test_nothing_else_of_a_catalog_is_inherited_without_a_word() -> None:
    """A public name of `Catalog` is overridden, or works by what is."""
    from txlog.catalog.unity import UnityCatalog

    public = {name for name in vars(Catalog) if not name.startswith("_")}
    assert public - vars(UnityCatalog).keys() <= {"id", "location", "sql", "table"}


DAMAGED: dict[str, tuple[str, Callable[[Catalog], object], bytes, str]] = {
    "html": ("getTable", lambda c: c.table("a.t"), b"<html></html>", "no JSON, but text/html"),
    "empty": ("getTable", lambda c: c.table("a.t"), b"", "no JSON"),
    "list": ("getTable", lambda c: c.table("a.t"), b"[]", "object"),
    "null": ("listSchemas", lambda c: c.namespaces(), b"null", "object"),
    "missing": ("getTable", lambda c: c.table("a.t"), b'{"name": "t"}', "field schema_name"),
    "wrong type": (
        "listTables",
        lambda c: c.tables(),
        b'{"tables": [{"name": 5, "schema_name": "a", "table_type": "EXTERNAL"}]}',
        r"field tables\.0\.name",
    ),
    "no list": ("listTables", lambda c: c.tables(), b'{"tables": {}}', "field tables"),
    "token": ("listSchemas", lambda c: c.namespaces(), b'{"next_page_token": 7}', "next_page"),
}  # fmt: skip


@pytest.mark.parametrize("case", list(DAMAGED))
@pytest.mark.spec("CAT-21")
def test_a_damaged_answer_is_an_error_with_its_url(stub: Stub, unity: Catalog, case: str) -> None:
    external(stub, "a.t", (1, 1))
    operation, act, body, said = DAMAGED[case]
    content_type = "text/html" if case == "html" else "application/json"
    stub.faults[operation] = [Fault("answer", 200, body, content_type)]
    with pytest.raises(StoreError, match=said) as caught:
        act(unity)
    assert f"{stub.url}/api/2.1/unity-catalog/" in str(caught.value)
    act(unity)  # The next answer is right.


@pytest.mark.spec("CAT-21")
def test_pages_that_begin_again_end(stub: Stub, unity: Catalog) -> None:
    page = Fault("answer", 200, b'{"schemas": [{"name": "a"}], "next_page_token": "1"}')
    stub.faults["listSchemas"] = [page] * 5
    with pytest.raises(StoreError, match="begin again"):
        unity.namespaces()


@pytest.mark.parametrize(
    "fault",
    [Fault("dropped"), Fault("lost"), Fault("answer", 503), Fault("answer", 429, b"slow down")],
    ids=["dropped", "lost", "503", "429"],
)
@pytest.mark.spec("CAT-21")
def test_reads_are_tried_again(stub: Stub, unity: Catalog, fault: Fault) -> None:
    external(stub, "a.t", (1, 1))
    stub.faults["getTable"] = [fault, fault]
    assert content(unity.table("a.t")) == [(1, 1)]
    stub.faults["getTable"] = [fault] * 10
    with pytest.raises(StoreError, match=r"tables/main\.a\.t"):
        unity.table("a.t")
    assert len(stub.faults["getTable"]) == 6


@pytest.mark.spec("CAT-21")
def test_a_host_that_no_request_can_name_is_an_error() -> None:
    with pytest.raises(StoreError, match=r"xn--\.com"):
        Catalog("uc://xn--.com/main", storage_options={"token": TOKEN})


@pytest.mark.spec("CAT-21")
def test_fields_without_value_may_be_null_or_absent(stub: Stub, unity: Catalog) -> None:
    external(stub, "a.t", (1, 1))
    stub.tables["main.a.t"] |= {"properties": None}
    document = DOCUMENT["components"]["schemas"]
    for one in ("ListTablesResponse", "ListSchemasResponse", "TableInfo"):
        assert "required" not in document[one]  # So every field may be absent.
    info = json.dumps(stub.tables.pop("main.a.t")).encode()
    stub.faults["getTable"] = [Fault("answer", 200, info)]
    assert content(unity.table("a.t")) == [(1, 1)]
    for body in (b"{}", b'{"schemas": null, "tables": null, "next_page_token": null}'):
        stub.faults["listSchemas"] = [Fault("answer", 200, body)]
        assert unity.namespaces() == []
        stub.faults["listTables"] = [Fault("answer", 200, body)]
        assert unity.tables("a").num_rows == 0


@pytest.mark.spec("CAT-21")
def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with serving(Stub(tmp_path)) as stub:
        unity = Catalog(stub.address, storage_options={"token": TOKEN})
    with pytest.raises(StoreError, match=r"127\.0\.0\.1"):
        unity.namespaces()
    with pytest.raises(StoreError, match=r"127\.0\.0\.1"):
        Catalog(stub.address)


@pytest.mark.spec("CAT-18")
def test_a_managed_table_without_catalog_managed_is_only_read(stub: Stub, unity: Catalog) -> None:
    folder = external(stub, "a.t", (1, 1))
    stub.tables["main.a.t"]["table_type"] = "MANAGED"
    table = unity.table("a.t")
    assert content(table) == [(1, 1)]
    with pytest.raises(UnsupportedFeatureError, match="catalogManaged"):
        table.append(rows((2, 2)))
    with pytest.raises(UnsupportedFeatureError, match="catalogManaged"):
        table._context.store.delete(["part-1.parquet"])
    assert content(txlog.Table(folder)) == [(1, 1)]
    assert pa.table(table.to_arrow()).schema == SCHEMA


@pytest.mark.parametrize("fault", [None, Fault("lost"), Fault("dropped")])
@pytest.mark.spec("CAT-21")
def test_a_table_is_dropped_once(stub: Stub, unity: Catalog, fault: Fault | None) -> None:
    folder = external(stub, "a.t", (1, 1))
    stub.faults["deleteTable"] = [fault]
    unity.drop("A.t")
    assert unity.tables()["name"].to_pylist() == []
    assert content(txlog.Table(folder)) == [(1, 1)]
    with pytest.raises(NotFoundError):
        unity.drop("a.t")


@pytest.mark.parametrize("kind", ["lost", "dropped"])
@pytest.mark.spec("CAT-21")
def test_another_table_that_has_the_name_meanwhile_is_not_dropped(
    stub: Stub, unity: Catalog, kind: str
) -> None:
    external(stub, "a.t", (1, 1))
    external(stub, "a.u", (2, 2))

    def plan(operation: str) -> Fault | None:
        """Lose the first answer; another process drops the table, and makes one of its name."""
        if operation == "deleteTable":
            stub.plan = between
            return Fault(kind)
        return None

    def between(operation: str) -> None:
        stub.plan = None
        stub.tables["main.a.t"] = {**stub.tables["main.a.u"], "name": "t"}

    stub.plan = plan
    unity.drop("a.t")
    assert content(unity.table("a.t")) == [(2, 2)]
    assert stub.count("deleteTable") == 1


KEYS = {"AWS_ACCESS_KEY_ID": "owner", "AWS_SECRET_ACCESS_KEY": "secret"}


@pytest.fixture
def bucket() -> Iterator[tuple[Proxy, dict[str, str]]]:
    """An S3 server that lets everybody in, behind a proxy that notes who asked."""
    with localbucket() as server, proxied(server.url) as proxy:
        options = {name: value for name, value in server.options.items() if "KEY" not in name}
        yield proxy, {**options, "AWS_ENDPOINT_URL": proxy.url}


@pytest.mark.spec("CAT-22")
def test_credentials_are_renewed_while_a_table_is_open(
    stub: Stub, bucket: tuple[Proxy, dict[str, str]]
) -> None:
    proxy, options = bucket
    info = stub.add("a.t", "s3://bucket/lake/t")
    stub.lifetime_ms = 400
    address = f"{stub.address}/a.t"
    table = txlog.write(address, rows((1, 1)), storage_options={**options, "token": TOKEN})
    for number in range(2, 5):
        known = [grant.key for grant in stub.grants]
        time.sleep(0.5)  # Longer than any of these credentials is valid.
        proxy.signed.clear()
        table.append(rows((number, number)))
        fresh = [grant.key for grant in stub.grants if grant.key not in known]
        assert proxy.signed
        for header in proxy.signed:
            assert any(f"Credential={key}/" in header for key in fresh)
    assert content(table) == [(n, n) for n in range(1, 5)]
    assert {(grant.subject, grant.operation) for grant in stub.grants} == {
        (info["table_id"], "READ_WRITE")
    }
    count = len(stub.grants)
    stub.lifetime_ms = 3_600_000
    for _ in range(3):
        assert len(content(txlog.Table(address, storage_options={**options, "token": TOKEN}))) == 4
    assert len(stub.grants) <= count + 1  # They are kept as long as they are valid.


@pytest.mark.spec("CAT-22")
def test_who_may_not_write_gets_credentials_to_read(
    stub: Stub, bucket: tuple[Proxy, dict[str, str]]
) -> None:
    proxy, options = bucket
    txlog.write("s3://bucket/t", rows((1, 1)), storage_options={**options, **KEYS})
    stub.add("a.t", "s3://bucket/t")
    stub.readers_only = True
    unity = Catalog(stub.address, storage_options={**options, "token": TOKEN})
    proxy.signed.clear()
    assert content(unity.table("a.t")) == [(1, 1)]
    assert [grant.operation for grant in stub.grants] == ["READ"]
    assert all("Credential=KEY0/" in header for header in proxy.signed)
    stub.faults["generateTemporaryTableCredentials"] = [
        Fault("answer", 403, b'{"error_code": "PERMISSION_DENIED", "message": "no"}')
    ] * 20
    stub.add("a.u", "s3://bucket/t")
    with pytest.raises(StoreError, match=r"403: PERMISSION_DENIED no"):
        unity.table("a.u")


STORAGE = {
    "s3": ("s3://bucket/t", {"AWS_ENDPOINT_URL": "{}", "AWS_ALLOW_HTTP": "true"}, "Credential={}/"),
    "az": (
        "abfss://bucket@account.dfs.core.windows.net/t",
        {"azure_storage_endpoint": "{}", "azure_allow_http": "true"},
        "sig={}",
    ),
    "gs": ("gs://bucket/t", {"google_base_url": "{}", "allow_http": "true"}, "Bearer ya29.{}"),
}


@pytest.mark.parametrize("kind", list(STORAGE))
@pytest.mark.spec("CAT-22")
def test_each_storage_gets_its_credentials(
    stub: Stub, bucket: tuple[Proxy, dict[str, str]], kind: str
) -> None:
    proxy, _ = bucket
    place, options, expected = STORAGE[kind]
    stub.add("a.t", place)
    given = {name: value.format(proxy.url) for name, value in options.items()}
    store = open_store(f"{stub.address}/a.t", {**given, "max_retries": 0, "token": TOKEN})
    with suppress(TxlogError):  # The server behind the proxy speaks the language of S3 only.
        store.read("x")
    assert proxy.signed
    seen = [
        f"{path} {header}" for (_, path), header in zip(proxy.requests, proxy.signed, strict=True)
    ]
    key = stub.grants[-1].key
    assert all(expected.format(key) in one for one in seen), seen


@pytest.mark.parametrize("kind", list(STORAGE))
@pytest.mark.spec("CAT-22")
def test_credentials_for_another_storage_are_an_error(stub: Stub, kind: str) -> None:
    stub.add("a.t", STORAGE[kind][0])
    stub.faults["generateTemporaryTableCredentials"] = [Fault("answer", 200, b"{}")]
    store = open_store(f"{stub.address}/a.t", {"token": TOKEN})
    with pytest.raises(StoreError, match=r"no (aws_temp_cred|azure_user_del|gcp_oauth)"):
        store.read("x")


@pytest.mark.parametrize("end", [2**62, 10**15, 0, -(10**15), None])
@pytest.mark.spec("CAT-22")
def test_an_end_that_is_no_date_is_none(stub: Stub, unity: Catalog, end: int | None) -> None:
    stub.add("a.t", "s3://bucket/t")
    found = {"aws_temp_credentials": {"access_key_id": "k", "secret_access_key": "s"}}
    answer = json.dumps({**found, "expiration_time": end}).encode()
    stub.faults["generateTemporaryTableCredentials"] = [Fault("answer", 200, answer)]
    store = open_store(f"{stub.address}/a.t", unity.storage_options())
    vended = store.options["txlog.unity"].provider("s3")
    assert vended()["expires_at"] is None
    assert stub.count("generateTemporaryTableCredentials") == 1


def test_credentials_are_not_shown(stub: Stub, unity: Catalog) -> None:
    stub.add("a.t", "s3://bucket/t")
    store = open_store(f"{stub.address}/a.t", unity.storage_options())
    vended = store.options["txlog.unity"].provider("s3")
    assert vended()["secret_access_key"] == "secret-of-KEY0"
    assert "KEY0" not in repr(vended)


def test_only_the_catalog_makes_its_option(tmp_path: Path) -> None:
    for place in (tmp_path / "t", "s3://bucket/t"):
        with pytest.raises(InvalidInputError, match="by its address"):
            txlog.Table(place, storage_options={"txlog.unity": "uc://host/main/a.t"})
    with pytest.raises(InvalidInputError, match="token"):
        txlog.Table("uc://host/main/a.t", storage_options={"token": 5})
