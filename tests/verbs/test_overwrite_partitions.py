"""The files of the partitions of new rows, chosen by columns."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.actions.columns import FILE_ROWS
from txlog.actions.file import Add
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.partition import format_partition_values, parse_partition_values
from txlog.verbs.overwrite import in_partitions

TEXTS: dict[str, list[str | None]] = {
    "i": ["1", "01", "+1", "2", "-2", "", None],
    "d": ["1.0", "1", "1e0", "NaN", "nan", "0.0", "-0.0", None],
    "s": ["1", "NaN", "a", "a\0", "", None],
    "t": ["2024-01-01 00:00:00", "2024-01-01T00:00:00Z", "2024-01-01 00:00:00.5", None],
}
KINDS = {"i": pa.int32(), "d": pa.float64(), "s": pa.string(), "t": pa.timestamp("us", "UTC")}
ENCODED = pa.map_(pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int32(), pa.string()))


@pytest.fixture(name="snapshots", scope="module")
def fixture_snapshots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Snapshot]:
    """Make versions with one to four partition columns."""
    schema = pa.schema([*KINDS.items(), ("x", pa.int64())])
    return {
        names: txlog.Table.create(tmp_path_factory.mktemp("t"), schema, list(names)).snapshot
        for names in ("i", "d", "si", "dt", "idst")
    }


def plain(snapshot: Snapshot, values: dict[str, str | None]) -> tuple[str | None, ...]:
    """Return the partition of one file in txlog's spelling, in which NaN equals itself."""
    spelt = []
    for field in snapshot.partition_fields:
        text = pa.array([values.get(field.name)], pa.string())
        typed = parse_partition_values(text, field.type)
        spelt.append(format_partition_values(typed, field.type)[0].as_py())
    return tuple(spelt)


VALUES = st.fixed_dictionaries({name: st.sampled_from(texts) for name, texts in TEXTS.items()})


@settings(max_examples=examples(100), deadline=None)
@given(
    names=st.sampled_from(["i", "d", "si", "dt", "idst"]),
    new=st.lists(VALUES, max_size=5),
    old=st.lists(VALUES, max_size=12),
    encoded=st.booleans(),
)
def test_files_of_the_same_partitions_are_chosen_one_by_one(
    snapshots: dict[str, Snapshot],
    names: str,
    new: list[dict[str, str | None]],
    old: list[dict[str, str | None]],
    encoded: bool,
) -> None:
    snapshot = snapshots[names]
    adds = [
        Add(path="n", partition_values=one, size=1, modification_time=0, data_change=True)
        for one in ({name: one[name] for name in names} for one in new)
    ]
    held: Any = [[(name, one[name]) for name in names] for one in old]
    values = pa.array(held, FILE_ROWS.field("partition_values").type)
    rows = pa.table(
        {
            "path": [f"{at}" for at in range(len(old))],
            "partition_values": values.cast(ENCODED) if encoded else values,
        }
    )
    wanted = {plain(snapshot, one) for one in new}
    expected = [str(at) for at, one in enumerate(old) if plain(snapshot, one) in wanted]
    choose = pickle.loads(pickle.dumps(in_partitions(adds, snapshot)))
    assert choose(rows)["path"].to_pylist() == expected
