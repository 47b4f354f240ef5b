"""Every rule of `spec/` has a test, and every rule that a test names is in `spec/`."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ENFORCED = (
    "REC",
    "FRG",
    "CON",
    "FED",
    "STR",
    "ENG",
    "SPK",
    "VAC",
    "GUA",
    "LDR",
    "DST",
    "UNQ",
    "CAT",
    "BRA",
    "BLB",
)  # Chapters of tested rules.

RULE = re.compile(r"^\*\*([A-Z]{3})-(\d+)\*\* \S", re.MULTILINE)
MENTION = re.compile(rf"\b(?:{'|'.join(ENFORCED)})-\d+\b")


def rules() -> list[str]:
    chapters = sorted((ROOT / "spec").glob("*.md"))
    return [
        f"{chapter}-{number}"
        for path in chapters
        for chapter, number in RULE.findall(path.read_text(encoding="utf-8"))
    ]


@cache
def marked() -> dict[str, list[str]]:
    """Return each rule that tests are marked with, and those tests."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        for node in nodes(ast.parse(text)) if "mark.spec(" in text else ():
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                for rule in marks(node):
                    found.setdefault(rule, []).append(f"{path.name}::{node.name}")
    return found


def nodes(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield what a module and its classes define."""
    for node in tree.body:
        yield node
        if isinstance(node, ast.ClassDef):
            yield from node.body


def marks(node: ast.FunctionDef | ast.ClassDef) -> Iterator[str]:
    for mark in node.decorator_list:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.spec":
            yield from (ast.literal_eval(argument) for argument in mark.args)


def test_rules_are_numbered_once_and_upwards() -> None:
    found = [(rule[:3], int(rule[4:])) for rule in rules()]
    assert {chapter for chapter, _ in found} >= set(ENFORCED)
    for one, other in pairwise(found):
        assert one[0] != other[0] or one[1] < other[1], other


@pytest.mark.slow
@pytest.mark.parametrize("chapter", ENFORCED)
def test_every_rule_has_a_test(chapter: str) -> None:
    shown = marked()
    assert [rule for rule in rules() if rule[:3] == chapter and rule not in shown] == []


def test_every_rule_that_a_test_names_exists() -> None:
    known = set(rules())
    assert {rule: tests for rule, tests in marked().items() if rule not in known} == {}


def test_every_rule_that_the_code_names_exists() -> None:
    known = set(rules())
    for path in sorted((ROOT / "txlog").rglob("*.py")):
        named = set(MENTION.findall(path.read_text(encoding="utf-8")))
        assert named <= known, path.name


def test_links_of_the_chapters_lead_somewhere() -> None:
    for path in sorted((ROOT / "spec").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_each_guarantee_names_its_tests() -> None:
    text = (ROOT / "spec" / "guarantees.md").read_text(encoding="utf-8")
    named = dict(re.findall(r"^\| (GUA-\d+) \| (.*) \|$", text, re.MULTILINE))
    assert list(named) == [rule for rule in rules() if rule.startswith("GUA-")]
    for rule, tests in named.items():
        assert (found := re.findall(r"`([\w.]+::\w+)`", tests))
        assert set(found) <= set(marked()[rule]), rule
