"""Dates and times of any year, compared with Python's for the years that it supports."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.base.moments import DAY_US, date_of, days_of, format_date, format_moment
from txlog.schema.timestamps import format_nanos, parse_date, parse_moment

EPOCH = datetime(1970, 1, 1)
ONE_US = timedelta(microseconds=1)
# Whole minutes: Python prints no offset of seconds that ISO 8601 knows.
zones = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.dates())
def test_dates(day: date) -> None:
    days = (day - EPOCH.date()).days
    assert days_of(day.year, day.month, day.day) == days
    assert date_of(days) == (day.year, day.month, day.day)
    assert format_date(days) == day.isoformat()
    assert parse_date(day.isoformat()) == days


@given(st.datetimes())
def test_moments(moment: datetime) -> None:
    micros = (moment - EPOCH) // ONE_US
    assert parse_moment(moment.isoformat()) == micros
    assert parse_moment(moment.isoformat(" ")) == micros
    assert parse_moment(f"{moment.isoformat()}Z") == micros
    assert format_moment(micros, digits=6) == moment.isoformat(timespec="microseconds")
    text = moment.isoformat(timespec="milliseconds")
    assert format_moment(micros, digits=3, zone="Z") == f"{text}Z"


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=zones))
def test_moments_with_an_offset(moment: datetime) -> None:
    micros = (moment.astimezone(UTC).replace(tzinfo=None) - EPOCH) // ONE_US
    assert parse_moment(moment.isoformat()) == micros


@given(st.integers(-3_000_000_000, 3_000_000_000))
def test_days_ascend_without_a_gap(days: int) -> None:
    assert days_of(*date_of(days)) == days
    assert date_of(days) < date_of(days + 1)


@given(st.integers(days_of(0, 1, 1) * DAY_US, days_of(99_999, 12, 31) * DAY_US))
def test_text_comes_back_for_years_that_python_has_not(micros: int) -> None:
    assert parse_moment(format_moment(micros, digits=6)) == micros


@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from(["", "Z"]))
def test_nanoseconds_come_back(nanos: int, zone: str) -> None:
    text = format_nanos(nanos, zone=zone)
    assert parse_moment(text, digits=9) == nanos
    assert parse_moment(text) == nanos // 1000


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01", 0),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("1970-01-01 00:00", 0),
        ("1970-1-2 3:4:5", DAY_US + 11_045_000_000),
        ("10000-01-01T00:00:00.000Z", 253_402_300_800_000_000),
        ("+10000-01-01 00:00:00", 253_402_300_800_000_000),
        # The Gregorian calendar also before it was made: no days are left out in 1582.
        ("1582-10-15T00:00:00Z", -12_219_292_800_000_000),
        ("1582-10-10T00:00:00Z", -12_219_724_800_000_000),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000_000),
        ("1900-01-01T01:24:00.000+01:24", -2_208_988_800_000_000),
        ("1900-01-01T00:53:28+00:53:28", -2_208_988_800_000_000),
        ("2020-01-01T00:00:00.123456789Z", 1_577_836_800_123_456),
        ("2020-01-01T00:00:00,5 UTC", 1_577_836_800_500_000),
        ("2020-01-01T02:00:00+0200", 1_577_836_800_000_000),
        ("2020-01-01T02:00:00+02", 1_577_836_800_000_000),
        ("2019-12-31T19:00:00-05:00", 1_577_836_800_000_000),
        ("2000-02-29", 951_782_400_000_000),
    ],
)
def test_texts_of_real_tables(text: str, micros: int) -> None:
    assert parse_moment(text) == micros
    assert parse_moment(f" {text}\n") == micros


@pytest.mark.parametrize(
    "text",
    [
        "", "2020", "2020-01", "2020-13-01", "2020-00-01", "2020-02-30", "1900-02-29",
        "2020-01-01T24:00:00", "2020-01-01T00:60:00", "2020-01-01T00:00:61", "2020-01-01T",
        "2020-01-01T00:00:00.", "2020-01-01T00:00:00X", "٢٠٢٠-01-01", "NaT",
    ],
)  # fmt: skip
def test_what_is_no_moment_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a |an invalid"):
        parse_moment(text)


@pytest.mark.parametrize("text", ["", "2020-01-01T00:00:00", "2021-02-29", "1-1-1", "2020-04-31"])
def test_what_is_no_date_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a "):
        parse_date(text)
