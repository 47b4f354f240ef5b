"""Blob columns: every verb keeps the bytes, and a vacuum knows which packs are needed."""

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import txlog
from tests.examples import examples
from txlog.fragments.packs import name_of, packs_in

ABOVE = 20
SCHEMA = pa.schema(
    [pa.field("k", pa.int64()), pa.field("n", pa.int64()), txlog.blob("b", above=ABOVE)]
)
Rows = dict[int, tuple[int, bytes | None]]
values = st.none() | st.builds(
    lambda byte, size: bytes([byte]) * size,
    st.integers(0, 255),
    st.sampled_from([0, 5, 20, 21, 300]),
)


def rows_of(table: txlog.Table) -> Rows:
    """Return all rows, with the bytes of the values."""
    rows = table.to_arrow()
    blobs = table.blobs(rows["b"])
    assert [b and b.size for b in blobs] == [s and s["size"] for s in rows["b"].to_pylist()]
    found = [b if b is None else b.read() for b in blobs]
    return dict(
        zip(
            rows["k"].to_pylist(),
            zip(rows["n"].to_pylist(), found, strict=True),
            strict=True,
        )
    )


def data_of(rows: Rows) -> pa.Table:
    columns = [list(rows), [n for n, _ in rows.values()], [b for _, b in rows.values()]]
    return pa.table(
        [pa.array(columns[0], pa.int64()), pa.array(columns[1], pa.int64()),
         pa.array(columns[2], pa.large_binary())],
        names=["k", "n", "b"],
    )  # fmt: skip


def packs_there(root: Path) -> set[str]:
    return {path.name for path in (root / "_blobs").rglob("*") if path.is_file()}


def packs_named(table: txlog.Table) -> set[str]:
    texts = table.snapshot.schema and _live_tags(table)
    return {name_of(place) for tags in texts for place in packs_in(tags)}


def _live_tags(table: txlog.Table) -> list[dict[str, str]]:
    from txlog.extend import context_of
    from txlog.snapshot.live_files import load_files

    live = load_files(context_of(table).store, table.snapshot).live
    return [dict(tags or ()) for tags in live["tags"].to_pylist()]


