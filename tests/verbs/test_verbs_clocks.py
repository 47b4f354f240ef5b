"""Clocks: of processes and of the store, times that are not known, and times that are shown.

The store has a clock of its own, which is behind or ahead of the clocks of processes, or tells no
time. The oracle knows the true time: nothing young is deleted, and times of versions lead back.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.base.effects import Effects, rehearsing
from txlog.base.errors import CommitConflictError, InvalidInputError, NotFoundError
from txlog.commit.context import Context
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.time_travel import snapshot_at, version_at, version_from, version_until
from txlog.store.base import ObjectInfo, Put, Store
from txlog.testing import FaultyStore, open_store

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
T0 = 1_800_000_000_000
SKEWS = [0, 2 * HOUR_MS, -2 * HOUR_MS, 40 * DAY_MS, -40 * DAY_MS]
NUMBERS = count()


@dataclass
class Clock:
    ms: int = T0


class OwnClock(FaultyStore):
    """A store that gives files their times by its own clock; those in `times_ms` have others."""

    def __init__(self, inner: Store, clock: Clock) -> None:
        super().__init__(inner)
        self.clock = clock
        self.times_ms: dict[str, int | None] = {}
        self.written_ms: dict[str, int] = {}
        self.has_times = True
        self.deleted: list[tuple[str, int]] = []  # With their true ages.

    def _told(self, path: str, info: ObjectInfo) -> ObjectInfo:
        made_ms = self.times_ms.get(path, self.written_ms.get(path)) if self.has_times else None
        return info._replace(modified_ms=made_ms)

    def info(self, path: str) -> ObjectInfo:
        return self._told(path, super().info(path))

    def list_after(self, folder: str, name: str) -> Iterator[ObjectInfo]:
        for info in super().list_after(folder, name):
            yield self._told(f"{folder}/{info.name}", info)

    def list_tree(self, folder: str) -> Iterator[ObjectInfo]:
        for info in super().list_tree(folder):
            yield self._told(f"{folder}/{info.name}" if folder else info.name, info)

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        with super().open_output(path) as sink:
            yield sink
        self.written_ms[path] = self.clock.ms

    def write_new(self, path: str, data: bytes) -> None:
        super().write_new(path, data)
        self.written_ms[path] = self.clock.ms

    def replace(self, path: str, data: bytes) -> None:
        super().replace(path, data)
        self.written_ms[path] = self.clock.ms

    def put_if_absent(self, path: str, data: bytes) -> Put:
        found = super().put_if_absent(path, data)
        if found == "created":
            self.written_ms[path] = self.clock.ms
        return found

    def delete(self, paths: Sequence[str]) -> None:
        super().delete(paths)
        for path in paths:
            made_ms = self.written_ms.pop(path, None)
            if made_ms is not None and not re.match(r"_delta_log/\.clock\.", path):
                self.deleted.append((path, self.clock.ms - made_ms))


@dataclass(frozen=True)
class Skewed(Effects):
    """The clock of a process, which differs from the store's."""

    clock: Clock = field(default_factory=Clock)
    skew_ms: int = 0

    def now_ms(self) -> int:
        return self.clock.ms + self.skew_ms


def new_store() -> OwnClock:
    return OwnClock(open_store(f"memory://clocks/{next(NUMBERS)}"), Clock())


def opened(store: OwnClock, skew_ms: int = 0) -> txlog.Table:
    context = Context(store, Skewed(store.clock, skew_ms))
    return txlog.Table._of(context, load_snapshot(store))


def begun(store: OwnClock, skew_ms: int = 0, **properties: str) -> txlog.Table:
    named = {name.replace("__", "."): text for name, text in properties.items()}
    txlog.Table.create(store.root, pa.schema([("x", pa.int64())]), properties=named)
    for info in store.inner.list_tree(""):
        store.written_ms[info.name] = store.clock.ms
    return opened(store, skew_ms)


