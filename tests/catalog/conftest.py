"""Catalogs of tables for tests."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from txlog import Catalog, Table
from txlog.store.catalog_database import Managed

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
