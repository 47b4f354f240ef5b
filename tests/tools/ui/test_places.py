"""Tables of a catalog, and branches, in the pages."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from txlog import Catalog
from txlog.base.errors import InvalidInputError, NotFoundError, UnsupportedFeatureError
from txlog.tools.cli.tables import shown, use_catalog
from txlog.tools.ui.places import Places

pytest.importorskip("fastapi")
pytest.importorskip("vl_convert")
pytest.importorskip("httpx2")

from fastapi.testclient import TestClient

from txlog.tools.ui.app import make_app

HOME = "http://127.0.0.1:1"


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    found = Catalog(tmp_path / "lake.db", tmp_path / "lake")
    for name, managed in (
        ("sales.orders", "writes"),
        ("sales.eu.orders", "all"),
        ("people", False),
    ):
        found.create_table(name, rows().schema, managed=managed).append(rows(1, 2))
    return found


def client_of(catalog: Catalog | None, *uris: Path, writes: bool = False) -> Any:
    app = make_app(Places([str(uri) for uri in uris], catalog), "t", 1, writes=writes)
    client = TestClient(app, base_url=HOME, raise_server_exceptions=False)
    client.cookies.set("txlog-ui-1", "t", domain="127.0.0.1")
    return client


def links(page: str) -> dict[str, str]:
    """Return the addresses in the cells of a page, by their texts."""
    return {text: href for href, text in re.findall(r'<td[^>]*><a href="([^"]*)">([^<]*)<', page)}


def test_tables_of_a_catalog_are_shown_by_their_names(catalog: Catalog) -> None:
    client = client_of(catalog)
    home = links(client.get("/").text)
    assert {"people", "sales.eu.orders", "sales.orders", "sales", "sales.eu"} <= set(home)
    inside = links(client.get(home["sales"]).text)
    assert {"sales.eu.orders", "sales.orders"} <= set(inside)
    assert "people" not in inside
    assert "people" not in links(client.get("/?namespace=SALES.EU&q=orders").text)
    for name in ("people", "sales.eu.orders", "sales.orders"):
        for page in ("", "/rows", "/schema", "/history", "/files", "/pins"):
            found = client.get(home[name] + page)
            assert found.status_code == 200, found.text
    catalog.table("sales.eu.orders").append(rows(3))
    assert "version 3" in client.get(home["sales.eu.orders"]).text
    catalog.create_table("new", rows().schema)
    assert "new" in links(client.get("/").text)
    catalog.drop("people")
    assert "people" not in links(client.get("/").text)


def test_a_folder_beside_a_catalog_shows_its_tables_once(catalog: Catalog, tmp_path: Path) -> None:
    txlog.write(tmp_path / "lake" / "free", rows(1))
    page = client_of(catalog, tmp_path / "lake").get("/").text
    assert {"free", "people", "sales.orders"} <= set(links(page))
    assert len(re.findall(r'"/tables/[^"]*">sales.orders<', page)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("by_name", [True, False])
def test_branches_are_pages_of_their_own(catalog: Catalog, tmp_path: Path, by_name: bool) -> None:
    if by_name:
        table, client = catalog.table("sales.orders"), client_of(catalog)
    else:
        table = txlog.write(tmp_path / "free", rows(1, 2))
        client = client_of(None, tmp_path / "free")
    table.branches.create("dev")
    table.branches.create("old")
    options = catalog.storage_options() if by_name else None
    branch = txlog.Table(table.uri, branch="dev", storage_options=options)
    branch.append(rows(10, 11, 12))
    name = "sales.orders" if by_name else "free"
    client.get("/")
    page = client.get(links(client.get("/").text)[name]).text
    assert "<h2>Branches</h2>" in page
    address = links(page)["dev"]
    shown_branch = client.get(address).text
    assert f"{name}, branch dev" in shown_branch
    assert "pins" not in "".join(re.findall(r'href="([^"]*)"', shown_branch))
    for step in ("", "/rows", "/schema", "/history", "/files", "/diff", "/report"):
        found = client.get(address + step)
        assert found.status_code == 200, found.text
    assert client.get(address + "/rows").text.count("<tr>") > 5
    assert client.get(links(page)["old"] + "/rows").status_code == 200
    branch.append(rows(13))
    assert f"version {branch.version}" in client.get(address).text
    table.branches.publish("dev")
    gone = client.get(address)
    assert gone.status_code == 404
    assert "no such open branch" in gone.text
    table.branches.create("dev")  # Another branch of the name: the old address is not its own.
    assert client.get(address).status_code == 404


def test_pins_of_a_managed_table_go_through_its_catalog(catalog: Catalog) -> None:
    client = client_of(catalog, writes=True)
    address = links(client.get("/").text)["sales.orders"]
    page = client.get(f"{address}/pins").text
    secret = re.search(r'name="secret" value="([^"]*)"', page)
    assert secret is not None
    fields = {"secret": secret[1], "name": "best", "version": "1"}
    sent = client.post(f"{address}/pins", data=fields, follow_redirects=False)
    assert sent.status_code == 303
    assert set(catalog.table("sales.orders").pins.list()) == {"best"}


def test_what_the_command_shows(catalog: Catalog, tmp_path: Path) -> None:
    database, folder = str(tmp_path / "lake.db"), str(tmp_path / "lake")
    try:
        uris, found = shown([database, folder])
        assert (uris, repr(found)) == ([folder], repr(catalog))
        assert shown([folder]) == ([folder], None)
        with pytest.raises(InvalidInputError, match="no table"):
            shown([])
        use_catalog(database)
        uris, found = shown(["people"])
        assert (uris, repr(found)) == ([], repr(catalog))
        assert shown([])[1] is not None
        with pytest.raises(InvalidInputError, match="one catalog"):
            shown([database])
    finally:
        use_catalog(None)


def test_tables_that_cannot_be_opened_are_rows_with_the_reason(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog does not open one of them, and another process drops another one."""

    def location_of(self: Catalog, name: str) -> str:
        if name == "people":
            reason = "a storage without credentials"
            raise UnsupportedFeatureError(path=name, features=("dbfs",), reason=reason)
        if name == "sales.orders":
            raise NotFoundError(path=name, reason="it was dropped")
        return original(self, name)

    original = Catalog.location_of
    monkeypatch.setattr(Catalog, "location_of", location_of)
    client = client_of(catalog)
    found = client.get("/")
    assert found.status_code == 200
    assert "a storage without credentials" in found.text
    home = links(found.text)
    assert "sales.orders" not in home
    assert client.get(home["sales.eu.orders"]).status_code == 200
    assert client.get(home["people"]).status_code == 400
    monkeypatch.undo()
    home = links(client.get("/").text)
    assert client.get(home["people"]).status_code == 200
    assert "sales.orders" in home
