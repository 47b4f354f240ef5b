"""The version that was the latest at a time."""

import os
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import txlog
from txlog.base.effects import Effects
from txlog.base.errors import InvalidInputError, NotFoundError
from txlog.extend import context_of
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.time_travel import parse_timestamp, pick_version, version_at
from txlog.testing import unsealed

Make = Callable[..., txlog.Table]
T0 = 1_700_000_000_000  # Milliseconds.

stamps = st.lists(st.integers(0, 12), max_size=8)


def one_by_one(commits: list[tuple[int, int]], moment: int) -> int | None:
    """The oracle: give every commit its time, then take the last one that is not later."""
    times: list[int] = []
    for _, stamp in commits:
        times.append(max(stamp, times[-1] + 1) if times else stamp)
    found = [version for (version, _), time in zip(commits, times, strict=True) if time <= moment]
    return max(found, default=None)


@given(stamps, st.integers(0, 3), st.integers(-1, 25))
def test_picking_agrees_with_one_by_one(found: list[int], first: int, moment: int) -> None:
    commits = list(enumerate(found, start=first))
    assert pick_version(commits, moment) == one_by_one(commits, moment)


@given(stamps, st.integers(-1, 25))
def test_a_later_moment_has_no_older_version(found: list[int], moment: int) -> None:
    commits = list(enumerate(found))
    now, later = pick_version(commits, moment), pick_version(commits, moment + 1)
    assert (-1 if now is None else now) <= (-1 if later is None else later)


def set_times(log: Path, *times_ms: int) -> None:
    for version, time_ms in enumerate(times_ms):
        os.utime(log / f"{version:020d}.json", ns=(time_ms * 1_000_000,) * 2)


def at(table: txlog.Table, moment: object, **options: str) -> int:
    return txlog.Table(table.uri, timestamp=moment, **options).version  # type: ignore[arg-type]


def test_file_times_decide(make: Make, log: Path) -> None:
    table = make(3)
    set_times(log, T0, T0 + 10, T0 + 20)
    wanted = {0: 0, 9: 0, 10: 1, 19: 1, 20: 2}
    assert {after: at(table, T0 + after) for after in wanted} == wanted
    assert at(table, datetime.fromtimestamp(T0 / 1000, UTC)) == 0


def test_a_moment_out_of_range_is_an_error_or_the_nearest(make: Make, log: Path) -> None:
    table = make(3)
    set_times(log, T0, T0 + 10, T0 + 20)
    with pytest.raises(NotFoundError, match=r"before the first version \(0 at 2023-11-14"):
        at(table, T0 - 1)
    with pytest.raises(NotFoundError, match="after the last version"):
        at(table, T0 + 21)
    assert at(table, T0 - 1, out_of_range="nearest") == 0
    assert at(table, T0 + 21, out_of_range="nearest") == 2


def test_times_that_stand_still_or_go_back(make: Make, log: Path) -> None:
    table = make(4)
    set_times(log, T0, T0, T0 - 5, T0)
    assert [at(table, T0 + after) for after in range(4)] == [0, 1, 2, 3]
    with pytest.raises(NotFoundError, match="after the last"):
        at(table, T0 + 4)


