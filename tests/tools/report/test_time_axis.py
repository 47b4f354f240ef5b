"""The axes of charts: ticks that are whole, few and labelled differently, for tables of any age."""

import re
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.tools.report.charts import counted, sizes, versions
from txlog.tools.report.time_axis import LATEST_MS, MOST_TICKS, time_axis

NOW = 1_795_880_309_343
SECOND, HOUR, DAY = 1_000, 3_600_000, 86_400_000
SPANS = {
    "one version": [0],
    "two in a millisecond": [0, 0],
    "two in a second": [0, 400],
    "three in three seconds": [0, 1_400, 2_900],
    "a minute": [0, 60_000],
    "an hour": [n * HOUR // 6 for n in range(7)],
    "a day": [n * HOUR for n in range(24)],
    "a month": [n * DAY for n in range(30)],
    "half a year": [n * DAY for n in range(0, 180, 7)],
    "years": [n * 30 * DAY for n in range(60)],
    "centuries": [0, 300 * 365 * DAY],
}


def entries_at(times: list[int], rows: int) -> list[dict[str, Any]]:
    return [
        {"version": at, "time": time, "operation": "WRITE", "by": "me", "added": rows,
         "deleted": at % 2, "bytes": 10}
        for at, time in enumerate(times)
    ]  # fmt: skip


def labels_of(chart: dict[str, Any], width: int) -> list[list[str]]:
    """Return the labels of the axes of a chart that is drawn."""
    vl_convert = pytest.importorskip("vl_convert")
    drawn = vl_convert.vegalite_to_svg({**chart, "width": width})
    groups = re.findall(r'"mark-text role-axis-label".*?</g>', drawn, re.DOTALL)
    found = [re.findall(r"<text[^>]*opacity=\"1\"[^>]*>(.*?)</text>", group) for group in groups]
    return [[re.sub("<[^>]+>", " ", label).strip() for label in labels] for labels in found]


@pytest.mark.slow
@pytest.mark.parametrize("width", [230, 800])
@pytest.mark.parametrize("span", SPANS)
def test_a_table_of_any_age_has_whole_ticks(span: str, width: int) -> None:
    times = [NOW + time for time in SPANS[span]]
    chart = versions(entries_at(times, 3))
    along, up = labels_of(chart, width)
    # Vega's interpreter draws plain numbers nowhere; tests with a browser show it.
    place = chart["encoding"]["x"]
    assert all("expr" in end for end in (*place["scale"]["domain"], place["axis"]["values"]))
    assert 1 <= len(along) <= MOST_TICKS
    assert len({*along}) == len(along), along
    if max(times) - min(times) <= 2 * DAY:
        form = r"\d\d:\d\d(:\d\d)? +\d{4}-\d\d-\d\d"
    else:
        form = r"\d{4}(-\d\d){0,2}"
    assert all(re.fullmatch(form, label) for label in along), along
    assert len({*up}) == len(up)
    assert all(re.fullmatch(r"[−-]?\d+", label) for label in up), up


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 1_234, 3_000_000])
def test_rows_and_files_are_whole(rows: int) -> None:
    _, up = labels_of(versions(entries_at([NOW, NOW + SECOND], rows)), 800)
    assert len({*up}) == len(up)
    assert all(re.fullmatch(r"[−-]?[\d.]+[kM]|[−-]?\d+", label) for label in up), up
    _, files = labels_of(sizes([{"from": 1, "to": 2, "files": rows, "bytes": 1}]), 800)
    assert all(re.fullmatch(r"[\d.]+[kM]|\d+", label) for label in files), files


@given(st.lists(st.integers(-9, 9), max_size=4))
def test_few_numbers_have_a_tick_each(numbers: list[int]) -> None:
    ticks = counted(numbers).get("values")
    assert ticks is None or ticks == [*range(min([0, *numbers]), max([0, *numbers]) + 1)]


@settings(max_examples=examples(500))
@given(
    st.integers(1 - LATEST_MS, LATEST_MS - 1),
    st.integers(0, 16).flatmap(lambda power: st.integers(0, 10**power)),
)
def test_ticks_are_few_and_around_all_times(first: int, length: int) -> None:
    last = min(first + length, LATEST_MS - 1)
    ticks = time_axis([first, last]).ticks
    assert 2 <= len(ticks) <= MOST_TICKS
    assert ticks[0] <= first
    assert last <= ticks[-1]
    steps = [b - a for a, b in pairwise(ticks)]
    assert min(steps) >= SECOND
    assert max(steps) <= min(steps) * 1.1 + 3 * DAY  # Months and years differ in length.
    assert all(tick % SECOND == 0 for tick in ticks)
    assert max(abs(tick) for tick in ticks) < 8_640_000_000_000_000  # JavaScript's last time.


def test_months_and_years_begin_at_their_first_days() -> None:
    for days in (100, 700, 5_000):
        for tick in time_axis([NOW, NOW + days * DAY]).ticks:
            made = datetime.fromtimestamp(tick / SECOND, UTC)
            assert (made.day, made.hour, made.minute) == (1, 0, 0)


def test_versions_without_a_usable_time_are_not_drawn() -> None:
    entries = entries_at([NOW, NOW, NOW], 1)
    entries[1]["time"], entries[2]["time"] = None, 2**62
    rows = versions(entries)["data"]["values"]
    assert {row["version"] for row in rows} == {0}
