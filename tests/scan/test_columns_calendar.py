"""Files in the calendar of old Spark: read as the dates that their writer meant."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog
from txlog.scan.columns import CUTOVER, is_legacy, rebased

# Dates of the Julian calendar, and the same days by the Gregorian one (from the tables of both).
JULIAN = {
    dt.date(1582, 10, 4): dt.date(1582, 10, 14),
    dt.date(1500, 3, 1): dt.date(1500, 3, 11),
    dt.date(1066, 10, 14): dt.date(1066, 10, 20),
    dt.date(325, 5, 20): dt.date(325, 5, 21),
    dt.date(4, 2, 28): dt.date(4, 2, 26),
}


@pytest.mark.parametrize(("julian", "gregorian"), JULIAN.items())
def test_a_julian_label_is_kept(julian: dt.date, gregorian: dt.date) -> None:
    assert rebased(pa.array([gregorian, None])).to_pylist() == [julian, None]
    noon = dt.time(12, 30, 1, 5)
    stamps = pa.array([dt.datetime.combine(gregorian, noon), None], pa.timestamp("us"))
    in_utc = rebased(stamps.cast(pa.timestamp("us", "UTC")))
    assert in_utc.cast(pa.timestamp("us")).to_pylist() == [dt.datetime.combine(julian, noon), None]
    assert rebased(stamps, int96=True).to_pylist() == [dt.datetime.combine(julian, noon), None]
    assert rebased(stamps) == stamps, "Spark never rebases TIMESTAMP_NTZ"


def test_todays_calendar_is_left_alone() -> None:
    first = dt.date(1582, 10, 15)
    assert (first - dt.date(1970, 1, 1)).days == CUTOVER
    days = pa.array([first, dt.date(1970, 1, 1), dt.date(9999, 12, 31)])
    assert rebased(days) == days
    stamps = days.cast(pa.timestamp("us", "UTC"))
    assert rebased(stamps) == stamps
    assert rebased(pa.array([1])) == pa.array([1])


@pytest.mark.parametrize(
    ("metadata", "legacy"),
    [
        (None, False),
        ({b"org.apache.spark.legacyDateTime": b""}, True),
        ({b"org.apache.spark.legacyINT96": b""}, True),
        ({b"org.apache.spark.version": b"2.4.8"}, True),
        ({b"org.apache.spark.version": b"3.5.0"}, False),
        ({b"org.apache.spark.version": b"next"}, False),
    ],
)
def test_the_footer_says(metadata: dict[bytes, bytes] | None, legacy: bool) -> None:
    assert is_legacy(metadata) is legacy


@pytest.mark.parametrize(
    ("key", "int96", "others"),
    [
        (b"org.apache.spark.legacyDateTime", False, True),
        (b"org.apache.spark.legacyINT96", True, False),
    ],
)
def test_the_footer_says_it_of_int96_apart(key: bytes, int96: bool, others: bool) -> None:
    metadata = {key: b"", b"org.apache.spark.version": b"4.3.0"}
    assert is_legacy(metadata, int96=True) is int96
    assert is_legacy(metadata, int96=False) is others


def test_predicates_find_what_is_read(tmp_path: Path) -> None:
    old, stored = dt.date(1500, 3, 1), dt.date(1500, 3, 11)
    table = txlog.write(tmp_path / "t", pa.table({"d": [old] * 3, "n": [1, 2, 3]}))
    # The same file as old Spark wrote it; the log's statistics are in today's calendar.
    path = tmp_path / "t" / table.files()["path"][0].as_py()
    data = pa.table({"d": [stored] * 3, "n": [1, 2, 3]})
    marked = data.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""})
    pq.write_table(marked, path, row_group_size=1)
    assert table.to_arrow()["d"].to_pylist() == [old] * 3
    assert table.count("d = '1500-03-01'") == 3
    assert table.to_arrow(where="d = '1500-03-01'").num_rows == 3
    assert table.count("d = '1500-03-11'") == 0