class Blobs(RuleBasedStateMachine):
    """One table, a clone of it, and what each of them has."""

    @initialize(
        mode=st.sampled_from(["none", "name", "id"]),
        vectors=st.booleans(),
        feed=st.booleans(),
        tracked=st.booleans(),
        partition_by=st.sampled_from([(), ("n",)]),
    )
    def create(
        self, mode: str, vectors: bool, feed: bool, tracked: bool, partition_by: Any
    ) -> None:
        self.home = Path(tempfile.mkdtemp())
        properties = {
            "delta.columnMapping.mode": mode,
            "delta.enableDeletionVectors": str(vectors).lower(),
            "delta.enableChangeDataFeed": str(feed).lower(),
            "delta.enableRowTracking": str(tracked).lower(),
        }
        self.table = txlog.Table.create(self.home / "t", SCHEMA, partition_by, properties)
        self.clone: txlog.Table | None = None
        self.rows: Rows = {}
        self.cloned: Rows = {}
        self.versions: dict[int, Rows] = {}
        self.pinned: tuple[int, Rows] | None = None
        self.keys = 0
        self._seen()

    def teardown(self) -> None:
        if hasattr(self, "home"):
            shutil.rmtree(self.home)

    def _seen(self) -> None:
        assert rows_of(self.table) == self.rows
        if self.clone is not None:
            assert rows_of(self.clone) == self.cloned
        self.versions[self.table.version] = dict(self.rows)

    @rule(given=st.lists(values, min_size=1, max_size=4), n=st.integers(0, 1))
    def append(self, given: list[bytes | None], n: int) -> None:
        new = {self.keys + at: (n, value) for at, value in enumerate(given)}
        self.keys += len(given)
        self.table.append(data_of(new))
        self.rows |= new
        self._seen()

    @rule(value=values, of=st.integers(0, 2))
    def update_bytes(self, value: bytes | None, of: int) -> None:
        self.table.update({"b": txlog.lit(value)}, where=f"k % 3 = {of}")
        self.rows = {k: (n, value if k % 3 == of else b) for k, (n, b) in self.rows.items()}
        self._seen()

    @rule(of=st.integers(0, 2))
    def update_others(self, of: int) -> None:
        self.table.update({"n": "1 - n"}, where=f"k % 3 = {of}")
        self.rows = {k: (1 - n if k % 3 == of else n, b) for k, (n, b) in self.rows.items()}
        self._seen()

    @rule(of=st.integers(0, 2))
    def delete(self, of: int) -> None:
        self.table.delete(f"k % 3 = {of}")
        self.rows = {k: row for k, row in self.rows.items() if k % 3 != of}
        self._seen()

    @rule(given=st.lists(values, min_size=1, max_size=3), start=st.integers(0, 6))
    def upsert(self, given: list[bytes | None], start: int) -> None:
        new = {start + at: (0, value) for at, value in enumerate(given)}
        self.keys = max(self.keys, start + len(given))
        merge = self.table.merge(data_of(new), "target.k = source.k")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        self.rows |= new
        self._seen()

    @rule(bare=st.booleans())
    def write_back(self, bare: bool) -> None:
        """Write rows as they were read: their structs keep their packs.

        Even if their schema replaces that of the table, and does not say what a blob is.
        """
        before = packs_there(self.home / "t")
        rows = self.table.to_arrow()
        if bare:
            fields = [field.remove_metadata() for field in rows.schema]
            rows = pa.table(rows.columns, schema=pa.schema(fields))
        self.table.overwrite(rows, schema_mode="overwrite" if bare else None)
        assert packs_there(self.home / "t") == before
        self._seen()

    @rule(given=st.lists(values, min_size=1, max_size=3))
    def transaction(self, given: list[bytes | None]) -> None:
        new = {self.keys + at: (0, value) for at, value in enumerate(given)}
        self.keys += len(given)
        with self.table.transaction() as changes:
            changes.append(data_of(new))
            changes.update({"n": "n + 0"}, where="k % 2 = 0")
            changes.delete("k % 3 = 1")
        self.rows = {k: row for k, row in (self.rows | new).items() if k % 3 != 1}
        self._seen()

    @rule(of=st.integers(0, 2))
    def move_in_a_transaction(self, of: int) -> None:
        """Copies of rows come back in the transaction that removed their files."""
        before = packs_there(self.home / "t")
        rows = self.table.to_arrow(where=f"k % 3 = {of}")
        with self.table.transaction() as changes:
            changes.delete(f"k % 3 = {of}")
            changes.append(
                rows.set_column(1, "n", pa.nulls(rows.num_rows, pa.int64()).fill_null(1))
            )
        self.rows = {k: (1 if k % 3 == of else n, b) for k, (n, b) in self.rows.items()}
        assert packs_there(self.home / "t") == before
        self._seen()

    @rule()
    def compact(self) -> None:
        before = packs_there(self.home / "t")
        self.table.optimize.compact()
        assert packs_there(self.home / "t") == before  # No byte was copied.
        self._seen()

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(sorted(self.versions)))
        self.table.restore(version)
        self.rows = dict(self.versions[version])
        self._seen()

    @rule()
    def pin(self) -> None:
        version = self.table.version
        if self.pinned is not None:
            self.table.pins.delete("kept")
        self.table.pins.create("kept", version)
        self.pinned = version, dict(self.rows)
        self._seen()

    @precondition(lambda self: self.clone is None)
    @rule(shallow=st.booleans())
    def make_clone(self, shallow: bool) -> None:
        place = self.home / "clone"
        self.clone = self.table.clone(place, shallow=shallow, register=shallow)
        self.table.refresh()
        self.cloned = dict(self.rows)
        self._seen()

    @precondition(lambda self: self.clone is not None)
    @rule()
    def change_clone(self) -> None:
        assert self.clone is not None
        self.clone.update({"n": "1 - n"}, where="k % 2 = 0")
        self.clone.optimize.compact()
        self.cloned = {k: (1 - n if k % 2 == 0 else n, b) for k, (n, b) in self.cloned.items()}
        self._seen()

    @rule()
    def vacuum(self) -> None:
        self.table.vacuum(0, dry_run=False, enforce_retention_duration=False)
        needed = packs_named(self.table)
        if self.clone is not None:
            needed |= packs_named(self.clone)
        self.versions = {}
        if self.pinned is not None:
            version, rows = self.pinned
            old = txlog.Table(self.home / "t", version=version)
            assert rows_of(old) == rows
            needed |= packs_named(old)
            self.versions[version] = rows
        assert packs_there(self.home / "t") <= needed
        self._seen()

    @rule(lite=st.booleans())
    def vacuum_what_is_old(self, lite: bool) -> None:
        """All files are old, but were removed just now: every version stays whole."""
        then = time.time() - 30 * 86_400
        for path in (self.home / "t").rglob("*"):
            if path.is_file() and "_delta_log" not in path.parts:
                os.utime(path, (then, then))
        self.table.vacuum(dry_run=False, lite=lite)
        for version, rows in self.versions.items():
            assert rows_of(txlog.Table(self.home / "t", version=version)) == rows
        self._seen()

    @rule()
    def checkpoint(self) -> None:
        """Write a checkpoint; afterwards a handle is opened from it."""
        self.table.maintenance.checkpoint()
        self.table = txlog.Table(self.home / "t")
        self._seen()

    @rule()
    def doctor(self) -> None:
        report = self.table.doctor()
        assert not [one for one in report.findings if one.severity == "error"], report


@pytest.mark.slow
@pytest.mark.spec("BLB-3", "BLB-6", "BLB-8", "BLB-9")
class TestBlobs(Blobs.TestCase):  # type: ignore[name-defined,misc]  # Hypothesis makes it.
    settings = settings(max_examples=examples(60), stateful_step_count=12, deadline=None)