def xs(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


STEPS: dict[str, Any] = {
    "append": lambda table: table.append(xs(1, 2, 3)),
    "delete": lambda table: table.delete("x = 1"),
    "overwrite": lambda table: table.overwrite(xs(7)),
    "checkpoint": lambda table: table.maintenance.checkpoint(),
    "pin": lambda table: table.pins.create(f"p{table.version}"),
    "restore": lambda table: table.restore(table.version // 2),
}
HOURS = [1, 24, 24 * 30]


@pytest.mark.spec("VAC-1", "VAC-2", "MNT-1", "MNT-4", "CON-25")
@settings(max_examples=examples(60), deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.sampled_from(list(STEPS)), st.sampled_from(SKEWS)),
            st.tuples(st.just("wait"), st.integers(1, 60)),
            st.tuples(st.just("writer dies"), st.just(0)),
            st.tuples(st.just("no time"), st.integers(0, 30)),
            st.tuples(st.sampled_from(["vacuum", "expire"]), st.sampled_from(HOURS),
                      st.sampled_from(SKEWS)),
        ),
        min_size=4, max_size=20,
    ),
    has_times=st.booleans(),
    stamped=st.booleans(),
)  # fmt: skip
def test_nothing_young_or_of_unknown_age_is_deleted(
    steps: list[Any], has_times: bool, stamped: bool
) -> None:
    store = new_store()
    begun(store, delta__enableInCommitTimestamps=str(stamped).lower())
    store.has_times = has_times
    for name, number, *more in steps:
        store.deleted.clear()
        if name == "wait":
            store.clock.ms += number * HOUR_MS
        elif name == "writer dies":
            store.write_new(f"{len(store.written_ms)}.parquet", b"x")
        elif name == "no time":
            path = sorted(store.written_ms)[number % len(store.written_ms)]
            store.times_ms[path] = None if number % 2 else 0
        elif name in STEPS:
            with suppress(txlog.DataFileError, NotFoundError, txlog.AlreadyExistsError):
                STEPS[name](opened(store, number))
        else:
            table = opened(store, *more)
            if name == "vacuum":
                table.vacuum(number, dry_run=False, enforce_retention_duration=False)
            else:
                table.maintenance.expire(number, dry_run=False)
            for path, age_ms in store.deleted:
                if stamped and path.startswith("_delta_log/0"):  # The commits tell their times.
                    assert age_ms >= number * HOUR_MS or not (
                        has_times and store.times_ms.get(path, 1)
                    )
                    continue
                assert age_ms >= number * HOUR_MS
                assert has_times
                assert store.times_ms.get(path, 1)


# A restore beside a vacuum --------------------------------------------------------------------


@pytest.mark.spec("CON-25")
@settings(max_examples=examples(40), deadline=None)
@given(
    skew_ms=st.sampled_from(SKEWS),
    passed_ms=st.integers(0, 2 * HOUR_MS),
    dies=st.booleans(),
    has_times=st.booleans(),
)
def test_a_vacuum_holds_a_restore_for_an_hour_of_the_store(
    skew_ms: int, passed_ms: int, dies: bool, has_times: bool
) -> None:
    store = new_store()
    table = begun(store)
    table.append(xs(1))
    table.overwrite(xs(2))
    store.clock.ms += 30 * DAY_MS
    for name in ["START"] if dies else ["START", "END"]:
        line = {"commitInfo": {"operation": f"VACUUM {name}", "timestamp": 5}}
        version = load_snapshot(store).version + 1
        store.put_if_absent(f"_delta_log/{version:020d}.json", orjson.dumps(line))
    store.clock.ms += passed_ms
    store.has_times = has_times
    if dies and (not has_times or passed_ms <= HOUR_MS):
        with pytest.raises(CommitConflictError, match="CON-25"):
            opened(store, skew_ms).restore(1)
    else:
        assert opened(store, skew_ms).restore(1)


