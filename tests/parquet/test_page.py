"""Rows read by their pages, compared with pyarrow's reading of the file."""

from __future__ import annotations

import random
import shutil
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.parquet.encryption import (
    CryptoFactory,
    EncryptionConfiguration,
    KmsClient,
    KmsConnectionConfig,
)

import txlog
from tests.examples import examples
from txlog.base.threads import BoundedCache
from txlog.parquet.footer import PageStarts, parse_footer, parse_offset_indexes
from txlog.parquet.miniature import merge_ranges
from txlog.parquet.page import page_header, rows_of_page
from txlog.parquet.thrift import Cursor, ThriftError
from txlog.parquet.values import read_dictionary, values_array, values_of_page
from txlog.scan.pages import FooterCache, load_paged
from txlog.store.open import open_store

ROWS = 1_200


def sample(seed: int, rows: int = ROWS) -> pa.Table:
    """Return columns of many types, with nulls, nesting, and few and many distinct values."""
    draw = random.Random(seed)

    def some(make: Callable[[int], Any], nulls: float = 0.1) -> list[Any]:
        return [None if draw.random() < nulls else make(row) for row in range(rows)]

    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "number": pa.array(some(lambda _: draw.getrandbits(60)), pa.int64()),
            "few": some(lambda _: f"name {draw.randrange(20)}"),
            "text": some(lambda row: f"{row} " * draw.randrange(8)),
            "double": some(lambda _: draw.random()),
            "truth": some(lambda _: draw.random() < 0.5),
            "list": some(lambda _: [draw.randrange(9) for _ in range(draw.randrange(5))]),
            "struct": some(lambda row: {"x": row, "y": [str(row)] * draw.randrange(3)}),
            "deep": pa.array(
                some(lambda row: [[row] * draw.randrange(3) for _ in range(draw.randrange(3))]),
                pa.list_(pa.list_(pa.int64())),
            ),
            "map": pa.array(
                some(lambda row: [("k", row), ("l", None)][: draw.randrange(3)]),
                pa.map_(pa.string(), pa.int64()),
            ),
            "when": pa.array(some(lambda row: row * 10**9), pa.timestamp("us", "UTC")),
            "money": pa.array(some(lambda _: draw.randrange(10**6)), pa.int64()).cast(
                pa.decimal128(20, 0)
            ),
            "price": pa.array(some(lambda _: draw.randrange(-999, 999)), pa.int64()).cast(
                pa.decimal128(19, 0)
            ).cast(pa.decimal128(5, 1)),
            "byte": pa.array(some(lambda _: draw.randrange(-128, 128)), pa.int8()),
            "short": pa.array(some(lambda _: draw.randrange(-9, 9), 0.9), pa.int16()),
            "day": pa.array(some(lambda row: row - 600), pa.int32()).cast(pa.date32()),
            "single": pa.array(some(lambda row: row / 4), pa.float32()),
            "bytes": pa.array(some(lambda row: bytes([row % 256]) * 9), pa.binary()),
            "nothing": pa.array([None] * rows, pa.string()),
        }
    )  # fmt: skip


forms = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["none", "snappy", "zstd", "lz4", "gzip", "brotli"]),
        "use_dictionary": st.sampled_from(
            [True, False, ["few"], ["few", "id", "list.list.element"]]
        ),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "max_rows_per_page": st.sampled_from([20, 256, 20_000]),
        "data_page_size": st.sampled_from([256, 4_096, 1 << 20]),
        "dictionary_pagesize_limit": st.sampled_from([128, 1 << 20]),
        "row_group_size": st.sampled_from([400, 1_000, ROWS]),
        "write_page_checksum": st.booleans(),
        "store_schema": st.booleans(),
        "store_decimal_as_integer": st.booleans(),
    }
)


