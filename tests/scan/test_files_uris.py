from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.base.errors import LogCorruptError
from txlog.log.paths import decode_path
from txlog.scan.files import uris_of
from txlog.store.base import Store
from txlog.store.open import open_store, uri_of

STORES = [open_store("/data/t"), open_store("memory://t/u"), open_store("/")]

steps = st.sampled_from(
    ["a", "p=1", "%20b", "x%3A1", "é", ".", "..", "", ".hidden", "a..b", "c:d", "f.parquet"]
)
starts = st.sampled_from(
    ["", "", "", "/", "//", "file:/", "file:///", "file://localhost/", "s3://b/", "https://h/",
     "memory://", "FILE:/"]
)  # fmt: skip
paths = st.builds(
    lambda start, names: start + "/".join(names), starts, st.lists(steps, min_size=1, max_size=4)
)


def one_by_one(store: Store, texts: list[str]) -> list[str] | str:
    try:
        return [uri_of(store, decode_path(text)) for text in texts]
    except LogCorruptError as error:
        return str(error)


def as_column(store: Store, column: pa.Array | pa.ChunkedArray) -> list[str] | str:
    try:
        return uris_of(store, column)
    except LogCorruptError as error:
        return str(error)


@pytest.mark.parametrize("store", STORES, ids=lambda store: store.root)
@given(texts=st.lists(paths, max_size=6), cut=st.integers(0, 6))
def test_a_column_of_paths_means_what_each_of_them_means(
    store: Store, texts: list[str], cut: int
) -> None:
    expected = one_by_one(store, texts)
    assert as_column(store, pa.array(texts, pa.string())) == expected
    parts = pa.chunked_array([texts[:cut], texts[cut:]], pa.string())
    assert as_column(store, parts) == expected


def test_a_folder_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    monkeypatch.setattr(
        "txlog.scan.files.decode_path", lambda path: decoded.append(path) or decode_path(path)
    )
    store = open_store(str(tmp_path))
    texts = [f"at=10%3A{at % 2}/part-{at}.parquet" for at in range(1000)]
    plain = [f"at=1/part-{at}.parquet" for at in range(1000)]
    found = uris_of(store, pa.array(texts + plain, pa.string()))
    assert found[1] == f"{tmp_path}/at=10:1/part-1.parquet"
    assert found[1999] == f"{tmp_path}/at=1/part-999.parquet"
    assert len(decoded) == 2
