"""A plain model of a table's history, for comparison with streams.

The table is a real one, in memory; what is done to its rows is also done to a set of numbers.
"""

import json
from dataclasses import dataclass
from io import BytesIO
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

import txlog
from txlog.base.effects import REAL
from txlog.commit.intent import Intent
from txlog.commit.loop import commit
from txlog.log.names import commit_name, log_path
from txlog.snapshot.load import list_log
from txlog.store.open import open_store
from txlog.testing.stores import unsealed

FEED = "delta.enableChangeDataFeed"
ROOTS = count()
VERBS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 6), st.integers(1, 3)),
    st.tuples(st.just("delete"), st.integers(0, 20)),
    st.tuples(st.just("update"), st.integers(0, 20), st.booleans()),
    st.tuples(st.just("overwrite"), st.integers(0, 4)),
    st.tuples(st.just("restore"), st.integers(1, 4)),
    st.tuples(st.just("compact")),
    st.tuples(st.just("widen"), st.integers(1, 3)),
    st.tuples(st.just("record")),
    st.tuples(st.just("clean_up"), st.integers(0, 9)),
)


@dataclass
class Version:
    """What the model knows of a version."""

    made_ms: int
    rows: frozenset[int]
    files: dict[tuple[str, str], list[int]]  # Of each file the rows, by path and deletion vector.
    added: list[int]  # Rows of the files that it adds, but for rows that only moved.
    verb: str  # What it does to rows: `appends` at most, `deletes`, or `changes`.
    changes: list[tuple[str, int]]
    columns: tuple[str, ...]
    recorded: bool  # Whether the change data feed is in force.
    controls: int  # The version whose commit set columns and properties last.


