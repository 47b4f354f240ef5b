"""Texts are found as Arrow finds them, whatever their hashes are."""

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.reconcile.text_index import TextIndex

# Most of these have hashes that others have, because only whole groups of eight bytes at the end
# count.
short = st.text("aé/", max_size=9)
long = st.builds("{}/{}{}".format, short, short, st.sampled_from(["", "-c000.snappy.parquet" * 2]))
texts = st.lists(short | long, max_size=30)


@settings(max_examples=examples(300), deadline=None)
@given(texts, texts, st.integers(0, 3))
def test_texts_are_found(known: list[str], asked: list[str], start: int) -> None:
    different = pc.unique(pa.array(known, pa.string()))[start:]
    some = pa.array([*asked, *known], pa.string())[start:]
    found = TextIndex(different).places(some).tolist()
    expected = pc.fill_null(pc.index_in(some, value_set=different), -1)
    assert found == expected.to_pylist()