@pytest.mark.parametrize("find", [version_at, version_from, version_until])
def test_an_error_names_the_commit_without_a_time(find: Callable[..., int]) -> None:
    store = new_store()
    table = begun(store)
    for value in range(4):
        store.clock.ms += 1000
        table.append(xs(value))
    store.times_ms[f"_delta_log/{2:020d}.json"] = None
    with pytest.raises(NotFoundError) as caught:
        find(store, load_snapshot(store), T0 + 1500)
    assert caught.value.version == 2


def test_a_rehearsed_restore_writes_nothing_to_ask_the_store_for_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = new_store()
    table = begun(store)
    table.append(xs(1))
    table.overwrite(xs(2))
    written: list[str] = []
    monkeypatch.setattr(store, "write_new", lambda path, _: written.append(path))
    with rehearsing():
        done = opened(store, 0).restore(1)
    assert done.rehearsed
    assert not written


# Times of versions ----------------------------------------------------------------------------


def info(version: int, stamp_ms: int | None, configuration: dict[str, str] | None) -> bytes:
    """Return a commit: of the first version, of metadata, or of nothing."""
    rows: list[Any] = [{"commitInfo": {"inCommitTimestamp": stamp_ms, "timestamp": 77}}]
    if configuration is not None:
        schema = (
            '{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{}}]}'
        )
        rows.append({
            "metaData": {
                "id": "t", "format": {"provider": "parquet", "options": {}},
                "schemaString": schema, "partitionColumns": [], "configuration": configuration,
            }
        })  # fmt: skip
    if version == 0:
        features = ["inCommitTimestamp", "domainMetadata", "appendOnly", "invariants"]
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
        rows.append({"protocol": protocol})
    return b"\n".join(map(orjson.dumps, rows))


TIMES = st.one_of(st.none(), st.just(0), st.integers(T0, T0 + 12), st.just(T0 + 400 * DAY_MS))


@dataclass
class Log:
    """A log that other writers made: file times, in-commit timestamps from a version on, gaps."""

    store: OwnClock
    last: int


@st.composite
def logs(draw: st.DrawFn) -> Log:
    store = new_store()
    last = draw(st.integers(0, 9))
    enabled = draw(st.one_of(st.none(), st.integers(0, last)))
    stamp_ms = draw(st.integers(T0, T0 + 20))
    for version in range(last + 1):
        configuration: dict[str, str] | None = {} if version == 0 else None
        if version == enabled:
            configuration = {"delta.enableInCommitTimestamps": "true"}
            if version:
                configuration |= {
                    "delta.inCommitTimestampEnablementVersion": str(version),
                    "delta.inCommitTimestampEnablementTimestamp": str(stamp_ms),
                }
        is_stamped = enabled is not None and version >= enabled
        path = f"_delta_log/{version:020d}.json"
        data = info(version, stamp_ms if is_stamped else None, configuration)
        assert store.put_if_absent(path, data) == "created"
        store.times_ms[path] = draw(TIMES)
        stamp_ms += draw(st.integers(1, 5))
    kept = draw(st.sets(st.integers(0, last), max_size=2))  # As pins keep them.
    for version in kept:
        at_version = load_snapshot(store, version=version)
        txlog.Table._of(Context(store), at_version).maintenance.checkpoint()
    gone = draw(st.sets(st.integers(0, max(kept)), max_size=4)) - kept if kept else set()
    store.inner.delete([f"_delta_log/{version:020d}.json" for version in gone])
    return Log(store, last)


@pytest.mark.slow
@pytest.mark.spec("GUA-12")
@settings(max_examples=examples(150), deadline=None)
@given(log=logs(), moments=st.lists(st.integers(T0 - 2, T0 + 60), max_size=8))
def test_times_that_are_shown_ascend_and_lead_back(log: Log, moments: list[int]) -> None:
    table = opened(log.store)
    shown = {one["version"]: one["timestamp"] for one in table.history()}
    listed = {one["version"]: one["timestamp"] for one in table.versions().to_pylist()}
    assert {version: shown.get(version) for version in listed} == listed
    known = [shown[version] for version in sorted(shown) if shown[version] is not None]
    assert all(before < after for before, after in pairwise(known))
    for version, made_ms in listed.items():
        at = txlog.Table._of(Context(log.store), load_snapshot(log.store, version=version))
        assert at.timestamp_ms == made_ms
        if version in {one["version"] for one in at.history()}:
            assert at.history()[0]["timestamp"] == made_ms
        if made_ms is not None:
            assert version_at(log.store, table.snapshot, made_ms) == version
    for moment_ms in moments:
        with suppress(NotFoundError):
            found = version_at(log.store, table.snapshot, moment_ms)
            # The oracle: the version is not later, and the next one is not known to be earlier.
            assert listed[found] is not None
            assert listed[found] <= moment_ms
            assert found == log.last or (shown.get(found + 1) or moment_ms) >= moment_ms


