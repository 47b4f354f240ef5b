"""Variants compared with Spark's engine: its JSON text, and the files that it shreds."""

import json
import random
import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from txlog.variant.arrays import variant_to_json
from txlog.variant.builder import encode_variant
from txlog.variant.shredding import unshred

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NO_NAMES = b"\x01\x00\x00"
SHREDDING = "spark.sql.variant.writeShredding.enabled"
INFER = "spark.sql.variant.inferShreddingSchema"
FORCE = "spark.sql.variant.forceShreddingSchemaForTest"
CASTS = [
    "true", "1", "1.0D", "1e7D", "0.001D", "9.9e-4D", "double('NaN')", "double('-Infinity')",
    "-0.0D", "1.1F", "float(16777216)", "float('NaN')", "1.10BD", "100BD", "1e-20BD",
    "date'2020-01-31'", "date'0000-01-01'", "date'-0044-03-15'", "date'+12345-01-01'",
    "timestamp'2020-01-01 10:00:00'", "timestamp'2020-01-01 10:00:00.5'",
    "timestamp'-0044-03-15 01:02:03.000001'", "timestamp'+12345-01-01 00:00:00'",
    "timestamp_ntz'2020-01-01 10:00:00.120'", "timestamp_ntz'0001-01-01 00:00:00'",
    "X'00ff'", "''", "array(1, null, 2)", "cast(null as variant)",
    r"""parse_json('{"b":[1,1.5,1.50,1e3,"é\\u0001\\n\\"\\\\/😀"],"a":{"":{},"z":[]}}')""",
]  # fmt: skip
SCHEMAS = [
    None,
    "a bigint",
    "string",
    "array<int>",
    "a tinyint, b string, c boolean, d double, e decimal(10,2)",
    "a string, b struct<a int, b array<string>, d struct<x int>>, e struct<a int>",
    "a array<struct<a int, b string>>, c array<array<decimal(5,1)>>, d decimal(20,3), e date",
]


def texts(values: list[tuple[bytes, bytes]]) -> list[str | None]:
    rows = pa.array([{"metadata": metadata, "value": value} for metadata, value in values])
    found: list[str | None] = variant_to_json(rows).to_pylist()
    return found


def spark_texts(spark: "SparkSession", values: list[tuple[bytes, bytes]]) -> list[str | None]:
    from pyspark.sql.types import VariantVal

    rows = [(at, VariantVal(value, metadata)) for at, (metadata, value) in enumerate(values)]
    frame = spark.createDataFrame(rows, "at int, v variant").selectExpr("at", "to_json(v) j")
    return [row.j for row in sorted(frame.collect())]


def test_casts_print_alike(spark: "SparkSession") -> None:
    columns = ", ".join(
        f"cast({cast} as variant) v{at}, to_json(cast({cast} as variant)) j{at}"
        for at, cast in enumerate(CASTS)
    )
    row = spark.sql(f"select {columns}").collect()[0]
    for at, cast in enumerate(CASTS):
        variant, text = row[f"v{at}"], row[f"j{at}"]
        if variant is None:
            assert text is None, cast
        else:
            assert texts([(variant.metadata, variant.value)]) == [text], cast


def primitive(kind: int, form: str, *numbers: Any) -> tuple[bytes, bytes]:
    return NO_NAMES, bytes([kind << 2]) + struct.pack(f"<{form}", *numbers)


def test_bytes_print_alike(spark: "SparkSession") -> None:
    values = [
        *(primitive(11, "i", days) for days in (2**31 - 1, -(2**31), -719_528, -719_529)),
        *(primitive(kind, "q", n) for kind in (12, 13) for n in (2**63 - 1, -(2**63), -1)),
        *(primitive(8, "Bi", *n) for n in ((2, 110), (0, 100), (9, 0), (3, -5), (9, 1))),
        primitive(10, "B16s", 38, (10**38 - 1).to_bytes(16, "little")),
        (NO_NAMES, bytes([20 << 2, *range(16)])),
        encode_variant("".join(map(chr, range(128))) + "é\u2028\uffee😀"),
        encode_variant({"b": [1, {}, []], "": None, 'q"\n': {"é": "x" * 100}}),
        encode_variant([{f"k{at}": at} for at in range(300)]),
        encode_variant({f"k{at}": [at] * 300 for at in range(300)}),
    ]
    assert spark_texts(spark, values) == texts(values)


