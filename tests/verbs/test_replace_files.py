"""Replace a table by files that were written before: a lost race does not lose them."""

from pathlib import Path

import pyarrow as pa

import txlog
from txlog.base.effects import REAL
from txlog.commit.context import Context
from txlog.commit.intent import Intent
from txlog.commit.operation import execute
from txlog.data_files.definition import PLAIN
from txlog.snapshot.snapshot import Snapshot
from txlog.store.open import open_store
from txlog.verbs.replace import ReplaceTable, replacement


def test_files_stay_after_a_lost_race(tmp_path: Path) -> None:
    rows = pa.table({"x": [1, 2]})
    table = txlog.write(tmp_path / "t", rows)

    class Raced(ReplaceTable):
        attempts = 0

        def intent(self, base: Snapshot) -> Intent:
            found = super().intent(base)
            self.attempts += 1
            if self.attempts == 1:  # A winner that changes no row.
                txlog.Table(table.uri).append(rows.slice(0, 0), txn=("job", 1))
            return found

    (fragment,) = txlog.write_fragments(pa.table({"x": [7, 8, 9]}), table.uri)
    base = table.snapshot
    planned = replacement(base, base.schema, PLAIN, effects=REAL)
    operation = Raced.of_files(planned, fragment.adds, written_for=base.version)
    assert isinstance(operation, Raced)
    execute(operation, Context(open_store(table.uri)), base)
    assert operation.attempts == 2
    assert txlog.Table(table.uri).to_arrow()["x"].to_pylist() == [7, 8, 9]