@pytest.mark.slow
@pytest.mark.spec("LKP-5")
@given(form=forms, seed=st.integers(0, 3), positions=st.sets(st.integers(0, ROWS - 1), max_size=40))
@settings(max_examples=examples(120), deadline=None)
def test_rows_by_pages_are_those_of_a_whole_read(
    tmp_path_factory: pytest.TempPathFactory, form: dict[str, Any], seed: int, positions: set[int]
) -> None:
    folder = tmp_path_factory.mktemp("pages")
    path = folder / "file.parquet"
    table = sample(seed)
    pq.write_table(table, path, write_page_index=True, **form)
    paged = load_paged(open_store(folder), path.name, path.stat().st_size)
    assert paged is not None
    assert paged.footer.rows == ROWS
    asked = np.array(sorted(positions), np.int64)
    whole = pq.read_table(path, use_threads=False)
    columns = random.Random(seed + len(positions)).sample(table.column_names, 5)
    if len(asked):
        found = paged.read_rows(columns, asked)
        if found is not None:
            assert found.equals(whole.select(columns).take(pa.array(asked)))
        elif len(asked) < 5 and form["max_rows_per_page"] <= 20:
            assert found is not None, "few rows of small pages are not read by row groups"


FLAT = {"id", "number", "few", "text", "double", "truth", "when", "money", "price", "byte", "short",
        "day", "single", "bytes", "nothing"}  # fmt: skip


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd", "lz4"])
@pytest.mark.parametrize("is_optional", [True, False])
def test_values_of_flat_columns_are_read_without_pyarrow(
    tmp_path: Path, codec: str, is_optional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = sample(2)
    if not is_optional:
        table = table.drop_columns(["nothing"])
        filled = pa.table([column.fill_null(column.drop_null()[0]) for column in table.columns
                           if not pa.types.is_nested(column.type)],
                          names=[name for name in table.column_names if name in FLAT])  # fmt: skip
        table = filled.cast(pa.schema([one.with_nullable(False) for one in filled.schema]))
    path = tmp_path / "file.parquet"
    pq.write_table(
        table, path, write_page_index=True, max_rows_per_page=50, compression=codec,
        use_dictionary=["few", "day", "price"], write_page_checksum=True,
    )  # fmt: skip
    paged = load_paged(open_store(tmp_path), path.name, path.stat().st_size)
    assert paged is not None
    monkeypatch.setattr("txlog.scan.pages.miniature", None)
    asked = np.array([0, 7, 49, 51, 600, 1_199], np.int64)
    columns = sorted(FLAT & set(table.column_names))
    for _ in range(2):  # The second time, dictionaries are known.
        found = paged.read_rows(columns, asked)
        assert found is not None
        assert found.equals(table.select(columns).take(pa.array(asked)).cast(found.schema))


@pytest.mark.spec("LKP-5")
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])
@pytest.mark.parametrize("column", ["id", "few", "text", "deep", "list"])
def test_a_page_has_the_rows_that_its_offset_index_says(
    tmp_path: Path, column: str, codec: str, version: Literal["1.0", "2.0"]
) -> None:
    path = tmp_path / "file.parquet"
    table = sample(1).select([column])
    pq.write_table(
        table, path, write_page_index=True, max_rows_per_page=50, compression=codec,
        data_page_version=version, use_dictionary=["few"],
    )  # fmt: skip
    paged = load_paged(open_store(tmp_path), path.name, path.stat().st_size)
    assert paged is not None
    asked = np.array([3, 120], np.int64)
    right = table.take(pa.array(asked))
    assert right.equals(paged.read_rows([column], asked))
    pages = paged.footer.pages(0, 0)
    assert pages is not None
    pages.first_row[2] += 1  # Now rows of the page are others.
    assert paged.read_rows([column], asked) is None


