"""The pages of data sets: which folders have some, and the shown commits and training sets."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pytest

import txlog
from txlog.tools.ui.datasets import ranges_text
from txlog.tools.ui.places import Places, place_of
from txlog.training import Dataset, Datasets

pytest.importorskip("fastapi")
pytest.importorskip("vl_convert")
pytest.importorskip("httpx2")

from fastapi.testclient import TestClient

from txlog.tools.ui.app import make_app

EVIL = "<script>alert(1)<\"'&"  # Without a slash, which names may not have.


def rows(*texts: str) -> pa.Table:
    return pa.table({"text": list(texts)})


@pytest.fixture(scope="module")
def intents(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Return a data set with a hidden commit, two training sets, and tables beside its folder."""
    lake = tmp_path_factory.mktemp("lake")
    txlog.write(lake / "plain", pa.table({"n": [1]}))
    txlog.write(lake / "sets" / "beside", pa.table({"n": [1]}))
    catalog = Datasets(lake / "sets")
    made = catalog.create("intents", "TABLE", rows("a", "b"), description="What users want")
    made.update(rows(EVIL), f"More {EVIL}", tags={"split": EVIL}, inputs=[EVIL], code=EVIL)
    made.tag("first", 1)
    for commit in (1, 2):
        asked = made.prepare(commit)
        assert made.fetch(asked.version_hash, wait_s=60).state == "READY"
    made.hide(1)
    catalog.create(EVIL, "TABLE", rows("c"), inputs=[made.commit(2), asked], description=EVIL)
    return made


Get = Callable[..., str]


@pytest.fixture(scope="module")
def get(intents: Dataset) -> Get:
    lake = Path(intents.table().uri).parents[2]
    client: Any = TestClient(make_app(Places([str(lake)]), "t", 1), base_url="http://localhost")
    client.cookies.set("txlog-ui-1", "t")
    home = f"/datasets/{place_of(str(lake / 'sets'), 'sets').key}"

    def page(path: str, status: int = 200, **asked: Any) -> str:
        url = (path if path.startswith("/") else f"{home}/{path}").rstrip("/") or "/"
        found = client.get(f"{url}?{urlencode(asked)}" if asked else url)
        assert found.status_code == status, found.text
        return str(found.text)

    return page


def cells_of(page: str, number: int = 0) -> list[list[str]]:
    """Return the texts of a table of a page, without those of its head."""
    table = re.findall(r"<tbody>(.*?)</tbody>", page, re.DOTALL)[number]
    found = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in table.split("</tr>")]
    return [[re.sub("<[^>]*>", "", one) for one in row] for row in found if row]


def hrefs_of(page: str, label: str) -> list[str]:
    found = re.findall(rf'<a href="([^"]*)">{re.escape(label)}', page)
    return [one.replace("&amp;", "&") for one in found]


def test_tables_of_data_sets_are_not_listed_among_others(get: Get) -> None:
    page = get("/")
    assert [row[0] for row in cells_of(page)] == ["plain", "sets/beside"]
    assert cells_of(page, 1) == [["sets"]]
    assert cells_of(get(""))[0][:5] == ["1", "intents", "TABLE", "2", "3"]


def test_steps_are_shown_with_what_they_have_to_do(tmp_path: Path) -> None:
    folder = Datasets(tmp_path / "sets")
    folder.create("raw", "TABLE", rows("a"))
    folder.on_commit("raw", run=["/no/such/program", EVIL], into="clean")
    client: Any = TestClient(make_app(Places([str(tmp_path)]), "t", 1), base_url="http://localhost")
    client.cookies.set("txlog-ui-1", "t")
    address = f"/datasets/{place_of(str(tmp_path / 'sets'), 'sets').key}"
    page = client.get(address).text
    assert "<script>alert" not in page
    (step,) = cells_of(page, 1)
    assert (step[:2], step[3:7]) == (["clean", "raw"], ["clean", "WAITING", "0", "1"])
    folder.run_steps()
    (step,) = cells_of(client.get(address).text, 1)
    assert step[4] == "FAILED"
    assert "cannot be started" in step[7]


def test_commits_are_listed_newest_first(get: Get, intents: Dataset) -> None:
    page = get("1")
    second, first = cells_of(page)
    assert (first[0], first[1], first[3], first[6]) == ("1", "first", "2", "hidden")
    assert (second[0], second[3], second[7]) == ("2", "1", intents.commit(2).digest[:12])
    assert "What users want" in page
    first_rows = cells_of(get(hrefs_of(page, "1")[0]))
    assert sorted(value for row in first_rows for value in row) == ["1", "1", "a", "b"]


