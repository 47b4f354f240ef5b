"""Names of Unity Catalog on the command line."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.catalog.conftest import SCHEMA, content, rows
from tests.catalog.unity_server import TOKEN, Stub, external, serving
from txlog import Catalog
from txlog.store.unity.address import VARIABLES
from txlog.tools.cli.app import run


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    for name in VARIABLES[1:]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(VARIABLES[0], TOKEN)
    with serving(Stub(tmp_path)) as found:
        yield found


@pytest.mark.spec("CAT-18")
def test_commands_take_names(stub: Stub, capsys: pytest.CaptureFixture[str]) -> None:
    external(stub, "sales.orders", (1, 10), (2, 20))
    catalog = Catalog(stub.address)
    catalog.create_table("sales.totals", SCHEMA, managed="all").append(rows((7, 70)))
    begin = ["--catalog", stub.address]
    assert run([*begin, "catalog", "tables", "--json"]) == 0
    assert {one["name"] for one in json.loads(capsys.readouterr().out)} == {
        "sales.orders", "sales.totals"
    }  # fmt: skip
    assert run([*begin, "count", "sales.orders"]) == 0
    assert capsys.readouterr().out.strip() == "2"
    assert run([*begin, "delete", "sales.totals", "--where", "id = 7"]) == 0
    assert content(catalog.table("sales.totals")) == []
    assert run([*begin, "show", "sales.orders"]) == 0
    assert run([*begin, "catalog", "rename", "sales.orders", "sales.done"]) != 0
    shown = capsys.readouterr()
    assert "published interface" in shown.err
    assert TOKEN not in shown.out + shown.err
