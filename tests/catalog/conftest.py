"""Catalogs of tables for tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.catalog.unity_server import TOKEN, Stub, serving
from txlog import Catalog, Table
from txlog.store.catalog_database import Managed
from txlog.store.unity.address import VARIABLES

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
Make = Callable[..., Table]


def rows(*pairs: tuple[int, int]) -> pa.Table:
    ids, values = zip(*pairs, strict=True) if pairs else ((), ())
    return pa.table({"id": list(ids), "v": list(values)}, schema=SCHEMA)


def content(table: Table) -> list[tuple[int, int]]:
    found = table.to_arrow()
    return sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(tmp_path / "lake.db", tmp_path / "lake")


@pytest.fixture
def make(catalog: Catalog) -> Make:
    """Return a function that makes a managed table with rows."""

    def made(name: str, *pairs: tuple[int, int], managed: Managed = "writes") -> Table:
        table = catalog.create_table(name, SCHEMA, managed=managed)
        if pairs:
            table.append(rows(*pairs))
        return table

    return made


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    """A server of Unity Catalog with the catalog `main`."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("txlog.store.unity.client.pause", str)
    monkeypatch.setattr("txlog.store.unity.commits.pause", str)
    with serving(Stub(tmp_path)) as found:
        yield found


@pytest.fixture
def unity(stub: Stub) -> Catalog:
    """The catalog `main` of the server."""
    return Catalog(stub.address, storage_options={"token": TOKEN})
