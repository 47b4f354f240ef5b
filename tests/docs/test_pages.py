"""The pages of `docs/`: their code runs, their links lead somewhere, and the site lists all of them."""

import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted([DOCS / "tutorial.md", *(DOCS / "guides").glob("*.md")])
NAMES = "incoming|checkpoint|readings|events|totals|totals-checkpoint"
FOLDER = re.compile(rf"([\"`])({NAMES})\1")
CODE = re.compile(r"^```python ?(.*)\n((?:.*\n)*?)```$", re.MULTILINE)


def blocks(page: Path) -> list[tuple[set[str], str]]:
    """Return the Python of a page with what its fence says that it needs."""
    return [(set(words.split()), code) for words, code in CODE.findall(page.read_text("utf-8"))]


def with_spark(page: Path) -> bool:
    return any("spark" in words for words, _ in blocks(page))


@pytest.mark.parametrize(
    "page", [page for page in PAGES if not with_spark(page)], ids=lambda page: page.stem
)
def test_the_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for words, code in blocks(page):
        for engine in words:
            pytest.importorskip(engine)
        exec(compile(code, page.name, "exec"), names)


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
