"""Take the pictures of the documentation: `python docs/drawings/screenshots.py [SITE]`.

They show a table of the flights of the demonstration, written here day by day, a data set, and a
page of the site in the folder SITE, if `docs/site/build.py` has built it there. Needs Chromium.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import txlog
from txlog.tools.report import report as report_on
from txlog.tools.ui.places import place_of
from txlog.training import Datasets

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "ui"))

from browser import Browser, browser, serving  # noqa: E402  # It is found by the line above.

COLUMNS = ["day", "dep_time", "dep_delay", "carrier", "flight", "origin", "dest", "distance"]


def make_table(folder: Path) -> txlog.Table:
    """Write a table whose history has something to show: a commit for each day."""
    flights = pq.read_table(ROOT / "txlog" / "cli" / "data" / "flights.parquet")
    table = txlog.Table.create(
        folder / "flights",
        flights.select(COLUMNS).schema,
        partition_by=["origin"],
        name="flights",
        description="From New York City in 2013",
    )
    for day in range(1, 10):
        rows = flights.filter(pc.equal(flights["day"], day)).select(COLUMNS)
        table.append(rows, user_metadata={"userName": "loader"})
        if day % 4 == 0:
            table.delete("dep_time IS NULL", user_metadata={"userName": "ann"})
    table.update({"dep_delay": "0"}, "dep_delay < -15", user_metadata={"userName": "ben"})
    table.pins.create("clean", reason="cancelled flights are gone")
    txlog.write(folder / "weather", flights.slice(0, 10).select(["carrier", "origin"]))
    for day, commit in enumerate(sorted(Path(table.uri, "_delta_log").glob("*.json"))):
        moment = 1_357_000_000 + 86_400 * day
        os.utime(commit, (moment, moment))
    return txlog.Table(table.uri)


def make_data_set(folder: Path) -> None:
    """Write a data set with three commits and two training sets."""
    texts = {
        "What is the weather like?": "weather",
        "Wake me at seven": "alarm",
        "Play some jazz": "music",
    }
    rows = pa.table({"text": list(texts), "intent": list(texts.values())})
    catalog = Datasets(folder)
    made = catalog.create(
        "intents", "TABLE", rows, message="The first recordings", description="What users want"
    )
    made.update(rows.slice(1), "Recordings of November", tags={"split": "train"})
    made.update(rows.slice(2), "Kept for tests", tags={"split": "test"})
    made.tag("november", 2)
    for asked in (made.prepare(tags={"split": "train"}), made.prepare(3)):
        made.fetch(asked.version_hash, wait_s=60)


def take(
    window: Browser, url: str, name: str, height: int, *, charts: int = 0, place: str = "flights"
) -> None:
    """Write a picture of a page."""
    window.show(1100 if place else 1300, height)
    window.go(url)
    while window.js("document.querySelectorAll('.chart svg.marks').length") < charts:
        time.sleep(0.1)
    # Where it is on the machine of whoever takes the picture is of no interest.
    if place:
        every = "document.querySelectorAll('p > code')"
        window.js(f"{every}.forEach((e) => e.textContent = '~/lake/{place}')")
    window.screenshot(HERE / f"{name}.png")


def main() -> None:
    """Take them all."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "lake"
        table = make_table(folder)
        report_on(table).save(Path(scratch) / "report.html")
        make_data_set(folder / "sets")
        with serving(folder) as url, browser(Path(scratch) / "profile") as window:
            window.go(url)
            base = window.js("document.querySelector('tbody a').href")
            asked = "where=dep_delay+>+60+AND+carrier+=+'UA'"
            take(window, f"{base}/rows?{asked}", "ui", 600)
            report = (Path(scratch) / "report.html").as_uri()
            take(window, report, "report", 1640, charts=4)
            home = base.partition("/tables/")[0]
            key = place_of(str(folder / "sets"), "sets").key
            take(window, f"{home}/datasets/{key}/1", "datasets", 660, place="sets")
            if sys.argv[1:]:
                page = Path(sys.argv[1], "html", "docs", "tutorial.html").resolve()
                take(window, page.as_uri(), "site", 900, place="")


if __name__ == "__main__":
    main()
