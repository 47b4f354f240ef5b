"""The corpus of tables that other engines wrote, and its way of hashing rows."""

from __future__ import annotations

import csv
import hashlib
import json
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pytest

ROOT = Path(__file__).parents[3] / "shared" / "corpus" / "delta"

NEEDS_CORPUS = pytest.mark.skipif(not ROOT.exists(), reason=f"the corpus is not at {ROOT}")


@dataclass(frozen=True)
class Case:
    """A table, and what is known of it."""

    index: dict[str, str]
    references: tuple[dict[str, Any], ...]

    @property
    def name(self) -> str:
        return f"{self.index['source']}/{self.index['name']}"

    @property
    def path(self) -> Path:
        return ROOT / self.index["path"]

    @property
    def is_plain(self) -> bool:
        return not self.index["expectation"]


def require_corpus(home: Path = ROOT) -> None:
    """Skip a test where the corpus, or a part of it, is not there."""
    if not home.exists():
        pytest.skip(f"the corpus is not at {home}")


@cache
def cases() -> tuple[Case, ...]:
    if not ROOT.exists():
        return ()
    references: dict[str, list[dict[str, Any]]] = {}
    with (ROOT / "REFERENCE.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            references.setdefault(record["path"], []).append(record)
    with (ROOT / "INDEX.tsv").open(encoding="utf-8", newline="") as rows:
        return tuple(
            Case(row, tuple(references.get(row["path"], ())))
            for row in csv.DictReader(rows, delimiter="\t", quoting=csv.QUOTE_MINIMAL)
        )


def rows_sha256(table: pa.Table) -> str:
    """Return the canonical hash of a table's rows (the corpus's README defines it)."""
    names = sorted(table.column_names)
    columns = [_values(table.column(name)) for name in names]
    rows = sorted(canonical_text(list(row)) for row in zip(*columns, strict=True))
    if not names:
        rows = ["[]"] * table.num_rows
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def columns_sha256(table: pa.Table) -> str:
    return hashlib.sha256("\n".join(sorted(table.column_names)).encode()).hexdigest()


def canonical_text(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def _values(column: pa.ChunkedArray) -> list[Any]:
    return [value for chunk in column.chunks for value in array_values(chunk)]


def array_values(array: pa.Array) -> list[Any]:
    kind = array.type
    valid = array.is_valid().to_pylist()
    if pa.types.is_null(kind):
        return [None] * len(array)
    if pa.types.is_struct(kind):
        children = [array_values(array.field(at)) for at in range(kind.num_fields)]
        names = [field.name for field in kind]
        found: list[Any] = [
            dict(zip(names, row, strict=True)) for row in zip(*children, strict=True)
        ]
        if not children:
            found = [{} for _ in range(len(array))]
    elif pa.types.is_map(kind):
        keys, items = array_values(array.keys), array_values(array.items)
        offsets = array.offsets.to_pylist()
        found = [
            [
                "M",
                *sorted(
                    ([k, v] for k, v in zip(keys[a:b], items[a:b], strict=True)), key=canonical_text
                ),
            ]
            for a, b in pairwise(offsets)
        ]
    elif pa.types.is_list(kind):
        values, offsets = array_values(array.values), array.offsets.to_pylist()
        found = [values[a:b] for a, b in pairwise(offsets)]
    elif pa.types.is_timestamp(kind):
        if kind.unit == "ns":
            array = pc.floor_temporal(array, unit="microsecond")
        found = [
            f"t:{v}" for v in array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).to_pylist()
        ]
    elif pa.types.is_date(kind):
        found = [f"d:{v}" for v in array.cast(pa.int32()).to_pylist()]
    elif pa.types.is_decimal(kind) or pa.types.is_string(kind):
        encoded = array.dictionary_encode()  # Of a million values, few are different.
        texts = [_scalar(value) for value in encoded.dictionary.to_pylist()]
        found = [None if at is None else texts[at] for at in encoded.indices.to_pylist()]
    else:
        found = [_scalar(value) for value in array.to_pylist()]
    return [value if ok else None for value, ok in zip(found, valid, strict=True)]


def _scalar(value: Any) -> Any:
    match value:
        case bool() | int() | None:
            return value
        case float():
            return f"f:{value!r}"
        case Decimal():
            text = format(value, "f")
            text = text.rstrip("0").rstrip(".") if "." in text else text
            return "m:0" if Decimal(text) == 0 else f"m:{text}"
        case str():
            return f"s:{value}"
        case bytes():
            return f"x:{value.hex()}"
    raise TypeError(type(value))