def test_pages_that_only_pyarrow_decodes_are_left_to_it(tmp_path: Path) -> None:
    """The first attempt finds encodings that are not read here; the next one knows."""
    path = tmp_path / "file.parquet"
    table = sample(1).select(["id", "text", "few"])
    pq.write_table(
        table, path, write_page_index=True, max_rows_per_page=50, use_dictionary=["few"],
        column_encoding={"id": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY"},
    )  # fmt: skip
    paged = load_paged(open_store(tmp_path), path.name, path.stat().st_size)
    assert paged is not None
    asked = np.array([3, 700], np.int64)
    for _ in range(2):
        found = paged.read_rows(["few", "id", "text"], asked)
        assert found is not None
        assert found.equals(table.select(["few", "id", "text"]).take(pa.array(asked)))


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["none", "snappy", "zstd", "lz4"])
def test_a_flipped_bit_of_a_page_is_noticed(tmp_path: Path, codec: str) -> None:
    """Every bit of a page and its header: the right rows, or none from here."""
    path = tmp_path / "file.parquet"
    table = sample(1).select(["number", "few", "text", "truth"])
    pq.write_table(
        table, path, write_page_index=True, max_rows_per_page=50, use_dictionary=["few"],
        write_page_checksum=True, compression=codec,
    )  # fmt: skip
    data = bytearray(path.read_bytes())
    store, asked = open_store(tmp_path), np.array([3, 49], np.int64)
    clean = load_paged(store, path.name, len(data))
    assert clean is not None
    right = table.take(pa.array(asked))
    assert right.equals(clean.read_rows(table.column_names, asked))
    draw = random.Random(5)
    refused = 0
    for leaf in range(4):
        pages = clean.footer.pages(0, leaf)
        assert pages is not None
        start = clean.footer.row_group(0).chunks[leaf].start
        for bit in draw.sample(range(8 * start, 8 * int(pages.offset[0] + pages.size[0])), 60):
            data[bit >> 3] ^= 1 << (bit & 7)
            path.write_bytes(data)
            paged = load_paged(store, path.name, len(data))
            assert paged is not None
            try:
                found = paged.read_rows(table.column_names, asked)
            except (pa.ArrowException, OSError):
                found = None
            refused += found is None
            assert found is None or found.equals(right)
            data[bit >> 3] ^= 1 << (bit & 7)
    assert refused > 150


def polars_file(path: Path, table: pa.Table) -> None:
    frame = pl.DataFrame(table.select(["id", "number", "few", "text", "double", "list"]))
    frame.write_parquet(path, row_group_size=1_000, data_page_size=1_000)


def duckdb_file(path: Path, table: pa.Table) -> None:
    some = table.select(["id", "number", "few", "text", "double", "list", "struct"])
    connection = duckdb.connect()
    connection.register("rows_to_write", some)
    connection.execute(f"copy rows_to_write to '{path}' (format parquet, row_group_size 2048)")


def deltalake_file(path: Path, table: pa.Table) -> None:
    import deltalake

    some = table.select(["id", "number", "few", "text", "double", "list", "struct", "map"])
    properties = deltalake.WriterProperties(
        data_page_row_count_limit=100, max_row_group_size=1_000, write_batch_size=50
    )
    deltalake.write_deltalake(path.parent / "t", some, writer_properties=properties)
    (file,) = (path.parent / "t").glob("*.parquet")
    file.rename(path)
    shutil.rmtree(path.parent / "t")


@pytest.mark.parametrize("write", [polars_file, duckdb_file, deltalake_file])
def test_files_of_other_writers(tmp_path: Path, write: Callable[[Path, pa.Table], None]) -> None:
    path = tmp_path / "file.parquet"
    write(path, sample(1))
    whole = pq.read_table(path, use_threads=False)
    paged = load_paged(open_store(tmp_path), path.name, path.stat().st_size)
    assert paged is not None
    asked = np.array([0, 7, 999, 1_000, 1_199], np.int64)
    found = paged.read_rows(whole.column_names, asked)
    if write is deltalake_file:
        assert found is not None
    if found is not None:
        assert found.equals(whole.take(pa.array(asked)))
    table = txlog.convert_to_delta(tmp_path)
    rows = table.take([1_199, 7, 7, 1_000])
    assert rows.equals(table.to_arrow().take(pa.array([1_199, 7, 7, 1_000])))


class _Keys(KmsClient):  # type: ignore[misc]
    def wrap_key(self, key_bytes: bytes, _: str) -> str:
        return key_bytes.hex()

    def unwrap_key(self, wrapped_key: str, _: str) -> bytes:
        return bytes.fromhex(wrapped_key)


@pytest.mark.parametrize("plaintext_footer", [True, False])
def test_encrypted_files_have_no_pages_by_themselves(
    tmp_path: Path, plaintext_footer: bool
) -> None:
    path = tmp_path / "file.parquet"
    table = sample(1).select(["id", "number"])
    config = EncryptionConfiguration(
        footer_key="f", column_keys={"c": ["number"]}, plaintext_footer=plaintext_footer
    )
    properties = CryptoFactory(lambda _: _Keys()).file_encryption_properties(
        KmsConnectionConfig(), config
    )
    with pq.ParquetWriter(
        path, table.schema, encryption_properties=properties, write_page_index=True
    ) as writer:
        writer.write_table(table)
    assert load_paged(open_store(tmp_path), path.name, path.stat().st_size) is None


