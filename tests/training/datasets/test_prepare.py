"""Training sets: the content of their parts, and dead workers."""

import csv
import io
import os
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.training.datasets.types.test_types import IMAGES, image, zipped
from txlog.base.errors import (
    CommitConflictError,
    DataFileError,
    InvalidInputError,
    NotFoundError,
    UnsupportedFeatureError,
)
from txlog.store.local.disk import Disk
from txlog.training import Image
from txlog.training.datasets import training_files
from txlog.training.datasets.dataset import Dataset
from txlog.training.datasets.folder import Datasets
from txlog.training.datasets.prepare import InlineRunner, ThreadRunner, make
from txlog.training.datasets.values import Part


class LaterRunner:
    """A runner that keeps the work until it is told to do it."""

    def __init__(self) -> None:
        self.work: list[Any] = []

    def submit(self, work: Any) -> None:
        self.work.append(work)

    def run(self) -> None:
        while self.work:
            self.work.pop(0)()


def catalog_of(root: Path, runner: Any = None) -> Datasets:
    return Datasets(root / "catalog", runner=runner or InlineRunner())


def texts(*rows: tuple[str, str]) -> pa.Table:
    return pa.table({"utterance": [t for t, _ in rows], "labels": [labels for _, labels in rows]})


def bytes_of(root: Path, parts: tuple[Part, ...]) -> dict[str, bytes]:
    return {part.name: Path(part.uri).read_bytes() for part in parts}


# What is in them -------------------------------------------------------------------------------


@pytest.mark.spec("DST-44", "DST-45")
def test_the_chapters_training_set(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        '"I am still waiting on my credit card", activate_my_card;card_arrival\n'
        '"I couldn\'t purchase gas in Costco", card_not_working\n'
    )
    intents = catalog_of(tmp_path).create("intents", "TEXT_INTENT", tmp_path / "a.csv")
    made = intents.prepare(form="csv")
    assert made.state == "READY"
    assert bytes_of(tmp_path, made.parts) == {
        "examples.csv": b"I am still waiting on my credit card,0;1\n"
        b"I couldn't purchase gas in Costco,2\n",
        "labels.csv": b"0,activate_my_card\n1,card_arrival\n2,card_not_working\n",
    }
    assert made.statistics == {"numExamples": 2, "numLabels": 3}
    assert [part.rows for part in made.parts] == [2, 3]
    assert all(
        sha256(Path(part.uri).read_bytes()).hexdigest() == part.sha256
        and Path(part.uri).stat().st_size == part.bytes
        for part in made.parts
    )


def test_the_chapters_counts(tmp_path: Path) -> None:
    for name, count in (("001", 5500), ("002", 7600)):
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(
                (f"utterance {number}, of {name}", f"label_{number * 7 % 151}")
                for number in range(count)
            )
    intents = catalog_of(tmp_path).create(
        "dataset-1", "LANGUAGE_INTENT", tmp_path / "001.csv", tags={"category": "test set"}
    )
    tags = {"category": "training set"}
    intents.update(tmp_path / "002.csv", "More training data", tags=tags)
    summary = intents.summary()
    assert summary.type == "TEXT_INTENT"
    assert [dict(commit.statistics) for commit in summary.commits] == [
        {"numExamples": 5500, "numLabels": 151},
        {"numExamples": 7600, "numLabels": 151},
    ]
    whole, some = intents.prepare(form="csv"), intents.prepare(tags=tags, form="csv")
    assert (whole.picked, some.picked) == ((1, 2), (2,))
    assert [part.name for part in whole.parts] == ["examples.csv", "labels.csv"]
    assert whole.statistics == {"numExamples": 13_100, "numLabels": 151}
    assert some.statistics == {"numExamples": 7600, "numLabels": 151}
    lines = bytes_of(tmp_path, whole.parts)["examples.csv"].decode().splitlines()
    assert lines[5501] == '"utterance 1, of 002",1'