@pytest.mark.spec("GUA-12")
@settings(max_examples=examples(40), deadline=None)
@given(
    times=st.lists(TIMES, min_size=1, max_size=5),
    skews=st.lists(st.sampled_from(SKEWS), min_size=6, max_size=6),
)
def test_enabling_in_commit_timestamps_lets_no_time_go_back(
    times: list[int | None], skews: list[int]
) -> None:
    store = new_store()
    begun(store)
    store.times_ms[f"_delta_log/{0:020d}.json"] = T0
    for version, (made_ms, skew_ms) in enumerate(zip(times, skews, strict=False), start=1):
        opened(store, skew_ms).append(xs(version))
        store.times_ms[f"_delta_log/{version:020d}.json"] = made_ms
    before = {one["version"]: one["timestamp"] for one in opened(store).history()}
    table = opened(store, skews[-1])
    table.alter.set_properties({"delta.enableInCommitTimestamps": "true"})
    table.append(xs(0))
    after = {one["version"]: one["timestamp"] for one in opened(store).history()}
    assert {version: after[version] for version in before} == before
    known = [after[version] for version in sorted(after) if after[version] is not None]
    assert known == sorted(set(known))
    assert after[len(before)] is not None
    for version, made_ms in after.items():
        if made_ms is not None:
            assert version_at(store, opened(store).snapshot, made_ms) == version


def test_a_feed_shows_the_times_of_the_history() -> None:
    store = new_store()
    table = begun(store, delta__enableChangeDataFeed="true")
    for version in range(1, 5):
        table.append(xs(version))
        store.times_ms[f"_delta_log/{version:020d}.json"] = T0 - version
    shown = {one["version"]: one["timestamp"] for one in opened(store).history()}
    feed = opened(store).changes(1).to_arrow()
    stamps = feed["_commit_timestamp"].cast(pa.int64()).to_pylist()
    found = dict(zip(feed["_commit_version"].to_pylist(), stamps, strict=True))
    assert found == {version: shown[version] * 1000 for version in range(1, 5)}
    blamed = opened(store).blame().to_arrow()
    moments = blamed["_commit_timestamp"].cast(pa.int64()).to_pylist()
    assert set(moments) == set(stamps)


# What is not known is an error for who looks for it -------------------------------------------


def test_who_looks_for_a_time_on_a_store_without_times_is_told() -> None:
    store = new_store()
    table = begun(store)
    table.append(xs(1))
    table.maintenance.checkpoint()
    store.has_times = False
    table = opened(store)
    assert [one["timestamp"] for one in table.history()] == [None, None]
    assert table.timestamp_ms is None
    for act in (
        lambda: snapshot_at(store, timestamp=T0),
        lambda: table.restore(timestamp=T0),
        lambda: table.changes(start_timestamp=T0),
    ):
        with pytest.raises(NotFoundError, match=r"has no time of _delta_log/0+.json"):
            act()
    decided = table.maintenance.expire(0, dry_run=False)
    assert set(decided["decision"].to_pylist()) == {"keep"}
    assert decided["modified_ms"].null_count == decided.num_rows
    assert "unknown how old" in decided["reason"][0].as_py()
    table.alter.set_properties({"delta.enableInCommitTimestamps": "true"})
    table.append(xs(2))
    made_ms = opened(store).timestamp_ms
    assert made_ms is not None
    assert snapshot_at(store, timestamp=made_ms).version == 3


