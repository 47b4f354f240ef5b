"""The client of a service refuses what the catalog refuses, and each error is one of txlog."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.training.service.servers import http_client, write_intents
from txlog.base.errors import TxlogError
from txlog.training import Datasets, InlineRunner

WRONG: list[Any] = [None, -1, True, 1.5, "", "x", [], {}, {"a": 1}, "0" * 70, "a/b", b"x", ("a", 1)]
HASH = "v1" + "0" * 40
Call = Callable[[Any, Any], Any]
CALLS: dict[str, Call] = {
    "dataset": lambda all_, wrong: all_.dataset(wrong),
    "list limit": lambda all_, wrong: all_.list(wrong),
    "list after": lambda all_, wrong: all_.list(after=wrong),
    "list type": lambda all_, wrong: all_.list(type=wrong),
    "list deleted": lambda all_, wrong: all_.list(deleted=wrong),
    "create name": lambda all_, wrong: all_.create(wrong, "TEXT_INTENT", "in/none.csv"),
    "create type": lambda all_, wrong: all_.create("n", wrong, "in/none.csv"),
    **{
        f"create {name}": lambda all_, wrong, name=name: all_.create(  # type: ignore[misc]
            "n", "TEXT_INTENT", "in/none.csv", **{name: wrong}
        )
        for name in ("tags", "description", "message", "inputs", "code", "txn")
    },
}
OF_ONE: dict[str, Call] = {
    "commit": lambda one, wrong: one.commit(wrong),
    "hide": lambda one, wrong: one.hide(wrong),
    "show": lambda one, wrong: one.show(wrong),
    "prepare": lambda one, wrong: one.prepare(wrong),
    "prepare tags": lambda one, wrong: one.prepare(tags=wrong),
    "prepare form": lambda one, wrong: one.prepare(form=wrong),
    "prepare options": lambda one, wrong: one.prepare(options=wrong),
    "fetch": lambda one, wrong: one.fetch(wrong),
    "fetch wait_s": lambda one, wrong: one.fetch(HASH, wait_s=wrong),
    "tag name": lambda one, wrong: one.tag(wrong, 1),
    "tag target": lambda one, wrong: one.tag("name", wrong),
    "verify": lambda one, wrong: one.verify(wrong),
    "diff": lambda one, wrong: one.diff(wrong, 1),
    "lineage": lambda one, wrong: one.lineage(wrong),
    "lineage direction": lambda one, wrong: one.lineage(1, wrong),
    "lineage depth": lambda one, wrong: one.lineage(1, "up", wrong),
    "purge confirm": lambda one, wrong: one.purge(1, confirm=wrong),
    "purge": lambda one, wrong: one.purge(wrong, confirm="no"),
    "update source": lambda one, wrong: one.update(wrong),
    **{
        f"update {name}": lambda one, wrong, name=name: one.update(  # type: ignore[misc]
            "in/none.csv", **{name: wrong}
        )
        for name in ("message", "tags", "inputs", "code", "txn")
    },
}


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Datasets, Any]]:
    place: Path = tmp_path_factory.mktemp("arguments")
    write_intents(place / "in/1.csv", 20, 4)
    catalog = Datasets(place / "root", sources={"in": place / "in"}, runner=InlineRunner())
    catalog.create("intents", "TEXT_INTENT", "in/1.csv", tags={"a": "b"})
    with http_client(catalog) as client:
        yield catalog, client


def is_refused(call: Call, door: Any, wrong: Any) -> bool:
    """Return whether a call is refused; an error that is none of txlog is raised."""
    try:
        call(door, wrong)
    except TxlogError:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CALLS, *OF_ONE])
def test_a_client_refuses_what_a_catalog_refuses(doors: tuple[Datasets, Any], name: str) -> None:
    call = CALLS.get(name) or OF_ONE[name]
    for wrong in WRONG:
        by_catalog, by_client = (
            is_refused(call, door if name in CALLS else door.dataset("intents"), wrong)
            for door in doors
        )
        assert by_catalog == by_client, repr(wrong)
