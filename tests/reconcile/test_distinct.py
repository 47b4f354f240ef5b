"""Hashes of texts."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from txlog.reconcile.distinct import are_distinct, text_hashes

texts = st.text(alphabet="ab/é", max_size=5) | st.text(alphabet="ab", min_size=30, max_size=45)


@given(st.lists(texts | st.none(), max_size=6), st.integers(0, 3))
def test_a_text_has_one_number_wherever_it_is(found: list[str | None], cut: int) -> None:
    cut = min(cut, len(found))
    together = text_hashes(pa.array(found, pa.string()).slice(cut)).tolist()
    alone = [text_hashes(pa.array([text], pa.string()))[0] for text in found[cut:]]
    assert together == alone
    by_number = dict(zip(together, found[cut:], strict=True))
    if are_distinct(text_hashes(pa.array(found[cut:], pa.string()))):
        assert len(set(found[cut:])) == len(found[cut:]) == len(by_number)