def test_numbers_print_alike(spark: "SparkSession") -> None:
    """An old Java prints some numbers with more digits than needed; those are equal as numbers."""
    draw = random.Random(4)
    doubles = [draw.uniform(-1, 1) * 10 ** draw.randint(-12, 12) for _ in range(300)]
    doubles += [round(number, 3) for number in doubles] + [5e-324, 1.7976931348623157e308]
    values = [primitive(7, "d", number) for number in doubles]
    values += [primitive(14, "f", number) for number in doubles if abs(number) < 1e38]
    values += [
        (NO_NAMES, bytes([14 << 2]) + draw.randbytes(3) + bytes([draw.randrange(127)]))
        for _ in range(300)
    ]
    old = 0
    for theirs, ours, (_, value) in zip(
        spark_texts(spark, values), texts(values), values, strict=True
    ):
        assert ours is not None
        assert theirs is not None
        if ours != theirs:
            old += 1
            form = "<d" if value[0] == 7 << 2 else "<f"
            assert struct.pack(form, float(ours)) == struct.pack(form, float(theirs))
            assert len(ours) <= len(theirs)
    java = spark.sparkContext._jvm.System.getProperty("java.version")
    # Java before 19 has digits too many; later ones prefer two digits to one (4.9E-324).
    share = 5 if int(re.split(r"\D", java)[0]) < 19 else 100
    assert old < len(values) / share


def some_value(draw: random.Random, depth: int) -> Any:
    match draw.randrange(9 if depth else 7):
        case 0:
            return None
        case 1:
            return draw.choice([True, False])
        case 2 | 3:
            return draw.choice([0, 1, -7, 130, 70_000, 2**40])
        case 4:
            return draw.choice([1.5, 0.25, 100.125, -3.1])  # Decimals, to Spark.
        case 5 | 6:
            return draw.choice(["", "x", "2020-01-31", "é😀", "long " * 20])
        case 7:
            return [some_value(draw, depth - 1) for _ in range(draw.randrange(4))]
    return {name: some_value(draw, depth - 1) for name in draw.sample("abcde", draw.randrange(6))}


@pytest.fixture(scope="module")
def documents(
    spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[Any]]:
    draw = random.Random(11)
    made = [some_value(draw, 3) for _ in range(200)]
    path = tmp_path_factory.mktemp("documents") / "rows.json"
    lines = [{"at": at, "t": json.dumps(value)} for at, value in enumerate(made)]
    path.write_text("\n".join(map(json.dumps, [*lines, {"at": len(made), "t": None}])))
    return path, made


@pytest.mark.slow
@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_files_that_spark_shreds(
    spark: "SparkSession", tmp_path: Path, documents: tuple[Path, list[Any]], schema: str | None
) -> None:
    path, made = documents
    text = "t"
    if schema is None:  # Spark infers a schema of objects that have something in common.
        text = """concat('{"n":', at, ',"tags":["x"],"doc":', t, '}')"""
        made = [{"n": at, "tags": ["x"], "doc": value} for at, value in enumerate(made)]
    settings = {SHREDDING: "true", INFER: str(schema is None).lower(), FORCE: schema or ""}
    for name, setting in settings.items():
        spark.conf.set(name, setting)
    try:
        rows = spark.read.schema("at int, t string").json(str(path))
        rows = rows.selectExpr("at", f"parse_json({text}) v").coalesce(1)
        rows.write.parquet(str(tmp_path / "out"))
    finally:
        for name in settings:
            spark.conf.unset(name)
    expected = spark.read.parquet(str(tmp_path / "out")).selectExpr("at", "to_json(v) j")
    table = pq.read_table(tmp_path / "out")
    assert "typed_value" in [field.name for field in table["v"].type]
    found = pa.chunked_array([unshred(chunk) for chunk in table["v"].chunks])
    ours = variant_to_json(found).to_pylist()
    assert ours == [row.j for row in sorted(expected.collect())]
    assert [json.loads(text) for text in ours[:-1]] == made
    assert ours[-1] is None
    judged = [(row["metadata"], row["value"]) for row in found.to_pylist()[:-1]]
    assert spark_texts(spark, judged) == ours[:-1]