def mutated(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice([1, 1, 2, 5])):
        match draw.randrange(4):
            case 0:
                changed[draw.randrange(len(changed))] = draw.randrange(256)
            case 1:
                changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
            case 2:
                at = draw.randrange(len(changed))
                del changed[at : at + draw.randrange(1, 9)]
            case _:
                at = draw.randrange(len(changed))
                changed[at:at] = draw.randbytes(draw.randrange(1, 9))
    return bytes(changed)


@contextmanager
def bounded_memory(most: int = 64 << 20) -> Iterator[None]:
    """Hold Python, numpy and pyarrow to so many bytes at a time."""
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    usual = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    tracemalloc.start(1)
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
        assert (pool.max_memory() or 0) < most
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(usual)


def outcome_of(read: Callable[[], pa.Table]) -> pa.Table | None:
    """Return rows, or None where txlog says that the file is damaged; nothing else is raised."""
    with suppress(txlog.DataFileError):
        return read()
    return None


def require_same_alone_and_together(data: bytes, draw: random.Random) -> None:
    """Offset indexes of a row group, some of them damaged, are parsed together as each alone."""
    footer = parse_footer(data[-8 - int.from_bytes(data[-8:-4], "little") : -8])
    group = footer.row_group(1)
    chunks = [chunk for chunk in group.chunks if chunk.index is not None]
    indexes = [data[(at := chunk.index or (0, 0))[0] : sum(at)] for chunk in chunks]
    outcomes = set()
    for turn in range(40):
        some = list(indexes)
        if turn:
            place = draw.randrange(len(some))
            some[place] = mutated(some[place], draw)
        try:
            alone: list[PageStarts] | None = [
                parse_offset_indexes([index], group.rows, [chunk])[0]
                for index, chunk in zip(some, chunks, strict=True)
            ]
        except ThriftError:
            alone = None
        try:
            with patch("txlog.parquet.footer._PARSED_AT_ONCE", draw.choice([1, 60, 1 << 20])):
                together: list[PageStarts] | None = parse_offset_indexes(some, group.rows, chunks)
        except ThriftError:
            together = None
        assert repr(together) == repr(alone)
        outcomes.add(alone is None)
    assert outcomes == {True, False}


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(2, 27))
def test_ten_thousand_damaged_footers_and_offset_indexes(tmp_path: Path, seed: int) -> None:
    with bounded_memory():
        test_damaged_footers_and_offset_indexes(tmp_path, seed)


@pytest.mark.slow
@pytest.mark.spec("LKP-5")
@pytest.mark.parametrize("seed", range(2))
def test_damaged_footers_and_offset_indexes(tmp_path: Path, seed: int) -> None:
    """The outcome is the right rows, None, or an error that is blamed on the file."""
    path = tmp_path / "file.parquet"
    table = sample(seed, 600).select(["id", "number", "few", "list"])
    pq.write_table(
        table, path, write_page_index=True, max_rows_per_page=50, row_group_size=300,
        use_dictionary=["few"], write_page_checksum=True,
    )  # fmt: skip
    data = path.read_bytes()
    footer = parse_footer(data[-8 - int.from_bytes(data[-8:-4], "little") : -8])
    first_index = min(
        chunk.index[0]
        for group in range(2)
        for chunk in footer.row_group(group).chunks
        if chunk.index is not None
    )
    asked = np.array([3, 320], np.int64)
    draw = random.Random(seed)
    require_same_alone_and_together(data, draw)
    store = open_store(tmp_path)
    txlog.convert_to_delta(tmp_path)
    right = refused = 0
    for number in range(400):
        path.write_bytes(data[:first_index] + mutated(data[first_index:-8], draw) + data[-8:])
        if number % 10 == 0:
            taken = outcome_of(lambda: txlog.Table(tmp_path).take(asked))
            assert taken in (None, table.take(pa.array(asked))) or taken == outcome_of(
                lambda: txlog.Table(tmp_path).to_arrow().take(pa.array(asked))
            )
        started = time.perf_counter()
        try:
            paged = load_paged(store, path.name, path.stat().st_size)
            found = None if paged is None else paged.read_rows(table.column_names, asked)
        except (pa.ArrowException, OSError, UnicodeDecodeError):
            found = None  # A table says which file it is, as below `outcome_of`.
        assert time.perf_counter() - started < 30  # No hang; a busy machine may be slow.
        if found is None:
            refused += 1
        elif found.equals(table.take(pa.array(asked))):
            right += 1
        else:
            # The schema itself was changed: then a whole read is changed in the same way.
            whole = pq.read_table(path, use_threads=False)
            assert found.equals(whole.select(found.column_names).take(pa.array(asked)))
    assert right > 10
    assert refused > 50


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(1, 26))
def test_ten_thousand_damaged_pages(tmp_path: Path, seed: int) -> None:
    with bounded_memory():
        test_damaged_pages(tmp_path, seed)


