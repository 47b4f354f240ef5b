"""What an interrupted truncation of the log says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from txlog.base.errors import StoreError
from txlog.table.seam import context_of
from txlog.verbs import truncate as truncation


def failure(reason: str) -> StoreError:
    return StoreError(operation="delete", path="f", reason=reason)


@pytest.mark.parametrize("first", [failure("the first"), KeyboardInterrupt("the first")])
@pytest.mark.parametrize("ends", [True, False])
def test_the_first_error_is_raised(
    first: BaseException, ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = txlog.write(tmp_path, pa.table({"x": [1]}))
    table.append(pa.table({"x": [2]}))
    table.maintenance.checkpoint()
    execute = truncation.execute

    def fails(*_: object) -> None:
        raise first

    def committed(note: Any, *given: Any) -> Any:
        if note.name == "VACUUM END" and not ends:
            raise failure("the second")
        return execute(note, *given)

    monkeypatch.setattr(truncation, "delete_log", fails)
    monkeypatch.setattr(truncation, "execute", committed)
    with pytest.raises(type(first), match="the first") as caught:
        truncation.truncate(context_of(table), table.snapshot, table.version)
    notes = getattr(caught.value, "__notes__", [])
    assert any("the second" in one for one in notes) != ends
    last = txlog.Table(tmp_path).history(1)[0]
    assert last["operation"] == ("VACUUM END" if ends else "VACUUM START")
    assert last["operationParameters"].get("status") == ("FAILED" if ends else None)
