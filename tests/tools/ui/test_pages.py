"""The pages of tables, in this process: what they show, escape and refuse."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pytest

import txlog
from txlog.scan import scan as scanning
from txlog.tools.ui.cells import MOST_CHARACTERS, column_cells, rows_grid
from txlog.tools.ui.guard import HEADERS, comes_from_here, form_secret, host_of
from txlog.tools.ui.places import Cache, Places, place_of, tables_below
from txlog.tools.ui.schemas import schema_differences

pytest.importorskip("fastapi")
pytest.importorskip("vl_convert")
pytest.importorskip("httpx2")

from fastapi.testclient import TestClient

from txlog.tools.ui.app import make_app, problem_of

TOKEN = "a-token-of-the-tests"
PORT = 8765
HOME = f"http://127.0.0.1:{PORT}"
EVIL = "<script>alert(1)</script>\"'&"


def client_of(*uris: Path | str, writes: bool = False, token: str | None = TOKEN) -> Any:
    app = make_app(Places([str(uri) for uri in uris]), TOKEN, PORT, writes=writes)
    client = TestClient(app, base_url=HOME, raise_server_exceptions=False)
    if token is not None:
        client.cookies.set(f"txlog-ui-{PORT}", token, domain="127.0.0.1")
    return client


class Pages:
    """The pages of one table."""

    def __init__(self, uri: Path | str, **options: Any) -> None:
        self.client = client_of(uri, **options)
        self.key = place_of(str(uri), "").key

    def get(self, page: str = "", status: int = 200, **asked: Any) -> str:
        path = f"/tables/{self.key}" + (f"/{page}" if page else "")
        found = self.client.get(f"{path}?{urlencode(asked)}")
        assert found.status_code == status, found.text
        assert found.headers["content-type"].startswith("text/html")
        return str(found.text)


def cells_of(page: str) -> list[list[str]]:
    """Return the texts of the first table of a page, without those of its head."""
    table = re.search(r"<tbody>(.*?)</tbody>", page, re.DOTALL)
    rows = re.findall(r"<tr>(.*?)</tr>", table[1], re.DOTALL) if table else []
    return [
        [re.sub("<[^>]*>", "", one) for one in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)]
        for row in rows
    ]


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> txlog.Table:
    rows = pa.table({"id": pa.array(range(120), pa.int64()), "carrier": ["UA", "B6"] * 60})
    table = txlog.write(tmp_path_factory.mktemp("tables") / "flights", rows, name="Flights")
    table.append(pa.table({"id": [1000], "carrier": ["AA"]}))
    table.delete("id < 10", user_metadata={"userName": "ann"})
    table.alter.add_columns({"delay": pa.int32()})
    table.alter.set_properties({"delta.appendOnly": "true"})
    table.pins.create("best", 1, "for the paper")
    return table


@pytest.fixture(scope="module")
def pages(flights: txlog.Table) -> Pages:
    return Pages(flights.uri)


# What pages show ---------------------------------------------------------------------------------


def test_tables_below_a_folder_are_listed(tmp_path: Path) -> None:
    for folder in ("b", "a/deep", "_hidden", ".trash", "b/within"):
        txlog.write(tmp_path / folder, pa.table({"n": [1]}))
    (tmp_path / "plain").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "b")
    damaged = tmp_path / "damaged" / "_delta_log"
    damaged.mkdir(parents=True)
    (damaged / f"{0:020d}.json").write_text("{")
    page = client_of(tmp_path).get("/").text
    rows = cells_of(page)
    assert [row[0] for row in rows] == ["a/deep", "b", "damaged"]
    assert rows[1][1:3] == ["0", "1"]
    assert "JSON" in rows[2][4]
    assert [row[0] for row in cells_of(client_of(tmp_path).get("/?q=DEEP").text)] == ["a/deep"]


def test_only_so_many_folders_are_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txlog.tools.ui.places.MOST_FOLDERS", 4)
    (tmp_path / "a" / "b").mkdir(parents=True)
    for n in range(2):
        txlog.write(tmp_path / f"t{n}", pa.table({"n": [1]}))
    page = client_of(tmp_path).get("/").text
    assert [row[0] for row in cells_of(page)] == ["t0", "t1"]
    assert "more folders than were searched" in page


def test_a_folder_without_tables_is_an_error(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(txlog.NotFoundError, match="no table"):
            Places([str(folder)]).find_all()


def test_tables_of_other_stores_are_found() -> None:
    from txlog.store.open import open_store

    for folder in ("x/a", "x/b/c"):
        txlog.write(f"memory://{folder}", pa.table({"n": [1, 2, 3]}))
    assert tables_below(open_store("memory://x")) == (["a", "b/c"], True)
    rows = cells_of(client_of("memory://x").get("/").text)
    assert [row[0] for row in rows] == ["a", "b/c"]


def test_the_overview_says_what_the_table_is(pages: Pages, flights: txlog.Table) -> None:
    page = pages.get()
    figures = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page))
    assert figures["rows"] == str(flights.count()) == "111"
    assert figures["data files"] == "2"
    assert figures["Name"] == "Flights"
    assert "delta.appendOnly" in page
    assert "append-only" in page  # Why rows cannot be deleted.
    assert "Pinned as</dt><dd>best" in pages.get(version=1)


def test_rows_come_by_pages(pages: Pages, flights: txlog.Table) -> None:
    wanted = [[str(one) for one in row.values()] for row in flights.to_arrow().to_pylist()]
    found: list[list[str]] = []
    path: str | None = f"/tables/{pages.key}/rows"
    visited = 0
    while path:
        page = pages.client.get(path).text
        found += cells_of(page)
        visited += 1
        following = re.search(r'rel="next" href="([^"]*)"', page)
        path = following[1].replace("&amp;", "&") if following else None
    assert visited == 3
    assert [[one.replace("null", "None") for one in row] for row in found] == wanted
    assert "Rows 101 to 111 of 111" in page
    assert "There are no rows here" in pages.get("rows", offset=500)


def test_rows_of_a_version_are_filtered(pages: Pages) -> None:
    asked = {"where": "carrier = 'AA' OR id = 7", "columns": "id"}
    assert cells_of(pages.get("rows", **asked)) == [["1000"]]
    assert cells_of(pages.get("rows", **asked, version="best")) == [["7"], ["1000"]]
    assert cells_of(pages.get("rows", **asked, version=0)) == [["7"]]
    page = pages.get("explain", **asked, version=1)
    assert dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page))["files to read"] == "2 of 2"
    page = pages.get("explain", where="id > 500")
    assert dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page))["files to read"] == "1 of 2"


def test_a_page_reads_no_more_files_than_its_rows_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"n": list(range(100))}))
    for start in range(100, 600, 100):
        table.append(pa.table({"n": list(range(start, start + 100))}))
    opened: list[int] = []

    def counted(reading: Any, plan: Any, fragment: Any, **options: Any) -> Any:
        opened.append(fragment.id)
        return read(reading, plan, fragment, **options)

    read = scanning.read_fragment
    monkeypatch.setattr(scanning, "read_fragment", counted)
    pages = Pages(table.uri)
    for offset, files in ((0, 1), (60, 2), (550, 1)):
        opened.clear()
        assert cells_of(pages.get("rows", offset=offset))[0] == [str(offset)]
        assert len(opened) == files
    assert "Rows 551 to 600 of 600" in pages.get("rows", offset=550)
    opened.clear()
    assert len(cells_of(pages.get("rows", where="n >= 120"))) == 50
    assert len(opened) == 1


def test_many_columns_are_left_out_until_they_are_named(tmp_path: Path) -> None:
    wide = pa.table({f"c{n}": [n] for n in range(60)})
    pages = Pages(txlog.write(tmp_path / "t", wide).uri)
    page = pages.get("rows")
    assert len(cells_of(page)[0]) == 40
    assert "20 more columns are not shown" in page
    assert cells_of(pages.get("rows", columns="c59, c0")) == [["59", "0"]]


def test_the_schema_has_its_history(pages: Pages) -> None:
    page = pages.get("schema")
    assert [row[:3] for row in cells_of(page)] == [
        ["id", "long", "yes"], ["carrier", "string", "yes"], ["delay", "integer", "yes"],
    ]  # fmt: skip
    changes = cells_of(page.partition("What changed")[2])
    assert changes[0] == ["4", "property delta.appendOnly = true"]
    assert changes[1] == ["3", "added delay (integer)"]
    assert changes[-1] == ["0", "the table was created with 2 columns"]
    assert len(cells_of(pages.get("schema", version=2))) == 2


def test_differences_of_schemas_are_told_in_words(tmp_path: Path) -> None:
    properties = {"delta.columnMapping.mode": "name", "delta.enableTypeWidening": "true"}
    kinds = pa.schema(
        [("a", pa.int32()), ("st", pa.struct([("b", pa.int64())])), ("z", pa.bool_())]
    )
    table = txlog.Table.create(tmp_path / "t", kinds, properties=properties)
    before = table.snapshot.schema
    table.alter.rename_column("st.b", "c")
    table.alter.widen_type("a", pa.int64())
    table.alter.drop_columns("z")
    table.alter.add_columns({"n": pa.string()})
    table.alter.move_column("n", first=True)
    found = schema_differences(before, table.snapshot.schema)
    assert found == [
        "added n (string)", "a: integer became long", "a: its metadata changed",
        "renamed st.b to st.c", "dropped z (boolean)",
    ]  # fmt: skip
    assert schema_differences(before, before) == []


def test_the_history_says_who_did_what(pages: Pages, flights: txlog.Table) -> None:
    rows = cells_of(pages.get("history"))
    assert [row[0] for row in rows] == [str(n) for n in range(flights.version, -1, -1)]
    deleted = rows[flights.version - 2]
    assert deleted[2:4] == ["DELETE", "ann"]
    assert "numDeletedRows: 10" in deleted[5]
    assert len(cells_of(pages.get("history", version=1))) == 2
    assert len(cells_of(pages.get("history", offset=2))) == len(rows) - 2


def test_two_versions_are_compared(pages: Pages) -> None:
    rows = cells_of(pages.get("diff", start=0, end=2))
    assert sorted({row[0] for row in rows}) == ["delete", "insert"]
    assert len(rows) == 11
    assert cells_of(pages.get("diff", start="best", end=0)) == [["delete", "1000", "AA"]]
    assert "same rows" in pages.get("diff", version=2, start=2, end=2)
    later = cells_of(pages.get("diff", start=0, end=2, offset=9))
    assert later == rows[9:]


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 49, 50, 60])
def test_of_many_columns_those_that_differ_are_compared(tmp_path: Path, rows: int) -> None:
    names = [f"c{at}" for at in range(100)]
    data = {"k": list(range(rows)), **{name: [1.5] * rows for name in names}}
    table = txlog.write(tmp_path / "t", pa.table(data))
    table.delete("k = 0")
    table.append(pa.table({name: values[:1] for name, values in data.items()}))
    table.update({"c97": "2", "c55": "3"})
    page = Pages(tmp_path / "t").get("diff", start=0, end=table.version, on="k")
    heads = re.findall(r"<th[^>]*>(.*?)</th>", page, re.DOTALL)
    shown = [name for name in ["k", *names] if any(re.search(rf"\b{name}\b", h) for h in heads)]
    assert len(shown) == 40
    assert {"k", "c55", "c97"} <= set(shown)
    assert "61 more columns are not shown" in page
    few = Pages(tmp_path / "t").get("diff", start=0, end=0, on="k")
    assert "same rows" in few


def test_files_and_pins_are_listed(pages: Pages, flights: txlog.Table) -> None:
    rows = cells_of(pages.get("files"))
    assert {row[0] for row in rows} == set(flights.files()["path"].to_pylist())
    assert sum(int(row[2]) - int(row[3].replace(",", "")) for row in rows) == 111
    assert cells_of(pages.get("pins"))[0][:3] == ["best", "1", "for the paper"]


def test_the_report_is_on_a_page_and_a_file(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    # The library takes seconds to be put together; tests of a browser have the real one.
    monkeypatch.setattr("txlog.tools.report.page.chart_library", lambda: "library()")
    page = pages.get("report")
    assert "What to do" in page
    assert '<script src="/static/charts.js">' in page
    found = pages.client.get(f"/tables/{pages.key}/report.html?version=1")
    told = found.headers["content-disposition"]
    assert told == f'attachment; filename="{pages.key}-1.html"'
    assert "library()" in found.text


# Errors are pages --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "asked", "status", "text"),
    [
        ("rows", {"where": "carrier = "}, 400, "an operand is missing"),
        ("rows", {"where": "nothing = 1"}, 400, "nothing"),
        ("rows", {"columns": "nothing"}, 400, "nothing"),
        ("rows", {"offset": -1}, 400, "offset: Input should be greater"),
        ("rows", {"offset": "x"}, 400, "offset: Input should be a valid integer"),
        ("", {"version": 99}, 404, "no such version; the latest is"),
        ("", {"version": "9" * 199}, 404, "no such version"),
        ("", {"version": "-1"}, 404, "pin"),
        ("", {"version": "no-pin"}, 404, "pin"),
        ("", {"version": "x" * 201}, 400, "at most 200"),
        ("diff", {"start": 0, "end": 77}, 404, "no such version"),
        ("diff", {"start": 0, "end": 2, "on": "x"}, 400, "x"),
        ("nothing", {}, 404, "There is no such page"),
    ],
)
def test_errors_are_readable_pages(
    pages: Pages, page: str, asked: dict[str, Any], status: int, text: str
) -> None:
    found = pages.get(page, status, **asked)
    assert text in re.sub("<[^>]*>", "", found)
    assert "<h1>" in found
    if "where" in asked:  # The form is there, to be mended.
        assert f'value="{asked["where"]}"' in found


def test_a_fault_of_ours_is_a_page_too(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(visit: object, offset: int) -> None:
        raise RuntimeError("a secret <detail>")

    monkeypatch.setattr("txlog.tools.ui.pages.files", broken)
    client = pages.client
    found = client.get(f"/tables/{pages.key}/files")
    assert found.status_code == 500
    assert "a secret &lt;detail&gt;" in found.text


def test_a_reason_shows_a_path_as_it_is() -> None:
    shown = problem_of(
        txlog.NotFoundError(reason="'/data/x=1&y=2' is no table", path="/data/x=1&y=2")
    )
    assert shown["reason"] == "'/data/x=1&y=2' is no table"
    assert shown["facts"] == [("path", "/data/x=1&y=2")]


def test_a_table_that_goes_away_is_an_error(tmp_path: Path) -> None:
    import shutil

    table = txlog.write(tmp_path / "t", pa.table({"n": [1]}))
    pages = Pages(table.uri)
    assert cells_of(pages.get("rows")) == [["1"]]
    table.append(pa.table({"n": [2]}))
    assert cells_of(pages.get("rows")) == [["1"], ["2"]]  # The latest version, each time.
    shutil.rmtree(tmp_path / "t")
    assert "not-found" in pages.get("rows", 404)


# Hostile texts -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    folder = tmp_path_factory.mktemp("evil") / EVIL.replace("/", "∕")
    rows = pa.table({EVIL: [EVIL, "b"], "part": [EVIL, "x"]})
    table = txlog.write(
        folder, rows, partition_by=["part"], name=EVIL, description=EVIL,
        properties={"delta.columnMapping.mode": "name"},
    )  # fmt: skip
    table.alter.set_column_metadata("part", {"comment": EVIL})
    table.alter.set_properties({"user.note": EVIL})
    table.append(rows, user_metadata={"userName": EVIL})
    table.pins.create(EVIL, 0, EVIL)
    return Pages(str(folder), writes=True)


@pytest.mark.parametrize(
    "page",
    ["", "rows", "schema", "history", "diff", "files", "pins", "explain", "missing", "report"],
)
def test_texts_of_a_table_are_escaped(
    evil: Pages, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txlog.tools.report.page.chart_library", str)
    asked = {"where": f"part <> '{EVIL.replace(chr(39), chr(39) * 2)}'", "on": EVIL, "q": EVIL}
    for query in ({}, {"version": EVIL}, asked):
        path = f"/tables/{evil.key}" + (f"/{page}" if page else "")
        text = evil.client.get(f"{path}?{urlencode(query)}").text
        assert "<script>alert" not in text
        assert not re.search(r"<[^>]*[\"']&(?!amp|lt|gt|#3)", text)
        scripts = re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL)
        assert not [one for one in scripts if "alert(1)</" in one]
    assert "<script>alert" not in evil.client.get(f"/?{urlencode({'q': EVIL})}").text
    assert "&lt;script&gt;alert" in evil.client.get("/").text


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array([None, 1], pa.int8()), ["null", "1"]),
        (pa.array(["x" * 600]), [f"{'x' * MOST_CHARACTERS}… (600 characters)"]),
        (pa.array([b"\x00\xff", bytes(100)]), ["0x00ff", f"0x{'00' * 32}… (100 bytes)"]),
        (pa.array([1], pa.timestamp("ns", "UTC")), ["1970-01-01 00:00:00.000000001Z"]),
        (pa.array([2**60], pa.timestamp("us")), ["value"]),
        (pa.array([[2**60]], pa.list_(pa.timestamp("us"))), ["value"]),
        (pa.array([[1]], pa.list_(pa.timestamp("ns"))), ["value"]),
        (pa.array([{"a": None, "b": [True]}]), ['{"a":null,"b":[true]}']),
        (pa.array([[(b"k", 1)]], pa.map_(pa.binary(), pa.int64())), ['[["0x6b",1]]']),
        (pa.array([True, False]), ["true", "false"]),
        (pa.array([float("nan"), 1e300]), ["nan", "1e+300"]),
    ],
    ids=lambda value: str(getattr(value, "type", ""))[:30],
)
def test_values_of_all_types_are_texts(column: pa.Array, texts: list[str]) -> None:
    found = [cell.text for cell in column_cells(pa.chunked_array([column]))]
    if texts == ["value"]:
        assert len(found) == 1
        assert found[0]
    else:
        assert found == texts


def test_a_table_without_columns_has_rows_without_cells() -> None:
    assert rows_grid("x", pa.table({})).rows == []


# Who may see them --------------------------------------------------------------------------------


def test_the_token_opens_the_pages_once_and_becomes_a_cookie(flights: txlog.Table) -> None:
    client = client_of(flights.uri, token=None)
    refused = client.get("/")
    assert refused.status_code == 403
    assert "Open the address that txlog printed" in refused.text
    assert "Flights" not in refused.text
    first = client.get(f"/?q=a&token={TOKEN}", follow_redirects=False)
    assert (first.status_code, first.headers["location"]) == (303, "/?q=a")
    cookie = first.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert client.get("/").status_code == 200


@pytest.mark.parametrize("given", ["", "x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "ü", "\udcff"])
def test_wrong_tokens_are_refused(flights: txlog.Table, given: str) -> None:
    client = client_of(flights.uri, token=None)
    asked = urlencode({"token": given}, errors="surrogateescape")
    found = client.get(f"/?{asked}", follow_redirects=False)
    assert found.status_code == 403
    assert "set-cookie" not in found.headers
    if given.isascii():
        assert client_of(flights.uri, token=given).get("/").status_code == 403


def test_redirections_stay_on_this_server(flights: txlog.Table) -> None:
    client = client_of(flights.uri, token=None)
    for path in ("//example.com/", "///example.com", "/%5Cexample.com", "/%2F/example.com"):
        found = client.get(f"{HOME}{path}?token={TOKEN}", follow_redirects=False)
        assert re.fullmatch(r"/(?![/\\]).*", found.headers["location"]), path


@pytest.mark.parametrize(
    "host", ["example.com", "127.0.0.1.example.com", "localhost.", "", "a:b:c", "127.0.0.1@evil"]
)
def test_a_name_that_leads_here_is_refused(flights: txlog.Table, host: str) -> None:
    client = client_of(flights.uri)
    for path in ("/", "/static/page.css", f"/?token={TOKEN}"):
        found = client.get(path, headers={"host": host}, follow_redirects=False)
        assert found.status_code == 421
    for own in ("localhost", "127.0.0.1:1", "[::1]:8765", "LOCALHOST:99"):
        assert client.get("/static/page.css", headers={"host": own}).status_code == 200


def test_hosts_are_read_as_browsers_write_them() -> None:
    assert host_of(["[::1]:80"]) == "::1"
    assert host_of(["a", "127.0.0.1"]) == host_of([]) == host_of(["[::1"]) == ""


def test_all_answers_have_the_headers(flights: txlog.Table) -> None:
    client = client_of(flights.uri)
    for path in ("/", "/static/ui.css", "/tables/none", "/nothing"):
        found = client.get(path)
        assert HEADERS.items() <= dict(found.headers).items()
    rules = [rule.split() for rule in HEADERS["content-security-policy"].split(";")]
    assert {source for _, *sources in rules for source in sources} == {"'none'", "'self'", "data:"}
    assert client.get("/").headers["cache-control"] == "no-store"
    assert client.get("/docs").status_code == client.get("/openapi.json").status_code == 404


@pytest.mark.parametrize(
    "path",
    ["/tables/..%2f..%2fetc", "/tables/%2e%2e", "/static/..%2f..%2fpyproject.toml",
     "/static/page.html", "/tables/{secret}/rows", "/tables/..%2fsecret"],
)  # fmt: skip
def test_nothing_outside_of_the_folder_can_be_named(tmp_path: Path, path: str) -> None:
    txlog.write(tmp_path / "shown" / "t", pa.table({"n": [1]}))
    secret = txlog.write(tmp_path / "secret", pa.table({"n": ["hidden"]}))
    client = client_of(tmp_path / "shown")
    found = client.get(path.format(secret=place_of(secret.uri, "secret").key))
    assert found.status_code == 404
    assert "hidden" not in found.text


# Forms -------------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> txlog.Table:
    return txlog.write(tmp_path / "small", pa.table({"n": [1]}))


def form(**fields: str) -> dict[str, str]:
    return {"secret": form_secret(TOKEN), **fields}


def test_pins_are_made_and_dropped_by_forms(small: txlog.Table) -> None:
    pages = Pages(small.uri, writes=True)
    path = f"/tables/{pages.key}/pins"
    assert 'name="secret"' in pages.get("pins")
    made = pages.client.post(path, data=form(name="best <1>", version="0", reason="why"))
    assert cells_of(made.text)[0][:3] == ["best &lt;1&gt;", "0", "why"]
    assert small.pins.list()["best <1>"].reason == "why"
    assert pages.client.post(path, data=form(name="best <1>")).status_code == 500
    assert pages.client.post(path, data=form(name="b", version="77")).status_code == 404
    assert pages.client.post(path, data=form(name="b", version="b")).status_code == 400
    assert pages.client.post(path, data=form(name="x" * 70_000)).status_code == 400
    gone = pages.client.post(f"{path}/delete", data=form(name="best <1>"))
    assert "no pins" in gone.text
    assert small.pins.list() == {}


@pytest.mark.parametrize(
    ("headers", "fields"),
    [
        ({"origin": "http://example.com"}, form(name="p")),
        ({"origin": "null"}, form(name="p")),
        ({"sec-fetch-site": "cross-site"}, form(name="p")),
        ({"sec-fetch-site": "same-site"}, form(name="p")),
        ({}, {"name": "p"}),
        ({}, {"name": "p", "secret": TOKEN}),
        ({"origin": f"http://127.0.0.1:{PORT + 1}"}, form(name="p")),
    ],
)
def test_forms_of_others_are_refused(
    small: txlog.Table, headers: dict[str, str], fields: dict[str, str]
) -> None:
    pages = Pages(small.uri, writes=True)
    for path in ("pins", "pins/delete"):
        found = pages.client.post(f"/tables/{pages.key}/{path}", data=fields, headers=headers)
        assert found.status_code == 403
    assert small.pins.list() == {}


def test_browsers_say_where_a_form_comes_from() -> None:
    own = {"host": "127.0.0.1:8765", "origin": HOME, "sec-fetch-site": "same-origin"}
    assert comes_from_here(own)
    assert not comes_from_here(own | {"host": "127.0.0.1:9999"})


def test_pages_are_read_only_unless_asked(small: txlog.Table) -> None:
    pages = Pages(small.uri)
    assert '<form class="fields" method="post"' not in pages.get("pins")
    assert "read-only" in pages.get("pins")
    found = pages.client.post(f"/tables/{pages.key}/pins", data=form(name="p"))
    assert (found.status_code, "--write" in found.text) == (403, True)
    assert small.pins.list() == {}
    without = client_of(small.uri, writes=True, token=None)
    assert without.post(f"/tables/{pages.key}/pins", data=form(name="p")).status_code == 403


def test_the_last_values_are_kept() -> None:
    kept, made = Cache(2), list[str]()

    def make(key: str) -> Callable[[], str]:
        return lambda: made.append(key) or key  # type: ignore[func-returns-value]

    for key in ("a", "b", "a", "c", "a", "b"):
        assert kept.get(key, make(key)) == key
    assert made == ["a", "b", "c", "b"]
    assert kept.get("b", lambda: "new", lambda value: value == "new") == "new"


@pytest.mark.filterwarnings("ignore::txlog.base.errors.TxlogWarning")
def test_a_damaged_table_shows_the_newest_version_that_opens(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"id": [1]}))
    for number in range(4):
        table.append(pa.table({"id": [number]}))
    for version in (1, 4):
        file = Path(table.uri) / "_delta_log" / f"{version:020d}.json"
        whole = file.read_text()
        if version == 1:
            table.maintenance.checkpoint()
            Path(table.uri, "_delta_log", f"{4:020d}.checkpoint.parquet").unlink()
            table.at(3).maintenance.checkpoint()
        file.write_text(whole[:30])
    shown = Pages(table.uri)
    page = shown.get()
    assert "version 3, the latest that opens" in page
    assert f"`txlog restore {table.uri} --version 3`" in page
    assert [row[0] for row in cells_of(shown.get("history"))] == ["3", "2", "1", "0"]
    for name in ("rows", "schema", "files", "report", "pins"):
        assert "version 3" in shown.get(name)
    table.at(3).restore(3)
    assert "version 5, the latest</p>" in shown.get()


@pytest.mark.parametrize("value", [[1], {"a": {"b": [1]}}, 5, "text"], ids=str)
def test_a_commit_may_tell_anything_about_itself(value: Any, tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"n": [1]}))
    names = ("operation", "operationParameters", "operationMetrics", "engineInfo", "userName")
    line = {"commitInfo": dict.fromkeys(names, value)}
    log = tmp_path / "t" / "_delta_log" / f"{1:020}.json"
    log.write_text(json.dumps(line) + "\n")
    assert Pages(table.uri).get("history")
