"""Time zones: single values as Python's `zoneinfo` has them, whole predicates as plain loops."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog import InvalidInputError, InvalidTypeError, col
from txlog.expressions.bind import bind, depends_on_zone
from txlog.expressions.evaluate import is_true
from txlog.expressions.sql import parse_sql, to_sql
from txlog.expressions.tree import Zoned
from txlog.expressions.zones import _instant, _local, known_zone

EPOCH, MICROSECOND = datetime(1970, 1, 1), timedelta(microseconds=1)
ZONES = ["America/New_York", "Australia/Melbourne", "Europe/London", "Asia/Kathmandu", "UTC"]
moments = st.datetimes(datetime(1900, 1, 2), datetime(2200, 1, 1))
zones = st.sampled_from(ZONES)


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // MICROSECOND


@given(moment=moments, zone=zones)
@example(datetime(2024, 3, 10, 6, 59, 59), "America/New_York")
@example(datetime(2024, 3, 10, 7), "America/New_York")
def test_local_times_are_those_of_python(moment: datetime, zone: str) -> None:
    local = moment.replace(tzinfo=UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    found = _local(np.array([micros(moment)]), known_zone(zone))
    assert found.tolist() == [micros(local)]


@given(local=moments, zone=zones)
@example(datetime(2024, 3, 10, 2, 30), "America/New_York")  # Skipped: it is 3:30.
@example(datetime(2024, 11, 3, 1, 30), "America/New_York")  # Twice: the first.
@example(datetime(2024, 10, 6, 2, 30), "Australia/Melbourne")
@example(datetime(2024, 4, 7, 2, 30), "Australia/Melbourne")
def test_instants_are_those_of_python(local: datetime, zone: str) -> None:
    moment = local.replace(tzinfo=ZoneInfo(zone), fold=0).astimezone(UTC).replace(tzinfo=None)
    assert _instant(np.array([micros(local)]), known_zone(zone)).tolist() == [micros(moment)]


def test_instants_of_any_year_are_computed() -> None:
    limit = (1 << 63) - 1
    years = np.array([-limit, -(10**17), 0, 10**17, limit])
    found = _local(years[1:4], "America/New_York") - years[1:4]
    assert (abs(found) < 6 * 3_600_000_000).all()
    assert len(_instant(years, "America/New_York")) == 5


@pytest.mark.parametrize("zone", ["America/New York", "", "+25:00", "Mars/Olympus"])
def test_an_unknown_zone_is_refused(zone: str, tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"a": [1]}))
    with pytest.raises(InvalidInputError, match="is no time zone") as caught:
        txlog.Table(table.uri, time_zone=zone)
    assert caught.value.argument == "time_zone"
    with pytest.raises(InvalidTypeError, match="text was expected"):
        txlog.Table(table.uri, time_zone=5)  # type: ignore[arg-type]


PREDICATES = [
    "at >= TIMESTAMP '2024-01-02 00:00:00' AND at < TIMESTAMP '2024-01-03 00:00:00'",
    "CAST(at AS DATE) = '2024-01-02'",
    "to_date(at) = DATE '2024-01-02'",
    "date_trunc('day', at) = '2024-01-02'",
    "year(at) = 2024 AND month(at) = 1 AND day(at) = 2",
    "at >= DATE '2024-01-02' AND at < day_after",
    "date_format(at, 'yyyy-MM-dd') = '2024-01-02'",
    "CAST(at AS STRING) LIKE '2024-01-02 %'",
    "CAST(at AS TIMESTAMP_NTZ) >= TIMESTAMP_NTZ '2024-01-02 00:00:00' AND at < day_after",
    "datediff(at, day_after) = -1",
    "at >= CAST(text AS TIMESTAMP) AND at < CAST(text AS TIMESTAMP) + INTERVAL 1 DAY",
]


@pytest.fixture(name="table", scope="module")
def fixture_table(tmp_path_factory: pytest.TempPathFactory) -> txlog.Table:
    first = datetime(2024, 1, 1, tzinfo=UTC)
    every = [first + timedelta(hours=n) for n in range(96)]
    rows = pa.table(
        {
            "n": range(96),
            "at": pa.array(every, pa.timestamp("us", "UTC")),
            "day_after": [date(2024, 1, 3)] * 96,
            "text": ["2024-01-02"] * 96,
        }
    )
    path, options = tmp_path_factory.mktemp("zones") / "t", txlog.WriteOptions(max_rows_per_file=5)
    return txlog.write(path, rows, options=options)


def of_the_day(zone: str) -> list[int]:
    first = datetime(2024, 1, 1, tzinfo=UTC)
    return [
        n
        for n in range(96)
        if (first + timedelta(hours=n)).astimezone(ZoneInfo(zone)).date() == date(2024, 1, 2)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("where", PREDICATES)
def test_a_day_is_that_of_the_zone_at_each_door(
    table: txlog.Table, where: str, zone: str, tmp_path: Path
) -> None:
    expected = of_the_day(zone)
    zoned = txlog.Table(table.uri, time_zone=zone)

    def numbers(found: pa.Table) -> list[int]:
        return sorted(found["n"].to_pylist())

    assert numbers(zoned.to_arrow(where=where)) == expected
    assert {*numbers(zoned.to_pyarrow_dataset(where).to_table())} >= {*expected}  # Whole files.
    assert zoned.count(where) == len(expected)
    assert numbers(zoned.to_polars(where=where).to_arrow()) == expected
    assert numbers(zoned.scan(where=where).to_arrow()) == expected
    assert numbers(zoned.blame(where=where).to_arrow()) == expected
    assert sum(one.count_rows(where) for one in zoned.fragments()) == len(expected)
    copied = zoned.clone(tmp_path / "copy")
    assert copied.delete(where).metrics["numDeletedRows"] == len(expected)
    assert numbers(copied.to_arrow()) == [n for n in range(96) if n not in expected]


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
def test_values_and_merges_have_the_zone(table: txlog.Table, zone: str, tmp_path: Path) -> None:
    midnight = datetime(2024, 1, 2, tzinfo=ZoneInfo(zone))
    copied = txlog.Table(table.uri, time_zone=zone).clone(tmp_path / "copy")
    day = "'2024-01-02'"
    for value in (f"TIMESTAMP {day}", f"DATE {day}", "CAST(text AS TIMESTAMP)"):
        copied.update({"at": value}, "n = 1")
        assert copied.to_arrow(["at"], "n = 1")["at"].to_pylist() == [midnight]
        copied.update({"at": "TIMESTAMP '2000-01-01 00:00:00'"}, "n = 1")
    copied.update({"text": "at"}, "at = '2024-01-02 00:00:00'")
    if zone != "Asia/Kathmandu":  # Its midnight is at no full hour.
        assert copied.count("text = '2024-01-02 00:00:00'") == 1
    source = pa.table({"d": [date(2024, 1, 2)]})
    merger = copied.merge(source, "to_date(target.at) = source.d AND target.n > 1")
    merged = merger.when_matched_update({"at": "source.d"}).execute()
    assert merged.metrics["numTargetRowsUpdated"] == len(of_the_day(zone))
    assert copied.count("at = TIMESTAMP '2024-01-02 00:00:00'") == len(of_the_day(zone))


def test_an_overwrite_replaces_the_day_of_the_zone(table: txlog.Table, tmp_path: Path) -> None:
    copied = txlog.Table(table.uri, time_zone="America/New_York").clone(tmp_path / "copy")
    left = [n for n in range(96) if n not in of_the_day("America/New_York")]
    copied.overwrite(copied.to_arrow().slice(0, 0), PREDICATES[0])
    assert sorted(copied.to_arrow(["n"])["n"].to_pylist()) == left


@pytest.mark.parametrize("where", PREDICATES)
def test_a_bound_predicate_is_read_back_in_utc(table: txlog.Table, where: str) -> None:
    schema = table.snapshot.schema
    bound = bind(Zoned(parse_sql(where), "America/New_York"), schema)
    assert to_sql(bind(parse_sql(to_sql(bound)), schema)) == to_sql(bound)
    batch = table.to_arrow().combine_chunks().to_batches()[0]
    kept = batch.filter(is_true(bound, batch))["n"].to_pylist()
    assert sorted(kept) == of_the_day("America/New_York")


@pytest.mark.parametrize(
    ("where", "depends"),
    [
        *((where, True) for where in PREDICATES),
        ("n > 5", False),
        ("at >= TIMESTAMP '2024-01-02 00:00:00Z'", False),
        ("day_after = '2024-01-03'", False),
        ("at IS NULL", False),
    ],
)
def test_whether_a_predicate_depends_on_the_zone(
    table: txlog.Table, where: str, depends: bool
) -> None:
    assert depends_on_zone(parse_sql(where), table.snapshot.schema) is depends


@settings(max_examples=examples(50))
@given(moment=moments, zone=zones)
def test_a_datetime_without_zone_is_of_the_table(
    table: txlog.Table, moment: datetime, zone: str
) -> None:
    schema = table.snapshot.schema
    bound = bind(Zoned(col("at") == moment, zone), schema)
    instant = moment.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    assert to_sql(bound) == to_sql(bind(col("at") == instant, schema))


@pytest.mark.parametrize("zone", ["Australia/Melbourne", "America/New_York"])
def test_constants_beyond_the_years_of_python_are_compared(tmp_path: Path, zone: str) -> None:
    moments = [datetime(1, 1, 1, 12), datetime(2024, 1, 1, 12), datetime(9999, 12, 31, 12)]
    table = txlog.write(
        tmp_path / "t", pa.table({"at": pa.array(moments, pa.timestamp("us", "UTC"))})
    )
    zoned = txlog.Table(table.uri, time_zone=zone)
    for first in ("DATE'0001-01-01'", "'0001-01-01'", "TIMESTAMP'0001-01-01 00:00:00'"):
        assert zoned.count(f"at > {first}") == 3
        assert zoned.count(f"at IN ({first}, TIMESTAMP'2024-01-01 12:00:00Z')") == 1
    expected = 2 if zone.startswith("Australia") else 3
    assert zoned.count("at < '9999-12-31 22:00:00'") == expected


def test_an_unknown_zone_is_an_error_only_where_it_matters(table: txlog.Table) -> None:
    schema = table.snapshot.schema
    assert to_sql(bind(Zoned(parse_sql("n = 1"), "Mars"), schema)) == "(`n` = 1)"
    with pytest.raises(InvalidInputError, match="'Mars' is no time zone"):
        bind(Zoned(parse_sql("at = '2024-01-01'"), "Mars"), schema)


def test_dates_in_nested_values_are_not_mixed(tmp_path: Path) -> None:
    rows = pa.table({"l": [[datetime(2024, 1, 1, tzinfo=UTC)]], "d": [date(2024, 1, 1)]})
    table = txlog.write(tmp_path / "t", rows)
    zoned = txlog.Table(table.uri, time_zone="America/New_York")
    assert zoned.count("array_contains(l, TIMESTAMP '2023-12-31 19:00:00')") == 1
    with pytest.raises(InvalidInputError, match="America/New_York"):
        zoned.count("array_contains(l, d)")
