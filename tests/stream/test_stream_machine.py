"""Streams compared with a plain model of the table's history: no row is lost or doubled.

The batches of a stream must be that history, whatever its options and limits, and however often it
is restarted. Where the history ends the stream, it must fail, name the remedy, and give nothing.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.examples import examples
from tests.stream.stream_history import FEED, VERBS, History
from txlog.base.effects import Effects
from txlog.base.errors import NotFoundError, UnsupportedFeatureError
from txlog.changes.change_plan import CHANGE_COLUMNS
from txlog.changes.file_changes import read_changes
from txlog.scan.read import read_fragment
from txlog.stream.offsets import UNDECIDED, Limits
from txlog.stream.stream import StreamOptions, TableStream
from txlog.stream.version_files import ChangePolicy

LIMITS = st.builds(
    Limits,
    files=st.none() | st.integers(1, 4),
    bytes=st.none() | st.sampled_from([1, 1500, 4000]),
)
POLICIES = st.sampled_from(
    [ChangePolicy(skip_change_commits=True), ChangePolicy(ignore_changes=True),
     ChangePolicy(ignore_deletes=True), ChangePolicy()]
)  # fmt: skip
QUERY = {
    "begins": st.sampled_from(["present", "latest", "version", "moment"]),
    "back": st.integers(0, 9),
    "changes": st.booleans(),
    "policy": POLICIES,
    "fails_on_loss": st.booleans(),
    "names": st.none() | st.just(("x",)),
}
Fault = tuple[type[Exception], str] | None


class Clock(Effects):
    """A clock that stands still unless a test moves it."""

    now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s


class Streaming(History, RuleBasedStateMachine):
    """One table, and one stream at a time."""

    @initialize(rows=st.integers(0, 5), partitioned=st.booleans(), recorded=st.booleans(),
                query=st.fixed_dictionaries(QUERY))  # fmt: skip
    def create_and_begin(self, query: Mapping[str, Any], **made: Any) -> None:
        self.create(**made)
        self.begin(**query)

    @rule(**QUERY)
    def begin(
        self, begins: str, back: int, changes: bool, policy: ChangePolicy, fails_on_loss: bool,
        names: tuple[str, ...] | None,
    ) -> None:  # fmt: skip
        """Begin anew, with a new checkpoint."""
        at = max(len(self.versions) - 1 - back, 0)
        self.options = StreamOptions(
            start_version={"latest": "latest", "version": at}.get(begins),
            start_ms=self.versions[at].made_ms if begins == "moment" else None,
            policy=policy, changes=changes, fail_on_data_loss=fails_on_loss,
            columns=names and (*names, "_change_type", "_commit_version")[: 3 if changes else 1],
        )  # fmt: skip
        self.offset: dict[str, Any] = dict(UNDECIDED)
        self.come: Counter[Any] = Counter()  # Of the version that the offset is in.
        self.batches: list[Any] = []
        self.stream: TableStream | None = None
        self.open()

    @rule(policy=POLICIES, now=st.booleans())
    def restart(self, policy: ChangePolicy, now: bool) -> None:
        """Load the stream again, perhaps with another policy, or up to the version of now."""
        self.options = replace(self.options, policy=policy)
        self.open()
        if now and self.stream is not None:
            self.stream.stop_at_latest()
            self.pinned = self.opened

    @rule(verbs=st.lists(VERBS, min_size=1, max_size=4))
    def change(self, verbs: list[tuple[Any, ...]]) -> None:
        """Change the table."""
        for verb, *arguments in verbs:
            getattr(self, verb)(*arguments)

    def clean_up(self, back: int) -> None:
        """Clean up the log, whether or not the stream has read it; the next process finds it so."""
        if self.opens():
            super().clean_up(back)
            self.open()

    def opens(self) -> bool:
        return self.recorded or not self.options.changes

    def open(self) -> None:
        """Open the stream at the latest version; if it cannot be, what runs goes on."""
        if not self.opens():
            with pytest.raises(UnsupportedFeatureError, match=f"{FEED} is not true"):
                TableStream(self.store, self.options)
            return
        self.clock = Clock()
        self.stream = TableStream(self.store, self.options, effects=self.clock)
        self.opened = self.table.version
        self.pinned: int | None = None
        names = self.options.columns or (*self.columns, *CHANGE_COLUMNS.names())
        assert self.stream.plan.schema.names == [
            name for name in names if self.options.changes or name[0] != "_"
        ]

    @property
    def last(self) -> int:
        """The last version that the stream reads."""
        return len(self.versions) - 1 if self.pinned is None else self.pinned

    def beginning(self) -> tuple[int, bool]:
        """Return the version that the stream begins with, and whether with all its rows."""
        first, moment_ms = self.options.start_version, self.options.start_ms
        if moment_ms is not None:
            first = next(v for v, it in enumerate(self.versions) if it.made_ms >= moment_ms)
        if first is None:
            return self.opened, True
        return (self.opened + 1 if first == "latest" else first), False

    def place(self, offset: Mapping[str, Any]) -> tuple[int, bool]:
        """Return the version that an offset is in, and whether it is read with all its rows."""
        if offset == UNDECIDED:
            return self.beginning()
        return offset["version"], offset["initial"] and offset["version"] == offset["began"]

    def fault_at(self, offset: Mapping[str, Any]) -> Fault:
        """Return the error that a batch must end with which begins at an offset."""
        version, whole = self.place(offset)
        if offset == UNDECIDED and self.options.start_ms and version <= self.kept > 0:
            return NotFoundError, "before the first version that is kept|keeps no commit"
        return self.fault(version, whole)

    def fault(self, version: int, whole: bool) -> Fault:
        """Return the error that a stream must end with at a version."""
        if whole:
            lost = version != self.opened and not self.rebuilt(version)
            return (
                (NotFoundError, "needs this version to continue.*new checkpoint") if lost else None
            )
        if version < self.kept and self.options.fail_on_data_loss:
            return NotFoundError, f"version {version} was cleaned up .*failOnDataLoss=false"
        version = max(version, self.kept)
        if version > self.last:
            return None
        it = self.versions[version]
        if version > self.opened and it.columns != self.versions[self.opened].columns:
            text = "has other columns .* was added.*Load the stream again .* same checkpoint"
        elif self.options.changes:
            if it.recorded:
                return None
            text = "does not record changes"
        elif self.told(version) is None:
            text = f"{it.verb} rows.*skipChangeCommits=true"
        else:
            return None
        return UnsupportedFeatureError, f"version {version} {text}"

    def told(self, version: int) -> list[Any] | None:
        """Return what a commit gives; None if it must end the stream."""
        it, policy = self.versions[version], self.options.policy
        if self.options.changes:
            return [(version, *change) for change in it.changes]
        if it.verb == "appends" or policy.ignore_changes:
            return it.added
        skipped = policy.skip_change_commits or (policy.ignore_deletes and it.verb == "deletes")
        return [] if skipped else None

    def due(self, version: int, whole: bool) -> Counter[Any]:
        """Return what the stream must give of a version."""
        if whole:
            rows = self.versions[version].rows
            return Counter((version, "insert", x) if self.options.changes else x for x in rows)
        if version > self.last or version < self.kept:
            return Counter()
        return Counter(self.told(version))

    def read(self, stream: TableStream, work: list[Any]) -> list[Any]:
        """Return what units give; all values must be those of the model."""
        read: Any = read_changes if self.options.changes else read_fragment
        found = []
        for part in work:
            for row in (r for b in read(self.store, stream.plan, part) for r in b.to_pylist()):
                known = self.content[row["x"]]
                about = {name: row.pop(name) for name in list(row) if name[0] == "_"}
                assert row == {name: known.get(name) for name in row}
                version, kind = about.get("_commit_version"), about.get("_change_type")
                made = about.get("_commit_timestamp")
                if made and version >= self.kept:  # A commit takes its time along.
                    assert round(made.timestamp() * 1000) == self.versions[version].made_ms
                found.append((version, kind, row["x"]) if self.options.changes else row["x"])
        return found

    @precondition(lambda self: self.stream is not None)
    @rule(limits=st.lists(LIMITS, min_size=1, max_size=8), dies=st.booleans())
    def batch(self, limits: list[Limits], dies: bool) -> None:
        for limit in limits:
            self.go_on(limit, dies=dies)

    def go_on(self, limits: Limits, *, dies: bool = False) -> None:
        """Read the next batch, and hold it against the model."""
        start, fault = self.offset, self.fault_at(self.offset)
        version, whole = self.place(start)
        if version < self.kept and not whole:
            self.clock.now_s += 11  # Only a listing tells that later commits are there.
        if fault is not None:
            error, text = fault
            with pytest.raises(error, match=text):
                self.stream.latest(start, limits)
            return
        end = self.stream.latest(start, limits)
        if end == start:
            assert not whole
            assert max(version, self.kept) > self.last
            return
        if start == UNDECIDED:
            assert (end["began"], end["initial"]) == (version, whole)
        work = self.stream.work(start, end)
        items = self.read(self.stream, work)
        self.require_within(limits, end, work)
        self.account(version, end, items)
        if limits == Limits():
            assert end["index"] == 0
            ahead = max(end["version"], self.kept)
            assert ahead > self.last or self.fault(ahead, False)
        if dies:
            # Nothing but the end was stored; a new process plans the same batch anew.
            self.open()
            assert self.stream.work(start, end) == work
        self.batches.append((start, end, self.options, items))
        self.offset = end

    def require_within(self, limits: Limits, end: Mapping[str, Any], work: list[Any]) -> None:
        versions = {part.version for part in work} if self.options.changes else set()
        cut = len(versions) != 1 or self.place({**end, "version": min(versions)})[1]
        if len(work) > 1 and cut:
            sizes = [file.size for part in work for file in getattr(part, "fragment", part).files]
            assert limits.files is None or len(work) <= limits.files
            assert limits.bytes is None or sum(sizes) <= limits.bytes

    def account(self, first: int, end: Mapping[str, Any], items: list[Any]) -> None:
        """Hold what a batch gave against what the versions up to its end must give."""
        for version in range(first, end["version"] + 1):
            whole = self.place({**end, "version": version})[1]
            come = self.come if version == first else Counter()
            if version < end["version"] or end["index"]:
                assert self.fault(version, whole) is None
            due = self.due(version, whole) - come
            if version < end["version"]:
                part, items = items[: due.total()], items[due.total() :]
                assert Counter(part) == due
            else:
                assert not Counter(items) - due
                assert not items or end["index"]
                assert not end["index"] or whole or not self.options.changes
                self.come = come + Counter(items)

    @precondition(lambda self: self.batches and self.opens())
    @rule(back=st.integers(1, 3))
    def replay(self, back: int) -> None:
        """Any of the last batches is the same when it is planned again, or it fails."""
        start, end, options, items = self.batches[-min(back, len(self.batches))]
        stream = TableStream(self.store, options)
        first = end["began"] if start == UNDECIDED else start["version"]
        versions = range(first, end["version"] + (end["index"] > 0))
        whole = [v for v in versions if self.place({**end, "version": v})[1]]
        lost = [v for v in versions if v < self.kept and v not in whole]
        if whole and first < self.table.version and not self.rebuilt(first):
            lost = [first]
        elif lost and not options.fail_on_data_loss:
            assert not Counter(self.read(stream, stream.work(start, end))) - Counter(items)
            return
        if lost:
            with pytest.raises(NotFoundError, match=f"version {lost[0]} |version={lost[0]}"):
                stream.work(start, end)
            return
        assert self.read(stream, stream.work(start, end)) == items

    def teardown(self) -> None:
        """Read all that is left, and leave no table behind."""
        if getattr(self, "stream", None) is not None:
            self.open()
            before = None
            while self.offset != before:
                before = self.offset
                self.go_on(Limits(files=2))
        if hasattr(self, "store"):
            self.store.delete([file.name for file in self.store.list_tree("")])


@pytest.mark.slow
@pytest.mark.spec("STR-1", "STR-2", "STR-3", "STR-4", "STR-5", "STR-6", "STR-7", "STR-8", "STR-10")
@pytest.mark.spec("STR-11", "STR-13")
class TestStreaming(Streaming.TestCase):
    settings = settings(max_examples=examples(8), stateful_step_count=20, deadline=None)


@pytest.mark.exhaustive
class TestManyStreams(Streaming.TestCase):
    settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