@given(
    commits=st.lists(
        st.lists(
            st.tuples(
                st.text(st.sampled_from('ab",\n é'), min_size=1, max_size=5).filter(str.strip),
                st.lists(st.sampled_from("wxyz"), min_size=1, max_size=3).map(";".join),
            ),
            min_size=1,
            max_size=4,
        ),
        min_size=1,
        max_size=4,
    ),
    run_bytes=st.sampled_from([1, 1200, 1 << 20]),
)
@settings(max_examples=examples(40))
@pytest.mark.spec("DST-43", "DST-44")
def test_labels_are_numbered_by_first_appearance_and_keep_their_ids(
    commits: list[list[tuple[str, str]]],
    run_bytes: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = tmp_path_factory.mktemp("set")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_files, "RUN_BYTES", run_bytes)
        intents = catalog_of(root).create("intents", "TEXT_INTENT", texts(*commits[0]))
        for rows in commits[1:]:
            intents.update(texts(*rows))
        ids: dict[str, int] = {}
        expected = []
        for number, rows in enumerate(commits, 1):
            for text, labels in rows:
                numbers = [ids.setdefault(label, len(ids)) for label in labels.split(";")]
                expected.append({"utterance": text, "label_ids": numbers})
            made = intents.prepare(number)
            assert made.table().to_arrow().to_pylist() == expected
            labels_file = next(part for part in made.parts if part.name == "labels.parquet")
            assert pq.read_table(labels_file.uri).to_pylist() == [
                {"label_id": number, "label_name": name} for name, number in ids.items()
            ]
            files = [p for p in made.parts if p.name.startswith("examples/")]
            assert pa.concat_tables(pq.read_table(p.uri) for p in files).to_pylist() == expected
            assert made.statistics == {"numExamples": len(expected), "numLabels": len(ids)}
        plain = intents.prepare(form="csv")
        written = bytes_of(root, plain.parts)["examples.csv"].decode()
        assert list(csv.reader(io.StringIO(written, newline=""))) == [
            [row["utterance"], ";".join(map(str, row["label_ids"]))]  # type: ignore[arg-type]
            for row in expected
        ]


@pytest.mark.spec("DST-44")
def test_other_engines_read_the_parts(tmp_path: Path) -> None:
    import deltalake
    import duckdb
    import polars as pl

    rows = [('say "hi", or not', "x;y"), ("two\nlines", "z"), (" plain ", "x")]
    intents = catalog_of(tmp_path).create("intents", "TEXT_INTENT", texts(*rows))
    expected = [(text, ids) for (text, _), ids in zip(rows, [[0, 1], [2], [0]], strict=True)]
    made = intents.prepare()
    found = deltalake.DeltaTable(f"{made.root}/examples").to_pyarrow_table().to_pylist()
    assert [(row["utterance"], row["label_ids"]) for row in found] == expected
    assert pl.scan_delta(f"{made.root}/examples").collect().rows() == expected
    plain = intents.prepare(form="csv")
    examples_csv, labels_csv = (part.uri for part in plain.parts)
    as_text = [(text, ";".join(map(str, ids))) for text, ids in expected]
    read = duckdb.sql(
        f"FROM read_csv('{examples_csv}', header=false, all_varchar=true, quote='\"')"
    )
    assert read.fetchall() == as_text
    frame = pl.read_csv(labels_csv, has_header=False)
    assert frame.rows() == [(0, "x"), (1, "y"), (2, "z")]


@pytest.mark.spec("DST-43")
def test_rows_keep_their_order_when_the_table_is_compacted(tmp_path: Path) -> None:
    catalog = catalog_of(tmp_path)
    intents = catalog.create("intents", "TEXT_INTENT", texts(("b", "x"), ("a", "y")))
    intents.update(texts(("c", "z")))
    before = intents.prepare(form="csv")
    table = txlog.Table(f"{catalog.root}/data/{intents.uuid}")
    table.optimize.compact()
    again = intents.prepare(form="parquet")
    assert again.table().to_arrow()["utterance"].to_pylist() == ["b", "a", "c"]
    assert intents.prepare(form="csv") == before
    table.optimize.z_order(["utterance"])  # Now the rows of a commit lie in another order.
    assert table.to_arrow(where="commit_id = 1")["utterance"].to_pylist() == ["a", "b"]
    other = catalog.dataset("intents")
    other.update(texts(("d", "w")))
    assert other.prepare().table().to_arrow()["utterance"].to_pylist() == ["b", "a", "c", "d"]


