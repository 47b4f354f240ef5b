"""Following the changes of all tables of a catalog."""

import json
import threading
from pathlib import Path

import pytest

from tests.catalog.conftest import SCHEMA, Make, content, rows
from txlog import Catalog
from txlog.base.errors import InvalidInputError


@pytest.mark.spec("CAT-13")
def test_changes_come_in_the_order_of_the_catalog(catalog: Catalog, make: Make) -> None:
    make("a", (1, 1))
    make("b", (1, 1))
    whole = json.dumps({"format": 1, "catalog": catalog.id, "after": 0})
    before = list(catalog.follow(token=whole, timeout_s=0))
    assert [one.versions for one in before] == [{"a": 1}, {"a": 2}, {"b": 1}, {"b": 2}]
    at = before[-1].token
    catalog.table("b").append(rows((2, 2)))
    with catalog.transaction() as changes:
        changes["a"].append(rows((2, 2)))
        changes["b"].append(rows((3, 3)))
    catalog.table("a").delete("id = 1")
    found = list(catalog.follow(token=at, timeout_s=0))
    assert [one.versions for one in found] == [{"b": 3}, {"a": 3, "b": 4}, {"a": 4}]
    assert [one.transaction_id is None for one in found] == [True, False, True]
    assert content(found[1].table("a")) == [(1, 1), (2, 2)]
    assert content(found[1].table("b")) == [(1, 1), (2, 2), (3, 3)]
    assert list(catalog.follow(token=found[-1].token, timeout_s=0)) == []
    assert [one.versions for one in catalog.follow(token=found[0].token, timeout_s=0)] == [
        one.versions for one in found[1:]
    ]
    catalog.rename("a", "c")
    assert next(catalog.follow(token=found[1].token)).versions == {"c": 4}


def test_a_follower_waits_for_what_comes(catalog: Catalog, make: Make) -> None:
    table = make("a", (1, 1))
    follower = catalog.follow(timeout_s=20, poll_s=0.1)  # From now on.
    thread = threading.Timer(0.2, lambda: table.append(rows((2, 2))))
    thread.start()
    assert next(follower).versions == {"a": 3}
    thread.join()
    assert list(catalog.follow(timeout_s=0)) == []


@pytest.mark.parametrize(
    "token", ["", "no token", "{}", '{"format":1,"catalog":"x","after":1}', 7, "[" * 100_000]
)
def test_wrong_tokens_are_refused(catalog: Catalog, token: str, tmp_path: Path) -> None:
    catalog.create_table("t", SCHEMA)
    with pytest.raises(InvalidInputError, match="token"):
        catalog.follow(token=token)
