"""All steps in a bucket: sources, large contents, training sets, downloads."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from servers import Server, localbucket, missing

from tests.training.datasets.types.test_types import IMAGES, zipped
from txlog.base.errors import DataFileError, InvalidInputError, NotFoundError
from txlog.store.open import open_store
from txlog.training import Datasets, Image, InlineRunner, Limits, Sources

pytestmark = pytest.mark.skipif(bool(missing("localbucket")), reason="no server can be run")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with localbucket() as running:
        yield running


@pytest.mark.exhaustive
def test_a_catalog_in_a_bucket(server: Server, tmp_path: Path) -> None:
    place = server.root()
    bucket = open_store(place, server.options)
    bucket.write_new("in/001.csv", b"hello,greeting\nbye,parting\n")
    bucket.write_new("in/images.zip", zipped(IMAGES, tmp_path / "i.zip").read_bytes())
    for name, content in IMAGES.items():
        bucket.write_new(f"in/images/{name}", content)
    catalog = Datasets(
        f"{place}/catalog",
        server.options,
        sources=Sources({"in": f"{place}/in"}, server.options),
        runner=InlineRunner(),
        limits=Limits(row_bytes=10),  # So that all images lie beside the rows.
    )
    intents = catalog.create("intents", "TEXT_INTENT", "in/001.csv")
    assert intents.commit(1).inputs[0].uri == "in/001.csv"
    made = intents.prepare(form="csv")
    assert made.error is None
    paths = made.download(tmp_path / "out")
    assert [Path(path).read_bytes() for path in paths] == [
        b"hello,0\nbye,1\n",
        b"0,greeting\n1,parting\n",
    ]
    pets = catalog.create("pets", "IMAGE_CLASS", "in/images.zip")
    again = catalog.create("pets again", "IMAGE_CLASS", "in/images")
    assert pets.commit(1).digest == again.commit(1).digest
    rows = pets.table().to_arrow()
    assert rows["content"].null_count == 3
    home = open_store(f"{place}/catalog", server.options)
    assert [home.read(uri) for uri in rows["uri"].to_pylist()] == [*IMAGES.values()]
    (archive,) = pets.prepare(form="csv").download(tmp_path / "zip")
    assert Path(archive).stat().st_size > sum(map(len, IMAGES.values()))
    raw = catalog.create("raw", "GENERIC", "in/images")
    raw.prepare().download(tmp_path / "raw")
    assert {name: (tmp_path / "raw" / name).read_bytes() for name in IMAGES} == IMAGES
    with pytest.raises(InvalidInputError, match="not in an allowed place"):
        intents.update(f"{place}/catalog/ledger")
    with pytest.raises(NotFoundError, match=r"in/002\.csv"):
        intents.update("in/002.csv")
    home.delete([rows["uri"][0].as_py()])
    with pytest.raises((NotFoundError, DataFileError)):
        raw.prepare().download(tmp_path / "gone")


def test_a_loader_reads_a_training_set_in_a_bucket(server: Server) -> None:
    catalog = Datasets(f"{server.root()}/catalog", server.options, runner=InlineRunner())
    data = pa.table(
        {
            "path": [*IMAGES],
            "label": [name.partition("/")[0] for name in IMAGES],
            "content": [*IMAGES.values()],
        }
    )
    made = catalog.create("pets", "IMAGE_CLASS", data).prepare()
    (batch,) = made.loader(
        batch_size=3, columns=["content", "label_id"], views={"content": Image((2, 2))}
    )
    assert batch["content"].shape == (3, 2, 2, 3)
    assert sorted(batch["label_id"].tolist()) == [0, 0, 1]
