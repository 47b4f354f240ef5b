"""Answers that are sent piece by piece: they end as wholes, or not at all."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from threading import enumerate as all_threads
from time import monotonic, sleep
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.moved import moved
from tests.training.service.servers import http_client
from txlog.base.errors import StoreError
from txlog.training import Datasets, InlineRunner, TrainingSet
from txlog.training.datasets.formats.tfrecord import TFRecord
from txlog.training.service import answers

CHUNKS = "txlog.training.datasets.formats.streamed:_CHUNK_BYTES"


@pytest.fixture
def datasets(tmp_path: Path) -> Datasets:
    found = Datasets(tmp_path, runner=InlineRunner())
    found.create("d", "TABLE", pa.table({"label": ["x" * 300] * 2000}))
    return found


def threads() -> int:
    return sum(one.name == "txlog-export" for one in all_threads())


def until(is_so: Any) -> None:
    end = monotonic() + 60
    while not is_so():
        assert monotonic() < end
        sleep(0.02)


@pytest.mark.spec("DST-58", "DST-64")
@pytest.mark.parametrize("form", ["webdataset", "tfrecord"])
def test_an_export_that_breaks_off_is_no_complete_answer(
    datasets: Datasets, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = datasets.dataset("d").prepare()
    whole = TrainingSet._samples

    def breaks(self: TrainingSet) -> pa.RecordBatchReader:
        rows = whole(self)

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in rows:
                yield batch.slice(0, 1000)
                raise StoreError(operation="read", path="s3://b", reason="503 SlowDown")

        return pa.RecordBatchReader.from_batches(rows.schema, batches())

    monkeypatch.setattr(TrainingSet, "_samples", breaks)
    with moved({CHUNKS: 1000}), http_client(datasets) as client:
        parts = client.dataset("d").fetch(made.version_hash).stream(form)
        assert next(parts)
        with pytest.raises(StoreError, match="RemoteProtocolError"):
            list(parts)
        base = str(client._connection.client.base_url).rstrip("/")
        address = f"{base}/v1/datasets/d/training-sets/{made.version_hash}/export/{form}"
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(address)


@pytest.mark.spec("DST-64")
def test_an_export_ends_with_its_receiver(
    datasets: Datasets, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = datasets.dataset("d").prepare()

    def endless(self: TFRecord, rows: Any, out: Any) -> None:
        with out.open("x") as file:
            while True:
                file.write(b"x" * (1 << 20))

    monkeypatch.setattr(TFRecord, "write", endless)
    with http_client(datasets) as client:
        at = client._connection.client.base_url
        address = f"/v1/datasets/d/training-sets/{made.version_hash}/export/tfrecord"
        head = f"GET {address} HTTP/1.1\r\nHost: {at.host}:{at.port}\r\n\r\n".encode()

        def stalled() -> socket.socket:
            made = socket.create_connection((at.host, at.port or 80))
            made.sendall(head)
            assert made.recv(12).endswith((b"200", b"503"))
            return made

        opened = [stalled() for _ in range(answers.MOST_EXPORTS)]
        assert threads() == answers.MOST_EXPORTS
        refused = httpx.get(f"http://{at.host}:{at.port}{address}", timeout=60)
        assert (refused.status_code, "Retry-After" in refused.headers) == (503, True)
        assert httpx.get(f"http://{at.host}:{at.port}/v1/health", timeout=60).status_code == 200
        for one in opened:
            one.close()
        until(lambda: threads() == 0)
        monkeypatch.setattr(answers, "STALLED_S", 0.2)
        with stalled():
            until(lambda: threads() == 0)