@pytest.mark.spec("GUA-12")
def test_times_ascend_under_odd_clocks_zones_and_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of stamped commits by the stamps, of others by times that a copy has mixed up."""
    for stamped in ("true", "false"):
        root = tmp_path / stamped
        properties = {"delta.enableInCommitTimestamps": stamped}
        table = txlog.Table.create(root, pa.schema([("x", pa.int64())]), properties=properties)
        jumps = [0, 3_600_000, -7_200_000, -1, 0, 86_400_000, -86_400_000]
        for n, jump in enumerate(jumps):
            with monkeypatch.context() as patch:
                now_ms = Effects.now_ms
                patch.setattr(Effects, "now_ms", lambda self, by=jump, now=now_ms: now(self) + by)
                patch.setenv("TZ", ("UTC", "Asia/Kolkata", "America/St_Johns")[n % 3])
                time.tzset()
                table.append(pa.table({"x": [n]}))
        time.tzset()
        copied = tmp_path / f"{stamped} copied"
        shutil.copytree(root, copied)
        for n, path in enumerate(sorted((copied / "_delta_log").glob("*.json"), reverse=True)):
            os.utime(path, (T0 / 1000 + n, T0 / 1000 + n))  # The oldest has the newest time.
        for place in (root, copied):
            times = [txlog.Table(place, version=v).timestamp_ms for v in range(len(jumps) + 1)]
            assert times == sorted(set(times))
            for version, ms in enumerate(times):
                assert txlog.Table(place, timestamp=ms).version == version


def check_times(table: txlog.Table, versions: int) -> None:
    """Whatever time is shown of a version leads to it."""
    history = txlog.Table(table.uri).history()
    assert [entry["version"] for entry in history] == list(range(versions))[::-1]
    for entry in history:
        version, shown = entry["version"], entry["timestamp"]
        assert at(table, shown) == version
        assert txlog.Table(table.uri, version=version).timestamp_ms == shown
    assert history == txlog.Table(table.uri).history(limit=versions)
    assert history[:1] == txlog.Table(table.uri).history(limit=1)


@pytest.mark.spec("GUA-12")
@pytest.mark.parametrize(
    "after", [(0, 10, 20, 30), (0, 0, 0, 0), (0, 0, -5, 0), (9, 3, 50, 50), (7, 7, 8, 9)]
)
def test_a_time_that_is_shown_leads_back(make: Make, log: Path, after: tuple[int, ...]) -> None:
    table = make(4)
    set_times(log, *(T0 + ms for ms in after))
    check_times(table, 4)
    table.maintenance.checkpoint()
    assert table.timestamp_ms == txlog.Table(table.uri).history()[0]["timestamp"]
    check_times(table, 4)


def test_a_writer_knows_the_time_of_its_own_commit(make: Make, log: Path) -> None:
    table = make(3)
    ahead = table.timestamp_ms + 10**7
    set_times(log, ahead, ahead, ahead)
    table.refresh()
    assert table.restore(0).version == 3
    assert table.timestamp_ms == ahead + 3 == table.history()[0]["timestamp"]
    assert at(table, ahead + 3) == 3
    assert table.restore(timestamp=ahead + 1).version == 4
    assert txlog.Table(table.uri, version=4).files() == txlog.Table(table.uri, version=1).files()


def test_writers_say_another_time(make: Make, log: Path) -> None:
    table = make(2)
    set_times(log, T0, T0 + 10)
    said = [orjson.loads((log / f"{v:020d}.json").read_bytes().splitlines()[0]) for v in (1, 0)]
    assert all(line["commitInfo"]["timestamp"] > T0 + 10 for line in said)
    assert [entry["timestamp"] for entry in table.history()] == [T0 + 10, T0]


def test_what_cannot_be_rebuilt_has_no_time(make: Make, log: Path) -> None:
    table = make(4)
    set_times(log, T0, T0 + 10, T0 + 20, T0 + 30)
    txlog.Table(table.uri, version=2).maintenance.checkpoint()
    (log / f"{1:020d}.json").unlink()
    with pytest.raises(NotFoundError, match=r"is between version 0 at .* and version 2 at"):
        at(table, T0 + 15)
    assert at(table, T0) == 0  # The next version was made later.
    assert at(table, T0 + 25) == 2


def test_a_log_of_checkpoints_alone_has_no_times(make: Make, log: Path) -> None:
    table = make(2)
    table.maintenance.checkpoint()
    for version in range(2):
        (log / f"{version:020d}.json").unlink()
    with pytest.raises(NotFoundError, match="keeps no commit"):
        at(table, T0)


def stamp(log: Path, version: int, stamp_ms: int) -> None:
    """Set a commit's in-commit timestamp."""
    path = log / f"{version:020d}.json"
    rows = [orjson.loads(line) for line in unsealed(path.read_bytes()).splitlines()]
    rows[0]["commitInfo"]["inCommitTimestamp"] = stamp_ms
    path.write_bytes(b"\n".join(map(orjson.dumps, rows)))