class History:
    """A table, what is done to it, and what each of its versions is."""

    def create(self, *, rows: int, partitioned: bool, recorded: bool) -> None:
        uri = f"memory://streams/{next(ROOTS)}"
        self.store = open_store(uri)
        self.numbers = count()
        self.content: dict[int, dict[str, Any]] = {}  # Of each row that ever was.
        self.live: set[int] = set()
        self.columns: tuple[str, ...] = ("x", "p")
        self.recorded = False
        self.versions: list[Version] = []
        self.checkpoints: list[int] = []
        self.kept = 0  # The first version whose commit was not cleaned up.
        schema = pa.schema([("x", pa.int64()), ("p", pa.string())])
        self.table = txlog.Table.create(
            uri, schema, partition_by=["p"] if partitioned else [],
            properties={"delta.enableDeletionVectors": "true",
                        "delta.enableInCommitTimestamps": "true"},
        )  # fmt: skip
        self.note()
        old = self.table.protocol
        features = [*(old.writer_features or ()), "changeDataFeed"]
        self.put(protocol=old.model_copy(update={"writer_features": features}))
        if recorded:
            self.record()
        if rows:
            self.append(rows, 2)
        if rows > 2:
            self.delete(0)

    def note(
        self, *, moves: bool = False, sets: bool = False, updates: tuple[int, int] | None = None
    ) -> None:
        """Note what the latest version is, if there is a new one.

        Parameters
        ----------
        moves, sets
            Whether its commit only moved rows, and whether it set columns or properties.
        updates
            The row that went and the one that came, if change data files tell of them.
        """
        version = self.table.version
        if version < len(self.versions):
            return
        names = {
            f.id: (repr(f.value.files), repr(f.value.deletion)) for f in self.table.fragments()
        }
        files: dict[tuple[str, str], list[int]] = {}
        for row in self.table.to_arrow(["x", "_fragid"]).to_pylist():
            files.setdefault(names[row["_fragid"]], []).append(row["x"])
        assert sorted(x for rows in files.values() for x in rows) == sorted(self.live)
        last = self.versions[-1] if self.versions else None
        old_files = last.files if last else {}
        added = [x for name in files.keys() - old_files.keys() for x in files[name]]
        was, now = ({(name[0], x) for name in f for x in f[name]} for f in (old_files, files))
        changes = [("delete", x) for _, x in was - now] + [("insert", x) for _, x in now - was]
        if updates:
            changes = [("update_preimage", updates[0]), ("update_postimage", updates[1])]
        self.versions.append(Version(
            made_ms=self.table.timestamp_ms,
            rows=frozenset(self.live),
            files=files,
            added=[] if moves else added,
            verb="appends" if moves or old_files.keys() <= files.keys()
            else "changes" if added else "deletes",
            changes=[] if moves else changes,
            columns=self.columns,
            recorded=self.recorded,
            controls=version if sets or last is None else last.controls,
        ))  # fmt: skip

    def data(self, rows: int) -> pa.Table:
        """Make new rows, with values in all columns."""
        new = [next(self.numbers) for _ in range(rows)]
        self.live.update(new)
        for x in new:
            self.content[x] = {**dict.fromkeys(self.columns, 10 * x), "x": x, "p": "ab"[x % 2]}
        types = [pa.string() if name == "p" else pa.int64() for name in self.columns]
        schema = pa.schema(list(zip(self.columns, types, strict=True)))
        return pa.Table.from_pylist([self.content[x] for x in new], schema=schema)

    def chosen(self, place: int) -> int:
        return sorted(self.live)[place % len(self.live)]

    def append(self, rows: int, per_file: int) -> None:
        self.table.append(self.data(rows), options=txlog.WriteOptions(max_rows_per_file=per_file))
        self.note()

    def delete(self, place: int) -> None:
        """Delete one row: a deletion vector, or a whole file if it is the last row of it."""
        if not self.live:
            return
        gone = self.chosen(place)
        self.table.delete(f"x = {gone}")
        self.live.discard(gone)
        self.note()

    def update(self, place: int, tells: bool) -> None:
        """Put one row in the place of another, with change data files or without."""
        if not self.live:
            return
        old = self.chosen(place)
        self.live.discard(old)
        data = self.data(1)
        new = data["x"][0].as_py()
        self.table.overwrite(data, where=f"x IN ({old}, {new})")
        if tells := tells and self.recorded:
            self.tell(("update_preimage", old), ("update_postimage", new))
        self.note(updates=(old, new) if tells else None)

    def tell(self, *changes: tuple[str, int]) -> None:
        """Put change data files into the latest commit, as other engines do, instead of its own."""
        path = log_path(commit_name(self.table.version))
        lines = unsealed(self.store.read(path)).splitlines()
        lines = [line for line in lines if "cdc" not in json.loads(line)]
        parts = self.table.partition_columns
        for kind, x in changes:
            row = {**self.content[x], "_change_type": kind}
            values = {name: row.pop(name) for name in parts}
            file = BytesIO()
            pq.write_table(pa.Table.from_pylist([row]), file)
            cdc = {"path": f"_change_data/{self.table.version}-{kind}", "partitionValues": values,
                   "size": file.tell(), "dataChange": False}  # fmt: skip
            self.store.write_new(cdc["path"], file.getvalue())
            lines.append(json.dumps({"cdc": cdc}).encode())
        self.store.replace(path, b"\n".join(lines))

    def overwrite(self, rows: int) -> None:
        self.live.clear()
        self.table.overwrite(self.data(rows))
        self.note()

    def compact(self) -> None:
        self.table.optimize.compact()
        self.note(moves=True)

    def tellable(self) -> bool:
        """Whether the columns of each commit that is kept are known, whatever comes after it."""
        return all(self.rebuilt(version) for version in range(self.kept, len(self.versions)))

    def restore(self, back: int) -> None:
        """Bring back the rows of an older version; its columns are the same."""
        if not self.tellable():
            return
        then, now = self.versions[-1 - back :][0], self.versions[-1]
        version = self.versions.index(then)
        if self.rebuilt(version) and (then.columns, then.recorded) == (now.columns, now.recorded):
            self.table.restore(version)
            self.live = set(then.rows)
            self.note(sets=True)

    def widen(self, rows: int) -> None:
        """Append rows with one more column."""
        if not self.tellable():
            return
        self.columns += (f"y{len(self.columns)}",)
        self.table.append(self.data(rows), schema_mode="merge")
        self.note(sets=True)

    def record(self) -> None:
        """Turn the change data feed on or off."""
        if not self.tellable():
            return
        self.recorded = not self.recorded
        old = self.table.metadata
        properties = {**old.configuration, FEED: str(self.recorded).lower()}
        self.put(metadata=old.model_copy(update={"configuration": properties}))

    def put(self, **controls: Any) -> None:
        version = self.table.version
        intent = Intent("SET", version, "metadata", **controls)
        commit(self.store, self.table.snapshot, intent, effects=REAL)
        self.table.refresh()
        self.note(sets=True)

    def clean_up(self, back: int) -> None:
        """Delete all commits but the last ones, and the checkpoints that are older."""
        self.checkpoints.append(self.table.maintenance.checkpoint())
        # Of a commit before a change of columns nobody could tell any more what they were.
        self.kept = max(self.kept, self.table.version + 1 - back, self.versions[-1].controls)
        self.checkpoints = [version for version in self.checkpoints if version >= self.kept - 1]
        files = list_log(self.store)
        old = [f.path for f in files if f.version < self.kept - (f.kind == "checkpoint")]
        self.store.delete(old)
        self.table = txlog.Table(self.table.uri)

    def rebuilt(self, version: int) -> bool:
        """Return whether what is left of the log makes up a version."""
        return self.kept == 0 or any(at <= version for at in self.checkpoints)