@pytest.mark.parametrize("seed", [0])
def test_damaged_pages(tmp_path: Path, seed: int) -> None:
    """Without checksums anything may come out of a page; but no other error, and nothing large."""
    path = tmp_path / "file.parquet"
    draw = random.Random(seed)
    for codec in ("none", "snappy", "lz4", "zstd"):
        pq.write_table(
            sample(seed, 500), path, write_page_index=True, max_rows_per_page=100,
            use_dictionary=["few", "price"], compression=codec,
        )  # fmt: skip
        data = path.read_bytes()
        paged = load_paged(open_store(tmp_path), path.name, len(data))
        assert paged is not None
        assert paged.read_rows([*FLAT, "list", "deep"], np.array([5], np.int64)) is not None
        for _ in range(100):
            name = draw.choice(sorted({*FLAT, "list", "deep"}))
            leaf = paged.footer.columns[name][0]
            pages = paged.footer.pages(0, leaf)
            assert pages is not None
            start = int(pages.offset[0])
            page = bytearray(data[start : start + int(pages.size[0])])
            for _ in range(draw.choice([1, 1, 2, 5])):
                page[draw.randrange(min(len(page), 90))] = draw.randrange(256)
            column = paged.flat_column(name)
            number = paged.footer.row_group(0).chunks[leaf].codec
            with suppress(ThriftError):
                if column is None:
                    rows_of_page(bytes(page), page_header(bytes(page)), number, 2)
                    continue
                place = paged.footer.dictionary(0, leaf)
                words = None if place is None else bytearray(data[slice(*place)])
                if words:
                    words[draw.randrange(len(words))] ^= 1 << draw.randrange(8)
                known = None if words is None else read_dictionary(bytes(words), column, number)
                values = values_of_page(bytes(page), 100, [5, 50, 99], column, number, known)
                assert values is None or len(values) == 3
                assert values is None or len(values_array(list(values), column) or ()) == 3


def test_most_pages_are_read_as_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    table = sample(1).select(["id", "text", "list"])
    pq.write_table(table, path, write_page_index=True, max_rows_per_page=100, use_dictionary=False)
    paged = load_paged(open_store(tmp_path), path.name, path.stat().st_size)
    assert paged is not None
    assert paged.read_rows(table.column_names, np.array([5, 205, 405], np.int64)) is not None
    assert paged.read_rows(table.column_names, np.arange(5, ROWS, 100)) is None
    asked = list(range(5, ROWS, 100))
    assert txlog.convert_to_delta(tmp_path).take(asked).equals(table.take(pa.array(asked)))


def test_values_that_do_not_end_are_refused() -> None:
    for damaged in (b"\x19", b"\x19\xfc\xff\xff\xff\xff\x7f", b"\x80" * 30, b"\x1c" * 40, b"\x0f"):
        with pytest.raises(ThriftError):
            Cursor(damaged).skip(12)
        with pytest.raises(ThriftError):
            parse_footer(damaged)


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 9)), max_size=20), st.integers(0, 9))
def test_merged_ranges_hold_all_bytes_once(pairs: list[tuple[int, int]], gap: int) -> None:
    merged = merge_ranges([(start, start + size) for start, size in pairs], gap=gap)
    wanted = {byte for start, size in pairs for byte in range(start, start + size)}
    held = [byte for start, stop in merged for byte in range(start, stop)]
    assert wanted <= set(held)
    assert held == sorted(set(held))
    assert all(later[0] - one[1] > gap for one, later in pairwise(merged))


