"""The pages are accessible: their structure, colours, and rendering in a browser.

The browser's part also runs axe-core, where it is installed: `npm install --no-save axe-core`.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from browser import CHROMIUM, Browser, browser, serving

import txlog
from txlog.tools.report.page import file_text
from txlog.tools.ui.places import Places, place_of
from txlog.training import Datasets

pytest.importorskip("fastapi")
pytest.importorskip("httpx2")
pytest.importorskip("vl_convert")

from fastapi.testclient import TestClient

from txlog.tools.ui.app import make_app

AXE = Path(txlog.__file__).parents[1] / "node_modules" / "axe-core" / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
PAGES = (
    "", "rows", "rows?where=carrier%20=%20'UA'&columns=id", "rows?where=nothing%20>", "schema",
    "history", "diff?start=0&end=2&on=id", "files", "pins", "explain", "report", "?version=99",
    "sets:", "sets:/1", "sets:/1/sets", "sets:/1/lineage",
)  # fmt: skip
Shown = tuple[Browser, Callable[[str], str]]
VOID = {"meta", "link", "input", "br", "img", "hr"}


def make_tables(folder: Path) -> None:
    rows = pa.table({"id": pa.array(range(80), pa.int64()), "carrier": ["UA", "B6"] * 40})
    table = txlog.write(folder / "flights", rows, partition_by=["carrier"], description="Flights")
    table.append(pa.table({"id": [1000], "carrier": ["a carrier with quite a long name" * 3]}))
    table.delete("id < 10")
    table.pins.create("best", 1, "for the paper")
    catalog = Datasets(folder / "sets")
    made = catalog.create("carriers", "TABLE", rows, description="Flights", inputs=[table])
    made.fetch(made.prepare().version_hash, wait_s=60)


def paths_of(folder: Path) -> Callable[[str], str]:
    """Return how the path of a page follows from its short name in `PAGES`."""
    table, sets = (place_of(str(folder / name), name).key for name in ("flights", "sets"))

    def path_of(page: str) -> str:
        of_set = page.startswith("sets:")
        path = f"/datasets/{sets}{page[5:]}" if of_set else f"/tables/{table}/{page}"
        return path.replace("/?", "?").rstrip("/")

    return path_of


# Structure ---------------------------------------------------------------------------------------


class Outline(HTMLParser):
    """The elements of a page, and what is wrong with how they are nested."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []  # Of each element, with those of what is in it.
        self._open: list[tuple[str, int]] = []
        self.faults: list[str] = []
        self.feed(page)
        self.faults += [f"<{tag}> is not closed" for tag, _ in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self.texts.append("")
        if tag not in VOID:
            self._open.append((tag, len(self.texts) - 1))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1][0] != tag:
            self.faults.append(f"</{tag}> closes nothing")
        else:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        for _, at in self._open:
            self.texts[at] += data

    def all(self, *tags: str) -> list[tuple[dict[str, str], str]]:
        return [
            (attributes, text.strip())
            for (tag, attributes), text in zip(self.elements, self.texts, strict=True)
            if tag in tags
        ]


