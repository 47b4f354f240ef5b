"""The pages of `docs/`: their code runs, and each public name and error is documented."""

import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from txlog import extend
from txlog.base.errors import TxlogError
from txlog.table.alter import TableAlter
from txlog.table.branches import TableBranches
from txlog.table.fragment import TableFragment
from txlog.table.indexes import TableIndexes
from txlog.table.maintenance import TableMaintenance, TablePins
from txlog.table.merge import TableMerger
from txlog.table.optimize import TableOptimize
from txlog.table.transaction import TableTransaction
from txlog.training.datasets import types as registry

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(
    [
        *(
            DOCS / f"{name}.md"
            for name in (
                "tutorial",
                "errors",
                "examples",
                "blobs",
                "branches",
                "datasets",
                "extend",
            )
        ),
        *(DOCS / "guides").glob("*.md"),
        *(DOCS / "neighbours").glob("*.md"),
    ]
)
NAMES = "incoming|checkpoint|flights|mirror|totals|totals-checkpoint"
FOLDER = re.compile(rf"([\"`])(?:\./)?({NAMES})\1")
CODE = re.compile(r"^```python ?(.*)\n((?:.*\n)*?)```$", re.MULTILINE)


def blocks(page: Path) -> list[tuple[set[str], str]]:
    """Return the Python of a page with what its fence says that it needs."""
    return [(set(words.split()), code) for words, code in CODE.findall(page.read_text("utf-8"))]


def with_spark(page: Path) -> bool:
    return any("spark" in words for words, _ in blocks(page))


@pytest.fixture(autouse=True)
def same_types() -> Iterator[None]:
    """Types of data sets that a page registers are known on this page alone."""
    registry.types()
    known = dict(registry._known)
    yield
    registry._known.clear()
    registry._known.update(known)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if not with_spark(page)], ids=lambda page: page.stem
)
def test_the_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    names: dict[str, Any] = {}
    for words, code in blocks(page):
        for engine in words:
            pytest.importorskip(engine)
        exec(compile(code, page.name, "exec"), names)


def test_the_first_lines_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(blocks(DOCS.parent / "README.md")[0][1], names)
    assert names["rows"].to_pydict() == {"carrier": ["UA", "AA"], "delay": [15, 47]}
    assert names["late"].to_pydict() == {"carrier": ["AA", "UA"]}
    assert (names["first"], names["t"].count()) == (3, 3)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("page", [*filter(with_spark, PAGES)], ids=lambda page: page.stem)
def test_the_code_of_a_page_with_spark_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": page.stem}
    for words, code in blocks(page):
        if "spark" in words:  # The shared JVM is in another folder.
            code = FOLDER.sub(rf"\1{tmp_path}/\2\1", code)
        exec(compile(code, page.name, "exec"), names)


def test_the_commands_of_the_flow_run(tmp_path: Path) -> None:
    pytest.importorskip("typer")
    from txlog.tools.cli.app import run

    page = (DOCS / "neighbours" / "kestra.md").read_text("utf-8")
    listed = page.partition("    commands:\n")[2].partition("    env:")[0].splitlines()
    commands = [line.strip().removeprefix("- ") for line in listed]
    assert len(commands) == 3
    flights = txlog.write(tmp_path / "flights", pa.table({"id": [1, 2], "delay": [3, 4]}))
    (tmp_path / "incoming.csv").write_text("id,delay\n2,5\n3,6\n")
    for command in commands * 2:  # A task may be started again.
        words = shlex.split(command.replace("$LAKE", str(tmp_path)))
        assert words[0] == "txlog"
        assert run(words[1:]) == 0
    flights.refresh()
    rows = flights.to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["delay"]) for row in rows] == [(1, 3), (2, 5), (3, 6)]


# Pages of training data have their own.
STORY = {"flights", "mirror", "totals", "passengers"}
# The page on look-ups compares tables of several forms.
OF_LOOKUPS = {"keyed", "delays", "sensors", "by_polars", "by_duckdb", "ordered", "filtered"}


