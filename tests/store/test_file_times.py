"""The times of files that file systems of fsspec tell, and the clock of a store."""

from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.base.effects import Effects
from txlog.store.base import is_older
from txlog.store.file_times import ahead_ms, clock_mark, modified_ms, store_now_ms
from txlog.store.open import open_store
from txlog.testing import FaultyStore

AT_MS = 1_700_000_000_000
AT = datetime.fromtimestamp(AT_MS / 1000, UTC)
HOUR_MS = 3_600_000

# What an implementation of fsspec says about one file, by its name.
ENTRIES: dict[str, dict[str, Any]] = {
    "local": {"mtime": AT_MS / 1000, "created": 5.0},
    "hdfs by Arrow, sftp": {"mtime": AT},
    "lakefs, tar": {"mtime": AT_MS // 1000},
    "webhdfs": {"modificationTime": AT_MS, "accessTime": AT_MS + 5000},
    "s3": {"LastModified": AT},
    "s3 in another zone": {"LastModified": AT.astimezone(timezone(timedelta(hours=5)))},
    "oss": {"LastModified": AT_MS // 1000},
    "azure": {"last_modified": AT, "creation_time": AT - timedelta(days=1)},
    "jupyter": {"last_modified": "2023-11-14T22:13:20Z", "created": "2020-01-01T00:00:00Z"},
    "google": {"updated": "2023-11-14T22:13:20.000Z", "timeCreated": "2020-01-01T00:00:00Z"},
    "google, changed": {"mtime": AT, "ctime": AT - timedelta(days=1)},
    "webdav": {"modified": AT, "created": AT - timedelta(days=1)},
    "drive": {"modifiedTime": "2023-11-14T22:13:20+00:00"},
    "ftp": {"modify": "20231114221320", "unix.mode": "0644"},
    "ftp with fractions": {"modify": "20231114221320.000"},
    "http": {"Last-Modified": format_datetime(AT, usegmt=True)},
    "memory": {"created": AT},
    "of no zone, so UTC": {"LastModified": AT.replace(tzinfo=None)},
}


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_each_file_system_has_a_field(entry: dict[str, Any]) -> None:
    assert modified_ms({"name": "f", "size": 1, "type": "file", **entry}) == AT_MS


UNKNOWN = [
    None, 0, 0.0, -1, True, float("nan"), float("inf"), "", "Nov 14 22:13", "0", [], (2023, 1),
    datetime(1970, 1, 1, tzinfo=UTC), datetime(1969, 12, 31), b"2023-11-14",
]  # fmt: skip


@pytest.mark.parametrize("value", UNKNOWN, ids=repr)
@pytest.mark.parametrize("name", ["mtime", "modificationTime", "LastModified", "modify"])
def test_what_is_no_time_is_unknown_and_not_1970(name: str, value: object) -> None:
    assert modified_ms({name: value}) is None
    assert modified_ms({}) is None
    assert modified_ms({name: value, "created": AT}) == AT_MS
    assert not is_older(modified_ms({name: value}), 1 << 60)


SPELT = st.sampled_from([
    lambda ms: {"mtime": ms / 1000},
    lambda ms: {"modificationTime": ms},
    lambda ms: {"LastModified": datetime.fromtimestamp(ms / 1000, UTC)},
    lambda ms: {"updated": datetime.fromtimestamp(ms / 1000, UTC).isoformat()},
    lambda ms: {"mtime": 0, "created": datetime.fromtimestamp(ms / 1000, UTC)},
])  # fmt: skip


@given(st.integers(1, 4_000_000_000), SPELT)
def test_any_time_in_any_spelling_is_the_same(seconds: int, spelt: Any) -> None:
    assert modified_ms(spelt(seconds * 1000)) == seconds * 1000


class Ahead(Effects):
    ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ms


@pytest.mark.parametrize("hours", [-2, 0, 2])
def test_a_store_tells_the_time_and_nothing_stays(hours: int) -> None:
    store = open_store(f"memory://clock{hours}")
    effects = Ahead()
    object.__setattr__(effects, "ms", hours * HOUR_MS)
    found = ahead_ms(store, effects)
    assert abs(found - max(0, hours * HOUR_MS)) < 60_000
    assert (found == 0) is (hours <= 0)
    assert not list(store.list_tree(""))


def test_another_writer_may_delete_the_mark() -> None:
    inner = open_store("memory://clock of many")
    mark = clock_mark(Effects())
    store = FaultyStore(inner, before={("info", 1): lambda: inner.delete([mark])})
    assert store_now_ms(store, mark) is not None
    assert not list(inner.list_tree(""))