def faults_of(page: str) -> list[str]:
    """Return the faults of a page for people who cannot see it or have no mouse."""
    outline = Outline(page)
    found = list(outline.faults)
    attributes = [attributes for _, attributes in outline.elements]
    ids = [one["id"] for one in attributes if "id" in one]
    found += [f"the id {one} is there twice" for one in {*ids} if ids.count(one) > 1]
    ((html, _),) = outline.all("html")
    if html.get("lang") != "en":
        found.append("the page does not say its language")
    if [len(outline.all(tag)) for tag in ("title", "main", "header", "h1")] != [1, 1, 1, 1]:
        found.append("a page has one title, one main part, one header and one first heading")
    levels = [int(tag[1]) for tag, _ in outline.elements if re.fullmatch("h[1-6]", tag)]
    found += [f"h{a} is followed by h{b}" for a, b in pairwise([0, *levels]) if b > a + 1]
    labels = {one["for"]: text for one, text in outline.all("label")}
    for one, _ in outline.all("input", "select", "textarea"):
        if one.get("type") != "hidden" and not labels.get(one.get("id", "")):
            found.append(f"the field {one.get('name')} has no label")
    for one, text in outline.all("a", "button", "h1", "h2", "h3", "th", "title", "label"):
        if not text and "aria-label" not in one:
            found.append(f"an element has no text: {one}")
    found += [f"{one} is no head of anything" for one, _ in outline.all("th") if "scope" not in one]
    named = [one for one in attributes if one.get("role") in ("region", "img")]
    named += [one for one, _ in outline.all("nav")]
    found += [f"{one} has no name" for one in named if not one.get("aria-label")]
    names = [one.get("aria-label") for one in named]
    found += [f"{one} is the name of two parts" for one in {*names} if names.count(one) > 1]
    scrolls = [one for one in attributes if "wide" in one.get("class", "").split()]
    found += [f"{one} cannot be scrolled by keys" for one in scrolls if one.get("tabindex") != "0"]
    if any(int(one.get("tabindex", 0)) > 0 for one in attributes):
        found.append("the order of the keyboard is not that of the page")
    first = outline.all("a")[0][0]
    if first.get("href", "")[1:] not in ids:
        found.append("the first link does not lead to the content")
    if any({"style", "onclick", "onload", "onchange"} & one.keys() for one in attributes):
        found.append("styles and scripts are in files of their own")
    return found


def test_the_audit_sees_what_is_wrong() -> None:
    page = '<html><title></title><h1></h1><h3>x</h3><a href="#no"></a><input name="q"><nav></nav>'
    assert len(faults_of(page)) == 10


def test_the_structure_of_pages_is_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txlog.tools.report.page.chart_library", str)
    make_tables(tmp_path)
    app = make_app(Places([str(tmp_path)]), "token", 1, writes=True)
    client: Any = TestClient(app, base_url="http://localhost")
    refused = client.get("/").text
    client.cookies.set("txlog-ui-1", "token")
    path_of = paths_of(tmp_path)
    texts = {page: client.get(path_of(page)).text for page in PAGES}
    texts |= {"refused": refused, "tables": client.get("/").text}
    assert {page: faults_of(text) for page, text in texts.items() if faults_of(text)} == {}
    titles = [re.findall("<title>(.*?)</title>", text)[0] for text in texts.values()]
    assert len({*titles}) == len(titles) - 3  # There are three of rows, and one explains them.


def test_the_structure_of_pages_of_a_catalog_is_sound(tmp_path: Path) -> None:
    catalog = txlog.Catalog(tmp_path / "lake.db")
    table = catalog.create_table("sales.orders", pa.schema([("id", pa.int64())]), managed="all")
    table.branches.create("dev")
    client: Any = TestClient(make_app(Places([], catalog), "token", 1), base_url="http://localhost")
    client.cookies.set("txlog-ui-1", "token")
    key = place_of(table.uri, "sales.orders").key
    branch = f"{key}.b-{table.branches.list()['id'][0].as_py()}"
    paths = ("/", "/?namespace=sales", f"/tables/{key}", f"/tables/{branch}")
    texts = {path: client.get(path).text for path in paths}
    assert {path: faults_of(text) for path, text in texts.items() if faults_of(text)} == {}


