"""All pages and reports in a window of 400 pixels, with names and texts that have no spaces."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from browser import CHROMIUM, Browser, browser, serving
from test_pages_accessible import opened

import txlog
from txlog.tools.report import report
from txlog.tools.ui.places import place_of
from txlog.training import Datasets

pytest.importorskip("fastapi")
pytest.importorskip("vl_convert")

WIDTH = 400
LONG = "w" * 150
PAGES = (
    "home", "table", "table/rows", f"table/rows?columns={LONG}", f"table/rows?where={LONG}y%20>",
    f"table/rows?where={LONG}%20>%203", "table/schema", "table/history",
    f"table/diff?start=0&end=2&on={LONG}", "table/files", "table/pins", "table/explain",
    "table/report", f"table?version={LONG}", "sets", "sets/1", "sets/1/sets", "sets/1/lineage",
    "file",
)  # fmt: skip
Shown = tuple[Browser, Callable[[str], str]]


def make_tables(folder: Path) -> None:
    """Make a table and a data set of which everything is long and has no spaces."""
    rows = pa.table(
        {
            LONG: pa.array(range(80), pa.int64()),
            "p": [LONG, "b"] * 40,
            "t": [LONG * 4, None] * 40,
            "s": [{f"{LONG}x": {"a" * 80: 1}}] * 80,
            **{f"c{number}": range(80) for number in range(30)},
        }
    )
    table = txlog.write(
        folder / LONG,
        rows,
        partition_by=["p"],
        name=LONG,
        description=LONG * 3,
        properties={f"x.{LONG}": LONG},
        user_metadata={"userName": LONG, "operationParameters": {LONG: LONG}},
    )
    table.append(rows)
    table.delete(f"{LONG} < 10")
    table.pins.create(LONG[:100], 1, LONG)
    table.alter.add_constraint({LONG[:60]: f"{LONG} >= 0"})
    made = Datasets(folder / "sets").create(
        LONG[:60], "TABLE", rows.select([LONG, "p"]), description=LONG, inputs=[table]
    )
    made.fetch(made.prepare().version_hash, wait_s=60)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    folder, other = tmp_path_factory.mktemp("shown"), tmp_path_factory.mktemp("other")
    make_tables(folder)
    report(txlog.Table(folder / LONG)).save(other / "report.html")
    table, sets = (place_of(str(folder / name), name).key for name in (LONG, "sets"))
    with serving(folder, "--write") as url, browser(other / "profile") as window:
        window.go(url)
        home = url.partition("?")[0].rstrip("/")

        def address(page: str) -> str:
            if page in ("home", "file"):
                return f"{home}/" if page == "home" else (other / "report.html").as_uri()
            place = f"/datasets/{sets}" if page.startswith("sets") else f"/tables/{table}"
            return home + place + page.removeprefix("sets").removeprefix("table")

        yield window, address


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.replace(LONG, "LONG"))
def test_a_narrow_window_shows_all_of_a_page(shown: Shown, page: str) -> None:
    """Only a table is wider than the window, and it scrolls in its box."""
    window, address = shown
    window.show(WIDTH, 900)
    opened(window, address(page))
    assert window.js("document.documentElement.scrollWidth") == WIDTH
    outside = window.js(
        """[...document.querySelectorAll('body *')].filter((e) => {
          const box = e.closest('.wide');
          return e.getBoundingClientRect().right > innerWidth + 1 && (!box || box === e);
        }).map((e) => e.outerHTML.slice(0, 200))"""
    )
    assert outside == []
    loose = "[...document.querySelectorAll('table')].filter((e) => !e.closest('.wide')).length"
    assert window.js(loose) == 0
    small = window.js(
        """[...document.querySelectorAll('main *')].filter((e) => {
          const least = e.closest('svg') ? 10 : 12;
          const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
          return own && parseFloat(getComputedStyle(e).fontSize) < least;
        }).map((e) => e.outerHTML.slice(0, 200))"""
    )
    assert small == []