def test_images_as_a_table_and_as_the_chapters_zip(tmp_path: Path) -> None:
    first = zipped(IMAGES, tmp_path / "a.zip")
    second = zipped({"emu/a.png": image(seed=7)}, tmp_path / "b.zip")
    pets = catalog_of(tmp_path).create("pets", "IMAGE_CLASS", first)
    pets.update(second)
    contents = [*IMAGES.values(), image(seed=7)]
    made = pets.prepare()
    rows = made.table().to_arrow().to_pylist()
    assert [(row["filename"], row["label_id"]) for row in rows] == [
        ("a.png", 0),
        ("b.jpg", 0),
        ("a.png", 1),
        ("a.png", 2),
    ]
    assert [row["content"] for row in rows] == contents
    batches = list(
        made.loader(batch_size=2, columns=["content", "label_id"], views={"content": Image((4, 4))})
    )
    assert [batch["content"].shape for batch in batches] == [(2, 4, 4, 3)] * 2
    (part,) = pets.prepare(form="csv").parts
    assert part.name == "examples.zip"
    with zipfile.ZipFile(part.uri) as archive:
        assert archive.testzip() is None
        assert archive.read("examples.csv") == b"a.png,0\nb.jpg,0\na-2.png,1\na-3.png,2\n"
        assert archive.read("labels.csv") == b"0,cat\n1,dog\n2,emu\n"
        names = ["a.png", "b.jpg", "a-2.png", "a-3.png"]
        assert [archive.read(f"examples/{name}") for name in names] == contents


def test_files_of_any_kind_as_they_were(tmp_path: Path) -> None:
    files = {"a.bin": b"\0\1", "sub/b.bin": bytes(9 << 20)}
    for name, content in files.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(content)
    raw = catalog_of(tmp_path).create("raw", "GENERIC", tmp_path / "in")
    made = raw.prepare(form="csv")
    assert bytes_of(tmp_path, made.parts) == files
    assert made.statistics == {"numFiles": 2, "numBytes": 2 + (9 << 20)}
    for form in ("csv", "parquet"):
        paths = raw.prepare(form=form).download(tmp_path / form)
        assert paths == [str(tmp_path / form / name) for name in files]
        assert {name: (tmp_path / form / name).read_bytes() for name in files} == files
    assert raw.prepare().table().to_arrow()["name"].to_pylist() == [*files]
    raw.update(pa.table({"name": ["a.bin"], "content": [b"other"]}))
    failed = raw.prepare(form="csv")
    assert failed.state == "FAILED"
    assert failed.error is not None
    assert "different files with the name 'a.bin'" in failed.error.text
    last = raw.prepare(form="csv", options={"names": "last"})
    assert bytes_of(tmp_path, last.parts) == {**files, "a.bin": b"other"}
    raw.prepare(options={"names": "last"}).download(tmp_path / "last")
    assert (tmp_path / "last" / "a.bin").read_bytes() == b"other"


def test_rows_of_any_columns(tmp_path: Path) -> None:
    clicks = catalog_of(tmp_path).create(
        "clicks", "TABLE", pa.table({"x": [1, 2], "y": ["a", None]})
    )
    clicks.update(pa.table({"y": ["b"], "x": [3]}))
    assert clicks.prepare().table().to_arrow().to_pylist() == [
        {"x": 1, "y": "a"},
        {"x": 2, "y": None},
        {"x": 3, "y": "b"},
    ]
    (part,) = clicks.prepare(form="csv").parts
    assert Path(part.uri).read_bytes() == b"1,a\n2,\n3,b\n"


def test_options_that_a_type_does_not_know_fail_the_set(tmp_path: Path) -> None:
    intents = catalog_of(tmp_path).create("intents", "TEXT_INTENT", texts(("a", "x")))
    made = intents.prepare(options={"colour": "red"})
    assert made.error is not None
    assert (made.state, made.error.code) == ("FAILED", "invalid-input")
    assert "no option 'colour'" in made.error.text
    assert str(tmp_path) not in made.error.text
    assert not [*(tmp_path / "catalog" / "sets").rglob("*.parquet")]


# Who makes them --------------------------------------------------------------------------------