# Colours -----------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour, as WCAG 2 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_what_wcag_says() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_have_contrast(scheme: str) -> None:
    style = file_text("report/page.css")
    both = [
        dict(re.findall(r"--(\w+): (#\w{6})", one)) for one in re.findall(r":root \{.*?\}", style)
    ]
    light, dark = both
    colours = light if scheme == "light" else light | dark
    assert light.keys() == dark.keys()
    for ground in ("page", "card"):
        for text in ("text", "soft", "error", "warning", "advice"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
        for shape in ("bar", "control"):
            assert contrast(colours[shape], colours[ground]) >= 3, (shape, ground)


# In a browser ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """Return a browser that has the cookie, and how the address of a page follows from its name."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    folder = tmp_path_factory.mktemp("shown")
    make_tables(folder)
    path_of = paths_of(folder)
    profile = tmp_path_factory.mktemp("profile")
    with serving(folder, "--write") as url, browser(profile) as window:
        window.go(url)
        home = url.partition("?")[0]
        assert window.js("location.href") == home  # Without the token.
        yield window, lambda page: home.rstrip("/") + path_of(page)


def opened(window: Browser, url: str) -> None:
    window.go(url)
    if "/report" in url:
        drawn = "document.querySelectorAll('.chart svg.marks').length === 4"
        for _ in range(600):
            if window.js(drawn):
                return
            time.sleep(0.05)
        raise AssertionError("the charts are not drawn")


@pytest.mark.parametrize("page", PAGES)
def test_a_browser_shows_every_page(shown: Shown, page: str) -> None:
    window, address = shown
    url = address(page)
    window.show(400, 800, "dark")
    opened(window, url)
    is_error = "99" in page or "nothing" in page
    complaints = [one for one in window.complaints() if "responded with a status of 4" not in one]
    assert complaints == []  # Nothing breaks the policy, and nothing is missing.
    assert len(window.complaints()) == is_error
    assert window.js("document.documentElement.scrollWidth") == 400
    assert window.js("getComputedStyle(document.body).backgroundColor") == "rgb(20, 25, 30)"


def test_all_can_be_reached_by_the_keyboard(shown: Shown) -> None:
    window, address = shown
    window.show(1100, 800)
    window.go(address("pins"))
    window.press("Tab")
    assert window.js("document.activeElement.textContent") == "Skip to the content"
    wanted = "a[href], button, input:not([type=hidden]), select, [tabindex='0']"
    count = window.js(f"document.querySelectorAll(`{wanted}`).length")
    window.js("window.seen = new Set([document.activeElement])")
    for _ in range(count - 1):
        window.press("Tab")
        window.js("window.seen.add(document.activeElement) && 0")
    assert window.js(f"[...document.querySelectorAll(`{wanted}`)].every((e) => window.seen.has(e))")
    window.go(address("rows"))
    window.press("Tab")
    window.press("Enter")
    assert window.js("document.activeElement.id") == "main"


def test_a_form_makes_a_pin_in_a_browser(shown: Shown) -> None:
    window, address = shown
    window.go(address("pins"))
    window.js("document.getElementById('name').value = 'made <here>'")
    window.events.clear()
    window.js("document.querySelector('form[method=post] button').click()")
    while not any(event["method"] == "Page.loadEventFired" for event in window.events):
        window.call("Runtime.evaluate", expression="0")
    assert window.complaints() == []
    assert "made <here>" in window.js("document.querySelector('table').textContent")


@pytest.mark.skipif(
    not AXE.exists(), reason="axe-core is not installed: npm install --no-save axe-core"
)
@pytest.mark.parametrize(("width", "scheme"), [(1100, "light"), (400, "dark")])
def test_axe_finds_nothing(shown: Shown, width: int, scheme: str) -> None:
    window, address = shown
    window.show(width, 900, scheme)
    library = AXE.read_text()
    run = f"axe.run({{runOnly: {json.dumps(RULES)}}})"
    found = {}
    home = address("").partition("tables/")[0]
    for url in (home, *map(address, PAGES)):
        opened(window, url)
        window.js(library + ";0")
        told = window.js(
            f"{run}.then((r) => r.violations.map((v) => [v.id, v.nodes.map((n) => n.html)]))"
        )
        if told:
            found[url.removeprefix(home)] = told
    assert found == {}
