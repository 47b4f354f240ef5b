"""The places of a few paths among many, compared with sorting all of them."""

from bisect import bisect_left

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.actions.columns import FILE_ROWS, decode_rows
from txlog.fragments.ids import PROVISIONAL, count_places, fragment_ids, ids_at, places_of

PATHS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["part-0000000", "day=2026-01-01/", "é", ""]).flatmap(
        lambda begin: st.text("0\x00aé", max_size=12).map(lambda rest: begin + rest)
    ),
)


def files(paths: list[str], tags: dict[str, str] | None = None) -> pa.Table:
    body = {"partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    adds = [{"add": {"path": path, "tags": tags} | body} for path in paths]
    return decode_rows([(0, adds, "0.json")])


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(PATHS, max_size=40), st.lists(PATHS, max_size=12), st.integers(0, 3))
def test_counts_are_those_of_a_sorted_list(
    others: list[str], wanted: list[str], offset: int
) -> None:
    asked = sorted(path.encode() for path in wanted)
    held = sorted(path.encode() for path in others[offset:])
    below, alike = places_of(asked, pa.array(others, pa.string()).slice(offset))
    assert below.tolist() == [bisect_left(held, path) for path in asked]
    assert alike.tolist() == [held.count(path) for path in asked]


def provisional_ids(paths: pa.Array, parts: list[pa.Table]) -> pa.Array | None:
    """Return the ids from counts of each part, which add up."""
    found = ids_at(paths, [count_places(paths, [part]) for part in parts])
    assert found == ids_at(paths, [count_places(paths, parts)])
    return found


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(PATHS, min_size=1, max_size=30, unique=True), st.data())
def test_ids_are_those_of_all_files(paths: list[str], data: st.DataObject) -> None:
    live = files(paths)
    some = data.draw(st.lists(st.sampled_from(paths), unique=True))
    cut = data.draw(st.integers(0, len(paths)))
    found = provisional_ids(pa.array(some, pa.string()), [live.slice(0, cut), live.slice(cut)])
    expected = dict(zip(paths, fragment_ids(live).to_pylist(), strict=True))
    assert found is not None
    assert found.to_pylist() == [expected[path] for path in some]


def test_two_files_of_one_path_are_for_all_files_to_tell() -> None:
    twice = files(["a", "b", "b"])
    assert provisional_ids(pa.array(["b"]), [twice]) is None
    assert provisional_ids(pa.array(["a"]), [twice]) is not None


def test_durable_ids_are_for_all_files_to_tell() -> None:
    tagged = files(["a"], {"txlog.fragmentId": "7"})
    assert provisional_ids(pa.array(["b"]), [files(["b"]), tagged]) is None
    odd = files(["a"], {"txlog.fragmentId": "x"})
    found = provisional_ids(pa.array(["b"]), [files(["b"]), odd])
    assert found is not None
    assert found.to_pylist() == [PROVISIONAL + 1]
    nothing = provisional_ids(pa.array([], pa.string()), [FILE_ROWS.empty_table()])
    assert nothing is not None
    assert not len(nothing)