def test_the_pages_on_tables_tell_one_story() -> None:
    """A reader who follows the pages in their order meets one table again and again."""
    of_training = {"dataset-service", "dataset-types", "from-training-tools"}
    pages = [DOCS.parent / "README.md", DOCS / "tutorial.md", DOCS / "lookup.md"]
    pages += [*(DOCS / "guides").glob("*.md"), *(DOCS / "neighbours").glob("*.md")]
    found = {}
    for page in pages:
        code = "".join(code for _, code in blocks(page))
        made = set(re.findall(r"txlog\.(?:write|Table\.create)\(\s*\"([\w-]+)\"", code))
        if page.stem not in of_training and made - STORY - OF_LOOKUPS:
            found[page.name] = made
    assert found == {}


def test_pages_are_whole() -> None:
    """No page holds what a merge left, and the code that does not run is Python too."""
    root = DOCS.parent
    pages = [*root.glob("*.md"), *DOCS.rglob("*.md"), *(root / "spec").glob("*.md")]
    for page in pages:
        text = page.read_text("utf-8")
        assert not re.search(r"(<{7}|>{7}|(?<!=)={7}(?!=)) ", text), page
        for _, code in blocks(page):
            compile(code.replace("…", "..."), page.name, "exec", dont_inherit=True)


def test_the_site_lists_each_page() -> None:
    listed = (DOCS / "site" / "mkdocs.yml").read_text("utf-8")
    pages = [str(path.relative_to(DOCS.parent)) for path in DOCS.rglob("*.md")]
    assert [page for page in pages if page not in listed] == []


def test_each_name_of_the_seam_is_on_its_page() -> None:
    text = (DOCS / "extend.md").read_text("utf-8")
    assert [name for name in extend.__all__ if f"`{name}`" not in text] == []
    assert [name for name in extend.__all__ if getattr(extend, name) is None] == []


def test_each_public_name_has_an_example() -> None:
    text = "".join(code for _, code in blocks(DOCS / "examples.md"))
    words = set(re.findall(r"\w+", text))
    faces: list[type] = [txlog.Table, txlog.Scan, txlog.Changes, txlog.Expression, txlog.Outcome]
    faces += [
        TableFragment,
        TableAlter,
        TableOptimize,
        TableMaintenance,
        TablePins,
        TableIndexes,
        TableBranches,
    ]
    faces += [TableMerger]
    names = {name for face in [*faces, TableTransaction] for name in vars_of(face)}
    names |= {name for name in txlog.__all__ if name[0].islower()}
    assert sorted(names - words - SAID_ELSEWHERE) == []


def vars_of(face: type) -> set[str]:
    return {name for name in dir(face) if not name.startswith("_")}


SAID_ELSEWHERE = {
    "engine",  # docs/spark.md
    # Of fragments, other names of what the example shows, and what `metadata` has.
    "deletion", "files", "id", "is_durable", "num_rows", "partition_values", "value",
    "merge_columns",
}  # fmt: skip


def test_each_error_has_its_chapter() -> None:
    def kinds(kind: type[TxlogError]) -> list[type[TxlogError]]:
        return [kind, *(sub for child in kind.__subclasses__() for sub in kinds(child))]

    codes = {kind.code for kind in kinds(TxlogError) if kind.__module__ == "txlog.base.errors"} - {
        "txlog"
    }
    titles = re.findall(r"^## (.*)$", (DOCS / "errors.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(codes) == sorted({*titles} - {"Warnings"})


def test_the_site_has_a_place_for_each_public_name() -> None:
    build = runpy.run_path(str(DOCS / "site" / "build.py"))
    pages = build["reference"]()  # It ends the process if a name is missing.
    text = "".join(pages.values())
    assert [name for name in txlog.__all__ if name[0] != "_" and name not in text] == []
    chapters = re.findall(r"docs/errors\.md#([a-z-]+)", pages["Error classes"])
    told = re.findall(r"^## ([a-z-]+)$", (DOCS / "errors.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(chapters) == sorted(told)  # Each error leads to its cause and remedy.


def test_the_changelog_says_each_change_once() -> None:
    """Its lines are merged as a union, which can repeat or cut entries."""
    text = (DOCS.parent / "CHANGELOG.md").read_text("utf-8")
    entries = [" ".join(one.split()) for one in re.findall(r"^- ((?:.+\n)(?:  .*\n)*)", text, re.M)]
    assert [one for one in entries if not one.endswith((".", ").", ":"))] == []
    starts = [re.sub(r"\W+", " ", one)[:45] for one in entries]
    assert [one for one in {*starts} if starts.count(one) > 1] == []
