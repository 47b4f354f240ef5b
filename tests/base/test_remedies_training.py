"""Remedies of data sets and loaders that name calls of Python are followed to the letter.

A case is a function that lets a call fail, and follows each piece of Python in the remedy.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
import txlog.training as training
from tests.remedies import adding_to, calls_of, refused, remedies_with_calls
from txlog.training import Code, Dataset, Datasets, InlineRunner, Input, Limits, Loader, Mixture
from txlog.training.datasets import lifecycle, types
from txlog.training.datasets.types import generic
from txlog.training.service.auth import require_guarded
from txlog.training.service.client import RemoteTrainingSet

Case = Callable[[Path], object]
CASES: dict[str, Case] = {}
ROWS = pa.table({"id": [1, 2], "label": ["a", "b"]})
case = adding_to(CASES)


def value(code: str, **names: Any) -> Any:
    """Return the value of a piece of Python."""
    space = {"txlog": txlog, "Datasets": Datasets, "Code": Code, "Input": Input, "Limits": Limits}
    return eval(code.replace("…", "..."), space | names)


def argument(code: str, **names: Any) -> dict[str, Any]:
    """Return a piece such as `form="parquet"` as an argument."""
    found: dict[str, Any] = eval(f"dict({code})", dict(names))
    return found


def catalog(path: Path, **options: Any) -> Datasets:
    return Datasets(path / "root", runner=InlineRunner(), **options)


def table_set(path: Path) -> Dataset:
    made = catalog(path).create("t", "TABLE", ROWS, tags={"for": "test"})
    made.update(pa.table({"id": [2], "label": ["c"]}), "second")
    return made


def generic_set(path: Path, *contents: str) -> Dataset:
    made = None
    for number, content in enumerate(contents):
        folder = path / f"in{number}"
        folder.mkdir()
        (folder / "same.txt").write_text(content)
        (folder / f"{number}.txt").write_text(content)
        if made is None:
            made = catalog(path).create("g", "GENERIC", str(folder))
        else:
            made.update(str(folder), "more")
    assert made is not None
    return made


def require_made(ds: Dataset, **how: Any) -> training.TrainingSet:
    made = ds.fetch(ds.prepare(**how).version_hash, wait_s=60)
    assert made.state == "READY", made
    return made


@case("training/datasets/dataset.py: Datasets.sweep")
def _(path: Path) -> None:
    datasets = catalog(path)
    ds = datasets.create("t", "TABLE", ROWS)
    ds.update(ROWS, "second")

    class StoppedError(Exception):
        pass

    def stop(*_: object) -> None:
        raise StoppedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lifecycle, "_delete_rows", stop)
        with pytest.raises(StoppedError):
            ds.purge(2, confirm="t")
    (code,) = refused(ds.verify)
    value(code)(datasets)
    ds.verify()


@case('training/datasets/diff.py: diff(a, b, key="id")')
def _(path: Path) -> None:
    ds = table_set(path)
    (code,) = refused(ds.diff(1, 2).changed)
    assert value(f"ds.{code}", ds=ds, a=1, b=2).changed().num_rows == 0


@case('training/datasets/lifecycle.py: Code("clean.py", "4f1c2e")')
def _(path: Path) -> None:
    ds = table_set(path)
    wrong: Any = 5
    (code,) = refused(lambda: ds.update(ROWS, "third", code=wrong))
    assert ds.update(ROWS, "third", code=value(code)).code == Code("clean.py", "4f1c2e")


@case('training/datasets/limits.py: tags={"category": "test set"}')
def _(path: Path) -> None:
    ds = table_set(path)
    wrong: Any = ["test set"]
    (code,) = refused(lambda: ds.update(ROWS, "third", tags=wrong))
    assert ds.update(ROWS, "third", **argument(code)).tags == {"category": "test set"}


@case("training/datasets/lineage.py: Input(uri, role, version, digest)")
def _(path: Path) -> None:
    ds = table_set(path)
    wrong: Any = 5
    (code,) = refused(lambda: ds.update(ROWS, "third", inputs=[wrong]))
    given = value(code, uri="s3://b/x", role="raw", version=3, digest="ab")
    assert ds.update(ROWS, "third", inputs=[given]).inputs == (given,)


@case("training/datasets/sources.py: Limits(file_bytes=…)")
def _(path: Path) -> None:
    (path / "a.txt").write_text("a long text")
    small = Limits(file_bytes=3)
    (code,) = refused(
        lambda: catalog(path, limits=small).create("g", "GENERIC", str(path / "a.txt"))
    )
    limits = value(code.replace("…", "100"))
    catalog(path, limits=limits).create("g", "GENERIC", str(path / "a.txt"))


@case('training/datasets/training_set.py: form="parquet"')
def _(path: Path) -> None:
    ds = table_set(path)
    (code,) = refused(require_made(ds, form="csv").table)
    assert require_made(ds, **argument(code)).table().count() == 3


@case("training/datasets/training_set.py: fetch(version_hash, wait_s=60)")
def _(path: Path) -> None:
    class Later:
        def submit(self, work: Callable[[], None]) -> None:
            waiting.append(work)

    waiting: list[Callable[[], None]] = []
    ds = Datasets(path / "root", runner=Later()).create("t", "TABLE", ROWS)
    asked = ds.prepare()
    (code,) = refused(asked.table)
    for work in waiting:
        work()
    made = value(f"ds.{code}", ds=ds, version_hash=asked.version_hash)
    assert made.table().count() == 2


class Mine:
    """A type of a user: what it must have, and no more."""

    def __init__(self) -> None:
        base: Any = types.type_of("TABLE")
        self.name, self.version, self.aliases = "MINE", 1, ()
        self.ingestion, self.training = base.ingestion, base.training
        self.read, self.statistics, self.build = base.read, base.statistics, base.build


@pytest.fixture(autouse=True)
def _types(monkeypatch: pytest.MonkeyPatch) -> None:
    types.types()
    monkeypatch.setattr(types, "_known", dict(types._known))


@case("training/datasets/types/__init__.py: txlog.training.register")
def _(path: Path) -> None:
    (code,) = refused(lambda: catalog(path).create("m", "MINE", ROWS))
    value(code)(Mine())
    catalog(path).create("m", "MINE", ROWS)


@case("training/datasets/types/__init__.py: txlog.training.DatasetType")
def _(_: Path) -> None:
    wrong: Any = object()
    (code,) = refused(lambda: training.register(wrong))
    members = {name for name in vars(value(code)) if not name.startswith("_")}
    members |= set(value(code).__annotations__)
    assert members <= set(dir(Mine()))
    mine: Any = Mine()
    training.register(mine)


@case("training/datasets/types/__init__.py: replace=True")
def _(_: Path) -> None:
    mine: Any = Mine()
    training.register(mine)
    (code,) = refused(lambda: training.register(mine))
    training.register(mine, **argument(code))


@case('training/datasets/types/csv_rows.py: form="parquet"')
def _(path: Path) -> None:
    ds = catalog(path).create("t", "TABLE", pa.table({"l": [b"a", b"b"]}))
    failed = ds.fetch(ds.prepare(form="csv").version_hash)
    assert failed.error is not None
    (code,) = calls_of(failed.error.text)
    require_made(ds, **argument(code))


@case('training/datasets/types/generic.py: {"names": "last"}')
def _(path: Path) -> None:
    ds = generic_set(path, "a", "b")
    failed = ds.fetch(ds.prepare(options={"names": "unique"}).version_hash)
    assert failed.error is not None
    (code,) = calls_of(failed.error.text)
    require_made(ds, options=value(code))


@case('training/datasets/types/generic.py: form="parquet"')
def _(path: Path) -> None:
    ds = generic_set(path, "a")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generic, "_PARTS", 1)
        failed = ds.fetch(ds.prepare(form="csv").version_hash)
        assert failed.error is not None
        (code,) = calls_of(failed.error.text)
        assert require_made(ds, **argument(code)).table().count() == 2


@case("training/loader/blocks.py: fill={'x': value}")
def _(path: Path) -> None:
    table = txlog.write(path / "t", pa.table({"c": [1, None, 3]}))
    (code,) = refused(lambda: list(Loader(table, batch_size=3)))
    (batch,) = Loader(table, batch_size=3, **argument(code, value=7))
    assert batch["c"].tolist() == [1, 7, 3]


@case("training/loader/batches.py: world_size")
def _(path: Path) -> None:
    table = txlog.write(path / "t", ROWS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RANK", "0")
        patch.delenv("WORLD_SIZE", raising=False)
        (code,) = refused(lambda: Loader(table, batch_size=1))
        assert len(list(Loader(table, batch_size=1, rank=0, **{code: 1}))) == 2


@case('training/loader/splits.py: {"train": 0.8, "val": 0.1, "test": 0.1}')
def _(_: Path) -> None:
    wrong: Any = [0.8, 0.2]
    (code,) = refused(lambda: training.split_where("train", wrong, "id"))
    assert "id" in training.split_where("train", value(code), "id")


@case("training/loader/state.py: state_dict()")
def _(path: Path) -> None:
    loader = Loader(txlog.write(path / "t", ROWS), batch_size=1)
    (code,) = refused(lambda: loader.load_state_dict({"a": 1}))
    loader.load_state_dict(value(f"loader.{code}", loader=loader))


@case("training/service/auth.py: Datasets(root, sources={...})")
def _(path: Path) -> None:
    tokens: Any = object()
    (code,) = refused(lambda: require_guarded("0.0.0.0", tokens, catalog(path)))
    require_guarded("0.0.0.0", tokens, value(code.replace("{...}", "{}"), root=path / "root"))


@case("training/service/client.py: txlog.training.Datasets")
def _(path: Path) -> None:
    ds = table_set(path)
    made = require_made(ds)
    remote: Any = object.__new__(RemoteTrainingSet)
    (code,) = refused(remote.table)
    assert value(code)(path / "root").dataset("t").fetch(made.version_hash).table().count() == 3


# Remedies that no case provokes, each with the reason.
ELSEWHERE: Mapping[str, str] = {
    "training/datasets/formats/samples.py: data.align_labels_with_mapping(x, 'x')": "a test of "
    "exports to Hugging Face follows it",
    "training/loader/jax.py: Ragged(pad=0)": "needs jax",
    'training/loader/jax.py: jax.config.update("jax_enable_x64", True)': "needs jax",
    "training/loader/tf.py: Image((height, width))": "needs tensorflow",
    "training/loader/torch.py: Loader.state_at(step)": "needs torch",
}


@case('training/loader/mixture.py: {"web": Loader(…), "code": Loader(…)}')
def _loaders_of_a_mixture(path: Path) -> None:
    table = txlog.write(str(path / "t"), ROWS)
    loader = Loader(table, batch_size=1)
    wrong: Any = [loader]
    (code,) = refused(lambda: Mixture(wrong))
    Mixture(value(code, Loader=lambda _: loader))


@case('training/loader/splits.py: split={"train": 0.8, "val": 0.2} | part="train" | key="id"')
def _a_part_of_a_split(path: Path) -> None:
    table = txlog.write(str(path / "t"), ROWS)
    given: dict[str, Any] = {}
    for piece in refused(lambda: Loader(table, batch_size=1, part="train")):
        given |= argument(piece)
    Loader(table, batch_size=1, **given)


@case("training/datasets/dataset.py: datasets.dataset(1).undelete()")
def _a_change_of_a_deleted_data_set(path: Path) -> None:
    made = table_set(path)
    made.delete()
    (code,) = refused(lambda: made.update(ROWS, schema_mode="merge"))
    value(code, datasets=catalog(path))
    made.update(ROWS)


@case("training/datasets/events.py: datasets.dataset(1).undelete()")
def _a_deleted_data_set_by_its_name(path: Path) -> None:
    table_set(path).delete()
    datasets = catalog(path)
    (code,) = refused(lambda: datasets.dataset("t"))
    value(code, datasets=datasets)
    assert datasets.dataset("t").dataset_id == 1


@pytest.mark.slow
def test_each_remedy_with_a_call_has_a_case() -> None:
    written = remedies_with_calls("training/")
    assert {key: written[key] for key in written.keys() - CASES.keys() - ELSEWHERE.keys()} == {}
    assert (CASES.keys() | ELSEWHERE.keys()) - written.keys() == set()
    assert not CASES.keys() & ELSEWHERE.keys()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("key", CASES)
def test_a_remedy_can_be_followed(key: str, tmp_path: Path) -> None:
    CASES[key](tmp_path)
