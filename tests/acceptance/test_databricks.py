"""Every question about Databricks' acceptance tables gets Databricks' answer."""

import pytest
from corpus import require_corpus
from databricks import FAULTS, OMITTED, OTHERWISE, ROOT, is_omitted, judge, questions


def test_the_tables_are_there() -> None:
    require_corpus(ROOT)
    assert len(questions()) > 400


@pytest.mark.slow
@pytest.mark.parametrize("table", questions())
def test_a_table_is_what_databricks_says(table: str) -> None:
    asked = [one for one in questions()[table] if not is_omitted(one)]
    wrong = {one.name: found for one in asked if (found := judge(one)) is not None}
    assert wrong == {}


def test_nothing_is_excepted_in_vain() -> None:
    require_corpus(ROOT)
    every = [one for asked in questions().values() for one in asked]
    known = {name for one in every for name in (one.id, one.table)}
    assert {*OMITTED, *OTHERWISE} <= known
    assert {one.fault for one in every if not is_omitted(one)} - {None} == FAULTS.keys()
