"""Streams against a plain model of the table's history: no row is lost, none comes twice.

The table is a real one, in memory; what it does to its rows is also done to a list of lists. A
stream's batches must be that list, whatever the limits, and however often the stream is restarted.
"""

from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import txlog
from txlog.feed import UNDECIDED, ChangePolicy, Limits, StreamOptions, TableStream
from txlog.log import commit_name, log_path
from txlog.scan import read_fragment
from txlog.store import open_store

SCHEMA = pa.schema([("x", pa.int64()), ("p", pa.string())])
ROOTS = count()
LIMITS = st.builds(
    Limits,
    files=st.none() | st.integers(1, 4),
    bytes=st.none() | st.sampled_from([1, 1500, 4000]),
)


def values_of(stream: TableStream, store: Any, work: list[Any]) -> list[int]:
    return [
        x
        for fragment in work
        for batch in read_fragment(store, stream.plan, fragment)
        for x in batch.column("x").to_pylist()
    ]


class Streaming(RuleBasedStateMachine):
    """One table, one stream from its present rows on."""

    @initialize(
        rows=st.integers(0, 5), partitioned=st.booleans(),
        policy=st.sampled_from(["skip_change_commits", "ignore_changes"]),
    )  # fmt: skip
    def begin(self, rows: int, partitioned: bool, policy: str) -> None:
        self.uri = f"memory://streams/{next(ROOTS)}"
        self.store = open_store(self.uri)
        self.numbers = count()
        self.live: set[int] = set()
        self.told: dict[int, list[int]] = {}  # Version → the rows that a stream sees come.
        self.policy = ChangePolicy(**{policy: True})
        self.table = txlog.Table.create(
            self.uri, SCHEMA, partition_by=["p"] if partitioned else [],
            properties={"delta.enableDeletionVectors": "true"},
        )  # fmt: skip
        if rows:
            self.append(rows, 2)
        if rows > 2:
            self.delete(0)
        self.begun: int | None = None
        self.offset: dict[str, Any] = dict(UNDECIDED)
        self.batches: list[tuple[dict[str, Any], dict[str, Any], list[int]]] = []
        self.restart()

    def data(self, rows: int) -> pa.Table:
        new = [next(self.numbers) for _ in range(rows)]
        self.live.update(new)
        return pa.table({"x": new, "p": ["ab"[x % 2] for x in new]}, schema=SCHEMA)

    # What happens to the table ---------------------------------------------------------------

    @rule(rows=st.integers(1, 6), per_file=st.integers(1, 3))
    def append(self, rows: int, per_file: int) -> None:
        data = self.data(rows)
        self.table.append(data, max_rows_per_file=per_file)
        self.told[self.table.version] = data["x"].to_pylist()

    @rule(place=st.integers(0, 20))
    def delete(self, place: int) -> None:
        """Delete one row: a deletion vector, or a whole file if it is the last row of it."""
        if not self.live:
            return
        gone = sorted(self.live)[place % len(self.live)]
        before = self.files()
        self.table.delete(f"x = {gone}")
        self.live.discard(gone)
        self.told[self.table.version] = self.written_anew(before)

    @rule(rows=st.integers(0, 4))
    def overwrite(self, rows: int) -> None:
        self.live.clear()
        data = self.data(rows)
        before = self.table.version
        self.table.overwrite(data)
        if self.table.version > before:
            self.told[self.table.version] = (
                data["x"].to_pylist() if self.policy.ignore_changes or before_empty(self, before)
                else []
            )  # fmt: skip

    @rule()
    def compact(self) -> None:
        before = self.table.version
        self.table.compact()
        if self.table.version > before:
            self.told[self.table.version] = []  # Rows only moved.

    @rule()
    def checkpoint(self) -> None:
        self.table.checkpoint()

    @rule()
    def clean_up(self) -> None:
        """Delete the commits that neither the stream nor the table needs any more."""
        checkpoint = self.table.checkpoint()
        needed = self.batches[-2][0] if len(self.batches) > 1 else UNDECIDED
        if needed["version"] < 0 or needed["version"] == needed["began"]:
            return  # The stream may still need the version that it began with.
        for version in range(min(checkpoint, needed["version"])):
            self.store.delete([log_path(commit_name(version))])

    def files(self) -> dict[str, list[int]]:
        """Return the table's rows by file and deletion vector, read on their own."""
        rows = self.table.to_arrow(["x", "_fragid"]).to_pylist()
        found: dict[str, list[int]] = {}
        names = {f.id: repr((f.value.files, f.value.deletion)) for f in self.table.fragments()}
        for row in rows:
            found.setdefault(names[row["_fragid"]], []).append(row["x"])
        return found

    def written_anew(self, before: dict[str, list[int]]) -> list[int]:
        if not self.policy.ignore_changes:
            return []
        return [x for name, rows in self.files().items() if name not in before for x in rows]

    # What happens to the stream --------------------------------------------------------------

    @rule()
    def restart(self) -> None:
        self.stream = TableStream(self.store, StreamOptions(policy=self.policy))

    @rule(limits=LIMITS, dies=st.booleans())
    def batch(self, limits: Limits, dies: bool) -> None:
        start = self.offset
        end = self.stream.latest(start, limits)
        if end == start:
            return
        if self.begun is None:
            # The end is stored before anything is read: from here on it is decided.
            self.begun = end["began"]
            self.initial = sorted(
                txlog.Table(self.uri, version=self.begun).to_arrow()["x"].to_pylist()
            )
        work = self.stream.work(start, end)
        if limits.files is not None:
            assert len(work) <= limits.files
        if limits.bytes is not None:
            sizes = [file.size for fragment in work for file in fragment.files]
            assert sum(sizes) <= limits.bytes or len(work) == 1
        if dies:
            # Nothing but the end was stored; a new process plans the same batch anew.
            self.restart()
            assert self.stream.work(start, end) == work
        self.batches.append((start, end, values_of(self.stream, self.store, work)))
        self.offset = end

    @precondition(lambda self: len(self.batches) > 0)
    @rule(back=st.integers(1, 2))
    def replay(self, back: int) -> None:
        """Any of the last batches is the same when it is planned again."""
        start, end, values = self.batches[-min(back, len(self.batches))]
        stream = TableStream(self.store, StreamOptions(policy=self.policy))
        assert values_of(stream, self.store, stream.work(start, end)) == values

    @invariant()
    def every_row_came_once(self) -> None:
        if getattr(self, "begun", None) is None:
            return
        came = [x for _, _, values in self.batches for x in values]
        offset = self.offset
        assert offset["began"] == self.begun
        if offset["version"] == self.begun:
            assert set(came) <= set(self.initial)
            assert len(came) == len(set(came))
            return
        assert sorted(came[: len(self.initial)]) == self.initial
        told = [x for v in range(self.begun + 1, offset["version"]) for x in self.told[v]]
        rest = came[len(self.initial) :]
        assert sorted(rest[: len(told)]) == sorted(told)
        part = self.told.get(offset["version"], [])
        left = list(part)
        for x in rest[len(told) :]:
            left.remove(x)
        if offset["index"] == 0:
            assert left == part

    def teardown(self) -> None:
        if not hasattr(self, "offset"):
            return
        while True:
            before = self.offset
            self.batch(Limits(files=2), False)
            if self.offset == before:
                break
        assert self.offset["version"] == self.table.version + 1
        self.every_row_came_once()


def before_empty(machine: Streaming, version: int) -> bool:
    """Return whether a version had no file, so that an overwrite of it is an append."""
    return not txlog.Table(machine.uri, version=version).fragments()


@pytest.mark.spec("STR-1", "STR-2", "STR-4", "STR-5", "STR-6", "STR-7")
class TestStreaming(Streaming.TestCase):
    settings = settings(max_examples=8, stateful_step_count=20, deadline=None)


@pytest.mark.exhaustive
class TestManyStreams(Streaming.TestCase):
    settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