def test_a_cache_of_footers_keeps_what_was_used_last(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for name in "abc":
        pq.write_table(sample(0, 10), tmp_path / name, write_page_index=True)
    cache = FooterCache(max_bytes=1)
    files = [cache.paged(store, name, (tmp_path / name).stat().st_size, name) for name in "abc"]
    assert cache.known("c", (tmp_path / "c").stat().st_size) == (files[2],)
    assert cache.known("a", (tmp_path / "a").stat().st_size) is None


def test_a_bounded_cache_keeps_what_was_used_last() -> None:
    cache: BoundedCache[int, str] = BoundedCache(100)
    for key in range(5):
        cache.put(key, str(key), 20)
    assert cache.get(0) == "0"  # Now it is the one that was used last.
    cache.put(5, "5", 20)
    assert [key for key in range(6) if cache.get(key) is not None] == [0, 4, 5]
    cache.grow(4, 90)
    assert [key for key in range(6) if cache.get(key) is not None] == [4]
    cache.grow(0, 90)
    assert cache.get(0) is None
    cache.put(4, "four", 20)
    cache.put(6, "6", 20)
    assert cache.get(4) == "four"


class TestTake:
    @pytest.fixture(scope="class")
    @classmethod
    def table(cls, tmp_path_factory: pytest.TempPathFactory) -> txlog.Table:
        data = sample(3).drop_columns(["struct", "map", "list", "deep"])
        table = txlog.Table.create(
            tmp_path_factory.mktemp("t"),
            data.schema,
            properties={"txlog.pageRows": "64", "txlog.rowGroupRows": "1000"},
        )
        table.append(data)
        table.append(data.slice(100, 500))
        table.delete("id % 7 = 3")
        return table

    def test_the_properties_shape_the_files(self, table: txlog.Table) -> None:
        sizes: Iterator[int] = iter([2, 1])
        for file in sorted(table.scan().file_uris(), key=lambda uri: -Path(uri).stat().st_size):
            path = Path(file)
            paged = load_paged(open_store(path.parent), path.name, path.stat().st_size)
            assert paged is not None
            assert paged.footer.num_row_groups == next(sizes)
            assert paged.read_rows(["id"], np.array([5], np.int64)) is not None
            pages = paged.footer.pages(0, 0)
            assert pages is not None
            assert np.diff(pages.first_row).max() <= 64

    def test_rows_by_addresses_and_offsets(self, table: txlog.Table) -> None:
        columns = [*table.schema.names, "_rowaddr", "_fragid"]
        everything = table.to_arrow(columns=columns)
        draw = random.Random(4)
        offsets = draw.sample(range(everything.num_rows), 30)
        wanted = everything.take(pa.array(offsets))
        assert table.take(offsets, columns=columns).equals(wanted)
        assert table.take(addresses=wanted["_rowaddr"].to_pylist(), columns=columns).equals(wanted)

    def test_no_row_group_is_read(
        self, table: txlog.Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By all verbs that know where rows are; `delete_rows` reads none at all."""
        everything = table.to_arrow(columns=["id", "_rowaddr"])
        addresses = everything["_rowaddr"].to_pylist()
        fragment = table.fragments()[0]
        monkeypatch.setattr("txlog.scan.data_file.OpenFile.read", None)
        monkeypatch.setattr("txlog.scan.read.FragmentReader.batches", None)
        assert table.take([700, 3], ["id"])["id"].to_pylist() == [
            everything["id"][place].as_py() for place in (700, 3)
        ]
        for names in ({"addresses": addresses[7:9]}, {"row_ids": addresses[7:9]}):
            taken = table.take(**names, columns=["id"])
            assert taken["id"].to_pylist() == everything["id"][7:9].to_pylist()
        assert fragment.take([1], ["id"]).num_rows == 1
        assert fragment.take_offsets([0], ["id"]).num_rows == 1
        monkeypatch.setattr("txlog.scan.pages.fetch", None)
        assert fragment.delete_rows([0]) is not None
