"""The statements of `SECURITY.md` that no other test shows."""

import json
import pickle
import re
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog
from txlog.schema.json import parse_schema
from txlog.variant.arrays import decode_variant

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ROWS = pa.table({"a": [1, 2, 3], "s": ["x", "y", "z"]})
HOSTILE = (
    "__import__('os').system('touch {mark}')",
    'eval(\'open("{mark}", "w")\')',
    "(lambda: open('{mark}', 'w'))() IS NULL",
    "reflect('java.lang.Runtime', 'getRuntime') IS NULL",
    "java_method('java.lang.System', 'exit', 1) IS NULL",
    "a > 0; DROP TABLE t",
    "a = (SELECT max(a) FROM parquet.`{mark}`)",
    "EXISTS (SELECT 1)",
    "a IN (SELECT 1)",
    "input_file_name() = 'x'",
    "rand() > 0.5",
    "{{ a }} > 0",
    "a.__class__.__bases__ IS NULL",
    "my_function(a) > 0",
    "${{jndi:ldap://127.0.0.1/x}} IS NULL",
)


def log(root: Path, *lines: dict[str, Any]) -> Path:
    folder = root / "_delta_log"
    folder.mkdir(parents=True)
    texts = map(json.dumps, lines)
    (folder / f"{0:020d}.json").write_text("\n".join(texts) + "\n")
    return root


def table(root: Path, configuration: dict[str, str], **of_a: Any) -> Path:
    fields = [
        {"name": "a", "type": "long", "nullable": True, "metadata": of_a},
        {"name": "s", "type": "string", "nullable": True, "metadata": {}},
    ]
    features = ["checkConstraints", "generatedColumns", "invariants", "allowColumnDefaults"]
    return log(
        root,
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}},
        {
            "metaData": {
                "id": "x", "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [], "configuration": configuration,
            }
        },
    )  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_in_metadata_is_no_program(tmp_path: Path, text: str) -> None:
    mark = tmp_path / "mark"
    text = text.replace("{mark}", str(mark))
    invariant = json.dumps({"expression": {"expression": text}})
    roots = [
        table(tmp_path / "constraint", {"delta.constraints.c": text}),
        table(tmp_path / "generated", {}, **{"delta.generationExpression": text}),
        table(tmp_path / "invariant", {}, **{"delta.invariants": invariant}),
        table(tmp_path / "default", {}, CURRENT_DEFAULT=text),
    ]
    for root in roots:
        held = txlog.Table(root)
        assert held.count() == 0  # Nothing needs the text to read.
        rows = ROWS.select(["s"]) if root.name in ("default", "generated") else ROWS
        with pytest.raises(txlog.TxlogError):
            held.append(rows)
        assert txlog.Table(root).version == 0
    assert not mark.exists()


RUNS_TEXT = re.compile(
    r"(?<![.\w])(?:eval|exec|compile|__import__)\("
    r"|^\s*(?:import|from)\b.*\b(?:pickle|cloudpickle|marshal|shelve|dill|yaml|joblib)\b",
    re.MULTILINE,
)
# One makes our own dataclasses, one sends what it pickled to its own executors, and one shows that
# stores pickle.
OF_NO_TABLE = {"lazy.py", "spark_ext/answers.py", "testing/reading_contract.py"}


def test_nothing_is_unpickled_or_evaluated() -> None:
    """No module of a table imports what loads programs, or calls what runs text."""
    home = ROOT / "txlog"
    found = {
        str(path.relative_to(home))
        for path in home.rglob("*.py")
        if RUNS_TEXT.search(path.read_text(encoding="utf-8"))
    }
    assert {"spark_ext/answers.py"} <= found <= OF_NO_TABLE


class _Evil:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.mark), "w")


def test_a_pickled_type_in_a_data_file_stays_bytes(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    root = tmp_path / "t"
    txlog.write(root, ROWS)
    (file,) = root.glob("*.parquet")
    evil = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": pickle.dumps(_Evil(mark)),
    }
    schema = pa.schema([pa.field("a", pa.int64(), metadata=evil), pa.field("s", pa.string())])
    pq.write_table(ROWS.cast(schema), file)
    held = txlog.Table(root)
    assert held.to_arrow().equals(ROWS)
    assert held.to_pyarrow_dataset().to_table()["a"].to_pylist() == [1, 2, 3]
    assert held.take([1])["a"].to_pylist() == [2]
    held.optimize.compute_statistics()
    assert not mark.exists()


def test_depths_are_bounded(tmp_path: Path) -> None:
    kind = '"long"'
    for _ in range(250):
        kind = f'{{"type":"array","elementType":{kind},"containsNull":true}}'
    field = f'{{"name":"a","type":{kind},"nullable":true,"metadata":{{}}}}'
    with pytest.raises(txlog.LogCorruptError, match=r"more than 200|recursion|not JSON"):
        parse_schema(f'{{"type":"struct","fields":[{field}]}}')
    txlog.write(tmp_path, ROWS)
    held = txlog.Table(tmp_path)
    for text in ("(" * 3000 + "a" + ")" * 3000, "NOT " * 3000 + "a = 1", "-" * 3000 + "a = 1"):
        with pytest.raises(txlog.InvalidInputError, match=r"nested|not a SQL"):
            held.count(text)
    for text in (
        "a = 1" + " BETWEEN false AND true" * 48,  # Each level repeats the one below it twice.
        "NULLIF(" * 16 + "a" + ", 1)" * 16 + " = 1",
        "CASE " * 10 + "a = 1" + " WHEN true THEN 1 WHEN false THEN 0 WHEN a THEN 2 END" * 10,
    ):
        began = time.process_time()
        with pytest.raises(txlog.InvalidInputError, match="too large"):
            held.count(text)
        with pytest.raises(txlog.TxlogError):
            held.alter.add_constraint({"c": text})
        assert time.process_time() - began < 5
    assert (
        held.count("a BETWEEN 1 AND 2 AND CASE a WHEN 1 THEN true ELSE a BETWEEN 2 AND 3 END") == 2
    )
    value = b"\x00"
    for _ in range(5000):  # Arrays in arrays, each of one value.
        size = len(value)
        value = b"\x0f\x01" + bytes(3) + size.to_bytes(3, "little") + value
    with pytest.raises(txlog.TxlogError):
        decode_variant(b"\x01\x00\x00", value)


def test_every_statement_names_tests_that_are_there() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    ids = re.findall(r"^\| (SEC-\d+) \|", text, re.MULTILINE)
    assert ids == [f"SEC-{number}" for number in range(1, len(ids) + 1)]
    for name in re.findall(r"`([\w/]+\.py)`", text):
        assert (ROOT / name).exists() or (HERE / name).exists(), name