def test_in_commit_timestamps_decide(make: Make, log: Path) -> None:
    table = make(4, delta__enableInCommitTimestamps="true")
    for version in range(4):
        stamp(log, version, T0 + 10 * version)
    set_times(log, *(T0 + 10**9 - version for version in range(4)))
    wanted = {0: 0, 9: 0, 10: 1, 29: 2, 30: 3}
    assert {after: at(table, T0 + after) for after in wanted} == wanted
    assert txlog.Table(table.uri).timestamp_ms == T0 + 30
    for moment in (T0 - 1, T0 + 31):
        with pytest.raises(NotFoundError):
            at(table, moment)


def test_writers_make_in_commit_timestamps_ascend(make: Make) -> None:
    table = make(6, delta__enableInCommitTimestamps="true")
    found = [entry["inCommitTimestamp"] for entry in table.history()]
    assert found == sorted(set(found), reverse=True)
    assert found[0] == table.timestamp_ms


def test_versions_before_in_commit_timestamps_go_by_file_times(make: Make, log: Path) -> None:
    table = make(4, delta__enableInCommitTimestamps="true")
    path = log / f"{3:020d}.json"
    rows = [
        orjson.loads(line) for line in unsealed((log / f"{0:020d}.json").read_bytes()).splitlines()
    ]
    (metadata,) = [row["metaData"] for row in rows if "metaData" in row]
    metadata["configuration"] |= {
        "delta.inCommitTimestampEnablementVersion": "2",
        "delta.inCommitTimestampEnablementTimestamp": str(T0 + 20),
    }
    path.write_bytes(
        unsealed(path.read_bytes()).rstrip() + b"\n" + orjson.dumps({"metaData": metadata})
    )
    for version in (2, 3):
        stamp(log, version, T0 + 10 * version)
    set_times(log, T0, T0 + 10, T0 + 900, T0 + 901)
    wanted = {0: 0, 10: 1, 19: 1, 20: 2, 29: 2, 30: 3}
    assert {after: at(table, T0 + after) for after in wanted} == wanted
    set_times(log, T0, T0, T0 + 900, T0 + 901)
    shown = [(entry["version"], entry["timestamp"]) for entry in txlog.Table(table.uri).history()]
    assert shown == [(3, T0 + 30), (2, T0 + 20), (1, T0 + 1), (0, T0)]
    assert [at(table, time) for _, time in shown] == [3, 2, 1, 0]


def test_only_versions_up_to_the_snapshot_count(make: Make, log: Path) -> None:
    table = make(4)
    set_times(log, T0, T0 + 10, T0 + 20, T0 + 30)
    old = load_snapshot(context_of(table).store, version=1)
    assert version_at(context_of(table).store, old, T0 + 10) == 1
    with pytest.raises(NotFoundError, match="after the last"):
        version_at(context_of(table).store, old, T0 + 30)


@pytest.mark.parametrize(
    "moment",
    [
        T0,
        "2023-11-14T22:13:20",
        " 2023-11-14 22:13:20.000Z ",
        "2023-11-15T00:13:20+02:00",
        datetime(2023, 11, 14, 22, 13, 20),
        datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
        datetime(2023, 11, 14, 17, 13, 20, tzinfo=timezone(timedelta(hours=-5))),
    ],
    ids=repr,
)
def test_moments_of_all_forms(moment: str | datetime | int) -> None:
    assert parse_timestamp(moment) == T0


@given(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)))
def test_milliseconds_are_exact(moment: datetime) -> None:
    whole = (moment - datetime(1970, 1, 1)) // timedelta(milliseconds=1)
    assert parse_timestamp(moment.isoformat()) == whole
    assert parse_timestamp(moment) == whole


@pytest.mark.parametrize("moment", ["", "yesterday", "2023-13-01", True, 1.5, None, b"2023"])
def test_what_is_no_moment_is_an_error(moment: object) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_timestamp(moment)  # type: ignore[arg-type]
    assert caught.value.argument == "timestamp"
