"""Texts are found as Arrow finds them, whatever their hashes are."""

from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.reconcile.files import are_distinct, text_hashes
from txlog.reconcile.text_index import TextIndex

# Most of these have hashes that others have, because only whole groups of eight bytes at the end
# count.
short = st.text("aé/", max_size=9)
long = st.builds("{}/{}{}".format, short, short, st.sampled_from(["", "-c000.snappy.parquet" * 4]))
texts = st.lists(short | long, max_size=30)


@settings(max_examples=examples(300), deadline=None)
@given(texts, texts, st.integers(0, 3))
def test_texts_are_found(known: list[str], asked: list[str], start: int) -> None:
    different = pc.unique(pa.array(known, pa.string()))[start:]
    some = pa.array([*asked, *known], pa.string())[start:]
    found = TextIndex(different).places(some).tolist()
    expected = pc.fill_null(pc.index_in(some, value_set=different), -1)
    assert found == expected.to_pylist()


def test_files_of_one_job_have_different_hashes() -> None:
    """Spark's tasks share a UUID, and their numbers come before it."""
    names = [f"day=1/part-{task:05}-{UUID(int=9)}-c000.snappy.parquet" for task in range(500)]
    assert are_distinct(text_hashes(pa.array(names)))
