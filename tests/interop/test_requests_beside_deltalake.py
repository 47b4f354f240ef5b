"""On one object store server txlog sends no more requests than deltalake."""

from pathlib import Path

import pytest
from beside_deltalake import ROWS_AFTER, VERBS, Ours, Theirs, count, make
from servers import missing

import txlog


@pytest.mark.parametrize("engine", [Ours, Theirs])
def test_each_engine_does_each_verb(tmp_path: Path, engine: type[Ours | Theirs]) -> None:
    make(tmp_path)
    does = engine(str(tmp_path), {})
    for verb in VERBS:
        getattr(does, verb)()
    assert txlog.Table(tmp_path).count() == ROWS_AFTER


@pytest.mark.exhaustive
@pytest.mark.skipif(missing("localbucket") is not None, reason="it needs localbucket")
def test_no_verb_sends_more_requests_than_deltalake() -> None:
    found = count()
    assert set(found) == {"open", "plan", "append", "merge"}
    assert {verb: both for verb, both in found.items() if both[0] > both[1]} == {}
    assert found["append"][0] <= 4  # A refresh, the data file, the commit, and whether it landed.
