"""Deletion files of pylance, and files that pylance judged: txlog reads and refuses the same.

The corpus has each file's bytes, its name, what it deletes, and of the ones made by hand whether
pylance reads them.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from corpus import ROOT, require_corpus
from pyroaring import BitMap64

from txlog.base.errors import BadDeletionVectorError
from txlog.fragments.deletion_file import (
    DeletionKind,
    decode_deletions,
    deletion_kind,
    deletion_name,
    encode_deletions,
    parse_deletion_name,
)

HOME = ROOT.parent / "lance"

# In Lance an array that grows to 5000 rows stays one, a bitmap always does, and a conflict rebase
# writes nothing else.
OTHER_KIND = {
    "0-2-610746330822083655.arrow", "0-2-17926461119010596389.bin", "0-3-2600319584602501996.bin",
}  # fmt: skip


def recorded(group: str) -> list[dict[str, Any]]:
    path = HOME / "expected.json"
    if not path.exists():
        return []
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))[group]
    return found


REAL = recorded("real")
VARIANTS = recorded("variants")


def test_the_corpus_is_there() -> None:
    require_corpus(HOME)
    assert len(REAL) == 22
    assert len(VARIANTS) == 21
    assert {record["file"] for record in REAL} == {path.name for path in (HOME / "real").iterdir()}
    assert {record["file"] for record in VARIANTS} == {
        path.name for path in (HOME / "variants").iterdir()
    }


def deleted(record: dict[str, Any]) -> BitMap64:
    found = BitMap64()
    for start, end in record["deleted"]:
        found.add_range(start, end)
    return found


def kind_of(record: dict[str, Any]) -> DeletionKind:
    return "arrow" if Path(record["file"]).suffix == ".arrow" else "bin"


def read(group: str, record: dict[str, Any], cardinality: int) -> BitMap64:
    return decode_deletions(
        (HOME / group / record["file"]).read_bytes(),
        kind=kind_of(record),
        cardinality=cardinality,
        rows=record["physical_rows"],
        path=record["file"],
    )


@pytest.mark.parametrize("record", REAL, ids=lambda record: record["file"])
def test_a_file_that_pylance_wrote(record: dict[str, Any]) -> None:
    data = (HOME / "real" / record["file"]).read_bytes()
    assert hashlib.sha256(data).hexdigest() == record["sha256"]

    name = parse_deletion_name(record["file"])
    assert name is not None
    assert name == (
        record["fragment_id"],
        record["read_version"],
        int(record["id"]),
        {"array": "arrow", "bitmap": "bin"}[record["file_type"]],
    )
    assert deletion_name(*name) == record["file"]

    count = record["num_deleted_rows"]
    found = read("real", record, count)
    assert found == deleted(record)
    assert (deletion_kind(count) != name.kind) == (record["file"] in OTHER_KIND)

    ours = encode_deletions(found, kind=name.kind)
    assert decode_deletions(ours, kind=name.kind, cardinality=count, rows=None, path="f") == found
    if name.kind == "bin":
        assert ours == data


@pytest.mark.parametrize("record", VARIANTS, ids=lambda record: record["file"])
def test_a_file_that_pylance_judged(record: dict[str, Any]) -> None:
    expected = deleted(record)
    if record["pylance"] == "read":
        assert read("variants", record, len(expected)) == expected
        return
    assert record["pylance"] == "refuse"
    with pytest.raises(BadDeletionVectorError) as caught:
        read("variants", record, len(expected))
    assert caught.value.path == record["file"]
    assert "the log says" not in caught.value.reason  # Refused for itself, not for its count.
