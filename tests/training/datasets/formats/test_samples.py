"""Samples whose contents lie beside the rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.moved import moved
from tests.training.datasets.formats.test_webdataset import image
from txlog.base.errors import SchemaMismatchError
from txlog.training import Datasets, InlineRunner
from txlog.training.datasets.formats import samples
from txlog.training.datasets.formats.samples import as_samples
from txlog.training.datasets.limits import Limits

CUT = "txlog.training.datasets.formats.samples:_CUT_BYTES"


@pytest.mark.spec("DST-58")
@settings(max_examples=examples(50), deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=30),
    cut=st.integers(1, 20),
    has_size=st.booleans(),
)
def test_contents_beside_the_rows_are_read_a_few_bytes_at_a_time(
    sizes: Any, cut: int, has_size: bool
) -> None:
    names = [str(number) for number in range(len(sizes))]
    contents = {name: b"x" * size for name, (size, _) in zip(names, sizes, strict=True)}
    beside = [is_beside for _, is_beside in sizes]
    pairs = list(zip(names, beside, strict=True))
    columns = {
        "name": pa.array(names, pa.string()),
        "content": pa.array([None if away else contents[n] for n, away in pairs], pa.binary()),
        "uri": pa.array([n if away else None for n, away in pairs], pa.string()),
    }
    if has_size:
        columns["size"] = pa.array([len(contents[name]) for name in names], pa.int64())
    rows = pa.table(columns).to_reader()
    with moved({CUT: cut}):
        found = list(as_samples(rows, None, None, lambda uri: contents[uri]))
    given = [row for batch in found for row in batch.to_pylist()]
    assert [(row["name"], row["content"]) for row in given] == list(contents.items())
    for batch in found:
        read = [len(row["content"]) for row in batch.to_pylist() if beside[int(row["name"])]]
        assert sum(read[:-1]) < cut
        assert has_size or len(read) <= 1


def beside(sizes: list[int | None], *, has_size: bool) -> pa.RecordBatchReader:
    """Return examples of some sizes. Every second one lies beside the rows."""
    count = len(sizes)
    away = [at % 2 == 1 for at in range(count)]
    columns = {
        "filename": pa.array([f"{at}.png" for at in range(count)]),
        "content": pa.array([None if away[at] else b"y" * (sizes[at] or 0) for at in range(count)]),
        "uri": pa.array([str(at) if away[at] else None for at in range(count)], pa.string()),
    }
    if has_size:
        columns["size"] = pa.array(sizes, pa.int64())
    return pa.table(columns).to_reader()


@pytest.mark.spec("DST-58")
@settings(max_examples=examples(50), deadline=None)
@given(sizes=st.lists(st.integers(0, 12), max_size=20), has_size=st.booleans())
def test_contents_beyond_what_a_column_holds_are_refused_or_in_batches_of_their_own(
    sizes: list[int], has_size: bool
) -> None:
    read: list[int] = []

    def content_of(uri: str) -> bytes:
        read.append(int(uri))
        return b"x" * sizes[int(uri)]

    most = 10
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(samples, "_MOST_BYTES", most)
        batches = iter(as_samples(beside(sizes, has_size=has_size), None, None, content_of))
        found: list[dict[str, Any]] = []
        wrong = next((at for at, size in enumerate(sizes) if at % 2 and size > most), None)
        if wrong is None:
            for batch in batches:
                rows = batch.to_pylist()
                held = sum(len(row["content"]) for row in rows)
                assert (
                    held <= most
                    or len(rows) == 1
                    or not any(int(row["filename"][:-4]) % 2 for row in rows)
                )
                found += rows
            assert [len(row["content"]) for row in found] == sizes
            return
        with pytest.raises(SchemaMismatchError) as caught:
            found.extend(row for batch in batches for row in batch.to_pylist())
    assert f"row {wrong + 1}, '{wrong}.png', has a content of {sizes[wrong]} bytes, 10 are" in str(
        caught.value
    )
    assert caught.value.field == "content"
    # Its size says so before it is read.
    assert (wrong in read) != has_size


@pytest.mark.spec("DST-58")
@pytest.mark.parametrize("form", ["webdataset", "huggingface", "imagefolder", "tfrecord"])
def test_an_export_names_the_example_that_is_too_large(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if form == "tfrecord":
        pytest.importorskip("crc32c")
    folder = tmp_path / "in" / "rose"
    folder.mkdir(parents=True)
    for seed in range(3):
        (folder / f"{seed}.png").write_bytes(image(seed))
    large = (folder / "1.png").stat().st_size + 100
    with (folder / "1.png").open("ab") as file:
        file.write(bytes(large - file.tell()))
    datasets = Datasets(tmp_path / "root", runner=InlineRunner(), limits=Limits(row_bytes=1))
    made = datasets.create("roses", "IMAGE_CLASS", tmp_path / "in").prepare()
    monkeypatch.setattr(samples, "_MOST_BYTES", large - 1)
    with pytest.raises(SchemaMismatchError, match=f"'1.png', has a content of {large} bytes"):
        made.export(tmp_path / "out", form)
    assert not [path for path in tmp_path.glob("out/**/*") if path.is_file()]
    monkeypatch.setattr(samples, "_MOST_BYTES", large)
    assert made.export(tmp_path / "out", form)
