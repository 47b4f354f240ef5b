"""On one object store server txlog sends no more requests than deltalake."""

import pytest
from beside_deltalake import count
from servers import missing


@pytest.mark.exhaustive
@pytest.mark.skipif(missing("localbucket") is not None, reason="it needs localbucket")
def test_no_verb_sends_more_requests_than_deltalake() -> None:
    found = count()
    assert set(found) == {"open", "plan", "append", "merge"}
    assert {verb: both for verb, both in found.items() if both[0] > both[1]} == {}
    assert found["append"][0] <= 4  # A refresh, the data file, the commit, and whether it landed.
