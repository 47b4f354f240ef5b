"""CSV compared with Python's `csv`, as a whole and in chunks of any size."""

import csv
import io
from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.base.errors import SchemaMismatchError, UnsupportedFeatureError
from txlog.training.datasets.limits import Limits
from txlog.training.datasets.types.csv_rows import csv_bytes, read_csv

TEXT = st.text(st.sampled_from('ab",;\r\n é𝄞\t'), max_size=6)
ROWS = st.lists(st.lists(TEXT, min_size=1, max_size=4), max_size=6)


def rows_of(data: bytes, size: int = 1 << 20, limits: Limits | None = None) -> list[list[str]]:
    chunks = (data[at : at + size] for at in range(0, len(data), size))
    found = []
    for rows in read_csv(chunks, "x.csv", limits or Limits()):
        fields = rows.fields.to_pylist()
        places = rows.starts.tolist()
        found += [fields[a:b] for a, b in pairwise(places)]
    return found


@given(rows=ROWS, end=st.sampled_from(["\n", "\r\n", "\r"]), size=st.integers(1, 40))
@example([["a", '"'], ["", ""]], "\r\n", 1)
@settings(max_examples=examples(300))
@pytest.mark.spec("DST-51")
def test_what_python_writes_is_read(rows: list[list[str]], end: str, size: int) -> None:
    sink = io.StringIO()
    csv.writer(sink, lineterminator=end, quoting=csv.QUOTE_ALL).writerows(rows)
    data = sink.getvalue().encode()
    # An empty field in quotes, alone, makes a row; a blank line makes none.
    assert rows_of(data, size) == rows


@given(rows=ROWS, size=st.integers(1, 40))
@settings(max_examples=examples(300))
def test_fields_without_needless_quotes_are_read_as_python_reads_them(
    rows: list[list[str]], size: int
) -> None:
    sink = io.StringIO()
    csv.writer(sink, lineterminator="\n").writerows(rows)
    text = sink.getvalue()
    expected = [
        row
        for row in csv.reader(io.StringIO(text, newline=""))
        if "".join(row).strip(" \t") or len(row) > 1
    ]
    plain = [
        row for row in rows_of(text.encode(), size) if "".join(row).strip(" \t") or len(row) > 1
    ]
    assert plain == expected


@given(data=st.binary(max_size=40), size=st.integers(1, 9))
@example(b'a,"\n\n"', 1)
@settings(max_examples=examples(300))
def test_any_bytes_are_rows_or_one_clear_error(data: bytes, size: int) -> None:
    def outcome(size: int) -> list[list[str]] | str:
        try:
            return rows_of(data, size)
        except SchemaMismatchError as error:
            return str(error)

    assert outcome(size) == outcome(1 << 20)  # Wherever chunks end.


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'a,b\n\nc,"d\nx,y\n', "row 2, column 2 (line 3) of x.csv: a quote is not closed"),
        (b'a,b\n5" x,l\n"a",b\n', "row 2, column 1 (line 2) of x.csv: a quote is in the middle"),
        (b'"b"c\n', "a quote is in the middle"),
        (b'a,"b"c"d"\n', "row 1, column 2 (line 1) of x.csv: a quote is in the middle"),
        (b"a,b\nx\xff,y\n", "row 2, column 1 (line 2) of x.csv: it is not UTF-8: byte 0xff"),
        (b"a,b\nc,d\0\n", "row 2, column 2 (line 2) of x.csv: it has a NUL character"),
        ("a,b".encode("utf-16"), "x.csv: it is UTF-16, UTF-8 was expected"),
        (b"a,b\n" + b"," * 1001 + b"\n", "row 2 (line 2) of x.csv: it has more than 1000 fields"),
    ],
)
@pytest.mark.spec("DST-51")
def test_what_breaks_the_rules_is_named(data: bytes, words: str) -> None:
    for size in (1, 7, 1 << 20):
        with pytest.raises(SchemaMismatchError) as caught:
            rows_of(data, size)
        assert words in str(caught.value)


def test_a_byte_order_mark_is_no_text() -> None:
    assert rows_of("\ufeffhello,a\n".encode()) == [["hello", "a"]]


@pytest.mark.parametrize("start", [b"a,b\n", b'a,b\n"', b"a,b\nx,"])
def test_a_gigantic_field_is_refused_before_it_is_in_memory(start: bytes) -> None:
    read = 0

    def endless() -> Iterator[bytes]:
        nonlocal read
        yield start
        while True:
            read += 1 << 16
            yield b"x" * (1 << 16)

    with pytest.raises(SchemaMismatchError, match=r"row 2, column . .*more than 65536 bytes"):
        list(read_csv(endless(), "x.csv", Limits(field_bytes=1 << 16)))
    assert read < 1 << 18


@given(
    rows=st.lists(
        st.tuples(
            st.none() | TEXT,
            st.none() | st.lists(st.integers(0, 9), max_size=3),
            st.none() | st.floats(),
        ),
        max_size=5,
    )
)
@settings(max_examples=examples(200))
def test_what_is_written_python_reads(
    rows: list[tuple[str | None, list[int] | None, float | None]],
) -> None:
    texts, ids, numbers = zip(*rows, strict=True) if rows else ((), (), ())
    kinds = [pa.string(), pa.list_(pa.int32()), pa.float64()]
    columns = [pa.array(c, k) for c, k in zip((texts, ids, numbers), kinds, strict=True)]
    batch = pa.record_batch(columns, names=["t", "i", "n"])
    written = csv_bytes(batch) + csv_bytes(batch.slice(1))
    found = list(csv.reader(io.StringIO(written.decode(), newline="")))
    assert [row[0] for row in found] == [t or "" for t in (*texts, *texts[1:])]
    assert [row[1] for row in found] == [";".join(map(str, i or ())) for i in (*ids, *ids[1:])]
    assert [row[2] == "" for row in found] == [n is None for n in (*numbers, *numbers[1:])]
    for name, values in zip("tin", (texts, ids, numbers), strict=True):
        lines = csv_bytes(batch.select([name])).decode()
        found = list(csv.reader(io.StringIO(lines, newline="")))
        assert len(found) == len(values)  # No row is an empty line, which readers skip.
        assert all(len(row) == 1 for row in found)
    nulls = pa.record_batch([pa.array([None, []], kinds[1]), pa.array([1, 2])], names=["i", "n"])
    assert csv_bytes(nulls) == b',1\n"",2\n'


def test_bytes_have_no_text() -> None:
    batch = pa.record_batch([pa.array([b"x"])], names=["content"])
    with pytest.raises(UnsupportedFeatureError, match="the column content of type binary"):
        csv_bytes(batch)
