"""Files of a checkpoint that newer commits are about."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.log.paths import canonical_key
from txlog.reconcile.newer import newer_of, untouched

NAMES = (
    "part-00000-aaaa-c000.snappy.parquet",
    "part-00001-aaaa-c000.snappy.parquet",
    "part-00001-bbbb-c000.snappy.parquet",
    "x.parquet",
    "a.b",
    "é-part-00001",
    "p.",
)
FOLDERS = ("", "a/", "p=1/q=2/", "./", "a//", "a/./", "a/b/../", "/t/", "file:/t/", "file:///t//",
           "s3://b/t/", "p=%20/", "p= /")  # fmt: skip
ENDS = ("", "", "", "/", "/.", "/c/..")


def spelled(name: str) -> str:
    """Return a name with a letter of it encoded."""
    return name.replace("a", "%61", 1)


paths = st.builds(
    lambda folder, name, end: folder + name + end,
    st.sampled_from(FOLDERS),
    st.sampled_from(NAMES) | st.sampled_from(NAMES).map(spelled),
    st.sampled_from(ENDS),
)
files = st.lists(st.tuples(paths, st.sampled_from([None, None, "uab", "uab@1"])), max_size=12)


def table(rows: list[tuple[str, Any]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), ()]
    return pa.table(
        {"path": pa.array(columns[0], pa.string()), "dv_id": pa.array(columns[1], pa.string())}
    )


@given(files, files, st.integers(0, 3), st.integers(0, 3))
def test_what_is_left_is_of_no_newer_file(
    base: list[tuple[str, Any]], tail: list[tuple[str, Any]], cut: int, split: int
) -> None:
    gone = {(canonical_key(path), vector) for path, vector in tail}
    whole = table(base)
    rows = pa.concat_tables([whole.slice(cut, split), whole.slice(cut + split)])
    held = base[cut:]
    wanted = [(path, vector) for path, vector in held if (canonical_key(path), vector) not in gone]
    found = untouched(rows, newer_of(table(tail)))
    assert list(zip(*found.to_pydict().values(), strict=True)) == wanted


@pytest.mark.parametrize("count", [1, 64, 65, 300])
def test_many_newer_files(count: int) -> None:
    base = [(f"part-{at:05}-abcdefgh.parquet", None) for at in range(1_000)]
    found = untouched(table(base), newer_of(table(base[:count])))
    assert found["path"].to_pylist() == [path for path, _ in base[count:]]
    plain = newer_of(table(base[:count])).words is not None
    assert plain == (count <= 64), "few are told by eight bytes"
