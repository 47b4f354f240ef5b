"""The content of `.ci/`: the README's commands, versions that pyproject.toml allows, releases."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

import txlog

ROOT = Path(__file__).parent.parent
# Extras of other extras, and of tools that may be newer.
NOT_OF_USERS = {"dev", "bench", "demo", "docs", "fuzz"}
HEAVY = {"torch", "jax", "tf"}  # One environment of the loader has what is small enough of them.


def requirements() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    texts = project["dependencies"] + [
        text for extra in extras if extra not in NOT_OF_USERS | HEAVY for text in extras[extra]
    ]
    found = [Requirement(text) for text in texts]
    return [requirement for requirement in found if requirement.name != project["name"]]


def test_ci_runs_what_the_readme_says() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    lines = script.strip().splitlines()
    (command,) = (line.replace("--quiet ", "") for line in lines if "install --quiet" in line)
    assert command in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert (
        '.venv/bin/python -m pytest -m "slow and not exhaustive" --hypothesis-profile=few' in lines
    )
    assert ".ci/environments" in lines


def test_the_lowest_versions_are_those_of_pyproject() -> None:
    lines = (ROOT / ".ci" / "lowest.txt").read_text(encoding="utf-8").splitlines()
    pinned = {
        name: Version(version)
        for name, version in (line.split("==") for line in lines if not line.startswith("#"))
    }
    lowest = {}
    for requirement in requirements():
        (bound,) = requirement.specifier
        assert bound.operator == ">=", requirement
        lowest[requirement.name] = Version(bound.version)
    assert pinned == lowest


def test_ci_tests_each_extra_alone() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    script = (ROOT / ".ci" / "environments").read_text(encoding="utf-8")
    (line,) = (line for line in script.splitlines() if line.startswith("printf"))
    tested = line.split("' ")[1].rstrip("| ").split()
    assert {*tested} == {*project["optional-dependencies"]} - NOT_OF_USERS - HEAVY
    assert "alone core" in script.splitlines()


def test_versions_of_python_are_those_that_are_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    claimed = set(re.findall(r"Python :: (3\.\d+)", str(project["classifiers"])))
    script = (ROOT / ".ci" / "environments").read_text(encoding="utf-8")
    assert claimed - {"3.11"} <= {*re.findall(r"3\.1\d", script)}
    assert project["requires-python"] == ">=3.11"


def test_the_citation_names_this_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {txlog.__version__}\n" in citation
    yaml = pytest.importorskip("yaml")
    told = yaml.safe_load(citation)
    assert {"cff-version", "message", "title", "authors", "license"} <= told.keys()


def test_issue_forms_are_forms() -> None:
    """What GitHub demands of them: a form that it cannot read is not offered."""
    yaml = pytest.importorskip("yaml")
    forms = [
        path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").iterdir() if path.stem != "config"
    ]
    assert len(forms) == 3
    for path in forms:
        form = yaml.safe_load(path.read_text("utf-8"))
        assert form["name"]
        assert form["description"]
        fields = [field for field in form["body"] if field["type"] != "markdown"]
        assert {field["type"] for field in fields} <= {"textarea", "input", "dropdown"}
        assert all(field["attributes"]["label"] for field in fields)
        ids = [field["id"] for field in fields]
        assert len({*ids}) == len(ids) > 0


def test_a_release_publishes_what_was_checked() -> None:
    yaml = pytest.importorskip("yaml")
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    steps = [step.get("run", "") for step in jobs["build"]["steps"]]
    assert ".ci/release" in steps
    assert jobs["publish"]["needs"] == "build"
    script = (ROOT / ".ci" / "release").read_text("utf-8")
    assert 'twine" check --strict' in script
    assert "check-wheel-contents" in script


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as held:
        (name,) = (name for name in held.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(held.read(name).decode())


def built(source: Path, target: Path, address: str, kinds: Sequence[str] = ()) -> Message:
    """Build a wheel, and return its metadata."""
    subprocess.run(
        [sys.executable, "-m", "build", *kinds, "--no-isolation", "--outdir", target, source],
        check=True,
        capture_output=True,
        env={**os.environ, "TXLOG_ADDRESS": address},
    )
    (wheel,) = target.glob("*.whl")
    return metadata_of(wheel)


def links_of(text: str) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", text)


@pytest.mark.slow
def test_the_page_on_pypi_links_to_the_project(tmp_path: Path) -> None:
    """All links of a release are absolute, and lead to what its tag has."""
    address, version = "https://example.org/o/txlog", txlog.__version__
    told = built(ROOT, tmp_path, f"{address}/")  # The wheel is built from the source archive.
    urls = dict(line.split(", ", 1) for line in told.get_all("Project-URL", failobj=[]))
    assert urls["Source"] == address
    assert {"Documentation", "Issues", "Changelog"} <= urls.keys()
    assert told["Description-Content-Type"] == "text/markdown"
    text = told.get_payload()
    assert isinstance(text, str)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    links = links_of(text)
    assert len(links) == len(links_of(readme)) > 20
    for link in [*links, urls["Documentation"], urls["Changelog"]]:
        assert link.startswith("https://"), link
        if link.startswith(address):
            kind, tag, path = link.removeprefix(f"{address}/").split("/", 2)
            target = ROOT / path.partition("#")[0]
            assert target.is_dir() if kind == "tree" else target.is_file(), link
            assert (kind in ("tree", "blob"), tag) == (True, f"v{version}")
    # Who builds the archive again, without the address, gets the same.
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as held:
        held.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    assert built(source, tmp_path / "again", "", ["--wheel"]).as_string() == told.as_string()


def test_a_build_without_an_address_has_no_broken_link(tmp_path: Path) -> None:
    told = built(ROOT, tmp_path, "", ["--wheel"])
    text = told.get_payload()
    assert isinstance(text, str)
    assert told.get_all("Project-URL") is None
    assert {link.partition(":")[0] for link in links_of(text)} == {"https"}
    assert "(docs/supported.md)" in text
    blocks = re.findall(r"```.*?```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert re.findall(r"```.*?```", text, re.DOTALL) == blocks  # Code is left alone.


def test_a_release_knows_the_address_of_the_project() -> None:
    script = (ROOT / ".ci" / "release").read_text("utf-8")
    assert "export TXLOG_ADDRESS=" in script
    (line,) = (line for line in script.splitlines() if line.startswith("export TXLOG_ADDRESS="))
    for arguments, known, expected in (
        (["https://x/a"], {"GITHUB_REPOSITORY": "o/n"}, "https://x/a"),
        ([], {"GITHUB_SERVER_URL": "https://h", "GITHUB_REPOSITORY": "o/n"}, "https://h/o/n"),
        ([], {}, ""),
    ):
        told = subprocess.run(
            ["bash", "-euc", f'{line}; printf %s "$TXLOG_ADDRESS"', "release", *arguments],
            check=True,
            capture_output=True,
            text=True,
            env={"PATH": os.environ["PATH"], **known},
        )
        assert told.stdout == expected


def test_the_page_of_supported_versions_claims_what_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs" / "supported.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|", page, re.MULTILINE))
    claimed = re.findall(r"Python :: (3\.\d+)", str(project["classifiers"]))
    assert rows["Python"].split(", ") == claimed
    (spark,) = (text for text in project["optional-dependencies"]["spark"] if "pyspark" in text)
    assert Requirement(spark).specifier == SpecifierSet(f">={rows['Spark'].split(', ')[0]}")
    assert f"Spark {rows['Spark'].replace(', ', ' and ')}" in (ROOT / "README.md").read_text(
        "utf-8"
    )


def test_operating_systems_are_those_that_a_workflow_tests() -> None:
    yaml = pytest.importorskip("yaml")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    classified = [text for text in project["classifiers"] if text.startswith("Operating System")]
    claimed = {text.rpartition(" :: ")[2].lower() for text in classified}
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))["jobs"]
    matrix = jobs["test"]["strategy"]["matrix"]
    runners = [*matrix["os"], *(one["os"] for one in matrix["include"])]
    names = {"ubuntu": "linux", "macos": "macos", "windows": "microsoft"}
    assert claimed == {names[one.partition("-")[0]] for one in runners}
    page = (ROOT / "docs" / "supported.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| operating systems \| ([^|]+) \|", page, re.MULTILINE)
    assert {*row.lower().split(", ")} == claimed
    assert f"For {row.replace(', ', ' and ')}; Windows is not tested." in " ".join(
        (ROOT / "README.md").read_text("utf-8").split()
    )


def test_versions_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert project["version"] == txlog.__version__
    assert re.search(r"^## (\S+)", changes, re.MULTILINE)[1] == txlog.__version__  # type: ignore[index]
