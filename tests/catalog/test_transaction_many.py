"""Transactions over many tables."""

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.catalog.conftest import SCHEMA, content, rows
from txlog import Catalog
from txlog.base.errors import CommitConflictError

HANDLES = 32  # Free ones, whatever else this process has open.
WHOLE = {"format": 1, "after": 0, "at": 0}


@contextmanager
def few_handles() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A new handle has the lowest free number, which must be below the limit.
    limit = len(list(Path("/dev/fd").iterdir())) + HANDLES
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, before[1]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.slow
@pytest.mark.parametrize("count", [20, pytest.param(100, marks=pytest.mark.exhaustive)])
@pytest.mark.spec("CAT-6", "CAT-9")
def test_many_tables_change_together_with_few_files_open(catalog: Catalog, count: int) -> None:
    names = [f"t{number:03}" for number in range(count)]
    for name in names:
        catalog.create_table(name, SCHEMA, managed="writes")
    with few_handles(), catalog.transaction() as changes:
        for number, name in enumerate(names):
            changes[name].append(rows((number, 1)))
    moment = catalog.snapshot()
    assert [content(moment[name]) for name in names] == [[(n, 1)] for n in range(count)]
    *_, change = catalog.follow(token=json.dumps(WHOLE | {"catalog": catalog.id}), timeout_s=0)
    assert sorted(change.versions) == names

    # Another writer of one table only: appends of all are still made, in one moment.
    with few_handles(), catalog.transaction() as changes:
        for name in names:
            changes[name].append(rows((1000, 1)))
        catalog.table(names[-1]).append(rows((2000, 1)))
    assert all(catalog.table(name).count("id = 1000") == 1 for name in names)

    # A conflict in the last table takes back all.
    block = catalog.transaction()
    changes = block.__enter__()
    for name in names:
        assert changes[name].count("id = 1000") == 1
        changes[name].update({"v": "v + 1"}, "id = 1000")
    catalog.table(names[-1]).update({"v": "v + 5"}, "id = 1000")
    with pytest.raises(CommitConflictError):
        block.__exit__(None, None, None)
    assert sum(catalog.table(name).count("id = 1000 AND v = 2") for name in names) == 0
    assert not list(Path(catalog.location).glob("*/_delta_log/_staged_commits/*.json"))