def test_one_hash_is_made_once_and_gives_the_same_bytes(tmp_path: Path) -> None:
    intents = catalog_of(tmp_path).create("intents", "TEXT_INTENT", texts(("a", "x")))
    made = intents.prepare()
    before = bytes_of(tmp_path, made.parts)
    other = catalog_of(tmp_path).dataset("intents")  # As another process opens it.
    again = other.prepare()
    assert again.version_hash == made.version_hash
    assert again.parts == made.parts
    assert bytes_of(tmp_path, again.parts) == before


def test_threads_make_sets_in_the_background(tmp_path: Path) -> None:
    runner = ThreadRunner(2)
    intents = catalog_of(tmp_path, runner).create("intents", "TEXT_INTENT", texts(("a", "x")))
    asked = intents.prepare()
    assert asked.state in ("RUNNING", "READY")
    assert intents.fetch(asked.version_hash, wait_s=60).state == "READY"
    runner.wait()


def test_of_two_workers_one_makes_a_set(tmp_path: Path) -> None:
    later = LaterRunner()
    intents = catalog_of(tmp_path, later).create("intents", "TEXT_INTENT", texts(("a", "x")))
    other = catalog_of(tmp_path, later).dataset("intents")
    assert intents.prepare().version_hash == other.prepare().version_hash
    threads = [threading.Thread(target=work) for work in later.work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = intents.fetch(intents.prepare().version_hash)
    assert made.state == "READY"
    assert len([*(tmp_path / "catalog").rglob("labels.parquet")]) == 1


def job_of(intents: Dataset) -> tuple[Any, Any]:
    later = LaterRunner()
    intents._home.runner = later
    intents.prepare()
    job, ledger, _ = later.work.pop().args
    return job, ledger


@pytest.mark.spec("DST-42")
def test_a_worker_that_was_overtaken_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    intents = catalog_of(tmp_path).create("intents", "TEXT_INTENT", texts(("a", "x")))
    job, ledger = job_of(intents)
    ready = ledger.ready

    def late(claim: Any, parts: Any, statistics: Any) -> None:
        raise CommitConflictError(version=0, rule="DST-24")

    monkeypatch.setattr(ledger, "ready", late)
    make(job, ledger)
    assert not [*(tmp_path / "catalog" / "sets").rglob("*.parquet")]
    monkeypatch.setattr(ledger, "ready", ready)


def test_an_error_of_any_kind_fails_the_set_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    intents = catalog_of(tmp_path).create("intents", "TEXT_INTENT", texts(("a", "x")))

    def broken(*_: object) -> None:
        raise ZeroDivisionError("by chance")

    monkeypatch.setattr(training_files.SetFiles, "write_table", broken)
    made = intents.prepare()
    assert made.error is not None
    assert (made.state, made.error.code) == ("FAILED", "failed")
    assert made.error.text == "an unexpected ZeroDivisionError"
    assert not [*(tmp_path / "catalog" / "sets").rglob("*.parquet")]
    monkeypatch.undo()
    assert intents.prepare().state == "READY"  # A failed one may be asked for again.


DIES = """
import os, sys
from txlog.training.datasets import training_files
from txlog.training.datasets.folder import Datasets
from txlog.training.datasets.prepare import InlineRunner

def die(*_):
    print("in the middle", flush=True)
    os._exit(9)

training_files.SetFiles.write_table = die
Datasets(sys.argv[1], runner=InlineRunner()).dataset("intents").prepare()
"""


def run_in_a_process(code: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Run code whose argument is the folder of the catalog."""
    return subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "catalog")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.spec("DST-42")
def test_the_set_of_a_worker_that_died_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = catalog_of(tmp_path)
    intents = catalog.create("intents", "TEXT_INTENT", texts(("a", "x"), ("b", "y")))
    done = run_in_a_process(DIES, tmp_path)
    assert (done.returncode, done.stdout.strip()) == (9, "in the middle"), done.stderr
    left = [*(tmp_path / "catalog" / "sets").rglob("*.parquet")]
    assert len(left) == 1
    state = intents.prepare()  # The lease of the dead worker runs.
    assert state.state == "RUNNING"
    assert catalog.sweep() == 0
    now_ms = type(intents._home.effects).now_ms
    monkeypatch.setattr(
        type(intents._home.effects), "now_ms", lambda self: now_ms(self) + 15 * 60_000
    )
    assert catalog.sweep() == 1
    made = intents.fetch(state.version_hash)
    assert made.state == "READY"
    assert [row["label_ids"] for row in made.table().to_arrow().to_pylist()] == [[0], [1]]
    assert made.root is not None
    assert made.root.endswith("/2")
    assert left[0].exists()  # What the dead worker left does no harm.


@pytest.mark.spec("DST-28")
def test_what_a_dead_worker_left_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = catalog_of(tmp_path)
    intents = catalog.create("intents", "TEXT_INTENT", texts(("a", "x")))
    sets = tmp_path / "catalog" / "sets"
    with monkeypatch.context() as patch:
        patch.setattr(training_files.SetFiles, "write_table", kill)
        with pytest.raises(_DeadError):
            intents.prepare()
    effects = type(intents._home.effects)
    now_ms = effects.now_ms
    for hours, attempts in ((1, {"1", "2"}), (26, {"2"})):
        late_ms = hours * 3600_000
        monkeypatch.setattr(effects, "now_ms", lambda self, late=late_ms: now_ms(self) + late)
        for path in sets.rglob("*/1/**/*"):  # As old as the clock says.
            os.utime(path, (time.time() - hours * 3600,) * 2)
        catalog.sweep()
        assert {path.relative_to(sets).parts[2] for path in sets.rglob("*.parquet")} == attempts
    made = intents.prepare()
    assert made.state == "READY"
    assert [*made.table().to_arrow()["utterance"].to_pylist()] == ["a"]


@pytest.mark.spec("DST-24")
def test_a_set_that_runs_while_its_data_set_is_deleted_is_made(tmp_path: Path) -> None:
    later = LaterRunner()
    catalog = catalog_of(tmp_path, later)
    intents = catalog.create("intents", "TEXT_INTENT", texts(("a", "x")))
    asked = intents.prepare()
    intents.delete()
    assert intents.fetch(asked.version_hash).state == "RUNNING"
    with pytest.raises(NotFoundError, match="is deleted"):
        intents.prepare()
    later.run()
    assert intents.fetch(asked.version_hash, wait_s=60).state == "READY"
    assert len(intents.fetch(asked.version_hash).download(tmp_path / "out")) == 2


@pytest.mark.spec("DST-24")
def test_a_set_of_a_dead_worker_is_made_though_its_data_set_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = catalog_of(tmp_path)
    intents = catalog.create("intents", "TEXT_INTENT", texts(("a", "x")))
    with monkeypatch.context() as patch:
        patch.setattr(training_files.SetFiles, "write_table", kill)
        with pytest.raises(_DeadError):
            intents.prepare()
    intents.delete()
    (one,) = intents.training_sets()
    assert one.state == "RUNNING"
    effects = type(intents._home.effects)
    now_ms = effects.now_ms
    monkeypatch.setattr(effects, "now_ms", lambda self: now_ms(self) + 15 * 60_000)
    assert catalog.sweep() == 1
    assert intents.fetch(one.version_hash).state == "READY"
    assert catalog.sweep() == 0


@pytest.mark.spec("DST-26")
@pytest.mark.parametrize("begun", [False, True])
def test_a_set_that_runs_while_its_data_set_is_purged_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    later = LaterRunner()
    catalog = catalog_of(tmp_path, later)
    intents = catalog.create("intents", "TEXT_INTENT", texts(("a", "x")))
    asked = intents.prepare()
    if begun:
        write = training_files.SetFiles.write_table

        def purging(out: Any, name: str, table: pa.Table) -> None:
            write(out, name, table)
            intents.purge(confirm="intents")

        monkeypatch.setattr(training_files.SetFiles, "write_table", purging)
    else:
        intents.purge(confirm="intents")
    later.run()  # It raises nothing.
    with pytest.raises(NotFoundError):
        intents.fetch(asked.version_hash)
    left = [path for path in (tmp_path / "catalog").rglob("*") if path.is_file()]
    assert {path.relative_to(tmp_path / "catalog").parts[0] for path in left} == {"ledger"}
    assert catalog.sweep() == 0


def kill(*_: object) -> None:
    """Die as a process does: nothing of it cleans up."""
    raise _DeadError


class _DeadError(BaseException):
    """The process is dead: nothing that it still tries reaches the disk."""


STEPS = ("create", "write", "sync", "sync_data", "truncate", "reopen", "link", "rename", "unlink")


class DyingDisk:
    """The disk of a process that dies at one of its steps, before or after it."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int, *, after: bool) -> None:
        self.steps = 0
        for name in (*STEPS, "make_folder", "sync_folder"):
            patch.setattr(Disk, name, self._dying(getattr(Disk, name), at, after=after))

    def _dying(self, step: Any, at: int, *, after: bool) -> Any:
        def call(*arguments: Any) -> Any:
            self.steps += 1
            if self.steps > at or (self.steps == at and not after):
                raise _DeadError
            done = step(*arguments)
            if self.steps == at:
                raise _DeadError
            return done

        return call


def outlive(root: Path, at: int, *, after: bool) -> int:
    """Die at a step of `prepare`, and return how many steps there were; another process goes on."""
    with pytest.MonkeyPatch.context() as patch:
        disk = DyingDisk(patch, at, after=after)
        try:
            catalog_of(root).dataset("intents").prepare()
        except _DeadError:
            assert disk.steps >= at
        steps = disk.steps
    with pytest.MonkeyPatch.context() as patch:
        catalog = catalog_of(root)
        intents = catalog.dataset("intents")
        now_ms = type(intents._home.effects).now_ms
        patch.setattr(
            type(intents._home.effects), "now_ms", lambda self: now_ms(self) + 15 * 60_000
        )
        catalog.sweep()
        made = intents.prepare()
        assert made.state == "READY"
        assert made.table().to_arrow()["label_ids"].to_pylist() == [[0], [1]]
        events = [event.kind for event in intents._home.ledger.events()]
        assert (events.count("asked"), events.count("ready")) == (1, 1)
        assert all(
            sha256(Path(part.uri).read_bytes()).hexdigest() == part.sha256 for part in made.parts
        )
    return steps


@pytest.mark.spec("DST-42")
@pytest.mark.parametrize("stride", [47, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_a_process_may_die_at_any_step(stride: int, tmp_path: Path) -> None:
    catalog_of(tmp_path / "made").create("intents", "TEXT_INTENT", texts(("a", "x"), ("b", "y")))
    shutil.copytree(tmp_path / "made", tmp_path / "whole")
    steps = outlive(tmp_path / "whole", 1 << 30, after=False)
    assert steps > 30
    for at in range(1, steps + 1, stride):
        for after in (False, True):
            root = tmp_path / f"{at}-{after}"
            shutil.copytree(tmp_path / "made", root)
            outlive(root, at, after=after)


def test_a_process_that_ends_makes_first_what_was_asked_for(tmp_path: Path) -> None:
    catalog = catalog_of(tmp_path)
    intents = catalog.create("intents", "TEXT_INTENT", texts(("a", "x"), ("b", "y")))
    code = "from txlog.training import Datasets; import sys; Datasets(sys.argv[1])"
    done = run_in_a_process(f"{code}.dataset('intents').prepare()", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    (made,) = intents.training_sets()
    assert made.state == "READY"


OUTLIVES = """
import concurrent.futures.thread as pools, sys, threading, time
from txlog.training import Datasets

def prepare():
    while not pools._shutdown:  # The pools of Python take no work any more.
        time.sleep(0.01)
    made = intents.prepare()
    print(intents.fetch(made.version_hash, wait_s=60).state, len(intents.training_sets()))

intents = Datasets(sys.argv[1]).dataset("intents")
threading.Thread(target=prepare).start()
"""


def test_a_thread_that_outlives_the_main_one_makes_sets(tmp_path: Path) -> None:
    catalog = catalog_of(tmp_path)
    intents = catalog.create("intents", "TEXT_INTENT", texts(("a", "x"), ("b", "y")))
    done = run_in_a_process(OUTLIVES, tmp_path)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["READY", "1"], "")
    (made,) = intents.training_sets()
    assert made.state == "READY"


def test_a_lease_is_renewed_without_a_thread_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at the end of an interpreter, which starts no more threads."""
    intents = catalog_of(tmp_path).create("intents", "TEXT_INTENT", texts(("a", "x")))
    job, ledger = job_of(intents)
    claim, renew = ledger.claim, ledger.renew
    renewed: list[Any] = []

    def no_thread(_: object) -> None:
        raise RuntimeError("can't start new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    monkeypatch.setattr(ledger, "claim", lambda *of: claim(*of, lease_ms=1))
    monkeypatch.setattr(ledger, "renew", lambda held: renewed.append(renew(held)) or renewed[-1])
    make(job, ledger)
    assert renewed
    assert intents.fetch(job.asked.version_hash).state == "READY"


def test_a_lease_is_renewed_while_the_set_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    intents = catalog_of(tmp_path).create("intents", "TEXT_INTENT", texts(("a", "x")))
    job, ledger = job_of(intents)
    renewed = threading.Event()
    claim, renew = ledger.claim, ledger.renew

    def renewing(held: Any) -> Any:
        found = renew(held)
        renewed.set()
        return found

    monkeypatch.setattr(ledger, "claim", lambda *of: claim(*of, lease_ms=300))
    monkeypatch.setattr(ledger, "renew", renewing)
    write = training_files.SetFiles.write_table

    def slow(*of: Any) -> None:
        assert renewed.wait(60)
        write(*of)

    monkeypatch.setattr(training_files.SetFiles, "write_table", slow)
    make(job, ledger)
    assert intents.fetch(job.asked.version_hash).state == "READY"


# Getting them ----------------------------------------------------------------------------------


@pytest.mark.spec("DST-45")
def test_a_part_with_other_bytes_is_never_given_out(tmp_path: Path) -> None:
    intents = catalog_of(tmp_path).create("intents", "TEXT_INTENT", texts(("a", "x")))
    made = intents.prepare(form="csv")
    paths = made.download(tmp_path / "out")
    assert paths == [str(tmp_path / "out" / name) for name in ("examples.csv", "labels.csv")]
    Path(made.parts[0].uri).write_bytes(b"b,0\n")
    assert made.download(tmp_path / "out") == paths  # What is there is right, and stays.
    with pytest.raises(DataFileError, match=r"examples\.csv has other bytes"):
        made.download(tmp_path / "new")
    assert not [path for path in (tmp_path / "new").rglob("*") if path.is_file()]


def test_parts_do_not_climb_out_of_the_folder(tmp_path: Path) -> None:
    from txlog.training.datasets.prepare import download

    part = Part("../x", str(tmp_path / "x"), 0, None, "0" * 64)
    with pytest.raises(InvalidInputError, match="leads out"):
        download([part], tmp_path / "out")


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert not [t for t in threading.enumerate() if t.name == "txlog-lease"]


# Only some examples ----------------------------------------------------------------------------

SPLIT = {"train": 0.6, "val": 0.2, "test": 0.2}


def rows_of(made: Any) -> list[tuple[str, list[int]]]:
    """The examples of a training set: text and numbers of labels."""
    table = made.table().to_arrow()
    text, labels = (column.to_pylist() for column in table.columns)
    return list(zip(text, labels, strict=True))


def many(first: int, stop: int) -> pa.Table:
    return texts(*((f"text {n}", f"l{n % 7};l{n % 3}") for n in range(first, stop)))


@pytest.mark.spec("DST-46")
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_parts_of_a_split_are_all_examples_with_the_same_labels(tmp_path: Path, form: str) -> None:
    intents = catalog_of(tmp_path).create("intents", "TEXT_INTENT", many(0, 100))
    intents.update(many(100, 150), "More")
    whole = intents.prepare(form=form)
    parts = {
        name: intents.prepare(form=form, split=SPLIT, part=name, key="utterance") for name in SPLIT
    }
    assert len({one.version_hash for one in (whole, *parts.values())}) == 4
    assert sum(one.statistics["numExamples"] for one in parts.values()) == 150
    assert all(20 <= one.statistics["numExamples"] <= 110 for one in parts.values())
    assert {one.statistics["numLabels"] for one in (whole, *parts.values())} == {7}
    if form == "parquet":
        found = {name: rows_of(one) for name, one in parts.items()}
        wanted = rows_of(whole)
        assert sorted(row for rows in found.values() for row in rows) == sorted(wanted)
        for rows in found.values():  # In the order of the whole.
            assert rows == [row for row in wanted if row in rows]
        intents.update(many(150, 200), "Later")
        later = intents.prepare(split=SPLIT, part="test", key="utterance")
        assert rows_of(later)[: len(found["test"])] == found["test"]
        again = intents.prepare(commit=2, split=SPLIT, part="test", key="utterance")
        assert again.version_hash == parts["test"].version_hash
        assert intents.fetch(again.version_hash).options["where"] == again.options["where"]
    else:
        lines = [
            Path(next(part.uri for part in one.parts if part.name == "examples.csv")).read_text()
            for one in (whole, *parts.values())
        ]
        assert sorted("".join(lines[1:]).splitlines()) == sorted(lines[0].splitlines())


@pytest.mark.spec("DST-46")
@pytest.mark.parametrize("type_name", ["TABLE", "GENERIC", "IMAGE_CLASS"])
def test_all_types_leave_examples_out(tmp_path: Path, type_name: str) -> None:
    catalog = catalog_of(tmp_path)
    if type_name == "TABLE":
        source: Any = pa.table({"x": range(20), "s": ["a", "b"] * 10})
        where, key, total = "x < 8", "x", 20
    elif type_name == "GENERIC":
        source = tmp_path / "files"
        source.mkdir()
        for name in "abcdef":
            (source / f"{name}.txt").write_text(name)
        where, key, total = "name < 'c'", "name", 6
    else:
        images = {f"{'xy'[n % 2]}/{n}.png": image(seed=n) for n in range(6)}
        source = zipped(images, tmp_path / "images.zip")
        where, key, total = "label = 'x'", "filename", 6
    found = catalog.create("one", type_name, source)
    count = {"TABLE": 8, "GENERIC": 2, "IMAGE_CLASS": 3}[type_name]
    assert found.prepare(where=where).table().count() == count
    assert found.prepare(options={"where": where}).table().count() == count
    both = sum(
        found.prepare(where=where, split=SPLIT, part=part, key=key).table().count()
        for part in SPLIT
    )
    assert both == count
    assert found.prepare(where="1 = 0").table().count() == 0
    assert found.prepare().table().count() == total


@pytest.mark.parametrize(
    ("arguments", "argument", "reason"),
    [
        ({"where": "nope = 1"}, "where", "nope"),
        ({"where": "a b c"}, "where", "a b c|cannot"),
        ({"where": "labels IS NULL) OR (1 = 1"}, "where", "OR"),
        ({"where": "1 = 1", "options": {"where": "1 = 1"}}, "options", "other arguments"),
        ({"split": SPLIT, "part": "train"}, "key", "split, part and key are given together"),
        ({"split": SPLIT, "part": "dev", "key": "utterance"}, "part", "there is no part 'dev'"),
        ({"split": SPLIT, "part": "val", "key": "id"}, "where", "id"),
        ({"options": {"where": "nope = 1"}}, "where", "nope"),
    ],
)
def test_a_wrong_predicate_is_refused_when_it_is_asked_for(
    tmp_path: Path, arguments: dict[str, Any], argument: str, reason: str
) -> None:
    intents = catalog_of(tmp_path).create("intents", "TEXT_INTENT", many(0, 3))
    with pytest.raises(InvalidInputError, match=reason) as raised:
        intents.prepare(**arguments)
    assert raised.value.argument == argument
    assert intents.training_sets() == []


@pytest.mark.spec("DST-46")
def test_a_comment_in_a_predicate_hides_nothing(tmp_path: Path) -> None:
    intents = catalog_of(tmp_path).create("intents", "TEXT_INTENT", many(0, 40))
    plain = intents.prepare(where="1 = 1", split=SPLIT, part="val", key="utterance")
    comment = intents.prepare(where="1 = 1 -- all", split=SPLIT, part="val", key="utterance")
    assert comment.version_hash == plain.version_hash
    assert 0 < plain.statistics["numExamples"] < 40


def test_ray_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Datasets(tmp_path, runner=InlineRunner()).create("d", "TABLE", pa.table({"n": [1]}))
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UnsupportedFeatureError, match=r"pip install 'ray\[data\]'"):
        made.prepare().ray()
