"""The report of a table: its numbers compared with plain Python, its page in a real browser."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import txlog
from txlog.tools.report import report
from txlog.tools.report.charts import size_text
from txlog.tools.report.page import script_text, time_text
from txlog.verbs.facts import histogram, mean_depth

pytest.importorskip("jinja2")
pytest.importorskip("vl_convert")

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--enable-logging=stderr", "--window-size=1100,1600", "--virtual-time-budget=5000",
]  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    rows = pa.table({"id": pa.array(range(100), pa.int64()), "kind": ["a", "b"] * 50})
    table = txlog.write(
        tmp_path / "things & <b>", rows, partition_by=["kind"], name="a </script> name"
    )
    table.append(pa.table({"id": [1000, 1001], "kind": ["a", "a"]}))
    table.delete("id < 10", user_metadata={"userName": "<i>me</i>"})
    table.maintenance.checkpoint()
    table.append(pa.table({"id": [2000], "kind": ["b"]}))
    return table


@pytest.mark.slow
def test_the_facts_are_those_of_the_table(table: txlog.Table) -> None:
    facts = report(table).facts
    assert (facts.version, facts.files, facts.rows, facts.deleted) == (3, 4, 103, 10)
    assert facts.bytes == sum(table.files()["size_bytes"].to_pylist())
    assert facts.small == 4
    assert [one["version"] for one in facts.versions] == [3, 2, 1, 0]
    assert [one["operation"] for one in facts.versions][1] == "DELETE"
    assert [(one["added"], one["deleted"]) for one in facts.versions][:2] == [(1, None), (None, 10)]
    assert {one["partition"]: one["files"] for one in facts.partitions} == {
        "kind=a": 2,
        "kind=b": 2,
    }
    (column,) = facts.columns
    assert (column.name, column.known, column.nulls) == ("id", 1.0, 0)
    assert column.depth == 1.25  # 0, 1, 1000 and 2000 are in 1, 2, 1 and 1 of the files.
    assert (facts.log["checkpoint"], facts.log["commits"]) == (2, 1)
    assert facts.log["checkpoint_bytes"] > 0


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 9)), max_size=12))
def test_the_depth_is_what_counting_says(ranges: list[tuple[int, int]]) -> None:
    low = [start for start, _ in ranges]
    high = [start + length for start, length in ranges]
    found = mean_depth(pa.array(low, pa.int64()), pa.array(high, pa.int64()))
    counts = [sum(a <= start <= b for a, b in zip(low, high, strict=True)) for start in low]
    assert found == (pytest.approx(sum(counts) / len(counts)) if counts else None)


@given(st.lists(st.integers(0, 2**62), max_size=20))
def test_each_file_is_in_one_bin(sizes: list[int]) -> None:
    bins = histogram(np.array(sizes, np.int64))
    assert sum(one["files"] for one in bins) == len(sizes)
    for one in bins:
        inside = [size for size in sizes if one["from"] <= max(size, 1) < one["to"]]
        assert one["files"] == len(inside)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (10 << 20, "10 MiB"), (None, "unknown")],
)
def test_sizes_are_read_by_people(count: int | None, text: str) -> None:
    assert size_text(count) == text


def test_a_time_that_no_calendar_has_is_a_number() -> None:
    assert time_text(0) == "1970-01-01 00:00:00 UTC"
    assert time_text(2**62) == str(2**62)


@given(st.text())
def test_text_never_leaves_its_script(text: str) -> None:
    found = script_text({"name": text.encode("utf-8", "ignore").decode()})
    assert not set("<>&\u2028\u2029") & set(found)
    assert json.loads(found)["name"] == text.encode("utf-8", "ignore").decode()


@pytest.mark.slow
def test_the_page_fetches_nothing_and_escapes_what_a_table_says(table: txlog.Table) -> None:
    page = report(table).html
    without = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.findall(r"(?:src|href)\s*=", without)
    assert "a &lt;/script&gt; name" in without
    assert "<b>" not in without
    assert "<i>me" not in page
    assert len(page) < 3 << 20


def test_a_notebook_shows_it(table: txlog.Table) -> None:
    shown = report(table)._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert repr(report(table)).endswith("version=3)")


def test_an_empty_table_has_a_report(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path / "t", pa.schema([("x", pa.int64())]))
    facts = report(table).facts
    assert (facts.files, facts.rows, facts.sizes, facts.columns[0].depth) == (0, 0, [], None)


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_a_browser_draws_its_charts(table: txlog.Table, tmp_path: Path) -> None:
    assert CHROMIUM is not None
    report(table).save(tmp_path / "report.html")
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    done = subprocess.run(
        [*command, (tmp_path / "report.html").as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr, done.stderr
    drawn = re.findall(r'<div class="chart[^"]*" id="(\w+)"', done.stdout)
    assert drawn == ["versions", "sizes", "partitions", "skipping"]
    assert len(re.findall(r"<svg[^>]* class=\"marks\"", done.stdout)) == 4
    axes = re.findall(r'"mark-text role-axis-label".*?</g>', done.stdout)
    assert len(axes) == 8
    assert all("<text" in axis for axis in axes)
    made = table.history()[-1]["timestamp"] // 1000 * 1000
    assert time_text(made)[11:19] in axes[0], axes[0]


def test_partitions_of_mapped_columns_have_their_values(tmp_path: Path) -> None:
    rows = pa.table({"n": [1, 2, 3], "part": ["a", "a", "b"]})
    properties = {"delta.columnMapping.mode": "name"}
    table = txlog.write(tmp_path / "t", rows, partition_by=["part"], properties=properties)
    found = {one["partition"]: one["rows"] for one in report(table).facts.partitions}
    assert found == {"part=a": 2, "part=b": 1}


@pytest.mark.slow
def test_statistics_of_many_files_are_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = txlog.Table.create(tmp_path / "t", pa.schema([("n", pa.int64())]))
    fragments = [
        one
        for start in range(0, 80, 2)  # Each range overlaps the one before it and the one behind.
        for one in txlog.write_fragments(pa.table({"n": [start, start + 3, None]}), table.uri)
    ]
    table.commit(txlog.FragmentOperation.Append(fragments))
    exact = report(table).facts
    assert (exact.ranges, exact.columns[0].nulls) == (40, 40)
    monkeypatch.setattr("txlog.verbs.facts.MOST_RANGES", 10)
    found = report(table)
    (column,) = found.facts.columns
    assert (found.facts.ranges, found.facts.files, column.known, column.nulls) == (10, 40, 1, 40)
    assert "Estimated from the statistics of 10 files" in found.html
    assert column.depth == 1  # Of 10 ranges that are far from each other.


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit is that of Linux")
def test_a_limit_of_address_space_is_an_error(tmp_path: Path) -> None:
    """V8 would end the process."""
    txlog.write(tmp_path, pa.table({"x": [1]}))
    code = (
        "import resource, sys, txlog\n"
        "from txlog.tools.report import report\n"
        "table = txlog.Table(sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]),) * 2)\n"
        "try:\n"
        "    print(len(report(table).html) > 100_000)\n"
        "except txlog.OutOfMemoryError as error:\n"
        "    print(error)\n"
    )

    def said(limit: int) -> str:
        command = [sys.executable, "-c", code, str(tmp_path), str(limit)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert "than the limit of 4000000000 bytes" in said(4_000_000_000)
    assert said(1 << 45) == "True"