def test_training_sets_lead_to_their_rows(get: Get, intents: Dataset) -> None:
    page = get("1/sets")
    newest, oldest = cells_of(page)
    assert [[*row[2:5], row[6]] for row in (newest, oldest)] == [
        ["READY", "1 to 2", "parquet", "3"], ["READY", "1", "parquet", "2"],
    ]  # fmt: skip
    hashes = [one.version_hash for one in intents.training_sets()]
    assert oldest[0] == hashes[0][:14]
    (examples,) = hrefs_of(page, hashes[0][:14])
    assert len(cells_of(get(f"{examples}/rows"))) == 2


def test_lineage_goes_up_and_down(get: Get, intents: Dataset) -> None:
    up = cells_of(get("1/lineage", of="2"))
    second = f"intents @ 2, by {intents.commit(2).user}"
    assert [(row[0], row[1], row[3]) for row in up] == [
        (second, "source", "file"), (second, "code", "code"),
    ]  # fmt: skip
    down = cells_of(get("1/lineage", of="first", direction="down"))
    assert {(row[1], row[3]) for row in down} >= {("picked", "training set"), ("source", "commit")}
    assert "No lineage is recorded" in get("1/lineage", of="1")
    set_hash = intents.training_sets()[1].version_hash
    assert len(cells_of(get("1/lineage", of=set_hash))) == 4


@pytest.mark.parametrize(
    ("path", "asked", "status", "text"),
    [
        ("9", {}, 404, "there is no data set 9"),
        ("0", {}, 400, "greater than or equal to 1"),
        ("x", {}, 400, "valid integer"),
        ("1/lineage", {"of": "nope"}, 404, "no training set"),
        ("1/lineage", {"of": "99"}, 404, "no commit 99"),
        ("1/lineage", {"direction": "x"}, 400, "was expected, not"),
        ("/datasets/none", {}, 404, "do not show this folder of data sets"),
        ("1/sets", {"offset": -1}, 400, "offset"),
    ],
)
def test_errors_are_readable_pages(
    get: Get, path: str, asked: dict[str, Any], status: int, text: str
) -> None:
    found = re.sub("<[^>]*>", "", get(path, status, **asked))
    assert text in found


def test_texts_of_data_sets_are_escaped(get: Get) -> None:
    pages = ["/", "", "1", "1/sets", "1/lineage", "2", "2/sets", "2/lineage"]
    texts = [get(page) for page in pages] + [
        get("1/lineage", of="2"),
        get("2/lineage", 404, of=EVIL),
    ]
    assert not [one for one in texts if "<script>" in one]
    assert all("&lt;script&gt;" in texts[at] for at in (1, 2, 5, 7, 8, 9))


def test_a_folder_of_data_sets_may_be_all_that_is_shown(tmp_path: Path) -> None:
    Datasets(tmp_path / "sets").create("a", "TABLE", rows("x"))
    places = Places([str(tmp_path / "sets")])
    assert places.find_all() == []
    assert [one.name for one in places.folders.values()] == ["sets"]
    (tmp_path / "sets" / "data" / "none").mkdir()
    other = Places([str(txlog.write(tmp_path / "t" / "ledger", rows("x")).uri)])
    assert len(other.find_all()) == 1  # The name alone makes no ledger.
    assert other.folders == {}
    for name in ("ledger2", "data/mine", "sets/mine"):  # They belong to no data set.
        txlog.write(tmp_path / "sets" / name, rows("x"))
    assert [one.name for one in places.find_all()] == ["data/mine", "ledger2", "sets/mine"]


def test_a_damaged_data_set_leaves_the_others(tmp_path: Path) -> None:
    catalog = Datasets(tmp_path)
    whole, broken = (catalog.create(name, "TABLE", rows("x")) for name in ("a", "b"))
    log = Path(broken.table().uri, "_delta_log", f"{0:020d}.json")
    log.write_text("{")
    app = make_app(Places([str(tmp_path)]), "t", 1)
    client: Any = TestClient(app, base_url="http://localhost", raise_server_exceptions=False)
    client.cookies.set("txlog-ui-1", "t")
    home = f"/datasets/{place_of(str(tmp_path), '').key}"
    with pytest.warns(txlog.TxlogWarning, match="'b'"):
        assert [row[1] for row in cells_of(client.get(home).text)] == ["a", "b"]
    assert client.get(f"{home}/{whole.dataset_id}").status_code == 200
    found = client.get(f"{home}/{broken.dataset_id}")
    assert (found.status_code, "log-corrupt" in found.text) == (500, True)


def test_numbers_are_told_in_short() -> None:
    assert ranges_text([1, 2, 3, 5, 7, 8]) == "1 to 3, 5, 7 to 8"
    assert ranges_text([]) == ""
