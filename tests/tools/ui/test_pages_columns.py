"""The steps for a page, and its bytes, are in proportion to the columns of a table."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from tests.steps import steps_of
from txlog.tools.ui.places import Places, place_of

pytest.importorskip("fastapi")
pytest.importorskip("vl_convert")

from fastapi import Response

from txlog.tools.ui import pages
from txlog.tools.ui.app import Site

FEW, MANY = 30, 120
ASKED: dict[str, tuple[Callable[..., dict[str, Any]], dict[str, Any]]] = {
    "": (pages.overview, {}),
    "rows": (pages.rows, {"columns": None, "where": None, "offset": 0}),
    "schema": (pages.schema, {}),
    "diff": (pages.diff, {"start": 1, "end": 2, "on": None, "where": None, "offset": 0}),
    "report": (pages.report, {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(ASKED))
def test_no_step_of_a_page_is_repeated_for_each_pair_of_columns(tmp_path: Path, name: str) -> None:
    def made(columns: int) -> txlog.Table:
        rows = pa.table({f"c{at}": [float(at), 1.0, 2.0] for at in range(columns)})
        table = txlog.write(tmp_path / f"{columns}", rows)
        table.append(rows)
        table.update({f"c{at}": "c0 + 1" for at in range(1, columns)}, "c0 = 0")
        return table

    def shown(table: txlog.Table) -> Response:
        site = Site(Places([table.uri]), "token", writes=False)
        show, asked = ASKED[name]
        if name == "report":
            asked = {"made": site.report(site.visit(place_of(table.uri, "").key, None))}
        return site.of_table(name, place_of(table.uri, "").key, None, show, **asked)

    shown(made(10))  # What is loaded when it is first used.
    tables = [made(FEW), made(MANY)]
    few, many = (steps_of(lambda held=held: shown(held)) for held in tables)
    assert many / few < MANY / FEW * 1.1, (few, many)
    small, large = (len(bytes(shown(held).body)) for held in tables)
    assert large / small < MANY / FEW * 1.1, (small, large)
