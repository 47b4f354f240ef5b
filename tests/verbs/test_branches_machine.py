"""Random verbs on a table and its branches, with publishes and discards, beside a plain model.

The model has the rows of each side. A publish makes the difference of the branch and its base in
the table, or it is refused and changes nothing. It must not be refused if only the branch changed,
or if it only added rows.
"""

import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.base.errors import CommitConflictError, UnsupportedFeatureError

Rows = Counter[tuple[int, int]]
NAMES = ("b", "c")
PROPERTIES: dict[str, dict[str, str]] = {
    "plain": {},
    "rewritten": {"delta.enableDeletionVectors": "false"},
    "feed": {"delta.enableChangeDataFeed": "true"},
    "tracked": {"delta.enableRowTracking": "true", "delta.enableChangeDataFeed": "true"},
    "mapped": {"delta.columnMapping.mode": "name"},
    "fragments": {"delta.feature.txlog.fragments": "supported"},
}


class Step(NamedTuple):
    side: str  # The table itself, or a branch.
    verb: str
    low: int
    high: int


@dataclass
class Side:
    rows: Rows
    base: Rows = field(default_factory=Counter)
    added_only: bool = True
    main_then: int = 0  # How often the table had changed when the branch began.


SIDES = st.sampled_from(["main", "main", *NAMES])
VERBS = ("append", "append", "delete", "update", "compact", "publish", "discard", "checkpoint")
STEPS = st.builds(
    lambda side, verb, low, span: Step(side, verb, low, low + span),
    SIDES, st.sampled_from(VERBS), st.integers(0, 12), st.integers(0, 4),
)  # fmt: skip


def rows_of(table: txlog.Table) -> Rows:
    found = table.to_arrow().to_pydict()
    return Counter(zip(found["id"], found["n"], strict=True))


def run(step: Step, table: txlog.Table, rows: Rows, number: int) -> None:
    """Run a verb on one side, and on the rows of its model."""
    low, high = step.low, step.high
    where = f"id BETWEEN {low} AND {high}"
    hit = {row: count for row, count in rows.items() if low <= row[0] <= high}
    match step.verb:
        case "append":
            ids = list(range(low, high + 1))
            table.append(pa.table({"id": ids, "n": [number] * len(ids)}))
            rows.update((one, number) for one in ids)
        case "delete":
            table.delete(where)
            rows.subtract(hit)
        case "update":
            table.update({"n": "n + 100"}, where)
            rows.subtract(hit)
            rows.update({(one, n + 100): count for (one, n), count in hit.items()})
        case "compact":
            table.optimize.compact()
        case "checkpoint":
            table.maintenance.checkpoint()
    for row in [row for row, count in rows.items() if not count]:
        del rows[row]


def publish(table: txlog.Table, name: str, main: Side, side: Side, changes: int) -> bool:
    """Publish a branch, or see that nothing changed; return whether it was published."""
    version = table.version
    gone, came = side.base - side.rows, side.rows - side.base
    try:
        table.branches.publish(name)
    except (CommitConflictError, UnsupportedFeatureError) as error:
        tracked = isinstance(error, UnsupportedFeatureError)
        assert tracked or changes != side.main_then, "nobody else changed the table"
        assert not side.added_only
        assert txlog.Table(table.uri).version == version
        event("refused")
        return False
    assert not gone - main.rows
    main.rows = main.rows - gone + came
    event("published")
    return True


@pytest.mark.slow(cases=2)
@pytest.mark.spec("BRA-20", "BRA-25", "BRA-26", "BRA-32")
@pytest.mark.parametrize("kind", PROPERTIES)
@settings(max_examples=examples(200), deadline=None)
@given(steps=st.lists(STEPS, max_size=14))
def test_branches_are_like_the_model(kind: str, steps: list[Step]) -> None:
    table = txlog.write(
        f"memory://{uuid.uuid4()}",
        pa.table({"id": list(range(6)), "n": [0] * 6}),
        properties=PROPERTIES[kind],
    )
    main = Side(rows_of(table))
    open_: dict[str, Side] = {}
    changes = 0  # Commits of the table with other rows or files.
    for number, step in enumerate(steps, 1):
        if step.side == "main":
            if step.verb not in ("publish", "discard"):
                before = table.version
                run(step, table, main.rows, number)
                changes += table.version != before
            continue
        name = step.side
        side = open_.get(name)
        if side is None:
            table.branches.create(name)
            side = open_[name] = Side(Counter(main.rows), Counter(main.rows), main_then=changes)
        branch = txlog.Table(table.uri, branch=name)
        if step.verb == "publish":
            if publish(table, name, main, side, changes):
                del open_[name]
                changes += 1
        elif step.verb == "discard":
            table.branches.discard(name)
            del open_[name]
        else:
            before = branch.version
            run(step, branch, side.rows, number)
            side.added_only &= step.verb == "append" or branch.version == before
    assert rows_of(txlog.Table(table.uri)) == main.rows
    listed = {one["name"] for one in table.branches.list().to_pylist() if one["status"] == "open"}
    assert listed == set(open_)
    for name, side in open_.items():
        assert rows_of(txlog.Table(table.uri, branch=name)) == side.rows
        diff = table.branches.diff(name, on=[]).to_arrow().to_pydict()
        found = zip(diff["id"], diff["n"], diff["_change_type"], strict=True)
        signed: Any = Counter()
        for one, n, change in found:
            signed[one, n] += 1 if change == "insert" else -1
        expected = {r: side.rows[r] - side.base[r] for r in {*side.rows, *side.base}}
        assert {r: c for r, c in signed.items() if c} == {r: c for r, c in expected.items() if c}