# Durations and times at each door -------------------------------------------------------------

TOO_LONG = [float("inf"), float("nan"), 1e20, 1e300, -1, 10**30]


@pytest.mark.parametrize("hours", TOO_LONG)
def test_a_retention_that_is_no_duration_is_refused(hours: float) -> None:
    table = begun(new_store())
    for act in (
        lambda: table.vacuum(hours),
        lambda: table.vacuum(hours, enforce_retention_duration=False),
        lambda: table.maintenance.expire(hours),
    ):
        with pytest.raises(InvalidInputError) as caught:
            act()
        assert caught.value.argument == "retention_hours"


def test_long_durations_and_far_times_are_ordinary() -> None:
    store = new_store()
    century = "interval 99999999999999999999 weeks"
    table = begun(
        store,
        delta__deletedFileRetentionDuration=century,
        delta__logRetentionDuration=century,
        delta__setTransactionRetentionDuration=century,
    )
    table.append(xs(1), txn=("a", 1))
    table.overwrite(xs(2))
    table.maintenance.checkpoint()
    for found in (table.vacuum(), table.vacuum(10**9), table.maintenance.expire(10**9)):
        assert set(found["decision"].to_pylist()) == {"keep"}
    for moment in (10**30, -(10**30), 1 << 63):
        with pytest.raises(NotFoundError, match=r"the first|the last"):
            snapshot_at(store, timestamp=moment)
        with pytest.raises(NotFoundError):
            table.restore(timestamp=moment)


def test_an_old_handle_shows_the_times_of_a_new_one() -> None:
    """In-commit timestamps that are enabled later decide about the versions before, too."""
    store = new_store()
    table = begun(store)
    table.append(xs(1))
    table = opened(store)
    store.times_ms[f"_delta_log/{0:020d}.json"] = T0 + DAY_MS
    old = txlog.Table._of(replace(table._context), load_snapshot(store, version=0))
    line = info(2, T0 + 5, {
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "2",
        "delta.inCommitTimestampEnablementTimestamp": str(T0 + 5),
    })  # fmt: skip
    protocol = orjson.dumps({"protocol": {
        "minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"],
    }})  # fmt: skip
    line = line.replace(b'"id":"t"', f'"id":"{table.metadata.id}"'.encode())
    store.put_if_absent(f"_delta_log/{2:020d}.json", line + b"\n" + protocol)
    shown = {one["version"]: one["timestamp"] for one in opened(store).history()}
    assert shown == {0: T0 + 3, 1: T0 + 4, 2: T0 + 5}
    assert (old.timestamp_ms, old.history()[0]["timestamp"]) == (T0 + 3, T0 + 3)


@pytest.mark.spec("VAC-1")
@pytest.mark.parametrize("removed_ms", [None, 0, T0 - 400 * DAY_MS])
@pytest.mark.parametrize("lite", [False, True])
def test_a_file_that_was_removed_at_an_unknown_time_stays(
    removed_ms: int | None, lite: bool
) -> None:
    store = new_store()
    table = begun(store)
    table.append(xs(1))
    (path,) = table.scan().file_uris()
    name = path.rpartition("/")[2]
    remove = {"path": name, "dataChange": True, "deletionTimestamp": removed_ms}
    line = {"remove": {key: value for key, value in remove.items() if value is not None}}
    store.put_if_absent(f"_delta_log/{2:020d}.json", orjson.dumps(line))
    store.clock.ms += 400 * DAY_MS
    table = opened(store)
    table.append(xs(2))
    decided = table.vacuum(dry_run=False, lite=lite)
    is_gone = name not in {info.name for info in store.list_tree("")}
    assert is_gone is bool(removed_ms)
    table.maintenance.checkpoint()
    opened(store).vacuum(dry_run=False)
    assert (name not in {info.name for info in store.list_tree("")}) is bool(removed_ms)
    assert decided["modified_ms"].null_count == 0
