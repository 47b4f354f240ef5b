"""Variants of tables that other engines wrote."""

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus import NEEDS_CORPUS, Case, cases, rows_sha256

from txlog.variant.arrays import variant_to_json
from txlog.variant.shredding import unshred

pytestmark = NEEDS_CORPUS
TABLES = {case.name: case for case in cases() if "variant" in case.index["types"].split(",")}


def read(case: Case) -> pa.Table:
    files = [pq.read_table(path, partitioning=None) for path in sorted(case.path.glob("*.parquet"))]
    return pa.concat_tables(files).combine_chunks()


def is_variant(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and "metadata" in [field.name for field in kind]


def plain(table: pa.Table) -> pa.Table:
    for at, field in enumerate(table.schema):
        if is_variant(field.type):
            found = pa.chunked_array([unshred(chunk) for chunk in table[at].chunks])
            table = table.set_column(at, field.name, found)
    return table


@pytest.mark.parametrize(
    "name",
    [
        "delta_kernel_defaults/spark-shredded-variant-preview-delta",
        "delta_rs/spark-shredded-variant-preview-delta",
        "duckdb/variant/basic",
        "trino/databricks153/variant_types",
        "trino/databricks154/test_variant_null",
    ],
)
def test_rows_hash_as_other_engines_read_them(name: str) -> None:
    case = TABLES[name]
    (answer,) = [r["answer"] for r in case.references if r["is_latest"]]
    assert rows_sha256(plain(read(case))) == answer["rows_sha256"]


def texts(name: str) -> dict[str, list[Any]]:
    table = plain(read(TABLES[name]))
    return {
        field.name: variant_to_json(table[field.name]).to_pylist()
        for field in table.schema
        if is_variant(field.type)
    }


def test_shredded_files_of_spark() -> None:
    table = read(TABLES["delta_spark/variant-stats-with-struct-no-checkpoint"])
    kind = table["v"].type
    assert "typed_value" in [field.name for field in kind]
    found = variant_to_json(plain(table)["v"]).to_pylist()
    assert found == [f'{{"key":{s["i"]}}}' for s in table["s"].to_pylist()]
    assert len(found) == 10


def test_every_type_that_databricks_wrote() -> None:
    assert texts("trino/databricks153/variant_types") == {
        "col_boolean": ["true"],
        "col_long": ["1"],
        "col_float": ["0.2"],
        "col_double": ["0.3"],
        "col_decimal": ["0.4"],
        "col_string": ['"test data"'],
        "col_binary": ['"ZWg/"'],
        "col_date": ['"2021-02-03"'],
        "col_timestamp": ['"2001-08-22 01:02:03.321+00:00"'],
        "col_timestampntz": ['"2021-01-02 12:34:56.123456"'],
        "col_array": ["[1]"],
        "col_map": ['{"key1":1,"key2":2}'],
        "col_struct": ['{"x":1}'],
    }


def test_what_duckdb_is_tested_with() -> None:
    assert texts("duckdb/variant/basic") == {"data": ['{"a":"test","b":[21,"test",true,{"c":42}]}']}
